/* SPDX-License-Identifier: Apache-2.0
 *
 * Why a schedule hangs: each rank stands at an item that waits for an item of another rank. Going
 * from rank to rank leads into a cycle.
 */
#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/pipe/walk_priv.h"

enum { SHOWN = 5 }; /* ranks of a cycle in a message, which has room for about seven */

static const struct lf_pipe_item *stands_at(const struct lf_pipe_walker *w, int rank)
{
    return &w->p->list[rank].item[w->at[rank]];
}

/* The item that the rank waits for, and the rank whose item it is. It is the maker of an input, a
 * send, or a receive, and it is still to come there: lists are complete. */
static const struct lf_pipe_item *awaited(int *other, const struct lf_pipe_walker *w, int rank)
{
    const struct lf_pipe_item *it = stands_at(w, rank);
    struct lf_pipe_edge e, back;
    const enum lf_pipe_needs needs = lf_pipe_item_needs(&e, w, rank, it);
    const struct lf_pipe_list *l = &w->p->list[e.rank];
    *other = e.rank;
    for (int i = w->at[e.rank]; i < l->n; i++) {
        const struct lf_pipe_item *that = &l->item[i];
        const bool kind = needs == LF_PIPE_POSTED ? that->op == LF_PIPE_RECV
                          : w->p->messages        ? that->op == LF_PIPE_SEND
                                                  : lf_pipe_computes(that);
        if (kind && that->micro == it->micro &&
            (needs == LF_PIPE_POSTED ? lf_pipe_input : lf_pipe_output)(&back, &w->p->spec, e.rank,
                                                                       that) &&
            back.channel == e.channel)
            return that;
    }
    LF_BUG("rank %d waits for an item that is done", rank);
}

/* A rank of the cycle that the lowest rank that stands leads to. */
static int rank_in_cycle(const struct lf_pipe_walker *w)
{
    int rank = 0;
    while (w->at[rank] == w->p->list[rank].n)
        rank++;
    for (int i = 0; i < w->p->spec.ranks; i++)
        awaited(&rank, w, rank);
    return rank;
}

int lf_pipe_hang(const struct lf_pipe_walker *w, lf_err *err)
{
    char here[128], there[128];
    const int first = rank_in_cycle(w);
    int rank = first, n = 0, other;
    lf_buf text;
    lf_buf_init(&text);
    do {
        const struct lf_pipe_item *want = awaited(&other, w, rank);
        if (n++ < SHOWN)
            lf_buf_addf(&text, "%s%s waits for %s", n > 1 ? "; " : "",
                        lf_pipe_item_name(here, sizeof here, rank, stands_at(w, rank)),
                        lf_pipe_item_name(there, sizeof there, other, want));
        rank = other;
    } while (rank != first);
    if (n > SHOWN)
        lf_buf_addf(&text, "; and %d ranks more", n - SHOWN);
    int rc = lf_buf_check(&text, err);
    if (rc == 0)
        rc = lf_fail(err, LF_EINVAL, "the pipeline schedule is cyclic and hangs: %s", text.data);
    lf_buf_fini(&text);
    return rc;
}
