/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal depthwise convolution, and the decays of scans. Sums over rows have 8 parts, a warp each,
 * which are added in order: the tree is a function of the number of rows alone.
 */
#include "kernels/cuda/act.h"

/* The document of row r: the last one that begins at r or before. n_docs: r is padding. */
LF_DEV int64_t conv_doc(const int32_t *cu, int64_t n_docs, int64_t r)
{
    int64_t lo = 0, hi = n_docs;
    while (lo < hi) {
        const int64_t mid = (lo + hi + 1) / 2;
        if (cu[mid] <= r)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

LF_DEV float conv_act(int act, float a)
{
    return act == LF_ACT_SILU ? a / (1.0f + expf(-a)) : a;
}
LF_DEV float conv_slope(int act, float a)
{
    const float s = 1.0f / (1.0f + expf(-a));
    return act == LF_ACT_SILU ? s + a * s * (1.0f - s) : 1.0f;
}

/* Rows of r's sequence that stand before it in the call, up to `most`. */
LF_DEV int64_t conv_before(const int32_t *seq, int64_t r, int64_t most)
{
    int64_t n = 0;
    while (n < most && r - n > 0 && seq[r - n - 1] == seq[r])
        n++;
    return n;
}

/* x: columns, y: rows. */
LF_KERNEL(conv_fwd, struct lf_k_conv_fwd, 256)
{
    const int64_t c = lf_index(), k = a->taps;
    if (c >= a->c)
        return;
    for (int64_t r = blockIdx.y; r < a->rows; r += gridDim.y) {
        int64_t here, all; /* rows before r that count: in the call, and with the state */
        int64_t seq = -1;
        if (a->state) {
            seq = a->seq[r];
            all = seq < 0 ? -1 : a->pos[r];
            here = conv_before(a->seq, r, k - 1);
        } else {
            const int64_t d = conv_doc(a->cu_seqlens, a->n_docs, r);
            here = all = d < a->n_docs ? r - a->cu_seqlens[d] : -1;
        }
        if (all < 0) {
            lf_store(a->y, r * a->ldy + c, a->x_type, 0.0f);
            continue;
        }
        float sum = a->bias ? a->bias[c] : 0.0f;
        for (int64_t j = 0; j < k; j++) {
            const int64_t back = k - 1 - j;
            if (back > all)
                continue;
            const float x =
                back <= here ? lf_load(a->x, (r - back) * a->ldx + c, a->x_type)
                             : lf_load(a->state, (seq * (k - 1) + k - 1 - (back - here)) * a->c + c,
                                       a->x_type);
            sum = fmaf(a->w[c * k + j], x, sum);
        }
        lf_store(a->y, r * a->ldy + c, a->x_type, conv_act(a->act, sum));
    }
}

/* What sequences leave behind, when all rows have been read: for the last row of each. */
LF_KERNEL(conv_keep, struct lf_k_conv_fwd, 256)
{
    const int64_t c = lf_index(), keep = a->taps - 1;
    if (c >= a->c)
        return;
    for (int64_t r = blockIdx.y; r < a->rows; r += gridDim.y) {
        const int64_t seq = a->seq[r];
        if (seq < 0 || (r + 1 < a->rows && a->seq[r + 1] == seq))
            continue;
        const int64_t n = conv_before(a->seq, r, keep) + 1, at = seq * keep * a->c + c;
        for (int64_t i = 0; i < keep; i++) {
            const int64_t back = keep - 1 - i;
            const float x = back < n ? lf_load(a->x, (r - back) * a->ldx + c, a->x_type)
                                     : lf_load(a->state, at + (i + n) * a->c, a->x_type);
            lf_store(a->state, at + i * a->c, a->x_type, x);
        }
    }
}

/* A block for 32 columns, a warp for an eighth of the rows, which it walks from the last on. da of
 * the K - 1 rows behind the part is formed by its warp too. Loops over taps have a constant length,
 * so that da and dw stay in registers. */
LF_KERNEL_PER_SM(conv_bwd, struct lf_k_conv_bwd, 256, 4)
{
    LF_SHARED(float, part); /* [8][K + 1][32] */
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t c = (int64_t)blockIdx.x * 32 + lane, k = a->taps, each = (a->rows + 7) / 8,
                  lo = warp * each, hi = lo + each < a->rows ? lo + each : a->rows;
    float da[LF_CONV_MOST_TAPS], dw[LF_CONV_MOST_TAPS], db = 0;
    for (int j = 0; j < LF_CONV_MOST_TAPS; j++)
        da[j] = dw[j] = 0.0f;
    int64_t t = hi + k - 2 < a->rows - 1 ? hi + k - 2 : a->rows - 1;
    for (; c < a->c && t >= lo && lo < hi; t--) {
        const int64_t d = conv_doc(a->cu_seqlens, a->n_docs, t);
        const int64_t first = d < a->n_docs ? a->cu_seqlens[d] : a->rows,
                      end = d < a->n_docs ? a->cu_seqlens[d + 1] : a->rows;
        for (int j = LF_CONV_MOST_TAPS - 1; j > 0; j--)
            da[j] = da[j - 1];
        da[0] = 0.0f;
        if (d < a->n_docs) {
            float pre = a->bias ? a->bias[c] : 0.0f;
            LF_UNROLL
            for (int j = 0; j < LF_CONV_MOST_TAPS; j++)
                if (j < k && t - k + 1 + j >= first)
                    pre = fmaf(a->w[c * k + j],
                               lf_load(a->x, (t - k + 1 + j) * a->ldx + c, a->x_type), pre);
            da[0] = lf_load(a->dy, t * a->lddy + c, a->x_type) * conv_slope(a->act, pre);
        }
        if (t >= hi)
            continue;
        float dx = 0.0f;
        LF_UNROLL
        for (int m = 0; m < LF_CONV_MOST_TAPS; m++)
            if (m < k && t + m < end)
                dx = fmaf(a->w[c * k + k - 1 - m], da[m], dx);
        if (a->dx)
            lf_store(a->dx, t * a->lddx + c, a->x_type, dx);
        LF_UNROLL
        for (int j = 0; j < LF_CONV_MOST_TAPS; j++)
            if (j < k && t - k + 1 + j >= first)
                dw[j] = fmaf(da[0], lf_load(a->x, (t - k + 1 + j) * a->ldx + c, a->x_type), dw[j]);
        db = db + da[0];
    }
    LF_UNROLL
    for (int j = 0; j < LF_CONV_MOST_TAPS; j++)
        if (j < k)
            part[(warp * (k + 1) + j) * 32 + lane] = dw[j];
    part[(warp * (k + 1) + k) * 32 + lane] = db;
    __syncthreads();
    if (c >= a->c)
        return;
    for (int64_t j = warp; j <= k; j += 8) {
        float *to = j < k ? a->dw : a->dbias;
        const int64_t at = j < k ? c * k + j : c;
        float sum = part[j * 32 + lane];
        for (int w = 1; w < 8; w++)
            sum = sum + part[(w * (k + 1) + j) * 32 + lane];
        if (to)
            to[at] = a->accumulate ? to[at] + sum : sum;
    }
}

/* ---- decays ---- */

LF_DEV float gate_cut(float s, float low, float high)
{
    return s < low ? low : s > high ? high : s;
}

/* x: channels, y: rows. */
LF_KERNEL(scan_gate_fwd, struct lf_k_scan_gate_fwd, 256)
{
    const int64_t i = lf_index(), hw = a->heads * a->width;
    if (i >= hw)
        return;
    const float rate = -expf(a->a_log[i / a->width]), bias = a->bias[i];
    for (int64_t r = blockIdx.y; r < a->rows; r += gridDim.y) {
        const float s =
            gate_cut(lf_softplus(lf_load(a->a, r * a->lda + i, a->x_type) + bias), a->low, a->high);
        a->g[r * hw + i] = rate * s;
        if (a->beta && i < a->heads)
            a->beta[r * a->heads + i] =
                a->b ? a->strength * lf_sigmoid(lf_load(a->b, r * a->ldb + i, a->x_type)) : s;
    }
}

/* A block for one head of several channels, or for 32 heads of one; its 8 warps have the rows of
 * one residue each. */
LF_KERNEL(scan_gate_bwd, struct lf_k_scan_gate_bwd, 256)
{
    LF_SHARED(float, part); /* [2][8][32] */
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const bool wide = a->width > 1;
    const int64_t first = wide ? blockIdx.x * a->width : (int64_t)blockIdx.x * 32,
                  end = wide ? first + a->width : a->heads, hw = a->heads * a->width;
    float all = 0.0f;
    for (int64_t i0 = first; i0 < end && i0 < first + (wide ? a->width : 32); i0 += 32) {
        const int64_t i = i0 + lane;
        float sum = 0.0f, log = 0.0f;
        const float rate = i < end ? -expf(a->a_log[i / a->width]) : 0.0f;
        for (int64_t r = warp; r < a->rows && i < end; r += 8) {
            const float x = lf_load(a->a, r * a->lda + i, a->x_type) + a->bias[i],
                        s = lf_softplus(x), kept = gate_cut(s, a->low, a->high),
                        dg = a->dg ? a->dg[r * hw + i] : 0.0f;
            float ds = rate * dg;
            if (!a->b && a->dbeta)
                ds = ds + a->dbeta[r * a->heads + i];
            const float da = s == kept ? ds * lf_sigmoid(x) : 0.0f;
            log = fmaf(dg * rate, kept, log);
            sum = sum + da;
            if (a->da)
                lf_store(a->da, r * a->ldda + i, a->x_type, da);
        }
        part[warp * 32 + lane] = sum;
        part[256 + warp * 32 + lane] = log;
        __syncthreads();
        for (int w = 1; w < 8 && warp == 0; w++) {
            sum = sum + part[w * 32 + lane];
            log = log + part[256 + w * 32 + lane];
        }
        if (warp == 0 && i < end) {
            if (a->dbias)
                a->dbias[i] = a->accumulate ? a->dbias[i] + sum : sum;
            all = all + log;
        }
        __syncthreads();
    }
    if (warp == 0) {
        const int64_t h = wide ? (int64_t)blockIdx.x : first + lane;
        const float log = wide ? lf_warp_sum(all) : all;
        if (a->da_log && (wide ? lane == 0 : h < end))
            a->da_log[h] = a->accumulate ? a->da_log[h] + log : log;
    }
    for (int64_t r = warp; r < a->rows && a->b && a->db; r += 8) {
        const int64_t h = wide ? (int64_t)blockIdx.x : first + lane;
        if (wide ? lane != 0 : h >= end)
            continue;
        const float s = lf_sigmoid(lf_load(a->b, r * a->ldb + h, a->x_type));
        const float d = a->dbeta ? a->strength * a->dbeta[r * a->heads + h] : 0.0f;
        lf_store(a->db, r * a->lddb + h, a->x_type, d * s * (1.0f - s));
    }
}
