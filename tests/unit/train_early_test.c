/* SPDX-License-Identifier: Apache-2.0
 *
 * When a run ends before its length: the clock, a decay that is placed, what a checkpoint says.
 */
#include <string.h>

#include "engine/train/early.h"
#include "tests/tap/tap.h"

static lf_early run_of(enum lf_schedule_kind k, int64_t decay)
{
    return (lf_early){.unit = "steps",
                      .hours = 1,
                      .schedule = k,
                      .warmup = 10,
                      .decay = decay,
                      .planned = 2000,
                      .total = 2000};
}

static void clock_of_constant(void)
{
    const lf_early e = run_of(LF_SCHED_CONSTANT, 0);
    /* 4 s a step: step 900 ends with the hour */
    tap_ok(lf_early_clock(&e, 898, 3592, 100, 400) == LF_END_NOT, "two steps fit");
    tap_ok(lf_early_clock(&e, 899, 3596, 100, 400) == LF_END_HOURS,
           "one step fits, and is the last");
    tap_ok(lf_early_clock(&e, 0, 0, 0, 0) == LF_END_NOT, "nothing is measured yet");
    tap_ok(lf_early_clock(&e, 50, 3597, 0, 0) == LF_END_HOURS, "the time of earlier starts counts");
    tap_ok(lf_early_clock(&e, 898, 3592, 31, 620) == LF_END_NOT,
           "a start that is young has no speed");
    tap_ok(lf_early_clock(&e, 898, 3592, 32, 640) == LF_END_HOURS, "then its own speed counts");
    lf_early none = e;
    none.hours = 0;
    tap_ok(lf_early_clock(&none, 898, 1e9, 100, 400) == LF_END_NOT, "no hours, no end");
    none = e;
    none.by = "request";
    tap_ok(lf_early_clock(&none, 898, 1e9, 100, 400) == LF_END_NOT, "it ends already");
}

/* A first step of a minute, then a second each: the decay of 1000 steps fits into the hour. */
static void clock_of_a_slow_first_step(void)
{
    lf_early e = run_of(LF_SCHED_WSD, 1000);
    e.planned = e.total = 100000;
    lf_early_count(&e, 60);
    tap_ok(lf_early_clock(&e, 1, 60, 1, 60) == LF_END_NOT, "the first step alone has no speed");
    lf_early_count(&e, 1);
    lf_early_count(&e, 3);
    tap_ok(lf_early_clock(&e, 3, 64, 3, 64) == LF_END_NOT, "nor has it a part in that of few");
    tap_ok(lf_early_clock(&e, 34, 93, 34, 93) == LF_END_NOT, "nor in that of many");
    tap_ok(lf_early_clock(&e, 2539, 2598, 2539, 2598) == LF_END_NOT &&
               lf_early_clock(&e, 2540, 2599, 2540, 2599) == LF_END_HOURS,
           "the decay begins where it ends with the hour");
    tap_ok(lf_early_clock(&e, 3, 3000, 3, 3000) == LF_END_HOURS, "time is over after few, too");
}

static void clock_of_wsd(void)
{
    lf_early e = run_of(LF_SCHED_WSD, 100);
    tap_ok(lf_early_clock(&e, 798, 3192, 100, 400) == LF_END_NOT, "there is time before the decay");
    tap_ok(lf_early_clock(&e, 799, 3196, 100, 400) == LF_END_HOURS, "the decay takes what is left");
    tap_ok(lf_early_places(&e, LF_END_HOURS, 799), "it is placed");
    lf_early_place(&e, LF_END_HOURS, 799);
    tap_ok(e.from == 800 && e.total == 900, "to end with the hour");
    tap_ok(lf_early_clock(&e, 850, 1e9, 100, 400) == LF_END_NOT, "once");
    tap_ok(!lf_early_places(&e, LF_END_DECAY, 850), "and by nobody else");
    tap_ok(lf_early_due(&e, 800) && !lf_early_due(&e, 801), "a checkpoint says where it begins");
    e = run_of(LF_SCHED_WSD, 100);
    tap_ok(lf_early_clock(&e, 1899, 1e9, 100, 400) == LF_END_NOT,
           "its own decay is about to begin");
    tap_ok(!lf_early_places(&e, LF_END_DECAY, 1899) && !lf_early_cut(&e, LF_END_DECAY, 1899),
           "which is what a request for it asks for");
    tap_ok(lf_early_cut(&e, LF_END_NOW, 1900) && e.total == 1900, "an end at once cuts it off");
    e = run_of(LF_SCHED_WSD, 100);
    lf_early_place(&e, LF_END_DECAY, 3);
    tap_ok(e.from == 10 && e.total == 110, "no decay before the warm-up has ended");
}

static void cuts(void)
{
    lf_early e = run_of(LF_SCHED_CONSTANT, 0);
    tap_ok(!lf_early_places(&e, LF_END_DECAY, 5), "a constant rate has no decay");
    tap_ok(lf_early_cut(&e, LF_END_DECAY, 6) && e.total == 6, "so the request ends the run");
    tap_ok(!lf_early_cut(&e, LF_END_NOW, 7) && e.total == 6, "an end is never moved back");
    e = run_of(LF_SCHED_CONSTANT, 0);
    tap_ok(!lf_early_cut(&e, LF_END_NOW, 2000) && !e.by,
           "at the end of the run there is none to cut");
}

static void states(void)
{
    lf_err err = LF_ERR_INIT;
    lf_early e = run_of(LF_SCHED_WSD, 100), back = e;
    json_t *s = json_object();
    lf_early_place(&e, LF_END_HOURS, 799);
    tap_rc(lf_early_add(&e, s, 820, 820, &err), 0, &err, NULL, "in the decay");
    tap_ok(!lf_early_ended(s), "it has not ended");
    lf_early_take(&back, s);
    tap_ok(back.placed && back.from == 800 && back.total == 900 && strcmp(back.by, "hours") == 0,
           "a start that goes on knows the decay");
    lf_early longer = run_of(LF_SCHED_WSD, 50);
    lf_early_take(&longer, s);
    tap_ok(!longer.placed && longer.total == 2000, "one with another decay does not");
    tap_rc(lf_early_add(&e, s, 900, 900, &err), 0, &err, NULL, "at its end");
    const json_t *ended = json_object_get(s, "ended");
    tap_ok(lf_early_ended(s) &&
               json_integer_value(json_object_get(ended, "ended_at_step")) == 900 &&
               json_integer_value(json_object_get(ended, "of")) == 2000,
           "it has ended, at 900 of 2000");
    back = run_of(LF_SCHED_WSD, 100);
    lf_early_take(&back, s);
    tap_ok(!back.placed && back.total == 2000, "a run that goes on from a result is a longer one");
    json_decref(s);
    s = json_object();
    e = run_of(LF_SCHED_CONSTANT, 0);
    tap_rc(lf_early_add(&e, s, 2000, 2000, &err), 0, &err, NULL, "a run to its end");
    tap_ok(json_object_size(s) == 0, "has nothing to say");
    json_decref(s);
}

static void schedules(void)
{
    lf_err err = LF_ERR_INIT;
    tap_rc(lf_early_check(8, LF_SCHED_WSD, &err), 0, &err, NULL, "hours with wsd");
    tap_rc(lf_early_check(8, LF_SCHED_CONSTANT, &err), 0, &err, NULL, "with constant");
    tap_rc(lf_early_check(0, LF_SCHED_COSINE, &err), 0, &err, NULL, "none with cosine");
    const enum lf_schedule_kind bad[] = {LF_SCHED_COSINE, LF_SCHED_LINEAR, LF_SCHED_INVERSE_SQRT};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lf_err e = LF_ERR_INIT;
        tap_rc(lf_early_check(8, bad[i], &e), LF_EINVAL, &e, "hours = 8", "refused");
    }
}

int main(void)
{
    TAP(8, clock_of_constant());
    TAP(5, clock_of_a_slow_first_step());
    TAP(11, clock_of_wsd());
    TAP(4, cuts());
    TAP(9, states());
    TAP(6, schedules());
    return tap_done();
}
