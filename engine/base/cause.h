/* SPDX-License-Identifier: Apache-2.0
 *
 * Why a stage ends, said by those who know: the stage from the code of its error, our launcher when
 * a rank dies, the watchdog of the ranks when it ends a job. What they say is one small file,
 * DIR/cause.json, published with link(2): the first word stands, because what follows from a
 * failure is said later than the failure. DIR is what LF_RANKS_DIR names, which the wrapper
 * (flow/job/exec.h) sets; without it nothing is written.
 *
 *     {"lf_cause":1, "class":"config", "reason":"one line", "by":"lf-eval"}
 *
 * Classes are those of flow/run/policy.c. "" is: the speaker knows what went wrong, not of which
 * class it is.
 */
#ifndef LF_BASE_CAUSE_H
#define LF_BASE_CAUSE_H

#include <stddef.h>

#include "engine/base/err.h"

#define LF_CAUSE_FILE    "cause.json"
#define LF_CAUSE_DIR_ENV "LF_RANKS_DIR"

typedef struct lf_cause {
    char cls[32];
    char reason[700];
    char by[64];
} lf_cause;

/* The class that an error belongs to: its errno before its code; "" when neither decides. */
const char *lf_cause_class(const lf_err *err);
/* The class of a process that a signal ended: "rank" unless the signal says more. */
const char *lf_cause_signal(int sig);

/* Say it. Quiet: somebody was first, nobody asks, or it cannot be written. Safe to call from any
 * thread. */
void lf_cause_say(const char *by, const char *cls, const char *reason);
/* What was said below dir. LF_ENOENT: nothing. */
int lf_cause_load(lf_cause *out, const char *dir, lf_err *err);

#endif
