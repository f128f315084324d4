/* SPDX-License-Identifier: Apache-2.0
 *
 * The key table of [model], for the files of config.h only. */
#ifndef LF_MODEL_CONFIG_PRIV_H
#define LF_MODEL_CONFIG_PRIV_H

#include "engine/model/config.h"

enum lf_model_key_type {
    LF_MK_COUNT,
    LF_MK_REAL,
    LF_MK_BOOL,
    LF_MK_ENUM,
    LF_MK_LIST,
    LF_MK_PATTERN
};

struct lf_model_key {
    const char *name;
    enum lf_model_key_type type;
    size_t offset;
    double min, max;            /* COUNT, REAL and the numbers of a LIST, inclusive */
    const char *const *choices; /* ENUM: NULL-terminated, index = value; PATTERN: its letters */
    const char *def;
};

extern const struct lf_model_key lf_model_keys[];
extern const size_t lf_model_n_keys;

const struct lf_model_key *lf_model_key_find(const char *name);
/* Is it read for models that see alone? */
bool lf_model_key_sees(const struct lf_model_key *k);
/* Is the key one of mae.*? */
bool lf_model_key_restores(const struct lf_model_key *k);
/* ... or one of classes.*? */
bool lf_model_key_classifies(const struct lf_model_key *k);
/* ... or of dual.*? */
bool lf_model_key_compares(const struct lf_model_key *k);
/* "file:line", or "default" */
const char *lf_model_origin(const lf_model_config *c, const char *key);

/* Set by the user's own hand (file:line), not by a family, or by a checkpoint or a config.json,
 * which name keys that have no effect too? */
bool lf_model_by_hand(const lf_model_config *c, const char *key);
/* Sets a pattern from text. */
int lf_model_pattern_set(struct lf_model_pattern *out, const struct lf_model_key *k,
                         const char *value, const char *where, lf_err *err);
/* What an encoder-decoder may not have, and what nobody reads without one (seq2seq.c). */
int lf_model_check_seq2seq(const lf_model_config *c, lf_err *err);
/* Scalars of an encoder-decoder that its decoder alone has not: those in matrices that multiply a
 * token, and all others; 0 of a decoder. */
int64_t lf_model_seq2seq_matrices(const lf_model_config *c);
int64_t lf_model_seq2seq_params(const lf_model_config *c);
/* What lf_model_attention_work counts of the encoder and of attention to it. */
double lf_model_seq2seq_attention(const lf_model_config *c, int64_t seq_length, int64_t from);
/* Brings all patterns into their one text. LF_EINVAL: one names more layers than there are, or
 * fewer. */
int lf_model_settle_layers(lf_model_config *c, lf_err *err);
/* Is it a key that descriptions had before there were patterns? Those of checkpoints still count:
 * sets the patterns from the object. */
bool lf_model_key_counts(const char *key);
int lf_model_layers_from_counters(lf_model_config *c, json_t *o, lf_err *err);

struct lf_model_family {
    const char *name;
    const char *const *settings; /* "key=value", NULL-terminated */
};
/* Some of the settings, for when hidden is known. */
#define LF_MODEL_EMBED_SCALED "embed_scale=sqrt(hidden)"
#define LF_MODEL_HEAD_SCALED  "logit_scale=1/sqrt(hidden)"
/* Has the family this setting? */
bool lf_model_family_says(const char *name, const char *setting);
extern const struct lf_model_family lf_model_families[];
extern const size_t lf_model_n_families;

#endif
