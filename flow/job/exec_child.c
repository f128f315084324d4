/* SPDX-License-Identifier: Apache-2.0
 *
 * The stage's process: started in a group of its own, held back until its identity is on disk,
 * watched until its end. All signals are taken with sigtimedwait, so there are no handlers and no
 * races.
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

#include "engine/base/ending.h"
#include "engine/base/fence.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/job/exec.h"
#include "flow/record/record.h"
#include "flow/run/epoch.h"
#include "flow/run/rung.h"
#include "flow/run/who.h"

#define TAIL_BYTES ((size_t)65536)
#define GRACE_S    120.0

#define LOOK_EVERY_S   1.0
#define WARNED_EARLY_S 60.0
#define PACE_EVERY_S   5.0
#define SUPERSEDED_S                                                                               \
    10.0 /* a superseded stage has nothing to save, only messages to its other ranks */
/* what the wrapper keeps for itself before a scheduler's end: records, putting the job back */
#define LAST_MOMENT_S 15.0

struct child {
    pid_t pid;
    double deadline; /* monotonic: the stage must be gone; 0: none */
    double soft;     /* monotonic: it is asked to stop; 0: never, or asked already */
    double kill_at;  /* when patience ends after a stop was asked for; 0: not asked */
    double grace_s;
    double next_look, next_pace;
    bool timed;     /* asked to stop because of the clock */
    double end;     /* of the job as it was known last, wall */
    double reserve; /* what is kept for the wrapper before that */
    lf_exec_listener listener;
};

static void watched_signals(sigset_t *set)
{
    sigemptyset(set);
    const int all[] = {SIGCHLD, SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        sigaddset(set, all[i]);
}

/* srun ends its tasks at once when it gets TERM, and PRRTE does the same: the stop that a launcher
 * passes on is USR2. */
static int stop_signal(const lf_exec *x, int sig)
{
    return x->launch.launcher == LF_LAUNCH_NONE ? sig : SIGUSR2;
}

static void set_environment(const lf_exec *x, const char *ranks)
{
    char n[24], fence[PATH_MAX];
    setenv("LF_RUN", x->run.id, 1);
    setenv("LF_STAGE", x->args.stage, 1);
    setenv("LF_RANKS_DIR", ranks, 1);
    if (lf_path_set(fence, NULL, "%s/epoch.%d", x->stage_dir, x->epoch + 1) == 0)
        setenv(LF_FENCE_ENV, fence, 1);
    setenv(LF_ENDING_ENV, x->finish, 1);
    unsetenv(LF_STOP_STEP_ENV);
    snprintf(n, sizeof n, "%lld", (long long)x->rung);
    if (x->rung > 0)
        setenv(LF_STOP_STEP_ENV, n, 1);
    snprintf(n, sizeof n, "%d", x->launch.omp_threads);
    if (x->launch.omp_threads > 0)
        setenv("OMP_NUM_THREADS", n, 1);
    /* Kernels have threads of their own, which know when spinning pays. What is left to OpenMP
     * (weights are read, files hashed, tokens drawn) is not worth threads that spin ever after on
     * the same processors, so the environment's wish for them does not count. */
    unsetenv("GOMP_SPINCOUNT");
    setenv("OMP_WAIT_POLICY", "passive", 1);
    lf_launch_scrub();
}

static void child_main(lf_exec *x, const char *ranks, int gate, int log_fd, pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG,
          stop_signal(
              x, SIGTERM)); /* a wrapper that is killed takes the stage to its next checkpoint */
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
    set_environment(x, ranks);
    if (chdir(x->dir) == 0)
        execvp(x->launch.argv[0], x->launch.argv);
    dprintf(2, "loong-flow: cannot execute %s: %s\n", x->launch.argv[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

static int publish_identity(lf_exec *x, pid_t pid, lf_err *err)
{
    struct lf_started s = {
        .t = lf_wall_s(), .resume = x->resume, .inputs = x->inputs, .n_inputs = x->n_inputs};
    int rc = lf_proc_of(&s.process, pid, err);
    return rc == 0 ? lf_started_publish(x->dir, &s, err) : rc;
}

static int start(struct child *c, lf_exec *x, lf_err *err)
{
    int gate[2] = {-1, -1}, log_fd = -1;
    char *log = lf_path_join(x->dir, "log", err), *ranks = lf_path_join(x->dir, "ranks", err);
    int rc = log == NULL || ranks == NULL ? LF_ENOMEM : lf_io_mkdirs(ranks, 0750, err);
    if (rc == 0)
        rc = lf_exec_argv(x, err);
    if (rc < 0)
        goto out;
    lf_exec_finish_path(x);
    log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (log_fd < 0 || pipe2(gate, O_CLOEXEC) < 0) {
        rc = lf_fail_errno(err, "cannot open %s", log);
        goto out;
    }
    pid_t parent = getpid();
    c->pid = fork();
    if (c->pid == 0) {
        close(gate[1]); /* or our own copy would keep the gate from closing when the wrapper dies */
        child_main(x, ranks, gate[0], log_fd, parent);
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
    free(ranks);
    return rc;
}

/* How long a stage that was asked to stop is waited for. */
static double stop_patience(const struct child *c, const lf_exec *x)
{
    double save = 2 * x->pace.save_s + x->pace.spacing_s;
    return save > c->grace_s ? save : c->grace_s;
}

static void ask_to_stop(struct child *c, lf_exec *x, int sig)
{
    x->ev.stopping = true;
    if (c->kill_at <= 0)
        c->kill_at = lf_now_s() + stop_patience(c, x);
    kill(c->pid,
         stop_signal(
             x, sig)); /* the leader decides; its helpers would only be torn out of its hands */
}

/* From the job's end, as far as it is known by now, back to when the stage must be asked and when
 * it must be gone. */
static void set_times(struct child *c, lf_exec *x, bool ask)
{
    double end = lf_jobside_end(&x->job, ask), total = end - x->t_start;
    if (end <= 0) {
        c->soft = c->deadline = 0;
        return;
    }
    double lead = lf_exec_lead_s(&x->pace, c->grace_s, total),
           at = lf_now_s() + (end - lf_wall_s());
    if (end != c->end &&
        x->job.ops != NULL) { /* a preemption leaves seconds: the stage gets most of them */
        double left = at - lf_now_s(), most = total / 10 < left / 4 ? total / 10 : left / 4;
        c->reserve = most < 0 ? 0 : most < LAST_MOMENT_S ? most : LAST_MOMENT_S;
    }
    c->end = end;
    c->deadline = at - c->reserve;
    c->soft = c->timed ? 0 : at - lead;
    x->job.timeout_s = lead / 4 < 30 ? lead / 4 + 1 : 30;
}

/* The scheduler ends the job, now or after a grace: how long there is it knows by now. */
static void told_to_end(struct child *c, lf_exec *x)
{
    ask_to_stop(c, x, SIGTERM);
    set_times(c, x, x->job.ops != NULL);
}

static bool cancel_asked(const lf_exec *x)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/cancel.%d", x->stage_dir, x->args.attempt);
    return lf_io_exists(path);
}

static void watch_the_clock(struct child *c, lf_exec *x)
{
    set_times(c, x, false);
    if (c->soft > 0 && lf_now_s() >= c->soft)
        set_times(
            c, x,
            /* a limit that was raised in the meantime is good news; one look before we stop */
            true);
    if (c->soft > 0 && lf_now_s() >= c->soft) {
        c->timed = true;
        x->ev.timed_out = true;
        x->ev.stopping = true;
        kill(c->pid, SIGUSR2);
    }
}

/* By every way there is: the stop file, the launcher, and soon the end of everything that this host
 * can reach. Ranks also look at the fence themselves. */
static void leave_the_field(struct child *c, lf_exec *x)
{
    if (x->ev.superseded)
        return;
    x->ev.superseded = true;
    lf_exec_ask_by_file(x->dir);
    ask_to_stop(c, x, SIGTERM);
    if (c->kill_at > lf_now_s() + SUPERSEDED_S)
        c->kill_at = lf_now_s() + SUPERSEDED_S;
}

/* A stage that has come to a rung of its sweep saves and ends, like one that has no time left. A
 * training stage knows the step and stops there by itself; another one is asked to. */
static void look_for_rung(struct child *c, lf_exec *x)
{
    if (x->rung < 0 || c->kill_at > 0)
        return;
    lf_exec_pace_read(x);
    if (x->pace.step < x->rung)
        return;
    x->ev.at_rung = true;
    ask_to_stop(c, x, SIGTERM);
}

/* Once a second: a cancel, a newer epoch, the clock, a rung. */
static void look_around(struct child *c, lf_exec *x)
{
    double now = lf_now_s();
    watch_the_clock(c, x);
    if (c->deadline > 0 && now >= c->deadline) {
        x->ev.timed_out = true;
        kill(-c->pid, SIGKILL);
    }
    if (c->kill_at > 0 && now >= c->kill_at)
        kill(-c->pid, SIGKILL);
    if (now < c->next_look)
        return;
    c->next_look = now + LOOK_EVERY_S;
    if (now >= c->next_pace) {
        c->next_pace = now + PACE_EVERY_S;
        lf_exec_pace_read(x);
    }
    look_for_rung(c, x);
    if (lf_epoch_superseded(x->stage_dir, x->epoch))
        leave_the_field(c, x);
    if (c->kill_at <= 0 && cancel_asked(x))
        ask_to_stop(c, x, SIGTERM);
}

/* SLURM's --signal comes up to a minute early; near the end it is the clock's word, not
 * somebody's. */
static void warned(struct child *c, lf_exec *x)
{
    if (c->soft > 0 && lf_now_s() >= c->soft - 2 * WARNED_EARLY_S)
        x->ev.timed_out = true;
    ask_to_stop(c, x, SIGUSR2);
}

/* A launcher reports the signal of a rank as 128 + n. */
static void take_status(lf_exec *x, int status)
{
    int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
        code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    x->ev.of_rank =
        sig == 0 && x->launch.launcher != LF_LAUNCH_NONE && code > 128 && code < 128 + NSIG;
    if (x->ev.of_rank)
        sig = code - 128;
    x->ev.exited = sig == 0;
    x->ev.exit_code = sig == 0 ? code : 0;
    x->ev.signal = sig;
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
            take_status(x, status);
            kill(-c->pid, SIGKILL); /* whatever the stage left behind in its group */
            return 0;
        }
        const struct timespec wait = {0, 200 * 1000 * 1000};
        int sig = sigtimedwait(&set, NULL, &wait);
        if (sig == SIGTERM || sig == SIGINT || sig == SIGHUP) {
            x->ev.term = true;
            told_to_end(c, x);
        } else if (sig == SIGUSR2 || sig == SIGUSR1) {
            warned(c, x);
        }
        if (lf_exec_listen_heard(&c->listener, x))
            told_to_end(c, x);
        look_around(c, x);
    }
}

int lf_exec_child(lf_exec *x, lf_err *err)
{
    struct child c;
    memset(&c, 0, sizeof c);
    c.grace_s = x->resources.grace_s.given ? (double)x->resources.grace_s.v : GRACE_S;
    lf_exec_pace_begin(x);
    x->rung = lf_rung_step(&x->run, x->plan);
    set_times(&c, x, true);
    long oom_before = lf_oom_kills();
    int rc = start(&c, x, err);
    if (rc < 0)
        return rc;
    if (x->launch.launcher != LF_LAUNCH_SRUN) /* its tasks hear of it themselves */
        lf_exec_listen_begin(&c.listener, x);
    rc = wait_for(&c, x, err);
    lf_exec_listen_end(&c.listener);
    if (rc < 0)
        return rc;
    long oom_after = lf_oom_kills();
    x->ev.oom_kills = oom_before >= 0 && oom_after > oom_before ? oom_after - oom_before : 0;
    x->ev.cancelled = cancel_asked(x);
    x->ev.superseded = x->ev.superseded || lf_epoch_superseded(x->stage_dir, x->epoch);
    if (x->ev.superseded)
        lf_exec_evict_own(x);
    lf_exec_pace_read(x);
    x->ev.at_rung = x->ev.at_rung || (x->rung > 0 && x->pace.step >= x->rung);
    char *ranks = lf_path_join(x->dir, "ranks", err);
    if (ranks != NULL && lf_cause_load(&x->cause, ranks, NULL) == 0)
        x->ev.said = &x->cause;
    free(ranks);
    char *log = lf_path_join(x->dir, "log", err);
    x->log_tail = log != NULL ? lf_log_tail(log, TAIL_BYTES, err) : NULL;
    x->ev.log_tail = x->log_tail;
    free(log);
    return 0;
}
