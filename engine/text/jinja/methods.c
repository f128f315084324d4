/* SPDX-License-Identifier: Apache-2.0
 *
 * Methods of strings, dicts and lists, and the global functions. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <utf8proc.h>

#include "engine/text/jinja/priv.h"

#define RANGE_MAX 100000 /* as the sandbox has it */

/* ---- arguments ---- */

static const lf_jj_val *named(const lf_jj_args *a, const char *name)
{
    for (size_t i = 0; name && i < a->n_names; i++)
        if (strcmp(a->names[i], name) == 0)
            return &a->values[i];
    return NULL;
}

bool lf_jj_arg_given(const lf_jj_args *a, size_t i, const char *name)
{
    return i < a->n || named(a, name);
}

lf_jj_val lf_jj_arg(const lf_jj_args *a, size_t i, const char *name, lf_jj_val def)
{
    const lf_jj_val *v = i < a->n ? &a->v[i] : named(a, name);
    return v ? *v : def;
}

bool lf_jj_args_ok(lf_jj_run *r, const lf_jj_node *at, const char *what, const lf_jj_args *a,
                   size_t least, size_t most, const char *const *keywords)
{
    for (size_t i = 0; i < a->n_names; i++) {
        bool known = false;
        for (size_t k = 0; keywords && keywords[k]; k++)
            known = known || strcmp(a->names[i], keywords[k]) == 0;
        if (!known) {
            lf_jj_fail(r, at, "%s has no argument '%s'", what, a->names[i]);
            return false;
        }
    }
    if (a->n + a->n_names < least || a->n > most) {
        lf_jj_fail(r, at, "%s: %zu arguments were given", what, a->n + a->n_names);
        return false;
    }
    return r->rc == 0;
}

/* A string argument; false after a failure. */
static bool str_arg(lf_jj_run *r, const lf_jj_node *at, const char *what, const lf_jj_args *a,
                    size_t i, const char *name, lf_jj_val *out)
{
    *out = lf_jj_arg(a, i, name, lf_jj_undef);
    if (out->t == LF_JJ_STR)
        return true;
    lf_jj_fail(r, at, "%s wants a str, not a %s", what, lf_jj_type_name(*out));
    return false;
}

#define METHOD(name)                                                                               \
    static lf_jj_val name(lf_jj_run *r, const lf_jj_node *at, lf_jj_val self, const lf_jj_args *a)
#define NO_ARGS(what)                                                                              \
    if (!lf_jj_args_ok(r, at, what, a, 0, 0, NULL))                                                \
    return lf_jj_undef

/* ---- strings ---- */

METHOD(str_upper)
{
    NO_ARGS("upper");
    return lf_jj_change_case(r, self, LF_JJ_UPPER);
}
METHOD(str_lower)
{
    NO_ARGS("lower");
    return lf_jj_change_case(r, self, LF_JJ_LOWER);
}
METHOD(str_title)
{
    NO_ARGS("title");
    return lf_jj_change_case(r, self, LF_JJ_TITLE);
}
METHOD(str_capitalize)
{
    NO_ARGS("capitalize");
    return lf_jj_change_case(r, self, LF_JJ_CAPITALIZE);
}

static lf_jj_val strip(lf_jj_run *r, const lf_jj_node *at, lf_jj_val self, const lf_jj_args *a,
                       int which)
{
    if (!lf_jj_args_ok(r, at, "strip", a, 0, 1, NULL))
        return lf_jj_undef;
    lf_jj_val set = lf_jj_arg(a, 0, NULL, lf_jj_none);
    if (set.t != LF_JJ_NONE && set.t != LF_JJ_STR)
        return lf_jj_fail(r, at, "strip wants a str, not a %s", lf_jj_type_name(set));
    return lf_jj_strip(self, set.u.s, set.t == LF_JJ_NONE ? SIZE_MAX : set.n, which);
}
METHOD(str_strip)
{
    return strip(r, at, self, a, 3);
}
METHOD(str_lstrip)
{
    return strip(r, at, self, a, 1);
}
METHOD(str_rstrip)
{
    return strip(r, at, self, a, 2);
}

static lf_jj_val affix(lf_jj_run *r, const lf_jj_node *at, lf_jj_val self, const lf_jj_args *a,
                       bool end)
{
    const char *what = end ? "endswith" : "startswith";
    if (!lf_jj_args_ok(r, at, what, a, 1, 1, NULL))
        return lf_jj_undef;
    lf_jj_val one = a->v[0];
    struct lf_jj_seq single = {.n = 1, .tuple = true, .v = &one},
                     *all = one.t == LF_JJ_SEQ && one.u.seq->tuple ? one.u.seq : &single;
    for (size_t i = 0; i < all->n; i++) {
        lf_jj_val x = all->v[i];
        if (x.t != LF_JJ_STR)
            return lf_jj_fail(r, at, "%s wants a str, not a %s", what, lf_jj_type_name(x));
        if (x.n <= self.n && memcmp(self.u.s + (end ? self.n - x.n : 0), x.u.s, x.n) == 0)
            return lf_jj_bool(true);
    }
    return lf_jj_bool(false);
}
METHOD(str_startswith)
{
    return affix(r, at, self, a, false);
}
METHOD(str_endswith)
{
    return affix(r, at, self, a, true);
}

static lf_jj_val remove_affix(lf_jj_run *r, const lf_jj_node *at, lf_jj_val self,
                              const lf_jj_args *a, bool end)
{
    lf_jj_val x;
    if (!lf_jj_args_ok(r, at, "removeprefix", a, 1, 1, NULL) ||
        !str_arg(r, at, "removeprefix", a, 0, NULL, &x))
        return lf_jj_undef;
    if (x.n > self.n || memcmp(self.u.s + (end ? self.n - x.n : 0), x.u.s, x.n) != 0)
        return self;
    return lf_jj_str(self.u.s + (end ? 0 : x.n), self.n - x.n);
}
METHOD(str_removeprefix)
{
    return remove_affix(r, at, self, a, false);
}
METHOD(str_removesuffix)
{
    return remove_affix(r, at, self, a, true);
}

struct pieces {
    lf_jj_val *v;
    size_t n, cap;
};

static void add_piece(lf_jj_run *r, struct pieces *p, const char *s, size_t n)
{
    if (p->n == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 8;
        lf_jj_val *v = lf_jj_alloc(r, cap, sizeof(*v));
        if (!v)
            return;
        if (p->n)
            memcpy(v, p->v, p->n * sizeof(*v));
        p->v = v;
        p->cap = cap;
    }
    p->v[p->n++] = lf_jj_str(s, n);
}

static lf_jj_val pieces_list(lf_jj_run *r, const struct pieces *p, bool backwards)
{
    lf_jj_val out = lf_jj_seq_make(r, p->n, false);
    for (size_t i = 0; r->rc == 0 && i < p->n; i++)
        out.u.seq->v[i] = p->v[backwards ? p->n - 1 - i : i];
    return out;
}

/* Split at runs of white space, none of it kept. */
static lf_jj_val split_words(lf_jj_run *r, lf_jj_val s, int64_t most, bool right)
{
    struct pieces p = {0};
    for (s = lf_jj_strip(s, NULL, SIZE_MAX, right ? 2 : 1); r->rc == 0 && s.n > 0; most--) {
        if (most == 0) {
            add_piece(r, &p, s.u.s, s.n);
            break;
        }
        size_t i = right ? s.n : 0, len;
        if (right) {
            while (i > 0) {
                size_t k = i - 1;
                while (k > 0 && ((unsigned char)s.u.s[k] & 0xC0) == 0x80)
                    k--;
                if (lf_jj_is_space(lf_jj_char(s.u.s + k, i - k, &len)))
                    break;
                i = k;
            }
            add_piece(r, &p, s.u.s + i, s.n - i);
            s = lf_jj_strip(lf_jj_str(s.u.s, i), NULL, SIZE_MAX, 2);
        } else {
            while (i < s.n && !lf_jj_is_space(lf_jj_char(s.u.s + i, s.n - i, &len)))
                i += len;
            add_piece(r, &p, s.u.s, i);
            s = lf_jj_strip(lf_jj_str(s.u.s + i, s.n - i), NULL, SIZE_MAX, 1);
        }
    }
    return pieces_list(r, &p, right);
}

static bool find_last(lf_jj_val s, lf_jj_val sep, size_t *at)
{
    for (size_t i = s.n >= sep.n ? s.n - sep.n + 1 : 0; i-- > 0;)
        if (memcmp(s.u.s + i, sep.u.s, sep.n) == 0) {
            *at = i;
            return true;
        }
    return false;
}

static lf_jj_val split(lf_jj_run *r, const lf_jj_node *at, lf_jj_val self, const lf_jj_args *a,
                       bool right)
{
    static const char *const keywords[] = {"sep", "maxsplit", NULL};
    if (!lf_jj_args_ok(r, at, "split", a, 0, 2, keywords))
        return lf_jj_undef;
    lf_jj_val sep = lf_jj_arg(a, 0, "sep", lf_jj_none),
              most = lf_jj_arg(a, 1, "maxsplit", lf_jj_int(-1));
    if (most.t != LF_JJ_INT)
        return lf_jj_fail(r, at, "split: maxsplit is a whole number");
    if (sep.t == LF_JJ_NONE)
        return split_words(r, self, most.u.i, right);
    if (sep.t != LF_JJ_STR || sep.n == 0)
        return lf_jj_fail(r, at, "split wants a str that is not empty");
    struct pieces p = {0};
    size_t k;
    for (int64_t left = most.u.i; r->rc == 0 && left != 0; left--) {
        if (!(right ? find_last(self, sep, &k) : lf_jj_find(self.u.s, self.n, sep.u.s, sep.n, &k)))
            break;
        if (right) {
            add_piece(r, &p, self.u.s + k + sep.n, self.n - k - sep.n);
            self.n = k;
        } else {
            add_piece(r, &p, self.u.s, k);
            self = lf_jj_str(self.u.s + k + sep.n, self.n - k - sep.n);
        }
    }
    add_piece(r, &p, self.u.s, self.n);
    return pieces_list(r, &p, right);
}
METHOD(str_split)
{
    return split(r, at, self, a, false);
}
METHOD(str_rsplit)
{
    return split(r, at, self, a, true);
}

static bool line_end(int32_t c)
{
    return c == '\n' || c == '\r' || c == '\v' || c == '\f' || (c >= 0x1c && c <= 0x1e) ||
           c == 0x85 || c == 0x2028 || c == 0x2029;
}

METHOD(str_splitlines)
{
    static const char *const keywords[] = {"keepends", NULL};
    struct pieces p = {0};
    if (!lf_jj_args_ok(r, at, "splitlines", a, 0, 1, keywords))
        return lf_jj_undef;
    bool keep = lf_jj_truth(lf_jj_arg(a, 0, "keepends", lf_jj_bool(false)));
    size_t from = 0, len;
    for (size_t i = 0; r->rc == 0 && i < self.n; i += len) {
        int32_t c = lf_jj_char(self.u.s + i, self.n - i, &len);
        if (!line_end(c))
            continue;
        size_t text = i - from;
        if (c == '\r' && i + 1 < self.n && self.u.s[i + 1] == '\n')
            len++;
        add_piece(r, &p, self.u.s + from, keep ? i + len - from : text);
        from = i + len;
    }
    if (from < self.n)
        add_piece(r, &p, self.u.s + from, self.n - from);
    return pieces_list(r, &p, false);
}

METHOD(str_replace)
{
    static const char *const keywords[] = {"count", NULL};
    lf_jj_val from, to;
    if (!lf_jj_args_ok(r, at, "replace", a, 2, 3, keywords) ||
        !str_arg(r, at, "replace", a, 0, NULL, &from) ||
        !str_arg(r, at, "replace", a, 1, NULL, &to))
        return lf_jj_undef;
    lf_jj_val count = lf_jj_arg(a, 2, "count", lf_jj_int(-1));
    if (count.t != LF_JJ_INT)
        return lf_jj_fail(r, at, "replace: count is a whole number");
    return lf_jj_replace(r, self, from, to, count.u.i);
}

METHOD(str_join)
{
    if (!lf_jj_args_ok(r, at, "join", a, 1, 1, NULL))
        return lf_jj_undef;
    return lf_jj_join(r, at, a->v[0], self, false);
}

static lf_jj_val find_text(lf_jj_run *r, const lf_jj_node *at, lf_jj_val self, const lf_jj_args *a,
                           bool last, bool need)
{
    lf_jj_val x;
    size_t k = 0;
    if (!lf_jj_args_ok(r, at, "find", a, 1, 1, NULL) || !str_arg(r, at, "find", a, 0, NULL, &x))
        return lf_jj_undef;
    bool found = last ? find_last(self, x, &k) : lf_jj_find(self.u.s, self.n, x.u.s, x.n, &k);
    if (!found && need)
        return lf_jj_fail(r, at, "index: the text is not there");
    return lf_jj_int(found ? (int64_t)lf_jj_chars(self.u.s, k) : -1);
}
METHOD(str_find)
{
    return find_text(r, at, self, a, false, false);
}
METHOD(str_rfind)
{
    return find_text(r, at, self, a, true, false);
}
METHOD(str_index)
{
    return find_text(r, at, self, a, false, true);
}

METHOD(str_count)
{
    lf_jj_val x;
    size_t k;
    int64_t n = 0;
    if (!lf_jj_args_ok(r, at, "count", a, 1, 1, NULL) || !str_arg(r, at, "count", a, 0, NULL, &x))
        return lf_jj_undef;
    if (x.n == 0)
        return lf_jj_int((int64_t)lf_jj_chars(self.u.s, self.n) + 1);
    for (; lf_jj_find(self.u.s, self.n, x.u.s, x.n, &k); n++)
        self = lf_jj_str(self.u.s + k + x.n, self.n - k - x.n);
    return lf_jj_int(n);
}

/* Are all characters (there must be one) of a class? */
static lf_jj_val all_chars(lf_jj_val s, bool (*is)(int32_t c))
{
    size_t len;
    for (size_t i = 0; i < s.n; i += len)
        if (!is(lf_jj_char(s.u.s + i, s.n - i, &len)))
            return lf_jj_bool(false);
    return lf_jj_bool(s.n > 0);
}

static bool is_letter(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
/* Superscripts and the like are digits to Python though no decimal ones; those of Latin-1 are known
 * by value. */
static bool is_digit(int32_t c)
{
    return utf8proc_category(c) == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9 ||
           c == 0x2070 || (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
}
static bool is_alnum(int32_t c)
{
    return is_letter(c) || is_digit(c) || utf8proc_category(c) == UTF8PROC_CATEGORY_NO;
}

METHOD(str_isdigit)
{
    NO_ARGS("isdigit");
    return all_chars(self, is_digit);
}
METHOD(str_isalpha)
{
    NO_ARGS("isalpha");
    return all_chars(self, is_letter);
}
METHOD(str_isalnum)
{
    NO_ARGS("isalnum");
    return all_chars(self, is_alnum);
}
METHOD(str_isspace)
{
    NO_ARGS("isspace");
    return all_chars(self, lf_jj_is_space);
}

/* No letter of the other case, and one of this. */
static lf_jj_val one_case(lf_jj_val s, bool upper)
{
    bool some = false;
    size_t len;
    for (size_t i = 0; i < s.n; i += len) {
        utf8proc_category_t k = utf8proc_category(lf_jj_char(s.u.s + i, s.n - i, &len));
        if (k == UTF8PROC_CATEGORY_LT || k == (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU))
            return lf_jj_bool(false);
        some = some || k == (upper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL);
    }
    return lf_jj_bool(some);
}
METHOD(str_isupper)
{
    NO_ARGS("isupper");
    return one_case(self, true);
}
METHOD(str_islower)
{
    NO_ARGS("islower");
    return one_case(self, false);
}

METHOD(str_zfill)
{
    if (!lf_jj_args_ok(r, at, "zfill", a, 1, 1, NULL))
        return lf_jj_undef;
    lf_jj_val w = a->v[0];
    size_t have = lf_jj_chars(self.u.s, self.n);
    if (w.t != LF_JJ_INT || w.u.i > RANGE_MAX)
        return lf_jj_fail(r, at, "zfill wants a whole number");
    if (w.u.i <= (int64_t)have)
        return self;
    size_t zeros = (size_t)w.u.i - have,
           sign = self.n > 0 && (*self.u.s == '+' || *self.u.s == '-');
    char *s = lf_jj_alloc(r, zeros + self.n + 1, 1);
    if (!s)
        return lf_jj_undef;
    memcpy(s, self.u.s, sign);
    memset(s + sign, '0', zeros);
    memcpy(s + sign + zeros, self.u.s + sign, self.n - sign);
    return lf_jj_str(s, zeros + self.n);
}

/* ---- dicts and lists ---- */

static lf_jj_val map_parts(lf_jj_run *r, const struct lf_jj_map *m, bool keys, bool values)
{
    lf_jj_val out = lf_jj_seq_make(r, m->n, false);
    for (size_t i = 0; r->rc == 0 && i < m->n; i++) {
        if (keys && values) {
            lf_jj_val pair = lf_jj_seq_make(r, 2, true);
            if (r->rc)
                break;
            pair.u.seq->v[0] = m->k[i];
            pair.u.seq->v[1] = m->v[i];
            out.u.seq->v[i] = pair;
        } else {
            out.u.seq->v[i] = keys ? m->k[i] : m->v[i];
        }
    }
    return out;
}

METHOD(map_items)
{
    NO_ARGS("items");
    return map_parts(r, self.u.map, true, true);
}
METHOD(map_keys)
{
    NO_ARGS("keys");
    return map_parts(r, self.u.map, true, false);
}
METHOD(map_values)
{
    NO_ARGS("values");
    return map_parts(r, self.u.map, false, true);
}
METHOD(map_get)
{
    if (!lf_jj_args_ok(r, at, "get", a, 1, 2, NULL))
        return lf_jj_undef;
    if (!lf_jj_hashable(r, at, a->v[0]))
        return lf_jj_undef;
    const lf_jj_val *v = lf_jj_map_get(self.u.map, a->v[0]);
    return v ? *v : lf_jj_arg(a, 1, NULL, lf_jj_none);
}
METHOD(copy)
{
    NO_ARGS("copy"); /* nothing can change it: itself will do */
    return self;
}
METHOD(seq_index)
{
    if (!lf_jj_args_ok(r, at, "index", a, 1, 1, NULL))
        return lf_jj_undef;
    for (size_t i = 0; i < self.u.seq->n; i++)
        if (lf_jj_equal(self.u.seq->v[i], a->v[0]))
            return lf_jj_int((int64_t)i);
    return lf_jj_fail(r, at, "index: the element is not in the list");
}
METHOD(seq_count)
{
    int64_t n = 0;
    if (!lf_jj_args_ok(r, at, "count", a, 1, 1, NULL))
        return lf_jj_undef;
    for (size_t i = 0; i < self.u.seq->n; i++)
        n += lf_jj_equal(self.u.seq->v[i], a->v[0]);
    return lf_jj_int(n);
}

struct entry {
    const char *name;
    lf_jj_call_fn call;
};

static const struct entry str_methods[] = {{"capitalize", str_capitalize},
                                           {"count", str_count},
                                           {"endswith", str_endswith},
                                           {"find", str_find},
                                           {"index", str_index},
                                           {"isalnum", str_isalnum},
                                           {"isalpha", str_isalpha},
                                           {"isdigit", str_isdigit},
                                           {"islower", str_islower},
                                           {"isspace", str_isspace},
                                           {"isupper", str_isupper},
                                           {"join", str_join},
                                           {"lower", str_lower},
                                           {"lstrip", str_lstrip},
                                           {"removeprefix", str_removeprefix},
                                           {"removesuffix", str_removesuffix},
                                           {"replace", str_replace},
                                           {"rfind", str_rfind},
                                           {"rsplit", str_rsplit},
                                           {"rstrip", str_rstrip},
                                           {"split", str_split},
                                           {"splitlines", str_splitlines},
                                           {"startswith", str_startswith},
                                           {"strip", str_strip},
                                           {"title", str_title},
                                           {"upper", str_upper},
                                           {"zfill", str_zfill},
                                           {NULL, NULL}};
static const struct entry map_methods[] = {{"copy", copy},         {"get", map_get},
                                           {"items", map_items},   {"keys", map_keys},
                                           {"values", map_values}, {NULL, NULL}};
static const struct entry seq_methods[] = {
    {"copy", copy}, {"count", seq_count}, {"index", seq_index}, {NULL, NULL}};

static lf_jj_call_fn look_up(const struct entry *t, const char *name)
{
    for (; t->name; t++)
        if (strcmp(t->name, name) == 0)
            return t->call;
    return NULL;
}

static bool listed(const char *const *names, const char *name)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

lf_jj_call_fn lf_jj_find_method(lf_jj_val v, const char *name, bool *changes)
{
    static const char *const of_seq[] = {"append", "clear",   "extend", "insert", "pop",
                                         "remove", "reverse", "sort",   NULL},
                             *const of_map[] = {"clear",      "pop",    "popitem",
                                                "setdefault", "update", NULL};
    if (v.t == LF_JJ_STR)
        return look_up(str_methods, name);
    if (v.t == LF_JJ_MAP) {
        *changes = listed(of_map, name);
        return look_up(map_methods, name);
    }
    if (v.t != LF_JJ_SEQ)
        return NULL;
    *changes = !v.u.seq->tuple && listed(of_seq, name);
    return look_up(seq_methods, name);
}

/* ---- globals ---- */

METHOD(raise_exception)
{
    static const char *const keywords[] = {"message", NULL};
    (void)self;
    if (!lf_jj_args_ok(r, at, "raise_exception", a, 1, 1, keywords))
        return lf_jj_undef;
    lf_jj_val text = lf_jj_to_str(r, lf_jj_arg(a, 0, "message", lf_jj_undef));
    return r->rc ? lf_jj_undef
                 : lf_jj_fail(r, at, "the template refuses: %.*s",
                              (int)(text.n < 400 ? text.n : 400), text.u.s);
}

/* One conversion of strftime; 0: not one that is supported. */
static size_t date_part(char *out, size_t cap, char what, bool bare, const struct tm *tm)
{
    switch (what) {
    case 'Y':
        return strftime(out, cap, "%Y", tm);
    case 'y':
        return (size_t)snprintf(out, cap, "%02d", tm->tm_year % 100);
    case 'm':
        return (size_t)snprintf(out, cap, bare ? "%d" : "%02d", tm->tm_mon + 1);
    case 'd':
        return (size_t)snprintf(out, cap, bare ? "%d" : "%02d", tm->tm_mday);
    case 'H':
        return (size_t)snprintf(out, cap, bare ? "%d" : "%02d", tm->tm_hour);
    case 'M':
        return (size_t)snprintf(out, cap, bare ? "%d" : "%02d", tm->tm_min);
    case 'S':
        return (size_t)snprintf(out, cap, bare ? "%d" : "%02d", tm->tm_sec);
    case 'I':
        return strftime(out, cap, "%I", tm);
    case 'p':
        return strftime(out, cap, "%p", tm);
    case 'B':
        return strftime(out, cap, "%B", tm);
    case 'b':
        return strftime(out, cap, "%b", tm);
    case 'A':
        return strftime(out, cap, "%A", tm);
    case 'a':
        return strftime(out, cap, "%a", tm);
    case 'j':
        return strftime(out, cap, "%j", tm);
    case '%':
        return strftime(out, cap, "%%", tm);
    default:
        return 0;
    }
}

METHOD(strftime_now)
{
    lf_jj_val format;
    struct tm tm;
    time_t now = (time_t)r->o.now;
    lf_buf b;
    (void)self;
    if (!lf_jj_args_ok(r, at, "strftime_now", a, 1, 1, NULL) ||
        !str_arg(r, at, "strftime_now", a, 0, NULL, &format))
        return lf_jj_undef;
    gmtime_r(&now, &tm);
    lf_buf_init(&b);
    for (size_t i = 0; r->rc == 0 && i < format.n; i++) {
        char text[64];
        if (format.u.s[i] != '%') {
            lf_buf_addc(&b, format.u.s[i]);
            continue;
        }
        bool bare = i + 1 < format.n && format.u.s[i + 1] == '-';
        i += bare ? 2 : 1;
        size_t n = i < format.n ? date_part(text, sizeof(text), format.u.s[i], bare, &tm) : 0;
        if (n == 0)
            lf_jj_fail_rc(r, at, LF_ENOTSUP, "strftime_now: a conversion that is not supported");
        lf_buf_add(&b, text, n);
    }
    return lf_jj_str_take(r, &b);
}

METHOD(range)
{
    int64_t x[3] = {0, 0, 1};
    (void)self;
    if (!lf_jj_args_ok(r, at, "range", a, 1, 3, NULL))
        return lf_jj_undef;
    for (size_t i = 0; i < a->n; i++) {
        if (a->v[i].t != LF_JJ_INT && a->v[i].t != LF_JJ_BOOL)
            return lf_jj_fail(r, at, "range wants whole numbers, not a %s",
                              lf_jj_type_name(a->v[i]));
        x[a->n == 1 ? 1 : i] = a->v[i].t == LF_JJ_BOOL ? a->v[i].u.b : a->v[i].u.i;
    }
    if (x[2] == 0)
        return lf_jj_fail(r, at, "range: the step is 0");
    __int128 span = x[2] > 0 ? (__int128)x[1] - x[0] : (__int128)x[0] - x[1],
             by = x[2] > 0 ? x[2] : -(__int128)x[2];
    __int128 n = span > 0 ? (span + by - 1) / by : 0;
    if (n > RANGE_MAX)
        return lf_jj_fail(r, at, "range: more than %d elements", RANGE_MAX);
    lf_jj_val out = lf_jj_seq_make(r, (size_t)n, false);
    for (size_t i = 0; r->rc == 0 && i < (size_t)n; i++)
        out.u.seq->v[i] = lf_jj_int(x[0] + (int64_t)i * x[2]);
    return out;
}

/* dict(mapping or pairs, key = value) and namespace(the same) */
static lf_jj_val make_map(lf_jj_run *r, const lf_jj_node *at, const lf_jj_args *a,
                          enum lf_jj_type t)
{
    lf_jj_val m = lf_jj_map_make(r, a->n_names + 4), from = lf_jj_arg(a, 0, NULL, lf_jj_none);
    if (a->n > 1)
        return lf_jj_fail(r, at, "dict: more than one argument without a name");
    if (from.t == LF_JJ_MAP || from.t == LF_JJ_NS) {
        for (size_t i = 0; r->rc == 0 && i < from.u.map->n; i++)
            lf_jj_map_set(r, m.u.map, from.u.map->k[i], from.u.map->v[i]);
    } else if (a->n == 1) {
        lf_jj_val pairs = lf_jj_iter(r, at, from);
        for (size_t i = 0; r->rc == 0 && i < pairs.u.seq->n; i++) {
            lf_jj_val pair = pairs.u.seq->v[i];
            if (pair.t != LF_JJ_SEQ || pair.u.seq->n != 2)
                return lf_jj_fail(r, at, "dict: element %zu is no pair", i);
            lf_jj_map_set(r, m.u.map, pair.u.seq->v[0], pair.u.seq->v[1]);
        }
    }
    for (size_t i = 0; r->rc == 0 && i < a->n_names; i++)
        if (lf_jj_nestable(r, at, a->values[i]))
            lf_jj_map_set(r, m.u.map, lf_jj_strz(a->names[i]), a->values[i]);
    m.t = t;
    return m;
}
METHOD(dict)
{
    (void)self;
    return make_map(r, at, a, LF_JJ_MAP);
}
METHOD(namespace)
{
    (void)self;
    return make_map(r, at, a, LF_JJ_NS);
}

static const struct entry globals[] = {
    {"dict", dict},   {"namespace", namespace},       {"raise_exception", raise_exception},
    {"range", range}, {"strftime_now", strftime_now}, {NULL, NULL}};

lf_jj_call_fn lf_jj_find_global(const char *name)
{
    return look_up(globals, name);
}
