/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-eval.
 */
#include "stages/opts.h"

#define ID LF_OPT_IDENTITY
#define NUM LF_OPT_NUMERIC
#define OP LF_OPT_OPERATIONAL

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    {"checkpoint", LF_OPT_PATH, ID, LF_OPT_REQUIRED | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL, "checkpoint to measure"},
    {"tokenizer", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "tokenizer artifact, or a tokenizer file or directory; needed for texts, and for bytes and words of shards"},
    {"data", LF_OPT_PATH, ID, LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL, "shards artifact: perplexity of one split"},
    {"split", LF_OPT_STR, ID, 0, "valid", 0, 0, NULL, NULL, "which split of data"},
    {"text", LF_OPT_PATH, ID, LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "perplexity of a text file (one document) or of {\"text\"} JSON lines"},
    {"multiple_choice", LF_OPT_PATH, ID, LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "JSON lines {\"context\", \"choices\", \"gold\"}: acc, acc_norm, acc_bytes"},
    {"last_word", LF_OPT_PATH, ID, LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "JSON lines {\"text\"}: the last word given the rest"},
    {"limit", LF_OPT_COUNT, ID, 0, "0", 0, 1e12, NULL, "documents", "first so many of each task; 0: all"},
    {"prefix", LF_OPT_STR, ID, 0, NULL, 0, 0, NULL, NULL,
     "token in front of a text and for an empty context, by its text; unset: the tokenizer's BOS, else end of document"},
    {"max_context", LF_OPT_COUNT, ID, 0, "0", 0, 1e9, NULL, "tokens", "tokens the model reads at once; 0: the model's"},
    {"precision", LF_OPT_ENUM, ID, 0, "f32", 0, 0, "f32|bf16", NULL, "of weights and activations"},
    {"numeric", LF_OPT_ENUM, NUM, 0, "invariant", 0, 0, "invariant|fast", NULL,
     "invariant: the same bits for any batch and any threads, and as in training"},
    {"batch_tokens", LF_OPT_COUNT, OP, 0, "1024", 2, 1 << 24, NULL, "tokens", "tokens scored at once; at least max_context"},
    {"block", LF_OPT_COUNT, OP, 0, "64", 1, 1e6, NULL, "documents", "documents between two writes of the samples"},
};

static const char *const outputs[] = {"results", NULL};

const lf_opt_table lf_eval_opts = {
    .stage = "eval",
    .spec_version = 1,
    .summary = "measure a model: perplexity, bits per byte, multiple choice, last word",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(opts[0]),
    .outputs = outputs,
};
