/* SPDX-License-Identifier: Apache-2.0
 *
 * The heartbeats of the ranks, and the verdict on them (watch_judge.c), which is a function of
 * their table alone.
 */
#ifndef LF_COMM_WATCH_PRIV_H
#define LF_COMM_WATCH_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/comm/comm_priv.h"

enum lf_beat_state { LF_BEAT_COMPUTE, LF_BEAT_COLLECTIVE, LF_BEAT_PHASE, LF_BEAT_GONE };

/* One heartbeat as it is sent. All machines of a job have one byte order and layout. */
struct lf_beat {
    uint16_t state;
    uint16_t backward; /* of the micro-batch: its backward pass */
    uint32_t id;       /* communicator of the collective (the last one, when computing) */
    uint64_t seq;      /* its number, 0: none yet */
    int64_t step;      /* -1: not told */
    int32_t micro;     /* micro-batch of the step, from 1; 0: none */
    int32_t lead;      /* first rank of the communicator: those of one split share an id */
    double since_s;    /* in this state */
    double still_s;    /* collective: since a byte moved */
    double limit_s;    /* phase: 0 without limit */
    char what[48];     /* collective (the last one, when computing) or phase */
};

/* What the judge knows of a rank. */
struct lf_beat_row {
    struct lf_beat beat;
    double unheard_s; /* since the last heartbeat */
    bool lost;        /* the connection ended without a goodbye */
};

/* Returns the rank that is to blame, or -1. text gets the line, without a newline. `peer` gives
 * host and pid of the ranks. */
int lf_watch_judge(const struct lf_beat_row *row, const struct lf_comm_peer *peer, int n,
                   double patience_s, char *text, size_t cap);
/* Writes where a rank is: "in all_reduce #12 of communicator 3", "computing since all_reduce #11",
 * "in phase \"save\"". */
void lf_watch_where(const struct lf_beat *b, char *text, size_t cap);

#endif
