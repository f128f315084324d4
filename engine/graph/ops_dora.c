/* SPDX-License-Identifier: Apache-2.0
 *
 * Emitters and cost of weight-decomposed adapters. A member of a group finds its rows of the
 * weight, and its elements of the bias, at pos_offset.
 */
#include "engine/graph/ops_emit.h"

static const void *row_of(const struct lf_bind *b, int32_t t, int64_t row)
{
    return t ? (const char *)P(b, t) +
                   (size_t)(row * C(b, t)) * lf_dtype_size((enum lf_dtype)DT(b, t))
             : NULL;
}

/* A partial sum of one rank has the bias. */
static const float *bias_of(const struct lf_bind *b, const struct lf_node *n, int32_t t)
{
    return t && !n->a.no_bias ? (const float *)P(b, t) + n->a.pos_offset : NULL;
}

LF_EMIT(root)
{
    struct lf_k_root *k = args;
    const int32_t x = n->in[0];
    *k = (struct lf_k_root){.n = R(b, x) * C(b, x), .x = P(b, x), .y = P(b, n->out[0])};
    return 0;
}

LF_EMIT(dora_norm)
{
    struct lf_k_dora_norm *k = args;
    const int32_t w = n->in[DNORM_W], a = n->in[DNORM_A], bb = n->in[DNORM_B];
    *k = (struct lf_k_dora_norm){.rows = R(b, bb),
                                 .c = C(b, w),
                                 .rank = C(b, bb),
                                 .w = row_of(b, w, n->a.pos_offset),
                                 .a = row_of(b, a, n->a.at),
                                 .b = P(b, bb),
                                 .norm = P(b, n->out[0]),
                                 .scale = n->a.scale,
                                 .squares = n->a.squares,
                                 .w_type = DT(b, w)};
    return DT(b, a) == DT(b, w) && DT(b, bb) == DT(b, w) ? 0 : LF_EINVAL;
}

LF_EMIT(dora)
{
    struct lf_k_dora_fwd *k = args;
    const int32_t base = n->in[DORA_BASE], lora = n->in[DORA_LORA], y = n->out[0];
    *k = (struct lf_k_dora_fwd){.rows = R(b, base),
                                .c = C(b, base),
                                .ldbase = LD(b, base),
                                .ldlora = lora ? LD(b, lora) : C(b, base),
                                .ldrest = LD(b, n->in[DORA_REST]),
                                .ldy = LD(b, y),
                                .base = P(b, base),
                                .lora = P(b, lora),
                                .rest = P(b, n->in[DORA_REST]),
                                .bias = bias_of(b, n, n->in[DORA_BIAS]),
                                .m = P(b, n->in[DORA_M]),
                                .norm = P(b, n->in[DORA_NORM]),
                                .y = P(b, y),
                                .x_type = DT(b, base)};
    return DT(b, y) == DT(b, base) && (!lora || DT(b, lora) == DT(b, base)) ? 0 : LF_EINVAL;
}

LF_EMIT(dora_bwd)
{
    struct lf_k_dora_bwd *k = args;
    const int32_t dy = n->in[DORAB_DY], base = n->in[DORAB_BASE], lora = n->in[DORAB_LORA],
                  dx = n->out[DORAB_DX];
    *k = (struct lf_k_dora_bwd){.rows = R(b, dy),
                                .c = C(b, dy),
                                .lddy = LD(b, dy),
                                .ldbase = LD(b, base),
                                .ldlora = LD(b, lora),
                                .lddx = LD(b, dx),
                                .dy = P(b, dy),
                                .base = P(b, base),
                                .lora = P(b, lora),
                                .bias = bias_of(b, n, n->in[DORAB_BIAS]),
                                .m = P(b, n->in[DORAB_M]),
                                .norm = P(b, n->in[DORAB_NORM]),
                                .dx = P(b, dx),
                                .dm = P(b, n->out[DORAB_DM]),
                                .accumulate = lf_adds(b, n->out[DORAB_DM]),
                                .x_type = DT(b, dy)};
    return 0;
}

/* The product of the adapter's matrices, which the lengths need. */
LF_FLOPS(dora_norm)
{
    (void)full;
    const struct lf_tensor *a = &g->t[n->in[DNORM_A]], *b = &g->t[n->in[DNORM_B]];
    return 2.0 * (double)b->rows * (double)b->cols * (double)a->cols;
}
