/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies between host and GPU through pinned memory: only from there is a copy asynchronous, and
 * only so is the caller's buffer free when the call returns.
 */
#include <string.h>

#include "engine/back/cuda_priv.h"

#define B(b) ((struct lf_back_cuda *)(b))

static lf_cu_ptr device_ptr(const void *p)
{
    return (lf_cu_ptr)(uintptr_t)p;
}

int lf_cuda_ring_create(struct lf_back_cuda *b, struct lf_cuda_ring *r, size_t part_bytes,
                        lf_err *err)
{
    void *m = NULL;
    int rc = lf_cuda_check(b, b->dev->cu.MemHostAlloc(&m, part_bytes * LF_CUDA_PARTS, 0),
                           "pinned memory for copies", err);
    r->memory = m;
    r->part_bytes = part_bytes;
    for (int i = 0; i < LF_CUDA_PARTS && rc == 0; i++)
        rc = lf_cuda_check(b, b->dev->cu.EventCreate(&r->event[i], LF_CU_EVENT_DISABLE_TIMING),
                           "an event", err);
    return rc;
}

void lf_cuda_ring_destroy(struct lf_back_cuda *b, struct lf_cuda_ring *r)
{
    for (int i = 0; i < LF_CUDA_PARTS; i++)
        if (r->event[i])
            b->dev->cu.EventDestroy(r->event[i]);
    if (r->memory)
        b->dev->cu.MemFreeHost(r->memory);
}

/* Close the part in use and enter the next, waiting for the copies that used it last. */
static int next_part(struct lf_back_cuda *b, struct lf_cuda_ring *r, lf_err *err)
{
    const struct lf_cu *cu = &b->dev->cu;
    int rc = lf_cuda_check(b, cu->EventRecord(r->event[r->part], b->base.queue->stream),
                           "recording an event", err);
    if (rc != 0)
        return rc;
    r->busy[r->part] = true;
    r->part = (r->part + 1) % LF_CUDA_PARTS;
    r->used = 0;
    if (r->busy[r->part])
        rc = lf_cuda_check(b, cu->EventSynchronize(r->event[r->part]), "waiting for a copy", err);
    r->busy[r->part] = false;
    return rc;
}

int lf_cuda_copy_in(lf_back *b, void *dst, const void *src, size_t bytes, lf_err *err)
{
    struct lf_cuda_ring *r = &B(b)->in;
    const char *from = src;
    char *to = dst;
    while (bytes) {
        if (r->used == r->part_bytes) {
            int rc = next_part(B(b), r, err);
            if (rc != 0)
                return rc;
        }
        const size_t room = r->part_bytes - r->used, n = bytes < room ? bytes : room;
        char *at = r->memory + (size_t)r->part * r->part_bytes + r->used;
        memcpy(at, from, n);
        int rc = lf_cuda_check(
            B(b), B(b)->dev->cu.MemcpyHtoDAsync(device_ptr(to), at, n, b->queue->stream),
            "copying to the GPU", err);
        if (rc != 0)
            return rc;
        r->used += n;
        from += n;
        to += n;
        bytes -= n;
    }
    return 0;
}

/* Pieces are under way in all parts at once; each is handed over when its event has happened. */
int lf_cuda_copy_out(lf_back *b, void *dst, const void *src, size_t bytes, lf_err *err)
{
    struct lf_cuda_ring *r = &B(b)->out;
    const struct lf_cu *cu = &B(b)->dev->cu;
    const size_t piece = r->part_bytes, n = (bytes + piece - 1) / piece;
    for (size_t i = 0; i < n + LF_CUDA_PARTS; i++) {
        const int part = (int)(i % LF_CUDA_PARTS);
        char *at = r->memory + (size_t)part * piece;
        int rc = 0;
        if (i >= LF_CUDA_PARTS && i - LF_CUDA_PARTS < n) {
            const size_t off = (i - LF_CUDA_PARTS) * piece;
            rc = lf_cuda_check(B(b), cu->EventSynchronize(r->event[part]), "waiting for a copy",
                               err);
            if (rc == 0)
                memcpy((char *)dst + off, at, bytes - off < piece ? bytes - off : piece);
        }
        if (rc == 0 && i < n) {
            const size_t off = i * piece, len = bytes - off < piece ? bytes - off : piece;
            rc = lf_cuda_check(
                B(b),
                cu->MemcpyDtoHAsync(at, device_ptr((const char *)src + off), len, b->queue->stream),
                "copying from the GPU", err);
            if (rc == 0)
                rc = lf_cuda_check(B(b), cu->EventRecord(r->event[part], b->queue->stream),
                                   "recording an event", err);
        }
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* ---- small results that are read later ---- */

int lf_cuda_late_create(struct lf_back_cuda *b, lf_err *err)
{
    void *m = NULL;
    int rc = lf_cuda_check(
        b, b->dev->cu.MemHostAlloc(&m, (size_t)LF_BACK_LATE_SLOTS * LF_BACK_LATE_BYTES, 0),
        "pinned memory for results", err);
    b->late = m;
    for (int i = 0; i < LF_BACK_LATE_SLOTS && rc == 0; i++)
        rc = lf_cuda_check(b, b->dev->cu.EventCreate(&b->late_event[i], LF_CU_EVENT_DISABLE_TIMING),
                           "an event", err);
    return rc;
}

void lf_cuda_late_destroy(struct lf_back_cuda *b)
{
    for (int i = 0; i < LF_BACK_LATE_SLOTS; i++)
        if (b->late_event[i])
            b->dev->cu.EventDestroy(b->late_event[i]);
    if (b->late)
        b->dev->cu.MemFreeHost(b->late);
}

int lf_cuda_late_begin(lf_back *b, int slot, const void *src, size_t bytes, lf_err *err)
{
    struct lf_back_cuda *c = B(b);
    if (slot < 0 || slot >= LF_BACK_LATE_SLOTS || bytes > LF_BACK_LATE_BYTES || c->late_busy[slot])
        return lf_fail(err, LF_EINVAL, "a late copy of %zu bytes in slot %d", bytes, slot);
    char *at = c->late + (size_t)slot * LF_BACK_LATE_BYTES;
    int rc =
        lf_cuda_check(c, c->dev->cu.MemcpyDtoHAsync(at, device_ptr(src), bytes, b->queue->stream),
                      "copying from the GPU", err);
    if (rc == 0)
        rc = lf_cuda_check(c, c->dev->cu.EventRecord(c->late_event[slot], b->queue->stream),
                           "recording an event", err);
    c->late_busy[slot] = rc == 0;
    return rc;
}

int lf_cuda_late_end(lf_back *b, int slot, void *dst, size_t bytes, lf_err *err)
{
    struct lf_back_cuda *c = B(b);
    if (slot < 0 || slot >= LF_BACK_LATE_SLOTS || bytes > LF_BACK_LATE_BYTES || !c->late_busy[slot])
        return lf_fail(err, LF_EINVAL, "no late copy in slot %d", slot);
    c->late_busy[slot] = false;
    int rc = lf_cuda_check(c, c->dev->cu.EventSynchronize(c->late_event[slot]),
                           "waiting for a result", err);
    if (rc == 0)
        memcpy(dst, c->late + (size_t)slot * LF_BACK_LATE_BYTES, bytes);
    return rc;
}
