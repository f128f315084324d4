/* SPDX-License-Identifier: Apache-2.0
 *
 * watch: a run until nothing of it lives any more. On a terminal a table that renews itself,
 * elsewhere a line for every change. It reads the run's directory only; the ledger is left alone.
 * Exit: that of the run.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/cmd/bar.h"
#include "flow/cmd/cmds.h"
#include "flow/sched/describe.h"

static const lf_opt watch_rows[] = {
    LF_CMD_COMMON,
    LF_CMD_UTC,
    {.name = "interval",
     .type = LF_OPT_DURATION,
     LF_OPT_COMMAND,
     .def = "2",
     .help = "seconds between looks"},
};
LF_CMD_TABLE(watch, "follow a run until nothing in it runs; exits as the run did", watch_rows);

enum {
    STATE_WIDTH = 14, /* the state with the blanks around it */
    MAX_STAGES = 1024
};

/* What was said of a stage last, so that a log gets a line per change and not per look. */
struct said {
    char state[16];
    int epoch, tenth; /* of the progress */
};

/* ---- on a terminal ---- */

static void draw_stage(const lf_stage_shown *s, bool colour, size_t bar, size_t width,
                       size_t name_width)
{
    lf_buf b;
    lf_buf_init(&b);
    const char *state = s->state;
    printf("  %-*s ", (int)name_width, s->name);
    printf(colour ? "\033[%sm%-9s\033[0m " : "%.0s%-9s ", colour ? lf_state_colour(state) : "",
           state);
    lf_bar_add(&b, s, bar, true, width);
    if (lf_buf_check(&b, NULL) == 0)
        lf_print_safe(b.data);
    fputs("\033[K\n", stdout);
    lf_buf_fini(&b);
}

/* Over the table drawn before, which had *lines lines. */
static void draw(const lf_run_shown *run, size_t *lines)
{
    size_t width = lf_bar_screen(), name_width = 5, bar = LF_BAR_MOST;
    bool colour = lf_colour();
    for (size_t i = 0; i < run->stages.n; i++)
        if (strlen(run->stages.v[i].name) > name_width)
            name_width = strlen(run->stages.v[i].name);
    width = width > name_width + STATE_WIDTH ? width - name_width - STATE_WIDTH : 1;
    for (size_t i = 0; i < run->stages.n; i++)
        if (run->stages.v[i].progress.given && lf_bar_room(&run->stages.v[i], width) < bar)
            bar = lf_bar_room(&run->stages.v[i], width);
    if (*lines > 0)
        printf("\033[%zuA\r", *lines);
    lf_cmd_print_head(run);
    for (size_t i = 0; i < run->stages.n; i++)
        draw_stage(&run->stages.v[i], colour, bar, width, name_width);
    fputs("\033[J", stdout);
    *lines = run->stages.n + 1;
    fflush(stdout);
}

/* ---- elsewhere ---- */

static void log_changes(const lf_cmd *c, const lf_run_shown *run, struct said *said)
{
    char when[21];
    for (size_t i = 0; i < run->stages.n && i < MAX_STAGES; i++) {
        const lf_stage_shown *s = &run->stages.v[i];
        int epoch = (int)s->epoch.v, tenth = (int)(s->progress.v * 10);
        if (strcmp(said[i].state, s->state) == 0 && said[i].epoch == epoch &&
            said[i].tenth == tenth)
            continue;
        lf_buf b;
        lf_buf_init(&b);
        if (s->progress.given)
            lf_buf_addf(&b, "  %3d%%", (int)(s->progress.v * 100));
        lf_bar_details(&b, s);
        if (lf_buf_check(&b, NULL) == 0)
            lf_say("%s  %-16s %-9s%s\n", lf_cmd_time(when, c, lf_wall_s()), s->name, s->state,
                   b.data);
        lf_buf_fini(&b);
        snprintf(said[i].state, sizeof said[i].state, "%s", s->state);
        said[i].epoch = epoch;
        said[i].tenth = tenth;
    }
    fflush(stdout);
}

/* ---- the loop ---- */

static int exit_for(const char *state)
{
    if (strcmp(state, "done") == 0)
        return LF_FLOW_OK;
    return strcmp(state, "pending") == 0 || strcmp(state, "waiting") == 0 ? LF_FLOW_STOPPED
                                                                          : LF_FLOW_FAILED;
}

static bool lives(const lf_run_view *v)
{
    for (size_t i = 0; i < v->n; i++)
        if (lf_describe_lives(v, &v->stages[i]))
            return true;
    return false;
}

/* One look; *live: there will be another. Returns the exit code of the run as it is. */
static int look(const lf_cmd *c, const lf_run_view *v, struct said *said, size_t *lines, bool first,
                bool *live, lf_err *err)
{
    lf_run_shown o;
    int rc = lf_describe_run(&o, v, err);
    if (rc < 0)
        return rc;
    int code = exit_for(o.state);
    *live = lives(v);
    const bool redraw = !c->json && lf_bar_terminal();
    if (redraw) {
        draw(&o, lines);
    } else if (!c->json) {
        if (first)
            lf_cmd_print_head(&o);
        log_changes(c, &o, said);
    }
    if (!*live && c->json)
        rc = lf_cmd_print(&o, &lf_run_shown_fields, err);
    else if (!*live && !redraw)
        lf_cmd_print_head(&o);
    lf_run_shown_fini(&o);
    return rc < 0 ? rc : code;
}

static int watch_loop(const lf_cmd *c, const lf_project *p, const char *run, struct said *said,
                      lf_err *err)
{
    size_t lines = 0;
    for (bool first = true, live = false;; first = false) {
        lf_run_view v;
        int rc = lf_view_find(&v, p, run, err);
        if (rc < 0)
            return rc;
        rc = look(c, &v, said, &lines, first, &live, err);
        lf_view_fini(&v);
        if (rc < 0 || !live)
            return rc;
        lf_cmd_nap((double)lf_optset_int(c->opts, "interval"));
    }
}

static int watch_run(lf_cmd *c, const lf_project *p, lf_err *err)
{
    lf_run run;
    int rc = lf_run_find(&run, p, lf_cmd_word(c, 0), err);
    if (rc < 0)
        return rc;
    struct said *said = lf_calloc(MAX_STAGES, sizeof *said, err);
    rc = said != NULL ? watch_loop(c, p, run.id, said, err) : LF_ENOMEM;
    free(said);
    lf_run_fini(&run);
    return rc;
}

static int run_watch(lf_cmd *c, lf_err *err)
{
    return lf_cmd_with_project(c, watch_run, err);
}

const lf_cmd_def lf_cmd_watch = {
    .table = &watch_table, .words = "[RUN]", .max_words = 1, .run = run_watch};
