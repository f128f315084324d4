/* SPDX-License-Identifier: Apache-2.0
 *
 * Which launcher, and its argv. Facts behind the options:
 *   srun      steps of a job sent with --export=NONE start without the script's environment, and
 *             without the job's number of processors per task: every srun says --export=ALL and -c.
 *             A rank that has saved and ended with 75 must not end the others:
 *             --kill-on-bad-exit=0; a rank that dies is found by PMIx and by the ranks' watchdog.
 *   mpirun, prterun   the same by an option of the runtime's.
 */
#include "config.h"

#include "flow/launch/launch.h"

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
#include <unistd.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"

extern char **environ;

static const char *const names[] = {"auto", "srun", "loong", "prterun", "mpirun", "none"};

int lf_launcher_find(const char *name)
{
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

const char *lf_launcher_name(enum lf_launcher l)
{
    return names[l];
}

void lf_launch_scrub(void)
{
    char name[128];
    for (char **e = environ; *e != NULL;) {
        const size_t n = strcspn(*e, "=");
        const bool foreign =
            (lf_str_has_prefix(*e, "PMIX_") && !lf_str_has_prefix(*e, "PMIX_MCA_")) ||
            lf_str_has_prefix(*e, "PMI_") || lf_str_has_prefix(*e, "OMPI_COMM_WORLD_") ||
            lf_str_has_prefix(*e, "SLURM_STEP_NUM_TASKS=");
        if (foreign && n < sizeof name) {
            snprintf(name, sizeof name, "%.*s", (int)n, *e);
            unsetenv(name);
            e = environ; /* it was moved */
        } else {
            e++;
        }
    }
}

/* ---- argv ---- */

struct words {
    char **v;
    size_t n, cap;
    bool failed;
};

static void add(struct words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct words *w, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = NULL;
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    va_end(ap);
    if (text == NULL || lf_grow(&w->v, &w->cap, w->n + 1, sizeof *w->v, NULL) < 0) {
        free(text);
        w->failed = true;
        return;
    }
    w->v[w->n++] = text;
    w->v[w->n] = NULL;
}

static void add_all(struct words *w, const char *const *list)
{
    for (; list != NULL && *list != NULL; list++)
        add(w, "%s", *list);
}

static void srun_words(struct words *w, const lf_launch_req *q)
{
    add(w, "srun");
    add(w, "--mpi=pmix");
    add(w, "--export=ALL");
    add(w, "--nodes=%d", q->nodes);
    add(w, "--ntasks=%d", q->nodes * q->ranks);
    add(w, "--ntasks-per-node=%d", q->ranks);
    add(w, "-c");
    add(w, "%d", q->cpus > 0 ? q->cpus : 1);
    add(w, "--kill-on-bad-exit=0");
    add(w, "--label");
    if (getenv("SLURM_STEP_ID") != NULL)
        add(w, "--overlap");
}

static void loong_words(struct words *w, const lf_launch_req *q)
{
    add(w, "%s", q->self);
    add(w, "launch");
    add(w, "--ranks");
    add(w, "%d", q->nodes * q->ranks);
    add(w, "--nodes");
    add(w, "%d", q->nodes);
    if (q->cpus > 0) {
        add(w, "--cpus");
        add(w, "%d", q->cpus);
    }
    add(w, "--");
}

static void prterun_words(struct words *w, const lf_launch_req *q)
{
    add(w, "prterun");
    if (getuid() == 0)
        add(w, "--allow-run-as-root");
    add(w, "-n");
    add(w, "%d", q->nodes * q->ranks);
    add(w, "--map-by");
    add(w, "ppr:%d:node:OVERSUBSCRIBE", q->ranks);
    add(w, "--bind-to");
    add(w, "none");
    add(w, "--runtime-options");
    add(w, "error-nonzero-status=false");
    add(w, "--output");
    add(w, "tag");
}

static void mpirun_words(struct words *w, const lf_launch_req *q)
{
    add(w, "mpirun");
    if (getuid() == 0)
        add(w, "--allow-run-as-root");
    add(w, "-np");
    add(w, "%d", q->nodes * q->ranks);
    add(w, "--map-by");
    add(w, "ppr:%d:node", q->ranks);
    add(w, "--oversubscribe");
    add(w, "--bind-to");
    add(w, "none");
    add(w, "--tag-output");
    add(w, "--mca");
    add(w, "orte_abort_on_non_zero_status");
    add(w, "0");
}

static int build(lf_launch_plan *out, enum lf_launcher l, const lf_launch_req *q, lf_err *err)
{
    struct words w = {NULL, 0, 0, false};
    switch (l) {
    case LF_LAUNCH_SRUN:
        srun_words(&w, q);
        break;
    case LF_LAUNCH_LOONG:
        loong_words(&w, q);
        break;
    case LF_LAUNCH_PRTERUN:
        prterun_words(&w, q);
        break;
    case LF_LAUNCH_MPIRUN:
        mpirun_words(&w, q);
        break;
    default:
        break;
    }
    add_all(&w, q->prefix);
    add_all(&w, q->argv);
    out->launcher = l;
    out->argv = w.v;
    out->omp_threads = q->cpus;
    if (w.failed || w.v == NULL) {
        lf_launch_plan_fini(out);
        return lf_fail(err, LF_ENOMEM, "no memory for a command line");
    }
    return 0;
}

void lf_launch_plan_fini(lf_launch_plan *p)
{
    for (char **a = p->argv; a != NULL && *a != NULL; a++)
        free(*a);
    free(p->argv);
    p->argv = NULL;
}

/* ---- probes ---- */

struct run {
    pid_t pid;
    int fd;
    char tail[400]; /* end of what it printed */
    size_t n;
};

static int start(struct run *r, char **argv, lf_err *err)
{
    int p[2];
    if (pipe2(p, O_CLOEXEC) < 0)
        return lf_fail_errno(err, "no pipe for a probe");
    r->fd = p[0];
    pid_t parent = getpid();
    r->pid = fork();
    if (r->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        setpgid(0, 0);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        lf_launch_scrub();
        int null = open("/dev/null", O_RDONLY);
        if (null >= 0)
            dup2(null, 0);
        dup2(p[1], 1);
        dup2(p[1], 2);
        if (getppid() == parent)
            execvp(argv[0], argv);
        dprintf(2, "%s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    close(p[1]);
    if (r->pid < 0) {
        close(p[0]);
        return lf_fail_errno(err, "cannot start a probe");
    }
    return 0;
}

/* Keep the end of the text. */
static void keep(struct run *r, const char *data, size_t n)
{
    const size_t cap = sizeof r->tail - 1;
    if (n > cap) {
        data += n - cap;
        n = cap;
    }
    if (r->n + n > cap) {
        const size_t cut = r->n + n - cap;
        memmove(r->tail, r->tail + cut, r->n - cut);
        r->n -= cut;
    }
    memcpy(r->tail + r->n, data, n);
    r->n += n;
    r->tail[r->n] = '\0';
}

/* Read until it ends, at most until `end`. false: it has not ended. */
static bool listen_to(struct run *r, double end, int *status)
{
    char buf[2048];
    while (lf_now_s() < end) {
        struct pollfd p = {.fd = r->fd, .events = POLLIN};
        ssize_t n = poll(&p, 1, 200) > 0 ? read(r->fd, buf, sizeof buf) : -1;
        if (n > 0)
            keep(r, buf, (size_t)n);
        if (waitpid(r->pid, status, WNOHANG) == r->pid)
            return true;
        if (n == 0)
            usleep(20000);
    }
    return false;
}

static void end_probe(struct run *r, int *status)
{
    kill(-r->pid, SIGTERM); /* srun and launchers end their step */
    if (!listen_to(r, lf_now_s() + 5, status)) {
        kill(-r->pid, SIGKILL);
        listen_to(r, lf_now_s() + 5, status); /* one that a dead filesystem holds does not end */
    }
}

int lf_launch_probe(enum lf_launcher l, const char *self, int nodes, int ranks, double patience_s,
                    lf_err *err)
{
    char count[16];
    snprintf(count, sizeof count, "%d", nodes * ranks);
    const char *const argv[] = {self, "launch", "--probe", "--ranks", count, NULL};
    const lf_launch_req q = {.nodes = nodes, .ranks = ranks, .self = self, .argv = argv};
    lf_launch_plan plan = {.argv = NULL};
    struct run r = {.fd = -1, .n = 0, .tail = ""};
    int status = 0, rc = build(&plan, l, &q, err);
    if (rc == 0)
        rc = start(&r, plan.argv, err);
    if (rc == 0) {
        if (!listen_to(&r, lf_now_s() + (patience_s > 0 ? patience_s : 60), &status)) {
            end_probe(&r, &status);
            rc = lf_fail(err, LF_EBUSY, "%s started no ranks within %.0f s: %s", names[l],
                         patience_s > 0 ? patience_s : 60, r.tail);
        } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            rc = lf_fail(err, LF_ECOMM, "%s cannot start ranks that find each other (%s %d): %s",
                         names[l], WIFEXITED(status) ? "exit code" : "signal",
                         WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), r.tail);
        }
        close(r.fd);
    }
    for (char *p = err != NULL && rc < 0 ? err->text : NULL; p != NULL && *p != '\0'; p++)
        if (*p == '\n')
            *p = ' ';
    lf_launch_plan_fini(&plan);
    return rc;
}

/* ---- the choice ---- */

static bool on_path(const char *program)
{
    const char *path = getenv("PATH");
    char full[4096];
    for (const char *p = path != NULL ? path : "/usr/bin:/bin"; *p != '\0';) {
        const size_t n = strcspn(p, ":");
        snprintf(full, sizeof full, "%.*s/%s", (int)n, n > 0 ? p : ".", program);
        if (access(full, X_OK) == 0)
            return true;
        p += n + (p[n] == ':');
    }
    return false;
}

/* Can it be used here at all? why: the reason, either way. */
static bool usable(enum lf_launcher l, char *why, size_t cap)
{
    bool yes = true;
    switch (l) {
    case LF_LAUNCH_SRUN:
        yes = getenv("SLURM_JOB_ID") != NULL && on_path("srun");
        snprintf(why, cap,
                 yes ? "this is a SLURM job"
                     : "srun: this is no SLURM job, or srun is not on PATH");
        break;
    case LF_LAUNCH_LOONG:
#ifdef HAVE_PMIX
        snprintf(why, cap, "our own launcher");
#else
        yes = false;
        snprintf(why, cap, "loong: built --without-pmix");
#endif
        break;
    case LF_LAUNCH_PRTERUN:
    case LF_LAUNCH_MPIRUN:
        yes = on_path(names[l]);
        snprintf(why, cap, "%s is %son PATH", names[l], yes ? "" : "not ");
        break;
    default:
        break;
    }
    return yes;
}

static int choose(lf_launch_plan *out, const lf_launch_req *q, lf_err *err)
{
    static const enum lf_launcher order[] = {LF_LAUNCH_SRUN, LF_LAUNCH_LOONG, LF_LAUNCH_PRTERUN};
    char reasons[700] = "", why[300];
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        bool yes = usable(order[i], why, sizeof why);
        if (yes && order[i] == LF_LAUNCH_SRUN) {
            lf_err e = LF_ERR_INIT;
            yes = lf_launch_probe(order[i], q->self, q->nodes, q->ranks, q->probe_s, &e) == 0;
            snprintf(why, sizeof why, "%.280s", yes ? "srun --mpi=pmix works in this job" : e.text);
        }
        if (yes) {
            snprintf(out->why, sizeof out->why, "%.120s%s%.60s", why,
                     reasons[0] != '\0' ? "; " : "", reasons);
            return build(out, order[i], q, err);
        }
        const size_t at = strlen(reasons);
        snprintf(reasons + at, sizeof reasons - at, "%s%s", at > 0 ? "; " : "", why);
    }
    return lf_fail(err, LF_ENOTSUP, "no launcher for %d ranks: %s", q->nodes * q->ranks, reasons);
}

int lf_launch_plan_make(lf_launch_plan *out, const lf_launch_req *q, lf_err *err)
{
    char why[300];
    *out = (lf_launch_plan){.launcher = q->launcher};
    if (q->nodes < 1 || q->ranks < 1 || q->cpus < 0 || q->argv == NULL || q->argv[0] == NULL)
        return lf_fail(err, LF_EINVAL, "%d nodes with %d ranks of %d processors", q->nodes,
                       q->ranks, q->cpus);
    const bool one = q->nodes == 1 && q->ranks == 1;
    if (one && (q->launcher == LF_LAUNCH_AUTO || q->launcher == LF_LAUNCH_NONE)) {
        snprintf(out->why, sizeof out->why, "one rank needs no launcher");
        return build(out, LF_LAUNCH_NONE, q, err);
    }
    if (q->launcher == LF_LAUNCH_NONE)
        return lf_fail(err, LF_EINVAL, "launcher = none starts one rank, %d are asked for",
                       q->nodes * q->ranks);
    if (q->launcher == LF_LAUNCH_AUTO)
        return choose(out, q, err);
    if (!usable(q->launcher, why, sizeof why))
        return lf_fail(err, LF_ENOTSUP, "launcher = %s: %s", names[q->launcher], why);
    snprintf(out->why, sizeof out->why, "launcher = %s", names[q->launcher]);
    return build(out, q->launcher, q, err);
}
