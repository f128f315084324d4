/* SPDX-License-Identifier: Apache-2.0
 *
 * Escaped text, and pictures as data: URLs. */
#include "engine/base/html.h"

#include <string.h>

#include "engine/base/base64.h"

static const char *entity_of(unsigned char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

/* Bytes that are not UTF-8 have become U+FFFD, or '?', before they come here. */
void lf_html_text(lf_buf *out, const char *text)
{
    for (const char *p = text; p != NULL && *p != '\0'; p++) {
        const unsigned char c = (unsigned char)*p;
        const char *entity = entity_of(c);
        if (entity != NULL)
            lf_buf_adds(out, entity);
        else if ((c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t')
            lf_buf_addc(out, *p);
        else
            lf_buf_addf(out, "&#x24%02x;", c == 0x7f ? 0x21 : c);
    }
}

const char *lf_html_picture_type(const void *data, size_t n)
{
    const char *p = data;
    if (n > 8 && memcmp(p, "\x89PNG\r\n\x1a\n", 8) == 0)
        return "image/png";
    if (n > 3 && memcmp(p, "\xff\xd8\xff", 3) == 0)
        return "image/jpeg";
    if (n > 12 && memcmp(p, "RIFF", 4) == 0 && memcmp(p + 8, "WEBP", 4) == 0)
        return "image/webp";
    return NULL;
}

bool lf_html_picture(lf_buf *out, const void *data, size_t n, const char *name)
{
    const char *type = lf_html_picture_type(data, n);
    if (type == NULL || n > LF_HTML_PICTURE_BYTES)
        return false;
    lf_buf_addf(out, "<img class=\"seen\" src=\"data:%s;base64,", type);
    lf_base64_encode(out, data, n);
    lf_buf_adds(out, "\" title=\"");
    lf_html_text(out, name);
    lf_buf_adds(out, "\">");
    return true;
}
