/* SPDX-License-Identifier: Apache-2.0
 *
 * The argument structs of an activation whose numbers are trained; a part of kernels.h, which
 * includes it. */
#ifndef LF_KERNELS_XIELU_H
#define LF_KERNELS_XIELU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* xIELU (Huang and Schlag 2024, arXiv:2411.13010): its numbers are f32 [1] in device memory.
 *     x > 0: y = ln(1 + e^positive) x^2 + beta x
 *     else:  y = (beta + ln(1 + e^negative)) (e^min(x, eps) - 1 - x) + beta x
 * eps < 0 is close to 0. y may be x. */
struct lf_xielu {
    const float *positive, *negative, *beta, *eps;
};
struct lf_k_xielu_fwd {
    int64_t rows, c, ldx, ldy;
    const void *x;
    struct lf_xielu p;
    void *y;
    uint8_t x_type;
};
/* dx = dy y'(x); dpositive, dnegative (+)= sum over all elements of dy times y's derivative by
 * them. dx may be dy; each may be NULL. */
struct lf_k_xielu_bwd {
    int64_t rows, c, ldx, lddy, lddx;
    const void *x, *dy;
    struct lf_xielu p;
    void *dx;
    float *dpositive, *dnegative;
    bool accumulate; /* of dpositive, dnegative */
    uint8_t x_type;
    void *work;
    size_t work_bytes;
};

#endif
