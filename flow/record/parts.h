/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of what several records contain, for the tables of those; and what the *_json.c files
 * share.
 */
#ifndef LF_FLOW_PARTS_H
#define LF_FLOW_PARTS_H

#include "flow/record/event.h"
#include "flow/record/fields.h"

extern const struct lf_fields lf_proc_fields; /* lf_proc_id: host, boot, pidns, pid, start */
extern const struct lf_fields lf_used_fields, lf_output_fields;
/* Of the plan document: strict, and keep what they do not know. */
extern const struct lf_fields lf_doc_fields, lf_doc_stage_fields, lf_spec_fields,
    lf_resources_fields, lf_cost_fields, lf_adopted_fields, lf_doc_input_fields, lf_exe_fields,
    lf_sweep_fields;
extern const struct lf_fields lf_doing_fields, lf_closing_fields;
extern const struct lf_fields lf_sched_job_fields, lf_job_said_fields;

/* Write one event. data: taken; NULL: it could not be made. */
int lf_record_event(const lf_origin *from, const char *kind, struct json_t *data, lf_err *err);

#endif
