/* SPDX-License-Identifier: Apache-2.0
 *
 * Help for people.
 */
#include "config.h"

#include "flow/cmd/help.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/synonym.h"
#include "flow/plan/pipeline.h"

const char *const lf_help_groups[] = {"Begin",          "Run",   "Look at runs",
                                      "Keep and clean", "Other", NULL};

#define A_RUN                                                                                      \
    "RUN       short name (first-3), latest, tag, name of a pipeline, id or part of it; "          \
    "default: the newest\n"
#define A_PIPELINE "PIPELINE  a pipeline file; default: pipeline.ini\n"

static const lf_help helps[] = {
    {"init", "Begin", "USE       what for, one of --list; default: pretrain\n",
     "loong-flow init --list\n"
     "loong-flow init sft -o sft.ini\n"},
    {"models", "Begin", "MODEL     one of them, with all its settings\n",
     "loong-flow models\n"
     "loong-flow models --fits 24G --precision bf16\n"
     "loong-flow models qwen3-0.6b\n"},
    {"validate", "Begin", A_PIPELINE, "loong-flow validate\n"},
    {"plan", "Begin", A_PIPELINE,
     "loong-flow plan\n"
     "loong-flow plan --set train.lr=1e-3    # as if the file said so\n"},
    {"explain", "Begin", "STAGE     only this stage\n", "loong-flow explain train\n"},
    {"config", "Begin", A_PIPELINE, "loong-flow config --origin\n"},
    {"run", "Run", A_PIPELINE,
     "loong-flow run\n"
     "loong-flow run --set train.lr=1e-3\n"
     "loong-flow run --set train.seed=1,2,3  # a sweep\n"
     "loong-flow run --until train           # and what it needs\n"
     "loong-flow run --dry-run               # what plan shows\n"
     "loong-flow run --new                   # all again, from nothing\n"},
    {"rerun", "Run", "STAGE     what is made again, with what needs it\n",
     "loong-flow rerun train\n"
     "loong-flow rerun tokenize train --dry-run\n"},
    {"submit", "Run", A_PIPELINE,
     "loong-flow submit --dry-run            # the job scripts\n"
     "loong-flow submit --wait\n"},
    {"resume", "Run", A_RUN,
     "loong-flow resume\n"
     "loong-flow resume first-3 --accept lr  # go on after an edit\n"},
    {"cancel", "Run", A_RUN,
     "loong-flow cancel\n"
     "loong-flow cancel first-3 --stage train\n"},
    {"finish", "Run", "STAGE     a training stage\n" A_RUN,
     "loong-flow finish train\n"
     "loong-flow finish train first-3\n"
     "loong-flow finish train --decay        # a wsd schedule decays first\n"},
    {"tick", "Run", A_RUN, "loong-flow tick                        # from cron\n"},
    {"launch", "Run", "PROGRAM   what each rank runs, with its arguments\n",
     "loong-flow launch -n 4 -- lf-pretrain --config train.ini --out out\n"},
    {"status", "Look at runs", A_RUN,
     "loong-flow status\n"
     "loong-flow status --all                # the runs, and in what they differ\n"
     "loong-flow status --all -o +train.lr,min.valid_loss\n"
     "loong-flow status --all --sort best       # the smallest loss first\n"
     "loong-flow status --all --state failed --since 2d\n"},
    {"watch", "Look at runs", A_RUN, "loong-flow watch\n"},
    {"logs", "Look at runs", "STAGE     default: the one that ran last\n",
     "loong-flow logs train -n 20\n"
     "loong-flow logs train --follow\n"},
    {"show", "Look at runs",
     A_RUN "STAGE     only this stage\n"
           "shards    documents of shards, token by token\n",
     "loong-flow show train\n"
     "loong-flow show first-3 train\n"
     "loong-flow show shards --samples 1     # tokens, and which of them are trained\n"
     "loong-flow show shards --from tokenize --split valid --sample 12\n"},
    {"metrics", "Look at runs",
     "STAGE     of the newest run, or of each --run; default: the one with most records\n"
     "RUN       the stage of a run with most records\n"
     "RUN/STAGE a stage of a run; several words lie side by side\n",
     "loong-flow metrics train\n"
     "loong-flow metrics train --format plot --key loss,valid_loss --key lr\n"
     "loong-flow metrics first-1/train first-2/train --format plot\n"
     "loong-flow metrics train --format csv >train.csv\n"},
    {"samples", "Look at runs", "STAGE     default: the one that has most\n",
     "loong-flow samples train\n"
     "loong-flow samples train --step 100\n"
     "loong-flow samples train --run first-3 --all\n"},
    {"sweep", "Look at runs", A_RUN,
     "loong-flow sweep                       # what each child has reached\n"
     "loong-flow sweep first-3 --metric eval.acc --goal max\n"},
    {"report", "Look at runs", A_RUN,
     "loong-flow report first-3\n"
     "loong-flow report --every 30s          # again while the run goes on\n"
     "loong-flow report first-2 first-3      # side by side\n"
     "loong-flow report --all -o runs.html\n"},
    {"artifacts", "Look at runs", A_RUN, "loong-flow artifacts --stage train\n"},
    {"lineage", "Look at runs", "PATH      a result, a file in it, or its sha256\n",
     "loong-flow lineage loong-data/model --forward\n"},
    {"diff", "Look at runs", "RUN       two of them, as every command takes them\n",
     "loong-flow diff first-1 first-2\n"},
    {"note", "Keep and clean", A_RUN "TEXT      what to write down; without it notes are listed\n",
     "loong-flow note latest \"twice the batch\"\n"},
    {"tag", "Keep and clean", A_RUN "TAG       a word; without it tags are listed\n",
     "loong-flow tag first-3 paper\n"
     "loong-flow status paper\n"},
    {"gc", "Keep and clean", "",
     "loong-flow gc                          # what would go\n"
     "loong-flow gc --keep-best valid_loss=3 --yes\n"},
    {"ledger", "Keep and clean",
     "WHAT      sync, check, rebuild, backup or sql\n"
     "ARGUMENT  of backup: a path; of sql: a statement that reads\n",
     "loong-flow ledger check\n"
     "loong-flow ledger sql \"select name, count(*) from run group by name\"\n"},
    {"doctor", "Other", "",
     "loong-flow doctor                      # this machine and directory\n"
     "loong-flow doctor --data texts/        # what is in a data set\n"
     "loong-flow doctor --data pairs.jsonl --tokenizer tok --seq-length 2k\n"},
    {"version", "Other", "", ""},
};

const lf_help *lf_help_of(const char *cmd)
{
    for (size_t i = 0; i < sizeof helps / sizeof helps[0]; i++)
        if (strcmp(helps[i].cmd, cmd) == 0)
            return &helps[i];
    return NULL;
}

bool lf_help_is_common(const lf_opt *o)
{
    return strcmp(o->name, "json") == 0 || strcmp(o->name, "project") == 0 ||
           strcmp(o->name, "help") == 0;
}

/* Of texts that are words of something: what. */
const char *lf_help_value(const lf_opt *o)
{
    static const char *const types[] = {"TEXT", "PATH", "", "N", "N", "SIZE", "TIME", "X", ""};
    static const char *const texts[][2] = {
        {"run", "RUN"},         {"stage", "STAGE"},          {"only", "STAGE"},
        {"force", "STAGE"},     {"until", "STAGE"},          {"from", "STAGE"},
        {"after", "STAGE"},     {"set", "STAGE.KEY=X"},      {"accept", "KEY"},
        {"key", "KEY,..."},     {"columns", "COLUMN,..."},   {"tag", "TAG"},
        {"keep", "RUN"},        {"state", "STATE,..."},      {"sort", "COLUMN"},
        {"since", "WHEN"},      {"keep_best", "METRIC[=N]"}, {"hosts", "HOST:N,..."},
        {"account", "ACCOUNT"}, {"partition", "PARTITION"},  {"sample", "N"},
        {"split", "SPLIT"},     {"metric", "STAGE.KEY"},
    };
    if (o->type == LF_OPT_ENUM)
        return o->choices;
    for (size_t i = 0; o->type == LF_OPT_STR && i < sizeof texts / sizeof texts[0]; i++)
        if (strcmp(texts[i][0], o->name) == 0)
            return texts[i][1];
    return types[o->type];
}

/* ---- printing ---- */

/* Whole lines, each behind this indentation. */
static void print_lines(const char *text, const char *indent)
{
    for (const char *p = text; *p != '\0'; p += strcspn(p, "\n") + 1)
        printf("%s%.*s\n", indent, (int)strcspn(p, "\n"), p);
}

static void print_options(const lf_opt_table *t, bool common)
{
    for (size_t i = 0; i < t->n_opts; i++) {
        const lf_opt *o = &t->opts[i];
        char form[128];
        if ((o->flags & LF_OPT_HIDDEN) != 0 || lf_help_is_common(o) != common)
            continue;
        lf_cmd_option_form(form, sizeof form, o);
        if (strlen(form) > 22)
            printf("  %s\n%25s%s", form, "", o->help);
        else
            printf("  %-22s %s", form, o->help);
        if (lf_cmd_short(t, o->name) != 0)
            printf(" (-%c)", lf_cmd_short(t, o->name));
        if ((o->flags & LF_OPT_REPEAT) != 0 && strstr(o->help, "repeated") == NULL)
            fputs(" (may be repeated)", stdout);
        if (o->type != LF_OPT_BOOL && o->def != NULL)
            printf(" (default %s)", o->def);
        putchar('\n');
    }
}

int lf_help_command(const lf_cmd_def *d)
{
    const lf_help *h = lf_help_of(d->table->stage);
    printf("usage: loong-flow %s%s%s [options]\n%s\n", d->table->stage,
           d->words[0] != '\0' ? " " : "", d->words, d->table->summary);
    if (h != NULL && h->words[0] != '\0') {
        puts("\nWords:");
        print_lines(h->words, "  ");
    }
    if (d->table->n_opts > 3) {
        puts("\nOptions:");
        print_options(d->table, false);
    }
    puts("\nOptions of every command:");
    print_options(d->table, true);
    if (h != NULL && h->examples[0] != '\0') {
        puts("\nExamples:");
        print_lines(h->examples, "    ");
    }
    return 0;
}

static void print_group(const char *group)
{
    printf("%s:\n", group);
    for (const lf_cmd_def *const *d = lf_cmds; *d != NULL; d++) {
        const lf_help *h = lf_help_of((*d)->table->stage);
        if (!(*d)->hidden && strcmp(h != NULL ? h->group : "Other", group) == 0)
            printf("  %-10s %s\n", (*d)->table->stage, (*d)->table->summary);
    }
    putchar('\n');
}

int lf_help_general(void)
{
    puts("usage: loong-flow COMMAND [options] [words]\n\n"
         "Trains models end to end: an INI file with stages becomes a run that can be stopped, "
         "resumed and asked.\n");
    for (const char *const *g = lf_help_groups; *g != NULL; g++)
        print_group(*g);
    puts("Examples:\n"
         "    loong-flow init pretrain        # a pipeline to begin with; --list has other uses\n"
         "    loong-flow plan                 # what would run, and what it costs\n"
         "    loong-flow run\n"
         "    loong-flow metrics train --format plot\n"
         "    loong-flow status --all         # all runs, and in what they differ\n\n"
         "`loong-flow help TOPIC` tells more: of a command, a kind of stage (pretrain) or an "
         "option (lr).\n`man loong-flow` tells all.\nexit codes:");
#define HELP_EXIT(name, code, text) printf("  %-3d %s\n", code, text);
    LF_FLOW_EXITS(HELP_EXIT)
#undef HELP_EXIT
    return 0;
}

/* ---- one topic ---- */

/* Would both print the same? */
static bool same_help(const lf_opt *a, const lf_opt *b)
{
    const char *const x[] = {a->help, a->def, a->choices, a->unit};
    const char *const y[] = {b->help, b->def, b->choices, b->unit};
    bool same = a->type == b->type && a->min == b->min && a->max == b->max && a->cls == b->cls;
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        same = same && ((x[i] == NULL && y[i] == NULL) ||
                        (x[i] != NULL && y[i] != NULL && strcmp(x[i], y[i]) == 0));
    return same;
}

static const lf_opt *key_of(const lf_opt_table *t, const char *key)
{
    const lf_opt *o = lf_opt_find(t, key);
    return o != NULL && (o->flags & LF_OPT_CLI_ONLY) == 0 ? o : NULL;
}

/* The option, once for all kinds in which it is the same. */
static bool help_key(const char *key, const lf_opt_table *const *tables)
{
    static const char *const classes[] = {
        "Identity: another value makes another result.",
        "Numeric: another value may change bits, not the meaning; the stage goes on.",
        "Operational: another value changes no result; the stage goes on."};
    bool any = false;
    for (const lf_opt_table *const *t = tables; *t != NULL; t++) {
        const lf_opt *o = key_of(*t, key);
        bool shown = false;
        for (const lf_opt_table *const *k = tables; o != NULL && k != t; k++)
            shown = shown || (key_of(*k, key) != NULL && same_help(key_of(*k, key), o));
        if (o == NULL || shown)
            continue;
        printf("%skind =", any ? "\n" : "");
        for (const lf_opt_table *const *k = t; *k != NULL; k++)
            if (key_of(*k, key) != NULL && same_help(key_of(*k, key), o))
                printf(" %s", (*k)->stage);
        lf_buf line;
        lf_buf_init(&line);
        lf_opt_help_line(o, &line);
        printf("\n%s", line.len > 0 ? line.data : "\n");
        lf_buf_fini(&line);
        if (o->more != NULL)
            printf("  %s\n", o->more);
        printf("  %s\n", classes[o->cls]);
        any = true;
    }
    return any;
}

static const char *const sections[] = {"pipeline", "resources", "stage", "sweep", "layout", "site"};
#define N_SECTIONS (sizeof sections / sizeof sections[0])

/* Of a key of the pipeline file that is no option of a stage: where it stands. */
static bool help_section(const char *key, bool more)
{
    const char *names[100], *sep = " is a key of ";
    bool any = false;
    for (size_t i = 0; i < N_SECTIONS; i++) {
        const size_t n = lf_section_keys(names, sizeof names / sizeof names[0], sections[i]);
        bool has = false;
        for (size_t k = 0; k < n; k++)
            has = has || strcmp(names[k], key) == 0;
        if (!has)
            continue;
        printf("%s%s%s[%s%s]", !any && more ? "\n" : "", any ? "" : key, sep, sections[i],
               strcmp(sections[i], "stage") == 0 ? " NAME" : "");
        sep = ", ";
        any = true;
    }
    if (any)
        puts("; `man loong-flow` says what it takes");
    return any;
}

/* Names that a message may point at; each once. */
static size_t all_keys(const char **names, size_t cap, const lf_opt_table *const *tables)
{
    size_t n = 0;
    for (size_t i = 0; i < N_SECTIONS; i++)
        n += lf_section_keys(names + n, cap - n, sections[i]);
    for (const lf_opt_table *const *t = tables; *t != NULL; t++)
        for (size_t i = 0; i < (*t)->n_opts && n < cap; i++)
            if (((*t)->opts[i].flags & LF_OPT_CLI_ONLY) == 0)
                names[n++] = (*t)->opts[i].name;
    for (const lf_opt_table *const *t = tables; *t != NULL && n < cap; t++)
        names[n++] = (*t)->stage;
    for (const lf_cmd_def *const *d = lf_cmds; *d != NULL && n < cap; d++)
        names[n++] = (*d)->table->stage;
    return n;
}

int lf_help_topic(const char *topic, const lf_opt_table *const *tables)
{
    const char *names[1600];
    char hint[200], key[80], program[80];
    for (const lf_cmd_def *const *d = lf_cmds; *d != NULL; d++)
        if (strcmp((*d)->table->stage, topic) == 0)
            return lf_help_command(*d);
    const lf_opt_table *t = lf_table_find(tables, topic);
    if (t != NULL) {
        lf_buf text;
        lf_buf_init(&text);
        snprintf(program, sizeof program, "lf-%s", topic);
        lf_opt_help(t, program, &text);
        fputs(text.len > 0 ? text.data : "", stdout);
        lf_buf_fini(&text);
        return 0;
    }
    snprintf(key, sizeof key, "%s", topic);
    for (char *p = key; *p != '\0'; p++)
        *p = *p == '-' ? '_' : *p;
    const bool option = help_key(key, tables);
    if (help_section(key, option) || option)
        return 0;
    lf_synonym_hint(hint, sizeof hint, key, names,
                    all_keys(names, sizeof names / sizeof names[0], tables));
    lf_say_err("loong-flow help: \"%s\" is no command, kind of stage, option or key%s\n", topic,
               hint);
    return LF_FLOW_USAGE;
}
