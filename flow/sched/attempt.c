/* SPDX-License-Identifier: Apache-2.0
 *
 * Making attempts: the record first, then the job.
 */
#include "config.h"

#include "flow/sched/attempt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/sys.h"
#include "flow/record/record.h"
#include "flow/record/shown.h"

static const char *name_of(const lf_stage_view *v)
{
    return json_string_value(json_object_get(v->stage, "name"));
}

json_t *lf_attempt_resources(const json_t *stage, json_t *changes, lf_err *err)
{
    static const char *const beside[] = {"memory_bytes", "time_limit_s", "grace_s"};
    json_t *plan = json_object_get(stage, "resources");
    json_t *o = plan != NULL ? json_deep_copy(plan) : json_object();
    int rc = o == NULL ? LF_ENOMEM : 0;
    for (size_t i = 0; rc == 0 && i < sizeof beside / sizeof beside[0]; i++)
        if (json_object_get(stage, beside[i]) != NULL)
            rc = lf_json_set_new(o, beside[i], json_incref(json_object_get(stage, beside[i])), err);
    if (rc == 0 && changes != NULL && json_object_update(o, changes) < 0)
        rc = LF_ENOMEM;
    if (rc == 0)
        return o;
    json_decref(o);
    lf_fail(err, LF_ENOMEM, "out of memory");
    return NULL;
}

static json_t *attempt_record(const lf_attempt_args *a, int n, const char *token, lf_err *err)
{
    lf_proc_id me;
    if (lf_proc_self(&me, err) < 0)
        return NULL;
    json_t *o = json_pack(
        "{s:i, s:i, s:s, s:O, s:s, s:i, s:O, s:O, s:s, s:f, s:o, s:b, s:s*, s:O*, s:O*}",
        "lf_attempt", 1, "attempt", n, "run", a->run->id, "stage",
        json_object_get(a->view->stage, "name"), "token", token, "rev", a->run->rev, "spec_id",
        json_object_get(a->view->stage, "spec_id"), "spec", json_object_get(a->view->stage, "spec"),
        "backend", a->submitter->name, "t", lf_wall_s(), "submitter", lf_proc_json(&me, err),
        "fresh", (int)a->fresh, "script_sha256", a->script_sha256, "resources", a->resources,
        "accepted", a->accepted);
    if (o == NULL)
        lf_fail(err, LF_ENOMEM, "out of memory");
    return o;
}

/* link(2) decides: of two loong-flow at once one gets the number. */
int lf_attempt_publish(int *n, char token[LF_TOKEN_SIZE], const lf_attempt_args *a, lf_err *err)
{
    int k = (int)a->view->n_attempts + 1;
    char name[64];
    snprintf(name, sizeof name, "attempt.%d.json", k);
    int rc = lf_token(token, err);
    json_t *o = rc == 0 ? attempt_record(a, k, token, err) : NULL;
    if (o == NULL)
        return rc < 0 ? rc : LF_ENOMEM;
    rc = lf_io_mkdirs(a->view->dir, 0750, err);
    lf_err e = LF_ERR_INIT;
    if (rc == 0 && (rc = lf_record_publish(a->view->dir, name, o, &e)) < 0)
        rc = lf_fail(err, rc == LF_EEXIST ? LF_EBUSY : rc, "%s%s",
                     rc == LF_EEXIST ? "another loong-flow submits it: " : "", e.text);
    json_decref(o);
    if (rc == 0)
        *n = k;
    return rc;
}

int lf_attempt_event(const lf_attempt_args *a, int n, const char *token, const char *cmd,
                     lf_err *err)
{
    json_t *d =
        json_pack("{s:s, s:s, s:O, s:s*, s:s*, s:O*}", "token", token, "backend",
                  a->submitter->name, "spec_id", json_object_get(a->view->stage, "spec_id"),
                  "submit_cmd", cmd, "script_sha256", a->script_sha256, "req", a->resources);
    return lf_record_event(a->view->dir, a->run->id, name_of(a->view), n, 0, "submit", d, err);
}

int lf_attempt_job(json_t *job, const lf_submitter *s, const lf_run *run, const lf_stage_view *view,
                   int n, const char *token, lf_err *err)
{
    char file[64];
    snprintf(file, sizeof file, "job.%d.json", n);
    int rc = lf_json_set_new(job, "lf_job", json_integer(1), err);
    if (rc == 0)
        rc = lf_json_set_new(job, "backend", json_string(s->name), err);
    if (rc == 0)
        rc = lf_json_set_new(job, "token", json_string(token), err);
    if (rc == 0)
        rc = lf_json_set_new(job, "t", json_real(lf_wall_s()), err);
    if (rc == 0)
        rc = lf_record_publish(view->dir, file, job, err);
    if (rc < 0)
        return rc;
    json_t *d = json_pack("{s:O, s:O*, s:O*}", "jobid", json_object_get(job, "id"), "cluster",
                          json_object_get(job, "cluster"), "ids", json_object_get(job, "ids"));
    return lf_record_event(view->dir, run->id, name_of(view), n, 0, "submitted", d, err);
}

int lf_attempt_submit(json_t **job, const lf_submitter *s, void *self, const lf_run *run,
                      const lf_stage_view *view, const char *project, const json_t *accepted,
                      bool fresh, lf_err *err)
{
    char token[LF_TOKEN_SIZE];
    int n = 0;
    json_t *res = lf_attempt_resources(view->stage, NULL, err), *j = NULL;
    lf_attempt_args a = {.submitter = s,
                         .run = run,
                         .view = view,
                         .resources = res,
                         .accepted = accepted,
                         .fresh = fresh};
    int rc = res == NULL ? LF_ENOMEM : lf_attempt_publish(&n, token, &a, err);
    if (rc == 0)
        rc = lf_attempt_event(&a, n, token, NULL, err);
    lf_submit_req req = {.run = run,
                         .stage = view->stage,
                         .resources = res,
                         .attempt = n,
                         .token = token,
                         .project = project,
                         .stage_dir = view->dir,
                         .link = 1,
                         .n_links = 1};
    if (rc == 0)
        rc = s->start(self, &req, &j, err);
    if (rc == 0)
        rc = lf_attempt_job(j, s, run, view, n, token, err);
    json_decref(res);
    if (rc < 0)
        json_decref(j);
    else
        *job = j;
    return rc;
}
