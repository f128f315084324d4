/* SPDX-License-Identifier: Apache-2.0
 *
 * A sweep from its pipeline file: each child is read as a pipeline of its own, and their plans
 * become one. The configuration that stays is that of the first child.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/plan/pipeline_priv.h"
#include "flow/plan/sweep.h"
#include "flow/record/units.h"

/* A stage of a child, by its number and its name in the file, that a mistake belongs to. */
struct doubt {
    size_t child;
    char *stage;
};

/* A sweep while its children are read. */
struct sweep {
    const lf_reading *r;
    const lf_sweep_axes *axes;
    lf_conf_set *over; /* of the child that is read */
    lf_sweep_merge merge;
    lf_pipeline whole; /* the first child's, whose plan gets the stages of all */
    LF_ROWS(struct doubt) doubts;
};

/* The pipeline under the settings of one child. */
static int load_child(lf_pipeline *out, const struct sweep *s, lf_err *err)
{
    lf_pipeline p;
    memset(&p, 0, sizeof p);
    const lf_pipeline_args *args = s->r->args;
    const lf_reading r = {.p = &p, .args = args};
    const lf_conf_args ca = {.pipeline_path = args->path,
                             .sets = s->axes->sets,
                             .n_sets = s->axes->n_sets,
                             .over = s->over,
                             .n_over = s->axes->rows.n};
    p.path = lf_strdup(s->r->p->path, err);
    p.project = lf_strdup(s->r->p->project, err);
    int rc = p.path == NULL || p.project == NULL ? LF_ENOMEM : lf_conf_load(&p.conf, &ca, err);
    if (rc == 0)
        rc = lf_pipeline_understand(&r, err);
    if (rc < 0)
        lf_pipeline_fini(&p);
    else
        *out = p;
    return rc;
}

/* The first child's plan stays as the head of the whole; its stages move into one of their own. */
static lf_doc *begin_whole(struct sweep *s, lf_pipeline *first, lf_err *err)
{
    lf_doc *own = lf_doc_new(err);
    if (own == NULL)
        return NULL;
    lf_doc *whole = first->plan;
    memcpy(&own->stages, &whole->stages, sizeof own->stages);
    memset(&whole->stages, 0, sizeof whole->stages);
    whole->stages.given = true;
    whole->sweep = s->axes->sweep; /* borrowed until there is no error left */
    s->whole = *first;
    memset(first, 0, sizeof *first);
    s->merge.plan = whole;
    return own;
}

static int note_doubts(struct sweep *s, const lf_pipeline *child, const lf_doc *plan, size_t k,
                       lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < plan->stages.n; i++) {
        const char *name = plan->stages.v[i].name;
        if (lf_names_find(&child->doubtful, name, "") == LF_NAMES_NONE)
            continue;
        struct doubt *d = lf_rows_add(&s->doubts, sizeof *d, err);
        rc = d == NULL ? LF_ENOMEM : lf_text_set(&d->stage, name, "stage", err);
        if (rc == 0)
            d->child = k;
    }
    return rc;
}

static int read_child(struct sweep *s, size_t k, lf_err *err)
{
    lf_pipeline p;
    lf_sweep_child child = {.number = {.given = false}};
    memset(&p, 0, sizeof p);
    int rc = lf_sweep_child_of(&child, s->over, s->axes, k, err);
    if (rc == 0)
        rc = load_child(&p, s, err);
    lf_doc *plan = NULL;
    if (rc == 0)
        rc = note_doubts(s, &p, p.plan, k, err);
    if (rc == 0) {
        lf_names_fini(&p.doubtful);
        plan = k == 0 ? begin_whole(s, &p, err) : lf_doc_hold(p.plan);
        rc = plan == NULL ? LF_ENOMEM : lf_sweep_merge_child(&s->merge, plan, &child, err);
    }
    lf_sweep_child *row =
        rc == 0 ? lf_rows_add(&s->whole.plan->sweep.children, sizeof *row, err) : NULL;
    if (row != NULL)
        *row = child;
    else
        lf_sweep_child_fini(&child);
    lf_doc_free(plan);
    lf_pipeline_fini(&p);
    return rc == 0 && row == NULL ? LF_ENOMEM : rc;
}

/* Doubts are about the stages of the whole now. */
static int place_doubts(struct sweep *s, lf_err *err)
{
    const lf_doc *d = s->whole.plan;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->doubts.n; i++) {
        const struct doubt *x = &s->doubts.v[i];
        const lf_doc_stage *st =
            lf_doc_find(d, lf_pairs_get(&d->sweep.children.v[x->child].stages, x->stage));
        if (st != NULL)
            rc = lf_names_put(&s->whole.doubtful, st->name, "", i, err);
    }
    return rc;
}

/* What a sweep may do at once, its driver may too, unless the file says otherwise. */
static void set_jobs(lf_doc *d, const lf_conf *c)
{
    if (d->sweep.max_parallel.given && lf_conf_find(c, "pipeline", "jobs") == NULL)
        d->jobs = d->sweep.max_parallel;
}

/* At a rung every child has a stage of its own to stop. */
static int check_rungs(const struct sweep *s, lf_err *err)
{
    const lf_sweep *w = &s->whole.plan->sweep;
    const lf_conf_item *it = lf_conf_find(&s->r->p->conf, "sweep", "rungs");
    lf_names seen = {NULL, 0, 0};
    bool shared = false;
    int rc = 0;
    for (size_t k = 0; rc == 0 && w->rungs.n > 0 && k < w->children.n; k++) {
        const char *stage = lf_pairs_get(&w->children.v[k].stages, w->metric_stage);
        shared = shared || (stage != NULL && lf_names_find(&seen, stage, "") != LF_NAMES_NONE);
        rc = stage != NULL ? lf_names_put(&seen, stage, "", k, err) : 0;
    }
    lf_names_fini(&seen);
    if (rc == 0 && shared)
        rc = lf_reading_note(
            s->r,
            lf_conf_fail(it, err,
                         "rungs: children share a stage %s, so there is nothing to choose from; "
                         "halving is for axes that change it",
                         w->metric_stage),
            err);
    return rc;
}

/* Is the stage that is compared one that validates? */
static bool trains(const struct sweep *s, size_t child)
{
    const lf_sweep *w = &s->whole.plan->sweep;
    const char *name = lf_pairs_get(&w->children.v[child].stages, w->metric_stage);
    const lf_doc_stage *st = name != NULL ? lf_doc_find(s->whole.plan, name) : NULL;
    const lf_opt_table *t = st != NULL ? lf_table_find(s->r->args->tables, st->kind) : NULL;
    return t != NULL && lf_opt_find(t, "valid_interval") != NULL;
}

/* An option of the stage that is compared, of a child; 0: not given, or no count. */
static int64_t option_of(const struct sweep *s, size_t child, const char *option)
{
    const lf_sweep *w = &s->whole.plan->sweep;
    const char *name = lf_pairs_get(&w->children.v[child].stages, w->metric_stage);
    const lf_doc_stage *st = name != NULL ? lf_doc_find(s->whole.plan, name) : NULL;
    const lf_texts *given = st != NULL ? lf_lists_get(&st->options, option) : NULL;
    int64_t v = 0;
    return given != NULL && given->n == 1 && lf_parse_count(&v, given->v[0], NULL) == 0 ? v : 0;
}

/* A rung at or behind the last step of every child stops nobody. One before the first validation
 * has nothing to compare by: the first children would go on, whatever they are worth. */
static int check_rung(const struct sweep *s, int64_t rung, const lf_conf_item *it, lf_err *err)
{
    const lf_sweep *w = &s->whole.plan->sweep;
    const bool valid = lf_str_has_prefix(w->metric, "valid_");
    int64_t longest = 0;
    for (size_t k = 0; k < w->children.n; k++) {
        const int64_t steps = option_of(s, k, "steps"),
                      interval = option_of(s, k, "valid_interval");
        if (valid && trains(s, k) && (interval == 0 || interval > rung) &&
            (steps == 0 || rung < steps))
            return lf_conf_fail(it, err,
                                "rungs: before step %lld nothing is validated (valid_interval = "
                                "%lld of stage %s), so there is no %s to compare by; let "
                                "valid_interval divide the rungs",
                                (long long)rung, (long long)interval, w->metric_stage, w->metric);
        longest = steps == 0 || longest < 0 ? -1 : steps > longest ? steps : longest;
    }
    if (longest <= 0 || rung < longest)
        return 0;
    return lf_conf_fail(
        it, err, "rungs: stage %s ends with step %lld, so a rung at step %lld stops no child",
        w->metric_stage, (long long)longest, (long long)rung);
}

static int check_rung_steps(const struct sweep *s, lf_err *err)
{
    const lf_sweep *w = &s->whole.plan->sweep;
    const lf_conf_item *it = lf_conf_find(&s->r->p->conf, "sweep", "rungs");
    for (size_t i = 0; i < w->rungs.n; i++) {
        int64_t rung = 0;
        int rc = lf_parse_count(&rung, w->rungs.v[i], err);
        if (rc == 0)
            rc = check_rung(s, rung, it, err);
        if (rc < 0)
            return lf_reading_note(s->r, rc, err);
    }
    return 0;
}

/* The metric must be of a stage that is there, and is not what is called otherwise. */
static int check_metric(const struct sweep *s, lf_err *err)
{
    static const char *const usual[] = {"loss",           "valid_loss", "accuracy",
                                        "valid_accuracy", "reward",     "grad_norm"};
    const lf_sweep *w = &s->whole.plan->sweep;
    const lf_conf_item *it = lf_conf_find(&s->r->p->conf, "sweep", "metric");
    if (it == NULL)
        return 0;
    if (lf_pairs_get(&w->children.v[0].stages, w->metric_stage) == NULL)
        return lf_reading_note(
            s->r,
            lf_conf_fail(it, err, "metric = %s: there is no [stage %s]", it->raw, w->metric_stage),
            err);
    const char *bare = w->metric + (lf_str_has_prefix(w->metric, "valid_") ? 6 : 0);
    const char *near = trains(s, 0) && lf_unit_of(bare).title == bare
                           ? lf_nearest(w->metric, usual, sizeof usual / sizeof usual[0])
                           : NULL;
    if (near == NULL)
        return check_rung_steps(s, err);
    return lf_reading_note(s->r,
                           lf_conf_fail(it, err,
                                        "metric = %s: no metric has this name; did you mean %s.%s?",
                                        it->raw, w->metric_stage, near),
                           err);
}

int lf_pipeline_expand(const lf_reading *r, lf_sweep_axes *axes, lf_err *err)
{
    struct sweep s = {.r = r, .axes = axes};
    s.over = lf_calloc(axes->rows.n, sizeof *s.over, err);
    int rc = s.over == NULL ? LF_ENOMEM : 0;
    for (size_t k = 0; rc == 0 && k < axes->n_children; k++)
        rc = read_child(&s, k, err);
    if (s.merge.plan != NULL) /* the settings are the plan's from here on */
        memset(&axes->sweep, 0, sizeof axes->sweep);
    if (rc == 0)
        rc = lf_reading_note(r, lf_sweep_merge_end(&s.merge, s.doubts.n == 0, err), err);
    if (rc == 0)
        rc = place_doubts(&s, err);
    if (rc == 0)
        rc = check_metric(&s, err);
    if (rc == 0)
        rc = check_rungs(&s, err);
    if (rc == 0)
        set_jobs(s.whole.plan, &s.whole.conf);
    if (rc == 0) {
        lf_pipeline_fini(r->p);
        *r->p = s.whole;
        memset(&s.whole, 0, sizeof s.whole);
    }
    lf_sweep_merge_fini(&s.merge);
    lf_pipeline_fini(&s.whole);
    for (size_t i = 0; i < s.doubts.n; i++)
        free(s.doubts.v[i].stage);
    free(s.doubts.v);
    free(s.over);
    return rc;
}
