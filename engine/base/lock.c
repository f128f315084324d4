/* SPDX-License-Identifier: Apache-2.0
 *
 * The project lock. Numbers in brackets refer to the invariants in lock.h.
 */
#include "engine/base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/id.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"

enum { CLAIM_MAX = 4096 };
#define BREAK_TTL_S 60.0

struct lf_lock {
    char *path;
    char token[LF_TOKEN_SIZE];
    ino_t ino;
    dev_t dev;
    double beat_s;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool started, quit;
};

/* What a claim file says. */
struct claim {
    lf_proc_id proc;
    char token[LF_TOKEN_SIZE], purpose[128], user[64];
    double since;
    struct timespec mtime;
    bool
        /* no JSON at all: a crash took its text. A claim gets its name when it is whole, so nobody
         * is writing it. */
        torn;
};

static void copy_text(char *out, size_t cap, const char *s)
{
    snprintf(out, cap, "%s", s);
}

static char *claim_text(const char *token, const char *purpose, lf_err *err)
{
    lf_proc_id me;
    if (lf_proc_self(&me, err) < 0)
        return NULL;
    const struct passwd *pw = getpwuid(geteuid());
    json_t *o = json_pack("{s:i, s:s, s:s, s:I, s:I, s:I, s:s, s:s, s:f}", "lf_lock", 1, "host",
                          me.host, "boot_id", me.boot_id, "pid", (json_int_t)me.pid, "start",
                          (json_int_t)me.start, "pid_ns", (json_int_t)me.pid_ns, "token", token,
                          "user", pw ? pw->pw_name : "", "since", lf_wall_s());
    if (!o || json_object_set_new(o, "purpose", json_string(purpose)) < 0) {
        json_decref(o);
        lf_fail(err, LF_ENOMEM, "cannot write the lock's text");
        return NULL;
    }
    char *text = lf_json_dump(o, err);
    json_decref(o);
    return text;
}

static int parse_claim(struct claim *c, json_t *o, const char *path, lf_err *err)
{
    const char *host, *boot, *token, *user, *purpose;
    int64_t start, ns;
    int rc = 0;
    memset(c, 0, sizeof *c);
    if ((rc = lf_json_get_str(&host, o, "host", true, path, err)) < 0 ||
        (rc = lf_json_get_str(&boot, o, "boot_id", true, path, err)) < 0 ||
        (rc = lf_json_get_str(&token, o, "token", true, path, err)) < 0 ||
        (rc = lf_json_get_str(&user, o, "user", true, path, err)) < 0 ||
        (rc = lf_json_get_str(&purpose, o, "purpose", true, path, err)) < 0 ||
        (rc = lf_json_get_i64(&c->proc.pid, o, "pid", true, path, err)) < 0 ||
        (rc = lf_json_get_i64(&start, o, "start", true, path, err)) < 0 ||
        (rc = lf_json_get_i64(&ns, o, "pid_ns", true, path, err)) < 0 ||
        (rc = lf_json_get_f64(&c->since, o, "since", true, path, err)) < 0)
        return rc;
    c->proc.start = (uint64_t)start;
    c->proc.pid_ns = (uint64_t)ns;
    copy_text(c->proc.host, sizeof c->proc.host, host);
    copy_text(c->proc.boot_id, sizeof c->proc.boot_id, boot);
    copy_text(c->token, sizeof c->token, token);
    copy_text(c->user, sizeof c->user, user);
    copy_text(c->purpose, sizeof c->purpose, purpose);
    return 0;
}

/* The claim at path. LF_ENOENT: nobody holds it. */
static int read_claim(struct claim *c, const char *path, lf_err *err)
{
    struct stat st;
    json_t *o = lf_json_load_file(path, CLAIM_MAX, err);
    int rc = 0;
    c->torn = !o && err->rc == LF_EFORMAT;
    if (!o)
        rc = err->rc;
    else if ((rc = parse_claim(c, o, path, err)) == 0 && stat(path, &st) < 0)
        rc = lf_fail_errno(err, "cannot look at %s", path);
    else if (rc == 0)
        c->mtime = st.st_mtim;
    json_decref(o);
    if (rc == LF_EFORMAT)
        lf_err_prefix(err,
                      "the lock file is damaged; if no loong-flow runs in this project, remove it");
    return rc;
}

static void describe(char *text, size_t cap, const struct claim *c, const char *path)
{
    char when[21];
    snprintf(text, cap, "%s is held by %s@%s pid %lld (%s) since %s", path, c->user, c->proc.host,
             (long long)c->proc.pid, c->purpose[0] ? c->purpose : "no purpose given",
             lf_time_iso(when, c->since));
}

int lf_lock_holder(char *text, size_t cap, const char *path, lf_err *err)
{
    struct claim c;
    lf_err mine = LF_ERR_INIT;
    int rc = read_claim(&c, path, &mine);
    if (rc == LF_ENOENT)
        return 0;
    if (rc < 0)
        return lf_fail(err, rc, "%s", mine.text);
    describe(text, cap, &c, path);
    return 1;
}

bool lf_lock_held(const char *path)
{
    struct claim c;
    lf_err look = LF_ERR_INIT;
    return read_claim(&c, path, &look) == 0 && lf_proc_look(&c.proc) != LF_PROC_GONE;
}

/* [3] Age by the server's clock: probe is a file of ours in the same directory, touched now. */
static int age_of(double *age, const struct claim *c, const char *probe, lf_err *err)
{
    struct stat st;
    if (utimensat(AT_FDCWD, probe, NULL, 0) < 0 || stat(probe, &st) < 0)
        return lf_fail_errno(err, "cannot touch %s", probe);
    *age = (double)(st.st_mtim.tv_sec - c->mtime.tv_sec) +
           (double)(st.st_mtim.tv_nsec - c->mtime.tv_nsec) * 1e-9;
    return 0;
}

static int is_stale(bool *stale, const struct claim *c, double ttl_s, const char *probe,
                    lf_err *err)
{
    double age;
    int rc = 0;
    switch (lf_proc_look(&c->proc)) {
    case LF_PROC_GONE:
        *stale = true;
        break;
    case LF_PROC_ALIVE:
        *stale = false;
        break;
    default:
        rc = age_of(&age, c, probe, err);
        *stale = rc == 0 && age > ttl_s;
    }
    return rc;
}

/* Our claim under a name of our own, ready to be linked. */
static int write_probe(char **probe, const char *path, const char *token, const char *purpose,
                       lf_err *err)
{
    char name[LF_TOKEN_SIZE + 8];
    char *text = claim_text(token, purpose, err), *p = NULL;
    int rc = text ? 0 : LF_EIO;
    lf_buf b;
    lf_buf_init(&b);
    snprintf(name, sizeof name, ".%s.tmp", token);
    lf_buf_adds(&b, path);
    lf_buf_adds(&b, name);
    if (rc == 0 && !(p = lf_buf_steal(&b, err)))
        rc = LF_ENOMEM;
    /* Not synced: a claim need not outlive a crash, and one that a crash left without its text is
     * swept away. */
    if (rc == 0)
        rc = lf_io_write_file(p, text, strlen(text), 0644, err);
    if (rc == 0)
        *probe = p;
    else
        free(p);
    lf_buf_fini(&b);
    free(text);
    return rc;
}

/* [1] 1: claimed, 0: the name is taken. */
static int try_link(const char *probe, const char *path, lf_err *err)
{
    struct stat st;
    if (link(probe, path) == 0)
        return 1;
    int e = errno;
    /* An NFS server may have done it although the answer was lost. */
    if (stat(probe, &st) == 0 && st.st_nlink == 2)
        return 1;
    errno = e;
    return e == EEXIST ? 0 : lf_fail_errno(err, "cannot claim %s", path);
}

/* Take the dead breaker's claim away by rename and look again: a fresh one that came in between is
 * put back. */
static void sweep(const char *path, const char *token, const char *probe)
{
    struct claim c;
    lf_err look = LF_ERR_INIT;
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s.swept", probe);
    if (lf_buf_check(&b, NULL) == 0 && rename(path, b.data) == 0) {
        if (read_claim(&c, b.data, &look) == 0 && strcmp(c.token, token) != 0)
            (void)!link(b.data, path);
        unlink(b.data);
    }
    lf_buf_fini(&b);
}

/* [4] Remove the claim that holds `token`, under the claim path.break. 0 when the way may be free
 * now. */
static int break_claim(const char *path, const char *token, const char *probe, lf_err *err)
{
    struct claim c;
    bool stale = false;
    lf_err look = LF_ERR_INIT;
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s.break", path);
    int rc = lf_buf_check(&b, err);
    if (rc < 0)
        return rc;
    int got = try_link(probe, b.data, err);
    if (got < 0) {
        rc = got;
    } else if (got == 0) {
        /* Another breaker is at work; one that died there is swept aside. */
        if (read_claim(&c, b.data, &look) == 0 &&
            (rc = is_stale(&stale, &c, BREAK_TTL_S, probe, err)) == 0 && stale)
            sweep(b.data, c.token, probe);
    } else {
        if (read_claim(&c, path, &look) == 0 && strcmp(c.token, token) == 0 && unlink(path) < 0 &&
            errno != ENOENT)
            rc = lf_fail_errno(err, "cannot remove the stale lock %s", path);
        unlink(b.data);
    }
    lf_buf_fini(&b);
    return rc;
}

/* One round. 1: claimed; 0: busy, text says by whom; negative: failed. */
static int try_once(const char *path, const char *probe, double ttl_s, char *text, size_t cap,
                    lf_err *err)
{
    for (int round = 0; round < 4; round++) {
        struct claim c;
        bool stale = false;
        lf_err look = LF_ERR_INIT;
        int rc = try_link(probe, path, err);
        if (rc != 0)
            return rc;
        rc = read_claim(&c, path, &look);
        if (rc == LF_ENOENT)
            continue;
        if (rc == LF_EFORMAT && c.torn) {
            sweep(path, "", probe);
            continue;
        }
        if (rc < 0)
            return lf_fail(err, rc, "%s", look.text);
        describe(text, cap, &c, path);
        if ((rc = is_stale(&stale, &c, ttl_s, probe, err)) < 0)
            return rc;
        if (!stale)
            return 0;
        if ((rc = break_claim(path, c.token, probe, err)) < 0)
            return rc;
    }
    return 0;
}

/* [2] */
static void *beat(void *arg)
{
    lf_lock *l = arg;
    pthread_mutex_lock(&l->mutex);
    while (!l->quit) {
        struct timespec until;
        struct stat st;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += (time_t)l->beat_s + 1;
        pthread_cond_timedwait(&l->cond, &l->mutex, &until);
        /* A lock that was broken is not renewed: the file belongs to another. */
        if (!l->quit && stat(l->path, &st) == 0 && st.st_ino == l->ino && st.st_dev == l->dev)
            utimensat(AT_FDCWD, l->path, NULL, 0);
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

static int start_thread(lf_lock *l, lf_err *err)
{
    sigset_t all, old;
    /* Signals are for the caller's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int e = pthread_create(&l->thread, NULL, beat, l);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e) {
        errno = e;
        return lf_fail_errno(err, "cannot start the lock's thread");
    }
    l->started = true;
    return 0;
}

static void lock_free(lf_lock *l)
{
    pthread_cond_destroy(&l->cond);
    pthread_mutex_destroy(&l->mutex);
    free(l->path);
    free(l);
}

lf_lock *lf_lock_acquire(const char *path, const lf_lock_opts *opts, lf_err *err)
{
    lf_lock_opts o = opts ? *opts : (lf_lock_opts){0};
    double ttl = o.ttl_s > 0 ? o.ttl_s : 300, deadline = lf_now_s() + o.wait_s, nap = 0.02;
    char text[512], *probe = NULL;
    struct stat st;
    bool claimed = false;
    int rc = 0;
    lf_lock *l = lf_calloc(1, sizeof *l, err);
    if (!l)
        return NULL;
    pthread_mutex_init(&l->mutex, NULL);
    pthread_cond_init(&l->cond, NULL);
    l->beat_s = ttl / 6;
    snprintf(text, sizeof text, "%s changes hands too quickly", path);
    if (!(l->path = lf_strdup(path, err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = lf_token(l->token, err);
    if (rc == 0)
        rc = write_probe(&probe, path, l->token, o.purpose ? o.purpose : "", err);
    while (rc == 0 && !claimed) {
        rc = try_once(path, probe, ttl, text, sizeof text, err);
        claimed = rc > 0;
        if (rc == 0 && lf_now_s() >= deadline)
            rc = lf_fail(err, LF_EBUSY, "%s", text);
        if (rc == 0) {
            struct timespec ts = {(time_t)nap, (long)((nap - (double)(time_t)nap) * 1e9)};
            nanosleep(&ts, NULL);
            nap = nap < 1 ? nap * 1.5 : nap;
        }
    }
    if (claimed &&
        (rc = stat(probe, &st) < 0 ? lf_fail_errno(err, "cannot look at %s", probe) : 0) == 0) {
        l->ino = st.st_ino;
        l->dev = st.st_dev;
        rc = start_thread(l, err);
    }
    if (claimed && rc < 0)
        unlink(path);
    if (probe)
        unlink(probe);
    free(probe);
    if (rc < 0) {
        lock_free(l);
        return NULL;
    }
    return l;
}

int lf_lock_check(lf_lock *l, lf_err *err)
{
    struct claim c;
    lf_err look = LF_ERR_INIT;
    char text[512];
    int rc = read_claim(&c, l->path, &look);
    if (rc == 0 && strcmp(c.token, l->token) == 0)
        return 0;
    if (rc == 0)
        describe(text, sizeof text, &c, l->path);
    return lf_fail(err, LF_EBUSY, "the project lock was lost: %s", rc == 0 ? text : look.text);
}

void lf_lock_release(lf_lock *l)
{
    if (!l)
        return;
    int saved = errno;
    if (l->started) {
        pthread_mutex_lock(&l->mutex);
        l->quit = true;
        pthread_cond_signal(&l->cond);
        pthread_mutex_unlock(&l->mutex);
        pthread_join(l->thread, NULL);
    }
    if (lf_lock_check(l, NULL) == 0)
        unlink(l->path);
    lock_free(l);
    errno = saved;
}
