/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop: validation, what happens between steps, a run from its beginning to its end. */
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
#include "engine/train/pipe.h"

/* ---- validation ---- */

/* This rank's share of validation data; survey: for what an objective must know of all of it. */
static int validate_share(lf_trainer *t, lf_loader *data, bool survey, struct lf_train_sums *sums,
                          lf_err *err)
{
    struct lf_step_record rec = {.loss_scale = 1, .inv_tokens = 1, .seed = t->c->seed};
    const lf_objective *o = t->c->objective;
    struct lf_train_asked asked = {o, sums, survey};
    struct lf_train_forwards f = {
        .data = data, .valid_split = true, .each = o ? lf_train_ask : NULL, .user = &asked};
    lf_train_begin_sums(sums);
    int rc = lf_loader_seek(data, 0, err);
    if (rc == 0)
        rc = lf_exec_record_write(t->m.ex, &rec, err);
    rc = lf_train_ready(t, rc, err);
    if (rc == 0)
        rc = lf_train_forwards(t, &f, INT64_MAX, err);
    rc = lf_train_stand_by(t, t->m.valid, &f.ran, lf_train_rounds(t, lf_loader_samples(data)), rc,
                           err);
    if (rc == 0)
        rc = lf_exec_record_read(t->m.ex, &rec, err);
    sums->loss = rec.loss_sum;
    sums->entropy = rec.entropy_sum;
    sums->correct = rec.correct;
    lf_train_take_more(sums, &rec);
    sums->tokens = o ? lf_loader_cursor(data) : rec.tokens;
    return rc;
}

/* Collective: every named set; their sums together. */
static int validate_sets(lf_trainer *t, struct lf_train_step *st, struct lf_train_sums *all,
                         lf_err *err)
{
    lf_train_begin_sums(all);
    for (size_t k = 0; k < t->n_valid_dirs; k++) {
        struct lf_train_sums one;
        int rc = lf_train_exchange(t, validate_share(t, t->vsets[k], false, &one, err), &one, err);
        if (rc == 0 && one.tokens < 1)
            rc = lf_fail(err, LF_EINVAL, "the validation data %s holds no token to measure",
                         t->vnames[k]);
        if (rc != 0)
            return rc;
        st->set_loss[k] = one.loss / (double)one.tokens + lf_train_nsp_loss(t, &one);
        st->set_accuracy[k] = (double)one.correct / (double)one.tokens;
        all->loss += one.loss;
        all->tokens += one.tokens;
        all->correct += one.correct;
        all->entropy += one.entropy;
        all->more_loss[0] += one.more_loss[0];
        all->more_tokens[0] += one.more_tokens[0];
        all->more_correct[0] += one.more_correct[0];
    }
    return 0;
}

/* The normalisation of scores and the like belong to the best weights too. One that cannot be made
 * yet is left out: only the last weights need it. Collective. */
static int finish_best(lf_trainer *t, lf_err *err)
{
    const lf_objective *o = t->c->objective;
    lf_err why = LF_ERR_INIT;
    int rc = o && o->finish ? o->finish(o->user, t, &why) : 0;
    if (rc == LF_ENUMERIC)
        lf_train_log(t, 2, "the best so far is kept without it: %s", why.text);
    else if (rc != 0)
        lf_fail(err, rc, "%s", why.text);
    return lf_train_agree(t, rc == LF_ENUMERIC ? 0 : rc, err);
}

/* Keeps the weights with keep_best. Collective. */
static int keep_best(lf_trainer *t, int64_t before, lf_err *err)
{
    const lf_objective *o = t->c->objective;
    int rc = lf_train_replicas(t, err);
    if (rc == 0)
        rc = finish_best(t, err);
    if (rc == 0 && lf_train_saves(t)) { /* rc is agreed */
        json_t *state = lf_train_state_json(t, err);
        rc = lf_best_keep(&t->run, state ? 0 : LF_ENOMEM, &t->s.best, before, state, err);
        json_decref(state);
    }
    if (o && o->extra)
        json_object_clear(o->extra);
    return lf_train_agree(t, rc, err);
}

/* The number of a validation that best_metric names. */
static double measured(const lf_trainer *t, const struct lf_train_step *st)
{
    const int i = lf_train_best_index(t->c);
    if (t->c->best_metric == LF_BEST_LOSS)
        return st->valid_loss;
    return i < 0 ? st->valid_accuracy : st->valid_means[i];
}

/* After a validation: is it the best one? Collective. */
static int judge(lf_trainer *t, const struct lf_train_step *st, lf_err *err)
{
    const struct lf_train_config *c = t->c;
    struct lf_best *b = &t->s.best;
    const int64_t before = b->step;
    const bool better = lf_best_take(b, measured(t, st), c->best_metric != LF_BEST_LOSS, t->s.step);
    if (!better && b->stale == c->patience)
        lf_train_log(t, 2, "no better validation than that of step %lld for %lld: the end",
                     (long long)before, (long long)b->stale);
    return better && c->keep_best ? keep_best(t, before, err) : 0;
}

int lf_train_validate(lf_trainer *t, struct lf_train_step *st, lf_err *err)
{
    double t0 = lf_now_s();
    const lf_objective *o = t->c->objective;
    struct lf_train_sums sums;
    struct lf_profile_mark m = lf_profile_begin(t->c->profile);
    int rc = 0;
    lf_run_phase(&t->run, "validation");
    if (o && o->survey) {
        rc = lf_train_exchange(t, validate_share(t, t->vdata, true, &sums, err), &sums, err);
        if (rc == 0)
            o->surveyed(o->user, sums.obj);
        if (rc == 0 && o->gathered)
            rc = lf_train_agree(
                t, o->gathered(o->user, t, true, 0, lf_loader_samples(t->vdata), err), err);
    }
    if (rc == 0 && t->vsets)
        rc = validate_sets(t, st, &sums, err);
    else if (rc == 0)
        rc = lf_train_exchange(t, validate_share(t, t->vdata, false, &sums, err), &sums, err);
    if (rc == 0 && sums.tokens < 1)
        rc = lf_fail(err, LF_EINVAL, "the validation data holds no token to measure");
    if (rc != 0)
        return rc;
    st->valid_loss = t->s.valid_loss =
        lf_train_loss_of(t, &sums, (double)sums.tokens, st->valid_means);
    st->valid_accuracy = t->c->objective ? (double)NAN : (double)sums.correct / (double)sums.tokens;
    st->valid_entropy = t->c->entropy ? sums.entropy / (double)sums.tokens : (double)NAN;
    if (t->c->nsp && sums.more_tokens[0] > 0) {
        st->valid_nsp_loss = lf_train_nsp_loss(t, &sums);
        st->valid_nsp_accuracy = sums.more_correct[0] / sums.more_tokens[0];
    }
    if (isfinite(st->valid_loss) && !(t->s.best_valid <= st->valid_loss))
        t->s.best_valid = st->valid_loss;
    lf_profile_end(t->c->profile, LF_LANE_STEP, "validation", m);
    st->valid_seconds = lf_now_s() - t0;
    return judge(t, st, err);
}

static bool at_interval(int64_t step, int64_t interval)
{
    return interval > 0 && step % interval == 0;
}

/* ---- between steps ---- */

/* Collective. rc: how this rank fared since the last exchange. */
static int save_here(lf_trainer *t, int rc, lf_err *err)
{
    const double t0 = lf_now_s();
    rc = lf_train_agree(t, rc, err);
    if (rc == 0)
        rc = lf_train_replicas(t, err);
    char *dir = rc != 0 ? NULL : lf_ckpt_step_dir(t->c->out, t->s.step, err);
    if (rc == 0)
        rc = lf_train_save_begin(t, dir ? 0 : LF_ENOMEM, dir, err);
    free(dir);
    t->held_s += lf_now_s() - t0;
    t->saves++;
    return rc;
}

/* Is a checkpoint to be saved after step t->s.step? */
static bool save_due(const lf_trainer *t)
{
    return t->late || at_interval(t->s.step, t->c->save_interval) ||
           lf_early_due(&t->early, t->s.step);
}

static int save_if_due(lf_trainer *t, int rc, bool *saved, lf_err *err)
{
    *saved = false;
    if (rc == 0)
        rc = lf_run_save_poll(&t->run, err);
    if (t->s.step == t->total_steps || !save_due(t))
        return rc;
    *saved = true;
    return save_here(t, rc, err);
}

static bool guest_due(const lf_trainer *t)
{
    return t->c->guest &&
           (at_interval(t->s.step, t->c->guest->interval) || t->s.step == t->total_steps);
}

/* Collective. */
static int visit_guest(lf_trainer *t, struct lf_train_step *st, lf_err *err)
{
    const struct lf_train_guest *g = t->c->guest;
    if (!guest_due(t))
        return 0;
    lf_run_phase(&t->run, "samples");
    st->visited = true;
    int rc = lf_train_agree(t, lf_exec_hold(t->m.ex, err), err);
    lf_train_expect_hold(t);
    struct lf_comm_counts then[LF_DEVCOMM_COUNTED];
    lf_devcomm_counted(&t->dev, then);
    if (rc == 0 && t->host.draws)
        rc = g->visit(g->user, t->s.step, st->guest, err);
    lf_train_count_apart(t, then);
    return lf_train_agree(t, rc, err);
}

/* After a step: what is measured, told and kept. */
static int after_step(lf_trainer *t, struct lf_train_step *st, bool *saved, lf_err *err)
{
    int rc = 0;
    t->told_step = t->s.step;
    if (t->s.step == 1) {
        t->s.first_loss = st->loss;
        if (!t->c->objective)
            lf_train_report_first(t, st);
    }
    if (t->vdata && (at_interval(t->s.step, t->c->valid_interval) || t->s.step == t->total_steps))
        rc = lf_train_validate(t, st, err);
    if (rc == 0)
        rc = visit_guest(t, st, err);
    if (rc != 0) /* on every rank */
        return rc;
    return save_if_due(t, lf_train_report(t, st, err), saved, err);
}

static int stop_here(lf_trainer *t, bool saved, lf_err *err)
{
    int rc = lf_train_agree(t, saved ? lf_run_save_wait(&t->run, false, err) : 0, err);
    bool again = !saved || t->run.failed_step == t->s.step;
    if (rc == 0)
        rc = lf_run_any(&t->run, &again, err);
    if (rc == 0 && again)
        rc = save_here(t, 0, err);
    if (rc == 0)
        rc = lf_run_save_wait(&t->run, true, err);
    rc = lf_train_agree(t, rc, err);
    return rc != 0 ? rc : lf_fail(err, LF_EINTR, "stopped after step %lld", (long long)t->s.step);
}

/* Does something after step t->s.step look at the weights? Then the next one is not begun
 * before. */
static bool due(const lf_trainer *t)
{
    const struct lf_train_config *c = t->c;
    return t->s.step == t->total_steps || save_due(t) || guest_due(t) ||
           (t->vdata && at_interval(t->s.step, c->valid_interval));
}

/* How the step under way went; nothing else is. Collective. */
static int land(lf_trainer *t, bool *saved, lf_err *err)
{
    struct lf_train_step st;
    bool again;
    int rc = lf_train_ahead_land(t, &st, &again, err);
    if (again || rc == LF_ENUMERIC) /* on every rank */
        return rc;
    rc = lf_train_agree(t, rc, err);
    return rc != 0 ? rc : after_step(t, &st, saved, err);
}

/* The next step's gradients and, while they are computed, the end of the step before, after which
 * nothing is due. Collective: the failure of a rank is one of all before any of them waits for
 * another's gradients. */
static int step_ahead(lf_trainer *t, bool *saved, lf_err *err)
{
    lf_err own = LF_ERR_INIT;
    const int began = lf_train_ahead_begin(t, &own);
    int rc = 0;
    if (t->flight.up) {
        struct lf_train_step st;
        bool again;
        rc = lf_train_ahead_land(t, &st, &again, err);
        if (rc == LF_ENUMERIC)
            return rc;
        if (again) /* what began is void, but must have begun everywhere */
            return rc != 0
                       ? rc
                       : lf_train_agree(t, began ? lf_fail(err, began, "%s", own.text) : 0, err);
        if (rc == 0)
            rc = after_step(t, &st, saved, err);
    }
    if (began)
        rc = lf_fail(err, began, "%s", own.text);
    rc = lf_train_agree(t, rc, err);
    return rc != 0 ? rc : lf_train_ahead_launch(t, err);
}

/* A start that was asked to end before it trained anything: what it goes on from is measured as the
 * last step of a run is, unless it was then. */
static int end_untrained(lf_trainer *t, lf_err *err)
{
    struct lf_train_step st = {.valid_loss = NAN,
                               .valid_accuracy = NAN,
                               .valid_entropy = NAN,
                               .valid_nsp_loss = NAN,
                               .valid_nsp_accuracy = NAN};
    int rc = 0;
    if (t->told_step > 0 || !t->early.by || t->s.step == 0)
        return 0;
    if (t->vdata && !at_interval(t->s.step, t->c->valid_interval))
        rc = lf_train_validate(t, &st, err);
    if (rc == 0)
        rc = visit_guest(t, &st, err);
    return rc != 0 ? rc : lf_train_agree(t, lf_train_report_end(t, &st, err), err);
}

static int steps(lf_trainer *t, lf_err *err)
{
    struct lf_train_step st;
    bool saved = true; /* where we begin there is a checkpoint, or nothing to save */
    int rc = 0;
    while (t->flight.up ||
           (t->s.step < t->total_steps && !lf_best_over(&t->s.best, t->c->patience))) {
        struct lf_run_asked asked = {.step = t->s.step + t->flight.up,
                                     .end = lf_train_early_clock(t)};
        rc = lf_run_look(&t->run, rc, &asked, t->ahead ? &t->late : NULL, err);
        if (rc != 0)
            return rc;
        if (!asked.stop)
            lf_train_early_meet(t, asked.end);
        if (t->flight.up && (asked.stop || due(t))) {
            rc = land(t, &saved, err);
            continue;
        }
        if (asked.stop)
            return stop_here(t, saved, err);
        if (t->s.step == t->total_steps)
            break;
        if (t->ahead) {
            rc = step_ahead(t, &saved, err);
            continue;
        }
        rc = lf_train_step_now(t, &st, err);
        if (rc != 0)
            return rc;
        rc = after_step(t, &st, &saved, err);
    }
    rc = lf_train_agree(t, rc, err);
    lf_train_report_held(t);
    return rc != 0 ? rc : end_untrained(t, err);
}

/* A run that diverged must not end without a word, and a short one has no other: the watch for
 * spikes begins later. */
static void warn_if_worse(const lf_trainer *t)
{
    const double mean = lf_train_loss_mean(t), first = t->s.first_loss;
    const double uniform = t->c->objective ? (double)INFINITY : lf_train_uniform(t);
    if (mean <= uniform + 0.1 && mean <= first + 0.1 * fabs(first))
        return;
    lf_train_log(t, 1,
                 "the loss is higher than at the start%s: %.4f at first, %.4f in the mean of the "
                 "last steps; try a smaller lr or a longer warmup",
                 mean > uniform + 0.1 ? ", or than that of a uniform guess" : "", first, mean);
}

static int finish(lf_trainer *t, lf_err *err)
{
    const lf_objective *o = t->c->objective;
    int rc = lf_train_replicas(t, err);
    if (rc == 0 && o && o->finish)
        rc = lf_train_agree(t, o->finish(o->user, t, err), err);
    if (rc == 0 && t->c->keep_best && lf_train_first_rank(t))
        rc = lf_best_publish(&t->run, &t->s.best, err);
    rc = lf_train_agree(t, rc, err);
    if (rc == 0)
        rc = lf_train_save_final(t, err);
    rc = lf_train_agree(t, rc, err);
    if (rc != 0)
        return rc;
    warn_if_worse(t);
    rc = lf_train_report_moved(t, err);
    if (rc == 0)
        rc = lf_train_report_peak(t, err);
    if (rc != 0)
        return rc;
    char valid[48] = "";
    if (isfinite(t->s.valid_loss))
        snprintf(valid, sizeof(valid), ", validation %.4f (best %.4f)", t->s.valid_loss,
                 t->s.best_valid);
    char of[48] = "";
    if (t->early.by)
        snprintf(of, sizeof(of), " of %lld", (long long)t->early.planned);
    lf_train_log(t, 2,
                 "done: %lld%s steps, loss %.4f at first, %.4f in the mean of the last ones%s",
                 (long long)t->s.step, of, t->s.first_loss, lf_train_loss_mean(t), valid);
    return 0;
}

/* ---- a run ---- */

static int model_of_checkpoint(lf_trainer *t, lf_err *err)
{
    lf_ckpt *ck = NULL;
    int rc = lf_ckpt_open_checked(&ck, t->c->init_from, LF_CKPT_CHECK_READS, 1, err);
    if (rc != 0)
        return lf_err_prefix(err, "init_from");
    rc = lf_weights_config(&t->mc, ck, err);
    lf_ckpt_close(ck);
    return rc == 0 ? lf_train_check_base(t, &t->mc, err) : rc;
}

/* The description comes from the settings, or from the checkpoint that rank 0 reads. */
static int resolve_model(lf_trainer *t, lf_err *err)
{
    json_t *o = NULL;
    t->mc = t->c->model;
    if (t->c->model_given)
        return 0;
    int rc = lf_train_first_rank(t) ? model_of_checkpoint(t, err) : 0;
    if (rc == 0 && t->run.ranks > 1 && lf_train_first_rank(t) &&
        !(o = lf_model_config_to_json(&t->mc, err)))
        rc = LF_ENOMEM;
    rc = lf_train_agree(t, rc, err);
    if (rc == 0)
        rc = lf_run_share_json(&t->run, &o, err);
    if (rc == 0 && !lf_train_first_rank(t))
        rc = lf_model_config_from_json(&t->mc, o, "rank 0's model", err);
    json_decref(o);
    return rc;
}

/* The same for rows that the ranks of the context axis divide. */
static int row_buffers(lf_trainer *t, lf_err *err)
{
    const size_t noise = t->c->neftune_alpha > 0 ? (size_t)t->mc.hidden * sizeof(float) : 0,
                 places = 3 * sizeof(int32_t);
    lf_train_own(t);
    return lf_own_rows_open(&t->mine, t->run.arena, noise > places ? noise : places,
                            t->c->objective ? t->c->objective->row_bytes : 0, err);
}

/* For dropout in the encoder of an encoder-decoder. */
static int take_source_rows(lf_trainer *t, lf_err *err)
{
    const int64_t length = t->c->seq2seq.source_length, rows = t->c->micro_batch * length;
    if (!length)
        return 0;
    t->source_samples_buf = lf_arena_alloc(t->run.arena, (size_t)rows, sizeof(int64_t), err);
    t->source_offsets_buf = lf_arena_alloc(t->run.arena, (size_t)rows, sizeof(int32_t), err);
    if (!t->source_samples_buf || !t->source_offsets_buf)
        return LF_ENOMEM;
    for (int64_t r = 0; r < rows; r++)
        t->source_offsets_buf[r] = (int32_t)(r % length);
    return 0;
}

/* Host memory for inputs that the loader does not make. */
static int input_buffers(lf_trainer *t, lf_err *err)
{
    const lf_objective *o = t->c->objective;
    if (row_buffers(t, err))
        return LF_ENOMEM;
    if (o && o->several &&
        (!(t->texts_cu =
               lf_arena_alloc(t->run.arena, (size_t)t->m.n_docs + 1, sizeof(int32_t), err)) ||
         !(t->texts_place = lf_arena_alloc(t->run.arena, (size_t)t->m.rows, sizeof(int32_t), err))))
        return LF_ENOMEM;
    if (lf_train_separator(t) >= 0 && t->mc.token_types > 1 &&
        !(t->types_buf = lf_arena_alloc(t->run.arena, (size_t)t->m.rows, sizeof(int32_t), err)))
        return LF_ENOMEM;
    if (t->mc.mask == LF_MASK_PREFIX &&
        !(t->prefix_buf = lf_arena_alloc(
              t->run.arena, lf_decoder_prefix_room(t->m.n_docs, t->m.rows), sizeof(int32_t), err)))
        return LF_ENOMEM;
    if (lf_decoder_mtp(t->m.dec) &&
        !(t->mtp_buf = lf_arena_alloc(t->run.arena, (size_t)t->m.rows, sizeof(int32_t), err)))
        return LF_ENOMEM;
    if (t->c->nsp &&
        !(t->nsp_buf = lf_arena_alloc(t->run.arena, (size_t)t->m.rows, sizeof(int32_t), err)))
        return LF_ENOMEM;
    if (t->c->neftune_alpha > 0 &&
        !(t->noise_buf =
              lf_arena_alloc(t->run.arena, (size_t)(t->m.rows * t->mc.hidden), sizeof(float), err)))
        return LF_ENOMEM;
    if (t->c->max_patches && !(t->c->objective && t->c->objective->inputs) &&
        !(t->sight = lf_sight_create(&t->mc, &t->m.media, t->m.rows, err)))
        return LF_ENOMEM;
    if ((t->c->objective && !t->c->objective->dropout) || !lf_decoder_is_random(t->m.dec))
        return 0;
    t->samples_buf = lf_arena_alloc(t->run.arena, (size_t)t->m.rows, sizeof(int64_t), err);
    t->offsets_buf = lf_arena_alloc(t->run.arena, (size_t)t->m.rows, sizeof(int32_t), err);
    if (!t->samples_buf || !t->offsets_buf)
        return LF_ENOMEM;
    for (int64_t r = 0; r < t->m.rows; r++)
        t->offsets_buf[r] = (int32_t)(r % t->c->seq_length);
    return take_source_rows(t, err);
}

/* The valid splits are what a guest may ask about. */
static int bind_guest(lf_trainer *t, lf_err *err)
{
    const struct lf_train_guest *g = t->c->guest;
    const size_t n = lf_train_n_sources(t, true);
    const lf_shardset **docs = lf_arena_alloc(t->run.arena, n + 1, sizeof(*docs), err);
    if (!docs)
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++)
        docs[i] = lf_train_source_set(t, i, true);
    t->host = (struct lf_guest_host){.run = &t->run,
                                     .draws = t->who.data == 0,
                                     .group = t->comms.tensor,
                                     .data = lf_train_source_set(t, 0, false),
                                     .docs = docs,
                                     .n_docs = n,
                                     .model = &t->mc};
    return g->bind(g->user, &t->host, t->m.ex, t->m.back, err);
}

static int set_up_alone(lf_trainer *t, lf_err *err)
{
    int rc = lf_train_first_rank(t) ? lf_io_mkdirs(t->c->out, 0777, err) : 0;
    if (rc == 0)
        rc = lf_train_open_data(t, err);
    if (rc == 0)
        rc = lf_train_check_valid(t->c, err);
    if (rc == 0 && !t->vdata && t->c->valid_interval > 0)
        lf_train_log(t, 1,
                     "valid_interval = %lld, and no data has a valid split: nothing is validated; "
                     "a larger valid_fraction of the stage that made it keeps some",
                     (long long)t->c->valid_interval);
    if (rc == 0)
        rc = lf_train_model_plan(&t->m, t->c, &t->mc,
                                 t->vdata || (t->c->objective && t->c->objective->prepare), &t->who,
                                 err);
    if (rc == 0)
        rc = input_buffers(t, err);
    if (rc == 0)
        rc = lf_train_model_bind(&t->m, t->c, t->run.comm, err);
    if (rc == 0 && t->c->guest)
        rc = bind_guest(t, err);
    if (rc != 0)
        return rc;
    t->run.fingerprint = lf_train_fingerprint(t, err);
    return t->run.fingerprint ? 0 : LF_ENOMEM;
}

/* Collective. */
static int set_up(lf_trainer *t, lf_err *err)
{
    lf_run_phase(&t->run, "setting up");
    int rc = lf_axes_open(&t->comms, &t->who, &t->c->axes, t->run.comm, err);
    if (rc == 0)
        rc = resolve_model(t, err);
    if (rc == 0 && t->c->adapter) {
        t->adapter = lf_train_adapter(t->c, &t->mc);
        t->run.c.adapter = &t->adapter;
    }
    if (rc == 0)
        rc = lf_train_choose_cut(t, err);
    rc = lf_train_agree(t, rc != 0 ? rc : set_up_alone(t, err), err);
    if (rc == 0)
        rc = lf_train_agree(t, lf_train_pipe_open(t, err), err);
    if (rc == 0)
        rc = lf_train_connect(t, err);
    return rc != 0 ? rc : lf_train_same(t, err);
}

void lf_train_close(lf_trainer *t, int rc)
{
    lf_train_disconnect(t, rc && rc != LF_EINTR);
    lf_axes_close(&t->comms); /* gives up what may still be under way to memory of the pipeline */
    lf_train_pipe_close(t);
    lf_run_end_writing(&t->run);
    lf_loader_close(t->data);
    lf_loader_close(t->vdata);
    for (size_t k = 0; t->vsets && k < t->n_valid_dirs; k++)
        lf_loader_close(t->vsets[k]);
    lf_features_close(t->features);
    if (t->c->guest)
        t->c->guest->leave(t->c->guest->user);
    lf_nvml_close(t->nvml);
    lf_sight_destroy(t->sight);
    json_decref(t->hf_config);
    lf_train_model_fini(&t->m);
    lf_train_costs_fini(&t->costs);
    lf_run_close(&t->run);
}

static struct lf_run_config run_config(const struct lf_train_config *c)
{
    return (struct lf_run_config){.out = c->out,
                                  .metrics = c->metrics,
                                  .copies = c->copies,
                                  .resume_from = c->resume_from,
                                  .n_resume_from = c->n_resume_from,
                                  .init_from = c->init_from,
                                  .adapter = c->adapter,
                                  .identity = "order",
                                  .profile = c->profile,
                                  .threads = c->threads,
                                  .keep = c->keep,
                                  .keep_every = c->keep_every,
                                  .save_time_s = c->save_time_s,
                                  .samples = c->guest != NULL,
                                  .parts = c->zero.stage > 0 || c->axes.tensor > 1 ||
                                           c->axes.pipeline > 1 || c->axes.expert > 1};
}

int lf_train_open(lf_trainer *t, const struct lf_train_config *c, const struct lf_train_sink *sink,
                  lf_comm *comm, lf_err *err)
{
    const struct lf_run_config of = run_config(c);
    *t = (lf_trainer){.c = c, .m = {.valid = -1}};
    int rc = lf_run_open(&t->run, &of, sink, comm, err);
    if (rc == 0)
        rc = lf_train_check(c, err);
    if (rc == 0)
        rc = lf_axes_check(&c->axes, t->run.ranks, err);
    rc = lf_train_agree(t, rc, err);
    return rc != 0 ? rc : set_up(t, err);
}

/* From where the run stands to its end. Collective. */
static int train(lf_trainer *t, lf_err *err)
{
    int rc = lf_train_agree(t, lf_run_metrics_open(&t->run, t->s.step, err), err);
    if (rc == 0)
        rc = lf_train_writer_open(t, err);
    rc = lf_train_agree(t, rc, err);
    if (rc == 0) {
        lf_train_report_begin(t);
        rc = steps(t, err);
    }
    if (rc == 0)
        rc = finish(t, err);
    if (rc != 0 && rc != LF_EINTR)
        return rc;
    lf_err sync = LF_ERR_INIT;
    return lf_run_metrics_sync(&t->run, &sync) ? lf_fail(err, sync.rc, "%s", sync.text) : rc;
}

int lf_train_run(const struct lf_train_config *c, const struct lf_train_sink *sink, lf_comm *comm,
                 lf_err *err)
{
    lf_trainer t;
    const lf_objective *o = c->objective;
    bool done = false;
    int rc = lf_train_open(&t, c, sink, comm, err);
    if (rc == 0)
        rc = lf_train_start(&t, &done, err);
    if (rc == 0 && done && c->keep_best)
        rc = lf_best_in_place(&t.run, err);
    if (rc == 0 && done)
        lf_train_log(&t, 2, "%s/checkpoint is in place: nothing to do", c->out);
    if (rc == 0 && !done && o && o->prepare)
        rc = lf_train_agree(&t, o->prepare(o->user, &t, t.s.step == 0, err), err);
    if (rc == 0 && !done && !(o && o->prepare_only))
        rc = train(&t, err);
    lf_train_close(&t, rc);
    return rc;
}
