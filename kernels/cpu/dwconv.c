/* SPDX-License-Identifier: Apache-2.0
 *
 * Depthwise convolution over pictures. A piece of the forward, and of the gradient of x, which is
 * the same with the taps in reverse, is a block of columns of one square. A piece of the gradient
 * of the weights is a block of columns and one row of taps, which walks all squares, so that its
 * sums have one order.
 */
#include "config.h"

#include "kernels/cpu/ops.h"

LF_CPU_DECLARE(dwconv_fwd)
LF_CPU_DECLARE(dwconv_bwd)
LF_CPU_DECLARE(turn_rows)

LF_NO_WORK(dwconv_fwd)
LF_NO_WORK(dwconv_bwd)
LF_NO_WORK(turn_rows)

enum { TAPS = LF_DWCONV_MOST_TAPS, CB = 64 }; /* columns of a block */

static bool shape_ok(int64_t rows, int64_t c, int64_t side, int64_t taps, uint8_t type)
{
    return rows >= 0 && c > 0 && side > 0 && side < 1 << 20 && taps > 0 && taps <= TAPS &&
           taps % 2 && lf_is_float(type);
}

int LF_SYM(dwconv_fwd_check)(const struct lf_k_dwconv_fwd *a)
{
    return shape_ok(a->rows, a->c, a->side, a->taps, a->x_type) && a->ldx >= a->c && a->ldy >= a->c
               ? LF_K_OK
               : LF_K_EINVAL;
}

int LF_SYM(dwconv_bwd_check)(const struct lf_k_dwconv_bwd *a)
{
    return shape_ok(a->rows, a->c, a->side, a->taps, a->x_type) && a->ldx >= a->c &&
                   a->lddy >= a->c && a->lddx >= a->c
               ? LF_K_OK
               : LF_K_EINVAL;
}

/* What the forward and the gradient of x have in common: y of x by filters. */
struct filter {
    int64_t rows, c, side, taps, ldx, ldy;
    const void *x;
    const float *w, *bias;
    void *y;
    bool reverse; /* taps count from the last */
    uint8_t type;
};

/* A block of columns: taps turned so that channels are neighbours. */
struct block {
    int64_t c, n; /* first column, columns */
    float w[TAPS * TAPS][CB], bias[CB];
};

static void block_of(struct block *b, const struct filter *f, int64_t c)
{
    const int64_t all = f->taps * f->taps;
    b->c = c;
    b->n = f->c - c < CB ? f->c - c : CB;
    memset(b->w, 0, (size_t)all * sizeof *b->w);
    memset(b->bias, 0, sizeof b->bias);
    for (int64_t i = 0; i < b->n; i++) {
        for (int64_t t = 0; t < all; t++)
            b->w[f->reverse ? all - 1 - t : t][i] = f->w[(c + i) * all + t];
        b->bias[i] = f->bias ? f->bias[c + i] : 0.0f;
    }
}

/* The taps [lo, hi) of K that find something at place i of a side. */
struct reach {
    int64_t lo, hi;
};
LF_INLINE struct reach reach_of(int64_t i, int64_t side, int64_t taps)
{
    const int64_t half = taps / 2;
    return (struct reach){i < half ? half - i : 0, side - i <= half ? side - i + half : taps};
}

/* Place (i, j) of the square whose first row is `row`. */
LF_INLINE void place(const struct filter *f, const struct block *b, int64_t row, int64_t i,
                     int64_t j, const uint8_t type, const bool full)
{
    const struct reach up = reach_of(i, f->side, f->taps), across = reach_of(j, f->side, f->taps);
    const int64_t half = f->taps / 2;
    lf_v sum[CB / LF_VL];
    for (int k = 0; k < CB / LF_VL; k++)
        sum[k] = lf_v_load(b->bias + k * LF_VL);
    for (int64_t u = up.lo; u < up.hi; u++) {
        const int64_t from = (row + (i + u - half) * f->side + j - half) * f->ldx + b->c;
        for (int64_t v = across.lo; v < across.hi; v++) {
            const float *w = b->w[u * f->taps + v];
#pragma GCC unroll 8
            for (int k = 0; k < CB / LF_VL; k++) {
                const int64_t left = b->n - k * LF_VL, at = from + v * f->ldx + k * LF_VL;
                if (full || left > 0)
                    sum[k] = lf_v_fma(lf_v_load(w + k * LF_VL),
                                      lf_get(f->x, at, type, full || left > LF_VL ? LF_VL : left),
                                      sum[k]);
            }
        }
    }
    for (int k = 0; k < CB / LF_VL; k++) {
        const int64_t left = b->n - k * LF_VL;
        if (full || left > 0)
            lf_put(f->y, (row + i * f->side + j) * f->ldy + b->c + k * LF_VL, type,
                   full || left > LF_VL ? LF_VL : left, sum[k]);
    }
}

LF_INLINE void places(const struct filter *f, const struct block *b, int64_t row, int64_t lo,
                      int64_t hi, const uint8_t type)
{
    for (int64_t p = lo; p < hi; p++)
        if (b->n == CB)
            place(f, b, row, p / f->side, p % f->side, type, true);
        else
            place(f, b, row, p / f->side, p % f->side, type, false);
}

static int64_t blocks_of(int64_t c)
{
    return (c + CB - 1) / CB;
}

/* Pieces [lo, hi): the blocks of columns of each square, one square after the other. */
static void filter_pieces(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct filter *f = arg;
    const int64_t square = f->side * f->side, blocks = blocks_of(f->c);
    for (int64_t i = lo; i < hi; i++) {
        struct block b;
        block_of(&b, f, i % blocks * CB);
        LF_EACH_PIECE(q, from, to, 0, square, lf_few_rows(CB * f->taps))
        if (f->type == LF_F32)
            places(f, &b, i / blocks * square, from, to, LF_F32);
        else
            places(f, &b, i / blocks * square, from, to, LF_BF16);
    }
}

static void filter_all(lf_queue *q, const struct filter *f)
{
    const int64_t square = f->side * f->side, squares = f->rows / square;
    for (int64_t r = squares * square; r < f->rows; r++)
        memset(lf_at_w(f->y, r * f->ldy, f->type), 0,
               (size_t)f->c * lf_dtype_size((enum lf_dtype)f->type));
    if (squares > 0)
        lf_deal(q, lf_team(q, f->rows * f->c * f->taps * 8), squares * blocks_of(f->c), 1,
                filter_pieces, f);
}

int LF_SYM(dwconv_fwd)(lf_queue *q, const struct lf_k_dwconv_fwd *a)
{
    filter_all(q, &(struct filter){.rows = a->rows,
                                   .c = a->c,
                                   .side = a->side,
                                   .taps = a->taps,
                                   .ldx = a->ldx,
                                   .ldy = a->ldy,
                                   .x = a->x,
                                   .w = a->w,
                                   .bias = a->bias,
                                   .y = a->y,
                                   .type = a->x_type});
    return LF_K_OK;
}

/* Sums of one row of taps and a block of columns. */
struct sums {
    int64_t c, n, u; /* first column, columns; the row of taps */
    float dw[TAPS][CB], db[CB];
};

/* One vector of columns at place (i, j) of the square whose first row is `row`. */
LF_INLINE void add_place(const struct lf_k_dwconv_bwd *a, struct sums *s, int64_t row, int64_t i,
                         int64_t j, int64_t k, int64_t n, const uint8_t type)
{
    const struct reach across = reach_of(j, a->side, a->taps);
    const int64_t half = a->taps / 2, y = i + s->u - half;
    const lf_v dy = lf_get(a->dy, (row + i * a->side + j) * a->lddy + s->c + k, type, n);
    lf_v_store(s->db + k, lf_v_load(s->db + k) + dy);
    if (y < 0 || y >= a->side)
        return;
    const int64_t from = (row + y * a->side + j - half) * a->ldx + s->c + k;
    for (int64_t v = across.lo; v < across.hi; v++)
        lf_v_store(s->dw[v] + k,
                   lf_v_fma(dy, lf_get(a->x, from + v * a->ldx, type, n), lf_v_load(s->dw[v] + k)));
}

LF_INLINE void add_places(const struct lf_k_dwconv_bwd *a, struct sums *s, int64_t row, int64_t lo,
                          int64_t hi, const uint8_t type)
{
    for (int64_t p = lo; p < hi; p++) {
        const int64_t i = p / a->side, j = p % a->side;
        if (s->n == CB)
            for (int64_t k = 0; k < CB; k += LF_VL)
                add_place(a, s, row, i, j, k, LF_VL, type);
        else
            LF_EACH_VEC(k, n, s->n)
        add_place(a, s, row, i, j, k, n, type);
    }
}

static void keep_sums(const struct lf_k_dwconv_bwd *a, const struct sums *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        float *dw = a->dw ? a->dw + ((s->c + i) * a->taps + s->u) * a->taps : NULL;
        for (int64_t v = 0; v < a->taps && dw; v++)
            dw[v] = a->accumulate ? dw[v] + s->dw[v][i] : s->dw[v][i];
        if (a->dbias && s->u == 0)
            a->dbias[s->c + i] = a->accumulate ? a->dbias[s->c + i] + s->db[i] : s->db[i];
    }
}

/* Pieces [lo, hi): the rows of taps of each block of columns. */
static void weight_pieces(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_dwconv_bwd *a = arg;
    const int64_t square = a->side * a->side, squares = a->rows / square;
    for (int64_t i = lo; i < hi; i++) {
        struct sums s = {.c = i / a->taps * CB, .u = i % a->taps};
        s.n = a->c - s.c < CB ? a->c - s.c : CB;
        for (int64_t p = 0; p < squares; p++)
            LF_EACH_PIECE(q, from, to, 0, square, lf_few_rows(CB * a->taps))
        if (a->x_type == LF_F32)
            add_places(a, &s, p * square, from, to, LF_F32);
        else
            add_places(a, &s, p * square, from, to, LF_BF16);
        keep_sums(a, &s);
    }
}

int LF_SYM(dwconv_bwd)(lf_queue *q, const struct lf_k_dwconv_bwd *a)
{
    if (a->dx)
        filter_all(q, &(struct filter){.rows = a->rows,
                                       .c = a->c,
                                       .side = a->side,
                                       .taps = a->taps,
                                       .ldx = a->lddy,
                                       .ldy = a->lddx,
                                       .x = a->dy,
                                       .w = a->w,
                                       .y = a->dx,
                                       .reverse = true,
                                       .type = a->x_type});
    if (a->dw || a->dbias)
        lf_deal(q, lf_team(q, a->rows * a->c * a->taps * 8), blocks_of(a->c) * a->taps, 1,
                weight_pieces, a);
    return LF_K_OK;
}

/* ---- matrices that are transposed ---- */

int LF_SYM(turn_rows_check)(const struct lf_k_turn_rows *a)
{
    return a->rows >= 0 && a->c > 0 && a->each > 0 && a->ldx >= a->c && a->ldy >= a->each &&
                   a->y_rows >= a->rows / a->each * a->c && lf_is_float(a->x_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}

enum { TILE = 16 }; /* rows and columns that are turned at once */

/* Columns [j0, j1) of rows [i0, i1) of matrix p. */
LF_INLINE void turn_tile(const struct lf_k_turn_rows *a, int64_t p, const int64_t i[2],
                         const int64_t j[2], const bool wide)
{
    for (int64_t c = j[0]; c < j[1]; c++)
        for (int64_t r = i[0]; r < i[1]; r++) {
            const int64_t from = (p * a->each + r) * a->ldx + c, to = (p * a->c + c) * a->ldy + r;
            if (wide)
                ((float *)a->y)[to] = ((const float *)a->x)[from];
            else
                ((uint16_t *)a->y)[to] = ((const uint16_t *)a->x)[from];
        }
}

/* Pieces [lo, hi): tiles of columns of each matrix, one matrix after the other. */
static void turn_pieces(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_turn_rows *a = arg;
    const int64_t tiles = (a->c + TILE - 1) / TILE;
    (void)q;
    for (int64_t k = lo; k < hi; k++) {
        const int64_t p = k / tiles, at = k % tiles * TILE,
                      j[2] = {at, at + TILE < a->c ? at + TILE : a->c};
        for (int64_t r = 0; r < a->each; r += TILE) {
            const int64_t i[2] = {r, r + TILE < a->each ? r + TILE : a->each};
            if (a->x_type == LF_F32)
                turn_tile(a, p, i, j, true);
            else
                turn_tile(a, p, i, j, false);
        }
    }
}

int LF_SYM(turn_rows)(lf_queue *q, const struct lf_k_turn_rows *a)
{
    const int64_t n = a->rows / a->each, tiles = (a->c + TILE - 1) / TILE;
    for (int64_t r = n * a->c; r < a->y_rows; r++)
        memset(lf_at_w(a->y, r * a->ldy, a->x_type), 0,
               (size_t)a->each * lf_dtype_size((enum lf_dtype)a->x_type));
    if (n > 0)
        lf_deal(q, lf_team(q, a->rows * a->c * 8), n * tiles, 1, turn_pieces, a);
    return LF_K_OK;
}
