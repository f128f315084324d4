/* SPDX-License-Identifier: Apache-2.0
 *
 * Base64 (RFC 4648, standard alphabet, with padding).
 */
#ifndef LF_TEXT_BASE64_H
#define LF_TEXT_BASE64_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/str.h"

/* Appends the decoded bytes. false: text is not base64; out may then hold a part of the bytes. */
bool lf_base64_decode(lf_buf *out, const char *text, size_t n);

#endif
