/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents that are several texts, each of which ends with a separator: a question, its answer,
 * and so on. They lie whole in one row, and do not see each other. The last text may end without
 * one.
 */
#ifndef LF_TRAIN_TEXTS_H
#define LF_TRAIN_TEXTS_H

#include "engine/train/loader.h"

/* The end of the text that begins at row `at` of a document that ends at `end`. */
int64_t lf_texts_end(const int32_t *tokens, int64_t at, int64_t end, int64_t separator);
/* Writes the boundaries of all texts of a micro-batch, cu [most + 1], and each row's place in its
 * text, positions [B T]. Padding stays one segment. LF_EINVAL: there are more than `most`. */
int lf_texts_split(const lf_loader_batch *b, int64_t separator, int64_t most, int32_t *cu,
                   int32_t *positions, lf_err *err);

#endif
