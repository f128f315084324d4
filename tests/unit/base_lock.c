/* SPDX-License-Identifier: Apache-2.0
 *
 * id.h and lock.h: ULIDs, process identity, exclusion between processes, stale claims of every
 * kind.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/id.h"
#include "engine/base/io.h"
#include "engine/base/lock.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "tests/tap/tap.h"

static char path[1024];
static const char *token = "t";

/* -Wl,--wrap=link in local.mk: what another process may do just before ours breaks a stale
 * claim. */
static void (*before_break)(void);
int __real_link(const char *a, const char *b);
int __wrap_link(const char *a, const char *b);
int __wrap_link(const char *a, const char *b)
{
    void (*hook)(void) = before_break;
    if (hook && lf_str_has_suffix(b, ".break")) {
        before_break = NULL;
        hook();
    }
    return __real_link(a, b);
}

static void test_id(void)
{
    lf_err err = LF_ERR_INIT;
    char a[LF_ULID_SIZE], b[LF_ULID_SIZE] = "", t[LF_TOKEN_SIZE], u[LF_TOKEN_SIZE];
    int bad = 0;
    for (int i = 0; i < 5000; i++) {
        lf_ulid(a, &err);
        bad += !lf_ulid_valid(a) || strcmp(b, a) >= 0;
        memcpy(b, a, sizeof a);
    }
    tap_i64(bad, 0, "ULIDs are valid and rise");
    tap_ok(!lf_ulid_valid("") && !lf_ulid_valid("0123456789ABCDEFGHJKMNPQRS0") &&
               !lf_ulid_valid("0123456789ABCDEFGHJKMNPQRU") &&
               !lf_ulid_valid("81ARZ3NDEKTSV4RRFFQ69G5FAV") &&
               lf_ulid_valid("01ARZ3NDEKTSV4RRFFQ69G5FAV"),
           "validity");
    lf_token(t, &err);
    lf_token(u, &err);
    tap_ok(strlen(t) == 32 && strcmp(t, u) != 0, "tokens");
    lf_proc_id me, other;
    tap_rc(lf_proc_self(&me, &err), 0, &err, NULL, "self");
    tap_i64(lf_proc_look(&me), LF_PROC_ALIVE, "we live");
    other = me;
    other.start++;
    tap_i64(lf_proc_look(&other), LF_PROC_GONE,
            "our pid with another start time is another process");
    other = me;
    other.boot_id[0] ^= 1;
    tap_i64(lf_proc_look(&other), LF_PROC_GONE, "before the last boot");
    other = me;
    other.pid_ns++;
    tap_i64(lf_proc_look(&other), LF_PROC_ELSEWHERE, "in another pid namespace");
    other = me;
    snprintf(other.host, sizeof other.host, "another-node");
    tap_i64(lf_proc_look(&other), LF_PROC_ELSEWHERE, "on another host");
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    siginfo_t info;
    waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
    tap_rc(lf_proc_of(&other, pid, &err), 0, &err, NULL, "a zombie can be named");
    tap_i64(lf_proc_look(&other), LF_PROC_GONE, "and is gone");
    waitpid(pid, NULL, 0);
    tap_i64(lf_proc_look(&other), LF_PROC_GONE, "as is what was waited for");
    tap_rc(lf_proc_of(&other, pid, &err), LF_ENOENT, &err, "no process", "no such process");
}

static void write_claim(const char *host, const char *boot, int64_t pid, uint64_t start,
                        double age_s)
{
    lf_err err = LF_ERR_INIT;
    lf_proc_id me;
    lf_buf b;
    lf_buf_init(&b);
    lf_proc_self(&me, &err);
    lf_buf_addf(
        &b,
        "{\"lf_lock\":1,\"host\":\"%s\",\"boot_id\":\"%s\",\"pid\":%lld,\"start\":%llu,\"pid_ns\":%"
        "llu,"
        "\"token\":\"%s\",\"user\":\"eve\",\"since\":1763724000.0,\"purpose\":\"loong-flow run\"}",
        host ? host : me.host, boot ? boot : me.boot_id, (long long)pid, (unsigned long long)start,
        (unsigned long long)me.pid_ns, token);
    lf_io_replace(path, b.data, b.len, 0644, &err);
    lf_buf_fini(&b);
    struct timespec ts[2];
    clock_gettime(CLOCK_REALTIME, &ts[0]);
    ts[0].tv_sec -= (time_t)age_s;
    ts[1] = ts[0];
    utimensat(AT_FDCWD, path, ts, 0);
}

static int files_left(void)
{
    char cmd[1200];
    int n = -1;
    snprintf(cmd, sizeof cmd, "ls -A '%s' | wc -l", tap_tmpdir());
    FILE *f = popen(cmd, "re");
    if (f && fscanf(f, "%d", &n) != 1)
        n = -1;
    if (f)
        pclose(f);
    return n;
}

static void try_stale(const char *what, bool expect)
{
    lf_err err = LF_ERR_INIT;
    lf_lock *l = lf_lock_acquire(path, NULL, &err);
    tap_ok((l != NULL) == expect, "%s: %s", what, l ? "broken" : err.text);
    if (!l)
        tap_rc(err.rc, LF_EBUSY, &err, "is held by eve@", what);
    lf_lock_release(l);
    unlink(path);
}

static void test_stale(void)
{
    lf_err err = LF_ERR_INIT;
    lf_proc_id me;
    char text[300];
    lf_proc_self(&me, &err);
    write_claim(NULL, NULL, me.pid, me.start, 100000);
    try_stale("a living holder, whatever the age", false);
    write_claim(NULL, NULL, me.pid, me.start + 1, 0);
    try_stale("a pid that was reused", true);
    write_claim(NULL, "00000000-0000-0000-0000-000000000000", me.pid, me.start, 0);
    try_stale("a holder before the last boot", true);
    write_claim("another-node", "x", 5, 5, 200);
    tap_i64(lf_lock_holder(text, sizeof text, path, &err), 1, "somebody holds it");
    tap_ok(strstr(text, "is held by eve@another-node pid 5 (loong-flow run) since 2025-11-21T") !=
               NULL,
           "%s", text);
    try_stale("another node's, renewed lately", false);
    write_claim("another-node", "x", 5, 5, 400);
    try_stale("another node's, not renewed within the ttl", true);
    static const char other[] = "{\"lf_lock\":2,\"who\":\"a loong-flow to come\"}";
    lf_io_replace(path, other, sizeof other - 1, 0644, &err);
    tap_ok(!lf_lock_acquire(path, NULL, &err), "a claim of another kind");
    tap_rc(err.rc, LF_EFORMAT, &err, "if no loong-flow runs in this project, remove it",
           "says what to do");
    static const char *const torn[] = {"", "{", "{\"lf_lock\":1,\"host\":\"a\""};
    for (size_t i = 0; i < sizeof torn / sizeof torn[0]; i++) {
        lf_io_replace(path, torn[i], strlen(torn[i]), 0644, &err);
        lf_lock *l = lf_lock_acquire(path, NULL, &err);
        tap_ok(l != NULL, "a claim that a crash has torn is nobody's %s", err.text);
        lf_lock_release(l);
        lf_err_clear(&err);
    }
    unlink(path);
    tap_i64(files_left(), 0, "no claim files stay");
}

static void claim_afresh(void)
{
    write_claim("another-node", "fresh", 77, 7, 0);
}

static void leave_break(void)
{
    char brk[1100];
    /* A breaker that died long ago. */
    write_claim("another-node", "x", 5, 5, 400);
    snprintf(brk, sizeof brk, "%s.break", path);
    if (__real_link(path, brk) < 0)
        tap_bail("link");
}

static void test_break(void)
{
    lf_err err = LF_ERR_INIT;
    char text[300] = "";
    token = "stale";
    write_claim("another-node", "x", 5, 5, 400);
    token = "fresh";
    before_break = claim_afresh;
    tap_ok(!lf_lock_acquire(path, NULL, &err), "another breaks the stale claim first and claims");
    tap_rc(err.rc, LF_EBUSY, &err, "pid 77", "ours sees the new holder");
    tap_i64(lf_lock_holder(text, sizeof text, path, &err), 1, "who keeps the lock");
    unlink(path);
    token = "t";
    leave_break();
    lf_lock_opts opts = {.wait_s = 600};
    lf_lock *l = lf_lock_acquire(path, &opts, &err);
    tap_ok(l != NULL, "a dead breaker is swept aside %s", err.text);
    lf_lock_release(l);
    tap_i64(files_left(), 0, "nothing stays");
}

static void test_exclusion(void)
{
    lf_err err = LF_ERR_INIT;
    lf_lock_opts opts = {.purpose = "test", .wait_s = 0};
    lf_lock *l = lf_lock_acquire(path, &opts, &err), *m;
    tap_ok(l != NULL, "acquired %s", err.text);
    double t0 = lf_now_s();
    opts.wait_s = 0.2;
    m = lf_lock_acquire(path, &opts, &err);
    tap_ok(!m && lf_now_s() - t0 >= 0.2, "a second waits and gives up");
    tap_rc(err.rc, LF_EBUSY, &err, "(test) since", "naming the holder");
    tap_rc(lf_lock_check(l, &err), 0, &err, NULL, "still ours");
    write_claim("another-node", "x", 5, 5, 0);
    tap_rc(lf_lock_check(l, &err), LF_EBUSY, &err, "lost: ", "a lock taken over is noticed");
    lf_lock_release(l);
    tap_ok(lf_io_exists(path), "and another's claim is not removed");
    unlink(path);
    tap_i64(lf_lock_holder((char[8]){0}, 8, path, &err), 0, "nobody");
}

/* Does a child know itself as others know it? Under an emulator of processors it reads the start of
 * its parent, and then its lock looks like that of a process that is gone. */
static bool children_know_themselves(void)
{
    lf_proc_id child = {0}, seen = {0};
    int to[2], back[2];
    char go = 0;
    if (pipe(to) || pipe(back))
        tap_bail("no pipes");
    const pid_t pid = fork();
    if (pid == 0) {
        lf_proc_self(&child, NULL);
        (void)!write(to[1], &child, sizeof child);
        (void)!read(back[0], &go, 1); /* until it was looked at */
        _exit(0);
    }
    const bool got = read(to[0], &child, sizeof child) == sizeof child;
    const bool same = got && lf_proc_of(&seen, pid, NULL) == 0 && seen.start == child.start;
    (void)!write(back[1], &go, 1);
    waitpid(pid, NULL, 0);
    for (int k = 0; k < 2; k++) {
        close(to[k]);
        close(back[k]);
    }
    return same;
}

/* Processes that die without releasing fight over the lock; the number inside never sees two at
 * once. */
static void test_crowd(void)
{
    lf_err err = LF_ERR_INIT;
    enum { KIDS = 6, ROUNDS = 12 };
    char guard[1100], log[1100];
    snprintf(guard, sizeof guard, "%s/guard", tap_tmpdir());
    snprintf(log, sizeof log, "%s/log", tap_tmpdir());
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    for (int k = 0; k < KIDS; k++) {
        if (fork() == 0) {
            for (int r = 0; r < ROUNDS; r++) {
                pid_t pid = fork();
                if (pid == 0) {
                    lf_lock_opts opts = {.purpose = "crowd", .wait_s = 600};
                    lf_lock *l = lf_lock_acquire(path, &opts, NULL);
                    if (!l)
                        _exit(2);
                    bool alone = mkdir(guard, 0700) == 0;
                    usleep(500);
                    alone = rmdir(guard) == 0 && alone;
                    (void)!write(fd, alone ? "+" : "-", 1);
                    if (r % 2)
                        raise(SIGKILL); /* the claim stays behind */
                    lf_lock_release(l);
                    _exit(0);
                }
                waitpid(pid, NULL, 0);
            }
            _exit(0);
        }
    }
    while (wait(NULL) > 0)
        continue;
    lf_buf b;
    lf_buf_init(&b);
    lf_io_read_file(log, 10000, &b, &err);
    tap_i64((int64_t)b.len, KIDS * ROUNDS, "everybody got in");
    if (children_know_themselves())
        tap_ok(!strchr(b.data, '-'), "one at a time");
    else
        tap_skip(1, "a child reads another start of itself than its parent does: an emulator");
    lf_buf_fini(&b);
    close(fd);
}

static void test_beat(void)
{
    lf_err err = LF_ERR_INIT;
    lf_lock_opts opts = {.ttl_s = 1};
    struct stat a, b;
    unlink(path);
    lf_lock *l = lf_lock_acquire(path, &opts, &err);
    bool renewed = stat(path, &a) < 0;
    for (int i = 0; i < 6000 && !renewed; i++) {
        usleep(10000);
        if (stat(path, &b) < 0)
            break;
        renewed = b.st_mtim.tv_sec != a.st_mtim.tv_sec || b.st_mtim.tv_nsec != a.st_mtim.tv_nsec;
    }
    tap_ok(renewed && lf_io_exists(path), "the holder's thread renews it");
    lf_lock_release(l);
    tap_ok(!lf_io_exists(path), "released");
}

int main(void)
{
    snprintf(path, sizeof path, "%s/lock", tap_tmpdir());
    TAP(13, test_id());
    TAP(15, test_stale());
    TAP(5, test_break());
    TAP(7, test_exclusion());
    TAP(2, test_crowd());
    TAP(2, test_beat());
    return tap_done();
}
