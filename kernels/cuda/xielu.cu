/* SPDX-License-Identifier: Apache-2.0
 *
 * xIELU and its gradients. The gradients of its two parameters are sums over all elements: those of
 * a thread in ascending order, of a block by the tree of lf_block_sum, of blocks the same way. How
 * many blocks there are follows from the sizes alone.
 */
#include "kernels/cuda/act.h"
#include "kernels/cuda/each.h"
#include "kernels/cuda/xielu.h"

/* e^m - 1 - m for m <= 0, from -1 on by its series: the exponential would leave nothing of it near
 * 0. */
LF_DEV float beyond_line(float m)
{
    const float term[] = {1.0f / 39916800, 1.0f / 3628800, 1.0f / 362880, 1.0f / 40320, 1.0f / 5040,
                          1.0f / 720,      1.0f / 120,     1.0f / 24,     1.0f / 6,     0.5f};
    float p = 1.0f / 479001600;
    LF_UNROLL for (int i = 0; i < 10; i++) p = fmaf(p, m, term[i]);
    return m < -1.0f ? expf(m) - 1.0f - m : m * m * p;
}

/* What the parameter of x's side multiplies; *m becomes min(x, eps). */
LF_DEV float part_of(float x, float eps, float *m)
{
    *m = x < eps ? x : eps;
    return x > 0.0f ? x * x : beyond_line(*m) + (*m - x);
}

LF_KERNEL(xielu_fwd, struct lf_k_xielu_fwd, 256)
{
    const int t = a->x_type;
    const bool vec = lf_vec8(a->x, a->ldx, t) && lf_vec8(a->y, a->ldy, t);
    const float beta = *a->p.beta, eps = *a->p.eps, up = lf_softplus(*a->p.positive),
                down = beta + lf_softplus(*a->p.negative);
    LF_EACH_EIGHT(r, at, a->rows, a->c)
    {
        const int n = lf_eight(a->c, at);
        float x[8], m;
        lf_load_n(x, a->x, r * a->ldx + at, t, n, vec);
        LF_UNROLL for (int k = 0; k < 8; k++)
        {
            const float f = part_of(x[k], eps, &m) * (x[k] > 0.0f ? up : down);
            x[k] = fmaf(x[k], beta, f);
        }
        lf_store_n(a->y, r * a->ldy + at, t, x, n, vec);
    }
}

/* work[2 b], work[2 b + 1]: the sums of block b. */
LF_KERNEL(xielu_bwd, struct lf_k_xielu_bwd, 256)
{
    LF_SHARED(float, scratch);
    const int t = a->x_type;
    const bool vec =
        lf_vec8(a->x, a->ldx, t) && lf_vec8(a->dy, a->lddy, t) && lf_vec8(a->dx, a->lddx, t);
    const float beta = *a->p.beta, eps = *a->p.eps, up = lf_softplus(*a->p.positive),
                down = beta + lf_softplus(*a->p.negative);
    float *part = (float *)a->work + 2 * (int64_t)blockIdx.x, sum[2] = {0.0f, 0.0f};
    LF_EACH_EIGHT(r, at, a->rows, a->c)
    {
        const int n = lf_eight(a->c, at);
        float x[8], dy[8], m;
        lf_load_n(x, a->x, r * a->ldx + at, t, n, vec);
        lf_load_n(dy, a->dy, r * a->lddy + at, t, n, vec);
        LF_UNROLL for (int k = 0; k < 8; k++)
        {
            const float f = part_of(x[k], eps, &m);
            const float e = x[k] < eps ? beyond_line(m) + m : -1.0f;
            if (k < n && x[k] > 0.0f)
                sum[0] = fmaf(dy[k], f, sum[0]);
            else if (k < n)
                sum[1] = fmaf(dy[k], f, sum[1]);
            dy[k] *= (x[k] > 0.0f ? up * (x[k] + x[k]) : down * e) + beta;
        }
        if (a->dx)
            lf_store_n(a->dx, r * a->lddx + at, t, dy, n, vec);
    }
    for (int i = 0; i < 2; i++) {
        sum[i] = lf_block_sum(sum[i], scratch);
        if (threadIdx.x == 0)
            part[i] = sum[i];
    }
}

/* One block. The derivative of ln(1 + e^p) is the sigmoid of p. */
LF_KERNEL(xielu_sum, struct lf_cu_xielu_sum, 256)
{
    LF_SHARED(float, scratch);
    for (int i = 0; i < 2; i++) {
        const float *parameter = i ? a->k.p.negative : a->k.p.positive;
        float *to = i ? a->k.dnegative : a->k.dpositive, sum = 0.0f;
        for (int64_t b = threadIdx.x; b < a->blocks; b += blockDim.x)
            sum += ((const float *)a->k.work)[2 * b + i];
        sum = lf_block_sum(sum, scratch) * lf_sigmoid(*parameter);
        if (threadIdx.x == 0 && to)
            *to = a->k.accumulate ? *to + sum : sum;
    }
}
