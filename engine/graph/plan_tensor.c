/* SPDX-License-Identifier: Apache-2.0
 *
 * What is moved among the ranks of the tensor axis, in calls and bytes as communicators count them
 * (engine/comm/comm.h): by the nodes of a chain (kern_table.c), by the output layer of a divided
 * vocabulary (kernels.h, linear_xent), and by the optimizer's segment (exec_tensor.c). And what
 * nodes move among those of the context axis (kern_context.c).
 */
#include "engine/graph/priv.h"

static void add_sum(const lf_plan *p, struct lf_plan_moved *m, size_t n, size_t each)
{
    const struct lf_layout *l = &p->ps->layout;
    lf_moved_add_sum(p, m, n, each, l->tensor, l->tensor_rank);
}

static void add_even(struct lf_plan_moved *m, size_t bytes, int ranks)
{
    m->messages++;
    m->bytes += (double)bytes * (ranks - 1);
}

/* Each rank gives every other one as many bytes: its part of a gather, or the other's of a sum. */
static void add_parts(const lf_plan *p, struct lf_plan_moved *m, size_t bytes)
{
    add_even(m, bytes, p->ps->layout.tensor);
}

static void count_exchange(const lf_plan *p, struct lf_plan_moved *m, const struct lf_k_exchange *k)
{
    switch (k->what) {
    case LF_EX_SUM:
        add_sum(p, m, k->n, sizeof(float));
        break;
    case LF_EX_SCATTER:
        add_parts(p, m, k->n * sizeof(float));
        break;
    case LF_EX_GATHER:
        add_parts(p, m, k->n * lf_dtype_size((enum lf_dtype)k->in_type));
        break;
    case LF_EX_JOIN:
        add_parts(p, m, (size_t)(k->rows * k->each) * lf_dtype_size((enum lf_dtype)k->in_type));
        break;
    default: /* a rank takes its rows of what it has */
        break;
    }
}

static void count_head(const lf_plan *p, struct lf_plan_moved *m, const struct lf_k_linear_xent *k)
{
    const int64_t most = p->o.target->sm ? lf_cuda_xent_rows(k) : LF_XENT_ROWS;
    for (int64_t at = 0; k->with && at < k->rows; at += most) {
        const int64_t left = k->rows - at, rows = left < most ? left : most;
        add_parts(p, m, (size_t)(rows * LF_XENT_PART));
    }
}

static void count_context(struct lf_plan_moved *m, const struct lf_k_exchange *k)
{
    const size_t n = k->what == LF_EX_CONTEXT_WHOLE ? k->n : (size_t)(k->rows * k->each);
    add_even(m, n * lf_dtype_size((enum lf_dtype)k->in_type), k->ranks);
}

/* place: of which rank among those that gather keys; -1: this one. */
static void count_spread(struct lf_plan_moved *m, const struct lf_k_attn_spread *of, int place)
{
    struct lf_k_attn_spread k = *of;
    int64_t messages;
    double bytes;
    k.group.place = place < 0 ? k.group.place : place;
    lf_spread_moved(&k, &messages, &bytes);
    m->messages += messages;
    m->bytes += bytes;
}

static void count_node(const lf_plan *p, enum lf_axis axis, int place, struct lf_plan_moved *m,
                       const struct lf_bind *b, const struct lf_node *n)
{
    const struct lf_op_row *row = &lf_op_table[n->op];
    union {
        struct lf_k_exchange exchange;
        struct lf_k_linear_xent head;
        struct lf_k_attn_spread spread;
    } args = {0};
    const bool spread = row->kernel == LF_KID_attn_spread;
    if (row->kernel != LF_KID_exchange && row->kernel != LF_KID_linear_xent && !spread)
        return;
    if (row->emit(b, n, &args)) /* the plan has been made of it */
        LF_BUG("operands of %s do not fit its kernel", row->name);
    const bool exchanges = row->kernel == LF_KID_exchange,
               context = spread || (exchanges && args.exchange.what >= LF_EX_HEADS);
    if (context != (axis == LF_AXIS_CONTEXT))
        return;
    if (spread)
        count_spread(m, &args.spread, place);
    else if (context)
        count_context(m, &args.exchange);
    else if (exchanges)
        count_exchange(p, m, &args.exchange);
    else
        count_head(p, m, &args.head);
}

static struct lf_plan_moved count_pass(const lf_plan *p, enum lf_axis axis, int place, int chain,
                                       bool backward)
{
    struct lf_plan_moved m = {0};
    const struct lf_chain *c = &p->c[chain];
    const struct lf_bind b = lf_plan_shapes(p, c);
    const struct lf_layout *l = &p->ps->layout;
    const size_t end = backward ? c->g->n_n : c->g->n_fwd;
    const int ranks = axis == LF_AXIS_CONTEXT ? l->context : l->tensor;
    for (size_t i = 0; i < end && ranks > 1; i++)
        count_node(p, axis, place, &m, &b, &c->g->n[i]);
    return m;
}

struct lf_plan_moved lf_plan_pass_axis(const lf_plan *p, enum lf_axis axis, int chain,
                                       bool backward)
{
    return count_pass(p, axis, -1, chain, backward);
}

/* A training step's passes over a micro-batch. */
static void count_passes(const lf_plan *p, enum lf_axis axis, int place, struct lf_plan_moved *m)
{
    for (size_t k = 0; k < p->n_c; k++) {
        if (!p->c[k].o.train)
            continue;
        const struct lf_plan_moved pass = count_pass(p, axis, place, (int)k, true);
        m->messages += pass.messages;
        m->bytes += pass.bytes;
    }
}

/* Those of windows send keys to the ranks behind, and gradients to those before: ranks in the
 * middle most. */
static double most_context(const lf_plan *p)
{
    double most = 0;
    const int places = lf_context_parts(&p->ps->layout).rows;
    for (int r = 0; r < places; r++) {
        struct lf_plan_moved m = {0};
        count_passes(p, LF_AXIS_CONTEXT, r, &m);
        most = m.bytes > most ? m.bytes : most;
    }
    return most;
}

/* What ranks sum of the gradient of a tensor whose box several of them have. */
static void count_replicas(const lf_plan *p, struct lf_plan_moved *m, const struct lf_param *q)
{
    const int64_t all = lf_logical(&q->d);
    int64_t own[2];
    lf_pstore_own(p->ps, (int)(q - p->ps->p), LF_P_GRAD, own);
    if (q->box.replicas <= 1 || own[0] == own[1])
        return;
    for (int64_t at = 0; at < all; at += LF_TENSOR_SCRATCH)
        add_sum(p, m, (size_t)(all - at < LF_TENSOR_SCRATCH ? all - at : LF_TENSOR_SCRATCH),
                sizeof(float));
}

void lf_plan_count_tensor(const lf_plan *p, struct lf_plan_comm *out)
{
    const lf_pstore *ps = p->ps;
    struct lf_plan_moved *m = &out->tensor;
    count_passes(p, LF_AXIS_CONTEXT, -1, &out->micro_context);
    out->context_most = ps->layout.context_in_order || ps->layout.context_in_turns
                            ? most_context(p)
                            : out->micro_context.bytes;
    if (ps->layout.tensor <= 1)
        return;
    for (size_t i = 0; i < ps->n_g && p->has_opt; i++) {
        const struct lf_pgroup *g = &ps->g[i];
        if (!g->need[LF_P_GRAD])
            continue;
        if (g->sum[LF_AXIS_TENSOR] && lf_pgroup_grads(g))
            add_sum(p, m, lf_pgroup_grads(g), sizeof(float));
        for (int32_t k = 0; k < g->count; k++)
            count_replicas(p, m, &ps->p[g->first + k]);
    }
    if (p->n_sums)
        add_sum(p, m, p->n_sums, sizeof(double));
    count_passes(p, LF_AXIS_TENSOR, -1, &out->micro_tensor);
}
