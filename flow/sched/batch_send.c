/* SPDX-License-Identifier: Apache-2.0
 *
 * One job, exactly once. Three answers of a scheduler need care: "not now" is asked again after a
 * pause; no answer may have made a job all the same, so its token is looked for, more than once,
 * because the request may still lie in the controller's socket; a refusal is final, and so is a
 * command that knows of no cluster, which has asked nobody. While there is
 * no answer at all, it is waited for twice the time of one command, not longer: the next command
 * finds what was made. A job that shows up later than all looks is found as a second one of its
 * token by the next command, and does nothing meanwhile, because job.N.json does not name it.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/base/sys.h"
#include "flow/record/record.h"
#include "flow/sched/batch_priv.h"

#define PAUSE_FIRST_S 1.0
#define PAUSE_MOST_S  16.0

void lf_batch_pause(double s)
{
    struct timespec ts = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    while (nanosleep(&ts, &ts) != 0)
        ;
}

/* 1 found, 0 there is none, LF_ECOMM no answer. */
static int look_for(lf_batch_work *w, const lf_submit_req *req, struct lf_job_rec *job, lf_err *err)
{
    lf_sched_jobs list = {0};
    int rc = w->b->submitter->list(w->self, &list, err);
    for (size_t i = 0; rc == 0 && i < list.n; i++) {
        const lf_sched_job *e = &list.v[i];
        if (!lf_text_same(e->token, req->token) || e->link != req->link)
            continue;
        rc = lf_batch_set(&job->id, e->id, err);
        rc = rc == 0 ? 1 : rc;
    }
    lf_sched_jobs_fini(&list);
    return rc;
}

/* After no answer: look until the scheduler has answered twice, `settle` apart, without knowing the
 * token. */
static int settle(lf_batch_work *w, const lf_submit_req *req, double end, struct lf_job_rec *job,
                  lf_err *err)
{
    double gap = (double)w->run->plan->site.settle_s.v, pause = PAUSE_FIRST_S;
    int answers = 0;
    for (;;) {
        lf_err e = LF_ERR_INIT;
        int rc = look_for(w, req, job, &e);
        answers += rc == 0;
        if (rc == 1 || answers == 2)
            return rc;
        if (rc < 0 && rc != LF_ECOMM)
            return lf_fail(err, rc, "%s", e.text);
        if (rc == LF_ECOMM && lf_now_s() + pause > end)
            return lf_fail(err, rc, "%s", e.text);
        lf_batch_pause(rc == 0 ? gap : pause);
        pause = pause * 2 < PAUSE_MOST_S ? pause * 2 : PAUSE_MOST_S;
    }
}

int lf_batch_send(lf_batch_work *w, const lf_submit_req *req, const char *script,
                  struct lf_job_rec *job, bool *adopted, lf_err *err)
{
    const lf_site *site = &w->run->plan->site;
    double wait_s = (double)site->submit_wait_s.v, silent_s = 2 * lf_sched_timeout_s(site);
    double begun = lf_now_s(), pause = PAUSE_FIRST_S;
    *adopted = false;
    for (;;) {
        lf_err e = LF_ERR_INIT;
        int rc = w->b->submitter->submit(w->self, req, script, job, &e);
        if (rc == 0)
            return 0;
        w->res.unreachable = w->res.unreachable || rc == LF_ENOENT;
        if (rc != LF_ECOMM && rc != LF_EBUSY)
            return lf_fail(err, rc == LF_ENOENT ? LF_EINVAL : rc, "%s", e.text);
        lf_batch_tell(w, "  %s; %s", e.text,
                      rc == LF_ECOMM ? "looking whether the job was made" : "trying again");
        double end = begun + (rc == LF_ECOMM && silent_s < wait_s ? silent_s : wait_s);
        if (rc == LF_ECOMM) {
            int found = settle(w, req, end, job, err);
            *adopted = found == 1;
            if (found != 0)
                return found < 0 ? found : 0;
        }
        if (lf_now_s() + pause > end)
            return lf_fail(err, rc, "%s", e.text);
        lf_batch_pause(pause);
        pause = pause * 2 < PAUSE_MOST_S ? pause * 2 : PAUSE_MOST_S;
        if (rc == LF_ECOMM && look_for(w, req, job, NULL) == 1) { /* it was made in the meantime */
            *adopted = true;
            return 0;
        }
    }
}
