/* SPDX-License-Identifier: Apache-2.0
 *
 * Labels in data: a column of the rows that lf-tokenize made of prompts (engine/store/shard.h,
 * "prompts"), beside the text.
 *
 *     one       "label": 2               the class, from 0
 *     any       "label": [0, 1, 1]       for each label whether it is so
 *     numbers   "label": 3.5             or a list of as many as the model has
 *     tokens    "label": [-100, 0, 2]    of each token its class; below 0: it has none
 *     span      "label": [7, 9]          first and last token of the answer
 */
#ifndef LF_POST_LABEL_DATA_H
#define LF_POST_LABEL_DATA_H

#include "engine/post/label_loss.h"
#include "engine/store/shard.h"

struct lf_label_form {
    enum lf_label_kind kind;
    int64_t labels;     /* N */
    const char *column; /* "label" */
};
/* Numbers that the label of a text of so many tokens has at most. */
int64_t lf_label_room(const struct lf_label_form *f, int64_t tokens);
/* Reads the label of a document to out[lf_label_room]. LF_EFORMAT: it has none, or none of this
 * kind; the message names file and document. */
int lf_label_read(double *out, const struct lf_label_form *f, const lf_shardset *s, uint64_t doc,
                  lf_err *err);

#endif
