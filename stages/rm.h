/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct that the options of lf-rm fill, for its main and its option table.
 */
#ifndef LF_STAGES_RM_H
#define LF_STAGES_RM_H

#include "engine/post/contrast_train.h"
#include "engine/post/label_train.h"
#include "engine/post/rm_train.h"
#include "engine/post/scored.h"
#include "stages/train_common.h"
#include "stages/train_opts.h"
#include "stages/train_samples.h"

enum rm_objective { RM_PAIRS = 0, RM_LABELS, RM_CONTRAST };

struct rm {
    lf_arena *arena;
    struct lf_train_config c;
    struct lf_train_given g;
    struct lf_rm_train_opts t;
    struct lf_train_asked asked;   /* what was asked of an adapter */
    struct lf_adapter_config lora; /* a new adapter, with what is trained whole */
    const char *score_init;
    bool left_out;      /* the adapter's description has dropout, and the run is without */
    int objective_kind; /* enum rm_objective */
    lf_rm_train *objective;
    /* with objective = labels */
    struct lf_label_train_opts l;
    int label_kind; /* enum lf_label_kind */
    lf_label_train *labels;
    /* with objective = contrast */
    struct lf_contrast_train_opts v;
    int pooling; /* enum lf_rm_pool */
    lf_contrast_train *contrast;
    struct lf_train_samples samples; /* interval, rows and tokenizer of it */
    lf_scored *scored;
};

/* rm_labels.c. Makes the objective of labels or vectors, and refuses options of others. */
int lf_rm_read_labels(struct rm *r, const lf_optset *o, lf_err *err);
/* Refuses, with these, what is of pairs. After adapters are read. */
int lf_rm_check_labels(const struct rm *r, const lf_optset *o, lf_err *err);
/* The model of init_from with labels in place of its head. */
int lf_rm_describe_labels(struct rm *r, lf_err *err);

#endif
