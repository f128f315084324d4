/* SPDX-License-Identifier: Apache-2.0
 *
 * A profile adds up: FLOPs are the plan's, nodes are within segments within phases within the
 * whole, the trace parses and holds what ran; looking on changes no bit; of what nobody gave a
 * profile nothing is kept.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/graph/profile.h"
#include "tests/unit/graph_util.h"

enum { STEPS = 3 };

#define MUST(x)                                                                                    \
    do                                                                                             \
        if ((x) < 0)                                                                               \
            tap_bail("%s: %s", #x, err.text);                                                      \
    while (0)

static double num(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static const json_t *with(const json_t *rows, const char *key, const char *value)
{
    size_t i;
    json_t *r;
    json_array_foreach(rows, i, r) if (strcmp(json_string_value(json_object_get(r, key)), value) ==
                                       0) return r;
    return NULL;
}

static double sum(const json_t *rows, const char *key)
{
    size_t i;
    json_t *r;
    double s = 0;
    json_array_foreach(rows, i, r) s += num(r, key);
    return s;
}

static bool near(double a, double b)
{
    return a - b <= 1e-9 * (1 + b) && b - a <= 1e-9 * (1 + b);
}

/* STEPS steps of two micro-batches; the gradients of the last. */
static float *steps(struct gu *u, lf_profile *p, size_t *n)
{
    lf_err err = LF_ERR_INIT;
    float *g = NULL;
    for (uint32_t s = 0; s < STEPS; s++) {
        struct gu_batch b;
        struct lf_profile_mark m = lf_profile_begin(p);
        gu_record(u, 100, 1e-3f);
        for (uint32_t i = 0; i < 2; i++) {
            gu_batch_make(&b, &u->m, u->m.rows, 2 * s + i);
            gu_feed(u, u->train, 0, &b);
            gu_fwd_bwd(u, 0, i ? LF_ACCUM : LF_FIRST);
        }
        MUST(lf_exec_run(u->ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err));
        lf_profile_end(p, LF_LANE_STEP, "step", m);
    }
    g = gu_grads(u, n);
    return g;
}

static void check_sums(struct gu *u, const json_t *j)
{
    const json_t *seconds = json_object_get(j, "seconds"), *ops = json_object_get(j, "ops"),
                 *layers = json_object_get(j, "layers");
    const json_t *segments = json_object_get(j, "segments"),
                 *step = with(json_object_get(j, "phases"), "name", "step");
    struct lf_plan_cost c;
    lf_err err = LF_ERR_INIT;
    MUST(lf_plan_cost(u->p, u->train, &c));
    double want = 2 * STEPS * (c.fwd_causal + c.bwd_causal + c.recompute);
    tap_ok(near(num(j, "flops"), want) && want > 0, "FLOPs are the plan's: %.0f, %.0f",
           num(j, "flops"), want);
    tap_ok(near(sum(ops, "flops"), want) && near(sum(layers, "flops"), want) &&
               near(sum(segments, "flops"), want),
           "by op, by layer and by segment too");
    double k = num(seconds, "kernels"), s = num(seconds, "segments"), w = num(seconds, "wall");
    tap_ok(k > 0 && k <= s && s <= w, "kernels %.6f <= segments %.6f <= all %.6f s", k, s, w);
    tap_ok(near(sum(ops, "seconds"), k) && near(sum(layers, "seconds"), k) &&
               near(sum(segments, "kernel_seconds"), k),
           "seconds by op, by layer and by segment are those of the kernels");
    tap_ok(step && num(step, "count") == STEPS &&
               num(step, "kernel_seconds") <= num(step, "seconds") && num(step, "seconds") <= w &&
               num(step, "longest") <= num(step, "seconds") && near(num(step, "kernel_seconds"), k),
           "steps hold what ran in them");
    const json_t *lin = with(ops, "op", "linear"), *adam = with(ops, "op", "adamw");
    tap_ok(lin && num(lin, "calls") > 0 && (int64_t)num(lin, "calls") % (2 * STEPS) == 0 && adam &&
               num(adam, "calls") == STEPS,
           "calls are counted, the optimizer's too");
    struct lf_plan_bytes by;
    MUST(lf_plan_bytes(u->p, &by));
    tap_ok(adam && near(num(adam, "bytes"),
                        STEPS * 7.0 * 4 * (double)lf_pstore_elements_trained(u->ps)),
           "AdamW moves 28 bytes a weight");
    const json_t *roof = json_object_get(j, "roofline");
    tap_ok(num(roof, "bytes_per_s") > 0 && num(lin, "share") > 0,
           "there is a roofline and a share of it");
}

static void check_trace(const lf_profile *p, const json_t *j)
{
    lf_err err = LF_ERR_INIT;
    lf_buf t;
    lf_buf_init(&t);
    MUST(lf_profile_trace(p, 3, &t, &err));
    json_t *trace = lf_json_load_text(t.data, t.len, "trace", &err),
           *events = json_object_get(trace, "traceEvents"), *e;
    double nodes = 0, bad = 0, steps_seen = 0, dur = 0;
    size_t i;
    json_array_foreach(events, i, e)
    {
        const char *ph = json_string_value(json_object_get(e, "ph"));
        bad += !json_is_string(json_object_get(e, "name")) || num(e, "pid") != 3;
        if (strcmp(ph, "M") == 0)
            continue;
        bad += strcmp(ph, "X") != 0 || num(e, "dur") < 0 || num(e, "ts") < 0;
        bool node = strcmp(json_string_value(json_object_get(e, "cat")), "nodes") == 0;
        nodes += node;
        dur += node ? num(e, "dur") : 0;
        steps_seen += strcmp(json_string_value(json_object_get(e, "name")), "step") == 0;
    }
    tap_ok(json_array_size(events) > 20 && bad == 0, "the trace parses and every event is whole");
    tap_ok(nodes == sum(json_object_get(j, "ops"), "calls") && steps_seen == STEPS,
           "it has every node and every step");
    double k = num(json_object_get(j, "seconds"), "kernels") * 1e6;
    tap_ok(dur > 0.9 * k - nodes && dur < 1.1 * k + nodes,
           "its nodes last as long as the kernels took");
    json_decref(trace);
    lf_buf_fini(&t);
}

static void check_text(const lf_profile *p)
{
    lf_err err = LF_ERR_INIT;
    lf_buf t;
    lf_buf_init(&t);
    MUST(lf_profile_text(p, &t, &err));
    tap_ok(strstr(t.data, "linear_dw") && strstr(t.data, "train, layer 1") &&
               strstr(t.data, "step "),
           "the table names ops, layers and steps");
    lf_buf_fini(&t);
}

int main(void)
{
    lf_err err = LF_ERR_INIT;
    struct gu_opts o = gu_f32;
    struct gu plain, watched;
    size_t n, m;
    o.optimizer = true;
    o.recompute = LF_RECOMPUTE_SELECTIVE;
    gu_open(&plain, &gu_llama, &o);
    float *a = steps(&plain, NULL, &n);
    gu_close(&plain);
    MUST((o.profile = lf_profile_create(&err)) ? 0 : -1);
    gu_open(&watched, &gu_llama, &o);
    float *b = steps(&watched, o.profile, &m);
    tap_ok(n == m && memcmp(a, b, n * sizeof *a) == 0, "looking on changes no bit");
    json_t *j = lf_profile_json(o.profile, &err);
    MUST(j ? 0 : -1);
    TAP(8, check_sums(&watched, j));
    gu_close(&watched);
    TAP(3, check_trace(o.profile, j));
    TAP(1, check_text(o.profile));
    const json_t *again = NULL;
    size_t i;
    json_t *r;
    json_array_foreach(json_object_get(j, "ops"), i,
                       r) if (json_is_true(json_object_get(r, "again"))) again = r;
    tap_ok(again && num(again, "calls") > 0, "what recomputation repeats stands apart");
    json_decref(j);
    lf_profile_destroy(o.profile);
    free(a);
    free(b);
    lf_profile *none = lf_profile_create(&err);
    lf_profile_end(NULL, LF_LANE_STEP, "nothing", lf_profile_begin(NULL));
    j = none ? lf_profile_json(none, &err) : NULL;
    tap_ok(j && !lf_profile_ran(none) && json_array_size(json_object_get(j, "ops")) == 0 &&
               json_is_null(json_object_get(j, "roofline")),
           "nothing ran: nothing is told");
    json_decref(j);
    lf_profile_destroy(none);
    return tap_done();
}
