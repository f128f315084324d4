/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator of one rank: every collective is the identity.
 */
#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/comm/comm.h"

static int self_f32(lf_comm *c, float *data, size_t n, lf_err *err)
{
    (void)c;
    (void)data;
    (void)n;
    (void)err;
    return 0;
}

static int self_f64(lf_comm *c, double *data, size_t n, lf_err *err)
{
    (void)c;
    (void)data;
    (void)n;
    (void)err;
    return 0;
}

static int self_broadcast(lf_comm *c, void *data, size_t bytes, int root, lf_err *err)
{
    (void)c;
    (void)data;
    (void)bytes;
    return root == 0 ? 0 : lf_fail(err, LF_EINVAL, "broadcast from rank %d of one", root);
}

static int self_barrier(lf_comm *c, lf_err *err)
{
    (void)c;
    (void)err;
    return 0;
}

static void self_destroy(lf_comm *c)
{
    free(c);
}

static const struct lf_comm_ops self_ops = {"self", self_f32, self_f64, self_broadcast, self_barrier, self_destroy};

lf_comm *lf_comm_create(lf_boot *boot, lf_err *err)
{
    const struct lf_boot_info *i = lf_boot_info(boot);
    if (i->size != 1) {
        lf_fail(err, LF_ENOTSUP, "%d ranks were started, but this version runs on one; ask for one task", i->size);
        return NULL;
    }
    lf_comm *c = lf_calloc(1, sizeof *c, err);
    if (!c)
        return NULL;
    c->ops = &self_ops;
    c->size = 1;
    return c;
}

void lf_comm_destroy(lf_comm *c)
{
    if (c)
        c->ops->destroy(c);
}
