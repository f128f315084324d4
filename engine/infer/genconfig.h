/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings for generation that the authors of a model give: generation_config.json beside its
 * tokenizer (transformers). Only values in the file count, not the defaults of the program that
 * wrote it:
 *
 *     temperature, top_k, top_p, min_p,         a number; null: not given
 *     repetition_penalty, max_new_tokens,
 *     min_new_tokens, num_beams,
 *     length_penalty, no_repeat_ngram_size
 *     early_stopping                            true, false or "never"
 *     forced_bos_token_id, forced_eos_token_id  an id: of encoder-decoders, of any model
 *     max_length, min_length                    of encoder-decoders, whose outputs stand behind one
 *                                               token; where the numbers of new tokens are not said
 *     do_sample: false                          temperature 0
 *     eos_token_id                              an id or a list of ids
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
    LF_GEN_MIN_TOKENS,
    LF_GEN_BEAMS,
    LF_GEN_LENGTH_PENALTY,
    LF_GEN_EARLY_STOPPING, /* enum lf_beams_early (gen.h) */
    LF_GEN_NO_REPEAT,
    LF_GEN_FIRST_TOKEN,
    LF_GEN_LAST_TOKEN,
    LF_GEN_KEYS
};
/* the name of our option: "temperature", ..., "max_tokens" */
const char *lf_gen_key_name(enum lf_gen_key k);

typedef struct lf_gen_config {
    bool has[LF_GEN_KEYS];
    double value[LF_GEN_KEYS];
    int32_t eos[LF_GEN_CONFIG_MAX_EOS];
    size_t n_eos;
} lf_gen_config;

/* Reads the file of directory dir; when dir is a file nothing is read. A missing file gives
 * nothing. seq2seq: it is of an encoder-decoder. LF_EFORMAT: the message names file and key. */
int lf_gen_config_read(lf_gen_config *out, const char *dir, bool seq2seq, lf_err *err);

#endif
