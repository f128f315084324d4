/* SPDX-License-Identifier: Apache-2.0
 *
 * Where frozen weights come from. In bf16 a frozen matrix has its copy and no f32 master, and with
 * features (engine/store/features.h) the encoder of pictures has no memory at all. Both stay as
 * they were read: checkpoints of the run copy them, byte for byte, from init_from or vision_from
 * where memory has less than these. So what is frozen keeps its bits and its type through any
 * number of stages, and a stage that trains it later begins with all of them.
 *
 * A tensor that was trained before it was frozen, in a run that goes on with another `freeze`, is
 * written as memory has it: rounded to bf16.
 */
#ifndef LF_TRAIN_ORIGIN_H
#define LF_TRAIN_ORIGIN_H

#include "engine/store/ckpt.h"

struct lf_train_config;
struct lf_train_model;

struct lf_train_origin {
    lf_ckpt *init, *vision; /* of init_from, vision_from; NULL: not needed, or not there yet */
    /* [tensors of the store] lf_weights_tensors' from; NULL: memory has everything */
    const lf_ckpt **of;
};

/* After the plan is finished. A checkpoint that does not exist is passed over. LF_EINVAL: one that
 * should have a tensor has another or none. */
int lf_train_origin_open(struct lf_train_model *m, const struct lf_train_config *c, lf_err *err);
/* The run goes on from this checkpoint. *narrowed: so many frozen tensors are f32 there and not
 * what their origin has, or there is none any more, so that bf16, which memory has, is what will be
 * written. LF_EINVAL: what it has of a tensor that memory has not at all is not what its origin
 * has. */
int lf_train_origin_resume(struct lf_train_model *m, const lf_ckpt *from, int *narrowed,
                           lf_err *err);
void lf_train_origin_close(struct lf_train_origin *o); /* zeroed is fine */

#endif
