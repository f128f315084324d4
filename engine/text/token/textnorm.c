/* SPDX-License-Identifier: Apache-2.0
 *
 * Text before tokenization: repair of invalid UTF-8 and Unicode normal forms. utf8proc knows the
 * decompositions, the combining classes and the composition of a pair; order and composition of the
 * text are ours, because utf8proc's insertion sort is quadratic in a run of combining marks, and
 * because characters that are younger than the tokenizers library's Unicode tables (LF_UC_NORM not
 * set) must stay as they are.
 */
#include "config.h"

#include <string.h>
#include <utf8proc.h>

#include "engine/base/utf8.h"
#include "engine/text/token/tokenizer_priv.h"
#include "engine/text/token/uniclass.h"

/* Bytes of the maximal invalid part at s: what Python's decoder replaces by one U+FFFD (Unicode 15,
 * section 3.9, "best practice": the longest prefix of a well-formed sequence, at least one
 * byte). */
static size_t invalid_part(const uint8_t *s, size_t n)
{
    if (s[0] < 0xC2 || s[0] > 0xF4)
        return 1;
    size_t want = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    unsigned lo = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    unsigned hi = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    if (n < 2 || s[1] < lo || s[1] > hi)
        return 1;
    size_t k = 2;
    while (k < want && k < n && (s[k] & 0xC0) == 0x80)
        k++;
    return k;
}

/* Offset of the first invalid byte; skips ASCII eight bytes at a time. */
static size_t valid_prefix(const uint8_t *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t w;
        while (n - i >= 8 && (memcpy(&w, s + i, 8), (w & 0x8080808080808080u) == 0))
            i += 8;
        if (i == n)
            break;
        size_t k = lf_utf8_len((const char *)s + i, n - i);
        if (k == 0)
            break;
        i += k;
    }
    return i;
}

int lf_text_repair(lf_bytes *text, lf_buf *buf, bool strict, uint64_t *replaced, lf_err *err)
{
    const uint8_t *p = text->p;
    const size_t len = text->n;
    size_t good = valid_prefix(p, len);
    if (good == len)
        return 0;
    if (strict)
        return lf_fail(err, LF_EFORMAT, "byte %zu (0x%02x) is not valid UTF-8", good, p[good]);
    uint64_t count = 0;
    lf_buf_clear(buf);
    for (size_t i = 0;;) {
        lf_buf_add(buf, p + i, good);
        i += good;
        if (i == len)
            break;
        lf_buf_add(buf, "\xEF\xBF\xBD", 3);
        count++;
        i += invalid_part(p + i, len - i);
        good = valid_prefix(p + i, len - i);
    }
    int rc = lf_buf_check(buf, err);
    if (rc != 0)
        return rc;
    if (replaced)
        *replaced += count;
    *text = (lf_bytes){(const uint8_t *)buf->data, buf->len};
    return 0;
}

/* True when no normaliser of this form can change the text. */
static bool surely_normal(enum lf_norm form, const uint8_t *cls, const uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len;) {
        if (p[i] < 0x80) {
            i++;
            continue;
        }
        unsigned n;
        if (form != LF_NORM_NFC || !(cls[lf_utf8_get(p + i, &n)] & LF_UC_NFC))
            return false;
        i += n;
    }
    return true;
}

static inline unsigned ccc(const uint8_t *cls, int32_t c)
{
    return cls[c] & LF_UC_NORM ? (unsigned)utf8proc_get_property(c)->combining_class : 0;
}

/* Stable counting sort of n characters by combining class; tmp has room for n. */
static void sort_marks(const uint8_t *cls, int32_t *cp, size_t n, int32_t *tmp)
{
    size_t at[257] = {0};
    for (size_t i = 0; i < n; i++)
        at[ccc(cls, cp[i]) + 1]++;
    for (size_t c = 1; c < 257; c++)
        at[c] += at[c - 1];
    for (size_t i = 0; i < n; i++)
        tmp[at[ccc(cls, cp[i])]++] = cp[i];
    memcpy(cp, tmp, n * sizeof(*cp));
}

/* Sort each run of characters with a non-zero combining class. */
static void canonical_order(const uint8_t *cls, int32_t *cp, size_t n, int32_t *tmp)
{
    for (size_t i = 0; i < n;) {
        if (ccc(cls, cp[i]) == 0) {
            i++;
            continue;
        }
        size_t j = i;
        bool sorted = true;
        for (unsigned last = 0, c; j < n && (c = ccc(cls, cp[j])) != 0; j++) {
            sorted = sorted && c >= last;
            last = c;
        }
        if (!sorted)
            sort_marks(cls, cp + i, j - i, tmp);
        i = j;
    }
}

static int room(lf_norm_scratch *s, size_t n, lf_err *err)
{
    if (n <= s->cap)
        return 0;
    size_t cap = s->cap ? s->cap : 1024;
    while (cap < n)
        cap *= 2;
    int rc = lf_realloc(&s->cp, cap, sizeof(*s->cp), err);
    if (rc == 0)
        s->cap = cap;
    return rc;
}

/* Decompose text into scratch->cp; returns the number of code points. The longest decomposition has
 * 18. */
static int64_t decompose(lf_norm_scratch *s, const uint8_t *cls, const uint8_t *text, size_t len,
                         int options, lf_err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        unsigned k;
        int32_t c = (int32_t)lf_utf8_get(text + i, &k);
        i += k;
        if (room(s, n + 64, err) != 0)
            return LF_ENOMEM;
        if (!(cls[c] & LF_UC_NORM)) {
            s->cp[n++] = c;
            continue;
        }
        int boundary = 0;
        utf8proc_ssize_t m =
            utf8proc_decompose_char(c, s->cp + n, 64, (utf8proc_option_t)options, &boundary);
        if (m < 0 || m > 64)
            return lf_fail(err, LF_EFORMAT, "U+%04X cannot be decomposed: %s", (unsigned)c,
                           m < 0 ? utf8proc_errmsg(m) : "too long");
        n += (size_t)m;
    }
    return (int64_t)n;
}

/* The primary composite of a and b, -1 when there is none that the library knows. */
static int32_t compose_pair(const uint8_t *cls, int32_t a, int32_t b)
{
    int32_t pair[2] = {a, b};
    if (cls[b] & LF_UC_NFC) /* never the second half */
        return -1;
    if (utf8proc_normalize_utf32(pair, 2, UTF8PROC_STABLE | UTF8PROC_COMPOSE) != 1)
        return -1;
    return cls[pair[0]] & LF_UC_NORM ? pair[0] : -1;
}

/* Canonical composition in place (Unicode 15, section 3.11): a character joins the last starter
 * unless one between them has the same or a higher combining class. Returns the new length. */
static size_t compose(const uint8_t *cls, int32_t *cp, size_t n)
{
    size_t k = 0, starter = SIZE_MAX;
    unsigned last = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned c = ccc(cls, cp[i]);
        if (starter != SIZE_MAX && (starter + 1 == k || last < c)) {
            int32_t both = compose_pair(cls, cp[starter], cp[i]);
            if (both >= 0) {
                cp[starter] = both;
                continue;
            }
        }
        if (c == 0)
            starter = k;
        last = c;
        cp[k++] = cp[i];
    }
    return k;
}

int lf_text_normalize(lf_bytes *text, lf_buf *buf, lf_norm_scratch *scratch, enum lf_norm form,
                      const uint8_t *cls, lf_err *err)
{
    if (surely_normal(form, cls, text->p, text->n))
        return 0;
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    if (form == LF_NORM_NFKC || form == LF_NORM_NFKD)
        options |= UTF8PROC_COMPAT;
    int64_t got = decompose(scratch, cls, text->p, text->n, options, err);
    if (got < 0)
        return (int)got;
    size_t n = (size_t)got;
    int rc = room(scratch, 2 * n, err);
    if (rc != 0)
        return rc;
    canonical_order(cls, scratch->cp, n, scratch->cp + n);
    if (form == LF_NORM_NFC || form == LF_NORM_NFKC)
        n = compose(cls, scratch->cp, n);
    lf_buf_clear(buf);
    for (size_t i = 0; i < n; i++) {
        utf8proc_uint8_t b[4];
        lf_buf_add(buf, b, (size_t)utf8proc_encode_char(scratch->cp[i], b));
    }
    *text = (lf_bytes){(const uint8_t *)buf->data, buf->len};
    return lf_buf_check(buf, err);
}
