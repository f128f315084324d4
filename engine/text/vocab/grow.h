/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing a vocabulary: new tokens behind the old ones of a BPE tokenizer (byte-level, or
 * SentencePiece's kind with byte fallback), so that text of another language takes fewer tokens.
 * Training goes on where the old tokenizer stopped: the new text's words are first cut as the old
 * tokenizer cuts them, then neighbours are merged by falling count.
 *
 * What holds afterwards:
 *   - every id of an old token is what it was, special tokens included; new ids are the ones that
 *     follow;
 *   - every old merge (score) comes before every new one, and no new merge makes an old token. So a
 *     text is first cut as before, then neighbours are joined. Whoever puts the old ids that it is
 *     made of in the place of each new token has the old encoding, and a text in which no two
 *     neighbours form a new token is encoded as before.
 * What cannot hold: old text that contains a new token (a word that both languages have) takes
 * fewer tokens than before. Two exceptions to the second line: with `ignore_merges` a whole word
 * that is a new token is that token, whatever its cut was; and SentencePiece joins any two
 * neighbours whose texts make a new piece, not only the two it was trained from (their texts are
 * the same, the old ids may be other ones). Unigram is refused: the probabilities of its pieces sum
 * to one, so added pieces change the cut of every text.
 *
 * SentencePiece's kind also gets the new text's characters as pieces, in place of their bytes. New
 * pieces score below all others (the merge scripts that give them 0 put them before all merges,
 * which changes old text). Added tokens that stood outside of model.vocab are written into it under
 * their ids, because libraries count the ids of added tokens from the size of the vocabulary.
 */
#ifndef LF_TEXT_GROW_H
#define LF_TEXT_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "engine/text/token/tokenizer.h"
#include "engine/text/vocab/train_bpe.h"

typedef struct lf_grower lf_grower;

typedef struct lf_grow_args {
    size_t new_tokens;      /* at most */
    uint64_t min_frequency; /* a pair seen less often is not merged */
    /* SentencePiece: share of the characters of the text that have pieces afterwards */
    double coverage;
    size_t max_piece; /* SentencePiece: characters of the longest new piece */
} lf_grow_args;

/* A new token: its text as in the file, and the old ids it is made of. */
typedef struct lf_grown {
    char *text;
    uint32_t *old;
    size_t n_old;
} lf_grown;

/* The old tokenizer: bytes of a tokenizer.json or a tokenizer.model. LF_ENOTSUP: a kind that cannot
 * grow. */
lf_grower *lf_grower_create(const char *data, size_t len, const char *path, lf_err *err);
void lf_grower_destroy(lf_grower *g);
const lf_tokenizer *lf_grower_base(const lf_grower *g); /* borrowed */

/* Count the words of a new text; s is a state of the base, used by this thread only. */
int lf_grower_count(const lf_grower *g, lf_word_counts *w, lf_tok_state *s, const char *text,
                    size_t len, bool strict, lf_err *err);
/* Take tokens of another tokenizer of the same kind (bytes of its tokenizer.json) only. Without
 * counted words its own tokens take their place, earlier ones weighing more. LF_EINVAL: it does not
 * fit. */
int lf_grower_donor(lf_grower *g, const char *json, size_t len, const char *path, lf_err *err);

/* Grow. words may be NULL with a donor. */
int lf_grower_run(lf_grower *g, const lf_grow_args *a, const lf_word_counts *words,
                  lf_bpe_progress_fn fn, void *arg, lf_err *err);

/* After run: new token i has id old_size + i. left: tokens of the donor that no merge can reach
 * (borrowed: size only).
 */
size_t lf_grower_old_size(const lf_grower *g); /* largest old id + 1 */
const lf_grown *lf_grower_tokens(const lf_grower *g, size_t *n);
size_t lf_grower_left(const lf_grower *g);
/* The grown file, in the form of the old one, appended. */
int lf_grower_write(const lf_grower *g, lf_buf *out, lf_err *err);

#endif
