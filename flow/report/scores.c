/* SPDX-License-Identifier: Apache-2.0
 *
 * What stages say once and not at every step: scores of an evaluation with their standard errors,
 * counts of a dataset.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "flow/record/fields.h"
#include "flow/record/units.h"
#include "flow/report/report.h"

static bool is_stderr_of(const char *key, const char *base)
{
    const size_t n = strlen(base);
    return strncmp(key, base, n) == 0 && strcmp(key + n, "_stderr") == 0;
}

/* Does it belong to another key's row? */
static bool is_stderr(const lf_facts_stage *s, const char *key)
{
    for (size_t i = 0; i < s->keys.n; i++)
        if (is_stderr_of(key, s->keys.v[i]))
            return true;
    return false;
}

static double stderr_of(const lf_facts_stage *s, const char *key)
{
    for (size_t i = 0; i < s->keys.n; i++)
        if (is_stderr_of(s->keys.v[i], key))
            return lf_facts_last(s, s->keys.v[i]);
    return NAN;
}

/* Counts are whole numbers, which nobody wants rounded. */
static const char *value(char *buf, size_t cap, double v)
{
    if (v == floor(v) && fabs(v) < 1e15)
        snprintf(buf, cap, "%.0f", v);
    else
        lf_fmt_value(buf, cap, v);
    return buf;
}

/* Returns whether it has an error. */
static bool score_row(lf_buf *b, const lf_facts_stage *s, const char *key)
{
    char text[40];
    const char *dot = strrchr(key, '.');
    const lf_unit u = lf_unit_of(key);
    const double v = lf_facts_last(s, key), e = stderr_of(s, key);
    lf_buf_adds(b, "<tr><td class=\"dim\">");
    for (const char *p = key; dot != NULL && p < dot; p++)
        lf_html_text(b, (const char[]){*p, '\0'});
    lf_buf_adds(b, "</td>");
    lf_html_in(b, "td", "", u.title);
    lf_buf_addf(b, "<td class=\"n\" title=\"%.17g\">%s", v, value(text, sizeof text, v));
    if (isfinite(e))
        lf_buf_addf(b, " <span class=\"dim\">\u00b1 %s</span>", lf_fmt_value(text, sizeof text, e));
    lf_buf_adds(b, "</td>");
    lf_html_in(b, "td", "", u.unit);
    lf_html_in(b, "td", "dim", lf_better_word(u.better));
    lf_html_in(b, "td", "dim", u.compare != NULL ? u.compare : "");
    lf_buf_adds(b, "</tr>\n");
    return isfinite(e);
}

void lf_report_scores(lf_buf *b, const lf_facts *f)
{
    bool any = false, errors = false;
    for (size_t i = 0; i < f->n; i++) {
        const lf_facts_stage *s = &f->stages[i];
        if (s->records.n != 1 || s->keys.n == 0)
            continue;
        if (!any)
            lf_buf_adds(b, "<h2>Results</h2>\n");
        any = true;
        lf_html_in(b, "h3", "", s->view->plan->name);
        lf_buf_adds(b, "<div class=\"wide\"><table><tr><th></th><th>what</th>"
                       "<th class=\"n\">value</th><th>unit</th><th>better</th>"
                       "<th>compare with</th></tr>\n");
        for (size_t k = 0; k < s->keys.n; k++)
            if (!is_stderr(s, s->keys.v[k]))
                errors = score_row(b, s, s->keys.v[k]) || errors;
        lf_buf_adds(b, "</table></div>\n");
    }
    if (errors)
        lf_buf_adds(b, "<p class=\"dim\">\u00b1 is the standard error.</p>\n");
}
