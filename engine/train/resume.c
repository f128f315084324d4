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
#include "engine/model/electra.h"
#include "engine/model/label_names.h"
#include "engine/model/same_tokenizer.h"
#include "engine/model/vision.h"
#include "engine/model/weights.h"
#include "engine/train/laid.h"
#include "engine/train/loop_priv.h"

json_t *lf_train_fingerprint(const lf_trainer *t, lf_err *err)
{
    json_t *o = lf_exec_fingerprint(t->m.ex, err);
    if (o && (json_object_set_new(o, "micro_batch", json_integer(t->c->micro_batch)) ||
              json_object_set_new(o, "ranks", json_integer(t->who.data_ranks))))
        lf_fail(err, LF_ENOMEM, "fingerprint: out of memory");
    else if (!o || lf_laid_sign(o, &t->c->axes, &t->who, &t->m.cut, err) == 0)
        return o;
    json_decref(o);
    return NULL;
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

/* Reads the state of a checkpoint in dir, and checks that it is of this run. */
static int read_state(const lf_trainer *t, json_t *state, const char *dir,
                      struct lf_train_state *out, lf_err *err)
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
            "max_docs, max_patches, sample_order or seed changed), so its cursor means nothing "
            "here; init_from takes its weights alone",
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
    *out = s;
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

/* With [model] beside init_from nobody has read what init_from says of itself. */
static int check_kind(const lf_trainer *t, const lf_ckpt *ck, lf_err *err)
{
    lf_model_config of;
    const int rc = t->c->model_given ? lf_weights_config(&of, ck, err) : 0;
    return rc == 0 && t->c->model_given ? lf_train_check_base(t, &of, err) : rc;
}

/* The weights that init_from gives. *out: their checkpoint, open. */
static int load_base(lf_trainer *t, lf_ckpt **out, lf_err *err)
{
    lf_ckpt *ck = NULL;
    int rc = lf_run_open_to_read(&t->run, &ck, t->c->init_from, err);
    if (rc != 0)
        return lf_err_prefix(err, "init_from");
    lf_hash_hex(t->run.base, lf_ckpt_identity(ck));
    rc = check_kind(t, ck, err);
    if (rc == 0)
        rc = lf_weights_load_below(t->m.ps, t->mc.output, ck, LF_WEIGHTS_PREFIX, err);
    if (rc == 0)
        rc = lf_run_carry(&t->run, ck, err);
    if (rc != 0)
        lf_ckpt_close(ck);
    else
        *out = ck;
    return rc;
}

/* config.json of a model that sees as it was published. An export needs what [model] does not have,
 * such as the ids of tokens around a picture, so checkpoints hand it on. */
static void keep_config(lf_trainer *t, const json_t *state)
{
    json_t *v = lf_label_config(state);
    if (!v || (!t->mc.vision.family && !lf_label_count(&t->mc)))
        return;
    json_decref(t->hf_config);
    t->hf_config = json_incref(v);
}

/* Families whose tensors have the same names compute other things with them. */
static int check_family(const lf_trainer *t, const lf_ckpt *ck, lf_err *err)
{
    lf_model_config is;
    const int rc = lf_weights_config(&is, ck, err), want = t->mc.vision.family;
    if (rc != 0 || !is.vision.family || is.vision.family == want)
        return rc;
    return lf_fail(err, LF_EINVAL,
                   "%s has an encoder of vision.family = %s, but [model] says vision.family = %s: "
                   "describe the encoder that it has, or give one of that family",
                   t->c->vision_from, lf_vision_families[is.vision.family],
                   lf_vision_families[want]);
}

/* The encoder that vision_from gives. */
static int load_vision(lf_trainer *t, lf_err *err)
{
    lf_ckpt *ck = NULL;
    if (!t->c->vision_from)
        return 0;
    int rc = lf_run_open_to_read(&t->run, &ck, t->c->vision_from, err);
    if (rc == 0)
        rc = check_family(t, ck, err);
    if (rc == 0)
        rc = lf_weights_load_vision(t->m.ps, ck, LF_WEIGHTS_PREFIX, err);
    if (rc == 0)
        lf_train_log(t, 2, "the encoder of pictures comes from %s", t->c->vision_from);
    lf_ckpt_close(ck);
    return rc != 0 ? lf_err_prefix(err, "vision_from") : 0;
}

/* The generator that generator_from gives. */
static int load_generator(lf_trainer *t, lf_err *err)
{
    lf_ckpt *ck = NULL;
    lf_model_config is, want;
    const char *key = NULL;
    if (!t->c->generator_from)
        return 0;
    int rc = lf_run_open_to_read(&t->run, &ck, t->c->generator_from, err);
    if (rc == 0)
        rc = lf_weights_config(&is, ck, err);
    lf_model_generator(&want, &t->mc);
    if (rc == 0 && !lf_model_config_equal(&is, &want, &key))
        lf_train_log(t, 1, "the generator's %s differs from the description in %s", key,
                     t->c->generator_from);
    if (rc == 0)
        rc = lf_weights_load_generator(t->m.ps, ck, LF_WEIGHTS_PREFIX, err);
    if (rc == 0)
        lf_train_log(t, 2, "the generator comes from %s", t->c->generator_from);
    lf_ckpt_close(ck);
    return rc != 0 ? lf_err_prefix(err, "generator_from") : 0;
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
    const bool others =
        t->mc.output == LF_OUTPUT_LABELS &&
        (mc.labels != t->mc.labels || mc.label_bias != t->mc.label_bias ||
         lf_model_label_inner(&mc) != lf_model_label_inner(&t->mc)); /* as weights.c has it */
    if (rc == 0 && (mc.output != t->mc.output || others))
        lf_train_log(t, 2, "the head of %s is left out: this model gives %s", t->c->init_from,
                     t->mc.output == LF_OUTPUT_LABELS ? "labels" : "scores");
    mc.output = t->mc.output;
    mc.labels = t->mc.labels;
    mc.labels_of = t->mc.labels_of;
    mc.label_row = t->mc.label_row;
    mc.label_head = t->mc.label_head;
    mc.label_bias = t->mc.label_bias;
    if (t->mc.output != LF_OUTPUT_TOKENS)
        mc.nsp_head = t->mc.nsp_head;
    if (!mc.generator_layers) {
        mc.generator_layers = t->mc.generator_layers;
        mc.generator_hidden = t->mc.generator_hidden;
        mc.generator_heads = t->mc.generator_heads;
        mc.generator_ffn = t->mc.generator_ffn;
    }
    if (rc == 0 && !mc.vision.family) { /* this model is that one, and sees besides */
        mc.vision = t->mc.vision;
        mc.projector = t->mc.projector;
        mc.image_token = t->mc.image_token;
        mc.rope_sections = t->mc.rope_sections;
        mc.rope_sections_interleaved = t->mc.rope_sections_interleaved;
    }
    if (rc == 0 && !lf_model_config_equal(&mc, &t->mc, &key))
        lf_train_log(t, 1, "[model] %s differs from the description in %s", key, t->c->init_from);
    if (rc == 0)
        keep_config(t, lf_ckpt_state(ck));
    if (rc == 0 && lf_train_words(t->c))
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
                     "packing, max_docs, max_patches, sample_order or seed changed); write to "
                     "another out",
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
 * another one is drawn, and so is what a model without sight or without a generator lacks. */
static bool from_checkpoint(void *user, const struct lf_param_desc *d)
{
    (void)user;
    return (!d->adapter || d->whole) && !lf_weights_is_head(d->name) &&
           !lf_weights_is_sight(d->name) && !lf_weights_is_generator(d->name);
}

/* Collective where ranks keep parts. */
static int fresh(lf_trainer *t, lf_err *err)
{
    int rc = lf_pstore_init_rest(t->m.ps, t->c->seed, t->c->init_from ? from_checkpoint : NULL,
                                 NULL, err);
    if (rc == 0 && t->c->init_from)
        rc = start_from_weights(t, err);
    if (rc == 0)
        rc = load_vision(t, err);
    if (rc == 0)
        rc = load_generator(t, err);
    if (rc == 0 && t->c->objective && !t->c->objective->dropout && lf_decoder_has_dropout(&t->mc))
        lf_train_log(t, 1, "the model's dropout is not applied (dropout = no)");
    if (lf_train_sharded(t)) /* none goes on to gather weights alone */
        rc = lf_train_agree(t, rc, err);
    if (rc == 0)
        rc = lf_exec_adapter_start(t->m.ex, err);
    lf_train_count_anew(t);
    if (rc == 0 && t->c->adapter_from)
        rc = start_from_adapter(t, err);
    return rc;
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

/* ---- from a checkpoint of this run ---- */

/* What the run goes on from, on every rank. dir NULL: nothing, it begins. */
struct source {
    struct lf_run_search search; /* rank 0 */
    lf_ckpt *ck;                 /* open on rank 0, and where others read it */
    json_t *told;                /* {"dir", "from", "state"}, owned */
    /* Borrowed from told. What is read is in `from`: beside dir, where that is an adapter in its
     * base. */
    const char *dir, *from;
    json_t *state;
    struct lf_train_state s;
};

static void source_close(struct source *f)
{
    lf_ckpt_close(f->ck);
    json_decref(f->told);
    f->ck = NULL;
    f->told = f->state = NULL;
    f->dir = f->from = NULL;
}

/* Rank 0 chooses. */
static int choose(lf_trainer *t, struct source *f, lf_err *err)
{
    lf_model_config mc;
    const char *key = NULL;
    int rc = lf_run_newest(&t->run, &f->search, &f->ck, err);
    if (rc != 0 || !f->ck)
        return rc;
    rc = lf_weights_config(&mc, f->ck, err);
    if (rc == 0 && !lf_model_config_equal(&mc, &t->mc, &key))
        rc = lf_fail(err, LF_EINVAL, "%s is of another model: [model] %s differs", f->search.dir,
                     key);
    f->told = json_pack("{s:s,s:s,s:O}", "dir", f->search.dir, "from", lf_ckpt_dir(f->ck), "state",
                        lf_ckpt_state(f->ck));
    return rc == 0 && !f->told ? lf_fail(err, LF_ENOMEM, "start: out of memory") : rc;
}

/* All hear of it. Collective. */
static int find_source(lf_trainer *t, struct source *f, lf_err *err)
{
    int rc = lf_train_agree(t, lf_train_first_rank(t) ? choose(t, f, err) : 0, err);
    if (rc == 0)
        rc = lf_run_share_json(&t->run, &f->told, err);
    if (rc != 0 || !f->told)
        return rc;
    f->dir = json_string_value(json_object_get(f->told, "dir"));
    f->from = json_string_value(json_object_get(f->told, "from"));
    f->state = json_object_get(f->told, "state");
    keep_config(t, f->state);
    return lf_train_agree(t, read_state(t, f->state, f->dir, &f->s, err), err);
}

/* This rank's weights and moments: of the checkpoint, or those of an adapter upon its base. why
 * tells damage of the checkpoint from other failures, which are returned. */
static int load_own(lf_trainer *t, struct source *f, lf_err *why, lf_err *err)
{
    lf_ckpt *base = NULL;
    int rc = t->c->adapter ? load_base(t, &base, err) : 0;
    lf_ckpt_close(base);
    if (rc != 0)
        return rc;
    if (!f->ck)
        rc = lf_run_open_to_read(&t->run, &f->ck, f->from, why);
    if (rc == 0 && (rc = lf_run_check_adapter(&t->run, f->ck, f->dir, err)) != 0)
        return rc;
    if (rc == 0)
        rc = t->c->adapter ? lf_weights_load_adapter(t->m.ps, f->ck, LF_WEIGHTS_PREFIX, true, why)
                           : lf_weights_load(t->m.ps, f->ck, LF_WEIGHTS_PREFIX, true, why);
    if (rc == 0)
        rc = lf_run_carry(&t->run, f->ck, why);
    int narrowed = 0;
    if (rc == 0 && (rc = lf_train_origin_resume(&t->m, f->ck, &narrowed, err)) != 0)
        return rc;
    if (narrowed)
        lf_train_log(t, 1,
                     "frozen tensors of %s (%d) are f32 and not what the checkpoint that the run "
                     "began with has now; from here on they are bf16. If they were not trained "
                     "before, give init_from and vision_from as they were",
                     f->dir, narrowed);
    return rc == 0 || (rc == LF_EFORMAT && lf_train_sharded(t)) ? 0
                                                                : lf_fail(err, rc, "%s", why->text);
}

/* What ranks that keep no parts get from rank 0 afterwards. */
static bool from_rank_0(void *user, const struct lf_param_desc *d)
{
    (void)user;
    (void)d;
    return true;
}

static int load(lf_trainer *t, struct source *f, lf_err *why, lf_err *err)
{
    if (!lf_train_sharded(t) && !lf_train_first_rank(t))
        return f->dir ? 0 : lf_pstore_init_rest(t->m.ps, t->c->seed, from_rank_0, NULL, err);
    return f->dir ? load_own(t, f, why, err) : fresh(t, err);
}

/* Loads from the newest checkpoint that every rank can read, or begins. Collective. */
static int load_newest(lf_trainer *t, struct source *f, lf_err *err)
{
    for (;;) {
        lf_err why = LF_ERR_INIT;
        int rc = find_source(t, f, err);
        if (rc != 0)
            return rc;
        rc = lf_train_agree(t, load(t, f, &why, err), err);
        bool damaged = why.rc != 0;
        if (rc == 0 && lf_train_sharded(t))
            rc = lf_run_any(&t->run, &damaged, err);
        if (rc != 0 || !damaged)
            return rc;
        source_close(f);
        rc = lf_run_pass_over_all(&t->run, &f->search, &why, err);
        if (rc != 0)
            return rc;
    }
}

/* Averages that end, or go on otherwise, are told. */
static void tell_average(const lf_trainer *t, const json_t *state, const char *dir)
{
    const double was =
                     json_number_value(json_object_get(json_object_get(state, "average"), "decay")),
                 is = t->c->average.decay;
    if (was > 0 && is <= 0)
        lf_train_log(t, 1,
                     "note: %s has averages of the weights (ema = %g), which end here: this "
                     "run has no ema",
                     dir, was);
    else if (was > 0 && fabs(was - is) > 0)
        lf_train_log(t, 1, "note: ema was %g in %s, and is %g from here on", was, dir, is);
}

/* The state of the source, after its weights. */
static int take_state(lf_trainer *t, const struct source *f, lf_err *err)
{
    t->s = f->dir ? f->s : at_the_beginning(t);
    if (f->dir) {
        lf_early_take(&t->early, f->state);
        lf_train_early_apply(t);
    }
    int rc = lf_loader_seek(t->data, t->s.cursor, err);
    if (rc != 0 || !f->dir || !lf_train_first_rank(t))
        return rc;
    tell_average(t, f->state, f->dir);
    return record_resume(t, f->state, f->dir, err);
}

/* Collective. */
static int start(lf_trainer *t, lf_err *err)
{
    struct source f = {.search = LF_RUN_SEARCH};
    int rc = load_newest(t, &f, err);
    if (rc == 0)
        rc = lf_train_agree(t, take_state(t, &f, err), err);
    if (rc == 0 && !lf_train_sharded(t))
        rc = lf_train_share_weights(t, f.dir != NULL, err);
    if (rc == 0 && !f.dir)
        rc = lf_train_agree(t, lf_pstore_average_begin(t->m.ps, err), err);
    source_close(&f);
    free(f.search.dir);
    return rc;
}

/* Rank 0: is there anything to do? */
static int look_before(lf_trainer *t, bool *done, lf_err *err)
{
    const int rc = know_init(t, err);
    return rc != 0 ? rc : look_at_final(t, done, err);
}

int lf_train_start(lf_trainer *t, bool *done, lf_err *err)
{
    lf_run_phase(&t->run, "reading the checkpoint");
    *done = false;
    int rc = lf_train_agree(t, lf_train_first_rank(t) ? look_before(t, done, err) : 0, err);
    if (rc == 0)
        rc = lf_run_any(&t->run, done, err);
    return rc != 0 || *done ? rc : start(t, err);
}
