/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks of a run could compute at most, for the metric mfu.
 */
#ifndef LF_TRAIN_PEAK_H
#define LF_TRAIN_PEAK_H

#include "engine/back/back.h"
#include "engine/graph/graph.h"
#include "engine/train/run.h"

/* Returns FLOP/s of all ranks, which are taken to be alike, in the type that `compute` multiplies;
 * 0: unknown, or not rank 0. The log tells it. */
double lf_train_peak(const lf_run *r, lf_back *back, enum lf_dtype compute);

#endif
