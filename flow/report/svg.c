/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph of stages. Colours are CSS variables of the page, so they follow light and dark.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "flow/report/report.h"

#define BOX_W 150
#define BOX_H 44

/* Columns go to the right, or down where the page is narrow. */
struct layout {
    bool down;
    int col, row; /* from one to the next */
};
static const struct layout to_the_right = {false, 205, 62}, downwards = {true, 74, 158};

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

struct at {
    int x, y;
};

static struct at corner_of(const struct layout *l, const struct place *p)
{
    const int along = p->col * l->col + 1, across = p->row * l->row + 1;
    return l->down ? (struct at){across, along} : (struct at){along, across};
}

static void box(lf_buf *out, const struct layout *l, const lf_stage_view *s, const struct place *p)
{
    const char *name = name_of(s), *state = lf_state_name(s->state);
    const struct at c = corner_of(l, p);
    char cut[24];
    lf_buf_adds(out, "<g><title>");
    lf_html_text(out, name);
    lf_buf_addf(out,
                ": %s</title><rect class=\"box s-%s\" x=\"%d\" y=\"%d\" width=\"%d\" "
                "height=\"%d\" rx=\"7\"/><text x=\"%d\" y=\"%d\" class=\"bold\">",
                state, state, c.x, c.y, BOX_W, BOX_H, c.x + 11, c.y + 19);
    snprintf(cut, sizeof cut, "%.17s%s", name, strlen(name) > 17 ? ".." : "");
    lf_html_text(out, cut);
    lf_buf_addf(out, "</text><text x=\"%d\" y=\"%d\" class=\"dim\">%s ", c.x + 11, c.y + 36,
                lf_state_sign(state));
    lf_html_text(out, state);
    if (strcmp(name, s->plan->kind) != 0) {
        lf_buf_adds(out, " \u00b7 ");
        lf_html_text(out, s->plan->kind);
    }
    lf_buf_adds(out, "</text></g>\n");
}

/* From (x, y) to (nx, ny) in a curve that leaves and arrives in the direction of the columns. */
static void bend(lf_buf *out, bool down, struct at from, struct at to)
{
    const int hx = (to.x - from.x) / 2, hy = (to.y - from.y) / 2;
    if (down)
        lf_buf_addf(out, " C%d %d %d %d %d %d", from.x, from.y + hy, to.x, to.y - hy, to.x, to.y);
    else
        lf_buf_addf(out, " C%d %d %d %d %d %d", from.x + hx, from.y, to.x - hx, to.y, to.x, to.y);
}

static void arrow(lf_buf *out, const struct layout *l, const struct drawing *d,
                  const struct edge *e)
{
    struct at from = corner_of(l, &d->at[e->from]);
    from.x += l->down ? BOX_W / 2 : BOX_W;
    from.y += l->down ? BOX_H : BOX_H / 2;
    lf_buf_addf(out, "<path class=\"edge\" d=\"M%d %d", from.x, from.y);
    for (int h = 0; h <= e->n_hops; h++) {
        const bool last = h == e->n_hops;
        struct at to = corner_of(l, last ? &d->at[e->to] : &d->chain[e->from][h]);
        to.x += l->down ? BOX_W / 2 : last ? -7 : 0;
        to.y += l->down ? (last ? -7 : 0) : BOX_H / 2;
        bend(out, l->down, from, to);
        from = to;
        if (last)
            continue;
        from.x += l->down ? 0 : BOX_W;
        from.y += l->down ? BOX_H : 0;
        lf_buf_addf(out, l->down ? " V%d" : " H%d", l->down ? from.y : from.x);
    }
    if (l->down)
        lf_buf_addf(out, "\"/><path class=\"tip\" d=\"M%d %d l-4 -8 h8 z\"/>\n", from.x,
                    from.y + 7);
    else
        lf_buf_addf(out, "\"/><path class=\"tip\" d=\"M%d %d l-8 -4 v8 z\"/>\n", from.x + 7,
                    from.y);
}

static void graph(lf_buf *out, const lf_run_view *v, const struct drawing *d,
                  const struct layout *l)
{
    const int along = (d->n_cols - 1) * l->col + (l->down ? BOX_H : BOX_W) + 2,
              across = (d->n_rows - 1) * l->row + (l->down ? BOX_W : BOX_H) + 2,
              w = l->down ? across : along, h = l->down ? along : across;
    lf_buf_addf(out,
                "<svg class=\"graph %s\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                "role=\"img\" aria-label=\"stage graph\">\n",
                l->down ? "narrow" : "broad", w, h, w, h);
    for (size_t e = 0; e < d->n_edges; e++)
        arrow(out, l, d, &d->edges[e]);
    for (size_t i = 0; i < d->n; i++)
        box(out, l, &v->stages[i], &d->at[i]);
    lf_buf_adds(out, "</svg>\n");
}

void lf_svg_graph(lf_buf *out, const lf_run_view *v)
{
    struct drawing d;
    memset(&d, 0, sizeof d);
    if (find_edges(&d, v) && make_chains(&d)) {
        for (int c = 0; c < d.n_cols; c++)
            place_column(&d, c);
        graph(out, v, &d, &to_the_right);
        graph(out, v, &d, &downwards);
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
