/* SPDX-License-Identifier: Apache-2.0
 *
 * One self-contained HTML page about a run: stages, graph, course in time, curves, settings, lineage. No scripts, nothing
 * fetched; light and dark by the reader's preference.
 */
#ifndef LF_FLOW_REPORT_H
#define LF_FLOW_REPORT_H

#include "engine/base/str.h"
#include "flow/series.h"
#include "flow/state.h"

int lf_report_html(lf_buf *out, const lf_run_view *v, lf_err *err);

/* report_svg.c: drawings as inline SVG; all text is escaped. */
void lf_svg_graph(lf_buf *out, const lf_run_view *v);
void lf_svg_gantt(lf_buf *out, const lf_run_view *v);
void lf_svg_curve(lf_buf *out, const char *title, const lf_points *p);
/* &, <, > and quotes as entities, control bytes left out. */
void lf_html_text(lf_buf *out, const char *text);

#endif
