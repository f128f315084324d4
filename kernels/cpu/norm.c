/* SPDX-License-Identifier: Apache-2.0
 *
 * LayerNorm and RMSNorm with the residual sum fused into the forward and the residual gradient
 * fused into the backward. Row results depend on the row alone. Weight gradients are sums over
 * rows: rows are cut in at most NORM_BLOCKS blocks whose length follows from the row count alone,
 * each block adds its rows in ascending order into a partial sum of its own, and the partial sums
 * are added in ascending order; so threads change no bit.
 */
#include "config.h"

#include <math.h>

#include "kernels/cpu/ops.h"

LF_CPU_DECLARE(norm_fwd)
LF_CPU_DECLARE(norm_bwd)

LF_NO_WORK(norm_fwd)

enum { NORM_BLOCKS = 128, NORM_BLOCK_MIN = 16 };

int LF_SYM(norm_fwd_check)(const struct lf_k_norm_fwd *a)
{
    int64_t row = a->heads * a->c;
    bool ok = a->rows >= 0 && a->heads > 0 && a->c > 0 && a->ldx >= row &&
              (a->sums || a->squares || a->ldy >= row) && lf_is_float(a->x_type) &&
              lf_is_float(a->y_type) && lf_is_float(a->w_type) && lf_norm_part_fits(a);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

/* s = x + delta as stored; returns the sum of s. */
LF_INLINE float norm_sum(const void *x, const void *delta, void *sum, int64_t c_len, uint8_t t)
{
    lf_v acc = lf_v_set1(0.0f);
    LF_EACH_VEC(c, n, c_len)
    {
        lf_v s = lf_get(x, c, t, n);
        if (delta) {
            s = lf_round_to(s + lf_get(delta, c, t, n), t);
            lf_put(sum, c, t, n, s);
        }
        acc += s;
    }
    return lf_v_hsum(acc);
}

/* Sum of (s - mean)^2; lanes past the end hold -mean and are masked out. */
LF_INLINE float norm_sq(const void *s, float mean, int64_t c_len, uint8_t t)
{
    lf_v acc = lf_v_set1(0.0f), acc1 = acc, m = lf_v_set1(mean);
    int64_t c = 0;
    for (; c + 2 * LF_VL <= c_len; c += 2 * LF_VL) {
        lf_v d0 = lf_get(s, c, t, LF_VL) - m, d1 = lf_get(s, c + LF_VL, t, LF_VL) - m;
        acc = lf_v_fma(d0, d0, acc);
        acc1 = lf_v_fma(d1, d1, acc1);
    }
    for (; c < c_len; c += LF_VL) {
        int64_t n = c_len - c < LF_VL ? c_len - c : LF_VL;
        lf_v d =
            lf_get(s, c, t, n) - lf_v_select(lf_vi_iota() < lf_vi_set1((int)n), m, lf_v_set1(0.0f));
        acc = lf_v_fma(d, d, acc);
    }
    return lf_v_hsum(acc + acc1);
}

/* Writes what a rank has of row r for sums over the ranks. false: nothing is asked for. */
LF_INLINE bool norm_part(const struct lf_k_norm_fwd *a, int64_t r, const void *x, float sum,
                         float mean)
{
    if (a->sums)
        a->sums[r] = sum;
    if (a->squares)
        a->squares[r] = norm_sq(x, mean, a->c, a->x_type);
    return a->sums || a->squares;
}

LF_INLINE void norm_row(const struct lf_k_norm_fwd *a, int64_t r, int64_t h)
{
    const uint8_t t = a->x_type;
    const int64_t len = a->c;
    const void *x = lf_at(a->x, r * a->ldx + h * len, t);
    const void *delta = a->delta ? lf_at(a->delta, r * a->lddelta + h * len, t) : NULL;
    void *sum = delta ? lf_at_w(a->sum, r * a->ldsum + h * len, t) : NULL;
    const void *s = delta ? sum : x;
    const int64_t own = a->each ? h * len : 0; /* of w and b */
    void *y = lf_at_w(a->y, r * a->ldy + h * len, a->y_type);
    const bool summed = delta || (a->layer && !a->affine);
    const float total = a->total_x ? a->total_x[r]
                        : summed   ? norm_sum(x, delta, sum, len, t)
                                   : 0.0f,
                mean = a->layer && !a->affine ? total / (float)(a->total_x ? a->all : len) : 0.0f;
    if (norm_part(a, r, x, total, mean))
        return;
    float rstd = 1.0f;
    if (!a->affine) {
        const float sq = a->total ? a->total[r] : norm_sq(s, mean, len, t);
        rstd = 1.0f / sqrtf(sq / (float)(a->total ? a->all : len) + a->eps);
    }
    const lf_v vm = lf_v_set1(mean), vr = lf_v_set1(rstd), off = lf_v_set1(a->w_offset);
    LF_EACH_VEC(c, n, len)
    {
        lf_v v = (lf_get(s, c, t, n) - vm) * vr;
        if (a->w)
            v *= lf_get(a->w, own + c, a->w_type, n) + off;
        if (a->b)
            v += lf_get(a->b, own + c, a->w_type, n);
        lf_put(y, c, a->y_type, n, v);
    }
    if (a->mean && a->layer)
        a->mean[r * a->heads + h] = mean;
    if (a->rstd)
        a->rstd[r * a->heads + h] = rstd;
}

static void norm_fwd_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_norm_fwd *a = arg;
    (void)q;
    for (int64_t r = lo; r < hi; r++) {
        for (int64_t h = 0; h < a->heads; h++)
            norm_row(a, r, h);
    }
}

int LF_SYM(norm_fwd)(lf_queue *q, const struct lf_k_norm_fwd *a)
{
    lf_deal(q, lf_team(q, a->rows * a->heads * a->c * 8), a->rows, lf_few_rows(a->heads * a->c),
            norm_fwd_rows, a);
    return LF_K_OK;
}

/* ---- backward ---- */

int LF_SYM(norm_bwd_check)(const struct lf_k_norm_bwd *a)
{
    int64_t row = a->heads * a->c;
    bool ok = a->rows >= 0 && a->heads > 0 && a->c > 0 && a->ldx >= row && a->lddy >= row &&
              (a->dots || a->lddx >= row) && lf_is_float(a->x_type) && lf_is_float(a->dy_type) &&
              lf_is_float(a->w_type) && lf_norm_bwd_part_fits(a);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

/* Rows whose sums over rows are apart: of each t all heads, which have sums of their own, or each
 * (t, h). */
static int64_t norm_rows(const struct lf_k_norm_bwd *a)
{
    return a->each ? a->rows : a->rows * a->heads;
}

/* Rows per block: a function of the number of rows alone. */
static int64_t norm_block(int64_t rows)
{
    int64_t b = (rows + NORM_BLOCKS - 1) / NORM_BLOCKS;
    return b < NORM_BLOCK_MIN ? NORM_BLOCK_MIN : b;
}

/* Floats of the sums of a head, whose last vector goes beyond c; of all sums of a block. */
static int64_t norm_pitch(int64_t c)
{
    return (c + 15) / 16 * 16;
}
static int64_t norm_stride(const struct lf_k_norm_bwd *a)
{
    return norm_pitch(a->c) * (a->each ? a->heads : 1);
}

size_t LF_SYM(norm_bwd_work)(const struct lf_k_norm_bwd *a, int threads)
{
    (void)threads;
    int64_t rows = norm_rows(a), b = norm_block(rows);
    return (size_t)((rows + b - 1) / b * 2 * norm_stride(a)) * sizeof(float);
}

struct norm_sums {
    lf_v g, gx;
};

/* What a row is: its operands (w NULL: 1), and where its addends of dw and db go, or NULL. */
struct norm_operands {
    const void *x, *dy, *w;
    float mean, rstd, *dw, *db;
};

/* First pass over a row: sums of g and g * xhat, with g = dy * (w + offset); dw and db partials
 * grow by the way. */
LF_INLINE struct norm_sums norm_bwd_sums(const struct lf_k_norm_bwd *a,
                                         const struct norm_operands *p)
{
    struct norm_sums s = {lf_v_set1(0.0f), lf_v_set1(0.0f)};
    const lf_v vm = lf_v_set1(p->mean), vr = lf_v_set1(p->rstd), off = lf_v_set1(a->w_offset);
    LF_EACH_VEC(c, n, a->c)
    {
        lf_v d = lf_get(p->dy, c, a->dy_type, n), xh = (lf_get(p->x, c, a->x_type, n) - vm) * vr;
        lf_v g = p->w ? d * (lf_get(p->w, c, a->w_type, n) + off) : d;
        s.g += g;
        s.gx = lf_v_fma(g, xh, s.gx);
        if (p->dw)
            lf_v_store(p->dw + c, lf_v_fma(d, xh, lf_v_load(p->dw + c)));
        if (p->db)
            lf_v_store(p->db + c, lf_v_load(p->db + c) + d);
    }
    return s;
}

LF_INLINE void norm_bwd_row(const struct lf_k_norm_bwd *a, int64_t row, float *dw, float *db)
{
    const int64_t r = row / a->heads, h = row % a->heads, len = a->c;
    const uint8_t t = a->x_type;
    const int64_t own = a->each ? h : 0; /* head whose w, dw and db */
    const struct norm_operands p = {
        .x = lf_at(a->x, r * a->ldx + h * len, t),
        .dy = lf_at(a->dy, r * a->lddy + h * len, a->dy_type),
        .w = a->w ? lf_at(a->w, own * len, a->w_type) : NULL,
        .mean = a->layer ? a->mean[row] : 0.0f,
        .rstd = a->rstd[row],
        .dw = dw ? dw + own * norm_pitch(len) : NULL,
        .db = db ? db + own * norm_pitch(len) : NULL,
    };
    const void *dres = a->dres ? lf_at(a->dres, r * a->lddres + h * len, t) : NULL;
    void *dx = a->dx ? lf_at_w(a->dx, r * a->lddx + h * len, t) : NULL;
    struct norm_sums s = norm_bwd_sums(a, &p);
    const int64_t at = row * (1 + a->layer); /* in dots and total */
    if (a->dots)
        a->dots[at] = lf_v_hsum(s.gx);
    if (a->dots && a->layer)
        a->dots[at + 1] = lf_v_hsum(s.g);
    if (!dx)
        return;
    const lf_v vm = lf_v_set1(p.mean), vr = lf_v_set1(p.rstd), off = lf_v_set1(a->w_offset);
    const float *total = a->total ? a->total + at : NULL;
    const float all = (float)(total ? a->all : len);
    const bool mean = a->layer && !a->affine;
    const lf_v mg = lf_v_set1(mean ? (total ? total[1] : lf_v_hsum(s.g)) / all : 0.0f),
               mgx = lf_v_set1(a->affine ? 0.0f : (total ? total[0] : lf_v_hsum(s.gx)) / all);
    LF_EACH_VEC(c, n, len)
    {
        lf_v d = lf_get(p.dy, c, a->dy_type, n), xh = (lf_get(p.x, c, t, n) - vm) * vr;
        lf_v g = p.w ? d * (lf_get(p.w, c, a->w_type, n) + off) : d;
        lf_v v = (g - mg - xh * mgx) * vr;
        if (dres)
            v += lf_get(dres, c, t, n);
        lf_put(dx, c, t, n, v);
    }
}

/* out[i] (+)= sum of the blocks' partials, ascending, for lo <= i < hi. */
static void norm_combine(const struct lf_k_norm_bwd *a, float *out, const float *part,
                         int64_t blocks, int64_t lo, int64_t hi)
{
    const int64_t stride = 2 * norm_stride(a);
    for (int64_t i = lo; i < hi; i++) {
        const float *p = part + i / a->c * norm_pitch(a->c) + i % a->c;
        float s = 0.0f;
        for (int64_t b = 0; b < blocks; b++)
            s += p[b * stride];
        out[i] = a->accumulate ? out[i] + s : s;
    }
}

/* Rows [r0, r1) of norm_rows. */
LF_INLINE void norm_bwd_rows(lf_queue *q, const struct lf_k_norm_bwd *a, int64_t r0, int64_t r1,
                             float *dw, float *db)
{
    const int64_t per = a->each ? a->heads : 1;
    for (int64_t r = r0; r < r1; r++) {
        lf_border(q);
        for (int64_t i = 0; i < per; i++)
            norm_bwd_row(a, r * per + i, dw, db);
    }
}

/* Blocks [lo, hi) of rows, each with sums of its own in the workspace. */
static void norm_bwd_blocks(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_norm_bwd *a = arg;
    const int64_t rows = norm_rows(a), block = norm_block(rows), stride = norm_stride(a);
    float *part = (float *)a->work;
    for (int64_t b = lo; b < hi; b++) {
        float *dw = a->dw ? part + 2 * b * stride : NULL,
              *db = a->db ? part + (2 * b + 1) * stride : NULL;
        if (dw)
            memset(dw, 0, (size_t)stride * sizeof(float));
        if (db)
            memset(db, 0, (size_t)stride * sizeof(float));
        int64_t end = (b + 1) * block < rows ? (b + 1) * block : rows;
        norm_bwd_rows(q, a, b * block, end, dw, db);
    }
}

static void norm_combine_columns(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_norm_bwd *a = arg;
    const int64_t rows = norm_rows(a), block = norm_block(rows);
    const float *part = (const float *)a->work;
    (void)q;
    if (a->dw)
        norm_combine(a, a->dw, part, (rows + block - 1) / block, lo, hi);
    if (a->db)
        norm_combine(a, a->db, part + norm_stride(a), (rows + block - 1) / block, lo, hi);
}

int LF_SYM(norm_bwd)(lf_queue *q, const struct lf_k_norm_bwd *a)
{
    const int64_t rows = norm_rows(a), block = norm_block(rows),
                  n = a->each ? a->heads * a->c : a->c;
    const int team = lf_team(q, a->rows * a->heads * a->c * 12);
    if ((a->dw || a->db) && a->work_bytes < LF_SYM(norm_bwd_work)(a, 1))
        return LF_K_EINVAL;
    lf_deal(q, team, (rows + block - 1) / block, 1, norm_bwd_blocks, a);
    if (a->dw || a->db)
        lf_deal(q, team, n, lf_share(n, 16, team), norm_combine_columns, a);
    return LF_K_OK;
}
