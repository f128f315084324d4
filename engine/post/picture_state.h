/* SPDX-License-Identifier: Apache-2.0
 *
 * What a checkpoint of a model of pictures keeps of the data that it was trained on, so that an
 * export is whole: members of its state
 *
 *     processor     how pictures were prepared, as a preprocessor_config.json says it (a text)
 *     label_names   the names of classes, by their numbers, where a column of the data has them
 */
#ifndef LF_POST_PICTURE_STATE_H
#define LF_POST_PICTURE_STATE_H

#include "engine/train/objective.h"

/* Fills o on the first rank, and leaves it empty on others. label: the column with the number of a
 * class, of n; its name is in "class". n 0: there are none. LF_ENOMEM. */
int lf_picture_state(json_t *o, const lf_trainer *t, const char *label, int64_t n, lf_err *err);

#endif
