/* SPDX-License-Identifier: Apache-2.0
 *
 * Between reading a pattern (regex_pattern.c) and matching it (regex.c).
 */
#ifndef LF_TEXT_REGEX_PRIV_H
#define LF_TEXT_REGEX_PRIV_H

#include <stdbool.h>

#include "engine/base/str.h"
#include "engine/text/token/regex.h"

/* Append the pattern as PCRE2 has to read it; how: LF_REGEX_ flags. LF_ENOTSUP names what cannot be
 * matched exactly. */
int lf_regex_translate(lf_buf *out, const char *pattern, unsigned how, lf_err *err);

/* The installed PCRE2's Unicode version is one of those (14 to 16) whose categories, but for Mn, Mc
 * and C, differ from the reference's in characters only that Unicode 14 does not have: its own fast
 * classes can be used for the others. */
bool lf_regex_pcre2_classes(void);

#endif
