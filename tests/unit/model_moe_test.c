/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixtures of experts in the decoder against independent references in f64: the tiny Mixtral,
 * Qwen2-MoE, Qwen3-MoE and DeepSeek MoE of tests/golden/families (logits, loss, gradients, and that
 * a flipped switch shows), training with the load-balancing loss (tests/golden/moe), and balancing
 * by bias over micro-batches.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/exec.h"
#include "engine/model/decoder.h"
#include "engine/store/safetensors.h"
#include "tests/tap/tap.h"

enum { B = 2, T = 12, R = B * T, V = 40, E = 4 };

struct family {
    const char *name;
    const char *set[14][2]; /* key, value */
    const char *flip[4][2]; /* each must be noticed */
};

#define SIZES                                                                                      \
    {"hidden", "16"}, {"vocab", "40"}, {"max_positions", "32"}, {"experts", "4"},                  \
    {                                                                                              \
        "experts_per_token", "2"                                                                   \
    }
static const struct family families[] = {
    {"mixtral",
     {{"family", "mixtral"},
      SIZES,
      {"layers", "2"},
      {"heads", "4"},
      {"kv_heads", "2"},
      {"ffn", "12"}},
     {{"router_renorm", "no"}, {"experts_per_token", "1"}, {"router_score", "sigmoid"}}},
    {"qwen2-moe",
     {{"family", "qwen2-moe"},
      SIZES,
      {"layers", "2"},
      {"heads", "4"},
      {"kv_heads", "2"},
      {"ffn", "20"},
      {"expert_ffn", "8"},
      {"shared_ffn", "12"}},
     {{"router_renorm", "yes"}, {"shared_gate", "no"}, {"experts_per_token", "3"}}},
    {"qwen3-moe",
     {{"family", "qwen3-moe"},
      SIZES,
      {"layers", "2"},
      {"heads", "4"},
      {"kv_heads", "2"},
      {"head_dim", "8"},
      {"ffn", "20"},
      {"expert_ffn", "8"}},
     {{"router_renorm", "no"}, {"router_groups", "2"}, {"router_scale", "1.1"}}},
    {"deepseek-moe",
     {{"family", "deepseek-moe"},
      SIZES,
      {"layers", "3"},
      {"heads", "2"},
      {"kv_heads", "2"},
      {"ffn", "20"},
      {"expert_ffn", "8"},
      {"shared_ffn", "16"}},
     {{"router_renorm", "yes"}, {"router_scale", "2"}}},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

static void set(lf_model_config *c, const char *key, const char *value)
{
    lf_err err = LF_ERR_INIT;
    int rc = strcmp(key, "family") ? lf_model_config_set(c, key, value, "test", &err)
                                   : lf_model_config_family(c, value, "test", &err);
    if (rc)
        tap_bail("%s", err.text);
}

static lf_model_config config_of(const struct family *f, const char *const change[2])
{
    lf_model_config c;
    lf_err err = LF_ERR_INIT;
    lf_model_config_defaults(&c);
    for (int i = 0; i < 14 && f->set[i][0]; i++)
        set(&c, f->set[i][0], f->set[i][1]);
    set(&c, "router_aux", "0");
    if (change && change[0])
        set(&c, change[0], change[1]);
    if (lf_model_config_finish(&c, &err))
        tap_bail("%s", err.text);
    return c;
}

/* ---- files ---- */

static lf_st *open_st(const char *path)
{
    char full[4096];
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    const char *src = getenv("LF_SRCDIR");
    snprintf(full, sizeof full, "%s/tests/golden/%s", src ? src : ".", path);
    if (lf_st_open(&s, full, &err))
        tap_bail("%s", err.text);
    return s;
}

static lf_st *open_family(const char *name, const char *file)
{
    char path[256];
    snprintf(path, sizeof path, "families/%s/%s", name, file);
    return open_st(path);
}

/* Our name of a part to theirs, the layer's prefix taken off both. */
static const char *const parts[][3] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"mlp_norm.weight", "post_attention_layernorm.weight"},
    {"attn.q.weight", "self_attn.q_proj.weight"},
    {"attn.k.weight", "self_attn.k_proj.weight"},
    {"attn.v.weight", "self_attn.v_proj.weight"},
    {"attn.q.bias", "self_attn.q_proj.bias"},
    {"attn.k.bias", "self_attn.k_proj.bias"},
    {"attn.v.bias", "self_attn.v_proj.bias"},
    {"attn.o.weight", "self_attn.o_proj.weight"},
    {"attn.q_norm.weight", "self_attn.q_norm.weight"},
    {"attn.k_norm.weight", "self_attn.k_norm.weight"},
    {"mlp.gate.weight", "mlp.gate_proj.weight"},
    {"mlp.up.weight", "mlp.up_proj.weight"},
    {"mlp.down.weight", "mlp.down_proj.weight"},
    {"moe.router.weight", "mlp.gate.weight", "block_sparse_moe.gate.weight"},
    {"moe.shared.gate.weight", "mlp.shared_expert.gate_proj.weight",
     "mlp.shared_experts.gate_proj.weight"},
    {"moe.shared.up.weight", "mlp.shared_expert.up_proj.weight",
     "mlp.shared_experts.up_proj.weight"},
    {"moe.shared.down.weight", "mlp.shared_expert.down_proj.weight",
     "mlp.shared_experts.down_proj.weight"},
    {"moe.shared_gate.weight", "mlp.shared_expert_gate.weight"},
};
static const char *const expert_parts[3][4] = {
    {"moe.experts.gate.weight", "mlp.experts.%d.gate_proj.weight",
     "block_sparse_moe.experts.%d.w1.weight"},
    {"moe.experts.up.weight", "mlp.experts.%d.up_proj.weight",
     "block_sparse_moe.experts.%d.w3.weight"},
    {"moe.experts.down.weight", "mlp.experts.%d.down_proj.weight",
     "block_sparse_moe.experts.%d.w2.weight"},
};

static bool read_at(const lf_st *s, const char *name, int64_t first, int64_t n, float *dst)
{
    lf_err err = LF_ERR_INIT;
    const lf_st_entry *e = lf_st_find(s, name);
    return e && e->dtype == LF_ST_F32 && !lf_st_read(s, e, first, n, dst, &err);
}

/* One expert after another, or all of them stacked, gate above up (transformers 5). */
static bool read_experts(const lf_st *s, const char *prefix, const struct lf_param_desc *d,
                         int which, float *dst)
{
    char name[256], part[128];
    const int64_t n = d->dims[1] * d->dims[2];
    for (int e = 0; e < d->dims[0]; e++) {
        bool found = false;
        for (int k = 1; k < 3 && !found; k++) {
            const char *f = expert_parts[which][k], *digit = strstr(f, "%d");
            snprintf(part, sizeof part, "%.*s%d%s", (int)(digit - f), f, e, digit + 2);
            snprintf(name, sizeof name, "%s%s", prefix, part);
            found = read_at(s, name, 0, n, dst + e * n);
        }
        snprintf(name, sizeof name, "%smlp.experts.%s", prefix,
                 which == 2 ? "down_proj" : "gate_up_proj");
        if (!found && !read_at(s, name, which == 2 ? e * n : (2 * e + which) * n, n, dst + e * n))
            return false;
    }
    return true;
}

/* Tensor i of the store as the file has it under `prefix` ("", "grad."). */
static bool read_tensor(const lf_st *s, const char *prefix, const lf_pstore *ps, int i, float *dst,
                        int64_t n)
{
    static const char *const outside[][2] = {{"embed.weight", "model.embed_tokens.weight"},
                                             {"head.weight", "lm_head.weight"},
                                             {"final_norm.weight", "model.norm.weight"}};
    const struct lf_param_desc *d = lf_pstore_desc(ps, i);
    char name[256], layer[128];
    int l = 0, used = 0;
    for (size_t k = 0; k < 3; k++) {
        snprintf(name, sizeof name, "%s%s", prefix, outside[k][1]);
        if (!strcmp(d->name, outside[k][0]))
            return read_at(s, name, 0, n, dst);
    }
    if (sscanf(d->name, "layers.%d.%n", &l, &used) != 1)
        return false;
    snprintf(layer, sizeof layer, "%smodel.layers.%d.", prefix, l);
    for (int k = 0; k < 3; k++)
        if (!strcmp(d->name + used, expert_parts[k][0]))
            return read_experts(s, layer, d, k, dst);
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
        for (int alt = 1; alt < 3 && !strcmp(d->name + used, parts[k][0]) && parts[k][alt]; alt++) {
            snprintf(name, sizeof name, "%s%s", layer, parts[k][alt]);
            if (read_at(s, name, 0, n, dst))
                return true;
        }
    return false;
}

static int64_t elements(const struct lf_param_desc *d)
{
    int64_t n = 1;
    for (int k = 0; k < d->ndim; k++)
        n *= d->dims[k];
    return n;
}

/* ---- a model that runs ---- */

struct rig {
    lf_decoder *d;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    int train, logits;
    int32_t tokens[R], targets[R], positions[R], cu[B + 1];
    double want[R * V], loss;
};

static int add_chain(struct rig *r, lf_graph *g, bool train, enum lf_recompute rc, lf_err *err)
{
    int c =
        g ? lf_plan_add(r->plan, g, &(struct lf_chain_opts){.train = train, .recompute = rc}, err)
          : -1;
    lf_graph_destroy(g);
    if (c < 0)
        tap_bail("%s", err->text);
    return c;
}

static void load(struct rig *r, const struct family *f)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = open_family(f->name, "model.safetensors"),
          *x = open_family(f->name, "expected.safetensors");
    int64_t ids[R];
    if (lf_pstore_init(r->ps, 1, &err))
        tap_bail("%s", err.text);
    for (int i = 0; i < lf_pstore_count(r->ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(r->ps, i);
        float *w = calloc((size_t)elements(d), sizeof *w);
        if (strcmp(d->name + strlen(d->name) - strlen("router.bias"), "router.bias") != 0 &&
            (!w || !read_tensor(s, "", r->ps, i, w, elements(d)) ||
             lf_pstore_write(r->ps, i, LF_F32, w, &err)))
            tap_bail("%s is not in the file", d->name);
        free(w);
    }
    if (lf_st_read(x, lf_st_find(x, "input_ids"), 0, R, ids, &err) ||
        lf_st_read(x, lf_st_find(x, "logits"), 0, R * V, r->want, &err) ||
        lf_st_read(x, lf_st_find(x, "loss"), 0, 1, &r->loss, &err))
        tap_bail("%s", err.text);
    for (int i = 0; i < R; i++) {
        r->tokens[i] = (int32_t)ids[i];
        r->positions[i] = i % T;
        r->targets[i] = i % T == T - 1 ? -1 : (int32_t)ids[i + 1];
    }
    for (int i = 0; i <= B; i++)
        r->cu[i] = i * T;
    lf_st_close(s), lf_st_close(x);
}

static void rig_open(struct rig *r, const struct family *f, const lf_model_config *c,
                     enum lf_dtype compute, enum lf_recompute recompute)
{
    lf_err err = LF_ERR_INIT;
    const struct lf_plan_opts po = {
        .threads = 2, .compute = compute, .mode = LF_INVARIANT, .keep_master = true};
    const struct lf_decoder_rows rows = {.rows = R, .n_docs = B, .max_doc = T};
    memset(r, 0, sizeof *r);
    r->d = lf_decoder_create(c, 32, &err);
    r->ps = lf_pstore_create(&err);
    if (!r->d || !r->ps || lf_decoder_declare(r->d, r->ps, &err) ||
        !(r->plan = lf_plan_create(r->ps, &po, &err)))
        tap_bail("%s", err.text);
    r->train = add_chain(r, lf_decoder_loss_graph(r->d, r->ps, "train", &rows, true, &err), true,
                         recompute, &err);
    r->logits = add_chain(r, lf_decoder_logits_graph(r->d, r->ps, "logits", &rows, &err), false,
                          LF_RECOMPUTE_NONE, &err);
    const struct lf_adamw_opts adam = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f};
    if (lf_plan_optimizer(r->plan, &adam, &err) || lf_plan_finish(r->plan, &err))
        tap_bail("%s", err.text);
    r->back = lf_back_cpu_create(lf_target_host()->isa, 2, &err);
    r->ex = r->back ? lf_exec_create(r->plan, r->back, NULL, &err) : NULL;
    if (!r->ex)
        tap_bail("%s", err.text);
    load(r, f);
}

static void rig_close(struct rig *r)
{
    lf_exec_destroy(r->ex), lf_back_destroy(r->back), lf_plan_destroy(r->plan);
    lf_pstore_destroy(r->ps), lf_decoder_destroy(r->d);
}

static void feed(struct rig *r, int chain)
{
    lf_err err = LF_ERR_INIT;
    if (lf_exec_write(r->ex, chain, 0, "tokens", r->tokens, sizeof r->tokens, &err) ||
        lf_exec_write(r->ex, chain, 0, "positions", r->positions, sizeof r->positions, &err) ||
        lf_exec_write(r->ex, chain, 0, "cu_seqlens", r->cu, sizeof r->cu, &err) ||
        (chain == r->train &&
         lf_exec_write(r->ex, chain, 0, "targets", r->targets, sizeof r->targets, &err)))
        tap_bail("%s", err.text);
}

/* Root mean square error of the logits, and that of the logits themselves. */
static double logit_error(struct rig *r, double *size)
{
    lf_err err = LF_ERR_INIT;
    float *got = calloc(R * V, sizeof *got);
    double sq = 0, all = 0;
    feed(r, r->logits);
    if (lf_exec_run(r->ex, r->logits, LF_FWD, 0, LF_FIRST, &err) ||
        lf_exec_read(r->ex, r->logits, 0, "logits", got, R * V * 4, &err))
        tap_bail("%s", err.text);
    for (int i = 0; i < R * V; i++) {
        sq += pow((double)got[i] - r->want[i], 2);
        all += pow(r->want[i], 2);
    }
    free(got);
    *size = sqrt(all / (R * V));
    return sqrt(sq / (R * V));
}

static struct lf_step_record step(struct rig *r, int micro)
{
    lf_err err = LF_ERR_INIT;
    struct lf_step_record rec = {.lr = 1e-3f,
                                 .bias_corr1 = 0.1f,
                                 .bias_corr2 = 0.05f,
                                 .loss_scale = 1,
                                 .inv_tokens = (float)(1.0 / (B * (T - 1) * micro)),
                                 .inv_batches = 1.0f / (float)micro};
    if (lf_exec_record_write(r->ex, &rec, &err))
        tap_bail("%s", err.text);
    for (int m = 0; m < micro; m++) {
        feed(r, r->train);
        if (lf_exec_run(r->ex, r->train, LF_FWD, 0, m ? LF_ACCUM : LF_FIRST, &err) ||
            lf_exec_run(r->ex, r->train, LF_BWD, 0, m ? LF_ACCUM : LF_FIRST, &err))
            tap_bail("%s", err.text);
    }
    if (lf_exec_record_read(r->ex, &rec, &err))
        tap_bail("%s", err.text);
    return rec;
}

/* Worst relative error of a gradient over all tensors (or those whose name holds `only`). */
static double gradients(const struct rig *r, const lf_st *x, const char *only,
                        const char **worst_name)
{
    lf_err err = LF_ERR_INIT;
    double worst = 0;
    for (int i = 0; i < lf_pstore_count(r->ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(r->ps, i);
        const size_t n = (size_t)elements(d);
        float *want = calloc(n, 4), *got = calloc(n, 4);
        double sq = 0, all = 0;
        if (only && !strstr(d->name, only)) {
            free(want), free(got);
            continue;
        }
        if (!want || !got || !read_tensor(x, "grad.", r->ps, i, want, (int64_t)n) ||
            lf_pstore_read(r->ps, i, LF_P_GRAD, got, n * 4, &err))
            tap_bail("no gradient of %s %s", d->name, err.text);
        for (size_t e = 0; e < n; e++) {
            sq += pow((double)got[e] - (double)want[e], 2);
            all += pow((double)want[e], 2);
        }
        /* RoPE turns keys, so a key bias has an effect here */
        if (!(sqrt(sq / all) <= worst)) {
            worst = sqrt(sq / all);
            *worst_name = d->name;
        }
        free(want), free(got);
    }
    return worst;
}

static int flips_of(const struct family *f)
{
    int n = 0;
    while (n < 4 && f->flip[n][0])
        n++;
    return n;
}

static void test_family(const struct family *f)
{
    struct rig r;
    const char *name = "";
    double size, e;
    lf_model_config c = config_of(f, NULL);
    rig_open(&r, f, &c, LF_F32, LF_RECOMPUTE_NONE);
    tap_i64(lf_pstore_elements(r.ps), lf_model_param_count(&c),
            "as many scalars as the arithmetic says");
    e = logit_error(&r, &size);
    tap_ok(e <= 1e-5 * size, "%s: logits, relative error %.2g", f->name, e / size);
    struct lf_step_record rec = step(&r, 1);
    e = fabs(rec.loss_sum / (double)rec.tokens - r.loss) / r.loss;
    tap_ok(e <= 1e-5, "%s: loss %.9g, relative error %.2g", f->name, r.loss, e);
    lf_st *x = open_family(f->name, "expected.safetensors");
    e = gradients(&r, x, NULL, &name);
    tap_ok(e <= 1e-5, "%s: %d gradients, worst relative error %.2g (%s)", f->name,
           lf_pstore_count(r.ps), e, name);
    const char *meta = lf_st_meta(x, "bf16_rms");
    const double theirs = meta ? strtod(meta, NULL) : 0;
    rig_close(&r);
    rig_open(&r, f, &c, LF_BF16, LF_RECOMPUTE_NONE);
    e = logit_error(&r, &size);
    tap_ok(e <= 1.5 * theirs, "%s bf16: rms error %.3g, the reference library's own %.3g", f->name,
           e, theirs);
    lf_st_close(x);
    rig_close(&r);
    for (int i = 0; i < flips_of(f); i++) {
        c = config_of(f, f->flip[i]);
        rig_open(&r, f, &c, LF_F32, LF_RECOMPUTE_NONE);
        e = logit_error(&r, &size);
        tap_ok(e > 1e-3 * size, "%s: %s = %s shows (%.2g)", f->name, f->flip[i][0], f->flip[i][1],
               e / size);
        rig_close(&r);
    }
}

/* Recomputation repeats the routing and changes no bit of a gradient. */
static void test_recompute(const struct family *f, enum lf_dtype compute)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config c = config_of(f, (const char *const[]){"router_aux", "0.5"});
    float *got[3];
    size_t n = 0;
    bool same = true;
    for (int how = 0; how < 3; how++) {
        struct rig r;
        rig_open(&r, f, &c, compute, (enum lf_recompute)how);
        step(&r, 2);
        n = (size_t)lf_pstore_elements(r.ps);
        got[how] = calloc(n, 4);
        for (int i = 0, at = 0; i < lf_pstore_count(r.ps); i++) {
            size_t m = (size_t)elements(lf_pstore_desc(r.ps, i));
            if (lf_pstore_read(r.ps, i, LF_P_GRAD, got[how] + at, m * 4, &err))
                tap_bail("%s", err.text);
            at += (int)m;
        }
        same = same && !memcmp(got[how], got[0], n * 4);
        rig_close(&r);
    }
    tap_ok(same, "%s %s: recomputation, none, selective or full, gives the same gradients", f->name,
           compute == LF_BF16 ? "bf16" : "f32");
    for (int how = 0; how < 3; how++)
        free(got[how]);
}

/* transformers' loss over all layers together, with its gradient; per micro-batch, so two equal
 * ones are as one. */
static void test_aux(void)
{
    struct rig r;
    double aux = 0;
    const char *name = "";
    lf_err err = LF_ERR_INIT;
    lf_st *x = open_st("moe/aux.safetensors");
    if (lf_st_read(x, lf_st_find(x, "aux"), 0, 1, &aux, &err))
        tap_bail("%s", err.text);
    lf_model_config c =
        config_of(&families[0], (const char *const[]){"router_aux", lf_st_meta(x, "coefficient")});
    rig_open(&r, &families[0], &c, LF_F32, LF_RECOMPUTE_NONE);
    for (int micro = 1; micro <= 2; micro++) {
        struct lf_step_record rec = step(&r, micro);
        double e = fabs(rec.router_aux / micro - aux) / aux;
        tap_ok(e <= 1e-6, "load-balancing loss %.9g of %d micro-batches, relative error %.2g", aux,
               micro, e);
        e = gradients(&r, x, NULL, &name);
        tap_ok(e <= 1e-5, "gradients with it: worst relative error %.2g (%s)", e, name);
        tap_i64(rec.router_seen, 2 * micro, "layers x micro-batches seen");
        tap_ok(rec.router_entropy > 0 && rec.router_entropy / (2 * micro) < log(E) &&
                   rec.router_load / (2 * micro) >= 1,
               "entropy and load are sane");
    }
    rig_close(&r);
    c = config_of(&families[0], NULL);
    rig_open(&r, &families[0], &c, LF_F32, LF_RECOMPUTE_NONE);
    step(&r, 1);
    double e = gradients(&r, x, "moe.router", &name);
    tap_ok(e > 1e-3, "without the term the routers' gradients are others (%.2g)", e);
    rig_close(&r);
    lf_st_close(x);
}

/* Rows beyond the capacity of an expert are dropped in training, in the order of rows, before the
 * balance notices; graphs that do not train drop none. */
static void test_capacity(void)
{
    struct rig r;
    double aux = 0, nll = 0, size;
    const char *name = "";
    lf_err err = LF_ERR_INIT;
    lf_st *x = open_st("moe/capacity.safetensors");
    if (lf_st_read(x, lf_st_find(x, "aux"), 0, 1, &aux, &err) ||
        lf_st_read(x, lf_st_find(x, "nll"), 0, 1, &nll, &err))
        tap_bail("%s", err.text);
    const double dropped = strtod(lf_st_meta(x, "dropped"), NULL);
    for (int how = 0; how < 3; how++) {
        lf_model_config c = config_of(
            &families[0], (const char *const[]){"router_aux", lf_st_meta(x, "coefficient")});
        set(&c, "capacity_factor", lf_st_meta(x, "capacity_factor"));
        rig_open(&r, &families[0], &c, LF_F32, (enum lf_recompute)how);
        const struct lf_step_record rec = step(&r, 1);
        double e = fabs(rec.loss_sum / (double)rec.tokens - nll) / nll;
        tap_ok(e <= 1e-6 && fabs(rec.router_aux - aux) / aux <= 1e-6,
               "with rows dropped: loss %.9g, relative error %.2g", nll, e);
        e = gradients(&r, x, NULL, &name);
        tap_ok(e <= 1e-5, "gradients: worst relative error %.2g (%s)", e, name);
        tap_ok(dropped > 0 && fabs(rec.router_dropped / 2 - dropped) < 1e-9,
               "%.4g of the pairs are dropped", dropped);
        e = logit_error(&r, &size);
        tap_ok(e <= 1e-5 * size, "a graph that does not train drops none");
        rig_close(&r);
    }
    lf_model_config c = config_of(&families[0], (const char *const[]){"capacity_factor", "2"});
    rig_open(&r, &families[0], &c, LF_F32, LF_RECOMPUTE_NONE);
    const struct lf_step_record all = step(&r, 1);
    tap_ok(!(all.router_dropped > 0), "experts that have room for all rows drop none");
    rig_close(&r);
    lf_st_close(x);
}

static int find(const lf_pstore *ps, const char *name)
{
    int i = lf_pstore_find(ps, name);
    if (i < 0)
        tap_bail("no %s", name);
    return i;
}

/* Counts of all micro-batches reach the bias after the step; padding counts for nothing; the
 * gradient's norm does not see them. */
static void test_bias(void)
{
    lf_err err = LF_ERR_INIT;
    struct rig r, plain;
    float counts[E], bias[E], m[E];
    lf_model_config c = config_of(&families[1], (const char *const[]){"router_bias", "yes"}),
                    p = config_of(&families[1], NULL);
    rig_open(&r, &families[1], &c, LF_F32, LF_RECOMPUTE_FULL);
    rig_open(&plain, &families[1], &p, LF_F32, LF_RECOMPUTE_NONE);
    r.cu[B] = T + 5; /* seven rows of padding */
    memcpy(plain.cu, r.cu, sizeof r.cu);
    for (int i = T + 5; i < R; i++)
        r.targets[i] = plain.targets[i] = -1;
    step(&r, 3);
    step(&plain, 3);
    const int b = find(r.ps, "layers.1.moe.router.bias");
    if (lf_exec_run(r.ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err) ||
        lf_exec_run(plain.ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err) ||
        lf_pstore_read(r.ps, b, LF_P_GRAD, counts, sizeof counts, &err) ||
        lf_pstore_read(r.ps, b, LF_P_MASTER, bias, sizeof bias, &err))
        tap_bail("%s", err.text);
    double sum = 0;
    bool right = true;
    for (int e = 0; e < E; e++)
        sum += (double)counts[e];
    tap_ok(fabs(sum - 3 * (T + 5) * 2) < 0.5,
           "three micro-batches: %g pairs counted, padding left out", sum);
    for (int e = 0; e < E; e++)
        right = right && bias[e] == ((double)counts[e] > sum / E   ? -0.001f
                                     : (double)counts[e] < sum / E ? 0.001f
                                                                   : 0);
    tap_ok(right, "each bias has moved by the rate against its load");
    struct lf_step_record a, q;
    if (lf_exec_record_read(r.ex, &a, &err) || lf_exec_record_read(plain.ex, &q, &err))
        tap_bail("%s", err.text);
    tap_ok(a.grad_norm > 0 && !memcmp(&a.grad_norm, &q.grad_norm, sizeof a.grad_norm),
           "counts are no part of the gradient's norm");
    tap_ok(lf_pstore_read(r.ps, b, LF_P_M, m, sizeof m, &err) == LF_ENOENT,
           "and a bias has no moments");
    /* A bias large enough moves every row. */
    const float heavy[E] = {0, 0, 50, 40};
    if (lf_pstore_write(r.ps, b, LF_F32, heavy, &err))
        tap_bail("%s", err.text);
    step(&r, 1);
    if (lf_pstore_read(r.ps, b, LF_P_GRAD, counts, sizeof counts, &err))
        tap_bail("%s", err.text);
    tap_ok(counts[0] == 0 && counts[1] == 0 && counts[2] == T + 5 && counts[3] == T + 5,
           "a large bias sends every row to its experts");
    rig_close(&r);
    rig_close(&plain);
}

static void test_refusals(void)
{
    static const struct {
        const char *key, *value, *text;
    } bad[] = {{"experts_per_token", "5", "5 of 4 experts"},
               {"layer_mlps", "d*", "no layer has them"},
               {"router_groups", "3", "3 groups"},
               {"activation", "xielu", "are for mlp = plain"},
               {"mlp_bias", "yes", "by expert_bias"},
               {"shared_gate", "yes", "without shared_ffn"},
               {"experts", "0", "means nothing without experts"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lf_model_config c;
        lf_err err = LF_ERR_INIT;
        lf_model_config_defaults(&c);
        for (int k = 0; k < 14 && families[0].set[k][0]; k++)
            set(&c, families[0].set[k][0], families[0].set[k][1]);
        if (lf_model_config_set(&c, "experts_per_token", "2", "run.ini:7", &err) ||
            lf_model_config_set(&c, bad[i].key, bad[i].value, "run.ini:9", &err))
            tap_bail("%s", err.text);
        tap_rc(lf_model_config_finish(&c, &err), LF_EINVAL, &err, bad[i].text, bad[i].key);
    }
}

/* What is counted as work: the chosen experts, not all. */
static void test_cost(void)
{
    lf_model_config c = config_of(&families[1], NULL);
    const int64_t all = lf_model_moe_params(&c, false), active = lf_model_moe_params(&c, true);
    tap_i64(all, 16 * (4 + 3 * 4 * 8 + 3 * 12 + 1), "scalars of a MoE layer");
    tap_i64(all - active, 16 * 3 * 2 * 8, "of which two experts do not multiply a token");
    struct rig r;
    struct lf_plan_cost cost;
    rig_open(&r, &families[1], &c, LF_F32, LF_RECOMPUTE_NONE);
    lf_plan_cost(r.plan, r.logits, &cost);
    const double attention = 4.0 * R * 16 * (T + 1) / 2 * 2; /* layers */
    tap_ok(fabs(cost.fwd_causal - 2.0 * R * (double)lf_model_matmul_params(&c) - attention) < 1,
           "the plan counts as many FLOPs (%g)", cost.fwd_causal);
    rig_close(&r);
}

int main(void)
{
    for (int i = 0; i < N_FAMILIES; i++)
        TAP(5 + flips_of(&families[i]), test_family(&families[i]));
    for (int t = LF_F32; t <= LF_BF16; t++) {
        TAP(1, test_recompute(&families[0], (enum lf_dtype)t));
        TAP(1, test_recompute(&families[3], (enum lf_dtype)t));
    }
    TAP(9, test_aux());
    TAP(13, test_capacity());
    TAP(5, test_bias());
    TAP(7, test_refusals());
    TAP(3, test_cost());
    return tap_done();
}
