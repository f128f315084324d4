/* SPDX-License-Identifier: Apache-2.0
 *
 * What a start of a stage goes on from. A start that was superseded may live on for hours on a node
 * that nobody reaches. It publishes checkpoints below its own directory and prunes older ones
 * there, and it may be paused between any two of its steps. So its directory says nothing once the
 * next start has begun. What counts is the list in the claim of that next start:
 *
 *   1  Before its claim the next start lists what may be gone on from: the list of the claim before
 *      it, and what lies in the out directory of that one start.
 *   2  It takes each of them: hard links, or copies where links are refused, in a directory of its
 *      own (staging). When something has changed since the listing, 1 and 2 are done again, so that
 *      what is taken was there at one time: a checkpoint with the best weights that it names.
 *   3  It claims its number with the list in the record. Nothing is ever added to a list.
 *   4  The staging directory becomes <attempt>.<epoch>/from, and the stage reads there and nowhere
 *      else.
 *
 * A crash between 3 and 4 leaves the staging directory, which the claim names. Where another start
 * was faster in 3, everything begins anew with the list of that one.
 *
 * In the claim:  "from": [{"rel","path","attempt","sha256","taken"}], "staging": NAME
 *   rel      name below out: "checkpoints/step-00000100"
 *   path     where it was found, relative to the stage's directory
 *   attempt  the attempt that made it; whether its settings allow going on is decided at each claim
 *   sha256   of the manifest; absent for what is no artifact
 *   taken    is it in staging? What this attempt may not go on from stays where it is
 * Claims of versions that made no lists have no "from"; then the out directories of all starts up
 * to that claim count.
 */
#ifndef LF_FLOW_HANDOVER_H
#define LF_FLOW_HANDOVER_H

#include <limits.h>
#include <stdbool.h>

#include "engine/base/err.h"
#include "flow/record/doc.h"
#include "flow/record/start.h"

typedef struct lf_handover {
    const char *stage_dir;
    const lf_doc_carries *carry; /* of the stage (base/opt.h) */
    const bool *usable; /* [n_usable]: may this attempt go on from what attempt i + 1 made? */
    size_t n_usable;
    char staging[PATH_MAX]; /* "" while nothing is taken */
    struct lf_handed *list; /* of the claim; owned */
    size_t n_list;
} lf_handover;

/* For lf_epoch_claim: list and take what may be gone on from when `highest` is the newest record,
 * into `claim`, which borrows it. */
int lf_handover_prepare(void *h, int highest, struct lf_claim *claim, lf_err *err);
/* The claim failed because another start was faster: remove what this one had taken. */
void lf_handover_drop(void *h);
/* After the claim: what was taken becomes start_dir/from; *any: there is something in it. Older
 * staging directories go. */
int lf_handover_settle(lf_handover *h, const char *start_dir, int epoch, bool *any, lf_err *err);
void lf_handover_fini(lf_handover *h);
/* The result is committed, so nobody goes on from what was taken: remove it. */
void lf_handover_discard(const char *start_dir);

#endif
