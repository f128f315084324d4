/* SPDX-License-Identifier: Apache-2.0
 *
 * The fence of a stage. Names epoch.1, epoch.2, ... in the stage's directory form a log that only
 * grows, because each is made with link(2), which fails where the name exists. A record is a claim
 * or a commit:
 *
 *   claim   (struct lf_claim)   start N.E begins
 *   commit  (struct lf_done)    start N.E is the result
 *
 * The commit of epoch E takes the name epoch.(E+1). A newer start claims the same name. One
 * of the two links fails, so a zombie can never publish once a newer epoch exists, and no newer
 * epoch begins once the commit exists without seeing it. Afterwards the commit is linked to
 * N.E/done.json; when a crash comes between, whoever reads the log next makes that link.
 *
 * Invariants: (1) epochs have no gaps; (2) the highest name decides: claim = that start may
 * still publish, commit = nobody may until a new attempt claims again; (3) records never change.
 */
#ifndef LF_FLOW_EPOCH_H
#define LF_FLOW_EPOCH_H

#include "engine/base/err.h"
#include "flow/record/start.h"

typedef struct lf_epoch_log {
    int highest;           /* 0: none */
    struct lf_claim *last; /* record of the highest, NULL when none */
} lf_epoch_log;

int lf_epoch_read(lf_epoch_log *out, const char *stage_dir, lf_err *err);
void lf_epoch_fini(lf_epoch_log *l);

/* What a claim needs that depends on the record before it. prepare is called with the number of
 * that record and adds to the claim what it lends it until the call is over; drop takes back what
 * it did when another process was faster, or the claim failed. */
typedef struct lf_epoch_hooks {
    int (*prepare)(void *user, int highest, struct lf_claim *claim, lf_err *err);
    void (*drop)(void *user);
    void *user;
} lf_epoch_hooks;

/* Claim the next epoch for claim->attempt: sets claim->epoch; process, token, t and the job are the
 * caller's. LF_EEXIST when a commit of spec_id is the highest record (nothing is left to do);
 * LF_EBUSY when a newer attempt has begun. hooks may be NULL. */
int lf_epoch_claim(struct lf_claim *claim, const char *stage_dir, const char *spec_id,
                   const lf_epoch_hooks *hooks, lf_err *err);
/* Publish the commit of start done->epoch; LF_EBUSY when a higher epoch exists (fenced). */
int lf_epoch_commit(const char *stage_dir, const struct lf_done *done, lf_err *err);
/* Does an epoch above this one exist? Cheap; for polling. */
int lf_epoch_superseded(const char *stage_dir, int epoch);

#endif
