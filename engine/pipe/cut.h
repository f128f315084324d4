/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts the layers of a model into pipeline stages: pipeline stage s gets the next n_s layers, in
 * order, sum n_s = L. The first one has the embedding too, the last one the head.
 *
 * A cost is what a whole step makes of the layer: F, B and W together. It is a whole number of any
 * unit, such as nanoseconds or FLOPs, so that sums are exact and equal ones are found to be equal.
 *
 * lf_pipe_cut finds the smallest largest cost of a pipeline stage, by bisection over the answer:
 * whether a bound can be kept is told by filling pipeline stages one by one. Among the cuts that
 * reach it, it takes the one with the smallest sum of squares of costs, which is the most even one,
 * and among these the one that is first in lexical order of (n_0, n_1, ..): the first pipeline
 * stages keep most micro-batches, so they get the shorter lists. The result depends on nothing but
 * the arguments.
 */
#ifndef LF_PIPE_CUT_H
#define LF_PIPE_CUT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

struct lf_pipe_layers {
    const int64_t *cost; /* [n], dense and MoE layers each with their own */
    int n;
    int64_t embedding, head;
};

/* Sets layers[0 .. stages-1], and *largest unless it is NULL. With `empty` a pipeline stage may
 * have no layers. LF_EINVAL: there are fewer layers than pipeline stages and none may be empty, or
 * a cost is negative, or the sum reaches 2^62. */
int lf_pipe_cut(int *layers, int64_t *largest, const struct lf_pipe_layers *of, int stages,
                bool empty, lf_err *err);

/* Reads a cut by hand, "6,6,5,3": a number of layers for each pipeline stage; 0 is legal. LF_EINVAL
 * tells which number is none, how many pipeline stages there are, or what the sum should be. */
int lf_pipe_cut_parse(int *layers, const char *text, int stages, int n, lf_err *err);
/* The text of a cut, as it is read. */
void lf_pipe_cut_print(lf_buf *out, const int *layers, int stages);

/* cost[s] of each pipeline stage of a cut that has all layers. */
void lf_pipe_cut_costs(int64_t *cost, const struct lf_pipe_layers *of, const int *layers,
                       int stages);

#endif
