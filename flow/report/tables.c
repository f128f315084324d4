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
#include "flow/record/difference.h"
#include "flow/record/record.h"
#include "flow/record/units.h"
#include "flow/report/report.h"
#include "flow/run/classify.h"
#include "flow/run/policy.h"

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
        lf_html_in(b, "p", "", s->reason);
        if (advice[0] != '\0')
            lf_html_in(b, "p", "", advice);
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
            lf_run_label(&v->run), lf_run_label(&v->run));
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
    const char *key, *over, *key_name, *over_name;
    bool log_y, best;
} known[] = {
    {"loss", "valid_loss", "training", "validation", false, true},
    {"tokens_per_s", NULL, "throughput", NULL, false, false},
    {"pictures_per_s", NULL, "throughput", NULL, false, false},
    {"grad_norm", NULL, "gradient norm", NULL, true, false},
    {"reward", "valid_reward", "training", "validation", false, false},
    {"accuracy", "valid_accuracy", "training", "validation", false, false},
    {"margin", "valid_margin", "training", "validation", false, false},
    {"kl", NULL, "KL", NULL, false, false},
    {"lr", NULL, "learning rate", NULL, false, false},
    {"model_flops_causal", NULL, "FLOP/s", NULL, false, false},
    {"mfu", NULL, "share", NULL, false, false},
    {"gpu_util", NULL, "share", NULL, false, false},
    {"rss", NULL, "memory", NULL, false, false},
};
#define N_KNOWN (sizeof known / sizeof known[0])

static bool is_known(const char *key)
{
    for (size_t i = 0; i < N_KNOWN; i++)
        if (strcmp(key, known[i].key) == 0 ||
            (known[i].over != NULL && strcmp(key, known[i].over) == 0))
            return true;
    return strcmp(key, "samples") == 0 || strcmp(key, "tokens") == 0 ||
           strcmp(key, "pictures") == 0 || strcmp(key, "time") == 0 || strcmp(key, "batch") == 0;
}

/* What counting words would reach, which a model of language has to beat. */
static void compare_loss(lf_plot *p, const lf_facts_stage *s)
{
    const lf_dataset *d = s->from.dataset;
    const lf_real e = d == NULL                        ? (lf_real){.given = false}
                      : d->valid.unigram_entropy.given ? d->valid.unigram_entropy
                                                       : d->train.unigram_entropy;
    if (!e.given || lf_facts_pictures(s) || strcmp(s->view->plan->kind, "pretrain") != 0)
        return;
    p->ref_name = "counting words";
    p->ref = e.v;
}

static int known_curve(lf_buf *b, size_t i, const lf_facts_stage *s, const int at[2], bool *any,
                       lf_err *err)
{
    const lf_unit u = lf_unit_of(known[i].key);
    const lf_plot_line lines[] = {
        {known[i].key_name, s, known[i].key, at[0], at[1], known[i].best && known[i].over == NULL},
        {known[i].over_name, s, known[i].over, at[0], at[1], known[i].best}};
    const bool loss = strcmp(known[i].key, "loss") == 0;
    lf_plot p = {.title = u.title,
                 .unit = loss ? lf_facts_loss_unit(s) : u.unit,
                 .log_y = known[i].log_y,
                 .lines = lines,
                 .n = known[i].over != NULL && lf_facts_key(s, known[i].over) >= 0 ? 2 : 1};
    if (loss)
        compare_loss(&p, s);
    return lf_report_plot(b, any, &p, err);
}

/* The keys that `known` does not list: curves folded away, and one table of those that were written
 * once. */
static int other_keys(lf_buf *b, const lf_facts_stage *s, const int at[2], lf_err *err)
{
    char text[32];
    lf_buf curves, single;
    lf_buf_init(&curves);
    lf_buf_init(&single);
    bool any = false;
    int rc = 0;
    for (size_t k = 0; rc == 0 && k < s->keys.n && k < 200; k++) {
        const char *key = s->keys.v[k];
        const lf_unit u = lf_unit_of(key);
        const bool named = strcmp(u.title, key) != 0;
        lf_points p = {0};
        rc = lf_metrics_points(&p, &s->records, key, err);
        if (rc == 0 && p.n == 1) {
            lf_buf_adds(&single, "<tr>");
            lf_html_in(&single, "td", "dim", u.title);
            lf_buf_addf(&single, "<td class=\"n\">%s</td>",
                        lf_fmt_value(text, sizeof text, p.y[0]));
            lf_html_in(&single, "td", "dim", u.unit);
            lf_buf_adds(&single, "</tr>\n");
        } else if (rc == 0 && p.n > 1 && !is_known(key)) {
            const lf_plot_line one = {key, s, key, at[0], at[1], false};
            rc = lf_report_plot(
                &curves, &any,
                &(lf_plot){.title = named ? u.title : key, .unit = u.unit, .lines = &one, .n = 1},
                err);
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

/* Stages that say their numbers once have them in a table of their own (scores.c). */
int lf_report_curves(lf_buf *b, const lf_facts *f, int run, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < f->n; i++) {
        const lf_facts_stage *s = &f->stages[i];
        const int at[2] = {run, (int)i};
        bool any = false;
        lf_buf body;
        if (s->records.n < 2)
            continue;
        lf_buf_init(&body);
        for (size_t k = 0; rc == 0 && k < N_KNOWN; k++)
            rc = known_curve(&body, k, s, at, &any, err);
        lf_html_in(b, "h3", "", s->view->plan->name);
        if (any)
            lf_buf_addf(b, "<div class=\"curves\">%s</div>\n", body.data);
        b->failed = b->failed || body.failed;
        lf_buf_fini(&body);
        if (rc == 0)
            rc = other_keys(b, s, at, err);
    }
    return rc;
}

/* ---- resources ---- */

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

/* Who computes: nodes, ranks, threads of each, GPUs. */
static void who_cell(lf_buf *b, const lf_facts_stage *f, const lf_resources *r)
{
    const int64_t nodes = lf_int_or(r->nodes, 1), ranks = lf_provenance_ranks(&f->from, f->view),
                  threads = lf_provenance_threads(&f->from, f->view);
    lf_buf_addf(b, "<td>%lld x %lld", (long long)nodes,
                (long long)(ranks > nodes ? ranks / nodes : ranks));
    if (threads > 0)
        lf_buf_addf(b, " x %lld thread%s", (long long)threads, threads == 1 ? "" : "s");
    if (r->gpus.n.v > 0) {
        lf_buf_addf(b, ", %lld GPUs a node ", (long long)r->gpus.n.v);
        lf_html_text(b, r->gpus.type != NULL ? r->gpus.type : "");
    }
    lf_buf_adds(b, "</td>");
}

static void core_cell(lf_buf *b, const lf_core_time *c)
{
    char u[32], h[32];
    lf_buf_addf(b, "<td class=\"n\">%s <span class=\"dim\">/ %s</span></td>",
                c->used_s.given ? lf_fmt_duration(u, sizeof u, c->used_s.v) : "-",
                c->held_s.given ? lf_fmt_duration(h, sizeof h, c->held_s.v) : "-");
}

static int resource_row(lf_buf *b, const lf_facts_stage *f, lf_err *err)
{
    const lf_stage_view *s = f->view;
    const struct lf_attempt_rec *att = lf_attempt_newest(s);
    const bool asked = att != NULL && att->resources.given;
    const lf_resources *r = asked ? &att->resources : &s->plan->resources;
    /* What the stage says stands above what was known before its data was there. */
    double planned = lf_facts_greatest(f, "planned_memory");
    if (!isfinite(planned))
        planned = s->plan->plan.bytes.total.v;
    int64_t limit = asked ? r->time_limit_s.v : s->plan->time_limit_s.v,
            memory = asked ? r->memory_bytes.v : s->plan->memory_bytes.v;
    double all, longest, rss = lf_facts_greatest(f, "rss");
    char u[32], a[32], p[32];
    lf_core_time core;
    int rc = lf_core_time_of(&core, s, err);
    if (rc < 0)
        return rc;
    time_used(s, &all, &longest);
    lf_buf_adds(b, "<tr>");
    lf_html_in(b, "td", "", s->plan->name);
    who_cell(b, f, r);
    pair(b, longest > 0 ? lf_fmt_duration(u, sizeof u, longest) : "",
         limit > 0 ? lf_fmt_duration(a, sizeof a, (double)limit) : "");
    lf_html_in(b, "td", "n", all > 0 ? lf_fmt_duration(u, sizeof u, all) : "-");
    core_cell(b, &core);
    pair(b, isfinite(rss) ? lf_fmt_bytes(u, sizeof u, rss) : "",
         memory > 0 ? lf_fmt_bytes(a, sizeof a, (double)memory) : "");
    lf_html_in(b, "td", "n", planned > 0 ? lf_fmt_bytes(p, sizeof p, planned) : "-");
    lf_buf_adds(b, "</tr>\n");
    return 0;
}

int lf_report_resources(lf_buf *b, const lf_facts *f, lf_err *err)
{
    int rc = 0;
    lf_buf_adds(b, "<div class=\"wide\"><table><tr><th>stage</th><th>nodes x ranks</th>"
                   "<th class=\"n\">longest job / asked</th><th class=\"n\">all jobs</th>"
                   "<th class=\"n\">core time used / held</th>"
                   "<th class=\"n\">peak memory / asked</th><th class=\"n\">planned memory</th>"
                   "</tr>\n");
    for (size_t i = 0; rc == 0 && i < f->n; i++)
        rc = resource_row(b, &f->stages[i], err);
    lf_buf_adds(b, "</table></div>\n<p class=\"dim\">Core time held is ranks x threads x time; "
                   "used is the processor time that the processes took.</p>\n");
    return rc;
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
        lf_html_in(b, "b", "", said(in->output));
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
        lf_html_in(b, "code", "", said(in->path));
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
    lf_html_in(b, "td", "", name);
    lf_html_in(b, "td", "dim", was != NULL ? was : "(default)");
    lf_html_in(b, "td", "", is != NULL ? is : "(default)");
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
                    "<p>Changed by revision "
                    "%d:</p><table><tr><th>setting</th><th>before</th><th>now</th></tr>\n"
                    "%s</table>\n",
                    v->run.rev, rows.data);
    lf_pairs_fini(&old);
    lf_pairs_fini(&new);
    free(copy);
    lf_buf_fini(&before);
    lf_buf_fini(&rows);
    return first ? 0 : rc;
}

static int difference_row(lf_buf *b, const lf_difference *d, lf_err *err)
{
    static const char *const keys[] = {"a", "b"};
    lf_buf_adds(b, "<tr>");
    lf_html_in(b, "td", "dim", d->stage);
    lf_html_in(b, "td", "", d->what);
    for (int i = 0; i < 2; i++) {
        char *text = lf_fields_cell(d, &lf_difference_fields, keys[i], err);
        if (text == NULL)
            return LF_ENOMEM;
        lf_html_in(b, "td", i == 0 ? "dim" : "", text);
        free(text);
    }
    lf_buf_adds(b, "</tr>\n");
    return 0;
}

/* What this run changed against the one before it of the same pipeline. */
static int against_before(lf_buf *b, const lf_run_view *v, const lf_run *before, lf_err *err)
{
    lf_differences d = {.n = 0};
    const lf_doc *old = before->plan;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < v->n; i++)
        rc = lf_diff_stages(&d, v->stages[i].plan->name, lf_doc_find(old, v->stages[i].plan->name),
                            v->stages[i].plan, err);
    for (size_t i = 0; rc == 0 && i < old->stages.n; i++)
        if (lf_view_stage(v, old->stages.v[i].name) == NULL)
            rc = lf_diff_stages(&d, old->stages.v[i].name, &old->stages.v[i], NULL, err);
    lf_buf_addf(b, "<p>%s the run before it, <code>%s</code>%s</p>\n",
                d.n > 0 ? "Changed against" : "No setting differs from", lf_run_label(before),
                d.n > 0 ? ":" : ".");
    if (d.n > 0)
        lf_buf_adds(b, "<div class=\"wide\"><table><tr><th>stage</th><th>what</th><th>before</th>"
                       "<th>now</th></tr>\n");
    for (size_t i = 0; rc == 0 && i < d.n; i++)
        rc = difference_row(b, &d.v[i], err);
    if (d.n > 0)
        lf_buf_adds(b, "</table></div>\n");
    lf_fields_list_fini(&d, &lf_difference_fields);
    return rc;
}

int lf_report_settings(lf_buf *b, const lf_run_view *v, const lf_run *before, lf_err *err)
{
    lf_buf now;
    lf_buf_init(&now);
    int rc = load_settings(&now, v, v->run.rev, err);
    if (rc == 0 && before != NULL)
        rc = against_before(b, v, before, err);
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
