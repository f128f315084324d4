/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-pretrain.
 */
#include "stages/opts.h"

#define ID LF_OPT_IDENTITY
#define NUM LF_OPT_NUMERIC
#define OP LF_OPT_OPERATIONAL

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    {"data", LF_OPT_PATH, ID, LF_OPT_REQUIRED | LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "shards artifact to train on; several are blended"},
    {"data_weights", LF_OPT_FLOAT, ID, LF_OPT_REPEAT, NULL, 1e-6, 1e6, NULL, NULL,
     "share of each data in the samples, one per data; unset: in proportion to their tokens"},
    {"valid_data", LF_OPT_PATH, OP, LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "shards artifact whose valid split is measured; unset: those of data that have one"},
    {"verify", LF_OPT_ENUM, OP, 0, "auto", 0, 0, "auto|yes|no", NULL,
     "read the data again at the start and compare its hashes; auto: data of at most 4 GiB"},
    {"init_from", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "checkpoint whose weights to begin with; unset: random"},

    {"steps", LF_OPT_COUNT, ID, 0, NULL, 1, 1e12, NULL, "steps", "length of the run; give one of steps, tokens, epochs"},
    {"tokens", LF_OPT_COUNT, ID, 0, NULL, 1, 1e15, NULL, "tokens", "length of the run, padding counted"},
    {"epochs", LF_OPT_FLOAT, ID, 0, NULL, 1e-6, 1e6, NULL, NULL, "length of the run; one data only"},
    {"seq_length", LF_OPT_COUNT, ID, 0, "1024", 2, 1 << 24, NULL, "tokens", "tokens of a packed sequence"},
    {"batch", LF_OPT_COUNT, ID, 0, NULL, 1, 1e9, NULL, "sequences", "sequences of an optimizer step; unset: micro_batch"},
    {"batch_tokens", LF_OPT_COUNT, ID, 0, NULL, 1, 1e12, NULL, "tokens", "the same in tokens, a multiple of seq_length"},
    {"batch_ramp", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "N@FROM: from sequence FROM on a step takes N; the first is N@0; instead of batch"},
    {"micro_batch", LF_OPT_COUNT, NUM, 0, "1", 1, 1e6, NULL, "sequences", "sequences computed at once"},
    {"packing", LF_OPT_ENUM, ID, 0, "concat", 0, 0, "concat|bfd", NULL,
     "concat cuts documents where a sequence ends; bfd keeps those that fit whole"},
    {"max_docs", LF_OPT_INT, ID, 0, "0", 0, 1 << 24, NULL, "documents", "bound per sequence; 0: 256 or seq_length"},
    {"sample_order", LF_OPT_ENUM, ID, 0, "shuffled", 0, 0, "shuffled|megatron", NULL,
     "megatron: the samples of a Megatron-LM run on this data, which cross documents, in its order"},
    {"megatron_seed", LF_OPT_COUNT, ID, 0, "1234", 0, 4294967295.0, NULL, NULL, "its seed"},
    {"megatron_split", LF_OPT_STR, ID, 0, "1", 0, 0, NULL, NULL,
     "its split, such as 949,50,1: the first part of the train shards is trained on"},
    {"megatron_samples", LF_OPT_COUNT, ID, 0, "0", 0, 1e12, NULL, "sequences",
     "length of that run (train samples, or steps x batch); 0: of this one"},
    {"megatron_surplus", LF_OPT_FLOAT, ID, 0, "0.005", 0, 1, NULL, NULL,
     "with data_weights: share of samples indexed beyond those needed"},
    {"seed", LF_OPT_INT, ID, 0, "1", 0, 0, NULL, NULL, "of initial weights, data order and dropout"},
    {"skip_batches", LF_OPT_COUNT, NUM, LF_OPT_REPEAT, NULL, 0, 1e12, NULL, NULL,
     "batch numbers to pass over, as a diverged run names them"},

    {"lr", LF_OPT_FLOAT, ID, 0, "3e-4", 1e-12, 10, NULL, NULL, "peak learning rate"},
    {"min_lr", LF_OPT_FLOAT, ID, 0, NULL, 0, 10, NULL, NULL, "learning rate at the end; unset: a tenth of lr"},
    {"schedule", LF_OPT_ENUM, ID, 0, "cosine", 0, 0, "constant|linear|cosine|inverse_sqrt|wsd", NULL,
     "course of the learning rate after the warm-up"},
    {"warmup", LF_OPT_COUNT, ID, 0, "0", 0, 1e12, NULL, "steps", "linear warm-up"},
    {"decay", LF_OPT_COUNT, ID, 0, "0", 0, 1e12, NULL, "steps", "length of the final decay of schedule = wsd"},
    {"decay_shape", LF_OPT_ENUM, ID, 0, "linear", 0, 0, "linear|cosine|exp|sqrt", NULL, "shape of that decay"},
    {"beta1", LF_OPT_FLOAT, ID, 0, "0.9", 0, 0.999999, NULL, NULL, "AdamW: memory of the mean"},
    {"beta2", LF_OPT_FLOAT, ID, 0, "0.95", 0, 0.999999, NULL, NULL, "AdamW: memory of the square"},
    {"eps", LF_OPT_FLOAT, ID, 0, "1e-8", 1e-16, 1, NULL, NULL, "AdamW: added to the root of the square"},
    {"weight_decay", LF_OPT_FLOAT, ID, 0, "0.1", 0, 10, NULL, NULL, "AdamW: of matrices; vectors have none"},
    {"clip", LF_OPT_FLOAT, ID, 0, "1", 0, 1e9, NULL, NULL, "bound on the global gradient norm; 0: none"},
    {"z_loss", LF_OPT_FLOAT, ID, 0, "0", 0, 1, NULL, NULL, "coefficient of the squared log-partition; 0: none"},

    {"precision", LF_OPT_ENUM, ID, 0, "f32", 0, 0, "f32|bf16", NULL,
     "what activations and matrix products are stored in; masters stay f32"},
    {"numeric", LF_OPT_ENUM, NUM, 0, "fast", 0, 0, "fast|invariant", NULL,
     "invariant: the bits of a row do not depend on its neighbours, batch or threads"},
    {"recompute", LF_OPT_ENUM, OP, 0, "none", 0, 0, "none|selective|full", NULL,
     "activations computed again in the backward pass: less memory, more time, the same bits"},

    {"valid_interval", LF_OPT_COUNT, OP, 0, "0", 0, 1e12, NULL, "steps", "validate this often; 0: at the end only"},
    {"valid_tokens", LF_OPT_COUNT, OP, 0, "0", 0, 1e12, NULL, "tokens", "measure the first so many; 0: the whole split"},
    {"save_interval", LF_OPT_COUNT, OP, 0, "0", 0, 1e12, NULL, "steps", "save a checkpoint this often; 0: by time only"},
    {"save_time", LF_OPT_DURATION, OP, 0, "30m", 0, 1e9, NULL, "seconds", "save when the last one is this old; 0: never"},
    {"save_async", LF_OPT_BOOL, OP, 0, "yes", 0, 0, NULL, NULL,
     "write checkpoints in the background from a copy in memory (12 bytes a parameter)"},
    {"keep", LF_OPT_INT, OP, 0, "2", 1, 1e6, NULL, NULL, "newest intermediate checkpoints kept"},
    {"keep_every", LF_OPT_COUNT, OP, 0, "0", 0, 1e12, NULL, "steps", "keep those of every so many steps too; 0: none"},
    {"log_interval", LF_OPT_COUNT, OP, 0, "10", 1, 1e9, NULL, "steps", "steps between two lines of log"},
    {"spike_factor", LF_OPT_FLOAT, OP, 0, "3", 0, 1e6, NULL, NULL,
     "stop when the loss exceeds its running mean by this factor; 0: never"},
    {"spike_after", LF_OPT_COUNT, OP, 0, "100", 1, 1e12, NULL, "steps", "spikes are looked for after this many"},
};

static const char *const outputs[] = {"checkpoint", NULL};

const lf_opt_table lf_pretrain_opts = {
    .stage = "pretrain",
    .spec_version = 1,
    .summary = "train a language model on token shards, from random weights or a checkpoint",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(opts[0]),
    .outputs = outputs,
};
