/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of one process: see local.h. Only the rank whose turn it is touches anything here, so the
 * one lock is that of the turn.
 */
#include "tests/layout/local.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/comm/comm_priv.h"
#include "engine/comm/msg.h"

enum { NAN_BYTE = 0xFF, QUIET = 1000 };

/* What one rank has given a call, or wants from it. */
struct side {
    struct lf_comm_flight *f; /* NULL: it has not begun, or has left */
    struct lf_comm_call call;
    const void *in; /* what it gives and gets: memory of the caller, or with late copies */
    void *out;
    void *own;        /* late: the copy of what it gives, owned */
    void *gift;       /* late: what it will get, owned */
    bool begun, left; /* left: it has seen the end, or will not wait for it */
    enum local_fault fault;
};

/* A collective, or a message, whose sides are sender and receiver. */
struct op {
    struct op *next;
    struct group *group;
    uint64_t seq; /* collectives */
    int begun, n; /* sides */
    bool done;
    bool dead;  /* a side has given it up, so it never is */
    bool split; /* its sides have not begun the same call */
    struct side side[];
};

struct group { /* a communicator, of all its ranks */
    struct group *next;
    uint32_t id;
    int size, refs;
    int world[LOCAL_RANKS];
    struct op *coll, *msg; /* in the order of their beginning */
};

enum turn { CAN_GO, WAITS, ASKS, ENDED };

struct rank {
    struct world *w;
    int me;
    pthread_t thread;
    pthread_cond_t called;
    enum turn turn;
    const struct lf_comm_flight *awaits; /* what it waits for or asks about */
    uint64_t calls;
    bool armed;
    int fit; /* calls so far that fit the planted fault */
    lf_comm *comm;
    int rc;
    lf_err err;
};

struct world {
    struct local_opts o;
    local_fn fn;
    void *user;
    pthread_mutex_t lock;
    int whose; /* turn */
    uint64_t draws;
    long quiet; /* turns since a call was begun or seen done */
    struct rank rank[LOCAL_RANKS];
    struct group *groups;
    lf_err err; /* why nobody goes on */
};

struct local_comm {
    lf_comm base;
    struct rank *rank;
    struct group *group;
};

static struct local_comm *lc(lf_comm *c)
{
    return (struct local_comm *)c;
}

/* ---- words ---- */

struct text {
    char *at;
    size_t left;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(t->at, t->left, fmt, ap);
    va_end(ap);
    const size_t used = n < 0 ? 0 : (size_t)n < t->left ? (size_t)n : t->left - 1;
    t->at += used;
    t->left -= used;
}

static size_t total(const size_t *counts, int n)
{
    size_t sum = 0;
    for (int r = 0; r < n; r++)
        sum += counts[r];
    return sum;
}

static void say_call(struct text *t, const struct lf_comm_call *a, const struct group *g)
{
    static const char *const types[] = {"f32", "f64", "bf16", "i64"};
    const bool max = a->op == LF_COMM_MAX;
    add(t, "%s", lf_comm_what_name(a->what));
    switch (a->what) {
    case LF_COMM_ALL_REDUCE:
        add(t, " (%s) of %zu %s", max ? "max" : "sum", a->n, types[a->type]);
        break;
    case LF_COMM_REDUCE_SCATTER:
        add(t, " of %zu %s", total(a->counts, g->size), types[a->type]);
        break;
    case LF_COMM_ALL_GATHER:
    case LF_COMM_ALL_TO_ALL:
        add(t, " of %zu bytes", total(a->counts, g->size));
        break;
    case LF_COMM_BROADCAST:
        add(t, " of %zu bytes of rank %d", a->n, g->world[a->peer]);
        break;
    case LF_COMM_BARRIER:
        break;
    default:
        add(t, " of %zu bytes %s rank %d with tag %d", a->n,
            a->what == LF_COMM_SEND ? "to" : "from", g->world[a->peer], a->tag);
    }
}

/* "call 3 of communicator 0, begun by 0 2". */
static void say_place(struct text *t, const struct op *op)
{
    const struct group *g = op->group;
    add(t, ", call %llu of communicator %u, begun by", (unsigned long long)op->seq, g->id);
    for (int k = 0; k < op->n; k++)
        if (op->side[k].begun)
            add(t, " %d", g->world[k]);
}

static void say_rank(struct text *t, const struct rank *r)
{
    const struct lf_comm_flight *f = r->awaits;
    add(t, "; rank %d ", r->me);
    if (r->turn == ENDED) {
        add(t, "has ended after %llu calls", (unsigned long long)r->calls);
        return;
    }
    if (!f) {
        add(t, "could go on");
        return;
    }
    const struct op *op = f->one.handle;
    add(t, "%s ", r->turn == ASKS ? "asks for" : "waits in");
    say_call(t, &f->call, op->group);
    if (!lf_comm_is_message(&f->call))
        say_place(t, op);
}

/* ---- ranks that do not agree ---- */

static bool same_counts(const size_t *a, const size_t *b, int n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* Is call b of rank kb what call a of rank ka is? */
static bool same_call(const struct lf_comm_call *a, int ka, const struct lf_comm_call *b, int kb,
                      int n)
{
    if (a->what != b->what)
        return false;
    switch (a->what) {
    case LF_COMM_ALL_REDUCE:
        return a->n == b->n && a->type == b->type && a->op == b->op;
    case LF_COMM_REDUCE_SCATTER:
        return a->type == b->type && same_counts(a->counts, b->counts, n);
    case LF_COMM_ALL_GATHER:
        return same_counts(a->counts, b->counts, n);
    case LF_COMM_ALL_TO_ALL:
        return a->from[kb] == b->counts[ka] && a->counts[kb] == b->from[ka];
    case LF_COMM_BROADCAST:
        return a->n == b->n && a->peer == b->peer;
    default:
        return true;
    }
}

/* How many sides have begun what side k has. */
static int like(const struct op *op, int k)
{
    int n = 0;
    for (int o = 0; o < op->n; o++)
        n += op->side[o].begun &&
             (o == k || same_call(&op->side[k].call, k, &op->side[o].call, o, op->n));
    return n;
}

/* Says which rank has begun something else than most have. */
static int differ(struct world *w, const struct op *op)
{
    char mine[300] = "", theirs[300] = "";
    struct text m = {mine, sizeof mine}, t = {theirs, sizeof theirs};
    int odd = -1, most = -1;
    for (int k = 0; k < op->n; k++) {
        if (!op->side[k].begun)
            continue;
        if (most < 0 || like(op, k) > like(op, most))
            most = k;
        if (odd < 0 || like(op, k) <= like(op, odd))
            odd = k;
    }
    say_call(&m, &op->side[odd].call, op->group);
    say_call(&t, &op->side[most].call, op->group);
    say_place(&t, op);
    return lf_fail(&w->err, LF_ECOMM, "rank %d begins %s, where others are in %s",
                   op->group->world[odd], mine, theirs);
}

/* No rank can go on: because some began other calls than the rest, or because all wait. */
static int stuck(struct world *w)
{
    char said[900] = "";
    struct text t = {said, sizeof said};
    for (const struct group *g = w->groups; g; g = g->next)
        for (const struct op *op = g->coll; op; op = op->next)
            if (op->split)
                return differ(w, op);
    for (int r = 0; r < w->o.ranks; r++)
        say_rank(&t, &w->rank[r]);
    return lf_fail(&w->err, LF_ECOMM, "no rank can go on%s", said);
}

/* ---- turns ---- */

static bool over(const struct lf_comm_flight *f)
{
    const struct op *op = f->one.handle;
    return !op || op->done;
}

static bool can_go(const struct world *w, const struct rank *r)
{
    return r->turn == CAN_GO || r->turn == ASKS ||
           (r->turn == WAITS && (w->err.rc != 0 || over(r->awaits)));
}

/* The rank after `me` that can go on, me last; -1: there is none. */
static int next_rank(struct world *w, int me)
{
    const int n = w->o.ranks;
    int first = me + 1;
    if (w->o.turns)
        first = (int)(lf_rng_u32(w->o.turns, 1, w->draws++) % (uint32_t)n);
    for (int k = 0; k < n; k++)
        if (can_go(w, &w->rank[(first + k) % n]))
            return (first + k) % n;
    return -1;
}

static bool all_ended(const struct world *w)
{
    for (int r = 0; r < w->o.ranks; r++)
        if (w->rank[r].turn != ENDED)
            return false;
    return true;
}

/* Who is next, where the turn must go to somebody. */
static int choose(struct world *w, int me)
{
    if (++w->quiet > (long)QUIET * w->o.ranks && !w->err.rc)
        stuck(w);
    int next = next_rank(w, me);
    if (next < 0) {
        stuck(w);
        next = next_rank(w, me);
    }
    return next;
}

/* Gives the turn away and waits for the next one. */
static void give_turn(struct rank *r)
{
    struct world *w = r->w;
    const int next = choose(w, r->me);
    if (next == r->me)
        return;
    pthread_mutex_lock(&w->lock);
    w->whose = next;
    pthread_cond_signal(&w->rank[next].called);
    while (w->whose != r->me)
        pthread_cond_wait(&r->called, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

static void pause_for(struct rank *r, enum turn turn, const struct lf_comm_flight *f)
{
    r->awaits = f;
    r->turn = turn;
    give_turn(r);
    r->turn = CAN_GO;
    r->awaits = NULL;
}

/* The world's failure, once there is one. */
static int failed(const struct world *w, lf_err *err)
{
    return w->err.rc ? lf_fail(err, w->err.rc, "%s", w->err.text) : 0;
}

/* ---- what a call reads and gives ---- */

struct range {
    char *at;
    size_t bytes;
};

static size_t before(const size_t *counts, int r)
{
    return total(counts, r);
}

/* What side k gives. */
static struct range gives(const struct op *op, int k, const void *in, void *out)
{
    const struct lf_comm_call *a = &op->side[k].call;
    char *from = (char *)(uintptr_t)in;
    switch (a->what) {
    case LF_COMM_ALL_REDUCE:
        return (struct range){out, a->n * lf_comm_type_bytes(a->type)};
    case LF_COMM_REDUCE_SCATTER:
        return (struct range){from, total(a->counts, op->n) * lf_comm_type_bytes(a->type)};
    case LF_COMM_ALL_GATHER:
        return (struct range){(char *)out + before(a->counts, k), a->counts[k]};
    case LF_COMM_ALL_TO_ALL:
        return (struct range){from, total(a->counts, op->n)};
    case LF_COMM_BROADCAST:
        return (struct range){out, a->peer == k ? a->n : 0};
    case LF_COMM_SEND:
        return (struct range){from, a->n};
    default:
        return (struct range){NULL, 0};
    }
}

/* All of what side k gets; its own part of a gather is within. */
static struct range gets(const struct op *op, int k, void *out)
{
    const struct lf_comm_call *a = &op->side[k].call;
    switch (a->what) {
    case LF_COMM_ALL_REDUCE:
        return (struct range){out, a->n * lf_comm_type_bytes(a->type)};
    case LF_COMM_REDUCE_SCATTER:
        return (struct range){out, a->counts[k] * lf_comm_type_bytes(a->type)};
    case LF_COMM_ALL_GATHER:
        return (struct range){out, total(a->counts, op->n)};
    case LF_COMM_ALL_TO_ALL:
        return (struct range){out, total(a->from, op->n)};
    case LF_COMM_BROADCAST:
        return (struct range){out, a->peer == k ? 0 : a->n};
    case LF_COMM_RECV:
        return (struct range){out, a->n};
    default:
        return (struct range){NULL, 0};
    }
}

/* ---- moving ---- */

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes && to != from)
        memcpy(to, from, bytes);
}

static void all_reduce(struct op *op)
{
    const struct lf_comm_call *a = &op->side[0].call;
    const void *x[LOCAL_RANKS];
    for (int r = 0; r < op->n; r++)
        x[r] = op->side[r].out;
    lf_reduce(op->side[0].out, x, op->n, a->n, a->type, a->op);
    for (int r = 1; r < op->n; r++)
        copy(op->side[r].out, op->side[0].out, a->n * lf_comm_type_bytes(a->type));
}

static void reduce_scatter(struct op *op)
{
    for (int r = 0; r < op->n; r++) {
        const struct lf_comm_call *a = &op->side[r].call;
        const size_t at = before(a->counts, r) * lf_comm_type_bytes(a->type);
        const void *x[LOCAL_RANKS + 1] = {a->seed};
        const int seed = a->seed != NULL;
        for (int s = 0; s < op->n; s++)
            x[s + seed] = (const char *)op->side[s].in + at;
        lf_reduce(op->side[r].out, x, op->n + seed, a->counts[r], a->type, LF_COMM_SUM);
    }
}

static void all_gather(struct op *op)
{
    for (int r = 0; r < op->n; r++)
        for (int s = 0; s < op->n; s++) {
            const size_t *bytes = op->side[s].call.counts, at = before(bytes, s);
            if (r != s)
                copy((char *)op->side[r].out + at, (char *)op->side[s].out + at, bytes[s]);
        }
}

static void all_to_all(struct op *op)
{
    for (int r = 0; r < op->n; r++)
        for (int s = 0; s < op->n; s++) {
            const size_t *from = op->side[r].call.from, *to = op->side[s].call.counts;
            copy((char *)op->side[r].out + before(from, s),
                 (const char *)op->side[s].in + before(to, r), from[s]);
        }
}

static void broadcast(struct op *op)
{
    const int root = op->side[0].call.peer;
    for (int r = 0; r < op->n; r++)
        if (r != root)
            copy(op->side[r].out, op->side[root].out, op->side[root].call.n);
}

static void carry_out(struct op *op)
{
    switch (op->side[0].call.what) {
    case LF_COMM_ALL_REDUCE:
        all_reduce(op);
        break;
    case LF_COMM_REDUCE_SCATTER:
        reduce_scatter(op);
        break;
    case LF_COMM_ALL_GATHER:
        all_gather(op);
        break;
    case LF_COMM_ALL_TO_ALL:
        all_to_all(op);
        break;
    case LF_COMM_BROADCAST:
        broadcast(op);
        break;
    case LF_COMM_SEND: /* side 0 sends to side 1 */
        copy(op->side[1].out, op->side[0].in, op->side[0].call.n);
        break;
    default:
        break;
    }
}

/* All sides have begun. */
static void complete(struct op *op)
{
    const enum local_fault fault = op->side[0].fault;
    if (fault != LOCAL_ALONE)
        carry_out(op);
    if (fault == LOCAL_TWICE)
        carry_out(op);
    op->done = true;
}

/* ---- late ---- */

/* Everything that the caller gives is copied, and what it will get is no number until then. */
static int hide(struct op *op, int k, lf_err *err)
{
    struct side *s = &op->side[k];
    const struct range in = gives(op, k, s->call.in, s->call.out), out = gets(op, k, s->call.out);
    const bool in_place = s->call.what == LF_COMM_ALL_REDUCE || s->call.what == LF_COMM_ALL_GATHER;
    s->own = lf_malloc(1, in.bytes + 1, err);
    s->gift = lf_malloc(1, out.bytes + 1, err);
    if (!s->own || !s->gift)
        return LF_ENOMEM;
    copy(s->own, in.at, in.bytes);
    if (s->call.what == LF_COMM_REDUCE_SCATTER && s->call.seed) /* it stands before the others */
        copy(s->gift, s->call.seed, out.bytes);
    if (in_place)
        copy(s->gift, s->call.out, out.bytes);
    if (out.bytes)
        memset(out.at, NAN_BYTE, out.bytes);
    if (s->call.what == LF_COMM_ALL_GATHER)
        copy(in.at, s->own, in.bytes);
    s->in = s->own;
    s->out = s->call.what == LF_COMM_BROADCAST && s->call.peer == k ? s->own : s->gift;
    if (s->call.seed)
        s->call.seed = s->gift;
    return 0;
}

static bool within(const char *at, struct range r)
{
    return at >= r.at && at < r.at + r.bytes;
}

/* Between beginning and end the caller may neither change what a call reads nor write to what it
 * gives. */
static const char *broken_rule(const struct op *op, int k)
{
    const struct side *s = &op->side[k];
    const struct range in = gives(op, k, s->call.in, s->f->call.out),
                       out = gets(op, k, s->f->call.out);
    const bool reduced = s->call.what == LF_COMM_ALL_REDUCE;
    for (size_t i = 0; i < in.bytes && !reduced; i++)
        if (in.at[i] != ((char *)s->own)[i] &&
            (s->call.what == LF_COMM_ALL_GATHER || !within(in.at + i, out)))
            return "what it reads was changed";
    for (size_t i = 0; i < out.bytes; i++)
        if ((unsigned char)out.at[i] != NAN_BYTE &&
            !(s->call.what == LF_COMM_ALL_GATHER && within(out.at + i, in)))
            return "what it gives was written to";
    return NULL;
}

static int show(struct world *w, const struct op *op, int k)
{
    const struct side *s = &op->side[k];
    const struct range out = gets(op, k, s->f->call.out);
    const char *rule = broken_rule(op, k);
    char said[300] = "";
    struct text t = {said, sizeof said};
    if (!rule) {
        copy(out.at, s->gift, out.bytes);
        return 0;
    }
    say_call(&t, &s->call, op->group);
    return lf_fail(&w->err, LF_ECOMM,
                   "rank %d, %s, call %llu of communicator %u: %s before it was "
                   "done",
                   lf_comm_world_rank(s->f->c, s->f->c->rank), said, (unsigned long long)s->f->seq,
                   op->group->id, rule);
}

/* ---- calls ---- */

static void free_op(struct op *op)
{
    for (int k = 0; k < op->n; k++) {
        free(op->side[k].own);
        free(op->side[k].gift);
    }
    free(op);
}

static void unlink_op(struct op **list, struct op *op)
{
    while (*list != op)
        list = &(*list)->next;
    *list = op->next;
}

static struct op *new_op(struct op **list, struct group *g, int n, uint64_t seq, lf_err *err)
{
    struct op *op = lf_calloc(1, sizeof *op + (size_t)n * sizeof op->side[0], err);
    if (!op)
        return NULL;
    op->group = g;
    op->n = n;
    op->seq = seq;
    while (*list)
        list = &(*list)->next;
    return *list = op;
}

/* A side has nothing to do with it any more. */
static void leave_op(struct lf_comm_flight *f)
{
    struct op *op = f->one.handle;
    struct group *g = op->group;
    bool all = true;
    f->one.handle = NULL;
    for (int k = 0; k < op->n; k++) {
        if (op->side[k].f == f) {
            op->side[k].f = NULL;
            op->side[k].left = true;
        }
        all = all && op->side[k].left;
    }
    if (!all)
        return;
    unlink_op(lf_comm_is_message(&f->call) ? &g->msg : &g->coll, op);
    free_op(op);
}

static int join(struct world *w, struct op *op, int k, struct lf_comm_flight *f,
                enum local_fault fault, lf_err *err)
{
    struct side *s = &op->side[k];
    *s = (struct side){.f = f,
                       .call = f->call,
                       .in = f->call.in,
                       .out = f->call.out,
                       .begun = true,
                       .fault = fault};
    f->one.handle = op;
    if (w->o.late && hide(op, k, err))
        return LF_ENOMEM;
    if (++op->begun < op->n || op->dead)
        return 0;
    if (op->split) {
        differ(w, op);
        return failed(w, err);
    }
    complete(op);
    return 0;
}

static int start_collective(struct local_comm *c, struct lf_comm_flight *f, enum local_fault fault,
                            lf_err *err)
{
    struct world *w = c->rank->w;
    struct group *g = c->group;
    struct op *op = g->coll;
    while (op && op->seq != f->seq)
        op = op->next;
    if (!op && !(op = new_op(&g->coll, g, g->size, f->seq, err)))
        return LF_ENOMEM;
    for (int k = 0; k < g->size; k++)
        op->split = op->split || (op->side[k].begun && !same_call(&op->side[k].call, k, &f->call,
                                                                  c->base.rank, g->size));
    return join(w, op, c->base.rank, f, fault, err);
}

/* The oldest message that waits for this side of it. */
static struct op *find_message(const struct local_comm *c, const struct lf_comm_call *a)
{
    const int mine = a->what == LF_COMM_RECV;
    for (struct op *op = c->group->msg; op; op = op->next) {
        const struct side *o = &op->side[!mine];
        if (o->f && !op->side[mine].begun && o->call.peer == c->base.rank &&
            o->f->c->rank == a->peer && o->call.tag == a->tag)
            return op;
    }
    return NULL;
}

static int start_message(struct local_comm *c, struct lf_comm_flight *f, enum local_fault fault,
                         lf_err *err)
{
    struct world *w = c->rank->w;
    const int mine = f->call.what == LF_COMM_RECV;
    struct op *op = find_message(c, &f->call);
    if (op && op->side[!mine].call.n != f->call.n) {
        lf_fail(&w->err, LF_ECOMM, "rank %d and rank %d exchange a message of %zu and of %zu bytes",
                c->rank->me, c->group->world[f->call.peer], f->call.n, op->side[!mine].call.n);
        return failed(w, err);
    }
    if (!op && !(op = new_op(&c->group->msg, c->group, 2, f->seq, err)))
        return LF_ENOMEM;
    return join(w, op, mine, f, fault, err);
}

/* ---- counts ---- */

static void count_moved(struct lf_comm_count *n, uint64_t parts, size_t sent, size_t received)
{
    n->sent += parts;
    n->received += parts;
    n->bytes_sent += sent;
    n->bytes_received += received;
}

static void count_all_reduce(lf_comm *c, const struct lf_comm_call *a)
{
    const size_t p = (size_t)c->size, each = lf_comm_type_bytes(a->type);
    size_t first, mine;
    lf_comm_part(a->n, c->size, c->rank, &first, &mine);
    const size_t bytes = a->n * each <= LF_COMM_SHORT ? (p - 1) * a->n * each
                                                      : (a->n - mine + (p - 1) * mine) * each;
    count_moved(&c->counts.collective, 2 * (p - 1), bytes, bytes);
}

static void count(lf_comm *c, const struct lf_comm_call *a)
{
    struct lf_comm_count *all = &c->counts.collective, *one = &c->counts.message;
    const size_t p = (size_t)c->size, others = p - 1;
    switch (a->what) {
    case LF_COMM_ALL_REDUCE:
        count_all_reduce(c, a);
        break;
    case LF_COMM_REDUCE_SCATTER: {
        const size_t each = lf_comm_type_bytes(a->type), mine = a->counts[c->rank] * each;
        count_moved(all, others, total(a->counts, c->size) * each - mine, others * mine);
        break;
    }
    case LF_COMM_ALL_GATHER:
        count_moved(all, others, others * a->counts[c->rank],
                    total(a->counts, c->size) - a->counts[c->rank]);
        break;
    case LF_COMM_ALL_TO_ALL:
        count_moved(all, others, total(a->counts, c->size) - a->counts[c->rank],
                    total(a->from, c->size) - a->from[c->rank]);
        break;
    case LF_COMM_BROADCAST:
        count_moved(all, 1, a->peer == c->rank ? others * a->n : 0, a->peer == c->rank ? 0 : a->n);
        break;
    case LF_COMM_BARRIER:
        count_moved(all, others, 0, 0);
        break;
    case LF_COMM_SEND:
        one->sent++;
        one->bytes_sent += a->n;
        break;
    case LF_COMM_RECV:
        one->received++;
        one->bytes_received += a->n;
        break;
    }
}

/* ---- the transport ---- */

static enum local_fault fault_of(struct rank *r, const struct lf_comm_call *a)
{
    const struct local_plant *p = &r->w->o.plant;
    const bool typed = a->what == LF_COMM_ALL_REDUCE || a->what == LF_COMM_REDUCE_SCATTER;
    if (p->fault == LOCAL_SOUND || !r->armed || p->what != a->what ||
        (typed && p->type != a->type) || ++r->fit != p->nth)
        return LOCAL_SOUND;
    const bool of_one = p->fault == LOCAL_SKIP || p->fault == LOCAL_NO_WAIT;
    return of_one && p->rank != r->me ? LOCAL_SOUND : p->fault;
}

static bool gives_way(struct world *w)
{
    return w->o.turns && lf_rng_u32(w->o.turns, 2, w->draws++) % 2;
}

static int local_start(lf_comm *base, struct lf_comm_flight *f, lf_err *err)
{
    struct local_comm *c = lc(base);
    struct rank *r = c->rank;
    const enum local_fault fault = fault_of(r, &f->call);
    if (failed(r->w, err))
        return LF_ECOMM;
    if (fault == LOCAL_SKIP) {
        base->seq -= !lf_comm_is_message(&f->call);
        f->done = true;
        return 0;
    }
    r->w->quiet = 0;
    r->calls++;
    count(base, &f->call);
    const int rc = lf_comm_is_message(&f->call) ? start_message(c, f, fault, err)
                                                : start_collective(c, f, fault, err);
    if (rc == 0 && gives_way(r->w))
        pause_for(r, CAN_GO, NULL);
    return rc;
}

static int side_of(const struct op *op, const struct lf_comm_flight *f)
{
    int k = 0;
    while (op->side[k].f != f)
        k++;
    return k;
}

/* f is done: its rank sees it. */
static int finish(struct world *w, struct lf_comm_flight *f, lf_err *err)
{
    struct op *op = f->one.handle;
    const int k = side_of(op, f);
    if (w->o.late && show(w, op, k))
        return failed(w, err);
    leave_op(f);
    f->done = true;
    w->quiet = 0;
    return 0;
}

/* Does its rank go on without it? What late calls give and get is not the caller's memory. */
static bool no_wait(const struct lf_comm_flight *f)
{
    const struct op *op = f->one.handle;
    return op->side[side_of(op, f)].fault == LOCAL_NO_WAIT;
}

static int local_test(lf_comm *base, struct lf_comm_flight *f, bool wait, lf_err *err)
{
    struct rank *r = lc(base)->rank;
    struct world *w = r->w;
    if (failed(w, err))
        return LF_ECOMM;
    if (no_wait(f)) {
        leave_op(f);
        f->done = true;
        return 0;
    }
    while (!over(f) && wait) {
        pause_for(r, WAITS, f);
        if (failed(w, err))
            return LF_ECOMM;
    }
    if (!over(f)) {
        pause_for(r, ASKS, f);
        return failed(w, err);
    }
    return finish(w, f, err);
}

static void local_give_up(lf_comm *base, struct lf_comm_flight *f)
{
    (void)base;
    struct op *op = f->one.handle;
    if (!op)
        return;
    op->dead = op->dead || !op->done;
    leave_op(f);
}

static void free_ops(struct op *op)
{
    while (op) {
        struct op *next = op->next;
        free_op(op);
        op = next;
    }
}

static void local_destroy(lf_comm *base)
{
    struct group *g = lc(base)->group;
    struct world *w = lc(base)->rank->w;
    if (--g->refs == 0) {
        struct group **at = &w->groups;
        while (*at != g)
            at = &(*at)->next;
        *at = g->next;
        free_ops(g->coll);
        free_ops(g->msg);
        free(g);
    }
    free(base);
}

static lf_comm *local_split(lf_comm *c, const int *members, int n, int me, uint32_t id,
                            lf_err *err);

static const struct lf_comm_ops local_ops = {.name = "local",
                                             .start = local_start,
                                             .test = local_test,
                                             .give_up = local_give_up,
                                             .split = local_split,
                                             .destroy = local_destroy};

static struct group *group_of(struct world *w, uint32_t id, const int *world, int n, lf_err *err)
{
    struct group *g = w->groups;
    while (g && !(g->id == id && g->world[0] == world[0]))
        g = g->next;
    if (!g) {
        if (!(g = lf_calloc(1, sizeof *g, err)))
            return NULL;
        g->id = id;
        g->size = n;
        memcpy(g->world, world, (size_t)n * sizeof *world);
        g->next = w->groups;
        w->groups = g;
    }
    g->refs++;
    return g;
}

static lf_comm *make(struct rank *r, uint32_t id, const int *world, int n, lf_err *err)
{
    struct local_comm *c = lf_calloc(1, sizeof *c, err);
    if (!c)
        return NULL;
    c->rank = r;
    c->base.ops = &local_ops;
    c->base.host = &c->base;
    if ((c->group = group_of(r->w, id, world, n, err)))
        return &c->base;
    free(c);
    return NULL;
}

static lf_comm *local_split(lf_comm *base, const int *members, int n, int me, uint32_t id,
                            lf_err *err)
{
    int world[LOCAL_RANKS];
    (void)me;
    for (int k = 0; k < n; k++)
        world[k] = lf_comm_world_rank(base, members[k]);
    return make(lc(base)->rank, id, world, n, err);
}

/* ---- the ranks ---- */

static struct lf_comm_job *job_of(const struct world *w, lf_err *err)
{
    struct lf_comm_job *job = lf_calloc(1, sizeof *job, err);
    if (!job || !(job->peer = lf_calloc((size_t)w->o.ranks, sizeof *job->peer, err))) {
        free(job);
        return NULL;
    }
    job->next_id = 1;
    for (int r = 0; r < w->o.ranks; r++) {
        snprintf(job->peer[r].host, sizeof job->peer[r].host, "local");
        job->peer[r].pid = getpid();
    }
    return job;
}

static lf_comm *world_comm(struct rank *r, lf_err *err)
{
    int all[LOCAL_RANKS];
    const int n = r->w->o.ranks;
    for (int k = 0; k < n; k++)
        all[k] = k;
    lf_comm *c = make(r, 0, all, n, err);
    struct lf_comm_job *job = c ? job_of(r->w, err) : NULL;
    if (!job)
        return NULL;
    c->rank = r->me;
    c->size = n;
    c->job = job;
    return c;
}

static void *run_rank(void *arg)
{
    struct rank *r = arg;
    struct world *w = r->w;
    pthread_mutex_lock(&w->lock);
    while (w->whose != r->me)
        pthread_cond_wait(&r->called, &w->lock);
    pthread_mutex_unlock(&w->lock);
    r->rc = w->fn(w->user, r->comm, &r->err);
    lf_comm_destroy(r->comm);
    r->turn = ENDED;
    if (all_ended(w))
        return NULL;
    const int next = choose(w, r->me);
    pthread_mutex_lock(&w->lock);
    w->whose = next;
    pthread_cond_signal(&w->rank[next].called);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static int open_ranks(struct world *w, lf_err *err)
{
    for (int r = 0; r < w->o.ranks; r++) {
        w->rank[r] = (struct rank){.w = w, .me = r, .armed = w->o.plant.armed};
        pthread_cond_init(&w->rank[r].called, NULL);
        if (!(w->rank[r].comm = world_comm(&w->rank[r], err)))
            return LF_ENOMEM;
    }
    return 0;
}

/* A failure of a rank's own comes before one that only says that another failed. */
static int result(const struct world *w, lf_err *err)
{
    const struct rank *worst = NULL;
    for (int r = w->o.ranks - 1; r >= 0; r--)
        if (w->rank[r].rc != 0 && (!worst || w->rank[r].rc != LF_ECOMM || worst->rc == LF_ECOMM))
            worst = &w->rank[r];
    if ((!worst || worst->rc == LF_ECOMM) && failed(w, err))
        return w->err.rc;
    return worst ? lf_fail(err, worst->rc, "%s", worst->err.text) : 0;
}

void local_arm(lf_comm *comm)
{
    lc(comm)->rank->armed = true;
}

int local_run(const struct local_opts *o, local_fn fn, void *user, lf_err *err)
{
    struct world *w = lf_calloc(1, sizeof *w, err);
    if (!w)
        return LF_ENOMEM;
    *w = (struct world){.o = *o, .fn = fn, .user = user, .whose = -1};
    if (o->ranks < 1 || o->ranks > LOCAL_RANKS || (o->plant.fault == LOCAL_NO_WAIT && !o->late))
        LF_BUG("%d ranks, or a wait left out in calls that are not late", o->ranks);
    pthread_mutex_init(&w->lock, NULL);
    int rc = open_ranks(w, err), made = 0;
    while (rc == 0 && made < o->ranks &&
           pthread_create(&w->rank[made].thread, NULL, run_rank, &w->rank[made]) == 0)
        made++;
    if (rc == 0 && made < o->ranks)
        LF_BUG("only %d of %d threads could be made", made, o->ranks);
    if (rc == 0) {
        pthread_mutex_lock(&w->lock);
        w->whose = 0;
        pthread_cond_signal(&w->rank[0].called);
        pthread_mutex_unlock(&w->lock);
    }
    for (int r = 0; r < made; r++)
        pthread_join(w->rank[r].thread, NULL);
    if (rc == 0)
        rc = result(w, err);
    pthread_mutex_destroy(&w->lock);
    for (int r = 0; r < o->ranks; r++)
        pthread_cond_destroy(&w->rank[r].called);
    free(w);
    return rc;
}
