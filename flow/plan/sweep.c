/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of sweeps as text, and children for people.
 */
#include "config.h"

#include "flow/plan/sweep.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/str.h"

#define BLANKS " \t"

/* One quoted value behind its first quote; *p is left behind the last one. */
static int read_quoted(lf_buf *out, const char **p, lf_err *err)
{
    for (const char *c = *p; *c != '\0'; c++) {
        if (*c == '"') {
            *p = c + 1;
            return 0;
        }
        if (*c == '\\' && (c[1] == '"' || c[1] == '\\'))
            c++;
        lf_buf_addc(out, *c);
    }
    return lf_fail(err, LF_EINVAL, "the quote before \"%.40s\" is not closed", *p);
}

/* "1..9" and "1..9..2", to their numbers. *is: it was one. */
static int add_range(lf_texts *out, bool *is, const char *text, lf_err *err)
{
    char from[32], to[32], by[32] = "1", one[32];
    const char *dots = strstr(text, ".."), *more = dots != NULL ? strstr(dots + 2, "..") : NULL;
    int64_t a, b, step;
    *is = false;
    if (dots == NULL || strlen(text) >= sizeof from)
        return 0;
    snprintf(from, sizeof from, "%.*s", (int)(dots - text), text);
    snprintf(to, sizeof to, "%.*s", more != NULL ? (int)(more - dots - 2) : 31, dots + 2);
    if (more != NULL)
        snprintf(by, sizeof by, "%s", more + 2);
    if (lf_parse_i64(&a, from, NULL) < 0 || lf_parse_i64(&b, to, NULL) < 0 ||
        lf_parse_i64(&step, by, NULL) < 0)
        return 0;
    if (step < 1 || b < a || (b - a) / step >= LF_SWEEP_MOST)
        return lf_fail(err, LF_EINVAL,
                       "\"%s\": a range goes up in steps of 1 or more, in at most %d values", text,
                       LF_SWEEP_MOST);
    *is = true;
    int rc = 0;
    for (int64_t v = a; rc == 0 && v <= b; v += step) {
        snprintf(one, sizeof one, "%lld", (long long)v);
        rc = lf_texts_add(out, one, err);
    }
    return rc;
}

/* The value at p up to its comma or line break, which *p is left at. */
static int read_value(lf_texts *out, bool *quoted, const char **p, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    bool range = false, in_quotes = **p == '"';
    int rc = 0;
    if (in_quotes) {
        (*p)++;
        rc = read_quoted(&b, p, err);
        *p += strspn(*p, BLANKS);
        if (rc == 0 && strchr(",\n", **p) == NULL)
            rc = lf_fail(err, LF_EINVAL,
                         "\"%.40s\" stands behind a quoted value; a comma is missing", *p);
    } else {
        size_t n = strcspn(*p, ",\n");
        const char *end = *p + n;
        while (n > 0 && strchr(BLANKS, (*p)[n - 1]) != NULL)
            n--;
        lf_buf_add(&b, *p, n);
        *p = end;
        *quoted = false;
        if (n == 0)
            rc = lf_fail(err, LF_EINVAL, "a value is empty; write \"\" for an empty text");
    }
    if (rc == 0)
        rc = lf_buf_check(&b, err);
    if (rc == 0 && !in_quotes)
        rc = add_range(out, &range, b.data, err);
    if (rc == 0 && !range)
        rc = lf_texts_add(out, b.data, err);
    lf_buf_fini(&b);
    return rc;
}

int lf_sweep_values(lf_texts *out, bool *quoted, const char *text, lf_err *err)
{
    lf_texts t = {.given = true};
    const char *p = text;
    int rc = 0;
    bool all = true;
    for (;;) {
        p += strspn(p, BLANKS);
        rc = read_value(&t, &all, &p, err);
        if (rc < 0 || *p == '\0')
            break;
        /* A comma at the end of a line, and the line break behind it, are one border. */
        const bool comma = *p++ == ',';
        p += strspn(p, BLANKS);
        if (comma && *p == '\n')
            p++;
    }
    if (rc < 0) {
        lf_texts_fini(&t);
        return rc;
    }
    *out = t;
    *quoted = all;
    return 0;
}

const lf_sweep_child *lf_sweep_find(const lf_sweep *s, int64_t number)
{
    for (size_t i = 0; i < s->children.n; i++)
        if (s->children.v[i].number.v == number)
            return &s->children.v[i];
    return NULL;
}

void lf_sweep_line(lf_buf *out, const lf_sweep_child *child)
{
    for (size_t i = 0; i < child->settings.n; i++)
        lf_buf_addf(out, "%s%s = %s", i > 0 ? ", " : "", child->settings.v[i].name,
                    child->settings.v[i].value);
}
