/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stage asks of a machine or a scheduler: keys of [stage X], [kind K] and [resources], and
 * what the site says. None of it is part of what a stage computes.
 */
#include "config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/plan/pipeline_priv.h"

enum type {
    COUNT_T,
    BYTES_T,
    SECONDS_T,
    FLAG_T,
    GPUS_T,
    NAME_T,
    EXPR_T,
    MAIL_T,
    NAMES_T,
    WORDS_T,
    LINES_T,
    FLAGS_T,
    ENUM_T
};

/* One key. least, most: of numbers; choices: of ENUM_T, of the names of NAMES_T when not NULL. */
struct key {
    const char *name;
    enum type type;
    int64_t least, most;
    const char *choices;
    const char *top; /* kept beside "resources" in the stage, under this name */
};

#define LAUNCHERS  "auto|srun|loong|prterun|mpirun|none"
#define CHAINS     "auto|requeue|links"
#define MAIL_TYPES "none|begin|end|fail|requeue|time_limit|all"

static const struct key keys[] = {
    {"nodes", COUNT_T, 1, 1 << 20, NULL, NULL},
    {"ranks", COUNT_T, 1, 1 << 16, NULL, NULL},
    {"cpus", COUNT_T, 1, 1 << 16, NULL, NULL},
    {"memory", BYTES_T, 1, INT64_MAX, NULL, "memory_bytes"},
    {"gpus", GPUS_T, 0, 1 << 10, NULL, NULL},
    {"gpu_memory", BYTES_T, 1, INT64_MAX, NULL, NULL},
    {"time_limit", SECONDS_T, 1, INT64_MAX, NULL, "time_limit_s"},
    {"grace", SECONDS_T, 0, INT64_MAX, NULL, "grace_s"},
    {"partition", NAME_T, 0, 0, NULL, NULL},
    {"account", NAME_T, 0, 0, NULL, NULL},
    {"qos", NAME_T, 0, 0, NULL, NULL},
    {"constraint", EXPR_T, 0, 0, NULL, NULL},
    {"reservation", NAME_T, 0, 0, NULL, NULL},
    {"exclusive", FLAG_T, 0, 0, NULL, NULL},
    {"mail", MAIL_T, 0, 0, NULL, NULL},
    {"mail_type", NAMES_T, 0, 0, MAIL_TYPES, NULL},
    {"modules", NAMES_T, 0, 0, NULL, NULL},
    {"prologue", LINES_T, 0, 0, NULL, NULL},
    {"extra", FLAGS_T, 0, 0, NULL, NULL},
    {"launcher", ENUM_T, 0, 0, LAUNCHERS, NULL},
    {"rank_prefix", WORDS_T, 0, 0, NULL, NULL},
    {"chain", ENUM_T, 0, 0, CHAINS, NULL},
    {"links", COUNT_T, 1, 1000, NULL, NULL},
    {"max_segments", COUNT_T, 1, 1 << 20, NULL, NULL},
    {"max_walltime", SECONDS_T, 1, INT64_MAX, NULL, NULL},
    {"stall_segments", COUNT_T, 1, 1 << 20, NULL, NULL},
    {"retries", COUNT_T, 0, 1000, NULL, NULL},
    {"memory_max", BYTES_T, 1, INT64_MAX, NULL, NULL},
    {"time_max", SECONDS_T, 1, INT64_MAX, NULL, NULL},
};
#define N_KEYS          (sizeof(keys) / sizeof(keys[0]))
#define GRACE_DEFAULT_S 120

/* "queue" is what PBS calls a partition. */
static const char *canonical(const char *key)
{
    return strcmp(key, "queue") == 0 ? "partition" : key;
}

size_t lf_resource_keys(const char **out, size_t cap)
{
    size_t n = 0;
    for (; n < N_KEYS && n < cap; n++)
        out[n] = keys[n].name;
    if (n < cap)
        out[n++] = "queue";
    return n;
}

bool lf_resource_key(const char *key)
{
    for (size_t i = 0; i < N_KEYS; i++)
        if (strcmp(keys[i].name, canonical(key)) == 0)
            return true;
    return false;
}

/* ---- texts that reach a command line or a script ---- */

static bool all_of(const char *s, const char *more)
{
    size_t n = strlen(s);
    if (n == 0 || n > 255 || s[0] == '-')
        return false;
    for (const char *p = s; *p != '\0'; p++)
        if (!isalnum((unsigned char)*p) && strchr(more, *p) == NULL)
            return false;
    return true;
}

static bool printable(const char *s)
{
    for (const char *p = s; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return false;
    return true;
}

static bool one_of(const char *word, const char *choices)
{
    size_t n = strlen(word);
    for (const char *p = choices; p != NULL; p = strchr(p, '|') != NULL ? strchr(p, '|') + 1 : NULL)
        if (strncmp(p, word, n) == 0 && (p[n] == '|' || p[n] == '\0'))
            return true;
    return false;
}

/* ---- values ---- */

static int number(json_t **out, const struct key *k, const lf_conf_item *it, lf_err *err)
{
    int64_t v = 0;
    lf_err e = LF_ERR_INIT;
    int rc = k->type == BYTES_T     ? lf_parse_bytes(&v, it->value, &e)
             : k->type == SECONDS_T ? lf_parse_duration(&v, it->value, &e)
                                    : lf_parse_i64(&v, it->value, &e);
    if (rc < 0)
        return lf_conf_fail(it, err, "%s: %s", k->name, e.text);
    if (v < k->least && k->type != COUNT_T)
        return lf_conf_fail(it, err, "%s = %s: must be more than nothing", k->name, it->value);
    if (v < k->least || v > k->most)
        return lf_conf_fail(it, err, "%s = %s: a number from %lld to %lld", k->name, it->value,
                            (long long)k->least, (long long)k->most);
    *out = json_integer(v);
    return 0;
}

/* "4" or "a100:4", for each node. */
static int gpus(json_t **out, const struct key *k, const lf_conf_item *it, lf_err *err)
{
    char type[64] = "";
    int64_t n = 0;
    const char *colon = strrchr(it->value, ':');
    if (colon != NULL && (size_t)(colon - it->value) < sizeof type)
        snprintf(type, sizeof type, "%.*s", (int)(colon - it->value), it->value);
    if ((colon != NULL && !all_of(type, "_.-")) ||
        lf_parse_i64(&n, colon != NULL ? colon + 1 : it->value, NULL) < 0 || n < k->least ||
        n > k->most)
        return lf_conf_fail(it, err, "gpus = %s: give a number for each node, or TYPE:NUMBER",
                            it->value);
    *out = json_pack("{s:I}", "n", (json_int_t)n);
    return colon != NULL ? lf_json_set_new(*out, "type", json_string(type), err) : 0;
}

/* Words, separated by blanks, commas (not for words of a command) and line ends. */
static int words(json_t **out, const struct key *k, const lf_conf_item *it, lf_err *err)
{
    const char *sep = k->type == WORDS_T ? " \t\n" : ", \t\n";
    char *copy = lf_strdup(it->value, err), *save = NULL;
    int rc = copy == NULL ? LF_ENOMEM : 0;
    *out = json_array();
    for (char *p = rc == 0 ? strtok_r(copy, sep, &save) : NULL; p != NULL && rc == 0;
         p = strtok_r(NULL, sep, &save)) {
        if (k->choices != NULL && !one_of(p, k->choices))
            rc = lf_conf_fail(it, err, "%s = %s: the words are %s", k->name, p, k->choices);
        else if (k->type == NAMES_T && !all_of(p, "_./+:@=-"))
            rc = lf_conf_fail(it, err,
                              "%s = %s: letters, digits and _./+:@=- only, not beginning with '-'",
                              k->name, p);
        else if (!printable(p))
            rc = lf_conf_fail(it, err, "%s: a control character", k->name);
        else
            rc = lf_json_push_new(*out, json_string(p), err);
    }
    free(copy);
    return rc == 0 && json_array_size(*out) == 0 ? lf_conf_fail(it, err, "%s is empty", k->name)
                                                 : rc;
}

/* Lines of a script or raw flags, one flag (with its value) to a line. */
static int lines(json_t **out, const struct key *k, const lf_conf_item *it, lf_err *err)
{
    char *copy = lf_strdup(it->value, err), *save = NULL;
    int rc = copy == NULL ? LF_ENOMEM : 0;
    *out = json_array();
    for (char *p = rc == 0 ? strtok_r(copy, "\n", &save) : NULL; p != NULL && rc == 0;
         p = strtok_r(NULL, "\n", &save)) {
        if (!printable(p))
            rc = lf_conf_fail(it, err, "%s: a control character", k->name);
        else if (k->type == FLAGS_T && p[0] != '-')
            rc = lf_conf_fail(it, err, "%s = %s: flags begin with '-', one to a line", k->name, p);
        else
            rc = lf_json_push_new(*out, json_string(p), err);
    }
    free(copy);
    return rc == 0 && json_array_size(*out) == 0 ? lf_conf_fail(it, err, "%s is empty", k->name)
                                                 : rc;
}

static int text(json_t **out, const struct key *k, const lf_conf_item *it, lf_err *err)
{
    const char *v = it->value;
    if (k->type == ENUM_T && !one_of(v, k->choices))
        return lf_conf_fail(it, err, "%s = %s: one of %s", k->name, v, k->choices);
    if (k->type == NAME_T && !all_of(v, "_.@:/+,%=-"))
        return lf_conf_fail(it, err,
                            "%s = %s: letters, digits and _.@:/+,%%=- only, not beginning with '-'",
                            k->name, v);
    if (k->type == EXPR_T && !all_of(v, "_.@:/+,%=-&|*()[]!<>"))
        return lf_conf_fail(
            it, err,
            "%s = %s: letters, digits and _.@:/+,%%=-&|*()[]!<> only, not beginning with '-'",
            k->name, v);
    if (k->type == MAIL_T && !all_of(v, "_.@+,%=-"))
        return lf_conf_fail(it, err, "%s = %s: not an address", k->name, v);
    *out = json_string(v);
    return 0;
}

static int value(json_t **out, const struct key *k, const lf_conf_item *it, lf_err *err)
{
    bool b = false;
    lf_err e = LF_ERR_INIT;
    switch (k->type) {
    case COUNT_T:
    case BYTES_T:
    case SECONDS_T:
        return number(out, k, it, err);
    case FLAG_T:
        if (lf_parse_bool(&b, it->value, &e) < 0)
            return lf_conf_fail(it, err, "%s: %s", k->name, e.text);
        *out = json_boolean(b);
        return 0;
    case GPUS_T:
        return gpus(out, k, it, err);
    case NAMES_T:
    case WORDS_T:
        return words(out, k, it, err);
    case LINES_T:
    case FLAGS_T:
        return lines(out, k, it, err);
    default:
        return text(out, k, it, err);
    }
}

/* ---- where it is given ---- */

/* The item of a key in a section, under either of its names. */
static int find_in(lf_conf_item **out, lf_conf *c, const char *section, const char *key,
                   lf_err *err)
{
    lf_conf_item *it = lf_conf_find(c, section, key);
    lf_conf_item *also = strcmp(key, "partition") == 0 ? lf_conf_find(c, section, "queue") : NULL;
    if (it != NULL && also != NULL)
        return lf_conf_fail(also, err, "partition and queue are two names of one key; give one");
    *out = it != NULL ? it : also;
    if (*out != NULL)
        (*out)->read = true;
    return 0;
}

/* [stage X] before [kind K] before [resources]; all of them are read, so that none is said to be
 * used by nothing. */
static int find_key(lf_conf_item **out, lf_conf *c, const char *stage, const char *kind,
                    const char *key, lf_err *err)
{
    const char *const sections[] = {stage, kind, "resources"};
    *out = NULL;
    for (size_t i = 0; i < 3; i++) {
        lf_conf_item *it = NULL;
        int rc = find_in(&it, c, sections[i], key, err);
        if (rc < 0)
            return rc;
        if (*out == NULL)
            *out = it;
    }
    return 0;
}

static int check_rerun_on(json_t *stage, lf_conf *c, const char *section, lf_err *err)
{
    lf_conf_item *it = lf_conf_find(c, section, "rerun_on");
    if (it == NULL)
        return 0;
    it->read = true;
    if (strcmp(it->value, "exe") != 0 && strcmp(it->value, "spec") != 0)
        return lf_conf_fail(it, err, "rerun_on = %s: give spec (default) or exe", it->value);
    return lf_json_set_new(stage, "rerun_on", json_string(it->value), err);
}

/* This machine is one node. Partitions and the like mean nothing here, which is no mistake: the
 * same pipeline runs there. */
static int check_local(const json_t *res, const lf_conf_item *nodes, const char *scheduler,
                       lf_err *err)
{
    if (strcmp(scheduler, "local") != 0 || json_integer_value(json_object_get(res, "nodes")) <= 1)
        return 0;
    return lf_conf_fail(
        nodes, err,
        "nodes = %s: scheduler = local has one node, this machine; give ranks, or a scheduler",
        nodes->value);
}

int lf_pipeline_resources(json_t *stage, lf_conf *c, const char *section, const char *kind_section,
                          const char *scheduler, lf_err *err)
{
    json_t *res = json_object();
    lf_conf_item *nodes = NULL;
    int rc = lf_json_set_new(stage, "resources", res, err);
    for (size_t i = 0; rc == 0 && i < N_KEYS; i++) {
        lf_conf_item *it = NULL;
        json_t *v = NULL;
        rc = find_key(&it, c, section, kind_section, keys[i].name, err);
        if (rc < 0 || it == NULL)
            continue;
        rc = value(&v, &keys[i], it, err);
        if (rc < 0)
            json_decref(v);
        else
            rc = lf_json_set_new(keys[i].top != NULL ? stage : res,
                                 keys[i].top != NULL ? keys[i].top : keys[i].name, v, err);
        if (i == 0)
            nodes = it;
    }
    if (rc == 0 && json_object_get(stage, "grace_s") == NULL)
        rc = lf_json_set_new(stage, "grace_s", json_integer(GRACE_DEFAULT_S), err);
    if (rc == 0)
        rc = check_local(res, nodes, scheduler, err);
    return rc == 0 ? check_rerun_on(stage, c, section, err) : rc;
}

/* ---- the site ---- */

static const char *const site_keys[] = {
    "scheduler", "data_dir",        "poll",        "chain",  "launcher",
    "templates", "command_timeout", "lost_after",  "settle", "submit_wait",
    "commands",  "exclude",         "ledger_locks"};

const char *const *lf_site_keys(size_t *n)
{
    *n = sizeof site_keys / sizeof site_keys[0];
    return site_keys;
}

static int site_time(json_t *site, lf_conf *c, const char *key, const char *name, int64_t def,
                     lf_err *err)
{
    lf_conf_item *it = lf_conf_find(c, "site", key);
    int64_t v = def;
    lf_err e = LF_ERR_INIT;
    if (it != NULL) {
        it->read = true;
        if (lf_parse_duration(&v, it->value, &e) < 0)
            return lf_conf_fail(it, err, "%s: %s", key, e.text);
    }
    return lf_json_set_new(site, name, json_integer(v), err);
}

/* commands = sbatch=/opt/slurm/bin/sbatch squeue=... */
static int site_commands(json_t *site, lf_conf *c, lf_err *err)
{
    lf_conf_item *it = lf_conf_find(c, "site", "commands");
    if (it == NULL)
        return 0;
    it->read = true;
    json_t *map = json_object(), *list = NULL;
    static const struct key form = {"commands", WORDS_T, 0, 0, NULL, NULL};
    int rc = lf_json_set_new(site, "commands", map, err);
    if (rc == 0)
        rc = words(&list, &form, it, err);
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
        const char *w = json_string_value(json_array_get(list, i)), *eq = strchr(w, '=');
        char name[64];
        if (eq == NULL || eq[1] != '/' || (size_t)(eq - w) >= sizeof name)
            rc = lf_conf_fail(it, err, "commands = %s: give NAME=/PATH", w);
        else {
            snprintf(name, sizeof name, "%.*s", (int)(eq - w), w);
            rc = lf_json_set_new(map, name, json_string(eq + 1), err);
        }
    }
    json_decref(list);
    return rc;
}

static int site_word(json_t *site, lf_conf *c, const char *key, enum type type, const char *choices,
                     lf_err *err)
{
    lf_conf_item *it = lf_conf_find(c, "site", key);
    if (it == NULL)
        return 0;
    it->read = true;
    json_t *v = NULL;
    const struct key form = {key, type, 0, 0, choices, NULL};
    int rc = value(&v, &form, it, err);
    if (rc == 0)
        return lf_json_set_new(site, key, v, err);
    json_decref(v);
    return rc;
}

int lf_pipeline_site(json_t *doc, lf_conf *c, lf_err *err)
{
    json_t *site = json_object();
    int rc = lf_json_set_new(doc, "site", site, err);
    json_t *trust = c->n_trusted > 0 ? json_array() : NULL;
    for (size_t i = 0; rc == 0 && i < c->n_trusted; i++)
        rc = lf_json_push_new(trust, json_string(c->trusted[i]), err);
    if (rc == 0 && trust != NULL)
        rc = lf_json_set_new(site, "trust", trust, err);
    if (rc == 0)
        rc = site_time(site, c, "poll", "poll_s", 60, err);
    if (rc == 0)
        rc = site_time(site, c, "command_timeout", "timeout_s", 60, err);
    if (rc == 0)
        rc = site_time(site, c, "lost_after", "grace_lost_s", 270, err);
    if (rc == 0)
        rc = site_time(site, c, "settle", "settle_s", 3, err);
    if (rc == 0)
        rc = site_time(site, c, "submit_wait", "submit_wait_s", 120, err);
    if (rc == 0)
        rc = site_commands(site, c, err);
    if (rc == 0)
        rc = site_word(site, c, "chain", ENUM_T, CHAINS, err);
    if (rc == 0)
        rc = site_word(site, c, "launcher", ENUM_T, LAUNCHERS, err);
    if (rc == 0)
        rc = site_word(site, c, "exclude", NAMES_T, NULL, err);
    lf_conf_item *it = lf_conf_find(c, "site", "templates");
    if (rc == 0 && it != NULL) {
        it->read = true;
        if (it->value[0] != '/' || !printable(it->value))
            return lf_conf_fail(it, err, "templates = %s: give an absolute path", it->value);
        rc = lf_json_set_new(site, "templates", json_string(it->value), err);
    }
    return rc;
}
