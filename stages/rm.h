/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct that the options of lf-rm fill, for its main and its option table.
 */
#ifndef LF_STAGES_RM_H
#define LF_STAGES_RM_H

#include "engine/post/rm_train.h"
#include "engine/post/scored.h"
#include "stages/train_common.h"
#include "stages/train_opts.h"
#include "stages/train_samples.h"

struct rm {
    lf_arena *arena;
    struct lf_train_config c;
    struct lf_train_given g;
    struct lf_rm_train_opts t;
    struct lf_train_asked asked;   /* what was asked of an adapter */
    struct lf_adapter_config lora; /* a new adapter, with the head */
    const char *score_init;
    bool left_out; /* the adapter's description has dropout, and the run is without */
    lf_rm_train *objective;
    struct lf_train_samples samples; /* interval, rows and tokenizer of it */
    lf_scored *scored;
};

#endif
