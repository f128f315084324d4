/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-generate.
 */
#include "stages/opts.h"

#define ID LF_OPT_IDENTITY
#define NUM LF_OPT_NUMERIC
#define OP LF_OPT_OPERATIONAL

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    {"checkpoint", LF_OPT_PATH, ID, LF_OPT_REQUIRED | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL, "checkpoint to generate with"},
    {"tokenizer", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "tokenizer artifact, or a tokenizer file or directory; needed for prompts, stop strings and output in words"},
    {"prompts", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL, "requests as JSON lines, - for standard input"},
    {"prompt", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL, "a prompt in words; may be given several times"},
    {"samples", LF_OPT_COUNT, ID, 0, "1", 1, 1e6, NULL, NULL, "continuations of each prompt"},
    {"max_tokens", LF_OPT_COUNT, ID, 0, "128", 1, 1e9, NULL, "tokens", "longest continuation"},
    {"min_tokens", LF_OPT_COUNT, ID, 0, "0", 0, 1e9, NULL, "tokens", "end tokens are forbidden before"},
    {"temperature", LF_OPT_FLOAT, ID, 0, "1", 0, 1000, NULL, NULL, "divides the logits; 0: the most likely token"},
    {"top_k", LF_OPT_COUNT, ID, 0, "0", 0, 1e9, NULL, NULL, "draw among the k most likely, ties included; 0: all"},
    {"top_p", LF_OPT_FLOAT, ID, 0, "1", 1e-9, 1, NULL, NULL, "draw among the smallest set with this much probability"},
    {"min_p", LF_OPT_FLOAT, ID, 0, "0", 0, 1, NULL, NULL, "draw among tokens at least this likely relative to the most likely"},
    {"repetition_penalty", LF_OPT_FLOAT, ID, 0, "1", 1e-3, 1000, NULL, NULL,
     "divides positive and multiplies negative logits of tokens in prompt or output"},
    {"presence_penalty", LF_OPT_FLOAT, ID, 0, "0", -100, 100, NULL, NULL, "subtracted from logits of tokens in the output"},
    {"frequency_penalty", LF_OPT_FLOAT, ID, 0, "0", -100, 100, NULL, NULL, "the same, times their count"},
    {"stop", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL, "text that ends a continuation and is cut off"},
    {"eos", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "end token by its text; unset: those of generation_config.json beside the tokenizer, else its end of document"},
    {"ignore_eos", LF_OPT_BOOL, ID, 0, "no", 0, 0, NULL, NULL, "go on behind end tokens"},
    {"add_special", LF_OPT_BOOL, ID, 0, "yes", 0, 0, NULL, NULL, "begin prompts as the tokenizer's template says (BOS)"},
    {"skip_special", LF_OPT_BOOL, ID, 0, "yes", 0, 0, NULL, NULL, "leave special tokens out of the text"},
    {"logprobs", LF_OPT_COUNT, ID, 0, "0", 0, 1000, NULL, NULL, "alternatives reported for each token"},
    {"seed", LF_OPT_INT, ID, 0, "1", 0, 0, NULL, NULL, "of the run; a continuation's own follows from it, its id and sample"},
    {"max_context", LF_OPT_COUNT, ID, 0, "0", 0, 1e9, NULL, "tokens", "prompt and continuation together; 0: the model's"},
    {"precision", LF_OPT_ENUM, ID, 0, "f32", 0, 0, "f32|bf16", NULL, "of weights, activations and cache"},
    {"numeric", LF_OPT_ENUM, NUM, 0, "invariant", 0, 0, "invariant|fast", NULL,
     "invariant: the same bits for any batch and any threads, and as in training"},
    {"batch", LF_OPT_COUNT, OP, 0, "8", 1, 65536, NULL, NULL, "sequences at a time"},
    {"step_rows", LF_OPT_COUNT, OP, 0, "128", 1, 65536, NULL, "tokens", "most tokens of a step, prompts included"},
    {"kv_tokens", LF_OPT_COUNT, OP, 0, "0", 0, 1e12, NULL, "tokens", "size of the cache; 0: batch times max_context"},
    {"page_tokens", LF_OPT_INT, OP, 0, "64", 64, 65536, NULL, "tokens", "size of a page, a multiple of 64"},
    {"show", LF_OPT_BOOL, OP, 0, "no", 0, 0, NULL, NULL, "print the texts on standard output too, control characters as ?"},
};

static const char *const outputs[] = {"text", NULL};

const lf_opt_table lf_generate_opts = {
    .stage = "generate",
    .spec_version = 1,
    .summary = "continue prompts with a model: text, tokens and log-probabilities as JSON lines",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(opts[0]),
    .outputs = outputs,
};
