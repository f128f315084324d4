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
/* Lists of F alone. */
struct lf_pipe pipe_forward(enum lf_pipe_kind kind, int ranks, int chunks, int micro_batches);
struct lf_pipe pipe_sending(enum lf_pipe_kind kind, int ranks, int chunks, int micro_batches,
                            struct lf_pipe_message_opts o);
struct lf_pipe_timing pipe_timed(const struct lf_pipe *p, struct lf_pipe_walk_opts o);

/* Do pipeline stages go forth and back over the ranks? Then a rank has 2, r and 2P-1-r; else
 * c P + r. By this header, not by the engine. */
static inline bool pipe_bent(enum lf_pipe_kind kind)
{
    return kind == LF_PIPE_ZB_V || kind == LF_PIPE_DUALPIPE_V;
}
int pipe_stage(const struct lf_pipe_spec *s, int rank, int chunk);
/* The chunks to go through, and the micro-batches that a kind begins with. */
static inline int pipe_first_chunks(enum lf_pipe_kind kind)
{
    return pipe_bent(kind) ? 2 : 1;
}
static inline int pipe_most_chunks(enum lf_pipe_kind kind)
{
    return kind == LF_PIPE_INTERLEAVED ? PIPE_CHUNKS : pipe_first_chunks(kind);
}
static inline int pipe_least(enum lf_pipe_kind kind, int ranks)
{
    return kind == LF_PIPE_DUALPIPE_V ? 2 * ranks : 1;
}

/* The same times for all chunks of all ranks; *cost has PIPE_RANKS * PIPE_CHUNKS elements. A rank's
 * chunks share f, b and w. */
void pipe_equal_cost(struct lf_pipe_cost *cost, int chunks, double f, double b, double w);

/* The end of a schedule without messages, by relaxation: all times are raised until each item
 * begins no earlier than what it needs, which is looked up by pipeline stage. */
double pipe_reference_end(const struct lf_pipe *p, const struct lf_pipe_cost *cost,
                          double message_s);

/* The items of a rank that compute, "F0 F1 Z0", or with chunks "F0.2": micro-batch and pipeline
 * stage. The text is valid until the next call. */
const char *pipe_list(const struct lf_pipe *p, int rank);

/* The next of a fixed series of random numbers: in [0, 1), and whole in 0 .. n-1. */
double pipe_random(void);
int pipe_below(int n);

#endif
