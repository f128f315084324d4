/* SPDX-License-Identifier: Apache-2.0
 *
 * The argument structs of mixtures of experts; a part of kernels.h, which includes it. */
#ifndef LF_KERNELS_EXPERTS_H
#define LF_KERNELS_EXPERTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* R rows, E experts, k experts for each row: M = R k pairs (row, slot). All routing is f32. */
#define LF_MOE_MAX_EXPERTS 1024

/* score = softmax(logits) or, with sigmoid, sigmoid(logits); f32 [R, E] choice = score + bias; bias
 * [E], NULL: 0
 *   ids [R, k]      the k largest choices, descending, ties to the lower id
 *   weights [R, k]  scale * score[id]; with renorm divided by the sum of the k scores
 *   entropy [R]     of the scores divided by their sum, in nats
 * The bias changes the choice, never the weights. The ids of a row differ whatever the row holds
 * (NaN comes first). scores and entropy may be NULL.
 *
 * groups > 1: the experts lie in `groups` equal groups, in order. Only experts of the top_groups
 * best groups can be chosen. The worth of a group is its largest choice (softmax: DeepSeek-V2) or
 * the sum of its two largest choices (sigmoid: DeepSeek-V3). */
struct lf_k_moe_route {
    int64_t rows, experts, ldlogits;
    const float *logits, *bias;
    int32_t *ids;
    float *weights, *scores, *entropy;
    int32_t k, groups, top_groups;
    float scale;
    bool sigmoid, renorm;
};
/* dlogits [R, E] = d/dlogits ( sum dweights . weights + scale_aux * loss )
 *
 * loss is the load-balancing loss of the micro-batch (Switch Transformer, Fedus et al. 2021, eq.
 * 4), over the n rows (not padding) of all `layers` MoE layers together, as in transformers'
 * load_balancing_loss_func:
 *     loss = E * sum_e f_e P_e
 *     f_e  = pairs sent to e / n; a count, so it has no gradient
 *     P_e  = sum over rows of the score of e / n, each row's scores divided by their sum
 *     scale_aux = aux * inv_batches * loss_scale
 *
 * load [2, E] has the counts and the sums of scores over the layers, from the last moe_stats. With
 * load NULL the loss is left out. cu_seqlens is that of attention: rows at or after
 * cu_seqlens[n_docs] are padding. */
struct lf_k_moe_route_bwd {
    int64_t rows, experts, n_docs, lddlogits;
    const int32_t *ids, *cu_seqlens;
    const float *weights, *scores, *dweights, *load;
    float *dlogits;
    int32_t k, layers;
    float scale, aux;
    bool sigmoid, renorm;
    const struct lf_step_record *rec;
};
/* load [2, E] = prev (NULL: 0) + (pairs sent to each expert, sum over rows of each expert's score),
 * each row's scores divided by their sum, padding left out. counts [E] (+)= the pairs of this layer
 * (NULL: not wanted). rec gets: the mean entropy, largest load / mean load, and 1 in router_seen.
 * With layers > 0, in the last layer, rec also gets the load-balancing loss. With capacity > 0 it
 * gets the share of pairs that moe_keep drops: padding is behind all rows, so those are what an
 * expert has beyond its capacity. */
struct lf_k_moe_stats {
    int64_t rows, experts, n_docs;
    const int32_t *ids, *cu_seqlens;
    const float *scores, *entropy, *prev;
    float *load, *counts;
    int64_t capacity; /* 0: nothing is dropped */
    int32_t k, layers;
    bool accumulate;
    struct lf_step_record *rec;
};
/* Capacity (Lepikhin et al. 2020, GShard, arXiv 2006.16668; Fedus et al. 2021, Switch Transformer):
 * an expert takes the first `capacity` of the pairs that chose it, in the order of the rows of the
 * micro-batch, and drops the others.
 *   kept [R, k]  the expert of a pair that is taken, -1 of one that is dropped
 * all [all_rows, k] has the choices of the whole micro-batch, in the order of its rows. Row i of
 * this call is row j = first + i of it. With blocks (names b) each `own` rows of the order of ranks
 * have ceil(own / block) of them, the last of which may be shorter: it is row b[j / own *
 * ceil(own / block) + j % own / block] + j % own % block. These ascend with i. So ranks that divide
 * the rows drop what one rank drops. kept may not be all. */
struct lf_k_moe_keep {
    int64_t rows, all_rows, experts, first, block, own, capacity;
    const int32_t *all, *blocks;
    int32_t *kept;
    int32_t k;
};
/* Expert order: pairs sorted by (expert, row, slot). A pair whose id is negative is none.
 *   row_of [M]       the row of the pair at each place; -1 behind the last pair
 *   place_of [R, k]  the place of each pair, -1 where it is none
 *   offsets [E + 1]  expert e has the places offsets[e] ... offsets[e + 1] - 1 */
struct lf_k_moe_sort {
    int64_t rows, experts;
    const int32_t *ids;
    int32_t *row_of, *place_of, *offsets;
    int32_t k;
};
/* y[r] = residual[r] (NULL: 0) + sum_j weights[r][j] * x[place_of[r][j]], j ascending, in f32.
 * weights NULL stands for 1. x is [M, C]. A pair without a place adds nothing. y may be
 * residual. */
struct lf_k_moe_combine {
    int64_t rows, c, ldx, ldres, ldy;
    const void *x, *residual;
    const int32_t *place_of;
    const float *weights;
    void *y;
    int32_t k;
    uint8_t x_type;
};
/* dx[place_of[r][j]] = weights[r][j] * dy[r];  dweights[r][j] = dy[r] . x[place_of[r][j]], 0 of a
 * pair without a place */
struct lf_k_moe_combine_bwd {
    int64_t rows, c, ldx, lddy, lddx;
    const void *x, *dy;
    const int32_t *place_of;
    const float *weights;
    void *dx;
    float *dweights;
    int32_t k;
    uint8_t x_type;
};
/* y[r][j] = gain[ids[r][j]] x[r][j]: weights times a trained number of each expert (Gemma 4). The
 * gradient by x is the same call on dy. x and y are [R, k]; y may be x. */
struct lf_k_moe_gain {
    int64_t rows, experts;
    const int32_t *ids;
    const float *x, *gain; /* gain [E] */
    float *y;
    int32_t k;
};
/* dgain[e] (+)= sum over the pairs with ids[r][j] = e of dy[r][j] x[r][j] */
struct lf_k_moe_gain_dw {
    int64_t rows, experts;
    const int32_t *ids;
    const float *x, *dy;
    float *dgain; /* [E] */
    int32_t k;
    bool accumulate;
};
/* y[r] = sigmoid(gate[r]) * x[r]; gate f32 [R] */
struct lf_k_row_gate_fwd {
    int64_t rows, c, ldx, ldy;
    const void *x;
    const float *gate;
    void *y;
    uint8_t x_type;
};
/* dx[r] = s dy[r];  dgate[r] = s (1 - s) dy[r] . x[r]. dx may be dy. */
struct lf_k_row_gate_bwd {
    int64_t rows, c, ldx, lddy, lddx;
    const void *x, *dy;
    const float *gate;
    void *dx;
    float *dgate;
    uint8_t x_type;
};
/* Products of consecutive rows with a matrix of their group. Group g has the rows offsets[g] ...
 * offsets[g + 1] - 1. offsets [groups + 1] ascends from 0 to m at most; rows behind the last group
 * are neither read nor written.
 *   by rows (dw false): C[r, N] = A[r, K] op(B_g)[K, N] + bias_g[N] + residual[r, N]
 *     The B_g are dense, [N, K] (tb) or [K, N], one after another; ldb is not read.
 *     bias, f32 [groups, N], NULL: 0
 *   dw: C_g[N, K] (+)= sum over rows r of g of A[r, N]^T B[r, K]
 *     The C_g are dense, one after another, 0 for an empty group; ldc is not read.
 * An element has the bits of gemm over its group alone. They depend on K (with dw on the group's
 * rows), never on another group. */
struct lf_k_grouped_gemm {
    int64_t m, n, k, groups;
    const int32_t *offsets;
    const void *a, *b, *residual;
    const float *bias;
    void *c;
    int64_t lda, ldb, ldc, ldres;
    bool dw, tb, accumulate; /* accumulate: of dw */
    uint8_t ab_type, c_type; /* c_type f32 in dw */
    void *work;
    size_t work_bytes;
};
/* db_g[N] (+)= sum over the rows of g of dy[r, N]; f32 [groups, N], 0 for an empty group. Groups
 * are those of grouped_gemm. The sums of a group have the bits of colsum over its rows alone. */
struct lf_k_grouped_colsum {
    int64_t m, n, groups, ld;
    const int32_t *offsets;
    const void *dy;
    float *db;
    bool accumulate;
    uint8_t dy_type;
};

/* Balancing by bias (Wang et al. 2024; DeepSeek-V3, section 2.1.2). grad holds the number of pairs
 * that each of n experts got in the whole step. master[e] (f32) += lr_scale * sign(mean - grad[e]).
 * With rec->skip != 0 nothing is written. */
struct lf_k_moe_balance {
    int64_t n_tensors;
    const struct lf_opt_tensor *t;
    const struct lf_step_record *rec;
};

#endif
