/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_xent (as the loss, and as log-probabilities and entropies whose gradients come from
 * outside) and colsum on every backend. The reference is the loss as a function of (x, w, bias) in
 * f64; gradients are compared with its central differences at sampled places and with its analytic
 * form everywhere. Also: padding columns, ignored and invalid targets, soft capping, z-loss,
 * accumulation, sentinels, thread invariance, several chunks, forward only.
 */
#include "config.h"

#include "tests/op/op_test.h"

#ifdef OP_CUDA
enum { PANELS = 0 };
static int queue_threads(const lf_queue *q)
{
    (void)q;
    return 1;
}
#else
enum { PANELS = 1 };
static int queue_threads(const lf_queue *q)
{
    return lf_cpu_queue_threads(q);
}
#endif

struct xcase {
    int64_t rows, k, v, v_real, pad;
    uint8_t type;
    bool bias, packed, accumulate, forward, frozen;
    float softcap, z_loss;
    bool outside, entropy; /* gradients of sum dlogp logp (+ dentropy entropy) */
    bool measured;         /* the loss, with entropies and their sum beside it */
    float inv_t;
};

struct xdata {
    struct op_buf x, w, bias, packed, dx, dw, db, loss, lse, arg, work, target, logp, entropy,
        dlogp, dentropy;
    struct op_buf rec_buf;
    struct lf_step_record *rec;
    struct lf_k_linear_xent a;
    /* f64 reference */
    double *p, *rloss, *rlse, *rlogp, *rent, *rdx, *rdw, *rdb, *sx, *sw, *sb;
    int32_t *rarg;
};

static double *doubles(int64_t n)
{
    double *p = calloc((size_t)n + 1, sizeof *p);
    if (!p)
        tap_bail("no memory");
    return p;
}

static double inverse_t(const struct xcase *t)
{
    return t->inv_t > 0 ? (double)t->inv_t : 1;
}

/* Capped logits of row r, by temperature. */
static void ref_logits(const struct xdata *d, const struct xcase *t, int64_t r, double *z)
{
    for (int64_t j = 0; j < t->v_real; j++) {
        double s = t->bias ? op_get(d->bias.p, j, t->type) : 0;
        for (int64_t c = 0; c < t->k; c++)
            s += op_get(d->x.p, r * d->a.ldx + c, t->type) *
                 op_get(d->w.p, j * d->a.ldw + c, t->type);
        z[j] =
            inverse_t(t) * (t->softcap > 0 ? (double)t->softcap * tanh(s / (double)t->softcap) : s);
    }
}

static double ref_lse(const double *z, int64_t n)
{
    double m = z[0], s = 0;
    for (int64_t j = 1; j < n; j++)
        m = fmax(m, z[j]);
    for (int64_t j = 0; j < n; j++)
        s += exp(z[j] - m);
    return m + log(s);
}

static double ref_entropy(const double *z, int64_t n, double lse)
{
    double h = 0;
    for (int64_t j = 0; j < n; j++)
        h -= exp(z[j] - lse) * (z[j] - lse);
    return h;
}

static double outside(const struct op_buf *b, int64_t r)
{
    return b->p ? op_get(b->p, r, LF_F32) : 0;
}

/* total of the header's formula, times inv_tokens and loss_scale; or the sums whose gradients come
 * from outside */
static double ref_total(const struct xdata *d, const struct xcase *t)
{
    double *z = doubles(t->v), total = 0;
    for (int64_t r = 0; r < t->rows; r++) {
        int32_t y = ((const int32_t *)d->target.p)[r];
        if (y < 0)
            continue;
        ref_logits(d, t, r, z);
        double lse = ref_lse(z, t->v_real);
        if (t->outside)
            total += outside(&d->dlogp, r) * (z[y] - lse) +
                     outside(&d->dentropy, r) * ref_entropy(z, t->v_real, lse);
        else
            total += lse - z[y] + (double)t->z_loss * lse * lse;
    }
    free(z);
    if (t->outside)
        return total;
    return total * (double)d->rec->inv_tokens * (double)d->rec->loss_scale;
}

/* d total / d z_j of one row, and how large the terms of it are. */
static double ref_dz(const struct xdata *d, const struct xcase *t, int64_t r, double zj, double lse,
                     double entropy, bool target, double *size)
{
    double p = exp(zj - lse), dz;
    if (t->outside) {
        double dl = outside(&d->dlogp, r), dh = outside(&d->dentropy, r);
        dz = dl * (target - p) - dh * p * (zj - lse + entropy);
        *size = fabs(dl) * (target + p) + fabs(dh) * p * (fabs(zj - lse) + entropy);
    } else {
        dz = (double)d->rec->inv_tokens * (double)d->rec->loss_scale *
             (p * (1 + 2 * (double)t->z_loss * lse) - target);
        *size = fabs(dz);
    }
    double capped = zj / inverse_t(t) / (t->softcap > 0 ? (double)t->softcap : 1),
           slope = inverse_t(t);
    if (t->softcap > 0)
        slope *= 1 - capped * capped;
    *size *= fabs(slope);
    return dz * slope;
}

static void reference(struct xdata *d, const struct xcase *t)
{
    for (int64_t r = 0; r < t->rows; r++) {
        double *z = d->p;
        int32_t y = ((const int32_t *)d->target.p)[r];
        d->rarg[r] = y < 0 ? -1 : 0;
        if (y < 0) /* all of its results are 0 */
            continue;
        ref_logits(d, t, r, z);
        double lse = ref_lse(z, t->v_real);
        d->rlse[r] = lse;
        double entropy = ref_entropy(z, t->v_real, lse);
        d->rloss[r] = lse - z[y];
        d->rlogp[r] = -d->rloss[r];
        d->rent[r] = entropy;
        for (int64_t j = 1; j < t->v_real; j++)
            if (z[j] > z[d->rarg[r]])
                d->rarg[r] = (int32_t)j;
        for (int64_t j = 0; j < t->v_real; j++) {
            double size, dz = ref_dz(d, t, r, z[j], lse, entropy, j == y, &size);
            double store =
                t->type == LF_F32
                    ? 0
                    : fabs(dz) * op_eps(t->type) +
                          (t->type == LF_F16 ? 0x1p-25 : 0); /* dz is rounded to x_type */
            d->rdb[j] += dz;
            d->sb[j] += size + store / 1e-6;
            for (int64_t c = 0; c < t->k; c++) {
                double x = op_get(d->x.p, r * d->a.ldx + c, t->type),
                       w = op_get(d->w.p, j * d->a.ldw + c, t->type);
                d->rdx[r * t->k + c] += dz * w;
                d->rdw[j * t->k + c] += dz * x;
                d->sx[r * t->k + c] += (size + store / 1e-6) * fabs(w);
                d->sw[j * t->k + c] += (size + store / 1e-6) * fabs(x);
            }
        }
    }
}

static void setup(struct xdata *d, const struct xcase *t, const struct lf_kernels *k, lf_queue *q)
{
    struct lf_k_linear_xent *a = &d->a;
    *d = (struct xdata){0};
    d->rec_buf = op_alloc(sizeof *d->rec);
    d->rec = d->rec_buf.p;
    *d->rec =
        (struct lf_step_record){.z_loss = t->z_loss, .inv_tokens = 1.0f / 37, .loss_scale = 2.0f};
    *a = (struct lf_k_linear_xent){.rows = t->rows,
                                   .k = t->k,
                                   .v = t->v,
                                   .v_real = t->v_real,
                                   .ldx = t->k + t->pad,
                                   .ldw = t->k + t->pad,
                                   .lddx = t->k,
                                   .softcap = t->softcap,
                                   .inv_temperature = t->inv_t,
                                   .accumulate = t->accumulate,
                                   .x_type = t->type,
                                   .mode = LF_INVARIANT,
                                   .rec = t->outside ? NULL : d->rec};
    d->x = op_random((t->rows - 1) * a->ldx + t->k, t->type, 50, 1);
    d->w = op_random((t->v - 1) * a->ldw + t->k, t->type, 51, 1);
    d->target = op_alloc((size_t)t->rows * 4);
    for (int64_t r = 0; r < t->rows; r++)
        ((int32_t *)d->target.p)[r] =
            op_rand(52, r) < -0.7 ? -1 : (int32_t)((op_rand(53, r) + 1) * 0.5 * (double)t->v_real);
    a->x = d->x.p;
    a->w = d->w.p;
    a->target = d->target.p;
    if (t->bias) {
        d->bias = op_random(t->v, t->type, 54, 1);
        a->bias = d->bias.p;
    }
    d->loss = op_random(t->rows, LF_F32, 55, 1);
    d->lse = op_random(t->rows, LF_F32, 56, 1);
    d->arg = op_alloc((size_t)t->rows * 4);
    if (t->outside) {
        d->logp = op_random(t->rows, LF_F32, 60, 1), d->dlogp = op_random(t->rows, LF_F32, 62, 1);
        a->logp = d->logp.p, a->dlogp = d->dlogp.p;
    }
    if (t->outside || t->measured) {
        d->entropy = op_random(t->rows, LF_F32, 61, 1);
        a->entropy = d->entropy.p;
    }
    if (t->entropy) {
        d->dentropy = op_random(t->rows, LF_F32, 63, 1);
        a->dentropy = d->dentropy.p;
    }
    a->loss = d->loss.p;
    a->lse = d->lse.p;
    a->argmax = d->arg.p;
    if (!t->forward) {
        d->dx = op_random(t->rows * t->k, t->type, 57, 1);
        a->dx = d->dx.p;
        if (!t->frozen) {
            d->dw = op_random(t->v * t->k, LF_F32, 58, 1);
            a->dw = d->dw.p;
            d->db = op_random(t->v, LF_F32, 59, 1);
            a->db = d->db.p;
        }
    }
    if (t->packed && PANELS) {
        size_t bytes = lf_cpu_gemm_packed_bytes(t->v, t->k, (enum lf_dtype)t->type);
        d->packed = op_alloc(bytes);
        struct lf_k_gemm_pack p = {.n = t->v,
                                   .k = t->k,
                                   .b = d->w.p,
                                   .ldb = a->ldw,
                                   .tb = true,
                                   .src_type = t->type,
                                   .ab_type = t->type,
                                   .packed = d->packed.p,
                                   .packed_bytes = bytes};
        if (k->gemm_pack.run(q, &p))
            tap_bail("gemm_pack");
        a->w_packed = d->packed.p;
    }
    a->work_bytes = k->linear_xent.work(a, queue_threads(q));
    d->work = op_alloc(a->work_bytes);
    a->work = d->work.p;
    d->rlogp = doubles(t->rows), d->rent = doubles(t->rows);
    d->p = doubles(t->v), d->rloss = doubles(t->rows), d->rlse = doubles(t->rows),
    d->rarg = calloc((size_t)t->rows, 4);
    d->rdx = doubles(t->rows * t->k), d->sx = doubles(t->rows * t->k);
    d->rdw = doubles(t->v * t->k), d->sw = doubles(t->v * t->k), d->rdb = doubles(t->v),
    d->sb = doubles(t->v);
    for (int64_t i = 0; t->accumulate && !t->forward && !t->frozen && i < t->v * t->k; i++)
        d->rdw[i] = op_get(d->dw.p, i, LF_F32);
    for (int64_t i = 0; t->accumulate && !t->forward && !t->frozen && i < t->v; i++)
        d->rdb[i] = op_get(d->db.p, i, LF_F32);
}

static void teardown(struct xdata *d)
{
    op_free(&d->rec_buf);
    op_free(&d->x), op_free(&d->w), op_free(&d->bias), op_free(&d->packed), op_free(&d->dx),
        op_free(&d->dw), op_free(&d->db);
    op_free(&d->loss), op_free(&d->lse), op_free(&d->arg), op_free(&d->work), op_free(&d->target);
    op_free(&d->logp), op_free(&d->entropy), op_free(&d->dlogp), op_free(&d->dentropy);
    free(d->rlogp), free(d->rent);
    free(d->p), free(d->rloss), free(d->rlse), free(d->rdx), free(d->rdw), free(d->rdb),
        free(d->sx), free(d->sw), free(d->sb);
    free(d->rarg);
}

static bool sums_right(const struct xdata *d, const struct xcase *t)
{
    double loss = 0, z = 0, entropy = 0;
    int64_t tokens = 0, correct = 0;
    for (int64_t r = 0; r < t->rows && !t->outside; r++) {
        int32_t y = ((const int32_t *)d->target.p)[r];
        if (y < 0)
            continue;
        loss += (double)((const float *)d->loss.p)[r];
        z += (double)((const float *)d->lse.p)[r] * (double)((const float *)d->lse.p)[r];
        entropy += d->entropy.p ? (double)((const float *)d->entropy.p)[r] : 0;
        tokens++;
        correct += ((const int32_t *)d->arg.p)[r] == y;
    }
    return d->rec->loss_sum == loss && d->rec->z_sum == z && d->rec->entropy_sum == entropy &&
           d->rec->tokens == tokens && d->rec->correct == correct;
}

static bool say(struct op_diff x, const char *what)
{
    if (x.bad >= 0)
        tap_diag("%s element %lld: got %.9g, want %.9g, limit %.3g", what, (long long)x.bad, x.got,
                 x.want, x.limit);
    return x.bad < 0;
}

static bool run_case(const struct lf_kernels *k, lf_queue *q, const struct xcase *t, bool prove)
{
    struct xdata d;
    setup(&d, t, k, q);
    reference(&d, t);
    bool ok = k->linear_xent.check(&d.a) == LF_K_OK && k->linear_xent.run(q, &d.a) == LF_K_OK;
    double kt = 6e-8 * (sqrt((double)t->k) + 8) * (double)t->k,
           ft = 1e-6 * (1 + sqrt((double)t->v) / 8);
    ok = say(op_compare(d.loss.p, LF_F32, d.rloss, NULL, t->rows, kt), "loss") && ok;
    ok = say(op_compare(d.lse.p, LF_F32, d.rlse, NULL, t->rows, kt), "lse") && ok;
    ok = !memcmp(d.arg.p, d.rarg, (size_t)t->rows * 4) && sums_right(&d, t) && ok;
    if (t->outside) {
        ok = say(op_compare(d.logp.p, LF_F32, d.rlogp, NULL, t->rows, kt), "logp") &&
             op_guards_intact(&d.logp) && ok;
        for (int64_t r = 0; r < t->rows; r++)
            ok = ((const float *)d.logp.p)[r] == -((const float *)d.loss.p)[r] && ok;
    }
    if (t->outside || t->measured)
        ok = say(op_compare(d.entropy.p, LF_F32, d.rent, NULL, t->rows, ft + kt), "entropy") &&
             op_guards_intact(&d.entropy) && ok;
    if (!t->forward)
        ok = say(op_compare(d.dx.p, t->type, d.rdx, d.sx, t->rows * t->k, ft + kt), "dx") &&
             op_guards_intact(&d.dx) && ok;
    if (!t->forward && !t->frozen) {
        ok = say(op_compare(d.dw.p, LF_F32, d.rdw, d.sw, t->v * t->k, ft + kt), "dw") &&
             op_guards_intact(&d.dw) && ok;
        ok = say(op_compare(d.db.p, LF_F32, d.rdb, d.sb, t->v, ft + kt), "db") &&
             op_guards_intact(&d.db) && ok;
    }
    ok = ok && op_guards_intact(&d.loss) && op_guards_intact(&d.lse) && op_guards_intact(&d.arg) &&
         op_guards_intact(&d.work);
    if (!ok)
        tap_diag("%s rows %lld k %lld v %lld real %lld type %d bias %d packed %d acc %d fwd %d cap "
                 "%g z %g",
                 k->family, (long long)t->rows, (long long)t->k, (long long)t->v,
                 (long long)t->v_real, t->type, t->bias, t->packed, t->accumulate, t->forward,
                 (double)t->softcap, (double)t->z_loss);
    if (prove)
        op_prove(d.dw.p, LF_F32, d.rdw, d.sw, t->v * t->k, ft + kt, t->k + 1);
    teardown(&d);
    return ok;
}

/* The kernel's gradients against central differences of ref_total, which shares no derivative with
 * anything. */
static void differences(const struct lf_kernels *k, lf_queue *q, bool outside)
{
    const struct xcase t = {.rows = 9,
                            .k = 11,
                            .v = 23,
                            .v_real = 21,
                            .type = LF_F32,
                            .bias = true,
                            .softcap = 3,
                            .z_loss = 0.01f,
                            .outside = outside,
                            .entropy = outside,
                            .inv_t = outside ? 1 / 0.7f : 0};
    struct xdata d;
    setup(&d, &t, k, q);
    bool ok = k->linear_xent.run(q, &d.a) == LF_K_OK;
    double worst = 0;
    const struct op_buf *in[3] = {&d.x, &d.w, &d.bias}, *out[3] = {&d.dx, &d.dw, &d.db};
    const int64_t n[3] = {t.rows * t.k, t.v * t.k, t.v};
    for (int i = 0; i < 3; i++)
        for (int64_t e = 0; e < n[i]; e += 1 + n[i] / 60) {
            float *p = (float *)in[i]->p + e, old = *p;
            const float h = 0x1p-9f;
            *p = old + h;
            double hi = (double)*p, up = ref_total(&d, &t);
            *p = old - h;
            double lo = (double)*p, down = ref_total(&d, &t);
            *p = old;
            double err = fabs((up - down) / (hi - lo) - (double)((const float *)out[i]->p)[e]);
            worst = tap_worse(worst, err);
        }
    tap_ok(ok && worst < (outside ? 3e-5 : 3e-6),
           "%s: gradients%s equal central differences of the f64 loss", k->family,
           outside ? " from outside" : "");
    tap_diag("largest difference %.2g", worst);
    teardown(&d);
}

static void invalid_target(const struct lf_kernels *k, lf_queue *q)
{
    const struct xcase t = {.rows = 3, .k = 8, .v = 20, .v_real = 18, .type = LF_F32};
    struct xdata d;
    setup(&d, &t, k, q);
    ((int32_t *)d.target.p)[0] = 18; /* a padding column */
    ((int32_t *)d.target.p)[1] = -1;
    ((int32_t *)d.target.p)[2] = 3;
    bool ok = k->linear_xent.run(q, &d.a) == LF_K_OK;
    const float *loss = d.loss.p, *dx = d.dx.p;
    tap_ok(ok && isnan(loss[0]) && isnan(dx[0]) && loss[1] == 0 && dx[8] == 0 && dx[15] == 0 &&
               isfinite(loss[2]) && isfinite(dx[16]) && isnan(d.rec->loss_sum),
           "%s: a target beyond the vocabulary is NaN, an ignored one contributes nothing",
           k->family);
    teardown(&d);
}

static void same_bits(const struct lf_kernels *k, uint8_t type)
{
    const struct xcase t = {
        .rows = PANELS ? 530 : 300, .k = 24, .v = 130, .v_real = 127, .type = type, .bias = true};
    lf_queue *q1 = op_queue_create(1), *q3 = op_queue_create(3);
    struct xdata a, b;
    setup(&a, &t, k, q1);
    setup(&b, &t, k, q3);
    bool ok = k->linear_xent.run(q1, &a.a) == LF_K_OK && k->linear_xent.run(q3, &b.a) == LF_K_OK;
    ok = ok && !memcmp(a.dw.p, b.dw.p, a.dw.bytes) && !memcmp(a.dx.p, b.dx.p, a.dx.bytes) &&
         !memcmp(a.db.p, b.db.p, a.db.bytes) && !memcmp(a.loss.p, b.loss.p, a.loss.bytes) &&
         !memcmp(a.rec, b.rec, sizeof *a.rec);
    /* forward alone, fewer rows, from another place: the same loss bits */
    struct lf_k_linear_xent f = b.a;
    f.dx = NULL;
    f.dw = f.db = NULL;
    f.rows = 7;
    f.x = (const char *)b.x.p + (size_t)(100 * t.k) * lf_dtype_size((enum lf_dtype)type);
    f.target = (const int32_t *)b.target.p + 100;
    ok = ok && k->linear_xent.run(q3, &f) == LF_K_OK &&
         !memcmp(b.loss.p, (const float *)a.loss.p + 100, 28);
    tap_ok(ok, "%s: type %d: bits do not depend on threads, rows or position", k->family, type);
    teardown(&a);
    teardown(&b);
    op_queue_destroy(q1);
    op_queue_destroy(q3);
}

#ifndef OP_CUDA
/* Rows without a target cost nothing: scattered among others or not, those with one have the bits
 * of a call over them alone. */
static void rows_left_out(const struct lf_kernels *k, lf_queue *q, uint8_t type, bool scattered)
{
    const struct xcase t = {.rows = 1300, .k = 24, .v = 70, .v_real = 67, .type = type, .pad = 3};
    struct xdata a, b;
    setup(&a, &t, k, q);
    setup(&b, &t, k, q);
    const size_t row = (size_t)a.a.ldx * lf_dtype_size((enum lf_dtype)type),
                 dx = (size_t)t.k * lf_dtype_size((enum lf_dtype)type);
    int32_t *ya = a.target.p, *yb = b.target.p, from[1300], n = 0;
    for (int32_t r = 0; r < t.rows; r++) {
        ya[r] = (scattered ? r % 3 == 0 : r < 200 || r >= 900) ? -1 : (int32_t)(r % t.v_real);
        if (ya[r] < 0)
            continue;
        memcpy((char *)b.x.p + (size_t)n * row, (char *)a.x.p + (size_t)r * row,
               (size_t)t.k * lf_dtype_size((enum lf_dtype)type));
        yb[n] = ya[r];
        from[n++] = r;
    }
    b.a.rows = n;
    bool ok = k->linear_xent.run(q, &a.a) == LF_K_OK && k->linear_xent.run(q, &b.a) == LF_K_OK;
    ok = ok && !memcmp(a.dw.p, b.dw.p, a.dw.bytes) && !memcmp(a.db.p, b.db.p, a.db.bytes) &&
         !memcmp(a.rec, b.rec, sizeof *a.rec);
    for (int32_t i = 0; ok && i < n; i++)
        ok = ((const float *)a.lse.p)[from[i]] == ((const float *)b.lse.p)[i] &&
             !memcmp((char *)a.dx.p + (size_t)from[i] * dx, (char *)b.dx.p + (size_t)i * dx, dx);
    for (int32_t r = 0; ok && r < t.rows; r++)
        for (int64_t c = 0; ok && ya[r] < 0 && c < t.k; c++)
            ok = op_get(a.dx.p, r * t.k + c, type) == 0 && ((const float *)a.loss.p)[r] == 0 &&
                 ((const int32_t *)a.arg.p)[r] == -1;
    for (int32_t r = 0; r < t.rows; r++) /* none left */
        ya[r] = -1;
    ok = ok && k->linear_xent.run(q, &a.a) == LF_K_OK && op_guards_intact(&a.work) &&
         op_guards_intact(&a.dx);
    for (int64_t e = 0; ok && e < t.v * t.k; e++)
        ok = ((const float *)a.dw.p)[e] == 0 && ((const float *)a.db.p)[e % t.v] == 0;
    tap_ok(ok && n > 512,
           "%s: type %d: rows with a target, %s, have the bits of a call over them alone",
           k->family, type, scattered ? "scattered" : "in one piece");
    teardown(&a);
    teardown(&b);
}

struct given {
    int calls;
    size_t bytes[4];
};

static int gather(void *user, void *all, size_t bytes)
{
    struct given *g = user;
    (void)all; /* one rank: its part is all */
    g->bytes[g->calls++ % 4] = bytes;
    return 0;
}

/* What ranks of a divided vocabulary give each other follows from the shapes, however many rows
 * have a target; and one rank of one has the bits of the whole. */
static void exchanges(const struct lf_kernels *k, lf_queue *q, int every)
{
    const struct xcase t = {.rows = 1300, .k = 8, .v = 33, .v_real = 30};
    struct given given = {0};
    const struct lf_k_ranks one = {.ranks = 1, .gather = gather, .user = &given};
    struct xdata a, b;
    setup(&a, &t, k, q);
    setup(&b, &t, k, q);
    for (int32_t r = 0; r < t.rows; r++)
        ((int32_t *)a.target.p)[r] = ((int32_t *)b.target.p)[r] =
            every && r % every == 0 ? (int32_t)(r % t.v_real) : -1;
    b.a.with = &one;
    b.a.v_all = t.v_real;
    bool ok = k->linear_xent.run(q, &a.a) == LF_K_OK && k->linear_xent.run(q, &b.a) == LF_K_OK;
    ok = ok && !memcmp(a.dw.p, b.dw.p, a.dw.bytes) && !memcmp(a.dx.p, b.dx.p, a.dx.bytes) &&
         !memcmp(a.loss.p, b.loss.p, a.loss.bytes) && !memcmp(a.rec, b.rec, sizeof *a.rec);
    ok = ok && given.calls == 3 && given.bytes[0] == (size_t)LF_XENT_ROWS * LF_XENT_PART &&
         given.bytes[1] == given.bytes[0] &&
         given.bytes[2] == (size_t)(t.rows - 2 * LF_XENT_ROWS) * LF_XENT_PART;
    tap_ok(ok, "%s: %d calls for 1300 rows, one in %d with a target; the same bits", k->family,
           given.calls, every);
    teardown(&a);
    teardown(&b);
}
#endif

/* What one of two ranks gives the other. */
struct pair {
    char *said[2]; /* calls of `room` bytes, of each rank */
    int rank, calls;
    size_t room;
    lf_queue *q;
    bool listen; /* the other has spoken */
};

static int give(void *user, void *all, size_t bytes)
{
    struct pair *p = user;
    char *to = all, *mine = p->said[p->rank] + (size_t)p->calls * p->room;
    const char *other = p->said[!p->rank] + (size_t)p->calls * p->room;
    op_queue_wait(p->q);
    p->calls++;
    memcpy(mine, to + (size_t)p->rank * bytes, bytes);
    if (p->listen)
        memcpy(to + (size_t)!p->rank * bytes, other, bytes);
    return bytes > p->room;
}

/* Rank r of two has columns [r v / 2, (r + 1) v / 2) of d. */
static void divide(struct xdata *d, const struct xcase *t, struct lf_k_ranks *with, int r)
{
    const int64_t half = t->v / 2, at = r * half, real = t->v_real - at;
    const size_t size = lf_dtype_size((enum lf_dtype)t->type);
    d->a.w = (const char *)d->w.p + (size_t)(at * d->a.ldw) * size;
    d->a.bias = d->bias.p ? (const char *)d->bias.p + (size_t)at * size : NULL;
    d->a.dw = d->a.dw ? d->a.dw + at * t->k : NULL;
    d->a.db = d->a.db ? d->a.db + at : NULL;
    d->a.v = half;
    d->a.v0 = at;
    d->a.v_real = real < 0 ? 0 : real < half ? real : half;
    d->a.v_all = t->v_real;
    d->a.with = with;
    with->rank = r;
}

static bool near(double got, double want, double tol)
{
    return (isnan(got) && isnan(want)) || fabs(got - want) <= tol * (1 + fabs(want));
}

/* Each rank speaks first, then hears what the other has said. */
static bool speak_and_hear(const struct lf_kernels *k, lf_queue *q, struct xdata d[2],
                           struct pair *p)
{
    bool ok = true;
    for (int turn = 0; turn < 4; turn++) {
        const int r = turn % 2;
        p->rank = r;
        p->calls = 0;
        p->listen = turn >= 2;
        d[r].rec->loss_sum = d[r].rec->z_sum = d[r].rec->entropy_sum = 0;
        d[r].rec->tokens = d[r].rec->correct = 0;
        ok = ok && k->linear_xent.check(&d[r].a) == LF_K_OK &&
             k->linear_xent.run(q, &d[r].a) == LF_K_OK;
    }
    return ok;
}

/* Two ranks that divide the vocabulary find what one finds: the same results on both, each its
 * columns' gradients, and the addends of dx. */
static void two_ranks(const struct lf_kernels *k, lf_queue *q, struct xcase t, const char *what)
{
    struct xdata one, d[2];
    struct lf_k_ranks with[2];
    struct pair p = {.room = (size_t)t.rows * LF_XENT_PART, .q = q};
    double *got = doubles(t.rows * t.k);
    const double tol = t.type == LF_F32 ? 1e-5 : 2e-2;
    int64_t each;
    bool ok = true;
    setup(&one, &t, k, q);
    if (t.frozen)
        ((int32_t *)one.target.p)[0] = (int32_t)t.v_real; /* no such column: NaN */
    ok = k->linear_xent.run(q, &one.a) == LF_K_OK;
    for (int r = 0; r < 2; r++) {
        p.said[r] = calloc(8, p.room);
        with[r] = (struct lf_k_ranks){.ranks = 2, .gather = give, .user = &p};
        setup(&d[r], &t, k, q);
        ((int32_t *)d[r].target.p)[0] = ((int32_t *)one.target.p)[0];
        divide(&d[r], &t, &with[r], r);
        op_free(&d[r].work);
        d[r].a.work_bytes = k->linear_xent.work(&d[r].a, queue_threads(q));
        d[r].work = op_alloc(d[r].a.work_bytes);
        d[r].a.work = d[r].work.p;
    }
    each = PANELS ? LF_XENT_ROWS : lf_cuda_xent_rows(&d[0].a);
    ok = ok && speak_and_hear(k, q, d, &p) && p.calls == (t.rows + each - 1) / each;
    for (int r = 0; r < 2 && ok; r++) {
        const struct op_buf *g[] = {&d[r].loss, &d[r].lse, &d[r].entropy, &d[r].logp},
                            *w[] = {&one.loss, &one.lse, &one.entropy, &one.logp};
        for (int i = 0; i < 4; i++)
            for (int64_t j = 0; w[i]->p && j < t.rows; j++)
                ok = ok && near(op_get(g[i]->p, j, LF_F32), op_get(w[i]->p, j, LF_F32), 1e-5);
        ok = ok && !memcmp(d[r].arg.p, one.arg.p, one.arg.bytes) &&
             !memcmp(d[r].loss.p, d[0].loss.p, one.loss.bytes) &&
             !memcmp(d[r].rec, d[0].rec, sizeof *one.rec) && d[r].rec->tokens == one.rec->tokens &&
             d[r].rec->correct == one.rec->correct && (t.frozen || op_guards_intact(&d[r].dw)) &&
             op_guards_intact(&d[r].work);
        for (int64_t j = r * t.v / 2 * t.k; ok && !t.frozen && j < (r + 1) * t.v / 2 * t.k; j++)
            ok = near(op_get(d[r].dw.p, j, LF_F32), op_get(one.dw.p, j, LF_F32), tol);
        for (int64_t j = r * t.v / 2; ok && !t.frozen && j < (r + 1) * t.v / 2; j++)
            ok = near(op_get(d[r].db.p, j, LF_F32), op_get(one.db.p, j, LF_F32), tol);
        for (int64_t j = 0; j < t.rows * t.k; j++)
            got[j] += op_get(d[r].dx.p, j, t.type);
    }
    for (int64_t j = 0; ok && j < t.rows * t.k; j++)
        ok = near(got[j], op_get(one.dx.p, j, t.type), tol);
    tap_ok(ok, "%s: type %d: two ranks with half of the vocabulary each, %s", k->family, t.type,
           what);
    free(got);
    teardown(&one);
    for (int r = 0; r < 2; r++) {
        free(p.said[r]);
        teardown(&d[r]);
    }
}

static void two_ranks_all(const struct lf_kernels *k, lf_queue *q)
{
    struct xcase t = {.rows = 33, .k = 24, .v = 96, .v_real = 91, .bias = true};
    for (int type = LF_F32; type <= OP_LAST_FLOAT; type++) {
        t.type = (uint8_t)type;
        two_ranks(k, q, t, "the loss");
    }
    t.type = LF_F32;
    t.softcap = 3, t.z_loss = 0.02f, t.measured = true;
    two_ranks(k, q, t, "capped, with entropies");
    t.v_real = 40;
    two_ranks(k, q, t, "of which one is padding");
    t.outside = t.entropy = true, t.measured = false, t.v_real = 91, t.inv_t = 1.25f;
    two_ranks(k, q, t, "log-probabilities");
    t.frozen = true;
    two_ranks(k, q, t, "and a target that nobody has");
    t = (struct xcase){.rows = PANELS ? 1100 : 4200, .k = 8, .v = 34, .v_real = 30};
    two_ranks(k, q, t, "in several chunks");
}

/* The loss of a further head: weighed by more_inv, without z_loss, and added up in its place. */
static void further_head(const struct lf_kernels *k, lf_queue *q, bool chunks)
{
    struct xcase t = {.rows = !chunks ? 21 : PANELS ? 1100 : 4200, .k = 24, .v = 70, .v_real = 67};
    struct xdata own, more;
    setup(&own, &t, k, q);
    t.z_loss = 0.1f;
    setup(&more, &t, k, q);
    more.rec->inv_tokens = 5;
    more.rec->more_inv = own.rec->inv_tokens;
    more.a.head = LF_MORE_HEADS;
    const struct lf_step_record begin = *more.rec;
    bool ok = k->linear_xent.check(&more.a) == LF_K_OK &&
              k->linear_xent.run(q, &own.a) == LF_K_OK && k->linear_xent.run(q, &more.a) == LF_K_OK;
    const struct lf_step_record *a = own.rec, *b = more.rec;
    ok = ok && !memcmp(own.dw.p, more.dw.p, own.dw.bytes) &&
         !memcmp(own.dx.p, more.dx.p, own.dx.bytes) && !memcmp(own.db.p, more.db.p, own.db.bytes);
    ok = ok && a->loss_sum > 0 && b->more_loss[LF_MORE_HEADS - 1] == a->loss_sum &&
         b->more_tokens[LF_MORE_HEADS - 1] == a->tokens &&
         b->more_correct[LF_MORE_HEADS - 1] == a->correct;
    more.rec->more_loss[LF_MORE_HEADS - 1] = 0;
    more.rec->more_tokens[LF_MORE_HEADS - 1] = more.rec->more_correct[LF_MORE_HEADS - 1] = 0;
    ok = ok && !memcmp(more.rec, &begin, sizeof begin);
    more.a.head = LF_MORE_HEADS + 1;
    tap_ok(ok && k->linear_xent.check(&more.a) == LF_K_EINVAL,
           "%s: the loss of a further head%s has its own weight and sums", k->family,
           chunks ? ", in several chunks," : "");
    teardown(&own);
    teardown(&more);
}

/* Logits made by gemm, one row at a time and packed as decoding does it: lse and argmax have the
 * bits of the fused layer. */
static void sampling_agrees(const struct lf_kernels *k, lf_queue *q, uint8_t type, float inv_t)
{
    const struct xcase t = {.rows = 21,
                            .k = 40,
                            .v = PANELS ? 4500 : 1300,
                            .v_real = PANELS ? 4490 : 1290,
                            .type = type,
                            .bias = true,
                            .packed = true,
                            .softcap = 5,
                            .outside = true,
                            .inv_t = inv_t};
    struct xdata d;
    setup(&d, &t, k, q);
    bool ok = k->linear_xent.run(q, &d.a) == LF_K_OK;
    struct op_buf zb = op_alloc((size_t)t.v * sizeof(float)), lb = op_alloc(sizeof(float)),
                  ab = op_alloc(sizeof(int32_t));
    float *z = zb.p, *lse = lb.p;
    int32_t *arg = ab.p;
    for (int64_t r = 0; ok && r < t.rows; r += PANELS ? 1 : 7) {
        const char *x =
            (const char *)d.x.p + (size_t)(r * d.a.ldx) * lf_dtype_size((enum lf_dtype)type);
        struct lf_k_gemm g = {.m = 1,
                              .n = t.v,
                              .k = t.k,
                              .a = x,
                              .b = d.a.w,
                              .b_packed = d.a.w_packed,
                              .c = z,
                              .bias = d.a.bias,
                              .lda = d.a.ldx,
                              .ldb = d.a.ldw,
                              .ldc = t.v,
                              .tb = true,
                              .ab_type = type,
                              .c_type = LF_F32,
                              .bias_type = type,
                              .mode = LF_INVARIANT};
        struct op_buf work = op_random((int64_t)k->gemm.work(&g, 2) / 4 + 1, LF_F32, 1, 1);
        g.work = work.p;
        g.work_bytes = work.bytes;
        struct lf_k_logit_stats s = {1, t.v_real, t.v, z, lse, arg, t.softcap, inv_t};
        ok = k->gemm.run(q, &g) == LF_K_OK && k->logit_stats.check(&s) == LF_K_OK &&
             k->logit_stats.run(q, &s) == LF_K_OK;
        int32_t y = ((const int32_t *)d.target.p)[r];
        float loss = y < 0 ? 0 : *lse - z[y], logp = y < 0 ? 0 : z[y] - *lse;
        ok = ok && logp == ((const float *)d.logp.p)[r] &&
             (y < 0 ? 0 : *lse) == ((const float *)d.lse.p)[r] &&
             (y < 0 ? -1 : *arg) == ((const int32_t *)d.arg.p)[r] &&
             loss == ((const float *)d.loss.p)[r];
        op_free(&work);
    }
    tap_ok(ok, "%s: type %d, 1/T %g: sampling sees the log-probabilities of the loss, bit for bit",
           k->family, type, (double)inv_t);
    op_free(&zb), op_free(&lb), op_free(&ab);
    teardown(&d);
}

static void colsums(const struct lf_kernels *k, lf_queue *q)
{
    int bad = 0;
    lf_queue *q3 = op_queue_create(3);
    for (int64_t i = 0; i < (PANELS ? 60 : 30); i++) {
        int64_t rows = (int64_t)((op_rand(70, i) + 1) * (PANELS ? 100 : 400)),
                n = 1 + (int64_t)((op_rand(71, i) + 1) * 100), ld = n + i % 3;
        int type = (int)(i % (OP_LAST_FLOAT + 1));
        struct op_buf dy = op_random(rows ? (rows - 1) * ld + n : 0, type, 72, 1),
                      db = op_random(n, LF_F32, 73, 1);
        struct op_buf db3 = op_random(n, LF_F32, 73, 1);
        double *want = doubles(n), *scale = doubles(n);
        bool acc = i % 4 >= 2;
        for (int64_t c = 0; c < n; c++) {
            want[c] = acc ? op_get(db.p, c, LF_F32) : 0;
            for (int64_t r = 0; r < rows; r++) {
                want[c] += op_get(dy.p, r * ld + c, type);
                scale[c] += fabs(op_get(dy.p, r * ld + c, type));
            }
        }
        struct lf_k_colsum a = {.rows = rows,
                                .n = n,
                                .dy = dy.p,
                                .ld = ld,
                                .dy_type = (uint8_t)type,
                                .db = db.p,
                                .accumulate = acc};
        struct op_buf work = op_alloc(a.work_bytes = k->colsum.work(&a, 3));
        a.work = work.p;
        bool ok = k->colsum.check(&a) == LF_K_OK && k->colsum.run(q, &a) == LF_K_OK;
        a.db = db3.p;
        ok = ok && k->colsum.run(q3, &a) == LF_K_OK && !memcmp(db.p, db3.p, db.bytes);
        bad += !(ok && op_compare(db.p, LF_F32, want, scale, n, 1e-6).bad < 0 &&
                 op_guards_intact(&db));
        free(want), free(scale);
        op_free(&dy), op_free(&db), op_free(&db3), op_free(&work);
    }
    op_queue_destroy(q3);
    tap_ok(bad == 0, "%s: colsum agrees with the f64 reference, any number of threads", k->family);
}

int main(void)
{
    static const struct xcase cases[] = {
        {.rows = 33, .k = 40, .v = 97, .v_real = 97, .bias = true},
        {.rows = 1, .k = 1, .v = 1, .v_real = 1},
        {.rows = 17, .k = 31, .v = 130, .v_real = 113, .pad = 3, .z_loss = 0.02f, .packed = true},
        {.rows = 20,
         .k = 16,
         .v = 64,
         .v_real = 64,
         .softcap = 2,
         .accumulate = true,
         .bias = true},
        {.rows = 19, .k = 24, .v = 5000, .v_real = 4999, .z_loss = 0.001f, .softcap = 30},
        {.rows = PANELS ? 515 : 4100,
         .k = 8,
         .v = 33,
         .v_real = 30,
         .accumulate = true}, /* more than one chunk */
        {.rows = 12, .k = 20, .v = 50, .v_real = 50, .forward = true, .packed = true},
        {.rows = 12, .k = 20, .v = 50, .v_real = 50, .frozen = true},
        {.rows = 33,
         .k = 40,
         .v = 97,
         .v_real = 95,
         .bias = true,
         .outside = true,
         .entropy = true},
        {.rows = 1, .k = 1, .v = 1, .v_real = 1, .outside = true, .entropy = true},
        {.rows = 17, .k = 31, .v = 130, .v_real = 113, .pad = 3, .z_loss = 0.02f, .measured = true},
        {.rows = PANELS ? 515 : 4100, .k = 8, .v = 33, .v_real = 30, .measured = true},
        {.rows = 300,
         .k = 20,
         .v = 50,
         .v_real = 50,
         .softcap = 5,
         .forward = true,
         .measured = true},
        {.rows = 19,
         .k = 24,
         .v = 5000,
         .v_real = 4999,
         .outside = true,
         .entropy = true,
         .softcap = 30,
         .inv_t = 1.25f},
        {.rows = PANELS ? 515 : 130,
         .k = 8,
         .v = 33,
         .v_real = 30,
         .accumulate = true,
         .outside = true,
         .inv_t = 0.5f},
        {.rows = 12,
         .k = 20,
         .v = 50,
         .v_real = 50,
         .packed = true,
         .frozen = true,
         .outside = true,
         .inv_t = 2},
        {.rows = 12,
         .k = 20,
         .v = 50,
         .v_real = 50,
         .forward = true,
         .outside = true,
         .inv_t = 1 / 0.7f},
    };
    for (int b = 0; b < OP_BACKENDS; b++) {
        const struct lf_kernels *k = op_kernels(b);
        if (!k)
            continue;
        lf_queue *q = op_queue_create(2);
        int bad = 0, total = 0;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            for (int type = LF_F32; type <= OP_LAST_FLOAT; type++) {
                struct xcase t = cases[i];
                t.type = (uint8_t)type;
                if (t.rows > 4000 && type != LF_BF16)
                    continue;
                bad += !run_case(k, q, &t, i == 0 || i == 8);
                total++;
            }
        tap_ok(bad == 0, "%s: %d cases agree with the f64 reference", k->family, total);
        TAP(1, differences(k, q, false));
        TAP(1, differences(k, q, true));
        TAP(1, sampling_agrees(k, q, LF_F32, 1));
        TAP(1, sampling_agrees(k, q, LF_F32, 1 / 0.7f));
        for (int type = LF_BF16; type <= OP_LAST_FLOAT; type++)
            TAP(1, sampling_agrees(k, q, (uint8_t)type, 1 / 0.7f));
        TAP(1, invalid_target(k, q));
        TAP(1, further_head(k, q, false));
        TAP(1, further_head(k, q, true));
        for (int type = LF_F32; type <= OP_LAST_FLOAT; type++) {
            TAP(1, same_bits(k, (uint8_t)type));
#ifndef OP_CUDA
            TAP(1, rows_left_out(k, q, (uint8_t)type, true));
            TAP(1, rows_left_out(k, q, (uint8_t)type, false));
#endif
        }
#ifndef OP_CUDA
        TAP(1, exchanges(k, q, 0));
        TAP(1, exchanges(k, q, 1));
        TAP(1, exchanges(k, q, 5));
#endif
        TAP(OP_LAST_FLOAT + 6, two_ranks_all(k, q));
        TAP(1, colsums(k, q));
        op_queue_destroy(q);
    }
    return tap_done();
}
