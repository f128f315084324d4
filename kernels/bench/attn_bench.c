/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention against the FMA peak (forward and backward, FLOPs counted over the visible keys only: 4
 * D and 10 D for each query and key) and decoding over the paged cache against the read bandwidth,
 * both measured between the samples.
 *
 *   attn_bench [-t threads] [-r rounds] [-i isa] [-d head size] [-l document length] [-p 1 fwd|2
 *   bwd|3 decode]
 *
 * wall: by the clock; busy: per CPU second used, which other processes disturb less.
 */
#include "config.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/bench/bench.h"

enum { MAX_ROUNDS = 101, PAGE = 64, HUGE = 2 << 20 };

struct opts {
    int threads, rounds;
    int64_t only_d, only_t;
    int part; /* 0 all, 1 forward, 2 backward, 3 decoding */
    enum lf_isa isa;
    const struct lf_kernels *k;
    lf_queue *q;
};

static void *fill(int64_t n, int bf16, uint32_t seed)
{
    const size_t bytes = ((size_t)(n + 64) * 4 + HUGE - 1) / HUGE * HUGE;
    void *p = aligned_alloc(HUGE, bytes);
    if (!p)
        exit(1);
    madvise(p, bytes, MADV_HUGEPAGE); /* as the engine's arenas */
    memset(p, 0, bytes);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        float f = (float)(seed >> 8) / 8388608.0f - 1.0f;
        if (bf16)
            memcpy((uint16_t *)p + i, (char *)&f + 2, 2);
        else
            ((float *)p)[i] = f;
    }
    return p;
}

struct samples {
    double wall[MAX_ROUNDS], busy[MAX_ROUNDS], ref[MAX_ROUNDS];
    int n;
};

static void report(const char *name, struct samples *s, double work, double ref, const char *unit)
{
    double w = bench_median(s->wall, s->n), b = bench_median(s->busy, s->n);
    printf("%s wall %7.3f ms %7.1f %s %5.1f %%  busy %5.1f %%  of %.1f\n", name, w * 1e3,
           work / w * 1e-9, unit, 100 * work / w / ref, 100 * work / b / ref, ref * 1e-9);
    fflush(stdout);
}

static void training(const struct opts *o, int bf16, int64_t docs, int64_t t, int64_t h, int64_t g,
                     int64_t d)
{
    const int64_t rows = docs * t, ldq = (h + 2 * g) * d, hd = h * d;
    int32_t cu[64];
    for (int64_t i = 0; i <= docs; i++)
        cu[i] = (int32_t)(i * t);
    char *qkv = fill(rows * ldq, bf16, 1);
    const int64_t size = bf16 ? 2 : 4;
    struct lf_k_attn_fwd f = {.rows = rows,
                              .heads = h,
                              .groups = g,
                              .d = d,
                              .d_value = d,
                              .n_docs = docs,
                              .q = qkv,
                              .k = qkv + hd * size,
                              .v = qkv + (hd + g * d) * size,
                              .o = fill(rows * hd, bf16, 2),
                              .lse = fill(rows * h, 0, 3),
                              .ldq = ldq,
                              .ldk = ldq,
                              .ldv = ldq,
                              .ldo = hd,
                              .cu_seqlens = cu,
                              .scale = 0.125f,
                              .causal = true,
                              .x_type = bf16 ? LF_BF16 : LF_F32};
    void *d_o = fill(rows * hd, bf16, 5);
    char *grad = fill(rows * ldq, bf16, 4);
    struct lf_k_attn_bwd b = {.rows = rows,
                              .heads = h,
                              .groups = g,
                              .d = d,
                              .d_value = d,
                              .n_docs = docs,
                              .q = f.q,
                              .k = f.k,
                              .v = f.v,
                              .o = f.o,
                              .d_o = d_o,
                              .lse = f.lse,
                              .dq = grad,
                              .dk = grad + hd * size,
                              .dv = grad + (hd + g * d) * size,
                              .ldq = ldq,
                              .ldk = ldq,
                              .ldv = ldq,
                              .ldo = hd,
                              .lddo = hd,
                              .lddq = ldq,
                              .lddk = ldq,
                              .lddv = ldq,
                              .cu_seqlens = cu,
                              .scale = 0.125f,
                              .causal = true,
                              .x_type = f.x_type};
    f.work_bytes = o->k->attn_fwd.work(&f, o->threads);
    f.work = fill((int64_t)f.work_bytes / 4, 0, 6);
    b.work_bytes = o->k->attn_bwd.work(&b, o->threads);
    b.work = fill((int64_t)b.work_bytes / 4, 0, 7);
    struct samples s[2] = {{.n = 0}, {.n = 0}};
    double peak[MAX_ROUNDS];
    for (int r = 0; r < o->rounds; r++) {
        peak[r] = lf_cpu_fma_peak(o->isa, o->threads, bf16);
        for (int m = 0; m < 2; m++) {
            if (r > 0 && o->part && o->part != m + 1)
                continue; /* the first round runs both: the backward wants lse */
            double c = bench_cpu(), w = bench_wall();
            if (m ? o->k->attn_bwd.run(o->q, &b) : o->k->attn_fwd.run(o->q, &f))
                exit(1);
            s[m].wall[s[m].n] = bench_wall() - w;
            s[m].busy[s[m].n++] = (bench_cpu() - c) / o->threads;
        }
    }
    bench_median(peak, o->rounds); /* sorts them */
    const double top = peak[o->rounds * 9 / 10],
                 pairs = (double)(docs * h) * (double)t * (double)(t + 1) / 2;
    char name[2][96];
    for (int m = 0; m < 2; m++) {
        snprintf(name[m], sizeof name[m], "%-4s %s B %2lld T %4lld H %2lld G %2lld D %3lld",
                 bf16 ? "bf16" : "f32", m ? "bwd" : "fwd", (long long)docs, (long long)t,
                 (long long)h, (long long)g, (long long)d);
        report(name[m], &s[m], (m ? 10.0 : 4.0) * (double)d * pairs, top, "GF/s");
    }
    free(qkv);
    free(grad);
    free(f.o);
    free(f.lse);
    free(d_o);
    free(f.work);
    free(b.work);
}

static void decoding(const struct opts *o, int bf16, int64_t seqs, int64_t t, int64_t h, int64_t g,
                     int64_t d)
{
    const int64_t pages = t / PAGE, cells = seqs * t * g * d;
    int32_t *table = malloc((size_t)(seqs * pages) * 4), seq[64], pos[64];
    for (int64_t i = 0; i < seqs * pages; i++)
        table[i] = (int32_t)((i * 7) % (seqs * pages)); /* page counts here are powers of two */
    for (int64_t i = 0; i < seqs; i++) {
        seq[i] = (int32_t)i;
        pos[i] = (int32_t)(t - 1);
    }
    void *q = fill(seqs * h * d, bf16, 1), *kp = fill(cells, bf16, 2), *vp = fill(cells, bf16, 3);
    struct lf_k_attn_paged a = {.rows = seqs,
                                .heads = h,
                                .groups = g,
                                .d = d,
                                .d_value = d,
                                .page_tokens = PAGE,
                                .max_pages = pages,
                                .q = q,
                                .k_pages = kp,
                                .v_pages = vp,
                                .o = fill(seqs * h * d, bf16, 4),
                                .ldq = h * d,
                                .ldo = h * d,
                                .seq = seq,
                                .pos = pos,
                                .table = table,
                                .scale = 0.125f,
                                .x_type = bf16 ? LF_BF16 : LF_F32};
    a.work_bytes = o->k->attn_paged.work(&a, o->threads);
    a.work = fill((int64_t)a.work_bytes / 4, 0, 5);
    struct samples s = {.n = 0};
    double rate[MAX_ROUNDS];
    const double bytes = 2.0 * (double)cells * (bf16 ? 2 : 4);
    for (int r = 0; r < o->rounds; r++) {
        rate[r] = lf_cpu_read_rate(a.k_pages, (size_t)bytes / 2, o->threads);
        double c = bench_cpu(), w = bench_wall();
        if (o->k->attn_paged.run(o->q, &a))
            exit(1);
        s.wall[s.n] = bench_wall() - w;
        s.busy[s.n++] = (bench_cpu() - c) / o->threads;
    }
    char name[96];
    snprintf(name, sizeof name, "%-4s decode B %2lld T %5lld H %2lld G %2lld D %3lld (%.0f MB)",
             bf16 ? "bf16" : "f32", (long long)seqs, (long long)t, (long long)h, (long long)g,
             (long long)d, bytes * 1e-6);
    report(name, &s, bytes, bench_median(rate, o->rounds), "GB/s");
    free(q);
    free(kp);
    free(vp);
    free(a.o);
    free(a.work);
    free(table);
}

int main(int argc, char **argv)
{
    struct opts o = {.threads = 1, .rounds = 15, .isa = lf_cpu_isa_detect()};
    int c;
    while ((c = getopt(argc, argv, "t:r:i:d:l:p:")) != -1) {
        const int number = optarg ? (int)strtol(optarg, NULL, 10) : 0;
        if (c == 't' && number > 0)
            o.threads = number;
        else if (c == 'r' && number > 0 && number < MAX_ROUNDS)
            o.rounds = number;
        else if (c == 'l')
            o.only_t = number;
        else if (c == 'p')
            o.part = number;
        else if (c == 'd')
            o.only_d = number;
        else if (c == 'i' && number >= 0 && number < LF_ISAS)
            o.isa = (enum lf_isa)number;
        else {
            fprintf(stderr, "usage: attn_bench [-t threads] [-r rounds] [-i isa 0..7] [-d head "
                            "size] [-l document "
                            "length] [-p 1 fwd|2 bwd|3 decode]\n");
            return 2;
        }
    }
    o.k = lf_cpu_kernels(o.isa);
    o.q = lf_cpu_queue_create(o.threads);
    if (!o.k || !o.q)
        return 1;
    printf("%s, %d threads\n", o.k->family, o.threads);
    static const int64_t shapes[][5] = {
        {4, 256, 12, 12, 64}, {4, 64, 12, 12, 64}, {2, 512, 8, 8, 64}, {1, 1024, 16, 4, 128},
        {2, 256, 8, 2, 80},   {2, 256, 8, 8, 96},  {1, 2048, 8, 8, 64}};
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            if (o.part != 3 && (!o.only_d || o.only_d == shapes[i][4]) &&
                (!o.only_t || o.only_t == shapes[i][1]))
                training(&o, bf16, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3],
                         shapes[i][4]);
    for (int bf16 = 0; bf16 < 2 && (o.part == 0 || o.part == 3); bf16++) {
        decoding(&o, bf16, 1, 16384, 12, 12, 64);
        decoding(&o, bf16, 8, 4096, 12, 12, 64);
        decoding(&o, bf16, 1, 16384, 32, 8, 128);
        decoding(&o, bf16, 8, 256, 12, 12, 64);
    }
    lf_cpu_queue_destroy(o.q);
    return 0;
}
