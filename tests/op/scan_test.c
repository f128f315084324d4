/* SPDX-License-Identifier: Apache-2.0
 *
 * The scan against the recurrence of its contract in f64, row by row, for each kind of mixer and
 * for documents that end at, before and behind the borders of chunks; the backward against central
 * differences of that recurrence; rows that come in several calls bit for bit (invariant) or nearly
 * (fast); what stands in another document changes no bit. States that fade by e^-20 a row, beside
 * and before slow ones, take no digits from other rows, and their own decays' gradients have some;
 * decays of 0, of next to 0 and of minus infinity meet in one document.
 */
#include "config.h"

#ifdef OP_CUDA
#include "kernels/cuda/queue.h"
#endif
#include "tests/op/op_test.h"

enum { DOCS = 10, PAD = 3, SAMPLES = 20, INPUTS = 6, MOST_DK = 37, MOST_DV = 43 };
static const int64_t lengths[DOCS] = {1, 63, 64, 65, 70, 129, 15, 16, 17, 2};
enum { Q, K, V, G, BETA, SKIP };
static const char *const names[INPUTS] = {"q", "k", "v", "g", "beta", "skip"};

static lf_queue *queue[4];

struct kind {
    const char *name;
    bool delta, channel, fixed, beta, skip, unit;
    int64_t heads, groups, dk, dv;
    enum { STAYS, FADES, ENDS } decays; /* ENDS: none, nearly none, all, minus infinity */
};
static const struct kind kinds[] = {
    {"ssd", false, false, false, true, true, false, 4, 2, 5, 4, STAYS},
    {"lightning", false, false, true, false, false, false, 3, 3, 6, 17, STAYS},
    {"delta", true, false, false, true, false, true, 4, 2, 6, 5, STAYS},
    {"delta, channels", true, true, false, true, false, true, 3, 3, 18, 7, STAYS},
    {"ssd, fading", false, false, false, true, false, false, 4, 2, 5, 4, FADES},
    {"delta, fading", true, false, false, true, false, true, 4, 2, 6, 5, FADES},
    {"delta, channels, fading", true, true, false, true, false, true, 3, 3, 18, 7, FADES},
    {"ssd, ends", false, false, false, true, false, false, 4, 2, 5, 4, ENDS},
    {"delta, ends", true, false, false, true, false, true, 4, 2, 6, 5, ENDS},
    {"delta, channels, ends", true, true, false, true, false, true, 3, 3, 18, 7, ENDS},
    /* key heads with more heads than are taken together */
    {"ssd, shared keys", false, false, false, true, true, false, 12, 2, 5, 4, STAYS},
    {"delta, shared keys", true, false, false, true, false, true, 5, 1, 6, 5, STAYS},
    {"wide", true, true, false, true, true, true, 2, 1, MOST_DK, MOST_DV, STAYS},
};

/* One problem: inputs as the kernel takes them, and as doubles. */
struct data {
    const struct kind *k;
    int type;
    int64_t rows, width[INPUTS];
    struct op_buf in[INPUTS], cu, d_o;
    double *x[INPUTS], *dy;
};

static int type_of(const struct data *d, int i)
{
    return i >= G ? LF_F32 : d->type;
}

static int64_t rows_of(const struct data *d, int i)
{
    return i == SKIP || (i == G && d->k->fixed) ? 1 : d->rows;
}

/* Element e of g. A head or channel that fades fast does so in all rows, or in 24 of 48. Of ENDS,
 * -127 and -129 are on either side of what kernels take for minus infinity. */
static double decay(const struct data *d, int64_t e)
{
    enum { RUN = 24 };
    static const double ends[] = {0,    -1e-30, -1e-7, -1e-3, -INFINITY, -3e38,
                                  -127, -129,   -87.5, -0.5,  0,         -1e-4};
    const int64_t r = e / d->width[G], c = e % d->width[G] % 4;
    if (d->k->decays == ENDS)
        return ends[(int)(5.999 * (1 + op_rand(8, e)))];
    if (d->k->decays == STAYS) /* some rows forget nearly all */
        return op_rand(7, e) > 0.98 ? -40 : -0.4 * fabs(op_rand(8, e));
    return c == 0 || (c > 1 && r / RUN % 2 == 0) ? -20 - op_rand(8, e)
                                                 : -0.02 * fabs(op_rand(8, e));
}

static struct data draw(const struct kind *k, int type)
{
    struct data d = {.k = k, .type = type, .rows = PAD};
    const int64_t width[INPUTS] = {k->groups * k->dk, k->groups * k->dk,
                                   k->heads * k->dv,  k->heads * (k->channel ? k->dk : 1),
                                   k->heads,          k->heads};
    d.cu = op_alloc((DOCS + 1) * 4);
    int32_t *cu = d.cu.p;
    cu[0] = 0;
    for (int i = 0; i < DOCS; i++) {
        cu[i + 1] = cu[i] + (int32_t)lengths[i];
        d.rows += lengths[i];
    }
    memcpy(d.width, width, sizeof width);
    for (int i = 0; i < INPUTS; i++) {
        const int64_t n = rows_of(&d, i) * width[i];
        d.in[i] = op_random(n, type_of(&d, i), (uint64_t)i + 1, 1.0);
        d.x[i] = calloc((size_t)n, sizeof *d.x[i]);
        for (int64_t e = 0; e < n; e++) {
            if (i == G)
                op_set(d.in[i].p, e, LF_F32, decay(&d, e));
            if (i == BETA)
                op_set(d.in[i].p, e, LF_F32, 0.5 + 0.45 * op_rand(9, e));
            d.x[i][e] = op_get(d.in[i].p, e, type_of(&d, i));
        }
    }
    d.d_o = op_random(d.rows * width[V], type, 11, 1.0);
    d.dy = calloc((size_t)(d.rows * width[V]), sizeof *d.dy);
    for (int64_t e = 0; e < d.rows * width[V]; e++)
        d.dy[e] = op_get(d.d_o.p, e, type);
    return d;
}

static void drop(struct data *d)
{
    for (int i = 0; i < INPUTS; i++) {
        op_free(&d->in[i]);
        free(d->x[i]);
    }
    op_free(&d->cu);
    op_free(&d->d_o);
    free(d->dy);
}

static const double scale = 0.4, unit_eps = 1e-6;

/* x as the recurrence takes it: scaled, or of length one first. */
static void taken(const struct data *d, const double *x, double by, double *to)
{
    double sum = unit_eps;
    for (int64_t c = 0; c < d->k->dk; c++)
        sum += x[c] * x[c];
    for (int64_t c = 0; c < d->k->dk; c++)
        to[c] = x[c] * by / (d->k->unit ? sqrt(sum) : 1.0);
}

/* o of head h over the rows of a document; returns its sum with dy. */
static double head_ref(const struct data *d, int doc, int64_t h, double *o)
{
    const struct kind *k = d->k;
    const int32_t *cu = d->cu.p;
    const int64_t j = h / (k->heads / k->groups);
    double s[MOST_DK][MOST_DV] = {{0}}, q[MOST_DK], key[MOST_DK], loss = 0;
    for (int64_t r = cu[doc]; r < cu[doc + 1]; r++) {
        const double *v = d->x[V] + r * d->width[V] + h * k->dv,
                     *g = d->x[G] + (k->fixed ? 0 : r * d->width[G]) + h * (k->channel ? k->dk : 1);
        const double beta = k->beta ? d->x[BETA][r * k->heads + h] : 1;
        taken(d, d->x[Q] + r * d->width[Q] + j * k->dk, scale, q);
        taken(d, d->x[K] + r * d->width[K] + j * k->dk, 1, key);
        for (int64_t c = 0; c < k->dv; c++) {
            double seen = 0, out = k->skip ? d->x[SKIP][h] * v[c] : 0;
            for (int64_t i = 0; i < k->dk; i++) {
                s[i][c] *= exp(g[k->channel ? i : 0]);
                seen += s[i][c] * key[i];
            }
            for (int64_t i = 0; i < k->dk; i++) {
                s[i][c] += key[i] * beta * (v[c] - (k->delta ? seen : 0));
                out += s[i][c] * q[i];
            }
            loss += out * d->dy[r * d->width[V] + h * k->dv + c];
            if (o)
                o[r * d->width[V] + h * k->dv + c] = out;
        }
    }
    return loss;
}

static double doc_ref(const struct data *d, int doc, double *o)
{
    double loss = 0;
    for (int64_t h = 0; h < d->k->heads; h++)
        loss += head_ref(d, doc, h, o);
    return loss;
}

static struct lf_scan_in scan_in(const struct data *d)
{
    const struct kind *k = d->k;
    return (struct lf_scan_in){.rows = d->rows,
                               .heads = k->heads,
                               .groups = k->groups,
                               .dk = k->dk,
                               .dv = k->dv,
                               .n_docs = DOCS,
                               .ldq = d->width[Q],
                               .ldk = d->width[K],
                               .ldv = d->width[V],
                               .ldg = k->fixed ? 0 : d->width[G],
                               .ldbeta = d->width[BETA],
                               .q = d->in[Q].p,
                               .k = d->in[K].p,
                               .v = d->in[V].p,
                               .g = d->in[G].p,
                               .beta = k->beta ? d->in[BETA].p : NULL,
                               .skip = k->skip ? d->in[SKIP].p : NULL,
                               .cu_seqlens = d->cu.p,
                               .scale = (float)scale,
                               .unit_eps = k->unit ? (float)unit_eps : 0,
                               .delta = k->delta,
                               .per_channel = k->channel,
                               .x_type = (uint8_t)d->type,
                               .mode = LF_INVARIANT};
}

static bool call(const struct lf_kernels *k, struct lf_k_scan_fwd *f, int threads)
{
    struct op_buf work = op_alloc(k->scan_fwd.work(f, threads) + 4);
    f->work = work.p;
    f->work_bytes = work.bytes;
    const bool ok = k->scan_fwd.check(f) == 0 && k->scan_fwd.run(queue[threads], f) == 0 &&
                    op_guards_intact(&work);
    op_free(&work);
    return ok;
}

static struct op_buf forward(const struct lf_kernels *k, const struct data *d, int threads,
                             bool *ok)
{
    struct op_buf o =
        op_alloc((size_t)(d->rows * d->width[V]) * lf_dtype_size((enum lf_dtype)d->type));
    struct lf_k_scan_fwd f = {.in = scan_in(d), .o = o.p, .ldo = d->width[V]};
    *ok = call(k, &f, threads) && op_guards_intact(&o) && *ok;
    return o;
}

static void test_forward(const struct lf_kernels *k, const struct data *d, double tol)
{
    const int64_t n = d->rows * d->width[V];
    double *want = calloc((size_t)n, sizeof *want);
    struct op_buf o[4];
    bool same = true;
    for (int i = 0; i < DOCS; i++)
        doc_ref(d, i, want);
    for (int t = 1; t <= OP_THREADS; t++) {
        o[t] = forward(k, d, t, &same);
        same = same && memcmp(o[1].p, o[t].p, o[1].bytes) == 0;
    }
    tap_ok(same, "%s, %s: the same bits with 1 to 3 threads", d->k->name, k->family);
    op_ok(op_compare(o[1].p, d->type, want, NULL, n, tol), d->k->name);
    op_prove(o[1].p, d->type, want, NULL, n, tol, n / 2);
    /* what is in one document stays there */
    struct data other = *d;
    other.in[V] = op_random(n, d->type, 3, 1.0);
    const int32_t *cu = d->cu.p;
    for (int64_t e = cu[3] * d->width[V]; e < cu[4] * d->width[V]; e++)
        op_set(other.in[V].p, e, d->type, NAN);
    struct op_buf apart = forward(k, &other, 1, &same);
    const size_t row = (size_t)d->width[V] * lf_dtype_size((enum lf_dtype)d->type);
    const char *a = apart.p, *b = o[1].p;
    tap_ok(same && memcmp(a, b, (size_t)cu[3] * row) == 0 &&
               memcmp(a + (size_t)cu[4] * row, b + (size_t)cu[4] * row,
                      (size_t)(d->rows - cu[4]) * row) == 0 &&
               memcmp(a, b, apart.bytes) != 0,
           "NaN in one document, and nothing of it in another");
    op_free(&apart);
    op_free(&other.in[V]);
    for (int t = 1; t <= OP_THREADS; t++)
        op_free(&o[t]);
    free(want);
}

/* The derivative of the loss by element e of input i. */
static double by_difference(const struct data *d, int i, int64_t e)
{
    const int32_t *cu = d->cu.p;
    const int64_t r = e / d->width[i];
    const double step = i == G && d->k->decays == FADES ? 1e-2 : 1e-5, old = d->x[i][e];
    double loss[2] = {0};
    for (int side = 0; side < 2; side++) {
        d->x[i][e] = old + (side ? step : -step);
        for (int doc = 0; doc < DOCS; doc++)
            if (rows_of(d, i) == 1 || (r >= cu[doc] && r < cu[doc + 1]))
                loss[side] += doc_ref(d, doc, NULL);
    }
    d->x[i][e] = old;
    return (loss[1] - loss[0]) / (2 * step);
}

/* The gradients of a problem; skip's is added to 0.5. */
static bool backward(const struct lf_kernels *k, const struct data *d, int threads,
                     struct op_buf grad[INPUTS])
{
    for (int i = 0; i < INPUTS; i++)
        grad[i] = op_alloc((size_t)(rows_of(d, i) * d->width[i]) *
                           lf_dtype_size((enum lf_dtype)type_of(d, i)));
    for (int64_t e = 0; e < d->width[SKIP]; e++)
        op_set(grad[SKIP].p, e, LF_F32, 0.5);
    struct lf_k_scan_bwd b = {.in = scan_in(d),
                              .d_o = d->d_o.p,
                              .dq = grad[Q].p,
                              .dk = grad[K].p,
                              .dv = grad[V].p,
                              .dg = d->k->fixed ? NULL : grad[G].p,
                              .dbeta = d->k->beta ? grad[BETA].p : NULL,
                              .dskip = d->k->skip ? grad[SKIP].p : NULL,
                              .lddo = d->width[V],
                              .lddq = d->width[Q],
                              .lddk = d->width[K],
                              .lddv = d->width[V],
                              .lddg = d->width[G],
                              .lddbeta = d->width[BETA],
                              .accumulate = true};
    struct op_buf work = op_alloc(k->scan_bwd.work(&b, threads) + 4);
    b.work = work.p;
    b.work_bytes = work.bytes;
    bool ok = k->scan_bwd.check(&b) == 0 && k->scan_bwd.run(queue[threads], &b) == 0 &&
              op_guards_intact(&work);
    for (int i = 0; i < INPUTS; i++)
        ok = ok && op_guards_intact(&grad[i]);
    op_free(&work);
    return ok;
}

static bool is_given(const struct data *d, int i)
{
    return i == G ? !d->k->fixed : i == BETA ? d->k->beta : i == SKIP ? d->k->skip : true;
}

static void test_backward(const struct lf_kernels *k, const struct data *d, double tol)
{
    struct op_buf grad[4][INPUTS];
    bool same = true;
    for (int t = 1; t <= OP_THREADS; t++) {
        same = backward(k, d, t, grad[t]) && same;
        for (int i = 0; i < INPUTS; i++)
            same = same && memcmp(grad[1][i].p, grad[t][i].p, grad[t][i].bytes) == 0;
    }
    tap_ok(same, "%s, %s: backward, the same bits with 1 to 3 threads", d->k->name, k->family);
    for (int i = 0; i < INPUTS; i++) {
        double want[SAMPLES], got[SAMPLES];
        const int type = type_of(d, i);
        int n = 0;
        for (; n < SAMPLES && is_given(d, i); n++) {
            const int64_t all = (i == SKIP ? 1 : d->rows - PAD) * d->width[i],
                          e = (n * 7919 + all - 1) % all;
            want[n] = by_difference(d, i, e) + (i == SKIP ? 0.5 : 0);
            got[n] = op_get(grad[1][i].p, e, type);
            if (type == LF_BF16 || type == LF_F16) /* the rounding of the result */
                got[n] = fabs(got[n] - want[n]) <= op_eps(type) * fabs(want[n]) ? want[n] : got[n];
        }
        op_ok(op_compare(got, LF_F64, want, NULL, n, tol), names[i]);
        if (i == G && d->k->decays == FADES) {
            double size[SAMPLES];
            for (int s = 0; s < n; s++)
                size[s] = fmax(fabs(want[s]), 1e-10);
#ifdef OP_CUDA /* decays per channel: differences of sums, with the rounding of the largest */
            for (int s = 0; s < n && d->k->channel; s++)
                size[s] = fmax(size[s], 1e-5);
#endif
            op_ok(op_compare(got, LF_F64, want, size, n, 0.02), "digits of the smallest dg");
        }
        for (int64_t e = (d->rows - PAD) * d->width[i]; i < SKIP && e < rows_of(d, i) * d->width[i];
             e++)
            same = same && (!is_given(d, i) || op_get(grad[1][i].p, e, type) == 0);
    }
    tap_ok(same, "gradients of padding are 0");
    for (int t = 1; t <= OP_THREADS; t++)
        for (int i = 0; i < INPUTS; i++)
            op_free(&grad[t][i]);
}

/* The rows of all documents in calls of some rows of each, in an order of their own. */
static void test_calls(const struct lf_kernels *k, const struct data *d, int mode, double tol)
{
    static const int64_t turns[] = {1, 40, 22, 1, 1, 64, 3};
    const int64_t row_in[] = {d->width[Q], d->width[K], d->width[V], d->width[G], d->width[BETA]};
    struct data call_of = *d;
    struct op_buf part[INPUTS], o, seq = op_alloc((size_t)d->rows * 4),
                                   pos = op_alloc((size_t)d->rows * 4), state;
    bool ok = true;
    struct op_buf whole = forward(k, d, 1, &ok);
    struct lf_scan_in shape = scan_in(d);
    const size_t size = lf_dtype_size((enum lf_dtype)d->type), out = (size_t)d->width[V] * size;
    double *want = calloc((size_t)(d->rows * d->width[V]), sizeof *want);
    int64_t at[DOCS] = {0}, left = d->rows - PAD;
    shape.mode = (uint8_t)mode;
    state = op_alloc((size_t)lf_scan_slot(&shape) * DOCS * 4);
    for (int i = 0; i < INPUTS; i++)
        part[i] = op_alloc(d->in[i].bytes);
    memcpy(part[SKIP].p, d->in[SKIP].p, part[SKIP].bytes);
    memcpy(part[G].p, d->in[G].p, d->k->fixed ? part[G].bytes : 4);
    o = op_alloc(whole.bytes);
    char *got = calloc(whole.bytes, 1);
    const int32_t *cu = d->cu.p;
    for (int turn = 0; left > 0; turn++) {
        int64_t n = 0, from[512];
        for (int doc = DOCS - 1; doc >= 0; doc--)
            for (int64_t more = turns[(turn + doc) % 7]; more > 0 && at[doc] < lengths[doc];
                 more--) {
                ((int32_t *)seq.p)[n] = doc;
                ((int32_t *)pos.p)[n] = (int32_t)at[doc];
                from[n++] = cu[doc] + at[doc]++;
            }
        ((int32_t *)seq.p)[n] = -1;
        ((int32_t *)pos.p)[n] = 0;
        from[n] = d->rows - 1;
        for (int i = Q; i <= BETA; i++) {
            const size_t bytes = (size_t)row_in[i] * (i >= G ? 4 : size);
            for (int64_t r = 0; r <= n && rows_of(d, i) > 1; r++)
                memcpy((char *)part[i].p + (size_t)r * bytes,
                       (char *)d->in[i].p + (size_t)from[r] * bytes, bytes);
        }
        memcpy(call_of.in, part, sizeof part);
        struct lf_k_scan_fwd f = {.in = scan_in(&call_of),
                                  .o = o.p,
                                  .ldo = d->width[V],
                                  .state = state.p,
                                  .seq = seq.p,
                                  .pos = pos.p};
        f.in.mode = (uint8_t)mode;
        f.in.rows = n + 1;
        f.in.cu_seqlens = NULL;
        ok = call(k, &f, 1 + turn % OP_THREADS) && op_guards_intact(&state) && ok;
        for (int64_t r = 0; r < n; r++)
            memcpy(got + (size_t)from[r] * out, (char *)o.p + (size_t)r * out, out);
        for (int64_t c = 0; c < d->width[V]; c++)
            ok = ok && op_get(o.p, n * d->width[V] + c, d->type) == 0;
        left -= n;
    }
    for (int doc = 0; doc < DOCS; doc++)
        doc_ref(d, doc, want);
    if (mode == LF_INVARIANT)
        tap_ok(ok && memcmp(got, whole.p, whole.bytes) == 0,
               "%s: rows in several calls have the bits of one", d->k->name);
    else
        op_ok(op_compare(got, d->type, want, NULL, ok ? d->rows * d->width[V] : 1, ok ? tol : -1),
              "rows in several calls, fast");
    for (int i = 0; i < INPUTS; i++)
        op_free(&part[i]);
    op_free(&o);
    op_free(&seq);
    op_free(&pos);
    op_free(&state);
    op_free(&whole);
    free(got);
    free(want);
}

static void test_refusals(const struct lf_kernels *k)
{
    struct data d = draw(&kinds[0], LF_F32);
    struct lf_k_scan_fwd f = {.in = scan_in(&d), .ldo = d.width[V]};
    bool ok = k->scan_fwd.check(&f) == 0;
    f.in.groups = 3;
    ok = ok && k->scan_fwd.check(&f) == LF_K_EINVAL;
    f.in.groups = 2;
    f.in.dk = LF_SCAN_MOST_D + 1;
    ok = ok && k->scan_fwd.check(&f) == LF_K_EINVAL;
    f.in.dk = 5;
    f.ldo--;
    tap_ok(ok && k->scan_fwd.check(&f) == LF_K_EINVAL, "shapes that the scan refuses");
    drop(&d);
}

#ifdef OP_CUDA
/* GPUs with less shared memory: 16 columns at a time, and what has no room is refused. */
static void test_little_memory(const struct lf_kernels *k)
{
    const int all = op_shared(0);
    struct data d = draw(&kinds[sizeof kinds / sizeof *kinds - 1], LF_F32);
    test_backward(k, &d, 4e-5);
    op_shared(all);
    struct lf_kernels less = lf_cuda_kernels, same = lf_cuda_kernels;
    struct lf_k_scan_bwd b = {.in = scan_in(&d), .lddo = 4096, .lddq = 4096, .lddk = 4096};
    b.lddv = b.lddg = b.in.ldq = b.in.ldk = b.in.ldv = b.in.ldg = 4096;
    struct lf_k_scan_fwd f = {.in = b.in, .ldo = 4096};
    lf_cuda_scan_limit(&same, 163 << 10);
    lf_cuda_scan_limit(&less, 99 << 10);
    tap_ok(less.scan_bwd.check(&b) == 0 && less.scan_fwd.check(&f) == 0,
           "a small head fits 99 KiB of shared memory");
    f.in.dk = b.in.dk = f.in.dv = b.in.dv = 128;
    tap_ok(same.scan_bwd.check(&b) == 0 && same.scan_fwd.check(&f) == 0 &&
               less.scan_bwd.check(&b) == LF_K_EINVAL && less.scan_fwd.check(&f) == LF_K_EINVAL,
           "128 channels with a decay each fit 163 KiB, and are refused where there are 99");
    drop(&d);
}
#endif

int main(void)
{
    for (int t = 1; t <= OP_THREADS; t++)
        queue[t] = op_queue_create(t);
    for (int i = 0; i < OP_BACKENDS; i++) {
        const struct lf_kernels *k = op_kernels(i);
        if (!k)
            continue;
        TAP(1, test_refusals(k));
        for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++)
            for (int type = LF_F32;
                 type <= (kinds[n].dk == MOST_DK || kinds[n].heads > 4 || kinds[n].decays == FADES
                              ? LF_F32
                              : OP_LAST_FLOAT);
                 type++) {
                struct data d = draw(&kinds[n], type);
                TAP(4, test_forward(k, &d, kinds[n].decays == FADES ? 2e-6 : 1e-5));
                TAP(2 + INPUTS + (kinds[n].decays == FADES ? 1 : 0), test_backward(k, &d, 4e-5));
                TAP(1, test_calls(k, &d, LF_INVARIANT, 0));
                TAP(1, test_calls(k, &d, LF_FAST, 1e-5));
                drop(&d);
            }
#ifdef OP_CUDA
        TAP(4 + INPUTS, test_little_memory(k));
#endif
    }
    for (int t = 1; t <= OP_THREADS; t++)
        op_queue_destroy(queue[t]);
    return tap_done();
}
