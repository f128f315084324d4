/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-sft.
 */
#include "stages/train_opts.h"

#define ID LF_OPT_IDENTITY

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    LF_TRAIN_DATA_ROWS,
    {"init_from", LF_OPT_PATH, ID, LF_OPT_REQUIRED | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "checkpoint to fine-tune; the model comes with it"},

    LF_TRAIN_LENGTH_ROWS("length of the run; one data only; unset, as steps and tokens are: 3"),
    {"packing", LF_OPT_ENUM, ID, 0, "bfd", 0, 0, "concat|bfd", NULL,
     "bfd keeps documents that fit whole; concat cuts them where a sequence ends"},

    LF_TRAIN_OPTIMIZER_ROWS(NULL, "peak learning rate; unset: 2e-5, with lora_rank 2e-4",
                            LF_TRAIN_MIN_LR, "cosine", "steps", "0.95", "0"),
    LF_TRAIN_SCALE_ROWS,
    {"neftune_alpha", LF_OPT_FLOAT, ID, 0, "0", 0, 1e4, NULL, NULL,
     "noise on the embeddings within neftune_alpha / sqrt(tokens of the document x width); 0: "
     "none, 5 to 15 are usual"},
    LF_TRAIN_ADAPTER_ROWS,
    LF_TRAIN_PARTS_ROWS,
    LF_TRAIN_STATE_ROWS,
    LF_TRAIN_COMPUTE_ROWS(LF_TRAIN_PRECISIONS_FP8),
    LF_TRAIN_OPERATION_ROWS,
    LF_TRAIN_SAVING_ROWS("steps", "steps"),
    LF_TRAIN_QUANTISED_ROWS,
    LF_TRAIN_PROFILE_ROWS,
    LF_TRAIN_DEVICE_ROWS,
    {"valid_names", LF_OPT_STR, LF_OPT_OPERATIONAL, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "one name per valid_data: each is measured apart"},
    {"sample_interval", LF_OPT_COUNT, LF_OPT_OPERATIONAL, 0, "0", 0, 1e12, NULL, "steps",
     "sample what the model says this often, and after the last step; 0: never"},
    {"sample_prompts", LF_OPT_PATH, LF_OPT_OPERATIONAL, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "what it is asked: requests as JSON lines, as lf-generate reads them, messages too; unset: "
     "validation documents"},
    {"sample_rows", LF_OPT_COUNT, LF_OPT_OPERATIONAL, 0, "8", 1, 1e4, NULL, "documents",
     "the first so many of them, up to what is trained"},
    {"sample_tokens", LF_OPT_COUNT, LF_OPT_OPERATIONAL, 0, "64", 1, 1e6, NULL, "tokens",
     "longest sample"},
    {"sample_temperature", LF_OPT_FLOAT, LF_OPT_OPERATIONAL, 0, "0", 0, 1000, NULL, NULL,
     "of samples; 0: the most likely token"},
    {"tokenizer", LF_OPT_PATH, LF_OPT_OPERATIONAL, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "for samples: tokenizer artifact, or a tokenizer file or directory; unset: prompts and "
     "samples are ids"},
    {"keep_best", LF_OPT_BOOL, LF_OPT_OPERATIONAL, 0, "no", 0, 0, NULL, NULL,
     "keep the weights of the best validation as best"},
    {"best_metric", LF_OPT_ENUM, ID, 0, "loss", 0, 0, "loss|accuracy", NULL,
     "of all valid_data together: what best means"},
    {"patience", LF_OPT_COUNT, ID, 0, "0", 0, 1e9, NULL, "validations",
     "end after so many without a better one; 0: never"},
};

static const char *const outputs[] = {"checkpoint", "adapter", "best", NULL};

const lf_opt_table lf_sft_opts = {
    .stage = "sft",
    .spec_version = 2,
    .summary = "fine-tune a checkpoint on prompts and answers, all of it or low-rank adapters",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(opts[0]),
    .outputs = outputs,
    .carry = lf_train_carry,
};
