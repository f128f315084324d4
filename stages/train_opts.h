/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that the option tables of training stages share, by the functions of train_common.h that
 * read them. Each is a list of rows for an array of lf_opt; what stages have other defaults or
 * units for is an argument. Every stage's defaults are held by tests/unit/stage_opts.txt.
 */
#ifndef LF_STAGES_TRAIN_OPTS_H
#define LF_STAGES_TRAIN_OPTS_H

#include "stages/opts.h"

/* clang-format off */

/* lf_train_read_data */
#define LF_TRAIN_DATA_ROWS \
    {"data", LF_OPT_PATH, LF_OPT_IDENTITY, LF_OPT_REQUIRED | LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL, \
     "shards artifact to train on; several are blended"}, \
    {"data_weights", LF_OPT_FLOAT, LF_OPT_IDENTITY, LF_OPT_REPEAT, NULL, 1e-6, 1e6, NULL, NULL, \
     "share of each data in the samples, one per data; unset: in proportion to their tokens"}, \
    {"valid_data", LF_OPT_PATH, LF_OPT_OPERATIONAL, LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL, \
     "shards artifact whose valid split is measured; unset: those of data that have one"}, \
    {"verify", LF_OPT_ENUM, LF_OPT_OPERATIONAL, 0, "auto", 0, 0, "auto|yes|no", NULL, \
     "read the data again at the start and compare its hashes; auto: data of at most 4 GiB"}

/* lf_train_read_length, lf_train_read_batch */
#define LF_TRAIN_LENGTH_ROWS(epochs) \
    {"steps", LF_OPT_COUNT, LF_OPT_IDENTITY, 0, NULL, 1, 1e12, NULL, "steps", "length of the run; give one of steps, tokens, epochs"}, \
    {"tokens", LF_OPT_COUNT, LF_OPT_IDENTITY, 0, NULL, 1, 1e15, NULL, "tokens", "length of the run, padding counted"}, \
    {"epochs", LF_OPT_FLOAT, LF_OPT_IDENTITY, 0, NULL, 1e-6, 1e6, NULL, NULL, epochs}, \
    {"seq_length", LF_OPT_COUNT, LF_OPT_IDENTITY, 0, "1024", 2, 1 << 24, NULL, "tokens", "tokens of a packed sequence"}, \
    {"batch", LF_OPT_COUNT, LF_OPT_IDENTITY, 0, NULL, 1, 1e9, NULL, "sequences", "sequences of an optimizer step; unset: micro_batch"}, \
    {"batch_tokens", LF_OPT_COUNT, LF_OPT_IDENTITY, 0, NULL, 1, 1e12, NULL, "tokens", "the same in tokens, a multiple of seq_length"}, \
    {"micro_batch", LF_OPT_COUNT, LF_OPT_NUMERIC, 0, "1", 1, 1e6, NULL, "sequences", "sequences computed at once"}, \
    {"max_docs", LF_OPT_INT, LF_OPT_IDENTITY, 0, "0", 0, 1 << 24, NULL, "documents", \
     "bound per sequence, padding counted; one document or pair fits; 0: 256 or seq_length"}, \
    {"seed", LF_OPT_INT, LF_OPT_IDENTITY, 0, "1", 0, 0, NULL, NULL, "of initial weights, data order and dropout"}, \
    {"skip_batches", LF_OPT_COUNT, LF_OPT_NUMERIC, LF_OPT_REPEAT, NULL, 0, 1e12, NULL, NULL, \
     "batch numbers to pass over, as a diverged run names them"}

/* lf_train_read_optimizer; unit: of warmup and decay; weight: of the weight decay */
#define LF_TRAIN_MIN_LR "learning rate at the end; unset: a tenth of lr"
#define LF_TRAIN_OPTIMIZER_ROWS(lr, lr_help, min_lr_help, course, unit, second, weight) \
    {"lr", LF_OPT_FLOAT, LF_OPT_IDENTITY, 0, lr, 1e-12, 10, NULL, NULL, lr_help}, \
    {"min_lr", LF_OPT_FLOAT, LF_OPT_IDENTITY, 0, NULL, 0, 10, NULL, NULL, min_lr_help}, \
    {"schedule", LF_OPT_ENUM, LF_OPT_IDENTITY, 0, course, 0, 0, "constant|linear|cosine|inverse_sqrt|wsd", NULL, \
     "course of the learning rate after the warm-up"}, \
    {"warmup", LF_OPT_COUNT, LF_OPT_IDENTITY, 0, "0", 0, 1e12, NULL, unit, "linear warm-up"}, \
    {"decay", LF_OPT_COUNT, LF_OPT_IDENTITY, 0, "0", 0, 1e12, NULL, unit, "length of the final decay of schedule = wsd"}, \
    {"decay_shape", LF_OPT_ENUM, LF_OPT_IDENTITY, 0, "linear", 0, 0, "linear|cosine|exp|sqrt", NULL, "shape of that decay"}, \
    {"beta1", LF_OPT_FLOAT, LF_OPT_IDENTITY, 0, "0.9", 0, 0.999999, NULL, NULL, "AdamW: memory of the mean"}, \
    {"beta2", LF_OPT_FLOAT, LF_OPT_IDENTITY, 0, second, 0, 0.999999, NULL, NULL, "AdamW: memory of the square"}, \
    {"eps", LF_OPT_FLOAT, LF_OPT_IDENTITY, 0, "1e-8", 1e-16, 1, NULL, NULL, "AdamW: added to the root of the square"}, \
    {"weight_decay", LF_OPT_FLOAT, LF_OPT_IDENTITY, 0, weight, 0, 10, NULL, NULL, "AdamW: of matrices; vectors have none"}, \
    {"clip", LF_OPT_FLOAT, LF_OPT_IDENTITY, 0, "1", 0, 1e9, NULL, NULL, "bound on the global gradient norm; 0: none"}

/* lf_train_read_scale, which lf_train_read_optimizer does */
#define LF_TRAIN_SCALE_ROWS \
    {"loss_scale", LF_OPT_FLOAT, LF_OPT_NUMERIC, 0, NULL, 0, 1e38, NULL, NULL, \
     "what the loss is multiplied by for the backward pass; 0: found and adjusted while training; unset: 1, with precision = fp16 0"}, \
    {"loss_scale_start", LF_OPT_FLOAT, LF_OPT_NUMERIC, 0, "65536", 1, 1e38, NULL, NULL, "with loss_scale = 0: the first one, rounded down to a power of two"}, \
    {"loss_scale_window", LF_OPT_COUNT, LF_OPT_NUMERIC, 0, "2000", 1, 1e12, NULL, "steps", \
     "with loss_scale = 0: doubled after so many steps without an overflow"}

/* lf_train_read_state */
#define LF_TRAIN_STATE_ROWS \
    {"moments", LF_OPT_ENUM, LF_OPT_IDENTITY, 0, "f32", 0, 0, "f32|bf16", NULL, \
     "what the optimizer's mean and square are kept in: 8 or 4 bytes a parameter"}, \
    {"masters", LF_OPT_ENUM, LF_OPT_IDENTITY, 0, "f32", 0, 0, "f32|bf16", NULL, \
     "what weights are kept in beside the bf16 of precision = bf16; bf16: matrices have no f32 weights, 4 bytes a parameter less"}, \
    {"stochastic_rounding", LF_OPT_BOOL, LF_OPT_IDENTITY, 0, "yes", 0, 0, NULL, NULL, \
     "with moments or masters = bf16: up or down at random, right in the mean, the same in every run of a seed; no: to nearest"}, \
    {"optimizer_offload", LF_OPT_FLOAT, LF_OPT_OPERATIONAL, 0, "0", 0, 1, NULL, NULL, \
     "on a GPU: share of the parameters whose moments, and with precision = bf16 or fp16 masters, lie in the host's memory; no bit changes"}

/* lf_train_read_saving; unit: of intervals; made: of what checkpoints are numbered by */
#define LF_TRAIN_SAVING_ROWS(unit, made) \
    {"save_interval", LF_OPT_COUNT, LF_OPT_OPERATIONAL, 0, "0", 0, 1e12, NULL, unit, \
     "save a checkpoint this often; 0: by time only"}, \
    {"save_time", LF_OPT_DURATION, LF_OPT_OPERATIONAL, 0, "30m", 0, 1e9, NULL, "seconds", \
     "save when the last one is this old; 0: never"}, \
    {"keep", LF_OPT_INT, LF_OPT_OPERATIONAL, 0, "2", 1, 1e6, NULL, NULL, "newest intermediate checkpoints kept"}, \
    {"keep_every", LF_OPT_COUNT, LF_OPT_OPERATIONAL, 0, "0", 0, 1e12, NULL, made, \
     "keep those of every so many too; 0: none"}

/* lf_train_read_compute; precisions: those that the stage has, and what help says of the last
 * ones */
#define LF_TRAIN_PRECISIONS "f32|bf16|fp16", NULL, "what activations and matrix products are stored in; fp16: on GPUs"
#define LF_TRAIN_PRECISIONS_FP8 "f32|bf16|fp16|fp8", NULL, \
    "what activations and matrix products are stored in; fp16: on GPUs; fp8: bf16, with products of 8-bit floats in the layers"
#define LF_TRAIN_COMPUTE_ROWS(precisions) \
    {"precision", LF_OPT_ENUM, LF_OPT_IDENTITY, 0, "f32", 0, 0, precisions}, \
    {"recompute", LF_OPT_ENUM, LF_OPT_OPERATIONAL, 0, "none", 0, 0, "none|selective|full", NULL, \
     "activations computed again in the backward pass: less memory, more time, the same bits"}

/* lf_train_read_operation */
#define LF_TRAIN_OPERATION_ROWS \
    {"numeric", LF_OPT_ENUM, LF_OPT_NUMERIC, 0, "fast", 0, 0, "fast|invariant", NULL, \
     "invariant: the bits of a row do not depend on its neighbours, batch or threads"}, \
    {"valid_interval", LF_OPT_COUNT, LF_OPT_OPERATIONAL, 0, "0", 0, 1e12, NULL, "steps", "validate this often; 0: at the end only"}, \
    {"valid_tokens", LF_OPT_COUNT, LF_OPT_OPERATIONAL, 0, "0", 0, 1e12, NULL, "tokens", "measure the first so many; 0: the whole split"}, \
    {"save_async", LF_OPT_BOOL, LF_OPT_OPERATIONAL, 0, "yes", 0, 0, NULL, NULL, \
     "write checkpoints in the background from a copy in memory (12 bytes a parameter; less with bf16 state)"}, \
    {"log_interval", LF_OPT_COUNT, LF_OPT_OPERATIONAL, 0, "10", 1, 1e9, NULL, "steps", "steps between two lines of log"}, \
    {"spike_factor", LF_OPT_FLOAT, LF_OPT_OPERATIONAL, 0, "3", 0, 1e6, NULL, NULL, \
     "stop when the loss exceeds its running mean by this factor; 0: never"}, \
    {"spike_after", LF_OPT_COUNT, LF_OPT_OPERATIONAL, 0, "100", 1, 1e12, NULL, "steps", "spikes are looked for after this many"}

/* lf_train_read_fp8 */
#define LF_TRAIN_QUANTISED_ROWS \
    {"fp8_scaling", LF_OPT_ENUM, LF_OPT_IDENTITY, 0, "tensor", 0, 0, "tensor|block", NULL, \
     "with precision = fp8: a scale for each tensor; or for each 1 x 128 of activations and gradients and 128 x 128 of weights (sm_90)"}, \
    {"fp8_layers", LF_OPT_STR, LF_OPT_IDENTITY, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL, \
     "with precision = fp8: attention, mlp: whose products are of 8-bit floats; unset: both"}, \
    {"fp8_edges", LF_OPT_INT, LF_OPT_IDENTITY, 0, "0", 0, 65536, NULL, "layers", \
     "with precision = fp8: so many layers at either end stay bf16, as embedding and head always do"}

/* stage.c; of every stage that runs a model */
#define LF_TRAIN_PROFILE_ROWS \
    {"profile", LF_OPT_BOOL, LF_OPT_OPERATIONAL, 0, "no", 0, 0, NULL, NULL, \
     "time every operation: a table in the log, profile.json and profile.trace.json beside the metrics or in out"}

/* of every stage that runs a model; lf_stage_device */
#define LF_TRAIN_DEVICE_ROWS \
    {"device", LF_OPT_ENUM, LF_OPT_NUMERIC, 0, "auto", 0, 0, "auto|cpu|cuda", NULL, \
     "what to compute on; auto: a GPU where there is one and this build carries code for it, else the CPU"}

/* of objectives on judged answers; lf_train_settle_dropout */
#define LF_TRAIN_DROPOUT_ROWS \
    {"dropout", LF_OPT_BOOL, LF_OPT_IDENTITY, 0, "no", 0, 0, NULL, NULL, \
     "apply the model's dropout and lora_dropout in training; references and measurements have none"}

/* lf_train_read_adapter */
#define LF_TRAIN_ADAPTER_ROWS \
    {"adapter", LF_OPT_PATH, LF_OPT_IDENTITY, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL, \
     "adapter of init_from to go on training, of ours or PEFT's; its settings come with it, lora_ options may only repeat them"}

/* lf_train_read_parts */
#define LF_TRAIN_PARTS_ROWS \
    {"lora_rank", LF_OPT_INT, LF_OPT_IDENTITY, 0, "0", 0, 65536, NULL, NULL, \
     "rank of low-rank adapters that are trained in place of the weights; 0: none"}, \
    {"lora_alpha", LF_OPT_FLOAT, LF_OPT_IDENTITY, 0, NULL, 1e-6, 1e6, NULL, NULL, \
     "their scale is lora_alpha / lora_rank; unset: twice lora_rank"}, \
    {"lora_scaling", LF_OPT_ENUM, LF_OPT_IDENTITY, 0, "rank", 0, 0, "rank|root", NULL, \
     "root: rank-stabilised, lora_alpha / square root of lora_rank"}, \
    {"lora_dora", LF_OPT_BOOL, LF_OPT_IDENTITY, 0, "no", 0, 0, NULL, NULL, \
     "DoRA: the lengths of the weights' rows are trained apart from their directions"}, \
    {"lora_dropout", LF_OPT_FLOAT, LF_OPT_IDENTITY, 0, "0", 0, 0.999, NULL, NULL, "of what the adapters read"}, \
    {"lora_targets", LF_OPT_STR, LF_OPT_IDENTITY, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL, \
     "layers with an adapter: all, q, k, v, o, gate, up, down, qkv, gate_up or a pattern over names; unset: all"}, \
    {"freeze", LF_OPT_STR, LF_OPT_IDENTITY, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL, \
     "pattern over names of tensors that are not trained, such as embed.* or layers.[0-3].*"}

/* clang-format on */

#endif
