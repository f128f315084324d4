/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of the GLUE benchmark (Wang et al. 2019): lines of columns that tabs divide, without
 * quotes, under a line of their names. A line becomes a row of shape prompt,
 *
 *     {"prompt": "the first text" between "the second text", "label": number}
 *
 *     task   texts                    label                            named
 *     cola   sentence                 0, 1                             columns 4 and 2
 *     sst2   sentence                 0, 1                             label
 *     mrpc   #1 String, #2 String     0, 1                             Quality
 *     qqp    question1, question2     0, 1                             is_duplicate
 *     stsb   sentence1, sentence2     0.0 to 5.0                       score
 *     mnli   sentence1, sentence2     entailment, neutral,             gold_label
 *                                     contradiction: 0, 1, 2
 *     qnli   question, sentence       entailment, not_entailment: 0, 1 label
 *     rte    sentence1, sentence2     the same                         label
 *     wnli   sentence1, sentence2     0, 1                             label
 *
 * Numbers of classes are those of GLUE's own baselines. CoLA's labelled files have no names and
 * four columns. A file without the label's column, such as those of the tests, gives rows without
 * labels.
 */
#ifndef LF_TEXT_GLUE_H
#define LF_TEXT_GLUE_H

#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

struct lf_glue_task;

/* Which columns the file that is read has; zeroed before each one but for task and between. */
typedef struct lf_glue {
    const struct lf_glue_task *task;
    const char *between; /* between two texts, such as "[SEP]"; borrowed */
    int text[2], label;  /* columns from 0; -1: there is none */
    int n;               /* that the file has; 0: it was not looked at */
} lf_glue;

/* What options say: the name of a task (NULL: none, and g->task is NULL), and what is between two
 * texts (NULL: "[SEP]"). LF_EINVAL: no task is called so, and the message lists them. */
int lf_glue_set(lf_glue *g, const char *task, const char *between, lf_err *err);
/* Makes the row of line `number` (from 1) of a file in row, whose contents go. Returns 1, or 0: it
 * is the line of names. LF_EFORMAT: it has other columns than the task's files have, or a label
 * that is none. */
int lf_glue_row(lf_glue *g, const char *line, size_t len, uint64_t number, lf_buf *row,
                lf_err *err);

#endif
