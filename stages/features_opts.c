/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-features.
 */
#include "stages/train_opts.h"

#define ID LF_OPT_IDENTITY
#define OP LF_OPT_OPERATIONAL

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    {.name = "checkpoint",
     .group = "model",
     .type = LF_OPT_PATH,
     .cls = ID,
     .flags = LF_OPT_REQUIRED | LF_OPT_INPUT,
     LF_OPT_CHECKPOINT,
     .help = "the model whose encoder of pictures runs; nothing else of it is read"},
    LF_WEIGHTS_ROW(""),
    {.name = "data",
     .group = "data",
     .type = LF_OPT_PATH,
     .cls = ID,
     .flags = LF_OPT_REQUIRED | LF_OPT_REPEAT | LF_OPT_INPUT,
     LF_OPT_SHARDS,
     .help = "shards artifact with pictures; of several all"},
    {.name = "precision",
     .group = "precision and memory",
     .type = LF_OPT_ENUM,
     .cls = ID,
     .def = "f32",
     .choices = "f32|bf16|fp16",
     .help = "of weights, activations and features: that of the training which reads them (fp8: "
             "bf16); fp16: on GPUs"},
    {.name = "numeric",
     .type = LF_OPT_ENUM,
     .cls = LF_OPT_NUMERIC,
     .def = "invariant",
     .choices = "invariant|fast",
     .help = "invariant: training with numeric = invariant has the same bits as with the encoder"},
    {.name = "max_patches",
     .type = LF_OPT_COUNT,
     .cls = OP,
     .def = "2048",
     .min = 1,
     .max = 1 << 24,
     .unit = "patches",
     .help = "of the pictures that are encoded at once; at least those of the largest"},
    {.name = "max_tiles",
     .type = LF_OPT_COUNT,
     .cls = OP,
     .def = "0",
     .max = 1 << 20,
     .unit = "tiles",
     .help = "the same, tiles of a picture counted; 0: a sixteenth of max_patches"},
    LF_TRAIN_DEVICE_ROWS,
};

static const char *const outputs[] = {"features", NULL};

const lf_opt_table lf_features_opts = {
    .stage = "features",
    .spec_version = 1,
    .summary = "run a frozen encoder once over the pictures of shards, for training to read",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(opts[0]),
    .outputs = outputs,
};
