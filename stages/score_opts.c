/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-score.
 */
#include "stages/train_opts.h"

#define ID  LF_OPT_IDENTITY
#define NUM LF_OPT_NUMERIC
#define OP  LF_OPT_OPERATIONAL

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    {"checkpoint", LF_OPT_PATH, ID, LF_OPT_REQUIRED | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "reward model; with adapter the weights it is for"},
    {"adapter", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "adapter that makes a reward model of checkpoint, as a rule a language model: of ours or "
     "PEFT's"},
    {"tokenizer", LF_OPT_PATH, ID, LF_OPT_REQUIRED | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "tokenizer artifact, or a tokenizer file or directory"},
    {"data", LF_OPT_PATH, ID, LF_OPT_REQUIRED | LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL,
     NULL, "JSON lines to score: texts, prompts with completions, conversations, preferences"},
    {"shape", LF_OPT_ENUM, ID, 0, "auto", 0, 0,
     "auto|text|prompt_completion|messages|sharegpt|alpaca|preference|unpaired", NULL,
     "what a line is, as in lf-tokenize; auto: by its columns"},
    {"columns", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "OURS=THEIRS: a column of the shape has another name in the data (also role and content of "
     "turns)"},
    {"roles", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "OURS=THEIRS: a speaker has another name in the data"},
    {"chat_template", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "a Jinja file instead of the tokenizer's own chat template"},
    {"append_eos", LF_OPT_BOOL, ID, 0, "yes", 0, 0, NULL, NULL,
     "end texts with the end-of-document token, as the model was trained; conversations have what "
     "their template writes"},
    {"add_template", LF_OPT_BOOL, ID, 0, "no", 0, 0, NULL, NULL,
     "add the tokenizer's own BOS and EOS template"},
    {"normalized", LF_OPT_BOOL, ID, 0, "no", 0, 0, NULL, NULL,
     "scores less the mean, over the standard deviation, that are stored with the model"},
    {"token_ids", LF_OPT_BOOL, ID, 0, "no", 0, 0, NULL, NULL, "write the ids of each text too"},
    {"best", LF_OPT_BOOL, ID, 0, "no", 0, 0, NULL, NULL,
     "write best.jsonl too: of rows that share an id the one with the highest score"},
    {"max_context", LF_OPT_COUNT, ID, 0, "0", 0, 1e9, NULL, "tokens",
     "longer texts are not scored; 0: the model's"},
    {"precision", LF_OPT_ENUM, ID, 0, "f32", 0, 0, "f32|bf16|fp16", NULL,
     "of weights and activations; fp16: on GPUs"},
    {"numeric", LF_OPT_ENUM, NUM, 0, "invariant", 0, 0, "invariant|fast", NULL,
     "invariant: the same bits for any batch and any threads"},
    {"batch_tokens", LF_OPT_COUNT, OP, 0, "1024", 1, 1 << 24, NULL, "tokens",
     "tokens scored at once; at least max_context"},
    {"block", LF_OPT_COUNT, OP, 0, "64", 1, 1e6, NULL, "rows",
     "rows between two writes of the scores"},
    LF_TRAIN_PROFILE_ROWS,
    LF_TRAIN_DEVICE_ROWS,
};

static const char *const outputs[] = {"scores", NULL};

const lf_opt_table lf_score_opts = {
    .stage = "score",
    .spec_version = 2,
    .summary = "score texts with a reward model, tell its accuracy on pairs, pick the best of "
               "several answers",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(opts[0]),
    .outputs = outputs,
};
