/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipeline file understood: stages with their options checked against the option tables, their
 * inputs, models, resources and order. The result is the plan document (flow/record/doc.h), the
 * same that is frozen with a run, so that nothing downstream looks at the INI file again.
 *
 *   [pipeline]       name, description, data_dir, scheduler, jobs, share, include, on_end, on_fail,
 *                    on_time_limit, report
 *   [resources]      defaults for every stage of: nodes, ranks (per node), cpus (per rank), memory
 *                    (per node), gpus ([TYPE:]N per node), time_limit (of one job), grace,
 *                    partition (or queue), account, qos, constraint, reservation, exclusive, mail,
 *                    mail_type, modules, prologue, extra, launcher, rank_prefix, chain, links,
 *                    gpu_memory, max_segments, max_walltime, stall_segments, retries, memory_max,
 *                    time_max
 *   [site]           scheduler, data_dir, poll, chain, launcher, templates, command_timeout,
 *                    lost_after, settle, commands, exclude: what holds for a place, from the site
 *                    or user file
 *   [model], [model NAME]   key = value for the stages; `preset = FILE or NAME` lays the section
 *                           over another model
 *   [kind KIND]      defaults for every stage of that kind
 *   [template NAME]  only inherited from
 *   [vars]           free keys for ${vars.x}
 *   [sweep]          the pipeline under several settings as one run (sweep.h)
 *   [stage NAME]     kind, inherit, after, model, rerun_on, the keys of [resources], and the
 *                    options of the kind
 */
#ifndef LF_FLOW_PIPELINE_H
#define LF_FLOW_PIPELINE_H

#include "engine/base/opt.h"
#include "engine/base/str.h"
#include "flow/plan/conf.h"
#include "flow/record/doc.h"

typedef struct lf_pipeline {
    lf_conf conf;
    lf_doc *plan;
    char *path;        /* the pipeline file as an absolute path */
    char *project;     /* directory of the project, absolute */
    size_t n_mistakes; /* that were noted; children of a sweep may share one in args.mistakes */
    lf_names doubtful; /* stages that a noted mistake belongs to; empty without args.mistakes */
} lf_pipeline;

typedef struct lf_pipeline_args {
    const char *path;
    const lf_opt_table *const *tables; /* NULL-terminated */
    const char *const *sets;
    size_t n_sets;
    const char *model_dir; /* installed models, NULL: none */
    /* Not NULL: mistakes of the user are noted here, in the order of reading, and reading goes on
     * to the next one. NULL: the first one ends the reading. */
    lf_texts *mistakes;
    lf_texts
        *warnings; /* gets what is no mistake and hardly meant, with its place; NULL: nobody asks */
} lf_pipeline_args;

/* Syntax, keys, values, references, order, and what stages demand of each other. Looks at no input
 * data except that named files are there and can be read. With args->mistakes 0 comes back although
 * mistakes were noted, and *out is set; its plan may then lack stages, and is not to be run. */
int lf_pipeline_load(lf_pipeline *out, const lf_pipeline_args *args, lf_err *err);
void lf_pipeline_fini(lf_pipeline *p);

/* Where a stage has an option from: [stage X], its [layout], [kind K] or, for a key of resources,
 * [resources]. NULL: it is not given. */
const lf_conf_item *lf_pipeline_option(const lf_pipeline *p, const lf_doc_stage *stage,
                                       const char *option);
/* Where a stage has a key of its model from. A key of a model file is at the `preset` or `model`
 * that names the file. NULL: nowhere. */
const lf_conf_item *lf_pipeline_model_key(const lf_pipeline *p, const lf_doc_stage *stage,
                                          const char *key);
/* The section of the model that a stage is of; NULL: it has none, or a file is named. */
const lf_conf_section *lf_pipeline_model_section(const lf_pipeline *p, const lf_doc_stage *stage);

/* What a stage of the plan document asks for, as one line ("2 nodes, 4 ranks per node, 12h per
 * job"); "" when nothing was said. */
void lf_resources_line(lf_buf *out, const lf_doc_stage *stage);

/* Keys of a section other than the options of stages: pipeline, resources, site, sweep, layout,
 * stage (with those of resources). Returns how many; at most cap are put into out. */
size_t lf_section_keys(const char **out, size_t cap, const char *section);
/* NULL: none */
const lf_opt_table *lf_table_find(const lf_opt_table *const *tables, const char *kind);

#endif
