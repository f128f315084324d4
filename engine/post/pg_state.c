/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: what is in them, and a run put where one was made. When they are written, and from
 * which one a run goes on, is engine/train/run.h's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/sys.h"
#include "engine/model/weights.h"
#include "engine/post/pg_priv.h"

#define CRITIC_PREFIX "critic/"

/* ---- what is in them ---- */

/* Of a model, behind n tensors of t: what it has, or with zero this rank's part of it. */
static int add_tensors(const lf_pg *p, lf_ckpt_tensor *t, size_t *n, const lf_pg_model *m,
                       bool part, lf_err *err)
{
    const lf_pstore *ps = lf_pg_model_store(m);
    const char *prefix = m == p->actor ? LF_WEIGHTS_PREFIX : CRITIC_PREFIX;
    lf_ckpt_tensor *own = NULL;
    size_t k = 0;
    int rc = m == p->actor && p->c->adapter
                 ? lf_weights_adapter_tensors(&own, &k, ps, prefix, true, p->run.arena, err)
                 : lf_weights_tensors(&own, &k, ps, &(struct lf_weights_what){prefix, true, NULL},
                                      p->run.arena, err);
    if (rc == 0 && part) {
        const int rank = lf_axes_sharer(lf_pg_who(p, m)), ranks = lf_axes_sharers(lf_pg_who(p, m));
        const struct lf_weights_share share = {.ps = ps,
                                               .prefix = prefix,
                                               .rank = rank,
                                               .ranks = ranks,
                                               .copy = rank >= lf_zero_inner(&p->c->zero, ranks)};
        lf_weights_share(own, &k, &share);
    }
    if (rc == 0 && k)
        memcpy(t + *n, own, k * sizeof *t);
    *n += k;
    return rc;
}

/* Of all models. */
static int all_tensors(const lf_pg *p, const lf_ckpt_tensor **t, size_t *n, bool part, lf_err *err)
{
    enum { KINDS = 3 }; /* weights and two moments */
    int most = lf_pstore_count(lf_pg_model_store(p->actor));
    if (p->critic)
        most += lf_pstore_count(lf_pg_model_store(p->critic));
    lf_ckpt_tensor *all = lf_arena_alloc(p->run.arena, (size_t)most * KINDS, sizeof *all, err);
    int rc = all ? add_tensors(p, all, n, p->actor, part, err) : LF_ENOMEM;
    if (rc == 0 && p->critic)
        rc = add_tensors(p, all, n, p->critic, part, err);
    *t = all;
    return rc;
}

int lf_pg_writer_open(lf_pg *p, int rc, lf_err *err)
{
    struct lf_run_tensors tensors = {.snapshot = !lf_pstore_on_host(lf_pg_model_store(p->actor))};
    if (rc == 0)
        rc = all_tensors(p, &tensors.all, &tensors.n_all, false, err);
    if (rc == 0 && lf_run_in_parts(&p->run))
        rc = all_tensors(p, &tensors.own, &tensors.n_own, true, err);
    rc = lf_run_agree(&p->run, rc, err);
    return lf_run_writer_open(&p->run, &tensors, rc, err);
}

/* What must be equal for a run to go on from a checkpoint: what its counters and moments mean. */
static json_t *identity(const lf_pg *p)
{
    char id[LF_HASH_HEX];
    lf_hash_hex(id, lf_shardset_id(p->data));
    json_t *o = json_pack("{s:s,s:I,s:I,s:b}", "data", id, "seed", (json_int_t)p->c->seed,
                          "max_prompt", (json_int_t)p->c->max_prompt, "critic", p->want_critic);
    if (o && p->ptx) {
        lf_hash_hex(id, lf_shardset_id(p->ptx));
        json_object_set_new(o, "ptx", json_pack("[s,I]", id, (json_int_t)p->c->ptx_batch));
    }
    return o;
}

/* Names of what scores, in an array. */
static json_t *rewards_json(const struct lf_pg_config *c)
{
    json_t *a = json_array();
    int bad = !a;
    for (size_t i = 0; i < c->n_rules && !bad; i++)
        bad = json_array_append_new(a, json_string(lf_rule_spec(c->rules[i])));
    if (!bad && c->command)
        bad = json_array_append_new(a, json_pack("[f,s]", c->command_weight, c->command->command));
    if (!bad && c->reward_model)
        bad = json_array_append_new(
            a, json_pack("[f,b,s]", c->reward_model_weight, c->reward_normalized, c->reward_model));
    if (!bad)
        return a;
    json_decref(a);
    return NULL;
}

/* Settings that what follows depends on and that may change all the same: a run that goes on with
 * others says so. */
static json_t *settings_json(const struct lf_pg_config *c)
{
    const struct lf_pg_opts *l = &c->loss;
    const struct lf_shaping *h = &c->shaping;
    json_t *o = json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:f,s:b,s:I,s:f,s:I,s:f,s:o}", "prompts", (json_int_t)c->prompts,
        "samples", (json_int_t)c->samples, "minibatch", (json_int_t)c->minibatch, "epochs",
        (json_int_t)c->epochs, "max_tokens", (json_int_t)c->max_tokens, "temperature",
        c->temperature, "dynamic_sampling", c->dynamic_sampling, "dynamic_rounds",
        (json_int_t)c->dynamic_rounds, "critic_lr", c->critic_lr, "critic_warmup",
        (json_int_t)c->critic_warmup, "value_clip", c->value_clip, "rewards", rewards_json(c));
    json_t *loss =
        json_pack("{s:i,s:f,s:f,s:f,s:b,s:b,s:b,s:i,s:i,s:f,s:f,s:f,s:f,s:f}", "advantage",
                  (int)c->advantage, "gamma", c->gamma, "lambda", c->lambda, "group_eps",
                  c->group_eps, "whiten", c->whiten, "whiten_biased", c->whiten_biased,
                  "whiten_rewards", c->whiten_rewards, "ratio", (int)l->ratio, "aggregation",
                  (int)l->agg, "clip_low", l->clip_low, "clip_high", l->clip_high, "dual_clip",
                  l->dual_clip, "entropy_coef", l->entropy_coef, "ptx_coef", c->ptx_coef);
    json_t *rest = json_pack(
        "{s:f,s:f,s:f,s:b,s:i,s:b,s:i,s:f,s:I,s:f,s:b,s:f}", "kl_coef", c->kl.beta, "kl_target",
        c->kl.target, "kl_horizon", c->kl.horizon, "kl_in_reward", c->kl_in_reward, "kl_estimator",
        (int)c->kl_est.kind, "kl_straight", c->kl_est.straight, "missing_eos", (int)h->missing,
        "missing_eos_value", h->missing_value, "overlong_buffer", (json_int_t)h->overlong_buffer,
        "overlong_factor", h->overlong_factor, "score_scale", h->scale, "score_clip", h->clip);
    json_t *see = c->max_patches ? json_pack("{s:I,s:I}", "max_patches", (json_int_t)c->max_patches,
                                             "max_tiles", (json_int_t)c->max_tiles)
                                 : json_object();
    if (!o || !loss || !rest || !see || json_object_update(o, loss) ||
        json_object_update(o, rest) || json_object_update(o, see)) {
        json_decref(o);
        o = NULL;
    }
    json_decref(loss);
    json_decref(rest);
    json_decref(see);
    return o;
}

/* Did patience end this run before its length? Then the manifest says so. */
static int tell_patience(const lf_pg *p, json_t *state)
{
    if (p->s.round >= p->early.total || p->s.done > 0 || !lf_best_over(&p->s.best, p->c->patience))
        return 0;
    return lf_best_tell_end(
        &p->s.best,
        &(struct lf_best_end){.at = p->s.round,
                              .of = p->early.total,
                              .unit = "rounds",
                              .metric = p->c->best_metric == LF_PG_BEST_SCORE ? "score" : "reward",
                              .measurements = "rounds"},
        state);
}

json_t *lf_pg_state_json(const lf_pg *p, lf_err *err)
{
    const struct lf_pg_state *s = &p->s;
    json_t *model = lf_model_config_to_json(&p->mc, err);
    if (!model)
        return NULL;
    json_t *o = json_pack(
        "{s:i,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:s,s:{s:I,s:f,s:f},s:s,s:o,s:o,s:o,s:o,s:o}",
        "lf_ppo", 1, "step", (json_int_t)s->updates, "round", (json_int_t)s->round, "actor_updates",
        (json_int_t)s->actor_updates, "done", (json_int_t)s->done, "prompts",
        (json_int_t)s->prompts, "episodes", (json_int_t)s->episodes, "tokens",
        (json_int_t)s->tokens, "beta", s->beta, "key", s->done ? s->key : "", "scores", "n",
        (json_int_t)s->scores.n, "mean", s->scores.mean, "m2", s->scores.m2, "tokenizer_sha256",
        lf_shardset_get_info(p->data)->tokenizer_sha256, "model", model, "identity", identity(p),
        "optimizer", lf_run_optimizer_json(&p->c->adam, p->c->clip), "schedule",
        lf_run_schedule_json(&p->schedule), "settings", settings_json(p->c));
    if (o &&
        (lf_best_to_json(&s->best, o) ||
         json_object_set_new(o, "early", json_boolean(lf_best_over(&s->best, p->c->patience))))) {
        json_decref(o);
        o = NULL;
    }
    if (o && p->hf_config && json_object_set(o, "hf_config", p->hf_config)) {
        json_decref(o);
        o = NULL;
    }
    if (o && p->c->scaler.dynamic &&
        json_object_set_new(o, "scaler",
                            json_pack("{s:o,s:o}", "actor", lf_scaler_json(&s->actor_scale),
                                      "critic", lf_scaler_json(&s->critic_scale)))) {
        json_decref(o);
        o = NULL;
    }
    if (o && (json_object_set_new(o, "active_s", json_real(s->active_s)) || tell_patience(p, o) ||
              lf_early_add(&p->early, o, s->round, s->updates, err))) {
        json_decref(o);
        o = NULL;
    }
    return lf_run_state(&p->run, o, err);
}

/* ---- saving ---- */

/* Collective with parts, where a checkpoint that is not needed may fail to be saved. */
static int save(lf_pg *p, bool final, bool needed, lf_err *err)
{
    json_t *state = lf_pg_saves(p) ? lf_pg_state_json(p, err) : NULL;
    char *dir = final ? NULL : lf_ckpt_step_dir(p->c->out, p->s.updates, err);
    int rc = (lf_pg_saves(p) && !state) || (!final && !dir) ? LF_ENOMEM : 0;
    if (final) {
        rc = lf_run_save_final(&p->run, rc, state, err);
    } else {
        rc = lf_run_save_begin(&p->run, rc, dir, state, err);
        if (rc == 0)
            rc = lf_run_save_wait(&p->run, needed, err);
    }
    lf_run_phase(&p->run, LF_PG_PHASE);
    json_decref(state);
    free(dir);
    return rc;
}

int lf_pg_save(lf_pg *p, enum lf_pg_saving how, lf_err *err)
{
    if (how != LF_PG_FINAL && p->saved == p->s.updates && p->saved_round == p->s.round)
        return 0;
    p->s.active_s = lf_pg_active_s(p);
    int rc =
        lf_run_agree(&p->run, save(p, how == LF_PG_FINAL, how != LF_PG_NOW_AND_THEN, err), err);
    if (rc != 0)
        return rc;
    if (p->run.failed_step != p->s.updates) {
        p->saved = p->s.updates;
        p->saved_round = p->s.round;
    }
    p->run.last_save = lf_now_s();
    return 0;
}

/* ---- going on ---- */

static int read_state(lf_pg *p, json_t *o, const char *dir, lf_err *err)
{
    struct lf_pg_state s = {0};
    const char *key = "";
    json_t *run = NULL, *was = NULL, *is = identity(p);
    int rc = lf_json_get_i64(&s.updates, o, "step", true, dir, err);
    if (rc == 0)
        rc = lf_json_get_i64(&s.round, o, "round", true, dir, err);
    if (rc == 0)
        rc = lf_json_get_i64(&s.actor_updates, o, "actor_updates", true, dir, err);
    if (rc == 0)
        rc = lf_json_get_i64(&s.done, o, "done", true, dir, err);
    if (rc == 0)
        rc = lf_json_get_i64(&s.prompts, o, "prompts", true, dir, err);
    if (rc == 0)
        rc = lf_json_get_i64(&s.episodes, o, "episodes", true, dir, err);
    if (rc == 0)
        rc = lf_json_get_i64(&s.tokens, o, "tokens", true, dir, err);
    if (rc == 0)
        rc = lf_json_get_f64(&s.beta, o, "beta", true, dir, err);
    if (rc == 0)
        rc = lf_json_get_str(&key, o, "key", true, dir, err);
    if (rc == 0)
        rc = lf_json_get_object(&run, o, "scores", true, dir, err);
    if (rc == 0)
        rc = lf_json_get_i64(&s.scores.n, run, "n", true, dir, err);
    if (rc == 0)
        rc = lf_json_get_f64(&s.scores.mean, run, "mean", true, dir, err);
    if (rc == 0)
        rc = lf_json_get_f64(&s.scores.m2, run, "m2", true, dir, err);
    if (rc == 0)
        rc = lf_json_get_object(&was, o, "identity", true, dir, err);
    const json_t *scaler = json_object_get(o, "scaler"), *active = json_object_get(o, "active_s");
    s.active_s = json_is_number(active) ? json_number_value(active) : 0;
    s.actor_scale = lf_scaler_of(json_object_get(scaler, "actor"), &p->c->scaler);
    s.critic_scale = lf_scaler_of(json_object_get(scaler, "critic"), &p->c->scaler);
    s.best = lf_best_of(o);
    const char *name;
    json_t *v;
    if (rc == 0)
        json_object_foreach(is, name, v) if (rc == 0 && !json_equal(v, json_object_get(was, name)))
            rc = lf_fail(err, LF_EINVAL,
                         "%s is of another run: its %s differs, so its counters mean nothing here; "
                         "init_from takes its weights alone",
                         dir, name);
    if (rc == 0 && s.done > 0 && strlen(key) != LF_HASH_HEX - 1)
        rc = lf_fail(err, LF_EFORMAT, "%s: the key of the round under way is missing", dir);
    if (rc == 0 && s.done > 0)
        memcpy(s.key, key, LF_HASH_HEX);
    json_decref(is);
    if (rc == 0)
        p->s = s;
    if (rc == 0)
        lf_early_take(&p->early, o);
    return rc;
}

/* Puts the run where ck was made. */
static int restore(lf_pg *p, lf_ckpt *ck, const char *dir, lf_err *err)
{
    lf_model_config mc;
    const char *key = NULL;
    int rc = lf_weights_config(&mc, ck, err);
    if (rc == 0 && !lf_model_config_equal(&mc, &p->mc, &key))
        rc = lf_fail(err, LF_EINVAL, "%s is of another model: [model] %s differs", dir, key);
    if (rc == 0)
        rc = lf_run_check_adapter(&p->run, ck, dir, err);
    if (rc == 0)
        rc = read_state(p, lf_ckpt_state(ck), dir, err);
    if (rc == 0)
        lf_pg_early_apply(p);
    if (rc == 0 && p->c->adapter)
        rc = lf_weights_load_adapter(lf_pg_model_store(p->actor), ck, LF_WEIGHTS_PREFIX, true, err);
    else if (rc == 0)
        rc = lf_pg_model_load(p->actor, ck, LF_WEIGHTS_PREFIX, true, err);
    if (rc == 0 && p->critic)
        rc = lf_pg_model_load(p->critic, ck, CRITIC_PREFIX, true, err);
    return rc != 0 ? rc : lf_run_carry(&p->run, ck, err);
}

static int record_resume(lf_pg *p, const lf_ckpt *ck, const char *dir, lf_err *err)
{
    char at[96];
    json_t *is = lf_pg_state_json(p, err);
    if (!is)
        return LF_ENOMEM;
    snprintf(at, sizeof at, "round %lld, %lld of its mini-batches done", (long long)p->s.round + 1,
             (long long)p->s.done);
    int rc = lf_run_resumed(&p->run, lf_ckpt_state(ck), is, dir, at, err);
    json_decref(is);
    return rc;
}

/* The final checkpoint of out, when there is one: the run is over, or out belongs to another. */
static int look_at_final(lf_pg *p, bool *done, lf_err *err)
{
    const struct lf_pg_state fresh = p->s;
    const lf_early whole = p->early;
    lf_ckpt *ck = NULL;
    char *final = NULL;
    int rc = lf_run_final(&p->run, &ck, &final, err);
    if (rc == 0 && ck) {
        rc = lf_run_check_adapter(&p->run, ck, final, err);
        if (rc == 0)
            rc = read_state(p, lf_ckpt_state(ck), final, err);
        const json_t *state = rc == 0 ? lf_ckpt_state(ck) : NULL;
        const bool patient = p->c->patience > 0 && json_is_true(json_object_get(state, "early"));
        *done = rc == 0 && (p->s.round >= p->c->steps || lf_early_ended(state) || patient);
        if (rc == 0 && !*done)
            rc = lf_fail(err, LF_EEXIST,
                         "%s ends a run of %lld rounds, not %lld; write to another out "
                         "(resume_from continues it)",
                         final, (long long)p->s.round, (long long)p->c->steps);
        p->s = fresh;
        p->early = whole;
    }
    lf_ckpt_close(ck);
    free(final);
    return rc;
}

/* Where a run begins. */
struct beginning {
    struct lf_run_search search; /* rank 0 */
    lf_ckpt *ck;                 /* open: on rank 0, and where others read it */
    json_t *from;                /* {"dir": where the run goes on from}, owned; NULL: it begins */
};

/* Rank 0. */
static int choose(lf_pg *p, struct beginning *b, lf_err *err)
{
    int rc = lf_run_newest(&p->run, &b->search, &b->ck, err);
    if (rc == 0 && b->ck && !(b->from = json_pack("{s:s}", "dir", lf_ckpt_dir(b->ck))))
        rc = lf_fail(err, LF_ENOMEM, "where to go on: out of memory");
    return rc;
}

/* The other ranks read what rank 0 has chosen. */
static int read_chosen(lf_pg *p, struct beginning *b, const char *dir, lf_err *err)
{
    const int rc = b->ck ? 0 : lf_run_open_to_read(&p->run, &b->ck, dir, err);
    return rc != 0 ? rc : restore(p, b->ck, dir, err);
}

/* After all have read it. */
static int go_on(lf_pg *p, const struct beginning *b, const char *dir, lf_err *err)
{
    const size_t n = strlen(p->c->out);
    const int rc = record_resume(p, b->ck, dir, err);
    if (rc == 0 && strncmp(dir, p->c->out, n) == 0 && dir[n] == '/') {
        p->saved = p->s.updates; /* a stop before the next update has nothing to save */
        p->saved_round = p->s.round;
    }
    return rc;
}

/* Nothing stays of what has been read. */
static int forget(lf_pg *p, lf_err *err)
{
    int rc = lf_pg_model_init(p->actor, p->c->seed, err);
    if (rc == 0 && p->critic)
        rc = lf_pg_model_init(p->critic, p->c->seed, err);
    return rc;
}

/* What a run has before it reads a checkpoint of its own; rc: how this rank fared so far.
 * Collective. */
static int begin(lf_pg *p, int rc, lf_err *err)
{
    p->s = (struct lf_pg_state){.beta = p->c->kl.beta,
                                .best = lf_best_start(),
                                .actor_scale = lf_scaler_start(&p->c->scaler),
                                .critic_scale = lf_scaler_start(&p->c->scaler)};
    p->saved = p->saved_round = -1;
    rc = lf_run_agree(&p->run, rc, err);
    return lf_run_agree(&p->run, rc != 0 ? rc : lf_pg_weights(p, err), err);
}

/* Goes on from the newest checkpoint, if there is one. *damaged: a rank found damage in what it
 * read of it, and it has been passed over. Collective. */
static int find(lf_pg *p, struct beginning *b, bool *damaged, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    *damaged = false;
    int rc = lf_run_agree(&p->run, lf_run_first(&p->run) ? choose(p, b, err) : 0, err);
    if (rc == 0)
        rc = lf_run_share_json(&p->run, &b->from, err);
    const char *dir = rc == 0 ? json_string_value(json_object_get(b->from, "dir")) : NULL;
    if (dir) {
        rc = read_chosen(p, b, dir, &why);
        *damaged = rc == LF_EFORMAT && lf_run_in_parts(&p->run);
        rc = rc == 0 || *damaged ? 0 : lf_fail(err, rc, "%s", why.text);
        rc = lf_run_agree(&p->run, rc, err);
    }
    if (rc == 0)
        rc = lf_run_any(&p->run, damaged, err);
    if (rc == 0 && dir && !*damaged)
        rc = lf_run_agree(&p->run, go_on(p, b, dir, err), err);
    lf_ckpt_close(b->ck);
    json_decref(b->from);
    b->ck = NULL;
    b->from = NULL;
    return rc || !*damaged ? rc : lf_run_pass_over_all(&p->run, &b->search, &why, err);
}

int lf_pg_start(lf_pg *p, bool *done, lf_err *err)
{
    const lf_schedule schedule = p->schedule;
    struct beginning b = {.search = LF_RUN_SEARCH};
    bool damaged = true;
    int rc = begin(p, 0, err);
    if (rc == 0)
        rc = lf_run_agree(&p->run, lf_run_first(&p->run) ? look_at_final(p, done, err) : 0, err);
    if (rc == 0)
        rc = lf_run_any(&p->run, done, err);
    while (rc == 0 && !*done && damaged) {
        rc = find(p, &b, &damaged, err);
        if (rc != 0 || !damaged)
            break;
        p->schedule = schedule; /* some of it has been read */
        lf_pg_early_begin(p);
        rc = begin(p, forget(p, err), err);
    }
    free(b.search.dir);
    return rc;
}
