/* SPDX-License-Identifier: Apache-2.0
 *
 * What is executed: the stage with its files, and around it the launcher when there is more than
 * one rank.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/job/exec.h"
#include "flow/record/record.h"

static const char *const files[][2] = {{"--config", "config.ini"},
                                       {"--out", "out"},
                                       {"--metrics", "metrics"},
                                       {"--stop-file", "stop"}};
#define N_FILES (sizeof files / sizeof files[0])

static void add(char **argv, size_t *k, char *word, bool *bad)
{
    *bad = *bad || word == NULL;
    argv[(*k)++] = word;
}

static int stage_argv(char ***out, lf_exec *x, lf_err *err)
{
    size_t n = x->resume.n, k = 0;
    char exe[PATH_MAX];
    bool bad = false;
    const char *name = x->plan->exe.path;
    int rc =
        lf_path_set(exe, err, "%s/rev.%d/bin/%s", x->run.dir, x->run.rev, name != NULL ? name : "");
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
        add(argv, &k, lf_strdup(x->resume.v[i], err), &bad);
    }
    *out = argv;
    return bad ? LF_ENOMEM : 0;
}

/* The stage's key before the site's. */
static enum lf_launcher launcher_of(const lf_exec *x)
{
    const char *name = x->resources.launcher;
    if (name == NULL || strcmp(name, "auto") == 0)
        name = x->job.site->launcher;
    int l = name != NULL ? lf_launcher_find(name) : LF_LAUNCH_AUTO;
    return l < 0 ? LF_LAUNCH_AUTO : (enum lf_launcher)l;
}

int lf_exec_argv(lf_exec *x, lf_err *err)
{
    char self[PATH_MAX], **argv = NULL;
    const lf_resources *res = &x->resources;
    size_t n = res->rank_prefix.n;
    const char **prefix = lf_calloc(n + 1, sizeof *prefix, err);
    int rc = prefix == NULL ? LF_ENOMEM : stage_argv(&argv, x, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        prefix[i] = res->rank_prefix.v[i];
    if (rc == 0)
        rc = lf_path_set(self, err, "%s/rev.%d/bin/loong-flow", x->run.dir, x->run.rev);
    lf_launch_req req = {.launcher = launcher_of(x),
                         .nodes = (int)lf_int_or(res->nodes, 1),
                         .ranks = (int)lf_int_or(res->ranks, 1),
                         .cpus = (int)lf_int_or(res->cpus, 0),
                         .self = self,
                         .prefix = prefix,
                         .argv = (const char *const *)argv};
    if (rc == 0)
        rc = lf_launch_plan_make(&x->launch, &req, err);
    if (rc == 0 && req.nodes * req.ranks > 1)
        lf_log(2, "%d ranks by %s: %s", req.nodes * req.ranks, lf_launcher_name(x->launch.launcher),
               x->launch.why);
    for (char **p = argv; p != NULL && *p != NULL; p++)
        free(*p);
    free(argv);
    free(prefix);
    return rc;
}
