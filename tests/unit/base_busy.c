/* SPDX-License-Identifier: Apache-2.0
 *
 * Do others keep the cores busy? The judgements by numbers, and one process that shares its core
 * with another and says so once.
 */
#include "config.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/busy.h"
#include "engine/base/io.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "tests/tap/tap.h"

static void test_machine(void)
{
    tap_ok(lf_busy_others("7.50 9.00 9.00 9/80 11206") == 7.5, "the mean over a minute");
    tap_ok(lf_busy_others("7.50 9.00 9.00 3/80 11206") == 2, "but not more than are ready now");
    tap_ok(lf_busy_others("0.00 0.00 0.00 1/80 11206") == 0, "the reader does not count");
    tap_ok(lf_busy_others("no numbers") < 0, "a text that says nothing");
    tap_ok(!lf_busy_crowded(0, 2, 2) && !lf_busy_crowded(-1, 2, 2), "alone, or nobody knows");
    tap_ok(!lf_busy_crowded(0.4, 2, 2) && lf_busy_crowded(0.6, 2, 2), "two threads on two cores");
    tap_ok(!lf_busy_crowded(40, 64, 16) && lf_busy_crowded(60, 64, 16), "a part of a machine");
}

static void test_process(void)
{
    const lf_busy_time none = {0, 0};
    tap_ok(!lf_busy_waited(none, (lf_busy_time){60, 0}, 30), "two threads that have their cores");
    tap_ok(lf_busy_waited(none, (lf_busy_time){30, 30}, 30), "two threads with half of them");
    tap_ok(!lf_busy_waited(none, (lf_busy_time){45, 15}, 30), "a little waiting is usual");
    tap_ok(!lf_busy_waited(none, (lf_busy_time){1, 2}, 30), "who has no work waits for nothing");
    tap_ok(!lf_busy_waited((lf_busy_time){50, 50}, (lf_busy_time){30, 30}, 30),
           "threads that ended take their times with them");
}

static void spin(double s)
{
    for (double end = lf_now_s() + s; lf_now_s() < end;) {
    }
}

/* On one core beside a process that only spins; at most two minutes on the most crowded machine. */
static void share_a_core(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    dup2(fd, STDERR_FILENO);
    lf_log_init("lf-test", 2);
    setenv(LF_BUSY_ENV, "0.5", 1);
    lf_progress p;
    lf_progress_begin(&p, "spinning", "turns", 0, 0);
    lf_buf b;
    lf_buf_init(&b);
    const double begin = lf_now_s();
    int more = 4; /* looks after the note: it is not said again */
    for (int i = 0; more > 0 && lf_now_s() - begin < 120; i++) {
        spin(0.6);
        lf_progress_update(&p, i);
        lf_buf_clear(&b);
        if (lf_io_read_file(path, 1 << 20, &b, NULL) == 0 && strstr(b.data, "note: ") != NULL)
            more--;
    }
    lf_buf_fini(&b);
    _exit(more == 0 ? 0 : 1);
}

static void test_note(void)
{
    char path[1024];
    lf_busy_time t;
    cpu_set_t old, one;
    CPU_ZERO(&one);
    if (!lf_busy_now(&t) || sched_getaffinity(0, sizeof old, &old) != 0) {
        tap_skip(2, "this kernel does not say how long threads waited");
        return;
    }
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &old))
            CPU_SET(i, &one);
    sched_setaffinity(0, sizeof one, &one); /* the children inherit it */
    snprintf(path, sizeof path, "%s/busy", tap_tmpdir());
    pid_t other = fork();
    if (other == 0)
        for (;;)
            spin(1);
    pid_t own = fork();
    if (own == 0)
        share_a_core(path);
    int status = -1;
    waitpid(own, &status, 0);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    sched_setaffinity(0, sizeof old, &old);
    lf_buf b;
    lf_buf_init(&b);
    lf_io_read_file(path, 1 << 20, &b, NULL);
    const char *first = strstr(b.data, "lf-test: note: others keep the cores busy");
    tap_ok(status == 0 && first != NULL, "a process that shares its core says so: %.300s", b.data);
    tap_ok(first != NULL && strstr(strstr(first, "note: ") + 1, "note: ") == NULL, "once");
    lf_buf_fini(&b);
}

int main(void)
{
    TAP(7, test_machine());
    TAP(5, test_process());
    TAP(2, test_note());
    return tap_done();
}
