/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary embedding, heads that share channels, and writing rows into the paged cache. A block takes
 * one row: its position is read once, the row's cosines and sines stay in L1 for all of its heads.
 */
#include "kernels/cuda/dev.h"

/* The row of the tables by which each pair turns; with three positions of a token, pairs differ. */
struct rope_turns {
    const float *cos, *sin; /* the tables, or with one position its row */
    const int32_t *axis, *pos;
    int half;
    float sign;
};

LF_DEV int64_t rope_at(const struct rope_turns *u, int i)
{
    return u->axis ? (int64_t)u->pos[u->axis[i]] * u->half + i : i;
}

/* (a, b) -> (a cos - b sin, a sin + b cos), rounded as on the CPU. */
LF_DEV void rope_turn(float *x, float *y, const struct rope_turns *u, int i)
{
    const int64_t at = rope_at(u, i);
    const float p = *x, r = *y, co = u->cos[at], si = u->sin[at] * u->sign;
    *x = fmaf(p, co, -(r * si));
    *y = fmaf(p, si, r * co);
}

/* Eight pairs (i, i + half) ... or, interleaved, four pairs of neighbours. */
LF_DEV void rope_unit8(const struct lf_k_rope *a, int64_t src, int64_t dst, int i,
                       const struct rope_turns *u)
{
    float p[8], r[8];
    lf_load8(p, a->x, src + i, a->x_type);
    if (a->interleaved) {
        LF_UNROLL for (int k = 0; k < 4; k++)
        {
            rope_turn(&p[2 * k], &p[2 * k + 1], u, i / 2 + k);
        }
        lf_store8(a->y, dst + i, a->x_type, p);
        return;
    }
    lf_load8(r, a->x, src + i + u->half, a->x_type);
    LF_UNROLL for (int k = 0; k < 8; k++)
    {
        rope_turn(&p[k], &r[k], u, i + k);
    }
    lf_store8(a->y, dst + i, a->x_type, p);
    lf_store8(a->y, dst + i + u->half, a->x_type, r);
}

LF_DEV void rope_unit1(const struct lf_k_rope *a, int64_t src, int64_t dst, int i,
                       const struct rope_turns *u)
{
    const int first = a->interleaved ? 2 * i : i, second = a->interleaved ? first + 1 : i + u->half;
    float p = lf_load(a->x, src + first, a->x_type), r = lf_load(a->x, src + second, a->x_type);
    rope_turn(&p, &r, u, i);
    lf_store(a->y, dst + first, a->x_type, p);
    lf_store(a->y, dst + second, a->x_type, r);
}

/* Do all positions of row t that head h turns by lie in the tables? Then *u is how it turns. */
LF_DEV bool rope_known(const struct lf_k_rope *a, int64_t t, int h, struct rope_turns *u)
{
    if (a->axis) {
        bool known = true;
        u->pos = a->position + 3 * t;
        for (int k = 0; k < 3; k++)
            known = known && u->pos[k] >= 0 && u->pos[k] < a->max_pos;
        return known;
    }
    const int64_t pos = a->position2 && h % 2 ? a->position2[t] : a->position[t];
    const bool known = pos >= 0 && pos < a->max_pos;
    u->cos = a->cos + (known ? pos : 0) * u->half;
    u->sin = a->sin + (known ? pos : 0) * u->half;
    return known;
}

/* Channels that do not turn, or NaN where a position lies outside the tables: a wrong cursor must
 * not pass for a rotation. */
LF_DEV void rope_rest(const struct lf_k_rope *a, int64_t src, int64_t dst, int c, int n,
                      bool poison)
{
    if (n == 8 && !poison) {
        float v[8];
        lf_load8(v, a->x, src + c, a->x_type);
        lf_store8(a->y, dst + c, a->x_type, v);
        return;
    }
    for (int k = c; k < c + n; k++)
        lf_store(a->y, dst + k, a->x_type,
                 poison ? lf_u32_f(0x7fffffffu) : lf_load(a->x, src + k, a->x_type));
}

LF_KERNEL(rope, struct lf_k_rope, 128)
{
    const int half = (int)a->rot / 2, d = (int)a->d;
    struct rope_turns turns = {a->cos,      a->sin, a->axis,
                               a->position, half,   a->inverse ? -1.0f : 1.0f};
    const bool vec = lf_vec8(a->x, a->ldx, a->x_type) && lf_vec8(a->y, a->ldy, a->x_type) &&
                     d % 8 == 0 && a->first % 8 == 0 && (a->interleaved ? a->rot : half) % 8 == 0;
    /* units of a head: those that turn, then those that are copied */
    const int span = vec ? 8 : 1, turning = (a->interleaved && vec ? (int)a->rot : half) / span,
              units = turning + (a->x == a->y ? 0 : (d - (int)a->rot) / span);
    for (int64_t t = blockIdx.x; t < a->rows; t += gridDim.x)
        for (int u = (int)threadIdx.x; u < (int)a->heads * units; u += (int)blockDim.x) {
            const int h = u / units, k = u % units;
            const int64_t src = t * a->ldx + h * d + a->first, dst = t * a->ldy + h * d + a->first;
            const bool known = rope_known(a, t, h, &turns);
            const int rest = (k - turning) * span - (int)a->first; /* before or behind what turns */
            if (k >= turning)
                rope_rest(a, src, dst, rest < 0 ? rest : rest + (int)a->rot, span, false);
            else if (!known)
                rope_rest(a, src, dst, k * ((int)a->rot / turning), (int)a->rot / turning, true);
            else if (vec)
                rope_unit8(a, src, dst, k * 8, &turns);
            else
                rope_unit1(a, src, dst, k, &turns);
        }
}

/* bytes of one row, in pieces of 16 where both ends lie so. */
LF_DEV void copy_row(char *dst, const char *src, int64_t bytes)
{
    if (((uintptr_t)dst | (uintptr_t)src | (uintptr_t)bytes) % 16 == 0) {
        for (int64_t i = threadIdx.x; i < bytes / 16; i += blockDim.x)
            ((struct lf_u4 *)dst)[i] = ((const struct lf_u4 *)src)[i];
        return;
    }
    for (int64_t i = threadIdx.x; i < bytes / 2; i += blockDim.x)
        ((uint16_t *)dst)[i] = ((const uint16_t *)src)[i];
}

/* Bytes that heads are copied by: 16 where all that `or_of` joins allows, else one element of 2. */
LF_DEV int heads_span(uintptr_t or_of)
{
    return or_of % 16 == 0 ? 16 : 2;
}
LF_DEV void heads_copy(char *dst, const char *src, int span)
{
    if (span == 16)
        *(struct lf_u4 *)dst = *(const struct lf_u4 *)src;
    else
        *(uint16_t *)dst = *(const uint16_t *)src;
}

LF_KERNEL(heads_join, struct lf_k_heads_join, 128)
{
    const int size = a->x_type == LF_F32 ? 4 : 2, x = (int)a->a * size, z = (int)a->b * size,
              span = heads_span((uintptr_t)a->x | (uintptr_t)a->z | (uintptr_t)a->y |
                                (uintptr_t)(a->ldx * size | a->ldz * size | a->ldy * size | x | z)),
              n = (x + z) / span;
    for (int64_t r = blockIdx.x; r < a->rows; r += gridDim.x) {
        const char *xs = (const char *)a->x + r * a->ldx * size,
                   *zs = (const char *)a->z + r * a->ldz * size;
        char *ys = (char *)a->y + r * a->ldy * size;
        for (int u = (int)threadIdx.x; u < (int)a->heads * n; u += (int)blockDim.x) {
            const int h = u / n, at = u % n * span;
            heads_copy(ys + u * (int64_t)span, at < x ? xs + h * x + at : zs + at - x, span);
        }
    }
}

LF_KERNEL_PER_SM(heads_split, struct lf_k_heads_split, 128, 8)
{
    const int size = a->x_type == LF_F32 ? 4 : 2, x = (int)a->a * size, z = (int)a->b * size,
              span = heads_span((uintptr_t)a->dx | (uintptr_t)a->dy |
                                (uintptr_t)(a->lddx * size | a->lddy * size | x | z)),
              n = x / span;
    for (int64_t r = blockIdx.x; r < a->rows; r += gridDim.x) {
        const char *ys = (const char *)a->dy + r * a->lddy * size;
        char *xs = (char *)a->dx + r * a->lddx * size;
        for (int u = (int)threadIdx.x; u < (int)a->heads * n; u += (int)blockDim.x)
            heads_copy(xs + u * (int64_t)span, ys + u / n * (x + z) + u % n * span, span);
        for (int c = (int)threadIdx.x; c < (int)a->b; c += (int)blockDim.x) {
            const int64_t from = r * a->lddy + a->a + c;
            float sum = lf_load(a->dy, from, a->x_type);
            for (int h = 1; h < (int)a->heads; h++)
                sum += lf_load(a->dy, from + h * (a->a + a->b), a->x_type);
            lf_store(a->dz, r * a->lddz + c, a->x_type, sum);
        }
    }
}

LF_KERNEL(kv_write, struct lf_k_kv_write, 128)
{
    const int64_t size = a->x_type == LF_F32 ? 4 : 2, k_bytes = a->groups * a->d * size,
                  v_bytes = a->groups * a->d_value * size;
    for (int64_t r = blockIdx.x; r < a->rows; r += gridDim.x) {
        const int64_t seq = a->seq[r], pos = a->pos[r];
        if (seq < 0)
            continue;
        const int64_t page = a->table[seq * a->max_pages + pos / a->page_tokens],
                      slot = page * a->page_tokens + pos % a->page_tokens;
        copy_row((char *)a->k_pages + slot * k_bytes, (const char *)a->k + r * a->ldk * size,
                 k_bytes);
        copy_row((char *)a->v_pages + slot * v_bytes, (const char *)a->v + r * a->ldv * size,
                 v_bytes);
    }
}
