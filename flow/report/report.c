/* SPDX-License-Identifier: Apache-2.0
 *
 * The page of `loong-flow report`.
 */
#include "config.h"

#include "flow/report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/sys.h"
#include "flow/sched/describe.h"

/* Tints are light enough for text in both schemes: at least 7 to 1 against --fg. */
static const char style[] =
    ":root{color-scheme:light "
    "dark;--bg:#fff;--fg:#1a2130;--dim:#596579;--rule:#dfe4ec;--card:#f6f8fb;--first:#8fb4f5;--"
    "line:#2159d6;"
    "--second:#c2410c;--done:#d5f0df;--bad:#fadadb;--run:#d8e6ff;--wait:#ebeef3;--warn:#fbeac0;--"
    "edge:#8d99ad;--alert:#a8071a}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#11151c;--fg:#e7ebf2;--dim:#9fabbd;--rule:#"
    "2b3342;--card:#191f29;--first:#3f5f96;"
    "--line:#82aeff;--second:#fb9a5c;--done:#164429;--bad:#571f29;--run:#1c3768;--wait:#283040;--"
    "warn:#4b3c12;--edge:#66748a;"
    "--alert:#ff8f8f}}\n"
    "*{box-sizing:border-box}body{background:var(--bg);color:var(--fg);font:15px/1.5 "
    "system-ui,-apple-system,'Segoe UI',sans-serif;"
    "margin:2rem auto;max-width:64rem;padding:0 "
    "1.2rem}h1{font-size:1.6rem;margin:0}h2{font-size:1.15rem;margin:2.4rem 0 .7rem;"
    "border-bottom:1px solid var(--rule);padding-bottom:.2rem}h3{font-size:1rem;margin:1.3rem 0 "
    ".4rem}p{margin:.4rem 0}"
    "table{border-collapse:collapse;width:100%;font-size:.9rem}table.narrow{width:auto;min-width:"
    "22rem}th,td{text-align:left;padding:"
    ".32rem .9rem .32rem 0;vertical-align:top;border-bottom:1px solid "
    "var(--rule)}td.n,th.n{text-align:right;font-variant-numeric:"
    "tabular-nums;white-space:nowrap}th{color:var(--dim);font-weight:500;white-space:nowrap}.dim,"
    "td.dim,tspan.dim{color:var(--dim)}"
    "code,pre{font:.84rem/1.45 ui-monospace,'DejaVu Sans "
    "Mono',monospace;overflow-wrap:anywhere}pre{background:var(--card);padding:.7rem .9rem;"
    "border-radius:6px;white-space:pre-wrap;margin:.5rem 0}.tag{padding:.08rem "
    ".6rem;border-radius:1rem;white-space:nowrap}h1 .tag{font-size:1rem;"
    "vertical-align:middle;font-weight:500}.wide{overflow-x:auto}.tiles{display:flex;flex-wrap:"
    "wrap;gap:.7rem;margin:1.1rem 0}.tile{background:"
    "var(--card);border:1px solid var(--rule);border-radius:8px;padding:.5rem "
    ".9rem;min-width:8.5rem}.tile b{display:block;font-size:1.25rem;"
    "font-variant-numeric:tabular-nums}.tile "
    "span{color:var(--dim);font-size:.82rem}.card{border-radius:8px;padding:.3rem 1rem "
    ".6rem;margin:"
    ".8rem 0}.card h3{margin-top:.5rem}.card pre{background:var(--bg)}details{margin:.5rem "
    "0}summary{cursor:pointer}.curves{display:flex;"
    "flex-wrap:wrap;gap:.6rem 1.4rem;margin:.4rem "
    "0}svg{display:block;max-width:none}svg.curve{max-width:100%;height:auto}"
    "svg text{fill:var(--fg);font:12px system-ui,-apple-system,sans-serif}svg text.dim,svg "
    "tspan.dim{fill:var(--dim);font-size:11px;font-weight:"
    "400}svg text.bold{font-weight:600}svg text.end{text-anchor:end}svg "
    "text.mid{text-anchor:middle}svg text.label{font-size:11px;paint-order:"
    "stroke;stroke:var(--bg);stroke-width:3px}svg text.warn{fill:var(--alert);font-size:11px}svg "
    "text.key{font-size:11px}tspan.first{fill:"
    "var(--first)}tspan.second{fill:var(--second)}.box{fill:var(--wait);stroke:var(--edge);stroke-"
    "width:.7}.queue{fill:var(--edge)}.edge{fill:"
    "none;stroke:var(--edge);stroke-width:1.5}.tip{fill:var(--edge)}.axis{fill:none;stroke:var(--"
    "rule)}.axis.strong{stroke:var(--edge)}"
    ".line{fill:none;stroke:var(--line);stroke-width:1.6;stroke-linejoin:round}.line.first{stroke:"
    "var(--first)}.line.second{stroke:"
    "var(--second);stroke-width:2}.dot{fill:var(--line)}.dot.second{fill:var(--second)}"
    ".s-done{fill:var(--done);background:var(--done)}.s-failed{fill:var(--bad);background:var(--"
    "bad)}.s-running{fill:var(--run);background:"
    "var(--run)}.s-waiting,.s-pending{fill:var(--wait);background:var(--wait)}.s-cancelled,.s-"
    "purged,.s-unknown,.s-stopped{fill:var(--warn);"
    "background:var(--warn)}@media print{body{margin:0;max-width:none}details{display:block}}";

void lf_html_text(lf_buf *out, const char *text)
{
    for (const char *p = text; p != NULL && *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '&')
            lf_buf_adds(out, "&amp;");
        else if (c == '<')
            lf_buf_adds(out, "&lt;");
        else if (c == '>')
            lf_buf_adds(out, "&gt;");
        else if (c == '"')
            lf_buf_adds(out, "&quot;");
        else if (c == '\'')
            lf_buf_adds(out, "&#39;");
        else if ((c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t')
            lf_buf_addc(out, *p);
    }
}

static const char *text_of(const char *s)
{
    return s != NULL ? s : "";
}

static void cell(lf_buf *b, const char *cls, const char *text)
{
    lf_buf_addf(b, "<td class=\"%s\">", cls);
    lf_html_text(b, text);
    lf_buf_adds(b, "</td>");
}

static void tag(lf_buf *b, const char *state)
{
    lf_buf_addf(b, "<span class=\"tag s-%s\">%s %s</span>", state, lf_state_sign(state), state);
}

static void stage_row(lf_buf *b, const lf_stage_shown *s)
{
    char t[96] = "", dur[32], a[32], z[32];
    lf_buf_adds(b, "<tr>");
    cell(b, "", s->name);
    cell(b, "dim", s->kind);
    lf_buf_adds(b, "<td>");
    tag(b, s->state);
    lf_buf_adds(b, "</td>");
    cell(b, "n", s->duration_s.given ? lf_fmt_duration(dur, sizeof dur, s->duration_s.v) : "-");
    if (s->step.given && s->steps.given)
        snprintf(t, sizeof t, "%s of %s", lf_fmt_value(a, sizeof a, (double)s->step.v),
                 lf_fmt_value(z, sizeof z, (double)s->steps.v));
    else if (s->step.given)
        lf_fmt_value(t, sizeof t, (double)s->step.v);
    cell(b, "n", t[0] != '\0' ? t : "-");
    lf_buf_addf(b, "<td class=\"n\">%d / %d</td>", s->attempts, (int)s->segments.v);
    lf_buf_adds(b, "<td class=\"dim\">");
    lf_html_text(b, s->reason);
    if (s->adopted != NULL) {
        lf_buf_adds(b, "taken over from run <code>");
        lf_html_text(b, s->adopted->run);
        lf_buf_adds(b, "</code>");
    }
    lf_buf_adds(b, "</td></tr>\n");
}

/* ---- the numbers at the top ---- */

static void tile(lf_buf *b, const char *value, const char *what)
{
    lf_buf_adds(b, "<div class=\"tile\"><b>");
    lf_html_text(b, value);
    lf_buf_adds(b, "</b><span>");
    lf_html_text(b, what);
    lf_buf_adds(b, "</span></div>");
}

static double lowest(const lf_stage_view *s, const char *key, double *last)
{
    double low = NAN;
    lf_points p = {0};
    lf_metric_rows records;
    *last = NAN;
    if (lf_metrics_records(&records, s, NULL) == 0 &&
        lf_metrics_points(&p, &records, key, NULL) == 0)
        for (size_t i = 0; i < p.n; i++)
            if (isfinite(p.y[i])) {
                low = p.y[i] >= low ? low : p.y[i];
                *last = p.y[i];
            }
    lf_points_fini(&p);
    lf_metric_rows_fini(&records);
    return low;
}

static void tiles(lf_buf *b, const lf_run_view *v, const lf_run_shown *run)
{
    char text[64], what[128];
    double t0 = INFINITY, t1 = -INFINITY, used = 0, last;
    int done = 0;
    for (size_t i = 0; i < v->n; i++) {
        const lf_stage_shown *s = &run->stages.v[i];
        done += v->stages[i].state == LF_STATE_DONE;
        if (s->t_start.given && s->t_start.v < t0)
            t0 = s->t_start.v;
        double end = s->t_end.given                           ? s->t_end.v
                     : v->stages[i].state == LF_STATE_RUNNING ? lf_wall_s()
                                                              : -(double)INFINITY;
        t1 = end > t1 ? end : t1;
        used += s->duration_s.v;
    }
    lf_buf_adds(b, "<div class=\"tiles\">");
    snprintf(text, sizeof text, "%d of %zu", done, v->n);
    tile(b, text, "stages done");
    if (t1 > t0)
        tile(b, lf_fmt_duration(text, sizeof text, t1 - t0), "from first start to last end");
    if (used > 0)
        tile(b, lf_fmt_duration(text, sizeof text, used), "time in stages");
    for (size_t i = 0; i < v->n; i++) {
        double low = lowest(&v->stages[i], "valid_loss", &last);
        if (!isfinite(low))
            continue;
        snprintf(what, sizeof what, "best validation loss, %s", v->stages[i].plan->name);
        tile(b, lf_fmt_value(text, sizeof text, low), what);
        lowest(&v->stages[i], "tokens", &last);
        snprintf(what, sizeof what, "tokens seen, %s", v->stages[i].plan->name);
        if (isfinite(last))
            tile(b, lf_fmt_value(text, sizeof text, last), what);
    }
    lf_buf_adds(b, "</div>\n");
}

static void head(lf_buf *b, const lf_run_view *v, const lf_run_shown *o)
{
    char when[21];
    lf_buf_adds(
        b,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
        "content=\"width=device-width\"><title>");
    lf_html_text(b, o->name);
    lf_buf_addf(b, " - loong-flow</title><style>%s</style></head><body>\n<h1>", style);
    lf_html_text(b, o->name);
    lf_buf_adds(b, " ");
    tag(b, o->state);
    lf_buf_addf(b, "</h1>\n<p class=\"dim\">run <code>%s</code>, revision %d, made %s by ", o->run,
                v->run.rev, lf_time_iso(when, o->created.v));
    lf_html_text(b, text_of(v->run.plan->user));
    lf_buf_adds(b, " on ");
    lf_html_text(b, text_of(v->run.plan->host));
    lf_buf_adds(b, ", scheduler ");
    lf_html_text(b, text_of(v->run.plan->scheduler));
    lf_buf_addf(b, "; this page: %s, loong-flow %s</p>\n", lf_time_iso(when, lf_wall_s()),
                PACKAGE_VERSION);
}

static void where_and_how(lf_buf *b, const lf_run_view *v)
{
    lf_buf_adds(b, "<h2>Files, and how to repeat</h2>\n<p>Everything of this run lies in <code>");
    lf_html_text(b, v->run.dir);
    lf_buf_addf(b,
                "</code>: the frozen pipeline and executables in <code>rev.%d</code>, a folder for "
                "each stage, in it one for each "
                "start with its log, metrics and outputs.</p>\n<pre>loong-flow resume %s     "
                "   # what is missing, from the last thing saved\n"
                "loong-flow run --new ",
                v->run.rev, v->run.id);
    lf_html_text(b, text_of(v->run.plan->pipeline));
    lf_buf_adds(b, "   # the same again, from nothing\n</pre>\n");
}

int lf_report_html(lf_buf *b, const lf_run_view *v, lf_err *err)
{
    lf_run_shown o;
    int rc = lf_describe_run(&o, v, err);
    if (rc < 0)
        return rc;
    head(b, v, &o);
    tiles(b, v, &o);
    lf_report_failures(b, v, &o);
    lf_report_warnings(b, &o);
    lf_buf_adds(b, "<div class=\"wide\">");
    lf_svg_graph(b, v);
    lf_buf_adds(
        b, "</div>\n<h2>Stages</h2>\n<div class=\"wide\"><table><tr><th>stage<th>kind<th>state<th "
           "class=\"n\">time<th class=\"n\">step"
           "<th class=\"n\">attempts / starts<th></tr>\n");
    for (size_t i = 0; i < o.stages.n; i++)
        stage_row(b, &o.stages.v[i]);
    lf_buf_adds(b, "</table></div>\n<h2>Course</h2>\n<div class=\"wide\">");
    lf_svg_gantt(b, v);
    lf_buf_adds(b, "</div>\n<p class=\"dim\">A bar is one start of a stage, a thin line the "
                   "time its job waited.</p>\n<h2>Metrics</h2>\n");
    for (size_t i = 0; rc == 0 && i < v->n; i++)
        rc = lf_report_curves(b, &v->stages[i], err);
    lf_buf_adds(b, "<h2>Resources</h2>\n");
    lf_report_resources(b, v);
    lf_buf_adds(b, "<h2>Lineage</h2>\n");
    lf_report_lineage(b, v);
    lf_buf_adds(b, "<h2>Settings</h2>\n");
    if (rc == 0)
        rc = lf_report_settings(b, v, err);
    where_and_how(b, v);
    lf_buf_adds(b, "</body></html>\n");
    lf_run_shown_fini(&o);
    return rc == 0 ? lf_buf_check(b, err) : rc;
}
