/* SPDX-License-Identifier: Apache-2.0
 *
 * 8-bit products: each of the three products of a marked weight reads e4m3 (or e5m2) copies of its
 * factors. Tensor cores want both factors with the summed dimension in the fast direction, so
 *
 *     y  = x w^T       reads  x   [R, K]  and  w   [N, K]
 *     dx = dy w        reads  dy  [R, N]  and  w^T [K, N]
 *     dw = dy^T x      reads  dy^T [N, R] and  x^T [K, R]
 *
 * An activation is quantised by one node, shared by all its readers, which makes the copy, the
 * transposed copy or both as they are wanted; weights' copies lie in the store (LF_P_Q, LF_P_QT).
 * Of an activation the backward then saves one byte an element instead of two.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/priv.h"

struct pass {
    lf_graph *g;
    bool blocks;
    int32_t *quant; /* per tensor: 1 + its quantising node in out, 0 none yet */
    struct lf_nodes out;
    size_t done; /* nodes that are 8-bit products now */
};

/* A factor: its values and their scales. */
struct factor {
    int32_t q, s;
};

static int32_t new_tensor(struct pass *p, enum lf_dtype type, int64_t rows, int64_t cols,
                          int32_t of, const char *what)
{
    int32_t t = lf_tensor_new(p->g, type, LF_ROLE_ACT, rows, cols, "%s.%s", p->g->t[of].name, what);
    if (t)
        p->g->t[t].fixed = true;
    return t;
}

/* Activation or gradient t, or its transpose, for a node of that block. */
static struct factor quantised(struct pass *p, int32_t t, bool transposed, enum lf_dtype type,
                               int32_t block)
{
    const int64_t rows = transposed ? p->g->t[t].cols : p->g->t[t].rows,
                  cols = transposed ? p->g->t[t].rows : p->g->t[t].cols;
    const enum lf_fp8_scaling s = p->blocks ? LF_FP8_VEC128 : LF_FP8_TENSOR;
    const int q_slot = transposed ? QUANT_QT : QUANT_Q,
              s_slot = transposed && p->blocks ? QUANT_TS : QUANT_S;
    if (!p->quant[t]) {
        const struct lf_node n = {
            .op = LF_OP_QUANTISE, .block = block, .in = {t}, .a = {.blocks = p->blocks}};
        if (!lf_nodes_push(p->g, &p->out, &n))
            return (struct factor){0, 0};
        p->quant[t] = (int32_t)p->out.count;
    }
    struct lf_node *n = &p->out.n[p->quant[t] - 1];
    if (!n->out[q_slot])
        n->out[q_slot] = new_tensor(p, type, rows, cols, t, transposed ? "fp8_t" : "fp8");
    if (!n->out[s_slot])
        n->out[s_slot] = new_tensor(p, LF_F32, 1, lf_fp8_scales(rows, cols, s), t,
                                    transposed ? "fp8_scale_t" : "fp8_scale");
    return (struct factor){n->out[q_slot], n->out[s_slot]};
}

static struct factor weight(struct pass *p, int32_t w, bool transposed)
{
    lf_graph *g = p->g;
    const int64_t rows = transposed ? g->t[w].cols : g->t[w].rows,
                  cols = transposed ? g->t[w].rows : g->t[w].cols;
    const int64_t scales = lf_fp8_scales(rows, cols, p->blocks ? LF_FP8_BLK128 : LF_FP8_TENSOR);
    return (struct factor){
        lf_graph_derived(g, w, LF_ROLE_PARAM, transposed ? LF_P_QT : LF_P_Q, LF_E4M3, rows, cols),
        lf_graph_derived(g, w, LF_ROLE_PARAM, transposed && p->blocks ? LF_P_QTS : LF_P_QS, LF_F32,
                         1, scales)};
}

/* The marked weight that a node is about: 0 for any other node. */
static int32_t marked(const lf_graph *g, const struct lf_node *n)
{
    const int32_t w = n->op == LF_OP_LINEAR      ? n->in[LINEAR_W]
                      : n->op == LF_OP_LINEAR_DX ? n->in[LDX_W]
                      : n->op == LF_OP_LINEAR_DW ? n->out[0]
                                                 : 0;
    const bool stored = w && (g->t[w].role == LF_ROLE_PARAM || g->t[w].role == LF_ROLE_GRAD);
    return stored && g->ps->g[g->t[w].group].fp8 ? w : 0;
}

/* What the library asks of the dimensions, said with the group's name. */
static bool fits(struct pass *p, int32_t w, int32_t rows_of)
{
    const struct lf_tensor *t = &p->g->t[w];
    const int64_t grain = p->blocks ? LF_FP8_BLOCK : 16, rows = p->g->t[rows_of].rows;
    if (t->rows % grain == 0 && t->cols % grain == 0 && rows % grain == 0)
        return true;
    lf_graph_fail(p->g, LF_ENOTSUP,
                  "precision fp8: %s [%lld, %lld] times %lld rows of a micro-batch: with scales of "
                  "%s each of these "
                  "must be a multiple of "
                  "%lld; leave the layers out or change the sizes",
                  p->g->ps->g[t->group].name, (long long)t->rows, (long long)t->cols,
                  (long long)rows, p->blocks ? "blocks" : "tensors", (long long)grain);
    return false;
}

static void convert(struct pass *p, struct lf_node *n, int32_t w)
{
    const enum lf_dtype grad = p->blocks ? LF_E4M3 : LF_E5M2;
    struct factor a, b;
    int a_slot = LINEAR_X, b_slot = LINEAR_W, as = LINEAR_XS, bs = LINEAR_WS;
    if (!fits(p, w, n->in[0]))
        return;
    if (n->op == LF_OP_LINEAR) {
        a = quantised(p, n->in[LINEAR_X], false, LF_E4M3, n->block);
        b = weight(p, w, false);
        n->op = LF_OP_LINEAR_FP8;
    } else if (n->op == LF_OP_LINEAR_DX) {
        a = quantised(p, n->in[LDX_DY], false, grad, n->block);
        b = weight(p, w, true);
        a_slot = LDX_DY, b_slot = LDX_W, as = LDX_DYS, bs = LDX_WS;
        n->op = LF_OP_LINEAR_DX_FP8;
    } else {
        a = quantised(p, n->in[LDW_DY], true, grad, n->block);
        b = quantised(p, n->in[LDW_X], true, LF_E4M3, n->block);
        a_slot = LDW_DY, b_slot = LDW_X, as = LDW_DYS, bs = LDW_XS;
        n->op = LF_OP_LINEAR_DW_FP8;
    }
    n->in[a_slot] = a.q;
    n->in[b_slot] = b.q;
    n->in[as] = a.s;
    n->in[bs] = b.s;
    n->a.blocks = p->blocks;
    p->done++;
}

int lf_fp8_pass(lf_graph *g, enum lf_fp8 fp8, lf_err *err)
{
    struct pass p = {.g = g, .blocks = fp8 == LF_FP8_BLOCKS};
    int rc = lf_graph_check(g, err);
    if (rc != 0 || fp8 == LF_FP8_OFF)
        return rc;
    p.quant = lf_calloc(g->n_t, sizeof *p.quant, err);
    if (!p.quant)
        return LF_ENOMEM;
    const size_t n_fwd = g->n_fwd;
    size_t new_fwd = 0;
    for (size_t i = 0; i < g->n_n && !g->err.rc; i++) {
        struct lf_node n = g->n[i];
        const int32_t w = marked(g, &n);
        if (i == n_fwd)
            new_fwd = p.out.count;
        if (w)
            convert(&p, &n, w);
        lf_nodes_push(g, &p.out, &n);
    }
    if (n_fwd == g->n_n)
        new_fwd = p.out.count;
    if (!p.done && !lf_graph_is_cut(g)) /* else the marked layers may be in another graph */
        lf_graph_fail(g, LF_EINVAL, "precision fp8: no product of this graph is marked for it");
    rc = lf_nodes_take(g, &p.out, new_fwd, err);
    free(p.quant);
    return rc;
}
