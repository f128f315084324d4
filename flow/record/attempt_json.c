/* SPDX-License-Identifier: Apache-2.0
 *
 * The records of an attempt as JSON.
 */
#include "config.h"

#include "flow/record/attempt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "flow/record/fields.h"
#include "flow/record/parts.h"
#include "flow/record/record.h"

/* The file of attempt n: "attempt.3.json" of "attempt". */
static int load(void *out, const struct lf_fields *t, const char *dir, const char *kind, int n,
                lf_err *err)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%d.json", kind, n);
    return lf_fields_load(out, t, dir, name, err);
}

static int publish(const char *dir, const char *kind, int n, const struct lf_fields *t,
                   const void *rec, lf_err *err)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%d.json", kind, n);
    return lf_fields_publish(dir, name, t, rec, err);
}

/* ---- attempt.N.json ---- */

static const struct lf_fields attempt_fields = LF_FIELDS(
    struct lf_attempt_rec, LF_FIELD_KIND("lf_attempt"),
    LF_MEMBERS(struct lf_attempt_rec, attempt, run, stage, token, rev, spec_id),
    LF_RECORD(struct lf_attempt_rec, spec, lf_spec_fields),
    LF_MEMBERS(struct lf_attempt_rec, backend, t),
    LF_RECORD(struct lf_attempt_rec, submitter, lf_proc_fields),
    LF_MEMBERS(struct lf_attempt_rec, fresh), LF_MEMBERS_OPT(struct lf_attempt_rec, script_sha256),
    LF_RECORD(struct lf_attempt_rec, resources, lf_resources_fields, .opt = true),
    LF_MEMBERS_OPT(struct lf_attempt_rec, accepted, behind));

int lf_attempt_rec_load(struct lf_attempt_rec **out, const char *stage_dir, int n, lf_err *err)
{
    return load(out, &attempt_fields, stage_dir, "attempt", n, err);
}

int lf_attempt_rec_publish(const char *stage_dir, const struct lf_attempt_rec *a, lf_err *err)
{
    return publish(stage_dir, "attempt", a->attempt, &attempt_fields, a, err);
}

void lf_attempt_rec_free(struct lf_attempt_rec *a)
{
    lf_fields_free(a, &attempt_fields);
}

/* ---- settled.N.json ---- */

static const struct lf_fields settled_fields = LF_FIELDS(
    struct lf_settled_rec, LF_FIELD_KIND("lf_settled"), LF_MEMBERS(struct lf_settled_rec, spec_id),
    LF_RECORD(struct lf_settled_rec, spec, lf_spec_fields));

int lf_attempt_rec_settle(struct lf_attempt_rec *a, const char *spec_id, const lf_spec *spec,
                          lf_err *err)
{
    lf_spec copy;
    char *id = lf_strdup(spec_id, err);
    int rc = id == NULL ? LF_ENOMEM : lf_spec_copy(&copy, spec, err);
    if (rc < 0) {
        free(id);
        return rc;
    }
    free((void *)(uintptr_t)a->spec_id);
    lf_spec_fini(&a->spec);
    a->spec_id = id;
    a->spec = copy;
    return 0;
}

int lf_settled_rec_lay(struct lf_attempt_rec *a, const char *stage_dir, lf_err *err)
{
    struct lf_settled_rec *s = NULL;
    int rc = load(&s, &settled_fields, stage_dir, "settled", a->attempt, err);
    if (rc == 0 && s != NULL && s->spec_id != NULL)
        rc = lf_attempt_rec_settle(a, s->spec_id, &s->spec, err);
    lf_fields_free(s, &settled_fields);
    return rc;
}

int lf_settled_rec_publish(const char *stage_dir, int n, const struct lf_settled_rec *s,
                           lf_err *err)
{
    return publish(stage_dir, "settled", n, &settled_fields, s, err);
}

/* ---- finish.N.json ---- */

static const struct lf_fields finish_fields =
    LF_FIELDS(struct lf_finish_rec, LF_FIELD_KIND("lf_finish"),
              LF_MEMBERS(struct lf_finish_rec, spec_id, by, t, decay));

int lf_finish_rec_load(struct lf_finish_rec **out, const char *stage_dir, int n, lf_err *err)
{
    return load(out, &finish_fields, stage_dir, "finish", n, err);
}

int lf_finish_rec_publish(const char *stage_dir, int n, const struct lf_finish_rec *f, lf_err *err)
{
    return publish(stage_dir, "finish", n, &finish_fields, f, err);
}

int lf_finish_rec_replace(const char *stage_dir, int n, const struct lf_finish_rec *f, lf_err *err)
{
    char path[PATH_MAX];
    int rc = lf_path_set(path, err, "%s/" LF_FINISH_NAME, stage_dir, n);
    return rc == 0 ? lf_fields_replace(path, 0640, &finish_fields, f, err) : rc;
}

int lf_finish_rec_remove(const char *stage_dir, int n, lf_err *err)
{
    char path[PATH_MAX];
    int rc = 0;
    for (int i = 1; rc == 0 && i <= n; i++) {
        rc = lf_path_set(path, err, "%s/" LF_FINISH_NAME, stage_dir, i);
        if (rc == 0 && unlink(path) < 0 && errno != ENOENT)
            rc = lf_fail_errno(err, "cannot remove %s", path);
    }
    return rc;
}
void lf_finish_rec_free(struct lf_finish_rec *f)
{
    lf_fields_free(f, &finish_fields);
}

/* ---- job.N.json ---- */

static const struct lf_fields job_fields = LF_FIELDS(
    struct lf_job_rec, LF_FIELD_KIND("lf_job"), LF_MEMBERS(struct lf_job_rec, backend, id),
    LF_MEMBERS_OPT(struct lf_job_rec, ids, cluster), LF_MEMBERS(struct lf_job_rec, token),
    LF_MEMBERS_OPT(struct lf_job_rec, script_sha256), LF_MEMBERS(struct lf_job_rec, t),
    {LF_FIELD_MAYBE(struct lf_job_rec, adopted)}, LF_MEMBERS_OPT(struct lf_job_rec, after, behind),
    {LF_FIELD_SUB(struct lf_job_rec, process, LF_FIELD_PART, &lf_proc_fields), .opt = true});

int lf_job_rec_load(struct lf_job_rec **out, const char *stage_dir, int n, lf_err *err)
{
    return load(out, &job_fields, stage_dir, "job", n, err);
}

int lf_job_rec_publish(const char *stage_dir, int n, const struct lf_job_rec *j, lf_err *err)
{
    return publish(stage_dir, "job", n, &job_fields, j, err);
}

struct lf_job_rec *lf_job_rec_new(lf_err *err)
{
    struct lf_job_rec *j = lf_calloc(1, sizeof *j, err);
    if (j != NULL)
        j->adopted = -1;
    return j;
}

void lf_job_rec_free(struct lf_job_rec *j)
{
    lf_fields_free(j, &job_fields);
}

/* ---- skip.N.json ---- */

static const struct lf_fields skip_fields = LF_FIELDS(
    struct lf_skip_rec, LF_FIELD_KIND("lf_skip"), LF_MEMBERS(struct lf_skip_rec, t),
    {LF_FIELD_AS(struct lf_skip_rec, cls, "class")}, LF_MEMBERS(struct lf_skip_rec, reason),
    {LF_FIELD_AS(struct lf_skip_rec, exit_code, "exit")}, LF_MEMBERS(struct lf_skip_rec, jobid));

int lf_skip_rec_load(struct lf_skip_rec **out, const char *stage_dir, int n, lf_err *err)
{
    return load(out, &skip_fields, stage_dir, "skip", n, err);
}

int lf_skip_rec_publish(const char *stage_dir, int n, const struct lf_skip_rec *s, lf_err *err)
{
    return publish(stage_dir, "skip", n, &skip_fields, s, err);
}

void lf_skip_rec_free(struct lf_skip_rec *s)
{
    lf_fields_free(s, &skip_fields);
}

/* ---- refused.N.json ---- */

static const struct lf_fields refused_fields = LF_FIELDS(
    struct lf_refused_rec, LF_FIELD_KIND("lf_refused"), LF_MEMBERS(struct lf_refused_rec, t),
    LF_MEMBERS_OPT(struct lf_refused_rec, needs, words),
    LF_MEMBERS(struct lf_refused_rec, for_now));

int lf_refused_rec_load(struct lf_refused_rec **out, const char *stage_dir, int n, lf_err *err)
{
    return load(out, &refused_fields, stage_dir, "refused", n, err);
}

int lf_refused_rec_replace(const char *stage_dir, int n, const struct lf_refused_rec *r,
                           lf_err *err)
{
    char path[PATH_MAX];
    int rc = lf_path_set(path, err, "%s/refused.%d.json", stage_dir, n);
    return rc == 0 ? lf_fields_replace(path, 0640, &refused_fields, r, err) : rc;
}

void lf_refused_rec_free(struct lf_refused_rec *r)
{
    lf_fields_free(r, &refused_fields);
}

/* ---- successor.N.ID.json, cancel.N ---- */

static const struct lf_fields successor_fields =
    LF_FIELDS(struct lf_successor_rec, LF_FIELD_KIND("lf_successor"),
              LF_MEMBERS(struct lf_successor_rec, id, after, t));

int lf_successor_rec_publish(const char *stage_dir, int n, const struct lf_successor_rec *s,
                             lf_err *err)
{
    char name[256];
    snprintf(name, sizeof name, "successor.%d.%s.json", n, s->id);
    return lf_fields_publish(stage_dir, name, &successor_fields, s, err);
}

static const struct lf_fields cancel_fields = LF_FIELDS(
    struct lf_cancel_rec, LF_FIELD_KIND("lf_cancel"), LF_MEMBERS(struct lf_cancel_rec, by, t));

int lf_cancel_rec_publish(const char *stage_dir, int n, const struct lf_cancel_rec *c, lf_err *err)
{
    char name[64];
    snprintf(name, sizeof name, "cancel.%d", n);
    return lf_fields_publish(stage_dir, name, &cancel_fields, c, err);
}

/* ---- ended.N.M.json ---- */

static const struct lf_fields ended_fields =
    LF_FIELDS(struct lf_ended_rec, LF_FIELD_KIND("lf_ended"),
              LF_MEMBERS(struct lf_ended_rec, state, reason, t));

int lf_ended_rec_publish(const char *run_dir, const char *name, const struct lf_ended_rec *e,
                         lf_err *err)
{
    return lf_fields_publish(run_dir, name, &ended_fields, e, err);
}

/* ---- driver.want ---- */

struct want {
    lf_texts stages;
};
static const struct lf_fields want_fields =
    LF_FIELDS(struct want, LF_FIELD_KIND("lf_want"), LF_MEMBERS(struct want, stages));

int lf_want_load(lf_texts *stages, const char *run_dir, const char *name, lf_err *err)
{
    struct want *w = NULL;
    int rc = lf_fields_load(&w, &want_fields, run_dir, name, err);
    *stages = w != NULL ? w->stages : (lf_texts){0};
    free(w);
    return rc;
}

int lf_want_replace(const char *path, const lf_texts *stages, lf_err *err)
{
    const struct want w = {.stages = *stages};
    return lf_fields_replace(path, 0640, &want_fields, &w, err);
}
