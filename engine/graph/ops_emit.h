/* SPDX-License-Identifier: Apache-2.0
 *
 * Short names for emitters: T is the tensor, P its address, LD its row distance, DT its type, R its
 * rows and C its columns. */
#ifndef LF_GRAPH_OPS_EMIT_H
#define LF_GRAPH_OPS_EMIT_H

#include "engine/graph/priv.h"

static inline const struct lf_tensor *T(const struct lf_bind *b, int32_t t)
{
    return &b->g->t[t];
}
static inline void *P(const struct lf_bind *b, int32_t t)
{
    return b->ptr(b, t);
}
static inline int64_t LD(const struct lf_bind *b, int32_t t)
{
    return t ? lf_ld_of(b->g, t) : 0;
}
static inline uint8_t DT(const struct lf_bind *b, int32_t t)
{
    return b->g->t[t].dtype;
}
static inline int64_t R(const struct lf_bind *b, int32_t t)
{
    const struct lf_tensor *x = &b->g->t[t];
    const uint8_t role = b->g->t[x->root].role;
    return b->rows_live && x->rows == b->rows_all && (role == LF_ROLE_ACT || role == LF_ROLE_INPUT)
               ? b->rows_live
               : x->rows;
}
static inline int64_t C(const struct lf_bind *b, int32_t t)
{
    return b->g->t[t].cols;
}

/* Does a node add to this gradient of a weight? That of a computed weight is of one micro-batch. */
static inline bool lf_adds(const struct lf_bind *b, int32_t t)
{
    return b->acc && b->g->t[t].role == LF_ROLE_GRAD;
}

/* Sinks of attention, of the heads that it computes. */
static inline const float *lf_sinks_of(const struct lf_bind *b, const struct lf_node *n, int slot)
{
    const float *all = P(b, n->in[slot]);
    return all ? all + n->a.sink0 : NULL;
}

/* What attention adds by distance: values [2 reach - 1, H] without gaps. */
static inline struct lf_k_attn_bias lf_bias_of(const struct lf_bind *b, int32_t t, int32_t place)
{
    return (struct lf_k_attn_bias){
        .table = P(b, t), .reach = t ? (T(b, t)->rows + 1) / 2 : 0, .place = P(b, place)};
}

/* Dropout of attention. sample and position are the indices of the node's inputs that hold them. */
static inline struct lf_k_attn_drop lf_drop_of(const struct lf_bind *b, const struct lf_node *n,
                                               int sample, int position)
{
    return (struct lf_k_attn_drop){.p = n->a.p,
                                   .site = n->a.site,
                                   .head0 = n->a.head0,
                                   .sample = P(b, n->in[sample]),
                                   .position = P(b, n->in[position]),
                                   .rec = b->rec};
}

#endif
