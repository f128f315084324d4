/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives between GPUs over NCCL, loaded at run time so that one binary also runs where there
 * is none. Pointers are device pointers; each call is queued on a stream of this communicator, and
 * a call that waits waits for the stream. Ids travel, and barriers are made, over the communicator
 * for host memory. Tags of messages are not NCCL's: messages of a pair keep their order. A send
 * holds the stream until its receive comes, so both directions belong into one group.
 *
 * The declarations below are NCCL 2's binary interface as far as it is used (nccl.h, unchanged
 * since 2.10; parts of communicators and their settings are of 2.18 and stay out before).
 */
#include <dlfcn.h>
#include <limits.h>
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
/* ncclConfig_t of 2.18: a later library takes it, and its own defaults for what is missing. */
struct config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
};
enum { NCCL_CONFIGS = 21800, NCCL_MAGIC = 0xcafebeef };
enum { NCCL_INT8 = 0, NCCL_INT64 = 4, NCCL_FLOAT32 = 7, NCCL_FLOAT64 = 8, NCCL_BFLOAT16 = 9 };
enum { NCCL_SUM = 0, NCCL_MAX = 2 };
enum { CUDA_STREAM_NON_BLOCKING = 1, CUDA_NOT_READY = 600 };

struct api {
    void *nccl, *cudart;
    /* of 2.18; the last two are NULL where the library is older */
    int (*GetVersion)(int *);
    int (*CommInitRankConfig)(nccl_comm *, int, nccl_id, int, struct config *);
    int (*CommSplit)(nccl_comm, int, int, nccl_comm *, struct config *);
    int (*GetUniqueId)(nccl_id *);
    int (*CommInitRank)(nccl_comm *, int, nccl_id, int);
    int (*CommDestroy)(nccl_comm);
    int (*CommAbort)(nccl_comm);
    int (*CommGetAsyncError)(nccl_comm, int *);
    const char *(*GetErrorString)(int);
    int (*AllReduce)(const void *, void *, size_t, int, int, nccl_comm, void *);
    int (*ReduceScatter)(const void *, void *, size_t, int, int, nccl_comm, void *);
    int (*AllGather)(const void *, void *, size_t, int, nccl_comm, void *);
    int (*Reduce)(const void *, void *, size_t, int, int, int, nccl_comm, void *);
    int (*Broadcast)(const void *, void *, size_t, int, int, nccl_comm, void *);
    int (*Send)(const void *, size_t, int, int, nccl_comm, void *);
    int (*Recv)(void *, size_t, int, int, nccl_comm, void *);
    int (*GroupStart)(void);
    int (*GroupEnd)(void);
    int (*SetDevice)(int);
    int (*StreamCreateWithFlags)(void **, unsigned);
    int (*StreamSynchronize)(void *);
    int (*StreamQuery)(void *);
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

/* Both, or none. */
static void find_parts(struct api *a)
{
    int version = 0;
    void *init = dlsym(a->nccl, "ncclCommInitRankConfig"), *split = dlsym(a->nccl, "ncclCommSplit");
    if (!init || !split || a->GetVersion(&version) || version < NCCL_CONFIGS)
        init = split = NULL;
    memcpy(&a->CommInitRankConfig, &init, sizeof init);
    memcpy(&a->CommSplit, &split, sizeof split);
}

static int find_symbols(struct api *a, lf_err *err)
{
    const struct {
        void *lib;
        const char *name;
        void *slot;
    } need[] = {
        {a->nccl, "ncclGetUniqueId", &a->GetUniqueId},
        {a->nccl, "ncclGetVersion", &a->GetVersion},
        {a->nccl, "ncclCommInitRank", &a->CommInitRank},
        {a->nccl, "ncclCommDestroy", &a->CommDestroy},
        {a->nccl, "ncclCommAbort", &a->CommAbort},
        {a->nccl, "ncclCommGetAsyncError", &a->CommGetAsyncError},
        {a->nccl, "ncclGetErrorString", &a->GetErrorString},
        {a->nccl, "ncclAllReduce", &a->AllReduce},
        {a->nccl, "ncclReduceScatter", &a->ReduceScatter},
        {a->nccl, "ncclAllGather", &a->AllGather},
        {a->nccl, "ncclReduce", &a->Reduce},
        {a->nccl, "ncclBroadcast", &a->Broadcast},
        {a->nccl, "ncclSend", &a->Send},
        {a->nccl, "ncclRecv", &a->Recv},
        {a->nccl, "ncclGroupStart", &a->GroupStart},
        {a->nccl, "ncclGroupEnd", &a->GroupEnd},
        {a->cudart, "cudaSetDevice", &a->SetDevice},
        {a->cudart, "cudaStreamCreateWithFlags", &a->StreamCreateWithFlags},
        {a->cudart, "cudaStreamSynchronize", &a->StreamSynchronize},
        {a->cudart, "cudaStreamQuery", &a->StreamQuery},
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
    find_parts(a);
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

/* Of all ranks, also where the communicator has some. */
static int world_rank(const struct nccl *n)
{
    return lf_comm_world_rank(n->base.host, n->base.rank);
}

static int check(const struct nccl *n, int st, const char *what, lf_err *err)
{
    return st == 0 ? 0
                   : lf_fail(err, LF_ECOMM, "NCCL: %s on rank %d, device %d: %s", what,
                             world_rank(n), n->device, n->api->GetErrorString(st));
}

static int check_cuda(const struct nccl *n, int st, const char *what, lf_err *err)
{
    return st == 0 ? 0
                   : lf_fail(err, LF_EDEVICE, "CUDA: %s for rank %d, device %d: %s", what,
                             world_rank(n), n->device, n->api->CudaErrorString(st));
}

/* Asks for what went wrong on the way. */
static int check_async(const struct nccl *n, const char *what, lf_err *err)
{
    int async = 0, rc = check(n, n->api->CommGetAsyncError(n->comm, &async), what, err);
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

/* Each of these queues its call and returns NCCL's status. */
static int queue_all_reduce(struct nccl *n, const struct lf_comm_call *a)
{
    return a->n ? n->api->AllReduce(a->out, a->out, a->n, type_of(a->type),
                                    a->op == LF_COMM_SUM ? NCCL_SUM : NCCL_MAX, n->comm, n->stream)
                : 0;
}

static bool all_equal(const struct nccl *n, const size_t *counts)
{
    for (int r = 1; r < n->base.size; r++)
        if (counts[r] != counts[0])
            return false;
    return true;
}

/* Chunks of different length: one reduction per owner, in one group. The owner's result may lie in
 * its own chunk of `in`; the other chunks stay as they are. */
static int queue_reduce_scatter(struct nccl *n, const struct lf_comm_call *a)
{
    const char *part = a->in;
    const int type = type_of(a->type);
    if (all_equal(n, a->counts))
        return a->counts[0] ? n->api->ReduceScatter(a->in, a->out, a->counts[0], type, NCCL_SUM,
                                                    n->comm, n->stream)
                            : 0;
    int st = n->api->GroupStart();
    for (int r = 0; st == 0 && r < n->base.size; r++) {
        if (a->counts[r])
            st = n->api->Reduce(part, a->out, a->counts[r], type, NCCL_SUM, r, n->comm, n->stream);
        part += a->counts[r] * lf_comm_type_bytes(a->type);
    }
    int end = n->api->GroupEnd();
    return st ? st : end;
}

static int queue_all_gather(struct nccl *n, const struct lf_comm_call *a)
{
    char *part = a->out;
    if (all_equal(n, a->counts))
        return a->counts[0] ? n->api->AllGather(part + (size_t)n->base.rank * a->counts[0], part,
                                                a->counts[0], NCCL_INT8, n->comm, n->stream)
                            : 0;
    int st = n->api->GroupStart();
    for (int r = 0; st == 0 && r < n->base.size; r++) {
        if (a->counts[r])
            st = n->api->Broadcast(part, part, a->counts[r], NCCL_INT8, r, n->comm, n->stream);
        part += a->counts[r];
    }
    int end = n->api->GroupEnd();
    return st ? st : end;
}

static int queue_send(struct nccl *n, const void *data, size_t bytes, int to,
                      struct lf_comm_count *k)
{
    k->sent++;
    k->bytes_sent += bytes;
    return bytes ? n->api->Send(data, bytes, NCCL_INT8, to, n->comm, n->stream) : 0;
}

static int queue_recv(struct nccl *n, void *data, size_t bytes, int from, struct lf_comm_count *k)
{
    k->received++;
    k->bytes_received += bytes;
    return bytes ? n->api->Recv(data, bytes, NCCL_INT8, from, n->comm, n->stream) : 0;
}

/* The own block is a message too: NCCL copies it on the stream. */
static int queue_all_to_all(struct nccl *n, const struct lf_comm_call *a)
{
    struct lf_comm_count *k = &n->base.counts.collective;
    const char *in = a->in;
    char *out = a->out;
    int st = n->api->GroupStart();
    for (int r = 0; st == 0 && r < n->base.size; r++) {
        if (a->counts[r])
            st = queue_send(n, in, a->counts[r], r, k);
        if (st == 0 && a->from[r])
            st = queue_recv(n, out, a->from[r], r, k);
        in += a->counts[r];
        out += a->from[r];
    }
    int end = n->api->GroupEnd();
    return st ? st : end;
}

static int queue(struct nccl *n, const struct lf_comm_call *a)
{
    switch (a->what) {
    case LF_COMM_ALL_REDUCE:
        return queue_all_reduce(n, a);
    case LF_COMM_REDUCE_SCATTER:
        return queue_reduce_scatter(n, a);
    case LF_COMM_ALL_GATHER:
        return queue_all_gather(n, a);
    case LF_COMM_ALL_TO_ALL:
        return queue_all_to_all(n, a);
    case LF_COMM_BROADCAST:
        return a->n
                   ? n->api->Broadcast(a->out, a->out, a->n, NCCL_INT8, a->peer, n->comm, n->stream)
                   : 0;
    case LF_COMM_SEND:
        return queue_send(n, a->in, a->n, a->peer, &n->base.counts.message);
    case LF_COMM_RECV:
        return queue_recv(n, a->out, a->n, a->peer, &n->base.counts.message);
    case LF_COMM_BARRIER:
        break;
    }
    return 0;
}

/* The stream first, then the hosts, who wait for each other here. */
static int nccl_barrier(struct nccl *n, lf_err *err)
{
    int rc = check_cuda(n, n->api->StreamSynchronize(n->stream), "barrier", err);
    return rc != 0 ? rc : lf_comm_barrier(n->base.host, err);
}

static bool moves_nothing(const struct lf_comm_call *a, int size)
{
    size_t sum = a->n;
    if (a->what == LF_COMM_BARRIER)
        return false;
    for (int r = 0; a->counts && r < size; r++)
        sum += a->counts[r] + (a->from ? a->from[r] : 0);
    return sum == 0;
}

/* On a borrowed stream a call is done for its caller when it is queued. */
static int nccl_start(lf_comm *c, struct lf_comm_flight *f, lf_err *err)
{
    struct nccl *n = (struct nccl *)c;
    const struct lf_comm_call *a = &f->call;
    const char *what = lf_comm_what_name(a->what);
    if (a->what == LF_COMM_REDUCE_SCATTER && a->seed)
        return lf_fail(err, LF_ENOTSUP,
                       "transport nccl adds in an order of its own: no sum over it begins with a "
                       "seed");
    if (a->what == LF_COMM_BARRIER) {
        f->done = true;
        return nccl_barrier(n, err);
    }
    f->done = n->borrowed || moves_nothing(a, c->size);
    int rc = check(n, queue(n, a), what, err);
    return rc || !f->done || c->groups || moves_nothing(a, c->size) ? rc
                                                                    : check_async(n, what, err);
}

static int nccl_test(lf_comm *c, struct lf_comm_flight *f, bool wait, lf_err *err)
{
    const struct nccl *n = (const struct nccl *)c;
    const char *what = lf_comm_what_name(f->call.what);
    int st = wait ? n->api->StreamSynchronize(n->stream) : n->api->StreamQuery(n->stream);
    if (!wait && st == CUDA_NOT_READY)
        return 0;
    int rc = check_cuda(n, st, what, err);
    rc = rc != 0 ? rc : check_async(n, what, err);
    f->done = rc == 0;
    return rc;
}

static int nccl_group(lf_comm *c, bool begin, lf_err *err)
{
    struct nccl *n = (struct nccl *)c;
    if (begin)
        return check(n, n->api->GroupStart(), "the begin of a group", err);
    int rc = check(n, n->api->GroupEnd(), "a group", err);
    return rc || c->groups ? rc : check_async(n, "a group", err);
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

static struct config config_of(const struct lf_comm_gpus *o)
{
    return (struct config){.size = sizeof(struct config),
                           .magic = NCCL_MAGIC,
                           .version = NCCL_CONFIGS,
                           .blocking = INT_MIN, /* NCCL's own */
                           .cga_cluster_size = INT_MIN,
                           .min_ctas = INT_MIN,
                           .max_ctas = o->blocks ? o->blocks : INT_MIN,
                           .split_share = o->parts ? 1 : INT_MIN};
}

static int init_rank(struct nccl *n, nccl_id id, const struct lf_comm_gpus *o)
{
    struct config c = config_of(o);
    return n->api->CommInitRankConfig && (o->parts || o->blocks)
               ? n->api->CommInitRankConfig(&n->comm, n->base.size, id, n->base.rank, &c)
               : n->api->CommInitRank(&n->comm, n->base.size, id, n->base.rank);
}

static int join(struct nccl *n, lf_comm *host, const struct lf_comm_gpus *o, lf_err *err)
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
        rc = check(n, init_rank(n, id, o), "joining the communicator", err);
    if (rc != 0)
        n->comm = NULL;
    return lf_comm_agree_ok(host, rc, err);
}

static lf_comm *nccl_split(lf_comm *c, const int *members, int n, int me, uint32_t id, lf_err *err);

static const struct lf_comm_ops nccl_ops = {.name = "nccl",
                                            .start = nccl_start,
                                            .test = nccl_test,
                                            .group = nccl_group,
                                            .split = nccl_split,
                                            .destroy = nccl_destroy};

/* Not yet joined. parent: NULL for the world, which loads the libraries. */
static struct nccl *prepare(struct nccl *parent, lf_comm *host, const struct lf_comm_gpus *o,
                            int *rc, lf_err *err)
{
    struct nccl *n = lf_calloc(1, sizeof *n, err);
    *rc = n ? 0 : LF_ENOMEM;
    if (n) {
        n->base = (lf_comm){.ops = &nccl_ops,
                            .rank = host->rank,
                            .size = host->size,
                            .host = host,
                            .job = host->job};
        n->device = o->device;
        n->stream = o->stream;
        n->borrowed = o->stream != NULL;
        n->api = parent ? parent->api : &n->own;
        if (!parent)
            *rc = load(&n->own, err);
    }
    return n;
}

/* Takes host when it succeeds. */
static lf_comm *make(struct nccl *parent, lf_comm *host, const struct lf_comm_gpus *o, lf_err *err)
{
    int rc;
    struct nccl *n = prepare(parent, host, o, &rc, err);
    rc = lf_comm_agree_ok(host, rc, err);
    if (rc == 0)
        rc = join(n, host, o, err);
    if (rc == 0)
        return &n->base;
    if (n)
        release(n, false);
    return NULL;
}

static lf_comm *nccl_split(lf_comm *c, const int *members, int n, int me, uint32_t id, lf_err *err)
{
    lf_comm *host = lf_comm_part_of(c->host, members, n, me, id, err);
    const struct lf_comm_gpus o = {.device = ((struct nccl *)c)->device};
    lf_comm *s = host ? make((struct nccl *)c, host, &o, err) : NULL;
    if (!s)
        lf_comm_destroy(host);
    return s;
}

void lf_comm_nccl_abort(lf_comm *c)
{
    release((struct nccl *)c, true);
}

lf_comm *lf_comm_nccl_create(lf_comm *host, const struct lf_comm_gpus *o, lf_err *err)
{
    return make(NULL, host, o, err);
}

/* The first rank of a part names it, and who is in none of the others is in this one. */
static int split_off(struct nccl *n, const struct nccl *whole, lf_err *err)
{
    const lf_comm *host = n->base.host;
    const int color = lf_comm_world_rank(host, 0);
    return check(n, n->api->CommSplit(whole->comm, color, host->rank, &n->comm, NULL),
                 "a part of the communicator", err);
}

lf_comm *lf_comm_nccl_part(lf_comm *whole, lf_comm *host, lf_err *err)
{
    struct nccl *w = (struct nccl *)whole;
    const struct lf_comm_gpus o = {.device = w->device, .stream = w->stream};
    int rc;
    if (!w->api->CommSplit)
        return make(NULL, host, &o, err);
    struct nccl *n = prepare(w, host, &o, &rc, err);
    rc = lf_comm_agree_ok(whole->host, rc, err); /* all of them split */
    if (rc == 0)
        rc = split_off(n, w, err);
    if (rc != 0 && n)
        n->comm = NULL;
    rc = lf_comm_agree_ok(whole->host, rc, err);
    if (rc == 0)
        return &n->base;
    if (n)
        release(n, false);
    return NULL;
}
