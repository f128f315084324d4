/* SPDX-License-Identifier: Apache-2.0
 *
 * Offsets for intervals: which bytes each tensor gets, given when it lives. Offline storage
 * allocation is NP-hard; the lower bound is the largest live set, and the plan must stay within
 * 1.05 of it. So several orders are tried (largest first is nearly always exact on networks), each
 * placing every interval into the tightest gap left by its neighbours in time; if all stay above
 * the bound, the intervals at the top are moved forward and the placement is repeated. All of it is
 * deterministic: a plan depends on its inputs alone.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/priv.h"

enum { ROUNDS = 4000 }; /* repairs after the plain orders */
static const size_t WORK_CAP =
    120000000u; /* elementary steps spent on repairs, so that huge graphs stay quick */

struct placer {
    struct lf_interval *iv;
    size_t n;
    int32_t *order, *best_order, *by_off; /* by_off: placed so far, ascending offset */
    size_t *off, *best_off;
    double *key, *crowd;
    size_t best;
};

/* Largest live set; crowd[i]: the most bytes live at once during interval i. */
static size_t live_bound(const struct lf_interval *iv, size_t n, double *crowd, lf_err *err)
{
    int32_t end = 0;
    for (size_t i = 0; i < n; i++)
        end = iv[i].last > end ? iv[i].last : end;
    int64_t *delta = lf_calloc((size_t)end + 2, sizeof *delta, err);
    if (!delta || !crowd) {
        free(delta);
        return SIZE_MAX;
    }
    for (size_t i = 0; i < n; i++) {
        delta[iv[i].first] += (int64_t)iv[i].bytes;
        delta[iv[i].last + 1] -= (int64_t)iv[i].bytes;
    }
    int64_t live = 0, most = 0;
    for (int32_t t = 0; t <= end; t++) {
        live += delta[t];
        delta[t] = live;
        most = live > most ? live : most;
    }
    for (size_t i = 0; i < n; i++)
        for (int32_t t = iv[i].first; t <= iv[i].last; t++)
            crowd[i] = (double)delta[t] > crowd[i] ? (double)delta[t] : crowd[i];
    free(delta);
    return (size_t)most;
}

static bool together(const struct lf_interval *a, const struct lf_interval *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Tightest gap among the placed neighbours in time of interval i; the place above them all when no
 * gap fits. */
static size_t find_gap(const struct placer *p, size_t placed, int32_t i)
{
    size_t need = p->iv[i].bytes, top = 0, at = SIZE_MAX, slack = SIZE_MAX;
    for (size_t k = 0; k < placed; k++) {
        int32_t j = p->by_off[k];
        if (!together(&p->iv[i], &p->iv[j]))
            continue;
        if (p->off[j] > top && p->off[j] - top >= need && p->off[j] - top - need < slack) {
            at = top;
            slack = p->off[j] - top - need;
        }
        size_t end = p->off[j] + p->iv[j].bytes;
        top = end > top ? end : top;
    }
    return at == SIZE_MAX ? top : at;
}

static size_t place_in_order(struct placer *p)
{
    size_t height = 0;
    for (size_t k = 0; k < p->n; k++) {
        int32_t i = p->order[k];
        size_t off = find_gap(p, k, i), at = k;
        p->off[i] = off;
        while (at > 0 && p->off[p->by_off[at - 1]] > off) {
            p->by_off[at] = p->by_off[at - 1];
            at--;
        }
        p->by_off[at] = i;
        size_t end = off + p->iv[i].bytes;
        height = end > height ? end : height;
    }
    return height;
}

static void keep_best(struct placer *p, size_t height)
{
    if (height >= p->best)
        return;
    p->best = height;
    memcpy(p->best_off, p->off, p->n * sizeof *p->off);
    memcpy(p->best_order, p->order, p->n * sizeof *p->order);
}

/* Stable merge sort of order by descending key. */
static void sort_order(int32_t *order, int32_t *tmp, size_t n, const double *key)
{
    if (n < 2)
        return;
    size_t h = n / 2;
    sort_order(order, tmp, h, key);
    sort_order(order + h, tmp, n - h, key);
    memcpy(tmp, order, n * sizeof *order);
    size_t a = 0, b = h;
    for (size_t i = 0; i < n; i++)
        order[i] = b >= n || (a < h && key[tmp[a]] >= key[tmp[b]]) ? tmp[a++] : tmp[b++];
}

enum { ORDERS = 8 };

static double order_key(const struct lf_interval *v, double crowd, int which)
{
    double bytes = (double)v->bytes, span = (double)(v->last - v->first + 1);
    switch (which) {
    case 0:
        return bytes;
    case 1:
        return bytes * span;
    case 2:
        return -(double)v->first;
    case 3:
        return (double)v->last;
    case 4: /* the fullest moments first, large ones there first */
        return crowd + bytes * 1e-3;
    case 5:
        return crowd * bytes;
    case 6:
        return crowd * span;
    default:
        return span;
    }
}

static void try_orders(struct placer *p, size_t goal)
{
    for (int which = 0; which < ORDERS && p->best > goal; which++) {
        for (size_t i = 0; i < p->n; i++) {
            p->order[i] = (int32_t)i;
            p->key[i] = order_key(&p->iv[i], p->crowd[i], which);
        }
        sort_order(p->order, p->by_off, p->n, p->key);
        keep_best(p, place_in_order(p));
    }
}

/* Move one of the intervals that reach the top, or one that lives with it below, to an earlier
 * turn; keep what does not get worse. */
static void repair(struct placer *p, size_t goal)
{
    uint64_t rng = 0x9E3779B97F4A7C15u;
    size_t steps = p->n * p->n / 2 + 1;
    for (size_t round = 0; round < ROUNDS && p->best > goal && round * steps < WORK_CAP; round++) {
        memcpy(p->order, p->best_order, p->n * sizeof *p->order);
        size_t at = p->n;
        for (size_t k = 0, seen = 0; k < p->n; k++) {
            int32_t i = p->order[k];
            rng = rng * 6364136223846793005u + 1442695040888963407u;
            bool top = p->best_off[i] + p->iv[i].bytes == p->best;
            if ((top || (rng >> 33) % (p->n / 2 + 1) == 0) && (rng >> 40) % ++seen == 0)
                at = k;
        }
        if (at == p->n)
            continue;
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        size_t to = at ? (size_t)(rng >> 33) % at : 0;
        int32_t moved = p->order[at];
        memmove(p->order + to + 1, p->order + to, (at - to) * sizeof *p->order);
        p->order[to] = moved;
        size_t height = place_in_order(p);
        if (height <= p->best) { /* sideways moves too: they leave plateaus */
            p->best = height + 1;
            keep_best(p, height);
        }
    }
}

int lf_place_intervals(struct lf_interval *iv, size_t n, size_t *height, size_t *lower, lf_err *err)
{
    struct placer p = {.iv = iv, .n = n, .best = SIZE_MAX};
    int rc = LF_ENOMEM;
    p.order = lf_calloc(n, sizeof *p.order, err);
    p.best_order = lf_calloc(n, sizeof *p.best_order, err);
    p.by_off = lf_calloc(n, sizeof *p.by_off, err);
    p.off = lf_calloc(n, sizeof *p.off, err);
    p.best_off = lf_calloc(n, sizeof *p.best_off, err);
    p.key = lf_calloc(n, sizeof *p.key, err);
    p.crowd = lf_calloc(n, sizeof *p.crowd, err);
    size_t bound = live_bound(iv, n, p.crowd, err);
    if (!p.order || !p.best_order || !p.by_off || !p.off || !p.best_off || !p.key ||
        bound == SIZE_MAX)
        goto out;
    if (n == 0)
        p.best = 0;
    try_orders(&p, bound);
    repair(&p, bound + bound / 25); /* below 1.05 with room to spare; more is not worth its time */
    for (size_t i = 0; i < n; i++)
        iv[i].off = p.best_off[i];
    *height = p.best;
    *lower = bound;
    rc = 0;
out:
    free(p.order);
    free(p.best_order);
    free(p.by_off);
    free(p.off);
    free(p.best_off);
    free(p.key);
    free(p.crowd);
    return rc;
}
