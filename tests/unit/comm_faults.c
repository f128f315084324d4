/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of the watchdog's test, started by tests/flow/ranks_faults.sh: comm_faults WHAT RANK.
 * All ranks add numbers step by step; at step 3 the named one does what is asked of it, and with
 * ...-sender the others wait for a message of it. Nobody ends by itself before step 10^9.
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "engine/comm/comm.h"

static lf_err err = LF_ERR_INIT;

static int fail(void)
{
    fprintf(stderr, "%s\n", err.text);
    return 1;
}

/* A file that says that a rank has left the collective before and enters the next one. */
static const char *mark(int64_t pid)
{
    static char path[64];
    snprintf(path, sizeof path, "waits.%lld", (long long)pid);
    return path;
}

/* The test says which collective the others wait in: they must have entered it. */
static void wait_for_the_others(const lf_comm *c)
{
    for (int r = 0; r < c->size; r++) {
        const char *theirs = mark(lf_comm_peer_pid(c, r));
        for (int i = 0; r != c->rank && i < 12000 && access(theirs, F_OK) != 0; i++)
            usleep(10000);
    }
    usleep(500000);
}

static void misbehave(lf_comm *c, const char *what)
{
    wait_for_the_others(c);
    if (strcmp(what, "kill") == 0 || strcmp(what, "kill-sender") == 0)
        raise(SIGKILL);
    if (strcmp(what, "stop") == 0)
        raise(SIGSTOP);
    if (strcmp(what, "exit") == 0)
        _exit(3);
    /* Without end, but not all of the time: processors are wanted elsewhere. */
    const bool loops = strcmp(what, "loop") == 0;
    for (volatile long spin = loops; spin; spin++)
        if (spin % (1 << 21) == 0)
            usleep(100000);
    if (strcmp(what, "stuck") == 0 || strcmp(what, "stuck-sender") == 0)
        sleep(600);
    if (strcmp(what, "other") == 0) /* another collective than everybody else's */
        lf_comm_barrier(c, &err);
    if (strcmp(what, "phase") == 0) { /* longer than the patience, but announced */
        lf_comm_phase(c, "save", 600);
        sleep(11);
        lf_comm_phase(c, NULL, 0);
    }
    if (strcmp(what, "overlong") == 0) { /* longer than announced */
        lf_comm_phase(c, "save", 2);
        sleep(600);
    }
}

/* A gradient from the named rank, which sends none. */
static int wait_for_message(lf_comm *c, int from)
{
    float x[16];
    lf_comm_req q[2] = {{0}};
    const int tag = lf_comm_tag(LF_COMM_BACKWARD, 5);
    int rc = lf_comm_irecv(c, x, sizeof x, from, tag, &q[0], &err);
    if (rc == 0)
        rc = lf_comm_irecv(c, x, sizeof x, from, tag, &q[1], &err);
    return rc ? rc : lf_comm_wait(&q[1], &err);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int64_t who = 0, steps = 1000000000;
    if (argc > 2 && lf_parse_i64(&who, argv[2], &err))
        return fail();
    if (lf_stop_install(NULL, &err))
        return fail();
    const char *rank = getenv("PMIX_RANK");
    if (strcmp(what, "late") == 0 && argc > 2 && rank && strcmp(rank, argv[2]) == 0)
        sleep(600); /* before anybody can watch it */
    lf_boot *b = lf_boot_create(&err);
    lf_comm *c = b ? lf_comm_create(b, &err) : NULL;
    if (!c)
        return fail();
    if (strcmp(what, "phase") == 0 || strcmp(what, "leave") == 0 || strcmp(what, "none") == 0)
        steps = 6;
    for (int64_t step = 0; step < steps; step++) {
        float x[3000] = {1};
        int64_t stop = lf_stop_requested();
        lf_comm_step(c, step);
        if (step == 3 && strcmp(what, "steps") == 0) { /* who sends a signal waits for this */
            printf("at work\n");
            fflush(stdout);
        } else if (step == 3 && c->rank == who) {
            misbehave(c, what);
        } else if (step == 3 && lf_io_write_file(mark(getpid()), "", 0, 0600, &err)) {
            return fail();
        }
        if (step == 3 && c->rank == who && strcmp(what, "leave") == 0)
            break;
        if (step == 3 && strstr(what, "-sender") && wait_for_message(c, (int)who))
            return fail();
        if (lf_comm_all_reduce(c, x, 3000, LF_COMM_F32, LF_COMM_SUM, &err) ||
            lf_comm_agree_max(c, &stop, &err))
            return fail();
        if (stop) { /* the same step on every rank */
            printf("stopped at step %lld\n", (long long)step);
            lf_comm_destroy(c);
            lf_boot_destroy(b);
            return 75;
        }
        if (strcmp(what, "steps") == 0)
            usleep(5000);
    }
    lf_comm_destroy(c);
    lf_boot_destroy(b);
    printf("done\n");
    return 0;
}
