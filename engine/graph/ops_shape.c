/* SPDX-License-Identifier: Apache-2.0
 *
 * Shape rules: each checks the inputs of one op and makes its outputs. A failure names the op, the
 * tensors and their shapes.
 */
#include <math.h>

#include "engine/graph/priv.h"

static const char *op_name(const struct lf_node *n)
{
    return lf_op_table[n->op].name;
}

static int bad(lf_graph *g, const struct lf_node *n, int32_t a, int32_t b, const char *why)
{
    const struct lf_tensor *ta = &g->t[a], *tb = &g->t[b];
    if (!b)
        return lf_graph_fail(g, LF_EINVAL, "%s: %s [%lld, %lld]: %s", op_name(n), ta->name,
                             (long long)ta->rows, (long long)ta->cols, why);
    return lf_graph_fail(g, LF_EINVAL, "%s: %s [%lld, %lld] and %s [%lld, %lld]: %s", op_name(n),
                         ta->name, (long long)ta->rows, (long long)ta->cols, tb->name,
                         (long long)tb->rows, (long long)tb->cols, why);
}

static int need(lf_graph *g, const struct lf_node *n, int slot, const char *what)
{
    return n->in[slot] ? 0 : lf_graph_fail(g, LF_EINVAL, "%s: %s is missing", op_name(n), what);
}

/* A float matrix: an activation, or an input or state of float type. */
static int need_float(lf_graph *g, const struct lf_node *n, int slot, const char *what)
{
    if (need(g, n, slot, what))
        return LF_EINVAL;
    const struct lf_tensor *t = &g->t[n->in[slot]];
    if (!lf_is_float(t->dtype) || t->role == LF_ROLE_PARAM)
        return bad(g, n, n->in[slot], 0, "an activation is needed here");
    return 0;
}

static int need_index(lf_graph *g, const struct lf_node *n, int slot, enum lf_dtype dt,
                      int64_t rows, const char *what)
{
    if (need(g, n, slot, what))
        return LF_EINVAL;
    const struct lf_tensor *t = &g->t[n->in[slot]];
    if (t->dtype != dt || t->parent || (rows > 0 && t->rows != rows))
        return bad(g, n, n->in[slot], n->in[0], what);
    return 0;
}

static int need_param(lf_graph *g, const struct lf_node *n, int slot, int64_t rows, int64_t cols,
                      const char *what)
{
    if (!n->in[slot])
        return 0;
    const struct lf_tensor *t = &g->t[n->in[slot]];
    if (t->role != LF_ROLE_PARAM || (rows > 0 && t->rows != rows) || (cols > 0 && t->cols != cols))
        return bad(g, n, n->in[slot], n->in[0], what);
    return 0;
}

/* Was it made of a parameter, by lf_unit_rows or as a rank's rows? */
static bool made_of_param(const lf_graph *g, const struct lf_tensor *t)
{
    return t->producer >= 0 && !t->parent &&
           (g->n[t->producer].op == LF_OP_UNIT_ROWS || g->n[t->producer].op == LF_OP_TP_OWN);
}

/* A weight: a parameter, or made of one. rows, cols 0: as many as there are. */
static int need_weight(lf_graph *g, const struct lf_node *n, int slot, int64_t rows, int64_t cols,
                       const char *what)
{
    const struct lf_tensor *t = &g->t[n->in[slot]];
    return n->in[slot] && made_of_param(g, t) && (!rows || t->rows == rows) &&
                   (!cols || t->cols == cols)
               ? 0
               : need_param(g, n, slot, rows, cols, what);
}

static int make(lf_graph *g, struct lf_node *n, int slot, int64_t rows, int64_t cols,
                const char *suffix)
{
    n->out[slot] = lf_tensor_new(g, LF_F32, LF_ROLE_ACT, rows, cols, "%s%s.%zu", op_name(n), suffix,
                                 g->n_n - 1);
    return n->out[slot] ? 0 : g->err.rc;
}

static int make_fixed(lf_graph *g, struct lf_node *n, int slot, enum lf_dtype dt, int64_t rows,
                      int64_t cols, const char *suffix)
{
    int rc = make(g, n, slot, rows, cols, suffix);
    if (rc != 0)
        return rc;
    g->t[n->out[slot]].dtype = (uint8_t)dt;
    g->t[n->out[slot]].fixed = true;
    return 0;
}

LF_SHAPE(embed)
{
    int32_t table = n->in[EMBED_WTE] ? n->in[EMBED_WTE] : n->in[EMBED_WPE];
    if (need(g, n, EMBED_TOKEN, "token") || (!table && need(g, n, EMBED_WTE, "wte")))
        return LF_EINVAL;
    int64_t rows = g->t[n->in[EMBED_TOKEN]].rows, c = g->t[table].cols;
    if (need_index(g, n, EMBED_TOKEN, LF_I32, 0, "token must be i32 [R, 1]") ||
        need_param(g, n, EMBED_WTE, 0, 0, "wte must be a parameter [V, C]") ||
        need_param(g, n, EMBED_WPE, 0, c, "wpe must be a parameter [max_pos, C]"))
        return LF_EINVAL;
    if (n->in[EMBED_WPE] &&
        need_index(g, n, EMBED_POS, LF_I32, rows, "position must be i32 [R, 1]"))
        return LF_EINVAL;
    return make(g, n, 0, rows, c, "");
}

LF_SHAPE(linear)
{
    if (need_float(g, n, LINEAR_X, "x") || need(g, n, LINEAR_W, "w"))
        return LF_EINVAL;
    const struct lf_tensor *x = &g->t[n->in[LINEAR_X]], *w = &g->t[n->in[LINEAR_W]];
    int64_t rows = x->rows, out = w->rows;
    if (need_weight(g, n, LINEAR_W, 0, x->cols,
                    "w [N, K] must be a parameter with K columns like x") ||
        need_param(g, n, LINEAR_BIAS, 1, out,
                   "bias must be a parameter vector with one element per row of w"))
        return LF_EINVAL;
    return make(g, n, LINEAR_Y, rows, out, "");
}

/* Sums of a layer norm's rows, from which the mean follows; 0: there are none. */
static int need_total_x(lf_graph *g, const struct lf_node *n, int slot, int64_t rows)
{
    return n->in[slot] ? need_index(g, n, slot, LF_F32, rows, "the sums of rows must be f32 [R, 1]")
                       : 0;
}

LF_SHAPE(norm)
{
    if (need_float(g, n, NORM_X, "x"))
        return LF_EINVAL;
    const struct lf_tensor *x = &g->t[n->in[NORM_X]];
    int64_t rows = x->rows, cols = x->cols;
    int32_t heads = n->a.heads;
    if (heads < 1 || cols % heads)
        return bad(g, n, n->in[NORM_X], 0, "its columns do not divide into the heads");
    const int64_t own = n->a.each ? cols : cols / heads;
    if (need_param(g, n, NORM_W, 1, own,
                   n->a.each ? "w must be a parameter vector of the width of x"
                             : "w must be a parameter vector of a head's width") ||
        need_param(g, n, NORM_B, 1, own,
                   n->a.each ? "b must be a parameter vector of the width of x"
                             : "b must be a parameter vector of a head's width"))
        return LF_EINVAL;
    if (!(n->a.eps >= 0))
        return lf_graph_fail(g, LF_EINVAL, "norm: eps must not be negative");
    if (n->a.affine && (!n->a.layer || n->in[NORM_DELTA] || n->in[NORM_TOTAL]))
        return lf_graph_fail(g, LF_EINVAL, "norm: an affine one is a layer norm of whole rows");
    if (n->in[NORM_B] && !n->a.layer)
        return lf_graph_fail(g, LF_EINVAL, "norm: an RMS norm has no bias (%s)",
                             g->t[n->in[NORM_B]].name);
    if (n->in[NORM_TOTAL] &&
        (need_index(g, n, NORM_TOTAL, LF_F32, rows, "the sums of squares must be f32 [R, 1]") ||
         need_total_x(g, n, NORM_TOTAL_X, rows) || heads > 1 ||
         (n->in[NORM_TOTAL_X] != 0) != n->a.layer))
        return bad(g, n, n->in[NORM_TOTAL], 0, "only a norm of whole rows is divided");
    if (make(g, n, NORM_Y, rows, cols, "") ||
        make_fixed(g, n, NORM_RSTD, LF_F32, rows, heads, ".rstd"))
        return g->err.rc;
    return n->a.layer ? make_fixed(g, n, NORM_MEAN, LF_F32, rows, heads, ".mean") : 0;
}

LF_SHAPE(norm_part)
{
    if (need_float(g, n, 0, "x") || need_total_x(g, n, 1, g->t[n->in[0]].rows))
        return LF_EINVAL;
    return make_fixed(g, n, 0, LF_F32, g->t[n->in[0]].rows, 1, "");
}

LF_SHAPE(unit_rows)
{
    if (need(g, n, 0, "w") || need_param(g, n, 0, 0, 0, "w must be a parameter matrix"))
        return LF_EINVAL;
    return make(g, n, 0, g->t[n->in[0]].rows, g->t[n->in[0]].cols, "");
}

LF_SHAPE(rope)
{
    if (need_float(g, n, ROPE_X, "x"))
        return LF_EINVAL;
    const struct lf_tensor *x = &g->t[n->in[ROPE_X]];
    int64_t rows = x->rows, cols = x->cols;
    if (n->a.heads < 1 || cols % n->a.heads || n->a.rot < 2 || n->a.rot % 2 || n->a.at < 0 ||
        n->a.at + (int64_t)n->a.rot > cols / n->a.heads)
        return bad(g, n, n->in[ROPE_X], 0,
                   "heads must divide its columns, and an even number of channels of a head turn");
    if (need_index(g, n, ROPE_POS, LF_I32, rows, "position must be i32 [R, 1]") ||
        need_index(g, n, ROPE_COS, LF_F32, 0, "cos must be an f32 table") ||
        need_index(g, n, ROPE_SIN, LF_F32, 0, "sin must be an f32 table") ||
        (n->in[ROPE_POS2] &&
         need_index(g, n, ROPE_POS2, LF_I32, rows, "the second position must be i32 [R, 1]")))
        return LF_EINVAL;
    if (n->in[ROPE_AXIS]
            ? need_index(g, n, ROPE_AXIS, LF_I32, n->a.rot / 2, "axis must be i32 [rot / 2, 1]") ||
                  n->in[ROPE_POS2] || g->t[n->in[ROPE_POS]].cols != 3
            : g->t[n->in[ROPE_POS]].cols != 1)
        return bad(g, n, n->in[ROPE_POS], n->in[ROPE_AXIS],
                   "axes choose from three positions of a row, and there is one without them");
    if (n->in[ROPE_POS2] && n->a.heads % 2)
        return bad(g, n, n->in[ROPE_X], 0, "two positions turn heads in pairs");
    const struct lf_tensor *c = &g->t[n->in[ROPE_COS]], *s = &g->t[n->in[ROPE_SIN]];
    if (c->cols != n->a.rot / 2 || s->cols != c->cols || s->rows != c->rows)
        return bad(g, n, n->in[ROPE_COS], n->in[ROPE_SIN], "both must be [max_pos, rot / 2]");
    return make(g, n, 0, rows, cols, "");
}

LF_SHAPE(heads_join)
{
    if (need_float(g, n, JOIN_X, "x") || need_float(g, n, JOIN_Z, "z"))
        return LF_EINVAL;
    const struct lf_tensor *x = &g->t[n->in[JOIN_X]], *z = &g->t[n->in[JOIN_Z]];
    if (n->a.heads < 1 || x->cols % n->a.heads || z->rows != x->rows)
        return bad(g, n, n->in[JOIN_X], n->in[JOIN_Z],
                   "heads must divide the columns of x, and both have equal rows");
    return make(g, n, 0, x->rows, x->cols + n->a.heads * z->cols, "");
}

LF_SHAPE(heads_linear)
{
    if (need_float(g, n, HEADL_X, "x") || need(g, n, HEADL_W, "w") ||
        need_param(g, n, HEADL_W, 0, 0, "w must be a parameter matrix"))
        return LF_EINVAL;
    const struct lf_tensor *x = &g->t[n->in[HEADL_X]], *w = &g->t[n->in[HEADL_W]];
    const struct lf_attr *a = &n->a;
    if (a->heads < 1 || x->cols % a->heads || a->at < 1 || a->pos_offset < 0 ||
        a->pos_offset + (int64_t)a->heads * a->at > w->rows)
        return bad(g, n, n->in[HEADL_X], n->in[HEADL_W],
                   "heads must divide the columns of x, and w must have the rows of all of them");
    const int64_t in = a->inverse ? a->at : w->cols, out = a->inverse ? w->cols : a->at,
                  tail = x->cols / a->heads - in;
    if (tail < 0)
        return bad(g, n, n->in[HEADL_X], n->in[HEADL_W], "a head has fewer channels than it takes");
    return make(g, n, 0, x->rows, a->heads * (out + tail), "");
}

static int check_heads(lf_graph *g, const struct lf_node *n, int32_t q, int32_t k, int32_t v)
{
    const struct lf_attr *a = &n->a;
    if (a->heads < 1 || a->groups < 1 || a->heads % a->groups)
        return lf_graph_fail(g, LF_EINVAL, "%s: %d heads do not divide into %d groups", op_name(n),
                             a->heads, a->groups);
    if (g->t[q].cols % a->heads)
        return bad(g, n, q, 0, "the heads do not divide its columns");
    if (g->t[k].cols != g->t[q].cols / a->heads * a->groups)
        return bad(g, n, k, q, "keys must have groups * head size columns");
    if (g->t[v].cols % a->groups)
        return bad(g, n, v, 0, "the groups do not divide the columns of the values");
    if (!(a->softcap >= 0))
        return lf_graph_fail(g, LF_EINVAL, "%s: softcap must not be negative", op_name(n));
    return 0;
}

static int check_alibi(lf_graph *g, const struct lf_node *n, int slot)
{
    if (!n->in[slot])
        return 0;
    const struct lf_tensor *t = &g->t[n->in[slot]]; /* of a layout, some columns of the constant */
    if (t->dtype != LF_F32 || t->rows != 1)
        return bad(g, n, n->in[slot], n->in[0], "alibi slopes must be an f32 constant [1, H]");
    return t->cols == n->a.heads ? 0
                                 : bad(g, n, n->in[slot], n->in[0], "one slope per head is needed");
}

static int check_sinks(lf_graph *g, const struct lf_node *n, int slot)
{
    return n->in[slot] ? need_param(g, n, slot, 1, n->a.sinks ? n->a.sinks : n->a.heads,
                                    "sinks must be a parameter with one number per head")
                       : 0;
}

/* What is added by distance: f32, a column for each head. */
static int check_bias(lf_graph *g, const struct lf_node *n, int slot)
{
    if (!n->in[slot])
        return slot == ATTN_BIAS && n->op == LF_OP_ATTN && n->in[ATTN_PLACE]
                   ? lf_graph_fail(g, LF_EINVAL, "%s: place is of a bias, and there is none",
                                   op_name(n))
                   : 0;
    const struct lf_tensor *t = &g->t[n->in[slot]];
    if (!lf_is_float(t->dtype) || t->role == LF_ROLE_PARAM || !t->pinned || t->rows % 2 == 0)
        return bad(g, n, n->in[slot], n->in[0],
                   "a bias must be values [2 n - 1, H] that are pinned to f32");
    return t->cols == n->a.heads
               ? 0
               : bad(g, n, n->in[slot], n->in[0], "one column per head is needed");
}

/* Queries with an axis of their own: nothing of a score may go by positions. */
static int check_apart(lf_graph *g, const struct lf_node *n)
{
    if (!n->in[ATTN_APART])
        return 0;
    if (n->a.causal || n->a.window || n->in[ATTN_ALIBI] || n->in[ATTN_PREFIX] || n->in[ATTN_RUNS] ||
        n->in[ATTN_SINKS] || n->in[ATTN_BIAS] || n->op == LF_OP_CP_ATTN)
        return lf_graph_fail(g, LF_EINVAL,
                             "%s: queries with documents of their own see all keys of theirs: no "
                             "causal, window, alibi, prefix, runs, sinks or bias",
                             op_name(n));
    return need_index(g, n, ATTN_APART, LF_I32, g->t[n->in[ATTN_CU]].rows,
                      "cu_queries must be an i32 input [n_docs + 1, 1]");
}

static int context_ranks(const lf_graph *g)
{
    return g->ps->layout.context > 1 ? g->ps->layout.context : 1;
}

/* Those of them that exchange heads. */
static int head_ranks(const lf_graph *g)
{
    return lf_context_parts(&g->ps->layout).heads;
}

/* Groups of these, which gather keys. */
static int key_ranks(const lf_graph *g)
{
    return lf_context_parts(&g->ps->layout).rows;
}

static int check_runs(lf_graph *g, const struct lf_node *n, int slot, int64_t rows)
{
    const char *what = "runs must be an i32 input [R, 2]";
    if (!n->in[slot])
        return 0;
    if (need_index(g, n, slot, LF_I32, rows, what))
        return LF_EINVAL;
    return g->t[n->in[slot]].cols == 2 ? 0 : bad(g, n, n->in[slot], n->in[0], what);
}

/* Where the rows of ranks are, for keys of all of them. */
static int check_blocks(lf_graph *g, const struct lf_node *n, int64_t own)
{
    const int64_t block = lf_context_block(own), each = block ? (own + block - 1) / block : 0;
    return n->op != LF_OP_CP_ATTN
               ? 0
               : need_index(g, n, ATTN_BLOCKS, LF_I32, each * key_ranks(g),
                            "blocks must be the i32 input of the layout [rows / block, 1]");
}

LF_SHAPE(attn)
{
    if (need_float(g, n, ATTN_Q, "q") || need_float(g, n, ATTN_K, "k") ||
        need_float(g, n, ATTN_V, "v") ||
        check_heads(g, n, n->in[ATTN_Q], n->in[ATTN_K], n->in[ATTN_V]) ||
        need_index(g, n, ATTN_CU, LF_I32, 0, "cu_seqlens must be an i32 input [n_docs + 1, 1]") ||
        check_alibi(g, n, ATTN_ALIBI) || check_sinks(g, n, ATTN_SINKS))
        return LF_EINVAL;
    const struct lf_tensor *q = &g->t[n->in[ATTN_Q]];
    int64_t rows = q->rows, cols = g->t[n->in[ATTN_V]].cols / n->a.groups * n->a.heads;
    const int64_t keys = n->in[ATTN_APART] ? g->t[n->in[ATTN_K]].rows : rows;
    if (g->t[n->in[ATTN_K]].rows != keys || g->t[n->in[ATTN_V]].rows != keys)
        return bad(g, n, n->in[ATTN_Q], n->in[ATTN_K], "q, k and v must have equal rows");
    if (g->t[n->in[ATTN_CU]].rows < 2)
        return bad(g, n, n->in[ATTN_CU], 0, "it needs room for at least one document");
    if (check_bias(g, n, ATTN_BIAS) || check_apart(g, n))
        return LF_EINVAL;
    if (n->in[ATTN_PLACE] && need_index(g, n, ATTN_PLACE, LF_I32, rows, "place must be i32 [R, 1]"))
        return LF_EINVAL;
    if (n->in[ATTN_PREFIX] && need_index(g, n, ATTN_PREFIX, LF_I32, g->t[n->in[ATTN_CU]].rows - 1,
                                         "prefix must be an i32 input [n_docs, 1]"))
        return LF_EINVAL;
    if (check_blocks(g, n, rows) ||
        check_runs(g, n, ATTN_RUNS, n->op == LF_OP_CP_ATTN ? rows * key_ranks(g) : rows))
        return LF_EINVAL;
    if (n->a.p != 0 && !(n->a.p > 0 && n->a.p < 1))
        return lf_graph_fail(g, LF_EINVAL, "attention: dropout must be in [0, 1)");
    if (n->a.p > 0 && (need_index(g, n, ATTN_SAMPLE, LF_I64, rows, "sample must be i64 [R, 1]") ||
                       need_index(g, n, ATTN_POS, LF_I32, rows, "position must be i32 [R, 1]")))
        return LF_EINVAL;
    return make(g, n, ATTN_O, rows, cols, "") ||
                   make_fixed(g, n, ATTN_LSE, LF_F32, n->a.heads, rows < 1 ? 1 : rows, ".lse")
               ? g->err.rc
               : 0;
}

/* Pages of keys of k_cols and values of v_cols columns. */
static int check_pages(lf_graph *g, const struct lf_node *n, const int32_t page[2], int64_t k_cols,
                       int64_t v_cols)
{
    const struct lf_tensor *k = &g->t[page[0]], *v = &g->t[page[1]];
    if (k->role != LF_ROLE_STATE || v->role != LF_ROLE_STATE || k->rows != v->rows ||
        k->cols != k_cols || v->cols != v_cols)
        return bad(g, n, page[0], page[1],
                   "pages must be two states of groups * head size columns");
    if (n->a.page_tokens < LF_ATTN_TILE || n->a.page_tokens % LF_ATTN_TILE ||
        k->rows % n->a.page_tokens)
        return lf_graph_fail(
            g, LF_EINVAL,
            "%s: page of %lld tokens: a multiple of %d that divides the rows of %s is needed",
            op_name(n), (long long)n->a.page_tokens, LF_ATTN_TILE, k->name);
    return 0;
}

LF_SHAPE(kv_write)
{
    if (need_float(g, n, KVW_K, "k") || need_float(g, n, KVW_V, "v"))
        return LF_EINVAL;
    const struct lf_tensor *k = &g->t[n->in[KVW_K]], *v = &g->t[n->in[KVW_V]];
    if (v->rows != k->rows)
        return bad(g, n, n->in[KVW_K], n->in[KVW_V], "k and v must have equal rows");
    if (n->a.groups < 1 || k->cols % n->a.groups || v->cols % n->a.groups)
        return bad(g, n, n->in[KVW_K], n->in[KVW_V], "the groups do not divide their columns");
    if (need_index(g, n, KVW_SEQ, LF_I32, k->rows, "seq must be i32 [R, 1]") ||
        need_index(g, n, KVW_POS, LF_I32, k->rows, "pos must be i32 [R, 1]") ||
        need_index(g, n, KVW_TABLE, LF_I32, 0, "table must be i32 [n_seq, max_pages]"))
        return LF_EINVAL;
    return check_pages(g, n, &n->in[KVW_KP], k->cols, v->cols);
}

LF_SHAPE(attn_paged)
{
    if (need_float(g, n, PAGED_Q, "q") ||
        check_heads(g, n, n->in[PAGED_Q], n->in[PAGED_KP], n->in[PAGED_VP]))
        return g->err.rc;
    const struct lf_tensor *q = &g->t[n->in[PAGED_Q]];
    const int64_t rows = q->rows, keys = q->cols / n->a.heads * n->a.groups,
                  values = g->t[n->in[PAGED_VP]].cols, cols = values / n->a.groups * n->a.heads;
    if (need_index(g, n, PAGED_SEQ, LF_I32, rows, "seq must be i32 [R, 1]") ||
        need_index(g, n, PAGED_POS, LF_I32, rows, "pos must be i32 [R, 1]") ||
        need_index(g, n, PAGED_TABLE, LF_I32, 0, "table must be i32 [n_seq, max_pages]") ||
        check_alibi(g, n, PAGED_ALIBI) || check_sinks(g, n, PAGED_SINKS) ||
        check_bias(g, n, PAGED_BIAS) || check_runs(g, n, PAGED_RUNS, rows) ||
        (n->in[PAGED_PREFIX] &&
         need_index(g, n, PAGED_PREFIX, LF_I32, g->t[n->in[PAGED_TABLE]].rows,
                    "prefix must be an i32 input [n_seq, 1]")) ||
        check_pages(g, n, &n->in[PAGED_KP], keys, values))
        return LF_EINVAL;
    return make(g, n, 0, rows, cols, "");
}

LF_SHAPE(same)
{
    if (need_float(g, n, 0, "x"))
        return LF_EINVAL;
    return make(g, n, 0, g->t[n->in[0]].rows, g->t[n->in[0]].cols, "");
}

LF_SHAPE(glu)
{
    if (need_float(g, n, 0, "gate") || need_float(g, n, 1, "up"))
        return LF_EINVAL;
    const struct lf_tensor *a = &g->t[n->in[0]], *b = &g->t[n->in[1]];
    if (a->rows != b->rows || a->cols != b->cols)
        return bad(g, n, n->in[0], n->in[1], "gate and up must have one shape");
    if (n->in[0] == n->in[1])
        return bad(g, n, n->in[0], n->in[1], "gate and up must be two values");
    if (!(n->a.limit >= 0) || !isfinite(n->a.up_offset))
        return lf_graph_fail(g, LF_EINVAL, "%s: the limit must be 0 or more, the offset finite",
                             op_name(n));
    return make(g, n, 0, a->rows, a->cols, "");
}

LF_SHAPE(add)
{
    if (need_float(g, n, 0, "a") || need_float(g, n, 1, "b"))
        return LF_EINVAL;
    const struct lf_tensor *a = &g->t[n->in[0]], *b = &g->t[n->in[1]];
    if (a->rows != b->rows || a->cols != b->cols)
        return bad(g, n, n->in[0], n->in[1], "both must have one shape");
    return make(g, n, 0, a->rows, a->cols, "");
}

LF_SHAPE(dropout)
{
    if (need_float(g, n, DROP_X, "x"))
        return LF_EINVAL;
    int64_t rows = g->t[n->in[DROP_X]].rows;
    if (!(n->a.p > 0 && n->a.p < 1))
        return lf_graph_fail(g, LF_EINVAL, "dropout: p must be in [0, 1)");
    if (need_index(g, n, DROP_SAMPLE, LF_I64, rows, "sample must be i64 [R, 1]") ||
        need_index(g, n, DROP_POS, LF_I32, rows, "position must be i32 [R, 1]"))
        return LF_EINVAL;
    return make(g, n, 0, rows, g->t[n->in[DROP_X]].cols, "");
}

LF_SHAPE(gather)
{
    if (need_float(g, n, 0, "x") || need_index(g, n, 1, LF_I32, 0, "index must be i32 [R, 1]"))
        return LF_EINVAL;
    return make(g, n, 0, g->t[n->in[1]].rows, g->t[n->in[0]].cols, "");
}

/* Results that are f32 in every precision, and so are their gradients. */
static int make_f32(lf_graph *g, struct lf_node *n, int slot, int64_t rows, int64_t cols,
                    const char *suffix)
{
    int rc = make_fixed(g, n, slot, LF_F32, rows, cols, suffix);
    if (rc == 0)
        g->t[n->out[slot]].pinned = true;
    return rc;
}

/* What the loss and log-probabilities read: x, the output layer, targets. */
static int need_head(lf_graph *g, struct lf_node *n)
{
    if (need_float(g, n, XENT_X, "x") || need(g, n, XENT_W, "w"))
        return LF_EINVAL;
    const struct lf_tensor *x = &g->t[n->in[XENT_X]];
    int64_t rows = x->rows, v = g->t[n->in[XENT_W]].rows;
    if (need_weight(g, n, XENT_W, 0, x->cols,
                    "w [V, K] must be a parameter with K columns like x") ||
        need_param(g, n, XENT_BIAS, 1, v, "bias must be a parameter vector [V]") ||
        need_index(g, n, XENT_TARGET, LF_I32, rows, "target must be i32 [R, 1]"))
        return LF_EINVAL;
    if (n->in[XENT_BIAS] && g->t[n->in[XENT_W]].role != LF_ROLE_PARAM)
        return bad(g, n, n->in[XENT_W], n->in[XENT_BIAS], "a computed weight takes no bias");
    if (n->a.v_real == 0 && !n->a.v_all)
        n->a.v_real = v;
    if (n->a.v_real < (n->a.v_all ? 0 : 1) || n->a.v_real > v)
        return lf_graph_fail(g, LF_EINVAL, "%s: %lld real columns of %lld", op_name(n),
                             (long long)n->a.v_real, (long long)v);
    return 0;
}

LF_SHAPE(xent)
{
    const int last = g->xent < 0 ? -1 : g->n[g->xent].a.head;
    if (n->a.head != last + 1 || n->a.head > LF_MORE_HEADS)
        return lf_graph_fail(g, LF_EINVAL,
                             "xent: a graph has one loss, and behind it at most %d of further "
                             "heads in their order; head %d follows %d",
                             LF_MORE_HEADS, n->a.head, last);
    int rc = need_head(g, n);
    if (rc != 0)
        return rc;
    int64_t rows = g->t[n->in[XENT_X]].rows;
    if (make_fixed(g, n, XENT_LOSS, LF_F32, rows, 1, ".loss") ||
        make_fixed(g, n, XENT_LSE, LF_F32, rows, 1, ".lse") ||
        make_fixed(g, n, XENT_ARGMAX, LF_I32, rows, 1, ".argmax") ||
        (n->a.entropy && make_fixed(g, n, XENT_ENTROPY, LF_F32, rows, 1, ".entropy")))
        return g->err.rc;
    return 0;
}

LF_SHAPE(logp)
{
    int rc = need_head(g, n);
    if (rc != 0)
        return rc;
    if (!(n->a.scale >= 0))
        return lf_graph_fail(g, LF_EINVAL, "logp: 1 / temperature must be positive");
    int64_t rows = g->t[n->in[LOGP_X]].rows;
    rc = make_f32(g, n, LOGP_LOGP, rows, 1, ".logp");
    return rc || !n->a.entropy ? rc : make_f32(g, n, LOGP_ENTROPY, rows, 1, ".entropy");
}

/* ---- mixture of experts ---- */

static int need_pinned(lf_graph *g, const struct lf_node *n, int slot, const char *what)
{
    if (need_float(g, n, slot, what))
        return LF_EINVAL;
    const struct lf_tensor *t = &g->t[n->in[slot]];
    return t->pinned && !t->parent
               ? 0
               : bad(g, n, n->in[slot], 0, "a whole tensor pinned to f32 is needed here");
}

LF_SHAPE(moe_route)
{
    struct lf_attr *a = &n->a;
    if (need_pinned(g, n, ROUTE_LOGITS, "logits"))
        return LF_EINVAL;
    const int64_t rows = g->t[n->in[ROUTE_LOGITS]].rows, e = g->t[n->in[ROUTE_LOGITS]].cols;
    if (e > LF_MOE_MAX_EXPERTS || a->k < 1 || a->k > e)
        return bad(g, n, n->in[ROUTE_LOGITS], 0,
                   "too many experts, or not as many as each row is sent to");
    if (a->groups > 1 && (e % a->groups || a->top_groups < 1 || a->top_groups > a->groups ||
                          e / a->groups * a->top_groups < a->k))
        return bad(g, n, n->in[ROUTE_LOGITS], 0,
                   "groups must divide the experts and leave enough to choose from");
    if (need_param(g, n, ROUTE_BIAS, 1, e,
                   "bias must be a parameter vector with one element per expert"))
        return LF_EINVAL;
    a->experts = (int32_t)e;
    if (make_fixed(g, n, ROUTE_IDS, LF_I32, rows, a->k, ".ids") ||
        make_f32(g, n, ROUTE_WEIGHTS, rows, a->k, ".weights") ||
        make_f32(g, n, ROUTE_SCORES, rows, e, ".scores") ||
        make_f32(g, n, ROUTE_ENTROPY, rows, 1, ".entropy"))
        return g->err.rc;
    return 0;
}

LF_SHAPE(moe_stats)
{
    if (need(g, n, STATS_IDS, "ids") || need(g, n, STATS_SCORES, "scores") ||
        need(g, n, STATS_ENTROPY, "entropy") ||
        need_index(g, n, STATS_CU, LF_I32, 0, "cu_seqlens must be an i32 input [n_docs + 1, 1]"))
        return LF_EINVAL;
    const int64_t e = g->t[n->in[STATS_SCORES]].cols;
    if (n->in[STATS_PREV] &&
        (g->t[n->in[STATS_PREV]].rows != 2 || g->t[n->in[STATS_PREV]].cols != e))
        return bad(g, n, n->in[STATS_PREV], n->in[STATS_SCORES],
                   "layers must have equally many experts to be balanced together");
    if (need_param(g, n, STATS_BIAS, 1, e,
                   "bias must be a parameter vector with one element per expert"))
        return LF_EINVAL;
    if (n->in[STATS_BIAS] && g->ps->g[g->t[n->in[STATS_BIAS]].group].balanced)
        n->out[STATS_COUNTS] = lf_graph_grad(g, n->in[STATS_BIAS]);
    return make_f32(g, n, STATS_LOAD, 2, e, ".load");
}

LF_SHAPE(moe_keep)
{
    if (need_index(g, n, KEEP_IDS, LF_I32, 0, "ids must be i32 [R, k]"))
        return LF_EINVAL;
    const int64_t rows = g->t[n->in[KEEP_IDS]].rows, k = g->t[n->in[KEEP_IDS]].cols;
    if (n->a.capacity < 1 ||
        (n->in[KEEP_ALL] && need_index(g, n, KEEP_ALL, LF_I32, rows * context_ranks(g),
                                       "the choices of all rows must be i32 [rows, k]")))
        return bad(g, n, n->in[KEEP_IDS], 0, "experts must have room for a pair");
    return make_fixed(g, n, 0, LF_I32, rows, k, ".kept");
}

LF_SHAPE(moe_sort)
{
    if (need_index(g, n, 0, LF_I32, 0, "ids must be i32 [R, k]"))
        return LF_EINVAL;
    const int64_t rows = g->t[n->in[0]].rows, k = g->t[n->in[0]].cols;
    if (make_fixed(g, n, SORT_ROW_OF, LF_I32, rows * k, 1, ".row_of") ||
        make_fixed(g, n, SORT_PLACE, LF_I32, rows, k, ".place") ||
        make_fixed(g, n, SORT_OFFSETS, LF_I32, n->a.experts + 1, 1, ".offsets"))
        return g->err.rc;
    return 0;
}

LF_SHAPE(moe_permute)
{
    if (need_float(g, n, PERM_X, "x") ||
        need_index(g, n, PERM_ROW_OF, LF_I32, 0, "rows must be i32 [M, 1]") ||
        need_index(g, n, PERM_PLACE, LF_I32, g->t[n->in[PERM_X]].rows, "places must be i32 [R, k]"))
        return LF_EINVAL;
    return make(g, n, 0, g->t[n->in[PERM_ROW_OF]].rows, g->t[n->in[PERM_X]].cols, "");
}

LF_SHAPE(moe_linear)
{
    if (need_float(g, n, MOEL_X, "x") || need(g, n, MOEL_W, "w") ||
        need_index(g, n, MOEL_OFFSETS, LF_I32, 0, "offsets must be i32 [E + 1, 1]"))
        return LF_EINVAL;
    const int64_t rows = g->t[n->in[MOEL_X]].rows, e = g->t[n->in[MOEL_OFFSETS]].rows - 1,
                  all = g->t[n->in[MOEL_W]].rows;
    if (need_param(g, n, MOEL_W, 0, g->t[n->in[MOEL_X]].cols,
                   "w [E N, K] must be a parameter with K columns like x"))
        return LF_EINVAL;
    if (e < 1 || all % e)
        return bad(g, n, n->in[MOEL_W], n->in[MOEL_OFFSETS],
                   "the experts do not divide the rows of w");
    if (n->in[MOEL_BIAS] && need_param(g, n, MOEL_BIAS, e, all / e,
                                       "the bias must be a parameter [E, N], a row per expert"))
        return LF_EINVAL;
    return make(g, n, 0, rows, all / e, "");
}

LF_SHAPE(moe_combine)
{
    if (need_float(g, n, COMB_X, "x") ||
        need_index(g, n, COMB_PLACE, LF_I32, 0, "places must be i32 [R, k]"))
        return LF_EINVAL;
    const int64_t rows = g->t[n->in[COMB_PLACE]].rows, k = g->t[n->in[COMB_PLACE]].cols;
    if (g->t[n->in[COMB_X]].rows != rows * k)
        return bad(g, n, n->in[COMB_X], n->in[COMB_PLACE], "x must have a row for each place");
    if (n->in[COMB_WEIGHTS] &&
        need_index(g, n, COMB_WEIGHTS, LF_F32, rows, "weights must be f32 [R, k]"))
        return LF_EINVAL;
    return make(g, n, 0, rows, g->t[n->in[COMB_X]].cols, "");
}

LF_SHAPE(moe_gain)
{
    if (need_index(g, n, GAIN_X, LF_F32, 0, "weights must be f32 [R, k]") ||
        need_index(g, n, GAIN_IDS, LF_I32, g->t[n->in[GAIN_X]].rows, "ids must be i32 [R, k]") ||
        need(g, n, GAIN_GAIN, "gain"))
        return LF_EINVAL;
    const struct lf_tensor *x = &g->t[n->in[GAIN_X]], *gain = &g->t[n->in[GAIN_GAIN]];
    if (need_param(g, n, GAIN_GAIN, 1, gain->cols, "the gain must be a number for each expert") ||
        x->cols != g->t[n->in[GAIN_IDS]].cols)
        return bad(g, n, n->in[GAIN_X], n->in[GAIN_IDS], "a weight for each id is needed");
    return make_f32(g, n, 0, x->rows, x->cols, "");
}

LF_SHAPE(row_gate)
{
    if (need_float(g, n, GATE_X, "x") || need_pinned(g, n, GATE_GATE, "gate"))
        return LF_EINVAL;
    if (g->t[n->in[GATE_GATE]].rows != g->t[n->in[GATE_X]].rows || g->t[n->in[GATE_GATE]].cols != 1)
        return bad(g, n, n->in[GATE_GATE], n->in[GATE_X],
                   "the gate must be one number for each row");
    return make(g, n, 0, g->t[n->in[GATE_X]].rows, g->t[n->in[GATE_X]].cols, "");
}

/* ---- rows mixed, columns weighed ---- */

/* Compressed rows whose arrays stand in slots from `start` on; rows 0: as many as there are. */
static int need_sparse(lf_graph *g, const struct lf_node *n, int start, int64_t rows)
{
    if (need_index(g, n, start, LF_I32, rows ? rows + 1 : 0, "start must be i32 [rows + 1, 1]") ||
        need_index(g, n, start + 1, LF_I32, 0, "index must be i32 [entries, 1]"))
        return LF_EINVAL;
    return need_index(g, n, start + 2, LF_F32, g->t[n->in[start + 1]].rows,
                      "weight must be f32 [entries, 1]");
}

LF_SHAPE(mix_rows)
{
    if (need(g, n, MIX_X, "x"))
        return LF_EINVAL;
    const struct lf_tensor *x = &g->t[n->in[MIX_X]];
    if (!lf_is_float(x->dtype))
        return bad(g, n, n->in[MIX_X], 0, "x must be of float type");
    if (need_sparse(g, n, MIX_START, 0) ||
        (n->in[MIX_BSTART] && need_sparse(g, n, MIX_BSTART, x->rows)))
        return LF_EINVAL;
    return make(g, n, 0, g->t[n->in[MIX_START]].rows - 1, x->cols, "");
}

LF_SHAPE(fold_rows)
{
    if (need_float(g, n, 0, "x"))
        return LF_EINVAL;
    const struct lf_tensor *x = &g->t[n->in[0]];
    if (n->a.k < 1 || x->rows % n->a.k)
        return bad(g, n, n->in[0], 0, "the rows of x must be a multiple of those that become one");
    return make(g, n, 0, x->rows / n->a.k, x->cols * n->a.k, "");
}

LF_SHAPE(col_gate)
{
    if (need_float(g, n, COLG_X, "x") || need(g, n, COLG_GAIN, "gain"))
        return LF_EINVAL;
    const struct lf_tensor *gain = &g->t[n->in[COLG_GAIN]];
    const int64_t cols = g->t[n->in[COLG_X]].cols;
    if (n->a.heads) {
        if (gain->role != LF_ROLE_PARAM || gain->rows * gain->cols != n->a.heads ||
            cols % n->a.heads)
            return bad(g, n, n->in[COLG_GAIN], n->in[COLG_X],
                       "it must be a parameter with one number for each head of x");
        return make(g, n, 0, g->t[n->in[COLG_X]].rows, cols, "");
    }
    const bool one = gain->role == LF_ROLE_PARAM && gain->cols == 1 && g->ps->g[gain->group].frozen;
    if (need_param(g, n, COLG_GAIN, 1, one ? 1 : g->t[n->in[COLG_X]].cols,
                   "the gain must be a parameter vector of x's width, or one frozen number"))
        return LF_EINVAL;
    return make(g, n, 0, g->t[n->in[COLG_X]].rows, g->t[n->in[COLG_X]].cols, "");
}

LF_SHAPE(xielu)
{
    if (need_float(g, n, XIELU_X, "x"))
        return LF_EINVAL;
    for (int i = XIELU_POSITIVE; i <= XIELU_EPS; i++)
        if (need(g, n, i, "a number") ||
            need_param(g, n, i, 1, 1, "it must be a parameter of one element"))
            return LF_EINVAL;
    for (int i = XIELU_BETA; i <= XIELU_EPS; i++)
        if (!g->ps->g[g->t[n->in[i]].group].frozen)
            return bad(g, n, n->in[i], 0, "it has no gradient and must be frozen");
    if (n->in[XIELU_POSITIVE] == n->in[XIELU_NEGATIVE])
        return bad(g, n, n->in[XIELU_POSITIVE], 0, "positive and negative must be two parameters");
    return make(g, n, 0, g->t[n->in[XIELU_X]].rows, g->t[n->in[XIELU_X]].cols, "");
}

/* ---- layouts ---- */

static int64_t tensor_ranks(const lf_graph *g)
{
    return g->ps->layout.tensor > 1 ? g->ps->layout.tensor : 1;
}

LF_SHAPE(tp_enter)
{
    if (need_float(g, n, 0, "x"))
        return LF_EINVAL;
    const struct lf_tensor x = g->t[n->in[0]];
    if (n->a.sequence && x.parent)
        return bad(g, n, n->in[0], 0, "a whole tensor is needed here");
    if (make(g, n, 0, x.rows * (n->a.sequence ? tensor_ranks(g) : 1), x.cols, ""))
        return g->err.rc;
    struct lf_tensor *y = &g->t[n->out[0]];
    y->dtype = x.dtype;
    y->fixed = x.fixed;
    y->pinned = x.pinned;
    y->grad_f32 = true;
    return 0;
}

LF_SHAPE(tp_leave)
{
    if (need_float(g, n, 0, "x"))
        return LF_EINVAL;
    const struct lf_tensor *x = &g->t[n->in[0]];
    const int64_t ranks = n->a.sequence ? tensor_ranks(g) : 1;
    if (x->parent)
        return bad(g, n, n->in[0], 0, "a whole tensor is needed here");
    if (x->rows % ranks)
        return bad(g, n, n->in[0], 0, "its rows do not divide among the ranks (tensor)");
    return make_f32(g, n, 0, x->rows / ranks, x->cols, "");
}

LF_SHAPE(tp_rows)
{
    if (need(g, n, 0, "x"))
        return LF_EINVAL;
    const struct lf_tensor *x = &g->t[n->in[0]];
    if (x->parent || x->rows % tensor_ranks(g))
        return bad(g, n, n->in[0], 0, "its rows do not divide among the ranks (tensor)");
    return make_fixed(g, n, 0, (enum lf_dtype)x->dtype, x->rows / tensor_ranks(g), x->cols, "");
}

LF_SHAPE(tp_join)
{
    if (need_float(g, n, 0, "x"))
        return LF_EINVAL;
    const struct lf_tensor x = g->t[n->in[0]];
    if (x.parent)
        return bad(g, n, n->in[0], 0, "a whole tensor is needed here");
    if (make(g, n, 0, x.rows, n->a.v_all ? n->a.v_all : x.cols, ""))
        return g->err.rc;
    g->t[n->out[0]].dtype = x.dtype;
    g->t[n->out[0]].fixed = x.fixed;
    g->t[n->out[0]].pinned = x.pinned;
    return 0;
}

LF_SHAPE(cp_heads)
{
    if (need_float(g, n, 0, "x"))
        return LF_EINVAL;
    const struct lf_tensor *x = &g->t[n->in[0]];
    if (n->a.heads < 1 || x->cols % n->a.heads)
        return bad(g, n, n->in[0], 0, "the heads do not divide its columns");
    return make(g, n, 0, x->rows * head_ranks(g),
                x->cols / n->a.heads * lf_context_own(n->a.heads, head_ranks(g)), "");
}

LF_SHAPE(cp_rows)
{
    if (need_float(g, n, 0, "x"))
        return LF_EINVAL;
    const struct lf_tensor *x = &g->t[n->in[0]];
    const int64_t own = lf_context_own(n->a.heads, head_ranks(g));
    if (x->rows % head_ranks(g) || x->cols % own)
        return bad(g, n, n->in[0], 0, "rows and heads do not divide among the ranks (context)");
    return make(g, n, 0, x->rows / head_ranks(g), x->cols / own * n->a.heads, "");
}

LF_SHAPE(cp_whole)
{
    if (need(g, n, 0, "x"))
        return LF_EINVAL;
    const struct lf_tensor *x = &g->t[n->in[0]];
    if (x->parent)
        return bad(g, n, n->in[0], 0, "a whole tensor is needed here");
    return make_fixed(g, n, 0, (enum lf_dtype)x->dtype,
                      x->rows * (n->a.heads ? n->a.heads : context_ranks(g)), x->cols, "");
}

/* A matrix [N, C], or a vector [1, N], with an element or a row for each row of a group. */
LF_SHAPE(tp_own)
{
    if (need(g, n, 0, "w") || need_param(g, n, 0, 0, 0, "a parameter is needed here"))
        return LF_EINVAL;
    const struct lf_tensor *x = &g->t[n->in[0]];
    const struct lf_pgroup *of = &g->ps->g[n->a.at];
    const bool vector = x->rows == 1;
    const int64_t rows = n->a.sequence ? of->rows : of->all_rows;
    if ((vector ? x->cols : x->rows) != of->all_rows)
        return bad(g, n, n->in[0], 0, "it must have as many rows as its group");
    return make_fixed(g, n, 0, LF_F32, vector ? 1 : rows, vector ? rows : x->cols, "");
}

/* ---- weight-decomposed adapters ---- */

LF_SHAPE(root)
{
    if (need_index(g, n, 0, LF_F32, 0, "x must be f32"))
        return LF_EINVAL;
    return make_fixed(g, n, 0, LF_F32, g->t[n->in[0]].rows, g->t[n->in[0]].cols, "");
}

LF_SHAPE(dora_norm)
{
    if (need(g, n, DNORM_W, "w") || need(g, n, DNORM_A, "A") || need(g, n, DNORM_B, "B"))
        return LF_EINVAL;
    const struct lf_tensor *w = &g->t[n->in[DNORM_W]], *a = &g->t[n->in[DNORM_A]],
                           *b = &g->t[n->in[DNORM_B]];
    const int64_t rows = b->rows;
    if (need_param(g, n, DNORM_W, 0, 0, "w must be a parameter matrix") ||
        need_param(g, n, DNORM_A, 0, w->cols,
                   "A [r, K] must be a parameter with K columns like w") ||
        need_weight(g, n, DNORM_B, 0, 0, "B [N, r] must be a parameter"))
        return LF_EINVAL;
    if (n->a.pos_offset < 0 || n->a.pos_offset > w->rows - rows)
        return bad(g, n, n->in[DNORM_W], n->in[DNORM_B], "the rows of B must be rows of w");
    if (n->a.at < 0 || n->a.at > a->rows - b->cols)
        return bad(g, n, n->in[DNORM_A], n->in[DNORM_B],
                   "B must have a column for each of its rows of A");
    return make_fixed(g, n, 0, LF_F32, 1, rows, "");
}

LF_SHAPE(dora)
{
    if (need_float(g, n, DORA_BASE, "base") ||
        (n->in[DORA_M] && need_float(g, n, DORA_LORA, "the adapter's product")))
        return LF_EINVAL;
    const int64_t rows = g->t[n->in[DORA_BASE]].rows, cols = g->t[n->in[DORA_BASE]].cols;
    for (int k = DORA_LORA; k <= DORA_REST; k++)
        if (n->in[k] && (g->t[n->in[k]].rows != rows || g->t[n->in[k]].cols != cols))
            return bad(g, n, n->in[DORA_BASE], n->in[k], "all products must have one shape");
    if (need_weight(g, n, DORA_M, 1, cols,
                    "the magnitude must be a parameter vector with an element per column") ||
        (n->in[DORA_M] && need_index(g, n, DORA_NORM, LF_F32, 1, "the lengths must be f32 [1, N]")))
        return LF_EINVAL;
    if (n->in[DORA_M] && g->t[n->in[DORA_NORM]].cols != cols)
        return bad(g, n, n->in[DORA_NORM], n->in[DORA_M], "both must have an element per column");
    if (n->in[DORA_BIAS] && g->t[n->in[DORA_BIAS]].cols < n->a.pos_offset + cols)
        return bad(g, n, n->in[DORA_BIAS], n->in[DORA_BASE], "the bias is too short");
    return make(g, n, 0, rows, cols, "");
}
