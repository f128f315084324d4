/* SPDX-License-Identifier: Apache-2.0
 *
 * Precision: decide the storage type of every float activation and make conversions explicit. A
 * tensor is in the compute type unless its op fixes its type or the model pinned it to f32. A node
 * that needs the compute type of a tensor stored otherwise reads a cast of it, made once and shared
 * by all its readers, forward and backward; weights are read through the store's copy, which is
 * such a cast shared by all graphs.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/priv.h"

struct pass {
    lf_graph *g;
    enum lf_dtype compute;
    int32_t *cast; /* per tensor: its cast to the compute type, 0 none yet */
    size_t cast_n;
    struct lf_nodes out;
};

static void set_types(lf_graph *g, enum lf_dtype compute)
{
    for (size_t i = 1; i < g->n_t; i++) {
        struct lf_tensor *t = &g->t[i];
        if (!t->fixed && !t->parent &&
            (t->role == LF_ROLE_ACT || t->role == LF_ROLE_INPUT ||
             (t->role == LF_ROLE_STATE && lf_is_float(t->dtype))))
            t->dtype = (uint8_t)(t->pinned ? LF_F32 : compute);
    }
    for (size_t i = 1; i < g->n_t; i++)
        g->t[i].dtype = g->t[lf_root_of(g, (int32_t)i)].dtype;
}

static void push_cast(struct pass *p, int32_t from, int32_t to, int32_t block)
{
    lf_nodes_push(p->g, &p->out,
                  &(struct lf_node){.op = LF_OP_CAST, .block = block, .in = {from}, .out = {to}});
}

static int32_t cast_tensor(struct pass *p, int32_t from, enum lf_dtype to, int32_t block)
{
    lf_graph *g = p->g;
    if (g->t[from].parent) {
        lf_graph_fail(g, LF_ENOTSUP,
                      "%s is a slice of a tensor pinned to f32; pin the slices' use instead",
                      g->t[from].name);
        return 0;
    }
    int32_t t = lf_tensor_new(g, to, LF_ROLE_ACT, g->t[from].rows, g->t[from].cols, "%s.cast",
                              g->t[from].name);
    if (!t)
        return 0;
    g->t[t].fixed = true;
    push_cast(p, from, t, block);
    return t;
}

static int32_t input_as_compute(struct pass *p, int32_t t, int32_t block)
{
    if (p->g->t[t].dtype == p->compute)
        return t;
    if ((size_t)t >= p->cast_n) { /* a cast of a cast cannot be asked for */
        lf_graph_fail(p->g, LF_EINVAL, "%s has type %d, which nothing converts", p->g->t[t].name,
                      p->g->t[t].dtype);
        return 0;
    }
    if (!p->cast[t])
        p->cast[t] = cast_tensor(p, t, p->compute, block);
    return p->cast[t];
}

static void one_node(struct pass *p, struct lf_node n)
{
    lf_graph *g = p->g;
    const struct lf_op_row *row = &lf_op_table[n.op];
    int32_t late[LF_MAX_OUT] = {0}; /* pinned results of a node that writes the compute type only */
    for (size_t k = 0; row->in_types[k]; k++) {
        if (!n.in[k])
            continue;
        const bool weight = row->in_types[k] == 'w', stored = g->t[n.in[k]].role == LF_ROLE_PARAM;
        if (row->in_types[k] == 'c' || (weight && !stored))
            n.in[k] = input_as_compute(p, n.in[k], n.block);
        else if (weight && p->compute != LF_F32)
            n.in[k] = lf_graph_copy(g, n.in[k]);
    }
    for (size_t k = 0; row->out_types[k]; k++) {
        int32_t o = n.out[k];
        if (!o || row->out_types[k] != 'c' || g->t[o].dtype == p->compute)
            continue;
        if (g->t[o].parent) {
            lf_graph_fail(g, LF_ENOTSUP, "%s writes a slice of a tensor pinned to f32 (%s)",
                          row->name, g->t[o].name);
            return;
        }
        late[k] = o;
        n.out[k] = lf_tensor_new(g, p->compute, LF_ROLE_ACT, g->t[o].rows, g->t[o].cols, "%s.raw",
                                 g->t[o].name);
        g->t[n.out[k]].fixed = true;
    }
    lf_nodes_push(g, &p->out, &n);
    for (int k = 0; k < LF_MAX_OUT; k++)
        if (late[k])
            push_cast(p, n.out[k], late[k], n.block);
}

int lf_precision(lf_graph *g, enum lf_dtype compute, lf_err *err)
{
    struct pass p = {.g = g, .compute = compute, .cast_n = g->n_t};
    int rc = lf_graph_check(g, err);
    if (rc != 0)
        return rc;
    set_types(g, compute);
    p.cast = lf_calloc(g->n_t, sizeof *p.cast, err);
    if (!p.cast)
        return LF_ENOMEM;
    size_t n_fwd = g->n_fwd, new_fwd = 0;
    for (size_t i = 0; i < g->n_n && !g->err.rc; i++) {
        if (i == n_fwd)
            new_fwd = p.out.count;
        one_node(&p, g->n[i]);
    }
    if (n_fwd == g->n_n)
        new_fwd = p.out.count;
    rc = lf_nodes_take(g, &p.out, new_fwd, err);
    free(p.cast);
    return rc;
}
