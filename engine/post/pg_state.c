/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: what is in them, where a run begins or goes on; and the key of a round. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/sys.h"
#include "engine/model/merge.h"
#include "engine/model/weights.h"
#include "engine/post/pg_priv.h"

#define CRITIC_PREFIX "critic/"

/* ---- the key of a round ---- */

/* Every setting that a published round depends on, as text. */
static void describe(lf_buf *b, const lf_pg *p)
{
    const struct lf_pg_config *c = p->c;
    char id[LF_HASH_HEX];
    lf_hash_hex(id, lf_shardset_id(p->data));
    lf_buf_addf(b, "lf-pg-1 data %s seed %" PRIu64 " round %" PRId64 " prompt %" PRId64 " prompts %" PRId64 " samples %" PRId64
                   " max_prompt %" PRId64 " max_tokens %" PRId64 " T %.17g dynamic %d %" PRId64 "\n", id, c->seed, p->s.round + 1, p->s.prompts,
                c->prompts, c->samples, c->max_prompt, c->max_tokens, c->temperature, c->dynamic_sampling, c->dynamic_rounds);
    if (c->compute != LF_F32) /* f32 came first: its keys stay what they were */
        lf_buf_addf(b, "compute %s\n", c->compute == LF_BF16 ? "bf16" : "fp16");
    for (size_t i = 0; i < c->n_end; i++)
        lf_buf_addf(b, "end %d\n", (int)c->end[i]);
    for (size_t i = 0; i < c->n_rules; i++)
        lf_buf_addf(b, "rule %s\n", lf_rule_spec(c->rules[i]));
    if (c->command)
        lf_buf_addf(b, "command %.17g %s\n", c->command_weight, c->command->command);
    if (c->reward_model)
        lf_buf_addf(b, "model %.17g %d %s\n", c->reward_model_weight, c->reward_normalized, c->reward_model);
    lf_buf_addf(b, "advantage %d %.17g %.17g %.17g whiten %d %d %d kl %d %.17g %d %d %.17g %.17g\n", (int)c->advantage, c->gamma, c->lambda,
                c->group_eps, c->whiten, c->whiten_biased, c->whiten_rewards, c->kl_in_reward, p->s.beta, (int)c->kl_est.kind,
                c->kl_est.straight, c->kl_est.clamp_in, c->kl_est.clamp_out);
    const struct lf_shaping *s = &c->shaping;
    lf_buf_addf(b, "shape %d %.17g %" PRId64 " %" PRId64 " %.17g %d %.17g running %" PRId64 " %.17g %.17g\n", (int)s->missing, s->missing_value,
                s->overlong_max, s->overlong_buffer, s->overlong_factor, s->scale, s->clip, p->s.scores.n, p->s.scores.mean, p->s.scores.m2);
    lf_buf_addf(b, "replay %s\n", c->replay ? c->replay : "");
}

static int describe_adapter(lf_buf *b, const lf_pg *p, lf_err *err)
{
    json_t *o = p->c->adapter ? lf_adapter_to_json(p->c->adapter, err) : NULL;
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (text)
        lf_buf_addf(b, "adapter %s of %s\n", text, p->base);
    int rc = p->c->adapter && !text ? lf_fail(err, LF_ENOMEM, "key of the round: out of memory") : 0;
    free(text);
    json_decref(o);
    return rc;
}

static int hash_block(lf_hash *h, lf_pstore *ps, enum lf_pkind kind, bool host, lf_err *err)
{
    void *data = NULL, *copy = NULL;
    size_t bytes = 0;
    lf_pstore_block(ps, kind, host, &data, &bytes);
    if (bytes && !lf_pstore_on_host(ps)) {
        copy = lf_malloc(bytes, 1, err);
        int rc = copy ? lf_pstore_fetch(ps, copy, data, bytes, err) : LF_ENOMEM;
        if (rc) {
            free(copy);
            return rc;
        }
    }
    lf_hash_update(h, copy ? copy : data, bytes);
    free(copy);
    return 0;
}

/* masters bf16: weights are in the copies too. */
static int hash_weights(lf_hash *h, const lf_pg *p, const lf_pg_model *m, lf_err *err)
{
    lf_pstore *ps = m ? lf_pg_model_store(m) : NULL;
    int rc = ps ? hash_block(h, ps, LF_P_MASTER, false, err) : 0;
    if (!rc && ps)
        rc = hash_block(h, ps, LF_P_MASTER, true, err);
    return rc || !ps || p->c->adam.masters != LF_BF16 ? rc : hash_block(h, ps, LF_P_COPY, false, err);
}

int lf_pg_key(char key[LF_HASH_HEX], const lf_pg *p, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    lf_buf b;
    lf_hash *h = lf_hash_create(err);
    lf_buf_init(&b);
    describe(&b, p);
    int rc = h ? describe_adapter(&b, p, err) : LF_ENOMEM;
    rc = rc ? rc : lf_buf_check(&b, err);
    if (!rc) {
        lf_hash_update(h, b.data, b.len);
        rc = hash_weights(h, p, p->actor, err);
    }
    if (!rc)
        rc = hash_weights(h, p, p->critic, err);
    if (!rc) {
        lf_hash_final(h, digest);
        lf_hash_hex(key, digest);
    }
    lf_hash_destroy(h);
    lf_buf_fini(&b);
    return rc;
}

/* ---- saving ---- */

int lf_pg_writer_open(lf_pg *p, lf_err *err)
{
    lf_ckpt_tensor *a = NULL, *c = NULL, *all;
    size_t n_a = 0, n_c = 0;
    const lf_pstore *ps = lf_pg_model_store(p->actor);
    int rc = p->c->adapter ? lf_weights_adapter_tensors(&a, &n_a, ps, LF_WEIGHTS_PREFIX, true, p->arena, err)
                           : lf_weights_tensors(&a, &n_a, ps, LF_WEIGHTS_PREFIX, true, p->arena, err);
    if (!rc && p->critic)
        rc = lf_weights_tensors(&c, &n_c, lf_pg_model_store(p->critic), CRITIC_PREFIX, true, p->arena, err);
    if (rc)
        return rc;
    all = lf_arena_alloc(p->arena, n_a + n_c, sizeof *all, err);
    if (!all)
        return LF_ENOMEM;
    memcpy(all, a, n_a * sizeof *all);
    if (n_c)
        memcpy(all + n_a, c, n_c * sizeof *all);
    lf_ckpt_options o = {.threads = p->c->threads < 4 ? p->c->threads : 4};
    if (!lf_pstore_on_host(ps) &&
        !(o.arena = lf_arena_alloc(p->arena, lf_ckpt_snapshot_bytes(all, n_a + n_c), 1, err)))
        return lf_err_prefix(err, "memory for saving");
    return lf_ckpt_writer_create(&p->writer, all, n_a + n_c, &o, err);
}

/* What must be equal for a run to go on from a checkpoint: what its counters and moments mean. */
static json_t *identity(const lf_pg *p)
{
    char id[LF_HASH_HEX];
    lf_hash_hex(id, lf_shardset_id(p->data));
    json_t *o = json_pack("{s:s,s:I,s:I,s:b}", "data", id, "seed", (json_int_t)p->c->seed, "max_prompt", (json_int_t)p->c->max_prompt,
                          "critic", p->want_critic);
    if (o && p->ptx) {
        lf_hash_hex(id, lf_shardset_id(p->ptx));
        json_object_set_new(o, "ptx", json_pack("[s,I]", id, (json_int_t)p->c->ptx_batch));
    }
    return o;
}

static json_t *state_json(const lf_pg *p, lf_err *err)
{
    const struct lf_pg_state *s = &p->s;
    json_t *model = lf_model_config_to_json(&p->mc, err);
    if (!model)
        return NULL;
    json_t *o = json_pack("{s:i,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:s,s:{s:I,s:f,s:f},s:s,s:o,s:O,s:o}", "lf_ppo", 1, "step", (json_int_t)s->updates,
                          "round", (json_int_t)s->round, "actor_updates", (json_int_t)s->actor_updates, "done", (json_int_t)s->done, "prompts",
                          (json_int_t)s->prompts, "episodes", (json_int_t)s->episodes, "tokens", (json_int_t)s->tokens, "beta", s->beta, "key",
                          s->done ? s->key : "", "scores", "n", (json_int_t)s->scores.n, "mean", s->scores.mean, "m2", s->scores.m2,
                          "tokenizer_sha256", lf_shardset_get_info(p->data)->tokenizer_sha256, "model", model, "fingerprint", p->fingerprint, "identity",
                          identity(p));
    if (o && p->c->adapter &&
        (json_object_set_new(o, "adapter", lf_adapter_to_json(p->c->adapter, err)) | json_object_set_new(o, "base", json_string(p->base)))) {
        json_decref(o);
        o = NULL;
    }
    if (o && p->c->scaler.dynamic &&
        json_object_set_new(o, "scaler", json_pack("{s:o,s:o}", "actor", lf_scaler_json(&s->actor_scale), "critic", lf_scaler_json(&s->critic_scale)))) {
        json_decref(o);
        o = NULL;
    }
    if (!o)
        lf_fail(err, LF_ENOMEM, "state of the run: out of memory");
    return o;
}

/* What is trained, to dir. again: one that is there already is of an incarnation that came here before, the same bits. */
static int save_at(lf_pg *p, const char *dir, bool again, lf_err *err)
{
    double t0 = lf_now_s();
    json_t *state = lf_pg_first(p) ? state_json(p, err) : NULL;
    int rc = state || !lf_pg_first(p) ? 0 : LF_ENOMEM;
    if (!lf_pg_first(p))
        goto out;
    if (!rc && p->metrics)
        rc = lf_frame_sync(p->metrics, err);
    enum lf_artifact_state there = LF_ARTIFACT_ABSENT;
    if (!rc && again)
        rc = lf_artifact_state(&there, dir, err);
    if (!rc && there == LF_ARTIFACT_PRESENT)
        goto out;
    rc = rc ? rc : lf_ckpt_save_begin(p->writer, dir, state, err);
    lf_ckpt_result r;
    if (!rc && (rc = lf_ckpt_save_wait(p->writer, &r, err)) == 1) {
        char size[32];
        p->save_s = lf_now_s() - t0;
        lf_pg_log(p, 2, "saved %s after mini-batch %lld in %.1f s", lf_fmt_bytes(size, sizeof size, (double)r.bytes), (long long)p->s.updates, p->save_s);
        rc = 0;
    }
    if (!rc)
        rc = lf_ckpt_retain(p->c->out, p->c->keep, p->c->keep_every, err);
out:
    if (!rc) {
        p->saved = p->s.updates;
        p->saved_round = p->s.round;
        p->last_save = lf_now_s();
    }
    json_decref(state);
    return rc;
}

/* One that stands in out before the end of this run, but was not made at this place of it, is another's. */
static int check_there(const lf_pg *p, const char *dir, lf_err *err)
{
    enum lf_artifact_state there;
    lf_ckpt *ck = NULL;
    json_t *is = NULL;
    int rc = lf_artifact_state(&there, dir, err);
    if (rc || there != LF_ARTIFACT_PRESENT)
        return rc;
    rc = lf_ckpt_open(&ck, dir, p->c->threads, err);
    is = rc ? NULL : identity(p);
    if (!rc && (lf_ckpt_step(ck) != p->s.updates || !json_equal(json_object_get(lf_ckpt_state(ck), "identity"), is)))
        rc = lf_fail(err, LF_EEXIST, "%s is of another run; write to another out", dir);
    json_decref(is);
    lf_ckpt_close(ck);
    return rc;
}

/* The adapter, then the policy that it makes of its base. */
static int save_adapter(lf_pg *p, const char *checkpoint, lf_err *err)
{
    char *dir = lf_path_join(p->c->out, "adapter", err);
    const struct lf_merge_opts mo = {.base = p->c->init_from, .adapter = dir, .out = checkpoint, .threads = p->c->threads};
    int rc = !dir ? LF_ENOMEM : lf_pg_first(p) ? check_there(p, dir, err) : 0;
    rc = rc ? rc : save_at(p, dir, true, err);
    rc = rc || !lf_pg_first(p) ? rc : lf_adapter_merge(&mo, NULL, err);
    free(dir);
    return rc;
}

int lf_pg_save(lf_pg *p, bool final, lf_err *err)
{
    if (!final && p->saved == p->s.updates && p->saved_round == p->s.round)
        return 0;
    char *dir = final ? lf_path_join(p->c->out, "checkpoint", err) : lf_ckpt_step_dir(p->c->out, p->s.updates, err);
    const struct lf_profile_mark m = lf_profile_begin(p->c->profile);
    int rc = !dir ? LF_ENOMEM : final && p->c->adapter ? save_adapter(p, dir, err) : save_at(p, dir, !final, err);
    lf_profile_end(p->c->profile, LF_LANE_SAVE, "checkpoint", m);
    free(dir);
    return lf_pg_agree(p, rc, err);
}

/* ---- going on ---- */

/* Is ck of an adapter like this run's on this run's base, or of whole weights like this run's? */
static int check_adapter(const lf_pg *p, const lf_ckpt *ck, const char *dir, lf_err *err)
{
    const json_t *was = json_object_get(lf_ckpt_state(ck), "adapter");
    const char *base = json_string_value(json_object_get(lf_ckpt_state(ck), "base"));
    json_t *is = NULL;
    if (!p->c->adapter)
        return was ? lf_fail(err, LF_EINVAL, "%s is of an adapter; give lora_rank and the rest as they were", dir) : 0;
    if (!was)
        return lf_fail(err, LF_EINVAL, "%s is a checkpoint of whole weights, this run is of an adapter (lora_rank)", dir);
    int rc = (is = lf_adapter_to_json(p->c->adapter, err)) ? 0 : LF_ENOMEM;
    if (!rc && !json_equal(was, is))
        rc = lf_fail(err, LF_EINVAL, "%s is of an adapter with other settings (lora_rank, lora_alpha, lora_targets ...)", dir);
    if (!rc && (!base || strcmp(base, p->base) != 0))
        rc = lf_fail(err, LF_EINVAL, "%s is of an adapter of other weights than init_from = %s", dir, p->c->init_from);
    json_decref(is);
    return rc;
}

static int read_state(lf_pg *p, json_t *o, const char *dir, lf_err *err)
{
    struct lf_pg_state s = {0};
    const char *key = "";
    json_t *run = NULL, *was = NULL, *is = identity(p);
    int rc = lf_json_get_i64(&s.updates, o, "step", true, dir, err);
    rc = rc ? rc : lf_json_get_i64(&s.round, o, "round", true, dir, err);
    rc = rc ? rc : lf_json_get_i64(&s.actor_updates, o, "actor_updates", true, dir, err);
    rc = rc ? rc : lf_json_get_i64(&s.done, o, "done", true, dir, err);
    rc = rc ? rc : lf_json_get_i64(&s.prompts, o, "prompts", true, dir, err);
    rc = rc ? rc : lf_json_get_i64(&s.episodes, o, "episodes", true, dir, err);
    rc = rc ? rc : lf_json_get_i64(&s.tokens, o, "tokens", true, dir, err);
    rc = rc ? rc : lf_json_get_f64(&s.beta, o, "beta", true, dir, err);
    rc = rc ? rc : lf_json_get_str(&key, o, "key", true, dir, err);
    rc = rc ? rc : lf_json_get_object(&run, o, "scores", true, dir, err);
    rc = rc ? rc : lf_json_get_i64(&s.scores.n, run, "n", true, dir, err);
    rc = rc ? rc : lf_json_get_f64(&s.scores.mean, run, "mean", true, dir, err);
    rc = rc ? rc : lf_json_get_f64(&s.scores.m2, run, "m2", true, dir, err);
    rc = rc ? rc : lf_json_get_object(&was, o, "identity", true, dir, err);
    const json_t *scaler = json_object_get(o, "scaler");
    s.actor_scale = lf_scaler_of(json_object_get(scaler, "actor"), &p->c->scaler);
    s.critic_scale = lf_scaler_of(json_object_get(scaler, "critic"), &p->c->scaler);
    const char *name;
    json_t *v;
    if (!rc)
        json_object_foreach(is, name, v) if (!rc && !json_equal(v, json_object_get(was, name))) rc =
            lf_fail(err, LF_EINVAL, "%s is of another run: its %s differs, so its counters mean nothing here; init_from takes its weights alone", dir, name);
    if (!rc && s.done > 0 && strlen(key) != LF_HASH_HEX - 1)
        rc = lf_fail(err, LF_EFORMAT, "%s: the key of the round under way is missing", dir);
    if (!rc && s.done > 0)
        memcpy(s.key, key, LF_HASH_HEX);
    if (!rc && !json_equal(json_object_get(o, "fingerprint"), p->fingerprint))
        lf_pg_log(p, 1, "continuing from %s on another machine or with other kernels, threads or sizes: perhaps not bitwise", dir);
    json_decref(is);
    if (!rc)
        p->s = s;
    return rc;
}

/* Of a run of an adapter that is over, "checkpoint" is the merged model; what it was made of stands beside it. */
static int open_own(lf_ckpt **ck, const lf_pg *p, const char *dir, lf_err *err)
{
    int rc = lf_ckpt_open(ck, dir, p->c->threads, err);
    if (rc || !p->c->adapter || !json_object_get(lf_ckpt_state(*ck), "merged"))
        return rc;
    char *path = lf_path_join(dir, "../adapter", err);
    lf_ckpt_close(*ck);
    *ck = NULL;
    rc = path ? lf_ckpt_open(ck, path, p->c->threads, err) : LF_ENOMEM;
    free(path);
    return rc;
}

static int restore(lf_pg *p, const char *dir, lf_err *err)
{
    lf_ckpt *ck = NULL;
    lf_model_config mc;
    const char *key = NULL;
    int rc = open_own(&ck, p, dir, err);
    if (rc)
        return rc;
    rc = lf_weights_config(&mc, ck, err);
    if (!rc && !lf_model_config_equal(&mc, &p->mc, &key))
        rc = lf_fail(err, LF_EINVAL, "%s is of another model: [model] %s differs", dir, key);
    rc = rc ? rc : check_adapter(p, ck, dir, err);
    rc = rc ? rc : read_state(p, lf_ckpt_state(ck), dir, err);
    if (!rc && p->c->adapter)
        rc = lf_weights_load_adapter(lf_pg_model_store(p->actor), ck, LF_WEIGHTS_PREFIX, true, err);
    else if (!rc)
        rc = lf_pg_model_load(p->actor, ck, LF_WEIGHTS_PREFIX, true, err);
    if (!rc && p->critic)
        rc = lf_pg_model_load(p->critic, ck, CRITIC_PREFIX, true, err);
    lf_ckpt_close(ck);
    if (!rc)
        lf_pg_log(p, 2, "continuing from %s: round %lld, %lld of its mini-batches done", dir, (long long)p->s.round + 1, (long long)p->s.done);
    return rc;
}

static void pass_over(void *user, const char *dir, const char *text)
{
    lf_pg_log(user, 1, "passing over %s: %s", dir, text);
}

/* The newest whole checkpoint; one whose bytes are wrong is passed over for the one before. 1 restored, 0 none. */
static int restore_newest(lf_pg *p, const char *const *dirs, size_t n, lf_err *err)
{
    int64_t bound = -1;
    for (;;) {
        char *dir = NULL;
        int64_t step = 0;
        lf_err why = LF_ERR_INIT;
        int rc = lf_ckpt_find_newest(&dir, &step, dirs, n, bound, pass_over, p, err);
        if (rc < 0 || !dir)
            return rc < 0 ? rc : 0;
        rc = restore(p, dir, &why);
        if (rc == LF_EFORMAT && step > 0) {
            pass_over(p, dir, why.text);
            free(dir);
            bound = step - 1;
            continue;
        }
        free(dir);
        return rc ? lf_fail(err, rc, "%s", why.text) : 1;
    }
}

int lf_pg_start(lf_pg *p, bool *done, lf_err *err)
{
    const struct lf_pg_config *c = p->c;
    enum lf_artifact_state final_state = LF_ARTIFACT_ABSENT;
    const char **dirs = lf_calloc(c->n_resume_from + 2, sizeof *dirs, err);
    char *final = dirs ? lf_path_join(c->out, "checkpoint", err) : NULL;
    int rc = final ? lf_artifact_state(&final_state, final, err) : LF_ENOMEM;
    for (size_t i = 0; i < c->n_resume_from && !rc; i++) {
        dirs[i] = c->resume_from[i];
        if (!lf_io_exists(dirs[i]))
            rc = lf_fail(err, LF_ENOENT, "resume_from = %s does not exist", dirs[i]);
    }
    if (!rc)
        dirs[c->n_resume_from] = c->out;
    p->s = (struct lf_pg_state){.beta = c->kl.beta, .actor_scale = lf_scaler_start(&c->scaler), .critic_scale = lf_scaler_start(&c->scaler)};
    p->saved = p->saved_round = -1;
    rc = rc ? rc : lf_pg_weights(p, err);
    int found = rc ? rc : restore_newest(p, dirs, c->n_resume_from + 1, err);
    rc = found < 0 ? found : 0;
    *done = !rc && found && final_state == LF_ARTIFACT_PRESENT && p->s.round >= c->steps;
    if (!rc && final_state == LF_ARTIFACT_PRESENT && !*done)
        rc = lf_fail(err, LF_EEXIST, "%s ends a run of %lld rounds, not %lld; write to another out (resume_from continues it)", final,
                     (long long)p->s.round, (long long)c->steps);
    if (!rc && !found && c->n_resume_from)
        lf_pg_log(p, 1, "no earlier incarnation left a checkpoint: beginning at round 1");
    free(dirs);
    free(final);
    return rc;
}
