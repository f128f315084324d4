/* SPDX-License-Identifier: Apache-2.0
 *
 * Who this process is among the ranks of its stage (lf_boot), and what ranks do together (lf_comm).
 * Which dimensions of parallelism the ranks form is in mesh.h.
 *
 * Start-up. A rank learns rank, size and node from PMIx when a PMIx server started it
 * (PMIX_NAMESPACE is set: srun --mpi=pmix, prterun, mpirun or `loong-flow launch`); otherwise it is
 * alone. Several processes that were started without PMIx (srun without --mpi=pmix, mpiexec of an
 * MPI that has no PMIx) are refused: each would take itself for the only one and write the same
 * files. put, fence and get carry small blobs (worker addresses, NCCL ids) at start-up only.
 *
 * Collectives. Every rank of a communicator calls the same functions with the same sizes in the
 * same order. They return when the caller's buffers may be used again. Sizes may be zero and may
 * exceed 2 GiB.
 *
 * Order of sums. With x_r the data of rank r and P ranks,
 *
 *     y[i] = ((x_0[i] + x_1[i]) + x_2[i]) + ... + x_{P-1}[i]
 *
 * evaluated from the left in f32 for f32, in f64 for f64, in f32 with one rounding to nearest even
 * at the end for bf16, modulo 2^64 for i64. The owner of a chunk forms it (the other ranks send it
 * their parts) and sends it to all, so every rank holds the same bits, and neither timing,
 * transport, chunk size nor number of nodes changes them. Transport nccl is the exception: NCCL
 * chooses its own order; the bits are equal on all ranks and repeat for the same ranks, NCCL
 * version and topology.
 *
 * Watchdog. A thread beside each rank tells rank 0 once a second what the rank does. A rank that
 * dies, stops answering, or computes for longer than `patience_s` while others wait for it in a
 * collective ends the whole job: one line names rank, host, pid, what it was doing, its step, and
 * the collective it was missing in, and the processes end with LF_COMM_EXIT. Work that may take
 * longer on one rank than on others (saving, planning, reading) is announced with lf_comm_phase.
 *
 * Threads: one thread per process calls these functions. Failure contract: 0 or a negative enum
 * lf_rc; LF_ECOMM when ranks could not talk, after which a communicator is only good for
 * lf_comm_destroy.
 */
#ifndef LF_COMM_COMM_H
#define LF_COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

/* ---- start-up ---- */

typedef struct lf_boot lf_boot;

struct lf_boot_info {
    int rank, size;             /* 0 <= rank < size */
    int local_rank, local_size; /* on this node */
    int node, nodes;            /* 0 <= node < nodes */
    const char *host;           /* this node's name as the launcher knows it */
    const char *how;            /* "single" or "pmix" */
};

/* Join the job. LF_ECOMM when PMIx is announced but fails or when several processes were started
 * without it; LF_ENOTSUP when it is announced and not built in. */
lf_boot *lf_boot_create(lf_err *err);
void lf_boot_destroy(lf_boot *b);
const struct lf_boot_info *lf_boot_info(const lf_boot *b);
/* Keep a blob for the next fence. A key is put once in a job: LF_EEXIST. The data is copied. */
int lf_boot_put(lf_boot *b, const char *key, const void *data, size_t len, lf_err *err);
/* Publish what was put since the last fence, in one commit, and wait for all ranks, at most
 * LF_COMM_START seconds (50, and one more for every 20 ranks): LF_ECOMM. Every rank calls it. */
int lf_boot_fence(lf_boot *b, lf_err *err);
/* Copy what `rank` put before the last fence, at most cap bytes, *len set to its length: LF_EINVAL
 * when it is longer than cap, LF_ENOENT when it put nothing under that key. */
int lf_boot_get(lf_boot *b, int rank, const char *key, void *data, size_t cap, size_t *len,
                lf_err *err);
/* End all processes of the job through the launcher, with an exit code and one line of text.
 * Returns when the launcher has taken note of it, or at once where there is none. Safe to call from
 * any thread. */
void lf_boot_abort(lf_boot *b, int code, const char *text);

/* ---- communicators ---- */

enum lf_comm_type { LF_COMM_F32, LF_COMM_F64, LF_COMM_BF16, LF_COMM_I64 }; /* bf16 as uint16_t */
enum lf_comm_op { LF_COMM_SUM, LF_COMM_MAX }; /* MAX: a NaN on any rank gives NaN */
enum { LF_COMM_EXIT = 70, LF_COMM_MAX_TAG = 0xffff };

typedef struct lf_comm lf_comm;

struct lf_comm_ops {
    const char *name; /* "self", "ucx", "nccl" */
    int (*all_reduce)(lf_comm *c, void *data, size_t n, enum lf_comm_type t, enum lf_comm_op op,
                      lf_err *err);
    int (*reduce_scatter)(lf_comm *c, void *out, const void *in, const size_t *counts,
                          enum lf_comm_type t, lf_err *err);
    int (*all_gather)(lf_comm *c, void *all, const size_t *bytes, lf_err *err);
    int (*broadcast)(lf_comm *c, void *data, size_t bytes, int root, lf_err *err);
    int (*barrier)(lf_comm *c, lf_err *err);
    int (*send)(lf_comm *c, const void *data, size_t bytes, int to, int tag, lf_err *err);
    int (*recv)(lf_comm *c, void *data, size_t bytes, int from, int tag, lf_err *err);
    /* The communicator of members[0..n-1] (ranks of c; this rank is members[me]), with an id nobody
     * else of them uses. */
    lf_comm *(*split)(lf_comm *c, const int *members, int n, int me, uint32_t id, lf_err *err);
    void (*destroy)(lf_comm *c);
};

struct lf_comm_job; /* what all communicators of a process share: start-up, watchdog */

struct
    lf_comm { /* first member of every implementation; read rank and size, leave the rest alone */
    const struct lf_comm_ops *ops;
    int rank, size;
    int local_rank;          /* on this node; of the world */
    lf_comm *host;           /* where host memory goes: the communicator itself, but for nccl */
    struct lf_comm_job *job; /* NULL: one process */
    int *world;              /* [size] world rank of each member; NULL: the identity */
    uint32_t id;             /* 0: the world */
    uint64_t seq;            /* collectives so far */
};

struct lf_comm_opts {
    /* NULL or "auto": self for one rank, ucx for more; "self", "ucx", "nccl" */
    const char *transport;
    double patience_s; /* 0: LF_COMM_PATIENCE (seconds, or off: no watchdog), else 40 */
    int device;        /* nccl: CUDA device of this rank */
    /* Told the watchdog's line, from its own thread, before the process ends; NULL: one write to
     * standard error. */
    void (*fatal)(void *arg, const char *text);
    void *fatal_arg;
};

/* Over all ranks of boot, which is borrowed until destroy. The environment variable LF_COMM
 * names a transport where opts does not. LF_ENOTSUP when the transport is not built in or its
 * library is not there. */
lf_comm *lf_comm_create(lf_boot *boot, lf_err *err);
lf_comm *lf_comm_create_with(lf_boot *boot, const struct lf_comm_opts *opts, lf_err *err);
/* Sub-communicators first. Waits for nobody. */
void lf_comm_destroy(lf_comm *c);

/* The ranks of `host` for memory of GPUs over NCCL, beside it and destroyed before it. Calls are
 * queued on `stream` (a CUstream of GPU `device`) in order with what else is queued there, and not
 * waited for. Collective. */
lf_comm *lf_comm_on_gpus(lf_comm *host, int device, void *stream, lf_err *err);
void lf_comm_on_gpus_destroy(lf_comm *c);
/* The same after a failure of any rank: what is still queued ends, whatever others did. */
void lf_comm_on_gpus_abort(lf_comm *c);

/* Ranks that give the same color form a new communicator, ordered by (key, rank). color < 0: this
 * rank takes part in the call and gets none: NULL without an error in err. */
lf_comm *lf_comm_split(lf_comm *c, int color, int key, lf_err *err);

/* In place: every rank ends with the same n elements. */
int lf_comm_all_reduce(lf_comm *c, void *data, size_t n, enum lf_comm_type t, enum lf_comm_op op,
                       lf_err *err);
/* counts[size] elements per rank; `in` holds the chunks of all ranks one after the other; out gets
 * the sum of this rank's chunk and may be that chunk of `in`. The other chunks of `in` are not
 * changed. */
int lf_comm_reduce_scatter(lf_comm *c, void *out, const void *in, const size_t *counts,
                           enum lf_comm_type t, lf_err *err);
/* bytes[size] per rank, one after the other in `all`; this rank's part is there already. */
int lf_comm_all_gather(lf_comm *c, void *all, const size_t *bytes, lf_err *err);
int lf_comm_broadcast(lf_comm *c, void *data, size_t bytes, int root, lf_err *err);
int lf_comm_barrier(lf_comm *c, lf_err *err);
/* Point to point, same size on both sides, 0 <= tag <= LF_COMM_MAX_TAG. Messages of one pair and
 * tag keep their order. To oneself: LF_EINVAL. A send may wait for its recv. */
int lf_comm_send(lf_comm *c, const void *data, size_t bytes, int to, int tag, lf_err *err);
int lf_comm_recv(lf_comm *c, void *data, size_t bytes, int from, int tag, lf_err *err);

/* Blobs of any length of every rank, on every rank. data is owned (free); blob r is
 * data[offset[r]..offset[r + 1]). */
struct lf_comm_blobs {
    char *data;
    size_t *offset; /* [size + 1], owned */
};
int lf_comm_gather_blobs(lf_comm *c, const void *mine, size_t len, struct lf_comm_blobs *out,
                         lf_err *err);
void lf_comm_blobs_fini(struct lf_comm_blobs *b);

/* All ranks agree on the largest *value: whether to stop, at which step. A few microseconds on one
 * node:
 *
 *     int64_t stop = lf_stop_requested();      signals reach ranks at different times
 *     rc = lf_comm_agree_max(c, &stop, err);   after this, all stop at this step or none does
 */
int lf_comm_agree_max(lf_comm *c, int64_t *value, lf_err *err);
/* 0 when rc is 0 on every rank. Otherwise each rank gets a failure: its own, or LF_ECOMM naming the
 * lowest rank that failed. For steps where one rank may fail alone (opening a file) and the others
 * must not wait for it. */
int lf_comm_agree_ok(lf_comm *c, int rc, lf_err *err);

/* The same where one rank may have been asked to stop (LF_EINTR): a failure of one is a failure of
 * all, and so is a stop. c NULL: one process, returns rc. */
int lf_comm_agree_stop(lf_comm *c, int rc, lf_err *err);

/* Elements [*first, *first + *count) of n belong to `rank` of `size`: even chunks, the first n %
 * size one longer. */
void lf_comm_part(size_t n, int size, int rank, size_t *first, size_t *count);

/* Where this rank is, for the watchdog's line. */
void lf_comm_step(lf_comm *c, int64_t step);
/* Work that others may have to wait for, up to limit_s (0: without limit): the watchdog does not
 * call it a hang. NULL ends it; phases do not nest, a new one replaces the old one. name is copied
 * (47 bytes). */
void lf_comm_phase(lf_comm *c, const char *name, double limit_s);

/* Name and pid of a member of c, borrowed until c's world is destroyed. "" and -1 where one process
 * is alone. */
const char *lf_comm_peer_host(const lf_comm *c, int rank);
int64_t lf_comm_peer_pid(const lf_comm *c, int rank);

#endif
