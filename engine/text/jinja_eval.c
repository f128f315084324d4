/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a chat template. Scopes are frames: the template's own, one per loop turn, one per macro call (which sees the
 * template's, not its caller's). "set" writes to the innermost frame, so what a loop sets is gone after its turn; a
 * namespace is a value that all share.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/jinja_priv.h"

int lf_jv_fail(struct jctx *c, const char *fmt, ...)
{
    char what[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return lf_jinja_fail(c->t, c->at, c->err, LF_EFORMAT, "%s", what);
}

static int eval(struct jctx *c, struct jv *out, const struct jn *n);
static int run(struct jctx *c, const struct jn *body);

static int step(struct jctx *c, const struct jn *n)
{
    c->at = n->at;
    if (++c->steps > c->step_limit)
        return lf_jinja_fail(c->t, n->at, c->err, LF_ENUMERIC, "the template takes more than %llu steps",
                             (unsigned long long)c->step_limit);
    if (c->out->len > c->out_limit)
        return lf_jinja_fail(c->t, n->at, c->err, LF_ENUMERIC, "the template writes more than %zu bytes", c->out_limit);
    return 0;
}

/* ---- names ---- */

static const struct jv *lookup(const struct jctx *c, const char *s, size_t n)
{
    for (const struct frame *f = c->top; f; f = f->up) {
        const struct jv *v = lf_jv_get(&f->vars, s, n);
        if (v)
            return v;
    }
    return NULL;
}

static int assign(struct jctx *c, const struct jn *name, struct jv v)
{
    return lf_jv_put(c, &c->top->vars, lf_jv_str(name->s, name->n), v);
}

int lf_jinja_attr(struct jctx *c, struct jv *out, const struct jv *v, const char *s, size_t n)
{
    if (v->t == V_UNDEFINED)
        return lf_jv_fail(c, "'%.60s' is undefined; it has no member '%.*s'", v->u.s ? v->u.s : "value",
                          (int)(n < 60 ? n : 60), s);
    if (!(v->t == V_DICT && v->flag) && lf_jinja_has_method(v, s, n)) {
        struct jv *self = lf_jv_alloc(c, 1, sizeof *self);
        struct jv name;
        if (!self || lf_jv_copy_str(c, &name, s, n) < 0)
            return LF_ENOMEM;
        *self = *v;
        *out = (struct jv){.t = V_METHOD, .u.s = name.u.s, .self = self};
        return 0;
    }
    const struct jv *m = v->t == V_DICT ? lf_jv_get(v->u.d, s, n) : NULL;
    if (m) {
        *out = *m;
        return 0;
    }
    struct jv name;
    if (lf_jv_copy_str(c, &name, s, n) < 0)
        return LF_ENOMEM;
    *out = (struct jv){.t = V_UNDEFINED, .u.s = name.u.s};
    return 0;
}

/* Characters [from, to) of a text of valid UTF-8. */
static struct jv part_of(const struct jv *v, size_t from, size_t to)
{
    size_t b = 0, e, k = 0;
    while (b < v->n && k < from)
        for (b++, k++; b < v->n && ((unsigned char)v->u.s[b] & 0xC0) == 0x80;)
            b++;
    for (e = b; e < v->n && k < to; k++)
        for (e++; e < v->n && ((unsigned char)v->u.s[e] & 0xC0) == 0x80;)
            e++;
    return lf_jv_str(v->u.s + b, e - b);
}

static int item(struct jctx *c, struct jv *out, const struct jv *v, const struct jv *key)
{
    *out = (struct jv){.t = V_UNDEFINED};
    if (v->t == V_UNDEFINED)
        return lf_jv_fail(c, "'%.60s' is undefined; it has no items", v->u.s ? v->u.s : "value");
    if ((v->t == V_LIST || v->t == V_STR) && (key->t == V_INT || key->t == V_BOOL)) {
        int64_t n = (int64_t)(v->t == V_LIST ? v->u.l->n : lf_jv_chars(v)), i = key->t == V_BOOL ? key->flag : key->u.i;
        i += i < 0 ? n : 0;
        if (i >= 0 && i < n)
            *out = v->t == V_LIST ? v->u.l->v[i] : part_of(v, (size_t)i, (size_t)i + 1);
        return 0;
    }
    const struct jv *m = v->t == V_DICT ? lf_jv_find(v->u.d, key) : NULL;
    if (m)
        *out = *m;
    else if (key->t == V_STR)
        return lf_jinja_attr(c, out, v, key->u.s, key->n);
    return 0;
}

/* Bounds of a slice as Python's slice.indices. */
static int bound(struct jctx *c, int64_t *out, const struct jn *n, int64_t len, int64_t dir, bool end)
{
    struct jv v;
    if (!n) {
        *out = dir > 0 ? (end ? len : 0) : (end ? -1 : len - 1);
        return 0;
    }
    int rc = eval(c, &v, n);
    if (rc < 0 || v.t == V_NONE)
        return rc < 0 ? rc : bound(c, out, NULL, len, dir, end);
    if (v.t != V_INT)
        return lf_jv_fail(c, "a bound of a slice is of type %s", lf_jv_type(&v));
    int64_t i = v.u.i, low = dir > 0 ? 0 : -1, high = dir > 0 ? len : len - 1;
    i = i < 0 ? (i < -len ? low : i + len) : i;
    *out = i < low ? low : i > high ? high : i;
    return 0;
}

static int slice(struct jctx *c, struct jv *out, const struct jv *v, const struct jn *n)
{
    struct jv st = lf_jv_int(1), list;
    int64_t b = 0, e = 0, len;
    int rc = n->d ? eval(c, &st, n->d) : 0;
    if (rc == 0 && v->t != V_LIST && v->t != V_STR)
        return lf_jv_fail(c, "%s cannot be sliced", lf_jv_type(v));
    if (rc == 0 && (st.t != V_INT || st.u.i == 0))
        return lf_jv_fail(c, "the step of a slice is no number, or 0");
    len = rc ? 0 : (int64_t)(v->t == V_LIST ? v->u.l->n : lf_jv_chars(v));
    rc = rc ? rc : bound(c, &b, n->b, len, st.u.i, false);
    rc = rc ? rc : bound(c, &e, n->c, len, st.u.i, true);
    if (rc == 0 && v->t == V_STR && st.u.i == 1) {
        *out = part_of(v, (size_t)b, (size_t)(e > b ? e : b));
        return 0;
    }
    rc = rc ? rc : lf_jv_list(c, &list, 0);
    for (int64_t i = b; rc == 0 && (st.u.i > 0 ? i < e : i > e); i += st.u.i)
        rc = lf_jv_push(c, list.u.l, v->t == V_LIST ? v->u.l->v[i] : part_of(v, (size_t)i, (size_t)i + 1));
    if (rc < 0 || v->t == V_LIST) {
        list.flag = rc == 0 && v->flag;
        *out = list;
        return rc;
    }
    lf_buf buf;
    lf_buf_init(&buf);
    for (size_t i = 0; i < list.u.l->n; i++)
        lf_buf_add(&buf, list.u.l->v[i].u.s, list.u.l->v[i].n);
    rc = lf_jv_copy_str(c, out, buf.data, buf.len);
    lf_buf_fini(&buf);
    return rc;
}

/* ---- operators ---- */

static double as_float(const struct jv *v)
{
    return v->t == V_FLOAT ? v->u.f : v->t == V_INT ? (double)v->u.i : v->flag;
}

static bool number(const struct jv *v)
{
    return v->t == V_INT || v->t == V_FLOAT || v->t == V_BOOL;
}

static int int_op(struct jctx *c, struct jv *out, int op, int64_t x, int64_t y)
{
    int64_t r = 0;
    bool bad = false;
    if ((op == O_DIV || op == O_FLOORDIV || op == O_MOD) && y == 0)
        return lf_jv_fail(c, "division by zero");
    if (op == O_DIV) {
        *out = lf_jv_float((double)x / (double)y);
        return 0;
    }
    if (op == O_ADD || op == O_SUB || op == O_MUL) {
        bad = op == O_ADD   ? __builtin_add_overflow(x, y, &r)
              : op == O_SUB ? __builtin_sub_overflow(x, y, &r)
                            : __builtin_mul_overflow(x, y, &r);
    } else if (op == O_POW) {
        if (y < 0) {
            *out = lf_jv_float(pow((double)x, (double)y));
            return 0;
        }
        for (r = 1; y > 0 && !bad && !(x == 0 || x == 1); y--)
            bad = __builtin_mul_overflow(r, x, &r);
        r = x == 0 && y > 0 ? 0 : r;
    } else {
        bad = x == INT64_MIN && y == -1;
        r = bad ? 0 : op == O_MOD ? x % y : x / y;
        if (!bad && x % y != 0 && (x < 0) != (y < 0)) /* Python rounds down */
            r += op == O_MOD ? y : -1;
    }
    if (bad)
        return lf_jv_fail(c, "a number leaves 64 bits");
    *out = lf_jv_int(r);
    return 0;
}

static int float_op(struct jctx *c, struct jv *out, int op, double x, double y)
{
    if ((op == O_DIV || op == O_FLOORDIV || op == O_MOD) && !(y < 0) && !(y > 0))
        return lf_jv_fail(c, "division by zero");
    double m = op == O_MOD ? fmod(x, y) : 0;
    *out = lf_jv_float(op == O_ADD                            ? x + y
                       : op == O_SUB                          ? x - y
                       : op == O_MUL                          ? x * y
                       : op == O_DIV                          ? x / y
                       : op == O_FLOORDIV                     ? floor(x / y)
                       : op == O_POW                          ? pow(x, y)
                       : (m < 0 && y > 0) || (m > 0 && y < 0) ? m + y
                                                              : m);
    return 0;
}

static int joined(struct jctx *c, struct jv *out, const struct jv *a, const struct jv *b)
{
    lf_buf buf;
    lf_buf_init(&buf);
    int rc = lf_jv_to_text(c, &buf, a, false, 0);
    rc = rc ? rc : lf_jv_to_text(c, &buf, b, false, 0);
    rc = rc ? rc : lf_jv_copy_str(c, out, buf.data, buf.len);
    lf_buf_fini(&buf);
    return rc;
}

static int binary(struct jctx *c, struct jv *out, int op, const struct jv *a, const struct jv *b)
{
    static const char *const signs[] = {"", "+", "-", "*", "/", "//", "%", "**", "~"};
    if (op == O_CAT || (op == O_ADD && a->t == V_STR && b->t == V_STR))
        return joined(c, out, a, b);
    if (number(a) && number(b)) {
        bool real = a->t == V_FLOAT || b->t == V_FLOAT;
        return real ? float_op(c, out, op, as_float(a), as_float(b))
                    : int_op(c, out, op, a->t == V_BOOL ? a->flag : a->u.i, b->t == V_BOOL ? b->flag : b->u.i);
    }
    if (op == O_ADD && a->t == V_LIST && b->t == V_LIST && a->flag == b->flag) {
        int rc = lf_jv_iterate(c, out, a);
        for (size_t i = 0; i < b->u.l->n && rc == 0; i++)
            rc = lf_jv_push(c, out->u.l, b->u.l->v[i]);
        out->flag = a->flag;
        return rc;
    }
    const struct jv *text = a->t == V_STR ? a : b, *times = a->t == V_STR ? b : a;
    if (op == O_MUL && text->t == V_STR && times->t == V_INT) {
        size_t n = times->u.i > 0 ? (size_t)times->u.i : 0, bytes;
        char *s = lf_size_mul(&bytes, n, text->n) && bytes < c->mem_limit ? lf_jv_alloc(c, bytes + 1, 1) : NULL;
        if (!s)
            return lf_jv_fail(c, "a text is too long");
        for (size_t i = 0; i < n; i++)
            memcpy(s + i * text->n, text->u.s, text->n);
        *out = lf_jv_str(s, bytes);
        return 0;
    }
    return lf_jv_fail(c, "%s %s %s is not possible", lf_jv_type(a), signs[op], lf_jv_type(b));
}

static int contains(struct jctx *c, bool *out, const struct jv *a, const struct jv *b)
{
    *out = false;
    if (b->t == V_STR) {
        if (a->t != V_STR)
            return lf_jv_fail(c, "%s in a text is not possible", lf_jv_type(a));
        *out = a->n == 0 || memmem(b->u.s, b->n, a->u.s, a->n) != NULL;
    } else if (b->t == V_LIST) {
        for (size_t i = 0; i < b->u.l->n && !*out; i++)
            *out = lf_jv_equal(a, &b->u.l->v[i], 0);
    } else if (b->t == V_DICT && !b->flag) {
        *out = lf_jv_find(b->u.d, a) != NULL;
    } else if (b->t != V_UNDEFINED) {
        return lf_jv_fail(c, "nothing is in a value of type %s", lf_jv_type(b));
    }
    return 0;
}

static int compare_one(struct jctx *c, bool *out, int op, const struct jv *a, const struct jv *b)
{
    int r = 0, rc;
    if (op == O_EQ || op == O_NE) {
        *out = lf_jv_equal(a, b, 0) == (op == O_EQ);
        return 0;
    }
    if (op == O_IN || op == O_NOTIN) {
        rc = contains(c, out, a, b);
        *out = *out == (op == O_IN);
        return rc;
    }
    rc = lf_jv_compare(c, &r, a, b);
    *out = op == O_LT ? r < 0 : op == O_LE ? r <= 0 : op == O_GT ? r > 0 : r >= 0;
    return rc;
}

static int compare(struct jctx *c, struct jv *out, const struct jn *n)
{
    struct jv a, b;
    bool yes = true;
    int rc = eval(c, &a, n->a);
    for (const struct jn *o = n->b; o && rc == 0 && yes; o = o->next) {
        rc = eval(c, &b, o->a);
        rc = rc ? rc : compare_one(c, &yes, o->op, &a, &b);
        a = b;
    }
    *out = lf_jv_bool(yes);
    return rc;
}

/* ---- calls ---- */

static int eval_args(struct jctx *c, struct jargs *a, const struct jn *list)
{
    int rc = 0;
    a->n = a->n_kw = 0;
    a->used_kw = 0;
    for (const struct jn *n = list; n && rc == 0; n = n->next) {
        if (n->k == N_KW ? a->n_kw == 8 : a->n == 16)
            return lf_jv_fail(c, "too many arguments");
        if (n->k == N_KW) {
            rc = eval(c, &a->kw[a->n_kw].v, n->a);
            a->kw[a->n_kw].s = n->s;
            a->kw[a->n_kw++].n = n->n;
        } else {
            rc = eval(c, &a->v[a->n++], n);
        }
    }
    return rc;
}

const struct jv *lf_jinja_arg(struct jargs *a, size_t i, const char *name)
{
    if (i < a->n)
        return &a->v[i];
    for (size_t k = 0; name && k < a->n_kw; k++)
        if (a->kw[k].n == strlen(name) && memcmp(a->kw[k].s, name, a->kw[k].n) == 0) {
            a->used_kw |= 1u << k;
            return &a->kw[k].v;
        }
    return NULL;
}

int lf_jinja_args_end(struct jctx *c, struct jargs *a, size_t max, const char *what)
{
    if (a->n > max)
        return lf_jv_fail(c, "%s takes at most %zu arguments", what, max);
    for (size_t k = 0; k < a->n_kw; k++)
        if (!(a->used_kw >> k & 1))
            return lf_jv_fail(c, "%s does not know the argument %.*s", what, (int)(a->kw[k].n < 40 ? a->kw[k].n : 40),
                              a->kw[k].s);
    return 0;
}

static int call_macro(struct jctx *c, struct jv *out, const struct jn *m, struct jargs *a)
{
    struct frame f = {.up = c->global}, *old = c->top;
    lf_buf mine, *old_out = c->out;
    char name[64];
    size_t i = 0;
    int rc = 0;
    lf_buf_init(&mine);
    c->top = &f;
    for (const struct jn *p = m->a; p && rc == 0; p = p->next, i++) {
        snprintf(name, sizeof name, "%.*s", (int)(p->n < 63 ? p->n : 63), p->s);
        const struct jv *v = lf_jinja_arg(a, i, name);
        struct jv def = {.t = V_UNDEFINED, .u.s = "parameter"};
        if (!v && p->a)
            rc = eval(c, &def, p->a);
        rc = rc ? rc : assign(c, p, v ? *v : def);
    }
    rc = rc ? rc : lf_jinja_args_end(c, a, i, "the macro");
    c->out = &mine;
    rc = rc ? rc : run(c, m->b);
    c->out = old_out;
    c->top = old;
    rc = rc ? rc : lf_jv_copy_str(c, out, mine.data, mine.len);
    lf_buf_fini(&mine);
    return rc;
}

static int call(struct jctx *c, struct jv *out, const struct jn *n)
{
    struct jv f;
    struct jargs a;
    int rc = eval(c, &f, n->a);
    rc = rc ? rc : eval_args(c, &a, n->b);
    if (rc < 0)
        return rc;
    c->at = n->at;
    switch (f.t) {
    case V_MACRO:
        return call_macro(c, out, f.u.macro, &a);
    case V_METHOD:
        return lf_jinja_method(c, out, f.self, f.u.s, &a);
    case V_GLOBAL:
        return lf_jinja_global(c, out, f.u.s, &a);
    case V_UNDEFINED:
        return lf_jv_fail(c, "'%.60s' is undefined; it cannot be called", f.u.s ? f.u.s : "value");
    default:
        return lf_jv_fail(c, "a value of type %s cannot be called", lf_jv_type(&f));
    }
}

static int eval_list(struct jctx *c, struct jv *out, const struct jn *n)
{
    int rc = lf_jv_list(c, out, 0);
    for (const struct jn *e = n->a; e && rc == 0; e = e->next) {
        struct jv v;
        rc = eval(c, &v, e);
        rc = rc ? rc : lf_jv_push(c, out->u.l, v);
    }
    out->flag = n->k == N_TUPLE;
    return rc;
}

static int eval_dict(struct jctx *c, struct jv *out, const struct jn *n)
{
    int rc = lf_jv_dict(c, out);
    for (const struct jn *e = n->a; e && rc == 0; e = e->next) {
        struct jv k, v;
        rc = eval(c, &k, e->a);
        rc = rc ? rc : eval(c, &v, e->b);
        rc = rc ? rc : lf_jv_put(c, out->u.d, k, v);
    }
    return rc;
}

static int eval_name(struct jctx *c, struct jv *out, const struct jn *n)
{
    const struct jv *v = lookup(c, n->s, n->n);
    if (v) {
        *out = *v;
        return 0;
    }
    struct jv name;
    int rc = lf_jv_copy_str(c, &name, n->s, n->n);
    *out = (struct jv){.t = lf_jinja_is_global(n->s, n->n) ? V_GLOBAL : V_UNDEFINED, .u.s = rc ? NULL : name.u.s};
    return rc;
}

static int eval_applied(struct jctx *c, struct jv *out, const struct jn *n)
{
    struct jv v;
    struct jargs a;
    bool yes = false;
    int rc = eval(c, &v, n->a);
    rc = rc ? rc : eval_args(c, &a, n->b);
    c->at = n->at;
    if (rc < 0 || n->k == N_FILTER)
        return rc ? rc : lf_jinja_filter(c, out, &v, n->s, n->n, &a);
    rc = lf_jinja_test(c, &yes, &v, n->s, n->n, &a);
    *out = lf_jv_bool(yes != (n->op != 0));
    return rc;
}

static int eval_inner(struct jctx *c, struct jv *out, const struct jn *n)
{
    struct jv v, w;
    int rc = 0;
    switch (n->k) {
    case N_STR:
        *out = lf_jv_str(n->s, n->n);
        return 0;
    case N_INT:
        *out = lf_jv_int(n->i);
        return 0;
    case N_FLOAT:
        *out = lf_jv_float(n->f);
        return 0;
    case N_TRUE:
    case N_FALSE:
        *out = lf_jv_bool(n->k == N_TRUE);
        return 0;
    case N_NONE:
        *out = lf_jv_none();
        return 0;
    case N_NAME:
        return eval_name(c, out, n);
    case N_LIST:
    case N_TUPLE:
        return eval_list(c, out, n);
    case N_DICT:
        return eval_dict(c, out, n);
    case N_ATTR:
        rc = eval(c, &v, n->a);
        c->at = n->at;
        return rc ? rc : lf_jinja_attr(c, out, &v, n->s, n->n);
    case N_ITEM:
        rc = eval(c, &v, n->a);
        rc = rc ? rc : eval(c, &w, n->b);
        return rc ? rc : item(c, out, &v, &w);
    case N_SLICE:
        rc = eval(c, &v, n->a);
        return rc ? rc : slice(c, out, &v, n);
    case N_CALL:
        return call(c, out, n);
    case N_FILTER:
    case N_TEST:
        return eval_applied(c, out, n);
    case N_BIN:
        rc = eval(c, &v, n->a);
        rc = rc ? rc : eval(c, &w, n->b);
        c->at = n->at;
        return rc ? rc : binary(c, out, n->op, &v, &w);
    case N_AND:
    case N_OR:
        rc = eval(c, out, n->a);
        return rc || lf_jv_true(out) == (n->k == N_OR) ? rc : eval(c, out, n->b);
    case N_NOT:
        rc = eval(c, &v, n->a);
        *out = rc ? v : lf_jv_bool(!lf_jv_true(&v));
        return rc;
    case N_NEG:
        w = lf_jv_int(0);
        rc = eval(c, &v, n->a);
        if (rc == 0 && v.t == V_FLOAT) {
            *out = lf_jv_float(-v.u.f);
            return 0;
        }
        return rc ? rc : binary(c, out, O_SUB, &w, &v);
    case N_CMP:
        return compare(c, out, n);
    case N_COND:
        rc = eval(c, &v, n->a);
        if (rc == 0 && !lf_jv_true(&v) && !n->c) {
            *out = (struct jv){.t = V_UNDEFINED, .u.s = "value"};
            return 0;
        }
        return rc ? rc : eval(c, out, lf_jv_true(&v) ? n->b : n->c);
    default:
        LF_BUG("node %d is no expression", (int)n->k);
    }
}

static int eval(struct jctx *c, struct jv *out, const struct jn *n)
{
    int rc = step(c, n);
    if (rc == 0 && ++c->depth > LF_JINJA_DEPTH)
        rc = lf_jv_fail(c, "calls are nested too deeply");
    *out = (struct jv){.t = V_UNDEFINED};
    rc = rc ? rc : eval_inner(c, out, n);
    c->depth--;
    return rc;
}

/* ---- statements ---- */

static int loop_object(struct jctx *c, struct jv *out, const struct jlist *l, size_t i)
{
    static const char *const names[] = {"index", "index0", "revindex", "revindex0", "first",
                                        "last",  "length", "previtem", "nextitem"};
    struct jv v[] = {lf_jv_int((int64_t)i + 1),
                     lf_jv_int((int64_t)i),
                     lf_jv_int((int64_t)(l->n - i)),
                     lf_jv_int((int64_t)(l->n - i - 1)),
                     lf_jv_bool(i == 0),
                     lf_jv_bool(i + 1 == l->n),
                     lf_jv_int((int64_t)l->n)};
    int rc = lf_jv_dict(c, out);
    for (int k = 0; k < 7 && rc == 0; k++)
        rc = lf_jv_put(c, out->u.d, lf_jv_str(names[k], strlen(names[k])), v[k]);
    if (rc == 0 && i > 0)
        rc = lf_jv_put(c, out->u.d, lf_jv_str(names[7], 8), l->v[i - 1]);
    if (rc == 0 && i + 1 < l->n)
        rc = lf_jv_put(c, out->u.d, lf_jv_str(names[8], 8), l->v[i + 1]);
    out->flag = true; /* its members are no items */
    return rc;
}

static int bind(struct jctx *c, const struct jn *target, const struct jv *v)
{
    size_t n = 0, i = 0;
    int rc = 0;
    if (!target->next)
        return assign(c, target, *v);
    for (const struct jn *t = target; t; t = t->next)
        n++;
    if (v->t != V_LIST || v->u.l->n != n)
        return lf_jv_fail(c, "%zu names for a value of type %s", n, lf_jv_type(v));
    for (const struct jn *t = target; t && rc == 0; t = t->next)
        rc = assign(c, t, v->u.l->v[i++]);
    return rc;
}

/* The elements that pass the loop's condition. */
static int loop_items(struct jctx *c, struct jv *items, const struct jn *n)
{
    struct jv over, all;
    int rc = eval(c, &over, n->b);
    c->at = n->at;
    rc = rc ? rc : lf_jv_iterate(c, n->e ? &all : items, &over);
    if (rc < 0 || !n->e)
        return rc;
    rc = lf_jv_list(c, items, 0);
    for (size_t i = 0; i < all.u.l->n && rc == 0; i++) {
        struct frame f = {.up = c->top};
        struct jv yes;
        c->top = &f;
        rc = bind(c, n->a, &all.u.l->v[i]);
        rc = rc ? rc : eval(c, &yes, n->e);
        c->top = f.up;
        if (rc == 0 && lf_jv_true(&yes))
            rc = lf_jv_push(c, items->u.l, all.u.l->v[i]);
    }
    return rc;
}

static int run_for(struct jctx *c, const struct jn *n)
{
    struct jv items, loop;
    int rc = loop_items(c, &items, n);
    for (size_t i = 0; rc == 0 && i < items.u.l->n && !c->breaking; i++) {
        struct frame f = {.up = c->top};
        c->top = &f;
        rc = loop_object(c, &loop, items.u.l, i);
        rc = rc ? rc : lf_jv_put(c, &f.vars, lf_jv_str("loop", 4), loop);
        rc = rc ? rc : bind(c, n->a, &items.u.l->v[i]);
        rc = rc ? rc : run(c, n->c);
        c->top = f.up;
        c->continuing = false;
    }
    c->breaking = false;
    return rc || items.u.l->n || !n->d ? rc : run(c, n->d);
}

static int run_set(struct jctx *c, const struct jn *n)
{
    struct jv v, ns;
    lf_buf mine, *old = c->out;
    int rc;
    if (n->k == N_SET) {
        rc = eval(c, &v, n->b);
    } else {
        lf_buf_init(&mine);
        c->out = &mine;
        rc = run(c, n->b);
        c->out = old;
        rc = rc ? rc : lf_jv_copy_str(c, &v, mine.data, mine.len);
        lf_buf_fini(&mine);
    }
    if (rc < 0 || n->a->k != N_ATTR)
        return rc ? rc : bind(c, n->a, &v);
    rc = eval(c, &ns, n->a->a);
    if (rc == 0 && (ns.t != V_DICT || !ns.flag))
        return lf_jv_fail(c, "only members of a namespace can be set");
    return rc ? rc : lf_jv_put(c, ns.u.d, lf_jv_str(n->a->s, n->a->n), v);
}

static int run_one(struct jctx *c, const struct jn *n)
{
    struct jv v;
    int rc = step(c, n);
    if (rc < 0)
        return rc;
    switch (n->k) {
    case N_TEXT:
        lf_buf_add(c->out, n->s, n->n);
        return 0;
    case N_OUT:
        rc = eval(c, &v, n->a);
        return rc ? rc : lf_jv_to_text(c, c->out, &v, false, 0);
    case N_IF:
        rc = eval(c, &v, n->a);
        if (rc < 0)
            return rc;
        if (lf_jv_true(&v))
            return run(c, n->b);
        return !n->c ? 0 : n->c->k == N_IF ? run_one(c, n->c) : run(c, n->c);
    case N_FOR:
        return run_for(c, n);
    case N_SET:
    case N_SETBLOCK:
        return run_set(c, n);
    case N_MACRO:
        return assign(c, n, (struct jv){.t = V_MACRO, .u.macro = n});
    case N_BREAK:
        c->breaking = true;
        return 0;
    case N_CONTINUE:
        c->continuing = true;
        return 0;
    default:
        return run(c, n);
    }
}

static int run(struct jctx *c, const struct jn *body)
{
    int rc = ++c->depth > LF_JINJA_DEPTH ? lf_jv_fail(c, "statements and calls are nested too deeply") : 0;
    for (const struct jn *n = body->a; n && rc == 0 && !c->breaking && !c->continuing; n = n->next)
        rc = run_one(c, n);
    c->depth--;
    return rc;
}

/* ---- entry ---- */

int lf_jinja_parse(lf_jinja **out, const char *text, size_t len, const char *name, lf_err *err)
{
    struct jtok *tok = NULL;
    lf_jinja *t = lf_calloc(1, sizeof *t, err);
    if (!t)
        return LF_ENOMEM;
    size_t n = 0;
    int rc =
        (t->arena = lf_arena_create(err)) && (t->name = lf_strdup(name, err)) && (t->text = lf_malloc(len + 1, 1, err))
            ? 0
            : LF_ENOMEM;
    /* CR LF and CR are newlines. */
    for (size_t i = 0; rc == 0 && i < len; i++)
        if (!(text[i] == '\n' && i > 0 && text[i - 1] == '\r'))
            t->text[n++] = text[i] == '\r' ? '\n' : text[i];
    t->len = n;
    rc = rc ? rc : lf_jinja_lex(&tok, t, err);
    rc = rc ? rc : lf_jinja_build(t, tok, err);
    free(tok);
    if (rc < 0)
        lf_jinja_destroy(t);
    else
        *out = t;
    return rc;
}

void lf_jinja_destroy(lf_jinja *t)
{
    if (!t)
        return;
    lf_arena_destroy(t->arena);
    free(t->name);
    free(t->text);
    free(t);
}

int lf_jinja_render(const lf_jinja *t, json_t *vars, const lf_jinja_limits *limits, lf_buf *out, lf_err *err)
{
    static const lf_jinja_limits none;
    struct frame global = {.up = NULL};
    lf_buf text;
    struct jv v;
    lf_err mine = LF_ERR_INIT;
    struct jctx c = {
        .t = t, .lim = limits ? limits : &none, .global = &global, .top = &global, .out = &text, .err = &mine};
    c.step_limit = c.lim->steps ? c.lim->steps : 10000000;
    c.out_limit = c.lim->output ? c.lim->output : (size_t)64 << 20;
    c.mem_limit = c.lim->memory ? c.lim->memory : (size_t)256 << 20;
    lf_buf_init(&text);
    int rc = (c.arena = lf_arena_create(&mine)) ? lf_jv_from_json(&c, &v, vars, 0) : LF_ENOMEM;
    if (rc == 0 && v.t == V_DICT)
        global.vars = *v.u.d;
    rc = rc ? rc : run(&c, t->body);
    rc = rc ? rc : lf_buf_check(&text, &mine);
    if (rc == 0)
        lf_buf_add(out, text.data, text.len);
    else
        lf_fail(err, rc, "%s", mine.rc ? mine.text : "no memory to render a template");
    lf_arena_destroy(c.arena);
    lf_buf_fini(&text);
    return rc ? rc : lf_buf_check(out, err);
}
