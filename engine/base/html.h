/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces of HTML pages that stand alone: escaped text, pictures within the page.
 */
#ifndef LF_BASE_HTML_H
#define LF_BASE_HTML_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/str.h"

/* Of a page's policy: nothing is loaded, whatever a text on the page says. */
#define LF_HTML_POLICY "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

/* A page stays small enough to be mailed: larger files of pictures are not put into it. */
enum { LF_HTML_PICTURE_BYTES = 192 << 10 };

/* &, <, > and quotes as entities; control bytes but newlines and tabs as visible signs (U+2400
 * to U+2421). */
void lf_html_text(lf_buf *out, const char *text);

/* "image/png", "image/jpeg" or "image/webp" by the beginning of a file, or NULL. */
const char *lf_html_picture_type(const void *data, size_t n);
/* <img class="seen" src="data:..." title="NAME">. false: it is no JPEG, PNG or WebP, or it is too
 * large, and nothing was appended. */
bool lf_html_picture(lf_buf *out, const void *data, size_t n, const char *name);

#endif
