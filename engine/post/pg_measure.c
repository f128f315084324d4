/* SPDX-License-Identifier: Apache-2.0
 *
 * What is measured beside the training of a policy: which round is the best one, and samples. */
#include "engine/post/pg_priv.h"

/* ---- the best round ---- */

static double measured(const lf_pg *p)
{
    return p->c->best_metric == LF_PG_BEST_SCORE ? p->st.score : p->st.reward;
}

static int keep(lf_pg *p, int64_t before, lf_err *err)
{
    json_t *state = lf_pg_state_json(p, err);
    int rc = lf_best_keep(&p->run, state ? 0 : LF_ENOMEM, &p->s.best, before, state, err);
    lf_run_phase(&p->run, LF_PG_PHASE);
    json_decref(state);
    return rc;
}

int lf_pg_judge(lf_pg *p, lf_err *err)
{
    struct lf_best *b = &p->s.best;
    const int64_t before = b->step;
    const bool better = lf_best_take(b, measured(p), true, p->s.updates);
    if (!better && b->stale == p->c->patience)
        lf_run_log(&p->run, 2,
                   "no better round than that of the weights after step %lld for %lld: the end "
                   "comes behind this one",
                   (long long)before, (long long)b->stale);
    if (!better || !p->c->keep_best)
        return 0;
    return lf_run_agree(&p->run, lf_pg_saves(p) ? keep(p, before, err) : 0, err);
}

int lf_pg_publish_best(lf_pg *p, lf_err *err)
{
    if (!p->c->keep_best)
        return 0;
    int rc = lf_run_first(&p->run) ? lf_best_publish(&p->run, &p->s.best, err) : 0;
    return lf_run_agree(&p->run, rc, err);
}

/* ---- samples ---- */

int lf_pg_samples_begin(lf_pg *p, lf_err *err)
{
    lf_gen_model m;
    if (!p->c->guest || p->at[LF_PG_ROLLOUT].who.data > 0)
        return 0;
    p->prompts[0] = p->data;
    p->host = (struct lf_guest_host){.run = &p->run,
                                     .draws = true,
                                     .group = p->at[LF_PG_ROLLOUT].comms.tensor,
                                     .data = p->data,
                                     .docs = p->prompts,
                                     .n_docs = 1,
                                     .prompts = true,
                                     .model = &p->mc,
                                     .patches = p->seen.patches,
                                     .tiles = p->seen.tiles};
    int rc = lf_pg_model_gen(lf_pg_generator(p), &m, err);
    return rc != 0 ? rc : lf_samples_begin(p->c->guest, &p->host, &m, err);
}

int lf_pg_samples_visit(lf_pg *p, struct lf_pg_update *u, lf_err *err)
{
    const int64_t round = p->s.round + 1;
    const bool last = round == p->c->steps || lf_best_over(&p->s.best, p->c->patience);
    if (!p->c->guest || (round % p->c->sample_interval != 0 && !last))
        return 0;
    u->visited = true;
    int rc = lf_run_agree(&p->run, lf_pg_bring(p, err), err);
    if (rc == 0 && p->at[LF_PG_ROLLOUT].who.data == 0)
        rc = lf_samples_visit(p->c->guest, p->s.updates, u->guest, err);
    return lf_run_agree(&p->run, rc, err);
}
