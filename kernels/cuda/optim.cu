/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizer step over all tensors in one launch each: gradient norm (f64 sums of blocks of
 * LF_NORM_BLOCK elements, then a fixed tree), AdamW, the bias rule of balanced experts; and sums of
 * gradients over ranks.
 */
#include "kernels/cuda/each.h"
#include "kernels/cuda/optim.h"

/* For every piece of `size` elements that is this thread block's: number next - first of those of
 * tensor i. */
#define EACH_PIECE(tensors, table, size)                                                           \
    int64_t next = blockIdx.x, first = 0;                                                          \
    for (int64_t i = 0; i < (tensors); first += ((table)[i].n + (size)-1) / (size), i++)           \
        for (const int64_t end = first + ((table)[i].n + (size)-1) / (size); next < end;           \
             next += gridDim.x)

LF_DEV int64_t chunk_at(int64_t chunk)
{
    return chunk * LF_OPT_CHUNK + 8 * (int64_t)threadIdx.x;
}

LF_DEV double block_sum_d(double v, double *scratch)
{
    double s = 0.0;
    v = lf_warp_sum_d(v);
    if (threadIdx.x % 32 == 0)
        scratch[threadIdx.x / 32] = v;
    __syncthreads();
    for (int w = 0; w < LF_OPT_THREADS / 32; w++)
        s += scratch[w];
    return s;
}

/* This thread's share of the sum of squares of elements [at, end) of g. */
LF_DEV double sum_squares(const float *grad, int64_t at, int64_t end)
{
    const bool vec = lf_vec8(grad, 0, LF_F32);
    double s = 0.0;
    for (at += 8 * (int64_t)threadIdx.x; at < end; at += LF_OPT_CHUNK) {
        float g[8];
        lf_load_n(g, grad, at, LF_F32, lf_eight(end, at), vec);
        LF_UNROLL for (int j = 0; j < 8; j++) s =
            fma((double)g[j], (double)g[j], s); /* the square is exact */
    }
    return s;
}

LF_DEV double *sums_of(const struct lf_k_grad_norm *a)
{
    return a->sums ? a->sums : (double *)a->work;
}

LF_KERNEL(grad_norm, struct lf_k_grad_norm, LF_OPT_THREADS)
{
    LF_SHARED(double, scratch);
    EACH_PIECE(a->n_tensors, a->t, LF_NORM_BLOCK)
    {
        const struct lf_opt_tensor *t = &a->t[i];
        const int64_t at = (next - first) * LF_NORM_BLOCK, most = at + LF_NORM_BLOCK,
                      to = (a->parts ? t->block : first) + (next - first);
        const double s = block_sum_d(sum_squares(t->grad, at, t->n < most ? t->n : most), scratch);
        if (threadIdx.x == 0 && to < a->n_sums)
            sums_of(a)[to] = s;
        __syncthreads(); /* scratch is written again */
    }
}

LF_DEV bool finite_d(double v)
{
    return v - v == 0.0; /* NaN for NaN and infinity */
}

/* One block. */
LF_KERNEL(grad_norm_end, struct lf_k_grad_norm, LF_OPT_THREADS)
{
    LF_SHARED(double, scratch);
    double s = 0.0;
    for (int64_t i = threadIdx.x; i < a->n_sums; i += LF_OPT_THREADS)
        s += sums_of(a)[i];
    s = block_sum_d(s, scratch);
    if (threadIdx.x)
        return;
    struct lf_step_record *rec = a->rec;
    const double scale = (double)rec->loss_scale, norm = sqrt(s) / scale,
                 clip = (double)rec->clip_norm;
    const double factor = clip > 0.0 && clip < norm + 1e-6 ? clip / (norm + 1e-6) : 1.0;
    rec->grad_norm = (float)norm;
    rec->clip_factor = (float)(factor / scale);
    if (!finite_d((double)rec->grad_norm) || !finite_d(rec->loss_sum) ||
        (rec->loss_limit > 0.0 && rec->loss_sum > rec->loss_limit))
        rec->skip = 1;
}

/* x as bf16 holds it, up or down by 16 bits of chance; NaN stays. */
LF_DEV float round_random(float x, uint32_t r)
{
    return x == x ? lf_u32_f((lf_f_u32(x) + r) & 0xffff0000u) : x;
}

/* Eight elements of state k (kernels.h) before they are stored as `type`. */
LF_DEV void maybe_random(float x[8], const struct lf_k_adamw *a, const struct lf_opt_tensor *t,
                         int64_t at, int type, uint64_t k)
{
    uint32_t w[4];
    if (!a->stochastic || type != LF_BF16)
        return;
    lf_philox(w, a->rec->seed, t->site, 4 * a->rec->step + k,
              (uint32_t)(lf_opt_element(t, t->first + at) / 8));
    LF_UNROLL for (int j = 0; j < 8; j++) x[j] = round_random(x[j], lf_adamw_draw(w, j));
}

/* Each product that is added to stands in a fused multiply-add, so that compilers have nothing left
 * to fuse and the bits are those of kernels/cpu/optim.c. */
LF_KERNEL(adamw, struct lf_k_adamw, LF_OPT_THREADS)
{
    const struct lf_step_record *rec = a->rec;
    if (rec->skip)
        return;
    const float clip = rec->clip_factor, c1 = 1.0f - a->beta1, c2 = 1.0f - a->beta2,
                ib1 = 1.0f / rec->bias_corr1, ib2 = 1.0f / rec->bias_corr2;
    EACH_PIECE(a->n_tensors, a->t, LF_OPT_CHUNK)
    {
        const struct lf_opt_tensor *t = &a->t[i];
        const int64_t at = chunk_at(next - first);
        const int n = lf_eight(t->n, at), mt = t->moment_type, pt = t->master_type;
        const bool vec = lf_vec8(t->grad, 0, LF_F32) && lf_vec8(t->m, 0, mt) &&
                         lf_vec8(t->v, 0, mt) && lf_vec8(t->master, 0, pt);
        const float lr = rec->lr * t->lr_scale, decay = fmaf(-lr, t->weight_decay, 1.0f);
        float p[8], m[8], v[8], g[8];
        lf_load_n(g, t->grad, at, LF_F32, n, vec);
        lf_load_n(m, t->m, at, mt, n, vec);
        lf_load_n(v, t->v, at, mt, n, vec);
        lf_load_n(p, t->master, at, pt, n, vec);
        LF_UNROLL for (int j = 0; j < 8; j++)
        {
            const float x = g[j] * clip;
            m[j] = fmaf(a->beta1, m[j], c1 * x);
            v[j] = fmaf(a->beta2, v[j], c2 * x * x);
            p[j] = fmaf(p[j], decay, -(lr * (m[j] * ib1) / (sqrtf(v[j] * ib2) + a->eps)));
        }
        if (t->ema) {
            const bool ev = lf_vec8(t->ema, 0, LF_F32);
            float e[8];
            lf_load_n(e, t->ema, at, LF_F32, n, ev);
            LF_UNROLL for (int j = 0; j < 8; j++)
            {
                e[j] = rec->average == 1.0f ? p[j] : fmaf(rec->average, p[j] - e[j], e[j]);
            }
            lf_store_n(t->ema, at, LF_F32, e, n, ev);
        }
        maybe_random(m, a, t, at, mt, 0);
        maybe_random(v, a, t, at, mt, 1);
        maybe_random(p, a, t, at, pt, 2);
        lf_store_n(t->m, at, mt, m, n, vec);
        lf_store_n(t->v, at, mt, v, n, vec);
        lf_store_n(t->master, at, pt, p, n, vec);
        if (t->copy)
            lf_store_n(t->copy, at, t->copy_type, p, n, lf_vec8(t->copy, 0, t->copy_type));
    }
}

/* A warp for each tensor; counts are whole numbers, so their sum in f64 is exact in any order. */
LF_KERNEL(moe_balance, struct lf_k_moe_balance, 32)
{
    const struct lf_opt_tensor *t = &a->t[blockIdx.x];
    double sum = 0.0;
    if (a->rec->skip)
        return;
    for (int64_t e = threadIdx.x; e < t->n; e += 32)
        sum += (double)t->grad[e];
    const double mean = lf_warp_sum_d(sum) / (double)t->n;
    float *bias = (float *)t->master;
    for (int64_t e = threadIdx.x; e < t->n; e += 32) {
        const double g = (double)t->grad[e];
        bias[e] += g < mean ? t->lr_scale : g > mean ? -t->lr_scale : 0.0f;
    }
}

/* x_r of a sum over ranks. */
LF_DEV const float *part_of(const struct lf_k_sum_ranks *a, int r)
{
    return r == a->rank ? a->mine : a->others + (r > a->rank ? r - 1 : r) * a->stride;
}

LF_KERNEL(sum_ranks, struct lf_k_sum_ranks, LF_OPT_THREADS)
{
    const bool vec = lf_vec8(a->y, 0, LF_F32) && lf_vec8(a->mine, 0, LF_F32) &&
                     lf_vec8(a->others, a->stride, LF_F32);
    for (int64_t at = 8 * lf_index(); at < a->n; at += 8 * lf_threads()) {
        const int n = lf_eight(a->n, at);
        float y[8], x[8];
        lf_load_n(y, a->more ? a->y : part_of(a, 0), at, LF_F32, n, vec);
        for (int r = a->more ? 0 : 1; r < a->ranks; r++) {
            lf_load_n(x, part_of(a, r), at, LF_F32, n, vec);
            LF_UNROLL for (int j = 0; j < 8; j++) y[j] += x[j];
        }
        lf_store_n(a->y, at, LF_F32, y, n, vec);
    }
}
