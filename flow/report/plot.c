/* SPDX-License-Identifier: Apache-2.0
 *
 * Curves of the report: axes with ticks at round numbers, one or two lines, marks where something
 * matters.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "flow/report/report.h"

enum { W = 460, H = 230, LEFT = 58, RIGHT = 448, TOP = 26, BOTTOM = 196 };

struct axes {
    double x0, x1, lo, hi; /* lo, hi: of log10 where log */
    bool log;
};

const char *lf_fmt_value(char *buf, size_t cap, double v)
{
    static const char suffix[] = " kMGTPE";
    double a = fabs(v);
    int k = 0;
    if (!isfinite(v)) {
        snprintf(buf, cap, "%s", isnan(v) ? "NaN" : v > 0 ? "infinite" : "-infinite");
        return buf;
    }
    if (a < 10000) {
        snprintf(buf, cap, a != 0 && a < 1e-3 ? "%.3g" : a < 10 ? "%.4g" : "%.5g", v);
        return buf;
    }
    while (a >= 1000 && k < 6) {
        a /= 1000;
        k++;
    }
    snprintf(buf, cap, "%.4g%c", v < 0 ? -a : a, suffix[k]);
    return buf;
}

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
    for (size_t i = 0; p != NULL && i < p->n; i++) {
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
                    "mid\">%s</text>",
                    px(ax, x), BOTTOM, px(ax, x), BOTTOM + 17, lf_fmt_value(text, sizeof text, x));
    lf_buf_addf(out,
                "<path class=\"axis strong\" d=\"M%d %dV%dH%d\"/><text x=\"%d\" y=\"%d\" "
                "class=\"dim end\">step</text>",
                LEFT, TOP, BOTTOM, RIGHT, RIGHT, BOTTOM + 31);
}

/* At most two points a pixel column: the lowest and the highest, so no spike is lost. A value that
 * is not finite cuts the line. */
static void line(lf_buf *out, const struct axes *ax, const lf_points *p, const char *cls)
{
    int last = -1;
    double cmin = 0, cmax = 0;
    bool pen = false;
    lf_buf_addf(out, "<path class=\"line %s\" d=\"", cls);
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

static void mark(lf_buf *out, const struct axes *ax, double x, double y, const char *cls,
                 const char *word)
{
    char text[32], label[64];
    snprintf(label, sizeof label, "%s%s", word, lf_fmt_value(text, sizeof text, y));
    bool right = px(ax, x) > RIGHT - 80;
    lf_buf_addf(out,
                "<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/><text class=\"label%s\" "
                "x=\"%.1f\" y=\"%.1f\">%s</text>",
                cls, px(ax, x), py(ax, y), right ? " end" : "", px(ax, x) + (right ? 0 : 6),
                py(ax, y) - 8 < TOP + 6 ? py(ax, y) + 16 : py(ax, y) - 8, label);
}

static void marks(lf_buf *out, const struct axes *ax, const lf_points *p, const char *cls, bool low)
{
    size_t last = p->n, best = p->n;
    for (size_t i = 0; i < p->n; i++)
        if (usable(ax, p->y[i])) {
            last = i;
            best = best == p->n || p->y[i] < p->y[best] ? i : best;
        }
    if (last == p->n)
        return;
    if (low && best != last && px(ax, p->x[last]) - px(ax, p->x[best]) > 70)
        mark(out, ax, p->x[best], p->y[best], cls, "best ");
    mark(out, ax, p->x[last], p->y[last], cls, low && best == last ? "best, last " : "");
}

void lf_svg_plot(lf_buf *out, const lf_plot *p)
{
    struct axes ax = {.x0 = INFINITY, .x1 = -INFINITY, .lo = INFINITY, .hi = -INFINITY};
    size_t bad = 0;
    span_of(&ax, p->a, &bad);
    span_of(&ax, p->b, &bad);
    if (!isfinite(ax.x0))
        return;
    lf_buf_addf(out,
                "<svg class=\"curve\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                "role=\"img\" aria-label=\"",
                W, H, W, H);
    lf_html_text(out, p->title);
    lf_buf_addf(out, "\"><text x=\"%d\" y=\"14\" class=\"bold\">", LEFT);
    lf_html_text(out, p->title);
    lf_buf_adds(out, "<tspan class=\"dim\" dx=\"6\">");
    lf_html_text(out, p->unit);
    if (!isfinite(ax.lo)) {
        lf_buf_addf(out,
                    "</tspan></text><text x=\"%d\" y=\"%d\" class=\"dim\">no value is a finite "
                    "number (%zu)</text></svg>\n",
                    LEFT, H / 2, bad);
        return;
    }
    widen(&ax, p->log_y);
    lf_buf_addf(out, "%s</tspan></text>", ax.log ? ", logarithmic" : "");
    grid(out, &ax);
    if (p->a != NULL)
        line(out, &ax, p->a, p->b != NULL ? "first" : "");
    if (p->b != NULL) {
        line(out, &ax, p->b, "second");
        lf_buf_addf(out, "<text class=\"key end\" x=\"%d\" y=\"14\"><tspan class=\"first\">\u2501 ",
                    RIGHT);
        lf_html_text(out, p->a_name);
        lf_buf_adds(out, "</tspan><tspan class=\"second\" dx=\"8\">\u2501 ");
        lf_html_text(out, p->b_name);
        lf_buf_adds(out, "</tspan></text>");
    }
    marks(out, &ax, p->b != NULL ? p->b : p->a, p->b != NULL ? "second" : "", p->mark_low);
    if (bad > 0)
        lf_buf_addf(out, "<text x=\"%d\" y=\"%d\" class=\"warn\">%zu value%s not finite</text>",
                    LEFT, BOTTOM + 31, bad, bad == 1 ? " is" : "s are");
    lf_buf_adds(out, "</svg>\n");
}
