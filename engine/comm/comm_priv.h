/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations for comm.c and the transports: what all communicators of a process share, and how
 * each transport is created.
 */
#ifndef LF_COMM_COMM_PRIV_H
#define LF_COMM_COMM_PRIV_H

#include <stdbool.h>

#include "engine/comm/comm.h"

struct lf_watch;

/* One rank of the job. Every rank holds the same array of them. */
struct lf_comm_peer {
    char host[64];
    int64_t pid;
    /* hash of the machine's boot id; ranks on one machine have the same one, whatever their host
     * names */
    uint64_t boot;
    uint64_t cpus; /* hash of the set of processors it may run on; n_cpus is their number */
    int64_t n_cpus;
};

struct lf_comm_job {
    lf_boot *boot;
    struct lf_comm_peer *peer; /* [size] */
    struct lf_watch *watch;    /* NULL: none */
    uint32_t next_id;          /* for the next communicator */
    lf_comm *pump;             /* whose progress moves the messages of all; NULL: none */
    struct lf_msg_comm *busy;  /* list of those with collectives under way (coll.c) */
    long under_way;            /* requests that are begun and not known to be done */
    double look_s;             /* before that time lf_comm_poll does nothing */
    double waited_s;           /* lf_comm_waited_s */
};

/* One message of a transport that moves messages (msg.h). */
typedef struct lf_msg_req {
    void *handle; /* NULL: done */
    size_t want;  /* bytes that a receive must bring */
} lf_msg_req;

/* A call that was begun: behind a request, or on the stack of a call that waits. */
struct lf_comm_flight {
    lf_comm *c;
    struct lf_comm_call call;
    uint64_t seq; /* a collective's number */
    bool done;
    double since;                /* when a caller began to wait for it */
    struct lf_comm_flight *next; /* free ones of the pool; collectives that wait behind this */
    lf_msg_req one, *more;       /* a message, and the other pieces of a very long one, owned */
    size_t n_more;
};

/* comm.c: 1 when the ranks of rank me's machine outnumber the processors that they may use, 0 when
 * not. Ranks that were bound have sets of their own. */
int lf_comm_crowded(const struct lf_comm_peer *peer, int n, int me, lf_err *err);

/* call.c: "all_reduce". */
const char *lf_comm_what_name(enum lf_comm_what what);
/* Gives up the requests of c and frees their records. */
void lf_comm_drop_requests(lf_comm *c);

static inline bool lf_comm_is_message(const struct lf_comm_call *a)
{
    return a->what == LF_COMM_SEND || a->what == LF_COMM_RECV;
}

static inline int lf_comm_world_rank(const lf_comm *c, int rank)
{
    return c->world ? c->world[rank] : rank;
}

static inline size_t lf_comm_type_bytes(enum lf_comm_type t)
{
    return t == LF_COMM_BF16 ? 2 : t == LF_COMM_F32 ? 4 : 8;
}

/* comm.c: makes the communicator of members[0..n-1] of c with the split of its transport, and sets
 * the fields that all transports share. */
lf_comm *lf_comm_part_of(lf_comm *c, const int *members, int n, int me, uint32_t id, lf_err *err);

/* self.c: the transport of one rank. */
lf_comm *lf_comm_self_create(lf_err *err);
/* ucx.c: the communicator of all ranks of job->boot. */
lf_comm *lf_comm_ucx_create(struct lf_comm_job *job, lf_err *err);
/* nccl.c: built on a communicator for host memory, which it owns on success. Without a stream it
 * makes its own and waits for every call. */
lf_comm *lf_comm_nccl_create(lf_comm *host, const struct lf_comm_gpus *o, lf_err *err);
/* lf_comm_on_gpus_part. */
lf_comm *lf_comm_nccl_part(lf_comm *whole, lf_comm *host, lf_err *err);
/* Destroys c. What is queued ends without waiting for other ranks. */
void lf_comm_nccl_abort(lf_comm *c);

#endif
