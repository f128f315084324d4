/* SPDX-License-Identifier: Apache-2.0
 *
 * The streams of a GPU beside the main one, for what ranks do with each other beside the
 * computation: the second stream, and lanes. Streams wait for each other by events, and the host
 * never does.
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

static int make_event(struct lf_back_cuda *b, lf_cu_event *e, lf_err *err)
{
    return lf_cuda_check(b, b->dev->cu.EventCreate(e, LF_CU_EVENT_DISABLE_TIMING), "an event", err);
}

/* Mark i stands behind what is on s. */
static int set_mark(struct lf_back_cuda *b, struct lf_cuda_marks *m, size_t i, lf_cu_stream s,
                    lf_err *err)
{
    int rc = 0;
    while (rc == 0 && m->n <= i) {
        rc = lf_grow(&m->event, &m->cap, m->n, sizeof *m->event, err);
        if (rc == 0)
            rc = make_event(b, &m->event[m->n], err);
        m->n += rc == 0;
    }
    return rc != 0 ? rc : record(b, m->event[i], s, err);
}

static int wait_mark(struct lf_back_cuda *b, const struct lf_cuda_marks *m, size_t i, lf_err *err)
{
    return i < m->n ? wait_for(b, b->base.queue->stream, m->event[i], err)
                    : lf_fail(err, LF_EINVAL, "%s: there is no mark %zu", b->device, i);
}

static void free_marks(struct lf_back_cuda *b, struct lf_cuda_marks *m)
{
    for (size_t i = 0; i < m->n; i++)
        b->dev->cu.EventDestroy(m->event[i]);
    free(m->event);
    *m = (struct lf_cuda_marks){0};
}

/* ---- the second stream ---- */

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

int lf_cuda_comm_mark(lf_back *b, size_t i, lf_err *err)
{
    return set_mark(B(b), &B(b)->mark, i, b->comm_queue->stream, err);
}

int lf_cuda_comm_wait(lf_back *b, size_t i, lf_err *err)
{
    return wait_mark(B(b), &B(b)->mark, i, err);
}

/* ---- lanes ---- */

void *lf_cuda_lane_stream(lf_back *base, size_t lane, lf_err *err)
{
    struct lf_back_cuda *b = B(base);
    if (lane >= LF_BACK_LANES) {
        lf_fail(err, LF_EINVAL, "%s: there is no lane %zu", b->device, lane);
        return NULL;
    }
    if (!b->lane_event && make_event(b, &b->lane_event, err))
        return NULL;
    if (!b->lane[lane] &&
        lf_cuda_check(b, b->dev->cu.StreamCreate(&b->lane[lane], LF_CU_STREAM_NON_BLOCKING),
                      "a stream for messages", err))
        b->lane[lane] = NULL;
    return b->lane[lane];
}

int lf_cuda_lane_begin(lf_back *b, size_t lane, lf_err *err)
{
    const lf_cu_stream s = lf_cuda_lane_stream(b, lane, err);
    const int rc = s ? record(B(b), B(b)->lane_event, b->queue->stream, err) : LF_EDEVICE;
    return rc != 0 ? rc : wait_for(B(b), s, B(b)->lane_event, err);
}

int lf_cuda_lane_mark(lf_back *b, size_t lane, size_t i, lf_err *err)
{
    const lf_cu_stream s = lf_cuda_lane_stream(b, lane, err);
    return s ? set_mark(B(b), &B(b)->lane_mark, i, s, err) : LF_EDEVICE;
}

int lf_cuda_lane_wait(lf_back *b, size_t i, lf_err *err)
{
    return wait_mark(B(b), &B(b)->lane_mark, i, err);
}

int lf_cuda_lane_sync(struct lf_back_cuda *b, lf_err *err)
{
    int rc = 0;
    for (int i = 0; i < LF_BACK_LANES && rc == 0; i++)
        if (b->lane[i])
            rc = lf_cuda_check(b, b->dev->cu.StreamSynchronize(b->lane[i]), "waiting for messages",
                               err);
    return rc;
}

/* ---- making and ending ---- */

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
    for (int i = 0; i < LF_BACK_LANES; i++)
        if (b->lane[i])
            b->dev->cu.StreamDestroy(b->lane[i]);
    if (b->lane_event)
        b->dev->cu.EventDestroy(b->lane_event);
    free_marks(b, &b->mark);
    free_marks(b, &b->lane_mark);
    lf_cu_queue_destroy(b->base.comm_queue);
}
