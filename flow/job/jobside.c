/* SPDX-License-Identifier: Apache-2.0
 *
 * What is the same inside every scheduler's jobs: when to ask again, how long to be patient, how to
 * put a job back.
 */
#include "config.h"

#include "flow/job/jobside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/io.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/sched/sched.h"

#define ASK_EVERY_S   600.0 /* limits change rarely, and every wrapper of the site asks */
#define RETRY_S       2.0
#define REQUEUE_TRIES 10
#define CHANGE_PATIENCE_S                                                                          \
    10.0 /* KillWait, after which this process is killed, is 30 s by default */

static void nap(double s)
{
    const struct timespec ts = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&ts, NULL);
}

void lf_jobside_open(lf_jobside *j, const char *backend, const lf_site *site, double t_start,
                     int64_t limit_s)
{
    memset(j, 0, sizeof *j);
    j->site = site;
    j->t_start = t_start;
    j->limit_s = limit_s;
    j->restarts = -1;
    j->timeout_s = 30.0;
    j->ask_every_s = ASK_EVERY_S;
    const char *slurm = getenv("SLURM_JOB_ID"), *pbs = getenv("PBS_JOBID"),
               *n = getenv("SLURM_RESTART_COUNT");
    int64_t count = 0;
    if (strcmp(backend, "slurm") == 0 && slurm != NULL) {
        j->ops = &lf_jobside_slurm;
        snprintf(j->id, sizeof j->id, "%s", slurm);
        j->restarts = n != NULL && lf_parse_i64(&count, n, NULL) == 0 ? (int)count : 0;
    } else if ((strcmp(backend, "pbs") == 0 || strcmp(backend, "torque") == 0) && pbs != NULL) {
        j->ops = &lf_jobside_pbs;
        snprintf(j->id, sizeof j->id, "%s", pbs);
    }
    if (limit_s > 0)
        j->end = t_start + (double)limit_s;
}

double lf_jobside_end(lf_jobside *j, bool force)
{
    double now = lf_now_s();
    if (j->ops == NULL || (!force && now < j->next_ask))
        return j->end;
    j->next_ask = now + j->ask_every_s;
    double end = j->ops->end_time(j);
    if (end > 0)
        j->end = end;
    return j->end;
}

enum lf_jobside_state lf_jobside_state(lf_jobside *j, double patience_s)
{
    if (j->ops == NULL)
        return LF_JOBSIDE_UNKNOWN;
    double until = lf_now_s() + patience_s;
    enum lf_jobside_state st;
    while ((st = j->ops->state(j)) == LF_JOBSIDE_UNKNOWN && lf_now_s() < until)
        nap(RETRY_S);
    return st;
}

/* A scheduler that does not answer may have heard us: before asking again, look whether the job
 * still runs. */
int lf_jobside_requeue(lf_jobside *j, lf_err *err)
{
    lf_err e = LF_ERR_INIT;
    int rc = LF_ENOTSUP;
    if (j->ops == NULL || !j->ops->can_requeue)
        return lf_fail(err, LF_ENOTSUP, "this scheduler does not let a job put itself back");
    for (int tries = 0; tries < REQUEUE_TRIES; tries++) {
        lf_err_clear(&e);
        rc = j->ops->requeue(j, &e);
        if (rc != LF_ECOMM)
            break;
        nap(RETRY_S);
        if (lf_jobside_state(j, 0) == LF_JOBSIDE_ENDING)
            return 0;
    }
    return rc < 0 ? lf_fail(err, rc, "%s", e.text) : 0;
}

int lf_jobside_requeue_as(lf_jobside *j, const lf_jobside_ask *ask, lf_err *err)
{
    int rc = lf_jobside_requeue(j, err);
    if (rc < 0)
        return rc;
    double until = lf_now_s() + CHANGE_PATIENCE_S;
    lf_err e = LF_ERR_INIT;
    while ((rc = j->ops->update(j, ask, &e)) < 0 && lf_now_s() < until) {
        nap(RETRY_S / 2);
        lf_err_clear(&e);
    }
    if (rc < 0)
        lf_log(1, "the scheduler did not take the changed request: %s", e.text);
    return 0;
}

int lf_jobside_succeed(lf_jobside *j, const lf_submitter *s, const lf_submit_req *req, char *id,
                       size_t cap, lf_err *err)
{
    if (j->ops == NULL || j->ops->repoint == NULL || s->submit == NULL)
        return lf_fail(err, LF_ENOTSUP, "this scheduler does not let a job name its successor");
    lf_buf script;
    lf_buf_init(&script);
    void *self = NULL;
    struct lf_job_rec *job = lf_job_rec_new(err);
    lf_submit_req r = *req;
    r.prev = j->id;
    int rc = job == NULL ? LF_ENOMEM : lf_io_read_file(req->script, (size_t)1 << 20, &script, err);
    if (rc == 0)
        rc = s->open(&self, j->site, err);
    if (rc == 0) {
        rc = s->submit(self, &r, script.data, job, err);
        s->close(self);
    }
    lf_buf_fini(&script);
    if (rc == 0 && job->id == NULL)
        rc = lf_fail(err, LF_EFORMAT, "the submitter gave no id");
    if (rc == 0) {
        snprintf(id, cap, "%s", job->id);
        rc = j->ops->repoint(j, id, err);
    }
    lf_job_rec_free(job);
    return rc;
}

/* ---- what a job has, from its environment ---- */

static int64_t env_number(const char *name)
{
    const char *s = getenv(name);
    int64_t v = 0;
    return s != NULL && lf_parse_i64(&v, s, NULL) == 0 && v > 0 ? v : 0;
}

int64_t lf_jobside_memory(const lf_jobside *j)
{
    if (j->ops != &lf_jobside_slurm)
        return 0;
    int64_t node = env_number("SLURM_MEM_PER_NODE"), cpu = env_number("SLURM_MEM_PER_CPU");
    int64_t cpus = env_number("SLURM_CPUS_ON_NODE");
    return node > 0 ? node << 20 : (cpu * cpus) << 20; /* both in MiB */
}

const char *lf_jobside_node(const lf_jobside *j, char *buf, size_t cap)
{
    const char *name = j->ops == &lf_jobside_slurm ? getenv("SLURMD_NODENAME") : NULL;
    snprintf(buf, cap, "%s", name != NULL ? name : "");
    return buf;
}
