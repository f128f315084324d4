/* SPDX-License-Identifier: Apache-2.0
 *
 * Running: the step loop walks an array of bound calls. Nothing here allocates, opens, locks or
 * decides after lf_exec_create.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/exec_priv.h"
#include "engine/graph/experts.h"
#include "engine/graph/nvtx.h"
#include "engine/graph/profile_priv.h"

lf_exec *lf_exec_create(lf_plan *p, lf_back *b, const struct lf_exec_opts *opts, lf_err *err)
{
    if (!p->finished) {
        lf_fail(err, LF_EINVAL, "executor: the plan is not finished");
        return NULL;
    }
    lf_exec *ex = lf_calloc(1, sizeof *ex, err);
    if (!ex)
        return NULL;
    ex->p = p;
    ex->b = b;
    if (opts)
        ex->o = *opts;
    ex->nvtx = lf_nvtx_get();
    ex->args = lf_arena_create(err);
    ex->chain = lf_calloc(p->n_c + 1, sizeof *ex->chain, err);
    if (!ex->args || !ex->chain || lf_exec_bind(ex, err) ||
        (ex->o.profile && !(ex->prof = lf_prof_attach(ex, err)))) {
        lf_exec_destroy(ex);
        return NULL;
    }
    return ex;
}

void lf_exec_destroy(lf_exec *ex)
{
    if (!ex)
        return;
    lf_prof_detach(ex->prof);
    for (size_t i = 0; ex->chain && i < ex->p->n_c; i++) {
        struct lf_bound *bc = &ex->chain[i];
        for (int k = 0; bc->captured && k < LF_CAPTURED * bc->variants * ex->p->c[i].o.slots; k++)
            lf_back_forget_captured(ex->b, &bc->captured[k]);
        lf_exec_sum_free(ex, i);
        lf_exec_window_free(ex, i);
        lf_exec_pieces_free(ex, i);
        free(bc->captured);
        free(bc->calls);
    }
    lf_back_forget_captured(ex->b, &ex->opt_captured);
    lf_back_forget_captured(ex->b, &ex->made_captured);
    free(ex->chain);
    free(ex->opt);
    free(ex->copies);
    free(ex->packs);
    free(ex->opt_host);
    lf_arena_destroy(ex->args);
    if (ex->bound_store)
        lf_pstore_unbind(ex->p->ps);
    if (ex->memory)
        ex->b->ops->release(ex->b, ex->memory, ex->p->bytes.total);
    if (ex->host_memory)
        ex->b->ops->release_host(ex->b, ex->host_memory, ex->p->bytes.offloaded);
    free(ex);
}

size_t lf_exec_bytes(const lf_exec *ex)
{
    return lf_pstore_bytes(ex->p->ps) + ex->p->input_bytes + ex->p->state_bytes +
           ex->p->arena_bytes;
}

/* ---- names ---- */

static const struct lf_chain *chain_of(const lf_exec *ex, int chain, int slot, lf_err *err)
{
    if (chain < 0 || (size_t)chain >= ex->p->n_c || slot < 0 || slot >= ex->p->c[chain].o.slots) {
        lf_fail(err, LF_EINVAL, "executor: there is no chain %d with slot %d", chain, slot);
        return NULL;
    }
    return &ex->p->c[chain];
}

static int32_t find_tensor(const struct lf_chain *c, const char *name, bool inputs, bool outputs)
{
    for (size_t i = 1; i < c->g->n_t; i++) {
        const struct lf_tensor *t = &c->g->t[i];
        if (t->parent && !t->is_output)
            continue;
        if (inputs && t->role == LF_ROLE_INPUT && strcmp(t->name, name) == 0)
            return (int32_t)i;
        if (outputs && ((t->is_output && strcmp(t->out_name, name) == 0) ||
                        (t->role == LF_ROLE_STATE && strcmp(t->name, name) == 0)))
            return (int32_t)i;
    }
    return 0;
}

int lf_exec_write(lf_exec *ex, int chain, int slot, const char *name, const void *src, size_t bytes,
                  lf_err *err)
{
    const struct lf_chain *c = chain_of(ex, chain, slot, err);
    if (!c)
        return LF_EINVAL;
    int32_t t = find_tensor(c, name, true, false);
    if (!t)
        return lf_fail(err, LF_ENOENT, "graph %s has no input %s", c->g->name, name);
    size_t want = lf_tensor_bytes(&c->g->t[t]);
    if (bytes != want)
        return lf_fail(err, LF_EINVAL, "graph %s: input %s takes %zu bytes, %zu were given",
                       c->g->name, name, want, bytes);
    return ex->b->ops->copy_in(ex->b, lf_exec_addr(ex, c, slot, t), src, bytes, err);
}

int lf_exec_read(lf_exec *ex, int chain, int slot, const char *name, void *dst, size_t bytes,
                 lf_err *err)
{
    const struct lf_chain *c = chain_of(ex, chain, slot, err);
    if (!c)
        return LF_EINVAL;
    int32_t t = find_tensor(c, name, false, true);
    if (!t)
        return lf_fail(err, LF_ENOENT, "graph %s has no output %s", c->g->name, name);
    size_t have = lf_tensor_bytes(&c->g->t[t]);
    if (bytes > have)
        return lf_fail(err, LF_EINVAL, "graph %s: output %s has %zu bytes, %zu were asked for",
                       c->g->name, name, have, bytes);
    return ex->b->ops->copy_out(ex->b, dst, lf_exec_addr(ex, c, slot, t), bytes, err);
}

void *lf_exec_ptr(lf_exec *ex, int chain, int slot, const char *name)
{
    const struct lf_chain *c = chain_of(ex, chain, slot, NULL);
    return c ? lf_exec_addr(ex, c, slot, find_tensor(c, name, true, true)) : NULL;
}

void *lf_exec_cut(lf_exec *ex, int chain, int slot, const char *name, bool output, size_t *bytes)
{
    const struct lf_chain *c = chain_of(ex, chain, slot, NULL);
    const int32_t t = c ? find_tensor(c, name, !output, output) : 0;
    if (!t)
        return NULL;
    *bytes = lf_tensor_bytes(&c->g->t[t]);
    return lf_exec_addr(ex, c, slot, t);
}

void *lf_exec_state(lf_exec *ex, const char *name)
{
    const int32_t k = lf_plan_table(ex->p, name);
    return k >= 0 && ex->p->tab[k].state ? ex->state + ex->p->tab[k].off : NULL;
}

void *lf_exec_host_ptr(lf_exec *ex, int chain, int slot, const char *name)
{
    return ex->b->ops->host_visible ? lf_exec_ptr(ex, chain, slot, name) : NULL;
}

int lf_exec_record_write(lf_exec *ex, const struct lf_step_record *rec, lf_err *err)
{
    return ex->b->ops->copy_in(ex->b, ex->rec, rec, sizeof *rec, err);
}

int lf_exec_record_read(lf_exec *ex, struct lf_step_record *rec, lf_err *err)
{
    return ex->b->ops->copy_out(ex->b, rec, ex->rec, sizeof *rec, err);
}

int lf_exec_record_begin(lf_exec *ex, lf_err *err)
{
    return ex->b->ops->late_begin(ex->b, 0, ex->rec, sizeof *ex->rec, err);
}

int lf_exec_record_end(lf_exec *ex, struct lf_step_record *rec, lf_err *err)
{
    return ex->b->ops->late_end(ex->b, 0, rec, sizeof *rec, err);
}

int lf_exec_loss_limit(lf_exec *ex, double limit, lf_err *err)
{
    return ex->b->ops->copy_in(ex->b, &ex->rec->loss_limit, &limit, sizeof limit, err);
}

struct lf_step_record *lf_exec_record_ptr(lf_exec *ex)
{
    return ex->rec;
}

/* ---- the step ---- */

const struct lf_call *lf_exec_calls(const lf_exec *ex, int chain, int slot, int variant)
{
    const struct lf_bound *bc = &ex->chain[chain];
    size_t n = ex->p->c[chain].g->n_n;
    return bc->calls +
           ((size_t)slot * (size_t)bc->variants + (size_t)(variant < bc->variants ? variant : 0)) *
               n;
}

int lf_exec_call_failed(const lf_exec *ex, const struct lf_chain *c, size_t node, int rc,
                        lf_err *err)
{
    char text[600], why[320];
    if (ex->exchange.err.rc) { /* a node of a layout */
        if (err)
            *err = ex->exchange.err;
        return ex->exchange.err.rc;
    }
    lf_exec_why(ex, why, sizeof why);
    return lf_fail(err, rc == LF_K_EINVAL ? LF_EINVAL : LF_EDEVICE,
                   "graph %s, node %zu: %s failed on %s%s", c->g->name, node,
                   lf_node_text(c->g, &c->g->n[node], text, sizeof text), ex->b->kernels->family,
                   why);
}

static int run_calls(lf_exec *ex, const struct lf_call *calls, size_t n, const char *what,
                     lf_err *err)
{
    char why[320];
    if (ex->prof)
        return lf_prof_calls(ex, calls, n, what, err);
    for (size_t i = 0; i < n; i++) {
        int rc = lf_exec_call(ex, &calls[i]);
        if (rc == 0)
            continue;
        lf_exec_why(ex, why, sizeof why);
        return lf_fail(err, rc == LF_K_EINVAL ? LF_EINVAL : LF_EDEVICE, "%s: kernel %s failed%s",
                       what, lf_kernel_table[calls[i].kernel].name, why);
    }
    return 0;
}

int lf_exec_refresh(lf_exec *ex, lf_err *err)
{
    lf_pstore *ps = ex->p->ps;
    int rc = 0;
    if (ps->copy_version != ps->version && ex->n_copies)
        rc = run_calls(ex, ex->copies, ex->n_copies, "refresh of copies", err);
    if (rc == 0)
        ps->copy_version = ps->version;
    if (rc == 0 && ps->pack_version != ps->version && ex->n_packs)
        rc = run_calls(ex, ex->packs, ex->n_packs, "refresh of panels", err);
    if (rc == 0)
        ps->pack_version = ps->version;
    return rc;
}

struct calls {
    size_t from, to; /* of the optimizer's */
};

static int issue_optimizer(lf_exec *ex, const void *what, lf_err *err)
{
    const struct calls *c = what;
    return run_calls(ex, ex->opt + c->from, c->to - c->from, "optimizer", err);
}

/* Where ranks divide the norm, and with zero the update: what a rank updates, then what the others
 * did, then what is made of all of it. */
static int update_divided(lf_exec *ex, lf_err *err)
{
    const size_t first = ex->p->n_sums > 0;
    const struct calls norm = {0, first}, update = {first, ex->n_update},
                       made = {ex->n_update, ex->n_opt};
    int rc = first ? issue_optimizer(ex, &norm, err) : 0;
    if (rc == 0 && first)
        rc = lf_exec_sum_blocks(ex, err);
    if (rc == 0)
        rc = lf_exec_end_tied(ex, LF_TIED_LENT, err);
    if (rc == 0)
        rc = lf_exec_run_captured(ex, &ex->opt_captured, issue_optimizer, &update, err);
    if (rc == 0)
        rc = lf_exec_end_tied(ex, LF_TIED_OWN, err);
    if (rc == 0 && ex->p->sharded)
        rc = lf_exec_gather(ex, err);
    return rc != 0 || made.from == made.to
               ? rc
               : lf_exec_run_captured(ex, &ex->made_captured, issue_optimizer, &made, err);
}

static int run_optimizer(lf_exec *ex, lf_err *err)
{
    lf_pstore *ps = ex->p->ps;
    if (!ex->p->has_opt)
        return lf_fail(err, LF_EINVAL, "executor: the plan has no optimizer");
    bool current = ps->copy_version == ps->version;
    int rc = lf_exec_sum(ex, err);
    if (rc != 0)
        return rc;
    const struct calls all = {0, ex->n_opt};
    rc = ex->p->sharded || ex->p->n_sums
             ? update_divided(ex, err)
             : lf_exec_run_captured(ex, &ex->opt_captured, issue_optimizer, &all, err);
    ps->version++;
    /* adamw rounded the copies of what it changed, and the 8-bit ones were made after it */
    if (current)
        ps->copy_version = ps->version;
    return rc;
}

struct segment {
    const struct lf_chain *chain;
    const struct lf_call *calls;
    size_t from, to;
};

static int issue_segment(lf_exec *ex, const void *what, lf_err *err)
{
    const struct segment *s = what;
    for (size_t i = s->from; i < s->to; i++) {
        int rc = lf_exec_node(ex, s->chain, s->calls, i);
        if (rc != 0)
            return lf_exec_call_failed(ex, s->chain, i, rc, err);
    }
    return 0;
}

int lf_exec_run_nodes(lf_exec *ex, int chain, const struct lf_call *calls, size_t from, size_t to,
                      struct lf_captured *captured, lf_err *err)
{
    struct lf_bound *bc = &ex->chain[chain];
    struct segment what = {&ex->p->c[chain], calls, from, to};
    int rc = 0;
    if (!bc->edge)
        return lf_exec_run_captured(ex, captured, issue_segment, &what, err);
    struct lf_captured *between = bc->between + (calls - bc->calls);
    for (; what.from < to && rc == 0; what.from = what.to) {
        what.to = lf_exec_piece_end(bc, what.from, to);
        rc = bc->edge[what.from] == LF_EDGE_ALONE
                 ? issue_segment(ex, &what, err)
                 : lf_exec_run_captured(ex, &between[what.from], issue_segment, &what, err);
    }
    return rc;
}

/* The nodes of a segment, and which of LF_CAPTURED it is; -1: the chain has no such segment. */
static int nodes_of(const struct lf_chain *c, enum lf_segment seg, size_t *from, size_t *to)
{
    const lf_graph *g = c->g;
    *from = seg == LF_FWD ? 0 : seg == LF_BWD_WEIGHT ? g->n_bwd : g->n_fwd;
    *to = seg == LF_FWD ? g->n_fwd : seg == LF_BWD_INPUT ? g->n_bwd : g->n_n;
    switch (seg) {
    case LF_FWD:
        return 0;
    case LF_BWD:
    case LF_BWD_LAST:
        return c->o.train ? 1 : -1;
    case LF_BWD_INPUT:
        return c->o.split ? 2 : -1;
    case LF_BWD_WEIGHT:
        return c->o.split ? 3 : -1;
    default:
        return -1;
    }
}

static int run_one(lf_exec *ex, int chain, enum lf_segment seg, int slot, enum lf_variant variant,
                   lf_err *err)
{
    if (chain == LF_CHAIN_OPT)
        return run_optimizer(ex, err);
    const struct lf_chain *c = chain_of(ex, chain, slot, err);
    if (!c)
        return LF_EINVAL;
    size_t from, to;
    const int piece = nodes_of(c, seg, &from, &to);
    if (piece < 0)
        return lf_fail(err, LF_EINVAL, "graph %s has no such segment", c->g->name);
    int rc = lf_exec_sum_end(ex, err); /* of a step that was given up */
    if (rc == 0)
        rc = lf_exec_check_held(ex, c, err);
    if (rc != 0)
        return rc;
    const lf_pstore *ps = ex->p->ps;
    if ((ps->copy_version != ps->version || ps->pack_version != ps->version) && !ex->o.no_refresh) {
        rc = lf_exec_refresh(ex, err);
        if (rc != 0)
            return rc;
    }
    const int v = (int)variant < ex->chain[chain].variants ? (int)variant : 0;
    if (ex->o.poison)
        rc = lf_exec_poison_start(ex, c, slot, seg == LF_FWD, err);
    if (rc != 0 || c->n_windows)
        return rc != 0 ? rc : lf_exec_run_windows(ex, chain, seg, slot, v, err);
    if (seg == LF_BWD_LAST && lf_exec_sums_early(ex, chain))
        return lf_exec_run_last(ex, chain, slot, v, err);
    if (ex->o.poison)
        return lf_exec_run_poisoned(ex, chain, from, to, slot, variant, err);
    const struct lf_call *calls = lf_exec_calls(ex, chain, slot, variant);
    if (ex->prof)
        return lf_prof_segment(ex, chain, seg, calls, from, to, err);
    struct lf_bound *bc = &ex->chain[chain];
    return lf_exec_run_nodes(ex, chain, calls, from, to,
                             &bc->captured[LF_CAPTURED * (slot * bc->variants + v) + piece], err);
}

/* In a named range where a tool looks on. */
int lf_exec_run(lf_exec *ex, int chain, enum lf_segment seg, int slot, enum lf_variant variant,
                lf_err *err)
{
    char name[96];
    if (!ex->nvtx)
        return run_one(ex, chain, seg, slot, variant, err);
    if (chain >= 0 && (size_t)chain < ex->p->n_c)
        snprintf(name, sizeof name, "%s %s", ex->p->c[chain].g->name,
                 seg == LF_FWD          ? "forward"
                 : seg == LF_BWD_INPUT  ? "backward, inputs"
                 : seg == LF_BWD_WEIGHT ? "backward, weights"
                                        : "backward");
    else
        snprintf(name, sizeof name, "optimizer");
    ex->nvtx->push(name);
    int rc = run_one(ex, chain, seg, slot, variant, err);
    ex->nvtx->pop();
    return rc;
}

int lf_exec_run_program(lf_exec *ex, const struct lf_program_item *items, size_t n, lf_err *err)
{
    for (size_t i = 0; i < n; i++) {
        int rc =
            lf_exec_run(ex, items[i].chain, items[i].seg, items[i].slot, items[i].variant, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}
