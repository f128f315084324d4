/* SPDX-License-Identifier: Apache-2.0
 *
 * Attempts and the schedulers that carry them. An attempt is written down, with a random token, before a scheduler is
 * asked; a submitter only turns it into a job and says what became of the job. The state of a stage never comes from
 * here but from its directory (state.h).
 */
#ifndef LF_FLOW_SUBMIT_H
#define LF_FLOW_SUBMIT_H

#include <jansson.h>
#include <stdbool.h>

#include "engine/base/err.h"
#include "flow/state.h"

enum lf_job_state { LF_JOB_QUEUED, LF_JOB_RUNNING, LF_JOB_ENDED, LF_JOB_UNKNOWN };

typedef struct lf_submit_req {
    const lf_run *run;
    const json_t *stage;
    int attempt;
    const char *token;
    const char *project;
    const char *stage_dir;
} lf_submit_req;

/* One scheduler. self is what open made. */
typedef struct lf_submitter {
    const char *name;
    int (*open)(void **self, lf_err *err);
    void (*close)(void *self);
    /* Start a job for an attempt; *job describes it ({"id": text, "process": ...}) and is kept in job.<N>.json. */
    int (*submit)(void *self, const lf_submit_req *req, json_t **job, lf_err *err);
    int (*poll)(void *self, const json_t *job, enum lf_job_state *state, lf_err *err);
    /* Ask a job to stop at the next safe point (force: to end now). */
    int (*cancel)(void *self, const json_t *job, bool force, lf_err *err);
} lf_submitter;

extern const lf_submitter lf_submitter_local;
/* By name; an error says which there are. */
int lf_submitter_find(const lf_submitter **out, const char *name, lf_err *err);

/* Write attempt.<N>.json and the submit event, call the submitter, write job.<N>.json and the submitted event.
 * accepted: array of settings whose change does not restart the stage, or NULL. fresh: start over. */
int lf_attempt_submit(json_t **job, const lf_submitter *s, void *self, const lf_run *run, const lf_stage_view *view,
                      const char *project, const json_t *accepted, bool fresh, lf_err *err);

#endif
