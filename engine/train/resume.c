/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a run begins: at random weights, at given weights, or where an earlier start left
 * off. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/model/same_tokenizer.h"
#include "engine/model/weights.h"
#include "engine/train/loop_priv.h"

json_t *lf_train_fingerprint(const lf_trainer *t, lf_err *err)
{
    json_t *o = lf_exec_fingerprint(t->m.ex, err);
    if (o && (json_object_set_new(o, "micro_batch", json_integer(t->c->micro_batch)) ||
              json_object_set_new(o, "ranks", json_integer(t->run.ranks)))) {
        json_decref(o);
        lf_fail(err, LF_ENOMEM, "fingerprint: out of memory");
        return NULL;
    }
    return o;
}

static int get_i64(int64_t *out, json_t *state, const char *key, const char *dir, lf_err *err)
{
    return lf_json_get_i64(out, state, key, true, dir, err);
}

/* null and absent are NaN. */
static double get_real(json_t *state, const char *key)
{
    json_t *v = json_object_get(state, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static struct lf_train_state at_the_beginning(const lf_trainer *t)
{
    return (struct lf_train_state){.first_loss = NAN,
                                   .valid_loss = NAN,
                                   .best_valid = NAN,
                                   .best = lf_best_start(),
                                   .scaler = lf_scaler_start(&t->c->scaler)};
}

static int restore_state(lf_trainer *t, json_t *state, const char *dir, lf_err *err)
{
    struct lf_train_state s = {0};
    int64_t seed = 0;
    const char *order = NULL;
    int rc = get_i64(&s.step, state, "step", dir, err);
    if (rc == 0)
        rc = get_i64(&s.samples, state, "samples", dir, err);
    if (rc == 0)
        rc = get_i64(&s.tokens, state, "tokens", dir, err);
    if (rc == 0)
        rc = get_i64(&s.cursor, state, "cursor", dir, err);
    if (rc == 0)
        rc = get_i64(&seed, state, "seed", dir, err);
    if (rc == 0)
        rc = lf_json_get_f64(&s.loss_sum, state, "loss_sum", true, dir, err);
    if (rc == 0)
        rc = lf_json_get_str(&order, state, "order", true, dir, err);
    if (rc != 0)
        return rc;
    if (strcmp(order, lf_loader_order_id(t->data)) != 0)
        return lf_fail(
            err, LF_EINVAL,
            "%s was trained on another order of data (data, data_weights, seq_length, packing, "
            "max_docs, sample_order or seed "
            "changed), so its cursor means nothing here; init_from takes its weights alone",
            dir);
    if ((uint64_t)seed != t->c->seed)
        return lf_fail(err, LF_EINVAL, "%s has seed %lld, this run %llu", dir, (long long)seed,
                       (unsigned long long)t->c->seed);
    if (s.step > t->total_steps)
        return lf_fail(err, LF_EINVAL, "%s is at step %lld, beyond the %lld of this run", dir,
                       (long long)s.step, (long long)t->total_steps);
    s.first_loss = get_real(state, "first_loss");
    s.valid_loss = get_real(state, "valid_loss");
    s.best_valid = get_real(state, "best_valid");
    s.best = lf_best_of(state);
    s.scaler = lf_scaler_of(json_object_get(state, "scaler"), &t->c->scaler);
    s.active_s = get_real(state, "active_s");
    if (!isfinite(s.active_s))
        s.active_s = 0;
    t->s = s;
    lf_early_take(&t->early, state);
    lf_train_early_apply(t);
    return 0;
}

/* Remember in the run's history that it went on here, and tell whether the bits can be the same. */
static int record_resume(lf_trainer *t, json_t *state, const char *dir, lf_err *err)
{
    char at[64];
    json_t *is = lf_train_state_json(t, err);
    if (!is)
        return LF_ENOMEM;
    snprintf(at, sizeof(at), "step %lld of %lld", (long long)t->s.step, (long long)t->total_steps);
    int rc = lf_run_resumed(&t->run, state, is, dir, at, err);
    json_decref(is);
    return rc;
}

/* The weights below an adapter. *ck: their checkpoint, open; NULL: not wanted. */
static int load_base(lf_trainer *t, lf_ckpt **out, lf_err *err)
{
    lf_ckpt *ck = NULL;
    int rc = lf_ckpt_open(&ck, t->c->init_from, t->c->threads, err);
    if (rc != 0)
        return lf_err_prefix(err, "init_from");
    lf_hash_hex(t->run.base, lf_ckpt_identity(ck));
    rc = lf_weights_load_below(t->m.ps, t->mc.output, ck, LF_WEIGHTS_PREFIX, err);
    if (rc != 0)
        lf_ckpt_close(ck);
    else
        *out = ck;
    return rc;
}

/* Weights and moments of a checkpoint of ours: all of them, or those of an adapter upon its
 * base. */
static int load_own(lf_trainer *t, lf_ckpt *ck, const char *dir, lf_err *err)
{
    lf_ckpt *base = NULL;
    int rc = t->c->adapter ? load_base(t, &base, err) : 0;
    lf_ckpt_close(base);
    if (rc == 0)
        rc = lf_run_check_adapter(&t->run, ck, dir, err);
    if (rc != 0)
        return rc;
    return t->c->adapter ? lf_weights_load_adapter(t->m.ps, ck, LF_WEIGHTS_PREFIX, true, err)
                         : lf_weights_load(t->m.ps, ck, LF_WEIGHTS_PREFIX, true, err);
}

/* The same on the other ranks of sharded state, where each has moments of its own. */
static int load_there(lf_trainer *t, const char *dir, lf_err *err)
{
    lf_ckpt *ck = NULL;
    int rc = lf_ckpt_open(&ck, dir, t->c->threads, err);
    if (rc == 0)
        rc = load_own(t, ck, dir, err);
    lf_ckpt_close(ck);
    return rc;
}

/* Rank 0: everything of a checkpoint that is not the same on every rank anyway. */
static int resume_from(lf_trainer *t, lf_ckpt *ck, const char *dir, lf_err *err)
{
    lf_model_config mc;
    const char *key = NULL;
    int rc = lf_weights_config(&mc, ck, err);
    if (rc == 0 && !lf_model_config_equal(&mc, &t->mc, &key))
        rc = lf_fail(err, LF_EINVAL, "%s is of another model: [model] %s differs", dir, key);
    if (rc == 0)
        rc = restore_state(t, lf_ckpt_state(ck), dir, err);
    if (rc == 0)
        rc = load_own(t, ck, dir, err);
    if (rc == 0)
        rc = lf_loader_seek(t->data, t->s.cursor, err);
    return rc != 0 ? rc : record_resume(t, lf_ckpt_state(ck), dir, err);
}

static int start_from_weights(lf_trainer *t, lf_err *err)
{
    lf_ckpt *ck = NULL;
    lf_model_config mc;
    const char *key = NULL;
    int rc = load_base(t, &ck, err);
    if (rc != 0)
        return rc;
    rc = lf_weights_config(&mc, ck, err);
    if (rc == 0 && mc.output != t->mc.output)
        lf_train_log(t, 2, "the head of %s is left out: this model gives scores", t->c->init_from);
    mc.output = t->mc.output;
    if (rc == 0 && !lf_model_config_equal(&mc, &t->mc, &key))
        lf_train_log(t, 1, "[model] %s differs from the description in %s", key, t->c->init_from);
    if (rc == 0)
        rc = lf_same_tokenizer(t->c->init_from, t->tokenizer, "the data", err);
    if (rc == 0)
        rc = lf_same_tokenizer(t->c->adapter_from, t->tokenizer, "the data", err);
    if (rc == 0)
        lf_train_log(t, 2, "weights from %s (step %lld)", t->c->init_from,
                     (long long)lf_ckpt_step(ck));
    lf_ckpt_close(ck);
    return rc;
}

/* The final checkpoint of out, when there is one: the run is over, or out belongs to another. */
static int check_final(lf_trainer *t, const lf_ckpt *ck, const char *final, bool *done, lf_err *err)
{
    const int64_t step = lf_ckpt_step(ck);
    const bool early =
        json_is_true(json_object_get(lf_ckpt_state(ck), "early")) && t->c->patience > 0;
    lf_model_config mc;
    const char *key = "its description";
    const char *order = json_string_value(json_object_get(lf_ckpt_state(ck), "order"));
    int rc = lf_weights_config(&mc, ck, err);
    if (rc == 0 && !lf_model_config_equal(&mc, &t->mc, &key))
        rc = lf_fail(err, LF_EEXIST,
                     "%s is of another model ([model] %s differs); write to another out", final,
                     key);
    if (rc == 0)
        rc = lf_run_check_adapter(&t->run, ck, final, err);
    if (rc == 0 && !(order && strcmp(order, lf_loader_order_id(t->data)) == 0))
        rc = lf_fail(err, LF_EEXIST,
                     "%s was trained on another order of data (data, data_weights, seq_length, "
                     "packing, max_docs, "
                     "sample_order or seed changed); write to another out",
                     final);
    if (rc != 0)
        return rc;
    *done = step == t->total_steps || (early && step < t->total_steps) ||
            lf_early_ended(lf_ckpt_state(ck));
    return *done ? 0
                 : lf_fail(err, LF_EEXIST,
                           "%s ends a run of %lld steps, not %lld; write to another out "
                           "(resume_from continues it)",
                           final, (long long)step, (long long)t->total_steps);
}

/* Is the run over already? */
static int look_at_final(lf_trainer *t, bool *done, lf_err *err)
{
    lf_ckpt *ck = NULL;
    char *final = NULL;
    int rc = lf_run_final(&t->run, &ck, &final, err);
    if (rc == 0 && ck)
        rc = check_final(t, ck, final, done, err);
    lf_ckpt_close(ck);
    free(final);
    return rc;
}

static int start_from_adapter(lf_trainer *t, lf_err *err)
{
    int rc = lf_adapter_load(t->m.ps, t->c->adapter, t->c->adapter_from,
                             &(struct lf_adapter_base){t->run.base, t->c->init_from}, t->c->threads,
                             NULL, err);
    if (rc == 0)
        lf_train_log(t, 2, "going on with the adapter in %s", t->c->adapter_from);
    return rc;
}

/* Is a tensor among those that init_from gives? It reads all of them or fails. A head that may be
 * another one is drawn. */
static bool from_checkpoint(void *user, const struct lf_param_desc *d)
{
    (void)user;
    return (!d->adapter || d->whole) && !lf_weights_is_head(d->name);
}

static int fresh(lf_trainer *t, lf_err *err)
{
    int rc = lf_pstore_init_rest(t->m.ps, t->c->seed, t->c->init_from ? from_checkpoint : NULL,
                                 NULL, err);
    if (rc == 0 && t->c->init_from)
        rc = start_from_weights(t, err);
    if (rc == 0 && t->c->objective && !t->c->objective->dropout && lf_decoder_has_dropout(&t->mc))
        lf_train_log(t, 1, "the model's dropout is not applied (dropout = no)");
    if (rc == 0)
        rc = lf_pstore_adapter_start(t->m.ps, err);
    if (rc == 0 && t->c->adapter_from)
        rc = start_from_adapter(t, err);
    t->s = at_the_beginning(t);
    return rc != 0 ? rc : lf_loader_seek(t->data, 0, err);
}

/* Identity of a checkpoint as its manifest tells it. */
static int manifest_identity(char out[LF_HASH_HEX], const char *dir, lf_err *err)
{
    lf_artifact a = {0};
    const char *id = NULL;
    int rc = lf_artifact_load(&a, dir, "checkpoint", err);
    if (rc == 0)
        rc = lf_json_get_str(&id, a.meta, "identity", true, dir, err);
    if (rc == 0)
        snprintf(out, LF_HASH_HEX, "%s", id);
    lf_artifact_fini(&a);
    return rc;
}

/* What the run begins with: the checkpoint, or it and an adapter. */
static int know_init(lf_trainer *t, lf_err *err)
{
    char both[2 * LF_HASH_HEX];
    uint8_t digest[LF_HASH_BYTES];
    if (!t->c->objective || !t->c->init_from)
        return 0;
    int rc = manifest_identity(t->init_id, t->c->init_from, err);
    if (rc != 0 || !t->c->adapter_from)
        return rc;
    memcpy(both, t->init_id, LF_HASH_HEX);
    rc = manifest_identity(both + LF_HASH_HEX - 1, t->c->adapter_from, err);
    if (rc == 0)
        rc = lf_hash_buf(digest, both, strlen(both), err);
    if (rc == 0)
        lf_hash_hex(t->init_id, digest);
    return rc;
}

/* Rank 0, or alone. *state: of the checkpoint that the run goes on from, owned; NULL when it
 * begins. */
static int start_first(lf_trainer *t, bool *done, json_t **state, json_t **from, lf_err *err)
{
    char *dir = NULL;
    lf_ckpt *ck = NULL;
    int rc = know_init(t, err);
    if (rc == 0)
        rc = look_at_final(t, done, err);
    if (rc != 0 || *done)
        return rc;
    rc = lf_run_newest(&t->run, &ck, &dir, err);
    if (rc == 0 && ck) {
        rc = resume_from(t, ck, dir, err);
        *state = json_incref(lf_ckpt_state(ck));
        *from = json_pack("{s:s}", "dir", dir);
        if (rc == 0 && !*from)
            rc = lf_fail(err, LF_ENOMEM, "start: out of memory");
    } else if (rc == 0) {
        rc = fresh(t, err);
    }
    lf_ckpt_close(ck);
    free(dir);
    return rc;
}

static bool from_rank_0(void *user, const struct lf_param_desc *d)
{
    (void)user;
    (void)d;
    return true;
}

/* The other ranks follow. from: the directory of the checkpoint that rank 0 goes on from. */
static int start_other(lf_trainer *t, json_t *state, json_t *from, lf_err *err)
{
    t->s = at_the_beginning(t);
    if (!state && lf_train_sharded(t))
        return fresh(t, err);
    int rc = state ? restore_state(t, state, "rank 0's checkpoint", err)
                   : lf_pstore_init_rest(t->m.ps, t->c->seed, from_rank_0, NULL, err);
    if (rc == 0 && state && lf_train_sharded(t))
        rc = load_there(t, json_string_value(json_object_get(from, "dir")), err);
    return rc != 0 ? rc : lf_loader_seek(t->data, t->s.cursor, err);
}

int lf_train_start(lf_trainer *t, bool *done, lf_err *err)
{
    json_t *state = NULL, *from = NULL;
    lf_run_phase(&t->run, "reading the checkpoint");
    *done = false;
    int rc = lf_train_first_rank(t) ? start_first(t, done, &state, &from, err) : 0;
    rc = lf_train_agree(t, rc, err);
    if (rc == 0)
        rc = lf_run_any(&t->run, done, err);
    if (rc == 0)
        rc = lf_run_share_json(&t->run, &state, err);
    if (rc == 0)
        rc = lf_run_share_json(&t->run, &from, err);
    if (rc == 0 && !*done && !lf_train_first_rank(t))
        rc = start_other(t, state, from, err);
    rc = lf_train_agree(t, rc, err);
    if (rc == 0 && !*done && !lf_train_sharded(t))
        rc = lf_train_share_weights(t, state != NULL, err);
    json_decref(from);
    json_decref(state);
    return rc;
}
