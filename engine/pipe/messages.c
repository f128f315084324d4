/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that adds messages, waits and buffers to the lists.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/pipe/pipe_priv.h"

enum { BUFFERS = 2, MOST_BUFFERS = 1 << 20 };

/* The list of one rank while it is rewritten. Arrays over micro-batches have m elements for each
 * `port`, which is dir * v + chunk. */
struct writer {
    const struct lf_pipe_spec *spec;
    int rank, buffers;
    bool late;
    struct lf_pipe_list to;
    int32_t *read;               /* the micro-batch of the k-th message that the port receives */
    int32_t *written;            /* and of the k-th that it sends */
    int32_t *held;               /* the buffer that an output for the same rank went to */
    bool *used;                  /* buffers of such outputs that are not read yet */
    int *reads, *posts, *writes; /* messages of a port so far */
    int *recv, *send;            /* buffers of a port */
};

static int port_of(const struct writer *w, int dir, int chunk)
{
    return dir * w->spec->chunks + chunk;
}

static int32_t *at(const struct writer *w, int32_t *array, int port, int k)
{
    return &array[(size_t)port * (size_t)w->spec->micro_batches + (size_t)k];
}

static void put(struct writer *w, enum lf_pipe_op op, int port, int micro, int buffer)
{
    struct lf_pipe_edge e;
    const bool sends = op == LF_PIPE_SEND || op == LF_PIPE_WAIT_SEND;
    lf_pipe_push(&w->to, op, port % w->spec->chunks, micro);
    struct lf_pipe_item *it = &w->to.item[w->to.n - 1];
    it->dir = (uint8_t)(port / w->spec->chunks);
    if (!(sends ? lf_pipe_output : lf_pipe_input)(&e, w->spec, w->rank, it))
        LF_BUG("a message without another end");
    it->peer = e.rank;
    it->tag = e.tag;
    *(sends ? &it->send_buffer : &it->recv_buffer) = buffer;
}

/* Posts the next receive of the port. */
static void post(struct writer *w, int port)
{
    const int k = w->posts[port]++;
    put(w, LF_PIPE_RECV, port, *at(w, w->read, port, k), k % w->recv[port]);
}

/* The number of the lowest buffer that is free for an output that stays on this rank. */
static int local_buffer(struct writer *w, int port)
{
    bool *used = &w->used[(size_t)port * (size_t)w->spec->micro_batches];
    int b = 0;
    while (used[b])
        b++;
    used[b] = true;
    if (b + 1 > w->recv[port])
        w->recv[port] = b + 1;
    return b;
}

/* Brings the input of an item. Returns the port that receives it, or -1. */
static int write_input(struct writer *w, struct lf_pipe_item *it)
{
    struct lf_pipe_edge e;
    if (!lf_pipe_input(&e, w->spec, w->rank, it))
        return -1;
    const int port = port_of(w, (int)e.dir, it->chunk);
    if (e.rank == w->rank) {
        it->recv_buffer = *at(w, w->held, port, it->micro);
        w->used[(size_t)port * (size_t)w->spec->micro_batches + (size_t)it->recv_buffer] = false;
        return -1;
    }
    it->recv_buffer = w->reads[port]++ % w->recv[port];
    if (w->late)
        post(w, port);
    put(w, LF_PIPE_WAIT_RECV, port, it->micro, it->recv_buffer);
    return port;
}

/* Finds a place for the output of an item. Returns the port that sends it, or -1. */
static int write_output(struct writer *w, struct lf_pipe_item *it)
{
    struct lf_pipe_edge e;
    if (!lf_pipe_output(&e, w->spec, w->rank, it))
        return -1;
    if (e.rank == w->rank) {
        const int reader = port_of(w, (int)e.dir, e.chunk);
        it->send_buffer = local_buffer(w, reader);
        *at(w, w->held, reader, it->micro) = it->send_buffer;
        return -1;
    }
    const int port = port_of(w, (int)e.dir, it->chunk), k = w->writes[port]++;
    const int have = w->send[port];
    it->send_buffer = k % have;
    *at(w, w->written, port, k) = it->micro;
    if (k >= have)
        put(w, LF_PIPE_WAIT_SEND, port, *at(w, w->written, port, k - have), it->send_buffer);
    return port;
}

/* A port receives each micro-batch once. */
static void write_item(struct writer *w, struct lf_pipe_item it)
{
    const int in = write_input(w, &it), out = write_output(w, &it);
    w->to.item[w->to.n++] = it;
    if (in >= 0 && !w->late && w->posts[in] < w->spec->micro_batches)
        post(w, in);
    if (out >= 0)
        put(w, LF_PIPE_SEND, out, it.micro, it.send_buffer);
}

/* How many buffers the port at this end of the edge has. What the order keeps under way needs one
 * each: where receives are posted early the reader has them, else the writer. */
static int buffers_of(const struct writer *w, const struct lf_pipe_edge *e, bool sends)
{
    const int want = w->buffers + (sends == w->late ? e->ahead : 0), m = w->spec->micro_batches;
    return want < m ? want : m;
}

/* Notes the buffers of ports and the order in which they receive. */
static void survey(struct writer *w, const struct lf_pipe_list *from)
{
    struct lf_pipe_edge e;
    for (int i = 0; i < from->n; i++) {
        const struct lf_pipe_item *it = &from->item[i];
        if (lf_pipe_input(&e, w->spec, w->rank, it) && e.rank != w->rank) {
            const int port = port_of(w, (int)e.dir, it->chunk);
            *at(w, w->read, port, w->reads[port]++) = it->micro;
            w->recv[port] = buffers_of(w, &e, false);
        }
        if (lf_pipe_output(&e, w->spec, w->rank, it) && e.rank != w->rank)
            w->send[port_of(w, (int)e.dir, it->chunk)] = buffers_of(w, &e, true);
    }
}

/* Posts what has a buffer from the start, in the order in which it is needed. */
static void post_first(struct writer *w, const struct lf_pipe_list *from)
{
    struct lf_pipe_edge e;
    for (int i = 0; i < from->n; i++) {
        const struct lf_pipe_item *it = &from->item[i];
        if (!lf_pipe_input(&e, w->spec, w->rank, it) || e.rank == w->rank)
            continue;
        const int port = port_of(w, (int)e.dir, it->chunk);
        if (w->posts[port] < w->recv[port])
            post(w, port);
    }
}

static void write_list(struct writer *w, const struct lf_pipe_list *from)
{
    const int ports = LF_PIPE_DIRS * w->spec->chunks;
    survey(w, from);
    memset(w->reads, 0, (size_t)ports * sizeof *w->reads);
    if (!w->late)
        post_first(w, from);
    for (int i = 0; i < from->n; i++)
        write_item(w, from->item[i]);
    for (int port = 0; port < ports; port++) {
        const int n = w->writes[port], have = w->send[port];
        for (int k = n > have ? n - have : 0; k < n; k++)
            put(w, LF_PIPE_WAIT_SEND, port, *at(w, w->written, port, k), k % have);
    }
}

/* What the ports of this rank have. */
static void count_buffers(struct lf_pipe *p, const struct writer *w)
{
    for (int d = 0; d < LF_PIPE_DIRS; d++)
        for (int c = 0; c < p->spec.chunks; c++) {
            const int port = port_of(w, d, c), to = lf_pipe_at(&p->spec, w->rank, c);
            p->recv_buffers[d][to] = w->recv[port];
            p->send_buffers[d][to] = w->send[port];
        }
}

/* Writes the list of one rank into *to, which has no memory yet. */
static int add_to_rank(struct lf_pipe *p, struct lf_pipe_list *to, struct writer *w, lf_err *err)
{
    const struct lf_pipe_list *from = &p->list[w->rank];
    const size_t ports = (size_t)(LF_PIPE_DIRS * p->spec.chunks),
                 each = ports * (size_t)p->spec.micro_batches;
    /* An item waits for its input, which was posted, and for its buffer, and sends: 5 items. */
    w->to = (struct lf_pipe_list){lf_malloc(5 * (size_t)from->n, sizeof *w->to.item, err), 0};
    *to = w->to;
    int32_t *many = w->to.item ? lf_calloc(3 * each, sizeof *many, err) : NULL;
    int *few = many ? lf_calloc(5 * ports, sizeof *few, err) : NULL;
    w->used = few ? lf_calloc(each, sizeof *w->used, err) : NULL;
    const int rc = w->used ? 0 : LF_ENOMEM;
    if (rc == 0) {
        w->read = many, w->written = many + each, w->held = many + 2 * each;
        w->reads = few, w->posts = few + ports, w->writes = few + 2 * ports;
        w->recv = few + 3 * ports, w->send = few + 4 * ports;
        write_list(w, from);
        count_buffers(p, w);
        to->n = w->to.n;
    }
    free(w->used);
    free(few);
    free(many);
    return rc;
}

int lf_pipe_add_messages(struct lf_pipe *p, const struct lf_pipe_message_opts *o, lf_err *err)
{
    const struct lf_pipe_message_opts none = {0}, *use = o ? o : &none;
    const int want = use->buffers ? use->buffers : BUFFERS;
    if (p->messages || use->buffers < 0 || use->buffers > MOST_BUFFERS)
        return lf_fail(err, LF_EINVAL, "%s",
                       p->messages ? "the lists of this pipeline schedule have messages already"
                                   : "a pipeline schedule has 1 to 2^20 buffers for messages");
    struct lf_pipe_list *made = lf_calloc((size_t)p->spec.ranks, sizeof *made, err);
    int rc = made ? 0 : LF_ENOMEM;
    for (int r = 0; rc == 0 && r < p->spec.ranks; r++) {
        struct writer w = {.spec = &p->spec, .rank = r, .buffers = want, .late = use->late};
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
