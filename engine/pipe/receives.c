/* SPDX-License-Identifier: Apache-2.0
 *
 * In which order receives are posted, and when.
 */
#include "engine/pipe/messages_priv.h"

/* What the order keeps under way needs a buffer each: where receives are posted early the reader
 * has them, else both, since the reader then takes them in the order of sends. */
int lf_pipe_buffers_of(const struct lf_pipe_writer *w, const struct lf_pipe_edge *e, bool sends)
{
    const int want = w->buffers + (sends && !w->o->late ? 0 : e->ahead);
    return want < w->p->spec.micro_batches ? want : w->p->spec.micro_batches;
}

static void append(struct lf_pipe_writer *w, int port, int micro)
{
    const int q = w->queue[port], entry = (int)lf_pipe_entry(w, port, micro);
    if (w->tail[q])
        w->next[w->tail[q] - 1] = 1 + entry;
    else
        w->head[q] = 1 + entry;
    w->tail[q] = 1 + entry;
}

/* The receives of this port and of all others from the same rank, in the order in which that rank
 * sends. */
static void append_sends(struct lf_pipe_writer *w, int port)
{
    const int ports = LF_PIPE_DIRS * w->p->spec.chunks, from = w->peer[port] - 1;
    const struct lf_pipe_list *l = &w->p->list[from];
    struct lf_pipe_edge e;
    for (int other = port; other < ports; other++)
        if (w->peer[other] == 1 + from)
            w->queue[other] = port;
    for (int i = 0; i < l->n; i++)
        if (lf_pipe_output(&e, &w->p->spec, from, &l->item[i]) && e.rank == w->rank)
            append(w, lf_pipe_port(w, (int)e.dir, e.chunk), l->item[i].micro);
}

void lf_pipe_queue_receives(struct lf_pipe_writer *w)
{
    const struct lf_pipe_list *l = &w->p->list[w->rank];
    const int ports = LF_PIPE_DIRS * w->p->spec.chunks;
    struct lf_pipe_edge e;
    for (int i = 0; i < l->n; i++) {
        if (!lf_pipe_input(&e, &w->p->spec, w->rank, &l->item[i]) || e.rank == w->rank)
            continue;
        const int port = lf_pipe_port(w, (int)e.dir, l->item[i].chunk);
        w->recv[port] = lf_pipe_buffers_of(w, &e, false);
        w->peer[port] = 1 + e.rank;
        w->queue[port] = -1;
    }
    for (int port = 0; port < ports; port++)
        if (w->queue[port] < 0)
            append_sends(w, port);
}

void lf_pipe_post(struct lf_pipe_writer *w, int queue, int64_t entry)
{
    const int m = w->p->spec.micro_batches;
    for (bool found = false; w->head[queue] && !found;) {
        const int first = w->head[queue] - 1, port = first / m;
        if (w->posts[port] - w->reads[port] >= w->recv[port])
            return;
        const int buffer = w->posts[port]++ % w->recv[port];
        lf_pipe_put(w, LF_PIPE_RECV, port, first % m, buffer);
        w->held[first] = 1 + buffer;
        w->head[queue] = w->next[first];
        found = first == entry;
    }
}
