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
#include "flow/record/event.h"
#include "flow/record/record.h"

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

static struct lf_attempt_rec record_of(const lf_attempt_args *a, int n, const char *token)
{
    const lf_doc_stage *st = a->view->plan;
    struct lf_attempt_rec rec = {.attempt = n,
                                 .run = a->run->id,
                                 .stage = st->name,
                                 .token = token,
                                 .rev = a->run->rev,
                                 .spec_id = st->spec_id,
                                 .spec = *lf_doc_spec(st),
                                 .backend = a->submitter->name,
                                 .t = lf_wall_s(),
                                 .fresh = a->fresh,
                                 .script_sha256 = a->script_sha256,
                                 .behind = a->behind,
                                 .resources = *a->resources};
    if (a->accepted != NULL)
        rec.accepted = *a->accepted;
    return rec;
}

static int publish(const lf_attempt_args *a, int n, const char *token, lf_err *err)
{
    struct lf_attempt_rec rec = record_of(a, n, token);
    int rc = 0;
    if (a->self != NULL)
        rec.submitter = *a->self;
    else
        rc = lf_proc_self(&rec.submitter, err);
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

static lf_origin origin(const lf_run *run, const lf_stage_view *view, int n)
{
    return (lf_origin){.dir = view->dir, .run = run->id, .stage = name_of(view), .attempt = n};
}

int lf_attempt_event(const lf_attempt_args *a, int n, const char *token, const char *cmd,
                     lf_err *err)
{
    const lf_origin from = origin(a->run, a->view, n);
    const struct lf_attempt_rec rec = record_of(a, n, token);
    return lf_event_submit(&from, &rec, cmd, err);
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
    const lf_origin from = origin(run, view, n);
    return lf_event_submitted(&from, job, err);
}

int lf_attempt_start(struct lf_job_rec **job, const lf_attempt_args *args, void *self,
                     const char *project, lf_err *err)
{
    char token[LF_TOKEN_SIZE];
    int n = 0;
    lf_attempt_args a = *args;
    lf_resources res;
    int rc = lf_attempt_resources(&res, a.view->plan, NULL, err);
    if (rc < 0)
        return rc;
    struct lf_job_rec *j = lf_job_rec_new(err);
    a.resources = &res;
    rc = j == NULL ? LF_ENOMEM : lf_attempt_publish(&n, token, &a, err);
    if (rc == 0)
        rc = lf_attempt_event(&a, n, token, NULL, err);
    lf_submit_req req = {.run = a.run,
                         .stage = a.view->plan,
                         .resources = &res,
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
    lf_resources_fini(&res);
    if (rc < 0)
        lf_job_rec_free(j);
    else
        *job = j;
    return rc;
}
