/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-rm.
 */
#include "stages/rm.h"

#define ID LF_OPT_IDENTITY

#define CONFIG struct rm

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
     .help = "checkpoint to begin with: a language model, whose head gives way to a score, or a "
             "reward model"},
    {.name = "score_init",
     .type = LF_OPT_ENUM,
     .cls = ID,
     .def = "sqrt",
     .choices = "sqrt|inverse|init_std|zero",
     .field = LF_OPT_FIELD(CONFIG, score_init),
     .help = "standard deviation of a new head of width d: 1/sqrt(d+1), 1/(d+1), the model's "
             "init_std, 0"},
    {.name = "centre",
     .group = "objective",
     .type = LF_OPT_FLOAT,
     .cls = ID,
     .def = "0",
     .max = 10,
     .field = LF_OPT_FIELD(CONFIG, t.centre),
     .help = "adds this times (chosen + rejected)^2 to the loss of a pair, which holds scores "
             "near 0; 0.01 is usual"},
    {.name = "margins",
     .type = LF_OPT_BOOL,
     .cls = ID,
     .def = "yes",
     .field = LF_OPT_FIELD(CONFIG, t.margins),
     .help = "chosen must win by the margin of the data, where it has them"},
    {.name = "require_eos",
     .type = LF_OPT_BOOL,
     .cls = LF_OPT_OPERATIONAL,
     .def = "yes",
     .field = LF_OPT_FIELD(CONFIG, t.require_eos),
     .help = "an answer that does not end with the data's EOS is an error"},
    {.name = "normalize",
     .type = LF_OPT_ENUM,
     .cls = ID,
     .def = "auto",
     .choices = "auto|no|train|valid",
     .field = LF_OPT_FIELD(CONFIG, t.normalize),
     .help = "split whose scores' mean and standard deviation are stored with the model; auto: "
             "valid where there is one"},

    LF_TRAIN_LENGTH_ROWS("length of the run; one data only; unset, as steps and tokens are: 1"),

    LF_TRAIN_OPTIMIZER_ROWS(NULL, "peak learning rate; unset: 1e-5, with lora_rank 1e-4",
                            LF_TRAIN_MIN_LR, "cosine", LF_TRAIN_STEPS, "0.95", "0"),
    LF_TRAIN_SCALE_ROWS,
    LF_TRAIN_ADAPTER_ROWS,
    LF_TRAIN_PARTS_ROWS,
    LF_TRAIN_DROPOUT_ROWS,
    LF_TRAIN_STATE_ROWS,
    LF_TRAIN_COMPUTE_ROWS(LF_TRAIN_PRECISIONS),
    LF_TRAIN_TENSOR_ROW,
    LF_TRAIN_ZERO_ROW,
    LF_TRAIN_OPERATION_ROWS,
    LF_TRAIN_SAVING_ROWS("steps", "steps"),
    LF_TRAIN_COPIES_ROWS,
    LF_TRAIN_GPU_ROWS,
    LF_TRAIN_PROFILE_ROWS,
    LF_TRAIN_DEVICE_ROWS,
    LF_TRAIN_SAMPLE_EVERY("steps", "score pairs of the validation data"),
    LF_TRAIN_SAMPLE_COUNT("pairs"),
    LF_TRAIN_TOKENIZER_ROW,
    LF_TRAIN_BEST_ROWS(LF_TRAIN_BEST_BY("loss|accuracy|margin"), "validations"),
};

static const char *const outputs[] = {"checkpoint", "adapter", "best", NULL};

const lf_opt_table lf_rm_opts = {
    .stage = "rm",
    .spec_version = 2,
    .summary = "train a reward model on pairs of answers",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(opts[0]),
    .outputs = outputs,
    .carry = lf_train_carry,
    .finishes = true,
};
