/* SPDX-License-Identifier: Apache-2.0
 *
 * The op table: all that the passes know about an op, one row each. Adding an op is this row, its functions, its kernel
 * and a row in the tests.
 */
#include "engine/graph/priv.h"

#define END                                                                                                            \
    {                                                                                                                  \
        -1, -1                                                                                                         \
    }
#define KID(name) LF_KID_##name

/* clang-format off */
const struct lf_op_row lf_op_table[LF_OP_COUNT] = {
    [LF_OP_NONE] = {.name = "none", .in_types = "", .out_types = "", .alias = {END}, .kernel = -1},
    [LF_OP_EMBED] = {
        .name = "embed", .in_types = "iiww", .out_types = "o", .shape = lf_shape_embed, .vjp = lf_vjp_embed,
        .saves = "token, position", .alias = {END}, .flags = LF_OPF_DENSE, .numeric = "exact",
        .kernel = KID(embed_fwd), .emit = lf_emit_embed},
    [LF_OP_LINEAR] = {
        .name = "linear", .in_types = "cwmx", .out_types = "oo", .shape = lf_shape_linear, .vjp = lf_vjp_linear,
        .saves = "x (dW); with a fused activation its input", .alias = {{LINEAR_Y, LINEAR_RES}, END},
        .numeric = "row",
        .flops = lf_flops_linear, .kernel = KID(gemm), .emit = lf_emit_linear},
    [LF_OP_NORM] = {
        .name = "norm", .in_types = "xxmm", .out_types = "ooff", .shape = lf_shape_norm, .vjp = lf_vjp_norm,
        .saves = "x (or the sum), mean, rstd", .alias = {{NORM_SUM, NORM_X}, {NORM_SUM, NORM_DELTA}, {NORM_Y,
        NORM_X}, END},
        .flags = LF_OPF_CHEAP, .numeric = "row", .kernel = KID(norm_fwd), .emit = lf_emit_norm},
    [LF_OP_UNIT_ROWS] = {
        .name = "unit_rows", .in_types = "m", .out_types = "c", .shape = lf_shape_unit_rows, .vjp = lf_vjp_unit_rows,
        .saves = "nothing: lengths are computed again", .alias = {END}, .flags = LF_OPF_DENSE, .numeric = "row",
        .kernel = KID(unit_rows_fwd), .emit = lf_emit_unit_rows},
    [LF_OP_ROPE] = {
        .name = "rope", .in_types = "ciffi", .out_types = "c", .shape = lf_shape_rope, .vjp = lf_vjp_rope,
        .saves = "position", .alias = {{0, ROPE_X}, END}, .numeric = "row", .kernel = KID(rope),
        .emit = lf_emit_rope},
    [LF_OP_ATTN] = {
        .name = "attention", .in_types = "ccciflii", .out_types = "cf", .shape = lf_shape_attn, .vjp = lf_vjp_attn,
        .saves = "q, k, v, o, lse; dropout is drawn again", .alias = {END}, .flags = LF_OPF_RNG, .numeric = "row",
        .flops = lf_flops_attn,
        .kernel = KID(attn_fwd), .emit = lf_emit_attn},
    [LF_OP_KV_WRITE] = {
        .name = "kv_write", .in_types = "ccssiii", .out_types = "", .shape = lf_shape_kv_write, .alias = {END},
        .flags = LF_OPF_SIDE, .numeric = "exact", .kernel = KID(kv_write), .emit = lf_emit_kv_write},
    [LF_OP_ATTN_PAGED] = {
        .name = "attention_paged", .in_types = "cssiiifi", .out_types = "c", .shape = lf_shape_attn_paged,
        .alias = {END},
        .numeric = "row", .flops = lf_flops_attn, .kernel = KID(attn_paged), .emit = lf_emit_attn_paged},
    [LF_OP_ACT] = {
        .name = "act", .in_types = "c", .out_types = "c", .shape = lf_shape_same, .vjp = lf_vjp_act, .saves = "x",
        .alias = {END}, .flags = LF_OPF_CHEAP, .numeric = "row", .kernel = KID(act_fwd), .emit = lf_emit_act},
    [LF_OP_GLU] = {
        .name = "glu", .in_types = "cc", .out_types = "c", .shape = lf_shape_glu, .vjp = lf_vjp_glu,
        .saves = "gate, up",
        .alias = {END}, .flags = LF_OPF_CHEAP | LF_OPF_SAMELD, .numeric = "row", .kernel = KID(glu_fwd),
        .emit = lf_emit_glu},
    [LF_OP_ADD] = {
        .name = "add", .in_types = "xx", .out_types = "o", .shape = lf_shape_add, .vjp = lf_vjp_add,
        .saves = "nothing",
        .alias = {{0, 0}, {0, 1}, END}, .flags = LF_OPF_DENSE, .numeric = "row", .kernel = KID(axpby),
        .emit = lf_emit_add},
    [LF_OP_SCALE] = {
        .name = "scale", .in_types = "x", .out_types = "o", .shape = lf_shape_same, .vjp = lf_vjp_scale,
        .saves = "nothing",
        .alias = {{0, 0}, END}, .flags = LF_OPF_DENSE | LF_OPF_CHEAP, .numeric = "row", .kernel = KID(axpby),
        .emit = lf_emit_scale},
    [LF_OP_CAST] = {
        .name = "cast", .in_types = "x", .out_types = "o", .shape = lf_shape_same, .alias = {END},
        .flags = LF_OPF_DENSE,
        .numeric = "exact", .kernel = KID(axpby), .emit = lf_emit_add},
    [LF_OP_COPY] = {
        .name = "copy", .in_types = "c", .out_types = "c", .shape = lf_shape_same, .vjp = lf_vjp_copy,
        .saves = "nothing",
        .alias = {END}, .flags = LF_OPF_CHEAP, .numeric = "exact", .kernel = KID(act_fwd), .emit = lf_emit_act},
    [LF_OP_DROPOUT] = {
        .name = "dropout", .in_types = "ccli", .out_types = "c", .shape = lf_shape_dropout, .vjp = lf_vjp_dropout,
        .saves = "nothing: the decisions are drawn again", .alias = {{0, DROP_X}, END},
        .flags = LF_OPF_CHEAP | LF_OPF_RNG,
        .numeric = "row", .kernel = KID(dropout), .emit = lf_emit_dropout},
    [LF_OP_GATHER] = {
        .name = "gather_rows", .in_types = "ci", .out_types = "c", .shape = lf_shape_gather, .alias = {END},
        .numeric = "exact",
        .kernel = KID(gather_rows), .emit = lf_emit_gather},
    [LF_OP_XENT] = {
        .name = "xent", .in_types = "cwwi", .out_types = "fficggf", .shape = lf_shape_xent, .vjp = lf_vjp_xent,
        .saves = "nothing: dX and dW are formed at once", .alias = {END}, .flags = LF_OPF_SIDE, .numeric = "row",
        .flops = lf_flops_xent, .kernel = KID(linear_xent), .emit = lf_emit_xent},
    [LF_OP_LINEAR_DX] = {
        .name = "linear_dx", .in_types = "cwx", .out_types = "o", .alias = {{0, LDX_RES}, END}, .numeric = "row",
        .flops = lf_flops_linear_dx, .kernel = KID(gemm), .emit = lf_emit_linear_dx},
    [LF_OP_LINEAR_DW] = {
        .name = "linear_dw", .in_types = "cc", .out_types = "g", .alias = {END}, .numeric = "rows",
        .flops = lf_flops_linear_dw, .kernel = KID(gemm), .emit = lf_emit_linear_dw},
    [LF_OP_COLSUM] = {
        .name = "colsum", .in_types = "c", .out_types = "g", .alias = {END}, .numeric = "rows", .kernel = KID(colsum),
        .emit = lf_emit_colsum},
    [LF_OP_EMBED_BWD] = {
        .name = "embed_bwd", .in_types = "iix", .out_types = "gg", .alias = {END}, .flags = LF_OPF_DENSE,
        .numeric = "rows",
        .kernel = KID(embed_bwd), .emit = lf_emit_embed_bwd},
    [LF_OP_NORM_BWD] = {
        .name = "norm_bwd", .in_types = "xxxmff", .out_types = "ogg",
        .alias = {{NORMB_DX, NORMB_DRES}, {NORMB_DX, NORMB_DY}, END}, .numeric = "row", .kernel = KID(norm_bwd),
        .emit = lf_emit_norm_bwd},
    [LF_OP_UNIT_ROWS_BWD] = {
        .name = "unit_rows_bwd", .in_types = "mf", .out_types = "g", .alias = {END}, .numeric = "row",
        .kernel = KID(unit_rows_bwd), .emit = lf_emit_unit_rows_bwd},
    [LF_OP_ATTN_BWD] = {
        .name = "attention_bwd", .in_types = "cccccfiflii", .out_types = "ccc", .alias = {END}, .flags = LF_OPF_RNG,
        .numeric = "row",
        .flops = lf_flops_attn_bwd, .kernel = KID(attn_bwd), .emit = lf_emit_attn_bwd},
    [LF_OP_ACT_BWD] = {
        .name = "act_bwd", .in_types = "cc", .out_types = "c", .alias = {{0, ACTB_DY}, END}, .numeric = "row",
        .kernel = KID(act_bwd), .emit = lf_emit_act_bwd},
    [LF_OP_GLU_BWD] = {
        .name = "glu_bwd", .in_types = "ccc", .out_types = "cc", .alias = {{0, 0}, {1, 1}, END},
        .flags = LF_OPF_SAMELD,
        .numeric = "row", .kernel = KID(glu_bwd), .emit = lf_emit_glu_bwd},
    [LF_OP_GRAD_NORM] = {
        .name = "grad_norm", .in_types = "", .out_types = "", .alias = {END}, .flags = LF_OPF_SIDE, .numeric = "rows",
        .kernel = KID(grad_norm), .emit = lf_emit_grad_norm},
    [LF_OP_ADAMW] = {
        .name = "adamw", .in_types = "", .out_types = "", .alias = {END}, .flags = LF_OPF_SIDE, .numeric = "row",
        .kernel = KID(adamw), .emit = lf_emit_adamw},
    [LF_OP_MOE_ROUTE] = {
        .name = "moe_route", .in_types = "fm", .out_types = "ifff", .shape = lf_shape_moe_route, .vjp = lf_vjp_moe_route,
        .saves = "ids, weights, scores", .alias = {END}, .numeric = "row", .kernel = KID(moe_route),
        .emit = lf_emit_moe_route},
    [LF_OP_MOE_STATS] = {
        .name = "moe_stats", .in_types = "ifffim", .out_types = "fg", .shape = lf_shape_moe_stats, .alias = {END},
        .flags = LF_OPF_SIDE, .numeric = "rows", .kernel = KID(moe_stats), .emit = lf_emit_moe_stats},
    [LF_OP_MOE_SORT] = {
        .name = "moe_sort", .in_types = "i", .out_types = "iii", .shape = lf_shape_moe_sort, .alias = {END},
        .numeric = "exact", .kernel = KID(moe_sort), .emit = lf_emit_moe_sort},
    [LF_OP_MOE_PERMUTE] = {
        .name = "moe_permute", .in_types = "cii", .out_types = "c", .shape = lf_shape_moe_permute,
        .vjp = lf_vjp_moe_permute, .saves = "places", .alias = {END}, .flags = LF_OPF_CHEAP, .numeric = "exact",
        .kernel = KID(gather_rows), .emit = lf_emit_gather},
    [LF_OP_MOE_LINEAR] = {
        .name = "moe_linear", .in_types = "cwi", .out_types = "o", .shape = lf_shape_moe_linear,
        .vjp = lf_vjp_moe_linear, .saves = "x (dW), offsets", .alias = {END}, .numeric = "row",
        .flops = lf_flops_moe_linear, .kernel = KID(grouped_gemm), .emit = lf_emit_moe_linear},
    [LF_OP_MOE_COMBINE] = {
        .name = "moe_combine", .in_types = "cifx", .out_types = "c", .shape = lf_shape_moe_combine,
        .vjp = lf_vjp_moe_combine, .saves = "x, places, weights", .alias = {{0, COMB_RES}, END}, .numeric = "row",
        .kernel = KID(moe_combine), .emit = lf_emit_moe_combine},
    [LF_OP_ROW_GATE] = {
        .name = "row_gate", .in_types = "cf", .out_types = "c", .shape = lf_shape_row_gate, .vjp = lf_vjp_row_gate,
        .saves = "x, gate", .alias = {END}, .flags = LF_OPF_CHEAP, .numeric = "row", .kernel = KID(row_gate_fwd),
        .emit = lf_emit_row_gate},
    [LF_OP_MOE_ROUTE_BWD] = {
        .name = "moe_route_bwd", .in_types = "iffffi", .out_types = "f", .alias = {END}, .numeric = "row",
        .kernel = KID(moe_route_bwd), .emit = lf_emit_moe_route_bwd},
    [LF_OP_MOE_LINEAR_DX] = {
        .name = "moe_linear_dx", .in_types = "cwxi", .out_types = "o", .alias = {{0, MOEDX_RES}, END}, .numeric = "row",
        .flops = lf_flops_moe_linear_dx, .kernel = KID(grouped_gemm), .emit = lf_emit_moe_linear_dx},
    [LF_OP_MOE_LINEAR_DW] = {
        .name = "moe_linear_dw", .in_types = "cci", .out_types = "g", .alias = {END}, .numeric = "rows",
        .flops = lf_flops_moe_linear_dw, .kernel = KID(grouped_gemm), .emit = lf_emit_moe_linear_dw},
    [LF_OP_MOE_COMBINE_BWD] = {
        .name = "moe_combine_bwd", .in_types = "ccif", .out_types = "cf", .alias = {END}, .numeric = "row",
        .kernel = KID(moe_combine_bwd), .emit = lf_emit_moe_combine_bwd},
    [LF_OP_ROW_GATE_BWD] = {
        .name = "row_gate_bwd", .in_types = "ccf", .out_types = "cf", .alias = {{0, GATEB_DY}, END}, .numeric = "row",
        .kernel = KID(row_gate_bwd), .emit = lf_emit_row_gate_bwd},
    [LF_OP_MOE_BALANCE] = {
        .name = "moe_balance", .in_types = "", .out_types = "", .alias = {END}, .flags = LF_OPF_SIDE, .numeric = "rows",
        .kernel = KID(moe_balance), .emit = lf_emit_moe_balance},
    [LF_OP_LOGP] = {
        .name = "logp", .in_types = "cwwi", .out_types = "ff", .shape = lf_shape_logp, .vjp = lf_vjp_logp,
        .saves = "x; logits are formed again", .alias = {END}, .numeric = "row", .flops = lf_flops_logp,
        .kernel = KID(linear_xent), .emit = lf_emit_logp},
    [LF_OP_LOGP_BWD] = {
        .name = "logp_bwd", .in_types = "cwwiff", .out_types = "cgg", .alias = {END}, .numeric = "row",
        .flops = lf_flops_logp_bwd, .kernel = KID(linear_xent), .emit = lf_emit_logp_bwd},
    [LF_OP_DORA_NORM] = {
        .name = "dora_norm", .in_types = "www", .out_types = "f", .shape = lf_shape_dora_norm, .alias = {END},
        .numeric = "row", .flops = lf_flops_dora_norm, .kernel = KID(dora_norm), .emit = lf_emit_dora_norm},
    [LF_OP_DORA] = {
        .name = "dora", .in_types = "cccmmf", .out_types = "c", .shape = lf_shape_dora, .vjp = lf_vjp_dora,
        .saves = "both products, lengths", .alias = {END}, .flags = LF_OPF_CHEAP, .numeric = "row",
        .kernel = KID(dora_fwd), .emit = lf_emit_dora},
    [LF_OP_DORA_BWD] = {
        .name = "dora_bwd", .in_types = "cccmmf", .out_types = "cg", .alias = {{DORAB_DX, DORAB_DY}, END},
        .numeric = "rows", .kernel = KID(dora_bwd), .emit = lf_emit_dora_bwd},
    [LF_OP_QUANTISE] = { /* the next four appear in fp8.c, after differentiation: no shape rule, no vjp */
        .name = "quantise", .in_types = "x", .out_types = "qqff", .alias = {END}, .flags = LF_OPF_CHEAP,
        .numeric = "rows", .kernel = KID(quantise), .emit = lf_emit_quantise},
    [LF_OP_LINEAR_FP8] = {
        .name = "linear_fp8", .in_types = "qqmxff", .out_types = "oo", .alias = {END}, .numeric = "rows",
        .flops = lf_flops_linear, .kernel = KID(gemm_fp8), .emit = lf_emit_linear_fp8},
    [LF_OP_LINEAR_DX_FP8] = {
        .name = "linear_dx_fp8", .in_types = "qqxff", .out_types = "o", .alias = {END}, .numeric = "rows",
        .flops = lf_flops_linear_dx, .kernel = KID(gemm_fp8), .emit = lf_emit_linear_dx_fp8},
    [LF_OP_LINEAR_DW_FP8] = {
        .name = "linear_dw_fp8", .in_types = "qqff", .out_types = "g", .alias = {END}, .numeric = "rows",
        .flops = lf_flops_linear_dw_fp8, .kernel = KID(gemm_fp8), .emit = lf_emit_linear_dw_fp8},
};
/* clang-format on */
