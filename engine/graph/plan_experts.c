/* SPDX-License-Identifier: Apache-2.0
 *
 * Regions of a chain in which ranks divide experts: see experts.h. They are found when all passes
 * are done, so that whatever a pass puts between a send and its return belongs to them; what could
 * not be done once for each round is refused here.
 */
#include <stdlib.h>

#include "engine/graph/experts.h"

static int32_t counts_of(const struct lf_node *n)
{
    return n->op == LF_OP_EXPERT_SEND     ? n->in[SEND_COUNTS]
           : n->op == LF_OP_EXPERT_RETURN ? n->in[RETURN_COUNTS]
                                          : 0;
}

static bool marked(const lf_graph *g, const bool *of, const int32_t *t, int n)
{
    for (int k = 0; k < n; k++)
        if (t[k] && of[g->t[t[k]].root])
            return true;
    return false;
}

static void mark(const lf_graph *g, bool *of, const struct lf_node *n)
{
    for (int k = 0; k < LF_MAX_OUT; k++)
        if (n->out[k] && g->t[n->out[k]].role == LF_ROLE_ACT)
            of[g->t[n->out[k]].root] = true;
}

/* The last node of the region that begins with node `first`: the return of what was sent, or where
 * nothing returns, the last one that reads what came of it. Of a repeated region the nodes are
 * repeated ones: it ends before the region whose gradients read what it makes. */
static int32_t end_of(const lf_graph *g, int32_t first, bool *own)
{
    const size_t end = (size_t)first < g->n_fwd ? g->n_fwd : g->n_n;
    int32_t last = first;
    mark(g, own, &g->n[first]);
    for (size_t i = (size_t)first + 1; i < end; i++) {
        const struct lf_node *n = &g->n[i];
        if (g->n[first].clone && !n->clone)
            continue;
        if (n->op == LF_OP_EXPERT_RETURN && counts_of(n) == counts_of(&g->n[first]))
            return (int32_t)i;
        if (!marked(g, own, n->in, LF_MAX_IN))
            continue;
        last = (int32_t)i;
        mark(g, own, n);
    }
    return last;
}

/* May a node run once for each round? Sums over rows must be those of experts, which know where
 * their rows end. */
static bool by_rounds(const lf_graph *g, const struct lf_node *n)
{
    bool sums = false;
    for (int k = 0; k < LF_MAX_OUT; k++)
        sums = sums || (n->out[k] && g->t[n->out[k]].role == LF_ROLE_GRAD);
    if (sums)
        return n->op == LF_OP_MOE_LINEAR_DW || n->op == LF_OP_MOE_COLSUM;
    return !(lf_op_table[n->op].flags & LF_OPF_SIDE);
}

static int check_region(const lf_graph *g, const struct lf_region *r, lf_err *err)
{
    char text[600];
    for (int32_t i = r->first + 1; i <= r->last; i++)
        if (!by_rounds(g, &g->n[i]) && !(i == r->last && g->n[i].op == LF_OP_EXPERT_RETURN))
            return lf_fail(err, LF_ENOTSUP,
                           "expert: graph %s has %s among what experts of several ranks compute, "
                           "which would sum rows of other ranks; leave expert out",
                           g->name, lf_node_text(g, &g->n[i], text, sizeof text));
    return 0;
}

/* May more rows come than a rank has room for? */
static bool several_rounds(const struct lf_chain *c, const struct lf_layout *l, int32_t send)
{
    const lf_graph *g = c->g;
    const struct lf_node *n = &g->n[send];
    const int32_t pairs = n->in[SEND_ROW_OF] ? n->in[SEND_ROW_OF] : n->in[SEND_X];
    const struct lf_expert_pairs p = {g->t[pairs].rows, n->a.k, n->a.experts, n->a.capacity};
    return g->t[n->out[SEND_ROWS]].rows < lf_experts_most(l, &p);
}

/* The nodes that made what a region of gradients reads: those of the forward pass, or where they
 * were repeated (recompute.c), the repeated ones, whose region is nearer. */
static void find_again(const struct lf_chain *c, struct lf_region *r)
{
    const lf_graph *g = c->g;
    const bool gradients = (size_t)r->first >= g->n_fwd && !g->n[r->first].clone;
    for (size_t k = 0; k < c->n_regions && gradients; k++) {
        const struct lf_region *f = &c->region[k];
        if (counts_of(&g->n[f->first]) != counts_of(&g->n[r->first]))
            continue;
        r->again = r->again_last = f->first;
        for (int32_t i = f->first; i <= f->last && g->n[i].op != LF_OP_EXPERT_RETURN; i++)
            for (int s = 0; s < LF_MAX_OUT; s++)
                if (g->n[i].out[s] && g->t[g->t[g->n[i].out[s]].root].last >= r->first)
                    r->again_last = i;
    }
}

/* What nodes [from, to] read stays until node `until`, and what they make for later, too: other
 * bytes would be written over between two rounds. */
static void keep(lf_graph *g, int32_t from, int32_t to, int32_t until)
{
    for (int32_t i = from; i <= to; i++)
        for (int k = 0; k < LF_MAX_IN + LF_MAX_OUT; k++) {
            const int32_t t = k < LF_MAX_IN ? g->n[i].in[k] : g->n[i].out[k - LF_MAX_IN];
            struct lf_tensor *r = &g->t[g->t[t].root];
            if (!t || r->role != LF_ROLE_ACT)
                continue;
            if (r->first < from || until > to) /* from before, or for another region */
                r->last = r->last > until ? r->last : until;
            else if (r->last > to)
                r->first = r->first < from ? r->first : from;
        }
}

/* Rows that come back late go to their places by the counts. */
static void keep_counts(lf_graph *g, const struct lf_region *r)
{
    struct lf_tensor *counts = &g->t[lf_root_of(g, counts_of(&g->n[r->last]))];
    if (r->reader && counts->last < r->reader)
        counts->last = r->reader;
}

static int add_region(struct lf_chain *c, size_t *cap, int32_t first, bool *own, lf_err *err)
{
    int rc = lf_grow(&c->region, cap, c->n_regions, sizeof *c->region, err);
    if (rc != 0)
        return rc;
    struct lf_region r = {.first = first, .again = -1};
    for (size_t k = 0; k < c->n_regions; k++) /* what a backward region may read */
        for (int32_t i = c->region[k].first; i <= c->region[k].last; i++)
            if (counts_of(&c->g->n[c->region[k].first]) == counts_of(&c->g->n[first]))
                mark(c->g, own, &c->g->n[i]);
    r.last = end_of(c->g, first, own);
    r.reader = lf_late_reader(c->g, r.last);
    keep_counts(c->g, &r);
    if (several_rounds(c, &c->g->ps->layout, first))
        find_again(c, &r);
    c->region[c->n_regions++] = r;
    return check_region(c->g, &r, err);
}

int lf_plan_regions(lf_plan *p, struct lf_chain *c, lf_err *err)
{
    lf_graph *g = c->g;
    const struct lf_layout *l = &p->ps->layout;
    size_t cap = 0;
    int rc = 0;
    bool *own = l->expert > 1 ? lf_calloc(g->n_t, sizeof *own, err) : NULL;
    if (l->expert <= 1)
        return 0;
    for (size_t i = 0; own && i < g->n_n && rc == 0; i++)
        if (g->n[i].op == LF_OP_EXPERT_SEND) {
            for (size_t t = 0; t < g->n_t; t++)
                own[t] = false;
            rc = add_region(c, &cap, (int32_t)i, own, err);
        }
    for (size_t k = 0; k < c->n_regions && rc == 0; k++) {
        const struct lf_region *r = &c->region[k];
        if (several_rounds(c, l, r->first))
            keep(g, r->first, r->last, r->last);
        if (r->again >= 0)
            keep(g, r->again, r->again_last, r->last);
    }
    lf_mark_saved(g);
    free(own);
    return own || rc ? rc : LF_ENOMEM;
}

/* ---- what moves ---- */

struct lf_plan_moved lf_plan_pass_experts(const lf_plan *p, int chain, bool backward,
                                          struct lf_plan_moved *rows)
{
    struct lf_plan_moved m = {0};
    const struct lf_chain *c = &p->c[chain];
    const lf_graph *g = c->g;
    const double others = p->ps->layout.expert - 1;
    *rows = m;
    for (size_t i = 0; i < (backward ? g->n_n : g->n_fwd); i++) {
        const struct lf_node *n = &g->n[i];
        const bool send = n->op == LF_OP_EXPERT_SEND;
        if (n->op == LF_OP_EXPERT_COUNT) {
            m.messages++;
            m.bytes += others * n->a.experts * (double)sizeof(int32_t);
        } else if (send || n->op == LF_OP_EXPERT_RETURN) {
            const struct lf_tensor *y = &g->t[n->out[0]], *x = &g->t[n->in[0]],
                                   *order = send && n->in[SEND_ROW_OF] ? &g->t[n->in[SEND_ROW_OF]]
                                            : send                     ? x
                                                                       : y;
            rows->messages++;
            rows->bytes += (double)lf_experts_own(&p->ps->layout, order->rows, n->a.k) * others /
                           (others + 1) * (double)y->cols *
                           (double)lf_dtype_size((enum lf_dtype)y->dtype);
        }
    }
    return m;
}

void lf_plan_count_experts(const lf_plan *p, struct lf_plan_comm *out)
{
    for (size_t k = 0; k < p->n_c && p->ps->layout.expert > 1; k++) {
        if (!p->c[k].o.train)
            continue;
        struct lf_plan_moved rows;
        const struct lf_plan_moved counts = lf_plan_pass_experts(p, (int)k, true, &rows);
        out->micro_counts.messages += counts.messages;
        out->micro_counts.bytes += counts.bytes;
        out->micro_rows.messages += rows.messages;
        out->micro_rows.bytes += rows.bytes;
    }
}
