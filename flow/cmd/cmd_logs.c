/* SPDX-License-Identifier: Apache-2.0
 *
 * logs: what a stage wrote, by attempt, start and rank; -f follows it over attempts and
 * requeues until the stage has come to its end. Lines are printed whole, without control bytes; a
 * carriage return ends a line.
 */
#include "config.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/cmd/cmds.h"
#include "flow/plan/sweep.h"
#include "flow/record/record.h"
#include "flow/sched/describe.h"

static const lf_opt logs_rows[] = {
    LF_CMD_COMMON,
    {.name = "run", .type = LF_OPT_STR, LF_OPT_COMMAND, .help = "run; default: the newest"},
    {.name = "attempt", .type = LF_OPT_INT, LF_OPT_COMMAND, .help = "attempt; default: the newest"},
    {.name = "start",
     .was = "epoch",
     .type = LF_OPT_INT,
     LF_OPT_COMMAND,
     .help = "start; default: the newest of the attempt"},
    {.name = "rank", .type = LF_OPT_INT, LF_OPT_COMMAND, .help = "only what this rank wrote"},
    {.name = "all",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "every start, oldest first, not only the newest"},
    {.name = "follow",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "go on while the stage lives, over attempts and requeues"},
    {.name = "lines",
     .type = LF_OPT_INT,
     LF_OPT_COMMAND,
     .def = "0",
     .help = "only the last lines, 0 = all"},
};
LF_CMD_TABLE(logs, "print the log of a stage; without STAGE of the one that runs or failed",
             logs_rows);

enum { LINE_MAX_BYTES = 1 << 16 };

/* One log on its way out. */
struct reader {
    lf_cmd *c;
    char run[LF_ULID_SIZE], stage[128], path[PATH_MAX];
    int attempt, epoch, rank; /* rank -1: all */
    bool labelled;            /* ranks are told apart by labels in one file */
    off_t offset;
    lf_buf line;    /* begun, not ended yet */
    lf_texts lines; /* --json without --follow: collected here, where it is given */
};

/* A line of --follow, or the whole log. */
struct shown_log {
    const char *run, *stage, *line, *state, *path;
    lf_texts lines;
    lf_int attempt, epoch, bytes;
};
static const struct lf_fields log_fields =
    LF_FIELDS_SHOWN(struct shown_log, LF_MEMBERS(struct shown_log, run, stage, line, state, path,
                                                 lines, attempt, epoch, bytes));

static struct shown_log log_of(const struct reader *r)
{
    struct shown_log o = {.run = r->run, .stage = r->stage};
    if (r->attempt > 0) {
        o.attempt = lf_int_of(r->attempt);
        o.epoch = lf_int_of(r->epoch);
    }
    return o;
}

/* "[3] text" and "3: text" are of rank 3; a line without a label is the launcher's. */
static bool of_rank(const char *line, int rank)
{
    char *end = NULL;
    bool bracket = line[0] == '[';
    if (line[bracket] < '0' || line[bracket] > '9')
        return false;
    long r = strtol(line + bracket, &end, 10);
    return *end == (bracket ? ']' : ':') && r == rank;
}

static int emit(struct reader *r, lf_err *err)
{
    int rc = lf_buf_check(&r->line, err);
    if (rc < 0 || (r->labelled && !of_rank(r->line.data, r->rank))) {
        lf_buf_clear(&r->line);
        return rc;
    }
    lf_text_clean(r->line.data);
    if (!r->c->json) {
        lf_print_safe(r->line.data);
        putchar('\n');
    } else if (r->lines.given) {
        rc = lf_texts_add(&r->lines, r->line.data, err);
    } else {
        struct shown_log o = log_of(r);
        o.line = r->line.data;
        rc = lf_cmd_print_line(&o, &log_fields, err);
    }
    lf_buf_clear(&r->line);
    return rc;
}

/* From the offset to the end of the file as it is now. */
static int pump(struct reader *r, lf_err *err)
{
    int fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), rc = 0;
    char chunk[16384];
    ssize_t n = 0;
    while (fd >= 0 && rc == 0 && (n = pread(fd, chunk, sizeof chunk, r->offset)) > 0) {
        r->offset += n;
        for (ssize_t i = 0; i < n && rc == 0; i++) {
            char ch = chunk[i] == '\0' ? '?' : chunk[i];
            if (ch == '\n' || (ch == '\r' && r->line.len > 0))
                rc = emit(r, err);
            else if (ch != '\r')
                lf_buf_addc(&r->line, ch);
            if (rc == 0 && r->line.len >= LINE_MAX_BYTES)
                rc = emit(r, err);
        }
    }
    if (rc == 0 && n < 0)
        rc = lf_fail_errno(err, "cannot read %s", r->path);
    if (fd >= 0)
        close(fd);
    fflush(stdout);
    return rc;
}

static int finish_line(struct reader *r, lf_err *err)
{
    return r->line.len > 0 ? emit(r, err) : 0;
}

/* Where the last `lines` lines of the file begin. */
static off_t tail_start(const char *path, int64_t lines)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    off_t end = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0, at = end;
    char block[8192];
    while (at > 0 && lines >= 0) {
        off_t from = at > (off_t)sizeof block ? at - (off_t)sizeof block : 0;
        ssize_t n = pread(fd, block, (size_t)(at - from), from);
        if (n != at - from)
            break;
        /* The newline that ends the file ends a line; it does not begin one. */
        while (n > 0 && !(block[n - 1] == '\n' && from + n != end && lines-- == 1))
            n--;
        at = from + n;
        if (n > 0)
            break;
    }
    if (fd >= 0)
        close(fd);
    return at > 0 ? at : 0;
}

/* ---- which log ---- */

/* The stage asked for, or the one that has most to say: running, else failed, else the newest that
 * ran; of all, or of those that a name stands for in a sweep. */
static lf_stage_view *pick_stage(lf_run_view *v, const char *name, lf_err *err)
{
    lf_stage_view *best = name != NULL ? lf_view_stage(v, name) : NULL;
    int best_rank = 0;
    if (best != NULL)
        return best;
    if (name != NULL && !lf_view_names(v, name)) {
        lf_view_no_stage(v, name, err);
        return NULL;
    }
    for (size_t i = 0; i < v->n; i++) {
        lf_stage_view *s = &v->stages[i];
        if (name != NULL && !lf_sweep_named(s->plan->name, name))
            continue;
        int rank = s->state == LF_STATE_RUNNING  ? 4
                   : s->state == LF_STATE_FAILED ? 3
                   : s->n_incs > 0               ? 2
                   : s->result_dir != NULL       ? 1
                                                 : 0;
        if (rank > 0 && rank >= best_rank) {
            best = s;
            best_rank = rank;
        }
    }
    if (best == NULL)
        lf_fail(err, LF_ENOENT, "nothing has run yet in run %s", lf_run_label(&v->run));
    return best;
}

/* Does the start fit what was asked? */
static bool wanted(const lf_cmd *c, const lf_start *inc)
{
    return (!lf_optset_is_set(c->opts, "attempt") ||
            inc->attempt == (int)lf_optset_int(c->opts, "attempt")) &&
           (!lf_optset_is_set(c->opts, "start") ||
            inc->epoch == (int)lf_optset_int(c->opts, "start"));
}

static const lf_start *newest_wanted(const lf_cmd *c, const lf_stage_view *s)
{
    for (size_t i = s->n_incs; i-- > 0;)
        if (wanted(c, &s->incs[i]))
            return &s->incs[i];
    return NULL;
}

/* A rank's own file, or all of them in one with labels. */
static int set_path(struct reader *r, const char *dir, lf_err *err)
{
    r->rank = lf_optset_is_set(r->c->opts, "rank") ? (int)lf_optset_int(r->c->opts, "rank") : -1;
    r->labelled = false;
    if (r->rank >= 0) {
        int rc = lf_path_set(r->path, err, "%s/log.%d", dir, r->rank);
        if (rc < 0 || lf_io_exists(r->path))
            return rc;
        r->labelled = true;
    }
    return lf_path_set(r->path, err, "%s/log", dir);
}

static int open_log(struct reader *r, const char *dir, int attempt, int epoch, lf_err *err)
{
    int rc = finish_line(r, err);
    if (rc == 0)
        rc = set_path(r, dir, err);
    r->attempt = attempt;
    r->epoch = epoch;
    int64_t lines = lf_optset_int(r->c->opts, "lines");
    r->offset = rc == 0 && lines > 0 ? tail_start(r->path, lines) : 0;
    return rc;
}

static int nothing(const lf_stage_view *s, const lf_cmd *c, lf_err *err)
{
    bool picky = lf_optset_is_set(c->opts, "attempt") || lf_optset_is_set(c->opts, "start");
    return lf_fail(err, LF_ENOENT, "stage %s has no log%s", s->plan->name,
                   picky ? " of that attempt or start" : " yet");
}

/* ---- printing ---- */

static int end_json(struct reader *r, const char *state, lf_err *err)
{
    struct stat st;
    struct shown_log o = log_of(r);
    o.state = state;
    o.path = r->path;
    o.lines = r->lines;
    if (stat(r->path, &st) == 0)
        o.bytes = lf_int_of(st.st_size);
    return lf_cmd_print(&o, &log_fields, err);
}

static int print_once(struct reader *r, const lf_run_view *v, const lf_stage_view *s, lf_err *err)
{
    const lf_cmd *c = r->c;
    bool all = lf_optset_bool(c->opts, "all");
    int rc = 0, shown = 0;
    if (s->n_incs == 0 && s->result_dir != NULL) {
        const char *from = s->plan->adopted.run;
        if (!c->json)
            lf_say_err("loong-flow: %s was taken over from run %s; this is its log there\n",
                       r->stage, from != NULL ? from : "?");
        rc = open_log(r, s->result_dir, 0, 0, err);
        rc = rc == 0 ? pump(r, err) : rc;
        shown = 1;
    }
    for (size_t i = 0; i < s->n_incs && rc == 0; i++) {
        const lf_start *inc = &s->incs[i];
        if (!wanted(c, inc) || (!all && inc != newest_wanted(c, s)))
            continue;
        rc = open_log(r, inc->dir, inc->attempt, inc->epoch, err);
        if (rc == 0 && all && !c->json)
            printf("==> attempt %d start %d <==\n", inc->attempt, inc->epoch);
        if (rc == 0)
            rc = pump(r, err);
        shown++;
    }
    if (rc == 0)
        rc = finish_line(r, err);
    (void)v;
    if (rc == 0 && shown == 0)
        return nothing(s, c, err);
    return rc == 0 && c->json ? end_json(r, lf_state_name(s->state), err) : rc;
}

/* Until the stage has come to an end: a requeue or the next attempt goes on under a new header. */
static int follow(struct reader *r, const lf_project *p, lf_err *err)
{
    for (bool live = true, first = true; live; first = false) {
        lf_run_view v;
        int rc = lf_view_find(&v, p, r->run, err);
        if (rc < 0)
            return rc;
        lf_stage_view *s = lf_view_stage(&v, r->stage);
        const lf_start *inc = s != NULL ? newest_wanted(r->c, s) : NULL;
        live = s != NULL && lf_describe_lives(&v, s);
        if (inc != NULL && (inc->attempt != r->attempt || inc->epoch != r->epoch)) {
            bool change = r->attempt > 0;
            rc = change ? pump(r, err) : 0; /* what the one before wrote last */
            if (rc == 0)
                rc = open_log(r, inc->dir, inc->attempt, inc->epoch, err);
            if (change)
                r->offset = 0;
            if (rc == 0 && change && !r->c->json)
                printf("==> attempt %d start %d <==\n", inc->attempt, inc->epoch);
        } else if (inc == NULL && first && !live && s != NULL) {
            rc = print_once(r, &v, s, err);
        }
        lf_view_fini(&v);
        if (rc == 0 && r->path[0] != '\0')
            rc = pump(r, err);
        if (rc < 0)
            return rc;
        if (live)
            lf_cmd_nap(0.3);
    }
    return finish_line(r, err);
}

static int logs_of(lf_cmd *c, const lf_project *p, lf_err *err)
{
    lf_run_view v;
    int rc = lf_view_find(&v, p, lf_optset_str(c->opts, "run"), err);
    if (rc < 0)
        return rc;
    bool following = lf_optset_bool(c->opts, "follow");
    struct reader r = {.c = c, .rank = -1};
    lf_buf_init(&r.line);
    lf_stage_view *s = pick_stage(&v, lf_cmd_word(c, 0), err);
    rc = s == NULL ? err->rc : 0;
    if (rc == 0) {
        memcpy(r.run, v.run.id, sizeof r.run);
        snprintf(r.stage, sizeof r.stage, "%s", s->plan->name);
        r.lines.given = c->json && !following;
        rc = following ? 0 : print_once(&r, &v, s, err);
    }
    lf_view_fini(&v);
    if (rc == 0 && following)
        rc = follow(&r, p, err);
    lf_texts_fini(&r.lines);
    lf_buf_fini(&r.line);
    return rc;
}

static int run_logs(lf_cmd *c, lf_err *err)
{
    return lf_cmd_with_project(c, logs_of, err);
}

const lf_cmd_def lf_cmd_logs = {
    .table = &logs_table, .words = "[STAGE]", .max_words = 1, .run = run_logs};
