/* SPDX-License-Identifier: Apache-2.0
 *
 * In-place results and liveness. An op row says which result may share the place of which operand;
 * the pass grants it when nobody reads the operand's place later. Three forms:
 *   1. The result is a whole tensor: it becomes a view of the operand's place (rope turns q inside
 *      the qkv matrix).
 *
 *   2. The result is a slice, the operand whole: the operand becomes a view of the slice (the
 *      gradient of a turned q is written where the gradient of qkv is wanted).
 *
 *   3. Both are slices at the same columns of equally shaped tensors, and nothing of the operand's
 *      is read later: the whole tensor of the result takes that place (the gradients of gate and up
 *      replace gate and up).
 *
 * Views have the row distance of their root, so tensors that a dense-only op touches stay out of 1
 * and 2 where that would change.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/priv.h"

struct pass {
    lf_graph *g;
    int32_t *last;  /* per tensor: last node that reads it itself, -1 none */
    int32_t *write; /* per tensor: node that writes it, -1 */
};

static bool movable(const struct lf_tensor *t)
{
    return t->role == LF_ROLE_ACT && !t->is_output;
}

static int64_t column_in_root(const lf_graph *g, int32_t t)
{
    int64_t c = 0;
    for (; g->t[t].parent; t = g->t[t].parent)
        c += g->t[t].col;
    return c;
}

/* Does anything read columns [col, col + cols) of root's place after node i, other than as
 * `except`? */
static bool read_later(const struct pass *p, int32_t root, int64_t col, int64_t cols, int32_t i)
{
    const lf_graph *g = p->g;
    for (size_t t = 1; t < g->n_t; t++) {
        if (p->last[t] <= i || lf_root_of(g, (int32_t)t) != root)
            continue;
        int64_t c = column_in_root(g, (int32_t)t);
        if (c < col + cols && col < c + g->t[t].cols)
            return true;
    }
    return false;
}

/* Another operand of the node lies in those columns: sharing would change it under the kernel. */
static bool other_operand(const struct pass *p, const struct lf_node *n, int slot, int32_t root,
                          int64_t col, int64_t cols)
{
    const lf_graph *g = p->g;
    for (int k = 0; k < LF_MAX_IN; k++) {
        if (k == slot || !n->in[k] || lf_root_of(g, n->in[k]) != root)
            continue;
        int64_t c = column_in_root(g, n->in[k]);
        if (c < col + cols && col < c + g->t[n->in[k]].cols)
            return true;
    }
    for (int k = 0; k < LF_MAX_OUT; k++) { /* and so would another result that lies there already */
        if (!n->out[k] || lf_root_of(g, n->out[k]) != root)
            continue;
        int64_t c = column_in_root(g, n->out[k]);
        if (c < col + cols && col < c + g->t[n->out[k]].cols)
            return true;
    }
    return false;
}

/* Is the place used by anything but `except` while the family of `mover` has lived so far (up to
 * node i)? */
static bool busy(const struct pass *p, int32_t root, int64_t col, int64_t cols, int32_t mover,
                 int32_t i, int32_t except)
{
    const lf_graph *g = p->g;
    int32_t from = i;
    for (size_t t = 1; t < g->n_t; t++)
        if (p->write[t] >= 0 && p->write[t] < from && lf_root_of(g, (int32_t)t) == mover)
            from = p->write[t];
    for (size_t t = 1; t < g->n_t; t++) {
        if ((int32_t)t == except || (p->write[t] < 0 && p->last[t] < 0) ||
            lf_root_of(g, (int32_t)t) != root)
            continue;
        int32_t end = p->last[t] > p->write[t] ? p->last[t] : p->write[t];
        int64_t c = column_in_root(g, (int32_t)t);
        if (c < col + cols && col < c + g->t[t].cols && p->write[t] <= i && end >= from)
            return true;
    }
    return false;
}

static bool any_dense_only(const lf_graph *g, int32_t root)
{
    for (size_t t = 1; t < g->n_t; t++)
        if (g->t[t].dense_only && lf_root_of(g, (int32_t)t) == root)
            return true;
    return false;
}

static void attach(lf_graph *g, int32_t child, int32_t root, int64_t col)
{
    g->t[child].parent = root;
    g->t[child].col = col;
}

/* Form 3: all of the operand's tensor is dead after i, nothing of the result's is written
 * before. */
static bool whole_swap(const struct pass *p, const struct lf_node *n, int32_t i, int32_t ro,
                       int32_t ri)
{
    const lf_graph *g = p->g;
    if (g->t[ro].cols != g->t[ri].cols || read_later(p, ri, 0, g->t[ri].cols, i))
        return false;
    for (size_t t = 1; t < g->n_t; t++)
        if (p->write[t] >= 0 && p->write[t] < i && lf_root_of(g, (int32_t)t) == ro)
            return false;
    for (int k = 0; k < LF_MAX_OUT;
         k++) /* each result must meet only the operand that its row allows */
        if (n->out[k] && lf_root_of(g, n->out[k]) == ro) {
            bool allowed = false;
            for (int a = 0; a < 4 && lf_op_table[n->op].alias[a][0] >= 0; a++) {
                const signed char *pair = lf_op_table[n->op].alias[a];
                int32_t in = n->in[pair[1]];
                allowed = allowed || (pair[0] == k && in && lf_root_of(g, in) == ri &&
                                      column_in_root(g, in) == column_in_root(g, n->out[k]) &&
                                      g->t[in].cols == g->t[n->out[k]].cols);
            }
            if (!allowed)
                return false;
        }
    return true;
}

static void try_pair(struct pass *p, int32_t i, int out_slot, int in_slot)
{
    lf_graph *g = p->g;
    const struct lf_node *n = &g->n[i];
    int32_t o = n->out[out_slot], in = n->in[in_slot];
    if (!o || !in)
        return;
    int32_t ro = lf_root_of(g, o), ri = lf_root_of(g, in);
    const struct lf_tensor *to = &g->t[o], *ti = &g->t[in];
    if (ro == ri || !movable(&g->t[ro]) || !movable(&g->t[ri]) || to->dtype != ti->dtype ||
        to->rows != ti->rows || to->cols != ti->cols)
        return;
    int64_t ci = column_in_root(g, in), co = column_in_root(g, o);
    bool o_whole = o == ro, i_whole = in == ri;
    if (o_whole) {
        bool wider = g->t[ri].cols != ti->cols;
        if (!(wider && any_dense_only(g, ro)) && !read_later(p, ri, ci, ti->cols, i) &&
            !other_operand(p, n, in_slot, ri, ci, ti->cols))
            attach(g, o, ri, ci);
    } else if (i_whole) {
        if (!any_dense_only(g, ri) && !read_later(p, ri, 0, ti->cols, i) &&
            !busy(p, ro, co, ti->cols, ri, i, o) && !other_operand(p, n, in_slot, ri, 0, ti->cols))
            attach(g, in, ro, co);
    } else if (ci == co && whole_swap(p, n, i, ro, ri)) {
        attach(g, ro, ri, 0);
    }
}

static void mark_dense(lf_graph *g)
{
    for (size_t i = 0; i < g->n_n; i++) {
        const struct lf_node *n = &g->n[i];
        for (int k = 0; k < 2 && (lf_op_table[n->op].flags & LF_OPF_SAMELD); k++) {
            g->t[n->in[k]].dense_only = g->t[n->in[k]].dense_only || !g->t[n->in[k]].parent;
            g->t[n->out[k]].dense_only = g->t[n->out[k]].dense_only || !g->t[n->out[k]].parent;
        }
        if (!(lf_op_table[n->op].flags & LF_OPF_DENSE))
            continue;
        for (int k = 0; k < LF_MAX_IN; k++)
            g->t[n->in[k]].dense_only = true;
        for (int k = 0; k < LF_MAX_OUT; k++)
            g->t[n->out[k]].dense_only = true;
    }
}

int lf_alias(lf_graph *g, lf_err *err)
{
    struct pass p = {.g = g};
    int rc = 0;
    mark_dense(g);
    p.last = lf_malloc(g->n_t, sizeof *p.last, err);
    p.write = lf_malloc(g->n_t, sizeof *p.write, err);
    if (!p.last || !p.write) {
        rc = LF_ENOMEM;
        goto out;
    }
    for (size_t t = 0; t < g->n_t; t++)
        p.last[t] = p.write[t] = -1;
    for (size_t i = 0; i < g->n_n; i++) {
        for (int k = 0; k < LF_MAX_IN; k++)
            p.last[g->n[i].in[k]] = (int32_t)i;
        for (int k = 0; k < LF_MAX_OUT; k++)
            p.write[g->n[i].out[k]] = (int32_t)i;
    }
    /* What goes to experts of other ranks may go there again, in a later round (experts.h). */
    for (size_t i = 0; i < g->n_n; i++)
        for (int k = 0; k < LF_MAX_IN && g->n[i].op == LF_OP_EXPERT_SEND; k++)
            p.last[g->n[i].in[k]] = (int32_t)g->n_n;
    for (size_t i = 0; i < g->n_n; i++)
        for (int a = 0; a < 4 && lf_op_table[g->n[i].op].alias[a][0] >= 0; a++)
            try_pair(&p, (int32_t)i, lf_op_table[g->n[i].op].alias[a][0],
                     lf_op_table[g->n[i].op].alias[a][1]);
out:
    free(p.last);
    free(p.write);
    return rc;
}

static void touch(struct lf_tensor *r, int32_t i)
{
    if (r->first < 0 || i < r->first)
        r->first = i;
    if (i > r->last)
        r->last = i;
}

/* Does it live from before node `border` into it or what follows? */
static bool crosses(const struct lf_tensor *t, size_t border)
{
    return (size_t)t->first < border && (size_t)t->last >= border;
}

void lf_liveness(lf_graph *g)
{
    for (size_t t = 0; t < g->n_t; t++) {
        g->t[t].root = lf_root_of(g, (int32_t)t);
        g->t[t].root_col = column_in_root(g, (int32_t)t);
        g->t[t].first = g->t[t].last = -1;
        g->t[t].saved = false;
    }
    for (size_t i = 0; i < g->n_n; i++) {
        for (int k = 0; k < LF_MAX_IN; k++)
            if (g->n[i].in[k])
                touch(&g->t[g->t[g->n[i].in[k]].root], (int32_t)i);
        for (int k = 0; k < LF_MAX_OUT; k++)
            if (g->n[i].out[k])
                touch(&g->t[g->t[g->n[i].out[k]].root], (int32_t)i);
    }
    for (size_t t = 1; t < g->n_t; t++) {
        struct lf_tensor *r = &g->t[g->t[t].root];
        if (g->t[t].is_output && r->first >= 0)
            r->last = (int32_t)g->n_n - 1;
    }
    lf_mark_saved(g);
}

void lf_mark_saved(lf_graph *g)
{
    for (size_t t = 1; t < g->n_t; t++)
        if (g->t[t].root == (int32_t)t && g->t[t].first >= 0)
            g->t[t].saved = crosses(&g->t[t], g->n_fwd) || crosses(&g->t[t], g->n_bwd);
    for (size_t t = 1; t < g->n_t; t++) {
        struct lf_tensor *r = &g->t[g->t[t].root];
        r->saved = r->saved || (g->t[t].cut && g->t[t].is_output && r->first >= 0);
    }
}
