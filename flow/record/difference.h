/* SPDX-License-Identifier: Apache-2.0
 *
 * In what two stages, or the last records of two, differ: any member of theirs, by name.
 */
#ifndef LF_FLOW_DIFFERENCE_H
#define LF_FLOW_DIFFERENCE_H

#include "flow/record/doc.h"
#include "flow/record/fields.h"
#include "flow/record/metric.h"

typedef struct lf_difference {
    char *stage, *what;
    struct json_t *a, *b; /* NULL: it has none; lists of one text are that text */
} lf_difference;
typedef LF_ROWS(lf_difference) lf_differences; /* owned: lf_fields_list_fini */
extern const struct lf_fields lf_difference_fields;

/* a or b NULL: there is no such stage. */
int lf_diff_stages(lf_differences *out, const char *name, const lf_doc_stage *a,
                   const lf_doc_stage *b, lf_err *err);
int lf_diff_records(lf_differences *out, const char *name, const lf_metric_row *a,
                    const lf_metric_row *b, lf_err *err);

#endif
