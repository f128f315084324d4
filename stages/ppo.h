/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct that the options of lf-ppo fill, for its main and its option table.
 */
#ifndef LF_STAGES_PPO_H
#define LF_STAGES_PPO_H

#include "engine/post/pg.h"
#include "stages/train_common.h"
#include "stages/train_opts.h"
#include "stages/train_samples.h"

struct ppo {
    lf_arena *arena;
    struct lf_pg_config c;
    struct lf_train_given g;
    int32_t algorithm; /* ppo|grpo|rloo|reinforce++|dapo|dr-grpo|gspo */
    int32_t numeric;   /* invariant|fast */
    bool kl_in_loss;
    lf_opt_list rewards, eos;
    struct lf_cmd_opts command;
    lf_tokenizer *tok;
    const char *tokenizer;
    int32_t *end;
    lf_rule **rules;
    size_t n_rules;
    struct lf_train_samples samples;
};

#endif
