/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a matrix product's tile: product, + bias, rounded to c_type where something follows
 * that the backward pass must see (pre, act), act, + residual, rounded once, stored. Element by
 * element, so the position in the tile changes nothing.
 */
#include "config.h"

#include "kernels/cpu/gemm_int.h"
#include "kernels/cpu/ops.h"

LF_INLINE void epilogue_rows(const struct lf_k_gemm *g, const float *t, int64_t row, int64_t col,
                             int m, int n, const uint8_t ct, const uint8_t act)
{
    for (int i = 0; i < m; i++)
        for (int v = 0; v < n; v += LF_VL) {
            int64_t w = n - v < LF_VL ? n - v : LF_VL, r = row + i, c = col + v;
            lf_v x = lf_v_load(t + i * LF_NR + v);
            if (g->bias)
                x += lf_get(g->bias, c, g->bias_type, w);
            if (g->pre || act != LF_ACT_NONE)
                x = lf_round_to(x, ct);
            if (g->pre)
                lf_put(g->pre, r * g->ldpre + c, ct, w, x);
            x = lf_act_f(act, x);
            if (g->residual)
                x += lf_get(g->residual, r * g->ldres + c, ct, w);
            lf_put(g->c, r * g->ldc + c, ct, w, x);
        }
}

#define CASE(a)                                                                                    \
    case a:                                                                                        \
        if (g->c_type == LF_BF16)                                                                  \
            epilogue_rows(g, t, row, col, m, n, LF_BF16, a);                                       \
        else                                                                                       \
            epilogue_rows(g, t, row, col, m, n, LF_F32, a);                                        \
        break;

void LF_SYM(epilogue)(const struct lf_k_gemm *g, const float *t, int64_t row, int64_t col, int m,
                      int n)
{
    switch (g->act) {
        CASE(LF_ACT_NONE)
        CASE(LF_ACT_GELU)
        CASE(LF_ACT_GELU_TANH)
        CASE(LF_ACT_GELU_QUICK)
        CASE(LF_ACT_SILU)
        CASE(LF_ACT_RELU)
    default:
        break;
    }
}
