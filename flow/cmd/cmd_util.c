/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands share.
 */
#include "config.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/cmd/cmd.h"
#include "flow/record/record.h"
#include "flow/run/asking.h"
#include "flow/run/freeze.h"
#include "flow/sched/describe.h"

int lf_cmd_project(lf_project *out, const lf_cmd *c, lf_err *err)
{
    const char *given = lf_optset_str(c->opts, "project");
    if (given != NULL)
        return lf_project_open(out, given, false, err);
    char *root = NULL;
    int rc = lf_project_find(&root, ".", err);
    if (rc == 0)
        rc = lf_project_open(out, root, false, err);
    free(root);
    return rc;
}

const char *lf_cmd_word(const lf_cmd *c, int i)
{
    return i < c->n_words ? c->words[i] : NULL;
}

int lf_cmd_print_run(const lf_run_view *v, lf_err *err)
{
    lf_run_shown o;
    int rc = lf_describe_run(&o, v, err);
    if (rc == 0)
        rc = lf_cmd_print(&o, &lf_run_shown_fields, err);
    lf_run_shown_fini(&o);
    return rc;
}

void lf_cmd_print_head(const lf_run_shown *run)
{
    if (run->short_name != NULL)
        lf_say("run %s  %s  ", run->short_name, run->run);
    else
        lf_say("run %s  %s  ", run->run, run->name != NULL ? run->name : "-");
    if (lf_colour())
        printf("\033[%sm%s\033[0m\n", lf_state_colour(run->state), run->state);
    else
        printf("%s\n", run->state);
}

int lf_cmd_with_project(lf_cmd *c, int (*fn)(lf_cmd *c, const lf_project *p, lf_err *err),
                        lf_err *err)
{
    lf_project p;
    int rc = lf_cmd_project(&p, c, err);
    if (rc < 0)
        return rc;
    rc = fn(c, &p, err);
    lf_project_fini(&p);
    return rc;
}

int lf_cmd_with_run(lf_cmd *c, const char *word, int (*fn)(lf_cmd *c, lf_run_view *v, lf_err *err),
                    lf_err *err)
{
    lf_project p;
    lf_run_view v;
    int rc = lf_cmd_project(&p, c, err);
    if (rc < 0)
        return rc;
    rc = lf_view_find(&v, &p, word, err);
    if (rc == 0) {
        rc = fn(c, &v, err);
        lf_view_fini(&v);
    }
    lf_project_fini(&p);
    return rc;
}

const char **lf_cmd_list(const lf_cmd *c, const char *name, size_t *n, lf_err *err)
{
    *n = lf_optset_count(c->opts, name);
    const char **list = lf_calloc(*n + 1, sizeof *list, err);
    for (size_t i = 0; list != NULL && i < *n; i++)
        list[i] = lf_optset_str_at(c->opts, name, i);
    return list;
}

int lf_cmd_become(const char *exe, const char *const *words, size_t n, lf_err *err)
{
    char *path = NULL, **argv = lf_calloc(n + 2, sizeof *argv, err);
    int rc = argv == NULL ? LF_ENOMEM : lf_exe_find(&path, exe, err);
    if (rc == 0) {
        argv[0] = path;
        memcpy(argv + 1, words, n * sizeof *argv); /* execv(3) writes to none of them */
        fflush(stdout);
        execv(path, argv);
        rc = lf_fail_errno(err, "cannot start %s", path);
    }
    free(argv);
    free(path);
    return rc;
}

void lf_cmd_nap(double s)
{
    const struct timespec ts = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&ts, NULL);
}

const char *lf_cmd_time(char buf[21], const lf_cmd *c, double wall_s)
{
    const time_t t = (time_t)wall_s;
    struct tm tm;
    if (lf_optset_bool(c->opts, "utc") || localtime_r(&t, &tm) == NULL)
        return lf_time_iso(buf, wall_s);
    strftime(buf, 21, "%Y-%m-%d %H:%M:%S", &tm);
    return buf;
}

char *lf_cmd_model_dir(void)
{
    char self[PATH_MAX], dir[PATH_MAX];
    const char *env = getenv("LF_MODELS_DIR");
    if (env != NULL && env[0] == '/')
        return lf_strdup(env, NULL);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n > 0) {
        self[n] = '\0';
        char *slash = strrchr(self, '/');
        *slash = '\0';
        static const char *const subs[] = {"/models", "/../models", "/../share/loong-flow/models"};
        for (size_t i = 0; i < 3; i++)
            if (lf_path_set(dir, NULL, "%s%s", self, subs[i]) == 0 && lf_io_exists(dir))
                return lf_strdup(dir, NULL);
    }
    return lf_io_exists(LF_DATADIR "/models") ? lf_strdup(LF_DATADIR "/models", NULL) : NULL;
}

lf_ledger *lf_cmd_open_ledger(const lf_project *p, bool everything, lf_err *err)
{
    lf_err e = LF_ERR_INIT;
    int rc = lf_ask_sync(NULL, p, everything, &e);
    lf_ledger *l = lf_ask_open(p, err);
    if (rc < 0 && l != NULL) /* otherwise the same is said once, as the command's own failure */
        lf_say_err("loong-flow: the ledger is not up to date: %s\n", e.text);
    return l;
}

static const struct lf_fields texts_fields =
    LF_FIELDS_BARE(lf_pairs, {.key = "texts", .type = LF_FIELD_PAIRS});

int lf_cmd_print_texts(lf_err *err, const char *name, ...)
{
    lf_pairs all = {.given = true};
    va_list ap;
    int rc = 0;
    va_start(ap, name);
    for (; rc == 0 && name != NULL; name = va_arg(ap, const char *))
        rc = lf_pairs_add(&all, name, va_arg(ap, const char *), err);
    va_end(ap);
    if (rc == 0)
        rc = lf_cmd_print(&all, &texts_fields, err);
    lf_pairs_fini(&all);
    return rc;
}

int lf_cmd_rows(const lf_cmd *c, const void *rows, const struct lf_fields *fields,
                const lf_table *t, lf_err *err)
{
    if (!c->json)
        return lf_table_show(t, rows, fields, lf_optset_str(c->opts, "columns"), err);
    const struct lf_fields all =
        LF_FIELDS(lf_texts, {.key = "rows", .type = LF_FIELD_LIST, .sub = fields});
    return lf_cmd_print(rows, &all, err);
}
