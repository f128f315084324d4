/* SPDX-License-Identifier: Apache-2.0
 *
 * Policy-gradient training. A round generates samples, scores them, computes advantages and makes a
 * few epochs of updates. PPO, GRPO, RLOO, REINFORCE++, DAPO, Dr. GRPO and GSPO are settings of one
 * loop. Generation and training of the actor share one set of weights and one engine. So the
 * log-probability of a drawn token is that of the training graph, bit for bit; the loop reports the
 * difference at every step (`mismatch`). Where rollouts have a layout of their own (which `fast`
 * allows), generation has weights of its own, to which those that are trained move before a round
 * (reshard.h).
 *
 * A run leaves these below out:
 *   checkpoints/step-NNNNNNNN/   as in pretraining; NNNNNNNN counts trained mini-batches
 *   checkpoint/                  "model/..." is the actor, "critic/..." the critic
 *   adapter/                     the adapter and the critic, where there is an adapter. checkpoint/
 *                                is then init_from with the adapter merged; intermediate
 *                                checkpoints hold the adapter alone
 *   best/                        with keep_best: the checkpoint of the best round's policy,
 *                                published before the final one; until then best-step-NNNNNNNN/
 *   rollouts/step-NNNNNNNN.h5    every round (rollout.h); NNNNNNNN counts rounds from 1
 *   rollouts/step-NNNNNNNN.part  the finished sequences of an unfinished round, with their scores;
 *                                rank R > 0 writes .part-R
 *
 * Invariants
 *   1. A checkpoint holds everything that later rounds depend on: weights and moments of both
 *      models, counters, loss scales, KL coefficient, running statistics and the key of the current
 *      round, whose file is the rollout buffer.
 *   2. A round is a function of its key: (weights, prompts, sampling, seed). A file or a part is
 *      used again only under its key. So a run that is killed anywhere ends with the same weights
 *      and metrics, bit for bit.
 *      What it generates with is part of the key too, where that is not what it trains.
 *   3. Ranks share the prompts of a round and the micro-batches of an update. Every rank holds the
 *      whole round, so advantages and whitening are over all of it. A round from equal weights has
 *      the same bits for any number of ranks; gradients differ by the order of f32 sums.
 */
#ifndef LF_POST_PG_H
#define LF_POST_PG_H

#include <jansson.h>

#include "engine/comm/comm.h"
#include "engine/graph/plan.h"
#include "engine/model/adapter.h"
#include "engine/post/policy_loss.h"
#include "engine/post/reward.h"
#include "engine/post/samples.h"
#include "engine/post/shaping.h"
#include "engine/text/token/tokenizer.h"
#include "engine/train/axes.h"
#include "engine/train/run.h"
#include "engine/train/scaler.h"
#include "engine/train/schedule.h"
#include "engine/train/zero.h"

enum lf_pg_advantage {
    LF_PG_ADV_GAE = 0,
    LF_PG_ADV_GRPO,
    LF_PG_ADV_CENTRE, /* Dr. GRPO */
    LF_PG_ADV_RLOO,
    LF_PG_ADV_REINFORCE, /* REINFORCE++: discounted sum of future rewards, whitened */
    LF_PG_ADV_BASELINE   /* REINFORCE++-baseline: the mean of the group is subtracted first */
};

/* A mean over a round, higher is better. In the order of the choices of the option. */
enum lf_pg_best_metric { LF_PG_BEST_SCORE, LF_PG_BEST_REWARD };

/* What may have a layout of its own: generation, and each model beside the actor. */
enum lf_pg_place_of { LF_PG_ROLLOUT, LF_PG_REFERENCE, LF_PG_REWARD, LF_PG_CRITIC, LF_PG_PLACES };

struct lf_pg_config {
    /* collects times (engine/graph/profile.h); NULL: none */
    struct lf_profile *profile;
    const char *data, *init_from; /* prompts (shards); checkpoint of the actor */
    /* reference; NULL: init_from, which with an adapter is the actor without it and no second
     * model */
    const char *ref_from;
    const char *critic_from; /* NULL: init_from with a head of zeros */
    const char *replay; /* directory of rollouts to train on instead of generation; NULL: none */
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
    /* shards of documents mixed into the actor's updates (PPO-ptx, Ouyang et al. 2022); NULL:
     * none */
    const char *ptx_data;
    double ptx_coef;       /* coefficient of its mean loss per trained token */
    int64_t ptx_batch;     /* documents per update */
    bool dynamic_sampling; /* groups of equal scores are replaced */
    int64_t dynamic_rounds;

    int64_t steps;             /* rounds */
    int64_t prompts, samples;  /* of a round: prompts, completions of each */
    int64_t minibatch, epochs; /* sequences of an update; 0 epochs: generate only */
    int64_t max_prompt, max_tokens;
    /* prompts with pictures: most patches and tiles of a micro-batch (max_tiles 0: a sixteenth of
     * the patches); 0: prompts are text */
    int64_t max_patches, max_tiles;
    double temperature;
    uint64_t seed;

    enum lf_schedule_kind schedule;
    enum lf_schedule_tail tail;
    int64_t warmup_steps, decay_steps; /* rounds */
    double hours; /* bound on the time trained over all starts (engine/train/early.h); 0: none */
    /* lf_pg_plan: ranks to plan for; lf_pg_run takes those of its comm */
    int plan_ranks;
    struct lf_axes axes;
    /* layouts of their own over the same ranks, by the enumeration below: how many ranks divide
     * matrices; 0: as axes says */
    int tensor_of[LF_PG_PLACES];
    /* fast kernels: what is generated need not have the bits of what is trained */
    bool fast;
    struct lf_zero zero; /* what ranks divide of actor, critic and, with 3, reference */
    /* adapter of the actor; NULL: its weights are trained */
    const struct lf_adapter_config *adapter;
    /* patterns over names of tensors of the actor that are not trained */
    const char *const *freeze;
    size_t n_freeze;
    const struct lf_lr_scale *lr_scale; /* of tensors of the actor */
    size_t n_lr_scale;
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
    bool reward_normalized; /* by the mean and standard deviation that are stored with it */

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
    /* Keep the weights that made the best round as out/best, by best_metric. A round is made by the
     * weights that the round before it left, so the last ones are never measured. */
    bool keep_best;
    enum lf_pg_best_metric best_metric;
    int64_t patience;  /* end behind the round that is so many without a better one; 0: never */
    lf_samples *guest; /* continued by the policy's generator after rounds; NULL: none */
    int64_t sample_interval; /* rounds; there is a visit after the last one too */

    const char *out, *metrics;
    bool mfu;                     /* find the peak at the start and tell the share of it */
    double gpu_interval_s;        /* between two samples of the GPU's use; 0: none */
    struct lf_copies_opts copies; /* of the metrics */
    const char *const *resume_from;
    size_t n_resume_from;
};

/* LF_EINVAL: settings contradict each other; the message uses the names of the options of the
 * stage. */
int lf_pg_check(const struct lf_pg_config *c, lf_err *err);
/* Adds parameters, bytes (by model, and together), steps and notes to plan. */
int lf_pg_plan(const struct lf_pg_config *c, json_t *plan, lf_err *err);
/* Runs to the end. comm has the ranks, which see the same files; NULL: one rank. LF_EINTR: stopped
 * at a good checkpoint. LF_ENUMERIC: a number is not finite. */
int lf_pg_run(const struct lf_pg_config *c, const struct lf_train_sink *sink, lf_comm *comm,
              lf_err *err);

#endif
