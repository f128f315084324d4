/* SPDX-License-Identifier: Apache-2.0
 *
 * A plot of characters for terminals, as wide as the screen: several curves in one pair of axes,
 * each with a mark of its own.
 */
#ifndef LF_FLOW_PLOT_TEXT_H
#define LF_FLOW_PLOT_TEXT_H

#include "flow/run/series.h"

enum { LF_TEXT_CURVES = 8 }; /* as many marks there are */

typedef struct lf_text_curve {
    const char *label;
    lf_points p; /* borrowed */
} lf_text_curve;

/* Prints title, legend, axes with ticks and curves. A value that is not finite is no point; how
 * many there are is said below. n is at most LF_TEXT_CURVES, width the
 * characters of a line. Nothing is printed when no curve has a point. */
void lf_text_plot(const char *title, const lf_text_curve *curves, size_t n, size_t width);

#endif
