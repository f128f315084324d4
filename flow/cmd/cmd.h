/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands: one file each, one const entry each, one const table of all. The option table of a
 * command feeds its parser, its --help, the completion file and the man page test.
 */
#ifndef LF_FLOW_CMD_H
#define LF_FLOW_CMD_H

#include <stdbool.h>

#include "db/ledger.h"
#include "engine/base/opt.h"
#include "flow/cmd/table.h"
#include "flow/record/shown.h"
#include "flow/run/project.h"
#include "flow/run/state.h"

/* Exit codes of every command, in the order of the man page, which is printed from this table. A
 * command that fails with an lf_rc gets its code from lf_flow_exit_of; one that knows better
 * returns the code itself. */
#define LF_FLOW_EXITS(X)                                                                           \
    X(LF_FLOW_OK, 0, "done, or nothing to do")                                                     \
    X(LF_FLOW_FAILED, 1, "a run or stage failed, or the command itself")                           \
    X(LF_FLOW_USAGE, 2, "wrong usage or pipeline; nothing was started")                            \
    X(LF_FLOW_REFUSED, 4, "the scheduler refuses the job as it is")                                \
    X(LF_FLOW_UNREACHABLE, 5, "the scheduler does not answer; try again later")                    \
    X(LF_FLOW_BUSY, 6, "the project or run is locked by another loong-flow, which is named")       \
    X(LF_FLOW_DAMAGED, 7, "the ledger or a record is damaged, or newer than this loong-flow")      \
    X(LF_FLOW_NOT_FOUND, 8, "no such project, run, stage or file")                                 \
    X(LF_FLOW_PARTIAL, 9, "only a part was submitted; the same command goes on")                   \
    X(LF_FLOW_STOPPED, 75, "stopped at a good checkpoint; resume continues")
enum lf_flow_exit {
#define LF_FLOW_EXIT_ENUM(name, code, text) name = code,
    LF_FLOW_EXITS(LF_FLOW_EXIT_ENUM)
#undef LF_FLOW_EXIT_ENUM
};
/* Exit code for a negative lf_rc. */
int lf_flow_exit_of(int rc);
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
    bool hidden;                        /* not in the list of --help */
    int (*run)(lf_cmd *c, lf_err *err); /* an exit code, or a negative lf_rc with err set */
} lf_cmd_def;

extern const lf_cmd_def *const lf_cmds[]; /* NULL-terminated, in the order of --help */

/* Rows of every command's table. */
#define LF_CMD_COMMON                                                                              \
    LF_OPT_ROW(.name = "json", .type = LF_OPT_BOOL, LF_OPT_COMMAND, .def = "no",                   \
               .help = "print JSON with a schema number"),                                         \
        LF_OPT_ROW(.name = "project", .type = LF_OPT_PATH, LF_OPT_COMMAND,                         \
                   .help = "project directory; default: the nearest with a .loong"),               \
        LF_OPT_ROW(.name = "help", .type = LF_OPT_BOOL, LF_OPT_COMMAND, .def = "no",               \
                   .help = "print this text and exit")
#define LF_CMD_COLUMNS                                                                             \
    LF_OPT_ROW(.name = "columns", .type = LF_OPT_STR, LF_OPT_COMMAND,                              \
               .help = "columns KEY[%WIDTH],... or a named format; help lists them")
#define LF_CMD_UTC                                                                                 \
    LF_OPT_ROW(.name = "utc", .type = LF_OPT_BOOL, LF_OPT_COMMAND, .def = "no",                    \
               .help = "print times in UTC, not local ones")
#define LF_CMD_TABLE(cmd, text, rows)                                                              \
    static const lf_opt_table cmd##_table = {.stage = #cmd,                                        \
                                             .spec_version = 1,                                    \
                                             .summary = text,                                      \
                                             .opts = rows,                                         \
                                             .n_opts = sizeof(rows) / sizeof(rows[0])}

/* The whole program. */
int lf_flow_main(int argc, char **argv, const lf_opt_table *const *tables);

/* ---- what commands share (cmd_util.c) ---- */

/* --project, else the nearest project at or above the working directory. */
int lf_cmd_project(lf_project *out, const lf_cmd *c, lf_err *err);
const char *lf_cmd_word(const lf_cmd *c, int i); /* NULL when it was not given */
/* What an option that may be repeated was given, n of them; owned: free() it. NULL with err. */
const char **lf_cmd_list(const lf_cmd *c, const char *name, size_t *n, lf_err *err);
void lf_cmd_nap(double s);
/* A stage's executable with n words behind its name takes the place of this process. Returns when
 * that fails. */
int lf_cmd_become(const char *exe, const char *const *words, size_t n, lf_err *err);
/* "2026-11-22 13:00:05" in local time, or with --utc "2026-11-22T12:00:05Z"; returns buf. */
const char *lf_cmd_time(char buf[21], const lf_cmd *c, double wall_s);
/* Print a record as JSON with "schema" (print_json.c). What is not known is not given, and left
 * out. */
int lf_cmd_print(const void *rec, const struct lf_fields *t, lf_err *err);
/* The same in one line, for commands that print one object after the other. */
int lf_cmd_print_line(const void *rec, const struct lf_fields *t, lf_err *err);
/* An object of texts: names and values, NULL behind them. */
int lf_cmd_print_texts(lf_err *err, const char *name, ...) __attribute__((sentinel));
/* Rows of whatever members: {"rows":[]}, or a table of them; takes rows (NULL: err says why). */
int lf_cmd_print_rows(const lf_cmd *c, struct json_t *rows, lf_err *err);
/* A run as it is (flow/sched/describe.h). */
int lf_cmd_print_run(const lf_run_view *v, lf_err *err);
/* "run NAME-N  ID  STATE" of a described run. */
void lf_cmd_print_head(const lf_run_shown *run);
/* Open the project, call fn, close it. */
int lf_cmd_with_project(lf_cmd *c, int (*fn)(lf_cmd *c, const lf_project *p, lf_err *err),
                        lf_err *err);
/* The same with the run of a word (NULL: the newest) and its stages. */
int lf_cmd_with_run(lf_cmd *c, const char *word, int (*fn)(lf_cmd *c, lf_run_view *v, lf_err *err),
                    lf_err *err);
/* "--columns TEXT", "--jobs N", "--no-check": as --help and the man page write an option. */
void lf_cmd_option_form(char *buf, size_t cap, const lf_opt *o);
/* "-o", "-n" and so on of a long option of this table, 0 when it has none. */
char lf_cmd_short(const lf_opt_table *t, const char *name);
/* Use i of `init`, NULL behind the last. */
const char *lf_cmd_use(size_t i);
/* Directory of installed or built models, owned, NULL when there is none. */
char *lf_cmd_model_dir(void);

/* The ledger for reading, brought up to date before. Where it cannot be written, it is read as it
 * is, and stderr says so. */
lf_ledger *lf_cmd_open_ledger(const lf_project *p, bool everything, lf_err *err);
/* An LF_ROWS of structs as a table, or as {"rows":[]}. */
int lf_cmd_rows(const lf_cmd *c, const void *rows, const struct lf_fields *fields,
                const lf_table *t, lf_err *err);

#endif
