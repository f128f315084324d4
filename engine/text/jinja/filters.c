/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters. Where Jinja gives a generator, a list is given: templates cannot tell them apart but by
 * printing one. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/text/jinja/priv.h"

#define FILTER(name)                                                                               \
    static lf_jj_val name(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v, const lf_jj_args *a)
#define ARGS(what, least, most, ...)                                                               \
    static const char *const keywords_[] = {__VA_ARGS__ __VA_OPT__(, ) NULL};                      \
    if (!lf_jj_args_ok(r, at, what, a, least, most, keywords_))                                    \
    return lf_jj_undef

/* ---- text ---- */

FILTER(f_string)
{
    ARGS("string", 0, 0);
    return lf_jj_to_str(r, v);
}
FILTER(f_safe)
{
    ARGS("safe", 0, 0);
    lf_jj_val s = lf_jj_to_str(r, v);
    s.pad = 1; /* Markup: see + */
    return s;
}
FILTER(f_escape)
{
    static const char from[] = "&<>'\"", *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    ARGS("escape", 0, 0);
    lf_jj_val s = lf_jj_to_str(r, v);
    lf_buf b;
    if (r->rc || s.pad)
        return s;
    lf_buf_init(&b);
    for (size_t i = 0; i < s.n; i++) {
        const char *p = s.u.s[i] ? strchr(from, s.u.s[i]) : NULL;
        if (p)
            lf_buf_adds(&b, to[p - from]);
        else
            lf_buf_addc(&b, s.u.s[i]);
    }
    s = lf_jj_str_take(r, &b);
    s.pad = 1;
    return s;
}
FILTER(f_upper)
{
    ARGS("upper", 0, 0);
    v = lf_jj_to_str(r, v);
    return r->rc ? v : lf_jj_change_case(r, v, LF_JJ_UPPER);
}
FILTER(f_lower)
{
    ARGS("lower", 0, 0);
    v = lf_jj_to_str(r, v);
    return r->rc ? v : lf_jj_change_case(r, v, LF_JJ_LOWER);
}
FILTER(f_capitalize)
{
    ARGS("capitalize", 0, 0);
    v = lf_jj_to_str(r, v);
    return r->rc ? v : lf_jj_change_case(r, v, LF_JJ_CAPITALIZE);
}

/* A word begins after blanks, '-' and opening brackets only, unlike str.title(). */
FILTER(f_title)
{
    ARGS("title", 0, 0);
    lf_buf b;
    size_t len;
    bool inside = false;
    v = lf_jj_to_str(r, v);
    if (r->rc)
        return v;
    lf_buf_init(&b);
    for (size_t i = 0; i < v.n; i += len) {
        int32_t c = lf_jj_char(v.u.s + i, v.n - i, &len);
        utf8proc_uint8_t u[4];
        int32_t to = inside ? utf8proc_tolower(c) : utf8proc_toupper(c);
        lf_buf_add(&b, u, (size_t)utf8proc_encode_char(to, u));
        inside = !(lf_jj_is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<');
    }
    return lf_jj_str_take(r, &b);
}

FILTER(f_trim)
{
    ARGS("trim", 0, 1, "chars");
    lf_jj_val set = lf_jj_arg(a, 0, "chars", lf_jj_none);
    v = lf_jj_to_str(r, v);
    if (set.t != LF_JJ_NONE && set.t != LF_JJ_STR)
        return lf_jj_fail(r, at, "trim wants a str, not a %s", lf_jj_type_name(set));
    return r->rc ? v : lf_jj_strip(v, set.u.s, set.t == LF_JJ_NONE ? SIZE_MAX : set.n, 3);
}

FILTER(f_replace)
{
    ARGS("replace", 2, 3, "old", "new", "count");
    lf_jj_val from = lf_jj_to_str(r, lf_jj_arg(a, 0, "old", lf_jj_undef)),
              to = lf_jj_to_str(r, lf_jj_arg(a, 1, "new", lf_jj_undef)),
              count = lf_jj_arg(a, 2, "count", lf_jj_none);
    v = lf_jj_to_str(r, v);
    return r->rc ? v : lf_jj_replace(r, v, from, to, count.t == LF_JJ_INT ? count.u.i : -1);
}

FILTER(f_wordcount)
{
    ARGS("wordcount", 0, 0);
    int64_t n = 0;
    size_t len;
    bool inside = false;
    v = lf_jj_to_str(r, v);
    for (size_t i = 0; r->rc == 0 && i < v.n; i += len) {
        utf8proc_category_t k = utf8proc_category(lf_jj_char(v.u.s + i, v.n - i, &len));
        bool word = (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
                    (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO) || v.u.s[i] == '_';
        n += word && !inside;
        inside = word;
    }
    return lf_jj_int(n);
}

static lf_jj_val method_of(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v, const char *name)
{
    bool changes;
    static const lf_jj_args none;
    return lf_jj_find_method(v, name, &changes)(r, at, v, &none);
}

FILTER(f_indent)
{
    ARGS("indent", 0, 3, "width", "first", "blank");
    lf_jj_val width = lf_jj_arg(a, 0, "width", lf_jj_int(4)), by = width;
    bool first = lf_jj_truth(lf_jj_arg(a, 1, "first", lf_jj_bool(false))),
         blank = lf_jj_truth(lf_jj_arg(a, 2, "blank", lf_jj_bool(false)));
    if (width.t == LF_JJ_INT)
        by = lf_jj_binary(r, at, "*", lf_jj_strz(" "), width);
    v = lf_jj_binary(r, at, "~", v, lf_jj_strz("\n"));
    if (r->rc || by.t != LF_JJ_STR)
        return lf_jj_fail(r, at, "indent wants a width");
    const struct lf_jj_seq *lines = method_of(r, at, v, "splitlines").u.seq;
    lf_buf b;
    lf_buf_init(&b);
    for (size_t i = 0; r->rc == 0 && i < lines->n; i++) {
        if (i > 0)
            lf_buf_addc(&b, '\n');
        if (i == 0 ? first : blank || lines->v[i].n > 0)
            lf_buf_add(&b, by.u.s, by.n);
        lf_buf_add(&b, lines->v[i].u.s, lines->v[i].n);
    }
    return lf_jj_str_take(r, &b);
}

/* ---- numbers ---- */

FILTER(f_abs)
{
    ARGS("abs", 0, 0);
    if (!lf_jj_is_number(v))
        return lf_jj_fail(r, at, "abs of a %s", v.t == LF_JJ_UNDEF ? v.u.s : lf_jj_type_name(v));
    return lf_jj_as_float(v) < 0 ? lf_jj_unary(r, at, "-", v) : lf_jj_unary(r, at, "+", v);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A whole str as a number, blanks around it and '_' between digits allowed. */
static bool whole_number(lf_jj_run *r, lf_jj_val v, bool real, lf_jj_val *out)
{
    lf_jj_val s = lf_jj_strip(v, NULL, SIZE_MAX, 3);
    char *text = lf_jj_alloc(r, s.n + 1, 1), *end;
    size_t n = 0;
    for (size_t i = 0; text && i < s.n; i++) {
        unsigned char c = (unsigned char)s.u.s[i];
        if (c >= 0x80 &&
            utf8proc_category(lf_jj_char(s.u.s + i, s.n - i, &(size_t){0})) == UTF8PROC_CATEGORY_ND)
            r->rc = lf_fail(r->err, LF_ENOTSUP,
                            "%s: digits outside of ASCII are not supported by int and float",
                            r->t->name);
        bool between =
            c == '_' && i > 0 && i + 1 < s.n && is_digit(s.u.s[i - 1]) && is_digit(s.u.s[i + 1]);
        if (!between)
            text[n++] = (char)c;
    }
    if (r->rc || n == 0 || strpbrk(text, "xX() ") || strlen(text) != n)
        return false;
    errno = 0;
    if (real)
        *out = lf_jj_float(strtod(text, &end));
    else
        *out = lf_jj_int(strtoll(text, &end, 10));
    return *end == 0 && (real || errno == 0);
}

FILTER(f_int)
{
    ARGS("int", 0, 2, "default", "base");
    lf_jj_val def = lf_jj_arg(a, 0, "default", lf_jj_int(0)), out, real;
    if (lf_jj_arg_given(a, 1, "base"))
        return lf_jj_fail_rc(r, at, LF_ENOTSUP, "int: a base is not supported");
    if (v.t == LF_JJ_UNDEF)
        return lf_jj_fail(r, at, "%s", v.u.s);
    if (v.t == LF_JJ_BOOL)
        return lf_jj_int(v.u.b);
    if (v.t == LF_JJ_INT)
        return v;
    if (v.t == LF_JJ_STR && whole_number(r, v, false, &out))
        return out;
    if (v.t != LF_JJ_FLOAT && !(v.t == LF_JJ_STR && whole_number(r, v, true, &real)))
        return def;
    double f = v.t == LF_JJ_FLOAT ? v.u.f : real.u.f;
    return fabs(f) < 9.2e18 ? lf_jj_int((int64_t)f) : def;
}

FILTER(f_float)
{
    ARGS("float", 0, 1, "default");
    lf_jj_val out;
    if (v.t == LF_JJ_UNDEF)
        return lf_jj_fail(r, at, "%s", v.u.s);
    if (lf_jj_is_number(v))
        return lf_jj_float(lf_jj_as_float(v));
    return v.t == LF_JJ_STR && whole_number(r, v, true, &out)
               ? out
               : lf_jj_arg(a, 0, "default", lf_jj_float(0));
}

FILTER(f_round)
{
    ARGS("round", 0, 2, "precision", "method");
    lf_jj_val precision = lf_jj_arg(a, 0, "precision", lf_jj_int(0)),
              method = lf_jj_arg(a, 1, "method", lf_jj_strz("common"));
    char text[400];
    if (!lf_jj_is_number(v) || precision.t != LF_JJ_INT || precision.u.i < -15 ||
        precision.u.i > 15 || method.t != LF_JJ_STR)
        return lf_jj_fail(r, at, "round wants a number, and a precision of -15 to 15");
    int p = (int)precision.u.i;
    double f = lf_jj_as_float(v), scale = pow(10, p);
    if (lf_jj_equal(method, lf_jj_strz("ceil")))
        return lf_jj_float(ceil(f * scale) / scale);
    if (lf_jj_equal(method, lf_jj_strz("floor")))
        return lf_jj_float(floor(f * scale) / scale);
    if (!lf_jj_equal(method, lf_jj_strz("common")))
        return lf_jj_fail(r, at, "round: method is common, ceil or floor");
    if (v.t != LF_JJ_FLOAT)
        return p >= 0
                   ? lf_jj_int(v.t == LF_JJ_BOOL ? v.u.b : v.u.i)
                   : lf_jj_fail_rc(r, at, LF_ENOTSUP, "round of an int to tens is not supported");
    if (p < 0)
        return lf_jj_float(nearbyint(f * scale) / scale);
    snprintf(text, sizeof(text), "%.*f", p, f); /* exact, half to even, as Python's */
    return lf_jj_float(strtod(text, NULL));
}

/* ---- collections ---- */

FILTER(f_length)
{
    ARGS("length", 0, 0);
    int64_t n = lf_jj_length(r, at, v);
    return r->rc ? lf_jj_undef : lf_jj_int(n);
}
FILTER(f_list)
{
    ARGS("list", 0, 0);
    lf_jj_val s = lf_jj_iter(r, at, v);
    if (r->rc || !s.u.seq->tuple)
        return s;
    lf_jj_val out = lf_jj_seq_make(r, s.u.seq->n, false);
    if (r->rc == 0 && s.u.seq->n)
        memcpy(out.u.seq->v, s.u.seq->v, s.u.seq->n * sizeof(lf_jj_val));
    return out;
}
FILTER(f_first)
{
    ARGS("first", 0, 0);
    lf_jj_val s = lf_jj_iter(r, at, v);
    return r->rc        ? s
           : s.u.seq->n ? s.u.seq->v[0]
                        : lf_jj_undefined(r, "No first item, sequence was empty.");
}
FILTER(f_last)
{
    ARGS("last", 0, 0);
    lf_jj_val s = lf_jj_iter(r, at, v);
    return r->rc        ? s
           : s.u.seq->n ? s.u.seq->v[s.u.seq->n - 1]
                        : lf_jj_undefined(r, "No last item, sequence was empty.");
}
FILTER(f_items)
{
    ARGS("items", 0, 0);
    if (v.t == LF_JJ_UNDEF)
        return lf_jj_seq_make(r, 0, false);
    return v.t == LF_JJ_MAP ? method_of(r, at, v, "items")
                            : lf_jj_fail(r, at, "items of a %s", lf_jj_type_name(v));
}
FILTER(f_reverse)
{
    ARGS("reverse", 0, 0);
    lf_jj_val part[3] = {lf_jj_none, lf_jj_none, lf_jj_int(-1)};
    static const bool given[3] = {true, true, true};
    if (v.t != LF_JJ_STR)
        v = lf_jj_iter(r, at, v);
    return r->rc ? v : lf_jj_slice(r, at, v, part, given);
}
FILTER(f_default)
{
    ARGS("default", 0, 2, "default_value", "boolean");
    bool empty = v.t == LF_JJ_UNDEF ||
                 (lf_jj_truth(lf_jj_arg(a, 1, "boolean", lf_jj_bool(false))) && !lf_jj_truth(v));
    return empty ? lf_jj_arg(a, 0, "default_value", lf_jj_strz("")) : v;
}

/* v.a.b.0 of attribute "a.b.0"; a number is an index */
static lf_jj_val attribute(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v, lf_jj_val path)
{
    if (path.t == LF_JJ_INT)
        return lf_jj_index(r, at, v, path);
    if (path.t != LF_JJ_STR)
        return lf_jj_fail(r, at, "the name of an attribute is a str");
    for (size_t i = 0; r->rc == 0 && i <= path.n;) {
        size_t k = i;
        bool number = true;
        for (; k < path.n && path.u.s[k] != '.'; k++)
            number = number && path.u.s[k] >= '0' && path.u.s[k] <= '9';
        lf_jj_val name = lf_jj_str_copy(r, path.u.s + i, k - i);
        if (r->rc)
            break;
        v = lf_jj_index(r, at, v, number && k > i ? lf_jj_int(strtoll(name.u.s, NULL, 10)) : name);
        i = k + 1;
    }
    return v;
}

FILTER(f_join)
{
    ARGS("join", 0, 2, "d", "attribute");
    lf_jj_val sep = lf_jj_to_str(r, lf_jj_arg(a, 0, "d", lf_jj_strz(""))),
              path = lf_jj_arg(a, 1, "attribute", lf_jj_none);
    lf_jj_val items = lf_jj_iter(r, at, v);
    if (r->rc)
        return lf_jj_undef;
    if (path.t == LF_JJ_NONE)
        return lf_jj_join(r, at, items, sep, true);
    lf_jj_val of = lf_jj_seq_make(r, items.u.seq->n, false);
    for (size_t i = 0; r->rc == 0 && i < items.u.seq->n; i++)
        of.u.seq->v[i] = attribute(r, at, items.u.seq->v[i], path);
    return r->rc ? lf_jj_undef : lf_jj_join(r, at, of, sep, true);
}

FILTER(f_map)
{
    lf_jj_val items = lf_jj_truth(v) ? lf_jj_iter(r, at, v) : lf_jj_seq_make(r, 0, false);
    if (r->rc)
        return lf_jj_undef;
    lf_jj_val out = lf_jj_seq_make(r, items.u.seq->n, false);
    if (a->n == 0) {
        ARGS("map", 1, 0, "attribute", "default");
        lf_jj_val path = lf_jj_arg(a, 1, "attribute", lf_jj_undef);
        for (size_t i = 0; r->rc == 0 && i < items.u.seq->n; i++) {
            lf_jj_val x = attribute(r, at, items.u.seq->v[i], path);
            out.u.seq->v[i] = x.t == LF_JJ_UNDEF ? lf_jj_arg(a, 1, "default", x) : x;
        }
        return out;
    }
    lf_jj_val name =
        a->v[0].t == LF_JJ_STR ? lf_jj_str_copy(r, a->v[0].u.s, a->v[0].n) : lf_jj_undef;
    lf_jj_call_fn call = name.t == LF_JJ_STR ? lf_jj_find_filter(name.u.s) : NULL;
    if (!call)
        return lf_jj_fail(r, at, "map: there is no such filter");
    lf_jj_args rest = {a->v + 1, a->n - 1, a->names, a->values, a->n_names};
    for (size_t i = 0; r->rc == 0 && i < items.u.seq->n; i++)
        out.u.seq->v[i] = call(r, at, items.u.seq->v[i], &rest);
    return out;
}

/* select, reject, selectattr, rejectattr: attr: the first argument names what of each element is
 * tested. */
static lf_jj_val choose(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v, const lf_jj_args *a,
                        bool attr, bool want)
{
    lf_jj_val items = lf_jj_truth(v) ? lf_jj_iter(r, at, v) : lf_jj_seq_make(r, 0, false);
    size_t skip = attr ? 1 : 0, n = 0;
    lf_jj_call_fn test = NULL;
    if (r->rc || a->n < skip)
        return lf_jj_fail(r, at, "selectattr wants an attribute");
    if (a->n > skip) {
        lf_jj_val name = a->v[skip].t == LF_JJ_STR ? lf_jj_str_copy(r, a->v[skip].u.s, a->v[skip].n)
                                                   : lf_jj_undef;
        test = name.t == LF_JJ_STR ? lf_jj_find_test(name.u.s) : NULL;
        if (!test)
            return lf_jj_fail(r, at, "select: there is no such test");
        skip++;
    }
    lf_jj_args rest = {a->v + skip, a->n - skip, a->names, a->values, a->n_names};
    lf_jj_val out = lf_jj_seq_make(r, items.u.seq->n, false);
    for (size_t i = 0; r->rc == 0 && i < items.u.seq->n; i++) {
        lf_jj_val x = attr ? attribute(r, at, items.u.seq->v[i], a->v[0]) : items.u.seq->v[i];
        if (test && r->rc == 0)
            x = test(r, at, x, &rest);
        if (r->rc == 0 && lf_jj_truth(x) == want)
            out.u.seq->v[n++] = items.u.seq->v[i];
    }
    if (r->rc == 0)
        out.u.seq->n = n;
    return out;
}
FILTER(f_select)
{
    return choose(r, at, v, a, false, true);
}
FILTER(f_reject)
{
    return choose(r, at, v, a, false, false);
}
FILTER(f_selectattr)
{
    return choose(r, at, v, a, true, true);
}
FILTER(f_rejectattr)
{
    return choose(r, at, v, a, true, false);
}

/* ---- order ---- */

/* What an element is compared by. */
static lf_jj_val sort_key(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v, lf_jj_val path,
                          bool keep_case)
{
    if (path.t != LF_JJ_NONE)
        v = attribute(r, at, v, path);
    return r->rc == 0 && v.t == LF_JJ_STR && !keep_case ? lf_jj_change_case(r, v, LF_JJ_LOWER) : v;
}

struct merging {
    lf_jj_run *r;
    const lf_jj_node *at;
    lf_jj_val *v, *k; /* room for all values and keys */
    bool down;
};

static void merge(const struct merging *to, lf_jj_val *v, lf_jj_val *k, size_t n)
{
    if (n < 2 || to->r->rc)
        return;
    size_t m = n / 2, i = 0, j = m;
    merge(to, v, k, m);
    merge(to, v + m, k + m, n - m);
    for (size_t o = 0; o < n && to->r->rc == 0; o++) {
        bool right = i == m;
        if (i < m && j < n) {
            int c = lf_jj_order(to->r, to->at, k[j], k[i]);
            right = to->down ? c > 0 : c < 0;
        }
        to->v[o] = right ? v[j] : v[i];
        to->k[o] = right ? k[j++] : k[i++];
    }
    memcpy(v, to->v, n * sizeof(*v));
    memcpy(k, to->k, n * sizeof(*k));
}

/* Stable; the elements of items (a list made for this) in order of path. */
static lf_jj_val sorted(lf_jj_run *r, const lf_jj_node *at, lf_jj_val items, lf_jj_val path,
                        bool keep_case, bool down)
{
    size_t n = r->rc ? 0 : items.u.seq->n;
    lf_jj_val out = lf_jj_seq_make(r, n, false), keys = lf_jj_seq_make(r, n, false),
              work = lf_jj_seq_make(r, 2 * n, false);
    for (size_t i = 0; r->rc == 0 && i < n; i++) {
        out.u.seq->v[i] = items.u.seq->v[i];
        keys.u.seq->v[i] = sort_key(r, at, items.u.seq->v[i], path, keep_case);
    }
    if (r->rc == 0) {
        const struct merging to = {r, at, work.u.seq->v, work.u.seq->v + n, down};
        merge(&to, out.u.seq->v, keys.u.seq->v, n);
    }
    return r->rc ? lf_jj_undef : out;
}

FILTER(f_sort)
{
    ARGS("sort", 0, 3, "reverse", "case_sensitive", "attribute");
    return sorted(r, at, lf_jj_iter(r, at, v), lf_jj_arg(a, 2, "attribute", lf_jj_none),
                  lf_jj_truth(lf_jj_arg(a, 1, "case_sensitive", lf_jj_bool(false))),
                  lf_jj_truth(lf_jj_arg(a, 0, "reverse", lf_jj_bool(false))));
}

FILTER(f_dictsort)
{
    ARGS("dictsort", 0, 3, "case_sensitive", "by", "reverse");
    lf_jj_val by = lf_jj_arg(a, 1, "by", lf_jj_strz("key"));
    if (v.t != LF_JJ_MAP)
        return lf_jj_fail(r, at, "dictsort of a %s",
                          v.t == LF_JJ_UNDEF ? v.u.s : lf_jj_type_name(v));
    bool value = lf_jj_equal(by, lf_jj_strz("value"));
    if (!value && !lf_jj_equal(by, lf_jj_strz("key")))
        return lf_jj_fail(r, at, "dictsort: by is 'key' or 'value'");
    return sorted(r, at, method_of(r, at, v, "items"), lf_jj_int(value),
                  lf_jj_truth(lf_jj_arg(a, 0, "case_sensitive", lf_jj_bool(false))),
                  lf_jj_truth(lf_jj_arg(a, 2, "reverse", lf_jj_bool(false))));
}

static lf_jj_val extreme(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v, const lf_jj_args *a,
                         bool most)
{
    ARGS("min", 0, 2, "case_sensitive", "attribute");
    lf_jj_val items = lf_jj_iter(r, at, v), path = lf_jj_arg(a, 1, "attribute", lf_jj_none),
              best_key = lf_jj_undef;
    bool keep_case = lf_jj_truth(lf_jj_arg(a, 0, "case_sensitive", lf_jj_bool(false)));
    if (r->rc)
        return lf_jj_undef;
    if (items.u.seq->n == 0)
        return lf_jj_undefined(r, "No aggregated item, sequence was empty.");
    size_t best = 0;
    for (size_t i = 0; r->rc == 0 && i < items.u.seq->n; i++) {
        lf_jj_val k = sort_key(r, at, items.u.seq->v[i], path, keep_case);
        int c = i == 0 || r->rc ? 0 : lf_jj_order(r, at, k, best_key);
        if (i > 0 && !(most ? c > 0 : c < 0))
            continue;
        best = i;
        best_key = k;
    }
    return items.u.seq->v[best];
}
FILTER(f_min)
{
    return extreme(r, at, v, a, false);
}
FILTER(f_max)
{
    return extreme(r, at, v, a, true);
}

FILTER(f_sum)
{
    ARGS("sum", 0, 2, "attribute", "start");
    lf_jj_val items = lf_jj_iter(r, at, v), path = lf_jj_arg(a, 0, "attribute", lf_jj_none),
              total = lf_jj_arg(a, 1, "start", lf_jj_int(0));
    for (size_t i = 0; r->rc == 0 && i < items.u.seq->n; i++) {
        lf_jj_val x =
            path.t == LF_JJ_NONE ? items.u.seq->v[i] : attribute(r, at, items.u.seq->v[i], path);
        total = r->rc ? lf_jj_undef : lf_jj_binary(r, at, "+", total, x);
    }
    return total;
}

FILTER(f_unique)
{
    ARGS("unique", 0, 2, "case_sensitive", "attribute");
    lf_jj_val items = lf_jj_iter(r, at, v), path = lf_jj_arg(a, 1, "attribute", lf_jj_none);
    bool keep_case = lf_jj_truth(lf_jj_arg(a, 0, "case_sensitive", lf_jj_bool(false)));
    size_t n = r->rc ? 0 : items.u.seq->n, kept = 0;
    lf_jj_val out = lf_jj_seq_make(r, n, false), keys = lf_jj_seq_make(r, n, false);
    for (size_t i = 0; r->rc == 0 && i < n; i++) {
        lf_jj_val k = sort_key(r, at, items.u.seq->v[i], path, keep_case);
        bool seen = !lf_jj_hashable(r, at, k);
        for (size_t j = 0; !seen && j < kept; j++)
            seen = lf_jj_equal(k, keys.u.seq->v[j]);
        if (seen)
            continue;
        keys.u.seq->v[kept] = k;
        out.u.seq->v[kept++] = items.u.seq->v[i];
        r->steps += kept;
    }
    if (r->rc == 0)
        out.u.seq->n = kept;
    return out;
}

lf_jj_call_fn lf_jj_find_filter(const char *name)
{
    static const struct {
        const char *name;
        lf_jj_call_fn call;
    } table[] = {{"abs", f_abs},
                 {"capitalize", f_capitalize},
                 {"count", f_length},
                 {"d", f_default},
                 {"default", f_default},
                 {"dictsort", f_dictsort},
                 {"e", f_escape},
                 {"escape", f_escape},
                 {"first", f_first},
                 {"float", f_float},
                 {"indent", f_indent},
                 {"int", f_int},
                 {"items", f_items},
                 {"join", f_join},
                 {"last", f_last},
                 {"length", f_length},
                 {"list", f_list},
                 {"lower", f_lower},
                 {"map", f_map},
                 {"max", f_max},
                 {"min", f_min},
                 {"reject", f_reject},
                 {"rejectattr", f_rejectattr},
                 {"replace", f_replace},
                 {"reverse", f_reverse},
                 {"round", f_round},
                 {"safe", f_safe},
                 {"select", f_select},
                 {"selectattr", f_selectattr},
                 {"sort", f_sort},
                 {"string", f_string},
                 {"sum", f_sum},
                 {"title", f_title},
                 {"tojson", lf_jj_tojson},
                 {"trim", f_trim},
                 {"unique", f_unique},
                 {"upper", f_upper},
                 {"wordcount", f_wordcount}};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (strcmp(name, table[i].name) == 0)
            return table[i].call;
    return NULL;
}
