/* SPDX-License-Identifier: Apache-2.0
 *
 * Template text to tokens, with Jinja's rules for white space: a newline after %} and #} goes away
 * (trim_blocks), so do blanks before {% and {# at the start of a line (lstrip_blocks); "-" next to
 * a delimiter takes all white space, "+" none. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/utf8.h"
#include "engine/text/jinja/priv.h"

/* ---- interned names ---- */

struct lf_jj_names {
    const char **v;
    size_t n, cap;
};

static size_t name_hash(const char *s, size_t len)
{
    uint64_t h = 1469598103934665603ull;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)s[i]) * 1099511628211ull;
    return (size_t)h;
}

static const char **name_slot(const struct lf_jj_names *t, const char *s, size_t len)
{
    size_t i = name_hash(s, len) & (t->cap - 1);
    while (t->v[i] && (strlen(t->v[i]) != len || memcmp(t->v[i], s, len) != 0))
        i = (i + 1) & (t->cap - 1);
    return &t->v[i];
}

static int grow_names(lf_jinja *t, lf_err *err)
{
    struct lf_jj_names *old = t->names, *new = lf_arena_alloc(t->arena, 1, sizeof(*new), err);
    if (!new)
        return LF_ENOMEM;
    new->cap = old ? old->cap * 2 : 128;
    new->v = lf_arena_alloc(t->arena, new->cap, sizeof(*new->v), err);
    if (!new->v)
        return LF_ENOMEM;
    for (size_t i = 0; old && i < old->cap; i++)
        if (old->v[i])
            *name_slot(new, old->v[i], strlen(old->v[i])) = old->v[i];
    new->n = old ? old->n : 0;
    t->names = new;
    return 0;
}

const char *lf_jj_intern(lf_jinja *t, const char *s, size_t len, lf_err *err)
{
    if ((!t->names || t->names->n * 2 >= t->names->cap) && grow_names(t, err))
        return NULL;
    const char **slot = name_slot(t->names, s, len);
    if (!*slot) {
        char *copy = lf_arena_alloc(t->arena, len + 1, 1, err);
        if (!copy)
            return NULL;
        memcpy(copy, s, len);
        *slot = copy;
        t->names->n++;
    }
    return *slot;
}

const char *lf_jj_interned(const lf_jinja *t, const char *s)
{
    return t->names ? *name_slot(t->names, s, strlen(s)) : NULL;
}

/* ---- the lexer ---- */

struct lexer {
    lf_jinja *t;
    const char *s; /* newlines are \n, the last one is gone */
    size_t n, at;
    size_t seen; /* up to where line and col are known */
    int line, col;
    bool line_starting; /* the last match ended a line */
    int depth;          /* open brackets inside a tag */
    lf_jj_tokens *out;
    lf_err *err;
};

static void locate(struct lexer *l, size_t at, int *line, int *col)
{
    for (; l->seen < at; l->seen++) {
        if (l->s[l->seen] == '\n') {
            l->line++;
            l->col = 1;
        } else if (((unsigned char)l->s[l->seen] & 0xC0) != 0x80) {
            l->col++;
        }
    }
    *line = l->line;
    *col = l->col;
}

static int lex_fail(struct lexer *l, size_t at, const char *text)
{
    int line, col;
    locate(l, at, &line, &col);
    return lf_jj_fail_at(l->t, line, col, LF_EFORMAT, l->err, "%s", text);
}

static lf_jj_token *emit(struct lexer *l, enum lf_jj_tok type, size_t at)
{
    if (lf_grow(&l->out->v, &l->out->cap, l->out->n, sizeof(*l->out->v), l->err))
        return NULL;
    lf_jj_token *k = &l->out->v[l->out->n++];
    memset(k, 0, sizeof(*k));
    k->type = type;
    locate(l, at, &k->line, &k->col);
    return k;
}

static bool ascii_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool starts(const struct lexer *l, size_t at, const char *what)
{
    size_t n = strlen(what);
    return l->n - at >= n && memcmp(l->s + at, what, n) == 0;
}

/* White space after a tag that ended at `at`: all of it after '-', one newline where blocks are
 * trimmed. */
static size_t after_tag(const struct lexer *l, size_t at, char sign, bool trim)
{
    if (sign == '-')
        while (at < l->n && ascii_space(l->s[at]))
            at++;
    else if (trim && sign != '+' && at < l->n && l->s[at] == '\n')
        at++;
    return at;
}

/* Text [from, to) that stands before a tag whose sign is `sign`; strip: blanks at the line's start
 * go. */
static int data_before(struct lexer *l, size_t from, size_t to, char sign, bool strip)
{
    if (sign == '-') {
        while (to > from && ascii_space(l->s[to - 1]))
            to--;
    } else if (strip && sign != '+') {
        size_t line = to, blank;
        while (line > from && l->s[line - 1] != '\n')
            line--;
        for (blank = line; blank < to && ascii_space(l->s[blank]); blank++) {
        }
        if (blank == to && (line > from || l->line_starting))
            to = line;
    }
    if (to == from)
        return 0;
    lf_jj_token *k = emit(l, LF_JJ_T_DATA, from);
    if (!k)
        return LF_ENOMEM;
    k->s = l->s + from;
    k->len = to - from;
    return 0;
}

static void ended_at(struct lexer *l, size_t at)
{
    l->at = at;
    l->line_starting = at > 0 && l->s[at - 1] == '\n';
}

static int skip_comment(struct lexer *l, size_t begin)
{
    for (size_t i = l->at; i + 1 < l->n; i++)
        if (l->s[i] == '#' && l->s[i + 1] == '}') {
            char sign = i > l->at && (l->s[i - 1] == '-' || l->s[i - 1] == '+') ? l->s[i - 1] : 0;
            ended_at(l, after_tag(l, i + 2, sign, true));
            return 0;
        }
    return lex_fail(l, begin, "this comment has no #}");
}

/* After "{%", is it "raw %}"? Gives the offset of the text behind it, or 0. */
static size_t raw_tag(const struct lexer *l, size_t at, const char *word, char *sign)
{
    while (at < l->n && ascii_space(l->s[at]))
        at++;
    if (!starts(l, at, word))
        return 0;
    at += strlen(word);
    while (at < l->n && ascii_space(l->s[at]))
        at++;
    *sign = at < l->n && (l->s[at] == '-' || l->s[at] == '+') ? l->s[at++] : 0;
    return starts(l, at, "%}") ? at + 2 : 0;
}

static int lex_raw(struct lexer *l, size_t begin, size_t text, char sign)
{
    size_t from = after_tag(l, text, sign, false);
    if (from == l->n) { /* nothing to be raw: as Jinja2 has it */
        ended_at(l, from);
        return 0;
    }
    for (size_t i = from; i + 1 < l->n; i++) {
        if (!starts(l, i, "{%"))
            continue;
        size_t at = i + 2;
        char before = at < l->n && (l->s[at] == '-' || l->s[at] == '+') ? l->s[at++] : 0, after;
        size_t end = raw_tag(l, at, "endraw", &after);
        if (!end)
            continue;
        l->line_starting = from > 0 && l->s[from - 1] == '\n';
        int rc = data_before(l, from, i, before, true);
        ended_at(l, after_tag(l, end, after, true));
        return rc;
    }
    return lex_fail(l, begin, "raw without endraw");
}

/* ---- inside a tag ---- */

static bool name_start(unsigned char c)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static int lex_name(struct lexer *l)
{
    size_t from = l->at;
    while (l->at < l->n && (name_start((unsigned char)l->s[l->at]) || digit(l->s[l->at])))
        l->at++;
    lf_jj_token *k = emit(l, LF_JJ_T_NAME, from);
    if (!k)
        return LF_ENOMEM;
    k->s = lf_jj_intern(l->t, l->s + from, l->at - from, l->err);
    k->len = l->at - from;
    return k->s ? 0 : LF_ENOMEM;
}

static int lex_number(struct lexer *l)
{
    size_t from = l->at, n = 0;
    char text[64];
    bool real = false;
    for (; l->at < l->n && n < sizeof(text) - 1; l->at++) {
        char c = l->s[l->at], next = l->at + 1 < l->n ? l->s[l->at + 1] : 0;
        if (c == '.' && (real || !digit(next)))
            break;
        bool exponent =
            (c == 'e' || c == 'E') && (digit(next) || ((next == '+' || next == '-') &&
                                                       l->at + 2 < l->n && digit(l->s[l->at + 2])));
        bool sign = (c == '+' || c == '-') && n > 0 && (text[n - 1] == 'e' || text[n - 1] == 'E');
        if (!digit(c) && c != '.' && !exponent && !sign && !(c == '_' && digit(next)))
            break;
        real = real || c == '.' || exponent;
        if (c != '_')
            text[n++] = c;
    }
    text[n] = 0;
    if (l->at < l->n && name_start((unsigned char)l->s[l->at]))
        return lex_fail(l, from, "a number like this is not supported");
    lf_jj_token *k = emit(l, real ? LF_JJ_T_FLOAT : LF_JJ_T_INT, from);
    if (!k)
        return LF_ENOMEM;
    errno = 0;
    if (real)
        k->f = strtod(text, NULL);
    else
        k->i = strtoll(text, NULL, 10);
    return errno == ERANGE ? lex_fail(l, from, "this number is too large") : 0;
}

static int hex(char c)
{
    return digit(c)               ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static void add_char(lf_buf *b, uint32_t c)
{
    char u[4];
    lf_buf_add(b, u, lf_utf8_put(u, c));
}

/* One escape, l->at behind its backslash. Python's, but for \N{...} and octal numbers. */
static int lex_escape(struct lexer *l, lf_buf *b)
{
    static const char from[] = "\\'\"abfnrtv\n", to[] = "\\'\"\a\b\f\n\r\t\v";
    size_t begin = l->at - 1;
    char c = l->s[l->at++];
    const char *p = strchr(from, c);
    if (p && c) {
        if (c != '\n') /* a line goes on */
            lf_buf_addc(b, to[p - from]);
        return 0;
    }
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
        if (digit(c) || c == 'N')
            return lex_fail(l, begin, "an escape like this is not supported");
        lf_buf_addc(b, '\\'); /* as Python keeps an escape it does not know */
        lf_buf_addc(b, c);
        return 0;
    }
    uint32_t value = 0;
    for (int i = 0; i < digits; i++, l->at++) {
        int h = l->at < l->n ? hex(l->s[l->at]) : -1;
        if (h < 0)
            return lex_fail(l, begin, "this escape is cut short");
        value = value << 4 | (uint32_t)h;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
        return lex_fail(l, begin, "this escape is no character");
    add_char(b, value);
    return 0;
}

static int lex_string(struct lexer *l)
{
    size_t from = l->at;
    char quote = l->s[l->at++];
    lf_buf b;
    int rc = 0;
    lf_buf_init(&b);
    while (rc == 0 && l->at < l->n && l->s[l->at] != quote) {
        if (l->s[l->at] == '\\' && l->at + 1 < l->n) {
            l->at++;
            rc = lex_escape(l, &b);
        } else {
            lf_buf_addc(&b, l->s[l->at++]);
        }
    }
    if (rc == 0 && l->at == l->n)
        rc = lex_fail(l, from, "this string has no end");
    if (rc == 0)
        rc = lf_buf_check(&b, l->err);
    lf_jj_token *k = rc == 0 ? emit(l, LF_JJ_T_STR, from) : NULL;
    char *copy = k ? lf_arena_alloc(l->t->arena, b.len + 1, 1, l->err) : NULL;
    if (copy) {
        memcpy(copy, b.data, b.len);
        k->s = copy;
        k->len = b.len;
        l->at++;
    } else if (rc == 0) {
        rc = LF_ENOMEM;
    }
    lf_buf_fini(&b);
    return rc;
}

static int lex_op(struct lexer *l)
{
    static const char *const ops[] = {"//", "**", "==", "!=", "<=", ">=", "+", "-", "*",
                                      "/",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                      "<",  ">",  "=",  ".",  ":",  "|",  ","};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (!starts(l, l->at, ops[i]))
            continue;
        lf_jj_token *k = emit(l, LF_JJ_T_OP, l->at);
        if (!k)
            return LF_ENOMEM;
        k->s = ops[i];
        k->len = strlen(ops[i]);
        l->at += k->len;
        l->depth += strchr("[({", *ops[i]) ? 1 : strchr("])}", *ops[i]) ? -1 : 0;
        return 0;
    }
    return lex_fail(l, l->at, "this character has no meaning here");
}

/* Does the tag end here? *end is the offset behind it with the white space that it takes. */
static bool tag_ends(const struct lexer *l, bool block, size_t *end)
{
    const char *close = block ? "%}" : "}}";
    char sign = l->s[l->at];
    if (l->depth > 0)
        return false;
    if ((sign == '-' || (sign == '+' && block)) && starts(l, l->at + 1, close)) {
        *end = after_tag(l, l->at + 3, sign, block);
        return true;
    }
    if (!starts(l, l->at, close))
        return false;
    *end = after_tag(l, l->at + 2, 0, block);
    return true;
}

static int lex_tag(struct lexer *l, bool block, size_t begin)
{
    if (!emit(l, block ? LF_JJ_T_BLOCK_BEGIN : LF_JJ_T_VAR_BEGIN, begin))
        return LF_ENOMEM;
    l->depth = 0;
    for (;;) {
        size_t end;
        int rc;
        while (l->at < l->n && ascii_space(l->s[l->at]))
            l->at++;
        if (l->at >= l->n)
            return lex_fail(l, begin, block ? "this tag has no %}" : "this expression has no }}");
        char c = l->s[l->at];
        if (tag_ends(l, block, &end)) {
            bool ok = emit(l, block ? LF_JJ_T_BLOCK_END : LF_JJ_T_VAR_END, l->at) != NULL;
            ended_at(l, end);
            return ok ? 0 : LF_ENOMEM;
        }
        if (name_start((unsigned char)c))
            rc = lex_name(l);
        else if (digit(c))
            rc = lex_number(l);
        else if (c == '"' || c == '\'')
            rc = lex_string(l);
        else
            rc = lex_op(l);
        if (rc < 0)
            return rc;
    }
}

/* ---- the whole text ---- */

static size_t next_open(const struct lexer *l)
{
    for (size_t i = l->at; i + 1 < l->n; i++)
        if (l->s[i] == '{' && (l->s[i + 1] == '{' || l->s[i + 1] == '%' || l->s[i + 1] == '#'))
            return i;
    return l->n;
}

static int lex_next(struct lexer *l)
{
    size_t open = next_open(l), from = l->at;
    if (open == l->n) {
        l->at = l->n;
        return data_before(l, from, l->n, 0, false);
    }
    char what = l->s[open + 1], sign = 0;
    size_t at = open + 2;
    if (at < l->n && (l->s[at] == '-' || l->s[at] == '+'))
        sign = l->s[at++];
    char raw_sign = 0;
    size_t raw = what == '%' ? raw_tag(l, at, "raw", &raw_sign) : 0;
    int rc = data_before(l, from, open, sign, what != '{');
    if (rc < 0)
        return rc;
    l->at = at;
    if (raw)
        return lex_raw(l, open, raw, raw_sign);
    return what == '#' ? skip_comment(l, open) : lex_tag(l, what == '%', open);
}

/* Line ends become \n; a single one at the end of the source is dropped (keep_trailing_newline is
 * off). */
static char *normal_lines(lf_jinja *t, const char *s, size_t *n, lf_err *err)
{
    char *out = lf_arena_alloc(t->arena, *n + 1, 1, err);
    size_t k = 0;
    for (size_t i = 0; out && i < *n; i++) {
        if (s[i] == '\r' && i + 1 < *n && s[i + 1] == '\n')
            continue;
        out[k++] = s[i] == '\r' ? '\n' : s[i];
    }
    if (k > 0 && out[k - 1] == '\n')
        k--;
    *n = k;
    return out;
}

int lf_jj_lex(lf_jinja *t, const char *source, size_t len, lf_jj_tokens *out, lf_err *err)
{
    if (len > LF_JINJA_MAX_SOURCE)
        return lf_fail(err, LF_EFORMAT, "%s: a template of %zu bytes, at most %zu are read",
                       t->name, len, LF_JINJA_MAX_SOURCE);
    size_t bad = lf_utf8_check(source, len);
    if (bad < len)
        return lf_fail(err, LF_EFORMAT, "%s: byte %zu is not UTF-8", t->name, bad);
    struct lexer l = {
        .t = t, .n = len, .line = 1, .col = 1, .line_starting = true, .out = out, .err = err};
    l.s = normal_lines(t, source, &l.n, err);
    if (!l.s)
        return LF_ENOMEM;
    while (l.at < l.n) {
        int rc = lex_next(&l);
        if (rc < 0)
            return rc;
    }
    return emit(&l, LF_JJ_T_EOF, l.n) ? 0 : LF_ENOMEM;
}
