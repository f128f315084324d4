/* SPDX-License-Identifier: Apache-2.0
 *
 * The hot kernels on GPU 0 at the shapes of Qwen2.5-1.5B and Llama-2-7B, as the table of
 * kernels/README.md: time, TFLOP/s or GB/s, and the share of the ceiling (dense bf16 of the data
 * sheet for matrix products and attention, measured copies within the device for the rest). bf16.
 * Medians of 20 after 5; between two samples 256 MiB are overwritten, so that nothing is found in
 * the L2.
 *
 *   gpu_kernels [WORD...]      rows whose name has one of the words
 *
 * Attention is measured twice where cuDNN is found: our own kernels, and with ", cudnn" in the name
 * that library's; a shape that it has no repeatable plan for shows our time again. So are our own
 * matrix products and attention on compute capability 9.0: those for any GPU, and with ", wgmma"
 * those of its own instructions, which all other rows use.
 *
 * LF_GPU_EMULATED=1: on the emulator with tiny shapes, to see that it runs; its times mean nothing.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/back/back.h"
#include "engine/base/f16.h"
#include "kernels/bench/bench.h"
#include "kernels/cuda/gemm_form.h"
#include "tests/cuda/emu/cudnn.h"
#include "tests/cuda/emu/run.h"

enum { SAMPLES = 20, WARM = 5 };

static lf_err err = LF_ERR_INIT;

struct bench {
    lf_back *b;
    struct lf_back_peak peak;
    bool emulated;
    char *flush; /* what a sample begins with overwriting */
    size_t flush_bytes;
    int words, failed;
    char **word;
};

static void need(int rc)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "gpu_kernels: %s\n", err.text);
    exit(1);
}

/* Device memory that lives until the process ends: a row's operands are small beside a GPU. */
static void *memory(struct bench *x, int64_t bytes)
{
    void *p = x->b->ops->alloc(x->b, (size_t)bytes, &err);
    need(p ? 0 : -1);
    return p;
}

/* n values around 0, bf16, f16 or f32. */
static void *values(struct bench *x, int64_t n, enum lf_dtype type)
{
    const size_t size = lf_dtype_size(type), chunk = 1 << 20;
    char *host = malloc(chunk * size), *dev = memory(x, n * (int64_t)size);
    uint32_t u = 1;
    need(host ? 0 : lf_fail(&err, LF_ENOMEM, "no memory"));
    for (size_t i = 0; i < chunk; i++) {
        u = u * 1664525u + 1013904223u;
        float f = (float)(u >> 8) / 8388608.0f - 1.0f;
        const uint16_t half = lf_f16_of(f);
        memcpy(host + i * size,
               type == LF_F16 ? (const char *)&half : (const char *)&f + (type == LF_BF16 ? 2 : 0),
               size);
    }
    for (size_t at = 0; at < (size_t)n; at += chunk)
        need(x->b->ops->copy_in(x->b, dev + at * size, host,
                                ((size_t)n - at < chunk ? (size_t)n - at : chunk) * size, &err));
    free(host);
    return dev;
}

static bool wanted(const struct bench *x, const char *name)
{
    for (int i = 0; i < x->words; i++)
        if (strstr(name, x->word[i]))
            return true;
    return x->words == 0;
}

/* Medians of one call, told as a row. flops 0: bytes count. */
static void row(struct bench *x, const char *name, int (*call)(lf_queue *, const void *),
                const void *args, double flops, double bytes)
{
    double s[SAMPLES], at[2];
    for (int i = -WARM; i < SAMPLES; i++) {
        need(x->b->ops->fill(x->b, x->flush, i & 1, x->flush_bytes, &err));
        need(x->b->ops->stamp(x->b, 0, &err));
        int rc = call(x->b->queue, args);
        if (rc) {
            printf("| %s | refused (%d) | | |\n", name, rc);
            x->failed++;
            return;
        }
        need(x->b->ops->stamp(x->b, 1, &err));
        need(x->b->ops->stamps(x->b, at, 2, &err));
        if (i >= 0)
            s[i] = at[1];
        if (x->emulated)
            break;
    }
    const double m = x->emulated ? at[1] : bench_median(s, SAMPLES);
    if (!(m > 0))
        printf("| %s | " BENCH_TOO_SHORT " | | |\n", name);
    else if (flops > 0)
        printf("| %s | %.3f ms | %.1f TFLOP/s | %.1f %% |\n", name, m * 1e3, flops / m * 1e-12,
               100 * flops / m / x->peak.bf16_flops);
    else
        printf("| %s | %.3f ms | %.1f GB/s | %.1f %% |\n", name, m * 1e3, bytes / m * 1e-9,
               100 * bytes / m / x->peak.bytes_per_s);
    fflush(stdout);
}

/* Uniform calls; a kernel that this build lacks is a row that says so. */
#define CALL(kernel)                                                                               \
    static const struct lf_kernels *table_##kernel;                                                \
    static int call_##kernel(lf_queue *q, const void *a)                                           \
    {                                                                                              \
        return table_##kernel->kernel.run ? table_##kernel->kernel.run(q, a) : LF_K_EINVAL;        \
    }
#define ROW(x, kernel, name, args, flops, bytes)                                                   \
    do {                                                                                           \
        table_##kernel = (x)->b->kernels;                                                          \
        row(x, name, call_##kernel, args, flops, bytes);                                           \
    } while (0)
#define WORKSPACE(x, kernel, a)                                                                    \
    do                                                                                             \
        if ((x)->b->kernels->kernel.work) {                                                        \
            (a)->work_bytes = (x)->b->kernels->kernel.work(a, 1);                                  \
            (a)->work = (a)->work_bytes ? memory(x, (int64_t)(a)->work_bytes) : NULL;              \
        }                                                                                          \
    while (0)
CALL(gemm)
CALL(norm_fwd)
CALL(norm_bwd)
CALL(glu_fwd)
CALL(glu_bwd)
CALL(attn_fwd)
CALL(attn_bwd)
CALL(adamw)
CALL(linear_xent)
CALL(sample)

/* Our own products and attention by one family of instructions from here on; false: there is no
 * such family here. */
static bool family(struct bench *x, bool wgmma)
{
    struct lf_cu_device *d = x->b->queue->dev;
    char why[200];
    setenv("LF_GEMM_CUDA", wgmma ? "wgmma" : "mma", 1);
    const bool there = lf_cu_wgmma_open(d, why, sizeof why) == LF_K_OK;
    unsetenv("LF_GEMM_CUDA");
    d->attn_wgmma = wgmma && there;
    return there;
}

static void own_product(struct bench *x, const char *name, struct lf_k_gemm *g, double flops,
                        double bytes)
{
    char full[160];
    WORKSPACE(x, gemm, g);
    family(x, false);
    ROW(x, gemm, name, g, flops, bytes);
    if (family(x, true)) {
        snprintf(full, sizeof full, "%s, wgmma", name);
        ROW(x, gemm, full, g, flops, bytes);
    }
}

/* Rows of a decoding step by weights [N, K]: the weights are what is read. */
static void decoding(struct bench *x, int64_t N, int64_t K)
{
    static const int64_t rows[] = {1, 16, 64, 256};
    char name[96];
    void *a = NULL, *w = NULL, *y = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int64_t M = rows[i];
        snprintf(name, sizeof name, "decode %lldx%lldx%lld", (long long)M, (long long)N,
                 (long long)K);
        if (!wanted(x, name))
            continue;
        a = a ? a : values(x, 256 * K, LF_BF16);
        w = w ? w : values(x, N * K, LF_BF16);
        y = y ? y : memory(x, 256 * N * 2);
        struct lf_k_gemm g = {.m = M,
                              .n = N,
                              .k = K,
                              .a = a,
                              .b = w,
                              .c = y,
                              .lda = K,
                              .ldb = K,
                              .ldc = N,
                              .tb = true,
                              .ab_type = LF_BF16,
                              .c_type = LF_BF16,
                              .mode = LF_INVARIANT};
        own_product(x, name, &g, 0, 2.0 * (double)(N * K + M * K + M * N));
    }
}

/* y = x w^T, dx = dy w, dw += dy^T x. */
static void products(struct bench *x, const char *layer, int64_t M, int64_t N, int64_t K)
{
    char name[96];
    snprintf(name, sizeof name, "gemm %s %lldx%lldx%lld", layer, (long long)M, (long long)N,
             (long long)K);
    if (!wanted(x, name))
        return;
    void *a = values(x, M * K, LF_BF16), *w = values(x, N * K, LF_BF16),
         *dy = values(x, M * N, LF_BF16);
    float *dw = memory(x, N * K * 4);
    const double flops = 2.0 * (double)M * (double)N * (double)K;
    struct lf_k_gemm f = {.m = M,
                          .n = N,
                          .k = K,
                          .a = a,
                          .b = w,
                          .c = dy,
                          .lda = K,
                          .ldb = K,
                          .ldc = N,
                          .tb = true,
                          .ab_type = LF_BF16,
                          .c_type = LF_BF16};
    struct lf_k_gemm dx = {.m = M,
                           .n = K,
                           .k = N,
                           .a = dy,
                           .b = w,
                           .c = a,
                           .lda = N,
                           .ldb = K,
                           .ldc = K,
                           .ab_type = LF_BF16,
                           .c_type = LF_BF16};
    struct lf_k_gemm g = {.m = N,
                          .n = K,
                          .k = M,
                          .a = dy,
                          .b = a,
                          .c = dw,
                          .lda = N,
                          .ldb = K,
                          .ldc = K,
                          .ta = true,
                          .accumulate = true,
                          .ab_type = LF_BF16,
                          .c_type = LF_F32};
    const struct {
        const char *what;
        struct lf_k_gemm *a;
    } each[] = {{"forward", &f}, {"dx", &dx}, {"dw", &g}};
    for (int mode = LF_FAST; mode <= LF_INVARIANT; mode++)
        for (int i = 0; i < 3; i++) {
            char full[128];
            each[i].a->mode = (uint8_t)mode;
            snprintf(full, sizeof full, "%s %s, %s", name, each[i].what,
                     mode == LF_FAST ? "fast" : "invariant");
            if (mode == LF_INVARIANT) {
                own_product(x, full, each[i].a, flops, 0);
                continue;
            }
            WORKSPACE(x, gemm, each[i].a);
            ROW(x, gemm, full, each[i].a, flops, 0);
        }
}

static void norms(struct bench *x, int64_t R, int64_t C)
{
    char name[96];
    snprintf(name, sizeof name, "rmsnorm %lldx%lld", (long long)R, (long long)C);
    if (!wanted(x, name))
        return;
    void *in = values(x, R * C, LF_BF16), *delta = values(x, R * C, LF_BF16),
         *w = values(x, C, LF_BF16), *y = memory(x, 2 * R * C);
    void *sum = memory(x, 2 * R * C);
    float *rstd = memory(x, 4 * R), *dw = memory(x, 4 * C);
    const struct lf_k_norm_fwd f = {.rows = R,
                                    .heads = 1,
                                    .c = C,
                                    .x = in,
                                    .delta = delta,
                                    .w = w,
                                    .sum = sum,
                                    .y = y,
                                    .rstd = rstd,
                                    .ldx = C,
                                    .lddelta = C,
                                    .ldsum = C,
                                    .ldy = C,
                                    .eps = 1e-5f,
                                    .x_type = LF_BF16,
                                    .y_type = LF_BF16,
                                    .w_type = LF_BF16};
    struct lf_k_norm_bwd b = {.rows = R,
                              .heads = 1,
                              .c = C,
                              .x = sum,
                              .dy = delta,
                              .dres = in,
                              .w = w,
                              .rstd = rstd,
                              .dx = y,
                              .dw = dw,
                              .ldx = C,
                              .lddy = C,
                              .lddres = C,
                              .lddx = C,
                              .x_type = LF_BF16,
                              .dy_type = LF_BF16,
                              .w_type = LF_BF16};
    char full[128];
    snprintf(full, sizeof full, "%s, residual + norm forward", name);
    ROW(x, norm_fwd, full, &f, 0, 8.0 * (double)(R * C));
    WORKSPACE(x, norm_bwd, &b);
    snprintf(full, sizeof full, "%s, backward", name);
    ROW(x, norm_bwd, full, &b, 0, 8.0 * (double)(R * C));
}

static void gates(struct bench *x, int64_t R, int64_t F)
{
    char name[96];
    snprintf(name, sizeof name, "swiglu %lldx%lld", (long long)R, (long long)F);
    if (!wanted(x, name))
        return;
    char *gu = values(x, 2 * R * F, LF_BF16), *y = values(x, R * F, LF_BF16),
         *d = memory(x, 4 * R * F), full[128];
    const struct lf_k_glu_fwd f = {.rows = R,
                                   .c = F,
                                   .ldg = 2 * F,
                                   .ldu = 2 * F,
                                   .ldy = F,
                                   .gate = gu,
                                   .up = gu + 2 * F,
                                   .y = y,
                                   .act = LF_ACT_SILU,
                                   .x_type = LF_BF16};
    const struct lf_k_glu_bwd b = {.rows = R,
                                   .c = F,
                                   .ldg = 2 * F,
                                   .ldu = 2 * F,
                                   .lddy = F,
                                   .lddg = 2 * F,
                                   .lddu = 2 * F,
                                   .gate = gu,
                                   .up = gu + 2 * F,
                                   .dy = y,
                                   .dgate = d,
                                   .dup = d + 2 * F,
                                   .act = LF_ACT_SILU,
                                   .x_type = LF_BF16};
    snprintf(full, sizeof full, "%s forward", name);
    ROW(x, glu_fwd, full, &f, 0, 6.0 * (double)(R * F));
    snprintf(full, sizeof full, "%s backward", name);
    ROW(x, glu_bwd, full, &b, 0, 10.0 * (double)(R * F));
}

/* ---- attention, our own kernels and cuDNN's ---- */

/* Whose attention the next calls are. False: there is no such library, or it is not wanted. */
static bool whose(struct bench *x, bool library)
{
    static bool told;
    struct lf_cu_device *d = x->b->queue->dev;
    struct lf_dnn emulated;
    char why[300] = "";
    setenv("LF_ATTN", library ? "cudnn" : "own", 1);
    lf_cudnn_close(d);
    if (!library)
        return true;
    lf_emu_cudnn(&emulated);
    if (!(x->emulated ? lf_cudnn_use(d, &emulated, why, sizeof why)
                      : lf_cudnn_open(d, why, sizeof why)))
        return true;
    if (!told)
        printf("| attention, cudnn | none: %s | | |\n", why);
    told = true;
    setenv("LF_ATTN", "own", 1);
    return false;
}

/* Documents of T tokens, `bound` of them at most (the others are empty). */
struct documents {
    int64_t docs, bound, T, H, G, D;
    enum lf_dtype type;
};

static void attention_of(struct bench *x, const char *name, const char *who,
                         struct lf_k_attn_fwd *f, struct lf_k_attn_bwd *b, double area)
{
    char full[160];
    WORKSPACE(x, attn_fwd, f);
    snprintf(full, sizeof full, "%s forward%s", name, who);
    ROW(x, attn_fwd, full, f, 4 * area, 0);
    WORKSPACE(x, attn_bwd, b);
    snprintf(full, sizeof full, "%s backward%s", name, who);
    ROW(x, attn_bwd, full, b, 10 * area, 0);
}

/* Causal: half of the keys. */
static void attention(struct bench *x, const struct documents *s)
{
    char name[96];
    const int64_t H = s->H, G = s->G, D = s->D, R = s->docs * s->T, ld = (H + 2 * G) * D;
    snprintf(name, sizeof name, "attention %lldx%lld H %lld G %lld D %lld%s%s", (long long)s->docs,
             (long long)s->T, (long long)H, (long long)G, (long long)D,
             s->type == LF_F16 ? " f16" : "", s->bound > s->docs ? " bound x8" : "");
    if (!wanted(x, name))
        return;
    char *qkv = values(x, R * ld, s->type), *d = memory(x, 2 * R * ld);
    void *o = memory(x, 2 * R * H * D), *d_o = values(x, R * H * D, s->type);
    float *lse = memory(x, 4 * R * H);
    int32_t *cu = memory(x, 4 * (s->bound + 1)), host[513];
    need(s->bound < 513 ? 0 : lf_fail(&err, LF_EINVAL, "too many documents"));
    for (int64_t i = 0; i <= s->bound; i++)
        host[i] = (int32_t)((i < s->docs ? i : s->docs) * s->T);
    need(x->b->ops->copy_in(x->b, cu, host, 4 * (size_t)(s->bound + 1), &err));
    struct lf_k_attn_fwd f = {.rows = R,
                              .heads = H,
                              .groups = G,
                              .d = D,
                              .d_value = D,
                              .n_docs = s->bound,
                              .max_doc = s->T,
                              .q = qkv,
                              .k = qkv + 2 * H * D,
                              .v = qkv + 2 * (H + G) * D,
                              .o = o,
                              .lse = lse,
                              .ldq = ld,
                              .ldk = ld,
                              .ldv = ld,
                              .ldo = H * D,
                              .cu_seqlens = cu,
                              .causal = true,
                              .scale = 1 / sqrtf((float)D),
                              .x_type = (uint8_t)s->type};
    struct lf_k_attn_bwd b = {.rows = R,
                              .heads = H,
                              .groups = G,
                              .d = D,
                              .d_value = D,
                              .n_docs = s->bound,
                              .max_doc = s->T,
                              .q = f.q,
                              .k = f.k,
                              .v = f.v,
                              .o = o,
                              .d_o = d_o,
                              .lse = lse,
                              .dq = d,
                              .dk = d + 2 * H * D,
                              .dv = d + 2 * (H + G) * D,
                              .ldq = ld,
                              .ldk = ld,
                              .ldv = ld,
                              .ldo = H * D,
                              .lddo = H * D,
                              .lddq = ld,
                              .lddk = ld,
                              .lddv = ld,
                              .cu_seqlens = cu,
                              .scale = f.scale,
                              .causal = true,
                              .x_type = (uint8_t)s->type};
    const double area = (double)s->docs * (double)s->T * (double)(s->T + 1) / 2 * (double)(H * D);
    if (whose(x, false)) {
        family(x, false);
        attention_of(x, name, "", &f, &b, area);
        if (family(x, true))
            attention_of(x, name, ", wgmma", &f, &b, area);
    }
    if (whose(x, true))
        attention_of(x, name, ", cudnn", &f, &b, area);
    whose(x, false);
}

/* When is cuDNN's faster? 16384 tokens of one length. */
static void attention_lengths(struct bench *x)
{
    for (int half = 0; half < 2; half++)
        for (int64_t D = 64; D <= 128; D *= 2)
            for (int64_t T = 512; T <= 8192; T *= 2)
                attention(x, &(struct documents){16384 / T, 16384 / T, T, 16, 4, D,
                                                 half ? LF_F16 : LF_BF16});
    attention(x, &(struct documents){8, 64, 2048, 16, 4, 128, LF_BF16});
}

/* Zeros, of the GPU or (host) of the host. */
static void *zeros(struct bench *x, int64_t bytes, bool host)
{
    void *p = host ? x->b->ops->alloc_host(x->b, (size_t)bytes, &err) : memory(x, bytes);
    need(p ? 0 : -1);
    return p;
}

/* One tensor of n weights; state: what weights and moments are kept in, bf16 rounded at random;
 * host: in the host's memory. */
static void adamw(struct bench *x, int64_t n, enum lf_dtype masters, enum lf_dtype moments,
                  bool host, const char *state)
{
    char name[96];
    const int64_t pe = (int64_t)lf_dtype_size(masters), me = (int64_t)lf_dtype_size(moments);
    snprintf(name, sizeof name, "adamw, %.3g weights, %s", (double)n, state);
    if (!wanted(x, name))
        return;
    struct lf_opt_tensor t = {.n = n,
                              .master = host ? zeros(x, pe * n, true) : values(x, n, masters),
                              .m = zeros(x, me * n, host),
                              .v = zeros(x, me * n, host),
                              .grad = values(x, n, LF_F32),
                              .copy = masters == LF_F32 ? memory(x, 2 * n) : NULL,
                              .copy_type = LF_BF16,
                              .master_type = (uint8_t)masters,
                              .moment_type = (uint8_t)moments,
                              .site = 1,
                              .lr_scale = 1,
                              .weight_decay = 0.1f};
    struct lf_step_record rec = {
        .lr = 1e-4f, .bias_corr1 = 0.5f, .bias_corr2 = 0.5f, .loss_scale = 1, .clip_factor = 1};
    struct lf_opt_tensor *dt = memory(x, sizeof t);
    struct lf_step_record *dr = memory(x, sizeof rec);
    need(x->b->ops->copy_in(x->b, dt, &t, sizeof t, &err));
    need(x->b->ops->copy_in(x->b, dr, &rec, sizeof rec, &err));
    const struct lf_k_adamw a = {.n_tensors = 1,
                                 .t = dt,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.95f,
                                 .eps = 1e-8f,
                                 .stochastic = true,
                                 .rec = dr};
    ROW(x, adamw, name, &a, 0, (double)((4 + 2 * pe + 4 * me + (t.copy ? 2 : 0)) * n));
}

static void optimizer(struct bench *x, int64_t n)
{
    adamw(x, n, LF_F32, LF_F32, false, "f32 state");
    adamw(x, n, LF_F32, LF_BF16, false, "bf16 moments");
    adamw(x, n, LF_BF16, LF_BF16, false, "bf16 state");
    adamw(x, n, LF_F32, LF_F32, true,
          /* GB/s of both directions of the bus together, and 6 bytes here */
          "f32 state of the host");
    adamw(x, n, LF_F32, LF_BF16, true, "bf16 moments, of the host");
}

/* Loss, dX and dW of the output layer. */
static void classifier(struct bench *x, int64_t R, int64_t K, int64_t V)
{
    char name[96];
    snprintf(name, sizeof name, "classifier %lldx%lldx%lld", (long long)R, (long long)V,
             (long long)K);
    if (!wanted(x, name))
        return;
    const struct lf_step_record rec = {.loss_scale = 1, .inv_tokens = 1};
    struct lf_step_record *dr = memory(x, sizeof rec);
    need(x->b->ops->copy_in(x->b, dr, &rec, sizeof rec, &err));
    struct lf_k_linear_xent a = {.rows = R,
                                 .k = K,
                                 .v = V,
                                 .v_real = V,
                                 .x = values(x, R * K, LF_BF16),
                                 .w = values(x, V * K, LF_BF16),
                                 .target = memory(x, 4 * R),
                                 .loss = memory(x, 4 * R),
                                 .lse = memory(x, 4 * R),
                                 .argmax = memory(x, 4 * R),
                                 .dx = memory(x, 2 * R * K),
                                 .dw = memory(x, 4 * V * K),
                                 .ldx = K,
                                 .ldw = K,
                                 .lddx = K,
                                 .x_type = LF_BF16,
                                 .rec = dr};
    WORKSPACE(x, linear_xent, &a);
    ROW(x, linear_xent, name, &a, 6.0 * (double)R * (double)K * (double)V, 0);
}

/* The next token of R rows of V logits. */
static void draws(struct bench *x, int64_t R, int64_t V)
{
    static const struct {
        const char *name;
        struct lf_sample_row row;
    } kinds[] = {
        {"greedy", {.scale = 0, .top_p = 1, .min_x = -INFINITY, .repetition = 1, .on = 1}},
        {"temperature", {.scale = 1.25, .top_p = 1, .min_x = -INFINITY, .repetition = 1, .on = 1}},
        {"top-k 50, top-p 0.9",
         {.scale = 1.25, .top_p = 0.9, .min_x = -INFINITY, .repetition = 1, .top_k = 50, .on = 1}}};
    struct lf_sample_row host[64];
    char name[96];
    snprintf(name, sizeof name, "sample %lldx%lld", (long long)R, (long long)V);
    if (!wanted(x, name))
        return;
    struct lf_sample_row *asked = memory(x, R * (int64_t)sizeof *asked);
    struct lf_k_sample a = {.rows = R,
                            .v = V,
                            .ldz = V,
                            .z = values(x, R * V, LF_F32),
                            .lse = memory(x, 4 * R),
                            .row = asked,
                            .list = memory(x, 16),
                            .out = memory(x, R * (int64_t)sizeof *a.out)};
    WORKSPACE(x, sample, &a);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char full[160];
        for (int64_t r = 0; r < R; r++) {
            host[r] = kinds[k].row;
            host[r].seed = (uint64_t)r;
        }
        need(x->b->ops->copy_in(x->b, asked, host, (size_t)R * sizeof *host, &err));
        snprintf(full, sizeof full, "%s, %s", name, kinds[k].name);
        ROW(x, sample, full, &a, 0, 4.0 * (double)(R * V));
    }
}

static void all(struct bench *x)
{
    if (x->emulated) {
        products(x, "tiny", 32, 48, 64);
        decoding(x, 48, 64);
        norms(x, 16, 64);
        gates(x, 16, 32);
        attention(x, &(struct documents){2, 2, 16, 2, 1, 64, LF_BF16});
        optimizer(x, 1000);
        classifier(x, 16, 64, 96);
        draws(x, 3, 5000);
        return;
    }
    products(x, "qwen2.5-1.5b qkv", 16384, 2048, 1536);
    products(x, "qwen2.5-1.5b gate up", 16384, 17920, 1536);
    products(x, "qwen2.5-1.5b down", 16384, 1536, 8960);
    products(x, "llama2-7b qkv", 8192, 12288, 4096);
    products(x, "llama2-7b gate up", 8192, 22016, 4096);
    products(x, "llama2-7b down", 8192, 4096, 11008);
    decoding(x, 2048, 1536);
    decoding(x, 1536, 8960);
    decoding(x, 4096, 4096);
    decoding(x, 22016, 4096);
    attention(x, &(struct documents){8, 8, 2048, 12, 2, 128, LF_BF16});
    attention(x, &(struct documents){4, 4, 4096, 12, 2, 128, LF_BF16});
    attention(x, &(struct documents){4, 4, 2048, 32, 32, 128, LF_BF16});
    attention(x, &(struct documents){8, 8, 2048, 12, 12, 64, LF_BF16});
    attention_lengths(x);
    classifier(x, 16384, 768, 50257);
    classifier(x, 8192, 1536, 151936);
    classifier(x, 8192, 4096, 32000);
    norms(x, 16384, 1536);
    norms(x, 8192, 4096);
    gates(x, 16384, 8960);
    gates(x, 8192, 11008);
    optimizer(x, 256 << 20);
    for (int64_t r = 1; r <= 64; r *= 64) {
        draws(x, r, 32000);
        draws(x, r, 151936);
    }
}

int main(int argc, char **argv)
{
    static struct lf_cu emulator;
    struct lf_cuda_opts o = {.threads = 1};
    const char *e = getenv("LF_GPU_EMULATED");
    struct bench x = {.emulated = e && *e == '1', .words = argc - 1, .word = argv + 1};
    if (x.emulated) {
        lf_emu_driver(&emulator);
        o.driver = &emulator;
    }
    x.b = lf_back_cuda_create(&o, &err);
    need(x.b ? x.b->ops->probe(x.b, LF_PEAK_ALL, &x.peak, &err) : -1);
    x.flush_bytes = x.emulated ? 1024 : (size_t)256 << 20;
    x.flush = memory(&x, (int64_t)x.flush_bytes);
    printf("%s: peak %.0f TFLOP/s bf16, copies at %.0f GB/s\n\n| kernel, bf16 | median | rate | "
           "share |\n|---|---|---|---|\n",
           x.b->device, x.peak.bf16_flops * 1e-12, x.peak.bytes_per_s * 1e-9);
    all(&x);
    lf_back_destroy(x.b);
    return x.failed ? 1 : 0;
}
