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
    return block < SMALL && own_rows >= SMALL * LF_CONTEXT_BLOCK / 2 ? own_rows : block;
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

/* Rows behind the last document see nothing. */
static void find_work(const struct lf_context_rows *d, int64_t block, struct piece *p)
{
    int64_t doc = 0;
    for (int64_t at = 0; at < d->rows; at += block, p++) {
        *p = (struct piece){.first = (int32_t)at};
        for (int64_t r = at; r < at + block && doc < d->n_docs;) {
            const int64_t from = d->cu_seqlens[doc], end = d->cu_seqlens[doc + 1],
                          to = end < at + block ? end : at + block;
            if (r < to)
                p->work += seen(r - from, to - r, end - from, d->causal);
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

static void hand_out(const struct lf_context_rows *d, const struct piece *p, size_t n,
                     int64_t *load, int32_t *first)
{
    const size_t each = n / (size_t)d->ranks;
    int64_t *count = load + d->ranks;
    for (size_t i = 0; i < n; i++) {
        int least = -1;
        for (int r = 0; r < d->ranks; r++)
            if (count[r] < (int64_t)each && (least < 0 || load[r] < load[least]))
                least = r;
        first[(size_t)least * each + (size_t)count[least]++] = p[i].first;
        load[least] += p[i].work;
    }
    for (int r = 0; r < d->ranks; r++)
        qsort(first + (size_t)r * each, each, sizeof *first, by_row);
}

int lf_context_deal(const struct lf_context_rows *d, int32_t *first, lf_err *err)
{
    const int64_t block = lf_context_block(d->rows / d->ranks);
    if (block == 0)
        return 0;
    const size_t n = (size_t)(d->rows / block);
    struct piece *p = lf_calloc(n, sizeof *p, err);
    int64_t *load = lf_calloc((size_t)d->ranks * 2, sizeof *load, err);
    if (p && load) {
        find_work(d, block, p);
        qsort(p, n, sizeof *p, by_work);
        hand_out(d, p, n, load, first);
    }
    const int rc = p && load ? 0 : LF_ENOMEM;
    free(p);
    free(load);
    return rc;
}

int64_t lf_context_blocks(const struct lf_layout *l, int64_t own_rows)
{
    const struct lf_context_parts p = lf_context_parts(l);
    const int64_t group = own_rows * p.heads, block = lf_context_block(group);
    return block > 0 ? group / block * p.rows : 0;
}
