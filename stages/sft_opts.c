/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-sft.
 */
#include "stages/sft.h"

#define ID LF_OPT_IDENTITY

#define CONFIG struct sft

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    LF_TRAIN_DATA_ROWS,
    {.name = "init_from",
     .group = "model",
     .type = LF_OPT_PATH,
     .cls = ID,
     .flags = LF_OPT_REQUIRED | LF_OPT_INPUT,
     LF_OPT_CHECKPOINT,
     .field = LF_OPT_FIELD(CONFIG, c.init_from),
     .help = "checkpoint to fine-tune; the model comes with it"},

    LF_TRAIN_LENGTH_ROWS("length of the run; one data only; unset, as steps and tokens are: 3"),
    LF_TRAIN_SOURCE_ROW,
    {.name = "packing",
     .group = "data",
     .type = LF_OPT_ENUM,
     .cls = ID,
     .def = "bfd",
     .choices = "concat|bfd",
     .field = LF_OPT_FIELD(CONFIG, c.packing),
     .help = "bfd keeps documents that fit whole; concat cuts them where a sequence ends"},

    LF_TRAIN_OPTIMIZER_ROWS(NULL, "peak learning rate; unset: 2e-5, with lora_rank 2e-4",
                            LF_TRAIN_MIN_LR, "cosine", LF_TRAIN_STEPS, "0.95", "0"),
    LF_TRAIN_SCALE_ROWS,
    {.name = "neftune_alpha",
     .group = "learning rate and optimizer",
     .type = LF_OPT_FLOAT,
     .cls = ID,
     .def = "0",
     .max = 1e4,
     .field = LF_OPT_FIELD(CONFIG, c.neftune_alpha),
     .help = "noise on the embeddings within neftune_alpha / sqrt(tokens of the document x "
             "width); 0: none, 5 to 15 are usual"},
    LF_TRAIN_MTP_ROW,
    LF_TRAIN_ADAPTER_ROWS,
    LF_TRAIN_PARTS_ROWS,
    LF_TRAIN_AVERAGE_ROWS,
    LF_TRAIN_STATE_ROWS,
    LF_TRAIN_COMPUTE_ROWS(LF_TRAIN_PRECISIONS_FP8),
    LF_TRAIN_TENSOR_ROW,
    LF_TRAIN_ZERO_ROW,
    LF_TRAIN_OPERATION_ROWS,
    LF_TRAIN_SAVING_ROWS("steps", "steps"),
    LF_TRAIN_QUANTISED_ROWS,
    LF_TRAIN_COPIES_ROWS,
    LF_TRAIN_GPU_ROWS,
    LF_TRAIN_PROFILE_ROWS,
    LF_TRAIN_DEVICE_ROWS,
    {.name = "valid_names",
     .group = "validation and logs",
     .type = LF_OPT_STR,
     .cls = LF_OPT_OPERATIONAL,
     .flags = LF_OPT_REPEAT,
     .field = LF_OPT_FIELD(CONFIG, valid_names),
     .help = "one name per valid_data: each is measured apart"},
    LF_TRAIN_SAMPLE_ROWS("steps", LF_TRAIN_SAMPLE_DOCS),
    LF_TRAIN_TOKENIZER_ROW,
    LF_TRAIN_BEST_ROWS(LF_TRAIN_BEST_BY("loss|accuracy"), "validations"),
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
    .finishes = true,
};
