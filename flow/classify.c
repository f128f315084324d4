/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of failure classes and the evidence for them.
 */
#include "config.h"

#include "flow/classify.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/record.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Log patterns, first match wins; compared without case. Ordered from the most to the least specific. */
static const struct {
    const char *pattern, *cls;
} patterns[] = {
    {"cuda out of memory", "oom_device"},
    {"cudaerrormemoryallocation", "oom_device"},
    {"cuda_error_out_of_memory", "oom_device"},
    {"no space left on device", "disk"},
    {"disk quota exceeded", "disk"},
    {"file too large", "disk"},
    {"stale file handle", "filesystem"},
    {"key has expired", "filesystem"},
    {"input/output error", "filesystem"},
    {"read-only file system", "filesystem"},
    {"permission denied", "filesystem"},
    {"non-finite", "diverged"},
    {"diverged", "diverged"},
    {"loss spike", "diverged"},
    {"cannot allocate memory", "oom"},
    {"out of memory", "oom"},
    {"oom-kill", "oom"},
    {"does not fit in memory", "oom"},
    {"error while loading shared libraries", "launch"},
    {"cannot execute", "launch"},
    {"truncated", "bad_input"},
    {"invalid utf-8", "bad_input"},
    {"corrupt", "bad_input"},
    {"no such file or directory", "bad_input"},
    {"does not exist", "bad_input"},
    {"not a valid", "bad_input"},
    {"hash of", "bad_input"},
};

static const struct {
    const char *cls, *advice;
} advice[] = {
    {"oom", "give it more memory, or a smaller micro-batch, shorter sequences or recompute = full; then resume"},
    {"oom_device", "a smaller micro-batch, shorter sequences or recompute = full; then resume"},
    {"timeout", "resume continues from the last checkpoint; raise time_limit when none was reached"},
    {"disk", "free space or quota in data_dir (gc shows what may go), then resume"},
    {"filesystem", "look at the filesystem and your permissions on it, then resume"},
    {"bad_input", "look at the input named in the message, then resume"},
    {"diverged", "lower the learning rate, lengthen the warm-up or skip the batch; the batch and the weights are kept"},
    {"usage", "a setting is wrong for this stage; edit the pipeline, then resume"},
    {"launch", "the executable did not start; run `loong-flow doctor`"},
    {"crash", "a bug of the stage: please report it with its log"},
};

const char *lf_class_advice(const char *cls)
{
    for (size_t i = 0; i < COUNT(advice); i++)
        if (strcmp(advice[i].cls, cls) == 0)
            return advice[i].advice;
    return "";
}

static const char *class_from_log(const char *tail)
{
    if (tail == NULL)
        return NULL;
    for (size_t i = 0; i < COUNT(patterns); i++)
        if (strcasestr(tail, patterns[i].pattern) != NULL)
            return patterns[i].cls;
    return NULL;
}

static void set(lf_end_class *out, const char *state, const char *cls)
{
    out->state = state;
    out->cls = cls;
}

/* The last line of the log that is not blank: stages end with one line that says what went wrong. */
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
        snprintf(out->reason, sizeof out->reason, "killed by signal 9 (by a person, or by the kernel for lack of memory)");
        return;
    case SIGXFSZ:
        set(out, "failed", "disk");
        snprintf(out->reason, sizeof out->reason, "a file grew beyond the limit on file sizes (ulimit -f)");
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
        snprintf(out->reason, sizeof out->reason, "crashed with signal %d (SIG%s)", ev->signal, sigabbrev_np(ev->signal));
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
    last_line(line, sizeof line, ev->log_tail);
    if (ev->exit_code == 2) {
        set(out, "failed", "usage");
    } else if (ev->exit_code == 126 || ev->exit_code == 127) {
        set(out, "failed", "launch");
    } else {
        const char *cls = class_from_log(ev->log_tail);
        set(out, "failed", cls != NULL ? cls : "unknown");
    }
    snprintf(out->reason, sizeof out->reason, "exit %d%s%s", ev->exit_code, line[0] != '\0' ? ": " : "", line);
}

void lf_classify(lf_end_class *out, const lf_end_evidence *ev)
{
    memset(out, 0, sizeof *out);
    if (ev->exited && ev->exit_code == 0) {
        set(out, "done", "");
    } else if (ev->cancelled) {
        set(out, "cancelled", "cancelled");
        snprintf(out->reason, sizeof out->reason, "cancelled on request%s",
                 ev->exited && ev->exit_code == 75 ? "; stopped at a good checkpoint" : "");
    } else if (ev->exited && ev->exit_code == 75) {
        set(out, "stopped", ev->timed_out ? "timeout" : "preempted");
        snprintf(out->reason, sizeof out->reason, "stopped at a good checkpoint%s",
                 ev->timed_out ? " before its time limit" : "");
    } else if (ev->timed_out && !ev->exited) {
        set(out, "failed", "timeout");
        snprintf(out->reason, sizeof out->reason, "did not stop within its time limit and was killed");
    } else if (ev->stopping && !ev->exited &&
               (ev->signal == SIGTERM || ev->signal == SIGINT || ev->signal == SIGUSR2 || ev->signal == SIGKILL)) {
        set(out, "stopped", "preempted");
        snprintf(out->reason, sizeof out->reason, "ended on request before it reached a safe point (signal %d)", ev->signal);
    } else if (!ev->exited) {
        by_signal(out, ev);
    } else {
        by_exit(out, ev);
    }
    lf_text_clean(out->reason); /* it may end in a log's line, cut */
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
    static const char *const words[] = {"error", "fail", "cannot", "refused", "killed", "abort", "denied", "no space"};
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

/* From the end backwards: the last two lines always, then lines that look like errors, until there are `max`. */
json_t *lf_log_lines_that_matter(const char *tail, size_t max, lf_err *err)
{
    json_t *out = json_array();
    size_t end = strlen(tail), seen = 0;
    while (out != NULL && end > 0 && json_array_size(out) < max && seen < 200) {
        size_t begin = end;
        while (begin > 0 && tail[begin - 1] != '\n')
            begin--;
        size_t n = end - begin;
        if (n > 0 && (seen < 2 || looks_like_error(tail + begin, n))) {
            lf_buf b;
            lf_buf_init(&b);
            lf_buf_add(&b, tail + begin, n < 500 ? n : 500);
            if (lf_buf_check(&b, NULL) == 0)
                json_array_insert_new(out, 0, json_string(lf_text_clean(b.data)));
            lf_buf_fini(&b);
        }
        seen += n > 0;
        end = begin > 0 ? begin - 1 : 0;
    }
    if (out == NULL)
        lf_fail(err, LF_ENOMEM, "out of memory");
    return out;
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
