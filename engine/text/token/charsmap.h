/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece's precompiled normalisation rules. A blob holds the u32le length of a double-array
 * trie, the trie (u32le units of the Darts-clone library), and the replacement texts, each ended by
 * a zero byte. The value of a rule is an offset into these texts. In a unit bit 8 means that a
 * value follows, bits 0-7 and 31 are its label, bit 9 is a scale, and bits 10-30 are the offset to
 * the children.
 *
 * Two libraries apply the same rules differently, and this code has both ways. sentencepiece
 * replaces the longest match at every place. The tokenizers library (crate spm_precompiled) looks
 * at each grapheme cluster below six bytes as a whole, then at single characters, and takes the
 * *shortest* rule that the cluster begins with.
 */
#ifndef LF_TEXT_CHARSMAP_H
#define LF_TEXT_CHARSMAP_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

typedef struct lf_charsmap {
    uint32_t *units; /* owned */
    size_t n_units;
    char *texts; /* owned, n_texts bytes and a zero */
    size_t n_texts;
} lf_charsmap;

/* Reads a blob. `what` names it in messages. On failure m stays empty. */
int lf_charsmap_init(lf_charsmap *m, const uint8_t *blob, size_t len, const char *what,
                     lf_err *err);
void lf_charsmap_fini(lf_charsmap *m);

/* Finds the longest rule that p begins with. Returns the bytes that it replaces (0: none) and its
 * text. */
size_t lf_charsmap_longest(const lf_charsmap *m, const uint8_t *p, size_t len, const char **text);
/* Returns the text of the shortest rule that p begins with, or NULL. */
const char *lf_charsmap_shortest(const lf_charsmap *m, const uint8_t *p, size_t len);

/* Normalises valid UTF-8 like Precompiled of the tokenizers library and appends it to out. */
void lf_charsmap_apply(const lf_charsmap *m, const uint8_t *p, size_t len, lf_buf *out);

#endif
