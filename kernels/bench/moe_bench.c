/* SPDX-License-Identifier: Apache-2.0
 *
 * Grouped products of experts beside two others of the same FLOPs in the same run: gemm called once
 * per expert, and one dense gemm with all rows and one expert's matrix. -u: uneven rows (expert e
 * gets a share proportional to e + 1).
 */
#include "config.h"

#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/bench/bench.h"

enum { MAX_ROUNDS = 50, MAX_GROUPS = 256 };

struct opts {
    int threads, rounds;
    enum lf_isa isa;
    bool uneven;
    const char *type;
};
struct shape {
    const char *name;
    int64_t experts, rows, ffn, hidden; /* rows per expert */
};

static void *pages(size_t bytes)
{
    void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!p)
        exit(1);
    memset(p, 0, (bytes + 4095) / 4096 * 4096);
    return p;
}

static void *fill(int64_t n, int bf16, uint32_t seed)
{
    void *p = pages((size_t)n * (bf16 ? 2 : 4));
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        float x = (float)(int32_t)seed * (1.0f / 2147483648.0f);
        uint32_t u;
        memcpy(&u, &x, 4);
        if (bf16)
            ((uint16_t *)p)[i] = (uint16_t)(u >> 16);
        else
            ((float *)p)[i] = x;
    }
    return p;
}

enum way { GROUPED, SEPARATE, DENSE, WAYS };

struct job {
    const struct lf_kernels *k;
    lf_queue *q;
    struct lf_k_grouped_gemm g;
    struct lf_k_gemm x; /* dense; separate takes rows and groups of it */
    size_t ea, ec;
};

static void separate(const struct job *j)
{
    for (int64_t e = 0; e < j->g.groups; e++) {
        const int64_t r = j->g.offsets[e], rows = j->g.offsets[e + 1] - r;
        struct lf_k_gemm x = j->x;
        if (rows == 0)
            continue;
        if (j->g.dw) {
            x.k = rows;
            x.b = (const char *)j->g.b + (size_t)(r * j->g.ldb) * j->ea;
            x.c = (float *)j->g.c + e * j->g.n * j->g.k;
        } else {
            x.m = rows;
            x.b = (const char *)j->g.b + (size_t)(e * j->g.n * j->g.k) * j->ea;
            x.c = (char *)j->g.c + (size_t)(r * j->g.ldc) * j->ec;
        }
        x.a = (const char *)j->g.a + (size_t)(r * j->g.lda) * j->ea;
        if (j->k->gemm.run(j->q, &x))
            exit(1);
    }
}

static void once(const struct job *j, enum way w)
{
    if (w == SEPARATE)
        separate(j);
    else if (w == GROUPED ? j->k->grouped_gemm.run(j->q, &j->g) : j->k->gemm.run(j->q, &j->x))
        exit(1);
}

static void offsets(int32_t *off, const struct shape *s, bool uneven)
{
    const int64_t all = s->experts * s->rows, sum = s->experts * (s->experts + 1) / 2;
    off[0] = 0;
    for (int64_t e = 0; e < s->experts; e++)
        off[e + 1] = (int32_t)(uneven ? all * ((e + 1) * (e + 2) / 2) / sum : (e + 1) * s->rows);
}

static void job_make(struct job *j, const struct opts *o, const struct shape *s, int form, int bf16,
                     const int32_t *off)
{
    const int64_t m = s->experts * s->rows, n = form == 1 ? s->hidden : s->ffn,
                  k = form == 1 ? s->ffn : s->hidden;
    const bool dw = form == 2;
    j->ea = bf16 ? 2 : 4;
    j->ec = bf16 && !dw ? 2 : 4;
    j->g = (struct lf_k_grouped_gemm){.m = m,
                                      .n = n,
                                      .k = k,
                                      .groups = s->experts,
                                      .offsets = off,
                                      .lda = dw ? n : k,
                                      .ldb = k,
                                      .ldc = n,
                                      .dw = dw,
                                      .tb = form == 0,
                                      .ab_type = bf16 ? LF_BF16 : LF_F32,
                                      .c_type = j->ec == 2 ? LF_BF16 : LF_F32};
    j->g.a = fill(m * j->g.lda, bf16, 1);
    j->g.b = dw ? fill(m * k, bf16, 2) : fill(s->experts * n * k, bf16, 2);
    j->g.c = pages((size_t)(dw ? s->experts * n * k : m * n) * j->ec);
    j->g.work_bytes = j->k->grouped_gemm.work(&j->g, o->threads);
    j->g.work = pages(j->g.work_bytes);
    j->x = (struct lf_k_gemm){.m = dw ? n : m,
                              .n = dw ? k : n,
                              .k = dw ? m : k,
                              .a = j->g.a,
                              .b = j->g.b,
                              .c = j->g.c,
                              .lda = j->g.lda,
                              .ldb = form == 1 ? n : k,
                              .ldc = dw ? k : n,
                              .ta = dw,
                              .tb = form == 0,
                              .ab_type = j->g.ab_type,
                              .c_type = j->g.c_type,
                              .bias_type = LF_F32,
                              .mode = LF_INVARIANT};
    j->x.work_bytes = 2 * j->k->gemm.work(&j->x, o->threads) +
                      ((size_t)64 << 20); /* smaller shapes may want more */
    j->x.work = pages(j->x.work_bytes);
}

static void measure(struct job *j, const struct opts *o, const struct shape *s, int form, int bf16)
{
    static const char *const form_name[] = {"fwd", "dx", "dw"};
    int32_t off[MAX_GROUPS + 1];
    double busy[WAYS][MAX_ROUNDS], wall[WAYS][MAX_ROUNDS], b[WAYS], w[WAYS];
    offsets(off, s, o->uneven);
    job_make(j, o, s, form, bf16, off);
    for (int r = -1; r < o->rounds; r++)
        for (int way = 0; way < WAYS; way++) {
            double c = bench_cpu(), t = bench_wall();
            once(j, (enum way)way);
            if (r >= 0) {
                wall[way][r] = bench_wall() - t;
                busy[way][r] = (bench_cpu() - c) / o->threads;
            }
        }
    for (int way = 0; way < WAYS; way++) {
        b[way] = bench_median(busy[way], o->rounds);
        w[way] = bench_median(wall[way], o->rounds);
    }
    const double flop = 2.0 * (double)(s->experts * s->rows) * (double)s->ffn * (double)s->hidden;
    printf("%-4s %-12s %-3s %3lld x %4lld rows, %5lld x %5lld  grouped %6.1f GF/s (CPU time)  of "
           "dense %5.2f  of separate %5.2f   "
           "(wall: of dense %5.2f, of separate %5.2f)\n",
           bf16 ? "bf16" : "f32", s->name, form_name[form], (long long)s->experts,
           (long long)s->rows, (long long)s->ffn, (long long)s->hidden, flop / b[GROUPED] * 1e-9,
           b[DENSE] / b[GROUPED], b[SEPARATE] / b[GROUPED], w[DENSE] / w[GROUPED],
           w[SEPARATE] / w[GROUPED]);
    fflush(stdout);
    const void *own[] = {j->g.a, j->g.b, j->g.c, j->g.work, j->x.work};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        free((void *)(uintptr_t)own[i]);
}

int main(int argc, char **argv)
{
    static const struct shape shapes[] = {
        {"mixtral/4", 8, 64, 3584, 1024},  {"mixtral/4", 8, 256, 3584, 1024},
        {"qwen3-moe", 32, 16, 768, 2048},  {"qwen3-moe", 32, 64, 768, 2048},
        {"qwen3-moe", 32, 128, 768, 2048}, {"deepseek", 16, 64, 1408, 2048},
        {"one token", 8, 1, 768, 2048},
    };
    struct opts o = {.threads = omp_get_num_procs(), .rounds = 7, .isa = lf_cpu_isa_detect()};
    int c;
    while ((c = getopt(argc, argv, "ut:r:d:i:")) != -1) {
        if (c == 'u')
            o.uneven = true;
        else if (c == 't')
            o.threads = (int)strtol(optarg, NULL, 10);
        else if (c == 'r')
            o.rounds = (int)strtol(optarg, NULL, 10);
        else if (c == 'd')
            o.type = optarg;
        else if (c == 'i')
            for (int i = 0; i < LF_ISAS; i++)
                o.isa =
                    strcmp(optarg, lf_cpu_isa_name((enum lf_isa)i)) == 0 ? (enum lf_isa)i : o.isa;
        if (c == '?' || o.threads < 1 || o.rounds < 1 || o.rounds > MAX_ROUNDS) {
            fprintf(stderr, "usage: moe_bench [-u] [-t threads] [-r rounds] [-d f32|bf16] [-i "
                            "plain|avx2|...]\n");
            return 2;
        }
    }
    struct job j = {.k = lf_cpu_kernels(o.isa), .q = lf_cpu_queue_create(o.threads)};
    if (!j.k || !j.q)
        return 1;
    printf("%s, %d threads, medians of %d\n", j.k->family, o.threads, o.rounds);
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes &&
                           !(o.type && strcmp(o.type, bf16 ? "f32" : "bf16") == 0);
             i++)
            for (int form = 0; form < 3; form++)
                measure(&j, &o, &shapes[i], form, bf16);
    lf_cpu_queue_destroy(j.q);
    return 0;
}
