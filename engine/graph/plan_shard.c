/* SPDX-License-Identifier: Apache-2.0
 *
 * Sharded state (ZeRO, Rajbhandari et al. 2020), stage 1: a rank keeps the moments of its own part
 * of the weights, and the masters where graphs read copies instead. It updates that part, then the
 * ranks give each other what they updated.
 *
 * Each bucket of gradients (plan_data.c) is cut into one range for each rank. Cuts lie at the
 * starts of parameters and, within a parameter, at multiples of LF_NORM_BLOCK elements from its
 * start. So a block of the gradient's norm is one rank's, draws of stochastic rounding begin at
 * whole words, and the sums of a step have the bits of a run without sharding on as many ranks.
 */
#include <stdlib.h>

#include "engine/graph/priv.h"

void lf_param_own(const lf_pstore *ps, const struct lf_param *p, int64_t *first, int64_t *n)
{
    const struct lf_pgroup *g = &ps->g[p->group];
    int64_t lo = g->own0 - p->offset, hi = g->own1 - p->offset;
    lo = lo < 0 ? 0 : lo > p->n ? p->n : lo;
    hi = hi < lo ? lo : hi > p->n ? p->n : hi;
    *first = lo;
    *n = hi - lo;
}

static size_t grad_at(const lf_pstore *ps, const struct lf_param *p)
{
    return ps->g[p->group].off[LF_P_GRAD] / sizeof(float) + (size_t)p->offset;
}

static bool has_grad(const lf_pstore *ps, const struct lf_param *p)
{
    return ps->g[p->group].need[LF_P_GRAD];
}

/* The permitted cut of a bucket that is nearest to `want`, both in floats of the gradients. */
static size_t nearest_cut(const lf_pstore *ps, const struct lf_bucket *b, size_t want)
{
    const size_t from = b->off / sizeof(float), to = from + b->n;
    size_t best = from;
    for (size_t i = 0; i < ps->n_p; i++) {
        const struct lf_param *p = &ps->p[i];
        const size_t at = has_grad(ps, p) ? grad_at(ps, p) : to;
        if (at < from || at >= to)
            continue;
        size_t inside = want > at ? want - at : 0;
        inside = inside < (size_t)p->n ? inside : (size_t)p->n;
        const size_t low = at + inside / LF_NORM_BLOCK * LF_NORM_BLOCK, up = low + LF_NORM_BLOCK,
                     end = at + (size_t)p->n, candidate[] = {low, up < end ? up : end};
        for (int k = 0; k < 2; k++)
            if ((candidate[k] > want ? candidate[k] - want : want - candidate[k]) <
                (best > want ? best - want : want - best))
                best = candidate[k];
    }
    return best;
}

static int cut_bucket(lf_plan *p, struct lf_bucket *b, lf_err *err)
{
    const size_t from = b->off / sizeof(float), ranks = (size_t)p->ranks.ranks;
    b->count = lf_arena_alloc(p->arena, ranks, sizeof *b->count, err);
    if (!b->count)
        return LF_ENOMEM;
    size_t last = 0;
    for (size_t r = 0; r < ranks; r++) {
        size_t next = b->n;
        if (r + 1 < ranks)
            next = nearest_cut(p->ps, b, from + b->n / ranks * (r + 1)) - from;
        next = next < last ? last : next;
        b->count[r] = next - last;
        last = next;
    }
    return 0;
}

/* What of a bucket is this rank's, as ranges of its groups. */
static void own_bucket(const lf_plan *p, const struct lf_bucket *b)
{
    size_t lo = b->off / sizeof(float);
    for (int r = 0; r < p->ranks.rank; r++)
        lo += b->count[r];
    const size_t hi = lo + b->count[p->ranks.rank];
    for (size_t i = 0; i < p->ps->n_g; i++) {
        struct lf_pgroup *g = &p->ps->g[i];
        const size_t at = g->off[LF_P_GRAD] / sizeof(float), n = (size_t)(g->rows * g->cols);
        if (!g->need[LF_P_GRAD] || at < b->off / sizeof(float) ||
            at >= b->off / sizeof(float) + b->n)
            continue;
        g->own0 = (int64_t)(lo < at ? 0 : lo > at + n ? n : lo - at);
        g->own1 = (int64_t)(hi < at ? 0 : hi > at + n ? n : hi - at);
    }
}

/* ---- what is given to the others ---- */

/* Byte of a kind's block where the elements of rank r and above begin, within groups [first, last]
 * of a bucket. */
static size_t kind_cut(const lf_plan *p, const struct lf_bucket *b, const struct lf_gather *run,
                       int r)
{
    const lf_pstore *ps = p->ps;
    const size_t size = lf_dtype_size(lf_pstore_type(ps, (enum lf_pkind)run->kind));
    size_t cut = b->off / sizeof(float);
    for (int k = 0; k < r; k++)
        cut += b->count[k];
    for (size_t i = run->first; i <= run->last; i++) {
        const struct lf_pgroup *g = &ps->g[i];
        const size_t at = g->off[LF_P_GRAD] / sizeof(float), n = (size_t)(g->rows * g->cols);
        if (!g->need[run->kind] || g->part[run->kind])
            continue;
        if (cut <= at)
            return g->off[run->kind];
        if (cut <= at + n)
            return g->off[run->kind] + (cut - at) * size;
    }
    return run->off + run->bytes;
}

static int end_run(lf_plan *p, const struct lf_bucket *b, struct lf_gather *run, lf_err *err)
{
    const int ranks = p->ranks.ranks;
    if (!run->bytes)
        return 0;
    run->part = lf_arena_alloc(p->arena, (size_t)ranks, sizeof *run->part, err);
    int rc =
        run->part ? lf_grow(&p->gather, &p->cap_gather, p->n_gather, sizeof *run, err) : LF_ENOMEM;
    if (rc != 0)
        return rc;
    size_t last = run->off;
    for (int r = 0; r < ranks; r++) {
        const size_t next = r + 1 < ranks ? kind_cut(p, b, run, r + 1) : run->off + run->bytes;
        run->part[r] = next - last;
        last = next;
    }
    p->gather[p->n_gather++] = *run;
    run->bytes = 0;
    return 0;
}

/* The ranges of a kind in which everything changes in a step, in the order of the store. */
static int gather_kind(lf_plan *p, const struct lf_bucket *b, int kind, lf_err *err)
{
    const lf_pstore *ps = p->ps;
    const size_t size = lf_dtype_size(lf_pstore_type(ps, (enum lf_pkind)kind));
    struct lf_gather run = {.kind = (uint8_t)kind};
    int rc = 0;
    for (size_t i = 0; i < ps->n_g && rc == 0; i++) {
        const struct lf_pgroup *g = &ps->g[i];
        const bool in = g->need[LF_P_GRAD] && g->off[LF_P_GRAD] >= b->off &&
                        g->off[LF_P_GRAD] < b->off + b->n * sizeof(float);
        if (!g->need[kind] || g->part[kind]) /* parts lie behind everything that is whole */
            continue;
        if (!in) {
            rc = end_run(p, b, &run, err);
            continue;
        }
        if (!run.bytes) {
            run.first = i;
            run.off = g->off[kind];
        }
        run.last = i;
        run.bytes = g->off[kind] + (size_t)(g->rows * g->cols) * size - run.off;
    }
    return rc != 0 ? rc : end_run(p, b, &run, err);
}

/* Groups whose optimizer state is kept in parts. Balanced biases have none. */
static void choose_parts(lf_plan *p)
{
    for (size_t i = 0; i < p->ps->n_g; i++) {
        struct lf_pgroup *g = &p->ps->g[i];
        if (!g->need[LF_P_M])
            continue;
        g->part[LF_P_M] = g->part[LF_P_V] = true;
        g->part[LF_P_MASTER] = g->need[LF_P_COPY] && !g->master_read;
    }
}

int lf_plan_shard(lf_plan *p, lf_err *err)
{
    int rc = 0;
    if (!p->ranks.zero || p->ranks.ranks <= 1 || !p->has_opt)
        return 0;
    for (size_t i = 0; i < p->n_buckets && rc == 0; i++)
        rc = cut_bucket(p, &p->bucket[i], err);
    for (size_t i = 0; i < p->n_buckets && rc == 0; i++)
        own_bucket(p, &p->bucket[i]);
    if (rc != 0)
        return rc;
    choose_parts(p);
    lf_pstore_layout(p->ps, p->o.target->align);
    for (size_t i = 0; i < p->n_buckets && rc == 0; i++) {
        rc = gather_kind(p, &p->bucket[i], LF_P_COPY, err);
        if (rc == 0)
            rc = gather_kind(p, &p->bucket[i], LF_P_MASTER, err);
    }
    p->sharded = rc == 0;
    return rc;
}

int64_t lf_plan_norm_blocks(const lf_plan *p)
{
    int64_t n = 0;
    for (size_t i = 0; i < p->ps->n_p; i++) {
        const struct lf_param *q = &p->ps->p[i];
        if (!q->d.frozen && !(q->d.balance_rate > 0))
            n += (q->n + LF_NORM_BLOCK - 1) / LF_NORM_BLOCK;
    }
    return n;
}
