/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator of one rank: a collective is the identity or a copy.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/comm/msg.h"

static void copy(void *out, const void *in, size_t bytes)
{
    if (bytes && out != in)
        memcpy(out, in, bytes);
}

/* Messages to oneself were refused before. */
static int self_start(lf_comm *c, struct lf_comm_flight *f, lf_err *err)
{
    const struct lf_comm_call *a = &f->call;
    (void)c;
    (void)err;
    if (a->what == LF_COMM_REDUCE_SCATTER && a->seed)
        lf_reduce(a->out, (const void *[]){a->seed, a->in}, 2, a->counts[0], a->type, LF_COMM_SUM);
    else if (a->what == LF_COMM_REDUCE_SCATTER)
        copy(a->out, a->in, a->counts[0] * lf_comm_type_bytes(a->type));
    else if (a->what == LF_COMM_ALL_TO_ALL)
        copy(a->out, a->in, a->counts[0]);
    f->done = true;
    return 0;
}

static int self_test(lf_comm *c, struct lf_comm_flight *f, bool wait, lf_err *err)
{
    (void)c;
    (void)f;
    (void)wait;
    (void)err;
    return 0; /* done since it began */
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

static const struct lf_comm_ops self_ops = {.name = "self",
                                            .start = self_start,
                                            .test = self_test,
                                            .split = self_split,
                                            .destroy = self_destroy};

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
