/* SPDX-License-Identifier: Apache-2.0
 *
 * What the metrics of stages mean to people: a title, a unit, which direction is better, and with
 * what a value compares. Keys of a task's metrics are TASK.METRIC; METRIC alone is looked up, and
 * so is the whole key. A metric of a validation split, valid_X, that has no row of its own has all
 * but the title of X.
 */
#ifndef LF_FLOW_UNITS_H
#define LF_FLOW_UNITS_H

#include <stddef.h>

enum lf_better { LF_BETTER_NONE, LF_BETTER_LOW, LF_BETTER_HIGH };

typedef struct lf_unit {
    const char *key, *title;
    const char *unit;   /* in words, for a page */
    const char *symbol; /* for the heading of a column: nats, 1/s, s, B, W, FLOP/s; "": none */
    enum lf_better better;
    const char *compare; /* NULL: nothing is known to compare with */
} lf_unit;

/* No text of it but compare is NULL. An unknown key has itself as title, and a unit where it ends
 * with _s or _per_s. The result of an unknown key lives as long as key. */
lf_unit lf_unit_of(const char *key);
/* "lower", "higher" or "". */
const char *lf_better_word(enum lf_better b);
/* Of the losses of a kind of stage: of models of language it is that of a token. */
const char *lf_loss_unit(const char *kind);
/* A number as people write it: 1.23M, 0.00152, 4.2103. Writes into buf and returns it. */
const char *lf_fmt_value(char *buf, size_t cap, double v);

#endif
