/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan says about itself: cost, JSON, a listing, a hash of everything that decides the bits
 * of its results.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/str.h"
#include "engine/graph/priv.h"

int lf_plan_cost(const lf_plan *p, int chain, struct lf_plan_cost *out)
{
    if (chain < 0 || (size_t)chain >= p->n_c)
        return LF_EINVAL;
    const lf_graph *g = p->c[chain].g;
    struct lf_plan_cost c = {.nodes_fwd = (int)g->n_fwd, .nodes_bwd = (int)(g->n_n - g->n_fwd)};
    for (size_t i = 0; i < g->n_n; i++) {
        const struct lf_node *n = &g->n[i];
        c.traffic_bytes += lf_node_traffic(g, n);
        if (!lf_op_table[n->op].flops)
            continue;
        double causal = lf_op_table[n->op].flops(g, n, false),
               full = lf_op_table[n->op].flops(g, n, true);
        *(i < g->n_fwd ? &c.run_fwd : i < g->n_bwd ? &c.run_input : &c.run_weight) += causal;
        if (n->clone) {
            c.recompute += causal;
        } else if (n->op == LF_OP_XENT) { /* its dX and dW belong to the backward */
            double one = 2.0 * (double)g->t[n->in[XENT_X]].rows * (double)g->t[n->in[XENT_W]].rows *
                         (double)g->t[n->in[XENT_W]].cols;
            c.fwd_causal += one;
            c.fwd_full += one;
            c.bwd_causal += causal - one;
            c.bwd_full += full - one;
        } else if (i < g->n_fwd) {
            c.fwd_causal += causal;
            c.fwd_full += full;
        } else {
            c.bwd_causal += causal;
            c.bwd_full += full;
        }
    }
    *out = c;
    return 0;
}

static json_t *chain_json(const lf_plan *p, int i)
{
    struct lf_plan_cost c = {0};
    const struct lf_chain *ch = &p->c[i];
    lf_plan_cost(p, i, &c);
    return json_pack("{s:s, s:b, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I}",
                     "name", ch->g->name, "train", ch->o.train, "slots", ch->o.slots,
                     "nodes_forward", c.nodes_fwd, "nodes_backward", c.nodes_bwd,
                     "flops_forward_causal", c.fwd_causal, "flops_forward_full", c.fwd_full,
                     "flops_backward_causal", c.bwd_causal, "flops_backward_full", c.bwd_full,
                     "flops_recompute", c.recompute, "traffic_bytes", c.traffic_bytes,
                     "arena_bytes", (json_int_t)ch->arena_bytes, "saved_bytes",
                     (json_int_t)ch->saved_live, "largest_live_bytes", (json_int_t)ch->live_max,
                     "workspace_bytes", (json_int_t)ch->work_max);
}

enum lf_numeric lf_plan_mode(const lf_plan *p)
{
    return p->o.mode;
}

const struct lf_target *lf_plan_target(const lf_plan *p)
{
    return p->o.target;
}

void lf_plan_memory(struct lf_plan_memory *m, const struct lf_target *t, double planned)
{
    m->host += (double)t->reserved;
    m->device = t->sm ? planned + (double)t->device_reserved : 0;
    m->total = m->host + (t->sm ? 0 : planned);
}

struct lf_plan_memory lf_plan_process(const lf_plan *p)
{
    struct lf_plan_memory m = {.host = (double)p->bytes.offloaded};
    lf_plan_memory(&m, p->o.target, (double)p->bytes.total);
    return m;
}

const char *lf_compute_name(enum lf_dtype compute)
{
    return compute == LF_F16 ? "fp16" : compute == LF_BF16 ? "bf16" : "f32";
}

const char *lf_plan_compute(const lf_plan *p)
{
    return !p->o.fp8                   ? lf_compute_name(p->o.compute)
           : p->o.fp8 == LF_FP8_BLOCKS ? "fp8-block"
                                       : "fp8-tensor";
}

json_t *lf_plan_json(const lf_plan *p, lf_err *err)
{
    const struct lf_plan_bytes *b = &p->bytes;
    const struct lf_plan_memory m = lf_plan_process(p);
    json_t *bytes =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "params",
                  (json_int_t)b->params, "grads", (json_int_t)b->grads, "optimizer",
                  (json_int_t)b->optimizer, "activations", (json_int_t)(b->saved + b->transient),
                  "activations_saved", (json_int_t)b->saved, "workspace", (json_int_t)b->workspace,
                  "inputs", (json_int_t)b->inputs, "state", (json_int_t)b->state, "host",
                  (json_int_t)m.host, "offloaded", (json_int_t)b->offloaded, "device",
                  (json_int_t)m.device, "total", (json_int_t)m.total);
    json_t *segments = json_array();
    for (size_t i = 0; i < p->n_c; i++)
        json_array_append_new(segments, chain_json(p, (int)i));
    json_t *j = json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:b, s:o, s:o}", "target",
                          p->o.target->name, "compute", lf_plan_compute(p), "numeric",
                          p->o.mode == LF_INVARIANT ? "invariant" : "fast", "threads", p->o.threads,
                          "parameters", (json_int_t)lf_pstore_elements(p->ps), "trained",
                          (json_int_t)lf_pstore_elements_trained(p->ps), "workspace_exact",
                          p->work_exact, "bytes", bytes, "segments", segments);
    if (!j)
        lf_fail(err, LF_ENOMEM, "plan: out of memory while printing");
    return j;
}

char *lf_plan_text(const lf_plan *p, int chain, lf_err *err)
{
    if (chain < 0 || (size_t)chain >= p->n_c) {
        lf_fail(err, LF_EINVAL, "plan: there is no chain %d", chain);
        return NULL;
    }
    static const char *const types[] = {"f32", "bf16", "f16", "f64",  "i32", "i64",
                                        "u16", "u32",  "u8",  "e4m3", "e5m2"};
    const struct lf_chain *c = &p->c[chain];
    const lf_graph *g = c->g;
    lf_buf out;
    lf_buf_init(&out);
    for (size_t i = 0; i < g->n_n; i++) {
        const struct lf_node *n = &g->n[i];
        if (i == g->n_fwd)
            lf_buf_adds(&out, "---- backward\n");
        if (i == g->n_bwd)
            lf_buf_adds(&out, "---- gradients of weights\n");
        lf_buf_addf(&out, "%4zu %s%s", i, lf_op_table[n->op].name, n->clone ? " (again)" : "");
        for (int k = 0; k < LF_MAX_IN + LF_MAX_OUT; k++) {
            int32_t t = k < LF_MAX_IN ? n->in[k] : n->out[k - LF_MAX_IN];
            if (k == LF_MAX_IN)
                lf_buf_adds(&out, " ->");
            if (!t)
                continue;
            const struct lf_tensor *r = &g->t[g->t[t].root];
            lf_buf_addf(&out, " %s:%s", g->t[t].name, types[g->t[t].dtype]);
            if (r->role == LF_ROLE_ACT)
                lf_buf_addf(&out, "@%zu+%lld", r->off, (long long)g->t[t].root_col);
        }
        if (c->work_bytes && c->work_bytes[i])
            lf_buf_addf(&out, " work %zu@%zu", c->work_bytes[i], c->work_off[i]);
        lf_buf_addc(&out, '\n');
    }
    char *text = lf_buf_steal(&out, err);
    lf_buf_fini(&out);
    return text;
}

static uint64_t mix(uint64_t h, const void *data, size_t n)
{
    const unsigned char *c = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ c[i]) * 1099511628211u;
    return h;
}

static uint64_t mix_i(uint64_t h, int64_t v)
{
    return mix(h, &v, sizeof v);
}

static uint64_t mix_f(uint64_t h, float v)
{
    return mix(h, &v, sizeof v);
}

/* Slots that came later count where they are used: plans without them keep their hash. */
enum { FIRST_SLOTS = 13 };

static uint64_t mix_node(uint64_t h, const lf_graph *g, const struct lf_node *n)
{
    const struct lf_attr *a = &n->a;
    h = mix_i(h, n->op);
    for (int k = 0; k < LF_MAX_IN + LF_MAX_OUT; k++) {
        int32_t t = k < LF_MAX_IN ? n->in[k] : n->out[k - LF_MAX_IN];
        if (k >= FIRST_SLOTS && k < LF_MAX_IN && !t)
            continue;
        h = mix_i(h, t ? g->t[t].dtype : -1);
        h = mix_i(h, t ? g->t[t].rows : 0);
        h = mix_i(h, t ? g->t[t].cols : 0);
    }
    const int64_t ints[] = {a->heads,       a->groups,      a->rot,    a->window, a->pos_offset,
                            a->site,        a->page_tokens, a->v_real, a->act,    a->layer,
                            a->interleaved, a->inverse,     a->causal};
    const float floats[] = {a->eps, a->w_offset, a->scale, a->softcap, a->p};
    h = mix(h, ints, sizeof ints);
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        h = mix_f(h, floats[i]);
    if (n->op >= LF_OP_MOE_ROUTE) {
        const int64_t moe[] = {a->experts,    a->k,       a->top_groups,
                               a->moe_layers, a->sigmoid, a->renorm};
        h = mix_f(mix(h, moe, sizeof moe), a->aux);
    }
    if (a->each)
        h = mix_i(h, a->each);
    if (a->affine)
        h = mix_i(h, 2);
    if (a->capacity)
        h = mix_i(h, a->capacity);
    if (n->op >= LF_OP_DORA_NORM || (n->op == LF_OP_ROPE && a->at))
        h = mix_i(h, a->at);
    if (n->op >= LF_OP_QUANTISE)
        h = mix_i(h, a->blocks);
    if (n->op >= LF_OP_CONV)
        h = mix_f(mix_f(mix_i(mix_i(h, a->delta), a->per_channel), a->low), a->high);
    if (a->limit > 0 || a->up_offset != 0)
        h = mix_f(mix_f(h, a->limit), a->up_offset);
    return h;
}

uint64_t lf_plan_hash(const lf_plan *p)
{
    uint64_t h = 14695981039346656037u;
    h = mix_i(h, p->o.mode);
    h = mix_i(h, p->o.compute);
    if (p->windowed) /* sums over micro-batches have another order */
        h = mix_i(h, LF_P_GRAD);
    for (size_t c = 0; c < p->n_c; c++)
        for (size_t i = 0; i < p->c[c].g->n_n && p->c[c].o.train; i++) {
            const lf_graph *g = p->c[c].g;
            const struct lf_node *n = &g->n[g->order ? (size_t)g->order[i] : i];
            if (!n->clone) /* inference, recomputation and splitting change no bit of a training */
                h = mix_node(h, g, n);
        }
    return h;
}
