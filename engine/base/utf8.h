/* SPDX-License-Identifier: Apache-2.0
 *
 * The one definition of valid UTF-8 (Unicode 15, table 3-7: no surrogates, no overlong forms, at
 * most U+10FFFF).
 */
#ifndef LF_BASE_UTF8_H
#define LF_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Returns the length of the byte order mark at the beginning of the n bytes at s: 3, or 0. */
static inline size_t lf_utf8_bom(const char *s, size_t n)
{
    return n >= 3 && memcmp(s, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

/* Returns the length (1 to 4) of the valid sequence at the beginning of the n bytes at s, or 0 when
 * there is none. n >= 1. */
static inline size_t lf_utf8_len(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80)
        return 1;
    if (u[0] < 0xC2 || u[0] > 0xF4)
        return 0;
    size_t want = u[0] < 0xE0 ? 2 : u[0] < 0xF0 ? 3 : 4;
    if (n < want)
        return 0;
    unsigned lo = u[0] == 0xE0 ? 0xA0 : u[0] == 0xF0 ? 0x90 : 0x80;
    unsigned hi = u[0] == 0xED ? 0x9F : u[0] == 0xF4 ? 0x8F : 0xBF;
    if (u[1] < lo || u[1] > hi)
        return 0;
    for (size_t i = 2; i < want; i++)
        if ((u[i] & 0xC0) != 0x80)
            return 0;
    return want;
}

/* Writes the character c (at most U+10FFFF) to out and returns its length, 1 to 4. */
static inline size_t lf_utf8_put(char out[4], uint32_t c)
{
    size_t n = 0;
    if (c < 0x80) {
        out[n++] = (char)c;
        return n;
    }
    if (c >= 0x10000) {
        out[n++] = (char)(0xF0 | c >> 18);
        out[n++] = (char)(0x80 | (c >> 12 & 0x3F));
        out[n++] = (char)(0x80 | (c >> 6 & 0x3F));
    } else if (c >= 0x800) {
        out[n++] = (char)(0xE0 | c >> 12);
        out[n++] = (char)(0x80 | (c >> 6 & 0x3F));
    } else {
        out[n++] = (char)(0xC0 | c >> 6);
    }
    out[n++] = (char)(0x80 | (c & 0x3F));
    return n;
}

/* Returns the offset of the first byte that is not valid UTF-8, or n. */
static inline size_t lf_utf8_check(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t len = lf_utf8_len(s + i, n - i);
        if (len == 0)
            return i;
        i += len;
    }
    return n;
}

#endif
