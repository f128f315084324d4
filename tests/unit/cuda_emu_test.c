/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA emulator: barriers, shuffles and tensor-core twins mean what they mean on a GPU; planted
 * bugs are found; and a kernel that nvcc also compiles runs through the launcher.
 */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda/emu/twin.h"

#include "engine/base/f16.h"
#include "kernels/cuda/dev.h"
#include "kernels/cuda/queue.h"
#include "tests/cuda/emu/run.h"
#include "tests/op/op_test.h"

enum { N = 96 };
static float in[N], out[N];

static void reverse(const void *args)
{
    LF_SHARED(float, s);
    const int i = (int)threadIdx.x, barrier = *(const int *)args;
    s[i] = in[i];
    if (barrier)
        __syncthreads();
    out[i] = s[N - 1 - i];
    __syncthreads();
}

static void divergent(const void *args)
{
    (void)args;
    if (threadIdx.x < 40)
        __syncthreads();
}

static void half_a_warp(const void *args)
{
    (void)args;
    if (threadIdx.x % 32 < 7)
        out[threadIdx.x] = lf_warp_sum(1.0f);
    else
        __syncthreads();
}

static void copies(const void *args)
{
    LF_SHARED(struct lf_u4, s);
    struct lf_u4 *g = (struct lf_u4 *)(void *)out;
    const int waits = *(const int *)args;
    lf_cp_async16(&s[threadIdx.x], (const struct lf_u4 *)(const void *)in + threadIdx.x, true);
    lf_cp_commit();
    if (waits)
        lf_cp_wait(0);
    g[threadIdx.x] = s[threadIdx.x];
    lf_cp_wait(0);
}

static void sums(const void *args)
{
    LF_SHARED(float, s);
    (void)args;
    const float v = lf_block_sum(in[threadIdx.x], s), m = lf_block_max(in[threadIdx.x], s);
    out[threadIdx.x] = threadIdx.x % 2 ? m : v;
}

static void run(void (*k)(const void *), int arg, unsigned threads, size_t smem)
{
    lf_emu_run("test", k, &arg, (struct lf_emu_uint3){1, 1, 1},
               (struct lf_emu_uint3){threads, 1, 1}, smem);
}

/* Whether the kernel ends the process. */
static bool dies(void (*k)(const void *), int arg)
{
    fflush(NULL);
    pid_t p = fork();
    if (p == 0) {
        (void)!freopen("/dev/null", "w", stderr);
        run(k, arg, N, sizeof in);
        _exit(0);
    }
    int st = 0;
    waitpid(p, &st, 0);
    return WIFSIGNALED(st) || (WIFEXITED(st) && WEXITSTATUS(st) != 0);
}

static bool reversed(void)
{
    for (int i = 0; i < N; i++)
        if (out[i] != in[N - 1 - i])
            return false;
    return true;
}

static void test_barriers(void)
{
    for (int i = 0; i < N; i++)
        in[i] = (float)i + 0.5f;
    run(reverse, 1, N, sizeof in);
    tap_ok(reversed(), "a barrier lets every thread see what the others wrote");
    run(reverse, 0, N, sizeof in);
    tap_ok(!reversed(), "planted: without it, poison shows");
    tap_ok(dies(divergent, 0), "planted: a barrier that some threads never reach is reported");
    tap_ok(dies(half_a_warp, 0), "planted: a shuffle of a part of a warp is reported");
    float sum = 0;
    for (int i = 0; i < N; i++)
        sum += in[i];
    run(sums, 0, N, 32 * sizeof(float));
    tap_ok(out[0] == sum && out[95] == in[N - 1], "sum and maximum over a block (%g, %g)",
           (double)out[0], (double)out[95]);
}

static void test_copies(void)
{
    memset(out, 0, sizeof out);
    run(copies, 1, N / 4, sizeof in);
    tap_ok(memcmp(in, out, sizeof in) == 0, "asynchronous copies land when they are waited for");
    run(copies, 0, N / 4, sizeof in);
    tap_ok(memcmp(in, out, sizeof in) != 0, "planted: not before");
}

/* fmaf is one rounding, whatever the C library makes of it; a product and a sum are two, whatever
 * the compiler likes. */
static void roundings(const void *args)
{
    (void)args;
    if (threadIdx.x == 0) {
        out[0] = fmaf(in[0], in[0], in[1]);
        out[1] = in[0] * in[0] + in[1];
        out[2] = lf_exp2(in[2]);
        out[3] = lf_exp2(in[3]);
    }
}

static void test_roundings(void)
{
    in[0] = 1 + 0x1p-12f;
    in[1] = -(1 + 0x1p-11f);
    in[2] = -126;
    in[3] = -126.5f;
    run(roundings, 0, 32, 0);
    tap_ok(out[0] == 0x1p-24f && out[1] == 0,
           "a fused multiply-add rounds once, a product and a sum twice (%g, %g)", (double)out[0],
           (double)out[1]);
    tap_ok(out[2] == 0x1p-126f && out[3] == 0,
           "powers of two below the normal range are 0, as on a GPU");
}

/* ---- tensor cores ---- */

static uint16_t ma[16 * 16], mb[16 * 8];
static float md[16 * 8];

static void product(const void *args)
{
    LF_SHARED(uint16_t, s);
    const int l = (int)threadIdx.x, g = l / 4, t = l % 4, half = *(const int *)args;
    uint16_t *sb = s + 16 * 16;
    for (int i = l; i < 16 * 16; i += 32)
        s[i] = ma[i];
    for (int i = l; i < 16 * 8; i += 32)
        sb[i] = mb[i];
    __syncwarp();
    uint32_t a[4], b[4];
    float d[4] = {1, 1, 1, 1};
    lf_ldmatrix4(a, s + (l % 16) * 16 + l / 16 * 8);
    lf_ldmatrix4_trans(b, sb + (l % 16) * 8);
    if (half)
        lf_mma_f16(d, a, b);
    else
        lf_mma_bf16(d, a, b);
    md[g * 8 + 2 * t] = d[0];
    md[g * 8 + 2 * t + 1] = d[1];
    md[(g + 8) * 8 + 2 * t] = d[2];
    md[(g + 8) * 8 + 2 * t + 1] = d[3];
}

static void test_mma(int type)
{
    double want[16 * 8];
    for (int i = 0; i < 16 * 16; i++)
        op_set(ma, i, type, op_rand(1, i));
    for (int i = 0; i < 16 * 8; i++)
        op_set(mb, i, type, op_rand(2, i));
    for (int i = 0; i < 16 * 8; i++) {
        want[i] = 1;
        for (int k = 0; k < 16; k++)
            want[i] += op_get(ma, i / 8 * 16 + k, type) * op_get(mb, k * 8 + i % 8, type);
    }
    run(product, type == LF_F16, 32, sizeof ma + sizeof mb);
    op_ok(op_compare(md, LF_F32, want, NULL, 16 * 8, 2e-6),
          type == LF_F16 ? "ldmatrix and mma, f16" : "ldmatrix and mma, bf16");
    op_prove(md, LF_F32, want, NULL, 16 * 8, 2e-6, 77);
}

static void test_half(void)
{
    bool same = true;
    for (uint32_t h = 0; h < 0x10000; h++)
        same = same && ((lf_f16_f((uint16_t)h) == (float)op_from_f16((uint16_t)h) &&
                         lf_f32_of_f16((uint16_t)h) == lf_f16_f((uint16_t)h)) ||
                        (isnan(op_from_f16((uint16_t)h)) && isnan(lf_f32_of_f16((uint16_t)h))));
    tap_ok(same, "all 65536 halves widen as the definition says");
    int64_t bad = -1;
    for (int64_t i = 0; i < 400000 && bad < 0; i++) {
        const float x = (float)(op_rand(3, i) * exp2(24 * op_rand(4, i)));
        if (lf_f_f16(x) != op_to_f16((double)x) || lf_f16_of(x) != op_to_f16((double)x) ||
            lf_f_bf16(x) != op_to_bf16((double)x))
            bad = i;
    }
    tap_ok(bad < 0, "rounding to f16 and bf16 agrees with arithmetic (first difference: %lld)",
           (long long)bad);
}

/* ---- a real kernel through the launcher ---- */

/* A pointer to the stack, which only an emulated GPU could follow. */
static bool dies_of_host_memory(const struct lf_kernels *k, lf_queue *q)
{
    float here[64] = {0}, *p = here;
    while (((uintptr_t)p & 0xf0) == 0)
        p++;
    const struct lf_k_fill f = {.n = 1, .y = p, .value = 1};
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        (void)!freopen("/dev/null", "w", stderr);
        _exit(k->fill.run(q, &f) == 0 ? 0 : 1);
    }
    int st = 0;
    waitpid(child, &st, 0);
    return WIFSIGNALED(st);
}

static void test_launch(void)
{
    const struct lf_kernels *k = op_kernels(0);
    lf_queue *q = op_queue_create(1);
    for (int64_t n = 0; n < 5000; n = 3 * n + 1) {
        struct op_buf a = op_random(n, LF_F32, 1, 2), b = op_random(n, LF_BF16, 2, 2),
                      y = op_alloc((size_t)n * 2);
        struct lf_k_axpby x = {.n = n,
                               .a = a.p,
                               .b = b.p,
                               .y = y.p,
                               .alpha = 1.5f,
                               .beta = -2,
                               .a_type = LF_F32,
                               .b_type = LF_BF16,
                               .y_type = LF_F16};
        double *want = calloc((size_t)n + 1, sizeof *want);
        for (int64_t i = 0; i < n; i++)
            want[i] = 1.5 * op_get(a.p, i, LF_F32) - 2 * op_get(b.p, i, LF_BF16);
        tap_ok(k->axpby.check(&x) == 0 && k->axpby.run(q, &x) == 0 && op_guards_intact(&y),
               "axpby over %lld elements", (long long)n);
        op_ok(op_compare(y.p, LF_F16, want, NULL, n, 1e-6), "its values");
        free(want);
        op_free(&a);
        op_free(&b);
        op_free(&y);
    }
    tap_ok(dies_of_host_memory(k, q),
           "planted: a kernel that is given memory of the host alone is reported");
    struct lf_k_fill bad = {.n = 1, .y_type = LF_I64};
    tap_ok(k->fill.check(&bad) == LF_K_EINVAL, "a type that a kernel lacks is refused");
    tap_ok(lf_cu_launch(q, LF_CU_FN_fill, (struct lf_cu_dim){.x = 1}, (struct lf_cu_dim){.x = 512},
                        0, &bad) == LF_K_EDEVICE &&
               strcmp(q->what, "fill") == 0 && q->status == LF_CU_INVALID_VALUE,
           "a launch that the driver refuses is named");
    op_queue_destroy(q);
}

int main(void)
{
    TAP(5, test_barriers());
    TAP(2, test_copies());
    TAP(2, test_roundings());
    TAP(2, test_mma(LF_BF16));
    TAP(2, test_mma(LF_F16));
    TAP(2, test_half());
    TAP(21, test_launch());
    return tap_done();
}
