/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs and stages as they are shown.
 */
#include "config.h"

#include "flow/sched/describe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/lock.h"
#include "engine/base/sys.h"
#include "flow/plan/laid.h"
#include "flow/record/record.h"
#include "flow/run/classify.h"
#include "flow/run/series.h"
#include "flow/sched/sched.h"

static void add_times(lf_stage_shown *o, const lf_start *inc, enum lf_state state)
{
    const double t0 = lf_inc_begin(inc), t1 = lf_inc_end(inc);
    if (t0 > 0)
        o->t_start = lf_real_of(t0);
    if (t1 > 0)
        o->t_end = lf_real_of(t1);
    if (t0 > 0 && (t1 > 0 || state == LF_STATE_RUNNING))
        o->duration_s = lf_real_of((t1 > 0 ? t1 : lf_wall_s()) - t0);
}

/* Seconds that the steps left will take at the pace of this start, by the clock of its own
 * records. */
static void add_eta(lf_stage_shown *o, const char *path, const lf_metric_row *last, double steps)
{
    lf_metric_row first;
    (void)lf_metrics_first(&first, path); /* none: all of it is zero */
    double dt = last->t.v - first.t.v, gained = last->step.v - first.step.v;
    if (dt > 0 && gained > 0) {
        double left = (steps - last->step.v) * dt / gained - (lf_wall_s() - last->t.v);
        o->steps_per_s = lf_real_of(gained / dt);
        o->eta_s = lf_real_of(left > 0 ? left : 0);
    }
    lf_metric_row_fini(&first);
}

static void add_progress(lf_stage_shown *o, const lf_stage_view *s, const char *dir)
{
    char path[PATH_MAX];
    lf_metric_row last;
    const double steps = s->plan->plan.steps.v;
    if (lf_path_set(path, NULL, "%s/metrics", dir) < 0 || !lf_metrics_last(&last, path))
        return;
    o->metrics = last.values;
    /* Stages that count no steps write their results at step 0. */
    if (!last.step.given || (last.step.v <= 0 && steps <= 0))
        return;
    o->step = lf_int_of((int64_t)last.step.v);
    if (steps > 0) {
        o->steps = lf_int_of((int64_t)steps);
        o->progress = lf_real_of(last.step.v / steps);
        if (s->state == LF_STATE_RUNNING)
            add_eta(o, path, &last, steps);
    }
}

/* A stage that counts no steps says how far its long loop is. */
static void add_doing(lf_stage_shown *o, const lf_stage_view *s, const char *dir)
{
    if (s->state != LF_STATE_RUNNING || o->steps.given)
        return;
    lf_doing_load(&o->doing, dir);
    const lf_doing *d = &o->doing;
    if (!d->given || !d->total.given)
        return;
    o->progress = lf_real_of(d->done.v / d->total.v);
    if (d->per_s.v > 0) {
        double left = (d->total.v - d->done.v) / d->per_s.v - (lf_wall_s() - d->t.v);
        o->eta_s = lf_real_of(left > 0 ? left : 0);
    }
}

static void add_start(lf_stage_shown *o, const lf_stage_view *s, const lf_start *inc)
{
    const char *cls = lf_inc_class(inc);
    o->attempt = lf_int_of(inc->attempt);
    o->epoch = lf_int_of(inc->epoch);
    o->dir = inc->dir;
    if (s->state == LF_STATE_FAILED && inc->end != NULL) {
        o->log = inc->end->log;
        o->log.given = true;
        o->exit_code = lf_int_of(inc->end->exit_code);
        o->signal = lf_int_of(inc->end->signal);
    }
    if (s->ended_class[0] != '\0') /* by what the scheduler says; nobody has written it down yet */
        cls = s->ended_class;
    o->cls = cls[0] != '\0' ? cls : NULL;
    add_times(o, inc, s->state);
    add_progress(o, s, inc->dir);
    add_doing(o, s, inc->dir);
}

static bool of_these_settings(const lf_stage_view *s, const lf_start *inc)
{
    const struct lf_attempt_rec *a = lf_attempt_of(s, inc);
    return a == NULL || a->spec_id == NULL || s->plan->spec_id == NULL ||
           strcmp(a->spec_id, s->plan->spec_id) == 0;
}

static void add_warnings(lf_stage_shown *o, const lf_stage_view *s)
{
    struct lf_end all = {.n_warnings = 0};
    for (size_t i = 0; i < s->n_incs; i++) {
        const lf_start *inc = &s->incs[i];
        if (!of_these_settings(s, inc))
            continue;
        if (inc->end == NULL) /* it runs, or nobody has written its end */
            lf_end_warnings(&all, inc->dir);
        else
            all.n_warnings += inc->end->n_warnings;
        for (size_t k = 0; inc->end != NULL && k < inc->end->warnings.n; k++)
            if (lf_warning_add(&all.warnings, inc->end->warnings.v[k], NULL) < 0)
                break; /* no memory: some of them are shown */
    }
    if (all.n_warnings == 0)
        return;
    o->n_warnings = lf_int_of(all.n_warnings);
    o->warnings = all.warnings;
    o->warnings.given = true;
}

void lf_describe_stage(lf_stage_shown *out, const lf_stage_view *s)
{
    const lf_start *inc = s->result != NULL && s->state == LF_STATE_DONE ? s->result
                          : s->n_incs > 0                                ? &s->incs[s->n_incs - 1]
                                                                         : NULL;
    *out = (lf_stage_shown){.name = s->plan->name,
                            .kind = s->plan->kind,
                            .state = lf_state_name(s->state),
                            .reason = s->reason,
                            .spec_id = s->plan->spec_id,
                            .attempts = (int)s->n_attempts,
                            .job = s->job};
    lf_laid_words(out->layout, sizeof out->layout, &s->plan->plan, ", ");
    if (s->n_incs > 0)
        out->segments = lf_int_of((int64_t)s->n_incs);
    if (s->result_done != NULL)
        out->ended = s->result_done->ended;
    add_warnings(out, s);
    if (inc != NULL) {
        add_start(out, s, inc);
    } else if (s->result_dir != NULL) {
        out->dir = s->result_dir;
        out->adopted = s->plan->adopted.given ? &s->plan->adopted : NULL;
        add_progress(out, s, s->result_dir);
    }
}

static const char *overall(const lf_run_view *v)
{
    static const enum lf_state order[] = {LF_STATE_FAILED,    LF_STATE_RUNNING, LF_STATE_UNKNOWN,
                                          LF_STATE_CANCELLED, LF_STATE_PURGED,  LF_STATE_PENDING,
                                          LF_STATE_WAITING};
    for (size_t k = 0; k < sizeof order / sizeof order[0]; k++)
        for (size_t i = 0; i < v->n; i++)
            if (v->stages[i].state == order[k])
                return lf_state_name(order[k]);
    return "done";
}

int lf_describe_run(lf_run_shown *out, const lf_run_view *v, lf_err *err)
{
    const lf_doc *plan = v->run.plan;
    *out = (lf_run_shown){.run = v->run.id,
                          .name = plan->name,
                          .short_name = plan->short_name,
                          .state = overall(v),
                          .rev = v->run.rev,
                          .dir = v->run.dir,
                          .stages = {.given = true}};
    if (plan->created.given)
        out->created = lf_real_of(plan->created.v);
    for (size_t i = 0; i < v->n; i++) {
        lf_stage_shown *s = lf_rows_add(&out->stages, sizeof *s, err);
        if (s == NULL) {
            lf_run_shown_fini(out);
            return LF_ENOMEM;
        }
        lf_describe_stage(s, &v->stages[i]);
    }
    return 0;
}

void lf_stage_shown_fini(lf_stage_shown *s)
{
    lf_raw_free(s->metrics);
    s->metrics = NULL;
    lf_doing_fini(&s->doing);
    lf_texts_fini(&s->warnings);
}

void lf_run_shown_fini(lf_run_shown *r)
{
    for (size_t i = 0; i < r->stages.n; i++)
        lf_stage_shown_fini(&r->stages.v[i]);
    free(r->stages.v);
    memset(r, 0, sizeof *r);
}

bool lf_describe_lives(const lf_run_view *v, const lf_stage_view *s)
{
    char lock[PATH_MAX];
    if (s->state == LF_STATE_RUNNING || s->state == LF_STATE_UNKNOWN || s->live)
        return true;
    return (s->state == LF_STATE_PENDING || s->state == LF_STATE_WAITING) &&
           lf_path_set(lock, NULL, "%s/driver.lock", v->run.dir) == 0 && lf_lock_held(lock);
}

int lf_view_find(lf_run_view *out, const lf_project *p, const char *word, lf_err *err)
{
    lf_run run;
    int rc = lf_run_find(&run, p, word, err);
    if (rc < 0)
        return rc;
    rc = lf_view_load(out, &run, err);
    if (rc < 0)
        lf_run_fini(&run);
    else
        rc = lf_sched_overlay(out, false,
                              err); /* what cannot be asked is said in the stages' reasons */
    if (rc < 0 && out->n > 0)
        lf_view_fini(out);
    return rc;
}
