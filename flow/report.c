/* SPDX-License-Identifier: Apache-2.0
 *
 * The page of `loong-flow report`.
 */
#include "config.h"

#include "flow/report.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/sys.h"
#include "flow/describe.h"

static const char style[] =
    ":root{--bg:#fff;--fg:#1c2330;--dim:#667085;--line:#2563eb;--rule:#e3e7ee;--card:#f7f8fa;--done:#d9f2e3;--bad:#fbdcdc;"
    "--run:#dbe8ff;--wait:#eef0f4;--warn:#fdf0cf;--edge:#98a2b3}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#12161d;--fg:#e6e9ef;--dim:#98a2b3;--line:#7aa7ff;--rule:#2a3140;"
    "--card:#1a202a;--done:#17402a;--bad:#54212a;--run:#1d3461;--wait:#262d39;--warn:#4a3c14;--edge:#5b667a}}\n"
    "body{background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 "
    "1rem}h1{font-size:1.5rem;margin-bottom:0}h2{font-size:1.1rem;margin:2rem 0 .6rem;border-bottom:1px solid var(--rule)}"
    "table{border-collapse:collapse;width:100%;font-size:.9rem}th,td{text-align:left;padding:.3rem .6rem .3rem 0;vertical-align:"
    "top;border-bottom:1px solid var(--rule)}td.n{text-align:right;font-variant-numeric:tabular-nums}th{color:var(--dim);"
    "font-weight:500}.dim,td.dim{color:var(--dim)}code,pre{font:.85rem/1.4 ui-monospace,monospace;overflow-wrap:anywhere}"
    "pre{background:var(--card);padding:.7rem;border-radius:6px;white-space:pre-wrap}.tag{padding:.05rem .5rem;border-radius:"
    "1rem}.wide{overflow-x:auto}svg{max-width:none;display:block}svg.curve{display:inline-block;margin:.3rem .4rem .6rem 0}"
    "svg text{fill:var(--fg);font:12px system-ui,sans-serif}svg text.dim{fill:var(--dim);font-size:11px}svg text.bold{font-weight:"
    "600}svg text.end{text-anchor:end}.box{fill:var(--wait);stroke:var(--rule)}.edge{fill:none;stroke:var(--edge);stroke-width:"
    "1.5}.tip{fill:var(--edge)}.axis{fill:none;stroke:var(--rule)}.line{fill:none;stroke:var(--line);stroke-width:1.5}"
    ".dot{fill:var(--line)}.s-done{fill:var(--done);background:var(--done)}.s-failed{fill:var(--bad);background:var(--bad)}"
    ".s-running{fill:var(--run);background:var(--run)}.s-waiting,.s-pending{background:var(--wait)}"
    ".s-cancelled,.s-purged,.s-unknown,.s-stopped{fill:var(--warn);background:var(--warn)}details{margin:.5rem 0}";

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s != NULL ? s : "";
}

static void cell(lf_buf *b, const char *cls, const char *text)
{
    lf_buf_addf(b, "<td class=\"%s\">", cls);
    lf_html_text(b, text);
    lf_buf_adds(b, "</td>");
}

static void stage_row(lf_buf *b, const json_t *s)
{
    char t[64] = "", dur[32];
    const char *state = str(s, "state");
    lf_buf_adds(b, "<tr>");
    cell(b, "", str(s, "name"));
    cell(b, "dim", str(s, "kind"));
    lf_buf_addf(b, "<td><span class=\"tag s-%s\">%s</span></td>", state, state);
    if (json_object_get(s, "duration_s") != NULL)
        cell(b, "n", lf_fmt_duration(dur, sizeof dur, json_number_value(json_object_get(s, "duration_s"))));
    else
        cell(b, "n", "-");
    if (json_object_get(s, "step") != NULL)
        lf_fmt_count(t, sizeof t, json_number_value(json_object_get(s, "step")));
    cell(b, "n", t);
    lf_buf_addf(b, "<td class=\"n\">%d</td>", (int)json_integer_value(json_object_get(s, "attempts")));
    cell(b, "dim", str(s, "reason"));
    lf_buf_adds(b, "</tr>\n");
    json_t *log = json_object_get(s, "log");
    if (strcmp(state, "failed") == 0 && json_array_size(log) > 0) {
        lf_buf_adds(b, "<tr><td colspan=\"7\"><pre>");
        for (size_t i = 0; i < json_array_size(log); i++) {
            lf_html_text(b, json_string_value(json_array_get(log, i)));
            lf_buf_addc(b, '\n');
        }
        lf_buf_adds(b, "</pre></td></tr>\n");
    }
}

static int curves(lf_buf *b, const lf_stage_view *s, lf_err *err)
{
    json_t *records = lf_metrics_records(s, err);
    if (records == NULL)
        return err->rc;
    json_t *keys = lf_metrics_keys(records);
    bool head = false;
    int rc = 0;
    for (size_t k = 0; rc == 0 && k < json_array_size(keys) && k < 24; k++) {
        const char *key = json_string_value(json_array_get(keys, k));
        lf_points p;
        if (strcmp(key, "samples") == 0 || strcmp(key, "tokens") == 0 || strcmp(key, "time") == 0)
            continue; /* they only grow with the steps */
        rc = lf_metrics_points(&p, records, key, err);
        if (rc < 0)
            break;
        if (!head && p.n > 0) {
            lf_buf_adds(b, "<h2>Curves of ");
            lf_html_text(b, str(s->stage, "name"));
            lf_buf_adds(b, "</h2>\n<div>");
            head = true;
        }
        lf_svg_curve(b, key, &p);
        lf_points_fini(&p);
    }
    if (head)
        lf_buf_adds(b, "</div>\n");
    json_decref(keys);
    json_decref(records);
    return rc;
}

static void map_rows(lf_buf *b, json_t *o, const char *prefix)
{
    const char *k;
    json_t *v;
    json_object_foreach(o, k, v)
    {
        lf_buf_adds(b, "<tr>");
        lf_buf_adds(b, "<td class=\"dim\">");
        lf_html_text(b, prefix);
        lf_html_text(b, k);
        lf_buf_adds(b, "</td><td><code>");
        for (size_t i = 0; json_is_array(v) && i < json_array_size(v); i++) {
            lf_buf_adds(b, i > 0 ? "<br>" : "");
            lf_html_text(b, json_string_value(json_array_get(v, i)));
        }
        if (json_is_string(v))
            lf_html_text(b, json_string_value(v));
        lf_buf_adds(b, "</code></td></tr>\n");
    }
}

static void lineage(lf_buf *b, const lf_stage_view *s)
{
    json_t *inputs = json_object_get(s->result_done, "inputs"), *outs = json_object_get(s->result_done, "outputs"), *v;
    const char *k;
    char bytes[32];
    for (size_t i = 0; i < json_array_size(inputs); i++) {
        const json_t *in = json_array_get(inputs, i);
        lf_buf_adds(b, "<tr><td class=\"dim\">read as ");
        lf_html_text(b, str(in, "name"));
        lf_buf_adds(b, "</td><td>");
        if (json_object_get(in, "stage") != NULL) {
            lf_html_text(b, str(in, "output"));
            lf_buf_adds(b, " of ");
            lf_html_text(b, str(in, "stage"));
            lf_buf_adds(b, ", run <code>");
            lf_html_text(b, str(in, "run"));
            lf_buf_adds(b, "</code>");
        } else {
            lf_html_text(b, str(in, "path"));
            lf_buf_addf(b, " <code class=\"dim\">sha256 %.16s</code>", str(in, "sha256"));
        }
        lf_buf_adds(b, "</td></tr>\n");
    }
    json_object_foreach(outs, k, v)
    {
        lf_buf_adds(b, "<tr><td class=\"dim\">made ");
        lf_html_text(b, k);
        lf_buf_addf(b, "</td><td>%s in %lld files, <code class=\"dim\">manifest %.16s</code></td></tr>\n",
                    lf_fmt_bytes(bytes, sizeof bytes, json_number_value(json_object_get(v, "bytes"))),
                    (long long)json_integer_value(json_object_get(v, "files")), str(v, "manifest_sha256"));
    }
    lf_buf_addf(b, "<tr><td class=\"dim\">spec id</td><td><code>%s</code></td></tr>\n", str(s->stage, "spec_id"));
    lf_buf_addf(b, "<tr><td class=\"dim\">executable</td><td><code>%s</code></td></tr>\n",
                str(json_object_get(s->stage, "exe"), "sha256"));
}

int lf_report_html(lf_buf *b, const lf_run_view *v, lf_err *err)
{
    char when[21];
    json_t *o = lf_describe_run(v);
    if (o == NULL)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    json_t *stages = json_object_get(o, "stages");
    lf_buf_adds(b, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
                "content=\"width=device-width\"><title>");
    lf_html_text(b, str(o, "name"));
    lf_buf_addf(b, " - loong-flow</title><style>%s</style></head><body>\n<h1>", style);
    lf_html_text(b, str(o, "name"));
    lf_buf_addf(b, " <span class=\"tag s-%s\">%s</span></h1>\n<p class=\"dim\">run <code>%s</code>, made %s by ", str(o, "state"),
                str(o, "state"), str(o, "run"), lf_time_iso(when, json_number_value(json_object_get(o, "created"))));
    lf_html_text(b, str(v->run.doc, "user"));
    lf_buf_addf(b, ", looked at %s, loong-flow %s</p>\n", lf_time_iso(when, lf_wall_s()), PACKAGE_VERSION);
    lf_buf_adds(b, "<div class=\"wide\">");
    lf_svg_graph(b, v);
    lf_buf_adds(b, "</div>\n<h2>Stages</h2>\n<table><tr><th>stage<th>kind<th>state<th>time<th>step<th>tries<th></tr>\n");
    for (size_t i = 0; i < json_array_size(stages); i++)
        stage_row(b, json_array_get(stages, i));
    lf_buf_adds(b, "</table>\n<h2>Course</h2>\n<div class=\"wide\">");
    lf_svg_gantt(b, v);
    lf_buf_adds(b, "</div>\n");
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < v->n; i++)
        rc = curves(b, &v->stages[i], err);
    lf_buf_adds(b, "<h2>Settings and lineage</h2>\n");
    for (size_t i = 0; rc == 0 && i < v->n; i++) {
        lf_buf_adds(b, "<details><summary>");
        lf_html_text(b, str(v->stages[i].stage, "name"));
        lf_buf_adds(b, "</summary><table>\n");
        map_rows(b, json_object_get(v->stages[i].stage, "options"), "");
        map_rows(b, json_object_get(v->stages[i].stage, "model"), "model ");
        lineage(b, &v->stages[i]);
        lf_buf_adds(b, "</table></details>\n");
    }
    lf_buf_adds(b, "</body></html>\n");
    json_decref(o);
    return rc == 0 ? lf_buf_check(b, err) : rc;
}
