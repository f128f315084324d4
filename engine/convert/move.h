/* SPDX-License-Identifier: Apache-2.0
 *
 * Moving elements along a map: a block of one tensor, put together from the tensors it consists of,
 * in another floating type. Memory is a block, whatever the size of the tensors; any number of
 * threads.
 */
#ifndef LF_CONVERT_MOVE_H
#define LF_CONVERT_MOVE_H

#include <stdatomic.h>

#include "engine/convert/map.h"

/* Where segments' tensors come from. read: elements [first, first + n) of tensor src, row-major as
 * it is stored, in dtype(src). Thread-safe. */
struct lf_move_source {
    void *ctx;
    enum lf_st_dtype (*dtype)(void *ctx, int src);
    int (*read)(void *ctx, int src, int64_t first, int64_t n, void *dst, lf_err *err);
};

/* A tensor to be made. As matrices: a vector is a column; experts [E, out, in] are E x out rows. */
struct lf_move {
    const struct lf_move_source *from;
    const struct lf_map_parts *parts;
    /* parts->turned: which side the segments count on. false: they are rows of this tensor and
     * columns of the sources (import of a transposed stack); true: columns of this tensor and rows
     * of the sources (export). */
    bool cut_columns;
    int64_t rows, width;    /* of this tensor */
    int64_t src_width;      /* turned: elements of a row of the sources; else = width */
    enum lf_st_dtype dtype; /* of this tensor: F32, F16 or BF16 */
    atomic_llong nonfinite; /* values that were NaN or infinite, or became so */
};

/* Elements [first, first + n) into dst. */
int lf_move_block(struct lf_move *m, int64_t first, int64_t n, void *dst, lf_err *err);

/* n values from one floating type to another: exact where the type is wider, else to nearest even
 * (F64 by way of F32 is not: it is rounded once). LF_ENOTSUP for a type that is no floating-point
 * number. */
int lf_move_cast(enum lf_st_dtype to, void *dst, enum lf_st_dtype from, const void *src, int64_t n,
                 lf_err *err);

#endif
