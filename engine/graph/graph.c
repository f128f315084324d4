/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph object: tensors, views, nodes, sources, blocks and the sticky error. Operations are in
 * build.c.
 */
#include "engine/graph/priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lf_graph *lf_graph_create(lf_pstore *ps, const char *name, lf_err *err)
{
    lf_graph *g = lf_calloc(1, sizeof *g, err);
    if (!g)
        return NULL;
    g->arena = lf_arena_create(err);
    if (!g->arena)
        goto out;
    g->name = lf_arena_strdup(g->arena, name, err);
    if (!g->name || lf_grow(&g->t, &g->cap_t, 0, sizeof *g->t, err))
        goto out;
    memset(&g->t[0], 0, sizeof g->t[0]);
    g->t[0].name = "none";
    g->n_t = 1;
    g->ps = ps;
    g->block = -1;
    g->xent = -1;
    return g;
out:
    lf_graph_destroy(g);
    return NULL;
}

void lf_graph_destroy(lf_graph *g)
{
    if (!g)
        return;
    lf_arena_destroy(g->arena);
    free(g->t);
    free(g->n);
    free(g->seed);
    free(g->cut);
    free(g->order);
    free(g);
}

int lf_graph_check(const lf_graph *g, lf_err *err)
{
    if (!g->err.rc)
        return 0;
    if (err && !err->rc)
        *err = g->err;
    return g->err.rc;
}

int lf_graph_fail(lf_graph *g, int rc, const char *fmt, ...)
{
    char text[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return lf_fail(&g->err, rc, "graph %s: %s", g->name, text);
}

static int32_t append_tensor(lf_graph *g, const struct lf_tensor *t)
{
    if (g->err.rc || lf_grow(&g->t, &g->cap_t, g->n_t, sizeof *g->t, &g->err))
        return 0;
    g->t[g->n_t] = *t;
    return (int32_t)g->n_t++;
}

int32_t lf_tensor_new(lf_graph *g, enum lf_dtype dtype, enum lf_tensor_role role, int64_t rows,
                      int64_t cols, const char *fmt, ...)
{
    char name[256];
    va_list ap;
    if (g->err.rc)
        return 0;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    size_t bytes = 0;
    if (rows < 0 || cols < 1 || !lf_size_mul(&bytes, (size_t)rows, (size_t)cols) ||
        bytes > SIZE_MAX / 64) {
        lf_graph_fail(g, LF_EINVAL, "tensor %s cannot have %lld rows of %lld", name,
                      (long long)rows, (long long)cols);
        return 0;
    }
    struct lf_tensor t = {.dtype = (uint8_t)dtype,
                          .role = (uint8_t)role,
                          .rows = rows,
                          .cols = cols,
                          .group = -1,
                          .table = -1,
                          .producer = -1};
    t.name = lf_arena_strdup(g->arena, name, &g->err);
    return t.name ? append_tensor(g, &t) : 0;
}

int32_t lf_tensor_view(lf_graph *g, int32_t parent, int64_t col, int64_t cols)
{
    if (g->err.rc || !parent)
        return 0;
    struct lf_tensor t = g->t[parent];
    t.parent = parent;
    t.col = col;
    t.cols = cols;
    t.is_output = false;
    t.out_name = NULL;
    t.dense_only = false;
    t.part = false;
    t.name = lf_arena_printf(g->arena, &g->err, "%s[%lld:%lld]", t.name, (long long)col,
                             (long long)(col + cols));
    return t.name ? append_tensor(g, &t) : 0;
}

int32_t lf_root_of(const lf_graph *g, int32_t t)
{
    while (g->t[t].parent)
        t = g->t[t].parent;
    return t;
}

int64_t lf_ld_of(const lf_graph *g, int32_t t)
{
    return g->t[lf_root_of(g, t)].cols;
}

int32_t lf_node_raw(lf_graph *g, enum lf_op op, int32_t block)
{
    if (g->err.rc || lf_grow(&g->n, &g->cap_n, g->n_n, sizeof *g->n, &g->err))
        return -1;
    memset(&g->n[g->n_n], 0, sizeof g->n[0]);
    g->n[g->n_n].op = (uint8_t)op;
    g->n[g->n_n].block = block;
    return (int32_t)g->n_n++;
}

int32_t lf_node_new(lf_graph *g, enum lf_op op, const int32_t *in, size_t n_in,
                    const struct lf_attr *a)
{
    int32_t i = lf_node_raw(g, op, g->block);
    if (i < 0)
        return -1;
    struct lf_node n = g->n[i];
    memcpy(n.in, in, n_in * sizeof *in);
    if (a)
        n.a = *a;
    if (lf_op_table[op].shape(g, &n))
        return -1;
    g->n[i] = n;
    for (int o = 0; o < LF_MAX_OUT; o++)
        if (n.out[o])
            g->t[n.out[o]].producer = i;
    return i;
}

int32_t lf_graph_derived(lf_graph *g, int32_t param, enum lf_tensor_role role, int kind,
                         enum lf_dtype dtype, int64_t rows, int64_t cols)
{
    const int32_t group = g->t[param].group;
    for (size_t i = 1; i < g->n_t; i++)
        if (g->t[i].role == role && g->t[i].group == group && g->t[i].pkind == kind)
            return (int32_t)i;
    int32_t t = lf_tensor_new(g, dtype, role, rows, cols, "%s.%s", g->t[param].name,
                              lf_pkind_name((enum lf_pkind)kind));
    if (t) {
        g->t[t].group = group;
        g->t[t].pkind = (uint8_t)kind;
        g->t[t].fixed = true;
    }
    return t;
}

int32_t lf_graph_grad(lf_graph *g, int32_t param)
{
    return lf_graph_derived(g, param, LF_ROLE_GRAD, LF_P_GRAD, LF_F32, g->t[param].rows,
                            g->t[param].cols);
}

int32_t lf_graph_copy(lf_graph *g, int32_t param)
{
    return lf_graph_derived(g, param, LF_ROLE_PARAM, LF_P_COPY, g->ps->copy_type, g->t[param].rows,
                            g->t[param].cols);
}

/* ---- public ---- */

static int32_t find_named(const lf_graph *g, enum lf_tensor_role role, const char *name)
{
    for (size_t i = 1; i < g->n_t; i++)
        if (g->t[i].role == role && !g->t[i].parent && strcmp(g->t[i].name, name) == 0)
            return (int32_t)i;
    return 0;
}

lf_val lf_graph_source(lf_graph *g, enum lf_tensor_role role, const char *name, enum lf_dtype dtype,
                       int64_t rows, int64_t cols)
{
    if (g->err.rc)
        return LF_NONE;
    int32_t t = find_named(g, role, name);
    if (t && (g->t[t].dtype != dtype || g->t[t].rows != rows || g->t[t].cols != cols)) {
        lf_graph_fail(g, LF_EINVAL, "%s was declared with another shape or type before", name);
        return LF_NONE;
    }
    if (!t) {
        t = lf_tensor_new(g, dtype, role, rows, cols, "%s", name);
        if (t)
            g->t[t].fixed = role != LF_ROLE_STATE;
    }
    return (lf_val){t};
}

void lf_whole_rows(lf_graph *g, bool whole)
{
    g->whole = whole;
}

static lf_val input(lf_graph *g, const char *name, enum lf_dtype dtype, int64_t rows, int64_t cols)
{
    const lf_val v = lf_graph_source(g, LF_ROLE_INPUT, name, dtype, rows, cols);
    if (v.id)
        g->t[v.id].whole = g->whole;
    return v;
}

lf_val lf_input(lf_graph *g, const char *name, enum lf_dtype dtype, int64_t rows, int64_t cols)
{
    if (dtype != LF_I32 && dtype != LF_I64 && dtype != LF_F32) {
        lf_graph_fail(g, LF_EINVAL, "input %s: type must be i32, i64 or f32", name);
        return LF_NONE;
    }
    return input(g, name, dtype, rows, cols);
}

lf_val lf_input_act(lf_graph *g, const char *name, int64_t rows, int64_t cols)
{
    const lf_val v = input(g, name, LF_F32, rows, cols);
    if (v.id)
        g->t[v.id].fixed = false;
    return v;
}

lf_val lf_const(lf_graph *g, const char *name, enum lf_dtype dtype, int64_t rows, int64_t cols,
                void (*fill)(void *dst, const void *ctx), const void *ctx)
{
    lf_val v = lf_graph_source(g, LF_ROLE_CONST, name, dtype, rows, cols);
    if (v.id) {
        g->t[v.id].fill = fill;
        g->t[v.id].ctx = ctx;
    }
    return v;
}

lf_val lf_state(lf_graph *g, const char *name, enum lf_dtype dtype, int64_t rows, int64_t cols)
{
    return lf_graph_source(g, LF_ROLE_STATE, name, dtype, rows, cols);
}

lf_val lf_param(lf_graph *g, const char *name)
{
    if (g->err.rc)
        return LF_NONE;
    int32_t gi = lf_pstore_group(g->ps, name);
    if (gi < 0) {
        lf_graph_fail(g, LF_ENOENT, "the store has no parameter group %s", name);
        return LF_NONE;
    }
    int32_t t = find_named(g, LF_ROLE_PARAM, name);
    if (!t) {
        const struct lf_pgroup *pg = &g->ps->g[gi];
        t = lf_tensor_new(g, LF_F32, LF_ROLE_PARAM, pg->all_rows, pg->all_cols, "%s", name);
        if (t) {
            g->t[t].group = gi;
            g->t[t].fixed = true;
        }
    }
    return (lf_val){t};
}

lf_val lf_paramf(lf_graph *g, const char *fmt, ...)
{
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof name) {
        lf_graph_fail(g, LF_EINVAL, "parameter name too long: %.60s...", name);
        return LF_NONE;
    }
    return lf_param(g, name);
}

lf_val lf_slice(lf_graph *g, lf_val v, int64_t first, int64_t cols)
{
    if (g->err.rc)
        return LF_NONE;
    if (!v.id || (g->t[v.id].role != LF_ROLE_ACT && g->t[v.id].role != LF_ROLE_INPUT) ||
        first < 0 || cols < 1 || cols > g->t[v.id].cols || first > g->t[v.id].cols - cols) {
        lf_graph_fail(g, LF_EINVAL, "slice of %s: columns [%lld, +%lld) of %lld", g->t[v.id].name,
                      (long long)first, (long long)cols, (long long)g->t[v.id].cols);
        return LF_NONE;
    }
    if (g->t[v.id].cols == cols)
        return v;
    for (size_t i = 1; i < g->n_t;
         i++) { /* the same slice again is the same value, so that its gradient adds up */
        const struct lf_tensor *t = &g->t[i];
        if (t->parent != v.id || t->part)
            continue;
        if (t->col == first && t->cols == cols)
            return (lf_val){(int32_t)i};
        if (first < t->col + t->cols && t->col < first + cols) {
            lf_graph_fail(g, LF_EINVAL, "slices of %s overlap: %s and [%lld:%lld]", g->t[v.id].name,
                          t->name, (long long)first, (long long)(first + cols));
            return LF_NONE;
        }
    }
    return (lf_val){lf_tensor_view(g, v.id, first, cols)};
}

void lf_block_begin(lf_graph *g, int index)
{
    if (g->block >= 0)
        lf_graph_fail(g, LF_EINVAL, "block %d begins inside block %d", index, g->block);
    else if (index < 0)
        lf_graph_fail(g, LF_EINVAL, "block number %d", index);
    g->block = index;
}

void lf_block_end(lf_graph *g)
{
    if (g->block < 0)
        lf_graph_fail(g, LF_EINVAL, "a block ends that did not begin");
    g->block = -1;
}

void lf_output(lf_graph *g, lf_val v, const char *name)
{
    if (g->err.rc)
        return;
    if (!v.id || g->t[v.id].parent || g->t[v.id].role != LF_ROLE_ACT) {
        lf_graph_fail(g, LF_EINVAL, "output %s: %s is not a whole activation", name,
                      g->t[v.id].name);
        return;
    }
    g->t[v.id].is_output = true;
    g->t[v.id].dense_only = true;
    g->t[v.id].out_name = lf_arena_strdup(g->arena, name, &g->err);
}

void lf_output_grad(lf_graph *g, lf_val v, const char *name, const char *grad_name)
{
    lf_output(g, v, name);
    if (g->err.rc)
        return;
    const struct lf_tensor t = g->t[v.id];
    if (!t.pinned || !lf_is_float(t.dtype)) {
        lf_graph_fail(g, LF_EINVAL,
                      "output %s: %s must be pinned to f32 to take a gradient from outside", name,
                      t.name);
        return;
    }
    if (find_named(g, LF_ROLE_INPUT, grad_name)) {
        lf_graph_fail(g, LF_EINVAL, "output %s: there is an input %s already", name, grad_name);
        return;
    }
    lf_val d = lf_input(g, grad_name, LF_F32, t.rows, t.cols);
    if (!d.id || lf_grow(&g->seed, &g->cap_seed, g->n_seed, sizeof *g->seed, &g->err))
        return;
    g->seed[g->n_seed++] = (struct lf_seed){v.id, d.id};
}

void lf_pin_f32(lf_graph *g, lf_val v)
{
    if (g->err.rc)
        return;
    if (!v.id || !lf_is_float(g->t[v.id].dtype) || g->t[v.id].parent)
        lf_graph_fail(g, LF_EINVAL, "cannot pin %s to f32", g->t[v.id].name);
    else
        g->t[v.id].pinned = true;
}

/* The node of this op that reads x; -1: none. */
static int32_t reader(const lf_graph *g, lf_val x, enum lf_op op)
{
    for (size_t i = 0; i < g->n_n; i++)
        if (g->n[i].op == op && g->n[i].in[0] == x.id && !g->n[i].a.inverse)
            return (int32_t)i;
    return -1;
}

/* One for all readers, so that their gradients are added before they are summed. */
lf_val lf_tp_enter(lf_graph *g, lf_val x)
{
    if (g->err.rc || g->ps->layout.tensor <= 1)
        return x;
    const int32_t i = reader(g, x, LF_OP_TP_ENTER);
    return i < 0 ? lf_graph_op(g, LF_OP_TP_ENTER, &x.id, 1, NULL) : (lf_val){g->n[i].out[0]};
}

lf_val lf_tp_whole(lf_graph *g, lf_val x)
{
    const struct lf_attr whole = {.inverse = true};
    return g->err.rc || g->ps->layout.tensor <= 1
               ? x
               : lf_graph_op(g, LF_OP_TP_ENTER, &x.id, 1, &whole);
}

lf_val lf_tp_join(lf_graph *g, lf_val x)
{
    return g->err.rc || g->ps->layout.tensor <= 1 ? x
                                                  : lf_graph_op(g, LF_OP_TP_JOIN, &x.id, 1, NULL);
}

lf_val lf_tp_leave(lf_graph *g, lf_val x)
{
    const struct lf_attr a = {.whole = g->whole};
    return g->err.rc || g->ps->layout.tensor <= 1 ? x
                                                  : lf_graph_op(g, LF_OP_TP_LEAVE, &x.id, 1, &a);
}

lf_val lf_tp_spread(lf_graph *g, lf_val v)
{
    if (!g->err.rc && v.id)
        g->t[v.id].whole = true;
    return v;
}
