/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that adds messages, waits and buffers to the lists.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/pipe/messages_priv.h"

enum { BUFFERS = 2, MOST_BUFFERS = 1 << 20 };

void lf_pipe_put(struct lf_pipe_writer *w, enum lf_pipe_op op, int port, int micro, int buffer)
{
    struct lf_pipe_edge e;
    const bool sends = op == LF_PIPE_SEND || op == LF_PIPE_WAIT_SEND;
    lf_pipe_push(&w->to, op, port % w->p->spec.chunks, micro);
    struct lf_pipe_item *it = &w->to.item[w->to.n - 1];
    it->dir = (uint8_t)(port / w->p->spec.chunks);
    if (!(sends ? lf_pipe_output : lf_pipe_input)(&e, &w->p->spec, w->rank, it))
        LF_BUG("a message without another end");
    it->peer = e.rank;
    it->tag = e.tag;
    *(sends ? &it->send_buffer : &it->recv_buffer) = buffer;
}

/* The number of the lowest buffer that is free for an output that stays on this rank. */
static int local_buffer(struct lf_pipe_writer *w, int port)
{
    bool *used = &w->used[lf_pipe_entry(w, port, 0)];
    int b = 0;
    while (used[b])
        b++;
    used[b] = true;
    if (b + 1 > w->recv[port])
        w->recv[port] = b + 1;
    return b;
}

/* Brings the input of an item. Returns the port that receives it, or -1. */
static int write_input(struct lf_pipe_writer *w, struct lf_pipe_item *it)
{
    struct lf_pipe_edge e;
    if (!lf_pipe_input(&e, &w->p->spec, w->rank, it))
        return -1;
    const int port = lf_pipe_port(w, (int)e.dir, it->chunk);
    const size_t entry = lf_pipe_entry(w, port, it->micro);
    if (w->o->late && e.rank != w->rank && !w->held[entry])
        lf_pipe_post(w, w->queue[port], (int64_t)entry);
    it->recv_buffer = w->held[entry] - 1;
    if (e.rank == w->rank) {
        w->used[lf_pipe_entry(w, port, it->recv_buffer)] = false;
        return -1;
    }
    if (w->held[entry])
        lf_pipe_put(w, LF_PIPE_WAIT_RECV, port, it->micro, it->recv_buffer);
    return port;
}

/* Finds a place for the output of an item. Returns the port that sends it, or -1. */
static int write_output(struct lf_pipe_writer *w, struct lf_pipe_item *it)
{
    struct lf_pipe_edge e;
    if (!lf_pipe_output(&e, &w->p->spec, w->rank, it))
        return -1;
    if (e.rank == w->rank) {
        const int reader = lf_pipe_port(w, (int)e.dir, e.chunk);
        it->send_buffer = local_buffer(w, reader);
        w->held[lf_pipe_entry(w, reader, it->micro)] = 1 + it->send_buffer;
        return -1;
    }
    const int port = lf_pipe_port(w, (int)e.dir, it->chunk), k = w->writes[port]++;
    const int32_t *written = &w->written[lf_pipe_entry(w, port, 0)];
    w->send[port] = lf_pipe_buffers_of(w, &e, true);
    it->send_buffer = k % w->send[port];
    w->written[lf_pipe_entry(w, port, k)] = it->micro;
    if (k >= w->send[port])
        lf_pipe_put(w, LF_PIPE_WAIT_SEND, port, written[k - w->send[port]], it->send_buffer);
    return port;
}

static void write_item(struct lf_pipe_writer *w, const struct lf_pipe_item *from)
{
    struct lf_pipe_item it = *from;
    const int in = write_input(w, &it), out = write_output(w, &it);
    if (in >= 0 && it.recv_buffer < 0 && !w->stuck)
        w->stuck = from;
    w->to.item[w->to.n++] = it;
    if (in >= 0) {
        w->reads[in]++;
        if (!w->o->late)
            lf_pipe_post(w, w->queue[in], -1);
    }
    if (out >= 0)
        lf_pipe_put(w, LF_PIPE_SEND, out, it.micro, it.send_buffer);
}

static void write_list(struct lf_pipe_writer *w)
{
    const struct lf_pipe_list *from = &w->p->list[w->rank];
    const int ports = LF_PIPE_DIRS * w->p->spec.chunks;
    lf_pipe_queue_receives(w);
    for (int q = 0; q < ports && !w->o->late; q++)
        lf_pipe_post(w, q, -1);
    for (int i = 0; i < from->n && !w->stuck; i++)
        write_item(w, &from->item[i]);
    for (int port = 0; port < ports; port++) {
        const int n = w->writes[port], have = w->send[port];
        for (int k = n > have ? n - have : 0; k < n; k++)
            lf_pipe_put(w, LF_PIPE_WAIT_SEND, port, w->written[lf_pipe_entry(w, port, k)],
                        k % have);
    }
}

/* What the ports of this rank have. */
static void count_buffers(struct lf_pipe *p, const struct lf_pipe_writer *w)
{
    for (int d = 0; d < LF_PIPE_DIRS; d++)
        for (int c = 0; c < p->spec.chunks; c++) {
            const int port = lf_pipe_port(w, d, c), to = lf_pipe_at(&p->spec, w->rank, c);
            p->recv_buffers[d][to] = w->recv[port];
            p->send_buffers[d][to] = w->send[port];
        }
}

static int check_stuck(const struct lf_pipe_writer *w, lf_err *err)
{
    char name[128];
    if (!w->stuck)
        return 0;
    return lf_fail(err, LF_EINVAL,
                   "pipeline schedule: %s: its receive stands behind others that have no buffer; "
                   "%d are not enough",
                   lf_pipe_item_name(name, sizeof name, w->rank, w->stuck), w->buffers);
}

/* Writes the list of one rank into *to, which has no memory yet. */
static int add_to_rank(struct lf_pipe *p, struct lf_pipe_list *to, struct lf_pipe_writer *w,
                       lf_err *err)
{
    const size_t ports = (size_t)(LF_PIPE_DIRS * p->spec.chunks),
                 each = ports * (size_t)p->spec.micro_batches;
    /* An item waits for its input, which was posted, and for its buffer, and sends: 5 items. */
    to->item = lf_malloc(5 * (size_t)p->list[w->rank].n, sizeof *to->item, err);
    int32_t *many = to->item ? lf_calloc(3 * each, sizeof *many, err) : NULL;
    int *few = many ? lf_calloc(9 * ports, sizeof *few, err) : NULL;
    w->used = few ? lf_calloc(each, sizeof *w->used, err) : NULL;
    int rc = w->used ? 0 : LF_ENOMEM;
    if (rc == 0) {
        w->to.item = to->item;
        w->held = many, w->next = many + each, w->written = many + 2 * each;
        w->recv = few, w->send = few + ports, w->posts = few + 2 * ports;
        w->reads = few + 3 * ports, w->writes = few + 4 * ports, w->peer = few + 5 * ports;
        w->queue = few + 6 * ports, w->head = few + 7 * ports, w->tail = few + 8 * ports;
        write_list(w);
        count_buffers(p, w);
        to->n = w->to.n;
        rc = check_stuck(w, err);
    }
    free(w->used);
    free(few);
    free(many);
    return rc;
}

static int check_opts(const struct lf_pipe *p, int buffers, lf_err *err)
{
    if (p->messages)
        return lf_fail(err, LF_EINVAL, "the lists of this pipeline schedule have messages already");
    if (buffers < 0 || buffers > MOST_BUFFERS)
        return lf_fail(err, LF_EINVAL, "a pipeline schedule has 1 to 2^20 buffers for messages");
    return lf_pipe_check(p, err);
}

int lf_pipe_add_messages(struct lf_pipe *p, const struct lf_pipe_message_opts *o, lf_err *err)
{
    const struct lf_pipe_message_opts none = {0}, *use = o ? o : &none;
    int rc = check_opts(p, use->buffers, err);
    if (rc < 0)
        return rc;
    struct lf_pipe_list *made = lf_calloc((size_t)p->spec.ranks, sizeof *made, err);
    rc = made ? 0 : LF_ENOMEM;
    for (int r = 0; rc == 0 && r < p->spec.ranks; r++) {
        struct lf_pipe_writer w = {
            .p = p, .o = use, .rank = r, .buffers = use->buffers ? use->buffers : BUFFERS};
        rc = add_to_rank(p, &made[r], &w, err);
    }
    for (int r = 0; made && r < p->spec.ranks; r++) {
        free(rc == 0 ? p->list[r].item : made[r].item);
        if (rc == 0)
            p->list[r] = made[r];
    }
    if (rc < 0) /* The counts of buffers are one block. */
        memset(p->recv_buffers[0], 0, 4 * (size_t)lf_pipe_stages(&p->spec) * sizeof(int));
    p->messages = rc == 0;
    free(made);
    return rc;
}
