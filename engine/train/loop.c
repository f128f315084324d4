/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop: one optimizer step, validation, and what happens between steps. */
#include "engine/train/loop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/sys.h"
#include "engine/graph/profile.h"
#include "engine/model/weights.h"
#include "engine/train/loop_priv.h"

/* Memory of the running mean that spikes are measured against: about 50 steps. */
#define LOSS_MEMORY 0.98

double lf_train_loss_mean(const lf_trainer *t)
{
    return t->s.step > 0 ? t->s.loss_sum / (1 - pow(LOSS_MEMORY, (double)t->s.step)) : (double)NAN;
}

/* ---- one step ---- */

/* Every micro-batch of this rank. */
static int forward_backward(lf_trainer *t, const lf_loader_step *ls, struct lf_train_sums *sums, double *data_s,
                            lf_err *err)
{
    const lf_objective *o = t->c->objective;
    for (int32_t i = 0; i < ls->n_micro; i++) {
        const lf_loader_batch *b;
        double t0 = lf_now_s();
        struct lf_profile_mark m = lf_profile_begin(t->c->profile);
        int rc = lf_loader_next(t->data, &b, err);
        lf_profile_end(t->c->profile, LF_LANE_DATA, "next micro-batch", m);
        *data_s += lf_now_s() - t0;
        enum lf_variant v = i == 0 ? LF_FIRST : LF_ACCUM;
        if (!rc)
            rc = lf_train_write_inputs(t, t->m.train, b, err);
        if (!rc)
            rc = lf_exec_run(t->m.ex, t->m.train, LF_FWD, 0, v, err);
        if (!rc && o) {
            struct lf_train_view view = lf_train_view_of(t, t->m.train, b, false, t->s.scaler.scale / (double)ls->units);
            rc = o->after_forward(o->user, &view, sums->obj, sums->top, err);
        }
        if (!rc)
            rc = lf_exec_run(t->m.ex, t->m.train, LF_BWD, 0, v, err);
        if (rc)
            return rc;
    }
    return 0;
}

static struct lf_step_record step_record(const lf_trainer *t, const lf_loader_step *ls, double lr)
{
    const struct lf_train_config *c = t->c;
    double n = (double)(t->s.step + 1);
    return (struct lf_step_record){.step = (uint64_t)t->s.step,
                                   .seed = c->seed,
                                   .lr = (float)lr,
                                   .bias_corr1 = (float)(1 - pow((double)c->adam.beta1, n)),
                                   .bias_corr2 = (float)(1 - pow((double)c->adam.beta2, n)),
                                   .clip_norm = (float)c->clip,
                                   .loss_scale = (float)t->s.scaler.scale,
                                   .inv_tokens = (float)(1 / (double)ls->trained),
                                   .inv_batches = (float)((double)c->micro_batch / (double)ls->n_samples),
                                   .z_loss = (float)c->z_loss};
}

/* Is this loss one to stop at? */
static const char *suspicious(const lf_trainer *t, double loss)
{
    if (!isfinite(loss))
        return "the loss is not finite";
    double mean = lf_train_loss_mean(t);
    if (t->c->objective && t->s.first_loss > mean) /* the mean may be next to nothing: worse than at first is meant */
        mean = t->s.first_loss;
    if (t->c->spike_factor > 0 && t->s.step >= t->c->spike_after && loss > t->c->spike_factor * mean)
        return "the loss left its running mean";
    return NULL;
}

static bool late(const lf_trainer *t)
{
    return t->c->save_time_s > 0 && lf_now_s() - t->last_save >= t->c->save_time_s;
}

static void begin_sums(struct lf_train_sums *s)
{
    *s = (struct lf_train_sums){0};
    for (size_t i = 0; i < LF_OBJECTIVE_SUMS; i++)
        s->top[i] = -INFINITY;
}

/* The loss of summed-up micro-batches, and what else an objective makes of them. */
static double loss_of(const lf_trainer *t, const struct lf_train_sums *s, double tokens, double *means)
{
    const lf_objective *o = t->c->objective;
    if (!o)
        return s->loss / tokens;
    o->means(o->user, s->obj, s->top, means);
    return means[0];
}

/* This rank's part of a step up to its gradients; what it has to say about it in sums. */
static int compute(lf_trainer *t, lf_loader_step *ls, struct lf_train_step *st, struct lf_train_sums *sums, lf_err *err)
{
    double t0 = lf_now_s();
    struct lf_profile_mark m = lf_profile_begin(t->c->profile);
    int rc = lf_loader_begin_step(t->data, ls, err);
    lf_profile_end(t->c->profile, LF_LANE_DATA, "begin step", m);
    if (rc < 0)
        return rc;
    *st = (struct lf_train_step){
        .batch = ls->number, .samples = ls->n_samples, .trained = ls->trained, .valid_loss = NAN, .valid_accuracy = NAN, .grad_norm = NAN};
    if (rc == 0 || ls->trained < 1 || (t->c->objective && t->c->objective->rows != LF_ROWS_PLAIN && ls->units < 1))
        return lf_fail(err, LF_EINVAL, "batch %lld holds no token to train on", (long long)ls->number);
    st->data_seconds = lf_now_s() - t0;
    st->lr = lf_schedule_lr(&t->lr, t->s.samples + ls->n_samples);
    struct lf_step_record rec = step_record(t, ls, st->lr);
    rc = lf_exec_record_write(t->m.ex, &rec, err);
    begin_sums(sums);
    if (!rc)
        rc = forward_backward(t, ls, sums, &st->data_seconds, err);
    if (!rc)
        rc = lf_exec_record_read(t->m.ex, &rec, err);
    sums->loss = rec.loss_sum;
    sums->z = rec.z_sum;
    sums->router_aux = rec.router_aux;
    sums->router_entropy = rec.router_entropy;
    sums->router_load = rec.router_load;
    sums->router_seen = rec.router_seen;
    sums->tokens = rec.tokens;
    sums->correct = rec.correct;
    sums->late = late(t);
    return rc;
}

/* This rank's micro-batches of the step that comes, forward only. */
static int survey_share(lf_trainer *t, lf_loader_step *ls, struct lf_train_sums *sums, lf_err *err)
{
    const lf_objective *o = t->c->objective;
    int rc = lf_loader_begin_step(t->data, ls, err);
    rc = rc == 1 ? 0 : rc < 0 ? rc : lf_fail(err, LF_EINVAL, "the data has ended");
    for (int32_t i = 0; i < ls->n_micro && !rc; i++) {
        const lf_loader_batch *b;
        rc = lf_loader_next(t->data, &b, err);
        if (!rc)
            rc = lf_train_write_inputs(t, t->m.train, b, err);
        if (!rc)
            rc = lf_exec_run(t->m.ex, t->m.train, LF_FWD, 0, LF_FIRST, err);
        if (!rc) {
            struct lf_train_view view = lf_train_view_of(t, t->m.train, b, false, 0);
            rc = o->survey(o->user, &view, sums->obj, err);
        }
    }
    return rc;
}

/* Collective: what an objective must know of the whole step before its losses. The loader stands where it stood. */
static int survey_step(lf_trainer *t, lf_err *err)
{
    const lf_objective *o = t->c->objective;
    lf_loader_step ls = {0};
    struct lf_train_sums sums = {0};
    if (!o || !o->survey)
        return 0;
    int rc = lf_train_exchange(t, survey_share(t, &ls, &sums, err), &sums, err);
    if (rc)
        return rc;
    o->surveyed(o->user, sums.obj);
    return lf_train_agree(t, lf_loader_seek(t->data, ls.first_sample, err), err);
}

/* The step with the present loss scale. *overflow: the gradient is not finite, and weights and moments stay as they were. */
static int attempt_step(lf_trainer *t, lf_loader_step *ls, struct lf_train_step *st, bool *overflow, lf_err *err)
{
    struct lf_train_sums sums = {0};
    struct lf_step_record rec;
    int rc = lf_train_exchange(t, compute(t, ls, st, &sums, err), &sums, err);
    if (rc)
        return rc;
    st->loss = loss_of(t, &sums, (double)ls->trained, st->means);
    st->accuracy = t->c->objective ? (double)NAN : (double)sums.correct / (double)ls->trained;
    st->z = sums.z / (double)ls->trained;
    st->loss_scale = t->s.scaler.scale;
    lf_train_router_step(t, st, &sums);
    t->late = sums.late;
    const char *why = suspicious(t, st->loss);
    if (why)
        return lf_train_diverged(t, st, why, err);
    rc = lf_exec_run(t->m.ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, err);
    if (!rc)
        rc = lf_exec_record_read(t->m.ex, &rec, err);
    if (rc)
        return rc;
    st->grad_norm = (double)rec.grad_norm;
    *overflow = rec.skip != 0;
    return 0;
}

static int train_step(lf_trainer *t, struct lf_train_step *st, lf_err *err)
{
    lf_loader_step ls = {0};
    bool overflow = true;
    double t0 = lf_now_s();
    struct lf_profile_mark m = lf_profile_begin(t->c->profile);
    lf_train_phase_step(t);
    int rc = survey_step(t, err);
    while (!rc && overflow) {
        rc = attempt_step(t, &ls, st, &overflow, err);
        if (rc || !overflow)
            break;
        if (!lf_scaler_overflow(&t->s.scaler, &t->c->scaler))
            return lf_train_diverged(t, st, "the gradient is not finite", err);
        lf_train_log(t, 3, "step %lld overflowed: again with a loss scale of %g", (long long)t->s.step + 1, t->s.scaler.scale);
        rc = lf_train_agree(t, lf_loader_seek(t->data, ls.first_sample, err), err);
    }
    if (rc)
        return rc;
    lf_profile_end(t->c->profile, LF_LANE_STEP, "step", m);
    lf_scaler_good(&t->s.scaler, &t->c->scaler);
    st->seconds = lf_now_s() - t0;
    t->longest_s = st->seconds > t->longest_s ? st->seconds : t->longest_s;
    t->s.step++;
    t->s.samples += ls.n_samples;
    t->s.tokens += ls.trained;
    t->s.cursor = ls.next_sample;
    t->s.loss_sum = LOSS_MEMORY * t->s.loss_sum + (1 - LOSS_MEMORY) * st->loss;
    t->s.active_s = t->active0 + (lf_now_s() - t->session0);
    return 0;
}

/* ---- validation ---- */

/* This rank's share of validation data; survey: for what an objective must know of all of it. */
static int validate_share(lf_trainer *t, lf_loader *data, bool survey, struct lf_train_sums *sums, lf_err *err)
{
    struct lf_step_record rec = {.loss_scale = 1, .inv_tokens = 1, .seed = t->c->seed};
    const lf_objective *o = t->c->objective;
    lf_loader_step ls;
    begin_sums(sums);
    int rc = lf_loader_seek(data, 0, err);
    if (!rc)
        rc = lf_exec_record_write(t->m.ex, &rec, err);
    while (!rc && (rc = lf_loader_begin_step(data, &ls, err)) == 1) {
        rc = 0;
        for (int32_t i = 0; i < ls.n_micro && !rc; i++) {
            const lf_loader_batch *b;
            rc = lf_loader_next(data, &b, err);
            if (!rc)
                rc = lf_train_write_inputs(t, t->m.valid, b, err);
            if (!rc)
                rc = lf_exec_run(t->m.ex, t->m.valid, LF_FWD, 0, LF_FIRST, err);
            if (!rc && o) {
                struct lf_train_view view = lf_train_view_of(t, t->m.valid, b, true, 0);
                rc = survey ? o->survey(o->user, &view, sums->obj, err)
                            : o->after_forward(o->user, &view, sums->obj, sums->top, err);
            }
        }
    }
    if (!rc)
        rc = lf_exec_record_read(t->m.ex, &rec, err);
    sums->loss = rec.loss_sum;
    sums->correct = rec.correct;
    sums->tokens = o ? lf_loader_cursor(data) : rec.tokens;
    return rc;
}

/* Collective: every named set; their sums together. */
static int validate_sets(lf_trainer *t, struct lf_train_step *st, struct lf_train_sums *all, lf_err *err)
{
    begin_sums(all);
    for (size_t k = 0; k < t->n_valid_dirs; k++) {
        struct lf_train_sums one;
        int rc = lf_train_exchange(t, validate_share(t, t->vsets[k], false, &one, err), &one, err);
        if (!rc && one.tokens < 1)
            rc = lf_fail(err, LF_EINVAL, "the validation data %s holds no token to measure", t->vnames[k]);
        if (rc)
            return rc;
        st->set_loss[k] = one.loss / (double)one.tokens;
        st->set_accuracy[k] = (double)one.correct / (double)one.tokens;
        all->loss += one.loss;
        all->tokens += one.tokens;
        all->correct += one.correct;
    }
    return 0;
}

static int validate(lf_trainer *t, struct lf_train_step *st, lf_err *err)
{
    double t0 = lf_now_s();
    const lf_objective *o = t->c->objective;
    struct lf_train_sums sums;
    struct lf_profile_mark m = lf_profile_begin(t->c->profile);
    int rc = 0;
    lf_train_phase(t, "validation");
    if (o && o->survey) {
        rc = lf_train_exchange(t, validate_share(t, t->vdata, true, &sums, err), &sums, err);
        if (!rc)
            o->surveyed(o->user, sums.obj);
    }
    if (!rc && t->vsets)
        rc = validate_sets(t, st, &sums, err);
    else if (!rc)
        rc = lf_train_exchange(t, validate_share(t, t->vdata, false, &sums, err), &sums, err);
    if (!rc && sums.tokens < 1)
        rc = lf_fail(err, LF_EINVAL, "the validation data holds no token to measure");
    if (rc)
        return rc;
    st->valid_loss = t->s.valid_loss = loss_of(t, &sums, (double)sums.tokens, st->valid_means);
    st->valid_accuracy = t->c->objective ? (double)NAN : (double)sums.correct / (double)sums.tokens;
    if (!(t->s.best_valid <= st->valid_loss))
        t->s.best_valid = st->valid_loss;
    lf_profile_end(t->c->profile, LF_LANE_STEP, "validation", m);
    st->valid_seconds = lf_now_s() - t0;
    return lf_train_best(t, st, err);
}

static bool at_interval(int64_t step, int64_t interval)
{
    return interval > 0 && step % interval == 0;
}

/* ---- between steps ---- */

/* Collective. rc: how this rank fared since the last exchange. */
static int save_here(lf_trainer *t, int rc, lf_err *err)
{
    rc = lf_train_agree(t, rc, err);
    if (!rc)
        rc = lf_train_replicas(t, err);
    char *dir = rc ? NULL : lf_ckpt_step_dir(t->c->out, t->s.step, err);
    if (!rc)
        rc = dir ? lf_train_save_begin(t, dir, NULL, err) : LF_ENOMEM;
    free(dir);
    return rc;
}

static int save_if_due(lf_trainer *t, int rc, bool *saved, lf_err *err)
{
    const struct lf_train_config *c = t->c;
    *saved = false;
    if (!rc && t->saving && lf_ckpt_save_idle(t->writer))
        rc = lf_train_save_wait(t, err);
    if (t->s.step == t->total_steps || !(at_interval(t->s.step, c->save_interval) || t->late))
        return rc;
    *saved = true;
    return save_here(t, rc, err);
}

/* After a step: what is measured, told and kept. */
static int after_step(lf_trainer *t, struct lf_train_step *st, bool *saved, lf_err *err)
{
    int rc = 0;
    if (t->s.step == 1) {
        t->s.first_loss = st->loss;
        if (!t->c->objective)
            lf_train_report_first(t, st);
    }
    if (t->vdata && (at_interval(t->s.step, t->c->valid_interval) || t->s.step == t->total_steps))
        rc = validate(t, st, err);
    if (rc) /* on every rank */
        return rc;
    return save_if_due(t, lf_train_report(t, st, err), saved, err);
}

static int stop_here(lf_trainer *t, bool saved, lf_err *err)
{
    int rc = saved ? 0 : save_here(t, 0, err);
    if (!rc)
        rc = lf_train_save_wait(t, err);
    rc = lf_train_agree(t, rc, err);
    return rc ? rc : lf_fail(err, LF_EINTR, "stopped after step %lld", (long long)t->s.step);
}

static int steps(lf_trainer *t, lf_err *err)
{
    struct lf_train_step st;
    bool stop, saved = true; /* where we begin there is a checkpoint, or nothing to save */
    int rc = 0;
    while (t->s.step < t->total_steps && !lf_train_out_of_patience(t)) {
        rc = lf_train_stop(t, rc, &stop, err);
        if (rc)
            return rc;
        if (stop)
            return stop_here(t, saved, err);
        rc = train_step(t, &st, err);
        if (rc)
            return rc;
        rc = after_step(t, &st, &saved, err);
    }
    return lf_train_agree(t, rc, err);
}

static int finish(lf_trainer *t, lf_err *err)
{
    const lf_objective *o = t->c->objective;
    int rc = lf_train_replicas(t, err);
    if (!rc && o && o->finish)
        rc = lf_train_agree(t, o->finish(o->user, t, err), err);
    if (!rc && lf_train_first_rank(t))
        rc = lf_train_publish_best(t, err);
    rc = lf_train_agree(t, rc, err);
    if (!rc)
        rc = lf_train_save_final(t, err);
    rc = lf_train_agree(t, rc, err);
    if (rc)
        return rc;
    char valid[48] = "";
    if (isfinite(t->s.valid_loss))
        snprintf(valid, sizeof(valid), ", validation %.4f (best %.4f)", t->s.valid_loss, t->s.best_valid);
    lf_train_log(t, 2, "done: %lld steps, loss %.4f at first, %.4f in the mean of the last ones%s",
                 (long long)t->s.step, t->s.first_loss, lf_train_loss_mean(t), valid);
    return 0;
}

/* ---- a run ---- */

static int model_of_checkpoint(lf_trainer *t, lf_err *err)
{
    lf_ckpt *ck = NULL;
    int rc = lf_ckpt_open(&ck, t->c->init_from, t->c->threads, err);
    if (rc)
        return lf_err_prefix(err, "init_from");
    rc = lf_weights_config(&t->mc, ck, err);
    lf_ckpt_close(ck);
    return rc;
}

/* The description comes from the settings, or from the checkpoint that rank 0 reads. */
static int resolve_model(lf_trainer *t, lf_err *err)
{
    json_t *o = NULL;
    t->mc = t->c->model;
    if (t->c->model_given)
        return 0;
    int rc = lf_train_first_rank(t) ? model_of_checkpoint(t, err) : 0;
    if (!rc && t->ranks > 1 && lf_train_first_rank(t) && !(o = lf_model_config_to_json(&t->mc, err)))
        rc = LF_ENOMEM;
    rc = lf_train_agree(t, rc, err);
    if (!rc)
        rc = lf_train_share_json(t, &o, err);
    if (!rc && !lf_train_first_rank(t))
        rc = lf_model_config_from_json(&t->mc, o, "rank 0's model", err);
    json_decref(o);
    return rc;
}

/* Host memory for inputs that the loader does not make. */
static int input_buffers(lf_trainer *t, lf_err *err)
{
    if (t->mc.mask == LF_MASK_PREFIX &&
        !(t->prefix_buf = lf_arena_alloc(t->arena, (size_t)(t->m.n_docs + 2 * t->m.rows), sizeof(int32_t), err)))
        return LF_ENOMEM;
    if (t->c->neftune_alpha > 0 &&
        !(t->noise_buf = lf_arena_alloc(t->arena, (size_t)(t->m.rows * t->mc.hidden), sizeof(float), err)))
        return LF_ENOMEM;
    if (t->c->objective || !lf_decoder_is_random(t->m.dec)) /* objectives train without dropout */
        return 0;
    t->samples_buf = lf_arena_alloc(t->arena, (size_t)t->m.rows, sizeof(int64_t), err);
    t->offsets_buf = lf_arena_alloc(t->arena, (size_t)t->m.rows, sizeof(int32_t), err);
    if (!t->samples_buf || !t->offsets_buf)
        return LF_ENOMEM;
    for (int64_t r = 0; r < t->m.rows; r++)
        t->offsets_buf[r] = (int32_t)(r % t->c->seq_length);
    return 0;
}

static int set_up_alone(lf_trainer *t, lf_err *err)
{
    t->arena = lf_arena_create(err);
    t->history = json_array();
    if (!t->arena || !t->history)
        return LF_ENOMEM;
    int rc = lf_train_first_rank(t) ? lf_io_mkdirs(t->c->out, 0777, err) : 0;
    if (!rc)
        rc = lf_train_open_data(t, err);
    if (!rc)
        rc = lf_train_model_plan(&t->m, t->c, &t->mc, t->vdata || (t->c->objective && t->c->objective->prepare), t->ranks,
                                 err);
    if (!rc)
        rc = input_buffers(t, err);
    t->rss0 = lf_rss_bytes();
    if (!rc)
        rc = lf_train_model_bind(&t->m, t->c, t->comm, err);
    if (rc)
        return rc;
    t->fingerprint = lf_train_fingerprint(t, err);
    return t->fingerprint ? 0 : LF_ENOMEM;
}

/* Collective. */
static int set_up(lf_trainer *t, lf_err *err)
{
    lf_train_phase(t, "setting up");
    int rc = resolve_model(t, err);
    rc = lf_train_agree(t, rc ? rc : set_up_alone(t, err), err);
    rc = rc ? rc : lf_train_connect(t, err);
    return rc ? rc : lf_train_same(t, err);
}

static void tear_down(lf_trainer *t)
{
    lf_train_disconnect(t);
    lf_ckpt_writer_destroy(t->writer);
    lf_frame_writer_close(t->metrics, NULL);
    lf_loader_close(t->data);
    lf_loader_close(t->vdata);
    for (size_t k = 0; t->vsets && k < t->n_valid_dirs; k++)
        lf_loader_close(t->vsets[k]);
    lf_train_model_fini(&t->m);
    lf_pages_free(t->snapshot, t->snapshot_bytes);
    json_decref(t->history);
    json_decref(t->fingerprint);
    lf_arena_destroy(t->arena);
}

int lf_train_run(const struct lf_train_config *c, const struct lf_train_sink *sink, lf_comm *comm, lf_err *err)
{
    lf_trainer t = {.c = c,
                    .sink = sink,
                    .comm = comm ? comm->host : NULL,
                    .rank = comm ? comm->rank : 0,
                    .ranks = comm ? comm->size : 1,
                    .m = {.valid = -1}};
    bool done = false;
    int rc = lf_train_check(c, err);
    if (!rc)
        rc = set_up(&t, err);
    if (!rc)
        rc = lf_train_start(&t, &done, err);
    if (!rc && done)
        lf_train_log(&t, 2, "%s/checkpoint is in place: nothing to do", c->out);
    const lf_objective *o = c->objective;
    if (!rc && !done && o && o->prepare)
        rc = lf_train_agree(&t, o->prepare(o->user, &t, t.s.step == 0, err), err);
    if (!rc && !done && !(o && o->prepare_only)) {
        rc = lf_train_metrics_open(&t, err);
        if (!rc)
            rc = lf_train_writer_open(&t, err);
        rc = lf_train_agree(&t, rc, err);
        if (!rc) {
            lf_train_report_begin(&t);
            rc = steps(&t, err);
        }
        if (!rc)
            rc = finish(&t, err);
        if (t.metrics && (!rc || rc == LF_EINTR)) {
            lf_err sync = LF_ERR_INIT;
            if (lf_frame_sync(t.metrics, &sync))
                rc = lf_fail(err, sync.rc, "metrics: %s", sync.text);
        }
    }
    tear_down(&t);
    return rc;
}
