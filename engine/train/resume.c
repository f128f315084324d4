/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a run begins: at random weights, at given weights, or where an earlier incarnation left off. */
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
              json_object_set_new(o, "ranks", json_integer(t->ranks)))) {
        json_decref(o);
        lf_fail(err, LF_ENOMEM, "fingerprint: out of memory");
        return NULL;
    }
    return o;
}

/* One thing that may differ: "isa was x, is y" is added to out when it does. */
void lf_train_difference(json_t *was, json_t *is, const char *prefix, const char *key, lf_buf *out)
{
    if (was && json_equal(was, is))
        return;
    char *a = was ? json_dumps(was, JSON_ENCODE_ANY) : NULL, *b = json_dumps(is, JSON_ENCODE_ANY);
    lf_buf_addf(out, "%s%s%s was %s, is %s", out->len ? "; " : "", prefix, key, a ? a : "not recorded", b ? b : "?");
    free(a);
    free(b);
}

/* The same over the members of an object. */
void lf_train_differences(json_t *was, json_t *is, const char *prefix, lf_buf *out)
{
    const char *key;
    json_t *v;
    json_object_foreach(is, key, v) lf_train_difference(json_object_get(was, key), v, prefix, key, out);
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
                                   .best_score = NAN,
                                   .scaler = lf_scaler_start(&t->c->scaler)};
}

static int restore_state(lf_trainer *t, json_t *state, const char *dir, lf_err *err)
{
    struct lf_train_state s = {0};
    int64_t seed = 0;
    const char *order = NULL;
    int rc = get_i64(&s.step, state, "step", dir, err);
    rc = rc ? rc : get_i64(&s.samples, state, "samples", dir, err);
    rc = rc ? rc : get_i64(&s.tokens, state, "tokens", dir, err);
    rc = rc ? rc : get_i64(&s.cursor, state, "cursor", dir, err);
    rc = rc ? rc : get_i64(&seed, state, "seed", dir, err);
    rc = rc ? rc : lf_json_get_f64(&s.loss_sum, state, "loss_sum", true, dir, err);
    rc = rc ? rc : lf_json_get_str(&order, state, "order", true, dir, err);
    if (rc)
        return rc;
    if (strcmp(order, lf_loader_order_id(t->data)) != 0)
        return lf_fail(
            err, LF_EINVAL,
            "%s was trained on another order of data (data, data_weights, seq_length, packing, max_docs, sample_order or seed "
            "changed), so its cursor means nothing here; init_from takes its weights alone",
            dir);
    if ((uint64_t)seed != t->c->seed)
        return lf_fail(err, LF_EINVAL, "%s has seed %lld, this run %llu", dir, (long long)seed,
                       (unsigned long long)t->c->seed);
    if (s.step > t->total_steps)
        return lf_fail(err, LF_EINVAL, "%s is at step %lld, beyond the %lld of this run", dir, (long long)s.step,
                       (long long)t->total_steps);
    s.first_loss = get_real(state, "first_loss");
    s.valid_loss = get_real(state, "valid_loss");
    s.best_valid = get_real(state, "best_valid");
    s.best_score = get_real(state, "best_score");
    s.best_step = json_integer_value(json_object_get(state, "best_step"));
    s.stale = json_integer_value(json_object_get(state, "stale"));
    s.scaler = lf_scaler_of(json_object_get(state, "scaler"), &t->c->scaler);
    s.active_s = get_real(state, "active_s");
    if (!isfinite(s.active_s))
        s.active_s = 0;
    t->s = s;
    return 0;
}

/* Remember in the run's history that it went on here, and tell whether the bits can be the same. */
static int record_resume(lf_trainer *t, json_t *state, const char *dir, lf_err *err)
{
    lf_buf why;
    lf_buf_init(&why);
    json_t *is = lf_train_state_json(t, err);
    if (!is)
        return LF_ENOMEM;
    lf_train_differences(json_object_get(state, "fingerprint"), t->fingerprint, "", &why);
    lf_train_differences(json_object_get(state, "optimizer"), json_object_get(is, "optimizer"), "", &why);
    lf_train_differences(json_object_get(state, "schedule"), json_object_get(is, "schedule"), "schedule ", &why);
    lf_train_difference(json_object_get(state, "batch"), json_object_get(is, "batch"), "", "batch", &why);
    const double noise = get_real(state, "neftune_alpha");
    if ((isfinite(noise) ? noise : 0) < t->c->neftune_alpha || noise > t->c->neftune_alpha)
        lf_buf_addf(&why, "%sneftune_alpha was %g, is %g", why.len ? "; " : "", isfinite(noise) ? noise : 0.0,
                    t->c->neftune_alpha);
    if (t->c->objective)
        lf_train_differences(json_object_get(state, "objective"), t->c->objective->identity, "", &why);
    json_decref(is);
    int rc = lf_buf_check(&why, err);
    json_t *old = json_object_get(state, "history");
    if (!rc && json_is_array(old)) {
        json_decref(t->history);
        t->history = json_deep_copy(old);
    }
    json_t *h = json_pack("{s:I,s:b,s:s}", "step", (json_int_t)t->s.step, "bitwise", why.len == 0, "why", why.data);
    if (!rc && (!t->history || !h || json_array_append(t->history, h)))
        rc = lf_fail(err, LF_ENOMEM, "history of the run: out of memory");
    json_decref(h);
    if (!rc && why.len)
        lf_train_log(t, 1, "continuing from %s at step %lld, but perhaps not bitwise: %s", dir, (long long)t->s.step,
                     why.data);
    else if (!rc)
        lf_train_log(t, 2, "continuing bitwise from %s at step %lld of %lld", dir, (long long)t->s.step,
                     (long long)t->total_steps);
    lf_buf_fini(&why);
    return rc;
}

/* The weights below an adapter. *ck: their checkpoint, open; NULL: not wanted. */
static int load_base(lf_trainer *t, lf_ckpt **out, lf_err *err)
{
    lf_ckpt *ck = NULL;
    int rc = lf_ckpt_open(&ck, t->c->init_from, t->c->threads, err);
    if (rc)
        return lf_err_prefix(err, "init_from");
    lf_hash_hex(t->base, lf_ckpt_identity(ck));
    rc = lf_weights_load_below(t->m.ps, t->mc.output, ck, LF_WEIGHTS_PREFIX, err);
    if (rc)
        lf_ckpt_close(ck);
    else
        *out = ck;
    return rc;
}

/* Weights and moments of a checkpoint of ours: all of them, or those of an adapter upon its base. */
static int load_own(lf_trainer *t, lf_ckpt *ck, const char *dir, lf_err *err)
{
    lf_ckpt *base = NULL;
    if (!t->c->adapter && json_object_get(lf_ckpt_state(ck), "adapter"))
        return lf_fail(err, LF_EINVAL, "%s is of an adapter; give lora_rank and the rest as they were", dir);
    if (!t->c->adapter)
        return lf_weights_load(t->m.ps, ck, LF_WEIGHTS_PREFIX, true, err);
    json_t *is = lf_adapter_to_json(t->c->adapter, err), *was = json_object_get(lf_ckpt_state(ck), "adapter");
    int rc = is ? 0 : LF_ENOMEM;
    if (!rc && !was)
        rc = lf_fail(err, LF_EINVAL, "%s is a checkpoint of whole weights, this run is of an adapter (lora_rank)", dir);
    if (!rc && !json_equal(was, is))
        rc = lf_fail(err, LF_EINVAL, "%s is of an adapter with other settings (lora_rank, lora_alpha, lora_targets ...)", dir);
    if (!rc)
        rc = load_base(t, &base, err);
    if (!rc)
        rc = lf_adapter_check_base(ck, base, err);
    lf_ckpt_close(base);
    json_decref(is);
    return rc ? rc : lf_weights_load_adapter(t->m.ps, ck, LF_WEIGHTS_PREFIX, true, err);
}

/* Rank 0: everything of a checkpoint that is not the same on every rank anyway. */
static int resume_from(lf_trainer *t, lf_ckpt *ck, const char *dir, lf_err *err)
{
    lf_model_config mc;
    const char *key = NULL;
    int rc = lf_weights_config(&mc, ck, err);
    if (!rc && !lf_model_config_equal(&mc, &t->mc, &key))
        rc = lf_fail(err, LF_EINVAL, "%s is of another model: [model] %s differs", dir, key);
    if (!rc)
        rc = restore_state(t, lf_ckpt_state(ck), dir, err);
    if (!rc)
        rc = load_own(t, ck, dir, err);
    if (!rc)
        rc = lf_loader_seek(t->data, t->s.cursor, err);
    return rc ? rc : record_resume(t, lf_ckpt_state(ck), dir, err);
}

static int start_from_weights(lf_trainer *t, lf_err *err)
{
    lf_ckpt *ck = NULL;
    lf_model_config mc;
    const char *key = NULL;
    int rc = load_base(t, &ck, err);
    if (rc)
        return rc;
    rc = lf_weights_config(&mc, ck, err);
    if (!rc && mc.output != t->mc.output)
        lf_train_log(t, 2, "the head of %s is left out: this model gives scores", t->c->init_from);
    mc.output = t->mc.output;
    if (!rc && !lf_model_config_equal(&mc, &t->mc, &key))
        lf_train_log(t, 1, "[model] %s differs from the description in %s", key, t->c->init_from);
    if (!rc)
        rc = lf_same_tokenizer(t->c->init_from, t->tokenizer, "the data", err);
    if (!rc)
        rc = lf_same_tokenizer(t->c->adapter_from, t->tokenizer, "the data", err);
    if (!rc)
        lf_train_log(t, 2, "weights from %s (step %lld)", t->c->init_from, (long long)lf_ckpt_step(ck));
    lf_ckpt_close(ck);
    return rc;
}

/* A damaged checkpoint of our own must not stand where a good one will be written. */
static int set_aside(lf_trainer *t, const char *dir, lf_err *err)
{
    size_t n = strlen(t->c->out);
    if (strncmp(dir, t->c->out, n) != 0 || dir[n] != '/')
        return 0;
    lf_buf to;
    lf_buf_init(&to);
    int rc = 0;
    for (int i = 1; i == 1 || (rc == 0 && lf_io_exists(to.data)); i++) {
        lf_buf_clear(&to);
        lf_buf_addf(&to, i == 1 ? "%s.broken" : "%s.broken-%d", dir, i);
        rc = lf_buf_check(&to, err);
    }
    if (!rc && rename(dir, to.data) != 0)
        rc = lf_fail_errno(err, "setting aside the damaged %s", dir);
    lf_buf_fini(&to);
    return rc;
}

struct search {
    lf_trainer *t;
    lf_err err; /* the first failure of setting one aside */
};

static void pass_over(void *user, const char *dir, const char *text)
{
    struct search *s = user;
    lf_train_log(s->t, 1, "passing over %s: %s", dir, text);
    if (!s->err.rc)
        set_aside(s->t, dir, &s->err);
}

/* Open the newest checkpoint whose bytes are right. *ck NULL: none. */
static int open_newest(lf_trainer *t, const char *const *dirs, size_t n, lf_ckpt **ck, char **dir, lf_err *err)
{
    struct search s = {.t = t, .err = LF_ERR_INIT};
    int64_t step, bound = -1;
    for (;;) {
        int rc = lf_ckpt_find_newest(dir, &step, dirs, n, bound, pass_over, &s, err);
        if (!rc && s.err.rc)
            rc = lf_fail(err, s.err.rc, "%s", s.err.text);
        if (rc < 0 || !*dir)
            return rc < 0 ? rc : 0;
        lf_err why = LF_ERR_INIT;
        rc = lf_ckpt_open(ck, *dir, t->c->threads, &why);
        if (!rc)
            return 0;
        if (rc != LF_EFORMAT || step == 0)
            return lf_fail(err, rc, "%s", why.text);
        pass_over(&s, *dir, why.text);
        free(*dir);
        *dir = NULL;
        if (s.err.rc)
            return lf_fail(err, s.err.rc, "%s", s.err.text);
        bound = step - 1;
    }
}

/* The final checkpoint of out, when there is one: the run is over, or out belongs to a shorter one. */
static int check_final(lf_trainer *t, const char *final, bool *done, lf_err *err)
{
    enum lf_artifact_state st;
    int rc = lf_artifact_state(&st, final, err);
    if (rc || st == LF_ARTIFACT_ABSENT)
        return rc;
    if (st != LF_ARTIFACT_PRESENT)
        return lf_err_prefix(err, "the final checkpoint %s is damaged", final);
    lf_ckpt *ck = NULL;
    rc = lf_ckpt_open(&ck, final, t->c->threads, err);
    if (rc)
        return rc;
    int64_t step = lf_ckpt_step(ck);
    const bool early = json_is_true(json_object_get(lf_ckpt_state(ck), "early")) && t->c->patience > 0;
    lf_model_config mc;
    const char *key = "its description";
    const char *order = json_string_value(json_object_get(lf_ckpt_state(ck), "order"));
    bool data = order && strcmp(order, lf_loader_order_id(t->data)) == 0;
    rc = lf_weights_config(&mc, ck, err);
    if (!rc && !lf_model_config_equal(&mc, &t->mc, &key))
        rc = lf_fail(err, LF_EEXIST, "%s is of another model ([model] %s differs); write to another out", final, key);
    if (!rc && !data)
        rc = lf_fail(err, LF_EEXIST,
                     "%s was trained on another order of data (data, data_weights, seq_length, packing, max_docs, "
                     "sample_order or seed changed); write to another out",
                     final);
    lf_ckpt_close(ck);
    if (rc)
        return rc;
    if (step == t->total_steps || (early && step < t->total_steps)) {
        *done = true;
        return 0;
    }
    return lf_fail(err, LF_EEXIST,
                   "%s ends a run of %lld steps, not %lld; write to another out (resume_from continues it)", final,
                   (long long)step, (long long)t->total_steps);
}

static int start_from_adapter(lf_trainer *t, lf_err *err)
{
    int rc = lf_adapter_load(t->m.ps, t->c->adapter, t->c->adapter_from, t->base, t->c->init_from, t->c->threads, NULL, err);
    if (!rc)
        lf_train_log(t, 2, "going on with the adapter in %s", t->c->adapter_from);
    return rc;
}

/* Is a tensor among those that init_from gives? It reads all of them or fails. A head that may be another one is drawn. */
static bool from_checkpoint(void *user, const struct lf_param_desc *d)
{
    (void)user;
    return (!d->adapter || d->whole) && !lf_weights_is_head(d->name);
}

static int fresh(lf_trainer *t, lf_err *err)
{
    int rc = lf_pstore_init_rest(t->m.ps, t->c->seed, t->c->init_from ? from_checkpoint : NULL, NULL, err);
    if (!rc && t->c->init_from)
        rc = start_from_weights(t, err);
    if (!rc && t->c->objective && !t->c->objective->dropout && lf_decoder_has_dropout(&t->mc))
        lf_train_log(t, 1, "the model's dropout is not applied (dropout = no)");
    if (!rc)
        rc = lf_pstore_adapter_start(t->m.ps, err);
    if (!rc && t->c->adapter_from)
        rc = start_from_adapter(t, err);
    t->s = at_the_beginning(t);
    return rc ? rc : lf_loader_seek(t->data, 0, err);
}

/* Identity of a checkpoint as its manifest tells it. */
static int manifest_identity(char out[LF_HASH_HEX], const char *dir, lf_err *err)
{
    lf_artifact a = {0};
    const char *id = NULL;
    int rc = lf_artifact_load(&a, dir, "checkpoint", err);
    if (!rc)
        rc = lf_json_get_str(&id, a.meta, "identity", true, dir, err);
    if (!rc)
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
    if (rc || !t->c->adapter_from)
        return rc;
    memcpy(both, t->init_id, LF_HASH_HEX);
    rc = manifest_identity(both + LF_HASH_HEX - 1, t->c->adapter_from, err);
    if (!rc)
        rc = lf_hash_buf(digest, both, strlen(both), err);
    if (!rc)
        lf_hash_hex(t->init_id, digest);
    return rc;
}

/* Rank 0, or alone. *state: of the checkpoint that the run goes on from, owned; NULL when it begins. */
static int start_first(lf_trainer *t, bool *done, json_t **state, lf_err *err)
{
    const struct lf_train_config *c = t->c;
    size_t n = c->n_resume_from + 1;
    const char **dirs = lf_calloc(n, sizeof(*dirs), err);
    char *dir = NULL, *final = lf_path_join(c->out, "checkpoint", err);
    lf_ckpt *ck = NULL;
    int rc = dirs && final ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < c->n_resume_from && !rc; i++) {
        dirs[i] = c->resume_from[i];
        if (!lf_io_exists(dirs[i]))
            rc = lf_fail(err, LF_ENOENT, "resume_from = %s does not exist", dirs[i]);
    }
    if (!rc)
        rc = know_init(t, err);
    if (!rc)
        rc = check_final(t, final, done, err);
    if (rc || *done)
        goto out;
    dirs[n - 1] = c->out;
    rc = open_newest(t, dirs, n, &ck, &dir, err);
    if (!rc && ck) {
        rc = resume_from(t, ck, dir, err);
        *state = json_incref(lf_ckpt_state(ck));
    } else if (!rc) {
        if (c->n_resume_from)
            lf_train_log(t, 1, "no earlier incarnation left a checkpoint: beginning at step 0");
        rc = fresh(t, err);
    }
out:
    lf_ckpt_close(ck);
    free(dir);
    free(final);
    free(dirs);
    return rc;
}

static bool from_rank_0(void *user, const struct lf_param_desc *d)
{
    (void)user;
    (void)d;
    return true;
}

/* The other ranks follow. */
static int start_other(lf_trainer *t, json_t *state, lf_err *err)
{
    t->s = at_the_beginning(t);
    int rc = state ? restore_state(t, state, "rank 0's checkpoint", err)
                   : lf_pstore_init_rest(t->m.ps, t->c->seed, from_rank_0, NULL, err);
    return rc ? rc : lf_loader_seek(t->data, t->s.cursor, err);
}

int lf_train_start(lf_trainer *t, bool *done, lf_err *err)
{
    json_t *state = NULL;
    lf_train_phase(t, "reading the checkpoint");
    *done = false;
    int rc = lf_train_first_rank(t) ? start_first(t, done, &state, err) : 0;
    rc = lf_train_agree(t, rc, err);
    if (!rc)
        rc = lf_train_any(t, done, err);
    if (!rc)
        rc = lf_train_share_json(t, &state, err);
    if (!rc && !*done && !lf_train_first_rank(t))
        rc = start_other(t, state, err);
    rc = lf_train_agree(t, rc, err);
    if (!rc && !*done)
        rc = lf_train_share_weights(t, state != NULL, err);
    json_decref(state);
    return rc;
}
