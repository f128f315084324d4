/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds of rows that go to other ranks' experts: see experts.h.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/exec_priv.h"
#include "engine/graph/experts.h"

static struct lf_bound *bound(lf_exec *ex, const struct lf_chain *c)
{
    return &ex->chain[c - ex->p->c];
}

/* The calls of nodes [again, again_last] in a workspace that is there in the backward pass. */
static int bind_again(lf_exec *ex, const struct lf_chain *c, const struct lf_region *r,
                      const struct lf_call *from, struct lf_call **out, lf_err *err)
{
    const size_t n = (size_t)(r->again_last - r->again) + 1;
    if (!(*out = lf_arena_alloc(ex->args, n, sizeof **out, err)))
        return LF_ENOMEM;
    for (size_t k = 0; k < n; k++) {
        const size_t node = (size_t)r->again + k;
        const struct lf_call *call = &from[node];
        const size_t bytes = lf_kernel_table[call->kernel].args_bytes;
        void *args = lf_arena_alloc(ex->args, 1, bytes, err);
        if (!args)
            return LF_ENOMEM;
        memcpy(args, call->args, bytes);
        if (c->work_bytes[node])
            lf_kernel_set_work(call->kernel, args, ex->arena + c->arena_off + r->work_off,
                               c->work_bytes[node]);
        (*out)[k] = (struct lf_call){call->kernel, args};
    }
    return 0;
}

static int bind_chain(lf_exec *ex, size_t chain, lf_err *err)
{
    const struct lf_chain *c = &ex->p->c[chain];
    struct lf_bound *bc = &ex->chain[chain];
    int rc = 0;
    if (!c->n_regions)
        return 0;
    bc->again = lf_arena_alloc(ex->args, c->n_regions * (size_t)c->o.slots, sizeof *bc->again, err);
    for (int slot = 0; bc->again && slot < c->o.slots; slot++)
        for (size_t k = 0; k < c->n_regions && rc == 0; k++)
            if (c->region[k].again >= 0)
                rc = bind_again(ex, c, &c->region[k], lf_exec_calls(ex, (int)chain, slot, 0),
                                &bc->again[(size_t)slot * c->n_regions + k], err);
    return bc->again ? rc : LF_ENOMEM;
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
    x->from = x->to + l->expert;
    x->at = x->from + l->expert;
    for (size_t i = 0; i < ex->p->n_c && rc == 0; i++)
        rc = bind_chain(ex, i, err);
    return rc;
}

/* ---- between ranks ---- */

static int gather(void *user, void *all, size_t bytes, lf_err *err)
{
    const lf_exec *ex = user;
    return ex->comm.experts_gather(ex->comm_user, all, bytes, err);
}

static int exchange(void *user, void *out, const size_t *from, const void *in, const size_t *to,
                    lf_err *err)
{
    const lf_exec *ex = user;
    return ex->comm.experts_exchange(ex->comm_user, out, from, in, to, err);
}

void lf_exec_connect_experts(lf_exec *ex)
{
    struct lf_experts *x = ex->exchange.experts;
    if (!x)
        return;
    x->gather = ex->comm.experts_gather ? gather : NULL;
    x->exchange = ex->comm.experts_exchange ? exchange : NULL;
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
    const struct lf_call *calls =
        lf_exec_calls(ex, (int)(c - ex->p->c), (int)slot, c->o.train ? LF_ACCUM : LF_FIRST);
    const int64_t rounds = x->rounds;
    int rc = 0;
    for (x->round = 1; x->round < rounds && rc == 0; x->round++) {
        rc = run_again(ex, c, r, slot);
        for (int32_t i = r->first; i <= r->last && rc == 0; i++)
            rc = lf_exec_call(ex, &calls[i]);
    }
    x->round = 0;
    return rc;
}

int lf_exec_node(lf_exec *ex, const struct lf_chain *c, const struct lf_call *calls, size_t i)
{
    int rc = lf_exec_call(ex, &calls[i]);
    if (!c->n_regions || rc != 0)
        return rc;
    const struct lf_bound *bc = bound(ex, c);
    const size_t slot = (size_t)(calls - bc->calls) / c->g->n_n / (size_t)bc->variants;
    const struct lf_region *begins = region_at(c, i, false), *ends = region_at(c, i, true);
    const int64_t rounds = ex->exchange.experts->rounds;
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
