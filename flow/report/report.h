/* SPDX-License-Identifier: Apache-2.0
 *
 * One self-contained HTML page about a run: state, graph, course in time, curves, resources,
 * failures, lineage, settings. No scripts, nothing fetched; light and dark by the reader's
 * preference; every text from outside is escaped.
 */
#ifndef LF_FLOW_REPORT_H
#define LF_FLOW_REPORT_H

#include "engine/base/str.h"
#include "flow/record/shown.h"
#include "flow/run/series.h"
#include "flow/run/state.h"

int lf_report_html(lf_buf *out, const lf_run_view *v, lf_err *err);

/* &, <, > and quotes as entities, control bytes left out. */
void lf_html_text(lf_buf *out, const char *text);

/* report_svg.c: the graph of stages (an edge that passes columns gets a row of its own there) and
 * the course in time. */
void lf_svg_graph(lf_buf *out, const lf_run_view *v);
void lf_svg_gantt(lf_buf *out, const lf_run_view *v);
/* A sign for a state, so that colour is not the only one. */
const char *lf_state_sign(const char *state);

/* report_plot.c: one set of axes with one or two curves over the step. Values that are not finite
 * are left out and counted. */
typedef struct lf_plot {
    const char *title, *unit;
    bool log_y;             /* where all values allow it */
    bool mark_low;          /* mark the lowest value of the last curve: for losses */
    const lf_points *a, *b; /* b: NULL, or drawn over a with the name b_name */
    const char *a_name, *b_name;
} lf_plot;
void lf_svg_plot(lf_buf *out, const lf_plot *p);
/* A number as people write it: 1.23M, 0.00152, 4.2103. */
const char *lf_fmt_value(char *buf, size_t cap, double v);

/* report_tables.c: the parts of the page that are tables. */
void lf_report_failures(lf_buf *b, const lf_run_view *v, const lf_run_shown *run);
void lf_report_warnings(lf_buf *b, const lf_run_shown *run);
int lf_report_curves(lf_buf *b, const lf_stage_view *s, lf_err *err);
void lf_report_resources(lf_buf *b, const lf_run_view *v);
void lf_report_lineage(lf_buf *b, const lf_run_view *v);
int lf_report_settings(lf_buf *b, const lf_run_view *v, lf_err *err);

#endif
