/* SPDX-License-Identifier: Apache-2.0
 *
 * How far a stage is, in one line that fits the terminal:
 *
 *     [########............]  42%  3m12s, 4m left  step 103/240  loss 4.2170  1.5k tokens/s
 *
 * Where there is less room, first the bar shrinks, to nothing, and then parts go: the rate, the
 * time taken, the number of starts, the job, the step and the time left. The percent and the loss
 * stay. `watch` and `run` print from here.
 */
#ifndef LF_FLOW_BAR_H
#define LF_FLOW_BAR_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/str.h"
#include "flow/record/shown.h"

#define LF_BAR_MOST ((size_t)20)

/* Is stdout a terminal that understands control sequences (TERM is set and not "dumb")? */
bool lf_bar_terminal(void);
/* Columns of the terminal on stdout; where it does not say them COLUMNS, else 80. */
size_t lf_bar_screen(void);

/* The longest bar, 0 to LF_BAR_MOST, that leaves room for the rest of the stage's line in `width`
 * columns. 0 too where the stage has no progress. Lines that stand below each other take the least
 * of theirs. */
size_t lf_bar_room(const lf_stage_shown *s, size_t width);
/* Add the line of a stage with a bar of so many columns, cut to `width` columns. blank: a stage
 * without progress leaves the bar's place empty. The reason of a state comes last; nothing goes for
 * its sake. */
void lf_bar_add(lf_buf *b, const lf_stage_shown *s, size_t bar, bool blank, size_t width);
/* The parts behind the bar, all of them. */
void lf_bar_details(lf_buf *b, const lf_stage_shown *s);
/* Cut a text to so many columns, between characters. */
void lf_bar_cut(char *text, size_t width);

#endif
