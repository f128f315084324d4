/* SPDX-License-Identifier: Apache-2.0
 *
 * Time left of a run.
 */
#include "config.h"

#include "flow/sched/eta.h"

#include <stdlib.h>

#include "engine/base/mem.h"

/* Seconds that a stage still needs; *known: is that more than a guess of nothing? */
static double left_of(const lf_stage_view *s, const lf_stage_shown *now, bool *known)
{
    const double estimate = s->plan->estimate_s.v;
    *known = true;
    if (s->state == LF_STATE_DONE)
        return 0;
    if (now->eta_s.given)
        return now->eta_s.v;
    *known = s->plan->estimate_s.given;
    const double gone = s->state == LF_STATE_RUNNING ? now->duration_s.v : 0;
    return estimate > gone ? estimate - gone : 0;
}

void lf_eta_of(lf_eta *out, const lf_run_view *v, const lf_stage_shown *now, const bool *selected,
               int jobs)
{
    double *until = lf_calloc(v->n + 1, sizeof *until, NULL), sum = 0;
    *out = (lf_eta){.at_least = until == NULL};
    for (size_t i = 0; until != NULL && i < v->n; i++) { /* behind all that it waits for */
        const lf_stage_view *s = &v->stages[i];
        bool known;
        if (selected != NULL && !selected[i])
            continue;
        for (size_t k = 0; k < s->n_deps; k++)
            if (until[s->deps[k]] > until[i])
                until[i] = until[s->deps[k]];
        const double left = left_of(s, &now[i], &known);
        until[i] += left;
        sum += left;
        out->stages += s->state != LF_STATE_DONE;
        out->at_least = out->at_least || !known;
        if (until[i] > out->left_s)
            out->left_s = until[i];
    }
    if (jobs <= 1)
        out->left_s = sum;
    free(until);
}
