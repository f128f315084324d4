/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-convert.
 */
#include "stages/opts.h"

#define ID LF_OPT_IDENTITY
#define OP LF_OPT_OPERATIONAL

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    {"from", LF_OPT_PATH, ID, LF_OPT_REQUIRED | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "Hugging Face or PEFT directory or Megatron .idx to import, or checkpoint, adapter or shards "
     "to export"},
    {"to", LF_OPT_ENUM, ID, 0, "auto", 0, 0, "auto|checkpoint|hf|shards|megatron", NULL,
     "auto: a Hugging Face directory becomes a checkpoint and the other way round, an .idx shards, "
     "PEFT's files an adapter; "
     "checkpoint: an adapter is put into its base"},
    {"dtype", LF_OPT_ENUM, ID, 0, "keep", 0, 0, "keep|f32|bf16|f16", NULL,
     "of the weights that are written; keep: as they were (checkpoints hold f16 as f32, which is "
     "exact)"},
    {"family", LF_OPT_STR, ID, 0, NULL, 0, 0, NULL, NULL,
     "export: the form to write; unset: by the model's own family"},
    {"tokenizer", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "export: tokenizer artifact or directory whose files are put beside the weights; .idx: what "
     "the data was made with"},
    {"pad_token", LF_OPT_STR, ID, 0, NULL, 0, 0, NULL, NULL,
     "export: the token that fills batches, by its text or id; no text that a reward model reads "
     "may end with it; unset: the "
     "tokenizer's"},
    {"eos", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "export: end token of generation by its text or id; unset: of what was trained here the end "
     "of a turn in the chat template, "
     "then those beside the tokenizer"},
    {"base", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "of an adapter: checkpoint of the weights it is for"},
    {"vocab_size", LF_OPT_COUNT, ID, 0, "0", 0, 2147483647.0, NULL, "tokens",
     ".idx without tokenizer: ids are below this"},
    {"append_eod", LF_OPT_BOOL, ID, 0, "no", 0, 0, NULL, NULL,
     ".idx: end documents that do not end so with the end-of-document token"},
    {"eod_token", LF_OPT_STR, ID, 0, NULL, 0, 0, NULL, NULL,
     ".idx: that token's text; unset: the tokenizer's own"},
    {"verify", LF_OPT_PATH, OP, LF_OPT_INPUT, NULL, 0, 0, "none", NULL,
     "import: file of expected logits to hold the model to; none: go on without proof; unset: fail "
     "without proof"},
    {"max_file", LF_OPT_BYTES, OP, 0, "5G", 0, 0, NULL, "bytes",
     "a file of weights is closed above this; 0: one file"},
    {"inspect", LF_OPT_BOOL, OP, 0, "no", 0, 0, NULL, NULL,
     "print what from holds as JSON, and stop"},
};

static const char *const outputs[] = {"checkpoint", "tokenizer", "model", "shards",
                                      "megatron",   "adapter",   "peft",  NULL};

const lf_opt_table lf_convert_opts = {
    .stage = "convert",
    .spec_version = 2,
    .summary =
        "Hugging Face weights to a checkpoint and back, adapters, Megatron data to shards and back",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(opts[0]),
    .outputs = outputs,
    .any_output = true, /* an import makes checkpoint and tokenizer, an export model */
};
