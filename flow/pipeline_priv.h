/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the pipeline reader share.
 */
#ifndef LF_FLOW_PIPELINE_PRIV_H
#define LF_FLOW_PIPELINE_PRIV_H

#include "flow/pipeline.h"

/* pipeline_model.c: the model description a stage names, as {key: text}. *out NULL when the stage has none. */
int lf_pipeline_model(json_t **out, lf_pipeline *p, const lf_pipeline_args *args, const char *section,
                      const lf_opt_table *table, lf_err *err);
/* pipeline_input.c: the inputs of a stage and the stages they come from. */
int lf_pipeline_inputs(json_t *stage, const lf_pipeline *p, const lf_pipeline_args *args, const lf_opt_table *table,
                       lf_err *err);
/* graph.c: "deps" of every stage from inputs and after; doc's stages in running order. */
int lf_pipeline_order(json_t *doc, lf_err *err);

int lf_json_set_new(json_t *o, const char *key, json_t *v, lf_err *err); /* takes v */
int lf_json_push_new(json_t *a, json_t *v, lf_err *err);                 /* takes v */

#endif
