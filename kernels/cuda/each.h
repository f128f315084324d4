/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks the elements of a matrix eight at a time, for kernels whose elements do not depend on each
 * other.
 */
#ifndef LF_KERNELS_CUDA_EACH_H
#define LF_KERNELS_CUDA_EACH_H

#include "kernels/cuda/dev.h"

/* For every eight columns of a matrix of `rows` x `c_len`, distributed over the grid: row r, first
 * column `at`. */
#define LF_EACH_EIGHT(r, at, rows, c_len)                                                          \
    const int64_t lf_per = ((c_len) + 7) / 8;                                                      \
    int64_t r, at;                                                                                 \
    for (int64_t lf_i = lf_index(); lf_i < (rows)*lf_per; lf_i += lf_threads())                    \
        if (lf_row_of(lf_i, lf_per, &r, &at), at *= 8, true)

/* The number of columns from `at` on, at most 8. */
LF_DEV int lf_eight(int64_t c_len, int64_t at)
{
    return (int)(c_len - at < 8 ? c_len - at : 8);
}

#endif
