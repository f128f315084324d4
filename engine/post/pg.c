/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy-gradient loop: see pg.h. Rounds of rollout and updates, with a safe point behind every
 * mini-batch. */
#include "engine/post/pg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/sys.h"
#include "engine/post/pg_priv.h"
#include "engine/train/laid.h"
#include "engine/train/peak.h"

/* Collect what a run needs: nothing is trained yet. */
static int set_up(lf_pg *p, lf_err *err)
{
    char *rollouts = NULL;
    int rc = lf_pg_open_data(p, err);
    if (rc == 0)
        rc = lf_pg_ptx_open(p, err);
    if (rc == 0)
        rc = lf_pg_reward_open(p, err);
    if (rc == 0)
        rc = lf_pg_models(p, err);
    if (rc == 0 && !(rollouts = lf_path_join(p->c->out, "rollouts", err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = lf_io_mkdirs(rollouts, 0750, err);
    if (rc == 0)
        rc = lf_pg_samples_begin(p, err);
    free(rollouts);
    if (rc != 0)
        return rc;
    p->run.fingerprint = lf_exec_fingerprint(lf_pg_model_exec(p->actor), err);
    if (!p->run.fingerprint ||
        json_object_set_new(p->run.fingerprint, "rows", json_integer(p->rows)) ||
        json_object_set_new(p->run.fingerprint, "ranks", json_integer(p->run.ranks)) ||
        lf_laid_sign(p->run.fingerprint, &p->c->axes, &p->who, NULL, err) ||
        lf_pg_places_sign(p, p->run.fingerprint, err))
        return LF_ENOMEM;
    int64_t updates = lf_pg_updates(p->c, (size_t)(p->c->prompts * p->c->samples)),
            total = p->c->steps * (updates > 0 ? updates : 1);
    p->schedule = (lf_schedule){.kind = p->c->schedule,
                                .tail = p->c->tail,
                                .peak = p->c->lr,
                                .min = p->c->min_lr,
                                .warmup = p->c->warmup_steps * updates,
                                .decay = p->c->decay_steps * updates,
                                .total = total};
    if (p->comms.mesh) /* plans of ranks with other boxes differ */
        json_object_del(p->run.fingerprint, "plan");
    lf_pg_early_begin(p);
    return lf_schedule_check(&p->schedule, err);
}

static void tell_memory(lf_pg *p)
{
    const lf_pg_model *all[] = {p->actor, p->generator, p->ref, p->critic};
    static const char *const names[] = {"actor", "rollout", "reference", "critic"};
    struct lf_plan_bytes b;
    struct lf_plan_memory mem;
    char size[32];
    if (lf_pg_planned(&mem, p, NULL) == 0) {
        p->planned = mem.total;
        lf_run_log(&p->run, 2, "planned memory %s", lf_fmt_bytes(size, sizeof size, mem.total));
        if (mem.device > 0)
            lf_run_log(&p->run, 2, "planned GPU memory %s",
                       lf_fmt_bytes(size, sizeof size, mem.device));
    }
    for (int i = 0; i < 4; i++)
        if (all[i] && lf_plan_bytes(lf_pg_model_get_plan(all[i]), &b) == 0)
            lf_run_log(&p->run, 2, "  of it the %s: %s", names[i],
                       lf_fmt_bytes(size, sizeof size, (double)b.total));
    lf_run_log(&p->run, 2,
               "%llu prompts, %lld rounds of %lld x %lld completions, sequences of at most %lld "
               "tokens, micro-batches of %lld",
               (unsigned long long)p->n_docs, (long long)p->c->steps, (long long)p->c->prompts,
               (long long)p->c->samples, (long long)p->context, (long long)p->rows);
}

/* A good checkpoint, then LF_EINTR. */
static int stop_here(lf_pg *p, lf_err *err)
{
    int rc = lf_pg_save(p, LF_PG_STOP, err);
    return rc != 0 ? rc
                   : lf_fail(err, LF_EINTR, "stopped in round %lld", (long long)p->s.round + 1);
}

/* The round is over: its counters, the KL coefficient. */
static void close_round(lf_pg *p)
{
    struct lf_kl_control kl = p->c->kl;
    kl.beta = p->s.beta;
    lf_kl_control_update(&kl, p->st.kl, (int64_t)p->r.n);
    p->s.beta = kl.beta;
    const double now = lf_pg_active_s(p);
    lf_early_count(&p->early, now - p->counted_s);
    p->counted_s = now;
    p->s.round++;
    p->s.done = 0;
    if (p->c->epochs ==
        0) /* a checkpoint is named by steps: rounds without training are steps too */
        p->s.updates++;
}

static bool is_over(const lf_pg *p)
{
    return p->s.round >= p->early.total ||
           (p->s.done == 0 && lf_best_over(&p->s.best, p->c->patience));
}

static bool due(const lf_pg *p, bool late)
{
    bool round =
        p->s.done == 0 && ((p->c->save_interval > 0 && p->s.round % p->c->save_interval == 0) ||
                           lf_early_due(&p->early, p->s.round));
    return !is_over(p) && (round || late);
}

/* While its completions were generated. Collective. */
static int leave_round(lf_pg *p, lf_err *err)
{
    struct lf_run_asked asked = {.end = LF_END_NOT};
    lf_err_clear(err);
    int rc = lf_run_look(&p->run, 0, &asked, NULL, err);
    if (rc == 0 && !asked.stop)
        lf_pg_early_meet(p, asked.end);
    return rc != 0 || is_over(p) ? rc : stop_here(p, err);
}

/* After a round, or before the first. *late: by rank 0's clock it is time to save. Collective. */
static int between_rounds(lf_pg *p, bool *late, lf_err *err)
{
    struct lf_run_asked asked = {.step = p->s.updates, .end = lf_pg_early_clock(p)};
    int rc = lf_run_look(&p->run, 0, &asked, late, err);
    if (rc != 0 || is_over(p))
        return rc;
    if (asked.stop)
        return stop_here(p, err);
    lf_pg_early_meet(p, asked.end);
    return 0;
}

static int one_round(lf_pg *p, lf_err *err)
{
    struct lf_pg_update u = {0};
    struct lf_run_asked asked = {.end = LF_END_NOT};
    bool late;
    lf_pg_sums_begin(&u.pg);
    int rc = lf_pg_rollout(p, err);
    if (rc == LF_EINTR)
        return leave_round(p, err);
    if (rc == 0 && p->s.done == 0)
        rc = lf_run_agree(&p->run, lf_run_first(&p->run) ? lf_pg_show(p, err) : 0, err);
    if (rc == 0 && p->s.done == 0)
        rc = lf_pg_judge(p, err);
    const int64_t n = rc != 0 ? 0 : lf_pg_updates(p->c, p->r.n),
                  epoch = n > 0 ? n / p->c->epochs : 1;
    struct lf_profile_mark m = lf_profile_begin(p->c->profile);
    for (int64_t k = p->s.done; k < n && rc == 0; k++) {
        rc = lf_pg_update_step(p, k, &u, err);
        if ((k + 1) % epoch == 0) {
            lf_profile_end(p->c->profile, LF_LANE_STEP, "epoch", m);
            m = lf_profile_begin(p->c->profile);
        }
        if (rc == 0 && k + 1 == n)
            rc = lf_pg_samples_visit(p, &u, err);
        if (rc == 0)
            rc = lf_run_agree(&p->run, lf_pg_report(p, &u, err), err);
        if (rc != 0 || k + 1 == n)
            break;
        asked.step = p->s.updates;
        rc = lf_run_look(&p->run, 0, &asked, &late, err);
        if (rc == 0 && asked.stop)
            return stop_here(p, err);
        if (rc == 0 && due(p, late))
            rc = lf_pg_save(p, LF_PG_NOW_AND_THEN, err);
    }
    if (rc != 0)
        return rc;
    if (n == 0)
        rc = lf_pg_samples_visit(p, &u, err);
    if (n == 0 && rc == 0)
        rc = lf_pg_report(p, &u, err);
    rc = lf_run_agree(&p->run, rc, err);
    close_round(p);
    lf_pg_report_round(p, &u);
    if (rc == 0)
        rc = between_rounds(p, &late, err);
    return rc == 0 && due(p, late) ? lf_pg_save(p, LF_PG_NOW_AND_THEN, err) : rc;
}

static int rounds(lf_pg *p, lf_err *err)
{
    bool late;
    int rc = between_rounds(p, &late, err);
    while (!is_over(p) && rc == 0) {
        const struct lf_profile_mark m = lf_profile_begin(p->c->profile);
        rc = one_round(p, err);
        lf_profile_end(p->c->profile, LF_LANE_STEP, "round", m);
    }
    if (rc == 0)
        rc = lf_pg_publish_best(p, err);
    return rc != 0 ? rc : lf_pg_save(p, LF_PG_FINAL, err);
}

static struct lf_run_config run_config(const struct lf_pg_config *c)
{
    return (struct lf_run_config){.out = c->out,
                                  .metrics = c->metrics,
                                  .copies = c->copies,
                                  .resume_from = c->resume_from,
                                  .n_resume_from = c->n_resume_from,
                                  .init_from = c->init_from,
                                  .adapter = c->adapter,
                                  .identity = "identity",
                                  .profile = c->profile,
                                  .threads = c->threads,
                                  .keep = c->keep,
                                  .keep_every = c->keep_every,
                                  .save_time_s = c->save_time_s,
                                  .samples = c->guest != NULL,
                                  .parts = c->zero.stage > 0 || c->axes.tensor > 1 ||
                                           c->tensor_of[LF_PG_CRITIC] > 1};
}

/* From where the run stands to its end. Collective. */
static int train(lf_pg *p, lf_err *err)
{
    int rc = lf_run_metrics_open(&p->run, p->s.updates, err);
    rc = lf_run_agree(&p->run, lf_pg_writer_open(p, rc, err), err);
    p->run.last_save = p->session0 = lf_now_s();
    p->active0 = p->counted_s = p->s.active_s;
    p->here0 = p->s.round;
    if (lf_run_first(&p->run))
        p->nvml = lf_nvml_open(p->back, p->c->gpu_interval_s);
    if (rc == 0 && p->c->reward_model && !p->c->replay)
        rc = lf_run_agree(&p->run, lf_pg_reward_model(p, err), err);
    if (rc == 0)
        tell_memory(p);
    if (rc == 0 && p->c->mfu)
        p->peak = lf_train_peak(&p->run, p->back, p->c->compute);
    if (rc == 0)
        rc = rounds(p, err);
    if (rc != 0 && rc != LF_EINTR)
        return rc;
    lf_err sync = LF_ERR_INIT;
    return lf_run_metrics_sync(&p->run, &sync) ? lf_fail(err, sync.rc, "%s", sync.text) : rc;
}

/* The reward model's ranks; collective, so rc is that of all of them. */
static int connect_reward(void *user, int rc, lf_back *back, lf_exec *ex, lf_err *err)
{
    lf_pg *p = user;
    struct lf_pg_place *at = &p->at[LF_PG_REWARD];
    const struct lf_devcomm_axes axes = {.data = at->comms.data, .tensor = at->comms.tensor};
    rc = lf_run_agree(&p->run, rc, err);
    if (rc == 0)
        rc = lf_devcomm_open(&at->dev, &axes, back, err);
    if (rc == 0)
        lf_devcomm_connect(&at->dev, ex);
    return rc;
}

/* Collective. */
static int open_axes(lf_pg *p, int rc, lf_err *err)
{
    lf_buf line;
    rc = lf_run_agree(&p->run, rc != 0 ? rc : lf_axes_check(&p->c->axes, p->run.ranks, err), err);
    if (rc != 0)
        return rc;
    rc = lf_axes_open(&p->comms, &p->who, &p->c->axes, p->run.comm, err);
    rc = lf_run_agree(&p->run, rc, err);
    rc = rc != 0 ? rc : lf_pg_places_open(p, err);
    p->reward_with = (struct lf_loaded_ranks){
        .layout = lf_axes_layout(&p->at[LF_PG_REWARD].axes, &p->at[LF_PG_REWARD].who),
        .connect = connect_reward,
        .user = p};
    lf_buf_init(&line);
    if (p->who.tensor_ranks > 1 || p->who.context_ranks > 1)
        lf_laid_line(&line, &p->c->axes, &p->who, NULL);
    rc = rc != 0 ? rc : lf_buf_check(&line, err);
    if (rc == 0 && line.len)
        lf_run_log(&p->run, 2, "%s", line.data);
    if (rc == 0)
        lf_pg_places_log(p);
    lf_buf_fini(&line);
    return rc;
}

int lf_pg_run(const struct lf_pg_config *c, const struct lf_train_sink *sink, lf_comm *comm,
              lf_err *err)
{
    lf_pg p = {.c = c};
    const struct lf_run_config of = run_config(c);
    bool done = false;
    int rc = lf_run_open(&p.run, &of, sink, comm, err);
    /* One rank may be slow for long; one that is dead is noticed all the same. */
    lf_run_phase(&p.run, LF_PG_PHASE);
    if (rc == 0)
        rc = lf_pg_check(c, err);
    rc = open_axes(&p, rc, err);
    rc = lf_run_agree(&p.run, rc != 0 ? rc : set_up(&p, err), err);
    if (rc == 0)
        rc = lf_pg_places_connect(&p, err);
    if (rc == 0)
        rc = lf_pg_start(&p, &done, err);
    if (rc == 0)
        rc = lf_pg_same(&p, done, err);
    if (rc == 0 && done && c->keep_best)
        rc = lf_best_in_place(&p.run, err);
    if (rc == 0 && done)
        lf_run_log(&p.run, 2, "%s/checkpoint is in place: nothing to do", c->out);
    if (rc == 0 && !done)
        rc = train(&p, err);
    lf_run_phase(&p.run, NULL);
    lf_nvml_close(p.nvml);
    lf_pg_places_disconnect(&p, rc && rc != LF_EINTR);
    lf_pg_close(&p);
    lf_pg_places_close(&p);
    return rc;
}
