/* SPDX-License-Identifier: Apache-2.0
 *
 * Graph and course of the report. Colours are CSS variables of the page, so they follow light and
 * dark.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/report/report.h"

#define BOX_W 150
#define BOX_H 44
#define COL_W 205
#define ROW_H 62

const char *lf_state_sign(const char *state)
{
    static const char *const signs[][2] = {
        {"done", "\u2713"},    {"failed", "\u2717"},  {"running", "\u25b6"},
        {"waiting", "\u2026"}, {"pending", "\u25cb"}, {"cancelled", "\u2298"},
        {"purged", "\u2205"},  {"stopped", "\u2016"}, {"unknown", "?"}};
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (strcmp(state, signs[i][0]) == 0)
            return signs[i][1];
    return "?";
}

static const char *name_of(const lf_stage_view *s)
{
    return s->plan->name;
}

/* ---- graph: columns by longest way from a source; edges of a stage over several columns share a
 * place in each they pass ---- */

struct place {
    int col, row;
    double want;  /* mean row of what comes before */
    size_t order; /* as the pipeline has it */
};

struct edge {
    size_t from, to; /* stages */
    int n_hops;      /* columns between */
};

struct drawing {
    struct place *at; /* of the stages */
    struct place *
        *chain; /* chain[i][h]: where edges of stage i pass column at[i].col + 1 + h; into hops */
    int *n_chain;
    struct edge *edges;
    struct place *hops, **column;
    size_t n, n_edges;
    int n_cols, n_rows;
};

static int n_deps(const lf_stage_view *s)
{
    return (int)s->plan->deps.n;
}

static bool find_edges(struct drawing *d, const lf_run_view *v)
{
    size_t most = 0;
    d->n = v->n;
    for (size_t i = 0; i < v->n; i++)
        most += (size_t)n_deps(&v->stages[i]);
    d->at = lf_calloc(v->n + 1, sizeof *d->at, NULL);
    d->edges = lf_calloc(most + 1, sizeof *d->edges, NULL);
    if (d->at == NULL || d->edges == NULL)
        return false;
    for (size_t i = 0; i < v->n; i++) { /* in running order: what is needed stands before */
        d->at[i].order = i;
        for (size_t k = 0; k < v->stages[i].n_deps; k++) {
            size_t from = v->stages[i].deps[k];
            if (from >= i)
                continue;
            d->edges[d->n_edges++] = (struct edge){.from = from, .to = i};
            if (d->at[from].col + 1 > d->at[i].col)
                d->at[i].col = d->at[from].col + 1;
        }
        d->n_cols = d->at[i].col + 1 > d->n_cols ? d->at[i].col + 1 : d->n_cols;
    }
    return true;
}

static bool make_chains(struct drawing *d)
{
    size_t passed = 0;
    d->chain = lf_calloc(d->n + 1, sizeof(struct place *), NULL);
    d->n_chain = lf_calloc(d->n + 1, sizeof *d->n_chain, NULL);
    if (d->chain == NULL || d->n_chain == NULL)
        return false;
    for (size_t e = 0; e < d->n_edges; e++) {
        struct edge *x = &d->edges[e];
        x->n_hops = d->at[x->to].col - d->at[x->from].col - 1;
        if (x->n_hops > d->n_chain[x->from])
            d->n_chain[x->from] = x->n_hops;
    }
    for (size_t i = 0; i < d->n; i++)
        passed += (size_t)d->n_chain[i];
    d->hops = lf_calloc(passed + 1, sizeof *d->hops, NULL);
    d->column = lf_calloc(d->n + passed + 1, sizeof(struct place *), NULL);
    if (d->hops == NULL || d->column == NULL)
        return false;
    struct place *next = d->hops;
    for (size_t i = 0; i < d->n; i++) {
        d->chain[i] = next;
        for (int h = 0; h < d->n_chain[i]; h++)
            *next++ = (struct place){.col = d->at[i].col + 1 + h, .order = d->n + i};
    }
    return true;
}

/* Where an edge comes from when it reaches its stage. */
static const struct place *last_place(const struct drawing *d, const struct edge *x)
{
    return x->n_hops > 0 ? &d->chain[x->from][x->n_hops - 1] : &d->at[x->from];
}

static int by_want(const void *a, const void *b)
{
    const struct place *x = *(struct place *const *)a, *y = *(struct place *const *)b;
    if (x->want != y->want)
        return x->want < y->want ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static void place_column(struct drawing *d, int col)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++) {
        if (d->at[i].col != col)
            continue;
        double sum = 0;
        int k = 0;
        for (size_t e = 0; e < d->n_edges; e++)
            if (d->edges[e].to == i) {
                sum += last_place(d, &d->edges[e])->row;
                k++;
            }
        d->at[i].want = k > 0 ? sum / k : 0;
        d->column[n++] = &d->at[i];
    }
    for (size_t i = 0; i < d->n; i++) {
        int h = col - d->at[i].col - 1;
        if (h < 0 || h >= d->n_chain[i])
            continue;
        d->chain[i][h].want = h > 0 ? d->chain[i][h - 1].row : d->at[i].row;
        d->column[n++] = &d->chain[i][h];
    }
    qsort(d->column, n, sizeof *d->column, by_want);
    int row = -1;
    for (size_t k = 0; k < n; k++) {
        int wish = (int)d->column[k]->want;
        row = wish > row ? wish : row + 1;
        d->column[k]->row = row;
        d->n_rows = row + 1 > d->n_rows ? row + 1 : d->n_rows;
    }
}

static void box(lf_buf *out, const lf_stage_view *s, const struct place *p)
{
    const char *name = name_of(s), *state = lf_state_name(s->state);
    int x = p->col * COL_W + 1, y = p->row * ROW_H + 1;
    lf_buf_addf(out,
                "<g><title>%s: %s</title><rect class=\"box s-%s\" x=\"%d\" y=\"%d\" width=\"%d\" "
                "height=\"%d\" rx=\"7\"/>"
                "<text x=\"%d\" y=\"%d\" class=\"bold\">",
                name, state, state, x, y, BOX_W, BOX_H, x + 11, y + 19);
    char cut[24];
    snprintf(cut, sizeof cut, "%.17s%s", name, strlen(name) > 17 ? ".." : "");
    lf_html_text(out, cut);
    lf_buf_addf(out, "</text><text x=\"%d\" y=\"%d\" class=\"dim\">%s ", x + 11, y + 36,
                lf_state_sign(state));
    lf_html_text(out, state);
    if (strcmp(name, s->plan->kind) != 0) {
        lf_buf_adds(out, " \u00b7 ");
        lf_html_text(out, s->plan->kind);
    }
    lf_buf_adds(out, "</text></g>\n");
}

static void arrow(lf_buf *out, const struct drawing *d, const struct edge *e)
{
    int x = d->at[e->from].col * COL_W + 1 + BOX_W, y = d->at[e->from].row * ROW_H + 1 + BOX_H / 2;
    lf_buf_addf(out, "<path class=\"edge\" d=\"M%d %d", x, y);
    for (int h = 0; h <= e->n_hops; h++) {
        const struct place *p = h < e->n_hops ? &d->chain[e->from][h] : &d->at[e->to];
        int nx = p->col * COL_W + 1 - (h == e->n_hops ? 7 : 0), ny = p->row * ROW_H + 1 + BOX_H / 2,
            half = (nx - x) / 2;
        lf_buf_addf(out, " C%d %d %d %d %d %d", x + half, y, nx - half, ny, nx, ny);
        x = nx;
        y = ny;
        if (h < e->n_hops) {
            x += BOX_W;
            lf_buf_addf(out, " H%d", x);
        }
    }
    lf_buf_addf(out, "\"/><path class=\"tip\" d=\"M%d %d l-8 -4 v8 z\"/>\n", x + 7, y);
}

void lf_svg_graph(lf_buf *out, const lf_run_view *v)
{
    struct drawing d;
    memset(&d, 0, sizeof d);
    if (find_edges(&d, v) && make_chains(&d)) {
        for (int c = 0; c < d.n_cols; c++)
            place_column(&d, c);
        int w = (d.n_cols - 1) * COL_W + BOX_W + 2, h = (d.n_rows - 1) * ROW_H + BOX_H + 2;
        lf_buf_addf(out,
                    "<svg viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" "
                    "aria-label=\"stage graph\">\n",
                    w, h, w, h);
        for (size_t e = 0; e < d.n_edges; e++)
            arrow(out, &d, &d.edges[e]);
        for (size_t i = 0; i < d.n; i++)
            box(out, &v->stages[i], &d.at[i]);
        lf_buf_adds(out, "</svg>\n");
    } else {
        out->failed = true;
    }
    free(d.at);
    free(d.edges);
    free(d.hops);
    free(d.chain);
    free(d.n_chain);
    free(d.column);
}

/* ---- course in time ---- */

#define GANTT_X 150
#define GANTT_W 730

static double end_of(const lf_start *inc, const lf_stage_view *s)
{
    const double t = lf_inc_end(inc), begin = lf_inc_begin(inc);
    if (t > 0)
        return t;
    return s->state == LF_STATE_RUNNING && inc == &s->incs[s->n_incs - 1]
               ? lf_wall_s()
               : begin; /* else nobody knows */
}

/* When the job of a start began to wait: its submission, or the end of the segment
 * before. */
static double queued_at(const lf_stage_view *s, size_t k)
{
    const lf_start *inc = &s->incs[k];
    if (k > 0 && s->incs[k - 1].attempt == inc->attempt)
        return end_of(&s->incs[k - 1], s);
    const struct lf_attempt_rec *a = lf_attempt_of(s, inc);
    return a != NULL && a->t > 0 ? a->t : (double)NAN;
}

static const char *how_it_ended(const lf_start *inc, const lf_stage_view *s)
{
    const char *st = inc->end != NULL ? inc->end->state : NULL;
    if (inc->done != NULL)
        return "done";
    if (st != NULL)
        return st;
    return s->state == LF_STATE_RUNNING && inc == &s->incs[s->n_incs - 1] ? "running" : "unknown";
}

static double tick_step(double span)
{
    static const double steps[] = {1,     2,     5,     10,    15,     30,     60,
                                   120,   300,   600,   900,   1800,   3600,   7200,
                                   10800, 21600, 43200, 86400, 172800, 604800, 2592000};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if (span / steps[i] <= 7)
            return steps[i];
    return span / 7;
}

static void bars(lf_buf *out, const lf_stage_view *s, int y, double t0, double span)
{
    char dur[32], wait[32];
    for (size_t k = 0; k < s->n_incs; k++) {
        const lf_start *inc = &s->incs[k];
        const char *state = how_it_ended(inc, s), *cls = lf_inc_class(inc);
        const char *host = inc->claim != NULL ? inc->claim->process.host : "";
        double a = lf_inc_begin(inc), b = end_of(inc, s), q = queued_at(s, k);
        double x = GANTT_X + (a - t0) / span * GANTT_W, w = (b - a) / span * GANTT_W;
        if (isfinite(q) && q < a)
            lf_buf_addf(out,
                        "<rect class=\"queue\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" "
                        "height=\"4\"><title>waited %s</title></rect>",
                        GANTT_X + (q - t0) / span * GANTT_W, y + 12, (a - q) / span * GANTT_W,
                        lf_fmt_duration(wait, sizeof wait, a - q));
        lf_buf_addf(out,
                    "<rect class=\"box s-%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"20\" "
                    "rx=\"3\"><title>attempt %d, start %d: "
                    "%s%s%s, %s%s",
                    state, x, y + 4, w < 3 ? 3 : w, inc->attempt, inc->epoch, state,
                    cls[0] != '\0' ? ", " : "", cls, lf_fmt_duration(dur, sizeof dur, b - a),
                    host[0] != '\0' ? " on " : "");
        lf_html_text(out, host);
        lf_buf_adds(out, "</title></rect>");
        if (w > 18)
            lf_buf_addf(out, "<text x=\"%.1f\" y=\"%d\">%s</text>", x + 5, y + 18,
                        lf_state_sign(state));
    }
}

void lf_svg_gantt(lf_buf *out, const lf_run_view *v)
{
    double t0 = INFINITY, t1 = -INFINITY;
    int rows = 0;
    for (size_t i = 0; i < v->n; i++) {
        const lf_stage_view *s = &v->stages[i];
        rows += s->n_incs > 0;
        for (size_t k = 0; k < s->n_incs; k++) {
            double a = lf_inc_begin(&s->incs[k]), q = queued_at(s, k);
            a = isfinite(q) && q < a ? q : a;
            t0 = a < t0 ? a : t0;
            t1 = end_of(&s->incs[k], s) > t1 ? end_of(&s->incs[k], s) : t1;
        }
    }
    if (rows == 0) {
        lf_buf_adds(out, "<p class=\"dim\">Nothing has started yet.</p>\n");
        return;
    }
    char text[32];
    double span = t1 - t0 > 1 ? t1 - t0 : 1, tick = tick_step(span);
    int h = rows * 28;
    lf_buf_addf(out,
                "<svg viewBox=\"0 0 900 %d\" width=\"900\" height=\"%d\" role=\"img\" "
                "aria-label=\"course in time\">\n",
                h + 24, h + 24);
    for (double t = 0; t <= span; t += tick) {
        double x = GANTT_X + t / span * GANTT_W;
        lf_buf_addf(out,
                    "<path class=\"axis\" d=\"M%.1f 0V%d\"/><text x=\"%.1f\" y=\"%d\" class=\"dim "
                    "mid\">%s</text>",
                    x, h, x, h + 17, t > 0 ? lf_fmt_duration(text, sizeof text, t) : "0");
    }
    for (size_t i = 0, y = 0; i < v->n; i++) {
        if (v->stages[i].n_incs == 0)
            continue;
        char cut[24];
        snprintf(cut, sizeof cut, "%.18s%s", name_of(&v->stages[i]),
                 strlen(name_of(&v->stages[i])) > 18 ? ".." : "");
        lf_buf_addf(out, "\n<text x=\"0\" y=\"%zu\">", y + 18);
        lf_html_text(out, cut);
        lf_buf_adds(out, "</text>");
        bars(out, &v->stages[i], (int)y, t0, span);
        y += 28;
    }
    lf_buf_adds(out, "\n</svg>\n");
}
