/* SPDX-License-Identifier: Apache-2.0
 *
 * Loss scaling (Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2): the loss
 * is multiplied by a scale before the backward pass, so that small gradients do not vanish in fp16,
 * and gradients are divided by it before they are used. The dynamic scale halves when a gradient is
 * not finite and doubles after `window` steps in a row without that.
 *
 * Common implementations drop the batch whose gradient overflowed. Here the step is made again on
 * the same batch with the smaller scale. So no data is lost, and the data order does not depend on
 * overflows. A scale is a power of two if it began as one; then a run without over- and underflows
 * has the bits of a run without scaling.
 */
#ifndef LF_TRAIN_SCALER_H
#define LF_TRAIN_SCALER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define LF_SCALER_MAX 0x1p126 /* a larger one is no finite f32 after doubling */

struct lf_scaler_opts {
    bool dynamic;
    /* the scale of the first step, which a dynamic scaler rounds down to a power of two; of all
     * steps when not dynamic; 0: 1 */
    double start;
    int64_t window; /* steps between doublings, >= 1 */
};

/* The state that goes into a checkpoint. */
struct lf_scaler {
    double scale;
    int64_t good;      /* steps since the scale changed */
    int64_t overflows; /* of the run */
};

struct lf_scaler lf_scaler_start(const struct lf_scaler_opts *o);
/* Reports a gradient that is not finite. true: the scale is halved, and the step is made again.
 * false: the scale is not the cause, because it is fixed or 1. */
bool lf_scaler_overflow(struct lf_scaler *s, const struct lf_scaler_opts *o);
/* Reports a completed step. */
void lf_scaler_good(struct lf_scaler *s, const struct lf_scaler_opts *o);

/* Returns {"scale","good","overflows"} for a checkpoint, which the caller owns; NULL: out of
 * memory. */
json_t *lf_scaler_json(const struct lf_scaler *s);
/* Reads that object. A run without scaling before (NULL), or with a fixed scale now, begins with
 * the scale of its options. */
struct lf_scaler lf_scaler_of(const json_t *state, const struct lf_scaler_opts *o);

#endif
