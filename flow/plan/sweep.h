/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps: one pipeline under several settings, as one run. A child is the pipeline with its
 * settings as --set would put them. The plan of a sweep is that of all children together: a stage
 * that has the same settings, inputs and resources in several children is in it once. A stage that
 * is the same in all children keeps its name; another one is called NAME@K, after the first child K
 * that it is of.
 *
 *   [sweep]
 *   SECTION.KEY = values   an axis; the children are the product of all axes, the last one fastest
 *   zip                    keys of axes that go together, one group a line: their first values make
 *                          one child, their second values the next
 *   seeds                  keys of axes that are repetitions: the outcome has mean and error over
 *                          them
 *   metric                 STAGE.KEY [min|max]: what is compared, and what is better (min)
 *   max_parallel           so many stages of children at once; default: no bound but `jobs`
 *   method                 grid (every child runs to its end) or halving: at each of rungs, steps
 *                          of the stage of `metric`, the best `keep` (1/2) of the children go on
 *                          (flow/run/rung.h)
 *   max_children (100), max_core_hours   a sweep that is larger is refused
 *
 *   values   separated by commas or line breaks; a value that holds one, or blanks at an end,
 *            stands in double quotes, with \" and \\ in them. A..B and A..B..STEP are whole numbers
 *            in a row.
 *
 * --set SECTION.KEY=A,B,C is an axis too, in the place of one of the file. The key of an option
 * that may hold commas itself (a text, a path, one of [resources]) takes the whole value, unless
 * every value is quoted or the key is an axis of the file. One value without a comma replaces an
 * axis of the file.
 */
#ifndef LF_FLOW_SWEEP_H
#define LF_FLOW_SWEEP_H

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "flow/plan/conf.h"
#include "flow/record/doc.h"

#define LF_SWEEP_MOST 10000 /* children */

/* Is it a stage of children, not of all of them? */
static inline bool lf_sweep_is_child(const char *stage)
{
    return __builtin_strchr(stage, '@') != NULL;
}

/* Is this stage what a word names: the one of this name, or in a sweep one of those that the name
 * in the pipeline stands for ("train": "train@1", "train@4" ...)? */
static inline bool lf_sweep_named(const char *stage, const char *word)
{
    const unsigned long n = __builtin_strlen(word);
    return __builtin_strncmp(stage, word, n) == 0 && (stage[n] == '\0' || stage[n] == '@');
}

/* The values of a text, as above; LF_EINVAL says what is wrong. *quoted: every one of them was. */
int lf_sweep_values(lf_texts *out, bool *quoted, const char *text, lf_err *err);

/* The child with this number, NULL: none. */
const lf_sweep_child *lf_sweep_find(const lf_sweep *s, int64_t number);
/* The settings of a child as one line, "train.lr = 1e-3, train.seed = 2". */
void lf_sweep_line(lf_buf *out, const lf_sweep_child *child);

#endif
