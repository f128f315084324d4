/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator of one rank: every collective is the identity.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/comm/comm_priv.h"

static int self_all_reduce(lf_comm *c, void *data, size_t n, enum lf_comm_type t,
                           enum lf_comm_op op, lf_err *err)
{
    (void)c;
    (void)data;
    (void)n;
    (void)t;
    (void)op;
    (void)err;
    return 0;
}

static int self_reduce_scatter(lf_comm *c, void *out, const void *in, const size_t *counts,
                               enum lf_comm_type t, lf_err *err)
{
    (void)c;
    (void)err;
    if (counts[0] && out != in)
        memcpy(out, in, counts[0] * lf_comm_type_bytes(t));
    return 0;
}

static int self_all_gather(lf_comm *c, void *all, const size_t *bytes, lf_err *err)
{
    (void)c;
    (void)all;
    (void)bytes;
    (void)err;
    return 0;
}

static int self_broadcast(lf_comm *c, void *data, size_t bytes, int root, lf_err *err)
{
    (void)c;
    (void)data;
    (void)bytes;
    (void)root;
    (void)err;
    return 0;
}

static int self_barrier(lf_comm *c, lf_err *err)
{
    (void)c;
    (void)err;
    return 0;
}

/* Never called: comm.c refuses messages to oneself. */
static int self_send(lf_comm *c, const void *data, size_t bytes, int to, int tag, lf_err *err)
{
    (void)c;
    (void)data;
    (void)bytes;
    (void)tag;
    return lf_fail(err, LF_EINVAL, "there is no rank %d to send to", to);
}

static int self_recv(lf_comm *c, void *data, size_t bytes, int from, int tag, lf_err *err)
{
    (void)c;
    (void)data;
    (void)bytes;
    (void)tag;
    return lf_fail(err, LF_EINVAL, "there is no rank %d to receive from", from);
}

static lf_comm *self_split(lf_comm *c, const int *members, int n, int me, uint32_t id, lf_err *err)
{
    (void)c;
    (void)members;
    (void)n;
    (void)me;
    (void)id;
    return lf_comm_self_create(err);
}

static void self_destroy(lf_comm *c)
{
    free(c);
}

static const struct lf_comm_ops self_ops = {
    "self",       self_all_reduce, self_reduce_scatter, self_all_gather, self_broadcast,
    self_barrier, self_send,       self_recv,           self_split,      self_destroy};

lf_comm *lf_comm_self_create(lf_err *err)
{
    lf_comm *c = lf_calloc(1, sizeof *c, err);
    if (!c)
        return NULL;
    c->ops = &self_ops;
    c->size = 1;
    c->host = c;
    return c;
}
