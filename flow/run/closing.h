/* SPDX-License-Identifier: Apache-2.0
 *
 * What came out of a stage, from its records on disk, and that in words. `run` closes a stage with
 * it, `show` prints it.
 */
#ifndef LF_FLOW_RUN_CLOSING_H
#define LF_FLOW_RUN_CLOSING_H

#include "flow/record/closing.h"
#include "flow/run/state.h"

/* Of a stage that is done, or of training that has begun. *out is not given where there is nothing
 * to say. Metrics and texts that cannot be read say nothing. Owned: lf_closing_fini. */
int lf_closing_of(lf_closing *out, const lf_stage_view *s, lf_err *err);

/* In words. The first line has the numbers ("" when there are only rows), such as
 *
 *     loss 9.04 -> 4.02, validation 4.21 (best 4.19 at step 160), 1.5k tokens/s
 *
 * and the others are rows of a table of scores, or the first texts, each cut to a few lines. They
 * may hold control bytes: who prints them for a terminal makes them visible. */
int lf_closing_words(lf_texts *out, const lf_closing *c, lf_err *err);

#endif
