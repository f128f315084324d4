/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-pretrain.
 */
#include "stages/train_opts.h"

#define ID LF_OPT_IDENTITY

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    LF_TRAIN_DATA_ROWS,
    {"init_from", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "checkpoint whose weights to begin with; unset: random"},

    LF_TRAIN_LENGTH_ROWS("length of the run; one data only"),
    {"batch_ramp", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "N@FROM: from sequence FROM on a step takes N; the first is N@0; instead of batch"},
    {"packing", LF_OPT_ENUM, ID, 0, "concat", 0, 0, "concat|bfd", NULL,
     "concat cuts documents where a sequence ends; bfd keeps those that fit whole"},
    {"sample_order", LF_OPT_ENUM, ID, 0, "shuffled", 0, 0, "shuffled|megatron", NULL,
     "megatron: the samples of a Megatron-LM run on this data, which cross documents, in its "
     "order"},
    {"megatron_seed", LF_OPT_COUNT, ID, 0, "1234", 0, 4294967295.0, NULL, NULL, "its seed"},
    {"megatron_split", LF_OPT_STR, ID, 0, "1", 0, 0, NULL, NULL,
     "its split, such as 949,50,1: the first part of the train shards is trained on"},
    {"megatron_samples", LF_OPT_COUNT, ID, 0, "0", 0, 1e12, NULL, "sequences",
     "length of that run (train samples, or steps x batch); 0: of this one"},
    {"megatron_surplus", LF_OPT_FLOAT, ID, 0, "0.005", 0, 1, NULL, NULL,
     "with data_weights: share of samples indexed beyond those needed"},

    LF_TRAIN_OPTIMIZER_ROWS("3e-4", "peak learning rate", LF_TRAIN_MIN_LR, "cosine", "steps",
                            "0.95", "0.1"),
    LF_TRAIN_SCALE_ROWS,
    {"z_loss", LF_OPT_FLOAT, ID, 0, "0", 0, 1, NULL, NULL,
     "coefficient of the squared log-partition; 0: none"},
    LF_TRAIN_STATE_ROWS,
    LF_TRAIN_COMPUTE_ROWS(LF_TRAIN_PRECISIONS_FP8),
    LF_TRAIN_OPERATION_ROWS,
    LF_TRAIN_SAVING_ROWS("steps", "steps"),
    LF_TRAIN_QUANTISED_ROWS,
    LF_TRAIN_PROFILE_ROWS,
    LF_TRAIN_DEVICE_ROWS,
};

static const char *const outputs[] = {"checkpoint", NULL};

const lf_opt_table lf_pretrain_opts = {
    .stage = "pretrain",
    .spec_version = 2,
    .summary = "train a language model on token shards, from random weights or a checkpoint",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(opts[0]),
    .outputs = outputs,
    .carry = lf_train_carry,
};
