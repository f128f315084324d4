/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of gradients over ranks. Without early sums they are the first part of the optimizer. With
 * them the last backward pass of a step runs in pieces: after the piece that finishes a bucket its
 * sum is queued beside the next piece, on the backend's stream for it, and the optimizer waits for
 * the last. The pieces hold the calls of the whole pass in their order.
 */
#include <stdlib.h>

#include "engine/graph/exec_priv.h"
#include "engine/graph/profile_priv.h"

void lf_exec_set_comm(lf_exec *ex, const struct lf_exec_comm *comm, void *user)
{
    ex->comm = *comm;
    ex->comm_user = user;
    lf_exec_connect_tensor(ex);
    ex->early = comm->early && ex->b->ops->comm_begin;
}

/* Then no chunk alone knows when a bucket is complete. */
static bool several_chunks(const lf_plan *p)
{
    int n = 0;
    for (size_t i = 0; i < p->n_c; i++)
        n += p->c[i].o.train && p->c[i].o.chunk;
    return n > 1;
}

int lf_exec_sum_bind(lf_exec *ex, size_t chain, lf_err *err)
{
    const lf_plan *p = ex->p;
    const struct lf_chain *c = &p->c[chain];
    struct lf_bound *bc = &ex->chain[chain];
    if (!p->n_buckets || !c->o.train || c->n_windows || several_chunks(p))
        return 0;
    bc->ready = lf_calloc(p->n_buckets, sizeof *bc->ready, err);
    bc->piece = lf_calloc((p->n_buckets + 1) * (size_t)bc->variants * (size_t)c->o.slots,
                          sizeof *bc->piece, err);
    if (!bc->ready || !bc->piece)
        return LF_ENOMEM;
    lf_plan_bucket_ready(p, c, bc->ready);
    return 0;
}

void lf_exec_sum_free(const lf_exec *ex, size_t chain)
{
    struct lf_bound *bc = &ex->chain[chain];
    const size_t n =
        (ex->p->n_buckets + 1) * (size_t)bc->variants * (size_t)ex->p->c[chain].o.slots;
    for (size_t i = 0; bc->piece && i < n; i++)
        lf_back_forget_captured(ex->b, &bc->piece[i]);
    free(bc->piece);
    free(bc->ready);
}

bool lf_exec_sums_early(const lf_exec *ex, int chain)
{
    return ex->early && ex->chain[chain].ready && !ex->prof && !ex->o.poison;
}

static int sum_bucket(const lf_exec *ex, size_t i, lf_err *err)
{
    const struct lf_bucket *b = &ex->p->bucket[i];
    float *grads = (float *)(void *)(ex->p->ps->data[LF_P_GRAD] + b->off);
    const bool parts = ex->p->sharded && ex->p->n_sums && b->count;
    if (b->experts)
        return lf_plan_sum_ranks(ex->p, true) == 1 ? 0
               : parts ? ex->comm.same_scatter(ex->comm_user, grads, b->count, err)
                       : ex->comm.same_reduce(ex->comm_user, grads, b->n, err);
    return parts ? ex->comm.scatter(ex->comm_user, grads, b->count, err)
                 : ex->comm.reduce(ex->comm_user, grads, b->n, err);
}

int lf_exec_sum_end(lf_exec *ex, lf_err *err)
{
    if (!ex->summing)
        return 0;
    ex->summing = false;
    return lf_exec_comm_end(ex, err);
}

/* After a failure nothing is taken for summed. */
static int given_up(lf_exec *ex, int rc)
{
    lf_exec_sum_end(ex, NULL);
    return rc;
}

float *lf_exec_scratch(const lf_exec *ex, size_t *stride)
{
    const lf_plan *p = ex->p;
    *stride = p->sum_stride;
    return p->sum_stride ? (float *)(void *)(ex->inputs + p->scratch_off) : NULL;
}

/* With groups of ranks: their sums of each part. */
static int sum_across(const lf_exec *ex, lf_err *err)
{
    const lf_plan *p = ex->p;
    int rc = 0;
    for (size_t i = 0; i < p->n_units && rc == 0 && p->ranks.groups > 1; i++) {
        size_t n;
        const size_t at = lf_plan_own_grads(p, i, &n);
        rc = n ? ex->comm.across(ex->comm_user, (float *)(void *)(p->ps->data[LF_P_GRAD] + at), n,
                                 err)
               : 0;
    }
    return rc;
}

int lf_exec_sum(lf_exec *ex, lf_err *err)
{
    const lf_plan *p = ex->p;
    const bool groups = p->ranks.groups > 1;
    if (p->n_buckets &&
        (!ex->comm.reduce || (p->sharded && !ex->comm.gather) ||
         (p->sharded && p->n_sums && (!ex->comm.add || (p->bucket[0].count && !ex->comm.scatter)))))
        return lf_fail(err, LF_EINVAL,
                       "executor: the plan is for %d ranks, but nothing sums their gradients",
                       p->ranks.ranks);
    if (p->ps->layout.expert > 1 && (!ex->comm.add || !ex->comm.same_reduce))
        return lf_fail(err, LF_EINVAL,
                       "executor: nothing connects the %d ranks that divide experts",
                       p->ps->layout.expert);
    if (groups && !ex->comm.across)
        return lf_fail(err, LF_EINVAL, "executor: nothing sums over %d groups of ranks",
                       p->ranks.groups);
    const bool early = ex->summing;
    int rc = p->ps->layout.tensor > 1 || p->ranks.pipeline > 1 ? lf_exec_sum_end(ex, err) : 0;
    if (rc == 0) /* of the sums so far, where some have begun early */
        rc = lf_exec_sum_tensor(ex, err);
    if (rc != 0)
        return rc;
    if ((early && !groups) || !(p->n_buckets || groups))
        return lf_exec_sum_end(ex, err);
    struct lf_profile_mark m = lf_profile_begin(ex->o.profile);
    rc = ex->summing ? 0 : lf_exec_comm_begin(ex, err);
    ex->summing = rc == 0;
    for (size_t i = 0; i < p->n_buckets && rc == 0 && !early; i++)
        rc = sum_bucket(ex, i, err);
    if (rc == 0)
        rc = sum_across(ex, err);
    lf_profile_end(ex->o.profile, LF_LANE_COMM, "sum gradients", m);
    return rc != 0 ? given_up(ex, rc) : lf_exec_sum_end(ex, err);
}

int lf_exec_sum_blocks(lf_exec *ex, lf_err *err)
{
    const lf_plan *p = ex->p;
    struct lf_profile_mark m = lf_profile_begin(ex->o.profile);
    double *sums = (double *)(void *)(ex->inputs + p->sums_off);
    int rc = lf_exec_comm_begin(ex, err);
    ex->summing = rc == 0;
    if (rc == 0 && p->ranks.ranks > 1 && (p->sharded || p->ps->layout.expert > 1))
        rc = ex->comm.add(ex->comm_user, sums, p->n_sums, err);
    if (rc == 0 && p->ps->layout.tensor > 1)
        rc = ex->comm.tensor_add(ex->comm_user, sums, p->n_sums, err);
    rc = rc != 0 ? given_up(ex, rc) : lf_exec_sum_end(ex, err);
    if (rc == 0 && p->ranks.pipeline > 1)
        rc = lf_exec_add_layers(ex, sums, err);
    lf_profile_end(ex->o.profile, LF_LANE_COMM, "sum norm", m);
    return rc;
}

int lf_exec_gather(lf_exec *ex, lf_err *err)
{
    const lf_plan *p = ex->p;
    struct lf_profile_mark m = lf_profile_begin(ex->o.profile);
    int rc = lf_exec_comm_begin(ex, err);
    ex->summing = rc == 0;
    for (size_t i = 0; i < p->n_gather && rc == 0; i++)
        rc = (p->gather[i].experts ? ex->comm.same_gather : ex->comm.gather)(
            ex->comm_user, p->ps->data[p->gather[i].kind] + p->gather[i].off, p->gather[i].part,
            err);
    lf_profile_end(ex->o.profile, LF_LANE_COMM, "gather weights", m);
    return rc != 0 ? given_up(ex, rc) : lf_exec_sum_end(ex, err);
}

int lf_exec_run_last(lf_exec *ex, int chain, int slot, int variant, lf_err *err)
{
    const struct lf_chain *c = &ex->p->c[chain];
    const struct lf_call *calls = lf_exec_calls(ex, chain, slot, variant);
    struct lf_bound *bc = &ex->chain[chain];
    const size_t n = ex->p->n_buckets;
    struct lf_captured *piece = bc->piece + (size_t)(slot * bc->variants + variant) * (n + 1);
    size_t at = c->g->n_fwd;
    int rc = 0;
    for (size_t i = 0; i <= n && rc == 0; i++) {
        const size_t to = i < n ? bc->ready[i] : c->g->n_n;
        if (to > at)
            rc = lf_exec_run_nodes(ex, chain, calls, at, to, &piece[i], err);
        at = to;
        if (rc == 0 && i < n) {
            rc = lf_exec_comm_begin(ex, err);
            ex->summing = true;
            if (rc == 0)
                rc = sum_bucket(ex, i, err);
        }
    }
    return rc != 0 ? given_up(ex, rc) : 0;
}
