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

const struct lf_fields lf_sched_job_fields = LF_FIELDS(
    lf_sched_job, LF_MEMBERS(lf_sched_job, id),
    LF_MEMBERS_OPT(lf_sched_job, token, link, moved, foreign, what, hold, word, reason, never),
    {LF_FIELD_AS(lf_sched_job, exit_code, "exit"), .opt = true, .none = -1},
    LF_MEMBERS_OPT(lf_sched_job, signal, cause, t_submit, t_start, t_end, nodes, partition),
    {LF_FIELD(lf_sched_job, restarts), .opt = true, .none = -1},
    LF_MEMBERS_OPT(lf_sched_job, seen, listed));

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

static const struct lf_fields queue_fields = LF_FIELDS(
    lf_queue_rec, LF_FIELD_KIND("lf_queue"), LF_MEMBERS(lf_queue_rec, t, t_try, fails, said),
    {.key = "jobs",
     .type = LF_FIELD_NAMED,
     .at = offsetof(lf_queue_rec, jobs.v),
     .n_at = offsetof(lf_queue_rec, jobs.n),
     .sub = &lf_sched_job_fields});

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

const struct lf_fields lf_job_said_fields = LF_FIELDS(
    lf_job_said, LF_MEMBERS(lf_job_said, backend, ids, age_s),
    LF_MEMBERS_OPT(lf_job_said, id, state, reason, t_submit, t_start, t_end, nodes, partition),
    {LF_FIELD_AS(lf_job_said, exit_code, "exit"), .opt = true, .none = -1},
    LF_MEMBERS_OPT(lf_job_said, signal, cause, never, unreachable));

void lf_job_said_free(lf_job_said *j)
{
    lf_fields_free(j, &lf_job_said_fields);
}
