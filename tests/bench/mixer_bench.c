/* SPDX-License-Identifier: Apache-2.0
 *
 * Our side of mixer_peer.py: a mixer of state-space or linear-attention models without its
 * projections (causal convolution, decays, scan), forward and backward over one document in f32.
 *
 *     mixer_bench THREADS
 *
 * Each line of the input is `ssd ROWS`, `delta ROWS`, `kda ROWS` or `product 0` (our own product of
 * 1024 x 768 x 768, forward alone). The answer is a line: seconds of the forward by the clock and
 * of CPU, then of the backward, then FLOPs of the scan's products in both
 * (kernels/bench/scan_bench.c counts the same), then the instruction set.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/bench/bench.h"
#include "kernels/kernels.h"

struct kind {
    const char *name;
    int64_t heads, groups, dk, dv;
    bool delta, channel;
};
/* mamba2-130m, Qwen3-Next (a quarter of the heads), Kimi Linear (a quarter) */
static const struct kind kinds[] = {
    {"ssd", 24, 1, 128, 64, false, false},
    {"delta", 8, 4, 128, 128, true, false},
    {"kda", 8, 8, 128, 128, true, true},
};
enum { TAPS = 4, MOST_BUFFERS = 40 };

/* What a line allocates. */
static void *held[MOST_BUFFERS];
static int n_held;

static float *fill(int64_t n, float low, float high)
{
    static uint32_t seed = 1;
    float *p = aligned_alloc(64, ((size_t)n * 4 + 64) / 64 * 64);
    if (!p || n_held == MOST_BUFFERS)
        exit(1);
    held[n_held++] = p;
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = low + (high - low) * (float)(seed >> 8) / 16777216.0f;
    }
    return p;
}

static void need(int rc)
{
    if (rc != 0) {
        fprintf(stderr, "mixer_bench: a kernel refused its arguments (%d)\n", rc);
        exit(1);
    }
}

/* The kernels of a mixer in the order of the forward. */
struct mixer {
    struct lf_k_conv_fwd conv;
    struct lf_k_scan_gate_fwd gate;
    struct lf_k_scan_fwd scan;
    struct lf_k_scan_bwd scan_bwd;
    struct lf_k_scan_gate_bwd gate_bwd;
    struct lf_k_conv_bwd conv_bwd;
};

static const int32_t *one_document(int64_t n)
{
    int32_t *cu = (int32_t *)fill(2, 0, 0);
    cu[0] = 0;
    cu[1] = (int32_t)n;
    return cu;
}

static void draw_forward(struct mixer *m, const struct kind *k, int64_t n)
{
    const int64_t keys = k->groups * k->dk, values = k->heads * k->dv,
                  width = k->channel ? k->dk : 1, c = 2 * keys + values, hw = k->heads * width;
    const int32_t *cu = one_document(n);
    m->conv =
        (struct lf_k_conv_fwd){.rows = n, .c = c, .taps = TAPS, .n_docs = 1, .ldx = c, .ldy = c};
    m->conv.x = fill(n * c, -1, 1);
    m->conv.w = fill(c * TAPS, -0.5f, 0.5f);
    m->conv.bias = k->delta ? NULL : fill(c, -0.5f, 0.5f);
    m->conv.y = fill(n * c, 0, 1);
    m->conv.cu_seqlens = cu;
    m->conv.act = LF_ACT_SILU;
    m->gate = (struct lf_k_scan_gate_fwd){.rows = n, .heads = k->heads, .width = width, .lda = hw};
    m->gate.a = fill(n * hw, -1, 1);
    m->gate.ldb = k->heads;
    m->gate.b = k->delta ? fill(n * k->heads, -1, 1) : NULL;
    m->gate.a_log = fill(k->heads, 0, 1);
    m->gate.bias = fill(hw, -4, -2);
    m->gate.g = fill(n * hw, 0, 1);
    m->gate.beta = fill(n * k->heads, 0, 1);
    m->gate.high = INFINITY;
    m->gate.strength = 1;
    const float *y = m->conv.y;
    struct lf_scan_in *in = &m->scan.in;
    *in = (struct lf_scan_in){.rows = n, .heads = k->heads, .groups = k->groups, .dk = k->dk};
    in->dv = k->dv;
    in->n_docs = 1;
    in->ldq = in->ldk = in->ldv = c;
    in->ldg = hw;
    in->ldbeta = k->heads;
    in->q = y;
    in->k = y + keys;
    in->v = y + 2 * keys;
    in->g = m->gate.g;
    in->beta = m->gate.beta;
    in->skip = k->delta ? NULL : fill(k->heads, 0.5f, 1);
    in->cu_seqlens = cu;
    in->scale = k->delta ? 1 / sqrtf((float)k->dk) : 1;
    in->unit_eps = k->delta ? 1e-6f : 0;
    in->delta = k->delta;
    in->per_channel = k->channel;
    m->scan.o = fill(n * values, 0, 1);
    m->scan.ldo = values;
}

static void draw_backward(struct mixer *m, const struct kind *k, int64_t n)
{
    const int64_t keys = k->groups * k->dk, c = m->conv.c, hw = m->gate.lda;
    float *dy = fill(n * c, 0, 1);
    m->scan_bwd = (struct lf_k_scan_bwd){.in = m->scan.in, .dq = dy, .dk = dy + keys};
    m->scan_bwd.dv = dy + 2 * keys;
    m->scan_bwd.d_o = fill(n * m->scan.ldo, -1, 1);
    m->scan_bwd.dg = fill(n * hw, 0, 1);
    m->scan_bwd.dbeta = fill(n * k->heads, 0, 1);
    m->scan_bwd.dskip = k->delta ? NULL : fill(k->heads, 0, 1);
    m->scan_bwd.lddo = m->scan.ldo;
    m->scan_bwd.lddq = m->scan_bwd.lddk = m->scan_bwd.lddv = c;
    m->scan_bwd.lddg = hw;
    m->scan_bwd.lddbeta = k->heads;
    m->gate_bwd = (struct lf_k_scan_gate_bwd){.rows = n, .heads = k->heads, .width = m->gate.width};
    m->gate_bwd.lda = m->gate_bwd.ldda = hw;
    m->gate_bwd.ldb = m->gate_bwd.lddb = k->heads;
    m->gate_bwd.a = m->gate.a;
    m->gate_bwd.b = m->gate.b;
    m->gate_bwd.a_log = m->gate.a_log;
    m->gate_bwd.bias = m->gate.bias;
    m->gate_bwd.strength = 1;
    m->gate_bwd.dg = m->scan_bwd.dg;
    m->gate_bwd.dbeta = m->scan_bwd.dbeta;
    m->gate_bwd.da = fill(n * hw, 0, 1);
    m->gate_bwd.db = k->delta ? fill(n * k->heads, 0, 1) : NULL;
    m->gate_bwd.da_log = fill(k->heads, 0, 1);
    m->gate_bwd.dbias = fill(hw, 0, 1);
    m->gate_bwd.high = INFINITY;
    m->conv_bwd = (struct lf_k_conv_bwd){.rows = n, .c = c, .taps = TAPS, .n_docs = 1, .ldx = c};
    m->conv_bwd.lddy = m->conv_bwd.lddx = c;
    m->conv_bwd.x = m->conv.x;
    m->conv_bwd.dy = dy;
    m->conv_bwd.w = m->conv.w;
    m->conv_bwd.bias = m->conv.bias;
    m->conv_bwd.dx = fill(n * c, 0, 1);
    m->conv_bwd.dw = fill(c * TAPS, 0, 1);
    m->conv_bwd.dbias = m->conv.bias ? fill(c, 0, 1) : NULL;
    m->conv_bwd.cu_seqlens = m->conv.cu_seqlens;
    m->conv_bwd.act = LF_ACT_SILU;
}

/* Multiply-adds of a row and head: products with S, halves of the chunk's square. */
static double flops(const struct kind *k, int64_t n)
{
    const double states = k->delta ? 9 : 6, halves = k->delta ? 6 : 3;
    return 2 * (double)(n * k->heads) *
           (states * (double)(k->dk * k->dv) +
            halves * (LF_SCAN_CHUNK + 1) / 2.0 * (double)(k->dk + k->dv));
}

static void mixer(const struct lf_kernels *t, lf_queue *q, int threads, const struct kind *k,
                  int64_t n)
{
    struct mixer m = {0};
    double wall[3], cpu[3];
    draw_forward(&m, k, n);
    draw_backward(&m, k, n);
    m.scan.work_bytes = t->scan_fwd.work(&m.scan, threads);
    m.scan.work = fill((int64_t)m.scan.work_bytes / 4 + 1, 0, 0);
    m.scan_bwd.work_bytes = t->scan_bwd.work(&m.scan_bwd, threads);
    m.scan_bwd.work = fill((int64_t)m.scan_bwd.work_bytes / 4 + 1, 0, 0);
    for (int warm = 1; warm >= 0; warm--) {
        wall[0] = bench_wall(), cpu[0] = bench_cpu();
        need(t->conv_fwd.run(q, &m.conv));
        need(t->scan_gate_fwd.run(q, &m.gate));
        need(t->scan_fwd.run(q, &m.scan));
        wall[1] = bench_wall(), cpu[1] = bench_cpu();
        need(t->scan_bwd.run(q, &m.scan_bwd));
        need(t->scan_gate_bwd.run(q, &m.gate_bwd));
        need(t->conv_bwd.run(q, &m.conv_bwd));
        wall[2] = bench_wall(), cpu[2] = bench_cpu();
    }
    printf("%.6f %.6f %.6f %.6f %.0f %s\n", wall[1] - wall[0], cpu[1] - cpu[0], wall[2] - wall[1],
           cpu[2] - cpu[1], flops(k, n), t->family);
}

static void product(const struct lf_kernels *t, lf_queue *q, int threads)
{
    enum { M = 1024, N = 768, K = 768 };
    struct lf_k_gemm g = {.m = M, .n = N, .k = K, .lda = K, .ldb = K, .ldc = N, .tb = true};
    double wall = 0, cpu = 0;
    g.a = fill(M * K, -1, 1);
    g.b = fill(N * K, -1, 1);
    g.c = fill(M * N, 0, 1);
    g.mode = LF_INVARIANT;
    g.work_bytes = t->gemm.work(&g, threads);
    g.work = fill((int64_t)g.work_bytes / 4 + 1, 0, 0);
    for (int warm = 1; warm >= 0; warm--) {
        wall = bench_wall(), cpu = bench_cpu();
        need(t->gemm.run(q, &g));
        wall = bench_wall() - wall, cpu = bench_cpu() - cpu;
    }
    printf("%.6f %.6f 0 0 %.0f %s\n", wall, cpu, 2.0 * M * N * K, t->family);
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    const struct lf_kernels *t = lf_cpu_kernels(lf_cpu_isa_detect());
    lf_queue *q = lf_cpu_queue_create(threads);
    char name[16];
    long n;
    while (q && scanf("%15s %ld", name, &n) == 2) {
        if (strcmp(name, "product") == 0)
            product(t, q, threads);
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (strcmp(name, kinds[i].name) == 0 && n > 0)
                mixer(t, q, threads, &kinds[i], n);
        fflush(stdout);
        while (n_held)
            free(held[--n_held]);
    }
    lf_cpu_queue_destroy(q);
    return 0;
}
