/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of labels. A checkpoint that came in from transformers has its config.json in its state
 * (hf, config), and training hands the text of a model that sees or has labels on (hf_config). Its
 * id2label names the labels, {"0": "cat", "1": "dog"}, which no number depends on. Names that the
 * data of the training had come before them (label_names; engine/post/picture_state.h).
 */
#ifndef LF_MODEL_LABEL_NAMES_H
#define LF_MODEL_LABEL_NAMES_H

#include <jansson.h>

#include "engine/model/config.h"

/* How many labels a model tells, of pictures or of texts; 0: it tells none. */
int64_t lf_label_count(const lf_model_config *c);
/* The text of that config.json, a string; borrowed from state; NULL: there is none. */
json_t *lf_label_config(const json_t *state);
/* Returns the names of n labels as an array of strings, which the caller owns. NULL: the state
 * names none, or another number of labels, or all of them LABEL_k, which says nothing. */
json_t *lf_label_names(const json_t *state, int64_t n);

#endif
