/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops by name, their operand slots and their functions; a part of priv.h. */
#ifndef LF_GRAPH_OPS_H
#define LF_GRAPH_OPS_H

#include "engine/graph/graph.h"

struct lf_node;
struct lf_ad;
struct lf_bind;

enum lf_op {
    LF_OP_NONE = 0, /* removed by a pass */
    LF_OP_EMBED,
    LF_OP_LINEAR,
    LF_OP_NORM,
    LF_OP_UNIT_ROWS,
    LF_OP_ROPE,
    LF_OP_ATTN,
    LF_OP_KV_WRITE,
    LF_OP_ATTN_PAGED,
    LF_OP_ACT,
    LF_OP_GLU,
    LF_OP_ADD,
    LF_OP_SCALE,
    LF_OP_CAST,
    LF_OP_COPY,
    LF_OP_DROPOUT,
    LF_OP_GATHER,
    LF_OP_XENT,
    LF_OP_LINEAR_DX,
    LF_OP_LINEAR_DW,
    LF_OP_COLSUM,
    LF_OP_EMBED_BWD,
    LF_OP_NORM_BWD,
    LF_OP_UNIT_ROWS_BWD,
    LF_OP_ATTN_BWD,
    LF_OP_ACT_BWD,
    LF_OP_GLU_BWD,
    LF_OP_GRAD_NORM,
    LF_OP_ADAMW,
    LF_OP_MOE_ROUTE, /* ops from here on put the attributes of experts into a plan's hash */
    LF_OP_MOE_STATS,
    LF_OP_MOE_SORT,
    LF_OP_MOE_PERMUTE,
    LF_OP_MOE_LINEAR,
    LF_OP_MOE_COMBINE,
    LF_OP_ROW_GATE,
    LF_OP_MOE_ROUTE_BWD,
    LF_OP_MOE_LINEAR_DX,
    LF_OP_MOE_LINEAR_DW,
    LF_OP_MOE_COMBINE_BWD,
    LF_OP_ROW_GATE_BWD,
    LF_OP_MOE_BALANCE,
    LF_OP_LOGP,
    LF_OP_LOGP_BWD,
    LF_OP_DORA_NORM,
    LF_OP_DORA,
    LF_OP_DORA_BWD,
    LF_OP_QUANTISE,
    LF_OP_LINEAR_FP8, /* as LINEAR, LINEAR_DX, LINEAR_DW, with a scale for each factor */
    LF_OP_LINEAR_DX_FP8,
    LF_OP_LINEAR_DW_FP8,
    LF_OP_TP_ENTER, /* layout.h */
    LF_OP_TP_LEAVE,
    LF_OP_TP_ROWS, /* this rank's rows of an input */
    LF_OP_TP_JOIN, /* the columns of all ranks */
    /* of a tensor that every rank has whole: this rank's rows for a group (adapter.c) */
    LF_OP_TP_OWN,
    LF_OP_TP_OWN_BWD,
    LF_OP_ROOT,
    LF_OP_MIX_ROWS,
    LF_OP_FOLD_ROWS,   /* k rows become one */
    LF_OP_UNFOLD_ROWS, /* one becomes k */
    LF_OP_MIX_ROWS_DW, /* the gradient of a parameter that is mixed */
    LF_OP_COL_GATE,
    LF_OP_COL_GATE_BWD,
    LF_OP_HEADS_JOIN,
    LF_OP_HEADS_SPLIT, /* its backward */
    LF_OP_XIELU,
    LF_OP_XIELU_BWD,
    LF_OP_NORM_PART, /* a sum over a rank's part of a row, and those that its backward needs */
    LF_OP_NORM_DOTS,
    LF_OP_CONV, /* ops from here on put the attributes of scans into a plan's hash */
    LF_OP_CONV_BWD,
    LF_OP_SCAN_GATE,
    LF_OP_SCAN_GATE_BWD,
    LF_OP_SCAN,
    LF_OP_SCAN_BWD,
    LF_OP_ATTN_SINKS_BWD, /* what each row adds to the gradient of its heads' sinks */
    LF_OP_MOE_COLSUM,     /* the gradient of the experts' biases */
    LF_OP_MOE_GAIN,
    LF_OP_MOE_GAIN_DW,
    LF_OP_HEADS_LINEAR,
    LF_OP_ALTUP_MIX,
    LF_OP_ALTUP_MIX_DW,
    LF_OP_MATCH_RMS,
    LF_OP_MATCH_RMS_BWD,
    LF_OP_GAUSS_TOPK,
    LF_OP_GAUSS_TOPK_BWD,
    LF_OP_CP_HEADS,  /* rows of all heads to heads of all rows */
    LF_OP_CP_ROWS,   /* and back */
    LF_OP_CP_ROWS_F, /* the same in f32 */
    LF_OP_CP_WHOLE,  /* numbers of the rows of all ranks */
    LF_OP_CP_ATTN,   /* attention of own queries over the keys of all ranks */
    LF_OP_CP_ATTN_BWD,
    LF_OP_EXPERT_COUNT, /* experts.h */
    LF_OP_EXPERT_SEND,
    LF_OP_EXPERT_RETURN,
    LF_OP_MOE_KEEP, /* what experts have room for */
    LF_OP_DWCONV,   /* convolutions over pictures */
    LF_OP_DWCONV_BWD,
    LF_OP_TURN_ROWS, /* matrices of k rows, each transposed */
    LF_OP_COUNT
};

/* Operand slots: indices of the inputs and outputs of each op. 0 in a slot means absent. */
enum { EMBED_TOKEN, EMBED_POS, EMBED_WTE, EMBED_WPE };
enum {
    LINEAR_X,
    LINEAR_W,
    LINEAR_BIAS,
    LINEAR_RES,
    LINEAR_XS,
    LINEAR_WS
}; /* scales: of LINEAR_FP8 */
enum { LINEAR_Y, LINEAR_PRE };
enum { NORM_X, NORM_DELTA, NORM_W, NORM_B, NORM_TOTAL, NORM_TOTAL_X };
enum { NORM_Y, NORM_SUM, NORM_MEAN, NORM_RSTD };
enum { ROPE_X, ROPE_POS, ROPE_COS, ROPE_SIN, ROPE_POS2, ROPE_AXIS };
enum {
    ATTN_Q,
    ATTN_K,
    ATTN_V,
    ATTN_CU,
    ATTN_ALIBI,
    ATTN_SAMPLE,
    ATTN_POS,
    ATTN_PREFIX,
    ATTN_RUNS,
    ATTN_SINKS,
    ATTN_BLOCKS, /* of CP_ATTN */
    ATTN_BIAS,
    ATTN_APART, /* cu_seqlens of queries that have an axis of their own */
    ATTN_PLACE  /* where rows are for the bias */
};
enum { ATTN_O, ATTN_LSE };
enum { KVW_K, KVW_V, KVW_KP, KVW_VP, KVW_SEQ, KVW_POS, KVW_TABLE };
enum {
    PAGED_Q,
    PAGED_KP,
    PAGED_VP,
    PAGED_SEQ,
    PAGED_POS,
    PAGED_TABLE,
    PAGED_ALIBI,
    PAGED_PREFIX,
    PAGED_RUNS,
    PAGED_SINKS,
    PAGED_BIAS
};
enum { HEADL_X, HEADL_W };
enum { DROP_X, DROP_RES, DROP_SAMPLE, DROP_POS };
enum { XENT_X, XENT_W, XENT_BIAS, XENT_TARGET };
enum { XENT_LOSS, XENT_LSE, XENT_ARGMAX, XENT_DX, XENT_DW, XENT_DB, XENT_ENTROPY };
enum { LOGP_X, LOGP_W, LOGP_BIAS, LOGP_TARGET, LOGPB_DLOGP, LOGPB_DENTROPY };
enum { LOGP_LOGP, LOGP_ENTROPY };
enum { LOGPB_DX, LOGPB_DW, LOGPB_DB };
enum { LDX_DY, LDX_W, LDX_RES, LDX_DYS, LDX_WS };
enum { LDW_DY, LDW_X, LDW_DYS, LDW_XS };
enum { EMBB_TOKEN, EMBB_POS, EMBB_DY };
enum { EMBB_DWTE, EMBB_DWPE };
enum { NORMB_X, NORMB_DY, NORMB_DRES, NORMB_W, NORMB_MEAN, NORMB_RSTD, NORMB_TOTAL };
enum { DOTS_X, DOTS_DY, DOTS_W, DOTS_RSTD, DOTS_MEAN };
enum { NORMB_DX, NORMB_DW, NORMB_DB };
enum {
    ATTNB_Q,
    ATTNB_K,
    ATTNB_V,
    ATTNB_O,
    ATTNB_DO,
    ATTNB_LSE,
    ATTNB_CU,
    ATTNB_ALIBI,
    ATTNB_SAMPLE,
    ATTNB_POS,
    ATTNB_PREFIX,
    ATTNB_RUNS,
    ATTNB_BLOCKS,
    ATTNB_BIAS,
    ATTNB_APART,
    ATTNB_PLACE
};
enum { ATTNB_DQ, ATTNB_DK, ATTNB_DV, ATTNB_DBIAS };
enum { SINKB_O, SINKB_DO, SINKB_LSE, SINKB_SINKS };
enum { ACTB_X, ACTB_DY };
enum { GLUB_GATE, GLUB_UP, GLUB_DY };
enum { GLUB_DGATE, GLUB_DUP };
enum { ROUTE_LOGITS, ROUTE_BIAS };
enum { ROUTE_IDS, ROUTE_WEIGHTS, ROUTE_SCORES, ROUTE_ENTROPY };
enum { STATS_IDS, STATS_SCORES, STATS_ENTROPY, STATS_PREV, STATS_CU, STATS_BIAS };
enum { STATS_LOAD, STATS_COUNTS };
/* SENT, ROW_OF: what is sent again where there is more than one round */
enum { COUNT_OFFSETS, COUNT_ROW_OF, COUNT_PLACE };
enum { SEND_X, SEND_ROW_OF, SEND_PLACE, SEND_COUNTS, SEND_SENT, SEND_SENT_ROW_OF };
enum { SEND_ROWS, SEND_OFFSETS };
enum { RETURN_X, RETURN_COUNTS, RETURN_SENT, RETURN_ROW_OF };
/* ALL: the choices of all rows, where this rank has some of them; BLOCKS: which ones, or 0 */
enum { KEEP_IDS, KEEP_ALL, KEEP_BLOCKS };
enum { SORT_ROW_OF, SORT_PLACE, SORT_OFFSETS }; /* outputs; the input is ids */
enum { PERM_X, PERM_ROW_OF, PERM_PLACE };
enum { MOEL_X, MOEL_W, MOEL_OFFSETS, MOEL_BIAS };
enum { COMB_X, COMB_PLACE, COMB_WEIGHTS, COMB_RES };
enum { GATE_X, GATE_GATE };
enum { ROUTEB_IDS, ROUTEB_WEIGHTS, ROUTEB_SCORES, ROUTEB_DWEIGHTS, ROUTEB_LOAD, ROUTEB_CU };
enum { MOEDX_DY, MOEDX_W, MOEDX_RES, MOEDX_OFFSETS };
enum { MOEDW_DY, MOEDW_X, MOEDW_OFFSETS };
enum { MOECS_DY, MOECS_OFFSETS };
enum { GAIN_X, GAIN_IDS, GAIN_GAIN };
enum { GAINDW_X, GAINDW_IDS, GAINDW_DY };
enum { COMBB_X, COMBB_DY, COMBB_PLACE, COMBB_WEIGHTS };
enum { GATEB_X, GATEB_DY, GATEB_GATE };
enum { DNORM_W, DNORM_A, DNORM_B };
enum { DORA_BASE, DORA_LORA, DORA_REST, DORA_BIAS, DORA_M, DORA_NORM };
enum { DORAB_DY, DORAB_BASE, DORAB_LORA, DORAB_BIAS, DORAB_M, DORAB_NORM };
enum { DORAB_DX, DORAB_DM };
enum { MIX_X, MIX_START, MIX_INDEX, MIX_WEIGHT, MIX_BSTART, MIX_BINDEX, MIX_BWEIGHT };
enum { COLG_X, COLG_GAIN };
enum { COLGB_X, COLGB_DY, COLGB_GAIN };
enum { COLGB_DX, COLGB_DGAIN };
enum { XIELU_X, XIELU_POSITIVE, XIELU_NEGATIVE, XIELU_BETA, XIELU_EPS, XIELUB_DY };
enum { XIELUB_DX, XIELUB_DPOSITIVE, XIELUB_DNEGATIVE };
enum { DWCONV_X, DWCONV_W, DWCONV_BIAS };
enum { DWCONVB_X, DWCONVB_W, DWCONVB_DY };
enum { DWCONVB_DX, DWCONVB_DW, DWCONVB_DBIAS };
enum { ALTUP_X, ALTUP_W };
enum { ALTUPB_X, ALTUPB_DY };
enum { MATCH_X, MATCH_LIKE, MATCHB_DY };
enum { TOPKB_X, TOPKB_DY };
enum { JOIN_X, JOIN_Z };
enum {
    QUANT_QT,
    QUANT_Q,
    QUANT_TS,
    QUANT_S
}; /* outputs; the transpose first: it is what a backward reads */

/* Convolutions and scans. */
enum { CONV_X, CONV_W, CONV_BIAS, CONV_CU, CONV_STATE, CONV_SEQ, CONV_POS };
enum { CONVB_X, CONVB_W, CONVB_BIAS, CONVB_CU, CONVB_DY };
enum { CONVB_DX, CONVB_DW, CONVB_DBIAS };
enum { SGATE_A, SGATE_B, SGATE_LOG, SGATE_BIAS, SGATEB_DG, SGATEB_DBETA };
enum { SGATE_G, SGATE_BETA };
enum { SGATEB_DA, SGATEB_DB, SGATEB_DLOG, SGATEB_DBIAS };
enum {
    SCAN_Q,
    SCAN_K,
    SCAN_V,
    SCAN_G,
    SCAN_BETA,
    SCAN_SKIP,
    SCAN_CU,
    SCAN_STATE,
    SCAN_SEQ,
    SCAN_POS,
    SCANB_DO = SCAN_STATE
};
enum { SCANB_DQ, SCANB_DK, SCANB_DV, SCANB_DG, SCANB_DBETA, SCANB_DSKIP };

/* Shape rules (ops_shape.c), vjps (ops_vjp.c), emitters (ops_emit.c) and costs (ops_cost.c): one
 * function per op. */
#define LF_SHAPE(op) int lf_shape_##op(lf_graph *g, struct lf_node *n)
LF_SHAPE(embed);
LF_SHAPE(linear);
LF_SHAPE(norm);
LF_SHAPE(norm_part);
LF_SHAPE(unit_rows);
LF_SHAPE(rope);
LF_SHAPE(heads_join);
LF_SHAPE(heads_linear);
LF_SHAPE(attn);
LF_SHAPE(kv_write);
LF_SHAPE(attn_paged);
LF_SHAPE(same);
LF_SHAPE(glu);
LF_SHAPE(add);
LF_SHAPE(dropout);
LF_SHAPE(gather);
LF_SHAPE(xent);
LF_SHAPE(logp);
LF_SHAPE(moe_route);
LF_SHAPE(moe_stats);
LF_SHAPE(moe_keep);
LF_SHAPE(moe_sort);
LF_SHAPE(moe_permute);
LF_SHAPE(moe_linear);
LF_SHAPE(moe_combine);
LF_SHAPE(moe_gain);
LF_SHAPE(expert_count);
LF_SHAPE(expert_send);
LF_SHAPE(expert_return);
LF_SHAPE(row_gate);
LF_SHAPE(mix_rows);
LF_SHAPE(xielu);
LF_SHAPE(dwconv);
LF_SHAPE(turn_rows);
LF_SHAPE(altup_mix);
LF_SHAPE(match_rms);
LF_SHAPE(col_gate);
LF_SHAPE(fold_rows);
LF_SHAPE(dora_norm);
LF_SHAPE(dora);
LF_SHAPE(tp_enter);
LF_SHAPE(tp_leave);
LF_SHAPE(tp_rows);
LF_SHAPE(cp_heads);
LF_SHAPE(cp_rows);
LF_SHAPE(cp_whole);
LF_SHAPE(tp_join);
LF_SHAPE(tp_own);
LF_SHAPE(root);
LF_SHAPE(conv);
LF_SHAPE(scan_gate);
LF_SHAPE(scan);

#define LF_VJP(op) int lf_vjp_##op(struct lf_ad *ad, int32_t node)
LF_VJP(embed);
LF_VJP(linear);
LF_VJP(norm);
LF_VJP(unit_rows);
LF_VJP(rope);
LF_VJP(heads_join);
LF_VJP(attn);
LF_VJP(act);
LF_VJP(glu);
LF_VJP(xielu);
LF_VJP(dwconv);
LF_VJP(turn_rows);
LF_VJP(altup_mix);
LF_VJP(match_rms);
LF_VJP(gauss_topk);
LF_VJP(add);
LF_VJP(scale);
LF_VJP(copy);
LF_VJP(dropout);
LF_VJP(xent);
LF_VJP(logp);
LF_VJP(moe_route);
LF_VJP(moe_permute);
LF_VJP(moe_linear);
LF_VJP(moe_combine);
LF_VJP(moe_gain);
LF_VJP(expert_send);
LF_VJP(expert_return);
LF_VJP(row_gate);
LF_VJP(mix_rows);
LF_VJP(col_gate);
LF_VJP(fold_rows);
LF_VJP(dora);
LF_VJP(conv);
LF_VJP(scan_gate);
LF_VJP(scan);
LF_VJP(tp_enter);
LF_VJP(tp_rows);
LF_VJP(tp_leave);
LF_VJP(tp_own);
LF_VJP(cp_heads);
LF_VJP(cp_rows);

#define LF_EMIT(op) int lf_emit_##op(const struct lf_bind *b, const struct lf_node *n, void *args)
LF_EMIT(embed);
LF_EMIT(linear);
LF_EMIT(norm);
LF_EMIT(norm_part);
LF_EMIT(unit_rows);
LF_EMIT(rope);
LF_EMIT(heads_join);
LF_EMIT(heads_linear);
LF_EMIT(heads_split);
LF_EMIT(attn);
LF_EMIT(kv_write);
LF_EMIT(attn_paged);
LF_EMIT(act);
LF_EMIT(glu);
LF_EMIT(xielu);
LF_EMIT(dwconv);
LF_EMIT(turn_rows);
LF_EMIT(add);
LF_EMIT(scale);
LF_EMIT(dropout);
LF_EMIT(gather);
LF_EMIT(xent);
LF_EMIT(logp);
LF_EMIT(logp_bwd);
LF_EMIT(linear_dx);
LF_EMIT(linear_dw);
LF_EMIT(colsum);
LF_EMIT(embed_bwd);
LF_EMIT(norm_bwd);
LF_EMIT(norm_dots);
LF_EMIT(unit_rows_bwd);
LF_EMIT(attn_bwd);
LF_EMIT(attn_sinks_bwd);
LF_EMIT(act_bwd);
LF_EMIT(glu_bwd);
LF_EMIT(xielu_bwd);
LF_EMIT(dwconv_bwd);
LF_EMIT(altup_mix);
LF_EMIT(altup_mix_dw);
LF_EMIT(match_rms);
LF_EMIT(match_rms_bwd);
LF_EMIT(gauss_topk);
LF_EMIT(gauss_topk_bwd);
LF_EMIT(moe_route);
LF_EMIT(moe_stats);
LF_EMIT(moe_keep);
LF_EMIT(moe_sort);
LF_EMIT(moe_linear);
LF_EMIT(moe_combine);
LF_EMIT(moe_gain);
LF_EMIT(moe_gain_dw);
LF_EMIT(expert_count);
LF_EMIT(expert_send);
LF_EMIT(expert_return);
LF_EMIT(row_gate);
LF_EMIT(mix_rows);
LF_EMIT(col_gate);
LF_EMIT(fold_rows);
LF_EMIT(col_gate_bwd);
LF_EMIT(moe_route_bwd);
LF_EMIT(moe_linear_dx);
LF_EMIT(moe_linear_dw);
LF_EMIT(moe_colsum);
LF_EMIT(moe_combine_bwd);
LF_EMIT(row_gate_bwd);
LF_EMIT(moe_balance);
LF_EMIT(dora_norm);
LF_EMIT(dora);
LF_EMIT(dora_bwd);
LF_EMIT(tp_leave);
LF_EMIT(tp_enter);
LF_EMIT(tp_rows);
LF_EMIT(cp_heads);
LF_EMIT(cp_rows);
LF_EMIT(cp_whole);
LF_EMIT(cp_attn);
LF_EMIT(cp_attn_bwd);
LF_EMIT(tp_join);
LF_EMIT(tp_own);
LF_EMIT(tp_own_bwd);
LF_EMIT(root);
LF_EMIT(quantise);
LF_EMIT(linear_fp8);
LF_EMIT(linear_dx_fp8);
LF_EMIT(linear_dw_fp8);
LF_EMIT(conv);
LF_EMIT(conv_bwd);
LF_EMIT(scan_gate);
LF_EMIT(scan_gate_bwd);
LF_EMIT(scan);
LF_EMIT(scan_bwd);

#endif
