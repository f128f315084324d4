/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece's tokenizer.model: a ModelProto (field numbers of the public
 * sentencepiece_model.proto). trainer_spec.model_type tells BPE, Unigram, character and word models
 * apart; character and word models are refused.
 */
#ifndef LF_TEXT_SPM_H
#define LF_TEXT_SPM_H

#include "engine/text/token/tokenizer_priv.h"

/* Do these bytes look like a ModelProto with pieces? */
bool lf_spm_is_model(const uint8_t *data, size_t len);
/* Fills an empty tokenizer. Names and ids are those of the model; control symbols are special
 * tokens. */
int lf_spm_load(lf_tokenizer *t, const uint8_t *data, size_t len, const char *path, lf_err *err);

#endif
