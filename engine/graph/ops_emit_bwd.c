/* SPDX-License-Identifier: Apache-2.0
 *
 * Emitters (ops_emit.c) of backward nodes and of the optimizer.
 */
#include "engine/graph/ops_emit.h"

LF_EMIT(unit_rows_bwd)
{
    struct lf_k_unit_rows_bwd *k = args;
    int32_t x = n->in[0], dy = n->in[1];
    *k = (struct lf_k_unit_rows_bwd){.rows = R(b, x),
                                     .c = C(b, x),
                                     .x = P(b, x),
                                     .dy = P(b, dy),
                                     .dx = P(b, n->out[0]),
                                     .accumulate = b->acc};
    return DT(b, dy) == LF_F32 && LD(b, dy) == C(b, dy) ? 0 : LF_EINVAL;
}

LF_EMIT(attn_bwd)
{
    struct lf_k_attn_bwd *k = args;
    int32_t q = n->in[ATTNB_Q], kk = n->in[ATTNB_K], v = n->in[ATTNB_V], o = n->in[ATTNB_O],
            d_o = n->in[ATTNB_DO];
    const int32_t *g = n->out;
    *k = (struct lf_k_attn_bwd){.rows = R(b, q),
                                .heads = n->a.heads,
                                .groups = n->a.groups,
                                .d = C(b, q) / n->a.heads,
                                .d_value = C(b, v) / n->a.groups,
                                .n_docs = T(b, n->in[ATTNB_CU])->rows - 1,
                                .max_doc = n->a.max_doc,
                                .q = P(b, q),
                                .k = P(b, kk),
                                .v = P(b, v),
                                .o = P(b, o),
                                .d_o = P(b, d_o),
                                .lse = P(b, n->in[ATTNB_LSE]),
                                .dq = P(b, g[0]),
                                .dk = P(b, g[1]),
                                .dv = P(b, g[2]),
                                .ldq = LD(b, q),
                                .ldk = LD(b, kk),
                                .ldv = LD(b, v),
                                .ldo = LD(b, o),
                                .lddo = LD(b, d_o),
                                .lddq = LD(b, g[0]),
                                .lddk = LD(b, g[1]),
                                .lddv = LD(b, g[2]),
                                .cu_seqlens = P(b, n->in[ATTNB_CU]),
                                .prefix = P(b, n->in[ATTNB_PREFIX]),
                                .runs = P(b, n->in[ATTNB_RUNS]),
                                .alibi = P(b, n->in[ATTNB_ALIBI]),
                                .scale = n->a.scale,
                                .softcap = n->a.softcap,
                                .drop = lf_drop_of(b, n, ATTNB_SAMPLE, ATTNB_POS),
                                .window = n->a.window,
                                .causal = n->a.causal,
                                .x_type = DT(b, q),
                                .mode = (uint8_t)b->numeric,
                                .bias = lf_bias_of(b, n->in[ATTNB_BIAS], n->in[ATTNB_PLACE]),
                                .dbias = P(b, g[ATTNB_DBIAS])};
    if (n->in[ATTNB_APART]) {
        k->own = (struct lf_k_attn_own){.n = k->rows, .cu = P(b, n->in[ATTNB_APART])};
        k->rows = R(b, kk);
    }
    return 0;
}

LF_EMIT(attn_sinks_bwd)
{
    struct lf_k_attn_sinks_bwd *k = args;
    const int32_t o = n->in[SINKB_O], d_o = n->in[SINKB_DO], ds = n->out[0];
    *k = (struct lf_k_attn_sinks_bwd){.rows = R(b, o),
                                      .heads = n->a.heads,
                                      .d_value = C(b, o) / n->a.heads,
                                      .ldo = LD(b, o),
                                      .lddo = LD(b, d_o),
                                      .ldds = LD(b, ds),
                                      .o = P(b, o),
                                      .d_o = P(b, d_o),
                                      .lse = P(b, n->in[SINKB_LSE]),
                                      .sinks = lf_sinks_of(b, n, SINKB_SINKS),
                                      .ds = P(b, ds),
                                      .x_type = DT(b, o)};
    return 0;
}

LF_EMIT(linear_dx)
{
    struct lf_k_gemm *k = args;
    int32_t dy = n->in[LDX_DY], w = n->in[LDX_W], dx = n->out[0], res = n->in[LDX_RES];
    *k = (struct lf_k_gemm){.m = R(b, dy),
                            .n = C(b, w),
                            .k = C(b, dy),
                            .a = P(b, dy),
                            .b = P(b, w),
                            .c = P(b, dx),
                            .residual = P(b, res),
                            .lda = LD(b, dy),
                            .ldb = C(b, w),
                            .ldc = LD(b, dx),
                            .ldres = LD(b, res),
                            .ab_type = DT(b, dy),
                            .c_type = DT(b, dx),
                            .bias_type = LF_F32,
                            .mode = (uint8_t)b->numeric};
    return 0;
}

LF_EMIT(linear_dw)
{
    struct lf_k_gemm *k = args;
    int32_t dy = n->in[LDW_DY], x = n->in[LDW_X];
    *k = (struct lf_k_gemm){.m = C(b, dy),
                            .n = C(b, x),
                            .k = R(b, dy),
                            .a = P(b, dy),
                            .b = P(b, x),
                            .c = P(b, n->out[0]),
                            .lda = LD(b, dy),
                            .ldb = LD(b, x),
                            .ldc = C(b, x),
                            .ta = true,
                            .accumulate = lf_adds(b, n->out[0]),
                            .ab_type = DT(b, dy),
                            .c_type = LF_F32,
                            .bias_type = LF_F32,
                            .mode = (uint8_t)b->numeric};
    return 0;
}

LF_EMIT(colsum)
{
    struct lf_k_colsum *k = args;
    int32_t dy = n->in[0];
    *k = (struct lf_k_colsum){.rows = R(b, dy),
                              .n = C(b, dy),
                              .dy = P(b, dy),
                              .ld = LD(b, dy),
                              .dy_type = DT(b, dy),
                              .db = P(b, n->out[0]),
                              .accumulate = b->acc};
    return 0;
}

LF_EMIT(embed_bwd)
{
    struct lf_k_embed_bwd *k = args;
    int32_t dy = n->in[EMBB_DY], wte = n->out[EMBB_DWTE], wpe = n->out[EMBB_DWPE];
    *k = (struct lf_k_embed_bwd){.rows = R(b, dy),
                                 .c = C(b, dy),
                                 .v = wte ? R(b, wte) : 1,
                                 .v0 = n->a.v0,
                                 .known = n->a.v_real,
                                 .max_pos = wpe ? R(b, wpe) : 0,
                                 .token = P(b, n->in[EMBB_TOKEN]),
                                 .position = P(b, n->in[EMBB_POS]),
                                 .dy = P(b, dy),
                                 .dwte = P(b, wte),
                                 .dwpe = P(b, wpe),
                                 .scale = n->a.scale,
                                 .pos_offset = n->a.pos_offset,
                                 .accumulate = b->acc,
                                 .dy_type = DT(b, dy)};
    return 0;
}

LF_EMIT(norm_bwd)
{
    struct lf_k_norm_bwd *k = args;
    int32_t x = n->in[NORMB_X], dy = n->in[NORMB_DY], dres = n->in[NORMB_DRES], w = n->in[NORMB_W],
            dx = n->out[NORMB_DX];
    *k = (struct lf_k_norm_bwd){.rows = R(b, x),
                                .heads = n->a.heads,
                                .c = C(b, x) / n->a.heads,
                                .x = P(b, x),
                                .dy = P(b, dy),
                                .dres = P(b, dres),
                                .w = P(b, w),
                                .mean = P(b, n->in[NORMB_MEAN]),
                                .rstd = P(b, n->in[NORMB_RSTD]),
                                .dx = P(b, dx),
                                .dw = P(b, n->out[NORMB_DW]),
                                .db = P(b, n->out[NORMB_DB]),
                                .ldx = LD(b, x),
                                .lddy = LD(b, dy),
                                .lddres = LD(b, dres),
                                .lddx = LD(b, dx),
                                .w_offset = n->a.w_offset,
                                .layer = n->a.layer,
                                .affine = n->a.affine,
                                .each = n->a.each,
                                .accumulate = b->acc,
                                .x_type = DT(b, x),
                                .dy_type = DT(b, dy),
                                .w_type = DT(b, w),
                                .total = P(b, n->in[NORMB_TOTAL]),
                                .all = C(b, w) * b->g->ps->layout.tensor};
    return T(b, dx)->dtype == T(b, x)->dtype ? 0 : LF_EINVAL;
}

LF_EMIT(norm_dots)
{
    struct lf_k_norm_bwd *k = args;
    const int32_t x = n->in[DOTS_X], dy = n->in[DOTS_DY], w = n->in[DOTS_W];
    *k = (struct lf_k_norm_bwd){.rows = R(b, x),
                                .heads = 1,
                                .c = C(b, w),
                                .x = P(b, x),
                                .dy = P(b, dy),
                                .w = P(b, w),
                                .mean = P(b, n->in[DOTS_MEAN]),
                                .rstd = P(b, n->in[DOTS_RSTD]),
                                .dw = P(b, n->out[1]),
                                .db = P(b, n->out[2]),
                                .ldx = LD(b, x),
                                .lddy = LD(b, dy),
                                .w_offset = n->a.w_offset,
                                .layer = n->a.layer,
                                .accumulate = b->acc,
                                .x_type = DT(b, x),
                                .dy_type = DT(b, dy),
                                .w_type = DT(b, w),
                                .dots = P(b, n->out[0])};
    return 0;
}

LF_EMIT(grad_norm)
{
    struct lf_k_grad_norm *k = args;
    (void)n;
    *k = (struct lf_k_grad_norm){.n_tensors = b->sums ? b->n_counted : b->n_opt_tensors,
                                 .t = b->sums ? b->own_tensors : b->opt_tensors,
                                 .rec = b->rec,
                                 .sums = b->sums,
                                 .n_sums = b->n_sums};
    return 0;
}

LF_EMIT(adamw)
{
    struct lf_k_adamw *k = args;
    (void)n;
    *k = (struct lf_k_adamw){.n_tensors = b->n_own_tensors,
                             .t = b->own_tensors,
                             .beta1 = b->adamw->beta1,
                             .beta2 = b->adamw->beta2,
                             .eps = b->adamw->eps,
                             .stochastic = b->adamw->stochastic,
                             .rec = b->rec};
    return 0;
}
