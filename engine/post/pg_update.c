/* SPDX-License-Identifier: Apache-2.0
 *
 * From a scored round to gradients. Log-probabilities and values of the actor and the critic are
 * computed here from weights and tokens alone, packed with other neighbours than the generator
 * had. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/base/sys.h"
#include "engine/post/pg_priv.h"

#define SITE_SHUFFLE 0x50475348u /* of the order of sequences in an epoch */

int64_t lf_pg_updates(const struct lf_pg_config *c, size_t n)
{
    return c->epochs * (((int64_t)n + c->minibatch - 1) / c->minibatch);
}

/* ---- micro-batches over sequences of a round ---- */

struct batches {
    struct lf_pg_doc *docs;
    uint32_t *of; /* which sequence of the round each document is */
    uint32_t *order, *start;
    int64_t n; /* micro-batches */
};

static void batches_free(struct batches *b)
{
    free(b->docs);
    free(b->of);
    free(b->order);
    free(b->start);
}

/* Sequences of the round, or all n of them; a prompt could have got max_tokens more. */
static int batches_make(struct batches *b, const lf_pg_model *m, const lf_pg *p,
                        const uint32_t *seqs, size_t n, lf_err *err)
{
    const lf_rollout *r = &p->r;
    const size_t more = (size_t)p->c->max_tokens;
    *b = (struct batches){0};
    b->docs = lf_calloc(n + 1, sizeof *b->docs, err);
    b->of = lf_calloc(n + 1, sizeof *b->of, err);
    b->order = lf_calloc(n + 1, sizeof *b->order, err);
    b->start = lf_calloc(n + 1, sizeof *b->start, err);
    if (!b->docs || !b->of || !b->order || !b->start)
        return LF_ENOMEM;
    for (size_t k = 0; k < n; k++) {
        size_t i = seqs ? seqs[k] : k;
        b->of[k] = (uint32_t)i;
        b->docs[k] = (struct lf_pg_doc){r->tokens + r->offsets[i],
                                        lf_rollout_len(r, i),
                                        r->prompt_len[i],
                                        0,
                                        r->prompt_len[i] + more,
                                        false,
                                        0,
                                        0,
                                        0};
        lf_pg_see_doc(p, &b->docs[k], r->doc[i]);
    }
    b->n = lf_pg_pack(m, b->docs, n, b->order, b->start, err);
    return b->n < 0 ? (int)b->n : 0;
}

/* The row that tells about completion token t of a document: the one before it. */
static size_t row_of(const struct lf_pg_doc *d, size_t t)
{
    return d->row + d->trained + t - 1;
}

enum output { OF_TOKENS, OF_SCORE, OF_BASE };

/* What forward_all does to a micro-batch. */
struct forward {
    lf_pg_model *m;
    enum output what;
    float *out;
};

static int forward_one(const lf_rollout *r, const struct forward *f, const struct batches *b,
                       int64_t k, lf_err *err)
{
    const size_t from = b->start[k], to = b->start[k + 1];
    const uint32_t *order = b->order + from;
    int rc = f->what == OF_BASE ? lf_pg_forward_base(f->m, b->docs, order, to - from, err)
                                : lf_pg_forward(f->m, b->docs, order, to - from, LF_FIRST, err);
    const float *v = f->what == OF_SCORE ? lf_pg_score(f->m) : lf_pg_lp(f->m);
    for (size_t j = from; j < to && rc == 0; j++) {
        const struct lf_pg_doc *d = &b->docs[b->order[j]];
        size_t i = b->of[b->order[j]];
        for (int64_t t = r->first[i]; t < r->first[i + 1]; t++)
            f->out[t] = v[row_of(d, (size_t)(t - r->first[i]))];
    }
    return rc;
}

/* out[first[i] + t]: the model's log-probability (or that of the weights below its adapter) or
 * score about each completion token. */
static int forward_all(lf_pg *p, lf_pg_model *m, enum output what, float *out, lf_err *err)
{
    const lf_rollout *r = &p->r;
    const struct forward f = {m, what, out};
    const enum lf_pg_chain chain = what == OF_BASE ? LF_PG_BASE : LF_PG_PACKED;
    struct batches b;
    int rc = lf_run_agree(&p->run, batches_make(&b, m, p, NULL, r->n, err), err);
    const int64_t rounds = rc != 0 ? 0 : lf_pg_turns(lf_pg_who(p, m), b.n);
    for (int64_t i = 0; i < rounds; i++) {
        const int64_t k = lf_pg_turn(lf_pg_who(p, m), i);
        lf_pg_micro_begin(m);
        if (rc == 0 && k < b.n)
            rc = forward_one(r, &f, &b, k, err);
        rc = lf_pg_micro_end(m, chain, false, LF_FIRST, rc, err);
    }
    batches_free(&b);
    rc = lf_run_agree(&p->run, rc, err);
    return rc != 0 ? rc : lf_pg_share_floats(p, m, out, (size_t)r->first[r->n], err);
}

/* ---- advantages ---- */

static bool grouped(enum lf_pg_advantage a)
{
    return a == LF_PG_ADV_GRPO || a == LF_PG_ADV_CENTRE || a == LF_PG_ADV_RLOO;
}

/* One number per sequence, the same for all of its tokens. */
static int group_advantages(lf_pg *p, const struct lf_seqs *s, const double *kl, double *of_seq,
                            double *score, lf_err *err)
{
    const struct lf_pg_config *c = p->c;
    for (size_t i = 0; i < s->n; i++) {
        double sum = 0;
        for (int64_t t = s->first[i]; kl && t < s->first[i + 1]; t++)
            sum += kl[t];
        score[i] = p->r.reward[i] - (kl ? p->s.beta * sum : 0);
    }
    enum lf_group_kind kind = c->advantage == LF_PG_ADV_GRPO   ? LF_GROUP_GRPO
                              : c->advantage == LF_PG_ADV_RLOO ? LF_GROUP_RLOO
                                                               : LF_GROUP_CENTRE;
    int64_t flat = lf_group_advantage(of_seq, score, s->n, p->r.group, kind, c->group_eps, err);
    if (flat < 0)
        return (int)flat;
    lf_spread(p->r.adv, s, of_seq);
    return 0;
}

/* From rewards of tokens, with a critic or without. */
static int token_advantages(lf_pg *p, const struct lf_seqs *s, const double *kl, double *of_seq,
                            double *token, lf_err *err)
{
    const struct lf_pg_config *c = p->c;
    const int64_t n = s->first[s->n];
    double *value = NULL;
    memcpy(of_seq, p->r.reward, s->n * sizeof *of_seq);
    if (c->advantage == LF_PG_ADV_BASELINE) {
        int64_t flat =
            lf_group_advantage(of_seq, p->r.reward, s->n, p->r.group, LF_GROUP_CENTRE, 0, err);
        if (flat < 0)
            return (int)flat;
    }
    lf_token_rewards(token, s, of_seq, kl, p->s.beta);
    if (p->want_critic) {
        value = lf_calloc((size_t)n + 1, sizeof *value, err);
        if (!value)
            return LF_ENOMEM;
        for (int64_t t = 0; t < n; t++)
            value[t] = (double)p->r.value[t];
    }
    lf_gae(p->r.adv, p->r.ret, s, token, value, c->gamma, p->want_critic ? c->lambda : 1);
    free(value);
    return 0;
}

int lf_pg_advantages(lf_pg *p, lf_err *err)
{
    lf_rollout *r = &p->r;
    int rc = lf_run_agree(&p->run, lf_rollout_columns(r, p->want_ref, p->want_critic, err), err);
    struct lf_profile_mark m = lf_profile_begin(p->c->profile);
    if (rc == 0 && p->want_ref) {
        rc = p->ref_below ? forward_all(p, p->actor, OF_BASE, r->ref, err)
                          : forward_all(p, p->ref, OF_TOKENS, r->ref, err);
        lf_profile_end(p->c->profile, LF_LANE_STEP, "reference", m);
    }
    m = lf_profile_begin(p->c->profile);
    if (rc == 0 && p->want_critic) {
        rc = forward_all(p, p->critic, OF_SCORE, r->value, err);
        lf_profile_end(p->c->profile, LF_LANE_STEP, "values", m);
    }
    m = lf_profile_begin(p->c->profile);
    if (rc != 0)
        return rc;
    const struct lf_seqs s = lf_rollout_seqs(r);
    const size_t n = (size_t)s.first[s.n];
    const bool kl_on = p->want_ref && p->c->kl_in_reward;
    double *kl = lf_calloc(n + 1, sizeof *kl, err), *token = lf_calloc(n + 1, sizeof *token, err);
    double *of_seq = lf_calloc(s.n + 1, sizeof *of_seq, err),
           *score = lf_calloc(s.n + 1, sizeof *score, err);
    rc = kl && token && of_seq && score ? 0 : LF_ENOMEM;
    for (size_t t = 0; t < n && rc == 0 && kl_on; t++)
        kl[t] = lf_kl(&p->c->kl_est, (double)r->logprob[t], (double)r->ref[t]);
    if (rc == 0)
        rc = grouped(p->c->advantage)
                 ? group_advantages(p, &s, kl_on ? kl : NULL, of_seq, score, err)
                 : token_advantages(p, &s, kl_on ? kl : NULL, of_seq, token, err);
    if (rc == 0 && p->c->whiten)
        lf_whiten(r->adv, &s, p->c->whiten_biased, false);
    lf_profile_end(p->c->profile, LF_LANE_STEP, "advantages", m);
    free(kl);
    free(token);
    free(of_seq);
    free(score);
    return rc;
}

/* ---- updates ---- */

struct arrays {
    int64_t *first;
    double *lp, *old, *ref, *entropy, *adv, *dlp, *dentropy;
};

static int arrays_make(struct arrays *a, size_t seqs, size_t tokens, lf_err *err)
{
    double **v[] = {&a->lp, &a->old, &a->ref, &a->entropy, &a->adv, &a->dlp, &a->dentropy};
    *a = (struct arrays){0};
    a->first = lf_calloc(seqs + 1, sizeof *a->first, err);
    bool good = a->first != NULL;
    for (size_t k = 0; k < sizeof v / sizeof *v; k++)
        good = (*v[k] = lf_calloc(tokens + 1, sizeof **v[k], err)) && good;
    return good ? 0 : LF_ENOMEM;
}

static void arrays_free(struct arrays *a)
{
    void *v[] = {a->first, a->lp, a->old, a->ref, a->entropy, a->adv, a->dlp, a->dentropy};
    for (size_t k = 0; k < sizeof v / sizeof *v; k++)
        free(v[k]);
}

/* Between micro-batch k's rows and flat arrays over its completion tokens: fn(a, flat index, row,
 * index in the round). */
static void each_token(const struct batches *b, int64_t k, const lf_rollout *r, void *ctx,
                       void (*fn)(void *ctx, size_t at, size_t row, size_t t))
{
    size_t at = 0;
    for (size_t j = b->start[k]; j < b->start[k + 1]; j++) {
        const struct lf_pg_doc *d = &b->docs[b->order[j]];
        size_t i = b->of[b->order[j]];
        for (int64_t t = r->first[i]; t < r->first[i + 1]; t++, at++)
            fn(ctx, at, row_of(d, (size_t)(t - r->first[i])), (size_t)t);
    }
}

/* Sequence bounds of micro-batch k. */
static struct lf_seqs bounds(const struct batches *b, int64_t k, const lf_rollout *r,
                             struct arrays *a)
{
    size_t n = 0;
    for (size_t j = b->start[k]; j < b->start[k + 1]; j++, n++) {
        size_t i = b->of[b->order[j]];
        a->first[n + 1] = a->first[n] + r->first[i + 1] - r->first[i];
    }
    return (struct lf_seqs){n, a->first, NULL};
}

struct actor_rows {
    struct arrays *a;
    const lf_rollout *r;
    const float *lp, *entropy;
    float *dlp, *dentropy;
};

static void gather_actor(void *ctx, size_t at, size_t row, size_t t)
{
    struct actor_rows *q = ctx;
    q->a->lp[at] = (double)q->lp[row];
    q->a->entropy[at] = (double)q->entropy[row];
    q->a->old[at] = (double)q->r->logprob[t];
    q->a->ref[at] = q->r->ref ? (double)q->r->ref[t] : 0;
    q->a->adv[at] = q->r->adv[t];
}

static void scatter_actor(void *ctx, size_t at, size_t row, size_t t)
{
    struct actor_rows *q = ctx;
    (void)t;
    q->dlp[row] = (float)q->a->dlp[at];
    q->dentropy[row] = (float)q->a->dentropy[at];
}

/* What the micro-batches of a mini-batch have in common. */
struct minibatch {
    const struct batches *b;
    const struct lf_pg_norm *norm;
    struct arrays *a;
    struct lf_pg_update *u;
};

/* Micro-batch k of the actor. */
static int actor_micro(lf_pg *p, const struct minibatch *mb, int64_t k, enum lf_variant v,
                       lf_err *err)
{
    const struct batches *b = mb->b;
    struct arrays *a = mb->a;
    struct lf_pg_opts o = p->c->loss;
    struct lf_pg_sums sums;
    o.kl_coef = p->want_ref && !p->c->kl_in_reward ? p->s.beta : 0;
    int rc = lf_pg_forward(p->actor, b->docs, b->order + b->start[k], b->start[k + 1] - b->start[k],
                           v, err);
    if (rc != 0)
        return rc;
    struct actor_rows q = {a,
                           &p->r,
                           lf_pg_lp(p->actor),
                           lf_pg_entropy(p->actor),
                           lf_pg_dlp(p->actor),
                           lf_pg_dentropy(p->actor)};
    struct lf_pg_batch batch = {bounds(b, k, &p->r, a), a->lp, a->old, a->ref, a->entropy, a->adv};
    each_token(b, k, &p->r, &q, gather_actor);
    rc = lf_pg_loss(&o, &batch, mb->norm, a->dlp, a->dentropy, &sums, err);
    if (rc != 0)
        return rc;
    lf_pg_sums_add(&mb->u->pg, &sums);
    lf_pg_zero_gradients(p->actor);
    each_token(b, k, &p->r, &q, scatter_actor);
    return lf_pg_backward(p->actor, v, err);
}

struct critic_rows {
    struct arrays *a;
    const lf_rollout *r;
    const float *score;
    float *dscore;
};

static void gather_critic(void *ctx, size_t at, size_t row, size_t t)
{
    struct critic_rows *q = ctx;
    q->a->lp[at] = (double)q->score[row];
    q->a->old[at] = (double)q->r->value[t];
    q->a->ref[at] = q->r->ret[t];
}

static void scatter_critic(void *ctx, size_t at, size_t row, size_t t)
{
    struct critic_rows *q = ctx;
    (void)t;
    q->dscore[row] = (float)q->a->dlp[at];
}

static int critic_micro(lf_pg *p, const struct minibatch *mb, int64_t k, enum lf_variant v,
                        lf_err *err)
{
    const struct batches *b = mb->b;
    struct arrays *a = mb->a;
    struct lf_value_sums sums, *all = &mb->u->value;
    int rc = lf_pg_forward(p->critic, b->docs, b->order + b->start[k],
                           b->start[k + 1] - b->start[k], v, err);
    if (rc != 0)
        return rc;
    struct critic_rows q = {a, &p->r, lf_pg_score(p->critic), lf_pg_dscore(p->critic)};
    const struct lf_value_batch rows = {bounds(b, k, &p->r, a), a->lp, a->old, a->ref};
    each_token(b, k, &p->r, &q, gather_critic);
    rc = lf_value_loss(&rows, p->c->value_clip, mb->norm, a->dlp, &sums, err);
    if (rc != 0)
        return rc;
    all->loss += sums.loss;
    all->clipped += sums.clipped;
    all->value += sums.value;
    all->tokens += sums.tokens;
    lf_pg_zero_gradients(p->critic);
    each_token(b, k, &p->r, &q, scatter_critic);
    return lf_pg_backward(p->critic, v, err);
}

/* This rank's micro-batches of a mini-batch, in step with the other ranks. */
static int train(lf_pg *p, const struct minibatch *mb, bool actor, lf_err *err)
{
    lf_pg_model *m = actor ? p->actor : p->critic;
    const int64_t turns = lf_pg_turns(lf_pg_who(p, m), mb->b->n);
    int rc = 0;
    for (int64_t i = 0; i < turns; i++) {
        const int64_t k = lf_pg_turn(lf_pg_who(p, m), i);
        const enum lf_variant v = i > 0 ? LF_ACCUM : LF_FIRST;
        lf_pg_micro_begin(m);
        if (rc == 0 && k < mb->b->n)
            rc = (actor ? actor_micro : critic_micro)(p, mb, k, v, err);
        rc = lf_pg_micro_end(m, LF_PG_PACKED, true, v, rc, err);
    }
    return rc;
}

/* Sequences of mini-batch k: a stretch of its epoch's permutation. */
static size_t choose(const lf_pg *p, int64_t k, uint32_t *seqs)
{
    const int64_t n = (int64_t)p->r.n, per = (n + p->c->minibatch - 1) / p->c->minibatch,
                  epoch = k / per, from = k % per * p->c->minibatch;
    const int64_t to = from + p->c->minibatch < n ? from + p->c->minibatch : n;
    const uint64_t seed = p->c->seed ^ ((uint64_t)(p->s.round + 1) << 32);
    for (int64_t i = from; i < to; i++)
        seqs[i - from] = (uint32_t)lf_rng_permute(seed, SITE_SHUFFLE + (uint32_t)epoch, (uint64_t)n,
                                                  (uint64_t)i);
    return (size_t)(to - from);
}

/* What an update works with: its sequences, as either model packs them. */
struct work {
    int64_t k; /* number of the mini-batch in its round */
    struct lf_pg_norm norm;
    struct batches actor, critic;
    struct arrays a;
    double flops;
};

/* FLOPs of training these models on the mini-batch, each sequence by its length with the prompt. */
static double flops_of(const lf_pg *p, const uint32_t *seqs, size_t n, bool actor)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const int64_t len = (int64_t)lf_rollout_len(&p->r, seqs[i]);
        const double of_actor = lf_train_flops_per_token(&p->actor_flops, &p->mc, len, true),
                     of_critic = lf_train_flops_per_token(&p->critic_flops, &p->mc, len, true);
        sum += (double)len * ((actor ? of_actor : 0) + (p->want_critic ? of_critic : 0));
    }
    return sum;
}

static int work_make(struct work *w, lf_pg *p, int64_t k, bool actor, lf_err *err)
{
    *w = (struct work){.k = k};
    uint32_t *seqs = lf_calloc((size_t)p->c->minibatch + 1, sizeof *seqs, err);
    int rc = seqs ? 0 : LF_ENOMEM;
    const size_t n = rc != 0 ? 0 : choose(p, k, seqs);
    w->norm.sequences = (int64_t)n;
    for (size_t i = 0; i < n; i++)
        w->norm.tokens += p->r.first[seqs[i] + 1] - p->r.first[seqs[i]];
    w->flops = flops_of(p, seqs, n, actor);
    if (rc == 0)
        rc = arrays_make(&w->a, n, (size_t)w->norm.tokens, err);
    if (rc == 0 && actor)
        rc = batches_make(&w->actor, p->actor, p, seqs, n, err);
    if (rc == 0 && p->want_critic)
        rc = batches_make(&w->critic, p->critic, p, seqs, n, err);
    free(seqs);
    return rc;
}

static void work_free(struct work *w)
{
    arrays_free(&w->a);
    batches_free(&w->actor);
    batches_free(&w->critic);
}

/* This rank's part of the gradients of one model. */
static int gradients(lf_pg *p, struct work *w, bool actor, struct lf_pg_update *u, lf_err *err)
{
    const struct minibatch mb = {actor ? &w->actor : &w->critic, &w->norm, &w->a, u};
    if (actor)
        lf_pg_sums_begin(&u->pg);
    else
        u->value = (struct lf_value_sums){0};
    int rc = train(p, &mb, actor, err);
    if (actor && p->ptx)
        rc = lf_pg_ptx_train(p, u, lf_run_agree(&p->run, rc, err), err);
    if (rc == LF_ENUMERIC)
        lf_err_prefix(err, "round %lld, mini-batch %lld", (long long)p->s.round + 1,
                      (long long)w->k + 1);
    return rc;
}

/* The gradient is not finite, so the optimizer left everything as it was. 0: again, with a smaller
 * scale. */
static int overflowed(const lf_pg *p, int64_t k, const char *who, struct lf_scaler *s, lf_err *err)
{
    const long long round = (long long)p->s.round + 1;
    if (!lf_scaler_overflow(s, &p->c->scaler))
        return lf_fail(err, LF_ENUMERIC,
                       "round %lld, mini-batch %lld: the gradient of the %s is not finite; its "
                       "weights are as before, "
                       "and rollouts/step-%08lld.h5 has the sequences",
                       round, (long long)k + 1, who, round);
    lf_run_log(&p->run, 3,
               "round %lld, mini-batch %lld: the gradient of the %s overflowed: again with a loss "
               "scale of %g",
               round, (long long)k + 1, who, s->scale);
    return 0;
}

/* Trains one model on the mini-batch. Collective: all ranks see the same sums, so they agree about
 * what overflowed. */
static int improve(lf_pg *p, struct work *w, bool actor, struct lf_pg_update *u, lf_err *err)
{
    const struct lf_pg_config *c = p->c;
    lf_pg_model *m = actor ? p->actor : p->critic;
    struct lf_scaler *s = actor ? &p->s.actor_scale : &p->s.critic_scale;
    const double lr = actor ? u->lr : u->critic_lr;
    struct lf_pg_step_result res = {.skip = true};
    const struct lf_profile_mark mark = lf_profile_begin(c->profile);
    int rc = 0;
    while (rc == 0 && res.skip) {
        lf_pg_model_scale(m, s->scale);
        rc = lf_run_agree(&p->run, gradients(p, w, actor, u, err), err);
        rc = rc != 0 ? rc
                     : lf_pg_step(m, &c->adam, (actor ? p->s.actor_updates : p->s.updates) + 1, lr,
                                  c->clip, &res, err);
        if (rc == 0 && res.skip)
            rc = overflowed(p, w->k, actor ? "actor" : "critic", s, err);
    }
    if (rc != 0)
        return rc;
    p->fresh = p->fresh && !actor;
    *(actor ? &u->grad_norm : &u->critic_grad_norm) = res.grad_norm;
    *(actor ? &u->scale : &u->critic_scale) = s->scale;
    lf_scaler_good(s, &c->scaler);
    lf_profile_end(c->profile, LF_LANE_STEP, actor ? "update of the actor" : "update of the critic",
                   mark);
    return 0;
}

int lf_pg_update_step(lf_pg *p, int64_t k, struct lf_pg_update *u, lf_err *err)
{
    const bool actor = p->s.round >= p->c->critic_warmup || !p->want_critic;
    const double t0 = lf_now_s(), share = lf_schedule_lr(&p->schedule, p->s.updates + 1) / p->c->lr;
    struct work w;
    *u = (struct lf_pg_update){.first = k == 0,
                               .lr = actor ? share * p->c->lr : 0,
                               .critic_lr = p->want_critic ? share * p->c->critic_lr : 0};
    lf_pg_sums_begin(&u->pg);
    int rc = lf_run_agree(&p->run, work_make(&w, p, k, actor, err), err);
    if (rc == 0 && actor)
        rc = improve(p, &w, true, u, err);
    if (rc == 0 && p->want_critic)
        rc = improve(p, &w, false, u, err);
    if (rc == 0)
        rc = lf_pg_share_sums(p, u, err);
    if (rc == 0) {
        p->s.updates++;
        p->s.actor_updates += actor;
        p->s.tokens += w.norm.tokens;
        p->s.episodes += w.norm.sequences;
        p->s.done = k + 1;
        u->flops = w.flops;
    }
    u->seconds = lf_now_s() - t0;
    p->train_s += u->seconds;
    work_free(&w);
    return rc;
}
