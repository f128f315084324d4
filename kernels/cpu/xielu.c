/* SPDX-License-Identifier: Apache-2.0
 *
 * xIELU, whose two parameters are trained. Their gradients are sums over all elements: rows are cut
 * in blocks whose length follows from their number alone, each block adds its rows in ascending
 * order, and the blocks are added in ascending order; so threads change no bit.
 */
#include "config.h"

#include <math.h>

#include "kernels/cpu/ops.h"

LF_CPU_DECLARE(xielu_fwd)
LF_CPU_DECLARE(xielu_bwd)

LF_NO_WORK(xielu_fwd)

enum { BLOCKS = 128 };

/* The sides of 0: y = a x^2 + beta x and y = b (e^min(x, eps) - 1 - x) + beta x. */
struct sides {
    lf_v a, b, beta, eps;
};

LF_INLINE struct sides sides_of(const struct lf_xielu *p)
{
    const lf_v beta = lf_v_set1(*p->beta);
    return (struct sides){lf_v_softplus(lf_v_set1(*p->positive)),
                          lf_v_softplus(lf_v_set1(*p->negative)) + beta, beta, lf_v_set1(*p->eps)};
}

/* e^m - 1 - m for m <= 0: from -1 on by its series, of which eleven terms leave less than 1e-9. The
 * exponential would leave nothing of it near 0. */
LF_INLINE lf_v beyond_line(lf_v m)
{
    static const float term[] = {
        1.0f / 39916800, 1.0f / 3628800, 1.0f / 362880, 1.0f / 40320, 1.0f / 5040,
        1.0f / 720,      1.0f / 120,     1.0f / 24,     1.0f / 6,     0.5f};
    const lf_v one = lf_v_set1(1.0f);
    lf_v p = lf_v_set1(1.0f / 479001600);
    for (size_t i = 0; i < sizeof term / sizeof *term; i++)
        p = lf_v_fma(p, m, lf_v_set1(term[i]));
    return lf_v_select(m < -one, lf_v_exp(m) - one - m, m * m * p);
}

/* What the parameter of x's side multiplies; *m becomes min(x, eps). */
LF_INLINE lf_v part_of(struct sides s, lf_v x, lf_v *m)
{
    *m = lf_v_min(x, s.eps);
    return lf_v_select(x > lf_v_zero(), x * x, beyond_line(*m) + (*m - x));
}

int LF_SYM(xielu_fwd_check)(const struct lf_k_xielu_fwd *a)
{
    return a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->ldy >= a->c && lf_is_float(a->x_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}

LF_INLINE void forward(const struct lf_k_xielu_fwd *a, int64_t r0, int64_t r1, uint8_t t)
{
    const struct sides s = sides_of(&a->p);
    for (int64_t r = r0; r < r1; r++)
        LF_EACH_VEC(c, n, a->c)
        {
            lf_v m, x = lf_get(a->x, r * a->ldx + c, t, n), f = part_of(s, x, &m);
            f *= lf_v_select(x > lf_v_zero(), s.a, s.b);
            lf_put(a->y, r * a->ldy + c, t, n, lf_v_fma(x, s.beta, f));
        }
}

static void forward_piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_xielu_fwd *a = arg;
    (void)q;
    if (a->x_type == LF_BF16)
        forward(a, lo, hi, LF_BF16);
    else
        forward(a, lo, hi, LF_F32);
}

int LF_SYM(xielu_fwd)(lf_queue *q, const struct lf_k_xielu_fwd *a)
{
    lf_deal(q, lf_team(q, a->rows * a->c * 16), a->rows, lf_few_rows(a->c), forward_piece, a);
    return LF_K_OK;
}

/* ---- backward ---- */

int LF_SYM(xielu_bwd_check)(const struct lf_k_xielu_bwd *a)
{
    return a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->lddy >= a->c && a->lddx >= a->c &&
                   lf_is_float(a->x_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}

static int64_t block_rows(int64_t rows)
{
    return rows < BLOCKS ? 1 : (rows + BLOCKS - 1) / BLOCKS;
}

size_t LF_SYM(xielu_bwd_work)(const struct lf_k_xielu_bwd *a, int threads)
{
    (void)threads;
    return (size_t)(2 * BLOCKS) * sizeof(double) * (a->rows > 0);
}

/* dx of a row; sum[0] and sum[1] grow by dy times what a and b multiply. */
LF_INLINE void row_bwd(const struct lf_k_xielu_bwd *a, int64_t r, struct sides s, double sum[2],
                       uint8_t t)
{
    const lf_v zero = lf_v_zero(), one = lf_v_set1(1.0f);
    lf_v up = zero, down = zero;
    LF_EACH_VEC(c, n, a->c)
    {
        lf_v m, x = lf_get(a->x, r * a->ldx + c, t, n), dy = lf_get(a->dy, r * a->lddy + c, t, n);
        const lf_v f = dy * part_of(s, x, &m);
        up += lf_v_select(x > zero, f, zero);
        down += lf_v_select(x > zero, zero, f);
        if (a->dx) {
            const lf_v e = lf_v_select(x < s.eps, beyond_line(m) + m, -one);
            const lf_v slope = lf_v_select(x > zero, s.a * (x + x), s.b * e) + s.beta;
            lf_put(a->dx, r * a->lddx + c, t, n, dy * slope);
        }
    }
    sum[0] += (double)lf_v_hsum(up);
    sum[1] += (double)lf_v_hsum(down);
}

static void add_to(float *to, const float *parameter, double sum, bool accumulate)
{
    const double d = sum / (1 + exp(-(double)*parameter)); /* the derivative of ln(1 + e^p) */
    if (to)
        *to = (float)(accumulate ? (double)*to + d : d);
}

/* Blocks [lo, hi) of rows, each with sums of its own in the workspace. */
static void bwd_blocks(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_xielu_bwd *a = arg;
    const int64_t len = block_rows(a->rows);
    const struct sides s = sides_of(&a->p);
    double *part = (double *)a->work;
    for (int64_t b = lo; b < hi; b++) {
        double of[2] = {0, 0};
        const int64_t end = (b + 1) * len < a->rows ? (b + 1) * len : a->rows;
        for (int64_t r = b * len; r < end; r++) {
            lf_border(q);
            if (a->x_type == LF_BF16)
                row_bwd(a, r, s, of, LF_BF16);
            else
                row_bwd(a, r, s, of, LF_F32);
        }
        part[2 * b] = of[0];
        part[2 * b + 1] = of[1];
    }
}

int LF_SYM(xielu_bwd)(lf_queue *q, const struct lf_k_xielu_bwd *a)
{
    const int64_t len = block_rows(a->rows), blocks = (a->rows + len - 1) / len;
    const double *part = (const double *)a->work;
    double sum[2] = {0, 0};
    if (a->work_bytes < LF_SYM(xielu_bwd_work)(a, 1))
        return LF_K_EINVAL;
    lf_deal(q, lf_team(q, a->rows * a->c * 16), blocks, 1, bwd_blocks, a);
    for (int64_t b = 0; b < blocks; b++) {
        sum[0] += part[2 * b];
        sum[1] += part[2 * b + 1];
    }
    add_to(a->dpositive, a->p.positive, sum[0], a->accumulate);
    add_to(a->dnegative, a->p.negative, sum[1], a->accumulate);
    return LF_K_OK;
}
