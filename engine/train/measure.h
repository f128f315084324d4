/* SPDX-License-Identifier: Apache-2.0
 *
 * A guess of how fast a machine will train a model, for whoever has not trained on it yet: matrix
 * products in the shapes of the model's feed-forward layer. One thread computes them and counts its
 * own CPU time, which is the same each time; that it got a core for a part of the time only counts
 * too, so that a busy machine is a slow one.
 */
#ifndef LF_TRAIN_MEASURE_H
#define LF_TRAIN_MEASURE_H

#include "engine/base/err.h"
#include "engine/model/config.h"
#include "kernels/kernels.h"

struct lf_measure {
    int64_t rows; /* tokens of a micro-batch */
    int threads;
    enum lf_dtype compute; /* LF_F32 or LF_BF16 */
    double seconds;        /* of CPU time; at most a second passes */
};

/* *out: FLOP/s that training steps of `threads` threads are expected to reach, half of those of
 * y = x w^T, dx = dy w and dw += dy^T x in their best round. x is [rows, hidden] and w is
 * [ffn, hidden], with no side above 2048, so that some 100 MiB are taken at most. LF_ENOMEM. */
int lf_train_measure(double *out, const struct lf_measure *m, const lf_model_config *mc,
                     lf_err *err);

#endif
