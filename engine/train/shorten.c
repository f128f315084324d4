/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop of steps ends early: what early.h decides becomes the length and the schedule of the
 * run.
 */
#include "engine/base/sys.h"
#include "engine/train/loop_priv.h"

void lf_train_early_begin(lf_trainer *t)
{
    const struct lf_train_config *c = t->c;
    t->early = (lf_early){.unit = "steps",
                          .hours = c->hours,
                          .schedule = c->schedule,
                          .warmup = c->warmup_steps,
                          .decay = c->decay_steps,
                          .planned = t->total_steps,
                          .total = t->total_steps};
}

static int64_t samples_of(const lf_trainer *t, int64_t steps)
{
    return lf_ramp_samples_of_steps(t->c->ramp, t->c->n_ramp, steps);
}

/* A run that is only cut keeps its schedule: the rate of the steps before the end is that of the
 * length by the settings. */
void lf_train_early_apply(lf_trainer *t)
{
    t->total_steps = t->early.total;
    t->total_samples = samples_of(t, t->total_steps);
    if (!t->early.placed)
        return;
    const int64_t from = t->early.from;
    t->lr.total = samples_of(t, from + t->early.decay);
    t->lr.decay = t->lr.total - samples_of(t, from);
}

enum lf_run_end lf_train_early_clock(const lf_trainer *t)
{
    const double here = lf_now_s() - t->session0;
    return lf_early_clock(&t->early, t->s.step, t->active0 + here, t->s.step - t->here0, here);
}

static const char *why(enum lf_run_end ask)
{
    return ask == LF_END_HOURS ? "hours" : "as requested";
}

static void place(lf_trainer *t, enum lf_run_end ask)
{
    lf_early_place(&t->early, ask, t->s.step);
    if (!t->early.placed)
        return;
    lf_train_early_apply(t);
    lf_train_log(t, 2,
                 "the learning rate decays after step %lld, and the run ends after step %lld of "
                 "%lld (%s)",
                 (long long)t->early.from, (long long)t->total_steps, (long long)t->early.planned,
                 why(ask));
}

void lf_train_early_meet(lf_trainer *t, enum lf_run_end ask)
{
    /* A start that has trained nothing takes what it goes on from. */
    const bool nothing = t->s.step > 0 && t->told_step == 0 && !t->flight.up;
    const int64_t last = t->s.step + (t->flight.up || nothing ? 0 : 1);
    if (lf_early_places(&t->early, ask, t->s.step)) {
        place(t, ask);
    } else if (ask != LF_END_NOT && lf_early_cut(&t->early, ask, last)) {
        lf_train_early_apply(t);
        lf_train_log(t, 2, "ending after step %lld of %lld (%s)", (long long)last,
                     (long long)t->early.planned, why(ask));
    }
}
