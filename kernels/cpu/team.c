/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of a queue (team.h). One word tells all about the call that is on: its round, how many
 * helpers may still join, and how many are inside. Joining is one compare-and-swap of it, so no
 * helper enters a call that has been closed, and one that comes late finds that and leaves.
 */
#include "config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

enum {
    PLACES = 16, /* bits below: helpers inside; from here: places that are free; then the round */
    ROUND = 32,
    SPIN_MOST = 2000, /* turns of some 20 to 50 ns */
    SPIN_LEAST = 50
};
#define MASK UINT64_C(0xffff)

struct lf_team {
    _Alignas(64) _Atomic uint64_t word;
    lf_member_fn *fn; /* of the round; written while nobody is inside */
    void *arg;
    int threads;
    _Alignas(64) atomic_int asleep; /* helpers */
    atomic_bool waits;              /* the caller */
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

/* ---- helpers ---- */

/* Is there a call that a helper which was last in round `last` may join? */
static bool wanted(uint64_t word, uint32_t last)
{
    return places(word) > 0 && round_of(word) != last;
}

/* Waits until a call wants a helper, or the team ends. *spin is for how long this one tries before
 * it sleeps: longer where a call came in time, shorter where it did not. */
static void await_call(struct lf_team *t, uint32_t last, int *spin)
{
    for (int i = 0; i < *spin; i++) {
        if (wanted(atomic_load_explicit(&t->word, memory_order_relaxed), last)) {
            *spin = 2 * *spin < SPIN_MOST ? 2 * *spin : SPIN_MOST;
            return;
        }
        pause_briefly();
    }
    *spin = *spin / 2 > SPIN_LEAST ? *spin / 2 : SPIN_LEAST;
    pthread_mutex_lock(&t->lock);
    /* Either the caller sees that one sleeps, or this one sees the call: both are in the single
     * order of sequentially consistent accesses. */
    atomic_fetch_add(&t->asleep, 1);
    while (!wanted(atomic_load(&t->word), last) && !atomic_load(&t->ends))
        pthread_cond_wait(&t->work, &t->lock);
    atomic_fetch_sub(&t->asleep, 1);
    pthread_mutex_unlock(&t->lock);
}

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

static void *helper_main(void *arg)
{
    struct lf_team *t = arg;
    uint32_t last = 0;
    int spin = SPIN_MOST;
    role = HELPER;
    while (!atomic_load_explicit(&t->ends, memory_order_relaxed)) {
        await_call(t, last, &spin);
        uint64_t word = atomic_load_explicit(&t->word, memory_order_relaxed);
        const int member = join(t, &word, last);
        if (member == 0)
            continue;
        last = round_of(word);
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
    atomic_init(&t->waits, false);
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
    for (int i = 0; i < helpers && i < atomic_load(&t->asleep); i++)
        pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
}

/* Until nobody is inside the call, which is closed. */
static void await_helpers(struct lf_team *t)
{
    for (int i = 0; i < SPIN_MOST; i++) {
        if (inside(atomic_load_explicit(&t->word, memory_order_acquire)) == 0)
            return;
        pause_briefly();
    }
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->waits, true);
    while (inside(atomic_load(&t->word)) > 0)
        pthread_cond_wait(&t->over, &t->lock);
    atomic_store(&t->waits, false);
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
    const uint64_t round = round_of(atomic_load_explicit(&t->word, memory_order_relaxed)) + 1;
    atomic_store(&t->word, (uint64_t)(uint32_t)round << ROUND | (uint64_t)(threads - 1) << PLACES);
    wake(t, threads - 1);
    role = CALLER;
    fn(arg, 0);
    role = OUTSIDE;
    if (inside(atomic_fetch_and(&t->word, ~(MASK << PLACES))) > 0)
        await_helpers(t);
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
