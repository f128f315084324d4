/* SPDX-License-Identifier: Apache-2.0
 *
 * Transfers of a backend's memory between ranks: sums of gradients, the first weights, what goes
 * from rank to rank of a pipeline. Memory of the host uses the transport of the ranks. Memory of a
 * GPU uses NCCL, queued beside the computation; or, with LF_COMM=ucx, it goes through memory of the
 * host, and the caller waits.
 */
#ifndef LF_TRAIN_DEVCOMM_H
#define LF_TRAIN_DEVCOMM_H

#include "engine/back/back.h"
#include "engine/comm/comm.h"
#include "engine/graph/exec.h"
#include "engine/train/axes.h"
#include "engine/train/zero.h"

/* Messages of GPUs from rank to rank of a pipeline (devcomm_pipe.c). */
struct lf_devcomm_channel {
    lf_comm *gpus; /* NCCL of the two ranks, on a stream of its own */
    size_t lane;   /* of the backend */
};
struct lf_devcomm_pair {
    lf_comm *host;                        /* the two ranks; owned */
    int peer;                             /* the other one, by pipeline coordinate */
    struct lf_devcomm_channel channel[2]; /* from it, to it */
};

/* The sum of a tied tensor's gradients, which goes in pieces between the first and the last rank of
 * the pipeline axis (devcomm_tied.c). */
enum { LF_DEVCOMM_PIECES = 256 };
struct lf_devcomm_tied {
    float *room; /* of the first rank, for what the last one gives; borrowed */
    lf_comm_req req[LF_DEVCOMM_PIECES];
    bool begun;
};

/* Zeroed for one rank. Its address must stay the same while executors sum with it. */
struct lf_devcomm {
    lf_comm *comm;    /* the sharers (axes.h); borrowed */
    lf_comm *tensor;  /* those of the tensor axis; NULL: there is none; borrowed */
    lf_comm *context; /* likewise of the context axis */
    /* those with other layers, and of these the first and the last alone; likewise */
    lf_comm *pipeline, *ends;
    lf_back *back; /* borrowed */
    lf_comm *gpus; /* NCCL; NULL: the memory is visible to the host or goes through the host */
    /* with groups: the ranks of this one's, and those with the same place in all groups; else NULL.
     * The last two have NCCL for them. */
    lf_comm *inner, *outer, *gpus_inner, *gpus_outer;
    lf_comm *gpus_tensor, *gpus_context; /* NCCL for `tensor` and for `context`, or NULL */
    lf_comm *gpus_experts, *gpus_same;   /* for `experts`, and for `same` where these are several */
    struct lf_devcomm_pair pair[2];
    struct lf_devcomm_tied tied;
    int n_pairs;    /* 0: messages of a pipeline go through memory of the host */
    float *scratch; /* lf_exec_scratch of the executor that was connected last */
    size_t stride;
    lf_comm_req *req;        /* of a GPU: [2 ranks], owned */
    size_t *counts;          /* of a GPU: [ranks], owned, zeros */
    size_t *even;            /* [ranks of the largest axis], owned: what each has of a call */
    size_t *keys;            /* [ranks of context], owned: the same of a gather that goes on */
    lf_comm *experts, *same; /* axes.h; NULL: every rank has all experts; borrowed */
};

/* An estimate of the memory of a GPU that NCCL takes for what rank w opens, with messages of a
 * pipeline that go round from the last rank to the first, or not; 0 where memory goes through the
 * host. NCCL allocates when two ranks are first connected, and asks nobody. */
double lf_devcomm_gpu_bytes(const struct lf_train_who *w, const struct lf_zero *z, bool ring);

/* Communicators of the ranks that share a batch, and of those that divide matrices, rows, layers or
 * experts (axes.h). */
struct lf_devcomm_axes {
    /* borrowed; NULL but data, the sharers: there is no such axis */
    lf_comm *data, *context, *tensor, *pipeline, *ends, *experts, *same;
    float *tied; /* the first of `ends`: room for a tied tensor's gradients; borrowed; NULL: none */
    bool ring;   /* of a pipeline: the last rank sends to the first, too */
    bool groups; /* lf_devcomm_groups follows */
};
/* Does memory of GPUs go through memory of the host (LF_COMM=ucx)? */
bool lf_devcomm_through_host(void);
/* Collective. LF_ENOTSUP: there is a GPU and no NCCL; the message names the alternative. */
int lf_devcomm_open(struct lf_devcomm *d, const struct lf_devcomm_axes *axes, lf_back *back,
                    lf_err *err);
/* Collective: groups of `ranks` successive ranks divide the state among themselves. */
int lf_devcomm_groups(struct lf_devcomm *d, int ranks, lf_err *err);
/* failed: some rank has failed; what is still queued ends without the other ranks. */
void lf_devcomm_close(struct lf_devcomm *d, bool failed);

/* Makes the executor sum its gradients over the ranks, with NCCL during its backward pass. One plan
 * with zero per devcomm. */
void lf_devcomm_connect(struct lf_devcomm *d, lf_exec *ex);
/* What was moved so far among the sharers; with groups in this one's, and over them; among those
 * of the tensor and of the context axis; among those that divide experts, and those with the same
 * ones. */
enum { LF_DEVCOMM_COUNTED = 7 };
void lf_devcomm_counted(const struct lf_devcomm *d, struct lf_comm_counts out[LF_DEVCOMM_COUNTED]);
/* Copies the bytes of rank 0 to every rank. Collective. */
int lf_devcomm_broadcast(const struct lf_devcomm *d, void *data, size_t bytes, lf_err *err);

/* These enclose collectives on `gpus`, which then run behind the computation so far and before the
 * computation that follows. They do nothing without gpus. end takes the rc of the collectives and
 * returns their failure. */
int lf_devcomm_begin(const struct lf_devcomm *d, lf_err *err);
int lf_devcomm_end(const struct lf_devcomm *d, int rc, lf_err *err);

/* ---- with n_pairs: messages between ranks of a pipeline ---- */

/* All messages from one rank to another are begun in one order on both. */
struct lf_devcomm_message {
    bool send;
    int peer;     /* a neighbour's pipeline coordinate */
    void *data;   /* of the device */
    size_t bytes; /* as many on both sides */
    int tag;      /* for the watchdog */
    size_t mark;  /* a number that no message has which is under way */
};
/* Begins a message behind the computation so far. No host waits in this, nor in end_message, which
 * makes the computation that follows wait for it. */
int lf_devcomm_begin_message(const struct lf_devcomm *d, const struct lf_devcomm_message *m,
                             lf_err *err);
int lf_devcomm_end_message(const struct lf_devcomm *d, size_t mark, lf_err *err);

#endif
