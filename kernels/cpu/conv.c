/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal depthwise convolution over documents. A thread has blocks of columns and all rows of
 * them, so the sums over rows have one order.
 */
#include "config.h"

#include "kernels/cpu/scan.h"

LF_CPU_DECLARE(conv_fwd)
LF_CPU_DECLARE(conv_bwd)

LF_NO_WORK(conv_fwd)
LF_NO_WORK(conv_bwd)

enum { TAPS = LF_CONV_MOST_TAPS, CB = 64 }; /* columns of a block */

static bool act_ok(uint8_t act)
{
    return act == LF_ACT_NONE || act == LF_ACT_SILU;
}

int LF_SYM(conv_fwd_check)(const struct lf_k_conv_fwd *a)
{
    return a->rows >= 0 && a->c > 0 && a->taps > 0 && a->taps <= TAPS && a->n_docs >= 0 &&
                   a->ldx >= a->c && a->ldy >= a->c && act_ok(a->act) && lf_is_float(a->x_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}

int LF_SYM(conv_bwd_check)(const struct lf_k_conv_bwd *a)
{
    return a->rows >= 0 && a->c > 0 && a->taps > 0 && a->taps <= TAPS && a->n_docs >= 0 &&
                   a->ldx >= a->c && a->lddy >= a->c && a->lddx >= a->c && act_ok(a->act) &&
                   lf_is_float(a->x_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}

/* A block of columns: weights turned so that channels are neighbours. */
struct block {
    int64_t c, n, taps; /* first column, columns */
    float w[TAPS][CB], bias[CB];
    float dw[TAPS][CB], dbias[CB], da[TAPS][CB]; /* of the backward */
};

static void block_of(struct block *b, int64_t c, int64_t all, int64_t taps, const float *w,
                     const float *bias)
{
    memset(b, 0, sizeof *b);
    b->c = c;
    b->n = all - c < CB ? all - c : CB;
    b->taps = taps;
    for (int64_t i = 0; i < b->n; i++) {
        for (int64_t j = 0; j < taps; j++)
            b->w[j][i] = w[(c + i) * taps + j];
        b->bias[i] = bias ? bias[c + i] : 0.0f;
    }
}

/* Row t of a span: the part of x that it reads stands in memory from `at` on, and with a state the
 * rows before the call in `old`, K - 1 of them. */
struct from {
    const void *at, *old;
    int64_t ld, ldold, t, before;
    uint8_t type;
};

LF_INLINE lf_v taps_sum(const struct block *b, const struct from *f, int64_t i, int64_t n)
{
    lf_v sum = lf_v_load(b->bias + i);
    for (int64_t j = 0; j < b->taps; j++) {
        const int64_t r = f->t - b->taps + 1 + j; /* in the call; before it in the state */
        if (r + f->before < 0)
            continue;
        const lf_v x = r >= 0 ? lf_get(f->at, r * f->ld + b->c + i, f->type, n)
                              : lf_get(f->old, (r + b->taps - 1) * f->ldold + b->c + i, f->type, n);
        sum = lf_v_fma(lf_v_load(b->w[j] + i), x, sum);
    }
    return sum;
}

static void span_fwd(lf_queue *q, const struct lf_k_conv_fwd *a, const struct scan_span *s,
                     const struct block *b)
{
    const uint8_t t = a->x_type;
    struct from f = {
        .at = lf_at(a->x, s->row * a->ldx, t),
        .old = a->state && s->seq >= 0 ? lf_at(a->state, s->seq * (a->taps - 1) * a->c, t) : NULL,
        .ld = a->ldx,
        .ldold = a->c,
        .before = s->before,
        .type = t};
    LF_EACH_PIECE(q, lo, hi, 0, s->n, lf_few_rows(CB))
    for (f.t = lo; f.t < hi; f.t++)
        LF_EACH_VEC(i, n, b->n)
        {
            lf_v y = lf_v_zero();
            if (s->seq >= 0)
                y = lf_act_f(a->act, taps_sum(b, &f, i, n));
            lf_put(a->y, (s->row + f.t) * a->ldy + b->c + i, t, n, y);
        }
}

/* The last K - 1 rows of what the state had and the call brought; those before the document's first
 * are never read. Row i of the result is behind what is read for later ones. */
static void keep_rows(const struct lf_k_conv_fwd *a, const struct scan_span *s,
                      const struct block *b)
{
    const int64_t keep = a->taps - 1, size = (int64_t)lf_dtype_size((enum lf_dtype)a->x_type);
    char *state = (char *)a->state + (s->seq * keep * a->c + b->c) * size;
    for (int64_t i = 0; i < keep; i++) {
        const int64_t r = s->n - keep + i; /* in the call */
        if (r >= 0)
            memcpy(state + i * a->c * size, lf_at(a->x, (s->row + r) * a->ldx + b->c, a->x_type),
                   (size_t)(b->n * size));
        else
            memcpy(state + i * a->c * size, state + (r + keep) * a->c * size,
                   (size_t)(b->n * size));
    }
}

/* Blocks [lo, hi) of channels. */
static void fwd_blocks(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_conv_fwd *a = arg;
    const struct scan_rows rows = {a->rows, a->n_docs, a->cu_seqlens, a->state ? a->seq : NULL,
                                   a->pos};
    for (int64_t i = lo; i < hi; i++) {
        struct block b;
        block_of(&b, i * CB, a->c, a->taps, a->w, a->bias);
        for (struct scan_span s = {0}; scan_next(&rows, &s);) {
            span_fwd(q, a, &s, &b);
            if (a->state && s.seq >= 0)
                keep_rows(a, &s, &b);
        }
    }
}

int LF_SYM(conv_fwd)(lf_queue *q, const struct lf_k_conv_fwd *a)
{
    if (a->rows > 0)
        lf_deal(q, lf_team(q, a->rows * a->c * 8), (a->c + CB - 1) / CB, 1, fwd_blocks, a);
    return LF_K_OK;
}

/* The row t of a document, after those behind it: da of row t + m is in da[(t + m) % K], and slot
 * is t % K. */
LF_INLINE void row_bwd(const struct lf_k_conv_bwd *a, struct block *b, const struct scan_span *s,
                       const struct from *f, int64_t slot, int64_t i, int64_t n)
{
    const uint8_t t = a->x_type;
    lf_v pre = taps_sum(b, f, i, n), value;
    const lf_v da =
        lf_get(a->dy, (s->row + f->t) * a->lddy + b->c + i, t, n) * lf_act_df(a->act, pre, &value);
    lf_v dx = lf_v_zero();
    lf_v_store(b->da[slot] + i, da);
    for (int64_t m = 0; m < b->taps && f->t + m < s->n; m++) {
        const int64_t at = slot + m < b->taps ? slot + m : slot + m - b->taps;
        dx = lf_v_fma(lf_v_load(b->w[b->taps - 1 - m] + i), lf_v_load(b->da[at] + i), dx);
    }
    if (a->dx)
        lf_put(a->dx, (s->row + f->t) * a->lddx + b->c + i, t, n, dx);
    for (int64_t j = 0; j < b->taps && a->dw; j++) {
        const int64_t r = f->t - b->taps + 1 + j;
        if (r >= 0)
            lf_v_store(b->dw[j] + i, lf_v_fma(da, lf_get(f->at, r * f->ld + b->c + i, t, n),
                                              lf_v_load(b->dw[j] + i)));
    }
    lf_v_store(b->dbias + i, lf_v_load(b->dbias + i) + da);
}

static void span_bwd(lf_queue *q, const struct lf_k_conv_bwd *a, const struct scan_span *s,
                     struct block *b)
{
    const uint8_t t = a->x_type;
    struct from f = {.at = lf_at(a->x, s->row * a->ldx, t), .ld = a->ldx, .type = t};
    LF_EACH_PIECE(q, lo, hi, 0, s->n, lf_few_rows(CB))
    for (int64_t r = lo; r < hi; r++) {
        f.t = s->n - 1 - r;
        const int64_t slot = f.t % b->taps;
        LF_EACH_VEC(i, n, b->n)
        {
            if (s->seq >= 0)
                row_bwd(a, b, s, &f, slot, i, n);
            else if (a->dx)
                lf_put(a->dx, (s->row + f.t) * a->lddx + b->c + i, t, n, lf_v_zero());
        }
    }
}

static void block_end(const struct lf_k_conv_bwd *a, const struct block *b)
{
    for (int64_t i = 0; i < b->n; i++) {
        float *dw = a->dw ? a->dw + (b->c + i) * a->taps : NULL;
        for (int64_t j = 0; j < a->taps && dw; j++)
            dw[j] = a->accumulate ? dw[j] + b->dw[j][i] : b->dw[j][i];
        if (a->dbias)
            a->dbias[b->c + i] = a->accumulate ? a->dbias[b->c + i] + b->dbias[i] : b->dbias[i];
    }
}

static void bwd_blocks(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_conv_bwd *a = arg;
    const struct scan_rows rows = {.rows = a->rows, .n_docs = a->n_docs, .cu = a->cu_seqlens};
    for (int64_t i = lo; i < hi; i++) {
        struct block b;
        block_of(&b, i * CB, a->c, a->taps, a->w, a->bias);
        for (struct scan_span s = {0}; a->rows && scan_next(&rows, &s);)
            span_bwd(q, a, &s, &b);
        block_end(a, &b);
    }
}

int LF_SYM(conv_bwd)(lf_queue *q, const struct lf_k_conv_bwd *a)
{
    lf_deal(q, lf_team(q, a->rows * a->c * 16), (a->c + CB - 1) / CB, 1, bwd_blocks, a);
    return LF_K_OK;
}
