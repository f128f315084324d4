/* SPDX-License-Identifier: Apache-2.0
 *
 * The one list of kernels. Each has an argument struct here and one implementation per backend
 * (kernels/cpu, kernels/cuda), gathered in a struct lf_kernels. Kernels know plain pointers, sizes
 * and a queue; no tensors, no error boxes, no allocation, no I/O. The executor fills argument
 * structs once at plan time and only calls in the step loop; whatever changes between steps is read
 * from the step record.
 *
 * Conventions
 *   Matrices are row-major; ld* is the distance between rows in elements, >= the row length.
 *   R rows (tokens), C channels, K reduction, N outputs, H query heads, G key/value heads (groups),
 *   D head size, V vocabulary. "x_type" says the storage type; arithmetic is f32, each stored
 *   result is rounded once (round to nearest even). Accumulating outputs are marked (+)=:
 *   `accumulate` false overwrites, true adds. Pointers never alias unless the comment says so.
 *   Every kernel accepts zero rows. Determinism: results are a pure function of the arguments for a
 *   given kernel family (instruction set); they do not depend on the number of threads, nor on M,
 *   on neighbours or on where a row stands (for row-wise outputs). Reductions over rows (weight
 *   gradients) use a fixed tree over rows that does not depend on threads. mode LF_INVARIANT
 *   promises the above; LF_FAST may use a library whose promise is only run-to-run equality.
 * Return: 0, or LF_K_EINVAL for shapes/types the kernel does not have (reported when a plan is
 * bound, by running `check`).
 */
#ifndef LF_KERNELS_H
#define LF_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lf_dtype {
    LF_F32 = 0,
    LF_BF16,
    LF_F16,
    LF_F64,
    LF_I32,
    LF_I64,
    LF_U16,
    LF_U32,
    LF_U8,
    LF_E4M3,
    LF_E5M2,
    LF_DTYPE_COUNT
};

static inline size_t lf_dtype_size(enum lf_dtype t)
{
    static const unsigned char size[LF_DTYPE_COUNT] = {4, 2, 2, 8, 4, 8, 2, 4, 1, 1, 1};
    return size[t];
}

enum { LF_K_OK = 0, LF_K_EINVAL = -1, LF_K_EDEVICE = -6 };

enum lf_numeric { LF_FAST = 0, LF_INVARIANT = 1 };

enum lf_act {
    LF_ACT_NONE = 0,
    LF_ACT_GELU,       /* x * Phi(x), erf form */
    LF_ACT_GELU_TANH,  /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    LF_ACT_GELU_QUICK, /* x * sigmoid(1.702 x) */
    LF_ACT_SILU,       /* x * sigmoid(x) */
    LF_ACT_RELU
};

/* An ordered stream of work. On the CPU calls run at once with at most `threads` OpenMP threads. */
typedef struct lf_queue lf_queue;
lf_queue *lf_cpu_queue_create(int threads); /* threads >= 1; NULL when out of memory */
void lf_cpu_queue_destroy(lf_queue *q);
int lf_cpu_queue_threads(const lf_queue *q);

/* Values that change between steps, in device memory. Host writes the first group before the step,
 * kernels the second. */
struct lf_step_record {
    /* host -> device */
    uint64_t step;    /* optimizer steps done before this one */
    uint64_t seed;    /* of the run, for dropout */
    float lr;         /* learning rate of this step */
    float bias_corr1; /* 1 - beta1^(step+1) */
    float bias_corr2; /* 1 - beta2^(step+1) */
    float clip_norm;  /* <= 0: no clipping */
    float loss_scale; /* 1 unless fp16 */
    /* 1 / trained tokens of the whole optimizer step, over all micro-batches and ranks */
    float inv_tokens;
    float z_loss; /* coefficient, 0 = off */
    /* 1 / micro-batches of the whole optimizer step, over all ranks: weighs the router's losses */
    float inv_batches;
    /* device -> host */
    double loss_sum; /* sum over trained tokens of this step of -log p */
    double z_sum;    /* sum over trained tokens of logsumexp^2 */
    /* sum over trained tokens of the prediction's entropy, nats, by a linear_xent that gives
     * entropy */
    double entropy_sum;
    int64_t tokens;    /* trained tokens seen */
    int64_t correct;   /* trained tokens whose argmax is the target */
    float grad_norm;   /* of the unscaled gradient before clipping */
    float clip_factor; /* what the optimizer multiplies gradients by (includes 1/loss_scale) */
    /* non-finite gradient or loss, loss above its limit: the optimizer leaves everything as it
     * was */
    int32_t skip;
    int32_t reserved1;
    /* sums over micro-batches: load-balancing loss (moe_stats), without its coefficient */
    double router_aux;
    /* sums over micro-batches and MoE layers: mean entropy of the router, nats */
    double router_entropy;
    double router_load;  /* likewise: rows of the busiest expert / mean */
    int64_t router_seen; /* micro-batches x MoE layers */
    /* host -> device, before the optimizer */
    double loss_limit; /* a larger loss_sum counts as one that is not finite; 0: none does */
};

/* ---- matrix products ------------------------------------------------------------------------- */

/* C[M,N] = act( op(A)[M,K] op(B)[K,N] + bias[N] ) + residual[M,N]
 *   accumulate: C += op(A) op(B), no epilogue
 *   A stored [M,K] (ta false) or [K,M] (ta true);  B stored [K,N] (tb false) or [N,K] (tb true).
 *   a_type == b_type in {f32, bf16}; c_type f32 or bf16 (accumulate needs f32); bias f32 or bf16.
 *   pre, when not NULL, receives op(A)op(B)+bias before act, in c_type, row distance ldpre.
 *   residual has c_type; it may be C itself. The order is: product, + bias, round into pre, act, +
 *   residual, round. Before an act the value is rounded to c_type with pre NULL too, so inference
 *   and training see the same bits; without act and pre it is not. b_packed: panels made by
 *   gemm_pack from the same B, or NULL; then b may be NULL.
 *   Linear layer y = x w^T + b with w [N,K]: ta false, tb true.  dx = dy w: ta false, tb false.  dw
 *     (+)= dy^T x: ta true, tb false. */
struct lf_k_gemm {
    int64_t m, n, k;
    const void *a;
    const void *b;
    const void *b_packed;
    void *c;
    void *pre;
    const void *bias;
    const void *residual;
    int64_t lda, ldb, ldc, ldpre, ldres;
    bool ta, tb, accumulate;
    uint8_t ab_type, c_type, bias_type; /* enum lf_dtype */
    uint8_t act;                        /* enum lf_act */
    uint8_t mode;                       /* enum lf_numeric */
    void *work;
    size_t work_bytes;
};

/* Pack op(B)[K,N] into the panel layout that gemm (any M) reads straight through. Size from
 * lf_cpu_gemm_packed_bytes. */
struct lf_k_gemm_pack {
    int64_t n, k;
    const void *b;
    int64_t ldb;
    bool tb;
    uint8_t src_type; /* f32 or bf16 */
    uint8_t ab_type;  /* type of the panels: f32, or bf16 (f32 sources are rounded) */
    void *packed;
    size_t packed_bytes;
};
size_t lf_cpu_gemm_packed_bytes(int64_t n, int64_t k, enum lf_dtype ab_type);
/* Which implementation runs this product, for plans and fingerprints: "own", or "onednn 2.6.3"
 * (mode LF_FAST only). Pointers count as NULL or not. LF_GEMM=onednn in the environment asks for
 * the library in mode LF_FAST; our own is as fast where measured. */
const char *lf_cpu_gemm_algorithm(const struct lf_k_gemm *a);

/* db[N] (+)= sum over rows of dy[R,N]. f32 out; fixed tree over rows. */
struct lf_k_colsum {
    int64_t rows, n;
    const void *dy;
    int64_t ld;
    uint8_t dy_type;
    float *db;
    bool accumulate;
    void *work;
    size_t work_bytes;
};

/* Fused output layer and cross-entropy; never holds more than a chunk of logits, computes each
 * once.
 *     logits[r][v] = softcap( x[r] . w[v] + bias[v] )          softcap(z) = cap * tanh(z / cap),
 *       cap 0 = off
 *     loss[r] = logsumexp(logits[r]) - logits[r][target[r]]     for target >= 0
 * Rows with target < 0 are not computed: their loss, lse and dx are 0, their argmax is -1.
 *     total   = sum_r loss[r] + z_loss * logsumexp^2
 *     dx[r] = d total / d x[r] * inv_tokens * loss_scale;  dw (+)= likewise, f32;  db (+)= likewise
 * With dx NULL it is the forward alone (validation, scoring). loss, lse and argmax may be NULL. rec
 * sums are added to (loss_sum, z_sum, tokens, correct, with entropy not NULL entropy_sum) in row
 * order. v_real: columns >= v_real are padding and count as -inf. A target >= v_real gives a NaN
 * loss and NaN gradients. rec NULL: no sums, z_loss 0, inv_tokens * loss_scale 1. inv_temperature t
 * (0: 1): logits are multiplied by it after the soft cap.
 *
 * Losses that are arithmetic on log-probabilities outside need two more forms of the same
 * computation, with the same bits:
 *     logp[r]    = logits[r][target[r]] - logsumexp(logits[r])  = -loss[r];  0 for target < 0
 *     entropy[r] = -sum_v p_v log p_v of the row's softmax;                  0 for target < 0
 * dlogp or dentropy given: dx, dw, db are the gradients of sum_r dlogp[r] logp[r] + dentropy[r]
 * entropy[r] instead of total's, whose factors are not applied and whose sums are not made. */
struct lf_k_linear_xent {
    int64_t rows, k, v, v_real;
    const void *x;                 /* [R, K] x_type */
    const void *w;                 /* [V, K] x_type */
    const void *w_packed;          /* or NULL */
    const void *bias;              /* [V] x_type or NULL */
    const int32_t *target;         /* [R] */
    float *loss;                   /* [R] */
    float *lse;                    /* [R] */
    int32_t *argmax;               /* [R] lowest index of the largest logit */
    float *logp, *entropy;         /* [R] or NULL */
    const float *dlogp, *dentropy; /* [R] or NULL */
    void *dx;                      /* [R, K] x_type or NULL */
    float *dw;                     /* [V, K] or NULL (frozen) */
    float *db;                     /* [V] or NULL */
    int64_t ldx, ldw, lddx;
    float softcap, inv_temperature;
    bool accumulate; /* of dw, db */
    uint8_t x_type, mode;
    struct lf_step_record *rec;
    void *work;
    size_t work_bytes;
};

/* What a draw needs of rows of logits that gemm made with the output layer, with the bits of
 * linear_xent: z[r] becomes inv_temperature * softcap(z[r]) in place over columns < v_real (softcap
 * 0: off, inv_temperature 0: 1); lse[r] = logsumexp; argmax[r] (NULL allowed) lowest index of the
 * largest. */
struct lf_k_logit_stats {
    int64_t rows, v_real, ldz;
    float *z;
    float *lse;
    int32_t *argmax;
    float softcap, inv_temperature;
};

/* ---- sampling -------------------------------------------------------------------------------- */

/* The next token of each row of logits z [rows, v], f32, by the order of operations of
 * engine/infer/sample.h and the arithmetic of kernels/sampling.h: the token of lf_sampler_draw,
 * whatever else is in the call. What a row asks lies in device memory and changes between calls. A
 * row's list has at most one entry for a token; list entries of a row: list[list_at ... list_at +
 * list_n - 1].
 *
 * on = LF_SAMPLE_NOTE: the list then tells of the token that was drawn. The count of its entry
 * becomes max(count, 0) + 1; without one, {0, token, 1} is added at list_at + list_n, where nothing
 * else lies. */
struct lf_sample_token {
    double bias; /* added first; -inf forbids the token */
    int32_t id;  /* in [0, v) */
    /* times in the output: presence and frequency penalties; 0: seen in the prompt alone; -1: no
     * penalty */
    int32_t count;
};
struct lf_sample_row {
    uint64_t seed, index; /* of the draw */
    double scale;         /* 1 / temperature, at most the largest double; 0: greedy */
    double top_p;         /* 1: off */
    double min_x;         /* ln min_p; -inf: off */
    double repetition, presence, frequency; /* 1, 0, 0: off */
    int32_t top_k;                          /* 0: off */
    int32_t list_at, list_n;
    int32_t on; /* 0: nothing is drawn, token LF_SAMPLE_NONE; 1: a token is; LF_SAMPLE_NOTE */
};
struct lf_sample_out {
    int32_t token; /* or LF_SAMPLE_* */
    float logp;    /* z[token] - lse, 0 without a token */
};
enum { LF_SAMPLE_NOTE = 2 };
/* No finite logit; not asked for; more tokens than the kernel sorts may be kept, so the host must
 * draw. */
enum { LF_SAMPLE_EMPTY = -1, LF_SAMPLE_NONE = -2, LF_SAMPLE_HOST = -3 };
/* A row with top-k, top-p or min-p is drawn when at most so many tokens are left by the coarse cut:
 * those at least as likely as the last one kept, to a factor of e^(1/51.2) and, with top-k and
 * top-p both, those of top-k. v <= LF_SAMPLE_MOST_TOKENS. */
enum { LF_SAMPLE_SORTED = 4096, LF_SAMPLE_MOST_TOKENS = 1 << 21 };
struct lf_k_sample {
    int64_t rows, v, ldz;
    const float *z, *lse; /* lse [rows] */
    const struct lf_sample_row *row;
    struct lf_sample_token *list;
    struct lf_sample_out *out; /* [rows] */
    void *work;
    size_t work_bytes;
};

/* ---- fp8 ------------------------------------------------------------------------------------- */

/* A value x is kept as q s: q in e4m3 (largest value 448) or e5m2 (57344), s a power of two that a
 * block of elements shares and that follows from the values themselves ("current scaling"):
 *     s = 2^-e with the largest e such that max(|x|, 2^-60) 2^e fits the type, over the block;  q =
 *       x 2^e, rounded to nearest even.
 * In a block with an element that is not finite, s and every q are NaN.
 * Powers of two because x 2^e is exact then: an element is rounded once, to the relative precision
 * of the type, whatever the scale, and q s is exact in bf16: the product of two such matrices is a
 * bf16 product with f32 sums. Blocks, and where the scale of element (r, c) of a matrix [R, C]
 * stands (cuBLASLt's SCALAR_32F, VEC128_32F and BLK128x128_32F):
 *     LF_FP8_TENSOR   all of it                   [0]
 *     LF_FP8_VEC128   128 columns of a row        [(c / 128) R + r]
 *     LF_FP8_BLK128   128 rows x 128 columns      [(r / 128) P + c / 128],  P = C / 128 rounded up,
 *                     then up to a multiple of 4
 * The last block of a row or column may be shorter. Entries between C / 128 and P are never written
 * nor read. */
enum lf_fp8_scaling { LF_FP8_TENSOR = 0, LF_FP8_VEC128, LF_FP8_BLK128 };
enum { LF_FP8_BLOCK = 128 };
static inline int64_t lf_fp8_scales(int64_t rows, int64_t cols, enum lf_fp8_scaling s) /* floats */
{
    const int64_t across = (cols + LF_FP8_BLOCK - 1) / LF_FP8_BLOCK;
    return s == LF_FP8_TENSOR   ? 1
           : s == LF_FP8_VEC128 ? across * rows
                                : (rows + LF_FP8_BLOCK - 1) / LF_FP8_BLOCK * ((across + 3) / 4 * 4);
}

/* q, scale: of x [R, C];  qt [C, R], scale_t: of its transpose (with LF_FP8_VEC128 the blocks run
 *                         down the columns of x; with
 * LF_FP8_TENSOR scale_t is not written: scale is that of both). q and qt are dense. Each of the
 * four may be NULL. */
struct lf_k_quantise {
    int64_t rows, cols, ldx;
    const void *x;
    void *q, *qt;
    float *scale, *scale_t;
    uint8_t x_type, q_type, scaling; /* q_type LF_E4M3 or LF_E5M2 */
    void *work;
    size_t work_bytes;
};

/* gemm's C = act( A B^T + bias ) + residual (or C += A B^T) of A [M, K] and B [N, K] in fp8, each
 * the q or qt of quantise. In `gemm`: ta false, tb true, lda = ldb = K, ab_type and b_packed are
 * not read, mode LF_FAST. M, N and K are multiples of 16, with blocks of 128; types are not both
 * e5m2; scalings are both LF_FP8_TENSOR, both LF_FP8_VEC128, or one LF_FP8_VEC128 and one
 * LF_FP8_BLK128 (which is what cuBLASLt has). With bias, act or pre a library may round the product
 * to c_type before they follow. */
struct lf_k_gemm_fp8 {
    struct lf_k_gemm gemm;
    const float *a_scale, *b_scale;
    uint8_t a_type, b_type, a_scaling, b_scaling;
};

/* ---- embeddings ------------------------------------------------------------------------------ */

/* y[r] = scale * wte[token[r]] + wpe[position[r] + pos_offset]   (wpe NULL: none; wte NULL: wpe
 *   alone). A token outside [0, V) gives NaN rows. */
struct lf_k_embed_fwd {
    int64_t rows, c, v, max_pos;
    const int32_t *token, *position;
    const void *wte, *wpe;
    void *y;
    float scale;
    int32_t pos_offset;
    uint8_t w_type, y_type;
};
/* dwte[token[r]] += scale * dy[r]; dwpe[position[r] + pos_offset] += dy[r]. f32, in ascending row
 * order per target row. accumulate false zeroes the table first. Either table may be NULL. */
struct lf_k_embed_bwd {
    int64_t rows, c, v, max_pos;
    const int32_t *token, *position;
    const void *dy;
    float *dwte, *dwpe;
    float scale;
    int32_t pos_offset;
    bool accumulate;
    uint8_t dy_type;
    void *work;
    size_t work_bytes;
};

/* ---- normalisation --------------------------------------------------------------------------- */

/* s = x (+ delta);  y = (s - mean) * rstd * (w + w_offset) + b       RMS: mean = 0, rstd =
 *                   1/sqrt(mean(s^2) + eps)
 *                                                                 LayerNorm: rstd = 1/sqrt(var +
 *                                                                 eps), biased variance
 *   Row (t, h), t < rows, h < heads, at base + t * ld + h * c: heads = 1 for hidden rows, > 1 for
 *   QK-norm inside qkv rows. delta NULL: s = x and `sum` is not written. Otherwise sum[r] = s
 *   rounded to x_type (may alias x or delta), and the statistics use that rounded s. mean
 *   (LayerNorm only), rstd: f32 [rows * heads] or NULL when no backward follows. y may alias x. */
struct lf_k_norm_fwd {
    int64_t rows, heads, c;
    const void *x, *delta, *w, *b;
    void *sum, *y;
    float *mean, *rstd;
    int64_t ldx, lddelta, ldsum, ldy;
    float eps, w_offset;
    bool layer; /* LayerNorm, else RMSNorm */
    uint8_t x_type, y_type, w_type;
};
/* dx = dres + d(norm)/dx^T dy;  dw (+)= sum_r dy * xhat;  db (+)= sum_r dy.   x is the normalised
 *                               input s of the forward.
 * dres (gradient arriving on the residual path, x_type) may be NULL; dx may alias dres or dy. dw,
 * db f32, may be NULL. */
struct lf_k_norm_bwd {
    int64_t rows, heads, c;
    const void *x, *dy, *dres, *w;
    const float *mean, *rstd;
    void *dx;
    float *dw, *db;
    int64_t ldx, lddy, lddres, lddx;
    float w_offset;
    bool layer, accumulate;
    uint8_t x_type, dy_type, w_type; /* dx has x_type */
    void *work;
    size_t work_bytes;
};

/* y[r] = x[r] / max(|x[r]|, 1e-12), |.| the Euclidean norm of the row: the output layer of Baichuan
 * 2 (NormHead). x [R, C] f32, dense. */
struct lf_k_unit_rows_fwd {
    int64_t rows, c;
    const float *x;
    void *y;
    uint8_t y_type;
};
/* dx (+)= (dy - y (y . dy)) / |x| per row, with y = x / |x| in f32; rows with |x| < 1e-12: dy /
 * 1e-12. */
struct lf_k_unit_rows_bwd {
    int64_t rows, c;
    const float *x, *dy;
    float *dx;
    bool accumulate;
};

/* ---- weight-decomposed adapters (Liu et al. 2024, DoRA) -------------------------------------- */

/* norm[n] = | w[n] + scale * sum_j b[n][j] a[j] |, the Euclidean norms of the rows of an adapted
 * weight: w [rows, C], b [rows, rank], a [rank, C], all dense and of w_type. The product is summed
 * over ascending j, then scaled; the squares in f32. rank 0: of w alone. */
struct lf_k_dora_norm {
    int64_t rows, c, rank;
    const void *w, *a, *b;
    float *norm; /* [rows] */
    float scale;
    uint8_t w_type;
};
/* y = base + (s - 1) (base - bias) + s lora + rest,  s[c] = m[c] / norm[c] (1 where norm is 0);
 *   [R, C], bias, m, norm f32 [C].
 * bias NULL: 0. rest NULL: 0. m NULL: y = base + rest, then lora, bias and norm are not read
 * (ldlora is C or more all the same). With m = norm and lora = 0, y has the bits of base + rest. */
struct lf_k_dora_fwd {
    int64_t rows, c, ldbase, ldlora, ldrest, ldy;
    const void *base, *lora, *rest;
    const float *bias, *m, *norm;
    void *y;
    uint8_t x_type;
};
/* dx= s dy, the gradient of base and of lora alike (NULL: not wanted);  dm[c] (+)= sum_r dy (base -
 *   bias + lora) / norm[c] (NULL: not
 * wanted; 0 where norm is 0). norm is a constant here, as in the paper's section 4.3. dx may be
 * dy. */
struct lf_k_dora_bwd {
    int64_t rows, c, lddy, ldbase, ldlora, lddx;
    const void *dy, *base, *lora;
    const float *bias, *m, *norm;
    void *dx;
    float *dm;
    bool accumulate; /* of dm */
    uint8_t x_type;
};

/* ---- positions and attention ----------------------------------------------------------------- */

/* Rotary embedding of `heads` heads at base + t * ld + h * d, the first `rot` (even) of d channels;
 * y may be x.
 *   interleaved false (rotate-half): pairs (i, i + rot/2); true: pairs (2i, 2i+1).
 *   (a, b) -> (a cos - b sin, a sin + b cos) with cos/sin tables f32 [max_pos, rot/2]; inverse
 *   negates sin (backward). position2, when not NULL: heads of odd number turn by it instead (2-D
 *   positions: each head of the model is two of these). */
struct lf_k_rope {
    int64_t rows, heads, d, rot, max_pos;
    const void *x;
    void *y;
    int64_t ldx, ldy;
    const int32_t *position, *position2;
    const float *cos, *sin;
    bool interleaved, inverse;
    uint8_t x_type;
};

/* Attention within documents: o = softmax(scale * q k^T + mask) v, heads h uses key/value group h /
 * (H/G).
 *   q row t, head h at q + t * ldq + h * D; k, v likewise with G heads. cu_seqlens: i32 [n_docs+1],
 *   ascending, first 0; rows at or after cu_seqlens[n_docs] are padding: o = 0, lse = -inf. n_docs
 *   is read from cu_seqlens itself: it is the array's length - 1, and empty documents are legal, so
 *   a static bound works. max_doc: no document is longer (0: rows); a library may rely on it.
 *   causal: key j visible to query i iff j <= i, or j < prefix[document] where prefix (i32
 *   [n_docs]) is not NULL; window > 0: also i - j < window; alibi: adds -slope[h] * (i - j);
 *   softcap > 0: scores become cap * tanh(score / cap) before the mask. lse[h][t] f32 [H, rows]:
 *   log-sum-exp of the row's scores, natural log; NULL when no backward follows. Reduction: KV
 *   tiles of LF_ATTN_TILE keys counted from the document's first key, ascending; online softmax. A
 *   tile that is entirely masked for a row changes no bit of that row. drop.p > 0: o = (m .
 *   softmax) v with m = keep ? 1 / (1 - p) : 0; lse stays that of all keys. */
#define LF_ATTN_TILE 64
/* Dropout of attention probabilities. Keep decision of (query row t, head h, key j of its
 * document): Philox(seed, site, a = sample[t] + position[t] * 2^40, b = h * 2^22 + j / 4) word j %
 * 4, uniform >= p; so h < 1024, j < 2^24. p == 0: off, the rest is not read. sample: global sample
 * id of the row, position: its place in the sample. */
struct lf_k_attn_drop {
    float p;
    uint32_t site;
    const int64_t *sample;
    const int32_t *position;
    const struct lf_step_record *rec; /* seed */
};
struct lf_k_attn_fwd {
    int64_t rows, heads, groups, d, n_docs, max_doc;
    const void *q, *k, *v;
    void *o;
    float *lse;
    int64_t ldq, ldk, ldv, ldo;
    const int32_t *cu_seqlens;
    const int32_t *prefix; /* [n_docs] or NULL: causal only */
    const float *alibi;    /* [H] or NULL */
    float scale, softcap;
    struct lf_k_attn_drop drop;
    int32_t window;
    bool causal;
    uint8_t x_type, mode;
    void *work;
    size_t work_bytes;
};
/* dq, dk, dv from do, o and lse; same masks. dq, dk, dv overwrite; padding rows become 0. */
struct lf_k_attn_bwd {
    int64_t rows, heads, groups, d, n_docs, max_doc;
    const void *q, *k, *v, *o, *d_o;
    const float *lse;
    void *dq, *dk, *dv;
    int64_t ldq, ldk, ldv, ldo, lddo, lddq, lddk, lddv;
    const int32_t *cu_seqlens;
    const int32_t *prefix;
    const float *alibi;
    float scale, softcap;
    struct lf_k_attn_drop drop;
    int32_t window;
    bool causal;
    uint8_t x_type, mode;
    void *work;
    size_t work_bytes;
};

/* Paged KV cache. Page p holds page_tokens rows of [G, D] for keys and the same for values: k_pages
 * + ((p * page_tokens + i) * G + g) * D. page_tokens is a multiple of LF_ATTN_TILE. Sequence s owns
 * pages table[s * max_pages + 0 ...] for positions 0, 1, ... */
struct
    /* row r of k, v goes to position pos[r] of sequence seq[r]; seq < 0 rows are skipped */
    lf_k_kv_write {
    int64_t rows, groups, d, page_tokens, max_pages;
    const void *k, *v;
    int64_t ldk, ldv;
    void *k_pages, *v_pages;
    const int32_t *seq, *pos, *table;
    uint8_t x_type;
};
/* Attention of new rows over the cache: row r is position pos[r] of sequence seq[r] and sees cached
 * keys 0..pos[r], and with prefix (i32 [sequences], indexed by seq) at least 0..prefix[seq[r]] - 1,
 * which must be written by then, under the same masks and with the same bits as attn_fwd over the
 * whole document. seq < 0: o = 0. */
struct lf_k_attn_paged {
    int64_t rows, heads, groups, d, page_tokens, max_pages;
    const void *q;
    const void *k_pages, *v_pages;
    void *o;
    int64_t ldq, ldo;
    const int32_t *seq, *pos, *table;
    const int32_t *prefix; /* or NULL */
    const float *alibi;
    float scale, softcap;
    int32_t window;
    uint8_t x_type, mode;
    void *work;
    size_t work_bytes;
};

/* ---- element-wise ---------------------------------------------------------------------------- */

/* y = act(x), [R, C]. */
struct lf_k_act_fwd {
    int64_t rows, c, ldx, ldy;
    const void *x;
    void *y;
    uint8_t act, x_type; /* y has x_type */
};
/* dx = dy * act'(x); dx may alias dy. */
struct lf_k_act_bwd {
    int64_t rows, c, ldx, lddy, lddx;
    const void *x, *dy;
    void *dx;
    uint8_t act, x_type;
};
/* y = act(gate) * up, gate and up [R, C] with own pointers and a shared row distance (halves of one
 * GEMM's output). */
struct lf_k_glu_fwd {
    int64_t rows, c, ldx, ldy;
    const void *gate, *up;
    void *y;
    uint8_t act, x_type;
};
/* dgate = dy * up * act'(gate); dup = dy * act(gate). May alias gate / up. */
struct lf_k_glu_bwd {
    int64_t rows, c, ldx, lddy, lddx;
    const void *gate, *up, *dy;
    void *dgate, *dup;
    uint8_t act, x_type;
};
/* y = a * alpha + b * beta over n elements (b NULL: y = a * alpha); y may alias either. Types may
 * differ: this is also cast. */
struct lf_k_axpby {
    int64_t n;
    const void *a, *b;
    void *y;
    float alpha, beta;
    uint8_t a_type, b_type, y_type;
};
struct lf_k_fill { /* n elements = value */
    int64_t n;
    void *y;
    float value;
    uint8_t y_type;
};
/* Rows by index: y[r] = x[index[r]] (negative index: zeros). */
struct lf_k_gather_rows {
    int64_t rows, c, ldx, ldy;
    const void *x;
    const int32_t *index;
    void *y;
    uint8_t x_type;
};
/* y = keep ? x / (1 - p) : 0 (+ residual). Keep decision of element (r, c): Philox(seed, site, a =
 * sample[r], b = position[r] * ceil(C/4) + c/4) word c % 4, uniform >= p. The backward is the same
 * call on dy. y may alias x. sample: global sample id of the row. */
struct lf_k_dropout {
    int64_t rows, c, ldx, ldres, ldy;
    const void *x, *residual;
    void *y;
    const int64_t *sample;
    const int32_t *position;
    float p;
    uint32_t site;
    uint8_t x_type;
    const struct lf_step_record *rec; /* seed */
};

/* ---- mixture of experts ---------------------------------------------------------------------- */

/* R rows, E experts, k of them for each row: M = R k pairs (row, slot). Everything about routing is
 * f32. */
#define LF_MOE_MAX_EXPERTS 1024

/* score = softmax(logits) or, with sigmoid, sigmoid(logits), f32 [R, E]; choice = score + bias
 * (bias [E] NULL: score).
 *   groups > 1: the experts lie in `groups` equal groups in order and only those of the top_groups
 *   worthiest groups can be chosen; a group is worth its largest choice (softmax: DeepSeek-V2) or
 *   the sum of its two largest (sigmoid: DeepSeek-V3). ids [R, k]: the k largest choices,
 *   descending, ties to the lower id; ids of a row differ whatever is in it (NaN comes first).
 *   weights [R, k] = scale * score[id] (/ sum of the k scores with renorm). The bias chooses, it
 *   never weighs. scores, entropy may be NULL. entropy [R]: of the scores divided by their sum, in
 *   nats. */
struct lf_k_moe_route {
    int64_t rows, experts, ldlogits;
    const float *logits, *bias;
    int32_t *ids;
    float *weights, *scores, *entropy;
    int32_t k, groups, top_groups;
    float scale;
    bool sigmoid, renorm;
};
/* dlogits [R, E] = d/dlogits ( sum dweights . weights  +  scale_aux * loss )   where loss is the
 *   load-balancing loss of the micro-batch
 *     loss = E * sum_e f_e P_e,  f_e = pairs sent to e / n,  P_e = sum of the scores of e (each
 *                                row's made to sum to 1) / n
 * over the n rows (not padding) of all `layers` MoE layers together (Switch Transformer, Fedus et
 * al. 2021, eq. 4, over layers as in transformers' load_balancing_loss_func; f_e is a count and has
 * no gradient); scale_aux = aux * inv_batches * loss_scale. load [2, E]: counts and sums of scores
 * over the layers, from the last moe_stats; cu_seqlens as attention's: rows at or after
 * cu_seqlens[n_docs] are padding. load NULL: no such term. */
struct lf_k_moe_route_bwd {
    int64_t rows, experts, n_docs, lddlogits;
    const int32_t *ids, *cu_seqlens;
    const float *weights, *scores, *dweights, *load;
    float *dlogits;
    int32_t k, layers;
    float scale, aux;
    bool sigmoid, renorm;
    const struct lf_step_record *rec;
};
/* load [2, E] = prev (NULL: 0) + (pairs sent to each expert, sums of the rows' scores made to sum
 * to 1), padding left out. counts [E] (+)= the pairs of this layer (NULL: not wanted). To rec are
 * added: the mean entropy, largest load / mean load, 1 to router_seen; and with layers > 0, in the
 * last of them, the load-balancing loss. */
struct lf_k_moe_stats {
    int64_t rows, experts, n_docs;
    const int32_t *ids, *cu_seqlens;
    const float *scores, *entropy, *prev;
    float *load, *counts;
    int32_t k, layers;
    bool accumulate;
    struct lf_step_record *rec;
};
/* Expert order: pairs sorted by (expert, row, slot). row_of [M]: the row of each place; place_of
 * [R, k]: the place of each pair; offsets [E + 1]: the places of expert e are offsets[e] ...
 * offsets[e + 1] - 1. */
struct lf_k_moe_sort {
    int64_t rows, experts;
    const int32_t *ids;
    int32_t *row_of, *place_of, *offsets;
    int32_t k;
};
/* y[r] = residual[r] (NULL: 0) + sum_j weights[r][j] * x[place_of[r][j]], j ascending in f32;
 * weights NULL: 1. x [M, C]; y may be residual. */
struct lf_k_moe_combine {
    int64_t rows, c, ldx, ldres, ldy;
    const void *x, *residual;
    const int32_t *place_of;
    const float *weights;
    void *y;
    int32_t k;
    uint8_t x_type;
};
/* dx[place_of[r][j]] = weights[r][j] * dy[r];  dweights[r][j] = dy[r] . x[place_of[r][j]] */
struct lf_k_moe_combine_bwd {
    int64_t rows, c, ldx, lddy, lddx;
    const void *x, *dy;
    const int32_t *place_of;
    const float *weights;
    void *dx;
    float *dweights;
    int32_t k;
    uint8_t x_type;
};
/* y[r] = sigmoid(gate[r]) * x[r]; gate f32 [R] */
struct lf_k_row_gate_fwd {
    int64_t rows, c, ldx, ldy;
    const void *x;
    const float *gate;
    void *y;
    uint8_t x_type;
};
/* dx[r] = s dy[r];  dgate[r] = s (1 - s) dy[r] . x[r]. dx may be dy. */
struct lf_k_row_gate_bwd {
    int64_t rows, c, ldx, lddy, lddx;
    const void *x, *dy;
    const float *gate;
    void *dx;
    float *dgate;
    uint8_t x_type;
};
/* Products of consecutive rows with a matrix of their group: rows offsets[g] ... offsets[g + 1] - 1
 * belong to group g, m of them in all, offsets [groups + 1] ascending from 0.
 *   by_rows: C[r, N] = A[r, K] op(B_g)[K, N] + residual[r, N]     B_g dense, [N, K] (tb) or [K, N],
 *     one after another; ldb is not read
 *   dw:      C_g[N, K] (+)= sum over rows r of g of A[r, N]^T B[r, K]     C_g dense, one after
 *            another, 0 for an empty group; ldc is not read
 * An element's bits are those of gemm over its group alone: they depend on K (in dw on the group's
 * rows), never on another group. */
struct lf_k_grouped_gemm {
    int64_t m, n, k, groups;
    const int32_t *offsets;
    const void *a, *b, *residual;
    void *c;
    int64_t lda, ldb, ldc, ldres;
    bool dw, tb, accumulate; /* accumulate: of dw */
    uint8_t ab_type, c_type; /* c_type f32 in dw */
    void *work;
    size_t work_bytes;
};

/* ---- optimizer ------------------------------------------------------------------------------- */

/* One entry per parameter tensor. */
struct lf_opt_tensor {
    int64_t n;
    void *master; /* the weights */
    void *m, *v;  /* Adam's moments */
    const float *grad;
    void *copy;                       /* compute copy refreshed from master, or NULL */
    uint8_t copy_type;                /* of it: bf16; on GPUs fp16 too */
    uint8_t master_type, moment_type; /* f32 or bf16 */
    /* of the random numbers that round what is bf16; a different one for each tensor */
    uint32_t site;
    float lr_scale, weight_decay;
};
/* Global norm: rec->grad_norm = ||grad|| / loss_scale over all tensors (f64 sums per fixed block,
 * added in order), rec->clip_factor = min(1, clip_norm / (norm + 1e-6)) / loss_scale, rec->skip = 1
 * when norm or loss_sum is not finite or 0 < loss_limit < loss_sum. */
struct lf_k_grad_norm {
    int64_t n_tensors;
    const struct lf_opt_tensor *t;
    struct lf_step_record *rec;
    void *work;
    size_t work_bytes;
};
/* AdamW (Loshchilov and Hutter 2019), as torch.optim.AdamW: g = grad * clip_factor; p -= lr*wd*p; m
 * = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; p -= lr * (m/bias_corr1) / (sqrt(v/bias_corr2) + eps),
 * all in f32, p by the new m and v before they are rounded. rec->skip != 0: nothing is written.
 *
 * What is stored in bf16 is rounded to nearest even, or with `stochastic` up or down at random
 * (Gupta et al. 2015), up with a probability that makes the expected value exact, so that changes
 * smaller than half a unit are not lost. Element e of state k (0: m, 1: v, 2: weights) draws the 16
 * bits lf_adamw_draw of Philox(rec->seed, site, a = 4 rec->step + k, b = e / 8); they are added to
 * the bits of the f32 value below those of bf16, and the sum is cut off. A pure function of step
 * and element. */
struct lf_k_adamw {
    int64_t n_tensors;
    const struct lf_opt_tensor *t;
    float beta1, beta2, eps;
    bool stochastic;
    const struct lf_step_record *rec;
};
/* The 16 bits of element e out of the four words of its counter. */
#define lf_adamw_draw(words, e) ((words)[(e) / 2 % 4] >> ((e) % 2 ? 16 : 0) & 0xffffu)
/* Balancing by bias (Wang et al. 2024; DeepSeek-V3, section 2.1.2): grad holds how many pairs each
 * of n experts got in the whole step; master[e] (f32) += lr_scale * sign(mean - grad[e]). rec->skip
 * != 0: nothing is written. */
struct lf_k_moe_balance {
    int64_t n_tensors;
    const struct lf_opt_tensor *t;
    const struct lf_step_record *rec;
};

/* ---- the table ------------------------------------------------------------------------------- */

/* Those of the CPU backend, and those that GPUs alone have. */
#define LF_CPU_KERNEL_LIST(X)                                                                      \
    X(gemm)                                                                                        \
    X(gemm_pack)                                                                                   \
    X(colsum)                                                                                      \
    X(linear_xent)                                                                                 \
    X(logit_stats)                                                                                 \
    X(embed_fwd)                                                                                   \
    X(embed_bwd)                                                                                   \
    X(norm_fwd)                                                                                    \
    X(norm_bwd)                                                                                    \
    X(unit_rows_fwd)                                                                               \
    X(unit_rows_bwd)                                                                               \
    X(rope)                                                                                        \
    X(attn_fwd)                                                                                    \
    X(attn_bwd)                                                                                    \
    X(kv_write)                                                                                    \
    X(attn_paged)                                                                                  \
    X(act_fwd)                                                                                     \
    X(act_bwd)                                                                                     \
    X(glu_fwd)                                                                                     \
    X(glu_bwd)                                                                                     \
    X(axpby)                                                                                       \
    X(fill)                                                                                        \
    X(gather_rows)                                                                                 \
    X(dropout)                                                                                     \
    X(grad_norm)                                                                                   \
    X(adamw)                                                                                       \
    X(moe_route)                                                                                   \
    X(moe_route_bwd)                                                                               \
    X(moe_stats)                                                                                   \
    X(moe_sort)                                                                                    \
    X(moe_combine)                                                                                 \
    X(moe_combine_bwd)                                                                             \
    X(row_gate_fwd)                                                                                \
    X(row_gate_bwd)                                                                                \
    X(grouped_gemm)                                                                                \
    X(moe_balance)                                                                                 \
    X(dora_norm)                                                                                   \
    X(dora_fwd)                                                                                    \
    X(dora_bwd)                                                                                    \
    X(quantise)                                                                                    \
    X(gemm_fp8)
#define LF_KERNEL_LIST(X)                                                                          \
    LF_CPU_KERNEL_LIST(X)                                                                          \
    X(sample)

/* run executes; check validates an argument struct without touching data (pointers may be NULL);
 * work gives the workspace bytes for the shapes with the given number of threads (NULL: none). */
#define LF_KERNEL_SLOT(name)                                                                       \
    struct {                                                                                       \
        int (*run)(lf_queue * q, const struct lf_k_##name *a);                                     \
        int (*check)(const struct lf_k_##name *a);                                                 \
        size_t (*work)(const struct lf_k_##name *a, int threads);                                  \
    } name;
struct lf_kernels {
    const char *family; /* "cpu-avx512bf16", ... */
    LF_KERNEL_LIST(LF_KERNEL_SLOT)
};

/* Instruction sets of the CPU backend, ascending. The best one that the processor and `limit`
 * (LF_ISA environment variable: plain, avx2, avx512, avx512bf16) allow is used by gemm, attention
 * and the rest alike. */
enum lf_isa { LF_ISA_PLAIN = 0, LF_ISA_AVX2, LF_ISA_AVX512, LF_ISA_AVX512BF16 };
enum lf_isa lf_cpu_isa_detect(void);
const char *lf_cpu_isa_name(enum lf_isa isa);
/* Table for one instruction set; NULL when this processor lacks it. Tables are constant data. */
const struct lf_kernels *lf_cpu_kernels(enum lf_isa isa);

#define LF_KERNEL_PROTO(name)                                                                      \
    int lf_cpu_##name(lf_queue *q, const struct lf_k_##name *a);                                   \
    int lf_cpu_##name##_check(const struct lf_k_##name *a);

#endif
