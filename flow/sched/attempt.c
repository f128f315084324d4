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
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/record/record.h"
#include "flow/record/shown.h"

static const char *text_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static const char *name_of(const lf_stage_view *v)
{
    return text_of(v->stage, "name");
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

static int publish(const lf_attempt_args *a, int n, const char *token, lf_err *err)
{
    struct lf_attempt_rec rec = {.attempt = n,
                                 .run = a->run->id,
                                 .stage = name_of(a->view),
                                 .token = token,
                                 .rev = a->run->rev,
                                 .spec_id = text_of(a->view->stage, "spec_id"),
                                 .spec = json_object_get(a->view->stage, "spec"),
                                 .backend = a->submitter->name,
                                 .t = lf_wall_s(),
                                 .fresh = a->fresh,
                                 .script_sha256 = a->script_sha256,
                                 .resources = a->resources};
    if (a->accepted != NULL)
        rec.accepted = *a->accepted;
    int rc = lf_proc_self(&rec.submitter, err);
    return rc == 0 ? lf_attempt_rec_publish(a->view->dir, &rec, err) : rc;
}

/* link(2) decides: of two loong-flow at once one gets the number. */
int lf_attempt_publish(int *n, char token[LF_TOKEN_SIZE], const lf_attempt_args *a, lf_err *err)
{
    int k = (int)a->view->n_attempts + 1;
    int rc = lf_token(token, err);
    if (rc == 0)
        rc = lf_io_mkdirs(a->view->dir, 0750, err);
    lf_err e = LF_ERR_INIT;
    if (rc == 0 && (rc = publish(a, k, token, &e)) < 0)
        rc = lf_fail(err, rc == LF_EEXIST ? LF_EBUSY : rc, "%s%s",
                     rc == LF_EEXIST ? "another loong-flow submits it: " : "", e.text);
    if (rc == 0)
        *n = k;
    return rc;
}

int lf_attempt_event(const lf_attempt_args *a, int n, const char *token, const char *cmd,
                     lf_err *err)
{
    json_t *d =
        json_pack("{s:s, s:s, s:s, s:s*, s:s*, s:O*}", "token", token, "backend",
                  a->submitter->name, "spec_id", text_of(a->view->stage, "spec_id"), "submit_cmd",
                  cmd, "script_sha256", a->script_sha256, "req", a->resources);
    return lf_record_event(a->view->dir, a->run->id, name_of(a->view), n, 0, "submit", d, err);
}

static int set(const char **out, const char *text, lf_err *err)
{
    free((void *)(uintptr_t)*out);
    *out = lf_strdup(text, err);
    return *out != NULL ? 0 : LF_ENOMEM;
}

int lf_attempt_job(struct lf_job_rec *job, const lf_submitter *s, const lf_run *run,
                   const lf_stage_view *view, int n, const char *token, lf_err *err)
{
    job->t = lf_wall_s();
    int rc = set(&job->backend, s->name, err);
    if (rc == 0)
        rc = set(&job->token, token, err);
    if (rc == 0)
        rc = lf_job_rec_publish(view->dir, n, job, err);
    if (rc < 0)
        return rc;
    json_t *d = json_pack("{s:s, s:s*, s:o*}", "jobid", job->id, "cluster", job->cluster, "ids",
                          job->ids.given ? lf_job_shown(job, "ids") : NULL);
    return lf_record_event(view->dir, run->id, name_of(view), n, 0, "submitted", d, err);
}

int lf_attempt_start(struct lf_job_rec **job, const lf_attempt_args *args, void *self,
                     const char *project, lf_err *err)
{
    char token[LF_TOKEN_SIZE];
    int n = 0;
    lf_attempt_args a = *args;
    json_t *res = lf_attempt_resources(a.view->stage, NULL, err);
    struct lf_job_rec *j = lf_job_rec_new(err);
    a.resources = res;
    int rc = res == NULL || j == NULL ? LF_ENOMEM : lf_attempt_publish(&n, token, &a, err);
    if (rc == 0)
        rc = lf_attempt_event(&a, n, token, NULL, err);
    lf_submit_req req = {.run = a.run,
                         .stage = a.view->stage,
                         .resources = res,
                         .attempt = n,
                         .token = token,
                         .project = project,
                         .stage_dir = a.view->dir,
                         .link = 1,
                         .n_links = 1};
    if (rc == 0)
        rc = a.submitter->start(self, &req, j, err);
    if (rc == 0)
        rc = lf_attempt_job(j, a.submitter, a.run, a.view, n, token, err);
    json_decref(res);
    if (rc < 0)
        lf_job_rec_free(j);
    else
        *job = j;
    return rc;
}
