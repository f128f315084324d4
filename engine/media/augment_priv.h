/* SPDX-License-Identifier: Apache-2.0
 *
 * Between augment.c (shapes) and augment_ops.c (colours). */
#ifndef LF_MEDIA_AUGMENT_PRIV_H
#define LF_MEDIA_AUGMENT_PRIV_H

#include "engine/media/augment.h"

/* Shears, translations and rotations, in place. */
int lf_augment_shape(lf_image *im, enum lf_augment_op op, double v, const uint8_t fill[3],
                     lf_err *err);

#endif
