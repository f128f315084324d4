/* SPDX-License-Identifier: Apache-2.0
 *
 * Events of attempts and starts as JSON.
 */
#include "config.h"

#include "flow/record/event.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "db/event.h"
#include "engine/base/io.h"
#include "flow/record/parts.h"

int lf_record_event(const lf_origin *from, const char *kind, json_t *data, lf_err *err)
{
    if (data == NULL)
        return lf_fail(err, LF_ENOMEM, "out of memory for an event");
    char *spool = lf_path_join(from->dir, "spool", err);
    int rc = spool == NULL ? LF_ENOMEM : 0;
    if (rc == 0) {
        lf_event ev = {.run = from->run,
                       .stage = from->stage,
                       .attempt = from->attempt,
                       .epoch = from->epoch,
                       .kind = kind,
                       .data = data};
        rc = lf_event_write(spool, &ev, 0750, 0640, err);
    }
    free(spool);
    json_decref(data);
    return rc;
}

int lf_event_submit(const lf_origin *from, const struct lf_attempt_rec *a, const char *cmd,
                    lf_err *err)
{
    json_t *req = lf_fields_json(&a->resources, &lf_resources_fields, err);
    if (req == NULL)
        return LF_ENOMEM;
    json_t *d = json_pack("{s:s, s:s, s:s, s:s*, s:s*, s:o}", "token", a->token, "backend",
                          a->backend, "spec_id", a->spec_id, "submit_cmd", cmd, "script_sha256",
                          a->script_sha256, "req", req);
    return lf_record_event(from, "submit", d, err);
}

static json_t *ids_of(const struct lf_job_rec *job)
{
    return job->ids.given ? lf_texts_json(&job->ids) : NULL;
}

int lf_event_submitted(const lf_origin *from, const struct lf_job_rec *job, lf_err *err)
{
    json_t *d = json_pack("{s:s, s:s*, s:o*}", "jobid", job->id, "cluster", job->cluster, "ids",
                          ids_of(job));
    return lf_record_event(from, "submitted", d, err);
}

int lf_event_adopt(const lf_origin *from, const struct lf_job_rec *job, bool ids, lf_err *err)
{
    json_t *d = json_pack("{s:s, s:o*}", "jobid", job->id, "ids", ids ? ids_of(job) : NULL);
    return lf_record_event(from, "adopt", d, err);
}

int lf_event_cancel(const lf_origin *from, const char *by, lf_err *err)
{
    return lf_record_event(from, "cancel", json_pack("{s:s}", "by", by), err);
}

int lf_event_start(const lf_origin *from, const lf_proc_id *wrapper, lf_err *err)
{
    json_t *d =
        json_pack("{s:s, s:I, s:s, s:I}", "host", wrapper->host, "pid", (json_int_t)wrapper->pid,
                  "boot_id", wrapper->boot_id, "proc_start", (json_int_t)wrapper->start);
    return lf_record_event(from, "start", d, err);
}

int lf_event_input(const lf_origin *from, const struct lf_used *in, const char *path, lf_err *err)
{
    json_t *d = json_pack("{s:s, s:s, s:s*}", "name", in->name, "path", path, "sha256", in->sha256);
    return lf_record_event(from, "input", d, err);
}

int lf_event_artifact(const lf_origin *from, const struct lf_output *o, const char *path,
                      const char *spec_id, lf_err *err)
{
    json_t *d =
        json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:O}", "name", o->name, "path", path, "kind",
                  o->kind, "sha256", o->manifest_sha256, "bytes", (json_int_t)o->bytes, "files",
                  (json_int_t)o->files, "spec_id", spec_id, "meta", o->meta);
    return lf_record_event(from, "artifact", d, err);
}

int lf_event_node_strike(const lf_origin *from, const char *host, const char *cause, lf_err *err)
{
    return lf_record_event(from, "node_strike",
                           json_pack("{s:s, s:s}", "host", host, "cause", cause), err);
}

int lf_event_end(const lf_origin *from, const struct lf_end *end, lf_err *err)
{
    json_t *d = json_pack("{s:s, s:s, s:s, s:o*, s:o*, s:o*}", "state", end->state, "reason",
                          end->cls, "message", end->reason, "exit",
                          end->repaired ? NULL : json_integer(end->exit_code), "signal",
                          end->repaired ? NULL : json_integer(end->signal), "step",
                          end->repaired || end->step < 0 ? NULL : json_integer(end->step));
    return lf_record_event(from, "end", d, err);
}

int lf_event_requeue(const lf_origin *from, const char *cause, const char *act, const char *jobid,
                     lf_err *err)
{
    json_t *d = json_pack("{s:s, s:s, s:s, s:i}", "cause", cause, "act", act, "jobid", jobid,
                          "epoch", from->epoch);
    return lf_record_event(from, "requeue", d, err);
}

int lf_event_run_end(const lf_origin *from, const struct lf_ended_rec *e, const char *key, int exit,
                     lf_err *err)
{
    json_t *d = json_pack("{s:s, s:s, s:s, s:i}", "command", key, "state", e->state, "reason",
                          e->reason, "exit", exit);
    return lf_record_event(from, "run_end", d, err);
}

int lf_event_gone(const lf_origin *from, const char *path, const char *why, lf_err *err)
{
    return lf_record_event(from, "gone", json_pack("{s:s, s:s}", "path", path, "why", why), err);
}

int lf_event_mark(const lf_origin *from, const char *kind, const char *text, const char *by,
                  bool remove, lf_err *err)
{
    json_t *d = json_pack("{s:s, s:s}", strcmp(kind, "tag") == 0 ? "tag" : "text", text, "by", by);
    if (d == NULL)
        return lf_fail(err, LF_EINVAL, "the text is not UTF-8");
    if (remove)
        json_object_set_new(d, "remove", json_true());
    return lf_record_event(from, kind, d, err);
}
