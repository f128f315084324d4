/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the objective: see label_train.h. */
#include "engine/post/label_train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/post/label_metrics.h"

/* Classes that a table of what is and what was said is made for. */
#define MOST_CLASSES 512

struct lf_label_train {
    struct lf_label_train_opts o;
    lf_objective objective;
    float *score, *d; /* [rows, labels] */
    double *y;        /* [rows], the label of a text */
    int64_t rows;
    int row; /* enum lf_model_label_row */
    /* of finish: [labels, labels], or of each document x, y and whether it was seen: one that does
     * not fit into seq_length is left out */
    double *table;
};

#define MEASURES(b)                                                                                \
    {                                                                                              \
        [LF_LABEL_ONE] = {b "loss", b "accuracy", b "f1", b "matthews"},                           \
        [LF_LABEL_ANY] = {b "loss", b "accuracy", b "f1", b "matthews"},                           \
        [LF_LABEL_NUMBERS] = {b "loss", b "mse", b "pearson"},                                     \
        [LF_LABEL_TOKENS] = {b "loss", b "accuracy", b "f1", b "matthews"},                        \
        [LF_LABEL_SPAN] = {b "loss", b "exact", b "f1"},                                           \
    }
static const char *const metrics[LF_LABEL_KINDS][LF_LABEL_METRICS] = MEASURES("");
static const char *const valid_metrics[LF_LABEL_KINDS][LF_LABEL_METRICS] = MEASURES("valid_");
static const size_t n_metrics[LF_LABEL_KINDS] = {4, 4, 3, 4, 3};
static const char *const kinds[LF_LABEL_KINDS] = {"one", "any", "numbers", "tokens", "span"};

/* F1 and Matthews of classes are of two: with more there is nothing to report, and none to be the
 * best by. */
static size_t measured(const struct lf_label_form *f)
{
    const bool classes = f->kind == LF_LABEL_ONE || f->kind == LF_LABEL_TOKENS;
    return classes && f->labels != 2 ? 2 : n_metrics[f->kind];
}

int lf_label_of(enum lf_label_kind kind)
{
    return kind == LF_LABEL_TOKENS ? LF_LABELS_OF_TOKEN
           : kind == LF_LABEL_SPAN ? LF_LABELS_OF_SPAN
                                   : LF_LABELS_OF_TEXT;
}

static lf_graph *graph(void *user, const lf_decoder *d, lf_pstore *ps, const char *name,
                       const struct lf_decoder_rows *r, bool train, lf_err *err)
{
    lf_label_train *t = user;
    const int64_t rows = lf_train_all_rows(ps, r);
    const size_t n = (size_t)(rows * t->o.form.labels);
    t->row = lf_decoder_config(d)->label_row;
    if (rows > t->rows) {
        free(t->score);
        free(t->d);
        free(t->y);
        t->score = lf_calloc(n, sizeof *t->score, err);
        t->d = lf_calloc(n, sizeof *t->d, err);
        t->y = lf_calloc((size_t)rows + n, sizeof *t->y, err);
        t->rows = rows;
    }
    if (!t->score || !t->d || !t->y)
        return NULL;
    return lf_decoder_heads_graph(
        d, ps, name, r,
        &(struct lf_decoder_heads){.train = train, .score = true, .dropout = t->o.dropout}, err);
}

/* ---- data ---- */

/* How many of the numbers of the label of this document are classes of its tokens. */
static uint64_t classes_of(const struct lf_label_form *f, const double *y, int64_t tokens)
{
    uint64_t n = 0;
    for (int64_t i = 0; f->kind == LF_LABEL_TOKENS && i < tokens; i++)
        n += y[i] >= 0;
    return n;
}

int lf_label_check(const struct lf_label_form *f, lf_trainer *t, bool valid, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < lf_train_n_sources(t, valid) && rc == 0; i++) {
        const lf_shardset *s = lf_train_source_set(t, i, valid);
        const uint64_t docs = lf_shardset_get_info(s)->n_docs;
        uint64_t longest = 0, classes = 0;
        for (uint64_t d = 0; d < docs; d++)
            longest = lf_shardset_doc_len(s, d) > longest ? lf_shardset_doc_len(s, d) : longest;
        double *y = lf_calloc((size_t)longest + (size_t)f->labels, sizeof *y, err);
        rc = y ? 0 : LF_ENOMEM;
        for (uint64_t d = 0; d < docs && rc == 0; d++)
            if ((rc = lf_label_read(y, f, s, d, err)) == 0)
                classes += classes_of(f, y, (int64_t)lf_shardset_doc_len(s, d));
        free(y);
        if (rc == 0 && f->kind == LF_LABEL_TOKENS && !classes && !valid)
            rc = lf_fail(err, LF_EINVAL, "column \"%.60s\": not one token has a class", f->column);
        if (rc != 0)
            lf_err_prefix(err, "%s: %s split", lf_train_source_dir(t, i, valid),
                          valid ? "valid" : "train");
    }
    return rc;
}

/* What is wrong with a label is told before the first step. */
static int prepare(void *user, lf_trainer *t, bool fresh, lf_err *err)
{
    if (!fresh || !lf_train_first_rank(t))
        return 0;
    const lf_label_train *r = user;
    const int rc = lf_label_check(&r->o.form, t, false, err);
    return rc != 0 ? rc : lf_label_check(&r->o.form, t, true, err);
}

/* ---- a micro-batch ---- */

static int read_scores(lf_label_train *r, const struct lf_train_view *v, lf_err *err)
{
    return lf_train_view_read(v, "score", r->score, (size_t)r->o.form.labels * sizeof *r->score,
                              err);
}

/* The label of segment s, and where its numbers stand. */
static int of_segment(lf_label_train *r, const struct lf_train_view *v, int32_t s,
                      struct lf_label_loss *out, lf_err *err)
{
    const lf_loader_batch *b = v->batch;
    const int64_t first = b->cu_seqlens[s], end = b->cu_seqlens[s + 1];
    const bool each = lf_label_of(r->o.form.kind) != LF_LABELS_OF_TEXT;
    const int64_t row = each || r->row == LF_LABEL_FIRST ? first : end - 1;
    *out = (struct lf_label_loss){.kind = r->o.form.kind,
                                  .n = r->o.form.labels,
                                  .rows = each ? end - first : 1,
                                  .z = r->score + row * r->o.form.labels,
                                  .y = r->y,
                                  .d = v->train ? r->d + row * r->o.form.labels : NULL,
                                  .scale = v->inv_units};
    return lf_label_read(r->y, &r->o.form, lf_loader_set(v->data, b->seg_source[s]),
                         (uint64_t)b->seg_doc[s], err);
}

static int after_forward(void *user, const struct lf_train_view *v, double *sums, double *tops,
                         lf_err *err)
{
    lf_label_train *r = user;
    const size_t bytes = (size_t)(v->rows * r->o.form.labels) * sizeof *r->d;
    struct lf_label_loss l;
    int rc = read_scores(r, v, err);
    (void)tops;
    memset(r->d, 0, bytes);
    for (int32_t s = 0; s < v->batch->n_segs && rc == 0; s++) {
        if (v->batch->seg_doc[s] < 0)
            continue;
        rc = of_segment(r, v, s, &l, err);
        if (rc == 0)
            lf_label_add(&l, sums);
    }
    return rc != 0 || !v->train ? rc
                                : lf_train_view_write(v, "dscore", r->d,
                                                      (size_t)r->o.form.labels * sizeof *r->d, err);
}

static void means(void *user, const double *sums, const double *tops, double *out)
{
    const lf_label_train *r = user;
    double all[LF_LABEL_METRICS];
    (void)tops;
    lf_label_means(r->o.form.kind, r->o.form.labels, sums, all);
    memcpy(out, all, r->objective.n_metrics * sizeof *out);
}

/* ---- the end: measures of the whole valid split ---- */

static int visit(void *user, const struct lf_train_view *v, lf_err *err)
{
    lf_label_train *r = user;
    const int64_t n = r->o.form.labels;
    struct lf_label_loss l;
    int rc = read_scores(r, v, err);
    for (int32_t s = 0; s < v->batch->n_segs && rc == 0; s++) {
        const int64_t doc = v->batch->seg_doc[s];
        if (doc < 0)
            continue;
        rc = of_segment(r, v, s, &l, err);
        for (int64_t t = 0; t < l.rows && rc == 0; t++) {
            if (r->o.form.kind == LF_LABEL_NUMBERS) {
                r->table[3 * doc] = (double)l.z[0];
                r->table[3 * doc + 1] = l.y[0];
                r->table[3 * doc + 2] = 1;
            } else if (l.y[t] >= 0) {
                r->table[(int64_t)l.y[t] * n + lf_label_best(l.z + t * n, n)] += 1;
            }
        }
    }
    return rc;
}

static json_t *of_numbers(const lf_label_train *r, size_t docs, lf_err *err)
{
    double *x = lf_calloc(2 * docs + 1, sizeof *x, err), *y = x + docs, rank = 0;
    json_t *o = NULL;
    size_t n = 0;
    for (size_t i = 0; x && i < docs; i++) {
        if (!(r->table[3 * i + 2] > 0))
            continue;
        x[n] = r->table[3 * i];
        y[n++] = r->table[3 * i + 1];
    }
    if (x && lf_label_spearman(&rank, x, y, n, err) == 0) {
        const double pearson = lf_label_pearson(x, y, n);
        o = isfinite(pearson) && isfinite(rank)
                ? json_pack("{s:f, s:f}", "pearson", pearson, "spearman", rank)
                : json_object();
    }
    free(x);
    return o;
}

static json_t *of_classes(const lf_label_train *r)
{
    const int64_t n = r->o.form.labels;
    return !isfinite(lf_label_accuracy(r->table, n)) /* not one token has a class */
               ? json_object()
               : lf_label_measures(r->table, n);
}

/* Of the first source with a valid split: all that sums over micro-batches do not tell. */
static int finish(void *user, lf_trainer *t, lf_err *err)
{
    lf_label_train *r = user;
    const bool numbers = r->o.form.kind == LF_LABEL_NUMBERS;
    if (!lf_train_n_sources(t, true) || r->o.form.kind == LF_LABEL_ANY ||
        r->o.form.kind == LF_LABEL_SPAN || r->o.form.labels > (numbers ? 1 : MOST_CLASSES))
        return 0;
    const size_t docs = (size_t)lf_shardset_get_info(lf_train_source_set(t, 0, true))->n_docs;
    const size_t n = numbers ? 3 * docs : (size_t)(r->o.form.labels * r->o.form.labels);
    const struct lf_train_over pass = {.valid = true, .user = r, .visit = visit};
    free(r->table);
    r->table = lf_calloc(n, sizeof *r->table, err);
    int rc = lf_train_agree(t, r->table ? 0 : LF_ENOMEM, err);
    rc = rc != 0 ? rc : lf_train_over(t, &pass, err);
    rc = rc != 0 ? rc : lf_train_add_up(t, r->table, n, err);
    if (rc != 0)
        return rc;
    json_t *o = numbers ? of_numbers(r, docs, err) : of_classes(r), *v;
    const char *key;
    if (!o || json_object_set_new(r->objective.extra, "labels", o))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    json_object_foreach(o, key, v)
        lf_train_log(t, 2, "labels of the valid split: %s %.6g", key, json_number_value(v));
    return 0;
}

/* ---- the object ---- */

lf_label_train *lf_label_train_create(const struct lf_label_train_opts *o, lf_err *err)
{
    lf_label_train *r = lf_calloc(1, sizeof *r, err);
    if (!r)
        return NULL;
    r->o = *o;
    r->objective = (lf_objective){
        .user = r,
        .rows = LF_ROWS_PROMPTS,
        .whole_texts = true,
        .separator = o->separator,
        .units = "texts",
        .dropout = o->dropout,
        .row_bytes = (size_t)o->form.labels * sizeof(float),
        .graph = graph,
        .prepare = prepare,
        .after_forward = after_forward,
        .n_sums = LF_LABEL_SUMS,
        .means = means,
        .metrics = metrics[o->form.kind],
        .valid_metrics = valid_metrics[o->form.kind],
        .n_metrics = measured(&o->form),
        .n_shown = measured(&o->form),
        .identity = json_pack("{s:s, s:I, s:s, s:b, s:I}", "loss", kinds[o->form.kind], "labels",
                              (json_int_t)o->form.labels, "column", o->form.column, "dropout",
                              o->dropout, "separator", (json_int_t)o->separator),
        .finish = finish,
        .extra = json_object()};
    if (!r->objective.identity || !r->objective.extra) {
        lf_fail(err, LF_ENOMEM, "out of memory");
        lf_label_train_destroy(r);
        return NULL;
    }
    return r;
}

const lf_objective *lf_label_train_objective(const lf_label_train *t)
{
    return &t->objective;
}

void lf_label_train_destroy(lf_label_train *t)
{
    if (!t)
        return;
    json_decref(t->objective.identity);
    json_decref(t->objective.extra);
    free(t->score);
    free(t->d);
    free(t->y);
    free(t->table);
    free(t);
}
