/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of the chat template interpreter, with Python's text forms, comparisons and truth.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/utf8.h"
#include "engine/text/jinja_priv.h"

void *lf_jv_alloc(struct jctx *c, size_t n, size_t size)
{
    size_t bytes;
    if (!lf_size_mul(&bytes, n, size) || bytes > c->mem_limit - c->used) {
        lf_jinja_fail(c->t, c->at, c->err, LF_ENOMEM, "the template needs more than %zu bytes of memory", c->mem_limit);
        return NULL;
    }
    c->used += bytes;
    return lf_arena_alloc(c->arena, n, size, c->err);
}

struct jv lf_jv_str(const char *s, size_t n)
{
    return (struct jv){.t = V_STR, .n = n, .u.s = s};
}
struct jv lf_jv_int(int64_t i)
{
    return (struct jv){.t = V_INT, .u.i = i};
}
struct jv lf_jv_float(double f)
{
    return (struct jv){.t = V_FLOAT, .u.f = f};
}
struct jv lf_jv_bool(bool b)
{
    return (struct jv){.t = V_BOOL, .flag = b};
}
struct jv lf_jv_none(void)
{
    return (struct jv){.t = V_NONE};
}

int lf_jv_copy_str(struct jctx *c, struct jv *out, const char *s, size_t n)
{
    char *p = lf_jv_alloc(c, n + 1, 1);
    if (!p)
        return LF_ENOMEM;
    memcpy(p, s, n);
    *out = lf_jv_str(p, n);
    return 0;
}

int lf_jv_list(struct jctx *c, struct jv *out, size_t cap)
{
    struct jlist *l = lf_jv_alloc(c, 1, sizeof *l);
    if (!l || (cap && !(l->v = lf_jv_alloc(c, cap, sizeof *l->v))))
        return LF_ENOMEM;
    l->cap = cap;
    *out = (struct jv){.t = V_LIST, .u.l = l};
    return 0;
}

int lf_jv_push(struct jctx *c, struct jlist *l, struct jv v)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 4;
        struct jv *p = lf_jv_alloc(c, cap, sizeof *p);
        if (!p)
            return LF_ENOMEM;
        if (l->n)
            memcpy(p, l->v, l->n * sizeof *p);
        l->v = p;
        l->cap = cap;
    }
    l->v[l->n++] = v;
    return 0;
}

int lf_jv_dict(struct jctx *c, struct jv *out)
{
    struct jdict *d = lf_jv_alloc(c, 1, sizeof *d);
    if (!d)
        return LF_ENOMEM;
    *out = (struct jv){.t = V_DICT, .u.d = d};
    return 0;
}

const struct jv *lf_jv_find(const struct jdict *d, const struct jv *key)
{
    for (size_t i = 0; i < d->n; i++)
        if (lf_jv_equal(&d->key[i], key, 0))
            return &d->val[i];
    return NULL;
}

const struct jv *lf_jv_get(const struct jdict *d, const char *s, size_t n)
{
    struct jv key = lf_jv_str(s, n);
    return lf_jv_find(d, &key);
}

int lf_jv_put(struct jctx *c, struct jdict *d, struct jv key, struct jv val)
{
    for (size_t i = 0; i < d->n; i++)
        if (lf_jv_equal(&d->key[i], &key, 0)) {
            d->val[i] = val;
            return 0;
        }
    if (d->n == d->cap) {
        size_t cap = d->cap ? 2 * d->cap : 4;
        struct jv *k = lf_jv_alloc(c, cap, sizeof *k), *v = k ? lf_jv_alloc(c, cap, sizeof *v) : NULL;
        if (!v)
            return LF_ENOMEM;
        if (d->n) {
            memcpy(k, d->key, d->n * sizeof *k);
            memcpy(v, d->val, d->n * sizeof *v);
        }
        d->key = k;
        d->val = v;
        d->cap = cap;
    }
    d->key[d->n] = key;
    d->val[d->n++] = val;
    return 0;
}

int lf_jv_from_json(struct jctx *c, struct jv *out, json_t *j, int depth)
{
    const char *key;
    json_t *v;
    size_t i;
    int rc = 0;
    if (depth > LF_JINJA_DEPTH)
        return lf_jv_fail(c, "a variable is nested too deeply");
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        rc = lf_jv_dict(c, out);
        json_object_foreach(j, key, v)
        {
            struct jv x;
            if (rc == 0 && (rc = lf_jv_from_json(c, &x, v, depth + 1)) == 0)
                rc = lf_jv_put(c, out->u.d, lf_jv_str(key, strlen(key)), x);
        }
        return rc;
    case JSON_ARRAY:
        rc = lf_jv_list(c, out, json_array_size(j));
        json_array_foreach(j, i, v)
        {
            struct jv x;
            if (rc == 0 && (rc = lf_jv_from_json(c, &x, v, depth + 1)) == 0)
                rc = lf_jv_push(c, out->u.l, x);
        }
        return rc;
    case JSON_STRING:
        *out = lf_jv_str(json_string_value(j), json_string_length(j));
        return 0;
    case JSON_INTEGER:
        *out = lf_jv_int(json_integer_value(j));
        return 0;
    case JSON_REAL:
        *out = lf_jv_float(json_real_value(j));
        return 0;
    case JSON_TRUE:
        *out = lf_jv_bool(true);
        return 0;
    case JSON_FALSE:
        *out = lf_jv_bool(false);
        return 0;
    default:
        *out = lf_jv_none();
        return 0;
    }
}

bool lf_jv_true(const struct jv *v)
{
    switch (v->t) {
    case V_UNDEFINED:
    case V_NONE:
        return false;
    case V_BOOL:
        return v->flag;
    case V_INT:
        return v->u.i != 0;
    case V_FLOAT:
        return v->u.f < 0 || v->u.f > 0 || isnan(v->u.f);
    case V_STR:
        return v->n > 0;
    case V_LIST:
        return v->u.l->n > 0;
    case V_DICT:
        return v->flag || v->u.d->n > 0;
    default:
        return true;
    }
}

const char *lf_jv_type(const struct jv *v)
{
    static const char *const names[] = {"Undefined", "NoneType", "bool",  "int",    "float",   "str",
                                        "list",      "dict",     "Macro", "method", "function"};
    return v->t == V_LIST && v->flag ? "tuple" : v->t == V_DICT && v->flag ? "Namespace" : names[v->t];
}

static bool is_num(const struct jv *v, double *f)
{
    *f = v->t == V_FLOAT ? v->u.f : v->t == V_INT ? (double)v->u.i : v->flag;
    return v->t == V_FLOAT || v->t == V_INT || v->t == V_BOOL;
}

static int64_t as_int(const struct jv *v)
{
    return v->t == V_BOOL ? v->flag : v->u.i;
}

bool lf_jv_equal(const struct jv *a, const struct jv *b, int depth)
{
    double x, y;
    if (depth > LF_JINJA_DEPTH)
        return false;
    if (is_num(a, &x) && is_num(b, &y))
        return a->t == V_FLOAT || b->t == V_FLOAT ? !(x < y) && !(y < x) && !isnan(x) && !isnan(y)
                                                  : as_int(a) == as_int(b);
    if (a->t != b->t)
        return false;
    switch (a->t) {
    case V_STR:
        return a->n == b->n && memcmp(a->u.s, b->u.s, a->n) == 0;
    case V_LIST:
        if (a->u.l->n != b->u.l->n || a->flag != b->flag)
            return false;
        for (size_t i = 0; i < a->u.l->n; i++)
            if (!lf_jv_equal(&a->u.l->v[i], &b->u.l->v[i], depth + 1))
                return false;
        return true;
    case V_DICT:
        if (a->u.d->n != b->u.d->n || a->flag || b->flag)
            return a->u.d == b->u.d;
        for (size_t i = 0; i < a->u.d->n; i++) {
            const struct jv *o = lf_jv_find(b->u.d, &a->u.d->key[i]);
            if (!o || !lf_jv_equal(&a->u.d->val[i], o, depth + 1))
                return false;
        }
        return true;
    case V_UNDEFINED:
    case V_NONE:
        return true;
    default:
        return a->u.s == b->u.s;
    }
}

int lf_jv_compare(struct jctx *c, int *out, const struct jv *a, const struct jv *b)
{
    double x, y;
    if (is_num(a, &x) && is_num(b, &y)) {
        *out =
            a->t == V_FLOAT || b->t == V_FLOAT ? (x > y) - (x < y) : (as_int(a) > as_int(b)) - (as_int(a) < as_int(b));
        return 0;
    }
    if (a->t == V_STR && b->t == V_STR) { /* bytes of UTF-8 are in the order of code points */
        int r = memcmp(a->u.s, b->u.s, a->n < b->n ? a->n : b->n);
        *out = r ? (r > 0) - (r < 0) : (a->n > b->n) - (a->n < b->n);
        return 0;
    }
    if (a->t == V_LIST && b->t == V_LIST && a->flag == b->flag) {
        for (size_t i = 0; i < a->u.l->n && i < b->u.l->n; i++)
            if (!lf_jv_equal(&a->u.l->v[i], &b->u.l->v[i], 0))
                return lf_jv_compare(c, out, &a->u.l->v[i], &b->u.l->v[i]);
        *out = (a->u.l->n > b->u.l->n) - (a->u.l->n < b->u.l->n);
        return 0;
    }
    return lf_jv_fail(c, "%s and %s cannot be ordered", lf_jv_type(a), lf_jv_type(b));
}

bool lf_jv_is(const struct jv *v, const char *s)
{
    return v->t == V_STR && v->n == strlen(s) && memcmp(v->u.s, s, v->n) == 0;
}

size_t lf_jv_chars(const struct jv *v)
{
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++)
        n += ((unsigned char)v->u.s[i] & 0xC0) != 0x80;
    return n;
}

int lf_jv_iterate(struct jctx *c, struct jv *out, const struct jv *v)
{
    int rc = lf_jv_list(c, out, v->t == V_LIST ? v->u.l->n : 0);
    if (rc < 0 || v->t == V_UNDEFINED)
        return rc;
    if (v->t == V_LIST) {
        if (v->u.l->n)
            memcpy(out->u.l->v, v->u.l->v, v->u.l->n * sizeof *v->u.l->v);
        out->u.l->n = v->u.l->n;
        return 0;
    }
    if (v->t == V_DICT && !v->flag) {
        for (size_t i = 0; i < v->u.d->n && rc == 0; i++)
            rc = lf_jv_push(c, out->u.l, v->u.d->key[i]);
        return rc;
    }
    if (v->t != V_STR)
        return lf_jv_fail(c, "%s cannot be iterated", lf_jv_type(v));
    for (size_t i = 0, k; i < v->n && rc == 0; i += k) {
        k = lf_utf8_len(v->u.s + i, v->n - i);
        k = k ? k : 1;
        rc = lf_jv_push(c, out->u.l, lf_jv_str(v->u.s + i, k));
    }
    return rc;
}

/* ---- text forms ---- */

/* The shortest decimal that reads back, in Python's form. */
static void float_text(lf_buf *b, double f)
{
    char s[40];
    if (!isfinite(f)) {
        lf_buf_adds(b, isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    int digits = 1;
    for (; digits < 17; digits++) {
        snprintf(s, sizeof s, "%.*e", digits - 1, f);
        double back = strtod(s, NULL);
        if (!(back < f) && !(back > f))
            break;
    }
    snprintf(s, sizeof s, "%.*e", digits - 1, f);
    int e = atoi(strchr(s, 'e') + 1);
    if (e >= 16 || e < -4) {
        char *p = strchr(s, 'e');
        lf_buf_add(b, s, (size_t)(p - s));
        lf_buf_addf(b, "e%c%02d", e < 0 ? '-' : '+', e < 0 ? -e : e);
        return;
    }
    int after = digits - 1 - e;
    lf_buf_addf(b, "%.*f", after > 0 ? after : 1, f);
}

/* A text between quotes as Python's repr writes it. */
static void repr_text(lf_buf *b, const struct jv *v)
{
    bool one = memchr(v->u.s, '\'', v->n) != NULL, two = memchr(v->u.s, '"', v->n) != NULL;
    char q = one && !two ? '"' : '\'';
    lf_buf_addc(b, q);
    for (size_t i = 0; i < v->n; i++) {
        unsigned char ch = (unsigned char)v->u.s[i];
        if (ch == '\n' || ch == '\r' || ch == '\t')
            lf_buf_adds(b, ch == '\n' ? "\\n" : ch == '\r' ? "\\r" : "\\t");
        else if (ch == '\\' || ch == (unsigned char)q)
            lf_buf_addf(b, "\\%c", ch);
        else if (ch < 0x20 || ch == 0x7F)
            lf_buf_addf(b, "\\x%02x", ch);
        else
            lf_buf_addc(b, (char)ch);
    }
    lf_buf_addc(b, q);
}

int lf_jv_to_text(struct jctx *c, lf_buf *b, const struct jv *v, bool repr, int depth)
{
    int rc = 0;
    if (depth > LF_JINJA_DEPTH)
        return lf_jv_fail(c, "a value is nested too deeply");
    if (b->len > c->mem_limit)
        return lf_jv_fail(c, "a text is too long");
    switch (v->t) {
    case V_UNDEFINED:
        return repr ? (lf_buf_adds(b, "Undefined"), 0) : 0;
    case V_NONE:
        lf_buf_adds(b, "None");
        return 0;
    case V_BOOL:
        lf_buf_adds(b, v->flag ? "True" : "False");
        return 0;
    case V_INT:
        lf_buf_addf(b, "%lld", (long long)v->u.i);
        return 0;
    case V_FLOAT:
        float_text(b, v->u.f);
        return 0;
    case V_STR:
        if (repr)
            repr_text(b, v);
        else
            lf_buf_add(b, v->u.s, v->n);
        return 0;
    case V_LIST:
        lf_buf_addc(b, v->flag ? '(' : '[');
        for (size_t i = 0; i < v->u.l->n && rc == 0; i++) {
            lf_buf_adds(b, i ? ", " : "");
            rc = lf_jv_to_text(c, b, &v->u.l->v[i], true, depth + 1);
        }
        lf_buf_adds(b, !v->flag ? "]" : v->u.l->n == 1 ? ",)" : ")");
        return rc;
    case V_DICT:
        if (v->flag)
            return lf_jv_fail(c, "a namespace has no text");
        lf_buf_addc(b, '{');
        for (size_t i = 0; i < v->u.d->n && rc == 0; i++) {
            lf_buf_adds(b, i ? ", " : "");
            rc = lf_jv_to_text(c, b, &v->u.d->key[i], true, depth + 1);
            lf_buf_adds(b, ": ");
            rc = rc ? rc : lf_jv_to_text(c, b, &v->u.d->val[i], true, depth + 1);
        }
        lf_buf_addc(b, '}');
        return rc;
    default:
        return lf_jv_fail(c, "a %s has no text; is it to be called?", lf_jv_type(v));
    }
}

/* ---- JSON ---- */

/* json.dumps(ensure_ascii=False): only what must be is escaped. */
static void json_text(lf_buf *b, const struct jv *v)
{
    lf_buf_addc(b, '"');
    for (size_t i = 0; i < v->n; i++) {
        unsigned char ch = (unsigned char)v->u.s[i];
        const char *short_form = ch == '"'    ? "\\\""
                                 : ch == '\\' ? "\\\\"
                                 : ch == '\n' ? "\\n"
                                 : ch == '\r' ? "\\r"
                                 : ch == '\t' ? "\\t"
                                 : ch == '\b' ? "\\b"
                                 : ch == '\f' ? "\\f"
                                              : NULL;
        if (short_form)
            lf_buf_adds(b, short_form);
        else if (ch < 0x20)
            lf_buf_addf(b, "\\u%04x", ch);
        else
            lf_buf_addc(b, (char)ch);
    }
    lf_buf_addc(b, '"');
}

static void json_break(lf_buf *b, int indent, int depth, bool first)
{
    if (indent < 0) {
        lf_buf_adds(b, first ? "" : ", ");
        return;
    }
    lf_buf_adds(b, first ? "\n" : ",\n");
    for (int i = 0; i < indent * depth; i++)
        lf_buf_addc(b, ' ');
}

static void json_end(lf_buf *b, int indent, int depth, char bracket)
{
    if (indent >= 0)
        json_break(b, indent, depth, true);
    lf_buf_addc(b, bracket);
}

static int json_dict(struct jctx *c, lf_buf *b, const struct jdict *d, int indent, int depth)
{
    int rc = 0;
    lf_buf_addc(b, '{');
    for (size_t i = 0; i < d->n && rc == 0; i++) {
        json_break(b, indent, depth + 1, i == 0);
        if (d->key[i].t == V_STR) {
            json_text(b, &d->key[i]);
        } else {
            lf_buf_addc(b, '"');
            rc = lf_jv_to_json(c, b, &d->key[i], -1, depth);
            lf_buf_addc(b, '"');
        }
        lf_buf_adds(b, ": ");
        rc = rc ? rc : lf_jv_to_json(c, b, &d->val[i], indent, depth + 1);
    }
    if (d->n)
        json_end(b, indent, depth, '}');
    else
        lf_buf_addc(b, '}');
    return rc;
}

int lf_jv_to_json(struct jctx *c, lf_buf *b, const struct jv *v, int indent, int depth)
{
    int rc = 0;
    if (depth > LF_JINJA_DEPTH || b->len > c->mem_limit)
        return lf_jv_fail(c, "a value is too large for JSON");
    switch (v->t) {
    case V_NONE:
        lf_buf_adds(b, "null");
        return 0;
    case V_BOOL:
        lf_buf_adds(b, v->flag ? "true" : "false");
        return 0;
    case V_INT:
        lf_buf_addf(b, "%lld", (long long)v->u.i);
        return 0;
    case V_FLOAT:
        if (isfinite(v->u.f))
            float_text(b, v->u.f);
        else
            lf_buf_adds(b, isnan(v->u.f) ? "NaN" : v->u.f > 0 ? "Infinity" : "-Infinity");
        return 0;
    case V_STR:
        json_text(b, v);
        return 0;
    case V_LIST:
        lf_buf_addc(b, '[');
        for (size_t i = 0; i < v->u.l->n && rc == 0; i++) {
            json_break(b, indent, depth + 1, i == 0);
            rc = lf_jv_to_json(c, b, &v->u.l->v[i], indent, depth + 1);
        }
        if (v->u.l->n)
            json_end(b, indent, depth, ']');
        else
            lf_buf_addc(b, ']');
        return rc;
    case V_DICT:
        if (!v->flag)
            return json_dict(c, b, v->u.d, indent, depth);
        /* fall through */
    default:
        return lf_jv_fail(c, "a value of type %s is no JSON", lf_jv_type(v));
    }
}
