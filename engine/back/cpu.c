/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU backend: device memory is page blocks of the host, the queue runs calls at once, copies
 * are copies.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/back/back.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "kernels/cpu/peak.h"

static void *cpu_alloc(lf_back *b, size_t bytes, lf_err *err)
{
    (void)b;
    return lf_pages_alloc(bytes, err);
}

static void cpu_release(lf_back *b, void *p, size_t bytes)
{
    (void)b;
    lf_pages_free(p, bytes);
}

static int cpu_copy(lf_back *b, void *dst, const void *src, size_t bytes, lf_err *err)
{
    (void)b;
    (void)err;
    if (bytes)
        memcpy(dst, src, bytes);
    return 0;
}

static int cpu_fill(lf_back *b, void *dst, int byte, size_t bytes, lf_err *err)
{
    (void)b;
    (void)err;
    if (bytes)
        memset(dst, byte, bytes);
    return 0;
}

static int cpu_sync(lf_back *b, lf_err *err)
{
    (void)b;
    (void)err;
    return 0;
}

/* The best of some: other processes only slow it down. */
static int probe_memory(lf_back *b, double *out, lf_err *err)
{
    const size_t bytes = (size_t)128 << 20; /* beyond the caches */
    void *block = lf_pages_alloc(bytes, err);
    if (!block)
        return LF_ENOMEM;
    memset(block, 1, bytes);
    for (int i = 0; i < 3; i++) {
        double r = lf_cpu_read_rate(block, bytes, b->threads);
        *out = r > *out ? r : *out;
    }
    lf_pages_free(block, bytes);
    return 0;
}

/* The highest of some measurements. Others on the machine and a clock that is slow to rise make one
 * too low, never too high: three near the highest are believed. */
static double probe_flops(enum lf_isa isa, int threads, bool bf16)
{
    enum { MOST = 16 };
    double rate[MOST], best = 0;
    for (int i = 0; i < MOST; i++) {
        int near = 0;
        rate[i] = lf_cpu_fma_rate(isa, threads, bf16);
        best = rate[i] > best ? rate[i] : best;
        for (int k = 0; k <= i; k++)
            near += rate[k] >= 0.99 * best;
        if (near == 3)
            break;
    }
    return best;
}

static int cpu_probe(lf_back *b, unsigned what, struct lf_back_peak *out, lf_err *err)
{
    enum lf_isa isa = lf_cpu_isa_detect();
    struct lf_back_peak best = {0};
    while (isa > LF_ISA_PLAIN && lf_cpu_kernels(isa) != b->kernels)
        isa--;
    const int threads = b->threads < lf_ncpu() ? b->threads : lf_ncpu();
    if (what & LF_PEAK_F32)
        best.f32_flops = probe_flops(isa, threads, false);
    if (what & LF_PEAK_BF16)
        best.bf16_flops = probe_flops(isa, threads, true);
    int rc = what & LF_PEAK_MEMORY ? probe_memory(b, &best.bytes_per_s, err) : 0;
    if (rc == 0)
        *out = best;
    return rc;
}

static void cpu_set_border(lf_back *b)
{
    lf_cpu_queue_border(b->queue, b->border, b->border_arg);
}

static void cpu_destroy(lf_back *b)
{
    lf_cpu_queue_destroy(b->queue);
    free(b);
}

/* The library computes some products where it computes those of f32. */
static const char *cpu_products(lf_back *b, enum lf_numeric mode)
{
    const struct lf_k_gemm any = {
        .m = 16, .n = 16, .k = 16, .lda = 16, .ldb = 16, .ldc = 16, .mode = (uint8_t)mode};
    const char *by = lf_cpu_gemm_algorithm(&any);
    (void)b;
    return strcmp(by, "own") == 0 ? NULL : by;
}

static const struct lf_back_ops cpu_ops = {.name = "cpu",
                                           .host_visible = true,
                                           .alloc = cpu_alloc,
                                           .release = cpu_release,
                                           .copy_in = cpu_copy,
                                           .copy_out = cpu_copy,
                                           .move = cpu_copy,
                                           .fill = cpu_fill,
                                           .sync = cpu_sync,
                                           .destroy = cpu_destroy,
                                           .probe = cpu_probe,
                                           .products = cpu_products,
                                           .set_border = cpu_set_border};

int lf_back_cpu_check(lf_err *err)
{
    const char *text = getenv("LF_ISA");
    if (!text || !text[0])
        return 0;
    for (int isa = LF_ISA_PLAIN; isa < LF_ISAS; isa++)
        if (lf_cpu_isa_known((enum lf_isa)isa) &&
            strcmp(text, lf_cpu_isa_name((enum lf_isa)isa)) == 0)
            return 0;
    return lf_fail(err, LF_EINVAL, "the environment sets LF_ISA = %s; there are %s", text,
                   lf_cpu_isa_known(LF_ISA_AVX2) ? "plain, avx2, avx512 and avx512bf16"
                                                 : "plain, neon, neonbf16, sve256bf16 and sve512");
}

lf_back *lf_back_cpu_create(enum lf_isa isa, int threads, lf_err *err)
{
    if (threads < 1) {
        lf_fail(err, LF_EINVAL, "cpu backend: %d threads", threads);
        return NULL;
    }
    const struct lf_kernels *k = isa <= lf_cpu_isa_detect() ? lf_cpu_kernels(isa) : NULL;
    if (!k) {
        lf_fail(err, LF_ENOTSUP,
                "cpu backend: this processor (or LF_ISA) stops at %s, %s was asked for",
                lf_cpu_isa_name(lf_cpu_isa_detect()), lf_cpu_isa_name(isa));
        return NULL;
    }
    lf_back *b = lf_calloc(1, sizeof *b, err);
    if (!b)
        return NULL;
    b->ops = &cpu_ops;
    b->kernels = k;
    b->threads = threads;
    b->queue = lf_cpu_queue_create(threads);
    if (!b->queue) {
        lf_fail(err, LF_ENOMEM, "cpu backend: out of memory for the queue");
        free(b);
        return NULL;
    }
    return b;
}
