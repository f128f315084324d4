/* SPDX-License-Identifier: Apache-2.0
 *
 * Values as Python has them, in memory that lives as long as one rendering. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/text/jinja/priv.h"

#define JSON_DEPTH_MAX  200
#define VALUE_DEPTH_MAX 400 /* what comes with the variables, and as much again */
#define VALUE_SIZE_MAX  ((size_t)4 << 20)

const lf_jj_val lf_jj_none = {.t = LF_JJ_NONE},
                lf_jj_undef = {.t = LF_JJ_UNDEF, .u.s = "a value that is not there"};

lf_jj_val lf_jj_bool(bool b)
{
    return (lf_jj_val){.t = LF_JJ_BOOL, .u.b = b};
}
lf_jj_val lf_jj_int(int64_t i)
{
    return (lf_jj_val){.t = LF_JJ_INT, .u.i = i};
}
lf_jj_val lf_jj_float(double f)
{
    return (lf_jj_val){.t = LF_JJ_FLOAT, .u.f = f};
}
lf_jj_val lf_jj_str(const char *s, size_t n)
{
    return (lf_jj_val){.t = LF_JJ_STR, .n = n, .u.s = s};
}
lf_jj_val lf_jj_strz(const char *s)
{
    return lf_jj_str(s, strlen(s));
}

void *lf_jj_alloc(lf_jj_run *r, size_t n, size_t size)
{
    size_t bytes;
    if (r->rc)
        return NULL;
    if (!lf_size_mul(&bytes, n, size) || bytes > r->o.max_memory - r->memory) {
        r->rc = lf_fail(r->err, LF_ENOMEM, "%s: rendering needs more than %zu MiB", r->t->name,
                        r->o.max_memory >> 20);
        return NULL;
    }
    r->memory += bytes + 16;
    if (r->memory > r->o.max_memory)
        r->memory = r->o.max_memory;
    void *p = lf_arena_alloc(r->arena, n ? n : 1, size, r->err);
    if (!p)
        r->rc = LF_ENOMEM;
    return p;
}

lf_jj_val lf_jj_fail_rc(lf_jj_run *r, const lf_jj_node *at, int rc, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (r->rc == 0)
        r->rc = lf_jj_fail_at(r->t, at->line, at->col, rc, r->err, "%s", text);
    return lf_jj_undef;
}

lf_jj_val lf_jj_fail(lf_jj_run *r, const lf_jj_node *at, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return lf_jj_fail_rc(r, at, LF_EINVAL, "%s", text);
}

lf_jj_val lf_jj_undefined(lf_jj_run *r, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    lf_jj_val v = lf_jj_str_copy(r, text, strlen(text));
    return r->rc ? lf_jj_undef : (lf_jj_val){.t = LF_JJ_UNDEF, .u.s = v.u.s};
}

lf_jj_val lf_jj_str_copy(lf_jj_run *r, const char *s, size_t n)
{
    char *p = n == SIZE_MAX ? NULL : lf_jj_alloc(r, n + 1, 1);
    if (!p)
        return lf_jj_undef;
    memcpy(p, s, n);
    return lf_jj_str(p, n);
}

lf_jj_val lf_jj_str_take(lf_jj_run *r, lf_buf *b)
{
    if (r->rc == 0)
        r->rc = lf_buf_check(b, r->err);
    lf_jj_val v = r->rc ? lf_jj_undef : lf_jj_str_copy(r, b->data, b->len);
    lf_buf_fini(b);
    return v;
}

lf_jj_val lf_jj_seq_make(lf_jj_run *r, size_t n, bool tuple)
{
    struct lf_jj_seq *s = lf_jj_alloc(r, 1, sizeof(*s));
    lf_jj_val *v = s ? lf_jj_alloc(r, n, sizeof(*v)) : NULL;
    if (!v)
        return lf_jj_undef;
    *s = (struct lf_jj_seq){.n = n, .tuple = tuple, .v = v};
    return (lf_jj_val){.t = LF_JJ_SEQ, .u.seq = s};
}

lf_jj_val lf_jj_map_make(lf_jj_run *r, size_t cap)
{
    struct lf_jj_map *m = lf_jj_alloc(r, 1, sizeof(*m));
    if (!m)
        return lf_jj_undef;
    m->k = lf_jj_alloc(r, cap, sizeof(lf_jj_val));
    m->v = m->k ? lf_jj_alloc(r, cap, sizeof(lf_jj_val)) : NULL;
    m->cap = cap;
    return m->v ? (lf_jj_val){.t = LF_JJ_MAP, .u.map = m} : lf_jj_undef;
}

/* Index of a key, m->n when there is none. */
static size_t map_find(const struct lf_jj_map *m, lf_jj_val k)
{
    size_t i = 0;
    while (i < m->n && !lf_jj_equal(m->k[i], k))
        i++;
    return i;
}

void lf_jj_map_set(lf_jj_run *r, struct lf_jj_map *m, lf_jj_val k, lf_jj_val v)
{
    size_t at = map_find(m, k);
    if (at < m->n) {
        m->v[at] = v;
        return;
    }
    if (m->n == m->cap) {
        size_t cap = m->cap ? m->cap * 2 : 4;
        lf_jj_val *ks = lf_jj_alloc(r, cap, sizeof(*ks)),
                  *vs = ks ? lf_jj_alloc(r, cap, sizeof(*vs)) : NULL;
        if (!vs)
            return;
        if (m->n) {
            memcpy(ks, m->k, m->n * sizeof(*ks));
            memcpy(vs, m->v, m->n * sizeof(*vs));
        }
        m->k = ks;
        m->v = vs;
        m->cap = cap;
    }
    m->k[m->n] = k;
    m->v[m->n++] = v;
    m->size = 0;
    r->steps += m->n / 16; /* a key is looked for among all: large dicts cost more than a step */
}

const lf_jj_val *lf_jj_map_get(const struct lf_jj_map *m, lf_jj_val k)
{
    size_t i = map_find(m, k);
    return i < m->n ? &m->v[i] : NULL;
}

const lf_jj_val *lf_jj_map_gets(const struct lf_jj_map *m, const char *key)
{
    return lf_jj_map_get(m, lf_jj_strz(key));
}

static lf_jj_val from_json(lf_jj_run *r, json_t *j, int depth);

static lf_jj_val from_array(lf_jj_run *r, json_t *j, int depth)
{
    lf_jj_val v = lf_jj_seq_make(r, json_array_size(j), false);
    for (size_t i = 0; r->rc == 0 && i < v.u.seq->n; i++)
        v.u.seq->v[i] = from_json(r, json_array_get(j, i), depth + 1);
    return v;
}

/* The keys of an object differ: no need to look for each. */
static lf_jj_val from_object(lf_jj_run *r, json_t *j, int depth)
{
    lf_jj_val v = lf_jj_map_make(r, json_object_size(j));
    const char *key;
    json_t *x;
    json_object_foreach(j, key, x)
    {
        if (r->rc)
            break;
        struct lf_jj_map *m = v.u.map;
        m->k[m->n] = lf_jj_strz(key);
        m->v[m->n++] = from_json(r, x, depth + 1);
    }
    return v;
}

static lf_jj_val from_json(lf_jj_run *r, json_t *j, int depth)
{
    if (depth > JSON_DEPTH_MAX) {
        r->rc = lf_fail(r->err, LF_EINVAL, "%s: a variable is nested more than %d levels deep",
                        r->t->name, JSON_DEPTH_MAX);
        return lf_jj_undef;
    }
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return from_object(r, j, depth);
    case JSON_ARRAY:
        return from_array(r, j, depth);
    case JSON_STRING:
        return lf_jj_str(json_string_value(j), json_string_length(j));
    case JSON_INTEGER:
        return lf_jj_int(json_integer_value(j));
    case JSON_REAL:
        return lf_jj_float(json_real_value(j));
    case JSON_TRUE:
    case JSON_FALSE:
        return lf_jj_bool(json_is_true(j));
    default:
        return lf_jj_none;
    }
}

lf_jj_val lf_jj_from_json(lf_jj_run *r, json_t *j)
{
    return from_json(r, j, 0);
}

/* Parts that were made part of something before are measured already, so this goes no deeper than
 * what is new. */
static void measure(lf_jj_val v, unsigned *depth, size_t *size)
{
    const lf_jj_val *part[2] = {NULL, NULL};
    size_t n = 0, sum = 1;
    unsigned most = 0;
    if (v.t == LF_JJ_SEQ && v.u.seq->size == 0) {
        n = v.u.seq->n;
        part[0] = v.u.seq->v;
    } else if (v.t == LF_JJ_MAP && v.u.map->size == 0) {
        n = v.u.map->n;
        part[0] = v.u.map->k;
        part[1] = v.u.map->v;
    }
    for (size_t i = 0; i < 2 * n; i++) {
        unsigned d = 0;
        size_t s = 1;
        if (part[i & 1])
            measure(part[i & 1][i / 2], &d, &s);
        most = d > most ? d : most;
        sum = sum + s < sum ? SIZE_MAX : sum + s;
    }
    if (v.t == LF_JJ_SEQ && v.u.seq->size == 0) {
        v.u.seq->size = sum;
        v.u.seq->depth = most + 1;
    } else if (v.t == LF_JJ_MAP && v.u.map->size == 0) {
        v.u.map->size = sum;
        v.u.map->depth = most + 1;
    }
    *size = v.t == LF_JJ_SEQ ? v.u.seq->size : v.t == LF_JJ_MAP ? v.u.map->size : 1;
    *depth = v.t == LF_JJ_SEQ ? v.u.seq->depth : v.t == LF_JJ_MAP ? v.u.map->depth : 0;
}

bool lf_jj_nestable(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v)
{
    unsigned depth;
    size_t size;
    if (r->rc)
        return false;
    measure(v, &depth, &size);
    if (depth < VALUE_DEPTH_MAX && size <= VALUE_SIZE_MAX)
        return true;
    lf_jj_fail_rc(r, at, LF_ENOMEM,
                  "a value with %zu parts, nested %u deep, is too much to be put into another",
                  size, depth);
    return false;
}

bool lf_jj_is_number(lf_jj_val v)
{
    return v.t == LF_JJ_INT || v.t == LF_JJ_FLOAT || v.t == LF_JJ_BOOL;
}
double lf_jj_as_float(lf_jj_val v)
{
    return v.t == LF_JJ_FLOAT ? v.u.f : v.t == LF_JJ_BOOL ? v.u.b : (double)v.u.i;
}

bool lf_jj_truth(lf_jj_val v)
{
    switch (v.t) {
    case LF_JJ_UNDEF:
    case LF_JJ_NONE:
        return false;
    case LF_JJ_BOOL:
        return v.u.b;
    case LF_JJ_INT:
        return v.u.i != 0;
    case LF_JJ_FLOAT:
        return v.u.f != 0;
    case LF_JJ_STR:
        return v.n > 0;
    case LF_JJ_SEQ:
        return v.u.seq->n > 0;
    case LF_JJ_MAP:
        return v.u.map->n > 0;
    default:
        return true;
    }
}

static bool equal_maps(const struct lf_jj_map *a, const struct lf_jj_map *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const lf_jj_val *v = lf_jj_map_get(b, a->k[i]);
        if (!v || !lf_jj_equal(a->v[i], *v))
            return false;
    }
    return true;
}

static bool equal_seqs(const struct lf_jj_seq *a, const struct lf_jj_seq *b)
{
    bool same = a->n == b->n && a->tuple == b->tuple;
    for (size_t i = 0; same && i < a->n; i++)
        same = lf_jj_equal(a->v[i], b->v[i]);
    return same;
}

bool lf_jj_equal(lf_jj_val a, lf_jj_val b)
{
    if (lf_jj_is_number(a) && lf_jj_is_number(b)) {
        if (a.t == LF_JJ_FLOAT || b.t == LF_JJ_FLOAT)
            return lf_jj_as_float(a) == lf_jj_as_float(b);
        return (a.t == LF_JJ_BOOL ? a.u.b : a.u.i) == (b.t == LF_JJ_BOOL ? b.u.b : b.u.i);
    }
    if (a.t != b.t)
        return false;
    switch (a.t) {
    case LF_JJ_STR:
        return a.n == b.n && memcmp(a.u.s, b.u.s, a.n) == 0;
    case LF_JJ_SEQ:
        return equal_seqs(a.u.seq, b.u.seq);
    case LF_JJ_MAP:
        return equal_maps(a.u.map, b.u.map);
    case LF_JJ_NS:
    case LF_JJ_FUNC:
    case LF_JJ_LOOP:
        return a.u.map == b.u.map;
    default:
        return true;
    }
}

static int order_seqs(lf_jj_run *r, const lf_jj_node *at, const struct lf_jj_seq *a,
                      const struct lf_jj_seq *b)
{
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!lf_jj_equal(a->v[i], b->v[i]))
            return lf_jj_order(r, at, a->v[i], b->v[i]);
    return (a->n > b->n) - (a->n < b->n);
}

int lf_jj_order(lf_jj_run *r, const lf_jj_node *at, lf_jj_val a, lf_jj_val b)
{
    if (lf_jj_is_number(a) && lf_jj_is_number(b)) {
        double x = lf_jj_as_float(a), y = lf_jj_as_float(b);
        if (a.t == LF_JJ_INT && b.t == LF_JJ_INT)
            return (a.u.i > b.u.i) - (a.u.i < b.u.i);
        return (x > y) - (x < y);
    }
    if (a.t == LF_JJ_STR && b.t == LF_JJ_STR) {
        int c = memcmp(a.u.s, b.u.s, a.n < b.n ? a.n : b.n); /* UTF-8 sorts as its characters do */
        return c ? c : (a.n > b.n) - (a.n < b.n);
    }
    if (a.t == LF_JJ_SEQ && b.t == LF_JJ_SEQ && a.u.seq->tuple == b.u.seq->tuple)
        return order_seqs(r, at, a.u.seq, b.u.seq);
    if (a.t == LF_JJ_UNDEF || b.t == LF_JJ_UNDEF)
        lf_jj_fail(r, at, "%s", a.t == LF_JJ_UNDEF ? a.u.s : b.u.s);
    else
        lf_jj_fail(r, at, "%s and %s have no order", lf_jj_type_name(a), lf_jj_type_name(b));
    return 0;
}

bool lf_jj_hashable(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v)
{
    bool yes = v.t != LF_JJ_MAP && (v.t != LF_JJ_SEQ || v.u.seq->tuple);
    for (size_t i = 0; yes && v.t == LF_JJ_SEQ && i < v.u.seq->n; i++)
        if (!lf_jj_hashable(r, at, v.u.seq->v[i]))
            return false;
    if (!yes)
        lf_jj_fail(r, at, "a %s cannot be a key", lf_jj_type_name(v));
    return yes;
}

const char *lf_jj_type_name(lf_jj_val v)
{
    static const char *const names[] = {"undefined", "None",     "bool", "int",
                                        "float",     "str",      "list", "dict",
                                        "namespace", "function", "loop"};
    return v.t == LF_JJ_SEQ && v.u.seq->tuple ? "tuple" : names[v.t];
}

lf_jj_val lf_jj_iter(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v)
{
    lf_jj_val out;
    size_t n, i = 0;
    switch (v.t) {
    case LF_JJ_SEQ:
        return v;
    case LF_JJ_UNDEF:
        return lf_jj_seq_make(r, 0, false);
    case LF_JJ_MAP:
        out = lf_jj_seq_make(r, v.u.map->n, false);
        for (; r->rc == 0 && i < v.u.map->n; i++)
            out.u.seq->v[i] = v.u.map->k[i];
        return out;
    case LF_JJ_STR:
        out = lf_jj_seq_make(r, lf_jj_chars(v.u.s, v.n), false);
        for (size_t k = 0; r->rc == 0 && i < out.u.seq->n; i++, k += n) {
            n = lf_jj_char_len(v.u.s + k, v.n - k);
            out.u.seq->v[i] = lf_jj_str(v.u.s + k, n);
        }
        return out;
    default:
        return lf_jj_fail(r, at, "a value of type %s cannot be iterated", lf_jj_type_name(v));
    }
}

int64_t lf_jj_length(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v)
{
    switch (v.t) {
    case LF_JJ_SEQ:
        return (int64_t)v.u.seq->n;
    case LF_JJ_MAP:
        return (int64_t)v.u.map->n;
    case LF_JJ_STR:
        return (int64_t)lf_jj_chars(v.u.s, v.n);
    case LF_JJ_UNDEF:
        return 0;
    case LF_JJ_LOOP:
        return (int64_t)v.u.loop->length;
    default:
        lf_jj_fail(r, at, "a value of type %s has no length", lf_jj_type_name(v));
        return 0;
    }
}
