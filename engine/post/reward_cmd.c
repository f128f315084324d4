/* SPDX-License-Identifier: Apache-2.0
 *
 * A reward from a program of the user: see reward.h. Nothing it does may hang or end us, nor put an
 * answer beside another question. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "engine/post/reward.h"

#define MAX_ANSWER ((size_t)1 << 20) /* bytes of a line */
#define LOOK_MS    200               /* between two looks at stop() */
#define LEAVE_S    2.0               /* to end by itself */

struct lf_cmd {
    struct lf_cmd_opts o;
    char *command;
    struct lf_cmd_counts n;
    pid_t pid;   /* 0: not running */
    int in, out; /* its standard input and output */
    lf_buf line; /* read, not used yet */
};

const char *lf_cmd_fault_name(enum lf_cmd_fault f)
{
    static const char *const names[] = {"timeout", "died", "nonsense", "nan"};
    return names[f];
}

const struct lf_cmd_counts *lf_cmd_get_counts(const lf_cmd *c)
{
    return &c->n;
}

lf_cmd *lf_cmd_create(const struct lf_cmd_opts *o, lf_err *err)
{
    lf_cmd *c = lf_calloc(1, sizeof *c, err);
    if (!c)
        return NULL;
    c->o = *o;
    c->in = c->out = -1;
    lf_buf_init(&c->line);
    c->command = lf_strdup(o->command, err);
    if (c->command)
        return c;
    lf_cmd_destroy(c);
    return NULL;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* End it: gently when it has time, then with its whole group. */
static void end(lf_cmd *c, double patience_s)
{
    if (!c->pid)
        return;
    close_fd(&c->in);
    double t0 = lf_now_s();
    while (waitpid(c->pid, NULL, WNOHANG) == 0) {
        if (lf_now_s() - t0 >= patience_s) {
            kill(-c->pid, SIGKILL);
            while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
                ;
            break;
        }
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    kill(-c->pid, SIGKILL); /* what it left behind in its group */
    close_fd(&c->out);
    lf_buf_clear(&c->line);
    c->pid = 0;
}

void lf_cmd_destroy(lf_cmd *c)
{
    if (!c)
        return;
    end(c, LEAVE_S);
    lf_buf_fini(&c->line);
    free(c->command);
    free(c);
}

/* Between fork and exec: nothing but system calls. */
static void become(const char *command, int in, int out)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0)
        _exit(126);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

static int start(lf_cmd *c, lf_err *err)
{
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)) {
        int rc = lf_fail_errno(err, "pipes to the reward command");
        close_fd(&to[0]);
        close_fd(&to[1]);
        return rc;
    }
    pid_t pid = fork();
    if (pid == 0)
        become(c->command, to[0], from[1]);
    close_fd(&to[0]);
    close_fd(&from[1]);
    if (pid < 0) {
        int rc = lf_fail_errno(err, "starting the reward command");
        close_fd(&to[1]);
        close_fd(&from[0]);
        return rc;
    }
    setpgid(pid, pid); /* whoever is first */
    fcntl(to[1], F_SETFL, O_NONBLOCK);
    c->pid = pid;
    c->in = to[1];
    c->out = from[0];
    lf_buf_clear(&c->line);
    return 0;
}

/* ---- one attempt: 0, a failure of ours, or 1 + enum lf_cmd_fault ---- */

#define FAULT(f) (1 + (int)(f))

/* Wait for fd. 0 ready, LF_EINTR, FAULT(TIMEOUT). */
static int wait_for(lf_cmd *c, int fd, short events, double until, lf_err *err)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        double left = until - lf_now_s();
        if (c->o.stop && c->o.stop())
            return lf_fail(err, LF_EINTR, "stopped while waiting for the reward command");
        if (left <= 0)
            return FAULT(LF_CMD_TIMEOUT);
        int ms = left * 1000 < LOOK_MS ? (int)(left * 1000) + 1 : LOOK_MS;
        int n = poll(&p, 1, ms);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return lf_fail_errno(err, "waiting for the reward command");
    }
}

static int send_request(lf_cmd *c, const lf_buf *req, double until, lf_err *err)
{
    for (size_t at = 0; at < req->len;) {
        ssize_t n = write(c->in, req->data + at, req->len - at);
        if (n > 0) {
            at += (size_t)n;
            continue;
        }
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return FAULT(LF_CMD_DIED);
        int rc = wait_for(c, c->in, POLLOUT, until, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* One line into c->line, without its newline. */
static int read_line(lf_cmd *c, double until, lf_err *err)
{
    char chunk[4096];
    lf_buf_clear(&c->line);
    for (;;) {
        int rc = wait_for(c, c->out, POLLIN, until, err);
        if (rc != 0)
            return rc;
        ssize_t n = read(c->out, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return FAULT(LF_CMD_DIED);
        lf_buf_add(&c->line, chunk, (size_t)n);
        rc = lf_buf_check(&c->line, err);
        if (rc != 0)
            return rc;
        const char *nl = memchr(c->line.data, '\n', c->line.len);
        if (nl && (size_t)(nl - c->line.data) + 1 < c->line.len)
            return FAULT(LF_CMD_NONSENSE); /* more than one line: which one answers? */
        if (nl) {
            c->line.data[--c->line.len] = 0;
            return 0;
        }
        if (c->line.len > MAX_ANSWER)
            return FAULT(LF_CMD_NONSENSE);
    }
}

/* JSON has no word for them, but Python's json and printf write them. */
static bool names_nan(const char *s)
{
    static const char *const words[] = {"NaN", "nan", "Infinity", "inf"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (const char *p = s; (p = strstr(p, words[i])); p++)
            if ((p == s || !isalnum((unsigned char)p[-1])) &&
                !isalnum((unsigned char)p[strlen(words[i])]))
                return true;
    return false;
}

static int understand(const lf_cmd *c, const char *id, double *score)
{
    json_t *v =
        json_loadb(c->line.data, c->line.len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    json_t *r = json_is_object(v) ? json_object_get(v, "reward") : v,
           *whose = json_object_get(v, "id");
    int rc = 0;
    if (!json_is_number(r))
        rc = FAULT(!v && strlen(c->line.data) < 200 && names_nan(c->line.data) ? LF_CMD_NAN
                                                                               : LF_CMD_NONSENSE);
    else if (whose && (!json_is_string(whose) || strcmp(json_string_value(whose), id) != 0))
        rc = FAULT(LF_CMD_NONSENSE);
    else
        *score = json_number_value(r);
    if (rc == 0 && !isfinite(*score))
        rc = FAULT(LF_CMD_NAN);
    json_decref(v);
    return rc;
}

/* Has it said something that nobody asked for, or ended? Then its next line would answer the wrong
 * request. */
static int idle(const lf_cmd *c)
{
    struct pollfd p = {.fd = c->out, .events = POLLIN};
    if (!c->pid || poll(&p, 1, 0) <= 0)
        return 0;
    return FAULT(p.revents & POLLIN ? LF_CMD_NONSENSE : LF_CMD_DIED);
}

static int attempt(lf_cmd *c, const lf_buf *req, const char *id, double *score, lf_err *err)
{
    lf_buf_clear(&c->line);
    int rc = idle(c);
    if (rc == 0 && !c->pid)
        rc = start(c, err);
    double until = lf_now_s() + c->o.timeout_s;
    if (rc == 0)
        rc = send_request(c, req, until, err);
    if (rc == 0)
        rc = read_line(c, until, err);
    return rc != 0 ? rc : understand(c, id, score);
}

/* ---- requests ---- */

static int make_request(lf_buf *b, const struct lf_reward_item *it, lf_err *err)
{
    lf_buf_adds(b, "{\"id\":");
    lf_buf_add_json(b, it->id, strlen(it->id));
    lf_buf_adds(b, ",\"prompt\":");
    lf_buf_add_json(b, it->prompt, strlen(it->prompt));
    lf_buf_adds(b, ",\"completion\":");
    lf_buf_add_json(b, it->completion, strlen(it->completion));
    lf_buf_addf(b, ",\"tokens\":%lld,\"ended\":%s,\"rest\":", (long long)it->tokens,
                it->ended ? "true" : "false");
    char *rest = it->rest ? lf_json_dump(it->rest, err) : NULL;
    if (it->rest && !rest)
        return LF_ENOMEM;
    lf_buf_adds(b, rest ? rest : "{}");
    lf_buf_adds(b, "}\n");
    free(rest);
    return lf_buf_check(b, err);
}

static int give_up(lf_cmd *c, const struct lf_reward_item *it, enum lf_cmd_fault f, double *score,
                   lf_err *err)
{
    static const char *const what[] = {"gave no answer in time", "ended without an answer",
                                       "answered with something that is no reward",
                                       "answered with a number that is not finite"};
    if (c->o.use_fallback) {
        c->n.fallbacks++;
        *score = c->o.fallback;
        return 0;
    }
    lf_buf seen;
    lf_buf_init(&seen);
    lf_buf_add_visible(&seen, c->line.data, c->line.len < 80 ? c->line.len : 80);
    int rc = lf_fail(err, LF_EFORMAT,
                     "%s: the reward command %s (%s), %d times%s%s; mend it and start again: what "
                     "was generated is kept",
                     it->id, what[f], lf_cmd_fault_name(f), c->o.retries + 1, seen.len ? ": " : "",
                     seen.data);
    lf_buf_fini(&seen);
    return rc;
}

int lf_cmd_score(lf_cmd *c, const struct lf_reward_item *it, double *score, lf_err *err)
{
    lf_buf req;
    lf_buf_init(&req);
    int rc = make_request(&req, it, err);
    c->n.asked++;
    for (int k = 0; rc == 0; k++) {
        rc = attempt(c, &req, it->id, score, err);
        if (rc <= 0)
            break;
        enum lf_cmd_fault f = (enum lf_cmd_fault)(rc - 1);
        c->n.fault[f]++;
        if (k == c->o.retries) {
            rc = give_up(c, it, f, score, err);
            end(c, 0);
            break;
        }
        end(c, 0);
        c->n.restarts++;
        rc = 0;
    }
    lf_buf_fini(&req);
    return rc;
}
