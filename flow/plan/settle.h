/* SPDX-License-Identifier: Apache-2.0
 *
 * Spec ids by what was made. The ids of a frozen document say what a stage would make of results
 * that were trained to their end. A result that ended early (engine/train/early.h) has other bits,
 * so the stage that reads it makes something else: its id follows from
 *
 *   "stage:<spec id of the producer>@<ended_at_step>.<output>"
 *
 * in the place of "stage:<spec id>.<output>" (spec.h), and so on to those that read it in turn.
 * Whoever reads a document with results beside it settles the ids of each stage, after those of the
 * stages that it reads: a view (state.h), the wrapper, and what looks for results to take over.
 */
#ifndef LF_FLOW_SETTLE_H
#define LF_FLOW_SETTLE_H

#include "engine/base/err.h"
#include "flow/record/doc.h"

/* Sets spec_id and settled of a stage of plan; back to what is frozen where nothing that it reads
 * ended early. Those that it reads are settled, and their ended_at_step is set. */
int lf_spec_settle(lf_doc_stage *stage, const lf_doc *plan, lf_err *err);

#endif
