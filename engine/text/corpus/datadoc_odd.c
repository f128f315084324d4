/* SPDX-License-Identifier: Apache-2.0
 *
 * Oddities of one text; what they are stands in datadoc.h.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/utf8.h"
#include "engine/text/corpus/datadoc_priv.h"

#define UNBROKEN      1000
#define REPEATED      64
#define MIN_LINES     10
#define MAX_LINES     65536 /* of a row, compared with each other */
#define REPEATED_PART 0.3

const char *const lf_datadoc_odd_names[N_ODD] = {
    "invalid_utf8",   "bom",      "control",  "replacement",
    "mojibake",       "entities", "unbroken", "repeated_chars",
    "repeated_lines", "empty",    "line_ends"};

uint64_t lf_datadoc_hash(const void *data, size_t n, uint64_t seed)
{
    const unsigned char *p = data;
    uint64_t h = seed ^ n * 0x9E3779B97F4A7C15u, v;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&v, p, 8);
        h = (h ^ v) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    v = 0;
    memcpy(&v, p, n);
    h = (h ^ v) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return h ^ h >> 32;
}

uint64_t lf_datadoc_chars(const char *text, size_t len)
{
    uint64_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

static bool is_space(unsigned c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The code point at s (k bytes). */
static uint32_t decode(const char *s, size_t k)
{
    const unsigned char *u = (const unsigned char *)s;
    uint32_t c = k == 1 ? u[0] : u[0] & (0xFFu >> (k + 1));
    for (size_t i = 1; i < k; i++)
        c = c << 6 | (u[i] & 0x3F);
    return c;
}

/* "&name;" or "&#123;" at s. */
static bool is_entity(const char *s, size_t n)
{
    static const char *const names[] = {"amp;", "lt;", "gt;", "quot;", "apos;", "nbsp;"};
    for (size_t i = 0; i < 6; i++)
        if (n > strlen(names[i]) && memcmp(s + 1, names[i], strlen(names[i])) == 0)
            return true;
    if (n < 4 || s[1] != '#')
        return false;
    size_t i = s[2] == 'x' || s[2] == 'X' ? 3 : 2, first = i;
    while (i < n && i < 10 &&
           ((s[i] >= '0' && s[i] <= '9') ||
            (first == 3 && ((s[i] | 32) >= 'a' && (s[i] | 32) <= 'f'))))
        i++;
    return i > first && i < n && s[i] == ';';
}

static unsigned odd_char(uint32_t c, uint32_t before)
{
    unsigned odd = 0;
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || (c >= 0x7F && c < 0xA0))
        odd |= 1u << ODD_CONTROL;
    if (c == 0xFFFD)
        odd |= 1u << ODD_REPLACEMENT;
    if (c == 0xFEFF)
        odd |= 1u << ODD_BOM;
    if (((before == 0xC2 || before == 0xC3) && c >= 0x80 && c <= 0xBF) ||
        (before == 0xE2 && (c == 0x20AC || c == 0x80)))
        odd |= 1u << ODD_MOJIBAKE;
    return odd;
}

static unsigned odd_chars(const char *s, size_t n)
{
    unsigned odd = 0;
    uint32_t before = 0;
    size_t unbroken = 0, same = 0;
    bool lf = false, crlf = false;
    for (size_t i = 0, k; i < n; i += k) {
        k = lf_utf8_len(s + i, n - i);
        uint32_t c = k ? decode(s + i, k) : 0xFFFFFFFF;
        k = k ? k : 1;
        odd |= c == 0xFFFFFFFF ? 1u << ODD_UTF8 : odd_char(c, before);
        if (c == '&' && !(odd >> ODD_ENTITIES & 1) && is_entity(s + i, n - i))
            odd |= 1u << ODD_ENTITIES;
        unbroken = c < 0x80 && !is_space(c) ? unbroken + 1 : 0;
        same = c == before && !is_space(c) ? same + 1 : 1;
        odd |= (unbroken >= UNBROKEN ? 1u << ODD_UNBROKEN : 0) |
               (same >= REPEATED ? 1u << ODD_REPEATED_CHARS : 0);
        lf = lf || (c == '\n' && before != '\r');
        crlf = crlf || (c == '\n' && before == '\r');
        if (before == '\r' && c != '\n')
            odd |= 1u << ODD_LINE_ENDS;
        before = c;
    }
    return odd | (lf && crlf ? 1u << ODD_LINE_ENDS : 0);
}

static bool blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_space((unsigned char)s[i]))
            return false;
    return true;
}

static int cmp_u64(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, 8);
    memcpy(&y, b, 8);
    return x < y ? -1 : x > y;
}

/* Lines that are not blank, and how many of them equal an earlier one. */
static bool repeats_lines(const char *s, size_t n, lf_buf *scratch)
{
    size_t lines = 0, again = 0;
    lf_buf_clear(scratch);
    for (size_t i = 0; i < n && lines < MAX_LINES;) {
        const char *nl = memchr(s + i, '\n', n - i);
        size_t len = nl ? (size_t)(nl - s) - i : n - i;
        if (!blank(s + i, len)) {
            uint64_t h = lf_datadoc_hash(s + i, len, 1);
            lf_buf_add(scratch, &h, sizeof h);
            lines++;
        }
        i += len + 1;
    }
    if (lines < MIN_LINES || scratch->failed)
        return false;
    qsort(scratch->data, lines, sizeof(uint64_t), cmp_u64);
    for (size_t i = 1; i < lines; i++)
        again += memcmp(scratch->data + 8 * i, scratch->data + 8 * (i - 1), 8) == 0;
    return (double)again >= REPEATED_PART * (double)lines;
}

unsigned lf_datadoc_odd(const char *text, size_t len, const char *raw, size_t raw_len,
                        lf_buf *scratch)
{
    unsigned odd = odd_chars(text, len);
    if (raw != text && lf_utf8_check(raw, raw_len) < raw_len)
        odd |= 1u << ODD_UTF8;
    if (lf_utf8_bom(raw, raw_len))
        odd |= 1u << ODD_BOM;
    if (blank(text, len))
        odd |= 1u << ODD_EMPTY;
    if (repeats_lines(text, len, scratch))
        odd |= 1u << ODD_REPEATED_LINES;
    return odd;
}
