/* SPDX-License-Identifier: Apache-2.0
 *
 * One optimizer step, in two ways. At once: the host looks at the loss, then at what the optimizer
 * says. Ahead, where the backend hands results over later: the step is queued, and the host learns
 * how it went while the next one's gradients are computed. The device itself refuses what the host
 * would have refused (kernels.h, grad_norm), so that weights are never changed by a step that has
 * to be made again or kept for inspection; both ways have the same bits.
 */
#include <math.h>
#include <stdlib.h>

#include "engine/base/sys.h"
#include "engine/graph/profile.h"
#include "engine/train/loop_priv.h"
#include "engine/train/pipe.h"

/* Memory of the running mean that spikes are measured against: about 50 steps. */
#define LOSS_MEMORY 0.98

double lf_train_loss_mean(const lf_trainer *t)
{
    return t->s.step > 0 ? t->s.loss_sum / (1 - pow(LOSS_MEMORY, (double)t->s.step)) : (double)NAN;
}

/* ---- up to the gradients ---- */

/* How far a rank is with the micro-batches of a step. */
struct micro {
    int32_t i;    /* this one */
    bool forward; /* its forward pass has run */
    /* a pass (LF_FWD or LF_BWD, plus 1) has failed, so this rank cannot do its part for the others
     */
    int broken;
};

static void tell_pass(const lf_trainer *t, int32_t micro, bool backward)
{
    if (t->run.ranks > 1)
        lf_comm_pass(t->run.comm, micro, backward);
}

static int pass(lf_trainer *t, struct micro *m, enum lf_segment seg, lf_err *err)
{
    tell_pass(t, m->i + 1, seg != LF_FWD);
    const int rc = lf_exec_run(t->m.ex, t->m.train, seg, 0, m->i == 0 ? LF_FIRST : LF_ACCUM, err);
    lf_train_expect_run(t, t->m.train, seg != LF_FWD);
    m->broken = rc == 0 ? 0 : seg == LF_FWD ? LF_FWD + 1 : LF_BWD + 1;
    m->forward = seg == LF_FWD && rc == 0;
    return rc;
}

/* Does the pass end this rank's part of the step, so that sums may begin beside it? Not where ranks
 * divide experts and some have more micro-batches: rows of these go before the sums. */
static bool is_last(const lf_trainer *t, const lf_loader_step *ls, int32_t i)
{
    const int64_t all = (int64_t)ls->n_micro * t->c->micro_batch * t->who.data_ranks;
    return i + 1 == ls->n_micro && (t->who.expert_ranks == 1 || all == ls->n_samples);
}

static int micro_batch(lf_trainer *t, const lf_loader_step *ls, struct micro *m,
                       struct lf_train_sums *sums, double *data_s, lf_err *err)
{
    const lf_objective *o = t->c->objective;
    const lf_loader_batch *b;
    int rc = lf_train_next_batch(t, t->data, true, &b, data_s, err);
    if (rc == 0)
        rc = pass(t, m, LF_FWD, err);
    if (rc == 0 && o) {
        struct lf_train_view view =
            lf_train_view_of(t, t->m.train, b, false, t->s.scaler.scale / (double)ls->units);
        view.inv_trained = t->s.scaler.scale / (double)ls->trained;
        rc = lf_train_together(t, o->after_forward(o->user, &view, sums->obj, sums->top, err), err);
    }
    return rc != 0 ? rc : pass(t, m, is_last(t, ls, m->i) ? LF_BWD_LAST : LF_BWD, err);
}

/* Passes of other ranks that this one has no micro-batch for, from where it stands on. */
static int stand_by(lf_trainer *t, struct micro *m, int64_t n_samples, lf_err *err)
{
    int rc = 0;
    const int64_t rounds = lf_train_rounds(t, n_samples);
    for (; m->i < rounds && rc == 0; m->i++, m->forward = false) {
        const enum lf_variant v = m->i == 0 ? LF_FIRST : LF_ACCUM;
        tell_pass(t, m->i + 1, m->forward);
        if (!m->forward)
            rc = lf_exec_idle(t->m.ex, t->m.train, LF_FWD, v, err);
        tell_pass(t, m->i + 1, true);
        if (rc == 0)
            rc = lf_exec_idle(t->m.ex, t->m.train, LF_BWD, v, err);
    }
    return rc;
}

/* Where a device exchanges, ranks of the column whose calls were queued have gone on to where they
 * agree next. This one tells them there. */
static int break_off(const lf_trainer *t, const lf_loader_step *ls, const struct micro *m, int rc,
                     lf_err *err)
{
    lf_train_pass_failed(t, err);
    const bool met = (t->c->objective && m->broken == LF_FWD + 1) || m->i + 1 < ls->n_micro;
    return met ? lf_train_together(t, rc, err) : rc;
}

/* Every micro-batch of this rank. */
static int forward_backward(lf_trainer *t, const lf_loader_step *ls, struct lf_train_sums *sums,
                            double *data_s, lf_err *err)
{
    struct micro m = {0};
    int rc = 0;
    if (t->pipe)
        return lf_train_pipe_step(t, ls, sums, data_s, err);
    for (; m.i < ls->n_micro && rc == 0; m.i += rc == 0)
        rc = micro_batch(t, ls, &m, sums, data_s, err);
    if (m.broken)
        return break_off(t, ls, &m, rc, err);
    const int other = stand_by(t, &m, ls->n_samples, rc != 0 ? NULL : err);
    if (other != 0)
        lf_train_pass_failed(t, err);
    tell_pass(t, 0, false);
    if (rc == 0 && other == 0)
        lf_train_expect_passes(t, t->m.train, m.i, true);
    return rc != 0 ? rc : other;
}

static struct lf_step_record step_record(const lf_trainer *t, const lf_loader_step *ls, double lr)
{
    const struct lf_train_config *c = t->c;
    const double n = (double)(t->s.step + 1), trained = (double)ls->trained,
                 heads = fmax(1, (double)lf_decoder_mtp(t->m.dec)),
                 more = c->nsp ? 1 / fmax(1, (double)ls->units) /* the pairs of the step */
                               : c->mtp_weight / heads / trained;
    return (struct lf_step_record){.step = (uint64_t)t->s.step,
                                   .seed = c->seed,
                                   .lr = (float)lr,
                                   .bias_corr1 = (float)(1 - pow((double)c->adam.beta1, n)),
                                   .bias_corr2 = (float)(1 - pow((double)c->adam.beta2, n)),
                                   .clip_norm = (float)c->clip,
                                   .loss_scale = (float)t->s.scaler.scale,
                                   .inv_tokens = (float)(1 / trained),
                                   .more_inv = (float)more,
                                   .inv_batches =
                                       (float)((double)c->micro_batch / (double)ls->n_samples),
                                   .z_loss = (float)c->z_loss,
                                   .average = (float)lf_average_share(&c->average, t->s.step)};
}

/* A loss above this is one to stop at. */
static double spike_above(const lf_trainer *t)
{
    double mean = lf_train_loss_mean(t);
    if (t->c->objective &&
        t->s.first_loss > mean) /* the mean may be next to nothing: worse than at first is meant */
        mean = t->s.first_loss;
    if (!(t->c->spike_factor > 0) || t->s.step < t->c->spike_after || isnan(mean))
        return INFINITY;
    return t->c->spike_factor * mean;
}

static const char *suspicious(double loss, double above)
{
    return !isfinite(loss) ? "the loss is not finite"
           : loss > above  ? "the loss left its running mean"
                           : NULL;
}

void lf_train_begin_sums(struct lf_train_sums *s)
{
    *s = (struct lf_train_sums){0};
    for (size_t i = 0; i < LF_OBJECTIVE_SUMS; i++)
        s->top[i] = -INFINITY;
}

double lf_train_nsp_loss(const lf_trainer *t, const struct lf_train_sums *s)
{
    return t->c->nsp && s->more_tokens[0] > 0 ? s->more_loss[0] / s->more_tokens[0] : 0;
}

/* The loss of summed-up micro-batches, and what else an objective makes of them. */
double lf_train_loss_of(const lf_trainer *t, const struct lf_train_sums *s, double tokens,
                        double *means)
{
    const lf_objective *o = t->c->objective;
    if (!o)
        return s->loss / tokens + lf_train_nsp_loss(t, s);
    o->means(o->user, s->obj, s->top, means);
    return means[0];
}

/* Queues this rank's part of a step up to its gradients. */
static int gradients(lf_trainer *t, lf_loader_step *ls, struct lf_train_step *st,
                     struct lf_train_sums *sums, lf_err *err)
{
    double t0 = lf_now_s();
    struct lf_profile_mark m = lf_profile_begin(t->c->profile);
    int rc = lf_train_next_step(t, t->data, ls, err);
    lf_profile_end(t->c->profile, LF_LANE_DATA, "begin step", m);
    if (rc < 0 && t->pipe) /* where the others agree once they have read theirs */
        return t->comms.experts ? lf_comm_agree_ok(t->comms.data, rc, err) : rc;
    if (rc < 0) {
        struct micro none = {0};
        stand_by(t, &none, lf_ramp_samples(t->c->ramp, t->c->n_ramp, t->s.cursor), NULL);
        return rc;
    }
    *st = (struct lf_train_step){.batch = ls->number,
                                 .samples = ls->n_samples,
                                 .trained = ls->trained,
                                 .valid_loss = NAN,
                                 .valid_accuracy = NAN,
                                 .valid_entropy = NAN,
                                 .valid_nsp_loss = NAN,
                                 .valid_nsp_accuracy = NAN,
                                 .grad_norm = NAN};
    if (rc == 0 || ls->trained < 1 ||
        (t->c->objective && t->c->objective->rows != LF_ROWS_PLAIN && ls->units < 1))
        return lf_fail(err, LF_EINVAL, "batch %lld holds no token to train on",
                       (long long)ls->number);
    st->data_seconds = lf_now_s() - t0;
    st->lr = lf_schedule_lr(&t->lr, t->s.samples + ls->n_samples);
    st->loss_scale = t->s.scaler.scale;
    struct lf_step_record rec = step_record(t, ls, st->lr);
    rc = lf_exec_record_write(t->m.ex, &rec, err);
    lf_train_begin_sums(sums);
    return rc != 0 ? rc : forward_backward(t, ls, sums, &st->data_seconds, err);
}

void lf_train_take_more(struct lf_train_sums *sums, const struct lf_step_record *rec)
{
    for (int k = 0; k < LF_MORE_HEADS; k++) {
        sums->more_loss[k] = rec->more_loss[k];
        sums->more_tokens[k] = (double)rec->more_tokens[k];
        sums->more_correct[k] = (double)rec->more_correct[k];
    }
}

/* What the device added up. */
static void take_record(struct lf_train_sums *sums, const struct lf_step_record *rec)
{
    sums->loss = rec->loss_sum;
    sums->z = rec->z_sum;
    sums->entropy = rec->entropy_sum;
    sums->router_aux = rec->router_aux;
    sums->router_entropy = rec->router_entropy;
    sums->router_load = rec->router_load;
    sums->router_dropped = rec->router_dropped;
    sums->router_seen = rec->router_seen;
    sums->tokens = rec->tokens;
    sums->correct = rec->correct;
    lf_train_take_more(sums, rec);
}

/* Sums over all ranks to what is reported. */
static void measure(const lf_trainer *t, struct lf_train_step *st, const struct lf_train_sums *sums)
{
    const double trained = (double)st->trained;
    st->loss = lf_train_loss_of(t, sums, trained, st->means);
    st->accuracy = t->c->objective ? (double)NAN : (double)sums->correct / trained;
    st->entropy = t->c->entropy ? sums->entropy / trained : (double)NAN;
    st->z = sums->z / trained;
    st->waited = sums->waited;
    for (int k = 0; k < LF_MORE_HEADS; k++) { /* 0 / 0: none */
        st->more_loss[k] = sums->more_loss[k] / sums->more_tokens[k];
        st->more_accuracy[k] = sums->more_correct[k] / sums->more_tokens[k];
    }
    lf_train_router_step(t, st, sums);
}

/* The state after a step, but for what the loss tells. */
static void advance(lf_trainer *t, const lf_loader_step *ls)
{
    lf_scaler_good(&t->s.scaler, &t->c->scaler);
    t->s.step++;
    t->s.samples += ls->n_samples;
    t->s.tokens += ls->trained;
    t->s.cursor = ls->next_sample;
}

static void told(lf_trainer *t, struct lf_train_step *st, double since)
{
    const double now = lf_now_s();
    st->seconds = now - since;
    lf_early_count(&t->early, st->seconds);
    t->longest_s = st->seconds > t->longest_s ? st->seconds : t->longest_s;
    t->s.loss_sum = LOSS_MEMORY * t->s.loss_sum + (1 - LOSS_MEMORY) * st->loss;
    t->s.active_s = t->active0 + (now - t->session0);
}

/* The gradient of the step before which the state stands is not finite. 0: it is to be made again
 * with a smaller scale, and the loader stands at its batch. */
static int overflowed(lf_trainer *t, const lf_loader_step *ls, const struct lf_train_step *st,
                      lf_err *err)
{
    if (!lf_scaler_overflow(&t->s.scaler, &t->c->scaler))
        return lf_train_diverged(t, st, "the gradient is not finite", err);
    lf_train_log(t, 3, "step %lld overflowed: again with a loss scale of %g",
                 (long long)t->s.step + 1, t->s.scaler.scale);
    return lf_train_agree(t, lf_loader_seek(t->data, ls->first_sample, err), err);
}

/* ---- at once ---- */

/* From here on time counts that this rank waits. */
static void begin_part(lf_trainer *t)
{
    t->part_since = lf_now_s();
    t->part_waited = lf_comm_waited_s(t->run.comm);
}

static int compute(lf_trainer *t, lf_loader_step *ls, struct lf_train_step *st,
                   struct lf_train_sums *sums, lf_err *err)
{
    struct lf_step_record rec = {0};
    int rc = gradients(t, ls, st, sums, err);
    if (rc == 0)
        rc = lf_exec_record_read(t->m.ex, &rec, err);
    take_record(sums, &rec);
    sums->waited = lf_comm_waited_s(t->run.comm) - t->part_waited;
    sums->passed = lf_now_s() - t->part_since;
    begin_part(t);
    sums->late = lf_run_late(&t->run);
    return rc;
}

/* Collective: what an objective does before a step. */
static int begin_step(lf_trainer *t, lf_err *err)
{
    const lf_objective *o = t->c->objective;
    return o && o->begin ? lf_train_agree(t, o->begin(o->user, t->s.step, t->total_steps, err), err)
                         : 0;
}

/* This rank's micro-batches of the step that comes, forward only. */
static int survey_share(lf_trainer *t, lf_loader_step *ls, struct lf_train_sums *sums, lf_err *err)
{
    const struct lf_step_record rec = {
        .step = (uint64_t)t->s.step, .seed = t->c->seed, .loss_scale = 1, .inv_tokens = 1};
    struct lf_train_asked asked = {t->c->objective, sums, true};
    struct lf_train_forwards f = {
        .data = t->data, .train = true, .each = lf_train_ask, .user = &asked};
    int rc = lf_train_ready(t, lf_exec_record_write(t->m.ex, &rec, err), err);
    if (rc == 0)
        rc = lf_train_forwards(t, &f, 1, err);
    if (rc == 0 && !f.steps)
        rc = lf_fail(err, LF_EINVAL, "the data has ended");
    *ls = f.ls;
    return lf_train_stand_by(t, t->m.train, &f.ran, lf_train_rounds(t, ls->n_samples), rc, err);
}

/* Collective: what an objective must know of the whole step before its losses. The loader stands
 * where it stood. */
static int survey_step(lf_trainer *t, lf_err *err)
{
    const lf_objective *o = t->c->objective;
    lf_loader_step ls = {0};
    struct lf_train_sums sums = {0};
    if (!o || !o->survey)
        return 0;
    int rc = lf_train_exchange(t, survey_share(t, &ls, &sums, err), &sums, err);
    if (rc != 0)
        return rc;
    o->surveyed(o->user, sums.obj);
    if (o->gathered)
        rc = lf_train_agree(t, o->gathered(o->user, t, false, ls.first_sample, ls.n_samples, err),
                            err);
    return rc != 0 ? rc : lf_train_agree(t, lf_loader_seek(t->data, ls.first_sample, err), err);
}

/* The step with the present loss scale. *overflow: the gradient is not finite, and weights and
 * moments stay as they were. */
static int attempt_step(lf_trainer *t, lf_loader_step *ls, struct lf_train_step *st, bool *overflow,
                        lf_err *err)
{
    struct lf_train_sums sums = {0};
    struct lf_step_record rec;
    int rc = lf_train_exchange(t, compute(t, ls, st, &sums, err), &sums, err);
    if (rc != 0)
        return rc;
    measure(t, st, &sums);
    t->late = sums.late;
    const char *why = suspicious(st->loss, spike_above(t));
    if (why)
        return lf_train_diverged(t, st, why, err);
    rc = lf_exec_run(t->m.ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, err);
    lf_train_expect_update(t);
    if (rc == 0)
        rc = lf_exec_record_read(t->m.ex, &rec, err);
    if (rc != 0)
        return rc;
    st->grad_norm = (double)rec.grad_norm;
    *overflow = rec.skip != 0;
    return 0;
}

int lf_train_step_now(lf_trainer *t, struct lf_train_step *st, lf_err *err)
{
    lf_loader_step ls = {0};
    bool overflow = true;
    double waited = 0; /* in every attempt */
    const double t0 = lf_now_s();
    struct lf_profile_mark m = lf_profile_begin(t->c->profile);
    lf_train_phase_step(t);
    begin_part(t);
    int rc = begin_step(t, err);
    if (rc == 0)
        rc = survey_step(t, err);
    while (rc == 0 && overflow) {
        rc = attempt_step(t, &ls, st, &overflow, err);
        if (rc == 0) /* no rank is told any more what the others wait for from here on */
            waited += st->waited + lf_comm_waited_s(t->run.comm) - t->part_waited;
        begin_part(t);
        if (rc == 0 && overflow)
            rc = overflowed(t, &ls, st, err);
    }
    if (rc != 0)
        return rc;
    lf_profile_end(t->c->profile, LF_LANE_STEP, "step", m);
    st->waited = waited;
    advance(t, &ls);
    told(t, st, t0);
    return 0;
}

/* ---- ahead ---- */

int lf_train_ahead_begin(lf_trainer *t, lf_err *err)
{
    struct lf_train_sums unused;
    lf_train_phase_step(t);
    t->next.since = lf_now_s();
    return gradients(t, &t->next.ls, &t->next.st, &unused, err);
}

int lf_train_ahead_launch(lf_trainer *t, lf_err *err)
{
    const double above = spike_above(t),
                 limit = isfinite(above) ? above * (double)t->next.ls.trained : 0;
    int rc = lf_train_sum_record(t, err);
    if (rc == 0 && limit > 0)
        rc = lf_exec_loss_limit(t->m.ex, limit, err);
    if (rc == 0)
        rc = lf_exec_run(t->m.ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, err);
    if (rc == 0)
        rc = lf_exec_record_begin(t->m.ex, err);
    if (rc != 0)
        return rc;
    t->flight = t->next;
    t->flight.up = true;
    t->flight.limit = limit;
    t->flight.before = t->s;
    advance(t, &t->flight.ls);
    return 0;
}

int lf_train_ahead_land(lf_trainer *t, struct lf_train_step *st, bool *again, lf_err *err)
{
    struct lf_train_flight *f = &t->flight;
    struct lf_step_record rec;
    struct lf_train_sums sums = {0};
    *again = false;
    f->up = false;
    int rc = lf_exec_record_end(t->m.ex, &rec, err);
    if (rc != 0)
        return rc;
    *st = f->st;
    take_record(&sums, &rec);
    measure(t, st, &sums);
    const char *why = suspicious(sums.loss, f->limit > 0 ? f->limit : (double)INFINITY);
    if (why || rec.skip)
        t->s = f->before;
    if (why)
        return lf_train_diverged(t, st, why, err);
    st->grad_norm = (double)rec.grad_norm;
    if (rec.skip) {
        *again = true;
        return overflowed(t, &f->ls, st, err);
    }
    told(t, st, f->since > t->told_s ? f->since : t->told_s);
    t->told_s = lf_now_s();
    return 0;
}
