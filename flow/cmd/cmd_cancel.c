/* SPDX-License-Identifier: Apache-2.0
 *
 * cancel: no driver starts anything more; a cancel record for each attempt that has not ended
 * (later stages first); jobs of a scheduler are ended by it, those that wait before those that run,
 * processes of this machine get SIGTERM; waits until all is gone. The record is what makes the end
 * of a stage "cancelled", and what keeps a wrapper from going on; a cancel that is killed halfway
 * is repeated by the next.
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/cmd/cmds.h"
#include "flow/record/event.h"
#include "flow/record/record.h"
#include "flow/run/select.h"
#include "flow/run/sync.h"
#include "flow/run/who.h"
#include "flow/sched/batch.h"
#include "flow/sched/describe.h"
#include "flow/sched/drive.h"
#include "flow/sched/ended.h"
#include "flow/sched/sched.h"

static const lf_opt cancel_rows[] = {
    LF_CMD_COMMON,
    {.name = "stage",
     .type = LF_OPT_STR,
     LF_OPT_COMMAND | LF_OPT_REPEAT,
     .help = "only this stage, may be repeated"},
    {.name = "after",
     .type = LF_OPT_STR,
     LF_OPT_COMMAND,
     .help = "only what comes behind this stage"},
    {.name = "now",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "do not wait for a checkpoint"},
    {.name = "wait",
     .type = LF_OPT_DURATION,
     LF_OPT_COMMAND,
     .def = "130",
     .help = "how long to wait for the end; jobs of a scheduler: for their checkpoint"},
};
LF_CMD_TABLE(cancel, "stop a run; what was saved stays and resume continues it", cancel_rows);

/* Names are those of the run as it was when the command began: stages do not change. */
static int select_stages(bool *out, const lf_cmd *c, const lf_run_view *v, lf_err *err)
{
    size_t n = lf_optset_count(c->opts, "stage");
    const char *after = lf_optset_str(c->opts, "after");
    int rc = 0;
    for (size_t i = 0; i < v->n; i++)
        out[i] = n == 0 && after == NULL;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = lf_select_named(out, v, lf_optset_str_at(c->opts, "stage", i), err);
    return rc == 0 && after != NULL ? lf_select_after(out, v, after, err) : rc;
}

static bool whole_run(const lf_cmd *c)
{
    return lf_optset_count(c->opts, "stage") == 0 && lf_optset_str(c->opts, "after") == NULL;
}

/* 1: the record is new, 0: it was there. */
static int mark(const lf_run *run, const lf_stage_view *s, lf_err *err)
{
    char user[128];
    lf_record_user(user, sizeof user);
    const struct lf_cancel_rec c = {.by = user, .t = lf_wall_s()};
    lf_err e = LF_ERR_INIT;
    int rc = lf_cancel_rec_publish(s->dir, (int)s->n_attempts, &c, &e);
    if (rc == LF_EEXIST)
        return 0;
    if (rc < 0)
        return lf_fail(err, rc, "%s", e.text);
    const lf_origin from = {
        .dir = s->dir, .run = run->id, .stage = s->plan->name, .attempt = (int)s->n_attempts};
    rc = lf_event_cancel(&from, user, err);
    return rc < 0 ? rc : 1;
}

static void stop(const lf_stage_view *s, bool now)
{
    const lf_start *last = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
    if (last == NULL)
        return;
    if (now && last->started != NULL)
        lf_who_kill(&last->started->process, SIGKILL, 1, NULL);
    if (last->claim != NULL && lf_who_kill(&last->claim->process, SIGTERM, 0, NULL) == LF_ENOENT &&
        last->started != NULL)
        lf_who_kill(&last->started->process, SIGTERM, 0, NULL); /* its wrapper is gone */
}

static int count_running(const bool *chosen, lf_run_view *v)
{
    int n = 0;
    for (size_t i = 0; i < v->n; i++)
        n += chosen[i] && v->stages[i].state == LF_STATE_RUNNING &&
             !lf_attempt_is_batch(&v->stages[i]);
    return n;
}

static bool all_finished(lf_run_view *v)
{
    bool all = true;
    lf_view_mark_needed(v, NULL);
    for (size_t i = 0; i < v->n && all; i++)
        all = lf_stage_finished(&v->stages[i]) && v->stages[i].state != LF_STATE_PURGED;
    return all;
}

/* The driver of the whole run starts nothing more. It looks before each start, so after a moment
 * the stages that run are all there will be. Of a run that is done there is nothing to start, and
 * nothing is written: its project may be one that can only be read. */
static int stop_driver(const lf_cmd *c, const lf_project *p, lf_err *err)
{
    if (!whole_run(c))
        return 0;
    lf_run_view v;
    char path[PATH_MAX];
    int rc = lf_view_find(&v, p, lf_cmd_word(c, 0), err);
    if (rc < 0)
        return rc;
    const bool done = all_finished(&v);
    if (!done)
        rc = lf_path_set(path, err, "%s/" LF_RUN_CANCEL, v.run.dir);
    if (rc == 0 && !done)
        rc = lf_io_replace(path, "", 0, 0640, err);
    lf_view_fini(&v);
    const struct timespec moment = {0, 500 * 1000 * 1000};
    if (rc == 0 && !done)
        nanosleep(&moment, NULL);
    return rc;
}

/* The stage looks for this file as well as for signals: it works where no signal reaches it, and
 * while no scheduler answers. */
static void ask_by_file(const lf_stage_view *s)
{
    const lf_start *last = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
    char path[PATH_MAX];
    if (last != NULL && last->end == NULL && lf_path_set(path, NULL, "%s/stop", last->dir) == 0)
        lf_io_replace(path, "", 0, 0640, NULL);
}

/* An attempt of a scheduler that has not ended is marked whatever the scheduler says: it may not
 * answer. */
static bool to_be_marked(const lf_stage_view *s, bool first)
{
    if (s->n_attempts == 0)
        return false;
    if (lf_attempt_is_batch(s))
        return first && (s->live || s->state == LF_STATE_RUNNING || s->state == LF_STATE_PENDING ||
                         s->state == LF_STATE_UNKNOWN || s->state == LF_STATE_WAITING);
    return s->state == LF_STATE_RUNNING || (s->state == LF_STATE_PENDING && first);
}

/* first: attempts that never began are marked too, and a process whose cancel record was there
 * already is asked again. */
static int cancel_once(lf_cmd *c, const bool *chosen, lf_run_view *v, bool first, lf_err *err)
{
    int rc = 0;
    for (size_t i = v->n; rc >= 0 && i-- > 0;) {
        lf_stage_view *s = &v->stages[i];
        if (!chosen[i] || !to_be_marked(s, first))
            continue;
        rc = mark(&v->run, s, err);
        if (rc >= 0 && lf_attempt_is_batch(s))
            ask_by_file(s);
        if (!lf_attempt_is_batch(s) &&
            (rc > 0 || (rc == 0 && first && s->state == LF_STATE_RUNNING)))
            stop(s, lf_optset_bool(c->opts, "now"));
    }
    return rc < 0 ? rc : 0;
}

static void say(void *user, const char *text)
{
    (void)user;
    lf_print_safe(text);
    putchar('\n');
    fflush(stdout);
}

/* Jobs of a scheduler; 1: it does not answer, the exit code is set. */
static int cancel_jobs(lf_cmd *c, const bool *chosen, const lf_run_view *v, lf_err *err)
{
    const lf_submitter *sub = NULL;
    const char *backend = lf_sched_backend(v);
    int rc = backend == NULL ? 0 : lf_submitter_find(&sub, backend, err);
    if (rc < 0 || sub == NULL)
        return rc;
    lf_batch_cancel b = {
        .submitter = sub,
        .selected = chosen,
        .now = lf_optset_bool(c->opts, "now"),
        .wait_s = lf_optset_is_set(c->opts, "wait") ? (double)lf_optset_int(c->opts, "wait") : 0,
        .say = c->json ? NULL : say};
    lf_err e = LF_ERR_INIT;
    rc = lf_batch_cancel_jobs(&b, &v->run, &e);
    if (rc == LF_ECOMM) {
        lf_log(0, "%s; the cancellation is noted, cancel again when it answers", e.text);
        return LF_FLOW_UNREACHABLE;
    }
    return rc < 0 ? lf_fail(err, rc, "%s", e.text) : 0;
}

static int say_gone(lf_cmd *c, const lf_project *p, lf_run_view *v, lf_err *err)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < v->n; i++)
        if (lf_attempt_is_batch(&v->stages[i])) { /* as it is now, without its jobs */
            int rc = lf_view_reload(v, i, err);
            if (rc < 0)
                return rc;
        }
    int rc = lf_sched_overlay(v, false, err);
    if (rc < 0)
        return rc;
    if (whole_run(c) && lf_path_set(path, NULL, "%s/" LF_RUN_WANT, v->run.dir) == 0)
        unlink(path);
    lf_sync(p, v->run.data, v->run.id, NULL);
    rc = c->json ? lf_cmd_print_run(v, err) : 0;
    if (rc == 0 && !c->json)
        lf_say("run %s: nothing of it runs any more\n", lf_run_label(&v->run));
    fflush(stdout);
    if (rc == 0 && whole_run(c)) /* jobs may be ending yet: then tick tells it */
        lf_ended_tell(&(struct lf_ended){.project = p,
                                         .run = &v->run,
                                         .select = &(lf_select){.n_only = 0},
                                         .say = c->json ? NULL : say});
    return rc;
}

/* One round. *running: processes of this machine that still live. */
static int round_of(lf_cmd *c, const lf_project *p, bool first, int *running, lf_err *err)
{
    lf_run_view v;
    int rc = lf_view_find(&v, p, lf_cmd_word(c, 0), err);
    if (rc < 0)
        return rc;
    bool *chosen = lf_calloc(v.n + 1, sizeof *chosen, err);
    rc = chosen == NULL ? LF_ENOMEM : select_stages(chosen, c, &v, err);
    if (rc == 0)
        rc = cancel_once(c, chosen, &v, first, err);
    if (rc == 0 && first)
        rc = cancel_jobs(c, chosen, &v, err);
    *running = rc == 0 ? count_running(chosen, &v) : 0;
    if (rc == 0 && *running == 0)
        rc = say_gone(c, p, &v, err);
    free(chosen);
    lf_view_fini(&v);
    return rc;
}

static int cancel_run(lf_cmd *c, const lf_project *p, lf_err *err)
{
    double end = lf_now_s() + (double)lf_optset_int(c->opts, "wait");
    int rc = stop_driver(c, p, err);
    for (bool first = true; rc == 0; first = false) {
        int running = 0;
        rc = round_of(c, p, first, &running, err);
        if (rc != 0 || running == 0)
            break;
        if (lf_now_s() > end)
            return lf_fail(err, LF_EBUSY, "%d stage%s still running; they were asked to stop",
                           running, running == 1 ? "" : "s");
        const struct timespec ts = {0, 200 * 1000 * 1000};
        nanosleep(&ts, NULL);
    }
    return rc;
}

static int run_cancel(lf_cmd *c, lf_err *err)
{
    lf_project p;
    lf_log_init("loong-flow", 2);
    int rc = lf_cmd_project(&p, c, err);
    if (rc < 0)
        return rc;
    rc = cancel_run(c, &p, err);
    lf_project_fini(&p);
    return rc;
}

const lf_cmd_def lf_cmd_cancel = {
    .table = &cancel_table, .words = "[RUN]", .max_words = 1, .run = run_cancel};
