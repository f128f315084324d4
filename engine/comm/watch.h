/* SPDX-License-Identifier: Apache-2.0
 *
 * The watchdog. A thread of each rank records what the rank does and tells rank 0 once a second
 * over a TCP connection of its own. Rank 0 judges all ranks, and every rank judges rank 0. The
 * transport of the collectives is not used, because it may be what hangs.
 *
 * A rank is in one of four states: computing, waiting in a collective or for a message, in an
 * announced phase, gone (said goodbye). Rank 0 ends the job when
 *   1. a connection ends without a goodbye: the rank died;
 *   2. a rank has not been heard of for half of patience_s: it is stopped, or its node is;
 *   3. some rank has waited in a collective for patience_s without a byte moving, no rank is in a
 *      phase within its limit, and one of these holds: a rank has computed for patience_s (it hangs
 *      before that collective); a rank has gone (it left without that collective); no rank computes
 *      (all wait, in different collectives or for a transport that stands still).
 * Time in which rank 0 itself did not run (a suspended machine) is subtracted from all waits. Ranks
 * judge rank 0 by rules 1 and 2; the lowest of them reports first.
 */
#ifndef LF_COMM_WATCH_H
#define LF_COMM_WATCH_H

#include <stdint.h>

#include "engine/comm/comm_priv.h"

typedef struct lf_watch lf_watch;

/* Collective over the ranks of job->boot, of which there are several; it takes one fence. Fills
 * job->peer. */
lf_watch *lf_watch_create(struct lf_comm_job *job, double patience_s,
                          void (*fatal)(void *, const char *), void *fatal_arg, lf_err *err);
/* Says goodbye to the other ranks. w may be NULL. */
void lf_watch_destroy(lf_watch *w);

/* A communicator: its id, which those of one split share, and its first rank. */
struct lf_watch_of {
    uint32_t id;
    int32_t lead;
};
/* The wait for the collective or message `what` (copied, 47 bytes), number seq of a communicator,
 * begins or ends. Both are cheap. */
void lf_watch_enter(lf_watch *w, const char *what, struct lf_watch_of of, uint64_t seq);
void lf_watch_leave(lf_watch *w);
/* Bytes have moved, so the collective is not stuck. The thread that is in the collective calls
 * this. */
void lf_watch_progress(lf_watch *w);
/* Ends the whole job with this line, as the watchdog does. */
void lf_watch_end(lf_watch *w, const char *text);
void lf_watch_step(lf_watch *w, int64_t step);
void lf_watch_pass(lf_watch *w, int32_t micro, bool backward);
void lf_watch_phase(lf_watch *w, const char *name, double limit_s);

#endif
