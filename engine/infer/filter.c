/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters and exact match; see filter.h.
 */
#include "engine/infer/filter.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/infer/pyre.h"
#include "engine/infer/score.h"
#include "engine/text/token/uniclass.h"
#include "engine/text/token/unitext.h"

typedef struct step step;
typedef json_t *(*step_fn)(const step *s, json_t *texts,
                           lf_err *err); /* list in, list (or text) out; owned */

struct step {
    step_fn run;
    lf_pyre *re;
    json_t *options; /* borrowed */
    int64_t n;       /* group_select, k */
    const char *fallback;
};

struct lf_filter {
    step *v;
    size_t n;
    json_t *steps;
};

static json_t *stripped(const char *s, size_t n)
{
    size_t from = lf_lstrip_len(s, n);
    return json_stringn_nocheck(s + from, lf_rstrip_len(s + from, n - from));
}

/* ---- case ------------------------------------------------------------------------------------ */

static void add_utf8(lf_buf *out, uint32_t c)
{
    char u[4];
    lf_buf_add(out, u, lf_utf8_put(u, c));
}

static void add_lower(lf_buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        unsigned len;
        uint32_t c = lf_utf8_get((const uint8_t *)s + i, &len);
        if (c == 0x130)
            lf_buf_adds(out, "i\xCC\x87");
        else
            add_utf8(out, lf_unitext_lower(c));
        i += len;
    }
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Of what findall gave for one text. */
static json_t *selected(const step *s, json_t *all)
{
    int64_t n = (int64_t)json_array_size(all), at = s->n < 0 ? n + s->n : s->n;
    json_t *m = at >= 0 && at < n ? json_array_get(all, (size_t)at) : NULL, *part = m;
    size_t i;
    if (json_is_array(m)) {
        json_t *e;
        part = NULL;
        json_array_foreach(m, i, e) if (!part && json_string_length(e) > 0) part = e;
    }
    return part ? stripped(json_string_value(part), json_string_length(part))
                : json_string(s->fallback);
}

static json_t *run_regex(const step *s, json_t *texts, lf_err *err)
{
    json_t *out = json_array(), *t;
    size_t i;
    json_array_foreach(texts, i, t)
    {
        json_t *all = lf_pyre_findall(s->re, json_string_value(t), json_string_length(t), err);
        if (all && json_array_size(all) > 0 &&
            (s->n >= (int64_t)json_array_size(all) || s->n < -(int64_t)json_array_size(all))) {
            lf_fail(err, LF_EINVAL, "regex: group_select %lld, but a text has %zu matches",
                    (long long)s->n, json_array_size(all));
            json_decref(all);
            all = NULL;
        }
        if (!all) {
            json_decref(out);
            return NULL;
        }
        json_array_append_new(out, selected(s, all));
        json_decref(all);
    }
    return out;
}

static json_t *run_strip(const step *s, json_t *texts, lf_err *err)
{
    json_t *out = json_array(), *t;
    size_t i;
    (void)s;
    (void)err;
    json_array_foreach(texts, i, t)
        json_array_append_new(out, stripped(json_string_value(t), json_string_length(t)));
    return out;
}

static json_t *run_lower(const step *s, json_t *texts, lf_err *err)
{
    json_t *out = json_array(), *t;
    size_t i;
    (void)s;
    json_array_foreach(texts, i, t)
    {
        lf_buf b;
        lf_buf_init(&b);
        add_lower(&b, json_string_value(t), json_string_length(t));
        json_array_append_new(out, json_stringn_nocheck(b.data, b.len));
        if (lf_buf_check(&b, err)) {
            json_decref(out);
            out = NULL;
        }
        lf_buf_fini(&b);
        if (!out)
            break;
    }
    return out;
}

static json_t *run_map(const step *s, json_t *texts, lf_err *err)
{
    json_t *out = json_array(), *t, *map = json_object_get(s->options, "mapping_dict"),
           *none = json_object_get(s->options, "default_value");
    size_t i;
    (void)err;
    json_array_foreach(texts, i, t)
    {
        json_t *v = json_object_get(map, json_string_value(t));
        v = v ? v : none;
        json_array_append_new(out, json_is_string(v) ? json_incref(v) : json_string("None"));
    }
    return out;
}

static json_t *run_majority(const step *s, json_t *texts, lf_err *err)
{
    size_t n = json_array_size(texts), best = 0, most = 0;
    (void)s;
    (void)err;
    for (size_t i = 0; i < n; i++) {
        size_t same = 0;
        for (size_t k = 0; k < n; k++)
            same += json_equal(json_array_get(texts, i), json_array_get(texts, k)) != 0;
        if (same > most) {
            most = same;
            best = i;
        }
    }
    return json_pack("[O]", json_array_get(texts, best));
}

static json_t *run_first(const step *s, json_t *texts, lf_err *err)
{
    (void)s;
    (void)err;
    return json_incref(json_array_get(texts, 0));
}

static json_t *run_first_k(const step *s, json_t *texts, lf_err *err)
{
    json_t *out = json_array();
    if ((int64_t)json_array_size(texts) < s->n)
        lf_fail(err, LF_EINVAL, "take_first_k: %lld texts are wanted, a document has %zu",
                (long long)s->n, json_array_size(texts));
    for (size_t i = 0; i < (size_t)s->n && i < json_array_size(texts); i++)
        json_array_append(out, json_array_get(texts, i));
    if ((int64_t)json_array_size(out) == s->n)
        return out;
    json_decref(out);
    return NULL;
}

static const struct {
    const char *name;
    step_fn run;
} functions[] = {{"regex", run_regex},
                 {"remove_whitespace", run_strip},
                 {"lowercase", run_lower},
                 {"map", run_map},
                 {"majority_vote", run_majority},
                 {"take_first", run_first},
                 {"take_first_k", run_first_k}};

static int create_step(step *s, json_t *o, lf_err *err)
{
    const char *name, *pattern = "#### (\\-?[0-9\\.\\,]+)";
    size_t i = 0;
    int rc = lf_json_get_str(&name, o, "function", true, "filter step", err);
    if (rc != 0)
        return rc;
    while (i < sizeof functions / sizeof *functions && strcmp(functions[i].name, name) != 0)
        i++;
    if (i == sizeof functions / sizeof *functions)
        return lf_fail(err, LF_ENOTSUP, "the filter '%s' is not supported", name);
    s->run = functions[i].run;
    s->options = o;
    s->fallback = "[invalid]";
    rc = lf_json_get_str(&s->fallback, o, "fallback", false, name, err);
    if (rc == 0 && s->run == run_regex &&
        (rc = lf_json_get_str(&pattern, o, "regex_pattern", false, name, err)) == 0 &&
        (rc = lf_json_get_i64(&s->n, o, "group_select", false, name, err)) == 0)
        s->re = lf_pyre_create(pattern, err);
    if (rc == 0 && s->run == run_regex && !s->re)
        rc = LF_EFORMAT;
    if (rc == 0 && s->run == run_first_k)
        rc = lf_json_get_i64(&s->n, o, "k", true, name, err);
    if (rc == 0 && s->run == run_map && !json_is_object(json_object_get(o, "mapping_dict")))
        rc = lf_fail(err, LF_EFORMAT, "map: 'mapping_dict' must be an object");
    return rc;
}

lf_filter *lf_filter_create(json_t *steps, lf_err *err)
{
    lf_filter *f = lf_calloc(1, sizeof *f, err);
    size_t n = json_array_size(steps);
    int rc = f && (f->v = lf_calloc(n + 1, sizeof *f->v, err)) ? 0 : LF_ENOMEM;
    if (f)
        f->steps = json_incref(steps);
    for (; rc == 0 && f->n < n; f->n++)
        rc = create_step(&f->v[f->n], json_array_get(steps, f->n), err);
    for (size_t i = 0; rc == 0 && i + 1 < n; i++)
        if (f->v[i].run == run_first)
            rc = lf_fail(err, LF_EFORMAT, "a filter's take_first must be its last step");
    if (rc == 0)
        return f;
    lf_filter_destroy(f);
    return NULL;
}

void lf_filter_destroy(lf_filter *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->n; i++)
        lf_pyre_destroy(f->v[i].re);
    json_decref(f->steps);
    free(f->v);
    free(f);
}

json_t *lf_filter_apply(lf_filter *f, json_t *texts, lf_err *err)
{
    json_t *v = json_incref(texts);
    for (size_t i = 0; v && i < f->n; i++) {
        json_t *next = f->v[i].run(&f->v[i], v, err);
        json_decref(v);
        v = next;
    }
    return v;
}

/* ---- exact match ----------------------------------------------------------------------------- */

#define MAX_PATTERNS 32

struct lf_match {
    lf_pyre *re[MAX_PATTERNS];
    size_t n;
    bool ignore_case, ignore_punctuation, ignore_numbers;
};

lf_match *lf_match_create(json_t *options, lf_err *err)
{
    const char *key;
    json_t *v;
    lf_match *m = lf_calloc(1, sizeof *m, err);
    int rc = m ? 0 : LF_ENOMEM;
    json_object_foreach(options, key, v)
    {
        bool patterns = strcmp(key, "regexes_to_ignore") == 0;
        bool *flag = !m                                       ? NULL
                     : strcmp(key, "ignore_case") == 0        ? &m->ignore_case
                     : strcmp(key, "ignore_punctuation") == 0 ? &m->ignore_punctuation
                     : strcmp(key, "ignore_numbers") == 0     ? &m->ignore_numbers
                                                              : NULL;
        if (rc == 0 && !flag && !patterns)
            rc = lf_fail(err, LF_ENOTSUP, "exact_match has no option '%s'", key);
        if (rc == 0 && flag)
            *flag = json_is_true(v);
        for (size_t i = 0; rc == 0 && patterns && i < json_array_size(v); i++) {
            const char *p = json_string_value(json_array_get(v, i));
            if (!p || m->n == MAX_PATTERNS || !(m->re[m->n] = lf_pyre_create(p, err)))
                rc = p && m->n < MAX_PATTERNS
                         ? LF_EFORMAT
                         : lf_fail(err, LF_EFORMAT, "regexes_to_ignore: entry %zu is no pattern",
                                   i + 1);
            else
                m->n++;
        }
    }
    if (rc == 0)
        return m;
    lf_match_destroy(m);
    return NULL;
}

void lf_match_destroy(lf_match *m)
{
    for (size_t i = 0; m && i < m->n; i++)
        lf_pyre_destroy(m->re[i]);
    free(m);
}

/* The text as it is compared. */
static int treat(lf_match *m, const char *s, lf_buf *out, lf_err *err)
{
    lf_buf other;
    int rc = 0;
    lf_buf_init(&other);
    lf_buf_adds(out, s);
    for (size_t i = 0; rc == 0 && i < m->n; i++) {
        lf_buf_clear(&other);
        rc = lf_pyre_remove(m->re[i], out->data, out->len, &other, err);
        lf_buf_clear(out);
        lf_buf_add(out, other.data, other.len);
    }
    if (m->ignore_case) {
        lf_buf_clear(&other);
        add_lower(&other, out->data, out->len);
        lf_buf_clear(out);
        lf_buf_add(out, other.data, other.len);
    }
    size_t k = 0;
    for (size_t i = 0; i < out->len; i++) {
        unsigned char c = (unsigned char)out->data[i];
        if (!(m->ignore_punctuation && c < 0x80 && ispunct(c)) &&
            !(m->ignore_numbers && c >= '0' && c <= '9'))
            out->data[k++] = (char)c;
    }
    out->len = k;
    out->data[k] = 0;
    if (rc == 0 && (rc = lf_buf_check(&other, err)) == 0)
        rc = lf_buf_check(out, err);
    lf_buf_fini(&other);
    return rc;
}

int lf_match_equal(lf_match *m, const char *a, const char *b, bool *equal, lf_err *err)
{
    lf_buf x, y;
    lf_buf_init(&x);
    lf_buf_init(&y);
    int rc = treat(m, a, &x, err);
    if (rc == 0)
        rc = treat(m, b, &y, err);
    if (rc == 0)
        *equal = x.len == y.len && memcmp(x.data, y.data, x.len) == 0;
    lf_buf_fini(&x);
    lf_buf_fini(&y);
    return rc;
}
