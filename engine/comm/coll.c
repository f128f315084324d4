/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives over messages. Whatever is summed is summed by lf_reduce over all ranks in rank
 * order, so how data is cut does not show in the result. Bytes sent per rank are (P - 1) / P of the
 * vector for each half of an all-reduce: what a ring sends, in one hop instead of P - 1.
 *
 * Long vectors go in blocks of P segments, two blocks at a time: while the parts of one are added,
 * those of the next are on their way.
 *
 * Each collective is a list of steps, so that it can go on whenever somebody moves messages. A step
 * posts messages and names those that the next step waits for. The collectives of a communicator
 * wait in a queue; the first is under way and has the communicator's working memory.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/comm/msg.h"

/* Up to SMALL bytes every rank sends everything to every other and sums by itself: one hop instead
 * of two. LONGEST: bytes of one message of the other calls. */
enum { SMALL = LF_COMM_SHORT, LONGEST = 16 << 20, BCAST = 512 << 10 };
#define PIECE ((size_t)1 << 30) /* of a message from rank to rank */
enum kind { PART = 1, RESULT, GATHER, BCAST_TAG, BARRIER_TAG, P2P, ALL_TO_ALL };

/* Tag: communicator 16 bits, kind 4, sender 20, number 24. */
static uint64_t tag_of(const lf_comm *c, enum kind k, int from, uint64_t number)
{
    return (uint64_t)(c->id & 0xffff) << 48 | (uint64_t)k << 44 | (uint64_t)(unsigned)from << 24 |
           (number & 0xffffff);
}

static struct lf_msg_comm *mc(lf_comm *c)
{
    return (struct lf_msg_comm *)c;
}

static void count_sent(struct lf_comm_count *n, size_t bytes)
{
    n->sent++;
    n->bytes_sent += bytes;
}

static void count_received(struct lf_comm_count *n, size_t bytes)
{
    n->received++;
    n->bytes_received += bytes;
}

static int isend(struct lf_msg_comm *m, lf_msg_req *q, int to, enum kind k, const void *data,
                 size_t bytes, lf_err *err)
{
    count_sent(&m->base.counts.collective, bytes);
    if (m->first->call.planned)
        count_sent(&m->base.counts.planned, bytes);
    return lf_msg_isend(m->m, q, m->peer[to], tag_of(&m->base, k, m->base.rank, m->first->seq),
                        data, bytes, err);
}

static int irecv(struct lf_msg_comm *m, lf_msg_req *q, int from, enum kind k, void *data,
                 size_t bytes, lf_err *err)
{
    count_received(&m->base.counts.collective, bytes);
    if (m->first->call.planned)
        count_received(&m->base.counts.planned, bytes);
    return lf_msg_irecv(m->m, q, tag_of(&m->base, k, from, m->first->seq), data, bytes, err);
}

/* What a step returns: the next one waits for these, or the collective is done. */
enum { WAITS = 0, DONE = 1 };

static int await(struct lf_msg_comm *m, lf_msg_req *q, size_t n, int phase)
{
    m->run.await = q;
    m->run.n_await = n;
    m->run.phase = phase;
    return WAITS;
}

/* Bytes of one part of a block (measurements in README.md): a few ranks take long ones, as each
 * change of process costs; many share 32 MiB of room. */
static size_t segment(const lf_comm *c)
{
    const size_t share = ((size_t)16 << 20) / (size_t)c->size, most = (size_t)1 << 20,
                 least = (size_t)64 << 10;
    return share > most ? most : share < least ? least : share / 64 * 64;
}

/* Room for two slots of size - 1 parts. Grown on first use of a length, then kept. */
static int need_work(struct lf_msg_comm *m, size_t part_bytes, lf_err *err)
{
    size_t bytes = 2 * part_bytes * (size_t)m->base.size;
    if (bytes <= m->work_bytes)
        return 0;
    char *w = lf_malloc(1, bytes, err);
    if (!w)
        return LF_ENOMEM;
    free(m->work);
    m->work = w;
    m->work_bytes = bytes;
    return 0;
}

/* ---- one block: each rank owns a part of it ---- */

struct block {
    struct lf_msg_comm *m;
    enum lf_comm_type t;
    enum lf_comm_op op;
    size_t each;             /* bytes of an element */
    size_t slot_bytes;       /* of one received part */
    lf_msg_req *recv, *send; /* of this slot: [size] each */
    char *slot;
};

static struct block block_of(struct lf_msg_comm *m, enum lf_comm_type t, enum lf_comm_op op,
                             size_t part_bytes, int which)
{
    const size_t p = (size_t)m->base.size;
    return (struct block){.m = m,
                          .t = t,
                          .op = op,
                          .each = lf_comm_type_bytes(t),
                          .slot_bytes = part_bytes,
                          .recv = m->req + (size_t)which * 4 * p,
                          .send = m->req + (size_t)which * 4 * p + p,
                          .slot = m->work + (size_t)which * part_bytes * p};
}

/* Ask for the others' contributions to my part, and send them mine to theirs. Partners are taken in
 * an order that differs from rank to rank, so that not all knock at one door. */
static int post_parts(struct block *b, char *const *part, const size_t *count, lf_err *err)
{
    const int p = b->m->base.size, me = b->m->base.rank;
    int rc = 0;
    for (int k = 1; rc == 0 && k < p; k++) {
        int from = (me + p - k) % p;
        if (count[me])
            rc = irecv(b->m, &b->recv[from], from, PART, b->slot + (size_t)from * b->slot_bytes,
                       count[me] * b->each, err);
    }
    for (int k = 1; rc == 0 && k < p; k++) {
        int to = (me + k) % p;
        if (count[to])
            rc = isend(b->m, &b->send[to], to, PART, part[to], count[to] * b->each, err);
    }
    return rc;
}

/* The contributions have come: form my part in `out`, from seed on where there is one. */
static void reduce_part(struct block *b, void *out, const void *mine, size_t count,
                        const void *seed)
{
    const int p = b->m->base.size, me = b->m->base.rank, s = seed != NULL;
    const void **x = b->m->x;
    if (!count)
        return;
    x[0] = seed;
    for (int r = 0; r < p; r++)
        x[r + s] = r == me ? mine : b->slot + (size_t)r * b->slot_bytes;
    lf_reduce(out, x, p + s, count, b->t, b->op);
}

/* ---- all-reduce ---- */

static int small_step(struct lf_msg_comm *m, const struct lf_comm_call *a, lf_err *err)
{
    const int p = m->base.size, me = m->base.rank;
    const size_t bytes = a->n * lf_comm_type_bytes(a->type);
    int rc = need_work(m, SMALL, err);
    if (rc != 0)
        return rc;
    struct block b = block_of(m, a->type, a->op, SMALL, 0);
    if (m->run.phase) { /* the sends are done too: the data may be overwritten */
        reduce_part(&b, a->out, a->out, a->n, NULL);
        return DONE;
    }
    for (int k = 1; rc == 0 && k < p; k++) {
        int from = (me + p - k) % p;
        rc = irecv(m, &b.recv[from], from, PART, b.slot + (size_t)from * SMALL, bytes, err);
    }
    for (int k = 1; rc == 0 && k < p; k++) {
        int to = (me + k) % p;
        rc = isend(m, &b.send[to], to, PART, a->out, bytes, err);
    }
    return rc != 0 ? rc : await(m, b.recv, 2 * (size_t)p, 1);
}

/* Where the parts of block k begin and how long they are. */
static void cut(const struct block *b, char *data, size_t n, size_t block_n, size_t k, char **part,
                size_t *count)
{
    const lf_comm *c = &b->m->base;
    size_t first = k * block_n, len = n - first < block_n ? n - first : block_n;
    for (int r = 0; r < c->size; r++) {
        size_t at;
        lf_comm_part(len, c->size, r, &at, &count[r]);
        part[r] = data + (first + at) * b->each;
    }
}

/* Send my finished part to all and take theirs. My contributions, whose place theirs take, have
 * left. */
static int post_results(struct block *b, char *const *part, const size_t *count, lf_err *err)
{
    const int p = b->m->base.size, me = b->m->base.rank;
    lf_msg_req *in = b->send + p, *out = b->send + 2 * p;
    int rc = 0;
    for (int k = 1; rc == 0 && k < p; k++) {
        int from = (me + p - k) % p, to = (me + k) % p;
        if (count[from])
            rc = irecv(b->m, &in[from], from, RESULT, part[from], count[from] * b->each, err);
        if (rc == 0 && count[me])
            rc = isend(b->m, &out[to], to, RESULT, part[me], count[me] * b->each, err);
    }
    return rc;
}

/* Steps of long vectors: TAKE posts the parts of block k, ADD forms my part of the block before,
 * GIVE sends that to all. */
enum { TAKE, ADD, GIVE, END };

/* Two blocks of `room` bytes are under way: that of now and the one before, in turn. */
struct slots {
    size_t now, old;
    char **part[2];
    size_t *count[2];
    struct block b[2];
};

static int slots_of(struct slots *s, struct lf_msg_comm *m, const struct lf_comm_call *a,
                    enum lf_comm_op op, size_t room, lf_err *err)
{
    const size_t p = (size_t)m->base.size, now = m->run.k % 2;
    int rc = need_work(m, room, err);
    if (rc != 0)
        return rc;
    *s =
        (struct slots){.now = now,
                       .old = 1 - now,
                       .part = {m->part, m->part + p},
                       .count = {m->count, m->count + p},
                       .b = {block_of(m, a->type, op, room, 0), block_of(m, a->type, op, room, 1)}};
    return 0;
}

static int long_step(struct lf_msg_comm *m, const struct lf_comm_call *a, lf_err *err)
{
    struct lf_coll *o = &m->run;
    const size_t p = (size_t)m->base.size, me = (size_t)m->base.rank,
                 each = lf_comm_type_bytes(a->type), seg = segment(&m->base),
                 block_n = p * (seg / each), blocks = (a->n + block_n - 1) / block_n;
    struct slots s;
    int rc = slots_of(&s, m, a, a->op, seg, err);
    if (rc != 0)
        return rc;
    switch (o->phase) {
    case TAKE:
        if (o->k < blocks) { /* this slot's results of two blocks ago are in */
            cut(&s.b[s.now], a->out, a->n, block_n, o->k, s.part[s.now], s.count[s.now]);
            rc = post_parts(&s.b[s.now], s.part[s.now], s.count[s.now], err);
        }
        if (rc != 0)
            return rc;
        if (o->k > 0)
            return await(m, s.b[s.old].recv, p, ADD);
        o->k++;
        return await(m, s.b[s.old].recv, o->k < blocks ? 4 * p : 0, TAKE);
    case ADD:
        reduce_part(&s.b[s.old], s.part[s.old][me], s.part[s.old][me], s.count[s.old][me], NULL);
        return await(m, s.b[s.old].send, p, GIVE);
    case GIVE:
        rc = post_results(&s.b[s.old], s.part[s.old], s.count[s.old], err);
        if (rc != 0)
            return rc;
        if (o->k == blocks)
            return await(m, m->req, 8 * p, END);
        o->k++;
        return await(m, s.b[s.old].recv, o->k < blocks ? 4 * p : 0, TAKE);
    default:
        return DONE;
    }
}

static int all_reduce_step(struct lf_msg_comm *m, const struct lf_comm_call *a, lf_err *err)
{
    if (!a->n)
        return DONE;
    return a->n * lf_comm_type_bytes(a->type) > SMALL ? long_step(m, a, err)
                                                      : small_step(m, a, err);
}

/* ---- reduce-scatter ---- */

/* Segment k of every rank's chunk. */
static void cut_chunks(const lf_comm *c, char *in, const size_t *counts, size_t each, size_t k,
                       char **part, size_t *count)
{
    const size_t seg = segment(c) / each;
    for (int r = 0; r < c->size; r++) {
        size_t at = k * seg < counts[r] ? k * seg : counts[r];
        part[r] = in + at * each;
        count[r] = counts[r] - at < seg ? counts[r] - at : seg;
        in += counts[r] * each;
    }
}

static int scatter_step(struct lf_msg_comm *m, const struct lf_comm_call *a, lf_err *err)
{
    struct lf_coll *o = &m->run;
    const size_t p = (size_t)m->base.size, me = (size_t)m->base.rank,
                 each = lf_comm_type_bytes(a->type), room = segment(&m->base), seg = room / each;
    struct slots s;
    int rc = slots_of(&s, m, a, LF_COMM_SUM, room, err);
    if (rc != 0)
        return rc;
    for (size_t r = 0; o->k == 0 && r < p; r++)
        o->steps =
            (a->counts[r] + seg - 1) / seg > o->steps ? (a->counts[r] + seg - 1) / seg : o->steps;
    switch (o->phase) {
    case TAKE:
        if (o->k < o->steps) { /* what this slot sent two segments ago has left */
            cut_chunks(&m->base, (char *)(uintptr_t)a->in, a->counts, each, o->k, s.part[s.now],
                       s.count[s.now]); /* only read */
            rc = post_parts(&s.b[s.now], s.part[s.now], s.count[s.now], err);
        }
        if (rc != 0)
            return rc;
        if (o->k > 0)
            return await(m, s.b[s.old].recv, p, ADD);
        o->k++;
        return await(m, s.b[s.old].send, o->k < o->steps ? p : 0, o->steps ? TAKE : END);
    case ADD: {
        const size_t at = (o->k - 1) * room;
        reduce_part(&s.b[s.old], (char *)a->out + at, s.part[s.old][me], s.count[s.old][me],
                    a->seed ? (const char *)a->seed + at : NULL);
        if (o->k == o->steps)
            return await(m, m->req, 8 * p, END);
        o->k++;
        return await(m, s.b[s.old].send, o->k < o->steps ? p : 0, TAKE);
    }
    default:
        return DONE;
    }
}

/* ---- without sums ---- */

static size_t at_most(size_t n, size_t most)
{
    return n < most ? n : most;
}

/* Every rank sends its part to every other, LONGEST bytes at a time. */
static int gather_step(struct lf_msg_comm *m, const struct lf_comm_call *a, lf_err *err)
{
    const int p = m->base.size, me = m->base.rank;
    const size_t *bytes = a->counts, o = m->run.k;
    char **part = m->part;
    size_t longest = 0, at = 0;
    for (int r = 0; r < p; r++) {
        part[r] = (char *)a->out + at;
        at += bytes[r];
        longest = bytes[r] > longest ? bytes[r] : longest;
    }
    if (o >= longest)
        return DONE;
    int rc = 0;
    for (int k = 1; rc == 0 && k < p; k++) {
        int from = (me + p - k) % p, to = (me + k) % p;
        if (o < bytes[from])
            rc = irecv(m, &m->req[from], from, GATHER, part[from] + o,
                       at_most(bytes[from] - o, LONGEST), err);
        if (rc == 0 && o < bytes[me])
            rc = isend(m, &m->req[p + to], to, GATHER, part[me] + o,
                       at_most(bytes[me] - o, LONGEST), err);
    }
    m->run.k += LONGEST;
    return rc != 0 ? rc : await(m, m->req, 2 * (size_t)p, 0);
}

static void keep_own(const lf_comm *c, const struct lf_comm_call *a)
{
    size_t to = 0, from = 0;
    for (int r = 0; r < c->rank; r++) {
        to += a->counts[r];
        from += a->from[r];
    }
    if (a->counts[c->rank])
        memcpy((char *)a->out + from, (const char *)a->in + to, a->counts[c->rank]);
}

/* A pair exchanges its two blocks LONGEST bytes at a time; pairs with shorter ones are done
 * sooner. */
static int exchange_step(struct lf_msg_comm *m, const struct lf_comm_call *a, lf_err *err)
{
    const int p = m->base.size, me = m->base.rank;
    const size_t o = m->run.k;
    char **to_at = m->part, **from_at = m->part + p;
    size_t longest = 0, to = 0, from = 0;
    if (o == 0)
        keep_own(&m->base, a);
    for (int r = 0; r < p; r++) {
        to_at[r] = (char *)(uintptr_t)a->in + to; /* only read */
        from_at[r] = (char *)a->out + from;
        to += a->counts[r];
        from += a->from[r];
        if (r != me && a->counts[r] > longest)
            longest = a->counts[r];
        if (r != me && a->from[r] > longest)
            longest = a->from[r];
    }
    if (o >= longest)
        return DONE;
    int rc = 0;
    for (int k = 1; rc == 0 && k < p; k++) {
        int r = (me + p - k) % p, s = (me + k) % p;
        if (o < a->from[r])
            rc = irecv(m, &m->req[r], r, ALL_TO_ALL, from_at[r] + o,
                       at_most(a->from[r] - o, LONGEST), err);
        if (rc == 0 && o < a->counts[s])
            rc = isend(m, &m->req[p + s], s, ALL_TO_ALL, to_at[s] + o,
                       at_most(a->counts[s] - o, LONGEST), err);
    }
    m->run.k += LONGEST;
    return rc != 0 ? rc : await(m, m->req, 2 * (size_t)p, 0);
}

/* Binomial tree, in segments: a segment goes on while the next is awaited. With v the distance from
 * the root, the parent of v lacks its lowest bit and the children have one lower bit more. */
enum { ASK, CHILD, TELL, ENOUGH };

static int broadcast_step(struct lf_msg_comm *m, const struct lf_comm_call *a, lf_err *err)
{
    struct lf_coll *o = &m->run;
    const int p = m->base.size, root = a->peer, v = (m->base.rank + p - root) % p;
    const int low = v ? v & -v : 1 << 30;
    char *data = (char *)a->out + o->k;
    const size_t n = o->k < a->n ? at_most(a->n - o->k, BCAST) : 0;
    int rc = 0;
    switch (o->phase) {
    case ASK:
        if (!n)
            return await(m, m->req, 8 * (size_t)p, ENOUGH);
        o->bit = 1;
        o->child = 1;
        if (v)
            rc = irecv(m, &m->req[0], (v - low + root) % p, BCAST_TAG, data, n, err);
        return rc != 0 ? rc : await(m, m->req, v != 0, CHILD);
    case CHILD:
        while (o->bit < low && o->bit < p && v + o->bit >= p) {
            o->bit <<= 1;
            o->child++;
        }
        if (o->bit < low && o->bit < p) /* the segment before, on the same way */
            return await(m, &m->req[o->child], 1, TELL);
        o->k += BCAST;
        return await(m, m->req, 0, ASK);
    case TELL:
        rc = isend(m, &m->req[o->child], (v + o->bit + root) % p, BCAST_TAG, data, n, err);
        o->bit <<= 1;
        o->child++;
        return rc != 0 ? rc : await(m, m->req, 0, CHILD);
    default:
        return DONE;
    }
}

/* Dissemination: after round k everyone has heard, directly or not, of 2^(k+1) - 1 others. */
static int barrier_step(struct lf_msg_comm *m, const struct lf_comm_call *a, lf_err *err)
{
    struct lf_coll *o = &m->run;
    const int p = m->base.size, me = m->base.rank;
    const int d = o->k ? 2 * (int)o->k : 1;
    (void)a;
    if (d >= p)
        return DONE;
    o->k = (size_t)d;
    int rc = irecv(m, &m->req[0], (me + p - d) % p, BARRIER_TAG, &o->in, 1, err);
    if (rc == 0)
        rc = isend(m, &m->req[1], (me + d) % p, BARRIER_TAG, &o->out, 1, err);
    return rc != 0 ? rc : await(m, m->req, 2, 0);
}

/* ---- the queue of a communicator ---- */

typedef int step_fn(struct lf_msg_comm *m, const struct lf_comm_call *a, lf_err *err);

static step_fn *const steps[] = {
    [LF_COMM_ALL_REDUCE] = all_reduce_step, [LF_COMM_REDUCE_SCATTER] = scatter_step,
    [LF_COMM_ALL_GATHER] = gather_step,     [LF_COMM_ALL_TO_ALL] = exchange_step,
    [LF_COMM_BROADCAST] = broadcast_step,   [LF_COMM_BARRIER] = barrier_step};

/* Takes the steps that need not wait. DONE, WAITS, or a failure. */
static int advance(struct lf_msg_comm *m)
{
    struct lf_coll *o = &m->run;
    for (;;) {
        for (; o->n_await; o->await++, o->n_await--) {
            int done = lf_msg_look(o->await, &m->err);
            if (done != 1)
                return done;
        }
        int rc = steps[m->first->call.what](m, &m->first->call, &m->err);
        if (rc != WAITS)
            return rc;
    }
}

/* Goes on with the collectives of m, in order, as far as messages have come. After a failure none
 * of them is done any more. */
static void drive(struct lf_msg_comm *m)
{
    int rc = DONE;
    while (m->first && (rc = advance(m)) == DONE) {
        m->first->done = true;
        m->first = m->first->next;
        m->base.job->under_way--;
        m->run = (struct lf_coll){0};
    }
    if (rc < 0) {
        m->err.rc = rc;
        m->first = NULL;
    }
}

bool lf_coll_progress(lf_comm *c)
{
    const bool moved = lf_msg_progress(mc(c)->m);
    struct lf_msg_comm **at = &c->job->busy;
    while (*at) {
        struct lf_msg_comm *m = *at;
        drive(m);
        if (m->first)
            at = &m->next_busy;
        else
            *at = m->next_busy;
    }
    return moved;
}

static int start_collective(struct lf_msg_comm *m, struct lf_comm_flight *f, lf_err *err)
{
    const bool idle = m->first == NULL;
    if (m->err.rc)
        return lf_fail(err, m->err.rc, "%s", m->err.text);
    if (idle)
        m->first = f;
    else
        m->last->next = f;
    m->last = f;
    m->base.job->under_way++;
    if (!idle)
        return 0;
    m->run = (struct lf_coll){0};
    drive(m);
    if (m->first) {
        m->next_busy = m->base.job->busy;
        m->base.job->busy = m;
    }
    return m->err.rc ? lf_fail(err, m->err.rc, "%s", m->err.text) : 0;
}

/* ---- messages from rank to rank ---- */

/* All pieces are posted at once: those of the next message of the pair come behind them. */
static int post(struct lf_msg_comm *m, struct lf_comm_flight *f, lf_err *err)
{
    const struct lf_comm_call *a = &f->call;
    const bool send = a->what == LF_COMM_SEND;
    const uint64_t tag = tag_of(&m->base, P2P, send ? m->base.rank : a->peer, (uint64_t)a->tag);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i <= f->n_more; i++) {
        lf_msg_req *q = i ? &f->more[i - 1] : &f->one;
        const size_t at = i * PIECE, n = at_most(a->n - at, PIECE);
        rc = send ? lf_msg_isend(m->m, q, m->peer[a->peer], tag, (const char *)a->in + at, n, err)
                  : lf_msg_irecv(m->m, q, tag, (char *)a->out + at, n, err);
    }
    return rc;
}

static int start_message(struct lf_msg_comm *m, struct lf_comm_flight *f, lf_err *err)
{
    struct lf_comm_count *n = &m->base.counts.message;
    const bool send = f->call.what == LF_COMM_SEND;
    m->base.job->under_way++;
    f->n_more = f->call.n ? (f->call.n - 1) / PIECE : 0;
    if (f->n_more && !(f->more = lf_calloc(f->n_more, sizeof *f->more, err)))
        return LF_ENOMEM;
    *(send ? &n->sent : &n->received) += f->n_more + 1;
    *(send ? &n->bytes_sent : &n->bytes_received) += f->call.n;
    return post(m, f, err);
}

/* 1: all pieces are done. */
static int look_message(struct lf_comm_flight *f, lf_err *err)
{
    int done = lf_msg_look(&f->one, err);
    for (size_t i = 0; done == 1 && i < f->n_more; i++)
        done = lf_msg_look(&f->more[i], err);
    return done;
}

int lf_coll_start(lf_comm *c, struct lf_comm_flight *f, lf_err *err)
{
    return lf_comm_is_message(&f->call) ? start_message(mc(c), f, err)
                                        : start_collective(mc(c), f, err);
}

/* Is it done, without moving anything? */
static int look(struct lf_msg_comm *m, struct lf_comm_flight *f, lf_err *err)
{
    if (f->done)
        return 0;
    if (!lf_comm_is_message(&f->call))
        return m->err.rc ? lf_fail(err, m->err.rc, "%s", m->err.text) : 0;
    int done = look_message(f, err);
    if (done < 0)
        return done;
    f->done = done == 1;
    m->base.job->under_way -= f->done;
    return 0;
}

int lf_coll_test(lf_comm *c, struct lf_comm_flight *f, bool wait, lf_err *err)
{
    struct lf_msg_comm *m = mc(c);
    struct lf_msg_idle idle = {0};
    int rc = look(m, f, err);
    while (rc == 0 && !f->done) {
        if (lf_coll_progress(c))
            idle = (struct lf_msg_idle){0};
        else if (wait)
            lf_msg_pause(m->m, &idle);
        rc = look(m, f, err);
        if (!wait)
            break;
    }
    return rc;
}

void lf_coll_give_up(lf_comm *c, struct lf_comm_flight *f)
{
    if (!lf_comm_is_message(&f->call))
        return; /* its messages are the communicator's */
    lf_msg_give_up(mc(c)->m, &f->one);
    for (size_t i = 0; f->more && i < f->n_more; i++)
        lf_msg_give_up(mc(c)->m, &f->more[i]);
    f->done = true;
    c->job->under_way--;
}
