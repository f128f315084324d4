/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of a stage from the files of its starts. As with the metrics (series.h) a later start
 * replaces what earlier ones wrote behind the step at which it begins.
 */
#ifndef LF_FLOW_SAMPLES_H
#define LF_FLOW_SAMPLES_H

#include "flow/record/made.h"
#include "flow/run/state.h"

/* Every sample that counts, by rising step. Owned: lf_text_lines_fini. A stage without samples has
 * none. */
int lf_samples_records(lf_text_lines *out, const lf_stage_view *s, lf_err *err);

#endif
