/* SPDX-License-Identifier: Apache-2.0
 *
 * The option tables of all stages. Tables are data: they are linked into the stages and into
 * loong-flow.
 */
#ifndef LF_STAGES_OPTS_H
#define LF_STAGES_OPTS_H

#include "engine/base/opt.h"

extern const lf_opt_table lf_tokenize_opts;
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

/* What starts of a stage that trains hand over (stages/train_carry.c). */
extern const lf_opt_carry lf_train_carry[];

/* Every table that is built, NULL-terminated (stages/all_opts.c). */
extern const lf_opt_table *const lf_all_opts[];

/* Rows that every table begins with; loong-flow's wrapper gives them on the command line. */
#define LF_CLI(name, type, def, unit, help)                                                        \
    {                                                                                              \
        name, type, LF_OPT_OPERATIONAL, LF_OPT_CLI_ONLY, def, 0, 0, NULL, unit, help               \
    }
#define LF_COMMON_OPTS                                                                             \
    LF_CLI("config", LF_OPT_PATH, NULL, NULL, "INI file: [stage] holds these options"),            \
        LF_CLI("out", LF_OPT_PATH, NULL, NULL, "directory below which outputs are written"),       \
        LF_CLI("metrics", LF_OPT_PATH, NULL, NULL, "framed metrics file to append to"),            \
        {"resume_from",                                                                            \
         LF_OPT_PATH,                                                                              \
         LF_OPT_OPERATIONAL,                                                                       \
         LF_OPT_CLI_ONLY | LF_OPT_REPEAT,                                                          \
         NULL,                                                                                     \
         0,                                                                                        \
         0,                                                                                        \
         NULL,                                                                                     \
         NULL,                                                                                     \
         "out directory of an earlier incarnation, oldest first"},                                 \
        LF_CLI("stop_file", LF_OPT_PATH, NULL, NULL,                                               \
               "stop at the next safe point when this file exists"),                               \
        LF_CLI("plan", LF_OPT_BOOL, "no", NULL,                                                    \
               "print what the stage would cost as JSON and exit"),                                \
        {"ranks",                                                                                  \
         LF_OPT_INT,                                                                               \
         LF_OPT_OPERATIONAL,                                                                       \
         LF_OPT_CLI_ONLY,                                                                          \
         "1",                                                                                      \
         1,                                                                                        \
         1 << 20,                                                                                  \
         NULL,                                                                                     \
         NULL,                                                                                     \
         "with plan: ranks to plan for; a run learns them from its launcher"},                     \
        LF_CLI("print_config", LF_OPT_BOOL, "no", NULL,                                            \
               "print the options in effect as INI and exit"),                                     \
        {"log_level",                                                                              \
         LF_OPT_ENUM,                                                                              \
         LF_OPT_OPERATIONAL,                                                                       \
         0,                                                                                        \
         "info",                                                                                   \
         0,                                                                                        \
         0,                                                                                        \
         "error|warning|info|debug",                                                               \
         NULL,                                                                                     \
         "least important messages shown"},                                                        \
        {"threads",                                                                                \
         LF_OPT_INT,                                                                               \
         LF_OPT_OPERATIONAL,                                                                       \
         0,                                                                                        \
         "0",                                                                                      \
         0,                                                                                        \
         4096,                                                                                     \
         NULL,                                                                                     \
         "threads",                                                                                \
         "threads to use, 0 for every processor available"},                                       \
        LF_CLI("help", LF_OPT_BOOL, "no", NULL, "print this text and exit"),                       \
        LF_CLI("version", LF_OPT_BOOL, "no", NULL, "print the version and exit")

#endif
