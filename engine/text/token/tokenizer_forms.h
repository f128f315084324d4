/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the loader: what the files beside a vocabulary say, and the forms other than
 * tokenizer.json.
 */
#ifndef LF_TEXT_TOKENIZER_FORMS_H
#define LF_TEXT_TOKENIZER_FORMS_H

#include <jansson.h>

#include "engine/text/token/tokenizer_files.h"
#include "engine/text/token/tokenizer_parts.h"

/* tokenizer_config.json and its neighbours, parsed; members are NULL where a file is not there. */
typedef struct lf_tok_conf {
    json_t *config, *map, *gen; /* owned */
    json_t *vocab;              /* vocab.json */
} lf_tok_conf;
int lf_tok_conf_read(lf_tok_conf *c, const lf_tok_files *f, const char *path, lf_err *err);
void lf_tok_conf_fini(lf_tok_conf *c);
/* Text of a named token ("bos_token"): tokenizer_config.json wins over special_tokens_map.json.
 * NULL none. */
const char *lf_tok_conf_token(const lf_tok_conf *c, const char *key);
/* tokenizer_class without "Fast"; "" none. In a static-size copy */
const char *lf_tok_conf_class(const lf_tok_conf *c);
/* config.key as a bool; dflt where it is absent or null. */
bool lf_tok_conf_bool(const lf_tok_conf *c, const char *key, bool dflt);
/* added_tokens_decoder as the added_tokens of a tokenizer.json (a new array), with named special
 * tokens that it lacks and `find` knows. */
json_t *lf_tok_conf_added(const lf_tok_conf *c, const json_t *names, const char *path, lf_err *err);
/* bos, eos, pad, unk of t. */
void lf_tok_conf_name(const lf_tok_conf *c, lf_tokenizer *t);

/* The forms; each returns owned. */
lf_tokenizer *lf_tok_from_spm(const lf_tok_files *f, const lf_tok_conf *c, const char *path,
                              lf_err *err);
lf_tokenizer *lf_tok_from_tiktoken(const lf_tok_files *f, const lf_tok_conf *c, const char *path,
                                   lf_err *err);
lf_tokenizer *lf_tok_from_merges(const lf_tok_files *f, const lf_tok_conf *c, const char *path,
                                 lf_err *err);
lf_tokenizer *lf_tok_from_vocab_txt(const lf_tok_files *f, const lf_tok_conf *c, const char *path,
                                    lf_err *err);
/* The template of the forms: bos before, eos behind, by add_bos_token and add_eos_token or the
 * class. */
int lf_tok_conf_template(const lf_tok_conf *c, lf_tokenizer *t, lf_err *err);

#endif
