/* SPDX-License-Identifier: Apache-2.0
 *
 * run, submit and resume: the same course with another beginning. exec: the wrapper, which jobs
 * call.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/busy.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/cmd/bar.h"
#include "flow/cmd/cmd_batch.h"
#include "flow/cmd/cmd_plan.h"
#include "flow/cmd/cmds.h"
#include "flow/cmd/complaint.h"
#include "flow/cmd/console.h"
#include "flow/cmd/cost.h"
#include "flow/cmd/place.h"
#include "flow/cmd/prep.h"
#include "flow/cmd/sweep_sum.h"
#include "flow/cmd/write_report.h"
#include "flow/job/exec.h"
#include "flow/record/record.h"
#include "flow/run/policy.h"
#include "flow/run/select.h"
#include "flow/run/sync.h"
#include "flow/sched/chain.h"
#include "flow/sched/drive.h"
#include "flow/sched/ended.h"
#include "flow/sched/sched.h"

#define CONFIG_MAX_BYTES ((size_t)1 << 20)
#define MAX_RERUN        1000 /* names of stages in a command */

#define DRIVE_ROWS                                                                                 \
    LF_CMD_COMMON,                                                                                 \
        LF_OPT_ROW(.name = "set", .type = LF_OPT_STR, LF_OPT_COMMAND | LF_OPT_REPEAT,              \
                   .help = "section.key=value over the file, may be repeated; A,B,C is a sweep"),  \
        LF_OPT_ROW(.name = "accept", .type = LF_OPT_STR, LF_OPT_COMMAND | LF_OPT_REPEAT,           \
                   .help = "a changed setting that shall not restart its stage, may be repeated"), \
        LF_OPT_ROW(.name = "restart", .type = LF_OPT_BOOL, LF_OPT_COMMAND, .def = "no",            \
                   .help = "start unfinished stages over instead of from their checkpoints"),      \
        LF_OPT_ROW(.name = "jobs", .type = LF_OPT_INT, LF_OPT_COMMAND,                             \
                   .help = "stages at once; default: the pipeline's"),                             \
        LF_OPT_ROW(.name = "only", .type = LF_OPT_STR, LF_OPT_COMMAND | LF_OPT_REPEAT,             \
                   .help = "run this stage only, may be repeated"),                                \
        LF_OPT_ROW(.name = "until", .type = LF_OPT_STR, LF_OPT_COMMAND,                            \
                   .help = "run this stage and what it needs"),                                    \
        LF_OPT_ROW(.name = "from", .type = LF_OPT_STR, LF_OPT_COMMAND,                             \
                   .help = "run this stage and what needs it; what is done stays"),                \
        LF_OPT_ROW(.name = "check", .type = LF_OPT_BOOL, LF_OPT_COMMAND, .def = "yes",             \
                   .help = "start also what cannot fit in memory or on disk"),                     \
        LF_OPT_ROW(.name = "quiet", .type = LF_OPT_BOOL, LF_OPT_COMMAND, .def = "no",              \
                   .help = "say nothing but errors")

#define FORCE_ROW                                                                                  \
    LF_OPT_ROW(.name = "force", .type = LF_OPT_STR, LF_OPT_COMMAND | LF_OPT_REPEAT,                \
               .help = "make this stage and what needs it again, in a new run that takes over "    \
                       "the others; may be repeated")

static const lf_opt run_rows[] = {
    DRIVE_ROWS,
    FORCE_ROW,
    {.name = "dry_run",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "show what would run and what it costs, as plan does, and start nothing"},
    {.name = "new",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "a new run that takes over nothing"},
};
LF_CMD_TABLE(run, "run a pipeline on this machine, or continue it", run_rows);
static const lf_opt rerun_rows[] = {
    DRIVE_ROWS,
    {.name = "dry_run",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "show what would run and what it costs, and start nothing"},
    {.name = "pipeline",
     .type = LF_OPT_PATH,
     LF_OPT_COMMAND,
     .def = "pipeline.ini",
     .help = "pipeline file"},
};
LF_CMD_TABLE(rerun, "make stages again, and what needs them, in a new run (run --force)",
             rerun_rows);
static const lf_opt submit_rows[] = {
    DRIVE_ROWS,
    FORCE_ROW,
    LF_CMD_BATCH_ROWS,
    {.name = "new",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "a new run that takes over nothing"},
};
LF_CMD_TABLE(submit,
             "hand a pipeline to its scheduler, all stages at once (local: the same as run)",
             submit_rows);
static const lf_opt resume_rows[] = {
    DRIVE_ROWS,
    LF_CMD_BATCH_ROWS,
    {.name = "local",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "on this machine, whatever the scheduler of the pipeline"},
    {.name = "pipeline",
     .type = LF_OPT_PATH,
     LF_OPT_COMMAND,
     .help = "the edited pipeline file; default: the run's own"},
};
LF_CMD_TABLE(resume, "continue a run: only what is missing, from the last thing saved",
             resume_rows);

/* How long a stage will take: where jobs are pre-submitted it decides how many, and on a terminal
 * it is part of the time left. */
static void set_estimate(lf_prep *p, lf_doc_stage *st)
{
    const lf_submitter *sub = NULL;
    if (lf_submitter_find(&sub, p->plan->scheduler, NULL) < 0)
        return;
    const bool links = lf_chain_by_links(&st->resources, &p->plan->site, sub->can);
    if (!links && !lf_bar_terminal())
        return;
    double s = lf_chain_estimate_s(&st->plan, lf_cost_rate(p, st->kind, NULL));
    if (s <= 0 && !links) /* too rough a guess to ask for jobs by it */
        s = lf_cost_stored_seconds(p, st);
    if (s > 0)
        st->estimate_s = lf_real_of(s);
}

/* Keep the answers with the stages: the run remembers what it was expected to cost, which later
 * gives rates. */
static int check_costs(const lf_cmd *c, lf_prep *p, lf_err *err)
{
    const bool refuse = lf_optset_bool(c->opts, "check");
    lf_cost_rows costs;
    if (!c->json && !lf_optset_bool(c->opts, "quiet") && lf_bar_terminal())
        lf_cost_measure(p);
    int rc = lf_cost_ask(&costs, p, err);
    if (rc < 0)
        return rc;
    rc = lf_cost_refuse(&costs, c->def->table->stage, err);
    for (size_t i = 0; rc == 0 && i < costs.n; i++) {
        lf_doc_stage *st = lf_doc_find(p->plan, costs.v[i].stage->name);
        if (!costs.v[i].cost.given)
            continue;
        lf_cost_fini(&st->plan);
        rc = lf_cost_copy(&st->plan, &costs.v[i].cost, err);
        set_estimate(p, st);
    }
    if (rc == 0 && refuse)
        rc = lf_cost_check(p, &costs, err);
    if (rc == 0 && refuse) {
        lf_sweep_sum sum;
        lf_sweep_add_up(&sum, p, &costs, 0);
        rc = lf_sweep_check(&sum, p, err);
    }
    lf_cost_rows_fini(&costs);
    return rc;
}

/* What is named is looked for also where nothing is left to do. */
static int force_named(const lf_cmd *c, lf_prep *p, lf_err *err)
{
    lf_select s = {.until = lf_optset_str(c->opts, "until"),
                   .from = lf_optset_str(c->opts, "from")};
    bool *named = lf_calloc(p->view.n + 1, sizeof *named, err);
    const char **only = named != NULL ? lf_cmd_list(c, "only", &s.n_only, err) : NULL;
    s.only = only;
    int rc = only == NULL ? LF_ENOMEM : lf_select_stages(named, &p->view, &s, err);
    if (rc == 0)
        lf_select_force(&p->view, &s);
    free(only);
    free(named);
    return rc;
}

static bool all_done(lf_prep *p)
{
    lf_view_mark_needed(&p->view, NULL);
    for (size_t i = 0; i < p->view.n; i++)
        if (!lf_stage_finished(&p->view.stages[i]))
            return false;
    return true;
}

static bool has_purged(const lf_prep *p)
{
    for (size_t i = 0; i < p->view.n; i++)
        if (p->view.stages[i].state == LF_STATE_PURGED)
            return true;
    return false;
}

/* Are there results of other runs among the stages'? */
static bool takes_over(const lf_prep *p)
{
    for (size_t i = 0; i < p->view.n; i++)
        if (p->view.stages[i].result == NULL)
            return true;
    return false;
}

/* How a run ended. */
struct ended_stage {
    const char *name, *state, *reason;
};
static const struct lf_fields stage_fields =
    LF_FIELDS(struct ended_stage, LF_MEMBERS(struct ended_stage, name, state, reason));
struct ended {
    const char *run, *dir;
    int exit;
    LF_ROWS(struct ended_stage) stages;
};
static const struct lf_fields ended_fields =
    LF_FIELDS(struct ended, LF_MEMBERS(struct ended, run, dir, exit),
              LF_LIST(struct ended, stages, stage_fields));

static int print_summary(const lf_run_view *v, int code, lf_err *err)
{
    struct ended e = {.run = v->run.id, .dir = v->run.dir, .exit = code};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < v->n; i++) {
        const lf_stage_view *s = &v->stages[i];
        struct ended_stage *row = lf_rows_add(&e.stages, sizeof *row, err);
        if (row == NULL)
            rc = LF_ENOMEM;
        else
            *row = (struct ended_stage){s->plan->name, lf_state_name(s->state), s->reason};
    }
    if (rc == 0)
        rc = lf_cmd_print(&e, &ended_fields, err);
    free(e.stages.v);
    return rc;
}

/* What a person must change before the stage can end in another way; nothing where trying again may
 * help, or nobody knows the place. */
static void add_remedy(lf_buf *out, const lf_prep *p, const lf_stage_view *s)
{
    const lf_start *last = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
    if (s->state != LF_STATE_FAILED || last == NULL ||
        !lf_policy_of(lf_inc_class(last))->same_again)
        return;
    lf_buf text, path;
    lf_buf_init(&text);
    lf_buf_init(&path);
    lf_buf_addf(&path, "%s/config.ini", last->dir);
    lf_io_read_file(path.data, CONFIG_MAX_BYTES, &text, NULL); /* without it the words decide */
    const lf_complaint c = {.pipeline = p->has_pipeline ? &p->pipeline : NULL,
                            .stage = s->plan,
                            .config = path.data,
                            .config_text = text.data,
                            .text = s->reason};
    lf_buf_adds(out, out->len > 0 ? ", " : "");
    if (p->has_pipeline && strcmp(lf_inc_class(last), "bad_input") != 0)
        lf_complaint_place(out, &c);
    else
        lf_buf_addf(out, "what stage %s names", s->plan->name);
    lf_buf_fini(&text);
    lf_buf_fini(&path);
}

/* The settings of this command, which a resume reads from the file unless they are said again. */
static void add_sets(lf_buf *out, const lf_cmd *c)
{
    for (size_t i = 0; i < lf_optset_count(c->opts, "set"); i++) {
        const char *set = lf_optset_str_at(c->opts, "set", i);
        const bool plain = strspn(set, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789_.,:=/+-@") == strlen(set);
        lf_buf_adds(out, plain ? " --set " : " --set '");
        for (const char *s = set; *s != '\0'; s++)
            if (*s == '\'')
                lf_buf_adds(out, "'\\''");
            else
                lf_buf_addf(out, "%c", *s);
        lf_buf_adds(out, plain ? "" : "'");
    }
}

static void say_incomplete(const lf_cmd *c, const lf_prep *p, const lf_run_view *v)
{
    lf_buf b, sets;
    lf_buf_init(&b);
    lf_buf_init(&sets);
    add_sets(&sets, c);
    if (lf_buf_check(&sets, NULL) < 0)
        lf_buf_clear(&sets);
    for (size_t i = 0; i < v->n; i++)
        add_remedy(&b, p, &v->stages[i]);
    if (b.len > 0)
        lf_say(
            "run %s is not complete, and trying again would end in the same way: change %s, then "
            "`loong-flow resume`\n",
            lf_run_label(&v->run), b.data);
    else
        lf_say("run %s is not complete; `loong-flow resume%s` continues it\n",
               lf_run_label(&v->run), sets.len > 0 ? sets.data : "");
    lf_buf_fini(&b);
    lf_buf_fini(&sets);
}

/* What was asked for is done, which need not be all (--until, --only). */
static void say_done(const lf_run_view *v)
{
    lf_buf left;
    lf_buf_init(&left);
    for (size_t i = 0; i < v->n; i++)
        if (!lf_stage_finished(&v->stages[i]))
            lf_buf_addf(&left, "%s%s", left.len > 0 ? ", " : "", v->stages[i].plan->name);
    if (left.len > 0)
        lf_say(
            "run %s: what was asked for is done; not run yet: %s (`loong-flow resume`); results: "
            "%s\n",
            lf_run_label(&v->run), left.data, v->run.dir);
    else
        lf_say("run %s is done; results: %s\n", lf_run_label(&v->run), v->run.dir);
    lf_buf_fini(&left);
}

static int finish(const lf_cmd *c, lf_prep *p, int code, lf_err *err)
{
    lf_run_view v;
    int rc = lf_view_load_copy(&v, &p->view.run, err);
    if (rc < 0)
        return rc;
    if (c->json) {
        rc = print_summary(&v, code, err);
    } else if (!lf_optset_bool(c->opts, "quiet")) {
        if (code == 0)
            say_done(&v);
        else
            say_incomplete(c, p, &v);
    }
    if (rc == 0)
        lf_report_at_end(&p->project, &v, c->json || lf_optset_bool(c->opts, "quiet"));
    lf_view_fini(&v);
    return rc < 0 ? rc : code;
}

static bool wants_dry_run(const lf_cmd *c)
{
    return lf_optset_bool(c->opts, "dry_run");
}

/* run is for this machine, whatever the pipeline says; the others go where it says. */
static int find_submitter(const lf_submitter **out, const lf_cmd *c, const lf_prep *p, lf_err *err)
{
    const char *cmd = c->def->table->stage;
    bool here = strcmp(cmd, "run") == 0 || strcmp(cmd, "rerun") == 0 ||
                (strcmp(cmd, "resume") == 0 && lf_optset_bool(c->opts, "local"));
    int rc = lf_place_submitter(out, p, err);
    if (rc < 0 || !here)
        return rc;
    *out = &lf_submitter_local;
    for (size_t i = 0; i < p->view.n; i++) {
        const lf_doc_stage *st = p->view.stages[i].plan;
        if (st->resources.nodes.v > 1)
            return lf_fail(err, LF_EINVAL,
                           "stage %s asks for %d nodes; this machine is one (submit hands it to "
                           "its scheduler)",
                           st->name, (int)st->resources.nodes.v);
    }
    return 0;
}

/* A stage that a scheduler has in its hands is not started here too. */
static int check_no_jobs(lf_prep *p, lf_err *err)
{
    int rc = p->has_run ? lf_sched_overlay(&p->view, true, err) : 0;
    for (size_t i = 0; rc == 0 && i < p->view.n; i++) {
        const lf_stage_view *s = &p->view.stages[i];
        if (s->live && s->state != LF_STATE_DONE)
            rc = lf_fail(err, LF_EBUSY, "stage %s is with a scheduler: %s; cancel it first",
                         s->plan->name, s->reason);
    }
    return rc;
}

static int drive_here(const lf_cmd *c, lf_prep *p, const lf_submitter *sub, const lf_select *select,
                      const lf_texts *accepted, bool restart, lf_err *err)
{
    bool quiet = lf_optset_bool(c->opts, "quiet") || c->json;
    int jobs = lf_optset_is_set(c->opts, "jobs") ? (int)lf_optset_int(c->opts, "jobs")
                                                 : (int)p->plan->jobs.v;
    lf_console console = {
        .quiet = quiet, .live = !quiet && lf_bar_terminal(), .jobs = jobs > 0 ? jobs : 1};
    lf_drive d = {.project = &p->project,
                  .submitter = sub,
                  .accepted = accepted,
                  .fresh = restart,
                  .jobs = jobs > 0 ? jobs : 1,
                  .select = *select,
                  .say = lf_console_say,
                  .look = console.live ? lf_console_look : NULL,
                  .user = &console};
    char busy[256];
    int code = 1, rc = check_no_jobs(p, err);
    if (rc == 0 && lf_busy_machine(busy, sizeof busy))
        lf_console_say(&console, busy);
    if (rc == 0)
        rc = lf_drive_run(&d, &p->view.run, &code, err);
    if (rc == 0)
        lf_ended_tell(&(struct lf_ended){.project = &p->project,
                                         .run = &p->view.run,
                                         .select = select,
                                         .say = lf_console_say,
                                         .user = &console});
    lf_err e = LF_ERR_INIT;
    if (lf_sync(&p->project, p->view.run.data, p->view.run.id, &e) < 0 && rc == 0)
        lf_log(1, "the ledger was not updated: %s", e.text);
    return rc < 0 ? rc : finish(c, p, code, err);
}

static int start(const lf_cmd *c, lf_prep *p, const lf_submitter *sub, const lf_texts *accepted,
                 bool restart, lf_err *err)
{
    size_t n_only = 0;
    const char **only = lf_cmd_list(c, "only", &n_only, err);
    bool quiet = lf_optset_bool(c->opts, "quiet") || c->json,
         batch = (sub->can & LF_CAN_BATCH) != 0;
    lf_console console = {.quiet = quiet, .live = !quiet && lf_bar_terminal(), .jobs = INT_MAX};
    lf_select select = {.only = only,
                        .n_only = n_only,
                        .until = lf_optset_str(c->opts, "until"),
                        .from = lf_optset_str(c->opts, "from")};
    const lf_project here = {.root = p->pipeline.project}; /* a dry run makes no project */
    lf_batch b = {.project = p->has_project ? &p->project : &here,
                  .submitter = sub,
                  .accepted = accepted,
                  .fresh = restart,
                  .select = select,
                  .say = lf_console_say,
                  .look = console.live ? lf_console_look : NULL,
                  .user = &console};
    int rc = only == NULL ? LF_ENOMEM : 0;
    if (rc == 0 && wants_dry_run(c)) {
        rc = lf_cmd_batch_dry_run(c, p, &b, err);
        free(only);
        return rc;
    }
    if (rc == 0)
        rc = lf_prep_commit(p, err);
    if (rc == 0 && !quiet)
        lf_say("run %s  %s\n", lf_run_label(&p->view.run), p->view.run.id), fflush(stdout);
    if (rc == 0)
        rc = batch ? lf_cmd_batch_submit(c, p, &b, err)
                   : drive_here(c, p, sub, &select, accepted, restart, err);
    free(only);
    return rc;
}

/* Saved steps are not thrown away without a word: all stages that would lose some are named, and
 * the last of them is the error. */
static int ask_for_word(const lf_cmd *c, const lf_prep *p, const lf_select *select, lf_err *err)
{
    const lf_restart *last = NULL;
    lf_buf b;
    lf_buf_init(&b);
    bool *wanted = p->restarts.n > 0 ? lf_calloc(p->view.n + 1, sizeof *wanted, err) : NULL;
    int rc = p->restarts.n == 0 ? 0
             : wanted == NULL   ? LF_ENOMEM
                                : lf_select_stages(wanted, &p->view, select, err);
    for (size_t i = 0; rc == 0 && i < p->view.n; i++) {
        const char *name = p->view.stages[i].plan->name;
        const lf_restart *r =
            wanted != NULL && wanted[i] ? lf_restarts_of(&p->restarts, name) : NULL;
        if (r == NULL)
            continue;
        if (last != NULL)
            lf_say_err("loong-flow %s: %s\n", c->def->table->stage, b.data);
        lf_buf_clear(&b);
        lf_restart_word(&b, r);
        last = r;
    }
    if (rc == 0 && last != NULL)
        rc = lf_fail(err, LF_EINVAL, "%s", b.data);
    free(wanted);
    lf_buf_fini(&b);
    return rc;
}

static int check_word(const lf_cmd *c, const lf_prep *p, const lf_texts *accepted, bool restart,
                      lf_err *err)
{
    size_t n_only = 0;
    const char **only = lf_cmd_list(c, "only", &n_only, err);
    const lf_select select = {.only = only,
                              .n_only = n_only,
                              .until = lf_optset_str(c->opts, "until"),
                              .from = lf_optset_str(c->opts, "from")};
    int rc = only == NULL ? LF_ENOMEM : lf_prep_check_accepted(p, accepted, err);
    if (rc == 0 && !restart && !wants_dry_run(c))
        rc = ask_for_word(c, p, &select, err);
    free(only);
    return rc;
}

/* Without a scheduler there are no job scripts to show: what plan tells, of the stages that were
 * asked for. */
static int dry_run_here(const lf_cmd *c, lf_prep *p, const lf_texts *accepted, lf_err *err)
{
    size_t n_only = 0;
    const char **only = lf_cmd_list(c, "only", &n_only, err);
    bool *wanted = only != NULL ? lf_calloc(p->view.n + 1, sizeof *wanted, err) : NULL;
    const lf_select select = {.only = only,
                              .n_only = n_only,
                              .until = lf_optset_str(c->opts, "until"),
                              .from = lf_optset_str(c->opts, "from")};
    int rc = wanted == NULL ? LF_ENOMEM : lf_prep_check_accepted(p, accepted, err);
    if (rc == 0)
        rc = lf_select_stages(wanted, &p->view, &select, err);
    if (rc == 0)
        rc = lf_cmd_show_plan(c, p, &(lf_plan_ask){.measure = true, .wanted = wanted}, err);
    free(wanted);
    free(only);
    return rc;
}

static int drive(const lf_cmd *c, lf_prep *p, const lf_texts *accepted, bool restart, lf_err *err)
{
    const lf_submitter *sub = NULL;
    int rc = find_submitter(&sub, c, p, err);
    if (rc == 0 && wants_dry_run(c) && (sub->can & LF_CAN_BATCH) == 0)
        return dry_run_here(c, p, accepted, err);
    if (rc == 0 && !wants_dry_run(c))
        rc = lf_sync_probe(&p->project, err);
    if (rc == 0)
        rc = check_word(c, p, accepted, restart, err);
    if (rc == 0)
        rc = force_named(c, p, err);
    if (rc < 0)
        return rc;
    bool untidy = (sub->can & LF_CAN_BATCH) != 0 && lf_batch_untidy(&p->view);
    if (p->has_run && all_done(p) && !untidy && !wants_dry_run(c)) {
        rc = p->changed && takes_over(p) ? lf_prep_commit(p, err)
                                         : 0; /* gc must know what this run stands on */
        if (rc < 0)
            return rc;
        if (!c->json && !lf_optset_bool(c->opts, "quiet"))
            printf("nothing to do: %s (run %s)\n",
                   has_purged(p) ? "every result that is wanted is there; what was purged on the "
                                   "way is not needed"
                                 : "every stage is done",
                   lf_run_label(&p->view.run));
        return c->json ? finish(c, p, 0, err) : 0;
    }
    rc = check_costs(c, p, err);
    return rc < 0 ? rc : start(c, p, sub, accepted, restart, err);
}

static int accept_list(lf_texts *out, const lf_cmd *c, lf_err *err)
{
    int rc = 0;
    *out = (lf_texts){.given = true};
    for (size_t i = 0; rc == 0 && i < lf_optset_count(c->opts, "accept"); i++)
        rc = lf_texts_add(out, lf_optset_str_at(c->opts, "accept", i), err);
    return rc;
}

static int prepare_and_drive(lf_cmd *c, lf_prep_args *a, lf_err *err)
{
    lf_prep p;
    lf_texts accepted;
    const bool restart = lf_optset_bool(c->opts, "restart");
    int rc = accept_list(&accepted, c, err);
    const char **sets = lf_cmd_list(c, "set", &a->n_sets, err);
    a->sets = sets;
    a->tables = c->tables;
    a->accepted = &accepted;
    lf_log_init("loong-flow", 2);
    if (rc == 0)
        rc = sets == NULL ? LF_ENOMEM : lf_prep_make(&p, a, err);
    if (rc == 0) {
        rc = drive(c, &p, &accepted, restart, err);
        lf_prep_fini(&p);
    }
    free(sets);
    lf_texts_fini(&accepted);
    return rc;
}

static int run_run(lf_cmd *c, lf_err *err)
{
    lf_prep_args a = {.pipeline = lf_cmd_word(c, 0) != NULL ? lf_cmd_word(c, 0) : "pipeline.ini",
                      .create = !wants_dry_run(c),
                      .exe_missing_ok = wants_dry_run(c),
                      .fresh_run = lf_optset_bool(c->opts, "new")};
    const char **force = lf_cmd_list(c, "force", &a.n_force, err);
    if (force == NULL)
        return LF_ENOMEM;
    a.force = force;
    int rc = a.fresh_run && a.n_force > 0
                 ? lf_fail(err, LF_EINVAL, "--new makes all again; leave --force out")
                 : prepare_and_drive(c, &a, err);
    free(force);
    return rc;
}

static int run_rerun(lf_cmd *c, lf_err *err)
{
    lf_prep_args a = {.pipeline = lf_optset_str(c->opts, "pipeline"),
                      .create = !wants_dry_run(c),
                      .exe_missing_ok = wants_dry_run(c),
                      .force = (const char *const *)c->words,
                      .n_force = (size_t)c->n_words};
    if (c->n_words == 0)
        return lf_fail(err, LF_EINVAL, "which stage? loong-flow rerun STAGE...");
    return prepare_and_drive(c, &a, err);
}

static int run_resume(lf_cmd *c, lf_err *err)
{
    lf_prep_args a = {.pipeline = lf_optset_str(c->opts, "pipeline"),
                      .resume = true,
                      .run_word = lf_cmd_word(c, 0),
                      .project = lf_optset_str(c->opts, "project")};
    return prepare_and_drive(c, &a, err);
}

const lf_cmd_def lf_cmd_run = {
    .table = &run_table, .words = "[PIPELINE]", .max_words = 1, .run = run_run};
const lf_cmd_def lf_cmd_rerun = {
    .table = &rerun_table, .words = "STAGE...", .max_words = MAX_RERUN, .run = run_rerun};
const lf_cmd_def lf_cmd_submit = {
    .table = &submit_table, .words = "[PIPELINE]", .max_words = 1, .run = run_run};
const lf_cmd_def lf_cmd_resume = {
    .table = &resume_table, .words = "[RUN]", .max_words = 1, .run = run_resume};

/* ---- exec ---- */

static const lf_opt exec_rows[] = {
    LF_CMD_COMMON,
    {.name = "run_dir",
     .type = LF_OPT_PATH,
     LF_OPT_COMMAND | LF_OPT_REQUIRED,
     .help = "directory of the run"},
    {.name = "stage", .type = LF_OPT_STR, LF_OPT_COMMAND | LF_OPT_REQUIRED, .help = "stage to run"},
    {.name = "attempt",
     .type = LF_OPT_INT,
     LF_OPT_COMMAND | LF_OPT_REQUIRED,
     .help = "number of the attempt"},
    {.name = "token",
     .type = LF_OPT_STR,
     LF_OPT_COMMAND | LF_OPT_REQUIRED,
     .help = "the attempt's token"},
};
LF_CMD_TABLE(exec, "run one stage inside a job (jobs call this)", exec_rows);

static int run_exec(lf_cmd *c, lf_err *err)
{
    if (lf_optset_str(c->opts, "project") == NULL)
        return lf_fail(err, LF_EINVAL, "--project is missing");
    lf_exec_args a = {.run_dir = lf_optset_str(c->opts, "run_dir"),
                      .stage = lf_optset_str(c->opts, "stage"),
                      .attempt = (int)lf_optset_int(c->opts, "attempt"),
                      .token = lf_optset_str(c->opts, "token"),
                      .project = lf_optset_str(c->opts, "project")};
    int code = lf_exec_main(&a, err);
    if (err->rc != 0)
        fprintf(stderr, "loong-flow exec: %s\n", err->text);
    return code;
}

const lf_cmd_def lf_cmd_exec = {
    .table = &exec_table, .words = "", .max_words = 0, .hidden = true, .run = run_exec};
