/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of a CPU queue (kernels/cpu/team.h): each piece is computed once, its results are
 * seen, helpers take part, sleep and are woken, and one that the system has stopped holds nobody
 * up. tests/op/team_race is the same program under ThreadSanitizer (LF_TEAM_RACE).
 */
#include "config.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/sys.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm_onednn.h"
#include "tests/tap/tap.h"

enum { MOST_THREADS = 8, ITEMS = 5000, CALLS = 400 };

#ifdef LF_TEAM_RACE
/* Only the queue and its threads are in that program. */
void lf_onednn_forget(lf_queue *q)
{
    (void)q;
}
#endif

/* ---- pieces ---- */

struct sums {
    int64_t *seen; /* plain memory: written by whoever takes the item, read by the caller */
    int64_t value;
};

static void add_value(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct sums *s = arg;
    (void)q;
    for (int64_t i = lo; i < hi; i++)
        s->seen[i] += s->value;
}

/* Calls of many sizes, one after the other, each on what the one before has written. */
static void pieces(int threads)
{
    lf_queue *q = lf_cpu_queue_create(threads);
    int64_t *seen = calloc(ITEMS, sizeof *seen), want = 0, bad = 0;
    for (int c = 0; c < CALLS && q && seen; c++) {
        const int64_t n = c % 3 ? ITEMS : ITEMS / 2;
        struct sums s = {seen, n == ITEMS ? c : 0};
        want += s.value;
        lf_deal(q, threads, n, 1 + c * 7 % 900, add_value, &s);
    }
    for (int64_t i = 0; i < ITEMS && seen; i++)
        bad += seen[i] != want;
    tap_ok(q && seen && bad == 0, "%d threads: %d calls, %lld of %d items wrong", threads, CALLS,
           (long long)bad, ITEMS);
    free(seen);
    lf_cpu_queue_destroy(q);
}

/* ---- members ---- */

struct members {
    lf_queue *q;
    int limit;
    int inside[MOST_THREADS]; /* members of that number at work */
    int bad, nested;
    pthread_t caller;
    int64_t next;
};

static void one_alone(void *arg, int member)
{
    __atomic_fetch_add((int *)arg, member == 0 ? 1 : 1000, __ATOMIC_RELAXED);
}

static void be_member(void *arg, int member)
{
    struct members *m = arg;
    const bool ours = pthread_equal(pthread_self(), m->caller);
    bool good = member >= 0 && member < m->limit && (member == 0) == ours &&
                lf_team_helps() == !ours && __atomic_fetch_add(&m->inside[member], 1, 5) == 0;
    while (lf_take(&m->next) < 50)
        ;
    int alone = 0;
    lf_team_call(m->q, m->limit, one_alone, &alone);
    good = good && alone == 1;
    __atomic_fetch_sub(&m->inside[member], 1, 5);
    if (!good)
        __atomic_fetch_add(&m->bad, 1, __ATOMIC_RELAXED);
}

static void numbers(void)
{
    int bad = 0;
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        lf_queue *q = lf_cpu_queue_create(threads);
        for (int c = 0; c < CALLS; c++) {
            struct members m = {.q = q, .limit = 1 + c % threads, .caller = pthread_self()};
            lf_team_call(q, m.limit, be_member, &m);
            bad += m.bad;
        }
        lf_cpu_queue_destroy(q);
    }
    tap_i64(bad, 0, "members have numbers below the limit, each one once; calls within are alone");
    tap_ok(!lf_team_helps(), "the caller is no helper");
}

/* ---- helpers ---- */

/* Seconds in which a helper must have come, as one does on any machine that gives it some time at
 * all. Only a queue whose callers do everything themselves lets them pass. */
enum { PATIENCE = 60 };

static void sleep_ms(int ms)
{
    usleep((useconds_t)ms * 1000);
}

struct meeting {
    double begin;
    int nap_ms; /* of the helper, while the caller is done already */
    int came, left;
    pthread_t helper;
};

/* The caller stays until the helper has come. */
static void meet(void *arg, int member)
{
    struct meeting *m = arg;
    if (member > 0) {
        m->helper = pthread_self();
        __atomic_store_n(&m->came, 1, __ATOMIC_RELEASE);
        sleep_ms(m->nap_ms);
        m->left = 1;
    } else
        while (!__atomic_load_n(&m->came, __ATOMIC_ACQUIRE) && lf_now_s() - m->begin < PATIENCE)
            usleep(100);
}

/* A call of two members. Returns whether a helper took part and was done at the end. */
static bool met(lf_queue *q, struct meeting *m)
{
    *m = (struct meeting){.begin = lf_now_s(), .nap_ms = m->nap_ms};
    lf_team_call(q, 2, meet, m);
    return m->came && m->left;
}

/* Longer than a helper spins, so it sleeps, most likely. */
enum { NAP_MS = 20, MEETINGS = 10 };

static void sleepers(void)
{
    lf_queue *q = lf_cpu_queue_create(2);
    struct meeting m = {.nap_ms = 0};
    int good = 0, n = 0;
    for (bool ok = true; ok && n < MEETINGS; n++, good += ok) {
        sleep_ms(NAP_MS);
        ok = met(q, &m);
    }
    tap_i64(good, MEETINGS, "helpers that sleep between calls take part in each");
    m.nap_ms = NAP_MS;
    good = 0, n = 0;
    for (bool ok = true; ok && n < MEETINGS; n++, good += ok)
        ok = met(q, &m);
    tap_i64(good, MEETINGS, "a caller that sleeps is woken when the last member has left");
    sleep_ms(NAP_MS);
    lf_cpu_queue_destroy(q);
    q = lf_cpu_queue_create(MOST_THREADS);
    m.nap_ms = 0;
    good = met(q, &m);
    sleep_ms(NAP_MS);
    lf_cpu_queue_destroy(q);
    tap_ok(good, "a queue ends whose helpers sleep");
}

struct shares {
    int64_t next, helped;
};

/* The caller stays for a while, but waits for nobody. */
static void help(void *arg, int member)
{
    struct shares *s = arg;
    while (lf_take(&s->next) < 8) {
        usleep(10);
        if (member > 0)
            __atomic_fetch_add(&s->helped, 1, __ATOMIC_RELAXED);
    }
}

static void helpers(void)
{
    lf_queue *q = lf_cpu_queue_create(4);
    int64_t helped = 0;
    const double begin = lf_now_s();
    for (int c = 0; c < CALLS || (helped == 0 && lf_now_s() - begin < PATIENCE); c++) {
        struct shares s = {0};
        lf_team_call(q, 4, help, &s);
        helped += s.helped;
    }
    tap_ok(helped > 0, "helpers take pieces: %lld", (long long)helped);
    lf_cpu_queue_destroy(q);
}

/* ---- a helper that is stopped ---- */

#ifndef LF_TEAM_RACE /* whose sanitizer brings no signal to a thread that waits */
static int gate[2];  /* what a stopped helper waits for */
static int stopped;

/* Only what may be called in a handler. */
static void stop_here(int sig)
{
    char c;
    (void)sig;
    __atomic_store_n(&stopped, 1, __ATOMIC_SEQ_CST);
    while (read(gate[0], &c, 1) < 0)
        ;
    __atomic_store_n(&stopped, 0, __ATOMIC_SEQ_CST);
}

/* With OpenMP, whose regions end when all threads have come, this would wait for ever. The helper
 * is stopped some time after its call: it spins or sleeps. */
static void held_up(int after_ms)
{
    lf_queue *q = lf_cpu_queue_create(2);
    struct meeting m = {.nap_ms = 0};
    struct sigaction act = {.sa_handler = stop_here}, before;
    int64_t *seen = calloc(ITEMS, sizeof *seen), bad = 0;
    const bool ready = q && seen && pipe(gate) == 0 && sigaction(SIGUSR1, &act, &before) == 0;
    if (!ready || !met(q, &m)) {
        tap_ok(false, "nothing to test with");
        tap_ok(false, "nothing to test with");
        return;
    }
    sleep_ms(after_ms);
    pthread_kill(m.helper, SIGUSR1);
    while (!__atomic_load_n(&stopped, __ATOMIC_SEQ_CST))
        usleep(100);
    for (int c = 0; c < CALLS; c++)
        lf_deal(q, 2, ITEMS, 100, add_value, &(struct sums){seen, 1});
    for (int64_t i = 0; i < ITEMS; i++)
        bad += seen[i] != CALLS;
    tap_ok(bad == 0 && __atomic_load_n(&stopped, __ATOMIC_SEQ_CST),
           "a helper that is stopped %d ms after a call holds nobody up", after_ms);
    tap_ok(write(gate[1], "", 1) == 1 && met(q, &m), "and takes part again when it goes on");
    lf_cpu_queue_destroy(q);
    sigaction(SIGUSR1, &before, NULL);
    close(gate[0]);
    close(gate[1]);
    free(seen);
}
#else
static void held_up(int after_ms)
{
    for (int i = 0; i < 2; i++)
        tap_ok(true, "a helper that is stopped after %d ms: in tests/op/team_test", after_ms);
}
#endif

/* ---- beginning and end ---- */

static void queues(void)
{
    int64_t sum = 0;
    for (int i = 0; i < 200; i++) {
        int64_t seen[64] = {0};
        lf_queue *q = lf_cpu_queue_create(1 + i % 4);
        for (int c = 0; c < i % 3; c++)
            lf_deal(q, 4, 64, 1, add_value, &(struct sums){seen, 1});
        for (int k = 0; k < 64; k++)
            sum += seen[k] - i % 3;
        lf_cpu_queue_destroy(q);
    }
    tap_i64(sum, 0, "200 queues begin and end, some without a call");
    lf_queue *q = lf_cpu_queue_create(3);
    lf_deal(q, 3, 0, 1, add_value, NULL);
    tap_ok(true, "no items, no call");
    lf_cpu_queue_destroy(q);
}

int main(void)
{
    for (int threads = 1; threads <= MOST_THREADS; threads *= 2)
        TAP(1, pieces(threads));
    TAP(2, numbers());
    TAP(3, sleepers());
    TAP(1, helpers());
    TAP(2, held_up(0));
    TAP(2, held_up(NAP_MS));
    TAP(2, queues());
    return tap_done();
}
