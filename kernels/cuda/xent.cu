/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of logits: log-sum-exp, argmax, loss, entropy, and the gradient in place (xent_args.h states
 * the order of sums).
 */
#include "kernels/cuda/dev.h"
#include "kernels/cuda/xent_args.h"

/* A part of a row: its maximum, that element's lowest index, and over its elements z the sums of
 * e^(z - max) and of e^(z - max) (z - max). */
struct part {
    float max, sum, bent;
    int arg;
};

/* p's sums seen from a maximum that is not smaller. */
LF_DEV void lift(struct part *p, float max)
{
    if (p->sum > 0.0f && max > p->max) {
        const float d = p->max - max, e = expf(d);
        p->bent = fmaf(p->sum, d, p->bent) * e;
        p->sum = p->sum * e;
    }
    p->max = max;
}

LF_DEV void join(struct part *p, struct part o)
{
    if (o.max > p->max || (o.max == p->max && o.arg < p->arg))
        p->arg = o.arg;
    const float max = fmaxf(p->max, o.max);
    lift(p, max);
    lift(&o, max);
    p->sum = p->sum + o.sum;
    p->bent = p->bent + o.bent;
}

LF_DEV float capped(float z, float softcap, float t)
{
    if (softcap > 0.0f)
        z = softcap * tanhf(z * (1.0f / softcap));
    return t != 1.0f ? t * z : z;
}

/* Reduces the n logits of a row; with `keep` they are stored as capped and scaled. scratch:
 * LF_XENT_THREADS / 32 parts.
 */
LF_DEV struct part row_part(float *z, int64_t n, float softcap, float t, bool keep,
                            struct part *scratch)
{
    const int lane = (int)threadIdx.x % 32, warps = (int)blockDim.x / 32;
    const bool vec = (uintptr_t)z % 16 == 0;
    struct part p = {-INFINITY, 0.0f, 0.0f, threadIdx.x ? 0x7fffffff : 0};
    for (int64_t j = 4 * (int64_t)threadIdx.x; j < n; j += LF_XENT_STEP) {
        float v[4];
        const int w = n - j < 4 ? (int)(n - j) : 4;
        if (vec && w == 4) {
            const struct lf_u4 u = *(const struct lf_u4 *)(z + j);
            LF_UNROLL for (int i = 0; i < 4; i++) v[i] = lf_u32_f(u.x[i]);
        } else {
            LF_UNROLL for (int i = 0; i < 4; i++) v[i] = i < w ? z[j + i] : -INFINITY;
        }
        LF_UNROLL for (int i = 0; i < 4; i++)
        {
            if (i >= w)
                continue;
            v[i] = capped(v[i], softcap, t);
            if (keep)
                z[j + i] = v[i];
        }
        const float max = fmaxf(fmaxf(v[0], v[1]), fmaxf(v[2], v[3]));
        if (max > p.max) {
            lift(&p, max);
            p.arg = (int)j + (v[0] == max ? 0 : v[1] == max ? 1 : v[2] == max ? 2 : 3);
        }
        LF_UNROLL for (int i = 0; i < 4; i++)
        {
            const float d = v[i] - p.max, e = i < w ? expf(d) : 0.0f;
            p.sum += e;
            p.bent = e > 0.0f ? fmaf(e, d, p.bent) : p.bent;
        }
    }
    LF_UNROLL for (int m = 16; m; m >>= 1)
    {
        const struct part o = {lf_shfl_xor(p.max, m), lf_shfl_xor(p.sum, m), lf_shfl_xor(p.bent, m),
                               lf_shfl_xor_i(p.arg, m)};
        join(&p, o);
    }
    if (lane == 0)
        scratch[threadIdx.x / 32] = p;
    __syncthreads();
    p = scratch[0];
    for (int w = 1; w < warps; w++)
        join(&p, scratch[w]);
    return p;
}

/* 0 stands for 1, so that who knows no temperature need not name one. */
LF_DEV float temperature(float inv)
{
    return inv > 0.0f ? inv : 1.0f;
}

/* What every element of a row's gradient is made of: dz_j = (a + b (z_j - max)) e^(z_j - max) - g
 * [j == target]. */
struct row_dz {
    float a, b, g;
};

LF_DEV struct row_dz row_factors(const struct lf_cu_xent *a, int64_t i, int target, float sum,
                                 float lse, float entropy)
{
    const struct lf_k_linear_xent *x = &a->x;
    const int64_t r = a->r0 + i;
    struct row_dz k = {0.0f, 0.0f, 0.0f};
    if (target >= a->x.v_all) {
        k.a = NAN;
    } else if (x->dlogp ||
               x->dentropy) { /* p_j = e^(z_j - max) / sum, log p_j = z_j - max - log sum */
        const float dl = x->dlogp ? x->dlogp[r] : 0.0f, dh = x->dentropy ? x->dentropy[r] : 0.0f;
        k.a = -fmaf(dh, entropy - logf(sum), dl) / sum;
        k.b = -dh / sum;
        k.g = -dl;
    } else {
        const float coef = x->rec && !x->head ? x->rec->z_loss : 0.0f,
                    inv = !x->rec   ? 1.0f
                          : x->head ? x->rec->more_inv
                                    : x->rec->inv_tokens,
                    g = x->rec ? inv * x->rec->loss_scale : 1.0f;
        k.a = g * fmaf(2.0f * coef, lse, 1.0f) / sum;
        k.g = g;
    }
    return k;
}

/* z[0, v) becomes dz in place, of x_type at the front of the row; columns from v_real on, and every
 * one of a row without target, are 0. What a turn of the loop stores lies over elements that this
 * turn or an earlier one has read.
 */
LF_DEV void row_grad(const struct lf_k_linear_xent *x, float *z, int target, int here, float max,
                     struct row_dz k)
{
    const float cap = x->softcap, t = temperature(x->inv_temperature);
    const int64_t turns = (x->v + LF_XENT_STEP - 1) / LF_XENT_STEP;
    for (int64_t i = 0; i < turns; i++) {
        const int64_t j = i * LF_XENT_STEP + 4 * (int64_t)threadIdx.x;
        float d[4];
        LF_UNROLL for (int e = 0; e < 4; e++)
        {
            d[e] = 0.0f;
            if (target < 0 || j + e >= x->v_real)
                continue;
            const float c = capped(z[j + e], cap, t), u = c - max;
            d[e] = fmaf(fmaf(k.b, k.b != 0.0f ? u : 0.0f, k.a), expf(u),
                        -(j + e == here ? k.g : 0.0f));
            if (cap > 0.0f) {
                const float s = c * (1.0f / (cap * t));
                d[e] *= fmaf(-s, s, 1.0f);
            }
            if (t != 1.0f)
                d[e] *= t;
        }
        __syncthreads();
        if (x->x_type != LF_F32 && j + 4 <= x->v) {
            uint16_t h[4];
            LF_UNROLL for (int e = 0; e < 4; e++) h[e] =
                x->x_type == LF_BF16 ? lf_f_bf16(d[e]) : lf_f_f16(d[e]);
            *(uint64_t *)((uint16_t *)(void *)z + j) =
                (uint64_t)h[3] << 48 | (uint64_t)h[2] << 32 | (uint64_t)h[1] << 16 | (uint64_t)h[0];
            continue;
        }
        for (int e = 0; e < 4; e++)
            if (j + e < x->v)
                lf_store(z, j + e, x->x_type, d[e]);
    }
}

LF_DEV void row_results(const struct lf_cu_xent *a, int64_t i, int target, float zt, float lse,
                        float entropy, int arg)
{
    const struct lf_k_linear_xent *x = &a->x;
    const int64_t r = a->r0 + i;
    const bool real = target < a->x.v_all;
    const float loss = target < 0 ? 0.0f : real ? lse - zt : NAN;
    a->out[i].loss = loss;
    a->out[i].lse = lse;
    a->out[i].entropy = entropy;
    a->out[i].argmax = arg;
    a->out[i].target = target;
    if (x->loss)
        x->loss[r] = loss;
    if (x->lse)
        x->lse[r] = target < 0 ? 0.0f : lse;
    if (x->argmax)
        x->argmax[r] = target < 0 ? -1 : arg;
    if (x->logp)
        x->logp[r] = target < 0 ? 0.0f : real ? zt - lse : NAN;
    if (x->entropy)
        x->entropy[r] = entropy;
}

/* The row's results, from all of its columns; then its logits become the gradient. here: the
 * target's column of those that are here. */
LF_DEV void row_end(const struct lf_cu_xent *a, float *z, int target, int here, float zt,
                    struct part p)
{
    const float lse = p.max + logf(p.sum),
                entropy = target < 0 ? 0.0f : logf(p.sum) - p.bent / p.sum;
    if (threadIdx.x == 0)
        row_results(a, blockIdx.x, target, zt, lse, entropy, p.arg);
    __syncthreads(); /* the target's logit has been read */
    if (a->grad)
        row_grad(&a->x, z, target, here, p.max,
                 row_factors(a, blockIdx.x, target, p.sum, lse, entropy));
}

/* The target's logit, where its column is here. */
LF_DEV float target_logit(const struct lf_k_linear_xent *x, const float *z, int target)
{
    const int64_t here = (int64_t)target - x->v0;
    return target >= 0 && here >= 0 && here < x->v_real
               ? capped(z[here], x->softcap, temperature(x->inv_temperature))
               : 0.0f;
}

/* A block per row of the chunk. */
LF_KERNEL(xent_rows, struct lf_cu_xent, LF_XENT_THREADS)
{
    LF_SHARED(struct part, scratch);
    const struct lf_k_linear_xent *x = &a->x;
    float *z = a->z + blockIdx.x * a->ldz;
    const int target = x->target[a->r0 + blockIdx.x];
    const struct part p =
        row_part(z, x->v_real, x->softcap, temperature(x->inv_temperature), false, scratch);
    row_end(a, z, target, target, threadIdx.x ? 0.0f : target_logit(x, z, target), p);
}

LF_KERNEL(xent_parts, struct lf_cu_xent, LF_XENT_THREADS)
{
    LF_SHARED(struct part, scratch);
    const struct lf_k_linear_xent *x = &a->x;
    float *z = a->z + blockIdx.x * a->ldz;
    const struct part p =
        row_part(z, x->v_real, x->softcap, temperature(x->inv_temperature), false, scratch);
    if (threadIdx.x)
        return;
    struct lf_cu_xent_part *mine = a->parts + (int64_t)a->rank * a->rows + blockIdx.x;
    mine->max = p.max;
    mine->sum = p.sum;
    mine->bent = p.bent;
    mine->target = target_logit(x, z, x->target[a->r0 + blockIdx.x]);
    mine->arg = (int)x->v0 + p.arg;
}

/* The parts of a row in the order of the ranks, and the target's logit. A rank whose columns are
 * padding alone has a sum of 0 and a largest logit of -inf. */
LF_DEV struct part all_columns(const struct lf_cu_xent *a, int64_t i, float *zt)
{
    const struct lf_cu_xent_part *q = a->parts + i;
    struct part p = {q->max, 0.0f, 0.0f, q->arg};
    for (int r = 1; r < a->ranks; r++)
        if (q[r * a->rows].max > p.max) {
            p.max = q[r * a->rows].max;
            p.arg = q[r * a->rows].arg;
        }
    *zt = 0.0f;
    for (int r = 0; r < a->ranks; r++, q += a->rows) {
        const float d = q->max - p.max, e = q->sum > 0.0f ? expf(d) : 0.0f;
        if (!(q->sum <= 0.0f)) { /* or not a number */
            p.sum += q->sum * e;
            p.bent += fmaf(q->sum, d, q->bent) * e;
        }
        *zt += q->target;
    }
    return p;
}

LF_KERNEL(xent_joined, struct lf_cu_xent, LF_XENT_THREADS)
{
    float zt;
    const struct part p = all_columns(a, blockIdx.x, &zt);
    const int target = a->x.target[a->r0 + blockIdx.x];
    row_end(a, a->z + blockIdx.x * a->ldz, target, target - (int)a->x.v0, zt, p);
}

/* Adds the chunk's rows to the record, in row order: all threads fetch, the first of one warp adds
 * the losses, those of two others the squares and the entropies. One block. */
LF_KERNEL(xent_sums, struct lf_cu_xent, LF_XENT_THREADS)
{
    LF_SHARED(double, loss); /* [threads], as many squares and entropies; then counts */
    double *square = loss + LF_XENT_THREADS, *entropy = square + LF_XENT_THREADS, sum = 0;
    const int i = (int)threadIdx.x, lane = i % 32, more = (int)a->x.head;
    struct lf_step_record *rec = a->x.rec;
    double *to = more ? &rec->more_loss[more - 1] : &rec->loss_sum;
    int tokens = 0, correct = 0;
    if (i == 0)
        sum = *to;
    if (i == 32)
        sum = rec->z_sum;
    if (i == 64)
        sum = rec->entropy_sum;
    for (int64_t r = 0; r < a->rows; r += LF_XENT_THREADS) {
        const struct lf_cu_xent_row none = {0.0f, 0.0f, 0.0f, 0, -1};
        const struct lf_cu_xent_row o = r + i < a->rows ? a->out[r + i] : none;
        const bool seen = o.target >= 0;
        loss[i] = seen ? (double)o.loss : 0.0;
        square[i] = seen ? (double)o.lse * (double)o.lse : 0.0;
        entropy[i] = seen ? (double)o.entropy : 0.0;
        tokens += seen;
        correct += seen && o.argmax == o.target;
        __syncthreads();
        if (i == 0 || i == 32 || i == 64)
            for (int k = 0; k < LF_XENT_THREADS; k++)
                sum += loss[LF_XENT_THREADS * (i / 32) + k];
        __syncthreads();
    }
    LF_UNROLL for (int m = 16; m; m >>= 1)
    {
        tokens += lf_shfl_xor_i(tokens, m);
        correct += lf_shfl_xor_i(correct, m);
    }
    int *count = (int *)(void *)loss;
    if (lane == 0) {
        count[i / 32] = tokens;
        count[LF_XENT_THREADS / 32 + i / 32] = correct;
    }
    __syncthreads();
    if (i == 32 && !more)
        rec->z_sum = sum;
    if (i == 64 && !more && a->x.entropy)
        rec->entropy_sum = sum;
    if (i)
        return;
    *to = sum;
    for (int w = 1; w < LF_XENT_THREADS / 32; w++) {
        tokens += count[w];
        correct += count[LF_XENT_THREADS / 32 + w];
    }
    *(more ? &rec->more_tokens[more - 1] : &rec->tokens) += tokens;
    *(more ? &rec->more_correct[more - 1] : &rec->correct) += correct;
}

LF_KERNEL(logit_stats, struct lf_k_logit_stats, LF_XENT_THREADS)
{
    LF_SHARED(struct part, scratch);
    const int64_t r = blockIdx.x;
    const struct part p = row_part(a->z + r * a->ldz, a->v_real, a->softcap,
                                   temperature(a->inv_temperature), true, scratch);
    if (threadIdx.x)
        return;
    a->lse[r] = p.max + logf(p.sum);
    if (a->argmax)
        a->argmax[r] = p.arg;
}
