/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's rows of a micro-batch: see own_rows.h. Outputs come in the order of ranks and are put in
 * that of rows.
 */
#include "engine/train/own_rows.h"

#include <string.h>

int lf_own_rows_open(struct lf_own_rows *r, lf_arena *a, size_t in, size_t out, lf_err *err)
{
    const bool gather = r->layout->context_gather;
    if (r->layout->context <= 1)
        return 0;
    r->row = lf_arena_alloc(a, (size_t)r->own, sizeof *r->row, err);
    r->buf = lf_arena_alloc(a, (size_t)r->own, in > out ? in : out, err);
    if (gather)
        r->blocks = lf_arena_alloc(a, (size_t)r->all, sizeof *r->blocks, err);
    if (out) {
        r->gathered = lf_arena_alloc(a, (size_t)r->all, out, err);
        r->part = lf_arena_alloc(a, (size_t)r->layout->context, sizeof *r->part, err);
    }
    return r->row && r->buf && (r->blocks || !gather) && ((r->gathered && r->part) || !out)
               ? 0
               : LF_ENOMEM;
}

/* Where row `at` of the rows of all ranks stands in the micro-batch. */
static int64_t row_of(const struct lf_own_rows *r, int64_t at)
{
    return lf_context_row(r->layout, r->own, r->blocks, at);
}

int lf_own_rows_find(const struct lf_own_rows *r, const int32_t *cu_seqlens, lf_err *err)
{
    const struct lf_context_parts p = lf_context_parts(r->layout);
    const struct lf_context_rows of = {.cu_seqlens = cu_seqlens,
                                       .n_docs = r->n_docs,
                                       .rows = r->all,
                                       .ranks = p.rows,
                                       .causal = r->causal,
                                       .in_order = r->layout->context_in_order,
                                       .in_turns = r->layout->context_in_turns};
    int rc = 0;
    if (r->blocks)
        rc = lf_context_deal(&of, r->blocks, err);
    for (int64_t i = 0; rc == 0 && r->row && i < r->own; i++)
        r->row[i] = (int32_t)row_of(r, r->layout->context_rank * r->own + i);
    return rc;
}

const void *lf_own_rows_of(const struct lf_own_rows *r, const void *all, size_t each)
{
    if (!r->row)
        return all;
    for (int64_t i = 0; i < r->own; i++)
        memcpy(r->buf + (size_t)i * each, (const char *)all + (size_t)r->row[i] * each, each);
    return r->buf;
}

int lf_own_rows_write(const struct lf_own_rows *r, const struct lf_row_value *v, const void *all,
                      lf_err *err)
{
    return lf_exec_write(v->ex, v->chain, v->slot, v->name, lf_own_rows_of(r, all, v->each),
                         (size_t)r->own * v->each, err);
}

int lf_own_rows_write_blocks(const struct lf_own_rows *r, lf_exec *ex, int chain, int slot,
                             lf_err *err)
{
    return r->blocks
               ? lf_exec_write(ex, chain, slot, LF_CONTEXT_BLOCKS, r->blocks,
                               (size_t)lf_context_blocks(r->layout, r->own) * sizeof *r->blocks,
                               err)
               : 0;
}

static int write_numbers(const struct lf_own_rows *r, const struct lf_own_sight *v,
                         const char *name, const int32_t *all, size_t n, lf_err *err)
{
    const struct lf_row_value of = {v->ex, v->chain, v->slot, name, n * sizeof *all};
    return all ? lf_own_rows_write(r, &of, all, err) : 0;
}

static int write_pictures(const struct lf_own_rows *r, const struct lf_own_sight *v, lf_err *err)
{
    if (r->row)
        lf_sight_own(v->sight, r->row);
    int rc = write_numbers(r, v, "tokens", v->tokens, 1, err);
    if (rc == 0)
        rc = lf_sight_write(v->sight, v->ex, v->chain, v->slot, err);
    return rc == 0 ? lf_sight_write_pixels(v->sight, v->ex, v->chain, v->slot, err) : rc;
}

int lf_own_rows_write_sight(const struct lf_own_rows *r, const struct lf_own_sight *v, lf_err *err)
{
    int rc = v->inner ? 0 : write_pictures(r, v, err);
    if (rc == 0)
        rc = write_numbers(r, v, "places", lf_sight_places(v->sight), 3, err);
    return rc == 0 ? write_numbers(r, v, "runs", lf_sight_runs(v->sight), 2, err) : rc;
}

int lf_own_rows_read(const struct lf_own_rows *r, const struct lf_row_value *v, void *dst, int rc,
                     lf_err *err)
{
    const size_t part = (size_t)r->own * v->each;
    rc = rc != 0 ? rc : dst ? 0 : LF_ENOMEM;
    if (!r->row)
        return rc != 0 ? rc : lf_exec_read(v->ex, v->chain, v->slot, v->name, dst, part, err);
    for (int i = 0; i < r->layout->context; i++)
        r->part[i] = part;
    if (rc == 0)
        rc = lf_exec_read(v->ex, v->chain, v->slot, v->name,
                          r->gathered + (size_t)r->layout->context_rank * part, part, err);
    /* the others wait for this rank, be its part there or not */
    const int met = lf_comm_all_gather(r->comm, r->gathered, r->part, rc != 0 ? NULL : err);
    for (int64_t at = 0; at < r->all && rc == 0 && met == 0; at++)
        memcpy((char *)dst + (size_t)row_of(r, at) * v->each, r->gathered + (size_t)at * v->each,
               v->each);
    return rc != 0 ? rc : met;
}
