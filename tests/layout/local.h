/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of one process, for tests: a transport (engine/comm/comm.h) whose ranks are threads of
 * which exactly one runs at a time. A rank gives its turn away inside calls of its communicators
 * alone, so the order of everything is fixed: rank 0 begins, and whoever must wait is followed by
 * the next rank that can go on. Nothing depends on time, and nothing can hang:
 *
 *   a rank begins another collective than the others of its communicator, or with other sizes:
 *       LF_ECOMM on every rank, which names the rank, its call and that of the others
 *   no rank can go on:
 *       LF_ECOMM on every rank, which says for each what it waits for or that it has ended
 *
 * Sums have the order that comm.h defines, so their bits are those of every other transport.
 *
 * `late`: what a call gives becomes visible when its rank waits for it, and not before; until then
 * those bytes are NaN. So who reads too early, or does not wait, computes with NaN. What a call
 * reads is compared when it is waited for: a rank that has changed it, or has written to what the
 * call gives, is reported (LF_ECOMM).
 *
 * Collectives count as if each part of a vector had an owner: an all-reduce sends every other rank
 * its part and gets the sums, so bytes are those of lf_plan_comm.
 */
#ifndef LF_TESTS_LAYOUT_LOCAL_H
#define LF_TESTS_LAYOUT_LOCAL_H

#include "engine/comm/comm.h"

enum { LOCAL_RANKS = 64 }; /* most */

/* A fault of the program that uses a communicator, played by the transport. */
enum local_fault {
    LOCAL_SOUND,
    LOCAL_SKIP,    /* the rank leaves the call out */
    LOCAL_NO_WAIT, /* it goes on without what the call gives; with `late` */
    LOCAL_ALONE,   /* every rank keeps what it has: the call does nothing */
    LOCAL_TWICE    /* it is done twice */
};
/* Of the call with number `nth` (from 1) among those that fit, as each rank counts them from
 * local_arm on. */
struct local_plant {
    enum local_fault fault;
    int rank; /* world rank, of SKIP and NO_WAIT */
    enum lf_comm_what what;
    enum lf_comm_type type; /* of ALL_REDUCE and REDUCE_SCATTER */
    int nth;
    bool armed; /* from the start on */
};

struct local_opts {
    int ranks; /* 1 to LOCAL_RANKS */
    bool late;
    /* 0: a rank goes on until it must wait. Else it may give its turn away at every beginning of a
     * call too, and the next one is drawn, both from this number */
    uint64_t turns;
    struct local_plant plant;
};

/* One rank. comm is that of all ranks; it is destroyed after the function has returned. The result
 * is that of local_run, together with what the function left in err. */
typedef int (*local_fn)(void *user, lf_comm *comm, lf_err *err);

/* From here on this rank counts the calls that fit the planted fault. */
void local_arm(lf_comm *comm);

/* Runs fn on every rank. Returns 0, or the failure of the lowest rank among those whose failure is
 * not that another one failed. */
int local_run(const struct local_opts *o, local_fn fn, void *user, lf_err *err);

#endif
