/* SPDX-License-Identifier: Apache-2.0
 *
 * Completing the records of starts whose wrapper is gone. Only what is certain is written:
 * the process is provably gone, and end.json is published with link(2), so of two repairs one wins.
 */
#include "config.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/sys.h"
#include "flow/record/event.h"
#include "flow/record/record.h"
#include "flow/run/classify.h"
#include "flow/run/who.h"
#include "flow/sched/drive.h"

/* What the scheduler said of a job whose wrapper could not: how the stage stands after it. */
static const char *state_after(const char *cls)
{
    if (strcmp(cls, "cancelled") == 0)
        return "cancelled";
    return strcmp(cls, "oom") == 0 ? "failed" : "stopped";
}

/* told: class and reason that the scheduler gave, NULL: the process is gone and nobody knows
 * why. */
static int end_for(const lf_run *run, const lf_stage_view *s, const lf_start *inc, const char *told,
                   lf_err *err)
{
    bool done = inc->done != NULL;
    const char *name = s->plan->name;
    const char *state = done ? "done" : "stopped", *cls = done ? "" : "lost";
    const char *reason = done ? "" : "interrupted: its processes were gone without an end record";
    if (!done && told != NULL) {
        state = state_after(told);
        cls = told;
        reason = s->reason;
    }
    char path[PATH_MAX];
    int rc = lf_path_set(path, err, "%s/log", inc->dir);
    char *tail = rc == 0 ? lf_log_tail(path, 65536, err) : NULL;
    struct lf_end end = {.state = state,
                         .cls = cls,
                         .reason = reason,
                         .t_start = lf_inc_begin(inc),
                         .t_end = done ? inc->done->t_end : lf_wall_s(),
                         .step = -1,
                         .gained = -1,
                         .repaired = true};
    if (rc == 0)
        rc = tail == NULL ? LF_ENOMEM : lf_log_lines_that_matter(&end.log, tail, 8, err);
    free(tail);
    if (rc < 0)
        return rc;
    lf_end_warnings(&end, inc->dir);
    lf_err e = LF_ERR_INIT;
    rc = lf_end_publish(inc->dir, &end, &e);
    lf_texts_fini(&end.log);
    lf_texts_fini(&end.warnings);
    if (rc == LF_EEXIST)
        return 0;
    if (rc < 0)
        return lf_fail(err, rc, "%s", e.text);
    const lf_origin from = {.dir = inc->dir,
                            .run = run->id,
                            .stage = name,
                            .attempt = inc->attempt,
                            .epoch = inc->epoch};
    return lf_event_end(&from, &end, err);
}

int lf_stage_repair(const lf_run *run, const lf_stage_view *s, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->n_incs; i++) {
        const lf_start *inc = &s->incs[i];
        bool told =
            s->ended_class[0] != '\0' && i + 1 == s->n_incs && inc->attempt == (int)s->n_attempts;
        if (inc->end == NULL &&
            told) { /* on another host, and its scheduler says that the job has ended */
            rc = end_for(run, s, inc, s->ended_class, err);
            continue;
        }
        if (inc->end != NULL || inc->claim == NULL ||
            lf_who_look(&inc->claim->process) != LF_PROC_GONE)
            continue;
        if (inc->started != NULL && lf_who_look(&inc->started->process) != LF_PROC_GONE)
            continue;
        rc = end_for(run, s, inc, NULL, err);
    }
    return rc;
}
