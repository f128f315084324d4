/* SPDX-License-Identifier: Apache-2.0
 *
 * The key table of [model], for the files of config.h only. */
#ifndef LF_MODEL_CONFIG_PRIV_H
#define LF_MODEL_CONFIG_PRIV_H

#include "engine/model/config.h"

enum lf_model_key_type { LF_MK_COUNT, LF_MK_REAL, LF_MK_BOOL, LF_MK_ENUM, LF_MK_LIST };

struct lf_model_key {
    const char *name;
    enum lf_model_key_type type;
    size_t offset;
    double min, max;            /* COUNT, REAL and the numbers of a LIST, inclusive */
    const char *const *choices; /* ENUM: NULL-terminated, index = value */
    const char *def;
};

extern const struct lf_model_key lf_model_keys[];
extern const size_t lf_model_n_keys;

const struct lf_model_key *lf_model_key_find(const char *name);
/* Is it read for models that see alone? */
bool lf_model_key_sees(const struct lf_model_key *k);
/* Is the key one of mae.*? */
bool lf_model_key_restores(const struct lf_model_key *k);
/* "file:line", or "default" */
const char *lf_model_origin(const lf_model_config *c, const char *key);

struct lf_model_family {
    const char *name;
    const char *const *settings; /* "key=value", NULL-terminated */
};
extern const struct lf_model_family lf_model_families[];
extern const size_t lf_model_n_families;

#endif
