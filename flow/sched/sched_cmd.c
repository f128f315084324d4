/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a scheduler's command: its environment, its time, its output.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/record/record.h"
#include "flow/sched/sched.h"

#define OUT_MAX      ((size_t)64 << 20)
#define ERR_MAX      ((size_t)64 << 10)
#define EXIT_MISSING 127

extern char **environ;

/* ---- the environment ---- */

/* Variables of the job we may be in, and those that change what a command prints. */
static bool dropped(const char *var)
{
    static const char *const prefixes[] = {
        "SLURM_",    "SLURMD_", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SACCT_", "SCANCEL_",
        "SCONTROL_", "SINFO_",  "PBS_",    "PMIX_", "PMI_",    "OMPI_",   "PRTE_",  "QSUB_"};
    static const char *const kept[] = {"SLURM_CONF=", "SLURM_CONF_SERVER=", "PBS_CONF_FILE=",
                                       "PBS_SERVER=", "PBS_DEFAULT=",       "PBS_EXEC="};
    if (strncmp(var, "LC_ALL=", 7) == 0 || strncmp(var, "LANG=", 5) == 0 ||
        strncmp(var, "SACCT_FORMAT=", 13) == 0)
        return true;
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (strncmp(var, kept[i], strlen(kept[i])) == 0)
            return false;
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(var, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static char **clean_environment(lf_err *err)
{
    static char locale[] = "LC_ALL=C";
    size_t n = 0, k = 0;
    while (environ[n] != NULL)
        n++;
    char **env = lf_calloc(n + 2, sizeof *env, err);
    for (size_t i = 0; env != NULL && i < n; i++)
        if (!dropped(environ[i]))
            env[k++] = environ[i];
    if (env != NULL)
        env[k] = locale;
    return env;
}

/* ---- the process ---- */

struct child {
    pid_t pid;
    int fd[2]; /* its stdout and stderr */
};

/* The first `name` below a list of directories; only execve, as nothing else is safe here. */
static void exec_in(const char *dirs, char *const *argv, char **env)
{
    char path[4096];
    for (const char *p = dirs; *p != '\0';) {
        size_t n = strcspn(p, ":");
        if (n > 0 && *p == '/' &&
            (size_t)snprintf(path, sizeof path, "%.*s/%s", (int)n, p, argv[0]) < sizeof path)
            execve(path, argv, env);
        p += n + (p[n] == ':');
    }
}

/* Runs in our memory, as vfork leaves it: nothing here may change a variable. Forking would copy
 * the tables of all our pages for every command, which for ten thousand jobs is most of the work.
 * Inside a PBS job the PATH is that of the node's daemon or of a login shell, which may lack PBS's
 * own commands; the job knows the PATH of its submission. */
static void become(char *const *argv, char **env, int out, int err_fd, pid_t parent)
{
    const char *submit_path = getenv("PBS_O_PATH");
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_MISSING);
    int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(err_fd, 2) < 0)
        _exit(126);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    execvpe(argv[0], argv, env);
    int why = errno;
    if (why == ENOENT && submit_path != NULL && strchr(argv[0], '/') == NULL)
        exec_in(submit_path, argv, env);
    _exit(why == ENOENT ? EXIT_MISSING : 126);
}

static int start(struct child *c, char *const *argv, char **env, lf_err *err)
{
    int out[2], er[2];
    if (pipe2(out, O_CLOEXEC) < 0)
        return lf_fail_errno(err, "cannot make a pipe");
    if (pipe2(er, O_CLOEXEC) < 0) {
        int rc = lf_fail_errno(err, "cannot make a pipe");
        close(out[0]);
        close(out[1]);
        return rc;
    }
    pid_t me = getpid();
    c->pid = vfork();
    if (c->pid == 0)
        become(argv, env, out[1], er[1], me);
    int rc = c->pid < 0 ? lf_fail_errno(err, "cannot fork") : 0;
    close(out[1]);
    close(er[1]);
    if (rc < 0) {
        close(out[0]);
        close(er[0]);
        return rc;
    }
    setpgid(c->pid, c->pid);
    c->fd[0] = out[0];
    c->fd[1] = er[0];
    return 0;
}

/* One read into the buffer it belongs to; closes at the end. */
static void take(struct child *c, int i, lf_sched_out *o)
{
    char chunk[65536];
    lf_buf *to = i == 0 ? &o->out : &o->err;
    size_t most = i == 0 ? OUT_MAX : ERR_MAX;
    ssize_t n = read(c->fd[i], chunk, sizeof chunk);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        close(c->fd[i]);
        c->fd[i] = -1;
        return;
    }
    size_t room = to->len < most ? most - to->len : 0;
    o->cut = o->cut || (i == 0 && (size_t)n > room);
    lf_buf_add(to, chunk, (size_t)n < room ? (size_t)n : room);
}

static void end_group(pid_t pid, int sig)
{
    if (kill(-pid, sig) < 0)
        kill(pid, sig);
}

/* Until both pipes are closed and it has ended, or its time is over. */
static void wait_for(struct child *c, double end, lf_sched_out *o)
{
    const struct timespec moment = {0, 2 * 1000 * 1000};
    int status = 0;
    bool reaped = false;
    while (!reaped || c->fd[0] >= 0 || c->fd[1] >= 0) {
        struct pollfd p[2] = {{.fd = c->fd[0], .events = POLLIN},
                              {.fd = c->fd[1], .events = POLLIN}};
        bool open_pipes = c->fd[0] >= 0 || c->fd[1] >= 0;
        if (open_pipes && poll(p, 2, reaped ? 200 : 50) > 0)
            for (int i = 0; i < 2; i++)
                if (c->fd[i] >= 0 && p[i].revents != 0)
                    take(c, i, o);
        if (!reaped && waitpid(c->pid, &status, WNOHANG) == c->pid)
            reaped = true;
        else if (reaped && open_pipes && p[0].revents == 0 && p[1].revents == 0)
            break; /* a process it left behind holds the pipe */
        else if (!reaped && !open_pipes)
            nanosleep(&moment, NULL);
        if (!reaped && lf_now_s() > end) {
            o->timed_out = true;
            end_group(c->pid, SIGKILL);
            waitpid(c->pid, &status, 0);
            reaped = true;
        }
    }
    for (int i = 0; i < 2; i++)
        if (c->fd[i] >= 0)
            close(c->fd[i]);
    o->exit = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    o->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* ---- public ---- */

/* What is left for commands that do not answer, and what it was; -1: not limited. */
static double patience_s = -1, patience_whole_s = -1;

double lf_sched_timeout_s(const lf_site *site)
{
    double s = (double)site->timeout_s.v;
    return s > 0 ? s : 60;
}

void lf_sched_patience(const lf_site *site)
{
    patience_s = patience_whole_s = site != NULL ? 2 * lf_sched_timeout_s(site) : -1;
}

static void free_words(char **w)
{
    for (char **p = w; p != NULL && *p != NULL; p++)
        free(*p);
    free(w);
}

static char **words_of(const lf_texts *argv, const lf_site *site, lf_err *err)
{
    size_t n = argv->n;
    char **w = lf_calloc(n + 1, sizeof *w, err);
    for (size_t i = 0; w != NULL && i < n; i++) {
        const char *word = argv->v[i];
        const char *path = i == 0 ? lf_pairs_get(&site->commands, word) : NULL;
        w[i] = lf_strdup(path != NULL ? path : word, err);
        if (w[i] == NULL) {
            free_words(w);
            return NULL;
        }
    }
    return w;
}

int lf_command_run(lf_sched_out *out, char *const *words, char **env, double timeout_s, lf_err *err)
{
    struct child c = {.pid = -1, .fd = {-1, -1}};
    lf_sched_out o;
    memset(&o, 0, sizeof o);
    lf_buf_init(&o.out);
    lf_buf_init(&o.err);
    int rc = start(&c, words, env, err);
    if (rc == 0) {
        wait_for(&c, lf_now_s() + timeout_s, &o);
        o.missing = o.exit == EXIT_MISSING && o.out.len == 0 && o.err.len == 0;
        rc = lf_buf_check(&o.out, err);
    }
    if (rc < 0)
        lf_sched_out_fini(&o);
    else
        *out = o;
    return rc;
}

int lf_sched_run(lf_sched_out *out, const lf_texts *argv, const lf_site *site, double timeout_s,
                 lf_err *err)
{
    if (timeout_s <= 0)
        timeout_s = lf_sched_timeout_s(site);
    if (patience_s >= 0 && patience_s < timeout_s)
        timeout_s = patience_s;
    char **words = words_of(argv, site, err), **env = clean_environment(err);
    int rc = words == NULL || env == NULL ? LF_ENOMEM : 0;
    if (rc == 0 && timeout_s <= 0) {
        memset(out, 0, sizeof *out);
        lf_buf_init(&out->out);
        lf_buf_init(&out->err);
        out->timed_out = true;
        out->exit = -1;
    } else if (rc == 0) {
        double begun = lf_now_s();
        rc = lf_command_run(out, words, env, timeout_s, err);
        double left = patience_s - (lf_now_s() - begun);
        if (rc == 0 && patience_s >= 0)
            patience_s = !out->timed_out ? patience_whole_s : left > 0 ? left : 0;
    }
    free_words(words);
    free(env);
    return rc;
}

int lf_sched_runv(lf_sched_out *out, const lf_site *site, double timeout_s, lf_err *err,
                  const char *word0, ...)
{
    lf_texts argv = {.n = 0};
    int rc = 0;
    va_list ap;
    va_start(ap, word0);
    for (const char *w = word0; rc == 0 && w != NULL; w = va_arg(ap, const char *))
        rc = lf_texts_add(&argv, w, err);
    va_end(ap);
    if (rc == 0)
        rc = lf_sched_run(out, &argv, site, timeout_s, err);
    lf_texts_fini(&argv);
    return rc;
}

void lf_sched_out_fini(lf_sched_out *o)
{
    lf_buf_fini(&o->out);
    lf_buf_fini(&o->err);
    memset(o, 0, sizeof *o);
}

const char *lf_sched_said(char *buf, size_t cap, const lf_sched_out *o)
{
    const char *p = o->err.len > 0 ? o->err.data : o->out.data;
    size_t n = 0;
    if (o->err.len + o->out.len == 0) {
        if (o->signal != 0)
            snprintf(buf, cap, "ended by signal %d without a word", o->signal);
        else
            snprintf(buf, cap, "exit %d without a word", o->exit);
        return buf;
    }
    for (; *p != '\0' && n + 3 < cap; p++) {
        bool end = *p == '\n';
        if (end && p[1] == '\0')
            break;
        if (end)
            buf[n++] = ';';
        buf[n++] = (unsigned char)*p < 0x20 || *p == 0x7f ? ' ' : *p;
    }
    buf[n] = '\0';
    return lf_text_clean(buf);
}
