/* SPDX-License-Identifier: Apache-2.0
 *
 * The watchdog's thread, its connections and the end of the job. The judgement is in watch_judge.c,
 * the start-up exchange in watch_net.c.
 *
 * On a connection, after (key, rank): rank to rank 0 fixed-size heartbeats; rank 0 to rank single
 * bytes: h alive, p tell me at once, g goodbye, a abort (the rest needs no reading).
 */
#include "config.h"

#include "engine/comm/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/cause.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/comm/watch_net.h"
#include "engine/comm/watch_priv.h"

#define BEAT_S  1.0
#define TICK_MS 250
#define GAP_S   5.0 /* a longer pause of our own thread is taken off all waits */
#define MOURN_S 0.4 /* after a death: time to hear in which collective the others wait */
#define LAST_S  3   /* patience with the launcher when the job is being ended */

struct link {
    int fd;         /* -1: none */
    double heard;   /* monotonic time */
    double lost_at; /* 0: not lost */
    size_t have;    /* bytes of an unfinished heartbeat, or of the greeting */
    bool known;     /* greeted */
    union {
        struct lf_beat beat;
        struct lf_watch_hello hello;
    } in;
    struct lf_beat last; /* last complete heartbeat */
};

struct lf_watch {
    struct lf_comm_job *job;
    int rank, size;
    double patience_s;
    void (*fatal)(void *, const char *);
    void *fatal_arg;

    pthread_mutex_t lock; /* of now, t_state, t_still */
    struct lf_beat now;
    double t_state, t_still;
    atomic_ulong moved;
    unsigned long moved_seen;

    pthread_t thread;
    bool running;
    int wake; /* eventfd: stop */
    int listen_fd;
    struct lf_watch_hello hello;
    struct link *link;  /* rank 0: [size], by rank once greeted; others: [1], rank 0 */
    struct link *guest; /* rank 0: [size] connections that have not greeted */
    struct pollfd *poll;
    struct lf_beat_row *row; /* rank 0 */
    double last_beat, last_loop;
    bool left;  /* others: rank 0 said goodbye */
    bool dying; /* others: rank 0 ends the job */
};

/* ---- notes of the working thread ---- */

static void set_state(lf_watch *w, enum lf_beat_state s)
{
    w->now.state = s;
    w->t_state = w->t_still = lf_now_s();
}

void lf_watch_enter(lf_watch *w, const char *what, struct lf_watch_of of, uint64_t seq)
{
    pthread_mutex_lock(&w->lock);
    set_state(w, LF_BEAT_COLLECTIVE);
    w->now.id = of.id;
    w->now.lead = of.lead;
    w->now.seq = seq;
    snprintf(w->now.what, sizeof w->now.what, "%s", what);
    pthread_mutex_unlock(&w->lock);
}

void lf_watch_leave(lf_watch *w)
{
    pthread_mutex_lock(&w->lock);
    set_state(w, LF_BEAT_COMPUTE);
    pthread_mutex_unlock(&w->lock);
}

void lf_watch_progress(lf_watch *w)
{
    if (w)
        atomic_fetch_add_explicit(&w->moved, 1, memory_order_relaxed);
}

void lf_watch_step(lf_watch *w, int64_t step)
{
    pthread_mutex_lock(&w->lock);
    w->now.step = step;
    w->now.micro = 0;
    pthread_mutex_unlock(&w->lock);
}

void lf_watch_pass(lf_watch *w, int32_t micro, bool backward)
{
    pthread_mutex_lock(&w->lock);
    w->now.micro = micro;
    w->now.backward = backward;
    pthread_mutex_unlock(&w->lock);
}

void lf_watch_phase(lf_watch *w, const char *name, double limit_s)
{
    pthread_mutex_lock(&w->lock);
    set_state(w, name ? LF_BEAT_PHASE : LF_BEAT_COMPUTE);
    w->now.limit_s = limit_s;
    if (name)
        snprintf(w->now.what, sizeof w->now.what, "%s", name);
    pthread_mutex_unlock(&w->lock);
}

/* The heartbeat of this moment. */
static struct lf_beat beat_now(lf_watch *w, double t)
{
    unsigned long moved = atomic_load_explicit(&w->moved, memory_order_relaxed);
    pthread_mutex_lock(&w->lock);
    if (moved != w->moved_seen) {
        w->moved_seen = moved;
        w->t_still = t;
    }
    struct lf_beat b = w->now;
    b.since_s = t - w->t_state;
    b.still_s = t - w->t_still;
    pthread_mutex_unlock(&w->lock);
    return b;
}

static void forgive(lf_watch *w, double gap)
{
    pthread_mutex_lock(&w->lock);
    w->t_state += gap;
    w->t_still += gap;
    pthread_mutex_unlock(&w->lock);
    for (int r = 0; r < (w->rank == 0 ? w->size : 1); r++)
        w->link[r].heard += gap;
}

/* ---- the end ---- */

static void *last_resort(void *arg)
{
    (void)arg;
    sleep(LAST_S);
    _exit(LF_COMM_EXIT);
}

/* Say it, let the launcher end everybody, and end. A launcher that does not answer does not keep
 * us. */
static void end_job(lf_watch *w, const char *cls, const char *text)
{
    pthread_t t;
    char line[1200];
    if (w->fatal) {
        w->fatal(w->fatal_arg, text);
    } else {
        int n = snprintf(line, sizeof line, "%s\n", text);
        if (n > 0 && write(2, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1) < 0)
            errno = 0; /* nobody listens: the exit code remains */
    }
    pthread_create(&t, NULL, last_resort, NULL);
    lf_cause_say(LF_CAUSE_WATCH, cls, text);
    lf_boot_abort(w->job->boot, LF_COMM_EXIT, text);
    sleep(LAST_S);
    _exit(LF_COMM_EXIT);
}

void lf_watch_end(lf_watch *w, const char *text)
{
    end_job(w, "rank", text);
}

static void drop(struct link *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}

/* Small messages to a peer that reads; one that does not is found out by its silence. */
static void tell(struct link *l, const void *data, size_t n)
{
    if (l->fd >= 0 && send(l->fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN &&
        errno != EWOULDBLOCK)
        shutdown(l->fd, SHUT_RDWR);
}

static void tell_all(lf_watch *w, char byte)
{
    for (int r = 1; r < w->size; r++)
        tell(&w->link[r], &byte, 1);
}

/* One that cannot be heard: the node, unless the judge is on the same one, which then is well. */
static const char *silence_of(const lf_watch *w, int r)
{
    return w->job->peer[r].boot == w->job->peer[w->rank].boot ? "rank" : "node";
}

/* ---- rank 0 ---- */

static void judge(lf_watch *w, double t)
{
    char text[1100];
    for (int r = 0; r < w->size; r++) {
        struct link *l = &w->link[r];
        w->row[r] = (struct lf_beat_row){.beat = r ? l->last : beat_now(w, t),
                                         .unheard_s = r ? t - l->heard : 0,
                                         .lost = l->lost_at != 0 && t - l->lost_at > MOURN_S};
        if (l->lost_at != 0 && !w->row[r].lost)
            return; /* first hear the others */
    }
    const int r = lf_watch_judge(w->row, w->job->peer, w->size, w->patience_s, text, sizeof text);
    if (r < 0)
        return;
    tell_all(w, 'a');
    end_job(w,
            w->row[r].unheard_s > w->patience_s / 2 && !w->row[r].lost ? silence_of(w, r) : "rank",
            text);
}

static void rank_ended(lf_watch *w, struct link *l, double t)
{
    drop(l);
    if (l->last.state != LF_BEAT_GONE && l->lost_at == 0) {
        l->lost_at = t;
        tell_all(w, 'p');
    }
}

/* Bytes of a heartbeat or a greeting. false: the connection ended. */
static bool read_link(struct link *l, size_t want)
{
    ssize_t n = recv(l->fd, (char *)&l->in + l->have, want - l->have, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    l->have += (size_t)n;
    return n > 0;
}

static void read_rank(lf_watch *w, struct link *l, double t)
{
    if (!read_link(l, sizeof l->in.beat)) {
        rank_ended(w, l, t);
    } else if (l->have == sizeof l->in.beat) {
        l->have = 0;
        l->last = l->in.beat;
        l->last.what[sizeof l->last.what - 1] = '\0';
        l->heard = t;
    }
}

static void read_guest(lf_watch *w, struct link *g, double t)
{
    const struct lf_watch_hello *h = &g->in.hello;
    if (!read_link(g, sizeof *h) || t - g->heard > 10) {
        drop(g);
        return;
    }
    if (g->have < sizeof *h)
        return;
    if (!lf_watch_hello_is(h, &w->hello) || h->rank < 1 || h->rank >= w->size ||
        w->link[h->rank].known) {
        drop(g);
        return;
    }
    struct link *l = &w->link[h->rank];
    l->fd = g->fd;
    l->heard = t;
    l->known = true;
    g->fd = -1;
}

static void take_guest(lf_watch *w, double t)
{
    int fd = accept4(w->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    for (int i = 0; fd >= 0 && i < w->size; i++) {
        if (w->guest[i].fd >= 0)
            continue;
        w->guest[i] = (struct link){.fd = fd, .heard = t};
        return;
    }
    if (fd >= 0)
        close(fd);
}

/* Poll set: stop, listener, ranks 1.., guests. */
static int fill_poll(lf_watch *w)
{
    int n = 0;
    w->poll[n++] = (struct pollfd){.fd = w->wake, .events = POLLIN};
    w->poll[n++] = (struct pollfd){.fd = w->listen_fd, .events = POLLIN};
    for (int r = 1; r < w->size; r++)
        w->poll[n++] = (struct pollfd){.fd = w->link[r].fd, .events = POLLIN};
    for (int i = 0; i < w->size; i++)
        w->poll[n++] = (struct pollfd){.fd = w->guest[i].fd, .events = POLLIN};
    return n;
}

static void serve(lf_watch *w, double t)
{
    for (int r = 1; r < w->size; r++)
        if (w->poll[1 + r].revents)
            read_rank(w, &w->link[r], t);
    for (int i = 0; i < w->size; i++)
        if (w->poll[1 + w->size + i].revents || (w->guest[i].fd >= 0 && t - w->guest[i].heard > 10))
            read_guest(w, &w->guest[i], t);
    if (w->poll[1].revents)
        take_guest(w, t);
    if (t - w->last_beat >= BEAT_S) {
        w->last_beat = t;
        tell_all(w, 'h');
    }
    judge(w, t);
}

/* ---- the other ranks ---- */

static void send_beat(lf_watch *w, double t)
{
    struct lf_beat b = beat_now(w, t);
    w->last_beat = t;
    tell(&w->link[0], &b, sizeof b);
}

static void root_failed(lf_watch *w, const char *cls, const char *what, double t)
{
    char where[200], text[700];
    struct lf_beat b = beat_now(w, t);
    lf_watch_where(&b, where, sizeof where);
    double delay = 0.2 * (w->rank - 1);
    usleep((useconds_t)((delay < 2 ? delay : 2) * 1e6)); /* the lowest rank speaks first */
    snprintf(text, sizeof text, "rank 0 (host %s, pid %lld) %s; rank %d is %s",
             w->job->peer[0].host, (long long)w->job->peer[0].pid, what, w->rank, where);
    end_job(w, cls, text);
}

static void hear_root(lf_watch *w, double t)
{
    char buf[64];
    struct link *l = &w->link[0];
    ssize_t n = recv(l->fd, buf, sizeof buf, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (n <= 0) {
        drop(l);
        if (!w->left && !w->dying)
            root_failed(w, "rank", "died", t);
        return;
    }
    l->heard = t;
    for (ssize_t i = 0; i < n; i++) {
        if (buf[i] == 'p')
            send_beat(w, t);
        w->left = w->left || buf[i] == 'g';
        if (buf[i] == 'a' && !w->dying) {
            w->dying = true;
            pthread_t last;
            pthread_create(&last, NULL, last_resort, NULL); /* the launcher is quicker */
        }
    }
}

static void follow(lf_watch *w, double t)
{
    if (w->poll[1].revents)
        hear_root(w, t);
    if (w->dying)
        return;
    if (w->left) {
        struct lf_beat b = beat_now(w, t);
        if (b.state == LF_BEAT_COLLECTIVE && b.still_s > w->patience_s)
            root_failed(w, "rank", "has ended its work", t);
        return;
    }
    if (t - w->link[0].heard > w->patience_s / 2)
        root_failed(w, silence_of(w, 0), "has not been heard of (stopped, or its node is)", t);
    if (t - w->last_beat >= BEAT_S)
        send_beat(w, t);
}

/* ---- the thread ---- */

static void *watch_main(void *arg)
{
    lf_watch *w = arg;
    w->last_loop = lf_now_s();
    for (;;) {
        int n = 2;
        if (w->rank == 0) {
            n = fill_poll(w);
        } else {
            w->poll[0] = (struct pollfd){.fd = w->wake, .events = POLLIN};
            w->poll[1] = (struct pollfd){.fd = w->link[0].fd, .events = POLLIN};
        }
        int got = poll(w->poll, (nfds_t)n, TICK_MS);
        double t = lf_now_s();
        if (got < 0)
            for (int i = 0; i < n; i++)
                w->poll[i].revents = 0;
        if (t - w->last_loop > GAP_S)
            forgive(w, t - w->last_loop);
        w->last_loop = t;
        if (got > 0 && w->poll[0].revents)
            return NULL;
        if (w->rank == 0)
            serve(w, t);
        else
            follow(w, t);
    }
}

static int start(lf_watch *w, lf_err *err)
{
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->wake < 0)
        return lf_fail_errno(err, "the watchdog cannot start");
    double t = lf_now_s();
    for (int r = 0; r < (w->rank == 0 ? w->size : 1); r++)
        w->link[r].heard = t;
    sigset_t all, old;
    sigfillset(&all); /* signals are the working thread's */
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int e = pthread_create(&w->thread, NULL, watch_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e)
        return lf_fail(err, LF_ENOMEM, "the watchdog's thread cannot start: %s", strerror(e));
    w->running = true;
    return 0;
}

static int allocate(lf_watch *w, lf_err *err)
{
    const size_t p = (size_t)w->size;
    w->link = lf_calloc(p, sizeof *w->link, err);
    w->guest = lf_calloc(p, sizeof *w->guest, err);
    w->row = lf_calloc(p, sizeof *w->row, err);
    w->poll = lf_calloc(2 + 2 * p, sizeof *w->poll, err);
    if (!w->link || !w->guest || !w->row || !w->poll)
        return LF_ENOMEM;
    for (size_t r = 0; r < p; r++)
        w->link[r] = w->guest[r] = (struct link){.fd = -1, .last = {.step = -1}};
    return 0;
}

lf_watch *lf_watch_create(struct lf_comm_job *job, double patience_s,
                          void (*fatal)(void *, const char *), void *fatal_arg, lf_err *err)
{
    lf_watch *w = lf_calloc(1, sizeof *w, err);
    if (!w)
        return NULL;
    *w = (lf_watch){.job = job,
                    .rank = lf_boot_info(job->boot)->rank,
                    .size = lf_boot_info(job->boot)->size,
                    .patience_s = patience_s,
                    .fatal = fatal,
                    .fatal_arg = fatal_arg,
                    .wake = -1,
                    .listen_fd = -1};
    pthread_mutex_init(&w->lock, NULL);
    w->now.step = -1;
    set_state(w, LF_BEAT_COMPUTE);
    int rc = allocate(w, err);
    if (rc == 0)
        rc = lf_watch_net_meet(job, patience_s > 0, &w->listen_fd, &w->hello, &w->link[0].fd, err);
    if (rc == 0 && patience_s > 0)
        rc = start(w, err);
    if (rc != 0) {
        lf_watch_destroy(w);
        return NULL;
    }
    return w;
}

static void say_goodbye(lf_watch *w)
{
    if (w->rank == 0) {
        tell_all(w, 'g');
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->now.state = LF_BEAT_GONE;
    pthread_mutex_unlock(&w->lock);
    send_beat(w, lf_now_s());
}

void lf_watch_destroy(lf_watch *w)
{
    if (!w)
        return;
    if (w->running) {
        const uint64_t one = 1;
        if (write(w->wake, &one, sizeof one) != sizeof one)
            LF_BUG("the watchdog's event descriptor is full");
        pthread_join(w->thread, NULL);
        say_goodbye(w);
    }
    for (int r = 0; w->link && r < w->size; r++)
        drop(&w->link[r]);
    for (int r = 0; w->guest && r < w->size; r++)
        drop(&w->guest[r]);
    if (w->wake >= 0)
        close(w->wake);
    if (w->listen_fd >= 0)
        close(w->listen_fd);
    free(w->link);
    free(w->guest);
    free(w->row);
    free(w->poll);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
