/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizer step over all tensors of a process: global gradient norm and AdamW, each in one
 * pass over memory. The norm adds f64 sums of fixed blocks in order. AdamW is element-wise; threads
 * own contiguous ranges of the concatenation of all tensors. The arithmetic is that of
 * kernels/cuda/optim.cu operation by operation: with a fused multiply-add (all but plain) both give
 * the same bits.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/philox.h"

LF_CPU_DECLARE(grad_norm)
LF_CPU_DECLARE(adamw)

LF_NO_WORK(adamw)

enum { ADAM_PIECE = 32768 };

static int64_t blocks_of(const struct lf_opt_tensor *t)
{
    return (t->n + LF_NORM_BLOCK - 1) / LF_NORM_BLOCK;
}

static int64_t norm_blocks(const struct lf_k_grad_norm *a)
{
    int64_t n = 0;
    for (int64_t i = 0; i < a->n_tensors; i++)
        n += blocks_of(&a->t[i]);
    return n;
}

int LF_SYM(grad_norm_check)(const struct lf_k_grad_norm *a)
{
    if (a->n_tensors < 0 || a->n_sums < 0 || (a->parts && !a->sums))
        return LF_K_EINVAL;
    for (int64_t i = 0; a->t && i < a->n_tensors; i++)
        if (a->t[i].n < 0 ||
            (a->parts && (a->t[i].block < 0 || a->t[i].block + blocks_of(&a->t[i]) > a->n_sums)))
            return LF_K_EINVAL;
    return LF_K_OK;
}

size_t LF_SYM(grad_norm_work)(const struct lf_k_grad_norm *a, int threads)
{
    (void)threads;
    return a->sums ? 0 : (size_t)norm_blocks(a) * sizeof(double);
}

/* Sum of squares of one block in f64: sixteen running sums, element i in sum i % 16, then a fixed
 * tree. */
static double sum_sq(const float *g, int64_t n)
{
    double s[16] = {0.0};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++)
            s[j] += (double)g[i + j] * (double)g[i + j];
    for (int j = 0; i < n; i++, j++)
        s[j] += (double)g[i] * (double)g[i];
    for (int w = 8; w > 0; w /= 2)
        for (int j = 0; j < w; j++)
            s[j] += s[j + w];
    return s[0];
}

struct norm_job {
    const struct lf_k_grad_norm *a;
    double *sums;
};

/* sums[b] for blocks [lo, hi) of all tensors: by their numbers, or one tensor after the other. */
static void norm_blocks_of(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct norm_job *job = arg;
    const struct lf_k_grad_norm *a = job->a;
    int64_t first = 0;
    (void)q;
    for (int64_t i = 0; i < a->n_tensors && first < hi; i++) {
        const struct lf_opt_tensor *t = &a->t[i];
        const int64_t nb = blocks_of(t), to = a->parts ? t->block : first;
        int64_t b0 = lo > first ? lo - first : 0, b1 = hi - first < nb ? hi - first : nb;
        for (int64_t b = b0; b < b1; b++) {
            int64_t rest = t->n - b * LF_NORM_BLOCK;
            job->sums[to + b] =
                sum_sq(t->grad + b * LF_NORM_BLOCK, rest < LF_NORM_BLOCK ? rest : LF_NORM_BLOCK);
        }
        first += nb;
    }
}

static void norm_sums(lf_queue *q, const struct lf_k_grad_norm *a, double *sums)
{
    const int64_t blocks = norm_blocks(a);
    lf_deal(q, lf_team(q, blocks * LF_NORM_BLOCK * 4), blocks, 1, norm_blocks_of,
            &(struct norm_job){a, sums});
}

int LF_SYM(grad_norm)(lf_queue *q, const struct lf_k_grad_norm *a)
{
    double *part = a->sums ? a->sums : (double *)a->work;
    const int64_t blocks = a->sums ? a->n_sums : norm_blocks(a);
    if (!a->sums && a->work_bytes < (size_t)blocks * sizeof(double))
        return LF_K_EINVAL;
    if (a->parts)
        memset(part, 0, (size_t)blocks * sizeof *part);
    if (a->parts || !a->sums)
        norm_sums(q, a, part);
    if (a->parts)
        return LF_K_OK;
    double sum = 0.0;
    for (int64_t b = 0; b < blocks; b++)
        sum += part[b];
    struct lf_step_record *rec = a->rec;
    const double scale = (double)rec->loss_scale, norm = sqrt(sum) / scale,
                 clip = (double)rec->clip_norm;
    double factor = clip > 0.0 && clip < norm + 1e-6 ? clip / (norm + 1e-6) : 1.0;
    rec->grad_norm = (float)norm;
    rec->clip_factor = (float)(factor / scale);
    if (!isfinite(rec->grad_norm) || !isfinite(rec->loss_sum) ||
        (rec->loss_limit > 0.0 && rec->loss_sum > rec->loss_limit))
        rec->skip = 1;
    return LF_K_OK;
}

static bool state_types(const struct lf_opt_tensor *t)
{
    return lf_is_float(t->master_type) && lf_is_float(t->moment_type) &&
           (!t->copy || t->copy_type == LF_BF16);
}

int LF_SYM(adamw_check)(const struct lf_k_adamw *a)
{
    if (a->n_tensors < 0 || !(a->beta1 >= 0.0f && a->beta1 < 1.0f) ||
        !(a->beta2 >= 0.0f && a->beta2 < 1.0f) || !(a->eps >= 0.0f))
        return LF_K_EINVAL;
    for (int64_t i = 0; a->t && i < a->n_tensors; i++)
        if (a->t[i].n < 0 || !state_types(&a->t[i]))
            return LF_K_EINVAL;
    return LF_K_OK;
}

struct adam_consts {
    lf_v clip, b1, c1, b2, c2, inv_bc1, inv_bc2, eps, average;
    bool anew; /* averages are the weights */
};

/* What rounds DRAW_SPAN consecutive elements, the first a multiple of 8: 16 bits each for m, v,
 * weights. */
enum { DRAW_SPAN = 8 * LF_VL };
struct draws {
    int64_t first;
    uint32_t word[3][4 * LF_VL];
};

/* v as bf16 holds it, up or down by 16 bits of chance; NaN stays. */
LF_INLINE lf_v round_random(lf_v v, lf_vu r)
{
    const lf_vi cut = (lf_vi)(((lf_vu)v + r) & 0xffff0000u);
    return (lf_v)lf_vi_select(v != v, (lf_vi)v, cut);
}

LF_INLINE lf_v maybe_random(lf_v v, uint8_t type, const struct draws *d, int state, int64_t i,
                            int64_t n)
{
    if (!d || type != LF_BF16)
        return v;
    return round_random(v, (lf_vu)lf_get(d->word[state], i - d->first, LF_BF16, n) >> 16);
}

/* mt, pt: storage of moments and weights, constants where it counts. d NULL: nearest even. */
LF_INLINE void adam_vec(const struct lf_opt_tensor *t, int64_t i, int64_t n,
                        const struct adam_consts *k, lf_v decay, lf_v lr, uint8_t mt, uint8_t pt,
                        const struct draws *d)
{
    lf_v g = lf_get(t->grad, i, LF_F32, n) * k->clip;
    lf_v m = lf_v_fma(k->b1, lf_get(t->m, i, mt, n), k->c1 * g);
    lf_v v = lf_v_fma(k->b2, lf_get(t->v, i, mt, n), k->c2 * g * g);
    lf_v denom = lf_v_sqrt(v * k->inv_bc2) + k->eps;
    lf_v p = lf_v_fma(lf_get(t->master, i, pt, n), decay, -(lr * (m * k->inv_bc1) / denom));
    if (t->ema) {
        const lf_v e = lf_get(t->ema, i, LF_F32, n);
        lf_put(t->ema, i, LF_F32, n, k->anew ? p : lf_v_fma(k->average, p - e, e));
    }
    p = maybe_random(p, pt, d, 2, i, n);
    lf_put(t->m, i, mt, n, maybe_random(m, mt, d, 0, i, n));
    lf_put(t->v, i, mt, n, maybe_random(v, mt, d, 1, i, n));
    lf_put(t->master, i, pt, n, p);
    if (t->copy)
        lf_put(t->copy, i, LF_BF16, n, p);
}

LF_INLINE void adam_vecs(const struct lf_opt_tensor *t, int64_t lo, int64_t hi,
                         const struct adam_consts *k, lf_v decay, lf_v lr, uint8_t mt, uint8_t pt,
                         const struct draws *d)
{
    int64_t i = lo;
    for (; i + LF_VL <= hi; i += LF_VL)
        adam_vec(t, i, LF_VL, k, decay, lr, mt, pt, d);
    if (i < hi)
        adam_vec(t, i, hi - i, k, decay, lr, mt, pt, d);
}

/* Elements [lo, hi) in spans that share their draws. */
static void adam_random(const struct lf_opt_tensor *t, int64_t lo, int64_t hi,
                        const struct adam_consts *k, lf_v decay, lf_v lr,
                        const struct lf_step_record *rec)
{
    struct draws d;
    for (int64_t at = lo / 8 * 8, end; at < hi; at = end) {
        /* of a divided matrix, numbers are consecutive within a run */
        const int64_t run = t->run ? t->run - (t->first + at) % t->run : DRAW_SPAN,
                      span = run < DRAW_SPAN ? run : DRAW_SPAN;
        end = hi - at < span ? hi : at + span;
        d.first = at;
        for (uint64_t s = 0; s < 3; s++)
            if ((s < 2 ? t->moment_type : t->master_type) == LF_BF16)
                lf_philox_span(d.word[s], rec->seed, t->site, 4 * rec->step + s,
                               (uint32_t)(lf_opt_element(t, t->first + at) / 8));
        adam_vecs(t, at < lo ? lo : at, end, k, decay, lr, t->moment_type, t->master_type, &d);
    }
}

static void adam_range(const struct lf_k_adamw *a, const struct lf_opt_tensor *t, int64_t lo,
                       int64_t hi, const struct adam_consts *k)
{
    const float lr = a->rec->lr * t->lr_scale;
    const lf_v vlr = lf_v_set1(lr), decay = lf_v_set1(fmaf(-lr, t->weight_decay, 1.0f));
    const bool narrow = t->moment_type == LF_BF16 || t->master_type == LF_BF16;
    if (narrow && a->stochastic)
        adam_random(t, lo, hi, k, decay, vlr, a->rec);
    else if (narrow)
        adam_vecs(t, lo, hi, k, decay, vlr, t->moment_type, t->master_type, NULL);
    else
        adam_vecs(t, lo, hi, k, decay, vlr, LF_F32, LF_F32, NULL);
}

/* Bytes that go through memory for an element. */
static int64_t adam_bytes(const struct lf_opt_tensor *t)
{
    return 4 + 4 * (int64_t)lf_dtype_size(t->moment_type) +
           2 * (int64_t)lf_dtype_size(t->master_type) + (t->copy ? 2 : 0) + (t->ema ? 8 : 0);
}

struct adam_job {
    const struct lf_k_adamw *a;
    struct adam_consts k;
};

/* Elements [lo, hi) of all tensors, one after the other. */
static void adam_elements(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct adam_job *job = arg;
    const struct lf_k_adamw *a = job->a;
    int64_t first = 0;
    (void)q;
    for (int64_t i = 0; i < a->n_tensors && first < hi; i++) {
        const int64_t n = a->t[i].n, b = lo > first ? lo - first : 0,
                      e = hi - first < n ? hi - first : n;
        if (b < e)
            adam_range(a, &a->t[i], b, e, &job->k);
        first += n;
    }
}

int LF_SYM(adamw)(lf_queue *q, const struct lf_k_adamw *a)
{
    const struct lf_step_record *rec = a->rec;
    int64_t total = 0, bytes = 0;
    if (rec->skip)
        return LF_K_OK;
    for (int64_t i = 0; i < a->n_tensors; i++) {
        total += a->t[i].n;
        bytes += a->t[i].n * adam_bytes(&a->t[i]);
    }
    const struct adam_job job = {
        .a = a,
        .k = {lf_v_set1(rec->clip_factor), lf_v_set1(a->beta1), lf_v_set1(1.0f - a->beta1),
              lf_v_set1(a->beta2), lf_v_set1(1.0f - a->beta2), lf_v_set1(1.0f / rec->bias_corr1),
              lf_v_set1(1.0f / rec->bias_corr2), lf_v_set1(a->eps), lf_v_set1(rec->average),
              rec->average == 1.0f}};
    lf_deal(q, lf_team(q, bytes), total, ADAM_PIECE, adam_elements, &job);
    return LF_K_OK;
}
