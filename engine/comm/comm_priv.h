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
};

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
/* nccl.c: built on a communicator for host memory, which it owns on success. stream NULL: it makes
 * its own stream and waits for every call. */
lf_comm *lf_comm_nccl_create(lf_comm *host, int device, void *stream, lf_err *err);
/* Destroys c. What is queued ends without waiting for other ranks. */
void lf_comm_nccl_abort(lf_comm *c);

#endif
