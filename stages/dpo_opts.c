/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-dpo.
 */
#include "stages/dpo.h"

#define ID LF_OPT_IDENTITY

#define CONFIG struct dpo

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    LF_TRAIN_DATA_ROWS,
    {.name = "init_from",
     .type = LF_OPT_PATH,
     .cls = ID,
     .flags = LF_OPT_REQUIRED | LF_OPT_INPUT,
     .field = LF_OPT_FIELD(CONFIG, c.init_from),
     .help = "checkpoint to train, which is the reference policy too; the model comes with it"},

    {.name = "mode",
     .type = LF_OPT_ENUM,
     .cls = ID,
     .def = "train",
     .choices = "train|reference",
     .field = LF_OPT_FIELD(CONFIG, d.reference_only),
     .help = "reference: compute the reference log-probabilities alone, as a job of their own"},
    {.name = "reference",
     .type = LF_OPT_PATH,
     .cls = ID,
     .flags = LF_OPT_INPUT,
     .field = LF_OPT_FIELD(CONFIG, d.reference.from),
     .help = "reference artifact that such a job made of init_from and the same data; unset: "
             "computed first"},
    {.name = "loss",
     .type = LF_OPT_ENUM,
     .cls = ID,
     .def = "sigmoid",
     .choices = "sigmoid|robust|hinge|ipo|orpo|simpo|kto",
     .field = LF_OPT_FIELD(CONFIG, loss),
     .help = "what is minimised; kto reads labelled answers, the others pairs"},
    {.name = "beta",
     .type = LF_OPT_FLOAT,
     .cls = ID,
     .min = 1e-6,
     .max = 1e6,
     .field = LF_OPT_FIELD(CONFIG, d.pair.beta),
     .help = "how fast the loss grows; unset: 0.1, with simpo 2"},
    {.name = "label_smoothing",
     .type = LF_OPT_FLOAT,
     .cls = ID,
     .def = "0",
     .max = 0.499,
     .field = LF_OPT_FIELD(CONFIG, d.pair.smoothing),
     .help = "share of pairs taken to be the wrong way round: sigmoid (cDPO) and robust"},
    {.name = "simpo_gamma",
     .was = "gamma",
     .type = LF_OPT_FLOAT,
     .cls = ID,
     .max = 1e6,
     .field = LF_OPT_FIELD(CONFIG, d.pair.gamma),
     .help = "simpo: margin wanted; unset: 0.5"},
    {.name = "nll",
     .type = LF_OPT_FLOAT,
     .cls = ID,
     .def = "0",
     .max = 1e6,
     .field = LF_OPT_FIELD(CONFIG, d.pair.nll),
     .help = "weight of the better answer's mean -log p that is added to the loss of a pair"},
    {.name = "weight_good",
     .type = LF_OPT_FLOAT,
     .cls = ID,
     .def = "1",
     .max = 1e6,
     .field = LF_OPT_FIELD(CONFIG, d.kto_opts.w_good),
     .help = "kto: weight of good answers"},
    {.name = "weight_bad",
     .type = LF_OPT_FLOAT,
     .cls = ID,
     .def = "1",
     .max = 1e6,
     .field = LF_OPT_FIELD(CONFIG, d.kto_opts.w_bad),
     .help = "kto: weight of the others"},

    LF_TRAIN_LENGTH_ROWS("length of the run; one data only; unset, as steps and tokens are: 1"),

    LF_TRAIN_OPTIMIZER_ROWS(NULL, "peak learning rate; unset: 1e-6, with lora_rank 1e-5",
                            LF_TRAIN_MIN_LR, "cosine", LF_TRAIN_STEPS, "0.95", "0"),
    LF_TRAIN_SCALE_ROWS,
    LF_TRAIN_ADAPTER_ROWS,
    LF_TRAIN_PARTS_ROWS,
    LF_TRAIN_DROPOUT_ROWS,
    LF_TRAIN_STATE_ROWS,
    LF_TRAIN_COMPUTE_ROWS(LF_TRAIN_PRECISIONS),
    LF_TRAIN_OPERATION_ROWS,
    LF_TRAIN_SAVING_ROWS("steps", "steps"),
    LF_TRAIN_COPIES_ROWS,
    LF_TRAIN_GPU_ROWS,
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
