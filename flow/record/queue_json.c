/* SPDX-License-Identifier: Apache-2.0
 *
 * Jobs of a scheduler as JSON.
 */
#include "config.h"

#include "flow/record/queue.h"

#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "flow/record/fields.h"
#include "flow/record/parts.h"

#define CACHE_MAX_BYTES ((size_t)64 << 20)

static const struct lf_field job_rows[] = {
    {LF_FIELD(lf_sched_job, id)},
    {LF_FIELD(lf_sched_job, token), .opt = true},
    {LF_FIELD(lf_sched_job, link), .opt = true},
    {LF_FIELD(lf_sched_job, moved), .opt = true},
    {LF_FIELD(lf_sched_job, foreign), .opt = true},
    {LF_FIELD(lf_sched_job, what), .opt = true},
    {LF_FIELD(lf_sched_job, hold), .opt = true},
    {LF_FIELD(lf_sched_job, word), .opt = true},
    {LF_FIELD(lf_sched_job, reason), .opt = true},
    {LF_FIELD(lf_sched_job, never), .opt = true},
    {LF_FIELD_AS(lf_sched_job, exit_code, "exit"), .opt = true, .none = -1},
    {LF_FIELD(lf_sched_job, signal), .opt = true},
    {LF_FIELD(lf_sched_job, cause), .opt = true},
    {LF_FIELD(lf_sched_job, t_submit), .opt = true},
    {LF_FIELD(lf_sched_job, t_start), .opt = true},
    {LF_FIELD(lf_sched_job, t_end), .opt = true},
    {LF_FIELD(lf_sched_job, nodes), .opt = true},
    {LF_FIELD(lf_sched_job, partition), .opt = true},
    {LF_FIELD(lf_sched_job, restarts), .opt = true, .none = -1},
    {LF_FIELD(lf_sched_job, seen), .opt = true},
    {LF_FIELD(lf_sched_job, listed), .opt = true},
};
const struct lf_fields lf_sched_job_fields = LF_FIELDS(lf_sched_job, job_rows);

lf_sched_job *lf_sched_jobs_add(lf_sched_jobs *l, const char *id, lf_err *err)
{
    lf_sched_job *j = lf_rows_add(l, sizeof *l->v, err);
    if (j == NULL)
        return NULL;
    j->exit_code = j->restarts = -1;
    return lf_text_set(&j->id, id, "id", err) == 0 ? j : NULL;
}

void lf_sched_job_fini(lf_sched_job *j)
{
    lf_fields_fini(j, &lf_sched_job_fields);
}

void lf_sched_jobs_fini(lf_sched_jobs *l)
{
    for (size_t i = 0; i < l->n; i++)
        lf_sched_job_fini(&l->v[i]);
    free(l->v);
    memset(l, 0, sizeof *l);
}

/* ---- the file ---- */

static const struct lf_field queue_rows[] = {
    LF_FIELD_KIND("lf_queue"),
    {LF_FIELD(lf_queue_rec, t)},
    {LF_FIELD(lf_queue_rec, t_try)},
    {LF_FIELD(lf_queue_rec, fails)},
    {LF_FIELD(lf_queue_rec, said)},
    {.key = "jobs",
     .type = LF_FIELD_NAMED,
     .at = offsetof(lf_queue_rec, jobs.v),
     .n_at = offsetof(lf_queue_rec, jobs.n),
     .sub = &lf_sched_job_fields},
};
static const struct lf_fields queue_fields = LF_FIELDS(lf_queue_rec, queue_rows);

int lf_queue_rec_load(lf_queue_rec *out, const char *path, lf_err *err)
{
    struct stat st;
    json_t *o = lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid()
                    ? lf_json_load_file(path, CACHE_MAX_BYTES, NULL)
                    : NULL;
    const bool ours = json_integer_value(json_object_get(o, "lf_queue")) == 1;
    int rc = lf_fields_read(out, &queue_fields, ours ? o : NULL, path, err);
    out->jobs.cap = out->jobs.n;
    out->jobs.given = true;
    json_decref(o);
    return rc;
}

int lf_queue_rec_replace(const char *path, const lf_queue_rec *q, lf_err *err)
{
    lf_queue_rec copy = *q;
    if (copy.said == NULL)
        copy.said = "";
    return lf_fields_replace(path, 0600, &queue_fields, &copy, err);
}

int lf_queue_rec_say(lf_queue_rec *q, const char *said, lf_err *err)
{
    char *copy = lf_strdup(said, err);
    if (copy == NULL)
        return LF_ENOMEM;
    free((void *)(uintptr_t)q->said);
    q->said = copy;
    return 0;
}

void lf_queue_rec_fini(lf_queue_rec *q)
{
    lf_fields_fini(q, &queue_fields);
}

/* ---- of a stage ---- */

static const struct lf_field said_rows[] = {
    {LF_FIELD(lf_job_said, backend)},
    {LF_FIELD(lf_job_said, ids)},
    {LF_FIELD(lf_job_said, age_s)},
    {LF_FIELD(lf_job_said, id), .opt = true},
    {LF_FIELD(lf_job_said, state), .opt = true},
    {LF_FIELD(lf_job_said, reason), .opt = true},
    {LF_FIELD(lf_job_said, t_submit), .opt = true},
    {LF_FIELD(lf_job_said, t_start), .opt = true},
    {LF_FIELD(lf_job_said, t_end), .opt = true},
    {LF_FIELD(lf_job_said, nodes), .opt = true},
    {LF_FIELD(lf_job_said, partition), .opt = true},
    {LF_FIELD_AS(lf_job_said, exit_code, "exit"), .opt = true, .none = -1},
    {LF_FIELD(lf_job_said, signal), .opt = true},
    {LF_FIELD(lf_job_said, cause), .opt = true},
    {LF_FIELD(lf_job_said, never), .opt = true},
    {LF_FIELD(lf_job_said, unreachable), .opt = true},
};
const struct lf_fields lf_job_said_fields = LF_FIELDS(lf_job_said, said_rows);

void lf_job_said_free(lf_job_said *j)
{
    lf_fields_free(j, &lf_job_said_fields);
}
