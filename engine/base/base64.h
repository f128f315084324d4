/* SPDX-License-Identifier: Apache-2.0
 *
 * Base64 (RFC 4648, standard alphabet, with padding).
 */
#ifndef LF_BASE_BASE64_H
#define LF_BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

/* Appends the decoded bytes. false: text is not base64; out may then hold a part of the bytes. */
bool lf_base64_decode(lf_buf *out, const char *text, size_t n);
void lf_base64_encode(lf_buf *out, const void *bytes, size_t n); /* appends the text of n bytes */

/* Appends the bytes of a "data:...;base64,..." URL of n characters. LF_EFORMAT: it is damaged, or
 * not of base64. */
int lf_base64_url(lf_buf *out, const char *url, size_t n, lf_err *err);

#endif
