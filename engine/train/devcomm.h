/* SPDX-License-Identifier: Apache-2.0
 *
 * A backend's memory between ranks: sums of gradients, weights to begin with. The host's memory
 * goes through the ranks' own transport; a GPU's by NCCL, queued beside the computation, or with
 * LF_COMM=ucx through memory of the host, piece by piece, waited for.
 */
#ifndef LF_TRAIN_DEVCOMM_H
#define LF_TRAIN_DEVCOMM_H

#include "engine/back/back.h"
#include "engine/comm/comm.h"
#include "engine/graph/exec.h"

/* Zero: of one rank. Its address must stay the same while executors sum with it. */
struct lf_devcomm {
    lf_comm *comm; /* borrowed */
    lf_back *back; /* borrowed */
    lf_comm *gpus; /* NCCL; NULL: memory that the host sees, or through it */
};

/* Collective. LF_ENOTSUP: a GPU and no NCCL; the message says what does without. */
int lf_devcomm_open(struct lf_devcomm *d, lf_comm *comm, lf_back *back, lf_err *err);
/* failed: of any rank; what is still queued ends, whatever others did. */
void lf_devcomm_close(struct lf_devcomm *d, bool failed);

/* The executor's gradients are summed over the ranks from now on, with NCCL beside its backward
 * pass. */
void lf_devcomm_connect(struct lf_devcomm *d, lf_exec *ex);
/* Rank 0's bytes on every rank. Collective. */
int lf_devcomm_broadcast(const struct lf_devcomm *d, void *data, size_t bytes, lf_err *err);

/* Around collectives on `gpus`: behind the computation so far, and before what follows it. Nothing
 * without gpus. end takes what went before and hands on its failure. */
int lf_devcomm_begin(const struct lf_devcomm *d, lf_err *err);
int lf_devcomm_end(const struct lf_devcomm *d, int rc, lf_err *err);

#endif
