/* SPDX-License-Identifier: Apache-2.0
 *
 * The outcome of a sweep.
 */
#include "config.h"

#include "flow/run/outcome.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/run/series.h"

int lf_outcome_compare(const lf_real *a, const lf_real *b, const char *goal)
{
    const bool x = a->given && isfinite(a->v), y = b->given && isfinite(b->v);
    if (!x || !y)
        return x ? -1 : y ? 1 : 0;
    if (a->v < b->v)
        return strcmp(goal, "max") == 0 ? 1 : -1;
    return a->v > b->v ? (strcmp(goal, "max") == 0 ? -1 : 1) : 0;
}

/* ---- which metric ---- */

static bool has_key(const lf_run_view *v, const lf_sweep *s, const char *base, const char *key)
{
    for (size_t k = 0; k < s->children.n; k++) {
        const char *name = lf_pairs_get(&s->children.v[k].stages, base);
        const lf_stage_view *st = name != NULL ? lf_view_stage(v, name) : NULL;
        lf_metric_rows rows;
        double x;
        bool found = false;
        if (st == NULL || lf_metrics_records(&rows, st, NULL) < 0)
            continue;
        for (size_t i = rows.n; !found && i-- > 0;)
            found = lf_raw_number(&x, rows.v[i].values, key);
        const bool any = rows.n > 0;
        lf_metric_rows_fini(&rows);
        if (any)
            return found; /* what one child records, all do */
    }
    return false;
}

/* Of the last stage of the pipeline that has one. */
static int guess_metric(lf_outcome *o, const lf_run_view *v, const lf_sweep *s, lf_err *err)
{
    static const char *const keys[] = {"valid_loss", "loss"};
    const lf_pairs *stages = &s->children.v[0].stages;
    for (size_t i = stages->n; i-- > 0;)
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
            if (has_key(v, s, stages->v[i].name, keys[k])) {
                int rc = lf_text_set(&o->metric_stage, stages->v[i].name, "metric", err);
                return rc == 0 ? lf_text_set(&o->metric, keys[k], "metric", err) : rc;
            }
    return 0;
}

static int choose_metric(lf_outcome *o, const lf_run_view *v, const lf_sweep *s, const char *metric,
                         lf_err *err)
{
    int rc = 0;
    if (metric == NULL && s->metric == NULL)
        return guess_metric(o, v, s, err);
    if (metric == NULL) {
        rc = lf_text_set(&o->metric_stage, s->metric_stage, "metric", err);
        return rc == 0 ? lf_text_set(&o->metric, s->metric, "metric", err) : rc;
    }
    const char *dot = strchr(metric, '.');
    o->metric_stage =
        lf_strndup(metric, dot != NULL ? (size_t)(dot - metric) : strlen(metric), err);
    if (o->metric_stage == NULL)
        return LF_ENOMEM;
    if (dot == NULL || dot[1] == '\0' ||
        lf_pairs_get(&s->children.v[0].stages, o->metric_stage) == NULL)
        return lf_fail(err, LF_EINVAL, "metric %s: STAGE.KEY of a stage of the pipeline is wanted",
                       metric);
    return lf_text_set(&o->metric, dot + 1, "metric", err);
}

/* ---- children ---- */

/* States by what they say of the whole, as a run's. */
static int rank_of(enum lf_state s)
{
    static const int ranks[] = {
        [LF_STATE_FAILED] = 0,    [LF_STATE_RUNNING] = 1, [LF_STATE_UNKNOWN] = 2,
        [LF_STATE_CANCELLED] = 3, [LF_STATE_PURGED] = 4,  [LF_STATE_PENDING] = 5,
        [LF_STATE_WAITING] = 6,   [LF_STATE_ENDED] = 7,   [LF_STATE_DONE] = 8};
    return ranks[s];
}

static void set_state(lf_outcome_child *c, const lf_run_view *v, const lf_sweep_child *child)
{
    const lf_stage_view *first = NULL;
    for (size_t i = 0; i < child->stages.n; i++) {
        const lf_stage_view *s = lf_view_stage(v, child->stages.v[i].value);
        if (s != NULL && (first == NULL || rank_of(s->state) < rank_of(first->state)))
            first = s;
    }
    c->state = first != NULL ? lf_state_name(first->state) : "unknown";
    c->stop = first != NULL && first->state != LF_STATE_DONE ? first->plan->name : NULL;
}

int lf_reached_load(lf_reached *out, const lf_stage_view *s, const lf_reached_args *a, lf_err *err)
{
    lf_metric_rows rows;
    lf_points p = {.n = 0};
    double spacing = 0;
    memset(out, 0, sizeof *out);
    int rc = lf_metrics_records(&rows, s, err);
    if (rc < 0)
        return rc;
    size_t n = rows.n;
    while (n > 0 && rows.v[n - 1].step.v > a->upto)
        n--;
    lf_metric_rows_cut(&rows, n);
    rc = lf_metrics_points(&p, &rows, a->key, err);
    for (size_t i = 0; rc == 0 && i < p.n; i++) {
        out->last = lf_real_of(p.y[i]);
        spacing = fmax(spacing, p.x[i] - out->step.v);
        out->step = lf_real_of(p.x[i]);
        if (lf_outcome_compare(&out->last, &out->best, a->goal) < 0) {
            out->best = out->last;
            out->best_step = out->step;
        }
    }
    /* One record at step 0 is the result of a stage without steps, and is missing nowhere. */
    const double behind = p.n > 0 ? rows.v[rows.n - 1].step.v - out->step.v : 0;
    if (rc == 0 && behind > 0 && behind >= spacing) {
        out->not_finite = true;
        out->last = (lf_real){.given = false};
    }
    lf_points_fini(&p);
    lf_metric_rows_fini(&rows);
    return rc;
}

static int set_values(lf_outcome_child *c, const lf_run_view *v, const lf_outcome *o, lf_err *err)
{
    const lf_stage_view *s = c->stage != NULL ? lf_view_stage(v, c->stage) : NULL;
    lf_reached r;
    int rc = s == NULL
                 ? 0
                 : lf_reached_load(&r, s, &(lf_reached_args){o->metric, o->goal, INFINITY}, err);
    if (s == NULL || rc < 0)
        return rc;
    c->step = r.step;
    c->last = r.last;
    c->best = r.best;
    c->best_step = r.best_step;
    c->not_finite = r.not_finite;
    return 0;
}

static bool is_done(const lf_outcome_child *c)
{
    return strcmp(c->state, "done") == 0;
}

/* ---- groups ---- */

/* The settings of a child without its seeds. */
static int without_seeds(lf_pairs *out, const lf_outcome *o, const lf_pairs *settings, lf_err *err)
{
    int rc = 0;
    out->given = true;
    for (size_t i = 0; rc == 0 && i < settings->n; i++)
        if (!lf_texts_has(&o->seeds, settings->v[i].name))
            rc = lf_pairs_add(out, settings->v[i].name, settings->v[i].value, err);
    return rc;
}

static bool same_pairs(const lf_pairs *a, const lf_pairs *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = strcmp(a->v[i].name, b->v[i].name) == 0 && strcmp(a->v[i].value, b->v[i].value) == 0;
    return same;
}

static int put_in_group(lf_outcome *o, lf_outcome_child *c, lf_err *err)
{
    lf_pairs mine = {.n = 0};
    int rc = without_seeds(&mine, o, &c->settings, err);
    for (size_t g = 0; rc == 0 && c->group == 0 && g < o->groups.n; g++)
        if (o->seeds.n > 0 && same_pairs(&o->groups.v[g].settings, &mine))
            c->group = o->groups.v[g].number;
    if (rc == 0 && c->group == 0) {
        lf_outcome_group *g = lf_rows_add(&o->groups, sizeof *g, err);
        if (g != NULL) {
            c->group = g->number = (int)o->groups.n;
            g->settings = mine;
            return 0;
        }
        rc = LF_ENOMEM;
    }
    lf_pairs_fini(&mine);
    return rc;
}

static void average(lf_outcome *o, lf_outcome_group *g)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < o->children.n; i++) {
        const lf_outcome_child *c = &o->children.v[i];
        if (c->group != g->number || !is_done(c) || (!c->last.given && !c->not_finite))
            continue;
        g->n++;
        g->bad += c->not_finite;
        sum += c->last.v;
    }
    if (g->n == 0 || g->bad > 0)
        return;
    g->mean = lf_real_of(sum / g->n);
    for (size_t i = 0; i < o->children.n; i++) {
        const lf_outcome_child *c = &o->children.v[i];
        if (c->group == g->number && is_done(c) && c->last.given)
            squares += (c->last.v - g->mean.v) * (c->last.v - g->mean.v);
    }
    if (g->n > 1)
        g->stderr_ = lf_real_of(sqrt(squares / (g->n - 1) / g->n));
}

/* Of equals the first wins. */
static void find_winners(lf_outcome *o)
{
    lf_outcome_child *child = NULL;
    lf_outcome_group *group = NULL;
    for (size_t i = 0; i < o->children.n; i++) {
        lf_outcome_child *c = &o->children.v[i];
        if (is_done(c) && c->last.given &&
            (child == NULL || lf_outcome_compare(&c->last, &child->last, o->goal) < 0))
            child = c;
    }
    for (size_t i = 0; i < o->groups.n; i++) {
        lf_outcome_group *g = &o->groups.v[i];
        average(o, g);
        if (g->mean.given &&
            (group == NULL || lf_outcome_compare(&g->mean, &group->mean, o->goal) < 0))
            group = g;
    }
    if (child != NULL)
        child->winner = true;
    if (group != NULL)
        group->winner = true;
}

/* A metric that was asked for, and that no child has recorded although one is done. */
static int check_known(const lf_outcome *o, lf_err *err)
{
    const char *done = NULL;
    for (size_t i = 0; i < o->children.n; i++) {
        const lf_outcome_child *c = &o->children.v[i];
        if (c->step.given)
            return 0;
        done = is_done(c) ? c->stage : done;
    }
    return done == NULL ? 0
                        : lf_fail(err, LF_EINVAL,
                                  "metric %s.%s: no child has recorded it; `loong-flow metrics %s "
                                  "-o all` shows what there is",
                                  o->metric_stage, o->metric, done);
}

/* ---- all of it ---- */

static int load_child(lf_outcome *o, const lf_run_view *v, const lf_sweep_child *child, lf_err *err)
{
    lf_outcome_child *c = lf_rows_add(&o->children, sizeof *c, err);
    if (c == NULL)
        return LF_ENOMEM;
    c->number = (int)child->number.v;
    c->settings = child->settings;
    c->stage = o->metric_stage != NULL ? lf_pairs_get(&child->stages, o->metric_stage) : NULL;
    set_state(c, v, child);
    int rc = set_values(c, v, o, err);
    return rc == 0 ? put_in_group(o, c, err) : rc;
}

int lf_outcome_load(lf_outcome *out, const lf_run_view *v, const char *metric, const char *goal,
                    lf_err *err)
{
    const lf_sweep *s = &v->run.plan->sweep;
    lf_outcome o;
    memset(&o, 0, sizeof o);
    if (!s->given || s->children.n == 0)
        return lf_fail(err, LF_EINVAL, "run %s is no sweep: its pipeline has no axes", v->run.id);
    o.run = v->run.id;
    o.goal = goal != NULL ? goal : s->goal != NULL && metric == NULL ? s->goal : "min";
    int rc = lf_texts_copy(&o.seeds, &s->seeds, err);
    const lf_pairs *axes = &s->children.v[0].settings;
    for (size_t i = 0; rc == 0 && i < axes->n; i++)
        rc = lf_texts_add(&o.axes, axes->v[i].name, err);
    if (rc == 0)
        rc = choose_metric(&o, v, s, metric, err);
    for (size_t k = 0; rc == 0 && k < s->children.n; k++)
        rc = load_child(&o, v, &s->children.v[k], err);
    if (rc == 0 && metric != NULL)
        rc = check_known(&o, err);
    if (rc < 0) {
        lf_outcome_fini(&o);
        return rc;
    }
    find_winners(&o);
    *out = o;
    return 0;
}

void lf_outcome_fini(lf_outcome *o)
{
    for (size_t i = 0; i < o->groups.n; i++)
        lf_pairs_fini(&o->groups.v[i].settings);
    free(o->groups.v);
    free(o->children.v);
    free(o->metric_stage);
    free(o->metric);
    lf_texts_fini(&o->axes);
    lf_texts_fini(&o->seeds);
    memset(o, 0, sizeof *o);
}
