/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece's tokenizer.model: a ModelProto (field numbers of the public
 * sentencepiece_model.proto). BPE, Unigram, character and word models are known by
 * trainer_spec.model_type; the latter two are refused.
 */
#ifndef LF_TEXT_SPM_H
#define LF_TEXT_SPM_H

#include "engine/text/token/tokenizer_priv.h"

/* Do these bytes look like a ModelProto with pieces? */
bool lf_spm_is_model(const uint8_t *data, size_t len);
/* Fill an empty tokenizer. Names and ids are the model's own; control symbols are special. */
int lf_spm_load(lf_tokenizer *t, const uint8_t *data, size_t len, const char *path, lf_err *err);

#endif
