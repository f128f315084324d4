/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-ppo: options to engine/post/pg.h. No arithmetic of training here.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "stages/infer_common.h"
#include "stages/ppo.h"
#include "stages/stage.h"

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

static void destroy(void *self)
{
    struct ppo *p = self;
    if (!p)
        return;
    for (size_t i = 0; i < p->n_rules; i++)
        lf_rule_destroy(p->rules[i]);
    free(p->rules);
    lf_train_samples_close(&p->samples);
    free(p->end);
    lf_tokenizer_destroy(p->tok);
    lf_arena_destroy(p->arena);
    free(p);
}

static void take_preset(struct ppo *p)
{
    const struct preset *a = &presets[p->algorithm];
    struct lf_pg_config *c = &p->c;
    c->advantage = a->advantage;
    c->loss.ratio = a->ratio;
    c->loss.agg = a->agg;
    c->loss.clip_low = a->clip_low;
    c->loss.clip_high = a->clip_high;
    c->kl.beta = a->kl_coef;
    p->kl_in_loss = !a->kl_in_reward;
    c->kl_est.kind = a->kl;
    c->whiten = a->whiten;
    c->dynamic_sampling = a->dynamic;
    c->samples = a->samples;
    c->epochs = a->epochs;
}

/* What follows from the options that are there now. */
static void complete(struct ppo *p, const lf_optset *o)
{
    struct lf_pg_config *c = &p->c;
    c->kl.adaptive = c->kl.target > 0;
    c->kl_in_reward = !p->kl_in_loss;
    c->kl_est.clamp_in = LF_KL_CLAMP_IN;
    c->kl_est.clamp_out = LF_KL_CLAMP_OUT;
    c->loss.kl = c->kl_est;
    c->loss.agg_length = (double)c->max_tokens;
    c->shaping.overlong_max = c->max_tokens;
    if (!c->minibatch)
        c->minibatch = c->prompts * c->samples;
    if (!c->ptx_batch)
        c->ptx_batch = c->minibatch;
    if (c->min_lr < 0)
        c->min_lr = c->schedule == LF_SCHED_CONSTANT ? c->lr : 0;
    lf_train_read_scale(&c->scaler, &p->g, o);
    c->fast = p->numeric == 1;
    c->compute = lf_stage_dtype(p->g.precision);
    c->threads = lf_stage_threads(o);
    c->device = lf_stage_device(o);
    c->plan_ranks = (int)lf_optset_int(o, "ranks");
}

static int read_rules(struct ppo *p, lf_err *err)
{
    const size_t n = p->rewards.n;
    p->rules = lf_calloc(n + 1, sizeof *p->rules, err);
    if (!p->rules)
        return LF_ENOMEM;
    for (; p->n_rules < n; p->n_rules++)
        if (!(p->rules[p->n_rules] = lf_rule_create(p->rewards.v[p->n_rules], err)))
            return LF_EINVAL;
    p->c.rules = p->rules;
    p->c.n_rules = n;
    return 0;
}

/* Options of a reward model and of a command have no effect without one. */
static void read_scorers(struct ppo *p, const lf_optset *o)
{
    struct lf_pg_config *c = &p->c;
    struct lf_cmd_opts *cmd = &p->command;
    const void *const of_command[] = {&cmd->timeout_s, &cmd->retries, &cmd->fallback,
                                      &c->command_weight};
    if (!c->reward_model) {
        lf_optset_unused(o, &c->reward_model_weight);
        lf_optset_unused(o, &c->reward_normalized);
        c->reward_model_weight = 0;
        c->reward_normalized = false;
    }
    if (cmd->command) {
        cmd->use_fallback = lf_optset_given(o, &cmd->fallback);
        cmd->stop = lf_stop_requested;
        c->command = cmd;
        return;
    }
    for (size_t i = 0; i < sizeof of_command / sizeof *of_command; i++)
        lf_optset_unused(o, of_command[i]);
    c->command_weight = 0;
}

static void read_paths(struct lf_pg_config *c, const lf_optset *o)
{
    const lf_opt_list from = lf_optset_list(o, "resume_from");
    c->out = lf_optset_str(o, "out");
    c->metrics = lf_optset_str(o, "metrics");
    c->resume_from = from.v;
    c->n_resume_from = from.n;
}

static int read_parts(struct ppo *p, lf_err *err)
{
    struct lf_train_config t = {0};
    int rc = lf_train_read_parts(&t, &p->g, p->arena, err);
    p->c.adapter = t.adapter;
    p->c.freeze = t.freeze;
    p->c.n_freeze = t.n_freeze;
    p->c.lr_scale = t.lr_scale;
    p->c.n_lr_scale = t.n_lr_scale;
    return rc;
}

/* A sample takes no more of the policy's cache than a completion does. */
static int read_samples(struct ppo *p, const lf_optset *o, lf_err *err)
{
    struct lf_train_samples *q = &p->samples;
    int rc = lf_train_samples_check(q, o, false, err);
    if (rc == 0 && lf_optset_given(o, &q->tokens) && q->tokens > p->c.max_tokens)
        return lf_fail(err, LF_EINVAL, "sample_tokens = %lld is more than max_tokens = %lld",
                       (long long)q->tokens, (long long)p->c.max_tokens);
    if (q->tokens > p->c.max_tokens)
        q->tokens = p->c.max_tokens;
    p->c.sample_interval = q->interval;
    return rc;
}

static int open_samples(struct ppo *p, lf_err *err)
{
    struct lf_train_samples *q = &p->samples;
    const struct lf_pg_config *c = &p->c;
    struct lf_samples_opts o =
        lf_train_samples_opts(q, c->max_prompt + c->max_tokens, c->compute, c->seed);
    if (!q->interval)
        return 0;
    o.tok = p->tok;
    o.temperature = c->temperature;
    o.defaults.end = p->end;
    o.defaults.n_end = c->n_end;
    q->chat.tokenizer_path = p->tokenizer;
    int rc = lf_chat_in_load(&q->chat, p->tok, &o.defaults, err);
    if (rc == 0 && !(q->samples = lf_samples_create(&o, err)))
        rc = err && err->rc ? err->rc : LF_ENOMEM;
    p->c.guest = q->samples;
    return rc;
}

static int setup(void **self, lf_optset *o, lf_err *err)
{
    struct ppo *p = lf_calloc(1, sizeof *p, err);
    if (!p)
        return LF_ENOMEM;
    *self = p;
    p->arena = lf_arena_create(err);
    if (!p->arena)
        return LF_ENOMEM;
    p->c.min_lr = p->g.loss_scale = -1; /* not given */
    lf_optset_fill(o, p);               /* the algorithm, */
    take_preset(p);
    lf_optset_fill(o, p); /* and what is given beside it */
    complete(p, o);
    read_paths(&p->c, o);
    read_scorers(p, o);
    int rc = read_rules(p, err);
    if (rc == 0)
        rc = read_parts(p, err);
    if (rc == 0)
        rc = read_samples(p, o, err);
    if (rc == 0)
        rc = lf_pg_check(&p->c, err);
    if (rc == 0 && !p->c.out && !lf_optset_bool(o, "plan"))
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
    rc = rc != 0 ? rc
                 : lf_infer_end_tokens(&p->end, &p->c.n_end, p->tok, p->tokenizer, p->eos.v,
                                       p->eos.n, err);
    p->c.tokenizer = p->tok;
    p->c.end = p->end;
    if (rc == 0)
        rc = open_samples(p, err);
    return rc != 0 ? rc : lf_pg_run(&p->c, &lf_train_stage_sink, comm, err);
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
