/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of what several records contain; for the *_json.c files alone.
 */
#ifndef LF_FLOW_PARTS_H
#define LF_FLOW_PARTS_H

#include "flow/record/fields.h"

extern const struct lf_fields lf_proc_fields; /* lf_proc_id: host, boot, pidns, pid, start */
extern const struct lf_fields lf_used_fields, lf_output_fields;

#endif
