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

/* The metric must be of a stage that is there. */
static int check_metric(const struct sweep *s, lf_err *err)
{
    const lf_sweep *w = &s->whole.plan->sweep;
    const lf_conf_item *it = lf_conf_find(&s->r->p->conf, "sweep", "metric");
    if (it == NULL || lf_pairs_get(&w->children.v[0].stages, w->metric_stage) != NULL)
        return 0;
    return lf_reading_note(
        s->r,
        lf_conf_fail(it, err, "metric = %s: there is no [stage %s]", it->raw, w->metric_stage),
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
