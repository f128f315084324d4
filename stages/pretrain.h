/* SPDX-License-Identifier: Apache-2.0
 *
 * What the options of lf-pretrain fill: its main and its option table see this.
 */
#ifndef LF_STAGES_PRETRAIN_H
#define LF_STAGES_PRETRAIN_H

#include "stages/train_common.h"
#include "stages/train_opts.h"

struct pretrain {
    lf_arena *arena;
    struct lf_train_config c;
    struct lf_train_given g;
    lf_opt_list ramp; /* of batch_ramp */
};

#endif
