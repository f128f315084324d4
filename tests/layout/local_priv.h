/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the transport share (local.h): ranks, their communicators, and the calls that
 * are under way. Only the rank whose turn it is touches any of it, so there is no lock.
 */
#ifndef LF_TESTS_LAYOUT_LOCAL_PRIV_H
#define LF_TESTS_LAYOUT_LOCAL_PRIV_H

#include <pthread.h>
#include <semaphore.h>

#include "engine/comm/comm_priv.h"
#include "engine/comm/msg.h"
#include "tests/layout/local.h"

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
    sem_t called; /* it is its turn */
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

static inline struct local_comm *local_comm_of(lf_comm *c)
{
    return (struct local_comm *)c;
}

static inline size_t local_total(const size_t *counts, int n)
{
    size_t sum = 0;
    for (int r = 0; r < n; r++)
        sum += counts[r];
    return sum;
}

/* Is there nothing to wait for any more? */
static inline bool local_is_over(const struct lf_comm_flight *f)
{
    const struct op *op = f->one.handle;
    return !op || op->done;
}

/* ---- local_run.c: turns, and words for what is wrong ---- */

struct text {
    char *at;
    size_t left;
};
/* Appends what a call is: "all_gather of 12 bytes". */
void local_say_call(struct text *t, const struct lf_comm_call *a, const struct group *g);
/* Is call b of rank kb what call a of rank ka of the n ranks of a communicator is? */
bool local_same_call(const struct lf_comm_call *a, int ka, const struct lf_comm_call *b, int kb,
                     int n);
/* Fails the world, and says which rank has begun something else than most have. */
int local_differ(struct world *w, const struct op *op);
/* The world's failure, once there is one. */
int local_failed(const struct world *w, lf_err *err);
/* Gives the turn away, as a rank that can go on, waits or asks, until it comes back. */
void local_pause(struct rank *r, enum turn turn, const struct lf_comm_flight *f);

/* ---- local_move.c: what calls read and give ---- */

/* All sides have begun: the call is done. */
void local_complete(struct op *op);
/* Late: everything that side k gives is copied, and what it will get is no number until then. */
int local_hide(struct op *op, int k, lf_err *err);
/* Late: side k sees what it gets, where it has kept the rules. */
int local_show(struct world *w, const struct op *op, int k);

/* ---- local.c ---- */

/* The communicator with this id of n ranks of the world, for rank r. */
lf_comm *local_make(struct rank *r, uint32_t id, const int *world, int n, lf_err *err);

#endif
