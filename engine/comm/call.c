/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls: what they are checked for, the records behind requests, and what the watchdog is told
 * while a rank waits.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/comm/comm_priv.h"
#include "engine/comm/watch.h"

enum { BLOCK = 64, BLOCKS = LF_COMM_MAX_REQUESTS / BLOCK };
/* Between two looks at a border: when the last one moved something, and when not. A look ends after
 * MOVE_S, as the computation goes on too. */
#define MOVING_S 0.0001
#define QUIET_S  0.001
#define MOVE_S   0.0005

/* ---- records ---- */

struct lf_comm_pool {
    struct lf_comm_flight *block[BLOCKS]; /* [BLOCK] each, made when needed; owned */
    size_t blocks;
    struct lf_comm_flight *free;
};

/* One more block of free records. */
static int extend(struct lf_comm_pool *p, lf_err *err)
{
    struct lf_comm_flight *f = lf_calloc(BLOCK, sizeof *f, err);
    if (!f)
        return LF_ENOMEM;
    p->block[p->blocks++] = f;
    for (int i = BLOCK - 1; i >= 0; i--) {
        f[i].next = p->free;
        p->free = &f[i];
    }
    return 0;
}

static struct lf_comm_flight *take(lf_comm *c, lf_err *err)
{
    if (!c->pool && !(c->pool = lf_calloc(1, sizeof *c->pool, err)))
        return NULL;
    struct lf_comm_pool *p = c->pool;
    if (!p->free && p->blocks == BLOCKS) {
        lf_fail(err, LF_EINVAL,
                "communicator %u has %d requests under way, which is the limit: wait for some "
                "before beginning more",
                (unsigned)c->id, LF_COMM_MAX_REQUESTS);
        return NULL;
    }
    if (!p->free && extend(p, err))
        return NULL;
    struct lf_comm_flight *f = p->free;
    p->free = f->next;
    return f;
}

/* A free record has no communicator. */
static void put_back(struct lf_comm_flight *f)
{
    struct lf_comm_pool *p = f->c->pool;
    free(f->more);
    *f = (struct lf_comm_flight){.next = p->free};
    p->free = f;
}

static void give_up(struct lf_comm_flight *f)
{
    if (!f->done && f->c->ops->give_up)
        f->c->ops->give_up(f->c, f);
    free(f->more);
    f->more = NULL;
}

void lf_comm_drop_requests(lf_comm *c)
{
    struct lf_comm_pool *p = c->pool;
    for (size_t b = 0; p && b < p->blocks; b++) {
        for (int i = 0; i < BLOCK; i++)
            if (p->block[b][i].c)
                give_up(&p->block[b][i]);
        free(p->block[b]);
    }
    free(p);
    c->pool = NULL;
    free(c->with);
    c->with = NULL;
}

/* ---- checks ---- */

static int check_total(const lf_comm *c, const size_t *counts, size_t each, lf_err *err)
{
    size_t sum = 0, bytes = 0;
    for (int r = 0; r < c->size; r++)
        if (!lf_size_add(&sum, sum, counts[r]))
            return lf_fail(err, LF_EINVAL, "counts of %d ranks overflow", c->size);
    return lf_size_mul(&bytes, sum, each) ? 0
                                          : lf_fail(err, LF_EINVAL, "%zu elements overflow", sum);
}

static int check_peer(const lf_comm *c, int rank, int tag, lf_err *err)
{
    if (rank < 0 || rank >= c->size || rank == c->rank)
        return lf_fail(err, LF_EINVAL, "rank %d of %d cannot exchange a message with rank %d",
                       c->rank, c->size, rank);
    if (tag < 0 || tag > LF_COMM_MAX_TAG)
        return lf_fail(err, LF_EINVAL, "tag %d is outside 0 to %d", tag, LF_COMM_MAX_TAG);
    return 0;
}

static int check_own_part(const lf_comm *c, const struct lf_comm_call *a, lf_err *err)
{
    return a->counts[c->rank] == a->from[c->rank]
               ? 0
               : lf_fail(err, LF_EINVAL,
                         "rank %d has %zu bytes for itself and expects %zu of itself", c->rank,
                         a->counts[c->rank], a->from[c->rank]);
}

static int check(const lf_comm *c, const struct lf_comm_call *a, lf_err *err)
{
    size_t bytes;
    int rc = 0;
    switch (a->what) {
    case LF_COMM_ALL_REDUCE:
        return lf_size_mul(&bytes, a->n, lf_comm_type_bytes(a->type))
                   ? 0
                   : lf_fail(err, LF_EINVAL, "%zu elements overflow", a->n);
    case LF_COMM_REDUCE_SCATTER:
        return check_total(c, a->counts, lf_comm_type_bytes(a->type), err);
    case LF_COMM_ALL_GATHER:
        return check_total(c, a->counts, 1, err);
    case LF_COMM_ALL_TO_ALL:
        rc = check_total(c, a->counts, 1, err);
        rc = rc != 0 ? rc : check_total(c, a->from, 1, err);
        return rc != 0 ? rc : check_own_part(c, a, err);
    case LF_COMM_BROADCAST:
        return a->peer >= 0 && a->peer < c->size
                   ? 0
                   : lf_fail(err, LF_EINVAL, "broadcast from rank %d of %d", a->peer, c->size);
    case LF_COMM_BARRIER:
        return 0;
    case LF_COMM_SEND:
    case LF_COMM_RECV:
        return check_peer(c, a->peer, a->tag, err);
    }
    return lf_fail(err, LF_EINVAL, "there is no call of ranks with number %d", (int)a->what);
}

/* ---- the watchdog's notes ---- */

static const char *const names[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                    "broadcast",  "barrier",        "send",       "recv"};

const char *lf_comm_what_name(enum lf_comm_what what)
{
    return names[what];
}

int lf_comm_tag(enum lf_comm_way way, int chunk)
{
    return (int)way * (LF_COMM_MAX_CHUNK + 1) + chunk;
}

/* "recv from rank 3, backward, chunk 2". */
static void describe(const struct lf_comm_flight *f, char *text, size_t cap)
{
    static const char *const ways[] = {"tag", "forward, chunk", "backward, chunk", "chunk"};
    const struct lf_comm_call *a = &f->call;
    snprintf(text, cap, "%s %s rank %d, %s %d", names[a->what],
             a->what == LF_COMM_SEND ? "to" : "from", lf_comm_world_rank(f->c, a->peer),
             ways[a->tag / (LF_COMM_MAX_CHUNK + 1)], a->tag % (LF_COMM_MAX_CHUNK + 1));
}

static void enter(struct lf_comm_flight *f)
{
    struct lf_watch *w = f->c->job ? f->c->job->watch : NULL;
    char text[80];
    f->since = lf_now_s();
    if (!w)
        return;
    if (lf_comm_is_message(&f->call))
        describe(f, text, sizeof text);
    else
        snprintf(text, sizeof text, "%s", names[f->call.what]);
    lf_watch_enter(w, text, (struct lf_watch_of){f->c->id, lf_comm_world_rank(f->c, 0)}, f->seq);
}

static int leave(const struct lf_comm_flight *f, int rc)
{
    struct lf_comm_job *job = f->c->job;
    if (job)
        job->waited_s += lf_now_s() - f->since;
    if (job && job->watch)
        lf_watch_leave(job->watch);
    return rc;
}

/* ---- beginning and waiting ---- */

/* A collective's number is its place among the communicator's, a message's its place among those of
 * the pair in that direction. */
static int number(struct lf_comm_flight *f, lf_comm *c, const struct lf_comm_call *a, lf_err *err)
{
    *f = (struct lf_comm_flight){.c = c, .call = *a};
    if (!lf_comm_is_message(a)) {
        c->counts.collective.calls++;
        c->counts.planned.calls += a->planned;
        f->seq = ++c->seq;
        return 0;
    }
    if (!c->with && !(c->with = lf_calloc(2 * (size_t)c->size, sizeof *c->with, err)))
        return LF_ENOMEM;
    c->counts.message.calls++;
    f->seq = ++c->with[a->peer + (a->what == LF_COMM_RECV ? c->size : 0)];
    return 0;
}

/* A call that waits has its record on the stack and none of the pool's. */
static int call(lf_comm *c, const struct lf_comm_call *a, lf_err *err)
{
    struct lf_comm_flight f;
    int rc = check(c, a, err);
    if (rc == 0 && c->groups)
        rc = lf_fail(err, LF_EINVAL, "%s waits, which a group does not allow: end the group first",
                     names[a->what]);
    if (rc != 0)
        return rc;
    rc = number(&f, c, a, err);
    if (rc != 0)
        return rc;
    enter(&f);
    rc = c->ops->start(c, &f, err);
    if (rc == 0 && !f.done)
        rc = c->ops->test(c, &f, true, err);
    if (rc != 0)
        give_up(&f);
    free(f.more);
    return leave(&f, rc);
}

int lf_comm_start(lf_comm *c, const struct lf_comm_call *a, lf_comm_req *q, lf_err *err)
{
    int rc = check(c, a, err);
    struct lf_comm_flight *f = rc == 0 ? take(c, err) : NULL;
    if (!f)
        return rc != 0 ? rc : err && err->rc ? err->rc : LF_EINVAL;
    rc = number(f, c, a, err);
    rc = rc != 0 ? rc : c->ops->start(c, f, err);
    if (rc != 0) {
        give_up(f);
        put_back(f);
        return rc;
    }
    q->flight = f;
    return 0;
}

/* After a failure the record stays with the communicator, whose end gives it up. */
static int look(lf_comm_req *q, bool wait, lf_err *err)
{
    struct lf_comm_flight *f = q->flight;
    int rc = 0;
    if (f && f->c->groups)
        return lf_fail(err, LF_EINVAL, "a request is waited for before its group has ended");
    if (f && !f->done)
        rc = f->c->ops->test(f->c, f, false, err);
    if (f && rc == 0 && !f->done && wait) {
        enter(f);
        rc = leave(f, f->c->ops->test(f->c, f, true, err));
    }
    if (f && rc == 0 && f->done) {
        put_back(f);
        q->flight = NULL;
    }
    return rc;
}

int lf_comm_test(lf_comm_req *q, bool *done, lf_err *err)
{
    int rc = look(q, false, err);
    if (rc == 0)
        *done = q->flight == NULL;
    return rc;
}

int lf_comm_wait(lf_comm_req *q, lf_err *err)
{
    return look(q, true, err);
}

int lf_comm_wait_all(lf_comm_req *q, size_t n, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = look(&q[i], true, err);
    return rc;
}

/* ---- progress ---- */

/* Moves what can be moved at time t and plans the next look. */
static void move(struct lf_comm_job *job, double t)
{
    const double end = t + MOVE_S;
    bool moved = false;
    while (job->pump->ops->progress(job->pump)) {
        moved = true;
        t = lf_now_s();
        if (t > end)
            break;
    }
    job->look_s = t + (moved ? MOVING_S : QUIET_S);
}

void lf_comm_progress(lf_comm *c)
{
    if (c->job && c->job->pump)
        move(c->job, lf_now_s());
}

void lf_comm_poll(lf_comm *c)
{
    struct lf_comm_job *job = c->job;
    if (!job || job->under_way == 0)
        return;
    const double t = lf_now_s();
    if (t >= job->look_s)
        move(job, t);
}

int lf_comm_group_begin(lf_comm *c, lf_err *err)
{
    int rc = c->ops->group ? c->ops->group(c, true, err) : 0;
    c->groups += rc == 0;
    return rc;
}

int lf_comm_group_end(lf_comm *c, lf_err *err)
{
    if (!c->groups)
        return lf_fail(err, LF_EINVAL, "a group of calls ends that was not begun");
    c->groups--;
    return c->ops->group ? c->ops->group(c, false, err) : 0;
}

double lf_comm_waited_s(const lf_comm *c)
{
    return c && c->job ? c->job->waited_s : 0;
}

void lf_comm_counted(const lf_comm *c, struct lf_comm_counts *out)
{
    *out = c->counts;
}

/* ---- short forms ---- */

int lf_comm_do(lf_comm *c, const struct lf_comm_call *a, lf_err *err)
{
    return call(c, a, err);
}

int lf_comm_all_reduce(lf_comm *c, void *data, size_t n, enum lf_comm_type t, enum lf_comm_op op,
                       lf_err *err)
{
    return call(c,
                &(struct lf_comm_call){
                    .what = LF_COMM_ALL_REDUCE, .out = data, .n = n, .type = t, .op = op},
                err);
}

int lf_comm_reduce_scatter(lf_comm *c, void *out, const void *in, const size_t *counts,
                           enum lf_comm_type t, const void *seed, lf_err *err)
{
    return call(c,
                &(struct lf_comm_call){.what = LF_COMM_REDUCE_SCATTER,
                                       .out = out,
                                       .in = in,
                                       .counts = counts,
                                       .type = t,
                                       .seed = seed},
                err);
}

int lf_comm_all_gather(lf_comm *c, void *all, const size_t *bytes, lf_err *err)
{
    return call(c, &(struct lf_comm_call){.what = LF_COMM_ALL_GATHER, .out = all, .counts = bytes},
                err);
}

int lf_comm_all_to_all(lf_comm *c, void *out, const size_t *from, const void *in, const size_t *to,
                       lf_err *err)
{
    return call(c,
                &(struct lf_comm_call){
                    .what = LF_COMM_ALL_TO_ALL, .out = out, .from = from, .in = in, .counts = to},
                err);
}

int lf_comm_broadcast(lf_comm *c, void *data, size_t bytes, int root, lf_err *err)
{
    return call(
        c, &(struct lf_comm_call){.what = LF_COMM_BROADCAST, .out = data, .n = bytes, .peer = root},
        err);
}

int lf_comm_barrier(lf_comm *c, lf_err *err)
{
    return call(c, &(struct lf_comm_call){.what = LF_COMM_BARRIER}, err);
}

static struct lf_comm_call send_of(const void *data, size_t bytes, int to, int tag)
{
    return (struct lf_comm_call){
        .what = LF_COMM_SEND, .in = data, .n = bytes, .peer = to, .tag = tag};
}

static struct lf_comm_call recv_of(void *data, size_t bytes, int from, int tag)
{
    return (struct lf_comm_call){
        .what = LF_COMM_RECV, .out = data, .n = bytes, .peer = from, .tag = tag};
}

int lf_comm_send(lf_comm *c, const void *data, size_t bytes, int to, int tag, lf_err *err)
{
    const struct lf_comm_call a = send_of(data, bytes, to, tag);
    return call(c, &a, err);
}

int lf_comm_recv(lf_comm *c, void *data, size_t bytes, int from, int tag, lf_err *err)
{
    const struct lf_comm_call a = recv_of(data, bytes, from, tag);
    return call(c, &a, err);
}

int lf_comm_isend(lf_comm *c, const void *data, size_t bytes, int to, int tag, lf_comm_req *q,
                  lf_err *err)
{
    const struct lf_comm_call a = send_of(data, bytes, to, tag);
    return lf_comm_start(c, &a, q, err);
}

int lf_comm_irecv(lf_comm *c, void *data, size_t bytes, int from, int tag, lf_comm_req *q,
                  lf_err *err)
{
    const struct lf_comm_call a = recv_of(data, bytes, from, tag);
    return lf_comm_start(c, &a, q, err);
}
