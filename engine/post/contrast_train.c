/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the objective: see contrast_train.h. */
#include "engine/post/contrast_train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/train/texts.h"

enum { QUESTIONS, LOSS, CORRECT, COSINE, N_SUMS };

/* Texts of this rank, in the order in which they were seen. */
struct seen {
    int64_t *sample;
    double *x; /* [n, width + 1]: the vector, and the role of contrast_loss.h */
    size_t n, cap_sample, cap_x;
};

struct lf_contrast_train {
    struct lf_contrast_train_opts o;
    lf_objective objective;
    float *hidden, *d; /* [rows, width] */
    int64_t rows, width;
    enum lf_rm_pool pool;
    struct seen seen;
    /* of all ranks: texts of sample first + i are [at[i], at[i + 1]) */
    int64_t first, samples;
    size_t *at;
    double *role, *x, *slope; /* [texts], [texts, width] */
    double *loss, *cosine;    /* [questions] */
    bool *right;
    size_t *question; /* [texts] the number of its question */
};

static const char *const metrics[] = {"loss", "accuracy", "cosine"};
static const char *const valid_metrics[] = {"valid_loss", "valid_accuracy", "valid_cosine"};

/* What is behind the vectors is not trained. */
static int declare(void *user, const lf_decoder *d, lf_pstore *ps, lf_err *err)
{
    static const char *const heads[] = {"head.",   "head_in.",  "head_norm.", "score.",
                                        "labels.", "label_in.", "nsp."};
    (void)user;
    (void)d;
    (void)err;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        (void)lf_pstore_freeze(ps, heads[i], true);
    return 0;
}

static lf_graph *graph(void *user, const lf_decoder *d, lf_pstore *ps, const char *name,
                       const struct lf_decoder_rows *r, bool train, lf_err *err)
{
    lf_contrast_train *t = user;
    const lf_model_config *c = lf_decoder_config(d);
    t->width = lf_model_top_width(c);
    t->pool = t->o.pool != LF_RM_AUTO   ? t->o.pool
              : c->mask == LF_MASK_BOTH ? LF_RM_MEAN
                                        : LF_RM_LAST;
    const int64_t rows = lf_train_all_rows(ps, r);
    t->objective.row_bytes = (size_t)t->width * sizeof *t->hidden;
    if (rows > t->rows) {
        free(t->hidden);
        free(t->d);
        t->hidden = lf_calloc((size_t)(rows * t->width), sizeof *t->hidden, err);
        t->d = lf_calloc((size_t)(rows * t->width), sizeof *t->d, err);
        t->rows = rows;
    }
    if (!t->hidden || !t->d)
        return NULL;
    return lf_decoder_heads_graph(
        d, ps, name, r,
        &(struct lf_decoder_heads){.train = train, .hidden = true, .dropout = t->o.dropout}, err);
}

/* ---- data ---- */

static int one_text(const lf_contrast_train *t, const lf_shardset *s, uint64_t doc, lf_err *err)
{
    const char *file = "";
    uint64_t index = 0;
    lf_shardset_locate(s, doc, &file, &index);
    return lf_fail(err, LF_EINVAL,
                   "%s: document %llu is one text; a question and its answer are asked for, with "
                   "token %lld (separator) behind each",
                   file, (unsigned long long)index, (long long)t->o.separator);
}

/* Is there a second text in every document of the set? */
static int check_set(const lf_contrast_train *t, const lf_shardset *s, lf_err *err)
{
    const uint64_t docs = lf_shardset_get_info(s)->n_docs;
    size_t longest = 0;
    int rc = 0;
    for (uint64_t d = 0; d < docs; d++)
        longest = lf_shardset_doc_len(s, d) > longest ? lf_shardset_doc_len(s, d) : longest;
    int32_t *tokens = lf_calloc(longest + 1, sizeof *tokens, err);
    if (!tokens)
        return LF_ENOMEM;
    for (uint64_t d = 0; d < docs && rc == 0; d++) {
        const size_t n = lf_shardset_doc_len(s, d);
        rc = lf_shardset_read(s, d, 0, n, tokens, err);
        if (rc == 0 && n && lf_texts_end(tokens, 0, (int64_t)n, t->o.separator) >= (int64_t)n)
            rc = one_text(t, s, d, err);
    }
    free(tokens);
    return rc;
}

/* What is wrong with a document is told before the first step. */
static int prepare(void *user, lf_trainer *t, bool fresh, lf_err *err)
{
    int rc = 0;
    for (int valid = 0; valid < 2 && fresh && lf_train_first_rank(t); valid++)
        for (size_t i = 0; i < lf_train_n_sources(t, valid) && rc == 0; i++)
            if ((rc = check_set(user, lf_train_source_set(t, i, valid), err)) != 0)
                lf_err_prefix(err, "%s: %s split", lf_train_source_dir(t, i, valid),
                              valid ? "valid" : "train");
    return rc;
}

/* ---- the texts of a micro-batch ---- */

/* Rows of a text that its vector is made of. */
struct span {
    int64_t from, to;
};

static struct span pooled(const lf_contrast_train *t, int64_t first, int64_t end)
{
    return (struct span){t->pool == LF_RM_LAST ? end - 1 : first,
                         t->pool == LF_RM_FIRST ? first + 1 : end};
}

/* Calls each for every text of a micro-batch, with the sample that it is of. */
static int each_text(lf_contrast_train *t, const struct lf_train_view *v,
                     int (*each)(lf_contrast_train *t, int64_t sample, struct span rows, int role,
                                 void *arg, lf_err *err),
                     void *arg, lf_err *err)
{
    const lf_loader_batch *b = v->batch;
    int rc = 0;
    for (int32_t s = 0; s < b->n_segs && rc == 0; s++) {
        const int64_t first = b->cu_seqlens[s], last = b->cu_seqlens[s + 1];
        int role = 0;
        if (b->seg_doc[s] < 0)
            continue;
        for (int64_t at = first, end; at < last && rc == 0; at = end) {
            end = lf_texts_end(b->tokens, at, last, t->o.separator);
            rc = each(t, b->sample_ids[first / b->T], pooled(t, at, end), role++, arg, err);
        }
        if (rc == 0 && role < 2)
            rc =
                one_text(t, lf_loader_set(v->data, b->seg_source[s]), (uint64_t)b->seg_doc[s], err);
    }
    return rc;
}

static int keep_text(lf_contrast_train *t, int64_t sample, struct span rows, int role, void *arg,
                     lf_err *err)
{
    struct seen *s = &t->seen;
    const size_t width = (size_t)t->width + 1;
    (void)arg;
    int rc = lf_grow(&s->sample, &s->cap_sample, s->n, sizeof *s->sample, err);
    if (rc == 0)
        rc = lf_grow(&s->x, &s->cap_x, s->n, width * sizeof *s->x, err);
    if (rc != 0)
        return rc;
    double *x = s->x + s->n * width;
    for (int64_t c = 0; c < t->width; c++) {
        double sum = 0;
        for (int64_t r = rows.from; r < rows.to; r++)
            sum += (double)t->hidden[r * t->width + c];
        x[c] = sum / (double)(rows.to - rows.from);
    }
    x[t->width] = role;
    s->sample[s->n++] = sample;
    return 0;
}

static int survey(void *user, const struct lf_train_view *v, double *sums, lf_err *err)
{
    lf_contrast_train *t = user;
    (void)sums;
    const int rc = lf_train_view_read(v, "hidden", t->hidden, t->objective.row_bytes, err);
    return rc != 0 ? rc : each_text(t, v, keep_text, NULL, err);
}

static void surveyed(void *user, const double *sums)
{
    (void)user;
    (void)sums;
}

/* ---- of all ranks ---- */

static void forget(lf_contrast_train *t)
{
    free(t->at);
    free(t->role);
    free(t->x);
    free(t->slope);
    free(t->loss);
    free(t->cosine);
    free(t->right);
    free(t->question);
    t->at = t->question = NULL;
    t->role = t->x = t->slope = t->loss = t->cosine = NULL;
    t->right = NULL;
}

/* How many texts each sample has, on any rank. */
static int count_texts(lf_contrast_train *t, lf_trainer *trainer, lf_err *err)
{
    double *n = lf_calloc((size_t)t->samples + 1, sizeof *n, err);
    t->at = lf_calloc((size_t)t->samples + 1, sizeof *t->at, err);
    int rc = lf_train_agree(trainer, n && t->at ? 0 : LF_ENOMEM, err);
    for (size_t i = 0; rc == 0 && i < t->seen.n; i++)
        n[t->seen.sample[i] - t->first] += 1;
    rc = rc != 0 ? rc : lf_train_add_up(trainer, n, (size_t)t->samples, err);
    for (int64_t i = 0; rc == 0 && i < t->samples; i++)
        t->at[i + 1] = t->at[i] + (size_t)n[i];
    free(n);
    return rc;
}

static int collect(lf_contrast_train *t, lf_trainer *trainer, lf_err *err)
{
    const size_t width = (size_t)t->width, n = t->at[t->samples];
    double *all = lf_calloc(n * (width + 1) + 1, sizeof *all, err);
    t->x = lf_calloc(n * width + 1, sizeof *t->x, err);
    t->slope = lf_calloc(n * width + 1, sizeof *t->slope, err);
    t->role = lf_calloc(n + 1, sizeof *t->role, err);
    t->question = lf_calloc(n + 1, sizeof *t->question, err);
    int rc = all && t->x && t->slope && t->role && t->question ? 0 : LF_ENOMEM;
    rc = lf_train_agree(trainer, rc, err);
    for (size_t i = 0, k = 0; rc == 0 && i < t->seen.n; i++) {
        k = i && t->seen.sample[i] == t->seen.sample[i - 1] ? k + 1 : 0;
        memcpy(all + (t->at[t->seen.sample[i] - t->first] + k) * (width + 1),
               t->seen.x + i * (width + 1), (width + 1) * sizeof *all);
    }
    rc = rc != 0 ? rc : lf_train_add_up(trainer, all, n * (width + 1), err);
    for (size_t i = 0, q = 0; rc == 0 && i < n; i++) {
        memcpy(t->x + i * width, all + i * (width + 1), width * sizeof *t->x);
        t->role[i] = all[i * (width + 1) + width];
        q += i && t->role[i] < 0.5;
        t->question[i] = q;
    }
    free(all);
    return rc;
}

/* Vectors that are none have a loss that is none, which ends the run as any such loss does. */
static void no_numbers(lf_contrast_train *t, size_t questions, size_t slopes)
{
    for (size_t i = 0; i < questions; i++)
        t->loss[i] = t->cosine[i] = (double)NAN;
    for (size_t i = 0; i < slopes; i++)
        t->slope[i] = (double)NAN;
}

/* Every rank computes the same of the same vectors. */
static int gathered(void *user, lf_trainer *trainer, bool valid, int64_t first, int64_t n,
                    lf_err *err)
{
    lf_contrast_train *t = user;
    forget(t);
    t->first = first;
    t->samples = n;
    int rc = count_texts(t, trainer, err);
    rc = rc != 0 ? rc : collect(t, trainer, err);
    t->seen.n = 0;
    if (rc != 0)
        return rc;
    struct lf_contrast c = {.temperature = t->o.temperature,
                            .both = t->o.both,
                            .group = valid ? LF_CONTRAST_GROUP : 0,
                            .width = t->width,
                            .n = t->at[n],
                            .x = t->x,
                            .role = t->role,
                            .threads = t->o.threads};
    const size_t q = lf_contrast_questions(&c) + 1;
    t->loss = lf_calloc(q, sizeof *t->loss, err);
    t->cosine = lf_calloc(q, sizeof *t->cosine, err);
    t->right = lf_calloc(q, sizeof *t->right, err);
    if (!t->loss || !t->cosine || !t->right)
        return LF_ENOMEM;
    lf_err why = LF_ERR_INIT;
    rc = lf_contrast_loss(
        &c, &(struct lf_contrast_out){t->loss, t->cosine, t->right, valid ? NULL : t->slope}, &why);
    if (rc == LF_ENUMERIC) {
        lf_train_log(trainer, 1, "%s", why.text);
        no_numbers(t, q, t->at[n] * (size_t)t->width);
        return 0;
    }
    return rc != 0 ? lf_fail(err, rc, "%s", why.text) : 0;
}

/* ---- a micro-batch ---- */

struct taking {
    const struct lf_train_view *v;
    double *sums;
    int64_t sample; /* of the text before; -1: none */
    size_t k;       /* its number in that sample */
};

static int take_text(lf_contrast_train *t, int64_t sample, struct span rows, int role, void *arg,
                     lf_err *err)
{
    struct taking *p = arg;
    p->k = sample == p->sample ? p->k + 1 : 0;
    p->sample = sample;
    if (sample < t->first || sample >= t->first + t->samples)
        return lf_fail(err, LF_EINVAL, "sample %lld was not surveyed", (long long)sample);
    const size_t i = t->at[sample - t->first] + p->k, q = t->question[i];
    const double share = p->v->inv_units / (double)(rows.to - rows.from);
    if (role == 0) {
        p->sums[QUESTIONS] += 1;
        p->sums[LOSS] += t->loss[q];
        p->sums[CORRECT] += t->right[q];
        p->sums[COSINE] += t->cosine[q];
    }
    for (int64_t r = rows.from; p->v->train && r < rows.to; r++)
        for (int64_t c = 0; c < t->width; c++)
            t->d[r * t->width + c] = (float)(share * t->slope[i * (size_t)t->width + (size_t)c]);
    return 0;
}

static int after_forward(void *user, const struct lf_train_view *v, double *sums, double *tops,
                         lf_err *err)
{
    lf_contrast_train *t = user;
    const size_t each = t->objective.row_bytes;
    struct taking p = {.v = v, .sums = sums, .sample = -1};
    (void)tops;
    memset(t->d, 0, (size_t)v->rows * each);
    const int rc = each_text(t, v, take_text, &p, err);
    return rc != 0 || !v->train ? rc : lf_train_view_write(v, "dhidden", t->d, each, err);
}

static void means(void *user, const double *sums, const double *tops, double *out)
{
    (void)user;
    (void)tops;
    out[0] = sums[LOSS] / sums[QUESTIONS];
    out[1] = sums[CORRECT] / sums[QUESTIONS];
    out[2] = sums[COSINE] / sums[QUESTIONS];
}

/* ---- the object ---- */

static const char *const pools[] = {"auto", "first", "mean", "last"};

lf_contrast_train *lf_contrast_train_create(const struct lf_contrast_train_opts *o, lf_err *err)
{
    lf_contrast_train *t = lf_calloc(1, sizeof *t, err);
    if (!t)
        return NULL;
    t->o = *o;
    t->objective = (lf_objective){
        .user = t,
        .rows = LF_ROWS_PROMPTS,
        .whole_texts = true,
        .several = true,
        .separator = o->separator,
        .units = "questions",
        .dropout = o->dropout,
        .row_bytes = sizeof(float), /* graph knows how many there are */
        .declare = declare,
        .prepare = prepare,
        .graph = graph,
        .survey = survey,
        .surveyed = surveyed,
        .gathered = gathered,
        .after_forward = after_forward,
        .n_sums = N_SUMS,
        .means = means,
        .metrics = metrics,
        .valid_metrics = valid_metrics,
        .n_metrics = sizeof metrics / sizeof *metrics,
        .n_shown = 3,
        .identity = json_pack("{s:s, s:f, s:b, s:s, s:I, s:b}", "loss", "contrast", "temperature",
                              o->temperature, "both", o->both, "pooling", pools[o->pool],
                              "separator", (json_int_t)o->separator, "dropout", o->dropout)};
    if (!t->objective.identity) {
        lf_fail(err, LF_ENOMEM, "out of memory");
        lf_contrast_train_destroy(t);
        return NULL;
    }
    return t;
}

const lf_objective *lf_contrast_train_objective(const lf_contrast_train *t)
{
    return &t->objective;
}

void lf_contrast_train_destroy(lf_contrast_train *t)
{
    if (!t)
        return;
    json_decref(t->objective.identity);
    forget(t);
    free(t->seen.sample);
    free(t->seen.x);
    free(t->hidden);
    free(t->d);
    free(t);
}
