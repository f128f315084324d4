/* SPDX-License-Identifier: Apache-2.0
 *
 * The backward pass in two segments, as zero-bubble pipelines run it (Qi et al. 2024): first what
 * the chunk before waits for, then what only the optimizer needs. Both keep the order of their
 * nodes, and so do all nodes that write one gradient: no bit changes.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/priv.h"

struct split {
    lf_graph *g;
    bool *input; /* per node: it belongs to the first segment */
    bool *need;  /* per tensor, a root: the first segment reads or gives it */
    bool *later; /* per group of the store: a later node of the first segment writes its gradient */
};

/* The slot with the gradient that a node sums up to gradients of weights alone; -1: it is another
 * node. */
static int summed_slot(const lf_graph *g, const struct lf_node *n)
{
    for (int k = 0; k < LF_MAX_OUT; k++)
        if (n->out[k] && g->t[n->out[k]].role != LF_ROLE_GRAD)
            return -1;
    switch (n->op) {
    case LF_OP_LINEAR_DW:
    case LF_OP_LINEAR_DW_FP8:
        return LDW_DY;
    case LF_OP_MOE_LINEAR_DW:
        return MOEDW_DY;
    case LF_OP_EMBED_BWD:
        return EMBB_DY;
    case LF_OP_COLSUM:
    case LF_OP_MOE_COLSUM:
        return 0;
    default:
        return -1;
    }
}

/* What the first segment is for: the outputs of the backward pass. The first chunk has none; its
 * first segment makes the gradients of all activations, which is what a schedule takes it for. */
static void choose_ends(struct split *s)
{
    const lf_graph *g = s->g;
    bool any = false;
    for (size_t i = g->n_fwd; i < g->n_n; i++)
        for (int k = 0; k < LF_MAX_OUT; k++)
            if (g->t[g->n[i].out[k]].is_output)
                any = s->need[lf_root_of(g, g->n[i].out[k])] = true;
    for (size_t i = g->n_fwd; i < g->n_n && !any; i++) {
        const int slot = summed_slot(g, &g->n[i]);
        if (slot >= 0)
            s->need[lf_root_of(g, g->n[i].in[slot])] = true;
    }
}

/* Rows of other ranks are here until the next ones come, so the sums over them are not put off. */
static bool of_others(const lf_graph *g, const struct lf_node *n)
{
    return g->ps->layout.expert > 1 && (n->op == LF_OP_MOE_LINEAR_DW || n->op == LF_OP_MOE_COLSUM);
}

/* Does the first segment need a node, given what it has of the nodes behind? */
static bool needed(const struct split *s, const struct lf_node *n)
{
    const lf_graph *g = s->g;
    bool yes = of_others(g, n);
    for (int k = 0; k < LF_MAX_OUT; k++) {
        const int32_t t = n->out[k];
        yes = yes || (t && (s->need[lf_root_of(g, t)] ||
                            (g->t[t].role == LF_ROLE_GRAD && s->later[g->t[t].group])));
    }
    return yes;
}

static void mark(struct split *s)
{
    const lf_graph *g = s->g;
    for (size_t i = g->n_n; i-- > g->n_fwd;) {
        const struct lf_node *n = &g->n[i];
        s->input[i] = needed(s, n);
        for (int k = 0; k < LF_MAX_IN && s->input[i]; k++)
            s->need[lf_root_of(g, n->in[k])] = true;
        s->need[0] = false;
        for (int k = 0; k < LF_MAX_OUT && s->input[i]; k++)
            if (n->out[k] && g->t[n->out[k]].role == LF_ROLE_GRAD)
                s->later[g->t[n->out[k]].group] = true;
    }
}

/* The nodes in their new order; g->order remembers the old one. */
static int reorder(const struct split *s, lf_err *err)
{
    lf_graph *g = s->g;
    struct lf_node *n = lf_malloc(g->n_n, sizeof *n, err);
    size_t at = 0;
    g->order = lf_malloc(g->n_n, sizeof *g->order, err);
    if (!n || !g->order) {
        free(n);
        return LF_ENOMEM;
    }
    for (int segment = 0; segment < 3; segment++) {
        for (size_t i = segment ? g->n_fwd : 0; i < (segment ? g->n_n : g->n_fwd); i++) {
            if (segment && s->input[i] != (segment == 1))
                continue;
            g->order[i] = (int32_t)at;
            n[at++] = g->n[i];
        }
        if (segment == 1)
            g->n_bwd = at;
    }
    memcpy(g->n, n, g->n_n * sizeof *n);
    free(n);
    for (size_t i = 0; i < g->n_n; i++)
        for (int k = 0; k < LF_MAX_OUT; k++)
            if (g->n[i].out[k])
                g->t[g->n[i].out[k]].producer = (int32_t)i;
    return 0;
}

int lf_split(lf_graph *g, lf_err *err)
{
    struct split s = {.g = g};
    int rc = LF_ENOMEM;
    s.input = lf_calloc(g->n_n, sizeof *s.input, err);
    s.need = lf_calloc(g->n_t, sizeof *s.need, err);
    s.later = lf_calloc(g->ps->n_g + 1, sizeof *s.later, err);
    if (s.input && s.need && s.later) {
        choose_ends(&s);
        mark(&s);
        rc = reorder(&s, err);
    }
    free(s.input);
    free(s.need);
    free(s.later);
    return rc;
}
