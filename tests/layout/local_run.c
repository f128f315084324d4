/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of the transport: their threads, whose turn it is, and what is said where they do not
 * agree or no rank can go on.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "tests/layout/local_priv.h"

enum { QUIET = 1000 };

/* ---- words ---- */

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

void local_say_call(struct text *t, const struct lf_comm_call *a, const struct group *g)
{
    static const char *const types[] = {"f32", "f64", "bf16", "i64"};
    const bool max = a->op == LF_COMM_MAX;
    add(t, "%s", lf_comm_what_name(a->what));
    switch (a->what) {
    case LF_COMM_ALL_REDUCE:
        add(t, " (%s) of %zu %s", max ? "max" : "sum", a->n, types[a->type]);
        break;
    case LF_COMM_REDUCE_SCATTER:
        add(t, " of %zu %s", local_total(a->counts, g->size), types[a->type]);
        break;
    case LF_COMM_ALL_GATHER:
    case LF_COMM_ALL_TO_ALL:
        add(t, " of %zu bytes", local_total(a->counts, g->size));
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
    local_say_call(t, &f->call, op->group);
    if (!lf_comm_is_message(&f->call))
        say_place(t, op);
}

/* ---- ranks that do not agree ---- */

static bool same_counts(const size_t *a, const size_t *b, int n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

bool local_same_call(const struct lf_comm_call *a, int ka, const struct lf_comm_call *b, int kb,
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
             (o == k || local_same_call(&op->side[k].call, k, &op->side[o].call, o, op->n));
    return n;
}

int local_differ(struct world *w, const struct op *op)
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
    local_say_call(&m, &op->side[odd].call, op->group);
    local_say_call(&t, &op->side[most].call, op->group);
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
                return local_differ(w, op);
    for (int r = 0; r < w->o.ranks; r++)
        say_rank(&t, &w->rank[r]);
    return lf_fail(&w->err, LF_ECOMM, "no rank can go on%s", said);
}

/* ---- turns ---- */

static bool can_go(const struct world *w, const struct rank *r)
{
    return r->turn == CAN_GO || r->turn == ASKS ||
           (r->turn == WAITS && (w->err.rc != 0 || local_is_over(r->awaits)));
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

static void await_turn(struct rank *r)
{
    while (sem_wait(&r->called) != 0)
        continue; /* a signal came between */
}

/* Gives the turn away and waits for the next one. */
static void give_turn(struct rank *r)
{
    const int next = choose(r->w, r->me);
    if (next == r->me)
        return;
    sem_post(&r->w->rank[next].called);
    await_turn(r);
}

void local_pause(struct rank *r, enum turn turn, const struct lf_comm_flight *f)
{
    r->awaits = f;
    r->turn = turn;
    give_turn(r);
    r->turn = CAN_GO;
    r->awaits = NULL;
}

int local_failed(const struct world *w, lf_err *err)
{
    return w->err.rc ? lf_fail(err, w->err.rc, "%s", w->err.text) : 0;
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
    lf_comm *c = local_make(r, 0, all, n, err);
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
    await_turn(r);
    r->rc = w->fn(w->user, r->comm, &r->err);
    lf_comm_destroy(r->comm);
    r->turn = ENDED;
    if (all_ended(w))
        return NULL;
    sem_post(&w->rank[choose(w, r->me)].called);
    return NULL;
}

static int open_ranks(struct world *w, lf_err *err)
{
    for (int r = 0; r < w->o.ranks; r++) {
        w->rank[r] = (struct rank){.w = w, .me = r, .armed = w->o.plant.armed};
        sem_init(&w->rank[r].called, 0, 0);
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
    if ((!worst || worst->rc == LF_ECOMM) && local_failed(w, err))
        return w->err.rc;
    return worst ? lf_fail(err, worst->rc, "%s", worst->err.text) : 0;
}

void local_arm(lf_comm *comm)
{
    local_comm_of(comm)->rank->armed = true;
}

int local_run(const struct local_opts *o, local_fn fn, void *user, lf_err *err)
{
    struct world *w = lf_calloc(1, sizeof *w, err);
    if (!w)
        return LF_ENOMEM;
    *w = (struct world){.o = *o, .fn = fn, .user = user};
    if (o->ranks < 1 || o->ranks > LOCAL_RANKS || (o->plant.fault == LOCAL_NO_WAIT && !o->late))
        LF_BUG("%d ranks, or a wait left out in calls that are not late", o->ranks);
    int rc = open_ranks(w, err), made = 0;
    while (rc == 0 && made < o->ranks &&
           pthread_create(&w->rank[made].thread, NULL, run_rank, &w->rank[made]) == 0)
        made++;
    if (rc == 0 && made < o->ranks)
        LF_BUG("only %d of %d threads could be made", made, o->ranks);
    if (rc == 0)
        sem_post(&w->rank[0].called);
    for (int r = 0; r < made; r++)
        pthread_join(w->rank[r].thread, NULL);
    if (rc == 0)
        rc = result(w, err);
    for (int r = 0; r < o->ranks; r++)
        sem_destroy(&w->rank[r].called);
    free(w);
    return rc;
}
