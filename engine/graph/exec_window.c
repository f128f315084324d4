/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a chain with windows (plan_window.c): its calls in pieces, and what ranks do with each
 * other between the pieces. A rank that has no micro-batch, or has failed, does the same without
 * the calls, so that the others never wait for it.
 *
 * On a GPU the ranks' part is queued on the second stream, and the streams wait for each other
 * where the events say so; the host waits nowhere (README.md has the order). Each piece is recorded
 * as a graph of its own. What ranks do is in none of them: a rank without a micro-batch does it
 * too, and has no pieces.
 */
#include <stdlib.h>

#include "engine/graph/exec_priv.h"
#include "engine/graph/experts.h"
#include "engine/graph/profile_priv.h"

/* One run of a segment. */
struct run {
    lf_exec *ex;
    const struct lf_chain *c;
    struct lf_bound *bc;
    int chain, slot, variant;
    enum lf_segment seg;
    bool idle; /* no calls: gradients are 0 */
};

int lf_exec_window_bind(lf_exec *ex, size_t chain, lf_err *err)
{
    const struct lf_chain *c = &ex->p->c[chain];
    struct lf_bound *bc = &ex->chain[chain];
    if (!c->n_windows)
        return 0;
    bc->n_parts = c->n_events + 2;
    bc->req = lf_calloc(c->n_windows, sizeof *bc->req, err);
    bc->part =
        lf_calloc(bc->n_parts * (size_t)bc->variants * (size_t)c->o.slots, sizeof *bc->part, err);
    int rc = bc->req && bc->part ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < c->n_windows && rc == 0 && ex->b->ops->comm_mark; i++)
        rc = ex->b->ops->comm_mark(ex->b, i, err); /* made here, not in a step */
    return rc;
}

void lf_exec_window_free(const lf_exec *ex, size_t chain)
{
    struct lf_bound *bc = &ex->chain[chain];
    const size_t n = bc->n_parts * (size_t)bc->variants * (size_t)ex->p->c[chain].o.slots;
    for (size_t i = 0; bc->part && i < n; i++)
        lf_back_forget_captured(ex->b, &bc->part[i]);
    free(bc->part);
    free(bc->req);
}

void *lf_exec_window_addr(const lf_exec *ex, const struct lf_chain *c, int32_t t, size_t node)
{
    const struct lf_tensor *r = &c->g->t[c->g->t[t].root];
    if ((r->role != LF_ROLE_PARAM && r->role != LF_ROLE_GRAD) || r->pkind >= LF_P_KINDS)
        return NULL;
    const struct lf_pgroup *g = &ex->p->ps->g[r->group];
    const struct lf_window *w = g->window[r->pkind] ? lf_chain_window(c, g, r->pkind, node) : NULL;
    return w ? ex->arena + c->arena_off + w->off + g->at[r->pkind] +
                   (size_t)c->g->t[t].root_col * lf_dtype_size((enum lf_dtype)c->g->t[t].dtype)
             : NULL;
}

/* ---- events ---- */

/* A window of this rank. */
struct held {
    const struct lf_unit *u;
    char *block, *mine; /* all of it; of it what is this rank's */
    char *own;          /* this rank's part in the store */
    size_t bytes;       /* of that part */
};

static struct held hold(const struct run *r, const struct lf_window *w)
{
    const lf_plan *p = r->ex->p;
    struct held h = {.u = &p->unit[w->unit]};
    const int kind = w->kind, rank = lf_plan_sum_rank(p, h.u->experts);
    const size_t from = lf_unit_cut(p, h.u, kind, rank);
    h.block = r->ex->arena + r->c->arena_off + w->off;
    h.mine = h.block + from;
    h.own = p->ps->data[kind] + h.u->own[kind];
    h.bytes = lf_unit_cut(p, h.u, kind, rank + 1) - from;
    return h;
}

/* A window's work has been begun, or has failed. */
static int begun(const struct run *r, const struct lf_window *w, int rc, lf_err *err)
{
    const lf_exec *ex = r->ex;
    return rc != 0 || !ex->b->ops->comm_mark
               ? rc
               : ex->b->ops->comm_mark(ex->b, (size_t)(w - r->c->window), err);
}

/* What is computed from here on sees a window's work. */
static int finish(const struct run *r, const struct lf_window *w, struct lf_exec_req *q,
                  const char *what, lf_err *err)
{
    lf_exec *ex = r->ex;
    const struct lf_profile_mark m = lf_profile_begin(ex->o.profile);
    int rc = ex->comm.finish(ex->comm_user, q, err);
    if (rc == 0 && ex->b->ops->comm_wait)
        rc = ex->b->ops->comm_wait(ex->b, (size_t)(w - r->c->window), err);
    lf_profile_end(ex->o.profile, LF_LANE_COMM, what, m);
    return rc;
}

static int gather(const struct run *r, const struct lf_window *w, struct lf_exec_req *q,
                  lf_err *err)
{
    lf_exec *ex = r->ex;
    const struct held h = hold(r, w);
    int rc = ex->o.poison ? lf_exec_poison(ex, h.block, h.u->bytes[w->kind], err) : 0;
    if (rc == 0 && h.bytes)
        rc = ex->b->ops->move(ex->b, h.mine, h.own, h.bytes, err);
    if (rc == 0)
        rc = lf_exec_comm_begin(ex, err);
    if (rc == 0)
        rc = (h.u->experts ? ex->comm.same_begin_gather : ex->comm.begin_gather)(
            ex->comm_user, q, h.block, h.u->part[w->kind], err);
    return begun(r, w, rc, err);
}

static int clear(const struct run *r, const struct lf_window *w, lf_err *err)
{
    const struct held h = hold(r, w);
    return r->ex->b->ops->fill(r->ex->b, h.block, 0, h.u->bytes[w->kind], err);
}

/* A rank without a micro-batch has computed gradients of its experts alone, from rows of others. */
static int sum(const struct run *r, const struct lf_window *w, struct lf_exec_req *q, lf_err *err)
{
    lf_exec *ex = r->ex;
    const struct held h = hold(r, w);
    int rc = r->idle && !h.u->experts ? clear(r, w, err) : 0;
    if (rc == 0)
        rc = lf_exec_comm_begin(ex, err);
    if (rc == 0)
        rc = (h.u->experts ? ex->comm.same_begin_sum : ex->comm.begin_sum)(
            ex->comm_user, q, (float *)(void *)h.own, (const float *)(const void *)h.block,
            h.u->part[w->kind], r->variant == LF_ACCUM, err);
    return begun(r, w, rc, err);
}

static int summed(const struct run *r, const struct lf_window *w, struct lf_exec_req *q,
                  lf_err *err)
{
    lf_exec *ex = r->ex;
    const struct held h = hold(r, w);
    const int rc = finish(r, w, q, "sum gradients", err);
    return rc != 0 || !ex->o.poison ? rc : lf_exec_poison(ex, h.block, h.u->bytes[w->kind], err);
}

static int do_event(const struct run *r, const struct lf_event *e, lf_err *err)
{
    const struct lf_window *w = &r->c->window[e->window];
    struct lf_exec_req *q = &r->bc->req[e->window];
    switch (e->what) {
    case LF_EV_GATHER_NOW:
    case LF_EV_GATHER:
        return gather(r, w, q, err);
    case LF_EV_GATHERED:
        return finish(r, w, q, "gather weights", err);
    case LF_EV_FILL: /* of experts: a rank without a micro-batch may have nodes that it skips */
        return w->fill || r->idle ? clear(r, w, err) : 0;
    case LF_EV_SUM:
        return sum(r, w, q, err);
    default:
        return summed(r, w, q, err);
    }
}

/* ---- pieces ---- */

static int piece(const struct run *r, size_t from, size_t to, size_t part, lf_err *err)
{
    lf_exec *ex = r->ex;
    const struct lf_call *calls = lf_exec_calls(ex, r->chain, r->slot, r->variant);
    struct lf_captured *captured =
        &r->bc->part[(size_t)(r->slot * r->bc->variants + r->variant) * r->bc->n_parts + part];
    if (from >= to)
        return 0;
    if (r->idle) /* no event stands within a region */
        return lf_exec_idle_experts(ex, r->chain, calls, from, to, err);
    if (ex->o.poison)
        return lf_exec_run_poisoned(ex, r->chain, from, to, r->slot, r->variant, err);
    if (ex->prof)
        return lf_prof_segment(ex, r->chain, r->seg, calls, from, to, err);
    return lf_exec_run_nodes(ex, r->chain, calls, from, to, captured, err);
}

static int connected(const lf_exec *ex, lf_err *err)
{
    const bool experts =
        ex->p->ps->layout.expert <= 1 || (ex->comm.same_begin_gather && ex->comm.same_begin_sum);
    return experts && ex->comm.begin_gather && ex->comm.begin_sum && ex->comm.finish
               ? 0
               : lf_fail(err, LF_EINVAL,
                         "executor: the plan is for %d ranks, but nothing connects them",
                         ex->p->ranks.ranks);
}

static int run(const struct run *r, lf_err *err)
{
    const struct lf_chain *c = r->c;
    const bool fwd = r->seg == LF_FWD;
    const size_t end = fwd ? c->g->n_fwd : c->g->n_n;
    size_t at = fwd ? 0 : c->g->n_fwd;
    int rc = connected(r->ex, err);
    for (size_t i = 0; i < c->n_events && rc == 0; i++) {
        const struct lf_event *e = &c->event[i];
        if (((size_t)e->node < c->g->n_fwd) != fwd)
            continue;
        rc = piece(r, at, (size_t)e->node, i, err);
        if (rc == 0)
            rc = do_event(r, e, err);
        at = (size_t)e->node;
    }
    return rc != 0 ? rc : piece(r, at, end, c->n_events + fwd, err);
}

static struct run run_of(lf_exec *ex, int chain, enum lf_segment seg, int slot, int variant)
{
    return (struct run){.ex = ex,
                        .c = &ex->p->c[chain],
                        .bc = &ex->chain[chain],
                        .chain = chain,
                        .slot = slot,
                        .variant = variant,
                        .seg = seg == LF_FWD ? LF_FWD : LF_BWD};
}

int lf_exec_run_windows(lf_exec *ex, int chain, enum lf_segment seg, int slot, int variant,
                        lf_err *err)
{
    const struct run r = run_of(ex, chain, seg, slot, variant);
    return run(&r, err);
}

int lf_exec_idle_slot(lf_exec *ex, int chain, enum lf_segment seg, int slot,
                      enum lf_variant variant, lf_err *err)
{
    struct run r = run_of(ex, chain, seg, slot, (int)variant);
    const int rc = lf_exec_check_held(ex, r.c, err);
    r.idle = true;
    if (rc != 0 || r.c->n_windows)
        return rc != 0 ? rc : run(&r, err);
    const lf_graph *g = r.c->g;
    return lf_exec_idle_experts(ex, chain, lf_exec_calls(ex, chain, slot, (int)variant),
                                seg == LF_FWD          ? 0
                                : seg == LF_BWD_WEIGHT ? g->n_bwd
                                                       : g->n_fwd,
                                seg == LF_FWD         ? g->n_fwd
                                : seg == LF_BWD_INPUT ? g->n_bwd
                                                      : g->n_n,
                                err);
}

int lf_exec_idle(lf_exec *ex, int chain, enum lf_segment seg, enum lf_variant variant, lf_err *err)
{
    return lf_exec_idle_slot(ex, chain, seg, 0, variant, err);
}

/* ---- what no chain has a window for ---- */

int lf_exec_gather_unit(lf_exec *ex, size_t unit, int kind, size_t off, lf_err *err)
{
    struct lf_window w = {.unit = unit, .kind = (uint8_t)kind, .off = off};
    const struct lf_chain nowhere = {.window = &w};
    const struct run r = {.ex = ex, .c = &nowhere};
    struct lf_exec_req q = {0};
    int rc = connected(ex, err);
    if (rc == 0)
        rc = gather(&r, &w, &q, err);
    return rc != 0 ? rc : finish(&r, &w, &q, "gather weights", err);
}
