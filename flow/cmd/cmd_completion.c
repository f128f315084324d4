/* SPDX-License-Identifier: Apache-2.0
 *
 * completion: what follows from the command and option tables: completion files for bash, zsh and
 * fish, which ask `loong-flow complete` for runs, stages and names (cmd_complete.c); the sections
 * COMMANDS, COMMON OPTIONS and EXIT STATUS of the man page; with the name of a stage the section
 * OPTIONS of its man page. The build makes the installed files from this output, so they cannot
 * disagree with the program.
 */
#include "config.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "flow/cmd/cmds.h"
#include "flow/cmd/help.h"
#include "flow/plan/pipeline.h"

static const lf_opt completion_rows[] = {LF_CMD_COMMON};
LF_CMD_TABLE(completion,
             "print the completion file of bash, zsh or fish, or the man page's part on commands",
             completion_rows);

/* "--no-check" for a switch that is on by default; '_' is written '-'. */
static void long_name(char *buf, size_t cap, const lf_opt *o)
{
    bool off = o->type == LF_OPT_BOOL && o->def != NULL && strcmp(o->def, "yes") == 0;
    snprintf(buf, cap, "--%s%s", off ? "no-" : "", o->name);
    for (char *p = buf; *p != '\0'; p++)
        *p = *p == '_' ? '-' : *p;
}

/* ---- bash ---- */

static void print_bash(void)
{
    fputs("# SPDX-License-Identifier: Apache-2.0\n"
          "# Completion of loong-flow for bash; made by `loong-flow completion bash`.\n"
          "_loong_flow() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} found line files=\n"
          "    COMPREPLY=()\n"
          "    [ \"$cur\" != = ] || cur=\n"
          "    found=$(\"${1:-loong-flow}\" complete -- \"${COMP_WORDS[@]:1:COMP_CWORD-1}\" "
          "\"$cur\" 2>/dev/null)\n"
          "    while IFS= read -r line; do\n"
          "        case $line in\n"
          "        '') ;;\n"
          "        :files) files=1 ;;\n"
          "        *) COMPREPLY+=(\"$line\") ;;\n"
          "        esac\n"
          "    done <<<\"$found\"\n"
          "    [ -z \"$files\" ] || while IFS= read -r line; do\n"
          "        COMPREPLY+=(\"$line\")\n"
          "    done < <(compgen -f -- \"$cur\")\n"
          "    case ${COMPREPLY[*]} in *=) compopt -o nospace 2>/dev/null ;; esac\n"
          "}\n"
          "complete -o filenames -F _loong_flow loong-flow\n",
          stdout);
}

/* ---- zsh ---- */

/* Inside single quotes of a spec, where [ ] : have a meaning of their own. */
static void zsh_text(const char *s)
{
    for (; *s != '\0'; s++) {
        if (*s == '\'')
            fputs("'\\''", stdout);
        else if (strchr("[]:\\", *s) != NULL)
            printf("\\%c", *s);
        else
            putchar(*s);
    }
}

static void zsh_option(const lf_opt *o)
{
    char name[80];
    if ((o->flags & LF_OPT_HIDDEN) != 0)
        return;
    long_name(name, sizeof name, o);
    printf(" \\\n            '%s%s%s[", (o->flags & LF_OPT_REPEAT) != 0 ? "*" : "", name,
           o->type == LF_OPT_BOOL ? "" : "=");
    zsh_text(o->help);
    putchar(']');
    if (o->type != LF_OPT_BOOL)
        printf(":%s: _loong_flow_words", o->name); /* the blank: it is called as it stands */
    putchar('\'');
}

/* Options with their help are in the file; words and values are asked for when they are needed. */
static void print_zsh(void)
{
    printf("#compdef loong-flow\n# SPDX-License-Identifier: Apache-2.0\n"
           "# Completion of loong-flow for zsh; made by `loong-flow completion zsh`.\n"
           "_loong_flow_words() {\n"
           "    local -a found said=(\"${(@)words[1,CURRENT]}\")\n"
           "    [[ $words[CURRENT] == --*=* ]] &&\n"
           "        said=(\"${(@)words[1,CURRENT-1]}\" \"${words[CURRENT]%%%%=*}\" "
           "\"${words[CURRENT]#*=}\")\n"
           "    found=(\"${(@f)$(loong-flow complete -- \"${said[@]}\" 2>/dev/null)}\")\n"
           "    [[ -n ${found[(r):files]} ]] && _files\n"
           "    found=(${found:#:files})\n"
           "    (( $#found )) && compadd -S '' -- ${(M)found:#*=} && return\n"
           "    (( $#found )) && compadd -- $found\n"
           "}\n"
           "_loong_flow() {\n    local -a commands\n    commands=(\n");
    for (const lf_cmd_def *const *d = lf_cmds; *d != NULL; d++)
        if (!(*d)->hidden) {
            printf("        '%s:", (*d)->table->stage);
            zsh_text((*d)->table->summary);
            printf("'\n");
        }
    printf("    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        "
           "return\n    fi\n"
           "    case $words[2] in\n");
    for (const lf_cmd_def *const *d = lf_cmds; *d != NULL; d++) {
        if ((*d)->hidden)
            continue;
        printf("    %s)\n        shift words; (( CURRENT-- ))\n        _arguments",
               (*d)->table->stage);
        for (size_t i = 0; i < (*d)->table->n_opts; i++)
            zsh_option(&(*d)->table->opts[i]);
        printf(" \\\n            '*:word: _loong_flow_words' ;;\n");
    }
    printf("    esac\n}\n_loong_flow \"$@\"\n");
}

/* ---- fish ---- */

static void fish_text(const char *s)
{
    putchar('\'');
    for (; *s != '\0'; s++) {
        if (*s == '\'' || *s == '\\')
            putchar('\\');
        putchar(*s);
    }
    putchar('\'');
}

static void fish_option(const char *cmd, const lf_opt_table *t, const lf_opt *o)
{
    char name[80], letter = lf_cmd_short(t, o->name);
    if ((o->flags & LF_OPT_HIDDEN) != 0)
        return;
    long_name(name, sizeof name, o);
    printf("complete -c loong-flow -n '__fish_seen_subcommand_from %s' -l %s", cmd, name + 2);
    if (letter != 0)
        printf(" -s %c", letter);
    if (o->type == LF_OPT_PATH)
        fputs(" -r", stdout);
    else if (o->type != LF_OPT_BOOL)
        fputs(" -x -a '(__loong_flow_words)'", stdout);
    fputs(" -d ", stdout);
    fish_text(o->help);
    putchar('\n');
}

static void print_fish(void)
{
    printf("# SPDX-License-Identifier: Apache-2.0\n# Completion of loong-flow for fish; made by "
           "`loong-flow completion fish`.\n"
           "function __loong_flow_words\n"
           "    set -l before (commandline -opc)\n"
           "    set -l found (loong-flow complete -- $before[2..-1] (commandline -ct) "
           "2>/dev/null)\n"
           "    contains -- :files $found; and __fish_complete_path (commandline -ct)\n"
           "    string match -v -- :files $found\n"
           "end\n"
           "complete -c loong-flow -f\n");
    for (const lf_cmd_def *const *d = lf_cmds; *d != NULL; d++) {
        const lf_opt_table *t = (*d)->table;
        if ((*d)->hidden)
            continue;
        printf("complete -c loong-flow -n __fish_use_subcommand -a %s -d ", t->stage);
        fish_text(t->summary);
        printf("\ncomplete -c loong-flow -n '__fish_seen_subcommand_from %s' -a "
               "'(__loong_flow_words)'\n",
               t->stage);
        for (size_t i = 0; i < t->n_opts; i++)
            fish_option(t->stage, t, &t->opts[i]);
    }
}

/* ---- man ---- */

/* Text of roff: '-' and '\'' are what was typed, a line never begins with a control character. */
static void roff(const char *s, bool capital)
{
    if (*s == '.' || *s == '\'')
        fputs("\\&", stdout);
    for (bool first = true; *s != '\0'; s++, first = false) {
        if (*s == '-')
            fputs("\\-", stdout);
        else if (*s == '\'')
            fputs("\\(aq", stdout);
        else if (*s == '\\')
            fputs("\\e", stdout);
        else
            putchar(first && capital ? toupper((unsigned char)*s) : *s);
    }
}

static void man_option(const lf_opt_table *t, const lf_opt *o)
{
    char form[160], letter = lf_cmd_short(t, o->name);
    if ((o->flags & LF_OPT_HIDDEN) != 0)
        return;
    lf_cmd_option_form(form, sizeof form, o);
    printf(".TP\n.B ");
    roff(form, false);
    if (letter != 0)
        printf(" \\fR(\\fB\\-%c\\fR)", letter);
    putchar('\n');
    roff(o->help, false);
    if (o->type != LF_OPT_BOOL && o->def != NULL) {
        fputs(" (default ", stdout);
        roff(o->def, false);
        putchar(')');
    }
    putchar('\n');
}

/* The words behind a command, one a paragraph: "RUN       a run". */
static void man_words(const char *cmd)
{
    const lf_help *h = lf_help_of(cmd);
    char word[32], line[400];
    for (const char *p = h != NULL ? h->words : ""; *p != '\0'; p += strcspn(p, "\n") + 1) {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(p, "\n"), p);
        snprintf(word, sizeof word, "%.*s", (int)strcspn(line, " "), line);
        printf(".TP\n.I ");
        roff(word, false);
        putchar('\n');
        roff(line + strlen(word) + strspn(line + strlen(word), " "), false);
        putchar('\n');
    }
}

static void man_examples(const char *cmd)
{
    const lf_help *h = lf_help_of(cmd);
    char line[400];
    if (h == NULL || h->examples[0] == '\0')
        return;
    printf(".PP\n.nf\n");
    for (const char *p = h->examples; *p != '\0'; p += strcspn(p, "\n") + 1) {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(p, "\n"), p);
        roff(line, false);
        putchar('\n');
    }
    printf(".fi\n");
}

static void print_man(void)
{
    printf(".SH COMMANDS\n");
    for (const lf_cmd_def *const *d = lf_cmds; *d != NULL; d++) {
        const lf_opt_table *t = (*d)->table;
        if ((*d)->hidden)
            continue;
        printf(".SS %s", t->stage);
        if ((*d)->words[0] != '\0')
            putchar(' ');
        roff((*d)->words, false);
        putchar('\n');
        roff(t->summary, true);
        printf(strchr("?.", t->summary[strlen(t->summary) - 1]) != NULL ? "\n" : ".\n");
        man_words(t->stage);
        for (size_t i = 0; i < t->n_opts; i++)
            if (!lf_help_is_common(&t->opts[i]))
                man_option(t, &t->opts[i]);
        man_examples(t->stage);
    }
    printf(".SH COMMON OPTIONS\n");
    for (size_t i = 0; i < completion_table.n_opts; i++)
        man_option(&completion_table, &completion_table.opts[i]);
    printf(".SH EXIT STATUS\n");
#define MAN_EXIT(name, code, text)                                                                 \
    printf(".TP\n.B %d\n", code);                                                                  \
    roff(text, true);                                                                              \
    printf(".\n");
    LF_FLOW_EXITS(MAN_EXIT)
#undef MAN_EXIT
}

/* ---- man pages of the stages ---- */

/* "\\fB\\-\\-lr\\fR=\\fInumber\\fR", and of a yes/no option both forms. */
static void man_stage_form(const lf_opt *o)
{
    static const char *const words[] = {
        [LF_OPT_STR] = "text",     [LF_OPT_PATH] = "path",   [LF_OPT_INT] = "number",
        [LF_OPT_COUNT] = "number", [LF_OPT_BYTES] = "bytes", [LF_OPT_DURATION] = "time",
        [LF_OPT_FLOAT] = "number",
    };
    char name[80];
    snprintf(name, sizeof name, "%s", o->name);
    for (char *p = name; *p != '\0'; p++)
        if (*p == '_')
            *p = '-';
    fputs("\\fB\\-\\-", stdout);
    roff(name, false);
    fputs("\\fR", stdout);
    if (o->type == LF_OPT_BOOL) {
        if ((o->flags & LF_OPT_CLI_ONLY) == 0) {
            fputs(", \\fB\\-\\-no\\-", stdout);
            roff(name, false);
            fputs("\\fR", stdout);
        }
    } else {
        fputs("=\\fI", stdout);
        roff(o->type == LF_OPT_ENUM ? o->choices
             : o->unit != NULL      ? o->unit
                                    : words[o->type],
             false);
        fputs("\\fR", stdout);
    }
    putchar('\n');
}

/* A sentence begins with a capital, the value of an option that it explains ("root: ...") does
 * not. */
static bool is_sentence(const char *help)
{
    return help[strcspn(help, " :")] != ':';
}

/* What the text has in brackets: required, may be repeated, default, class. */
static void man_stage_traits(const lf_opt *o)
{
    static const char *const classes[] = {"identity", "numeric", "operational"};
    const bool only = (o->flags & LF_OPT_CLI_ONLY) != 0;
    const char *sep = " (";
    if ((o->flags & LF_OPT_REQUIRED) != 0) {
        printf("%srequired", sep);
        sep = ", ";
    }
    if ((o->flags & LF_OPT_REPEAT) != 0) {
        printf("%smay be repeated", sep);
        sep = ", ";
    }
    if (o->def != NULL && !(only && o->type == LF_OPT_BOOL)) {
        printf("%sdefault ", sep);
        roff(o->def[0] != '\0' ? o->def : "empty", false);
        sep = ", ";
    }
    if (!only) {
        printf("%s%s", sep, classes[o->cls]);
        sep = ", ";
    }
    printf(sep[0] == ',' ? ").\n" : ".\n");
}

static void man_stage_option(const lf_opt *o)
{
    printf(".TP\n");
    man_stage_form(o);
    roff(o->help, is_sentence(o->help));
    man_stage_traits(o);
    if (o->more != NULL) {
        roff(o->more, false);
        putchar('\n');
    }
}

static bool every_stage_has(const lf_opt_table *const *tables, const char *name)
{
    while (*tables != NULL && lf_opt_find(*tables, name) != NULL)
        tables++;
    return *tables == NULL;
}

/* Section OPTIONS of lf-KIND.1, between the prose of stages/lf-KIND.1.in. */
static int man_stage(const lf_cmd *c, const char *kind, lf_err *err)
{
    const lf_opt_table *t = lf_table_find(c->tables, kind);
    if (t == NULL)
        return lf_fail(err, LF_EINVAL, "there is no stage \"%s\"", kind);
    printf(".SH OPTIONS\n");
    for (size_t g = 0; g < t->n_opts; g++) {
        if (!lf_opt_group_begins(t, g))
            continue;
        bool any = false;
        for (size_t i = g; i < t->n_opts; i++) {
            const lf_opt *o = &t->opts[i];
            if (every_stage_has(c->tables, o->name) ||
                strcmp(lf_opt_group(t, i), lf_opt_group(t, g)) != 0)
                continue;
            if (!any)
                printf(".SS %c%s\n", toupper((unsigned char)lf_opt_group(t, g)[0]),
                       lf_opt_group(t, g) + 1);
            any = true;
            man_stage_option(o);
        }
    }
    printf(
        ".PP\nOptions of class identity say what is produced: changing one makes another result.\n"
        "Numeric ones may change bits but not meaning, operational ones neither.\n"
        ".SS Common to every stage\n");
    for (size_t i = 0; i < t->n_opts; i++)
        if (every_stage_has(c->tables, t->opts[i].name))
            man_stage_option(&t->opts[i]);
    return 0;
}

static int run_completion(lf_cmd *c, lf_err *err)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } kinds[] = {
        {"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}, {"man", print_man}};
    const char *word = lf_cmd_word(c, 0) != NULL ? lf_cmd_word(c, 0) : "bash";
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, word) == 0) {
            if (c->json)
                return lf_fail(err, LF_EINVAL, "a completion file is no JSON; leave --json out");
            if (lf_cmd_word(c, 1) != NULL && kinds[i].print == print_man)
                return man_stage(c, lf_cmd_word(c, 1), err);
            kinds[i].print();
            return 0;
        }
    return lf_fail(err, LF_EINVAL,
                   "completion for \"%s\"? There is bash, zsh, fish, and man for the man page",
                   word);
}

const lf_cmd_def lf_cmd_completion = {.table = &completion_table,
                                      .words = "[bash|zsh|fish|man [STAGE]]",
                                      .max_words = 2,
                                      .hidden = true,
                                      .run = run_completion};
