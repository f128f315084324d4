/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-pretrain.
 */
#include "stages/pretrain.h"

#define ID LF_OPT_IDENTITY

#define CONFIG struct pretrain

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    LF_TRAIN_DATA_ROWS,
    {.name = "init_from",
     .type = LF_OPT_PATH,
     .cls = ID,
     .flags = LF_OPT_INPUT,
     LF_OPT_CHECKPOINT,
     .field = LF_OPT_FIELD(CONFIG, c.init_from),
     .help = "checkpoint whose weights to begin with; unset: random"},

    LF_TRAIN_LENGTH_ROWS("length of the run; one data only"),
    {.name = "batch_ramp",
     .type = LF_OPT_STR,
     .cls = ID,
     .flags = LF_OPT_REPEAT,
     .field = LF_OPT_FIELD(CONFIG, ramp),
     .help = "N@FROM: from sequence FROM on a step takes N; the first is N@0; instead of batch"},
    {.name = "packing",
     .type = LF_OPT_ENUM,
     .cls = ID,
     .def = "concat",
     .choices = "concat|bfd",
     .field = LF_OPT_FIELD(CONFIG, c.packing),
     .help = "concat cuts documents where a sequence ends; bfd keeps those that fit whole"},
    {.name = "sample_order",
     .type = LF_OPT_ENUM,
     .cls = ID,
     .def = "shuffled",
     .choices = "shuffled|megatron",
     .field = LF_OPT_FIELD(CONFIG, c.megatron_order),
     .help = "megatron: the samples of a Megatron-LM run on this data, which cross documents, in "
             "its order"},
    {.name = "megatron_seed",
     .type = LF_OPT_COUNT,
     .cls = ID,
     .def = "1234",
     .max = 4294967295.0,
     .field = LF_OPT_FIELD(CONFIG, c.megatron.seed),
     .help = "its seed"},
    {.name = "megatron_split",
     .type = LF_OPT_STR,
     .cls = ID,
     .def = "1",
     .field = LF_OPT_FIELD(CONFIG, c.megatron.split),
     .help = "its split, such as 949,50,1: the first part of the train shards is trained on"},
    {.name = "megatron_samples",
     .type = LF_OPT_COUNT,
     .cls = ID,
     .def = "0",
     .max = 1e12,
     .unit = "sequences",
     .field = LF_OPT_FIELD(CONFIG, c.megatron.samples),
     .help = "length of that run (train samples, or steps x batch); 0: of this one"},
    {.name = "megatron_surplus",
     .type = LF_OPT_FLOAT,
     .cls = ID,
     .def = "0.005",
     .max = 1,
     .field = LF_OPT_FIELD(CONFIG, c.megatron.surplus),
     .help = "with data_weights: share of samples indexed beyond those needed"},

    LF_TRAIN_OPTIMIZER_ROWS("3e-4", "peak learning rate", LF_TRAIN_MIN_LR, "cosine", LF_TRAIN_STEPS,
                            "0.95", "0.1"),
    LF_TRAIN_SCALE_ROWS,
    {.name = "z_loss",
     .type = LF_OPT_FLOAT,
     .cls = ID,
     .def = "0",
     .max = 1,
     .field = LF_OPT_FIELD(CONFIG, c.z_loss),
     .help = "coefficient of the squared log-partition; 0: none"},
    LF_TRAIN_STATE_ROWS,
    LF_TRAIN_COMPUTE_ROWS(LF_TRAIN_PRECISIONS_FP8),
    LF_TRAIN_OPERATION_ROWS,
    LF_TRAIN_SAVING_ROWS("steps", "steps"),
    LF_TRAIN_QUANTISED_ROWS,
    LF_TRAIN_COPIES_ROWS,
    LF_TRAIN_GPU_ROWS,
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
