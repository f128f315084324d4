/* SPDX-License-Identifier: Apache-2.0
 *
 * What both directions of attention know of rows of queries; a part of kernels.h, which includes
 * it. */
#ifndef LF_KERNELS_ATTN_ROWS_H
#define LF_KERNELS_ATTN_ROWS_H

#include <stdint.h>

struct lf_step_record;
/* Dropout of attention probabilities. The decision for query row t, head h and key j of its
 * document is word j % 4 of
 *     Philox(seed, site, a = sample[t] + position[t] * 2^40, b = h * 2^22 + j / 4)
 * The key is kept when the word, as a uniform number, is >= p. So h < 1024 and j < 2^24. With p ==
 * 0 dropout is off and the other members are not read. sample is the global sample id of the row;
 * position is its place in the sample. h counts from head0, the first here of all ranks' heads. */
struct lf_k_attn_drop {
    float p;
    uint32_t site;
    int32_t head0;
    const int64_t *sample;
    const int32_t *position;
    const struct lf_step_record *rec; /* seed */
};
/* Rows of queries that are some of the keys' rows: `n` of them, in blocks of `block` that ascend,
 * of which the last may be shorter. Row i of queries is row first[i / block] + i % block of the
 * keys. first NULL: they are the same.
 *
 * With `keys` only rows key0 ... key0 + keys - 1 of keys and values are there, and of their
 * gradients: k, v, dk and dv begin with row key0. Where that is no document's first row, a query
 * sees no key before the first whole tile (LF_ATTN_TILE, counted from its document's first key)
 * behind key0.
 *
 * With cu (then first is NULL) the queries are rows of an axis of their own, `n` of them (cross
 * attention, Vaswani et al. 2017): those of document i are rows [cu[i], cu[i + 1]), and each sees
 * all keys of document i. cu is i32 [n_docs + 1], ascending from 0. Nothing of the call depends on
 * positions then: it is not causal, and has neither window, prefix, runs, alibi nor bias.
 *
 * All of it is on CPUs alone. */
struct lf_k_attn_own {
    const int32_t *first;
    int64_t n, block;
    int64_t key0, keys; /* keys 0: all rows */
    const int32_t *cu;
};
/* What is added to a score by how far the key is from the query, apart for each head (Raffel et al.
 * 2020, T5): row reach - 1 + clamp(j - i, -(reach - 1), reach - 1) of the table f32
 * [2 reach - 1, H], for key j and query i of a document. It is added behind the softcap. reach 0:
 * there is none. With place, i32 [rows], the places of key and query stand for j and i: what is
 * near in a picture is not near in its rows (Liu et al. 2021, Swin). On CPUs alone. */
struct lf_k_attn_bias {
    const float *table;
    int64_t reach;
    const int32_t *place;
};

#endif
