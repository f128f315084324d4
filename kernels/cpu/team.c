/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of a queue (team.h). One word tells all about the call that is on: its round, how many
 * helpers may still join, and how many are inside. Joining is one compare-and-swap of it, so no
 * helper enters a call that has been closed, and one that comes late finds that and leaves.
 */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

enum {
    PLACES = 16, /* bits below: helpers inside; from here: places that are free; then the round */
    ROUND = 32
};
/* Nanoseconds: for how long a thread spins at least; after which time between two looks at the
 * clock the system must have let others have its processor; how often a helper moves at most. */
enum { SPIN_LEAST = 10000, TAKEN_AWAY = 300000, MOVE_EVERY = 20000000 };
enum { CALM = 64 }; /* waits for which a processor must have stayed before its thread spins more */
#define MASK UINT64_C(0xffff)

/* Where threads sleep. There is no lock that a thread could be stopped with: whoever goes to sleep
 * counts itself, whoever wakes takes some from that count and gives as many tokens. So there is
 * exactly one token for each that was counted and did not withdraw. */
struct bed {
    _Alignas(64) atomic_int asleep; /* without a token */
    sem_t tokens;
};

/* For how long a thread spins, nanoseconds. */
struct pace {
    int64_t limit;
    int calm; /* waits since it lost its processor, to CALM */
};

struct lf_team {
    _Alignas(64) _Atomic uint64_t word;
    lf_member_fn *fn; /* of the round; written while nobody is inside */
    void *arg;
    int threads;
    int cpu;          /* where the caller was when it made the call */
    struct pace pace; /* of the caller */
    atomic_bool ends;
    struct bed work, over; /* helpers without a call; the caller until nobody is inside */
    int n;                 /* helpers */
    pthread_t id[];
};

enum { OUTSIDE, CALLER, HELPER };
static _Thread_local int role = OUTSIDE;

bool lf_team_helps(void)
{
    return role == HELPER;
}

static int places(uint64_t word)
{
    return (int)(word >> PLACES & MASK);
}
static int inside(uint64_t word)
{
    return (int)(word & MASK);
}
static uint32_t round_of(uint64_t word)
{
    return (uint32_t)(word >> ROUND);
}

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- waiting ---- */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* What a thread waits for; a helper tells the round that it was in last. */
typedef bool lf_ready_fn(uint64_t word, uint32_t last);

/* Is there a call that a helper may join? */
static bool wanted(uint64_t word, uint32_t last)
{
    return places(word) > 0 && round_of(word) != last;
}

static bool nobody_inside(uint64_t word, uint32_t last)
{
    (void)last;
    return inside(word) == 0;
}

/* Spins until the word is ready. Returns false when that takes longer than the limit, or when
 * somebody else wants the processor: whoever spins there holds up work, so it does so least, until
 * it has kept its processor for a number of waits. */
static bool spin(struct lf_team *t, lf_ready_fn *ready, uint32_t last, struct pace *p)
{
    const int64_t begin = now_ns();
    bool taken = false, is = false;
    for (int64_t before = begin, now = begin; !is && now - begin <= p->limit; before = now) {
        for (int i = 0; i < 16 && !is; i++) {
            is = ready(atomic_load_explicit(&t->word, memory_order_acquire), last);
            if (!is)
                pause_briefly();
        }
        now = now_ns();
        if (now - before > TAKEN_AWAY) {
            *p = (struct pace){SPIN_LEAST, 0};
            taken = true;
        }
    }
    if (!taken && p->calm < CALM)
        p->calm++;
    return is;
}

/* Is there what a thread sleeps for? Either whoever brings it sees that one sleeps, or this one
 * sees the word: both are in the single order of sequentially consistent accesses. */
static bool up(struct lf_team *t, lf_ready_fn *ready, uint32_t last)
{
    return ready(atomic_load(&t->word), last) || atomic_load(&t->ends);
}

/* One that was counted does not sleep after all. Returns false when all that were have tokens. */
static bool withdraw(struct bed *b)
{
    int n = atomic_load(&b->asleep);
    while (n > 0)
        if (atomic_compare_exchange_weak(&b->asleep, &n, n - 1))
            return true;
    return false;
}

static void sleep_until(struct lf_team *t, lf_ready_fn *ready, uint32_t last, struct bed *b)
{
    while (!up(t, ready, last)) {
        atomic_fetch_add(&b->asleep, 1);
        if (up(t, ready, last) && withdraw(b))
            return;
        while (sem_wait(&b->tokens) != 0 && errno == EINTR)
            ;
    }
}

/* Wakes up to `most` of those that sleep. */
static void wake(struct bed *b, int most)
{
    int asleep = atomic_load(&b->asleep), n;
    do {
        n = asleep < most ? asleep : most;
        if (n == 0)
            return;
    } while (!atomic_compare_exchange_weak(&b->asleep, &asleep, asleep - n));
    for (int i = 0; i < n; i++)
        sem_post(&b->tokens);
}

/* Waits until the word is ready or the team ends: spins and then sleeps. The limit grows where
 * spinning was, or would have been, enough, unless the processor was taken away not long ago. */
static void await(struct lf_team *t, lf_ready_fn *ready, uint32_t last, struct pace *p,
                  struct bed *b)
{
    const int64_t begin = now_ns();
    if (!spin(t, ready, last, p))
        sleep_until(t, ready, last, b);
    if (now_ns() - begin >= LF_TEAM_SPIN)
        p->limit = p->limit / 2 > SPIN_LEAST ? p->limit / 2 : SPIN_LEAST;
    else if (p->calm == CALM)
        p->limit = 2 * p->limit < LF_TEAM_SPIN ? 2 * p->limit : LF_TEAM_SPIN;
}

/* ---- helpers ---- */

/* Joins the call of `word`. Returns the member's number, or 0 when it is full, closed or over. */
static int join(struct lf_team *t, uint64_t *word, uint32_t last)
{
    while (wanted(*word, last))
        /* acquire: what the caller wrote before it opened the call */
        if (atomic_compare_exchange_weak_explicit(&t->word, word,
                                                  *word - (UINT64_C(1) << PLACES) + 1,
                                                  memory_order_acquire, memory_order_relaxed))
            return t->threads - places(*word);
    return 0;
}

static void leave(struct lf_team *t)
{
    /* Release: the caller sees what this member wrote. */
    const uint64_t before = atomic_fetch_sub(&t->word, 1);
    if (inside(before) == 1)
        wake(&t->over, 1);
}

/* Where OMP_PROC_BIND asks for it, OpenMP binds the thread that used it first to one of its places,
 * and helpers that this thread starts begin there. They may have the processors of all places. */
static void leave_place(void)
{
    enum { MOST_PROCS = 1024 };
    const int places = omp_get_proc_bind() == omp_proc_bind_false ? 0 : omp_get_num_places();
    int procs[MOST_PROCS];
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < places; i++) {
        const int n = omp_get_place_num_procs(i);
        if (n > MOST_PROCS)
            return;
        omp_get_place_proc_ids(i, procs);
        for (int k = 0; k < n; k++)
            CPU_SET((size_t)procs[k], &set); /* which leaves out what has no room in the set */
    }
    if (CPU_COUNT(&set) > 0)
        pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/* A helper on the processor of its caller only takes turns with it. The system leaves it there as
 * long as all other processors have work of others; then it asks for its share of one of those. */
static void leave_caller(const struct lf_team *t, int64_t *moved)
{
    cpu_set_t all, others;
    const int cpu = sched_getcpu();
    if (cpu < 0 || cpu != t->cpu || now_ns() - *moved < MOVE_EVERY ||
        sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    *moved = now_ns();
    others = all;
    CPU_CLR((size_t)cpu, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
        sched_setaffinity(0, sizeof all, &all);
}

static void *helper_main(void *arg)
{
    struct lf_team *t = arg;
    uint32_t last = 0;
    struct pace pace = {LF_TEAM_SPIN, CALM};
    int64_t moved = 0;
    role = HELPER;
    leave_place();
    while (!atomic_load_explicit(&t->ends, memory_order_relaxed)) {
        await(t, wanted, last, &pace, &t->work);
        uint64_t word = atomic_load_explicit(&t->word, memory_order_relaxed);
        const int member = join(t, &word, last);
        if (member == 0)
            continue;
        last = round_of(word);
        leave_caller(t, &moved);
        t->fn(t->arg, member);
        leave(t);
    }
    return NULL;
}

/* ---- the team ---- */

void lf_team_end(struct lf_team *t)
{
    if (!t)
        return;
    atomic_store(&t->ends, true);
    wake(&t->work, INT_MAX);
    for (int i = 0; i < t->n; i++)
        pthread_join(t->id[i], NULL);
    sem_destroy(&t->over.tokens);
    sem_destroy(&t->work.tokens);
    free(t);
}

static void bed_init(struct bed *b)
{
    atomic_init(&b->asleep, 0);
    sem_init(&b->tokens, 0, 0); /* which fails for greater values alone */
}

/* A team of as many helpers as the system gives, or NULL. */
static struct lf_team *team_new(int threads)
{
    const size_t bytes = sizeof(struct lf_team) + (size_t)threads * sizeof(pthread_t);
    struct lf_team *t = threads - 1 <= (int)MASK ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
    if (!t)
        return NULL;
    atomic_init(&t->word, 0);
    t->pace = (struct pace){LF_TEAM_SPIN, CALM};
    atomic_init(&t->ends, false);
    bed_init(&t->work);
    bed_init(&t->over);
    for (t->n = 0; t->n < threads - 1; t->n++)
        if (pthread_create(&t->id[t->n], NULL, helper_main, t) != 0)
            break;
    return t;
}

static struct lf_team *team_of(lf_queue *q)
{
    if (!q->team)
        q->team = team_new(q->threads);
    return q->team && q->team->n > 0 ? q->team : NULL;
}

void lf_team_call(lf_queue *q, int threads, lf_member_fn *fn, void *arg)
{
    struct lf_team *t = threads > 1 && role == OUTSIDE ? team_of(q) : NULL;
    if (!t) {
        fn(arg, 0);
        return;
    }
    t->fn = fn;
    t->arg = arg;
    t->threads = threads;
    t->cpu = sched_getcpu();
    const uint64_t round = round_of(atomic_load_explicit(&t->word, memory_order_relaxed)) + 1;
    atomic_store(&t->word, (uint64_t)(uint32_t)round << ROUND | (uint64_t)(threads - 1) << PLACES);
    wake(&t->work, threads - 1);
    role = CALLER;
    fn(arg, 0);
    role = OUTSIDE;
    if (inside(atomic_fetch_and(&t->word, ~(MASK << PLACES))) > 0)
        await(t, nobody_inside, 0, &t->pace, &t->over);
}

/* ---- pieces ---- */

struct deal {
    lf_queue *q;
    int64_t n, most, next;
    lf_piece_fn *fn;
    const void *arg;
};

static void take_pieces(void *arg, int member)
{
    struct deal *d = arg;
    const int64_t pieces = (d->n + d->most - 1) / d->most;
    for (int64_t i = lf_take(&d->next); i < pieces; i = lf_take(&d->next)) {
        const int64_t lo = i * d->most, rest = d->n - lo;
        if (member == 0)
            lf_border(d->q);
        d->fn(d->q, d->arg, lo, lo + (rest < d->most ? rest : d->most));
    }
}

void lf_deal(lf_queue *q, int threads, int64_t n, int64_t most, lf_piece_fn *fn, const void *arg)
{
    struct deal d = {.q = q, .n = n, .most = most, .fn = fn, .arg = arg};
    if (n > 0)
        lf_team_call(q, n > most ? threads : 1, take_pieces, &d);
}
