/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of GPUs between ranks, over NCCL. Everything is queued on the second stream of the GPU,
 * and nothing here waits.
 *
 * NCCL adds in an order of its own, and its reduce-scatter has no seed. So where the order counts,
 * each rank sends every other one its part, and the receiver adds what came in the order of the
 * ranks (kernels.h, sum_ranks). A rank sends and receives (P - 1) / P of the bytes, as in a
 * reduce-scatter. But each of these bytes goes from its rank to its owner's directly, where NCCL
 * would add up within a node first. Between nodes that is more, so groups of ranks (zero_inner)
 * belong into a node.
 */
#include "engine/train/devcomm_priv.h"

static lf_comm *inner_of(const struct lf_devcomm *d)
{
    return d->gpus_inner ? d->gpus_inner : d->gpus;
}

static int reduce(void *user, float *grads, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return lf_comm_all_reduce(d->gpus, grads, n, LF_COMM_F32, LF_COMM_SUM, err);
}

/* ---- sums in the order of the ranks ---- */

static size_t piece(size_t n, size_t at, size_t most)
{
    return n <= at ? 0 : n - at < most ? n - at : most;
}

/* Elements [at, at + stride) of every rank's part: those of others go to them, ours come from
 * them. */
static int exchange(struct lf_devcomm *d, lf_comm *c, const float *data, const size_t *counts,
                    size_t at, lf_err *err)
{
    const size_t mine = piece(counts[c->rank], at, d->stride) * sizeof(float);
    lf_comm_req *q = d->req;
    int rc = lf_comm_group_begin(c, err);
    if (rc != 0)
        return rc;
    for (int r = 0; r < c->size && rc == 0; data += counts[r++]) {
        const size_t n = piece(counts[r], at, d->stride) * sizeof(float);
        if (r != c->rank && n)
            rc = lf_comm_isend(c, data + at, n, r, 0, q++, err);
    }
    float *to = d->scratch;
    for (int r = 0; r < c->size && rc == 0 && mine; r++)
        if (r != c->rank) {
            rc = lf_comm_irecv(c, to, mine, r, 0, q++, err);
            to += d->stride;
        }
    const int end = lf_comm_group_end(c, rc != 0 ? NULL : err);
    rc = rc != 0 ? rc : end;
    return rc != 0 ? rc : lf_comm_wait_all(d->req, (size_t)(q - d->req), err); /* they are queued */
}

static int add_piece(const struct lf_devcomm *d, const lf_comm *c, float *out, const float *mine,
                     size_t n, bool more, lf_err *err)
{
    const struct lf_k_sum_ranks a = {.n = (int64_t)n,
                                     .stride = (int64_t)d->stride,
                                     .ranks = c->size,
                                     .rank = c->rank,
                                     .mine = mine,
                                     .others = d->scratch,
                                     .y = out,
                                     .more = more};
    char why[300] = "";
    if (n == 0 || d->back->kernels->sum_ranks.run(d->back->comm_queue, &a) == LF_K_OK)
        return 0;
    d->back->ops->failure(d->back, why, sizeof why);
    return lf_fail(err, LF_EDEVICE, "a sum of gradients over ranks failed: %s", why);
}

static int sum_parts(struct lf_devcomm *d, lf_comm *c, float *out, const float *data,
                     const size_t *counts, bool more, lf_err *err)
{
    const float *mine = data;
    size_t most = 0;
    int rc = d->scratch ? 0 : lf_fail(err, LF_EINVAL, "sums of parts: nothing is planned for them");
    for (int r = 0; r < c->size; r++) {
        mine += r < c->rank ? counts[r] : 0;
        most = counts[r] > most ? counts[r] : most;
    }
    for (size_t at = 0; at < most && rc == 0; at += d->stride) {
        rc = exchange(d, c, data, counts, at, err);
        if (rc == 0)
            rc = add_piece(d, c, out + at, mine + at, piece(counts[c->rank], at, d->stride), more,
                           err);
    }
    return rc;
}

/* ---- what executors call ---- */

static int scatter_over(struct lf_devcomm *d, lf_comm *c, float *grads, const size_t *counts,
                        lf_err *err)
{
    float *mine = grads;
    for (int r = 0; r < c->rank; r++)
        mine += counts[r];
    return sum_parts(d, c, mine, grads, counts, false, err);
}

static int scatter(void *user, float *grads, const size_t *counts, lf_err *err)
{
    return scatter_over(user, inner_of(user), grads, counts, err);
}

static int add(void *user, double *sums, size_t n, lf_err *err)
{
    return lf_comm_all_reduce(inner_of(user), sums, n, LF_COMM_F64, LF_COMM_SUM, err);
}

static int gather(void *user, void *data, const size_t *bytes, lf_err *err)
{
    return lf_comm_all_gather(inner_of(user), data, bytes, err);
}

static int across(void *user, float *grads, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return lf_comm_all_reduce(d->gpus_outer, grads, n, LF_COMM_F32, LF_COMM_SUM, err);
}

/* ---- the tensor axis, in NCCL's order: all ranks get the bits of one sum ---- */

static int tensor_sum(void *user, float *data, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return lf_comm_all_reduce(d->gpus_tensor, data, n, LF_COMM_F32, LF_COMM_SUM, err);
}

static int tensor_add(void *user, double *sums, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return lf_comm_all_reduce(d->gpus_tensor, sums, n, LF_COMM_F64, LF_COMM_SUM, err);
}

static int tensor_gather(void *user, void *all, size_t bytes, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return lf_comm_all_gather(d->gpus_tensor, all, lf_devcomm_even(d, d->tensor, bytes), err);
}

static int tensor_scatter(void *user, float *out, const float *data, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return lf_comm_reduce_scatter(d->gpus_tensor, out, data, lf_devcomm_even(d, d->tensor, n),
                                  LF_COMM_F32, NULL, err);
}

/* ---- the context axis ---- */

static int context_swap(void *user, void *out, const void *in, size_t bytes, lf_err *err)
{
    const struct lf_devcomm *d = user;
    const size_t *even = lf_devcomm_even(d, d->context, bytes);
    return lf_comm_all_to_all(d->gpus_context, out, even, in, even, err);
}

static int context_gather(void *user, void *all, size_t bytes, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return lf_comm_all_gather(d->gpus_context, all, lf_devcomm_even(d, d->context, bytes), err);
}

/* ---- the expert axis; what one rank alone has needs nobody ---- */

static int experts_exchange(void *user, void *out, const size_t *from, const void *in,
                            const size_t *to, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return lf_comm_all_to_all(d->gpus_experts, out, from, in, to, err);
}

static int experts_begin(void *user, struct lf_exec_req *q, void *out, const size_t *from,
                         const void *in, const size_t *to, lf_err *err)
{
    (void)q;
    return experts_exchange(user, out, from, in, to, err);
}

static int same_reduce(void *user, float *grads, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return d->gpus_same ? lf_comm_all_reduce(d->gpus_same, grads, n, LF_COMM_F32, LF_COMM_SUM, err)
                        : 0;
}

static int same_scatter(void *user, float *grads, const size_t *counts, lf_err *err)
{
    struct lf_devcomm *d = user;
    return d->gpus_same ? scatter_over(d, d->gpus_same, grads, counts, err) : 0;
}

static int same_gather(void *user, void *data, const size_t *bytes, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return d->gpus_same ? lf_comm_all_gather(d->gpus_same, data, bytes, err) : 0;
}

/* ---- what ends by the executor's marks ---- */

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
    return sum_parts(user, inner_of(user), out, data, counts, more, err);
}

/* What one rank alone has is in no windows, so there is a communicator. */
static int same_begin_gather(void *user, struct lf_exec_req *q, void *data, const size_t *bytes,
                             lf_err *err)
{
    (void)q;
    return same_gather(user, data, bytes, err);
}

static int same_begin_sum(void *user, struct lf_exec_req *q, float *out, const float *data,
                          const size_t *counts, bool more, lf_err *err)
{
    struct lf_devcomm *d = user;
    (void)q;
    return sum_parts(d, d->gpus_same, out, data, counts, more, err);
}

const struct lf_exec_comm lf_devcomm_gpus = {.reduce = reduce,
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
                                             .experts_begin = experts_begin,
                                             .same_reduce = same_reduce,
                                             .same_scatter = same_scatter,
                                             .same_gather = same_gather,
                                             .same_begin_gather = same_begin_gather,
                                             .same_begin_sum = same_begin_sum,
                                             .tied_sum = lf_devcomm_through_tied,
                                             .pipeline_add = lf_devcomm_add_layers,
                                             .early = true};
