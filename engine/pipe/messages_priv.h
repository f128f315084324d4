/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of one rank while messages are added to it, between messages.c and receives.c.
 */
#ifndef LF_PIPE_MESSAGES_PRIV_H
#define LF_PIPE_MESSAGES_PRIV_H

#include "engine/pipe/pipe_priv.h"

/* A port is a direction and a chunk of the rank, dir * v + chunk. An entry is a message or another
 * output for a port, port * m + micro-batch. */
struct lf_pipe_writer {
    const struct lf_pipe *p;
    const struct lf_pipe_message_opts *o;
    int rank, buffers;
    struct lf_pipe_list to;
    int32_t *held;    /* [entry]: 1 + the buffer that it comes into, or 0 */
    int32_t *next;    /* [entry]: 1 + the entry behind it in its queue, or 0 */
    int32_t *written; /* [port][k]: the micro-batch of the k-th send */
    bool *used;       /* [port][buffer]: holds an output of the same rank that is not read yet */
    int *recv, *send; /* [port]: buffers */
    int *posts, *reads, *writes; /* [port]: receives posted and read, sends, so far */
    int *peer;                   /* [port]: 1 + the rank that it receives from, or 0 */
    int *queue;       /* [port]: where its receives stand; a queue has the number of a port */
    int *head, *tail; /* [queue]: 1 + entry, or 0 */
    const struct lf_pipe_item *stuck; /* an item whose receive cannot be posted before it */
};

static inline int lf_pipe_port(const struct lf_pipe_writer *w, int dir, int chunk)
{
    return dir * w->p->spec.chunks + chunk;
}

static inline size_t lf_pipe_entry(const struct lf_pipe_writer *w, int port, int micro)
{
    return (size_t)port * (size_t)w->p->spec.micro_batches + (size_t)micro;
}

/* Appends a message or wait of this rank. */
void lf_pipe_put(struct lf_pipe_writer *w, enum lf_pipe_op op, int port, int micro, int buffer);

/* Queues all receives in the order in which they are posted, and sets w->recv where something is
 * received. What comes from one other rank has one queue, in the order in which that one sends. */
void lf_pipe_queue_receives(struct lf_pipe_writer *w);
/* Posts what stands in the queue up to the entry, or all of it (-1), while there are buffers. */
void lf_pipe_post(struct lf_pipe_writer *w, int queue, int64_t entry);

/* How many buffers the port at this end of the edge has for receives, or for sends. */
int lf_pipe_buffers_of(const struct lf_pipe_writer *w, const struct lf_pipe_edge *e, bool sends);

#endif
