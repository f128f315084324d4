/* SPDX-License-Identifier: Apache-2.0
 *
 * Why a stage ended: exit status, signal, kernel evidence and the last lines of its log give one class of failure, with
 * what the class means for the next try. One const table; flow/README.md prints it.
 */
#ifndef LF_FLOW_CLASSIFY_H
#define LF_FLOW_CLASSIFY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/err.h"

typedef struct lf_end_evidence {
    bool exited;    /* exit_code is valid; otherwise signal is */
    int exit_code;
    int signal;
    bool timed_out; /* we ended it because its time was over */
    bool cancelled; /* a cancel was asked for */
    bool stopping;  /* a stop signal was passed on before it ended */
    long oom_kills; /* how many the kernel counted in our control group since the start, 0 when unknown */
    const char *log_tail;
} lf_end_evidence;

typedef struct lf_end_class {
    const char *state; /* "done", "stopped", "failed", "cancelled" */
    const char *cls;   /* "", "oom", "oom_device", "timeout", "disk", "filesystem", "bad_input", "diverged", "usage",
                          "launch", "crash", "cancelled", "preempted", "unknown" */
    char reason[400];  /* one line for people */
} lf_end_class;

void lf_classify(lf_end_class *out, const lf_end_evidence *ev);
/* What to do about a class, one sentence, "" when there is nothing to say. */
const char *lf_class_advice(const char *cls);

/* The end of a log file as text without control bytes (at most max_bytes), owned; "" when there is none. */
char *lf_log_tail(const char *path, size_t max_bytes, lf_err *err);
/* The lines of a tail that say most about a failure: the last `max` lines, those that look like errors preferred. */
json_t *lf_log_lines_that_matter(const char *tail, size_t max, lf_err *err);
/* Kernel's count of out-of-memory kills in this process's control group, -1 when it does not say. */
long lf_oom_kills(void);

#endif
