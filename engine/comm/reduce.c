/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums and maxima over ranks, from the left. A tile of the accumulator stays in the first-level
 * cache while the ranks' parts pass by, so each part is read once.
 */
#include <string.h>

#include "engine/base/bf16.h"
#include "engine/comm/msg.h"

enum { TILE = 1024 };

#define REDUCE(NAME, T, COMBINE)                                                                   \
    static void NAME(T *y, const void *const *x, int p, size_t n)                                  \
    {                                                                                              \
        T acc[TILE];                                                                               \
        for (size_t at = 0; at < n; at += TILE) {                                                  \
            size_t k = n - at < TILE ? n - at : TILE;                                              \
            memcpy(acc, (const T *)x[0] + at, k * sizeof(T));                                      \
            for (int r = 1; r < p; r++) {                                                          \
                const T *b = (const T *)x[r] + at;                                                 \
                for (size_t i = 0; i < k; i++)                                                     \
                    acc[i] = COMBINE(acc[i], b[i]);                                                \
            }                                                                                      \
            memcpy(y + at, acc, k * sizeof(T));                                                    \
        }                                                                                          \
    }

#define ADD(a, b)           ((a) + (b))
#define LARGER(a, b)        ((a) > (b) ? (a) : (b))
#define LARGER_OR_NAN(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))

REDUCE(sum_f32, float, ADD)
REDUCE(sum_f64, double, ADD)
REDUCE(sum_i64, uint64_t, ADD) /* wraps */
REDUCE(max_f32, float, LARGER_OR_NAN)
REDUCE(max_f64, double, LARGER_OR_NAN)
REDUCE(max_i64, int64_t, LARGER)

static void bf16(uint16_t *y, const void *const *x, int p, size_t n, enum lf_comm_op op)
{
    float acc[TILE];
    for (size_t at = 0; at < n; at += TILE) {
        size_t k = n - at < TILE ? n - at : TILE;
        for (size_t i = 0; i < k; i++)
            acc[i] = lf_f32_of_bf16(((const uint16_t *)x[0])[at + i]);
        for (int r = 1; r < p; r++) {
            const uint16_t *b = (const uint16_t *)x[r] + at;
            for (size_t i = 0; i < k; i++) {
                float v = lf_f32_of_bf16(b[i]);
                acc[i] = op == LF_COMM_SUM ? acc[i] + v : LARGER_OR_NAN(acc[i], v);
            }
        }
        for (size_t i = 0; i < k; i++)
            y[at + i] = lf_bf16_of(acc[i]);
    }
}

void lf_reduce(void *y, const void *const *x, int p, size_t n, enum lf_comm_type t,
               enum lf_comm_op op)
{
    const int sum = op == LF_COMM_SUM;
    switch (t) {
    case LF_COMM_F32:
        (sum ? sum_f32 : max_f32)(y, x, p, n);
        break;
    case LF_COMM_F64:
        (sum ? sum_f64 : max_f64)(y, x, p, n);
        break;
    case LF_COMM_BF16:
        bf16(y, x, p, n, op);
        break;
    case LF_COMM_I64:
        if (sum)
            sum_i64(y, x, p, n);
        else
            max_i64(y, x, p, n);
        break;
    }
}
