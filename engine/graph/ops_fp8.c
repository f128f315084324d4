/* SPDX-License-Identifier: Apache-2.0
 *
 * Emitters of the 8-bit products. Every factor is dense with the summed dimension in the fast
 * direction, so that all three products are C = A B^T.
 */
#include "engine/graph/ops_emit.h"

LF_EMIT(quantise)
{
    struct lf_k_quantise *k = args;
    const int32_t x = n->in[0], q = n->out[QUANT_Q], qt = n->out[QUANT_QT];
    *k = (struct lf_k_quantise){.rows = R(b, x),
                                .cols = C(b, x),
                                .ldx = LD(b, x),
                                .x = P(b, x),
                                .q = P(b, q),
                                .qt = P(b, qt),
                                .scale = P(b, n->out[QUANT_S]),
                                .scale_t = P(b, n->out[QUANT_TS]),
                                .x_type = DT(b, x),
                                .q_type = DT(b, q ? q : qt),
                                .scaling = n->a.blocks ? LF_FP8_VEC128 : LF_FP8_TENSOR};
    return 0;
}

/* C [M, N] = A [M, K] B [N, K]^T; the scales are operands as and bs. */
static struct lf_k_gemm_fp8 product(const struct lf_bind *b, const struct lf_node *n, int as,
                                    int bs)
{
    const int32_t x = n->in[0], w = n->in[1], y = n->out[0];
    return (struct lf_k_gemm_fp8){.gemm = {.m = R(b, x),
                                           .n = R(b, w),
                                           .k = C(b, x),
                                           .a = P(b, x),
                                           .b = P(b, w),
                                           .c = P(b, y),
                                           .lda = C(b, x),
                                           .ldb = C(b, w),
                                           .ldc = LD(b, y),
                                           .tb = true,
                                           .c_type = DT(b, y),
                                           .bias_type = LF_F32,
                                           .mode = (uint8_t)b->numeric},
                                  .a_scale = P(b, n->in[as]),
                                  .b_scale = P(b, n->in[bs]),
                                  .a_type = DT(b, x),
                                  .b_type = DT(b, w),
                                  .a_scaling = n->a.blocks ? LF_FP8_VEC128 : LF_FP8_TENSOR,
                                  .b_scaling = n->a.blocks ? LF_FP8_BLK128 : LF_FP8_TENSOR};
}

LF_EMIT(linear_fp8)
{
    struct lf_k_gemm_fp8 *k = args;
    const int32_t bias = n->in[LINEAR_BIAS], res = n->in[LINEAR_RES], pre = n->out[LINEAR_PRE];
    *k = product(b, n, LINEAR_XS, LINEAR_WS);
    k->gemm.bias = P(b, bias);
    k->gemm.bias_type = bias ? DT(b, bias) : LF_F32;
    k->gemm.residual = P(b, res);
    k->gemm.ldres = LD(b, res);
    k->gemm.pre = P(b, pre);
    k->gemm.ldpre = LD(b, pre);
    k->gemm.act = n->a.act;
    return 0;
}

LF_EMIT(linear_dx_fp8)
{
    struct lf_k_gemm_fp8 *k = args;
    *k = product(b, n, LDX_DYS, LDX_WS);
    k->gemm.residual = P(b, n->in[LDX_RES]);
    k->gemm.ldres = LD(b, n->in[LDX_RES]);
    return 0;
}

LF_EMIT(linear_dw_fp8)
{
    struct lf_k_gemm_fp8 *k = args;
    *k = product(b, n, LDW_DYS, LDW_XS);
    k->gemm.ldc = k->gemm.n;
    k->gemm.accumulate = b->acc;
    k->b_scaling = k->a_scaling;
    return 0;
}
