/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that regex_pattern.c (reading a pattern) and regex.c (matching it) share.
 */
#ifndef LF_TEXT_REGEX_PRIV_H
#define LF_TEXT_REGEX_PRIV_H

#include <stdbool.h>

#include "engine/base/str.h"
#include "engine/text/token/regex.h"

/* Appends the pattern in PCRE2's syntax. how has LF_REGEX_ flags. LF_ENOTSUP: a part cannot be
 * matched exactly; the message names it. */
int lf_regex_translate(lf_buf *out, const char *pattern, unsigned how, lf_err *err);

/* Has the installed PCRE2 one of the Unicode versions 14 to 16? Their categories, except Mn, Mc and
 * C, differ from those of the reference only in characters that Unicode 14 does not have. So
 * PCRE2's own fast classes serve for all other characters. */
bool lf_regex_pcre2_classes(void);

#endif
