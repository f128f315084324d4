/* SPDX-License-Identifier: Apache-2.0
 *
 * What all lines together say: means, accuracy by subset, the best row of each id. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/infer/score.h"
#include "engine/post/label_metrics.h"
#include "engine/post/rm_rows_priv.h"

#define MOST_CLASSES 4096

struct scored {
    bool pair, error;
    double score, chosen, rejected; /* score, or log-probability, of texts; NaN else */
    int64_t answer;                 /* tokens of its answer; 0: it is a score */
    double told;                    /* the class, or the one number, of a text; NaN else */
    int64_t labels;                 /* how many it has; 0: none */
};

static void take_labels(struct scored *s, json_t *o)
{
    json_t *labels = json_object_get(o, "labels"), *class = json_object_get(o, "class");
    s->labels = (int64_t)json_array_size(labels);
    if (json_is_integer(class))
        s->told = (double)json_integer_value(class);
    else if (s->labels == 1)
        s->told = json_number_value(json_array_get(labels, 0));
}

/* Call take for each line of the file, in order. */
static int read_lines(const lf_rm_rows *r, const char *path, struct scored *all, lf_err *err)
{
    char *line = NULL;
    size_t cap = 0, i = 0;
    ssize_t len;
    int rc = 0;
    FILE *f = fopen(path, "re");
    if (!f)
        return lf_fail_errno(err, "cannot open %s", path);
    for (; rc == 0 && (len = getline(&line, &cap, f)) > 0; i++) {
        if (line[len - 1] == '\n')
            len--;
        rc = lf_rm_rows_check_line(r, i, line, (size_t)len, err);
        json_t *o = rc != 0 ? NULL : lf_json_load_text(line, (size_t)len, path, err);
        struct scored *s = &all[i];
        if (rc == 0 && !o)
            rc = LF_EFORMAT;
        if (rc != 0)
            break;
        *s = (struct scored){.score = NAN, .told = NAN};
        take_labels(s, o);
        s->error = json_object_get(o, "error") != NULL;
        s->pair = json_object_get(o, "chosen") != NULL;
        s->chosen = json_number_value(json_object_get(o, "chosen"));
        s->rejected = json_number_value(json_object_get(o, "rejected"));
        if (json_is_number(json_object_get(o, "score")))
            s->score = json_number_value(json_object_get(o, "score"));
        if (json_is_number(json_object_get(o, "logprob")))
            s->score = json_number_value(json_object_get(o, "logprob"));
        s->answer = (int64_t)json_integer_value(json_object_get(o, "answer"));
        json_decref(o);
    }
    if (rc == 0 && ferror(f))
        rc = lf_fail_errno(err, "cannot read %s", path);
    if (rc == 0 && i != r->n)
        rc = lf_fail(err, LF_EFORMAT, "%s has %zu lines for %zu rows", path, i, r->n);
    free(line);
    fclose(f);
    return rc;
}

static struct scored *scored_of(const lf_rm_rows *r, const char *path, lf_err *err)
{
    struct scored *all = lf_calloc(r->n + 1, sizeof *all, err);
    if (all && read_lines(r, path, all, err)) {
        free(all);
        return NULL;
    }
    return all;
}

/* Accuracy and mean margin of the pairs of a subset (NULL: of all); NULL when it has none. */
static json_t *pairs_json(const lf_rm_rows *r, const struct scored *all, const char *subset,
                          double *v)
{
    size_t n = 0;
    double accuracy, se, margin = 0;
    for (size_t i = 0; i < r->n; i++) {
        const char *is = r->rows[i].subset;
        if (!all[i].pair || (subset && (!is || strcmp(is, subset) != 0)))
            continue;
        v[n++] = all[i].chosen > all[i].rejected;
        margin += all[i].chosen - all[i].rejected;
    }
    if (!n)
        return NULL;
    lf_mean_stderr(v, n, &accuracy, &se);
    return json_pack("{s:I,s:f,s:f,s:f}", "n", (json_int_t)n, "accuracy", accuracy,
                     "accuracy_stderr", se, "margin", margin / (double)n);
}

static json_t *scores_json(const lf_rm_rows *r, const struct scored *all)
{
    size_t n = 0;
    int64_t tokens = 0;
    double sum = 0, sq = 0, low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < r->n; i++) {
        const double x = all[i].score;
        if (isnan(x))
            continue;
        n++;
        tokens += all[i].answer;
        sum += x;
        low = fmin(low, x);
        high = fmax(high, x);
    }
    const double mean = sum / (double)n;
    for (size_t i = 0; i < r->n; i++)
        if (!isnan(all[i].score))
            sq += (all[i].score - mean) * (all[i].score - mean);
    json_t *o = n ? json_pack("{s:I,s:f,s:f,s:f,s:f}", "n", (json_int_t)n, "mean", mean, "std",
                              sqrt(sq / (double)n), "min", low, "max", high)
                  : NULL;
    if (o && tokens > 0 &&
        (json_object_set_new(o, "tokens", json_integer((json_int_t)tokens)) ||
         json_object_set_new(o, "perplexity", json_real(exp(-sum / (double)tokens))))) {
        json_decref(o);
        return NULL;
    }
    return o;
}

/* A class that the model has. */
static bool is_class(double x, int64_t labels)
{
    return x >= 0 && x < (double)labels && !(x > floor(x));
}

/* What is right of n rows, and what was told of them. */
static json_t *measures(const double *right, const double *told, size_t n, int64_t labels,
                        lf_err *err)
{
    double rank = 0;
    if (labels == 1) {
        if (lf_label_spearman(&rank, right, told, n, err))
            return NULL;
        const double pearson = lf_label_pearson(right, told, n);
        return isfinite(pearson) && isfinite(rank) ? json_pack("{s:I,s:f,s:f}", "n", (json_int_t)n,
                                                               "pearson", pearson, "spearman", rank)
                                                   : json_pack("{s:I}", "n", (json_int_t)n);
    }
    double *m = lf_calloc((size_t)(labels * labels), sizeof *m, err);
    for (size_t i = 0; m && i < n; i++)
        m[(int64_t)right[i] * labels + (int64_t)told[i]] += 1;
    json_t *o = json_pack("{s:I}", "n", (json_int_t)n),
           *part = m ? lf_label_measures(m, labels) : NULL;
    const int bad = !o || !part || json_object_update(o, part);
    free(m);
    json_decref(part);
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

/* Of the rows that say what is right, of a subset (NULL: of all), as long as a table of their
 * classes is no burden. *out stays NULL where there are none. */
static int label_json(json_t **out, const lf_rm_rows *r, const struct scored *all,
                      const char *subset, lf_err *err)
{
    double *v = lf_calloc(2 * r->n + 1, sizeof *v, err);
    int64_t labels = 0;
    size_t n = 0;
    for (size_t i = 0; v && i < r->n; i++) {
        const double right = r->rows[i].label;
        const char *is = r->rows[i].subset;
        if (isnan(right) || isnan(all[i].told) || (subset && (!is || strcmp(is, subset) != 0)) ||
            (all[i].labels > 1 && !is_class(right, all[i].labels)))
            continue;
        labels = all[i].labels;
        v[n] = right;
        v[r->n + n++] = all[i].told;
    }
    const bool told = v && n && labels <= MOST_CLASSES;
    *out = told ? measures(v, v + r->n, n, labels, err) : NULL;
    free(v);
    return !v || (told && !*out);
}

/* Of all, and by subset. */
static int add_labels(const lf_rm_rows *r, const struct scored *all, json_t *o, lf_err *err)
{
    json_t *part = NULL, *subsets = json_object(), *v;
    void *next;
    const char *key;
    int bad = !subsets || label_json(&part, r, all, NULL, err) ||
              (part && json_object_set_new(o, "labels", part));
    for (size_t i = 0; part && i < r->n && !bad; i++) {
        const char *name = r->rows[i].subset;
        json_t *one = NULL;
        if (!name || json_object_get(subsets, name))
            continue;
        bad = label_json(&one, r, all, name, err) ||
              json_object_set_new(subsets, name, one ? one : json_null());
    }
    json_object_foreach_safe(subsets, next, key, v) if (json_is_null(v))
        json_object_del(subsets, key);
    if (!bad && json_object_size(subsets))
        bad = json_object_set(o, "label_subsets", subsets);
    json_decref(subsets);
    return bad;
}

static int add_subsets(const lf_rm_rows *r, const struct scored *all, json_t *o, double *v)
{
    json_t *subsets = json_object();
    int bad = !subsets;
    for (size_t i = 0; i < r->n && !bad; i++) {
        const char *name = r->rows[i].subset;
        if (!name || !all[i].pair || json_object_get(subsets, name))
            continue;
        bad = json_object_set_new(subsets, name, pairs_json(r, all, name, v));
    }
    if (!bad && json_object_size(subsets))
        bad = json_object_set(o, "subsets", subsets);
    json_decref(subsets);
    return bad;
}

json_t *lf_rm_rows_results(const lf_rm_rows *r, const char *path, lf_err *err)
{
    struct scored *all = scored_of(r, path, err);
    double *v = all ? lf_calloc(r->n + 1, sizeof *v, err) : NULL;
    json_t *o = NULL, *part;
    size_t errors = 0;
    for (size_t i = 0; v && i < r->n; i++)
        errors += all[i].error;
    int bad = 0;
    if (v) {
        o = json_pack("{s:I,s:I}", "rows", (json_int_t)r->n, "errors", (json_int_t)errors);
        if (o && (part = scores_json(r, all)))
            bad = json_object_set_new(o, r->o.gives == LF_RM_GIVES_LOGPROB ? "logprobs" : "scores",
                                      part);
        if (o && !bad && (part = pairs_json(r, all, NULL, v)))
            bad = json_object_set_new(o, "pairs", part);
        if (!o || bad || add_labels(r, all, o, err) || add_subsets(r, all, o, v)) {
            json_decref(o);
            o = NULL;
            lf_fail(err, LF_ENOMEM, "results: out of memory");
        }
    }
    free(v);
    free(all);
    return o;
}

/* ---- best of n ---- */

struct by_id {
    const lf_rm_rows *r;
    size_t row;
};

static int cmp_id(const void *a, const void *b)
{
    const struct by_id *x = a, *y = b;
    int c = strcmp(x->r->rows[x->row].id, y->r->rows[y->row].id);
    return c ? c : (x->row > y->row) - (x->row < y->row);
}

static int add_best(const lf_rm_rows *r, size_t row, double score, lf_buf *out, lf_err *err)
{
    const struct lf_rm_row *from = &r->rows[row];
    const lf_corpus_record rec = {.raw = from->text, .len = from->len, .form = from->form};
    json_t *o = NULL;
    int rc = lf_row_json(&o, &rec, LF_ROW_STRICT, from->where, NULL, err);
    if (rc < 0)
        return rc;
    char *text = o && !json_object_set_new(o, "score", json_real(score))
                     ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(17))
                     : NULL;
    json_decref(o);
    if (!text)
        return lf_fail(err, LF_ENOMEM, "best rows: out of memory");
    lf_buf_adds(out, text);
    lf_buf_addc(out, '\n');
    free(text);
    return lf_buf_check(out, err);
}

int lf_rm_rows_best(const lf_rm_rows *r, const char *path, lf_buf *out, lf_err *err)
{
    struct scored *all = scored_of(r, path, err);
    struct by_id *order = all ? lf_calloc(r->n + 1, sizeof *order, err) : NULL;
    size_t *best = order ? lf_calloc(r->n + 1, sizeof *best, err)
                         : NULL; /* by the first row of an id: its best, + 1 */
    int rc = best ? 0 : err && err->rc ? err->rc : LF_ENOMEM;
    for (size_t i = 0; i < r->n && rc == 0; i++)
        order[i] = (struct by_id){r, i};
    if (rc == 0 && r->n)
        qsort(order, r->n, sizeof *order, cmp_id);
    for (size_t i = 0, first = 0; i < r->n && rc == 0; i++) {
        if (i == 0 || strcmp(r->rows[order[i].row].id, r->rows[order[i - 1].row].id) != 0)
            first = order[i].row;
        const double x = all[order[i].row].score;
        if (!isnan(x) && (!best[first] || x > all[best[first] - 1].score))
            best[first] = order[i].row + 1;
    }
    for (size_t i = 0; i < r->n && rc == 0; i++)
        if (best[i])
            rc = add_best(r, best[i] - 1, all[best[i] - 1].score, out, err);
    free(best);
    free(order);
    free(all);
    return rc;
}
