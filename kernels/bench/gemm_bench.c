/* SPDX-License-Identifier: Apache-2.0
 *
 * The three matrix products of a linear layer (y = x w^T, dx = dy w, dw = dy^T x) and the
 * weight-streaming product of decoding, ours and the `fast` mode's, with the FMA peak or the read
 * bandwidth measured in between; all take turns in every round.
 *
 *   gemm_bench [-t threads] [-r rounds] [-i isa] [-f fwd|bwdx|bwdw] [-d f32|bf16] [-s M,N,K]...
 *   gemm_bench -g ...          decoding: M = 1, 8, 16 over 124M weights, plain and packed
 *
 * wall: median GFLOP/s by the clock and its share of the peak; clean: how many samples had the
 * whole machine. busy: share of the peak per CPU second used, which other processes disturb less
 * (it hides waiting).
 */
#include "config.h"

#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/bench/bench.h"

enum { MAX_SHAPES = 64, MAX_ROUNDS = 101, HUGE = 2 << 20 };

struct opts {
    int threads, rounds, n_shapes;
    enum lf_isa isa;
    const char *form, *type;
    int64_t shape[MAX_SHAPES][3];
    bool gemv;
};

static void *pages(size_t bytes)
{
    void *p = aligned_alloc(HUGE, (bytes + HUGE - 1) / HUGE * HUGE);
    if (!p)
        exit(1);
    madvise(p, (bytes + HUGE - 1) / HUGE * HUGE, MADV_HUGEPAGE);
    return p;
}

static void *fill(int64_t n, int bf16, uint32_t seed)
{
    void *p = pages((size_t)n * (bf16 ? 2 : 4));
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        float f = (float)(seed >> 8) / 16777216.0f - 0.5f;
        if (bf16)
            memcpy((uint16_t *)p + i, (char *)&f + 2, 2);
        else
            ((float *)p)[i] = f;
    }
    return p;
}

struct samples {
    double wall[MAX_ROUNDS], busy[MAX_ROUNDS];
    int n, clean;
};

static void add_sample(struct samples *s, double wall, double cpu, int threads)
{
    s->busy[s->n] = cpu / threads;
    s->wall[s->n++] = wall;
    s->clean += cpu > 0.97 * threads * wall;
}

static void measure(const struct opts *o, const struct lf_kernels *k, lf_queue *q, const char *form,
                    int64_t M, int64_t N, int64_t K, int bf16)
{
    struct lf_k_gemm g = {
        .ab_type = bf16 ? LF_BF16 : LF_F32, .c_type = LF_F32, .mode = LF_INVARIANT};
    if (!strcmp(form, "fwd"))
        g.m = M, g.n = N, g.k = K, g.tb = true;
    else if (!strcmp(form, "bwdx"))
        g.m = M, g.n = K, g.k = N;
    else
        g.m = N, g.n = K, g.k = M, g.ta = true;
    g.lda = g.ta ? g.m : g.k;
    g.ldb = g.tb ? g.k : g.n;
    g.ldc = g.n;
    void *a = fill(g.m * g.k, bf16, 1), *b = fill(g.n * g.k, bf16, 2);
    g.a = a;
    g.b = b;
    g.c = fill(g.m * g.n, 0, 3);
    struct samples s[2] = {{.n = 0}, {.n = 0}};
    double peak[MAX_ROUNDS], flop = 2.0 * (double)M * (double)N * (double)K;
    int modes = 1;
    void *work[2] = {NULL, NULL};
    size_t bytes[2];
    for (int m = 0; m < 2; m++) {
        g.mode = m ? LF_FAST : LF_INVARIANT;
        bytes[m] = k->gemm.work(&g, o->threads);
        work[m] = pages(bytes[m]);
        memset(work[m], 0, bytes[m]);
    }
    modes = 2;
    for (int r = -1; r < o->rounds; r++) {
        double p = lf_cpu_fma_peak(o->isa, o->threads, bf16);
        if (r >= 0)
            peak[r] = p;
        for (int m = 0; m < modes; m++) {
            g.mode = m ? LF_FAST : LF_INVARIANT;
            g.work = work[m];
            g.work_bytes = bytes[m];
            double c = bench_cpu(), t = bench_wall();
            if (k->gemm.run(q, &g))
                exit(1);
            if (r >= 0)
                add_sample(&s[m], bench_wall() - t, bench_cpu() - c, o->threads);
        }
    }
    bench_median(peak, o->rounds); /* sorts them */
    double top = peak[o->rounds * 9 / 10];
    if (top == 0)
        top = 1e30;
    for (int m = 0; m < modes; m++) {
        double w = bench_median(s[m].wall, s[m].n), bu = bench_median(s[m].busy, s[m].n);
        printf("%-4s %-4s %5lld x %5lld x %5lld %-9s wall %6.1f GF/s %5.1f %%  best %5.1f %%  busy "
               "%5.1f %%  clean %d/%d  peak %.0f\n",
               bf16 ? "bf16" : "f32", form, (long long)M, (long long)N, (long long)K,
               m ? "fast" : "invariant", flop / w * 1e-9, 100 * flop / w / top,
               100 * flop / s[m].wall[0] / top, 100 * flop / bu / top, s[m].clean, s[m].n,
               top * 1e-9);
        free(work[m]);
    }
    fflush(stdout);
    free(a);
    free(b);
    free(g.c);
}

/* GPT-2 124M's weights as one [162048, 768] matrix: what a decoded token reads. */
static void decode(const struct opts *o, const struct lf_kernels *k, lf_queue *q, int bf16)
{
    const int64_t n = 162048, kk = 768, ms[] = {1, 8, 16};
    size_t bytes = (size_t)(n * kk) * (bf16 ? 2 : 4),
           pbytes = lf_cpu_gemm_packed_bytes(n, kk, bf16 ? LF_BF16 : LF_F32);
    void *w = fill(n * kk, bf16, 1), *x = fill(16 * kk, bf16, 2), *packed = pages(pbytes);
    struct lf_k_gemm_pack p = {.n = n,
                               .k = kk,
                               .b = w,
                               .ldb = kk,
                               .tb = true,
                               .src_type = bf16 ? LF_BF16 : LF_F32,
                               .ab_type = bf16 ? LF_BF16 : LF_F32,
                               .packed = packed,
                               .packed_bytes = pbytes};
    double t0 = bench_wall();
    if (k->gemm_pack.run(q, &p))
        exit(1);
    t0 = bench_wall() - t0;
    t0 = bench_wall();
    if (k->gemm_pack.run(q, &p))
        exit(1);
    t0 = bench_wall() - t0;
    printf("%-4s pack [%lld, %lld]: %.1f ms\n", bf16 ? "bf16" : "f32", (long long)n, (long long)kk,
           t0 * 1e3);
    float *c = pages((size_t)(16 * n) * 4);
    struct lf_k_gemm g = {.n = n,
                          .k = kk,
                          .a = x,
                          .b = w,
                          .c = c,
                          .lda = kk,
                          .ldb = kk,
                          .ldc = n,
                          .tb = true,
                          .ab_type = bf16 ? LF_BF16 : LF_F32,
                          .c_type = LF_F32,
                          .mode = LF_INVARIANT};
    for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
        struct samples s[2] = {{.n = 0}, {.n = 0}};
        double rate[MAX_ROUNDS], rate_busy[MAX_ROUNDS];
        g.m = ms[i];
        g.work_bytes = k->gemm.work(&g, o->threads);
        g.work = pages(g.work_bytes);
        for (int r = -1; r < o->rounds; r++) {
            double rc = bench_cpu(), rr = lf_cpu_read_rate(w, bytes, o->threads);
            rc = bench_cpu() - rc;
            if (r >= 0) {
                rate[r] = rr;
                rate_busy[r] = (double)bytes / rc * o->threads;
            }
            for (int m = 0; m < 2; m++) {
                g.b_packed = m ? packed : NULL;
                double cp = bench_cpu(), t = bench_wall();
                if (k->gemm.run(q, &g))
                    exit(1);
                if (r >= 0)
                    add_sample(&s[m], bench_wall() - t, bench_cpu() - cp, o->threads);
            }
        }
        double top = bench_median(rate, o->rounds), top_busy = bench_median(rate_busy, o->rounds);
        for (int m = 0; m < 2; m++) {
            double t = bench_median(s[m].wall, s[m].n),
                   busy = (double)bytes / bench_median(s[m].busy, s[m].n);
            printf("%-4s decode M %2lld %-8s %6.2f ms  %5.1f GB/s = %5.1f %% of reads (%.1f GB/s), "
                   "best %5.1f GB/s (best read %.1f)  "
                   "busy %5.1f of %.1f GB/s = %5.1f %%  clean %d/%d\n",
                   bf16 ? "bf16" : "f32", (long long)ms[i], m ? "packed" : "plain", t * 1e3,
                   (double)bytes / t * 1e-9, 100 * (double)bytes / t / top, top * 1e-9,
                   (double)bytes / s[m].wall[0] * 1e-9, rate[o->rounds - 1] * 1e-9, busy * 1e-9,
                   top_busy * 1e-9, 100 * busy / top_busy, s[m].clean, s[m].n);
        }
        free(g.work);
        fflush(stdout);
    }
    free(w);
    free(x);
    free(packed);
    free(c);
}

static int usage(void)
{
    fprintf(stderr, "usage: gemm_bench [-g] [-t threads] [-r rounds] [-i "
                    "plain|avx2|...] [-f fwd|bwdx|bwdw] "
                    "[-d f32|bf16] [-s M,N,K]...\n");
    return 2;
}

static int parse(int argc, char **argv, struct opts *o)
{
    int c;
    while ((c = getopt(argc, argv, "gt:r:i:f:d:s:")) != -1) {
        long long m, n, k;
        switch (c) {
        case 'g':
            o->gemv = true;
            break;
        case 't':
            o->threads = (int)strtol(optarg, NULL, 10);
            break;
        case 'r':
            o->rounds = (int)strtol(optarg, NULL, 10);
            break;
        case 'i':
            for (int i = 0; i < LF_ISAS; i++)
                if (!strcmp(optarg, lf_cpu_isa_name((enum lf_isa)i)))
                    o->isa = (enum lf_isa)i;
            break;
        case 'f':
            o->form = optarg;
            break;
        case 'd':
            o->type = optarg;
            break;
        case 's':
            if (sscanf(optarg, "%lld,%lld,%lld", &m, &n, &k) != 3 || o->n_shapes == MAX_SHAPES)
                return -1;
            o->shape[o->n_shapes][0] = m;
            o->shape[o->n_shapes][1] = n;
            o->shape[o->n_shapes++][2] = k;
            break;
        default:
            return -1;
        }
    }
    return o->threads >= 1 && o->rounds >= 1 && o->rounds <= MAX_ROUNDS ? 0 : -1;
}

int main(int argc, char **argv)
{
    static const int64_t shapes[][3] = {{512, 768, 768},    {2048, 768, 768},  {2048, 2304, 768},
                                        {1024, 3072, 768},  {2048, 768, 3072}, {2048, 1024, 1024},
                                        {2048, 2048, 2048}, {512, 4096, 4096}, {1024, 50304, 768}};
    static const char *const forms[] = {"fwd", "bwdx", "bwdw"};
    static struct opts o;
    o.threads = omp_get_num_procs();
    o.rounds = 9;
    o.isa = lf_cpu_isa_detect();
    if (parse(argc, argv, &o))
        return usage();
    if (o.n_shapes == 0)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            memcpy(o.shape[o.n_shapes++], shapes[i], sizeof *shapes);
    const struct lf_kernels *k = lf_cpu_kernels(o.isa);
    lf_queue *q = lf_cpu_queue_create(o.threads);
    if (!k || !q)
        return 1;
    printf("%s, %d threads, medians of %d\n", k->family, o.threads, o.rounds);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        if (o.type && !strcmp(o.type, bf16 ? "f32" : "bf16"))
            continue;
        if (o.gemv) {
            decode(&o, k, q, bf16);
            continue;
        }
        for (int i = 0; i < o.n_shapes; i++)
            for (int f = 0; f < 3; f++)
                if (!o.form || !strcmp(o.form, forms[f]))
                    measure(&o, k, q, forms[f], o.shape[i][0], o.shape[i][1], o.shape[i][2], bf16);
    }
    lf_cpu_queue_destroy(q);
    return 0;
}
