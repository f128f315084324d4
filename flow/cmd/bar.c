/* SPDX-License-Identifier: Apache-2.0
 *
 * A line of progress: parts with a rank each, of which the least go first.
 */
#include "config.h"

#include "flow/cmd/bar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "engine/base/str.h"
#include "flow/cmd/table.h"

#define BAR_LEAST ((size_t)5) /* a shorter one says nothing */
#define BAR_ENDS  ((size_t)2) /* its brackets */

/* In the order of the line. */
enum part { PERCENT, TAKEN, LEFT, STEP, STARTS, LOSS, RATE, JOB, N_PARTS };

struct parts {
    char text[N_PARTS][96];
};

/* What goes first when the line is too long; what is not here stays. */
static const enum part order[] = {RATE, TAKEN, STARTS, JOB, STEP, LEFT};

bool lf_bar_terminal(void)
{
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) == 1 && term != NULL && term[0] != '\0' &&
           strcmp(term, "dumb") != 0;
}

size_t lf_bar_screen(void)
{
    struct winsize w;
    const char *columns = getenv("COLUMNS");
    long n = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
    if (n <= 0 && columns != NULL)
        n = strtol(columns, NULL, 10);
    return n > 0 && n < 10000 ? (size_t)n : 80;
}

/* What a stage without steps is at: "tokenizing 1.2M/4.0M bytes read". */
static void set_doing(struct parts *p, const lf_doing *d)
{
    char done[32], total[32] = "", rate[32];
    lf_fmt_count(done, sizeof done, d->done.v);
    if (d->total.given)
        lf_fmt_count(total, sizeof total, d->total.v);
    snprintf(p->text[STEP], sizeof p->text[STEP], "  %.30s %s%s%s %.20s", d->what, done,
             total[0] != '\0' ? "/" : "", total, d->unit);
    if (d->per_s.v > 0)
        snprintf(p->text[RATE], sizeof p->text[RATE], "  %s/s",
                 lf_fmt_count(rate, sizeof rate, d->per_s.v));
}

static void set_numbers(struct parts *p, const lf_stage_shown *s)
{
    char t[32];
    double v;
    if (s->step.given && s->steps.given)
        snprintf(p->text[STEP], sizeof p->text[STEP], "  step %lld/%lld", (long long)s->step.v,
                 (long long)s->steps.v);
    if (lf_raw_number(&v, s->metrics, "loss"))
        snprintf(p->text[LOSS], sizeof p->text[LOSS], "  loss %.4f", v);
    if (strcmp(s->state, "running") == 0 && lf_raw_number(&v, s->metrics, "tokens_per_s"))
        snprintf(p->text[RATE], sizeof p->text[RATE], "  %s tokens/s",
                 lf_fmt_count(t, sizeof t, v));
    if (s->doing.given)
        set_doing(p, &s->doing);
}

static void set_parts(struct parts *p, const lf_stage_shown *s)
{
    char t[32];
    memset(p, 0, sizeof *p);
    if (s->progress.given)
        snprintf(p->text[PERCENT], sizeof p->text[PERCENT], "%3d%%", (int)(s->progress.v * 100));
    if (s->duration_s.given)
        snprintf(p->text[TAKEN], sizeof p->text[TAKEN], "  %s",
                 lf_fmt_duration(t, sizeof t, s->duration_s.v));
    if (s->eta_s.given)
        snprintf(p->text[LEFT], sizeof p->text[LEFT], "%s%s left",
                 p->text[TAKEN][0] != '\0' ? ", " : "  ", lf_fmt_duration(t, sizeof t, s->eta_s.v));
    if (s->segments.v > 1)
        snprintf(p->text[STARTS], sizeof p->text[STARTS], "  start %lld", (long long)s->segments.v);
    set_numbers(p, s);
    if (s->job != NULL && s->job->id != NULL && s->job->id[0] != '\0')
        snprintf(p->text[JOB], sizeof p->text[JOB], "  job %.80s", s->job->id);
}

static size_t width_of(const struct parts *p)
{
    size_t w = 0;
    for (int i = 0; i < N_PARTS; i++)
        w += lf_text_width(p->text[i]);
    return w;
}

/* Down to the width, as far as parts may go. */
static void drop_parts(struct parts *p, size_t width)
{
    for (size_t i = 0; i < sizeof order / sizeof order[0] && width_of(p) > width; i++) {
        p->text[order[i]][0] = '\0';
        if (order[i] == TAKEN && strncmp(p->text[LEFT], ", ", 2) == 0)
            memcpy(p->text[LEFT], "  ", 2);
    }
}

size_t lf_bar_room(const lf_stage_shown *s, size_t width)
{
    struct parts p;
    if (!s->progress.given)
        return 0;
    set_parts(&p, s);
    size_t need = width_of(&p) + BAR_ENDS + 1;
    size_t bar = width > need ? width - need : 0;
    return bar < BAR_LEAST ? 0 : bar > LF_BAR_MOST ? LF_BAR_MOST : bar;
}

static void add_bar(lf_buf *b, double part, size_t bar)
{
    size_t full = part <= 0 ? 0 : part >= 1 ? bar : (size_t)(part * (double)bar);
    lf_buf_addc(b, '[');
    for (size_t i = 0; i < bar; i++)
        lf_buf_addc(b, i < full ? '#' : '.');
    lf_buf_adds(b, "] ");
}

void lf_bar_cut(char *text, size_t width)
{
    size_t w = 0, i = 0;
    for (; text[i] != '\0' && w < width; i++)
        w += ((unsigned char)text[i + 1] & 0xC0) != 0x80;
    text[i] = '\0';
}

void lf_bar_add(lf_buf *b, const lf_stage_shown *s, size_t bar, bool blank, size_t width)
{
    struct parts p;
    const size_t taken = bar > 0 ? bar + BAR_ENDS + 1 : 0;
    lf_buf line;
    lf_buf_init(&line);
    set_parts(&p, s);
    if (s->progress.given && bar > 0)
        add_bar(&line, s->progress.v, bar);
    else if (blank && !s->progress.given)
        lf_buf_addf(&line, "%*s", (int)(taken + 4), "");
    drop_parts(&p, width > taken ? width - taken : 0);
    for (int i = 0; i < N_PARTS; i++)
        lf_buf_adds(&line, p.text[i]);
    if (s->reason[0] != '\0')
        lf_buf_addf(&line, "  %s", s->reason);
    if (lf_buf_check(&line, NULL) == 0 && line.len > 0) {
        lf_bar_cut(line.data, width);
        lf_buf_adds(b, line.data);
    }
    lf_buf_fini(&line);
}

void lf_bar_details(lf_buf *b, const lf_stage_shown *s)
{
    struct parts p;
    set_parts(&p, s);
    for (int i = TAKEN; i < N_PARTS; i++)
        lf_buf_adds(b, p.text[i]);
    if (s->reason[0] != '\0')
        lf_buf_addf(b, "  %s", s->reason);
}
