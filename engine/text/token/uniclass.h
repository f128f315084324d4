/* SPDX-License-Identifier: Apache-2.0
 *
 * Character classes of the tokenizers library, and decoding of valid UTF-8. The table is generated
 * (uniclass_data.h), so words are cut the same on every system, whatever the Unicode version of its
 * libraries.
 */
#ifndef LF_TEXT_UNICLASS_H
#define LF_TEXT_UNICLASS_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

enum lf_uniclass_flags {
    LF_UC_L = 1,    /* \p{L} */
    LF_UC_N = 2,    /* \p{N} */
    LF_UC_S = 4,    /* \s: the White_Space property */
    LF_UC_NUM = 8,  /* what the Digits pre-tokenizer takes for a digit */
    LF_UC_W = 16,   /* \w of the added-token matcher */
    LF_UC_NFC = 32, /* never changed by NFC, whatever stands before or after */
    LF_UC_NORM = 64 /* the library's normaliser has a decomposition or a combining class for it */
};

#define LF_UNICLASS_SIZE 0x110000u

/* Returns one byte of flags for each code point, which the caller frees; NULL on failure. */
uint8_t *lf_uniclass_create(lf_err *err);

/* Decodes one character of valid UTF-8. *len becomes its length in bytes. */
static inline uint32_t lf_utf8_get(const uint8_t *p, unsigned *len)
{
    uint32_t b = p[0];
    if (b < 0x80) {
        *len = 1;
        return b;
    }
    if (b < 0xE0) {
        *len = 2;
        return (b & 0x1F) << 6 | (p[1] & 0x3Fu);
    }
    if (b < 0xF0) {
        *len = 3;
        return (b & 0x0F) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    }
    *len = 4;
    return (b & 0x07) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

/* Returns the start of the character that ends just before p. */
static inline const uint8_t *lf_utf8_prev(const uint8_t *p)
{
    do
        p--;
    while ((*p & 0xC0) == 0x80);
    return p;
}

#endif
