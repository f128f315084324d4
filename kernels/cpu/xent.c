/* SPDX-License-Identifier: Apache-2.0
 *
 * Fused output layer and cross-entropy. Rows that have a target (of a conversation: what the
 * assistant says) go in chunks of XENT_ROWS (a constant: chunks decide the order in which dw is
 * summed), the others cost nothing; rows that do not follow one another are gathered, and their dx
 * scattered. The logits of one chunk live in the workspace, become dlogits in place (bf16: packed
 * into the front half of their row, rounded once), and feed dx, dw and db before the next chunk
 * overwrites them. oneDNN's products want the same sizes every time, so there every row counts as
 * one with a target.
 *
 * A row's reduction: the maximum, then sums of exp(z - max) over blocks of XENT_BLOCK columns
 * counted from column 0, four vector chains each, block sums added ascending. Rows are independent,
 * sums over rows are taken by one thread in row order.
 *
 * Where ranks divide the vocabulary, a row's reduction is that of this rank's columns first. The
 * ranks exchange it (struct part) and combine it in rank order, so that all get the same bits; the
 * rest is as for one rank, with that largest logit and sum.
 *
 * A target >= v_real gives a NaN loss and NaN gradients: the step is skipped rather than trained on
 * nonsense.
 */
#include "config.h"

#include <math.h>

#include "kernels/cpu/gemm_int.h"
#include "kernels/cpu/gemm_onednn.h"
#include "kernels/cpu/ops.h"

LF_CPU_DECLARE(gemm)
LF_CPU_DECLARE(colsum)
LF_CPU_DECLARE(linear_xent)
LF_CPU_DECLARE(logit_stats)

enum { XENT_ROWS = LF_XENT_ROWS, XENT_BLOCK = 4096, CHAINS = 4, ALIGN = 64 };

struct row_out {
    float loss, lse, entropy;
    int32_t argmax;
};

/* What every element of a row's gradient is made of: dz_j = (a + b (z_j - max)) e^(z_j - max) - g
 * [j == target]. */
struct row_dz {
    float a, b, g;
};

/* What a rank knows of a row: the largest of its logits and that one's column, counted in all
 * columns; sums of e^(z - max) and of that times (z - max); the target's logit, 0 elsewhere. */
struct part {
    float max, sum, logs, target;
    int32_t argmax;
};
_Static_assert(sizeof(struct part) == LF_XENT_PART, "plans count what ranks exchange of a row");

struct layout {
    int64_t rows, ld;                                   /* of a chunk; ld in f32 elements */
    size_t live, logits, outs, parts, x, dx, gemm, all; /* bytes; x, dx: gathered rows */
    bool skip;                                          /* rows without a target */
};

/* A chunk of rows and where they lie: in the caller's arrays, or gathered. */
struct chunk {
    const int32_t *live; /* their rows */
    int64_t rows, ldx, lddx;
    const void *x;
    void *dx;
    bool first;
};

LF_INLINE size_t aligned(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}
LF_INLINE int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static struct lf_k_gemm logits_gemm(const struct lf_k_linear_xent *a, const struct chunk *c,
                                    float *z, int64_t ld)
{
    return (struct lf_k_gemm){.m = c->rows,
                              .n = a->v,
                              .k = a->k,
                              .a = c->x,
                              .b = a->w,
                              .b_packed = a->w_packed,
                              .c = z,
                              .bias = a->bias,
                              .lda = c->ldx,
                              .ldb = a->ldw,
                              .ldc = ld,
                              .tb = true,
                              .ab_type = a->x_type,
                              .c_type = LF_F32,
                              .bias_type = a->x_type,
                              .mode = a->mode};
}

static struct lf_k_gemm dx_gemm(const struct lf_k_linear_xent *a, const struct chunk *c,
                                const void *dz, int64_t ld)
{
    return (struct lf_k_gemm){.m = c->rows,
                              .n = a->k,
                              .k = a->v,
                              .a = dz,
                              .b = a->w,
                              .c = c->dx,
                              .lda = ld,
                              .ldb = a->ldw,
                              .ldc = c->lddx,
                              .ab_type = a->x_type,
                              .c_type = a->x_type,
                              .mode = a->mode};
}

static struct lf_k_gemm dw_gemm(const struct lf_k_linear_xent *a, const struct chunk *c,
                                const void *dz, int64_t ld)
{
    return (struct lf_k_gemm){.m = a->v,
                              .n = a->k,
                              .k = c->rows,
                              .a = dz,
                              .b = c->x,
                              .c = a->dw,
                              .lda = ld,
                              .ldb = c->ldx,
                              .ldc = a->k,
                              .ta = true,
                              .accumulate = a->accumulate || !c->first,
                              .ab_type = a->x_type,
                              .c_type = LF_F32,
                              .mode = a->mode};
}

static struct layout layout_of(const struct lf_k_linear_xent *a, int threads)
{
    struct layout l = {
        .rows = min64(a->rows, XENT_ROWS), .ld = (a->v + 15) / 16 * 16, .skip = true};
    if (l.rows == 0)
        return l;
    const int64_t ld = a->x_type == LF_BF16 ? 2 * l.ld : l.ld;
    const int64_t last = a->rows % XENT_ROWS ? a->rows % XENT_ROWS : XENT_ROWS;
    for (int i = 0; i < 2;
         i++) { /* a full chunk and the last one: workspace need not grow with rows */
        const struct chunk c = {
            .rows = i ? last : l.rows, .ldx = a->k, .lddx = a->k, .first = true};
        struct lf_k_gemm g[3] = {logits_gemm(a, &c, NULL, l.ld), dx_gemm(a, &c, NULL, ld),
                                 dw_gemm(a, &c, NULL, ld)};
        for (int j = 0; j < 3; j++) {
            const bool other = lf_onednn_wants(&g[j]);
            size_t need =
                other ? LF_SYM(gemm_work)(&g[j], threads) : LF_SYM(gemm_work_most)(&g[j], threads);
            l.gemm = need > l.gemm ? need : l.gemm;
            l.skip = l.skip && !other;
        }
    }
    l.live = aligned((size_t)a->rows * sizeof(int32_t));
    l.logits = aligned((size_t)(l.rows * l.ld) * sizeof(float));
    l.outs = aligned((size_t)l.rows * sizeof(struct row_out));
    l.parts = aligned((size_t)(l.rows * (a->with ? a->with->ranks : 1)) * sizeof(struct part));
    l.x = l.skip ? aligned((size_t)(l.rows * a->k) * lf_dtype_size(a->x_type)) : 0;
    l.dx = a->dx ? l.x : 0;
    l.all = ALIGN + l.live + l.logits + l.outs + l.parts + l.x + l.dx + l.gemm;
    return l;
}

size_t LF_SYM(linear_xent_work)(const struct lf_k_linear_xent *a, int threads)
{
    return layout_of(a, threads).all;
}

int LF_SYM(linear_xent_check)(const struct lf_k_linear_xent *a)
{
    bool ok = a->rows >= 0 && a->k > 0 && a->v > 0 && a->v_real >= (a->with ? 0 : 1) &&
              a->v_real <= a->v && a->v <= INT32_MAX && lf_is_float(a->x_type) && a->ldx >= a->k &&
              a->ldw >= a->k && a->softcap >= 0 && a->inv_temperature >= 0 &&
              a->head <= LF_MORE_HEADS;
    return ok && (!a->dx || a->lddx >= a->k) ? LF_K_OK : LF_K_EINVAL;
}

/* Largest value and its lowest index. */
static float row_max(const float *z, int64_t n, int32_t *arg)
{
    const lf_v low = lf_v_set1(-INFINITY);
    if (n == 0) { /* columns of padding alone */
        *arg = 0;
        return -INFINITY;
    }
    lf_v best = low;
    lf_vi at = lf_vi_set1(0), idx = lf_vi_iota();
    for (int64_t j = 0; j < n; j += LF_VL, idx += LF_VL) {
        int64_t w = min64(n - j, LF_VL);
        lf_v x = w == LF_VL ? lf_v_load(z + j)
                            : lf_v_select(lf_vi_iota() < lf_vi_set1((int)w),
                                          lf_v_load_n(z + j, (int)w), low);
        lf_vi more = x > best;
        best = lf_v_select(more, x, best);
        at = lf_vi_select(more, idx, at);
    }
    float m = best[0];
    *arg = at[0];
    for (int i = 1; i < LF_VL; i++)
        if (best[i] > m || (best[i] == m && at[i] < *arg)) {
            m = best[i];
            *arg = at[i];
        }
    return m;
}

/* Sum of e^(z - max); with bent *logs that of e^(z - max) (z - max) too, in the same order: the
 * mean of log p but for the log of the sum. */
LF_INLINE float row_sums(const float *z, int64_t n, float max, const bool bent, float *logs)
{
    const lf_v m = lf_v_set1(max);
    float total = 0, bend = 0;
    for (int64_t b = 0; b < n; b += XENT_BLOCK) {
        lf_v s[CHAINS] = {lf_v_zero(), lf_v_zero(), lf_v_zero(), lf_v_zero()};
        lf_v g[CHAINS] = {lf_v_zero(), lf_v_zero(), lf_v_zero(), lf_v_zero()};
        int64_t end = min64(b + XENT_BLOCK, n), j = b;
        for (; j + CHAINS * LF_VL <= end; j += CHAINS * LF_VL)
#pragma GCC unroll 4
            for (int c = 0; c < CHAINS; c++) {
                const lf_v d = lf_v_load(z + j + c * LF_VL) - m, e = lf_v_exp(d);
                s[c] += e;
                if (bent)
                    g[c] += e * d;
            }
        for (int c = 0; j < end; j += LF_VL, c++) {
            const int64_t w = min64(end - j, LF_VL);
            const lf_vi in = lf_vi_iota() < lf_vi_set1((int)w);
            const lf_v d = lf_v_load_n(z + j, (int)w) - m, e = lf_v_exp(d);
            s[c] += lf_v_select(in, e, lf_v_zero());
            if (bent)
                g[c] += lf_v_select(in, e * d, lf_v_zero());
        }
        total += lf_v_hsum((s[0] + s[1]) + (s[2] + s[3]));
        if (bent)
            bend += lf_v_hsum((g[0] + g[1]) + (g[2] + g[3]));
    }
    if (bent)
        *logs = bend;
    return total;
}

static float row_sum_exp(const float *z, int64_t n, float max)
{
    return row_sums(z, n, max, false, NULL);
}

static float row_sum_both(const float *z, int64_t n, float max, float *logs)
{
    return row_sums(z, n, max, true, logs);
}

static void row_softcap(float *z, int64_t n, float cap)
{
    const lf_v c = lf_v_set1(cap), inv = lf_v_set1(1.0f / cap);
    LF_EACH_VEC(j, w, n) lf_put(z, j, LF_F32, w, c * lf_v_tanh(lf_get(z, j, LF_F32, w) * inv));
}

static void row_scale(float *z, int64_t n, float factor)
{
    const lf_v f = lf_v_set1(factor);
    LF_EACH_VEC(j, w, n) lf_put(z, j, LF_F32, w, f * lf_get(z, j, LF_F32, w));
}

/* z becomes dz in place, through t (z / t: the capped logit) and the cap, whose slope is 1 - (z /
 * (t cap))^2; bf16 goes to the front of the same row. */
LF_INLINE void row_grad(float *z, int64_t n, float max, struct row_dz k, int32_t target, float cap,
                        float t, const uint8_t type)
{
    const lf_v m = lf_v_set1(max), va = lf_v_set1(k.a), vb = lf_v_set1(k.b), vg = lf_v_set1(k.g),
               one = lf_v_set1(1.0f);
    const lf_v inv = lf_v_set1(cap > 0 ? 1.0f / (cap * t) : 0.0f), vt = lf_v_set1(t);
    const lf_vi at = lf_vi_set1(target);
    const bool bent = k.b < 0 || k.b > 0;
    lf_vi idx = lf_vi_iota();
    for (int64_t j = 0; j < n; j += LF_VL, idx += LF_VL) {
        int64_t w = min64(n - j, LF_VL);
        lf_v x = lf_get(z, j, LF_F32, w);
        lf_v d = (bent ? va + vb * (x - m) : va) * lf_v_exp(x - m) -
                 lf_v_select(idx == at, vg, lf_v_zero());
        if (cap > 0)
            d *= one - (x * inv) * (x * inv);
        if (t < 1 || t > 1)
            d *= vt;
        lf_put(z, j, type, w, d);
    }
}

static void row_zero(float *z, int64_t from, int64_t to, uint8_t type)
{
    for (int64_t j = from; j < to; j += LF_VL)
        lf_put(z, j, type, min64(to - j, LF_VL), lf_v_zero());
}

/* The reduction that loss, scoring and sampling share. bent: logs is wanted. */
static void row_stats(float *z, int64_t n, float softcap, float t, bool bent, struct part *p)
{
    if (softcap > 0)
        row_softcap(z, n, softcap);
    if (t < 1 || t > 1)
        row_scale(z, n, t);
    p->max = row_max(z, n, &p->argmax);
    p->logs = 0;
    p->sum = bent ? row_sum_both(z, n, p->max, &p->logs) : row_sum_exp(z, n, p->max);
}

/* 0 stands for 1, so that who knows no temperature need not name one. */
LF_INLINE float temperature(float inv)
{
    return inv > 0 ? inv : 1.0f;
}

/* How many real columns there are, on all ranks. */
LF_INLINE int64_t real_columns(const struct lf_k_linear_xent *a)
{
    return a->with ? a->v_all : a->v_real;
}

/* The gradient's factors of row r. entropy: of the row, where dentropy asks for it. */
static struct row_dz row_factors(const struct lf_k_linear_xent *a, int64_t r, float sum, float lse,
                                 float entropy)
{
    if (a->target[r] >= real_columns(a))
        return (struct row_dz){NAN, 0, 0};
    if (a->dlogp || a->dentropy) { /* p_j = e^(z_j - max) / sum, log p_j = z_j - max - log sum */
        float dl = a->dlogp ? a->dlogp[r] : 0, dh = a->dentropy ? a->dentropy[r] : 0;
        return (struct row_dz){-(dl + dh * (entropy - logf(sum))) / sum, -dh / sum, -dl};
    }
    const struct lf_step_record *rec = a->rec;
    const float coef = rec && !a->head ? rec->z_loss : 0,
                g = rec ? (a->head ? rec->more_inv : rec->inv_tokens) * rec->loss_scale : 1;
    return (struct row_dz){g * (1.0f + 2.0f * coef * lse) / sum, 0, g};
}

/* The row's results where they are asked for. */
static void row_results(const struct lf_k_linear_xent *a, float target, int64_t r, float entropy,
                        struct row_out *out)
{
    const int32_t t = a->target[r];
    const bool real = t < real_columns(a);
    out->loss = t < 0 ? 0.0f : real ? out->lse - target : NAN;
    out->entropy = entropy;
    if (a->loss)
        a->loss[r] = out->loss;
    if (a->lse)
        a->lse[r] = t < 0 ? 0.0f : out->lse;
    if (a->argmax)
        a->argmax[r] = t < 0 ? -1 : out->argmax;
    if (a->logp)
        a->logp[r] = t < 0 ? 0.0f : real ? target - out->lse : NAN;
    if (a->entropy)
        a->entropy[r] = entropy;
}

static bool wants_entropy(const struct lf_k_linear_xent *a, int64_t r)
{
    return (a->entropy || a->dentropy) && a->target[r] >= 0;
}

/* The reduction of row r over the columns that are here. */
static void one_part(const struct lf_k_linear_xent *a, float *z, int64_t r, struct part *p)
{
    const int64_t t = a->target[r] - a->v0;
    row_stats(z, a->v_real, a->softcap, temperature(a->inv_temperature), wants_entropy(a, r), p);
    p->target = t >= 0 && t < a->v_real ? z[t] : 0.0f;
    p->argmax += (int32_t)a->v0;
}

/* Of all columns, from the parts of all ranks in their order, `each` apart. */
static struct part combine(const struct part *p, int ranks, int64_t each)
{
    struct part all = *p;
    for (int r = 1; r < ranks; r++)
        if (p[r * each].max > all.max) {
            all.max = p[r * each].max;
            all.argmax = p[r * each].argmax;
        }
    all.sum = all.logs = all.target = 0;
    for (int r = 0; r < ranks; r++) {
        const struct part *q = &p[r * each];
        const float d = q->max - all.max, e = q->sum > 0 ? expf(d) : 0.0f;
        if (q->sum > 0 || q->sum != q->sum) {
            all.sum += q->sum * e;
            all.logs += (q->logs + q->sum * d) * e;
        }
        all.target += q->target;
    }
    return all;
}

/* The results of row r, and its logits become the gradient. */
static void one_row(const struct lf_k_linear_xent *a, float *z, int64_t r, const struct part *p,
                    struct row_out *out)
{
    const int32_t t = a->target[r];
    const float inv = temperature(a->inv_temperature);
    out->argmax = p->argmax;
    out->lse = p->max + logf(p->sum);
    const float entropy = wants_entropy(a, r) ? logf(p->sum) - p->logs / p->sum : 0.0f;
    row_results(a, p->target, r, entropy, out);
    if (!a->dx && !a->dw && !a->db)
        return;
    if (t < 0) {
        row_zero(z, 0, a->v, a->x_type);
        return;
    }
    const struct row_dz k = row_factors(a, r, p->sum, out->lse, entropy);
    const int32_t here = t - (int32_t)a->v0;
    if (a->x_type == LF_BF16)
        row_grad(z, a->v_real, p->max, k, here, a->softcap, inv, LF_BF16);
    else
        row_grad(z, a->v_real, p->max, k, here, a->softcap, inv, LF_F32);
    row_zero(z, a->v_real, a->v, a->x_type);
}

/* The sums of a head beyond the first. */
static void add_up_more(const struct lf_k_linear_xent *a, const struct row_out *out,
                        const struct chunk *c)
{
    struct lf_step_record *rec = a->rec;
    for (int64_t i = 0; i < c->rows; i++) {
        const int32_t t = a->target[c->live[i]];
        rec->more_loss[a->head - 1] += t < 0 ? 0.0 : (double)out[i].loss;
        rec->more_tokens[a->head - 1] += t >= 0;
        rec->more_correct[a->head - 1] += t >= 0 && out[i].argmax == t;
    }
}

static void add_up(const struct lf_k_linear_xent *a, const struct row_out *out,
                   const struct chunk *c)
{
    struct lf_step_record *rec = a->rec;
    if (rec && a->head) {
        add_up_more(a, out, c);
        return;
    }
    for (int64_t i = 0; rec && !a->dlogp && !a->dentropy && i < c->rows; i++) {
        int32_t t = a->target[c->live[i]];
        if (t < 0)
            continue;
        rec->loss_sum += (double)out[i].loss;
        rec->z_sum += (double)out[i].lse * (double)out[i].lse;
        rec->entropy_sum += a->entropy ? (double)out[i].entropy : 0.0;
        rec->tokens++;
        rec->correct += out[i].argmax == t;
    }
}

static int backward(lf_queue *q, const struct lf_k_linear_xent *a, const struct chunk *c,
                    const float *z, int64_t ldz, void *work, size_t work_bytes)
{
    const int64_t ld = a->x_type == LF_BF16 ? 2 * ldz : ldz;
    int rc = LF_K_OK;
    if (a->dx) {
        struct lf_k_gemm g = dx_gemm(a, c, z, ld);
        g.work = work;
        g.work_bytes = work_bytes;
        rc = LF_SYM(gemm)(q, &g);
    }
    if (rc == 0 && a->dw) {
        struct lf_k_gemm g = dw_gemm(a, c, z, ld);
        g.work = work;
        g.work_bytes = work_bytes;
        rc = LF_SYM(gemm)(q, &g);
    }
    if (rc == 0 && a->db) {
        struct lf_k_colsum s = {.rows = c->rows,
                                .n = a->v,
                                .dy = z,
                                .ld = ld,
                                .dy_type = a->x_type,
                                .db = a->db,
                                .accumulate = a->accumulate || !c->first};
        rc = LF_SYM(colsum)(q, &s);
    }
    return rc;
}

/* No rows: gradients that are overwritten become 0. */
static void clear(const struct lf_k_linear_xent *a)
{
    if (a->dw && !a->accumulate)
        memset(a->dw, 0, (size_t)(a->v * a->k) * sizeof(float));
    if (a->db && !a->accumulate)
        memset(a->db, 0, (size_t)a->v * sizeof(float));
}

/* The rows to compute, ascending; results of the others are 0, argmax -1. */
static int64_t find_live(const struct lf_k_linear_xent *a, bool skip, int32_t *live)
{
    int64_t n = 0;
    for (int64_t r = 0; r < a->rows; r++) {
        if (a->target[r] >= 0 || !skip) {
            live[n++] = (int32_t)r;
            continue;
        }
        struct row_out none = {0, 0, 0, -1};
        row_results(a, 0, r, 0, &none);
        if (a->dx)
            memset(lf_at_w(a->dx, r * a->lddx, a->x_type), 0,
                   (size_t)a->k * lf_dtype_size(a->x_type));
    }
    return n;
}

/* Rows live[0 ... rows): gathered into x unless they follow one another. */
static struct chunk chunk_of(const struct lf_k_linear_xent *a, const int32_t *live, int64_t rows,
                             bool first, void *x, void *dx)
{
    struct chunk c = {.live = live, .rows = rows, .ldx = a->ldx, .lddx = a->lddx, .first = first};
    const size_t row = (size_t)a->k * lf_dtype_size(a->x_type);
    if (live[rows - 1] - live[0] == rows - 1) {
        c.x = lf_at(a->x, live[0] * a->ldx, a->x_type);
        c.dx = a->dx ? lf_at_w(a->dx, live[0] * a->lddx, a->x_type) : NULL;
        return c;
    }
    for (int64_t i = 0; i < rows; i++)
        memcpy(lf_at_w(x, i * a->k, a->x_type), lf_at(a->x, live[i] * a->ldx, a->x_type), row);
    c.x = x;
    c.dx = a->dx ? dx : NULL;
    c.ldx = c.lddx = a->k;
    return c;
}

static void scatter(const struct lf_k_linear_xent *a, const struct chunk *c, const void *gathered)
{
    const size_t row = (size_t)a->k * lf_dtype_size(a->x_type);
    for (int64_t i = 0; a->dx && c->dx == gathered && i < c->rows; i++)
        memcpy(lf_at_w(a->dx, c->live[i] * a->lddx, a->x_type), lf_at(c->dx, i * a->k, a->x_type),
               row);
}

/* Where the rows of a chunk have their results and their reductions, those of all ranks: of each
 * rank for `room` rows, the most that the chunk can have. */
struct reduced {
    struct row_out *outs;
    struct part *parts;
    int64_t room;
};

/* Each rank gets the reductions of all. */
static int exchange(const struct lf_k_ranks *w, const struct reduced *to)
{
    return w->gather && !w->gather(w->user, to->parts, (size_t)to->room * sizeof(struct part))
               ? LF_K_OK
               : LF_K_EINVAL;
}

struct rows_job {
    const struct lf_k_linear_xent *a;
    const struct chunk *c;
    float *z;
    int64_t ld;
    const struct reduced *to;
};

enum { FEW_ROWS = 4 };

/* What this rank knows of each row. */
static void part_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct rows_job *job = arg;
    struct part *mine = job->to->parts + job->a->with->rank * job->to->room;
    (void)q;
    for (int64_t i = lo; i < hi; i++)
        one_part(job->a, job->z + i * job->ld, job->c->live[i], &mine[i]);
}

static void combined_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct rows_job *job = arg;
    (void)q;
    for (int64_t i = lo; i < hi; i++) {
        const struct part all = combine(job->to->parts + i, job->a->with->ranks, job->to->room);
        one_row(job->a, job->z + i * job->ld, job->c->live[i], &all, &job->to->outs[i]);
    }
}

static void whole_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct rows_job *job = arg;
    (void)q;
    for (int64_t i = lo; i < hi; i++) {
        struct part p;
        one_part(job->a, job->z + i * job->ld, job->c->live[i], &p);
        one_row(job->a, job->z + i * job->ld, job->c->live[i], &p, &job->to->outs[i]);
    }
}

/* Logits to gradients where ranks exchange what they know of the rows in between. */
static int divided_rows(lf_queue *q, const struct lf_k_linear_xent *a, const struct chunk *c,
                        const struct layout *l, float *z, struct reduced *to)
{
    const struct rows_job job = {a, c, z, l->ld, to};
    lf_deal(q, q->threads, c->rows, FEW_ROWS, part_rows, &job);
    if (exchange(a->with, to))
        return LF_K_EINVAL;
    lf_deal(q, q->threads, c->rows, FEW_ROWS, combined_rows, &job);
    return LF_K_OK;
}

static int run_chunk(lf_queue *q, const struct lf_k_linear_xent *a, const struct chunk *c,
                     const struct layout *l, float *z, struct reduced *to, void *work)
{
    struct lf_k_gemm g = logits_gemm(a, c, z, l->ld);
    g.work = work;
    g.work_bytes = l->gemm;
    int rc = LF_SYM(gemm)(q, &g);
    if (rc != 0)
        return rc;
    if (a->with)
        rc = divided_rows(q, a, c, l, z, to);
    if (rc != 0)
        return rc;
    if (!a->with)
        lf_deal(q, q->threads, c->rows, FEW_ROWS, whole_rows,
                &(struct rows_job){a, c, z, l->ld, to});
    add_up(a, to->outs, c);
    return backward(q, a, c, z, l->ld, work, l->gemm);
}

int LF_SYM(linear_xent)(lf_queue *q, const struct lf_k_linear_xent *a)
{
    const struct layout l = layout_of(a, q->threads);
    if (LF_SYM(linear_xent_check)(a) || (a->rows > 0 && a->work_bytes < l.all))
        return LF_K_EINVAL;
    unsigned char *w = (unsigned char *)a->work + (ALIGN - (uintptr_t)a->work % ALIGN) % ALIGN;
    int32_t *live = (int32_t *)(void *)w;
    float *z = (float *)(void *)(w += l.live);
    struct reduced to = {.outs = (struct row_out *)(void *)(w += l.logits)};
    to.parts = (struct part *)(void *)(w += l.outs);
    void *x = w += l.parts, *dx = w += l.x;
    const int64_t n = find_live(a, l.skip, live);
    int rc = LF_K_OK;
    if (n == 0)
        clear(a);
    for (int64_t at = 0; at < (a->with ? a->rows : n) && rc == 0; at += XENT_ROWS) {
        to.room = min64(a->rows - at, XENT_ROWS);
        if (at >= n) { /* ranks count on this one, whichever rows have targets */
            rc = exchange(a->with, &to);
            continue;
        }
        const struct chunk c = chunk_of(a, live + at, min64(n - at, XENT_ROWS), at == 0, x, dx);
        rc = run_chunk(q, a, &c, &l, z, &to, w + l.dx);
        if (rc == 0)
            scatter(a, &c, dx);
    }
    return rc;
}

size_t LF_SYM(logit_stats_work)(const struct lf_k_logit_stats *a, int threads)
{
    (void)a;
    (void)threads;
    return 0;
}

int LF_SYM(logit_stats_check)(const struct lf_k_logit_stats *a)
{
    return a->rows >= 0 && a->v_real > 0 && a->v_real <= INT32_MAX && a->ldz >= a->v_real &&
                   a->softcap >= 0 && a->inv_temperature >= 0
               ? LF_K_OK
               : LF_K_EINVAL;
}

static void stats_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_logit_stats *a = arg;
    (void)q;
    for (int64_t r = lo; r < hi; r++) {
        struct part p;
        row_stats(a->z + r * a->ldz, a->v_real, a->softcap, temperature(a->inv_temperature), false,
                  &p);
        a->lse[r] = p.max + logf(p.sum);
        if (a->argmax)
            a->argmax[r] = p.argmax;
    }
}

int LF_SYM(logit_stats)(lf_queue *q, const struct lf_k_logit_stats *a)
{
    if (LF_SYM(logit_stats_check)(a))
        return LF_K_EINVAL;
    lf_deal(q, q->threads, a->rows, 1, stats_rows, a);
    return LF_K_OK;
}
