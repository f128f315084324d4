/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of engine/pipe share. Everything here ends the test when it cannot be made.
 */
#ifndef LF_TESTS_PIPE_UTIL_H
#define LF_TESTS_PIPE_UTIL_H

#include "engine/pipe/walk.h"

/* The sizes that tests go through: all ranks, micro-batches and chunks up to these. */
enum { PIPE_RANKS = 8, PIPE_MICRO = 24, PIPE_CHUNKS = 4 };

struct lf_pipe pipe_made(enum lf_pipe_kind kind, int ranks, int chunks, int micro_batches);
struct lf_pipe pipe_grouped(int ranks, int chunks, int micro_batches, int group);
struct lf_pipe pipe_forward(int ranks, int chunks, int micro_batches); /* lists of F alone */
struct lf_pipe pipe_sending(enum lf_pipe_kind kind, int ranks, int chunks, int micro_batches,
                            struct lf_pipe_message_opts o);
struct lf_pipe_timing pipe_timed(const struct lf_pipe *p, struct lf_pipe_walk_opts o);

/* The same times for all chunks of all ranks; *cost has PIPE_RANKS * PIPE_CHUNKS elements. A rank's
 * chunks share f, b and w. */
void pipe_equal_cost(struct lf_pipe_cost *cost, int chunks, double f, double b, double w);

/* The end of a schedule without messages, by relaxation: all times are raised until each item
 * begins no earlier than what it needs, which is looked up by pipeline stage c P + r. */
double pipe_reference_end(const struct lf_pipe *p, const struct lf_pipe_cost *cost,
                          double message_s);

/* The items of a rank that compute, "F0 F1 Z0", or with chunks "F0.2": micro-batch and pipeline
 * stage. The text is valid until the next call. */
const char *pipe_list(const struct lf_pipe *p, int rank);

/* The next of a fixed series of random numbers: in [0, 1), and whole in 0 .. n-1. */
double pipe_random(void);
int pipe_below(int n);

#endif
