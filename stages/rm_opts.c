/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-rm.
 */
#include "stages/train_opts.h"

#define ID LF_OPT_IDENTITY

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    LF_TRAIN_DATA_ROWS,
    {"init_from", LF_OPT_PATH, ID, LF_OPT_REQUIRED | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "checkpoint to begin with: a language model, whose head gives way to a score, or a reward "
     "model"},
    {"score_init", LF_OPT_ENUM, ID, 0, "sqrt", 0, 0, "sqrt|inverse|init_std|zero", NULL,
     "standard deviation of a new head of width d: 1/sqrt(d+1), 1/(d+1), the model's init_std, 0"},
    {"centre", LF_OPT_FLOAT, ID, 0, "0", 0, 10, NULL, NULL,
     "adds this times (chosen + rejected)^2 to the loss of a pair, which holds scores near 0; 0.01 "
     "is usual"},
    {"margins", LF_OPT_BOOL, ID, 0, "yes", 0, 0, NULL, NULL,
     "chosen must win by the margin of the data, where it has them"},
    {"require_eos", LF_OPT_BOOL, LF_OPT_OPERATIONAL, 0, "yes", 0, 0, NULL, NULL,
     "an answer that does not end with the data's EOS is an error"},
    {"normalize", LF_OPT_ENUM, ID, 0, "auto", 0, 0, "auto|no|train|valid", NULL,
     "split whose scores' mean and standard deviation are stored with the model; auto: valid where "
     "there is one"},

    LF_TRAIN_LENGTH_ROWS("length of the run; one data only; unset, as steps and tokens are: 1"),

    LF_TRAIN_OPTIMIZER_ROWS(NULL, "peak learning rate; unset: 1e-5, with lora_rank 1e-4",
                            LF_TRAIN_MIN_LR, "cosine", "steps", "0.95", "0"),
    LF_TRAIN_SCALE_ROWS,
    LF_TRAIN_ADAPTER_ROWS,
    LF_TRAIN_PARTS_ROWS,
    LF_TRAIN_DROPOUT_ROWS,
    LF_TRAIN_STATE_ROWS,
    LF_TRAIN_COMPUTE_ROWS(LF_TRAIN_PRECISIONS),
    LF_TRAIN_OPERATION_ROWS,
    LF_TRAIN_SAVING_ROWS("steps", "steps"),
    LF_TRAIN_PROFILE_ROWS,
    LF_TRAIN_DEVICE_ROWS,
};

static const char *const outputs[] = {"checkpoint", "adapter", NULL};

const lf_opt_table lf_rm_opts = {
    .stage = "rm",
    .spec_version = 2,
    .summary = "train a reward model on pairs of answers",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(opts[0]),
    .outputs = outputs,
    .carry = lf_train_carry,
};
