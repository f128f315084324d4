/* SPDX-License-Identifier: Apache-2.0
 *
 * The fence: claims and commits race for the same names, and whatever the order, at most one of "N
 * commits" and "N + 1 begins without seeing it" happens. Failure classes by evidence.
 */
#include "config.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "flow/run/classify.h"
#include "flow/run/epoch.h"
#include "tests/tap/tap.h"

static char dir[PATH_MAX];

static void fresh(const char *name)
{
    char sub[PATH_MAX];
    snprintf(dir, sizeof dir, "%s/%s", tap_tmpdir(), name);
    lf_io_mkdirs(dir, 0755, NULL);
    for (int i = 1; i <= 4; i++) {
        if (snprintf(sub, sizeof sub, "%s/1.%d", dir, i) < (int)sizeof sub)
            mkdir(sub, 0755);
    }
}

static bool exists(const char *name)
{
    char p[PATH_MAX + 64];
    snprintf(p, sizeof p, "%s/%s", dir, name);
    return access(p, F_OK) == 0;
}

static int claim(int *e)
{
    struct lf_claim c = {.attempt = 1, .token = "0123", .restarts = LF_NO_RESTARTS};
    lf_err err = LF_ERR_INIT;
    int rc = lf_epoch_claim(&c, dir, "spec", NULL, &err);
    if (rc == 0)
        *e = c.epoch;
    return rc;
}

static int commit(int e, lf_err *err)
{
    const struct lf_done done = {.run = "r",
                                 .stage = "s",
                                 .token = "0123",
                                 .kind = "k",
                                 .spec_id = "spec",
                                 .attempt = 1,
                                 .epoch = e};
    return lf_epoch_commit(dir, &done, err);
}

static void test_order(void)
{
    lf_err err = LF_ERR_INIT;
    int a = 0, b = 0;
    fresh("order");
    tap_rc(claim(&a), 0, NULL, NULL, "claim");
    tap_i64(a, 1, "first epoch");
    tap_ok(!lf_epoch_superseded(dir, 1), "nothing newer");
    tap_rc(claim(&b), 0, NULL, NULL, "claim again");
    tap_i64(b, 2, "second epoch");
    tap_ok(lf_epoch_superseded(dir, 1), "the first is superseded");
    tap_rc(commit(1, &err), LF_EBUSY, &err, "may no longer publish", "a zombie's commit");
    tap_ok(!exists("1.1/done.json"), "publishes nothing");
    tap_rc(commit(2, &err), 0, &err, NULL, "the newer commits");
    tap_ok(exists("1.2/done.json"), "and publishes");
    tap_rc(claim(&a), LF_EEXIST, NULL, NULL, "a requeue of the same attempt finds nothing to do");
    tap_rc(commit(2, &err), LF_EBUSY, &err, NULL, "a second commit");
}

static void test_repair(void)
{
    lf_err err = LF_ERR_INIT;
    lf_epoch_log log;
    char p[PATH_MAX + 64];
    int a = 0;
    fresh("repair");
    claim(&a);
    tap_rc(commit(a, &err), 0, &err, NULL, "commit");
    snprintf(p, sizeof p, "%s/1.1/done.json", dir);
    unlink(p); /* as a crash between the two links leaves it */
    tap_rc(lf_epoch_read(&log, dir, &err), 0, &err, NULL, "read");
    tap_ok(exists("1.1/done.json"), "the reader finishes the commit");
    lf_epoch_fini(&log);
}

/* A commit of epoch 1 and a claim at the same moment, in two processes, many times. */
static void test_race(void)
{
    int commits = 0, claims = 0, both = 0, neither = 0;
    for (int round = 0; round < 60; round++) {
        char name[32];
        int a = 0, gate[2], status[2] = {0, 0};
        snprintf(name, sizeof name, "race%d", round);
        fresh(name);
        claim(&a);
        if (pipe(gate) < 0)
            tap_bail("pipe");
        pid_t pid[2];
        for (int k = 0; k < 2; k++) {
            pid[k] = fork();
            if (pid[k] == 0) {
                char c;
                int e = 0;
                close(gate[1]);
                if (read(gate[0], &c, 1) < 0)
                    _exit(9);
                _exit(k == 0 ? (commit(1, NULL) == 0 ? 1 : 0) : (claim(&e) == 0 ? 1 : 0));
            }
        }
        close(gate[0]);
        close(gate[1]); /* both go */
        for (int k = 0; k < 2; k++)
            waitpid(pid[k], &status[k], 0);
        int c = WEXITSTATUS(status[0]), n = WEXITSTATUS(status[1]);
        commits += c;
        claims += n;
        both += c && n;
        neither += !c && !n;
    }
    tap_i64(both, 0, "never both");
    tap_i64(neither, 0, "never neither");
    tap_i64(commits + claims, 60, "always one");
    tap_diag("%d commits, %d claims", commits, claims);
}

static void test_classes(void)
{
    static const struct {
        lf_end_evidence ev;
        const char *state, *cls, *name;
    } rows[] = {
        {{.exited = true, .exit_code = 0}, "done", "", "exit 0"},
        {{.exited = true, .exit_code = 75}, "stopped", "preempted", "exit 75"},
        {{.exited = true, .exit_code = 75, .timed_out = true},
         "stopped",
         "timeout",
         "exit 75 at the time limit"},
        {{.exited = true, .exit_code = 75, .cancelled = true},
         "cancelled",
         "cancelled",
         "exit 75 after a cancel"},
        {{.exited = true, .exit_code = 0, .cancelled = true},
         "done",
         "",
         "done before the cancel reached it"},
        {{.exited = true, .exit_code = 2}, "failed", "usage", "exit 2"},
        {{.exited = true, .exit_code = 127}, "failed", "launch", "exit 127"},
        {{.exited = true, .exit_code = 1, .log_tail = "x: No space left on device\n"},
         "failed",
         "disk",
         "disk"},
        {{.exited = true, .exit_code = 1, .log_tail = "CUDA out of memory. Tried\n"},
         "failed",
         "oom_device",
         "device memory"},
        {{.exited = true, .exit_code = 1, .log_tail = "Cannot allocate memory\n"},
         "failed",
         "oom",
         "host memory"},
        {{.exited = true, .exit_code = 1, .log_tail = "loss is non-finite\n"},
         "failed",
         "diverged",
         "diverged"},
        {{.exited = true, .exit_code = 1, .log_tail = "\n\n"}, "failed", "unknown", "no word"},
        {{.exited = true, .exit_code = 1}, "failed", "unknown", "no log"},
        {{.signal = SIGKILL}, "failed", "unknown", "SIGKILL"},
        {{.signal = SIGKILL, .oom_kills = 1}, "failed", "oom", "SIGKILL that the kernel counted"},
        {{.signal = SIGKILL, .timed_out = true}, "failed", "timeout", "SIGKILL at the time limit"},
        {{.signal = SIGKILL, .stopping = true},
         "stopped",
         "preempted",
         "SIGKILL after a request to stop"},
        {{.signal = SIGTERM, .stopping = true}, "stopped", "preempted", "SIGTERM passed on"},
        {{.signal = SIGTERM}, "failed", "unknown", "SIGTERM from elsewhere"},
        {{.signal = SIGSEGV}, "failed", "crash", "SIGSEGV"},
        {{.signal = SIGXFSZ}, "failed", "disk", "SIGXFSZ"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lf_end_class c;
        lf_classify(&c, &rows[i].ev);
        tap_str(c.state, rows[i].state, rows[i].name);
        tap_str(c.cls, rows[i].cls, rows[i].name);
        tap_ok(strcmp(c.state, "failed") != 0 || c.reason[0] != '\0', "a failure has a reason");
    }
}

int main(void)
{
    TAP(12, test_order());
    TAP(3, test_repair());
    TAP(3, test_race());
    TAP(63, test_classes());
    return tap_done();
}
