/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations of the loader: the files beside a vocabulary, and the forms other than
 * tokenizer.json.
 */
#ifndef LF_TEXT_TOKENIZER_FORMS_H
#define LF_TEXT_TOKENIZER_FORMS_H

#include <jansson.h>

#include "engine/text/token/tokenizer_files.h"
#include "engine/text/token/tokenizer_parts.h"

/* tokenizer_config.json and the files beside it, parsed. A member is NULL where its file is
 * missing. */
typedef struct lf_tok_conf {
    json_t *config, *map, *gen; /* owned */
    json_t *vocab;              /* vocab.json */
} lf_tok_conf;
int lf_tok_conf_read(lf_tok_conf *c, const lf_tok_files *f, const char *path, lf_err *err);
void lf_tok_conf_fini(lf_tok_conf *c);
/* Returns the text of a named token ("bos_token"), or NULL. tokenizer_config.json takes precedence
 * over special_tokens_map.json. */
const char *lf_tok_conf_token(const lf_tok_conf *c, const char *key);
/* tokenizer_class without "Fast", or ""; borrowed */
const char *lf_tok_conf_class(const lf_tok_conf *c);
/* Returns config.key as a boolean; dflt where it is absent or null. */
bool lf_tok_conf_bool(const lf_tok_conf *c, const char *key, bool dflt);
/* Returns added_tokens_decoder in the form of the added_tokens of a tokenizer.json, as a new array.
 * Named special tokens that it lacks are added when `names` has them. */
json_t *lf_tok_conf_added(const lf_tok_conf *c, const json_t *names, const char *path, lf_err *err);
/* Sets bos, eos, pad and unk of t. */
void lf_tok_conf_name(const lf_tok_conf *c, lf_tokenizer *t);

/* Loaders of the forms. The caller owns the tokenizer. */
lf_tokenizer *lf_tok_from_spm(const lf_tok_files *f, const lf_tok_conf *c, const char *path,
                              lf_err *err);
lf_tokenizer *lf_tok_from_tiktoken(const lf_tok_files *f, const lf_tok_conf *c, const char *path,
                                   lf_err *err);
lf_tokenizer *lf_tok_from_merges(const lf_tok_files *f, const lf_tok_conf *c, const char *path,
                                 lf_err *err);
lf_tokenizer *lf_tok_from_vocab_txt(const lf_tok_files *f, const lf_tok_conf *c, const char *path,
                                    lf_err *err);
/* Sets the template of these forms: bos in front and eos behind, as add_bos_token and add_eos_token
 * or the class say. */
int lf_tok_conf_template(const lf_tok_conf *c, lf_tokenizer *t, lf_err *err);

#endif
