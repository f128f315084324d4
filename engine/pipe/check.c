/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules that need no clock. Each list is read once, with the state of its slots and buffers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/pipe/pipe_priv.h"

enum { DID_F = 1, DID_B = 2, DID_W = 4, DID_Z = DID_B | DID_W, DID_ALL = DID_F | DID_Z };

static const unsigned char did_of[] = {
    [LF_PIPE_F] = DID_F, [LF_PIPE_B] = DID_B, [LF_PIPE_W] = DID_W, [LF_PIPE_Z] = DID_Z};

enum holds { FREE, POSTED, FULL, FLYING };

struct buffer {
    int32_t micro;
    enum holds holds;
};

/* Tables of check. A channel is that of struct lf_pipe_edge. */
struct check {
    const struct lf_pipe *p;
    size_t m, buffers, slots; /* the most buffers and slots that a chunk has */
    unsigned char *did;       /* [pipeline stage][m] */
    int32_t *owner;           /* [pipeline stage][slots]: 1 + micro-batch, or 0 */
    int32_t *next[2];         /* [pipeline stage]: the lowest micro-batch of B or Z, W or Z */
    struct buffer *recv;      /* [channel][buffers] */
    struct buffer *send;      /* [channel][buffers] */
};

/* Words a broken rule: the item, then what is wrong with it. */
static int __attribute__((format(printf, 4, 5)))
broken(lf_err *err, int rank, const struct lf_pipe_item *it, const char *fmt, ...)
{
    char name[128], text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return lf_fail(err, LF_EINVAL, "pipeline schedule: %s %s",
                   lf_pipe_item_name(name, sizeof name, rank, it), text);
}

/* All that is done of a micro-batch in a chunk. */
static unsigned char whole(const struct check *k)
{
    return k->p->spec.forward ? DID_F : DID_ALL;
}

/* F, then B or Z, then W; each once; backward passes ascend. */
static int check_order(struct check *k, int rank, const struct lf_pipe_item *it, lf_err *err)
{
    const int stage = lf_pipe_stage(&k->p->spec, rank, it->chunk);
    unsigned char *did = &k->did[(size_t)stage * k->m + (size_t)it->micro];
    const unsigned char now = did_of[it->op];
    if (now & ~whole(k))
        return broken(err, rank, it, "is in lists that only go forwards");
    if (*did & now)
        return broken(err, rank, it, "is there twice");
    if (now != DID_F && !(*did & DID_F))
        return broken(err, rank, it, "comes before its F");
    if (now == DID_W && !(*did & DID_B))
        return broken(err, rank, it, "comes before its B");
    for (int i = 0; i < 2; i++) {
        if (!(now & (i ? DID_W : DID_B)))
            continue;
        if (it->micro < k->next[i][stage])
            return broken(err, rank, it, "comes behind micro-batch %d: backward passes ascend",
                          k->next[i][stage] - 1);
        k->next[i][stage] = it->micro + 1;
    }
    *did |= now;
    return 0;
}

static int check_slot(struct check *k, int rank, const struct lf_pipe_item *it, lf_err *err)
{
    const struct lf_pipe_spec *s = &k->p->spec;
    const size_t stage = (size_t)lf_pipe_stage(s, rank, it->chunk);
    if (it->slot < 0 || it->slot >= k->p->slots[lf_pipe_at(s, rank, it->chunk)])
        return broken(err, rank, it, "has slot %d, which its chunk has not", it->slot);
    int32_t *owner = &k->owner[stage * k->slots + (size_t)it->slot];
    const int32_t want = it->op == LF_PIPE_F ? 0 : 1 + it->micro;
    if (*owner != want)
        return broken(err, rank, it,
                      *owner ? "has slot %d, which holds micro-batch %d"
                             : "has slot %d, which is empty",
                      it->slot, *owner - 1);
    const bool last = k->did[stage * k->m + (size_t)it->micro] == whole(k);
    *owner = last ? 0 : 1 + it->micro;
    return 0;
}

/* The buffer `number` of the channel, or NULL where its chunk has no such one. */
static struct buffer *buffer_at(const struct check *k, struct buffer *all, int channel, int have,
                                int number)
{
    return number < 0 || number >= have ? NULL
                                        : &all[(size_t)channel * k->buffers + (size_t)number];
}

static struct buffer *recv_of(const struct check *k, const struct lf_pipe_edge *e, int reader,
                              int number)
{
    return buffer_at(k, k->recv, e->channel, k->p->recv_buffers[e->dir][reader], number);
}

static struct buffer *send_of(const struct check *k, const struct lf_pipe_edge *e, int rank,
                              const struct lf_pipe_item *it)
{
    const int writer = lf_pipe_at(&k->p->spec, rank, it->chunk);
    return buffer_at(k, k->send, e->channel, k->p->send_buffers[e->dir][writer], it->send_buffer);
}

/* An input of the same rank comes from an item before it. With messages every input is in its
 * buffer, which is free then. */
static int check_input(struct check *k, int rank, const struct lf_pipe_item *it, lf_err *err)
{
    const struct lf_pipe_spec *s = &k->p->spec;
    struct lf_pipe_edge e;
    if (!lf_pipe_input(&e, s, rank, it))
        return 0;
    if (e.rank == rank) {
        const size_t from = (size_t)lf_pipe_stage(s, e.rank, e.chunk);
        if (!(k->did[from * k->m + (size_t)it->micro] & (it->op == LF_PIPE_F ? DID_F : DID_B)))
            return broken(err, rank, it, "comes before that of chunk %d, which it reads", e.chunk);
    }
    if (!k->p->messages)
        return 0;
    struct buffer *b = recv_of(k, &e, lf_pipe_at(s, rank, it->chunk), it->recv_buffer);
    if (!b)
        return broken(err, rank, it, "reads receive buffer %d, which its chunk has not",
                      it->recv_buffer);
    if (b->holds != FULL || b->micro != it->micro)
        return broken(err, rank, it, "reads receive buffer %d before its input is there%s",
                      it->recv_buffer,
                      b->holds == POSTED && b->micro == it->micro ? ": the wait is missing" : "");
    b->holds = FREE;
    return 0;
}

static int check_output(struct check *k, int rank, const struct lf_pipe_item *it, lf_err *err)
{
    const struct lf_pipe_spec *s = &k->p->spec;
    struct lf_pipe_edge e;
    if (!k->p->messages || !lf_pipe_output(&e, s, rank, it))
        return 0;
    struct buffer *b = e.rank == rank
                           ? recv_of(k, &e, lf_pipe_at(s, rank, e.chunk), it->send_buffer)
                           : send_of(k, &e, rank, it);
    if (!b)
        return broken(err, rank, it, "writes send buffer %d, which its chunk has not",
                      it->send_buffer);
    if (b->holds != FREE)
        return broken(err, rank, it, "writes send buffer %d, which micro-batch %d is still in",
                      it->send_buffer, b->micro);
    *b = (struct buffer){it->micro, FULL};
    return 0;
}

static int check_recv(struct check *k, const struct lf_pipe_edge *e, int rank,
                      const struct lf_pipe_item *it, lf_err *err)
{
    struct buffer *b = recv_of(k, e, lf_pipe_at(&k->p->spec, rank, it->chunk), it->recv_buffer);
    if (!b)
        return broken(err, rank, it, "has buffer %d, which its chunk has not", it->recv_buffer);
    if (it->op == LF_PIPE_RECV) {
        if (b->holds != FREE)
            return broken(err, rank, it, "goes into buffer %d, which micro-batch %d is still in",
                          it->recv_buffer, b->micro);
        *b = (struct buffer){it->micro, POSTED};
        return 0;
    }
    if (b->holds != POSTED || b->micro != it->micro)
        return broken(err, rank, it, "finds no such receive in buffer %d", it->recv_buffer);
    b->holds = FULL;
    return 0;
}

static int check_send(struct check *k, const struct lf_pipe_edge *e, int rank,
                      const struct lf_pipe_item *it, lf_err *err)
{
    struct buffer *b = send_of(k, e, rank, it);
    if (!b)
        return broken(err, rank, it, "has buffer %d, which its chunk has not", it->send_buffer);
    if (it->op == LF_PIPE_SEND) {
        if (b->holds != FULL || b->micro != it->micro)
            return broken(err, rank, it, "finds no such output in buffer %d", it->send_buffer);
        b->holds = FLYING;
        return 0;
    }
    if (b->holds != FLYING || b->micro != it->micro)
        return broken(err, rank, it, "finds no such send in buffer %d", it->send_buffer);
    b->holds = FREE;
    return 0;
}

static int check_message(struct check *k, int rank, const struct lf_pipe_item *it, lf_err *err)
{
    struct lf_pipe_edge e;
    const bool sends = it->op == LF_PIPE_SEND || it->op == LF_PIPE_WAIT_SEND;
    if (!k->p->messages || it->dir >= LF_PIPE_DIRS ||
        !(sends ? lf_pipe_output : lf_pipe_input)(&e, &k->p->spec, rank, it) || e.rank == rank)
        return broken(err, rank, it, "has no other end");
    if (it->peer != e.rank || it->tag != e.tag)
        return broken(err, rank, it, "has tag %d, but the other end is rank %d with tag %d",
                      it->tag, e.rank, e.tag);
    return (sends ? check_send : check_recv)(k, &e, rank, it, err);
}

static int check_item(struct check *k, int rank, const struct lf_pipe_item *it, lf_err *err)
{
    if (it->op >= LF_PIPE_OPS || it->chunk < 0 || it->chunk >= k->p->spec.chunks || it->micro < 0 ||
        it->micro >= k->p->spec.micro_batches)
        return lf_fail(err, LF_EINVAL,
                       "pipeline schedule: rank %d has an item %d of micro-batch %d, chunk %d",
                       rank, it->op, it->micro, it->chunk);
    if (!lf_pipe_computes(it))
        return check_message(k, rank, it, err);
    int rc = check_order(k, rank, it, err);
    if (rc == 0)
        rc = check_slot(k, rank, it, err);
    if (rc == 0)
        rc = check_input(k, rank, it, err);
    return rc == 0 ? check_output(k, rank, it, err) : rc;
}

/* At the end of a list every pass is done. */
static int check_whole(const struct check *k, int rank, int chunk, lf_err *err)
{
    const size_t stage = (size_t)lf_pipe_stage(&k->p->spec, rank, chunk);
    for (size_t i = 0; i < k->m; i++) {
        const unsigned char did = k->did[stage * k->m + i];
        const struct lf_pipe_item it = {.op = !(did & DID_F)   ? LF_PIPE_F
                                              : !(did & DID_B) ? LF_PIPE_B
                                                               : LF_PIPE_W,
                                        .chunk = (int16_t)chunk,
                                        .micro = (int32_t)i};
        if (did != whole(k))
            return broken(err, rank, &it, "is missing");
    }
    return 0;
}

/* And every message was waited for. */
static int check_buffers(const struct check *k, size_t channels, lf_err *err)
{
    for (size_t i = 0; i < channels * k->buffers; i++) {
        const bool recv = k->recv[i].holds != FREE;
        const struct buffer *b = recv ? &k->recv[i] : &k->send[i];
        const size_t channel = i / k->buffers, stages = channels / LF_PIPE_DIRS;
        int rank, chunk;
        if (b->holds == FREE)
            continue;
        lf_pipe_place(&rank, &chunk, &k->p->spec, (int)(channel % stages));
        return lf_fail(err, LF_EINVAL,
                       "pipeline schedule: the lists end while the %s of micro-batch %d to rank "
                       "%d, chunk %d is still in a %s buffer",
                       channel < stages ? "activation" : "gradient", b->micro, rank, chunk,
                       recv ? "receive" : "send");
    }
    return 0;
}

/* Messages from one rank to another are sent and received in one order. All passes and buffers are
 * good already, so that there is a receive for each send. */
static int check_sends(const struct lf_pipe *p, int from, int *next, lf_err *err)
{
    for (int i = 0; i < p->list[from].n; i++) {
        const struct lf_pipe_item *send = &p->list[from].item[i];
        if (send->op != LF_PIPE_SEND)
            continue;
        const int to = send->peer;
        const struct lf_pipe_item *recv = &p->list[to].item[next[to]];
        while (recv->op != LF_PIPE_RECV || recv->peer != from)
            recv++;
        next[to] = (int)(recv - p->list[to].item) + 1;
        if (recv->tag != send->tag || recv->micro != send->micro)
            return broken(err, to, recv, "comes where rank %d sends micro-batch %d with tag %d",
                          from, send->micro, send->tag);
    }
    return 0;
}

static int check_pairs(const struct lf_pipe *p, lf_err *err)
{
    const size_t ranks = (size_t)p->spec.ranks;
    int *next = lf_calloc(ranks, sizeof *next, err), rc = next ? 0 : LF_ENOMEM;
    for (size_t r = 0; rc == 0 && r < ranks; r++) {
        memset(next, 0, ranks * sizeof *next);
        rc = check_sends(p, (int)r, next, err);
    }
    free(next);
    return rc;
}

static int check_lists(struct check *k, lf_err *err)
{
    const struct lf_pipe *p = k->p;
    const size_t channels = (size_t)(LF_PIPE_DIRS * lf_pipe_stages(&p->spec));
    int rc = 0;
    for (int r = 0; rc == 0 && r < p->spec.ranks; r++) {
        for (int i = 0; rc == 0 && i < p->list[r].n; i++)
            rc = check_item(k, r, &p->list[r].item[i], err);
        for (int c = 0; rc == 0 && c < p->spec.chunks; c++)
            rc = check_whole(k, r, c, err);
    }
    if (rc == 0)
        rc = check_buffers(k, channels, err);
    return rc == 0 ? check_pairs(p, err) : rc;
}

static size_t most(const int *counts, size_t n, size_t at_least)
{
    for (size_t i = 0; i < n; i++)
        at_least = (size_t)counts[i] > at_least ? (size_t)counts[i] : at_least;
    return at_least;
}

int lf_pipe_check(const struct lf_pipe *p, lf_err *err)
{
    const size_t stages = (size_t)lf_pipe_stages(&p->spec), channels = LF_PIPE_DIRS * stages;
    struct check k = {.p = p, .m = (size_t)p->spec.micro_batches};
    k.slots = most(p->slots, stages, 1);
    k.buffers = most(p->recv_buffers[0], 4 * stages, 1);
    lf_arena *a = lf_arena_create(err);
    int rc = a ? 0 : LF_ENOMEM;
    if (rc == 0) {
        k.did = lf_arena_alloc(a, stages * k.m, 1, err);
        k.owner = lf_arena_alloc(a, stages * k.slots, sizeof *k.owner, err);
        k.recv = lf_arena_alloc(a, channels * k.buffers, sizeof *k.recv, err);
        k.send = lf_arena_alloc(a, channels * k.buffers, sizeof *k.send, err);
        bool all = k.did && k.owner && k.recv && k.send;
        for (int i = 0; i < 2; i++) {
            k.next[i] = lf_arena_alloc(a, stages, sizeof *k.next[i], err);
            all = all && k.next[i];
        }
        rc = all ? check_lists(&k, err) : LF_ENOMEM;
    }
    lf_arena_destroy(a);
    return rc;
}
