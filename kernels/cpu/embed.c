/* SPDX-License-Identifier: Apache-2.0
 *
 * Token and position embeddings, rotary positions, and heads that share channels. The embedding's
 * backward gives each thread a range of columns of both tables; it walks all rows in ascending
 * order, so a target row is summed in one order whatever the threads.
 */
#include "config.h"

#include <math.h>

#include "kernels/cpu/ops.h"

LF_CPU_DECLARE(embed_fwd)
LF_CPU_DECLARE(embed_bwd)
LF_CPU_DECLARE(rope)
LF_CPU_DECLARE(heads_join)
LF_CPU_DECLARE(heads_split)

LF_NO_WORK(embed_fwd)
LF_NO_WORK(embed_bwd)
LF_NO_WORK(rope)
LF_NO_WORK(heads_join)
LF_NO_WORK(heads_split)

int LF_SYM(embed_fwd_check)(const struct lf_k_embed_fwd *a)
{
    bool ok = a->rows >= 0 && a->c > 0 && a->v > 0 && a->max_pos >= 0 && lf_is_float(a->w_type) &&
              lf_is_float(a->y_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

static void embed_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_embed_fwd *a = arg;
    (void)q;
    const lf_v scale = lf_v_set1(a->scale);
    for (int64_t r = lo; r < hi; r++) {
        int64_t tok = a->wte ? a->token[r] : 0,
                pos = a->wpe ? (int64_t)a->position[r] + a->pos_offset : 0;
        bool ok = (!a->wte || (tok >= -1 && tok < (a->v_all ? a->v_all : a->v))) &&
                  (!a->wpe || (pos >= 0 && pos < a->max_pos));
        tok = a->known && tok >= a->known ? 0 : tok;
        const bool mine = a->wte && tok >= a->v0 && tok < a->v0 + a->v;
        tok -= a->v0;
        LF_EACH_VEC(c, n, a->c)
        {
            lf_v v = lf_v_set1(NAN);
            if (ok) {
                v = mine ? lf_get(a->wte, tok * a->c + c, a->w_type, n) * scale : lf_v_zero();
                if (a->wpe)
                    v += lf_get(a->wpe, pos * a->c + c, a->w_type, n);
            }
            lf_put(a->y, r * a->c + c, a->y_type, n, v);
        }
    }
}

int LF_SYM(embed_fwd)(lf_queue *q, const struct lf_k_embed_fwd *a)
{
    lf_deal(q, lf_team(q, a->rows * a->c * 8), a->rows, lf_few_rows(a->c), embed_rows, a);
    return LF_K_OK;
}

int LF_SYM(embed_bwd_check)(const struct lf_k_embed_bwd *a)
{
    bool ok = a->rows >= 0 && a->c > 0 && a->v > 0 && a->max_pos >= 0 && lf_is_float(a->dy_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

enum { ZERO_PIECE = 1 << 18 };

static void zero_piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    float *p = *(float *const *)arg;
    (void)q;
    memset(p + lo, 0, (size_t)(hi - lo) * sizeof(float));
}

struct table {
    float *rows;
    int64_t n;
    const int32_t *index;
    int64_t offset, known;
    float scale;
};

/* t.rows[index[r] + offset] += scale * dy[r] for the columns [lo, hi); an index from known on is
 * 0. */
static void scatter_add(const lf_queue *q, const struct table *t, const struct lf_k_embed_bwd *a,
                        int64_t lo, int64_t hi)
{
    const lf_v s = lf_v_set1(t->scale);
    for (int64_t r = 0; r < a->rows; r++) {
        int64_t i = t->known && t->index[r] >= t->known ? 0 : (int64_t)t->index[r];
        i += t->offset;
        lf_border(q);
        if (i < 0 || i >= t->n)
            continue;
        float *d = t->rows + i * a->c;
        for (int64_t c = lo; c < hi; c += LF_VL) {
            int64_t n = hi - c < LF_VL ? hi - c : LF_VL;
            lf_v g = lf_get(a->dy, r * a->c + c, a->dy_type, n);
            lf_put(d, c, LF_F32, n, lf_v_fma(g, s, lf_get(d, c, LF_F32, n)));
        }
    }
}

static void scatter_columns(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_embed_bwd *a = arg;
    if (a->dwte)
        scatter_add(q, &(struct table){a->dwte, a->v, a->token, -a->v0, a->known, a->scale}, a, lo,
                    hi);
    if (a->dwpe)
        scatter_add(q, &(struct table){a->dwpe, a->max_pos, a->position, a->pos_offset, 0, 1.0f}, a,
                    lo, hi);
}

int LF_SYM(embed_bwd)(lf_queue *q, const struct lf_k_embed_bwd *a)
{
    int64_t bytes = a->rows * a->c * 12 + (a->accumulate ? 0 : (a->dwte ? a->v : 0) * a->c * 4);
    const int team = lf_team(q, bytes);
    if (!a->accumulate && a->dwte)
        lf_deal(q, team, a->v * a->c, ZERO_PIECE, zero_piece, &a->dwte);
    if (!a->accumulate && a->dwpe)
        lf_deal(q, team, a->max_pos * a->c, ZERO_PIECE, zero_piece, &a->dwpe);
    /* whole cache lines where the table is aligned */
    lf_deal(q, team, a->c, lf_share(a->c, 16, team), scatter_columns, a);
    return LF_K_OK;
}

/* ---- rotary positions ---- */

enum { MAX_PAIRS = 512 }; /* of a head that turns by three positions */

int LF_SYM(rope_check)(const struct lf_k_rope *a)
{
    bool ok = a->rows >= 0 && a->heads > 0 && a->d > 0 && a->rot >= 0 && a->first >= 0 &&
              a->first + a->rot <= a->d && a->rot % 2 == 0 && a->ldx >= a->heads * a->d &&
              a->ldy >= a->heads * a->d && a->max_pos > 0 && lf_is_float(a->x_type) &&
              !(a->axis && a->position2) && (!a->axis || a->rot / 2 <= MAX_PAIRS);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

LF_INLINE void rope_half(const void *x, void *y, const float *cs, const float *sn, int64_t half,
                         lf_v sign, uint8_t t)
{
    LF_EACH_VEC(i, n, half)
    {
        lf_v co = lf_get(cs, i, LF_F32, n), si = lf_get(sn, i, LF_F32, n) * sign;
        lf_v p = lf_get(x, i, t, n), r = lf_get(x, i + half, t, n);
        lf_put(y, i, t, n, lf_v_fma(p, co, -(r * si)));
        lf_put(y, i + half, t, n, lf_v_fma(p, si, r * co));
    }
}

/* Pairs (2i, 2i+1): through a small buffer, so that the arithmetic is the same as above. */
static void rope_pairs(const void *x, void *y, const float *cs, const float *sn, int64_t half,
                       lf_v sign, uint8_t t)
{
    float b[2 * LF_VL], p[LF_VL], r[LF_VL];
    LF_EACH_VEC(i, n, half)
    {
        int64_t m = 2 * n;
        lf_v_store(b, lf_get(x, 2 * i, t, m));
        lf_v_store(b + LF_VL, m > LF_VL ? lf_get(x, 2 * i + LF_VL, t, m - LF_VL) : lf_v_set1(0.0f));
        for (int j = 0; j < LF_VL; j++) {
            p[j] = b[2 * j];
            r[j] = b[2 * j + 1];
        }
        lf_v co = lf_get(cs, i, LF_F32, n), si = lf_get(sn, i, LF_F32, n) * sign, vp = lf_v_load(p),
             vr = lf_v_load(r);
        lf_v_store(p, lf_v_fma(vp, co, -(vr * si)));
        lf_v_store(r, lf_v_fma(vp, si, vr * co));
        for (int j = 0; j < LF_VL; j++) {
            b[2 * j] = p[j];
            b[2 * j + 1] = r[j];
        }
        lf_put(y, 2 * i, t, m, lf_v_load(b));
        if (m > LF_VL)
            lf_put(y, 2 * i + LF_VL, t, m - LF_VL, lf_v_load(b + LF_VL));
    }
}

/* The cosines and sines of a row: those of its position, or by the axis of each pair those of one
 * of its three positions, gathered in cs and sn. A position outside the tables gives NaN: a wrong
 * cursor must not pass for a rotation. */
struct turn {
    const float *cs, *sn; /* NULL: NaN */
};

static struct turn turn_of(const struct lf_k_rope *a, int64_t pos)
{
    const int64_t half = a->rot / 2;
    if (pos < 0 || pos >= a->max_pos)
        return (struct turn){NULL, NULL};
    return (struct turn){a->cos + pos * half, a->sin + pos * half};
}

static struct turn turn_by_axes(const struct lf_k_rope *a, int64_t r, float *cs, float *sn)
{
    const int64_t half = a->rot / 2;
    const int32_t *pos = a->position + 3 * r;
    for (int k = 0; k < 3; k++)
        if (pos[k] < 0 || pos[k] >= a->max_pos)
            return (struct turn){NULL, NULL};
    for (int64_t i = 0; i < half; i++) {
        const int64_t at = pos[a->axis[i]] * half + i;
        cs[i] = a->cos[at];
        sn[i] = a->sin[at];
    }
    return (struct turn){cs, sn};
}

static void rope_head(const struct lf_k_rope *a, struct turn u, const void *x, void *y)
{
    const int64_t half = a->rot / 2;
    const uint8_t t = a->x_type;
    const lf_v sign = lf_v_set1(a->inverse ? -1.0f : 1.0f);
    if (y != x) {
        const int64_t end = a->first + a->rot;
        const size_t size = lf_dtype_size((enum lf_dtype)t);
        memcpy(y, x, (size_t)a->first * size);
        memcpy(lf_at_w(y, end, t), lf_at(x, end, t), (size_t)(a->d - end) * size);
    }
    x = lf_at(x, a->first, t);
    y = lf_at_w(y, a->first, t);
    if (!u.cs) {
        LF_EACH_VEC(c, n, a->rot) lf_put(y, c, t, n, lf_v_set1(NAN));
        return;
    }
    if (a->interleaved)
        rope_pairs(x, y, u.cs, u.sn, half, sign, t);
    else if (t == LF_BF16)
        rope_half(x, y, u.cs, u.sn, half, sign, LF_BF16);
    else
        rope_half(x, y, u.cs, u.sn, half, sign, LF_F32);
}

static void rope_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_rope *a = arg;
    (void)q;
    float cs[MAX_PAIRS], sn[MAX_PAIRS];
    for (int64_t r = lo; r < hi; r++) {
        const struct turn first = a->axis ? turn_by_axes(a, r, cs, sn) : turn_of(a, a->position[r]);
        const struct turn second = a->position2 ? turn_of(a, a->position2[r]) : first;
        for (int64_t h = 0; h < a->heads; h++)
            rope_head(a, h % 2 ? second : first, lf_at(a->x, r * a->ldx + h * a->d, a->x_type),
                      lf_at_w(a->y, r * a->ldy + h * a->d, a->x_type));
    }
}

int LF_SYM(rope)(lf_queue *q, const struct lf_k_rope *a)
{
    lf_deal(q, lf_team(q, a->rows * a->heads * a->d * 8), a->rows, lf_few_rows(a->heads * a->d),
            rope_rows, a);
    return LF_K_OK;
}

/* ---- heads that share channels ---- */

int LF_SYM(heads_join_check)(const struct lf_k_heads_join *a)
{
    bool ok = a->rows >= 0 && a->heads > 0 && a->a > 0 && a->b > 0 && a->ldx >= a->heads * a->a &&
              a->ldz >= a->b && a->ldy >= a->heads * (a->a + a->b) && lf_is_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

static void join_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_heads_join *a = arg;
    (void)q;
    const uint8_t t = a->x_type;
    const size_t size = lf_dtype_size((enum lf_dtype)t);
    for (int64_t r = lo; r < hi; r++) {
        for (int64_t h = 0; h < a->heads; h++) {
            const int64_t y = r * a->ldy + h * (a->a + a->b);
            memcpy(lf_at_w(a->y, y, t), lf_at(a->x, r * a->ldx + h * a->a, t), (size_t)a->a * size);
            memcpy(lf_at_w(a->y, y + a->a, t), lf_at(a->z, r * a->ldz, t), (size_t)a->b * size);
        }
    }
}

int LF_SYM(heads_join)(lf_queue *q, const struct lf_k_heads_join *a)
{
    lf_deal(q, lf_team(q, a->rows * a->heads * (a->a + a->b) * 8), a->rows,
            lf_few_rows(a->heads * (a->a + a->b)), join_rows, a);
    return LF_K_OK;
}

int LF_SYM(heads_split_check)(const struct lf_k_heads_split *a)
{
    bool ok = a->rows >= 0 && a->heads > 0 && a->a > 0 && a->b > 0 && a->lddx >= a->heads * a->a &&
              a->lddz >= a->b && a->lddy >= a->heads * (a->a + a->b) && lf_is_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

/* dz of row r. */
LF_INLINE void split_shared(const struct lf_k_heads_split *a, int64_t r, uint8_t t)
{
    const int64_t wide = a->a + a->b, from = r * a->lddy + a->a;
    LF_EACH_VEC(c, n, a->b)
    {
        lf_v sum = lf_get(a->dy, from + c, t, n);
        for (int64_t h = 1; h < a->heads; h++)
            sum += lf_get(a->dy, from + h * wide + c, t, n);
        lf_put(a->dz, r * a->lddz + c, t, n, sum);
    }
}

static void split_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_heads_split *a = arg;
    (void)q;
    const uint8_t t = a->x_type;
    const int64_t wide = a->a + a->b;
    for (int64_t r = lo; r < hi; r++) {
        for (int64_t h = 0; h < a->heads; h++)
            memcpy(lf_at_w(a->dx, r * a->lddx + h * a->a, t),
                   lf_at(a->dy, r * a->lddy + h * wide, t),
                   (size_t)a->a * lf_dtype_size((enum lf_dtype)t));
        if (t == LF_BF16)
            split_shared(a, r, LF_BF16);
        else
            split_shared(a, r, LF_F32);
    }
}

int LF_SYM(heads_split)(lf_queue *q, const struct lf_k_heads_split *a)
{
    lf_deal(q, lf_team(q, a->rows * a->heads * (a->a + a->b) * 8), a->rows,
            lf_few_rows(a->heads * (a->a + a->b)), split_rows, a);
    return LF_K_OK;
}
