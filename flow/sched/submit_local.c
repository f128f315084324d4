/* SPDX-License-Identifier: Apache-2.0
 *
 * The local "scheduler": a job is the wrapper as a process of its own session, so it outlives the
 * command and the terminal that started it. Which stages run at once is decided by the driver.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "flow/run/who.h"
#include "flow/sched/submit.h"

static int local_open(void **self, const lf_site *site, lf_err *err)
{
    (void)site;
    (void)err;
    *self = NULL;
    return 0;
}

static void local_close(void *self)
{
    (void)self;
}

static void become_wrapper(const lf_submit_req *req, const char *exe, const char *log, int gate)
{
    char attempt[32], go = 0; /* no allocation between fork and exec */
    setsid();
    if (read(gate, &go, 1) != 1)
        _exit(125);
    int null = open("/dev/null", O_RDONLY);
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0640);
    if (null >= 0)
        dup2(null, 0);
    if (out >= 0) {
        dup2(out, 1);
        dup2(out, 2);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    snprintf(attempt, sizeof attempt, "%d", req->attempt);
    execl(exe, "loong-flow", "exec", "--run-dir", req->run->dir, "--stage", req->stage->name,
          "--attempt", attempt, "--token", req->token, "--project", req->project, (char *)NULL);
    dprintf(2, "loong-flow: cannot execute %s: %s\n", exe, strerror(errno));
    _exit(127);
}

static int local_start(void *self, const lf_submit_req *req, struct lf_job_rec *job, lf_err *err)
{
    (void)self;
    char exe[PATH_MAX], log[PATH_MAX], id[32];
    int gate[2];
    if (snprintf(exe, sizeof exe, "%s/rev.%d/bin/loong-flow", req->run->dir, req->run->rev) >=
            (int)sizeof exe ||
        snprintf(log, sizeof log, "%s/wrapper.%d.log", req->stage_dir, req->attempt) >=
            (int)sizeof log)
        return lf_fail(err, LF_EINVAL, "%s: the path is too long", req->run->dir);
    if (pipe2(gate, O_CLOEXEC) < 0)
        return lf_fail_errno(err, "cannot make a pipe");
    pid_t pid = fork();
    if (pid == 0) {
        close(gate[1]);
        become_wrapper(req, exe, log, gate[0]);
    }
    close(gate[0]);
    if (pid < 0) {
        close(gate[1]);
        return lf_fail_errno(err, "cannot fork");
    }
    /* The child waits until its identity has been read: a process that is gone already could not be
     * described. */
    lf_proc_id who;
    char go = 1;
    int rc = lf_proc_of(&who, pid, err);
    if (rc == 0 && write(gate[1], &go, 1) != 1)
        rc = lf_fail_errno(err, "cannot start the wrapper");
    close(gate[1]);
    snprintf(id, sizeof id, "%d", (int)pid);
    if (rc < 0)
        return rc;
    job->id = lf_strdup(id, err);
    job->process = lf_malloc(1, sizeof who, err);
    if (job->process != NULL)
        *job->process = who;
    return job->id != NULL && job->process != NULL ? 0 : LF_ENOMEM;
}

static int local_poll(void *self, const struct lf_job_rec *job, enum lf_job_state *state,
                      lf_err *err)
{
    (void)self;
    (void)err;
    pid_t pid = job->process != NULL ? (pid_t)job->process->pid : 0;
    if (pid > 1)
        waitpid(pid, NULL,
                WNOHANG); /* reap it when it is our child; otherwise this fails and does nothing */
    switch (lf_who_look(job->process)) {
    case LF_PROC_ALIVE:
        *state = LF_JOB_RUNNING;
        break;
    case LF_PROC_GONE:
        *state = LF_JOB_ENDED;
        break;
    case LF_PROC_ELSEWHERE:
        *state = LF_JOB_UNKNOWN;
        break;
    }
    return 0;
}

static int local_stop(void *self, const struct lf_job_rec *job, lf_err *err)
{
    (void)self;
    lf_err e = LF_ERR_INIT;
    int rc = lf_who_kill(job->process, SIGTERM, 0, &e);
    return rc < 0 && rc != LF_ENOENT ? lf_fail(err, rc, "%s", e.text) : 0;
}

const lf_submitter lf_submitter_local = {.name = "local",
                                         .open = local_open,
                                         .close = local_close,
                                         .start = local_start,
                                         .poll = local_poll,
                                         .stop = local_stop};
