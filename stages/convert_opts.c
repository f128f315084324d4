/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-convert.
 */
#include "stages/opts.h"

#define ID LF_OPT_IDENTITY
#define OP LF_OPT_OPERATIONAL

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    {.name = "from",
     .group = "files",
     .type = LF_OPT_PATH,
     .cls = ID,
     .flags = LF_OPT_REQUIRED | LF_OPT_INPUT,
     .takes = "checkpoint|best|adapter|peft|model|shards|megatron",
     .help = "Hugging Face or PEFT directory or Megatron .idx to import, or checkpoint, adapter "
             "or shards to export"},
    {.name = "to",
     .type = LF_OPT_ENUM,
     .cls = ID,
     .def = "auto",
     .choices = "auto|checkpoint|hf|shards|megatron",
     .help = "auto: a Hugging Face directory becomes a checkpoint and the other way round, an "
             ".idx shards, PEFT's files an adapter; checkpoint: an adapter is put into its base"},
    {.name = "dtype",
     .type = LF_OPT_ENUM,
     .cls = ID,
     .def = "keep",
     .choices = "keep|f32|bf16|f16",
     .help = "of the weights that are written; keep: as they were (checkpoints hold f16 as f32, "
             "which is exact)"},
    {.name = "quantize",
     .type = LF_OPT_ENUM,
     .cls = ID,
     .def = "keep",
     .choices = "keep|bf16|fp8",
     .help = "weights of 8 bits in blocks; keep: scales stay beside bf16 in a checkpoint, and an "
             "export without dtype is quantised as it came; bf16: no scales; fp8: quantise an "
             "export"},
    {.name = "parts",
     .type = LF_OPT_ENUM,
     .cls = ID,
     .def = "all",
     .choices = "all|text|generator",
     .help = "text: of a model that also sees or hears import the decoder of texts alone; "
             "generator: export the masked language model that was trained beside a model "
             "(objective = electra)"},
    LF_WEIGHTS_ROW("export: "),
    {.name = "family",
     .group = "model",
     .type = LF_OPT_STR,
     .cls = ID,
     .help = "export: the form to write; unset: by the model's own family"},
    {.name = "tokenizer",
     .group = "tokenizer",
     .type = LF_OPT_PATH,
     .cls = ID,
     .flags = LF_OPT_INPUT,
     LF_OPT_TOKENIZER,
     .help = "export: tokenizer artifact or directory whose files are put beside the weights; "
             ".idx: what the data was made with"},
    {.name = "pad_token",
     .type = LF_OPT_STR,
     .cls = ID,
     .help = "export: the token that fills batches, by its text or id; no text that a reward "
             "model reads may end with it; unset: the tokenizer's"},
    {.name = "eos",
     .type = LF_OPT_STR,
     .cls = ID,
     .flags = LF_OPT_REPEAT,
     .help = "export: end token of generation by its text or id; unset: of what was trained here "
             "the end of a turn in the chat template, then those beside the tokenizer"},
    {.name = "base",
     .group = "adapters",
     .type = LF_OPT_PATH,
     .cls = ID,
     .flags = LF_OPT_INPUT,
     LF_OPT_CHECKPOINT,
     .help = "of an adapter: checkpoint of the weights it is for"},
    {.name = "vocab_size",
     .group = "data of Megatron-LM",
     .type = LF_OPT_COUNT,
     .cls = ID,
     .def = "0",
     .max = 2147483647.0,
     .unit = "tokens",
     .help = ".idx without tokenizer: ids are below this"},
    {.name = "append_eod",
     .type = LF_OPT_BOOL,
     .cls = ID,
     .def = "no",
     .help = ".idx: end documents that do not end so with the end-of-document token"},
    {.name = "eod_token",
     .type = LF_OPT_STR,
     .cls = ID,
     .help = ".idx: that token's text; unset: the tokenizer's own"},
    {.name = "verify",
     .group = "checks",
     .type = LF_OPT_PATH,
     .cls = OP,
     .flags = LF_OPT_INPUT,
     .choices = "none",
     .help = "import: file of expected logits, or of an encoder's rows, to hold the model to; "
             "none: go on without proof; unset: fail without proof"},
    {.name = "max_file",
     .group = "files",
     .type = LF_OPT_BYTES,
     .cls = OP,
     .def = "5G",
     .unit = "bytes",
     .help = "a file of weights is closed above this; 0: one file"},
    {.name = "inspect",
     .group = "checks",
     .type = LF_OPT_BOOL,
     .cls = OP,
     .def = "no",
     .help = "print what from holds as JSON, and stop"},
    {.name = "moments",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "inspect: list the moments of the optimizer among the tensors of a checkpoint, too"},
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
