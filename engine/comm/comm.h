/* SPDX-License-Identifier: Apache-2.0
 *
 * Who this process is among the ranks of its stage, how ranks exchange their addresses, and collectives over them.
 *
 * A rank learns rank, size and local rank from PMIx when a PMIx server started it (PMIX_NAMESPACE is set: srun
 * --mpi=pmix, prterun or our own launcher); otherwise it is alone. put, fence and get carry small blobs (NCCL ids, UCX
 * worker addresses) between ranks at start-up only. Collectives of one rank are the identity; a transport for more is a
 * further implementation of struct lf_comm_ops, and until one is built in, more than one rank is LF_ENOTSUP, named when
 * the communicator is made.
 */
#ifndef LF_COMM_COMM_H
#define LF_COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

typedef struct lf_boot lf_boot;

struct lf_boot_info {
    int rank, size;             /* 0 <= rank < size */
    int local_rank, local_size; /* on this node */
    const char *how;            /* "single" or "pmix" */
};

/* Join the job. LF_ECOMM when PMIx is announced but fails, LF_ENOTSUP when it is announced and not built in. */
lf_boot *lf_boot_create(lf_err *err);
void lf_boot_destroy(lf_boot *b);
const struct lf_boot_info *lf_boot_info(const lf_boot *b);
/* Publish a blob under a key (visible to others after the fence); every rank passes the fence together; get copies what
 * `rank` put, at most cap bytes, *len set to its length (LF_EINVAL when it is longer than cap, LF_ENOENT when absent).
 */
int lf_boot_put(lf_boot *b, const char *key, const void *data, size_t len, lf_err *err);
int lf_boot_fence(lf_boot *b, lf_err *err);
int lf_boot_get(lf_boot *b, int rank, const char *key, void *data, size_t cap, size_t *len, lf_err *err);

typedef struct lf_comm lf_comm;

struct lf_comm_ops {
    const char *name;                                                          /* "self" */
    int (*all_reduce_sum_f32)(lf_comm *c, float *data, size_t n, lf_err *err); /* in place, fixed order over ranks */
    int (*all_reduce_sum_f64)(lf_comm *c, double *data, size_t n, lf_err *err);
    int (*broadcast)(lf_comm *c, void *data, size_t bytes, int root, lf_err *err);
    int (*barrier)(lf_comm *c, lf_err *err);
    void (*destroy)(lf_comm *c);
};

struct lf_comm { /* first member of every implementation */
    const struct lf_comm_ops *ops;
    int rank, size;
};

/* Over all ranks of boot, which is borrowed until destroy. */
lf_comm *lf_comm_create(lf_boot *boot, lf_err *err);
void lf_comm_destroy(lf_comm *c);

#endif
