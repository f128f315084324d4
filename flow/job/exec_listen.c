/* SPDX-License-Identifier: Apache-2.0
 *
 * Hearing of a preemption. At the beginning of the grace SLURM sends TERM to the steps of a job and
 * not to its script, and a stage of one rank is a child of the script. So a step that only sleeps
 * is kept beside it; its end by a signal is the signal. Where such a step cannot be started, the
 * job's end is asked for once a minute instead: it moves to the end of the grace.
 */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/sys.h"
#include "flow/job/exec.h"

#define ASK_WITHOUT_S 60.0
#define GO_AWAY_S     2.0

static void listener_main(const char *node)
{
    char where[300];
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        dup2(null, fd);
    snprintf(where, sizeof where, "--nodelist=%s", node);
    execlp("srun", "srun", "--overlap", "--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--mem=0",
           "--mpi=none", "--export=NONE", where, "/bin/sleep", "2000000000", (char *)NULL);
    _exit(127);
}

void lf_exec_listen_begin(lf_exec_listener *l, lf_exec *x)
{
    char node[256];
    memset(l, 0, sizeof *l);
    if (x->job.ops != &lf_jobside_slurm || lf_jobside_node(&x->job, node, sizeof node)[0] == '\0')
        return;
    l->pid = fork();
    if (l->pid == 0)
        listener_main(node);
}

bool lf_exec_listen_heard(lf_exec_listener *l, lf_exec *x)
{
    int status = 0;
    if (l->pid <= 0 || waitpid(l->pid, &status, WNOHANG) != l->pid)
        return false;
    l->pid = 0;
    /* srun ends with 128 + the signal of its task. Anything else: the step could not be had, or was
     * ended without a reason. */
    bool heard = WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) > 128);
    if (!heard)
        x->job.ask_every_s = ASK_WITHOUT_S;
    return heard;
}

void lf_exec_listen_end(lf_exec_listener *l)
{
    double until = lf_now_s() + GO_AWAY_S;
    if (l->pid <= 0)
        return;
    kill(l->pid, SIGTERM); /* srun ends its task and goes */
    while (waitpid(l->pid, NULL, WNOHANG) == 0) {
        if (lf_now_s() >= until)
            kill(l->pid, SIGKILL);
        const struct timespec ts = {0, 20 * 1000 * 1000};
        nanosleep(&ts, NULL);
    }
    l->pid = 0;
}
