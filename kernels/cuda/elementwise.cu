/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels without rows: fill, axpby.
 */
#include "kernels/cuda/dev.h"

LF_KERNEL(fill, struct lf_k_fill, 256)
{
    for (int64_t i = lf_index(); i < a->n; i += lf_threads())
        lf_store(a->y, i, a->y_type, a->value);
}

LF_KERNEL(axpby, struct lf_k_axpby, 256)
{
    const bool vector = lf_vec8(a->a, 0, a->a_type) && lf_vec8(a->b, 0, a->b_type) && lf_vec8(a->y, 0, a->y_type);
    const int64_t eights = vector ? a->n / 8 : 0;
    for (int64_t i = lf_index(); i < eights; i += lf_threads()) {
        float x[8], b[8];
        lf_load8(x, a->a, 8 * i, a->a_type);
        if (a->b)
            lf_load8(b, a->b, 8 * i, a->b_type);
        LF_UNROLL for (int k = 0; k < 8; k++)
        {
            x[k] = x[k] * a->alpha;
            if (a->b)
                x[k] = x[k] + b[k] * a->beta;
        }
        lf_store8(a->y, 8 * i, a->y_type, x);
    }
    for (int64_t i = 8 * eights + lf_index(); i < a->n; i += lf_threads()) {
        float x = lf_load(a->a, i, a->a_type) * a->alpha;
        if (a->b)
            x = x + lf_load(a->b, i, a->b_type) * a->beta;
        lf_store(a->y, i, a->y_type, x);
    }
}
