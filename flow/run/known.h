/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of the metrics of a kind of stage: which of them people look at first, and by which
 * one a run is judged. flow/record/units.h has their units.
 */
#ifndef LF_FLOW_KNOWN_H
#define LF_FLOW_KNOWN_H

#include <stdbool.h>

/* By which metric a stage is judged. The one of the validation split counts where it is
 * measured. */
typedef struct lf_metric_main {
    const char *key, *valid; /* such as loss, valid_loss */
    bool max;                /* the largest is best, not the smallest */
} lf_metric_main;
/* Never NULL: what has no other one is judged by its loss. */
const lf_metric_main *lf_metric_main_of(const char *kind);
/* Does a stage of this kind train? NULL: no. */
bool lf_metric_trains(const char *kind);

/* Names that a table shows first, the most wanted first; ends with NULL. */
const char *const *lf_metric_first(const char *kind);

#endif
