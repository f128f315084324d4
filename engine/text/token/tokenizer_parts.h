/* SPDX-License-Identifier: Apache-2.0
 *
 * Readers of the parts of a tokenizer.json. All loaders use them: tokenizer_forms.c turns the other
 * forms into this one where their libraries agree with it.
 */
#ifndef LF_TEXT_TOKENIZER_PARTS_H
#define LF_TEXT_TOKENIZER_PARTS_H

#include <jansson.h>

#include "engine/text/token/tokenizer_priv.h"

/* normalizer, pre_tokenizer, post_processor and decoder; before the model. */
int lf_tok_load_parts(lf_tokenizer *t, json_t *root, const char *path, lf_err *err);
/* Appends one decoder, which is not a Sequence, to t->decs. */
int lf_tok_load_decstep(lf_tokenizer *t, json_t *o, const char *type, const char *path,
                        lf_err *err);
int lf_tok_load_replace(lf_normstep *st, json_t *o, const char *path, lf_err *err);
int lf_tok_load_prepend(enum lf_prepend *out, json_t *o, const char *path, lf_err *err);

/* model.vocab, merges, scores (tokenizer_model.c). */
int lf_tok_load_model(lf_tokenizer *t, json_t *model, const char *path, lf_err *err);
/* Make room for id, and enter a token with the text of the file under it. LF_EFORMAT: the id is
 * taken. */
int lf_tok_grow(lf_tokenizer *t, uint32_t id, lf_err *err);
int lf_tok_set_token(lf_tokenizer *t, uint32_t id, const char *text, size_t n, const char *path,
                     lf_err *err);
/* Returns the bytes of a token's text through the byte alphabet. *mapped tells that every character
 * is in the alphabet; otherwise the bytes are the UTF-8 of the text. */
const uint8_t *lf_tok_alphabet_bytes(lf_tokenizer *t, const char *text, size_t n, uint32_t *len,
                                     bool *mapped, lf_err *err);
/* Reads added_tokens (tokenizer_load.c). any_id: the ids of the file count, not their place in the
 * list. */
int lf_tok_load_added(lf_tokenizer *t, json_t *list, bool any_id, const char *path, lf_err *err);
/* Enters characters and merge pairs of a BPE model over characters (tokenizer_model.c), after the
 * merges. */
int lf_tok_fill_bytes(lf_tokenizer *t, lf_err *err);

#endif
