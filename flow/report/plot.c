/* SPDX-License-Identifier: Apache-2.0
 *
 * Curves of the report: axes with ticks at round numbers and up to LF_PLOT_LINES lines. Names and
 * values stand in the legend above the picture, so that no text lies on a curve.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "flow/report/report.h"

/* page.js draws into the same frame. */
enum { W = 460, H = 210, LEFT = 58, RIGHT = 452, TOP = 12, BOTTOM = 178 };

struct axes {
    double x0, x1, lo, hi; /* lo, hi: of log10 where log */
    bool log;
};

static double px(const struct axes *ax, double x)
{
    return LEFT + (x - ax->x0) / (ax->x1 - ax->x0) * (RIGHT - LEFT);
}

static double py(const struct axes *ax, double y)
{
    double v = ax->log ? log10(y) : y;
    return BOTTOM - (v - ax->lo) / (ax->hi - ax->lo) * (BOTTOM - TOP);
}

/* 1, 2 or 5 times a power of ten, so that about n fit. */
static double round_step(double span, int n)
{
    double raw = span / n, p = pow(10, floor(log10(raw))), m = raw / p;
    return (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10) * p;
}

static bool usable(const struct axes *ax, double y)
{
    return isfinite(y) && (!ax->log || y > 0);
}

static void span_of(struct axes *ax, const lf_points *p, size_t *bad)
{
    for (size_t i = 0; i < p->n; i++) {
        ax->x0 = p->x[i] < ax->x0 ? p->x[i] : ax->x0;
        ax->x1 = p->x[i] > ax->x1 ? p->x[i] : ax->x1;
        if (!isfinite(p->y[i])) {
            (*bad)++;
            continue;
        }
        ax->lo = p->y[i] < ax->lo ? p->y[i] : ax->lo;
        ax->hi = p->y[i] > ax->hi ? p->y[i] : ax->hi;
    }
}

/* Room above and below, so that neither lines nor marks touch the frame. */
static void widen(struct axes *ax, bool log_y)
{
    ax->log = log_y && ax->lo > 0 && ax->hi > 4 * ax->lo;
    if (ax->log) {
        ax->lo = log10(ax->lo);
        ax->hi = log10(ax->hi);
    }
    double d = ax->hi - ax->lo;
    if (d <= 0)
        d = ax->hi != 0 ? fabs(ax->hi) * 0.1 : 1;
    bool from_zero = !ax->log && ax->lo >= 0 && ax->lo < 0.3 * ax->hi;
    ax->lo = from_zero ? 0 : ax->lo - 0.06 * d;
    ax->hi += 0.06 * d;
    if (ax->x1 <= ax->x0) {
        ax->x0 -= 1;
        ax->x1 += 1;
    }
}

static void grid(lf_buf *out, const struct axes *ax)
{
    char text[32];
    double step = ax->log ? (ax->hi - ax->lo > 3 ? ceil((ax->hi - ax->lo) / 5) : 1)
                          : round_step(ax->hi - ax->lo, 5);
    int shown = 0;
    for (double v = ceil(ax->lo / step) * step; v <= ax->hi + 1e-9 * step; v += step, shown++) {
        double val = ax->log ? pow(10, v) : fabs(v) < 1e-9 * step ? 0 : v, y = py(ax, val);
        lf_buf_addf(out,
                    "<path class=\"axis\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" class=\"dim "
                    "end\">%s</text>",
                    LEFT, y, RIGHT, LEFT - 6, y + 4, lf_fmt_value(text, sizeof text, val));
    }
    if (ax->log && shown < 2) { /* less than a decade: label the ends too */
        const double at[] = {pow(10, ax->lo + 0.06 * (ax->hi - ax->lo)),
                             pow(10, ax->hi - 0.06 * (ax->hi - ax->lo))};
        for (int i = 0; i < 2; i++)
            lf_buf_addf(out, "<text x=\"%d\" y=\"%.1f\" class=\"dim end\">%s</text>", LEFT - 6,
                        py(ax, at[i]) + 4, lf_fmt_value(text, sizeof text, at[i]));
    }
    double xs = round_step(ax->x1 - ax->x0, 6);
    xs = xs < 1 ? 1 : xs;
    for (double x = ceil(ax->x0 / xs) * xs; x <= ax->x1; x += xs)
        lf_buf_addf(out,
                    "<path class=\"axis\" d=\"M%.1f %dv4\"/><text x=\"%.1f\" y=\"%d\" class=\"dim "
                    "%s\">%s</text>",
                    px(ax, x), BOTTOM, px(ax, x), BOTTOM + 17,
                    px(ax, x) > RIGHT - 12 ? "end" : "mid", lf_fmt_value(text, sizeof text, x));
    lf_buf_addf(out,
                "<path class=\"axis strong\" d=\"M%d %dV%dH%d\"/><text x=\"%d\" y=\"%d\" "
                "class=\"dim end\">step</text>",
                LEFT, TOP, BOTTOM, RIGHT, RIGHT, BOTTOM + 29);
}

/* At most two points a pixel column: the lowest and the highest, so no spike is lost. A value that
 * is not finite cuts the line. */
static void line(lf_buf *out, const struct axes *ax, const lf_points *p, int colour)
{
    int last = -1;
    double cmin = 0, cmax = 0;
    bool pen = false;
    lf_buf_addf(out, "<path class=\"line c%d%s\" d=\"", colour % LF_PLOT_COLOURS,
                colour >= LF_PLOT_COLOURS ? " dash" : "");
    for (size_t i = 0; i <= p->n; i++) {
        bool ok = i < p->n && usable(ax, p->y[i]);
        double y = ok ? py(ax, p->y[i]) : 0;
        int c = ok ? (int)px(ax, p->x[i]) : -2;
        if (ok && c == last) {
            cmin = y < cmin ? y : cmin;
            cmax = y > cmax ? y : cmax;
            continue;
        }
        if (last >= 0) {
            lf_buf_addf(out, "%c%d %.1f", pen ? 'L' : 'M', last, cmin);
            if (cmax > cmin)
                lf_buf_addf(out, "L%d %.1f", last, cmax);
            pen = ok;
        }
        last = c;
        cmin = cmax = y;
    }
    lf_buf_adds(out, "\"/>");
}

/* ---- legend ---- */

static void value_in(lf_buf *out, const char *before, double v)
{
    char text[32];
    lf_buf_addf(out, "%s<b>%s</b>", before, lf_fmt_value(text, sizeof text, v));
}

static void legend(lf_buf *out, const lf_plot_line *l, const lf_points *p, int colour, bool alone)
{
    double step = 0, low = l->best ? lf_facts_lowest(l->of, l->key, &step) : (double)NAN;
    size_t last = p->n;
    for (size_t i = 0; i < p->n; i++)
        last = isfinite(p->y[i]) ? i : last;
    lf_buf_addf(out, "<span class=\"key c%d%s\"><i></i>", colour % LF_PLOT_COLOURS,
                colour >= LF_PLOT_COLOURS ? " dash" : "");
    if (!alone)
        lf_html_text(out, l->name);
    if (last < p->n)
        value_in(out, alone ? "last " : " ", p->y[last]);
    if (last < p->n && isfinite(low) && low == p->y[last])
        lf_buf_adds(out, ", the best");
    else if (isfinite(low)) {
        value_in(out, ", best ", low);
        lf_buf_addf(out, " at %.0f", step);
    }
    lf_buf_adds(out, "</span> ");
}

static void dot(lf_buf *out, const struct axes *ax, double x, double y, int colour)
{
    if (usable(ax, y))
        lf_buf_addf(out, "<circle class=\"dot c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>",
                    colour % LF_PLOT_COLOURS, px(ax, x), py(ax, y));
}

/* The last point of each line, and the lowest one where the legend names it. */
static void dots(lf_buf *out, const struct axes *ax, const lf_plot_line *l, const lf_points *p,
                 int colour)
{
    double step = 0, low = l->best ? lf_facts_lowest(l->of, l->key, &step) : (double)NAN;
    size_t last = p->n;
    for (size_t i = 0; i < p->n; i++)
        last = isfinite(p->y[i]) ? i : last;
    if (last < p->n)
        dot(out, ax, p->x[last], p->y[last], colour);
    if (isfinite(low))
        dot(out, ax, step, low, colour);
}

/* ---- the figure ---- */

static void caption(lf_buf *out, const lf_plot *p, const lf_points *points, bool log)
{
    char text[32];
    lf_buf_adds(out, "<figcaption><b class=\"title\">");
    lf_html_text(out, p->title);
    lf_buf_adds(out, "</b> <span class=\"dim\">");
    lf_html_text(out, p->unit);
    lf_buf_addf(out, "%s</span><br>",
                !log                 ? ""
                : p->unit[0] != '\0' ? ", logarithmic"
                                     : "logarithmic");
    for (size_t i = 0; i < p->n; i++)
        if (points[i].n > 0)
            legend(out, &p->lines[i], &points[i], (int)i, p->n == 1);
    if (p->ref_name != NULL) {
        lf_buf_adds(out, "<span class=\"key ref\"><i></i>");
        lf_html_text(out, p->ref_name);
        lf_buf_addf(out, " <b>%s</b></span>", lf_fmt_value(text, sizeof text, p->ref));
    }
    lf_buf_adds(out, "</figcaption>");
}

/* data-lines: RUN.STAGE.KEY by place in the data of the page, for page.js. */
static void begin(lf_buf *out, const lf_plot *p, const lf_points *points)
{
    const char *blank = "";
    lf_buf_adds(out, "<figure class=\"plot\" data-lines=\"");
    for (size_t i = 0; i < p->n; i++)
        if (points[i].n > 0) {
            lf_buf_addf(out, "%s%d.%d.%d.%zu", blank, p->lines[i].run, p->lines[i].stage,
                        lf_facts_key(p->lines[i].of, p->lines[i].key), i);
            blank = " ";
        }
    lf_buf_addf(out, "\"%s", p->log_y ? " data-log=\"1\"" : "");
    if (p->ref_name != NULL)
        lf_buf_addf(out, " data-ref=\"%.17g\"", p->ref);
    lf_buf_adds(out, ">");
}

static void picture(lf_buf *out, const lf_plot *p, const lf_points *points, const struct axes *ax,
                    size_t bad)
{
    lf_buf_addf(out, "<svg class=\"curve\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", W, H);
    lf_html_text(out, p->title);
    lf_buf_adds(out, "\">");
    if (!isfinite(ax->lo)) {
        lf_buf_addf(out,
                    "<text x=\"%d\" y=\"%d\" class=\"dim\">no value is a finite number "
                    "(%zu)</text></svg></figure>\n",
                    LEFT, H / 2, bad);
        return;
    }
    grid(out, ax);
    if (p->ref_name != NULL && usable(ax, p->ref))
        lf_buf_addf(out, "<path class=\"ref\" d=\"M%d %.1fH%d\"/>", LEFT, py(ax, p->ref), RIGHT);
    for (size_t i = 0; i < p->n; i++)
        if (points[i].n > 0) {
            line(out, ax, &points[i], (int)i);
            dots(out, ax, &p->lines[i], &points[i], (int)i);
        }
    if (bad > 0)
        lf_buf_addf(out, "<text x=\"%d\" y=\"%d\" class=\"warn\">%zu value%s not finite</text>",
                    LEFT, BOTTOM + 29, bad, bad == 1 ? " is" : "s are");
    lf_buf_adds(out, "</svg></figure>\n");
}

static void draw(lf_buf *out, const lf_plot *p, const lf_points *points)
{
    struct axes ax = {.x0 = INFINITY, .x1 = -INFINITY, .lo = INFINITY, .hi = -INFINITY};
    size_t bad = 0;
    for (size_t i = 0; i < p->n; i++)
        span_of(&ax, &points[i], &bad);
    if (p->ref_name != NULL && isfinite(ax.lo)) {
        ax.lo = p->ref < ax.lo ? p->ref : ax.lo;
        ax.hi = p->ref > ax.hi ? p->ref : ax.hi;
    }
    if (isfinite(ax.lo))
        widen(&ax, p->log_y);
    begin(out, p, points);
    caption(out, p, points, ax.log);
    picture(out, p, points, &ax, bad);
}

int lf_report_plot(lf_buf *out, bool *any, const lf_plot *p, lf_err *err)
{
    lf_points points[LF_PLOT_LINES] = {{0}};
    bool enough = false;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        rc = lf_metrics_points(&points[i], &p->lines[i].of->records, p->lines[i].key, err);
        enough = enough || points[i].n > 1;
    }
    if (rc == 0 && enough) {
        draw(out, p, points);
        *any = true;
    }
    for (size_t i = 0; i < p->n; i++)
        lf_points_fini(&points[i]);
    return rc;
}
