/* SPDX-License-Identifier: Apache-2.0
 *
 * Emitters: fill a kernel's argument struct from a node whose tensors have addresses. Called when memory is bound (and
 * with stand-in addresses while planning, for workspace sizes and checks), never in the step. Work pointers are set by
 * the caller.
 */
#include "engine/graph/ops_emit.h"

LF_EMIT(embed)
{
    struct lf_k_embed_fwd *k = args;
    int32_t y = n->out[0], wte = n->in[EMBED_WTE], wpe = n->in[EMBED_WPE];
    *k = (struct lf_k_embed_fwd){.rows = R(b, y),
                                 .c = C(b, y),
                                 .v = wte ? R(b, wte) : 1,
                                 .max_pos = wpe ? R(b, wpe) : 0,
                                 .token = P(b, n->in[EMBED_TOKEN]),
                                 .position = P(b, n->in[EMBED_POS]),
                                 .wte = P(b, wte),
                                 .wpe = P(b, wpe),
                                 .y = P(b, y),
                                 .scale = n->a.scale,
                                 .pos_offset = n->a.pos_offset,
                                 .w_type = DT(b, wte ? wte : wpe),
                                 .y_type = DT(b, y)};
    return 0;
}

LF_EMIT(linear)
{
    struct lf_k_gemm *k = args;
    int32_t x = n->in[LINEAR_X], w = n->in[LINEAR_W], y = n->out[LINEAR_Y], bias = n->in[LINEAR_BIAS],
            res = n->in[LINEAR_RES];
    *k = (struct lf_k_gemm){.m = R(b, x),
                            .n = R(b, w),
                            .k = C(b, x),
                            .a = P(b, x),
                            .b = P(b, w),
                            .c = P(b, y),
                            .pre = P(b, n->out[LINEAR_PRE]),
                            .bias = P(b, bias),
                            .residual = P(b, res),
                            .lda = LD(b, x),
                            .ldb = C(b, w),
                            .ldc = LD(b, y),
                            .ldpre = LD(b, n->out[LINEAR_PRE]),
                            .ldres = LD(b, res),
                            .tb = true,
                            .ab_type = DT(b, w),
                            .c_type = DT(b, y),
                            .bias_type = bias ? DT(b, bias) : LF_F32,
                            .act = n->a.act,
                            .mode = (uint8_t)b->numeric};
    k->b_packed = b->packed ? b->packed(b, w) : NULL;
    return 0;
}

LF_EMIT(norm)
{
    struct lf_k_norm_fwd *k = args;
    int32_t x = n->in[NORM_X], y = n->out[NORM_Y], delta = n->in[NORM_DELTA], w = n->in[NORM_W];
    *k = (struct lf_k_norm_fwd){.rows = R(b, x),
                                .heads = n->a.heads,
                                .c = C(b, w),
                                .x = P(b, x),
                                .delta = P(b, delta),
                                .w = P(b, w),
                                .b = P(b, n->in[NORM_B]),
                                .sum = P(b, n->out[NORM_SUM]),
                                .y = P(b, y),
                                .mean = P(b, n->out[NORM_MEAN]),
                                .rstd = P(b, n->out[NORM_RSTD]),
                                .ldx = LD(b, x),
                                .lddelta = LD(b, delta),
                                .ldsum = LD(b, n->out[NORM_SUM]),
                                .ldy = LD(b, y),
                                .eps = n->a.eps,
                                .w_offset = n->a.w_offset,
                                .layer = n->a.layer,
                                .x_type = DT(b, x),
                                .y_type = DT(b, y),
                                .w_type = DT(b, w)};
    return 0;
}

LF_EMIT(unit_rows)
{
    struct lf_k_unit_rows_fwd *k = args;
    int32_t x = n->in[0], y = n->out[0];
    *k = (struct lf_k_unit_rows_fwd){.rows = R(b, x), .c = C(b, x), .x = P(b, x), .y = P(b, y), .y_type = DT(b, y)};
    return DT(b, x) == LF_F32 && LD(b, y) == C(b, y) ? 0 : LF_EINVAL;
}

LF_EMIT(unit_rows_bwd)
{
    struct lf_k_unit_rows_bwd *k = args;
    int32_t x = n->in[0], dy = n->in[1];
    *k = (struct lf_k_unit_rows_bwd){
        .rows = R(b, x), .c = C(b, x), .x = P(b, x), .dy = P(b, dy), .dx = P(b, n->out[0]), .accumulate = b->acc};
    return DT(b, dy) == LF_F32 && LD(b, dy) == C(b, dy) ? 0 : LF_EINVAL;
}

LF_EMIT(rope)
{
    struct lf_k_rope *k = args;
    int32_t x = n->in[ROPE_X], y = n->out[0];
    *k = (struct lf_k_rope){.rows = R(b, x),
                            .heads = n->a.heads,
                            .d = C(b, x) / n->a.heads,
                            .rot = n->a.rot,
                            .max_pos = R(b, n->in[ROPE_COS]),
                            .x = P(b, x),
                            .y = P(b, y),
                            .ldx = LD(b, x),
                            .ldy = LD(b, y),
                            .position = P(b, n->in[ROPE_POS]),
                            .position2 = P(b, n->in[ROPE_POS2]),
                            .cos = P(b, n->in[ROPE_COS]),
                            .sin = P(b, n->in[ROPE_SIN]),
                            .interleaved = n->a.interleaved,
                            .inverse = n->a.inverse,
                            .x_type = DT(b, x)};
    return 0;
}

static struct lf_k_attn_drop drop_of(const struct lf_bind *b, const struct lf_node *n, int sample, int position)
{
    return (struct lf_k_attn_drop){.p = n->a.p,
                                   .site = n->a.site,
                                   .sample = P(b, n->in[sample]),
                                   .position = P(b, n->in[position]),
                                   .rec = b->rec};
}

LF_EMIT(attn)
{
    struct lf_k_attn_fwd *k = args;
    int32_t q = n->in[ATTN_Q], kk = n->in[ATTN_K], v = n->in[ATTN_V], o = n->out[ATTN_O];
    *k = (struct lf_k_attn_fwd){.rows = R(b, q),
                                .heads = n->a.heads,
                                .groups = n->a.groups,
                                .d = C(b, q) / n->a.heads,
                                .n_docs = T(b, n->in[ATTN_CU])->rows - 1,
                                .max_doc = n->a.max_doc,
                                .q = P(b, q),
                                .k = P(b, kk),
                                .v = P(b, v),
                                .o = P(b, o),
                                .lse = P(b, n->out[ATTN_LSE]),
                                .ldq = LD(b, q),
                                .ldk = LD(b, kk),
                                .ldv = LD(b, v),
                                .ldo = LD(b, o),
                                .cu_seqlens = P(b, n->in[ATTN_CU]),
                                .prefix = P(b, n->in[ATTN_PREFIX]),
                                .alibi = P(b, n->in[ATTN_ALIBI]),
                                .scale = n->a.scale,
                                .softcap = n->a.softcap,
                                .drop = drop_of(b, n, ATTN_SAMPLE, ATTN_POS),
                                .window = n->a.window,
                                .causal = n->a.causal,
                                .x_type = DT(b, q),
                                .mode = (uint8_t)b->numeric};
    return 0;
}

LF_EMIT(attn_bwd)
{
    struct lf_k_attn_bwd *k = args;
    int32_t q = n->in[ATTNB_Q], kk = n->in[ATTNB_K], v = n->in[ATTNB_V], o = n->in[ATTNB_O], d_o = n->in[ATTNB_DO];
    const int32_t *g = n->out;
    *k = (struct lf_k_attn_bwd){.rows = R(b, q),
                                .heads = n->a.heads,
                                .groups = n->a.groups,
                                .d = C(b, q) / n->a.heads,
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
                                .alibi = P(b, n->in[ATTNB_ALIBI]),
                                .scale = n->a.scale,
                                .softcap = n->a.softcap,
                                .drop = drop_of(b, n, ATTNB_SAMPLE, ATTNB_POS),
                                .window = n->a.window,
                                .causal = n->a.causal,
                                .x_type = DT(b, q),
                                .mode = (uint8_t)b->numeric};
    return 0;
}

LF_EMIT(kv_write)
{
    struct lf_k_kv_write *k = args;
    int32_t kk = n->in[KVW_K], v = n->in[KVW_V];
    *k = (struct lf_k_kv_write){.rows = R(b, kk),
                                .groups = n->a.groups,
                                .d = C(b, kk) / n->a.groups,
                                .page_tokens = n->a.page_tokens,
                                .max_pages = C(b, n->in[KVW_TABLE]),
                                .k = P(b, kk),
                                .v = P(b, v),
                                .ldk = LD(b, kk),
                                .ldv = LD(b, v),
                                .k_pages = P(b, n->in[KVW_KP]),
                                .v_pages = P(b, n->in[KVW_VP]),
                                .seq = P(b, n->in[KVW_SEQ]),
                                .pos = P(b, n->in[KVW_POS]),
                                .table = P(b, n->in[KVW_TABLE]),
                                .x_type = DT(b, kk)};
    return 0;
}

LF_EMIT(attn_paged)
{
    struct lf_k_attn_paged *k = args;
    int32_t q = n->in[PAGED_Q], o = n->out[0];
    *k = (struct lf_k_attn_paged){.rows = R(b, q),
                                  .heads = n->a.heads,
                                  .groups = n->a.groups,
                                  .d = C(b, q) / n->a.heads,
                                  .page_tokens = n->a.page_tokens,
                                  .max_pages = C(b, n->in[PAGED_TABLE]),
                                  .q = P(b, q),
                                  .k_pages = P(b, n->in[PAGED_KP]),
                                  .v_pages = P(b, n->in[PAGED_VP]),
                                  .o = P(b, o),
                                  .ldq = LD(b, q),
                                  .ldo = LD(b, o),
                                  .seq = P(b, n->in[PAGED_SEQ]),
                                  .pos = P(b, n->in[PAGED_POS]),
                                  .table = P(b, n->in[PAGED_TABLE]),
                                  .prefix = P(b, n->in[PAGED_PREFIX]),
                                  .alibi = P(b, n->in[PAGED_ALIBI]),
                                  .scale = n->a.scale,
                                  .softcap = n->a.softcap,
                                  .window = n->a.window,
                                  .x_type = DT(b, q),
                                  .mode = (uint8_t)b->numeric};
    return 0;
}

LF_EMIT(act)
{
    struct lf_k_act_fwd *k = args;
    int32_t x = n->in[0], y = n->out[0];
    *k = (struct lf_k_act_fwd){.rows = R(b, x),
                               .c = C(b, x),
                               .ldx = LD(b, x),
                               .ldy = LD(b, y),
                               .x = P(b, x),
                               .y = P(b, y),
                               .act = n->a.act,
                               .x_type = DT(b, x)};
    return 0;
}

LF_EMIT(act_bwd)
{
    struct lf_k_act_bwd *k = args;
    int32_t x = n->in[ACTB_X], dy = n->in[ACTB_DY], dx = n->out[0];
    *k = (struct lf_k_act_bwd){.rows = R(b, x),
                               .c = C(b, x),
                               .ldx = LD(b, x),
                               .lddy = LD(b, dy),
                               .lddx = LD(b, dx),
                               .x = P(b, x),
                               .dy = P(b, dy),
                               .dx = P(b, dx),
                               .act = n->a.act,
                               .x_type = DT(b, x)};
    return 0;
}

LF_EMIT(glu)
{
    struct lf_k_glu_fwd *k = args;
    int32_t y = n->out[0];
    *k = (struct lf_k_glu_fwd){.rows = R(b, y),
                               .c = C(b, y),
                               .ldx = LD(b, n->in[0]),
                               .ldy = LD(b, y),
                               .gate = P(b, n->in[0]),
                               .up = P(b, n->in[1]),
                               .y = P(b, y),
                               .act = n->a.act,
                               .x_type = DT(b, y)};
    return LD(b, n->in[0]) == LD(b, n->in[1]) ? 0 : LF_EINVAL;
}

LF_EMIT(glu_bwd)
{
    struct lf_k_glu_bwd *k = args;
    int32_t dy = n->in[GLUB_DY];
    *k = (struct lf_k_glu_bwd){.rows = R(b, dy),
                               .c = C(b, dy),
                               .ldx = LD(b, n->in[0]),
                               .lddy = LD(b, dy),
                               .lddx = LD(b, n->out[0]),
                               .gate = P(b, n->in[0]),
                               .up = P(b, n->in[1]),
                               .dy = P(b, dy),
                               .dgate = P(b, n->out[0]),
                               .dup = P(b, n->out[1]),
                               .act = n->a.act,
                               .x_type = DT(b, dy)};
    return LD(b, n->in[0]) == LD(b, n->in[1]) && LD(b, n->out[0]) == LD(b, n->out[1]) ? 0 : LF_EINVAL;
}

/* add and cast */
LF_EMIT(add)
{
    struct lf_k_axpby *k = args;
    int32_t y = n->out[0];
    *k = (struct lf_k_axpby){.n = R(b, y) * C(b, y),
                             .a = P(b, n->in[0]),
                             .b = P(b, n->in[1]),
                             .y = P(b, y),
                             .alpha = 1.0f,
                             .beta = 1.0f,
                             .a_type = DT(b, n->in[0]),
                             .b_type = n->in[1] ? DT(b, n->in[1]) : DT(b, n->in[0]),
                             .y_type = DT(b, y)};
    return LD(b, y) == C(b, y) && LD(b, n->in[0]) == C(b, y) && (!n->in[1] || LD(b, n->in[1]) == C(b, y)) ? 0
                                                                                                          : LF_EINVAL;
}

LF_EMIT(scale)
{
    int rc = lf_emit_add(b, n, args);
    ((struct lf_k_axpby *)args)->alpha = n->a.scale;
    return rc;
}

LF_EMIT(dropout)
{
    struct lf_k_dropout *k = args;
    int32_t x = n->in[DROP_X], res = n->in[DROP_RES], y = n->out[0];
    *k = (struct lf_k_dropout){.rows = R(b, x),
                               .c = C(b, x),
                               .ldx = LD(b, x),
                               .ldres = LD(b, res),
                               .ldy = LD(b, y),
                               .x = P(b, x),
                               .residual = P(b, res),
                               .y = P(b, y),
                               .sample = P(b, n->in[DROP_SAMPLE]),
                               .position = P(b, n->in[DROP_POS]),
                               .p = n->a.p,
                               .site = n->a.site,
                               .x_type = DT(b, x),
                               .rec = b->rec};
    return 0;
}

LF_EMIT(gather)
{
    struct lf_k_gather_rows *k = args;
    int32_t x = n->in[0], y = n->out[0];
    *k = (struct lf_k_gather_rows){.rows = R(b, y),
                                   .c = C(b, y),
                                   .ldx = LD(b, x),
                                   .ldy = LD(b, y),
                                   .x = P(b, x),
                                   .index = P(b, n->in[1]),
                                   .y = P(b, y),
                                   .x_type = DT(b, x)};
    return 0;
}

/* What the three nodes over the output layer have in common. */
static struct lf_k_linear_xent head_args(const struct lf_bind *b, const struct lf_node *n)
{
    int32_t x = n->in[XENT_X], w = n->in[XENT_W];
    const bool computed = T(b, w)->role != LF_ROLE_PARAM; /* its gradient is no sum over micro-batches yet */
    return (struct lf_k_linear_xent){.rows = R(b, x),
                                     .k = C(b, x),
                                     .v = R(b, w),
                                     .v_real = n->a.v_real,
                                     .x = P(b, x),
                                     .w = P(b, w),
                                     .w_packed = b->packed ? b->packed(b, w) : NULL,
                                     .bias = P(b, n->in[XENT_BIAS]),
                                     .target = P(b, n->in[XENT_TARGET]),
                                     .ldx = LD(b, x),
                                     .ldw = C(b, w),
                                     .softcap = n->a.softcap,
                                     .inv_temperature = n->a.scale,
                                     .accumulate = b->acc && !computed,
                                     .x_type = DT(b, x),
                                     .mode = (uint8_t)b->numeric};
}

LF_EMIT(xent)
{
    struct lf_k_linear_xent *k = args;
    const int32_t *o = n->out;
    *k = head_args(b, n);
    k->loss = P(b, o[XENT_LOSS]);
    k->lse = P(b, o[XENT_LSE]);
    k->argmax = P(b, o[XENT_ARGMAX]);
    k->entropy = P(b, o[XENT_ENTROPY]);
    k->dx = P(b, o[XENT_DX]);
    k->dw = P(b, o[XENT_DW]);
    k->db = P(b, o[XENT_DB]);
    k->lddx = LD(b, o[XENT_DX]);
    k->rec = b->rec;
    return 0;
}

LF_EMIT(logp)
{
    struct lf_k_linear_xent *k = args;
    *k = head_args(b, n);
    k->logp = P(b, n->out[LOGP_LOGP]);
    k->entropy = P(b, n->out[LOGP_ENTROPY]);
    return 0;
}

LF_EMIT(logp_bwd)
{
    struct lf_k_linear_xent *k = args;
    *k = head_args(b, n);
    k->dlogp = P(b, n->in[LOGPB_DLOGP]);
    k->dentropy = P(b, n->in[LOGPB_DENTROPY]);
    k->dx = P(b, n->out[LOGPB_DX]);
    k->dw = P(b, n->out[LOGPB_DW]);
    k->db = P(b, n->out[LOGPB_DB]);
    k->lddx = LD(b, n->out[LOGPB_DX]);
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
                            .accumulate = b->acc,
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
                                .c = C(b, w),
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
                                .accumulate = b->acc,
                                .x_type = DT(b, x),
                                .dy_type = DT(b, dy),
                                .w_type = DT(b, w)};
    return T(b, dx)->dtype == T(b, x)->dtype ? 0 : LF_EINVAL;
}

LF_EMIT(grad_norm)
{
    struct lf_k_grad_norm *k = args;
    (void)n;
    *k = (struct lf_k_grad_norm){.n_tensors = b->n_opt_tensors, .t = b->opt_tensors, .rec = b->rec};
    return 0;
}

LF_EMIT(adamw)
{
    struct lf_k_adamw *k = args;
    (void)n;
    *k = (struct lf_k_adamw){.n_tensors = b->n_opt_tensors,
                             .t = b->opt_tensors,
                             .beta1 = b->adamw->beta1,
                             .beta2 = b->adamw->beta2,
                             .eps = b->adamw->eps,
                             .stochastic = b->adamw->stochastic,
                             .rec = b->rec};
    return 0;
}
