/* SPDX-License-Identifier: Apache-2.0
 *
 * grad_norm and adamw over several tensors of odd lengths against the formulas in f64: norm, clip factor, loss scale,
 * non-finite gradients, weight decay groups, the bf16 or fp16 copy, the skip flag; threads bit for bit.
 */
#include "config.h"

#include "tests/op/op_test.h"

enum { TENSORS = 6 };
static const int64_t length[TENSORS] = {1, 0, 17, 32769, 70001, 5};
static lf_queue *queue[4];

struct model {
    struct lf_opt_tensor *t;
    struct op_buf table, buf[TENSORS][5]; /* table: t; master, m, v, grad, copy */
};

static struct model model_make(void)
{
    struct model m = {.table = op_alloc(TENSORS * sizeof *m.t)};
    m.t = m.table.p;
    for (int i = 0; i < TENSORS; i++) {
        for (int f = 0; f < 4; f++)
            m.buf[i][f] = op_random(length[i], LF_F32, (uint64_t)(10 * i + f), 1.0);
        for (int64_t e = 0; e < length[i]; e++)
            ((float *)m.buf[i][2].p)[e] = fabsf(((float *)m.buf[i][2].p)[e]);
        m.buf[i][4] = op_alloc((size_t)length[i] * 2);
        m.t[i] = (struct lf_opt_tensor){.n = length[i],
                                        .master = m.buf[i][0].p,
                                        .m = m.buf[i][1].p,
                                        .v = m.buf[i][2].p,
                                        .grad = m.buf[i][3].p,
                                        .copy = i % 2 ? m.buf[i][4].p : NULL,
                                        .copy_type = i == 3 ? OP_LAST_FLOAT : LF_BF16,
                                        .lr_scale = i == 3 ? 0.5f : 1.0f,
                                        .weight_decay = i == 4 ? 0.0f : 0.1f};
    }
    return m;
}

static void model_free(struct model *m)
{
    for (int i = 0; i < TENSORS; i++)
        for (int f = 0; f < 5; f++)
            op_free(&m->buf[i][f]);
    op_free(&m->table);
}

static bool model_same(const struct model *a, const struct model *b)
{
    bool same = true;
    for (int i = 0; i < TENSORS; i++)
        for (int f = 0; f < 5; f++)
            same = same && memcmp(a->buf[i][f].p, b->buf[i][f].p, a->buf[i][f].bytes) == 0 &&
                   op_guards_intact(&a->buf[i][f]);
    return same;
}

static bool norm(const struct lf_kernels *k, struct model *m, int threads, struct lf_step_record *rec)
{
    struct lf_k_grad_norm a = {.n_tensors = TENSORS, .t = m->t, .rec = rec};
    a.work_bytes = k->grad_norm.work(&a, threads);
    struct op_buf work = op_alloc(a.work_bytes);
    a.work = work.p;
    bool ok = k->grad_norm.check(&a) == 0 && k->grad_norm.run(queue[threads], &a) == 0 && op_guards_intact(&work);
    op_free(&work);
    return ok;
}

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
    rec[1] = (struct lf_step_record){.clip_norm = 0.0f, .loss_scale = 1.0f, .loss_sum = (double)NAN};
    norm(k, &m, 1, &rec[1]);
    tap_f64((double)rec[1].clip_factor, 1.0, 0, "clipping off");
    tap_i64(rec[1].skip, 1, "a NaN loss skips");
    for (int above = 0; above < 2; above++) {
        rec[1] = (struct lf_step_record){.loss_scale = 1.0f, .loss_sum = above ? 7.5000001 : 7.5, .loss_limit = 7.5};
        norm(k, &m, 1, &rec[1]);
        tap_i64(rec[1].skip, above, above ? "a loss above its limit skips" : "a loss at its limit does not");
    }
    ((float *)m.buf[4][3].p)[70000] = INFINITY;
    rec[1] = (struct lf_step_record){.clip_norm = 1.0f, .loss_scale = 1.0f};
    norm(k, &m, OP_THREADS, &rec[1]);
    tap_i64(rec[1].skip, 1, "an infinite gradient skips");
    struct model before = model_make();
    ((float *)before.buf[4][3].p)[70000] = INFINITY;
    struct lf_k_adamw a = {.n_tensors = TENSORS, .t = m.t, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .rec = &rec[1]};
    rec[1].lr = 0.1f;
    tap_ok(k->adamw.run(queue[OP_THREADS], &a) == 0 && model_same(&m, &before), "a skipped step writes nothing");
    model_free(&m);
    model_free(&before);
    op_free(&records);
}

static void test_adamw(const struct lf_kernels *k)
{
    const float b1 = 0.9f, b2 = 0.95f, eps = 1e-8f;
    struct op_buf record = op_alloc(sizeof(struct lf_step_record));
    struct lf_step_record *rec = record.p;
    *rec = (struct lf_step_record){.lr = 3e-3f, .bias_corr1 = 0.271f, .bias_corr2 = 0.142625f, .clip_factor = 0.37f};
    struct model ref = model_make(), m[4];
    for (int t = 1; t <= OP_THREADS; t++) {
        m[t] = model_make();
        struct lf_k_adamw a = {.n_tensors = TENSORS, .t = m[t].t, .beta1 = b1, .beta2 = b2, .eps = eps, .rec = rec};
        tap_ok(k->adamw.check(&a) == 0 && k->adamw.run(queue[t], &a) == 0 && model_same(&m[1], &m[t]),
               "adamw: same bits with %d threads, %s", t, k->family);
    }
    for (int i = 0; i < TENSORS; i++) {
        double *p = calloc((size_t)length[i] + 1, 8), *mm = calloc((size_t)length[i] + 1, 8),
               *v = calloc((size_t)length[i] + 1, 8);
        bool copy = true;
        for (int64_t e = 0; e < length[i]; e++) {
            double g = (double)ref.t[i].grad[e] * (double)rec->clip_factor,
                   lr = (double)rec->lr * (double)ref.t[i].lr_scale;
            mm[e] = (double)b1 * (double)ref.t[i].m[e] + (1 - (double)b1) * g;
            v[e] = (double)b2 * (double)ref.t[i].v[e] + (1 - (double)b2) * g * g;
            p[e] = (double)ref.t[i].master[e] * (1 - lr * (double)ref.t[i].weight_decay) -
                   lr * (mm[e] / (double)rec->bias_corr1) / (sqrt(v[e] / (double)rec->bias_corr2) + (double)eps);
            if (ref.t[i].copy)
                copy = copy && ((uint16_t *)m[1].t[i].copy)[e] ==
                                   (ref.t[i].copy_type == LF_F16 ? op_to_f16((double)m[1].t[i].master[e])
                                                                 : op_to_bf16((double)m[1].t[i].master[e]));
        }
        op_ok(op_compare(m[1].t[i].m, LF_F32, mm, NULL, length[i], 3e-7), "adamw m");
        op_ok(op_compare(m[1].t[i].v, LF_F32, v, NULL, length[i], 3e-7), "adamw v");
        op_ok(op_compare(m[1].t[i].master, LF_F32, p, NULL, length[i], 5e-7), "adamw weights");
        tap_ok(copy, "the copy is the rounded weight");
        if (length[i] > 100)
            op_prove(m[1].t[i].master, LF_F32, p, NULL, length[i], 5e-7, length[i] - 1);
        free(p);
        free(mm);
        free(v);
    }
    for (int t = 1; t <= OP_THREADS; t++)
        model_free(&m[t]);
    model_free(&ref);
    op_free(&record);
}

int main(void)
{
    for (int t = 1; t <= OP_THREADS; t++)
        queue[t] = op_queue_create(t);
    for (int b = 0; b < OP_BACKENDS; b++) {
        const struct lf_kernels *k = op_kernels(b);
        if (!k)
            continue;
        test_norm(k);
        test_adamw(k);
    }
    for (int t = 1; t <= OP_THREADS; t++)
        op_queue_destroy(queue[t]);
    return tap_done();
}
