/* SPDX-License-Identifier: Apache-2.0
 *
 * The ways in which memory of a backend goes from rank to rank: devcomm.c has that of memory which
 * the host sees and chooses one, devcomm_gpus.c NCCL, devcomm_through.c memory of the host;
 * devcomm_pipe.c has messages of pipelines over NCCL.
 */
#ifndef LF_TRAIN_DEVCOMM_PRIV_H
#define LF_TRAIN_DEVCOMM_PRIV_H

#include "engine/train/devcomm.h"

/* Of struct lf_devcomm as the executor's user. */
extern const struct lf_exec_comm lf_devcomm_gpus, lf_devcomm_through;

/* For `finish` where the executor's marks say when, or what was begun has ended. */
int lf_devcomm_finished(void *user, struct lf_exec_req *q, lf_err *err);

/* Of the host's memory: what ranks that divide experts tell each other (exec.h). */
int lf_devcomm_experts_gather(void *user, void *all, size_t bytes, lf_err *err);

/* Memory of the host: sums of a tied tensor's gradients (exec.h). */
int lf_devcomm_tied_begin(void *user, float *data, size_t n, lf_err *err);
int lf_devcomm_tied_sum(void *user, float *data, size_t n, lf_err *err);
int lf_devcomm_tied_end(void *user, lf_err *err);

/* Pipelines, whatever the memory is: the first is of memory that the host does not see. */
int lf_devcomm_through_tied(void *user, float *data, size_t n, lf_err *err);
int lf_devcomm_add_layers(void *user, double *sums, size_t n, lf_err *err);

/* Blocks of a GPU that each channel with a neighbour takes: they are away from the computation for
 * as long as a receive waits, and four move some 80 GB/s over NVLink. */
enum { LF_DEVCOMM_BLOCKS = 4 };

/* Channels of this rank with its neighbours on the pipeline axis. Collective over that. */
int lf_devcomm_open_pairs(struct lf_devcomm *d, bool ring, lf_err *err);
void lf_devcomm_close_pairs(struct lf_devcomm *d, bool failed);

/* The same number for each rank of c, which is `tensor` or `context`. */
const size_t *lf_devcomm_even(const struct lf_devcomm *d, const lf_comm *c, size_t n);

/* Copies the bytes of rank `root` of c to every rank of c. */
int lf_devcomm_through_broadcast(const struct lf_devcomm *d, lf_comm *c, void *data, size_t bytes,
                                 int root, lf_err *err);

/* The ranks among which this one's state is divided. */
static inline lf_comm *lf_devcomm_inner(const struct lf_devcomm *d)
{
    return d->inner ? d->inner : d->comm;
}

#endif
