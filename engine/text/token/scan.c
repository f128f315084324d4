/* SPDX-License-Identifier: Apache-2.0
 *
 * The scanners of scan.h. Where an alternative of the pattern can match in one way only, it is a
 * loop; the two places where the regular expression backtracks, \s+(?!\S) and \s*[\r\n]+, are
 * worked out in white().
 */
#include "config.h"

#include "engine/text/token/scan.h"

#include <stdbool.h>
#include <string.h>

#include "engine/base/err.h"
#include "engine/text/token/uniclass.h"

enum lf_scan_kind lf_scan_find(const char *pattern)
{
    if (strcmp(pattern, LF_PATTERN_GPT2) == 0)
        return LF_SCAN_GPT2;
    if (strcmp(pattern, LF_PATTERN_LLAMA3) == 0)
        return LF_SCAN_LLAMA3;
    if (strcmp(pattern, LF_PATTERN_QWEN2) == 0)
        return LF_SCAN_QWEN2;
    return LF_SCAN_NONE;
}

/* First byte after the run of characters that have one of the flags in `want`. */
static const uint8_t *run_of(const uint8_t *cls, const uint8_t *p, const uint8_t *end,
                             unsigned want)
{
    for (;;) {
        while (p < end && *p < 0x80 && (cls[*p] & want))
            p++;
        if (p == end || *p < 0x80)
            return p;
        unsigned n;
        uint32_t c = lf_utf8_get(p, &n);
        if (!(cls[c] & want))
            return p;
        p += n;
    }
}

/* First byte after the run of [^\s\p{L}\p{N}]. */
static const uint8_t *run_other(const uint8_t *cls, const uint8_t *p, const uint8_t *end)
{
    while (p < end) {
        unsigned n;
        uint32_t c = lf_utf8_get(p, &n);
        if (cls[c] & (LF_UC_L | LF_UC_N | LF_UC_S))
            break;
        p += n;
    }
    return p;
}

/* Length of 's 't 'm 'd 're 've 'll at p ('), 0 for none. fold: case-insensitive as Unicode has it,
 * where U+017F (long
 * s) is an s too. */
static size_t contraction(const uint8_t *p, const uint8_t *end, bool fold)
{
    if (end - p < 2)
        return 0;
    unsigned lower = fold ? 0x20 : 0, a = p[1];
    if (fold && a == 0xC5 && end - p >= 3 && p[2] == 0xBF)
        return 3;
    if (a >= 0x80)
        return 0;
    a |= lower;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (end - p < 3 || p[2] >= 0x80)
        return 0;
    unsigned b = p[2] | lower;
    if (((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l'))
        return 3;
    return 0;
}

/* Match of white space at p: `\s*[\r\n]+` when newlines is set (greedy \s* gives back until a
 * newline can follow: the match ends after the run's last newline), then `\s+(?!\S)` (before text:
 * all but the last character), then `\s+`. */
static size_t white(const uint8_t *cls, const uint8_t *p, const uint8_t *end, bool newlines)
{
    const uint8_t *q = p, *newline = NULL;
    size_t chars = 0;
    while (q < end) {
        unsigned n;
        uint32_t c = lf_utf8_get(q, &n);
        if (!(cls[c] & LF_UC_S))
            break;
        q += n;
        chars++;
        if (c == '\n' || c == '\r')
            newline = q;
    }
    if (newlines && newline)
        return (size_t)(newline - p);
    if (q < end && chars > 1)
        q = lf_utf8_prev(q);
    return (size_t)(q - p);
}

static size_t next_gpt2(const uint8_t *cls, const uint8_t *p, const uint8_t *end)
{
    const uint8_t *q = p;
    if (*p == '\'') {
        size_t n = contraction(p, end, false);
        if (n)
            return n;
    }
    if (*p == ' ' && p + 1 < end)
        q = p + 1;
    unsigned n;
    unsigned f = cls[lf_utf8_get(q, &n)];
    if (f & LF_UC_L)
        return (size_t)(run_of(cls, q + n, end, LF_UC_L) - p);
    if (f & LF_UC_N)
        return (size_t)(run_of(cls, q + n, end, LF_UC_N) - p);
    if (!(f & LF_UC_S))
        return (size_t)(run_other(cls, q + n, end) - p);
    return white(cls, p, end, false);
}

static size_t next_llama(const uint8_t *cls, const uint8_t *p, const uint8_t *end, int max_digits)
{
    unsigned n, n2 = 0;
    uint32_t c = lf_utf8_get(p, &n);
    unsigned f = cls[c];
    if (f & LF_UC_L)
        return (size_t)(run_of(cls, p + n, end, LF_UC_L) - p);
    if (c == '\'') {
        size_t m = contraction(p, end, true);
        if (m)
            return m;
    }
    if (f & LF_UC_N) {
        const uint8_t *q = p + n;
        for (int k = 1; k < max_digits && q < end && (cls[lf_utf8_get(q, &n2)] & LF_UC_N); k++)
            q += n2;
        return (size_t)(q - p);
    }
    unsigned f2 = p + n < end ? cls[lf_utf8_get(p + n, &n2)] : 0;
    if (c != '\r' && c != '\n' && (f2 & LF_UC_L))
        return (size_t)(run_of(cls, p + n + n2, end, LF_UC_L) - p);
    if (!(f & LF_UC_S) || (c == ' ' && p + 1 < end && !(f2 & (LF_UC_L | LF_UC_N | LF_UC_S)))) {
        const uint8_t *q = run_other(cls, p + n, end);
        while (q < end && (*q == '\r' || *q == '\n'))
            q++;
        return (size_t)(q - p);
    }
    return white(cls, p, end, true);
}

size_t lf_scan_next(enum lf_scan_kind kind, const uint8_t *cls, const uint8_t *p,
                    const uint8_t *end)
{
    switch (kind) {
    case LF_SCAN_GPT2:
        return next_gpt2(cls, p, end);
    case LF_SCAN_LLAMA3:
        return next_llama(cls, p, end, 3);
    case LF_SCAN_QWEN2:
        return next_llama(cls, p, end, 1);
    case LF_SCAN_NONE:
        break;
    }
    LF_BUG("scan of a pattern without a scanner");
}
