/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses on judged answers between forward and backward. */
#include "engine/post/dpo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

struct lf_dpo {
    struct lf_dpo_opts o;
    lf_objective obj;
    lf_reference *ref;
    float *lp, *dlp; /* [rows] of the graph made last */
    int64_t rows;
    double z; /* of the step, kto */
};

/* Sums of a step. Of pairs: */
enum {
    S_LOSS,
    S_UNITS,
    S_CORRECT,
    S_MARGIN,
    S_BETTER,
    S_WORSE,
    S_LP_BETTER,
    S_LP_WORSE,
    S_NLL,
    S_PAIRS_N
};
/* Of labelled answers; and of the survey before. */
enum { K_LOSS, K_UNITS, K_GOOD, K_REWARD_GOOD, K_REWARD_BAD, K_LP_GOOD, K_LP_BAD, K_SUMS_N };
enum { Z_SUM, Z_N };

static const char *const pair_metrics[] = {
    "loss",         "accuracy",       "margin", "reward_chosen", "reward_rejected",
    "logps_chosen", "logps_rejected", "nll"};
static const char *const pair_valid[] = {"valid_loss",
                                         "valid_accuracy",
                                         "valid_margin",
                                         "valid_reward_chosen",
                                         "valid_reward_rejected",
                                         "valid_logps_chosen",
                                         "valid_logps_rejected",
                                         "valid_nll"};
static const char *const kto_metrics[] = {
    "loss", "margin", "kl", "reward_chosen", "reward_rejected", "logps_chosen", "logps_rejected"};
static const char *const kto_valid[] = {
    "valid_loss",          "valid_margin",          "valid_kl",
    "valid_reward_chosen", "valid_reward_rejected", "valid_logps_chosen",
    "valid_logps_rejected"};

static void pair_means(void *user, const double *s, const double *tops, double *out)
{
    (void)user;
    (void)tops;
    const double n = s[S_UNITS];
    const double v[] = {s[S_LOSS],  s[S_CORRECT],   s[S_MARGIN],   s[S_BETTER],
                        s[S_WORSE], s[S_LP_BETTER], s[S_LP_WORSE], s[S_NLL]};
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
        out[i] = v[i] / n;
}

static void kto_means(void *user, const double *s, const double *tops, double *out)
{
    const lf_dpo *d = user;
    const double good = s[K_GOOD], bad = s[K_UNITS] - good; /* none of a kind: NaN, left out */
    (void)tops;
    out[0] = s[K_LOSS] / s[K_UNITS];
    out[1] = s[K_REWARD_GOOD] / good - s[K_REWARD_BAD] / bad;
    out[2] = d->z;
    out[3] = s[K_REWARD_GOOD] / good;
    out[4] = s[K_REWARD_BAD] / bad;
    out[5] = s[K_LP_GOOD] / good;
    out[6] = s[K_LP_BAD] / bad;
}

static lf_graph *graph(void *user, const lf_decoder *dec, lf_pstore *ps, const char *name,
                       const struct lf_decoder_rows *r, bool train, lf_err *err)
{
    lf_dpo *d = user;
    const struct lf_decoder_heads h = {.train = train, .logp = true, .dropout = d->o.dropout};
    const int64_t rows = lf_train_all_rows(ps, r);
    if (d->rows != rows) { /* nothing is allocated in a step */
        free(d->lp);
        free(d->dlp);
        d->rows = rows;
        d->lp = lf_malloc((size_t)rows, sizeof(*d->lp), err);
        d->dlp = lf_malloc((size_t)rows, sizeof(*d->dlp), err);
        if (!d->lp || !d->dlp)
            return NULL;
    }
    return lf_decoder_heads_graph(dec, ps, name, r, &h, err);
}

/* Segment s as an answer. LF_EINVAL when nothing of it is trained. */
static int answer(const lf_dpo *d, const struct lf_train_view *v, int32_t s, struct lf_answer *a,
                  lf_err *err)
{
    const lf_loader_batch *b = v->batch;
    a->logp = lf_segment_logp(d->lp, b, s, &a->n);
    a->ref = d->ref ? lf_reference_logp(d->ref, v->valid_split, b->seg_source[s], b->seg_doc[s],
                                        b->seg_mismatched[s])
                    : 0;
    if (a->n > 0 || b->seg_mismatched[s])
        return 0;
    return lf_fail(err, LF_EINVAL,
                   "document %lld of the data (source %d) has no trained token in its answer",
                   (long long)b->seg_doc[s], b->seg_source[s]);
}

/* Every trained token of segment s takes part in its answer's sum. */
static void spread(lf_dpo *d, const lf_loader_batch *b, int32_t s, double gradient)
{
    for (int32_t i = b->cu_seqlens[s]; i < b->cu_seqlens[s + 1]; i++)
        if (b->targets[i] >= 0)
            d->dlp[i] = (float)gradient;
}

static int read_lp(lf_dpo *d, const struct lf_train_view *v, lf_err *err)
{
    return lf_train_view_read(v, "lp", d->lp, sizeof(*d->lp), err);
}

static int one_pair(lf_dpo *d, const struct lf_train_view *v, int32_t s, double *sums, lf_err *err)
{
    struct lf_answer c, r;
    int rc = answer(d, v, s, &c, err);
    if (rc == 0)
        rc = answer(d, v, s + 1, &r, err);
    if (rc != 0)
        return rc;
    struct lf_pair_result x = lf_pair_loss(&d->o.pair, &c, &r);
    sums[S_LOSS] += x.loss;
    sums[S_UNITS] += 1;
    sums[S_CORRECT] += x.reward_chosen > x.reward_rejected;
    sums[S_MARGIN] += x.reward_chosen - x.reward_rejected;
    sums[S_BETTER] += x.reward_chosen;
    sums[S_WORSE] += x.reward_rejected;
    sums[S_LP_BETTER] += c.logp;
    sums[S_LP_WORSE] += r.logp;
    sums[S_NLL] += x.nll;
    if (v->train) {
        spread(d, v->batch, s, x.d_chosen * v->inv_units);
        spread(d, v->batch, s + 1, x.d_rejected * v->inv_units);
    }
    return 0;
}

static int one_label(lf_dpo *d, const struct lf_train_view *v, int32_t s, double *sums, lf_err *err)
{
    const lf_loader_batch *b = v->batch;
    struct lf_answer a;
    int rc = b->seg_mismatched[s] ? 0 : answer(d, v, s, &a, err);
    if (rc != 0 || b->seg_mismatched[s])
        return rc;
    const bool good =
        lf_shardset_label(lf_loader_set(v->data, b->seg_source[s]), (uint64_t)b->seg_doc[s]);
    struct lf_kto_result x = lf_kto_loss(&d->o.kto_opts, &a, good, d->z);
    sums[K_LOSS] += x.loss;
    sums[K_UNITS] += 1;
    sums[K_GOOD] += good;
    sums[good ? K_REWARD_GOOD : K_REWARD_BAD] += x.reward;
    sums[good ? K_LP_GOOD : K_LP_BAD] += a.logp;
    if (v->train)
        spread(d, b, s, x.d_logp * v->inv_units);
    return 0;
}

static int after_forward(void *user, const struct lf_train_view *v, double *sums, double *tops,
                         lf_err *err)
{
    lf_dpo *d = user;
    int rc = read_lp(d, v, err);
    (void)tops;
    memset(d->dlp, 0, (size_t)v->rows * sizeof(*d->dlp));
    for (int32_t s = 0; s < v->batch->n_segs && rc == 0; s++) {
        if (v->batch->seg_doc[s] < 0)
            continue;
        rc = d->o.kto ? one_label(d, v, s, sums, err) : one_pair(d, v, s, sums, err);
        s += !d->o.kto; /* the other answer */
    }
    return rc || !v->train ? rc : lf_train_view_write(v, "dlp", d->dlp, sizeof(*d->dlp), err);
}

static int survey(void *user, const struct lf_train_view *v, double *sums, lf_err *err)
{
    lf_dpo *d = user;
    int rc = read_lp(d, v, err);
    for (int32_t s = 0; s < v->batch->n_segs && rc == 0; s++) {
        struct lf_answer a;
        if (v->batch->seg_doc[s] < 0 || !v->batch->seg_mismatched[s])
            continue;
        rc = answer(d, v, s, &a, err);
        if (rc == 0) {
            sums[Z_SUM] += a.logp - a.ref;
            sums[Z_N] += 1;
        }
    }
    return rc;
}

static void surveyed(void *user, const double *sums)
{
    lf_dpo *d = user;
    d->z = lf_kto_z(sums[Z_SUM], sums[Z_N]);
}

static int prepare(void *user, lf_trainer *t, bool fresh, lf_err *err)
{
    lf_dpo *d = user;
    return lf_reference_prepare(&d->ref, t, &d->o.reference, fresh, err);
}

static json_t *identity(const struct lf_dpo_opts *o)
{
    return o->kto ? json_pack("{s:s,s:b,s:f,s:f,s:f}", "loss", o->loss, "dropout", o->dropout,
                              "beta", o->kto_opts.beta, "weight_good", o->kto_opts.w_good,
                              "weight_bad", o->kto_opts.w_bad)
                  : json_pack("{s:s,s:b,s:f,s:f,s:f,s:f}", "loss", o->loss, "dropout", o->dropout,
                              "beta", o->pair.beta, "label_smoothing", o->pair.smoothing, "gamma",
                              o->pair.gamma, "nll", o->pair.nll);
}

int lf_dpo_create(lf_dpo **out, const struct lf_dpo_opts *o, lf_err *err)
{
    lf_dpo *d = lf_calloc(1, sizeof(*d), err);
    if (!d)
        return LF_ENOMEM;
    const bool reference = o->kto || lf_pair_needs_reference(o->pair.kind);
    d->o = *o;
    d->o.reference.mismatched = o->kto;
    d->obj = (lf_objective){
        .user = d,
        .rows = o->kto ? LF_ROWS_UNPAIRED : LF_ROWS_PAIRS,
        .mismatched = o->kto,
        .units = o->kto ? "answers (with a stranger's answer to the same prompt)" : "pairs",
        .dropout = o->dropout,
        .row_bytes = sizeof(float),
        .graph = graph,
        .prepare = reference ? prepare : NULL,
        .prepare_only = o->reference_only,
        .survey = o->kto ? survey : NULL,
        .surveyed = surveyed,
        .after_forward = after_forward,
        .means = o->kto ? kto_means : pair_means,
        .n_sums = o->kto ? K_SUMS_N : S_PAIRS_N,
        .metrics = o->kto ? kto_metrics : pair_metrics,
        .valid_metrics = o->kto ? kto_valid : pair_valid,
        .n_metrics = o->kto ? sizeof(kto_metrics) / sizeof(kto_metrics[0])
                            : sizeof(pair_metrics) / sizeof(pair_metrics[0]),
        .n_shown = 3,
        .identity = identity(o)};
    if (!d->obj.identity) {
        lf_dpo_destroy(d);
        return lf_fail(err, LF_ENOMEM, "objective: out of memory");
    }
    *out = d;
    return 0;
}

void lf_dpo_destroy(lf_dpo *d)
{
    if (!d)
        return;
    lf_reference_destroy(d->ref);
    json_decref(d->obj.identity);
    free(d->lp);
    free(d->dlp);
    free(d);
}

const lf_objective *lf_dpo_objective(const lf_dpo *d)
{
    return &d->obj;
}
