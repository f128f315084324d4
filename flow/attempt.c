/* SPDX-License-Identifier: Apache-2.0
 *
 * Making attempts: the record first, then the job.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/record.h"
#include "flow/submit.h"
#include "flow/who.h"

static const lf_submitter *const submitters[] = {&lf_submitter_local};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

int lf_submitter_find(const lf_submitter **out, const char *name, lf_err *err)
{
    for (size_t i = 0; i < COUNT(submitters); i++)
        if (strcmp(submitters[i]->name, name) == 0) {
            *out = submitters[i];
            return 0;
        }
    return lf_fail(err, LF_ENOTSUP, "scheduler = %s: this version has only: local", name);
}

/* attempt.<n>.json with link(2): of two loong-flow at once one gets the number. */
static int write_attempt(int *n, char token[LF_TOKEN_SIZE], const lf_submitter *s, const lf_run *run,
                         const lf_stage_view *view, const json_t *accepted, bool fresh, lf_err *err)
{
    int rc = lf_token(token, err);
    json_t *who = rc == 0 ? lf_who_make(0, err) : NULL;
    if (who == NULL)
        return rc < 0 ? rc : LF_ENOMEM;
    json_t *o = json_pack("{s:i, s:s, s:O, s:s, s:i, s:O, s:O, s:s, s:f, s:O, s:b}", "lf_attempt", 1, "run", run->id, "stage",
                          json_object_get(view->stage, "name"), "token", token, "rev", run->rev, "spec_id",
                          json_object_get(view->stage, "spec_id"), "spec", json_object_get(view->stage, "spec"),
                          "backend", s->name, "t", lf_wall_s(), "submitter", who, "fresh", (int)fresh);
    json_decref(who);
    if (o == NULL || (accepted != NULL && json_object_set_new(o, "accepted", json_deep_copy(accepted)) < 0)) {
        json_decref(o);
        return lf_fail(err, LF_ENOMEM, "out of memory");
    }
    int k = (int)view->n_attempts + 1;
    char name[64];
    snprintf(name, sizeof name, "attempt.%d.json", k);
    json_object_set_new(o, "attempt", json_integer(k));
    rc = lf_io_mkdirs(view->dir, 0750, err);
    lf_err e = LF_ERR_INIT;
    if (rc == 0 && (rc = lf_record_publish(view->dir, name, o, &e)) < 0)
        rc = lf_fail(err, rc == LF_EEXIST ? LF_EBUSY : rc, "%s%s", rc == LF_EEXIST ? "another loong-flow submits it: " : "",
                     e.text);
    json_decref(o);
    if (rc == 0)
        *n = k;
    return rc;
}

int lf_attempt_submit(json_t **job, const lf_submitter *s, void *self, const lf_run *run, const lf_stage_view *view,
                      const char *project, const json_t *accepted, bool fresh, lf_err *err)
{
    char token[LF_TOKEN_SIZE], file[64];
    const char *name = json_string_value(json_object_get(view->stage, "name"));
    int n = 0;
    int rc = write_attempt(&n, token, s, run, view, accepted, fresh, err);
    if (rc < 0)
        return rc;
    json_t *d = json_pack("{s:s, s:s}", "token", token, "backend", s->name);
    rc = lf_record_event(view->dir, run->id, name, n, 0, "submit", d, err);
    lf_submit_req req = {.run = run, .stage = view->stage, .attempt = n, .token = token, .project = project,
                         .stage_dir = view->dir};
    json_t *j = NULL;
    if (rc == 0)
        rc = s->submit(self, &req, &j, err);
    if (rc < 0)
        return rc;
    snprintf(file, sizeof file, "job.%d.json", n);
    rc = lf_record_publish(view->dir, file, j, err);
    if (rc == 0)
        rc = lf_record_event(view->dir, run->id, name, n, 0, "submitted",
                             json_pack("{s:O}", "jobid", json_object_get(j, "id")), err);
    if (rc < 0)
        json_decref(j);
    else
        *job = j;
    return rc;
}
