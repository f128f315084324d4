/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a walk, between walk.c and hang.c.
 */
#ifndef LF_PIPE_WALK_PRIV_H
#define LF_PIPE_WALK_PRIV_H

#include "engine/pipe/pipe_priv.h"
#include "engine/pipe/walk.h"

struct lf_pipe_walker {
    const struct lf_pipe *p;
    const struct lf_pipe_walk_opts *o;
    /* By [channel][micro-batch]: when the writer made or sent it, and when the reader posted its
     * receive. Negative: not yet. */
    double *sent_s, *posted_s;
    int *at;         /* [ranks]: the next item */
    double *clock_s; /* [ranks] */
    struct lf_pipe_timing t;
};

/* What an item waits for: the time of sent_s or posted_s of its channel, or neither. */
enum lf_pipe_needs { LF_PIPE_NOTHING, LF_PIPE_SENT = 1, LF_PIPE_POSTED = 2 };

/* The edge that is filled is that of the message. */
enum lf_pipe_needs lf_pipe_item_needs(struct lf_pipe_edge *e, const struct lf_pipe_walker *w,
                                      int rank, const struct lf_pipe_item *it);

/* Words why no rank can go on. */
int lf_pipe_hang(const struct lf_pipe_walker *w, lf_err *err);

#endif
