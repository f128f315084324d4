/* SPDX-License-Identifier: Apache-2.0
 *
 * Sharded state (ZeRO, Rajbhandari et al. 2020). Stage 1: a rank keeps the moments of its own part
 * of the weights, and the masters where graphs read copies instead. It updates that part, then the
 * ranks give each other what they updated. Stage 2: it keeps the gradients of its part alone. Stage
 * 3: the weights, too. What is not kept exists in windows (plan_window.c). Experts that ranks
 * divide are divided again by the ranks that have the same ones.
 *
 * The store's groups form **units**: with stage 1 those of a bucket of gradients (plan_data.c),
 * else those of a layer. A unit is cut into one range for each rank. Cuts lie at the starts of
 * parameters and, within a parameter, at multiples of LF_NORM_BLOCK elements from its start. So a
 * block of the gradient's norm is one rank's, draws of stochastic rounding begin at whole words,
 * and the sums of a step have the bits of a run without sharding on as many ranks.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- units ---- */

/* The stage by which a group is divided. Experts that no other rank has need no windows: all of
 * them is this rank's. */
static int stage_of(const lf_plan *p, const struct lf_pgroup *g)
{
    const bool alone = g->experts && lf_plan_sum_ranks(p, true) == 1;
    return alone && p->ranks.zero > 1 ? 1 : p->ranks.zero;
}

/* Stage 1 divides everything that has gradients. Balanced biases are a few numbers that every rank
 * updates from sums that all have, so the later stages leave them whole. */
static bool divided(const lf_plan *p, const struct lf_pgroup *g)
{
    const int stage = stage_of(p, g);
    return stage == 1 ? g->need[LF_P_GRAD]
                      : !g->balanced && !g->elsewhere && (g->need[LF_P_GRAD] || stage == 3);
}

/* Length of the part of a name that its layer has in common: "layers.3" of "layers.3.attn.q"; the
 * whole name outside of layers. */
static size_t layer_of(const char *name)
{
    for (const char *at = name; *at; at++) {
        const char *end = at;
        while (isdigit((unsigned char)*end))
            end++;
        if (end > at && at > name && at[-1] == '.' && *end == '.')
            return (size_t)(end - name);
    }
    return strlen(name);
}

static bool same_layer(const char *a, const char *b)
{
    const size_t n = layer_of(a);
    return n == layer_of(b) && memcmp(a, b, n) == 0;
}

/* Small groups outside of layers do not become units of their own. */
enum { UNIT_FLOATS = 16384 };

/* Does a unit of `n` elements that ends with group `last` end there? */
static bool ends_unit(const lf_plan *p, size_t last, size_t next, size_t n)
{
    const struct lf_pgroup *g = p->ps->g;
    return n * sizeof(float) >= p->ranks.bucket_bytes ||
           (n >= UNIT_FLOATS && !same_layer(g[last].name, g[next].name));
}

static void add_group(lf_plan *p, struct lf_unit *u, size_t i)
{
    struct lf_pgroup *g = &p->ps->g[i];
    const size_t step = p->o.target->align / sizeof(float);
    g->unit = (int32_t)(u - p->unit);
    g->pos = u->n;
    u->end = i + 1;
    u->experts = g->experts;
    u->n += ((size_t)(g->rows * g->cols) + step - 1) / step * step;
}

/* Is the group a unit of its own? Ranks of the tensor axis may have different shares of a
 * vocabulary; apart from these, all other units have the same cuts on each of these ranks, and what
 * they sum is the same part (exec_tensor.c). Experts of stage 1 are a bucket (lf_plan_buckets). */
static bool alone(const lf_plan *p, size_t i)
{
    const lf_pstore *ps = p->ps;
    return (ps->g[i].experts && stage_of(p, &ps->g[i]) == 1) ||
           (ps->layout.tensor > 1 && ps->p[ps->g[i].first].d.shard == LF_SHARD_VOCABULARY);
}

/* May two groups be of one unit? Fewer ranks divide experts. */
static bool together(const lf_plan *p, size_t a, size_t b)
{
    return !alone(p, a) && !alone(p, b) && p->ps->g[a].experts == p->ps->g[b].experts;
}

static void make_units(lf_plan *p)
{
    size_t last = 0;
    for (size_t i = 0; i < p->ps->n_g; i++) {
        p->ps->g[i].unit = -1;
        if (!divided(p, &p->ps->g[i]))
            continue;
        struct lf_unit *u = p->n_units ? &p->unit[p->n_units - 1] : NULL;
        if (!u || ends_unit(p, last, i, u->n) || !together(p, last, i)) {
            u = &p->unit[p->n_units++];
            u->first = i;
        }
        add_group(p, u, i);
        if (stage_of(p, &p->ps->g[i]) == 1) /* a bucket, without a gap */
            u->n = (size_t)(p->ps->g[i].rows * p->ps->g[i].cols);
        last = i;
    }
}

/* Stage 1: the groups of a bucket, whose sum goes to owners. Their places are those in the
 * bucket. */
static void make_units_of_buckets(lf_plan *p)
{
    for (size_t i = 0; i < p->ps->n_g; i++)
        p->ps->g[i].unit = -1;
    for (size_t b = 0; b < p->n_buckets; b++) {
        const struct lf_bucket *k = &p->bucket[b];
        struct lf_unit *u = &p->unit[p->n_units++];
        for (size_t i = 0; i < p->ps->n_g; i++) {
            const struct lf_pgroup *g = &p->ps->g[i];
            if (!divided(p, g) || g->off[LF_P_GRAD] < k->off ||
                g->off[LF_P_GRAD] >= k->off + k->n * sizeof(float))
                continue;
            if (!u->n)
                u->first = i;
            add_group(p, u, i);
        }
        u->n = k->n; /* without the gap behind the last group */
    }
}

/* ---- cuts ---- */

/* The parameters of a unit, so that looking for cuts does not look at all others. */
static size_t params_of(const lf_plan *p, const struct lf_unit *u, const struct lf_param **out)
{
    const lf_pstore *ps = p->ps;
    size_t n = 0;
    for (size_t i = u->first; i < u->end; i++)
        for (int32_t k = 0; k < ps->g[i].count && ps->g[i].unit == u - p->unit; k++)
            out[n++] = &ps->p[ps->g[i].first + k];
    return n;
}

/* The permitted cut of a unit that is nearest to element `want`. */
static size_t nearest_cut(const lf_plan *p, const struct lf_param *const *of, size_t n, size_t want)
{
    size_t best = 0;
    for (size_t i = 0; i < n; i++) {
        const struct lf_param *q = of[i];
        const size_t at = p->ps->g[q->group].pos + (size_t)q->offset;
        size_t inside = want > at ? want - at : 0;
        inside = inside < (size_t)q->n ? inside : (size_t)q->n;
        const size_t low = at + inside / LF_NORM_BLOCK * LF_NORM_BLOCK, up = low + LF_NORM_BLOCK,
                     end = at + (size_t)q->n, candidate[] = {low, up < end ? up : end};
        for (int k = 0; k < 2; k++)
            if ((candidate[k] > want ? candidate[k] - want : want - candidate[k]) <
                (best > want ? best - want : want - best))
                best = candidate[k];
    }
    return best;
}

static int cut_unit(lf_plan *p, struct lf_unit *u, lf_err *err)
{
    const size_t ranks = (size_t)lf_plan_sum_ranks(p, u->experts);
    const struct lf_param **of = lf_calloc(p->ps->n_p + 1, sizeof *of, err);
    u->cut = lf_arena_alloc(p->arena, ranks + 1, sizeof *u->cut, err);
    if (!of || !u->cut) {
        free(of);
        return LF_ENOMEM;
    }
    const size_t n = params_of(p, u, of);
    u->cut[0] = 0;
    for (size_t r = 1; r < ranks; r++) {
        u->cut[r] = nearest_cut(p, of, n, u->n / ranks * r);
        if (u->cut[r] < u->cut[r - 1])
            u->cut[r] = u->cut[r - 1];
    }
    u->cut[ranks] = u->n;
    free(of);
    return 0;
}

/* What of the unit's groups is this rank's. */
static void own_unit(const lf_plan *p, const struct lf_unit *u)
{
    const int rank = lf_plan_sum_rank(p, u->experts);
    const size_t lo = u->cut[rank], hi = u->cut[rank + 1];
    for (size_t i = u->first; i < u->end; i++) {
        struct lf_pgroup *g = &p->ps->g[i];
        const size_t at = g->pos, n = (size_t)(g->rows * g->cols);
        if (g->unit != u - p->unit)
            continue;
        g->own0 = (int64_t)(lo < at ? 0 : lo > at + n ? n : lo - at);
        g->own1 = (int64_t)(hi < at ? 0 : hi > at + n ? n : hi - at);
    }
}

int lf_plan_count_bucket(lf_plan *p, struct lf_bucket *b, const struct lf_unit *u, lf_err *err)
{
    const int ranks = lf_plan_sum_ranks(p, u->experts);
    b->count = lf_arena_alloc(p->arena, (size_t)ranks, sizeof *b->count, err);
    for (int r = 0; b->count && r < ranks; r++)
        b->count[r] = u->cut[r + 1] - u->cut[r];
    return b->count ? 0 : LF_ENOMEM;
}

/* ---- what is kept in parts, and what in windows ---- */

static void choose_parts(lf_plan *p)
{
    for (size_t i = 0; i < p->ps->n_g; i++) {
        struct lf_pgroup *g = &p->ps->g[i];
        const int zero = stage_of(p, g);
        if (g->unit < 0)
            continue;
        const bool state = g->need[LF_P_M]; /* balanced biases have none */
        g->part[LF_P_M] = g->part[LF_P_V] = state;
        g->part[LF_P_EMA] = g->need[LF_P_EMA];
        g->part[LF_P_MASTER] =
            zero == 3 ? g->need[LF_P_MASTER] : state && g->need[LF_P_COPY] && !g->master_read;
        g->part[LF_P_COPY] = zero == 3 && g->need[LF_P_COPY];
        g->part[LF_P_GRAD] = zero >= 2 && g->need[LF_P_GRAD];
        g->window[LF_P_MASTER] = g->part[LF_P_MASTER] && g->master_read;
        g->window[LF_P_COPY] = g->part[LF_P_COPY];
        g->window[LF_P_GRAD] = g->part[LF_P_GRAD];
    }
}

static size_t size_of(const lf_plan *p, int kind)
{
    return lf_dtype_size(lf_pstore_type(p->ps, (enum lf_pkind)kind));
}

size_t lf_unit_cut(const lf_plan *p, const struct lf_unit *u, int kind, int r)
{
    for (size_t i = u->first; i < u->end && r > 0 && r < lf_plan_sum_ranks(p, u->experts); i++) {
        const struct lf_pgroup *g = &p->ps->g[i];
        if (g->unit != u - p->unit || !g->window[kind])
            continue;
        if (u->cut[r] <= g->pos)
            return g->at[kind];
        if (u->cut[r] < g->pos + (size_t)(g->rows * g->cols))
            return g->at[kind] + (u->cut[r] - g->pos) * size_of(p, kind);
    }
    return r > 0 ? u->bytes[kind] : 0;
}

/* The block of a kind of a unit, and each rank's part of it. */
static int lay_block(lf_plan *p, struct lf_unit *u, int kind, lf_err *err)
{
    const size_t unit = kind == LF_P_GRAD ? sizeof(float) : 1;
    for (size_t i = u->first; i < u->end; i++) {
        struct lf_pgroup *g = &p->ps->g[i];
        if (g->unit != u - p->unit || !g->window[kind])
            continue;
        g->at[kind] = u->bytes[kind];
        u->bytes[kind] +=
            lf_align_up((size_t)(g->rows * g->cols) * size_of(p, kind), p->o.target->align);
    }
    if (!u->bytes[kind])
        return 0;
    const int ranks = lf_plan_sum_ranks(p, u->experts);
    u->part[kind] = lf_arena_alloc(p->arena, (size_t)ranks, sizeof *u->part[kind], err);
    for (int r = 0; u->part[kind] && r < ranks; r++)
        u->part[kind][r] = (lf_unit_cut(p, u, kind, r + 1) - lf_unit_cut(p, u, kind, r)) / unit;
    return u->part[kind] ? 0 : LF_ENOMEM;
}

/* This rank's part of a block gets a place in the store, with the gaps that it has in the block. */
static void place_own(lf_plan *p, struct lf_unit *u, int kind)
{
    const int rank = lf_plan_sum_rank(p, u->experts);
    const size_t from = lf_unit_cut(p, u, kind, rank), to = lf_unit_cut(p, u, kind, rank + 1);
    u->own[kind] = p->ps->bytes[kind];
    p->ps->bytes[kind] += lf_align_up(to - from, p->o.target->align);
    for (size_t i = u->first; i < u->end; i++) {
        struct lf_pgroup *g = &p->ps->g[i];
        if (g->unit == u - p->unit && g->window[kind])
            g->off[kind] =
                u->own[kind] +
                (g->own1 > g->own0 ? g->at[kind] + (size_t)g->own0 * size_of(p, kind) - from : 0);
    }
}

static int lay_blocks(lf_plan *p, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < p->n_units && rc == 0; i++)
        for (int k = 0; k < LF_P_KINDS && rc == 0; k++)
            rc = lay_block(p, &p->unit[i], k, err);
    return rc;
}

/* Of an element: what a rank keeps only where it is its own, and again what of it is saved. */
static double element_bytes(const lf_plan *p, const struct lf_pgroup *g, bool saved)
{
    double sum = 0;
    for (int k = 0; k < LF_P_KINDS; k++)
        if (g->part[k])
            sum += (double)size_of(p, k);
    if (saved && (g->part[LF_P_MASTER] || g->part[LF_P_M]))
        sum += (double)(size_of(p, LF_P_MASTER) + (g->part[LF_P_M] ? 2 * size_of(p, LF_P_M) : 0) +
                        (g->part[LF_P_EMA] ? size_of(p, LF_P_EMA) : 0));
    return sum;
}

double lf_plan_own_bytes(const lf_plan *p, int rank, bool saved)
{
    double sum = 0;
    for (size_t i = 0; i < p->n_units; i++) {
        const struct lf_unit *u = &p->unit[i];
        const int r = lf_plan_sum_rank_of(p, u->experts, rank);
        const size_t lo = u->cut[r], hi = u->cut[r + 1];
        for (size_t k = u->first; k < u->end && lo < hi; k++) {
            const struct lf_pgroup *g = &p->ps->g[k];
            const size_t from = g->pos > lo ? g->pos : lo,
                         end = g->pos + (size_t)(g->rows * g->cols);
            if (g->unit == u - p->unit && from < end && from < hi)
                sum += (double)((end < hi ? end : hi) - from) * element_bytes(p, g, saved);
        }
    }
    return sum;
}

/* Lays out what the store has on this rank. */
static void lay_store(lf_plan *p)
{
    lf_pstore_layout(p->ps, p->o.target->align);
    for (size_t i = 0; i < p->n_units; i++)
        for (int k = 0; k < LF_P_KINDS; k++)
            if (p->unit[i].bytes[k])
                place_own(p, &p->unit[i], k);
}

int lf_plan_take_rank(lf_plan *p, int rank, lf_err *err)
{
    const int ranks = p->ranks.ranks > 1 ? p->ranks.ranks : 1;
    if (!p->finished || rank < 0 || rank >= ranks)
        return lf_fail(err, LF_EINVAL, "plan: %d ranks have no rank %d, or it is not finished",
                       ranks, rank);
    if (p->ps->back)
        return lf_fail(err, LF_EBUSY, "plan: the store is bound to an executor");
    p->ranks.rank = rank;
    if (!p->sharded)
        return 0;
    for (size_t i = 0; i < p->n_units; i++)
        own_unit(p, &p->unit[i]);
    lay_store(p);
    lf_plan_count_bytes(p);
    return 0;
}

/* ---- what is given to the others after a step ---- */

/* Byte of a kind's block of the store where the elements of rank r and above begin, within groups
 * [first, last] of a unit. */
static size_t kind_cut(const lf_plan *p, const struct lf_unit *u, const struct lf_gather *run,
                       int r)
{
    for (size_t i = run->first; i <= run->last; i++) {
        const struct lf_pgroup *g = &p->ps->g[i];
        if (g->unit != u - p->unit || !g->need[run->kind] || g->part[run->kind])
            continue;
        if (u->cut[r] <= g->pos)
            return g->off[run->kind];
        if (u->cut[r] <= g->pos + (size_t)(g->rows * g->cols))
            return g->off[run->kind] + (u->cut[r] - g->pos) * size_of(p, run->kind);
    }
    return run->off + run->bytes;
}

static int end_run(lf_plan *p, const struct lf_unit *u, struct lf_gather *run, lf_err *err)
{
    const int ranks = lf_plan_sum_ranks(p, u->experts);
    if (!run->bytes || ranks == 1) {
        run->bytes = 0;
        return 0;
    }
    run->experts = u->experts;
    run->part = lf_arena_alloc(p->arena, (size_t)ranks, sizeof *run->part, err);
    int rc =
        run->part ? lf_grow(&p->gather, &p->cap_gather, p->n_gather, sizeof *run, err) : LF_ENOMEM;
    if (rc != 0)
        return rc;
    size_t last = run->off;
    for (int r = 0; r < ranks; r++) {
        const size_t next = r + 1 < ranks ? kind_cut(p, u, run, r + 1) : run->off + run->bytes;
        run->part[r] = next - last;
        last = next;
    }
    p->gather[p->n_gather++] = *run;
    run->bytes = 0;
    return 0;
}

/* The ranges of a kind in which everything changes in a step, in the order of the store. */
static int gather_kind(lf_plan *p, const struct lf_unit *u, int kind, lf_err *err)
{
    struct lf_gather run = {.kind = (uint8_t)kind};
    int rc = 0;
    for (size_t i = u->first; i < u->end && rc == 0; i++) {
        const struct lf_pgroup *g = &p->ps->g[i];
        if (!g->need[kind] || g->part[kind]) /* parts lie behind everything that is whole */
            continue;
        if (g->unit != u - p->unit || !g->need[LF_P_GRAD]) {
            rc = end_run(p, u, &run, err);
            continue;
        }
        if (!run.bytes) {
            run.first = i;
            run.off = g->off[kind];
        }
        run.last = i;
        run.bytes = g->off[kind] + (size_t)(g->rows * g->cols) * size_of(p, kind) - run.off;
    }
    return rc != 0 ? rc : end_run(p, u, &run, err);
}

size_t lf_plan_own_grads(const lf_plan *p, size_t i, size_t *n)
{
    const struct lf_unit *u = &p->unit[i];
    const int rank = lf_plan_sum_rank(p, u->experts);
    if (p->windowed) {
        *n = u->part[LF_P_GRAD] ? u->part[LF_P_GRAD][rank] : 0;
        return u->own[LF_P_GRAD];
    }
    *n = u->cut[rank + 1] - u->cut[rank];
    return p->bucket[i].off + u->cut[rank] * sizeof(float);
}

bool lf_plan_sums_parts(const lf_plan *p)
{
    return p->sharded && (!p->o.target->sm || p->windowed || p->ranks.groups > 1);
}

size_t lf_plan_largest_part(const lf_plan *p)
{
    size_t most = 0;
    for (size_t i = 0; i < p->n_units; i++)
        for (int r = 0; r < lf_plan_sum_ranks(p, p->unit[i].experts); r++) {
            const struct lf_unit *u = &p->unit[i];
            const size_t n = u->part[LF_P_GRAD]           ? u->part[LF_P_GRAD][r]
                             : !p->windowed || u->experts ? u->cut[r + 1] - u->cut[r]
                                                          : 0;
            most = n > most ? n : most;
        }
    return most;
}

/* Each GPU has a message to and one from every other under way. */
enum { GPUS_MOST = 512 };

static int check(const lf_plan *p, lf_err *err)
{
    if (p->o.target->sm && p->ranks.ranks > GPUS_MOST && (p->ranks.zero > 1 || p->ranks.groups > 1))
        return lf_fail(
            err, LF_ENOTSUP,
            "zero = %d: %d GPUs, of which %d at most divide gradients; set zero_inner to "
            "the GPUs of a node",
            p->ranks.zero, p->ranks.ranks, GPUS_MOST);
    if (p->ps->layout.expert > 1 && p->ranks.groups > 1)
        return lf_fail(
            err, LF_ENOTSUP,
            "expert = %d with zero_inner: the ranks with the same experts are in several "
            "of these groups; leave zero_inner out",
            p->ps->layout.expert);
    if (p->ranks.zero == 3 && p->o.fp8)
        return lf_fail(err, LF_ENOTSUP,
                       "zero = 3 with precision fp8: 8-bit copies are made of whole weights; take "
                       "zero = 2 or precision = bf16");
    for (size_t i = 0; i < p->n_c && p->ranks.zero == 3; i++)
        if (p->c[i].o.packed && !p->c[i].o.whole)
            return lf_fail(err, LF_ENOTSUP,
                           "zero = 3: graph %s reads panels of whole weights; take zero = 2",
                           p->c[i].g->name);
    return 0;
}

/* Panels are a second copy of all weights. */
static void drop_panels(lf_plan *p)
{
    for (size_t i = 0; i < p->n_c && p->ranks.zero == 3; i++)
        p->c[i].o.packed = false;
    for (size_t i = 0; i < p->ps->n_g && p->ranks.zero == 3; i++)
        p->ps->g[i].need_pack = false;
}

int lf_plan_shard(lf_plan *p, lf_err *err)
{
    if (!p->ranks.zero || p->ranks.ranks <= 1 || (!p->has_opt && p->ranks.zero < 3))
        return 0;
    int rc = check(p, err);
    if (rc != 0)
        return rc;
    p->unit = lf_calloc(p->ps->n_g + 1, sizeof *p->unit, err);
    if (!p->unit)
        return LF_ENOMEM;
    if (p->ranks.zero == 1)
        make_units_of_buckets(p);
    else
        make_units(p);
    for (size_t i = 0; i < p->n_units && rc == 0; i++) {
        rc = cut_unit(p, &p->unit[i], err);
        if (rc == 0)
            own_unit(p, &p->unit[i]);
        if (rc == 0 && p->ranks.zero == 1)
            rc = lf_plan_count_bucket(p, &p->bucket[i], &p->unit[i], err);
    }
    if (rc != 0)
        return rc;
    choose_parts(p);
    drop_panels(p);
    rc = lay_blocks(p, err);
    if (rc == 0)
        lay_store(p);
    for (size_t i = 0; i < p->n_units && rc == 0; i++) {
        rc = gather_kind(p, &p->unit[i], LF_P_COPY, err);
        if (rc == 0)
            rc = gather_kind(p, &p->unit[i], LF_P_MASTER, err);
    }
    p->sharded = rc == 0;
    p->windowed = rc == 0 && p->ranks.zero >= 2;
    for (size_t i = 0; i < p->n_c && rc == 0 && p->windowed; i++)
        rc = p->c[i].o.whole ? 0 : lf_plan_windows(p, &p->c[i], err);
    if (rc == 0)
        lf_plan_whole(p);
    return rc;
}

bool lf_plan_counts(const lf_plan *p, const struct lf_param *q)
{
    const bool alone = p->sharded || p->ps->layout.expert <= 1 ||
                       lf_plan_sum_rank(p, p->ps->g[q->group].experts) == 0;
    return alone && lf_box_owner(p->ps, q);
}

int64_t lf_plan_norm_blocks(const lf_plan *p)
{
    int64_t n = 0;
    for (size_t i = 0; i < p->ps->n_p; i++) {
        const struct lf_param *q = &p->ps->p[i];
        if (!q->d.frozen && !(q->d.balance_rate > 0))
            n += lf_box_count(p->ps, q) *
                 ((lf_box_most(p->ps, q) + LF_NORM_BLOCK - 1) / LF_NORM_BLOCK);
    }
    return n;
}
