/* SPDX-License-Identifier: Apache-2.0
 *
 * Data-parallel layout: every rank has the whole model and its share of the micro-batches. What is
 * left to do between them is one sum of the gradients, which the optimizer's program begins with.
 *
 * The sum goes in buckets: ranges of the store's gradients, which lie in one block in the order of
 * declaration, so the backward pass finishes them from the end. Buckets therefore run from the end
 * too. A bucket can be summed while the pass goes on (exec_sum.c). With zero a rank updates its
 * part of each bucket alone (plan_shard.c).
 */
#include <stdlib.h>

#include "engine/graph/priv.h"

int lf_plan_data_parallel(lf_plan *p, const struct lf_plan_ranks *r, lf_err *err)
{
    if (r->ranks < 1 || r->rank < 0 || r->rank >= r->ranks || r->bucket_bytes < sizeof(float) ||
        r->zero < 0 || r->zero > 3 || r->groups < 0 || (r->groups > 1 && !r->zero) || p->finished)
        return lf_fail(err, LF_EINVAL,
                       "plan: data-parallel over %d ranks in buckets of %zu bytes with zero = %d, "
                       "or too late",
                       r->ranks, r->bucket_bytes, r->zero);
    p->ranks = *r;
    return 0;
}

/* What is summed at the end of a step. With zero >= 2 sums of parts go beside each backward pass
 * (plan_window.c). */
static bool summed(const struct lf_pgroup *g)
{
    return g->need[LF_P_GRAD] && !g->part[LF_P_GRAD];
}

/* Groups [first, end) of the store. */
static struct lf_bucket bucket_of(const lf_plan *p, size_t first, size_t end)
{
    const lf_pstore *ps = p->ps;
    size_t from = 0, to = 0;
    bool any = false;
    for (size_t i = first; i < end; i++) {
        const struct lf_pgroup *g = &ps->g[i];
        if (!summed(g))
            continue;
        if (!any)
            from = g->off[LF_P_GRAD];
        to = g->off[LF_P_GRAD] + (size_t)(g->rows * g->cols) * sizeof(float);
        any = true;
    }
    return (struct lf_bucket){
        .off = from, .n = (to - from) / sizeof(float), .experts = ps->g[first].experts};
}

int lf_plan_buckets(lf_plan *p, lf_err *err)
{
    const lf_pstore *ps = p->ps;
    if (p->ranks.ranks <= 1 || !p->has_opt)
        return 0;
    p->bucket = lf_calloc(ps->n_g + 1, sizeof *p->bucket, err);
    if (!p->bucket)
        return LF_ENOMEM;
    for (size_t end = ps->n_g; end > 0;) {
        size_t first = end;
        struct lf_bucket b = {0};
        do
            b = bucket_of(p, --first, end);
        while (first > 0 && b.n * sizeof(float) < p->ranks.bucket_bytes &&
               ps->g[first - 1].experts == ps->g[first].experts &&
               !(b.n && p->ranks.zero >= 2)); /* what lies between is no part of the store then */
        if (b.n)
            p->bucket[p->n_buckets++] = b;
        if (b.n && b.experts && p->sharded && /* the group is a unit */
            lf_plan_count_bucket(p, &p->bucket[p->n_buckets - 1], &p->unit[ps->g[first].unit], err))
            return LF_ENOMEM;
        end = first;
    }
    return 0;
}

static bool in_bucket(const lf_plan *p, const struct lf_tensor *t, const struct lf_bucket *b)
{
    if (t->role != LF_ROLE_GRAD)
        return false;
    const size_t at = p->ps->g[t->group].off[LF_P_GRAD];
    return at >= b->off && at < b->off + b->n * sizeof(float);
}

void lf_plan_bucket_ready(const lf_plan *p, const struct lf_chain *c, size_t *ready)
{
    const lf_graph *g = c->g;
    size_t last = g->n_fwd;
    for (size_t i = 0; i < p->n_buckets; i++) {
        for (size_t n = last; n < g->n_n; n++)
            for (int k = 0; k < LF_MAX_OUT; k++) {
                const int32_t t = g->n[n].out[k];
                if (t && in_bucket(p, &g->t[g->t[t].root], &p->bucket[i]))
                    last = n + 1;
            }
        for (size_t k = 0; k < c->n_regions; k++) /* further rounds add to the gradients */
            if ((size_t)c->region[k].first < last && (size_t)c->region[k].last >= last)
                last = (size_t)c->region[k].last + 1;
        ready[i] = last;
    }
}

/* ---- what moves ---- */

static void add(struct lf_plan_moved *m, double bytes)
{
    m->messages++;
    m->bytes += bytes;
}

void lf_moved_add_sum(const lf_plan *p, struct lf_plan_moved *m, size_t n, size_t each, int ranks,
                      int rank)
{
    const double others = ranks - 1, bytes = (double)(n * each);
    const size_t part = n / (size_t)ranks + ((size_t)rank < n % (size_t)ranks);
    const double own = (double)(part * each);
    add(m, p->o.target->sm                 ? 2 * bytes * others / ranks
           : n * each <= LF_PLAN_SHORT_SUM ? bytes * others
                                           : bytes - own + own * others);
}

/* Parts of which each rank has its own: it gets the sum of it, or gives it. */
struct parts {
    const size_t *part;
    size_t each;
    bool summed, experts;
};

static void add_parts(const lf_plan *p, struct lf_plan_moved *m, const struct parts *of)
{
    const int ranks = lf_plan_sum_ranks(p, of->experts);
    const size_t *part = of->part;
    size_t all = 0;
    for (int r = 0; r < ranks; r++)
        all += part[r];
    const size_t own = part[lf_plan_sum_rank(p, of->experts)];
    add(m, (double)((of->summed ? all - own : own * (size_t)(ranks - 1)) * of->each));
}

/* What groups of ranks sum over each other. */
static void count_groups(const lf_plan *p, struct lf_plan_comm *out)
{
    for (size_t i = 0; i < p->n_units && p->ranks.groups > 1; i++) {
        size_t n;
        lf_plan_own_grads(p, i, &n);
        if (n)
            lf_moved_add_sum(p, &out->across, n, sizeof(float), p->ranks.groups, p->ranks.group);
    }
}

struct lf_plan_moved lf_plan_pass_comm(const lf_plan *p, int chain, bool backward, bool experts)
{
    struct lf_plan_moved m = {0};
    const struct lf_chain *c = &p->c[chain];
    for (size_t i = 0; i < c->n_windows; i++) {
        const struct lf_window *w = &c->window[i];
        const bool sum = w->kind == LF_P_GRAD;
        if (p->unit[w->unit].experts == experts &&
            (backward || (!sum && (size_t)w->begin < c->g->n_fwd)))
            add_parts(p, &m,
                      &(struct parts){.part = p->unit[w->unit].part[w->kind],
                                      .each = sum ? sizeof(float) : 1,
                                      .summed = sum,
                                      .experts = experts});
    }
    return m;
}

/* What the windows of a training chain move. */
static void count_windows(const lf_plan *p, struct lf_plan_comm *out)
{
    for (size_t k = 0; k < p->n_c; k++) {
        if (!p->c[k].o.train)
            continue;
        const struct lf_plan_moved m = lf_plan_pass_comm(p, (int)k, true, false),
                                   same = lf_plan_pass_comm(p, (int)k, true, true);
        out->micro_messages += m.messages;
        out->micro_bytes += m.bytes;
        out->micro_same.messages += same.messages;
        out->micro_same.bytes += same.bytes;
        for (size_t i = 0; i < p->c[k].n_windows; i++) {
            const struct lf_window *w = &p->c[k].window[i];
            const size_t bytes = p->unit[w->unit].bytes[w->kind];
            out->largest_bytes = bytes > out->largest_bytes ? bytes : out->largest_bytes;
        }
    }
}

static void count_buckets(const lf_plan *p, struct lf_plan_comm *out)
{
    const int groups = p->ranks.groups > 1 ? p->ranks.groups : 1;
    for (size_t i = 0; i < p->n_buckets; i++) {
        const struct lf_bucket *b = &p->bucket[i];
        const size_t bytes = b->n * sizeof(float);
        out->reduced_bytes += (double)bytes;
        out->largest_bytes = bytes > out->largest_bytes ? bytes : out->largest_bytes;
        if (b->experts && lf_plan_sum_ranks(p, true) == 1)
            continue;
        if (p->n_sums && b->count)
            add_parts(p, b->experts ? &out->same : &out->within,
                      &(struct parts){b->count, sizeof(float), true, b->experts});
        else if (b->experts)
            lf_moved_add_sum(p, &out->same, b->n, sizeof(float), lf_plan_sum_ranks(p, true),
                             lf_plan_sum_rank(p, true));
        else
            lf_moved_add_sum(p, &out->all, b->n, sizeof(float), out->ranks * groups,
                             p->ranks.group * out->ranks + p->ranks.rank);
    }
}

/* What lf_exec_hold moves. */
static void count_hold(const lf_plan *p, struct lf_plan_comm *out)
{
    for (size_t i = 0; i < p->n_units; i++)
        for (int k = 0; k < LF_P_KINDS; k++)
            if (p->unit[i].held[k])
                add_parts(p, &out->hold, &(struct parts){p->unit[i].part[k], 1, false, false});
}

int lf_plan_comm(const lf_plan *p, struct lf_plan_comm *out)
{
    if (!p->finished)
        return LF_EINVAL;
    *out = (struct lf_plan_comm){.ranks = p->ranks.ranks > 1 ? p->ranks.ranks : 1};
    count_buckets(p, out);
    if (p->n_sums && p->ranks.ranks > 1 && (p->sharded || p->ps->layout.expert > 1))
        lf_moved_add_sum(p, &out->within, p->n_sums, sizeof(double), out->ranks, p->ranks.rank);
    for (size_t i = 0; i < p->n_gather; i++) {
        out->gathered_bytes += (double)p->gather[i].bytes;
        const bool experts = p->gather[i].experts;
        add_parts(p, experts ? &out->same : &out->within,
                  &(struct parts){p->gather[i].part, 1, false, experts});
    }
    count_windows(p, out);
    count_hold(p, out);
    count_groups(p, out);
    lf_plan_count_tensor(p, out);
    lf_plan_count_experts(p, out);
    out->messages = out->all.messages + out->within.messages + out->across.messages;
    out->sent_bytes = out->all.bytes + out->within.bytes + out->across.bytes;
    return 0;
}
