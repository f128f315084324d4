/* SPDX-License-Identifier: Apache-2.0
 *
 * logs: what a stage wrote; -f follows it across attempts while it lives. watch: the status of a run, again and again.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/classify.h"
#include "flow/cmds.h"
#include "flow/describe.h"
#include "flow/record.h"

static const lf_opt logs_rows[] = {
    LF_CMD_COMMON,
    LF_CMD_ROW("run", LF_OPT_STR, 0, NULL, NULL, "run; default: the newest"),
    LF_CMD_ROW("attempt", LF_OPT_INT, 0, NULL, NULL, "attempt; default: the newest"),
    LF_CMD_ROW("follow", LF_OPT_BOOL, 0, "no", NULL, "go on while the stage runs (-f)"),
    LF_CMD_ROW("lines", LF_OPT_INT, 0, "0", NULL, "only the last lines, 0 = all (-n)"),
};
LF_CMD_TABLE(logs, "print the log of a stage", logs_rows);
static const lf_opt watch_rows[] = {
    LF_CMD_COMMON,
    LF_CMD_ROW("interval", LF_OPT_DURATION, 0, "2", NULL, "seconds between looks"),
};
LF_CMD_TABLE(watch, "follow a run until nothing in it runs", watch_rows);

static void nap(double s)
{
    const struct timespec ts = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&ts, NULL);
}

/* The stage asked for, or the one that has most to say: running, else failed, else the newest. */
static lf_stage_view *pick_stage(lf_run_view *v, const char *name, lf_err *err)
{
    if (name != NULL) {
        lf_stage_view *s = lf_view_stage(v, name);
        if (s == NULL)
            lf_fail(err, LF_EINVAL, "run %s has no stage \"%s\"", v->run.id, name);
        return s;
    }
    lf_stage_view *best = NULL;
    for (size_t i = 0; i < v->n; i++)
        if (v->stages[i].n_incs > 0 && (best == NULL || best->state == LF_STATE_DONE || v->stages[i].state == LF_STATE_RUNNING))
            best = &v->stages[i];
    if (best == NULL)
        lf_fail(err, LF_ENOENT, "nothing has run yet in run %s", v->run.id);
    return best;
}

static const lf_incarnation *pick_incarnation(const lf_stage_view *s, int attempt, lf_err *err)
{
    for (size_t i = s->n_incs; i-- > 0;)
        if (attempt <= 0 || s->incs[i].attempt == attempt)
            return &s->incs[i];
    lf_fail(err, LF_ENOENT, "stage %s has no log%s", json_string_value(json_object_get(s->stage, "name")),
            attempt > 0 ? " of that attempt" : " yet");
    return NULL;
}

/* Print from *offset to the end of the file; control bytes are replaced, a carriage return is a new line. */
static void print_from(const char *path, off_t *offset)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    char chunk[16384];
    ssize_t n;
    while (fd >= 0 && (n = pread(fd, chunk, sizeof chunk - 1, *offset)) > 0) {
        *offset += n;
        chunk[n] = '\0';
        for (ssize_t i = 0; i < n; i++)
            if (chunk[i] == '\r' || chunk[i] == '\0')
                chunk[i] = chunk[i] == '\r' ? '\n' : '?';
        lf_print_safe(chunk);
    }
    if (fd >= 0)
        close(fd);
    fflush(stdout);
}

static void skip_to_last(const char *path, int64_t lines, off_t *offset)
{
    char *tail = lf_log_tail(path, (size_t)1 << 20, NULL);
    size_t n = tail != NULL ? strlen(tail) : 0, keep = n;
    while (keep > 0 && lines > 0) {
        keep--;
        if (keep > 0 && tail[keep - 1] == '\n')
            lines--;
    }
    if (n > 0)
        lf_print_safe(tail + keep);
    free(tail);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0) {
        *offset = lseek(fd, 0, SEEK_END);
        close(fd);
    }
}

static int logs_of(lf_cmd *c, const lf_project *p, lf_err *err)
{
    char shown[PATH_MAX] = "", path[PATH_MAX];
    off_t offset = 0;
    int64_t lines = lf_optset_int(c->opts, "lines");
    int attempt = lf_optset_is_set(c->opts, "attempt") ? (int)lf_optset_int(c->opts, "attempt") : 0;
    for (;;) {
        lf_run_view v;
        int rc = lf_view_find(&v, p, lf_optset_str(c->opts, "run"), err);
        if (rc < 0)
            return rc;
        lf_stage_view *s = pick_stage(&v, lf_cmd_word(c, 0), err);
        const lf_incarnation *inc = s != NULL ? pick_incarnation(s, attempt, err) : NULL;
        if (inc == NULL && s != NULL && s->state == LF_STATE_RUNNING && lf_optset_bool(c->opts, "follow")) {
            lf_err_clear(err); /* it is about to start */
            lf_view_fini(&v);
            nap(0.1);
            continue;
        }
        if (inc == NULL) {
            lf_view_fini(&v);
            return err->rc;
        }
        rc = lf_path_set(path, err, "%s/log", inc->dir);
        if (strcmp(path, shown) != 0) {
            memcpy(shown, path, sizeof shown);
            offset = 0;
            if (lines > 0)
                skip_to_last(path, lines, &offset);
        }
        bool live = s->state == LF_STATE_RUNNING;
        lf_view_fini(&v);
        if (rc < 0)
            return rc;
        print_from(path, &offset);
        if (!lf_optset_bool(c->opts, "follow") || !live)
            return 0;
        nap(0.3);
    }
}

static int run_logs(lf_cmd *c, lf_err *err)
{
    lf_project p;
    int rc = lf_cmd_project(&p, c, err);
    if (rc < 0)
        return rc;
    rc = logs_of(c, &p, err);
    lf_project_fini(&p);
    return rc;
}

const lf_cmd_def lf_cmd_logs = {.table = &logs_table, .words = "[STAGE]", .max_words = 1, .run = run_logs};

/* ---- watch ---- */

static void bar(char *out, size_t cap, double part)
{
    size_t width = 20, full = part <= 0 ? 0 : part >= 1 ? width : (size_t)(part * (double)width);
    if (cap < width + 3)
        return;
    out[0] = '[';
    for (size_t i = 0; i < width; i++)
        out[1 + i] = i < full ? '#' : '.';
    out[width + 1] = ']';
    out[width + 2] = '\0';
}

static void watch_line(const json_t *s)
{
    char b[32] = "", t[32] = "", eta[32] = "";
    const json_t *part = json_object_get(s, "progress"), *dur = json_object_get(s, "duration_s");
    if (part != NULL)
        bar(b, sizeof b, json_number_value(part));
    if (dur != NULL)
        lf_fmt_duration(t, sizeof t, json_number_value(dur));
    const char *state = json_string_value(json_object_get(s, "state"));
    double done = json_number_value(part);
    if (dur != NULL && strcmp(state, "running") == 0 && done > 0.01 && done < 1)
        lf_fmt_duration(eta, sizeof eta, json_number_value(dur) * (1 - done) / done);
    printf("  %-16s %-9s %s %s%s%s", json_string_value(json_object_get(s, "name")), state, b, t,
           eta[0] != '\0' ? ", about this much left: " : "", eta);
    const json_t *loss = json_object_get(json_object_get(s, "metrics"), "loss");
    if (loss != NULL)
        printf("  loss %.4f", json_number_value(loss));
    fputs("  ", stdout);
    lf_print_safe(json_string_value(json_object_get(s, "reason")));
    putchar('\n');
}

static int exit_for(const char *state)
{
    if (strcmp(state, "done") == 0)
        return 0;
    return strcmp(state, "pending") == 0 || strcmp(state, "waiting") == 0 ? LF_FLOW_STOPPED : LF_FLOW_FAILED;
}

static int watch_run(lf_cmd *c, const lf_project *p, lf_err *err)
{
    char last[512] = "";
    for (;;) {
        lf_run_view v;
        int rc = lf_view_find(&v, p, lf_cmd_word(c, 0), err);
        if (rc < 0)
            return rc;
        json_t *o = lf_describe_run(&v);
        lf_view_fini(&v);
        if (o == NULL)
            return lf_fail(err, LF_ENOMEM, "out of memory");
        json_t *stages = json_object_get(o, "stages");
        const char *state = json_string_value(json_object_get(o, "state"));
        bool live = false;
        char now[512] = "";
        for (size_t i = 0; i < json_array_size(stages); i++) {
            const char *st = json_string_value(json_object_get(json_array_get(stages, i), "state"));
            live = live || strcmp(st, "running") == 0;
            strncat(now, st, sizeof now - strlen(now) - 1);
        }
        if (c->tty)
            printf("\033[H\033[J");
        if (c->tty || strcmp(now, last) != 0) {
            printf("run %s  %s  %s\n", json_string_value(json_object_get(o, "run")),
                   json_string_value(json_object_get(o, "name")), state);
            for (size_t i = 0; i < json_array_size(stages); i++)
                watch_line(json_array_get(stages, i));
            fflush(stdout);
        }
        memcpy(last, now, sizeof last);
        int code = exit_for(state);
        if (!live && c->json)
            return (rc = lf_cmd_print_json(o, err)) < 0 ? rc : code;
        json_decref(o);
        if (!live)
            return code;
        nap((double)lf_optset_int(c->opts, "interval"));
    }
}

static int run_watch(lf_cmd *c, lf_err *err)
{
    lf_project p;
    int rc = lf_cmd_project(&p, c, err);
    if (rc < 0)
        return rc;
    rc = watch_run(c, &p, err);
    lf_project_fini(&p);
    return rc;
}

const lf_cmd_def lf_cmd_watch = {.table = &watch_table, .words = "[RUN]", .max_words = 1, .run = run_watch};
