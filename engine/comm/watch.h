/* SPDX-License-Identifier: Apache-2.0
 *
 * The watchdog. Each rank has a thread that writes down what the rank does and tells rank 0 once a
 * second over a TCP connection of its own; rank 0 judges, and every rank judges rank 0. The
 * transport of the collectives is not used: it may be what hangs.
 *
 * A rank is in one of four states: computing, waiting in a collective, in an announced phase, gone
 * (said goodbye). Rank 0 ends the job when
 *   1. a connection ends without a goodbye: the rank died;
 *   2. a rank has not been heard of for half of patience_s: it is stopped, or its node is;
 *   3. some rank has waited in a collective for patience_s without a byte moving, no rank is in a
 *      phase within its limit, and a rank has computed for patience_s (it hangs before that
 *      collective), has gone (it left without it), or nobody computes (all wait for each other:
 *      different collectives, or a transport that stands still).
 * Time in which rank 0 itself did not run (a suspended machine) is taken off all waits. Ranks judge
 * rank 0 by rules 1 and 2; the lowest rank speaks first.
 */
#ifndef LF_COMM_WATCH_H
#define LF_COMM_WATCH_H

#include <stdint.h>

#include "engine/comm/comm_priv.h"

typedef struct lf_watch lf_watch;

/* Collective over the ranks of job->boot, of which there is more than one: one fence. job->peer is
 * filled. */
lf_watch *lf_watch_create(struct lf_comm_job *job, double patience_s,
                          void (*fatal)(void *, const char *), void *fatal_arg, lf_err *err);
/* Says goodbye. NULL is legal. */
void lf_watch_destroy(lf_watch *w);

/* Collective `what` (a constant), number seq of communicator id, begins; ends. Cheap. */
void lf_watch_enter(lf_watch *w, const char *what, uint32_t id, uint64_t seq);
void lf_watch_leave(lf_watch *w);
/* Bytes moved: a collective that gets on is not stuck. From the thread that is in the
 * collective. */
void lf_watch_progress(lf_watch *w);
void lf_watch_step(lf_watch *w, int64_t step);
void lf_watch_phase(lf_watch *w, const char *name, double limit_s);

#endif
