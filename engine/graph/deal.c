/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rank computes which rows of queries, where keys and values of all rows are gathered
 * (layout.h): blocks, from those with the most work to those with the least, each to the rank that
 * has the least so far and not all of its blocks.
 */
#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/graph/layout.h"

enum { BLOCKS = 8, SMALL = 16 }; /* of a rank, so that work can be dealt; rows of a block */

int64_t lf_context_block(int64_t own_rows)
{
    int64_t block = own_rows / BLOCKS < LF_CONTEXT_BLOCK ? own_rows / BLOCKS : LF_CONTEXT_BLOCK;
    while (block > 1 && own_rows % block)
        block--;
    if (block < 1)
        return own_rows > 0 ? 1 : 0;
    return block < SMALL && own_rows >= BLOCKS * LF_CONTEXT_BLOCK ? LF_CONTEXT_BLOCK : block;
}

/* Blocks of a rank. */
static int64_t blocks_of(int64_t own_rows)
{
    const int64_t block = lf_context_block(own_rows);
    return block > 0 ? (own_rows + block - 1) / block : 0;
}

struct piece {
    int64_t work;
    int32_t first;
};

static int by_work(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    return x->work != y->work ? (x->work < y->work) - (x->work > y->work) : x->first - y->first;
}

/* Keys that rows [from, from + n) of a document of len see together. */
static int64_t seen(int64_t from, int64_t n, int64_t len, bool causal)
{
    return causal ? n * (from + 1) + n * (n - 1) / 2 : n * len;
}

/* Blocks of a micro-batch: `full` of them have `block` rows, and so many behind them `rest`. */
struct cut {
    int64_t block, rest, full, n;
};

static struct cut cut_of(const struct lf_context_rows *d)
{
    const int64_t own = d->rows / d->ranks, block = lf_context_block(own);
    return (struct cut){.block = block,
                        .rest = own % block,
                        .full = own / block * d->ranks,
                        .n = blocks_of(own) * d->ranks};
}

/* Rows behind the last document see nothing. */
static void find_work(const struct lf_context_rows *d, const struct cut *c, struct piece *p)
{
    int64_t doc = 0, end_of;
    for (int64_t i = 0, at = 0; i < c->n; i++, at = end_of) {
        p[i] = (struct piece){.first = (int32_t)at};
        end_of = at + (i < c->full ? c->block : c->rest);
        for (int64_t r = at; r < end_of && doc < d->n_docs;) {
            const int64_t from = d->cu_seqlens[doc], end = d->cu_seqlens[doc + 1],
                          to = end < end_of ? end : end_of;
            if (r < to)
                p[i].work += seen(r - from, to - r, end - from, d->causal);
            r = r < to ? to : r;
            if (r >= end)
                doc++;
        }
    }
}

static int by_row(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* n more blocks, `most` of them in all for each rank, which then has `each`. */
static void hand_out(const struct lf_context_rows *d, const struct piece *p, int64_t n,
                     int64_t most, int64_t each, int64_t *load, int32_t *first)
{
    int64_t *count = load + d->ranks;
    for (int64_t i = 0; i < n; i++) {
        int least = -1;
        for (int r = 0; r < d->ranks; r++)
            if (count[r] < most && (least < 0 || load[r] < load[least]))
                least = r;
        first[least * each + count[least]++] = p[i].first;
        load[least] += p[i].work;
    }
}

static void in_order(const struct lf_context_rows *d, const struct cut *c, int32_t *first)
{
    const int64_t own = d->rows / d->ranks, each = c->n / d->ranks;
    for (int64_t i = 0; i < c->n; i++)
        first[i] = (int32_t)(i / each * own + i % each * c->block);
}

bool lf_context_pairs(int64_t own_rows)
{
    const int64_t block = lf_context_block(own_rows);
    return block > 0 && own_rows % (2 * block) == 0;
}

static void in_turns(const struct lf_context_rows *d, const struct cut *c, int32_t *first)
{
    const int64_t each = c->n / d->ranks, half = each / 2;
    for (int64_t i = 0; i < c->n; i++) {
        const int64_t rank = i / each, in = i % each,
                      run = in < half ? rank : 2 * d->ranks - 1 - rank;
        first[i] = (int32_t)((run * half + in % half) * c->block);
    }
}

int lf_context_deal(const struct lf_context_rows *d, int32_t *first, lf_err *err)
{
    if (d->rows < d->ranks)
        return 0;
    const struct cut c = cut_of(d);
    const int64_t each = c.n / d->ranks, longer = c.full / d->ranks;
    if (d->in_order || d->in_turns) {
        (d->in_order ? in_order : in_turns)(d, &c, first);
        return 0;
    }
    struct piece *p = lf_calloc((size_t)c.n, sizeof *p, err);
    int64_t *load = lf_calloc((size_t)d->ranks * 2, sizeof *load, err);
    if (p && load) {
        find_work(d, &c, p);
        qsort(p, (size_t)c.full, sizeof *p, by_work);
        qsort(p + c.full, (size_t)(c.n - c.full), sizeof *p, by_work);
        hand_out(d, p, c.full, longer, each, load, first);
        hand_out(d, p + c.full, c.n - c.full, each, each, load, first);
        for (int r = 0; r < d->ranks; r++)
            qsort(first + r * each, (size_t)each, sizeof *first, by_row);
    }
    const int rc = p && load ? 0 : LF_ENOMEM;
    free(p);
    free(load);
    return rc;
}

int64_t lf_context_blocks(const struct lf_layout *l, int64_t own_rows)
{
    const struct lf_context_parts p = lf_context_parts(l);
    return blocks_of(own_rows * p.heads) * p.rows;
}

int64_t lf_context_row(const struct lf_layout *l, int64_t own_rows, const int32_t *first,
                       int64_t at)
{
    const int64_t group = own_rows * lf_context_parts(l).heads, block = lf_context_block(group),
                  in = at % group;
    return first ? first[at / group * blocks_of(group) + in / block] + in % block : at;
}
