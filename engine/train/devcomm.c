/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a backend between ranks: see devcomm.h.
 */
#include "engine/train/devcomm_priv.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

/* Both say what a sum sends. */
_Static_assert((int)LF_PLAN_SHORT_SUM == (int)LF_COMM_SHORT, "plans count as communicators do");

/* What other ranks wait for goes on while this one computes. */
static void border(void *comm)
{
    lf_comm_poll(comm);
}

/* Room for the calls of one exchange. */
static int make_room(struct lf_devcomm *d, lf_err *err)
{
    const size_t data = (size_t)d->comm->size, tensor = d->tensor ? (size_t)d->tensor->size : 1,
                 context = d->context ? (size_t)d->context->size : 1,
                 experts = d->experts ? (size_t)d->experts->size : 1,
                 same = d->same ? (size_t)d->same->size : 1, ranks = same > data ? same : data,
                 rows = context > experts ? context : experts;
    d->req = lf_calloc(2 * ranks, sizeof *d->req, err);
    d->counts = lf_calloc(ranks, sizeof *d->counts, err);
    d->even = lf_calloc(tensor > rows ? tensor : rows, sizeof *d->even, err);
    d->keys = lf_calloc(context, sizeof *d->keys, err);
    int rc = d->req && d->counts && d->even && d->keys ? 0 : LF_ENOMEM;
    if (d->tensor)
        rc = lf_comm_agree_ok(d->tensor, rc, err);
    return lf_comm_agree_ok(d->comm, rc, err);
}

bool lf_devcomm_through_host(void)
{
    const char *transport = getenv("LF_COMM");
    return transport && strcmp(transport, "ucx") == 0;
}

/* What a connection of two ranks takes for a channel: a buffer for each protocol (init.cc of NCCL
 * 2.30: NCCL_BUFFSIZE of 4 MiB, LL128, LL). A communicator has at most 32 channels (the
 * documentation of maxCTAs), each connected with the rank before in its ring. Trees have fewer
 * channels and two connections, so this stands for them too. A rank that gets messages from others
 * of its node has as many connections with each; those of other nodes share their buffers. */
#define CONNECTION (4194304.0 + 4915200.0 + 524288.0)
enum { CHANNELS = 32, NODE = 8 };

/* Of so many ranks, the others of a node. */
static int others(int ranks)
{
    return (ranks < NODE ? ranks : NODE) - 1;
}

/* Ranks of the data axis with the experts of this one; 1 where all have all. */
static int same_ranks(const struct lf_train_who *w)
{
    return w->expert_ranks > 1 ? lf_axes_expert_places(w) / w->expert_ranks : 1;
}

/* Other ranks of a group that send this one their parts of gradients, or rows. With zero = 1 NCCL
 * sums whole gradients, but where ranks divide the model (sum_bucket of graph/exec_sum.c). */
static int senders(const struct lf_train_who *w, const struct lf_zero *z, int inner, int groups)
{
    const bool model = w->tensor_ranks > 1 || w->pipeline_ranks > 1 || w->expert_ranks > 1,
               parts = z->stage > 1 || groups > 1 || (z->stage == 1 && model);
    return (parts ? others(inner) + others(same_ranks(w)) : 0) + others(w->context_ranks) +
           others(w->expert_ranks);
}

static int neighbours(const struct lf_train_who *w, bool ring)
{
    const int p = w->pipeline_ranks;
    const bool end = w->pipeline == 0 || w->pipeline == p - 1;
    return p <= 1 ? 0 : p == 2 || (end && !ring) ? 1 : 2;
}

double lf_devcomm_gpu_bytes(const struct lf_train_who *w, const struct lf_zero *z, bool ring)
{
    const int inner = lf_zero_inner(z, lf_axes_sharers(w)), groups = lf_axes_sharers(w) / inner;
    const int rings = (lf_axes_sharers(w) > 1) + (w->context_ranks > 1) + (w->tensor_ranks > 1) +
                      (w->expert_ranks > 1) + (same_ranks(w) > 1) + (groups > 1 ? 2 : 0);
    const int many = rings + senders(w, z, inner, groups);
    return lf_devcomm_through_host()
               ? 0
               : CONNECTION * (CHANNELS * many + 2 * LF_DEVCOMM_BLOCKS * neighbours(w, ring));
}

/* NCCL for the ranks of an axis, where there is one. */
static int open_axis(const struct lf_devcomm *d, lf_comm *host, lf_comm **gpus, lf_err *err)
{
    const struct lf_comm_gpus on = {.device = d->back->ordinal, .stream = d->back->comm_stream};
    if (!host)
        return 0;
    *gpus = lf_comm_on_gpus(host, &on, err);
    return *gpus ? 0 : err && err->rc ? err->rc : LF_ECOMM;
}

static int open_gpus(struct lf_devcomm *d, bool groups, lf_err *err)
{
    const struct lf_comm_gpus on = {
        .device = d->back->ordinal, .stream = d->back->comm_stream, .parts = groups};
    d->gpus = lf_comm_on_gpus(d->comm, &on, err);
    int rc = d->gpus ? 0 : err && err->rc ? err->rc : LF_ECOMM;
    if (rc == 0)
        rc = open_axis(d, d->tensor, &d->gpus_tensor, err);
    if (rc == 0)
        rc = open_axis(d, d->context, &d->gpus_context, err);
    if (rc == 0)
        rc = open_axis(d, d->experts, &d->gpus_experts, err);
    return rc != 0 || !d->same || d->same->size == 1 ? rc
                                                     : open_axis(d, d->same, &d->gpus_same, err);
}

int lf_devcomm_open(struct lf_devcomm *d, const struct lf_devcomm_axes *axes, lf_back *back,
                    lf_err *err)
{
    *d = (struct lf_devcomm){.comm = axes->data,
                             .tensor = axes->tensor,
                             .context = axes->context,
                             .pipeline = axes->pipeline,
                             .ends = axes->ends,
                             .experts = axes->experts,
                             .same = axes->same,
                             .tied.room = axes->tied,
                             .back = back};
    lf_back_set_border(back, border, axes->data);
    int rc = make_room(d, err);
    if (rc != 0 || back->ops->host_visible || lf_devcomm_through_host())
        return rc;
    if (open_gpus(d, axes->groups, err))
        return lf_err_prefix(err, "sums of gradients between GPUs (LF_COMM=ucx does without NCCL)");
    return axes->pipeline ? lf_devcomm_open_pairs(d, axes->ring, err) : 0;
}

int lf_devcomm_groups(struct lf_devcomm *d, int ranks, lf_err *err)
{
    d->inner = lf_comm_split(d->comm, d->comm->rank / ranks, d->comm->rank, err);
    if (d->inner)
        d->outer = lf_comm_split(d->comm, d->comm->rank % ranks, d->comm->rank, err);
    if (!d->outer)
        return err ? err->rc : LF_ECOMM;
    if (!d->gpus)
        return 0;
    d->gpus_inner = lf_comm_on_gpus_part(d->gpus, d->inner, err);
    if (d->gpus_inner)
        d->gpus_outer = lf_comm_on_gpus_part(d->gpus, d->outer, err);
    return d->gpus_outer ? 0 : lf_err_prefix(err, "groups of GPUs");
}

/* Those of NCCL. Another rank may never come to what is queued here where one has failed. */
static void close_gpus(struct lf_devcomm *d, bool failed)
{
    lf_comm **const c[] = {&d->gpus_same,  &d->gpus_experts, &d->gpus_context, &d->gpus_tensor,
                           &d->gpus_outer, &d->gpus_inner,   &d->gpus};
    if (d->gpus && !failed)
        d->back->ops->sync(d->back, NULL);
    lf_devcomm_close_pairs(d, failed);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        failed ? lf_comm_on_gpus_abort(*c[i]) : lf_comm_on_gpus_destroy(*c[i]);
        *c[i] = NULL;
    }
}

void lf_devcomm_close(struct lf_devcomm *d, bool failed)
{
    close_gpus(d, failed);
    lf_comm_destroy(d->outer);
    lf_comm_destroy(d->inner);
    d->inner = d->outer = NULL;
    free(d->req);
    free(d->counts);
    free(d->even);
    free(d->keys);
    d->req = NULL;
    d->counts = d->even = d->keys = NULL;
    if (d->back)
        lf_back_set_border(d->back, NULL, NULL);
    d->back = NULL;
}

static bool by_host(const struct lf_devcomm *d)
{
    return !d->gpus && !d->back->ops->host_visible;
}

/* ---- memory that the host sees ---- */

/* Sums of a plan, which all get. */
static int sum_all(lf_comm *c, void *data, size_t n, enum lf_comm_type type, lf_err *err)
{
    const struct lf_comm_call call = {
        .what = LF_COMM_ALL_REDUCE, .out = data, .n = n, .type = type, .planned = true};
    return lf_comm_do(c, &call, err);
}

static int reduce(void *user, float *grads, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return sum_all(d->comm, grads, n, LF_COMM_F32, err);
}

static int scatter_over(lf_comm *c, float *grads, const size_t *counts, lf_err *err)
{
    float *mine = grads;
    for (int r = 0; r < c->rank; r++)
        mine += counts[r];
    const struct lf_comm_call call = {.what = LF_COMM_REDUCE_SCATTER,
                                      .type = LF_COMM_F32,
                                      .out = mine,
                                      .in = grads,
                                      .counts = counts,
                                      .planned = true};
    return lf_comm_do(c, &call, err);
}

static int scatter(void *user, float *grads, const size_t *counts, lf_err *err)
{
    return scatter_over(lf_devcomm_inner(user), grads, counts, err);
}

static int start(lf_comm *c, const struct lf_comm_call *call, struct lf_exec_req *q, lf_err *err)
{
    lf_comm_req r = {0};
    const int rc = lf_comm_start(c, call, &r, err);
    q->p = r.flight;
    return rc;
}

static struct lf_comm_call gather_of(void *data, const size_t *bytes)
{
    return (struct lf_comm_call){
        .what = LF_COMM_ALL_GATHER, .out = data, .counts = bytes, .planned = true};
}

static int begin_gather(void *user, struct lf_exec_req *q, void *data, const size_t *bytes,
                        lf_err *err)
{
    const struct lf_comm_call call = gather_of(data, bytes);
    return start(lf_devcomm_inner(user), &call, q, err);
}

static struct lf_comm_call sum_of(float *out, const float *data, const size_t *counts, bool more)
{
    return (struct lf_comm_call){.what = LF_COMM_REDUCE_SCATTER,
                                 .type = LF_COMM_F32,
                                 .out = out,
                                 .in = data,
                                 .seed = more ? out : NULL,
                                 .counts = counts,
                                 .planned = true};
}

static int begin_sum(void *user, struct lf_exec_req *q, float *out, const float *data,
                     const size_t *counts, bool more, lf_err *err)
{
    const struct lf_comm_call call = sum_of(out, data, counts, more);
    return start(lf_devcomm_inner(user), &call, q, err);
}

static int finish(void *user, struct lf_exec_req *q, lf_err *err)
{
    lf_comm_req r = {.flight = q->p};
    (void)user;
    q->p = NULL;
    return lf_comm_wait(&r, err);
}

static int add(void *user, double *sums, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return sum_all(lf_devcomm_inner(d), sums, n, LF_COMM_F64, err);
}

static int across(void *user, float *grads, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return sum_all(d->outer, grads, n, LF_COMM_F32, err);
}

static int gather(void *user, void *data, const size_t *bytes, lf_err *err)
{
    const struct lf_comm_call call = gather_of(data, bytes);
    return lf_comm_do(lf_devcomm_inner(user), &call, err);
}

/* ---- the tensor axis ---- */

static int tensor_sum(void *user, float *data, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return sum_all(d->tensor, data, n, LF_COMM_F32, err);
}

static int tensor_add(void *user, double *sums, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return sum_all(d->tensor, sums, n, LF_COMM_F64, err);
}

const size_t *lf_devcomm_even(const struct lf_devcomm *d, const lf_comm *c, size_t n)
{
    for (int r = 0; r < c->size; r++)
        d->even[r] = n;
    return d->even;
}

static int tensor_gather(void *user, void *all, size_t bytes, lf_err *err)
{
    const struct lf_devcomm *d = user;
    const struct lf_comm_call call = gather_of(all, lf_devcomm_even(d, d->tensor, bytes));
    return lf_comm_do(d->tensor, &call, err);
}

static int tensor_scatter(void *user, float *out, const float *data, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    const struct lf_comm_call call = {.what = LF_COMM_REDUCE_SCATTER,
                                      .type = LF_COMM_F32,
                                      .out = out,
                                      .in = data,
                                      .counts = lf_devcomm_even(d, d->tensor, n),
                                      .planned = true};
    return lf_comm_do(d->tensor, &call, err);
}

/* ---- the context axis ---- */

static int context_swap(void *user, void *out, const void *in, size_t bytes, lf_err *err)
{
    const struct lf_devcomm *d = user;
    const size_t *even = lf_devcomm_even(d, d->context, bytes);
    const struct lf_comm_call call = {.what = LF_COMM_ALL_TO_ALL,
                                      .out = out,
                                      .from = even,
                                      .in = in,
                                      .counts = even,
                                      .planned = true};
    return lf_comm_do(d->context, &call, err);
}

static int context_gather(void *user, void *all, size_t bytes, lf_err *err)
{
    const struct lf_devcomm *d = user;
    const struct lf_comm_call call = gather_of(all, lf_devcomm_even(d, d->context, bytes));
    return lf_comm_do(d->context, &call, err);
}

/* All ranks of the axis call it; those of other groups get and give nothing in this one's. */
static int context_among(void *user, void *out, const void *in, size_t bytes,
                         const struct lf_rank_group *g, lf_err *err)
{
    const struct lf_devcomm *d = user;
    size_t *some = d->even;
    lf_devcomm_even(d, d->context, 0);
    for (int r = 0; r < g->n; r++)
        some[g->first + r * g->step] = bytes;
    const struct lf_comm_call call = {.what = LF_COMM_ALL_TO_ALL,
                                      .out = out,
                                      .from = some,
                                      .in = in,
                                      .counts = some,
                                      .planned = true};
    return lf_comm_do(d->context, &call, err);
}

static int context_parts(void *user, void *out, const size_t *from, const void *in,
                         const size_t *to, lf_err *err)
{
    const struct lf_devcomm *d = user;
    const struct lf_comm_call call = {.what = LF_COMM_ALL_TO_ALL,
                                      .out = out,
                                      .from = from,
                                      .in = in,
                                      .counts = to,
                                      .planned = true};
    return lf_comm_do(d->context, &call, err);
}

/* Its counts stay as they are until it has ended, so they are its own. */
static int context_begin(void *user, struct lf_exec_req *q, void *all, size_t bytes, lf_err *err)
{
    const struct lf_devcomm *d = user;
    for (int i = 0; i < d->context->size; i++)
        d->keys[i] = bytes;
    const struct lf_comm_call call = gather_of(all, d->keys);
    return start(d->context, &call, q, err);
}

/* ---- the expert axis ---- */

/* Whatever a backend's memory is. */
int lf_devcomm_experts_gather(void *user, void *all, size_t bytes, lf_err *err)
{
    const struct lf_devcomm *d = user;
    const struct lf_comm_call call = gather_of(all, lf_devcomm_even(d, d->experts, bytes));
    return lf_comm_do(d->experts, &call, err);
}

/* How much moves depends on what rows choose, so no plan knows it. */
static int experts_exchange(void *user, void *out, const size_t *from, const void *in,
                            const size_t *to, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return lf_comm_all_to_all(d->experts, out, from, in, to, err);
}

static int experts_begin(void *user, struct lf_exec_req *q, void *out, const size_t *from,
                         const void *in, const size_t *to, lf_err *err)
{
    const struct lf_devcomm *d = user;
    const struct lf_comm_call call = {
        .what = LF_COMM_ALL_TO_ALL, .out = out, .from = from, .in = in, .counts = to};
    return start(d->experts, &call, q, err);
}

static int same_reduce(void *user, float *grads, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return sum_all(d->same, grads, n, LF_COMM_F32, err);
}

static int same_scatter(void *user, float *grads, const size_t *counts, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return scatter_over(d->same, grads, counts, err);
}

static int same_gather(void *user, void *data, const size_t *bytes, lf_err *err)
{
    const struct lf_devcomm *d = user;
    const struct lf_comm_call call = gather_of(data, bytes);
    return lf_comm_do(d->same, &call, err);
}

static int same_begin_gather(void *user, struct lf_exec_req *q, void *data, const size_t *bytes,
                             lf_err *err)
{
    const struct lf_devcomm *d = user;
    const struct lf_comm_call call = gather_of(data, bytes);
    return start(d->same, &call, q, err);
}

static int same_begin_sum(void *user, struct lf_exec_req *q, float *out, const float *data,
                          const size_t *counts, bool more, lf_err *err)
{
    const struct lf_devcomm *d = user;
    const struct lf_comm_call call = sum_of(out, data, counts, more);
    return start(d->same, &call, q, err);
}

/* ---- the pipeline axis ---- */

int lf_devcomm_add_layers(void *user, double *sums, size_t n, lf_err *err)
{
    const struct lf_devcomm *d = user;
    return lf_comm_all_reduce(d->pipeline, sums, n, LF_COMM_F64, LF_COMM_SUM, err);
}

int lf_devcomm_finished(void *user, struct lf_exec_req *q, lf_err *err)
{
    (void)user, (void)q, (void)err;
    return 0;
}

static const struct lf_exec_comm direct = {.reduce = reduce,
                                           .scatter = scatter,
                                           .add = add,
                                           .gather = gather,
                                           .across = across,
                                           .begin_gather = begin_gather,
                                           .begin_sum = begin_sum,
                                           .finish = finish,
                                           .tensor_sum = tensor_sum,
                                           .tensor_gather = tensor_gather,
                                           .tensor_scatter = tensor_scatter,
                                           .tensor_add = tensor_add,
                                           .context_swap = context_swap,
                                           .context_gather = context_gather,
                                           .context_among = context_among,
                                           .context_parts = context_parts,
                                           .context_begin = context_begin,
                                           .experts_gather = lf_devcomm_experts_gather,
                                           .experts_exchange = experts_exchange,
                                           .experts_begin = experts_begin,
                                           .same_reduce = same_reduce,
                                           .same_scatter = same_scatter,
                                           .same_gather = same_gather,
                                           .same_begin_gather = same_begin_gather,
                                           .same_begin_sum = same_begin_sum,
                                           .tied_begin = lf_devcomm_tied_begin,
                                           .tied_sum = lf_devcomm_tied_sum,
                                           .tied_end = lf_devcomm_tied_end,
                                           .pipeline_add = lf_devcomm_add_layers};

void lf_devcomm_connect(struct lf_devcomm *d, lf_exec *ex)
{
    size_t stride;
    float *scratch = lf_exec_scratch(ex, &stride);
    if (scratch && stride > d->stride) { /* executors of one process use it in turn */
        d->scratch = scratch;
        d->stride = stride;
    }
    lf_exec_set_comm(ex,
                     d->gpus      ? &lf_devcomm_gpus
                     : by_host(d) ? &lf_devcomm_through
                                  : &direct,
                     d);
}

void lf_devcomm_counted(const struct lf_devcomm *d, struct lf_comm_counts out[LF_DEVCOMM_COUNTED])
{
    lf_comm *const c[LF_DEVCOMM_COUNTED] = {d->comm,    d->inner,   d->outer, d->tensor,
                                            d->context, d->experts, d->same};
    for (int i = 0; i < LF_DEVCOMM_COUNTED; i++) {
        out[i] = (struct lf_comm_counts){0};
        if (c[i])
            lf_comm_counted(c[i], &out[i]);
    }
}

int lf_devcomm_begin(const struct lf_devcomm *d, lf_err *err)
{
    return d->gpus ? d->back->ops->comm_begin(d->back, err) : 0;
}

int lf_devcomm_end(const struct lf_devcomm *d, int rc, lf_err *err)
{
    return rc || !d->gpus ? rc : d->back->ops->comm_end(d->back, err);
}

int lf_devcomm_broadcast(const struct lf_devcomm *d, void *data, size_t bytes, lf_err *err)
{
    if (by_host(d))
        return lf_devcomm_through_broadcast(d, d->comm, data, bytes, 0, err);
    const int rc = lf_devcomm_begin(d, err);
    return lf_devcomm_end(
        d, rc != 0 ? rc : lf_comm_broadcast(d->gpus ? d->gpus : d->comm, data, bytes, 0, err), err);
}
