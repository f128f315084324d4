/* SPDX-License-Identifier: Apache-2.0
 *
 * report: one run, or several, as one HTML file. With --every the page is written again until
 * nothing of the runs lives any more.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/cmd/cmds.h"
#include "flow/cmd/write_report.h"
#include "flow/sched/describe.h"

enum { MOST_RUNS = 100 };

static const lf_opt report_rows[] = {
    LF_CMD_COMMON,
    {.name = "output",
     .type = LF_OPT_PATH,
     LF_OPT_COMMAND,
     .def = "report.html",
     .help = "file to write, - for standard output"},
    {.name = "all",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "the runs of the project, the newest 100 of them, in one page"},
    {.name = "every",
     .type = LF_OPT_DURATION,
     LF_OPT_COMMAND,
     .help = "write it again after this time while the runs go on"},
};
LF_CMD_TABLE(report, "write one self-contained HTML page about a run, or comparing several",
             report_rows);

/* ---- which runs ---- */

struct chosen {
    lf_run_view *views;
    const lf_run_view **list; /* of them */
    size_t n;
    size_t older; /* that --all has left out */
};

static void forget(struct chosen *r)
{
    for (size_t i = 0; i < r->n; i++)
        lf_view_fini(&r->views[i]);
    free(r->views);
    free(r->list);
    memset(r, 0, sizeof *r);
}

static int choose(struct chosen *out, const lf_project *p, const char *const *words, size_t n,
                  lf_err *err)
{
    struct chosen r = {.views = lf_calloc(n + 1, sizeof *r.views, err),
                       .list = lf_calloc(n + 1, sizeof *r.list, err)};
    int rc = r.views == NULL || r.list == NULL ? LF_ENOMEM : 0;
    while (rc == 0 && r.n < n) {
        rc = lf_view_find(&r.views[r.n], p, words[r.n], err);
        if (rc == 0) {
            r.list[r.n] = &r.views[r.n];
            r.n++;
        }
    }
    if (rc < 0)
        forget(&r);
    *out = r;
    return rc;
}

/* The newest runs; one that died before it was complete is none. */
static int choose_all(struct chosen *out, const lf_project *p, lf_err *err)
{
    lf_run_list l = {.n = 0};
    const char *ids[MOST_RUNS];
    size_t n = 0, older = 0;
    int rc = lf_run_list_load(&l, p, err);
    for (size_t i = 0; rc == 0 && i < l.n; i++) {
        if (lf_run_load(&l.runs[i], NULL) < 0)
            continue;
        if (n < MOST_RUNS)
            ids[n++] = l.runs[i].id;
        else
            older++;
    }
    if (rc == 0 && n == 0)
        rc = lf_fail(err, LF_ENOENT, "this project has no runs yet; `loong-flow run` makes one");
    if (rc == 0)
        rc = choose(out, p, ids, n, err);
    if (rc == 0)
        out->older = older;
    lf_run_list_fini(&l);
    return rc;
}

static int find(struct chosen *out, const lf_cmd *c, const lf_project *p, lf_err *err)
{
    static const char *const newest[] = {NULL};
    if (lf_optset_bool(c->opts, "all"))
        return choose_all(out, p, err);
    return c->n_words > 0 ? choose(out, p, (const char *const *)c->words, (size_t)c->n_words, err)
                          : choose(out, p, newest, 1, err);
}

/* ---- writing, once or while they go on ---- */

static bool any_lives(const struct chosen *r)
{
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->views[i].n; k++)
            if (lf_describe_lives(&r->views[i], &r->views[i].stages[k]))
                return true;
    return false;
}

static bool one_run(const lf_cmd *c, const struct chosen *r)
{
    return r->n == 1 && !lf_optset_bool(c->opts, "all");
}

static int write_page(const lf_cmd *c, const lf_project *p, const struct chosen *r, int refresh_s,
                      lf_err *err)
{
    const char *path = lf_optset_str(c->opts, "output");
    return one_run(c, r) ? lf_write_report(p, &r->views[0], path, refresh_s, err)
                         : lf_write_comparison(r->list, r->n, c->tables, path, refresh_s, err);
}

/* Until the time is over or somebody wants an end. */
static void wait_s(int64_t s)
{
    const double until = lf_now_s() + (double)s;
    while (lf_now_s() < until && !lf_stop_requested())
        lf_cmd_nap(0.1);
}

/* The last page is written when nothing lives, or when this command is stopped, and reloads itself
 * no more. */
static int follow(const lf_cmd *c, const lf_project *p, struct chosen *r, lf_err *err)
{
    const int64_t every = lf_optset_int(c->opts, "every");
    int rc = lf_stop_install(NULL, err);
    while (rc == 0) {
        const bool goes_on = any_lives(r) && !lf_stop_requested();
        rc = write_page(c, p, r, goes_on ? (int)every : 0, err);
        if (rc < 0 || !goes_on)
            return rc;
        wait_s(every);
        struct chosen now;
        rc = find(&now, c, p, err);
        if (rc == 0) {
            forget(r);
            *r = now;
        }
    }
    return rc;
}

static int told(const lf_cmd *c, const struct chosen *r, lf_err *err)
{
    const char *path = lf_optset_str(c->opts, "output");
    if (c->json)
        return one_run(c, r)
                   ? lf_cmd_print_texts(err, "run", r->views[0].run.id, "path", path, NULL)
                   : lf_cmd_print_texts(err, "path", path, NULL);
    if (strcmp(path, "-") == 0)
        return 0;
    printf("wrote %s\n", path);
    if (r->older > 0)
        printf("%zu older runs are not in it\n", r->older);
    return 0;
}

static int report_on(lf_cmd *c, const lf_project *p, lf_err *err)
{
    struct chosen r;
    int rc = find(&r, c, p, err);
    if (rc < 0)
        return rc;
    rc = lf_optset_is_set(c->opts, "every") ? follow(c, p, &r, err) : write_page(c, p, &r, 0, err);
    if (rc == 0)
        rc = told(c, &r, err);
    forget(&r);
    return rc;
}

static int run_report(lf_cmd *c, lf_err *err)
{
    if (lf_optset_bool(c->opts, "all") && c->n_words > 0)
        return lf_fail(err, LF_EINVAL, "give runs or --all, not both");
    if (lf_optset_is_set(c->opts, "every") && strcmp(lf_optset_str(c->opts, "output"), "-") == 0)
        return lf_fail(err, LF_EINVAL, "--every writes a file again: give --output a path");
    if (lf_optset_is_set(c->opts, "every") && lf_optset_int(c->opts, "every") < 1)
        return lf_fail(err, LF_EINVAL, "--every is at least one second");
    return lf_cmd_with_project(c, report_on, err);
}

const lf_cmd_def lf_cmd_report = {
    .table = &report_table, .words = "[RUN]...", .max_words = 64, .run = run_report};
