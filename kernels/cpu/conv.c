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
};

/* What a copy of the loops over rows has as constants. */
struct form {
    int64_t taps;
    uint8_t type;
};
/* Calls fn with the constants of the usual filters, of 4 taps. */
#define EACH_FORM(fn, taps, type, ...)                                                             \
    do {                                                                                           \
        if ((taps) == 4 && (type) == LF_F32)                                                       \
            fn(__VA_ARGS__, (struct form){4, LF_F32});                                             \
        else if ((taps) == 4)                                                                      \
            fn(__VA_ARGS__, (struct form){4, LF_BF16});                                            \
        else                                                                                       \
            fn(__VA_ARGS__, (struct form){taps, type});                                            \
    } while (0)

/* Rows of a block lie far apart, so those of soon are asked for. */
enum { ASK = 8 };
LF_INLINE void ask(const void *row, int64_t n, const uint8_t t, const int write)
{
    for (int64_t b = 0; b < n * (int64_t)lf_dtype_size((enum lf_dtype)t); b += 64)
        if (write)
            __builtin_prefetch((const char *)row + b, 1, 3);
        else
            __builtin_prefetch((const char *)row + b, 0, 3);
}

/* inner: all rows that are read are in the call. */
LF_INLINE lf_v taps_sum(const struct block *b, const struct from *f, int64_t i, int64_t n,
                        const struct form k, const bool inner)
{
    lf_v sum = lf_v_load(b->bias + i);
#pragma GCC unroll 4
    for (int64_t j = 0; j < k.taps; j++) {
        const int64_t r = f->t - k.taps + 1 + j; /* in the call; before it in the state */
        if (!inner && r + f->before < 0)
            continue;
        const lf_v x = inner || r >= 0
                           ? lf_get(f->at, r * f->ld + b->c + i, k.type, n)
                           : lf_get(f->old, (r + k.taps - 1) * f->ldold + b->c + i, k.type, n);
        sum = lf_v_fma(lf_v_load(b->w[j] + i), x, sum);
    }
    return sum;
}

/* Rows [lo, hi) of a span. */
LF_INLINE void rows_fwd(const struct lf_k_conv_fwd *a, const struct block *b,
                        const struct scan_span *s, struct from *f, int64_t lo, int64_t hi,
                        const struct form k)
{
    for (f->t = lo; f->t < hi; f->t++) {
        const int64_t far = f->t + ASK < s->n ? f->t + ASK : f->t, to = (s->row + f->t) * a->ldy;
        ask(lf_at(f->at, far * f->ld + b->c, k.type), b->n, k.type, 0);
        ask(lf_at(a->y, (s->row + far) * a->ldy + b->c, k.type), b->n, k.type, 1);
        if (b->n == CB && f->t >= k.taps - 1)
            for (int64_t i = 0; i < CB; i += LF_VL)
                lf_put(a->y, to + b->c + i, k.type, LF_VL,
                       lf_act_f(a->act, taps_sum(b, f, i, LF_VL, k, true)));
        else
            LF_EACH_VEC(i, n, b->n)
        lf_put(a->y, to + b->c + i, k.type, n, lf_act_f(a->act, taps_sum(b, f, i, n, k, false)));
    }
}

static void zero_rows(void *y, int64_t ldy, const struct scan_span *s, const struct block *b,
                      uint8_t t)
{
    for (int64_t r = s->row; r < s->row + s->n; r++)
        memset(lf_at_w(y, r * ldy + b->c, t), 0, (size_t)b->n * lf_dtype_size((enum lf_dtype)t));
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
        .before = s->before};
    if (s->seq < 0) {
        zero_rows(a->y, a->ldy, s, b, t);
        return;
    }
    LF_EACH_PIECE(q, lo, hi, 0, s->n, lf_few_rows(CB))
    EACH_FORM(rows_fwd, a->taps, t, a, b, s, &f, lo, hi);
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
 * is t % K. inner: the document has all rows that it reads and that read it. */
LF_INLINE void row_bwd(const struct lf_k_conv_bwd *a, struct block *b, const struct scan_span *s,
                       const struct from *f, int64_t i, int64_t n, const struct form k,
                       const bool inner)
{
    const int64_t slot = f->t % k.taps, row = s->row + f->t;
    lf_v value, dx = lf_v_zero();
    const lf_v pre = taps_sum(b, f, i, n, k, inner),
               da = lf_get(a->dy, row * a->lddy + b->c + i, k.type, n) *
                    lf_act_df(a->act, pre, &value);
    lf_v_store(b->da[slot] + i, da);
#pragma GCC unroll 4
    for (int64_t m = 0; m < k.taps; m++) {
        if (!inner && f->t + m >= s->n)
            break;
        const int64_t at = slot + m < k.taps ? slot + m : slot + m - k.taps;
        dx = lf_v_fma(lf_v_load(b->w[k.taps - 1 - m] + i), lf_v_load(b->da[at] + i), dx);
    }
    if (a->dx)
        lf_put(a->dx, row * a->lddx + b->c + i, k.type, n, dx);
#pragma GCC unroll 4
    for (int64_t j = 0; j < k.taps; j++) {
        const int64_t r = f->t - k.taps + 1 + j;
        if (a->dw && (inner || r >= 0))
            lf_v_store(b->dw[j] + i, lf_v_fma(da, lf_get(f->at, r * f->ld + b->c + i, k.type, n),
                                              lf_v_load(b->dw[j] + i)));
    }
    lf_v_store(b->dbias + i, lf_v_load(b->dbias + i) + da);
}

/* Rows [lo, hi) of a document, counted from its last. */
LF_INLINE void rows_bwd(const struct lf_k_conv_bwd *a, struct block *b, const struct scan_span *s,
                        struct from *f, int64_t lo, int64_t hi, const struct form k)
{
    for (int64_t back = lo; back < hi; back++) {
        f->t = s->n - 1 - back;
        const int64_t far = f->t >= ASK ? f->t - ASK : 0, row = s->row + far,
                      first = far >= k.taps ? far - k.taps + 1 : 0;
        ask(lf_at(f->at, first * f->ld + b->c, k.type), b->n, k.type, 0);
        ask(lf_at(a->dy, row * a->lddy + b->c, k.type), b->n, k.type, 0);
        if (a->dx)
            ask(lf_at(a->dx, row * a->lddx + b->c, k.type), b->n, k.type, 1);
        if (b->n == CB && f->t >= k.taps - 1 && f->t + k.taps <= s->n)
            for (int64_t i = 0; i < CB; i += LF_VL)
                row_bwd(a, b, s, f, i, LF_VL, k, true);
        else
            LF_EACH_VEC(i, n, b->n)
        row_bwd(a, b, s, f, i, n, k, false);
    }
}

static void span_bwd(lf_queue *q, const struct lf_k_conv_bwd *a, const struct scan_span *s,
                     struct block *b)
{
    const uint8_t t = a->x_type;
    struct from f = {.at = lf_at(a->x, s->row * a->ldx, t), .ld = a->ldx};
    if (s->seq < 0) {
        if (a->dx)
            zero_rows(a->dx, a->lddx, s, b, t);
        return;
    }
    LF_EACH_PIECE(q, lo, hi, 0, s->n, lf_few_rows(CB))
    EACH_FORM(rows_bwd, a->taps, t, a, b, s, &f, lo, hi);
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
