/* SPDX-License-Identifier: Apache-2.0
 *
 * The daemon of a node: a PMIx server and the ranks that are its children. One poll loop; PMIx's
 * thread only queues frames. Calls of PMIx may hang, and every signal is blocked here: so a thread
 * of its own ends the daemon when it has not ended in time by itself.
 *
 * message.h has the job's description (LF_FRAME_JOB).
 */
#include "config.h"

#include "flow/launch/job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/launch/launch.h"
#include "flow/launch/message.h"

extern char **environ;

/* LEAVE_S: from the end of the hub or of the job to the end of the daemon, before the hub kills it.
 * FORCE_S: for what is then done by force. */
enum { BACKLOG = 1 << 20, LEAVE_S = 8, FORCE_S = 5 };

struct rank {
    pid_t pid;
    int out[2]; /* read ends of standard output and error, -1: closed */
};

struct lf_daemon {
    lf_wire wire;
    int sig, wake, node;
    char host[256], tmp[256];
    struct lf_task task; /* zero before it has come */
    struct lf_pserver *server;
    struct rank *rank; /* of this node */
    int first, n, alive;
    struct pollfd *poll;
    bool done, lost;
    pthread_t watch;
    bool watched;
    int leaving, left;           /* events for the watch: the job has ended, so has the daemon */
    _Atomic(const char *) doing; /* what the watch says it hangs in */
};

static void put(struct lf_daemon *d, enum lf_frame type, int rank, int status, uint32_t id,
                const void *data, size_t len)
{
    lf_wire_put(&d->wire, (struct lf_frame_head){type, (uint32_t)rank, status, id, len}, data);
}

/* ---- what PMIx asks for ---- */

static void ask_fence(void *arg, uint32_t id, const uint32_t *ranks, uint32_t n, const char *data,
                      size_t len)
{
    struct lf_daemon *d = arg;
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_add(&b, &n, sizeof n); /* little-endian, as all of us */
    lf_buf_add(&b, ranks, n * sizeof *ranks);
    lf_buf_add(&b, data, len);
    put(d, LF_FRAME_FENCE, d->node, 0, id, b.data, b.len);
    lf_buf_fini(&b);
}

static void ask_modex(void *arg, uint32_t id, uint32_t rank)
{
    put(arg, LF_FRAME_MODEX, (int)rank, 0, id, NULL, 0);
}

static void give_modex(void *arg, uint32_t node, uint32_t id, int status, const char *data,
                       size_t len)
{
    put(arg, LF_FRAME_MODEX_DATA, (int)node, status, id, data, len);
}

static void ask_abort(void *arg, uint32_t rank, int status, const char *text)
{
    put(arg, LF_FRAME_ABORT, (int)rank, status, 0, text, strlen(text));
}

static void tell_joined(void *arg, uint32_t rank)
{
    put(arg, LF_FRAME_JOINED, (int)rank, 0, 0, NULL, 0);
}

/* ---- starting ranks ---- */

static void free_list(char **v)
{
    for (char **p = v; p != NULL && *p != NULL; p++)
        free(*p);
    free(v);
}

static int read_job(struct lf_daemon *d, const char *text, size_t len, lf_err *err)
{
    struct lf_task *t = &d->task;
    int rc = lf_task_read(t, text, len, err);
    if (rc < 0)
        return rc;
    d->node = t->node;
    d->first = t->first[d->node];
    d->n = t->first[d->node + 1] - d->first;
    d->rank = lf_calloc((size_t)d->n, sizeof *d->rank, err);
    d->poll = lf_calloc(3 + 2 * (size_t)d->n, sizeof *d->poll, err);
    return d->rank != NULL && d->poll != NULL ? 0 : LF_ENOMEM;
}

static int open_server(struct lf_daemon *d, lf_err *err)
{
    const struct lf_task *t = &d->task;
    const struct lf_pserver_job j = {.ns = t->ns,
                                     .tmp = d->tmp,
                                     .host = t->hosts[d->node],
                                     .node = d->node,
                                     .nodes = t->nodes,
                                     .ranks = t->first[t->nodes],
                                     .hosts = t->hosts,
                                     .first = t->first};
    const struct lf_pserver_calls calls = {d,          ask_fence, ask_modex,
                                           give_modex, ask_abort, tell_joined};
    d->server = lf_pserver_create(&j, &calls, err);
    return d->server != NULL ? 0 : LF_ECOMM;
}

static char **copy_environment(lf_err *err)
{
    size_t n = 0;
    while (environ[n] != NULL)
        n++;
    char **env = lf_calloc(n + 2, sizeof *env, err); /* and OMP_NUM_THREADS */
    for (size_t i = 0; env != NULL && i < n; i++)
        env[i] = lf_strdup(environ[i], err);
    return env;
}

/* The processors of the i-th of n ranks: an even slice of those we may use; false: too few to give
 * each its own. */
static bool slice(cpu_set_t *mine, int i, int n, int each)
{
    cpu_set_t all;
    int seen = 0;
    if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < n * (each > 0 ? each : 1))
        return false;
    const int per = each > 0 ? each : CPU_COUNT(&all) / n;
    CPU_ZERO(mine);
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &all) && seen++ >= i * per && seen <= (i + 1) * per)
            CPU_SET(c, mine);
    return true;
}

static void set_threads(char **env, int cpus, int n)
{
    size_t k = 0;
    for (; env[k] != NULL; k++)
        if (lf_str_has_prefix(env[k], "OMP_NUM_THREADS="))
            return;
    char text[48];
    const int share = lf_ncpu() / n;
    snprintf(text, sizeof text, "OMP_NUM_THREADS=%d", cpus > 0 ? cpus : share > 0 ? share : 1);
    env[k] = lf_strdup(text, NULL);
}

static void rank_main(const struct lf_daemon *d, int i, char **env, const int out[2], pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(125);
    setpgid(0, 0);
    cpu_set_t mine;
    if (d->task.bind && slice(&mine, i, d->n, d->task.cpus))
        sched_setaffinity(0, sizeof mine, &mine);
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0)
        dup2(null, 0);
    dup2(out[0], 1);
    dup2(out[1], 2);
    const int plain[] = {SIGTERM, SIGINT,  SIGHUP, SIGUSR1,
                         SIGUSR2, SIGPIPE, SIGCHLD}; /* ignored is inherited */
    for (size_t k = 0; k < sizeof plain / sizeof plain[0]; k++)
        signal(plain[k], SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvpe(d->task.argv[0], d->task.argv, env);
    dprintf(2, "loong-flow launch: cannot execute %s: %s\n", d->task.argv[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

static int start_rank(struct lf_daemon *d, int i, lf_err *err)
{
    struct rank *r = &d->rank[i];
    int pipes[2][2] = {{-1, -1}, {-1, -1}}, rc = 0;
    char **env = copy_environment(err);
    if (env == NULL)
        return LF_ENOMEM;
    set_threads(env, d->task.cpus, d->n);
    rc = lf_pserver_add(d->server, d->first + i, &env, err);
    for (int k = 0; rc == 0 && k < 2; k++)
        if (pipe2(pipes[k], O_CLOEXEC) < 0)
            rc = lf_fail_errno(err, "no pipe for a rank");
    if (rc == 0) {
        pid_t parent = getpid();
        r->pid = fork();
        if (r->pid == 0)
            rank_main(d, i, env, (const int[2]){pipes[0][1], pipes[1][1]}, parent);
        if (r->pid < 0)
            rc = lf_fail_errno(err, "cannot start rank %d", d->first + i);
    }
    for (int k = 0; k < 2; k++) {
        if (pipes[k][1] >= 0)
            close(pipes[k][1]);
        r->out[k] = pipes[k][0];
        if (r->out[k] >= 0)
            fcntl(r->out[k], F_SETFL, O_NONBLOCK);
    }
    free_list(env);
    if (rc < 0) {
        r->pid = 0;
        return rc;
    }
    setpgid(r->pid, r->pid); /* whichever of us comes first */
    d->alive++;
    put(d, LF_FRAME_STARTED, d->first + i, (int)r->pid, 0, NULL, 0);
    return 0;
}

static int start_job(struct lf_daemon *d, const char *text, size_t len, lf_err *err)
{
    int rc = read_job(d, text, len, err);
    for (int i = 0; d->rank != NULL && i < d->n; i++)
        d->rank[i].out[0] = d->rank[i].out[1] = -1;
    if (rc == 0)
        rc = open_server(d, err);
    for (int i = 0; rc == 0 && i < d->n; i++)
        rc = start_rank(d, i, err);
    return rc;
}

/* ---- ranks that run and end ---- */

static void read_output(struct lf_daemon *d, int i, int k)
{
    char buf[16384];
    int *fd = &d->rank[i].out[k];
    if (*fd < 0)
        return;
    ssize_t n = read(*fd, buf, sizeof buf);
    if (n > 0) {
        put(d, LF_FRAME_OUT, d->first + i, k + 1, 0, buf, (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(*fd);
        *fd = -1;
    }
}

/* What the rank itself wrote is in the pipe by now; what its children may still write is not waited
 * for. */
static void drain_output(struct lf_daemon *d, int i)
{
    for (int k = 0; k < 2; k++) {
        for (int again = 0; d->rank[i].out[k] >= 0 && again < 64; again++) {
            struct pollfd p = {.fd = d->rank[i].out[k], .events = POLLIN};
            if (poll(&p, 1, 0) <= 0)
                break;
            read_output(d, i, k);
        }
        if (d->rank[i].out[k] >= 0)
            close(d->rank[i].out[k]);
        d->rank[i].out[k] = -1;
    }
}

static void rank_ended(struct lf_daemon *d, int i)
{
    int st = 0;
    struct rank *r = &d->rank[i];
    if (waitpid(r->pid, &st, WNOHANG) != r->pid)
        return;
    kill(-r->pid, SIGKILL); /* what it left in its group */
    r->pid = 0;
    d->alive--;
    drain_output(d, i);
    const int sig = WIFSIGNALED(st) ? WTERMSIG(st) : 0;
    put(d, LF_FRAME_EXIT, d->first + i, sig ? 128 + sig : WEXITSTATUS(st), (uint32_t)sig, NULL, 0);
}

/* The first end that is told names the cause. Of ranks found ended at the same time, those that
 * somebody killed come first: a library may abort the others when their peer is gone, but no rank
 * kills itself. */
static void reap(struct lf_daemon *d)
{
    for (int other = 0; other < 2; other++)
        for (int i = 0; i < d->n; i++) {
            siginfo_t end = {0};
            if (d->rank[i].pid <= 0 ||
                waitid(P_PID, (id_t)d->rank[i].pid, &end, WEXITED | WNOHANG | WNOWAIT) ||
                end.si_pid == 0)
                continue;
            if (other || (end.si_code == CLD_KILLED && end.si_status == SIGKILL))
                rank_ended(d, i);
        }
}

static void signal_ranks(struct lf_daemon *d, int sig)
{
    for (int i = 0; i < d->n; i++)
        if (d->rank[i].pid > 0)
            kill(-d->rank[i].pid, sig);
}

/* ---- the loop ---- */

static int take_frame(struct lf_daemon *d, const struct lf_frame_head *h, const char *data,
                      lf_err *err)
{
    switch (h->type) {
    case LF_FRAME_JOB:
        return d->task.ns == NULL ? start_job(d, data, (size_t)h->len, err) : 0;
    case LF_FRAME_FENCE:
        lf_pserver_fence_done(d->server, h->id, h->status, data, (size_t)h->len);
        break;
    case LF_FRAME_MODEX:
        lf_pserver_modex_ask(d->server, (uint32_t)h->status, h->id, h->rank);
        break;
    case LF_FRAME_MODEX_DATA:
        lf_pserver_modex_done(d->server, h->id, h->status, data, (size_t)h->len);
        break;
    case LF_FRAME_SIGNAL:
        signal_ranks(d, h->status);
        break;
    case LF_FRAME_KILL:
        signal_ranks(d, SIGKILL);
        break;
    case LF_FRAME_DONE:
        d->done = true;
        break;
    default:
        return lf_fail(err, LF_EFORMAT, "the launcher sent a frame of type %u", h->type);
    }
    return 0;
}

static int take_frames(struct lf_daemon *d, lf_err *err)
{
    struct lf_frame_head h;
    const char *data = NULL;
    int rc = lf_wire_recv(&d->wire, err);
    if (rc < 0) {
        d->lost = true;
        return rc;
    }
    while ((rc = lf_wire_next(&d->wire, &h, &data, err)) == 1)
        if ((rc = take_frame(d, &h, data, err)) < 0)
            return rc;
    return rc;
}

static int fill_poll(struct lf_daemon *d)
{
    const size_t backlog = lf_wire_backlog(&d->wire);
    int n = 0;
    d->poll[n++] =
        (struct pollfd){.fd = d->wire.fd, .events = (short)(POLLIN | (backlog > 0 ? POLLOUT : 0))};
    d->poll[n++] = (struct pollfd){.fd = d->sig, .events = POLLIN};
    d->poll[n++] = (struct pollfd){.fd = d->wake, .events = POLLIN};
    for (int i = 0; i < d->n; i++)
        for (int k = 0; k < 2; k++) /* who prints faster than it can be passed on waits */
            d->poll[n++] =
                (struct pollfd){.fd = backlog < BACKLOG ? d->rank[i].out[k] : -1, .events = POLLIN};
    return n;
}

static void empty(int fd)
{
    char buf[512];
    while (read(fd, buf, sizeof buf) > 0) {
    }
}

static int serve(struct lf_daemon *d, lf_err *err)
{
    struct pollfd few[3];
    int rc = 0;
    while (rc == 0 && !(d->done && d->alive == 0)) {
        const bool early = d->poll == NULL;
        if (early)
            d->poll = few;
        const int n = fill_poll(d);
        const int got = poll(d->poll, (nfds_t)n, 1000);
        if (got > 0) {
            if (d->poll[1].revents)
                empty(d->sig);
            if (d->poll[2].revents)
                empty(d->wake);
            for (int i = 0; i < d->n; i++)
                for (int k = 0; k < 2; k++)
                    if (d->poll[3 + 2 * i + k].revents)
                        read_output(d, i, k);
        }
        const bool in = got > 0 && (d->poll[0].revents & (POLLIN | POLLHUP | POLLERR));
        if (early)
            d->poll = NULL;
        reap(d);
        if (in)
            rc = take_frames(d, err);
        if (rc == 0)
            rc = lf_wire_send(&d->wire, err);
    }
    return rc;
}

static void end_ranks(struct lf_daemon *d)
{
    signal_ranks(d, SIGKILL);
    const double end = lf_now_s() + 5;
    while (d->alive > 0 && lf_now_s() < end) {
        reap(d);
        usleep(10000);
    }
}

/* ---- the watch ---- */

/* The loop hangs, so nobody else touches the daemon's state. Even this may hang, in a dead
 * filesystem or a pipe that nobody reads: an alarm ends it then. */
static void leave_by_force(struct lf_daemon *d)
{
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    signal(SIGALRM, SIG_DFL);
    alarm(FORCE_S);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    const int alive = d->alive;
    signal_ranks(d, SIGKILL);
    dprintf(2,
            "loong-flow launch: the daemon of node %d (host %s, pid %lld) hangs in %s for %d s: it "
            "ends without that, with %d of its ranks killed\n",
            d->node, d->host, (long long)getpid(), d->doing, LEAVE_S, alive);
    if (d->tmp[0] != '\0')
        lf_io_remove_tree(d->tmp, NULL);
    _exit(1);
}

static bool wait_for(struct pollfd *p, nfds_t n, int ms)
{
    int got = 0;
    while ((got = poll(p, n, ms)) < 0 && errno == EINTR) {
    }
    return got > 0;
}

static void *watch_main(void *arg)
{
    struct lf_daemon *d = arg;
    struct pollfd begin[] = {{.fd = d->wire.fd, .events = POLLRDHUP},
                             {.fd = d->leaving, .events = POLLIN}},
                  end = {.fd = d->left, .events = POLLIN};
    wait_for(begin, 2, -1);
    if (!wait_for(&end, 1, LEAVE_S * 1000))
        leave_by_force(d);
    return NULL;
}

static int start_watch(struct lf_daemon *d, lf_err *err)
{
    d->leaving = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    d->left = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->leaving < 0 || d->left < 0)
        return lf_fail_errno(err, "cannot watch for the end");
    errno = pthread_create(&d->watch, NULL, watch_main, d);
    if (errno != 0)
        return lf_fail_errno(err, "cannot watch for the end");
    d->watched = true;
    return 0;
}

static void end_watch(struct lf_daemon *d)
{
    if (d->watched) {
        eventfd_write(d->left, 1);
        pthread_join(d->watch, NULL);
    }
    if (d->leaving >= 0)
        close(d->leaving);
    if (d->left >= 0)
        close(d->left);
}

static void finish(struct lf_daemon *d)
{
    if (d->watched)
        eventfd_write(d->leaving, 1);
    d->doing = "the end of its ranks";
    end_ranks(d);
    d->doing = "the end of its PMIx server";
    lf_pserver_destroy(d->server);
    d->doing = "the removal of its directory";
    if (d->tmp[0] != '\0')
        lf_io_remove_tree(d->tmp, NULL);
    end_watch(d);
    free(d->rank);
    free(d->poll);
    lf_task_fini(&d->task);
    lf_wire_fini(&d->wire);
    close(d->sig);
    close(d->wake);
}

static int say_hello(struct lf_daemon *d, int node_index, lf_err *err)
{
    const char *slurm = getenv("SLURMD_NODENAME"), *tmp = getenv("TMPDIR"),
               *id = getenv("SLURM_NODEID");
    int64_t index = node_index;
    if (slurm != NULL && slurm[0] != '\0')
        snprintf(d->host, sizeof d->host, "%s", slurm); /* nodes of a testbed share a host name */
    else if (gethostname(d->host, sizeof d->host - 1) < 0)
        return lf_fail_errno(err, "this machine has no name");
    if (node_index < 0 && id != NULL && lf_parse_i64(&index, id, NULL) < 0)
        index = -1;
    snprintf(d->tmp, sizeof d->tmp, "%s/loong-launch.XXXXXX",
             tmp != NULL && tmp[0] == '/' && strlen(tmp) < 200 ? tmp : "/tmp");
    if (mkdtemp(d->tmp) == NULL) {
        int rc = lf_fail_errno(err, "cannot make a directory %s", d->tmp);
        d->tmp[0] = '\0';
        return rc;
    }
    char *text = lf_hello_text(&(struct lf_hello){d->host, d->tmp}, err);
    if (text != NULL)
        put(d, LF_FRAME_HELLO, index < 0 ? -1 : (int)index, (int)getpid(), 0, text, strlen(text));
    int rc = text != NULL ? 0 : LF_ENOMEM;
    free(text);
    return rc;
}

int lf_launch_daemon(int fd, int node_index, lf_err *err)
{
    struct lf_daemon d = {.sig = -1,
                          .wake = -1,
                          .leaving = -1,
                          .left = -1,
                          .node = node_index,
                          .doing = "the service of its ranks"};
    sigset_t taken, children;
    sigfillset(
        /* the hub passes signals on; those of a batch system's to every process are not for us */
        &taken);
    sigdelset(&taken, SIGSEGV);
    sigdelset(&taken, SIGBUS);
    sigdelset(&taken, SIGFPE);
    sigdelset(&taken, SIGILL);
    sigdelset(&taken, SIGABRT);
    sigprocmask(SIG_SETMASK, &taken, NULL);
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    lf_launch_scrub();
    lf_wire_init(&d.wire, fd);
    d.sig = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    d.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    d.wire.wake = d.wake;
    int rc = d.sig >= 0 && d.wake >= 0 ? start_watch(&d, err)
                                       : lf_fail_errno(err, "cannot watch for signals");
    if (rc == 0)
        rc = say_hello(&d, node_index, err);
    if (rc == 0)
        rc = serve(&d, err);
    if (rc < 0 && !d.lost && err != NULL) { /* the hub reports it */
        put(&d, LF_FRAME_FAIL, d.node, 0, 0, err->text, strlen(err->text));
        const double end = lf_now_s() + 2;
        while (lf_wire_backlog(&d.wire) > 0 && lf_now_s() < end && lf_wire_send(&d.wire, NULL) == 0)
            usleep(10000);
    }
    finish(&d);
    return rc < 0 ? 1 : 0;
}
