/* SPDX-License-Identifier: Apache-2.0
 *
 * The course of a run in time: a row for each stage, a bar for each of its starts. Places are
 * shares of the width, so the picture fits any page.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/sys.h"
#include "flow/report/report.h"

static double end_of(const lf_start *inc, const lf_stage_view *s)
{
    const double t = lf_inc_end(inc), begin = lf_inc_begin(inc);
    if (t > 0)
        return t;
    return s->state == LF_STATE_RUNNING && inc == &s->incs[s->n_incs - 1]
               ? lf_wall_s()
               : begin; /* else nobody knows */
}

/* When the job of a start began to wait: its submission, or the end of the segment
 * before. */
static double queued_at(const lf_stage_view *s, size_t k)
{
    const lf_start *inc = &s->incs[k];
    if (k > 0 && s->incs[k - 1].attempt == inc->attempt)
        return end_of(&s->incs[k - 1], s);
    const struct lf_attempt_rec *a = lf_attempt_of(s, inc);
    return a != NULL && a->t > 0 ? a->t : (double)NAN;
}

static const char *how_it_ended(const lf_start *inc, const lf_stage_view *s)
{
    const char *st = inc->end != NULL ? inc->end->state : NULL;
    if (inc->done != NULL)
        return "done";
    if (st != NULL)
        return st;
    return s->state == LF_STATE_RUNNING && inc == &s->incs[s->n_incs - 1] ? "running" : "unknown";
}

static double tick_step(double span)
{
    static const double steps[] = {1,     2,     5,     10,    15,     30,     60,
                                   120,   300,   600,   900,   1800,   3600,   7200,
                                   10800, 21600, 43200, 86400, 172800, 604800, 2592000};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if (span / steps[i] <= 7)
            return steps[i];
    return span / 7;
}

static double share(double t, double t0, double span)
{
    return 100 * (t - t0) / span;
}

static void bars(lf_buf *out, const lf_stage_view *s, double t0, double span)
{
    char dur[32], wait[32];
    for (size_t k = 0; k < s->n_incs; k++) {
        const lf_start *inc = &s->incs[k];
        const char *state = how_it_ended(inc, s), *cls = lf_inc_class(inc);
        const char *host = inc->claim != NULL ? inc->claim->process.host : "";
        const double a = lf_inc_begin(inc), b = end_of(inc, s), q = queued_at(s, k);
        if (isfinite(q) && q < a)
            lf_buf_addf(out,
                        "<i class=\"queue\" style=\"left:%.2f%%;width:%.2f%%\" title=\"waited "
                        "%s\"></i>",
                        share(q, t0, span), 100 * (a - q) / span,
                        lf_fmt_duration(wait, sizeof wait, a - q));
        lf_buf_addf(out,
                    "<i class=\"bar s-%s\" style=\"left:%.2f%%;width:%.2f%%\" title=\"attempt %d, "
                    "start %d: %s%s%s, %s%s",
                    state, share(a, t0, span), 100 * (b - a) / span, inc->attempt, inc->epoch,
                    state, cls[0] != '\0' ? ", " : "", cls, lf_fmt_duration(dur, sizeof dur, b - a),
                    host[0] != '\0' ? " on " : "");
        lf_html_text(out, host);
        lf_buf_addf(out, "\">%s</i>", 100 * (b - a) / span > 4 ? lf_state_sign(state) : "");
    }
}

/* Of all stages: when the first began to wait, and when the last ended. Returns their number. */
static int span_of_run(const lf_run_view *v, double *t0, double *t1)
{
    int rows = 0;
    *t0 = INFINITY;
    *t1 = -INFINITY;
    for (size_t i = 0; i < v->n; i++) {
        const lf_stage_view *s = &v->stages[i];
        rows += s->n_incs > 0;
        for (size_t k = 0; k < s->n_incs; k++) {
            double a = lf_inc_begin(&s->incs[k]), q = queued_at(s, k);
            a = isfinite(q) && q < a ? q : a;
            *t0 = a < *t0 ? a : *t0;
            *t1 = end_of(&s->incs[k], s) > *t1 ? end_of(&s->incs[k], s) : *t1;
        }
    }
    return rows;
}

static void ticks(lf_buf *out, double span)
{
    char text[32];
    const double step = tick_step(span);
    lf_buf_adds(out, "<div class=\"row\"><span></span><div class=\"ticks\">");
    for (double t = 0; t <= span; t += step)
        lf_buf_addf(out, "<i style=\"left:%.2f%%\">%s</i>", 100 * t / span,
                    t > 0 ? lf_fmt_duration(text, sizeof text, t) : "0");
    lf_buf_adds(out, "</div></div></div>\n");
}

void lf_report_course(lf_buf *out, const lf_run_view *v)
{
    double t0, t1;
    if (span_of_run(v, &t0, &t1) == 0) {
        lf_buf_adds(out, "<p class=\"dim\">Nothing has started yet.</p>\n");
        return;
    }
    const double span = t1 - t0 > 1 ? t1 - t0 : 1;
    lf_buf_adds(out, "<div class=\"course\">\n");
    for (size_t i = 0; i < v->n; i++) {
        if (v->stages[i].n_incs == 0)
            continue;
        lf_buf_adds(out, "<div class=\"row\">");
        lf_html_in(out, "span", "", v->stages[i].plan->name);
        lf_buf_adds(out, "<div class=\"track\">");
        bars(out, &v->stages[i], t0, span);
        lf_buf_adds(out, "</div></div>\n");
    }
    ticks(out, span);
    lf_buf_adds(out, "<p class=\"dim\">A bar is one start of a stage, a thin line the time its job "
                     "waited.</p>\n");
}
