/* SPDX-License-Identifier: Apache-2.0
 *
 * Non-blocking messages between ranks, and the collectives that are made of them (coll.c). UCX
 * (ucx.c) is the only implementation.
 *
 * A message is matched by sender and tag; messages of one sender and tag keep their order. Requests
 * live in the caller's arrays and must stay where they are until they are done. Nothing moves but
 * in lf_msg_progress.
 */
#ifndef LF_COMM_MSG_H
#define LF_COMM_MSG_H

#include <stddef.h>
#include <stdint.h>

#include "engine/comm/comm_priv.h"

typedef struct lf_msg lf_msg; /* one per process, reference-counted */

/* peer is a world rank. */
int lf_msg_isend(lf_msg *m, lf_msg_req *q, int peer, uint64_t tag, const void *data, size_t bytes,
                 lf_err *err);
int lf_msg_irecv(lf_msg *m, lf_msg_req *q, uint64_t tag, void *data, size_t bytes, lf_err *err);
/* 1: the request is done, 0: not yet. LF_ECOMM: it failed, or had another length than expected.
 * This moves nothing. */
int lf_msg_look(lf_msg_req *q, lf_err *err);
/* Gives a request up, where that is possible. */
void lf_msg_give_up(lf_msg *m, lf_msg_req *q);
/* Moves what can be moved at once. Has anything moved? */
bool lf_msg_progress(lf_msg *m);
/* What a rank does that found nothing to move: it lets others run, or sleeps until something may
 * have happened. Zeroed before a wait and after every movement. */
struct lf_msg_idle {
    unsigned times;
    double since;
};
void lf_msg_pause(lf_msg *m, struct lf_msg_idle *idle);

/* How far the collective under way has come (coll.c). */
struct lf_coll {
    int phase;
    size_t k; /* block, segment or distance */
    size_t steps;
    int low, bit, child; /* of a broadcast's tree */
    char in, out;        /* of a barrier */
    lf_msg_req *await;   /* what the next step waits for */
    size_t n_await;
};

/* A communicator whose collectives use messages. */
struct lf_msg_comm {
    lf_comm base;
    lf_msg *m;
    int *peer;       /* [size] world ranks */
    lf_msg_req *req; /* [8 * size] */
    const void **x;  /* scratch of the collectives: [size + 1], [2 * size], [2 * size] */
    char **part;
    size_t *count;
    char *work; /* two slots of received parts */
    size_t work_bytes;
    struct lf_comm_flight *first, *last; /* collectives begun; the first is under way */
    struct lf_coll run;
    struct lf_msg_comm *next_busy; /* of job->busy */
    lf_err err;                    /* the first failure of a collective; rc 0: none */
};

/* coll.c: the entries of lf_comm_ops. */
int lf_coll_start(lf_comm *c, struct lf_comm_flight *f, lf_err *err);
int lf_coll_test(lf_comm *c, struct lf_comm_flight *f, bool wait, lf_err *err);
bool lf_coll_progress(lf_comm *c);
void lf_coll_give_up(lf_comm *c, struct lf_comm_flight *f);

/* reduce.c: y[i] = x[0][i] op x[1][i] op ... op x[p - 1][i], evaluated from the left as comm.h
 * defines it. y may be one of the x. */
void lf_reduce(void *y, const void *const *x, int p, size_t n, enum lf_comm_type t,
               enum lf_comm_op op);

#endif
