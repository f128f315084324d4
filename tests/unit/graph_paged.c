/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over the paged cache in graphs: prefill in pieces, then row by row in a bucket with
 * idle rows, gives the bits of one forward pass over the whole document, with weights read as they
 * are or from panels; state outlives runs and is shared between graphs, and weights written later
 * reach copies and panels.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/exec.h"
#include "tests/tap/tap.h"

enum {
    C = 32,
    H = 4,
    G = 2,
    D = 8,
    E = 6, /* channels of a value */
    V = 40,
    T = 150,
    PREFILL = 64,
    DECODE = 3,
    PAGE = 64,
    PAGES = 4
};

static lf_err err = LF_ERR_INIT;

static lf_pstore *store(void)
{
    lf_pstore *ps = lf_pstore_create(&err);
    const struct lf_param_desc d[] = {
        {.name = "embed", .ndim = 2, .dims = {V, C}, .init = LF_INIT_NORMAL, .init_std = 1},
        {.name = "q",
         .group = "qkv",
         .ndim = 2,
         .dims = {H * D, C},
         .init = LF_INIT_NORMAL,
         .init_std = 0.3f},
        {.name = "k",
         .group = "qkv",
         .ndim = 2,
         .dims = {G * D, C},
         .init = LF_INIT_NORMAL,
         .init_std = 0.3f},
        {.name = "v",
         .group = "qkv",
         .ndim = 2,
         .dims = {G * E, C},
         .init = LF_INIT_NORMAL,
         .init_std = 0.3f},
        {.name = "o", .ndim = 2, .dims = {C, H * E}, .init = LF_INIT_NORMAL, .init_std = 0.3f}};
    for (size_t i = 0; i < sizeof d / sizeof *d; i++)
        if (lf_pstore_add(ps, &d[i], &err) < 0)
            tap_bail("%s", err.text);
    return ps;
}

static lf_graph *graph(lf_pstore *ps, const char *name, int64_t rows, bool paged)
{
    lf_graph *g = lf_graph_create(ps, name, &err);
    const struct lf_attn_opts a = {.heads = H, .groups = G, .scale = 0.35f, .causal = true};
    lf_val x = lf_embed(g, lf_input(g, "tokens", LF_I32, rows, 1), LF_NONE, lf_param(g, "embed"),
                        LF_NONE, 1.0f, 0);
    lf_val qkv = lf_linear(g, x, lf_param(g, "qkv"), LF_NONE), o;
    lf_val q = lf_slice(g, qkv, 0, H * D), k = lf_slice(g, qkv, H * D, G * D),
           v = lf_slice(g, qkv, (H + G) * D, G * E);
    if (paged) {
        lf_val kp = lf_state(g, "k", LF_F32, PAGES * PAGE, G * D),
               vp = lf_state(g, "v", LF_F32, PAGES * PAGE, G * E);
        lf_val seq = lf_input(g, "seq", LF_I32, rows, 1), pos = lf_input(g, "pos", LF_I32, rows, 1);
        lf_val table = lf_input(g, "table", LF_I32, 2, PAGES);
        const struct lf_kv_cache cache = {kp, vp, seq, pos, table, PAGE, 0};
        lf_kv_write(g, k, v, &cache, G);
        o = lf_attention_paged(g, q, &cache, LF_NONE, &a);
    } else {
        o = lf_attention(g, q, k, v, lf_input(g, "cu_seqlens", LF_I32, 2, 1), LF_NONE, &a);
    }
    lf_val y = lf_add(g, x, lf_linear(g, o, lf_param(g, "o"), LF_NONE));
    lf_pin_f32(g, y);
    lf_output(g, y, "y");
    return g;
}

struct rig {
    lf_pstore *ps;
    lf_plan *p;
    lf_back *b;
    lf_exec *ex;
    int whole, prefill, decode;
};

static int add(struct rig *r, lf_graph *g, uint32_t eras, bool packed)
{
    int c = lf_plan_add(r->p, g, &(struct lf_chain_opts){.eras = eras, .packed = packed}, &err);
    if (c < 0)
        tap_bail("%s", err.text);
    lf_graph_destroy(g);
    return c;
}

static void run(struct rig *r, int chain, const int32_t *tok, int64_t rows, int32_t first,
                int32_t live, float *y)
{
    int32_t in[T] = {0}, seq[T], pos[T];
    const int32_t table[2 * PAGES] = {
        3, 3, 3, 3, 2, 0, 3, 1}; /* the document is sequence 1, its pages out of order */
    for (int32_t i = 0; i < rows; i++) {
        seq[i] = i < live ? 1 : -1;
        pos[i] = i < live ? first + i : 0;
        in[i] = i < live ? tok[first + i] : 0;
    }
    lf_exec_write(r->ex, chain, 0, "seq", seq, (size_t)rows * 4, &err);
    lf_exec_write(r->ex, chain, 0, "pos", pos, (size_t)rows * 4, &err);
    lf_exec_write(r->ex, chain, 0, "tokens", in, (size_t)rows * 4, &err);
    lf_exec_write(r->ex, chain, 0, "table", table, sizeof table, &err);
    if (err.rc || lf_exec_run(r->ex, chain, LF_FWD, 0, LF_FIRST, &err) ||
        lf_exec_read(r->ex, chain, 0, "y", y, (size_t)live * C * 4, &err))
        tap_bail("%s", err.text);
}

static void compare(struct rig *r, const char *name)
{
    int32_t tok[T], cu[2] = {0, T};
    static float want[T * C], got[T * C];
    for (int i = 0; i < T; i++)
        tok[i] = (i * 7 + i / 5) % V;
    lf_exec_write(r->ex, r->whole, 0, "tokens", tok, sizeof tok, &err);
    lf_exec_write(r->ex, r->whole, 0, "cu_seqlens", cu, sizeof cu, &err);
    if (lf_exec_run(r->ex, r->whole, LF_FWD, 0, LF_FIRST, &err) ||
        lf_exec_read(r->ex, r->whole, 0, "y", want, sizeof want, &err))
        tap_bail("%s", err.text);
    int32_t at = 0;
    for (; at + PREFILL <= T - 20; at += PREFILL)
        run(r, r->prefill, tok, PREFILL, at, PREFILL, got + at * C);
    run(r, r->prefill, tok, PREFILL, at, 3, got + at * C); /* a short last piece */
    for (at += 3; at < T; at++)
        run(r, r->decode, tok, DECODE, at, 1, got + at * C);
    tap_mem(got, want, sizeof want, name);
    tap_ok(isfinite(want[0]) && memcmp(want, want + C, C * 4) != 0, "rows are numbers and differ");
}

static void test(enum lf_dtype compute, bool packed, const char *name)
{
    struct rig r = {.ps = store()};
    r.p = lf_plan_create(
        r.ps,
        &(struct lf_plan_opts){
            .threads = 2, .compute = compute, .mode = LF_INVARIANT, .keep_master = packed},
        &err);
    r.whole = add(&r, graph(r.ps, "whole", T, false), 1, false);
    r.prefill = add(&r, graph(r.ps, "prefill", PREFILL, true), 2, packed);
    r.decode = add(&r, graph(r.ps, "decode", DECODE, true), 4, packed);
    if (lf_plan_finish(r.p, &err))
        tap_bail("%s", err.text);
    r.b = lf_back_cpu_create(lf_target_host()->isa, 2, &err);
    r.ex = lf_exec_create(r.p, r.b, NULL, &err);
    if (!r.ex || lf_pstore_init(r.ps, 3, &err))
        tap_bail("%s", err.text);
    compare(&r, name);
    lf_pstore_init(r.ps, 4, &err);
    compare(&r, "the same with other weights");
    struct lf_pview v;
    bool master = lf_pstore_view(r.ps, 1, LF_P_MASTER, &v) == 1;
    tap_ok(master == (compute == LF_F32 || packed), "masters are held where needed");
    lf_exec_destroy(r.ex);
    lf_back_destroy(r.b);
    lf_plan_destroy(r.p);
    lf_pstore_destroy(r.ps);
}

/* Memory of no graph, in a plan with state of graphs. */
static void test_beside(void)
{
    enum { BYTES = 1000 };
    struct rig r = {.ps = store()};
    struct lf_plan_bytes with, without;
    for (int k = 0; k < 2; k++) {
        lf_plan_destroy(r.p);
        r.p = lf_plan_create(
            r.ps, &(struct lf_plan_opts){.threads = 1, .compute = LF_F32, .mode = LF_INVARIANT},
            &err);
        r.decode = add(&r, graph(r.ps, "decode", DECODE, true), 1, false);
        if (k)
            tap_rc(lf_plan_state(r.p, "beside", BYTES, &err), 0, &err, NULL,
                   "memory beside the graphs");
        if (lf_plan_finish(r.p, &err))
            tap_bail("%s", err.text);
        lf_plan_bytes(r.p, k ? &with : &without);
    }
    const size_t more = with.total - without.total;
    tap_ok(more >= BYTES && more < BYTES + 256 && more == with.state - without.state,
           "... the plan counts it as state: %zu", more);
    lf_err e = LF_ERR_INIT;
    tap_rc(lf_plan_state(r.p, "late", BYTES, &e), LF_EINVAL, &e, "finished",
           "none is added to a finished plan");
    r.b = lf_back_cpu_create(lf_target_host()->isa, 1, &err);
    r.ex = lf_exec_create(r.p, r.b, NULL, &err);
    if (!r.ex)
        tap_bail("%s", err.text);
    unsigned char *m = lf_exec_state(r.ex, "beside");
    const unsigned char *k = lf_exec_ptr(r.ex, r.decode, 0, "k"),
                        *v = lf_exec_ptr(r.ex, r.decode, 0, "v");
    const size_t keys = sizeof(float) * PAGES * PAGE * G * D,
                 values = sizeof(float) * PAGES * PAGE * G * E;
    int set = 0;
    for (int i = 0; m && i < BYTES; i++)
        set += m[i] != 0;
    tap_ok(m && set == 0, "the executor has it, zeroed");
    tap_ok(m && (m + BYTES <= k || m >= k + keys) && (m + BYTES <= v || m >= v + values),
           "... apart from the cache");
    tap_ok(lf_exec_state(r.ex, "late") == NULL, "nothing has another name");
    tap_i64((int64_t)lf_exec_bytes(r.ex), (int64_t)with.total,
            "the executor took what the plan said");
    lf_exec_destroy(r.ex);
    lf_back_destroy(r.b);
    lf_plan_destroy(r.p);
    r.p = lf_plan_create(
        r.ps, &(struct lf_plan_opts){.threads = 1, .compute = LF_F32, .mode = LF_INVARIANT}, &err);
    r.decode = add(&r, graph(r.ps, "decode", DECODE, true), 1, false);
    tap_rc(lf_plan_state(r.p, "k", BYTES, &e), LF_EINVAL, &e, "there is one",
           "a name of the graphs is refused");
    tap_rc(lf_plan_state(r.p, "none", 0, &e), LF_EINVAL, &e, "nothing", "and no bytes");
    lf_plan_destroy(r.p);
    lf_pstore_destroy(r.ps);
}

int main(void)
{
    TAP(9, test_beside());
    TAP(5, test(LF_F32, false, "f32: cache and whole document agree bitwise"));
    TAP(5, test(LF_F32, true, "f32, panels: cache and whole document agree bitwise"));
    TAP(5, test(LF_BF16, false, "bf16: cache and whole document agree bitwise"));
    TAP(5, test(LF_BF16, true, "bf16, panels: cache and whole document agree bitwise"));
    return tap_done();
}
