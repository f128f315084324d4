/* SPDX-License-Identifier: Apache-2.0
 *
 * A library in place of libnccl and libcudart, for ranks that are processes with emulated GPUs:
 * LF_NCCL_LIB and LF_CUDART_LIB name it, LF_CUDA_DRIVER its driver. Sums of f32, f64 and
 * i64 in rank order, for all or for one, broadcasts, gathers, messages.
 *
 * A call gives this rank's part to the others when it is queued, as early as the API allows: what
 * its stream was not made to wait for is not in it. What it will write is NaN from then on. It ends
 * as late as the driver runs queues, and waits there until the others have come. Parts lie in
 * shared memory that the id names. Calls of a group are queued when the outermost one ends.
 *
 * Two mistakes that NCCL answers with a hang or wrong numbers end the process here, with a line:
 * ranks that make different calls, and ranks that use two communicators in different order.
 *
 * FAKE_NCCL_FAIL=n[:rank]: the n-th collective (from 1) is refused (on that rank). What waits for
 * such a rank ends with NaN: here a host that queues a call may run those before it, and a real one
 * is not held up by the GPU.
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
enum { COMMS = 8, GROUPED = 512 };

typedef struct {
    char internal[128];
} id_type;

/* What a rank says of a call: what it is, and how many collectives of each of its other
 * communicators came before. */
struct note {
    size_t bytes;
    int type, from, to;
    struct {
        char id[64];
        unsigned long calls;
    } before[COMMS];
};

/* What a rank waits for: that `rank` of a communicator gives its part of a call, or a message. */
struct waiting {
    atomic_int on;
    char id[64];
    bool message;
    int rank, me;
    unsigned long number;
};

/* Zero at first. */
struct shared {
    atomic_int joined, broken;
    struct waiting waiting[RANKS];
    atomic_ulong given[RANKS], taken[RANKS]; /* calls so far */
    struct note note[RANKS][SLOTS];
    char part[RANKS][SLOTS][PART];
    /* messages from rank to rank */
    atomic_ulong sent[RANKS][RANKS], got[RANKS][RANKS];
    struct note label[RANKS][RANKS][BOXES];
    char box[RANKS][RANKS][BOXES][PART];
};

struct comm {
    struct shared *s;
    char id[64];
    int rank, size, users;
    unsigned long calls, failed_at, received[RANKS];
    bool aborted, destroyed;
};
static struct comm *made[COMMS]; /* of this process, alive */

struct call { /* of at most PART bytes */
    struct comm *c;
    void *data;
    unsigned long number;
    struct note n;
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

/* ---- do all ranks do the same? ---- */

static void take_note(const struct comm *c, struct note *n)
{
    for (int i = 0, k = 0; i < COMMS; i++)
        if (made[i] && made[i] != c) {
            memcpy(n->before[k].id, made[i]->id, sizeof made[i]->id);
            n->before[k++].calls = made[i]->calls;
        }
}

_Noreturn static void differ(const struct comm *c, int rank, const char *what)
{
    fprintf(stderr, "emulated NCCL: ranks %d and %d of %s %s\n", c->rank, rank, c->id, what);
    abort();
}

static void compare(const struct comm *c, int rank, const struct note *mine, const struct note *n)
{
    if (mine->bytes != n->bytes || mine->type != n->type || mine->from != n->from ||
        mine->to != n->to)
        differ(c, rank, "make different calls");
    for (int i = 0; i < COMMS && mine->before[i].id[0]; i++)
        for (int k = 0; k < COMMS && n->before[k].id[0]; k++)
            if (strcmp(mine->before[i].id, n->before[k].id) == 0 &&
                mine->before[i].calls != n->before[k].calls)
                differ(c, rank, "use their communicators in different order");
}

/* ---- waiting ---- */

static void publish(const struct waiting *w)
{
    for (int i = 0; i < COMMS; i++)
        if (made[i]) {
            struct waiting *to = &made[i]->s->waiting[made[i]->rank];
            *to = *w;
            atomic_store(&to->on, w->number > 0);
        }
}

/* The rank that this one waits for waits for this one, in another communicator. */
static void look(const struct comm *c, int rank)
{
    const struct waiting *w = &c->s->waiting[rank];
    for (int i = 0; i < COMMS && atomic_load(&w->on); i++) {
        const struct comm *o = made[i];
        if (!o || o == c || strcmp(o->id, w->id) != 0 || w->rank != o->rank)
            continue;
        const unsigned long so_far = w->message ? atomic_load(&o->s->sent[o->rank][w->me])
                                                : atomic_load(&o->s->given[o->rank]);
        if (so_far < w->number)
            differ(c, rank, "use their communicators in different order");
    }
}

static void wait_for(const struct comm *c, atomic_ulong *done, int rank, unsigned long calls,
                     bool message)
{
    struct waiting w = {.message = message, .rank = rank, .me = c->rank, .number = calls};
    memcpy(w.id, c->id, sizeof w.id);
    for (long i = 0; atomic_load(done) < calls && !c->aborted && !atomic_load(&c->s->broken); i++) {
        if (i % 1000 == 500)
            publish(&w);
        if (i % 1000 == 999)
            look(c, rank);
        if (i == (long)PATIENCE_S * 10000) {
            fprintf(stderr, "emulated NCCL: rank %d did not come to call %lu\n", rank, calls);
            abort();
        }
        usleep(100);
    }
    publish(&(struct waiting){.number = 0});
}

/* Has what was waited for come? */
static bool came(const struct comm *c, atomic_ulong *done, unsigned long calls)
{
    return !c->aborted && atomic_load(done) >= calls;
}

/* ---- what is done on the "device" ---- */

static void end(void *user)
{
    const struct call *x = user;
    struct comm *c = x->c;
    const size_t slot = x->number % SLOTS;
    for (int r = 0; r < c->size; r++) {
        if ((x->n.from != EVERYBODY && x->n.from != r) ||
            (x->n.to != EVERYBODY && x->n.to != c->rank))
            continue;
        wait_for(c, &c->s->given[r], r, x->number + 1, false);
        if (!came(c, &c->s->given[r], x->number + 1))
            break;
        compare(c, r, &x->n, &c->s->note[r][slot]);
        const char *part = c->s->part[r][slot];
        if (x->n.from != EVERYBODY || r == 0)
            memcpy(x->data, part, x->n.bytes);
        else
            add(x->data, part, x->n.bytes, x->n.type);
    }
    atomic_store(&c->s->taken[c->rank], x->number + 1);
    c->users--;
    unmap(c);
}

static void end_receive(void *user)
{
    const struct call *x = user;
    struct comm *c = x->c;
    const int from = x->n.from, me = c->rank;
    wait_for(c, &c->s->sent[from][me], from, x->number + 1, true);
    if (came(c, &c->s->sent[from][me], x->number + 1)) {
        compare(c, from, &x->n, &c->s->label[from][me][x->number % BOXES]);
        memcpy(x->data, c->s->box[from][me][x->number % BOXES], x->n.bytes);
    }
    atomic_store(&c->s->got[from][me], x->number + 1);
    c->users--;
    unmap(c);
}

/* ---- queueing ---- */

static bool planted(struct comm *c)
{
    const char *s = getenv("FAKE_NCCL_FAIL");
    char *rest;
    if (!s || !*s)
        return false;
    const unsigned long at = strtoul(s, &rest, 10);
    if (++c->failed_at != at || (*rest == ':' && strtol(rest + 1, NULL, 10) != c->rank))
        return false;
    for (int i = 0; i < COMMS; i++)
        if (made[i])
            atomic_store(&made[i]->s->broken, 1);
    return true;
}

/* The slot is free when everybody has taken what lay there. */
static bool slot_free(const struct comm *c)
{
    for (int r = 0; r < c->size; r++)
        if (atomic_load(&c->s->taken[r]) + SLOTS <= c->calls)
            return atomic_load(&c->s->broken);
    return true;
}

/* A call as it was made. */
struct made_call {
    enum { COLLECTIVE, SEND, RECEIVE } what;
    struct comm *c;
    const char *in;
    char *data;
    size_t bytes;
    int type, from, to;
    void *stream;
};

static size_t part_at(size_t bytes, size_t at)
{
    return bytes - at < PART ? bytes - at : PART;
}

static struct note note_of(const struct made_call *m, size_t at)
{
    struct note n = {.bytes = part_at(m->bytes, at), .type = m->type, .from = m->from, .to = m->to};
    take_note(m->c, &n);
    return n;
}

/* The part of a call at byte `at` ends later; until then what it writes is NaN. */
static int push(const struct made_call *m, size_t at, unsigned long number, const struct driver *d)
{
    struct call *x = malloc(sizeof *x);
    if (!x)
        return INTERNAL;
    *x = (struct call){m->c, m->data + at, number, note_of(m, at)};
    if (m->to == EVERYBODY || m->to == m->c->rank)
        memset(x->data, 0xff, x->n.bytes);
    m->c->users++;
    return d->call(m->stream, m->what == RECEIVE ? end_receive : end, x, 0) ? INTERNAL : OK;
}

static int queue_collective(const struct made_call *m, const struct driver *d)
{
    struct comm *c = m->c;
    int rc = OK;
    for (size_t at = 0; at < m->bytes && rc == OK; at += PART) {
        while (!slot_free(c)) { /* more under way than is held here: run what is queued */
            if (d->run(m->stream))
                return INTERNAL;
            usleep(100);
        }
        const unsigned long number = c->calls;
        const size_t slot = number % SLOTS;
        if (m->from == EVERYBODY || m->from == c->rank)
            memcpy(c->s->part[c->rank][slot], m->in + at, part_at(m->bytes, at));
        c->s->note[c->rank][slot] = note_of(m, at);
        rc = push(m, at, number, d);
        c->calls++;
        atomic_store(&c->s->given[c->rank], c->calls);
    }
    return rc;
}

/* A message is given when it is sent, as far as there are boxes. */
static int queue_send(const struct made_call *m, const struct driver *d)
{
    struct comm *c = m->c;
    atomic_ulong *sent = &c->s->sent[c->rank][m->to], *got = &c->s->got[c->rank][m->to];
    for (size_t at = 0; at < m->bytes; at += PART) {
        while (atomic_load(sent) - atomic_load(got) == BOXES && !atomic_load(&c->s->broken)) {
            if (d->run(m->stream))
                return INTERNAL;
            usleep(100);
        }
        const size_t box = atomic_load(sent) % BOXES;
        memcpy(c->s->box[c->rank][m->to][box], m->in + at, part_at(m->bytes, at));
        c->s->label[c->rank][m->to][box] = note_of(m, at);
        atomic_fetch_add(sent, 1);
    }
    return OK;
}

static int queue_receive(const struct made_call *m, const struct driver *d)
{
    int rc = OK;
    for (size_t at = 0; at < m->bytes && rc == OK; at += PART)
        rc = push(m, at, m->c->received[m->from]++, d);
    return rc;
}

/* Everything before the call on its stream has run, and what the others of the group write is not
 * there yet. */
static int queue_calls(const struct made_call *m, size_t n)
{
    struct driver d;
    int rc = find_driver(&d);
    for (size_t i = 0; i < n && rc == OK; i++)
        rc = planted(m[i].c) || d.run(m[i].stream) ? INTERNAL : OK;
    for (size_t i = 0; i < n && rc == OK; i++)
        if (m[i].what == SEND)
            rc = queue_send(&m[i], &d);
    for (size_t i = 0; i < n && rc == OK; i++)
        if (m[i].what != SEND)
            rc = m[i].what == RECEIVE ? queue_receive(&m[i], &d) : queue_collective(&m[i], &d);
    return rc;
}

/* ---- groups ---- */

static struct made_call grouped[GROUPED];
static size_t n_grouped;
static int depth;

static int make_call(const struct made_call *m)
{
    const int t = m->type;
    if (!m->c || !m->data || !m->stream ||
        (t != INT8 && t != INT64 && t != FLOAT32 && t != FLOAT64) || n_grouped == GROUPED)
        return INVALID;
    if (!depth)
        return queue_calls(m, 1);
    grouped[n_grouped++] = *m;
    return OK;
}
int ncclGroupStart(void)
{
    depth++;
    return OK;
}
int ncclGroupEnd(void)
{
    const size_t n = n_grouped;
    if (!depth || --depth)
        return depth ? OK : INVALID;
    n_grouped = 0;
    return queue_calls(grouped, n);
}

/* ---- calls ---- */

static size_t size_of(int type)
{
    return type == INT8 ? 1 : type == FLOAT32 ? 4 : 8;
}

/* from, to: a rank, or everybody. */
static int queue(void *comm, const void *in, void *data, size_t bytes, int type, int from, int to,
                 void *stream)
{
    return make_call(
        &(struct made_call){COLLECTIVE, comm, in, data, bytes, type, from, to, stream});
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
    int rc = ncclGroupStart();
    for (int k = 0; c && rc == OK && k < ((struct comm *)c)->size; k++)
        rc = ncclReduce((const char *)s + (size_t)k * n * size_of(type), r, n, type, op, k, c,
                        stream);
    const int ended = ncclGroupEnd();
    return rc ? rc : ended;
}
int ncclAllGather(const void *s, void *r, size_t n, int type, void *c, void *stream)
{
    const struct comm *x = c;
    int rc = x && s == (char *)r + (size_t)x->rank * n && type == INT8 ? ncclGroupStart() : INVALID;
    if (rc)
        return rc;
    for (int k = 0; rc == OK && k < x->size; k++)
        rc = ncclBroadcast((char *)r + (size_t)k * n, (char *)r + (size_t)k * n, n, type, k, c,
                           stream);
    const int ended = ncclGroupEnd();
    return rc ? rc : ended;
}
/* A message to itself is one too. */
int ncclSend(const void *s, size_t n, int type, int peer, void *comm, void *stream)
{
    const struct comm *c = comm;
    char *unused = comm;
    return c && type == INT8 && peer >= 0 && peer < c->size
               ? make_call(
                     &(struct made_call){SEND, comm, s, unused, n, type, c->rank, peer, stream})
               : INVALID;
}
int ncclRecv(void *r, size_t n, int type, int peer, void *comm, void *stream)
{
    const struct comm *c = comm;
    return c && type == INT8 && peer >= 0 && peer < c->size
               ? make_call(
                     &(struct made_call){RECEIVE, comm, NULL, r, n, type, peer, c->rank, stream})
               : INVALID;
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
    memcpy(c->id, id.internal, sizeof c->id - 1); /* its name is shorter */
    int at = 0;
    while (at < COMMS && made[at])
        at++;
    if (at == COMMS)
        return INTERNAL;
    made[at] = c;
    if (atomic_fetch_add(&c->s->joined, 1) == size - 1)
        shm_unlink(id.internal);
    *out = c;
    return OK;
}

int ncclCommDestroy(void *comm)
{
    struct comm *c = comm;
    for (int i = 0; i < COMMS; i++)
        if (made[i] == c)
            made[i] = NULL;
    c->destroyed = true;
    unmap(c);
    return OK;
}
/* What is queued ends without the others when it runs; so this library stays loaded. */
int ncclCommAbort(void *comm)
{
    ((struct comm *)comm)->aborted = true;
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
