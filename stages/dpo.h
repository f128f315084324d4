/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct that the options of lf-dpo fill, for its main and its option table.
 */
#ifndef LF_STAGES_DPO_H
#define LF_STAGES_DPO_H

#include "engine/post/dpo.h"
#include "stages/train_common.h"
#include "stages/train_opts.h"
#include "stages/train_samples.h"

struct dpo {
    lf_arena *arena;
    struct lf_train_config c;
    struct lf_train_given g;
    int32_t loss;                /* sigmoid|robust|hinge|ipo|orpo|simpo|kto */
    struct lf_dpo_opts d;        /* beta 0, gamma < 0: not given */
    struct lf_train_asked asked; /* what was asked of an adapter */
    lf_dpo *dpo;
    struct lf_train_samples samples;
};

#endif
