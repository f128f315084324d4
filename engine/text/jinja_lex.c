/* SPDX-License-Identifier: Apache-2.0
 *
 * A template into tokens. Between them, white space goes as trim_blocks and lstrip_blocks say: a newline after a
 * statement or comment is dropped, and so are blanks before one that begins its line; "-" at a bracket drops all white
 * space on its side,
 * "+" keeps it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/jinja_priv.h"

int lf_jinja_fail(const lf_jinja *t, size_t at, lf_err *err, int rc, const char *fmt, ...)
{
    char what[700];
    size_t line = 1, col = 1;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    for (size_t i = 0; i < at && i < t->len; i++) {
        line += t->text[i] == '\n';
        col = t->text[i] == '\n' ? 1 : col + 1;
    }
    return lf_fail(err, rc, "%s:%zu:%zu: %s", t->name, line, col, what);
}

struct lexer {
    lf_jinja *t;
    const char *s;
    size_t n, i;
    struct jtok *v;
    size_t count, cap;
    bool drop_newline, drop_space; /* of the text that follows a bracket */
    lf_err *err;
};

static int add(struct lexer *x, struct jtok tok)
{
    int rc = lf_grow(&x->v, &x->cap, x->count, sizeof *x->v, x->err);
    if (rc == 0)
        x->v[x->count++] = tok;
    return rc;
}

static bool space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The bracket at i: '{', '%' or '#', or 0. */
static char bracket(const struct lexer *x, size_t i)
{
    if (i + 1 < x->n && x->s[i] == '{' && (x->s[i + 1] == '{' || x->s[i + 1] == '%' || x->s[i + 1] == '#'))
        return x->s[i + 1];
    return 0;
}

/* Text up to the next bracket, with the white space that the brackets take away. */
static int lex_text(struct lexer *x)
{
    size_t b = x->i, e;
    while (x->i < x->n && !bracket(x, x->i))
        x->i++;
    e = x->i;
    if (x->drop_space)
        while (b < e && space(x->s[b]))
            b++;
    else if (x->drop_newline && b < e && x->s[b] == '\n')
        b++;
    char kind = bracket(x, x->i), sign = kind && x->i + 2 < x->n ? x->s[x->i + 2] : 0;
    if (sign == '-') {
        while (e > b && space(x->s[e - 1]))
            e--;
    } else if (kind && kind != '{' && sign != '+') {
        size_t k = e;
        while (k > b && space(x->s[k - 1]) && x->s[k - 1] != '\n')
            k--;
        /* Only blanks since the beginning of the line, or of the template. */
        if (k == 0 || x->s[k - 1] == '\n')
            e = k;
    }
    x->drop_newline = x->drop_space = false;
    return e > b ? add(x, (struct jtok){.t = T_TEXT, .s = x->s + b, .n = e - b, .at = b}) : 0;
}

static int lex_string(struct lexer *x)
{
    size_t at = x->i, n = 0;
    char q = x->s[x->i++];
    size_t e = x->i;
    while (e < x->n && x->s[e] != q)
        e += x->s[e] == '\\' && e + 1 < x->n ? 2 : 1;
    char *s = lf_arena_alloc(x->t->arena, e - x->i + 2, 1, x->err);
    if (!s)
        return LF_ENOMEM;
    for (; x->i < x->n && x->s[x->i] != q; x->i++) {
        char c = x->s[x->i];
        if (c == '\\' && x->i + 1 < x->n) {
            static const char from[] = "nrt0abfv", to[] = "\n\r\t\0\a\b\f\v";
            c = x->s[++x->i];
            const char *p = strchr(from, c);
            if (c == 'x' || c == 'u' || c == 'U' || c == 'N')
                return lf_jinja_fail(x->t, x->i - 1, x->err, LF_EFORMAT, "\\%c in a literal is not supported", c);
            if (p && c)
                c = to[p - from];
            else if (c != q && c != '\\' && c != '\'' && c != '"')
                s[n++] = '\\';
        }
        s[n++] = c;
    }
    if (x->i >= x->n)
        return lf_jinja_fail(x->t, at, x->err, LF_EFORMAT, "a literal without an end");
    x->i++;
    return add(x, (struct jtok){.t = T_STR, .s = s, .n = n, .at = at});
}

static int lex_number(struct lexer *x)
{
    char b[64];
    size_t at = x->i, n = 0;
    bool real = false;
    while (x->i < x->n && n + 1 < sizeof b) {
        char c = x->s[x->i];
        bool digit = c >= '0' && c <= '9',
             point = c == '.' && !real && x->i + 1 < x->n && x->s[x->i + 1] >= '0' && x->s[x->i + 1] <= '9';
        if (!digit && !point)
            break;
        real = real || point;
        b[n++] = c;
        x->i++;
    }
    size_t e = x->i + (x->i + 1 < x->n && (x->s[x->i + 1] == '+' || x->s[x->i + 1] == '-'));
    bool power = x->i < x->n && (x->s[x->i] | 32) == 'e' && e + 1 < x->n && x->s[e + 1] >= '0' && x->s[e + 1] <= '9';
    while (power && n + 1 < sizeof b && (x->i <= e || (x->i < x->n && x->s[x->i] >= '0' && x->s[x->i] <= '9')))
        b[n++] = x->s[x->i++];
    real = real || power;
    b[n] = 0;
    struct jtok t = {.t = real ? T_FLOAT : T_INT, .s = x->s + at, .n = n, .at = at};
    if (real)
        t.f = strtod(b, NULL);
    else if (lf_parse_i64(&t.i, b, NULL) < 0)
        return lf_jinja_fail(x->t, at, x->err, LF_EFORMAT, "a number that does not fit in 64 bits");
    return add(x, t);
}

static bool name_char(char c, bool first)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (!first && c >= '0' && c <= '9');
}

static int lex_one(struct lexer *x)
{
    static const char *const two[] = {"==", "!=", "<=", ">=", "//", "**"};
    size_t at = x->i;
    char c = x->s[x->i];
    if (c == '\'' || c == '"')
        return lex_string(x);
    if (c >= '0' && c <= '9')
        return lex_number(x);
    if (name_char(c, true)) {
        while (x->i < x->n && name_char(x->s[x->i], false))
            x->i++;
        return add(x, (struct jtok){.t = T_NAME, .s = x->s + at, .n = x->i - at, .at = at});
    }
    for (size_t k = 0; k < 6; k++)
        if (x->i + 1 < x->n && memcmp(x->s + x->i, two[k], 2) == 0) {
            x->i += 2;
            return add(x, (struct jtok){.t = T_OP, .s = x->s + at, .n = 2, .at = at});
        }
    if (!strchr("+-*/%~()[]{}.,:|=<>", c) || !c)
        return lf_jinja_fail(x->t, at, x->err, LF_EFORMAT, "a character that means nothing here");
    x->i++;
    return add(x, (struct jtok){.t = T_OP, .s = x->s + at, .n = 1, .at = at});
}

/* From the bracket to the one that closes it. */
static int lex_block(struct lexer *x, char kind)
{
    size_t at = x->i;
    int rc, nested = 0;
    x->i += 2;
    if (x->i < x->n && (x->s[x->i] == '-' || x->s[x->i] == '+'))
        x->i++;
    rc = add(x, (struct jtok){.t = kind == '%' ? T_STMT : T_OUT, .at = at});
    while (rc == 0) {
        while (x->i < x->n && space(x->s[x->i]))
            x->i++;
        if (x->i >= x->n)
            return lf_jinja_fail(x->t, at, x->err, LF_EFORMAT, "a bracket that is not closed");
        char c = x->s[x->i], sign = c == '-' || c == '+' ? c : 0;
        size_t k = x->i + (sign != 0);
        if (nested == 0 && k + 1 < x->n && x->s[k] == (kind == '%' ? '%' : '}') && x->s[k + 1] == '}') {
            rc = add(x, (struct jtok){.t = kind == '%' ? T_STMT_END : T_OUT_END, .at = x->i});
            x->i = k + 2;
            x->drop_space = sign == '-';
            x->drop_newline = kind == '%' && sign != '+';
            return rc;
        }
        nested += (c == '{' || c == '(' || c == '[') - (c == '}' || c == ')' || c == ']');
        rc = lex_one(x);
    }
    return rc;
}

static int lex_comment(struct lexer *x)
{
    size_t at = x->i;
    for (x->i += 2; x->i + 1 < x->n; x->i++)
        if (x->s[x->i] == '#' && x->s[x->i + 1] == '}') {
            x->drop_space = x->s[x->i - 1] == '-' && x->i > at + 2;
            x->drop_newline = !(x->s[x->i - 1] == '+' && x->i > at + 2);
            x->i += 2;
            return 0;
        }
    return lf_jinja_fail(x->t, at, x->err, LF_EFORMAT, "a comment without an end");
}

int lf_jinja_lex(struct jtok **out, lf_jinja *t, lf_err *err)
{
    struct lexer x = {.t = t, .s = t->text, .n = t->len, .err = err};
    int rc = 0;
    if (x.n && x.s[x.n - 1] == '\n') /* keep_trailing_newline is off */
        x.n--;
    while (rc == 0 && x.i < x.n) {
        rc = lex_text(&x);
        char kind = bracket(&x, x.i);
        if (rc == 0 && kind)
            rc = kind == '#' ? lex_comment(&x) : lex_block(&x, kind);
    }
    if (rc == 0)
        rc = add(&x, (struct jtok){.t = T_END, .at = x.n});
    if (rc < 0)
        free(x.v);
    else
        *out = x.v;
    return rc;
}
