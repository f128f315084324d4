/* SPDX-License-Identifier: Apache-2.0
 *
 * Values as Python has them, in memory that lives as long as one rendering. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/text/jinja/priv.h"

#define JSON_DEPTH_MAX 200

const jj_val jj_none = {.t = JJ_NONE}, jj_undef = {.t = JJ_UNDEF, .u.s = "a value that is not there"};

jj_val jj_bool(bool b)
{
    return (jj_val){.t = JJ_BOOL, .u.b = b};
}
jj_val jj_int(int64_t i)
{
    return (jj_val){.t = JJ_INT, .u.i = i};
}
jj_val jj_float(double f)
{
    return (jj_val){.t = JJ_FLOAT, .u.f = f};
}
jj_val jj_str(const char *s, size_t n)
{
    return (jj_val){.t = JJ_STR, .n = n, .u.s = s};
}
jj_val jj_strz(const char *s)
{
    return jj_str(s, strlen(s));
}

void *jj_alloc(jj_run *r, size_t n, size_t size)
{
    size_t bytes;
    if (r->rc)
        return NULL;
    if (!lf_size_mul(&bytes, n, size) || bytes > r->o.max_memory - r->memory) {
        r->rc = lf_fail(r->err, LF_ENOMEM, "%s: rendering needs more than %zu MiB", r->t->name, r->o.max_memory >> 20);
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

jj_val jj_fail_rc(jj_run *r, const jj_node *at, int rc, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (r->rc == 0)
        r->rc = jj_fail_at(r->t, at->line, at->col, rc, r->err, "%s", text);
    return jj_undef;
}

jj_val jj_fail(jj_run *r, const jj_node *at, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return jj_fail_rc(r, at, LF_EINVAL, "%s", text);
}

jj_val jj_undefined(jj_run *r, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    jj_val v = jj_str_copy(r, text, strlen(text));
    return r->rc ? jj_undef : (jj_val){.t = JJ_UNDEF, .u.s = v.u.s};
}

jj_val jj_str_copy(jj_run *r, const char *s, size_t n)
{
    char *p = n == SIZE_MAX ? NULL : jj_alloc(r, n + 1, 1);
    if (!p)
        return jj_undef;
    memcpy(p, s, n);
    return jj_str(p, n);
}

jj_val jj_str_take(jj_run *r, lf_buf *b)
{
    if (r->rc == 0)
        r->rc = lf_buf_check(b, r->err);
    jj_val v = r->rc ? jj_undef : jj_str_copy(r, b->data, b->len);
    lf_buf_fini(b);
    return v;
}

jj_val jj_seq_make(jj_run *r, size_t n, bool tuple)
{
    struct jj_seq *s = jj_alloc(r, 1, sizeof(*s));
    jj_val *v = s ? jj_alloc(r, n, sizeof(*v)) : NULL;
    if (!v)
        return jj_undef;
    *s = (struct jj_seq){n, tuple, v};
    return (jj_val){.t = JJ_SEQ, .u.seq = s};
}

jj_val jj_map_make(jj_run *r, size_t cap)
{
    struct jj_map *m = jj_alloc(r, 1, sizeof(*m));
    if (!m)
        return jj_undef;
    m->k = jj_alloc(r, cap, sizeof(jj_val));
    m->v = m->k ? jj_alloc(r, cap, sizeof(jj_val)) : NULL;
    m->cap = cap;
    return m->v ? (jj_val){.t = JJ_MAP, .u.map = m} : jj_undef;
}

/* Index of a key, m->n when there is none. */
static size_t map_find(const struct jj_map *m, jj_val k)
{
    size_t i = 0;
    while (i < m->n && !jj_equal(m->k[i], k))
        i++;
    return i;
}

void jj_map_set(jj_run *r, struct jj_map *m, jj_val k, jj_val v)
{
    size_t at = map_find(m, k);
    if (at < m->n) {
        m->v[at] = v;
        return;
    }
    if (m->n == m->cap) {
        size_t cap = m->cap ? m->cap * 2 : 4;
        jj_val *ks = jj_alloc(r, cap, sizeof(*ks)), *vs = ks ? jj_alloc(r, cap, sizeof(*vs)) : NULL;
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
}

const jj_val *jj_map_get(const struct jj_map *m, jj_val k)
{
    size_t i = map_find(m, k);
    return i < m->n ? &m->v[i] : NULL;
}

const jj_val *jj_map_gets(const struct jj_map *m, const char *key)
{
    return jj_map_get(m, jj_strz(key));
}

static jj_val from_json(jj_run *r, json_t *j, int depth);

static jj_val from_array(jj_run *r, json_t *j, int depth)
{
    jj_val v = jj_seq_make(r, json_array_size(j), false);
    for (size_t i = 0; r->rc == 0 && i < v.u.seq->n; i++)
        v.u.seq->v[i] = from_json(r, json_array_get(j, i), depth + 1);
    return v;
}

/* The keys of an object differ: no need to look for each. */
static jj_val from_object(jj_run *r, json_t *j, int depth)
{
    jj_val v = jj_map_make(r, json_object_size(j));
    const char *key;
    json_t *x;
    json_object_foreach(j, key, x)
    {
        if (r->rc)
            break;
        struct jj_map *m = v.u.map;
        m->k[m->n] = jj_strz(key);
        m->v[m->n++] = from_json(r, x, depth + 1);
    }
    return v;
}

static jj_val from_json(jj_run *r, json_t *j, int depth)
{
    if (depth > JSON_DEPTH_MAX) {
        r->rc =
            lf_fail(r->err, LF_EINVAL, "%s: a variable is nested more than %d levels deep", r->t->name, JSON_DEPTH_MAX);
        return jj_undef;
    }
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return from_object(r, j, depth);
    case JSON_ARRAY:
        return from_array(r, j, depth);
    case JSON_STRING:
        return jj_str(json_string_value(j), json_string_length(j));
    case JSON_INTEGER:
        return jj_int(json_integer_value(j));
    case JSON_REAL:
        return jj_float(json_real_value(j));
    case JSON_TRUE:
    case JSON_FALSE:
        return jj_bool(json_is_true(j));
    default:
        return jj_none;
    }
}

jj_val jj_from_json(jj_run *r, json_t *j)
{
    return from_json(r, j, 0);
}

bool jj_is_number(jj_val v)
{
    return v.t == JJ_INT || v.t == JJ_FLOAT || v.t == JJ_BOOL;
}
double jj_as_float(jj_val v)
{
    return v.t == JJ_FLOAT ? v.u.f : v.t == JJ_BOOL ? v.u.b : (double)v.u.i;
}

bool jj_truth(jj_val v)
{
    switch (v.t) {
    case JJ_UNDEF:
    case JJ_NONE:
        return false;
    case JJ_BOOL:
        return v.u.b;
    case JJ_INT:
        return v.u.i != 0;
    case JJ_FLOAT:
        return v.u.f != 0;
    case JJ_STR:
        return v.n > 0;
    case JJ_SEQ:
        return v.u.seq->n > 0;
    case JJ_MAP:
        return v.u.map->n > 0;
    default:
        return true;
    }
}

static bool equal_maps(const struct jj_map *a, const struct jj_map *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const jj_val *v = jj_map_get(b, a->k[i]);
        if (!v || !jj_equal(a->v[i], *v))
            return false;
    }
    return true;
}

static bool equal_seqs(const struct jj_seq *a, const struct jj_seq *b)
{
    bool same = a->n == b->n && a->tuple == b->tuple;
    for (size_t i = 0; same && i < a->n; i++)
        same = jj_equal(a->v[i], b->v[i]);
    return same;
}

bool jj_equal(jj_val a, jj_val b)
{
    if (jj_is_number(a) && jj_is_number(b)) {
        if (a.t == JJ_FLOAT || b.t == JJ_FLOAT)
            return jj_as_float(a) == jj_as_float(b);
        return (a.t == JJ_BOOL ? a.u.b : a.u.i) == (b.t == JJ_BOOL ? b.u.b : b.u.i);
    }
    if (a.t != b.t)
        return false;
    switch (a.t) {
    case JJ_STR:
        return a.n == b.n && memcmp(a.u.s, b.u.s, a.n) == 0;
    case JJ_SEQ:
        return equal_seqs(a.u.seq, b.u.seq);
    case JJ_MAP:
        return equal_maps(a.u.map, b.u.map);
    case JJ_NS:
    case JJ_FUNC:
    case JJ_LOOP:
        return a.u.map == b.u.map;
    default:
        return true;
    }
}

static int order_seqs(jj_run *r, const jj_node *at, const struct jj_seq *a, const struct jj_seq *b)
{
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!jj_equal(a->v[i], b->v[i]))
            return jj_order(r, at, a->v[i], b->v[i]);
    return (a->n > b->n) - (a->n < b->n);
}

int jj_order(jj_run *r, const jj_node *at, jj_val a, jj_val b)
{
    if (jj_is_number(a) && jj_is_number(b)) {
        double x = jj_as_float(a), y = jj_as_float(b);
        if (a.t == JJ_INT && b.t == JJ_INT)
            return (a.u.i > b.u.i) - (a.u.i < b.u.i);
        return (x > y) - (x < y);
    }
    if (a.t == JJ_STR && b.t == JJ_STR) {
        int c = memcmp(a.u.s, b.u.s, a.n < b.n ? a.n : b.n); /* UTF-8 sorts as its characters do */
        return c ? c : (a.n > b.n) - (a.n < b.n);
    }
    if (a.t == JJ_SEQ && b.t == JJ_SEQ && a.u.seq->tuple == b.u.seq->tuple)
        return order_seqs(r, at, a.u.seq, b.u.seq);
    if (a.t == JJ_UNDEF || b.t == JJ_UNDEF)
        jj_fail(r, at, "%s", a.t == JJ_UNDEF ? a.u.s : b.u.s);
    else
        jj_fail(r, at, "%s and %s have no order", jj_type_name(a), jj_type_name(b));
    return 0;
}

bool jj_hashable(jj_run *r, const jj_node *at, jj_val v)
{
    bool yes = v.t != JJ_MAP && (v.t != JJ_SEQ || v.u.seq->tuple);
    for (size_t i = 0; yes && v.t == JJ_SEQ && i < v.u.seq->n; i++)
        if (!jj_hashable(r, at, v.u.seq->v[i]))
            return false;
    if (!yes)
        jj_fail(r, at, "a %s cannot be a key", jj_type_name(v));
    return yes;
}

const char *jj_type_name(jj_val v)
{
    static const char *const names[] = {"undefined", "None", "bool",      "int",      "float", "str",
                                        "list",      "dict", "namespace", "function", "loop"};
    return v.t == JJ_SEQ && v.u.seq->tuple ? "tuple" : names[v.t];
}

jj_val jj_iter(jj_run *r, const jj_node *at, jj_val v)
{
    jj_val out;
    size_t n, i = 0;
    switch (v.t) {
    case JJ_SEQ:
        return v;
    case JJ_UNDEF:
        return jj_seq_make(r, 0, false);
    case JJ_MAP:
        out = jj_seq_make(r, v.u.map->n, false);
        for (; r->rc == 0 && i < v.u.map->n; i++)
            out.u.seq->v[i] = v.u.map->k[i];
        return out;
    case JJ_STR:
        out = jj_seq_make(r, jj_chars(v.u.s, v.n), false);
        for (size_t k = 0; r->rc == 0 && i < out.u.seq->n; i++, k += n) {
            n = jj_char_len(v.u.s + k, v.n - k);
            out.u.seq->v[i] = jj_str(v.u.s + k, n);
        }
        return out;
    default:
        return jj_fail(r, at, "a value of type %s cannot be iterated", jj_type_name(v));
    }
}

int64_t jj_length(jj_run *r, const jj_node *at, jj_val v)
{
    switch (v.t) {
    case JJ_SEQ:
        return (int64_t)v.u.seq->n;
    case JJ_MAP:
        return (int64_t)v.u.map->n;
    case JJ_STR:
        return (int64_t)jj_chars(v.u.s, v.n);
    case JJ_UNDEF:
        return 0;
    case JJ_LOOP:
        return (int64_t)v.u.loop->length;
    default:
        jj_fail(r, at, "a value of type %s has no length", jj_type_name(v));
        return 0;
    }
}
