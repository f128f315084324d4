/* SPDX-License-Identifier: Apache-2.0
 *
 * The second stream of a GPU, for what ranks do with each other beside the computation. Streams
 * wait for each other by events, and the host never does.
 */
#include "engine/back/cuda_priv.h"

#include <stdlib.h>

#include "engine/base/mem.h"

#define B(b) ((struct lf_back_cuda *)(b))

static int record(struct lf_back_cuda *b, lf_cu_event e, lf_cu_stream s, lf_err *err)
{
    return lf_cuda_check(b, b->dev->cu.EventRecord(e, s), "recording an event", err);
}

static int wait_for(struct lf_back_cuda *b, lf_cu_stream later, lf_cu_event e, lf_err *err)
{
    return lf_cuda_check(b, b->dev->cu.StreamWaitEvent(later, e, 0), "an event between streams",
                         err);
}

int lf_cuda_comm_begin(lf_back *b, lf_err *err)
{
    const lf_cu_event e = B(b)->comm_event[0];
    const int rc = record(B(b), e, b->queue->stream, err);
    return rc != 0 ? rc : wait_for(B(b), b->comm_queue->stream, e, err);
}

int lf_cuda_comm_end(lf_back *b, lf_err *err)
{
    const lf_cu_event e = B(b)->comm_event[1];
    const int rc = record(B(b), e, b->comm_queue->stream, err);
    return rc != 0 ? rc : wait_for(B(b), b->queue->stream, e, err);
}

static int make_event(struct lf_back_cuda *b, lf_cu_event *e, lf_err *err)
{
    return lf_cuda_check(b, b->dev->cu.EventCreate(e, LF_CU_EVENT_DISABLE_TIMING), "an event", err);
}

int lf_cuda_comm_mark(lf_back *base, size_t i, lf_err *err)
{
    struct lf_back_cuda *b = B(base);
    int rc = 0;
    while (rc == 0 && b->n_marks <= i) {
        rc = lf_grow(&b->mark, &b->cap_marks, b->n_marks, sizeof *b->mark, err);
        if (rc == 0)
            rc = make_event(b, &b->mark[b->n_marks], err);
        b->n_marks += rc == 0;
    }
    return rc != 0 ? rc : record(b, b->mark[i], base->comm_queue->stream, err);
}

int lf_cuda_comm_wait(lf_back *b, size_t i, lf_err *err)
{
    return i < B(b)->n_marks ? wait_for(B(b), b->queue->stream, B(b)->mark[i], err)
                             : lf_fail(err, LF_EINVAL, "%s: there is no mark %zu", B(b)->device, i);
}

int lf_cuda_comm_create(struct lf_back_cuda *b, lf_err *err)
{
    b->base.comm_queue = lf_cu_queue_create(b->dev);
    if (!b->base.comm_queue)
        return lf_fail(err, LF_EDEVICE, "%s: no second stream", b->device);
    b->base.comm_stream = b->base.comm_queue->stream;
    b->base.comm_queue->wait_each = b->base.queue->wait_each;
    int rc = make_event(b, &b->comm_event[0], err);
    return rc != 0 ? rc : make_event(b, &b->comm_event[1], err);
}

void lf_cuda_comm_destroy(struct lf_back_cuda *b)
{
    for (int i = 0; i < 2; i++)
        if (b->comm_event[i])
            b->dev->cu.EventDestroy(b->comm_event[i]);
    for (size_t i = 0; i < b->n_marks; i++)
        b->dev->cu.EventDestroy(b->mark[i]);
    free(b->mark);
    lf_cu_queue_destroy(b->base.comm_queue);
}
