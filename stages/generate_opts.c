/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-generate.
 */
#include "stages/train_opts.h"

#define ID  LF_OPT_IDENTITY
#define NUM LF_OPT_NUMERIC
#define OP  LF_OPT_OPERATIONAL

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    {"checkpoint", LF_OPT_PATH, ID, LF_OPT_REQUIRED | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "checkpoint to generate with"},
    {"adapter", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "adapter that stays beside the weights of checkpoint, of ours or PEFT's: the bits of its "
     "training"},
    {"tokenizer", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "tokenizer artifact, or a tokenizer file or directory; needed for prompts, stop strings and "
     "output in words"},
    {"prompts", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "requests as JSON lines, - for standard input"},
    {"prompt", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "a prompt in words; may be given several times"},
    {"chat_template", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "template file for requests with messages; unset: the tokenizer's"},
    {"chat_name", LF_OPT_STR, ID, 0, NULL, 0, 0, NULL, NULL,
     "which of the tokenizer's templates; unset: default, or tool_use"},
    {"chat_vars", LF_OPT_STR, ID, 0, NULL, 0, 0, NULL, NULL,
     "JSON object of further variables for the template"},
    {"samples", LF_OPT_COUNT, ID, 0, "1", 1, 1e6, NULL, NULL, "continuations of each prompt"},
    {"best_of", LF_OPT_COUNT, ID, 0, "0", 0, 1e6, NULL, NULL,
     "continuations made of each prompt, of which the samples of largest summed log-probability "
     "are given; 0: samples"},
    {"max_tokens", LF_OPT_COUNT, ID, 0, "128", 1, 1e9, NULL, "tokens", "longest continuation"},
    {"min_tokens", LF_OPT_COUNT, ID, 0, "0", 0, 1e9, NULL, "tokens",
     "end tokens are forbidden before"},
    {"raw", LF_OPT_BOOL, ID, 0, "no", 0, 0, NULL, NULL,
     "take no defaults (temperature, top_k, top_p, min_p, repetition_penalty, max_tokens) from "
     "generation_config.json"},
    {"temperature", LF_OPT_FLOAT, ID, 0, "1", 0, 1000, NULL, NULL,
     "divides the logits; 0: the most likely token"},
    {"top_k", LF_OPT_COUNT, ID, 0, "0", 0, 1e9, NULL, NULL,
     "draw among the k most likely, ties included; 0: all"},
    {"top_p", LF_OPT_FLOAT, ID, 0, "1", 1e-9, 1, NULL, NULL,
     "draw among the smallest set with this much probability"},
    {"min_p", LF_OPT_FLOAT, ID, 0, "0", 0, 1, NULL, NULL,
     "draw among tokens at least this likely relative to the most likely"},
    {"repetition_penalty", LF_OPT_FLOAT, ID, 0, "1", 1e-3, 1000, NULL, NULL,
     "divides positive and multiplies negative logits of tokens in prompt or output"},
    {"presence_penalty", LF_OPT_FLOAT, ID, 0, "0", -100, 100, NULL, NULL,
     "subtracted from logits of tokens in the output"},
    {"frequency_penalty", LF_OPT_FLOAT, ID, 0, "0", -100, 100, NULL, NULL,
     "the same, times their count"},
    {"logit_bias", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "ID=NUMBER, added to the logit of a token"},
    {"allowed_token_ids", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "the only tokens that are drawn; unset: all"},
    {"bad_words", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "word that is never completed"},
    {"stop", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "text that ends a continuation and is cut off"},
    {"stop_token_ids", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "token that ends a continuation, beside the end tokens"},
    {"include_stop", LF_OPT_BOOL, ID, 0, "no", 0, 0, NULL, NULL,
     "leave the stop text or token at the end of the text"},
    {"eos", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "end token by its text; unset: those of generation_config.json beside the tokenizer, else its "
     "end of document"},
    {"ignore_eos", LF_OPT_BOOL, ID, 0, "no", 0, 0, NULL, NULL,
     "go on behind end tokens, but for stop_token_ids"},
    {"truncate_prompt_tokens", LF_OPT_COUNT, ID, 0, "0", 0, 1e9, NULL, "tokens",
     "the last so many of a prompt are kept; 0: all"},
    {"add_special", LF_OPT_BOOL, ID, 0, "yes", 0, 0, NULL, NULL,
     "begin prompts as the tokenizer's template says (BOS)"},
    {"skip_special", LF_OPT_BOOL, ID, 0, "yes", 0, 0, NULL, NULL,
     "leave special tokens out of the text"},
    {"logprobs", LF_OPT_COUNT, ID, 0, "0", 0, 1000, NULL, NULL,
     "alternatives reported for each token"},
    {"prompt_logprobs", LF_OPT_INT, ID, 0, "-1", -1, 1000, NULL, NULL,
     "alternatives reported for each token of the prompt, 0: its own log-probability alone; -1: "
     "nothing of the prompt"},
    {"seed", LF_OPT_INT, ID, 0, "1", 0, 0, NULL, NULL,
     "of the run; a continuation's own follows from it, its id and sample"},
    {"max_context", LF_OPT_COUNT, ID, 0, "0", 0, 1e9, NULL, "tokens",
     "prompt and continuation together; 0: the model's"},
    {"longrope", LF_OPT_ENUM, ID, 0, "length", 0, 0, "length|transformers", NULL,
     "what chooses the long angles of a longrope model: prompt and max_tokens together; "
     "transformers: "
     "the tokens so far, all computed again where they grow beyond"},
    {"precision", LF_OPT_ENUM, ID, 0, "f32", 0, 0, "f32|bf16|fp16", NULL,
     "of weights, activations and cache; fp16: on GPUs"},
    {"numeric", LF_OPT_ENUM, NUM, 0, "invariant", 0, 0, "invariant|fast", NULL,
     "invariant: the same bits for any batch and any threads, and as in training"},
    {"batch", LF_OPT_COUNT, OP, 0, "8", 1, 65536, NULL, NULL, "sequences at a time"},
    {"step_rows", LF_OPT_COUNT, OP, 0, "128", 1, 65536, NULL, "tokens",
     "most tokens of a step, prompts included"},
    {"kv_tokens", LF_OPT_COUNT, OP, 0, "0", 0, 1e12, NULL, "tokens",
     "size of the cache; 0: batch times max_context"},
    {"page_tokens", LF_OPT_INT, OP, 0, "64", 64, 65536, NULL, "tokens",
     "size of a page, a multiple of 64"},
    {"show", LF_OPT_BOOL, OP, 0, "no", 0, 0, NULL, NULL,
     "print the texts on standard output too, control characters as ?"},
    LF_TRAIN_PROFILE_ROWS,
    LF_TRAIN_DEVICE_ROWS,
};

static const char *const outputs[] = {"text", NULL};

const lf_opt_table lf_generate_opts = {
    .stage = "generate",
    .spec_version = 2,
    .summary = "continue prompts with a model: text, tokens and log-probabilities as JSON lines",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(opts[0]),
    .outputs = outputs,
};
