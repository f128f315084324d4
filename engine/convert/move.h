/* SPDX-License-Identifier: Apache-2.0
 *
 * Moves elements along a map: it puts a block of one tensor together from the tensors that it
 * consists of, in another floating type. Memory is one block, whatever the size of the tensors. Any
 * number of threads may do so.
 */
#ifndef LF_CONVERT_MOVE_H
#define LF_CONVERT_MOVE_H

#include <stdatomic.h>

#include "engine/convert/map.h"

/* The source of the tensors of segments. read gives elements [first, first + n) of tensor src,
 * row-major as stored, in dtype(src). Thread-safe. */
struct lf_move_source {
    void *ctx;
    enum lf_st_dtype (*dtype)(void *ctx, int src);
    int (*read)(void *ctx, int src, int64_t first, int64_t n, void *dst, lf_err *err);
};

/* A tensor to make, as the matrix of parts->width columns whose rows the segments count. */
struct lf_move {
    const struct lf_move_source *from;
    const struct lf_map_parts *parts;
    int64_t elems;          /* of this tensor */
    enum lf_st_dtype dtype; /* of this tensor: F32, F16 or BF16 */
    atomic_llong nonfinite; /* values that were or became NaN or infinite */
};

/* Sets parts and elems to those of tensor i of ours, or of outside tensor i. */
void lf_move_to_ours(struct lf_move *m, const lf_map *map, size_t i);
void lf_move_to_item(struct lf_move *m, const lf_map *map, size_t i);

/* Writes elements [first, first + n) to dst. */
int lf_move_block(struct lf_move *m, int64_t first, int64_t n, void *dst, lf_err *err);

/* Converts n values from one floating type to another: exactly where the type is wider, else
 * rounded once to nearest even. LF_ENOTSUP: a type is no floating-point number. */
int lf_move_cast(enum lf_st_dtype to, void *dst, enum lf_st_dtype from, const void *src, int64_t n,
                 lf_err *err);

#endif
