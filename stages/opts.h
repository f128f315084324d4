/* SPDX-License-Identifier: Apache-2.0
 *
 * The option tables of all stages. Tables are data: they are linked into the stages and into
 * loong-flow.
 */
#ifndef LF_STAGES_OPTS_H
#define LF_STAGES_OPTS_H

#include "engine/base/opt.h"

extern const lf_opt_table lf_tokenize_opts;
extern const lf_opt_table lf_features_opts;
extern const lf_opt_table lf_pretrain_opts;
extern const lf_opt_table lf_sft_opts;
extern const lf_opt_table lf_rm_opts;
extern const lf_opt_table lf_dpo_opts;
extern const lf_opt_table lf_ppo_opts;
extern const lf_opt_table lf_score_opts;
extern const lf_opt_table lf_generate_opts;
extern const lf_opt_table lf_eval_opts;
extern const lf_opt_table lf_vocab_opts;
extern const lf_opt_table lf_convert_opts;

/* What one start of a training stage hands over to the next (stages/train_carry.c). */
extern const lf_opt_carry lf_train_carry[];

/* Every table that is built, NULL-terminated (stages/all_opts.c). */
extern const lf_opt_table *const lf_all_opts[];

/* The rows that every table begins with. loong-flow's wrapper gives them on the command line. */
#define LF_COMMON_OPTS                                                                             \
    LF_OPT_ROW(.name = "config", .type = LF_OPT_PATH, LF_OPT_COMMAND,                              \
               .help = "INI file: [stage] holds these options"),                                   \
        LF_OPT_ROW(.name = "out", .type = LF_OPT_PATH, LF_OPT_COMMAND,                             \
                   .help = "directory below which outputs are written"),                           \
        LF_OPT_ROW(.name = "metrics", .type = LF_OPT_PATH, LF_OPT_COMMAND,                         \
                   .help = "framed metrics file to append to"),                                    \
        LF_OPT_ROW(.name = "resume_from", .type = LF_OPT_PATH, LF_OPT_COMMAND | LF_OPT_REPEAT,     \
                   .help = "out directory of an earlier start, oldest first"),                     \
        LF_OPT_ROW(.name = "stop_file", .type = LF_OPT_PATH, LF_OPT_COMMAND,                       \
                   .help = "stop at the next safe point when this file exists"),                   \
        LF_OPT_ROW(.name = "plan", .type = LF_OPT_BOOL, LF_OPT_COMMAND, .def = "no",               \
                   .help = "print what the stage would cost as JSON and exit"),                    \
        LF_OPT_ROW(.name = "ranks", .type = LF_OPT_INT, LF_OPT_COMMAND, .def = "1", .min = 1,      \
                   .max = 1 << 20,                                                                 \
                   .help = "with plan: ranks to plan for; a run learns them from its launcher"),   \
        LF_OPT_ROW(.name = "print_config", .type = LF_OPT_BOOL, LF_OPT_COMMAND, .def = "no",       \
                   .help = "print the options in effect as INI and exit"),                         \
        LF_OPT_ROW(.name = "log_level", .group = "running", .type = LF_OPT_ENUM,                   \
                   .cls = LF_OPT_OPERATIONAL, .def = "info",                                       \
                   .choices = "error|warning|info|debug",                                          \
                   .help = "least important messages shown"),                                      \
        LF_OPT_ROW(.name = "threads", .type = LF_OPT_INT, .cls = LF_OPT_OPERATIONAL, .def = "0",   \
                   .max = 4096, .unit = "threads",                                                 \
                   .help = "threads to use, 0 for each processor available, up to a CPU quota"),   \
        LF_OPT_ROW(.name = "help", .type = LF_OPT_BOOL, LF_OPT_COMMAND, .def = "no",               \
                   .help = "print this text and exit"),                                            \
        LF_OPT_ROW(.name = "version", .type = LF_OPT_BOOL, LF_OPT_COMMAND, .def = "no",            \
                   .help = "print the version and exit")

/* Which weights of a checkpoint are meant; to: the call, with what its help ends. */
#define LF_WEIGHTS_ROW(to)                                                                         \
    LF_OPT_ROW(.name = "weights", .type = LF_OPT_ENUM, .cls = LF_OPT_IDENTITY, .def = "trained",   \
               .choices = "trained|ema",                                                           \
               .help =                                                                             \
                   to "those that were trained, or their moving averages (ema of the training "    \
                      "stages)")

#endif
