/* SPDX-License-Identifier: Apache-2.0
 *
 * What submit and resume say and return when a batch scheduler runs the stages, and tick.
 */
#include "config.h"

#include "flow/cmd/cmd_batch.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/cmd/cmds.h"
#include "flow/cmd/console.h"
#include "flow/cmd/write_report.h"
#include "flow/record/record.h"
#include "flow/run/sync.h"
#include "flow/sched/describe.h"
#include "flow/sched/drive.h"
#include "flow/sched/ended.h"
#include "flow/sched/sched.h"

/* ---- submit ---- */

static int code_of(const lf_batch_result *r)
{
    if (r->failed == 0)
        return 0;
    if (r->submitted + r->adopted + r->kept > 0)
        return LF_FLOW_PARTIAL;
    return r->unreachable ? LF_FLOW_UNREACHABLE : LF_FLOW_REFUSED;
}

static int say_failure(int rc, lf_err *err)
{
    if (rc != LF_ECOMM)
        return rc;
    lf_log(0, "%s", err->text);
    lf_err_clear(err);
    return LF_FLOW_UNREACHABLE;
}

/* What a round did with a run, and how its stages are then. */
struct outcome {
    const char *run, *dir, *state;
    int exit, submitted, adopted, kept, failed;
    lf_run_shown now; /* its stages are shown */
};
static const struct lf_fields outcome_fields = LF_FIELDS_SHOWN(
    struct outcome,
    LF_MEMBERS(struct outcome, run, dir, state, exit, submitted, adopted, kept, failed),
    {.key = "stages",
     .type = LF_FIELD_LIST,
     .at = offsetof(struct outcome, now.stages),
     .sub = &lf_stage_shown_fields});

static struct outcome outcome_of(const lf_batch_result *r, const lf_run *run, int code)
{
    return (struct outcome){.run = run->id,
                            .dir = run->dir,
                            .exit = code,
                            .submitted = r->submitted,
                            .adopted = r->adopted,
                            .kept = r->kept,
                            .failed = r->failed};
}

static int print_result(const lf_cmd *c, const lf_run *run, const lf_batch_result *r, int code,
                        lf_err *err)
{
    if (!c->json) {
        if (!lf_optset_bool(c->opts, "quiet"))
            lf_say("run %s: %d submitted, %d adopted, %d kept%s\n", lf_run_label(run), r->submitted,
                   r->adopted, r->kept,
                   r->failed > 0
                       ? "; not everything could be submitted, `loong-flow resume` tries again"
                       : "");
        return code;
    }
    lf_run_view v;
    int rc = lf_view_load_copy(&v, run, err);
    if (rc < 0)
        return rc;
    struct outcome o = outcome_of(r, run, code);
    rc = lf_describe_run(&o.now, &v, err);
    if (rc == 0)
        rc = lf_cmd_print(&o, &outcome_fields, err);
    lf_run_shown_fini(&o.now);
    lf_view_fini(&v);
    return rc < 0 ? rc : code;
}

/* As run does when it ends. */
static void write_report(const lf_project *p, const lf_run *run, bool quiet)
{
    lf_run_view v;
    lf_err e = LF_ERR_INIT;
    if (run->plan->report == NULL)
        return;
    if (lf_view_load_copy(&v, run, &e) < 0) {
        lf_say_err("loong-flow: the report was not written: %s\n", e.text);
        return;
    }
    lf_report_at_end(p, &v, quiet);
    lf_view_fini(&v);
}

int lf_cmd_batch_submit(const lf_cmd *c, lf_prep *p, const lf_batch *b, lf_err *err)
{
    lf_batch_result r;
    memset(&r, 0, sizeof r);
    int rc = lf_batch_run(b, &p->view.run, &r, err);
    if (rc < 0)
        return say_failure(rc, err);
    int code = code_of(&r);
    if (code != 0)
        lf_log(0, "%s", r.why[0] != '\0' ? r.why : "not everything could be submitted");
    if (lf_optset_bool(c->opts, "wait") && (code == 0 || code == LF_FLOW_PARTIAL)) {
        int end = 1;
        rc = lf_batch_wait(b, &p->view.run, &end, err);
        if (rc < 0)
            return say_failure(rc, err);
        lf_ended_tell(&(struct lf_ended){.project = &p->project,
                                         .run = &p->view.run,
                                         .select = &b->select,
                                         .say = b->say,
                                         .user = b->user});
        lf_err e = LF_ERR_INIT;
        if (lf_sync(&p->project, p->view.run.data, p->view.run.id, &e) < 0)
            lf_log(1, "the ledger was not updated: %s", e.text);
        code = code == 0 ? end : code;
        write_report(&p->project, &p->view.run, c->json || lf_optset_bool(c->opts, "quiet"));
    }
    return print_result(c, &p->view.run, &r, code, err);
}

/* ---- dry run ---- */

static void print_command(const lf_texts *argv)
{
    lf_buf b;
    lf_buf_init(&b);
    for (size_t i = 0; i < argv->n; i++) {
        lf_buf_adds(&b, i > 0 ? " " : "$ ");
        lf_buf_add_shell(&b, argv->v[i]);
    }
    puts(b.data);
    lf_buf_fini(&b);
}

struct dry_run {
    const char *scheduler;
    lf_dry_stages stages;
};
static const struct lf_fields dry_fields =
    LF_FIELDS(struct dry_run, LF_MEMBERS(struct dry_run, scheduler),
              LF_LIST(struct dry_run, stages, lf_dry_stage_fields));

int lf_cmd_batch_dry_run(const lf_cmd *c, const lf_prep *p, const lf_batch *b, lf_err *err)
{
    struct dry_run d = {.scheduler = b->submitter->name};
    int rc = lf_batch_dry_run(&d.stages, b, &p->view, p->has_run, err);
    if (rc < 0)
        return rc;
    if (c->json)
        rc = lf_cmd_print(&d, &dry_fields, err);
    for (size_t i = 0; !c->json && i < d.stages.n; i++) {
        const lf_dry_stage *s = &d.stages.v[i];
        printf("%s== %s (script %s)\n", i > 0 ? "\n" : "", s->stage, s->script_sha256);
        for (size_t k = 0; k < s->commands.n; k++)
            print_command(&s->commands.v[k]);
        fputs(s->script, stdout);
    }
    if (!c->json && d.stages.n == 0)
        puts("nothing to submit");
    lf_dry_stages_fini(&d.stages);
    return rc;
}

/* ---- tick ---- */

static const lf_opt tick_rows[] = {
    LF_CMD_COMMON,
    {.name = "quiet",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "say nothing but errors"},
};
LF_CMD_TABLE(
    tick,
    "one round for cron: read records, ask the scheduler, repair, submit what may go on by itself",
    tick_rows);

/* What tick did; the runs stay loaded, for their outcomes borrow. */
struct ticked {
    LF_ROWS(struct outcome) runs;
};
static const struct lf_fields ticked_fields =
    LF_FIELDS(struct ticked, LF_LIST(struct ticked, runs, outcome_fields));

/* When everything that was wanted is there, the next tick need not look at this run. */
static int finish(const lf_run *run, const char **names, size_t n, const char **state, lf_err *err)
{
    lf_run_view v;
    char path[PATH_MAX];
    int rc = lf_view_load_copy(&v, run, err);
    if (rc < 0)
        return rc;
    bool done = true;
    for (size_t i = 0; i < n; i++) {
        const lf_stage_view *s = lf_view_stage(&v, names[i]);
        done = done && (s == NULL || lf_stage_finished(s));
    }
    lf_view_fini(&v);
    *state = done ? "done" : "open";
    if (done && lf_path_set(path, NULL, "%s/" LF_RUN_WANT, run->dir) == 0)
        unlink(path);
    return 0;
}

static int tick_batch(lf_cmd *c, const lf_project *p, const lf_run *run, const lf_texts *want,
                      struct ticked *rows, lf_err *err)
{
    const lf_submitter *sub = NULL;
    size_t n = want->n;
    const char *state = "open", **names = lf_calloc(n + 1, sizeof *names, err);
    lf_batch_result r;
    memset(&r, 0, sizeof r);
    lf_console console = {.quiet = c->json || lf_optset_bool(c->opts, "quiet")};
    int rc = names == NULL ? LF_ENOMEM : lf_submitter_find(&sub, run->plan->scheduler, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        names[i] = want->v[i];
    lf_batch b = {.project = p,
                  .submitter = sub,
                  .automatic = true,
                  .select = {.only = names, .n_only = n},
                  .say = lf_console_say,
                  .user = &console};
    if (rc == 0 && (sub->can & LF_CAN_BATCH) != 0)
        rc = lf_batch_run(&b, run, &r, err);
    bool ended = false; /* now, and nobody has seen it before */
    if (rc == 0 && r.failed == 0 && (sub->can & LF_CAN_BATCH) != 0)
        ended = lf_ended_tell(&(struct lf_ended){.project = p,
                                                 .run = run,
                                                 .select = &b.select,
                                                 .page = run->plan->report != NULL,
                                                 .say = b.say,
                                                 .user = b.user});
    if (rc == 0)
        rc = finish(run, names, n, &state, err);
    /* Once: the next tick passes a run over that is done. */
    if (rc == 0 && (ended || strcmp(state, "done") == 0))
        write_report(p, run, console.quiet);
    free(names);
    struct outcome *o = rc == 0 ? lf_rows_add(&rows->runs, sizeof *o, err) : NULL;
    if (rc == 0 && o == NULL)
        rc = LF_ENOMEM;
    if (o != NULL) {
        *o = outcome_of(&r, run, code_of(&r));
        o->state = state;
    }
    return rc;
}

static bool was_cancelled(const lf_run *run)
{
    char path[PATH_MAX];
    return lf_path_set(path, NULL, "%s/" LF_RUN_CANCEL, run->dir) == 0 && lf_io_exists(path);
}

/* A run that was cancelled while its jobs were still with the scheduler has ended since. */
static int tell_cancelled(lf_cmd *c, const lf_project *p, lf_run *run, lf_err *err)
{
    lf_console console = {.quiet = c->json || lf_optset_bool(c->opts, "quiet")};
    int rc = run->plan != NULL ? 0 : lf_run_load(run, err);
    if (rc == 0)
        lf_ended_tell(&(struct lf_ended){.project = p,
                                         .run = run,
                                         .select = &(lf_select){.n_only = 0},
                                         .say = lf_console_say,
                                         .user = &console});
    return rc;
}

/* One run. A run that another command has in its hands is in good ones. */
static int tick_one(lf_cmd *c, const lf_project *p, lf_run *run, struct ticked *rows, int *worst,
                    lf_err *err)
{
    lf_texts want;
    lf_err e = LF_ERR_INIT;
    const bool cancelled = was_cancelled(run);
    lf_want_load(&want, run->dir, LF_RUN_WANT, NULL);
    int rc = run->plan != NULL ? 0 : lf_run_load(run, &e);
    if (rc == 0 && want.given && !cancelled)
        rc = tick_batch(c, p, run, &want, rows, &e);
    else if (rc == 0)
        rc = lf_sync(p, run->data, run->id, &e);
    if (rc == 0 && cancelled)
        rc = tell_cancelled(c, p, run, &e);
    lf_texts_fini(&want);
    if (rc == LF_ECOMM) {
        lf_log(0, "run %s: %s", lf_run_label(run), e.text);
        *worst = LF_FLOW_UNREACHABLE;
        return 0;
    }
    return rc < 0 && rc != LF_EBUSY ? lf_fail(err, rc, "run %s: %s", lf_run_label(run), e.text) : 0;
}

static int tick_all(lf_cmd *c, const lf_project *p, lf_run_list *runs, struct ticked *rows,
                    int *worst, lf_err *err)
{
    int rc = lf_run_list_load(runs, p, err);
    for (size_t i = runs->n; rc == 0 && i-- > 0;) {
        lf_texts want;
        lf_want_load(&want, runs->runs[i].dir, LF_RUN_WANT, NULL);
        lf_err e = LF_ERR_INIT;
        if (want.given)
            rc = tick_one(c, p, &runs->runs[i], rows, worst, err);
        else if (was_cancelled(&runs->runs[i]) &&
                 tell_cancelled(c, p, &runs->runs[i], &e) < 0) /* an old one, not to be read */
            lf_log(1, "run %s: %s", lf_run_label(&runs->runs[i]), e.text);
        lf_texts_fini(&want);
    }
    return rc;
}

static int run_tick(lf_cmd *c, lf_err *err)
{
    lf_project p;
    lf_run run;
    lf_run_list all = {NULL, 0, 0};
    struct ticked rows = {.runs = {.n = 0}};
    int worst = 0;
    lf_log_init("loong-flow", 2);
    int rc = lf_cmd_project(&p, c, err);
    if (rc < 0)
        return rc;
    memset(&run, 0, sizeof run);
    if (lf_cmd_word(c, 0) == NULL)
        rc = tick_all(c, &p, &all, &rows, &worst, err);
    else if ((rc = lf_run_find(&run, &p, lf_cmd_word(c, 0), err)) == 0)
        rc = tick_one(c, &p, &run, &rows, &worst, err);
    if (rc == 0 && c->json)
        rc = lf_cmd_print(&rows, &ticked_fields, err);
    free(rows.runs.v);
    lf_run_fini(&run);
    lf_run_list_fini(&all);
    lf_project_fini(&p);
    return rc < 0 ? rc : worst;
}

const lf_cmd_def lf_cmd_tick = {
    .table = &tick_table, .words = "[RUN]", .max_words = 1, .run = run_tick};
