/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the objective: see rm_train.h. */
#include "engine/post/rm_train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/post/bt_loss.h"
#include "engine/post/rm_score.h"

enum { PAIRS, LOSS, CORRECT, MARGIN, REWARD, REWARD_SQ, CHOSEN, REJECTED, N_SUMS };
enum { HIGHEST, MINUS_LOWEST, N_TOPS };

struct lf_rm_train {
    struct lf_rm_train_opts o;
    lf_objective objective;
    float *score, *d_score; /* [rows] */
    int64_t rows;
    double norm[3]; /* of finish: scores, their sum, their squares */
};

static const char *const metrics[] = {"loss",     "accuracy",   "margin",     "reward",    "chosen",
                                      "rejected", "reward_std", "reward_min", "reward_max"};
static const char *const valid_metrics[] = {
    "valid_loss",     "valid_accuracy",   "valid_margin",     "valid_reward",    "valid_chosen",
    "valid_rejected", "valid_reward_std", "valid_reward_min", "valid_reward_max"};
#define N_METRICS (sizeof metrics / sizeof *metrics)

static lf_graph *graph(void *user, const lf_decoder *d, lf_pstore *ps, const char *name,
                       const struct lf_decoder_rows *r, bool train, lf_err *err)
{
    lf_rm_train *t = user;
    const int64_t rows = lf_train_all_rows(ps, r);
    if (rows > t->rows) {
        free(t->score);
        free(t->d_score);
        t->score = lf_calloc((size_t)rows, sizeof *t->score, err);
        t->d_score = lf_calloc((size_t)rows, sizeof *t->d_score, err);
        t->rows = rows;
    }
    if (!t->score || !t->d_score)
        return NULL;
    return lf_decoder_heads_graph(
        d, ps, name, r,
        &(struct lf_decoder_heads){.train = train, .score = true, .dropout = t->o.dropout}, err);
}

/* ---- data ---- */

/* How many answers of a split do not end with EOS, and the first of them. */
static int count_open(const lf_shardset *s, int64_t *n, uint64_t *first, lf_err *err)
{
    const lf_shard_info *info = lf_shardset_get_info(s);
    int rc = 0;
    *n = 0;
    for (uint64_t d = 0; d < info->n_docs && rc == 0; d++) {
        int32_t last = -1;
        const uint64_t len = lf_shardset_doc_len(s, d);
        if (len)
            rc = lf_shardset_read(s, d, len - 1, 1, &last, err);
        if (len && last != info->eos_id && (*n)++ == 0)
            *first = d;
    }
    return rc;
}

static int check_split(lf_trainer *t, bool valid, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < lf_train_n_sources(t, valid) && rc == 0; i++) {
        const lf_shardset *s = lf_train_source_set(t, i, valid);
        int64_t n = 0;
        uint64_t first = 0;
        rc = count_open(s, &n, &first, err);
        if (rc == 0 && n)
            rc = lf_fail(err, LF_EINVAL,
                         "%s: %lld of %llu answers of the %s split do not end with EOS (id %lld), "
                         "the first is the %s one of "
                         "pair %llu; a score is read at the last token. Tokenize with EOS, or say "
                         "require_eos = no",
                         lf_train_source_dir(t, i, valid), (long long)n,
                         (unsigned long long)lf_shardset_get_info(s)->n_docs,
                         valid ? "valid" : "train", (long long)lf_shardset_get_info(s)->eos_id,
                         first % 2 ? "rejected" : "chosen", (unsigned long long)first / 2);
    }
    return rc;
}

static int prepare(void *user, lf_trainer *t, bool fresh, lf_err *err)
{
    const lf_rm_train *r = user;
    if (!fresh || !r->o.require_eos || !lf_train_first_rank(t))
        return 0;
    int rc = check_split(t, false, err);
    return rc != 0 ? rc : check_split(t, true, err);
}

/* ---- a micro-batch ---- */

static void add_to(double *sums, double *tops, const lf_bt_sums *s)
{
    if (!s->pairs)
        return;
    sums[PAIRS] += (double)s->pairs;
    sums[LOSS] += s->loss;
    sums[CORRECT] += s->correct;
    sums[MARGIN] += s->margin;
    sums[REWARD] += s->reward;
    sums[REWARD_SQ] += s->reward_sq;
    sums[CHOSEN] += s->chosen;
    sums[REJECTED] += s->rejected;
    tops[HIGHEST] = fmax(tops[HIGHEST], s->max);
    tops[MINUS_LOWEST] = fmax(tops[MINUS_LOWEST], -s->min);
}

/* Segments s and s + 1 are the two answers of a pair. */
static bool is_pair(const lf_loader_batch *b, int32_t s)
{
    if (b->seg_doc[s] < 0)
        return false;
    if (b->seg_doc[s] % 2 || s + 1 >= b->n_segs || b->seg_doc[s + 1] != b->seg_doc[s] + 1)
        LF_BUG("document %lld stands alone in a batch of pairs", (long long)b->seg_doc[s]);
    return true;
}

static int read_scores(lf_rm_train *r, const struct lf_train_view *v, lf_err *err)
{
    return lf_train_view_read(v, "score", r->score, sizeof *r->score, err);
}

static int after_forward(void *user, const struct lf_train_view *v, double *sums, double *tops,
                         lf_err *err)
{
    lf_rm_train *r = user;
    const lf_loader_batch *b = v->batch;
    lf_bt_sums part = {0};
    int rc = read_scores(r, v, err);
    if (rc != 0)
        return rc;
    memset(r->d_score, 0, (size_t)v->rows * sizeof *r->d_score);
    for (int32_t s = 0; s < b->n_segs; s++) {
        if (!is_pair(b, s))
            continue;
        const lf_shardset *set = lf_loader_set(v->data, b->seg_source[s]);
        const float m = r->o.margins ? lf_shardset_margin(set, (uint64_t)b->seg_doc[s] / 2) : 0;
        const int32_t c = b->cu_seqlens[s + 1] - 1, j = b->cu_seqlens[s + 2] - 1;
        const struct lf_bt_pairs pair = {&r->score[c], &r->score[j], &m, 1};
        const struct lf_bt_slopes d = {&r->d_score[c], &r->d_score[j], v->inv_units};
        lf_bt_loss(&part, &pair, r->o.centre, &d);
        s++;
    }
    add_to(sums, tops, &part);
    return v->train ? lf_train_view_write(v, "dscore", r->d_score, sizeof *r->d_score, err) : 0;
}

static void means(void *user, const double *sums, const double *tops, double *out)
{
    const lf_bt_sums s = {.pairs = (int64_t)sums[PAIRS],
                          .loss = sums[LOSS],
                          .correct = sums[CORRECT],
                          .margin = sums[MARGIN],
                          .reward = sums[REWARD],
                          .reward_sq = sums[REWARD_SQ],
                          .chosen = sums[CHOSEN],
                          .rejected = sums[REJECTED],
                          .min = -tops[MINUS_LOWEST],
                          .max = tops[HIGHEST]};
    lf_bt_means m;
    (void)user;
    lf_bt_sums_means(&m, &s);
    const double all[N_METRICS] = {m.loss,     m.accuracy,   m.margin, m.reward, m.chosen,
                                   m.rejected, m.reward_std, m.min,    m.max};
    memcpy(out, all, sizeof all);
}

/* ---- the end: normalisation ---- */

static int visit(void *user, const struct lf_train_view *v, lf_err *err)
{
    lf_rm_train *r = user;
    int rc = read_scores(r, v, err);
    for (int32_t s = 0; s < v->batch->n_segs && rc == 0; s++) {
        if (v->batch->seg_doc[s] < 0)
            continue;
        const double x = (double)r->score[v->batch->cu_seqlens[s + 1] - 1];
        r->norm[0]++;
        r->norm[1] += x;
        r->norm[2] += x * x;
    }
    return rc;
}

static int finish(void *user, lf_trainer *t, lf_err *err)
{
    lf_rm_train *r = user;
    const bool valid = r->o.normalize == LF_RM_NORM_VALID ||
                       (r->o.normalize == LF_RM_NORM_AUTO && lf_train_n_sources(t, true) > 0);
    if (r->o.normalize == LF_RM_NORM_NO)
        return 0;
    if (valid && !lf_train_n_sources(t, true))
        return lf_fail(err, LF_EINVAL, "normalize = valid, but no data has a valid split");
    const struct lf_train_over pass = {.valid = valid, .user = r, .visit = visit};
    memset(r->norm, 0, sizeof r->norm);
    int rc = lf_train_over(t, &pass, err);
    if (rc == 0)
        rc = lf_train_add_up(t, r->norm, 3, err);
    if (rc != 0)
        return rc;
    lf_rm_norm n = {.stored = true, .mean = r->norm[1] / r->norm[0], .count = (int64_t)r->norm[0]};
    n.std = sqrt(fmax(r->norm[2] / r->norm[0] - n.mean * n.mean, 0));
    if (!(n.std > 0))
        return lf_fail(err, LF_ENUMERIC,
                       "the scores of the %s split have no spread, so they cannot be normalised; "
                       "say normalize = no",
                       valid ? "valid" : "train");
    json_t *o = lf_rm_norm_json(&n, err);
    if (!o)
        return LF_ENOMEM;
    lf_train_log(t, 2, "scores of the %s split: mean %.4f, standard deviation %.4f",
                 valid ? "valid" : "train", n.mean, n.std);
    return json_object_set_new(r->objective.extra, "score", o)
               ? lf_fail(err, LF_ENOMEM, "out of memory")
               : 0;
}

/* ---- the object ---- */

lf_rm_train *lf_rm_train_create(const struct lf_rm_train_opts *o, lf_err *err)
{
    lf_rm_train *r = lf_calloc(1, sizeof *r, err);
    if (!r)
        return NULL;
    r->o = *o;
    r->objective = (lf_objective){
        .user = r,
        .rows = LF_ROWS_PAIRS,
        .units = "pairs",
        .dropout = o->dropout,
        .row_bytes = sizeof(float),
        .graph = graph,
        .prepare = prepare,
        .after_forward = after_forward,
        .n_sums = N_SUMS,
        .n_tops = N_TOPS,
        .means = means,
        .metrics = metrics,
        .valid_metrics = valid_metrics,
        .n_metrics = N_METRICS,
        .n_shown = 4,
        .identity = json_pack("{s:s,s:f,s:b,s:b}", "loss", "bradley_terry", "centre", o->centre,
                              "margins", o->margins, "dropout", o->dropout),
        .finish = finish,
        .extra = json_object()};
    if (!r->objective.identity || !r->objective.extra) {
        lf_fail(err, LF_ENOMEM, "out of memory");
        lf_rm_train_destroy(r);
        return NULL;
    }
    return r;
}

const lf_objective *lf_rm_train_objective(const lf_rm_train *r)
{
    return &r->objective;
}

void lf_rm_train_destroy(lf_rm_train *r)
{
    if (!r)
        return;
    json_decref(r->objective.identity);
    json_decref(r->objective.extra);
    free(r->score);
    free(r->d_score);
    free(r);
}
