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

size_t lf_reading_mistakes(const lf_reading *r); /* noted so far */

/* What may be wrong with a value that is refused, for the end of the message: it holds more than
 * was meant, or quotes. "" where nothing is known. */
const char *lf_value_hint(const char *value);

/* The plan of r->p->conf, which is loaded. */
int lf_pipeline_understand(const lf_reading *r, lf_err *err);

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

/* sweep_read.c: an axis of a sweep, and all of them. */
typedef struct lf_sweep_axis {
    char *name;
    lf_conf_item at; /* where it stands; its texts belong to the configuration */
    lf_texts values;
    size_t group; /* the first axis that it goes together with, itself: with none */
} lf_sweep_axis;
typedef struct lf_sweep_axes {
    LF_ROWS(lf_sweep_axis) rows; /* n == 0: there is no sweep */
    size_t n_children;
    const char **sets; /* those of r->args that are no axis; borrowed texts */
    size_t n_sets;
    lf_sweep sweep; /* what [sweep] says, without children */
} lf_sweep_axes;
/* From r->p->conf, which is loaded and not resolved, and r->args. */
int lf_sweep_read(lf_sweep_axes *out, const lf_reading *r, lf_err *err);
void lf_sweep_axes_fini(lf_sweep_axes *a);
/* Child k, from 0, with the values that make it; over: room for a->rows.n, borrows from a. */
int lf_sweep_child_of(lf_sweep_child *out, lf_conf_set *over, const lf_sweep_axes *a, size_t k,
                      lf_err *err);

/* pipeline_sweep.c: the pipeline of a sweep in the place of r->p, which its axes were read from. */
int lf_pipeline_expand(const lf_reading *r, lf_sweep_axes *axes, lf_err *err);

/* sweep_merge.c: plan gets the stages; same finds them by all but name and place. */
typedef struct lf_sweep_merge {
    lf_doc *plan; /* borrowed */
    lf_names same;
    lf_texts keys;
} lf_sweep_merge;
/* Take the stages of a child's plan; fills child->stages. */
int lf_sweep_merge_child(lf_sweep_merge *m, lf_doc *plan, lf_sweep_child *child, lf_err *err);
/* Names of stages that all children share; whole: children that are the same are LF_EINVAL. */
int lf_sweep_merge_end(lf_sweep_merge *m, bool whole, lf_err *err);
void lf_sweep_merge_fini(lf_sweep_merge *m);

/* pipeline_layout.c: is this a key of [layout], or kept for one? */
bool lf_layout_key(const char *key);
const char *const *lf_layout_keys(size_t *n); /* those that are not only kept */
/* The keys of all [layout] sections. Notes or fails as lf_reading_note does. */
int lf_layout_check(const lf_reading *r, lf_err *err);
/* Where the layout of section `stage` gives an option; NULL: nowhere. */
const lf_conf_item *lf_layout_option(const lf_conf *c, const char *stage, const char *option);
/* Are stages of this kind trained, so that [layout] without a name is about them? Others, which
 * only run a model forward, are laid out where they have `layout = NAME`. */
bool lf_layout_trains(const lf_opt_table *t);
/* The section of a stage's layout, borrowed; NULL: it has none. */
int lf_layout_section(const char **out, lf_conf *c, const char *stage, const lf_opt_table *t,
                      lf_err *err);
/* A key of a stage for the layout of a part of it, and the option that takes tensor of that
 * section. */
struct lf_layout_part {
    const char *key, *option;
};
const struct lf_layout_part *lf_layout_parts(size_t *n);
/* Do stages of this kind have such a part? */
bool lf_layout_part_key(const char *key, const lf_opt_table *t);
/* LF_EINVAL: the key of a stage is such an option. */
int lf_layout_part_option(const lf_conf_item *it, lf_err *err);
/* The section that the key names, borrowed; NULL: the stage does not have the key. */
int lf_layout_part_section(const char **out, lf_conf *c, const char *stage, const char *key,
                           lf_err *err);
/* Can the ranks that a stage asks for, and those on each node, form the groups of its layout? */
int lf_layout_nodes(const lf_doc_stage *st, lf_conf *c, const char *stage, const lf_opt_table *t,
                    const lf_optset *set, lf_err *err);

bool lf_resource_key(const char *key);
size_t lf_resource_keys(const char **out, size_t cap); /* their names; returns how many */
const char *const *lf_site_keys(size_t *n);
const char *const *lf_sweep_keys(size_t *n); /* those that are no axis */

#endif
