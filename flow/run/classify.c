/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of failure classes and the evidence for them.
 */
#include "config.h"

#include "flow/run/classify.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/warned.h"
#include "flow/record/record.h"
#include "flow/run/policy.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Log patterns, compared without case; of one line the first that matches wins. */
enum where {
    ANY,  /* in any line */
    LAST, /* ordinary English: in the last lines only */
    ABOVE /* what a scheduler, node or kernel says: why a rank died, whoever says that it did */
};
static const struct {
    const char *pattern, *cls;
    enum where where;
    const char *also; /* stands in the line too, NULL: nothing */
} patterns[] = {
    {"cuda out of memory", "oom_device", ANY, NULL},
    {"cudaerrormemoryallocation", "oom_device", ANY, NULL},
    {"cuda_error_out_of_memory", "oom_device", ANY, NULL},
    {"due to time limit", "timeout", ABOVE, NULL},
    {"pbs: job killed: walltime", "timeout", ABOVE, NULL},
    {"due to preemption", "preempted", ABOVE, NULL},
    {"due to job requeue", "preempted", ABOVE, NULL},
    {"due to node failure", "node", ABOVE, NULL},
    {"pbs: job killed: node", "node", ABOVE, NULL},
    {"uncorrectable ecc", "node", ABOVE, NULL},
    {"nvrm: xid", "node", ABOVE, NULL},
    {"unspecified launch failure", "node", ANY, NULL},
    {"pbs: job killed: mem", "oom", ABOVE, NULL},
    {"pbs: job killed: vmem", "oom", ABOVE, NULL},
    {"oom-kill", "oom", ABOVE, NULL},
    {"oom_kill", "oom", ABOVE, NULL},
    {"no space left on device", "disk", ANY, NULL},
    {"disk quota exceeded", "disk", ANY, NULL},
    {"stale file handle", "filesystem", ANY, NULL},
    {"key has expired", "filesystem", ANY, NULL},
    {"error while loading shared libraries", "launch", ANY, NULL},
    {"mpi plugin", "launch", ANY, NULL},
    {"task launch for", "launch", ANY, NULL},
    {"unable to create step", "launch", ANY, NULL},
    {"slurmstepd: error: execve", "launch", ANY, NULL},
    {"pmix_init", "launch", ANY, NULL},
    {"has not been heard of for", "node", ANY, NULL}, /* our launcher and the ranks' watchdog */
    {"the daemon of node", "node", ANY, NULL},
    {"starting the daemons failed", "launch", ANY, NULL},
    {"for the other ranks to start", "launch", ANY, NULL},
    {"has not joined within", "launch", ANY, NULL},
    {"processes without pmix", "launch", ANY, NULL},
    {"hangs: computing for", "rank", ANY, NULL},
    {"hangs: beyond the limit of its phase", "rank", ANY, NULL},
    {"all ranks wait and no byte has moved", "rank", ANY, NULL},
    {") died; ", "rank", ANY, NULL},
    {"exited on signal", "crash", ANY,
     "segmentation fault"}, /* prterun and mpirun of a rank that died */
    {"exited on signal", "crash", ANY, "aborted"},
    {"exited on signal", "rank", ANY, NULL},
    {"srun: error:", "crash", ANY, ": segmentation fault"},
    {"srun: error:", "crash", ANY, ": aborted"},
    {"srun: error:", "rank", ANY, ": killed"},
    {"file too large", "disk", LAST, NULL},
    {"input/output error", "filesystem", LAST, NULL},
    {"read-only file system", "filesystem", LAST, NULL},
    {"permission denied", "filesystem", LAST, NULL},
    {"non-finite", "diverged", LAST, NULL},
    {"diverged", "diverged", LAST, NULL},
    {"loss spike", "diverged", LAST, NULL},
    {"cannot allocate memory", "oom", LAST, NULL},
    {"out of memory", "oom", LAST, NULL},
    {"does not fit in memory", "oom", LAST, NULL},
    {"cannot execute", "launch", LAST, NULL},
    {"truncated", "bad_input", LAST, NULL},
    {"invalid utf-8", "bad_input", LAST, NULL},
    {"corrupt", "bad_input", LAST, NULL},
    {"no such file or directory", "bad_input", LAST, NULL},
    {"does not exist", "bad_input", LAST, NULL},
    {"not a valid", "bad_input", LAST, NULL},
    {"hash of", "bad_input", LAST, NULL},
};
/* a stage says in its last line why it ended; a launcher may add one or two */
#define LAST_LINES   3
#define SEARCH_LINES 200

const char *lf_class_advice(const char *cls)
{
    return cls[0] != '\0' ? lf_policy_of(cls)->advice : "";
}

/* last: it is one of the last lines; above: only patterns of that place count. */
static const char *class_from_line(const char *line, size_t n, bool last, bool above)
{
    char copy[1024];
    if (n >= sizeof copy)
        n = sizeof copy - 1;
    memcpy(copy, line, n);
    copy[n] = '\0';
    for (size_t i = 0; i < COUNT(patterns); i++) {
        if (above ? patterns[i].where != ABOVE : patterns[i].where == LAST && !last)
            continue;
        if (strcasestr(copy, patterns[i].pattern) != NULL &&
            (patterns[i].also == NULL || strcasestr(copy, patterns[i].also) != NULL))
            return patterns[i].cls;
    }
    return NULL;
}

/* From the end backwards: what was said last decides. above: only what stands above the death of a
 * rank. *line and *n: where it was said. */
static const char *search_log(const char *tail, bool above, const char **line, size_t *n)
{
    size_t end = tail != NULL ? strlen(tail) : 0;
    for (int seen = 0; end > 0 && seen < SEARCH_LINES;) {
        size_t begin = end;
        while (begin > 0 && tail[begin - 1] != '\n')
            begin--;
        const char *cls = class_from_line(tail + begin, end - begin, seen < LAST_LINES, above);
        if (cls != NULL) {
            *line = tail + begin;
            *n = end - begin;
            return cls;
        }
        seen += end > begin;
        end = begin > 0 ? begin - 1 : 0;
    }
    return NULL;
}

static const char *class_from_log(const char *tail)
{
    const char *line;
    size_t n;
    return search_log(tail, false, &line, &n);
}

static void set(lf_end_class *out, const char *state, const char *cls)
{
    out->state = state;
    out->cls = cls;
}

/* The last line of the log that is not blank: stages end with one line that says what went
 * wrong. */
static void last_line(char *buf, size_t cap, const char *tail)
{
    buf[0] = '\0';
    if (tail == NULL)
        return;
    size_t end = strlen(tail);
    while (end > 0 && (tail[end - 1] == '\n' || tail[end - 1] == ' '))
        end--;
    size_t begin = end;
    while (begin > 0 && tail[begin - 1] != '\n')
        begin--;
    size_t n = end - begin < cap - 1 ? end - begin : cap - 1;
    memcpy(buf, tail + begin, n);
    buf[n] = '\0';
}

/* The line that a class comes from, else the last one: launchers go on talking when all is over. */
static const char *telling_line(char *buf, size_t cap, const char *tail)
{
    const char *line = "";
    size_t n = 0;
    const char *cls = search_log(tail, false, &line, &n);
    if (cls == NULL)
        last_line(buf, cap, tail);
    else
        snprintf(buf, cap, "%.*s", (int)(n < cap ? n : cap - 1), line);
    return cls;
}

static bool is_rank_class(const char *cls)
{
    return strcmp(cls, "rank") == 0;
}

/* Those who know have said why. That a rank died is not why, where the kernel or the scheduler says
 * it. */
static bool by_word(lf_end_class *out, const lf_end_evidence *ev)
{
    const char *line, *cls = ev->said != NULL ? ev->said->cls : NULL, *above;
    size_t n;
    if (cls == NULL)
        return false;
    if (cls[0] == '\0')
        cls = class_from_line(ev->said->reason, strlen(ev->said->reason), true, false);
    if (cls == NULL)
        cls = class_from_log(ev->log_tail);
    if (cls == NULL)
        cls = "unknown";
    snprintf(out->reason, sizeof out->reason, "%.390s", ev->said->reason);
    if (is_rank_class(cls) && ev->oom_kills > 0)
        cls = "oom";
    else if (is_rank_class(cls) && (above = search_log(ev->log_tail, true, &line, &n)) != NULL)
        cls = above;
    set(out, "failed", lf_policy_of(cls)->cls);
    return true;
}

/* A rank died, and its launcher had nothing to say but its signal. */
static void by_rank_signal(lf_end_class *out, const lf_end_evidence *ev)
{
    char line[300];
    const char *cls = telling_line(line, sizeof line, ev->log_tail);
    set(out, "failed", ev->oom_kills > 0 ? "oom" : cls != NULL ? cls : lf_cause_signal(ev->signal));
    snprintf(out->reason, sizeof out->reason, "a rank was ended by signal %d (SIG%s)%s%s",
             ev->signal, sigabbrev_np(ev->signal) != NULL ? sigabbrev_np(ev->signal) : "?",
             cls != NULL ? ": " : "", cls != NULL ? line : "");
}

static void by_signal(lf_end_class *out, const lf_end_evidence *ev)
{
    const char *log_cls = class_from_log(ev->log_tail);
    switch (ev->signal) {
    case SIGKILL:
        if (ev->oom_kills > 0) {
            set(out, "failed", "oom");
            snprintf(out->reason, sizeof out->reason, "killed by the kernel: out of memory");
            return;
        }
        set(out, "failed", log_cls != NULL && strcmp(log_cls, "oom") == 0 ? "oom" : "unknown");
        snprintf(out->reason, sizeof out->reason,
                 "killed by signal 9 (by a person, or by the kernel for lack of memory)");
        return;
    case SIGXFSZ:
        set(out, "failed", "disk");
        snprintf(out->reason, sizeof out->reason,
                 "a file grew beyond the limit on file sizes (ulimit -f)");
        return;
    case SIGXCPU:
        set(out, "failed", "timeout");
        snprintf(out->reason, sizeof out->reason, "used up its CPU time (ulimit -t)");
        return;
    case SIGSEGV:
    case SIGABRT:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
        set(out, "failed", "crash");
        snprintf(out->reason, sizeof out->reason, "crashed with signal %d (SIG%s)", ev->signal,
                 sigabbrev_np(ev->signal));
        return;
    default:
        set(out, "failed", log_cls != NULL ? log_cls : "unknown");
        snprintf(out->reason, sizeof out->reason, "ended by signal %d (SIG%s)", ev->signal,
                 sigabbrev_np(ev->signal) != NULL ? sigabbrev_np(ev->signal) : "?");
    }
}

static void by_exit(lf_end_class *out, const lf_end_evidence *ev)
{
    char line[300];
    const char *cls = telling_line(line, sizeof line, ev->log_tail);
    if (ev->exit_code == 2) {
        set(out, "failed", "usage");
    } else if (ev->exit_code == 126 || ev->exit_code == 127) {
        set(out, "failed", "launch");
    } else {
        set(out, "failed", cls != NULL ? cls : "unknown");
    }
    snprintf(out->reason, sizeof out->reason, "exit %d%s%s", ev->exit_code,
             line[0] != '\0' ? ": " : "", line);
}

void lf_classify(lf_end_class *out, const lf_end_evidence *ev)
{
    memset(out, 0, sizeof *out);
    if (ev->superseded) {
        set(out, "stopped", "superseded");
        snprintf(out->reason, sizeof out->reason, "a newer start has taken over");
    } else if (ev->exited && ev->exit_code == 0) {
        set(out, "done", "");
    } else if (ev->cancelled) {
        set(out, "cancelled", "cancelled");
        snprintf(out->reason, sizeof out->reason, "cancelled on request%s",
                 ev->exited && ev->exit_code == 75 ? "; stopped at a good checkpoint" : "");
    } else if (ev->exited && ev->exit_code == 75 && ev->at_rung) {
        set(out, "stopped", "rung");
        snprintf(out->reason, sizeof out->reason, "stopped at a rung of its sweep");
    } else if (ev->exited && ev->exit_code == 75) {
        set(out, "stopped", ev->timed_out ? "timeout" : "preempted");
        snprintf(out->reason, sizeof out->reason, "stopped at a good checkpoint%s",
                 ev->timed_out ? " before its time limit" : "");
    } else if (ev->timed_out && !ev->exited) {
        set(out, "failed", "timeout");
        snprintf(out->reason, sizeof out->reason,
                 "did not stop within its time limit and was killed");
    } else if (ev->stopping && !ev->exited &&
               (ev->signal == SIGTERM || ev->signal == SIGINT || ev->signal == SIGUSR2 ||
                ev->signal == SIGKILL)) {
        set(out, "stopped", "preempted");
        snprintf(out->reason, sizeof out->reason,
                 "ended on request before it reached a safe point (signal %d)", ev->signal);
    } else if (by_word(out, ev)) {
        /* said */
    } else if (!ev->exited && ev->of_rank) {
        by_rank_signal(out, ev);
    } else if (!ev->exited) {
        by_signal(out, ev);
    } else {
        by_exit(out, ev);
    }
    lf_text_clean(out->reason); /* it may end in a log's line, cut */
}

/* ---- what a scheduler says ---- */

static const struct {
    const char *word, *state, *cls, *reason;
} job_words[] = {
    {"TIMEOUT", "failed", "timeout", "the scheduler ended it at its time limit"},
    {"DEADLINE", "failed", "timeout", "the scheduler ended it at its deadline"},
    {"OUT_OF_MEMORY", "failed", "oom", "the scheduler says that it ran out of memory"},
    {"NODE_FAIL", "stopped", "node", "its node failed"},
    {"BOOT_FAIL", "stopped", "node", "its node did not start"},
    {"PREEMPTED", "stopped", "preempted", "it was preempted before it could save"},
    {"REVOKED", "stopped", "preempted", "it was taken back"},
    {"CANCELLED", "cancelled", "cancelled", "cancelled"},
};

static const struct {
    int status;
    const char *state, *cls, *reason;
} pbs_status[] = {
    {-29, "failed", "timeout",
     "the scheduler ended it at its time limit"}, /* OpenPBS, PBS Pro: src/include/job.h */
    {-28, "failed", "timeout", "it used up its CPU time"},
    {-27, "failed", "oom", "it used more memory than it asked for"},
    {-26, "failed", "oom", "it used more virtual memory than it asked for"},
    {-20, "stopped", "node", "its node was lost"},
    {-14, "stopped", "node", "its node was lost"},
    {-12, "failed", "timeout", "it used up its CPU time"}, /* Torque: src/include/pbs_job.h */
    {-11, "failed", "timeout", "the scheduler ended it at its time limit"},
    {-10, "failed", "oom", "it used more memory than it asked for"},
    {-3, "stopped", "lost", "the scheduler could not start it and tries again"},
};

static bool by_job_word(lf_end_class *out, const char *word)
{
    for (size_t i = 0; word != NULL && i < COUNT(job_words); i++) {
        size_t n = strlen(job_words[i].word);
        /* "CANCELLED by 1000", and words that a narrow column cut: "OUT_OF_ME+" */
        size_t cut = strcspn(word, "+");
        if (strncmp(word, job_words[i].word, n) != 0 &&
            !(word[cut] == '+' && cut >= 4 && strncmp(word, job_words[i].word, cut) == 0))
            continue;
        set(out, job_words[i].state, job_words[i].cls);
        snprintf(out->reason, sizeof out->reason, "%s", job_words[i].reason);
        return true;
    }
    return false;
}

static bool by_pbs_status(lf_end_class *out, int status)
{
    for (size_t i = 0; i < COUNT(pbs_status); i++)
        if (pbs_status[i].status == status) {
            set(out, pbs_status[i].state, pbs_status[i].cls);
            snprintf(out->reason, sizeof out->reason, "%s (Exit_status %d)", pbs_status[i].reason,
                     status);
            return true;
        }
    return false;
}

void lf_classify_job(lf_end_class *out, const lf_job_evidence *ev)
{
    memset(out, 0, sizeof *out);
    int exit = ev->exit, sig = ev->signal;
    if (by_job_word(out, ev->word) || (ev->pbs && ev->exited && by_pbs_status(out, exit)))
        return;
    if (ev->pbs && exit > 256) {
        sig = exit - 256;
        exit = 0;
    }
    const char *cls = class_from_log(ev->log_tail);
    const lf_policy *p = cls != NULL ? lf_policy_of(cls) : NULL;
    if (p == NULL && ev->exited && (exit == 126 || exit == 127))
        p = lf_policy_of("launch");
    else if (p == NULL && (!ev->exited || sig > 0 || exit == 0))
        p = lf_policy_of(
            /* it went away, or ended well in the scheduler's eyes, without our record: do it
             * again */
            "lost");
    else if (p == NULL)
        p = lf_policy_of("unknown");
    set(out,
        p->act == LF_POLICY_RETRY || p->act == LF_POLICY_CONTINUE || p->act == LF_POLICY_NODE
            ? "stopped"
            : "failed",
        p->cls);
    if (sig > 0)
        snprintf(out->reason, sizeof out->reason,
                 "the job ended by signal %d without an end record", sig);
    else if (ev->exited)
        snprintf(out->reason, sizeof out->reason,
                 "the job ended with exit code %d and without an end record", exit);
    else
        snprintf(out->reason, sizeof out->reason, "the job is gone without an end record");
}

/* ---- logs ---- */

char *lf_log_tail(const char *path, size_t max_bytes, lf_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return lf_strdup("", err);
    struct stat st;
    char *text = NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        off_t from = st.st_size > (off_t)max_bytes ? st.st_size - (off_t)max_bytes : 0;
        text = lf_malloc(max_bytes + 1, 1, err);
        ssize_t n = text != NULL ? pread(fd, text, max_bytes, from) : -1;
        if (text != NULL) {
            size_t len = n > 0 ? (size_t)n : 0, w = 0;
            for (size_t i = 0; i < len; i++) {
                unsigned char c = (unsigned char)text[i];
                if (c == '\r')
                    c = '\n'; /* progress lines are rewritten in place on terminals */
                if (c >= 0x20 || c == '\n' || c == '\t')
                    text[w++] = (char)c;
            }
            text[w] = '\0';
        }
    }
    close(fd);
    return text != NULL ? text : lf_strdup("", err);
}

static bool looks_like_error(const char *line, size_t n)
{
    static const char *const words[] = {"error",  "fail",  "cannot", "refused",
                                        "killed", "abort", "denied", "no space",
                                        "hangs",  "died",  "is gone"};
    char copy[512];
    if (n >= sizeof copy)
        n = sizeof copy - 1;
    memcpy(copy, line, n);
    copy[n] = '\0';
    for (size_t i = 0; i < COUNT(words); i++)
        if (strcasestr(copy, words[i]) != NULL)
            return true;
    return false;
}

/* From the end backwards: the last two lines always, then lines that look like errors, until there
 * are `max`. */
int lf_log_lines_that_matter(lf_texts *out, const char *tail, size_t max, lf_err *err)
{
    size_t end = strlen(tail), seen = 0;
    int rc = 0;
    *out = (lf_texts){.given = true};
    while (rc == 0 && end > 0 && out->n < max && seen < 200) {
        size_t begin = end;
        while (begin > 0 && tail[begin - 1] != '\n')
            begin--;
        size_t n = end - begin;
        if (n > 0 && (seen < 2 || looks_like_error(tail + begin, n))) {
            lf_buf b;
            lf_buf_init(&b);
            lf_buf_add(&b, tail + begin, n < 500 ? n : 500);
            if (lf_buf_check(&b, NULL) == 0)
                rc = lf_texts_add(out, lf_text_clean(b.data), err);
            lf_buf_fini(&b);
        }
        seen += n > 0;
        end = begin > 0 ? begin - 1 : 0;
    }
    for (size_t i = 0; i < out->n / 2; i++) { /* they were found from the last to the first */
        char *t = out->v[i];
        out->v[i] = out->v[out->n - 1 - i];
        out->v[out->n - 1 - i] = t;
    }
    if (rc < 0)
        lf_texts_fini(out);
    return rc;
}

#define WARNINGS 10 /* different ones that a record keeps */

int lf_warning_add(lf_texts *t, const char *text, lf_err *err)
{
    return t->n >= WARNINGS || lf_texts_has(t, text) ? 0 : lf_texts_add(t, text, err);
}

static int count_warning(void *user, const char *text, lf_err *err)
{
    struct lf_end *end = user;
    end->n_warnings++;
    return lf_warning_add(&end->warnings, text, err);
}

void lf_end_warnings(struct lf_end *end, const char *start_dir)
{
    char dir[PATH_MAX];
    if (lf_path_set(dir, NULL, "%s/ranks", start_dir) == 0)
        lf_warned_read(dir, count_warning, end, NULL);
    end->warnings.given = end->n_warnings > 0;
}

long lf_oom_kills(void)
{
    char line[512], path[600] = "";
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (f == NULL)
        return -1;
    while (fgets(line, sizeof line, f) != NULL)
        if (lf_str_has_prefix(line, "0::")) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.events", line + 3);
        }
    fclose(f);
    f = path[0] != '\0' ? fopen(path, "re") : NULL;
    if (f == NULL)
        return -1;
    long n = -1;
    while (fgets(line, sizeof line, f) != NULL)
        if (lf_str_has_prefix(line, "oom_kill "))
            n = strtol(line + 9, NULL, 10);
    fclose(f);
    return n;
}
