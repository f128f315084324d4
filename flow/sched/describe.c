/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs and stages as JSON.
 */
#include "config.h"

#include "flow/sched/describe.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/lock.h"
#include "engine/base/sys.h"
#include "flow/record/record.h"
#include "flow/record/shown.h"
#include "flow/run/series.h"
#include "flow/sched/sched.h"

static void add_times(json_t *o, const lf_start *inc, enum lf_state state)
{
    const double t0 = lf_inc_begin(inc), t1 = lf_inc_end(inc);
    if (t0 > 0)
        json_object_set_new(o, "t_start", json_real(t0));
    if (t1 > 0)
        json_object_set_new(o, "t_end", json_real(t1));
    if (t0 > 0 && (t1 > 0 || state == LF_STATE_RUNNING))
        json_object_set_new(o, "duration_s", json_real((t1 > 0 ? t1 : lf_wall_s()) - t0));
}

/* Seconds that the steps left will take at the pace of this start, by the clock of its own
 * records. */
static void add_eta(json_t *o, const char *path, const json_t *last, double step, double steps)
{
    json_t *first = lf_metrics_first(path);
    double dt = json_number_value(json_object_get(last, "t")) -
                json_number_value(json_object_get(first, "t"));
    double gained = step - json_number_value(json_object_get(first, "step"));
    if (dt > 0 && gained > 0) {
        double left = (steps - step) * dt / gained -
                      (lf_wall_s() - json_number_value(json_object_get(last, "t")));
        json_object_set_new(o, "steps_per_s", json_real(gained / dt));
        json_object_set_new(o, "eta_s", json_real(left > 0 ? left : 0));
    }
    json_decref(first);
}

static void add_progress(json_t *o, const lf_stage_view *s, const char *dir)
{
    char path[PATH_MAX];
    if (lf_path_set(path, NULL, "%s/metrics", dir) < 0)
        return;
    json_t *last = lf_metrics_last(path);
    const json_t *step = json_object_get(last, "step");
    const double steps = s->plan->plan.steps.v;
    /* Stages that count no steps write their results at step 0. */
    if (json_is_number(step) && (json_number_value(step) > 0 || steps > 0)) {
        json_object_set_new(o, "step", json_integer((json_int_t)json_number_value(step)));
        if (steps > 0) {
            json_object_set_new(o, "steps", json_integer((json_int_t)steps));
            json_object_set_new(o, "progress", json_real(json_number_value(step) / steps));
            if (s->state == LF_STATE_RUNNING)
                add_eta(o, path, last, json_number_value(step), steps);
        }
    }
    if (last != NULL)
        json_object_set_new(o, "metrics", last);
}

json_t *lf_describe_stage(const lf_stage_view *s)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:i}", "name", s->plan->name, "kind",
                          s->plan->kind, "state", lf_state_name(s->state), "reason", s->reason,
                          "spec_id", s->plan->spec_id, "attempts", (int)s->n_attempts);
    if (o != NULL && s->n_incs > 0)
        json_object_set_new(o, "segments", json_integer((json_int_t)s->n_incs));
    if (o != NULL && s->job != NULL)
        json_object_set_new(o, "job", lf_job_said_shown(s->job));
    const lf_start *inc = s->result != NULL && s->state == LF_STATE_DONE ? s->result
                          : s->n_incs > 0                                ? &s->incs[s->n_incs - 1]
                                                                         : NULL;
    if (o == NULL)
        return NULL;
    if (inc == NULL && s->result_dir != NULL) {
        json_object_set_new(o, "dir", json_string(s->result_dir));
        if (s->plan->adopted.given)
            json_object_set_new(o, "adopted", lf_adopted_json(&s->plan->adopted, NULL));
        add_progress(o, s, s->result_dir);
    }
    if (inc == NULL)
        return o;
    json_object_set_new(o, "attempt", json_integer(inc->attempt));
    json_object_set_new(o, "epoch", json_integer(inc->epoch));
    json_object_set_new(o, "dir", json_string(inc->dir));
    const char *cls = lf_inc_class(inc);
    if (s->state == LF_STATE_FAILED && inc->end != NULL) {
        json_object_set_new(o, "log", lf_end_shown(inc->end, "log"));
        json_object_set_new(o, "exit", json_integer(inc->end->exit_code));
        json_object_set_new(o, "signal", json_integer(inc->end->signal));
    }
    if (s->ended_class[0] != '\0') /* by what the scheduler says; nobody has written it down yet */
        cls = s->ended_class;
    if (cls[0] != '\0')
        json_object_set_new(o, "class", json_string(cls));
    add_times(o, inc, s->state);
    add_progress(o, s, inc->dir);
    return o;
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

json_t *lf_describe_run(const lf_run_view *v)
{
    json_t *stages = json_array();
    for (size_t i = 0; i < v->n; i++)
        json_array_append_new(stages, lf_describe_stage(&v->stages[i]));
    const lf_doc *plan = v->run.plan;
    return json_pack("{s:s, s:s, s:s, s:i, s:o*, s:s, s:o}", "run", v->run.id, "name", plan->name,
                     "state", overall(v), "rev", v->run.rev, "created",
                     plan->created.given ? json_real(plan->created.v) : NULL, "dir", v->run.dir,
                     "stages", stages);
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
