/* SPDX-License-Identifier: Apache-2.0
 *
 * Short names of runs: NAME-N is the N-th run of the pipeline NAME in this project.
 *
 *   PROJECT/.loong/names/NAME-N    one small file per run, holding its id; published once
 *
 * The file stays when the run is removed, so a number is never given twice. The name also stands in
 * each plan.json of the run, and it stays the same when the pipeline is renamed later.
 */
#ifndef LF_FLOW_NAMING_H
#define LF_FLOW_NAMING_H

#include "engine/base/err.h"
#include "flow/run/project.h"

/* Give the run `id` the next free number of a pipeline's name. *out is owned. Characters that a
 * file name or a shell would mind are written '_'. */
int lf_naming_take(char **out, const lf_project *p, const char *pipeline, const char *id,
                   lf_err *err);
/* Take a name back whose run could not be written. */
void lf_naming_drop(const lf_project *p, const char *short_name);
/* The id of a short name. LF_ENOENT without a message: there is none. */
int lf_naming_id(char id[LF_ULID_SIZE], const lf_project *p, const char *short_name, lf_err *err);
/* All short names, also of runs that are gone, in no order. */
int lf_naming_list(lf_texts *out, const lf_project *p, lf_err *err);
/* Has a word the form of a short name of a pipeline that has run in this project: is it the name of
 * a run, or of one to come? */
int lf_naming_looks(bool *out, const lf_project *p, const char *word, lf_err *err);
/* N of NAME-N when the short name is one of this pipeline's, 0 otherwise. */
int lf_naming_number(const char *short_name, const char *pipeline);

#endif
