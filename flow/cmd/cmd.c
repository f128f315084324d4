/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of commands and the way from argv to one of them.
 */
#include "config.h"

#include "flow/cmd/cmd.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/env.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/cmd/cmds.h"
#include "flow/cmd/help.h"

const lf_cmd_def *const lf_cmds[] = {
#define LF_CMD(name) &lf_cmd_##name,
#include "flow/cmd/cmds.def"
#undef LF_CMD
    NULL,
};

static const lf_cmd_def *find_cmd(const char *name)
{
    for (const lf_cmd_def *const *d = lf_cmds; *d != NULL; d++)
        if (strcmp((*d)->table->stage, name) == 0)
            return *d;
    return NULL;
}

/* "--columns TEXT", "--jobs N", "--[no-]json". */
void lf_cmd_option_form(char *buf, size_t cap, const lf_opt *o)
{
    char name[64];
    snprintf(name, sizeof name, "%s", o->name);
    for (char *p = name; *p != '\0'; p++)
        if (*p == '_')
            *p = '-';
    if (o->type == LF_OPT_BOOL)
        snprintf(buf, cap, "--%s%s", o->def != NULL && strcmp(o->def, "yes") == 0 ? "no-" : "",
                 name);
    else
        snprintf(buf, cap, "--%s %s", name, lf_help_value(o));
}

/* Names for people who type. The first that a command has wins: -a, -f and -n mean different
 * options in places. */
static const struct {
    char letter;
    const char *option;
} shorts[] = {{'o', "columns"}, {'o', "output"}, {'f', "follow"}, {'n', "lines"},
              {'n', "dry_run"}, {'n', "ranks"},  {'h', "help"},   {'y', "yes"},
              {'j', "jobs"},    {'a', "all"},    {'q', "quiet"},  {'s', "state"}};

char lf_cmd_short(const lf_opt_table *t, const char *name)
{
    for (size_t i = 0; i < sizeof shorts / sizeof shorts[0]; i++) {
        if (strcmp(shorts[i].option, name) != 0)
            continue;
        for (size_t k = 0; k < i; k++) /* taken by an earlier row */
            if (shorts[k].letter == shorts[i].letter && lf_opt_find(t, shorts[k].option) != NULL)
                return 0;
        return shorts[i].letter;
    }
    return 0;
}

/* The argument with its long name, owned: "-o" is "--columns", "-n5" is "--lines=5", "--format=X"
 * is "--columns=X" where a command has columns and no format of its own. */
static char *long_form(const char *arg, const lf_opt_table *t, lf_err *err)
{
    const char *name = NULL, *value = NULL;
    if (arg[0] == '-' && arg[1] != '-' && arg[1] != '\0') {
        for (size_t i = 0; name == NULL && i < t->n_opts; i++)
            if (lf_cmd_short(t, t->opts[i].name) == arg[1])
                name = t->opts[i].name;
        value = arg[2] == '=' ? arg + 3 : arg[2] != '\0' ? arg + 2 : NULL;
    } else if (lf_str_has_prefix(arg, "--format") && (arg[8] == '\0' || arg[8] == '=') &&
               lf_opt_find(t, "columns") != NULL && lf_opt_find(t, "format") == NULL) {
        name = "columns";
        value = arg[8] == '=' ? arg + 9 : NULL;
    }
    const lf_opt *o = name != NULL ? lf_opt_find(t, name) : NULL;
    if (o == NULL || (o->type == LF_OPT_BOOL && value != NULL))
        return lf_strdup(arg, err);
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "--%s%s%s", name, value != NULL ? "=" : "", value != NULL ? value : "");
    char *s = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return s;
}

int lf_flow_exit_of(int rc)
{
    switch (rc) {
    case LF_EINVAL:
        return LF_FLOW_USAGE;
    case LF_EBUSY:
        return LF_FLOW_BUSY;
    case LF_EFORMAT:
        return LF_FLOW_DAMAGED;
    case LF_ENOENT:
        return LF_FLOW_NOT_FOUND;
    default:
        return LF_FLOW_FAILED;
    }
}

static int report(const lf_err *err, const char *cmd)
{
    fflush(stdout);
    lf_say_err("loong-flow %s: %s\n", cmd, err->text[0] != '\0' ? err->text : "failed");
    return lf_flow_exit_of(err->rc);
}

static int run_command(const lf_cmd_def *d, int argc, char **argv,
                       const lf_opt_table *const *tables)
{
    lf_err err = LF_ERR_INIT;
    lf_cmd c = {.def = d, .tables = tables};
    char **args = lf_calloc((size_t)argc + 1, sizeof *args, &err);
    c.opts = args != NULL ? lf_optset_create(d->table, &err) : NULL;
    int rc = c.opts == NULL ? LF_ENOMEM : 0;
    bool words = false; /* after "--" nothing is an option */
    for (int i = 0; rc == 0 && i < argc; i++) {
        words = words || strcmp(argv[i], "--") == 0;
        args[i] = i == 0 || words ? lf_strdup(argv[i], &err) : long_form(argv[i], d->table, &err);
        rc = args[i] == NULL ? LF_ENOMEM : 0;
    }
    if (rc == 0)
        rc = lf_optset_parse_argv(c.opts, argc, args, &c.words, &c.n_words, &err);
    if (rc == 0 && lf_optset_bool(c.opts, "help")) {
        rc = lf_help_command(d);
    } else if (rc == 0 && c.n_words > d->max_words) {
        rc = lf_fail(&err, LF_EINVAL, "too many words: \"%s\"; usage: loong-flow %s %s",
                     c.words[d->max_words], d->table->stage, d->words);
    } else if (rc == 0) {
        rc = lf_optset_check(c.opts, &err);
        if (rc == 0)
            rc = lf_env_check(&err);
        c.json = lf_optset_bool(c.opts, "json");
        c.tty = isatty(1) != 0;
        if (rc == 0)
            rc = d->run(&c, &err);
    }
    if ((fflush(stdout) != 0 || ferror(stdout) != 0) && rc == 0)
        rc = lf_fail(&err, LF_EIO, "cannot write all of the output");
    int code = rc < 0 ? report(&err, d->table->stage) : rc;
    free(c.words);
    lf_optset_destroy(c.opts);
    for (int i = 0; args != NULL && i < argc; i++)
        free(args[i]);
    free(args);
    return code;
}

int lf_flow_main(int argc, char **argv, const lf_opt_table *const *tables)
{
    signal(SIGXFSZ,
           SIG_IGN); /* a file that may not grow is an error with a name, here and in the stages */
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return argc < 2 ? (lf_help_general(), LF_FLOW_USAGE) : lf_help_general();
    const char *name = strcmp(argv[1], "--version") == 0 ? "version" : argv[1];
    if (strcmp(name, "help") == 0)
        return argc > 2 ? lf_help_topic(argv[2], tables) : lf_help_general();
    const lf_cmd_def *d = find_cmd(name);
    if (d != NULL)
        return run_command(d, argc - 1, argv + 1, tables);
    const char *names[64];
    size_t n = 0;
    for (const lf_cmd_def *const *k = lf_cmds; *k != NULL && n < 64; k++)
        names[n++] = (*k)->table->stage;
    const char *near = lf_nearest(name, names, n);
    fprintf(stderr, "loong-flow: there is no command \"%s\"%s%s%s\n", name,
            near != NULL ? "; did you mean " : "", near != NULL ? near : "; see loong-flow --help",
            near != NULL ? "?" : "");
    return LF_FLOW_USAGE;
}
