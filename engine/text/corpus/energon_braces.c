/* SPDX-License-Identifier: Apache-2.0
 *
 * Names with braces. The first pair that stands for something is replaced by each of its texts in
 * turn, and the rest of the name is expanded behind it.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/text/corpus/energon_priv.h"

#define NAMES_MAX 1000000

struct braces {
    json_t *out;
    const char *path;
    lf_err *err;
    int depth;
};

static int expand(struct braces *b, const lf_buf *done, const char *rest, size_t n);

static int add(struct braces *b, const char *text, size_t n)
{
    if (json_array_size(b->out) >= NAMES_MAX)
        return lf_fail(b->err, LF_EFORMAT, "%s: its braces stand for more than %d names", b->path,
                       NAMES_MAX);
    return json_array_append_new(b->out, json_stringn(text, n)) == 0
               ? 0
               : lf_fail(b->err, LF_ENOMEM, "%s: no memory for names", b->path);
}

/* done + middle, and what the rest stands for. */
static int go_on(struct braces *b, const lf_buf *done, const char *middle, size_t n,
                 const char *rest, size_t n_rest)
{
    lf_buf text;
    lf_buf_init(&text);
    lf_buf_add(&text, done->data, done->len);
    lf_buf_add(&text, middle, n);
    int rc = lf_buf_check(&text, b->err);
    if (rc == 0)
        rc = expand(b, &text, rest, n_rest);
    lf_buf_fini(&text);
    return rc;
}

/* The closing brace of the one at p[0]; NULL: there is none. */
static const char *closing(const char *p, const char *end)
{
    int depth = 0;
    for (; p < end; p++) {
        depth += *p == '{';
        depth -= *p == '}';
        if (depth == 0)
            return p;
    }
    return NULL;
}

/* The end of the alternative that begins at p: a comma of its own, or end. */
static const char *alternative(const char *p, const char *end)
{
    for (int depth = 0; p < end; p++) {
        if (*p == ',' && depth == 0)
            return p;
        depth += *p == '{';
        depth -= *p == '}';
    }
    return end;
}

/* ---- ranges ---- */

/* A whole number of at most 18 digits between p and end; *padded: it begins with a zero. */
static bool number(const char *p, const char *end, long long *v, bool *padded)
{
    const bool minus = p < end && *p == '-';
    p += minus;
    if (p >= end || end - p > 18)
        return false;
    *padded = *p == '0' && end - p > 1;
    for (*v = 0; p < end; p++) {
        if (*p < '0' || *p > '9')
            return false;
        *v = *v * 10 + (*p - '0');
    }
    *v = minus ? -*v : *v;
    return true;
}

/* "from..to" or "from..to..step" between p and end, of numbers. */
static bool read_range(const char *p, const char *end, long long v[3], int *width)
{
    const char *dots = memmem(p, (size_t)(end - p), "..", 2);
    if (!dots)
        return false;
    const char *second = dots + 2, *more = memmem(second, (size_t)(end - second), "..", 2),
               *to = more ? more : end;
    bool pad[2], ignored;
    v[2] = 1;
    if (!number(p, dots, &v[0], &pad[0]) || !number(second, to, &v[1], &pad[1]) ||
        (more && !number(more + 2, end, &v[2], &ignored)))
        return false;
    const long n = dots - p > to - second ? dots - p : to - second;
    *width = pad[0] || pad[1] ? (int)n : 0;
    v[2] = llabs(v[2] ? v[2] : 1);
    return true;
}

static int put_range(struct braces *b, const lf_buf *done, const long long v[3], int width,
                     const char *rest, size_t n_rest)
{
    const bool down = v[1] < v[0];
    int rc = 0;
    for (long long i = v[0]; rc == 0 && (down ? i >= v[1] : i <= v[1]); i += down ? -v[2] : v[2]) {
        char text[40];
        const int n = snprintf(text, sizeof text, "%0*lld", width, i);
        rc = go_on(b, done, text, (size_t)n, rest, n_rest);
    }
    return rc;
}

/* ---- names ---- */

/* Each alternative of {a,b}, which may hold braces itself. */
static int put_list(struct braces *b, const lf_buf *done, const char *p, const char *close,
                    const char *end)
{
    int rc = 0;
    for (const char *from = p + 1, *to; rc == 0 && from <= close; from = to + 1) {
        struct braces inner = *b;
        json_t *v;
        size_t i;
        to = alternative(from, close);
        inner.out = json_array();
        lf_buf none;
        lf_buf_init(&none);
        rc = inner.out ? expand(&inner, &none, from, (size_t)(to - from))
                       : lf_fail(b->err, LF_ENOMEM, "%s: no memory for names", b->path);
        json_array_foreach(inner.out, i, v)
        {
            if (rc == 0)
                rc = go_on(b, done, json_string_value(v), json_string_length(v), close + 1,
                           (size_t)(end - close - 1));
        }
        json_decref(inner.out);
        lf_buf_fini(&none);
    }
    return rc;
}

static int expand_at(struct braces *b, const lf_buf *done, const char *rest, size_t n)
{
    const char *end = rest + n, *open = memchr(rest, '{', n);
    if (!open)
        return memchr(rest, '}', n)
                   ? lf_fail(b->err, LF_EFORMAT, "%s: a brace of \"%.200s\" has no other", b->path,
                             rest)
                   : go_on(b, done, rest, n, NULL, 0);
    const char *close = closing(open, end);
    long long range[3];
    int width = 0;
    if (!close || memchr(rest, '}', (size_t)(open - rest)))
        return lf_fail(b->err, LF_EFORMAT, "%s: a brace of \"%.200s\" has no other", b->path, rest);
    lf_buf before;
    lf_buf_init(&before);
    lf_buf_add(&before, done->data, done->len);
    lf_buf_add(&before, rest, (size_t)(open - rest));
    int rc = lf_buf_check(&before, b->err);
    if (rc == 0 && read_range(open + 1, close, range, &width))
        rc = put_range(b, &before, range, width, close + 1, (size_t)(end - close - 1));
    else if (rc == 0 && alternative(open + 1, close) < close)
        rc = put_list(b, &before, open, close, end);
    else if (rc == 0)
        rc = lf_fail(b->err, LF_EFORMAT,
                     "%s: the braces of \"%.200s\" hold neither a comma nor a range of numbers",
                     b->path, rest);
    lf_buf_fini(&before);
    return rc;
}

static int expand(struct braces *b, const lf_buf *done, const char *rest, size_t n)
{
    if (n == 0)
        return add(b, done->data, done->len);
    if (b->depth > 64)
        return lf_fail(b->err, LF_EFORMAT, "%s: braces nested too deep", b->path);
    b->depth++;
    int rc = expand_at(b, done, rest, n);
    b->depth--;
    return rc;
}

int lf_energon_braces(json_t *out, const char *text, const char *path, lf_err *err)
{
    struct braces b = {out, path, err, 0};
    lf_buf none;
    if (strchr(text, '\\'))
        return lf_fail(err, LF_EFORMAT, "%s: a backslash in \"%.200s\", which is not read", path,
                       text);
    lf_buf_init(&none);
    int rc = expand(&b, &none, text, strlen(text));
    lf_buf_fini(&none);
    return rc;
}
