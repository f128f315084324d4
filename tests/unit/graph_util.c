/* SPDX-License-Identifier: Apache-2.0
 *
 * The small decoder of the graph tests. It is deliberately written without engine/model, so that
 * graph bugs show here.
 */
#include "tests/unit/graph_util.h"

#include "engine/graph/priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"

const struct gu_model gu_llama = {.layers = 3,
                                  .c = 32,
                                  .heads = 4,
                                  .groups = 2,
                                  .d = 8,
                                  .ffn = 48,
                                  .vocab = 67,
                                  .max_pos = 64,
                                  .rope = true,
                                  .glu = true,
                                  .rows = 48};
const struct gu_model gu_gpt2 = {.layers = 2,
                                 .c = 32,
                                 .heads = 4,
                                 .groups = 4,
                                 .d = 8,
                                 .ffn = 64,
                                 .vocab = 61,
                                 .max_pos = 64,
                                 .layer_norm = true,
                                 .bias = true,
                                 .tied = true,
                                 .rows = 48,
                                 .dropout = 0.1f};
const struct gu_model gu_qwen = {.layers = 2,
                                 .c = 32,
                                 .heads = 4,
                                 .groups = 1,
                                 .d = 16,
                                 .ffn = 40,
                                 .vocab = 53,
                                 .max_pos = 64,
                                 .rope = true,
                                 .glu = true,
                                 .qk_norm = true,
                                 .tied = true,
                                 .rows = 48};
const struct gu_opts gu_f32 = {.plan = {.threads = 2, .compute = LF_F32, .mode = LF_INVARIANT}};
const struct gu_opts gu_bf16 = {.plan = {.threads = 2, .compute = LF_BF16, .mode = LF_INVARIANT}};

static void add(lf_pstore *ps, const char *name, const char *group, int64_t r, int64_t c,
                enum lf_init init, lf_err *err)
{
    struct lf_param_desc d = {.name = name,
                              .group = group,
                              .ndim = c ? 2 : 1,
                              .dims = {r, c},
                              .init = init,
                              .decay = c > 0,
                              .init_std = c ? 1.2f / sqrtf((float)c) : 0.3f};
    lf_pstore_add(ps, &d, err);
}

static void add_l(lf_pstore *ps, int l, const char *name, const char *group, int64_t r, int64_t c,
                  enum lf_init init, lf_err *err)
{
    char n[64], g[64];
    snprintf(n, sizeof n, "layers.%d.%s", l, name);
    snprintf(g, sizeof g, "layers.%d.%s", l, group ? group : name);
    add(ps, n, group ? g : NULL, r, c, init, err);
}

static void add_layer(lf_pstore *ps, const struct gu_model *m, int l, lf_err *err)
{
    int64_t q = (int64_t)m->heads * m->d, kv = (int64_t)m->groups * m->d;
    add_l(ps, l, "attn_norm.weight", NULL, m->c, 0, LF_INIT_NORMAL, err);
    if (m->layer_norm)
        add_l(ps, l, "attn_norm.bias", NULL, m->c, 0, LF_INIT_NORMAL, err);
    add_l(ps, l, "q.weight", m->split_qkv ? NULL : "qkv.weight", q, m->c, LF_INIT_NORMAL, err);
    add_l(ps, l, "k.weight", m->split_qkv ? NULL : "qkv.weight", kv, m->c, LF_INIT_NORMAL, err);
    add_l(ps, l, "v.weight", m->split_qkv ? NULL : "qkv.weight", kv, m->c, LF_INIT_NORMAL, err);
    if (m->bias) {
        add_l(ps, l, "q.bias", "qkv.bias", q, 0, LF_INIT_NORMAL, err);
        add_l(ps, l, "k.bias", "qkv.bias", kv, 0, LF_INIT_NORMAL, err);
        add_l(ps, l, "v.bias", "qkv.bias", kv, 0, LF_INIT_NORMAL, err);
        add_l(ps, l, "o.bias", NULL, m->c, 0, LF_INIT_NORMAL, err);
    }
    if (m->qk_norm) {
        add_l(ps, l, "q_norm.weight", NULL, m->d, 0, LF_INIT_ONE, err);
        add_l(ps, l, "k_norm.weight", NULL, m->d, 0, LF_INIT_ONE, err);
    }
    add_l(ps, l, "o.weight", NULL, m->c, q, LF_INIT_NORMAL, err);
    if (!m->parallel)
        add_l(ps, l, "mlp_norm.weight", NULL, m->c, 0, LF_INIT_NORMAL, err);
    if (m->layer_norm && !m->parallel)
        add_l(ps, l, "mlp_norm.bias", NULL, m->c, 0, LF_INIT_NORMAL, err);
    if (m->glu)
        add_l(ps, l, "gate.weight", "gate_up.weight", m->ffn, m->c, LF_INIT_NORMAL, err);
    add_l(ps, l, "up.weight", m->glu ? "gate_up.weight" : NULL, m->ffn, m->c, LF_INIT_NORMAL, err);
    add_l(ps, l, "down.weight", NULL, m->c, m->ffn, LF_INIT_NORMAL, err);
    if (m->bias) {
        add_l(ps, l, "up.bias", NULL, m->ffn, 0, LF_INIT_NORMAL, err);
        add_l(ps, l, "down.bias", NULL, m->c, 0, LF_INIT_NORMAL, err);
    }
}

lf_pstore *gu_store(const struct gu_model *m, lf_err *err)
{
    lf_pstore *ps = lf_pstore_create(err);
    add(ps, "embed.weight", NULL, m->vocab, m->c, LF_INIT_NORMAL, err);
    if (!m->rope)
        add(ps, "pos_embed.weight", NULL, m->max_pos, m->c, LF_INIT_NORMAL, err);
    for (int l = 0; l < m->layers; l++)
        add_layer(ps, m, l, err);
    add(ps, "final_norm.weight", NULL, m->c, 0, LF_INIT_NORMAL, err);
    if (!m->tied)
        add(ps, "head.weight", NULL, m->vocab, m->c, LF_INIT_NORMAL, err);
    return ps;
}

static void rope_table(void *dst, const void *ctx, bool sine)
{
    const struct gu_model *m = ctx;
    float *t = dst;
    for (int p = 0; p < m->max_pos; p++)
        for (int i = 0; i < m->d / 2; i++) {
            double a = p * pow(10000.0, -2.0 * i / m->d);
            t[p * (m->d / 2) + i] = (float)(sine ? sin(a) : cos(a));
        }
}
static void rope_cos(void *dst, const void *ctx)
{
    rope_table(dst, ctx, false);
}
static void rope_sin(void *dst, const void *ctx)
{
    rope_table(dst, ctx, true);
}

struct io {
    lf_val token, target, position, cu, sample, cos, sin;
};

static lf_val norm(lf_graph *g, const struct gu_model *m, lf_val x, const char *name, int heads)
{
    const struct lf_norm_opts o = {
        .eps = 1e-5f, .layer = m->layer_norm && heads < 2, .heads = heads};
    return lf_norm(g, x, lf_paramf(g, "%s.weight", name),
                   o.layer && strcmp(name, "final_norm") ? lf_paramf(g, "%s.bias", name) : LF_NONE,
                   &o);
}

static lf_val linear(lf_graph *g, const struct gu_model *m, lf_val x, int l, const char *name,
                     bool has_bias)
{
    lf_val b = m->bias && has_bias ? lf_paramf(g, "layers.%d.%s.bias", l, name) : LF_NONE;
    return lf_linear(g, x, lf_paramf(g, "layers.%d.%s.weight", l, name), b);
}

static lf_val attention(lf_graph *g, const struct gu_model *m, const struct io *io, lf_val h, int l)
{
    int64_t nq = (int64_t)m->heads * m->d, nkv = (int64_t)m->groups * m->d;
    char name[64];
    lf_val q, k, v;
    if (m->split_qkv) {
        q = linear(g, m, h, l, "q", false);
        k = linear(g, m, h, l, "k", false);
        v = linear(g, m, h, l, "v", false);
    } else {
        lf_val qkv = linear(g, m, h, l, "qkv", true);
        q = lf_slice(g, qkv, 0, nq);
        k = lf_slice(g, qkv, nq, nkv);
        v = lf_slice(g, qkv, nq + nkv, nkv);
    }
    if (m->qk_norm) {
        snprintf(name, sizeof name, "layers.%d.q_norm", l);
        q = norm(g, m, q, name, m->heads);
        snprintf(name, sizeof name, "layers.%d.k_norm", l);
        const struct lf_norm_opts o = {.eps = 1e-5f, .heads = m->groups};
        k = lf_norm(g, k, lf_paramf(g, "%s.weight", name), LF_NONE, &o);
    }
    if (m->rope) {
        const struct lf_rope_opts rq = {.heads = m->heads, .rot = m->d},
                                  rk = {.heads = m->groups, .rot = m->d};
        q = lf_rope(g, q, io->position, io->cos, io->sin, &rq);
        k = lf_rope(g, k, io->position, io->cos, io->sin, &rk);
    }
    char prob[32];
    snprintf(prob, sizeof prob, "layers.%d.attn.prob", l);
    const struct lf_attn_opts a = {.heads = m->heads,
                                   .groups = m->groups,
                                   .scale = 1.0f / sqrtf((float)m->d),
                                   .causal = true,
                                   .max_doc = m->rows,
                                   .dropout = m->dropout,
                                   .site = prob,
                                   .sample = io->sample,
                                   .position = io->position};
    lf_val o = lf_attention(g, q, k, v, io->cu, LF_NONE, &a);
    lf_val y = linear(g, m, o, l, "o", true);
    snprintf(name, sizeof name, "layers.%d.attn.drop", l);
    return lf_dropout(g, y, m->dropout, name, io->sample, io->position);
}

static lf_val mlp(lf_graph *g, const struct gu_model *m, lf_val h, int l)
{
    if (!m->glu)
        return linear(g, m, lf_act(g, linear(g, m, h, l, "up", true), LF_ACT_GELU_TANH), l, "down",
                      true);
    lf_val gu = linear(g, m, h, l, "gate_up", false);
    return linear(
        g, m, lf_glu(g, lf_slice(g, gu, 0, m->ffn), lf_slice(g, gu, m->ffn, m->ffn), LF_ACT_SILU),
        l, "down", false);
}

lf_graph *gu_graph(const struct gu_model *m, lf_pstore *ps, const char *gname, bool outputs,
                   lf_err *err)
{
    lf_graph *g = lf_graph_create(ps, gname, err);
    const int64_t r = m->rows;
    char name[64];
    struct io io = {.token = lf_input(g, "tokens", LF_I32, r, 1),
                    .target = lf_input(g, "targets", LF_I32, r, 1),
                    .position = lf_input(g, "positions", LF_I32, r, 1),
                    .cu = lf_input(g, "cu_seqlens", LF_I32, GU_DOCS + 1, 1),
                    .sample = lf_input(g, "samples", LF_I64, r, 1)};
    if (m->rope) {
        io.cos = lf_const(g, "rope.cos", LF_F32, m->max_pos, m->d / 2, rope_cos, m);
        io.sin = lf_const(g, "rope.sin", LF_F32, m->max_pos, m->d / 2, rope_sin, m);
    }
    lf_val x = lf_embed(g, io.token, io.position, lf_param(g, "embed.weight"),
                        m->rope ? LF_NONE : lf_param(g, "pos_embed.weight"), 1.0f, 0);
    for (int l = 0; l < m->layers; l++) {
        lf_block_begin(g, l);
        snprintf(name, sizeof name, "layers.%d.attn_norm", l);
        lf_val h = norm(g, m, x, name, 0);
        lf_val a = attention(g, m, &io, h, l);
        if (m->parallel) {
            x = lf_add(g, lf_add(g, x, a), mlp(g, m, h, l));
        } else {
            x = lf_add(g, x, a);
            snprintf(name, sizeof name, "layers.%d.mlp_norm", l);
            x = lf_add(g, x, mlp(g, m, norm(g, m, x, name, 0), l));
        }
        lf_block_end(g);
    }
    x = norm(g, m, x, "final_norm", 0);
    const struct lf_xent_opts o = {.want_loss = outputs};
    lf_xent(g, x, lf_param(g, m->tied ? "embed.weight" : "head.weight"), LF_NONE, io.target, &o);
    return g;
}

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if ((x) < 0)                                                                               \
            tap_bail("%s: %s", #x, err.text);                                                      \
    } while (0)

void gu_plan(struct gu *u, const struct gu_model *m, const struct gu_opts *o)
{
    lf_err err = LF_ERR_INIT;
    memset(u, 0, sizeof *u);
    u->m = *m;
    u->ps = gu_store(m, &err);
    if (err.rc)
        tap_bail("store: %s", err.text);
    if (o->freeze)
        lf_pstore_freeze(u->ps, o->freeze, true);
    if (o->fp8)
        lf_pstore_fp8_matching(u->ps, o->fp8, true);
    u->p = lf_plan_create(u->ps, &o->plan, &err);
    if (u->p && o->kernels)
        u->p->k = o->kernels;
    lf_graph *g = gu_graph(&u->m, u->ps, "train", true, &err);
    MUST(u->p ? 0 : -1);
    MUST(u->train = lf_plan_add(
             u->p, g,
             &(struct lf_chain_opts){
                 .train = true, .recompute = o->recompute, .slots = o->slots, .eras = 1},
             &err));
    lf_graph_destroy(g);
    u->valid = -1;
    if (o->valid) {
        struct gu_model mv = *m;
        mv.dropout = 0;
        g = gu_graph(&mv, u->ps, "valid", true, &err);
        for (int i = 0; i < 1; i++) /* constants refer to the model that lives in u */
            MUST(u->valid = lf_plan_add(
                     u->p, g,
                     &(struct lf_chain_opts){.eras = 2, .packed = o->packed, .whole = o->whole},
                     &err));
        lf_graph_destroy(g);
    }
    struct lf_adamw_opts adam = o->state;
    adam.beta1 = 0.9f;
    adam.beta2 = 0.95f;
    adam.eps = 1e-8f;
    adam.weight_decay = 0.1f;
    if (o->optimizer)
        MUST(lf_plan_optimizer(u->p, &adam, &err));
    if (o->dp_ranks)
        MUST(lf_plan_data_parallel(
            u->p,
            &(struct lf_plan_ranks){
                .ranks = o->dp_ranks, .rank = o->dp_rank, .bucket_bytes = 8192, .zero = o->zero},
            &err));
    MUST(lf_plan_finish(u->p, &err));
}

void gu_open(struct gu *u, const struct gu_model *m, const struct gu_opts *o)
{
    lf_err err = LF_ERR_INIT;
    gu_plan(u, m, o);
    if (o->tamper)
        o->tamper(u->p);
    u->b = o->open_back ? o->open_back(o->plan.threads, &err)
                        : lf_back_cpu_create(lf_target_host()->isa, o->plan.threads, &err);
    MUST(u->b ? 0 : -1);
    u->ex = lf_exec_create(
        u->p, u->b, &(struct lf_exec_opts){.poison = o->poison, .profile = o->profile}, &err);
    MUST(u->ex ? 0 : -1);
    MUST(lf_pstore_init(u->ps, 7, &err));
}

void gu_close(struct gu *u)
{
    lf_exec_destroy(u->ex);
    lf_back_destroy(u->b);
    lf_plan_destroy(u->p);
    lf_pstore_destroy(u->ps);
    memset(u, 0, sizeof *u);
}

void gu_batch_make(struct gu_batch *b, const struct gu_model *m, int64_t rows, uint32_t which)
{
    memset(b, 0, sizeof *b);
    int64_t doc = rows / 3 + 1;
    for (int64_t r = 0; r < rows; r++) {
        b->token[r] = (int32_t)(lf_rng_u32(3, which, (uint64_t)r) % (uint32_t)m->vocab);
        b->target[r] = lf_rng_u32(4, which, (uint64_t)r) % 5
                           ? (int32_t)(lf_rng_u32(5, which, (uint64_t)r) % (uint32_t)m->vocab)
                           : -1;
        b->position[r] = (int32_t)(r % doc);
        b->sample[r] = (int64_t)which * 100 + r / doc;
        b->trained += b->target[r] >= 0;
    }
    for (int i = 0; i <= GU_DOCS; i++)
        b->cu[i] = (int32_t)(i * doc < rows ? i * doc : rows);
}

void gu_feed(struct gu *u, int chain, int slot, const struct gu_batch *b)
{
    lf_err err = LF_ERR_INIT;
    size_t n = (size_t)u->m.rows;
    MUST(lf_exec_write(u->ex, chain, slot, "tokens", b->token, n * 4, &err));
    MUST(lf_exec_write(u->ex, chain, slot, "targets", b->target, n * 4, &err));
    MUST(lf_exec_write(u->ex, chain, slot, "positions", b->position, n * 4, &err));
    MUST(lf_exec_write(u->ex, chain, slot, "samples", b->sample, n * 8, &err));
    MUST(lf_exec_write(u->ex, chain, slot, "cu_seqlens", b->cu, sizeof b->cu, &err));
}

void gu_record(struct gu *u, int trained, float lr)
{
    lf_err err = LF_ERR_INIT;
    struct lf_step_record rec = {.seed = 11,
                                 .lr = lr,
                                 .bias_corr1 = 0.1f,
                                 .bias_corr2 = 0.05f,
                                 .clip_norm = 1.0f,
                                 .loss_scale = 1.0f,
                                 .inv_tokens = 1.0f / (float)trained};
    MUST(lf_exec_record_write(u->ex, &rec, &err));
}

struct lf_step_record gu_result(struct gu *u)
{
    struct lf_step_record rec;
    lf_err err = LF_ERR_INIT;
    MUST(lf_exec_record_read(u->ex, &rec, &err));
    return rec;
}

void gu_fwd_bwd(struct gu *u, int slot, enum lf_variant v)
{
    lf_err err = LF_ERR_INIT;
    MUST(lf_exec_run(u->ex, u->train, LF_FWD, slot, v, &err));
    MUST(lf_exec_run(u->ex, u->train, LF_BWD, slot, v, &err));
}

float *gu_grads(const struct gu *u, size_t *n)
{
    lf_err err = LF_ERR_INIT;
    float *all = calloc((size_t)lf_pstore_elements(u->ps), sizeof *all);
    size_t at = 0;
    for (int i = 0; all && i < lf_pstore_count(u->ps); i++) {
        struct lf_pview v;
        if (lf_pstore_view(u->ps, i, LF_P_GRAD, &v) != 1)
            continue;
        MUST(lf_pstore_read(u->ps, i, LF_P_GRAD, all + at, v.bytes, &err));
        at += v.bytes / 4;
    }
    *n = at;
    return all;
}

double gu_rel_diff(const float *a, const float *b, size_t n)
{
    double num = 0, den = 0;
    for (size_t i = 0; i < n; i++) {
        num += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        den += (double)b[i] * (double)b[i];
    }
    return sqrt(num) / sqrt(den > 0 ? den : 1);
}
