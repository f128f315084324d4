/* SPDX-License-Identifier: Apache-2.0
 *
 * Pre-tokenizer patterns through PCRE2 (JIT, UTF). Patterns are written for Oniguruma's Ruby syntax
 * (tokenizer.json) or for Rust's fancy_regex (tiktoken). Where PCRE2 means the same they are passed
 * on. \s, \d, \w and \p{..} are those of the reference, tokenizers 0.23 with Oniguruma 6.9.10,
 * which is Unicode 16.0 (tiktoken 0.14 has the same), from a generated table: matches do not depend
 * on the installed PCRE2. What would mean something else (\b \h \R \X, && and nested sets in a
 * class, POSIX classes, options other than i) is LF_ENOTSUP.
 */
#ifndef LF_TEXT_REGEX_H
#define LF_TEXT_REGEX_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

typedef struct lf_regex lf_regex;             /* immutable, shared by threads */
typedef struct lf_regex_state lf_regex_state; /* one thread's match memory for one */

enum lf_regex_how {
    LF_REGEX_ONIGURUMA = 0,
    LF_REGEX_LITERAL = 1, /* the pattern is plain text */
    LF_REGEX_RUST = 2,    /* written for tiktoken */
    LF_REGEX_TABLES =
        4 /* for tests: no class is PCRE2's own, as with a PCRE2 of another Unicode version */
};

/* how: flags of lf_regex_how. Returns owned. */
lf_regex *lf_regex_create(const char *pattern, unsigned how, lf_err *err);
void lf_regex_destroy(lf_regex *re);
lf_regex_state *lf_regex_state_create(const lf_regex *re, lf_err *err); /* borrows re */
void lf_regex_state_destroy(lf_regex_state *s);

/* First match at or after `from`: 1 with [*start, *end), 0 none, negative on error (match
 * limits). */
int lf_regex_find(lf_regex_state *s, const uint8_t *text, size_t len, size_t from, size_t *start,
                  size_t *end, lf_err *err);

#endif
