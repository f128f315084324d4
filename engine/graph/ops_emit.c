/* SPDX-License-Identifier: Apache-2.0
 *
 * Emitters: fill a kernel's argument struct from a node whose tensors have addresses. Called when
 * memory is bound (and with stand-in addresses while planning, for workspace sizes and checks),
 * never in the step. Work pointers are set by the caller. ops_emit_bwd.c has those of backward
 * nodes and of the optimizer.
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
                                 .v0 = n->a.v0,
                                 .v_all = n->a.v_all,
                                 .known = n->a.v_real,
                                 .w_type = DT(b, wte ? wte : wpe),
                                 .y_type = DT(b, y)};
    if (n->a.no_bias)
        k->wpe = NULL;
    return 0;
}

LF_EMIT(linear)
{
    struct lf_k_gemm *k = args;
    int32_t x = n->in[LINEAR_X], w = n->in[LINEAR_W], y = n->out[LINEAR_Y],
            bias = n->in[LINEAR_BIAS], res = n->in[LINEAR_RES];
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
    if (n->a.no_bias)
        k->bias = NULL;
    return 0;
}

static struct lf_k_exchange exchange(const struct lf_bind *b, const struct lf_node *n,
                                     enum lf_exchange_what what)
{
    const int32_t x = n->in[0], y = n->out[0], least = what == LF_EX_GATHER ? x : y;
    return (struct lf_k_exchange){.with = b->exchange,
                                  .in = P(b, x),
                                  .out = P(b, y),
                                  .n = (size_t)(R(b, least) * C(b, least)),
                                  .ranks = b->g->ps->layout.tensor,
                                  .what = (uint8_t)what,
                                  .in_type = DT(b, x)};
}

static bool dense(const struct lf_bind *b, int32_t t)
{
    return LD(b, t) == C(b, t);
}

static int dense_both(const struct lf_bind *b, const struct lf_node *n)
{
    const int32_t x = n->in[0], y = n->out[0];
    return dense(b, x) && dense(b, y) && C(b, x) == C(b, y) ? 0 : LF_EINVAL;
}

LF_EMIT(tp_leave)
{
    *(struct lf_k_exchange *)args = exchange(b, n, n->a.sequence ? LF_EX_SCATTER : LF_EX_SUM);
    return dense_both(b, n);
}

LF_EMIT(tp_enter)
{
    *(struct lf_k_exchange *)args = exchange(b, n, LF_EX_GATHER);
    return DT(b, n->in[0]) == DT(b, n->out[0]) ? dense_both(b, n) : LF_EINVAL;
}

LF_EMIT(tp_join)
{
    struct lf_k_exchange *k = args;
    const int32_t x = n->in[0], y = n->out[0];
    *k = exchange(b, n, LF_EX_JOIN);
    k->rows = R(b, y);
    k->cols = C(b, y);
    k->each = n->a.cols;
    return LD(b, x) == C(b, x) && LD(b, y) == C(b, y) && DT(b, x) == DT(b, y) ? 0 : LF_EINVAL;
}

LF_EMIT(tp_rows)
{
    *(struct lf_k_exchange *)args = exchange(b, n, LF_EX_ROWS);
    return dense_both(b, n);
}

/* Ranks of the context axis that exchange heads, and those that gather keys of the same ones. */
static struct lf_rank_group by_heads(const struct lf_bind *b)
{
    const struct lf_context_parts p = lf_context_parts(&b->g->ps->layout);
    return (struct lf_rank_group){p.row * p.heads, 1, p.heads, p.head};
}
static struct lf_rank_group by_rows(const struct lf_bind *b)
{
    const struct lf_context_parts p = lf_context_parts(&b->g->ps->layout);
    return (struct lf_rank_group){p.head, p.heads, p.rows, p.row};
}

/* `rows` has a rank's rows of all heads, `all` all rows of its heads. */
static int heads(struct lf_k_exchange *k, const struct lf_bind *b, const struct lf_node *n,
                 int32_t rows, int32_t all)
{
    k->among = by_heads(b);
    k->ranks = k->among.n;
    k->rows = R(b, rows);
    k->cols = C(b, rows);
    k->each = C(b, all);
    k->ld = LD(b, rows);
    k->heads = n->a.heads;
    return DT(b, rows) == DT(b, all) && dense(b, all) ? 0 : LF_EINVAL;
}

LF_EMIT(cp_heads)
{
    *(struct lf_k_exchange *)args = exchange(b, n, LF_EX_HEADS);
    return heads(args, b, n, n->in[0], n->out[0]);
}

LF_EMIT(cp_rows)
{
    *(struct lf_k_exchange *)args = exchange(b, n, LF_EX_HEADS_BACK);
    return heads(args, b, n, n->out[0], n->in[0]);
}

/* Where rows are that ranks have, `rows` of all of them. */
static struct lf_row_blocks blocks_of(const struct lf_bind *b, int32_t blocks, int64_t rows)
{
    const int64_t own = rows / by_rows(b).n;
    return (struct lf_row_blocks){P(b, blocks), R(b, blocks), lf_context_block(own), own};
}

LF_EMIT(cp_whole)
{
    struct lf_k_exchange *k = args;
    *k = exchange(b, n, LF_EX_CONTEXT_WHOLE);
    const struct lf_layout *l = &b->g->ps->layout;
    k->among = n->a.heads ? by_heads(b) : (struct lf_rank_group){0, 1, l->context, l->context_rank};
    k->ranks = k->among.n;
    k->apart = n->a.heads > 0;
    k->n = (size_t)(R(b, n->in[0]) * C(b, n->in[0]));
    k->rows = R(b, n->in[0]);
    if (n->in[1])
        k->blocks = blocks_of(b, n->in[1], k->rows * k->ranks);
    return dense_both(b, n);
}

/* `all`: what every rank has whole, and of which a rank takes its own rows, or elements. */
static int own_rows(struct lf_k_exchange *k, const struct lf_bind *b, const struct lf_node *n,
                    int32_t all)
{
    k->n = (size_t)(R(b, all) * C(b, all));
    k->width = R(b, all) == 1 ? 1 : C(b, all);
    k->ps = b->g->ps;
    k->group = n->a.at;
    k->accumulate = b->acc;
    return dense(b, n->in[0]) && dense(b, n->out[0]) && DT(b, n->in[0]) == LF_F32 ? 0 : LF_EINVAL;
}

LF_EMIT(tp_own)
{
    *(struct lf_k_exchange *)args = exchange(b, n, LF_EX_OWN);
    return own_rows(args, b, n, n->in[0]);
}

LF_EMIT(tp_own_bwd)
{
    *(struct lf_k_exchange *)args = exchange(b, n, LF_EX_OWN_BWD);
    return own_rows(args, b, n, n->out[0]);
}

LF_EMIT(norm)
{
    struct lf_k_norm_fwd *k = args;
    int32_t x = n->in[NORM_X], y = n->out[NORM_Y], delta = n->in[NORM_DELTA], w = n->in[NORM_W];
    *k = (struct lf_k_norm_fwd){.rows = R(b, x),
                                .heads = n->a.heads,
                                .c = C(b, x) / n->a.heads,
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
                                .affine = n->a.affine,
                                .each = n->a.each,
                                .x_type = DT(b, x),
                                .y_type = DT(b, y),
                                .w_type = DT(b, w),
                                .total_x = P(b, n->in[NORM_TOTAL_X]),
                                .total = P(b, n->in[NORM_TOTAL]),
                                .all = C(b, w) * b->g->ps->layout.tensor};
    return 0;
}

LF_EMIT(norm_part)
{
    struct lf_k_norm_fwd *k = args;
    const int32_t x = n->in[0], sum = n->in[1];
    *k = (struct lf_k_norm_fwd){.rows = R(b, x),
                                .heads = 1,
                                .c = C(b, x),
                                .x = P(b, x),
                                .ldx = LD(b, x),
                                .layer = n->a.layer || sum,
                                .x_type = DT(b, x),
                                .y_type = DT(b, x),
                                .w_type = LF_F32,
                                .sums = n->a.layer ? P(b, n->out[0]) : NULL,
                                .squares = n->a.layer ? NULL : P(b, n->out[0]),
                                .total_x = P(b, sum),
                                .all = C(b, x) * b->g->ps->layout.tensor};
    return 0;
}

LF_EMIT(unit_rows)
{
    struct lf_k_unit_rows_fwd *k = args;
    int32_t x = n->in[0], y = n->out[0];
    *k = (struct lf_k_unit_rows_fwd){
        .rows = R(b, x), .c = C(b, x), .x = P(b, x), .y = P(b, y), .y_type = DT(b, y)};
    return DT(b, x) == LF_F32 && LD(b, y) == C(b, y) ? 0 : LF_EINVAL;
}

LF_EMIT(rope)
{
    struct lf_k_rope *k = args;
    int32_t x = n->in[ROPE_X], y = n->out[0];
    *k = (struct lf_k_rope){.rows = R(b, x),
                            .heads = n->a.heads,
                            .d = C(b, x) / n->a.heads,
                            .first = n->a.at,
                            .rot = n->a.rot,
                            .max_pos = R(b, n->in[ROPE_COS]),
                            .x = P(b, x),
                            .y = P(b, y),
                            .ldx = LD(b, x),
                            .ldy = LD(b, y),
                            .position = P(b, n->in[ROPE_POS]),
                            .position2 = P(b, n->in[ROPE_POS2]),
                            .axis = P(b, n->in[ROPE_AXIS]),
                            .cos = P(b, n->in[ROPE_COS]),
                            .sin = P(b, n->in[ROPE_SIN]),
                            .interleaved = n->a.interleaved,
                            .inverse = n->a.inverse,
                            .x_type = DT(b, x)};
    return 0;
}

LF_EMIT(attn)
{
    struct lf_k_attn_fwd *k = args;
    int32_t q = n->in[ATTN_Q], kk = n->in[ATTN_K], v = n->in[ATTN_V], o = n->out[ATTN_O];
    *k = (struct lf_k_attn_fwd){.rows = R(b, q),
                                .heads = n->a.heads,
                                .groups = n->a.groups,
                                .d = C(b, q) / n->a.heads,
                                .d_value = C(b, v) / n->a.groups,
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
                                .runs = P(b, n->in[ATTN_RUNS]),
                                .alibi = P(b, n->in[ATTN_ALIBI]),
                                .sinks = lf_sinks_of(b, n, ATTN_SINKS),
                                .scale = n->a.scale,
                                .softcap = n->a.softcap,
                                .drop = lf_drop_of(b, n, ATTN_SAMPLE, ATTN_POS),
                                .window = n->a.window,
                                .causal = n->a.causal,
                                .x_type = DT(b, q),
                                .mode = (uint8_t)b->numeric,
                                .bias = lf_bias_of(b, n->in[ATTN_BIAS], n->in[ATTN_PLACE])};
    if (n->in[ATTN_APART]) {
        k->own = (struct lf_k_attn_own){.n = k->rows, .cu = P(b, n->in[ATTN_APART])};
        k->rows = R(b, kk);
    }
    return 0;
}

/* What both directions of attention over gathered keys have. Returns which rows of the keys are the
 * queries'. */
static struct lf_k_attn_own spread(struct lf_k_attn_spread *k, const struct lf_bind *b,
                                   int32_t blocks, int64_t rows)
{
    const struct lf_rank_group g = by_rows(b);
    k->with = b->exchange;
    k->group = g;
    k->blocks = blocks_of(b, blocks, rows * g.n);
    const int32_t *first = k->blocks.first;
    return (struct lf_k_attn_own){.first = first ? first + k->blocks.n / g.n * g.place : NULL,
                                  .n = rows,
                                  .block = k->blocks.block};
}

/* Where rows are in order and see those of a window before them alone, only these come, and a tile
 * more, so that its first key is that of a tile of its document. */
static void reach_of(struct lf_k_attn_spread *k, const struct lf_bind *b, const struct lf_node *n,
                     bool others, struct lf_k_attn_own *own)
{
    const int64_t w = n->a.window < 0 ? -(int64_t)n->a.window : n->a.window,
                  before = own->n * k->group.place, most = own->n * (k->group.n - 1),
                  reach = w + LF_ATTN_TILE - 2;
    if (!b->g->ps->layout.context_in_order || w == 0 || !n->a.causal || others)
        return;
    k->reach = reach < most ? reach : most;
    own->key0 = reach < before ? before - reach : 0;
    own->keys = before - own->key0 + own->n;
}

LF_EMIT(cp_attn)
{
    struct lf_k_attn_spread *k = args;
    struct lf_k_attn_fwd f;
    const int rc = lf_emit_attn(b, n, &f);
    *k = (struct lf_k_attn_spread){.backward = false};
    f.own = spread(k, b, n->in[ATTN_BLOCKS], f.rows);
    reach_of(k, b, n, n->in[ATTN_RUNS] || n->in[ATTN_PREFIX], &f.own);
    f.rows *= k->group.n;
    k->fwd = f;
    k->each = lf_spread_heads(k, b->g->ps->layout.context_groups);
    return rc;
}

LF_EMIT(cp_attn_bwd)
{
    struct lf_k_attn_spread *k = args;
    struct lf_k_attn_bwd f;
    const int rc = lf_emit_attn_bwd(b, n, &f);
    *k = (struct lf_k_attn_spread){.backward = true};
    f.own = spread(k, b, n->in[ATTNB_BLOCKS], f.rows);
    reach_of(k, b, n, n->in[ATTNB_RUNS] || n->in[ATTNB_PREFIX], &f.own);
    f.rows *= k->group.n;
    k->bwd = f;
    k->each = lf_spread_heads(k, b->g->ps->layout.context_groups);
    return rc;
}

LF_EMIT(kv_write)
{
    struct lf_k_kv_write *k = args;
    int32_t kk = n->in[KVW_K], v = n->in[KVW_V];
    *k = (struct lf_k_kv_write){.rows = R(b, kk),
                                .groups = n->a.groups,
                                .d = C(b, kk) / n->a.groups,
                                .d_value = C(b, v) / n->a.groups,
                                .page_tokens = n->a.page_tokens,
                                .max_pages = C(b, n->in[KVW_TABLE]),
                                .k = P(b, kk),
                                .v = P(b, v),
                                .ldk = LD(b, kk),
                                .ldv = LD(b, v),
                                .ldkp = LD(b, n->in[KVW_KP]),
                                .ldvp = LD(b, n->in[KVW_VP]),
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
                                  .d_value = C(b, n->in[PAGED_VP]) / n->a.groups,
                                  .page_tokens = n->a.page_tokens,
                                  .max_pages = C(b, n->in[PAGED_TABLE]),
                                  .q = P(b, q),
                                  .k_pages = P(b, n->in[PAGED_KP]),
                                  .v_pages = P(b, n->in[PAGED_VP]),
                                  .o = P(b, o),
                                  .ldq = LD(b, q),
                                  .ldo = LD(b, o),
                                  .ldkp = LD(b, n->in[PAGED_KP]),
                                  .ldvp = LD(b, n->in[PAGED_VP]),
                                  .seq = P(b, n->in[PAGED_SEQ]),
                                  .pos = P(b, n->in[PAGED_POS]),
                                  .table = P(b, n->in[PAGED_TABLE]),
                                  .prefix = P(b, n->in[PAGED_PREFIX]),
                                  .runs = P(b, n->in[PAGED_RUNS]),
                                  .alibi = P(b, n->in[PAGED_ALIBI]),
                                  .sinks = P(b, n->in[PAGED_SINKS]),
                                  .scale = n->a.scale,
                                  .softcap = n->a.softcap,
                                  .window = n->a.window,
                                  .x_type = DT(b, q),
                                  .mode = (uint8_t)b->numeric,
                                  .bias = lf_bias_of(b, n->in[PAGED_BIAS], 0)};
    return 0;
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
    return LD(b, y) == C(b, y) && LD(b, n->in[0]) == C(b, y) &&
                   (!n->in[1] || LD(b, n->in[1]) == C(b, y))
               ? 0
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
                               .c0 = n->a.col0,
                               .c_all = n->a.cols,
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
    const bool computed =
        T(b, w)->role != LF_ROLE_PARAM; /* its gradient is no sum over micro-batches yet */
    return (struct lf_k_linear_xent){.rows = R(b, x),
                                     .k = C(b, x),
                                     .v = R(b, w),
                                     .v_real = n->a.v_real,
                                     .v0 = n->a.v0,
                                     .v_all = n->a.v_all,
                                     .with = n->a.v_all ? b->with : NULL,
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
    k->head = (uint8_t)n->a.head;
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
