/* SPDX-License-Identifier: Apache-2.0
 *
 * The events of attempts, starts and runs, which the ledger is made from (db/event.h), one function
 * each.
 */
#ifndef LF_FLOW_EVENT_H
#define LF_FLOW_EVENT_H

#include "engine/base/err.h"
#include "engine/base/id.h"
#include "flow/record/attempt.h"
#include "flow/record/start.h"

/* Where an event comes from. stage NULL and numbers 0 where it has none. */
typedef struct lf_origin {
    const char *dir; /* RUN, RUN/<stage> or a start; the spool directory is made in it */
    const char *run, *stage;
    int attempt, epoch;
} lf_origin;

/* ---- of an attempt ---- */

/* Before its scheduler is called. cmd: the command as text, or NULL. */
int lf_event_submit(const lf_origin *from, const struct lf_attempt_rec *a, const char *cmd,
                    lf_err *err);
int lf_event_submitted(const lf_origin *from, const struct lf_job_rec *job, lf_err *err);
/* A job was found by its token. ids: does the event list those of its links? */
int lf_event_adopt(const lf_origin *from, const struct lf_job_rec *job, bool ids, lf_err *err);
int lf_event_cancel(const lf_origin *from, const char *by, lf_err *err);

/* ---- of a start ---- */

int lf_event_start(const lf_origin *from, const lf_proc_id *wrapper, lf_err *err);
/* path: inside the data root relative to it. */
int lf_event_input(const lf_origin *from, const struct lf_used *in, const char *path, lf_err *err);
/* path: relative to the data root. */
int lf_event_artifact(const lf_origin *from, const struct lf_output *o, const char *path,
                      const char *spec_id, lf_err *err);
int lf_event_node_strike(const lf_origin *from, const char *host, const char *cause, lf_err *err);
/* One that was written by somebody else says neither exit nor signal nor step. */
int lf_event_end(const lf_origin *from, const struct lf_end *end, lf_err *err);
int lf_event_requeue(const lf_origin *from, const char *cause, const char *act, const char *jobid,
                     lf_err *err);

/* ---- of a run ---- */

/* A command was run at the end of the run. key: "on_end" or "on_fail"; exit -1: it did not exit by
 * itself. */
int lf_event_run_end(const lf_origin *from, const struct lf_ended_rec *e, const char *key, int exit,
                     lf_err *err);
/* A file was deleted. path: relative to the data root. */
int lf_event_gone(const lf_origin *from, const char *path, const char *why, lf_err *err);
/* kind: "tag" or "note"; remove: the tag is taken away. LF_EINVAL: the text is not UTF-8. */
int lf_event_mark(const lf_origin *from, const char *kind, const char *text, const char *by,
                  bool remove, lf_err *err);

#endif
