/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators, indices, slices and attributes, with Python's rules. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "engine/text/jinja/priv.h"

static bool is_int(lf_jj_val v)
{
    return v.t == LF_JJ_INT || v.t == LF_JJ_BOOL;
}
static int64_t as_int(lf_jj_val v)
{
    return v.t == LF_JJ_BOOL ? v.u.b : v.u.i;
}

static lf_jj_val wrong_types(lf_jj_run *r, const lf_jj_node *at, const char *op, lf_jj_val a,
                             lf_jj_val b)
{
    if (a.t == LF_JJ_UNDEF || b.t == LF_JJ_UNDEF)
        return lf_jj_fail(r, at, "%s", a.t == LF_JJ_UNDEF ? a.u.s : b.u.s);
    return lf_jj_fail(r, at, "%s %s %s is not defined", lf_jj_type_name(a), op, lf_jj_type_name(b));
}

static bool has_markup(lf_jj_val v)
{
    for (size_t i = 0; i < v.n; i++)
        if (strchr("&<>'\"", v.u.s[i]) && v.u.s[i])
            return true;
    return false;
}

static lf_jj_val add_strings(lf_jj_run *r, const lf_jj_node *at, lf_jj_val a, lf_jj_val b)
{
    if ((a.pad && !b.pad && has_markup(b)) || (b.pad && !a.pad && has_markup(a)))
        return lf_jj_fail_rc(r, at, LF_ENOTSUP,
                             "a string marked safe + one that HTML would escape is not supported");
    char *s = lf_jj_alloc(r, a.n + b.n + 1, 1);
    if (!s)
        return lf_jj_undef;
    memcpy(s, a.u.s, a.n);
    memcpy(s + a.n, b.u.s, b.n);
    return lf_jj_str(s, a.n + b.n);
}

static lf_jj_val add_seqs(lf_jj_run *r, const struct lf_jj_seq *a, const struct lf_jj_seq *b)
{
    lf_jj_val v = lf_jj_seq_make(r, a->n + b->n, a->tuple);
    if (r->rc)
        return lf_jj_undef;
    if (a->n)
        memcpy(v.u.seq->v, a->v, a->n * sizeof(*a->v));
    if (b->n)
        memcpy(v.u.seq->v + a->n, b->v, b->n * sizeof(*b->v));
    return v;
}

static lf_jj_val repeat(lf_jj_run *r, lf_jj_val v, int64_t times)
{
    size_t k = times > 0 ? (size_t)times : 0, n = v.t == LF_JJ_STR ? v.n : v.u.seq->n, all;
    if (!lf_size_mul(&all, n, k))
        all = SIZE_MAX / 64;
    if (v.t == LF_JJ_STR) {
        char *s = lf_jj_alloc(r, all + 1, 1);
        for (size_t i = 0; s && i < k && n; i++)
            memcpy(s + i * n, v.u.s, n);
        return s ? lf_jj_str(s, all) : lf_jj_undef;
    }
    lf_jj_val out = lf_jj_seq_make(r, all, v.u.seq->tuple);
    for (size_t i = 0; r->rc == 0 && i < all; i++)
        out.u.seq->v[i] = v.u.seq->v[i % n];
    return out;
}

static lf_jj_val overflow(lf_jj_run *r, const lf_jj_node *at)
{
    return lf_jj_fail_rc(r, at, LF_ENOTSUP, "an integer above 64 bits");
}

static lf_jj_val int_power(lf_jj_run *r, const lf_jj_node *at, int64_t a, int64_t b)
{
    int64_t v = 1;
    for (; b > 0; b--)
        if (__builtin_mul_overflow(v, a, &v))
            return overflow(r, at);
        else if (v == 1 || v == 0)
            return lf_jj_int(v);
    return lf_jj_int(v);
}

static lf_jj_val int_math(lf_jj_run *r, const lf_jj_node *at, const char *op, int64_t a, int64_t b)
{
    int64_t v;
    bool bad = false;
    if ((op[0] == '/' || op[0] == '%') && b == 0)
        return lf_jj_fail(r, at, "division by zero");
    if (strcmp(op, "**") == 0) {
        if (b < 0)
            return lf_jj_float(pow((double)a, (double)b));
        return (a == -1 || a == 1) ? lf_jj_int(b % 2 ? a : 1) : int_power(r, at, a, b);
    }
    if (strcmp(op, "/") == 0)
        return lf_jj_float((double)a / (double)b);
    if (op[0] == '/' || op[0] == '%') {
        if (b == -1)
            return op[0] == '%' ? lf_jj_int(0) : a == INT64_MIN ? overflow(r, at) : lf_jj_int(-a);
        int64_t q = a / b, m = a % b;
        bool floor = m != 0 && (m < 0) != (b < 0);
        return lf_jj_int(op[0] == '/' ? q - floor : m + (floor ? b : 0));
    }
    if (op[0] == '+')
        bad = __builtin_add_overflow(a, b, &v);
    else if (op[0] == '-')
        bad = __builtin_sub_overflow(a, b, &v);
    else
        bad = __builtin_mul_overflow(a, b, &v);
    return bad ? overflow(r, at) : lf_jj_int(v);
}

static lf_jj_val float_math(lf_jj_run *r, const lf_jj_node *at, const char *op, double a, double b)
{
    if ((op[0] == '/' || op[0] == '%') && b == 0)
        return lf_jj_fail(r, at, "division by zero");
    if (strcmp(op, "**") == 0)
        return lf_jj_float(pow(a, b));
    if (strcmp(op, "//") == 0)
        return lf_jj_float(floor(a / b));
    if (op[0] == '%') {
        double m = fmod(a, b);
        return lf_jj_float(m != 0 && (m < 0) != (b < 0) ? m + b : m);
    }
    return lf_jj_float(op[0] == '+' ? a + b : op[0] == '-' ? a - b : op[0] == '*' ? a * b : a / b);
}

lf_jj_val lf_jj_binary(lf_jj_run *r, const lf_jj_node *at, const char *op, lf_jj_val a, lf_jj_val b)
{
    if (op[0] == '~') {
        a = lf_jj_to_str(r, a);
        b = lf_jj_to_str(r, b);
        a.pad = b.pad = 0;
        return r->rc ? lf_jj_undef : add_strings(r, at, a, b);
    }
    if (is_int(a) && is_int(b))
        return int_math(r, at, op, as_int(a), as_int(b));
    if (lf_jj_is_number(a) && lf_jj_is_number(b))
        return float_math(r, at, op, lf_jj_as_float(a), lf_jj_as_float(b));
    if (strcmp(op, "+") == 0 && a.t == LF_JJ_STR && b.t == LF_JJ_STR)
        return add_strings(r, at, a, b);
    if (strcmp(op, "+") == 0 && a.t == LF_JJ_SEQ && b.t == LF_JJ_SEQ &&
        a.u.seq->tuple == b.u.seq->tuple)
        return add_seqs(r, a.u.seq, b.u.seq);
    if (strcmp(op, "*") == 0 && is_int(b) && (a.t == LF_JJ_STR || a.t == LF_JJ_SEQ))
        return repeat(r, a, as_int(b));
    if (strcmp(op, "*") == 0 && is_int(a) && (b.t == LF_JJ_STR || b.t == LF_JJ_SEQ))
        return repeat(r, b, as_int(a));
    if (strcmp(op, "%") == 0 && a.t == LF_JJ_STR)
        return lf_jj_fail_rc(r, at, LF_ENOTSUP, "formatting with %% is not supported");
    return wrong_types(r, at, op, a, b);
}

lf_jj_val lf_jj_unary(lf_jj_run *r, const lf_jj_node *at, const char *op, lf_jj_val a)
{
    if (op[0] == 'n')
        return lf_jj_bool(!lf_jj_truth(a));
    if (a.t == LF_JJ_UNDEF)
        return lf_jj_fail(r, at, "%s", a.u.s);
    if (!lf_jj_is_number(a))
        return lf_jj_fail(r, at, "%s of a %s is not defined", op, lf_jj_type_name(a));
    if (op[0] == '+')
        return a.t == LF_JJ_BOOL ? lf_jj_int(a.u.b) : a;
    return a.t == LF_JJ_FLOAT ? lf_jj_float(-a.u.f) : int_math(r, at, "-", 0, as_int(a));
}

bool lf_jj_contains(lf_jj_run *r, const lf_jj_node *at, lf_jj_val in, lf_jj_val what)
{
    size_t where;
    switch (in.t) {
    case LF_JJ_STR:
        if (what.t == LF_JJ_STR)
            return lf_jj_find(in.u.s, in.n, what.u.s, what.n, &where);
        if (what.t == LF_JJ_UNDEF)
            lf_jj_fail(r, at, "%s", what.u.s);
        else
            lf_jj_fail(r, at, "a %s is looked for in a str", lf_jj_type_name(what));
        return false;
    case LF_JJ_SEQ:
        for (size_t i = 0; i < in.u.seq->n; i++)
            if (lf_jj_equal(in.u.seq->v[i], what))
                return true;
        return false;
    case LF_JJ_MAP:
        return lf_jj_hashable(r, at, what) && lf_jj_map_get(in.u.map, what) != NULL;
    case LF_JJ_UNDEF:
        return false;
    default:
        lf_jj_fail(r, at, "nothing is in a %s", lf_jj_type_name(in));
        return false;
    }
}

bool lf_jj_compare(lf_jj_run *r, const lf_jj_node *at, const char *op, lf_jj_val a, lf_jj_val b)
{
    if (strcmp(op, "==") == 0)
        return lf_jj_equal(a, b);
    if (strcmp(op, "!=") == 0)
        return !lf_jj_equal(a, b);
    if (strcmp(op, "in") == 0)
        return lf_jj_contains(r, at, b, a);
    if (strcmp(op, "not in") == 0)
        return !lf_jj_contains(r, at, b, a);
    bool nan = lf_jj_is_number(a) && lf_jj_is_number(b) &&
               (isnan(lf_jj_as_float(a)) || isnan(lf_jj_as_float(b)));
    int c = lf_jj_order(r, at, a, b);
    if (nan)
        return false;
    bool less = op[0] == '<', equal = op[1] == '=';
    return (less ? c < 0 : c > 0) || (equal && c == 0);
}

/* ---- parts ---- */

static lf_jj_val item_at(lf_jj_run *r, lf_jj_val v, int64_t i)
{
    int64_t n = v.t == LF_JJ_SEQ ? (int64_t)v.u.seq->n : (int64_t)lf_jj_chars(v.u.s, v.n);
    if (i < 0)
        i += n;
    if (i < 0 || i >= n)
        return lf_jj_undefined(r, "%s has no element %" PRId64, lf_jj_type_name(v), i);
    if (v.t == LF_JJ_SEQ)
        return v.u.seq->v[i];
    size_t at = lf_jj_char_at(v.u.s, v.n, (size_t)i);
    return lf_jj_str(v.u.s + at, lf_jj_char_len(v.u.s + at, v.n - at));
}

lf_jj_val lf_jj_index(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v, lf_jj_val key)
{
    if (v.t == LF_JJ_UNDEF)
        return lf_jj_fail(r, at, "%s", v.u.s);
    if (v.t == LF_JJ_MAP) {
        const lf_jj_val *x = lf_jj_map_get(v.u.map, key);
        if (x)
            return *x;
    }
    if ((v.t == LF_JJ_SEQ || v.t == LF_JJ_STR) && is_int(key))
        return item_at(r, v, as_int(key));
    if (key.t == LF_JJ_STR) {
        lf_jj_val name = lf_jj_str_copy(r, key.u.s, key.n); /* ends in NUL */
        return r->rc ? lf_jj_undef : lf_jj_attr(r, at, v, name.u.s);
    }
    return lf_jj_undefined(r, "%s has no such element", lf_jj_type_name(v));
}

static lf_jj_val loop_cycle(lf_jj_run *r, const lf_jj_node *at, lf_jj_val self, const lf_jj_args *a)
{
    if (a->n == 0)
        return lf_jj_fail(r, at, "cycle: nothing to choose from");
    return a->v[self.u.loop->index0 % a->n];
}

static lf_jj_val loop_changed(lf_jj_run *r, const lf_jj_node *at, lf_jj_val self,
                              const lf_jj_args *a)
{
    struct lf_jj_loop *l = self.u.loop;
    (void)at;
    lf_jj_val now = lf_jj_seq_make(r, a->n, true);
    if (r->rc)
        return lf_jj_undef;
    if (a->n)
        memcpy(now.u.seq->v, a->v, a->n * sizeof(*a->v));
    bool changed = !l->has_last || !lf_jj_equal(l->last, now);
    l->last = now;
    l->has_last = true;
    return lf_jj_bool(changed);
}

static lf_jj_val method(lf_jj_run *r, const char *name, lf_jj_call_fn call, lf_jj_val self)
{
    struct lf_jj_func *f = lf_jj_alloc(r, 1, sizeof(*f));
    if (!f)
        return lf_jj_undef;
    f->name = name;
    f->call = call;
    f->self = self;
    return (lf_jj_val){.t = LF_JJ_FUNC, .u.fn = f};
}

static lf_jj_val loop_attr(lf_jj_run *r, lf_jj_val v, const char *name)
{
    const struct lf_jj_loop *l = v.u.loop;
    const struct {
        const char *name;
        lf_jj_val v;
    } table[] = {{"index", lf_jj_int((int64_t)l->index0 + 1)},
                 {"index0", lf_jj_int((int64_t)l->index0)},
                 {"revindex", lf_jj_int((int64_t)(l->length - l->index0))},
                 {"revindex0", lf_jj_int((int64_t)(l->length - l->index0) - 1)},
                 {"first", lf_jj_bool(l->index0 == 0)},
                 {"last", lf_jj_bool(l->index0 + 1 == l->length)},
                 {"length", lf_jj_int((int64_t)l->length)},
                 {"depth", lf_jj_int(1)} /* grows in recursive loops only */,
                 {"depth0", lf_jj_int(0)}};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (strcmp(name, table[i].name) == 0)
            return table[i].v;
    if (strcmp(name, "previtem") == 0)
        return l->index0 > 0 ? l->items[l->index0 - 1]
                             : lf_jj_undefined(r, "there is no previous item");
    if (strcmp(name, "nextitem") == 0)
        return l->index0 + 1 < l->length ? l->items[l->index0 + 1]
                                         : lf_jj_undefined(r, "there is no next item");
    if (strcmp(name, "cycle") == 0)
        return method(r, "cycle", loop_cycle, v);
    if (strcmp(name, "changed") == 0)
        return method(r, "changed", loop_changed, v);
    return lf_jj_undefined(r, "loop has no attribute '%s'", name);
}

lf_jj_val lf_jj_attr(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v, const char *name)
{
    if (v.t == LF_JJ_UNDEF)
        return lf_jj_fail(r, at, "%s", v.u.s);
    if (name[0] == '_' && name[1] == '_')
        return lf_jj_undefined(r, "attribute '%s' is out of reach", name);
    if (v.t == LF_JJ_LOOP)
        return loop_attr(r, v, name);
    bool changes = false;
    lf_jj_call_fn call = lf_jj_find_method(v, name, &changes);
    if (call)
        return method(r, name, call, v);
    if (changes)
        return lf_jj_undefined(r, "'%s' would change a %s, which the sandbox does not allow", name,
                               lf_jj_type_name(v));
    if (v.t == LF_JJ_MAP || v.t == LF_JJ_NS) {
        const lf_jj_val *x = lf_jj_map_gets(v.u.map, name);
        if (x)
            return *x;
    }
    return lf_jj_undefined(r, "'%s object' has no attribute '%s'", lf_jj_type_name(v), name);
}

struct slice {
    int64_t from, to, step;
};

/* Python's slice.indices */
static bool slice_range(lf_jj_run *r, const lf_jj_node *at, const lf_jj_val part[3],
                        const bool given[3], int64_t n, struct slice *out)
{
    int64_t x[3] = {0, 0, 1};
    bool have[3];
    for (int i = 0; i < 3; i++) {
        have[i] = given[i] && part[i].t != LF_JJ_NONE;
        if (have[i] && !is_int(part[i])) {
            lf_jj_fail(r, at, "%s",
                       part[i].t == LF_JJ_UNDEF ? part[i].u.s : "a slice wants whole numbers");
            return false;
        }
        if (have[i])
            x[i] = as_int(part[i]);
    }
    if (x[2] == 0) {
        lf_jj_fail(r, at, "a slice with step 0");
        return false;
    }
    int64_t low = x[2] > 0 ? 0 : -1, high = x[2] > 0 ? n : n - 1;
    for (int i = 0; i < 2; i++) {
        if (!have[i])
            x[i] = (i == 0) == (x[2] > 0) ? low : high;
        else if (x[i] < 0)
            x[i] = x[i] + n < low ? low : x[i] + n;
        else if (x[i] > high)
            x[i] = high;
    }
    *out = (struct slice){x[0], x[1], x[2] < -n - 1 ? -n - 1 : x[2] > n + 1 ? n + 1 : x[2]};
    return true;
}

static inline bool slice_has(const struct slice *s, int64_t i)
{
    return s->step > 0 ? i < s->to : i > s->to;
}

static lf_jj_val slice_chars(lf_jj_run *r, lf_jj_val all, const struct slice *s)
{
    lf_buf b;
    lf_buf_init(&b);
    for (int64_t i = s->from; slice_has(s, i); i += s->step)
        lf_buf_add(&b, all.u.seq->v[i].u.s, all.u.seq->v[i].n);
    return lf_jj_str_take(r, &b);
}

lf_jj_val lf_jj_slice(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v, const lf_jj_val part[3],
                      const bool given[3])
{
    struct slice s;
    if (v.t != LF_JJ_STR && v.t != LF_JJ_SEQ)
        return lf_jj_fail(r, at, "%s",
                          v.t == LF_JJ_UNDEF ? v.u.s : "only strings and lists have slices");
    if (!slice_range(r, at, part, given, lf_jj_length(r, at, v), &s))
        return lf_jj_undef;
    if (v.t == LF_JJ_STR && s.step == 1) {
        size_t a = lf_jj_char_at(v.u.s, v.n, (size_t)s.from),
               n = s.from < s.to ? (size_t)(s.to - s.from) : 0;
        return lf_jj_str(v.u.s + a, lf_jj_char_at(v.u.s + a, v.n - a, n));
    }
    if (v.t == LF_JJ_STR) {
        lf_jj_val all = lf_jj_iter(r, at, v);
        return r->rc ? lf_jj_undef : slice_chars(r, all, &s);
    }
    size_t n = 0;
    for (int64_t i = s.from; slice_has(&s, i); i += s.step)
        n++;
    lf_jj_val out = lf_jj_seq_make(r, n, v.u.seq->tuple);
    for (size_t k = 0; r->rc == 0 && k < n; k++)
        out.u.seq->v[k] = v.u.seq->v[s.from + (int64_t)k * s.step];
    return out;
}
