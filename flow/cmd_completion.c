/* SPDX-License-Identifier: Apache-2.0
 *
 * completion: the completion file of bash, printed from the command table. The installed file is this output; a test
 * compares them.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "flow/cmds.h"

static const lf_opt completion_rows[] = {LF_CMD_COMMON};
LF_CMD_TABLE(completion, "print the completion file of bash", completion_rows);

static void print_options(const lf_opt_table *t)
{
    for (size_t i = 0; i < t->n_opts; i++) {
        const lf_opt *o = &t->opts[i];
        bool off = o->type == LF_OPT_BOOL && o->def != NULL && strcmp(o->def, "yes") == 0;
        printf(" --%s", off ? "no-" : "");
        for (const char *p = o->name; *p != '\0'; p++)
            putchar(*p == '_' ? '-' : *p);
    }
}

static int run_completion(lf_cmd *c, lf_err *err)
{
    (void)c;
    (void)err;
    printf("# SPDX-License-Identifier: Apache-2.0\n"
           "# Completion of loong-flow for bash; made by `loong-flow completion`.\n"
           "_loong_flow() {\n    local cur=${COMP_WORDS[COMP_CWORD]} cmd=${COMP_WORDS[1]} words=\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        words=\"");
    const char *sep = "";
    for (const lf_cmd_def *const *d = lf_cmds; *d != NULL; d++)
        if (!(*d)->hidden) {
            printf("%s%s", sep, (*d)->table->stage);
            sep = " ";
        }
    printf(" help\"\n    else\n        case $cmd in\n");
    for (const lf_cmd_def *const *d = lf_cmds; *d != NULL; d++)
        if (!(*d)->hidden) {
            printf("        %s) words=\"", (*d)->table->stage);
            print_options((*d)->table);
            printf("\" ;;\n");
        }
    printf("        esac\n        case $cur in -*) ;; *) words= ;; esac\n    fi\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
           "    [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- \"$cur\"))\n}\n"
           "complete -o filenames -F _loong_flow loong-flow\n");
    return 0;
}

const lf_cmd_def lf_cmd_completion = {.table = &completion_table, .words = "", .max_words = 0, .hidden = true,
                                      .run = run_completion};
