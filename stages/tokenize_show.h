/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-tokenize --show-shards: documents of a shards artifact as the training stages read them, token
 * by token, for people or as JSON. A sample is one document, or one pair of documents.
 *
 * Token 0 of a document is read and never trained, because nothing stands before it; the others are
 * trained as the loss mask says. The counts of trained tokens here are those of the manifest.
 */
#ifndef LF_STAGES_TOKENIZE_SHOW_H
#define LF_STAGES_TOKENIZE_SHOW_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/opt.h"
#include "engine/base/str.h"
#include "engine/store/shard.h"
#include "engine/text/token/tokenizer.h"

typedef struct tok_show {
    bool on;
    const char *split;
    uint64_t samples;   /* how many are chosen */
    uint64_t seed;      /* by which */
    lf_opt_list sample; /* numbers that were named instead, as text */
    uint64_t tokens;    /* of a document that are shown to people; 0: all */
    bool ids, json;
} tok_show;

/* A document in memory. */
typedef struct tok_shown {
    const char *file; /* borrowed from the shardset */
    uint64_t index;   /* in that file */
    uint64_t n, trained;
    int32_t *ids;     /* [n] owned */
    bool *is_trained; /* [n] owned */
    bool *begins;     /* [n] owned: a sequence inside the document begins here */
} tok_shown;

/* Reads document `doc`. On failure d is empty. */
int lf_tok_shown_read(tok_shown *d, const lf_shardset *s, uint64_t doc, lf_err *err);
void lf_tok_shown_fini(tok_shown *d);

/* ---- for people (tokenize_show_text.c) ---- */

/* How tokens look. Tokens are divided by U+00B7 (a dot in the middle). A token's own dot and '\'
 * have a '\' before them, control characters are \n, \t or \xNN, and so are bytes of a character
 * that several tokens share. Trained tokens stand between {+ and +}, or are green on a terminal.
 * Two dots begin a sequence inside the document. The line is broken behind tokens that end a
 * line. */
typedef struct tok_look {
    const lf_tokenizer *tok; /* NULL: ids alone */
    bool colour, ids;
    uint64_t tokens;     /* 0: all; else the first and the last tokens, half of them each */
    int32_t image_token; /* the placeholder of pictures; -1: none */
} tok_look;

/* Appends the document's tokens and a line end. */
void lf_tok_shown_text(lf_buf *out, const tok_shown *d, const tok_look *look);
/* Appends bytes as a token is shown. marks: '{+' and '+}' are escaped too. */
void lf_tok_escape(lf_buf *out, const uint8_t *bytes, size_t n, bool marks);

/* ---- the whole (tokenize_show.c) ---- */

/* dir holds the artifact, or has it as `shards`. tokenizer: NULL for the one beside the shards.
 * Prints to standard output. LF_EINVAL: there is no such split or sample, or the tokenizer is
 * another than the shards' own. */
int lf_tok_show(const tok_show *o, const char *dir, const char *tokenizer, lf_err *err);

#endif
