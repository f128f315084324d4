/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing byte strings, prefix and suffix tests, nearest-name search. Numbers and units are in
 * num.c.
 */
#include "engine/base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/utf8.h"

static char empty_text[1]; /* what data points at before the first add; never written: cap is 0 */

void lf_buf_init(lf_buf *b)
{
    *b = (lf_buf){.data = empty_text};
}

void lf_buf_fini(lf_buf *b)
{
    if (b->cap)
        free(b->data);
    lf_buf_init(b);
}

void lf_buf_clear(lf_buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->cap)
        b->data[0] = '\0';
}

static bool reserve(lf_buf *b, size_t more)
{
    size_t need, twice;
    if (b->failed)
        return false;
    if (!lf_size_add(&need, b->len, more) || !lf_size_add(&need, need, 1))
        goto fail;
    if (need <= b->cap)
        return true;
    if (lf_size_mul(&twice, b->cap, 2) && twice > need)
        need = twice;
    if (need < 64)
        need = 64;
    char *p = b->cap ? b->data : NULL;
    if (lf_realloc(&p, need, 1, NULL) < 0)
        goto fail;
    if (!b->cap)
        p[0] = '\0';
    b->data = p;
    b->cap = need;
    return true;
fail:
    b->failed = true;
    return false;
}

void lf_buf_add(lf_buf *b, const void *data, size_t len)
{
    if (!reserve(b, len))
        return;
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
}

void lf_buf_adds(lf_buf *b, const char *s)
{
    lf_buf_add(b, s, strlen(s));
}

void lf_buf_addc(lf_buf *b, char c)
{
    lf_buf_add(b, &c, 1);
}

void lf_buf_addf(lf_buf *b, const char *fmt, ...)
{
    va_list ap, ap2;
    va_start(ap, fmt);
    va_copy(ap2, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        b->failed = true;
    else if (reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap2);
        b->len += (size_t)n;
    }
    va_end(ap2);
}

void lf_buf_add_json(lf_buf *b, const char *s, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    lf_buf_addc(b, '"');
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)s[i];
        size_t n = lf_utf8_len(s + i, len - i);
        if (n == 0) {
            lf_buf_adds(b, "\xEF\xBF\xBD"); /* U+FFFD */
            i++;
            continue;
        }
        if (c == '"' || c == '\\') {
            lf_buf_addc(b, '\\');
            lf_buf_addc(b, (char)c);
        } else if (c == '\n' || c == '\t' || c == '\r') {
            lf_buf_adds(b, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r");
        } else if (c < 0x20 || c == 0x7f) {
            char u[] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
            lf_buf_add(b, u, sizeof u);
        } else {
            lf_buf_add(b, s + i, n);
        }
        i += n;
    }
    lf_buf_addc(b, '"');
}

void lf_buf_add_visible(lf_buf *b, const char *s, size_t len)
{
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)s[i];
        size_t n = lf_utf8_len(s + i, len - i);
        bool c1 = n == 2 && c == 0xC2 && (unsigned char)s[i + 1] < 0xA0;
        if (n == 0 || c1 || c == 0x7F || (c < 0x20 && c != '\n' && c != '\t'))
            lf_buf_addc(b, '?');
        else
            lf_buf_add(b, s + i, n);
        i += n ? n : 1;
    }
}

void lf_buf_add_shell(lf_buf *b, const char *s)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@%+";
    if (s[0] && s[strspn(s, plain)] == '\0') {
        lf_buf_adds(b, s);
        return;
    }
    lf_buf_addc(b, '\'');
    for (; *s; s++) {
        if (*s == '\'')
            lf_buf_adds(b, "'\\''");
        else
            lf_buf_addc(b, *s);
    }
    lf_buf_addc(b, '\'');
}

int lf_buf_check(const lf_buf *b, lf_err *err)
{
    return b->failed ? lf_fail(err, LF_ENOMEM, "no memory for a text of %zu bytes", b->len) : 0;
}

char *lf_buf_steal(lf_buf *b, lf_err *err)
{
    if (lf_buf_check(b, err) < 0)
        return NULL;
    char *p = b->cap ? b->data : lf_strdup("", err);
    if (p)
        lf_buf_init(b);
    return p;
}

/* Levenshtein distance with one row; names are short, so longer ones are not compared at all. */
enum { NEAREST_MAX = 64 };

static size_t edit_distance(const char *a, size_t na, const char *b, size_t nb)
{
    size_t row[NEAREST_MAX + 1];
    for (size_t j = 0; j <= nb; j++)
        row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t diag = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t best = diag + (a[i - 1] != b[j - 1]);
            diag = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[nb];
}

const char *lf_nearest(const char *s, const char *const *names, size_t n)
{
    size_t len = strlen(s), best = len / 3 + 2;
    const char *found = NULL;
    if (len > NEAREST_MAX)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t ln = strlen(names[i]);
        if (ln > NEAREST_MAX)
            continue;
        size_t d = edit_distance(s, len, names[i], ln);
        if (d < best) {
            best = d;
            found = names[i];
        }
    }
    return found;
}

bool lf_str_has_prefix(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool lf_str_has_suffix(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}
