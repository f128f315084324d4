/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of decode.c, shared with the loader.
 */
#ifndef LF_TEXT_DECODE_H
#define LF_TEXT_DECODE_H

#include "engine/text/token/tokenizer_priv.h"

/* What a decoder step remembers between tokens. */
struct lf_dec_state {
    size_t index; /* tokens so far; BPE: 1 when one is held */
    size_t taken; /* STRIP behind Fuse: characters that went */
    bool past;    /* STRIP behind Fuse: something stayed */
    lf_buf hold;
    lf_regex_state *re;
};

typedef struct lf_tok_chain {
    const lf_tokenizer *t;
    struct lf_dec_state step[LF_TOK_STEPS_MAX];
} lf_tok_chain;

/* What one token stands for when it is not the first. */
int lf_tok_one_token(const lf_tokenizer *t, const char *text, size_t n, lf_buf *out, lf_err *err);
/* The byte of <0x..>, -1 for other texts. */
int lf_tok_byte_token(const char *p, size_t n);

#endif
