/* SPDX-License-Identifier: Apache-2.0
 *
 * Drawings of the report. Colours are CSS variables of the page, so they follow light and dark.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/sys.h"
#include "flow/report.h"

#define MAX_STAGES 256

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
        else if (c >= 0x20 || c == '\n' || c == '\t')
            lf_buf_addc(out, *p);
    }
}

static const char *name_of(const lf_stage_view *s) { return json_string_value(json_object_get(s->stage, "name")); }

static size_t index_of(const lf_run_view *v, const char *name)
{
    for (size_t i = 0; i < v->n; i++)
        if (strcmp(name_of(&v->stages[i]), name) == 0)
            return i;
    return v->n;
}

/* Column = longest way from a source; stages come in running order, so dependencies are placed before. */
static void layout(const lf_run_view *v, int *col, int *row, int *n_cols, int *n_rows)
{
    int used[MAX_STAGES] = {0};
    *n_cols = *n_rows = 0;
    for (size_t i = 0; i < v->n && i < MAX_STAGES; i++) {
        json_t *deps = json_object_get(v->stages[i].stage, "deps");
        col[i] = 0;
        for (size_t k = 0; k < json_array_size(deps); k++) {
            size_t d = index_of(v, json_string_value(json_array_get(deps, k)));
            if (d < i && col[d] + 1 > col[i])
                col[i] = col[d] + 1;
        }
        row[i] = used[col[i]]++;
        *n_cols = col[i] + 1 > *n_cols ? col[i] + 1 : *n_cols;
        *n_rows = row[i] + 1 > *n_rows ? row[i] + 1 : *n_rows;
    }
}

static void box(lf_buf *out, const lf_stage_view *s, int x, int y)
{
    const char *name = name_of(s);
    lf_buf_addf(out, "<g><rect class=\"box s-%s\" x=\"%d\" y=\"%d\" width=\"150\" height=\"44\" rx=\"6\"/>"
                "<text x=\"%d\" y=\"%d\" class=\"bold\">", lf_state_name(s->state), x, y, x + 10, y + 19);
    char cut[24];
    snprintf(cut, sizeof cut, "%.18s%s", name, strlen(name) > 18 ? ".." : "");
    lf_html_text(out, cut);
    lf_buf_addf(out, "</text><text x=\"%d\" y=\"%d\" class=\"dim\">", x + 10, y + 36);
    lf_html_text(out, json_string_value(json_object_get(s->stage, "kind")));
    lf_buf_addf(out, ", %s</text></g>\n", lf_state_name(s->state));
}

void lf_svg_graph(lf_buf *out, const lf_run_view *v)
{
    int col[MAX_STAGES], row[MAX_STAGES], n_cols = 0, n_rows = 0;
    size_t n = v->n < MAX_STAGES ? v->n : MAX_STAGES;
    layout(v, col, row, &n_cols, &n_rows);
    int w = n_cols * 200 - 30, h = n_rows * 64 - 10;
    lf_buf_addf(out, "<svg viewBox=\"0 0 %d %d\" width=\"%d\" role=\"img\" aria-label=\"stage graph\">\n", w, h, w);
    for (size_t i = 0; i < n; i++) {
        json_t *deps = json_object_get(v->stages[i].stage, "deps");
        for (size_t k = 0; k < json_array_size(deps); k++) {
            size_t d = index_of(v, json_string_value(json_array_get(deps, k)));
            if (d >= n)
                continue;
            int x0 = col[d] * 200 + 151, y0 = row[d] * 64 + 23, x1 = col[i] * 200 + 9, y1 = row[i] * 64 + 23;
            lf_buf_addf(out, "<path class=\"edge\" d=\"M%d %d C%d %d %d %d %d %d\"/><path class=\"tip\" d=\"M%d %d l-8 -4 v8 z\"/>\n",
                        x0, y0, x0 + 25, y0, x1 - 35, y1, x1 - 6, y1, x1 + 1, y1);
        }
    }
    for (size_t i = 0; i < n; i++)
        box(out, &v->stages[i], col[i] * 200 + 10, row[i] * 64 + 1);
    lf_buf_adds(out, "</svg>\n");
}

/* ---- time ---- */

static double end_of(const lf_incarnation *inc)
{
    const json_t *t = json_object_get(inc->end, "t_end");
    if (t == NULL)
        t = json_object_get(inc->done, "t_end");
    return t != NULL ? json_number_value(t) : lf_wall_s();
}

void lf_svg_gantt(lf_buf *out, const lf_run_view *v)
{
    double t0 = INFINITY, t1 = 0;
    int rows = 0;
    for (size_t i = 0; i < v->n; i++) {
        rows += v->stages[i].n_incs > 0;
        for (size_t k = 0; k < v->stages[i].n_incs; k++) {
            double a = json_number_value(json_object_get(v->stages[i].incs[k].claim, "t"));
            t0 = a < t0 ? a : t0;
            t1 = end_of(&v->stages[i].incs[k]) > t1 ? end_of(&v->stages[i].incs[k]) : t1;
        }
    }
    if (rows == 0)
        return;
    double span = t1 > t0 ? t1 - t0 : 1;
    char dur[32];
    lf_buf_addf(out, "<svg viewBox=\"0 0 900 %d\" width=\"900\" role=\"img\" aria-label=\"course in time\">\n", rows * 30 + 24);
    int y = 0;
    for (size_t i = 0; i < v->n; i++) {
        const lf_stage_view *s = &v->stages[i];
        if (s->n_incs == 0)
            continue;
        char cut[32];
        snprintf(cut, sizeof cut, "%.20s", name_of(s));
        lf_buf_addf(out, "<text x=\"0\" y=\"%d\">", y + 18);
        lf_html_text(out, cut);
        lf_buf_adds(out, "</text>\n");
        for (size_t k = 0; k < s->n_incs; k++) {
            const lf_incarnation *inc = &s->incs[k];
            double a = json_number_value(json_object_get(inc->claim, "t")), b = end_of(inc);
            const char *st = json_string_value(json_object_get(inc->end, "state"));
            double x = 160 + (a - t0) / span * 730, w = (b - a) / span * 730;
            lf_buf_addf(out, "<rect class=\"box s-%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"20\" rx=\"3\"><title>attempt %d: %s, "
                        "%s</title></rect>\n", inc->done != NULL ? "done" : st != NULL ? st : "running", x, y + 4,
                        w < 3 ? 3 : w, inc->attempt, inc->done != NULL ? "done" : st != NULL ? st : "no end record",
                        lf_fmt_duration(dur, sizeof dur, b - a));
        }
        y += 30;
    }
    lf_buf_addf(out, "<text x=\"160\" y=\"%d\" class=\"dim\">0</text><text x=\"890\" y=\"%d\" class=\"dim end\">%s</text></svg>\n",
                y + 16, y + 16, lf_fmt_duration(dur, sizeof dur, span));
}

/* ---- curves ---- */

/* At most two points a pixel column: the lowest and the highest, so no spike is lost. */
static void path_of(lf_buf *out, const lf_points *p, double x0, double dx, double lo, double dy)
{
    int last_col = -1;
    double cmin = 0, cmax = 0;
    const char *op = "M";
    for (size_t i = 0; i <= p->n; i++) {
        bool end = i == p->n;
        if (!end && !isfinite(p->y[i]))
            continue;
        double px = end ? 0 : 60 + (p->x[i] - x0) / dx * 380, py = end ? 0 : 20 + (1 - (p->y[i] - lo) / dy) * 150;
        int c = end ? -2 : (int)px;
        if (c == last_col) {
            cmin = py < cmin ? py : cmin;
            cmax = py > cmax ? py : cmax;
            continue;
        }
        if (last_col >= 0) {
            lf_buf_addf(out, "%s%d %.1f", op, last_col, cmin);
            op = "L";
            if (cmax > cmin)
                lf_buf_addf(out, "L%d %.1f", last_col, cmax);
        }
        last_col = c;
        cmin = cmax = py;
    }
}

void lf_svg_curve(lf_buf *out, const char *title, const lf_points *p)
{
    double lo = INFINITY, hi = -INFINITY;
    for (size_t i = 0; i < p->n; i++)
        if (isfinite(p->y[i])) {
            lo = p->y[i] < lo ? p->y[i] : lo;
            hi = p->y[i] > hi ? p->y[i] : hi;
        }
    if (p->n == 0 || !isfinite(lo))
        return;
    double x0 = p->x[0], x1 = p->x[p->n - 1], dx = x1 > x0 ? x1 - x0 : 1, dy = hi > lo ? hi - lo : 1;
    lf_buf_adds(out, "<svg class=\"curve\" viewBox=\"0 0 460 200\" width=\"460\" role=\"img\"><text x=\"60\" y=\"12\" class=\"bold\">");
    lf_html_text(out, title);
    lf_buf_addf(out, "</text><path class=\"axis\" d=\"M60 20V170H440\"/><text x=\"54\" y=\"26\" class=\"dim end\">%.4g</text>"
                "<text x=\"54\" y=\"170\" class=\"dim end\">%.4g</text><text x=\"60\" y=\"188\" class=\"dim\">%.0f</text>"
                "<text x=\"440\" y=\"188\" class=\"dim end\">step %.0f</text>", hi, lo, x0, x1);
    lf_buf_adds(out, "<path class=\"line\" d=\"");
    path_of(out, p, x0, dx, lo, dy);
    lf_buf_adds(out, "\"/>");
    if (p->n == 1)
        lf_buf_adds(out, "<circle class=\"dot\" cx=\"60\" cy=\"170\" r=\"3\"/>");
    lf_buf_adds(out, "</svg>\n");
}
