/* SPDX-License-Identifier: Apache-2.0
 *
 * What --help and the man page add to the tables of commands: groups, the words behind a command,
 * examples.
 */
#ifndef LF_FLOW_HELP_H
#define LF_FLOW_HELP_H

#include "flow/cmd/cmd.h"

/* A command for people who read help. */
typedef struct lf_help {
    const char *cmd, *group;
    const char *words;    /* lines "WORD  what it is"; "" when it takes none */
    const char *examples; /* lines of a shell, with comments; "" when there are none */
} lf_help;

/* NULL: a command that is for programs. tests/flow/docs.sh sees that all others have one. */
const lf_help *lf_help_of(const char *cmd);
/* Headings of groups, in the order of --help; ends with NULL. */
extern const char *const lf_help_groups[];

int lf_help_general(void);
int lf_help_command(const lf_cmd_def *d);
/* `loong-flow help TOPIC`: a command, a kind of stage with its options, or an option with the kinds
 * that have it. LF_FLOW_USAGE: none of them; stderr has the nearest. */
int lf_help_topic(const char *topic, const lf_opt_table *const *tables);
/* The word for the value of an option, such as RUN or N. */
const char *lf_help_value(const lf_opt *o);
/* An option of every command: --json, --project, --help. */
bool lf_help_is_common(const lf_opt *o);

#endif
