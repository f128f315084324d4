/* SPDX-License-Identifier: Apache-2.0
 *
 * The rank of this process in its stage (lf_boot), and the collectives of ranks (lf_comm). mesh.h
 * arranges ranks in dimensions of parallelism.
 *
 * Start-up. A rank learns rank, size and node from PMIx when a PMIx server started it
 * (PMIX_NAMESPACE is set: srun --mpi=pmix, prterun, mpirun or `loong-flow launch`); otherwise it is
 * alone. Several processes that were started without PMIx (srun without --mpi=pmix, mpiexec of an
 * MPI without PMIx) are refused, because each would run as the only one and write the same files.
 * put, fence and get carry small blobs (UCX addresses, NCCL ids) at start-up only.
 *
 * Calls. Every rank of a communicator begins the same collectives with the same sizes in the same
 * order. Sizes may be zero and may exceed 2 GiB. A blocking call returns when the caller's buffers
 * may be used again. The other form, lf_comm_start and its short forms lf_comm_isend and
 * lf_comm_irecv, returns at once with a request; the buffers and lists of counts that it names stay
 * as they are until lf_comm_test or lf_comm_wait has said that the request is done. Both forms have
 * the same bits. Collectives of one communicator are carried out one after the other in the order
 * of their start, blocking ones among them, so they share one working memory. Messages from rank to
 * rank and collectives of other communicators go on beside them.
 *
 * Progress. Bytes move only while this process calls lf_comm_wait, lf_comm_test, lf_comm_progress,
 * lf_comm_poll or a blocking call. A rank that computes calls lf_comm_poll between its tasks
 * (lf_back_set_border gives that to an executor), or its peers wait until it is done.
 *
 * Order of sums. With x_r the data of rank r and P ranks,
 *
 *     y[i] = ((x_0[i] + x_1[i]) + x_2[i]) + ... + x_{P-1}[i]
 *
 * evaluated from the left: in f32 for f32, in f64 for f64, in f32 with one rounding to nearest even
 * at the end for bf16, modulo 2^64 for i64. Each chunk has an owner. The other ranks send it their
 * parts; it forms the sum and sends it to all. So every rank holds the same bits, which do not
 * depend on timing, transport, size of the chunks or number of nodes. Transport nccl is the
 * exception, as NCCL chooses its own order. Its bits are equal on all ranks and repeat for the same
 * ranks, NCCL version and topology. A seed T of a reduce-scatter stands before x_0:
 * y[i] = ((T[i] + x_0[i]) + x_1[i]) + ...
 *
 * Watchdog. A thread of each rank tells rank 0 once a second what the rank does. The whole job ends
 * when a rank dies, stops answering, or computes for longer than `patience_s` while others wait for
 * it in a collective or for a message. One line then names the rank, its host and pid, what it was
 * doing, its step, and the collective or message in which it was missing (a message with its peer,
 * direction and chunk); the processes end with LF_COMM_EXIT. A rank announces work that may take
 * longer than on other ranks (saving, planning, reading) with lf_comm_phase.
 *
 * Threads: one thread per process calls these functions. Errors: 0 or a negative enum lf_rc. After
 * LF_ECOMM (ranks could not communicate) the only legal call for a communicator is lf_comm_destroy.
 */
#ifndef LF_COMM_COMM_H
#define LF_COMM_COMM_H

#include <stdbool.h>
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
    int reads;                  /* blobs that lf_boot_get has read so far */
};

/* Joins the job. LF_ECOMM: PMIx is announced but fails, or several processes were started without
 * it. LF_ENOTSUP: PMIx is announced and not built in. */
lf_boot *lf_boot_create(lf_err *err);
void lf_boot_destroy(lf_boot *b);
const struct lf_boot_info *lf_boot_info(const lf_boot *b);
/* Keeps a copy of the data for the next fence. LF_EEXIST: the key was put before in this job. */
int lf_boot_put(lf_boot *b, const char *key, const void *data, size_t len, lf_err *err);
/* Publishes what was put since the last fence, in one PMIx commit, and waits for all ranks. Every
 * rank calls it. LF_ECOMM: a rank did not come within LF_COMM_START seconds (50, and one more for
 * every 20 ranks). */
int lf_boot_fence(lf_boot *b, lf_err *err);
/* Copies what `rank` put under `key` before the last fence, and sets *len to its length. LF_EINVAL:
 * it is longer than cap bytes. LF_ENOENT: the rank put nothing under that key. */
int lf_boot_get(lf_boot *b, int rank, const char *key, void *data, size_t cap, size_t *len,
                lf_err *err);
/* Makes the launcher end all processes of the job, with an exit code and one line of text. Returns
 * when the launcher has received the request, or at once where there is no launcher. Any thread may
 * call it. */
void lf_boot_abort(lf_boot *b, int code, const char *text);

/* ---- communicators ---- */

enum lf_comm_type { LF_COMM_F32, LF_COMM_F64, LF_COMM_BF16, LF_COMM_I64 }; /* bf16 as uint16_t */
enum lf_comm_op { LF_COMM_SUM, LF_COMM_MAX }; /* MAX: a NaN on any rank gives NaN */
enum {
    LF_COMM_EXIT = 70,
    LF_COMM_MAX_TAG = 0xffff,
    LF_COMM_MAX_CHUNK = 0x3fff,
    LF_COMM_MAX_REQUESTS = 1024 /* of one communicator, started and not yet found done */
};

typedef struct lf_comm lf_comm;

enum lf_comm_what {
    LF_COMM_ALL_REDUCE,
    LF_COMM_REDUCE_SCATTER,
    LF_COMM_ALL_GATHER,
    LF_COMM_ALL_TO_ALL,
    LF_COMM_BROADCAST,
    LF_COMM_BARRIER,
    LF_COMM_SEND,
    LF_COMM_RECV
};

/* A call as data, so that a program may hold it. Members that a call does not use are not read.
 *
 *     ALL_REDUCE      n elements at out, in place: type, op
 *     REDUCE_SCATTER  in: chunks of all ranks one after the other, counts[r] elements each; out:
 *                     the sum of this rank's chunk; type, seed. out may be that chunk of `in`; the
 *                     other chunks of `in` do not change.
 *     ALL_GATHER      out: parts of all ranks one after the other, counts[r] bytes each; this
 *                     rank's own part is in place before the call
 *     ALL_TO_ALL      in: counts[r] bytes for rank r, out: from[r] bytes of rank r, one after the
 *                     other; from[r] here is counts[this rank] on rank r. in and out are apart.
 *     BROADCAST       n bytes at out, those of rank `peer`
 *     BARRIER         nothing
 *     SEND            n bytes at in, to rank `peer` with `tag`
 *     RECV            n bytes at out, from rank `peer` with `tag`
 */
struct lf_comm_call {
    enum lf_comm_what what;
    enum lf_comm_type type;
    enum lf_comm_op op;
    void *out;
    const void *in;
    /* elements of this rank's chunk that are added first, NULL: none; may be out */
    const void *seed;
    size_t n;
    const size_t *counts, *from; /* [size], borrowed until the request is done */
    int peer, tag;
    bool planned; /* a collective of a plan: counted apart, too (lf_comm_counted) */
};

/* A request. Zeroed, or found done: there is nothing to wait for. */
typedef struct lf_comm_req {
    struct lf_comm_flight *flight; /* owned by the communicator */
} lf_comm_req;

/* What a communicator has moved. A message counts when it is begun, where it is sent and where it
 * is received. NCCL cuts collectives itself: there `collective` has calls alone, and messages of
 * all-to-all. */
struct lf_comm_count {
    uint64_t calls, sent, received, bytes_sent, bytes_received;
};
struct lf_comm_counts {
    struct lf_comm_count message, collective; /* from rank to rank; the others */
    struct lf_comm_count planned;             /* of the collectives, those that say so */
};

/* A transport. */
struct lf_comm_ops {
    const char *name; /* "self", "ucx", "nccl" */
    /* Begins f->call. Sets f->done where it is done at once. */
    int (*start)(lf_comm *c, struct lf_comm_flight *f, lf_err *err);
    /* Looks whether f, which is not done, is done now, and sets f->done. wait: waits for that. */
    int (*test)(lf_comm *c, struct lf_comm_flight *f, bool wait, lf_err *err);
    /* Moves what can be moved for all communicators of the process. Has anything moved? NULL: the
     * transport moves bytes by itself. */
    bool (*progress)(lf_comm *c);
    /* Gives up f, which is not done. NULL: nothing is to be done. */
    void (*give_up)(lf_comm *c, struct lf_comm_flight *f);
    /* Begins or ends a group. NULL: groups mean nothing. */
    int (*group)(lf_comm *c, bool begin, lf_err *err);
    /* Makes the communicator of members[0..n-1], which are ranks of c; this rank is members[me]. No
     * other communicator of these ranks has this id. */
    lf_comm *(*split)(lf_comm *c, const int *members, int n, int me, uint32_t id, lf_err *err);
    void (*destroy)(lf_comm *c);
};

struct lf_comm_job; /* shared by all communicators of a process: start-up, watchdog */

/* The first member of every implementation. Callers read rank and size only. */
struct lf_comm {
    const struct lf_comm_ops *ops;
    int rank, size;
    int local_rank;          /* on this node; of the world */
    lf_comm *host;           /* the communicator for host memory: this one, except for nccl */
    struct lf_comm_job *job; /* NULL: one process */
    int *world;              /* [size] world rank of each member; NULL: the identity */
    uint32_t id;             /* 0: the world */
    uint64_t seq;            /* collectives so far */
    int groups;              /* begun and not ended */
    struct lf_comm_counts counts;
    uint64_t *with;            /* [2 * size] messages sent to and received from each; NULL: none */
    struct lf_comm_pool *pool; /* requests; NULL: none so far */
};

struct lf_comm_opts {
    /* NULL or "auto": self for one rank, ucx for more; "self", "ucx", "nccl" */
    const char *transport;
    double patience_s; /* 0: LF_COMM_PATIENCE (seconds, or off: no watchdog), else 40 */
    int device;        /* nccl: CUDA device of this rank */
    /* Called with the watchdog's line, on the watchdog's thread, before the process ends. NULL: the
     * line goes to standard error in one write. */
    void (*fatal)(void *arg, const char *text);
    void *fatal_arg;
};

/* Creates the communicator of all ranks of boot, which is borrowed until lf_comm_destroy. The
 * environment variable LF_COMM names the transport where opts does not. LF_ENOTSUP: the transport
 * is not built in, or its library is missing. */
lf_comm *lf_comm_create(lf_boot *boot, lf_err *err);
lf_comm *lf_comm_create_with(lf_boot *boot, const struct lf_comm_opts *opts, lf_err *err);
/* Destroy communicators made by lf_comm_split first. This waits for no other rank. Requests that
 * are not done are given up, which is for the end after a failure: their messages may be lost. */
void lf_comm_destroy(lf_comm *c);

/* Creates a communicator of the ranks of `host` for memory of GPUs, over NCCL. It is destroyed
 * before `host`. Its calls are queued on `stream`, a CUstream of GPU `device`, and the caller does
 * not wait for them. Collective. */
struct lf_comm_gpus {
    int device;
    void *stream;
    bool parts; /* lf_comm_on_gpus_part will be asked for */
    int blocks; /* of a GPU that a call may take, from NCCL 2.18 on; 0: NCCL chooses */
};
lf_comm *lf_comm_on_gpus(lf_comm *host, const struct lf_comm_gpus *o, lf_err *err);
/* One of the ranks of `host`, which are some of those of `whole`; every rank of `whole` makes the
 * part that it is in, at the same time. It has the stream of `whole`, and from NCCL 2.18 on its
 * buffers too (ncclCommSplit with splitShare): NCCL then runs the calls of both one behind the
 * other whatever their streams are. It is destroyed before `whole`. Collective over `whole`. */
lf_comm *lf_comm_on_gpus_part(lf_comm *whole, lf_comm *host, lf_err *err);
void lf_comm_on_gpus_destroy(lf_comm *c);
/* Destroys it after a failure of any rank: what is still queued ends without the other ranks. */
void lf_comm_on_gpus_abort(lf_comm *c);

/* Ranks that give the same color form a new communicator, ordered by (key, rank). A rank with color
 * < 0 takes part in the call and gets NULL without an error in err. */
lf_comm *lf_comm_split(lf_comm *c, int color, int key, lf_err *err);

/* ---- calls that wait ---- */

/* Begins a call and waits for it; what follows are short forms. */
int lf_comm_do(lf_comm *c, const struct lf_comm_call *call, lf_err *err);
/* Combines n elements over all ranks, in place. Afterwards every rank holds the same n elements. */
int lf_comm_all_reduce(lf_comm *c, void *data, size_t n, enum lf_comm_type t, enum lf_comm_op op,
                       lf_err *err);
/* `in` holds the chunks of all ranks one after the other; the chunk of rank r has counts[r]
 * elements. out gets the sum of this rank's chunk, to which seed is added first where it is not
 * NULL. out may be that chunk of `in`, and seed may be out. The other chunks of `in` do not change.
 * LF_ENOTSUP: a seed over NCCL. */
int lf_comm_reduce_scatter(lf_comm *c, void *out, const void *in, const size_t *counts,
                           enum lf_comm_type t, const void *seed, lf_err *err);
/* `all` holds the parts of all ranks one after the other; the part of rank r has bytes[r] bytes.
 * This rank's own part is in place before the call. */
int lf_comm_all_gather(lf_comm *c, void *all, const size_t *bytes, lf_err *err);
/* in holds to[r] bytes for rank r, out gets from[r] bytes of rank r, both one after the other. */
int lf_comm_all_to_all(lf_comm *c, void *out, const size_t *from, const void *in, const size_t *to,
                       lf_err *err);
int lf_comm_broadcast(lf_comm *c, void *data, size_t bytes, int root, lf_err *err);
int lf_comm_barrier(lf_comm *c, lf_err *err);
/* Point to point. Both sides give the same size, and 0 <= tag <= LF_COMM_MAX_TAG. Messages of one
 * pair of ranks and one tag keep their order. A send may wait for its recv, so nothing in a step
 * calls it. LF_EINVAL: the other rank is this rank. */
int lf_comm_send(lf_comm *c, const void *data, size_t bytes, int to, int tag, lf_err *err);
int lf_comm_recv(lf_comm *c, void *data, size_t bytes, int from, int tag, lf_err *err);

/* ---- calls that do not wait ---- */

/* Begins a call and sets *q. LF_EINVAL: LF_COMM_MAX_REQUESTS requests of this communicator are not
 * done; whoever begins so many waits for some first. Their records take about 200 KiB at most. A
 * short message (UCX: up to some 8 KiB) that is not asked for yet is kept by the receiver. */
int lf_comm_start(lf_comm *c, const struct lf_comm_call *call, lf_comm_req *q, lf_err *err);
int lf_comm_isend(lf_comm *c, const void *data, size_t bytes, int to, int tag, lf_comm_req *q,
                  lf_err *err);
int lf_comm_irecv(lf_comm *c, void *data, size_t bytes, int from, int tag, lf_comm_req *q,
                  lf_err *err);
/* Moves what can be moved and looks whether the request is done. Then *q is zeroed. */
int lf_comm_test(lf_comm_req *q, bool *done, lf_err *err);
/* Waits for one, or for all of n; they are done in any order. On success they are zeroed. */
int lf_comm_wait(lf_comm_req *q, lf_err *err);
int lf_comm_wait_all(lf_comm_req *q, size_t n, lf_err *err);

/* Moves what can be moved, for all communicators of this process. A failure shows in the request
 * that it concerns. */
void lf_comm_progress(lf_comm *c);
/* The same for the borders of tasks: returns at once when nothing is under way (so one rank pays
 * nothing) or when the last time was less than a millisecond ago. Callers come at least every
 * 5 ms. The thread that makes the calls above calls this too. */
void lf_comm_poll(lf_comm *c);

/* Between begin and end, calls of c that do not wait are begun together; NCCL wants that for sends
 * and receives in both directions. Requests are tested and waited for after the end, and calls that
 * wait are refused until then. Groups of several communicators may be nested. */
int lf_comm_group_begin(lf_comm *c, lf_err *err);
int lf_comm_group_end(lf_comm *c, lf_err *err);

/* The tag of a message of a pipeline: where it goes and of which chunk of the model it is. Which
 * micro-batch it is follows from the order of the messages of a pair. 0 <= chunk <=
 * LF_COMM_MAX_CHUNK. */
enum lf_comm_way { LF_COMM_PLAIN, LF_COMM_FORWARD, LF_COMM_BACKWARD };
int lf_comm_tag(enum lf_comm_way way, int chunk);

/* Up to so many bytes each rank of an all-reduce sends everything to every other, n (P - 1) bytes;
 * beyond, n bytes in parts of n / P and its own part of the sum, which lf_comm_part gives, to all.
 * A rank sends the others' chunks of a reduce-scatter and P - 1 times its part of an all-gather.
 * NCCL chooses for itself. */
enum { LF_COMM_SHORT = 16 << 10 };

/* What has been moved so far. */
void lf_comm_counted(const lf_comm *c, struct lf_comm_counts *out);
/* Seconds that this process has spent so far in calls that wait, over all of its communicators: for
 * other ranks to come, and for bytes to move. What moves beside computation does not count, nor
 * what NCCL does on a borrowed stream. 0 of one process alone, which may have no communicator. */
double lf_comm_waited_s(const lf_comm *c);

/* ---- made of others ---- */

/* One blob of any length from every rank. Blob r is data[offset[r]..offset[r + 1]). data and offset
 * are owned (lf_comm_blobs_fini). */
struct lf_comm_blobs {
    char *data;
    size_t *offset; /* [size + 1], owned */
};
int lf_comm_gather_blobs(lf_comm *c, const void *mine, size_t len, struct lf_comm_blobs *out,
                         lf_err *err);
void lf_comm_blobs_fini(struct lf_comm_blobs *b);

/* All ranks agree on the largest *value, for example whether to stop and at which step. It takes a
 * few microseconds on one node:
 *
 *     int64_t stop = lf_stop_requested();      signals reach ranks at different times
 *     rc = lf_comm_agree_max(c, &stop, err);   after this, all stop at this step or none does
 */
int lf_comm_agree_max(lf_comm *c, int64_t *value, lf_err *err);
/* Returns 0 when rc is 0 on every rank. Otherwise each rank gets a failure: its own, or LF_ECOMM
 * that names the lowest rank that failed. Call it after work in which one rank may fail alone, such
 * as opening a file, so that the others do not wait for it. */
int lf_comm_agree_ok(lf_comm *c, int rc, lf_err *err);

/* Like lf_comm_agree_ok, where a rank may also have been asked to stop (LF_EINTR): a failure of one
 * rank fails on all, and a stop of one stops all. c NULL means one process and returns rc. */
int lf_comm_agree_stop(lf_comm *c, int rc, lf_err *err);

/* Splits n elements evenly: elements [*first, *first + *count) belong to `rank` of `size`. The
 * first n % size parts are one longer. */
void lf_comm_part(size_t n, int size, int rank, size_t *first, size_t *count);

/* Tells the watchdog the step of this rank, for its line; then its micro-batches of that step, from
 * 1 on (0: none any more), and which pass of one begins. */
void lf_comm_step(lf_comm *c, int64_t step);
void lf_comm_pass(lf_comm *c, int32_t micro, bool backward);
/* Ends the whole job with this line and LF_COMM_EXIT: for a rank that has failed where the others
 * wait for it and no call is left in which they would hear of it. It returns where there is no
 * watchdog. */
void lf_comm_end_job(lf_comm *c, const char *text);
/* Announces work for which others may have to wait up to limit_s seconds (0: without limit); the
 * watchdog does not call it a hang. name NULL ends the phase. Phases do not nest: a new one
 * replaces the old one. name is copied (47 bytes). */
void lf_comm_phase(lf_comm *c, const char *name, double limit_s);

/* Host name and pid of a member of c; "" and -1 where a process is alone. The name is borrowed
 * until the communicator of all ranks is destroyed. */
const char *lf_comm_peer_host(const lf_comm *c, int rank);
int64_t lf_comm_peer_pid(const lf_comm *c, int rank);

#endif
