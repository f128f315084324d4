/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct that the options of lf-pretrain fill, for its main and its option table.
 */
#ifndef LF_STAGES_PRETRAIN_H
#define LF_STAGES_PRETRAIN_H

#include "stages/train_common.h"
#include "stages/train_opts.h"
#include "stages/train_samples.h"

struct pretrain {
    lf_arena *arena;
    struct lf_train_config c;
    struct lf_train_given g;
    lf_opt_list ramp; /* the rows of batch_ramp */
    struct lf_train_samples samples;
};

#endif
