/* SPDX-License-Identifier: Apache-2.0
 *
 * Token and position embeddings. Backward: rows are sorted by the table row they go to; whoever
 * stands first of a table row adds up all of its rows, in ascending order, starting from what the
 * table holds.
 */
#include "kernels/cuda/each.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/sort.h"
#include "kernels/cuda/sort_key.h"

LF_KERNEL_PER_SM(embed_fwd, struct lf_k_embed_fwd, 256, 4)
{
    const bool vec = lf_vec8(a->wte, a->c, a->w_type) && lf_vec8(a->wpe, a->c, a->w_type) &&
                     lf_vec8(a->y, a->c, a->y_type);
    LF_EACH_EIGHT(r, at, a->rows, a->c)
    {
        const int64_t tok = a->wte ? a->token[r] : 0,
                      pos = a->wpe ? (int64_t)a->position[r] + a->pos_offset : 0;
        const bool ok = (!a->wte || (tok >= -1 && tok < (a->v_all ? a->v_all : a->v))) &&
                        (!a->wpe || (pos >= 0 && pos < a->max_pos));
        const int64_t row = (a->known && tok >= a->known ? 0 : tok) - a->v0;
        const int n = lf_eight(a->c, at);
        float y[8], p[8];
        LF_UNROLL for (int j = 0; j < 8; j++)
        {
            y[j] = ok ? 0.0f : NAN;
            p[j] = 0.0f;
        }
        if (ok && a->wte && row >= 0 && row < a->v)
            lf_load_n(y, a->wte, row * a->c + at, a->w_type, n, vec);
        if (ok && a->wpe)
            lf_load_n(p, a->wpe, pos * a->c + at, a->w_type, n, vec);
        LF_UNROLL for (int j = 0; j < 8; j++) y[j] = fmaf(y[j], a->scale, p[j]);
        lf_store_n(a->y, r * a->c + at, a->y_type, y, n, vec);
    }
}

/* Table row of the row in place i, -1: none. */
LF_DEV int64_t embed_target(const struct lf_cu_embed_add *a, int64_t i)
{
    const int64_t k =
        i >= 0 && i < a->n ? lf_sort_key(a->index[a->order[i]], a->known) + a->offset : -1;
    return k < a->limit ? k : -1;
}

enum { AHEAD = 4 /* rows under way */ };

LF_KERNEL_PER_SM(embed_add, struct lf_cu_embed_add, 256, 4)
{
    const int64_t first = blockIdx.x, to = embed_target(a, first),
                  at = 8 * ((int64_t)blockIdx.y * blockDim.x + threadIdx.x);
    if (to < 0 || embed_target(a, first - 1) == to || at >= a->c)
        return;
    const bool vec = lf_vec8(a->dy, a->c, a->dy_type) && lf_vec8(a->table, a->c, LF_F32);
    const int n = lf_eight(a->c, at);
    float sum[8], g[AHEAD][8];
    lf_load_n(sum, a->table, to * a->c + at, LF_F32, n, vec);
    for (int64_t i = first; embed_target(a, i) == to; i += AHEAD) {
        bool mine[AHEAD];
        LF_UNROLL for (int u = 0; u < AHEAD; u++)
        {
            mine[u] = embed_target(a, i + u) == to; /* sorted: none after the first that is not */
            if (mine[u])
                lf_load_n(g[u], a->dy, a->order[i + u] * a->c + at, a->dy_type, n, vec);
        }
        LF_UNROLL for (int u = 0; u < AHEAD; u++)
        {
            LF_UNROLL for (int j = 0; j < 8; j++)
            {
                if (mine[u])
                    sum[j] = fmaf(g[u][j], a->scale, sum[j]);
            }
        }
    }
    lf_store_n(a->table, to * a->c + at, LF_F32, sum, n, vec);
}
