/* SPDX-License-Identifier: Apache-2.0
 *
 * A library in place of libnccl and libcudart, for ranks that are processes with emulated GPUs:
 * LF_NCCL_LIB and LF_CUDART_LIB name it, LF_CUDA_DRIVER its driver. Sums of f32, f64 and
 * i64 in rank order, for all or for one, broadcasts, gathers, messages.
 *
 * A call gives this rank's part to the others when it is queued, as early as the API allows: what
 * its stream was not made to wait for is not in it. It ends as late as the driver runs queues, and
 * waits there until the others have come. Parts lie in shared memory that the id names.
 *
 * FAKE_NCCL_FAIL=n[:rank]: the n-th collective (from 1) is refused (on that rank).
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANKS = 8, SLOTS = 64, BOXES = 32, PART = 64 << 10, PATIENCE_S = 120 };
enum { INT8 = 0, INT64 = 4, FLOAT32 = 7, FLOAT64 = 8 };
enum { OK = 0, INTERNAL = 3, INVALID = 4 };
enum { EVERYBODY = -1 }; /* gives, or takes; else the root alone */

typedef struct {
    char internal[128];
} id_type;

/* Zero at first. */
struct shared {
    atomic_int joined;
    atomic_ulong given[RANKS], taken[RANKS]; /* calls so far */
    char part[RANKS][SLOTS][PART];
    /* messages from rank to rank */
    atomic_ulong sent[RANKS][RANKS], got[RANKS][RANKS];
    char box[RANKS][RANKS][BOXES][PART];
};

struct comm {
    struct shared *s;
    int rank, size, users;
    unsigned long calls, failed_at, received[RANKS];
    void *stream; /* that was used last */
    bool aborted, destroyed;
};

struct call { /* of at most PART bytes */
    struct comm *c;
    void *data;
    size_t bytes;
    int type, from, to;
    unsigned long number;
};

struct driver {
    int (*run)(void *stream);
    int (*call)(void *stream, void (*f)(void *), void *user, size_t bytes);
};

static int find_driver(struct driver *d)
{
    const char *path = getenv("LF_CUDA_DRIVER");
    void *h = path ? dlopen(path, RTLD_NOW) : NULL, *run = h ? dlsym(h, "lf_emu_run_queue") : NULL,
         *call = h ? dlsym(h, "lf_emu_host_call") : NULL;
    memcpy(&d->run, &run, sizeof run);
    memcpy(&d->call, &call, sizeof call);
    return run && call ? OK : INTERNAL;
}

/* ---- what is done on the "device" ---- */

static void wait_for(const struct comm *c, atomic_ulong *done, int rank, unsigned long calls)
{
    for (long i = 0; atomic_load(done) < calls && !c->aborted; i++) {
        if (i == (long)PATIENCE_S * 10000) {
            fprintf(stderr, "emulated NCCL: rank %d did not come to call %lu\n", rank, calls);
            abort();
        }
        usleep(100);
    }
}

#define ADD(T)                                                                                     \
    for (size_t i = 0; i < bytes / sizeof(T); i++)                                                 \
    ((T *)sum)[i] += ((const T *)more)[i]

static void add(void *sum, const void *more, size_t bytes, int type)
{
    if (type == FLOAT32)
        ADD(float);
    else if (type == FLOAT64)
        ADD(double);
    else
        ADD(int64_t);
}

static void unmap(struct comm *c)
{
    if (!c->destroyed || c->users)
        return;
    munmap(c->s, sizeof *c->s);
    free(c);
}

static void end(void *user)
{
    const struct call *x = user;
    struct comm *c = x->c;
    const size_t slot = x->number % SLOTS;
    for (int r = 0; r < c->size; r++) {
        if ((x->from != EVERYBODY && x->from != r) || (x->to != EVERYBODY && x->to != c->rank))
            continue;
        wait_for(c, &c->s->given[r], r, x->number + 1);
        if (c->aborted)
            break;
        const char *part = c->s->part[r][slot];
        if (x->from != EVERYBODY || r == 0)
            memcpy(x->data, part, x->bytes);
        else
            add(x->data, part, x->bytes, x->type);
    }
    atomic_store(&c->s->taken[c->rank], x->number + 1);
    c->users--;
    unmap(c);
}

static void end_receive(void *user)
{
    const struct call *x = user;
    struct comm *c = x->c;
    wait_for(c, &c->s->sent[x->from][c->rank], x->from, x->number + 1);
    if (!c->aborted)
        memcpy(x->data, c->s->box[x->from][c->rank][x->number % BOXES], x->bytes);
    atomic_store(&c->s->got[x->from][c->rank], x->number + 1);
    c->users--;
    unmap(c);
}

/* ---- calls ---- */

static bool planted(struct comm *c)
{
    const char *s = getenv("FAKE_NCCL_FAIL");
    char *rest;
    if (!s || !*s)
        return false;
    const unsigned long at = strtoul(s, &rest, 10);
    return ++c->failed_at == at && (*rest != ':' || strtol(rest + 1, NULL, 10) == c->rank);
}

/* The slot is free when everybody has taken what lay there. */
static bool slot_free(const struct comm *c)
{
    for (int r = 0; r < c->size; r++)
        if (atomic_load(&c->s->taken[r]) + SLOTS <= c->calls)
            return false;
    return true;
}

static int queue_part(const struct call *of, const char *in, const struct driver *d, void *stream)
{
    struct call *x = malloc(sizeof *x);
    struct comm *c = of->c;
    if (!x)
        return INTERNAL;
    while (!slot_free(c)) { /* more under way than the emulation holds: run what is queued here */
        if (d->run(stream))
            return INTERNAL;
        usleep(100);
    }
    *x = *of;
    x->number = c->calls++;
    if (x->from == EVERYBODY || x->from == c->rank)
        memcpy(c->s->part[c->rank][x->number % SLOTS], in, x->bytes);
    atomic_store(&c->s->given[c->rank], c->calls);
    c->users++;
    return d->call(stream, end, x, 0) ? INTERNAL : OK;
}

/* What every call begins with. */
static int begin(struct comm *c, const void *data, int type, void *stream, struct driver *d)
{
    int rc = !c || !data || !stream ||
                     (type != INT8 && type != INT64 && type != FLOAT32 && type != FLOAT64)
                 ? INVALID
                 : find_driver(d);
    if (!rc && planted(c))
        rc = INTERNAL;
    if (!rc && d->run(stream))
        rc = INTERNAL;
    if (!rc)
        c->stream = stream;
    return rc;
}

static size_t part_at(size_t bytes, size_t at)
{
    return bytes - at < PART ? bytes - at : PART;
}

/* from, to: a rank, or everybody. */
static int queue(void *comm, const void *in, void *data, size_t bytes, int type, int from, int to,
                 void *stream)
{
    struct driver d;
    int rc = begin(comm, data, type, stream, &d);
    for (size_t at = 0; at < bytes && !rc; at += PART)
        rc = queue_part(
            &(struct call){comm, (char *)data + at, part_at(bytes, at), type, from, to, 0},
            (const char *)in + at, &d, stream);
    return rc;
}

static size_t size_of(int type)
{
    return type == INT8 ? 1 : type == FLOAT32 ? 4 : 8;
}

int ncclAllReduce(const void *s, void *r, size_t n, int type, int op, void *c, void *stream)
{
    return s == r && op == 0 && type != INT8
               ? queue(c, s, r, n * size_of(type), type, EVERYBODY, EVERYBODY, stream)
               : INVALID;
}
int ncclBroadcast(const void *s, void *r, size_t n, int type, int root, void *c, void *stream)
{
    return s == r && type == INT8 ? queue(c, s, r, n, type, root, EVERYBODY, stream) : INVALID;
}
int ncclReduce(const void *s, void *r, size_t n, int type, int op, int root, void *c, void *stream)
{
    return op == 0 && type != INT8
               ? queue(c, s, r, n * size_of(type), type, EVERYBODY, root, stream)
               : INVALID;
}
int ncclReduceScatter(const void *s, void *r, size_t n, int type, int op, void *c, void *stream)
{
    int rc = OK;
    for (int k = 0; c && rc == OK && k < ((struct comm *)c)->size; k++)
        rc = ncclReduce((const char *)s + (size_t)k * n * size_of(type), r, n, type, op, k, c,
                        stream);
    return rc;
}
int ncclAllGather(const void *s, void *r, size_t n, int type, void *c, void *stream)
{
    const struct comm *x = c;
    int rc = x && s == (char *)r + (size_t)x->rank * n && type == INT8 ? OK : INVALID;
    for (int k = 0; rc == OK && k < x->size; k++)
        rc = ncclBroadcast((char *)r + (size_t)k * n, (char *)r + (size_t)k * n, n, type, k, c,
                           stream);
    return rc;
}

/* A message is given when it is sent, as far as there are boxes. */
int ncclSend(const void *s, size_t n, int type, int peer, void *comm, void *stream)
{
    struct comm *c = comm;
    struct driver d;
    int rc = type == INT8 ? begin(c, s, type, stream, &d) : INVALID;
    for (size_t at = 0; at < n && rc == OK; at += PART) {
        atomic_ulong *sent = &c->s->sent[c->rank][peer], *got = &c->s->got[c->rank][peer];
        while (rc == OK && atomic_load(sent) - atomic_load(got) == BOXES) {
            rc = d.run(stream) ? INTERNAL : OK;
            usleep(100);
        }
        memcpy(c->s->box[c->rank][peer][atomic_load(sent) % BOXES], (const char *)s + at,
               part_at(n, at));
        atomic_fetch_add(sent, 1);
    }
    return rc;
}
int ncclRecv(void *r, size_t n, int type, int peer, void *comm, void *stream)
{
    struct comm *c = comm;
    struct driver d;
    int rc = type == INT8 ? begin(c, r, type, stream, &d) : INVALID;
    for (size_t at = 0; at < n && rc == OK; at += PART) {
        struct call *x = malloc(sizeof *x);
        if (!x)
            return INTERNAL;
        *x = (struct call){c,    (char *)r + at, part_at(n, at),     type,
                           peer, c->rank,        c->received[peer]++};
        c->users++;
        rc = d.call(stream, end_receive, x, 0) ? INTERNAL : OK;
    }
    return rc;
}
int ncclGroupStart(void)
{
    return OK;
}
int ncclGroupEnd(void)
{
    return OK;
}

/* ---- communicators ---- */

int ncclGetUniqueId(id_type *id)
{
    static int made;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/lf-emu-nccl-%ld-%d", (long)getpid(), made++);
    int fd = shm_open(id->internal, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        return INTERNAL;
    int rc = ftruncate(fd, sizeof(struct shared)) ? INTERNAL : OK;
    close(fd);
    return rc;
}

int ncclCommInitRank(void **out, int size, id_type id, int rank)
{
    struct driver d;
    struct comm *c = calloc(1, sizeof *c);
    int fd = c && size <= RANKS && find_driver(&d) == OK ? shm_open(id.internal, O_RDWR, 0) : -1;
    void *m =
        fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *c->s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (m == MAP_FAILED) {
        free(c);
        return INTERNAL;
    }
    *c = (struct comm){.s = m, .rank = rank, .size = size};
    if (atomic_fetch_add(&c->s->joined, 1) == size - 1)
        shm_unlink(id.internal);
    *out = c;
    return OK;
}

int ncclCommDestroy(void *comm)
{
    struct comm *c = comm;
    c->destroyed = true;
    unmap(c);
    return OK;
}
int ncclCommAbort(void *comm)
{
    struct comm *c = comm;
    struct driver d;
    c->aborted = true;
    if (c->users && !find_driver(&d))
        d.run(c->stream); /* after this nothing of it is queued */
    return ncclCommDestroy(comm);
}
int ncclCommGetAsyncError(void *comm, int *e)
{
    *e = OK;
    return comm ? OK : INVALID;
}
const char *ncclGetErrorString(int e)
{
    return e == OK ? "no error" : e == INTERNAL ? "internal error" : "invalid argument";
}

/* ---- the runtime, as far as communicators call it ---- */

int cudaSetDevice(int d)
{
    return d < 0;
}
int cudaStreamCreateWithFlags(void **s, unsigned flags)
{
    (void)s, (void)flags;
    return 1; /* the stream is the backend's */
}
int cudaStreamSynchronize(void *s)
{
    return s == NULL;
}
int cudaStreamQuery(void *s)
{
    return s == NULL;
}
int cudaStreamDestroy(void *s)
{
    return s == NULL;
}
const char *cudaGetErrorString(int e)
{
    return e ? "invalid value" : "no error";
}
