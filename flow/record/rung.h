/* SPDX-License-Identifier: Apache-2.0
 *
 * rung.<N>.json of a run: what was decided at rung N of a sweep by successive halving. It is
 * published with link(2), so that the first decision stands.
 */
#ifndef LF_FLOW_RUNG_RECORD_H
#define LF_FLOW_RUNG_RECORD_H

#include <stdbool.h>

#include "engine/base/err.h"
#include "flow/record/values.h"

/* A child that had come to the rung. */
typedef struct lf_rung_row {
    int child;
    char *spec_id; /* of its stage: under other settings it is another child */
    lf_real value; /* of the metric at the rung; not given: it has none that is finite */
    bool kept;
} lf_rung_row;

typedef struct lf_rung {
    int number; /* from 1 */
    int64_t step;
    double t;
    char *metric_stage, *metric;
    LF_ROWS(lf_rung_row) rows; /* from the best to the worst */
} lf_rung;

/* NULL: it is not decided. Freed by lf_rung_free, for which NULL is legal. */
int lf_rung_load(lf_rung **out, const char *run_dir, int number, lf_err *err);
/* LF_EEXIST: it was decided meanwhile. */
int lf_rung_publish(const char *run_dir, const lf_rung *r, lf_err *err);
void lf_rung_free(lf_rung *r);
/* The event of a decision, for the ledger. */
int lf_event_rung(const char *run_dir, const char *run, const lf_rung *r, lf_err *err);

#endif
