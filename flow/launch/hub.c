/* SPDX-License-Identifier: Apache-2.0
 *
 * The hub: daemons join, ranks start, fences of several nodes are joined, output is printed,
 * signals are passed on, and the first failure ends everything. One poll loop.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cause.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/net.h"
#include "engine/base/sys.h"
#include "flow/launch/job.h"
#include "flow/launch/message.h"

/* for the daemons to start: a cold file system on many nodes takes its time */
#define JOIN_S  180.0
#define GRACE_S 2.0 /* after a failure: for the other ranks to say what they know */
#define ABORT_S 0.5 /* after an abort: for the end of the rank that made another abort to be told */
#define END_S   10.0 /* after that: for the daemons to end their ranks, then themselves */
#define PROOF_S 10.0
enum { MAX_LINE = 1 << 16, STOPPED = 75 };

struct conn {
    lf_wire wire;
    struct lf_auth auth;
    bool proven;
    int node; /* -1: has not said hello */
    double since;
};

struct node {
    struct conn *conn;
    char *host, *tmp;
    bool joined, lost;
};

struct rank {
    int64_t pid;
    bool joined, ended;
    lf_buf line[2]; /* unfinished lines of standard output and error */
};

struct hub {
    struct lf_launch_job *job;
    struct conn **conn;
    size_t n_conn, cap_conn;
    struct node *node;
    struct rank *rank;
    struct lf_fences *fences;
    struct pollfd *poll;
    size_t cap_poll;
    int listen_fd, sig;
    pid_t *pid; /* starters of the daemons */
    int n_pid;
    char *key_file;
    int joined, ended; /* nodes, ranks */
    int code;          /* of the first failure */
    bool started, failed, killed, stopped;
    int abort_rank; /* of by_abort */
    bool by_abort;  /* the code is that of an abort: a rank that had failed before tells more */
    double kill_due, kill_at, t0;
    lf_buf text;
};

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("loong-flow launch: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

/* The same where it is why the job fails: whoever started us learns the class too. */
static void accuse(const char *cls, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void accuse(const char *cls, const char *fmt, ...)
{
    char text[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    say("%s", text);
    lf_cause_saw("loong-flow launch", cls, text);
}

static void to_node(struct hub *h, int node, struct lf_frame_head f, const void *data)
{
    if (node >= 0 && node < h->job->nodes && h->node[node].conn != NULL)
        lf_wire_put(&h->node[node].conn->wire, f, data);
}

static void to_all(struct hub *h, enum lf_frame type, int status)
{
    for (int k = 0; k < h->job->nodes; k++)
        to_node(h, k, (struct lf_frame_head){.type = type, .status = status}, NULL);
}

/* ---- failure ---- */

/* Ranks that the others may have waited for in vain: those that never came to PMIx_Init, in a job
 * where others did. */
static void name_absent(const struct hub *h)
{
    lf_buf b;
    int joined = 0, named = 0;
    for (int r = 0; r < h->job->ranks; r++)
        joined += h->rank[r].joined;
    if (joined == 0 || joined == h->job->ranks)
        return;
    lf_buf_init(&b);
    for (int r = 0; r < h->job->ranks && named < 8; r++)
        if (!h->rank[r].joined && !h->rank[r].ended)
            lf_buf_addf(&b, "%s rank %d (host %s, pid %lld)", named++ > 0 ? "," : "", r,
                        h->node[lf_launch_node_of(h->job, r)].host, (long long)h->rank[r].pid);
    if (named > 0)
        say("not seen at PMIx_Init yet:%s", b.data);
    lf_buf_fini(&b);
}

/* The first failure gives the exit code; the ranks that are left have grace_s. */
static void fail_job(struct hub *h, int code, double grace_s)
{
    const double due = lf_now_s() + grace_s;
    if (!h->failed) {
        if (h->started)
            name_absent(h);
        h->failed = true;
        h->code = code > 0 && code < 256 ? code : 1;
        h->kill_due = due;
    }
    if (due < h->kill_due)
        h->kill_due = due;
}

static void kill_job(struct hub *h)
{
    h->killed = true;
    h->kill_at = lf_now_s();
    to_all(h, LF_FRAME_KILL, 0);
}

static void rank_gone(struct hub *h, int r)
{
    if (!h->rank[r].ended) {
        h->rank[r].ended = true;
        h->ended++;
    }
}

/* ---- output ---- */

static void print_lines(struct hub *h, int r, int stream, const char *data, size_t len, bool all)
{
    lf_buf *line = &h->rank[r].line[stream - 1];
    lf_buf_clear(&h->text);
    while (len > 0 || (all && line->len > 0)) {
        const char *nl = len > 0 ? memchr(data, '\n', len) : NULL;
        const size_t n = nl != NULL ? (size_t)(nl - data) : len;
        lf_buf_add(line, data, n);
        data += n + (nl != NULL);
        len -= n + (nl != NULL);
        if (nl == NULL && !all && line->len < MAX_LINE)
            break;
        if (h->job->tag)
            lf_buf_addf(&h->text, "[%d] ", r);
        lf_buf_add(&h->text, line->data, line->len);
        lf_buf_addc(&h->text, '\n');
        lf_buf_clear(line);
    }
    if (h->text.len > 0 &&
        lf_io_write_all(stream, h->text.data, h->text.len, "the output", NULL) < 0)
        h->text.len = 0; /* nobody reads: the ranks go on */
}

/* ---- joining ---- */

/* Names tell nodes apart in PMIx's maps, and simulated ones share theirs. */
static char *own_name(const struct hub *h, int node, const char *host, lf_err *err)
{
    bool taken = false;
    for (int k = 0; k < h->job->nodes; k++)
        taken =
            taken || (k != node && h->node[k].host != NULL && strcmp(h->node[k].host, host) == 0);
    char name[300];
    if (taken)
        snprintf(name, sizeof name, "%.255s-%d", host, node);
    return lf_strdup(taken ? name : host, err);
}

static int tell_nodes(struct hub *h, struct lf_task *t, lf_err *err)
{
    for (int k = 0; k < t->nodes; k++) {
        t->hosts[k] = h->node[k].host;
        t->first[k] = h->job->node[k].first;
    }
    t->first[t->nodes] = h->job->ranks;
    for (t->node = 0; t->node < t->nodes; t->node++) {
        char *text = lf_task_text(t, err);
        if (text == NULL)
            return LF_EINVAL;
        to_node(h, t->node, (struct lf_frame_head){.type = LF_FRAME_JOB, .len = strlen(text)},
                text);
        free(text);
    }
    return 0;
}

static int start_ranks(struct hub *h, lf_err *err)
{
    const size_t n = (size_t)h->job->nodes + 1;
    struct lf_task t = {.ns = h->job->ns,
                        .argv = (char **)(uintptr_t)h->job->argv,
                        .nodes = h->job->nodes,
                        .cpus = h->job->cpus,
                        .bind = h->job->bind,
                        .hosts = lf_calloc(n, sizeof *t.hosts, err),
                        .first = lf_calloc(n, sizeof *t.first, err)};
    int rc = t.hosts != NULL && t.first != NULL ? tell_nodes(h, &t, err) : LF_ENOMEM;
    free(t.hosts);
    free(t.first);
    h->started = rc == 0;
    if (h->key_file != NULL)
        unlink(h->key_file);
    return rc;
}

static int on_hello(struct hub *h, struct conn *c, const struct lf_frame_head *f, const char *data,
                    lf_err *err)
{
    int k = f->rank == LF_ANY_NODE ? 0 : (int)f->rank;
    while (f->rank == LF_ANY_NODE && k < h->job->nodes && h->node[k].joined)
        k++;
    if (c->node >= 0 || k < 0 || k >= h->job->nodes || h->node[k].joined)
        return lf_fail(err, LF_ECOMM,
                       "a daemon says it is node %d of %d, which is taken or not there", k,
                       h->job->nodes);
    struct lf_hello hello;
    struct node *n = &h->node[k];
    int rc = lf_hello_read(&hello, data, (size_t)f->len, err);
    if (rc < 0)
        return rc;
    n->host = own_name(h, k, hello.host, err);
    n->tmp = hello.tmp;
    hello.tmp = NULL;
    lf_hello_fini(&hello);
    if (n->host == NULL)
        return LF_ENOMEM;
    n->joined = true;
    n->conn = c;
    c->node = k;
    return ++h->joined == h->job->nodes ? start_ranks(h, err) : 0;
}

static void give_fence(void *arg, int node, uint32_t id, const char *data, size_t len)
{
    to_node(arg, node, (struct lf_frame_head){.type = LF_FRAME_FENCE, .id = id, .len = len}, data);
}

/* ---- frames ---- */

static void on_rank_end(struct hub *h, const struct lf_frame_head *f)
{
    const int r = (int)f->rank, sig = (int)f->id;
    struct rank *k = &h->rank[r];
    for (int s = 1; s <= 2; s++)
        print_lines(h, r, s, NULL, 0, true);
    if (k->ended)
        return;
    rank_gone(h, r);
    if (f->status == STOPPED) {
        h->stopped = true;
    } else if (f->status != 0 && !h->killed) {
        const char *host = h->node[lf_launch_node_of(h->job, r)].host;
        if (sig > 0)
            accuse(lf_cause_signal(sig), "rank %d (host %s, pid %lld) was ended by signal %d (%s)",
                   r, host, (long long)k->pid, sig, strsignal(sig));
        else
            say("rank %d (host %s, pid %lld) ended with exit code %d", r, host, (long long)k->pid,
                f->status);
        if (h->by_abort && r != h->abort_rank) {
            h->code = f->status;
            h->by_abort = false;
        }
        fail_job(h, f->status, GRACE_S);
    }
}

static void on_abort(struct hub *h, const struct lf_frame_head *f, const char *text)
{
    const int r = (int)f->rank;
    const int len = f->len < 1000 ? (int)f->len : 1000;
    if (!h->failed) /* else the cause has been named, and this is what followed from it */
        say("rank %d (host %s, pid %lld) aborts the job (%d): %.*s", r,
            h->node[lf_launch_node_of(h->job, r)].host, (long long)h->rank[r].pid, f->status, len,
            text);
    if (!h->failed) {
        h->by_abort = true;
        h->abort_rank = r;
    }
    fail_job(h, f->status != 0 ? f->status : 1, ABORT_S);
}

static bool is_rank(const struct hub *h, uint32_t r)
{
    return r < (uint32_t)h->job->ranks;
}

static int take_frame(struct hub *h, struct conn *c, const struct lf_frame_head *f,
                      const char *data, lf_err *err)
{
    if (f->type == LF_FRAME_HELLO)
        return on_hello(h, c, f, data, err);
    if (c->node < 0)
        return lf_fail(err, LF_EFORMAT, "a daemon that has not said hello");
    if (f->type == LF_FRAME_FAIL) {
        accuse("launch", "node %d (host %s): %.*s", c->node, h->node[c->node].host,
               f->len < 1000 ? (int)f->len : 1000, data);
        fail_job(h, 1, 0);
        return 0;
    }
    if (f->type == LF_FRAME_FENCE)
        return lf_fences_add(h->fences, c->node, f, data, give_fence, h, err);
    if (f->type == LF_FRAME_MODEX_DATA) {
        to_node(h, (int)f->rank,
                (struct lf_frame_head){
                    .type = f->type, .status = f->status, .id = f->id, .len = f->len},
                data);
        return 0;
    }
    if (!is_rank(h, f->rank))
        return lf_fail(err, LF_EFORMAT, "a frame about rank %u of %d", f->rank, h->job->ranks);
    switch (f->type) {
    case LF_FRAME_STARTED:
        h->rank[f->rank].pid = f->status;
        break;
    case LF_FRAME_JOINED:
        h->rank[f->rank].joined = true;
        break;
    case LF_FRAME_OUT:
        print_lines(h, (int)f->rank, f->status == 2 ? 2 : 1, data, (size_t)f->len, false);
        break;
    case LF_FRAME_EXIT:
        on_rank_end(h, f);
        break;
    case LF_FRAME_ABORT:
        on_abort(h, f, data);
        break;
    case LF_FRAME_MODEX:
        to_node(h, lf_launch_node_of(h->job, (int)f->rank),
                (struct lf_frame_head){
                    .type = f->type, .rank = f->rank, .status = c->node, .id = f->id},
                NULL);
        break;
    default:
        return lf_fail(err, LF_EFORMAT, "a frame of type %u", f->type);
    }
    return 0;
}

/* ---- connections ---- */

static struct conn *add_conn(struct hub *h, int fd, bool proven, lf_err *err)
{
    struct conn *c = lf_calloc(1, sizeof *c, err);
    if (c == NULL || lf_grow(&h->conn, &h->cap_conn, h->n_conn, sizeof *h->conn, err) < 0) {
        free(c);
        close(fd);
        return NULL;
    }
    lf_wire_init(&c->wire, fd);
    memcpy(c->auth.key, h->job->key, sizeof c->auth.key);
    c->proven = proven;
    c->node = -1;
    c->since = lf_now_s();
    h->conn[h->n_conn++] = c;
    return c;
}

/* A daemon on this machine had no time to: its ranks died with it, but what they had started did
 * not. */
static void clean_after(struct hub *h, int node)
{
    for (int i = 0; i < h->job->node[node].n; i++) {
        const struct rank *r = &h->rank[h->job->node[node].first + i];
        if (!r->ended && r->pid > 0)
            kill(-(pid_t)r->pid, SIGKILL);
    }
    if (h->node[node].tmp[0] != '\0')
        lf_io_remove_tree(h->node[node].tmp, NULL);
}

static void lose_conn(struct hub *h, struct conn *c)
{
    if (c->wire.fd >= 0)
        close(c->wire.fd);
    c->wire.fd = -1;
    if (c->node < 0 || h->node[c->node].lost)
        return;
    struct node *n = &h->node[c->node];
    n->lost = true;
    n->conn = NULL;
    bool all_ended = true;
    for (int i = 0; i < h->job->node[c->node].n; i++)
        all_ended = all_ended && h->rank[h->job->node[c->node].first + i].ended;
    if (!all_ended && !h->killed) {
        accuse("node", "the daemon of node %d (host %s) is gone", c->node, n->host);
        fail_job(h, 1, 0);
    }
    if (h->job->start == LF_START_LOCAL)
        clean_after(h, c->node);
    for (int i = 0; i < h->job->node[c->node].n; i++)
        rank_gone(h, h->job->node[c->node].first + i);
}

static void serve_conn(struct hub *h, struct conn *c)
{
    struct lf_frame_head f;
    const char *data = NULL;
    lf_err err = LF_ERR_INIT;
    int gone = lf_wire_recv(&c->wire, &err), rc = 0;
    if (!c->proven) {
        rc = lf_auth_check(&c->auth, &c->wire, &err);
        c->proven = rc == 1;
    }
    while (c->proven && rc >= 0 && (rc = lf_wire_next(&c->wire, &f, &data, &err)) == 1)
        rc = take_frame(h, c, &f, data, &err);
    if (rc < 0 && gone == 0) {
        if (c->proven)
            fail_job(h, 1, 0);
        say("%s", err.text); /* a stranger at the door is no reason to end the job */
    }
    if (rc < 0 || gone < 0)
        lose_conn(h, c);
}

static void take_guest(struct hub *h)
{
    int fd = accept4(h->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    lf_net_keepalive(fd);
    struct conn *c = add_conn(h, fd, false, NULL);
    if (c != NULL)
        lf_auth_ask(&c->auth, &c->wire, NULL);
}

static void drop_closed(struct hub *h, double t)
{
    for (size_t i = 0; i < h->n_conn;) {
        struct conn *c = h->conn[i];
        if (!c->proven && c->wire.fd >= 0 && t - c->since > PROOF_S)
            lose_conn(h, c);
        if (c->wire.fd >= 0) {
            i++;
            continue;
        }
        lf_wire_fini(&c->wire);
        free(c);
        h->conn[i] = h->conn[--h->n_conn];
    }
}

/* ---- signals and children ---- */

static void on_signal(struct hub *h, int sig)
{
    if (sig == SIGCHLD)
        return;
    if (!h->started) {
        say("stopped by %s while the nodes were starting", strsignal(sig));
        fail_job(h, 128 + sig, 0);
        return;
    }
    to_all(h, LF_FRAME_SIGNAL, sig == SIGHUP ? SIGTERM : sig);
}

static void read_signals(struct hub *h)
{
    struct signalfd_siginfo s;
    while (read(h->sig, &s, sizeof s) == (ssize_t)sizeof s)
        on_signal(h, (int)s.ssi_signo);
}

/* Starters that end early have failed; those that end late are no news. */
static void reap(struct hub *h)
{
    for (int i = 0; i < h->n_pid; i++) {
        int st = 0;
        if (h->pid[i] <= 0 || waitpid(h->pid[i], &st, WNOHANG) != h->pid[i])
            continue;
        h->pid[i] = 0;
        if (h->joined < h->job->nodes && !h->failed &&
            (h->job->start != LF_START_PBSDSH || st != 0)) {
            accuse("launch", "starting the daemons failed: %s %d",
                   WIFSIGNALED(st) ? "signal" : "exit code",
                   WIFSIGNALED(st) ? WTERMSIG(st) : WEXITSTATUS(st));
            fail_job(h, 1, 0);
        }
    }
}

static void check_clock(struct hub *h, double t)
{
    if (!h->started && !h->failed && t - h->t0 > JOIN_S) {
        for (int k = 0; k < h->job->nodes; k++)
            if (!h->node[k].joined)
                accuse("launch", "node %d%s%s has not joined within %.0f s", k,
                       h->job->node[k].host ? ", " : "",
                       h->job->node[k].host ? h->job->node[k].host : "", JOIN_S);
        fail_job(h, 1, 0);
    }
    if (h->failed && !h->killed && t >= h->kill_due)
        kill_job(h);
}

static bool finished(const struct hub *h, double t)
{
    if (h->started && h->ended == h->job->ranks)
        return true;
    return h->killed && (!h->started || t - h->kill_at > END_S);
}

/* ---- the loop ---- */

static int poll_once(struct hub *h, lf_err *err)
{
    const size_t n = 2 + h->n_conn;
    if (n > h->cap_poll) {
        if (lf_realloc(&h->poll, 2 * n, sizeof *h->poll, err) < 0)
            return LF_ENOMEM;
        h->cap_poll = 2 * n;
    }
    h->poll[0] = (struct pollfd){.fd = h->sig, .events = POLLIN};
    h->poll[1] = (struct pollfd){.fd = h->listen_fd, .events = POLLIN};
    for (size_t i = 0; i < h->n_conn; i++)
        h->poll[2 + i] = (struct pollfd){
            .fd = h->conn[i]->wire.fd,
            .events = (short)(POLLIN | (lf_wire_backlog(&h->conn[i]->wire) > 0 ? POLLOUT : 0))};
    const size_t known = h->n_conn;
    int got = poll(h->poll, (nfds_t)n, 250);
    if (got > 0 && h->poll[0].revents)
        read_signals(h);
    for (size_t i = 0; got > 0 && i < known; i++)
        if (h->poll[2 + i].revents & (POLLIN | POLLHUP | POLLERR))
            serve_conn(h, h->conn[i]);
    if (got > 0 && h->poll[1].revents)
        take_guest(h);
    return 0;
}

static int run(struct hub *h, lf_err *err)
{
    int rc = 0;
    for (double t = lf_now_s(); rc == 0 && !finished(h, t); t = lf_now_s()) {
        rc = poll_once(h, err);
        reap(h);
        check_clock(h, lf_now_s());
        for (size_t i = 0; i < h->n_conn; i++)
            if (h->conn[i]->wire.fd >= 0 && lf_wire_send(&h->conn[i]->wire, NULL) < 0)
                lose_conn(h, h->conn[i]);
        drop_closed(h, lf_now_s());
    }
    return rc;
}

/* ---- beginning and end ---- */

static int fork_daemon(struct hub *h, lf_err *err)
{
    int sv[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
        return lf_fail_errno(err, "no socket for the daemon");
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        close(sv[0]);
        close(sv[1]);
        return lf_fail_errno(err, "cannot start the daemon");
    }
    if (pid == 0) {
        lf_err e =
            LF_ERR_INIT; /* without the hub it ends by the end of its connection, after its ranks */
        setpgid(0, 0);   /* Ctrl-C goes to the hub, which passes it on */
        close(sv[0]);
        close(h->sig);
        _exit(lf_launch_daemon(sv[1], 0, &e));
    }
    close(sv[1]);
    h->pid[0] = pid;
    h->n_pid = 1;
    return add_conn(h, sv[0], true, err) != NULL ? 0 : LF_ENOMEM;
}

static int begin(struct hub *h, lf_err *err)
{
    const int all[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        sigaddset(&set, all[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    h->sig = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    h->node = lf_calloc((size_t)h->job->nodes, sizeof *h->node, err);
    h->rank = lf_calloc((size_t)h->job->ranks, sizeof *h->rank, err);
    h->pid = lf_calloc((size_t)h->job->nodes + 1, sizeof *h->pid, err);
    h->fences = lf_fences_create(h->job, err);
    if (h->node == NULL || h->rank == NULL || h->pid == NULL || h->fences == NULL)
        return LF_ENOMEM;
    for (int r = 0; r < h->job->ranks; r++)
        for (int s = 0; s < 2; s++)
            lf_buf_init(&h->rank[r].line[s]);
    if (h->sig < 0)
        return lf_fail_errno(err, "cannot watch for signals");
    if (h->job->nodes == 1 && h->job->start == LF_START_LOCAL)
        return fork_daemon(h, err);
    uint16_t port = 0;
    h->listen_fd = lf_net_listen(h->job->start != LF_START_LOCAL, &port, err);
    if (h->listen_fd < 0)
        return h->listen_fd;
    return lf_launch_start_daemons(h->job, port, h->pid, &h->n_pid, &h->key_file, err);
}

static bool any_left(struct hub *h)
{
    reap(h);
    for (int i = 0; i < h->n_pid; i++)
        if (h->pid[i] > 0)
            return true;
    return false;
}

static void wait_for_starters(struct hub *h, double s, int sig)
{
    const double end = lf_now_s() + s;
    for (int i = 0; sig != 0 && i < h->n_pid; i++) {
        if (h->pid[i] <= 0)
            continue;
        say("%s (pid %lld) has not ended: signal %d",
            h->job->start == LF_START_LOCAL ? "a daemon" : "what started the daemons",
            (long long)h->pid[i], sig);
        kill(h->pid[i], sig);
    }
    while (any_left(h) && lf_now_s() < end) {
        for (size_t i = 0; i < h->n_conn; i++) {
            if (h->conn[i]->wire.fd >= 0)
                lf_wire_send(&h->conn[i]->wire, NULL);
            char buf[4096]; /* what daemons still say must not keep them */
            while (h->conn[i]->wire.fd >= 0 &&
                   recv(h->conn[i]->wire.fd, buf, sizeof buf, MSG_DONTWAIT) > 0) {
            }
        }
        usleep(5000);
    }
}

static void finish(struct hub *h)
{
    h->failed = true; /* starters that end now are no failure */
    to_all(h, LF_FRAME_DONE, 0);
    wait_for_starters(h, END_S, 0);
    const bool late = any_left(h);
    if (h->job->start != LF_START_LOCAL) /* a daemon itself hears no signal */
        wait_for_starters(h, 2, SIGTERM);
    wait_for_starters(h, 2, SIGKILL);
    for (int k = 0; late && h->job->start == LF_START_LOCAL && k < h->job->nodes; k++)
        if (h->node[k].joined)
            clean_after(h, k);
    if (h->key_file != NULL)
        unlink(h->key_file);
    free(h->key_file);
    for (size_t i = 0; i < h->n_conn; i++) {
        lf_wire_fini(&h->conn[i]->wire);
        free(h->conn[i]);
    }
    lf_fences_destroy(h->fences);
    for (int k = 0; h->node != NULL && k < h->job->nodes; k++) {
        free(h->node[k].host);
        free(h->node[k].tmp);
    }
    for (int r = 0; h->rank != NULL && r < h->job->ranks; r++)
        for (int s = 0; s < 2; s++)
            if (h->rank[r].line[s].data != NULL)
                lf_buf_fini(&h->rank[r].line[s]);
    free(h->conn);
    free(h->node);
    free(h->rank);
    free(h->poll);
    free(h->pid);
    lf_buf_fini(&h->text);
    if (h->sig >= 0)
        close(h->sig);
    if (h->listen_fd >= 0)
        close(h->listen_fd);
}

int lf_launch_hub(struct lf_launch_job *j, lf_err *err)
{
    struct hub h = {.job = j, .listen_fd = -1, .sig = -1, .t0 = lf_now_s()};
    lf_buf_init(&h.text);
    int rc = begin(&h, err);
    if (rc == 0)
        rc = run(&h, err);
    const int code = h.failed ? h.code : h.stopped ? STOPPED : 0;
    finish(&h);
    return rc < 0 ? rc : code;
}
