/* SPDX-License-Identifier: Apache-2.0
 *
 * show shards: documents of the shards that a stage made or reads, token by token. The flow finds
 * the directory; the tokenizer stage, which can read it, takes the place of this process.
 */
#ifndef LF_FLOW_SHOW_SHARDS_H
#define LF_FLOW_SHOW_SHARDS_H

#include "flow/cmd/cmd.h"

/* Rows of the table of `show`. The names behind `from` are those of lf-tokenize. */
#define LF_SHOW_SHARDS_ROWS                                                                        \
    LF_OPT_ROW(.name = "from", .type = LF_OPT_PATH, LF_OPT_COMMAND,                                \
               .help =                                                                             \
                   "shards: those that this stage made or reads, or a directory; default: the "    \
                   "one stage that made some"),                                                    \
        LF_OPT_ROW(.name = "tokenizer", .type = LF_OPT_PATH, LF_OPT_COMMAND,                       \
                   .help = "shards: tokenizer to read them with; default: the one beside them"),   \
        LF_OPT_ROW(.name = "split", .type = LF_OPT_STR, LF_OPT_COMMAND,                            \
                   .help = "shards: train or valid; default: train"),                              \
        LF_OPT_ROW(.name = "samples", .type = LF_OPT_COUNT, LF_OPT_COMMAND, .max = 100000,         \
                   .help = "shards: how many documents, or pairs; default: 3"),                    \
        LF_OPT_ROW(.name = "seed", .type = LF_OPT_INT, LF_OPT_COMMAND,                             \
                   .help = "shards: chooses other documents; default: 0"),                         \
        LF_OPT_ROW(.name = "sample", .type = LF_OPT_STR, LF_OPT_COMMAND | LF_OPT_REPEAT,           \
                   .help = "shards: the document, or pair, of this number, counted from 0"),       \
        LF_OPT_ROW(.name = "ids", .type = LF_OPT_BOOL, LF_OPT_COMMAND, .def = "no",                \
                   .help = "shards: the id behind each token"),                                    \
        LF_OPT_ROW(.name = "show_tokens", .type = LF_OPT_COUNT, LF_OPT_COMMAND, .max = 1e9,        \
                   .help = "shards: longer documents are shown without their middle, 0: whole; "   \
                           "default: 400")

/* Is the first word `shards`? LF_EINVAL: it is not, and an option of these rows was given. */
int lf_show_wants_shards(bool *out, const lf_cmd *c, lf_err *err);
/* Does not return when it succeeds. LF_EINVAL, LF_ENOENT: there are no such shards; the message
 * says which there are. */
int lf_show_shards(lf_cmd *c, lf_err *err);

#endif
