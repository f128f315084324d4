/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives over messages. Whatever is summed is summed by lf_reduce over all ranks in rank
 * order, so how data is cut does not show in the result. Bytes sent per rank are (P - 1) / P of the
 * vector for each half of an all-reduce: what a ring sends, in one hop instead of P - 1.
 *
 * Long vectors go in blocks of P segments, two blocks at a time: while the parts of one are added,
 * those of the next are on their way.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/comm/msg.h"

/* Up to SMALL bytes every rank sends everything to every other and sums by itself: one hop instead
 * of two. LONGEST: bytes of one message of the other calls. */
enum { SMALL = 16 << 10, LONGEST = 16 << 20, BCAST = 512 << 10 };
enum kind { PART = 1, RESULT, GATHER, BCAST_TAG, BARRIER_TAG, P2P };

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

static int isend(struct lf_msg_comm *m, lf_msg_req *q, int to, enum kind k, const void *data,
                 size_t bytes, lf_err *err)
{
    return lf_msg_isend(m->m, q, m->peer[to], tag_of(&m->base, k, m->base.rank, m->base.seq), data,
                        bytes, err);
}

static int irecv(struct lf_msg_comm *m, lf_msg_req *q, int from, enum kind k, void *data,
                 size_t bytes, lf_err *err)
{
    return lf_msg_irecv(m->m, q, tag_of(&m->base, k, from, m->base.seq), data, bytes, err);
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

/* Wait for the contributions and form my part in `out`. */
static int reduce_part(struct block *b, void *out, const void *mine, size_t count, lf_err *err)
{
    const int p = b->m->base.size, me = b->m->base.rank;
    const void **x = b->m->x;
    int rc = lf_msg_wait(b->m->m, b->recv, (size_t)p, err);
    if (rc != 0 || !count)
        return rc;
    for (int r = 0; r < p; r++)
        x[r] = r == me ? mine : b->slot + (size_t)r * b->slot_bytes;
    lf_reduce(out, x, p, count, b->t, b->op);
    return 0;
}

/* ---- all-reduce ---- */

static int all_reduce_small(lf_comm *c, void *data, size_t n, enum lf_comm_type t,
                            enum lf_comm_op op, lf_err *err)
{
    struct lf_msg_comm *m = mc(c);
    const size_t bytes = n * lf_comm_type_bytes(t);
    int rc = need_work(m, SMALL, err);
    if (rc != 0)
        return rc;
    struct block b = block_of(m, t, op, SMALL, 0);
    for (int k = 1; rc == 0 && k < c->size; k++) {
        int from = (c->rank + c->size - k) % c->size;
        rc = irecv(m, &b.recv[from], from, PART, b.slot + (size_t)from * SMALL, bytes, err);
    }
    for (int k = 1; rc == 0 && k < c->size; k++) {
        int to = (c->rank + k) % c->size;
        rc = isend(m, &b.send[to], to, PART, data, bytes, err);
    }
    if (rc == 0) /* the sends too: data is about to be overwritten */
        rc = lf_msg_wait(m->m, b.recv, 2 * (size_t)c->size, err);
    if (rc == 0)
        rc = reduce_part(&b, data, data, n, err);
    return rc;
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

/* Send my finished part to all and take theirs. The wait before it is for my contributions, whose
 * place theirs take. */
static int post_results(struct block *b, char *const *part, const size_t *count, lf_err *err)
{
    const int p = b->m->base.size, me = b->m->base.rank;
    lf_msg_req *in = b->send + p, *out = b->send + 2 * p;
    int rc = lf_msg_wait(b->m->m, b->send, (size_t)p, err);
    for (int k = 1; rc == 0 && k < p; k++) {
        int from = (me + p - k) % p, to = (me + k) % p;
        if (count[from])
            rc = irecv(b->m, &in[from], from, RESULT, part[from], count[from] * b->each, err);
        if (rc == 0 && count[me])
            rc = isend(b->m, &out[to], to, RESULT, part[me], count[me] * b->each, err);
    }
    return rc;
}

static int all_reduce_long(lf_comm *c, char *data, size_t n, enum lf_comm_type t,
                           enum lf_comm_op op, lf_err *err)
{
    struct lf_msg_comm *m = mc(c);
    const size_t p = (size_t)c->size, each = lf_comm_type_bytes(t),
                 block_n = p * (segment(c) / each), blocks = (n + block_n - 1) / block_n;
    char **part[2] = {m->part, m->part + p};
    size_t *count[2] = {m->count, m->count + p};
    int rc = need_work(m, segment(c), err);
    if (rc != 0)
        return rc;
    struct block b[2] = {block_of(m, t, op, segment(c), 0), block_of(m, t, op, segment(c), 1)};
    for (size_t k = 0; rc == 0 && k <= blocks; k++) {
        const size_t now = k % 2, old = 1 - now;
        if (k < blocks) { /* this slot's results of two blocks ago must be in */
            rc = lf_msg_wait(m->m, b[now].recv, 4 * p, err);
            cut(&b[now], data, n, block_n, k, part[now], count[now]);
            if (rc == 0)
                rc = post_parts(&b[now], part[now], count[now], err);
        }
        if (rc == 0 && k > 0) {
            rc = reduce_part(&b[old], part[old][c->rank], part[old][c->rank], count[old][c->rank],
                             err);
            if (rc == 0)
                rc = post_results(&b[old], part[old], count[old], err);
        }
    }
    return rc != 0 ? rc : lf_msg_wait(m->m, m->req, 8 * p, err);
}

int lf_coll_all_reduce(lf_comm *c, void *data, size_t n, enum lf_comm_type t, enum lf_comm_op op,
                       lf_err *err)
{
    if (n * lf_comm_type_bytes(t) > SMALL)
        return all_reduce_long(c, data, n, t, op, err);
    return n ? all_reduce_small(c, data, n, t, op, err) : 0;
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

int lf_coll_reduce_scatter(lf_comm *c, void *out, const void *in, const size_t *counts,
                           enum lf_comm_type t, lf_err *err)
{
    struct lf_msg_comm *m = mc(c);
    const size_t p = (size_t)c->size, me = (size_t)c->rank, each = lf_comm_type_bytes(t),
                 seg = segment(c) / each;
    size_t steps = 0;
    for (size_t r = 0; r < p; r++)
        steps = (counts[r] + seg - 1) / seg > steps ? (counts[r] + seg - 1) / seg : steps;
    int rc = need_work(m, segment(c), err);
    if (rc != 0)
        return rc;
    struct block b[2] = {block_of(m, t, LF_COMM_SUM, segment(c), 0),
                         block_of(m, t, LF_COMM_SUM, segment(c), 1)};
    for (size_t k = 0; rc == 0 && k <= steps; k++) {
        char **now = m->part + k % 2 * p, **old = m->part + (k + 1) % 2 * p;
        size_t *now_n = m->count + k % 2 * p, *old_n = m->count + (k + 1) % 2 * p;
        if (k < steps) {
            rc = lf_msg_wait(m->m, b[k % 2].send, p, err);
            cut_chunks(c, (char *)(uintptr_t)in, counts, each, k, now, now_n); /* only read */
            if (rc == 0)
                rc = post_parts(&b[k % 2], now, now_n, err);
        }
        if (rc == 0 && k > 0)
            rc = reduce_part(&b[(k + 1) % 2], (char *)out + (k - 1) * seg * each, old[me],
                             old_n[me], err);
    }
    return rc != 0 ? rc : lf_msg_wait(m->m, m->req, 8 * p, err);
}

/* ---- without sums ---- */

int lf_coll_all_gather(lf_comm *c, void *all, const size_t *bytes, lf_err *err)
{
    struct lf_msg_comm *m = mc(c);
    const int p = c->size, me = c->rank;
    char **part = m->part;
    size_t longest = 0, at = 0;
    for (int r = 0; r < p; r++) {
        part[r] = (char *)all + at;
        at += bytes[r];
        longest = bytes[r] > longest ? bytes[r] : longest;
    }
    int rc = 0;
    for (size_t o = 0; rc == 0 && o < longest; o += LONGEST) {
        for (int k = 1; rc == 0 && k < p; k++) {
            int from = (me + p - k) % p, to = (me + k) % p;
            if (o < bytes[from])
                rc = irecv(m, &m->req[from], from, GATHER, part[from] + o,
                           bytes[from] - o < LONGEST ? bytes[from] - o : LONGEST, err);
            if (rc == 0 && o < bytes[me])
                rc = isend(m, &m->req[p + to], to, GATHER, part[me] + o,
                           bytes[me] - o < LONGEST ? bytes[me] - o : LONGEST, err);
        }
        if (rc == 0)
            rc = lf_msg_wait(m->m, m->req, 2 * (size_t)p, err);
    }
    return rc;
}

/* Binomial tree, in segments: a segment goes on while the next is awaited. With v the distance from
 * the root, the parent of v lacks its lowest bit and the children have one lower bit more. */
int lf_coll_broadcast(lf_comm *c, void *data, size_t bytes, int root, lf_err *err)
{
    struct lf_msg_comm *m = mc(c);
    const int p = c->size, v = (c->rank + p - root) % p;
    const int low = v ? v & -v : 1 << 30;
    int rc = 0;
    for (size_t o = 0; rc == 0 && o < bytes; o += BCAST) {
        const size_t n = bytes - o < BCAST ? bytes - o : BCAST;
        if (v) {
            rc = irecv(m, &m->req[0], (v - low + root) % p, BCAST_TAG, (char *)data + o, n, err);
            if (rc == 0)
                rc = lf_msg_wait(m->m, m->req, 1, err);
        }
        int k = 1;
        for (int bit = 1; bit < low && bit < p; bit <<= 1, k++) {
            if (v + bit >= p)
                continue;
            if (rc == 0) /* the segment before, on the same way */
                rc = lf_msg_wait(m->m, &m->req[k], 1, err);
            if (rc == 0)
                rc = isend(m, &m->req[k], (v + bit + root) % p, BCAST_TAG, (const char *)data + o,
                           n, err);
        }
    }
    return rc != 0 ? rc : lf_msg_wait(m->m, m->req, 8 * (size_t)p, err);
}

/* Dissemination: after round k everyone has heard, directly or not, of 2^(k+1) - 1 others. */
int lf_coll_barrier(lf_comm *c, lf_err *err)
{
    struct lf_msg_comm *m = mc(c);
    char in, out = 1;
    int rc = 0;
    for (int d = 1; rc == 0 && d < c->size; d *= 2) {
        rc = irecv(m, &m->req[0], (c->rank + c->size - d) % c->size, BARRIER_TAG, &in, 1, err);
        if (rc == 0)
            rc = isend(m, &m->req[1], (c->rank + d) % c->size, BARRIER_TAG, &out, 1, err);
        if (rc == 0)
            rc = lf_msg_wait(m->m, m->req, 2, err);
    }
    return rc;
}

int lf_coll_send(lf_comm *c, const void *data, size_t bytes, int to, int tag, lf_err *err)
{
    struct lf_msg_comm *m = mc(c);
    int rc = 0;
    size_t o = 0;
    do {
        const size_t n = bytes - o < LONGEST ? bytes - o : LONGEST;
        rc = lf_msg_isend(m->m, &m->req[0], m->peer[to], tag_of(c, P2P, c->rank, (uint64_t)tag),
                          (const char *)data + o, n, err);
        if (rc == 0)
            rc = lf_msg_wait(m->m, m->req, 1, err);
        o += n;
    } while (rc == 0 && o < bytes);
    return rc;
}

int lf_coll_recv(lf_comm *c, void *data, size_t bytes, int from, int tag, lf_err *err)
{
    struct lf_msg_comm *m = mc(c);
    int rc = 0;
    size_t o = 0;
    do {
        const size_t n = bytes - o < LONGEST ? bytes - o : LONGEST;
        rc = lf_msg_irecv(m->m, &m->req[0], tag_of(c, P2P, from, (uint64_t)tag), (char *)data + o,
                          n, err);
        if (rc == 0)
            rc = lf_msg_wait(m->m, m->req, 1, err);
        o += n;
    } while (rc == 0 && o < bytes);
    return rc;
}
