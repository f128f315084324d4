/* SPDX-License-Identifier: Apache-2.0
 *
 * One self-contained HTML page about a run: state, model, numbers, curves, texts, graph, course in
 * time, resources, failures, lineage, settings. Nothing is fetched, and the page is whole without
 * its script, which adds values under the pointer, other axes and smoothing. Light and dark follow
 * the reader's preference; every text from outside is escaped.
 */
#ifndef LF_FLOW_REPORT_H
#define LF_FLOW_REPORT_H

#include "engine/base/html.h"
#include "engine/base/opt.h"
#include "engine/base/str.h"
#include "flow/record/units.h"
#include "flow/report/facts.h"

/* A tag or a note of people; borrowed. */
typedef struct lf_report_mark {
    const char *stage, *by, *text; /* stage NULL: of the run */
    double t;
    bool tag;
} lf_report_mark;

typedef struct lf_report {
    const lf_run_view *view;
    const lf_report_mark *marks;
    size_t n_marks;
    const lf_run *before; /* the run before, to say what changed; NULL: none */
    int refresh_s;        /* the page reloads itself; 0: it does not */
} lf_report;

int lf_report_html(lf_buf *out, const lf_report *r, lf_err *err);

/* A page about several runs, in the order given: a table with the settings in which they differ and
 * their numbers, and their curves over each other, of the first LF_PLOT_LINES runs. views: n
 * pointers; tables: of the stages, for the defaults of settings. */
int lf_report_several(lf_buf *out, const lf_run_view *const *views, size_t n,
                      const lf_opt_table *const *tables, int refresh_s, lf_err *err);

/* ---- page.c: what every page has ---- */

/* Head with style, and the beginning of the body. */
void lf_page_begin(lf_buf *out, const char *title, int refresh_s);
/* The data of the runs that the plots of this page name by number, the script, the end. */
int lf_page_end(lf_buf *out, const lf_facts *const *runs, size_t n, lf_err *err);

/* <TAG class="CLS">TEXT</TAG>, without a class where cls is "". */
void lf_html_in(lf_buf *out, const char *tag, const char *cls, const char *text);
void lf_html_state(lf_buf *out, const char *state);
/* A sign for a state, so that colour is not the only one. */
const char *lf_state_sign(const char *state);

/* ---- svg.c, course.c ---- */

/* The graph of stages, from left to right and, for narrow pages, from top to bottom. An edge that
 * passes columns gets a row of its own there. */
void lf_svg_graph(lf_buf *out, const lf_run_view *v);
/* The course in time: bars whose places are shares of the width. */
void lf_report_course(lf_buf *out, const lf_run_view *v);

/* ---- plot.c: axes with up to LF_PLOT_LINES curves over the step ---- */

enum { LF_PLOT_LINES = 16, LF_PLOT_COLOURS = 8 };
typedef struct lf_plot_line {
    const char *name;         /* for the legend */
    const lf_facts_stage *of; /* whose key it is */
    const char *key;
    int run, stage; /* places in the data of the page */
    bool best;      /* the legend says the lowest value */
} lf_plot_line;
typedef struct lf_plot {
    const char *title, *unit;
    bool log_y; /* where all values allow it */
    const lf_plot_line *lines;
    size_t n;
    const char *ref_name; /* a level to compare with; NULL: none */
    double ref;
} lf_plot;
/* Values that are not finite are left out and counted. Nothing is written where no line has two
 * points. Returns whether something was. */
int lf_report_plot(lf_buf *out, bool *any, const lf_plot *p, lf_err *err);

/* ---- parts of the page ---- */

/* run: its place in the data of the page. */
int lf_report_curves(lf_buf *b, const lf_facts *f, int run, lf_err *err);
void lf_report_about(lf_buf *b, const lf_report *r);
int lf_report_card(lf_buf *b, const lf_facts *f, lf_err *err);
void lf_report_scores(lf_buf *b, const lf_facts *f);
int lf_report_texts(lf_buf *b, const lf_facts *f, lf_err *err);
/* images: as of lf_text_line; media_dir: where their paths begin, NULL: here. Files that are too
 * large, or not there any more, are named. */
void lf_report_pictures(lf_buf *b, const lf_texts *images, const char *media_dir);
void lf_report_failures(lf_buf *b, const lf_run_view *v, const lf_run_shown *run);
void lf_report_warnings(lf_buf *b, const lf_run_shown *run);
int lf_report_resources(lf_buf *b, const lf_facts *f, lf_err *err);
void lf_report_lineage(lf_buf *b, const lf_run_view *v);
/* before: as in lf_report. */
int lf_report_settings(lf_buf *b, const lf_run_view *v, const lf_run *before, lf_err *err);
/* <script type="application/json" id="data">: all numbers of all stages. A stage with more than
 * LF_DATA_ROWS records, or a fourth of that where there are many runs, has at most half as many
 * rows, each with mean, lowest and highest value of several records. */
enum { LF_DATA_ROWS = 1000, LF_DATA_MANY_RUNS = 4 };
void lf_report_data(lf_buf *b, const lf_facts *const *runs, size_t n);

#endif
