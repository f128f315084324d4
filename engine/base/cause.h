/* SPDX-License-Identifier: Apache-2.0
 *
 * The cause of a stage's end, recorded by whoever knows it. The stage knows it from the code of its
 * error, our launcher when a rank dies, and the watchdog of the ranks when it ends a job. The
 * record is one small file, DIR/cause.json, published with link(2). The first record stays, because
 * the failure itself is recorded before what follows from it. LF_RANKS_DIR names DIR; the wrapper
 * (flow/job/exec.h) sets it. Without LF_RANKS_DIR nothing is written.
 *
 * The watchdog only sees that a rank is gone. It may be faster than the launcher, which gets the
 * signal that ended it, and the class follows from the signal; so lf_cause_saw takes its place.
 *
 *     {"lf_cause":1, "class":"config", "reason":"one line", "by":"lf-eval"}
 *
 * The classes are those of flow/run/policy.c. The class "" means that the writer knows what went
 * wrong but not the class.
 */
#ifndef LF_BASE_CAUSE_H
#define LF_BASE_CAUSE_H

#include <stddef.h>

#include "engine/base/err.h"

#define LF_CAUSE_FILE    "cause.json"
#define LF_CAUSE_DIR_ENV "LF_RANKS_DIR"
#define LF_CAUSE_WATCH   "watchdog"

typedef struct lf_cause {
    char cls[32];
    char reason[700];
    char by[64];
} lf_cause;

/* Returns the class of an error. errno decides first, then the code; "" when neither decides. */
const char *lf_cause_class(const lf_err *err);
/* Returns the class of the end of a process by a signal: "rank" unless the signal says more. */
const char *lf_cause_signal(int sig);

/* Records a cause. Nothing happens when a cause is recorded already, when LF_RANKS_DIR is not set,
 * or when the file cannot be written. Any thread may call this. */
void lf_cause_say(const char *by, const char *cls, const char *reason);
/* The same by a parent that saw how the process ended: over a record by the watchdog, too. */
void lf_cause_saw(const char *by, const char *cls, const char *reason);
/* Reads what was recorded below dir. LF_ENOENT: nothing was recorded. */
int lf_cause_load(lf_cause *out, const char *dir, lf_err *err);

#endif
