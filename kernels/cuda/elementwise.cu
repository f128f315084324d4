/* SPDX-License-Identifier: Apache-2.0
 *
 * Element-wise kernels: fill, axpby, activations, gated units, row gather, dropout. One pass over
 * memory, eight elements of a row to a thread at a time.
 */
#include "kernels/cuda/act.h"
#include "kernels/cuda/each.h"
#include "kernels/cuda/elementwise.h"

LF_KERNEL(fill, struct lf_k_fill, 256)
{
    float v[8];
    const bool vec = lf_vec8(a->y, 0, a->y_type);
    LF_UNROLL for (int k = 0; k < 8; k++) v[k] = a->value;
    for (int64_t i = 8 * lf_index(); i < a->n; i += 8 * lf_threads())
        lf_store_n(a->y, i, a->y_type, v, lf_eight(a->n, i), vec);
}

LF_KERNEL(axpby, struct lf_k_axpby, 256)
{
    const bool vec =
        lf_vec8(a->a, 0, a->a_type) && lf_vec8(a->b, 0, a->b_type) && lf_vec8(a->y, 0, a->y_type);
    for (int64_t i = 8 * lf_index(); i < a->n; i += 8 * lf_threads()) {
        const int n = lf_eight(a->n, i);
        float x[8], b[8];
        lf_load_n(x, a->a, i, a->a_type, n, vec);
        if (a->b)
            lf_load_n(b, a->b, i, a->b_type, n, vec);
        LF_UNROLL for (int k = 0; k < 8; k++)
        {
            x[k] = x[k] * a->alpha;
            if (a->b)
                x[k] = fmaf(b[k], a->beta, x[k]);
        }
        lf_store_n(a->y, i, a->y_type, x, n, vec);
    }
}

LF_KERNEL(act_fwd, struct lf_k_act_fwd, 256)
{
    const int t = a->x_type;
    const bool vec = lf_vec8(a->x, a->ldx, t) && lf_vec8(a->y, a->ldy, t);
    LF_EACH_EIGHT(r, at, a->rows, a->c)
    {
        const int n = lf_eight(a->c, at);
        float x[8];
        lf_load_n(x, a->x, r * a->ldx + at, t, n, vec);
        lf_act8(x, x, a->act);
        lf_store_n(a->y, r * a->ldy + at, t, x, n, vec);
    }
}

LF_KERNEL(act_bwd, struct lf_k_act_bwd, 256)
{
    const int t = a->x_type;
    const bool vec =
        lf_vec8(a->x, a->ldx, t) && lf_vec8(a->dy, a->lddy, t) && lf_vec8(a->dx, a->lddx, t);
    LF_EACH_EIGHT(r, at, a->rows, a->c)
    {
        const int n = lf_eight(a->c, at);
        float x[8], dy[8], value[8], slope[8];
        lf_load_n(x, a->x, r * a->ldx + at, t, n, vec);
        lf_load_n(dy, a->dy, r * a->lddy + at, t, n, vec);
        lf_act_slope8(value, slope, x, a->act);
        LF_UNROLL for (int k = 0; k < 8; k++) dy[k] *= slope[k];
        lf_store_n(a->dx, r * a->lddx + at, t, dy, n, vec);
    }
}

/* Gate and up as the product takes them. Returns in bit k whether gate k was cut, in bit 8 + k
 * whether up k was. NaN stays. */
LF_DEV uint32_t glu_cut(float g[8], float u[8], float limit, float offset)
{
    uint32_t cut = 0;
    if (limit > 0.0f) {
        LF_UNROLL for (int k = 0; k < 8; k++)
        {
            cut |= (g[k] > limit ? 1u : 0u) << k;
            cut |= (u[k] > limit || u[k] < -limit ? 256u : 0u) << k;
            g[k] = g[k] > limit ? limit : g[k];
            u[k] = u[k] > limit ? limit : u[k] < -limit ? -limit : u[k];
        }
    }
    if (offset != 0.0f) {
        LF_UNROLL for (int k = 0; k < 8; k++) u[k] += offset;
    }
    return cut;
}

LF_KERNEL(glu_fwd, struct lf_k_glu_fwd, 256)
{
    const int t = a->x_type;
    const bool vec =
        lf_vec8(a->gate, a->ldg, t) && lf_vec8(a->up, a->ldu, t) && lf_vec8(a->y, a->ldy, t);
    LF_EACH_EIGHT(r, at, a->rows, a->c)
    {
        const int n = lf_eight(a->c, at);
        float g[8], u[8];
        lf_load_n(g, a->gate, r * a->ldg + at, t, n, vec);
        lf_load_n(u, a->up, r * a->ldu + at, t, n, vec);
        glu_cut(g, u, a->limit, a->up_offset);
        lf_act8(g, g, a->act);
        LF_UNROLL for (int k = 0; k < 8; k++) g[k] *= u[k];
        lf_store_n(a->y, r * a->ldy + at, t, g, n, vec);
    }
}

LF_KERNEL(glu_bwd, struct lf_k_glu_bwd, 256)
{
    const int t = a->x_type;
    const bool vec = lf_vec8(a->gate, a->ldg, t) && lf_vec8(a->up, a->ldu, t) &&
                     lf_vec8(a->dy, a->lddy, t) && lf_vec8(a->dgate, a->lddg, t) &&
                     lf_vec8(a->dup, a->lddu, t);
    LF_EACH_EIGHT(r, at, a->rows, a->c)
    {
        const int n = lf_eight(a->c, at);
        float g[8], u[8], dy[8], value[8], slope[8];
        lf_load_n(g, a->gate, r * a->ldg + at, t, n, vec);
        lf_load_n(u, a->up, r * a->ldu + at, t, n, vec);
        lf_load_n(dy, a->dy, r * a->lddy + at, t, n, vec);
        const uint32_t cut = glu_cut(g, u, a->limit, a->up_offset);
        lf_act_slope8(value, slope, g, a->act);
        LF_UNROLL for (int k = 0; k < 8; k++)
        {
            g[k] = cut >> k & 1u ? 0.0f : dy[k] * u[k] * slope[k];
            u[k] = cut >> k & 256u ? 0.0f : dy[k] * value[k];
        }
        lf_store_n(a->dgate, r * a->lddg + at, t, g, n, vec);
        lf_store_n(a->dup, r * a->lddu + at, t, u, n, vec);
    }
}

/* Copies pieces of 16 bytes where rows allow it, else elements. */
LF_DEV void gather_pieces(const struct lf_cu_gather *a, int piece)
{
    const struct lf_k_gather_rows *k = &a->k;
    const int64_t per = k->c * a->size / piece;
    for (int64_t i = lf_index(); i < k->rows * per; i += lf_threads()) {
        int64_t r, at;
        lf_row_of(i, per, &r, &at);
        const int64_t from = k->index[r];
        const unsigned char *s = (const unsigned char *)k->x + from * k->ldx * a->size + at * piece;
        unsigned char *d = (unsigned char *)k->y + r * k->ldy * a->size + at * piece;
        if (piece == 16) {
            struct lf_u4 v = {{0, 0, 0, 0}};
            if (from >= 0)
                v = *(const struct lf_u4 *)(const void *)s;
            *(struct lf_u4 *)(void *)d = v;
            continue;
        }
        for (int b = 0; b < piece; b++)
            d[b] = from >= 0 ? s[b] : (unsigned char)0;
    }
}

LF_KERNEL(gather_rows, struct lf_cu_gather, 256)
{
    const struct lf_k_gather_rows *k = &a->k;
    const bool whole = (uintptr_t)k->x % 16 == 0 && (uintptr_t)k->y % 16 == 0 &&
                       k->c * a->size % 16 == 0 && k->ldx * a->size % 16 == 0 &&
                       k->ldy * a->size % 16 == 0;
    if (whole)
        gather_pieces(a, 16);
    else
        gather_pieces(a, a->size);
}

LF_KERNEL(dropout, struct lf_k_dropout, 256)
{
    const int t = a->x_type;
    const bool vec =
        lf_vec8(a->x, a->ldx, t) && lf_vec8(a->residual, a->ldres, t) && lf_vec8(a->y, a->ldy, t);
    const float keep = 1.0f / (1.0f - a->p);
    const uint64_t seed = a->rec->seed;
    LF_EACH_EIGHT(r, at, a->rows, a->c)
    {
        const int n = lf_eight(a->c, at);
        float x[8], res[8];
        uint32_t w[8];
        const uint64_t sample = (uint64_t)a->sample[r];
        const uint32_t group =
            (uint32_t)a->position[r] * (uint32_t)(((a->c_all ? a->c_all : a->c) + 3) / 4) +
            (uint32_t)((a->c0 + at) / 4);
        lf_load_n(x, a->x, r * a->ldx + at, t, n, vec);
        if (a->residual)
            lf_load_n(res, a->residual, r * a->ldres + at, t, n, vec);
        lf_philox(w, seed, a->site, sample, group);
        lf_philox(w + 4, seed, a->site, sample, group + 1);
        LF_UNROLL for (int k = 0; k < 8; k++)
        {
            /* a dropped element is 0 even where x is not finite */
            x[k] = lf_u01(w[k]) >= a->p ? x[k] * keep : 0.0f;
            if (a->residual)
                x[k] += res[k];
        }
        lf_store_n(a->y, r * a->ldy + at, t, x, n, vec);
    }
}
