/* SPDX-License-Identifier: Apache-2.0
 *
 * What the readers and writers of config.json share. */
#ifndef LF_CONVERT_HF_PRIV_H
#define LF_CONVERT_HF_PRIV_H

#include "engine/convert/hf.h"

/* Is word one of words, which are separated by blanks? */
bool lf_hf_in_words(const char *word, const char *words);
/* LF_ENOTSUP with "KEY = VALUE why". */
int lf_hf_bad_value(const lf_hf_reader *r, const char *key, json_t *v, const char *why,
                    lf_err *err);

int lf_hf_read_keys(lf_hf_reader *r, const struct lf_hf_key *keys, lf_model_config *c, lf_err *err);
/* LF_ENOTSUP: a key is left that no one has read and that may matter. */
int lf_hf_check_left(const lf_hf_reader *r, const char *type, lf_err *err);
/* How many labels a config.json has: num_labels, or as many as have names; 2 where nothing says. */
int64_t lf_hf_labels(json_t *config);
/* id2label and label2id of n labels by an array of their names; NULL: LABEL_k, as transformers
 * gives them. */
int lf_hf_write_labels(int64_t n, const json_t *called, json_t *o, lf_err *err);
/* Reads what an entry of families_*.c describes from one object. */
int lf_hf_read_object(lf_model_config *c, const struct lf_hf_family *f, json_t *o, const char *path,
                      lf_err *err);
int lf_hf_write_keys(const struct lf_hf_key *keys, const lf_model_config *c, json_t *o,
                     lf_err *err);

/* A model that sees (hf_sight.c): all of config.json, and all but the keys of f itself. */
int lf_hf_read_sight(lf_model_config *c, const struct lf_hf_family *f, json_t *config,
                     const char *path, lf_err *err);
int lf_hf_write_sight(const struct lf_hf_family *f, const lf_model_config *c, json_t *o,
                      lf_err *err);
/* Makes text_config that of a decoder without the rest: what the class has by default or takes for
 * granted stands there, for the table of the decoder to judge, and both objects say whether the
 * head is the embedding. LF_ENOTSUP: a key that the class takes for granted has another value. */
int lf_hf_lone_text(const struct lf_hf_sight *s, json_t *outer, json_t *text, const char *path,
                    lf_err *err);
/* Reads a vision_config with the table of a tower. */
int lf_hf_read_tower(lf_model_config *c, const struct lf_hf_tower *t, json_t *vision,
                     const char *path, lf_err *err);
/* An encoder that is a model of its own (hf_lone.c). */
int lf_hf_read_lone(lf_model_config *c, const struct lf_hf_family *f, json_t *config,
                    const char *path, lf_err *err);
int lf_hf_write_lone(const struct lf_hf_family *f, const lf_model_config *c, json_t *o,
                     lf_err *err);
/* Is a config.json of this form of such an encoder? */
bool lf_hf_is_lone(const struct lf_hf_family *f, json_t *config);
/* Can an encoder go out in this form, whatever its family is called? */
bool lf_hf_fits_lone(const struct lf_hf_family *f, const lf_model_config *c);
/* The tower of a model; NULL: f has none for its encoder. */
const struct lf_hf_tower *lf_hf_tower_for(const struct lf_hf_family *f, const lf_model_config *c);
#endif
