/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a GPU between ranks without NCCL (LF_COMM=ucx): it goes through memory of the host in
 * blocks, and the caller waits.
 */
#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/train/devcomm_priv.h"

enum { BLOCK = 4 << 20 };

/* What all ranks of c do with a block of the host's memory. */
struct step {
    lf_comm *c;
    char *to; /* where the result goes; NULL: it is for other ranks */
    int root; /* < 0: a sum over all ranks; else root's bytes for all */
    enum lf_comm_type type;
};

static int of_host(const struct step *s, void *block, size_t bytes, lf_err *err)
{
    const size_t size = s->type == LF_COMM_F64 ? sizeof(double) : sizeof(float);
    return s->root < 0 ? lf_comm_all_reduce(s->c, block, bytes / size, s->type, LF_COMM_SUM, err)
                       : lf_comm_broadcast(s->c, block, bytes, s->root, err);
}

static char *block_of(lf_comm *c, size_t bytes, int *rc, lf_err *err)
{
    char *block = lf_malloc(bytes, 1, err);
    *rc = lf_comm_agree_ok(c, block ? 0 : LF_ENOMEM, err);
    return block;
}

static int each_block(const struct lf_devcomm *d, const struct step *s, const char *data,
                      size_t bytes, lf_err *err)
{
    const struct lf_back_ops *o = d->back->ops;
    int rc;
    char *block = block_of(s->c, BLOCK, &rc, err);
    for (size_t at = 0; at < bytes && rc == 0; at += BLOCK) {
        const size_t n = bytes - at < BLOCK ? bytes - at : BLOCK;
        rc = o->copy_out(d->back, block, data + at, n, err);
        if (rc == 0)
            rc = of_host(s, block, n, err);
        if (rc == 0 && s->to)
            rc = o->copy_in(d->back, s->to + at, block, n, err);
    }
    free(block);
    return rc;
}

int lf_devcomm_through_broadcast(const struct lf_devcomm *d, lf_comm *c, void *data, size_t bytes,
                                 int root, lf_err *err)
{
    return each_block(d, &(struct step){.c = c, .to = data, .root = root}, data, bytes, err);
}

static int sum_all(const struct lf_devcomm *d, lf_comm *c, void *data, size_t bytes,
                   enum lf_comm_type type, lf_err *err)
{
    return each_block(d, &(struct step){.c = c, .to = data, .root = -1, .type = type}, data, bytes,
                      err);
}

static int reduce(void *user, float *grads, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return sum_all(d, d->comm, grads, n * sizeof *grads, LF_COMM_F32, err);
}

int lf_devcomm_through_tied(void *user, float *data, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return sum_all(d, d->ends, data, n * sizeof *data, LF_COMM_F32, err);
}

static int across(void *user, float *grads, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return sum_all(d, d->outer, grads, n * sizeof *grads, LF_COMM_F32, err);
}

static int add(void *user, double *sums, size_t n, lf_err *err)
{
    return sum_all(user, lf_devcomm_inner(user), sums, n * sizeof *sums, LF_COMM_F64, err);
}

/* bytes[r] bytes of each rank r of c, for all. */
static int gather_among(const struct lf_devcomm *d, lf_comm *c, void *data, const size_t *bytes,
                        lf_err *err)
{
    char *part = data;
    int rc = 0;
    for (int r = 0; r < c->size && rc == 0; part += bytes[r++])
        rc = lf_devcomm_through_broadcast(d, c, part, bytes[r], r, err);
    return rc;
}

static int gather(void *user, void *data, const size_t *bytes, lf_err *err)
{
    return gather_among(user, lf_devcomm_inner(user), data, bytes, err);
}

/* ---- the tensor axis ---- */

static int tensor_sum(void *user, float *data, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return sum_all(d, d->tensor, data, n * sizeof *data, LF_COMM_F32, err);
}

static int tensor_add(void *user, double *sums, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return sum_all(d, d->tensor, sums, n * sizeof *sums, LF_COMM_F64, err);
}

static int tensor_gather(void *user, void *all, size_t bytes, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return gather_among(d, d->tensor, all, lf_devcomm_even(d, d->tensor, bytes), err);
}

static int tensor_scatter(void *user, float *out, const float *data, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    struct step s = {.c = d->tensor, .root = -1, .type = LF_COMM_F32};
    int rc = 0;
    for (int r = 0; r < d->tensor->size && rc == 0; r++) {
        s.to = r == d->tensor->rank ? (char *)(void *)out : NULL;
        rc = each_block(d, &s, (const char *)(const void *)(data + (size_t)r * n), n * sizeof *data,
                        err);
    }
    return rc;
}

/* ---- the context axis ---- */

/* Bytes [at, at + n) of each rank's part. */
struct piece {
    size_t part, at, n;
};

/* block: of the host, [2 ranks, most]. */
static int swap_piece(const struct lf_devcomm *d, char *block, size_t most, const struct piece *s,
                      void *out, const void *in, lf_err *err)
{
    const struct lf_back_ops *o = d->back->ops;
    const size_t ranks = (size_t)d->context->size;
    const size_t *even = lf_devcomm_even(d, d->context, s->n);
    char *got = block + ranks * most;
    int rc = 0;
    for (size_t r = 0; r < ranks && rc == 0; r++)
        rc = o->copy_out(d->back, block + r * s->n, (const char *)in + r * s->part + s->at, s->n,
                         err);
    if (rc == 0)
        rc = lf_comm_all_to_all(d->context, got, even, block, even, err);
    for (size_t r = 0; r < ranks && rc == 0; r++)
        rc = o->copy_in(d->back, (char *)out + r * s->part + s->at, got + r * s->n, s->n, err);
    return rc;
}

static int context_swap(void *user, void *out, const void *in, size_t bytes, lf_err *err)
{
    const struct lf_devcomm *d = user;
    const size_t ranks = (size_t)d->context->size, most = BLOCK / ranks;
    int rc;
    char *block = block_of(d->context, 2 * ranks * most, &rc, err);
    struct piece s = {.part = bytes};
    for (; s.at < bytes && rc == 0; s.at += most) {
        s.n = bytes - s.at < most ? bytes - s.at : most;
        rc = swap_piece(d, block, most, &s, out, in, err);
    }
    free(block);
    return rc;
}

static int context_gather(void *user, void *all, size_t bytes, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return gather_among(d, d->context, all, lf_devcomm_even(d, d->context, bytes), err);
}

/* ---- sums for owners ---- */

/* Floats of one owner's part, in its order: of all ranks at `data`, their sum at out. */
struct sum {
    float *block; /* of the host, [2 n] */
    float *out;
    const float *data;
    size_t n;
    int owner;
    bool more; /* out is added to */
};

static int sum_block(const struct lf_devcomm *d, lf_comm *c, const struct sum *s, lf_err *err)
{
    const struct lf_back_ops *o = d->back->ops;
    float *sum = s->block + s->n;
    const size_t bytes = s->n * sizeof *sum;
    const bool mine = s->owner == c->rank;
    d->counts[s->owner] = s->n;
    int rc = o->copy_out(d->back, s->block, s->data, bytes, err);
    if (rc == 0 && mine && s->more)
        rc = o->copy_out(d->back, sum, s->out, bytes, err);
    if (rc == 0)
        rc = lf_comm_reduce_scatter(c, sum, s->block, d->counts, LF_COMM_F32,
                                    mine && s->more ? sum : NULL, err);
    if (rc == 0 && mine)
        rc = o->copy_in(d->back, s->out, sum, bytes, err);
    d->counts[s->owner] = 0;
    return rc;
}

static int sum_parts(const struct lf_devcomm *d, lf_comm *c, float *out, const float *data,
                     const size_t *counts, bool more, lf_err *err)
{
    const size_t most = BLOCK / sizeof *data;
    int rc;
    struct sum s = {.block = (float *)(void *)block_of(c, 2 * (size_t)BLOCK, &rc, err),
                    .more = more};
    for (s.owner = 0; s.owner < c->size && rc == 0; data += counts[s.owner++])
        for (size_t at = 0; at < counts[s.owner] && rc == 0; at += most) {
            s.n = counts[s.owner] - at < most ? counts[s.owner] - at : most;
            s.out = out + at;
            s.data = data + at;
            rc = sum_block(d, c, &s, err);
        }
    free(s.block);
    return rc;
}

static int scatter_over(const struct lf_devcomm *d, lf_comm *c, float *grads, const size_t *counts,
                        lf_err *err)
{
    float *mine = grads;
    for (int r = 0; r < c->rank; r++)
        mine += counts[r];
    return sum_parts(d, c, mine, grads, counts, false, err);
}

static int scatter(void *user, float *grads, const size_t *counts, lf_err *err)
{
    return scatter_over(user, lf_devcomm_inner(user), grads, counts, err);
}

/* ---- the expert axis ---- */

/* What goes to and comes from each rank, and of that what goes with one call. */
struct rows {
    char *block; /* of the host: first what goes, then what comes, `most` bytes of each rank */
    size_t most;
    size_t *to, *from; /* [ranks] */
};

static size_t piece_of(size_t n, size_t at, size_t most)
{
    return n <= at ? 0 : n - at < most ? n - at : most;
}

/* Bytes [at, at + most) of what goes to each rank, and comes from it. */
static int exchange_piece(const struct lf_devcomm *d, const struct rows *x, const size_t *sizes[2],
                          size_t at, const void *data[2], lf_err *err)
{
    const struct lf_back_ops *o = d->back->ops;
    const int ranks = d->experts->size;
    char *here = x->block, *got = x->block + (size_t)ranks * x->most;
    const char *in = data[0];
    char *out = (char *)(uintptr_t)data[1];
    int rc = 0;
    for (int r = 0; r < ranks && rc == 0; in += sizes[0][r], here += x->to[r], r++) {
        x->to[r] = piece_of(sizes[0][r], at, x->most);
        x->from[r] = piece_of(sizes[1][r], at, x->most);
        if (x->to[r])
            rc = o->copy_out(d->back, here, in + at, x->to[r], err);
    }
    if (rc == 0)
        rc = lf_comm_all_to_all(d->experts, got, x->from, x->block, x->to, err);
    for (int r = 0; r < ranks && rc == 0; out += sizes[1][r], got += x->from[r], r++)
        if (x->from[r])
            rc = o->copy_in(d->back, out + at, got, x->from[r], err);
    return rc;
}

/* The ranks make as many calls as the longest message of all needs. */
static int experts_exchange(void *user, void *out, const size_t *from, const void *in,
                            const size_t *to, lf_err *err)
{
    const struct lf_devcomm *d = user;
    const size_t ranks = (size_t)d->experts->size, lists = 2 * ranks * sizeof(size_t),
                 most = BLOCK / ranks;
    const size_t *sizes[] = {to, from};
    const void *data[] = {in, out};
    int64_t longest = 0;
    int rc;
    char *room = block_of(d->experts, lists + 2 * ranks * most, &rc, err);
    for (size_t r = 0; r < ranks; r++)
        longest = (int64_t)to[r] > longest ? (int64_t)to[r] : longest;
    if (rc == 0)
        rc = lf_comm_agree_max(d->experts, &longest, err);
    const struct rows x = {.block = room ? room + lists : NULL,
                           .most = most,
                           .to = (size_t *)(void *)room,
                           .from = room ? (size_t *)(void *)room + ranks : NULL};
    for (size_t at = 0; rc == 0 && at < (size_t)longest; at += most)
        rc = exchange_piece(d, &x, sizes, at, data, err);
    free(room);
    return rc;
}

static int same_reduce(void *user, float *grads, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return sum_all(d, d->same, grads, n * sizeof *grads, LF_COMM_F32, err);
}

static int same_scatter(void *user, float *grads, const size_t *counts, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return scatter_over(d, d->same, grads, counts, err);
}

static int same_gather(void *user, void *data, const size_t *bytes, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return gather_among(d, d->same, data, bytes, err);
}

static int begin_gather(void *user, struct lf_exec_req *q, void *data, const size_t *bytes,
                        lf_err *err)
{
    (void)q;
    return gather(user, data, bytes, err);
}

static int begin_sum(void *user, struct lf_exec_req *q, float *out, const float *data,
                     const size_t *counts, bool more, lf_err *err)
{
    (void)q;
    return sum_parts(user, lf_devcomm_inner(user), out, data, counts, more, err);
}

static int same_begin_gather(void *user, struct lf_exec_req *q, void *data, const size_t *bytes,
                             lf_err *err)
{
    (void)q;
    return same_gather(user, data, bytes, err);
}

static int same_begin_sum(void *user, struct lf_exec_req *q, float *out, const float *data,
                          const size_t *counts, bool more, lf_err *err)
{
    const struct lf_devcomm *d = user;
    (void)q;
    return sum_parts(d, d->same, out, data, counts, more, err);
}

const struct lf_exec_comm lf_devcomm_through = {.reduce = reduce,
                                                .scatter = scatter,
                                                .add = add,
                                                .gather = gather,
                                                .across = across,
                                                .begin_gather = begin_gather,
                                                .begin_sum = begin_sum,
                                                .finish = lf_devcomm_finished,
                                                .tensor_sum = tensor_sum,
                                                .tensor_gather = tensor_gather,
                                                .tensor_scatter = tensor_scatter,
                                                .tensor_add = tensor_add,
                                                .context_swap = context_swap,
                                                .context_gather = context_gather,
                                                .experts_gather = lf_devcomm_experts_gather,
                                                .experts_exchange = experts_exchange,
                                                .same_reduce = same_reduce,
                                                .same_scatter = same_scatter,
                                                .same_gather = same_gather,
                                                .same_begin_gather = same_begin_gather,
                                                .same_begin_sum = same_begin_sum,
                                                .tied_sum = lf_devcomm_through_tied,
                                                .pipeline_add = lf_devcomm_add_layers};
