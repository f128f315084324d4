/* SPDX-License-Identifier: Apache-2.0
 *
 * See base64.h.
 */
#include "config.h"

#include "engine/base/base64.h"

#include <openssl/evp.h>
#include <string.h>

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool lf_base64_decode(lf_buf *out, const char *text, size_t n)
{
    if (n % 4 != 0)
        return false;
    for (size_t i = 0; i < n; i += 4) {
        int v[4];
        int pad = 0;
        for (int k = 0; k < 4; k++) {
            bool end = text[i + (size_t)k] == '=' && k >= 2 && i + 4 == n;
            v[k] = end ? 0 : value_of(text[i + (size_t)k]);
            if (v[k] < 0 || (pad && !end))
                return false;
            pad += end;
        }
        int w = v[0] << 18 | v[1] << 12 | v[2] << 6 | v[3];
        char b[3] = {(char)(w >> 16), (char)(w >> 8), (char)w};
        lf_buf_add(out, b, (size_t)(3 - pad));
    }
    return true;
}

void lf_base64_encode(lf_buf *out, const void *bytes, size_t n)
{
    enum { PART = 3 * 1024 }; /* a multiple of three bytes has no padding within the whole */
    unsigned char text[PART / 3 * 4 + 1];
    const unsigned char *b = bytes;
    for (size_t at = 0; at < n; at += PART) {
        const size_t part = n - at < PART ? n - at : PART;
        lf_buf_add(out, text, (size_t)EVP_EncodeBlock(text, b + at, (int)part));
    }
}

int lf_base64_url(lf_buf *out, const char *url, size_t n, lf_err *err)
{
    const char *comma = memchr(url, ',', n);
    const size_t head = comma ? (size_t)(comma - url) : 0;
    if (head < 7 || memmem(url, head, ";base64", 7) == NULL)
        return lf_fail(err, LF_EFORMAT, "a data: URL without base64");
    if (!lf_base64_decode(out, comma + 1, n - head - 1))
        return lf_fail(err, LF_EFORMAT, "the base64 of a data: URL is damaged");
    return lf_buf_check(out, err);
}
