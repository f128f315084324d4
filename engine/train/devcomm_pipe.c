/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of a pipeline between GPUs, over NCCL and beside the computation.
 *
 * A send of NCCL holds its stream until its receive comes, a receive until its send does, and what
 * is behind either waits, whatever it is. NCCL knows no tags. So each direction of each pair of
 * neighbours is a channel of its own: two ranks, a communicator, a lane of the backend. In it go
 * the messages from one rank to the other, in the order in which both lists have them
 * (engine/pipe/pipe.h). The lists post receives early, and then sends that wait for them hang in no
 * list that was walked. No channel shares resources with another communicator (splitShare), for
 * NCCL launches the kernels of such a family one behind the other (strongstream.h of NCCL 2.30).
 *
 * NCCL connects two ranks at their first message, and the host waits for the other rank there. A
 * list has receives long before their sends, so channels are connected when they are made, in an
 * order that all ranks have.
 */
#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/train/devcomm_priv.h"

enum { HELLO = 256 }; /* bytes of the first message */

/* Does a pair of neighbours meet in this round, and of which rank is it the first? Every rank is in
 * at most one pair of a round: (0, 1), (2, 3) ..; (1, 2), (3, 4) ..; and the last with the first
 * where messages go round. -1: this rank is in none. */
static int pair_of(const lf_comm *c, int round, bool ring)
{
    const int r = c->rank, p = c->size, first = r % 2 == round % 2 ? r : r - 1;
    if (round == 2)
        return ring && p > 2 && (r == 0 || r == p - 1) ? 0 : -1;
    return first >= 0 && first + 1 < p ? first : -1;
}

/* The first message of a channel. */
static int greet(struct lf_devcomm *d, const struct lf_devcomm_channel *k, bool send, void *room,
                 lf_err *err)
{
    lf_comm_req q = {0};
    const int other = 1 - k->gpus->rank;
    int rc = d->back->ops->lane_begin(d->back, k->lane, err);
    if (rc == 0)
        rc = send ? lf_comm_isend(k->gpus, room, HELLO, other, 0, &q, err)
                  : lf_comm_irecv(k->gpus, room, HELLO, other, 0, &q, err);
    return rc != 0 ? rc : lf_comm_wait(&q, err); /* it is queued */
}

/* Collective over the two ranks: first the channel from the first of them, then the other. */
static int open_pair(struct lf_devcomm *d, struct lf_devcomm_pair *k, void *room, lf_err *err)
{
    int rc = 0;
    for (int from = 0; from < 2 && rc == 0; from++) {
        const bool send = k->host->rank == from;
        struct lf_devcomm_channel *at = &k->channel[send];
        at->lane = (size_t)(2 * d->n_pairs + send);
        void *stream = d->back->ops->lane_stream(d->back, at->lane, err);
        rc = lf_comm_agree_ok(k->host, stream ? 0 : LF_EDEVICE, err);
        const struct lf_comm_gpus on = {
            .device = d->back->ordinal, .stream = stream, .blocks = LF_DEVCOMM_BLOCKS};
        if (rc == 0 && !(at->gpus = lf_comm_on_gpus(k->host, &on, err)))
            rc = err ? err->rc : LF_ECOMM;
        if (rc == 0)
            rc = greet(d, at, send, room, err);
    }
    return rc;
}

/* A failure of some ranks is one of all, before they begin the next round. */
static int open_round(struct lf_devcomm *d, int round, bool ring, void *room, lf_err *err)
{
    const lf_comm *c = d->pipeline;
    const int first = pair_of(c, round, ring);
    lf_comm *host = lf_comm_split(d->pipeline, first, c->rank, err);
    int rc = host || first < 0 ? 0 : LF_ECOMM;
    if (host) {
        struct lf_devcomm_pair *k = &d->pair[d->n_pairs];
        *k = (struct lf_devcomm_pair){.host = host};
        k->peer = round == 2 ? c->size - 1 - c->rank : c->rank == first ? first + 1 : first;
        rc = open_pair(d, k, room, err);
        d->n_pairs++;
    }
    return lf_comm_agree_ok(d->pipeline, rc, err);
}

/* Streams share the queues of a GPU, 8 unless the environment says otherwise. A kernel that waits
 * at the head of one holds those behind it, such as the message that it waits for. */
static int check_queues(lf_err *err)
{
    enum { STREAMS = 2 + LF_BACK_LANES };
    const char *said = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    int64_t n = 8;
    if (!said || lf_parse_i64(&n, said, NULL) || n >= STREAMS)
        return 0;
    return lf_fail(err, LF_EINVAL,
                   "CUDA_DEVICE_MAX_CONNECTIONS=%s: messages and computation need %d queues of the "
                   "GPU, or may wait for each other for ever; leave it out, or set LF_COMM=ucx",
                   said, (int)STREAMS);
}

int lf_devcomm_open_pairs(struct lf_devcomm *d, bool ring, lf_err *err)
{
    void *room = NULL;
    int rc = check_queues(err);
    if (rc == 0 && !(room = d->back->ops->alloc(d->back, HELLO, err)))
        rc = LF_ENOMEM;
    rc = lf_comm_agree_ok(d->pipeline, rc, err);
    for (int round = 0; round < 3 && rc == 0; round++)
        rc = open_round(d, round, ring, room, err);
    if (rc == 0)
        rc = d->back->ops->sync(d->back, err);
    if (rc == 0) /* else something may be queued that uses it, and it goes with the device */
        d->back->ops->release(d->back, room, HELLO);
    return rc == 0 ? 0 : lf_err_prefix(err, "messages between GPUs of a pipeline");
}

void lf_devcomm_close_pairs(struct lf_devcomm *d, bool failed)
{
    for (int i = 0; i < d->n_pairs; i++) {
        for (int k = 0; k < 2; k++)
            failed ? lf_comm_on_gpus_abort(d->pair[i].channel[k].gpus)
                   : lf_comm_on_gpus_destroy(d->pair[i].channel[k].gpus);
        lf_comm_destroy(d->pair[i].host);
    }
    d->n_pairs = 0;
}

/* ---- messages ---- */

static const struct lf_devcomm_channel *channel_of(const struct lf_devcomm *d, int peer, bool send)
{
    for (int i = 0; i < d->n_pairs; i++)
        if (d->pair[i].peer == peer)
            return &d->pair[i].channel[send];
    return NULL;
}

int lf_devcomm_begin_message(const struct lf_devcomm *d, const struct lf_devcomm_message *m,
                             lf_err *err)
{
    const struct lf_devcomm_channel *k = channel_of(d, m->peer, m->send);
    const struct lf_back_ops *o = d->back->ops;
    lf_comm_req q = {0};
    if (!k)
        LF_BUG("rank %d of a pipeline is no neighbour", m->peer);
    int rc = o->lane_begin(d->back, k->lane, err);
    if (rc == 0)
        rc = m->send
                 ? lf_comm_isend(k->gpus, m->data, m->bytes, 1 - k->gpus->rank, m->tag, &q, err)
                 : lf_comm_irecv(k->gpus, m->data, m->bytes, 1 - k->gpus->rank, m->tag, &q, err);
    if (rc == 0)
        rc = lf_comm_wait(&q, err); /* it is queued */
    return rc != 0 ? rc : o->lane_mark(d->back, k->lane, m->mark, err);
}

int lf_devcomm_end_message(const struct lf_devcomm *d, size_t mark, lf_err *err)
{
    return d->back->ops->lane_wait(d->back, mark, err);
}
