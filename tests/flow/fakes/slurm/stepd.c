/* SPDX-License-Identifier: Apache-2.0
 *
 * slurmstepd of one start of a job: runs the batch script, kills what is left when that has
 * ended, and writes the wait status to ends/<seq>.<restarts>. It knows nothing of the controller,
 * so the processes of a node that was given up live on.
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

#include "tests/flow/fakes/slurm/fk.h"

static char **environment(const json_t *job)
{
    json_t *env = json_object_get(job, "run_env"), *v;
    const char *k;
    size_t n = 0;
    char **out = calloc(json_object_size(env) + 1, sizeof *out);
    json_object_foreach(env, k, v)
    {
        size_t cap = strlen(k) + json_string_length(v) + 2;
        if (out == NULL || (out[n] = malloc(cap)) == NULL)
            _exit(98);
        snprintf(out[n++], cap, "%s=%s", k, json_string_value(v));
    }
    return out;
}

static void open_as(int fd, const char *path, int flags)
{
    int got = open(path, flags, 0644);
    if (got < 0) { /* slurmstepd then ends the job */
        dprintf(2, "slurmstepd: error: Could not open %s: %s\n", path, strerror(errno));
        _exit(1);
    }
    if (got != fd) {
        dup2(got, fd);
        close(got);
    }
}

static void become_script(const json_t *job, char *const *env)
{
    const char *cwd = fk_s(job, "cwd"), *in = fk_s(job, "in");
    int how = O_WRONLY | O_CREAT | (fk_b(job, "append") ? O_APPEND : O_TRUNC);
    setsid();
    if (chdir(cwd) < 0 && chdir("/tmp") < 0)
        _exit(1);
    open_as(0, in[0] != '\0' ? in : "/dev/null", O_RDONLY);
    open_as(1, fk_s(job, "out_path"), how);
    if (fk_s(job, "err_path")[0] != '\0')
        open_as(2, fk_s(job, "err_path"), how);
    else
        dup2(1, 2);
    size_t n = json_array_size(json_object_get(job, "args"));
    char **argv = calloc(n + 2, sizeof *argv);
    if (argv == NULL)
        _exit(98);
    argv[0] = strdup(fk_s(job, "spooled"));
    for (size_t i = 0; i < n; i++)
        argv[i + 1] = strdup(json_string_value(json_array_get(json_object_get(job, "args"), i)));
    umask((mode_t)fk_i(job, "umask"));
    execve(argv[0], argv, env);
    dprintf(2, "slurmstepd: error: execve(): %s: %s\n", argv[0], strerror(errno));
    _exit(errno == ENOENT ? 2 : 1);
}

static void write_end(const json_t *job, int status)
{
    char path[PATH_MAX], tmp[PATH_MAX];
    fk_path(path, sizeof path, "ends/%lld.%lld", fk_i(job, "seq"), fk_i(job, "restarts"));
    fk_path(tmp, sizeof tmp, "ends/.%lld.%lld", fk_i(job, "seq"), fk_i(job, "restarts"));
    FILE *f = fopen(tmp, "we");
    if (f == NULL || fprintf(f, "%d\n", status) < 0 || fclose(f) != 0 || rename(tmp, path) < 0)
        _exit(98);
}

pid_t fk_stepd_start(json_t *job)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int s = 1; s < 32; s++)
        signal(s, SIG_DFL);
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "slurmstepd");
    for (int fd = 3; fd < 256; fd++)
        close(fd);
    char **env = environment(job);
    pid_t script = fork();
    if (script == 0)
        become_script(job, env);
    int status = 0, other;
    while (waitpid(script, &status, 0) < 0 && errno == EINTR)
        ;
    for (pid_t got = 0;
         got >= 0 || errno != ECHILD;) { /* what the script left behind does not outlive the job */
        fk_tree_signal(getpid(), SIGKILL, 'a');
        while ((got = waitpid(-1, &other, WNOHANG)) > 0)
            ;
        if (got == 0)
            usleep(5000);
    }
    write_end(job, status);
    _exit(0);
}
