/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules at points known by hand, and the arithmetic of batch ramps against a naive walk. */
#include <math.h>

#include "engine/train/schedule.h"
#include "tests/tap/tap.h"

static lf_schedule base(enum lf_schedule_kind kind)
{
    return (lf_schedule){
        .kind = kind, .peak = 1e-3, .min = 1e-4, .warmup = 100, .total = 1100, .decay = 200};
}

static void test_points(void)
{
    static const struct {
        enum lf_schedule_kind kind;
        enum lf_schedule_tail tail;
        int64_t at;
        double want;
    } v[] = {
        {LF_SCHED_CONSTANT, 0, 1, 1e-5},
        {LF_SCHED_CONSTANT, 0, 50, 5e-4},
        {LF_SCHED_CONSTANT, 0, 100, 1e-3},
        {LF_SCHED_CONSTANT, 0, 5000, 1e-3},
        {LF_SCHED_LINEAR, 0, 100, 1e-3},
        {LF_SCHED_LINEAR, 0, 600, 5.5e-4},
        {LF_SCHED_LINEAR, 0, 1100, 1e-4},
        {LF_SCHED_LINEAR, 0, 9999, 1e-4},
        {LF_SCHED_COSINE, 0, 600, 5.5e-4},
        {LF_SCHED_COSINE, 0, 350, 1e-4 + 9e-4 * 0.5 * (1 + 0.70710678118654752)},
        {LF_SCHED_COSINE, 0, 1100, 1e-4},
        {LF_SCHED_INVERSE_SQRT, 0, 400, 5e-4},
        {LF_SCHED_INVERSE_SQRT, 0, 900, 1e-3 / 3},
        {LF_SCHED_WSD, LF_TAIL_LINEAR, 900, 1e-3},
        {LF_SCHED_WSD, LF_TAIL_LINEAR, 1000, 5.5e-4},
        {LF_SCHED_WSD, LF_TAIL_COSINE, 1000, 5.5e-4},
        {LF_SCHED_WSD, LF_TAIL_EXP, 1000, 1e-3 * 0.31622776601683794},
        {LF_SCHED_WSD, LF_TAIL_SQRT, 950, 1e-3 - 9e-4 * 0.5},
        {LF_SCHED_WSD, LF_TAIL_SQRT, 1100, 1e-4},
    };
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
        lf_schedule s = base(v[i].kind);
        s.tail = v[i].tail;
        tap_f64(lf_schedule_lr(&s, v[i].at), v[i].want, 1e-12, "rate at a known point");
    }
    lf_schedule s = base(LF_SCHED_COSINE);
    s.warmup = 0;
    tap_f64(lf_schedule_lr(&s, 0), 1e-3, 1e-15, "without warm-up the first rate is the peak");
    s.warmup = s.total;
    tap_f64(lf_schedule_lr(&s, s.total), 1e-3, 1e-15,
            "a schedule that is all warm-up ends at the peak");
}

static void test_check(void)
{
    lf_err err = LF_ERR_INIT;
    lf_schedule s = base(LF_SCHED_WSD);
    tap_rc(lf_schedule_check(&s, &err), 0, &err, NULL, "a sound schedule passes");
    s.decay = 1001;
    tap_rc(lf_schedule_check(&s, &err), LF_EINVAL, &err, "do not fit", "decay beyond the schedule");
    s = base(LF_SCHED_LINEAR);
    s.warmup = 1101;
    tap_rc(lf_schedule_check(&s, &err), LF_EINVAL, &err, "longer than",
           "warm-up beyond the schedule");
    s = base(LF_SCHED_LINEAR);
    s.min = 2e-3;
    tap_rc(lf_schedule_check(&s, &err), LF_EINVAL, &err, "min_lr", "min above peak");
    s = base(LF_SCHED_WSD);
    s.tail = LF_TAIL_EXP;
    s.min = 0;
    tap_rc(lf_schedule_check(&s, &err), LF_EINVAL, &err, "exponential",
           "exponential decay to zero");
}

static void test_ramp(void)
{
    static const lf_ramp_row rows[] = {{0, 4}, {10, 8}, {30, 16}};
    int64_t at = 0;
    bool same = true;
    for (int64_t step = 0; step < 40; step++) {
        same = same && lf_ramp_samples_of_steps(rows, 3, step) == at;
        if (at > 0)
            same = same && lf_ramp_steps_to(rows, 3, at) == step &&
                   lf_ramp_steps_to(rows, 3, at - 1) == step;
        at += lf_ramp_samples(rows, 3, at);
    }
    tap_ok(same, "steps and samples agree with a walk step by step");
    tap_i64(lf_ramp_samples(rows, 3, 0), 4, "first row");
    tap_i64(lf_ramp_samples(rows, 3, 12), 8, "a row takes effect at the first step at or after it");
    static const lf_ramp_row one[] = {{0, 512}};
    tap_i64(lf_ramp_samples_of_steps(one, 1, 1000000000), 512000000000,
            "no walk over a billion steps");
    tap_i64(lf_ramp_steps_to(one, 1, 513), 2, "the last step may pass the goal");
}

int main(void)
{
    TAP(21, test_points());
    TAP(5, test_check());
    TAP(5, test_ramp());
    return tap_done();
}
