/* SPDX-License-Identifier: Apache-2.0
 *
 * Options by table, with getopt_long as the real commands do (so abbreviations work here too).
 */
#include "config.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/flow/fakes/slurm/fk.h"

enum { MAX_OPTS = 160 };

const char *fk_get(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static void store(json_t *o, const fk_opt *t, const char *arg)
{
    if (!t->done)
        fk_die(99, "--%s is an option of the real command, but not imitated", t->name);
    fk_set_s(o, t->key != NULL ? t->key : t->name,
             t->value != NULL ? t->value
             : arg != NULL    ? arg
                              : "");
}

int fk_parse(json_t *o, const fk_opt *table, int argc, char **argv)
{
    struct option lng[MAX_OPTS];
    char letters[3 * MAX_OPTS];
    int n = 0, at = -1, c;
    /* sbatch and srun stop at the first word, the others take options anywhere. */
    snprintf(letters, sizeof letters, "%s",
             strcmp(fk_name, "sbatch") == 0 || strcmp(fk_name, "srun") == 0 ? "+" : "");
    for (; table[n].name != NULL; n++) {
        int has = table[n].arg == 'n'   ? no_argument
                  : table[n].arg == 'r' ? required_argument
                                        : optional_argument;
        if (n >= MAX_OPTS - 1)
            fk_die(98, "too many options");
        lng[n] = (struct option){table[n].name, has, NULL, 1000 + n};
        if (table[n].letter != 0) {
            size_t k = strlen(letters);
            snprintf(letters + k, sizeof letters - k, "%c%s", table[n].letter,
                     has == 0   ? ""
                     : has == 1 ? ":"
                                : "::");
        }
    }
    lng[n] = (struct option){0};
    optind = 0; /* GNU: start afresh */
    while ((c = getopt_long(argc, argv, letters, lng, &at)) != -1) {
        int i = c >= 1000 ? c - 1000 : 0;
        if (c == '?') {
            fprintf(stderr, "Try \"%s --help\" for more information\n", fk_name);
            exit(1);
        }
        if (c < 1000)
            while (table[i].letter != c)
                i++;
        store(o, &table[i], optarg);
    }
    return optind;
}

void fk_parse_env(json_t *o, const fk_opt *table)
{
    for (int i = 0; table[i].name != NULL; i++) {
        const char *v = table[i].env != NULL ? getenv(table[i].env) : NULL;
        if (v != NULL)
            store(o, &table[i], v);
    }
}
