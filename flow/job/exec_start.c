/* SPDX-License-Identifier: Apache-2.0
 *
 * What the wrapper knows before it begins anything: where it runs, whether its attempt still
 * stands, whether there is anything left to do, whether what it depends on is done. A scheduler's
 * dependency is only an optimisation: SLURM counts an unknown id as satisfied, and a link of a
 * chain starts whatever became of the one before it.
 */
#include "config.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/job/exec.h"
#include "flow/record/record.h"
#include "flow/run/epoch.h"
#include "flow/run/handover.h"
#include "flow/run/policy.h"
#include "flow/run/rung.h"
#include "flow/sched/attempt.h"

#define SETTLE_S                                                                                   \
    10.0 /* files written on another node show up here within the attribute cache's time */
#define NAMED_S 2.0 /* a job may begin before submit has written down which job it is */

/* ---- the run and the attempt ---- */

static int load_attempt(lf_exec *x, lf_err *err)
{
    const int n = x->args.attempt;
    int rc = lf_attempt_rec_load(&x->attempt, x->stage_dir, n, err);
    const struct lf_attempt_rec *a = x->attempt;
    if (rc == 0 && a == NULL)
        rc = lf_fail(err, LF_ENOENT, "%s/attempt.%d.json: there is none", x->stage_dir, n);
    else if (rc == 0 && (a->token == NULL || a->rev <= 0))
        rc = lf_fail(err, LF_EFORMAT, "%s/attempt.%d.json: there is no \"%s\"", x->stage_dir, n,
                     a->token == NULL ? "token" : "rev");
    else if (rc == 0 && strcmp(a->token, x->args.token) != 0)
        rc = lf_fail(err, LF_EINVAL,
                     "%s/attempt.%d.json: the token of this job is not the attempt's", x->stage_dir,
                     n);
    if (rc == 0)
        rc = lf_run_load_rev(&x->run, a->rev, err);
    if (rc < 0)
        return rc;
    x->plan = lf_run_stage(&x->run, x->args.stage);
    if (x->plan == NULL)
        return lf_fail(err, LF_EFORMAT, "%s has no stage %s", x->run.dir, x->args.stage);
    return 0;
}

static int split_run_dir(lf_exec *x, lf_err *err)
{
    const char *slash = strrchr(x->args.run_dir, '/');
    if (slash == NULL || !lf_ulid_valid(slash + 1))
        return lf_fail(err, LF_EINVAL, "%s is not the directory of a run", x->args.run_dir);
    memcpy(x->run.id, slash + 1, LF_ULID_SIZE);
    x->run.dir = lf_strdup(x->args.run_dir, err);
    x->run.data = lf_strndup(x->args.run_dir, (size_t)(slash - x->args.run_dir), err);
    x->stage_dir = lf_path_join(x->args.run_dir, x->args.stage, err);
    if (x->run.dir == NULL || x->run.data == NULL || x->stage_dir == NULL)
        return LF_ENOMEM;
    char *parent = strrchr(x->run.data, '/');
    if (parent != NULL)
        *parent = '\0'; /* DATA/<project id>/runs -> DATA/<project id> */
    return lf_run_check_owner(&x->run, err);
}

/* What was asked for; an attempt that does not say was made from the plan as it is. */
static int set_resources(lf_exec *x, lf_err *err)
{
    return x->attempt->resources.given
               ? lf_resources_copy(&x->resources, &x->attempt->resources, err)
               : lf_attempt_resources(&x->resources, x->plan, NULL, err);
}

static void nap(void)
{
    const struct timespec ts = {0, 500 * 1000 * 1000};
    nanosleep(&ts, NULL);
}

/* Opening and reading a directory makes an NFS client ask the server; looking up a name in it may
 * not. */
static void look_afresh(const char *dir)
{
    DIR *d = opendir(dir);
    if (d == NULL)
        return;
    while (readdir(d) != NULL) {
    }
    closedir(d);
}

static double patience(const lf_exec *x)
{
    return x->job.ops != NULL ? lf_now_s() + SETTLE_S : 0;
}

static bool in_a_job(void)
{
    return getenv("SLURM_JOB_ID") != NULL || getenv("PBS_JOBID") != NULL;
}

int lf_exec_open(lf_exec *x, lf_err *err)
{
    int rc = split_run_dir(x, err);
    double until = in_a_job() ? lf_now_s() + SETTLE_S : 0;
    lf_err e = LF_ERR_INIT;
    while (rc == 0 && (rc = load_attempt(x, &e)) == LF_ENOENT && lf_now_s() < until) {
        lf_err_clear(&e);
        look_afresh(x->stage_dir);
        nap();
        rc = 0;
    }
    if (rc < 0)
        return err->rc != 0 ? err->rc : lf_fail(err, rc, "%s", e.text);
    rc = set_resources(x, err);
    if (rc < 0)
        return rc;
    const char *backend = x->attempt->backend;
    lf_jobside_open(&x->job, backend != NULL ? backend : "local", &x->run.plan->site, x->t_start,
                    x->resources.time_limit_s.v);
    const char *share = x->run.plan->share;
    return lf_share_apply(share != NULL ? share : "none", err);
}

/* ---- may it start? ---- */

/* The first job of the attempt that could not begin says why; status shows it. */
static int refuse(lf_exec *x, int code, const char *cls, int *out, int rc, lf_err *err)
{
    const struct lf_skip_rec s = {
        .t = lf_wall_s(), .cls = cls, .reason = err->text, .exit_code = code, .jobid = x->job.id};
    /* There is one, or it cannot be written: the job's log has it too. */
    lf_skip_rec_publish(x->stage_dir, x->args.attempt, &s, NULL);
    *out = code;
    err->rc = rc;
    return 0;
}

static bool beside(const lf_exec *x, const char *name, int n, const char *suffix)
{
    char path[PATH_MAX];
    return lf_path_set(path, NULL, "%s/%s.%d%s", x->stage_dir, name, n, suffix) == 0 &&
           lf_io_exists(path);
}

/* "123.server" and "123" are one job of PBS; SLURM's ids have no dot. */
static bool same_job(const char *a, const char *b)
{
    size_t n = strcspn(a, ".");
    return a[0] != '\0' && n == strcspn(b, ".") && memcmp(a, b, n) == 0;
}

/* The record, waited for a little; NULL when submit was killed between the scheduler's answer and
 * this file. */
static struct lf_job_rec *load_named(const lf_exec *x)
{
    double until = lf_now_s() + NAMED_S;
    struct lf_job_rec *job = NULL;
    while ((lf_job_rec_load(&job, x->stage_dir, x->args.attempt, NULL) < 0 || job == NULL) &&
           lf_now_s() < until) {
        look_afresh(x->stage_dir);
        nap();
    }
    return job;
}

/* job.N.json names the jobs that may run the attempt. Without it the fence decides. */
static bool orphan(const lf_exec *x)
{
    char path[PATH_MAX];
    if (x->job.ops == NULL)
        return false;
    struct lf_job_rec *job = load_named(x);
    bool listed = job == NULL || (job->id != NULL && same_job(job->id, x->job.id));
    for (size_t i = 0; !listed && i < job->ids.n; i++)
        listed = same_job(job->ids.v[i], x->job.id);
    lf_job_rec_free(job);
    if (!listed && lf_path_set(path, NULL, "%s/successor.%d.%s.json", x->stage_dir, x->args.attempt,
                               x->job.id) == 0)
        listed = lf_io_exists(path);
    return !listed;
}

/* The commit of this attempt: nothing is left to do. */
static int committed(lf_exec *x, bool *yes, lf_err *err)
{
    lf_epoch_log log;
    int rc = lf_epoch_read(&log, x->stage_dir, err);
    if (rc < 0)
        return rc;
    const struct lf_claim *last = log.last;
    *yes = last != NULL && last->lf_done != 0 && lf_text_same(last->spec_id, x->plan->spec_id) &&
           last->attempt == x->args.attempt;
    lf_epoch_fini(&log);
    return 0;
}

/* Another job of the attempt has come to an end that no further link may go on from. The same job
 * was put back on purpose. */
static bool ended_for_good(const lf_exec *x, const lf_stage_view *s, lf_err *err)
{
    const lf_start *last = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
    if (last == NULL || last->attempt != x->args.attempt || last->end == NULL || x->job.ops == NULL)
        return false;
    const char *state = last->end->state, *before = last->end->jobid, *reason = last->end->reason;
    const lf_policy *p = lf_policy_of(last->end->cls);
    if (state == NULL || strcmp(state, "failed") != 0 || (p->actors & LF_ACTOR_LINK) != 0 ||
        before == NULL || strcmp(before, x->job.id) == 0)
        return false;
    lf_fail(err, LF_EBUSY, "job %s of this attempt failed, nothing follows: %.300s", before,
            reason != NULL ? reason : "");
    return true;
}

/* Its sweep decides whether it goes on; then a command makes another attempt. */
static bool ended_at_rung(const lf_exec *x, const lf_stage_view *s, lf_err *err)
{
    const lf_start *last = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
    if (last == NULL || last->attempt != x->args.attempt || x->job.ops == NULL ||
        strcmp(lf_inc_class(last), LF_CLASS_RUNG) != 0)
        return false;
    lf_fail(err, LF_EBUSY, "its sweep has stopped it at a rung; the next command goes on");
    return true;
}

/* The wrapper asked for more memory when it put this job back; a scheduler that gave none would
 * only repeat the end. */
static bool not_given(const lf_exec *x, const lf_stage_view *s, lf_err *err)
{
    const lf_start *last = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
    const struct lf_end_next *next = last != NULL && last->end != NULL ? last->end->next : NULL;
    int64_t want = next != NULL ? next->memory_bytes : 0, have = lf_jobside_memory(&x->job);
    if (want <= 0 || last->attempt != x->args.attempt || have <= 0 || have >= want - (1 << 20))
        return false;
    lf_fail(err, LF_ENOMEM,
            "it ran out of memory before, and the scheduler gave this job no more than %lld MiB",
            (long long)(have >> 20));
    return true;
}

static int check_history(lf_exec *x, int *code, lf_err *err)
{
    lf_stage_view s;
    char why[200];
    int rc = lf_stage_scan(&s, x->run.dir, x->plan, err);
    if (rc < 0)
        return rc;
    lf_chain_sum sum;
    lf_chain_add_up(&sum, &s, lf_wall_s());
    const char *capped =
        x->job.ops != NULL ? lf_chain_capped(&sum, &x->resources, why, sizeof why) : NULL;
    rc = 1;
    if (ended_for_good(x, &s, err))
        rc = refuse(x, 1, "failed", code, LF_EBUSY, err);
    else if (ended_at_rung(x, &s, err))
        rc = refuse(x, LF_EXEC_NOT_READY, "not_ready", code, LF_EBUSY, err);
    else if (not_given(x, &s, err))
        rc = refuse(x, 1, "oom", code, LF_ENOMEM, err);
    else if (capped != NULL && lf_fail(err, LF_EBUSY, "%s", why) < 0)
        rc = refuse(x, 1, capped, code, LF_EBUSY, err);
    lf_stage_scan_fini(&s);
    return rc;
}

static int check_deps(lf_exec *x, int *code, lf_err *err)
{
    double until = patience(x);
    for (;;) {
        lf_err e = LF_ERR_INIT;
        int rc = lf_exec_deps_done(x, &e);
        if (rc == 0)
            return 1;
        if (rc != LF_ENOENT || lf_now_s() >= until) {
            lf_fail(err, rc, "%s", e.text);
            return rc == LF_ENOENT ? refuse(x, LF_EXEC_NOT_READY, "not_ready", code, rc, err) : rc;
        }
        look_afresh(x->run.dir);
        nap();
    }
}

int lf_exec_may_start(lf_exec *x, int *code, lf_err *err)
{
    look_afresh(x->stage_dir);
    bool done = false;
    int rc = lf_exec_settle(x, err);
    if (rc == 0)
        rc = committed(x, &done, err);
    *code = 0;
    if (rc < 0 || done)
        return rc;
    if (beside(x, "attempt", x->args.attempt + 1, ".json")) {
        lf_fail(err, LF_EBUSY, "attempt %d of stage %s was given up: a newer one exists",
                x->args.attempt, x->args.stage);
        return refuse(x, LF_EXEC_GIVEN_UP, "superseded", code, LF_EBUSY, err);
    }
    if (beside(x, "cancel", x->args.attempt, "")) {
        lf_fail(err, LF_EBUSY, "attempt %d of stage %s was cancelled", x->args.attempt,
                x->args.stage);
        return refuse(x, LF_EXEC_GIVEN_UP, "cancelled", code, LF_EBUSY, err);
    }
    if (orphan(x)) {
        lf_fail(err, LF_EBUSY, "job %s is not the one that attempt %d was given to", x->job.id,
                x->args.attempt);
        return refuse(x, LF_EXEC_GIVEN_UP, "superseded", code, LF_EBUSY, err);
    }
    rc = check_history(x, code, err);
    if (rc == 1)
        rc = check_deps(x, code, err);
    if (rc != 1)
        return rc;
    rc = lf_exec_settle_attempt(x, err);
    return rc == 0 ? 1 : rc;
}

/* ---- the claim ---- */

/* Which attempts' checkpoints this one may go on from: usable[i] for attempt i + 1, owned. */
static int usable_attempts(bool **usable, size_t *n, const lf_exec *x, lf_err *err)
{
    lf_stage_view s;
    int rc = lf_stage_scan(&s, x->run.dir, x->plan, err);
    if (rc < 0)
        return rc;
    const lf_texts *accepted = &x->attempt->accepted;
    const bool fresh = x->attempt->fresh;
    bool *u = lf_calloc(s.n_attempts + 1, sizeof *u, err);
    for (size_t i = 0; u != NULL && i < s.n_attempts; i++)
        u[i] =
            !fresh && s.attempts[i] != NULL && lf_spec_continues(s.attempts[i], x->plan, accepted);
    *usable = u;
    *n = s.n_attempts;
    lf_stage_scan_fini(&s);
    return u != NULL ? 0 : LF_ENOMEM;
}

static int claim_epoch(lf_exec *x, lf_handover *h, lf_err *err)
{
    const lf_epoch_hooks hooks = {lf_handover_prepare, lf_handover_drop, h};
    const bool job = x->job.ops != NULL;
    struct lf_claim claim = {.attempt = x->args.attempt,
                             .token = x->args.token,
                             .t = lf_wall_s(),
                             .jobid = job ? x->job.id : NULL,
                             .restarts = job ? x->job.restarts : LF_NO_RESTARTS};
    int rc = lf_proc_self(&claim.process, err);
    if (rc == 0)
        rc = lf_epoch_claim(&claim, x->stage_dir, x->plan->spec_id, &hooks, err);
    if (rc == 0)
        x->epoch = claim.epoch;
    return rc;
}

static int make_start_dir(lf_exec *x, lf_err *err)
{
    char name[64];
    snprintf(name, sizeof name, "%d.%d", x->args.attempt, x->epoch);
    x->dir = lf_path_join(x->stage_dir, name, err);
    char *out = x->dir != NULL ? lf_path_join(x->dir, "out", err) : NULL;
    int rc = out == NULL ? LF_ENOMEM : lf_io_mkdirs(out, 0750, err);
    free(out);
    return rc;
}

int lf_exec_claim(lf_exec *x, lf_err *err)
{
    bool *usable = NULL;
    lf_handover h = {.stage_dir = x->stage_dir, .carry = &x->plan->carry};
    int rc = usable_attempts(&usable, &h.n_usable, x, err);
    h.usable = usable;
    if (rc == 0)
        rc = claim_epoch(x, &h, err);
    if (rc == 0) {
        lf_exec_evict(x);
        rc = make_start_dir(x, err);
    }
    if (rc == 0)
        rc = lf_handover_settle(&h, x->dir, x->epoch, &x->taken, err);
    lf_handover_fini(&h);
    free(usable);
    return rc;
}
