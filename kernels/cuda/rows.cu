/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that reduce over a row: LayerNorm and RMSNorm with the residual sum, rows of length one,
 * gated rows. A row is read once and stays in registers. Sums run over a thread's columns in
 * ascending order, then over the group's threads by an xor tree, so they depend on the row's length
 * alone.
 */
#include "kernels/cuda/act.h"
#include "kernels/cuda/each.h"
#include "kernels/cuda/rows.h"

LF_DEV float group_sum(float v, int group, float *scratch)
{
    if (group > 32)
        return lf_block_sum(v, scratch);
    LF_UNROLL for (int m = 16; m; m >>= 1)
    {
        if (m < group)
            v += lf_shfl_xor(v, m);
    }
    return v;
}

/* Whether heads of c columns inside rows ld apart can be read eight elements at a time. */
LF_DEV bool heads_vec8(const void *p, int64_t ld, int64_t heads, int64_t c, int type)
{
    return lf_vec8(p, ld, type) && (heads == 1 || lf_vec8(p, c, type));
}

/* A call of f with the storage type a constant, so that its loads have no branch between them. */
#define BY_TYPE(type, f, ...)                                                                      \
    switch (type) {                                                                                \
    case LF_BF16:                                                                                  \
        f(__VA_ARGS__, LF_BF16);                                                                   \
        break;                                                                                     \
    case LF_F16:                                                                                   \
        f(__VA_ARGS__, LF_F16);                                                                    \
        break;                                                                                     \
    default:                                                                                       \
        f(__VA_ARGS__, LF_F32);                                                                    \
        break;                                                                                     \
    }

/* ---- norm, forward ---- */

/* Whether the parameters of a head, at multiples of c if each has its own, can be read so. */
LF_DEV bool weights_vec8(const void *p, bool each, int64_t c, int type)
{
    return lf_vec8(p, each ? c : 0, type);
}

/* y of one piece of eight columns of the row at `to`, whose parameters begin at `own`. */
LF_DEV void norm_put(const struct lf_k_norm_fwd *a, int64_t to, int64_t own, int64_t at,
                     const float s[8], float mean, float rstd)
{
    const int n = lf_eight(a->c, at);
    const bool vec = heads_vec8(a->y, a->ldy, a->heads, a->c, a->y_type);
    float y[8], w[8], b[8];
    if (a->w)
        lf_load_n(w, a->w, own + at, a->w_type, n, weights_vec8(a->w, a->each, a->c, a->w_type));
    if (a->b)
        lf_load_n(b, a->b, own + at, a->w_type, n, weights_vec8(a->b, a->each, a->c, a->w_type));
    LF_UNROLL for (int j = 0; j < 8; j++)
    {
        y[j] = (s[j] - mean) * rstd;
        if (a->w)
            y[j] =
                fmaf(y[j], w[j] + a->w_offset, a->b ? b[j] : -0.0f); /* x - 0 is x, with its sign */
        else if (a->b)
            y[j] += b[j];
    }
    lf_store_n(a->y, to + at, a->y_type, y, n, vec);
}

LF_DEV void norm_fwd_row(const struct lf_cu_norm_fwd *p, float *scratch, const int vecs,
                         const int t)
{
    const struct lf_k_norm_fwd *a = &p->k;
    const int group = p->group, member = (int)threadIdx.x % group;
    const int64_t row =
        (int64_t)blockIdx.x * (blockDim.x / (unsigned)group) + threadIdx.x / (unsigned)group;
    const bool live = row < a->rows * a->heads; /* the others take part in shuffles only */
    const bool vx = heads_vec8(a->x, a->ldx, a->heads, a->c, t),
               vd = heads_vec8(a->delta, a->lddelta, a->heads, a->c, t),
               vs = heads_vec8(a->sum, a->ldsum, a->heads, a->c, t);
    int64_t r = 0, h = 0;
    float s[LF_NORM_FWD_VECS][8], d[8], total = 0.0f, sq = 0.0f, mean = 0.0f;
    if (live)
        lf_row_of(row, a->heads, &r, &h);
    const int64_t len = live ? a->c : 0, col = h * a->c;
    LF_UNROLL for (int k = 0; k < vecs; k++)
    {
        const int64_t at = 8 * (int64_t)(member + k * group);
        lf_load_n(s[k], a->x, r * a->ldx + col + at, t, lf_eight(len, at), vx);
    }
    LF_UNROLL for (int k = 0; k < vecs; k++)
    {
        const int64_t at = 8 * (int64_t)(member + k * group);
        const int n = lf_eight(len, at);
        if (a->delta && n > 0) {
            lf_load_n(d, a->delta, r * a->lddelta + col + at, t, n, vd);
            LF_UNROLL for (int j = 0; j < 8; j++) s[k][j] = lf_round(s[k][j] + d[j], t);
            lf_store_n(a->sum, r * a->ldsum + col + at, t, s[k], n, vs);
        }
        LF_UNROLL for (int j = 0; j < 8; j++) total += s[k][j];
    }
    if (a->layer && !a->total_x)
        total = group_sum(total, group, scratch);
    if (a->sums) {
        if (live && member == 0)
            a->sums[row] = total;
        return;
    }
    if (a->total_x)
        mean = (live ? a->total_x[row] : 0.0f) / (float)a->all;
    else if (a->layer && !a->affine)
        mean = total / (float)a->c;
    LF_UNROLL for (int k = 0; k < vecs; k++)
    {
        const int n = lf_eight(len, 8 * (int64_t)(member + k * group));
        LF_UNROLL for (int j = 0; j < 8; j++)
        {
            if (j < n)
                sq = fmaf(s[k][j] - mean, s[k][j] - mean, sq);
        }
    }
    if (!a->total)
        sq = group_sum(sq, group, scratch);
    if (a->squares) {
        if (live && member == 0)
            a->squares[row] = sq;
        return;
    }
    const float mean_sq =
                    a->total ? (live ? a->total[row] : 0.0f) / (float)a->all : sq / (float)a->c,
                rstd = a->affine ? 1.0f : 1.0f / sqrtf(mean_sq + a->eps);
    LF_UNROLL for (int k = 0; k < vecs; k++)
    {
        const int64_t at = 8 * (int64_t)(member + k * group);
        if (at < len)
            norm_put(a, r * a->ldy + col, a->each ? col : 0, at, s[k], mean, rstd);
    }
    if (live && member == 0 && a->mean && a->layer)
        a->mean[row] = mean;
    if (live && member == 0 && a->rstd)
        a->rstd[row] = rstd;
}

LF_KERNEL(norm_fwd, struct lf_cu_norm_fwd, LF_NORM_THREADS)
{
    LF_SHARED(float, scratch);
    BY_TYPE(a->k.x_type, norm_fwd_row, a, scratch, LF_NORM_FWD_VECS)
}

LF_KERNEL(norm_fwd_few, struct lf_cu_norm_fwd, LF_NORM_THREADS)
{
    LF_SHARED(float, scratch);
    BY_TYPE(a->k.x_type, norm_fwd_row, a, scratch, LF_NORM_FWD_FEW)
}

/* ---- norm, backward ---- */

/* What a thread keeps over the rows of its block: its columns' weights and sums. */
struct bwd_state {
    float w[LF_NORM_BWD_WIDE][8], dw[LF_NORM_BWD_WIDE][8], db[LF_NORM_BWD_WIDE][8];
};

/* dx of row `row`; dw and db grow. scratch: 64 floats, written by rows of this parity only. */
LF_DEV void norm_bwd_row(const struct lf_cu_norm_bwd *p, struct bwd_state *st, int64_t row,
                         bool live, float *scratch, const int vecs, const int t)
{
    const struct lf_k_norm_bwd *a = &p->k;
    const int group = p->group, member = (int)threadIdx.x % group;
    const bool vx = heads_vec8(a->x, a->ldx, a->heads, a->c, t),
               vdy = heads_vec8(a->dy, a->lddy, a->heads, a->c, a->dy_type),
               vr = heads_vec8(a->dres, a->lddres, a->heads, a->c, t),
               vd = heads_vec8(a->dx, a->lddx, a->heads, a->c, t);
    int64_t r = 0, h = 0;
    float xh[LF_NORM_BWD_WIDE][8], g[LF_NORM_BWD_WIDE][8], sum[2] = {0.0f, 0.0f};
    if (live)
        lf_row_of(row, a->heads, &r, &h);
    const int64_t len = live ? a->c : 0, col = h * a->c;
    const float mean = live && a->layer ? a->mean[row] : 0.0f, rstd = live ? a->rstd[row] : 0.0f;
    LF_UNROLL for (int k = 0; k < vecs; k++)
    {
        const int64_t at = 8 * (int64_t)(member + k * group);
        lf_load_n(xh[k], a->x, r * a->ldx + col + at, t, lf_eight(len, at), vx);
        lf_load_n(g[k], a->dy, r * a->lddy + col + at, a->dy_type, lf_eight(len, at), vdy);
    }
    LF_UNROLL for (int k = 0; k < vecs; k++)
    {
        const int n = lf_eight(len, 8 * (int64_t)(member + k * group));
        LF_UNROLL for (int j = 0; j < 8; j++)
        {
            xh[k][j] = j < n ? (xh[k][j] - mean) * rstd : 0.0f;
            st->dw[k][j] = fmaf(g[k][j], xh[k][j], st->dw[k][j]);
            st->db[k][j] += g[k][j];
            g[k][j] *= st->w[k][j];
            sum[0] += g[k][j];
            sum[1] = fmaf(g[k][j], xh[k][j], sum[1]);
        }
    }
    if (!a->dx && !a->dots)
        return;
    if (a->layer && !a->total)
        sum[0] = group_sum(sum[0], group, scratch);
    if (!a->total)
        sum[1] = group_sum(sum[1], group, scratch + 32);
    const int64_t dots = row * (1 + a->layer); /* in dots and total */
    if (a->dots) {
        if (live && member == 0)
            a->dots[dots] = sum[1];
        if (live && member == 0 && a->layer)
            a->dots[dots + 1] = sum[0];
        return;
    }
    if (a->total && live) {
        sum[1] = a->total[dots];
        sum[0] = a->layer ? a->total[dots + 1] : 0.0f;
    }
    const float all = (float)(a->total ? a->all : a->c),
                mg = a->layer && !a->affine ? sum[0] / all : 0.0f,
                mgx = a->affine ? 0.0f : sum[1] / all;
    LF_UNROLL for (int k = 0; k < vecs; k++)
    {
        const int64_t at = 8 * (int64_t)(member + k * group);
        const int n = lf_eight(len, at);
        float res[8];
        if (n <= 0)
            continue;
        if (a->dres)
            lf_load_n(res, a->dres, r * a->lddres + col + at, t, n, vr);
        LF_UNROLL for (int j = 0; j < 8; j++)
        {
            g[k][j] = fmaf(fmaf(-xh[k][j], mgx, g[k][j] - mg), rstd, a->dres ? res[j] : -0.0f);
        }
        lf_store_n(a->dx, r * a->lddx + col + at, t, g[k], n, vd);
    }
}

/* Where heads have their own parameters, blockIdx.y is the head of all rows of a block; its first
 * column. */
LF_DEV int64_t own_column(const struct lf_k_norm_bwd *a)
{
    return a->each ? (int64_t)blockIdx.y * a->c : 0;
}

/* The block's sums: those of its groups, added in order, into part. */
LF_DEV void norm_bwd_part(const struct lf_cu_norm_bwd *p, const struct bwd_state *st, float *sums,
                          const int vecs)
{
    const struct lf_k_norm_bwd *a = &p->k;
    const int group = p->group, member = (int)threadIdx.x % group, mine = (int)threadIdx.x / group,
              groups = (int)blockDim.x / group;
    const int64_t width = 8 * (int64_t)vecs * group;
    float *part = (float *)a->work + 2 * (int64_t)blockIdx.x * p->stride + own_column(a);
    for (int w = 0; w < 2; w++) {
        __syncthreads();
        LF_UNROLL for (int k = 0; k < vecs; k++)
        {
            LF_UNROLL for (int j = 0; j < 8; j++)
                sums[mine * width + 8 * (member + k * group) + j] = w ? st->db[k][j] : st->dw[k][j];
        }
        __syncthreads();
        for (int64_t c = threadIdx.x; c < a->c; c += blockDim.x) {
            float s = 0.0f;
            for (int i = 0; i < groups; i++)
                s += sums[i * width + c];
            part[w * p->stride + c] = s;
        }
    }
}

LF_DEV void norm_bwd_block(const struct lf_cu_norm_bwd *p, float *shared, const int vecs,
                           const int t)
{
    const struct lf_k_norm_bwd *a = &p->k;
    const int group = p->group, member = (int)threadIdx.x % group, groups = (int)blockDim.x / group;
    const int64_t rows = a->each ? a->rows : a->rows * a->heads, step = a->each ? a->heads : 1,
                  lo = (int64_t)blockIdx.x * p->block,
                  hi = lo + p->block < rows ? lo + p->block : rows;
    struct bwd_state st;
    LF_UNROLL for (int k = 0; k < vecs; k++)
    {
        const int64_t at = 8 * (int64_t)(member + k * group);
        if (a->w)
            lf_load_n(st.w[k], a->w, own_column(a) + at, a->w_type, lf_eight(a->c, at),
                      weights_vec8(a->w, a->each, a->c, a->w_type));
        LF_UNROLL for (int j = 0; j < 8; j++)
        {
            st.w[k][j] = a->w ? st.w[k][j] + a->w_offset : 1.0f;
            st.dw[k][j] = st.db[k][j] = 0.0f;
        }
    }
    for (int64_t r = lo; r < hi; r += groups) {
        const int64_t row = r + (int)threadIdx.x / group;
        norm_bwd_row(p, &st, row * step + (a->each ? (int64_t)blockIdx.y : 0), row < hi, shared,
                     vecs, t);
    }
    if (a->dw || a->db)
        norm_bwd_part(p, &st, shared + 64, vecs);
}

LF_KERNEL(norm_bwd, struct lf_cu_norm_bwd, LF_NORM_THREADS)
{
    LF_SHARED(float, shared);
    BY_TYPE(a->k.x_type, norm_bwd_block, a, shared, LF_NORM_BWD_VECS)
}

LF_KERNEL(norm_bwd_wide, struct lf_cu_norm_bwd, LF_NORM_THREADS)
{
    LF_SHARED(float, shared);
    BY_TYPE(a->k.x_type, norm_bwd_block, a, shared, LF_NORM_BWD_WIDE)
}

LF_KERNEL(norm_bwd_sum, struct lf_cu_norm_sum, LF_NORM_SUM_X *LF_NORM_SUM_Y)
{
    LF_SHARED(float, s);
    float *out = blockIdx.y ? a->db : a->dw;
    const int x = (int)threadIdx.x, y = (int)threadIdx.y;
    const int64_t c = (int64_t)blockIdx.x * LF_NORM_SUM_X + x;
    float v = 0.0f;
    for (int64_t b = y; out && c < a->c && b < a->blocks; b += LF_NORM_SUM_Y)
        v += a->part[(2 * b + blockIdx.y) * a->stride + c];
    s[y * LF_NORM_SUM_X + x] = v;
    __syncthreads();
    if (!out || y > 0 || c >= a->c)
        return;
    v = 0.0f;
    for (int i = 0; i < LF_NORM_SUM_Y; i++)
        v += s[i * LF_NORM_SUM_X + x];
    out[c] = a->accumulate ? out[c] + v : v;
}

/* ---- rows of length one ---- */

/* Eight columns of each thread of a block that owns a row of c_len. */
#define EACH_COLUMN(at, c_len)                                                                     \
    for (int64_t at = 8 * (int64_t)threadIdx.x; at < (c_len); at += 8 * (int64_t)blockDim.x)

LF_DEV float row_dot(const float *x, const float *y, int64_t c, bool vec, float *scratch)
{
    float s = 0.0f, u[8], v[8];
    EACH_COLUMN(at, c)
    {
        lf_load_n(u, x, at, LF_F32, lf_eight(c, at), vec);
        lf_load_n(v, y, at, LF_F32, lf_eight(c, at), vec);
        LF_UNROLL for (int j = 0; j < 8; j++) s = fmaf(u[j], v[j], s);
    }
    return lf_block_sum(s, scratch);
}

LF_KERNEL(unit_rows_fwd, struct lf_k_unit_rows_fwd, LF_ROW_THREADS)
{
    LF_SHARED(float, scratch);
    const float *x = a->x + (int64_t)blockIdx.x * a->c;
    const int64_t to = (int64_t)blockIdx.x * a->c;
    const bool vec = lf_vec8(a->x, a->c, LF_F32) && lf_vec8(a->y, a->c, a->y_type);
    const float inv = 1.0f / fmaxf(sqrtf(row_dot(x, x, a->c, vec, scratch)), 1e-12f);
    EACH_COLUMN(at, a->c)
    {
        float v[8];
        lf_load_n(v, x, at, LF_F32, lf_eight(a->c, at), vec);
        LF_UNROLL for (int j = 0; j < 8; j++) v[j] *= inv;
        lf_store_n(a->y, to + at, a->y_type, v, lf_eight(a->c, at), vec);
    }
}

LF_KERNEL(unit_rows_bwd, struct lf_k_unit_rows_bwd, LF_ROW_THREADS)
{
    LF_SHARED(float, scratch);
    const int64_t first = (int64_t)blockIdx.x * a->c;
    const float *x = a->x + first, *dy = a->dy + first;
    const bool vec =
        lf_vec8(a->x, a->c, LF_F32) && lf_vec8(a->dy, a->c, LF_F32) && lf_vec8(a->dx, a->c, LF_F32);
    const float length = sqrtf(row_dot(x, x, a->c, vec, scratch)),
                dot = row_dot(x, dy, a->c, vec, scratch), inv = 1.0f / fmaxf(length, 1e-12f);
    /* the part of dy along y changes the length only, which y does not have; a short row keeps
     * it */
    const float along = length < 1e-12f ? 0.0f : dot * inv * inv;
    EACH_COLUMN(at, a->c)
    {
        const int n = lf_eight(a->c, at);
        float u[8], v[8], old[8];
        lf_load_n(u, x, at, LF_F32, n, vec);
        lf_load_n(v, dy, at, LF_F32, n, vec);
        if (a->accumulate)
            lf_load_n(old, a->dx, first + at, LF_F32, n, vec);
        LF_UNROLL for (int j = 0; j < 8; j++)
        {
            v[j] = fmaf(fmaf(-u[j], along, v[j]), inv, a->accumulate ? old[j] : -0.0f);
        }
        lf_store_n(a->dx, first + at, LF_F32, v, n, vec);
    }
}

/* ---- gated rows ---- */

LF_KERNEL(row_gate_fwd, struct lf_k_row_gate_fwd, 256)
{
    const int t = a->x_type;
    const bool vec = lf_vec8(a->x, a->ldx, t) && lf_vec8(a->y, a->ldy, t);
    LF_EACH_EIGHT(r, at, a->rows, a->c)
    {
        const int n = lf_eight(a->c, at);
        const float s = lf_sigmoid(a->gate[r]);
        float x[8];
        lf_load_n(x, a->x, r * a->ldx + at, t, n, vec);
        LF_UNROLL for (int j = 0; j < 8; j++) x[j] *= s;
        lf_store_n(a->y, r * a->ldy + at, t, x, n, vec);
    }
}

LF_KERNEL_PER_SM(row_gate_bwd, struct lf_k_row_gate_bwd, LF_ROW_THREADS, 4)
{
    LF_SHARED(float, scratch);
    const int t = a->x_type;
    const int64_t r = blockIdx.x;
    const bool vec =
        lf_vec8(a->x, a->ldx, t) && lf_vec8(a->dy, a->lddy, t) && lf_vec8(a->dx, a->lddx, t);
    const float s = lf_sigmoid(a->gate[r]);
    float dot = 0.0f;
    EACH_COLUMN(at, a->c)
    {
        const int n = lf_eight(a->c, at);
        float x[8], g[8];
        lf_load_n(x, a->x, r * a->ldx + at, t, n, vec);
        lf_load_n(g, a->dy, r * a->lddy + at, t, n, vec);
        LF_UNROLL for (int j = 0; j < 8; j++)
        {
            dot = fmaf(g[j], x[j], dot);
            g[j] *= s;
        }
        lf_store_n(a->dx, r * a->lddx + at, t, g, n, vec);
    }
    dot = lf_block_sum(dot, scratch);
    if (threadIdx.x == 0)
        a->dgate[r] = s * (1.0f - s) * dot;
}
