/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-ppo: options to engine/post/pg.h. No arithmetic of training here.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/post/pg.h"
#include "stages/infer_common.h"
#include "stages/opts.h"
#include "stages/stage.h"
#include "stages/train_common.h"

/* What an algorithm is: values of options that are not given. */
struct preset {
    const char *name;
    enum lf_pg_advantage advantage;
    enum lf_pg_ratio ratio;
    enum lf_pg_agg agg;
    double clip_low, clip_high, kl_coef;
    bool kl_in_reward;
    enum lf_kl_kind kl;
    bool whiten, dynamic;
    int64_t samples, epochs;
};
/* In the order of option algorithm. */
static const struct preset presets[] = {
    {"ppo", LF_PG_ADV_GAE, LF_RATIO_TOKEN, LF_AGG_TOKEN_MEAN, .2, .2, .05, true, LF_KL_K1, true,
     false, 1, 4},
    {"grpo", LF_PG_ADV_GRPO, LF_RATIO_TOKEN, LF_AGG_SEQ_MEAN_TOKEN_MEAN, .2, .2, 0, false, LF_KL_K3,
     false, false, 8, 1},
    {"rloo", LF_PG_ADV_RLOO, LF_RATIO_TRAJECTORY, LF_AGG_SEQ_MEAN_TOKEN_MEAN, .2, .2, .05, true,
     LF_KL_K1, false, false, 2, 1},
    {"reinforce++", LF_PG_ADV_REINFORCE, LF_RATIO_TOKEN, LF_AGG_TOKEN_MEAN, .2, .2, .01, true,
     LF_KL_K1, true, false, 1, 1},
    {"dapo", LF_PG_ADV_GRPO, LF_RATIO_TOKEN, LF_AGG_TOKEN_MEAN, .2, .28, 0, false, LF_KL_K3, false,
     true, 8, 1},
    {"dr-grpo", LF_PG_ADV_CENTRE, LF_RATIO_TOKEN, LF_AGG_CONST, .2, .2, 0, false, LF_KL_K3, false,
     false, 8, 1},
    {"gspo", LF_PG_ADV_GRPO, LF_RATIO_SEQUENCE, LF_AGG_SEQ_MEAN_TOKEN_MEAN, 3e-4, 4e-4, 0, false,
     LF_KL_K3, false, false, 8, 1},
};

struct ppo {
    lf_arena *arena;
    struct lf_pg_config c;
    struct lf_cmd_opts command;
    lf_tokenizer *tok;
    const char *tokenizer;
    const char **eos;
    size_t n_eos;
    int32_t *end;
    lf_rule **rules;
    size_t n_rules;
};

static void destroy(void *self)
{
    struct ppo *p = self;
    if (!p)
        return;
    for (size_t i = 0; i < p->n_rules; i++)
        lf_rule_destroy(p->rules[i]);
    free(p->rules);
    free(p->eos);
    free(p->end);
    lf_tokenizer_destroy(p->tok);
    lf_arena_destroy(p->arena);
    free(p);
}

static int64_t int_or(const lf_optset *o, const char *name, int64_t other)
{
    return lf_optset_is_set(o, name) ? lf_optset_int(o, name) : other;
}

static double float_or(const lf_optset *o, const char *name, double other)
{
    return lf_optset_is_set(o, name) ? lf_optset_float(o, name) : other;
}

static bool bool_or(const lf_optset *o, const char *name, bool other)
{
    return lf_optset_is_set(o, name) ? lf_optset_bool(o, name) : other;
}

static int choice_or(const lf_optset *o, const char *name, int other)
{
    return lf_optset_is_set(o, name) ? lf_optset_choice(o, name) : other;
}

static void read_algorithm(struct lf_pg_config *c, const lf_optset *o)
{
    const struct preset *a = &presets[lf_optset_choice(o, "algorithm")];
    c->advantage = (enum lf_pg_advantage)choice_or(o, "advantage", (int)a->advantage);
    c->loss.ratio = (enum lf_pg_ratio)choice_or(o, "ratio", (int)a->ratio);
    c->loss.agg = (enum lf_pg_agg)choice_or(o, "aggregation", (int)a->agg);
    c->loss.clip_low = float_or(o, "clip_low", a->clip_low);
    c->loss.clip_high = float_or(o, "clip_high", a->clip_high);
    c->loss.dual_clip = lf_optset_float(o, "dual_clip");
    c->loss.entropy_coef = lf_optset_float(o, "entropy_coef");
    c->loss.agg_length = (double)lf_optset_int(o, "max_tokens");
    c->gamma = lf_optset_float(o, "gamma");
    c->lambda = lf_optset_float(o, "lambda");
    c->group_eps = lf_optset_float(o, "group_eps");
    c->whiten = bool_or(o, "whiten", a->whiten);
    c->whiten_biased = lf_optset_bool(o, "whiten_biased");
    c->whiten_rewards = lf_optset_bool(o, "whiten_rewards");
    c->kl = (struct lf_kl_control){
        lf_optset_float(o, "kl_target") > 0, float_or(o, "kl_coef", a->kl_coef),
        lf_optset_float(o, "kl_target"), (double)lf_optset_int(o, "kl_horizon")};
    c->kl_in_reward = choice_or(o, "kl_in", !a->kl_in_reward) == 0;
    c->kl_est =
        (struct lf_kl_opts){(enum lf_kl_kind)choice_or(o, "kl_estimator", (int)a->kl),
                            lf_optset_bool(o, "kl_straight"), LF_KL_CLAMP_IN, LF_KL_CLAMP_OUT};
    c->loss.kl = c->kl_est;
    c->samples = int_or(o, "samples", a->samples);
    c->epochs = int_or(o, "epochs", a->epochs);
    c->dynamic_sampling = bool_or(o, "dynamic_sampling", a->dynamic);
    c->dynamic_rounds = lf_optset_int(o, "dynamic_rounds");
    c->ptx_data = lf_optset_str(o, "ptx_data");
    c->ptx_coef = lf_optset_float(o, "ptx_coef");
}

static void read_shaping(struct lf_pg_config *c, const lf_optset *o)
{
    c->shaping =
        (struct lf_shaping){.missing = (enum lf_missing_eos)lf_optset_choice(o, "missing_eos"),
                            .missing_value = lf_optset_float(o, "missing_eos_value"),
                            .overlong_max = lf_optset_int(o, "max_tokens"),
                            .overlong_buffer = lf_optset_int(o, "overlong_buffer"),
                            .overlong_factor = lf_optset_float(o, "overlong_factor"),
                            .scale = lf_optset_bool(o, "score_scale"),
                            .clip = lf_optset_float(o, "score_clip")};
}

static void read_training(struct lf_pg_config *c, const lf_optset *o)
{
    struct lf_train_config t = {0};
    lf_train_read_optimizer(&t, o, 0);
    c->steps = lf_optset_int(o, "steps");
    c->prompts = lf_optset_int(o, "prompts");
    c->minibatch = int_or(o, "minibatch", c->prompts * c->samples);
    c->ptx_batch = int_or(o, "ptx_batch", c->minibatch);
    c->max_prompt = lf_optset_int(o, "max_prompt");
    c->max_tokens = lf_optset_int(o, "max_tokens");
    c->temperature = lf_optset_float(o, "temperature");
    c->seed = (uint64_t)lf_optset_int(o, "seed");
    c->schedule = t.schedule;
    c->tail = t.tail;
    c->lr = t.lr;
    c->min_lr = float_or(o, "min_lr", c->schedule == LF_SCHED_CONSTANT ? c->lr : 0);
    c->warmup_steps = t.warmup_steps;
    c->decay_steps = t.decay_steps;
    c->adam = t.adam;
    c->scaler = t.scaler;
    c->clip = t.clip;
    c->critic_lr = lf_optset_float(o, "critic_lr");
    c->critic_warmup = lf_optset_int(o, "critic_warmup");
    c->value_clip = lf_optset_float(o, "value_clip");
}

static void read_operation(struct lf_pg_config *c, const lf_optset *o)
{
    struct lf_train_config t = {0};
    lf_train_read_compute(&t, o);
    lf_train_read_saving(&t, o);
    c->compute = t.compute;
    c->recompute = t.recompute;
    c->threads = t.threads;
    c->device = t.device;
    c->plan_ranks = (int)lf_optset_int(o, "ranks");
    c->rows = lf_optset_int(o, "micro_tokens");
    c->slots = lf_optset_int(o, "batch");
    c->step_rows = lf_optset_int(o, "step_rows");
    c->kv_tokens = lf_optset_int(o, "kv_tokens");
    c->page_tokens = lf_optset_int(o, "page_tokens");
    c->save_interval = t.save_interval;
    c->save_time_s = t.save_time_s;
    c->keep = t.keep;
    c->keep_every = t.keep_every;
    c->show_samples = lf_optset_int(o, "show");
}

static int read_rewards(struct ppo *p, const lf_optset *o, lf_err *err)
{
    struct lf_pg_config *c = &p->c;
    size_t n = lf_optset_count(o, "reward");
    p->rules = lf_calloc(n + 1, sizeof *p->rules, err);
    if (!p->rules)
        return LF_ENOMEM;
    for (; p->n_rules < n; p->n_rules++)
        if (!(p->rules[p->n_rules] =
                  lf_rule_create(lf_optset_str_at(o, "reward", p->n_rules), err)))
            return LF_EINVAL;
    c->rules = p->rules;
    c->n_rules = n;
    c->reward_model = lf_optset_str(o, "reward_model");
    if (c->reward_model) {
        c->reward_model_weight = lf_optset_float(o, "reward_model_weight");
        c->reward_normalized = lf_optset_bool(o, "reward_normalized");
    }
    if (!lf_optset_is_set(o, "reward_command"))
        return 0;
    p->command = (struct lf_cmd_opts){.command = lf_optset_str(o, "reward_command"),
                                      .timeout_s = lf_optset_float(o, "reward_timeout"),
                                      .retries = (int)lf_optset_int(o, "reward_retries"),
                                      .use_fallback = lf_optset_is_set(o, "reward_fallback"),
                                      .fallback = float_or(o, "reward_fallback", 0),
                                      .stop = lf_stop_requested};
    c->command = &p->command;
    c->command_weight = lf_optset_float(o, "reward_command_weight");
    return 0;
}

static int read_paths(struct ppo *p, const lf_optset *o, lf_err *err)
{
    struct lf_pg_config *c = &p->c;
    const char **from;
    size_t n = lf_optset_count(o, "resume_from");
    c->data = lf_optset_str(o, "data");
    c->init_from = lf_optset_str(o, "init_from");
    c->ref_from = lf_optset_str(o, "ref_from");
    c->critic_from = lf_optset_str(o, "critic_from");
    c->replay = lf_optset_str(o, "replay");
    c->out = lf_optset_str(o, "out");
    c->metrics = lf_optset_str(o, "metrics");
    p->tokenizer = lf_optset_str(o, "tokenizer");
    from = lf_arena_alloc(p->arena, n + 1, sizeof *from, err);
    if (!from)
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++)
        from[i] = lf_optset_str_at(o, "resume_from", i);
    c->resume_from = from;
    c->n_resume_from = n;
    return lf_infer_strings(&p->eos, &p->n_eos, o, "eos", err);
}

static int read_parts(struct ppo *p, const lf_optset *o, lf_err *err)
{
    struct lf_train_config t = {0};
    int rc = lf_train_read_parts(&t, p->arena, o, err);
    p->c.adapter = t.adapter;
    p->c.freeze = t.freeze;
    p->c.n_freeze = t.n_freeze;
    return rc;
}

static int setup(void **self, const lf_optset *o, lf_err *err)
{
    struct ppo *p = lf_calloc(1, sizeof *p, err);
    if (!p)
        return LF_ENOMEM;
    *self = p;
    p->arena = lf_arena_create(err);
    if (!p->arena)
        return LF_ENOMEM;
    read_algorithm(&p->c, o);
    read_shaping(&p->c, o);
    read_training(&p->c, o);
    read_operation(&p->c, o);
    int rc = read_paths(p, o, err);
    rc = rc ? rc : read_rewards(p, o, err);
    rc = rc ? rc : read_parts(p, o, err);
    rc = rc ? rc : lf_pg_check(&p->c, err);
    if (!rc && !p->c.out && !lf_optset_bool(o, "plan"))
        rc = lf_fail(err, LF_EINVAL,
                     "--out is missing: the directory to write checkpoints and rollouts below");
    return rc;
}

static int plan(void *self, json_t *out, lf_err *err)
{
    struct ppo *p = self;
    return lf_pg_plan(&p->c, out, err);
}

static int run(void *self, lf_comm *comm, lf_err *err)
{
    struct ppo *p = self;
    int rc = lf_infer_tokenizer(&p->tok, p->tokenizer, err);
    rc =
        rc ? rc
           : lf_infer_end_tokens(&p->end, &p->c.n_end, p->tok, p->tokenizer, p->eos, p->n_eos, err);
    p->c.tokenizer = p->tok;
    p->c.end = p->end;
    return rc ? rc : lf_pg_run(&p->c, &lf_train_stage_sink, comm, err);
}

static void profile(void *self, struct lf_profile *p)
{
    ((struct ppo *)self)->c.profile = p;
}

int main(int argc, char **argv)
{
    const lf_stage stage = {.table = &lf_ppo_opts,
                            .setup = setup,
                            .plan = plan,
                            .run = run,
                            .destroy = destroy,
                            .ranks = true,
                            .profile = profile,
                            .makes = lf_train_makes,
                            .continues = true};
    return lf_stage_main(&stage, argc, argv);
}
