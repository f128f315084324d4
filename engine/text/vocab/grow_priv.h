/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the grower: grow.c (words, merging, what new tokens are made of),
 * grow_file.c (files in and out).
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
    bool sp;        /* SentencePiece's kind; else byte-level */
    lf_vocab v;     /* every token's text by id, new ones behind the old */
    uint8_t *parts; /* [old] 1: may be part of a new token; 0: special, a byte, no token */
    size_t old;
    float least;              /* tokenizer.model: the lowest score of a piece */
    lf_vocab donor;           /* its tokens, in order of their ids; slots NULL: no donor */
    lf_trained_merge *merges; /* byte-level: in rank order */
    size_t n_merges;
    size_t n_chars; /* new tokens that are single characters; they come first */
    lf_grown *tokens;
    size_t n_tokens;
    size_t left;
};

/* Is id a token that merges may join, old or new? */
static inline bool lf_grower_joins(const lf_grower *g, int64_t id)
{
    return id >= 0 && ((size_t)id >= g->old || g->parts[id]);
}

/* Fill v, parts and old from the file. */
int lf_grower_load(lf_grower *g, const char *data, size_t len, const char *path, lf_err *err);
/* Bytes of a token's text: through the byte alphabet, or as they are. False: a character that is
 * not in it. */
bool lf_grower_bytes(const lf_grower *g, const char *text, lf_buf *out);

#endif
