/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-eval.
 */
#include "stages/train_opts.h"

#define ID  LF_OPT_IDENTITY
#define NUM LF_OPT_NUMERIC
#define OP  LF_OPT_OPERATIONAL

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    {"checkpoint", LF_OPT_PATH, ID, LF_OPT_REQUIRED | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "checkpoint to measure"},
    {"adapter", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "adapter that stays beside the weights of checkpoint, of ours or PEFT's"},
    {"tokenizer", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "tokenizer artifact, or a tokenizer file or directory; needed for texts, and for bytes and "
     "words of shards"},
    {"data", LF_OPT_PATH, ID, LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "shards artifact: perplexity of one split"},
    {"split", LF_OPT_STR, ID, 0, "valid", 0, 0, NULL, NULL, "which split of data"},
    {"text", LF_OPT_PATH, ID, LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "perplexity of a text file (one document) or of {\"text\"} JSON lines"},
    {"multiple_choice", LF_OPT_PATH, ID, LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "JSON lines {\"context\", \"choices\", \"gold\"}: acc, acc_norm, acc_bytes"},
    {"last_word", LF_OPT_PATH, ID, LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "JSON lines {\"text\"}: the last word given the rest"},
    {"generate", LF_OPT_PATH, ID, LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "JSON lines {\"context\", \"target\"}: texts are generated and compared with the target"},
    {"max_tokens", LF_OPT_COUNT, ID, 0, "256", 1, 1e9, NULL, "tokens", "of generate: longest text"},
    {"until", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "of generate: text that ends a text"},
    {"match", LF_OPT_ENUM, ID, 0, "exact", 0, 0, "exact|number|regex", NULL,
     "of generate: the whole text, its last number, or its last match of regex, against the "
     "target"},
    {"regex", LF_OPT_STR, ID, 0, NULL, 0, 0, NULL, NULL,
     "of match = regex: the pattern, in Python's syntax"},
    {"requests", LF_OPT_PATH, ID, LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "requests that harness.py exported from lm-evaluation-harness"},
    {"think_end", LF_OPT_STR, ID, 0, NULL, 0, 0, NULL, NULL,
     "what stands in a generated text up to this does not count"},
    {"rolling_bos", LF_OPT_BOOL, ID, 0, "yes", 0, 0, NULL, NULL,
     "score the BOS that a tokenizer puts in front of a text, as lm-evaluation-harness does"},
    {"bootstrap", LF_OPT_COUNT, ID, 0, "100000", 0, 1e7, NULL, NULL,
     "resamples of standard errors that have no formula; 0: none at all"},
    {"seed", LF_OPT_INT, ID, 0, "1", 0, 0, NULL, NULL, "of texts that requests want sampled"},
    {"limit", LF_OPT_COUNT, ID, 0, "0", 0, 1e12, NULL, "documents",
     "first so many of each task; 0: all"},
    {"prefix", LF_OPT_STR, ID, 0, NULL, 0, 0, NULL, NULL,
     "token in front of a text and for an empty context, by its text; unset: the tokenizer's BOS, "
     "else end of document"},
    {"max_context", LF_OPT_COUNT, ID, 0, "0", 0, 1e9, NULL, "tokens",
     "tokens the model reads at once; 0: the model's"},
    {"longrope", LF_OPT_ENUM, ID, 0, "length", 0, 0, "length|transformers", NULL,
     "of generated texts; what chooses the long angles of a longrope model: prompt and most tokens "
     "together; transformers: the tokens so far"},
    {"precision", LF_OPT_ENUM, ID, 0, "f32", 0, 0, "f32|bf16|fp16", NULL,
     "of weights and activations; fp16: on GPUs"},
    {"numeric", LF_OPT_ENUM, NUM, 0, "invariant", 0, 0, "invariant|fast", NULL,
     "invariant: the same bits for any batch and any threads, and as in training"},
    {"batch_tokens", LF_OPT_COUNT, OP, 0, "1024", 2, 1 << 24, NULL, "tokens",
     "tokens scored at once; at least max_context"},
    {"block", LF_OPT_COUNT, OP, 0, "64", 1, 1e6, NULL, "documents",
     "documents between two writes of the samples"},
    {"share", LF_OPT_BOOL, OP, 0, "yes", 0, 0, NULL, NULL,
     "compute the common beginning of continuations once"},
    {"batch", LF_OPT_COUNT, OP, 0, "8", 1, 65536, NULL, NULL,
     "sequences at a time, of generated texts and shared beginnings"},
    {"step_rows", LF_OPT_COUNT, OP, 0, "128", 1, 65536, NULL, "tokens",
     "most tokens of their steps"},
    {"kv_tokens", LF_OPT_COUNT, OP, 0, "0", 0, 1e12, NULL, "tokens",
     "size of their cache; 0: batch times max_context"},
    {"page_tokens", LF_OPT_INT, OP, 0, "64", 64, 65536, NULL, "tokens",
     "size of a page of it, a multiple of 64"},
    LF_TRAIN_PROFILE_ROWS,
    LF_TRAIN_DEVICE_ROWS,
};

static const char *const outputs[] = {"results", NULL};

const lf_opt_table lf_eval_opts = {
    .stage = "eval",
    .spec_version = 2,
    .summary = "measure a model: perplexity, bits per byte, multiple choice, last word, generated "
               "texts, requests of lm-evaluation-harness",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(opts[0]),
    .outputs = outputs,
};
