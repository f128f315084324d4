/* SPDX-License-Identifier: Apache-2.0
 *
 * cost.h: times of parts on record, the cut that they lead to against all cuts, and how long a step
 * takes against a walk by hand.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/train/cost.h"
#include "engine/train/loop.h"
#include "tests/tap/tap.h"
#include "tests/unit/pipe_util.h"

enum { LAYERS = 6, PARTS = LAYERS + 2, CASES = 120 };

/* A run of P ranks and m micro-batches. */
struct run {
    struct lf_train_config c;
    lf_model_config mc;
    lf_ramp_row ramp;
    struct lf_train_who who;
    int64_t ns[PARTS][5];
};

static void begin(struct run *r, int ranks, int micro)
{
    *r = (struct run){.ramp = {.samples = micro}, .mc = {.layers = LAYERS, .hidden = 8}};
    r->c = (struct lf_train_config){.seq_length = 4,
                                    .micro_batch = 1,
                                    .ramp = &r->ramp,
                                    .n_ramp = 1,
                                    .axes = {.pipeline = ranks, .measured = 1}};
    r->who = lf_axes_who(&r->c.axes, 0, ranks);
    for (int i = 0; i < PARTS; i++)
        for (int k = 0; k < 5; k++)
            r->ns[i][k] = pipe_below(2000);
}

/* As a checkpoint has it. */
static json_t *record(const struct run *r, const char *layers)
{
    json_t *parts = json_array();
    for (int i = 0; i < PARTS; i++)
        json_array_append_new(parts, json_pack("[I,I,I,I,I]", r->ns[i][0], r->ns[i][1], r->ns[i][2],
                                               r->ns[i][3], r->ns[i][4]));
    return json_pack("{s:{s:i,s:i,s:i,s:b,s:i},s:s,s:o}", "axes", "pipeline", r->who.pipeline_ranks,
                     "data", 1, "tensor", 1, "sequence", 0, "chunks", 1, "layers", layers, "parts",
                     parts);
}

/* Reads the record; the cut of it stays only where `keep` says so. */
static int open_run(struct lf_train_cut *cut, struct lf_train_costs *k, struct run *r,
                    const char *layers, bool keep)
{
    json_t *o = record(r, layers);
    const int rc = lf_train_costs_read(k, o, &r->c.axes, &r->who, LAYERS, NULL);
    json_decref(o);
    if (!keep) {
        free(k->layers);
        k->layers = NULL;
    }
    r->c.costs = k;
    return rc == 1 ? lf_train_cut_open(cut, &r->c, &r->mc, &r->who, NULL) : LF_EINVAL;
}

/* ---- where the model is cut ---- */

/* F, Z and the optimizer of two ranks, the first with n layers. */
static int64_t largest(const struct run *r, int n)
{
    int64_t s[2] = {0, 0};
    for (int i = 0; i < PARTS; i++)
        s[i > n] += r->ramp.samples * (r->ns[i][0] + r->ns[i][3]) + r->ns[i][4];
    return s[0] > s[1] ? s[0] : s[1];
}

static void cuts(void)
{
    int best = 0, uneven = 0;
    for (int i = 0; i < CASES; i++) {
        struct run r;
        struct lf_train_cut cut = {0};
        struct lf_train_costs k = {0};
        begin(&r, 2, 1 + pipe_below(8));
        int64_t least = INT64_MAX;
        for (int n = 1; n < LAYERS; n++)
            least = largest(&r, n) < least ? largest(&r, n) : least;
        if (open_run(&cut, &k, &r, "3,3", false) == 0) {
            best += largest(&r, cut.layers[0]) == least;
            uneven += cut.layers[0] != 3;
        }
        lf_train_cut_close(&cut);
        lf_train_costs_fini(&k);
    }
    tap_i64(best, CASES, "no cut makes the longest rank shorter");
    tap_ok(uneven > 20, "%d of %d cuts are not even", uneven, CASES);
}

/* ---- how long a step takes ---- */

/* 1f1b of two ranks. */
static double by_hand(const struct run *r, int n)
{
    double f[2] = {0}, z[2] = {0}, update[2] = {0}, t0, t1 = 0;
    for (int i = 0; i < PARTS; i++) {
        f[i > n] += 1e-9 * (double)r->ns[i][0];
        z[i > n] += 1e-9 * (double)r->ns[i][3];
        update[i > n] += 1e-9 * (double)r->ns[i][4];
    }
    double sent = t0 = f[0];
    for (int64_t i = 0; i < r->ramp.samples; i++) {
        t1 = (t1 > sent ? t1 : sent) + f[1] + z[1];
        if (i + 1 < r->ramp.samples)
            sent = t0 += f[0];
        t0 = (t0 > t1 ? t0 : t1) + z[0];
    }
    return t0 + (update[0] > update[1] ? update[0] : update[1]);
}

static void steps(void)
{
    int right = 0, kept = 0;
    double idle = 0;
    for (int i = 0; i < CASES; i++) {
        struct run r;
        struct lf_train_cut cut = {0};
        struct lf_train_costs k = {0};
        struct lf_pipe_timing t = {0};
        const int micro = 1 + pipe_below(8), n = 1 + pipe_below(LAYERS - 1);
        double step_s = 0;
        char layers[24];
        snprintf(layers, sizeof layers, "%d,%d", n, LAYERS - n);
        begin(&r, 2, micro);
        if (open_run(&cut, &k, &r, layers, true) == 0 &&
            lf_train_cost_walk(&t, &step_s, &k, &cut, micro, NULL) == 0) {
            const double want = by_hand(&r, n), apart = step_s - want;
            kept += cut.layers[0] == n;
            right += apart < 1e-12 && apart > -1e-12;
            idle += t.idle_share;
        }
        lf_pipe_timing_fini(&t);
        lf_train_cut_close(&cut);
        lf_train_costs_fini(&k);
    }
    tap_i64(kept, CASES, "a cut on record is taken");
    tap_i64(right, CASES, "a step takes what a walk by hand takes");
    tap_ok(idle > 0, "and ranks wait");
}

/* ---- the record ---- */

static void records(void)
{
    struct run r;
    struct lf_train_cut cut = {0};
    struct lf_train_costs k = {0};
    begin(&r, 2, 3);
    tap_i64(open_run(&cut, &k, &r, "4,2", true), 0, "it is read");
    json_t *was = record(&r, "4,2"), *is = lf_train_costs_json(&k, &cut, &r.c.axes, &r.who);
    tap_ok(json_equal(was, is), "and written as it was");
    json_decref(is);
    lf_train_cut_close(&cut);
    lf_train_costs_fini(&k);

    const struct lf_axes chunks = {.pipeline = 2, .chunks = 3}, wide = {.pipeline = 3};
    const struct lf_train_who three = lf_axes_who(&wide, 0, 3), four = lf_axes_who(&r.c.axes, 0, 4);
    tap_i64(lf_train_costs_read(&k, was, &chunks, &r.who, LAYERS, NULL), 0, "not other chunks");
    tap_i64(lf_train_costs_read(&k, was, &wide, &three, LAYERS, NULL), 0, "not other ranks");
    tap_i64(lf_train_costs_read(&k, was, &r.c.axes, &four, LAYERS, NULL), 0,
            "not ranks that share the batch");
    tap_i64(lf_train_costs_read(&k, was, &r.c.axes, &r.who, LAYERS + 1, NULL), 0,
            "not another model");
    tap_i64(lf_train_costs_read(&k, NULL, &r.c.axes, &r.who, LAYERS, NULL), 0, "nor nothing");
    json_array_set_new(json_array_get(json_object_get(was, "parts"), 2), 1, json_integer(-1));
    tap_i64(lf_train_costs_read(&k, was, &r.c.axes, &r.who, LAYERS, NULL), 0, "nor a time below 0");
    tap_ok(!k.part && !k.layers, "nothing is left of it");
    json_decref(was);
}

/* ---- what is measured ---- */

/* A clock by which every pass takes as long. */
double __wrap_lf_now_s(void);
double __wrap_lf_now_s(void)
{
    static double now;
    return now += 0.25;
}

/* Of a rank of so many that divide the rows. */
static struct lf_train_cost measured(int context, enum lf_model_mask mask)
{
    static const char *const keys[][2] = {{"layers", "1"}, {"hidden", "16"},
                                          {"heads", "2"},  {"ffn", "16"},
                                          {"vocab", "32"}, {"max_positions", "8"}};
    struct run r;
    struct lf_train_costs k = {0};
    lf_err err = LF_ERR_INIT;
    begin(&r, 2, 3);
    lf_model_config_defaults(&r.mc);
    int rc = lf_model_config_family(&r.mc, "llama", "test", &err);
    for (size_t i = 0; i < sizeof keys / sizeof *keys && rc == 0; i++)
        rc = lf_model_config_set(&r.mc, keys[i][0], keys[i][1], "test", &err);
    r.mc.mask = mask;
    if (rc != 0 || lf_model_config_finish(&r.mc, &err) != 0)
        tap_bail("%s", err.text);
    r.c.n_sources = 1;
    r.c.threads = 1;
    r.c.adam = (struct lf_adamw_opts){.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-6f};
    r.c.axes.context = context;
    r.who = lf_axes_who(&r.c.axes, 0, 2 * context);
    if (lf_train_cost_measure(&k, &r.c, &r.mc, &r.who, NULL, &err) != 0)
        tap_bail("%s", err.text);
    const struct lf_train_cost layer = k.part[1];
    lf_train_costs_fini(&k);
    return layer;
}

static bool half(double part, double all)
{
    return all > 0 && part > 0.499 * all && part < 0.501 * all;
}

static void rows(void)
{
    const struct lf_train_cost one = measured(1, LF_MASK_CAUSAL), two = measured(2, LF_MASK_CAUSAL);
    tap_ok(half(two.f_s, one.f_s) && half(two.b_s, one.b_s) && half(two.w_s, one.w_s) &&
               half(two.z_s, one.z_s) && half(two.update_s, 2 * one.update_s),
           "of two ranks that divide rows each takes half the time of a pass");
    tap_ok(measured(1, LF_MASK_PREFIX).f_s > 0, "prefixes are inputs, too");
}

int main(void)
{
    TAP(2, rows());
    TAP(2, cuts());
    TAP(3, steps());
    TAP(9, records());
    return tap_done();
}
