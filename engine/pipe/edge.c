/* SPDX-License-Identifier: Apache-2.0
 *
 * Which pipeline stage an item reads and which one reads it, and how an item is called.
 */
#include <stdio.h>

#include "engine/pipe/pipe_priv.h"

/* The direction of what the item reads and writes. False: neither crosses a pipeline stage. */
static bool direction(enum lf_pipe_dir *dir, const struct lf_pipe_item *it)
{
    if (it->op == LF_PIPE_W)
        return false;
    *dir = !lf_pipe_computes(it) ? (enum lf_pipe_dir)it->dir
           : it->op == LF_PIPE_F ? LF_PIPE_ACTIVATION
                                 : LF_PIPE_GRADIENT;
    return true;
}

/* Fills the edge between the item and the pipeline stage `step` behind it in the direction of the
 * data: +1 is the reader, -1 the writer. */
static bool edge(struct lf_pipe_edge *e, const struct lf_pipe_spec *s, int rank,
                 const struct lf_pipe_item *it, int step)
{
    enum lf_pipe_dir dir;
    if (!direction(&dir, it))
        return false;
    const int stages = lf_pipe_stages(s), here = lf_pipe_stage(s, rank, it->chunk);
    const int other = dir == LF_PIPE_ACTIVATION ? here + step : here - step;
    if (other < 0 || other >= stages)
        return false;
    e->dir = dir;
    e->channel = (int)dir * stages + (step > 0 ? other : here);
    lf_pipe_place(&e->rank, &e->chunk, s, other);
    e->tag = 2 * (step > 0 ? e->chunk : it->chunk) + (int)dir;
    /* A group of N goes through all ranks before the first of it goes round to the next chunk, so
     * N - P micro-batches wait there. */
    e->ahead = e->chunk != it->chunk && s->group > s->ranks ? s->group - s->ranks : 0;
    return true;
}

bool lf_pipe_input(struct lf_pipe_edge *e, const struct lf_pipe_spec *s, int rank,
                   const struct lf_pipe_item *it)
{
    return edge(e, s, rank, it, -1);
}

bool lf_pipe_output(struct lf_pipe_edge *e, const struct lf_pipe_spec *s, int rank,
                    const struct lf_pipe_item *it)
{
    return edge(e, s, rank, it, 1);
}

const char *lf_pipe_item_name(char *buf, size_t cap, int rank, const struct lf_pipe_item *it)
{
    static const char *const ops[LF_PIPE_OPS] = {
        "F", "B", "W", "Z", "send", "receive", "wait for the send", "wait for the receive"};
    static const char *const dirs[LF_PIPE_DIRS] = {"activation", "gradient"};
    const char *dir = it->dir < LF_PIPE_DIRS ? dirs[it->dir] : "unknown data";
    if (lf_pipe_computes(it))
        snprintf(buf, cap, "rank %d, %s of micro-batch %d, chunk %d", rank, ops[it->op], it->micro,
                 it->chunk);
    else
        snprintf(buf, cap, "rank %d, %s of the %s of micro-batch %d, chunk %d, %s rank %d", rank,
                 ops[it->op], dir, it->micro, it->chunk,
                 it->op == LF_PIPE_SEND || it->op == LF_PIPE_WAIT_SEND ? "to" : "from", it->peer);
    return buf;
}
