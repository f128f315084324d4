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

/* One key, and the field of lf_resources that takes its value. least, most: of numbers; choices: of
 * ENUM_T, of the names of NAMES_T when not NULL. */
struct key {
    const char *name;
    enum type type;
    int64_t least, most;
    const char *choices;
    size_t at;
    bool beside; /* the field is in lf_doc_stage, beside its resources */
};

#define LAUNCHERS "auto|srun|loong|prterun|mpirun|none"
#define CHAINS    "auto|requeue|links"
/* No process of ours lives in less, so a smaller number lacks its unit. */
#define LEAST_BYTES (1 << 20)
#define MAIL_TYPES  "none|begin|end|fail|requeue|time_limit|all"

#define IN(m)     .at = offsetof(lf_resources, m)
#define BESIDE(m) .at = offsetof(lf_doc_stage, m), .beside = true

static const struct key keys[] = {
    {.name = "nodes", .type = COUNT_T, .least = 1, .most = 1 << 20, IN(nodes)},
    {.name = "ranks", .type = COUNT_T, .least = 1, .most = 1 << 16, IN(ranks)},
    {.name = "cpus", .type = COUNT_T, .least = 1, .most = 1 << 16, IN(cpus)},
    {.name = "memory",
     .type = BYTES_T,
     .least = LEAST_BYTES,
     .most = INT64_MAX,
     BESIDE(memory_bytes)},
    {.name = "gpus", .type = GPUS_T, .least = 0, .most = 1 << 10, IN(gpus)},
    {.name = "gpu_memory",
     .type = BYTES_T,
     .least = LEAST_BYTES,
     .most = INT64_MAX,
     IN(gpu_memory)},
    {.name = "time_limit", .type = SECONDS_T, .least = 1, .most = INT64_MAX, BESIDE(time_limit_s)},
    {.name = "grace", .type = SECONDS_T, .least = 0, .most = INT64_MAX, BESIDE(grace_s)},
    {.name = "partition", .type = NAME_T, IN(partition)},
    {.name = "account", .type = NAME_T, IN(account)},
    {.name = "qos", .type = NAME_T, IN(qos)},
    {.name = "constraint", .type = EXPR_T, IN(constraint)},
    {.name = "reservation", .type = NAME_T, IN(reservation)},
    {.name = "exclusive", .type = FLAG_T, IN(exclusive)},
    {.name = "mail", .type = MAIL_T, IN(mail)},
    {.name = "mail_type", .type = NAMES_T, .choices = MAIL_TYPES, IN(mail_type)},
    {.name = "modules", .type = NAMES_T, IN(modules)},
    {.name = "prologue", .type = LINES_T, IN(prologue)},
    {.name = "extra", .type = FLAGS_T, IN(extra)},
    {.name = "launcher", .type = ENUM_T, .choices = LAUNCHERS, IN(launcher)},
    {.name = "rank_prefix", .type = WORDS_T, IN(rank_prefix)},
    {.name = "chain", .type = ENUM_T, .choices = CHAINS, IN(chain)},
    {.name = "links", .type = COUNT_T, .least = 1, .most = 1000, IN(links)},
    {.name = "max_segments", .type = COUNT_T, .least = 1, .most = 1 << 20, IN(max_segments)},
    {.name = "max_walltime", .type = SECONDS_T, .least = 1, .most = INT64_MAX, IN(max_walltime)},
    {.name = "stall_segments", .type = COUNT_T, .least = 1, .most = 1 << 20, IN(stall_segments)},
    {.name = "retries", .type = COUNT_T, .least = 0, .most = 1000, IN(retries)},
    {.name = "memory_max",
     .type = BYTES_T,
     .least = LEAST_BYTES,
     .most = INT64_MAX,
     IN(memory_max)},
    {.name = "time_max", .type = SECONDS_T, .least = 1, .most = INT64_MAX, IN(time_max)},
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

static int number(lf_int *out, const struct key *k, const lf_conf_item *it, lf_err *err)
{
    int64_t v = 0;
    char bytes[32];
    lf_err e = LF_ERR_INIT;
    int rc = k->type == BYTES_T     ? lf_parse_bytes(&v, it->value, &e)
             : k->type == SECONDS_T ? lf_parse_duration(&v, it->value, &e)
                                    : lf_parse_i64(&v, it->value, &e);
    if (rc < 0)
        return lf_conf_fail(it, err, "%s: %s", k->name, e.text);
    if (v < k->least && k->type == BYTES_T)
        return lf_conf_fail(it, err, "%s = %s: that is %s; give a unit, as in 4G", k->name,
                            it->value, lf_fmt_bytes(bytes, sizeof bytes, (double)v));
    if (v < k->least && k->type != COUNT_T)
        return lf_conf_fail(it, err, "%s = %s: must be more than nothing", k->name, it->value);
    if (v < k->least || v > k->most)
        return lf_conf_fail(it, err, "%s = %s: a number from %lld to %lld", k->name, it->value,
                            (long long)k->least, (long long)k->most);
    *out = lf_int_of(v);
    return 0;
}

/* "4" or "a100:4", for each node. */
static int gpus(struct lf_gpus *out, const struct key *k, const lf_conf_item *it, lf_err *err)
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
    out->given = true;
    out->n = lf_int_of(n);
    return lf_text_set(&out->type, colon != NULL ? type : NULL, "gpus", err);
}

/* Words, separated by blanks, commas (not for words of a command) and line ends. */
static int words(lf_texts *out, const struct key *k, const lf_conf_item *it, lf_err *err)
{
    const char *sep = k->type == WORDS_T ? " \t\n" : ", \t\n";
    char *copy = lf_strdup(it->value, err), *save = NULL;
    int rc = copy == NULL ? LF_ENOMEM : 0;
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
            rc = lf_texts_add(out, p, err);
    }
    free(copy);
    return rc == 0 && out->n == 0 ? lf_conf_fail(it, err, "%s is empty", k->name) : rc;
}

/* Lines of a script or raw flags, one flag (with its value) to a line. */
static int lines(lf_texts *out, const struct key *k, const lf_conf_item *it, lf_err *err)
{
    char *copy = lf_strdup(it->value, err), *save = NULL;
    int rc = copy == NULL ? LF_ENOMEM : 0;
    for (char *p = rc == 0 ? strtok_r(copy, "\n", &save) : NULL; p != NULL && rc == 0;
         p = strtok_r(NULL, "\n", &save)) {
        if (!printable(p))
            rc = lf_conf_fail(it, err, "%s: a control character", k->name);
        else if (k->type == FLAGS_T && p[0] != '-')
            rc = lf_conf_fail(it, err, "%s = %s: flags begin with '-', one to a line", k->name, p);
        else
            rc = lf_texts_add(out, p, err);
    }
    free(copy);
    return rc == 0 && out->n == 0 ? lf_conf_fail(it, err, "%s is empty", k->name) : rc;
}

static int text(char **out, const struct key *k, const lf_conf_item *it, lf_err *err)
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
    return lf_text_set(out, v, k->name, err);
}

/* out: the field, whose type follows from that of the key. */
static int value(void *out, const struct key *k, const lf_conf_item *it, lf_err *err)
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
        *(lf_flag *)out = lf_flag_of(b);
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

static int check_rerun_on(lf_doc_stage *stage, lf_conf *c, const char *section, lf_err *err)
{
    lf_conf_item *it = lf_conf_find(c, section, "rerun_on");
    if (it == NULL)
        return 0;
    it->read = true;
    if (strcmp(it->value, "exe") != 0 && strcmp(it->value, "spec") != 0)
        return lf_conf_fail(it, err, "rerun_on = %s: give spec (default) or exe", it->value);
    return lf_text_set(&stage->rerun_on, it->value, "rerun_on", err);
}

/* This machine is one node. Partitions and the like mean nothing here, which is no mistake: the
 * same pipeline runs there. */
static int check_local(const lf_resources *res, const lf_conf_item *nodes, const char *scheduler,
                       lf_err *err)
{
    if (strcmp(scheduler, "local") != 0 || res->nodes.v <= 1)
        return 0;
    return lf_conf_fail(
        nodes, err,
        "nodes = %s: scheduler = local has one node, this machine; give ranks, or a scheduler",
        nodes->value);
}

int lf_pipeline_resources(lf_doc_stage *stage, lf_conf *c, const char *section,
                          const char *kind_section, const char *scheduler, lf_err *err)
{
    lf_conf_item *nodes = NULL;
    int rc = 0;
    stage->resources.given = true;
    for (size_t i = 0; rc == 0 && i < N_KEYS; i++) {
        const struct key *k = &keys[i];
        lf_conf_item *it = NULL;
        char *base = k->beside ? (char *)stage : (char *)&stage->resources;
        rc = find_key(&it, c, section, kind_section, k->name, err);
        if (rc == 0 && it != NULL)
            rc = value(base + k->at, k, it, err);
        if (i == 0)
            nodes = it;
    }
    if (rc == 0 && !stage->grace_s.given)
        stage->grace_s = lf_int_of(GRACE_DEFAULT_S);
    if (rc == 0)
        rc = check_local(&stage->resources, nodes, scheduler, err);
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

static int site_time(lf_int *out, lf_conf *c, const char *key, int64_t def, lf_err *err)
{
    lf_conf_item *it = lf_conf_find(c, "site", key);
    int64_t v = def;
    lf_err e = LF_ERR_INIT;
    if (it != NULL) {
        it->read = true;
        if (lf_parse_duration(&v, it->value, &e) < 0)
            return lf_conf_fail(it, err, "%s: %s", key, e.text);
    }
    *out = lf_int_of(v);
    return 0;
}

/* commands = sbatch=/opt/slurm/bin/sbatch squeue=... */
static int site_commands(lf_site *site, lf_conf *c, lf_err *err)
{
    lf_conf_item *it = lf_conf_find(c, "site", "commands");
    if (it == NULL)
        return 0;
    it->read = true;
    lf_texts list = {.n = 0};
    static const struct key form = {.name = "commands", .type = WORDS_T};
    site->commands.given = true;
    int rc = words(&list, &form, it, err);
    for (size_t i = 0; rc == 0 && i < list.n; i++) {
        const char *w = list.v[i], *eq = strchr(w, '=');
        char name[64];
        if (eq == NULL || eq[1] != '/' || (size_t)(eq - w) >= sizeof name)
            rc = lf_conf_fail(it, err, "commands = %s: give NAME=/PATH", w);
        else {
            snprintf(name, sizeof name, "%.*s", (int)(eq - w), w);
            rc = lf_pairs_set(&site->commands, name, eq + 1, err);
        }
    }
    lf_texts_fini(&list);
    return rc;
}

static int site_word(void *out, lf_conf *c, const struct key *k, lf_err *err)
{
    lf_conf_item *it = lf_conf_find(c, "site", k->name);
    if (it == NULL)
        return 0;
    it->read = true;
    return value(out, k, it, err);
}

static int site_templates(lf_site *site, lf_conf *c, lf_err *err)
{
    lf_conf_item *it = lf_conf_find(c, "site", "templates");
    if (it == NULL)
        return 0;
    it->read = true;
    if (it->value[0] != '/' || !printable(it->value))
        return lf_conf_fail(it, err, "templates = %s: give an absolute path", it->value);
    return lf_text_set(&site->templates, it->value, "templates", err);
}

int lf_pipeline_site(lf_site *site, lf_conf *c, lf_err *err)
{
    static const struct key chain = {.name = "chain", .type = ENUM_T, .choices = CHAINS},
                            launcher = {.name = "launcher", .type = ENUM_T, .choices = LAUNCHERS},
                            exclude = {.name = "exclude", .type = NAMES_T};
    int rc = 0;
    site->given = true;
    for (size_t i = 0; rc == 0 && i < c->n_trusted; i++)
        rc = lf_texts_add(&site->trust, c->trusted[i], err);
    if (rc == 0)
        rc = site_time(&site->poll_s, c, "poll", 60, err);
    if (rc == 0)
        rc = site_time(&site->timeout_s, c, "command_timeout", 60, err);
    if (rc == 0)
        rc = site_time(&site->grace_lost_s, c, "lost_after", 270, err);
    if (rc == 0)
        rc = site_time(&site->settle_s, c, "settle", 3, err);
    if (rc == 0)
        rc = site_time(&site->submit_wait_s, c, "submit_wait", 120, err);
    if (rc == 0)
        rc = site_commands(site, c, err);
    if (rc == 0)
        rc = site_word(&site->chain, c, &chain, err);
    if (rc == 0)
        rc = site_word(&site->launcher, c, &launcher, err);
    if (rc == 0)
        rc = site_word(&site->exclude, c, &exclude, err);
    return rc == 0 ? site_templates(site, c, err) : rc;
}
