/* SPDX-License-Identifier: Apache-2.0
 *
 * Patterns of Python's re module, on PCRE2: findall and sub with "". \d \w \s are those of Unicode;
 * \Z is the end of the text. LF_ENOTSUP: Python and PCRE2 read a part differently ({,n}, and a set
 * in a set); the message names the pattern.
 */
#ifndef LF_INFER_PYRE_H
#define LF_INFER_PYRE_H

#include <jansson.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

typedef struct lf_pyre lf_pyre; /* one thread at a time */

/* Returns a pattern that the caller owns. LF_EFORMAT: the message names pattern and fault. */
lf_pyre *lf_pyre_create(const char *pattern, lf_err *err);
void lf_pyre_destroy(lf_pyre *re);

/* re.findall: returns a list of texts, or of lists of texts where the pattern has several groups.
 * The caller owns it. The text is valid UTF-8. */
json_t *lf_pyre_findall(lf_pyre *re, const char *text, size_t len, lf_err *err);
/* Appends re.sub(pattern, "", text) to out. */
int lf_pyre_remove(lf_pyre *re, const char *text, size_t len, lf_buf *out, lf_err *err);

#endif
