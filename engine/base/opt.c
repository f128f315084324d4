/* SPDX-License-Identifier: Apache-2.0
 *
 * Option sets: values checked against a table, with their source. Printing them is in opt_print.c.
 */
#include "engine/base/opt.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/ini.h"
#include "engine/base/mem.h"
#include "engine/base/opt_priv.h"
#include "engine/base/synonym.h"

static bool same_name(const char *name, const char *typed, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (name[i] == '\0' || name[i] != (typed[i] == '-' ? '_' : typed[i]))
            return false;
    return name[len] == '\0';
}

static const lf_opt *find(const lf_opt_table *t, const char *typed, size_t len)
{
    for (size_t i = 0; i < t->n_opts; i++)
        if (same_name(t->opts[i].name, typed, len))
            return &t->opts[i];
    return NULL;
}

const lf_opt *lf_opt_find(const lf_opt_table *t, const char *name)
{
    return find(t, name, strlen(name));
}

const lf_opt *lf_opt_find_old(const lf_opt_table *t, const char *name)
{
    for (size_t i = 0; i < t->n_opts; i++)
        if (t->opts[i].was && same_name(t->opts[i].was, name, strlen(name)))
            return &t->opts[i];
    return NULL;
}

struct lf_opt_val *lf_optset_val(const lf_optset *s, const char *name)
{
    const lf_opt *o = lf_opt_find(s->t, name);
    if (!o)
        LF_BUG("option \"%s\" is not in the table of %s", name, s->t->stage);
    return &s->vals[o - s->t->opts];
}

/* The index of value in "a|b|c", or -1. */
static int index_in(const char *words, const char *value)
{
    size_t len = strlen(value);
    int i = 0;
    for (const char *p = words; p; i++) {
        const char *bar = strchr(p, '|');
        size_t n = bar ? (size_t)(bar - p) : strlen(p);
        if (n == len && memcmp(p, value, n) == 0)
            return i;
        p = bar ? bar + 1 : NULL;
    }
    return -1;
}

int lf_opt_choice_index(const lf_opt *o, const char *value)
{
    return index_in(o->choices, value);
}

bool lf_opt_takes(const lf_opt *o, const char *output)
{
    return !o->takes || index_in(o->takes, output) >= 0;
}

static int check_range(const lf_opt *o, double v, const char *text, lf_err *err)
{
    if ((o->min == 0 && o->max == 0) || (v >= o->min && v <= o->max))
        return 0;
    return lf_fail(err, LF_EINVAL, "\"%s\" is outside %.15g to %.15g", text, o->min, o->max);
}

/* A value as text becomes its parsed form. */
static int none_of(const lf_opt *o, const char *text, lf_err *err)
{
    const char *known = lf_synonym_value(text, o->choices);
    return lf_fail(err, LF_EINVAL, "\"%s\" is none of %s%s%s%s", text, o->choices,
                   known ? "; did you mean \"" : "", known ? known : "", known ? "\"?" : "");
}

static int parse_value(struct lf_opt_parsed *out, const lf_opt *o, const char *text, lf_err *err)
{
    int rc = 0;
    *out = (struct lf_opt_parsed){0};
    switch (o->type) {
    case LF_OPT_STR:
        return 0;
    case LF_OPT_PATH:
        return text[0] ? 0 : lf_fail(err, LF_EINVAL, "empty path");
    case LF_OPT_BOOL:
        return lf_parse_bool(&out->b, text, err);
    case LF_OPT_INT:
        rc = lf_parse_i64(&out->i, text, err);
        break;
    case LF_OPT_COUNT:
        rc = lf_parse_count(&out->i, text, err);
        break;
    case LF_OPT_BYTES:
        rc = lf_parse_bytes(&out->i, text, err);
        break;
    case LF_OPT_DURATION:
        rc = lf_parse_duration(&out->i, text, err);
        break;
    case LF_OPT_FLOAT:
        rc = lf_parse_f64(&out->f, text, err);
        return rc < 0 ? rc : check_range(o, out->f, text, err);
    case LF_OPT_ENUM:
        out->i = lf_opt_choice_index(o, text);
        return out->i >= 0 ? 0 : none_of(o, text, err);
    }
    return rc < 0 ? rc : check_range(o, (double)out->i, text, err);
}

static void forget(struct lf_opt_val *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->texts[i]);
    v->n = 0;
}

static int append(struct lf_opt_val *v, const lf_opt *o, const char *text, size_t len, lf_err *err)
{
    struct lf_opt_parsed parsed;
    char *copy = lf_strndup(text, len, err);
    if (!copy)
        return LF_ENOMEM;
    int rc = parse_value(&parsed, o, copy, err);
    if (rc == 0)
        rc = lf_grow(&v->texts, &v->cap, v->n, sizeof *v->texts, err);
    if (rc < 0) {
        free(copy);
        return rc;
    }
    v->texts[v->n++] = copy;
    v->parsed = parsed;
    return 0;
}

/* REPEAT values in one text: one per line. An empty text is an empty list. */
static int append_lines(struct lf_opt_val *v, const lf_opt *o, const char *text, lf_err *err)
{
    int rc = 0;
    for (const char *p = text; rc == 0 && *p;) {
        const char *nl = strchr(p, '\n');
        size_t len = nl ? (size_t)(nl - p) : strlen(p);
        rc = append(v, o, p, len, err);
        p += len + (nl != NULL);
    }
    return rc;
}

lf_optset *lf_optset_create(const lf_opt_table *t, lf_err *err)
{
    lf_optset *s = lf_calloc(1, sizeof *s, err);
    if (!s)
        return NULL;
    s->t = t;
    s->vals = lf_calloc(t->n_opts, sizeof *s->vals, err);
    if (!s->vals)
        goto fail;
    for (size_t i = 0; i < t->n_opts; i++) {
        const lf_opt *o = &t->opts[i];
        int rc = 0;
        if (o->def)
            rc = o->flags & LF_OPT_REPEAT ? append_lines(&s->vals[i], o, o->def, err)
                                          : append(&s->vals[i], o, o->def, strlen(o->def), err);
        if (rc < 0) {
            lf_err_prefix(err, "table of %s: default of %s", t->stage, o->name);
            goto fail;
        }
        if (!lf_opt_field_fits(o)) {
            lf_fail(err, LF_EINVAL, "table of %s: %s does not fit its member", t->stage, o->name);
            goto fail;
        }
    }
    return s;
fail:
    lf_optset_destroy(s);
    return NULL;
}

void lf_optset_destroy(lf_optset *s)
{
    if (!s)
        return;
    for (size_t i = 0; s->vals && i < s->t->n_opts; i++) {
        forget(&s->vals[i]);
        free(s->vals[i].texts);
        free(s->vals[i].where);
    }
    free(s->vals);
    free(s);
}

/* The name as it is typed: on the command line with - for _. */
static void as_typed(char out[65], const char *name, bool cli)
{
    size_t len = strnlen(name, 64);
    for (size_t i = 0; i < len; i++)
        out[i] = cli && name[i] == '_' ? '-' : name[i];
    out[len] = '\0';
}

static int unknown(const lf_optset *s, const char *name, const char *where, lf_err *err)
{
    bool cli = strcmp(where, LF_OPT_CLI) == 0;
    const lf_opt *renamed = lf_opt_find_old(s->t, name);
    if (renamed) {
        char new_name[65];
        as_typed(new_name, renamed->name, cli);
        return lf_fail(err, LF_EINVAL, "%s: \"%s%s\" of %s is now called \"%s%s\"", where,
                       cli ? "--" : "", name, s->t->stage, cli ? "--" : "", new_name);
    }
    const char **names = lf_calloc(s->t->n_opts, sizeof *names, err);
    char typed[65], shown[65], hint[200] = "";
    size_t n = 0;
    if (!names)
        return LF_ENOMEM;
    for (size_t i = 0; i < s->t->n_opts; i++)
        if (cli || !(s->t->opts[i].flags & LF_OPT_CLI_ONLY))
            names[n++] = s->t->opts[i].name;
    size_t len = strnlen(name, 64);
    for (size_t i = 0; i < len; i++)
        typed[i] = name[i] == '-' ? '_' : name[i];
    typed[len] = '\0';
    const lf_synonym *theirs = lf_synonym_find(typed, names, n);
    const char *near = theirs ? NULL : lf_nearest(typed, names, n);
    if (near)
        as_typed(shown, near, cli);
    if (theirs)
        lf_synonym_hint(hint, sizeof hint, typed, names, n);
    free(names);
    if (theirs)
        return lf_fail(err, LF_EINVAL, "%s: unknown %s \"%s%s\" for %s%s", where,
                       cli ? "option" : "key", cli ? "--" : "", name, s->t->stage, hint);
    return lf_fail(err, LF_EINVAL, "%s: unknown %s \"%s%s\" for %s%s%s%s%s", where,
                   cli ? "option" : "key", cli ? "--" : "", name, s->t->stage,
                   near ? "; did you mean \"" : "", near && cli ? "--" : "", near ? shown : "",
                   near ? "\"?" : "; --help lists them");
}

/* The value of a second source class replaces the whole earlier one, or is dropped when it ranks
 * lower. */
static int set_opt(lf_optset *s, const lf_opt *o, const char *value, const char *where, lf_err *err)
{
    struct lf_opt_val *v = &s->vals[o - s->t->opts], fresh = {0};
    bool cli = strcmp(where, LF_OPT_CLI) == 0, repeat = (o->flags & LF_OPT_REPEAT) != 0;
    int source = cli ? LF_SOURCE_CLI : LF_SOURCE_INI, rc;
    if (!cli && (o->flags & LF_OPT_CLI_ONLY))
        return lf_fail(err, LF_EINVAL, "%s: \"%s\" is an option of the command line, not a key",
                       where, o->name);
    if (source == v->source && !repeat)
        return lf_fail(err, LF_EINVAL, "%s: \"%s\" is given twice (%s)", where, o->name, v->where);
    rc = repeat && !cli ? append_lines(&fresh, o, value, err)
                        : append(&fresh, o, value, strlen(value), err);
    if (rc == 0 && !(fresh.where = lf_strdup(where, err)))
        rc = LF_ENOMEM;
    if (rc < 0) {
        lf_err_prefix(err, "%s: %s", where, o->name);
        goto out;
    }
    if (source < v->source)
        goto out;
    if (source == v->source) { /* REPEAT: the lists join */
        for (size_t i = 0; i < fresh.n; i++) {
            if ((rc = lf_grow(&v->texts, &v->cap, v->n, sizeof *v->texts, err)) < 0)
                goto out;
            v->texts[v->n++] = fresh.texts[i];
            fresh.texts[i] = NULL;
        }
        v->parsed = fresh.parsed;
        goto out;
    }
    fresh.source = source;
    fresh.read = v->read;
    struct lf_opt_val old = *v;
    *v = fresh;
    fresh = old;
out:
    forget(&fresh);
    free(fresh.texts);
    free(fresh.where);
    return rc;
}

int lf_optset_set(lf_optset *s, const char *name, const char *value, const char *where, lf_err *err)
{
    const lf_opt *o = lf_opt_find(s->t, name);
    return o ? set_opt(s, o, value, where, err) : unknown(s, name, where, err);
}

int lf_optset_load_ini(lf_optset *s, const char *path, const char *section, lf_err *err)
{
    lf_ini ini = {0};
    lf_buf where;
    lf_buf_init(&where);
    int rc = lf_ini_parse_file(&ini, path, err);
    if (rc < 0)
        goto out;
    const lf_ini_section *sec = lf_ini_find_section(&ini, section);
    if (!sec)
        rc = lf_fail(err, LF_EINVAL, "%s: no section [%s]", path, section);
    for (size_t i = 0; rc == 0 && i < sec->n; i++) {
        const lf_ini_entry *e = &ini.entries[sec->first + i];
        /* Keys are written with '_'; only the command line takes '-' as well. */
        const char *name = strchr(e->key, '-') ? NULL : e->key;
        lf_buf_clear(&where);
        lf_buf_addf(&where, "%s:%d:%d", e->path, e->line, e->column);
        if ((rc = lf_buf_check(&where, err)) == 0)
            rc = name ? lf_optset_set(s, name, e->value, where.data, err)
                      : unknown(s, e->key, where.data, err);
    }
out:
    lf_buf_fini(&where);
    lf_ini_fini(&ini);
    return rc;
}

/* One word beginning with "--". *i stands on it and moves over a separate value. */
static int parse_long(lf_optset *s, int *i, int argc, char **argv, lf_err *err)
{
    const char *word = argv[*i] + 2, *eq = strchr(word, '='), *value = NULL;
    size_t len = eq ? (size_t)(eq - word) : strlen(word);
    const lf_opt *o = find(s->t, word, len);
    if (!o && !eq && (strncmp(word, "no-", 3) == 0 || strncmp(word, "no_", 3) == 0)) {
        o = find(s->t, word + 3, len - 3);
        if (o && o->type != LF_OPT_BOOL)
            return lf_fail(err, LF_EINVAL,
                           LF_OPT_CLI ": --%s: only a yes/no option has a --no- form", word);
        value = "no";
    } else if (o && !eq && o->type == LF_OPT_BOOL) {
        value = "yes";
    }
    if (!o) {
        char *name = lf_strndup(word, len, err);
        int rc = name ? unknown(s, name, LF_OPT_CLI, err) : LF_ENOMEM;
        free(name);
        return rc;
    }
    if (eq) {
        value = eq + 1;
    } else if (!value) {
        /* A following option is more likely a forgotten value than a value; --name=--text says
         * otherwise. */
        if (*i + 1 >= argc || strncmp(argv[*i + 1], "--", 2) == 0)
            return lf_fail(err, LF_EINVAL, LF_OPT_CLI ": --%s needs a value", word);
        value = argv[++*i];
    }
    return set_opt(s, o, value, LF_OPT_CLI, err);
}

static const char *config_of(int argc, char **argv)
{
    const char *found = NULL;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--config=", 9) == 0)
            found = argv[i] + 9;
        else if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            found = argv[++i];
    }
    return found;
}

int lf_optset_parse_argv(lf_optset *s, int argc, char **argv, char ***rest, int *n_rest,
                         lf_err *err)
{
    char **words = lf_calloc((size_t)(argc > 0 ? argc : 1), sizeof *words, err);
    int n = 0, rc = 0;
    bool only_words = false;
    if (!words)
        return LF_ENOMEM;
    const char *config = lf_opt_find(s->t, "config") ? config_of(argc, argv) : NULL;
    if (config && config[0]) /* an empty one is refused as a value below */
        rc = lf_optset_load_ini(s, config, "stage", err);
    for (int i = 1; rc == 0 && i < argc; i++) {
        if (only_words || argv[i][0] != '-' || argv[i][1] == '\0') {
            if (rest)
                words[n++] = argv[i];
            else
                rc = lf_fail(err, LF_EINVAL,
                             LF_OPT_CLI ": unexpected word \"%s\"; options begin with --", argv[i]);
        } else if (strcmp(argv[i], "--") == 0) {
            only_words = true;
        } else if (strcmp(argv[i], "-h") == 0 && lf_opt_find(s->t, "help")) {
            rc = lf_optset_set(s, "help", "yes", LF_OPT_CLI, err);
        } else if (argv[i][1] != '-') {
            rc = lf_fail(err, LF_EINVAL,
                         LF_OPT_CLI ": unknown option \"%s\"; options begin with --", argv[i]);
        } else {
            rc = parse_long(s, &i, argc, argv, err);
        }
    }
    if (rc < 0 || !rest) {
        free(words);
    } else {
        *rest = words;
        *n_rest = n;
    }
    return rc;
}

int lf_optset_check(const lf_optset *s, lf_err *err)
{
    for (size_t i = 0; i < s->t->n_opts; i++)
        if ((s->t->opts[i].flags & LF_OPT_REQUIRED) && s->vals[i].n == 0)
            return lf_fail(err, LF_EINVAL, "%s needs \"%s\": %s", s->t->stage, s->t->opts[i].name,
                           s->t->opts[i].help);
    return 0;
}

bool lf_optset_has_value(const lf_optset *s, const char *name)
{
    return lf_optset_val(s, name)->n > 0;
}

bool lf_optset_is_set(const lf_optset *s, const char *name)
{
    return lf_optset_val(s, name)->source != LF_SOURCE_DEFAULT;
}

/* Value of a read: noted, and of the right type. types is a bit set. */
static struct lf_opt_val *read_val(const lf_optset *s, const char *name, unsigned types)
{
    struct lf_opt_val *v = lf_optset_val(s, name);
    const lf_opt *o = &s->t->opts[v - s->vals];
    if (!(types >> o->type & 1))
        LF_BUG("option \"%s\" of %s is read with the wrong type", name, s->t->stage);
    v->read = true;
    return v;
}

static const lf_opt *not_repeat(const lf_optset *s, const struct lf_opt_val *v)
{
    const lf_opt *o = &s->t->opts[v - s->vals];
    if (o->flags & LF_OPT_REPEAT)
        LF_BUG("option \"%s\" of %s may repeat: read it with lf_optset_str_at", o->name,
               s->t->stage);
    return o;
}

enum {
    TEXTS = 1 << LF_OPT_STR | 1 << LF_OPT_PATH | 1 << LF_OPT_ENUM,
    INTS = 1 << LF_OPT_INT | 1 << LF_OPT_COUNT | 1 << LF_OPT_BYTES | 1 << LF_OPT_DURATION,
    ALL = TEXTS | INTS | 1 << LF_OPT_BOOL | 1 << LF_OPT_FLOAT
};

const char *lf_optset_str(const lf_optset *s, const char *name)
{
    const struct lf_opt_val *v = read_val(s, name, TEXTS);
    not_repeat(s, v);
    return v->n ? v->texts[0] : NULL;
}

int64_t lf_optset_int(const lf_optset *s, const char *name)
{
    const struct lf_opt_val *v = read_val(s, name, INTS);
    not_repeat(s, v);
    return v->n ? v->parsed.i : 0;
}

double lf_optset_float(const lf_optset *s, const char *name)
{
    const struct lf_opt_val *v = read_val(s, name, 1 << LF_OPT_FLOAT);
    not_repeat(s, v);
    return v->n ? v->parsed.f : 0;
}

bool lf_optset_bool(const lf_optset *s, const char *name)
{
    const struct lf_opt_val *v = read_val(s, name, 1 << LF_OPT_BOOL);
    not_repeat(s, v);
    return v->n && v->parsed.b;
}

int lf_optset_choice(const lf_optset *s, const char *name)
{
    const struct lf_opt_val *v = read_val(s, name, 1 << LF_OPT_ENUM);
    not_repeat(s, v);
    return v->n ? (int)v->parsed.i : -1;
}

size_t lf_optset_count(const lf_optset *s, const char *name)
{
    return read_val(s, name, ALL)->n;
}

lf_opt_list lf_optset_list(const lf_optset *s, const char *name)
{
    const struct lf_opt_val *v = read_val(s, name, ALL);
    return (lf_opt_list){(const char *const *)v->texts, v->n};
}

const char *lf_optset_str_at(const lf_optset *s, const char *name, size_t i)
{
    const struct lf_opt_val *v = read_val(s, name, ALL);
    if (i >= v->n)
        LF_BUG("value %zu of option \"%s\": there are %zu", i, name, v->n);
    return v->texts[i];
}

const char *lf_optset_unread(const lf_optset *s)
{
    for (size_t i = 0; i < s->t->n_opts; i++)
        if (s->vals[i].source != LF_SOURCE_DEFAULT && !s->vals[i].read)
            return s->t->opts[i].name;
    return NULL;
}
