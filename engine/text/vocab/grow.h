/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing a vocabulary. New tokens are added behind the old ones of a BPE tokenizer (byte-level, or
 * SentencePiece's kind with byte fallback), so that text of another language takes fewer tokens.
 * Training continues where the old tokenizer stopped: the words of the new text are encoded as the
 * old tokenizer does it, then neighbours are merged in the order of falling counts.
 *
 * What holds afterwards:
 *   - old tokens, special ones included, keep their ids; the new ids follow;
 *   - every old merge (score) comes before every new one, and no new merge makes an old token. So a
 *     text is first encoded as before, then neighbours are joined. Replacing each new token by the
 *     old ids that it is made of gives the old encoding. A text in which no two neighbours form a
 *     new token is encoded as before.
 * Old text that contains a new token, such as a word of both languages, takes fewer tokens than
 * before. The second line has two exceptions. With `ignore_merges` a whole word that is a new token
 * becomes that token, however it was encoded before. And SentencePiece joins any two neighbours
 * whose texts make a new piece, not only the two from which the piece was trained; the texts are
 * the same, but the old ids may differ. Unigram is refused: the probabilities of its pieces sum to
 * one, so added pieces change the encoding of every text.
 *
 * Special tokens, such as a mark for pictures, can be added to a vocabulary of any kind: no text is
 * cut into them but their own, where it stands for them. They are entries of added_tokens of a
 * tokenizer.json, which have the ids that the tokenizers library gives them, and control pieces of
 * a tokenizer.model.
 *
 * SentencePiece's kind also gets the characters of the new text as pieces, in place of their bytes.
 * New pieces score below all others. (Known merge scripts give them the score 0, which puts them
 * before all merges and changes the encoding of old text.) Added tokens outside of model.vocab are
 * written into it under their ids, because libraries count the ids of added tokens from the size of
 * the vocabulary.
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
    /* SentencePiece: share of the characters of the text that get pieces */
    double coverage;
    size_t max_piece; /* SentencePiece: characters of the longest new piece */
} lf_grow_args;

/* A new token: its text as in the file, and the old ids that it is made of. */
typedef struct lf_grown {
    char *text;
    uint32_t *old;
    size_t n_old;
} lf_grown;

/* Creates a grower from the old tokenizer, the bytes of a tokenizer.json or a tokenizer.model.
 * LF_ENOTSUP: this kind cannot grow. specials_only: of any kind, for lf_grower_specials alone. */
lf_grower *lf_grower_create(const char *data, size_t len, bool specials_only, const char *path,
                            lf_err *err);
void lf_grower_destroy(lf_grower *g);
const lf_tokenizer *lf_grower_base(const lf_grower *g); /* borrowed */

/* Counts the words of a new text. s is a state of the base that only this thread uses. */
int lf_grower_count(const lf_grower *g, lf_word_counts *w, lf_tok_state *s, const char *text,
                    size_t len, bool strict, lf_err *err);
/* Restricts new tokens to those of another tokenizer of the same kind, given as the bytes of its
 * tokenizer.json. Without counted words the tokens of the donor serve as words; earlier tokens
 * weigh more. LF_EINVAL: the donor does not fit. */
int lf_grower_donor(lf_grower *g, const char *json, size_t len, const char *path, lf_err *err);

/* Grows the vocabulary. words may be NULL with a donor. */
int lf_grower_run(lf_grower *g, const lf_grow_args *a, const lf_word_counts *words,
                  lf_bpe_progress_fn fn, void *arg, lf_err *err);

/* Adds the n texts as special tokens behind all others; after lf_grower_run, where that is called.
 * What one is made of is its text, encoded, or nothing where that fails. LF_EINVAL: an empty text,
 * or a token that is there; LF_ENOTSUP: libraries would give it another id. */
int lf_grower_specials(lf_grower *g, const char *const *texts, size_t n, lf_err *err);

/* After these: new token i has id old_size + i; tokens are borrowed. lf_grower_left is the
 * number of tokens of the donor that no merge reaches.
 */
size_t lf_grower_old_size(const lf_grower *g); /* largest old id + 1 */
const lf_grown *lf_grower_tokens(const lf_grower *g, size_t *n);
size_t lf_grower_left(const lf_grower *g);
/* Appends the grown file, in the form of the old one. */
int lf_grower_write(const lf_grower *g, lf_buf *out, lf_err *err);

#endif
