/* SPDX-License-Identifier: Apache-2.0
 *
 * SLURM: sbatch, squeue, sacct, scontrol, scancel. What its commands print is taken apart in
 * slurm_parse.c.
 */
#include "config.h"

#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "flow/record/record.h"
#include "flow/sched/sched.h"
#include "flow/sched/slurm_parse.h"
#include "flow/sched/submit.h"
#include "flow/sched/tmpl.h"

#define IDS_AT_ONCE  200 /* of one sacct or scancel call */
#define SHOW_AT_ONCE 50  /* scontrol calls of one look, where there is no accounting */

struct slurm {
    const lf_site *site;
    bool no_sacct; /* it said that there is no accounting */
    lf_tmpl script;
};

static int slurm_open(void **self, const lf_site *site, lf_err *err)
{
    struct slurm *s = lf_calloc(1, sizeof *s, err);
    if (s == NULL)
        return LF_ENOMEM;
    s->site = site;
    *self = s;
    return 0;
}

static void slurm_close(void *self)
{
    struct slurm *s = self;
    lf_tmpl_fini(&s->script);
    free(s);
}

/* ---- script ---- */

static const char *slurm_time(char buf[40], int64_t s)
{
    snprintf(buf, 40, "%lld-%02d:%02d:%02d", (long long)(s / 86400), (int)(s / 3600 % 24),
             (int)(s / 60 % 60), (int)(s % 60));
    return buf;
}

/* How long before the limit SLURM warns. It may come up to a minute early, and it must not come at
 * the start of a short job. */
static int64_t lead_s(const lf_resources *res)
{
    int64_t limit = res->time_limit_s.v;
    int64_t grace = res->grace_s.v;
    int64_t lead = grace > 30 ? grace : 30;
    if (lead > limit / 2)
        lead = limit / 2;
    return lead > 65535 ? 65535 : lead;
}

static int put_joined(lf_tmpl_values *values, const char *name, const lf_texts *list, bool upper,
                      lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    for (size_t i = 0; i < list->n; i++) {
        lf_buf_adds(&b, i > 0 ? "," : "");
        for (const char *c = list->v[i]; *c != '\0'; c++)
            lf_buf_addc(&b, upper && *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c);
    }
    int rc = lf_tmpl_text(values, name, list->given ? b.data : NULL, err);
    lf_buf_fini(&b);
    return rc;
}

static int slurm_render(void *self, const lf_submit_req *req, lf_buf *script, lf_err *err)
{
    struct slurm *s = self;
    const lf_resources *res = req->resources;
    const lf_int *limit = &res->time_limit_s;
    const char *type = res->gpus.type;
    char time_text[40], gpu_text[128];
    lf_tmpl_values v = {.n = 0};
    int rc = lf_submit_values(&v, req, err);
    snprintf(gpu_text, sizeof gpu_text, "%s%s%lld", type != NULL ? type : "",
             type != NULL ? ":" : "", (long long)res->gpus.n.v);
    const lf_int lead = {.v = limit->given ? lead_s(res) : 0, .given = limit->given};
    if (rc == 0)
        rc = lf_tmpl_text(&v, "GPUS", res->gpus.n.v > 0 ? gpu_text : NULL, err);
    if (rc == 0)
        rc = lf_tmpl_text(&v, "TIME", limit->given ? slurm_time(time_text, limit->v) : NULL, err);
    if (rc == 0)
        rc = lf_tmpl_int(&v, "LEAD_S", lead, err);
    if (rc == 0)
        rc = put_joined(&v, "EXCLUDE", &res->exclude, false, err);
    if (rc == 0)
        rc = put_joined(&v, "MAIL_TYPE", &res->mail_type, true, err);
    if (rc == 0)
        rc = lf_tmpl_file(script, &s->script, "slurm/job.sh.in", req->project, s->site, &v, err);
    lf_tmpl_values_fini(&v);
    return rc;
}

/* ---- submission ---- */

/* '%' begins a pattern in names of logs, "%%" is one. */
static int add_log(lf_texts *argv, const lf_submit_req *req, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_adds(&b, "--output=");
    for (const char *c = req->stage_dir; *c != '\0'; c++)
        lf_buf_adds(&b, *c == '%' ? "%%" : (char[]){*c, '\0'});
    lf_buf_addf(&b, "/boot.%d.log", req->attempt);
    int rc = lf_texts_add(argv, b.data, err);
    lf_buf_fini(&b);
    return rc;
}

static int add_dependency(lf_texts *argv, const lf_submit_req *req, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_submit_dependency(&b, "--dependency=", req);
    int rc = lf_buf_check(&b, err);
    if (rc == 0 && b.len > 0)
        rc = lf_texts_add(argv, b.data, err);
    if (rc == 0 && b.len > 0)
        rc = lf_texts_add(argv, "--kill-on-invalid-dep=yes", err);
    lf_buf_fini(&b);
    return rc;
}

static int slurm_command(void *self, const lf_submit_req *req, const char *script, lf_texts *argv,
                         lf_err *err)
{
    (void)self;
    (void)script;
    char name[256], text[320], comment[128], dir[PATH_MAX + 16];
    lf_submit_job_name(name, sizeof name, req);
    snprintf(text, sizeof text, "--job-name=%s", name);
    snprintf(comment, sizeof comment, "--comment=loong-flow:%s", strrchr(name, '-') + 1);
    snprintf(dir, sizeof dir, "--chdir=%s", req->stage_dir);
    const char *const words[] = {"sbatch",
                                 "--parsable",
                                 "--propagate=NONE",
                                 "--export=NONE",
                                 req->n_links > 1 ? "--no-requeue" : "--requeue",
                                 "--open-mode=append",
                                 text,
                                 comment,
                                 dir};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof words / sizeof words[0]; i++)
        rc = lf_texts_add(argv, words[i], err);
    if (rc == 0)
        rc = add_log(argv, req, err);
    if (rc == 0)
        rc = add_dependency(argv, req, err);
    if (rc == 0)
        rc = lf_texts_add(argv, req->script, err);
    if (rc == 0)
        rc = lf_submit_wrapper(argv, req, err);
    return rc;
}

static int name_job(struct lf_job_rec *job, const char *id, const char *cluster, lf_err *err)
{
    job->id = lf_strdup(id, err);
    job->cluster = cluster[0] != '\0' ? lf_strdup(cluster, err) : NULL;
    return job->id == NULL || (cluster[0] != '\0' && job->cluster == NULL) ? LF_ENOMEM : 0;
}

static int slurm_submit(void *self, const lf_submit_req *req, const char *script,
                        struct lf_job_rec *job, lf_err *err)
{
    const struct slurm *s = self;
    char id[64], cluster[64], said[400];
    lf_texts argv = {.n = 0};
    lf_sched_out o;
    int rc = slurm_command(self, req, script, &argv, err);
    if (rc == 0)
        rc = lf_sched_run(&o, &argv, s->site, 0, err);
    lf_texts_fini(&argv);
    if (rc < 0)
        return rc;
    lf_sched_said(said, sizeof said, &o);
    if (o.missing)
        rc = lf_fail(err, LF_ENOENT, "there is no sbatch on PATH");
    else if (o.timed_out)
        rc = lf_fail(err, LF_ECOMM, "sbatch did not answer in time");
    else if (o.exit == 0 && lf_slurm_parse_id(id, sizeof id, cluster, sizeof cluster, o.out.data))
        rc = name_job(job, id, cluster, err);
    else if (o.exit == 0)
        rc = lf_fail(err, LF_ECOMM, "sbatch printed no job id: %s", said);
    else if (lf_slurm_no_cluster(said))
        rc = lf_fail(err, LF_ENOENT, "sbatch knows of no cluster: %s", said);
    else
        rc = lf_fail(err, lf_slurm_refusal(said), "sbatch: %s", said);
    lf_sched_out_fini(&o);
    return rc;
}

/* ---- looking ---- */

/* Did a query answer? Otherwise the failure, worded. */
static int answered(const lf_sched_out *o, const char *name, lf_err *err)
{
    char said[400];
    if (o->missing)
        return lf_fail(err, LF_ECOMM, "there is no %s on PATH", name);
    if (o->timed_out)
        return lf_fail(err, LF_ECOMM, "%s did not answer in time", name);
    if (o->exit != 0)
        return lf_fail(err, LF_ECOMM, "%s: %s", name, lf_sched_said(said, sizeof said, o));
    if (o->cut)
        return lf_fail(err, LF_ECOMM, "%s printed too much", name);
    return 0;
}

static int slurm_list(void *self, lf_sched_jobs *jobs, lf_err *err)
{
    const struct slurm *s = self;
    char uid[32];
    const struct passwd *pw = getpwuid(geteuid());
    snprintf(uid, sizeof uid, "%u", (unsigned)geteuid());
    lf_sched_out o;
    double limit = (double)s->site->timeout_s.v / 4;
    int rc =
        lf_sched_runv(&o, s->site, limit, err, "squeue", "--noheader", "--states=all", "--user",
                      pw != NULL ? pw->pw_name : uid, "--format", LF_SQUEUE_FORMAT, (char *)NULL);
    if (rc < 0)
        return rc;
    rc = answered(&o, "squeue", err);
    if (rc == 0)
        rc = lf_slurm_parse_squeue(jobs, o.out.data, err);
    lf_sched_out_fini(&o);
    return rc;
}

static int sacct_chunk(struct slurm *s, const char *ids, double since, const lf_wanted_list *wanted,
                       lf_sched_jobs *jobs, lf_err *err)
{
    char day[32];
    time_t t = (time_t)(since > 86400 ? since - 3600 : 0);
    struct tm tm;
    localtime_r(&t, &tm);
    strftime(day, sizeof day, "%Y-%m-%d", &tm);
    lf_sched_out o;
    int rc = lf_sched_runv(&o, s->site, 0, err, "sacct", "--allocations", "--parsable2",
                           "--noheader", "--noconvert", "--starttime", day, "--jobs", ids,
                           "--format", LF_SACCT_FORMAT, (char *)NULL);
    if (rc < 0)
        return rc;
    if (o.missing || lf_slurm_no_accounting(o.err.data)) {
        s->no_sacct = true;
        rc = lf_fail(err, LF_ENOTSUP, "no accounting");
    } else {
        rc = answered(&o, "sacct", err);
    }
    if (rc == 0)
        rc = lf_slurm_parse_sacct(jobs, o.out.data, wanted, err);
    lf_sched_out_fini(&o);
    return rc;
}

static int by_sacct(struct slurm *s, const lf_wanted_list *ids, lf_sched_jobs *jobs, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ids->n;) {
        lf_buf b;
        lf_wanted_list chunk = {.v = &ids->v[i]}; /* lent */
        lf_buf_init(&b);
        double since = 1e18;
        for (; chunk.n < IDS_AT_ONCE && i < ids->n; chunk.n++, i++) {
            const lf_wanted *one = &ids->v[i];
            lf_buf_addf(&b, "%s%s", chunk.n > 0 ? "," : "", one->id);
            since = one->t < since ? one->t : since;
        }
        rc = lf_buf_check(&b, err);
        if (rc == 0)
            rc = sacct_chunk(s, b.data, since, &chunk, jobs, err);
        lf_buf_fini(&b);
    }
    return rc;
}

/* Without accounting: what slurmctld still remembers, one by one. */
static int by_scontrol(const struct slurm *s, const lf_wanted_list *ids, lf_sched_jobs *jobs,
                       lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ids->n && i < SHOW_AT_ONCE; i++) {
        lf_sched_out o;
        const char *id = ids->v[i].id;
        rc = lf_sched_runv(&o, s->site, 0, err, "scontrol", "--oneliner", "show", "job", id,
                           (char *)NULL);
        if (rc < 0)
            return rc;
        if (!o.missing && !o.timed_out && o.exit != 0 && lf_slurm_unknown_id(o.err.data))
            ; /* forgotten */
        else if ((rc = answered(&o, "scontrol", err)) == 0)
            rc = lf_slurm_parse_scontrol(jobs, o.out.data, ids, err);
        lf_sched_out_fini(&o);
    }
    return rc;
}

static int slurm_history(void *self, const lf_wanted_list *ids, lf_sched_jobs *jobs, lf_err *err)
{
    struct slurm *s = self;
    lf_err e = LF_ERR_INIT;
    int rc = s->no_sacct ? LF_ENOTSUP : by_sacct(s, ids, jobs, &e);
    if (rc == LF_ENOTSUP || rc == LF_ECOMM) {
        bool silent = rc == LF_ECOMM;
        rc = by_scontrol(s, ids, jobs, err);
        if (rc == 0 && silent &&
            jobs->n == 0) /* the daemon that knows is away: that is no answer */
            rc = lf_fail(err, LF_ECOMM, "%s", e.text);
    } else if (rc < 0) {
        rc = lf_fail(err, rc, "%s", e.text);
    }
    return rc;
}

/* ---- ending ---- */

static int scancel(const struct slurm *s, const lf_texts *ids, size_t from, bool force, lf_err *err)
{
    lf_texts argv = {.n = 0};
    lf_sched_out o;
    int rc = lf_texts_add(&argv, "scancel", err);
    if (rc == 0 && !force)
        rc = lf_texts_add(&argv, "--batch", err);
    if (rc == 0 && !force)
        rc = lf_texts_add(&argv, "--signal=USR2", err);
    for (size_t i = from; rc == 0 && i < from + IDS_AT_ONCE && i < ids->n; i++)
        rc = lf_texts_add(&argv, ids->v[i], err);
    if (rc == 0)
        rc = lf_sched_run(&o, &argv, s->site, 0, err);
    lf_texts_fini(&argv);
    if (rc < 0)
        return rc;
    /* Non-zero also for a job that is gone; the caller looks whether they are. */
    char said[400];
    if (o.missing || o.timed_out ||
        (o.exit != 0 && lf_slurm_refusal(lf_sched_said(said, sizeof said, &o)) == LF_ECOMM))
        rc = lf_fail(err, LF_ECOMM, "scancel: %s",
                     o.timed_out ? "no answer" : lf_sched_said(said, sizeof said, &o));
    lf_sched_out_fini(&o);
    return rc;
}

static int slurm_cancel(void *self, const lf_texts *ids, bool force, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ids->n; i += IDS_AT_ONCE)
        rc = scancel(self, ids, i, force, err);
    return rc;
}

const lf_submitter lf_submitter_slurm = {.name = "slurm",
                                         .can = LF_CAN_BATCH | LF_CAN_DEPEND | LF_CAN_REQUEUE,
                                         .open = slurm_open,
                                         .close = slurm_close,
                                         .render = slurm_render,
                                         .command = slurm_command,
                                         .submit = slurm_submit,
                                         .list = slurm_list,
                                         .history = slurm_history,
                                         .cancel = slurm_cancel};
