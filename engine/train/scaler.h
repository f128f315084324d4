/* SPDX-License-Identifier: Apache-2.0
 *
 * Loss scaling (Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2): the loss
 * is multiplied by a scale before the backward pass, so that small gradients do not vanish in fp16,
 * and gradients are divided by it before they are used. The dynamic scale halves when a gradient is
 * not finite and doubles after `window` steps in a row without that.
 *
 * Unlike the common implementations, which drop the batch whose gradient overflowed, the step is
 * made again on the same batch with the smaller scale: nothing is lost, and the data order does not
 * depend on what overflowed. A scale is a power of two (if it began as one), so where nothing over-
 * or underflows a run has the bits of one without scaling.
 */
#ifndef LF_TRAIN_SCALER_H
#define LF_TRAIN_SCALER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define LF_SCALER_MAX 0x1p126 /* a larger one is no finite f32 after doubling */

struct lf_scaler_opts {
    bool dynamic;
    /* the scale of the first step (a dynamic one: rounded down to a power of two), of all when
     * not dynamic; 0: 1 */
    double start;
    int64_t window; /* steps between doublings, >= 1 */
};

/* What goes into a checkpoint. */
struct lf_scaler {
    double scale;
    int64_t good;      /* steps since the scale changed */
    int64_t overflows; /* of the run */
};

struct lf_scaler lf_scaler_start(const struct lf_scaler_opts *o);
/* The gradient was not finite. True: the scale is half of what it was, make the step again. False:
 * it is not the scale that is to blame (fixed, or 1 already). */
bool lf_scaler_overflow(struct lf_scaler *s, const struct lf_scaler_opts *o);
/* A step was taken. */
void lf_scaler_good(struct lf_scaler *s, const struct lf_scaler_opts *o);

/* {"scale","good","overflows"} of a checkpoint; owned, NULL: out of memory. */
json_t *lf_scaler_json(const struct lf_scaler *s);
/* Back again. A run that was not scaled before (NULL), or whose scale is fixed now, begins with the
 * scale it is given. */
struct lf_scaler lf_scaler_of(const json_t *state, const struct lf_scaler_opts *o);

#endif
