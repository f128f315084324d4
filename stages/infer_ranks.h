/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a stage that only runs a model forward: generate, eval, score. Groups of `tensor`
 * ranks divide the matrices (engine/train/axes.h). A group works on one share of the texts: all of
 * its ranks make the same passes and have the same results, of which the first gives its own away.
 * The groups share the texts.
 */
#ifndef LF_STAGES_INFER_RANKS_H
#define LF_STAGES_INFER_RANKS_H

#include "engine/base/opt.h"
#include "engine/base/str.h"
#include "engine/infer/group.h"
#include "engine/infer/loaded.h"
#include "engine/train/axes.h"
#include "engine/train/devcomm.h"

struct lf_infer_ranks {
    struct lf_axes axes;
    struct lf_train_who who; /* data: this rank's group of data_ranks */
    struct lf_loaded_ranks with;
    struct lf_group group; /* at work on its share */
    /* the rest belongs to infer_ranks.c */
    struct lf_axes_comms comms;
    struct lf_devcomm dev;
    bool opened;
};

/* Of the stage's options; LF_EINVAL: `ranks` of --plan do not form such groups. Then who and
 * lf_infer_with are those of the first rank of a run. */
int lf_infer_ranks_read(struct lf_infer_ranks *r, const lf_optset *o, lf_err *err);
/* For the options of a model: NULL where it is whole. */
const struct lf_loaded_ranks *lf_infer_with(const struct lf_infer_ranks *r);

/* Collective over comm (NULL: alone), whose ranks become groups; says in the log which. One per
 * process. */
int lf_infer_ranks_open(struct lf_infer_ranks *r, lf_comm *comm, lf_err *err);
/* Before the model that it was for is closed. rc: of what they did. Legal for ranks that were never
 * opened. */
void lf_infer_ranks_close(struct lf_infer_ranks *r, int rc);

/* Before a share of the texts, whose passes ask lf_group_stop; lf_group_end(&r->group) ends it. */
void lf_infer_ranks_begin(struct lf_infer_ranks *r);

/* The texts of all groups, in their order, on rank 0 of the run; nothing elsewhere. Collective. */
int lf_infer_ranks_gather(struct lf_infer_ranks *r, lf_comm *comm, lf_buf *text, lf_err *err);

/* What results depend on, beside a fingerprint. LF_ENOMEM. */
int lf_infer_ranks_sign(const struct lf_infer_ranks *r, json_t *fingerprint, lf_err *err);
/* Adds to the plan of a model the axes of its ranks, and what their communicators take to its
 * bytes, where it has some. LF_ENOMEM. */
int lf_infer_ranks_plan(const struct lf_infer_ranks *r, json_t *plan, lf_err *err);
/* The memory of a process whose model takes m. */
struct lf_plan_memory lf_infer_ranks_planned(const struct lf_infer_ranks *r,
                                             struct lf_plan_memory m);

#endif
