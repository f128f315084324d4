/* SPDX-License-Identifier: Apache-2.0
 *
 * Pre-tokenizer patterns through PCRE2 (JIT, UTF). Patterns are written for Oniguruma's Ruby syntax
 * (tokenizer.json) or for Rust's fancy_regex (tiktoken). Parts that mean the same in PCRE2 are
 * passed on. \s, \d, \w and \p{..} come from a generated table, so matches do not depend on the
 * installed PCRE2. The table is that of the reference, tokenizers 0.23 with Oniguruma 6.9.10, which
 * is Unicode 16.0; tiktoken 0.14 has the same. LF_ENOTSUP: a part would mean something else in
 * PCRE2 (\b \h \R \X, && and nested sets in a class, POSIX classes, options other than i).
 */
#ifndef LF_TEXT_REGEX_H
#define LF_TEXT_REGEX_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

typedef struct lf_regex lf_regex;             /* immutable, shared by threads */
typedef struct lf_regex_state lf_regex_state; /* the match memory of one thread for one pattern */

enum lf_regex_how {
    LF_REGEX_ONIGURUMA = 0,
    LF_REGEX_LITERAL = 1, /* the pattern is plain text */
    LF_REGEX_RUST = 2,    /* written for tiktoken */
    LF_REGEX_TABLES =
        4 /* for tests: no class is PCRE2's own, as with a PCRE2 of another Unicode version */
};

/* how has flags of lf_regex_how. The caller owns the pattern. */
lf_regex *lf_regex_create(const char *pattern, unsigned how, lf_err *err);
void lf_regex_destroy(lf_regex *re);
lf_regex_state *lf_regex_state_create(const lf_regex *re, lf_err *err); /* borrows re */
void lf_regex_state_destroy(lf_regex_state *s);

/* Finds the first match at or after `from`. Returns 1 with [*start, *end), 0 without a match, or a
 * negative code on an error such as a match limit. */
int lf_regex_find(lf_regex_state *s, const uint8_t *text, size_t len, size_t from, size_t *start,
                  size_t *end, lf_err *err);

#endif
