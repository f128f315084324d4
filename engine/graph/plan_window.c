/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows: where ranks keep parts of gradients (zero = 2) or of weights too (zero = 3), a chain has
 * all elements of a unit in its arena while its nodes use them.
 *
 * Weights. The nodes that read a unit form one window as long as at most one other unit is read in
 * between; so the last layer's weights stay from forward to backward, and those of the others are
 * gathered twice. Units are gathered one ahead: a window begins at the first node that reads the
 * unit before it.
 *
 * A region of experts (experts.h) runs as a whole, as often as there are rounds, so windows hold
 * all of it or nothing, and no event stands within.
 *
 * Gradients. A unit has one window, from the first node that writes it to the last. Then its sum
 * over ranks begins, each rank's part for that rank, and it is waited for where the next one
 * begins.
 *
 * All of this is decided here. When a chain runs, every rank does the same in the same order.
 */
#include <stdlib.h>

#include "engine/graph/priv.h"

struct pass {
    lf_plan *p;
    struct lf_chain *c;
    bool *reads;                     /* [node][unit] the node reads weights of the unit */
    const struct lf_region **region; /* [node] the one that it is in; NULL: none */
    size_t cap;
};

static bool read_by(const struct pass *s, size_t node, size_t unit)
{
    return s->reads[node * s->p->n_units + unit];
}

/* The group whose window tensor t is in; NULL: it is in none. */
static const struct lf_pgroup *group_of(const struct pass *s, int32_t t, int *kind)
{
    const struct lf_tensor *x = &s->c->g->t[s->c->g->t[t].root];
    if (!t || (x->role != LF_ROLE_PARAM && x->role != LF_ROLE_GRAD) || x->pkind >= LF_P_KINDS)
        return NULL;
    const struct lf_pgroup *g = &s->p->ps->g[x->group];
    *kind = x->pkind;
    return g->window[x->pkind] ? g : NULL;
}

/* Does a node use this kind of the unit? */
static bool node_uses(const struct pass *s, size_t node, size_t unit, int kind)
{
    const struct lf_node *n = &s->c->g->n[node];
    for (int k = 0; k < LF_MAX_IN + LF_MAX_OUT; k++) {
        int is = 0;
        const struct lf_pgroup *g =
            group_of(s, k < LF_MAX_IN ? n->in[k] : n->out[k - LF_MAX_IN], &is);
        if (g && is == kind && g->unit == (int32_t)unit)
            return true;
    }
    return false;
}

/* The same with what runs again in a region that begins with the node. */
static bool uses(const struct pass *s, size_t node, size_t unit, int kind)
{
    const struct lf_region *r = s->region[node];
    bool is = node_uses(s, node, unit, kind);
    if (r && (size_t)r->first == node && r->again >= 0)
        for (int32_t i = r->again; i <= r->again_last && !is; i++)
            is = node_uses(s, (size_t)i, unit, kind);
    return is;
}

/* Node `at` reads what node i does. */
static void mark_node(struct pass *s, size_t at, size_t i)
{
    for (int k = 0; k < LF_MAX_IN; k++) {
        int kind = 0;
        const struct lf_pgroup *g = group_of(s, s->c->g->n[i].in[k], &kind);
        if (g && kind != LF_P_GRAD)
            s->reads[at * s->p->n_units + (size_t)g->unit] = true;
    }
}

static void mark_reads(struct pass *s)
{
    for (size_t i = 0; i < s->c->g->n_n; i++)
        mark_node(s, i, i);
    for (size_t k = 0; k < s->c->n_regions; k++) {
        const struct lf_region *r = &s->c->region[k];
        for (int32_t i = r->first; i <= r->last; i++)
            s->region[i] = r;
        for (int32_t i = r->again; i >= 0 && i <= r->again_last; i++)
            mark_node(s, (size_t)r->first, (size_t)i);
    }
}

/* How many other units are read between two nodes; at most 2. */
static int read_between(const struct pass *s, size_t unit, size_t a, size_t b)
{
    int n = 0;
    for (size_t u = 0; u < s->p->n_units && n < 2; u++)
        for (size_t i = a + 1; i < b && u != unit; i++)
            if (read_by(s, i, u)) {
                n++;
                break;
            }
    return n;
}

static struct lf_window *add_window(struct pass *s, size_t unit, int kind, int32_t node,
                                    lf_err *err)
{
    struct lf_chain *c = s->c;
    if (lf_grow(&c->window, &s->cap, c->n_windows, sizeof *c->window, err))
        return NULL;
    struct lf_window *w = &c->window[c->n_windows++];
    *w = (struct lf_window){
        .unit = unit, .kind = (uint8_t)kind, .begin = node, .first = node, .last = node};
    return w;
}

/* The windows of a kind of a unit, in order. */
static int find_windows(struct pass *s, size_t unit, int kind, lf_err *err)
{
    const lf_graph *g = s->c->g;
    struct lf_window *w = NULL;
    for (size_t i = 0; i < g->n_n; i++) {
        if (!uses(s, i, unit, kind))
            continue;
        const struct lf_region *r = s->region[i];
        const bool parted = w && kind != LF_P_GRAD &&
                            ((s->c->o.slots > 1 && (size_t)w->last < g->n_fwd && i >= g->n_fwd) ||
                             read_between(s, unit, (size_t)w->last, i) > 1);
        if (!w || parted)
            w = add_window(s, unit, kind, r ? r->first : (int32_t)i, err);
        if (!w)
            return LF_ENOMEM;
        w->last = r ? r->last : (int32_t)i;
        w->end = w->last + 1;
    }
    return 0;
}

/* Weights first, by their first node; then gradients, by their last one. */
static int by_time(const void *a, const void *b)
{
    const struct lf_window *x = a, *y = b;
    const bool gx = x->kind == LF_P_GRAD, gy = y->kind == LF_P_GRAD;
    if (gx != gy)
        return gx - gy;
    const int32_t tx = gx ? x->last : x->first, ty = gx ? y->last : y->first;
    if (tx != ty)
        return (tx > ty) - (tx < ty);
    if (x->unit != y->unit)
        return (x->unit > y->unit) - (x->unit < y->unit);
    return (x->kind > y->kind) - (x->kind < y->kind);
}

static bool is_weights(const struct lf_chain *c, size_t i)
{
    return i < c->n_windows && c->window[i].kind != LF_P_GRAD;
}

/* Windows of one unit that follow each other begin together, when the unit before them is first
 * read, and in the same segment as they are read. */
static void gather_ahead(struct lf_chain *c)
{
    int32_t before = 0;
    for (size_t i = 0; is_weights(c, i);) {
        const int32_t first = c->window[i].first;
        const size_t unit = c->window[i].unit;
        for (; is_weights(c, i) && c->window[i].unit == unit; i++) {
            const int32_t n_fwd = (int32_t)c->g->n_fwd;
            c->window[i].begin = c->window[i].first >= n_fwd && before < n_fwd ? n_fwd : before;
        }
        before = first;
    }
}

/* A window of gradients stays until the next sum begins. */
static void sum_late(struct lf_chain *c)
{
    for (size_t i = 0; i < c->n_windows; i++) {
        struct lf_window *w = &c->window[i];
        if (w->kind != LF_P_GRAD)
            continue;
        size_t next = i + 1;
        while (next < c->n_windows && c->window[next].last == w->last)
            next++;
        w->end = next < c->n_windows ? c->window[next].last + 1 : (int32_t)c->g->n_n;
    }
}

/* Does any node write this group's gradient? */
static bool written(const struct pass *s, const struct lf_pgroup *group)
{
    const lf_graph *g = s->c->g;
    for (size_t i = 0; i < g->n_n; i++)
        for (int k = 0; k < LF_MAX_OUT; k++) {
            int kind = 0;
            if (group_of(s, g->n[i].out[k], &kind) == group && kind == LF_P_GRAD)
                return true;
        }
    return false;
}

static void find_unwritten(struct pass *s)
{
    for (size_t i = 0; i < s->c->n_windows; i++) {
        struct lf_window *w = &s->c->window[i];
        const struct lf_unit *u = &s->p->unit[w->unit];
        for (size_t k = u->first; k < u->end && w->kind == LF_P_GRAD; k++) {
            const struct lf_pgroup *g = &s->p->ps->g[k];
            if (g->unit == (int32_t)w->unit && g->window[LF_P_GRAD] && !written(s, g))
                w->fill = true;
        }
    }
}

/* ---- what happens when ---- */

static void add_event(struct lf_chain *c, int32_t node, enum lf_event_what what, size_t window)
{
    c->event[c->n_events++] =
        (struct lf_event){.node = node, .what = (uint8_t)what, .window = window};
}

static int by_node(const void *a, const void *b)
{
    const struct lf_event *x = a, *y = b;
    if (x->node != y->node)
        return (x->node > y->node) - (x->node < y->node);
    if (x->what != y->what)
        return x->what - y->what;
    return (x->window > y->window) - (x->window < y->window);
}

static int list_events(const lf_plan *p, struct lf_chain *c, lf_err *err)
{
    const int32_t end = (int32_t)c->g->n_n;
    c->event = lf_calloc(3 * c->n_windows + 1, sizeof *c->event, err);
    if (!c->event)
        return LF_ENOMEM;
    for (size_t i = 0; i < c->n_windows; i++) {
        const struct lf_window *w = &c->window[i];
        if (w->kind != LF_P_GRAD) {
            add_event(c, w->begin, w->begin == w->first ? LF_EV_GATHER_NOW : LF_EV_GATHER, i);
            add_event(c, w->first, LF_EV_GATHERED, i);
            continue;
        }
        if (w->fill || p->unit[w->unit].experts)
            add_event(c, w->first, LF_EV_FILL, i);
        add_event(c, w->last + 1, LF_EV_SUM, i);
        add_event(c, w->end, w->end == end ? LF_EV_LAST_SUMMED : LF_EV_SUMMED, i);
    }
    qsort(c->event, c->n_events, sizeof *c->event, by_node);
    return 0;
}

int lf_plan_windows(lf_plan *p, struct lf_chain *c, lf_err *err)
{
    struct pass s = {.p = p, .c = c};
    s.reads = lf_calloc(c->g->n_n * p->n_units + 1, sizeof *s.reads, err);
    s.region = lf_calloc(c->g->n_n + 1, sizeof *s.region, err);
    int rc = s.reads && s.region ? 0 : LF_ENOMEM;
    if (rc == 0)
        mark_reads(&s);
    for (size_t u = 0; u < p->n_units && rc == 0; u++)
        for (int k = 0; k < LF_P_KINDS && rc == 0; k++)
            rc = p->unit[u].bytes[k] ? find_windows(&s, u, k, err) : 0;
    if (rc == 0 && c->n_windows) {
        qsort(c->window, c->n_windows, sizeof *c->window, by_time);
        gather_ahead(c);
        sum_late(c);
        find_unwritten(&s);
        rc = list_events(p, c, err);
    }
    free(s.reads);
    free(s.region);
    return rc;
}

const struct lf_window *lf_chain_window(const struct lf_chain *c, const struct lf_pgroup *g,
                                        int kind, size_t node)
{
    for (size_t i = 0; i < c->n_windows; i++) {
        const struct lf_window *w = &c->window[i];
        if ((int32_t)w->unit == g->unit && w->kind == kind && (int32_t)node >= w->first &&
            (int32_t)node <= w->last)
            return w;
    }
    return NULL;
}
