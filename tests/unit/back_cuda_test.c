/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA backend on the emulated driver: memory, copies through pinned memory, captures, late
 * results, failures.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/back/back.h"
#include "tests/cuda/emu/run.h"
#include "tests/tap/tap.h"

static lf_err err = LF_ERR_INIT;
static struct lf_cu cu;

static lf_back *open_back(void)
{
    lf_emu_driver(&cu);
    lf_back *b = lf_back_cuda_create(
        &(struct lf_cuda_opts){.ordinal = 1, .rank = 3, .threads = 2, .driver = &cu}, &err);
    if (!b)
        tap_bail("%s", err.text);
    return b;
}

static void fill_floats(lf_back *b, float *p, int64_t n, float v)
{
    const struct lf_k_fill a = {.n = n, .y = p, .value = v, .y_type = LF_F32};
    b->kernels->fill.run(b->queue, &a);
}

static void test_copies(lf_back *b)
{
    enum { N = 24 << 20 }; /* more than the ring, so that its parts come round */
    char *src = malloc(N), *dst = malloc(N), *dev = b->ops->alloc(b, N, &err);
    bool zero = true, same = true;
    if (!src || !dst || !dev)
        tap_bail("no memory");
    tap_ok((uintptr_t)dev % 256 == 0 && !b->ops->copy_out(b, dst, dev, N, &err), "memory");
    for (size_t i = 0; i < N; i++)
        zero = zero && dst[i] == 0;
    tap_ok(zero, "new memory is zero");
    for (size_t i = 0; i < N; i++)
        src[i] = (char)(i * 31 + i / 4099);
    for (int round = 0; round < 3; round++) { /* 72 MiB, 32 are pinned */
        tap_rc(b->ops->copy_in(b, dev, src, N, &err), 0, &err, NULL, "copy in");
        memset(src, 0, N); /* it is ours again */
        tap_rc(b->ops->copy_out(b, dst, dev, N - (size_t)round, &err), 0, &err, NULL, "copy out");
        for (size_t i = 0; i < N - (size_t)round; i++)
            same = same && dst[i] == (char)(i * 31 + i / 4099 + (size_t)round);
        for (size_t i = 0; i < N; i++)
            src[i] = (char)(i * 31 + i / 4099 + (size_t)round + 1);
    }
    tap_ok(same, "large copies there and back");
    const long waits = lf_emu_stats()->waits;
    for (int i = 0; i < 1000; i++)
        b->ops->copy_in(b, dev + 64 * i, &i, sizeof i, &err);
    tap_ok(lf_emu_stats()->waits <= waits + 1,
           "a thousand small copies wait for nothing (the first for the large ones)");
    tap_i64(lf_emu_stats()->pageable, 0, "all of them from pinned memory");
    b->ops->copy_out(b, dst, dev, 64000, &err);
    for (int i = 0; i < 1000; i++) {
        int v;
        memcpy(&v, dst + 64 * i, sizeof v);
        same = same && v == i;
    }
    tap_ok(same, "and arrive");
    free(src);
    free(dst);
    b->ops->release(b, dev, N);
}

static void test_times(lf_back *b)
{
    enum { N = 1 << 16, STAMPS = 40 };
    float *x = b->ops->alloc(b, N * sizeof *x, &err);
    double at[STAMPS];
    struct lf_back_peak p = {0};
    bool ascending = true;
    for (int round = 0; round < 2; round++) { /* the second uses the same events */
        tap_rc(b->ops->stamp(b, 0, &err), 0, &err, NULL, "a stamp");
        for (size_t i = 1; i < STAMPS; i++) {
            fill_floats(b, x, N, (float)i);
            ascending = ascending && !b->ops->stamp(b, i, &err);
        }
        tap_rc(b->ops->stamps(b, at, STAMPS, &err), 0, &err, NULL, "their times");
        for (size_t i = 1; i < STAMPS; i++)
            ascending = ascending && at[i] >= at[i - 1];
    }
    tap_ok(ascending && at[0] == 0 && at[STAMPS - 1] > 0, "begin at 0 and ascend");
    tap_rc(b->ops->probe(b, LF_PEAK_ALL, &p, &err), 0, &err, NULL, "ceilings");
    tap_ok(p.f32_flops > 0 && p.bf16_flops > p.f32_flops && p.bytes_per_s > 0,
           "bf16 %.3g, f32 %.3g FLOP/s, %.3g bytes/s", p.bf16_flops, p.f32_flops, p.bytes_per_s);
    b->ops->release(b, x, N * sizeof *x);
}

static void test_order(lf_back *b)
{
    enum { N = 256 };
    float *x = b->ops->alloc(b, N * sizeof *x, &err), in[N], out[N];
    bool same = true;
    for (int k = 0; k < 50; k++) { /* copy, kernel, copy, fill, kernel on one queue */
        for (int i = 0; i < N; i++)
            in[i] = (float)(k + i);
        b->ops->copy_in(b, x, in, sizeof in, &err);
        fill_floats(b, x, 100, -1);
        b->ops->fill(b, x + 200, 0, 56 * sizeof *x, &err);
        b->ops->copy_out(b, out, x, sizeof out, &err);
        for (int i = 0; i < N; i++)
            same = same && out[i] == (i < 100 ? -1 : i < 200 ? (float)(k + i) : 0);
    }
    tap_ok(same, "copies, fills and kernels keep their order");
    b->ops->release(b, x, N * sizeof *x);
}

static void test_late(lf_back *b)
{
    float *x = b->ops->alloc(b, 64, &err), v = 0, w = 0;
    fill_floats(b, x, 4, 5);
    int rc = b->ops->late_begin(b, 0, x, sizeof v, &err);
    fill_floats(b, x, 4, 6);
    rc = rc ? rc : b->ops->late_begin(b, 1, x, sizeof v, &err);
    fill_floats(b, x, 4, 7);
    rc = rc ? rc : b->ops->late_end(b, 1, &w, sizeof w, &err);
    rc = rc ? rc : b->ops->late_end(b, 0, &v, sizeof v, &err);
    tap_ok(rc == 0 && v == 5 && w == 6, "late results are those of their time (%g, %g)", (double)v,
           (double)w);
    tap_rc(b->ops->late_end(b, 0, &v, sizeof v, &err), LF_EINVAL, &err, "slot 0",
           "a slot that nobody began");
    b->ops->release(b, x, 64);
}

static void test_capture(lf_back *b)
{
    float *x = b->ops->alloc(b, 400, &err), out[100];
    void *g = NULL;
    const struct lf_k_axpby twice = {
        .n = 100, .a = x, .y = x, .alpha = 2, .a_type = LF_F32, .b_type = LF_F32, .y_type = LF_F32};
    fill_floats(b, x, 100, 1);
    b->kernels->axpby.run(b->queue, &twice);
    int rc = b->ops->capture_begin(b, &err);
    b->kernels->axpby.run(b->queue, &twice);
    b->kernels->axpby.run(b->queue, &twice);
    rc = rc ? rc : b->ops->capture_end(b, &g, &err);
    for (int i = 0; i < 2 && !rc; i++)
        rc = b->ops->capture_run(b, g, &err);
    tap_rc(rc ? rc : b->ops->copy_out(b, out, x, sizeof out, &err), 0, &err, NULL, "a capture");
    tap_ok(out[99] == 32, "once, and twice two (%g)", (double)out[99]);
    rc = b->ops->capture_begin(b, &err);
    b->kernels->axpby.run(b->queue, &twice);
    b->ops->sync(b, NULL); /* not allowed */
    void *none = NULL;
    tap_rc(rc ? rc : b->ops->capture_end(b, &none, &err), LF_EDEVICE, &err,
           "STREAM_CAPTURE_INVALIDATED", "planted: a wait within a capture");
    tap_ok(!none && !b->ops->copy_out(b, out, x, sizeof out, &err) && out[0] == 32,
           "and the queue works on");
    b->ops->capture_free(b, g);
    b->ops->release(b, x, 400);
}

static void test_failures(void)
{
    char text[300];
    setenv("LF_EMU_MEMORY", "100000000", 1);
    lf_emu_reset();
    lf_back *b = open_back();
    tap_ok(!b->ops->alloc(b, 200000000, &err) && err.rc == LF_ENOMEM,
           "memory that is not there: %s", err.text);
    lf_err_clear(&err);
    unsetenv("LF_EMU_MEMORY");
    setenv("LF_EMU_FAIL", "launch:1:fill", 1);
    lf_emu_reset();
    float *x = b->ops->alloc(b, 64, &err);
    fill_floats(b, x, 4, 1);
    b->ops->failure(b, text, sizeof text);
    tap_ok(strstr(text, "rank 3, GPU 1 (emulated GPU)") &&
               strstr(text, "fill: CUDA_ERROR_INVALID_VALUE"),
           "a refused launch says who and what: %s", text);
    setenv("LF_EMU_FAIL", "async:1", 1);
    lf_emu_reset();
    fill_floats(b, x, 4, 1);
    tap_rc(b->ops->sync(b, &err), LF_EDEVICE, &err, "LF_CUDA_SYNC=1",
           "a kernel that breaks the device");
    b->ops->release(b, x, 64);
    b->ops->destroy(b);
    setenv("LF_CUDA_SYNC", "1", 1);
    lf_emu_reset();
    b = open_back();
    x = b->ops->alloc(b, 64, &err);
    fill_floats(b, x, 4, 1);
    b->ops->failure(b, text, sizeof text);
    tap_ok(strstr(text, "fill: CUDA_ERROR_LAUNCH_FAILED") && !b->ops->capture_begin,
           "LF_CUDA_SYNC=1 names it: %s", text);
    b->ops->release(b, x, 64);
    b->ops->destroy(b);
    unsetenv("LF_CUDA_SYNC");
    unsetenv("LF_EMU_FAIL");
    lf_emu_reset();
    for (int n = 1; n < 5;
         n++) { /* whichever allocation fails, the failure is told and nothing stays behind */
        snprintf(text, sizeof text, "alloc:%d", n);
        setenv("LF_EMU_FAIL", text, 1);
        lf_emu_reset();
        b = lf_back_cuda_create(&(struct lf_cuda_opts){.threads = 1, .driver = &cu}, &err);
        tap_ok(n < 4 ? !b && err.rc == LF_ENOMEM : b != NULL, "allocation %d fails: %s", n,
               err.text);
        lf_err_clear(&err);
        lf_back_destroy(b);
    }
    unsetenv("LF_EMU_FAIL");
    lf_emu_reset();
    tap_ok(!lf_back_cuda_create(&(struct lf_cuda_opts){.ordinal = 2, .driver = &cu}, &err) &&
               strstr(err.text, "GPU 2"),
           "a GPU that is not there: %s", err.text);
    lf_err_clear(&err);
}

int main(void)
{
    char text[300];
    lf_back *b = open_back();
    tap_str(b->kernels->family, "cuda-sm_90", "family");
    tap_str(b->device, "emulated GPU, driver 13.0", "device");
    TAP(12, test_copies(b));
    TAP(1, test_order(b));
    TAP(7, test_times(b));
    TAP(2, test_late(b));
    TAP(4, test_capture(b));
    lf_back_destroy(b);
    TAP(9, test_failures());
    tap_ok(lf_emu_leaks(text, sizeof text) == 0, "nothing is left behind: %s", text);
    return tap_done();
}
