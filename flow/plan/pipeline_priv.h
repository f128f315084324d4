/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the pipeline reader share.
 */
#ifndef LF_FLOW_PIPELINE_PRIV_H
#define LF_FLOW_PIPELINE_PRIV_H

#include "flow/plan/pipeline.h"

/* A pipeline that is being read. */
typedef struct lf_reading {
    lf_pipeline *p;
    const lf_pipeline_args *args;
} lf_reading;

/* What became of reading something, rc. A mistake is noted where mistakes are collected, and 0
 * comes back, so that the reader goes on; elsewhere, and without memory, rc comes back. */
int lf_reading_note(const lf_reading *r, int rc, lf_err *err);

/* pipeline_cross.c: what stages demand of each other. Notes or fails as lf_reading_note does. */
int lf_pipeline_cross(const lf_reading *r, lf_err *err);
/* pipeline_model.c: the model description a stage names, as {key: text}. It is not given when the
 * stage has none. */
int lf_pipeline_model(lf_pairs *out, const lf_reading *r, const char *section,
                      const lf_opt_table *table, lf_err *err);
/* pipeline_input.c: the inputs of a stage and the stages they come from. */
int lf_pipeline_inputs(lf_doc_stage *stage, const lf_reading *r, const lf_opt_table *table,
                       lf_err *err);
/* graph.c: "deps" of every stage from inputs and after; the stages in running order. */
int lf_pipeline_order(lf_doc *d, lf_err *err);

/* pipeline_resources.c: "resources" of a stage and its memory_bytes, time_limit_s, grace_s,
 * rerun_on; "site" of the document. Keys are looked for in [stage X], [kind K], [resources]. */
int lf_pipeline_resources(lf_doc_stage *stage, lf_conf *c, const char *section,
                          const char *kind_section, const char *scheduler, lf_err *err);
int lf_pipeline_site(lf_site *site, lf_conf *c, lf_err *err);
bool lf_resource_key(const char *key);
size_t lf_resource_keys(const char **out, size_t cap); /* their names; returns how many */
const char *const *lf_site_keys(size_t *n);

#endif
