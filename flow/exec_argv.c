/* SPDX-License-Identifier: Apache-2.0
 *
 * What is executed: the stage with its files, and around it the launcher when there is more than one rank.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "flow/exec.h"
#include "flow/record.h"

static const char *const files[][2] = {
    {"--config", "config.ini"}, {"--out", "out"}, {"--metrics", "metrics"}, {"--stop-file", "stop"}};
#define N_FILES (sizeof files / sizeof files[0])

static void add(char **argv, size_t *k, char *word, bool *bad)
{
    *bad = *bad || word == NULL;
    argv[(*k)++] = word;
}

int lf_exec_argv(char ***out, lf_exec *x, lf_err *err)
{
    size_t n = json_array_size(x->resume), k = 0;
    char exe[PATH_MAX];
    bool bad = false;
    const char *name = json_string_value(json_object_get(json_object_get(x->stage, "exe"), "path"));
    int rc = lf_path_set(exe, err, "%s/rev.%d/bin/%s", x->run.dir, x->run.rev, name != NULL ? name : "");
    char **argv = rc == 0 ? lf_calloc(2 + 2 * (N_FILES + n), sizeof *argv, err) : NULL;
    if (argv == NULL)
        return rc < 0 ? rc : LF_ENOMEM;
    add(argv, &k, lf_strdup(exe, err), &bad);
    for (size_t i = 0; i < N_FILES; i++) {
        add(argv, &k, lf_strdup(files[i][0], err), &bad);
        add(argv, &k, lf_path_join(x->dir, files[i][1], err), &bad);
    }
    for (size_t i = 0; i < n; i++) {
        add(argv, &k, lf_strdup("--resume-from", err), &bad);
        add(argv, &k, lf_strdup(json_string_value(json_array_get(x->resume, i)), err), &bad);
    }
    if (bad) {
        for (size_t i = 0; i < k; i++)
            free(argv[i]);
        free(argv);
        return LF_ENOMEM;
    }
    *out = argv;
    return 0;
}
