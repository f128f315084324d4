/* SPDX-License-Identifier: Apache-2.0
 *
 * Rungs: what is decided, what waits, and the next decision.
 */
#include "config.h"

#include "flow/run/rung.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/run/outcome.h"
#include "flow/run/policy.h"

/* What is decided so far. */
struct ladder {
    const lf_sweep *sweep;
    int decided;   /* rungs */
    bool *dropped; /* of each child */
    int *at;       /* the rung that dropped it */
    int64_t step;  /* of the next rung, -1: there is none */
};

static int64_t step_of(const lf_sweep *s, int rung)
{
    int64_t step = -1;
    if (rung < 1 || (size_t)rung > s->rungs.n ||
        lf_parse_count(&step, s->rungs.v[rung - 1], NULL) < 0)
        return -1;
    return step;
}

static const char *stage_of(const lf_sweep *s, size_t child)
{
    return lf_pairs_get(&s->children.v[child].stages, s->metric_stage);
}

/* A child that an edit has given other settings was not compared. */
static bool is_of(const lf_rung_row *row, const lf_doc *doc)
{
    const lf_sweep *s = &doc->sweep;
    const bool there = row->child >= 1 && (size_t)row->child <= s->children.n;
    const lf_doc_stage *st = there ? lf_doc_find(doc, stage_of(s, (size_t)row->child - 1)) : NULL;
    return st != NULL && lf_text_same(st->spec_id, row->spec_id);
}

static void drop(struct ladder *l, const lf_doc *doc, const lf_rung *r)
{
    for (size_t i = 0; i < r->rows.n; i++) {
        const lf_rung_row *row = &r->rows.v[i];
        if (row->kept || !is_of(row, doc))
            continue;
        l->dropped[row->child - 1] = true;
        l->at[row->child - 1] = r->number;
    }
}

static int climb(struct ladder *l, const lf_run *run, lf_err *err)
{
    const lf_sweep *s = &run->plan->sweep;
    memset(l, 0, sizeof *l);
    l->sweep = s;
    l->dropped = lf_calloc(s->children.n + 1, sizeof *l->dropped, err);
    l->at = lf_calloc(s->children.n + 1, sizeof *l->at, err);
    int rc = l->dropped == NULL || l->at == NULL ? LF_ENOMEM : 0;
    while (rc == 0 && (size_t)l->decided < s->rungs.n) {
        lf_rung *r = NULL;
        rc = lf_rung_load(&r, run->dir, l->decided + 1, err);
        if (rc < 0 || r == NULL)
            break;
        drop(l, run->plan, r);
        lf_rung_free(r);
        l->decided++;
    }
    l->step = step_of(s, l->decided + 1);
    return rc;
}

static void come_down(struct ladder *l)
{
    free(l->dropped);
    free(l->at);
}

/* Is what it has saved at the rung, or behind it, and does it not run? */
static bool came_to(const lf_stage_view *s, int64_t step)
{
    const lf_start *last = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
    return s->state == LF_STATE_PENDING && !s->live && last != NULL && last->end != NULL &&
           last->end->step >= step && step >= 0;
}

/* ---- applying ---- */

/* The children that a stage is of: how many are still in play, and the last rung of the others. */
static size_t in_play(int *rung, const struct ladder *l, const char *stage)
{
    size_t n = 0;
    *rung = 0;
    for (size_t k = 0; k < l->sweep->children.n; k++) {
        const lf_pairs *stages = &l->sweep->children.v[k].stages;
        bool mine = false;
        for (size_t i = 0; !mine && i < stages->n; i++)
            mine = strcmp(stages->v[i].value, stage) == 0;
        if (mine && l->dropped[k])
            *rung = l->at[k] > *rung ? l->at[k] : *rung;
        else
            n += mine;
    }
    return n;
}

/* ", stopped at step 7" of a stage that made more steps before it heard that it was to stop; else
 * "". */
static const char *overshot(char buf[64], const lf_stage_view *s, int64_t step)
{
    const lf_start *last = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
    const int64_t at = last != NULL && last->end != NULL ? last->end->step : -1;
    buf[0] = '\0';
    if (at > step && step > 0)
        snprintf(buf, 64, ", stopped at step %lld", (long long)at);
    return buf;
}

static void apply_to(lf_stage_view *s, const struct ladder *l)
{
    char behind[64];
    int rung = 0;
    s->held = false;
    if (s->state == LF_STATE_DONE || s->state == LF_STATE_RUNNING)
        return;
    if (in_play(&rung, l, s->plan->name) == 0 && rung > 0) {
        s->state = LF_STATE_ENDED;
        const int64_t step = step_of(l->sweep, rung);
        snprintf(s->reason, sizeof s->reason, "ended by rung %d (step %lld%s)", rung,
                 (long long)step, overshot(behind, s, step));
    } else if (came_to(s, l->step)) {
        s->held = true;
        snprintf(s->reason, sizeof s->reason,
                 "at rung %d (step %lld%s), waits for the other children", l->decided + 1,
                 (long long)l->step, overshot(behind, s, l->step));
    }
}

int lf_rung_apply(lf_run_view *v, lf_err *err)
{
    const lf_sweep *s = &v->run.plan->sweep;
    struct ladder l;
    if (s->rungs.n == 0)
        return 0;
    int rc = climb(&l, &v->run, err);
    for (size_t i = 0; rc == 0 && i < v->n; i++)
        apply_to(&v->stages[i], &l);
    come_down(&l);
    return rc;
}

int64_t lf_rung_step(const lf_run *run, const lf_doc_stage *stage)
{
    const lf_sweep *s = &run->plan->sweep;
    struct ladder l;
    bool mine = false;
    if (s->rungs.n == 0)
        return -1;
    for (size_t k = 0; !mine && k < s->children.n; k++)
        mine = lf_text_same(stage_of(s, k), stage->name);
    if (!mine)
        return -1;
    int64_t step = climb(&l, run, NULL) == 0 ? l.step : -1;
    come_down(&l);
    return step;
}

/* ---- deciding ---- */

/* Nothing that this stage does on its own changes its value at the rung any more. */
static bool settled(const lf_stage_view *s, int64_t step)
{
    lf_next next;
    if (s->state == LF_STATE_DONE || came_to(s, step))
        return true;
    if (s->state != LF_STATE_FAILED || s->live || lf_policy_next(&next, s, NULL) < 0)
        return false;
    const bool again = next.automatic;
    lf_next_fini(&next);
    return !again;
}

static int row_of(lf_rung_row *row, const lf_stage_view *s, const lf_sweep *w, int64_t step,
                  lf_err *err)
{
    lf_reached r;
    if (s->state == LF_STATE_FAILED)
        return 0;
    int rc = lf_reached_load(&r, s, &(lf_reached_args){w->metric, w->goal, (double)step}, err);
    if (rc == 0)
        row->value = r.last;
    return rc;
}

/* The better one first; of equals the smaller number. */
static bool before(const lf_rung_row *a, const lf_rung_row *b, const char *goal)
{
    const int c = lf_outcome_compare(&a->value, &b->value, goal);
    return c < 0 || (c == 0 && a->child < b->child);
}

static int put_row(lf_rung *r, const lf_rung_row *row, const char *goal, lf_err *err)
{
    lf_rung_row *end = lf_rows_add(&r->rows, sizeof *end, err);
    if (end == NULL)
        return LF_ENOMEM;
    size_t at = r->rows.n - 1;
    for (; at > 0 && before(row, &r->rows.v[at - 1], goal); at--)
        r->rows.v[at] = r->rows.v[at - 1];
    r->rows.v[at] = *row;
    return 0;
}

/* The rows of all that are in play: 1, or 0 where one has not come yet. */
static int collect(lf_rung *r, const struct ladder *l, const lf_run_view *v, lf_err *err)
{
    int rc = 0;
    for (size_t k = 0; rc == 0 && k < l->sweep->children.n; k++) {
        const lf_stage_view *s = l->dropped[k] ? NULL : lf_view_stage(v, stage_of(l->sweep, k));
        lf_rung_row row = {.child = (int)k + 1};
        if (l->dropped[k])
            continue;
        if (s == NULL || !settled(s, l->step))
            return 0;
        rc = row_of(&row, s, l->sweep, l->step, err);
        if (rc == 0)
            rc = lf_text_set(&row.spec_id, s->plan->spec_id, "spec_id", err);
        if (rc == 0 && (rc = put_row(r, &row, l->sweep->goal, err)) < 0)
            free(row.spec_id);
    }
    return rc < 0 ? rc : r->rows.n > 0;
}

static void keep_best(lf_rung *r, double keep)
{
    /* 9 x (1/3) is 3, also where the product of doubles is a little more. */
    const double n = ceil((double)r->rows.n * keep - 1e-9);
    for (size_t i = 0; i < r->rows.n; i++)
        r->rows.v[i].kept = i == 0 || (double)i < n;
}

static int decide(lf_rung *r, const struct ladder *l, const lf_run_view *v, lf_err *err)
{
    const lf_sweep *s = l->sweep;
    r->number = l->decided + 1;
    r->step = l->step;
    r->t = lf_wall_s();
    int rc = lf_text_set(&r->metric_stage, s->metric_stage, "metric", err);
    if (rc == 0)
        rc = lf_text_set(&r->metric, s->metric, "metric", err);
    if (rc == 0)
        rc = collect(r, l, v, err);
    if (rc != 1)
        return rc;
    keep_best(r, s->keep.v);
    /* The event first: without it a decision that is published would never reach the ledger. */
    lf_err e = LF_ERR_INIT;
    rc = lf_event_rung(v->run.dir, v->run.id, r, err);
    if (rc < 0)
        return rc;
    rc = lf_rung_publish(v->run.dir, r, &e);
    return rc == 0 || rc == LF_EEXIST ? 1 : lf_fail(err, rc, "%s", e.text);
}

int lf_rung_decide(lf_rung **out, const lf_run_view *v, lf_err *err)
{
    const lf_sweep *s = &v->run.plan->sweep;
    struct ladder l;
    *out = NULL;
    if (s->rungs.n == 0)
        return 0;
    lf_rung *r = lf_calloc(1, sizeof *r, err);
    int rc = r == NULL ? LF_ENOMEM : climb(&l, &v->run, err);
    if (rc == 0 && l.step >= 0)
        rc = decide(r, &l, v, err);
    if (r != NULL)
        come_down(&l);
    if (rc == 1)
        *out = r;
    else
        lf_rung_free(r);
    return rc;
}
