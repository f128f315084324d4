/* SPDX-License-Identifier: Apache-2.0
 *
 * Pre-tokenizer patterns through PCRE2 (JIT, UTF). Patterns are written for Oniguruma's Ruby syntax; where PCRE2 means
 * the same they are passed on, \s and \S are replaced by the White_Space property (PCRE2's own \s has U+180E as well),
 * and what would mean something else (\w \b \h \R \X, && and nested sets in a class, POSIX classes) is LF_ENOTSUP.
 * \p{..} is PCRE2's, with the Unicode version of the installed library.
 */
#ifndef LF_TEXT_REGEX_H
#define LF_TEXT_REGEX_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

typedef struct lf_regex lf_regex;             /* immutable, shared by threads */
typedef struct lf_regex_state lf_regex_state; /* one thread's match memory */

/* literal: the pattern is plain text. Returns owned. */
lf_regex *lf_regex_create(const char *pattern, int literal, lf_err *err);
void lf_regex_destroy(lf_regex *re);
lf_regex_state *lf_regex_state_create(const lf_regex *re, lf_err *err);
void lf_regex_state_destroy(lf_regex_state *s);

/* First match at or after `from`: 1 with [*start, *end), 0 none, negative on error (match limits). */
int lf_regex_find(const lf_regex *re, lf_regex_state *s, const uint8_t *text, size_t len, size_t from, size_t *start,
                  size_t *end, lf_err *err);

#endif
