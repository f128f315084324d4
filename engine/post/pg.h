/* SPDX-License-Identifier: Apache-2.0
 *
 * Policy-gradient training: rounds of sample -> score -> advantages -> a few epochs of updates.
 * PPO, GRPO, RLOO, REINFORCE++, DAPO, Dr. GRPO and GSPO are settings of one loop. The actor that
 * generates is the actor that is trained: one set of weights, one engine, so the log-probability of
 * a drawn token is that of the training graph, bit for bit; the loop says so at every step
 * (`mismatch`).
 *
 * What a run leaves below out:
 *   checkpoints/step-NNNNNNNN/   as pretraining has them; NNNNNNNN counts mini-batches trained.
 *   checkpoint/                  "model/..." is the actor, "critic/..." the critic
 *   adapter/                     with an adapter: the adapter and the critic. checkpoint/ is the
 *                                policy that the adapter makes of init_from; the intermediate
 *                                checkpoints hold the adapter alone
 *   rollouts/step-NNNNNNNN.h5    every round (rollout.h); NNNNNNNN counts rounds from 1
 *   rollouts/step-NNNNNNNN.part  a round under way: the sequences that are finished, with their
 *                                scores; rank R > 0 writes .part-R
 *
 * Invariants
 *   1. A checkpoint holds all that what follows depends on: weights and moments of both models,
 *      counters, loss scales, KL coefficient, running statistics and the key of the round under
 *      way, whose file is the rollout buffer.
 *   2. A round is a function of (weights, prompts, sampling, seed): its key. A file or a part is
 *      used again only under its key, so a run that is killed anywhere ends with the same weights
 *      and metrics, bit for bit.
 *   3. Ranks share the prompts of a round and the micro-batches of an update. Every rank holds the
 *      whole round, so advantages and whitening are over all of it; a round from equal weights has
 *      the same bits for any number of ranks, gradients differ by the order of f32 sums.
 */
#ifndef LF_POST_PG_H
#define LF_POST_PG_H

#include <jansson.h>

#include "engine/comm/comm.h"
#include "engine/graph/plan.h"
#include "engine/model/adapter.h"
#include "engine/post/policy_loss.h"
#include "engine/post/reward.h"
#include "engine/post/shaping.h"
#include "engine/text/token/tokenizer.h"
#include "engine/train/run.h"
#include "engine/train/scaler.h"
#include "engine/train/schedule.h"

enum lf_pg_advantage {
    LF_PG_ADV_GAE = 0,
    LF_PG_ADV_GRPO,
    LF_PG_ADV_CENTRE, /* Dr. GRPO */
    LF_PG_ADV_RLOO,
    LF_PG_ADV_REINFORCE, /* REINFORCE++: discounted sum of what is to come, whitened */
    LF_PG_ADV_BASELINE   /* REINFORCE++-baseline: the group's mean off the score first */
};

struct lf_pg_config {
    /* engine/graph/profile.h: collects where the time goes; NULL: nobody does */
    struct lf_profile *profile;
    const char *data, *init_from; /* prompts (shards), the actor's checkpoint */
    /* NULL: init_from; with an adapter that is the actor without it, no second model */
    const char *ref_from;
    const char *critic_from; /* NULL: init_from with a head of zeros */
    const char *replay; /* directory of rollouts to train on instead of generating; NULL: none */
    const lf_tokenizer *tokenizer; /* NULL: completions have no text; rules and commands need one */
    const int32_t *end;
    size_t n_end;

    enum lf_pg_advantage advantage;
    double gamma, lambda, group_eps;
    bool whiten, whiten_biased, whiten_rewards;
    struct lf_pg_opts loss; /* kl_coef: 0 where the KL is in the reward */
    bool kl_in_reward;
    struct lf_kl_control kl;
    struct lf_kl_opts kl_est;
    struct lf_shaping shaping;
    /* shards of plain text mixed into the actor's updates (PPO-ptx, Ouyang et al. 2022); NULL:
     * none */
    const char *ptx_data;
    double ptx_coef;       /* of its mean loss of a token */
    int64_t ptx_batch;     /* documents of an update */
    bool dynamic_sampling; /* groups of equal scores are replaced */
    int64_t dynamic_rounds;

    int64_t steps;             /* rounds */
    int64_t prompts, samples;  /* of a round: prompts, completions of each */
    int64_t minibatch, epochs; /* sequences of an update; 0 epochs: generate only */
    int64_t max_prompt, max_tokens;
    double temperature;
    uint64_t seed;

    enum lf_schedule_kind schedule;
    enum lf_schedule_tail tail;
    int64_t warmup_steps, decay_steps; /* rounds */
    int plan_ranks;                    /* lf_pg_plan: ranks to plan for; a run asks its comm */
    const struct lf_adapter_config *adapter; /* of the actor; NULL: its weights are trained */
    const char *const *freeze;               /* patterns over the actor's tensors that stay */
    size_t n_freeze;
    double lr, min_lr, clip;
    struct lf_adamw_opts adam;
    struct lf_scaler_opts scaler; /* actor and critic have a scale each */
    double critic_lr, value_clip;
    int64_t critic_warmup; /* rounds that train the critic alone */

    lf_rule *const *rules;
    size_t n_rules;
    const struct lf_cmd_opts *command; /* NULL: none */
    double command_weight;
    const char *reward_model; /* checkpoint; NULL: none */
    double reward_model_weight;
    bool reward_normalized; /* by the mean and deviation stored with it */

    enum lf_dtype compute;
    enum lf_recompute recompute;
    int threads;
    enum lf_device device;
    int64_t rows; /* tokens of a micro-batch; at least the longest sequence */
    int64_t slots, step_rows, kv_tokens, page_tokens;

    int64_t save_interval; /* rounds; 0: by time only */
    double save_time_s;
    int keep;
    int64_t keep_every;
    int64_t show_samples; /* completions shown at each log line */

    const char *out, *metrics;
    const char *const *resume_from;
    size_t n_resume_from;
};

/* LF_EINVAL: settings that contradict each other, worded with the stage's option names. */
int lf_pg_check(const struct lf_pg_config *c, lf_err *err);
/* Adds parameters, bytes (by model, and together), steps and notes to plan. */
int lf_pg_plan(const struct lf_pg_config *c, json_t *plan, lf_err *err);
/* LF_EINTR: stopped at a good checkpoint. LF_ENUMERIC: not finite. comm: the ranks, which see the
 * same files; NULL: alone. */
int lf_pg_run(const struct lf_pg_config *c, const struct lf_train_sink *sink, lf_comm *comm,
              lf_err *err);

#endif
