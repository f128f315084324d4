/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives between GPUs over NCCL, loaded at run time so that one binary also runs where there
 * is none. Pointers are device pointers; each call is queued on a stream of this communicator and
 * waited for. Ids travel, and barriers are made, over the communicator for host memory. Tags of
 * messages are not NCCL's: messages of a pair keep their order.
 *
 * The declarations below are NCCL 2's binary interface as far as it is used (nccl.h, unchanged
 * since 2.10).
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/comm/comm_priv.h"

typedef struct ncclComm *nccl_comm;
typedef struct {
    char internal[128];
} nccl_id;
enum { NCCL_INT8 = 0, NCCL_INT64 = 4, NCCL_FLOAT32 = 7, NCCL_FLOAT64 = 8, NCCL_BFLOAT16 = 9 };
enum { NCCL_SUM = 0, NCCL_MAX = 2 };
enum { CUDA_STREAM_NON_BLOCKING = 1 };

struct api {
    void *nccl, *cudart;
    int (*GetUniqueId)(nccl_id *);
    int (*CommInitRank)(nccl_comm *, int, nccl_id, int);
    int (*CommDestroy)(nccl_comm);
    int (*CommAbort)(nccl_comm);
    int (*CommGetAsyncError)(nccl_comm, int *);
    const char *(*GetErrorString)(int);
    int (*AllReduce)(const void *, void *, size_t, int, int, nccl_comm, void *);
    int (*Reduce)(const void *, void *, size_t, int, int, int, nccl_comm, void *);
    int (*Broadcast)(const void *, void *, size_t, int, int, nccl_comm, void *);
    int (*Send)(const void *, size_t, int, int, nccl_comm, void *);
    int (*Recv)(void *, size_t, int, int, nccl_comm, void *);
    int (*GroupStart)(void);
    int (*GroupEnd)(void);
    int (*SetDevice)(int);
    int (*StreamCreateWithFlags)(void **, unsigned);
    int (*StreamSynchronize)(void *);
    int (*StreamDestroy)(void *);
    const char *(*CudaErrorString)(int);
};

struct nccl {
    lf_comm base;
    struct api *api; /* of the world's, which outlives its parts */
    struct api own;  /* the world's */
    nccl_comm comm;
    void *stream;
    bool borrowed; /* the stream: calls are queued on it and not waited for */
    int device;
};

/* ---- libraries ---- */

static void *open_library(const char *variable, const char *const *names, lf_err *err)
{
    const char *path = getenv(variable);
    char why[400] = "";
    if (path && path[0]) {
        void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!h)
            lf_fail(err, LF_ENOTSUP, "%s: %s", variable, dlerror());
        return h;
    }
    for (size_t i = 0; names[i]; i++) {
        void *h = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (h)
            return h;
        if (!why[0])
            snprintf(why, sizeof why, "%s", dlerror());
    }
    lf_fail(err, LF_ENOTSUP, "transport nccl: %s; %s names the file", why, variable);
    return NULL;
}

static int find_symbols(struct api *a, lf_err *err)
{
    const struct {
        void *lib;
        const char *name;
        void *slot;
    } need[] = {
        {a->nccl, "ncclGetUniqueId", &a->GetUniqueId},
        {a->nccl, "ncclCommInitRank", &a->CommInitRank},
        {a->nccl, "ncclCommDestroy", &a->CommDestroy},
        {a->nccl, "ncclCommAbort", &a->CommAbort},
        {a->nccl, "ncclCommGetAsyncError", &a->CommGetAsyncError},
        {a->nccl, "ncclGetErrorString", &a->GetErrorString},
        {a->nccl, "ncclAllReduce", &a->AllReduce},
        {a->nccl, "ncclReduce", &a->Reduce},
        {a->nccl, "ncclBroadcast", &a->Broadcast},
        {a->nccl, "ncclSend", &a->Send},
        {a->nccl, "ncclRecv", &a->Recv},
        {a->nccl, "ncclGroupStart", &a->GroupStart},
        {a->nccl, "ncclGroupEnd", &a->GroupEnd},
        {a->cudart, "cudaSetDevice", &a->SetDevice},
        {a->cudart, "cudaStreamCreateWithFlags", &a->StreamCreateWithFlags},
        {a->cudart, "cudaStreamSynchronize", &a->StreamSynchronize},
        {a->cudart, "cudaStreamDestroy", &a->StreamDestroy},
        {a->cudart, "cudaGetErrorString", &a->CudaErrorString},
    };
    for (size_t i = 0; i < sizeof need / sizeof need[0]; i++) {
        void *f = dlsym(need[i].lib, need[i].name);
        if (!f)
            return lf_fail(err, LF_ENOTSUP, "transport nccl: the library has no %s: %s",
                           need[i].name, dlerror());
        memcpy(need[i].slot, &f, sizeof f); /* the way POSIX means it */
    }
    return 0;
}

static void unload(struct api *a)
{
    if (a->nccl)
        dlclose(a->nccl);
    if (a->cudart)
        dlclose(a->cudart);
    a->nccl = a->cudart = NULL;
}

static int load(struct api *a, lf_err *err)
{
    static const char *const nccl[] = {"libnccl.so.2", "libnccl.so", NULL};
    static const char *const cudart[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0",
                                         "libcudart.so", NULL};
    a->nccl = open_library("LF_NCCL_LIB", nccl, err);
    a->cudart = a->nccl ? open_library("LF_CUDART_LIB", cudart, err) : NULL;
    int rc = a->cudart ? find_symbols(a, err) : LF_ENOTSUP;
    if (rc != 0)
        unload(a);
    return rc;
}

/* ---- calls ---- */

static int check(const struct nccl *n, int st, const char *what, lf_err *err)
{
    return st == 0 ? 0
                   : lf_fail(err, LF_ECOMM, "NCCL: %s on rank %d, device %d: %s", what,
                             n->base.rank, n->device, n->api->GetErrorString(st));
}

static int check_cuda(const struct nccl *n, int st, const char *what, lf_err *err)
{
    return st == 0 ? 0
                   : lf_fail(err, LF_EDEVICE, "CUDA: %s for rank %d, device %d: %s", what,
                             n->base.rank, n->device, n->api->CudaErrorString(st));
}

/* After queueing: wait, and ask for what went wrong meanwhile. */
static int finish(struct nccl *n, int st, const char *what, lf_err *err)
{
    int async = 0, rc = check(n, st, what, err);
    if (rc == 0 && !n->borrowed)
        rc = check_cuda(n, n->api->StreamSynchronize(n->stream), what, err);
    if (rc == 0)
        rc = check(n, n->api->CommGetAsyncError(n->comm, &async), what, err);
    return rc != 0 ? rc : check(n, async, what, err);
}

static int type_of(enum lf_comm_type t)
{
    static const int types[] = {[LF_COMM_F32] = NCCL_FLOAT32,
                                [LF_COMM_F64] = NCCL_FLOAT64,
                                [LF_COMM_BF16] = NCCL_BFLOAT16,
                                [LF_COMM_I64] = NCCL_INT64};
    return types[t];
}

static int nccl_all_reduce(lf_comm *c, void *data, size_t count, enum lf_comm_type t,
                           enum lf_comm_op op, lf_err *err)
{
    struct nccl *n = (struct nccl *)c;
    if (!count)
        return 0;
    int st = n->api->AllReduce(data, data, count, type_of(t),
                               op == LF_COMM_SUM ? NCCL_SUM : NCCL_MAX, n->comm, n->stream);
    return finish(n, st, "all_reduce", err);
}

/* Chunks may differ in length: one reduction per owner, in one group. The owner's result may lie in
 * its own chunk of `in`; the other chunks stay as they are. */
static int nccl_reduce_scatter(lf_comm *c, void *out, const void *in, const size_t *counts,
                               enum lf_comm_type t, lf_err *err)
{
    struct nccl *n = (struct nccl *)c;
    const char *part = in;
    int st = n->api->GroupStart();
    for (int r = 0; st == 0 && r < c->size; r++) {
        if (counts[r])
            st = n->api->Reduce(part, out, counts[r], type_of(t), NCCL_SUM, r, n->comm, n->stream);
        part += counts[r] * lf_comm_type_bytes(t);
    }
    int end = n->api->GroupEnd();
    return finish(n, st ? st : end, "reduce_scatter", err);
}

static int nccl_all_gather(lf_comm *c, void *all, const size_t *bytes, lf_err *err)
{
    struct nccl *n = (struct nccl *)c;
    char *part = all;
    int st = n->api->GroupStart();
    for (int r = 0; st == 0 && r < c->size; r++) {
        if (bytes[r])
            st = n->api->Broadcast(part, part, bytes[r], NCCL_INT8, r, n->comm, n->stream);
        part += bytes[r];
    }
    int end = n->api->GroupEnd();
    return finish(n, st ? st : end, "all_gather", err);
}

static int nccl_broadcast(lf_comm *c, void *data, size_t bytes, int root, lf_err *err)
{
    struct nccl *n = (struct nccl *)c;
    if (!bytes)
        return 0;
    return finish(n, n->api->Broadcast(data, data, bytes, NCCL_INT8, root, n->comm, n->stream),
                  "broadcast", err);
}

static int nccl_barrier(lf_comm *c, lf_err *err)
{
    struct nccl *n = (struct nccl *)c;
    int rc = check_cuda(n, n->api->StreamSynchronize(n->stream), "barrier", err);
    return rc != 0 ? rc : c->host->ops->barrier(c->host, err);
}

static int nccl_send(lf_comm *c, const void *data, size_t bytes, int to, int tag, lf_err *err)
{
    struct nccl *n = (struct nccl *)c;
    (void)tag;
    return bytes ? finish(n, n->api->Send(data, bytes, NCCL_INT8, to, n->comm, n->stream), "send",
                          err)
                 : 0;
}

static int nccl_recv(lf_comm *c, void *data, size_t bytes, int from, int tag, lf_err *err)
{
    struct nccl *n = (struct nccl *)c;
    (void)tag;
    return bytes ? finish(n, n->api->Recv(data, bytes, NCCL_INT8, from, n->comm, n->stream), "recv",
                          err)
                 : 0;
}

/* ---- making and ending ---- */

static void release(struct nccl *n, bool abort)
{
    if (n->comm)
        abort ? n->api->CommAbort(n->comm) : n->api->CommDestroy(n->comm);
    if (n->stream && !n->borrowed)
        n->api->StreamDestroy(n->stream);
    if (n->api == &n->own)
        unload(&n->own);
    free(n);
}

static void nccl_destroy(lf_comm *c)
{
    release((struct nccl *)c, false);
}

static int join(struct nccl *n, lf_comm *host, lf_err *err)
{
    nccl_id id;
    memset(&id, 0, sizeof id);
    int rc = check_cuda(n, n->api->SetDevice(n->device), "choosing the device", err);
    if (rc == 0 && !n->borrowed)
        rc = check_cuda(n, n->api->StreamCreateWithFlags(&n->stream, CUDA_STREAM_NON_BLOCKING),
                        "a stream", err);
    if (rc == 0 && host->rank == 0)
        rc = check(n, n->api->GetUniqueId(&id), "a unique id", err);
    rc = lf_comm_agree_ok(host, rc, err);
    if (rc == 0)
        rc = lf_comm_broadcast(host, &id, sizeof id, 0, err);
    if (rc == 0)
        rc = check(n, n->api->CommInitRank(&n->comm, host->size, id, host->rank),
                   "joining the communicator", err);
    if (rc != 0)
        n->comm = NULL;
    return lf_comm_agree_ok(host, rc, err);
}

static lf_comm *nccl_split(lf_comm *c, const int *members, int n, int me, uint32_t id, lf_err *err);

static const struct lf_comm_ops nccl_ops = {.name = "nccl",
                                            .all_reduce = nccl_all_reduce,
                                            .reduce_scatter = nccl_reduce_scatter,
                                            .all_gather = nccl_all_gather,
                                            .broadcast = nccl_broadcast,
                                            .barrier = nccl_barrier,
                                            .send = nccl_send,
                                            .recv = nccl_recv,
                                            .split = nccl_split,
                                            .destroy = nccl_destroy};

/* Takes host when it succeeds. parent: NULL for the world, which loads the libraries. */
static lf_comm *make(struct nccl *parent, lf_comm *host, int device, void *stream, lf_err *err)
{
    struct nccl *n = lf_calloc(1, sizeof *n, err);
    int rc = n ? 0 : LF_ENOMEM;
    if (n) {
        n->base = (lf_comm){.ops = &nccl_ops,
                            .rank = host->rank,
                            .size = host->size,
                            .host = host,
                            .job = host->job};
        n->device = device;
        n->stream = stream;
        n->borrowed = stream != NULL;
        n->api = parent ? parent->api : &n->own;
        if (!parent)
            rc = load(&n->own, err);
    }
    rc = lf_comm_agree_ok(host, rc, err);
    if (rc == 0)
        rc = join(n, host, err);
    if (rc == 0)
        return &n->base;
    if (n)
        release(n, false);
    return NULL;
}

static lf_comm *nccl_split(lf_comm *c, const int *members, int n, int me, uint32_t id, lf_err *err)
{
    lf_comm *host = lf_comm_part_of(c->host, members, n, me, id, err);
    lf_comm *s = host ? make((struct nccl *)c, host, ((struct nccl *)c)->device, NULL, err) : NULL;
    if (!s)
        lf_comm_destroy(host);
    return s;
}

void lf_comm_nccl_abort(lf_comm *c)
{
    release((struct nccl *)c, true);
}

lf_comm *lf_comm_nccl_create(lf_comm *host, int device, void *stream, lf_err *err)
{
    return make(NULL, host, device, stream, err);
}
