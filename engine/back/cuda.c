/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA backend over the thin driver layer of kernels/cuda: one GPU, a stream for kernels and
 * copies, one for what ranks do with each other (cuda_comm.c).
 */
#include "engine/back/cuda_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "kernels/cuda/attn_source.h"
#include "kernels/cuda/gemm_blaslt.h"
#include "kernels/cuda/gemm_form.h"

enum { IN_PART = 8 << 20, OUT_PART = 4 << 20 };
#define B(b) ((struct lf_back_cuda *)(b))

static const char *result_name(const struct lf_back_cuda *b, int result)
{
    const char *name = NULL;
    b->dev->cu.GetErrorName(result, &name);
    return name ? name : "unknown error";
}

int lf_cuda_check(struct lf_back_cuda *b, int result, const char *what, lf_err *err)
{
    if (!result)
        return 0;
    return lf_fail(
        err, result == LF_CU_OUT_OF_MEMORY ? LF_ENOMEM : LF_EDEVICE, "%s: %s: %s%s", b->device,
        what, result_name(b, result),
        result >= LF_CU_ILLEGAL_ADDRESS && result <= LF_CU_LAUNCH_FAILED
            ? " (a kernel failed before this; LF_CUDA_SYNC=1 in the environment names it)"
            : "");
}

static void cuda_failure(const lf_back *base, char *text, size_t cap)
{
    const struct lf_back_cuda *b = (const struct lf_back_cuda *)base;
    const lf_queue *q = base->queue;
    if (base->comm_queue && base->comm_queue->status && !q->status)
        q = base->comm_queue;
    if (q->status)
        snprintf(text, cap, "%s: %s: %s", b->device, q->what, result_name(b, q->status));
    else
        snprintf(text, cap, "%s", b->device);
}

/* ---- memory ---- */

static int cuda_fill(lf_back *b, void *dst, int byte, size_t bytes, lf_err *err)
{
    const struct lf_cu *cu = &B(b)->dev->cu;
    if (!bytes)
        return 0;
    return lf_cuda_check(
        B(b),
        cu->MemsetD8Async((lf_cu_ptr)(uintptr_t)dst, (unsigned char)byte, bytes, b->queue->stream),
        "filling memory", err);
}

static int cuda_move(lf_back *b, void *dst, const void *src, size_t bytes, lf_err *err)
{
    const struct lf_cu *cu = &B(b)->dev->cu;
    return bytes ? lf_cuda_check(B(b),
                                 cu->MemcpyDtoDAsync((lf_cu_ptr)(uintptr_t)dst,
                                                     (lf_cu_ptr)(uintptr_t)src, bytes,
                                                     b->queue->stream),
                                 "a copy on the device", err)
                 : 0;
}

static int cuda_sync(lf_back *b, lf_err *err)
{
    const struct lf_cu *cu = &B(b)->dev->cu;
    const char *what = "waiting for the GPU";
    int rc = lf_cuda_check(B(b), cu->StreamSynchronize(b->queue->stream), what, err);
    if (rc == 0 && b->comm_queue)
        rc = lf_cuda_check(B(b), cu->StreamSynchronize(b->comm_queue->stream), what, err);
    return rc != 0 ? rc : lf_cuda_lane_sync(B(b), err);
}

static void *cuda_alloc(lf_back *b, size_t bytes, lf_err *err)
{
    const struct lf_cu *cu = &B(b)->dev->cu;
    size_t unused = 0, total = 0;
    lf_cu_ptr p = 0;
    int result = cu->MemAlloc(&p, bytes ? bytes : 1);
    if (result == LF_CU_OUT_OF_MEMORY && !cu->MemGetInfo(&unused, &total)) {
        lf_fail(err, LF_ENOMEM,
                "%s: the plan needs %.2f GiB of its memory, %.2f of %.2f GiB are free",
                B(b)->device, (double)bytes / (1 << 30), (double)unused / (1 << 30),
                (double)total / (1 << 30));
        return NULL;
    }
    if (lf_cuda_check(B(b), result, "memory", err))
        return NULL;
    void *m = (void *)(uintptr_t)p;
    if (!cuda_fill(b, m, 0, bytes, err))
        return m;
    cu->MemFree(p);
    return NULL;
}

static void cuda_release(lf_back *b, void *p, size_t bytes)
{
    (void)bytes;
    if (!p)
        return;
    cuda_sync(b, NULL); /* what is queued may still use it */
    B(b)->dev->cu.MemFree((lf_cu_ptr)(uintptr_t)p);
}

/* Pinned memory is mapped, and has one address on both sides (unified addressing). */
static void *cuda_alloc_host(lf_back *b, size_t bytes, lf_err *err)
{
    void *m = NULL;
    if (lf_cuda_check(B(b), B(b)->dev->cu.MemHostAlloc(&m, bytes ? bytes : 1, 0),
                      "pinned memory of the host", err))
        return NULL;
    memset(m, 0, bytes);
    return m;
}

static void cuda_release_host(lf_back *b, void *p, size_t bytes)
{
    (void)bytes;
    if (!p)
        return;
    cuda_sync(b, NULL);
    B(b)->dev->cu.MemFreeHost(p);
}

/* ---- captures ---- */

static int capture_begin(lf_back *b, lf_err *err)
{
    return lf_cuda_check(
        B(b), B(b)->dev->cu.StreamBeginCapture(b->queue->stream, LF_CU_CAPTURE_THREAD_LOCAL),
        "beginning a capture", err);
}

static int capture_end(lf_back *b, void **graph, lf_err *err)
{
    const struct lf_cu *cu = &B(b)->dev->cu;
    lf_cu_graph g = NULL;
    lf_cu_graph_exec x = NULL;
    int rc =
        lf_cuda_check(B(b), cu->StreamEndCapture(b->queue->stream, &g), "ending a capture", err);
    if (rc == 0)
        rc = lf_cuda_check(B(b), cu->GraphInstantiate(&x, g, 0), "making a graph", err);
    if (g)
        cu->GraphDestroy(g);
    if (rc == 0)
        *graph = x;
    return rc;
}

static int capture_run(lf_back *b, void *graph, lf_err *err)
{
    return lf_cuda_check(B(b), B(b)->dev->cu.GraphLaunch(graph, b->queue->stream),
                         "launching a graph", err);
}

static void capture_free(lf_back *b, void *graph)
{
    if (graph)
        B(b)->dev->cu.GraphExecDestroy(graph);
}

static const char *products(lf_back *b, enum lf_numeric mode)
{
    return lf_cuda_gemm_algorithm(B(b)->dev, mode);
}

static const char *attention(lf_back *b, enum lf_numeric mode)
{
    return lf_cuda_attn_algorithm(B(b)->dev, mode);
}

/* ---- making and ending ---- */

static void cuda_destroy(lf_back *base)
{
    struct lf_back_cuda *b = B(base);
    if (b->base.queue) {
        cuda_sync(base, NULL);
        lf_cuda_comm_destroy(b);
        lf_cuda_ring_destroy(b, &b->in);
        lf_cuda_ring_destroy(b, &b->out);
        lf_cuda_late_destroy(b);
        lf_cuda_stamps_destroy(b);
        lf_cu_queue_destroy(b->base.queue);
    }
    lf_cu_device_close(b->dev);
    free(b);
}

#define COMMON                                                                                     \
    .name = "cuda", .alloc = cuda_alloc, .release = cuda_release, .copy_in = lf_cuda_copy_in,      \
    .copy_out = lf_cuda_copy_out, .fill = cuda_fill, .sync = cuda_sync, .destroy = cuda_destroy,   \
    .alloc_host = cuda_alloc_host, .release_host = cuda_release_host,                              \
    .late_begin = lf_cuda_late_begin, .late_end = lf_cuda_late_end, .failure = cuda_failure,       \
    .products = products, .attention = attention, .move = cuda_move,                               \
    .comm_begin = lf_cuda_comm_begin, .comm_end = lf_cuda_comm_end,                                \
    .comm_mark = lf_cuda_comm_mark, .comm_wait = lf_cuda_comm_wait,                                \
    .lane_stream = lf_cuda_lane_stream, .lane_begin = lf_cuda_lane_begin,                          \
    .lane_mark = lf_cuda_lane_mark, .lane_wait = lf_cuda_lane_wait, .probe = lf_cuda_probe,        \
    .stamp = lf_cuda_stamp, .stamps = lf_cuda_stamps
static const struct lf_back_ops plain_ops = {COMMON};
static const struct lf_back_ops graph_ops = {COMMON, .capture_begin = capture_begin,
                                             .capture_end = capture_end, .capture_run = capture_run,
                                             .capture_free = capture_free};

static bool is_set(const char *variable, const char *value)
{
    const char *s = getenv(variable);
    return s && strcmp(s, value) == 0;
}

static int open_device(struct lf_back_cuda *b, const struct lf_cuda_opts *o, lf_err *err)
{
    struct lf_cu cu;
    char why[300];
    if (o->driver)
        cu = *o->driver;
    else if (lf_cu_load(&cu, why, sizeof why))
        return lf_fail(err, LF_EDEVICE, "cuda backend: %s", why);
    if (lf_cu_device_open(&b->dev, &cu, o->ordinal, why, sizeof why)) {
        if (!o->driver)
            lf_cu_unload(&cu);
        return lf_fail(err, LF_EDEVICE, "cuda backend, rank %d: %s", o->rank, why);
    }
    return 0;
}

static int describe(struct lf_back_cuda *b, const struct lf_cuda_opts *o, lf_err *err)
{
    int version = 0;
    char why[300];
    snprintf(b->device, sizeof b->device, "rank %d, GPU %d (%s)", o->rank, o->ordinal,
             b->dev->name);
    if (b->dev->sm < 80)
        return lf_fail(err, LF_EDEVICE, "%s: compute capability %d.%d; 8.0 or later is needed",
                       b->device, b->dev->sm / 10, b->dev->sm % 10);
    int rc = lf_cuda_check(b, b->dev->cu.DriverGetVersion(&version), "version of the driver", err);
    snprintf(b->family, sizeof b->family, "cuda-sm_%d", b->dev->sm);
    snprintf(b->shown, sizeof b->shown, "%s, driver %d.%d", b->dev->name, version / 1000,
             version % 1000 / 10);
    b->table = lf_cuda_kernels;
    lf_cuda_scan_limit(&b->table, (size_t)b->dev->smem_optin);
    b->table.family = b->family;
    b->rank = o->rank;
    if (rc == 0 &&
        (lf_cu_attn_open(b->dev, why, sizeof why) || lf_cu_wgmma_open(b->dev, why, sizeof why)))
        rc = lf_fail(err, LF_EDEVICE, "%s: %s", b->device, why);
    return rc;
}

/* 8-4-4-4-12 hexadecimal digits. Whoever cannot have them loses nothing else. */
static void name_device(struct lf_back_cuda *b)
{
    struct lf_cu_uuid u;
    size_t n = 0;
    if (b->dev->cu.DeviceGetUuid(&u, b->dev->dev) != 0)
        return;
    for (size_t i = 0; i < sizeof u.bytes; i++)
        n += (size_t)snprintf(b->uuid + n, sizeof b->uuid - n, "%s%02x",
                              i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u.bytes[i]);
    b->base.uuid = b->uuid;
}

lf_back *lf_back_cuda_create(const struct lf_cuda_opts *o, lf_err *err)
{
    struct lf_back_cuda *b = lf_calloc(1, sizeof *b, err);
    if (!b)
        return NULL;
    int rc = open_device(b, o, err);
    if (rc != 0) {
        free(b);
        return NULL;
    }
    rc = describe(b, o, err);
    b->base =
        (lf_back){.ops = is_set("LF_CUDA_GRAPHS", "0") || is_set("LF_CUDA_SYNC", "1") ? &plain_ops
                                                                                      : &graph_ops,
                  .kernels = &b->table,
                  .threads = o->threads,
                  .device = b->shown};
    name_device(b);
    if (rc == 0 && !(b->base.queue = lf_cu_queue_create(b->dev)))
        rc = lf_fail(err, LF_EDEVICE, "%s: no stream", b->device);
    if (rc == 0) {
        b->base.ordinal = o->ordinal;
        b->base.stream = b->base.queue->stream;
        b->base.queue->wait_each = is_set("LF_CUDA_SYNC", "1");
        rc = lf_cuda_ring_create(b, &b->in, IN_PART, err);
    }
    if (rc == 0)
        rc = lf_cuda_ring_create(b, &b->out, OUT_PART, err);
    if (rc == 0)
        rc = lf_cuda_late_create(b, err);
    if (rc == 0)
        rc = lf_cuda_comm_create(b, err);
    if (rc == 0)
        return &b->base;
    cuda_destroy(&b->base);
    return NULL;
}
