/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the parts of a tokenizer.json; every file that builds a tokenizer ends here, because the
 * other forms are turned into this one (tokenizer_forms.c) where their libraries agree with it.
 */
#ifndef LF_TEXT_TOKENIZER_PARTS_H
#define LF_TEXT_TOKENIZER_PARTS_H

#include <jansson.h>

#include "engine/text/token/tokenizer_priv.h"

/* normalizer, pre_tokenizer, post_processor and decoder; before the model. */
int lf_tok_load_parts(lf_tokenizer *t, json_t *root, const char *path, lf_err *err);
/* One decoder (not a Sequence), appended to t->decs. */
int lf_tok_load_decstep(lf_tokenizer *t, json_t *o, const char *type, const char *path,
                        lf_err *err);
int lf_tok_load_replace(lf_normstep *st, json_t *o, const char *path, lf_err *err);
int lf_tok_load_prepend(enum lf_prepend *out, json_t *o, const char *path, lf_err *err);

/* model.vocab, merges, scores (tokenizer_model.c). */
int lf_tok_load_model(lf_tokenizer *t, json_t *model, const char *path, lf_err *err);
/* Make room for id, and enter a token under it: text as in the file. Twice the same id is
 * LF_EFORMAT. */
int lf_tok_grow(lf_tokenizer *t, uint32_t id, lf_err *err);
int lf_tok_set_token(lf_tokenizer *t, uint32_t id, const char *text, size_t n, const char *path,
                     lf_err *err);
/* Bytes of a token's text through the byte alphabet; *mapped: every character is in it, else its
 * UTF-8. */
const uint8_t *lf_tok_alphabet_bytes(lf_tokenizer *t, const char *text, size_t n, uint32_t *len,
                                     bool *mapped, lf_err *err);
/* added_tokens (tokenizer_load.c). any_id: the file's ids count, whatever their place would
 * give. */
int lf_tok_load_added(lf_tokenizer *t, json_t *list, bool any_id, const char *path, lf_err *err);
/* Characters and merge pairs of a BPE model over characters (tokenizer_model.c): after the merges
 * are in. */
int lf_tok_fill_bytes(lf_tokenizer *t, lf_err *err);

#endif
