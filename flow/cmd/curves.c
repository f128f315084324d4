/* SPDX-License-Identifier: Apache-2.0
 *
 * Curves of stages.
 */
#include "config.h"

#include "flow/cmd/curves.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/plan/sweep.h"
#include "flow/run/series.h"
#include "flow/run/state.h"
#include "flow/sched/describe.h"

const struct lf_fields lf_curve_fields =
    LF_FIELDS(lf_curve, LF_MEMBERS(lf_curve, run, stage, keys),
              LF_LIST(lf_curve, records, lf_metric_row_fields));

/* ---- loading ---- */

static void curve_fini(lf_curve *c)
{
    free(c->run);
    free(c->label);
    free(c->title);
    free(c->stage);
    free(c->kind);
    free(c->ended);
    lf_texts_fini(&c->keys);
    lf_metric_rows_fini(&c->records);
}

void lf_curves_fini(lf_curves *c)
{
    for (size_t i = 0; i < c->n; i++)
        curve_fini(&c->v[i]);
    free(c->v);
    memset(c, 0, sizeof *c);
}

/* Takes the records. */
static int add_curve(lf_curves *out, const lf_run_view *v, const lf_stage_view *s,
                     lf_metric_rows *records, lf_err *err)
{
    char text[200];
    lf_curve *c = lf_rows_add(out, sizeof *c, err);
    if (c == NULL) {
        lf_metric_rows_fini(records);
        return LF_ENOMEM;
    }
    c->records = *records;
    int rc = lf_text_set(&c->run, v->run.id, "run", err);
    if (rc == 0)
        rc = lf_text_set(&c->label, lf_run_label(&v->run), "run", err);
    if (rc == 0)
        rc = lf_text_set(&c->stage, s->plan->name, "stage", err);
    if (rc == 0 && lf_done_short_text(text, sizeof text, s->result_done) != NULL)
        rc = lf_text_set(&c->ended, text, "end", err);
    if (rc == 0)
        rc = lf_text_set(&c->kind, s->plan->kind, "kind", err);
    return rc == 0 ? lf_metric_names(&c->keys, &c->records, err) : rc;
}

/* A stage of a sweep's children: each of them that has records, as a curve of its own. */
static int add_children(lf_curves *out, const lf_run_view *v, const char *stage, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < v->n; i++) {
        const lf_stage_view *s = &v->stages[i];
        lf_metric_rows r;
        if (!lf_sweep_named(s->plan->name, stage))
            continue;
        rc = lf_metrics_records(&r, s, err);
        if (rc == 0 && r.n > 0)
            rc = add_curve(out, v, s, &r, err);
        else if (rc == 0)
            lf_metric_rows_fini(&r);
    }
    return rc;
}

/* The stage of the name, NULL: the one with most records, of equal ones the first. */
static int add_of_run(lf_curves *out, const lf_run_view *v, const char *stage, lf_err *err)
{
    const lf_stage_view *hit = NULL;
    lf_metric_rows best = {.n = 0};
    if (stage != NULL && lf_view_stage(v, stage) == NULL) {
        const size_t before = out->n;
        int rc = add_children(out, v, stage, err);
        if (rc < 0 || out->n > before)
            return rc;
    }
    for (size_t i = 0; i < v->n; i++) {
        lf_metric_rows r;
        if (stage != NULL && !lf_sweep_named(v->stages[i].plan->name, stage))
            continue;
        int rc = lf_metrics_records(&r, &v->stages[i], err);
        if (rc < 0) {
            lf_metric_rows_fini(&best);
            return rc;
        }
        bool better = hit == NULL || r.n > best.n;
        lf_metric_rows_fini(better ? &best : &r);
        if (better) {
            best = r;
            hit = &v->stages[i];
        }
    }
    return hit != NULL ? add_curve(out, v, hit, &best, err)
                       : lf_view_no_stage(v, stage != NULL ? stage : "", err);
}

/* run NULL: the newest. A word that is no stage of it may be a run. */
static int add_word(lf_curves *out, const lf_project *p, const char *run, const char *stage,
                    lf_err *err)
{
    lf_run_view v;
    int rc = lf_view_find(&v, p, run, err);
    if (rc == 0 && run == NULL && stage != NULL && !lf_view_names(&v, stage)) {
        lf_run_view other;
        lf_err e = LF_ERR_INIT;
        if (lf_view_find(&other, p, stage, &e) == 0) {
            lf_view_fini(&v);
            v = other;
            stage = NULL;
        } else if (e.rc != LF_ENOENT) {
            rc = lf_fail(err, e.rc, "%s", e.text);
        }
    }
    if (rc < 0)
        return rc;
    rc = add_of_run(out, &v, stage, err);
    lf_view_fini(&v);
    return rc;
}

/* A stage has no '/' in its name, nor has what names a run. */
static int add_path(lf_curves *out, const lf_project *p, const char *word, lf_err *err)
{
    const char *slash = strchr(word, '/');
    char run[160];
    if (slash == NULL || slash == word || slash[1] == '\0' || (size_t)(slash - word) >= sizeof run)
        return lf_fail(err, LF_EINVAL, "\"%s\" is not RUN/STAGE", word);
    snprintf(run, sizeof run, "%.*s", (int)(slash - word), word);
    return add_word(out, p, run, slash + 1, err);
}

/* A title names one curve only. */
static int set_titles(lf_curves *c, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->n; i++) {
        lf_curve *me = &c->v[i];
        bool several = false;
        for (size_t k = 0; k < c->n; k++)
            several = several ||
                      (strcmp(c->v[k].run, me->run) == 0 && strcmp(c->v[k].stage, me->stage) != 0);
        lf_buf b;
        lf_buf_init(&b);
        lf_buf_addf(&b, several ? "%s/%s" : "%s", me->label, me->stage);
        me->title = lf_buf_steal(&b, err);
        rc = me->title != NULL ? 0 : LF_ENOMEM;
        lf_buf_fini(&b);
    }
    return rc;
}

int lf_curves_load(lf_curves *out, const lf_project *p, const char *const *words, size_t n_words,
                   const char *const *runs, size_t n_runs, lf_err *err)
{
    lf_curves c = {.given = true};
    int rc = 0;
    for (size_t i = 0; rc == 0 && (i < n_words || (n_words == 0 && i == 0)); i++) {
        const char *word = n_words > 0 ? words[i] : NULL;
        if (word != NULL && strchr(word, '/') != NULL)
            rc = add_path(&c, p, word, err);
        else if (n_runs == 0)
            rc = add_word(&c, p, NULL, word, err);
        for (size_t k = 0; rc == 0 && k < n_runs && (word == NULL || strchr(word, '/') == NULL);
             k++)
            rc = add_word(&c, p, runs[k], word, err);
    }
    if (rc == 0)
        rc = set_titles(&c, err);
    if (rc < 0)
        lf_curves_fini(&c);
    else
        *out = c;
    return rc;
}

int lf_curves_check(const lf_curves *c, const lf_texts *keys, lf_err *err)
{
    for (size_t i = 0; i < keys->n; i++) {
        bool known = false;
        for (size_t k = 0; k < c->n; k++)
            known = known || lf_texts_has(&c->v[k].keys, keys->v[i]);
        if (known)
            continue;
        const lf_texts *have = &c->v[0].keys;
        const char *near = lf_nearest(keys->v[i], (const char *const *)have->v, have->n);
        lf_buf b;
        lf_buf_init(&b);
        for (size_t k = 0; k < have->n; k++)
            lf_buf_addf(&b, "%s%s", k > 0 ? ", " : "", have->v[k]);
        lf_fail(err, LF_EINVAL, "there is no metric \"%s\"%s%s%s; stage %s has %.700s", keys->v[i],
                near != NULL ? ", did you mean " : "", near != NULL ? near : "",
                near != NULL ? "?" : "", c->v[0].stage, b.len > 0 ? b.data : "none");
        lf_buf_fini(&b);
        return LF_EINVAL;
    }
    return 0;
}

/* ---- rows ---- */

/* The next step of all curves; next[k] is how far each was read. false: there is none. */
static bool next_step(double *step, const lf_curves *c, const size_t *next)
{
    bool any = false;
    for (size_t k = 0; k < c->n; k++) {
        const lf_metric_rows *r = &c->v[k].records;
        if (next[k] < r->n && (!any || r->v[next[k]].step.v < *step)) {
            *step = r->v[next[k]].step.v;
            any = true;
        }
    }
    return any;
}

static int all_steps(lf_steps *out, const lf_curves *c, lf_err *err)
{
    size_t most = 0, *next = lf_calloc(c->n + 1, sizeof *next, err);
    for (size_t k = 0; k < c->n; k++)
        most += c->v[k].records.n;
    lf_steps s = {.step = lf_malloc(most + 1, sizeof(double), err),
                  .at = lf_malloc((most + 1) * c->n + 1, sizeof(long), err)};
    if (next == NULL || s.step == NULL || s.at == NULL) {
        free(next);
        lf_steps_fini(&s);
        return LF_ENOMEM;
    }
    for (double step = 0; next_step(&step, c, next); s.n++) {
        s.step[s.n] = step;
        for (size_t k = 0; k < c->n; k++) {
            const lf_metric_rows *r = &c->v[k].records;
            bool has = next[k] < r->n && r->v[next[k]].step.v <= step;
            s.at[s.n * c->n + k] = has ? (long)next[k] : -1;
            next[k] += has;
        }
    }
    free(next);
    *out = s;
    return 0;
}

static bool is_validation(const lf_steps *s, const lf_curves *c, size_t i)
{
    for (size_t k = 0; k < c->n; k++) {
        long at = s->at[i * c->n + k];
        double v;
        for (size_t j = 0; at >= 0 && j < c->v[k].keys.n; j++)
            if (lf_str_has_prefix(c->v[k].keys.v[j], "valid_") &&
                lf_raw_number(&v, c->v[k].records.v[at].values, c->v[k].keys.v[j]))
                return true;
    }
    return false;
}

/* Mark n of the rows in `of` evenly, the first and the last among them. */
static void mark_even(bool *keep, const size_t *of, size_t total, size_t n)
{
    for (size_t i = 0; n > 0 && i < n && total > 0; i++)
        keep[of[n > 1 ? i * (total - 1) / (n - 1) : total - 1]] = true;
}

static size_t count(const bool *keep, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += keep[i];
    return sum;
}

struct choice {
    bool *valid, *keep;
    size_t *rows, *valid_rows, n_valid;
};

/* Rows with a validation (as many as there is room for), and the most evenly spread ones with which
 * there are not more than max. */
static void choose(struct choice *c, size_t total, size_t max)
{
    size_t lo = max > 1 ? 2 : 1, hi = max;
    bool many = c->n_valid + 2 > max;
    mark_even(c->valid, c->valid_rows, c->n_valid, many ? (max > 2 ? max - 2 : 0) : c->n_valid);
    while (lo < hi) {
        size_t n = (lo + hi + 1) / 2;
        memcpy(c->keep, c->valid, total * sizeof *c->keep);
        mark_even(c->keep, c->rows, total, n);
        if (count(c->keep, total) <= max)
            lo = n;
        else
            hi = n - 1;
    }
    memcpy(c->keep, c->valid, total * sizeof *c->keep);
    mark_even(c->keep, c->rows, total, lo);
}

static int thin(lf_steps *s, const lf_curves *c, size_t max, lf_err *err)
{
    struct choice ch = {.valid = lf_calloc(s->n, sizeof(bool), err),
                        .keep = lf_calloc(s->n, sizeof(bool), err),
                        .rows = lf_calloc(s->n, sizeof(size_t), err),
                        .valid_rows = lf_calloc(s->n, sizeof(size_t), err)};
    bool ok = ch.valid != NULL && ch.keep != NULL && ch.rows != NULL && ch.valid_rows != NULL;
    size_t n = 0;
    for (size_t i = 0; ok && i < s->n; i++) {
        ch.rows[i] = i;
        if (is_validation(s, c, i))
            ch.valid_rows[ch.n_valid++] = i;
    }
    if (ok)
        choose(&ch, s->n, max);
    for (size_t i = 0; ok && i < s->n; i++) {
        if (!ch.keep[i])
            continue;
        s->step[n] = s->step[i];
        memmove(&s->at[n * c->n], &s->at[i * c->n], c->n * sizeof *s->at);
        n++;
    }
    s->n = ok ? n : s->n;
    free(ch.valid);
    free(ch.keep);
    free(ch.rows);
    free(ch.valid_rows);
    return ok ? 0 : LF_ENOMEM;
}

int lf_steps_choose(lf_steps *out, const lf_curves *c, size_t max, lf_err *err)
{
    lf_steps s;
    int rc = all_steps(&s, c, err);
    if (rc < 0)
        return rc;
    if (max > 0 && s.n > max)
        rc = thin(&s, c, max, err);
    if (rc < 0)
        lf_steps_fini(&s);
    else
        *out = s;
    return rc;
}

void lf_steps_fini(lf_steps *s)
{
    free(s->step);
    free(s->at);
    memset(s, 0, sizeof *s);
}
