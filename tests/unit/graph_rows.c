/* SPDX-License-Identifier: Apache-2.0
 *
 * Fewer rows than planned (exec_rows.c): rows behind the last document cost nothing and change
 * nothing. A run of 48 of 96 rows has the bits of a graph of 48 rows, the loss of all 96 and its
 * gradients but for the order of their sums.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/profile.h"
#include "tests/unit/graph_util.h"

enum { ROWS = 96, USED = 37, LIVE = 48 };

static lf_err err = LF_ERR_INIT;

/* `used` rows of documents, padding behind them. */
static void make(struct gu_batch *b, const struct gu_model *m, int64_t used, uint32_t which)
{
    gu_batch_make(b, m, used, which);
    for (int64_t r = used; r < ROWS; r++)
        b->target[r] = -1;
}

struct run {
    struct lf_step_record rec;
    float *grad;
    size_t n;
};

/* Micro-batches of that many used rows on a graph of `rows`; live[i] of lf_exec_live_rows, 0: not
 * asked for. */
static struct run run(struct gu_model m, const struct gu_opts *o, int64_t rows, const int64_t *used,
                      const int64_t *live, int n)
{
    struct gu u;
    struct run r;
    m.rows = rows;
    gu_open(&u, &m, o);
    gu_record(&u, 50, 0.01f);
    for (int i = 0; i < n; i++) {
        struct gu_batch b;
        make(&b, &m, used[i], (uint32_t)i);
        if (live[i])
            lf_exec_live_rows(u.ex, u.train, rows, live[i]);
        gu_feed(&u, u.train, 0, &b);
        gu_fwd_bwd(&u, 0, i ? LF_ACCUM : LF_FIRST);
    }
    r.rec = gu_result(&u);
    r.grad = gu_grads(&u, &r.n);
    gu_close(&u);
    return r;
}

static bool same(const struct run *a, const struct run *b)
{
    return a->n == b->n && memcmp(a->grad, b->grad, a->n * sizeof *a->grad) == 0;
}

static void test_model(const char *name, const struct gu_model *m, const struct gu_opts *o,
                       double tolerance)
{
    const int64_t used[3] = {USED, ROWS, 20}, all[3] = {0}, few[3] = {USED, ROWS, 20},
                  wrong[1] = {16};
    const struct run whole = run(*m, o, ROWS, used, all, 1), part = run(*m, o, ROWS, used, few, 1),
                     small = run(*m, o, LIVE, used, all, 1), cut = run(*m, o, ROWS, used, wrong, 1);
    tap_ok(part.rec.loss_sum == whole.rec.loss_sum && part.rec.tokens == whole.rec.tokens,
           "%s: the loss of all rows", name);
    tap_ok(same(&part, &small), "%s: the gradients of a graph of that many rows, bit for bit",
           name);
    const double d = gu_rel_diff(part.grad, whole.grad, whole.n);
    tap_ok(d < tolerance, "%s: those of all rows within %.1e", name, d);
    tap_ok(gu_rel_diff(cut.grad, whole.grad, whole.n) > 0.01,
           "%s: planted: rows of a document left out are noticed", name);
    const struct run steps = run(*m, o, ROWS, used, few, 3), full = run(*m, o, ROWS, used, all, 3);
    tap_ok(steps.rec.loss_sum == full.rec.loss_sum &&
               gu_rel_diff(steps.grad, full.grad, full.n) < tolerance,
           "%s: fewer, all and fewer rows in turn", name);
    const struct run *r[] = {&whole, &part, &small, &cut, &steps, &full};
    for (size_t i = 0; i < sizeof r / sizeof *r; i++)
        free(r[i]->grad);
}

static int64_t asked(struct gu_opts o, int64_t live)
{
    struct gu u;
    struct gu_model m = gu_llama;
    m.rows = ROWS;
    gu_open(&u, &m, &o);
    int64_t n = lf_exec_live_rows(u.ex, u.train, ROWS, live);
    gu_close(&u);
    return n;
}

static void test_refusals(void)
{
    struct gu_opts o = gu_f32;
    tap_ok(asked(o, USED) == LIVE && asked(o, LIVE) == LIVE &&
               asked(o, LIVE + 1) == LIVE + LF_LIVE_ROWS,
           "rounded up");
    tap_ok(asked(o, 0) == LF_LIVE_ROWS && asked(o, ROWS) == ROWS && asked(o, ROWS + 5) == ROWS,
           "between one step and all");
    o.poison = true;
    tap_ok(asked(o, USED) == ROWS, "checking mode computes all rows");
    o = gu_f32;
    o.profile = lf_profile_create(&err);
    tap_ok(o.profile && asked(o, USED) == ROWS, "and so does a profile");
    lf_profile_destroy(o.profile);
    o = (struct gu_opts){
        .plan = {.threads = 1, .compute = LF_BF16, .fp8 = LF_FP8_TENSORS, .mode = LF_FAST},
        .fp8 = "layers.*"};
    tap_ok(
        asked(o, USED) == ROWS,
        "and so does a graph with other ops: transposed 8-bit copies have a column for each row");
}

int main(void)
{
    struct gu_opts full = gu_f32, dropped = gu_f32;
    struct gu_model drop = gu_gpt2;
    full.recompute = LF_RECOMPUTE_FULL;
    drop.dropout = 0.1f;
    TAP(5, test_model("llama", &gu_llama, &gu_f32, 1e-6));
    TAP(5, test_model("gpt2", &gu_gpt2, &gu_f32, 1e-6));
    TAP(5, test_model("qwen", &gu_qwen, &gu_f32, 1e-6));
    TAP(5, test_model("llama, recomputed", &gu_llama, &full, 1e-6));
    TAP(5, test_model("gpt2, dropout", &drop, &dropped, 1e-6));
    TAP(5, test_model("llama, bf16", &gu_llama, &gu_bf16, 2e-3));
    TAP(5, test_refusals());
    return tap_done();
}
