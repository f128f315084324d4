/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of experts come back beside what does not wait for them, such as the shared expert of a
 * layer (experts.h). A pass puts the nodes behind a return that need nothing of it before those
 * that do, as far as the next node that waits for other ranks. Both keep their order, and so do
 * all nodes that write one gradient: no bit changes.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/experts.h"

struct late {
    lf_graph *g;
    bool *wrote, *read; /* per tensor, a root: nodes that wait do so */
    bool *sums;         /* per group of the store: they write its gradient */
    bool *waits;        /* per node */
    int32_t *to;        /* per node: where it is now */
    struct lf_node *n;  /* [n_n] room for a window */
};

/* Does it wait for other ranks, or have an effect beside its outputs? */
static bool meets(const struct lf_node *n)
{
    const int kernel = lf_op_table[n->op].kernel;
    return kernel == LF_KID_exchange || kernel == LF_KID_attn_spread || kernel == LF_KID_experts ||
           (kernel == LF_KID_linear_xent && n->a.v_all) || (lf_op_table[n->op].flags & LF_OPF_SIDE);
}

static size_t segment_end(const lf_graph *g, size_t at)
{
    return at < g->n_fwd ? g->n_fwd : at < g->n_bwd ? g->n_bwd : g->n_n;
}

/* The first node behind `at` that no node passes. */
static size_t end_of(const lf_graph *g, size_t at)
{
    const size_t end = segment_end(g, at);
    while (++at < end && !meets(&g->n[at]))
        ;
    return at;
}

static bool waits(const struct late *l, const struct lf_node *n)
{
    const lf_graph *g = l->g;
    bool yes = false;
    for (int k = 0; k < LF_MAX_IN; k++)
        yes = yes || (n->in[k] && l->wrote[lf_root_of(g, n->in[k])]);
    for (int k = 0; k < LF_MAX_OUT; k++) {
        const int32_t t = n->out[k], r = t ? lf_root_of(g, t) : 0;
        yes = yes || (t && (l->wrote[r] || l->read[r])) ||
              (t && g->t[t].role == LF_ROLE_GRAD && l->sums[g->t[t].group]);
    }
    return yes;
}

static void mark(const struct late *l, const struct lf_node *n)
{
    const lf_graph *g = l->g;
    for (int k = 0; k < LF_MAX_IN; k++)
        if (n->in[k])
            l->read[lf_root_of(g, n->in[k])] = true;
    for (int k = 0; k < LF_MAX_OUT; k++) {
        const int32_t t = n->out[k];
        if (t)
            l->wrote[lf_root_of(g, t)] = true;
        if (t && g->t[t].role == LF_ROLE_GRAD)
            l->sums[g->t[t].group] = true;
    }
}

/* Sorts nodes (at, end) behind the return at `at`. */
static void sort(const struct late *l, size_t at, size_t end)
{
    lf_graph *g = l->g;
    size_t to = at + 1;
    memset(l->wrote, 0, g->n_t * sizeof *l->wrote);
    memset(l->read, 0, g->n_t * sizeof *l->read);
    memset(l->sums, 0, (g->ps->n_g + 1) * sizeof *l->sums);
    for (int k = 0; k < LF_MAX_OUT; k++)
        if (g->n[at].out[k])
            l->wrote[lf_root_of(g, g->n[at].out[k])] = true;
    for (size_t i = at + 1; i < end; i++) {
        l->waits[i] = waits(l, &g->n[i]);
        if (l->waits[i])
            mark(l, &g->n[i]);
        l->n[i] = g->n[i];
    }
    for (int late = 0; late < 2; late++)
        for (size_t i = at + 1; i < end; i++)
            if (l->waits[i] == (late == 1)) {
                l->to[i] = (int32_t)to;
                g->n[to++] = l->n[i];
            }
}

/* The order in which nodes were built goes on to be known (lf_plan_hash). */
static int remember(const struct late *l, lf_err *err)
{
    lf_graph *g = l->g;
    const bool given = g->order != NULL;
    if (!given && !(g->order = lf_malloc(g->n_n, sizeof *g->order, err)))
        return LF_ENOMEM;
    for (size_t i = 0; i < g->n_n; i++)
        g->order[i] = l->to[given ? (size_t)g->order[i] : i];
    return 0;
}

static void renumber(const lf_graph *g)
{
    for (size_t i = 0; i < g->n_n; i++)
        for (int k = 0; k < LF_MAX_OUT; k++)
            if (g->n[i].out[k])
                g->t[g->n[i].out[k]].producer = (int32_t)i;
}

int lf_late(lf_graph *g, lf_err *err)
{
    struct late l = {.g = g};
    l.wrote = lf_calloc(g->n_t, sizeof *l.wrote, err);
    l.read = lf_calloc(g->n_t, sizeof *l.read, err);
    l.sums = lf_calloc(g->ps->n_g + 1, sizeof *l.sums, err);
    l.waits = lf_calloc(g->n_n + 1, sizeof *l.waits, err);
    l.to = lf_calloc(g->n_n + 1, sizeof *l.to, err);
    l.n = lf_calloc(g->n_n + 1, sizeof *l.n, err);
    const bool ok = l.wrote && l.read && l.sums && l.waits && l.to && l.n;
    for (size_t i = 0; ok && i < g->n_n; i++)
        l.to[i] = (int32_t)i;
    for (size_t i = 0; ok && i < g->n_n; i++)
        if (g->n[i].op == LF_OP_EXPERT_RETURN)
            sort(&l, i, end_of(g, i));
    renumber(g);
    const int rc = ok ? remember(&l, err) : LF_ENOMEM;
    free(l.wrote);
    free(l.read);
    free(l.sums);
    free(l.waits);
    free(l.to);
    free(l.n);
    return rc;
}

int32_t lf_late_reader(const lf_graph *g, int32_t node)
{
    const size_t segment = segment_end(g, (size_t)node), window = end_of(g, (size_t)node),
                 end = window < segment ? window + 1 : segment;
    const int32_t back = lf_root_of(g, g->n[node].out[0]);
    for (size_t i = (size_t)node + 1; i < end && g->n[node].op == LF_OP_EXPERT_RETURN; i++)
        for (int k = 0; k < LF_MAX_IN + LF_MAX_OUT; k++) {
            const int32_t t = k < LF_MAX_IN ? g->n[i].in[k] : g->n[i].out[k - LF_MAX_IN];
            if (t && lf_root_of(g, t) == back)
                return i > (size_t)node + 1 ? (int32_t)i : 0;
        }
    return 0;
}

int32_t lf_late_until(const struct lf_chain *c, int32_t node)
{
    for (size_t k = 0; k < c->n_regions; k++)
        if (c->region[k].last == node && c->region[k].reader)
            return c->region[k].reader;
    return node;
}
