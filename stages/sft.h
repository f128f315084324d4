/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct that the options of lf-sft fill, for its main and its option table.
 */
#ifndef LF_STAGES_SFT_H
#define LF_STAGES_SFT_H

#include "stages/train_common.h"
#include "stages/train_opts.h"
#include "stages/train_samples.h"

struct sft {
    lf_arena *arena;
    struct lf_train_config c;
    struct lf_train_given g;
    lf_opt_list valid_names;
    struct lf_train_asked asked; /* what was asked of an adapter */
    struct lf_train_samples samples;
};

#endif
