/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks that divide the rows of a micro-batch give each other (layout.h): an all-to-all that
 * turns rows of all heads into heads of all rows, and the way back. Each rank has as many rows.
 *
 *     out[r * rows + i][c] = in of rank r [i][first + c]      to heads; [first, first + each) are
 *                                                             the columns of this rank's heads
 *     out[i][first of r + c] = in of rank r [own * rows + i][c]                          to rows
 *
 * Where heads are fewer than ranks, several successive ranks have the same one. Back to rows comes
 * what is a gradient then: it is added up in the order of the ranks in f32, and rounded once.
 */
#include "engine/graph/priv.h"

int lf_context_trade(struct lf_exchange *w, const struct lf_rank_group *g, void *out,
                     const void *in, size_t bytes)
{
    if (g->n == w->context_ranks)
        return w->context_swap(w->user, out, in, bytes, &w->err);
    return w->context_among ? w->context_among(w->user, out, in, bytes, g, &w->err) : LF_K_EINVAL;
}

int lf_context_collect(struct lf_exchange *w, const struct lf_rank_group *g, void *all,
                       size_t bytes, void *copies)
{
    const char *own = (const char *)all + (size_t)g->place * bytes;
    int rc = 0;
    if (g->n == w->context_ranks)
        return w->context_gather(w->user, all, bytes, &w->err);
    for (int r = 0; r < g->n && rc == 0; r++)
        rc = w->move(w->user, (char *)copies + (size_t)r * bytes, own, bytes, &w->err);
    return rc != 0 ? rc : lf_context_trade(w, g, all, copies, bytes);
}

/* The first column of the heads of rank r. */
static int64_t column(const struct lf_k_exchange *a, int r)
{
    return a->heads * r / a->ranks * (a->cols / a->heads);
}

static size_t part_bytes(const struct lf_k_exchange *a)
{
    return (size_t)(a->rows * a->each) * lf_dtype_size((enum lf_dtype)a->in_type);
}

/* Copies rows of `each` columns from one row distance to another. */
static int copy(const struct lf_kernels *k, lf_queue *q, const struct lf_k_exchange *a,
                const struct lf_k_act_fwd *of)
{
    struct lf_k_act_fwd c = *of;
    c.rows = a->rows;
    c.c = a->each;
    c.act = LF_ACT_NONE;
    c.x_type = a->in_type;
    return k->act_fwd.run(q, &c);
}

static int to_heads(const struct lf_kernels *k, lf_queue *q, const struct lf_k_exchange *a)
{
    struct lf_exchange *w = a->with;
    const size_t size = lf_dtype_size((enum lf_dtype)a->in_type), part = part_bytes(a);
    int rc = 0;
    for (int r = 0; r < a->ranks && rc == 0; r++) {
        const struct lf_k_act_fwd own = {.x = (const char *)a->in + (size_t)column(a, r) * size,
                                         .y = (char *)a->work + (size_t)r * part,
                                         .ldx = a->ld,
                                         .ldy = a->each};
        rc = copy(k, q, a, &own);
    }
    return rc != 0 ? rc : lf_context_trade(w, &a->among, a->out, a->work, part);
}

/* The sum of the parts of n successive ranks, from r on, in place of the first. */
static int add_parts(const struct lf_kernels *k, lf_queue *q, const struct lf_k_exchange *a, int r,
                     int n)
{
    char *part = (char *)a->work + (size_t)r * part_bytes(a), *sum = a->work;
    sum += (size_t)a->ranks * part_bytes(a);
    struct lf_k_axpby add = {.n = a->rows * a->each,
                             .a = part,
                             .b = part + part_bytes(a),
                             .y = sum,
                             .alpha = 1,
                             .beta = 1,
                             .a_type = a->in_type,
                             .b_type = a->in_type,
                             .y_type = LF_F32};
    int rc = k->axpby.run(q, &add);
    for (int i = 2; i < n && rc == 0; i++) {
        add.a = sum;
        add.a_type = LF_F32;
        add.b = part + (size_t)i * part_bytes(a);
        rc = k->axpby.run(q, &add);
    }
    const struct lf_k_axpby round = {.n = add.n,
                                     .a = sum,
                                     .y = part,
                                     .alpha = 1,
                                     .a_type = LF_F32,
                                     .b_type = LF_F32,
                                     .y_type = a->in_type};
    return rc != 0 ? rc : k->axpby.run(q, &round);
}

static int replicas(const struct lf_k_exchange *a)
{
    return a->heads < a->ranks ? a->ranks / (int)a->heads : 1;
}

static int to_rows(const struct lf_kernels *k, lf_queue *q, const struct lf_k_exchange *a)
{
    struct lf_exchange *w = a->with;
    const size_t size = lf_dtype_size((enum lf_dtype)a->in_type), part = part_bytes(a);
    const int same = replicas(a);
    int rc = lf_context_trade(w, &a->among, a->work, a->in, part);
    for (int r = 0; r < a->ranks && rc == 0; r += same) {
        const struct lf_k_act_fwd all = {.x = (const char *)a->work + (size_t)r * part,
                                         .y = (char *)a->out + (size_t)column(a, r) * size,
                                         .ldx = a->each,
                                         .ldy = a->ld};
        rc = same > 1 ? add_parts(k, q, a, r, same) : 0;
        rc = rc != 0 ? rc : copy(k, q, a, &all);
    }
    return rc;
}

int lf_context_order(struct lf_exchange *w, const struct lf_row_blocks *b, void *out,
                     const void *in, size_t bytes, bool back)
{
    const int64_t each = (b->own + b->block - 1) / b->block;
    int64_t at = 0, rows;
    int rc = 0;
    for (int64_t i = 0; i < b->n && rc == 0; at += rows) {
        const int64_t from = b->first[i];
        const size_t by_rank = (size_t)at * bytes, by_row = (size_t)from * bytes;
        rows = 0;
        do { /* neighbours move together */
            const int64_t left = b->own - i % each * b->block;
            rows += left < b->block ? left : b->block;
            i++;
        } while (i < b->n && b->first[i] == from + rows);
        rc = w->move(w->user, (char *)out + (back ? by_rank : by_row),
                     (const char *)in + (back ? by_row : by_rank), (size_t)rows * bytes, &w->err);
    }
    return rc;
}

/* Numbers of rows, which all ranks need of all. */
static int whole(const struct lf_k_exchange *a)
{
    struct lf_exchange *w = a->with;
    const size_t bytes = a->n * lf_dtype_size((enum lf_dtype)a->in_type);
    char *all = a->blocks.first ? a->work : a->out;
    int rc = w->move(w->user, all + (size_t)a->among.place * bytes, a->in, bytes, &w->err);
    if (rc == 0)
        rc = lf_context_collect(w, &a->among, all, bytes, a->blocks.first ? a->out : a->work);
    return rc != 0 || !a->blocks.first
               ? rc
               : lf_context_order(w, &a->blocks, a->out, all, bytes / (size_t)a->rows, false);
}

int lf_exchange_context(const struct lf_kernels *k, lf_queue *q, const struct lf_k_exchange *a)
{
    if (!a->with->context_swap)
        return LF_K_EINVAL;
    return a->what == LF_EX_HEADS        ? to_heads(k, q, a)
           : a->what == LF_EX_HEADS_BACK ? to_rows(k, q, a)
                                         : whole(a);
}

size_t lf_exchange_context_work(const struct lf_k_exchange *a)
{
    if (a->what == LF_EX_CONTEXT_WHOLE)
        return a->blocks.first || a->apart
                   ? a->n * (size_t)a->ranks * lf_dtype_size((enum lf_dtype)a->in_type)
                   : 0;
    const bool adds = a->what == LF_EX_HEADS_BACK && replicas(a) > 1;
    return (size_t)a->ranks * part_bytes(a) +
           (adds ? (size_t)(a->rows * a->each) * sizeof(float) : 0);
}
