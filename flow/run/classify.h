/* SPDX-License-Identifier: Apache-2.0
 *
 * Why a stage ended: exit status, signal, kernel evidence and the last lines of its log give one
 * class of failure, and policy.h says what follows from it. What a scheduler says of a job that
 * left no end record is the same question.
 *
 * Order of evidence: an exit code or signal that has a meaning of its own; the kernel's count; what
 * the stage, its launcher or the watchdog of its ranks have said (engine/base/cause.h); and, where
 * nobody said anything, the log, newest line first. Words that are ordinary English ("truncated",
 * "corrupt") count in the last lines only, where a stage says why it ended.
 */
#ifndef LF_FLOW_CLASSIFY_H
#define LF_FLOW_CLASSIFY_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/cause.h"
#include "engine/base/err.h"
#include "flow/record/start.h"
#include "flow/record/values.h"

typedef struct lf_end_evidence {
    bool exited; /* exit_code is valid; otherwise signal is */
    int exit_code;
    int signal;
    bool of_rank;    /* the signal is that of a rank, as its launcher reports it */
    bool timed_out;  /* we ended it because its time was over */
    bool cancelled;  /* a cancel was asked for */
    bool stopping;   /* a stop signal was passed on before it ended */
    bool term;       /* the wrapper got SIGTERM itself */
    bool at_rung;    /* it was asked to stop because it had come to a rung of its sweep */
    bool superseded; /* a newer epoch exists: whatever it made may not be published */
    /* how many the kernel counted in our control group since the start, 0 when unknown */
    long oom_kills;
    const lf_cause *said; /* NULL: nobody said why */
    const char *log_tail;
} lf_end_evidence;

typedef struct lf_end_class {
    const char *state; /* "done", "stopped", "failed", "cancelled" */
    const char *cls;   /* one of the table in policy.c */
    char reason[400];  /* one line for people */
} lf_end_class;

void lf_classify(lf_end_class *out, const lf_end_evidence *ev);

/* A job that ended without an end record of ours. Never done: absence is not success. */
typedef struct lf_job_evidence {
    /* the scheduler's word for its state: "TIMEOUT", "NODE_FAIL", "CANCELLED by 123", "F", ...;
     * may be NULL */
    const char *word;
    bool pbs;    /* exit is an Exit_status of PBS: negative causes, 256 + signal */
    bool exited; /* exit and signal are known */
    int exit, signal;
    /* of the job's own output, where srun, slurmstepd and the node's daemon write; may be NULL */
    const char *log_tail;
} lf_job_evidence;
void lf_classify_job(lf_end_class *out, const lf_job_evidence *ev);
/* What to do about a class, one sentence, "" when there is nothing to say. */
const char *lf_class_advice(const char *cls);

/* The end of a log file as text without control bytes (at most max_bytes), owned; "" when there is
 * none. */
char *lf_log_tail(const char *path, size_t max_bytes, lf_err *err);
/* The lines of a tail that say most about a failure: the last `max` lines, those that look like
 * errors preferred. */
int lf_log_lines_that_matter(lf_texts *out, const char *tail, size_t max, lf_err *err);
/* Add the warnings of a start (engine/base/warned.h): how many there are, and the first different
 * texts of them, which end owns. What cannot be read is left to the log. */
void lf_end_warnings(struct lf_end *end, const char *start_dir);
/* Add one to different texts, as long as there are few. */
int lf_warning_add(lf_texts *t, const char *text, lf_err *err);
/* Kernel's count of out-of-memory kills in this process's control group, -1 when it does not
 * say. */
long lf_oom_kills(void);

#endif
