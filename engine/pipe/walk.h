/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks a pipeline schedule and tells how long it takes and what it holds.
 *
 * First each list is read alone. The rules are:
 *   - each F is there once, and each B and W, or Z; F before B or Z, B before W; or each F alone,
 *     in lists that only go forwards;
 *   - backward passes of a chunk ascend in micro-batch, and so do gradients of weights;
 *   - what comes from a chunk of the same rank was made before;
 *   - a slot holds one micro-batch from F to the last of B and W, or for its F;
 *   - with messages: an input was received and waited for, a receive goes into a buffer that nobody
 *     reads any more, an output into one whose last send is done, all messages from one rank to
 *     another are sent and received in one order, and none is left at the end.
 *
 * Then all ranks walk through their lists. An item begins when the one before it is done and when
 * what it waits for is there; F, B, W and Z take the time that they are given. A message takes
 * message_s from the moment when it is both sent and has its receive posted. Without messages in
 * the lists, what another rank made is there message_s after it was made. When no rank can go on,
 * the order is cyclic: the schedule would hang whatever the times are.
 *
 * blocking_recv: a receive ends when its message is there. rendezvous: a send ends when its message
 * is there. Both concern lists with messages.
 */
#ifndef LF_PIPE_WALK_H
#define LF_PIPE_WALK_H

#include "engine/pipe/pipe.h"

/* What one chunk takes for one micro-batch. F of the last pipeline stage includes the head's own
 * gradients where these are formed with the loss: its f_s is longer and its z_s shorter. */
struct lf_pipe_cost {
    double f_s, b_s, w_s, z_s;
    int64_t slot_bytes;     /* held by a slot, from F to the last of B and W */
    int64_t deferred_bytes; /* held on top of it from B to W */
};

struct lf_pipe_walk_opts {
    /* Of each chunk, at rank * v + chunk. NULL: F = B = W = 1 s, Z = 2 s, no bytes. */
    const struct lf_pipe_cost *cost;
    double message_s;
    bool blocking_recv, rendezvous;
};

struct lf_pipe_span {
    double begin_s, end_s;
};

struct lf_pipe_load {
    double busy_s;      /* F, B, W and Z */
    double idle_s;      /* the rest of the schedule's time */
    int peak_live;      /* pairs of chunk and micro-batch; divided by v it is micro-batches */
    int peak_deferred;  /* micro-batches between B and W */
    int64_t peak_bytes; /* of slots and deferred W together */
};

struct lf_pipe_timing {
    double end_s;               /* when the last rank is done */
    double idle_share;          /* idle time of all ranks / (P end_s); 0 for no time */
    struct lf_pipe_load *load;  /* [ranks] */
    struct lf_pipe_span **span; /* [ranks][items of the list] */
};

/* out may be NULL. lf_pipe_timing_fini frees what it holds, and takes a zeroed object or NULL.
 * LF_EINVAL: a rule is broken, and the message names rank and item; or the order is cyclic, and it
 * names the item of each rank in the cycle; or a time or a number of bytes is negative or not
 * finite; or a way to block is asked of lists without messages. */
int lf_pipe_walk(struct lf_pipe_timing *out, const struct lf_pipe *p,
                 const struct lf_pipe_walk_opts *o, lf_err *err);
void lf_pipe_timing_fini(struct lf_pipe_timing *t);

#endif
