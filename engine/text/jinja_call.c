/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters, tests, methods and global functions of chat templates.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/utf8.h"
#include "engine/text/jinja_priv.h"

static bool in_list(const char *const *names, const char *s, size_t n)
{
    for (; *names; names++)
        if (strlen(*names) == n && memcmp(*names, s, n) == 0)
            return true;
    return false;
}

bool lf_jinja_is_filter(const char *s, size_t n)
{
    static const char *const names[] = {
        "abs",    "capitalize", "count",   "d",       "default", "dictsort", "first",  "float",      "int",
        "items",  "join",       "last",    "length",  "list",    "lower",    "map",    "max",        "min",
        "reject", "rejectattr", "replace", "reverse", "round",   "safe",     "select", "selectattr", "sort",
        "string", "sum",        "title",   "tojson",  "trim",    "unique",   "upper",  NULL};
    return in_list(names, s, n);
}

bool lf_jinja_is_test(const char *s, size_t n)
{
    static const char *const names[] = {
        "boolean", "callable", "defined",  "divisibleby", "eq",   "equalto",   "even",  "false",   "float", "ge",
        "gt",      "in",       "integer",  "iterable",    "le",   "lower",     "lt",    "mapping", "ne",    "none",
        "number",  "odd",      "sequence", "string",      "true", "undefined", "upper", NULL};
    return in_list(names, s, n);
}

bool lf_jinja_is_global(const char *s, size_t n)
{
    static const char *const names[] = {"namespace", "range", "raise_exception", "strftime_now", "dict", NULL};
    return in_list(names, s, n);
}

bool lf_jinja_has_method(const struct jv *v, const char *s, size_t n)
{
    static const char *const texts[] = {"capitalize", "endswith",   "find",  "lower", "lstrip", "replace", "rstrip",
                                        "split",      "startswith", "strip", "title", "upper",  NULL},
                             *const dicts[] = {"get", "items", "keys", "values", NULL};
    return v->t == V_STR ? in_list(texts, s, n) : v->t == V_DICT && in_list(dicts, s, n);
}

static bool is(const char *a, const char *s, size_t n)
{
    return strlen(a) == n && memcmp(a, s, n) == 0;
}

/* ---- texts ---- */

/* A filter's subject as text: what is no text becomes one. */
static int as_text(struct jctx *c, struct jv *out, const struct jv *v)
{
    lf_buf b;
    if (v->t == V_STR) {
        *out = *v;
        return 0;
    }
    lf_buf_init(&b);
    int rc = lf_jv_to_text(c, &b, v, false, 0);
    rc = rc ? rc : lf_jv_copy_str(c, out, b.data, b.len);
    lf_buf_fini(&b);
    return rc;
}

/* Is the character at s (k bytes) one that Python's strip() takes: ASCII and Unicode white space? */
static bool is_white(const char *s, size_t k)
{
    static const char *const wide[] = {"\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80",
                                       "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF",
                                       "\xE2\x81\x9F", "\xE3\x80\x80", NULL};
    if (k == 1)
        return *s == ' ' || (*s >= '\t' && *s <= '\r') || (*s >= 0x1C && *s <= 0x1F);
    if (k == 3 && memcmp(s, "\xE2\x80", 2) == 0 && (unsigned char)s[2] >= 0x80 && (unsigned char)s[2] <= 0x8A)
        return true;
    return in_list(wide, s, k);
}

static bool stripped(const char *s, size_t k, const struct jv *chars)
{
    return !chars || chars->t != V_STR ? is_white(s, k) : memmem(chars->u.s, chars->n, s, k) != NULL;
}

static struct jv strip(const struct jv *v, const struct jv *chars, bool left, bool right)
{
    size_t b = 0, e = v->n, k;
    while (left && b < e && (k = lf_utf8_len(v->u.s + b, e - b)) && stripped(v->u.s + b, k, chars))
        b += k;
    while (right && e > b) {
        for (k = 1; k < e - b && ((unsigned char)v->u.s[e - k] & 0xC0) == 0x80;)
            k++;
        if (!stripped(v->u.s + e - k, k, chars))
            break;
        e -= k;
    }
    return lf_jv_str(v->u.s + b, e - b);
}

enum letters { LOWER, UPPER, CAPITALIZE, TITLE };
/* Letters of ASCII; others are refused, because half of a text in capitals is worse than an error. */
static int change_case(struct jctx *c, struct jv *out, const struct jv *v, enum letters how)
{
    int rc = lf_jv_copy_str(c, out, v->u.s, v->n);
    char *s = NULL;
    if (rc == 0)
        memcpy(&s, &out->u.s, sizeof s);
    bool inside = false;
    for (size_t i = 0; i < v->n && rc == 0; i++) {
        unsigned char ch = (unsigned char)v->u.s[i];
        bool letter = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
        if (ch >= 0x80)
            return lf_jv_fail(c, "the case of characters beyond ASCII is not changed");
        bool up = how == UPPER || (how == CAPITALIZE && i == 0) || (how == TITLE && !inside);
        if (letter)
            s[i] = (char)(up ? ch & ~0x20 : ch | 0x20);
        inside = letter;
    }
    return rc;
}

static int replace(struct jctx *c, struct jv *out, const struct jv *v, struct jargs *a)
{
    const struct jv *from = lf_jinja_arg(a, 0, "old"), *to = lf_jinja_arg(a, 1, "new"),
                    *times = lf_jinja_arg(a, 2, "count");
    int64_t left = times && times->t == V_INT ? times->u.i : -1;
    lf_buf b;
    if (!from || !to || from->t != V_STR || to->t != V_STR)
        return lf_jv_fail(c, "replace needs two texts");
    lf_buf_init(&b);
    for (size_t i = 0; i < v->n || (from->n == 0 && i == v->n);) {
        bool hit = left != 0 && from->n <= v->n - i && memcmp(v->u.s + i, from->u.s, from->n) == 0;
        if (hit) {
            lf_buf_add(&b, to->u.s, to->n);
            i += from->n;
            left--;
        }
        if (!hit || from->n == 0) {
            size_t k = i < v->n ? lf_utf8_len(v->u.s + i, v->n - i) : 1;
            if (i < v->n)
                lf_buf_add(&b, v->u.s + i, k ? k : 1);
            i += k ? k : 1;
        }
        if (b.len > c->mem_limit)
            break;
    }
    int rc = b.len > c->mem_limit ? lf_jv_fail(c, "a text is too long") : lf_jv_copy_str(c, out, b.data, b.len);
    lf_buf_fini(&b);
    return rc;
}

static int split(struct jctx *c, struct jv *out, const struct jv *v, struct jargs *a)
{
    const struct jv *sep = lf_jinja_arg(a, 0, "sep"), *most = lf_jinja_arg(a, 1, "maxsplit");
    int64_t left = most && most->t == V_INT ? most->u.i : -1;
    size_t i = 0;
    int rc = lf_jv_list(c, out, 0);
    if (sep && sep->t == V_STR) {
        if (sep->n == 0)
            return lf_jv_fail(c, "an empty separator");
        for (const char *hit; rc == 0 && left != 0 && (hit = memmem(v->u.s + i, v->n - i, sep->u.s, sep->n)); left--) {
            rc = lf_jv_push(c, out->u.l, lf_jv_str(v->u.s + i, (size_t)(hit - v->u.s) - i));
            i = (size_t)(hit - v->u.s) + sep->n;
        }
        return rc ? rc : lf_jv_push(c, out->u.l, lf_jv_str(v->u.s + i, v->n - i));
    }
    while (rc == 0) { /* words */
        struct jv rest = lf_jv_str(v->u.s + i, v->n - i);
        rest = strip(&rest, NULL, true, false);
        i = (size_t)(rest.u.s - v->u.s);
        if (i >= v->n)
            break;
        size_t e = i, k;
        if (left == 0) {
            rest = strip(&rest, NULL, false, true);
            return lf_jv_push(c, out->u.l, rest);
        }
        while (e < v->n && (k = lf_utf8_len(v->u.s + e, v->n - e)) && !is_white(v->u.s + e, k))
            e += k;
        rc = lf_jv_push(c, out->u.l, lf_jv_str(v->u.s + i, e - i));
        left--;
        i = e;
    }
    return rc;
}

static bool affix(const struct jv *v, const struct jv *x, bool start)
{
    if (x->t == V_LIST) {
        for (size_t i = 0; i < x->u.l->n; i++)
            if (affix(v, &x->u.l->v[i], start))
                return true;
        return false;
    }
    return x->t == V_STR && x->n <= v->n && memcmp(start ? v->u.s : v->u.s + v->n - x->n, x->u.s, x->n) == 0;
}

static int text_method(struct jctx *c, struct jv *out, const struct jv *v, const char *name, struct jargs *a)
{
    size_t n = strlen(name);
    const struct jv *x = lf_jinja_arg(a, 0, NULL);
    if (is("split", name, n))
        return split(c, out, v, a);
    if (is("replace", name, n))
        return replace(c, out, v, a);
    if (is("startswith", name, n) || is("endswith", name, n)) {
        if (!x)
            return lf_jv_fail(c, "%s needs a text", name);
        *out = lf_jv_bool(affix(v, x, name[0] == 's'));
    } else if (is("strip", name, n) || is("lstrip", name, n) || is("rstrip", name, n)) {
        *out = strip(v, x, name[0] != 'r', name[0] != 'l');
    } else if (is("find", name, n)) {
        const char *hit = x && x->t == V_STR ? memmem(v->u.s, v->n, x->u.s, x->n) : NULL;
        struct jv before = lf_jv_str(v->u.s, hit ? (size_t)(hit - v->u.s) : 0);
        *out = lf_jv_int(hit ? (int64_t)lf_jv_chars(&before) : -1);
    } else {
        return change_case(c, out, v,
                           is("lower", name, n)   ? LOWER
                           : is("upper", name, n) ? UPPER
                           : is("title", name, n) ? TITLE
                                                  : CAPITALIZE);
    }
    return 0;
}

static int dict_list(struct jctx *c, struct jv *out, const struct jdict *d, const char *name)
{
    int rc = lf_jv_list(c, out, d->n);
    for (size_t i = 0; i < d->n && rc == 0; i++) {
        struct jv pair = name[0] == 'k' ? d->key[i] : d->val[i];
        if (name[0] == 'i') {
            rc = lf_jv_list(c, &pair, 2);
            rc = rc ? rc : lf_jv_push(c, pair.u.l, d->key[i]);
            rc = rc ? rc : lf_jv_push(c, pair.u.l, d->val[i]);
            pair.flag = true;
        }
        rc = rc ? rc : lf_jv_push(c, out->u.l, pair);
    }
    return rc;
}

int lf_jinja_method(struct jctx *c, struct jv *out, const struct jv *self, const char *name, struct jargs *a)
{
    int rc = 0;
    if (self->t == V_STR) {
        rc = text_method(c, out, self, name, a);
        return rc ? rc : lf_jinja_args_end(c, a, 3, name);
    }
    if (strcmp(name, "get") == 0) {
        const struct jv *key = lf_jinja_arg(a, 0, NULL), *def = lf_jinja_arg(a, 1, NULL),
                        *v = key ? lf_jv_find(self->u.d, key) : NULL;
        *out = v ? *v : def ? *def : lf_jv_none();
        return key ? lf_jinja_args_end(c, a, 2, name) : lf_jv_fail(c, "get needs a key");
    }
    rc = dict_list(c, out, self->u.d, name);
    return rc ? rc : lf_jinja_args_end(c, a, 0, name);
}

/* ---- tests ---- */

int lf_jinja_test(struct jctx *c, bool *out, const struct jv *v, const char *s, size_t n, struct jargs *a)
{
    static const char *const compares[] = {"lt", "le", "gt", "ge", NULL};
    const struct jv *x = lf_jinja_arg(a, 0, NULL);
    bool whole = v->t == V_INT || v->t == V_BOOL;
    int64_t i = v->t == V_BOOL ? v->flag : whole ? v->u.i : 0;
    int r = 0, rc = 0;
    if (is("defined", s, n) || is("undefined", s, n)) {
        *out = (v->t == V_UNDEFINED) == (s[0] == 'u');
    } else if (is("none", s, n)) {
        *out = v->t == V_NONE;
    } else if (is("string", s, n)) {
        *out = v->t == V_STR;
    } else if (is("mapping", s, n)) {
        *out = v->t == V_DICT && !v->flag;
    } else if (is("sequence", s, n) || is("iterable", s, n)) {
        *out = v->t == V_STR || v->t == V_LIST || (v->t == V_DICT && !v->flag) || v->t == V_UNDEFINED;
    } else if (is("boolean", s, n) || is("true", s, n) || is("false", s, n)) {
        *out = v->t == V_BOOL && (s[0] == 'b' || v->flag == (s[0] == 't'));
    } else if (is("number", s, n)) {
        *out = whole || v->t == V_FLOAT;
    } else if (is("integer", s, n)) {
        *out = v->t == V_INT;
    } else if (is("float", s, n)) {
        *out = v->t == V_FLOAT;
    } else if (is("callable", s, n)) {
        *out = v->t == V_MACRO || v->t == V_METHOD || v->t == V_GLOBAL;
    } else if (is("even", s, n) || is("odd", s, n) || is("divisibleby", s, n)) {
        bool by = s[0] == 'd';
        if (!whole || (by && (!x || x->t != V_INT || x->u.i == 0)))
            return lf_jv_fail(c, "the test %.*s needs whole numbers", (int)n, s);
        *out = by ? (x->u.i == -1 || i % x->u.i == 0) : (i % 2 == 0) == (s[0] == 'e');
    } else if (is("lower", s, n) || is("upper", s, n)) {
        bool low = false, up = false;
        for (size_t k = 0; v->t == V_STR && k < v->n; k++) {
            low = low || (v->u.s[k] >= 'a' && v->u.s[k] <= 'z');
            up = up || (v->u.s[k] >= 'A' && v->u.s[k] <= 'Z');
        }
        *out = s[0] == 'l' ? low && !up : up && !low;
    } else if (!x) {
        return lf_jv_fail(c, "the test %.*s needs an argument", (int)n, s);
    } else if (is("in", s, n)) {
        struct jv list;
        *out = false;
        if (v->t == V_STR && x->t == V_STR) {
            *out = v->n == 0 || memmem(x->u.s, x->n, v->u.s, v->n);
        } else {
            rc = lf_jv_iterate(c, &list, x);
            for (size_t k = 0; rc == 0 && k < list.u.l->n; k++)
                *out = *out || lf_jv_equal(v, &list.u.l->v[k], 0);
        }
    } else if (in_list(compares, s, n)) {
        rc = lf_jv_compare(c, &r, v, x);
        *out = s[1] == 'e' && r == 0 ? true : s[0] == 'l' ? r < 0 : r > 0;
    } else { /* eq, equalto, ne */
        *out = lf_jv_equal(v, x, 0) == (s[0] == 'e');
    }
    return rc ? rc : lf_jinja_args_end(c, a, 1, "the test");
}

/* ---- filters ---- */

static int to_json(struct jctx *c, struct jv *out, const struct jv *v, struct jargs *a)
{
    const struct jv *indent = lf_jinja_arg(a, 99, "indent"), *ascii = lf_jinja_arg(a, 99, "ensure_ascii");
    lf_buf b;
    if ((indent && indent->t != V_NONE && (indent->t != V_INT || indent->u.i < 0 || indent->u.i > 64)) ||
        (ascii && lf_jv_true(ascii)))
        return lf_jv_fail(c, "tojson takes indent = 0 to 64 and ensure_ascii = false");
    if (a->n)
        return lf_jv_fail(c, "tojson takes its arguments by name");
    lf_buf_init(&b);
    int rc = lf_jv_to_json(c, &b, v, indent && indent->t == V_INT ? (int)indent->u.i : -1, 0);
    rc = rc ? rc : lf_jv_copy_str(c, out, b.data, b.len);
    lf_buf_fini(&b);
    return rc;
}

static int join(struct jctx *c, struct jv *out, const struct jv *v, struct jargs *a)
{
    const struct jv *sep = lf_jinja_arg(a, 0, "d"), *attr = lf_jinja_arg(a, 1, "attribute");
    struct jv list;
    lf_buf b;
    lf_buf_init(&b);
    int rc = lf_jv_iterate(c, &list, v);
    for (size_t i = 0; rc == 0 && i < list.u.l->n; i++) {
        struct jv e = list.u.l->v[i];
        if (i && sep)
            rc = lf_jv_to_text(c, &b, sep, false, 0);
        if (rc == 0 && attr && attr->t == V_STR)
            rc = lf_jinja_attr(c, &e, &list.u.l->v[i], attr->u.s, attr->n);
        rc = rc ? rc : lf_jv_to_text(c, &b, &e, false, 0);
    }
    rc = rc ? rc : lf_jv_copy_str(c, out, b.data, b.len);
    lf_buf_fini(&b);
    return rc;
}

/* The arguments behind the first k. */
static struct jargs rest_args(const struct jargs *a, size_t k)
{
    struct jargs r = *a;
    r.n = a->n > k ? a->n - k : 0;
    memmove(r.v, r.v + k, r.n * sizeof *r.v);
    return r;
}

/* select, reject: a test of elements; selectattr, rejectattr: of a member of theirs. */
static int choose(struct jctx *c, struct jv *out, const struct jv *v, const char *s, size_t n, struct jargs *a)
{
    bool want = s[0] == 's', attr = n > 6;
    size_t at = attr;
    struct jv list;
    if (attr && (a->n < 1 || a->v[0].t != V_STR))
        return lf_jv_fail(c, "%.*s needs the name of a member", (int)n, s);
    if (a->n > at && (a->v[at].t != V_STR || !lf_jinja_is_test(a->v[at].u.s, a->v[at].n)))
        return lf_jv_fail(c, "%.*s: no such test", (int)n, s);
    int rc = lf_jv_iterate(c, &list, v);
    rc = rc ? rc : lf_jv_list(c, out, 0);
    for (size_t i = 0; rc == 0 && i < list.u.l->n; i++) {
        struct jv e = list.u.l->v[i];
        struct jargs r = rest_args(a, at + 1);
        bool yes = false;
        if (attr)
            rc = lf_jinja_attr(c, &e, &list.u.l->v[i], a->v[0].u.s, a->v[0].n);
        if (rc == 0 && a->n > at)
            rc = lf_jinja_test(c, &yes, &e, a->v[at].u.s, a->v[at].n, &r);
        else if (rc == 0)
            yes = lf_jv_true(&e);
        if (rc == 0 && yes == want)
            rc = lf_jv_push(c, out->u.l, list.u.l->v[i]);
    }
    return rc;
}

static int map(struct jctx *c, struct jv *out, const struct jv *v, struct jargs *a)
{
    const struct jv *attr = lf_jinja_arg(a, 99, "attribute"), *def = lf_jinja_arg(a, 99, "default");
    struct jv list;
    if (!(attr && attr->t == V_STR) && (a->n < 1 || a->v[0].t != V_STR || !lf_jinja_is_filter(a->v[0].u.s, a->v[0].n)))
        return lf_jv_fail(c, "map needs attribute=NAME or the name of a filter");
    int rc = lf_jv_iterate(c, &list, v);
    rc = rc ? rc : lf_jv_list(c, out, 0);
    for (size_t i = 0; rc == 0 && i < list.u.l->n; i++) {
        struct jv e;
        struct jargs r = rest_args(a, 1);
        if (attr)
            rc = lf_jinja_attr(c, &e, &list.u.l->v[i], attr->u.s, attr->n);
        else
            rc = lf_jinja_filter(c, &e, &list.u.l->v[i], a->v[0].u.s, a->v[0].n, &r);
        if (rc == 0 && e.t == V_UNDEFINED && def)
            e = *def;
        rc = rc ? rc : lf_jv_push(c, out->u.l, e);
    }
    return rc;
}

/* Insertion keeps the order of equals, and lists of a template are short. by: member, or NULL; pairs: by key or value.
 */
static int sort(struct jctx *c, struct jv *out, const struct jv *v, const struct jv *by, int pair, bool reverse)
{
    struct jv list;
    int rc = lf_jv_iterate(c, &list, v);
    rc = rc ? rc : lf_jv_list(c, out, 0);
    for (size_t i = 0; rc == 0 && i < list.u.l->n; i++) {
        rc = lf_jv_push(c, out->u.l, list.u.l->v[i]);
        for (size_t k = i; rc == 0 && k > 0; k--) {
            struct jv *p = out->u.l->v, x = p[k - 1], y = p[k], low;
            struct jv *both[] = {&x, &y};
            int r = 0;
            for (int m = 0; m < 2 && rc == 0; m++) {
                if (pair >= 0)
                    *both[m] = both[m]->u.l->v[pair];
                if (by && by->t == V_STR)
                    rc = lf_jinja_attr(c, both[m], &p[k - 1 + (size_t)m], by->u.s, by->n);
                if (rc == 0 && both[m]->t == V_STR) { /* case_sensitive is off */
                    rc = lf_jv_copy_str(c, &low, both[m]->u.s, both[m]->n);
                    char *t = NULL;
                    if (rc == 0)
                        memcpy(&t, &low.u.s, sizeof t);
                    for (size_t q = 0; rc == 0 && q < low.n; q++)
                        t[q] = (char)(t[q] >= 'A' && t[q] <= 'Z' ? t[q] | 0x20 : t[q]);
                    *both[m] = low;
                }
            }
            c->steps++;
            rc = rc ? rc : lf_jv_compare(c, &r, &x, &y);
            if (rc < 0 || (reverse ? r >= 0 : r <= 0))
                break;
            struct jv t = p[k];
            p[k] = p[k - 1];
            p[k - 1] = t;
        }
        if (c->steps > c->step_limit)
            return lf_jv_fail(c, "too many steps");
    }
    return rc;
}

static int extreme(struct jctx *c, struct jv *out, const struct jlist *l, bool max)
{
    *out = (struct jv){.t = V_UNDEFINED, .u.s = "no element"};
    for (size_t i = 0; i < l->n; i++) {
        int r = 0, rc = i ? lf_jv_compare(c, &r, &l->v[i], out) : 0;
        if (rc < 0)
            return rc;
        if (i == 0 || (max ? r > 0 : r < 0))
            *out = l->v[i];
    }
    return 0;
}

static int sum(struct jctx *c, struct jv *out, const struct jlist *l)
{
    double f = 0;
    int64_t n = 0;
    bool real = false;
    for (size_t i = 0; i < l->n; i++) {
        if (l->v[i].t != V_INT && l->v[i].t != V_FLOAT)
            return lf_jv_fail(c, "sum of a value of type %s", lf_jv_type(&l->v[i]));
        real = real || l->v[i].t == V_FLOAT;
        f += l->v[i].t == V_FLOAT ? l->v[i].u.f : (double)l->v[i].u.i;
        if (l->v[i].t == V_INT && __builtin_add_overflow(n, l->v[i].u.i, &n))
            return lf_jv_fail(c, "a number leaves 64 bits");
    }
    *out = real ? lf_jv_float(f) : lf_jv_int(n);
    return 0;
}

static int over_list(struct jctx *c, struct jv *out, const struct jv *v, const char *s, size_t n)
{
    struct jv list;
    int rc = lf_jv_iterate(c, &list, v);
    if (rc < 0)
        return rc;
    struct jlist *l = list.u.l;
    if (is("first", s, n) || is("last", s, n)) {
        *out = l->n ? l->v[s[0] == 'f' ? 0 : l->n - 1] : (struct jv){.t = V_UNDEFINED, .u.s = "no element"};
    } else if (is("list", s, n)) {
        *out = list;
    } else if (is("max", s, n) || is("min", s, n)) {
        return extreme(c, out, l, s[1] == 'a');
    } else if (is("sum", s, n)) {
        return sum(c, out, l);
    } else if (is("reverse", s, n)) {
        for (size_t i = 0; i < l->n / 2; i++) {
            struct jv t = l->v[i];
            l->v[i] = l->v[l->n - 1 - i];
            l->v[l->n - 1 - i] = t;
        }
        *out = list;
    } else { /* unique */
        rc = lf_jv_list(c, out, 0);
        for (size_t i = 0; i < l->n && rc == 0; i++) {
            bool seen = false;
            for (size_t k = 0; k < out->u.l->n && !seen; k++)
                seen = lf_jv_equal(&out->u.l->v[k], &l->v[i], 0);
            rc = seen ? 0 : lf_jv_push(c, out->u.l, l->v[i]);
        }
    }
    return rc;
}

static int to_number(struct jctx *c, struct jv *out, const struct jv *v, bool real, struct jargs *a)
{
    const struct jv *def = lf_jinja_arg(a, 0, "default");
    char b[64];
    double f = 0;
    int64_t i = 0;
    bool ok = v->t == V_INT || v->t == V_BOOL || (v->t == V_FLOAT && fabs(v->u.f) < 9e18);
    if (ok) {
        f = v->t == V_FLOAT ? v->u.f : v->t == V_BOOL ? v->flag : (double)v->u.i;
        i = v->t == V_FLOAT ? (int64_t)v->u.f : v->t == V_BOOL ? v->flag : v->u.i;
    } else if (v->t == V_STR) {
        struct jv s = strip(v, NULL, true, true);
        snprintf(b, sizeof b, "%.*s", (int)(s.n < 63 ? s.n : 63), s.u.s);
        ok = lf_parse_f64(&f, b, NULL) == 0 && fabs(f) < 9e18;
        if (ok && lf_parse_i64(&i, b, NULL) < 0)
            i = (int64_t)f;
    }
    if (!ok)
        *out = def ? *def : real ? lf_jv_float(0) : lf_jv_int(0);
    else
        *out = real ? lf_jv_float(f) : lf_jv_int(i);
    (void)c;
    return 0;
}

static int length(struct jctx *c, struct jv *out, const struct jv *v)
{
    if (v->t != V_STR && v->t != V_LIST && !(v->t == V_DICT && !v->flag) && v->t != V_UNDEFINED)
        return lf_jv_fail(c, "%s has no length", lf_jv_type(v));
    *out = lf_jv_int((int64_t)(v->t == V_STR    ? lf_jv_chars(v)
                               : v->t == V_LIST ? v->u.l->n
                               : v->t == V_DICT ? v->u.d->n
                                                : 0));
    return 0;
}

static int reverse_text(struct jctx *c, struct jv *out, const struct jv *v)
{
    struct jv list;
    struct jargs none = {.n = 0};
    int rc = over_list(c, &list, v, "reverse", 7);
    return rc ? rc : join(c, out, &list, &none);
}

int lf_jinja_filter(struct jctx *c, struct jv *out, const struct jv *v, const char *s, size_t n, struct jargs *a)
{
    struct jv text, pairs;
    int rc;
    if (is("default", s, n) || is("d", s, n)) {
        const struct jv *def = lf_jinja_arg(a, 0, "default_value"), *falsy = lf_jinja_arg(a, 1, "boolean");
        bool use = v->t == V_UNDEFINED || (falsy && lf_jv_true(falsy) && !lf_jv_true(v));
        *out = !use ? *v : def ? *def : lf_jv_str("", 0);
        rc = 0;
    } else if (is("tojson", s, n)) {
        rc = to_json(c, out, v, a);
    } else if (is("length", s, n) || is("count", s, n)) {
        rc = length(c, out, v);
    } else if (is("join", s, n)) {
        rc = join(c, out, v, a);
    } else if (is("map", s, n)) {
        return map(c, out, v, a);
    } else if (is("select", s, n) || is("reject", s, n) || is("selectattr", s, n) || is("rejectattr", s, n)) {
        return choose(c, out, v, s, n, a);
    } else if (is("int", s, n) || is("float", s, n)) {
        rc = to_number(c, out, v, s[0] == 'f', a);
    } else if (is("abs", s, n)) {
        *out = v->t == V_FLOAT ? lf_jv_float(fabs(v->u.f))
                               : lf_jv_int(v->t == V_INT && v->u.i > INT64_MIN ? (v->u.i < 0 ? -v->u.i : v->u.i) : 0);
        rc = v->t == V_FLOAT || v->t == V_INT ? 0 : lf_jv_fail(c, "abs of a value of type %s", lf_jv_type(v));
    } else if (is("round", s, n)) {
        const struct jv *p = lf_jinja_arg(a, 0, "precision");
        double f = v->t == V_FLOAT ? v->u.f
                   : v->t == V_INT ? (double)v->u.i
                                   : (double)NAN,
               scale = pow(10, p && p->t == V_INT ? (double)p->u.i : 0);
        *out = lf_jv_float(rint(f * scale) / scale);
        rc = isnan(f) ? lf_jv_fail(c, "round of a value of type %s", lf_jv_type(v)) : 0;
    } else if (is("items", s, n) || is("dictsort", s, n)) {
        if (v->t != V_DICT && v->t != V_UNDEFINED)
            return lf_jv_fail(c, "%.*s of a value of type %s", (int)n, s, lf_jv_type(v));
        rc = v->t == V_DICT ? dict_list(c, &pairs, v->u.d, "items") : lf_jv_list(c, &pairs, 0);
        *out = pairs;
        if (rc == 0 && s[0] == 'd')
            rc = sort(c, out, &pairs, NULL, 0, false);
    } else if (is("sort", s, n)) {
        const struct jv *rev = lf_jinja_arg(a, 0, "reverse"), *by = lf_jinja_arg(a, 2, "attribute");
        rc = sort(c, out, v, by, -1, rev && lf_jv_true(rev));
    } else if (is("reverse", s, n) && v->t == V_STR) {
        rc = reverse_text(c, out, v);
    } else if (is("first", s, n) || is("last", s, n) || is("list", s, n) || is("max", s, n) || is("min", s, n) ||
               is("sum", s, n) || is("reverse", s, n) || is("unique", s, n)) {
        rc = over_list(c, out, v, s, n);
    } else {
        rc = as_text(c, &text, v);
        if (rc < 0)
            return rc;
        *out = text;
        if (is("trim", s, n))
            *out = strip(&text, lf_jinja_arg(a, 0, "chars"), true, true);
        else if (is("replace", s, n))
            rc = replace(c, out, &text, a);
        else if (!is("string", s, n) && !is("safe", s, n))
            rc = change_case(c, out, &text,
                             is("lower", s, n)   ? LOWER
                             : is("upper", s, n) ? UPPER
                             : is("title", s, n) ? TITLE
                                                 : CAPITALIZE);
    }
    return rc ? rc : lf_jinja_args_end(c, a, 3, "the filter");
}

/* ---- global functions ---- */

static int range(struct jctx *c, struct jv *out, struct jargs *a)
{
    int64_t v[3] = {0, 0, 1};
    for (size_t i = 0; i < a->n && i < 3; i++) {
        if (a->v[i].t != V_INT)
            return lf_jv_fail(c, "range needs whole numbers");
        v[i] = a->v[i].u.i;
    }
    if (a->n == 1) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (a->n < 1 || v[2] == 0 || llabs(v[0]) > 10000000 || llabs(v[1]) > 10000000)
        return lf_jv_fail(c, "range of this size is not possible");
    int rc = lf_jv_list(c, out, 0);
    for (int64_t i = v[0]; rc == 0 && (v[2] > 0 ? i < v[1] : i > v[1]); i += v[2])
        rc = lf_jv_push(c, out->u.l, lf_jv_int(i));
    return rc;
}

int lf_jinja_global(struct jctx *c, struct jv *out, const char *name, struct jargs *a)
{
    int rc;
    if (strcmp(name, "raise_exception") == 0) {
        struct jv text = lf_jv_str("", 0);
        rc = a->n ? as_text(c, &text, &a->v[0]) : 0;
        return rc ? rc
                  : lf_jinja_fail(c->t, c->at, c->err, LF_EINVAL, "the template refuses: %.*s",
                                  (int)(text.n < 500 ? text.n : 500), text.u.s);
    }
    if (strcmp(name, "range") == 0)
        return range(c, out, a);
    if (strcmp(name, "strftime_now") == 0) {
        char b[200], fmt[100];
        struct tm tm;
        time_t now = (time_t)c->lim->now;
        if (a->n != 1 || a->v[0].t != V_STR || a->v[0].n >= sizeof fmt || !gmtime_r(&now, &tm))
            return lf_jv_fail(c, "strftime_now needs a format");
        snprintf(fmt, sizeof fmt, "%.*s", (int)a->v[0].n, a->v[0].u.s);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* the format is the template's; what it writes is bounded */
        size_t n = strftime(b, sizeof b, fmt, &tm);
#pragma GCC diagnostic pop
        return lf_jv_copy_str(c, out, b, n);
    }
    rc = lf_jv_dict(c, out);
    if (rc == 0 && a->n > 1)
        return lf_jv_fail(c, "%s takes one mapping and names", name);
    if (rc == 0 && a->n == 1 && a->v[0].t != V_DICT)
        return lf_jv_fail(c, "%s of a value of type %s", name, lf_jv_type(&a->v[0]));
    for (size_t i = 0; rc == 0 && a->n == 1 && i < a->v[0].u.d->n; i++)
        rc = lf_jv_put(c, out->u.d, a->v[0].u.d->key[i], a->v[0].u.d->val[i]);
    for (size_t k = 0; rc == 0 && k < a->n_kw; k++)
        rc = lf_jv_put(c, out->u.d, lf_jv_str(a->kw[k].s, a->kw[k].n), a->kw[k].v);
    out->flag = strcmp(name, "namespace") == 0;
    return rc;
}
