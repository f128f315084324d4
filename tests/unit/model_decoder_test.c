/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder's parameter table against the arithmetic of config.h for every file of models/, and
 * what causality and packing promise, bit for bit: a later token changes no earlier logit, a
 * neighbour changes no document. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/ini.h"
#include "engine/base/rng.h"
#include "engine/graph/exec.h"
#include "engine/graph/layout.h"
#include "engine/model/decoder.h"
#include "tests/tap/tap.h"

#define T    48
#define DOCS 4

static void load(lf_model_config *c, const char *name)
{
    char path[4096];
    lf_err err = LF_ERR_INIT;
    snprintf(path, sizeof(path), "%s/models/%s", getenv("LF_SRCDIR"), name);
    if (lf_model_config_load(c, path, &err))
        tap_bail("%s", err.text);
}

static void check_table_of(const lf_model_config *c, const char *name)
{
    lf_err err = LF_ERR_INIT;
    lf_decoder *d = lf_decoder_create(c, 16, &err);
    lf_pstore *ps = lf_pstore_create(&err);
    if (tap_ok(d && ps && !lf_decoder_declare(d, ps, &err), "%s declares its tensors%s", name,
               err.text))
        tap_i64(lf_pstore_elements(ps), lf_model_param_count(c),
                "as many scalars as the arithmetic says");
    int64_t decayed = 0;
    bool rule = true;
    for (int i = 0; i < lf_pstore_count(ps); i++) {
        const struct lf_param_desc *p = lf_pstore_desc(ps, i);
        const bool taps = strstr(p->name, ".conv_") || strstr(p->name, ".conv.filter."),
                   bias = strstr(p->name, ".bias"); /* those of experts have a row for each */
        /* of windows of pictures, as Swin's authors have it */
        const bool distance = strstr(p->name, ".attn.distances") || strstr(p->name, ".temperature");
        rule = rule && p->decay == (p->ndim >= 2 && !taps && !bias && !distance);
        decayed += p->decay;
    }
    tap_ok(rule && decayed > 0,
           "weight decay for matrices, none for biases, vectors, taps and distances");
    lf_pstore_destroy(ps);
    lf_decoder_destroy(d);
}

static void check_table(const char *name)
{
    lf_model_config c;
    load(&c, name);
    check_table_of(&c, name);
}

/* Switches that no file of models/ small enough for a test sets, on top of tiny-llama (4 heads of
 * 16). */
static const char *const switches[][14] = {
    {"block=post", "norm=layer", "norm_bias=yes"},
    {"block=sandwich", "norm_offset=1", "sliding_window=8", "layer_mixers=wf*",
     "rope_local_theta=100"},
    {"block=alpha", "norm=layer", "norm_bias=yes", "qkv_bias=yes"},
    {"final_norm=no"},
    {"embed_dim=24"},
    {"embed_dim=24", "position=learned", "position_offset=2", "tied_head=yes", "block=post",
     "final_norm=no"},
    {"embed_dim=24", "embed_narrow=yes", "position=learned", "position_offset=2", "tied_head=yes",
     "mask=both", "token_types=2", "embed_norm=yes", "norm=layer", "norm_bias=yes",
     "head_transform=yes", "head_transform_bias=yes"},
    {"logn_length=8"},
    {"norm_head=yes"},
    {"norm=layer", "norm_weight=no", "embed_norm=yes", "rope_backwards=yes"},
    {"norm_head=yes", "tied_head=yes"},
    {"output=score"},
    {"output=score", "tied_head=yes", "embed_dim=24"},
    {"mask=prefix", "sliding_window=11"},
    {"mask=prefix", "position=rope2d", "block=alpha", "kv_heads=4"},
    {"layer_mixers=fn*", "layer_mlps=nd*"},
    {"sliding_window=8", "layer_mixers=wf*", "window_kv_heads=1", "window_head_dim=8",
     "rope_local_theta=100", "qk_norm=yes"},
    {"layer_positions=rn*", "qk_norm=yes"},
    {"attn_gate=yes", "qkv_bias=yes"},
    {"layer_mixers=sf*", "scan_heads=6", "scan_groups=2", "scan_key_dim=5", "scan_value_dim=8",
     "scan_conv=4", "scan_conv_bias=yes", "scan_bias=yes", "scan_gate=silu", "scan_norm=after_gate",
     "scan_norm_parts=2", "scan_step_min=0.01", "scan_step_max=2"},
    {"layer_mixers=gf*", "scan_heads=4", "scan_groups=2", "scan_key_dim=8", "scan_value_dim=6",
     "scan_conv=4", "scan_gate=silu", "scan_norm=before_gate", "norm_offset=1", "attn_gate=yes",
     "scan_strength=1.6", "block=out_attention"},
    {"layer_mixers=kf*", "scan_heads=3", "scan_key_dim=8", "scan_value_dim=6", "scan_conv=4",
     "scan_rank=5", "scan_gate=sigmoid", "scan_norm=before_gate"},
    {"layer_mixers=lf*", "scan_heads=4", "scan_key_dim=8", "scan_value_dim=8", "scan_gate=sigmoid",
     "scan_norm=before_gate", "scan_norm_parts=1"},
    {"layer_mixers=b*", "scan_heads=4", "scan_groups=1", "scan_key_dim=5", "scan_value_dim=8",
     "scan_conv=3", "scan_gate=silu", "scan_scales=0.5,2,0.7,1.5,0.9", "attn_in_scale=0.8",
     "attn_out_scale=0.6", "scan_in_scale=1.2", "scan_out_scale=1.3", "mlp_gate_scale=1.3",
     "mlp_out_scale=0.8"},
    {"layer_mixers=s*", "layer_mlps=n*", "heads=0", "kv_heads=0", "head_dim=0", "ffn=0",
     "scan_heads=4", "scan_key_dim=6", "scan_value_dim=16", "scan_conv=4", "scan_gate=silu",
     "scan_norm=after_gate"},
    {"mlp=plain", "activation=xielu", "layer_mixers=f*", "layer_mlps=dn*"},
    {"layer_mixers=fn*", "layer_mlps=nm*", "mlp=plain", "activation=relu2", "experts=4",
     "experts_per_token=2", "expert_ffn=24", "expert_latent=20", "shared_ffn=12"},
    {"layer_mixers=cf*", "scan_conv=3", "scan_bias=yes", "scan_conv_bias=yes"},
    {"layers=4", "layer_mixers=wf*", "sliding_window=8", "rope_local_theta=100",
     "window_head_dim=8", "rope_scaling=proportional", "rope_fraction=0.3", "qk_norm=yes",
     "v_norm=yes", "kv_shared_layers=2", "kv_shared_ffn=48", "per_layer_dim=6", "layer_gain=yes",
     "block=sandwich"},
    {"layers=3", "altup_streams=3", "laurel_rank=6", "per_layer_dim=6", "per_layer_vocab=50",
     "gate_sparsity=0.6,0,0.3", "block=sandwich", "qk_norm=yes", "v_norm=yes"},
    {"layer_mlps=b*", "experts=4", "experts_per_token=4", "expert_ffn=24", "router_norm=yes",
     "router_renorm=yes", "expert_gain=yes", "keys_as_values=yes", "qk_norm=yes", "v_norm=yes",
     "block=sandwich", "qkv_bias=yes", "attn_gate=yes"},
};
#define N_SWITCHES (sizeof(switches) / sizeof(switches[0]))

static const char *switched(lf_model_config *c, size_t i, char *text, size_t cap)
{
    lf_err err = LF_ERR_INIT;
    size_t at = 0;
    load(c, "tiny-llama.ini");
    for (int k = 0; k < 14 && switches[i][k]; k++) {
        char key[48];
        const char *eq = strchr(switches[i][k], '=');
        snprintf(key, sizeof(key), "%.*s", (int)(eq - switches[i][k]), switches[i][k]);
        if (lf_model_config_set(c, key, eq + 1, "switch", &err))
            tap_bail("%s", err.text);
        at += (size_t)snprintf(text + at, cap - at, "%s%s", k ? ", " : "", switches[i][k]);
    }
    if (lf_model_config_finish(c, &err))
        tap_bail("%s", err.text);
    return text;
}

static void test_tables(void)
{
    for (size_t i = 0; i < N_SWITCHES; i++) {
        char text[320];
        lf_model_config c;
        check_table_of(&c, switched(&c, i, text, sizeof(text)));
    }
    char path[4096];
    snprintf(path, sizeof(path), "%s/models", getenv("LF_SRCDIR"));
    DIR *d = opendir(path);
    if (!d)
        tap_bail("%s cannot be read", path);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        if (strlen(e->d_name) > 4 && strcmp(e->d_name + strlen(e->d_name) - 4, ".ini") == 0)
            check_table(e->d_name);
    closedir(d);
}

/* ---- one small model that gives logits ---- */

struct runner {
    lf_decoder *d;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    int chain;
    int64_t vocab;
};

static void runner_fini(struct runner *r)
{
    lf_exec_destroy(r->ex);
    lf_back_destroy(r->back);
    lf_plan_destroy(r->plan);
    lf_pstore_destroy(r->ps);
    lf_decoder_destroy(r->d);
}

static int runner_init(struct runner *r, const lf_model_config *c, enum lf_dtype compute,
                       lf_err *err)
{
    struct lf_plan_opts po = {.threads = 2, .compute = compute, .mode = LF_INVARIANT};
    struct lf_decoder_rows rows = {.rows = T, .n_docs = DOCS};
    memset(r, 0, sizeof(*r));
    r->vocab = c->vocab;
    r->d = lf_decoder_create(c, T, err);
    r->ps = lf_pstore_create(err);
    if (!r->d || !r->ps || lf_decoder_declare(r->d, r->ps, err))
        return -1;
    lf_graph *g = lf_decoder_logits_graph(r->d, r->ps, "logits", &rows, err);
    r->plan = g ? lf_plan_create(r->ps, &po, err) : NULL;
    r->chain = r->plan ? lf_plan_add(r->plan, g, &(struct lf_chain_opts){.slots = 1}, err) : -1;
    lf_graph_destroy(g);
    if (r->chain < 0 || lf_plan_finish(r->plan, err))
        return -1;
    r->back = lf_back_cpu_create(lf_target_host()->isa, 2, err);
    r->ex = r->back ? lf_exec_create(r->plan, r->back, NULL, err) : NULL;
    return r->ex ? lf_pstore_init(r->ps, 3, err) : -1;
}

/* lens: documents, zero-terminated, together at most T. */
static float *logits(struct runner *r, const int32_t *tokens, const int *lens)
{
    lf_err err = LF_ERR_INIT;
    int32_t pos[T] = {0}, cu[DOCS + 1], at = 0, n = 0;
    float *out = malloc((size_t)(T * r->vocab) * sizeof(float));
    cu[0] = 0;
    for (; lens[n]; n++) {
        for (int i = 0; i < lens[n]; i++)
            pos[at++] = i;
        cu[n + 1] = at;
    }
    for (; n < DOCS; n++)
        cu[n + 1] = at;
    if (lf_exec_write(r->ex, r->chain, 0, "tokens", tokens, T * sizeof(int32_t), &err) ||
        lf_exec_write(r->ex, r->chain, 0, "positions", pos, sizeof(pos), &err) ||
        lf_exec_write(r->ex, r->chain, 0, "cu_seqlens", cu, sizeof(cu), &err) ||
        lf_exec_run(r->ex, r->chain, LF_FWD, 0, LF_FIRST, &err) ||
        lf_exec_read(r->ex, r->chain, 0, "logits", out, (size_t)(T * r->vocab) * sizeof(float),
                     &err))
        tap_bail("%s", err.text);
    return out;
}

static void test_causal(lf_model_config c, const char *name, enum lf_dtype compute)
{
    lf_err err = LF_ERR_INIT;
    struct runner r;
    c.init_std = 0.2; /* so that attention looks at something */
    const char *type = compute == LF_BF16 ? "bf16" : "f32";
    if (!tap_ok(!runner_init(&r, &c, compute, &err), "%s %s %s", name, type, err.text)) {
        runner_fini(&r);
        return;
    }
    int32_t a[T], b[T];
    for (int i = 0; i < T; i++)
        a[i] = b[i] = (int32_t)(lf_rng_u32(1, 1, (uint64_t)i) % (uint32_t)c.vocab);
    static const int one[] = {T, 0}, two[] = {19, T - 19, 0}, second[] = {T - 19, 0};
    const size_t row = (size_t)c.vocab * sizeof(float);
    float *la = logits(&r, a, one);
    bool finite = true;
    for (int64_t i = 0; i < T * c.vocab; i++)
        finite = finite && isfinite(la[i]);
    tap_ok(finite, "logits are finite");
    for (int change = 1; change < T; change += 23) {
        memcpy(b, a, sizeof(a));
        b[change] = (a[change] + 1) % (int32_t)c.vocab;
        float *lb = logits(&r, b, one);
        tap_ok(memcmp(la, lb, row * (size_t)change) == 0, "token %d changes no bit before it",
               change);
        tap_ok(memcmp((char *)la + row * (size_t)change, (char *)lb + row * (size_t)change, row) !=
                   0,
               "and changes its own row, so the comparison can fail");
        free(lb);
    }
    float *packed = logits(&r, a, two);
    memmove(b, a + 19, (T - 19) * sizeof(int32_t));
    float *alone = logits(&r, b, second);
    tap_mem((char *)packed + row * 19, alone, row * (T - 19),
            "a document's logits do not depend on its neighbour");
    tap_ok(memcmp((char *)packed + row * 20, (char *)la + row * 20, row) != 0,
           "but on where it begins");
    free(packed);
    free(alone);
    free(la);
    runner_fini(&r);
}

/* Multiplies the rows of every tensor "layers.N.scan.PART.weight". */
static void scale_rows(struct runner *r, const char *part, float by)
{
    lf_err err = LF_ERR_INIT;
    char end[64];
    snprintf(end, sizeof end, ".scan.%s.weight", part);
    for (int i = 0; i < lf_pstore_count(r->ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(r->ps, i);
        const char *at = strstr(d->name, end);
        if (!at || at[strlen(end)])
            continue;
        const size_t n = (size_t)(d->dims[0] * d->dims[1]);
        float *w = malloc(n * sizeof *w);
        if (lf_pstore_read(r->ps, i, LF_P_MASTER, w, n * sizeof *w, &err))
            tap_bail("%s", err.text);
        for (size_t k = 0; k < n; k++)
            w[k] *= by;
        if (lf_pstore_write(r->ps, i, LF_F32, w, &err))
            tap_bail("%s", err.text);
        free(w);
    }
}

/* What scan_scales multiply is what the projection gives: powers of two in the weights in their
 * place are the same bits, with a convolution behind them and without. */
static void test_scan_scales(const char *conv)
{
    static const char *const parts[] = {"z", "v", "k", "q", "a"};
    static const float by[] = {0.5f, 2, 4, 0.25f, 2};
    static const char *const with[] = {"0.5,2,4,0.25,2", "1,1,1,1,1"};
    const char *const keys[][2] = {{"layer_mixers", "sf*"}, {"scan_heads", "4"},
                                   {"scan_key_dim", "6"},   {"scan_value_dim", "8"},
                                   {"scan_conv", conv},     {"scan_gate", "silu"}};
    static const int lens[] = {19, T - 19, 0};
    float *got[2];
    int32_t a[T];
    lf_err err = LF_ERR_INIT;
    for (int k = 0; k < 2; k++) {
        lf_model_config c;
        struct runner r;
        load(&c, "tiny-llama.ini");
        c.init_std = 0.2;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            if (lf_model_config_set(&c, keys[i][0], keys[i][1], "scales", &err))
                tap_bail("%s", err.text);
        if (lf_model_config_set(&c, "scan_scales", with[k], "scales", &err) ||
            lf_model_config_finish(&c, &err) || runner_init(&r, &c, LF_F32, &err))
            tap_bail("%s", err.text);
        for (int i = 0; i < T; i++)
            a[i] = (int32_t)(lf_rng_u32(1, 1, (uint64_t)i) % (uint32_t)c.vocab);
        float *bare = logits(&r, a, lens);
        for (int i = 0; i < 5 && k == 1; i++)
            scale_rows(&r, parts[i], by[i]);
        got[k] = logits(&r, a, lens);
        const size_t bytes = (size_t)(T * c.vocab) * sizeof(float);
        if (k == 1) {
            tap_ok(memcmp(bare, got[1], bytes) != 0, "scan_conv = %s: scales matter", conv);
            tap_mem(got[0], got[1], bytes, "and are those of the projection");
        }
        free(bare);
        runner_fini(&r);
    }
    free(got[0]);
    free(got[1]);
}

static void test_prefixes(void)
{
    const int32_t targets[9] = {-1, -1, 5, 6, -1, 1, 2, -1, -1}, cu[5] = {0, 4, 5, 5, 7};
    int32_t prefix[4], turns[9], blocks[9];
    lf_decoder_prefixes(targets, cu, 4, true, prefix);
    tap_ok(prefix[0] == 3 && prefix[1] == 0 && prefix[2] == 0 && prefix[3] == 1,
           "or with the token that predicts it");
    lf_decoder_prefixes(targets, cu, 4, false, prefix);
    tap_ok(prefix[0] == 2 && prefix[1] == 0 && prefix[2] == 0 && prefix[3] == 0,
           "a prefix ends where the first trained token is predicted; without one there is none");
    lf_decoder_turns(cu, 4, prefix, 9, turns, blocks);
    static const int32_t turn[9] = {0, 1, 1, 1, 0, 0, 0, 0, 0},
                         block[9] = {0, 0, 1, 2, 1, 1, 2, 0, 0};
    tap_mem(turns, turn, sizeof(turn), "the first position stops at the end of the prefix");
    tap_mem(blocks, block, sizeof(block), "the second starts there");
}

/* ---- gradients of every switch against differences of the loss ---- */

struct trainer {
    struct runner r; /* its chain is the loss */
    int32_t tokens[T], targets[T], positions[T], cu[DOCS + 1], prefix[DOCS], turns[T], blocks[T];
};

static void trainer_init(struct trainer *t, const lf_model_config *c)
{
    static const int32_t cu[DOCS + 1] = {0, 29, 29, 45, 45};
    struct lf_plan_opts po = {.threads = 2, .compute = LF_F32, .mode = LF_FAST};
    struct lf_decoder_rows rows = {.rows = T, .n_docs = DOCS};
    lf_err err = LF_ERR_INIT;
    memset(t, 0, sizeof(*t));
    t->r.d = lf_decoder_create(c, T, &err);
    t->r.ps = lf_pstore_create(&err);
    if (!t->r.d || !t->r.ps || lf_decoder_declare(t->r.d, t->r.ps, &err))
        tap_bail("%s", err.text);
    lf_graph *g = lf_decoder_loss_graph(t->r.d, t->r.ps, "train", &rows, true, &err);
    t->r.plan = g ? lf_plan_create(t->r.ps, &po, &err) : NULL;
    t->r.chain =
        t->r.plan ? lf_plan_add(t->r.plan, g, &(struct lf_chain_opts){.train = true}, &err) : -1;
    lf_graph_destroy(g);
    if (t->r.chain < 0 || lf_plan_finish(t->r.plan, &err) ||
        !(t->r.back = lf_back_cpu_create(lf_target_host()->isa, 2, &err)) ||
        !(t->r.ex = lf_exec_create(t->r.plan, t->r.back, NULL, &err)) ||
        lf_pstore_init(t->r.ps, 3, &err))
        tap_bail("%s", err.text);
    memcpy(t->cu, cu, sizeof(cu));
    for (int i = 0; i < T; i++) {
        t->tokens[i] = (int32_t)(lf_rng_u32(1, 2, (uint64_t)i) % (uint32_t)c->vocab);
        t->targets[i] =
            i < 9 || i >= 45 ? -1 : (int32_t)(lf_rng_u32(1, 3, (uint64_t)i) % (uint32_t)c->vocab);
        t->positions[i] = i < 29 ? i : i < 45 ? i - 29 : 0;
    }
    lf_decoder_prefixes(t->targets, t->cu, DOCS, false, t->prefix);
    lf_decoder_turns(t->cu, DOCS, t->prefix, T, t->turns, t->blocks);
}

static void feed(struct trainer *t, const char *name, const int32_t *v, size_t n)
{
    lf_err err = LF_ERR_INIT;
    if (lf_exec_write(t->r.ex, t->r.chain, 0, name, v, n * sizeof(*v), &err))
        tap_bail("%s", err.text);
}

/* Mean loss of the batch; twice: the backward too, over two equal micro-batches. */
static double loss(struct trainer *t, bool twice)
{
    lf_err err = LF_ERR_INIT;
    struct lf_step_record rec = {.loss_scale = 1, .inv_tokens = 0.5f / 36};
    const lf_model_config *c = lf_decoder_config(t->r.d);
    feed(t, "tokens", t->tokens, T);
    feed(t, "targets", t->targets, T);
    feed(t, "positions", t->positions, T);
    feed(t, "cu_seqlens", t->cu, DOCS + 1);
    if (c->mask == LF_MASK_PREFIX)
        feed(t, "prefix", t->prefix, DOCS);
    if (c->position == LF_POS_ROPE2D) {
        feed(t, "turns", t->turns, T);
        feed(t, "blocks", t->blocks, T);
    }
    int rc = lf_exec_record_write(t->r.ex, &rec, &err);
    for (int i = 0; i < (twice ? 2 : 1) && !rc; i++) {
        rc = lf_exec_run(t->r.ex, t->r.chain, LF_FWD, 0, i ? LF_ACCUM : LF_FIRST, &err);
        if (!rc && twice)
            rc = lf_exec_run(t->r.ex, t->r.chain, LF_BWD, 0, i ? LF_ACCUM : LF_FIRST, &err);
    }
    if (rc || lf_exec_record_read(t->r.ex, &rec, &err))
        tap_bail("%s", err.text);
    return rec.loss_sum / (double)rec.tokens;
}

/* Loss of one document of T tokens without a prefix; the batch is as it was afterwards. */
static double whole_document(struct trainer *t)
{
    struct trainer old = *t;
    for (int i = 0; i < T; i++) {
        t->targets[i] = (int32_t)(t->tokens[i] ^ 1);
        t->positions[i] = i;
    }
    for (int d = 0; d < DOCS; d++)
        t->cu[d + 1] = T;
    lf_decoder_prefixes(t->targets, t->cu, DOCS, false, t->prefix);
    lf_decoder_turns(t->cu, DOCS, t->prefix, T, t->turns, t->blocks);
    double mean = loss(t, false);
    *t = old;
    return mean;
}

/* Slope of the loss along unit vector d of parameter i, by central differences. */
static double slope(struct trainer *t, int i, const float *w, const float *d, size_t n, double h)
{
    lf_err err = LF_ERR_INIT;
    double side[2];
    float *x = malloc(n * sizeof(*x));
    for (int s = 0; s < 2; s++) {
        for (size_t k = 0; k < n; k++)
            x[k] = w[k] + (float)(s ? h : -h) * d[k];
        if (lf_pstore_write(t->r.ps, i, LF_F32, x, &err))
            tap_bail("%s", err.text);
        side[s] = loss(t, false);
    }
    if (lf_pstore_write(t->r.ps, i, LF_F32, w, &err))
        tap_bail("%s", err.text);
    free(x);
    return (side[1] - side[0]) / (2 * h);
}

/* Along the gradient itself the slope is its length, along some other direction its part there.
 * Largest error of the two relative to the length. The error of a central difference falls with the
 * square of h where the loss bends: where the one seen is large, two steps take that part away
 * (Richardson 1911). */
static double slope_error(struct trainer *t, int i, double *length)
{
    lf_err err = LF_ERR_INIT;
    const struct lf_param_desc *p = lf_pstore_desc(t->r.ps, i);
    size_t n = 1;
    for (int k = 0; k < p->ndim; k++)
        n *= (size_t)p->dims[k];
    float *w = malloc(n * 4), *g = malloc(n * 4), *d = malloc(n * 4);
    double gg = 0, part = 0, worst = 0;
    loss(t, true); /* a forward pass makes the head's gradient, so all are made anew */
    if (lf_pstore_read(t->r.ps, i, LF_P_MASTER, w, n * 4, &err) ||
        lf_pstore_read(t->r.ps, i, LF_P_GRAD, g, n * 4, &err))
        tap_bail("%s", err.text);
    for (size_t k = 0; k < n; k++)
        gg += (double)g[k] * (double)g[k];
    *length = sqrt(gg);
    const double h = fmin(0.003 / *length, 0.02 * sqrt((double)n) * 0.2);
    for (int other = 0; other < 2 && gg > 0; other++) {
        part = 0;
        for (size_t k = 0; k < n; k++) {
            const double sign = lf_rng_u32(1, 4, (uint64_t)k) % 2 ? 1 : -1;
            d[k] = (float)(other ? (g[k] / (float)*length + (float)(sign / sqrt((double)n))) / 2
                                 : g[k] / (float)*length);
            part += (double)g[k] * (double)d[k];
        }
        double s = slope(t, i, w, d, n, h);
        if (fabs(s - part) > 0.005 * *length)
            s = (4 * slope(t, i, w, d, n, h / 2) - s) / 3;
        worst = tap_worse(worst, fabs(s - part) / *length);
    }
    free(w);
    free(g);
    free(d);
    return worst;
}

static void test_gradients(lf_model_config c, const char *name)
{
    struct trainer t;
    double worst = 0, length, most = 0;
    const char *where = "";
    c.init_std = 0.2;
    c.vocab = 64;
    trainer_init(&t, &c);
    tap_ok(isfinite(whole_document(&t)),
           "%s: a document as long as the model reads, all of it trained", name);
    for (int i = 0; i < lf_pstore_count(t.r.ps); i++) {
        if (lf_pstore_desc(t.r.ps, i)->frozen)
            continue;
        double e = slope_error(&t, i, &length);
        most = tap_worse(most, length);
        if (!(e <= worst)) {
            worst = e;
            where = lf_pstore_desc(t.r.ps, i)->name;
        }
    }
    tap_ok(worst <= 0.01 && most > 0, "%s: gradients are slopes of the loss, worst error %.2g (%s)",
           name, worst, where);
    runner_fini(&t.r);
}

static void test_errors(void)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config c;
    load(&c, "tiny-llama.ini");
    tap_ok(!lf_decoder_create(&c, c.max_positions + 1, &err), "more positions than the model has");
    tap_rc(err.rc, LF_EINVAL, &err, "max_positions = 256", "is refused by name");
    err = (lf_err)LF_ERR_INIT;
    c.rope_scaling = LF_ROPE_DYNAMIC;
    c.rope_original_positions = 32;
    tap_ok(!lf_decoder_create(&c, 33, &err), "dynamic RoPE beyond the original length");
    tap_rc(err.rc, LF_ENOTSUP, &err, "rope_original_positions = 32", "is refused by name");
    err = (lf_err)LF_ERR_INIT;
    c.vocab = 0;
    tap_ok(!lf_decoder_create(&c, 8, &err), "a model without vocabulary");
    tap_rc(err.rc, LF_EINVAL, &err, "vocab", "is refused by name");
}

/* What ranks cannot divide, and stages cannot pass on. */
static void test_divided(void)
{
    const struct lf_layout two = {.tensor = 2};
    const struct lf_decoder_chunk part = {.end = 1, .first = true};
    lf_err err = LF_ERR_INIT;
    lf_model_config c;
    load(&c, "tiny-llama.ini");
    c.altup_streams = 2;
    c.gate_sparsity = (lf_model_list){.n = 1, .v = {0.5}};
    lf_decoder *d = lf_decoder_create(&c, 16, &err);
    lf_pstore *ps = lf_pstore_create(&err), *other = lf_pstore_create(&err);
    if (!d || !ps || !other || lf_pstore_set_layout(ps, &two, &err))
        tap_bail("%s", err.text);
    tap_rc(lf_decoder_declare(d, ps, &err), LF_ENOTSUP, &err, "[model] gate_sparsity",
           "gates that ranks would cut apart");
    err = (lf_err)LF_ERR_INIT;
    tap_rc(lf_decoder_declare_chunks(d, other, &part, 1, &err), LF_ENOTSUP, &err,
           "[model] altup_streams", "several streams between stages");
    lf_pstore_destroy(other);
    lf_pstore_destroy(ps);
    lf_decoder_destroy(d);
}

/* init = t5: the standard deviations of T5 in transformers, by the name of the tensor there; of a
 * norm the value. */
static void test_first_values(void)
{
    static const struct {
        const char *ours, *theirs;
        double std; /* with factor 0.5, d_model 32, d_kv 6, 4 heads, d_ff 48 */
    } rows[] = {{"embed.weight", "shared", 0.5},
                {"head.weight", "lm_head", 0.5},
                {"relative.weight", "relative_attention_bias", 0.5 * 0.17677669529663687},
                {"layers.1.attn.q.weight", "SelfAttention.q", 0.5 * 0.07216878364870322},
                {"layers.1.attn.k.weight", "SelfAttention.k", 0.5 * 0.17677669529663687},
                {"layers.1.attn.v.weight", "SelfAttention.v", 0.5 * 0.17677669529663687},
                {"layers.1.attn.o.weight", "SelfAttention.o", 0.5 * 0.20412414523193154},
                {"layers.1.cross.q.weight", "EncDecAttention.q", 0.5 * 0.07216878364870322},
                {"layers.1.cross.k.weight", "EncDecAttention.k", 0.5 * 0.17677669529663687},
                {"layers.1.cross.o.weight", "EncDecAttention.o", 0.5 * 0.20412414523193154},
                {"encoder.layers.0.attn.q.weight", "encoder q", 0.5 * 0.07216878364870322},
                {"encoder.layers.0.mlp.gate.weight", "wi_0", 0.5 * 0.17677669529663687},
                {"encoder.layers.0.mlp.up.weight", "wi_1", 0.5 * 0.17677669529663687},
                {"encoder.layers.0.mlp_norm.weight", "layer_norm", 0.5},
                {"encoder.layers.0.mlp.down.weight", "wo", 0.5 * 0.14433756729740643}};
    static const char text[] = "[model]\nfamily = t5-v1.1\nlayers = 2\nencoder_layers = 1\n"
                               "hidden = 32\nheads = 4\nhead_dim = 6\nffn = 48\nvocab = 100\n"
                               "max_positions = 64\ninit_std = 0.5\n";
    lf_err err = LF_ERR_INIT;
    lf_ini ini = {0};
    lf_model_config c;
    if (lf_ini_parse_text(&ini, text, strlen(text), "model", &err) ||
        lf_model_config_from_ini(&c, &ini, "model", &err))
        tap_bail("%s", err.text);
    lf_ini_fini(&ini);
    lf_decoder *d = lf_decoder_create(&c, 16, &err);
    lf_pstore *ps = lf_pstore_create(&err);
    if (!d || !ps || lf_decoder_declare(d, ps, &err))
        tap_bail("%s", err.text);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int at = lf_pstore_find(ps, rows[i].ours);
        tap_f64(at < 0 ? -1 : (double)lf_pstore_desc(ps, at)->init_std, rows[i].std, 1e-8,
                rows[i].theirs);
    }
    lf_pstore_destroy(ps);
    lf_decoder_destroy(d);
}

static void test_causal_file(const char *name, enum lf_dtype compute, int64_t window)
{
    lf_model_config c;
    load(&c, name);
    c.sliding_window = window;
    test_causal(c, name, compute);
}

int main(void)
{
    TAP(630, test_tables());
    TAP(6, test_errors());
    TAP(2, test_divided());
    TAP(15, test_first_values());
    TAP(4, test_prefixes());
    TAP(2, test_scan_scales("0"));
    TAP(2, test_scan_scales("4"));
    TAP(10, test_causal_file("tiny-gpt2.ini", LF_F32, 0));
    TAP(10, test_causal_file("tiny-llama.ini", LF_F32, 0));
    TAP(10, test_causal_file("tiny-llama.ini", LF_BF16, 0));
    TAP(10, test_causal_file("tiny-llama.ini", LF_F32, 7));
    TAP(10, test_causal_file("tiny-qwen3.ini", LF_F32, 0));
    for (size_t i = 0; i < N_SWITCHES; i++) {
        char text[320];
        lf_model_config c;
        const char *name = switched(&c, i, text, sizeof(text));
        if (c.output == LF_OUTPUT_SCORE)
            continue; /* post_rm_score.c runs it */
        if (c.mask == LF_MASK_CAUSAL)
            TAP(10, test_causal(c, name, LF_F32));
        TAP(2, test_gradients(c, name));
    }
    return tap_done();
}
