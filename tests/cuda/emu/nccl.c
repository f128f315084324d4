/* SPDX-License-Identifier: Apache-2.0
 *
 * A library in place of libnccl and libcudart, for ranks that are processes with emulated GPUs:
 * LF_NCCL_LIB and LF_CUDART_LIB name it, LF_CUDA_DRIVER its driver. Sums of f32, f64 and
 * i64 in rank order, for all or for one, broadcasts, gathers, messages.
 *
 * A collective gives this rank's part to the others when it is queued, as early as the API allows:
 * what its stream was not made to wait for is not in it. What it will write is NaN from then on. It
 * ends as late as the driver runs queues, and waits there until the others have come. Parts lie in
 * shared memory that the id names. Calls of a group are queued when the outermost one ends.
 *
 * A message holds its stream on both sides, as in NCCL: what is behind a send runs when the
 * receive has begun on the other rank's stream, what is behind a receive when its bytes are here.
 * Messages of a group begin together and end together. From the begin of a receive what it will
 * write is NaN. While one stream waits, those that can go on do; a process in which none can sleeps
 * until another rank of what it waits for has come on, or a millisecond.
 *
 * Mistakes that NCCL answers with a hang or wrong numbers end the process here, with a line: ranks
 * that make different calls or give a message different sizes, ranks that use two communicators in
 * different order, two ranks that wait for messages of each other.
 *
 * FAKE_NCCL_FAIL=n[:rank]: the n-th collective (from 1) is refused (on that rank). What waits for
 * such a rank ends with NaN: here a host that queues a call may run those before it, and a real one
 * is not held up by the GPU. FAKE_NCCL_VERSION: the version it says, such as 21705; before 21800 it
 * makes no parts of communicators.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 8, SLOTS = 64, BOXES = 32, PART = 64 << 10, PATIENCE_S = 120 };
enum { INT8 = 0, INT64 = 4, FLOAT32 = 7, FLOAT64 = 8 };
enum { OK = 0, INTERNAL = 3, INVALID = 4 };
enum { EVERYBODY = -1 }; /* gives, or takes; else the root alone */
enum { COMMS = 16, GROUPED = 512, SPLITS = 16 };
#define SUSPECT_S 0.05 /* from where a wait is told to the others, and as long again asked about */

typedef struct {
    char internal[128];
} id_type;

/* What a rank says of a call: what it is, and how many collectives of each of its other
 * communicators came before. */
struct note {
    size_t bytes, total; /* of a part, of the whole call */
    int type, from, to;
    struct {
        char id[64];
        unsigned long calls;
    } before[COMMS];
};

/* What a rank waits for: that `rank` of a communicator gives its part of a call, sends a part of a
 * message, begins to receive one, or takes one. */
enum what { GIVES, SENDS, BEGINS, TAKES };
struct waiting {
    atomic_int on;
    char id[64];
    enum what what;
    int rank, me;
    unsigned long number;
};

/* Zero at first. */
struct shared {
    atomic_int joined, broken;
    atomic_uint bell;  /* moves whenever a rank has come on */
    atomic_int asleep; /* processes that wait for it; those that were killed too */
    struct waiting waiting[RANKS];
    atomic_ulong given[RANKS], taken[RANKS]; /* calls so far */
    struct note note[RANKS][SLOTS];
    char part[RANKS][SLOTS][PART];
    /* parts of this communicator: of which a rank is in the n-th time */
    atomic_ulong splits[RANKS];
    struct {
        int color, key;
    } split[RANKS][SPLITS];
    /* messages from rank to rank, in parts: sent, to be received, taken */
    atomic_ulong sent[RANKS][RANKS], begun[RANKS][RANKS], got[RANKS][RANKS];
    struct note label[RANKS][RANKS][BOXES];
    char box[RANKS][RANKS][BOXES][PART];
};

struct comm {
    struct shared *s;
    char id[64];
    int rank, size, users;
    unsigned long calls, failed_at, sending[RANKS], receiving[RANKS]; /* queued */
    bool aborted, destroyed;
    unsigned long splits;
};
static struct comm *made[COMMS]; /* of this process, alive */

struct call { /* of at most PART bytes, or all of a message */
    struct comm *c;
    void *data;
    const void *in; /* of a send */
    unsigned long number;
    struct note n;
};

struct driver {
    int (*run)(void *stream);
    int (*call)(void *stream, bool (*ready)(void *), void (*f)(void *), void *user, bool soon);
    bool (*go_on)(void *stream, bool quietly);
};

/* Of the library that is the driver, which stays loaded. Asked for once: every wait needs it. */
static int find_driver(struct driver *d)
{
    static struct driver found;
    const char *path = found.run ? NULL : getenv("LF_CUDA_DRIVER");
    void *h = path ? dlopen(path, RTLD_NOW) : NULL, *run = h ? dlsym(h, "lf_emu_run_queue") : NULL,
         *call = h ? dlsym(h, "lf_emu_host_call_when") : NULL,
         *go_on = h ? dlsym(h, "lf_emu_go_on") : NULL;
    if (run && call && go_on) {
        memcpy(&found.run, &run, sizeof run);
        memcpy(&found.call, &call, sizeof call);
        memcpy(&found.go_on, &go_on, sizeof go_on);
    }
    *d = found;
    return found.run ? OK : INTERNAL;
}

/* ---- sleeping ---- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* This rank has come on: who sleeps looks again. */
static void ring(struct shared *s)
{
    atomic_fetch_add(&s->bell, 1);
    if (atomic_load(&s->asleep) > 0)
        syscall(SYS_futex, &s->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Sleeps unless the bell has moved since it was `heard`; not for long, since other streams may wait
 * for ranks of other communicators. */
static void sleep_since(struct shared *s, unsigned heard)
{
    const struct timespec most = {.tv_nsec = 1000000};
    atomic_fetch_add(&s->asleep, 1);
    syscall(SYS_futex, &s->bell, FUTEX_WAIT, heard, &most, NULL, 0);
    atomic_fetch_sub(&s->asleep, 1);
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
    if (mine->total != n->total && mine->from != EVERYBODY && mine->to != EVERYBODY)
        differ(c, rank, "give a message different sizes");
    if (mine->bytes != n->bytes || mine->total != n->total || mine->type != n->type ||
        mine->from != n->from || mine->to != n->to)
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

/* How far `rank` of a communicator has come with what `me` waits for. */
static atomic_ulong *progress_of(struct shared *s, enum what what, int rank, int me)
{
    switch (what) {
    case GIVES:
        return &s->given[rank];
    case SENDS:
        return &s->sent[rank][me];
    case BEGINS:
        return &s->begun[me][rank];
    case TAKES:
        break;
    }
    return &s->got[me][rank];
}

/* The rank that this one waits for waits for this one, which has nothing else to do. */
static void look(const struct comm *c, enum what what, int rank)
{
    const struct waiting *w = &c->s->waiting[rank];
    for (int i = 0; i < COMMS && atomic_load(&w->on); i++) {
        const struct comm *o = made[i];
        if (!o || strcmp(o->id, w->id) != 0 || w->rank != o->rank ||
            atomic_load(progress_of(o->s, w->what, o->rank, w->me)) >= w->number)
            continue;
        if (o == c && (what != GIVES || w->what != GIVES))
            differ(c, rank, "wait for messages of each other");
        if (o != c)
            differ(c, rank, "use their communicators in different order");
    }
}

struct wait {
    const struct comm *c;
    enum what what;
    int rank; /* of whom */
    unsigned long calls;
};

static bool over(const struct wait *w)
{
    return w->c->aborted || atomic_load(&w->c->s->broken) ||
           atomic_load(progress_of(w->c->s, w->what, w->rank, w->c->rank)) >= w->calls;
}

/* A wait that lasts is told to the others, and a while later they are asked whom they wait for. */
static void suspect(const struct wait *w, bool *told)
{
    struct waiting said = {.what = w->what, .rank = w->rank, .me = w->c->rank, .number = w->calls};
    memcpy(said.id, w->c->id, sizeof said.id);
    if (*told)
        look(w->c, w->what, w->rank);
    else
        publish(&said);
    *told = !*told;
}

/* In the first 30 of each 100 ms no other stream computes. */
static bool is_patient(double waited_s)
{
    return (long)(1e3 * waited_s) % 100 < 30;
}

/* Other streams go on meanwhile; with what computes when that did not help for a while. */
static void wait_for(const struct wait *w)
{
    struct driver d;
    const bool there = find_driver(&d) == OK;
    double begin = 0, now = 0, next = 0;
    bool told = false;
    for (unsigned heard; heard = atomic_load(&w->c->s->bell), !over(w);) {
        now = now_s();
        if (begin == 0) {
            begin = now;
            next = now + SUSPECT_S;
        }
        if (now > begin + PATIENCE_S) {
            fprintf(stderr, "emulated NCCL: rank %d did not come to call %lu\n", w->rank, w->calls);
            abort();
        }
        if (there && d.go_on(NULL, is_patient(now - begin)))
            continue;
        if (now >= next && !over(w)) {
            suspect(w, &told);
            next = now + SUSPECT_S;
        }
        sleep_since(w->c->s, heard);
    }
    if (next > begin + SUSPECT_S)
        publish(&(struct waiting){.number = 0});
}

/* Has what was waited for come? */
static bool came(const struct wait *w)
{
    return !w->c->aborted &&
           atomic_load(progress_of(w->c->s, w->what, w->rank, w->c->rank)) >= w->calls;
}

/* ---- what is done on the "device" ---- */

static void leave(struct comm *c)
{
    c->users--;
    unmap(c);
}

static bool takes_from(const struct call *x, int r)
{
    return (x->n.from == EVERYBODY || x->n.from == r) &&
           (x->n.to == EVERYBODY || x->n.to == x->c->rank);
}

static bool end_ready(void *user)
{
    const struct call *x = user;
    bool ready = true;
    for (int r = 0; r < x->c->size && ready; r++)
        ready = !takes_from(x, r) || over(&(struct wait){x->c, GIVES, r, x->number + 1});
    return ready;
}

static void end(void *user)
{
    const struct call *x = user;
    struct comm *c = x->c;
    const size_t slot = x->number % SLOTS;
    for (int r = 0; r < c->size; r++) {
        const struct wait w = {c, GIVES, r, x->number + 1};
        if (!takes_from(x, r))
            continue;
        wait_for(&w);
        if (!came(&w))
            break;
        compare(c, r, &x->n, &c->s->note[r][slot]);
        const char *part = c->s->part[r][slot];
        if (x->n.from != EVERYBODY || r == 0)
            memcpy(x->data, part, x->n.bytes);
        else
            add(x->data, part, x->n.bytes, x->n.type);
    }
    atomic_store(&c->s->taken[c->rank], x->number + 1);
    ring(c->s);
    leave(c);
}

/* A part of a send: into a box that is free. */
static struct wait box_of(const struct call *x)
{
    return (struct wait){x->c, TAKES, x->n.to, x->number < BOXES ? 0 : x->number - BOXES + 1};
}
static bool give_ready(void *user)
{
    const struct wait w = box_of(user);
    return over(&w);
}
static void give(void *user)
{
    const struct call *x = user;
    struct comm *c = x->c;
    struct shared *s = c->s;
    const size_t box = x->number % BOXES;
    const struct wait w = box_of(x);
    wait_for(&w);
    memcpy(s->box[c->rank][x->n.to][box], x->in, x->n.bytes);
    s->label[c->rank][x->n.to][box] = x->n;
    atomic_store(&s->sent[c->rank][x->n.to], x->number + 1);
    ring(s);
    leave(c);
}

/* The end of a send: its receive has begun. */
static bool end_send_ready(void *user)
{
    const struct call *x = user;
    return over(&(struct wait){x->c, BEGINS, x->n.to, x->number});
}
static void end_send(void *user)
{
    const struct call *x = user;
    wait_for(&(struct wait){x->c, BEGINS, x->n.to, x->number});
    leave(x->c);
}

static bool always(void *user)
{
    return user != NULL;
}
static void begin_receive(void *user)
{
    const struct call *x = user;
    memset(x->data, 0xff, x->n.total);
    atomic_store(&x->c->s->begun[x->n.from][x->c->rank], x->number);
    ring(x->c->s);
    leave(x->c);
}

static bool receive_ready(void *user)
{
    const struct call *x = user;
    return over(&(struct wait){x->c, SENDS, x->n.from, x->number + 1});
}
static void end_receive(void *user)
{
    const struct call *x = user;
    struct comm *c = x->c;
    const int from = x->n.from, me = c->rank;
    const struct wait w = {c, SENDS, from, x->number + 1};
    wait_for(&w);
    if (came(&w)) {
        compare(c, from, &x->n, &c->s->label[from][me][x->number % BOXES]);
        memcpy(x->data, c->s->box[from][me][x->number % BOXES], x->n.bytes);
    }
    atomic_store(&c->s->got[from][me], x->number + 1);
    ring(c->s);
    leave(c);
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
        if (made[i]) {
            atomic_store(&made[i]->s->broken, 1);
            ring(made[i]->s);
        }
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
    /* messages: the number of its first part; parts of its group that go before */
    unsigned long first, after;
};

static size_t part_at(size_t bytes, size_t at)
{
    return bytes - at < PART ? bytes - at : PART;
}

static struct note note_of(const struct made_call *m, size_t at)
{
    struct note n = {.bytes = part_at(m->bytes, at),
                     .total = m->bytes,
                     .type = m->type,
                     .from = m->from,
                     .to = m->to};
    take_note(m->c, &n);
    return n;
}

struct kind {
    bool (*ready)(void *);
    void (*run)(void *);
};

/* Byte `at` of a call. */
static int push(const struct made_call *m, const struct kind *k, size_t at, unsigned long number,
                const struct driver *d)
{
    struct call *x = malloc(sizeof *x);
    if (!x)
        return INTERNAL;
    *x = (struct call){.c = m->c, .number = number, .n = note_of(m, at)};
    if (m->what == SEND)
        x->in = m->in + at;
    else
        x->data = m->data + at;
    m->c->users++;
    return d->call(m->stream, k->ready, k->run, x, m->what != COLLECTIVE) ? INTERNAL : OK;
}

/* A part of a collective ends later; until then what it writes is NaN. */
static int queue_collective(const struct made_call *m, const struct driver *d)
{
    static const struct kind ends = {end_ready, end};
    struct comm *c = m->c;
    int rc = OK;
    for (size_t at = 0; at < m->bytes && rc == OK; at += PART) {
        /* more under way than is held here: run what is queued */
        for (unsigned heard; heard = atomic_load(&c->s->bell), !slot_free(c);) {
            if (d->run(m->stream))
                return INTERNAL;
            sleep_since(c->s, heard);
        }
        const unsigned long number = c->calls;
        const size_t slot = number % SLOTS;
        if (m->from == EVERYBODY || m->from == c->rank)
            memcpy(c->s->part[c->rank][slot], m->in + at, part_at(m->bytes, at));
        c->s->note[c->rank][slot] = note_of(m, at);
        if (m->to == EVERYBODY || m->to == c->rank)
            memset(m->data + at, 0xff, part_at(m->bytes, at));
        rc = push(m, &ends, at, number, d);
        c->calls++;
        atomic_store(&c->s->given[c->rank], c->calls);
        ring(c->s);
    }
    return rc;
}

static unsigned long parts_of(const struct made_call *m)
{
    return (m->bytes + PART - 1) / PART;
}

/* Numbers of parts follow each other from rank to rank. */
static void number(struct made_call *m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct comm *c = m[i].c;
        if (m[i].what == COLLECTIVE)
            continue;
        unsigned long *next = m[i].what == SEND ? &c->sending[m[i].to] : &c->receiving[m[i].from];
        m[i].after = 0;
        for (size_t k = 0; k < i; k++)
            if (m[k].c == c && m[k].what == m[i].what && m[k].from == m[i].from &&
                m[k].to == m[i].to)
                m[i].after += parts_of(&m[k]);
        m[i].first = *next;
        *next += parts_of(&m[i]);
    }
}

/* The part that a message has in this turn of its group. */
static int queue_part(const struct made_call *m, unsigned long turn, const struct driver *d)
{
    static const struct kind gives = {give_ready, give}, receives = {receive_ready, end_receive};
    const unsigned long part = turn - m->after;
    if (m->what == COLLECTIVE || turn < m->after || part >= parts_of(m))
        return OK;
    return push(m, m->what == SEND ? &gives : &receives, part * PART, m->first + part, d);
}

static int queue_parts(const struct made_call *m, size_t n, const struct driver *d)
{
    unsigned long turns = 0;
    int rc = OK;
    for (size_t i = 0; i < n; i++)
        if (m[i].what != COLLECTIVE && m[i].after + parts_of(&m[i]) > turns)
            turns = m[i].after + parts_of(&m[i]);
    for (unsigned long turn = 0; turn < turns; turn++)
        for (int send = 1; send >= 0; send--)
            for (size_t i = 0; i < n && rc == OK; i++)
                if ((m[i].what == SEND) == send)
                    rc = queue_part(&m[i], turn, d);
    return rc;
}

/* A send begins before its call returns: a host that queues nothing more may wait for others, and a
 * GPU sends meanwhile. */
static int begin_send(const struct made_call *m, const struct driver *d)
{
    const struct comm *c = m->c;
    d->go_on(m->stream, true); /* without what it was not made to wait for */
    double begin = 0;
    for (unsigned heard;
         heard = atomic_load(&c->s->bell), atomic_load(&c->s->sent[c->rank][m->to]) <= m->first;) {
        const double now = now_s();
        begin = begin == 0 ? now : begin;
        if (c->aborted || atomic_load(&c->s->broken))
            return OK;
        if (now > begin + PATIENCE_S)
            return INTERNAL;
        if (!d->go_on(NULL, false))
            sleep_since(c->s, heard);
    }
    return OK;
}

/* Messages of a group go on together, part by part, since boxes are few: receives begin, then the
 * parts of all, those that are sent first, and sends end. */
static int queue_messages(struct made_call *m, size_t n, const struct driver *d)
{
    static const struct kind begins = {always, begin_receive}, ends = {end_send_ready, end_send};
    int rc = OK;
    number(m, n);
    for (size_t i = 0; i < n && rc == OK; i++)
        if (m[i].what == RECEIVE)
            rc = push(&m[i], &begins, 0, m[i].first + parts_of(&m[i]), d);
    if (rc == OK)
        rc = queue_parts(m, n, d);
    for (size_t i = 0; i < n && rc == OK; i++)
        if (m[i].what == SEND)
            rc = push(&m[i], &ends, 0, m[i].first + parts_of(&m[i]), d);
    for (size_t i = 0; i < n && rc == OK; i++)
        if (m[i].what == RECEIVE)
            d->go_on(m[i].stream, true);
        else if (m[i].what == SEND)
            rc = begin_send(&m[i], d);
    return rc;
}

/* Everything before a collective on its stream has run when it is queued, and what the others of
 * the group write is not there yet. */
static int queue_calls(struct made_call *m, size_t n)
{
    struct driver d;
    int rc = find_driver(&d);
    for (size_t i = 0; i < n && rc == OK; i++)
        rc = planted(m[i].c) || (m[i].what == COLLECTIVE && d.run(m[i].stream)) ? INTERNAL : OK;
    if (rc == OK)
        rc = queue_messages(m, n, &d);
    for (size_t i = 0; i < n && rc == OK; i++)
        if (m[i].what == COLLECTIVE)
            rc = queue_collective(&m[i], &d);
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
    if (!depth) {
        struct made_call one = *m;
        return queue_calls(&one, 1);
    }
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
    return make_call(&(struct made_call){.what = COLLECTIVE,
                                         .c = comm,
                                         .in = in,
                                         .data = data,
                                         .bytes = bytes,
                                         .type = type,
                                         .from = from,
                                         .to = to,
                                         .stream = stream});
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
static int message(const struct made_call *m, int peer)
{
    return m->c && m->type == INT8 && peer >= 0 && peer < m->c->size ? make_call(m) : INVALID;
}
int ncclSend(const void *s, size_t n, int type, int peer, void *comm, void *stream)
{
    struct comm *c = comm;
    return message(&(struct made_call){.what = SEND,
                                       .c = c,
                                       .in = s,
                                       .data = comm, /* not used */
                                       .bytes = n,
                                       .type = type,
                                       .from = c ? c->rank : 0,
                                       .to = peer,
                                       .stream = stream},
                   peer);
}
int ncclRecv(void *r, size_t n, int type, int peer, void *comm, void *stream)
{
    struct comm *c = comm;
    return message(&(struct made_call){.what = RECEIVE,
                                       .c = c,
                                       .data = r,
                                       .bytes = n,
                                       .type = type,
                                       .from = peer,
                                       .to = c ? c->rank : 0,
                                       .stream = stream},
                   peer);
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

static int join(struct comm **out, const char *id, int rank, int size, int flags)
{
    struct driver d;
    struct comm *c = calloc(1, sizeof *c);
    int at = 0, fd = c && size <= RANKS && find_driver(&d) == OK ? shm_open(id, flags, 0600) : -1;
    void *m = fd < 0 || ftruncate(fd, sizeof *c->s)
                  ? MAP_FAILED
                  : mmap(NULL, sizeof *c->s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    while (at < COMMS && made[at])
        at++;
    if (m == MAP_FAILED || at == COMMS) {
        free(c);
        return INTERNAL;
    }
    *c = (struct comm){.s = m, .rank = rank, .size = size};
    snprintf(c->id, sizeof c->id, "%s", id);
    made[at] = c;
    if (atomic_fetch_add(&c->s->joined, 1) == size - 1)
        shm_unlink(id);
    *out = c;
    return OK;
}

int ncclGetVersion(int *version)
{
    const char *s = getenv("FAKE_NCCL_VERSION");
    *version = s && *s ? atoi(s) : 21805;
    return OK;
}

int ncclCommInitRank(void **out, int size, id_type id, int rank)
{
    struct comm *c;
    const int rc = join(&c, id.internal, rank, size, O_RDWR);
    if (rc == OK)
        *out = c;
    return rc;
}

static bool has_parts(void)
{
    int version;
    return ncclGetVersion(&version) == OK && version >= 21800;
}

/* ncclConfig_t of 2.18. Nothing is shared here. */
struct config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
};

int ncclCommInitRankConfig(void **out, int size, id_type id, int rank, const struct config *o)
{
    if (!has_parts() || o->size != sizeof *o || o->magic != 0xcafebeef || o->version != 21800)
        return INVALID;
    return ncclCommInitRank(out, size, id, rank);
}

/* Every rank has said which part it is in. */
static bool all_split(const struct comm *c)
{
    const double end = now_s() + PATIENCE_S;
    for (int r = 0; r < c->size; r++)
        for (unsigned heard;
             heard = atomic_load(&c->s->bell), atomic_load(&c->s->splits[r]) < c->splits;) {
            if (now_s() > end || atomic_load(&c->s->broken))
                return false;
            sleep_since(c->s, heard);
        }
    return true;
}

int ncclCommSplit(void *comm, int color, int key, void **out, const struct config *o)
{
    struct comm *c = comm, *part;
    char id[96];
    int size = 0, me = 0;
    if (!has_parts() || !c || o)
        return INVALID;
    const unsigned long n = c->splits++;
    c->s->split[c->rank][n % SPLITS].color = color;
    c->s->split[c->rank][n % SPLITS].key = key;
    atomic_store(&c->s->splits[c->rank], n + 1);
    ring(c->s);
    if (!all_split(c))
        return INTERNAL;
    for (int r = 0; r < c->size; r++) {
        const int k = c->s->split[r][n % SPLITS].key;
        if (c->s->split[r][n % SPLITS].color != color)
            continue;
        size++;
        me += k < key || (k == key && r < c->rank);
    }
    *out = NULL;
    if (color < 0)
        return OK;
    snprintf(id, sizeof id, "%s-%lu-%d", c->id, n, color);
    const int rc = join(&part, id, me, size, O_RDWR | O_CREAT);
    if (rc == OK)
        *out = part;
    return rc;
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
