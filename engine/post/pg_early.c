/* SPDX-License-Identifier: Apache-2.0
 *
 * A run of rounds ends early: what engine/train/early.h decides, between two rounds. A round that
 * is being trained on is ended first; one that is only being generated is dropped, unless it is the
 * first.
 */
#include "engine/base/sys.h"
#include "engine/post/pg_priv.h"

void lf_pg_early_begin(lf_pg *p)
{
    const struct lf_pg_config *c = p->c;
    p->early = (lf_early){.unit = "rounds",
                          .hours = c->hours,
                          .schedule = c->schedule,
                          .warmup = c->warmup_steps,
                          .decay = c->decay_steps,
                          .planned = c->steps,
                          .total = c->steps};
}

void lf_pg_early_apply(lf_pg *p)
{
    const int64_t updates = lf_pg_updates(p->c, (size_t)(p->c->prompts * p->c->samples));
    if (p->early.placed)
        p->schedule.total = p->early.total * (updates > 0 ? updates : 1);
}

double lf_pg_active_s(const lf_pg *p)
{
    return p->active0 + (p->session0 > 0 ? lf_now_s() - p->session0 : 0);
}

enum lf_run_end lf_pg_early_clock(const lf_pg *p)
{
    const double active = lf_pg_active_s(p);
    return lf_early_clock(&p->early, p->s.round, active, p->s.round - p->here0,
                          active - p->active0);
}

void lf_pg_early_meet(lf_pg *p, enum lf_run_end ask)
{
    const bool place = lf_early_places(&p->early, ask, p->s.round);
    const char *why = ask == LF_END_HOURS ? "hours" : "as requested";
    if (ask == LF_END_NOT || p->s.done > 0)
        return;
    if (place)
        lf_early_place(&p->early, ask, p->s.round);
    if (place && p->early.placed) {
        lf_pg_early_apply(p);
        lf_run_log(
            &p->run, 2,
            "the learning rate decays after round %lld, and the run ends after round %lld of "
            "%lld (%s)",
            (long long)p->early.from, (long long)p->early.total, (long long)p->early.planned, why);
        return;
    }
    const int64_t last = p->s.round > 0 ? p->s.round : 1;
    if (!place && lf_early_cut(&p->early, ask, last))
        lf_run_log(&p->run, 2, "ending after round %lld of %lld (%s)", (long long)last,
                   (long long)p->early.planned, why);
}
