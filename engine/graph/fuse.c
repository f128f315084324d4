/* SPDX-License-Identifier: Apache-2.0
 *
 * Fusion: patterns of the target that move an element-wise node into the epilogue or prologue of
 * its neighbour, and the small house-keeping every pass shares (lists of nodes, read counts,
 * compaction, pruning). A node that takes over an add stands where the add stood, so its other
 * operand is there by then.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/priv.h"

void lf_compact(lf_graph *g)
{
    size_t w = 0, fwd = 0;
    for (size_t i = 0; i < g->n_n; i++) {
        if (i == g->n_fwd)
            fwd = w;
        if (g->n[i].op != LF_OP_NONE)
            g->n[w++] = g->n[i];
    }
    g->n_fwd = g->n_fwd >= g->n_n ? w : fwd;
    g->n_n = w;
    for (size_t i = 1; i < g->n_t; i++)
        g->t[i].producer = -1;
    g->xent = -1;
    for (size_t i = 0; i < w; i++) {
        if (g->n[i].op == LF_OP_XENT)
            g->xent = (int32_t)i;
        for (int k = 0; k < LF_MAX_OUT; k++)
            if (g->n[i].out[k])
                g->t[g->n[i].out[k]].producer = (int32_t)i;
    }
}

struct lf_node *lf_nodes_push(lf_graph *g, struct lf_nodes *out, const struct lf_node *n)
{
    if (g->err.rc || lf_grow(&out->n, &out->cap, out->count, sizeof *out->n, &g->err))
        return NULL;
    out->n[out->count] = *n;
    return &out->n[out->count++];
}

int lf_nodes_take(lf_graph *g, struct lf_nodes *out, size_t n_fwd, lf_err *err)
{
    const int rc = lf_graph_check(g, err);
    if (rc != 0) {
        free(out->n);
    } else {
        free(g->n);
        g->n = out->n;
        g->n_n = out->count;
        g->cap_n = out->cap;
        g->n_fwd = n_fwd;
        lf_compact(g);
    }
    *out = (struct lf_nodes){NULL, 0, 0};
    return rc;
}

void lf_count_reads(const lf_graph *g, int32_t *counts)
{
    memset(counts, 0, g->n_t * sizeof *counts);
    for (size_t i = 0; i < g->n_n; i++)
        for (int k = 0; k < LF_MAX_IN; k++)
            if (g->n[i].op != LF_OP_NONE)
                counts[g->n[i].in[k]]++;
}

/* ---- pruning ---- */

/* May this output be left out while the node stays? */
static bool optional_out(const struct lf_node *n, int slot)
{
    switch (n->op) {
    case LF_OP_LINEAR:
    case LF_OP_LINEAR_FP8:
        return slot == LINEAR_PRE;
    case LF_OP_QUANTISE:
        return true;
    case LF_OP_NORM:
        return slot == NORM_MEAN || slot == NORM_RSTD;
    case LF_OP_ATTN:
    case LF_OP_CP_ATTN:
        return slot == ATTN_LSE;
    case LF_OP_MOE_ROUTE:
        return slot == ROUTE_SCORES || slot == ROUTE_ENTROPY;
    case LF_OP_XENT:
        return slot == XENT_LOSS || slot == XENT_LSE || slot == XENT_ARGMAX || slot == XENT_ENTROPY;
    default:
        return false;
    }
}

static bool wanted(const lf_graph *g, const int32_t *root_reads, int32_t t)
{
    const struct lf_tensor *x = &g->t[t];
    const int32_t root = lf_root_of(g, t); /* an output may be written in slices */
    return x->is_output || g->t[root].is_output || x->role == LF_ROLE_GRAD ||
           x->role == LF_ROLE_STATE || root_reads[root] > 0;
}

static void drop_reads(const lf_graph *g, int32_t *root_reads, const struct lf_node *n)
{
    for (int k = 0; k < LF_MAX_IN; k++)
        if (n->in[k])
            root_reads[lf_root_of(g, n->in[k])]--;
}

void lf_prune(lf_graph *g)
{
    int32_t *reads = calloc(g->n_t, sizeof *reads);
    if (!reads) {
        lf_graph_fail(g, LF_ENOMEM, "out of memory while pruning");
        return;
    }
    for (size_t i = 0; i < g->n_n; i++)
        for (int k = 0; k < LF_MAX_IN; k++)
            if (g->n[i].in[k])
                reads[lf_root_of(g, g->n[i].in[k])]++;
    for (size_t i = g->n_n; i-- > 0;) {
        struct lf_node *n = &g->n[i];
        bool live = lf_op_table[n->op].flags & LF_OPF_SIDE;
        for (int k = 0; k < LF_MAX_OUT; k++) {
            bool w = n->out[k] && wanted(g, reads, n->out[k]);
            live = live || w;
            if (!w && optional_out(n, k))
                n->out[k] = 0;
        }
        if (live)
            continue;
        drop_reads(g, reads, n);
        n->op = LF_OP_NONE;
    }
    free(reads);
    lf_compact(g);
}

/* ---- patterns ---- */

struct fuse {
    lf_graph *g;
    int32_t *reads; /* direct reads per tensor */
    bool *has_view; /* per tensor */
};

/* Tensor that only one node reads, whole, so its maker may write something else instead. */
static bool private_to_reader(const struct fuse *f, int32_t t)
{
    return f->reads[t] == 1 && !f->has_view[t] && !f->g->t[t].parent && !f->g->t[t].is_output;
}

/* The ends of products know the activations to LF_ACT_RELU; others stay nodes of their own. */
static void fuse_act(struct fuse *f, size_t i)
{
    lf_graph *g = f->g;
    struct lf_node *a = &g->n[i];
    int32_t pre = a->in[0], y = a->out[0], pi = g->t[pre].producer;
    if (a->op != LF_OP_ACT || a->a.act > LF_ACT_RELU || pi < 0 || g->t[pre].parent ||
        f->has_view[pre] || g->t[pre].is_output || g->t[y].parent ||
        g->t[pre].dtype != g->t[y].dtype)
        return;
    struct lf_node *p = &g->n[pi];
    if (!lf_is_linear(p->op) || p->a.act != LF_ACT_NONE || p->in[LINEAR_RES] ||
        p->out[LINEAR_PRE] || p->block != a->block)
        return;
    for (size_t k = 0; k < g->n_n; k++) /* other readers must be backward nodes */
        for (int s = 0; s < LF_MAX_IN; s++)
            if (g->n[k].in[s] == pre && k != i && k < g->n_fwd)
                return;
    p->a.act = a->a.act;
    p->out[LINEAR_PRE] = pre;
    p->out[LINEAR_Y] = y;
    g->t[y].producer = pi;
    f->reads[pre]--;
    a->op = LF_OP_NONE;
}

/* Slot of a node that can take an addend, -1 none. */
static int addend_slot(const struct lf_node *n, uint32_t patterns)
{
    if (lf_is_linear(n->op) && (patterns & LF_FUSE_RESIDUAL))
        return LINEAR_RES;
    if ((n->op == LF_OP_LINEAR_DX || n->op == LF_OP_LINEAR_DX_FP8) && (patterns & LF_FUSE_RESIDUAL))
        return LDX_RES;
    if (n->op == LF_OP_MOE_COMBINE && (patterns & LF_FUSE_RESIDUAL))
        return COMB_RES;
    if (n->op == LF_OP_MOE_LINEAR_DX && (patterns & LF_FUSE_RESIDUAL))
        return MOEDX_RES;
    if (n->op == LF_OP_NORM_BWD && n->a.heads == 1 && (patterns & LF_FUSE_NORM_BWD))
        return NORMB_DRES;
    if (n->op == LF_OP_DROPOUT && (patterns & LF_FUSE_DROPOUT))
        return DROP_RES;
    return -1;
}

static bool absorb(struct fuse *f, size_t i, int operand, uint32_t patterns)
{
    lf_graph *g = f->g;
    struct lf_node *add = &g->n[i];
    int32_t s = add->in[operand], other = add->in[1 - operand], y = add->out[0],
            pi = g->t[s].producer;
    if (pi < 0 || s == other || !private_to_reader(f, s))
        return false;
    struct lf_node *p = &g->n[pi];
    int slot = addend_slot(p, patterns);
    if (slot < 0 || p->in[slot] || p->out[0] != s || p->block != add->block ||
        g->t[other].dtype != g->t[y].dtype || g->t[s].dtype != g->t[y].dtype)
        return false;
    struct lf_node moved = *p;
    moved.in[slot] = other;
    moved.out[0] = y;
    p->op = LF_OP_NONE;
    *add = moved;
    for (int k = 0; k < LF_MAX_OUT; k++)
        if (moved.out[k])
            g->t[moved.out[k]].producer = (int32_t)i;
    f->reads[s] = 0;
    return true;
}

static void fuse_add(struct fuse *f, size_t i, uint32_t patterns)
{
    lf_graph *g = f->g;
    if (g->n[i].op != LF_OP_ADD)
        return;
    int later = g->t[g->n[i].in[1]].producer > g->t[g->n[i].in[0]].producer ? 1 : 0;
    if (!absorb(f, i, later, patterns))
        absorb(f, i, 1 - later, patterns);
}

/* add, then norm as the first reader of the sum: one pass over both. */
static void fuse_norm(struct fuse *f, size_t i)
{
    lf_graph *g = f->g;
    struct lf_node *n = &g->n[i];
    int32_t x = n->in[NORM_X], pi = g->t[x].producer;
    if (n->op != LF_OP_NORM || n->in[NORM_DELTA] || n->in[NORM_TOTAL] || n->a.heads != 1 ||
        pi < 0 || g->n[pi].op != LF_OP_ADD || g->n[pi].block != n->block || g->t[x].parent)
        return;
    for (size_t k = (size_t)pi + 1; k < i; k++)
        for (int s = 0; s < LF_MAX_IN; s++)
            if (g->n[k].op != LF_OP_NONE && g->n[k].in[s] && lf_root_of(g, g->n[k].in[s]) == x)
                return;
    int32_t a = g->n[pi].in[0], b = g->n[pi].in[1];
    if (g->t[a].dtype != g->t[x].dtype || g->t[b].dtype != g->t[x].dtype)
        return;
    n->in[NORM_X] = a;
    n->in[NORM_DELTA] = b;
    n->out[NORM_SUM] = x;
    g->t[x].producer = (int32_t)i;
    f->reads[x]--;
    g->n[pi].op = LF_OP_NONE;
}

int lf_fuse(lf_graph *g, uint32_t patterns, lf_err *err)
{
    struct fuse f = {.g = g};
    int rc = lf_graph_check(g, err);
    if (rc != 0)
        return rc;
    f.reads = lf_calloc(g->n_t, sizeof *f.reads, err);
    f.has_view = lf_calloc(g->n_t, sizeof *f.has_view, err);
    if (!f.reads || !f.has_view) {
        rc = LF_ENOMEM;
        goto out;
    }
    lf_count_reads(g, f.reads);
    for (size_t i = 1; i < g->n_t; i++)
        if (g->t[i].parent)
            f.has_view[g->t[i].parent] = true;
    for (size_t i = 0; i < g->n_n && (patterns & LF_FUSE_ACT); i++)
        fuse_act(&f, i);
    for (size_t i = 0; i < g->n_n; i++)
        fuse_add(&f, i, patterns);
    for (size_t i = 0; i < g->n_n && (patterns & LF_FUSE_NORM); i++)
        fuse_norm(&f, i);
    lf_compact(g);
out:
    free(f.reads);
    free(f.has_view);
    return rc;
}
