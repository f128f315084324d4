/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stage would cost, asked from its executable with --plan, and whether that fits: memory of
 * this machine or the stage's `memory`, free space of data_dir, and time from a measured rate.
 */
#ifndef LF_FLOW_COST_H
#define LF_FLOW_COST_H

#include <jansson.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "flow/cmd/prep.h"

/* Ask every stage that would run. *out: array of {"name","plan":{...} or "error":text}, in order.
 * Stages whose executable is missing have an error too. LF_EINVAL: a stage refuses its settings. */
int lf_cost_ask(json_t **out, const lf_prep *p, lf_err *err);

typedef struct lf_cost_fit {
    /* of a node: the stage's limit; this machine where the scheduler is local; -1 unknown */
    int64_t memory_bytes;
    int64_t disk_free; /* of data_dir, -1 unknown */
} lf_cost_fit;

/* What there is for a stage. */
void lf_cost_limits(lf_cost_fit *out, const lf_prep *p, const lf_doc_stage *stage);
/* LF_ENOMEM or LF_EIO (disk) with the numbers when something cannot fit; costs: array of
 * lf_cost_ask. */
int lf_cost_check(const lf_prep *p, const json_t *costs, lf_err *err);

/* FLOP/s that a done stage of this kind reached in this project (newest first), 0 when none is
 * known. Looked up once a kind. */
double lf_cost_stored_rate(lf_prep *p, const char *kind);

#endif
