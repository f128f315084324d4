/* SPDX-License-Identifier: Apache-2.0
 *
 * Fewer rows than planned: the argument structs of a chain are written again, which takes as long
 * as a kernel's call. */
#include "engine/graph/exec_priv.h"

/* Ops whose activations of so many rows have one for each token, and whose kernels take the rows as
 * they come. */
static bool by_tokens(const lf_graph *g, const struct lf_node *n)
{
    switch (n->op) {
    case LF_OP_LINEAR:
        return g->t[n->in[LINEAR_W]].role == LF_ROLE_PARAM;
    case LF_OP_LINEAR_DX:
        return g->t[n->in[LDX_W]].role == LF_ROLE_PARAM;
    case LF_OP_XENT:
    case LF_OP_LOGP:
    case LF_OP_LOGP_BWD:
        return g->t[n->in[XENT_W]].role == LF_ROLE_PARAM;
    case LF_OP_LINEAR_DW:
        return g->t[n->out[0]].role == LF_ROLE_GRAD;
    case LF_OP_ATTN: /* rows of two axes, and of a table */
        return !n->in[ATTN_APART] && !n->in[ATTN_BIAS];
    default:
        return lf_op_table[n->op].flags & LF_OPF_TOKENS;
    }
}

static bool possible(const lf_exec *ex, const lf_graph *g)
{
    bool yes = !ex->b->ops->capture_begin && !ex->o.poison && !ex->prof;
    for (size_t i = 0; i < g->n_n && yes; i++)
        yes = by_tokens(g, &g->n[i]);
    return yes;
}

static int fill(lf_exec *ex, struct lf_call *call, const struct lf_bind *b,
                const struct lf_chain *c, size_t i, lf_err *err)
{
    return lf_exec_fill_call(ex, (void *)(uintptr_t)call->args, b, c, i, err);
}

int64_t lf_exec_live_rows(lf_exec *ex, int chain, int64_t all, int64_t live)
{
    struct lf_bound *bc = &ex->chain[chain];
    lf_err why = LF_ERR_INIT;
    int64_t rows = (live + LF_LIVE_ROWS - 1) / LF_LIVE_ROWS * LF_LIVE_ROWS;
    if (rows < LF_LIVE_ROWS)
        rows = LF_LIVE_ROWS;
    if (rows > all || !possible(ex, ex->p->c[chain].g))
        rows = all;
    if (rows == (bc->live ? bc->live : all))
        return rows;
    /* A kernel that wants more workspace for fewer rows than for all gets all. */
    if (lf_exec_each_call(ex, (size_t)chain, all, rows, fill, &why)) {
        rows = all;
        lf_exec_each_call(ex, (size_t)chain, 0, 0, fill, &(lf_err){0});
    }
    bc->live = rows == all ? 0 : rows;
    return rows;
}
