/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that grow.c (words, merging, composition of new tokens), grow_special.c (special
 * tokens) and grow_file.c (files in and out) share.
 */
#ifndef LF_TEXT_GROW_PRIV_H
#define LF_TEXT_GROW_PRIV_H

#include <jansson.h>

#include "engine/text/vocab/grow.h"
#include "engine/text/vocab/train_priv.h"

struct lf_grower {
    json_t *root; /* the tokenizer.json; NULL: a tokenizer.model */
    lf_buf raw;   /* the tokenizer.model */
    lf_tokenizer *t;
    uint8_t *cls;
    bool sp;    /* SentencePiece's kind; else byte-level */
    lf_vocab v; /* the text of every token by id, new tokens behind the old */
    /* [old] 1: may be part of a new token; 0: a special token, a byte, or no token */
    uint8_t *parts;
    size_t old;
    float least;              /* tokenizer.model: the lowest score of a piece */
    lf_vocab donor;           /* its tokens, in order of their ids; slots NULL: no donor */
    lf_trained_merge *merges; /* byte-level: in rank order */
    size_t n_merges;
    size_t n_chars; /* new tokens that are single characters; they come first */
    lf_grown *tokens;
    size_t n_tokens;
    size_t n_special; /* the last of them */
    bool specials_only;
    size_t left;
};

/* Is id a token that merges may join, old or new? */
static inline bool lf_grower_joins(const lf_grower *g, int64_t id)
{
    return id >= 0 && ((size_t)id >= g->old || g->parts[id]);
}

/* Fills v, parts and old from the file. */
int lf_grower_load(lf_grower *g, const char *data, size_t len, const char *path, lf_err *err);
/* Adds the special tokens to a tokenizer.json. -1: no memory. */
int lf_grower_put_specials(const lf_grower *g, json_t *root);
/* Appends the bytes of a token's text, through the byte alphabet or as they are. false: a character
 * is not in the alphabet. */
bool lf_grower_bytes(const lf_grower *g, const char *text, lf_buf *out);

#endif
