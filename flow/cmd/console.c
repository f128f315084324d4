/* SPDX-License-Identifier: Apache-2.0
 *
 * The console of a driven run.
 */
#include "config.h"

#include "flow/cmd/console.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/cmd/bar.h"
#include "flow/cmd/table.h"
#include "flow/sched/describe.h"
#include "flow/sched/eta.h"

#define LOOK_S 1.0

static void take_away(const lf_console *c)
{
    if (c->line[0] != '\0')
        fputs("\r\033[K", stdout);
}

static void draw(const lf_console *c)
{
    lf_print_safe(c->line);
    fflush(stdout);
}

void lf_console_say(void *user, const char *text)
{
    lf_console *c = user;
    if (c->quiet)
        return;
    take_away(c);
    lf_print_safe(text);
    putchar('\n');
    draw(c);
}

/* "  pipeline 12m left" where that says more than the stage's own time; ">" where of some stage
 * nothing is known. */
static void add_pipeline(lf_buf *b, const lf_eta *eta)
{
    char t[32];
    if (eta->stages > 1 && eta->left_s > 0)
        lf_buf_addf(b, "  pipeline %s%s left", eta->at_least ? ">" : "",
                    lf_fmt_duration(t, sizeof t, eta->left_s));
}

/* One stage has the line for itself, several share it. */
static void add_stage(lf_buf *b, const lf_stage_shown *s, int n, size_t width)
{
    char name[64];
    snprintf(name, sizeof name, "%s%.40s ", b->len > 0 ? " | " : "", s->name);
    const size_t used = lf_text_width(name), share = width / (size_t)n,
                 room = share > used ? share - used : 1;
    lf_buf_adds(b, name);
    lf_bar_add(b, s, lf_bar_room(s, room), false, room);
}

static void make_line(lf_console *c, const lf_run_view *v, const lf_stage_shown *now,
                      const bool *selected)
{
    const size_t width = lf_bar_screen() - 1; /* a full line would wrap on some terminals */
    lf_eta eta;
    lf_buf b, tail;
    int n = 0;
    lf_buf_init(&b);
    lf_buf_init(&tail);
    lf_eta_of(&eta, v, now, selected, c->jobs);
    for (size_t i = 0; i < v->n; i++)
        n += v->stages[i].state == LF_STATE_RUNNING;
    add_pipeline(&tail, &eta);
    /* In a narrow terminal the stages matter more than the pipeline. */
    const size_t room = tail.len < width / 2 ? width - tail.len : width;
    for (size_t i = 0; i < v->n; i++)
        if (v->stages[i].state == LF_STATE_RUNNING)
            add_stage(&b, &now[i], n, room);
    if (room < width && n > 0)
        lf_buf_adds(&b, tail.data);
    c->line[0] = '\0';
    if (lf_buf_check(&b, NULL) == 0 && b.len > 0) {
        snprintf(c->line, sizeof c->line, "%s", b.data);
        lf_bar_cut(c->line, width);
    }
    lf_buf_fini(&b);
    lf_buf_fini(&tail);
}

void lf_console_look(void *user, const lf_run_view *v, const bool *selected)
{
    lf_console *c = user;
    if (!c->live || (v != NULL && lf_now_s() < c->next))
        return;
    if (v == NULL) {
        take_away(c);
        c->line[0] = '\0';
        c->next = 0;
        fflush(stdout);
        return;
    }
    c->next = lf_now_s() + LOOK_S;
    lf_stage_shown *now = lf_calloc(v->n + 1, sizeof *now, NULL);
    for (size_t i = 0; now != NULL && i < v->n; i++)
        lf_describe_stage(&now[i], &v->stages[i]);
    take_away(c);
    if (now != NULL)
        make_line(c, v, now, selected);
    draw(c);
    for (size_t i = 0; now != NULL && i < v->n; i++)
        lf_stage_shown_fini(&now[i]);
    free(now);
}
