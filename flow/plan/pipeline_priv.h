/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the pipeline reader share.
 */
#ifndef LF_FLOW_PIPELINE_PRIV_H
#define LF_FLOW_PIPELINE_PRIV_H

#include "flow/plan/pipeline.h"

/* pipeline_model.c: the model description a stage names, as {key: text}. *out NULL when the stage
 * has none. */
int lf_pipeline_model(json_t **out, lf_pipeline *p, const lf_pipeline_args *args,
                      const char *section, const lf_opt_table *table, lf_err *err);
/* pipeline_input.c: the inputs of a stage and the stages they come from. */
int lf_pipeline_inputs(json_t *stage, const lf_pipeline *p, const lf_pipeline_args *args,
                       const lf_opt_table *table, lf_err *err);
/* graph.c: "deps" of every stage from inputs and after; doc's stages in running order. */
int lf_pipeline_order(json_t *doc, lf_err *err);

/* pipeline_resources.c: "resources" of a stage and its memory_bytes, time_limit_s, grace_s,
 * rerun_on; "site" of the document. Keys are looked for in [stage X], [kind K], [resources]. */
int lf_pipeline_resources(json_t *stage, lf_conf *c, const char *section, const char *kind_section,
                          const char *scheduler, lf_err *err);
int lf_pipeline_site(json_t *doc, lf_conf *c, lf_err *err);
bool lf_resource_key(const char *key);
size_t lf_resource_keys(const char **out, size_t cap); /* their names; returns how many */
const char *const *lf_site_keys(size_t *n);

int lf_json_set_new(json_t *o, const char *key, json_t *v, lf_err *err); /* takes v */
int lf_json_push_new(json_t *a, json_t *v, lf_err *err);                 /* takes v */

#endif
