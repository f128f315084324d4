/* SPDX-License-Identifier: Apache-2.0
 *
 * What the run is about in words of people, and a card for each model that it trains: what the
 * model is, from what and on what it was made.
 */
#include "config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/sys.h"
#include "flow/report/report.h"

/* ---- description, tags, notes ---- */

static bool has(const lf_report *r, bool tag)
{
    for (size_t i = 0; i < r->n_marks; i++)
        if (r->marks[i].tag == tag)
            return true;
    return false;
}

static void tags(lf_buf *b, const lf_report *r)
{
    lf_buf_adds(b, "<p>");
    for (size_t i = 0; i < r->n_marks; i++)
        if (r->marks[i].tag) {
            lf_buf_adds(b, "<span class=\"tag label\">");
            lf_html_text(b, r->marks[i].text);
            if (r->marks[i].stage != NULL) {
                lf_buf_adds(b, ", ");
                lf_html_text(b, r->marks[i].stage);
            }
            lf_buf_adds(b, "</span> ");
        }
    lf_buf_adds(b, "</p>\n");
}

static void notes(lf_buf *b, const lf_report *r)
{
    char when[21];
    lf_buf_adds(b, "<ul class=\"notes\">\n");
    for (size_t i = 0; i < r->n_marks; i++)
        if (!r->marks[i].tag) {
            lf_buf_adds(b, "<li>");
            lf_html_text(b, r->marks[i].text);
            lf_buf_addf(b, " <span class=\"dim\">%s", lf_time_iso(when, r->marks[i].t));
            if (r->marks[i].by != NULL) {
                lf_buf_adds(b, ", ");
                lf_html_text(b, r->marks[i].by);
            }
            if (r->marks[i].stage != NULL) {
                lf_buf_adds(b, ", about ");
                lf_html_text(b, r->marks[i].stage);
            }
            lf_buf_adds(b, "</span></li>\n");
        }
    lf_buf_adds(b, "</ul>\n");
}

void lf_report_about(lf_buf *b, const lf_report *r)
{
    const char *description = r->view->run.plan->description;
    if (description != NULL && description[0] != '\0')
        lf_html_in(b, "p", "", description);
    if (has(r, true))
        tags(b, r);
    if (has(r, false))
        notes(b, r);
}

/* ---- rows of a card ---- */

static void part(lf_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Parts of a row have commas between them. */
static void part(lf_buf *b, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (b->len > 0)
        lf_buf_adds(b, ", ");
    lf_buf_adds(b, text);
}

/* Takes what is in text; a row without text is left out. */
static void row(lf_buf *b, const char *name, lf_buf *text)
{
    if (text->len > 0) {
        lf_buf_adds(b, "<div><dt>");
        lf_html_text(b, name);
        lf_buf_adds(b, "</dt><dd>");
        lf_html_text(b, text->data);
        lf_buf_adds(b, "</dd></div>\n");
    }
    b->failed = b->failed || text->failed;
    lf_buf_clear(text);
}

static const char *count(char *buf, size_t cap, double v)
{
    return lf_fmt_value(buf, cap, v);
}

static double number_of(const char *text)
{
    double v = NAN;
    return text != NULL && lf_parse_f64(&v, text, NULL) == 0 ? v : (double)NAN;
}

static bool positive(const char *text)
{
    return number_of(text) > 0;
}

static void model_rows(lf_buf *b, lf_buf *t, const lf_facts_stage *s)
{
    char n[32];
    const lf_stage_view *v = s->view;
    const lf_provenance *p = &s->from;
#define M(key) lf_provenance_model(p, v, key)
    if (M("family") != NULL)
        part(t, "%s", M("family"));
    if (v->plan->plan.parameters.given)
        part(t, "%s parameters", count(n, sizeof n, v->plan->plan.parameters.v));
    row(b, "model", t);
    if (M("layers") != NULL)
        part(t, "%s layers", M("layers"));
    if (M("hidden") != NULL)
        part(t, "hidden %s", M("hidden"));
    if (M("heads") != NULL)
        part(t, "%s heads", M("heads"));
    if (M("kv_heads") != NULL && strcmp(M("kv_heads"), "0") != 0)
        part(t, "%s of keys and values", M("kv_heads"));
    if (positive(M("ffn")))
        part(t, "feed-forward %s", M("ffn"));
    if (positive(M("experts")))
        part(t, "%s experts, %s at a time", M("experts"),
             M("experts_per_token") != NULL ? M("experts_per_token") : "?");
    row(b, "shape", t);
    if (M("vocab") != NULL)
        part(t, "%s entries", M("vocab"));
    if (p->trained != NULL && p->trained->tokenizer_sha256 != NULL)
        part(t, "tokenizer %.12s", p->trained->tokenizer_sha256);
    else if (p->dataset != NULL && p->dataset->tokenizer_sha256 != NULL)
        part(t, "tokenizer %.12s", p->dataset->tokenizer_sha256);
    row(b, "vocabulary", t);
    if (M("max_positions") != NULL)
        part(t, "%s tokens", M("max_positions"));
    if (lf_provenance_option(p, v, "seq_length") != NULL)
        part(t, "trained on sequences of %s", lf_provenance_option(p, v, "seq_length"));
    row(b, "context", t);
#undef M
}

static void split_part(lf_buf *t, const char *name, const struct lf_split_said *q)
{
    char a[32], c[32], d[32];
    if (!q->tokens.given || q->tokens.v <= 0)
        return;
    part(t, "%s%s documents with %s tokens", name, count(a, sizeof a, q->docs.v),
         count(c, sizeof c, q->tokens.v));
    if (q->text_bytes.v > 0)
        part(t, "%s of text", lf_fmt_bytes(d, sizeof d, q->text_bytes.v));
}

static void data_rows(lf_buf *b, lf_buf *t, const lf_facts_stage *s)
{
    char n[32];
    const lf_dataset *d = s->from.dataset;
    const double seen = lf_facts_last(s, "tokens");
    for (size_t i = 0; d != NULL && i < d->sources.n && i < 6; i++)
        if (d->sources.v[i].path != NULL)
            part(t, "%s", d->sources.v[i].path);
    if (d != NULL && d->sources.n > 6)
        part(t, "%zu more", d->sources.n - 6);
    row(b, "text", t);
    if (d != NULL)
        split_part(t, "", &d->train);
    row(b, "corpus", t);
    if (d != NULL)
        split_part(t, "", &d->valid);
    row(b, "validation", t);
    if (isfinite(seen))
        part(t, "%s tokens", count(n, sizeof n, seen));
    if (isfinite(seen) && d != NULL && d->train.tokens.v > 0)
        part(t, "%.3g passes over the corpus", seen / d->train.tokens.v);
    row(b, "trained on", t);
}

static void option_part(lf_buf *t, const lf_facts_stage *s, const char *words, const char *name)
{
    const char *v = lf_provenance_option(&s->from, s->view, name);
    if (v != NULL)
        part(t, "%s%s", words, v);
}

static void method_rows(lf_buf *b, lf_buf *t, const lf_facts_stage *s)
{
    char n[32];
    const lf_provenance *p = &s->from;
    const lf_trained *w = p->trained;
    option_part(t, s, "", "precision");
    if (t->len == 0 && w != NULL && w->fingerprint.compute != NULL)
        part(t, "%s", w->fingerprint.compute);
    option_part(t, s, "master weights ", "masters");
    option_part(t, s, "moments ", "moments");
    option_part(t, s, "numeric mode ", "numeric");
    row(b, "precision", t);
    if (w != NULL && w->optimizer.beta1.given)
        part(t, "AdamW, beta %.4g and %.4g, eps %.3g, weight decay %.4g, gradients clipped at %.4g",
             w->optimizer.beta1.v, w->optimizer.beta2.v, w->optimizer.eps.v,
             w->optimizer.weight_decay.v, w->optimizer.clip.v);
    row(b, "optimizer", t);
    if (w != NULL && w->schedule.peak.given && lf_schedule_word(w->schedule.kind.v) != NULL)
        part(t, "%s, %.4g after %s sequences of warm-up, %.4g at the end",
             lf_schedule_word(w->schedule.kind.v), w->schedule.peak.v,
             count(n, sizeof n, w->schedule.warmup.v), w->schedule.min.v);
    else
        option_part(t, s, "", "lr");
    row(b, "learning rate", t);
    const char *batch = lf_provenance_option(p, s->view, "batch");
    if (batch != NULL)
        part(t, "%s sequences a step", batch);
    const double tokens =
        number_of(batch) * number_of(lf_provenance_option(p, s->view, "seq_length"));
    if (isfinite(tokens))
        part(t, "%s tokens", count(n, sizeof n, tokens));
    option_part(t, s, "micro-batch ", "micro_batch");
    row(b, "batch", t);
}

static void hosts_part(lf_buf *t, const lf_machines *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++) {
        bool again = false;
        for (size_t k = 0; k < i; k++)
            again = again || lf_text_same(m->v[k].host, m->v[i].host);
        if (again || m->v[i].host == NULL)
            continue;
        if (n++ < 4)
            part(t, "%s", m->v[i].host);
    }
    if (n > 4)
        part(t, "%zu more", n - 4);
}

static void machine_rows(lf_buf *b, lf_buf *t, const lf_facts_stage *s)
{
    const lf_provenance *p = &s->from;
    const lf_machine *m = p->machines.n > 0 ? &p->machines.v[0] : NULL;
    const int64_t threads = lf_provenance_threads(p, s->view),
                  ranks = lf_provenance_ranks(p, s->view);
    hosts_part(t, &p->machines);
    row(b, p->machines.n > 1 ? "hosts" : "host", t);
    if (m != NULL && m->processor != NULL)
        part(t, "%s", m->processor);
    if (p->trained != NULL && p->trained->fingerprint.kernels != NULL)
        part(t, "kernels %s", p->trained->fingerprint.kernels);
    else if (m != NULL && m->isa != NULL)
        part(t, "kernels %s", m->isa);
    row(b, "processor", t);
    if (m != NULL && m->gpu != NULL)
        part(t, "%lld x %s", (long long)ranks, m->gpu);
    else if (p->trained != NULL && p->trained->fingerprint.device != NULL)
        part(t, "%lld x %s", (long long)ranks, p->trained->fingerprint.device);
    row(b, "GPU", t);
    part(t, "%lld rank%s", (long long)ranks, ranks == 1 ? "" : "s");
    if (threads > 0)
        part(t, "%lld thread%s%s", (long long)threads, threads == 1 ? "" : "s",
             ranks > 1 ? " each" : "");
    row(b, "ranks", t);
}

static void speed_rows(lf_buf *b, lf_buf *t, const lf_facts_stage *s, const lf_run_view *v)
{
    char n[32];
    const double speed = lf_facts_median(s, "tokens_per_s"),
                 flops = lf_facts_median(s, "model_flops_causal"), mfu = lf_facts_median(s, "mfu");
    if (isfinite(speed))
        part(t, "%s tokens a second", count(n, sizeof n, speed));
    if (isfinite(flops))
        part(t, "%s FLOP/s", count(n, sizeof n, flops));
    if (isfinite(mfu))
        part(t, "%.1f %% of the peak", 100 * mfu);
    if (t->len > 0)
        part(t, "the median of the steps");
    row(b, "speed", t);
    if (s->shown->duration_s.given)
        part(t, "%s", lf_fmt_duration(n, sizeof n, s->shown->duration_s.v));
    row(b, "time", t);
    if (v->run.plan->version != NULL)
        part(t, "loong-flow %s", v->run.plan->version);
    if (s->view->plan->exe.sha256 != NULL)
        part(t, "%s %.12s",
             s->view->plan->exe.path != NULL ? s->view->plan->exe.path : "executable",
             s->view->plan->exe.sha256);
    row(b, "code", t);
}

/* A stage that trains: it has weights to count, or has saved some. */
static bool trains(const lf_facts_stage *s)
{
    return s->view->plan->plan.parameters.given ||
           (s->from.trained != NULL && s->from.trained->step.given);
}

void lf_report_card(lf_buf *b, const lf_facts *f)
{
    bool any = false;
    lf_buf t;
    lf_buf_init(&t);
    for (size_t i = 0; i < f->n; i++) {
        const lf_facts_stage *s = &f->stages[i];
        if (!trains(s))
            continue;
        if (!any)
            lf_buf_adds(b, "<h2>Model</h2>\n");
        any = true;
        lf_html_in(b, "h3", "", s->view->plan->name);
        lf_buf_adds(b, "\n<dl class=\"facts\">\n");
        model_rows(b, &t, s);
        data_rows(b, &t, s);
        method_rows(b, &t, s);
        machine_rows(b, &t, s);
        speed_rows(b, &t, s, f->view);
        lf_buf_adds(b, "</dl>\n");
    }
    b->failed = b->failed || t.failed;
    lf_buf_fini(&t);
}
