/* SPDX-License-Identifier: Apache-2.0
 *
 * The executor on the CUDA backend, against the CPU's, on the emulated driver: a segment that is
 * captured and replayed, steps without a wait, whole models over optimizer steps in every order of
 * the emulator, failures with names.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/queue.h"
#include "tests/cuda/emu/run.h"
#include "tests/unit/graph_util.h"

static lf_err err = LF_ERR_INIT;
static struct lf_cu cu;

static lf_back *open_plain(int threads, lf_err *e)
{
    lf_back *b = lf_back_cuda_create(
        &(struct lf_cuda_opts){.rank = 2, .threads = threads, .driver = &cu}, e);
    return b;
}

static void order(const char *o)
{
    setenv("LF_EMU_ORDER", o, 1);
    lf_emu_reset();
}

/* ---- one segment, captured ---- */

enum { ROWS = 24, C = 32, RUNS = 5 };

struct small {
    lf_pstore *ps;
    lf_plan *p;
    lf_back *b;
    lf_exec *ex;
    int chain;
};

static void open_small(struct small *s, bool cuda)
{
    s->ps = lf_pstore_create(&err);
    const struct lf_param_desc w = {
        .name = "w", .ndim = 2, .dims = {C, C}, .init = LF_INIT_NORMAL, .init_std = 0.3f};
    const struct lf_param_desc n = {.name = "n", .ndim = 1, .dims = {C}, .init = LF_INIT_ONE};
    lf_pstore_add(s->ps, &w, &err);
    lf_pstore_add(s->ps, &n, &err);
    lf_graph *g = lf_graph_create(s->ps, "small", &err);
    lf_val x = lf_input(g, "x", LF_F32, ROWS, C);
    lf_val h = lf_norm(g, x, lf_param(g, "n"), LF_NONE, &(struct lf_norm_opts){.eps = 1e-5f});
    h = lf_act(g, lf_linear(g, h, lf_param(g, "w"), LF_NONE), LF_ACT_SILU);
    lf_output(g, lf_add(g, x, lf_linear(g, h, lf_param(g, "w"), LF_NONE)), "y");
    const struct lf_plan_opts po = {
        .threads = 1, .compute = LF_F32, .target = cuda ? lf_target_find("sm_90") : NULL};
    s->p = lf_plan_create(s->ps, &po, &err);
    s->chain = s->p ? lf_plan_add(s->p, g, &(struct lf_chain_opts){0}, &err) : -1;
    if (s->chain < 0 || lf_plan_finish(s->p, &err))
        tap_bail("%s", err.text);
    lf_graph_destroy(g);
    s->b = cuda ? open_plain(1, &err) : lf_back_cpu_create(lf_target_host()->isa, 1, &err);
    s->ex = s->b ? lf_exec_create(s->p, s->b, NULL, &err) : NULL;
    if (!s->ex || lf_pstore_init(s->ps, 5, &err))
        tap_bail("%s", err.text);
}

static void close_small(struct small *s)
{
    lf_exec_destroy(s->ex);
    lf_back_destroy(s->b);
    lf_plan_destroy(s->p);
    lf_pstore_destroy(s->ps);
}

static int run_small(struct small *s, int k)
{
    float x[ROWS * C];
    for (int i = 0; i < ROWS * C; i++)
        x[i] = (float)sin(0.1 * i + k);
    int rc = lf_exec_write(s->ex, s->chain, 0, "x", x, sizeof x, &err);
    return rc ? rc : lf_exec_run(s->ex, s->chain, LF_FWD, 0, LF_FIRST, &err);
}

/* y of RUNS runs with different inputs. */
static void outputs_of(bool cuda, float *y)
{
    struct small s;
    open_small(&s, cuda);
    for (int k = 0; k < RUNS; k++)
        if (run_small(&s, k) ||
            lf_exec_read(s.ex, s.chain, 0, "y", y + k * ROWS * C, sizeof *y * ROWS * C, &err))
            tap_bail("%s", err.text);
    close_small(&s);
}

static void test_capture(void)
{
    static float want[RUNS * ROWS * C], got[RUNS * ROWS * C], plain[RUNS * ROWS * C];
    outputs_of(false, want);
    lf_emu_reset();
    outputs_of(true, got);
    tap_ok(lf_emu_stats()->captures == 1 && lf_emu_stats()->graph_launches == RUNS - 1,
           "a segment runs once, is captured once, and is replayed (%ld captures, %ld launches)",
           lf_emu_stats()->captures, lf_emu_stats()->graph_launches);
    tap_ok(gu_rel_diff(got, want, RUNS * ROWS * C) < 1e-6, "with the CPU's values (%.2g)",
           gu_rel_diff(got, want, RUNS * ROWS * C));
    setenv("LF_CUDA_GRAPHS", "0", 1);
    lf_emu_reset();
    outputs_of(true, plain);
    unsetenv("LF_CUDA_GRAPHS");
    tap_ok(lf_emu_stats()->captures == 0 && memcmp(plain, got, sizeof got) == 0,
           "LF_CUDA_GRAPHS=0: no capture, the same bits");
    order("7");
    outputs_of(true, plain);
    tap_ok(memcmp(plain, got, sizeof got) == 0, "another order of the emulator, the same bits");
    order("0");
}

static void test_no_wait(void)
{
    struct small s;
    open_small(&s, true);
    run_small(&s, 0);
    run_small(&s, 1);
    const struct lf_emu_stats before = *lf_emu_stats();
    for (int k = 0; k < 20; k++)
        run_small(&s, k);
    const struct lf_emu_stats *now = lf_emu_stats();
    tap_ok(now->waits == before.waits && now->allocations == before.allocations &&
               now->pageable == before.pageable && now->launches == before.launches &&
               now->graph_launches == before.graph_launches + 20,
           "twenty steps: one launch each, no wait, no allocation, no copy from memory that is not "
           "pinned");
    close_small(&s);
}

static void test_failures(void)
{
    struct small s;
    open_small(&s, true);
    setenv("LF_EMU_FAIL", "launch:1:norm_fwd_few", 1);
    lf_emu_reset();
    tap_rc(run_small(&s, 0), LF_EDEVICE, &err, "graph small", "a refused launch names its graph");
    lf_err_clear(&err);
    tap_ok(run_small(&s, 0) == 0, "and the next run is a whole one");
    setenv("LF_EMU_FAIL", "launch:1:norm_fwd_few", 1);
    lf_emu_reset();
    int rc = run_small(&s, 1); /* in the capture */
    tap_ok(rc == LF_EDEVICE && strstr(err.text, "norm") && strstr(err.text, "[24, 32]") &&
               strstr(err.text, "rank 2, GPU 0"),
           "a failure in a capture names op, shapes, rank and device: %s", err.text);
    lf_err_clear(&err);
    unsetenv("LF_EMU_FAIL");
    lf_emu_reset();
    tap_ok(run_small(&s, 1) == 0 && run_small(&s, 2) == 0 && lf_emu_stats()->captures == 1,
           "and is captured when it works");
    close_small(&s);
}

/* ---- whole models ---- */

enum { STEPS = 3 };
struct course {
    double loss[STEPS], norm[STEPS];
    float *grads, *weights;
    size_t n_grads, n_weights;
};

static void train(struct course *r, const struct gu_model *m, const struct gu_opts *opts, bool cuda)
{
    struct gu_opts o = *opts;
    const float scale = o.plan.compute == LF_F16 ? 1024 : 1; /* of the loss */
    struct lf_step_record rec;
    struct gu u;
    struct gu_batch b[2];
    memset(r, 0, sizeof *r);
    o.optimizer = true;
    o.plan.threads = 1;
    o.plan.target = cuda ? lf_target_find("sm_90") : NULL;
    o.open_back = cuda ? open_plain : NULL;
    gu_open(&u, m, &o);
    for (int k = 0; k < STEPS; k++) {
        gu_batch_make(&b[0], m, m->rows, (uint32_t)(2 * k + 1));
        gu_batch_make(&b[1], m, m->rows, (uint32_t)(2 * k + 2));
        gu_record(&u, b[0].trained + b[1].trained, 3e-3f);
        if (scale != 1) {
            rec = gu_result(&u);
            rec.loss_scale = scale;
            if (lf_exec_record_write(u.ex, &rec, &err))
                tap_bail("%s", err.text);
        }
        for (int i = 0; i < 2; i++) {
            gu_feed(&u, u.train, 0, &b[i]);
            gu_fwd_bwd(&u, 0, i ? LF_ACCUM : LF_FIRST);
        }
        if (k == 0)
            r->grads = gu_grads(&u, &r->n_grads);
        for (size_t i = 0; k == 0 && i < r->n_grads; i++)
            r->grads[i] /= scale;
        if (lf_exec_run(u.ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err))
            tap_bail("%s", err.text);
        rec = gu_result(&u);
        if (rec.skip)
            tap_bail("step %d is skipped", k);
        r->loss[k] = rec.loss_sum / (double)rec.tokens;
        r->norm[k] = (double)rec.grad_norm;
    }
    r->weights = calloc((size_t)lf_pstore_elements(u.ps), sizeof *r->weights);
    for (int i = 0; i < lf_pstore_count(u.ps); i++) {
        struct lf_pview v;
        if (lf_pstore_view(u.ps, i, LF_P_MASTER, &v) != 1 ||
            lf_pstore_read(u.ps, i, LF_P_MASTER, r->weights + r->n_weights, v.bytes, &err))
            tap_bail("%s", err.text);
        r->n_weights += v.bytes / sizeof(float);
    }
    gu_close(&u);
}

static void forget(struct course *r)
{
    free(r->grads);
    free(r->weights);
}

/* The CPU has no fp16: what runs in fp16 is held against its f32. `other`: an order of the
 * emulator. */
static void test_model(const struct gu_model *m, const struct gu_opts *o, double tol,
                       const char *other, const char *name)
{
    struct course want, got, again;
    double worst = 0;
    train(&want, m, o->plan.compute == LF_F16 ? &gu_f32 : o, false);
    lf_emu_reset();
    train(&got, m, o, true);
    tap_ok(lf_emu_stats()->captures > 0 &&
               lf_emu_stats()->graph_launches > lf_emu_stats()->captures,
           "%s: %ld captures, %ld launches of them", name, lf_emu_stats()->captures,
           lf_emu_stats()->graph_launches);
    for (int k = 0; k < STEPS; k++)
        worst = tap_worse(worst, fabs(got.loss[k] / want.loss[k] - 1));
    tap_ok(worst < tol && want.loss[0] > 1, "%s: losses of %d steps as on the CPU (%.2g)", name,
           STEPS, worst);
    tap_ok(got.n_grads == want.n_grads &&
               gu_rel_diff(got.grads, want.grads, want.n_grads) < 10 * tol,
           "%s: gradients (%.2g)", name, gu_rel_diff(got.grads, want.grads, want.n_grads));
    tap_ok(fabs(got.norm[0] / want.norm[0] - 1) < 10 * tol, "%s: their norm", name);
    order(other);
    train(&again, m, o, true);
    order("0");
    tap_ok(again.n_weights == got.n_weights &&
               memcmp(again.weights, got.weights, got.n_weights * sizeof(float)) == 0 &&
               memcmp(again.loss, got.loss, sizeof got.loss) == 0,
           "%s: the same bits in order %s of the emulator", name, other);
    forget(&want);
    forget(&got);
    forget(&again);
}

/* ---- masters and moments in the host's memory ---- */

/* The device's memory that a model of this share takes, as the driver counts it, and the plan's
 * bytes. */
static size_t device_bytes(const struct gu_model *m, const struct gu_opts *opts, double offload,
                           struct lf_plan_bytes *b)
{
    struct gu_opts o = *opts;
    size_t before = 0, after = 0, total;
    struct gu u;
    o.optimizer = true;
    o.plan.threads = 1;
    o.plan.target = lf_target_find("sm_90");
    o.open_back = open_plain;
    o.state.offload = offload;
    lf_back *b0 = open_plain(1, &err); /* MemGetInfo asks for a context */
    if (!b0 || cu.MemGetInfo(&before, &total))
        tap_bail("%s", err.text);
    gu_open(&u, m, &o);
    if (cu.MemGetInfo(&after, &total) || lf_plan_bytes(u.p, b))
        tap_bail("no sizes");
    gu_close(&u);
    lf_back_destroy(b0);
    return before - after;
}

/* Recorded launches have the rows that they were recorded with. */
static void test_rows(void)
{
    struct gu u;
    struct gu_opts o = gu_f32;
    o.plan.threads = 1;
    o.plan.target = lf_target_find("sm_90");
    o.open_back = open_plain;
    gu_open(&u, &gu_llama, &o);
    tap_ok(lf_exec_live_rows(u.ex, u.train, gu_llama.rows, 1) == gu_llama.rows,
           "a backend that replays computes all rows");
    gu_close(&u);
}

/* share: of the elements, at least that of the tensors that fit. */
static void test_offload(const struct gu_model *m, const struct gu_opts *opts, double share,
                         const char *other, const char *name)
{
    struct gu_opts o = *opts;
    struct course want, got;
    struct lf_plan_bytes none, some;
    const size_t d0 = device_bytes(m, opts, 0, &none), d1 = device_bytes(m, opts, share, &some);
    tap_ok(d0 - d1 == none.total - some.total && d1 < d0 && none.offloaded == 0,
           "%s: %zu bytes of the device less, as planned", name, d0 - d1);
    tap_i64((int64_t)(some.total + some.offloaded), (int64_t)none.total,
            "they are in the host's memory");
    const size_t state = none.optimizer + (o.plan.compute == LF_F32 ? 0 : none.optimizer / 2);
    tap_ok((double)some.offloaded > 0.7 * share * (double)state &&
               (double)some.offloaded < 1.05 * share * (double)state,
           "%s: %.0f %% of moments and masters", name,
           100 * (double)some.offloaded / (double)state);
    train(&want, m, &o, true);
    o.state.offload = share;
    order(other);
    train(&got, m, &o, true);
    order("0");
    tap_ok(got.n_weights == want.n_weights &&
               memcmp(got.weights, want.weights, want.n_weights * sizeof(float)) == 0 &&
               memcmp(got.loss, want.loss, sizeof got.loss) == 0,
           "%s: the same bits", name);
    forget(&want);
    forget(&got);
}

int main(void)
{
    char text[300];
    struct gu_model one = gu_llama; /* the emulator takes about a second for a step of a layer */
    one.layers = 1;
    const struct gu_opts f16 = {.plan = {.threads = 2, .compute = LF_F16, .mode = LF_INVARIANT}};
    lf_emu_driver(&cu);
    TAP(4, test_capture());
    TAP(1, test_no_wait());
    TAP(4, test_failures());
    TAP(5, test_model(&gu_llama, &gu_f32, 1e-5, "1", "llama, f32"));
    TAP(5, test_model(&gu_gpt2, &gu_f32, 1e-5, "7", "gpt2, f32"));
    TAP(5, test_model(&gu_qwen, &gu_f32, 1e-5, "7", "qwen, f32"));
    TAP(5, test_model(&one, &gu_bf16, 1e-2, "7", "llama, bf16"));
    TAP(5, test_model(&one, &f16, 2e-3, "1", "llama, fp16"));
    TAP(4, test_offload(&one, &gu_bf16, 1, "7", "bf16, all offloaded"));
    TAP(4, test_offload(&one, &gu_bf16, 0.5, "1", "bf16, half offloaded"));
    TAP(4, test_offload(&one, &gu_f32, 1, "7", "f32, moments offloaded"));
    tap_ok(lf_emu_leaks(text, sizeof text) == 0, "nothing is left behind: %s", text);
    TAP(1, test_rows());
    return tap_done();
}
