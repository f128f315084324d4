/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-ppo. Those without a default here that belong to an algorithm take its value: see the table in ppo.c.
 */
#include "stages/train_opts.h"

#define ID LF_OPT_IDENTITY
#define NUM LF_OPT_NUMERIC
#define OP LF_OPT_OPERATIONAL

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    {"data", LF_OPT_PATH, ID, LF_OPT_REQUIRED | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL, "shards artifact of prompts"},
    {"init_from", LF_OPT_PATH, ID, LF_OPT_REQUIRED | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL, "checkpoint that the policy begins with"},
    {"tokenizer", LF_OPT_PATH, ID, LF_OPT_REQUIRED | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "tokenizer artifact, file or directory: rewards are about text"},
    {"eos", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "end token by its text; unset: those of generation_config.json beside the tokenizer, else its end of document"},
    {"ref_from", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL, "checkpoint of the reference policy; unset: init_from"},
    {"critic_from", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "checkpoint that the critic begins with, such as a reward model; unset: init_from with a head of zeros"},
    {"replay", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "out directory of another run: train on its rollouts instead of generating"},

    {"algorithm", LF_OPT_ENUM, ID, 0, "grpo", 0, 0, "ppo|grpo|rloo|reinforce++|dapo|dr-grpo|gspo", NULL,
     "values of the options that depend on it; each of them can be given alone"},
    {"advantage", LF_OPT_ENUM, ID, 0, NULL, 0, 0, "gae|grpo|centre|rloo|reinforce++|reinforce++-baseline", NULL,
     "how rewards become advantages; gae has a critic; unset: by algorithm"},
    {"ratio", LF_OPT_ENUM, ID, 0, NULL, 0, 0, "token|sequence|trajectory", NULL,
     "of each token, of the mean over a sequence, of its sum; unset: by algorithm"},
    {"aggregation", LF_OPT_ENUM, ID, 0, NULL, 0, 0, "token-mean|seq-mean-token-mean|seq-mean-token-sum|const", NULL,
     "how losses of tokens become one; const divides by max_tokens; unset: by algorithm"},
    {"clip_low", LF_OPT_FLOAT, ID, 0, NULL, 0, 1, NULL, NULL, "ratios below 1 minus this are clipped; unset: by algorithm"},
    {"clip_high", LF_OPT_FLOAT, ID, 0, NULL, 0, 1000, NULL, NULL, "ratios above 1 plus this are clipped; unset: by algorithm"},
    {"dual_clip", LF_OPT_FLOAT, ID, 0, "0", 0, 1000, NULL, NULL, "bound on the loss where the advantage is negative; 0: none"},
    {"gamma", LF_OPT_FLOAT, ID, 0, "1", 0, 1, NULL, NULL, "discount of later rewards"},
    {"lambda", LF_OPT_FLOAT, ID, 0, "0.95", 0, 1, NULL, NULL, "of generalised advantage estimation, with advantage = gae"},
    {"group_eps", LF_OPT_FLOAT, ID, 0, "1e-4", 0, 1, NULL, NULL, "added to a group's standard deviation"},
    {"whiten", LF_OPT_BOOL, ID, 0, NULL, 0, 0, NULL, NULL, "advantages get mean 0 and variance 1 over the round; unset: by algorithm"},
    {"whiten_biased", LF_OPT_BOOL, ID, 0, "no", 0, 0, NULL, NULL, "divide that variance by n instead of n - 1"},
    {"whiten_rewards", LF_OPT_BOOL, ID, 0, "no", 0, 0, NULL, NULL, "rewards get variance 1 over the round, their mean is kept"},
    {"kl_coef", LF_OPT_FLOAT, ID, 0, NULL, 0, 100, NULL, NULL, "of the KL to the reference; 0: no reference; unset: by algorithm"},
    {"kl_in", LF_OPT_ENUM, ID, 0, NULL, 0, 0, "reward|loss", NULL, "where the KL is counted; unset: by algorithm"},
    {"kl_estimator", LF_OPT_ENUM, ID, 0, NULL, 0, 0, "k1|k2|k3", NULL, "estimate of the KL of a token; unset: by algorithm"},
    {"kl_straight", LF_OPT_BOOL, ID, 0, "no", 0, 0, NULL, NULL, "in the loss: the value of the estimator with the gradient of k2"},
    {"kl_target", LF_OPT_FLOAT, ID, 0, "0", 0, 1e6, NULL, NULL, "KL of a completion that kl_coef adapts to; 0: kl_coef is fixed"},
    {"kl_horizon", LF_OPT_COUNT, ID, 0, "10k", 1, 1e12, NULL, "completions", "how slowly it adapts"},
    {"entropy_coef", LF_OPT_FLOAT, ID, 0, "0", -10, 10, NULL, NULL, "of the entropy that is added to the objective"},

    {"reward", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "rule, [WEIGHT *] KIND:ARGUMENT; kinds: exact, regex, number, number-strict, format, length; rules are added up"},
    {"reward_command", LF_OPT_STR, ID, 0, NULL, 0, 0, NULL, NULL, "program that answers a JSON line per completion with a number"},
    {"reward_command_weight", LF_OPT_FLOAT, ID, 0, "1", -1e6, 1e6, NULL, NULL, "of its score"},
    {"reward_timeout", LF_OPT_FLOAT, OP, 0, "60", 0.01, 1e6, NULL, "seconds", "for one of its answers"},
    {"reward_retries", LF_OPT_INT, OP, 0, "2", 0, 1000, NULL, NULL, "times it is started again and asked the same"},
    {"reward_fallback", LF_OPT_FLOAT, ID, 0, NULL, -1e6, 1e6, NULL, NULL, "score when it fails for good; unset: the run stops"},
    {"reward_model", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL, "checkpoint of a reward model"},
    {"reward_model_weight", LF_OPT_FLOAT, ID, 0, "1", -1e6, 1e6, NULL, NULL, "of its score"},
    {"reward_normalized", LF_OPT_BOOL, ID, 0, "no", 0, 0, NULL, NULL, "subtract the mean and divide by the deviation stored with it"},
    {"missing_eos", LF_OPT_ENUM, ID, 0, "keep", 0, 0, "keep|penalty|replace|scale", NULL,
     "score of a completion that was cut off: as it is, minus, replaced by, times missing_eos_value"},
    {"missing_eos_value", LF_OPT_FLOAT, ID, 0, "1", -1e6, 1e6, NULL, NULL, "with missing_eos other than keep"},
    {"overlong_buffer", LF_OPT_COUNT, ID, 0, "0", 0, 1e9, NULL, "tokens", "the last so many of max_tokens cost reward, linearly; 0: none"},
    {"overlong_factor", LF_OPT_FLOAT, ID, 0, "1", 0, 1e6, NULL, NULL, "what a completion of max_tokens costs"},
    {"score_scale", LF_OPT_BOOL, ID, 0, "no", 0, 0, NULL, NULL, "divide scores by their running standard deviation"},
    {"score_clip", LF_OPT_FLOAT, ID, 0, "0", 0, 1e6, NULL, NULL, "bound on scores; 0: none"},
    {"ptx_data", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL, "shards artifact of plain text mixed into updates of the policy"},
    {"ptx_coef", LF_OPT_FLOAT, ID, 0, "0", 0, 1e6, NULL, NULL, "of its mean loss of a token, with ptx_data"},
    {"ptx_batch", LF_OPT_COUNT, ID, 0, NULL, 1, 1e9, NULL, "documents", "of an optimizer step; unset: as many as minibatch"},
    {"dynamic_sampling", LF_OPT_BOOL, ID, 0, NULL, 0, 0, NULL, NULL,
     "take other prompts in the place of those whose completions all score the same; unset: by algorithm"},
    {"dynamic_rounds", LF_OPT_COUNT, ID, 0, "10", 1, 1e6, NULL, NULL, "times that is done in a round"},

    {"steps", LF_OPT_COUNT, ID, LF_OPT_REQUIRED, NULL, 1, 1e9, NULL, "rounds", "rounds of generating and training"},
    {"prompts", LF_OPT_COUNT, ID, 0, "32", 1, 1e6, NULL, NULL, "prompts of a round"},
    {"samples", LF_OPT_COUNT, ID, 0, NULL, 1, 1e5, NULL, NULL, "completions of each prompt; unset: by algorithm"},
    {"minibatch", LF_OPT_COUNT, ID, 0, NULL, 1, 1e9, NULL, "completions", "of an optimizer step; unset: the whole round"},
    {"epochs", LF_OPT_COUNT, ID, 0, NULL, 0, 1e4, NULL, NULL, "times a round is trained on; 0: generate only; unset: by algorithm"},
    {"max_prompt", LF_OPT_COUNT, ID, 0, "512", 1, 1e9, NULL, "tokens", "longer prompts are left out and counted"},
    {"max_tokens", LF_OPT_COUNT, ID, 0, "128", 1, 1e9, NULL, "tokens", "longest completion"},
    {"temperature", LF_OPT_FLOAT, ID, 0, "1", 0.01, 1000, NULL, NULL,
     "divides the logits wherever a probability is computed; every token can be drawn (no top-k, no top-p)"},
    {"seed", LF_OPT_INT, ID, 0, "1", 0, 0, NULL, NULL, "of prompts, draws and shuffles"},

    LF_TRAIN_OPTIMIZER_ROWS("1e-6", "peak learning rate of the policy",
                            "learning rate at the end; unset: 0, or lr with schedule = constant", "constant", "rounds",
                            "0.999", "0"),
    LF_TRAIN_SCALE_ROWS,
    LF_TRAIN_STATE_ROWS,
    {"critic_lr", LF_OPT_FLOAT, ID, 0, "1e-5", 1e-12, 10, NULL, NULL, "peak learning rate of the critic; the same course"},
    {"critic_warmup", LF_OPT_COUNT, ID, 0, "0", 0, 1e9, NULL, "rounds", "rounds that train the critic alone"},
    {"value_clip", LF_OPT_FLOAT, ID, 0, "0.2", 0, 1e6, NULL, NULL, "how far a value may move from that of the round before it is clipped; 0: any"},

    LF_TRAIN_PARTS_ROWS,

    LF_TRAIN_COMPUTE_ROWS(LF_TRAIN_PRECISIONS),
    {"micro_tokens", LF_OPT_COUNT, NUM, 0, "1024", 2, 1 << 24, NULL, "tokens", "of a micro-batch; raised to the longest sequence"},
    {"batch", LF_OPT_COUNT, OP, 0, "32", 1, 65536, NULL, NULL, "completions generated at a time"},
    {"step_rows", LF_OPT_COUNT, OP, 0, "128", 1, 65536, NULL, "tokens", "most tokens of a step of generation, prompts included"},
    {"kv_tokens", LF_OPT_COUNT, OP, 0, "0", 0, 1e12, NULL, "tokens", "size of the cache; 0: batch times the longest sequence"},
    {"page_tokens", LF_OPT_INT, OP, 0, "64", 64, 65536, NULL, "tokens", "size of a page, a multiple of 64"},
    LF_TRAIN_SAVING_ROWS("rounds", "mini-batches"),
    {"show", LF_OPT_COUNT, OP, 0, "0", 0, 1000, NULL, NULL, "completions of each round that are logged with their rewards"},
    LF_TRAIN_PROFILE_ROWS,
    LF_TRAIN_DEVICE_ROWS,
};

static const char *const outputs[] = {"checkpoint", "adapter", NULL};

const lf_opt_table lf_ppo_opts = {
    .stage = "ppo",
    .spec_version = 2,
    .summary = "train a policy on rewards of its own completions: PPO, GRPO, RLOO, REINFORCE++, DAPO, Dr. GRPO, GSPO",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(opts[0]),
    .outputs = outputs,
    .carry = lf_train_carry,
};
