/* SPDX-License-Identifier: Apache-2.0
 *
 * Values as text: str(), repr() and json.dumps() of Python. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/text/jinja/priv.h"

#define DEPTH_MAX 200

/* The shortest decimal that reads back as f, placed as Python does: exponents below -4 and from 16
 * on. */
void lf_jj_add_float(lf_buf *b, double f)
{
    char digits[40], text[40];
    if (isnan(f) || isinf(f)) {
        lf_buf_adds(b, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    int precision = 0;
    do {
        snprintf(digits, sizeof(digits), "%.*e", precision, f);
    } while (strtod(digits, NULL) != f && ++precision < 17);
    int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (exponent < -4 || exponent >= 16) {
        snprintf(text, sizeof(text), "%.*e", precision, f);
    } else {
        int after = precision - exponent;
        snprintf(text, sizeof(text), "%.*f", after > 0 ? after : 1, f);
    }
    lf_buf_adds(b, text);
}

/* str.isprintable for one character. */
static bool printable(int32_t c)
{
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return c == ' ';
    default:
        return true;
    }
}

static void repr_str(lf_buf *b, lf_jj_val v)
{
    bool one = memchr(v.u.s, '\'', v.n) != NULL, two = memchr(v.u.s, '"', v.n) != NULL;
    char quote = one && !two ? '"' : '\'';
    size_t len;
    lf_buf_addc(b, quote);
    for (size_t i = 0; i < v.n; i += len) {
        int32_t c = lf_jj_char(v.u.s + i, v.n - i, &len);
        if (c == quote || c == '\\')
            lf_buf_addf(b, "\\%c", (char)c);
        else if (c == '\n' || c == '\r' || c == '\t')
            lf_buf_adds(b, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        else if (printable(c))
            lf_buf_add(b, v.u.s + i, len);
        else
            lf_buf_addf(b,
                        c < 0x100     ? "\\x%02x"
                        : c < 0x10000 ? "\\u%04x"
                                      : "\\U%08x",
                        (unsigned)c);
    }
    lf_buf_addc(b, quote);
}

static void repr_seq(lf_jj_run *r, lf_buf *b, const struct lf_jj_seq *s, int depth)
{
    lf_buf_addc(b, s->tuple ? '(' : '[');
    for (size_t i = 0; i < s->n; i++) {
        if (i > 0)
            lf_buf_adds(b, ", ");
        lf_jj_add_repr(r, b, s->v[i], depth + 1);
    }
    lf_buf_adds(b, s->tuple ? s->n == 1 ? ",)" : ")" : "]");
}

static void repr_map(lf_jj_run *r, lf_buf *b, const struct lf_jj_map *m, int depth)
{
    lf_buf_addc(b, '{');
    for (size_t i = 0; i < m->n; i++) {
        if (i > 0)
            lf_buf_adds(b, ", ");
        lf_jj_add_repr(r, b, m->k[i], depth + 1);
        lf_buf_adds(b, ": ");
        lf_jj_add_repr(r, b, m->v[i], depth + 1);
    }
    lf_buf_addc(b, '}');
}

static void too_deep(lf_jj_run *r)
{
    if (r->rc == 0)
        r->rc = lf_fail(r->err, LF_EINVAL, "%s: a value is nested more than %d levels deep",
                        r->t->name, DEPTH_MAX);
}

void lf_jj_add_repr(lf_jj_run *r, lf_buf *b, lf_jj_val v, int depth)
{
    if (depth > DEPTH_MAX) {
        too_deep(r);
        return;
    }
    switch (v.t) {
    case LF_JJ_UNDEF:
        lf_buf_adds(b, "Undefined");
        break;
    case LF_JJ_NONE:
        lf_buf_adds(b, "None");
        break;
    case LF_JJ_BOOL:
        lf_buf_adds(b, v.u.b ? "True" : "False");
        break;
    case LF_JJ_INT:
        lf_buf_addf(b, "%" PRId64, v.u.i);
        break;
    case LF_JJ_FLOAT:
        lf_jj_add_float(b, v.u.f);
        break;
    case LF_JJ_STR:
        repr_str(b, v);
        break;
    case LF_JJ_SEQ:
        repr_seq(r, b, v.u.seq, depth);
        break;
    case LF_JJ_MAP:
        repr_map(r, b, v.u.map, depth);
        break;
    default:
        if (r->rc == 0)
            r->rc = lf_fail(r->err, LF_ENOTSUP, "%s: a %s cannot be written as text", r->t->name,
                            lf_jj_type_name(v));
    }
}

void lf_jj_add_str(lf_jj_run *r, lf_buf *b, lf_jj_val v)
{
    if (v.t == LF_JJ_STR)
        lf_buf_add(b, v.u.s, v.n);
    else if (v.t != LF_JJ_UNDEF)
        lf_jj_add_repr(r, b, v, 0);
}

lf_jj_val lf_jj_to_str(lf_jj_run *r, lf_jj_val v)
{
    lf_buf b;
    if (v.t == LF_JJ_STR)
        return v;
    lf_buf_init(&b);
    lf_jj_add_str(r, &b, v);
    return lf_jj_str_take(r, &b);
}

/* ---- json.dumps(value, ensure_ascii=False, ...) ---- */

struct dump {
    lf_jj_run *r;
    const lf_jj_node *at;
    lf_buf *b;
    lf_jj_val indent; /* a string; undefined: one line */
    lf_jj_val item, key;
    bool sort;
};

static void dump_str(lf_buf *b, lf_jj_val v)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    lf_buf_addc(b, '"');
    for (size_t i = 0; i < v.n; i++) {
        unsigned char c = (unsigned char)v.u.s[i];
        const char *p = c ? strchr(from, c) : NULL;
        if (p)
            lf_buf_addf(b, "\\%c", to[p - from]);
        else if (c < 0x20)
            lf_buf_addf(b, "\\u%04x", c);
        else
            lf_buf_addc(b, (char)c);
    }
    lf_buf_addc(b, '"');
}

static void dump_value(struct dump *d, lf_jj_val v, int depth);

static void new_line(struct dump *d, int depth)
{
    if (d->indent.t != LF_JJ_STR)
        return;
    lf_buf_addc(d->b, '\n');
    for (int i = 0; i < depth; i++)
        lf_buf_add(d->b, d->indent.u.s, d->indent.n);
}

static void dump_seq(struct dump *d, const struct lf_jj_seq *s, int depth)
{
    if (s->n == 0) {
        lf_buf_adds(d->b, "[]");
        return;
    }
    lf_buf_addc(d->b, '[');
    for (size_t i = 0; i < s->n; i++) {
        if (i > 0)
            lf_buf_add(d->b, d->item.u.s, d->item.n);
        new_line(d, depth + 1);
        dump_value(d, s->v[i], depth + 1);
    }
    new_line(d, depth);
    lf_buf_addc(d->b, ']');
}

static void dump_key(struct dump *d, lf_jj_val k, int depth)
{
    if (k.t == LF_JJ_STR) {
        dump_str(d->b, k);
    } else if (lf_jj_is_number(k) || k.t == LF_JJ_NONE) {
        lf_buf_addc(d->b, '"');
        dump_value(d, k, depth);
        lf_buf_addc(d->b, '"');
    } else {
        lf_jj_fail(d->r, d->at, "tojson: a key of type %s", lf_jj_type_name(k));
    }
}

static size_t next_key(struct dump *d, const struct lf_jj_map *m, const bool *used)
{
    size_t best = m->n;
    for (size_t i = 0; i < m->n; i++)
        if (!used[i] && (best == m->n || lf_jj_order(d->r, d->at, m->k[i], m->k[best]) < 0))
            best = i;
    return best;
}

static void dump_map(struct dump *d, const struct lf_jj_map *m, int depth)
{
    bool *used = d->sort ? lf_jj_alloc(d->r, m->n, sizeof(*used)) : NULL;
    if (m->n == 0) {
        lf_buf_adds(d->b, "{}");
        return;
    }
    lf_buf_addc(d->b, '{');
    for (size_t i = 0; i < m->n && d->r->rc == 0; i++) {
        size_t k = used ? next_key(d, m, used) : i;
        if (used)
            used[k] = true;
        if (i > 0)
            lf_buf_add(d->b, d->item.u.s, d->item.n);
        new_line(d, depth + 1);
        dump_key(d, m->k[k], depth);
        lf_buf_add(d->b, d->key.u.s, d->key.n);
        dump_value(d, m->v[k], depth + 1);
    }
    new_line(d, depth);
    lf_buf_addc(d->b, '}');
}

static void dump_float(lf_buf *b, double f)
{
    if (isfinite(f))
        lf_jj_add_float(b, f);
    else
        lf_buf_adds(b, isnan(f) ? "NaN" : f < 0 ? "-Infinity" : "Infinity");
}

static void dump_value(struct dump *d, lf_jj_val v, int depth)
{
    if (d->r->rc)
        return;
    if (depth > DEPTH_MAX) {
        too_deep(d->r);
        return;
    }
    switch (v.t) {
    case LF_JJ_NONE:
        lf_buf_adds(d->b, "null");
        break;
    case LF_JJ_BOOL:
        lf_buf_adds(d->b, v.u.b ? "true" : "false");
        break;
    case LF_JJ_FLOAT:
        dump_float(d->b, v.u.f);
        break;
    case LF_JJ_STR:
        dump_str(d->b, v);
        break;
    case LF_JJ_SEQ:
        dump_seq(d, v.u.seq, depth);
        break;
    case LF_JJ_MAP:
        dump_map(d, v.u.map, depth);
        break;
    case LF_JJ_INT:
        lf_jj_add_repr(d->r, d->b, v, 0);
        break;
    default:
        lf_jj_fail(d->r, d->at, "tojson: a value of type %s", lf_jj_type_name(v));
    }
}

/* The width of an indent is a number of blanks or a string. */
static lf_jj_val indent_text(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v)
{
    if (v.t != LF_JJ_INT)
        return v.t == LF_JJ_STR ? v : lf_jj_undef;
    if (v.u.i > 1000)
        return lf_jj_fail(r, at, "tojson: an indent of %" PRId64, v.u.i);
    size_t n = v.u.i > 0 ? (size_t)v.u.i : 0;
    char *s = lf_jj_alloc(r, n + 1, 1);
    if (!s)
        return lf_jj_undef;
    memset(s, ' ', n);
    return lf_jj_str(s, n);
}

lf_jj_val lf_jj_tojson(lf_jj_run *r, const lf_jj_node *at, lf_jj_val self, const lf_jj_args *a)
{
    static const char *const keywords[] = {"ensure_ascii", "indent", "separators", "sort_keys",
                                           NULL};
    lf_buf b;
    if (!lf_jj_args_ok(r, at, "tojson", a, 0, 4, keywords))
        return lf_jj_undef;
    if (lf_jj_truth(lf_jj_arg(a, 0, "ensure_ascii", lf_jj_bool(false))))
        return lf_jj_fail_rc(r, at, LF_ENOTSUP, "tojson: ensure_ascii is not supported");
    struct dump d = {.r = r, .at = at, .b = &b};
    d.indent = indent_text(r, at, lf_jj_arg(a, 1, "indent", lf_jj_none));
    d.item = lf_jj_strz(d.indent.t == LF_JJ_STR ? "," : ", ");
    d.key = lf_jj_strz(": ");
    d.sort = lf_jj_truth(lf_jj_arg(a, 3, "sort_keys", lf_jj_bool(false)));
    lf_jj_val s = lf_jj_arg(a, 2, "separators", lf_jj_none);
    if (s.t == LF_JJ_SEQ && s.u.seq->n == 2 && s.u.seq->v[0].t == LF_JJ_STR &&
        s.u.seq->v[1].t == LF_JJ_STR) {
        d.item = s.u.seq->v[0];
        d.key = s.u.seq->v[1];
    } else if (s.t != LF_JJ_NONE) {
        return lf_jj_fail(r, at, "tojson: separators are two strings");
    }
    lf_buf_init(&b);
    dump_value(&d, self, 0);
    return lf_jj_str_take(r, &b);
}
