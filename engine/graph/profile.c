/* SPDX-License-Identifier: Apache-2.0
 *
 * Collecting: what an executor runs while a profile looks on. A node's time is that of its kernel:
 * on a backend whose calls are over when they return by the host's clock, elsewhere by stamps in
 * the queue, read at the end of the segment.
 */
#include "engine/graph/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/sys.h"
#include "engine/graph/experts.h"
#include "engine/graph/profile_priv.h"

lf_profile *lf_profile_create(lf_err *err)
{
    lf_profile *p = lf_calloc(1, sizeof *p, err);
    if (!p)
        return NULL;
    p->created = lf_now_s();
    p->nodes.e = lf_calloc(LF_PROF_RING, sizeof *p->nodes.e, err);
    p->phases.e = lf_calloc(LF_PROF_RING, sizeof *p->phases.e, err);
    if (p->nodes.e && p->phases.e)
        return p;
    lf_profile_destroy(p);
    return NULL;
}

static void graph_destroy(struct lf_prof_graph *g)
{
    if (!g)
        return;
    free(g->name);
    free(g->segment[0]);
    free(g->segment[1]);
    free(g->node);
    free(g);
}

void lf_profile_destroy(lf_profile *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n_graphs; i++)
        graph_destroy(p->graph[i]);
    free(p->graph);
    free(p->nodes.e);
    free(p->phases.e);
    free(p);
}

bool lf_profile_ran(const lf_profile *p)
{
    return p->nodes.n > 0;
}

/* ---- phases ---- */

static void note(struct lf_prof_ring *r, double t0, double seconds, enum lf_profile_lane lane,
                 const char *name, const struct lf_prof_node *node)
{
    r->e[r->n++ % LF_PROF_RING] = (struct lf_prof_event){t0, seconds, node, name, (uint8_t)lane};
}

struct lf_profile_mark lf_profile_begin(const lf_profile *p)
{
    return p ? (struct lf_profile_mark){lf_now_s(), p->kernels} : (struct lf_profile_mark){0, 0};
}

static void add_phase(lf_profile *p, enum lf_profile_lane lane, const char *name, double t0,
                      double seconds, double kernels)
{
    size_t i = 0;
    while (i < p->n_phases && (p->phase[i].lane != lane || strcmp(p->phase[i].name, name) != 0))
        i++;
    if (i == LF_PROF_PHASES)
        return;
    struct lf_prof_phase *f = &p->phase[i];
    if (i == p->n_phases) {
        p->n_phases++;
        f->name = name;
        f->lane = lane;
    }
    f->count++;
    f->seconds += seconds;
    f->kernels += kernels;
    f->longest = seconds > f->longest ? seconds : f->longest;
    note(&p->phases, t0, seconds, lane, name, NULL);
}

void lf_profile_end(lf_profile *p, enum lf_profile_lane lane, const char *name,
                    struct lf_profile_mark m)
{
    if (p)
        add_phase(p, lane, name, m.t0, lf_now_s() - m.t0, p->kernels - m.kernels);
}

void lf_profile_span(lf_profile *p, enum lf_profile_lane lane, const char *name, double t0,
                     double seconds)
{
    if (p)
        add_phase(p, lane, name, t0, seconds, 0);
}

/* ---- what there is to run ---- */

static char *joined(const char *a, const char *b, lf_err *err)
{
    lf_buf s;
    lf_buf_init(&s);
    lf_buf_addf(&s, "%s%s", a, b);
    char *text = lf_buf_steal(&s, err);
    lf_buf_fini(&s);
    return text;
}

static struct lf_prof_graph *graph_new(lf_profile *p, const char *label, const char *name,
                                       const char *const ends[2], size_t n, lf_err *err)
{
    if (lf_grow(&p->graph, &p->cap_graphs, p->n_graphs, sizeof *p->graph, err))
        return NULL;
    struct lf_prof_graph *g = lf_calloc(1, sizeof *g, err);
    if (!g)
        return NULL;
    p->graph[p->n_graphs] = g;
    g->n = n;
    g->node = lf_calloc(n + 1, sizeof *g->node, err);
    char *front = joined(label ? label : "", label ? "/" : "", err);
    g->name = front ? joined(front, name, err) : NULL;
    free(front);
    for (int i = 0; i < 2 && g->name; i++)
        g->segment[i] = joined(g->name, ends[i], err);
    if (!g->node || !g->name || !g->segment[0] || !g->segment[1]) {
        graph_destroy(g);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        g->node[i] = (struct lf_prof_node){
            .op = "", .layer = LF_PROF_OUTSIDE, .graph = (int32_t)p->n_graphs, .index = (int32_t)i};
    p->n_graphs++;
    return g;
}

static struct lf_prof_graph *chain_graph(lf_profile *p, const lf_exec *ex, const struct lf_chain *c,
                                         lf_err *err)
{
    static const char *const ends[2] = {" forward", " backward"};
    const lf_graph *g = c->g;
    struct lf_prof_graph *o = graph_new(p, ex->o.label, g->name, ends, g->n_n, err);
    if (!o)
        return NULL;
    o->n_fwd = g->n_fwd;
    for (size_t i = 0; i < g->n_n; i++) {
        const struct lf_node *n = &g->n[i];
        const struct lf_op_row *row = &lf_op_table[n->op];
        o->node[i].op = row->name;
        o->node[i].again = n->clone;
        o->node[i].layer = n->block;
        const int in = n->in[0] ? g->t[n->in[0]].dtype : LF_F32;
        o->node[i].bf16 = in == LF_BF16 || in == LF_F16 || in == LF_E4M3 ||
                          in == LF_E5M2; /* 8-bit products are measured against it too */
        o->node[i].flops = row->flops ? row->flops(g, n, false) : 0;
        o->node[i].bytes = lf_node_traffic(g, n);
    }
    return o;
}

/* AdamW reads a gradient, reads and writes weight, moments and an average where there is one, and
 * writes a copy where there is one. */
static double adamw_bytes(const struct lf_opt_tensor *t)
{
    const size_t each = 4 +
                        2 * (lf_dtype_size(t->master_type) + 2 * lf_dtype_size(t->moment_type)) +
                        (t->copy ? 2 : 0) + (t->ema ? 2 * sizeof *t->ema : 0);
    return (double)each * (double)t->n;
}

/* It reads twice with one scale for the tensor. */
static double quantise_bytes(const struct lf_k_quantise *a)
{
    const double reads = a->scaling == LF_FP8_TENSOR ? 2 : 1,
                 each = reads * (double)lf_dtype_size(a->x_type);
    return (each + (a->q ? 1 : 0) + (a->qt ? 1 : 0)) * (double)a->rows * (double)a->cols;
}

/* A norm reads gradients, or the sums that another call made of them. */
static double norm_bytes(const struct lf_k_grad_norm *a, double gradients)
{
    return a->sums && !a->parts ? (double)a->n_sums * sizeof(double) : gradients;
}

/* Balancing touches next to nothing. */
static struct lf_prof_graph *optimizer_graph(lf_profile *p, const lf_exec *ex, lf_err *err)
{
    static const char *const ends[2] = {"", ""};
    struct lf_prof_graph *o = graph_new(p, ex->o.label, "optimizer", ends, ex->n_opt, err);
    double norm = 0, adamw = 0;
    for (size_t i = 0; o && i < ex->n_own; i++)
        adamw += adamw_bytes(&ex->own_host[i]);
    for (size_t i = 0; o && i < ex->p->n_opt_tensors && !ex->p->n_sums; i++)
        norm += 4.0 * (double)ex->opt_host[i].n;
    for (size_t i = 0; o && i < ex->n_own && ex->p->n_sums; i++)
        norm += 4.0 * (double)ex->own_host[i].n;
    for (size_t i = 0; o && i < ex->n_opt; i++) {
        o->node[i].op = lf_kernel_table[ex->opt[i].kernel].name;
        o->node[i].bytes = ex->opt[i].kernel == LF_KID_grad_norm ? norm_bytes(ex->opt[i].args, norm)
                           : ex->opt[i].kernel == LF_KID_adamw   ? adamw
                           : ex->opt[i].kernel == LF_KID_quantise ? quantise_bytes(ex->opt[i].args)
                                                                  : 0;
    }
    return o;
}

static struct lf_prof_graph *refresh_graph(lf_profile *p, const lf_exec *ex, lf_err *err)
{
    static const char *const ends[2] = {" of copies", " of panels"};
    struct lf_prof_graph *o =
        graph_new(p, ex->o.label, "refresh", ends, ex->n_copies + ex->n_packs, err);
    if (!o)
        return NULL;
    o->n_fwd = ex->n_copies;
    for (size_t i = 0; i < ex->n_copies; i++) {
        const struct lf_k_axpby *a = ex->copies[i].args;
        if (ex->copies[i].kernel == LF_KID_quantise) {
            o->node[i].op = "quantise";
            o->node[i].bytes = quantise_bytes(ex->copies[i].args);
            continue;
        }
        o->node[i].op = "refresh_copy";
        o->node[i].bytes =
            (double)a->n * (double)(lf_dtype_size(a->a_type) + lf_dtype_size(a->y_type));
    }
    for (size_t i = 0; i < ex->n_packs; i++) {
        const struct lf_k_gemm_pack *a = ex->packs[i].args;
        o->node[ex->n_copies + i].op = "refresh_panels";
        o->node[ex->n_copies + i].bytes =
            (double)(a->n * a->k) * (double)lf_dtype_size(a->src_type) + (double)a->packed_bytes;
    }
    return o;
}

static int probe(lf_profile *p, const lf_exec *ex, lf_err *err)
{
    if (p->probed)
        return 0;
    p->probed = true;
    p->threads = ex->b->threads;
    snprintf(p->device, sizeof p->device, "%s", ex->b->kernels->family);
    if (!ex->b->ops->probe)
        return 0;
    int rc = ex->b->ops->probe(ex->b, LF_PEAK_ALL, &p->peak, err);
    p->has_peak = rc == 0;
    return rc;
}

struct lf_prof_exec *lf_prof_attach(lf_exec *ex, lf_err *err)
{
    lf_profile *p = ex->o.profile;
    struct lf_prof_exec *x = lf_calloc(1, sizeof *x, err);
    if (!x)
        return NULL;
    size_t most = ex->n_opt > ex->n_copies ? ex->n_opt : ex->n_copies;
    most = ex->n_packs > most ? ex->n_packs : most;
    x->p = p;
    x->chain = lf_calloc(ex->p->n_c + 1, sizeof *x->chain, err);
    bool ok = x->chain && probe(p, ex, err) == 0;
    for (size_t i = 0; i < ex->p->n_c && ok; i++) {
        x->chain[i] = chain_graph(p, ex, &ex->p->c[i], err);
        ok = x->chain[i] != NULL;
        most = ok && x->chain[i]->n > most ? x->chain[i]->n : most;
    }
    if (ok &&
        (ok = (x->opt = optimizer_graph(p, ex, err)) && (x->refresh = refresh_graph(p, ex, err))))
        ok = (x->at = lf_calloc(most + 1, sizeof *x->at, err));
    if (ok)
        return x;
    lf_prof_detach(x);
    return NULL;
}

void lf_prof_detach(struct lf_prof_exec *x)
{
    if (!x)
        return;
    free(x->chain);
    free(x->at);
    free(x);
}

/* ---- running ---- */

static int stamp(const lf_exec *ex, size_t i, lf_err *err)
{
    if (ex->b->ops->stamp)
        return ex->b->ops->stamp(ex->b, i, err);
    ex->prof->at[i] = lf_now_s();
    return 0;
}

/* The times of n calls are in at: give them to their nodes. */
static void take(lf_exec *ex, struct lf_prof_graph *g, size_t from, size_t n, int seg, double t0)
{
    lf_profile *p = ex->prof->p;
    const double *at = ex->prof->at;
    struct lf_prof_segment *s = &g->seg[seg];
    const double start =
        ex->b->ops->stamp ? t0 - at[0] : 0; /* a device's times begin with its first */
    for (size_t i = 0; i < n; i++) {
        struct lf_prof_node *node = &g->node[from + i];
        const double took = at[i + 1] - at[i];
        node->seconds += took;
        node->calls++;
        s->kernels += took;
        s->flops += node->flops;
        s->bytes += node->bytes;
        p->kernels += took;
        note(&p->nodes, start + at[i], took, LF_LANE_NODE, node->op, node);
    }
    const double took = lf_now_s() - t0;
    s->seconds += took;
    s->runs += from == (seg ? g->n_fwd : 0); /* a segment may run in pieces */
    note(&p->phases, t0, took, LF_LANE_SEGMENT, g->segment[seg], NULL);
}

/* Run n calls, with a stamp before the first and after each. 0, or the kernel's failure and which
 * call it was. */
struct stamped {
    const struct lf_chain *chain; /* NULL: the calls are of no chain */
    const struct lf_call *calls;
    size_t from, n;
};

static int run_stamped(lf_exec *ex, const struct stamped *s, size_t *bad, int *krc, lf_err *err)
{
    const size_t n = s->n;
    *krc = 0;
    int rc = stamp(ex, 0, err);
    for (size_t i = 0; i < n && rc == 0 && !*krc; i++) {
        *bad = i;
        *krc = s->chain ? lf_exec_node(ex, s->chain, s->calls, s->from + i)
                        : lf_exec_call(ex, &s->calls[s->from + i]);
        if (!*krc)
            rc = stamp(ex, i + 1, err);
    }
    if (rc == 0 && !*krc && ex->b->ops->stamp)
        rc = ex->b->ops->stamps(ex->b, ex->prof->at, n + 1, err);
    return rc;
}

int lf_prof_segment(lf_exec *ex, int chain, enum lf_segment seg, const struct lf_call *calls,
                    size_t from, size_t to, lf_err *err)
{
    struct lf_prof_graph *g = ex->prof->chain[chain];
    const size_t n = to - from;
    const double t0 = lf_now_s();
    size_t bad = 0;
    const struct stamped s = {&ex->p->c[chain], calls, from, n};
    int krc, rc = run_stamped(ex, &s, &bad, &krc, err);
    if (krc)
        return lf_exec_call_failed(ex, &ex->p->c[chain], from + bad, krc, err);
    if (rc == 0)
        take(ex, g, from, n, seg == LF_FWD ? 0 : 1, t0);
    return rc;
}

int lf_prof_calls(lf_exec *ex, const struct lf_call *calls, size_t n, const char *what, lf_err *err)
{
    const double t0 = lf_now_s();
    const bool packs = calls == ex->packs;
    size_t bad = 0;
    const struct stamped s = {NULL, calls, 0, n};
    int krc, rc = run_stamped(ex, &s, &bad, &krc, err);
    if (krc)
        return lf_fail(err, krc == LF_K_EINVAL ? LF_EINVAL : LF_EDEVICE, "%s: kernel %s failed",
                       what, lf_kernel_table[calls[bad].kernel].name);
    const bool opt = calls >= ex->opt && calls < ex->opt + ex->n_opt;
    if (rc == 0)
        take(ex, opt ? ex->prof->opt : ex->prof->refresh,
             opt     ? (size_t)(calls - ex->opt)
             : packs ? ex->n_copies
                     : 0,
             n, packs, t0);
    return rc;
}
