/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-dpo.
 */
#include "stages/train_opts.h"

#define ID LF_OPT_IDENTITY

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    LF_TRAIN_DATA_ROWS,
    {"init_from", LF_OPT_PATH, ID, LF_OPT_REQUIRED | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "checkpoint to train, which is the reference policy too; the model comes with it"},

    {"mode", LF_OPT_ENUM, ID, 0, "train", 0, 0, "train|reference", NULL,
     "reference: compute the reference log-probabilities alone, as a job of their own"},
    {"reference", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "reference artifact that such a job made of init_from and the same data; unset: computed "
     "first"},
    {"loss", LF_OPT_ENUM, ID, 0, "sigmoid", 0, 0, "sigmoid|robust|hinge|ipo|orpo|simpo|kto", NULL,
     "what is minimised; kto reads labelled answers, the others pairs"},
    {"beta", LF_OPT_FLOAT, ID, 0, NULL, 1e-6, 1e6, NULL, NULL,
     "how fast the loss grows; unset: 0.1, with simpo 2"},
    {"label_smoothing", LF_OPT_FLOAT, ID, 0, "0", 0, 0.499, NULL, NULL,
     "share of pairs taken to be the wrong way round: sigmoid (cDPO) and robust"},
    {"gamma", LF_OPT_FLOAT, ID, 0, NULL, 0, 1e6, NULL, NULL, "simpo: margin wanted; unset: 0.5"},
    {"nll", LF_OPT_FLOAT, ID, 0, "0", 0, 1e6, NULL, NULL,
     "weight of the better answer's mean -log p that is added to the loss of a pair"},
    {"weight_good", LF_OPT_FLOAT, ID, 0, "1", 0, 1e6, NULL, NULL, "kto: weight of good answers"},
    {"weight_bad", LF_OPT_FLOAT, ID, 0, "1", 0, 1e6, NULL, NULL, "kto: weight of the others"},

    LF_TRAIN_LENGTH_ROWS("length of the run; one data only; unset, as steps and tokens are: 1"),

    LF_TRAIN_OPTIMIZER_ROWS(NULL, "peak learning rate; unset: 1e-6, with lora_rank 1e-5",
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

static const char *const outputs[] = {"checkpoint", "adapter", "reference", NULL};

const lf_opt_table lf_dpo_opts = {
    .stage = "dpo",
    .spec_version = 2,
    .summary = "train a checkpoint on judged answers: DPO and its kin, ORPO, SimPO, KTO",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(opts[0]),
    .outputs = outputs,
    .any_output = true, /* mode = reference makes no checkpoint */
    .carry = lf_train_carry,
};
