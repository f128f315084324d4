/* SPDX-License-Identifier: Apache-2.0
 *
 * grad_norm and adamw over several tensors of odd lengths against the formulas in f64: norm, clip
 * factor, loss scale, non-finite gradients, weight decay groups, the bf16 or fp16 copy, the skip
 * flag; threads bit for bit. State in bf16: rounded to nearest, or at random by the formula of
 * kernels.h, bit for bit, and right in the mean. CUDA has the bits of the CPU.
 */
#include "config.h"

#include "engine/base/rng.h"
#include "tests/op/op_test.h"

enum { TENSORS = 6, BLOCKS = 8 }; /* blocks of the norm: 1, 0, 1, 2, 3 and 1 */
static const int64_t length[TENSORS] = {1, 0, 17, 32769, 70001, 5};
static lf_queue *queue[4];

struct model {
    struct lf_opt_tensor *t;
    struct op_buf table, buf[TENSORS][6]; /* table: t; master, m, v, grad, copy, ema */
};

/* Weights and moments of the types given; whatever the types, the values are those that bf16 has
 * where any of them is bf16. */
static struct model model_of(int pt, int mt)
{
    const bool narrow = pt == LF_BF16 || mt == LF_BF16;
    const int types[4] = {pt, mt, mt, LF_F32};
    struct model m = {.table = op_alloc(TENSORS * sizeof *m.t)};
    m.t = m.table.p;
    for (int i = 0; i < TENSORS; i++) {
        for (int f = 0; f < 4; f++) {
            m.buf[i][f] = op_alloc((size_t)length[i] * lf_dtype_size((enum lf_dtype)types[f]));
            for (int64_t e = 0; e < length[i]; e++) {
                double x = op_rand((uint64_t)(10 * i + f), e);
                x = f == 2 ? fabs(x) : x;
                op_set(m.buf[i][f].p, e, types[f],
                       narrow && f < 3 ? op_from_bf16(op_to_bf16(x)) : x);
            }
        }
        m.buf[i][4] = op_alloc((size_t)length[i] * 2);
        m.buf[i][5] = op_alloc((size_t)length[i] * 4);
        for (int64_t e = 0; e < length[i]; e++)
            op_set(m.buf[i][5].p, e, LF_F32, op_rand((uint64_t)(10 * i + 5), e));
        m.t[i] = (struct lf_opt_tensor){.n = length[i],
                                        .master = m.buf[i][0].p,
                                        .m = m.buf[i][1].p,
                                        .v = m.buf[i][2].p,
                                        .grad = m.buf[i][3].p,
                                        .copy = i % 2 ? m.buf[i][4].p : NULL,
                                        .ema = i == 2 ? NULL : m.buf[i][5].p,
                                        .copy_type = i == 3 ? OP_LAST_FLOAT : LF_BF16,
                                        .master_type = (uint8_t)pt,
                                        .moment_type = (uint8_t)mt,
                                        .site = 77u * (uint32_t)i + 5,
                                        .lr_scale = i == 3 ? 0.5f : 1.0f,
                                        .weight_decay = i == 4 ? 0.0f : 0.1f};
    }
    return m;
}

static struct model model_make(void)
{
    return model_of(LF_F32, LF_F32);
}

static void model_free(struct model *m)
{
    for (int i = 0; i < TENSORS; i++)
        for (int f = 0; f < 6; f++)
            op_free(&m->buf[i][f]);
    op_free(&m->table);
}

static bool model_same(const struct model *a, const struct model *b)
{
    bool same = true;
    for (int i = 0; i < TENSORS; i++)
        for (int f = 0; f < 6; f++)
            same = same && memcmp(a->buf[i][f].p, b->buf[i][f].p, a->buf[i][f].bytes) == 0 &&
                   op_guards_intact(&a->buf[i][f]);
    return same;
}

static bool norm(const struct lf_kernels *k, struct model *m, int threads,
                 struct lf_step_record *rec)
{
    struct lf_k_grad_norm a = {.n_tensors = TENSORS, .t = m->t, .rec = rec, .n_sums = BLOCKS};
    a.work_bytes = k->grad_norm.work(&a, threads);
    struct op_buf work = op_alloc(a.work_bytes);
    a.work = work.p;
    bool ok = k->grad_norm.check(&a) == 0 && k->grad_norm.run(queue[threads], &a) == 0 &&
              op_guards_intact(&work);
    op_free(&work);
    return ok;
}

/* Blocks b of rank b % 3 of the tensors of m, to t; returns how many. Neighbours are different
 * ranks'. */
static int64_t parts_of(const struct model *m, int rank, struct lf_opt_tensor *t)
{
    int64_t block = 0, n = 0;
    for (int i = 0; i < TENSORS; i++)
        for (int64_t at = 0; at < length[i]; at += LF_NORM_BLOCK, block++)
            if (block % 3 == rank) {
                t[n] = m->t[i];
                t[n].grad += at;
                t[n].first = at;
                t[n].block = block;
                t[n++].n = length[i] - at < LF_NORM_BLOCK ? length[i] - at : LF_NORM_BLOCK;
            }
    return n;
}

/* Three ranks with parts of the tensors, cut at whole blocks: the norm of one call over all. */
static void test_parts(const struct lf_kernels *k)
{
    const struct lf_step_record none = {.clip_norm = 0.5f, .loss_scale = 8.0f};
    struct model m = model_make();
    struct op_buf records = op_alloc(2 * sizeof none), block = op_alloc(BLOCKS * sizeof(double)),
                  table = op_alloc(TENSORS * sizeof(struct lf_opt_tensor));
    struct lf_step_record *one = records.p, *all = one + 1;
    double sums[BLOCKS] = {0}, *part = block.p;
    *one = *all = none;
    bool ok = norm(k, &m, OP_THREADS, one);
    struct lf_k_grad_norm a = {
        .t = table.p, .rec = all, .sums = part, .n_sums = BLOCKS, .parts = true};
    for (int r = 0; r < 3; r++) {
        a.n_tensors = parts_of(&m, r, table.p);
        for (int b = 0; b < BLOCKS; b++)
            part[b] = (double)NAN;
        ok = ok && k->grad_norm.check(&a) == 0 && k->grad_norm.work(&a, OP_THREADS) == 0 &&
             k->grad_norm.run(queue[1 + r % OP_THREADS], &a) == 0 && op_guards_intact(&block);
        for (int b = 0; b < BLOCKS; b++) {
            ok = ok && (b % 3 == r ? part[b] > 0 : !(part[b] < 0 || part[b] > 0));
            sums[b] += part[b];
        }
    }
    tap_ok(ok, "each rank's sums are those of its blocks, and zeros, %s", k->family);
    memcpy(part, sums, sizeof sums);
    a.parts = false;
    ok = k->grad_norm.run(queue[1], &a) == 0;
    tap_ok(ok && memcmp(one, all, sizeof none) == 0, "parts of three ranks: the same norm, %s",
           k->family);
    memcpy(part, sums, sizeof sums);
    part[2] *= 2;
    *all = none;
    k->grad_norm.run(queue[1], &a);
    tap_ok(memcmp(one, all, sizeof none) != 0, "another sum of a block gives another");
#ifndef OP_CUDA /* the table lies in device memory there */
    a.parts = true;
    a.n_sums = 3; /* the last rank has blocks behind them */
    tap_i64(k->grad_norm.check(&a), LF_K_EINVAL, "blocks beyond the sums are refused");
#else
    a.n_sums = 0;
    tap_i64(k->grad_norm.check(&a), LF_K_EINVAL, "no sums are refused");
#endif
    model_free(&m);
    op_free(&records);
    op_free(&block);
    op_free(&table);
}

#ifndef OP_CUDA
/* The tensors in two parts each: the bits of whole ones, drawn or not. */
static void test_adamw_parts(const struct lf_kernels *k, bool stochastic)
{
    struct lf_step_record rec = {.step = 7,
                                 .seed = 99,
                                 .lr = 3e-3f,
                                 .bias_corr1 = 0.271f,
                                 .bias_corr2 = 0.142625f,
                                 .clip_factor = 0.37f,
                                 .average = 0.03f};
    struct model whole = model_of(LF_BF16, LF_BF16), cut = model_of(LF_BF16, LF_BF16);
    struct lf_opt_tensor t[2 * TENSORS];
    struct lf_k_adamw a = {.n_tensors = TENSORS,
                           .t = whole.t,
                           .beta1 = 0.9f,
                           .beta2 = 0.95f,
                           .eps = 1e-8f,
                           .stochastic = stochastic,
                           .rec = &rec};
    bool ok = k->adamw.run(queue[1], &a) == 0;
    int64_t n = 0;
    for (int i = 0; i < TENSORS; i++)
        for (int64_t at = 0; at < length[i]; at += LF_NORM_BLOCK) {
            const int64_t rest = length[i] - at;
            struct lf_opt_tensor *p = &t[n++];
            *p = cut.t[i];
            p->first = at;
            p->n = rest < LF_NORM_BLOCK || at > 0 ? rest : LF_NORM_BLOCK;
            p->master = (uint16_t *)p->master + at;
            p->m = (uint16_t *)p->m + at;
            p->v = (uint16_t *)p->v + at;
            p->grad += at;
            p->copy = p->copy ? (uint16_t *)p->copy + at : NULL;
            p->ema = p->ema ? p->ema + at : NULL;
            if (at > 0)
                break;
        }
    a.t = t;
    a.n_tensors = n;
    ok = ok && k->adamw.run(queue[OP_THREADS], &a) == 0;
    tap_ok(ok && model_same(&whole, &cut), "adamw on parts, %s: the bits of whole tensors, %s",
           stochastic ? "rounded at random" : "to nearest", k->family);
    model_free(&whole);
    model_free(&cut);
}
#endif

static void test_norm(const struct lf_kernels *k)
{
    struct model m = model_make();
    double sum = 0;
    for (int i = 0; i < TENSORS; i++)
        for (int64_t e = 0; e < length[i]; e++)
            sum += (double)m.t[i].grad[e] * (double)m.t[i].grad[e];
    const double want = sqrt(sum) / 8;
    struct op_buf records = op_alloc(4 * sizeof(struct lf_step_record));
    struct lf_step_record *rec = records.p;
    for (int t = 1; t <= OP_THREADS; t++) {
        rec[t] = (struct lf_step_record){.clip_norm = 1.0f, .loss_scale = 8.0f};
        tap_ok(norm(k, &m, t, &rec[t]) && memcmp(&rec[1], &rec[t], sizeof rec[1]) == 0,
               "grad_norm: same bits with %d threads, %s", t, k->family);
    }
    tap_f64((double)rec[1].grad_norm, want, want * 1e-7, "norm without the loss scale");
    tap_f64((double)rec[1].clip_factor, 1 / (want + 1e-6) / 8, 1e-7 / want, "clip factor");
    tap_i64(rec[1].skip, 0, "no skip");
    rec[1] = (struct lf_step_record){.clip_norm = 1e6f, .loss_scale = 1.0f};
    norm(k, &m, 1, &rec[1]);
    tap_f64((double)rec[1].clip_factor, 1.0, 0, "below the limit nothing is clipped");
    rec[1] =
        (struct lf_step_record){.clip_norm = 0.0f, .loss_scale = 1.0f, .loss_sum = (double)NAN};
    norm(k, &m, 1, &rec[1]);
    tap_f64((double)rec[1].clip_factor, 1.0, 0, "clipping off");
    tap_i64(rec[1].skip, 1, "a NaN loss skips");
    for (int above = 0; above < 2; above++) {
        rec[1] = (struct lf_step_record){
            .loss_scale = 1.0f, .loss_sum = above ? 7.5000001 : 7.5, .loss_limit = 7.5};
        norm(k, &m, 1, &rec[1]);
        tap_i64(rec[1].skip, above,
                above ? "a loss above its limit skips" : "a loss at its limit does not");
    }
    ((float *)m.buf[4][3].p)[70000] = INFINITY;
    rec[1] = (struct lf_step_record){.clip_norm = 1.0f, .loss_scale = 1.0f};
    norm(k, &m, OP_THREADS, &rec[1]);
    tap_i64(rec[1].skip, 1, "an infinite gradient skips");
    struct model before = model_make();
    ((float *)before.buf[4][3].p)[70000] = INFINITY;
    struct lf_k_adamw a = {.n_tensors = TENSORS,
                           .t = m.t,
                           .beta1 = 0.9f,
                           .beta2 = 0.95f,
                           .eps = 1e-8f,
                           .rec = &rec[1]};
    rec[1].lr = 0.1f;
    tap_ok(k->adamw.run(queue[OP_THREADS], &a) == 0 && model_same(&m, &before),
           "a skipped step writes nothing");
    model_free(&m);
    model_free(&before);
    op_free(&records);
}

/* The averages of m against the formula, from those of ref and the weights p; NULL: those of m,
 * which an average of the weights alone is. */
static void test_average(const struct model *m, const struct model *ref, int i, const double *p,
                         double share)
{
    double *want = calloc((size_t)length[i] + 1, 8);
    for (int64_t e = 0; e < length[i]; e++) {
        const double was = op_get(ref->buf[i][5].p, e, LF_F32);
        want[e] = !m->t[i].ema ? was
                  : p          ? was + share * (p[e] - was)
                               : op_get(m->t[i].master, e, LF_F32);
    }
    op_ok(op_compare(m->buf[i][5].p, LF_F32, want, NULL, length[i], p ? 3e-7 : 0),
          "adamw averages");
    if (length[i] > 100)
        op_prove(m->buf[i][5].p, LF_F32, want, NULL, length[i], 3e-7, length[i] - 1);
    free(want);
}

static void test_adamw(const struct lf_kernels *k)
{
    const float b1 = 0.9f, b2 = 0.95f, eps = 1e-8f;
    struct op_buf record = op_alloc(sizeof(struct lf_step_record));
    struct lf_step_record *rec = record.p;
    *rec = (struct lf_step_record){.lr = 3e-3f,
                                   .bias_corr1 = 0.271f,
                                   .bias_corr2 = 0.142625f,
                                   .clip_factor = 0.37f,
                                   .average = 0.03f};
    struct model ref = model_make(), m[4];
    for (int t = 1; t <= OP_THREADS; t++) {
        m[t] = model_make();
        struct lf_k_adamw a = {
            .n_tensors = TENSORS, .t = m[t].t, .beta1 = b1, .beta2 = b2, .eps = eps, .rec = rec};
        tap_ok(k->adamw.check(&a) == 0 && k->adamw.run(queue[t], &a) == 0 &&
                   model_same(&m[1], &m[t]),
               "adamw: same bits with %d threads, %s", t, k->family);
    }
    for (int i = 0; i < TENSORS; i++) {
        double *p = calloc((size_t)length[i] + 1, 8), *mm = calloc((size_t)length[i] + 1, 8),
               *v = calloc((size_t)length[i] + 1, 8);
        bool copy = true;
        for (int64_t e = 0; e < length[i]; e++) {
            double g = (double)ref.t[i].grad[e] * (double)rec->clip_factor,
                   lr = (double)rec->lr * (double)ref.t[i].lr_scale;
            mm[e] = (double)b1 * op_get(ref.t[i].m, e, LF_F32) + (1 - (double)b1) * g;
            v[e] = (double)b2 * op_get(ref.t[i].v, e, LF_F32) + (1 - (double)b2) * g * g;
            p[e] = op_get(ref.t[i].master, e, LF_F32) * (1 - lr * (double)ref.t[i].weight_decay) -
                   lr * (mm[e] / (double)rec->bias_corr1) /
                       (sqrt(v[e] / (double)rec->bias_corr2) + (double)eps);
            if (ref.t[i].copy)
                copy = copy && ((uint16_t *)m[1].t[i].copy)[e] ==
                                   (ref.t[i].copy_type == LF_F16
                                        ? op_to_f16(op_get(m[1].t[i].master, e, LF_F32))
                                        : op_to_bf16(op_get(m[1].t[i].master, e, LF_F32)));
        }
        op_ok(op_compare(m[1].t[i].m, LF_F32, mm, NULL, length[i], 3e-7), "adamw m");
        op_ok(op_compare(m[1].t[i].v, LF_F32, v, NULL, length[i], 3e-7), "adamw v");
        op_ok(op_compare(m[1].t[i].master, LF_F32, p, NULL, length[i], 5e-7), "adamw weights");
        tap_ok(copy, "the copy is the rounded weight");
        test_average(&m[1], &ref, i, p, (double)rec->average);
        if (length[i] > 100)
            op_prove(m[1].t[i].master, LF_F32, p, NULL, length[i], 5e-7, length[i] - 1);
        free(p);
        free(mm);
        free(v);
    }
    rec->average = 1;
    struct lf_k_adamw a = {
        .n_tensors = TENSORS, .t = m[1].t, .beta1 = b1, .beta2 = b2, .eps = eps, .rec = rec};
    tap_ok(k->adamw.run(queue[1], &a) == 0, "a step that begins averages, %s", k->family);
    for (int i = 0; i < TENSORS; i++)
        test_average(&m[1], &ref, i, NULL, 1);
    for (int t = 1; t <= OP_THREADS; t++)
        model_free(&m[t]);
    model_free(&ref);
    op_free(&record);
}

/* ---- state in bf16 ---- */

static struct lf_k_adamw adam_of(const struct model *m, bool stochastic,
                                 const struct lf_step_record *rec)
{
    return (struct lf_k_adamw){.n_tensors = TENSORS,
                               .t = m->t,
                               .beta1 = 0.9f,
                               .beta2 = 0.95f,
                               .eps = 1e-8f,
                               .stochastic = stochastic,
                               .rec = rec};
}

/* What the f32 value x of element e becomes as bf16. */
static uint16_t rounded(float x, const struct lf_opt_tensor *t, int64_t e, int state,
                        bool stochastic, const struct lf_step_record *rec)
{
    uint32_t w[4], u;
    if (!stochastic)
        return op_to_bf16((double)x);
    if (t->run) /* columns of a wider matrix: the number of the element in all of it */
        e = e / t->run * t->period + t->base + e % t->run;
    lf_philox(w, rec->seed, t->site, 4 * rec->step + (uint64_t)state, (uint32_t)(e / 8));
    memcpy(&u, &x, 4);
    return (uint16_t)((u + (w[e % 8 / 2] >> 16 * (e % 2) & 0xffff)) >> 16);
}

/* Elements of a that are not those of the f32 run, rounded. */
static int64_t differ(const struct model *a, const struct model *wide, bool stochastic,
                      const struct lf_step_record *rec)
{
    int64_t bad = 0;
    for (int i = 0; i < TENSORS; i++) {
        const struct lf_opt_tensor *t = &a->t[i], *f = &wide->t[i];
        bad += memcmp(a->buf[i][5].p, wide->buf[i][5].p, a->buf[i][5].bytes) != 0;
        const void *is[3] = {t->m, t->v, t->master}, *want[3] = {f->m, f->v, f->master};
        for (int s = 0; s < 3; s++)
            for (int64_t e = 0; e < t->n; e++) {
                const float x = ((const float *)want[s])[e];
                bad += (s < 2 ? t->moment_type : t->master_type) == LF_BF16
                           ? ((const uint16_t *)is[s])[e] != rounded(x, t, e, s, stochastic, rec)
                           : memcmp((const float *)is[s] + e, &x, 4) != 0;
            }
    }
    return bad;
}

/* Every other tensor is columns [24, 64) of a matrix of 104. */
static void make_boxes(struct model *m)
{
    for (int i = 0; i < TENSORS; i += 2) {
        m->t[i].base = 24;
        m->t[i].run = 40;
        m->t[i].period = 104;
    }
}

static void test_types(const struct lf_kernels *k, int pt, int mt, bool stochastic, bool boxes)
{
    struct op_buf record = op_alloc(sizeof(struct lf_step_record));
    struct lf_step_record *rec = record.p;
    *rec = (struct lf_step_record){.step = 1234567890123,
                                   .seed = 99,
                                   .lr = 3e-3f,
                                   .bias_corr1 = 0.271f,
                                   .bias_corr2 = 0.142625f,
                                   .clip_factor = 0.37f,
                                   .average = 0.03f};
    struct model wide = model_of(LF_F32, LF_F32), m[4];
    for (int i = 0; i < TENSORS; i++) { /* the same values in f32 */
        struct model n = model_of(pt, mt);
        for (int64_t e = 0; e < length[i]; e++) {
            op_set(wide.t[i].master, e, LF_F32, op_get(n.t[i].master, e, pt));
            op_set(wide.t[i].m, e, LF_F32, op_get(n.t[i].m, e, mt));
            op_set(wide.t[i].v, e, LF_F32, op_get(n.t[i].v, e, mt));
        }
        model_free(&n);
    }
    struct lf_k_adamw a = adam_of(&wide, false, rec);
    bool ok = k->adamw.run(queue[1], &a) == 0;
    for (int t = 1; t <= OP_THREADS; t++) {
        m[t] = model_of(pt, mt);
        if (boxes)
            make_boxes(&m[t]);
        a = adam_of(&m[t], stochastic, rec);
        ok = ok && k->adamw.check(&a) == 0 && k->adamw.run(queue[t], &a) == 0 &&
             model_same(&m[1], &m[t]);
    }
    tap_ok(ok, "adamw, weights %s, moments %s, %s: same bits with all threads, %s",
           pt == LF_BF16 ? "bf16" : "f32", mt == LF_BF16 ? "bf16" : "f32",
           boxes        ? "at random, of divided matrices"
           : stochastic ? "at random"
                        : "nearest",
           k->family);
    tap_i64(differ(&m[1], &wide, stochastic, rec), 0, "they are the f32 results, rounded");
    uint16_t *planted = m[1].t[4].v;
    planted[70000] ^= 1;
    tap_i64(differ(&m[1], &wide, stochastic, rec), 1, "a planted error is found");
    for (int t = 1; t <= OP_THREADS; t++)
        model_free(&m[t]);
    model_free(&wide);
    op_free(&record);
}

/* Weights that decay from 1 by 2^-10 a step, a quarter of the distance of bf16 below 1: on average
 * they do when rounded at random, over elements and over steps, and never when rounded to
 * nearest. */
static void test_unbiased(const struct lf_kernels *k)
{
    enum { N = 20001, STEPS = 40 };
    struct op_buf record = op_alloc(sizeof(struct lf_step_record)),
                  table = op_alloc(sizeof(struct lf_opt_tensor)), buf[4];
    struct lf_step_record *rec = record.p;
    struct lf_opt_tensor *t = table.p;
    double first = 0, mean = 0,
           want = 1; /* sums: after the first step, after the last; a weight after the last */
    for (int b = 0; b < 4; b++) {
        buf[b] = op_alloc(4 * N);
        memset(buf[b].p, 0, 4 * N);
    }
    *t = (struct lf_opt_tensor){.n = N,
                                .master = buf[0].p,
                                .m = buf[1].p,
                                .v = buf[2].p,
                                .grad = buf[3].p,
                                .master_type = LF_BF16,
                                .moment_type = LF_BF16,
                                .site = 3,
                                .lr_scale = 1,
                                .weight_decay = 1};
    for (int random = 0; random < 2; random++) {
        first = 0;
        for (int64_t e = 0; e < N; e++)
            op_set(t->master, e, LF_BF16, 1);
        for (int s = 0; s < STEPS; s++) {
            *rec = (struct lf_step_record){.step = (uint64_t)s,
                                           .seed = 4,
                                           .lr = 0x1p-10f,
                                           .bias_corr1 = 1,
                                           .bias_corr2 = 1,
                                           .clip_factor = 1};
            struct lf_k_adamw a = {
                .n_tensors = 1, .t = t, .eps = 1e-8f, .stochastic = random, .rec = rec};
            if (k->adamw.run(queue[1], &a))
                tap_bail("adamw failed");
            for (int64_t e = 0; s == 0 && e < N; e++)
                first += op_get(t->master, e, LF_BF16);
            want *= random ? 1 - 0x1p-10 : 1;
        }
        mean = 0;
        for (int64_t e = 0; e < N; e++)
            mean += op_get(t->master, e, LF_BF16);
        if (!random)
            tap_ok(mean == N && first == N, "rounded to nearest, weights never decay, %s",
                   k->family);
    }
    /* deviation of one rounding 2^-8 sqrt(p (1 - p)) with p = 3/4, of forty at most 2^-9 sqrt(40);
     * five of the mean */
    tap_f64(first / N, 1 - 0x1p-10, 5 * 0x1p-8 * sqrt(0.1875 / N),
            "rounded at random, they do in the mean of the elements");
    tap_f64(mean / N, want, 5 * 0x1p-9 * sqrt((double)STEPS / N), "and over steps");
    for (int b = 0; b < 4; b++)
        op_free(&buf[b]);
    op_free(&table);
    op_free(&record);
}

static void test_state(const struct lf_kernels *k)
{
    struct op_buf record = op_alloc(sizeof(struct lf_step_record));
    for (int types = 1; types < 4; types++)
        for (int random = 0; random < 2; random++)
            test_types(k, types & 1 ? LF_BF16 : LF_F32, types & 2 ? LF_BF16 : LF_F32, random,
                       false);
    test_types(k, LF_BF16, LF_BF16, true, true);
    test_unbiased(k);
#ifndef OP_CUDA /* the table lies in device memory there */
    struct model m = model_make();
    struct lf_k_adamw a = adam_of(&m, false, record.p);
    m.t[2].moment_type = LF_F64;
    tap_ok(k->adamw.check(&a) == LF_K_EINVAL, "moments are f32 or bf16");
    model_free(&m);
#endif
    op_free(&record);
}

#ifdef OP_CUDA
/* y of ranks whose parts are x[r], in their order. */
static float sum_of(const float *x, int ranks, int64_t n, int64_t i, const float *seed)
{
    float y = seed ? seed[i] + x[i] : x[i];
    for (int r = 1; r < ranks; r++)
        y += x[r * n + i];
    return y;
}

/* Sums of parts of n elements, of large and small values, so that another order has other bits;
 * `off` floats from an aligned address. */
static void test_sum_ranks(const struct lf_kernels *k, int ranks, int rank, int64_t n, int off)
{
    const int64_t stride = (n + 3) / 4 * 4;
    float *x = calloc((size_t)(ranks * n + n) + 1, sizeof *x), *seed = x + ranks * n;
    struct op_buf others = op_alloc((size_t)(ranks * stride + off) * sizeof *x),
                  mine = op_alloc((size_t)(n + off) * sizeof *x),
                  out = op_alloc((size_t)(n + off) * sizeof *x);
    float *at = (float *)others.p + off, *y = (float *)out.p + off;
    int64_t bad = 0, other_order = 0;
    for (int64_t i = 0; i < ranks * n + n; i++)
        x[i] = (float)(op_rand(31, i) * (i % 3 ? 1e-4 : 10));
    for (int r = 0; r < ranks; r++)
        memcpy(r == rank ? (float *)mine.p + off : at + (r > rank ? r - 1 : r) * stride, x + r * n,
               (size_t)n * sizeof *x);
    for (int more = 0; more < 2; more++) {
        for (int64_t i = 0; i < n; i++)
            y[i] = more ? seed[i] : NAN;
        const struct lf_k_sum_ranks a = {.n = n,
                                         .stride = stride,
                                         .ranks = ranks,
                                         .rank = rank,
                                         .mine = (float *)mine.p + off,
                                         .others = at,
                                         .y = y,
                                         .more = more};
        if (k->sum_ranks.check(&a) || k->sum_ranks.run(queue[1], &a))
            tap_bail("sum_ranks failed");
        for (int64_t i = 0; i < n; i++) {
            const float want = sum_of(x, ranks, n, i, more ? seed : NULL);
            float late = sum_of(x, ranks, n, i, NULL);
            late += seed[i];
            bad += memcmp(&want, &y[i], sizeof want) != 0;
            other_order += more && memcmp(&late, &y[i], sizeof late) != 0;
        }
    }
    tap_ok(bad == 0 && (n < 1000 || other_order > n / 10) && op_guards_intact(&out),
           "sum of %lld elements for rank %d of %d, in the order of the ranks", (long long)n, rank,
           ranks);
    struct lf_k_sum_ranks a = {
        .n = n, .stride = stride, .ranks = ranks, .rank = rank, .mine = y, .others = at, .y = y};
    memcpy(y, x + rank * n, (size_t)n * sizeof *x);
    bad = k->sum_ranks.run(queue[1], &a) != 0;
    for (int64_t i = 0; i < n; i++) {
        const float want = sum_of(x, ranks, n, i, NULL);
        bad += memcmp(&want, &y[i], sizeof want) != 0;
    }
    a.rank = ranks;
    tap_ok(bad == 0 && k->sum_ranks.check(&a) == LF_K_EINVAL, "in place, too");
    op_free(&others);
    op_free(&mine);
    op_free(&out);
    free(x);
}

/* Three steps on the CPU and here, weights, moments and gradients the same at first. */
static void test_cpu_bits(const struct lf_kernels *k, int pt, int mt, bool stochastic)
{
    const enum lf_isa isa = lf_cpu_isa_detect();
    if (isa == LF_ISA_PLAIN) {
        tap_skip(1, "the plain kernels of the CPU have no fused multiply-add");
        return;
    }
    lf_queue *host = lf_cpu_queue_create(2);
    struct op_buf record = op_alloc(sizeof(struct lf_step_record));
    struct lf_step_record *rec = record.p;
    struct model dev = model_of(pt, mt), cpu = model_of(pt, mt);
    dev.t[3].copy_type = cpu.t[3].copy_type = LF_BF16;
    bool ok = true;
    for (uint64_t s = 0; s < 3; s++) {
        *rec = (struct lf_step_record){.step = s,
                                       .seed = 8,
                                       .lr = 3e-3f,
                                       .bias_corr1 = 0.271f,
                                       .bias_corr2 = 0.142625f,
                                       .clip_factor = 0.37f};
        struct lf_k_adamw a = adam_of(&dev, stochastic, rec), b = adam_of(&cpu, stochastic, rec);
        ok = ok && k->adamw.run(queue[1], &a) == 0 && lf_cpu_kernels(isa)->adamw.run(host, &b) == 0;
    }
    tap_ok(ok && model_same(&dev, &cpu),
           "weights %s, moments %s, %s: three steps with the bits of the CPU",
           pt == LF_BF16 ? "bf16" : "f32", mt == LF_BF16 ? "bf16" : "f32",
           stochastic ? "at random" : "nearest");
    ((float *)cpu.buf[4][3].p)[70000] += 1.0f;
    struct lf_k_adamw a = adam_of(&dev, stochastic, rec), b = adam_of(&cpu, stochastic, rec);
    k->adamw.run(queue[1], &a);
    lf_cpu_kernels(isa)->adamw.run(host, &b);
    ((float *)cpu.buf[4][3].p)[70000] = ((float *)dev.buf[4][3].p)[70000];
    tap_ok(!model_same(&dev, &cpu), "another gradient is found");
    model_free(&dev);
    model_free(&cpu);
    op_free(&record);
    lf_cpu_queue_destroy(host);
}
#endif

int main(void)
{
    for (int t = 1; t <= OP_THREADS; t++)
        queue[t] = op_queue_create(t);
    for (int b = 0; b < OP_BACKENDS; b++) {
        const struct lf_kernels *k = op_kernels(b);
        if (!k)
            continue;
        TAP(10 + OP_THREADS, test_norm(k));
        TAP(43 + OP_THREADS, test_adamw(k));
        TAP(4, test_parts(k));
#ifndef OP_CUDA
        TAP(1, test_adamw_parts(k, false));
        TAP(1, test_adamw_parts(k, true));
#endif
        TAP(OP_BACKENDS > 1 ? 25 : 24, test_state(k));
#ifdef OP_CUDA
        TAP(2, test_sum_ranks(k, 2, 1, 1, 0));
        TAP(2, test_sum_ranks(k, 3, 1, 1003, 3));
        TAP(2, test_sum_ranks(k, 4, 0, 4096, 0));
        TAP(2, test_sum_ranks(k, 5, 4, 20011, 1));
        for (int types = 0; types < 8; types++)
            TAP(2, test_cpu_bits(k, types & 1 ? LF_BF16 : LF_F32, types & 2 ? LF_BF16 : LF_F32,
                                 types & 4));
#endif
    }
    for (int t = 1; t <= OP_THREADS; t++)
        op_queue_destroy(queue[t]);
    return tap_done();
}
