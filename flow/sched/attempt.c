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
#include "flow/run/who.h"

static const char *name_of(const lf_stage_view *v)
{
    return v->plan->name;
}

int lf_attempt_resources(lf_resources *out, const lf_doc_stage *stage, const lf_next *next,
                         lf_err *err)
{
    int rc = lf_resources_copy(out, &stage->resources, err);
    if (rc < 0)
        return rc;
    out->given = true;
    if (stage->memory_bytes.given)
        out->memory_bytes = stage->memory_bytes;
    if (stage->time_limit_s.given)
        out->time_limit_s = stage->time_limit_s;
    if (stage->grace_s.given)
        out->grace_s = stage->grace_s;
    if (next == NULL)
        return 0;
    if (next->memory_bytes > 0)
        out->memory_bytes = lf_int_of(next->memory_bytes);
    if (next->time_limit_s > 0)
        out->time_limit_s = lf_int_of(next->time_limit_s);
    if (next->exclude.n > 0) {
        lf_texts_fini(&out->exclude);
        rc = lf_texts_copy(&out->exclude, &next->exclude, err);
    }
    if (rc < 0)
        lf_resources_fini(out);
    return rc;
}

static json_t *attempt_record(const lf_attempt_args *a, int n, const char *token, lf_err *err)
{
    const lf_doc_stage *st = a->view->plan;
    json_t *who = lf_who_make(0, err);
    json_t *spec = who != NULL ? lf_spec_json(&st->spec, err) : NULL;
    json_t *res = spec != NULL ? lf_resources_json(a->resources, err) : NULL;
    json_t *o =
        res != NULL
            ? json_pack("{s:i, s:i, s:s, s:s, s:s, s:i, s:s, s:O, s:s, s:f, s:O, s:b, s:s*, s:O, "
                        "s:O*}",
                        "lf_attempt", 1, "attempt", n, "run", a->run->id, "stage", st->name,
                        "token", token, "rev", a->run->rev, "spec_id", st->spec_id, "spec", spec,
                        "backend", a->submitter->name, "t", lf_wall_s(), "submitter", who, "fresh",
                        (int)a->fresh, "script_sha256", a->script_sha256, "resources", res,
                        "accepted", a->accepted)
            : NULL;
    if (o == NULL && res != NULL)
        lf_fail(err, LF_ENOMEM, "out of memory");
    json_decref(who);
    json_decref(spec);
    json_decref(res);
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
    json_t *req = lf_resources_json(a->resources, err);
    if (req == NULL)
        return LF_ENOMEM;
    json_t *d = json_pack("{s:s, s:s, s:s, s:s*, s:s*, s:o}", "token", token, "backend",
                          a->submitter->name, "spec_id", a->view->plan->spec_id, "submit_cmd", cmd,
                          "script_sha256", a->script_sha256, "req", req);
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
    lf_resources res;
    json_t *j = NULL;
    int rc = lf_attempt_resources(&res, view->plan, NULL, err);
    if (rc < 0)
        return rc;
    lf_attempt_args a = {.submitter = s,
                         .run = run,
                         .view = view,
                         .resources = &res,
                         .accepted = accepted,
                         .fresh = fresh};
    rc = lf_attempt_publish(&n, token, &a, err);
    if (rc == 0)
        rc = lf_attempt_event(&a, n, token, NULL, err);
    lf_submit_req req = {.run = run,
                         .stage = view->plan,
                         .resources = &res,
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
    lf_resources_fini(&res);
    if (rc < 0)
        json_decref(j);
    else
        *job = j;
    return rc;
}
