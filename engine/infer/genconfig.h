/* SPDX-License-Identifier: Apache-2.0
 *
 * What the authors of a model say about generating with it: generation_config.json beside its
 * tokenizer (transformers). Only what it states counts, not the defaults of the program that wrote
 * it:
 *
 *     temperature, top_k, top_p, min_p, repetition_penalty, max_new_tokens     a number; null: not
 *       stated
 *     do_sample: false                                                         temperature 0
 *     eos_token_id                                                             an id or a list of
 *       ids
 */
#ifndef LF_INFER_GENCONFIG_H
#define LF_INFER_GENCONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

#define LF_GEN_CONFIG_MAX_EOS 64

enum lf_gen_key {
    LF_GEN_TEMPERATURE,
    LF_GEN_TOP_K,
    LF_GEN_TOP_P,
    LF_GEN_MIN_P,
    LF_GEN_REPETITION_PENALTY,
    LF_GEN_MAX_TOKENS,
    LF_GEN_KEYS
};
/* as our options are called: "temperature", ..., "max_tokens" */
const char *lf_gen_key_name(enum lf_gen_key k);

typedef struct lf_gen_config {
    bool has[LF_GEN_KEYS];
    double value[LF_GEN_KEYS];
    int32_t eos[LF_GEN_CONFIG_MAX_EOS];
    size_t n_eos;
} lf_gen_config;

/* Of dir (a directory; of a file nothing is read). No such file: nothing is stated. LF_EFORMAT
 * names file and key. */
int lf_gen_config_read(lf_gen_config *out, const char *dir, lf_err *err);

#endif
