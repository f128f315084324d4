/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of a queue (team.h). One word tells all about the call that is on: its round, how many
 * helpers may still join, and how many are inside. Joining is one compare-and-swap of it, so no
 * helper enters a call that has been closed, and one that comes late finds that and leaves.
 */
#include "config.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
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
#define MASK UINT64_C(0xffff)

struct lf_team {
    _Alignas(64) _Atomic uint64_t word;
    lf_member_fn *fn; /* of the round; written while nobody is inside */
    void *arg;
    int threads;
    int cpu;                        /* where the caller was when it made the call */
    int64_t spin;                   /* of the caller, nanoseconds */
    _Alignas(64) atomic_int asleep; /* helpers */
    atomic_int waits;               /* the caller: 1 while it sleeps */
    atomic_bool ends;
    pthread_mutex_t lock;
    pthread_cond_t work, over;
    int n; /* helpers */
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

/* Spins until the word is ready. Returns false when that takes longer than *limit, or when somebody
 * else wants the processor: whoever spins there holds up work, so it does so least from now on. */
static bool spin(struct lf_team *t, lf_ready_fn *ready, uint32_t last, int64_t *limit)
{
    const int64_t begin = now_ns();
    for (int64_t before = begin, now;; before = now) {
        for (int i = 0; i < 16; i++) {
            if (ready(atomic_load_explicit(&t->word, memory_order_acquire), last))
                return true;
            pause_briefly();
        }
        now = now_ns();
        if (now - before > TAKEN_AWAY)
            *limit = SPIN_LEAST;
        if (now - begin > *limit)
            return false;
    }
}

/* Waits until the word is ready or the team ends: spins and then sleeps on `cond`. *limit grows
 * where spinning was, or would have been, enough. */
static void await(struct lf_team *t, lf_ready_fn *ready, uint32_t last, int64_t *limit,
                  pthread_cond_t *cond, atomic_int *asleep)
{
    const int64_t begin = now_ns();
    if (!spin(t, ready, last, limit)) {
        pthread_mutex_lock(&t->lock);
        /* Either the other side sees that one sleeps, or this one sees the word: both are in the
         * single order of sequentially consistent accesses. */
        atomic_fetch_add(asleep, 1);
        while (!ready(atomic_load(&t->word), last) && !atomic_load(&t->ends))
            pthread_cond_wait(cond, &t->lock);
        atomic_fetch_sub(asleep, 1);
        pthread_mutex_unlock(&t->lock);
    }
    if (now_ns() - begin < LF_TEAM_SPIN)
        *limit = 2 * *limit < LF_TEAM_SPIN ? 2 * *limit : LF_TEAM_SPIN;
    else
        *limit = *limit / 2 > SPIN_LEAST ? *limit / 2 : SPIN_LEAST;
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
    /* Release: the caller sees what this member wrote. With `waits`, sequentially consistent:
     * either the caller sees nobody inside or this one sees that it waits. */
    const uint64_t before = atomic_fetch_sub(&t->word, 1);
    if (inside(before) == 1 && atomic_load(&t->waits)) {
        pthread_mutex_lock(&t->lock);
        pthread_cond_signal(&t->over);
        pthread_mutex_unlock(&t->lock);
    }
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
    int64_t limit = LF_TEAM_SPIN, moved = 0;
    role = HELPER;
    leave_place();
    while (!atomic_load_explicit(&t->ends, memory_order_relaxed)) {
        await(t, wanted, last, &limit, &t->work, &t->asleep);
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
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->ends, true);
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->n; i++)
        pthread_join(t->id[i], NULL);
    pthread_cond_destroy(&t->over);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* A team of as many helpers as the system gives, or NULL. */
static struct lf_team *team_new(int threads)
{
    const size_t bytes = sizeof(struct lf_team) + (size_t)threads * sizeof(pthread_t);
    struct lf_team *t = threads - 1 <= (int)MASK ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
    if (!t)
        return NULL;
    atomic_init(&t->word, 0);
    atomic_init(&t->asleep, 0);
    atomic_init(&t->waits, 0);
    t->spin = LF_TEAM_SPIN;
    atomic_init(&t->ends, false);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    pthread_cond_init(&t->over, NULL);
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

/* A helper that holds the lock is about to sleep, or just awake, and may have been stopped there.
 * Then nobody is woken: the caller can do without. */
static void wake(struct lf_team *t, int helpers)
{
    if (atomic_load(&t->asleep) == 0 || pthread_mutex_trylock(&t->lock) != 0)
        return;
    if (helpers >= atomic_load(&t->asleep))
        pthread_cond_broadcast(&t->work);
    else
        for (int i = 0; i < helpers; i++)
            pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
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
    wake(t, threads - 1);
    role = CALLER;
    fn(arg, 0);
    role = OUTSIDE;
    if (inside(atomic_fetch_and(&t->word, ~(MASK << PLACES))) > 0)
        await(t, nobody_inside, 0, &t->spin, &t->over, &t->waits);
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
