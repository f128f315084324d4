/* SPDX-License-Identifier: Apache-2.0
 *
 * What cuDNN reads beside the tensors of attention, and the padding rows that it leaves alone. A
 * warp for each row.
 */
#include "kernels/cuda/attn_ragged.h"
#include "kernels/cuda/dev.h"

LF_DEV void ragged_padding(const struct lf_cu_attn_ragged *a, int64_t row, int lane)
{
    for (int k = 0; k < LF_RAGGED_RESULTS; k++)
        for (int64_t c = lane; a->result[k] && c < a->cols[k]; c += 32)
            lf_store(a->result[k], row * a->result_ld[k] + c, a->x_type, 0.0f);
    for (int64_t h = lane; a->lse && h < a->heads; h += 32)
        a->lse[h * a->rows + row] = -INFINITY;
}

LF_KERNEL(attn_ragged, struct lf_cu_attn_ragged, LF_RAGGED_THREADS)
{
    const int64_t row = lf_index() / 32;
    for (int64_t i = lf_index(); i <= a->docs; i += lf_threads()) {
        const int64_t at = a->cu[i];
        for (int64_t k = 0; k < a->n; k++)
            a->offset[k * a->pitch + i] = at * a->ld[k];
        if (i < a->docs) { /* never more than a plan was made for: it would write elsewhere */
            const int64_t len = a->cu[i + 1] - at;
            a->len[i] = (int32_t)(len < a->longest ? len : a->longest);
        }
    }
    if (row < a->rows && row >= a->cu[a->docs])
        ragged_padding(a, row, (int)threadIdx.x % 32);
}
