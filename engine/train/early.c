/* SPDX-License-Identifier: Apache-2.0
 *
 * When a run ends before its length: see early.h.
 */
#include "engine/train/early.h"

#include <string.h>

#include "engine/store/ckpt.h"

/* Units of this start from which on its own speed is taken, with saves and validations. Before, it
 * is that of earlier starts, or of the shortest unit. */
#define MEASURED_ENOUGH 32

int lf_early_check(double hours, enum lf_schedule_kind schedule, lf_err *err)
{
    if (!(hours > 0) || schedule == LF_SCHED_CONSTANT || schedule == LF_SCHED_WSD)
        return 0;
    return lf_fail(err, LF_EINVAL,
                   "hours = %g ends a run where the clock says, but the learning rate of this "
                   "schedule follows from the whole length; say schedule = constant, or wsd with "
                   "decay",
                   hours);
}

static bool decays_by_itself(const lf_early *e, int64_t done)
{
    return e->schedule == LF_SCHED_WSD && done + 1 + e->decay >= e->planned;
}

void lf_early_count(lf_early *e, double seconds)
{
    if (!(seconds > 0))
        return;
    if (!(e->first_s > 0))
        e->first_s = seconds;
    else if (!(e->least_s > 0) || seconds < e->least_s)
        e->least_s = seconds;
}

/* Seconds of a unit; 0: none was measured. */
static double unit_s(const lf_early *e, int64_t done, double active_s, int64_t here, double here_s)
{
    const int64_t others = here - (e->first_s > 0);
    if (others >= MEASURED_ENOUGH)
        return (here_s - e->first_s) / (double)others;
    if (done - here < MEASURED_ENOUGH && e->least_s > 0)
        return e->least_s;
    return done > 0 ? active_s / (double)done : 0;
}

enum lf_run_end lf_early_clock(const lf_early *e, int64_t done, double active_s, int64_t here,
                               double here_s)
{
    if (!(e->hours > 0) || e->by || decays_by_itself(e, done))
        return LF_END_NOT;
    const double left = e->hours * 3600 - active_s;
    const double unit = unit_s(e, done, active_s, here, here_s);
    const bool first_only = e->first_s > 0 && !(e->least_s > 0) && done == here;
    const int64_t units = 1 + (e->schedule == LF_SCHED_WSD && !first_only ? e->decay : 0);
    return left <= (double)units * unit ? LF_END_HOURS : LF_END_NOT;
}

bool lf_early_places(const lf_early *e, enum lf_run_end ask, int64_t done)
{
    return (ask == LF_END_HOURS || ask == LF_END_DECAY) && e->schedule == LF_SCHED_WSD &&
           !e->placed && done < e->total && !decays_by_itself(e, done);
}

static const char *by_of(enum lf_run_end ask)
{
    return ask == LF_END_HOURS ? "hours" : "request";
}

void lf_early_place(lf_early *e, enum lf_run_end ask, int64_t done)
{
    e->from = done + 1 > e->warmup ? done + 1 : e->warmup;
    if (e->from + e->decay >= e->planned)
        return;
    e->placed = true;
    e->total = e->from + e->decay;
    e->by = by_of(ask);
}

bool lf_early_due(const lf_early *e, int64_t done)
{
    return e->placed && done == e->from;
}

bool lf_early_cut(lf_early *e, enum lf_run_end ask, int64_t last)
{
    if (last >= e->total || (ask != LF_END_NOW && e->schedule == LF_SCHED_WSD))
        return false;
    e->total = last;
    e->by = by_of(ask);
    return true;
}

int lf_early_add(const lf_early *e, json_t *state, int64_t done, int64_t step, lf_err *err)
{
    int bad = 0;
    if (e->placed)
        bad = json_object_set_new(state, "decay_placed",
                                  json_pack("{s:I,s:I,s:s}", "from", (json_int_t)e->from, "to",
                                            (json_int_t)(e->from + e->decay), "by", e->by));
    if (!bad && e->by && done >= e->total)
        bad = json_object_set_new(state, LF_CKPT_ENDED,
                                  json_pack("{s:I,s:I,s:I,s:s,s:s}", "ended_at_step",
                                            (json_int_t)step, "at", (json_int_t)done, "of",
                                            (json_int_t)e->planned, "unit", e->unit, "by", e->by));
    return bad ? lf_fail(err, LF_ENOMEM, "state of the run: out of memory") : 0;
}

void lf_early_take(lf_early *e, const json_t *state)
{
    const json_t *p = json_object_get(state, "decay_placed");
    const char *by = json_string_value(json_object_get(p, "by"));
    const int64_t from = json_integer_value(json_object_get(p, "from")),
                  to = json_integer_value(json_object_get(p, "to"));
    if (!by || from < 0 || to <= from || to >= e->planned || to - from != e->decay ||
        e->schedule != LF_SCHED_WSD || lf_early_ended(state))
        return;
    e->placed = true;
    e->from = from;
    e->total = to;
    e->by = strcmp(by, "hours") == 0 ? "hours" : "request";
}

bool lf_early_ended(const json_t *state)
{
    return json_is_object(json_object_get(state, LF_CKPT_ENDED));
}
