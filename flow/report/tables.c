/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the report that are tables: what went wrong, curves and last values, resources, lineage,
 * settings.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/record/record.h"
#include "flow/report/report.h"
#include "flow/run/classify.h"
#include "flow/run/policy.h"

static void text_in(lf_buf *b, const char *tag, const char *cls, const char *text)
{
    lf_buf_addf(b, "<%s%s%s%s>", tag, cls[0] != '\0' ? " class=\"" : "", cls,
                cls[0] != '\0' ? "\"" : "");
    lf_html_text(b, text);
    lf_buf_addf(b, "</%s>", tag);
}

/* ---- what went wrong ---- */

void lf_report_failures(lf_buf *b, const lf_run_view *v, const lf_run_shown *run)
{
    for (size_t i = 0; i < v->n; i++) {
        const lf_stage_view *s = &v->stages[i];
        const lf_stage_shown *o = &run->stages.v[i];
        if (s->state != LF_STATE_FAILED && s->state != LF_STATE_UNKNOWN &&
            s->state != LF_STATE_CANCELLED)
            continue;
        const char *cls = o->cls != NULL ? o->cls : "", *advice = lf_class_advice(cls);
        lf_buf_addf(b, "<section class=\"card s-%s\"><h3>%s ", lf_state_name(s->state),
                    lf_state_sign(lf_state_name(s->state)));
        lf_html_text(b, s->plan->name);
        lf_buf_addf(b, ": %s%s", lf_state_name(s->state), cls[0] != '\0' ? ", " : "");
        lf_html_text(b, cls);
        lf_buf_adds(b, "</h3>");
        text_in(b, "p", "", s->reason);
        if (advice[0] != '\0')
            text_in(b, "p", "", advice);
        if (o->log.n > 0) {
            lf_buf_adds(b, "<pre>");
            for (size_t k = 0; k < o->log.n; k++) {
                lf_html_text(b, o->log.v[k]);
                lf_buf_addc(b, '\n');
            }
            lf_buf_adds(b, "</pre>");
        }
        lf_buf_adds(b, "<p class=\"dim\">whole log: <code>loong-flow logs ");
        lf_html_text(b, s->plan->name);
        lf_buf_addf(
            b,
            " --run %s</code>; after a change: <code>loong-flow resume %s</code></p></section>\n",
            v->run.id, v->run.id);
    }
}

void lf_report_warnings(lf_buf *b, const lf_run_shown *run)
{
    for (size_t i = 0; i < run->stages.n; i++) {
        const lf_stage_shown *o = &run->stages.v[i];
        if (!o->n_warnings.given)
            continue;
        lf_buf_adds(b, "<section class=\"card s-unknown\"><h3>");
        lf_html_text(b, o->name);
        lf_buf_addf(b, ": %lld warning%s</h3><pre>", (long long)o->n_warnings.v,
                    o->n_warnings.v == 1 ? "" : "s");
        for (size_t k = 0; k < o->warnings.n; k++) {
            lf_html_text(b, o->warnings.v[k]);
            lf_buf_addc(b, '\n');
        }
        lf_buf_adds(b, "</pre></section>\n");
    }
}

/* ---- curves ---- */

/* What people look at first, in this order; other keys follow folded away. over: drawn into the
 * same axes. */
static const struct {
    const char *key, *title, *unit, *over, *key_name, *over_name;
    bool log_y, low;
} known[] = {
    {"loss", "Loss", "nats per token", "valid_loss", "training", "validation", false, true},
    {"tokens_per_s", "Throughput", "tokens per second", NULL, NULL, NULL, false, false},
    {"grad_norm", "Gradient norm", "before clipping", NULL, NULL, NULL, true, false},
    {"lr", "Learning rate", "", NULL, NULL, NULL, false, false},
    {"model_flops_causal", "Model FLOP/s", "causal attention counted", NULL, NULL, NULL, false,
     false},
    {"mfu", "Share of the peak", "model FLOP/s by the peak", NULL, NULL, NULL, false, false},
    {"gpu_util", "GPU in use", "share of time", NULL, NULL, NULL, false, false},
    {"rss", "Resident memory", "bytes", NULL, NULL, NULL, false, false},
};
#define N_KNOWN (sizeof known / sizeof known[0])

static bool is_known(const char *key)
{
    for (size_t i = 0; i < N_KNOWN; i++)
        if (strcmp(key, known[i].key) == 0 ||
            (known[i].over != NULL && strcmp(key, known[i].over) == 0))
            return true;
    return strcmp(key, "samples") == 0 || strcmp(key, "tokens") == 0 || strcmp(key, "time") == 0 ||
           strcmp(key, "batch") == 0;
}

static int known_curve(lf_buf *b, size_t i, const lf_metric_rows *records, bool *any, lf_err *err)
{
    lf_points p = {0}, q = {0};
    int rc = lf_metrics_points(&p, records, known[i].key, err);
    if (rc == 0 && known[i].over != NULL)
        rc = lf_metrics_points(&q, records, known[i].over, err);
    if (rc == 0 && (p.n > 1 || q.n > 1)) {
        lf_svg_plot(b, &(lf_plot){.title = known[i].title,
                                  .unit = known[i].unit,
                                  .log_y = known[i].log_y,
                                  .mark_low = known[i].low,
                                  .a = &p,
                                  .b = q.n > 0 ? &q : NULL,
                                  .a_name = known[i].key_name,
                                  .b_name = known[i].over_name});
        *any = true;
    }
    lf_points_fini(&p);
    lf_points_fini(&q);
    return rc;
}

/* The keys that `known` does not list: curves folded away, and one table of those that were written
 * once. */
static int other_keys(lf_buf *b, const lf_metric_rows *records, const lf_texts *keys, lf_err *err)
{
    char text[32];
    lf_buf curves, single;
    lf_buf_init(&curves);
    lf_buf_init(&single);
    int rc = 0;
    for (size_t k = 0; rc == 0 && k < keys->n && k < 200; k++) {
        const char *key = keys->v[k];
        lf_points p = {0};
        rc = lf_metrics_points(&p, records, key, err);
        if (rc == 0 && p.n == 1) {
            lf_buf_adds(&single, "<tr>");
            text_in(&single, "td", "dim", key);
            text_in(&single, "td", "n", lf_fmt_value(text, sizeof text, p.y[0]));
            lf_buf_adds(&single, "</tr>\n");
        } else if (rc == 0 && p.n > 1 && !is_known(key)) {
            lf_svg_plot(&curves, &(lf_plot){.title = key, .unit = "", .a = &p});
        }
        lf_points_fini(&p);
    }
    if (single.len > 0)
        lf_buf_addf(b, "<table class=\"narrow\">\n%s</table>\n", single.data);
    if (curves.len > 0)
        lf_buf_addf(
            b, "<details><summary>More curves</summary><div class=\"curves\">%s</div></details>\n",
            curves.data);
    if (rc == 0)
        rc = lf_buf_check(&curves, err);
    if (rc == 0)
        rc = lf_buf_check(&single, err);
    lf_buf_fini(&curves);
    lf_buf_fini(&single);
    return rc;
}

int lf_report_curves(lf_buf *b, const lf_stage_view *s, lf_err *err)
{
    lf_metric_rows records;
    lf_texts keys = {.n = 0};
    lf_buf body;
    bool any = false;
    int rc = lf_metrics_records(&records, s, err);
    if (rc < 0)
        return rc;
    rc = lf_metric_names(&keys, &records, err);
    lf_buf_init(&body);
    lf_buf_adds(&body, "<div class=\"curves\">");
    for (size_t i = 0; rc == 0 && i < N_KNOWN; i++)
        rc = known_curve(&body, i, &records, &any, err);
    if (!any)
        lf_buf_clear(&body);
    else
        lf_buf_adds(&body, "</div>\n");
    if (rc == 0)
        rc = other_keys(&body, &records, &keys, err);
    if (rc == 0 && body.len > 0) {
        text_in(b, "h3", "", s->plan->name);
        lf_buf_add(b, body.data, body.len);
    }
    lf_buf_fini(&body);
    lf_texts_fini(&keys);
    lf_metric_rows_fini(&records);
    return rc;
}

/* ---- resources ---- */

static double peak_of(const lf_stage_view *s, const char *key)
{
    double most = NAN;
    lf_points p = {0};
    lf_metric_rows records;
    if (lf_metrics_records(&records, s, NULL) == 0 &&
        lf_metrics_points(&p, &records, key, NULL) == 0)
        for (size_t i = 0; i < p.n; i++)
            if (!(p.y[i] <= most))
                most = p.y[i];
    lf_points_fini(&p);
    lf_metric_rows_fini(&records);
    return most;
}

static void time_used(const lf_stage_view *s, double *all, double *longest)
{
    *all = *longest = 0;
    for (size_t k = 0; k < s->n_incs; k++) {
        const double begin = lf_inc_begin(&s->incs[k]);
        const struct lf_end *e = s->incs[k].end;
        double t = e != NULL                                            ? e->t_end - begin
                   : s->state == LF_STATE_RUNNING && k + 1 == s->n_incs ? lf_wall_s() - begin
                                                                        : 0;
        *all += t;
        *longest = t > *longest ? t : *longest;
    }
}

static void pair(lf_buf *b, const char *used, const char *asked)
{
    lf_buf_adds(b, "<td class=\"n\">");
    lf_html_text(b, used[0] != '\0' ? used : "-");
    lf_buf_adds(b, "<span class=\"dim\"> / ");
    lf_html_text(b, asked[0] != '\0' ? asked : "no limit");
    lf_buf_adds(b, "</span></td>");
}

static void resource_row(lf_buf *b, const lf_stage_view *s)
{
    const struct lf_attempt_rec *att = lf_attempt_newest(s);
    const bool asked = att != NULL && att->resources.given;
    const lf_resources *r = asked ? &att->resources : &s->plan->resources;
    int64_t nodes = r->nodes.given ? r->nodes.v : 1, ranks = r->ranks.given ? r->ranks.v : 1;
    /* What the stage says stands above what was known before its data was there. */
    double planned = peak_of(s, "planned_memory");
    if (!isfinite(planned))
        planned = s->plan->plan.bytes.total.v;
    int64_t cpus = r->cpus.v;
    int64_t limit = asked ? r->time_limit_s.v : s->plan->time_limit_s.v,
            memory = asked ? r->memory_bytes.v : s->plan->memory_bytes.v;
    double all, longest, rss = peak_of(s, "rss");
    char u[32], a[32], p[32];
    time_used(s, &all, &longest);
    lf_buf_adds(b, "<tr>");
    text_in(b, "td", "", s->plan->name);
    lf_buf_addf(b, "<td>%lld x %lld", (long long)nodes, (long long)ranks);
    if (cpus > 0)
        lf_buf_addf(b, " x %lld cores", (long long)cpus);
    if (r->gpus.n.v > 0) {
        lf_buf_addf(b, ", %lld GPUs a node ", (long long)r->gpus.n.v);
        lf_html_text(b, r->gpus.type != NULL ? r->gpus.type : "");
    }
    lf_buf_adds(b, "</td>");
    pair(b, longest > 0 ? lf_fmt_duration(u, sizeof u, longest) : "",
         limit > 0 ? lf_fmt_duration(a, sizeof a, (double)limit) : "");
    text_in(b, "td", "n", all > 0 ? lf_fmt_duration(u, sizeof u, all) : "-");
    pair(b, isfinite(rss) ? lf_fmt_bytes(u, sizeof u, rss) : "",
         memory > 0 ? lf_fmt_bytes(a, sizeof a, (double)memory) : "");
    text_in(b, "td", "n", planned > 0 ? lf_fmt_bytes(p, sizeof p, planned) : "-");
    text_in(b, "td", "n dim",
            all > 0 ? lf_fmt_duration(u, sizeof u,
                                      all * (double)(nodes * ranks * (cpus > 0 ? cpus : 1)))
                    : "-");
    lf_buf_adds(b, "</tr>\n");
}

void lf_report_resources(lf_buf *b, const lf_run_view *v)
{
    lf_buf_adds(
        b, "<div class=\"wide\"><table><tr><th>stage<th>nodes x ranks<th "
           "class=\"n\">longest job / asked<th class=\"n\">all jobs"
           "<th class=\"n\">peak memory / asked<th class=\"n\">planned memory<th class=\"n\">core "
           "time</tr>\n");
    for (size_t i = 0; i < v->n; i++)
        resource_row(b, &v->stages[i]);
    lf_buf_adds(b, "</table></div>\n");
}

/* ---- lineage ---- */

static const char *said(const char *text)
{
    return text != NULL ? text : "";
}

static void input_row(lf_buf *b, const lf_run_view *v, const struct lf_used *in)
{
    lf_buf_adds(b, "<tr><td class=\"dim\">read as ");
    lf_html_text(b, in->name);
    lf_buf_adds(b, "</td><td>");
    if (in->stage != NULL) {
        text_in(b, "b", "", said(in->output));
        lf_buf_adds(b, " of ");
        lf_html_text(b, in->stage);
        lf_buf_addf(b, " (attempt %d.%d", in->attempt, in->epoch);
        if (strcmp(said(in->run), v->run.id) != 0) {
            lf_buf_adds(b, ", run <code>");
            lf_html_text(b, said(in->run));
            lf_buf_adds(b, "</code>");
        }
        lf_buf_adds(b, ")");
    } else {
        text_in(b, "code", "", said(in->path));
    }
    lf_buf_adds(b, "</td><td><code class=\"dim\">");
    lf_html_text(b, said(in->sha256));
    lf_buf_adds(b, "</code></td></tr>\n");
}

void lf_report_lineage(lf_buf *b, const lf_run_view *v)
{
    char bytes[32];
    for (size_t i = 0; i < v->n; i++) {
        const lf_stage_view *s = &v->stages[i];
        const struct lf_done *done = s->result_done;
        lf_buf_adds(b, "<details><summary>");
        lf_html_text(b, s->plan->name);
        lf_buf_adds(b, "</summary><div class=\"wide\"><table>\n");
        for (size_t k = 0; done != NULL && k < done->n_inputs; k++)
            input_row(b, v, &done->inputs[k]);
        for (size_t k = 0; done != NULL && k < done->n_outputs; k++) {
            const struct lf_output *o = &done->outputs[k];
            lf_buf_adds(b, "<tr><td class=\"dim\">made ");
            lf_html_text(b, o->name);
            lf_buf_addf(b, "</td><td>%s in %lld file%s, <code>",
                        lf_fmt_bytes(bytes, sizeof bytes, (double)o->bytes), (long long)o->files,
                        o->files == 1 ? "" : "s");
            lf_html_text(b, said(o->path));
            lf_buf_adds(b, "</code></td><td><code class=\"dim\">");
            lf_html_text(b, said(o->manifest_sha256));
            lf_buf_adds(b, "</code></td></tr>\n");
        }
        lf_buf_addf(b,
                    "<tr><td class=\"dim\">spec id</td><td></td><td><code "
                    "class=\"dim\">%s</code></td></tr>\n",
                    s->plan->spec_id);
        lf_buf_addf(b,
                    "<tr><td class=\"dim\">executable</td><td></td><td><code "
                    "class=\"dim\">%s</code></td></tr></table></div>",
                    s->plan->exe.sha256 != NULL ? s->plan->exe.sha256 : "");
        if (s->result_dir != NULL) {
            lf_buf_adds(b, "<p class=\"dim\">in <code>");
            lf_html_text(b, s->result_dir);
            lf_buf_adds(b, "</code></p>");
        }
        lf_buf_adds(b, "</details>\n");
    }
}

/* ---- settings ---- */

/* "section.key" -> value of a resolved pipeline file. */
static int settings_of(lf_pairs *out, char *text, lf_err *err)
{
    char section[512] = "", name[1024], *save = NULL;
    int rc = 0;
    for (char *l = strtok_r(text, "\n", &save); rc == 0 && l != NULL;
         l = strtok_r(NULL, "\n", &save)) {
        char *eq = strstr(l, " = ");
        if (l[0] == '[')
            snprintf(section, sizeof section, "%.*s", (int)strcspn(l + 1, "]"), l + 1);
        else if (l[0] != '#' && eq != NULL) {
            snprintf(name, sizeof name, "[%s] %.*s", section, (int)(eq - l), l);
            rc = lf_pairs_set(out, lf_text_clean(name), lf_text_clean(eq + 3), err);
        }
    }
    return rc;
}

static int load_settings(lf_buf *text, const lf_run_view *v, int rev, lf_err *err)
{
    char path[PATH_MAX];
    int rc = lf_path_set(path, err, "%s/rev.%d/pipeline.ini", v->run.dir, rev);
    return rc == 0 ? lf_io_read_file(path, (size_t)8 << 20, text, err) : rc;
}

static void change_row(lf_buf *b, const char *name, const char *was, const char *is)
{
    lf_buf_adds(b, "<tr>");
    text_in(b, "td", "", name);
    text_in(b, "td", "dim", was != NULL ? was : "(default)");
    text_in(b, "td", "", is != NULL ? is : "(default)");
    lf_buf_adds(b, "</tr>\n");
}

/* Nothing is written when nothing differs. */
static void change_rows(lf_buf *b, const lf_pairs *old, const lf_pairs *new)
{
    for (size_t i = 0; i < new->n; i++) {
        const char *was = lf_pairs_get(old, new->v[i].name);
        if (was == NULL || strcmp(was, new->v[i].value) != 0)
            change_row(b, new->v[i].name, was, new->v[i].value);
    }
    for (size_t i = 0; i < old->n; i++)
        if (lf_pairs_get(new, old->v[i].name) == NULL)
            change_row(b, old->v[i].name, old->v[i].value, NULL);
}

/* What the newest revision of the run changed. */
static int changes(lf_buf *b, const lf_run_view *v, lf_buf *now, lf_err *err)
{
    lf_buf before, rows;
    lf_pairs old = {.n = 0}, new = {.n = 0};
    lf_buf_init(&before);
    lf_buf_init(&rows);
    int rc = load_settings(&before, v, v->run.rev - 1, err);
    bool first = rc == LF_ENOENT;
    char *copy = rc == 0 ? lf_strdup(now->data, err) : NULL;
    if (rc == 0)
        rc = copy == NULL ? LF_ENOMEM : settings_of(&new, copy, err);
    if (rc == 0)
        rc = settings_of(&old, before.data, err);
    if (rc == 0)
        change_rows(&rows, &old, &new);
    if (rows.len > 0)
        lf_buf_addf(b,
                    "<p>Changed by revision %d:</p><table><tr><th>setting<th>before<th>now</tr>\n"
                    "%s</table>\n",
                    v->run.rev, rows.data);
    lf_pairs_fini(&old);
    lf_pairs_fini(&new);
    free(copy);
    lf_buf_fini(&before);
    lf_buf_fini(&rows);
    return first ? 0 : rc;
}

int lf_report_settings(lf_buf *b, const lf_run_view *v, lf_err *err)
{
    lf_buf now;
    lf_buf_init(&now);
    int rc = load_settings(&now, v, v->run.rev, err);
    if (rc == 0 && v->run.rev > 1)
        rc = changes(b, v, &now, err);
    if (rc == 0) {
        lf_buf_addf(b,
                    "<details><summary>pipeline.ini as resolved for revision %d, with the origin "
                    "of every value</summary><pre>",
                    v->run.rev);
        lf_html_text(b, now.data);
        lf_buf_adds(b, "</pre></details>\n");
    }
    lf_buf_fini(&now);
    return rc;
}
