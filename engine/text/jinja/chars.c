/* SPDX-License-Identifier: Apache-2.0
 *
 * Strings by characters, as Python sees them: index and length count characters; white space, case
 * and classes are Unicode's. */
#include <string.h>
#include <utf8proc.h>

#include "engine/base/utf8.h"
#include "engine/text/jinja/priv.h"

size_t lf_jj_char_len(const char *s, size_t n)
{
    size_t len = n ? lf_utf8_len(s, n) : 0;
    return len ? len : 1;
}

size_t lf_jj_chars(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i += lf_jj_char_len(s + i, n - i))
        count++;
    return count;
}

size_t lf_jj_char_at(const char *s, size_t n, size_t index)
{
    size_t i = 0;
    for (; index > 0 && i < n; index--)
        i += lf_jj_char_len(s + i, n - i);
    return i;
}

int32_t lf_jj_char(const char *s, size_t n, size_t *len)
{
    utf8proc_int32_t c;
    *len = lf_jj_char_len(s, n);
    return utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)*len, &c) > 0 ? c
                                                                                         : 0xFFFD;
}

/* str.isspace: bidirectional class WS, B or S, or category Zs. */
bool lf_jj_is_space(int32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
    return c == 0x85 || c == 0x2028 || c == 0x2029 || utf8proc_category(c) == UTF8PROC_CATEGORY_ZS;
}

static bool in_set(const char *set, size_t n, int32_t c)
{
    size_t len;
    if (n == SIZE_MAX)
        return lf_jj_is_space(c);
    for (size_t i = 0; i < n; i += len)
        if (lf_jj_char(set + i, n - i, &len) == c)
            return true;
    return false;
}

lf_jj_val lf_jj_strip(lf_jj_val s, const char *set, size_t set_n, int which)
{
    size_t a = 0, b = s.n, len;
    while ((which & 1) && a < b && in_set(set, set_n, lf_jj_char(s.u.s + a, b - a, &len)))
        a += len;
    while ((which & 2) && b > a) {
        size_t k = b - 1;
        while (k > a && ((unsigned char)s.u.s[k] & 0xC0) == 0x80)
            k--;
        if (!in_set(set, set_n, lf_jj_char(s.u.s + k, b - k, &len)))
            break;
        b = k;
    }
    s.u.s += a;
    s.n = b - a;
    return s;
}

static bool cased(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

static void add_char(lf_buf *b, int32_t c)
{
    utf8proc_uint8_t u[4];
    lf_buf_add(b, u, (size_t)utf8proc_encode_char(c, u));
}

#define SHARP_S  0xDF
#define DOTTED_I 0x130
#define SIGMA    0x3A3

/* Letters whose capital is several characters, but for the sharp s. */
static bool long_capital(int32_t c)
{
    return c == 0x149 || c == 0x1F0 || c == 0x390 || c == 0x3B0 || c == 0x587 ||
           (c >= 0x1E96 && c <= 0x1E9A) || (c >= 0x1F50 && c <= 0x1F56) ||
           (c >= 0x1F80 && c <= 0x1FFC) || (c >= 0xFB00 && c <= 0xFB17);
}

static void add_lower(lf_buf *b, int32_t c, bool inside, const char *next, size_t n)
{
    size_t len;
    if (c == DOTTED_I)
        lf_buf_adds(b, "i\xCC\x87");
    else if (c == SIGMA && inside && !(n && cased(lf_jj_char(next, n, &len))))
        add_char(b, 0x3C2); /* at the end of a word */
    else
        add_char(b, utf8proc_tolower(c));
}

lf_jj_val lf_jj_change_case(lf_jj_run *r, lf_jj_val s, enum lf_jj_case how)
{
    lf_buf b;
    size_t len;
    bool inside = false;
    lf_buf_init(&b);
    for (size_t i = 0; i < s.n; i += len) {
        int32_t c = lf_jj_char(s.u.s + i, s.n - i, &len);
        bool up = how == LF_JJ_UPPER || (how == LF_JJ_TITLE && !inside) ||
                  (how == LF_JJ_CAPITALIZE && i == 0);
        bool was = inside;
        inside = cased(c);
        if (up && long_capital(c) && r->rc == 0)
            r->rc = lf_fail(r->err, LF_ENOTSUP, "%s: the capital of U+%04X is not supported",
                            r->t->name, (unsigned)c);
        if (up && c == SHARP_S)
            lf_buf_adds(&b, how == LF_JJ_UPPER ? "SS" : "Ss");
        else if (up)
            add_char(&b, how == LF_JJ_UPPER ? utf8proc_toupper(c) : utf8proc_totitle(c));
        else
            add_lower(&b, c, was, s.u.s + i + len, s.n - i - len);
    }
    return lf_jj_str_take(r, &b);
}

bool lf_jj_find(const char *hay, size_t n, const char *needle, size_t m, size_t *at)
{
    if (m == 0) {
        *at = 0;
        return true;
    }
    for (size_t i = 0; i + m <= n; i++) {
        const char *p = memchr(hay + i, needle[0], n - m + 1 - i);
        if (!p)
            return false;
        i = (size_t)(p - hay);
        if (memcmp(p, needle, m) == 0) {
            *at = i;
            return true;
        }
    }
    return false;
}

lf_jj_val lf_jj_replace(lf_jj_run *r, lf_jj_val s, lf_jj_val from, lf_jj_val to, int64_t count)
{
    lf_buf b;
    size_t i = 0, at;
    lf_buf_init(&b);
    while (r->rc == 0 && count != 0 && lf_jj_find(s.u.s + i, s.n - i, from.u.s, from.n, &at)) {
        lf_buf_add(&b, s.u.s + i, at);
        lf_buf_add(&b, to.u.s, to.n);
        i += at + from.n;
        count--;
        if (from.n == 0) { /* between all characters */
            if (i >= s.n)
                break;
            size_t len = lf_jj_char_len(s.u.s + i, s.n - i);
            lf_buf_add(&b, s.u.s + i, len);
            i += len;
        }
        if (b.len > r->o.max_memory)
            lf_jj_alloc(r, b.len, 1);
    }
    lf_buf_add(&b, s.u.s + i, s.n - i);
    return lf_jj_str_take(r, &b);
}

lf_jj_val lf_jj_join(lf_jj_run *r, const lf_jj_node *at, lf_jj_val seq, lf_jj_val sep, bool convert)
{
    lf_buf b;
    lf_jj_val items = lf_jj_iter(r, at, seq);
    lf_buf_init(&b);
    for (size_t i = 0; r->rc == 0 && i < items.u.seq->n; i++) {
        lf_jj_val v = items.u.seq->v[i];
        if (!convert && v.t != LF_JJ_STR)
            lf_jj_fail(r, at, "join: element %zu is a %s, not a str", i, lf_jj_type_name(v));
        if (i > 0)
            lf_buf_add(&b, sep.u.s, sep.n);
        lf_jj_add_str(r, &b, v);
        if (b.len > r->o.max_memory)
            lf_jj_alloc(r, b.len, 1);
    }
    return lf_jj_str_take(r, &b);
}
