/* SPDX-License-Identifier: Apache-2.0
 *
 * How the optimizer keeps its state: bytes as planned and as measured, types of views, casts,
 * learning with moments and weights in bf16, the same bits for any number of threads and after a
 * stop, settings that contradict each other.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/bf16.h"
#include "tests/unit/graph_util.h"

static lf_err err = LF_ERR_INIT;

enum { STEPS = 12 };

static struct gu_opts options(bool moments, bool masters, bool stochastic)
{
    struct gu_opts o = gu_bf16;
    o.optimizer = true;
    o.state = (struct lf_adamw_opts){.moments = moments ? LF_BF16 : LF_F32,
                                     .masters = masters ? LF_BF16 : LF_F32,
                                     .stochastic = stochastic};
    return o;
}

/* Optimizer steps [from, to) on one batch; the last loss. */
static double steps(struct gu *u, int from, int to)
{
    struct gu_batch b;
    double loss = 0;
    gu_batch_make(&b, &u->m, u->m.rows, 1);
    for (int s = from; s < to; s++) {
        struct lf_step_record rec = {.step = (uint64_t)s,
                                     .seed = 5,
                                     .lr = 0.01f,
                                     .bias_corr1 = 1 - powf(0.9f, (float)(s + 1)),
                                     .bias_corr2 = 1 - powf(0.95f, (float)(s + 1)),
                                     .clip_norm = 1,
                                     .loss_scale = 1,
                                     .inv_tokens = 1.0f / (float)b.trained};
        lf_exec_record_write(u->ex, &rec, &err);
        gu_feed(u, u->train, 0, &b);
        gu_fwd_bwd(u, 0, LF_FIRST);
        if (lf_exec_run(u->ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err) ||
            lf_exec_record_read(u->ex, &rec, &err) || rec.skip)
            tap_bail("optimizer: %s", err.text);
        loss = rec.loss_sum / (double)rec.tokens;
    }
    return loss;
}

/* Weights and moments of every tensor, one after another; into a new block, or (in) back into the
 * store. */
static char *state(struct gu *u, char *in, size_t *bytes)
{
    char *all = in ? in : calloc((size_t)lf_pstore_elements(u->ps), 12);
    size_t at = 0;
    for (int i = 0; i < lf_pstore_count(u->ps); i++) {
        const enum lf_pkind kinds[] = {lf_pstore_weights(u->ps, i), LF_P_M, LF_P_V};
        for (int k = 0; k < 3; k++) {
            struct lf_pview v;
            if (lf_pstore_view(u->ps, i, kinds[k], &v) != 1)
                tap_bail("a tensor has no %s", lf_pkind_name(kinds[k]));
            int rc = !in      ? lf_pstore_read(u->ps, i, kinds[k], all + at, v.bytes, &err)
                     : k == 0 ? lf_pstore_write(u->ps, i, v.dtype, all + at, &err)
                              : lf_pstore_write_kind(u->ps, i, kinds[k], v.dtype, all + at, &err);
            if (rc)
                tap_bail("%s", err.text);
            at += v.bytes;
        }
    }
    *bytes = at;
    return all;
}

static void test_bytes(void)
{
    struct gu wide, narrow;
    struct lf_plan_bytes w, n;
    struct lf_pview v;
    const struct gu_opts f32 = options(false, false, false), bf16 = options(true, true, true);
    gu_open(&wide, &gu_llama, &f32);
    gu_open(&narrow, &gu_llama, &bf16);
    lf_plan_bytes(wide.p, &w);
    lf_plan_bytes(narrow.p, &n);
    int64_t matrices = 0, vectors = 0, wrong = 0;
    size_t saved = 0;
    for (int i = 0; i < lf_pstore_count(narrow.ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(narrow.ps, i);
        const bool copy = lf_pstore_view(wide.ps, i, LF_P_COPY, &v) == 1;
        const int64_t elements = d->dims[0] * (d->ndim > 1 ? d->dims[1] : 1);
        *(copy ? &matrices : &vectors) += elements;
        wrong += lf_pstore_weights(narrow.ps, i) != (copy ? LF_P_COPY : LF_P_MASTER) ||
                 lf_pstore_weights(wide.ps, i) != LF_P_MASTER;
        wrong += lf_pstore_view(narrow.ps, i, LF_P_MASTER, &v) != !copy;
        wrong += lf_pstore_view(narrow.ps, i, LF_P_M, &v) != 1 || v.dtype != LF_BF16 ||
                 v.bytes != 2 * (size_t)elements;
        saved += lf_pstore_planned(narrow.ps, i, lf_pstore_weights(narrow.ps, i)) +
                 lf_pstore_planned(narrow.ps, i, LF_P_V);
    }
    tap_ok(matrices > 1000 && vectors > 100 && wrong == 0,
           "matrices are held in bf16 alone, vectors in f32, all moments in bf16");
    tap_i64((int64_t)saved, 4 * matrices + 6 * vectors, "as many bytes as that");
    const int64_t slack =
        64 * 4 * lf_pstore_count(narrow.ps); /* tensors begin at multiples of 64 bytes */
    tap_ok(llabs((int64_t)(w.optimizer - n.optimizer) - 4 * (matrices + vectors)) < slack,
           "moments take 4 bytes less an element");
    tap_ok(llabs((int64_t)(w.params - n.params) - 4 * matrices) < slack,
           "weights take 4 bytes less an element of a matrix");
    tap_ok(n.total == n.params + n.grads + n.optimizer + n.inputs + n.state + n.arena &&
               lf_exec_bytes(narrow.ex) == n.total,
           "bytes by class add up to what is taken: %zu after %zu", n.total, w.total);
    gu_close(&wide);
    gu_close(&narrow);
}

/* In one piece or in pieces, by a rank of two that keeps parts: the same bytes. */
static void test_parts(void)
{
    struct gu one, many;
    const enum lf_pkind kinds[] = {LF_P_MASTER, LF_P_M, LF_P_V, LF_P_EMA};
    struct gu_opts o = options(true, false, true);
    float *x = calloc(1 << 20, sizeof *x);
    int64_t own[2], wrong = 0, kept = 0, all = 0;
    o.dp_ranks = 2;
    o.dp_rank = o.zero = 1;
    o.state.average = true;
    gu_open(&one, &gu_llama, &o);
    gu_open(&many, &gu_llama, &o);
    for (int i = 0; i < lf_pstore_count(one.ps); i++) {
        struct lf_pview v, w;
        const struct lf_param_desc *d = lf_pstore_desc(one.ps, i);
        const int64_t n = d->dims[0] * (d->ndim > 1 ? d->dims[1] : 1),
                      cut[] = {0, 1, n / 3, n / 3, n / 2 + 1, n};
        for (int64_t e = 0; e < n; e++)
            x[e] = (float)(e + 1) * 0.37f + (float)i;
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            wrong += k == 0 ? lf_pstore_write(one.ps, i, LF_F32, x, &err)
                            : lf_pstore_write_kind(one.ps, i, kinds[k], LF_F32, x, &err);
            for (int c = 0; c < 5; c++)
                wrong +=
                    lf_pstore_write_part(many.ps, i, kinds[k], LF_F32, x + cut[c], &cut[c], &err);
        }
        for (int k = 0; k < LF_P_KINDS; k++) {
            lf_pstore_own(one.ps, i, (enum lf_pkind)k, own);
            const int is = lf_pstore_view(one.ps, i, (enum lf_pkind)k, &v);
            wrong += is ? own[0] != v.first || own[1] != v.first + v.count : own[1] != own[0];
            if (k == LF_P_GRAD || is != 1)
                continue;
            wrong += lf_pstore_view(many.ps, i, (enum lf_pkind)k, &w) != 1 ||
                     memcmp(v.data, w.data, v.bytes) != 0;
            kept += k == LF_P_M ? v.count : 0;
            all += k == LF_P_M ? n : 0;
        }
    }
    tap_ok(wrong == 0 && kept > all / 3 && kept < all * 2 / 3,
           "tensors are written in pieces as in one: %lld of %lld moments are kept, %lld wrong",
           (long long)kept, (long long)all, (long long)wrong);
    tap_rc(lf_pstore_write_part(many.ps, 0, LF_P_V, LF_F32, x, (const int64_t[]){5, 1 << 30}, &err),
           LF_EINVAL, &err, "elements 5 to", "more than there are are refused");
    lf_err_clear(&err);
    gu_close(&one);
    gu_close(&many);
    free(x);
}

static void test_casts(void)
{
    struct gu u;
    struct lf_pview v;
    float x[4096];
    uint16_t h[4096];
    const struct gu_opts o = options(true, false, true), f = options(false, false, false);
    gu_open(&u, &gu_llama, &o);
    if (lf_pstore_view(u.ps, 0, LF_P_V, &v) != 1 || v.bytes > sizeof h)
        tap_bail("the first tensor is not what it was");
    const size_t n = v.bytes / 2;
    bool same = true;
    for (size_t e = 0; e < n; e++)
        x[e] = (float)e * 0.37f;
    tap_rc(lf_pstore_write_kind(u.ps, 0, LF_P_V, LF_F32, x, &err), 0, &err, NULL,
           "f32 into moments of bf16");
    for (size_t e = 0; e < n; e++)
        same = same && ((const uint16_t *)v.data)[e] == lf_bf16_of(x[e]);
    tap_ok(same && n > 2048, "rounds to nearest, in every part");
    tap_rc(lf_pstore_write_kind(u.ps, 0, LF_P_V, LF_F16, x, &err), LF_EINVAL, &err, "f32 and bf16",
           "fp16 is refused");
    lf_err_clear(&err);
    memcpy(h, v.data, v.bytes);
    gu_close(&u);
    gu_open(&u, &gu_llama, &f);
    lf_pstore_view(u.ps, 0, LF_P_V, &v);
    tap_rc(lf_pstore_write_kind(u.ps, 0, LF_P_V, LF_BF16, h, &err), 0, &err, NULL,
           "bf16 into moments of f32");
    for (size_t e = 0; e < n; e++)
        same = same && ((const float *)v.data)[e] == lf_f32_of_bf16(h[e]);
    tap_ok(same, "is exact");
    gu_close(&u);
}

/* The state after STEPS steps of one run, of one with another number of threads, of one that is
 * stopped in the middle. */
static void test_course(const char *name, bool moments, bool masters, bool stochastic, double want)
{
    struct gu u;
    struct gu_opts o = options(moments, masters, stochastic);
    size_t n, m;
    gu_open(&u, &gu_llama, &o);
    const double loss = steps(&u, 0, STEPS);
    char *end = state(&u, NULL, &n);
    gu_close(&u);
    tap_ok(fabs(loss - want) < 0.05 * want,
           "%s: %d steps on one batch, loss %.4f, with f32 state %.4f", name, STEPS, loss, want);
    o.plan.threads = 3;
    gu_open(&u, &gu_llama, &o);
    steps(&u, 0, STEPS);
    char *other = state(&u, NULL, &m);
    tap_ok(n == m && memcmp(end, other, n) == 0, "%s: three threads give the same bits", name);
    gu_close(&u);
    free(other);
    gu_open(&u, &gu_llama, &o);
    steps(&u, 0, STEPS / 2);
    char *half = state(&u, NULL, &m);
    gu_close(&u);
    gu_open(&u, &gu_llama, &o);
    state(&u, half, &m);
    steps(&u, STEPS / 2, STEPS);
    other = state(&u, NULL, &m);
    tap_ok(n == m && memcmp(end, other, n) == 0 && memcmp(end, half, n) != 0,
           "%s: so does a run that was stopped in the middle", name);
    gu_close(&u);
    free(half);
    free(other);
    free(end);
}

static void refused(const struct gu_opts *o, const struct lf_adamw_opts *adam, const char *words)
{
    lf_pstore *ps = gu_store(&gu_llama, &err);
    lf_plan *p = lf_plan_create(ps, &o->plan, &err);
    tap_rc(lf_plan_optimizer(p, adam, &err), LF_EINVAL, &err, words, words);
    lf_err_clear(&err);
    lf_plan_destroy(p);
    lf_pstore_destroy(ps);
}

int main(void)
{
    struct gu u;
    const struct gu_opts f32 = options(false, false, false);
    TAP(5, test_bytes());
    TAP(5, test_casts());
    TAP(2, test_parts());
    gu_open(&u, &gu_llama, &f32);
    const double want = steps(&u, 0, STEPS);
    gu_close(&u);
    TAP(3, test_course("bf16 moments at random", true, false, true, want));
    TAP(3, test_course("bf16 moments to nearest", true, false, false, want));
    TAP(3, test_course("bf16 weights at random", false, true, true, want));
    TAP(3, test_course("both at random", true, true, true, want));
    TAP(1,
        refused(&gu_f32, &(struct lf_adamw_opts){.beta1 = 0.9f, .eps = 1e-8f, .masters = LF_BF16},
                "masters = bf16 needs precision = bf16"));
    TAP(1,
        refused(&gu_bf16, &(struct lf_adamw_opts){.beta1 = 0.9f, .eps = 1e-8f, .moments = LF_F16},
                "f32 or bf16"));
    TAP(1, refused(&gu_bf16, &(struct lf_adamw_opts){.beta1 = 0.9f, .eps = 1e-8f, .offload = 0.5},
                   "in the host's memory anyway"));
    TAP(1, refused(&gu_bf16, &(struct lf_adamw_opts){.beta1 = 0.9f, .eps = 1e-8f, .offload = 1.5},
                   "between 0 and 1"));
    return tap_done();
}
