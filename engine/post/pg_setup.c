/* SPDX-License-Identifier: Apache-2.0
 *
 * Before the first round: checks, prompts, models and their plans, first weights; and the answer to
 * --plan. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/json.h"
#include "engine/infer/runner.h"
#include "engine/model/same_tokenizer.h"
#include "engine/model/weights.h"
#include "engine/post/pg_priv.h"
#include "engine/train/laid.h"

/* Of a whole run, each epoch counted; far from where 64 bits end. */
#define MAX_RUN_TOKENS 100000000000000000

static int check_group(const struct lf_pg_config *c, lf_err *err)
{
    bool group = c->advantage == LF_PG_ADV_GRPO || c->advantage == LF_PG_ADV_CENTRE ||
                 c->advantage == LF_PG_ADV_RLOO || c->advantage == LF_PG_ADV_BASELINE;
    if (group && c->samples < 2)
        return lf_fail(
            err, LF_EINVAL,
            "samples = %lld: advantages within a group need 2 or more completions of a prompt",
            (long long)c->samples);
    if (c->dynamic_sampling && c->samples < 2)
        return lf_fail(
            err, LF_EINVAL,
            "dynamic_sampling compares the completions of a prompt: samples must be 2 or more");
    return 0;
}

/* So that nothing that counts completions, updates or tokens of the run leaves 64 bits. */
static int check_size(const struct lf_pg_config *c, lf_err *err)
{
    const int64_t of[] = {c->prompts, c->samples, c->steps, c->epochs,
                          c->max_prompt + c->max_tokens};
    int64_t most = MAX_RUN_TOKENS;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if ((most /= of[i] > 0 ? of[i] : 1) == 0)
            return lf_fail(err, LF_EINVAL,
                           "rounds x round_prompts x samples x round_epochs x (max_prompt + "
                           "max_tokens) is more than 10^17 "
                           "tokens; make one of them less");
    return 0;
}

/* A layout of what is not there, and one whose bits are not those that are promised. */
static int check_layouts(const struct lf_pg_config *c, lf_err *err)
{
    const int tensor = c->axes.tensor > 1 ? c->axes.tensor : 1,
              rollout = c->tensor_of[LF_PG_ROLLOUT];
    if (rollout && rollout != tensor && !c->fast)
        return lf_fail(err, LF_EINVAL,
                       "rollout_layout has tensor = %d and training tensor = %d, so the "
                       "log-probabilities of a rollout would not be the bits of training, which "
                       "numeric = invariant promises; set numeric = fast, or leave rollout_layout "
                       "out",
                       rollout, tensor);
    if (c->tensor_of[LF_PG_REFERENCE] && (!(c->kl.beta > 0) || (c->adapter && !c->ref_from)))
        return lf_fail(
            err, LF_EINVAL, "reference_layout: there is no model of a reference %s; leave it out",
            c->kl.beta > 0 ? "beside a policy that is an adapter on it" : "without kl_coef");
    if (c->tensor_of[LF_PG_REWARD] && !c->reward_model)
        return lf_fail(err, LF_EINVAL, "reward_layout has no use without reward_model");
    if (c->tensor_of[LF_PG_CRITIC] && c->advantage != LF_PG_ADV_GAE)
        return lf_fail(err, LF_EINVAL,
                       "critic_layout: there is a critic with advantage = gae only");
    return 0;
}

int lf_pg_check(const struct lf_pg_config *c, lf_err *err)
{
    if (c->warmup_steps > c->steps)
        return lf_fail(err, LF_EINVAL, "warmup_rounds = %lld is more than rounds = %lld",
                       (long long)c->warmup_steps, (long long)c->steps);
    if (lf_early_check(c->hours, c->schedule, err))
        return LF_EINVAL;
    if (c->n_rules == 0 && !c->command && !c->reward_model)
        return lf_fail(err, LF_EINVAL,
                       "no reward: give reward = RULE, reward_command or reward_model");
    if (!(c->temperature > 0))
        return lf_fail(err, LF_EINVAL,
                       "temperature = %g: completions must be drawn, so it must be above 0",
                       c->temperature);
    if (c->critic_warmup && c->advantage != LF_PG_ADV_GAE)
        return lf_fail(err, LF_EINVAL,
                       "critic_warmup: there is a critic with advantage = gae only");
    if (c->critic_from && c->advantage != LF_PG_ADV_GAE)
        return lf_fail(err, LF_EINVAL, "critic_from: there is a critic with advantage = gae only");
    if (c->ref_from && !(c->kl.beta > 0))
        return lf_fail(err, LF_EINVAL, "ref_from has no use without kl_coef");
    if ((c->ptx_coef > 0) != (c->ptx_data != NULL))
        return lf_fail(err, LF_EINVAL,
                       "ptx_coef and ptx_data belong together: give both or neither");
    if (check_layouts(c, err))
        return LF_EINVAL;
    if (c->adapter && c->adapter->dropout > 0)
        return lf_fail(
            err, LF_EINVAL,
            "lora_dropout: what is trained must be the policy that generated; leave it out");
    if (c->adapter && c->adam.masters != LF_F32)
        return lf_fail(err, LF_EINVAL,
                       "masters = bf16 is for training of all weights; an adapter (lora_rank) has "
                       "few of its own");
    int rc = check_size(c, err);
    if (rc == 0)
        rc = lf_adamw_opts_check(&c->adam, c->compute, err);
    if (rc == 0)
        rc = check_group(c, err);
    if (rc == 0)
        rc = lf_pg_opts_check(&c->loss, err);
    if (rc == 0)
        rc = lf_kl_control_check(&c->kl, err);
    return rc != 0 ? rc : lf_shaping_check(&c->shaping, err);
}

/* ---- prompts ---- */

int lf_pg_open_data(lf_pg *p, lf_err *err)
{
    if (p->c->n_end == 0)
        return lf_fail(err, LF_EINVAL, "no end token: the tokenizer names none; give eos");
    int rc = lf_shardset_open(&p->data, p->c->data, "train", err);
    if (rc != 0)
        return rc;
    const lf_shard_info *info = lf_shardset_get_info(p->data);
    if (info->rows != LF_ROWS_PROMPTS && info->rows != LF_ROWS_PLAIN)
        return lf_fail(err, LF_EINVAL, "%s holds %s, not prompts", p->c->data,
                       lf_rows_name(info->rows));
    if (p->c->tokenizer &&
        strcmp(info->tokenizer_sha256, lf_tokenizer_sha256(p->c->tokenizer)) != 0)
        return lf_fail(err, LF_EINVAL, "%s was not tokenized with this tokenizer", p->c->data);
    p->docs = lf_calloc(info->n_docs + 1, sizeof *p->docs, err);
    if (!p->docs)
        return LF_ENOMEM;
    for (uint64_t d = 0; d < info->n_docs; d++) {
        uint64_t n = lf_shardset_doc_len(p->data, d);
        if (n < 1 || n > (uint64_t)p->c->max_prompt)
            continue;
        p->docs[p->n_docs++] = d;
        p->longest = (int64_t)n > p->longest ? (int64_t)n : p->longest;
    }
    if (!p->n_docs)
        return lf_fail(err, LF_EINVAL,
                       "%s: none of its %llu prompts has between 1 and max_prompt = %lld tokens",
                       p->c->data, (unsigned long long)info->n_docs, (long long)p->c->max_prompt);
    if (p->n_docs < info->n_docs)
        lf_run_log(&p->run, 1,
                   "%llu of %llu prompts are empty or longer than max_prompt = %lld and left out",
                   (unsigned long long)(info->n_docs - p->n_docs), (unsigned long long)info->n_docs,
                   (long long)p->c->max_prompt);
    return 0;
}

/* ---- models ---- */

static struct lf_pg_model_spec spec_of(const lf_pg *p, const char *name, const struct lf_axes *axes,
                                       const struct lf_train_who *who)
{
    const struct lf_pg_config *c = p->c;
    struct lf_layout layout = lf_axes_layout(axes, who);
    lf_axes_fit(&layout, axes, &p->mc, p->rows / who->context_ranks);
    return (struct lf_pg_model_spec){
        .name = name,
        .context = p->context,
        .rows = p->rows,
        .temperature = c->temperature,
        .compute = c->compute,
        .recompute = c->recompute,
        .threads = c->threads,
        .device = c->device,
        .profile = c->profile,
        .fast = c->fast,
        .ranks = lf_zero_share(&c->zero, 0, lf_axes_sharer(who), lf_axes_sharers(who)),
        .layout = layout,
        .adam = c->adam,
        .seed = c->seed,
        .page_tokens = c->page_tokens,
        .patches = c->max_patches,
        .tiles = c->max_tiles};
}

static int check_layout(const lf_pg *p, lf_err *err)
{
    const struct lf_axes *a = &p->c->axes;
    int rc = lf_axes_check(a, p->run.ranks, err);
    if (rc == 0 && (a->pipeline > 1 || a->sequence || a->expert > 1))
        rc = lf_fail(err, LF_ENOTSUP,
                     "%s: ppo generates with what it trains, one token of a text after the other, "
                     "so ranks divide matrices there (tensor), and rows in training (context), and "
                     "neither layers nor experts; give the stage a [layout NAME] without it",
                     a->pipeline > 1 ? "pipeline"
                     : a->sequence   ? "sequence_parallel"
                                     : "expert");
    if (rc == 0)
        rc = lf_axes_check_device(a, p->c->device, err);
    if (rc == 0)
        rc = lf_zero_check(&p->c->zero, lf_axes_sharers(&p->who), err);
    return rc != 0 ? rc : lf_pg_places_check(p, err);
}

static struct lf_pg_model_spec spec_at(const lf_pg *p, const char *name, enum lf_pg_place_of at)
{
    return spec_of(p, name, &p->at[at].axes, &p->at[at].who);
}

/* What generates: the actor, or a model that has its weights in other boxes. */
static void add_generation(const lf_pg *p, struct lf_pg_model_spec *s)
{
    s->slots = p->c->slots;
    s->step_rows = p->c->step_rows;
    s->kv_tokens = p->c->kv_tokens;
    s->prompt = p->seen;
}

static int plan_actor(lf_pg *p, lf_err *err)
{
    const struct lf_pg_config *c = p->c;
    struct lf_pg_model_spec s = spec_of(p, "actor", &c->axes, &p->who);
    s.train = s.logp = s.entropy = true;
    s.adapter = c->adapter;
    s.freeze = c->freeze;
    s.n_freeze = c->n_freeze;
    s.lr_scale = c->lr_scale;
    s.n_lr_scale = c->n_lr_scale;
    s.reference = p->ref_below;
    s.lm = c->ptx_data != NULL;
    if (!p->at[LF_PG_ROLLOUT].own)
        add_generation(p, &s);
    int rc = lf_pg_model_create(&p->actor, &p->mc, &s, err);
    if (rc != 0 || !p->at[LF_PG_ROLLOUT].own)
        return rc;
    s = spec_at(p, "rollout", LF_PG_ROLLOUT);
    s.ranks.zero = 0;
    s.rows = 0;
    s.adapter = c->adapter;
    add_generation(p, &s);
    return lf_pg_model_create(&p->generator, &p->mc, &s, err);
}

static int plan_models(lf_pg *p, lf_err *err)
{
    const struct lf_pg_config *c = p->c;
    p->context = p->longest + c->max_tokens;
    p->rows = c->rows > p->context ? c->rows : p->context;
    p->rows += (p->who.context_ranks - p->rows % p->who.context_ranks) % p->who.context_ranks;
    p->want_critic = c->advantage == LF_PG_ADV_GAE;
    p->want_ref = c->kl.beta > 0;
    p->ref_below = p->want_ref && c->adapter && !c->ref_from;
    int rc = check_layout(p, err);
    if (rc != 0)
        return rc;
    if (p->context > p->mc.max_positions)
        return lf_fail(err, LF_EINVAL,
                       "prompts of %lld tokens and max_tokens = %lld are more than the %lld "
                       "positions of the model; set max_prompt or max_tokens lower",
                       (long long)p->longest, (long long)c->max_tokens,
                       (long long)p->mc.max_positions);
    struct lf_pg_model_spec s;
    rc = plan_actor(p, err);
    if (rc == 0 && p->want_ref && !p->ref_below) {
        s = spec_at(p, "ref", LF_PG_REFERENCE);
        s.logp = true;
        rc = lf_pg_model_create(&p->ref, &p->mc, &s, err);
    }
    if (rc == 0 && p->want_critic) {
        s = spec_at(p, "critic", LF_PG_CRITIC);
        s.train = s.score = true;
        rc = lf_pg_model_create(&p->critic, &p->mc, &s, err);
    }
    if (rc == 0)
        p->actor_flops = lf_train_flops_of(&p->mc, lf_pg_model_store(p->actor));
    if (rc == 0 && p->critic) {
        lf_model_config mc = p->mc;
        mc.output = LF_OUTPUT_SCORE;
        p->critic_flops = lf_train_flops_of(&mc, lf_pg_model_store(p->critic));
    }
    return rc;
}

/* An export needs what [model] does not have, so checkpoints hand the published config.json on. */
static void keep_config(lf_pg *p, const json_t *state)
{
    json_t *v = json_object_get(json_object_get(state, "hf"), "config");
    v = v ? v : json_object_get(state, "hf_config");
    if (p->mc.vision.family && json_is_string(v))
        p->hf_config = json_incref(v);
}

int lf_pg_models(lf_pg *p, lf_err *err)
{
    lf_ckpt *ck = NULL;
    int rc = lf_run_open_to_read(&p->run, &ck, p->c->init_from, err);
    if (rc != 0)
        return lf_err_prefix(err, "init_from");
    lf_hash_hex(p->run.base, lf_ckpt_identity(ck));
    rc = lf_weights_config(&p->mc, ck, err);
    if (rc == 0)
        keep_config(p, lf_ckpt_state(ck));
    if (rc == 0)
        rc = lf_run_carry(&p->run, ck, err);
    if (rc == 0 && json_object_get(lf_ckpt_state(ck), "adapter"))
        rc =
            lf_fail(err, LF_EINVAL, "init_from: %s is an adapter alone; give the merged checkpoint",
                    p->c->init_from);
    const char *const models[] = {p->c->init_from, p->c->ref_from, p->c->critic_from,
                                  p->c->reward_model};
    for (size_t i = 0; i < sizeof models / sizeof *models && rc == 0; i++)
        rc = lf_same_tokenizer(models[i], lf_shardset_get_info(p->data)->tokenizer_sha256,
                               "the prompts", err);
    if (rc == 0 && lf_decoder_has_dropout(&p->mc))
        lf_run_log(&p->run, 1,
                   "the model's dropout is not applied: what is trained must be the policy that "
                   "generated");
    lf_ckpt_close(ck);
    if (rc == 0 && p->mc.vocab < lf_shardset_get_info(p->data)->vocab_size)
        rc = lf_fail(err, LF_EINVAL,
                     "the prompts have a vocabulary of %lld tokens, the model one of %lld",
                     (long long)lf_shardset_get_info(p->data)->vocab_size, (long long)p->mc.vocab);
    if (rc == 0)
        rc = lf_pg_see_open(p, err);
    if (rc == 0)
        rc = plan_models(p, err);
    if (rc == 0)
        rc = lf_pg_ptx_see(p, err);
    if (rc != 0)
        return rc;
    p->back = lf_back_create(
        &(struct lf_device_opts){.device = p->c->device,
                                 .rank = p->run.rank,
                                 .local_rank = p->run.comm ? p->run.comm->local_rank : 0,
                                 .threads = p->c->threads},
        err);
    rc = p->back ? lf_pg_model_bind(p->actor, p->back, err) : LF_ENOTSUP;
    if (rc == 0 && p->generator)
        rc = lf_pg_model_bind(p->generator, p->back, err);
    if (rc == 0 && p->ref)
        rc = lf_pg_model_bind(p->ref, p->back, err);
    if (rc == 0 && p->critic)
        rc = lf_pg_model_bind(p->critic, p->back, err);
    lf_pg_see_models(p);
    return rc;
}

static int load_from(lf_pg *p, lf_pg_model *m, const char *dir, const char *option, lf_err *err)
{
    lf_ckpt *ck = NULL;
    lf_model_config mc;
    const char *key = NULL;
    int rc = lf_run_open_to_read(&p->run, &ck, dir, err);
    if (rc == 0)
        rc = lf_weights_config(&mc, ck, err);
    if (rc == 0 && m != p->critic && mc.output != LF_OUTPUT_TOKENS)
        rc = lf_fail(err, LF_EINVAL, "%s gives scores, it predicts no tokens", dir);
    if (rc == 0 &&
        mc.vocab != p->mc.vocab) /* other differences show as missing or misshapen tensors */
        rc = lf_fail(err, LF_EINVAL, "%s has a vocabulary of %lld, the actor one of %lld", dir,
                     (long long)mc.vocab, (long long)p->mc.vocab);
    if (rc == 0 && m == p->ref && !lf_model_config_equal(&mc, &p->mc, &key))
        rc = lf_fail(err, LF_EINVAL, "%s is of another model: [model] %s differs", dir, key);
    if (rc == 0)
        rc = lf_pg_model_load(m, ck, LF_WEIGHTS_PREFIX, false, err);
    lf_ckpt_close(ck);
    return rc != 0 ? lf_err_prefix(err, "%s", option) : 0;
}

int lf_pg_weights(lf_pg *p, lf_err *err)
{
    const struct lf_pg_config *c = p->c;
    int rc = c->adapter ? lf_pg_model_init(p->actor, c->seed, err) : 0;
    if (rc == 0)
        rc = load_from(p, p->actor, c->init_from, "init_from", err);
    if (c->adapter) {
        rc = lf_run_agree(&p->run, rc, err); /* none goes on to gather weights alone */
        if (rc == 0)
            rc = lf_pg_model_adapter_start(p->actor, err);
    }
    if (rc == 0 && p->ref)
        rc = load_from(p, p->ref, c->ref_from ? c->ref_from : c->init_from, "ref_from", err);
    if (rc == 0 && p->critic)
        rc = load_from(p, p->critic, c->critic_from ? c->critic_from : c->init_from, "critic_from",
                       err);
    return rc;
}

void lf_pg_close(lf_pg *p)
{
    lf_run_end_writing(&p->run);
    lf_reshard_destroy(p->bring);
    lf_pg_model_destroy(p->generator);
    lf_pg_model_destroy(p->actor);
    lf_pg_model_destroy(p->ref);
    lf_pg_model_destroy(p->critic);
    lf_back_destroy(p->back);
    lf_cmd_destroy(p->command);
    lf_rm_close(p->reward_model);
    lf_rollout_fini(&p->r);
    lf_shard_eyes_close(p->eyes);
    lf_shardset_close(p->data);
    lf_pg_ptx_close(p);
    lf_run_close(&p->run);
    json_decref(p->hf_config);
    free(p->docs);
    free(p->sources);
}

/* ---- --plan ---- */

static int add_sizes(json_t *models, const char *name, const struct lf_plan_bytes *b,
                     struct lf_plan_bytes *sum, lf_err *err)
{
    sum->params += b->params;
    sum->grads += b->grads;
    sum->optimizer += b->optimizer;
    sum->saved += b->saved;
    sum->transient += b->transient;
    sum->workspace += b->workspace;
    sum->inputs += b->inputs;
    sum->state += b->state;
    sum->total += b->total;
    sum->offloaded += b->offloaded;
    json_t *o = json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "params", (double)b->params, "grads",
                          (double)b->grads, "optimizer", (double)b->optimizer, "activations",
                          (double)b->arena, "cache", (double)b->state, "inputs", (double)b->inputs,
                          "total", (double)b->total);
    return json_object_set_new(models, name, o) ? lf_fail(err, LF_ENOMEM, "plan: out of memory")
                                                : 0;
}

static int add_bytes(json_t *models, const char *name, const lf_pg_model *m,
                     struct lf_plan_bytes *sum, lf_err *err)
{
    struct lf_plan_bytes b;
    if (!m)
        return 0;
    int rc = lf_plan_bytes(lf_pg_model_get_plan(m), &b);
    return rc != 0 ? lf_fail(err, rc, "the plan of the %s has no sizes", name)
                   : add_sizes(models, name, &b, sum, err);
}

/* The reward model has a plan of its own; one that an earlier stage has yet to make is taken to be
 * of the policy's shape. */
static int add_reward_model(lf_pg *p, json_t *models, json_t *notes, struct lf_plan_bytes *sum,
                            lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    lf_model_config mc;
    struct lf_plan_bytes b;
    if (!p->c->reward_model)
        return 0;
    int rc = lf_runner_config(&mc, p->c->reward_model, &why);
    if (rc == LF_ENOENT) {
        mc = p->mc;
        mc.output = LF_OUTPUT_SCORE;
        if (json_array_append_new(notes, json_string("the reward model does not exist yet; it is "
                                                     "counted as one of the policy's shape")))
            return lf_fail(err, LF_ENOMEM, "plan: out of memory");
    } else if (rc != 0) {
        return lf_fail(err, rc, "reward_model: %s", why.text);
    }
    struct lf_rm_opts o = lf_pg_reward_opts(p);
    rc = lf_rm_plan_bytes(&b, &mc, &o, err);
    return rc != 0 ? lf_err_prefix(err, "reward_model")
                   : add_sizes(models, "reward_model", &b, sum, err);
}

static double pictures_bytes(const lf_pg *p)
{
    const lf_pg_model *const models[] = {p->actor, p->ref, p->critic};
    double n = 0;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        n += models[i] ? (double)lf_pg_model_host_bytes(models[i]) : 0;
    return n;
}

/* The bytes of all models, and the memory of the process. */
static int add_all(lf_pg *p, json_t *models, json_t *notes, struct lf_plan_bytes *b,
                   struct lf_plan_memory *mem, lf_err *err)
{
    int rc = add_bytes(models, "actor", p->actor, b, err);
    if (rc == 0)
        rc = add_bytes(models, "rollout", p->generator, b, err);
    if (rc == 0)
        rc = add_bytes(models, "ref", p->ref, b, err);
    if (rc == 0)
        rc = add_bytes(models, "critic", p->critic, b, err);
    if (rc == 0)
        rc = add_reward_model(p, models, notes, b, err);
    *mem = (struct lf_plan_memory){
        .host = (double)b->offloaded + lf_zero_comm_bytes(&p->c->zero, lf_axes_sharers(&p->who)) +
                lf_axes_comm_bytes(&p->who) + lf_pg_places_bytes(p) + pictures_bytes(p)};
    lf_plan_memory(mem, lf_plan_target(lf_pg_model_get_plan(p->actor)), (double)b->total);
    mem->device += lf_pg_gpu_comm_bytes(p);
    return rc;
}

int lf_pg_planned(struct lf_plan_memory *out, lf_pg *p, lf_err *err)
{
    struct lf_plan_bytes b = {0};
    json_t *models = json_object(), *notes = json_array();
    int rc = models && notes ? add_all(p, models, notes, &b, out, err)
                             : lf_fail(err, LF_ENOMEM, "plan: out of memory");
    json_decref(models);
    json_decref(notes);
    return rc;
}

static int count_piece(void *user, const struct lf_plan_piece *q, lf_err *err)
{
    (void)err;
    if (q->cut)
        *(double *)user += (double)q->bytes;
    return 0;
}

/* The turns of n sequences that are as long as they may be. */
static int64_t turns_of(const lf_pg *p, const lf_pg_model *m, int64_t n)
{
    const int64_t each = p->rows / p->context;
    return lf_pg_turns(lf_pg_who(p, m), (n + each - 1) / each);
}

/* What a rank sends in a round beside its updates: for weights before generation, for the key, and
 * for what the reference and the critic say about all sequences. */
static double round_bytes(const lf_pg *p, const struct lf_plan_comm *actor)
{
    const int64_t all = p->c->prompts * p->c->samples;
    const double ranks = actor->ranks;
    double key = 0, bytes = p->generator ? 0 : actor->hold.bytes;
    const lf_pg_model *const of[] = {p->actor, p->critic};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i])
            (void)lf_plan_pieces(lf_pg_model_get_plan(of[i]), LF_P_MASTER, false, count_piece, &key,
                                 NULL);
    bytes += key * (ranks - 1) / ranks;
    if (p->want_ref)
        bytes +=
            p->ref_below
                ? (double)turns_of(p, p->actor, all) * lf_pg_forward_bytes(p->actor, LF_PG_BASE)
                : (double)turns_of(p, p->ref, all) * lf_pg_forward_bytes(p->ref, LF_PG_PACKED);
    if (p->critic)
        bytes += (double)turns_of(p, p->critic, all) * lf_pg_forward_bytes(p->critic, LF_PG_PACKED);
    return bytes;
}

/* What ranks that divide matrices send each other in an update: once, and in each turn. */
static void add_tensor(json_t *comm, const lf_pg *p, const struct lf_plan_moved *once)
{
    const lf_pg_model *const of[] = {p->actor, p->critic};
    struct lf_plan_moved all = *once;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i]) {
            const int64_t turns = turns_of(p, of[i], p->c->minibatch);
            const struct lf_plan_moved micro = lf_pg_micro_tensor(of[i]);
            all.messages += turns * micro.messages;
            all.bytes += (double)turns * micro.bytes;
        }
    json_object_set_new(comm, "tensor_bytes_per_step", json_real(all.bytes));
    json_object_set_new(comm, "tensor_messages_per_step", json_integer(all.messages));
}

/* The same of ranks that divide rows, which have nothing to do once an update. */
static void add_context(json_t *comm, const lf_pg *p)
{
    const lf_pg_model *const of[] = {p->actor, p->critic};
    struct lf_plan_moved all = {0};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i] && lf_pg_who(p, of[i])->context_ranks > 1) {
            const int64_t turns = turns_of(p, of[i], p->c->minibatch);
            const struct lf_plan_moved micro = lf_pg_micro_context(of[i]);
            all.messages += turns * micro.messages;
            all.bytes += (double)turns * micro.bytes;
        }
    json_object_set_new(comm, "context_bytes_per_step", json_real(all.bytes));
    json_object_set_new(comm, "context_messages_per_step", json_integer(all.messages));
}

/* What comes to the rank that gets most, before each round. */
static int most_for_rollout(double *most, const lf_pg *p, lf_err *err)
{
    const struct lf_axes *a = &p->c->axes, *g = &p->at[LF_PG_ROLLOUT].axes;
    const int together = p->who.tensor_ranks * p->at[LF_PG_ROLLOUT].who.tensor_ranks;
    int rc = 0;
    for (int r = 0; r < p->run.ranks && r < together && rc == 0; r++) { /* then they repeat */
        const struct lf_train_who of_a = lf_axes_who(a, r, p->run.ranks),
                                  of_g = lf_axes_who(g, r, p->run.ranks);
        const struct lf_layout la = lf_axes_layout(a, &of_a), lg = lf_axes_layout(g, &of_g);
        lf_pstore *from = lf_pg_model_boxes(p->actor, &la, err),
                  *to = from ? lf_pg_model_boxes(p->generator, &lg, err) : NULL;
        rc = to ? 0 : err && err->rc ? err->rc : LF_ENOMEM;
        if (rc == 0)
            *most =
                fmax(*most, lf_reshard_at_most(lf_pg_model_store(p->actor),
                                               lf_pg_model_store(p->generator), from, to, true));
        lf_pstore_destroy(from);
        lf_pstore_destroy(to);
    }
    return rc;
}

/* What comes to the first rank for the weights that rollouts have: of all of them once in a start,
 * then of those that are trained before each round; and what comes to any rank then, at most. */
static int add_rollout(json_t *comm, const lf_pg *p, lf_err *err)
{
    const lf_pstore *from = lf_pg_model_store(p->actor), *to = lf_pg_model_store(p->generator);
    const struct lf_reshard_moved all = lf_reshard_needs(from, to, false),
                                  round = lf_reshard_needs(from, to, true);
    json_object_set_new(comm, "rollout_bytes_first", json_real(all.received));
    json_object_set_new(comm, "rollout_bytes_per_round", json_real(round.received));
    json_object_set_new(comm, "rollout_copied_per_round", json_real(round.copied));
    double most = 0;
    const int rc = most_for_rollout(&most, p, err);
    json_object_set_new(comm, "rollout_bytes_most", json_real(most));
    return rc;
}

/* What a rank sends, in an update and in a round. */
static json_t *comm_json(const lf_pg *p)
{
    const int64_t of_a = turns_of(p, p->actor, p->c->minibatch),
                  of_k = p->critic ? turns_of(p, p->critic, p->c->minibatch) : 0;
    struct lf_plan_comm a = {0}, k = {0};
    lf_plan_comm(lf_pg_model_get_plan(p->actor), &a);
    if (p->critic)
        lf_plan_comm(lf_pg_model_get_plan(p->critic), &k);
    json_t *comm = json_pack(
        "{s:f,s:I,s:f}", "bytes_per_step",
        a.sent_bytes + k.sent_bytes + (double)of_a * a.micro_bytes + (double)of_k * k.micro_bytes,
        "messages_per_step",
        (json_int_t)(a.messages + k.messages + of_a * a.micro_messages + of_k * k.micro_messages),
        "bytes_per_round", round_bytes(p, &a));
    if (p->who.tensor_ranks > 1 || p->at[LF_PG_CRITIC].who.tensor_ranks > 1)
        add_tensor(comm, p,
                   &(struct lf_plan_moved){a.tensor.messages + k.tensor.messages,
                                           a.tensor.bytes + k.tensor.bytes});
    if (p->who.context_ranks > 1)
        add_context(comm, p);
    return comm;
}

static int plan_members(lf_pg *p, json_t *plan, lf_err *err)
{
    struct lf_plan_bytes b = {0};
    struct lf_plan_memory mem = {0};
    json_t *models = json_object(),
           *notes = json_pack(
               "[s]",
               p->longest < p->c->max_prompt
                   ? "sizes assume the longest prompts that the model's positions leave room "
                     "for; the data may be shorter"
                   : "sizes assume prompts of max_prompt tokens; the data may be shorter");
    int rc = models && notes ? 0 : lf_fail(err, LF_ENOMEM, "plan: out of memory");
    if (rc == 0)
        rc = add_all(p, models, notes, &b, &mem, err);
    double params = (double)lf_pstore_elements(lf_pg_model_store(p->actor));
    double kept =
        (double)lf_weights_bytes(lf_pg_model_store(p->actor), p->c->adapter != NULL, NULL) +
        (p->critic ? (double)lf_weights_bytes(lf_pg_model_store(p->critic), false, NULL) : 0);
    double merged = p->c->adapter ? 4 * params : 0;
    if (rc == 0) {
        json_t *bytes = json_pack(
            "{s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "params", (double)b.params, "grads",
            (double)b.grads, "optimizer", (double)b.optimizer, "activations",
            (double)(b.saved + b.transient), "cache", (double)b.state, "workspace",
            (double)b.workspace, "inputs", (double)b.inputs, "offloaded", (double)b.offloaded,
            "host", mem.host, "device", mem.device, "total", mem.total);
        if (bytes && lf_pg_gpu_comm_bytes(p) > 0)
            json_object_set_new(bytes, "communicators", json_real(lf_pg_gpu_comm_bytes(p)));
        json_t *comm = comm_json(p), *axes = lf_laid_axes(&p->c->axes, &p->who);
        if (axes)
            rc = lf_pg_places_sign(p, axes, err);
        if (rc == 0 && p->generator)
            rc = add_rollout(comm, p, err);
        int64_t n = p->c->prompts * p->c->samples;
        double per_token = lf_train_flops_per_token(&p->actor_flops, &p->mc, p->context, true);
        if (p->critic)
            per_token += lf_train_flops_per_token(&p->critic_flops, &p->mc, p->context, true);
        const struct lf_json_member m[] = {
            {"bytes", bytes},
            {"models", json_incref(models)},
            {"notes", json_incref(notes)},
            {"ranks", json_integer(p->run.ranks)},
            {"comm", comm},
            {"axes", axes},
            {"parameters", json_integer((json_int_t)params)},
            {"steps", json_integer(p->c->steps * lf_pg_updates(p->c, (size_t)n))},
            {"rounds", json_integer(p->c->steps)},
            {"tokens", json_integer(p->c->steps * n * p->context)},
            {"flops_per_step", json_real(per_token * (double)(p->c->minibatch * p->context))},
            {"disk_bytes", json_real((double)(p->c->keep + 2) * kept + merged)},
        };
        const int set = lf_json_set(plan, m, sizeof m / sizeof m[0], "plan", err);
        rc = rc != 0 ? rc : set;
    }
    json_decref(models);
    json_decref(notes);
    return rc;
}

int lf_pg_plan(const struct lf_pg_config *c, json_t *plan, lf_err *err)
{
    lf_pg p = {
        .c = c, .longest = c->max_prompt, .run = {.ranks = c->plan_ranks > 1 ? c->plan_ranks : 1}};
    p.who = lf_axes_who(&c->axes, 0, p.run.ranks);
    lf_pg_places_plan(&p);
    p.reward_with = (struct lf_loaded_ranks){
        .layout = lf_axes_layout(&p.at[LF_PG_REWARD].axes, &p.at[LF_PG_REWARD].who)};
    lf_err why = LF_ERR_INIT;
    int rc = lf_runner_config(&p.mc, c->init_from, &why);
    if (rc == LF_ENOENT) {
        rc = check_layout(&p, err);
        return rc != 0 ? rc : lf_laid_sizeless(plan, &c->axes, &p.who, err);
    }
    if (rc != 0)
        return lf_fail(err, rc, "%s", why.text);
    /* The data tells how long prompts are, and a run refuses what does not fit. */
    if (p.mc.max_positions > c->max_tokens && p.longest > p.mc.max_positions - c->max_tokens)
        p.longest = p.mc.max_positions - c->max_tokens;
    rc = lf_pg_see_plan(&p, err);
    if (rc == 0)
        rc = plan_models(&p, err);
    if (rc == 0)
        rc = plan_members(&p, plan, err);
    lf_pg_close(&p);
    return rc;
}
