/* SPDX-License-Identifier: Apache-2.0
 *
 * The stage's process: started in a group of its own, held back until its identity is on disk, watched until its end.
 * All signals are taken with sigtimedwait, so there are no handlers and no races.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/epoch.h"
#include "flow/exec.h"
#include "flow/record.h"
#include "flow/who.h"

#define TAIL_BYTES ((size_t)65536)

struct child {
    pid_t pid;
    double deadline;   /* monotonic; 0: none */
    double soft;       /* when to ask for a stop before the deadline */
    double kill_at;    /* when patience ends after a stop was asked for; 0: not asked */
    double grace_s;
    double next_look;
};

static void watched_signals(sigset_t *set)
{
    sigemptyset(set);
    const int all[] = {SIGCHLD, SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        sigaddset(set, all[i]);
}

/* argv of the stage; the strings live in x or in `store`. */
static char **make_argv(lf_exec *x, lf_err *err)
{
    size_t n = json_array_size(x->resume), k = 0;
    char **argv = lf_calloc(16 + 2 * n, sizeof *argv, err);
    if (argv == NULL)
        return NULL;
    char exe[PATH_MAX];
    const char *name = json_string_value(json_object_get(json_object_get(x->stage, "exe"), "path"));
    snprintf(exe, sizeof exe, "%s/rev.%d/bin/%s", x->run.dir, x->run.rev, name != NULL ? name : "");
    argv[k++] = lf_strdup(exe, err);
    static const char *const files[][2] = {
        {"--config", "config.ini"}, {"--out", "out"}, {"--metrics", "metrics"}, {"--stop-file", "stop"}};
    for (size_t i = 0; i < 4; i++) {
        argv[k++] = lf_strdup(files[i][0], err);
        argv[k++] = lf_path_join(x->dir, files[i][1], err);
    }
    for (size_t i = 0; i < n; i++) {
        argv[k++] = lf_strdup("--resume-from", err);
        argv[k++] = lf_strdup(json_string_value(json_array_get(x->resume, i)), err);
    }
    return argv;
}

static void free_argv(char **argv)
{
    for (char **p = argv; p != NULL && *p != NULL; p++)
        free(*p);
    free(argv);
}

static void child_main(lf_exec *x, char **argv, int gate, int log_fd, pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* a wrapper that is killed takes the stage to its next checkpoint */
    if (getppid() != parent)
        _exit(125);
    char go = 0;
    if (read(gate, &go, 1) != 1)
        _exit(125); /* the wrapper died before our identity was on disk */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0)
        dup2(null, 0);
    dup2(log_fd, 1);
    dup2(log_fd, 2);
    setenv("LOONG_RUN", x->run.id, 1);
    setenv("LOONG_STAGE", x->args.stage, 1);
    /* Waiting OpenMP threads sleep. libgomp would let them spin, which on cores shared with others made decoding four to five times
     * slower. Who has the cores alone may set OMP_WAIT_POLICY or GOMP_SPINCOUNT: what stands in the environment wins. */
    if (getenv("GOMP_SPINCOUNT") == NULL)
        setenv("OMP_WAIT_POLICY", "passive", 0);
    if (chdir(x->dir) == 0)
        execv(argv[0], argv);
    dprintf(2, "loong-flow: cannot execute %s: %s\n", argv[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

static int publish_identity(lf_exec *x, pid_t pid, lf_err *err)
{
    json_t *who = lf_who_make(pid, err);
    json_t *o = who != NULL ? json_pack("{s:i, s:o, s:f, s:O, s:O}", "lf_stage", 1, "process", who, "t", lf_wall_s(),
                                        "resume", x->resume, "inputs", x->inputs)
                            : NULL;
    int rc = o == NULL ? lf_fail(err, LF_ENOMEM, "cannot describe the stage's process")
                       : lf_record_publish(x->dir, "stage.json", o, err);
    json_decref(o);
    return rc;
}

static int start(struct child *c, lf_exec *x, lf_err *err)
{
    int gate[2] = {-1, -1}, log_fd = -1, rc = 0;
    char **argv = make_argv(x, err);
    char *log = lf_path_join(x->dir, "log", err);
    if (argv == NULL || log == NULL) {
        rc = LF_ENOMEM;
        goto out;
    }
    log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (log_fd < 0 || pipe2(gate, O_CLOEXEC) < 0) {
        rc = lf_fail_errno(err, "cannot open %s", log);
        goto out;
    }
    pid_t parent = getpid();
    c->pid = fork();
    if (c->pid == 0) {
        close(gate[1]); /* or our own copy would keep the gate from closing when the wrapper dies */
        child_main(x, argv, gate[0], log_fd, parent);
    }
    if (c->pid < 0) {
        rc = lf_fail_errno(err, "cannot fork");
        goto out;
    }
    setpgid(c->pid, c->pid);
    rc = publish_identity(x, c->pid, err);
    char go = 1;
    if (rc == 0 && write(gate[1], &go, 1) != 1)
        rc = lf_fail_errno(err, "cannot start the stage");
    if (rc < 0) {
        close(gate[1]);
        gate[1] = -1;
        waitpid(c->pid, NULL, 0);
    }
out:
    if (gate[0] >= 0)
        close(gate[0]);
    if (gate[1] >= 0)
        close(gate[1]);
    if (log_fd >= 0)
        close(log_fd);
    free(log);
    free_argv(argv);
    return rc;
}

static void ask_to_stop(struct child *c, lf_exec *x, int sig)
{
    x->ev.stopping = true;
    if (c->kill_at <= 0)
        c->kill_at = lf_now_s() + c->grace_s;
    kill(c->pid, sig); /* the leader decides; its helpers would only be torn out of its hands */
}

static bool cancel_asked(const lf_exec *x)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/cancel.%d", x->stage_dir, x->args.attempt);
    return lf_io_exists(path);
}

/* Once a second: a cancel, a newer epoch, the clock. */
static void look_around(struct child *c, lf_exec *x)
{
    double now = lf_now_s();
    if (c->deadline > 0 && now >= c->deadline) {
        x->ev.timed_out = true;
        kill(-c->pid, SIGKILL);
    } else if (c->soft > 0 && now >= c->soft) {
        c->soft = 0;
        x->ev.timed_out = true;
        kill(c->pid, SIGUSR2);
    }
    if (c->kill_at > 0 && now >= c->kill_at)
        kill(-c->pid, SIGKILL);
    if (now < c->next_look)
        return;
    c->next_look = now + 1.0;
    if (c->kill_at <= 0 && (cancel_asked(x) || lf_epoch_superseded(x->stage_dir, x->epoch)))
        ask_to_stop(c, x, SIGTERM);
}

static int wait_for(struct child *c, lf_exec *x, lf_err *err)
{
    sigset_t set;
    watched_signals(&set);
    for (;;) {
        int status = 0;
        pid_t got = waitpid(c->pid, &status, WNOHANG);
        if (got < 0 && errno != EINTR)
            return lf_fail_errno(err, "cannot wait for the stage");
        if (got == c->pid) {
            x->ev.exited = WIFEXITED(status);
            x->ev.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
            x->ev.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
            kill(-c->pid, SIGKILL); /* whatever the stage left behind in its group */
            return 0;
        }
        const struct timespec wait = {0, 200 * 1000 * 1000};
        int sig = sigtimedwait(&set, NULL, &wait);
        if (sig == SIGTERM || sig == SIGINT || sig == SIGHUP)
            ask_to_stop(c, x, SIGTERM);
        else if (sig == SIGUSR2 || sig == SIGUSR1)
            ask_to_stop(c, x, SIGUSR2);
        look_around(c, x);
    }
}

int lf_exec_child(lf_exec *x, lf_err *err)
{
    struct child c;
    memset(&c, 0, sizeof c);
    const json_t *grace = json_object_get(x->stage, "grace_s"), *limit = json_object_get(x->stage, "time_limit_s");
    c.grace_s = grace != NULL ? (double)json_integer_value(grace) : 120.0;
    if (limit != NULL) {
        double l = (double)json_integer_value(limit), lead = c.grace_s < l / 2 ? c.grace_s : l / 2;
        c.deadline = lf_now_s() + l;
        c.soft = c.deadline - lead;
    }
    long oom_before = lf_oom_kills();
    int rc = start(&c, x, err);
    if (rc < 0)
        return rc;
    rc = wait_for(&c, x, err);
    if (rc < 0)
        return rc;
    long oom_after = lf_oom_kills();
    x->ev.oom_kills = oom_before >= 0 && oom_after > oom_before ? oom_after - oom_before : 0;
    x->ev.cancelled = cancel_asked(x);
    char *log = lf_path_join(x->dir, "log", err);
    x->log_tail = log != NULL ? lf_log_tail(log, TAIL_BYTES, err) : NULL;
    x->ev.log_tail = x->log_tail;
    free(log);
    return 0;
}
