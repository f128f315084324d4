/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands: one file each, one const entry each, one const table of all. The option table of a command feeds its parser,
 * its --help, the completion file and the man page test.
 */
#ifndef LF_FLOW_CMD_H
#define LF_FLOW_CMD_H

#include <jansson.h>
#include <stdbool.h>

#include "engine/base/opt.h"
#include "flow/project.h"

enum lf_flow_exit { LF_FLOW_OK = 0, LF_FLOW_FAILED = 1, LF_FLOW_USAGE = 2, LF_FLOW_STOPPED = 75 };
#define LF_JSON_SCHEMA 1

struct lf_cmd_def;

typedef struct lf_cmd {
    const struct lf_cmd_def *def;
    lf_optset *opts;
    char **words;
    int n_words;
    const lf_opt_table *const *tables; /* the stages */
    bool json;
    bool tty; /* stdout is a terminal */
} lf_cmd;

typedef struct lf_cmd_def {
    const lf_opt_table *table; /* stage = name of the command */
    const char *words;         /* for the usage line: "[RUN] [STAGE]" */
    int max_words;
    bool hidden;               /* not in the list of --help */
    int (*run)(lf_cmd *c, lf_err *err); /* an exit code, or a negative lf_rc with err set */
} lf_cmd_def;

extern const lf_cmd_def *const lf_cmds[]; /* NULL-terminated, in the order of --help */

/* Rows of every command's table. */
#define LF_CMD_ROW(name, type, flags, def, choices, help)                                                              \
    {                                                                                                                  \
        name, type, LF_OPT_OPERATIONAL, (flags) | LF_OPT_CLI_ONLY, def, 0, 0, choices, NULL, help                                         \
    }
#define LF_CMD_COMMON                                                                                                  \
    LF_CMD_ROW("json", LF_OPT_BOOL, 0, "no", NULL, "print JSON with a schema number"),                                 \
        LF_CMD_ROW("project", LF_OPT_PATH, 0, NULL, NULL, "project directory; default: the nearest with a .loong"),    \
        LF_CMD_ROW("help", LF_OPT_BOOL, 0, "no", NULL, "print this text and exit")
#define LF_CMD_COLUMNS                                                                                                 \
    LF_CMD_ROW("columns", LF_OPT_STR, 0, NULL, NULL, "columns to print, comma-separated; help lists them (-o)")
#define LF_CMD_TABLE(cmd, text, rows)                                                                                  \
    static const lf_opt_table cmd##_table = {                                                                          \
        .stage = #cmd, .spec_version = 1, .summary = text, .opts = rows, .n_opts = sizeof(rows) / sizeof(rows[0])}

/* The whole program. */
int lf_flow_main(int argc, char **argv, const lf_opt_table *const *tables);

/* ---- what commands share (cmd_util.c) ---- */

/* --project, else the nearest project at or above the working directory. */
int lf_cmd_project(lf_project *out, const lf_cmd *c, lf_err *err);
const char *lf_cmd_word(const lf_cmd *c, int i); /* NULL when it was not given */
/* Print an object as JSON with "schema"; takes o. */
int lf_cmd_print_json(json_t *o, lf_err *err);
/* Directory of installed or built models, owned, NULL when there is none. */
char *lf_cmd_model_dir(void);

/* ---- tables of text (table.c) ---- */

typedef struct lf_column {
    const char *key, *title;
    bool right;   /* numbers */
    bool hidden;  /* only with --columns */
} lf_column;

/* Rows are objects; a member that is missing or null is "-". spec: comma-separated keys, NULL: the columns that are not
 * hidden, "help": list the keys. Control bytes are replaced. */
int lf_table_print(const json_t *rows, const lf_column *cols, size_t n_cols, const char *spec, lf_err *err);
/* Text from outside to stdout: control bytes other than newline and tab are replaced by '?'. */
void lf_print_safe(const char *text);

#endif
