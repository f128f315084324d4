/* SPDX-License-Identifier: Apache-2.0
 *
 * The records of an attempt, one function per file, so that every submitter writes the same ones in
 * the same order.
 */
#ifndef LF_FLOW_ATTEMPT_H
#define LF_FLOW_ATTEMPT_H

#include <stdbool.h>

#include "engine/base/err.h"
#include "engine/base/id.h"
#include "flow/run/policy.h"
#include "flow/run/state.h"
#include "flow/sched/submit.h"

/* What an attempt of this stage asks for: the resources of the plan with its memory_bytes,
 * time_limit_s and grace_s, and what the failure policy changes of them (next NULL: nothing). */
int lf_attempt_resources(lf_resources *out, const lf_doc_stage *stage, const lf_next *next,
                         lf_err *err);

typedef struct lf_attempt_args {
    const lf_submitter *submitter;
    const lf_run *run;
    const lf_stage_view *view;
    const lf_resources *resources;
    const lf_texts *accepted;  /* settings whose change does not restart the stage, or NULL */
    const char *script_sha256; /* NULL without a script */
    bool fresh;                /* start over */
    const char *behind;        /* lf_attempt_rec.behind */
    const lf_proc_id *self;    /* this process; NULL: it is looked up */
} lf_attempt_args;

/* Publish attempt.<N>.json with a new token; N is one above what the view has. LF_EBUSY: another
 * loong-flow took the number. */
int lf_attempt_publish(int *n, char token[LF_TOKEN_SIZE], const lf_attempt_args *a, lf_err *err);
/* The submit event; written before a scheduler is called. cmd: the command as text, or NULL.
 * Writing it again is harmless. */
int lf_attempt_event(const lf_attempt_args *a, int n, const char *token, const char *cmd,
                     lf_err *err);
/* Publish job.<N>.json and the submitted event. job: has its ids; gets backend, token and t.
 * LF_EEXIST: there is a record already, which stands. */
int lf_attempt_job(struct lf_job_rec *job, const lf_submitter *s, const lf_run *run,
                   const lf_stage_view *view, int n, const char *token, lf_err *err);

/* Start a local attempt: attempt.<N>.json and the submit event, the process, job.<N>.json and the
 * submitted event. a: all but resources, which are the plan's. */
int lf_attempt_start(struct lf_job_rec **job, const lf_attempt_args *a, void *self,
                     const char *project, lf_err *err);

#endif
