/* SPDX-License-Identifier: Apache-2.0
 *
 * The one list of kernels. Each kernel has an argument struct here and one implementation per
 * backend (kernels/cpu, kernels/cuda). A struct lf_kernels holds the implementations of one
 * backend. Kernels work on plain pointers, sizes and a queue. They use no tensors and no error
 * boxes, allocate nothing and do no I/O. The executor fills the argument structs once, when it
 * makes the plan; the step loop only calls the kernels. Whatever changes between steps is read from
 * the step record.
 *
 * Conventions
 *   - Matrices are row-major. ld* is the distance between rows in elements and is at least the row
 *     length.
 *   - Letters: R rows (tokens), C channels, K reduction, N outputs, H query heads, G groups
 *     (key/value heads), D head size, V vocabulary.
 *   - "x_type" is the storage type of x. Arithmetic is f32. Each stored result is rounded once, to
 *     nearest even.
 *   - (+)= marks an output that can accumulate: `accumulate` false overwrites, true adds.
 *   - Pointers never alias unless the comment says so.
 *   - Every kernel accepts zero rows.
 *
 * Determinism. Within a kernel family (an instruction set), results are a pure function of the
 * arguments. They do not depend on the number of threads. The outputs of a row do not depend on M,
 * on the other rows or on the position of the row. Reductions over rows (weight gradients) use a
 * fixed tree over rows that does not depend on threads. The mode LF_INVARIANT promises all this.
 * The mode LF_FAST may use a library that promises only that equal runs give equal results. It may
 * round once more: cublasLt rounds product + residual to c_type before it adds the bias.
 *
 * Return: 0; LF_K_EINVAL for shapes or types that the kernel does not have (reported when a plan is
 * bound, by running `check`); LF_K_EDEVICE when a library or the device refuses.
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
    LF_ACT_RELU,
    /* 1 / (1 + e^-x), a gate, and tanh: of act and glu alone. The ends of products know those
     * before them. */
    LF_ACT_SIGMOID,
    LF_ACT_TANH
};

/* An ordered stream of work. On the CPU a call runs at once, with at most `threads` threads. */
typedef struct lf_queue lf_queue;           /* on the CPU: of one thread at a time */
lf_queue *lf_cpu_queue_create(int threads); /* threads >= 1; NULL when out of memory */
void lf_cpu_queue_destroy(lf_queue *q);     /* not in a child of fork(), which has no helpers */
int lf_cpu_queue_threads(const lf_queue *q);
/* Kernels call border(arg) between their tasks, on the thread that called the kernel: meant for
 * every few tens of microseconds and never more than a few milliseconds apart, so it must be cheap.
 * It must not call kernels. NULL: nothing, as at first. */
void lf_cpu_queue_border(lf_queue *q, void (*border)(void *arg), void *arg);

/* Most heads of a model beyond the first one, which predict later tokens (multi-token
 * prediction). */
enum { LF_MORE_HEADS = 4 };

/* Values that change between steps, in device memory. The host writes the first group before the
 * step. Kernels write the second group. */
struct lf_step_record {
    /* host -> device */
    uint64_t step;    /* optimizer steps done before this one */
    uint64_t seed;    /* seed of the run, for dropout */
    float lr;         /* learning rate of this step */
    float bias_corr1; /* 1 - beta1^(step+1) */
    float bias_corr2; /* 1 - beta2^(step+1) */
    float clip_norm;  /* <= 0: no clipping */
    float loss_scale; /* 1 unless fp16 */
    /* 1 / trained tokens of the whole optimizer step, over all micro-batches and ranks */
    float inv_tokens;
    float z_loss; /* coefficient, 0 = off */
    /* 1 / micro-batches of the whole optimizer step, over all ranks: the weight of the router's
     * losses */
    float inv_batches;
    /* of each head beyond the first: the weight of its loss / trained tokens of the whole optimizer
     * step */
    float more_inv;
    float average; /* what the averages of weights take of the new ones (adamw): in [0, 1] */
    /* device -> host */
    double loss_sum; /* sum over trained tokens of this step of -log p */
    double z_sum;    /* sum over trained tokens of logsumexp^2 */
    /* sum over trained tokens of the prediction's entropy, nats; added by a linear_xent that gives
     * entropy */
    double entropy_sum;
    int64_t tokens;    /* trained tokens seen */
    int64_t correct;   /* trained tokens whose argmax is the target */
    float grad_norm;   /* norm of the unscaled gradient before clipping */
    float clip_factor; /* the optimizer multiplies gradients by it (includes 1/loss_scale) */
    /* 1 when a gradient or the loss is not finite or the loss is above its limit: the optimizer
     * then changes nothing */
    int32_t skip;
    int32_t reserved1;
    /* sums over micro-batches: load-balancing loss (moe_stats), without its coefficient */
    double router_aux;
    /* sums over micro-batches and MoE layers: mean entropy of the router, nats */
    double router_entropy;
    double router_load; /* the same sums of: rows of the busiest expert / mean rows of an expert */
    /* and of: the share of pairs that are beyond the capacity of their expert */
    double router_dropped;
    int64_t router_seen; /* micro-batches x MoE layers */
    /* host -> device, before the optimizer: a loss_sum above loss_limit counts as not finite; 0: no
     * limit */
    double loss_limit; /* a larger loss_sum counts as one that is not finite; 0: none does */
    /* device -> host, of each head beyond the first: as loss_sum, tokens, correct */
    double more_loss[LF_MORE_HEADS];
    int64_t more_tokens[LF_MORE_HEADS];
    int64_t more_correct[LF_MORE_HEADS];
};

/* ---- matrix products ------------------------------------------------------------------------- */

/* C[M,N] = act( op(A)[M,K] op(B)[K,N] + bias[N] ) + residual[M,N]
 *   accumulate: C += op(A) op(B), no epilogue.
 *   A is stored [M,K] (ta false) or [K,M] (ta true).
 *   B is stored [K,N] (tb false) or [N,K] (tb true).
 *   a_type == b_type in {f32, bf16}; c_type f32 or bf16 (accumulate needs f32); bias f32 or bf16.
 *   The forms of a linear layer y = x w^T + b with w [N,K]:
 *     y = x w^T        ta false, tb true
 *     dx = dy w        ta false, tb false
 *     dw (+)= dy^T x   ta true,  tb false
 *
 * pre, when not NULL, receives op(A) op(B) + bias before act, in c_type, with row distance ldpre.
 * residual has c_type; it may be C itself. The order is: product, + bias, round into pre, act, +
 * residual, round. Before an act the value is rounded to c_type even when pre is NULL, so inference
 * and training see the same bits. Without act and pre it is not rounded there. b_packed: panels
 * that gemm_pack made from the same B, or NULL. With panels, b may be NULL. */
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
    uint8_t act;                        /* enum lf_act, to LF_ACT_RELU */
    uint8_t mode;                       /* enum lf_numeric */
    void *work;
    size_t work_bytes;
};

/* Pack op(B)[K,N] into the panel layout that gemm (with any M) reads in order.
 * lf_cpu_gemm_packed_bytes gives the size. */
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
/* The implementation that runs this product, for plans and fingerprints: "own", or "onednn 2.6.3"
 * (mode LF_FAST only). Only whether a pointer is NULL matters. LF_GEMM=onednn in the environment
 * asks for the library in mode LF_FAST. Our own one is as fast on the processors measured. One
 * thread at a time. */
const char *lf_cpu_gemm_algorithm(const struct lf_k_gemm *a);

/* A product of its own for each head, of whose channels the last `tail` stay as they are:
 *     y[r][h] = [ x[r][h][0 ... K) op(W_h) | x[r][h][K ... K + tail) ]
 * Head h begins at column h (K + tail) of x and h (N + tail) of y. W_h is stored [K, N] (tb false)
 * or [N, K] (tb true), and one head's rows follow another's, ldw apart. x, w and y have x_type.
 * CPUs only. */
struct lf_k_gemm_heads {
    int64_t rows, heads, k, n, tail;
    const void *x, *w;
    void *y;
    int64_t ldx, ldw, ldy;
    bool tb;
    uint8_t x_type;
    void *work;
    size_t work_bytes;
};

/* db[N] (+)= sum over rows of dy[R,N]. db is f32. The sum is a fixed tree over rows. */
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

/* Ranks that divide a vocabulary. gather gives each of them the parts of all: bytes of rank r at
 * all + r * bytes, of which this rank's is in place. It returns 0, or why not. */
struct lf_k_ranks {
    int rank, ranks;
    int (*gather)(void *user, void *all, size_t bytes);
    void *user;
};

/* Fused output layer and cross-entropy. It never holds more than a chunk of logits, and it computes
 * each logit once.
 *
 *     logits[r][v] = inv_temperature * softcap(x[r] . w[v] + bias[v])
 *     softcap(z)   = cap * tanh(z / cap); cap 0: z
 *     loss[r]      = logsumexp(logits[r]) - logits[r][target[r]]          for target >= 0
 *     total        = sum_r loss[r] + z_loss * logsumexp(logits[r])^2
 *     dx[r]        = d total / d x[r] * inv_tokens * loss_scale
 *     dw (+)=, db (+)=  the same of w and bias, f32
 *
 * inv_temperature 0 stands for 1. Rows with target < 0 are not computed: their loss, lse and dx are
 * 0, their argmax is -1. With dx NULL it is the forward alone (validation, scoring). loss, lse and
 * argmax may be NULL. v_real: columns >= v_real are padding and count as -inf. A target >= v_real
 * gives a NaN loss and NaN gradients. The sums of rec are added to in row order: loss_sum, z_sum,
 * tokens, correct and, with entropy not NULL, entropy_sum. With rec NULL there are no sums, z_loss
 * is 0 and inv_tokens * loss_scale is 1. The loss of a further head k >= 1 has more_inv in place
 * of inv_tokens and no z_loss; its sums are more_loss[k - 1], more_tokens[k - 1] and
 * more_correct[k - 1].
 *
 * Two more forms serve losses that are computed outside from log-probabilities. They are the same
 * computation with the same bits:
 *
 *     logp[r]    = logits[r][target[r]] - logsumexp(logits[r]) = -loss[r]; 0 for target < 0
 *     entropy[r] = -sum_v p_v log p_v of the row's softmax;                0 for target < 0
 *
 * With dlogp or dentropy given, dx, dw and db are the gradients of
 *     sum_r dlogp[r] logp[r] + dentropy[r] entropy[r]
 * instead of those of total. The factors of total are then not applied and its sums are not made.
 *
 * With `with` ranks divide the vocabulary: w, bias, dw and db are those of columns [v0, v0 + v), of
 * which v_real are real; v_all columns of all ranks are. After each chunk of logits ranks exchange
 * for each row largest logit, sums relative to it and the target's logit, and combine them in rank
 * order. loss, lse, argmax, logp, entropy and the sums of rec are the same on all ranks; dx is this
 * rank's addend. What they exchange depends on shapes alone: gather is called once, in the order of
 * the queue, for every LF_XENT_ROWS of the R rows (GPUs: lf_cuda_xent_rows), the last time for
 * fewer, with LF_XENT_PART bytes of each rank for each of these, whichever have targets. */
enum { LF_XENT_ROWS = 512, LF_XENT_PART = 20 };
struct lf_k_linear_xent {
    int64_t rows, k, v, v_real, v0, v_all;
    const struct lf_k_ranks *with; /* NULL: the vocabulary is here */
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
    uint8_t head; /* 0: the model's own; at most LF_MORE_HEADS */
    struct lf_step_record *rec;
    void *work;
    size_t work_bytes;
};

int64_t lf_cuda_xent_rows(const struct lf_k_linear_xent *a);
/* What a draw needs of rows of logits that gemm made with the output layer, with the bits of
 * linear_xent:
 *     z[r]      = inv_temperature * softcap(z[r]), in place, columns < v_real
 *     lse[r]    = logsumexp(z[r])
 *     argmax[r] = the lowest index of the largest z[r]; NULL allowed
 * softcap 0 is off; inv_temperature 0 stands for 1. */
struct lf_k_logit_stats {
    int64_t rows, v_real, ldz;
    float *z;
    float *lse;
    int32_t *argmax;
    float softcap, inv_temperature;
};

/* ---- sampling -------------------------------------------------------------------------------- */

/* The next token of each row of logits z [rows, v], f32. engine/infer/sample.h has the order of
 * operations, kernels/sampling.h the arithmetic: the token is that of lf_sampler_draw, whatever
 * other rows the call has. The options of a row lie in device memory and change between calls. The
 * list entries of a row are list[list_at ... list_at + list_n - 1]. A row's list has at most one
 * entry for a token.
 *
 * With on = LF_SAMPLE_NOTE the drawn token is noted in the list. The count of its entry becomes
 * max(count, 0) + 1. When the list has no entry of the token, {0, token, 1} is added at list_at +
 * list_n; the caller keeps that place free. */
struct lf_sample_token {
    double bias; /* added first; -inf forbids the token */
    int32_t id;  /* in [0, v) */
    /* how often the output has the token, for presence and frequency penalties; 0: the token is
     * only in the prompt; -1: no penalty */
    int32_t count;
};
struct lf_sample_row {
    uint64_t seed, index; /* seed and number of the draw */
    double scale;         /* 1 / temperature, cut off at the largest double; 0: greedy */
    double top_p;         /* 1: off */
    double min_x;         /* ln min_p; -inf: off */
    double repetition, presence, frequency; /* 1, 0, 0: off */
    int32_t top_k;                          /* 0: off */
    int32_t list_at, list_n;
    /* 0: nothing is drawn and token is LF_SAMPLE_NONE; 1: a token is drawn; or LF_SAMPLE_NOTE */
    int32_t on;
};
struct lf_sample_out {
    int32_t token; /* or LF_SAMPLE_* */
    float logp;    /* z[token] - lse, 0 without a token */
};
enum { LF_SAMPLE_NOTE = 2 };
/* EMPTY: the row has no finite logit. NONE: no draw was asked for. HOST: the host must draw,
 * because more tokens may be kept than the kernel sorts. */
enum { LF_SAMPLE_EMPTY = -1, LF_SAMPLE_NONE = -2, LF_SAMPLE_HOST = -3 };
/* A row with top-k, top-p or min-p is drawn here when the coarse cut leaves LF_SAMPLE_SORTED tokens
 * or fewer. The coarse cut keeps the tokens that are at least as likely as the last one kept, to a
 * factor of e^(1/51.2); with top-k and top-p, those of top-k. v <= LF_SAMPLE_MOST_TOKENS. */
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

/* A value x is stored as q s. q has the type e4m3 (largest value 448) or e5m2 (57344). s is a power
 * of two that a block of elements shares. s follows from the values themselves ("current scaling"):
 *     s = 2^-e with the largest e for which max(|x|, 2^-60) 2^e fits the type, over the block
 *     q = x 2^e, rounded to nearest even
 * In a block with an element that is not finite, s and every q are NaN.
 *
 * s is a power of two because x 2^e is then exact. So an element is rounded once, to the relative
 * precision of the type, whatever the scale. q s is exact in bf16, so the product of two such
 * matrices is a bf16 product with f32 sums.
 *
 * The blocks of a matrix [R, C], and the place of the scale of element (r, c) (cuBLASLt's
 * SCALAR_32F, VEC128_32F and BLK128x128_32F):
 *     LF_FP8_TENSOR   the whole matrix         [0]
 *     LF_FP8_VEC128   128 columns of a row     [(c / 128) R + r]
 *     LF_FP8_BLK128   128 rows x 128 columns   [(r / 128) P + c / 128]
 * P is C / 128 rounded up, then rounded up to a multiple of 4. Entries between C / 128 rounded up
 * and P are never written nor read. The last block of a row or column may be shorter. */
enum lf_fp8_scaling { LF_FP8_TENSOR = 0, LF_FP8_VEC128, LF_FP8_BLK128 };
enum { LF_FP8_BLOCK = 128 };
static inline int64_t lf_fp8_scales(int64_t rows, int64_t cols, enum lf_fp8_scaling s) /* floats */
{
    const int64_t across = (cols + LF_FP8_BLOCK - 1) / LF_FP8_BLOCK;
    return s == LF_FP8_TENSOR   ? 1
           : s == LF_FP8_VEC128 ? across * rows
                                : (rows + LF_FP8_BLOCK - 1) / LF_FP8_BLOCK * ((across + 3) / 4 * 4);
}

/* q [R, C] and scale are x [R, C] in fp8. qt [C, R] and scale_t are the transpose of x in fp8. With
 * LF_FP8_VEC128 the blocks of qt run down the columns of x. With LF_FP8_TENSOR scale_t is not
 * written, because scale holds for both. q and qt are dense. Each of the four may be NULL. */
struct lf_k_quantise {
    int64_t rows, cols, ldx;
    const void *x;
    void *q, *qt;
    float *scale, *scale_t;
    uint8_t x_type, q_type, scaling; /* q_type LF_E4M3 or LF_E5M2 */
    void *work;
    size_t work_bytes;
};

/* gemm's C = act( A B^T + bias ) + residual (or C += A B^T) of A [M, K] and B [N, K] in fp8. A and
 * B are each the q or the qt of quantise. In `gemm`: ta is false, tb is true, lda = ldb = K, mode
 * is LF_FAST, ab_type and b_packed are not read. With blocks of 128, M, N and K are multiples of
 * 16. The types are not both e5m2. cuBLASLt has these scalings: both LF_FP8_TENSOR, both
 * LF_FP8_VEC128, or one LF_FP8_VEC128 and one LF_FP8_BLK128. With bias, act or pre a library may
 * round the product to c_type before it applies them. */
struct lf_k_gemm_fp8 {
    struct lf_k_gemm gemm;
    const float *a_scale, *b_scale;
    uint8_t a_type, b_type, a_scaling, b_scaling;
};

/* ---- embeddings ------------------------------------------------------------------------------ */

/* y[r] = scale * wte[token[r]] + wpe[position[r] + pos_offset]. With wpe NULL the second term is
 * missing, with wte NULL the first. Token -1 counts as a row of zeros: another op puts something
 * else there. Any other token outside [0, V) gives a NaN row. Where ranks divide the vocabulary,
 * wte has rows [v0, v0 + v) of V = v_all, and tokens of other ranks count as rows of zeros; v_all =
 * 0: all rows are here. A token of [known, V) reads row 0 where known > 0: the table ends there. */
struct lf_k_embed_fwd {
    int64_t rows, c, v, max_pos, v0, v_all, known;
    const int32_t *token, *position;
    const void *wte, *wpe;
    void *y;
    float scale;
    int32_t pos_offset;
    uint8_t w_type, y_type;
};
/* dwte[token[r]] += scale * dy[r]; dwpe[position[r] + pos_offset] += dy[r]. The tables are f32.
 * Token -1 adds nothing. Rows that add to the same table row do so in ascending order. accumulate
 * false zeroes the tables first. Either table may be NULL. dwte has the rows of tokens [v0, v0 +
 * v). A token from known on adds to row 0 where known > 0. */
struct lf_k_embed_bwd {
    int64_t rows, c, v, max_pos, v0, known;
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

#include "kernels/norm.h"

/* ---- weight-decomposed adapters (Liu et al. 2024, DoRA) -------------------------------------- */

/* norm[n] = | w[n] + scale * sum_j b[n][j] a[j] |: the Euclidean norms of the rows of an adapted
 * weight. w [rows, C], b [rows, rank] and a [rank, C] are dense and of w_type. The product is
 * summed over ascending j, then scaled. The squares are summed in f32. With rank 0 it is w's alone;
 * with `squares` its square: those of parts of a row add up. */
struct lf_k_dora_norm {
    int64_t rows, c, rank;
    const void *w, *a, *b;
    float *norm; /* [rows] */
    float scale;
    uint8_t w_type;
    bool squares;
};
/* y[i] = the square root of x[i]. y may be x. */
struct lf_k_root {
    int64_t n;
    const float *x;
    float *y;
};
/* y = base + (s - 1) (base - bias) + s lora + rest s[c] = m[c] / norm[c], or 1 where norm is 0
 * base, lora, rest and y are [R, C] of x_type. bias, m and norm are f32 [C]. bias NULL stands for
 * 0, rest NULL for 0. With m NULL, y = base + rest; then lora, bias and norm are not read (ldlora
 * must still be C or more). With m = norm and lora = 0, y has the bits of base + rest. */
struct lf_k_dora_fwd {
    int64_t rows, c, ldbase, ldlora, ldrest, ldy;
    const void *base, *lora, *rest;
    const float *bias, *m, *norm;
    void *y;
    uint8_t x_type;
};
/* dx = s dy: the gradient of base and of lora alike; NULL: not wanted dm[c] (+)= sum_r dy (base -
 * bias + lora) / norm[c], 0 where norm is 0; NULL: not wanted norm counts as a constant here, as in
 * the paper's section 4.3. dx may be dy. */
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

/* Rotary embedding of `heads` heads at base + t * ld + h * d. Of the d channels it turns `rot`
 * (even), from channel `first` on. y may be x. In terms of what turns:
 *   interleaved false (rotate-half): pairs (i, i + rot/2)
 *   interleaved true:                pairs (2i, 2i+1)
 *   (a, b) -> (a cos - b sin, a sin + b cos); inverse negates sin (backward)
 * The tables cos and sin are f32 [max_pos, rot/2]. With position2 not NULL, heads of odd number
 * turn by position2 instead of position (2-D positions: each head of the model is two of these).
 * With axis not NULL, positions are i32 [R, 3], and pair i of every head turns by position 3 t +
 * axis[i] (time, height and width of a picture's patch, or of a token: M-RoPE, Wang et al. 2024,
 * Qwen2-VL); position2 is then NULL. */
struct lf_k_rope {
    int64_t rows, heads, d, first, rot, max_pos;
    const void *x;
    void *y;
    int64_t ldx, ldy;
    const int32_t *position, *position2;
    const int32_t *axis; /* [rot/2], each 0, 1 or 2 */
    const float *cos, *sin;
    bool interleaved, inverse;
    uint8_t x_type;
};

/* Heads of a channels of their own and b that all share (multi-head latent attention, DeepSeek-AI
 * 2024: the part of a key that turns): y[t][h] = [x[t][h] | z[t]]. x is [R, H a], z [R, b], y [R, H
 * (a + b)]. */
struct lf_k_heads_join {
    int64_t rows, heads, a, b, ldx, ldz, ldy;
    const void *x, *z;
    void *y;
    uint8_t x_type; /* of all three */
};
/* Its backward: dx[t][h] = dy[t][h][0 ... a - 1], dz[t] = sum over h of dy[t][h][a ...], in f32,
 * heads ascending, rounded once. */
struct lf_k_heads_split {
    int64_t rows, heads, a, b, lddy, lddx, lddz;
    const void *dy;
    void *dx, *dz;
    uint8_t x_type;
};

/* Attention within documents: o = softmax(scale * q k^T + mask) v. Head h uses key/value group h /
 * (H/G).
 *
 * Row t, head h of q stands at q + t * ldq + h * D; k has the same layout with G heads. A head of v
 * and o has E = d_value channels, fewer or more than D = d, and lies at v + t * ldv + g * E and
 * o + t * ldo + h * E. D is even; E need not be.
 * cu_seqlens is i32 [n_docs+1], ascending from 0. Rows at or after cu_seqlens[n_docs] are padding:
 * o = 0, lse = -inf. Empty documents are legal, so n_docs may be a static bound. max_doc: no
 * document is longer (0: no bound but rows); a library may rely on it.
 *
 * Masks and scores:
 *   causal     key j is visible to query i only for j <= i, or j < prefix[document] where prefix
 *              (i32 [n_docs]) is not NULL, or j < e where runs (i32 [rows, 2]) are not NULL
 *   runs       neighbouring rows that see each other's keys: for each row (s, e), the position in
 *              its document of the first row of its run and that behind the last. A row that is no
 *              part of one has (i, i + 1). Key j is visible behind query i for j < e of row i, and
 *              row i sees key j from s of row j on; so runs may overlap, as windows of both sides
 *              do, where both say the same and both columns ascend
 *   window > 0 key j is visible only for i - j < window, < 0: for j >= i - i % -window (chunks), in
 *              runs too, or where both are below prefix[document]: it cuts a row's past alone
 *   softcap    > 0: a score becomes cap * tanh(score / cap), before the mask
 *   alibi      adds -slope[h] * (i - j)
 *   bias       adds a number of the head and of j - i (struct lf_k_attn_bias)
 *   sinks      f32 [H]: a score of every row of head h without a key, behind the last tile: the
 *              row's probabilities add up to less than 1 (Xiao et al. 2023; learned: gpt-oss)
 *
 * lse[h][t], f32 [H, rows], is the natural log-sum-exp of the row's scores, its sink's too; NULL:
 * no backward follows. Tiles of LF_ATTN_TILE keys follow each other from the document's first key
 * on, with online softmax. A tile in which every key is masked for a row changes no bit of that
 * row, and runs of one row each change none at all. With drop.p > 0, o = (m . softmax) v with m =
 * keep ? 1 / (1 - p) : 0; lse is still that of all keys. */
#define LF_ATTN_TILE 64
enum { LF_ATTN_MAX_CHANNELS = 1024 }; /* of a head, on CPUs */
#include "kernels/attn_rows.h"
/* With own.first, or own.cu, q, o, lse and what drop names have own.n rows; keys, values,
 * cu_seqlens and runs are of all `rows`; keys may be fewer (own.keys). With own.first a row has the
 * bits that it has among all. A query that has no key at all gets o = 0, lse = -inf. */
struct lf_k_attn_fwd {
    int64_t rows, heads, groups, d, d_value, n_docs, max_doc;
    const void *q, *k, *v;
    void *o;
    float *lse;
    int64_t ldq, ldk, ldv, ldo;
    const int32_t *cu_seqlens;
    const int32_t *prefix; /* [n_docs] or NULL: causal only */
    const int32_t *runs;   /* [rows, 2] or NULL */
    const float *alibi;    /* [H] or NULL */
    const float *sinks;    /* [H] or NULL */
    float scale, softcap;
    struct lf_k_attn_drop drop;
    int32_t window;
    bool causal;
    uint8_t x_type, mode;
    void *work;
    size_t work_bytes;
    struct lf_k_attn_own own;
    struct lf_k_attn_bias bias;
};
/* dq, dk, dv from do, o and lse, with the same masks. They overwrite. Padding rows become 0. What
 * sinks did is in o and lse already. With own.first or own.cu do and dq have own.n rows too. With
 * own.first dk, dv are f32 whatever x_type is: what these queries add to the gradients of keys.
 * dbias f32 [2 reach - 1, H], of bias (NULL: not wanted): the sum of the gradients of all scores of
 * a head that have the same row of the table; documents ascending. */
struct lf_k_attn_bwd {
    int64_t rows, heads, groups, d, d_value, n_docs, max_doc;
    const void *q, *k, *v, *o, *d_o;
    const float *lse;
    void *dq, *dk, *dv;
    int64_t ldq, ldk, ldv, ldo, lddo, lddq, lddk, lddv;
    const int32_t *cu_seqlens;
    const int32_t *prefix, *runs;
    const float *alibi;
    float scale, softcap;
    struct lf_k_attn_drop drop;
    int32_t window;
    bool causal;
    uint8_t x_type, mode;
    void *work;
    size_t work_bytes;
    struct lf_k_attn_own own;
    struct lf_k_attn_bias bias;
    float *dbias;
};

/* What each row adds to the gradient of its heads' sinks, f32 [rows, H]:
 *     ds[t][h] = -e^(sinks[h] - lse[h][t]) (do . o of row t, head h), 0 in padding */
struct lf_k_attn_sinks_bwd {
    int64_t rows, heads, d_value, ldo, lddo, ldds;
    const void *o, *d_o;
    const float *lse, *sinks;
    float *ds;
    uint8_t x_type;
};

/* Paged KV cache. Page p holds page_tokens rows of [G, D] for keys and as many of [G, E] for
 * values. Row i of it, group g, starts at k_pages + (p * page_tokens + i) * ldkp + g D and at
 * v_pages + (p * page_tokens + i) * ldvp + g E. ldkp 0 stands for G D, ldvp 0 for G E. Keys and
 * values may lie in one row: values may be channels of the keys, as those of latents are.
 * page_tokens is a multiple of LF_ATTN_TILE. Pages table[s * max_pages + 0 ...] belong to sequence
 * s, for positions 0, 1, ... On GPUs keys and values lie apart, without gaps.
 *
 * Row r of k and v goes to position pos[r] of sequence seq[r]. Rows with seq < 0 are skipped. */
struct lf_k_kv_write {
    int64_t rows, groups, d, d_value, page_tokens, max_pages;
    const void *k, *v;
    int64_t ldk, ldv, ldkp, ldvp;
    void *k_pages, *v_pages;
    const int32_t *seq, *pos, *table;
    uint8_t x_type;
};
/* Attention of new rows over the cache. Row r is position pos[r] of sequence seq[r]. It sees the
 * cached keys 0 ... pos[r]. With prefix (i32 [sequences], indexed by seq) it sees at least the keys
 * 0 ... prefix[seq[r]] - 1, and with runs (i32 [rows, 2]) those of its run, which must have been
 * written. Masks and bits are those of attn_fwd over the whole document. For seq < 0, o = 0. */
struct lf_k_attn_paged {
    int64_t rows, heads, groups, d, d_value, page_tokens, max_pages;
    const void *q;
    const void *k_pages, *v_pages;
    void *o;
    int64_t ldq, ldo, ldkp, ldvp;
    const int32_t *seq, *pos, *table;
    const int32_t *prefix, *runs; /* or NULL */
    const float *alibi, *sinks;
    float scale, softcap;
    int32_t window;
    uint8_t x_type, mode;
    void *work;
    size_t work_bytes;
    struct lf_k_attn_bias bias;
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
/* y = act(gate) * (up + up_offset). gate and up are [R, C], each with a row distance of its own.
 * With limit > 0 gate is cut to at most limit, and up to [-limit, limit] (gpt-oss). */
struct lf_k_glu_fwd {
    int64_t rows, c, ldg, ldu, ldy;
    const void *gate, *up;
    void *y;
    float limit, up_offset;
    uint8_t act, x_type;
};
/* dgate = dy * (up + up_offset) * act'(gate); dup = dy * act(gate), of what was cut; each is 0
 * where its value was beyond limit. dgate may be gate, and dup may be up. */
struct lf_k_glu_bwd {
    int64_t rows, c, ldg, ldu, lddy, lddg, lddu;
    const void *gate, *up, *dy;
    void *dgate, *dup;
    float limit, up_offset;
    uint8_t act, x_type;
};
/* y = a * alpha + b * beta over n elements (b NULL: y = a * alpha). y may alias a or b. The types
 * may differ, so this is also the cast. */
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
/* Rows by index: y[r] = x[index[r]]. A negative index gives zeros. */
struct lf_k_gather_rows {
    int64_t rows, c, ldx, ldy;
    const void *x;
    const int32_t *index;
    void *y;
    uint8_t x_type;
};
/* A sparse matrix of compressed rows times rows: y[r] (+)= sum of weight[k] x[index[k]] over
 * start[r] <= k < start[r + 1], ascending. An empty row is zeros. y = W x has the gradient dx = W^T
 * dy, which is this kernel with the compressed rows of W^T. It resamples tables of positions,
 * pools, and puts rows of one matrix between those of another. */
struct lf_k_mix_rows {
    int64_t rows, c, ldx, ldy;
    const void *x;
    const int32_t *start, *index; /* start [rows + 1], ascending */
    const float *weight;
    void *y;
    bool accumulate;
    uint8_t x_type, y_type;
};
/* Layer scale (Touvron et al. 2021): y[r, c] = gain[c] x[r, c]. one: gain is one number (Gemma 4).
 * each > 0: of heads of so many columns, by exp(min(gain, most)) (Liu et al. 2022; CPUs alone). */
struct lf_k_col_gate_fwd {
    int64_t rows, c, ldx, ldy, each;
    const void *x;
    const float *gain;
    void *y;
    float most;
    uint8_t x_type;
    bool one;
};
/* dx = gain dy, dgain[c] (+)= sum over r of dy x; of heads, with each. dx may be dy; either may be
 * NULL, and with one dgain is. */
struct lf_k_col_gate_bwd {
    int64_t rows, c, ldx, lddy, lddx, each;
    const void *x, *dy;
    const float *gain;
    void *dx;
    float *dgain, most;
    uint8_t x_type;
    bool one, accumulate; /* of dgain */
};
/* y = keep ? x / (1 - p) : 0 (+ residual). The decision for element (r, c) is word c % 4 of
 *     Philox(seed, site, a = sample[r], b = position[r] * ceil(C/4) + c/4)
 * The element is kept when the word, as a uniform number, is >= p. sample is the global sample id
 * of the row. The backward is the same call on dy. y may alias x. Where ranks divide the columns,
 * the call has columns [c0, c0 + c) of C = c_all, and c0 is a multiple of 4; c_all = 0: all of them
 * are here. */
struct lf_k_dropout {
    int64_t rows, c, ldx, ldres, ldy, c0, c_all;
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

#include "kernels/experts.h"

/* ---- state-space and linear-attention mixers ------------------------------------------------- */

#include "kernels/altup.h"
#include "kernels/dwconv.h"
#include "kernels/scan.h"
#include "kernels/xielu.h"

/* ---- optimizer ------------------------------------------------------------------------------- */

/* One entry per parameter tensor, or per part of one that this rank has: n elements from `first`
 * on, which is a multiple of LF_NORM_BLOCK. The addresses are those of element `first`. */
#define LF_NORM_BLOCK 32768
struct lf_opt_tensor {
    int64_t n, first;
    int64_t block; /* number of its first block among those of all ranks (lf_k_grad_norm.sums) */
    void *master;  /* the weights */
    void *m, *v;   /* Adam's moments */
    const float *grad;
    void *copy;                       /* compute copy refreshed from master, or NULL */
    float *ema;                       /* exponential moving average of the weights, or NULL */
    uint8_t copy_type;                /* type of the copy: bf16; on GPUs fp16 too */
    uint8_t master_type, moment_type; /* f32 or bf16 */
    /* Philox site of the random numbers that round to bf16; each tensor has another */
    uint32_t site;
    float lr_scale, weight_decay;
    /* Where ranks divide matrices (stochastic rounding): the number in the whole tensor of element
     * e is base + e / run * period + e % run, all multiples of 8; run = 0: it is e. */
    int64_t base, run, period;
};
#define lf_opt_element(t, e)                                                                       \
    ((t)->run ? (t)->base + (e) / (t)->run * (t)->period + (e) % (t)->run : (e))
/* Global norm over all tensors. The f64 sums of fixed blocks of LF_NORM_BLOCK elements of a tensor
 * are added in order, on GPUs in a fixed tree.
 *   rec->grad_norm   = ||grad|| / loss_scale
 *   rec->clip_factor = min(1, clip_norm / (norm + 1e-6)) / loss_scale
 *   rec->skip        = 1 when norm or loss_sum is not finite or 0 < loss_limit < loss_sum
 *
 * Where each rank has parts of the tensors, it takes two calls. The first has `parts`: it
 * writes the sums of the blocks of t to sums[n_sums], at their numbers, and zeros elsewhere. Then
 * the ranks add up their sums, which is exact, because a block is one rank's. The second call has
 * sums without `parts` and adds them in order, so the norm has the bits of one call over whole
 * tensors. */
struct lf_k_grad_norm {
    int64_t n_tensors;
    const struct lf_opt_tensor *t;
    struct lf_step_record *rec;
    double *sums;   /* NULL: one call */
    int64_t n_sums; /* blocks of all tensors, with one call too */
    bool parts;
    void *work;
    size_t work_bytes;
};
/* AdamW (Loshchilov and Hutter 2019), as torch.optim.AdamW:
 *   g = grad * clip_factor
 *   p -= lr * wd * p
 *   m = b1 m + (1 - b1) g
 *   v = b2 v + (1 - b2) g^2
 *   p -= lr * (m / bias_corr1) / (sqrt(v / bias_corr2) + eps)
 *   ema += rec->average * (p - ema), and p itself where rec->average is 1
 * All of it is f32. p uses the new m and v before they are rounded, and ema the new p before it is
 * rounded. With rec->skip != 0 nothing is written.
 *
 * Values stored in bf16 are rounded to nearest even or, with `stochastic`, up or down at random
 * (Gupta et al. 2015). The probability of rounding up makes the expected value exact, so changes
 * smaller than half a unit are not lost. Element e of state k (0: m, 1: v, 2: weights) draws 16
 * bits by lf_adamw_draw from Philox(rec->seed, site, a = 4 rec->step + k, b = e / 8), where e is
 * counted in the whole tensor (lf_opt_element). They are
 * added to the 16 low bits of the f32 value, which bf16 does not have, and the sum is cut off. So
 * the result is a pure function of step and element. */
struct lf_k_adamw {
    int64_t n_tensors;
    const struct lf_opt_tensor *t;
    float beta1, beta2, eps;
    bool stochastic;
    const struct lf_step_record *rec;
};
/* The 16 bits of element e, from the four words of its Philox counter. */
#define lf_adamw_draw(words, e) ((words)[(e) / 2 % 4] >> ((e) % 2 ? 16 : 0) & 0xffffu)
/* One rank's part of a sum of gradients over ranks, f32, GPUs only:
 *
 *   y[i] = (((T[i] + x_0[i]) + x_1[i]) + ...) + x_{ranks-1}[i]
 *
 * T is what y holds before, with `more`; else the sum begins with x_0. x_rank is mine, which may be
 * y. The parts of the other ranks follow each other in `others`, in their order, a stride apart. */
struct lf_k_sum_ranks {
    int64_t n, stride; /* floats; stride >= n */
    int ranks, rank;
    const float *mine, *others;
    float *y;
    bool more;
};

/* ---- the table ------------------------------------------------------------------------------- */

/* Those of both backends, and gemm_heads of CPUs alone. LF_KERNEL_LIST adds those of GPUs alone. */
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
    X(heads_join)                                                                                  \
    X(heads_split)                                                                                 \
    X(attn_fwd)                                                                                    \
    X(attn_bwd)                                                                                    \
    X(attn_sinks_bwd)                                                                              \
    X(kv_write)                                                                                    \
    X(attn_paged)                                                                                  \
    X(act_fwd)                                                                                     \
    X(act_bwd)                                                                                     \
    X(glu_fwd)                                                                                     \
    X(glu_bwd)                                                                                     \
    X(xielu_fwd)                                                                                   \
    X(xielu_bwd)                                                                                   \
    X(dwconv_fwd)                                                                                  \
    X(dwconv_bwd)                                                                                  \
    X(turn_rows)                                                                                   \
    X(altup_mix)                                                                                   \
    X(altup_mix_dw)                                                                                \
    X(match_rms_fwd)                                                                               \
    X(match_rms_bwd)                                                                               \
    X(gauss_topk_fwd)                                                                              \
    X(gauss_topk_bwd)                                                                              \
    X(axpby)                                                                                       \
    X(fill)                                                                                        \
    X(gather_rows)                                                                                 \
    X(mix_rows)                                                                                    \
    X(col_gate_fwd)                                                                                \
    X(col_gate_bwd)                                                                                \
    X(conv_fwd)                                                                                    \
    X(conv_bwd)                                                                                    \
    X(scan_gate_fwd)                                                                               \
    X(scan_gate_bwd)                                                                               \
    X(scan_fwd)                                                                                    \
    X(scan_bwd)                                                                                    \
    X(dropout)                                                                                     \
    X(grad_norm)                                                                                   \
    X(adamw)                                                                                       \
    X(moe_route)                                                                                   \
    X(moe_route_bwd)                                                                               \
    X(moe_stats)                                                                                   \
    X(moe_keep)                                                                                    \
    X(moe_sort)                                                                                    \
    X(moe_combine)                                                                                 \
    X(moe_combine_bwd)                                                                             \
    X(moe_gain)                                                                                    \
    X(moe_gain_dw)                                                                                 \
    X(row_gate_fwd)                                                                                \
    X(row_gate_bwd)                                                                                \
    X(grouped_gemm)                                                                                \
    X(grouped_colsum)                                                                              \
    X(moe_balance)                                                                                 \
    X(dora_norm)                                                                                   \
    X(dora_fwd)                                                                                    \
    X(dora_bwd)                                                                                    \
    X(root)                                                                                        \
    X(quantise)                                                                                    \
    X(gemm_fp8)                                                                                    \
    X(gemm_heads)
#define LF_KERNEL_LIST(X)                                                                          \
    LF_CPU_KERNEL_LIST(X)                                                                          \
    X(sample)                                                                                      \
    X(sum_ranks)

/* `run` executes the kernel. `check` validates an argument struct without touching data; pointers
 * may be NULL. `work` gives the bytes of workspace for these shapes and this number of threads; a
 * NULL `work` means 0. */
#define LF_KERNEL_SLOT(name)                                                                       \
    struct {                                                                                       \
        int (*run)(lf_queue * q, const struct lf_k_##name *a);                                     \
        int (*check)(const struct lf_k_##name *a);                                                 \
        size_t (*work)(const struct lf_k_##name *a, int threads);                                  \
    } name;
/* Grows when a kernel of any family gives other bits than before (kernels/README.md); fingerprints
 * have it. 1: before it was counted; 2, 3: in scans of CPUs, blocks of heads, and of decays. */
enum { LF_KERNEL_VERSION = 3 };

struct lf_kernels {
    const char *family; /* "cpu-avx512bf16", ... */
    LF_KERNEL_LIST(LF_KERNEL_SLOT)
};

/* Instruction sets of the CPU backend, ascending on each architecture: x86-64 has AVX, AArch64 NEON
 * and SVE. Code for SVE is made for one vector length, in bits in its name, and runs on no other;
 * where SVE has another length, NEON runs. lf_cpu_isa_detect gives the best one that the processor
 * and the environment variable LF_ISA (a name) allow. gemm, attention and all other kernels use
 * it. */
enum lf_isa {
    LF_ISA_PLAIN = 0,
    LF_ISA_AVX2,
    LF_ISA_AVX512,
    LF_ISA_AVX512BF16,
    LF_ISA_NEON,
    LF_ISA_NEONBF16,
    LF_ISA_SVE256BF16,
    LF_ISA_SVE512,
    LF_ISAS
};
enum lf_isa lf_cpu_isa_detect(void);
const char *lf_cpu_isa_name(enum lf_isa isa);
/* Whether this architecture may have the instruction set, on another processor or in another build
 * perhaps. */
bool lf_cpu_isa_known(enum lf_isa isa);
/* Table of one instruction set; NULL when this processor lacks it. Tables are constant data. */
const struct lf_kernels *lf_cpu_kernels(enum lf_isa isa);

#define LF_KERNEL_PROTO(name)                                                                      \
    int lf_cpu_##name(lf_queue *q, const struct lf_k_##name *a);                                   \
    int lf_cpu_##name##_check(const struct lf_k_##name *a);

#endif
