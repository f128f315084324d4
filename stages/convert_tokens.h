/* SPDX-License-Identifier: Apache-2.0
 *
 * Special tokens of an export: the end tokens of generation, the token that fills a batch, and
 * their texts.
 */
#ifndef LF_STAGES_CONVERT_TOKENS_H
#define LF_STAGES_CONVERT_TOKENS_H

#include "engine/convert/convert.h"

struct convert_tokens {
    /* from the options: end tokens by text or id; the list is owned, its texts are borrowed */
    const char **eos;
    size_t n_eos;
    const char *pad_token; /* NULL: not given */
    /* the result of these and of the tokenizer */
    struct lf_convert_tokens tokens;
    struct lf_convert_names names;
    char *texts[4]; /* owned; the texts of names */
};

/* Find the tokens of the checkpoint c->from with c->tokenizer and let c point to them. LF_EINVAL
 * names the option whose token was not found. */
int convert_tokens_settle(struct convert_tokens *t, struct lf_convert_opts *c, lf_err *err);
void convert_tokens_fini(struct convert_tokens *t);

#endif
