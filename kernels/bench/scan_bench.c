/* SPDX-License-Identifier: Apache-2.0
 *
 * The scan, forward and backward, against our own matrix product of the same run. FLOPs are those
 * of the chunk form's products (engine/graph/ops_scan.c counts the same), so that a share says what
 * decays, substitution and packing cost. tests/bench/mixer_peer.py times others.
 *
 *   scan_bench [-t threads] [-r rounds] [-l document length] [-k kind]
 *
 * -k: of the kinds below, those whose names begin so.
 *
 * Times are medians of CPU seconds, which other processes disturb less.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/bench/bench.h"
#include "kernels/kernels.h"

enum { MAX_ROUNDS = 101 };

struct kind {
    const char *name;
    int64_t heads, groups, dk, dv;
    bool delta, channel;
};
static const struct kind kinds[] = {
    {"ssd, mamba2-130m", 24, 1, 128, 64, false, false},
    {"lightning", 8, 8, 128, 128, false, false},
    {"gated delta, qwen3-next", 8, 4, 128, 128, true, false},
    {"kda, kimi-linear", 8, 8, 128, 128, true, true},
};

struct opts {
    int threads, rounds;
    int64_t length;
    const struct lf_kernels *k;
    lf_queue *q;
};

/* n floats in [low, high). */
static float *fill(int64_t n, float low, float high, uint32_t seed)
{
    float *p = aligned_alloc(64, ((size_t)n * 4 + 64) / 64 * 64);
    if (!p)
        exit(1);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = low + (high - low) * (float)(seed >> 8) / 16777216.0f;
    }
    return p;
}

/* FLOPs of a product per CPU second. */
static double product_rate(const struct opts *o)
{
    enum { M = 1024, N = 768, K = 768 };
    struct lf_k_gemm g = {.m = M,
                          .n = N,
                          .k = K,
                          .a = fill(M * K, -1, 1, 1),
                          .b = fill(N * K, -1, 1, 2),
                          .c = fill(M * N, 0, 1, 3),
                          .lda = K,
                          .ldb = K,
                          .ldc = N,
                          .tb = true,
                          .mode = LF_INVARIANT};
    double s[MAX_ROUNDS];
    g.work_bytes = o->k->gemm.work(&g, o->threads);
    g.work = fill((int64_t)g.work_bytes / 4 + 1, 0, 1, 4);
    for (int r = 0; r < o->rounds; r++) {
        const double c = bench_cpu();
        if (o->k->gemm.run(o->q, &g))
            exit(1);
        s[r] = bench_cpu() - c;
    }
    free((void *)(uintptr_t)g.a);
    free((void *)(uintptr_t)g.b);
    free(g.c);
    free(g.work);
    return bench_per(2.0 * M * N * K, bench_median(s, o->rounds));
}

/* Multiply-adds of a row and head: products with S, halves of the chunk's square. */
static double flops(const struct opts *o, const struct kind *k, double states, double halves)
{
    return 2 * (double)(o->length * k->heads) *
           (states * (double)(k->dk * k->dv) +
            halves * (LF_SCAN_CHUNK + 1) / 2.0 * (double)(k->dk + k->dv));
}

static void one(const struct opts *o, const struct kind *k)
{
    const int64_t n = o->length, qk = k->groups * k->dk, vw = k->heads * k->dv,
                  gw = k->heads * (k->channel ? k->dk : 1);
    const int32_t cu[] = {0, (int32_t)n};
    struct lf_k_scan_fwd f = {.in = {.rows = n,
                                     .heads = k->heads,
                                     .groups = k->groups,
                                     .dk = k->dk,
                                     .dv = k->dv,
                                     .n_docs = 1,
                                     .ldq = qk,
                                     .ldk = qk,
                                     .ldv = vw,
                                     .ldg = gw,
                                     .ldbeta = k->heads,
                                     .q = fill(n * qk, -1, 1, 1),
                                     .k = fill(n * qk, -1, 1, 2),
                                     .v = fill(n * vw, -1, 1, 3),
                                     .g = fill(n * gw, -0.2f, 0, 4),
                                     .beta = fill(n * k->heads, 0.1f, 0.9f, 5),
                                     .cu_seqlens = cu,
                                     .scale = 1 / sqrtf((float)k->dk),
                                     .unit_eps = k->delta ? 1e-6f : 0,
                                     .delta = k->delta,
                                     .per_channel = k->channel,
                                     .mode = LF_INVARIANT},
                              .o = fill(n * vw, 0, 1, 6),
                              .ldo = vw};
    struct lf_k_scan_bwd b = {.in = f.in,
                              .d_o = fill(n * vw, -1, 1, 7),
                              .dq = fill(n * qk, 0, 1, 8),
                              .dk = fill(n * qk, 0, 1, 9),
                              .dv = fill(n * vw, 0, 1, 10),
                              .dg = fill(n * gw, 0, 1, 11),
                              .dbeta = fill(n * k->heads, 0, 1, 12),
                              .lddo = vw,
                              .lddq = qk,
                              .lddk = qk,
                              .lddv = vw,
                              .lddg = gw,
                              .lddbeta = k->heads};
    double s[2][MAX_ROUNDS];
    f.work_bytes = o->k->scan_fwd.work(&f, o->threads);
    b.work_bytes = o->k->scan_bwd.work(&b, o->threads);
    f.work = fill((int64_t)f.work_bytes / 4 + 1, 0, 1, 13);
    b.work = fill((int64_t)b.work_bytes / 4 + 1, 0, 1, 14);
    const double rate = product_rate(o);
    for (int r = 0; r < o->rounds; r++) {
        double c = bench_cpu();
        if (o->k->scan_fwd.run(o->q, &f))
            exit(1);
        s[0][r] = bench_cpu() - c;
        c = bench_cpu();
        if (o->k->scan_bwd.run(o->q, &b))
            exit(1);
        s[1][r] = bench_cpu() - c;
    }
    for (int m = 0; m < 2; m++) {
        const double t = bench_median(s[m], o->rounds),
                     work = m ? (k->delta ? flops(o, k, 6, 4) : flops(o, k, 4, 2))
                              : (k->delta ? flops(o, k, 3, 2) : flops(o, k, 2, 1)),
                     had = bench_per(work, t);
        printf(
            "%-24s %s H %2lld G %2lld Dk %3lld Dv %3lld T %lld: %8.2f ms  %6.1f GF/s  %5.1f %% of "
            "a product's %.1f\n",
            k->name, m ? "bwd" : "fwd", (long long)k->heads, (long long)k->groups, (long long)k->dk,
            (long long)k->dv, (long long)n, t * 1e3, had * 1e-9, 100 * had / rate, rate * 1e-9);
    }
    const void *all[] = {f.in.q, f.in.k, f.in.v, f.in.g, f.in.beta, f.o,    b.d_o,
                         b.dq,   b.dk,   b.dv,   b.dg,   b.dbeta,   f.work, b.work};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free((void *)(uintptr_t)all[i]);
}

int main(int argc, char **argv)
{
    struct opts o = {.threads = 1, .rounds = 9, .length = 2048};
    int c;
    const char *kind = "";
    while ((c = getopt(argc, argv, "t:r:l:k:")) != -1) {
        const long v = strtol(optarg, NULL, 10);
        if (c == 'k')
            kind = optarg;
        else if (c == 't' && v > 0)
            o.threads = (int)v;
        else if (c == 'r' && v > 0 && v <= MAX_ROUNDS)
            o.rounds = (int)v;
        else if (c == 'l' && v > 0)
            o.length = v;
        else
            return 2;
    }
    o.k = lf_cpu_kernels(lf_cpu_isa_detect());
    o.q = lf_cpu_queue_create(o.threads);
    printf("%s, %d threads, medians of %d\n", o.k->family, o.threads, o.rounds);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(kinds[i].name, kind, strlen(kind)) == 0)
            one(&o, &kinds[i]);
    lf_cpu_queue_destroy(o.q);
    return 0;
}
