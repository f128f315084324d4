/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that make the same passes: see group.h.
 */
#include "engine/infer/group.h"

/* That of lf_group_stop, which has the form of lf_stop_requested. */
static struct lf_group *at_work;

void lf_group_begin(struct lf_group *g, lf_comm *comm, bool (*stop)(void))
{
    *g = (struct lf_group){.comm = comm, .stop = stop};
    at_work = g;
}

/* A rank that cannot ask the others ends too. */
static bool any(struct lf_group *g, bool mine)
{
    int64_t by = mine ? g->comm->rank : -1;
    g->ended = lf_comm_agree_max(g->comm, &by, NULL) != 0 || by >= 0;
    g->by = (int)by;
    return g->ended;
}

bool lf_group_stop(void)
{
    struct lf_group *g = at_work;
    const bool mine = g && g->stop && g->stop();
    return g && g->comm ? any(g, mine) : mine;
}

int lf_group_end(struct lf_group *g, int rc, lf_err *err)
{
    at_work = NULL;
    if (!g->comm || (!g->ended && !any(g, rc != 0)) || (rc != 0 && rc != LF_EINTR) ||
        g->by == g->comm->rank)
        return rc;
    lf_err_clear(err);
    if (g->by < 0)
        return lf_fail(err, LF_ECOMM, "the ranks that have the model together are out of touch");
    return lf_fail(
        err, LF_EINTR,
        "rank %d of the %d that have the model together has failed or been asked to stop", g->by,
        g->comm->size);
}
