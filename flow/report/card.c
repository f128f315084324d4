/* SPDX-License-Identifier: Apache-2.0
 *
 * What the run is about in words of people, and a card for each model that it trains: what the
 * model is, from what and on what it was made.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/sys.h"
#include "flow/record/units.h"
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

/* ---- cards ---- */

static void row(lf_buf *b, const char *name, const char *text)
{
    lf_buf_adds(b, "<div>");
    lf_html_in(b, "dt", "", name);
    lf_html_in(b, "dd", "", text);
    lf_buf_adds(b, "</div>\n");
}

/* How much it saw, by the last of its numbers. */
static void seen_row(lf_buf *b, const lf_facts_stage *s)
{
    char n[32], text[128];
    const lf_dataset *d = s->from.dataset;
    const double seen = lf_facts_last(s, "tokens");
    if (!isfinite(seen))
        return;
    int at = snprintf(text, sizeof text, "%s tokens", lf_fmt_value(n, sizeof n, seen));
    if (d != NULL && d->train.tokens.v > 0)
        snprintf(text + at, sizeof text - (size_t)at, ", %.3g passes over the corpus",
                 seen / d->train.tokens.v);
    row(b, "trained on", text);
}

static void speed_row(lf_buf *b, const lf_facts_stage *s)
{
    char n[32];
    lf_buf t;
    const double speed = lf_facts_median(s, "tokens_per_s"),
                 flops = lf_facts_median(s, "model_flops_causal"), mfu = lf_facts_median(s, "mfu");
    lf_buf_init(&t);
    if (isfinite(speed))
        lf_buf_addf(&t, "%s tokens a second, ", lf_fmt_value(n, sizeof n, speed));
    if (isfinite(flops))
        lf_buf_addf(&t, "%s FLOP/s, ", lf_fmt_value(n, sizeof n, flops));
    if (isfinite(mfu))
        lf_buf_addf(&t, "%.1f %% of the peak, ", 100 * mfu);
    if (t.len > 0) {
        lf_buf_adds(&t, "the median of the steps");
        row(b, "speed", t.data);
    }
    if (s->shown->duration_s.given)
        row(b, "time", lf_fmt_duration(n, sizeof n, s->shown->duration_s.v));
    b->failed = b->failed || t.failed;
    lf_buf_fini(&t);
}

static int card(lf_buf *b, const lf_facts *f, const lf_facts_stage *s, lf_err *err)
{
    lf_pairs rows;
    int rc = lf_provenance_words(&rows, &s->from, f->view, s->view, err);
    if (rc < 0)
        return rc;
    lf_html_in(b, "h3", "", s->view->plan->name);
    lf_buf_adds(b, "\n<dl class=\"facts\">\n");
    for (size_t i = 0; i < rows.n; i++)
        row(b, rows.v[i].name, rows.v[i].value);
    seen_row(b, s);
    speed_row(b, s);
    lf_buf_adds(b, "</dl>\n");
    lf_pairs_fini(&rows);
    return 0;
}

int lf_report_card(lf_buf *b, const lf_facts *f, lf_err *err)
{
    bool any = false;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < f->n; i++) {
        const lf_facts_stage *s = &f->stages[i];
        if (!lf_provenance_trains(&s->from, s->view))
            continue;
        lf_buf_adds(b, any ? "" : "<h2>Model</h2>\n");
        any = true;
        rc = card(b, f, s, err);
    }
    return rc;
}
