/* SPDX-License-Identifier: Apache-2.0
 *
 * A pattern of another library as PCRE2 has to read it, one character at a time. What the dialects
 * mean alike is passed on; classes by name become the ranges of uniprop.h; a difference that is
 * known is translated or refused.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "engine/text/token/regex_priv.h"
#include "engine/text/token/uniprop.h"

/* White_Space and its complement as class contents. */
#define WS                                                                                         \
    "\\t-\\r\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"                   \
    "\\x{202f}\\x{205f}\\x{3000}"
#define NOT_WS                                                                                     \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}!-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"      \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"                 \
    "\\x{3001}-\\x{10ffff}"
/* Numbers that Oniguruma's \w has outside of brackets only. */
#define WORD_OUTSIDE "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define DEPTH_MAX    64

struct reader {
    lf_buf *out;
    const char *pattern, *p;
    unsigned how;
    int in_class; /* 1; 2 in a set inside of a set */
    size_t depth;
    bool fold[DEPTH_MAX + 1];   /* (?i) holds in the group */
    size_t open[DEPTH_MAX + 1]; /* where the group begins in out */
    size_t atom;                /* where what a quantifier repeats begins in out */
};

static int unclear(const struct reader *r, const char *what, lf_err *err)
{
    return lf_fail(err, LF_ENOTSUP,
                   "pattern \"%.200s\" uses %s, which this program cannot match exactly as the "
                   "tokenizers library does",
                   r->pattern, what);
}

static bool rust(const struct reader *r)
{
    return r->how & LF_REGEX_RUST;
}

/* ---- classes by name ---- */

/* Inside of brackets the ranges, else brackets around them; PCRE2's own class (name, NULL: it has
 * none) where it is sure to be the same. */
static int put_class(struct reader *r, const lf_uniprop *p, const char *name, bool not_,
                     lf_err *err)
{
    bool fold = r->fold[r->depth];
    if (fold && p->cased && (r->in_class || rust(r)))
        return unclear(r, "(?i) with a class of letters", err);
    bool own = p->stable && name && lf_regex_pcre2_classes() && !(r->how & LF_REGEX_TABLES);
    if (!r->in_class)
        lf_buf_adds(r->out, fold ? not_ ? "(?-i:[^" : "(?-i:[" : not_ ? "[^" : "[");
    if (own && !(r->in_class && not_)) {
        lf_buf_adds(r->out, name);
        lf_uniprop_write(r->out, p, LF_UNIPROP_YOUNG);
    } else {
        lf_uniprop_write(r->out, p, r->in_class && not_ ? LF_UNIPROP_REST : LF_UNIPROP_ALL);
    }
    if (!r->in_class)
        lf_buf_adds(r->out, fold ? "])" : "]");
    return 0;
}

/* \p{Name}, \p{^Name}, \P{Name}; r->p is at the p. */
static int property(struct reader *r, lf_err *err)
{
    const char *open = r->p + 1, *close = *open == '{' ? strchr(open, '}') : NULL;
    char what[96];
    lf_uniprop p;
    bool not_ = *r->p == 'P';
    const char *name = close ? open + 1 : open;
    size_t n = close ? (size_t)(close - name) : 1;
    if (!close && !(rust(r) && *open && strchr("LMNPSZC", *open)))
        return unclear(r, "\\p without {", err);
    if (close && *name == '^') {
        not_ = !not_;
        name++;
        n--;
    }
    snprintf(what, sizeof(what), "\\p{%.*s}", n < 64 ? (int)n : 64, name);
    if (!lf_uniprop_find(&p, name, n))
        return unclear(r, what, err);
    r->p = close ? close : open;
    /* PCRE2 knows one and two letters of categories in this case only. */
    bool letters =
        n <= 2 && name[0] >= 'A' && name[0] <= 'Z' && (n < 2 || (name[1] >= 'a' && name[1] <= 'z'));
    return put_class(r, &p, letters ? what : NULL, not_, err);
}

/* \d and \w, D and W for what is not. */
static int shorthand(struct reader *r, char c, lf_err *err)
{
    lf_uniprop p;
    bool digit = c == 'd' || c == 'D', not_ = c == 'D' || c == 'W';
    if (!digit && rust(r))
        return unclear(r, "\\w", err);
    (void)lf_uniprop_find(&p, digit ? "Nd" : "word", digit ? 2 : 4);
    if (digit || r->in_class)
        return put_class(r, &p, digit ? "\\p{Nd}" : NULL, not_, err);
    lf_buf_adds(r->out, not_ ? "(?-i:[^" WORD_OUTSIDE : "(?-i:[" WORD_OUTSIDE);
    lf_uniprop_write(r->out, &p, LF_UNIPROP_ALL);
    lf_buf_adds(r->out, "])");
    return 0;
}

/* \uXXXX is one character. */
static int code_unit(struct reader *r, lf_err *err)
{
    if (strspn(r->p + 1, "0123456789abcdefABCDEF") < 4)
        return unclear(r, "\\u without four hexadecimal digits", err);
    lf_buf_addf(r->out, "\\x{%.4s}", r->p + 1);
    r->p += 4;
    return 0;
}

/* \xHH and \x{H..}. Above 7f the first is a byte to Oniguruma, which is no character. */
static int hexadecimal(struct reader *r, lf_err *err)
{
    const char *close = r->p[1] == '{' ? strchr(r->p, '}') : NULL;
    if (!close && r->p[1] >= '8' && r->p[1] <= 'f' && !rust(r))
        return unclear(r, "a byte above \\x7f", err);
    size_t n = close ? (size_t)(close - r->p) : strspn(r->p + 1, "0123456789abcdefABCDEF");
    n = close || n < 2 ? n : 2;
    lf_buf_addc(r->out, '\\');
    lf_buf_add(r->out, r->p, n + 1);
    r->p += n;
    return 0;
}

/* r->p is at the character after the backslash. */
static int escape(struct reader *r, lf_err *err)
{
    char c = *r->p, what[3] = {'\\', c, 0};
    switch (c) {
    case 0:
        return lf_fail(err, LF_EFORMAT, "pattern \"%.200s\" ends with a backslash", r->pattern);
    case 's':
    case 'S':
        if (r->in_class)
            lf_buf_adds(r->out, c == 's' ? WS : NOT_WS);
        else
            lf_buf_adds(r->out, c == 's' ? "[" WS "]" : "[^" WS "]");
        return 0;
    case 'd':
    case 'D':
    case 'w':
    case 'W':
        return shorthand(r, c, err);
    case 'p':
    case 'P':
        return property(r, err);
    case 'u':
        return code_unit(r, err);
    case 'x':
        return hexadecimal(r, err);
    case 'v': /* PCRE2's is a class */
        lf_buf_adds(r->out, "\\x{b}");
        return 0;
    default:
        break;
    }
    if (strchr("bBhHRXKGQEkgyYNOVcCM", c))
        return unclear(r, what, err);
    size_t digits = strspn(r->p, "0123456789"); /* a number is one thing to repeat */
    digits = digits > 3 ? 3 : digits;
    lf_buf_addc(r->out, '\\');
    lf_buf_add(r->out, r->p, digits ? digits : 1);
    r->p += digits ? digits - 1 : 0;
    return 0;
}

/* ---- groups ---- */

/* The letters of (?i) and (?-i: at r->p: whether they set or clear it. *n: characters up to ) or :.
 */
static int options(const struct reader *r, bool *fold, size_t *n, lf_err *err)
{
    const char *q = r->p + 2;
    bool off = false;
    for (; *q && strchr("i-", *q); q++) {
        off = off || *q == '-';
        *fold = *q == 'i' ? !off : *fold;
    }
    *n = (size_t)(q - r->p);
    if (*q != ':' && *q != ')')
        return unclear(r, "an option other than (?i)", err);
    /* To Oniguruma a(?i)b|c is a(?i:b|c). */
    if (*q == ')' && r->p != r->pattern && !rust(r))
        return unclear(r, "(?i) behind the beginning", err);
    return 0;
}

static int open_group(struct reader *r, lf_err *err)
{
    bool fold = r->fold[r->depth];
    size_t n = 0;
    if (r->p[1] == '?' && r->p[2] && !strchr(":=!><#", r->p[2])) {
        int rc = options(r, &fold, &n, err);
        if (rc != 0)
            return rc;
    }
    if (n && r->p[n] == ')') {
        lf_buf_add(r->out, r->p, n + 1);
        r->fold[r->depth] = fold;
        r->p += n;
        return 0;
    }
    if (r->depth == DEPTH_MAX)
        return lf_fail(err, LF_EFORMAT,
                       "pattern \"%.200s\" has groups in groups, more than %d deep", r->pattern,
                       DEPTH_MAX);
    r->depth++;
    r->fold[r->depth] = fold;
    r->open[r->depth] = r->out->len;
    lf_buf_add(r->out, r->p, n ? n + 1 : 1);
    r->p += n;
    return 0;
}

static void close_group(struct reader *r)
{
    if (r->depth > 0)
        r->atom = r->open[r->depth--];
    lf_buf_addc(r->out, ')');
}

/* ---- quantifiers ---- */

/* Put what the quantifier at the end of out repeats, and the quantifier, into a group. */
static void wrap(struct reader *r)
{
    lf_buf tail;
    lf_buf_init(&tail);
    lf_buf_add(&tail, r->out->data + r->atom, r->out->len - r->atom);
    r->out->len = r->atom;
    lf_buf_adds(r->out, "(?:");
    lf_buf_add(r->out, tail.data, tail.len);
    lf_buf_addc(r->out, ')');
    r->out->failed = r->out->failed || tail.failed;
    lf_buf_fini(&tail);
}

/* At a '{'. To Oniguruma {,n} is {0,n}, and + behind an interval repeats it, as ? behind {n} does;
 * to Rust's library and PCRE2 they make it possessive and lazy. A brace that is no interval is
 * passed on. */
static int interval(struct reader *r, lf_err *err)
{
    size_t a = strspn(r->p + 1, "0123456789"), comma = r->p[1 + a] == ',';
    size_t b = comma ? strspn(r->p + 2 + a, "0123456789") : 0, n = 2 + a + comma + b;
    if (a + b == 0 || r->p[n - 1] != '}') {
        if (rust(r))
            return unclear(r, "a brace that is no repeat count", err);
        lf_buf_addc(r->out, '{');
        return 0;
    }
    if (a == 0 && rust(r))
        return unclear(r, "{,", err);
    lf_buf_adds(r->out, a ? "{" : "{0");
    lf_buf_add(r->out, r->p + 1, n - 1);
    r->p += n - 1;
    char next = r->p[1];
    if (!rust(r) && (next == '+' || next == '*' || next == '{' || (next == '?' && !comma)))
        wrap(r);
    return 0;
}

/* ---- the whole ---- */

static int open_class(struct reader *r, lf_err *err)
{
    r->atom = r->out->len;
    r->in_class = 1;
    lf_buf_addc(r->out, '[');
    if (r->p[1] == '^')
        lf_buf_addc(r->out, *++r->p);
    if (r->p[1] == ']') /* an empty class or a literal bracket, by dialect */
        return lf_fail(err, LF_ENOTSUP, "pattern \"%.200s\" has ']' first in a set; write \\]",
                       r->pattern);
    return 0;
}

/* A set inside of a set adds to it. One that is negated, && and [:names:] are not worked out. */
static int class_char(struct reader *r, lf_err *err)
{
    char c = *r->p, next = r->p[1];
    bool set = c == '[' && next != '^' && next != ':' && next != ']' && r->in_class == 1 &&
               r->p[-1] != '-';
    bool end = c == ']' && r->in_class == 2 && next != '-';
    if (set || end) {
        r->in_class = set ? 2 : 1;
        return 0;
    }
    if (c == '[' || (c == ']' && r->in_class == 2) || (c == '&' && next == '&') ||
        (rust(r) && strchr("-~", c) && next == c))
        return unclear(r, "a set inside a set", err);
    r->in_class = c != ']' ? r->in_class : 0;
    lf_buf_addc(r->out, c);
    return 0;
}

static int plain_char(struct reader *r, lf_err *err)
{
    char c = *r->p;
    if (c == '[')
        return open_class(r, err);
    if (c == '{')
        return interval(r, err);
    if (c == '(')
        return open_group(r, err);
    if (c == ')') {
        close_group(r);
        return 0;
    }
    /* Bytes 80 to bf go on with a character. */
    if (!strchr("*+?", c) && ((unsigned char)c & 0xC0) != 0x80)
        r->atom = r->out->len;
    lf_buf_addc(r->out, c);
    return 0;
}

int lf_regex_translate(lf_buf *out, const char *pattern, unsigned how, lf_err *err)
{
    struct reader r = {.out = out, .pattern = pattern, .how = how};
    int rc = 0;
    for (r.p = pattern; *r.p && rc == 0; r.p++) {
        if (*r.p != '\\') {
            rc = r.in_class ? class_char(&r, err) : plain_char(&r, err);
            continue;
        }
        r.atom = r.in_class ? r.atom : out->len;
        r.p++;
        rc = escape(&r, err);
    }
    return rc == 0 ? lf_buf_check(out, err) : rc;
}
