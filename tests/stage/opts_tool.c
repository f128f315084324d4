/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers among a stage's options, for shell tests that go over all of them:
 *
 *     opts_tool STAGE     a line "name type min max default" for each; "-" where there is none
 */
#include <stdio.h>
#include <string.h>

#include "stages/opts.h"

static const char *type_of(const lf_opt *o)
{
    switch (o->type) {
    case LF_OPT_INT:
        return "int";
    case LF_OPT_COUNT:
        return "count";
    case LF_OPT_BYTES:
        return "bytes";
    case LF_OPT_DURATION:
        return "duration";
    case LF_OPT_FLOAT:
        return "float";
    case LF_OPT_STR:
    case LF_OPT_PATH:
    case LF_OPT_BOOL:
    case LF_OPT_ENUM:
        break;
    }
    return NULL;
}

static void print(const lf_opt *o)
{
    const char *type = type_of(o);
    if (!type)
        return;
    printf("%s %s ", o->name, type);
    if (o->min < o->max)
        printf("%.17g %.17g ", o->min, o->max);
    else
        printf("- - ");
    puts(o->def ? o->def : "-");
}

int main(int argc, char **argv)
{
    for (size_t t = 0; argc == 2 && lf_all_opts[t]; t++)
        if (strcmp(lf_all_opts[t]->stage, argv[1]) == 0) {
            for (size_t i = 0; i < lf_all_opts[t]->n_opts; i++)
                print(&lf_all_opts[t]->opts[i]);
            return 0;
        }
    fprintf(stderr, "usage: opts_tool STAGE\n");
    return 2;
}
