/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory-bound kernels against the read bandwidth measured in the same rounds: AdamW over GPT-2
 * 124M's parameters, the gradient norm, normalisation, activations, rotary positions, embedding.
 * Bytes are what the kernel must move (each operand once; a stored line counts once).
 *
 *   stream_bench [-t threads] [-r rounds] [-i isa]
 */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/bench/bench.h"

enum {
    MAX_ROUNDS = 101,
    HUGE = 2 << 20,
    R = 1024,
    C = 768,
    FF = 3072,
    V = 50257,
    PARAMS = 124439808
};

static struct {
    int threads, rounds;
    const struct lf_kernels *k;
    lf_queue *q;
    const void *probe;
    size_t probe_bytes;
} o = {.threads = 1, .rounds = 9};

static void *pages(size_t bytes)
{
    bytes = (bytes + HUGE - 1) / HUGE * HUGE;
    void *p = aligned_alloc(HUGE, bytes);
    if (!p)
        exit(1);
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes);
    return p;
}

static void *fill(int64_t n, int bf16, uint32_t seed)
{
    void *p = pages((size_t)n * (bf16 ? 2 : 4));
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

/* Times one kernel; `run` is called with its arguments. */
static void measure(const char *name, int bf16, double bytes, int (*run)(const void *),
                    const void *args)
{
    double wall[MAX_ROUNDS], busy[MAX_ROUNDS], rate[MAX_ROUNDS];
    for (int r = -1; r < o.rounds; r++) {
        double reads = lf_cpu_read_rate(o.probe, o.probe_bytes, o.threads), c = bench_cpu(),
               w = bench_wall();
        if (run(args))
            exit(1);
        if (r >= 0) {
            wall[r] = bench_wall() - w;
            busy[r] = (bench_cpu() - c) / o.threads;
            rate[r] = reads;
        }
    }
    double w = bench_median(wall, o.rounds), b = bench_median(busy, o.rounds),
           top = bench_median(rate, o.rounds);
    printf("%-4s %-24s wall %8.3f ms %6.1f GB/s %5.1f %%  busy %5.1f %%  of reads at %.1f GB/s\n",
           bf16 ? "bf16" : "f32", name, w * 1e3, bytes / w * 1e-9, 100 * bytes / w / top,
           100 * bytes / b / top, top * 1e-9);
    fflush(stdout);
}

#define RUNNER(kernel)                                                                             \
    static int run_##kernel(const void *a)                                                         \
    {                                                                                              \
        return o.k->kernel.run(o.q, (const struct lf_k_##kernel *)a);                              \
    }
RUNNER(adamw)
RUNNER(grad_norm)
RUNNER(norm_fwd)
RUNNER(norm_bwd)
RUNNER(act_fwd)
RUNNER(act_bwd)
RUNNER(glu_fwd)
RUNNER(glu_bwd)
RUNNER(rope)
RUNNER(embed_fwd)
RUNNER(embed_bwd)
RUNNER(dropout)
RUNNER(axpby)

static void optimizer(void)
{
    float *p = fill(PARAMS, 0, 1), *m = fill(PARAMS, 0, 2), *v = pages((size_t)PARAMS * 4),
          *g = fill(PARAMS, 0, 3);
    struct lf_step_record rec = {.lr = 1e-4f,
                                 .bias_corr1 = 0.1f,
                                 .bias_corr2 = 0.05f,
                                 .clip_norm = 1,
                                 .loss_scale = 1,
                                 .clip_factor = 1};
    struct lf_opt_tensor t = {.n = PARAMS,
                              .master = p,
                              .m = m,
                              .v = v,
                              .grad = g,
                              .copy = NULL,
                              .lr_scale = 1,
                              .weight_decay = 0.1f};
    struct lf_k_adamw a = {
        .n_tensors = 1, .t = &t, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .rec = &rec};
    o.probe = g;
    o.probe_bytes = (size_t)PARAMS * 4;
    measure("adamw 124.4M", 0, 28.0 * PARAMS, run_adamw, &a);
    void *copy = t.copy = pages((size_t)PARAMS * 2);
    measure("adamw 124.4M + bf16 copy", 0, 30.0 * PARAMS, run_adamw, &a);
    t.moment_type = LF_BF16;
    measure("adamw, bf16 moments", 0, 22.0 * PARAMS, run_adamw, &a);
    a.stochastic = true;
    measure("  rounded at random", 0, 22.0 * PARAMS, run_adamw, &a);
    t.master_type = LF_BF16;
    t.copy = NULL;
    measure("  and bf16 weights", 0, 16.0 * PARAMS, run_adamw, &a);
    struct lf_k_grad_norm n = {.n_tensors = 1,
                               .t = &t,
                               .rec = &rec,
                               .n_sums = (PARAMS + LF_NORM_BLOCK - 1) / LF_NORM_BLOCK};
    n.work_bytes = o.k->grad_norm.work(&n, o.threads);
    n.work = pages(n.work_bytes);
    measure("grad_norm 124.4M", 0, 4.0 * PARAMS, run_grad_norm, &n);
    free(n.work);
    free(copy);
    free(p);
    free(m);
    free(v);
}

/* What the kernels over rows read and write, in one of the two types. */
struct row_mem {
    int bf16;
    uint8_t t;
    double e; /* bytes of an element */
    void *x, *delta, *sum, *y, *w, *b, *big, *up, *dy, *dup;
    float *mean, *rstd, *dw, *db, *cs, *sn, *table;
    int32_t *pos, *tok;
    int64_t *sample;
};

static void rows_alloc(struct row_mem *m, int bf16)
{
    *m = (struct row_mem){.bf16 = bf16, .t = bf16 ? LF_BF16 : LF_F32, .e = bf16 ? 2 : 4};
    m->x = fill(R * C, bf16, 1), m->delta = fill(R * C, bf16, 2), m->w = fill(C, 0, 3),
    m->b = fill(C, 0, 4);
    m->sum = pages(R * C * 4), m->y = pages(R * FF * 4), m->dup = pages((size_t)R * FF * 4);
    m->big = fill((int64_t)R * FF, bf16, 5), m->up = fill((int64_t)R * FF, bf16, 6),
    m->dy = fill((int64_t)R * FF, bf16, 7);
    m->mean = fill(R, 0, 8), m->rstd = fill(R, 0, 9), m->dw = pages(C * 4), m->db = pages(C * 4);
    m->cs = fill(256 * 32, 0, 10), m->sn = fill(256 * 32, 0, 11),
    m->table = fill((int64_t)V * C, 0, 12);
    m->pos = pages(R * 4), m->tok = pages(R * 4), m->sample = pages(R * 8);
    for (int i = 0; i < R; i++) {
        m->pos[i] = i % 256;
        m->tok[i] = (int32_t)((uint32_t)i * 2654435761u % V);
    }
}

static void rows_free(const struct row_mem *m)
{
    void *all[] = {m->x,  m->delta, m->sum,   m->y,    m->w,    m->b,     m->big,
                   m->up, m->dy,    m->dup,   m->mean, m->rstd, m->dw,    m->db,
                   m->cs, m->sn,    m->table, m->pos,  m->tok,  m->sample};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void norms(const struct row_mem *m)
{
    struct lf_k_norm_fwd nf = {.rows = R,
                               .heads = 1,
                               .c = C,
                               .x = m->x,
                               .delta = m->delta,
                               .w = m->w,
                               .b = m->b,
                               .sum = m->sum,
                               .y = m->y,
                               .mean = m->mean,
                               .rstd = m->rstd,
                               .ldx = C,
                               .lddelta = C,
                               .ldsum = C,
                               .ldy = C,
                               .eps = 1e-5f,
                               .layer = true,
                               .x_type = m->t,
                               .y_type = m->t,
                               .w_type = LF_F32};
    measure("layernorm + residual fwd", m->bf16, 4 * m->e * R * C, run_norm_fwd, &nf);
    struct lf_k_norm_bwd nb = {.rows = R,
                               .heads = 1,
                               .c = C,
                               .x = m->x,
                               .dy = m->dy,
                               .dres = m->delta,
                               .w = m->w,
                               .mean = m->mean,
                               .rstd = m->rstd,
                               .dx = m->y,
                               .dw = m->dw,
                               .db = m->db,
                               .ldx = C,
                               .lddy = C,
                               .lddres = C,
                               .lddx = C,
                               .layer = true,
                               .x_type = m->t,
                               .dy_type = m->t,
                               .w_type = LF_F32};
    nb.work_bytes = o.k->norm_bwd.work(&nb, o.threads);
    nb.work = pages(nb.work_bytes);
    measure("layernorm + residual bwd", m->bf16, 4 * m->e * R * C, run_norm_bwd, &nb);
    free(nb.work);
}

static void activations(const struct row_mem *m)
{
    struct lf_k_act_fwd af = {.rows = R,
                              .c = FF,
                              .ldx = FF,
                              .ldy = FF,
                              .x = m->big,
                              .y = m->y,
                              .act = LF_ACT_GELU_TANH,
                              .x_type = m->t};
    measure("gelu_tanh fwd", m->bf16, 2 * m->e * R * FF, run_act_fwd, &af);
    struct lf_k_act_bwd ab = {.rows = R,
                              .c = FF,
                              .ldx = FF,
                              .lddy = FF,
                              .lddx = FF,
                              .x = m->big,
                              .dy = m->dy,
                              .dx = m->y,
                              .act = LF_ACT_GELU_TANH,
                              .x_type = m->t};
    measure("gelu_tanh bwd", m->bf16, 3 * m->e * R * FF, run_act_bwd, &ab);
}

static void gated(const struct row_mem *m)
{
    struct lf_k_glu_fwd gf = {.rows = R,
                              .c = FF,
                              .ldg = FF,
                              .ldu = FF,
                              .ldy = FF,
                              .gate = m->big,
                              .up = m->up,
                              .y = m->y,
                              .act = LF_ACT_SILU,
                              .x_type = m->t};
    measure("swiglu fwd", m->bf16, 3 * m->e * R * FF, run_glu_fwd, &gf);
    struct lf_k_glu_bwd gb = {.rows = R,
                              .c = FF,
                              .ldg = FF,
                              .ldu = FF,
                              .lddy = FF,
                              .lddg = FF,
                              .lddu = FF,
                              .gate = m->big,
                              .up = m->up,
                              .dy = m->dy,
                              .dgate = m->y,
                              .dup = m->dup,
                              .act = LF_ACT_SILU,
                              .x_type = m->t};
    measure("swiglu bwd", m->bf16, 5 * m->e * R * FF, run_glu_bwd, &gb);
}

static void rotary(const struct row_mem *m)
{
    struct lf_k_rope ro = {.rows = R,
                           .heads = 24,
                           .d = 64,
                           .rot = 64,
                           .max_pos = 256,
                           .x = m->big,
                           .y = m->big,
                           .ldx = FF,
                           .ldy = FF,
                           .position = m->pos,
                           .cos = m->cs,
                           .sin = m->sn,
                           .x_type = m->t};
    measure("rope, 24 heads of 64", m->bf16, 2 * m->e * R * 24 * 64, run_rope, &ro);
}

static void sums(const struct row_mem *m)
{
    struct lf_step_record rec = {.seed = 1};
    struct lf_k_dropout dr = {.rows = R,
                              .c = C,
                              .ldx = C,
                              .ldres = C,
                              .ldy = C,
                              .x = m->x,
                              .residual = m->delta,
                              .y = m->y,
                              .sample = m->sample,
                              .position = m->pos,
                              .p = 0.1f,
                              .site = 1,
                              .x_type = m->t,
                              .rec = &rec};
    measure("dropout + residual", m->bf16, 3 * m->e * R * C, run_dropout, &dr);
    struct lf_k_axpby ax = {.n = (int64_t)R * FF,
                            .a = m->big,
                            .b = m->up,
                            .y = m->y,
                            .alpha = 1,
                            .beta = 1,
                            .a_type = m->t,
                            .b_type = m->t,
                            .y_type = m->t};
    measure("sum of two", m->bf16, 3 * m->e * R * FF, run_axpby, &ax);
}

static void embedding(const struct row_mem *m)
{
    struct lf_k_embed_fwd ef = {.rows = R,
                                .c = C,
                                .v = V,
                                .max_pos = 256,
                                .token = m->tok,
                                .position = m->pos,
                                .wte = m->table,
                                .wpe = m->table,
                                .y = m->y,
                                .scale = 1,
                                .w_type = LF_F32,
                                .y_type = m->t};
    measure("embedding fwd", m->bf16, (8 + m->e) * R * C, run_embed_fwd, &ef);
    struct lf_k_embed_bwd eb = {.rows = R,
                                .c = C,
                                .v = V,
                                .max_pos = 256,
                                .token = m->tok,
                                .position = m->pos,
                                .dy = m->dy,
                                .dwte = m->table,
                                .scale = 1,
                                .accumulate = true,
                                .dy_type = m->t};
    measure("embedding bwd, V 50257", m->bf16, (8 + m->e) * R * C, run_embed_bwd, &eb);
}

static void rows(int bf16)
{
    struct row_mem m;
    rows_alloc(&m, bf16);
    norms(&m);
    activations(&m);
    gated(&m);
    rotary(&m);
    sums(&m);
    embedding(&m);
    rows_free(&m);
}

int main(int argc, char **argv)
{
    enum lf_isa isa = lf_cpu_isa_detect();
    int c;
    while ((c = getopt(argc, argv, "t:r:i:")) != -1) {
        const int v = optarg ? (int)strtol(optarg, NULL, 10) : 0;
        if (c == 't' && v > 0)
            o.threads = v;
        else if (c == 'r' && v > 0 && v < MAX_ROUNDS)
            o.rounds = v;
        else if (c == 'i' && v >= 0 && v < LF_ISAS)
            isa = (enum lf_isa)v;
        else {
            fprintf(stderr, "usage: stream_bench [-t threads] [-r rounds] [-i isa 0..7]\n");
            return 2;
        }
    }
    o.k = lf_cpu_kernels(isa);
    o.q = lf_cpu_queue_create(o.threads);
    if (!o.k || !o.q)
        return 1;
    printf("%s, %d threads\n", o.k->family, o.threads);
    optimizer();
    rows(0);
    rows(1);
    lf_cpu_queue_destroy(o.q);
    return 0;
}
