/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations of decode.c that the loader uses.
 */
#ifndef LF_TEXT_DECODE_H
#define LF_TEXT_DECODE_H

#include "engine/text/token/tokenizer_priv.h"

/* The state of a decoder step between tokens. */
struct lf_dec_state {
    size_t index; /* tokens so far; BPE: 1 when one is held */
    size_t taken; /* STRIP behind Fuse: characters removed */
    bool past;    /* STRIP behind Fuse: a character was kept */
    lf_buf hold;
    lf_regex_state *re;
};

typedef struct lf_tok_chain {
    const lf_tokenizer *t;
    struct lf_dec_state step[LF_TOK_STEPS_MAX];
} lf_tok_chain;

/* Appends the text that a token stands for when it is not the first one. */
int lf_tok_one_token(const lf_tokenizer *t, const char *text, size_t n, lf_buf *out, lf_err *err);
/* Returns the byte of <0x..>, or -1 for other texts. */
int lf_tok_byte_token(const char *p, size_t n);

#endif
