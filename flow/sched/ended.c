/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands at the end of a run: see ended.h.
 */
#include "config.h"

#include "flow/sched/ended.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/record/event.h"
#include "flow/record/record.h"
#include "flow/sched/sched.h"

static void note(const struct lf_ended *e, const char *key, const char *what, const char *why)
{
    char text[1400];
    if (e->say == NULL)
        return;
    snprintf(text, sizeof text, "note: %s %s%s%s", key, what, why[0] != '\0' ? ": " : "", why);
    e->say(e->user, text);
}

/* ---- has it ended? ---- */

/* What weighs more than what, from the lightest. */
enum end { DONE, STOPPED, CANCELLED, FAILED, GOES_ON };
static const char *const end_names[] = {"done", "stopped", "cancelled", "failed"};

static enum end end_of(const lf_stage_view *s)
{
    if (s->live || s->state == LF_STATE_RUNNING || s->state == LF_STATE_UNKNOWN)
        return GOES_ON;
    if (lf_stage_finished(s))
        return DONE;
    return s->state == LF_STATE_FAILED      ? FAILED
           : s->state == LF_STATE_CANCELLED ? CANCELLED
                                            : STOPPED;
}

/* reason: of the first stage that decides. */
static enum end judge(const lf_run_view *v, const bool *selected, char *reason, size_t cap)
{
    enum end all = DONE;
    reason[0] = '\0';
    for (size_t i = 0; i < v->n; i++) {
        const lf_stage_view *s = &v->stages[i];
        const enum end one = selected[i] ? end_of(s) : DONE;
        if (one <= all)
            continue;
        all = one;
        snprintf(reason, cap, "%s: %s", s->plan->name,
                 s->reason[0] != '\0' ? s->reason : lf_state_name(s->state));
    }
    return all;
}

static int look(const struct lf_ended *e, lf_run_view *v, char *reason, size_t cap, lf_err *err)
{
    enum end end = GOES_ON;
    bool *selected = lf_calloc(v->n + 1, sizeof *selected, err);
    int rc = selected == NULL ? LF_ENOMEM : lf_select_stages(selected, v, e->select, err);
    if (rc == 0)
        rc = lf_sched_overlay(v, false, err);
    if (rc == 0) {
        lf_view_mark_needed(v, selected);
        end = judge(v, selected, reason, cap);
    }
    free(selected);
    return rc < 0 ? rc : (int)end;
}

/* ---- one command ---- */

enum { VARIABLES = 6 };

/* NAME=value each, owned; the end is NULL. */
static int environment(char **env, const struct lf_ended *e, const struct lf_ended_rec *rec,
                       lf_err *err)
{
    const char *path = getenv("PATH"), *home = getenv("HOME");
    const struct {
        const char *name, *value;
    } v[VARIABLES] = {{"PATH", path != NULL ? path : "/usr/bin:/bin"},
                      {"HOME", home != NULL ? home : "/"},
                      {"LF_RUN", e->run->id},
                      {"LF_NAME", e->run->plan->name},
                      {"LF_STATE", rec->state},
                      {"LF_REASON", rec->reason}};
    for (size_t i = 0; i < VARIABLES; i++) {
        lf_buf b;
        lf_buf_init(&b);
        lf_buf_addf(&b, "%s=%s", v[i].name, v[i].value);
        env[i] = lf_buf_steal(&b, err);
        lf_buf_fini(&b);
        if (env[i] == NULL)
            return LF_ENOMEM;
    }
    return 0;
}

/* What it said, below a line that says what it was. */
static int keep_output(const struct lf_ended *e, const char *key, const lf_sched_out *o,
                       lf_err *err)
{
    char path[PATH_MAX], when[21];
    lf_buf b;
    int rc = lf_path_set(path, err, "%s/ended.log", e->run->dir);
    if (rc < 0)
        return rc;
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0)
        return lf_fail_errno(err, "cannot open %s", path);
    lf_buf_init(&b);
    lf_buf_addf(&b, "-- %s %s: exit %d%s\n", lf_time_iso(when, lf_wall_s()), key, o->exit,
                o->timed_out ? ", ended at its time limit" : "");
    lf_buf_add(&b, o->out.data, o->out.len);
    lf_buf_add(&b, o->err.data, o->err.len);
    rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_io_write_all(fd, b.data, b.len, path, err);
    lf_buf_fini(&b);
    close(fd);
    return rc;
}

static int run_command(const struct lf_ended *e, const char *key, const char *command,
                       const struct lf_ended_rec *rec, lf_err *err)
{
    static char sh[] = "/bin/sh", c[] = "-c", in_project[] = "cd \"$1\" && eval \"$2\"";
    char *env[VARIABLES + 1] = {NULL}, *root = lf_strdup(e->project->root, err),
                          *line = lf_strdup(command, err);
    char *words[] = {sh, c, in_project, sh, root, line, NULL};
    const lf_origin from = {.dir = e->run->dir, .run = e->run->id};
    lf_sched_out o;
    int rc = root == NULL || line == NULL ? LF_ENOMEM : environment(env, e, rec, err);
    if (rc == 0)
        rc = lf_command_run(&o, words, env, (double)e->run->plan->on_time_limit_s.v, err);
    if (rc == 0) {
        if (o.timed_out)
            note(e, key, "was ended at its time limit (on_time_limit)", "");
        else if (o.exit != 0)
            note(e, key, "failed; what it said is in ended.log of the run's directory", "");
        lf_err kept = LF_ERR_INIT;
        if (keep_output(e, key, &o, &kept) < 0)
            note(e, key, "left no log", kept.text);
        rc = lf_event_run_end(&from, rec, key, o.timed_out ? -1 : o.exit, err);
        lf_sched_out_fini(&o);
    }
    for (size_t i = 0; i < VARIABLES; i++)
        free(env[i]);
    free(root);
    free(line);
    return rc;
}

/* ---- the end ---- */

static int claim(const struct lf_ended *e, const lf_run_view *v, const struct lf_ended_rec *rec,
                 lf_err *err)
{
    char name[80];
    size_t attempts = 0, starts = 0;
    for (size_t i = 0; i < v->n; i++) {
        attempts += v->stages[i].n_attempts;
        starts += v->stages[i].n_incs;
    }
    snprintf(name, sizeof name, "ended.%zu.%zu.json", attempts, starts);
    return lf_ended_rec_publish(e->run->dir, name, rec, err);
}

static void tell(const struct lf_ended *e, const char *key, const char *command,
                 const struct lf_ended_rec *rec)
{
    lf_err err = LF_ERR_INIT;
    if (command != NULL && run_command(e, key, command, rec, &err) < 0)
        note(e, key, "was not run, or not recorded", err.text);
}

bool lf_ended_tell(const struct lf_ended *e)
{
    const lf_doc *plan = e->run->plan;
    lf_run_view v;
    char reason[500];
    lf_err err = LF_ERR_INIT;
    if (plan->on_end == NULL && plan->on_fail == NULL && !e->page)
        return false;
    int rc = lf_run_check_owner(e->run, &err);
    if (rc == 0)
        rc = lf_view_load_copy(&v, e->run, &err);
    if (rc == 0) {
        const int end = look(e, &v, reason, sizeof reason, &err);
        const struct lf_ended_rec rec = {.state = end >= 0 && end < GOES_ON ? end_names[end] : NULL,
                                         .reason = reason,
                                         .t = lf_wall_s()};
        rc = rec.state != NULL ? claim(e, &v, &rec, &err) : end < 0 ? end : LF_EEXIST;
        lf_view_fini(&v);
        if (rc == 0 && end == FAILED)
            tell(e, "on_fail", plan->on_fail, &rec);
        if (rc == 0)
            tell(e, "on_end", plan->on_end, &rec);
    }
    if (rc < 0 && rc != LF_EEXIST)
        note(e, "on_end", "and on_fail were not run", err.text);
    return rc == 0;
}
