/* SPDX-License-Identifier: Apache-2.0
 *
 * Patterns of Python's re module, on PCRE2: findall and sub with "". \d \w \s are Unicode's; \Z is
 * the end of the text; what the two read differently ({,n} and a set in a set) is LF_ENOTSUP naming
 * the pattern.
 */
#ifndef LF_INFER_PYRE_H
#define LF_INFER_PYRE_H

#include <jansson.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

typedef struct lf_pyre lf_pyre; /* one thread at a time */

/* Returns owned; LF_EFORMAT names pattern and fault. */
lf_pyre *lf_pyre_create(const char *pattern, lf_err *err);
void lf_pyre_destroy(lf_pyre *re);

/* re.findall: a list of texts, of lists of texts where the pattern has several groups. Owned. The
 * text is valid UTF-8. */
json_t *lf_pyre_findall(lf_pyre *re, const char *text, size_t len, lf_err *err);
/* re.sub(pattern, "", text) appended to out. */
int lf_pyre_remove(lf_pyre *re, const char *text, size_t len, lf_buf *out, lf_err *err);

#endif
