/* SPDX-License-Identifier: Apache-2.0
 *
 * complete: what could be typed next, for the completion files of shells: `loong-flow complete --
 * COMMAND WORD... CURRENT` prints a candidate a line that begins with CURRENT. ":files" alone means
 * that the shell completes files. Everything comes from .loong, the plan of the newest run and the
 * pipeline file; nothing is printed where something fails, and the exit code is 0.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/ini.h"
#include "engine/base/io.h"
#include "engine/base/str.h"
#include "flow/cmd/cmds.h"
#include "flow/cmd/help.h"
#include "flow/plan/pipeline.h"
#include "flow/plan/presets.h"
#include "flow/run/asking.h"
#include "flow/run/naming.h"

static const lf_opt complete_rows[] = {LF_CMD_COMMON};
LF_CMD_TABLE(complete, "print what could be typed next (for shells)", complete_rows);

enum what {
    RUNS = 1,
    STAGES = 2,
    RUN_STAGES = 4, /* RUN/STAGE, once a '/' is typed */
    METRICS = 8,
    SETTINGS = 16, /* STAGE.OPTION=, model.KEY= */
    OPTIONS = 32,  /* OPTION */
    USES = 64,
    MODELS = 128,
    TAGS = 256,
    STATES = 512,
    LEDGER = 1024,
    COMMANDS = 2048,
    FILES = 4096,
    KINDS = 8192,    /* of stages */
    COLUMNS = 16384, /* STAGE.OPTION */
    KEYS = 32768     /* options of all kinds of stages */
};

/* Words behind a command, by place; the last row of a command holds for all that follow. */
static const struct {
    const char *cmd;
    int place;
    unsigned what;
} word_kinds[] = {
    {"status", 0, RUNS},
    {"watch", 0, RUNS},
    {"resume", 0, RUNS},
    {"cancel", 0, RUNS},
    {"tick", 0, RUNS},
    {"report", 0, RUNS},
    {"artifacts", 0, RUNS},
    {"note", 0, RUNS},
    {"tag", 0, RUNS},
    {"tag", 1, TAGS},
    {"diff", 0, RUNS},
    {"diff", 1, RUNS},
    {"show", 0, RUNS | STAGES},
    {"show", 1, STAGES},
    {"logs", 0, STAGES},
    {"explain", 0, STAGES},
    {"metrics", 0, RUNS | STAGES | RUN_STAGES},
    {"metrics", 99, RUNS | STAGES | RUN_STAGES},
    {"init", 0, USES},
    {"models", 0, MODELS},
    {"ledger", 0, LEDGER},
    {"ledger", 1, FILES},
    {"finish", 0, STAGES},
    {"finish", 1, RUNS},
    {"rerun", 99, STAGES},
    {"samples", 0, STAGES},
    {"sweep", 0, RUNS},
    {"help", 0, COMMANDS | KINDS | KEYS},
    {"validate", 0, FILES},
    {"plan", 0, FILES},
    {"config", 0, FILES},
    {"run", 0, FILES},
    {"submit", 0, FILES},
    {"lineage", 0, FILES},
    {"launch", 99, FILES},
};

/* Values of options. */
static const struct {
    const char *option;
    unsigned what;
} value_kinds[] = {
    {"run", RUNS},
    {"keep", RUNS},
    {"stage", STAGES},
    {"only", STAGES},
    {"until", STAGES},
    {"from", STAGES},
    {"after", STAGES},
    {"key", METRICS},
    {"keep_best", METRICS},
    {"set", SETTINGS},
    {"accept", OPTIONS},
    {"tag", TAGS},
    {"state", STATES},
    {"columns", METRICS | COLUMNS},
    {"sort", METRICS | COLUMNS},
};

/* What is known while something is completed. */
struct completing {
    const lf_cmd *c;
    const char *current;
    char lead[400]; /* of a list: what stands before the word that is typed */
    lf_texts found;
    bool files;
    bool has_project, has_run;
    lf_project project;
    lf_run run; /* the newest, or that of --run */
};

static void offer(struct completing *k, const char *word)
{
    if (lf_str_has_prefix(word, k->current) && !lf_texts_has(&k->found, word))
        (void)lf_texts_add(&k->found, word, NULL);
}

static void offer_joined(struct completing *k, const char *a, const char *between, const char *b,
                         const char *end)
{
    char word[400];
    if (snprintf(word, sizeof word, "%s%s%s%s", a, between, b, end) < (int)sizeof word)
        offer(k, word);
}

/* ---- runs ---- */

struct said {
    char *tag, *key;
};
static const struct lf_fields said_fields =
    LF_FIELDS(struct said, LF_MEMBERS(struct said, tag, key));
typedef LF_ROWS(struct said) said_list;

/* What the ledger has, read as it is. */
static void ask(struct completing *k, const char *sql)
{
    said_list rows = {.n = 0};
    lf_ledger *l = k->has_project ? lf_ask_open(&k->project, NULL) : NULL;
    if (l != NULL && lf_fields_list(&rows, &said_fields, lf_ledger_sql(l, sql, NULL), NULL) < 0)
        rows.n = 0;
    for (size_t i = 0; i < rows.n; i++) {
        const char *word = rows.v[i].tag != NULL ? rows.v[i].tag : rows.v[i].key;
        if (word != NULL)
            offer(k, word);
    }
    lf_fields_list_fini(&rows, &said_fields);
    lf_ledger_close(l);
}

static void offer_tags(struct completing *k)
{
    ask(k, "SELECT DISTINCT tag, NULL AS key FROM tag WHERE NOT coalesce(removed, 0)");
}

static void offer_runs(struct completing *k)
{
    lf_texts names;
    if (!k->has_project || lf_naming_list(&names, &k->project, NULL) < 0)
        return;
    for (size_t i = 0; i < names.n; i++)
        offer(k, names.v[i]);
    if (names.n > 0)
        offer(k, "latest");
    lf_texts_fini(&names);
    offer_tags(k);
}

/* ---- stages ---- */

static bool find_run(lf_run *out, const struct completing *k, const char *word)
{
    return k->has_project && lf_run_find(out, &k->project, word, NULL) == 0;
}

/* Names and kinds of the newest run's stages, or of the pipeline file when there is no run. */
static void each_stage(struct completing *k,
                       void (*fn)(struct completing *k, const char *name, const char *kind))
{
    lf_ini ini;
    for (size_t i = 0; k->has_run && i < k->run.plan->stages.n; i++)
        fn(k, k->run.plan->stages.v[i].name, k->run.plan->stages.v[i].kind);
    if (k->has_run || lf_ini_parse_file(&ini, "pipeline.ini", NULL) < 0)
        return;
    for (size_t i = 0; i < ini.n_sections; i++) {
        const lf_ini_entry *kind = lf_ini_find(&ini, ini.sections[i].name, "kind");
        if (lf_str_has_prefix(ini.sections[i].name, "stage ") && kind != NULL)
            fn(k, ini.sections[i].name + strlen("stage "), kind->value);
    }
    lf_ini_fini(&ini);
}

static void offer_stage(struct completing *k, const char *name, const char *kind)
{
    (void)kind;
    offer(k, name);
}

static void offer_settings(struct completing *k, const char *name, const char *kind)
{
    const lf_opt_table *t = lf_table_find(k->c->tables, kind);
    for (size_t i = 0; t != NULL && i < t->n_opts; i++)
        if ((t->opts[i].flags & LF_OPT_CLI_ONLY) == 0)
            offer_joined(k, name, ".", t->opts[i].name, "=");
}

static void offer_columns(struct completing *k, const char *name, const char *kind)
{
    const lf_opt_table *t = lf_table_find(k->c->tables, kind);
    for (size_t i = 0; t != NULL && i < t->n_opts; i++)
        if ((t->opts[i].flags & LF_OPT_CLI_ONLY) == 0)
            offer_joined(k, name, ".", t->opts[i].name, "");
}

static void offer_options(struct completing *k, const char *name, const char *kind)
{
    (void)name;
    const lf_opt_table *t = lf_table_find(k->c->tables, kind);
    for (size_t i = 0; t != NULL && i < t->n_opts; i++)
        if (t->opts[i].cls == LF_OPT_IDENTITY && (t->opts[i].flags & LF_OPT_CLI_ONLY) == 0)
            offer(k, t->opts[i].name);
}

static void offer_keys(struct completing *k, const lf_opt_table *t)
{
    for (size_t i = 0; i < t->n_opts; i++)
        if ((t->opts[i].flags & (LF_OPT_CLI_ONLY | LF_OPT_HIDDEN)) == 0)
            offer(k, t->opts[i].name);
}

static void offer_model_keys(struct completing *k)
{
    for (size_t i = 0; k->has_run && i < k->run.plan->stages.n; i++) {
        const lf_pairs *model = &k->run.plan->stages.v[i].model;
        for (size_t m = 0; m < model->n; m++)
            offer_joined(k, "model", ".", model->v[m].name, "=");
    }
}

/* RUN/ before a '/' is typed, RUN/STAGE behind it. */
static void offer_run_stages(struct completing *k)
{
    const char *slash = strchr(k->current, '/');
    char word[160];
    lf_run run;
    if (slash == NULL || (size_t)(slash - k->current) >= sizeof word)
        return;
    snprintf(word, sizeof word, "%.*s", (int)(slash - k->current), k->current);
    if (!find_run(&run, k, word))
        return;
    for (size_t i = 0; i < run.plan->stages.n; i++)
        offer_joined(k, word, "/", run.plan->stages.v[i].name, "");
    lf_run_fini(&run);
}

static void offer_metrics(struct completing *k)
{
    char sql[256];
    if (!k->has_run)
        return;
    snprintf(sql, sizeof sql,
             "SELECT DISTINCT NULL AS tag, key FROM metric WHERE run = '%s' ORDER BY key",
             k->run.id);
    ask(k, sql);
}

/* ---- what stands in directories and tables ---- */

static void offer_models(struct completing *k)
{
    char *dir = lf_cmd_model_dir();
    lf_texts names = {.n = 0};
    if (lf_presets_list(&names, dir, NULL) == 0)
        for (size_t i = 0; i < names.n; i++)
            offer(k, names.v[i]);
    lf_texts_fini(&names);
    free(dir);
}

static void offer_words(struct completing *k, unsigned what)
{
    static const char *const ledger[] = {"sync", "check", "rebuild", "backup", "sql"};
    if (what & RUNS)
        offer_runs(k);
    if (what & STAGES)
        each_stage(k, offer_stage);
    if (what & RUN_STAGES)
        offer_run_stages(k);
    if (what & METRICS)
        offer_metrics(k);
    if (what & SETTINGS) {
        each_stage(k, offer_settings);
        offer_model_keys(k);
    }
    if (what & OPTIONS)
        each_stage(k, offer_options);
    if ((what & COLUMNS) != 0 && strcmp(k->c->words[0], "status") == 0)
        each_stage(k, offer_columns);
    if (what & MODELS)
        offer_models(k);
    if (what & TAGS)
        offer_tags(k);
    for (size_t i = 0; (what & USES) != 0 && lf_cmd_use(i) != NULL; i++)
        offer(k, lf_cmd_use(i));
    for (int i = 0; (what & STATES) != 0 && i < 8; i++)
        offer(k, lf_state_name((enum lf_state)i));
    for (size_t i = 0; (what & LEDGER) != 0 && i < sizeof ledger / sizeof ledger[0]; i++)
        offer(k, ledger[i]);
    for (const lf_cmd_def *const *d = lf_cmds; (what & COMMANDS) != 0 && *d != NULL; d++)
        if (!(*d)->hidden)
            offer(k, (*d)->table->stage);
    for (const lf_opt_table *const *t = k->c->tables; (what & KINDS) != 0 && *t != NULL; t++)
        offer(k, (*t)->stage);
    for (const lf_opt_table *const *t = k->c->tables; (what & KEYS) != 0 && *t != NULL; t++)
        offer_keys(k, *t);
    k->files = k->files || (what & FILES) != 0;
}

/* ---- options ---- */

static const lf_cmd_def *find_cmd(const char *name)
{
    for (const lf_cmd_def *const *d = lf_cmds; *d != NULL; d++)
        if (strcmp((*d)->table->stage, name) == 0)
            return *d;
    return NULL;
}

/* The option of a word: "--run", "-n"; NULL: it is none. */
static const lf_opt *option_of(const lf_opt_table *t, const char *word)
{
    char name[80];
    if (word[0] == '-' && word[1] != '-' && word[1] != '\0' && word[2] == '\0')
        for (size_t i = 0; i < t->n_opts; i++)
            if (lf_cmd_short(t, t->opts[i].name) == word[1])
                return &t->opts[i];
    if (!lf_str_has_prefix(word, "--"))
        return NULL;
    snprintf(name, sizeof name, "%s", word + 2);
    for (char *p = name; *p != '\0'; p++)
        *p = *p == '-' ? '_' : *p;
    return lf_opt_find(t, name);
}

static void offer_option_names(struct completing *k, const lf_opt_table *t)
{
    for (size_t i = 0; i < t->n_opts; i++) {
        char form[160];
        if ((t->opts[i].flags & LF_OPT_HIDDEN) != 0)
            continue;
        lf_cmd_option_form(form, sizeof form, &t->opts[i]);
        form[strcspn(form, " ")] = '\0';
        offer(k, form);
    }
}

/* "a,b" of an option that takes a list, "+a" and "-a" of columns: the last word is the one. */
static void begin_list(struct completing *k, const lf_opt *o)
{
    bool columns = strcmp(o->name, "columns") == 0 || strcmp(o->name, "sort") == 0;
    bool list = columns || strcmp(o->name, "key") == 0 || strcmp(o->name, "state") == 0;
    const char *comma = list ? strrchr(k->current, ',') : NULL;
    const char *from = comma != NULL ? comma + 1 : k->current;
    if (columns && comma == NULL && (from[0] == '+' || from[0] == '-'))
        from++;
    if ((size_t)(from - k->current) >= sizeof k->lead)
        return;
    snprintf(k->lead, sizeof k->lead, "%.*s", (int)(from - k->current), k->current);
    k->current = from;
}

static void offer_value(struct completing *k, const lf_opt *o)
{
    begin_list(k, o);
    char choices[400], *save = NULL;
    snprintf(choices, sizeof choices, "%s", o->type == LF_OPT_ENUM ? o->choices : "");
    for (char *w = strtok_r(choices, "|", &save); w != NULL; w = strtok_r(NULL, "|", &save))
        offer(k, w);
    for (size_t i = 0; i < sizeof value_kinds / sizeof value_kinds[0]; i++)
        if (strcmp(value_kinds[i].option, o->name) == 0)
            offer_words(k, value_kinds[i].what);
    k->files = k->files || o->type == LF_OPT_PATH;
}

/* The words before the one that is typed: how many are no option and no value of one. --run and
 * --project say what the others are about. */
static int read_before(struct completing *k, const lf_opt_table *t, const char **run,
                       const lf_opt **open)
{
    int words = 0;
    *open = NULL;
    for (int i = 1; i + 1 < k->c->n_words; i++) {
        const char *w = k->c->words[i];
        if (*open != NULL && strcmp(w, "=") == 0) /* bash takes --key=X apart */
            continue;
        if (*open != NULL) {
            if (strcmp((*open)->name, "run") == 0)
                *run = w;
            *open = NULL;
            continue;
        }
        const lf_opt *o = option_of(t, w);
        *open = o != NULL && o->type != LF_OPT_BOOL ? o : NULL;
        words += w[0] != '-';
    }
    return words;
}

static void complete_word(struct completing *k, const char *cmd, int place)
{
    unsigned what = 0;
    for (size_t i = 0; i < sizeof word_kinds / sizeof word_kinds[0]; i++)
        if (strcmp(word_kinds[i].cmd, cmd) == 0 &&
            (word_kinds[i].place == place || word_kinds[i].place == 99))
            what |= word_kinds[i].what;
    offer_words(k, what);
}

static void complete_command(struct completing *k)
{
    const char *run = NULL;
    const lf_opt *open = NULL;
    const lf_cmd_def *d = find_cmd(k->c->words[0]);
    const lf_opt_table *t = d != NULL ? d->table : &complete_table;
    int place = read_before(k, t, &run, &open);
    k->has_run = find_run(&k->run, k, run);
    if (open != NULL)
        offer_value(k, open);
    else if (k->current[0] == '-' && d != NULL)
        offer_option_names(k, t);
    else
        complete_word(k, k->c->words[0], place);
}

static int run_complete(lf_cmd *c, lf_err *err)
{
    (void)err;
    struct completing k = {.c = c, .found = {.given = true}};
    if (c->n_words == 0)
        return 0;
    k.current = c->words[c->n_words - 1];
    k.has_project = lf_cmd_project(&k.project, c, NULL) == 0;
    if (c->n_words == 1) {
        offer_words(&k, COMMANDS);
        offer(&k, "help");
    } else {
        complete_command(&k);
    }
    for (size_t i = 0; i < k.found.n; i++)
        lf_say("%s%s\n", k.lead, k.found.v[i]);
    if (k.files)
        puts(":files");
    lf_texts_fini(&k.found);
    if (k.has_run)
        lf_run_fini(&k.run);
    if (k.has_project)
        lf_project_fini(&k.project);
    return 0;
}

const lf_cmd_def lf_cmd_complete = {.table = &complete_table,
                                    .words = "-- COMMAND [WORD...] CURRENT",
                                    .max_words = 1000,
                                    .hidden = true,
                                    .run = run_complete};
