/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of the loop: what goes into state.json, when the background writer is begun and waited for. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/sys.h"
#include "engine/graph/profile.h"
#include "engine/model/merge.h"
#include "engine/model/weights.h"
#include "engine/train/loop_priv.h"

int lf_train_writer_open(lf_trainer *t, lf_err *err)
{
    if (!lf_train_first_rank(t))
        return 0;
    lf_ckpt_tensor *tensors = NULL;
    int rc = t->c->adapter
                 ? lf_weights_adapter_tensors(&tensors, &t->n_tensors, t->m.ps, LF_WEIGHTS_PREFIX, true, t->arena, err)
                 : lf_weights_tensors(&tensors, &t->n_tensors, t->m.ps, LF_WEIGHTS_PREFIX, true, t->arena, err);
    if (rc)
        return rc;
    t->tensors = tensors;
    if (t->c->save_async || !lf_pstore_on_host(t->m.ps)) {
        t->snapshot_bytes = lf_ckpt_snapshot_bytes(tensors, t->n_tensors);
        t->snapshot = lf_pages_alloc(t->snapshot_bytes, err);
        if (!t->snapshot)
            return lf_err_prefix(err, "memory for background saving (save_async = no does without)");
    }
    lf_ckpt_options o = {.arena = t->snapshot, .threads = t->c->threads < 4 ? t->c->threads : 4};
    return lf_ckpt_writer_create(&t->writer, tensors, t->n_tensors, &o, err);
}

/* A real, or null where there is none yet. */
static json_t *real_or_null(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

/* The batch schedule as pairs [from sample, samples of a step]. */
static json_t *batch_json(const struct lf_train_config *c)
{
    json_t *rows = json_array();
    for (size_t i = 0; rows && i < c->n_ramp; i++)
        if (json_array_append_new(rows, json_pack("[I,I]", (json_int_t)c->ramp[i].from_sample,
                                                  (json_int_t)c->ramp[i].samples))) {
            json_decref(rows);
            return NULL;
        }
    return rows;
}

json_t *lf_train_state_json(const lf_trainer *t, lf_err *err)
{
    const struct lf_train_config *c = t->c;
    json_t *model = lf_model_config_to_json(&t->mc, err);
    if (!model)
        return NULL;
    double active = t->s.active_s;
    json_t *o = json_pack("{s:i,s:I,s:I,s:I,s:I,s:I,s:s,s:s,s:o,s:O,s:O}", "lf_train", 1, "step", (json_int_t)t->s.step,
                          "samples", (json_int_t)t->s.samples, "tokens", (json_int_t)t->s.tokens, "cursor",
                          (json_int_t)t->s.cursor, "seed", (json_int_t)c->seed, "order", lf_loader_order_id(t->data),
                          "tokenizer_sha256", t->tokenizer, "model", model, "fingerprint", t->fingerprint, "history",
                          t->history);
    json_t *optim = json_pack("{s:f,s:f,s:f,s:f,s:f,s:f}", "beta1", (double)c->adam.beta1, "beta2",
                              (double)c->adam.beta2, "eps", (double)c->adam.eps, "weight_decay",
                              (double)c->adam.weight_decay, "clip", c->clip, "z_loss", c->z_loss);
    json_t *sched = json_pack("{s:i,s:i,s:f,s:f,s:I,s:I,s:I}", "kind", (int)t->lr.kind, "tail", (int)t->lr.tail, "peak",
                              t->lr.peak, "min", t->lr.min, "warmup", (json_int_t)t->lr.warmup, "total",
                              (json_int_t)t->lr.total, "decay", (json_int_t)t->lr.decay);
    int bad = !o || json_object_set_new(o, "optimizer", optim) | json_object_set_new(o, "schedule", sched) |
                        json_object_set_new(o, "batch", batch_json(c)) |
                        json_object_set_new(o, "loss_sum", json_real(t->s.loss_sum)) |
                        json_object_set_new(o, "first_loss", real_or_null(t->s.first_loss)) |
                        json_object_set_new(o, "valid_loss", real_or_null(t->s.valid_loss)) |
                        json_object_set_new(o, "best_valid", real_or_null(t->s.best_valid)) |
                        json_object_set_new(o, "best_score", real_or_null(t->s.best_score)) |
                        json_object_set_new(o, "best_step", json_integer(t->s.best_step)) |
                        json_object_set_new(o, "stale", json_integer(t->s.stale)) |
                        json_object_set_new(o, "early", json_boolean(lf_train_out_of_patience(t))) |
                        json_object_set_new(o, "active_s", json_real(active));
    if (!bad && c->scaler.dynamic)
        bad = json_object_set_new(o, "scaler", lf_scaler_json(&t->s.scaler));
    if (!bad && c->neftune_alpha > 0)
        bad = json_object_set_new(o, "neftune_alpha", json_real(c->neftune_alpha));
    if (!bad && c->adapter)
        bad = json_object_set_new(o, "adapter", lf_adapter_to_json(c->adapter, err)) |
              json_object_set_new(o, "base", json_string(t->base));
    if (!bad && c->objective && c->objective->identity)
        bad = json_object_set(o, "objective", c->objective->identity);
    if (!bad && c->objective && c->objective->extra)
        bad = json_object_update(o, c->objective->extra);
    if (bad) {
        json_decref(o);
        lf_fail(err, LF_ENOMEM, "state of the run: out of memory");
        return NULL;
    }
    return o;
}

int lf_train_save_begin(lf_trainer *t, const char *dir, json_t *extra, lf_err *err)
{
    if (!lf_train_first_rank(t))
        return 0;
    lf_train_phase(t, "saving");
    int rc = lf_train_save_wait(t, err);
    /* Steps that a checkpoint covers must not be missing from the metrics after a crash. */
    if (!rc && t->metrics)
        rc = lf_frame_sync(t->metrics, err);
    if (rc)
        return rc;
    json_t *state = lf_train_state_json(t, err);
    if (!state)
        return LF_ENOMEM;
    if (extra && json_object_update(state, extra))
        rc = lf_fail(err, LF_ENOMEM, "state of the run: out of memory");
    struct lf_profile_mark m = lf_profile_begin(t->c->profile);
    t->save_t0 = lf_now_s();
    if (!rc)
        rc = lf_ckpt_save_begin(t->writer, dir, state, err);
    lf_profile_end(t->c->profile, LF_LANE_STEP, "snapshot", m);
    json_decref(state);
    t->saving = rc == 0;
    t->saving_step = t->s.step;
    t->last_save = lf_now_s();
    return rc;
}

int lf_train_save_wait(lf_trainer *t, lf_err *err)
{
    if (!t->saving)
        return 0;
    lf_train_phase(t, "saving");
    t->saving = false;
    lf_ckpt_result r;
    int rc = lf_ckpt_save_wait(t->writer, &r, err);
    if (rc < 0)
        return lf_err_prefix(err, "checkpoint");
    t->saved_step = t->saving_step;
    if (rc == 1) {
        char size[32];
        t->save_s = r.snapshot_s + r.write_s;
        lf_profile_span(t->c->profile, LF_LANE_SAVE, "checkpoint", t->save_t0, t->save_s);
        lf_train_log(t, 2, "saved %s in %.1f s (training held up for %.2f s)",
                     lf_fmt_bytes(size, sizeof(size), (double)r.bytes), r.write_s, r.snapshot_s);
    }
    return lf_ckpt_retain(t->c->out, t->c->keep, t->c->keep_every, err);
}

/* Save what is trained to `dir` and wait for it. */
static int save_at(lf_trainer *t, const char *dir, lf_err *err)
{
    int rc = lf_train_save_begin(t, dir, NULL, err);
    return rc ? rc : lf_train_save_wait(t, err);
}

static int check_adapter(const lf_trainer *t, const char *dir, lf_err *err)
{
    lf_ckpt *ck = NULL;
    int rc = lf_ckpt_open(&ck, dir, t->c->threads, err);
    const char *order = rc ? NULL : json_string_value(json_object_get(lf_ckpt_state(ck), "order"));
    if (!rc && (lf_ckpt_step(ck) != t->s.step || !order || strcmp(order, lf_loader_order_id(t->data)) != 0))
        rc = lf_fail(err, LF_EEXIST, "%s is of another run; write to another out", dir);
    lf_ckpt_close(ck);
    return rc;
}

/* The adapter, then its base with it inside. One that is there already is that of a run that ended between the two; its
 * bits are these. */
static int save_adapter(lf_trainer *t, const char *adapter, const char *checkpoint, lf_err *err)
{
    enum lf_artifact_state st = LF_ARTIFACT_ABSENT;
    const struct lf_merge_opts mo = {
        .base = t->c->init_from, .adapter = adapter, .out = checkpoint, .threads = t->c->threads};
    int rc = lf_train_first_rank(t) ? lf_artifact_state(&st, adapter, err) : 0;
    if (!rc && st == LF_ARTIFACT_PRESENT)
        rc = check_adapter(t, adapter, err);
    else if (!rc)
        rc = save_at(t, adapter, err);
    lf_train_phase(t, "merging the adapter");
    return rc || !lf_train_first_rank(t) ? rc : lf_adapter_merge(&mo, NULL, err);
}

int lf_train_save_final(lf_trainer *t, lf_err *err)
{
    char *dir = lf_path_join(t->c->out, "checkpoint", err), *adapter = lf_path_join(t->c->out, "adapter", err);
    int rc = !dir || !adapter ? LF_ENOMEM : t->c->adapter ? save_adapter(t, adapter, dir, err) : save_at(t, dir, err);
    free(dir);
    free(adapter);
    return rc;
}
