/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that the option tables of training stages share, grouped by the functions of train_common.h
 * that use them. Each macro is a list of rows for an array of lf_opt. Defaults and units that
 * differ between stages are arguments. A table that uses the macros names the struct that is
 * filled: `#define CONFIG struct pretrain`. Its member c is the configuration of the loop; its
 * member g is a struct lf_train_given. tests/unit/stage_opts.txt has the defaults of every stage.
 */
#ifndef LF_STAGES_TRAIN_OPTS_H
#define LF_STAGES_TRAIN_OPTS_H

#include "stages/opts.h"

/* read by lf_train_read_data */
#define LF_TRAIN_DATA_ROWS                                                                         \
    LF_OPT_ROW(.name = "data", .group = "data", .type = LF_OPT_PATH, .cls = LF_OPT_IDENTITY,       \
               .flags = LF_OPT_REQUIRED | LF_OPT_REPEAT | LF_OPT_INPUT, LF_OPT_SHARDS,             \
               .field = LF_OPT_FIELD(CONFIG, g.data),                                              \
               .help = "shards artifact to train on; several are blended"),                        \
        LF_OPT_ROW(.name = "data_weights", .type = LF_OPT_FLOAT, .cls = LF_OPT_IDENTITY,           \
                   .flags = LF_OPT_REPEAT, .min = 1e-6, .max = 1e6,                                \
                   .field = LF_OPT_FIELD(CONFIG, g.weights),                                       \
                   .help = "share of each data in the samples, one per data; unset: in "           \
                           "proportion to their tokens"),                                          \
        LF_OPT_ROW(.name = "valid_data", .type = LF_OPT_PATH, .cls = LF_OPT_OPERATIONAL,           \
                   .flags = LF_OPT_REPEAT | LF_OPT_INPUT, LF_OPT_SHARDS,                           \
                   .field = LF_OPT_FIELD(CONFIG, g.valid),                                         \
                   .help = "shards artifact whose valid split is measured; unset: those of data "  \
                           "that have one"),                                                       \
        LF_OPT_ROW(.name = "verify_data", .was = "verify", .type = LF_OPT_ENUM,                    \
                   .cls = LF_OPT_OPERATIONAL, .def = "auto", .choices = "auto|yes|no",             \
                   .field = LF_OPT_FIELD(CONFIG, c.verify),                                        \
                   .help = "read the data again at the start and compare its hashes; auto: data "  \
                           "of at most 4 GiB")

/* read by lf_train_read_length and lf_train_read_batch */
#define LF_TRAIN_LENGTH_ROWS(epochs_help)                                                          \
    LF_OPT_ROW(.name = "steps", .group = "length and batch", .type = LF_OPT_COUNT,                 \
               .cls = LF_OPT_IDENTITY, .min = 1, .max = 1e12, .unit = "steps",                     \
               .field = LF_OPT_FIELD(CONFIG, c.steps),                                             \
               .help = "length of the run; give one of steps, tokens, epochs"),                    \
        LF_OPT_ROW(.name = "tokens", .type = LF_OPT_COUNT, .cls = LF_OPT_IDENTITY, .min = 1,       \
                   .max = 1e15, .unit = "tokens", .field = LF_OPT_FIELD(CONFIG, c.tokens),         \
                   .help = "length of the run, padding counted"),                                  \
        LF_OPT_ROW(.name = "epochs", .type = LF_OPT_FLOAT, .cls = LF_OPT_IDENTITY, .min = 1e-6,    \
                   .max = 1e6, .field = LF_OPT_FIELD(CONFIG, c.epochs), .help = epochs_help),      \
        LF_OPT_ROW(.name = "seq_length", .type = LF_OPT_COUNT, .cls = LF_OPT_IDENTITY,             \
                   .def = "1024", .min = 2, .max = 1 << 24, .unit = "tokens",                      \
                   .field = LF_OPT_FIELD(CONFIG, c.seq_length),                                    \
                   .help = "tokens of a packed sequence"),                                         \
        LF_OPT_ROW(.name = "batch", .type = LF_OPT_COUNT, .cls = LF_OPT_IDENTITY, .min = 1,        \
                   .max = 1e9, .unit = "sequences", .field = LF_OPT_FIELD(CONFIG, g.batch),        \
                   .help = "sequences of an optimizer step; unset: micro_batch"),                  \
        LF_OPT_ROW(.name = "batch_tokens", .type = LF_OPT_COUNT, .cls = LF_OPT_IDENTITY, .min = 1, \
                   .max = 1e12, .unit = "tokens", .field = LF_OPT_FIELD(CONFIG, g.batch_tokens),   \
                   .help = "the same in tokens, a multiple of seq_length"),                        \
        LF_OPT_ROW(.name = "micro_batch", .type = LF_OPT_COUNT, .cls = LF_OPT_NUMERIC, .def = "1", \
                   .min = 1, .max = 1e6, .unit = "sequences",                                      \
                   .field = LF_OPT_FIELD(CONFIG, c.micro_batch),                                   \
                   .help = "sequences computed at once"),                                          \
        LF_OPT_ROW(.name = "max_docs", .type = LF_OPT_INT, .cls = LF_OPT_IDENTITY, .def = "0",     \
                   .max = 1 << 24, .unit = "documents", .field = LF_OPT_FIELD(CONFIG, c.max_docs), \
                   .help = "bound per sequence, padding counted; one document or pair fits; 0: "   \
                           "256 or seq_length"),                                                   \
        LF_OPT_ROW(.name = "max_patches", .type = LF_OPT_COUNT, .cls = LF_OPT_IDENTITY,            \
                   .def = "0", .max = 1 << 24, .unit = "patches",                                  \
                   .field = LF_OPT_FIELD(CONFIG, c.max_patches),                                   \
                   .help = "bound of the pictures of a micro-batch; 0: data and model without "    \
                           "pictures"),                                                            \
        LF_OPT_ROW(.name = "max_tiles", .type = LF_OPT_COUNT, .cls = LF_OPT_IDENTITY, .def = "0",  \
                   .max = 1 << 20, .unit = "tiles", .field = LF_OPT_FIELD(CONFIG, c.max_tiles),    \
                   .help = "bound of the pictures of a micro-batch, tiles of one counted; 0: a "   \
                           "sixteenth of max_patches"),                                            \
        LF_OPT_ROW(.name = "features", .type = LF_OPT_PATH, .cls = LF_OPT_IDENTITY,                \
                   .flags = LF_OPT_REPEAT | LF_OPT_INPUT, .takes = "features",                     \
                   .field = LF_OPT_FIELD(CONFIG, g.features),                                      \
                   .help = "features artifact (lf-features) of the pictures of data, read in "     \
                           "place of running the encoder, which is frozen and not in memory"),     \
        LF_OPT_ROW(.name = "seed", .type = LF_OPT_INT, .cls = LF_OPT_IDENTITY, .def = "1",         \
                   .field = LF_OPT_FIELD(CONFIG, c.seed),                                          \
                   .help = "of initial weights, data order and dropout"),                          \
        LF_OPT_ROW(.name = "skip_batches", .type = LF_OPT_COUNT, .cls = LF_OPT_NUMERIC,            \
                   .flags = LF_OPT_REPEAT, .max = 1e12, .field = LF_OPT_FIELD(CONFIG, g.skip),     \
                   .help = "batch numbers to pass over, as a diverged run names them")

/* The lengths of the warm-up and of the final decay. PPO counts rounds, of which each may have
 * several steps, so its options have other names. */
#define LF_TRAIN_COURSE_ROWS(warmup, decay, before, of)                                            \
    LF_OPT_ROW(.name = "hours", .type = LF_OPT_FLOAT, .cls = LF_OPT_IDENTITY, .min = 1e-6,         \
               .max = 1e6, .unit = "hours", .field = LF_OPT_FIELD(CONFIG, c.hours),                \
               .help = "end earlier, after so much time of training over all starts; with "        \
                       "schedule = constant or wsd",                                               \
               .more = "The end is recorded as ended_at_step, and what was made of the result "    \
                       "belongs to that step. With wsd the decay begins where it ends in time "    \
                       "at the speed that was measured."),                                         \
        LF_OPT_ROW(.name = warmup, .was = before("warmup"), .type = LF_OPT_COUNT,                  \
                   .cls = LF_OPT_IDENTITY, .def = "0", .max = 1e12, .unit = of,                    \
                   .field = LF_OPT_FIELD(CONFIG, c.warmup_steps), .help = "linear warm-up"),       \
        LF_OPT_ROW(.name = decay, .was = before("decay"), .type = LF_OPT_COUNT,                    \
                   .cls = LF_OPT_IDENTITY, .def = "0", .max = 1e12, .unit = of,                    \
                   .field = LF_OPT_FIELD(CONFIG, c.decay_steps),                                   \
                   .help = "length of the final decay of schedule = wsd")
#define LF_TRAIN_NEVER(name)  NULL
#define LF_TRAIN_BEFORE(name) name
#define LF_TRAIN_STEPS        LF_TRAIN_COURSE_ROWS("warmup", "decay", LF_TRAIN_NEVER, "steps")
#define LF_TRAIN_ROUNDS                                                                            \
    LF_TRAIN_COURSE_ROWS("warmup_rounds", "decay_rounds", LF_TRAIN_BEFORE, "rounds")

/* read by lf_train_read_optimizer; peak, course, second, weight: defaults; lengths: LF_TRAIN_STEPS
 * or LF_TRAIN_ROUNDS */
#define LF_TRAIN_MIN_LR "learning rate at the end; unset: a tenth of lr"
#define LF_TRAIN_OPTIMIZER_ROWS(peak, lr_help, min_lr_help, course, lengths, second, weight)       \
    LF_OPT_ROW(.name = "lr", .group = "learning rate and optimizer", .type = LF_OPT_FLOAT,         \
               .cls = LF_OPT_IDENTITY, .def = peak, .min = 1e-12, .max = 10,                       \
               .field = LF_OPT_FIELD(CONFIG, c.lr), .help = lr_help),                              \
        LF_OPT_ROW(.name = "min_lr", .type = LF_OPT_FLOAT, .cls = LF_OPT_IDENTITY, .max = 10,      \
                   .field = LF_OPT_FIELD(CONFIG, c.min_lr), .help = min_lr_help),                  \
        LF_OPT_ROW(.name = "schedule", .type = LF_OPT_ENUM, .cls = LF_OPT_IDENTITY, .def = course, \
                   .choices = "constant|linear|cosine|inverse_sqrt|wsd",                           \
                   .field = LF_OPT_FIELD(CONFIG, c.schedule),                                      \
                   .help = "course of the learning rate after the warm-up"),                       \
        lengths,                                                                                   \
        LF_OPT_ROW(.name = "decay_shape", .type = LF_OPT_ENUM, .cls = LF_OPT_IDENTITY,             \
                   .def = "linear", .choices = "linear|cosine|exp|sqrt",                           \
                   .field = LF_OPT_FIELD(CONFIG, c.tail), .help = "shape of that decay"),          \
        LF_OPT_ROW(.name = "beta1", .type = LF_OPT_FLOAT, .cls = LF_OPT_IDENTITY, .def = "0.9",    \
                   .max = 0.999999, .field = LF_OPT_FIELD(CONFIG, c.adam.beta1),                   \
                   .help = "AdamW: memory of the mean"),                                           \
        LF_OPT_ROW(.name = "beta2", .type = LF_OPT_FLOAT, .cls = LF_OPT_IDENTITY, .def = second,   \
                   .max = 0.999999, .field = LF_OPT_FIELD(CONFIG, c.adam.beta2),                   \
                   .help = "AdamW: memory of the square"),                                         \
        LF_OPT_ROW(.name = "eps", .type = LF_OPT_FLOAT, .cls = LF_OPT_IDENTITY, .def = "1e-8",     \
                   .min = 1e-16, .max = 1, .field = LF_OPT_FIELD(CONFIG, c.adam.eps),              \
                   .help = "AdamW: added to the root of the square"),                              \
        LF_OPT_ROW(.name = "weight_decay", .type = LF_OPT_FLOAT, .cls = LF_OPT_IDENTITY,           \
                   .def = weight, .max = 10, .field = LF_OPT_FIELD(CONFIG, c.adam.weight_decay),   \
                   .help = "AdamW: of matrices; vectors have none"),                               \
        LF_OPT_ROW(.name = "clip", .type = LF_OPT_FLOAT, .cls = LF_OPT_IDENTITY, .def = "1",       \
                   .max = 1e9, .field = LF_OPT_FIELD(CONFIG, c.clip),                              \
                   .help = "bound on the global gradient norm; 0: none")

/* filled in; the stage says in mtp_asked whether it was given */
/* of stages that train encoder-decoders */
#define LF_TRAIN_SOURCE_ROW                                                                        \
    LF_OPT_ROW(.name = "source_length", .type = LF_OPT_COUNT, .cls = LF_OPT_IDENTITY, .def = "0",  \
               .max = 1 << 24, .unit = "tokens",                                                   \
               .field = LF_OPT_FIELD(CONFIG, c.seq2seq.source_length),                             \
               .help = "of an encoder-decoder: tokens of a packed sequence that its encoder "      \
                       "reads, beside seq_length that its decoder says; 0: of other models")
#define LF_TRAIN_MTP_ROW                                                                           \
    LF_OPT_ROW(.name = "mtp_weight", .group = "learning rate and optimizer", .type = LF_OPT_FLOAT, \
               .cls = LF_OPT_IDENTITY, .def = "0.1", .max = 100,                                   \
               .field = LF_OPT_FIELD(CONFIG, c.mtp_weight),                                        \
               .help = "of a model with mtp_layers: weight of the mean loss of its heads that "    \
                       "predict later tokens; 0: they are frozen",                                 \
               .more = "The loss that is told does not contain it; the metrics have those of the " \
                       "heads. Where ranks divide the layers, heads are with the last of them.")

/* read by lf_train_read_scale, which lf_train_read_optimizer calls */
#define LF_TRAIN_SCALE_ROWS                                                                        \
    LF_OPT_ROW(.name = "loss_scale", .group = "precision and memory", .type = LF_OPT_FLOAT,        \
               .cls = LF_OPT_NUMERIC, .max = 1e38, .field = LF_OPT_FIELD(CONFIG, g.loss_scale),    \
               .help = "what the loss is multiplied by for the backward pass; 0: found and "       \
                       "adjusted while training; unset: 1, with precision = fp16 0",               \
               .more = "Gradients are divided by it before they are used. With 0 it is a "         \
                       "power of two; a step whose gradient is not finite is made again on "       \
                       "the same batch with half of it. In lf-ppo policy and critic have a "       \
                       "scale each."),                                                             \
        LF_OPT_ROW(.name = "loss_scale_start", .type = LF_OPT_FLOAT, .cls = LF_OPT_NUMERIC,        \
                   .def = "65536", .min = 1, .max = 1e38,                                          \
                   .field = LF_OPT_FIELD(CONFIG, c.scaler.start),                                  \
                   .help = "with loss_scale = 0: the first one, rounded down to a power of two"),  \
        LF_OPT_ROW(.name = "loss_scale_window", .type = LF_OPT_COUNT, .cls = LF_OPT_NUMERIC,       \
                   .def = "2000", .min = 1, .max = 1e12, .unit = "steps",                          \
                   .field = LF_OPT_FIELD(CONFIG, c.scaler.window),                                 \
                   .help = "with loss_scale = 0: doubled after so many steps without an "          \
                           "overflow")

/* filled in */
#define LF_TRAIN_STATE_ROWS                                                                        \
    LF_OPT_ROW(.name = "moments", .group = "precision and memory", .type = LF_OPT_ENUM,            \
               .cls = LF_OPT_IDENTITY, .def = "f32", .choices = "f32|bf16",                        \
               .field = LF_OPT_FIELD(CONFIG, c.adam.moments),                                      \
               .help = "what the optimizer's mean and square are kept in: 8 or 4 bytes a "         \
                       "parameter",                                                                \
               .more = "A run goes on from a checkpoint of the other kind: what it holds is "      \
                       "then rounded to nearest, or widened."),                                    \
        LF_OPT_ROW(.name = "masters", .type = LF_OPT_ENUM, .cls = LF_OPT_IDENTITY, .def = "f32",   \
                   .choices = "f32|bf16", .field = LF_OPT_FIELD(CONFIG, c.adam.masters),           \
                   .help = "what weights are kept in beside the bf16 of precision = bf16; bf16: "  \
                           "matrices have no f32 weights, 4 bytes a parameter less",               \
                   .more = "Checkpoints hold them in bf16; vectors stay f32. Not with an "         \
                           "adapter."),                                                            \
        LF_OPT_ROW(.name = "stochastic_rounding", .type = LF_OPT_BOOL, .cls = LF_OPT_IDENTITY,     \
                   .def = "yes", .field = LF_OPT_FIELD(CONFIG, c.adam.stochastic),                 \
                   .help = "with moments or masters = bf16: up or down at random, right in the "   \
                           "mean, the same in every run of a seed; no: to nearest",                \
                   .more = "To nearest loses changes below half a unit."),                         \
        LF_OPT_ROW(.name = "optimizer_offload", .type = LF_OPT_FLOAT, .cls = LF_OPT_OPERATIONAL,   \
                   .def = "0", .max = 1, .field = LF_OPT_FIELD(CONFIG, c.adam.offload),            \
                   .help = "on a GPU: share of the parameters whose moments, and with precision "  \
                           "= bf16 or fp16 masters, lie in the host's memory; no bit changes",     \
                   .more = "The share is taken by whole tensors, in pinned memory. The update "    \
                           "reads and writes them there, over the bus, so a step takes longer "    \
                           "by their bytes in each direction; a run may go on with another "       \
                           "share.")

/* filled in */
#define LF_TRAIN_AVERAGE_ROWS                                                                      \
    LF_OPT_ROW(.name = "ema", .group = "averages of weights", .type = LF_OPT_FLOAT,                \
               .cls = LF_OPT_IDENTITY, .def = "0", .max = 0.9999999,                               \
               .field = LF_OPT_FIELD(CONFIG, c.average.decay),                                     \
               .help = "keep an exponential moving average of the weights with this decay, such "  \
                       "as 0.9999, beside them, 4 bytes a parameter; 0: none",                     \
               .more = "It changes nothing in training and lies in every checkpoint. weights = "   \
                       "ema of lf-generate, lf-eval, lf-score and lf-convert takes it. Not with "  \
                       "an adapter."),                                                             \
        LF_OPT_ROW(.name = "ema_start", .type = LF_OPT_COUNT, .cls = LF_OPT_IDENTITY, .def = "0",  \
                   .max = 1e12, .unit = "steps", .field = LF_OPT_FIELD(CONFIG, c.average.start),   \
                   .help = "with ema: until after so many steps it is the weights themselves"),    \
        LF_OPT_ROW(.name = "ema_warmup", .type = LF_OPT_BOOL, .cls = LF_OPT_IDENTITY, .def = "no", \
                   .field = LF_OPT_FIELD(CONFIG, c.average.warmup),                                \
                   .help = "with ema: k steps behind its start the decay is at most (1 + k) / "    \
                           "(10 + k)")

/* filled in directly; of: unit of intervals; made: the unit that numbers checkpoints */
#define LF_TRAIN_SAVING_ROWS(of, made)                                                             \
    LF_OPT_ROW(.name = "save_interval", .group = "saving", .type = LF_OPT_COUNT,                   \
               .cls = LF_OPT_OPERATIONAL, .def = "0", .max = 1e12, .unit = of,                     \
               .field = LF_OPT_FIELD(CONFIG, c.save_interval),                                     \
               .help = "save a checkpoint this often; 0: by time only"),                           \
        LF_OPT_ROW(.name = "save_time", .type = LF_OPT_DURATION, .cls = LF_OPT_OPERATIONAL,        \
                   .def = "30m", .max = 1e9, .unit = "seconds",                                    \
                   .field = LF_OPT_FIELD(CONFIG, c.save_time_s),                                   \
                   .help = "save when the last one is this old; 0: never"),                        \
        LF_OPT_ROW(.name = "keep", .type = LF_OPT_INT, .cls = LF_OPT_OPERATIONAL, .def = "2",      \
                   .min = 1, .max = 1e6, .field = LF_OPT_FIELD(CONFIG, c.keep),                    \
                   .help = "newest intermediate checkpoints kept"),                                \
        LF_OPT_ROW(.name = "keep_every", .type = LF_OPT_COUNT, .cls = LF_OPT_OPERATIONAL,          \
                   .def = "0", .max = 1e12, .unit = made,                                          \
                   .field = LF_OPT_FIELD(CONFIG, c.keep_every),                                    \
                   .help = "keep those of every so many too; 0: none")

/* read by lf_train_read_compute; precisions: those that the stage has, and the help text of the
 * last ones */
#define LF_TRAIN_PRECISIONS                                                                        \
    .choices = "f32|bf16|fp16",                                                                    \
    .help = "what activations and matrix products are stored in; fp16: on GPUs"
#define LF_TRAIN_PRECISIONS_FP8                                                                    \
    .choices = "f32|bf16|fp16|fp8",                                                                \
    .help = "what activations and matrix products are stored in; fp16: on GPUs; "                  \
            "fp8: bf16, with products of 8-bit floats in the layers"
#define LF_TRAIN_COMPUTE_ROWS(precisions)                                                          \
    LF_OPT_ROW(.name = "precision", .group = "precision and memory", .type = LF_OPT_ENUM,          \
               .cls = LF_OPT_IDENTITY, .def = "f32", .field = LF_OPT_FIELD(CONFIG, g.precision),   \
               precisions),                                                                        \
        LF_OPT_ROW(.name = "recompute", .type = LF_OPT_ENUM, .cls = LF_OPT_OPERATIONAL,            \
                   .def = "none", .choices = "none|selective|full",                                \
                   .field = LF_OPT_FIELD(CONFIG, c.recompute),                                     \
                   .help = "activations computed again in the backward pass: less memory, more "   \
                           "time, the same bits",                                                  \
                   .more =                                                                         \
                       "selective: all that costs no matrix product. full: a layer keeps what "    \
                       "it reads, and nothing else; ranks that divide matrices gather and sum "    \
                       "a second time, and those that divide experts send rows a second time.")

/* filled in */
#define LF_TRAIN_TENSOR_ROW                                                                        \
    LF_OPT_ROW(.name = "tensor", .type = LF_OPT_INT, .cls = LF_OPT_NUMERIC, .def = "1", .min = 1,  \
               .max = 65536, .unit = "ranks", .field = LF_OPT_FIELD(CONFIG, c.axes.tensor),        \
               .help = "how many ranks divide the matrices of each layer among themselves",        \
               .more = "Each of them has some of the heads, of the columns of an MLP and of the "  \
                       "rows of the vocabulary; they read the same micro-batches and sum what "    \
                       "they compute four times a layer. They are neighbours on a node. What is "  \
                       "left of the ranks shares the batch. Results differ from those of one "     \
                       "rank as sums in another order do; checkpoints have the same tensors."),    \
        LF_OPT_ROW(.name = "sequence_parallel", .type = LF_OPT_BOOL, .cls = LF_OPT_NUMERIC,        \
                   .def = "no", .field = LF_OPT_FIELD(CONFIG, c.axes.sequence),                    \
                   .help = "with tensor, ranks divide rows, too, between the matrices",            \
                   .more = "Norms and what is kept for the backward pass are then divided among "  \
                           "the ranks of tensor, which takes less memory; as many bytes move."),   \
        LF_OPT_ROW(.name = "tensor_across_nodes", .type = LF_OPT_BOOL, .cls = LF_OPT_OPERATIONAL,  \
                   .def = "no", .field = LF_OPT_FIELD(CONFIG, c.axes.across_nodes),                \
                   .help = "let ranks that divide matrices be on several nodes",                   \
                   .more = "Each layer then waits for the network. Without it such a layout is "   \
                           "refused."),                                                            \
        LF_OPT_ROW(.name = "context", .type = LF_OPT_INT, .cls = LF_OPT_NUMERIC, .def = "1",       \
                   .min = 1, .max = 65536, .unit = "ranks",                                        \
                   .field = LF_OPT_FIELD(CONFIG, c.axes.context),                                  \
                   .help = "how many ranks divide the rows of each micro-batch",                   \
                   .more =                                                                         \
                       "For documents that are too long for one rank. Each rank has the "          \
                       "activations of its rows, and all weights that its tensor and zero "        \
                       "leave it. With context_kind = ulysses heads of attention, and those "      \
                       "of a rank of tensor, must divide by it. With a loss that compares whole "  \
                       "texts ranks give each other the few numbers of a row that it reads."),     \
        LF_OPT_ROW(.name = "context_kind", .type = LF_OPT_ENUM, .cls = LF_OPT_NUMERIC,             \
                   .def = "ulysses", .choices = "ulysses|gather|both|ring",                        \
                   .field = LF_OPT_FIELD(CONFIG, c.axes.context_kind),                             \
                   .help = "how rows of other ranks of context come to attention",                 \
                   .more =                                                                         \
                       "ulysses: each rank computes some of the heads over whole documents, "      \
                       "with the bits of one rank. gather: it computes all heads of its own "      \
                       "rows, which are dealt by the work that the documents leave them, over "    \
                       "keys and values that the ranks gather, on CPUs; the number of heads "      \
                       "does not matter then. both: as many neighbours as divide the heads "       \
                       "do the first, and such groups the second among themselves. ring is "       \
                       "not built; it is refused with the reason."),                               \
        LF_OPT_ROW(.name = "pipeline", .type = LF_OPT_INT, .cls = LF_OPT_NUMERIC, .def = "1",      \
                   .min = 1, .max = 65536, .unit = "ranks",                                        \
                   .field = LF_OPT_FIELD(CONFIG, c.axes.pipeline),                                 \
                   .help = "how many ranks have different layers of the model",                    \
                   .more = "Micro-batches go from rank to rank, so a step needs several of them "  \
                           "to keep all busy. Results differ from those of one rank by the "       \
                           "rounding of the gradients' norm, and of a tied embedding."),           \
        LF_OPT_ROW(.name = "pipeline_chunks", .type = LF_OPT_INT, .cls = LF_OPT_NUMERIC,           \
                   .def = "1", .min = 1, .max = 16, .unit = "parts",                               \
                   .field = LF_OPT_FIELD(CONFIG, c.axes.chunks),                                   \
                   .help = "parts of the model that each rank of pipeline has",                    \
                   .more = "With more of them ranks wait less for each other and more moves."),    \
        LF_OPT_ROW(.name = "pipeline_schedule", .type = LF_OPT_ENUM, .cls = LF_OPT_NUMERIC,        \
                   .def = "auto", .choices = "auto|gpipe|1f1b|interleaved|zb-h1|zb-v|dualpipe-v",  \
                   .field = LF_OPT_FIELD(CONFIG, c.axes.schedule),                                 \
                   .help = "order of the passes; auto: 1f1b, or interleaved with several chunks",  \
                   .more = "gpipe: all forward passes of a step first, which keeps all its "       \
                           "micro-batches in memory. 1f1b: forward and backward passes in turn. "  \
                           "interleaved: the same through several chunks. zb-h1: gradients of "    \
                           "weights fill the gaps of 1f1b. zb-v and dualpipe-v: rank 0 has the "   \
                           "first and the last part, the others two from between, and gradients "  \
                           "of weights fill the gaps; of N ranks each keeps N or N + 1/2 "         \
                           "micro-batches, and dualpipe-v needs 2 N of them. Bits depend on "      \
                           "where the parts are, as on pipeline."),                                \
        LF_OPT_ROW(.name = "pipeline_stages", .type = LF_OPT_STR, .cls = LF_OPT_NUMERIC,           \
                   .field = LF_OPT_FIELD(CONFIG, c.axes.stages),                                   \
                   .help = "layers of each part of the model, such as 6,6,5,3; unset: as even as " \
                           "pipeline_cost allows"),                                                \
        LF_OPT_ROW(.name = "pipeline_cost", .type = LF_OPT_ENUM, .cls = LF_OPT_NUMERIC,            \
                   .def = "estimated", .choices = "estimated|measured",                            \
                   .field = LF_OPT_FIELD(CONFIG, c.axes.measured),                                 \
                   .help = "what the parts are made even by: FLOPs, or the time of each layer "    \
                           "where the run begins",                                                 \
                   .more = "measured: each kind of layer, the embedding and the head run forward " \
                           "and backward for some seconds before the first step; the log tells "   \
                           "their times and that of a step by the schedule. Checkpoints keep the " \
                           "cut, and a start with the same layout takes it from there; another "   \
                           "layout measures again."),                                              \
        LF_OPT_ROW(.name = "expert", .type = LF_OPT_INT, .cls = LF_OPT_NUMERIC, .def = "1",        \
                   .min = 1, .max = 65536, .unit = "ranks",                                        \
                   .field = LF_OPT_FIELD(CONFIG, c.axes.expert),                                   \
                   .help =                                                                         \
                       "how many of the ranks that share the batch divide the experts of each "    \
                       "layer",                                                                    \
                   .more = "Each of them has some of the experts. A row goes to the ranks of the " \
                           "experts that it chose, and what they make of it comes back; no row "   \
                           "is dropped. Ranks that divide the rows of a micro-batch (context) "    \
                           "share the batch, too. Results differ from those of ranks that all "    \
                           "have all experts as sums in another order do."),                       \
        LF_OPT_ROW(.name = "expert_room", .type = LF_OPT_FLOAT, .cls = LF_OPT_NUMERIC, .def = "0", \
                   .max = 65536, .field = LF_OPT_FIELD(CONFIG, c.axes.expert_room),                \
                   .help =                                                                         \
                       "with expert, how many times the rows of its own a rank takes at once; "    \
                       "0: 2",                                                                     \
                   .more = "What is more comes in further rounds, which take time and no memory. " \
                           "Rows of a rank are its rows times experts_per_token."),                \
        LF_OPT_ROW(.name = "expert_tensor", .type = LF_OPT_INT, .cls = LF_OPT_NUMERIC, .def = "0", \
                   .max = 65536, .unit = "ranks",                                                  \
                   .field = LF_OPT_FIELD(CONFIG, c.axes.expert_tensor),                            \
                   .help =                                                                         \
                       "with expert, how many ranks divide the matrices of an expert: 0: those "   \
                       "of tensor; 1: none",                                                       \
                   .more = "With 1 the ranks of tensor are among those that expert names, and "    \
                           "each sends its rows alone: fewer and larger products.")

/* read by lf_infer_ranks_read: stages that only run a model forward */
#define LF_INFER_LAYOUT_ROWS                                                                       \
    LF_OPT_ROW(.name = "tensor", .type = LF_OPT_INT, .cls = LF_OPT_NUMERIC, .def = "1", .min = 1,  \
               .max = 65536, .unit = "ranks",                                                      \
               .help = "how many ranks divide the matrices of each layer among themselves",        \
               .more = "Each of them has some of the heads, of the columns of an MLP and of the "  \
                       "rows of the vocabulary, and of the cache the keys and values of its "      \
                       "heads; they work on the same texts and sum what they compute twice a "     \
                       "layer. They are neighbours on a node. Groups of them share the texts. "    \
                       "Results differ from those of one rank as sums in another order do."),      \
        LF_OPT_ROW(.name = "tensor_across_nodes", .type = LF_OPT_BOOL, .cls = LF_OPT_OPERATIONAL,  \
                   .def = "no", .help = "let ranks that divide matrices be on several nodes",      \
                   .more = "Each layer then waits for the network. Without it such a layout is "   \
                           "refused."),                                                            \
        LF_OPT_ROW(.name = "expert", .type = LF_OPT_INT, .cls = LF_OPT_NUMERIC, .def = "1",        \
                   .min = 1, .max = 65536, .unit = "ranks",                                        \
                   .help = "tensor: these ranks divide the experts of each layer among them; 1: "  \
                           "they divide every expert",                                             \
                   .more = "A row goes to the ranks of the experts that it chose, from the rank "  \
                           "whose share of the rows it is in, and what they make of it comes "     \
                           "back.")

/* filled in */
#define LF_TRAIN_ZERO_ROW                                                                          \
    LF_OPT_ROW(.name = "zero", .type = LF_OPT_INT, .cls = LF_OPT_NUMERIC, .def = "0", .max = 3,    \
               .field = LF_OPT_FIELD(CONFIG, c.zero.stage),                                        \
               .help = "what ranks divide (ZeRO): 1: the optimizer's state; 2: gradients too; "    \
                       "3: weights too",                                                           \
               .more = "1: moments are divided among the ranks, and so are the f32 weights "       \
                       "behind bf16 copies. A rank updates its part, and then the ranks exchange " \
                       "the new weights. 2: a rank keeps the gradients of its part alone; they "   \
                       "are summed layer by layer beside the backward pass of each micro-batch. "  \
                       "3: it keeps its part of the weights alone, frozen ones too; they are "     \
                       "gathered layer by layer before they are used. All have the same bits as "  \
                       "0, but that 2 and 3 add up several micro-batches in another order, and "   \
                       "more than two GPUs add in the order of the ranks, not NCCL's. "            \
                       "Checkpoints have the same content, too."),                                 \
        LF_OPT_ROW(.name = "zero_inner", .type = LF_OPT_INT, .cls = LF_OPT_NUMERIC, .def = "0",    \
                   .max = 1e6, .unit = "ranks", .field = LF_OPT_FIELD(CONFIG, c.zero.inner),       \
                   .help = "how many ranks divide the state among themselves, such as those of a " \
                           "node; 0: all",                                                         \
                   .more = "Ranks form groups of so many, in their order. Each group has all of "  \
                           "the state. What zero moves stays inside a group; after the last "      \
                           "micro-batch of a step each rank sums its part of the gradients with "  \
                           "those that have the same part in other groups.")

/* filled in */
#define LF_TRAIN_MFU_ROW                                                                           \
    LF_OPT_ROW(.name = "mfu", .group = "validation and logs", .type = LF_OPT_BOOL,                 \
               .cls = LF_OPT_OPERATIONAL, .def = "yes", .field = LF_OPT_FIELD(CONFIG, c.mfu),      \
               .help = "tell the share of the peak FLOP/s, which a CPU measures for some 2 ms "    \
                       "at the start",                                                             \
               .more = "The metric mfu is model_flops_causal by the peak of all ranks: 6 FLOPs "   \
                       "for each matrix weight and token, 4 where it is frozen and 2 where "       \
                       "nothing below it is trained either, and attention over the keys that a "   \
                       "query sees. What recompute computes again is not counted. The peak of a "  \
                       "CPU is the best of 16 measurements of multiply-adds in registers; "        \
                       "that of a GPU is its data sheet's, for dense bf16 or f32; fp8 is "         \
                       "compared with bf16.")

/* filled in */
#define LF_TRAIN_OPERATION_ROWS                                                                    \
    LF_OPT_ROW(.name = "numeric", .group = "precision and memory", .type = LF_OPT_ENUM,            \
               .cls = LF_OPT_NUMERIC, .def = "fast", .choices = "fast|invariant",                  \
               .field = LF_OPT_FIELD(CONFIG, c.numeric),                                           \
               .help = "invariant: the bits of a row do not depend on its neighbours, batch "      \
                       "or threads"),                                                              \
        LF_OPT_ROW(.name = "valid_interval", .group = "validation and logs", .type = LF_OPT_COUNT, \
                   .cls = LF_OPT_OPERATIONAL, .def = "0", .max = 1e12, .unit = "steps",            \
                   .field = LF_OPT_FIELD(CONFIG, c.valid_interval),                                \
                   .help = "validate this often; 0: at the end only"),                             \
        LF_OPT_ROW(.name = "valid_tokens", .type = LF_OPT_COUNT, .cls = LF_OPT_OPERATIONAL,        \
                   .def = "0", .max = 1e12, .unit = "tokens",                                      \
                   .field = LF_OPT_FIELD(CONFIG, c.valid_tokens),                                  \
                   .help = "measure the first so many; 0: the whole split"),                       \
        LF_OPT_ROW(.name = "save_async", .group = "saving", .type = LF_OPT_BOOL,                   \
                   .cls = LF_OPT_OPERATIONAL, .def = "yes",                                        \
                   .field = LF_OPT_FIELD(CONFIG, c.save_async),                                    \
                   .help = "write checkpoints in the background from a copy in memory (12 bytes "  \
                           "a parameter; less with bf16 state)"),                                  \
        LF_OPT_ROW(.name = "log_interval", .group = "validation and logs", .type = LF_OPT_COUNT,   \
                   .cls = LF_OPT_OPERATIONAL, .def = "10", .min = 1, .max = 1e9, .unit = "steps",  \
                   .field = LF_OPT_FIELD(CONFIG, c.log_interval),                                  \
                   .help = "steps between two lines of log"),                                      \
        LF_TRAIN_MFU_ROW,                                                                          \
        LF_OPT_ROW(.name = "measure", .type = LF_OPT_BOOL, LF_OPT_COMMAND, .def = "no",            \
                   .help = "with plan: measure matrix products of this model's shape on the CPU "  \
                           "for some 0.2 s, and give the FLOP/s to expect as measured_flops"),     \
        LF_OPT_ROW(.name = "spike_factor", .type = LF_OPT_FLOAT, .cls = LF_OPT_OPERATIONAL,        \
                   .def = "3", .max = 1e6, .field = LF_OPT_FIELD(CONFIG, c.spike_factor),          \
                   .help = "stop when the loss exceeds its running mean by this factor; 0: "       \
                           "never"),                                                               \
        LF_OPT_ROW(.name = "spike_after", .type = LF_OPT_COUNT, .cls = LF_OPT_OPERATIONAL,         \
                   .def = "100", .min = 1, .max = 1e12, .unit = "steps",                           \
                   .field = LF_OPT_FIELD(CONFIG, c.spike_after),                                   \
                   .help = "spikes are looked for after this many")

/* read by lf_train_read_fp8 */
#define LF_TRAIN_QUANTISED_ROWS                                                                    \
    LF_OPT_ROW(.name = "fp8_scaling", .group = "precision and memory", .type = LF_OPT_ENUM,        \
               .cls = LF_OPT_IDENTITY, .def = "tensor", .choices = "tensor|block",                 \
               .field = LF_OPT_FIELD(CONFIG, g.fp8_scaling),                                       \
               .help = "with precision = fp8: a scale for each tensor; or for each 1 x 128 "       \
                       "of activations and gradients and 128 x 128 of weights (sm_90)"),           \
        LF_OPT_ROW(.name = "fp8_layers", .type = LF_OPT_STR, .cls = LF_OPT_IDENTITY,               \
                   .flags = LF_OPT_REPEAT, .field = LF_OPT_FIELD(CONFIG, g.fp8_layers),            \
                   .help = "with precision = fp8: attention, mlp: whose products are of 8-bit "    \
                           "floats; unset: both"),                                                 \
        LF_OPT_ROW(.name = "fp8_edges", .type = LF_OPT_INT, .cls = LF_OPT_IDENTITY, .def = "0",    \
                   .max = 65536, .unit = "layers",                                                 \
                   .field = LF_OPT_FIELD(CONFIG, c.fp8_layers.edges),                              \
                   .help = "with precision = fp8: so many layers at either end stay bf16, as "     \
                           "embedding and head always do")

/* filled in */
#define LF_TRAIN_COPIES_ROWS                                                                       \
    LF_OPT_ROW(.name = "tensorboard", .group = "validation and logs", .type = LF_OPT_PATH,         \
               .cls = LF_OPT_OPERATIONAL, .field = LF_OPT_FIELD(CONFIG, c.copies.tensorboard),     \
               .help = "directory for event files of TensorBoard, written while the run goes on; " \
                       "unset: none",                                                              \
               .more = "A run of loong-flow writes below RUN/STAGE there, a file per start. "      \
                       "TensorBoard shows a resumed run as one curve. A failure to write is one "  \
                       "warning and ends nothing."),                                               \
        LF_OPT_ROW(.name = "metrics_jsonl", .type = LF_OPT_PATH, .cls = LF_OPT_OPERATIONAL,        \
                   .field = LF_OPT_FIELD(CONFIG, c.copies.jsonl),                                  \
                   .help = "file that the metrics are appended to as JSON lines; unset: none",     \
                   .more = "A line with \"resumed\" says behind which step a start goes on; what " \
                           "earlier lines say of later steps no longer counts.")

/* read by stage.c; for every stage that runs a model */
#define LF_TRAIN_PROFILE_ROWS                                                                      \
    LF_OPT_ROW(.name = "profile", .group = "running", .type = LF_OPT_BOOL,                         \
               .cls = LF_OPT_OPERATIONAL, .def = "no",                                             \
               .help = "time every operation: a table in the log, profile.json and "               \
                       "profile.trace.json beside the metrics or in out")

/* filled in */
#define LF_TRAIN_GPU_ROWS                                                                          \
    LF_OPT_ROW(.name = "gpu_interval", .group = "validation and logs", .type = LF_OPT_DURATION,    \
               .cls = LF_OPT_OPERATIONAL, .def = "2", .max = 1e6, .unit = "seconds",               \
               .field = LF_OPT_FIELD(CONFIG, c.gpu_interval_s),                                    \
               .help = "how often the metrics tell use, memory and power of the GPU; 0: never",    \
               .more = "gpu_util (share of time in which a kernel ran), gpu_memory (bytes, of "    \
                       "all processes) and gpu_power (watts) are what NVIDIA's management "        \
                       "library says of the GPU of rank 0, between steps. Without it there are "   \
                       "none.")

/* read by lf_stage_device; for every stage that runs a model */
#define LF_TRAIN_DEVICE_ROWS                                                                       \
    LF_OPT_ROW(.name = "device", .group = "running", .type = LF_OPT_ENUM, .cls = LF_OPT_NUMERIC,   \
               .def = "auto", .choices = "auto|cpu|cuda",                                          \
               .help = "what to compute on; auto: a GPU where there is one and this build "        \
                       "carries code for it, else the CPU")

/* read by lf_train_samples_open (train_samples.h); of: unit of the interval; docs: what is asked
 * where no prompts are given */
#define LF_TRAIN_SAMPLE_EVERY(of, what)                                                            \
    LF_OPT_ROW(.name = "sample_interval", .group = "samples while training", .type = LF_OPT_COUNT, \
               .cls = LF_OPT_OPERATIONAL, .def = "0", .max = 1e12, .unit = of,                     \
               .field = LF_OPT_FIELD(CONFIG, samples.interval),                                    \
               .help = what " this often, and at the end; 0: never",                               \
               .more = "The samples of a step are lines of samples.jsonl beside the metrics, in "  \
                       "the log, and among the texts of TensorBoard. No bit of the training "      \
                       "depends on them. The memory that they take stands in the plan.")
#define LF_TRAIN_SAMPLE_COUNT(of)                                                                  \
    LF_OPT_ROW(.name = "sample_rows", .type = LF_OPT_COUNT, .cls = LF_OPT_OPERATIONAL, .def = "8", \
               .min = 1, .max = 1e4, .unit = of, .field = LF_OPT_FIELD(CONFIG, samples.rows),      \
               .help = "so many of these " of ", from the first on")
#define LF_TRAIN_SAMPLE_ROWS(of, docs)                                                             \
    LF_TRAIN_SAMPLE_EVERY(of, "sample what the model says"),                                       \
        LF_OPT_ROW(.name = "sample_prompts", .type = LF_OPT_PATH, .cls = LF_OPT_OPERATIONAL,       \
                   .flags = LF_OPT_INPUT, .field = LF_OPT_FIELD(CONFIG, samples.prompts),          \
                   .help = "what it is asked: requests as lf-generate reads them, messages too; "  \
                           "without these and sample_prompt: " docs),                              \
        LF_OPT_ROW(.name = "sample_prompt", .type = LF_OPT_STR, .cls = LF_OPT_OPERATIONAL,         \
                   .flags = LF_OPT_REPEAT, .field = LF_OPT_FIELD(CONFIG, samples.texts),           \
                   .help = "a text to continue, as it is"),                                        \
        LF_TRAIN_SAMPLE_COUNT("documents"),                                                        \
        LF_OPT_ROW(.name = "sample_tokens", .type = LF_OPT_COUNT, .cls = LF_OPT_OPERATIONAL,       \
                   .def = "64", .min = 1, .max = 1e6, .unit = "tokens",                            \
                   .field = LF_OPT_FIELD(CONFIG, samples.tokens), .help = "longest sample"),       \
        LF_OPT_ROW(.name = "sample_temperature", .type = LF_OPT_FLOAT, .cls = LF_OPT_OPERATIONAL,  \
                   .def = "0", .max = 1000, .field = LF_OPT_FIELD(CONFIG, samples.temperature),    \
                   .help = "of samples; 0: the most likely token")
/* What is asked of models that are trained on plain text or on answers. */
#define LF_TRAIN_SAMPLE_DOCS "validation documents up to what is trained, or their first 16 tokens"
/* read by lf_train_samples_open; for stages that need a tokenizer for nothing else */
#define LF_TRAIN_TOKENIZER_ROW                                                                     \
    LF_OPT_ROW(.name = "tokenizer", .type = LF_OPT_PATH, .cls = LF_OPT_OPERATIONAL,                \
               .flags = LF_OPT_INPUT, LF_OPT_TOKENIZER,                                            \
               .field = LF_OPT_FIELD(CONFIG, samples.tokenizer),                                   \
               .help =                                                                             \
                   "for samples: tokenizer artifact, or a tokenizer file or directory; unset: "    \
                   "the one beside data that made it, else prompts and samples are ids")

/* filled in; metric: LF_TRAIN_BEST_BY or a row of the stage; of: what patience counts */
#define LF_TRAIN_BEST_ROWS(metric, of)                                                             \
    LF_OPT_ROW(.name = "keep_best", .group = "saving", .type = LF_OPT_BOOL,                        \
               .cls = LF_OPT_OPERATIONAL, .def = "no", .field = LF_OPT_FIELD(CONFIG, c.keep_best), \
               .help = "keep the weights of the best measurement as best",                         \
               .more = "Which one is best is a function of the recorded numbers, so a run that "   \
                       "was killed and resumed keeps the same one. A number that is not finite "   \
                       "never is best, nor is one that is equal to the best."),                    \
        metric,                                                                                    \
        LF_OPT_ROW(.name = "patience", .type = LF_OPT_COUNT, .cls = LF_OPT_IDENTITY, .def = "0",   \
                   .max = 1e9, .unit = of, .field = LF_OPT_FIELD(CONFIG, c.patience),              \
                   .help = "end after so many without a better one; 0: never")
/* choices: the first of loss|accuracy|margin that the stage measures */
#define LF_TRAIN_BEST_BY(of)                                                                       \
    LF_OPT_ROW(.name = "best_metric", .type = LF_OPT_ENUM, .cls = LF_OPT_IDENTITY, .def = "loss",  \
               .choices = of, .field = LF_OPT_FIELD(CONFIG, c.best_metric),                        \
               .help = "what best means, of all valid_data together: the lowest loss, else the "   \
                       "highest")

/* read by lf_train_settle_dropout; for objectives on judged answers */
#define LF_TRAIN_DROPOUT_ROWS                                                                      \
    LF_OPT_ROW(.name = "dropout", .group = "learning rate and optimizer", .type = LF_OPT_BOOL,     \
               .cls = LF_OPT_IDENTITY, .def = "no", .field = LF_OPT_FIELD(CONFIG, g.dropout),      \
               .help = "apply the model's dropout and lora_dropout in training; references "       \
                       "and measurements have none")

/* read by lf_train_read_adapter */
#define LF_TRAIN_ADAPTER_ROWS                                                                      \
    LF_OPT_ROW(.name = "adapter", .group = "adapters", .type = LF_OPT_PATH,                        \
               .cls = LF_OPT_IDENTITY, .flags = LF_OPT_INPUT, LF_OPT_ADAPTER,                      \
               .field = LF_OPT_FIELD(CONFIG, g.adapter),                                           \
               .help = "adapter of init_from to go on training, of ours or PEFT's; its "           \
                       "settings come with it, lora_ options may only repeat them")

/* read by lf_train_read_choice: which tensors are trained, and how fast */
#define LF_TRAIN_CHOICE_ROWS                                                                       \
    LF_OPT_ROW(.name = "freeze", .type = LF_OPT_STR, .cls = LF_OPT_IDENTITY,                       \
               .flags = LF_OPT_REPEAT, .field = LF_OPT_FIELD(CONFIG, g.freeze),                    \
               .help = "pattern over names of tensors that are not trained, such as embed.* "      \
                       "or layers.[0-3].*"),                                                       \
        LF_OPT_ROW(.name = "lr_scale", .type = LF_OPT_STR, .cls = LF_OPT_IDENTITY,                 \
                   .flags = LF_OPT_REPEAT, .field = LF_OPT_FIELD(CONFIG, g.lr_scale),              \
                   .help = "PATTERN:FACTOR, a learning rate of their own for tensors by their "    \
                           "names, such as vision.*:0.1")

/* read by lf_train_read_parts */
#define LF_TRAIN_PARTS_ROWS                                                                        \
    LF_OPT_ROW(.name = "lora_rank", .group = "adapters", .type = LF_OPT_INT,                       \
               .cls = LF_OPT_IDENTITY, .def = "0", .max = LF_ADAPTER_MAX_RANK,                     \
               .field = LF_OPT_FIELD(CONFIG, g.lora.rank),                                         \
               .help = "rank of low-rank adapters that are trained in place of the weights; "      \
                       "0: none"),                                                                 \
        LF_OPT_ROW(.name = "lora_alpha", .type = LF_OPT_FLOAT, .cls = LF_OPT_IDENTITY,             \
                   .min = 1e-6, .max = 1e6, .field = LF_OPT_FIELD(CONFIG, g.lora.alpha),           \
                   .help = "their scale is lora_alpha / lora_rank; unset: twice lora_rank"),       \
        LF_OPT_ROW(.name = "lora_scaling", .type = LF_OPT_ENUM, .cls = LF_OPT_IDENTITY,            \
                   .def = "rank", .choices = "rank|root",                                          \
                   .field = LF_OPT_FIELD(CONFIG, g.lora.rank_stabilised),                          \
                   .help = "root: rank-stabilised, lora_alpha / square root of lora_rank"),        \
        LF_OPT_ROW(.name = "lora_dora", .type = LF_OPT_BOOL, .cls = LF_OPT_IDENTITY, .def = "no",  \
                   .field = LF_OPT_FIELD(CONFIG, g.lora.dora),                                     \
                   .help = "DoRA: the lengths of the weights' rows are trained apart from their "  \
                           "directions"),                                                          \
        LF_OPT_ROW(.name = "lora_dropout", .type = LF_OPT_FLOAT, .cls = LF_OPT_IDENTITY,           \
                   .def = "0", .max = 0.999, .field = LF_OPT_FIELD(CONFIG, g.lora.dropout),        \
                   .help = "of what the adapters read"),                                           \
        LF_OPT_ROW(.name = "lora_targets", .type = LF_OPT_STR, .cls = LF_OPT_IDENTITY,             \
                   .flags = LF_OPT_REPEAT, .field = LF_OPT_FIELD(CONFIG, g.targets),               \
                   .help =                                                                         \
                       "layers with an adapter: all, q, k, v, o, gate, up, down, z, a, b ..., "    \
                       "qkv, gate_up, in, out (both also of laurel and per_layer) or a pattern "   \
                       "over names, which encoder and projector need (vision.*, projector.*); "    \
                       "unset: all"),                                                              \
        LF_TRAIN_CHOICE_ROWS

#endif
