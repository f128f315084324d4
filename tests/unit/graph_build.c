/* SPDX-License-Identifier: Apache-2.0
 *
 * The builder's and planner's messages, shared casts, the store's groups, and what a plan says
 * about itself.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/exec.h"
#include "engine/graph/priv.h"
#include "kernels/cuda/queue.h"
#include "tests/tap/tap.h"

enum { R = 8, C = 16, V = 32 };

static lf_err err = LF_ERR_INIT;

static lf_pstore *store(void)
{
    lf_pstore *ps = lf_pstore_create(&err);
    const struct lf_param_desc d[] = {{.name = "embed",
                                       .ndim = 2,
                                       .dims = {V, C},
                                       .init = LF_INIT_NORMAL,
                                       .init_std = 0.5f,
                                       .decay = true},
                                      {.name = "q",
                                       .group = "qk",
                                       .ndim = 2,
                                       .dims = {C, C},
                                       .init = LF_INIT_NORMAL,
                                       .init_std = 0.2f,
                                       .decay = true},
                                      {.name = "k",
                                       .group = "qk",
                                       .ndim = 2,
                                       .dims = {C / 2, C},
                                       .init = LF_INIT_NORMAL,
                                       .init_std = 0.2f,
                                       .decay = true},
                                      {.name = "w",
                                       .ndim = 2,
                                       .dims = {C, C},
                                       .init = LF_INIT_NORMAL,
                                       .init_std = 0.2f,
                                       .decay = true},
                                      {.name = "n", .ndim = 1, .dims = {C}, .init = LF_INIT_ONE},
                                      {.name = "head",
                                       .ndim = 2,
                                       .dims = {V, C},
                                       .init = LF_INIT_NORMAL,
                                       .init_std = 0.2f,
                                       .decay = true}};
    for (size_t i = 0; i < sizeof d / sizeof *d; i++)
        if (lf_pstore_add(ps, &d[i], &err) != (int)i)
            tap_bail("%s", err.text);
    return ps;
}

struct fix {
    lf_pstore *ps;
    lf_graph *g;
    lf_val tok, x;
};

static struct fix fix(void)
{
    struct fix f = {.ps = store()};
    f.g = lf_graph_create(f.ps, "test", &err);
    f.tok = lf_input(f.g, "tokens", LF_I32, R, 1);
    f.x = lf_embed(f.g, f.tok, LF_NONE, lf_param(f.g, "embed"), LF_NONE, 1.0f, 0);
    return f;
}

static void done(struct fix *f, int want, const char *contains, const char *name)
{
    tap_rc(lf_graph_check(f->g, &err), want, &err, contains, name);
    lf_graph_destroy(f->g);
    lf_pstore_destroy(f->ps);
}

static void test_errors(void)
{
    struct fix f = fix();
    lf_linear(f.g, f.x, lf_param(f.g, "nosuch"), LF_NONE);
    lf_add(f.g, f.tok, f.x);
    done(&f, LF_ENOENT, "nosuch", "the first failure stays: unknown parameter");
    f = fix();
    lf_val y = lf_linear(f.g, f.x, lf_param(f.g, "qk"), LF_NONE);
    lf_add(f.g, f.x, y);
    done(&f, LF_EINVAL, "add: embed", "shapes that do not add name op and tensors");
    f = fix();
    y = lf_linear(f.g, f.x, lf_param(f.g, "qk"), LF_NONE);
    lf_linear(f.g, y, lf_param(f.g, "w"), LF_NONE);
    done(&f, LF_EINVAL, "K columns", "linear of the wrong width");
    f = fix();
    lf_linear(f.g, f.tok, lf_param(f.g, "w"), LF_NONE);
    done(&f, LF_EINVAL, "activation", "linear of an index");
    f = fix();
    lf_linear(f.g, f.x, f.x, LF_NONE);
    done(&f, LF_EINVAL, "parameter", "linear by an activation");
    f = fix();
    lf_norm(f.g, f.x, lf_param(f.g, "n"), lf_param(f.g, "n"), &(struct lf_norm_opts){.eps = 1e-5f});
    done(&f, LF_EINVAL, "bias", "an RMS norm with a bias");
    f = fix();
    lf_slice(f.g, f.x, C - 2, 4);
    done(&f, LF_EINVAL, "columns", "a slice outside its tensor");
    f = fix();
    y = lf_linear(f.g, f.x, lf_param(f.g, "qk"), LF_NONE);
    lf_slice(f.g, y, 0, C);
    lf_slice(f.g, y, C - 1, 2);
    done(&f, LF_EINVAL, "overlap", "slices that overlap");
    f = fix();
    lf_input(f.g, "tokens", LF_I32, R + 1, 1);
    done(&f, LF_EINVAL, "another shape", "an input declared twice");
    f = fix();
    lf_block_begin(f.g, 0);
    lf_block_begin(f.g, 1);
    done(&f, LF_EINVAL, "inside block", "nested blocks");
    f = fix();
    lf_dropout(f.g, f.x, 1.5f, "d", LF_NONE, LF_NONE);
    done(&f, LF_EINVAL, "dropout", "dropout above one");
    f = fix();
    lf_attention(f.g, f.x, f.x, f.x, f.tok, LF_NONE,
                 &(struct lf_attn_opts){.heads = 3, .groups = 3});
    done(&f, LF_EINVAL, "heads", "heads that do not divide the width");
    f = fix();
    lf_attention(f.g, f.x, f.x, f.x, f.tok, LF_NONE,
                 &(struct lf_attn_opts){.heads = 4, .groups = 3});
    done(&f, LF_EINVAL, "groups", "heads that do not divide into groups");
}

static void no_table(void *dst, const void *ctx)
{
    (void)dst, (void)ctx;
}

static lf_val ints(lf_graph *g, const char *name, int64_t rows, int64_t cols)
{
    return lf_input(g, name, LF_I32, rows, cols);
}

/* What pictures need: rows mixed by a matrix, columns with a gain, pairs with axes. */
static void test_picture_errors(void)
{
    struct fix f = fix();
    struct lf_mix m = {ints(f.g, "start", R + 1, 1),
                       ints(f.g, "index", 7, 1),
                       lf_input(f.g, "weight", LF_F32, 6, 1),
                       LF_NONE,
                       LF_NONE,
                       LF_NONE};
    lf_mix_rows(f.g, f.x, &m);
    done(&f, LF_EINVAL, "weight must be f32 [entries, 1]", "an index without its weight");
    f = fix();
    m = (struct lf_mix){ints(f.g, "start", R + 1, 1),
                        ints(f.g, "index", 7, 1),
                        lf_input(f.g, "weight", LF_F32, 7, 1),
                        ints(f.g, "tstart", R, 1),
                        ints(f.g, "tindex", 7, 1),
                        lf_input(f.g, "tweight", LF_F32, 7, 1)};
    lf_mix_rows(f.g, f.x, &m);
    done(&f, LF_EINVAL, "start must be i32 [rows + 1, 1]", "a transpose of another shape");
    f = fix();
    m = (struct lf_mix){ints(f.g, "start", R + 1, 1),
                        ints(f.g, "index", 7, 1),
                        lf_input(f.g, "weight", LF_F32, 7, 1),
                        LF_NONE,
                        LF_NONE,
                        LF_NONE};
    lf_xent(f.g, lf_mix_rows(f.g, f.x, &m), lf_param(f.g, "head"), LF_NONE,
            ints(f.g, "targets", R, 1), &(struct lf_xent_opts){0});
    lf_plan *p = lf_plan_create(f.ps, &(struct lf_plan_opts){.threads = 1}, &err);
    tap_rc(lf_plan_add(p, f.g, &(struct lf_chain_opts){.train = true}, &err), LF_EINVAL, &err,
           "the transpose is needed", "a gradient without a transpose");
    lf_plan_destroy(p);
    lf_graph_destroy(f.g);
    lf_pstore_destroy(f.ps);
    f = fix();
    lf_fold_rows(f.g, f.x, R - 1);
    done(&f, LF_EINVAL, "must be a multiple", "rows that do not become whole ones");
    f = fix();
    lf_col_gate(f.g, f.x, lf_param(f.g, "w"));
    done(&f, LF_EINVAL, "the gain must be a parameter vector", "a matrix is no gain");
    for (int cols = 1; cols < 3; cols++) {
        f = fix();
        const struct lf_attn_opts o = {.heads = 1,
                                       .groups = 1,
                                       .causal = true,
                                       .runs = ints(f.g, "runs", cols == 1 ? R : R + 1, cols)};
        lf_attention(f.g, f.x, f.x, f.x, ints(f.g, "cu", 3, 1), LF_NONE, &o);
        done(&f, LF_EINVAL, "runs must be an i32 input [R, 2]", "runs of another shape");
    }
    for (int axes = 0; axes < 2; axes++) {
        f = fix();
        const lf_val table = lf_const(f.g, "t", LF_F32, 9, C / 2, no_table, NULL);
        const struct lf_rope_opts o = {
            .heads = 1,
            .rot = C,
            .axis = axes ? lf_const(f.g, "a", LF_I32, C / 2, 1, no_table, NULL) : LF_NONE};
        lf_rope(f.g, f.x, ints(f.g, "three", R, axes ? 1 : 3), table, table, &o);
        done(&f, LF_EINVAL, "axes choose from three positions",
             axes ? "axes without three positions" : "three positions without axes");
    }
}

/* Heads: which channels turn, which are shared, and how wide values are. */
static void test_head_errors(void)
{
    struct fix f = fix();
    const lf_val table = lf_const(f.g, "t", LF_F32, 9, 1, no_table, NULL);
    lf_rope(f.g, f.x, ints(f.g, "pos", R, 1), table, table,
            &(struct lf_rope_opts){.heads = 1, .first = C - 1, .rot = 2});
    done(&f, LF_EINVAL, "channels of a head turn", "channels beyond the head");
    f = fix();
    lf_heads_join(f.g, lf_slice(f.g, f.x, 0, 3), lf_slice(f.g, f.x, 3, 1), 2);
    done(&f, LF_EINVAL, "heads must divide the columns", "a part that is no heads");
    f = fix();
    lf_attention(f.g, f.x, f.x, lf_slice(f.g, f.x, 0, 3), ints(f.g, "cu", 3, 1), LF_NONE,
                 &(struct lf_attn_opts){.heads = 2, .groups = 2});
    done(&f, LF_EINVAL, "columns of the values", "values that are no heads");
    f = fix();
    const struct lf_kv_cache c = {lf_state(f.g, "k", LF_F32, LF_ATTN_TILE, C),
                                  lf_state(f.g, "v", LF_F32, LF_ATTN_TILE, C),
                                  ints(f.g, "seq", R, 1),
                                  ints(f.g, "at", R, 1),
                                  ints(f.g, "table", 1, 1),
                                  LF_ATTN_TILE,
                                  0};
    lf_kv_write(f.g, f.x, lf_slice(f.g, f.x, 0, C / 2), &c, 1);
    done(&f, LF_EINVAL, "pages must be two states", "pages of values of another width");
    f = fix();
    const struct lf_kv_cache latent = {.k_pages = lf_state(f.g, "k", LF_F32, LF_ATTN_TILE, C),
                                       .seq = ints(f.g, "seq", R, 1),
                                       .pos = ints(f.g, "at", R, 1),
                                       .table = ints(f.g, "table", 1, 1),
                                       .page_tokens = LF_ATTN_TILE,
                                       .latent = C};
    lf_kv_write(f.g, f.x, lf_slice(f.g, f.x, 0, C / 2), &latent, 1);
    done(&f, LF_EINVAL, "columns [16, +0) of a latent", "pages of latents alone");
    f = fix();
    lf_heads_linear(f.g, f.x, lf_param(f.g, "w"),
                    &(struct lf_heads_linear_opts){.heads = 2, .first = 1, .rows = C / 2});
    done(&f, LF_EINVAL, "w must have the rows of all of them", "heads beyond the weight");
    f = fix();
    lf_heads_linear(f.g, f.x, lf_param(f.g, "w"),
                    &(struct lf_heads_linear_opts){.heads = 2, .rows = C / 2});
    done(&f, LF_EINVAL, "fewer channels than it takes", "heads too narrow for their product");
}

/* Streams side by side, and magnitudes to match. */
static void test_stream_errors(void)
{
    struct fix f = fix();
    lf_altup_mix(f.g, f.x, LF_NONE, &(struct lf_altup_opts){.from = 3, .to = 2});
    done(&f, LF_EINVAL, "its columns are no streams", "columns that no streams have");
    f = fix();
    lf_altup_mix(f.g, f.x, lf_slice(f.g, f.x, 0, 3), &(struct lf_altup_opts){.from = 2, .to = 2});
    done(&f, LF_EINVAL, "for each pair of streams", "too few coefficients");
    f = fix();
    lf_match_rms(f.g, f.x, lf_slice(f.g, f.x, 0, C / 4), 3, 1e-5f);
    done(&f, LF_EINVAL, "parts of the width of like", "parts of another width");
}

static void test_store_errors(void)
{
    lf_pstore *ps = store();
    struct lf_param_desc d = {.name = "q", .ndim = 1, .dims = {4}};
    tap_rc(lf_pstore_add(ps, &d, &err), LF_EEXIST, &err, "twice", "a tensor declared twice");
    d = (struct lf_param_desc){.name = "v", .group = "qk", .ndim = 2, .dims = {C, C}};
    tap_rc(lf_pstore_add(ps, &d, &err), LF_EINVAL, &err, "one after another",
           "a group is declared in one go");
    d = (struct lf_param_desc){.name = "bad", .ndim = 2, .dims = {4, 0}};
    tap_rc(lf_pstore_add(ps, &d, &err), LF_EINVAL, &err, "dimension", "an empty dimension");
    d = (struct lf_param_desc){.name = "huge", .ndim = 2, .dims = {INT64_MAX, INT64_MAX}};
    tap_rc(lf_pstore_add(ps, &d, &err), LF_EINVAL, &err, "dimension", "a size that overflows");
    tap_i64(lf_pstore_elements(ps), 2 * V * C + C * C + C * C / 2 + C * C + C, "elements");
    lf_pstore_destroy(ps);
}

static void test_plan_errors(void)
{
    const struct lf_plan_opts po = {.threads = 1};
    struct fix f = fix();
    lf_plan *p = lf_plan_create(f.ps, &po, &err);
    lf_linear(f.g, f.x, lf_param(f.g, "w"), LF_NONE);
    tap_rc(lf_plan_add(p, f.g, &(struct lf_chain_opts){.train = true}, &err), LF_EINVAL, &err,
           "no loss", "training without a loss");
    lf_plan_destroy(p);
    lf_graph_destroy(f.g);
    lf_pstore_destroy(f.ps);
    f = fix();
    lf_xent(f.g, f.x, lf_param(f.g, "head"), LF_NONE, lf_input(f.g, "targets", LF_I32, R, 1),
            &(struct lf_xent_opts){0});
    lf_pstore_freeze(f.ps, "", true);
    p = lf_plan_create(f.ps, &po, &err);
    tap_rc(lf_plan_add(p, f.g, &(struct lf_chain_opts){.train = true}, &err), LF_EINVAL, &err,
           "frozen", "nothing to train");
    lf_plan_destroy(p);
    lf_graph_destroy(f.g);
    lf_pstore_destroy(f.ps);
    f = fix();
    lf_pstore_freeze(f.ps, "q", true);
    p = lf_plan_create(f.ps, &po, &err);
    tap_rc(lf_plan_add(p, f.g, &(struct lf_chain_opts){0}, &err), LF_EINVAL, &err, "as a whole",
           "half a group frozen");
    lf_plan_destroy(p);
    lf_graph_destroy(f.g);
    lf_pstore_destroy(f.ps);
    f = fix();
    p = lf_plan_create(f.ps, &(struct lf_plan_opts){.threads = 0}, &err);
    tap_rc(p ? 0 : err.rc, LF_EINVAL, &err, "threads", "no threads");
    lf_graph_destroy(f.g);
    lf_pstore_destroy(f.ps);
}

/* A value pinned to f32 that several bf16 nodes read, forward and backward, is cast once. */
static void test_shared_cast(void)
{
    struct fix f = fix();
    lf_pin_f32(f.g, f.x);
    lf_val a = lf_linear(f.g, f.x, lf_param(f.g, "w"), LF_NONE),
           b = lf_linear(f.g, f.x, lf_param(f.g, "w"), LF_NONE);
    lf_val c = lf_slice(f.g, lf_linear(f.g, f.x, lf_param(f.g, "qk"), LF_NONE), 0, C);
    lf_val h = lf_norm(f.g, lf_add(f.g, lf_add(f.g, a, b), lf_act(f.g, a, LF_ACT_SILU)),
                       lf_param(f.g, "n"), LF_NONE, &(struct lf_norm_opts){.eps = 1e-5f});
    (void)c; /* an unused branch is pruned */
    lf_xent(f.g, h, lf_param(f.g, "head"), LF_NONE, lf_input(f.g, "targets", LF_I32, R, 1),
            &(struct lf_xent_opts){0});
    lf_plan *p =
        lf_plan_create(f.ps, &(struct lf_plan_opts){.threads = 1, .compute = LF_BF16}, &err);
    tap_rc(lf_plan_add(p, f.g, &(struct lf_chain_opts){.train = true}, &err), 0, &err, NULL,
           "plan with a pinned value");
    const lf_graph *g = p->c[0].g;
    int casts = 0, qk = 0;
    for (size_t i = 0; i < g->n_n; i++) {
        casts += g->n[i].op == LF_OP_CAST;
        qk += g->n[i].op == LF_OP_LINEAR && strstr(g->t[g->n[i].in[LINEAR_W]].name, "qk");
    }
    tap_i64(casts, 1, "one cast for two forward and two backward readers");
    tap_i64(qk, 0, "an unused branch is pruned");
    tap_rc(lf_plan_finish(p, &err), 0, &err, NULL, "finish");
    char *text = lf_plan_text(p, 0, &err);
    tap_ok(text && strstr(text, "---- backward") && strstr(text, "linear_dw"),
           "the listing names the nodes");
    free(text);
    json_t *j = lf_plan_json(p, &err);
    tap_i64(json_integer_value(json_object_get(j, "parameters")), lf_pstore_elements(f.ps),
            "JSON: parameters");
    tap_ok(json_integer_value(json_object_get(json_object_get(j, "bytes"), "total")) > 0,
           "JSON: bytes");
    json_decref(j);
    lf_plan_destroy(p);
    lf_graph_destroy(f.g);
    lf_pstore_destroy(f.ps);
}

static bool cuda_is_whole(void)
{
    const struct lf_kernels *k = &lf_cuda_kernels;
    return k->embed_fwd.run && k->embed_bwd.run && k->gemm.run && k->linear_xent.run &&
           k->grad_norm.run && k->adamw.run;
}

/* A plan needs no device: every target can be planned here, whatever this processor is. */
static void test_targets(void)
{
    for (const char *const *name = lf_target_names(); *name; name++) {
        if (lf_target_find(*name)->sm && !cuda_is_whole()) {
            tap_skip(4, "the CUDA backend lacks kernels of this model");
            continue;
        }
        struct fix f = fix();
        struct lf_plan_bytes b = {0};
        struct lf_plan_cost cost = {0};
        lf_xent(f.g, lf_linear(f.g, f.x, lf_param(f.g, "w"), LF_NONE), lf_param(f.g, "head"),
                LF_NONE, lf_input(f.g, "targets", LF_I32, R, 1), &(struct lf_xent_opts){0});
        lf_plan *p = lf_plan_create(
            f.ps, &(struct lf_plan_opts){.threads = 4, .target = lf_target_find(*name)}, &err);
        int rc = lf_plan_add(p, f.g, &(struct lf_chain_opts){.train = true}, &err);
        rc =
            rc ? rc
               : lf_plan_optimizer(
                     p, &(struct lf_adamw_opts){.beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f}, &err);
        tap_rc(rc ? rc : lf_plan_finish(p, &err), 0, &err, NULL, *name);
        lf_plan_bytes(p, &b);
        lf_plan_cost(p, 0, &cost);
        tap_ok(b.total == b.params + b.grads + b.optimizer + b.inputs + b.state + b.arena &&
                   b.arena == b.saved + b.transient + b.workspace && b.optimizer == 2 * b.grads,
               "bytes by class add up");
        double fwd = 2.0 * R * (C * C + V * C);
        tap_f64(cost.fwd_causal, fwd, 0.5, "forward FLOPs");
        tap_f64(cost.bwd_causal, 2 * fwd, 0.5, "backward FLOPs");
        lf_plan_destroy(p);
        lf_graph_destroy(f.g);
        lf_pstore_destroy(f.ps);
    }
    tap_ok(lf_target_find("cpu-abacus") == NULL, "an unknown target is none");
}

/* Queries and keys of half the channels that values have: products of each width count. */
static void test_head_cost(void)
{
    struct fix f = fix();
    struct lf_plan_cost cost = {0};
    const lf_val y = lf_linear(f.g, f.x, lf_param(f.g, "w"), LF_NONE),
                 v = lf_linear(f.g, f.x, lf_param(f.g, "w"), LF_NONE),
                 o = lf_attention(f.g, lf_slice(f.g, y, 0, C / 2), lf_slice(f.g, y, C / 2, C / 2),
                                  v, ints(f.g, "cu", 2, 1), LF_NONE,
                                  &(struct lf_attn_opts){.heads = 1, .groups = 1, .causal = true});
    lf_xent(f.g, o, lf_param(f.g, "head"), LF_NONE, ints(f.g, "targets", R, 1),
            &(struct lf_xent_opts){0});
    lf_plan *p = lf_plan_create(f.ps, &(struct lf_plan_opts){.threads = 1}, &err);
    if (lf_plan_add(p, f.g, &(struct lf_chain_opts){.train = true}, &err) ||
        lf_plan_finish(p, &err))
        tap_bail("%s", err.text);
    lf_plan_cost(p, 0, &cost);
    const double fwd = 2.0 * R * (2 * C * C + (C / 2 + C) * (R + 1) / 2.0 + V * C);
    tap_f64(cost.fwd_causal, fwd, 0.5, "forward FLOPs of heads whose values are wider");
    tap_f64(cost.bwd_causal, 2 * fwd, 0.5, "and of their backward");
    lf_plan_destroy(p);
    lf_graph_destroy(f.g);
    lf_pstore_destroy(f.ps);
}

/* A product of heads reads their rows of the weight; values that are channels of keys are free. */
static void test_traffic(void)
{
    enum { AT = 4, LATENT = C / 2 };
    struct fix f = fix();
    struct lf_plan_cost cost = {0};
    struct lf_heads_linear_opts o = {.heads = 2, .rows = AT, .transposed = true};
    const struct lf_kv_cache c = {.k_pages = lf_state(f.g, "k", LF_F32, LF_ATTN_TILE, C),
                                  .seq = ints(f.g, "seq", R, 1),
                                  .pos = ints(f.g, "at", R, 1),
                                  .table = ints(f.g, "table", 1, 1),
                                  .page_tokens = LF_ATTN_TILE,
                                  .latent = LATENT};
    lf_output(f.g, lf_heads_linear(f.g, f.x, lf_param(f.g, "w"), &o), "first");
    o.first = 2 * AT;
    lf_output(f.g, lf_heads_linear(f.g, f.x, lf_param(f.g, "w"), &o), "second");
    lf_output(f.g,
              lf_attention_paged(f.g, f.x, &c, LF_NONE,
                                 &(struct lf_attn_opts){.heads = 1, .groups = 1, .causal = true}),
              "o");
    lf_plan *p = lf_plan_create(f.ps, &(struct lf_plan_opts){.threads = 1}, &err);
    if (lf_plan_add(p, f.g, &(struct lf_chain_opts){0}, &err) || lf_plan_finish(p, &err))
        tap_bail("%s", err.text);
    lf_plan_cost(p, 0, &cost);
    const int embed = R + 2 * R * C, heads = R * C + 2 * AT * C + R * 2 * (C + C / 2 - AT),
              paged = R * C + LF_ATTN_TILE * C + R + R + 1 + R * LATENT;
    tap_f64(cost.traffic_bytes, 4.0 * (embed + 2 * heads + paged), 0.5,
            "bytes of latent attention, each one once");
    lf_plan_destroy(p);
    lf_graph_destroy(f.g);
    lf_pstore_destroy(f.ps);
}

static void test_views(void)
{
    struct fix f = fix();
    struct lf_pview q, k;
    float big[C * C], back[C * C];
    lf_linear(f.g, f.x, lf_param(f.g, "qk"), LF_NONE);
    lf_val y = lf_linear(f.g, f.x, lf_param(f.g, "w"), LF_NONE);
    lf_output(f.g, y, "y");
    lf_plan *p = lf_plan_create(f.ps, &(struct lf_plan_opts){.threads = 1}, &err);
    if (lf_plan_add(p, f.g, &(struct lf_chain_opts){0}, &err) || lf_plan_finish(p, &err))
        tap_bail("%s", err.text);
    tap_i64(lf_pstore_view(f.ps, 1, LF_P_MASTER, &q), 0, "no memory before binding");
    lf_back *b = lf_back_cpu_create(lf_target_host()->isa, 1, &err);
    lf_exec *ex = lf_exec_create(p, b, NULL, &err);
    tap_ok(ex != NULL, "bound");
    tap_ok(lf_pstore_view(f.ps, 1, LF_P_MASTER, &q) == 1 &&
               lf_pstore_view(f.ps, 2, LF_P_MASTER, &k) == 1,
           "members are visible");
    tap_ok((char *)k.data == (char *)q.data + q.bytes, "members of a group lie next to each other");
    tap_i64(lf_pstore_view(f.ps, 1, LF_P_GRAD, &q), 0, "no gradients without training");
    tap_ok(lf_plan_create(f.ps, &(struct lf_plan_opts){.threads = 1}, &err) == NULL &&
               err.rc == LF_EBUSY,
           "no second plan while an executor holds the store");
    lf_err_clear(&err);
    for (int i = 0; i < C * C; i++)
        big[i] = (float)i;
    tap_rc(lf_pstore_write(f.ps, 3, LF_F32, big, &err), 0, &err, NULL, "write");
    tap_rc(lf_pstore_read(f.ps, 3, LF_P_MASTER, back, sizeof back, &err), 0, &err, NULL, "read");
    tap_mem(back, big, sizeof big, "what was written");
    tap_rc(lf_pstore_read(f.ps, 3, LF_P_MASTER, back, 12, &err), LF_EINVAL, &err, "bytes",
           "wrong room");
    tap_rc(lf_pstore_write_kind(f.ps, 3, LF_P_M, LF_F32, big, &err), LF_ENOENT, &err, "adam_m",
           "no moments in this plan");
    int32_t tok[R] = {0};
    tap_rc(lf_exec_write(ex, 0, 0, "tokens", tok, sizeof tok, &err), 0, &err, NULL, "input");
    tap_rc(lf_exec_write(ex, 0, 0, "tokens", tok, 4, &err), LF_EINVAL, &err, "takes",
           "input of the wrong size");
    tap_rc(lf_exec_write(ex, 0, 0, "tikens", tok, 4, &err), LF_ENOENT, &err, "tikens",
           "unknown input");
    tap_rc(lf_exec_run(ex, 0, LF_BWD, 0, LF_FIRST, &err), LF_EINVAL, &err, "segment",
           "no backward in a forward graph");
    tap_rc(lf_exec_run(ex, 1, LF_FWD, 0, LF_FIRST, &err), LF_EINVAL, &err, "chain",
           "unknown chain");
    tap_rc(lf_exec_run(ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err), LF_EINVAL, &err, "optimizer",
           "no optimizer");
    tap_rc(lf_exec_run(ex, 0, LF_FWD, 0, LF_FIRST, &err), 0, &err, NULL, "forward");
    tap_rc(lf_exec_read(ex, 0, 0, "y", back, R * C * 4, &err), 0, &err, NULL, "output");
    tap_rc(lf_exec_read(ex, 0, 0, "z", back, 4, &err), LF_ENOENT, &err, "z", "unknown output");
    struct lf_plan_bytes pb;
    lf_plan_bytes(p, &pb);
    tap_i64((int64_t)lf_exec_bytes(ex), (int64_t)pb.total, "the executor took what the plan said");
    json_t *fp = lf_exec_fingerprint(ex, &err);
    tap_ok(json_string_value(json_object_get(fp, "kernels")) != NULL, "fingerprint");
    tap_i64(json_integer_value(json_object_get(fp, "kernel_version")), LF_KERNEL_VERSION,
            "it has the version of the kernels' bits");
    tap_ok(json_object_get(fp, "products") == NULL, "our own products are not named");
    json_decref(fp);
    setenv("LF_GEMM", "onednn", 1);
    const struct lf_k_gemm any = {.m = 16, .n = 16, .k = 16, .lda = 16, .ldb = 16, .ldc = 16};
    const char *by = lf_cpu_gemm_algorithm(&any);
    fp = lf_exec_fingerprint(ex, &err);
    if (strcmp(by, "own") == 0)
        tap_skip(1, "built without oneDNN, or LF_ISA is set");
    else
        tap_str(json_string_value(json_object_get(fp, "products")), by,
                "those of a library that was asked for are");
    unsetenv("LF_GEMM");
    json_decref(fp);
    lf_exec_destroy(ex);
    lf_back_destroy(b);
    lf_plan_destroy(p);
    lf_graph_destroy(f.g);
    lf_pstore_destroy(f.ps);
}

int main(void)
{
    TAP(13, test_errors());
    TAP(9, test_picture_errors());
    TAP(7, test_head_errors());
    TAP(3, test_stream_errors());
    TAP(5, test_store_errors());
    TAP(4, test_plan_errors());
    TAP(7, test_shared_cast());
    TAP(49, test_targets());
    TAP(2, test_head_cost());
    TAP(1, test_traffic());
    TAP(25, test_views());
    return tap_done();
}
