/* SPDX-License-Identifier: Apache-2.0
 *
 * Who sends which part of a tensor to whom: see reshard.h. A function of the boxes of all ranks. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/post/reshard_priv.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- what a rank has ---- */

/* A type that both stores have spares a conversion and half of the bytes. */
static enum lf_pkind kind_of(const lf_pstore *from, const lf_pstore *to, int i, int into)
{
    const bool copies = lf_pstore_weights(to, into) == LF_P_COPY &&
                        lf_pstore_planned(from, i, LF_P_COPY) > 0 &&
                        lf_pstore_type(from, LF_P_COPY) == lf_pstore_type(to, LF_P_COPY);
    return copies ? LF_P_COPY : lf_pstore_weights(from, i);
}

static void box_of(struct lf_reshard_region *r, const lf_pstore *ps, int i)
{
    const int first = 3 - lf_pstore_desc(ps, i)->ndim;
    struct lf_box box;
    lf_pstore_box(ps, i, &box);
    *r = (struct lf_reshard_region){.hi = {1, 1, 1}};
    for (int k = first; k < 3; k++) {
        r->lo[k] = box.lo[k - first];
        r->hi[k] = box.hi[k - first];
    }
}

static int64_t wide(const struct lf_reshard_region *r, int k)
{
    return r->hi[k] - r->lo[k];
}

static int64_t size_of(const struct lf_reshard_region *r)
{
    return wide(r, 0) * wide(r, 1) * wide(r, 2);
}

void lf_reshard_entry_of(struct lf_reshard_entry *e, const lf_pstore *from, const lf_pstore *to,
                         int i, int into)
{
    box_of(&e->from, from, i);
    lf_pstore_own(from, i, kind_of(from, to, i, into), e->from.flat);
    box_of(&e->to, to, into);
    e->to.flat[1] = size_of(&e->to);
}

/* ---- runs of a piece ---- */

/* The last two dimensions as one, where all of the last one is there. */
static void join_last(struct lf_reshard_region *r)
{
    const int64_t of = wide(r, 2);
    *r = (struct lf_reshard_region){.lo = {0, r->lo[0], r->lo[1] * of},
                                    .hi = {1, r->hi[0], r->hi[1] * of},
                                    .flat = {r->flat[0], r->flat[1]}};
}

/* Where both boxes have the same of the last dimension, their rows lie side by side: the fewer
 * dimensions, the longer the runs. */
static void join(struct lf_reshard_piece *p)
{
    for (int k = 0; k < 2; k++) {
        if (p->from.lo[2] != p->to.lo[2] || p->from.hi[2] != p->to.hi[2])
            return;
        join_last(&p->from);
        join_last(&p->to);
    }
}

/* The elements that both boxes have. */
static void common(struct lf_reshard_region *x, const struct lf_reshard_piece *p)
{
    *x = (struct lf_reshard_region){0};
    for (int k = 0; k < 3; k++) {
        x->lo[k] = most(p->from.lo[k], p->to.lo[k]);
        x->hi[k] = most(least(p->from.hi[k], p->to.hi[k]), x->lo[k]);
    }
}

/* Of element (e, o, c) in the flattened box. */
static int64_t flat(const struct lf_reshard_region *r, int64_t e, int64_t o, int64_t c)
{
    return ((e - r->lo[0]) * wide(r, 1) + o - r->lo[1]) * wide(r, 2) + c - r->lo[2];
}

/* Row number `row` of what both have, as far as the sender keeps it; count 0: none of it. */
static struct lf_reshard_run run_of(const struct lf_reshard_piece *p,
                                    const struct lf_reshard_region *x, int64_t row)
{
    const int64_t e = x->lo[0] + row / wide(x, 1), o = x->lo[1] + row % wide(x, 1),
                  at = flat(&p->from, e, o, x->lo[2]), first = most(at, p->from.flat[0]),
                  end = least(at + wide(x, 2), p->from.flat[1]);
    return (struct lf_reshard_run){.piece = p,
                                   .at = first - p->from.flat[0],
                                   .to = flat(&p->to, e, o, x->lo[2]) + first - at,
                                   .count = most(end - first, 0)};
}

static int64_t rows_of(const struct lf_reshard_region *x)
{
    return wide(x, 2) ? wide(x, 0) * wide(x, 1) : 0;
}

static int64_t elements(const struct lf_reshard_piece *p)
{
    struct lf_reshard_region x;
    int64_t n = 0;
    common(&x, p);
    for (int64_t row = 0; row < rows_of(&x); row++)
        n += run_of(p, &x, row).count;
    return n;
}

size_t lf_reshard_take(struct lf_reshard_cursor *c, size_t cap, lf_reshard_fn fn, void *user,
                       int *rc, lf_err *err)
{
    size_t bytes = 0;
    for (; c->piece < c->pair->n; c->piece++, c->row = 0) {
        const struct lf_reshard_piece *p = &c->pair->v[c->piece];
        const size_t size = lf_dtype_size(p->dtype);
        struct lf_reshard_region x;
        common(&x, p);
        for (; c->row < rows_of(&x) && !(c->trained && p->frozen); c->row++, c->done = 0) {
            struct lf_reshard_run run = run_of(p, &x, c->row);
            const int64_t left = run.count - c->done, room = (int64_t)((cap - bytes) / size);
            run.at += c->done;
            run.to += c->done;
            run.count = least(left, room);
            if (run.count > 0 && fn && *rc == 0)
                *rc = fn(user, &run, bytes, err);
            bytes += (size_t)run.count * size;
            c->done += run.count;
            if (run.count < left)
                return bytes;
        }
    }
    return bytes;
}

/* ---- who sends it ---- */

static bool same(const struct lf_reshard_region *a, const struct lf_reshard_region *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Is rank a a better source for rank `to` than b? */
static bool nearer(const struct lf_reshard_all *all, int to, int a, int b)
{
    const bool here_a = all->node[a] == all->node[to], here_b = all->node[b] == all->node[to];
    if (here_a != here_b)
        return here_a;
    const int far_a = abs(a - to), far_b = abs(b - to);
    return far_a != far_b ? far_a < far_b : a < b;
}

/* Does rank `from` give rank `to` its part of tensor i? Of those that have the same one does. */
static bool gives(const struct lf_reshard_all *all, int n, int i, int from, int to)
{
    const struct lf_reshard_region *mine = &all->entry[(size_t)from * (size_t)n + (size_t)i].from;
    for (int r = 0; r < all->ranks; r++)
        if (r != from && same(mine, &all->entry[(size_t)r * (size_t)n + (size_t)i].from) &&
            nearer(all, to, r, from))
            return false;
    return true;
}

static int add(struct lf_reshard_pair *pair, const struct lf_reshard_piece *p, lf_err *err)
{
    if (pair->n == pair->cap) {
        const size_t cap = pair->cap ? 2 * pair->cap : 16;
        if (lf_realloc(&pair->v, cap, sizeof *pair->v, err))
            return LF_ENOMEM;
        pair->cap = cap;
    }
    pair->v[pair->n++] = *p;
    return 0;
}

/* The piece that `from` sends `to`, where it sends any. Returns its elements. */
static int64_t piece_of(struct lf_reshard_piece *p, const struct lf_reshard_all *all, int n, int i,
                        int from, int to)
{
    p->from = all->entry[(size_t)from * (size_t)n + (size_t)i].from;
    p->to = all->entry[(size_t)to * (size_t)n + (size_t)i].to;
    join(p);
    return elements(p) > 0 && gives(all, n, i, from, to) ? elements(p) : 0;
}

static int pairs_of(const struct lf_reshard_all *all, int n, const struct lf_reshard_piece *of,
                    int me, struct lf_reshard_pair *send, struct lf_reshard_pair *recv, lf_err *err)
{
    struct lf_reshard_piece p = *of;
    int64_t got = 0;
    for (int r = 0; r < all->ranks; r++) {
        const int64_t came = piece_of(&p, all, n, of->tensor, r, me);
        if (came && add(&recv[r], &p, err))
            return LF_ENOMEM;
        got += came;
        if (piece_of(&p, all, n, of->tensor, me, r) && add(&send[r], &p, err))
            return LF_ENOMEM;
    }
    const int64_t want = size_of(&all->entry[(size_t)me * (size_t)n + (size_t)of->tensor].to);
    return got == want
               ? 0
               : lf_fail(err, LF_EINVAL,
                         "the ranks have %lld of the %lld elements that rank %d needs of it",
                         (long long)got, (long long)want, me);
}

int lf_reshard_pairs(const struct lf_reshard_all *all, lf_pstore *from, lf_pstore *to, int me,
                     struct lf_reshard_pair *send, struct lf_reshard_pair *recv, lf_err *err)
{
    const int n = lf_pstore_count(from);
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        const struct lf_param_desc *d = lf_pstore_desc(from, i);
        const int into = lf_pstore_find(to, d->name);
        const enum lf_pkind kind = kind_of(from, to, i, into);
        const struct lf_reshard_piece of = {.tensor = i,
                                            .into = into,
                                            .kind = kind,
                                            .dtype = lf_pstore_type(from, kind),
                                            .frozen = d->frozen};
        rc = pairs_of(all, n, &of, me, send, recv, err);
        if (rc != 0)
            lf_err_prefix(err, "%s", d->name);
    }
    return rc;
}

struct lf_reshard_moved lf_reshard_needs(const lf_pstore *from, const lf_pstore *to, bool trained)
{
    struct lf_reshard_moved m = {0};
    for (int i = 0; i < lf_pstore_count(from); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(from, i);
        const int into = lf_pstore_find(to, d->name);
        struct lf_reshard_entry e;
        if (into < 0 || (trained && d->frozen))
            continue;
        lf_reshard_entry_of(&e, from, to, i, into);
        struct lf_reshard_piece p = {.from = e.from, .to = e.to};
        const double size = (double)lf_dtype_size(lf_pstore_type(from, kind_of(from, to, i, into))),
                     have = (double)elements(&p);
        m.copied += size * have;
        m.received += size * ((double)size_of(&e.to) - have);
    }
    return m;
}

double lf_reshard_at_most(const lf_pstore *from, const lf_pstore *to, const lf_pstore *from_box,
                          const lf_pstore *to_box, bool trained)
{
    double sum = 0;
    for (int i = 0; i < lf_pstore_count(from); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(from, i);
        const int into = lf_pstore_find(to, d->name);
        struct lf_reshard_piece p;
        if (into < 0 || (trained && d->frozen))
            continue;
        const enum lf_pkind kind = kind_of(from, to, i, into);
        box_of(&p.from, from_box, i);
        box_of(&p.to, to_box, into);
        p.from.flat[1] = lf_pstore_sharded(from, i, kind) ? 0 : size_of(&p.from);
        sum += (double)lf_dtype_size(lf_pstore_type(from, kind)) *
               (double)(size_of(&p.to) - elements(&p));
    }
    return sum;
}
