/* SPDX-License-Identifier: Apache-2.0
 *
 * cancel: no driver starts anything more; a cancel record for each attempt that has not ended (later stages first), then SIGTERM to what runs; waits until
 * it is gone. The record is what makes the end of a stage "cancelled"; a cancel that is killed halfway is repeated.
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/base/io.h"
#include "engine/base/sys.h"
#include "flow/cmds.h"
#include "flow/describe.h"
#include "flow/drive.h"
#include "flow/record.h"
#include "flow/who.h"

static const lf_opt cancel_rows[] = {
    LF_CMD_COMMON,
    LF_CMD_ROW("stage", LF_OPT_STR, LF_OPT_REPEAT, NULL, NULL, "only this stage, may be repeated"),
    LF_CMD_ROW("now", LF_OPT_BOOL, 0, "no", NULL, "do not wait for a checkpoint"),
    LF_CMD_ROW("wait", LF_OPT_DURATION, 0, "130", NULL, "how long to wait for the end"),
};
LF_CMD_TABLE(cancel, "stop a run; what was saved stays and resume continues it", cancel_rows);

static bool selected(const lf_cmd *c, const lf_stage_view *s)
{
    size_t n = lf_optset_count(c->opts, "stage");
    for (size_t i = 0; i < n; i++)
        if (strcmp(lf_optset_str_at(c->opts, "stage", i), json_string_value(json_object_get(s->stage, "name"))) == 0)
            return true;
    return n == 0;
}

/* 1: the record is new, 0: it was there. */
static int mark(const lf_run *run, const lf_stage_view *s, lf_err *err)
{
    char name[64], user[128];
    lf_record_user(user, sizeof user);
    snprintf(name, sizeof name, "cancel.%d", (int)s->n_attempts);
    json_t *o = json_pack("{s:i, s:s, s:f}", "lf_cancel", 1, "by", user, "t", lf_wall_s());
    lf_err e = LF_ERR_INIT;
    int rc = o != NULL ? lf_record_publish(s->dir, name, o, &e) : LF_ENOMEM;
    json_decref(o);
    if (rc == LF_EEXIST)
        return 0;
    if (rc < 0)
        return lf_fail(err, rc, "%s", e.text);
    rc = lf_record_event(s->dir, run->id, json_string_value(json_object_get(s->stage, "name")), (int)s->n_attempts, 0,
                         "cancel", json_pack("{s:s}", "by", user), err);
    return rc < 0 ? rc : 1;
}

static void stop(const lf_stage_view *s, bool now)
{
    const lf_incarnation *last = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
    if (last == NULL)
        return;
    if (now && last->started != NULL)
        lf_who_kill(json_object_get(last->started, "process"), SIGKILL, 1, NULL);
    if (lf_who_kill(json_object_get(last->claim, "process"), SIGTERM, 0, NULL) == LF_ENOENT && last->started != NULL)
        lf_who_kill(json_object_get(last->started, "process"), SIGTERM, 0, NULL); /* its wrapper is gone */
}

static int count_running(const lf_cmd *c, lf_run_view *v)
{
    int n = 0;
    for (size_t i = 0; i < v->n; i++)
        n += selected(c, &v->stages[i]) && v->stages[i].state == LF_STATE_RUNNING;
    return n;
}

/* The driver of the whole run starts nothing more. It looks before each start, so after a moment the stages that run are
 * all there will be. */
static int stop_driver(const lf_cmd *c, const lf_project *p, lf_err *err)
{
    if (lf_optset_count(c->opts, "stage") > 0)
        return 0;
    lf_run run;
    memset(&run, 0, sizeof run);
    char path[PATH_MAX];
    int rc = lf_run_find(&run, p, lf_cmd_word(c, 0), err);
    if (rc == 0)
        rc = lf_path_set(path, err, "%s/" LF_RUN_CANCEL, run.dir);
    if (rc == 0)
        rc = lf_io_replace(path, "", 0, 0640, err);
    lf_run_fini(&run);
    const struct timespec moment = {0, 500 * 1000 * 1000};
    if (rc == 0)
        nanosleep(&moment, NULL);
    return rc;
}

/* first: attempts that never began are marked too, and a process whose cancel record was there already is asked again. */
static int cancel_once(lf_cmd *c, lf_run_view *v, bool first, lf_err *err)
{
    int rc = 0;
    for (size_t i = v->n; rc >= 0 && i-- > 0;) {
        lf_stage_view *s = &v->stages[i];
        if (!selected(c, s) || s->n_attempts == 0 ||
            (s->state != LF_STATE_RUNNING && (s->state != LF_STATE_PENDING || !first)))
            continue;
        rc = mark(&v->run, s, err);
        if (rc > 0 || (rc == 0 && first && s->state == LF_STATE_RUNNING))
            stop(s, lf_optset_bool(c->opts, "now"));
    }
    return rc < 0 ? rc : 0;
}

static int cancel_run(lf_cmd *c, const lf_project *p, lf_err *err)
{
    double end = lf_now_s() + (double)lf_optset_int(c->opts, "wait");
    int stop_rc = stop_driver(c, p, err);
    if (stop_rc < 0)
        return stop_rc;
    for (bool first = true;; first = false) {
        lf_run_view v;
        int rc = lf_view_find(&v, p, lf_cmd_word(c, 0), err);
        if (rc < 0)
            return rc;
        rc = cancel_once(c, &v, first, err);
        int running = count_running(c, &v);
        if (rc == 0 && running == 0) {
            lf_sync(p, v.run.data, v.run.id, NULL);
            if (c->json)
                rc = lf_cmd_print_json(lf_describe_run(&v), err);
            else
                printf("run %s: nothing of it runs any more\n", v.run.id);
        }
        lf_view_fini(&v);
        if (rc < 0 || running == 0)
            return rc;
        if (lf_now_s() > end)
            return lf_fail(err, LF_EBUSY, "%d stage%s still running; they were asked to stop", running, running == 1 ? "" : "s");
        const struct timespec ts = {0, 200 * 1000 * 1000};
        nanosleep(&ts, NULL);
    }
}

static int run_cancel(lf_cmd *c, lf_err *err)
{
    lf_project p;
    int rc = lf_cmd_project(&p, c, err);
    if (rc < 0)
        return rc;
    rc = cancel_run(c, &p, err);
    lf_project_fini(&p);
    return rc;
}

const lf_cmd_def lf_cmd_cancel = {.table = &cancel_table, .words = "[RUN]", .max_words = 1, .run = run_cancel};
