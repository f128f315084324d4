/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds of rows that go to other ranks' experts, and what nodes do with these ranks: see
 * experts.h.
 */
#include <stdlib.h>

#include "engine/graph/exec_priv.h"
#include "engine/graph/experts.h"
#include "engine/graph/profile_priv.h"

static struct lf_bound *bound(lf_exec *ex, const struct lf_chain *c)
{
    return &ex->chain[c - ex->p->c];
}

static int32_t counts_of(const struct lf_node *n)
{
    return n->op == LF_OP_EXPERT_COUNT    ? n->out[0]
           : n->op == LF_OP_EXPERT_SEND   ? n->in[SEND_COUNTS]
           : n->op == LF_OP_EXPERT_RETURN ? n->in[RETURN_COUNTS]
                                          : 0;
}

/* The arguments of a call of one of the three nodes. */
static struct lf_k_experts *args_of(const struct lf_call *call)
{
    return (struct lf_k_experts *)(uintptr_t)call->args;
}

/* A node that ran in the forward pass, as it runs in a region of the backward pass: with a
 * workspace, and weights, that are there then. */
static int bind_node_again(lf_exec *ex, const struct lf_chain *c, const struct lf_region *r,
                           const struct lf_exec_within *n, struct lf_call *out, lf_err *err)
{
    const struct lf_call *call =
        &lf_exec_calls(ex, (int)(c - ex->p->c), n->slot, LF_FIRST)[n->node];
    void *args = lf_arena_alloc(ex->args, 1, lf_kernel_table[call->kernel].args_bytes, err);
    int rc = args ? lf_exec_fill_within(ex, args, c, n, err) : LF_ENOMEM;
    if (rc != 0)
        return rc;
    *out = (struct lf_call){call->kernel, args};
    if (counts_of(&c->g->n[n->node]))
        args_of(out)->seen = args_of(call)->seen;
    if (c->work_bytes[n->node])
        lf_kernel_set_work(call->kernel, args, ex->arena + c->arena_off + r->work_off,
                           c->work_bytes[n->node]);
    return 0;
}

/* Those of nodes [again, again_last]. */
static int bind_again(lf_exec *ex, const struct lf_chain *c, const struct lf_region *r, int slot,
                      struct lf_call **out, lf_err *err)
{
    const size_t n = (size_t)(r->again_last - r->again) + 1;
    int rc = 0;
    if (!(*out = lf_arena_alloc(ex->args, n, sizeof **out, err)))
        return LF_ENOMEM;
    for (size_t k = 0; k < n && rc == 0; k++) {
        const struct lf_exec_within of = {slot, (size_t)r->again + k, (size_t)r->first, false};
        rc = bind_node_again(ex, c, r, &of, &(*out)[k], err);
    }
    return rc;
}

/* Gradients in windows are those of one micro-batch, to which each round but the first adds. */
static int bind_added(lf_exec *ex, const struct lf_chain *c, const struct lf_region *r, int slot,
                      lf_err *err)
{
    struct lf_call *added = bound(ex, c)->added + (size_t)slot * c->g->n_n;
    int rc = 0;
    for (int32_t i = r->first; i <= r->last && rc == 0; i++) {
        const struct lf_exec_within of = {slot, (size_t)i, (size_t)i, true};
        const int kernel = lf_op_table[c->g->n[i].op].kernel;
        if (!lf_exec_writes_window(ex, c, of.node))
            continue;
        void *args = lf_arena_alloc(ex->args, 1, lf_kernel_table[kernel].args_bytes, err);
        rc = args ? lf_exec_fill_within(ex, args, c, &of, err) : LF_ENOMEM;
        added[i] = (struct lf_call){kernel, args};
    }
    return rc;
}

/* Counts of node `count` in a slot get memory of the host, which the calls that use them know. */
static int show_counts(lf_exec *ex, size_t chain, int slot, size_t count, lf_err *err)
{
    const lf_graph *g = ex->p->c[chain].g;
    const struct lf_call *calls = lf_exec_calls(ex, (int)chain, slot, LF_FIRST);
    const struct lf_k_experts *a = args_of(&calls[count]);
    const size_t rows = (size_t)a->ranks + a->folded;
    int32_t *seen = lf_arena_alloc(ex->args, rows * (size_t)a->experts, sizeof *seen, err);
    for (int v = 0; seen && v < ex->chain[chain].variants; v++) {
        calls = lf_exec_calls(ex, (int)chain, slot, v);
        for (size_t i = 0; i < g->n_n; i++)
            if (counts_of(&g->n[i]) == g->n[count].out[0])
                args_of(&calls[i])->seen = seen;
    }
    return seen ? 0 : LF_ENOMEM;
}

/* What the host needs where it does not see the memory of nodes: most numbers of a node, and pairs
 * of a count. */
static int bind_seen(lf_exec *ex, size_t chain, int64_t *numbers, int64_t *pairs, lf_err *err)
{
    const struct lf_chain *c = &ex->p->c[chain];
    const struct lf_call *calls = lf_exec_calls(ex, (int)chain, 0, LF_FIRST);
    int rc = 0;
    for (size_t i = 0; i < c->g->n_n && rc == 0; i++) {
        if (!counts_of(&c->g->n[i]))
            continue;
        const struct lf_k_experts *a = args_of(&calls[i]);
        const int64_t most = a->room > a->experts ? a->room : a->experts + 1;
        *numbers = most > *numbers ? most : *numbers;
        if (c->g->n[i].op == LF_OP_EXPERT_COUNT)
            *pairs = a->pairs > *pairs ? a->pairs : *pairs;
        for (int slot = 0; slot < c->o.slots && rc == 0; slot++)
            if (c->g->n[i].op == LF_OP_EXPERT_COUNT)
                rc = show_counts(ex, chain, slot, i, err);
    }
    return rc;
}

static int bind_chain(lf_exec *ex, size_t chain, lf_err *err)
{
    const struct lf_chain *c = &ex->p->c[chain];
    struct lf_bound *bc = &ex->chain[chain];
    int rc = 0;
    if (!c->n_regions)
        return 0;
    bc->again = lf_arena_alloc(ex->args, c->n_regions * (size_t)c->o.slots, sizeof *bc->again, err);
    bc->added = lf_arena_alloc(ex->args, c->g->n_n * (size_t)c->o.slots, sizeof *bc->added, err);
    if (!bc->again || !bc->added)
        return LF_ENOMEM;
    for (int slot = 0; slot < c->o.slots; slot++)
        for (size_t k = 0; k < c->n_regions && rc == 0; k++) {
            rc = bind_added(ex, c, &c->region[k], slot, err);
            if (rc == 0 && c->region[k].again >= 0)
                rc = bind_again(ex, c, &c->region[k], slot,
                                &bc->again[(size_t)slot * c->n_regions + k], err);
        }
    return rc;
}

static int read_bytes(void *user, void *host, const void *from, size_t bytes, lf_err *err)
{
    const lf_exec *ex = user;
    return ex->b->ops->copy_out(ex->b, host, from, bytes, err);
}

static int write_bytes(void *user, void *to, const void *host, size_t bytes, lf_err *err)
{
    const lf_exec *ex = user;
    return ex->b->ops->copy_in(ex->b, to, host, bytes, err);
}

static int bind_gpu(lf_exec *ex, lf_err *err)
{
    struct lf_experts *x = ex->exchange.experts;
    int64_t numbers = 1, pairs = 1;
    int rc = 0;
    for (size_t i = 0; i < ex->p->n_c && rc == 0; i++)
        rc = bind_seen(ex, i, &numbers, &pairs, err);
    x->read = read_bytes;
    x->write = write_bytes;
    x->index = lf_arena_alloc(ex->args, (size_t)numbers, sizeof *x->index, err);
    x->row_of = lf_arena_alloc(ex->args, (size_t)pairs, sizeof *x->row_of, err);
    x->first = lf_arena_alloc(ex->args, (size_t)x->ranks, sizeof *x->first, err);
    return rc != 0 ? rc : x->index && x->row_of && x->first ? 0 : LF_ENOMEM;
}

int lf_exec_experts_bind(lf_exec *ex, lf_err *err)
{
    const struct lf_layout *l = &ex->p->ps->layout;
    int rc = 0;
    if (l->expert <= 1)
        return 0;
    struct lf_experts *x = ex->exchange.experts =
        lf_arena_alloc(ex->args, 1, sizeof *ex->exchange.experts, err);
    if (!x)
        return LF_ENOMEM;
    *x = (struct lf_experts){.ranks = l->expert, .rank = l->expert_rank, .rounds = 1};
    x->to = lf_arena_alloc(ex->args, 3 * (size_t)l->expert, sizeof *x->to, err);
    if (!x->to)
        return LF_ENOMEM;
    for (size_t i = 0; i < ex->p->n_c; i++) /* behind those of windows */
        x->mark = ex->p->c[i].n_windows > x->mark ? ex->p->c[i].n_windows : x->mark;
    x->from = x->to + l->expert;
    x->at = x->from + l->expert;
    if (!ex->b->ops->host_visible) /* before calls are copied that run again */
        rc = bind_gpu(ex, err);
    for (size_t i = 0; i < ex->p->n_c && rc == 0; i++)
        rc = bind_chain(ex, i, err);
    return rc;
}

/* ---- between ranks ---- */

static int gather(void *user, void *all, size_t bytes, lf_err *err)
{
    const lf_exec *ex = user;
    const struct lf_profile_mark m = lf_profile_begin(ex->o.profile);
    const int rc = ex->comm.experts_gather(ex->comm_user, all, bytes, err);
    lf_profile_end(ex->o.profile, LF_LANE_COMM, "tell counts of rows", m);
    return rc;
}

/* How long the host waits: on a GPU for nothing, and the profile has the nodes' times. */
static int exchange(void *user, void *out, const size_t *from, const void *in, const size_t *to,
                    lf_err *err)
{
    const lf_exec *ex = user;
    const struct lf_profile_mark m = lf_profile_begin(ex->o.profile);
    int rc = lf_exec_comm_begin(ex, err);
    if (rc == 0)
        rc = ex->comm.experts_exchange(ex->comm_user, out, from, in, to, err);
    if (rc == 0)
        rc = lf_exec_comm_end(ex, err);
    lf_profile_end(ex->o.profile, LF_LANE_COMM, "exchange rows of experts", m);
    return rc;
}

static int begin(void *user, void *out, const size_t *from, const void *in, const size_t *to,
                 lf_err *err)
{
    lf_exec *ex = user;
    struct lf_experts *x = ex->exchange.experts;
    int rc = lf_exec_comm_begin(ex, err);
    if (rc == 0)
        rc = ex->comm.experts_begin(ex->comm_user, &x->req, out, from, in, to, err);
    return rc != 0 || !ex->b->ops->comm_mark ? rc : ex->b->ops->comm_mark(ex->b, x->mark, err);
}

static int finish(void *user, lf_err *err)
{
    lf_exec *ex = user;
    struct lf_experts *x = ex->exchange.experts;
    const struct lf_profile_mark m = lf_profile_begin(ex->o.profile);
    int rc = ex->comm.finish(ex->comm_user, &x->req, err);
    if (rc == 0 && ex->b->ops->comm_wait)
        rc = ex->b->ops->comm_wait(ex->b, x->mark, err);
    lf_profile_end(ex->o.profile, LF_LANE_COMM, "wait for rows of experts", m);
    return rc;
}

void lf_exec_connect_experts(lf_exec *ex)
{
    struct lf_experts *x = ex->exchange.experts;
    if (!x)
        return;
    x->gather = ex->comm.experts_gather ? gather : NULL;
    x->exchange = ex->comm.experts_exchange ? exchange : NULL;
    x->begin = ex->comm.experts_begin && ex->comm.finish ? begin : NULL;
    x->finish = finish;
    x->user = ex;
}

/* ---- rounds ---- */

static const struct lf_region *region_at(const struct lf_chain *c, size_t node, bool last)
{
    for (size_t k = 0; k < c->n_regions; k++)
        if ((size_t)(last ? c->region[k].last : c->region[k].first) == node)
            return &c->region[k];
    return NULL;
}

/* Makes again what the backward pass of this round reads. */
static int run_again(lf_exec *ex, const struct lf_chain *c, const struct lf_region *r, size_t slot)
{
    const size_t k = slot * c->n_regions + (size_t)(r - c->region);
    const struct lf_call *calls = bound(ex, c)->again[k];
    int rc = 0;
    for (int32_t i = 0; i <= r->again_last - r->again && r->again >= 0 && rc == 0; i++)
        rc = lf_exec_call(ex, &calls[i]);
    return rc;
}

/* Round 1 and those behind it, which add to the gradients of the first. */
static int run_rounds(lf_exec *ex, const struct lf_chain *c, const struct lf_region *r, size_t slot)
{
    struct lf_experts *x = ex->exchange.experts;
    const struct lf_call *calls = lf_exec_calls(ex, (int)(c - ex->p->c), (int)slot,
                                                c->o.train ? LF_ACCUM : LF_FIRST),
                         *added = bound(ex, c)->added + slot * c->g->n_n;
    const int64_t rounds = x->rounds;
    int rc = 0;
    for (x->round = 1; x->round < rounds && rc == 0; x->round++) {
        rc = run_again(ex, c, r, slot);
        for (int32_t i = r->first; i <= r->last && rc == 0; i++)
            rc = lf_exec_call(ex, added[i].args ? &added[i] : &calls[i]);
    }
    x->round = 0;
    return rc;
}

/* May a return be late? */
static bool late(const lf_exec *ex, const struct lf_region *r)
{
    const struct lf_experts *x = ex->exchange.experts;
    return r && r->reader && x->begin && !x->idle && x->rounds == 1;
}

int lf_exec_node(lf_exec *ex, const struct lf_chain *c, const struct lf_call *calls, size_t i)
{
    struct lf_experts *x = ex->exchange.experts;
    if (!c->n_regions)
        return lf_exec_call(ex, &calls[i]);
    const struct lf_region *begins = region_at(c, i, false), *ends = region_at(c, i, true);
    int rc = x->pending && x->reader == i ? lf_experts_end(ex->b->kernels, ex->b->queue, x) : 0;
    x->late = late(ex, ends);
    if (x->late)
        x->reader = (size_t)ends->reader;
    if (rc == 0)
        rc = lf_exec_call(ex, &calls[i]);
    x->late = false;
    if (rc != 0)
        return rc;
    const struct lf_bound *bc = bound(ex, c);
    const size_t slot = (size_t)(calls - bc->calls) / c->g->n_n / (size_t)bc->variants;
    const int64_t rounds = x->rounds;
    if (begins && rounds > 1)
        rc = run_again(ex, c, begins, slot);
    if (ends && rounds > 1 && rc == 0)
        rc = run_rounds(ex, c, ends, slot);
    return rc;
}

int lf_exec_idle_experts(lf_exec *ex, int chain, const struct lf_call *calls, size_t from,
                         size_t to, lf_err *err)
{
    const struct lf_chain *c = &ex->p->c[chain];
    const struct lf_region *in = NULL;
    int rc = c->n_regions ? lf_exec_refresh(ex, err) : 0, krc = 0;
    if (!c->n_regions || rc != 0)
        return rc;
    ex->exchange.experts->idle = true;
    for (size_t i = from; i < to && krc == 0; i++) {
        in = in ? in : region_at(c, i, false);
        if (in || c->g->n[i].op == LF_OP_EXPERT_COUNT)
            krc = lf_exec_node(ex, c, calls, i);
        if (krc)
            rc = lf_exec_call_failed(ex, c, i, krc, err);
        if (in && (size_t)in->last == i)
            in = NULL;
    }
    ex->exchange.experts->idle = false;
    return rc;
}
