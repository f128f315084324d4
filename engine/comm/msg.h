/* SPDX-License-Identifier: Apache-2.0
 *
 * Non-blocking messages between ranks, and the collectives that are made of them (coll.c). UCX
 * (ucx.c) is the only implementation.
 *
 * A message is matched by sender and tag; messages of one sender and tag keep their order. Requests
 * live in the caller's arrays and must stay where they are until they are done.
 */
#ifndef LF_COMM_MSG_H
#define LF_COMM_MSG_H

#include <stddef.h>
#include <stdint.h>

#include "engine/comm/comm_priv.h"

typedef struct lf_msg lf_msg; /* one per process, reference-counted */

typedef struct lf_msg_req {
    void *handle; /* NULL: done */
    size_t want;  /* bytes that a receive must bring */
} lf_msg_req;

/* peer is a world rank. */
int lf_msg_isend(lf_msg *m, lf_msg_req *q, int peer, uint64_t tag, const void *data, size_t bytes,
                 lf_err *err);
int lf_msg_irecv(lf_msg *m, lf_msg_req *q, uint64_t tag, void *data, size_t bytes, lf_err *err);
/* Waits until all requests are done. LF_ECOMM: one failed or had another length than expected. */
int lf_msg_wait(lf_msg *m, lf_msg_req *q, size_t n, lf_err *err);

/* A communicator whose collectives use messages. */
struct lf_msg_comm {
    lf_comm base;
    lf_msg *m;
    int *peer;       /* [size] world ranks */
    lf_msg_req *req; /* [8 * size] */
    const void **x;  /* scratch of the collectives: [size], [2 * size], [2 * size] */
    char **part;
    size_t *count;
    char *work; /* two slots of received parts */
    size_t work_bytes;
};

/* coll.c: the entries of lf_comm_ops. */
int lf_coll_all_reduce(lf_comm *c, void *data, size_t n, enum lf_comm_type t, enum lf_comm_op op,
                       lf_err *err);
int lf_coll_reduce_scatter(lf_comm *c, void *out, const void *in, const size_t *counts,
                           enum lf_comm_type t, lf_err *err);
int lf_coll_all_gather(lf_comm *c, void *all, const size_t *bytes, lf_err *err);
int lf_coll_broadcast(lf_comm *c, void *data, size_t bytes, int root, lf_err *err);
int lf_coll_barrier(lf_comm *c, lf_err *err);
int lf_coll_send(lf_comm *c, const void *data, size_t bytes, int to, int tag, lf_err *err);
int lf_coll_recv(lf_comm *c, void *data, size_t bytes, int from, int tag, lf_err *err);

/* reduce.c: y[i] = x[0][i] op x[1][i] op ... op x[p - 1][i], evaluated from the left as comm.h
 * defines it. y may be one of the x. */
void lf_reduce(void *y, const void *const *x, int p, size_t n, enum lf_comm_type t,
               enum lf_comm_op op);

#endif
