/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of a CPU queue. A call is carried out by the thread that makes it and by helpers that
 * are free at the time; they take pieces from a counter until none is left. So nobody waits for a
 * thread that the system has stopped or not yet woken, unless it holds a piece, or has just
 * computed the one over which the caller fell asleep and must wake it. No thread holds a lock. A
 * slower core takes fewer pieces. Who computes a piece changes no bit: a kernel cuts its work into
 * pieces by its arguments alone, and no two pieces write the same element.
 *
 * OpenMP is not used for this because the end of its parallel region waits for every thread of the
 * team, whether it has work or is still asleep.
 *
 * Helpers are started by the first call that wants them and end with the queue. A helper that finds
 * no call spins, for as long as that would have paid lately, and then sleeps.
 */
#ifndef LF_KERNELS_CPU_TEAM_H
#define LF_KERNELS_CPU_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

struct lf_team;

enum { LF_TEAM_SPIN = 2000000 }; /* nanoseconds for which a thread spins at most */

/* What a member of a team does: takes pieces until there are none. Members have the numbers
 * 0 ... threads - 1; 0 is the thread that made the call. */
typedef void lf_member_fn(void *arg, int member);

/* Calls fn on this thread and, at the same time, on up to threads - 1 helpers of q, and returns
 * when all that have begun are done. Helpers see what was written before, the caller sees what they
 * have written. Within fn a call with the same queue has the one thread that makes it. Where the
 * system gives no threads the caller does everything. */
void lf_team_call(lf_queue *q, int threads, lf_member_fn *fn, void *arg);

/* The pieces [lo, hi) of [0, n), each of `most` items but for the last. */
typedef void lf_piece_fn(lf_queue *q, const void *arg, int64_t lo, int64_t hi);

/* Calls fn for every piece of [0, n), with a border of tasks before each one of the caller. */
void lf_deal(lf_queue *q, int threads, int64_t n, int64_t most, lf_piece_fn *fn, const void *arg);

/* Ends the helpers; NULL is allowed. */
void lf_team_end(struct lf_team *t);

/* Is this thread a helper within a call? */
bool lf_team_helps(void);

/* The next number of a counter that members share. */
static inline int64_t lf_take(int64_t *next)
{
    return __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
}

#endif
