/* SPDX-License-Identifier: Apache-2.0
 *
 * Plots of characters.
 */
#include "config.h"

#include "flow/cmd/plot_text.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "flow/cmd/table.h"
#include "flow/report/report.h"

enum { LEFT = 10, HEIGHT = 16, MIN_W = 20, MAX_W = 400 };

static const char marks[LF_TEXT_CURVES + 1] = "*o+x#@%&";
static const char *const colours[LF_TEXT_CURVES] = {"36", "33", "32", "35", "31", "34", "37", "90"};

struct axes {
    double x0, x1, lo, hi;
    int w;
    char cell[HEIGHT][MAX_W];           /* what is drawn */
    unsigned char curve[HEIGHT][MAX_W]; /* of which curve it is, from 1; 0: none */
};

static int column(const struct axes *a, double x)
{
    return (int)lround((x - a->x0) / (a->x1 - a->x0) * (a->w - 1));
}

static int row(const struct axes *a, double y)
{
    return (int)lround((a->hi - y) / (a->hi - a->lo) * (HEIGHT - 1));
}

static void put(struct axes *a, int r, int c, char mark, size_t curve)
{
    if (r < 0 || r >= HEIGHT || c < 0 || c >= a->w)
        return;
    a->cell[r][c] = mark;
    a->curve[r][c] = (unsigned char)(curve + 1);
}

/* 1, 2 or 5 times a power of ten, about a fourth of the span. */
static double tick_step(double span)
{
    double raw = span / 4, p = pow(10, floor(log10(raw))), f = raw / p;
    return p * (f < 1.5 ? 1 : f < 3.5 ? 2 : f < 7.5 ? 5 : 10);
}

/* The next point with a finite value from i on; n: there is none. */
static size_t next_point(const lf_points *p, size_t i)
{
    while (i < p->n && !isfinite(p->y[i]))
        i++;
    return i;
}

static size_t span_of(struct axes *a, const lf_text_curve *curves, size_t n)
{
    size_t bad = 0;
    a->x0 = a->lo = INFINITY;
    a->x1 = a->hi = -(double)INFINITY;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < curves[k].p.n; i++) {
            double x = curves[k].p.x[i], y = curves[k].p.y[i];
            bad += !isfinite(y);
            if (!isfinite(y))
                continue;
            a->x0 = x < a->x0 ? x : a->x0;
            a->x1 = x > a->x1 ? x : a->x1;
            a->lo = y < a->lo ? y : a->lo;
            a->hi = y > a->hi ? y : a->hi;
        }
    return bad;
}

/* A curve of one value, or of one step, lies in the middle. */
static void widen(struct axes *a)
{
    if (a->hi <= a->lo) {
        double d = a->hi != 0 ? fabs(a->hi) * 0.1 : 1;
        a->hi += d;
        a->lo -= d;
    }
    if (a->x1 <= a->x0) {
        a->x1 += 1;
        a->x0 -= 1;
    }
}

/* A steep piece, unless so many points are in a column that they show it themselves. */
static void draw_steep(struct axes *a, const lf_points *p, size_t i, size_t j, size_t curve)
{
    int r0 = row(a, p->y[i]), r1 = row(a, p->y[j]), c = column(a, p->x[j]);
    if (p->n > 2 * (size_t)a->w || c - column(a, p->x[i]) > 1)
        return;
    for (int r = (r0 < r1 ? r0 : r1) + 1; r < (r0 < r1 ? r1 : r0); r++)
        put(a, r, c, '.', curve);
}

/* Dots lead from point to point, so that few points are seen to be one curve. */
static void draw_line(struct axes *a, const lf_points *p, size_t curve)
{
    for (size_t i = next_point(p, 0); i < p->n;) {
        size_t j = next_point(p, i + 1);
        if (j >= p->n)
            return;
        int c0 = column(a, p->x[i]), c1 = column(a, p->x[j]);
        for (int c = c0 + 1; c < c1; c++) {
            double f = (double)(c - c0) / (c1 - c0);
            put(a, row(a, p->y[i] + f * (p->y[j] - p->y[i])), c, '.', curve);
        }
        draw_steep(a, p, i, j, curve);
        i = j;
    }
}

static void draw_points(struct axes *a, const lf_points *p, size_t curve)
{
    for (size_t i = next_point(p, 0); i < p->n; i = next_point(p, i + 1))
        put(a, row(a, p->y[i]), column(a, p->x[i]), marks[curve], curve);
}

/* The label of the row, "" where no tick is. */
static void tick_at(char label[32], const struct axes *a, int r)
{
    double step = tick_step(a->hi - a->lo);
    label[0] = '\0';
    for (double v = ceil(a->lo / step) * step; v <= a->hi + 1e-9 * step; v += step)
        if (row(a, v) == r)
            lf_fmt_value(label, 32, fabs(v) < 1e-9 * step ? 0 : v);
}

static void print_row(const struct axes *a, int r, bool colour)
{
    char label[32];
    int end = a->w;
    tick_at(label, a, r);
    while (end > 0 && a->cell[r][end - 1] == ' ')
        end--;
    printf("%*s %c", LEFT - 2, label, label[0] != '\0' ? '+' : '|');
    for (int c = 0; c < end; c++) {
        unsigned char of = a->curve[r][c];
        if (colour && of > 0)
            printf("\033[%sm%c\033[0m", colours[of - 1], a->cell[r][c]);
        else
            putchar(a->cell[r][c]);
    }
    putchar('\n');
}

static void print_x_axis(const struct axes *a)
{
    char left[32], mid[32], right[32], line[MAX_W + 1];
    printf("%*s +", LEFT - 2, "");
    for (int c = 0; c < a->w; c++)
        putchar('-');
    memset(line, ' ', sizeof line);
    snprintf(left, sizeof left, "%.0f", a->x0);
    snprintf(mid, sizeof mid, "%.0f", (a->x0 + a->x1) / 2);
    snprintf(right, sizeof right, "%.0f", a->x1);
    size_t w = (size_t)a->w, l = strlen(left), m = strlen(mid), r = strlen(right);
    memcpy(line, left, l);
    if (l + m + r + 4 < w && a->x1 - a->x0 >= 2)
        memcpy(line + w / 2 - m / 2, mid, m);
    memcpy(line + (r < w ? w - r : 0), right, r);
    line[w] = '\0';
    printf("\n%*s%s\n", LEFT, "", line);
}

static void print_legend(const char *title, const lf_text_curve *curves, size_t n, bool colour)
{
    lf_say("%s", title);
    for (size_t k = 0; n > 1 && k < n; k++) {
        if (colour)
            printf("   \033[%sm%c\033[0m ", colours[k], marks[k]);
        else
            printf("   %c ", marks[k]);
        lf_say("%s", curves[k].label);
    }
    putchar('\n');
}

void lf_text_plot(const char *title, const lf_text_curve *curves, size_t n, size_t width)
{
    struct axes a;
    bool colour = lf_colour();
    size_t bad = span_of(&a, curves, n);
    if (!isfinite(a.lo))
        return;
    widen(&a);
    a.w = width < LEFT + MIN_W ? MIN_W : width - LEFT > MAX_W ? MAX_W : (int)width - LEFT;
    memset(a.cell, ' ', sizeof a.cell);
    memset(a.curve, 0, sizeof a.curve);
    for (size_t k = 0; k < n; k++)
        draw_line(&a, &curves[k].p, k);
    for (size_t k = 0; k < n; k++)
        draw_points(&a, &curves[k].p, k);
    print_legend(title, curves, n, colour);
    for (int r = 0; r < HEIGHT; r++)
        print_row(&a, r, colour);
    print_x_axis(&a);
    if (bad > 0)
        printf("%*s%zu value%s not finite\n", LEFT, "", bad, bad == 1 ? " is" : "s are");
    putchar('\n');
}
