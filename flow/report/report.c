/* SPDX-License-Identifier: Apache-2.0
 *
 * The page of `loong-flow report` about one run: the order of its parts.
 */
#include "config.h"

#include "flow/report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/sys.h"
#include "flow/sched/describe.h"

/* ---- the numbers at the top ---- */

static void tile(lf_buf *b, const char *value, const char *what)
{
    lf_buf_adds(b, "<div class=\"tile\"><b>");
    lf_html_text(b, value);
    lf_buf_adds(b, "</b><span>");
    lf_html_text(b, what);
    lf_buf_adds(b, "</span></div>");
}

static void number_tile(lf_buf *b, double v, const char *what, const char *stage)
{
    char text[64], label[160];
    if (!isfinite(v))
        return;
    snprintf(label, sizeof label, "%s, %s", what, stage);
    tile(b, lf_fmt_value(text, sizeof text, v), label);
}

/* What a reader looks for first: how good the models are. */
static void score_tiles(lf_buf *b, const lf_facts_stage *s)
{
    const char *name = s->view->plan->name;
    char what[64];
    snprintf(what, sizeof what, "best validation loss, %s", lf_facts_loss_unit(s));
    number_tile(b, lf_facts_lowest(s, "valid_loss", NULL), what, name);
    if (lf_facts_key(s, "loss") >= 0)
        number_tile(b, lf_facts_last(s, lf_facts_pictures(s) ? "pictures" : "tokens"),
                    lf_facts_pictures(s) ? "pictures trained on" : "tokens trained on", name);
    for (size_t k = 0; k < s->keys.n; k++) {
        const char *key = s->keys.v[k], *dot = strrchr(key, '.');
        if (dot != NULL && strcmp(dot, ".bits_per_byte") == 0)
            number_tile(b, lf_facts_last(s, key), "bits a byte", name);
    }
}

static void tiles(lf_buf *b, const lf_facts *f)
{
    char text[64];
    double t0 = INFINITY, t1 = -INFINITY, used = 0;
    int done = 0;
    for (size_t i = 0; i < f->n; i++) {
        const lf_stage_shown *s = f->stages[i].shown;
        const enum lf_state state = f->stages[i].view->state;
        done += state == LF_STATE_DONE;
        if (s->t_start.given && s->t_start.v < t0)
            t0 = s->t_start.v;
        double end = s->t_end.given              ? s->t_end.v
                     : state == LF_STATE_RUNNING ? lf_wall_s()
                                                 : -(double)INFINITY;
        t1 = end > t1 ? end : t1;
        used += s->duration_s.v;
    }
    lf_buf_adds(b, "<div class=\"tiles\">");
    snprintf(text, sizeof text, "%d of %zu", done, f->n);
    tile(b, text, "stages done");
    if (t1 > t0)
        tile(b, lf_fmt_duration(text, sizeof text, t1 - t0), "from first start to last end");
    if (used > 0)
        tile(b, lf_fmt_duration(text, sizeof text, used), "time in stages");
    for (size_t i = 0; i < f->n; i++)
        score_tiles(b, &f->stages[i]);
    lf_buf_adds(b, "</div>\n");
}

/* ---- head, stages, end ---- */

static const char *text_of(const char *s)
{
    return s != NULL ? s : "";
}

static void head(lf_buf *b, const lf_report *r, const lf_facts *f)
{
    char when[21];
    const lf_run *run = &r->view->run;
    lf_page_begin(b, text_of(f->shown.name), r->refresh_s);
    lf_buf_adds(b, "<h1>");
    lf_html_text(b, f->shown.name);
    lf_buf_adds(b, " ");
    lf_html_state(b, f->shown.state);
    lf_buf_adds(b, "</h1>\n<p class=\"dim\">run ");
    lf_html_in(b, "code", "", lf_run_label(run));
    if (run->plan->short_name != NULL)
        lf_buf_addf(b, " (<code>%s</code>)", run->id);
    lf_buf_addf(b, ", revision %d, made %s by ", run->rev, lf_time_iso(when, f->shown.created.v));
    lf_html_text(b, text_of(run->plan->user));
    lf_buf_adds(b, " on ");
    lf_html_text(b, text_of(run->plan->host));
    lf_buf_adds(b, ", scheduler ");
    lf_html_text(b, text_of(run->plan->scheduler));
    lf_buf_addf(b, "; this page: %s, loong-flow %s", lf_time_iso(when, lf_wall_s()),
                PACKAGE_VERSION);
    if (r->refresh_s > 0)
        lf_buf_addf(b, ", renewed every %d seconds while the run goes on", r->refresh_s);
    lf_buf_adds(b, "</p>\n");
}

static void stage_row(lf_buf *b, const lf_stage_shown *s)
{
    char t[96] = "-", dur[32], a[32], z[32];
    lf_buf_adds(b, "<tr>");
    lf_html_in(b, "td", "", s->name);
    lf_html_in(b, "td", "dim", s->kind);
    lf_buf_adds(b, "<td>");
    lf_html_state(b, s->state);
    lf_buf_adds(b, "</td>");
    lf_html_in(b, "td", "n",
               s->duration_s.given ? lf_fmt_duration(dur, sizeof dur, s->duration_s.v) : "-");
    if (s->step.given && s->steps.given)
        snprintf(t, sizeof t, "%s of %s", lf_fmt_value(a, sizeof a, (double)s->step.v),
                 lf_fmt_value(z, sizeof z, (double)s->steps.v));
    else if (s->step.given)
        lf_fmt_value(t, sizeof t, (double)s->step.v);
    lf_html_in(b, "td", "n", t);
    lf_buf_addf(b, "<td class=\"n\">%d / %d</td><td class=\"dim\">", s->attempts,
                (int)s->segments.v);
    lf_html_text(b, s->reason);
    if (s->adopted != NULL) {
        lf_buf_adds(b, "taken over from run ");
        lf_html_in(b, "code", "", s->adopted->run);
    }
    lf_buf_adds(b, "</td></tr>\n");
}

static void stages(lf_buf *b, const lf_facts *f)
{
    lf_buf_adds(b, "<h2>Stages</h2>\n<div class=\"wide\"><table><tr><th>stage</th><th>kind</th>"
                   "<th>state</th><th class=\"n\">time</th><th class=\"n\">step</th>"
                   "<th class=\"n\">attempts / starts</th><th></th></tr>\n");
    for (size_t i = 0; i < f->n; i++)
        stage_row(b, f->stages[i].shown);
    lf_buf_adds(b, "</table></div>\n");
}

static void where_and_how(lf_buf *b, const lf_run_view *v)
{
    lf_buf_adds(b, "<h2>Files, and how to repeat</h2>\n<p>Everything of this run lies in <code>");
    lf_html_text(b, v->run.dir);
    lf_buf_addf(b,
                "</code>: the frozen pipeline and executables in <code>rev.%d</code>, a folder for "
                "each stage, in it one for each start with its log, metrics and outputs.</p>\n"
                "<pre>loong-flow resume %s        # what is missing, from the last thing saved\n"
                "loong-flow run --new ",
                v->run.rev, lf_run_label(&v->run));
    lf_html_text(b, text_of(v->run.plan->pipeline));
    lf_buf_adds(b, "   # the same again, from nothing\n</pre>\n");
}

/* ---- the page ---- */

static int body(lf_buf *b, const lf_report *r, const lf_facts *f, lf_err *err)
{
    head(b, r, f);
    lf_report_about(b, r);
    tiles(b, f);
    lf_report_failures(b, r->view, &f->shown);
    lf_report_warnings(b, &f->shown);
    int rc = lf_report_card(b, f, err);
    lf_report_scores(b, f);
    if (rc == 0)
        rc = lf_report_texts(b, f, err);
    lf_buf_adds(b, "<h2 id=\"metrics\">Metrics</h2>\n<div id=\"controls\"></div>\n");
    if (rc == 0)
        rc = lf_report_curves(b, f, 0, err);
    stages(b, f);
    lf_svg_graph(b, r->view);
    lf_buf_adds(b, "<h2>Course</h2>\n");
    lf_report_course(b, r->view);
    lf_buf_adds(b, "<h2>Resources</h2>\n");
    if (rc == 0)
        rc = lf_report_resources(b, f, err);
    lf_buf_adds(b, "<h2>Lineage</h2>\n");
    lf_report_lineage(b, r->view);
    lf_buf_adds(b, "<h2>Settings</h2>\n");
    if (rc == 0)
        rc = lf_report_settings(b, r->view, r->before, err);
    where_and_how(b, r->view);
    return rc == 0 ? lf_page_end(b, &f, 1, err) : rc;
}

int lf_report_html(lf_buf *b, const lf_report *r, lf_err *err)
{
    lf_facts f;
    int rc = lf_facts_load(&f, r->view, err);
    if (rc < 0)
        return rc;
    rc = body(b, r, &f, err);
    lf_facts_fini(&f);
    return rc;
}
