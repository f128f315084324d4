/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps 3 to 7 of a batch command: everything that is written or sent.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/sys.h"
#include "flow/record/event.h"
#include "flow/record/record.h"
#include "flow/run/par.h"
#include "flow/sched/attempt.h"
#include "flow/sched/batch_priv.h"

/* ---- 3: what is wanted ---- */

static int write_want(lf_batch_work *w, lf_err *err)
{
    char path[PATH_MAX];
    lf_texts names = {.given = true};
    int rc = lf_path_set(path, err, "%s/" LF_RUN_WANT, w->run->dir);
    for (size_t i = 0; rc == 0 && i < w->view.n; i++)
        if (w->selected[i])
            rc = lf_texts_add(&names, lf_batch_name(w, i), err);
    if (rc == 0)
        rc = lf_want_replace(path, &names, err);
    lf_texts_fini(&names);
    return rc;
}

/* ---- 4: attempts ---- */

static int write_attempt(void *work, size_t i, lf_err *err)
{
    lf_batch_work *w = work;
    lf_lane *l = &w->lanes[i];
    if (l->act != LF_LANE_SUBMIT)
        return 0;
    lf_stage_view *s = &w->view.stages[i];
    lf_attempt_args a = {.submitter = w->b->submitter,
                         .run = w->run,
                         .view = s,
                         .resources = &l->resources,
                         .accepted = w->b->accepted,
                         .script_sha256 = l->sha,
                         .behind = l->follows ? lf_batch_name(w, l->behind) : NULL,
                         .fresh = w->b->fresh,
                         .self = &w->me};
    int rc = 0;
    if (l->reuse) {
        l->attempt = (int)s->n_attempts;
        snprintf(l->token, sizeof l->token, "%s", lf_attempt_newest(s)->token);
    } else {
        rc = lf_attempt_publish(&l->attempt, l->token, &a, err);
    }
    return rc == 0 ? lf_attempt_event(&a, l->attempt, l->token, NULL, err) : rc;
}

/* ---- 6: jobs ---- */

/* What the scheduler said is kept for status, as the command that heard it is over when somebody
 * asks. It is told for people only and may be written again, so where it cannot be written nothing
 * else changes. needs: the stage whose fate it shares; NULL: the scheduler's own words. */
static void keep_refusal(const lf_batch_work *w, size_t i, const char *needs, const char *words,
                         bool for_now)
{
    const struct lf_refused_rec r = {.t = lf_wall_s(),
                                     .needs = needs,
                                     .words = needs == NULL ? words : NULL,
                                     .for_now = for_now};
    lf_refused_rec_replace(w->view.stages[i].dir, w->lanes[i].attempt, &r, NULL);
}

static void forget_refusal(const lf_batch_work *w, size_t i)
{
    char path[PATH_MAX];
    if (lf_path_set(path, NULL, "%s/refused.%d.json", w->view.stages[i].dir, w->lanes[i].attempt) ==
        0)
        unlink(path);
}

static int publish_script(lf_batch_work *w, size_t i, char path[PATH_MAX], lf_err *err)
{
    lf_lane *l = &w->lanes[i];
    lf_err e = LF_ERR_INIT;
    int rc = lf_path_set(path, err, "%s/script.%d", w->view.stages[i].dir, l->attempt);
    if (rc == 0 && (rc = lf_io_publish(path, l->script.data, l->script.len, 0640, &e)) < 0)
        rc = rc == LF_EEXIST ? 0 : lf_fail(err, rc, "%s", e.text);
    return rc;
}

static const lf_sched_job *found_link(const lf_lane *l, int link)
{
    if (l->act != LF_LANE_ADOPT) /* they are an earlier attempt's */
        return NULL;
    for (size_t k = 0; k < l->n_found; k++)
        if (l->found[k]->link == link)
            return l->found[k];
    return NULL;
}

/* All links of an attempt, into job->ids; those that exist already are taken. job: has what its
 * first link waits for. */
static int send_links(lf_batch_work *w, size_t i, const char *script_path, struct lf_job_rec *job,
                      lf_err *err)
{
    lf_lane *l = &w->lanes[i];
    lf_stage_view *s = &w->view.stages[i];
    int rc = 0;
    for (int k = 1; rc == 0 && k <= l->n_links; k++) {
        const lf_sched_job *e = found_link(l, k);
        struct lf_job_rec *sent = lf_job_rec_new(err);
        bool was_there = e != NULL;
        lf_submit_req req = {.run = w->run,
                             .stage = s->plan,
                             .resources = &l->resources,
                             .attempt = l->attempt,
                             .token = l->token,
                             .project = w->b->project->root,
                             .stage_dir = s->dir,
                             .script = script_path,
                             .link = k,
                             .n_links = l->n_links,
                             .prev = k > 1 ? job->ids.v[k - 2] : NULL,
                             .after = &job->after,
                             .behind = &job->behind};
        req.held = k == 1 && job->after.n == 0 && job->behind.n == 0 &&
                   (w->b->submitter->can & LF_CAN_HOLD) != 0;
        if (sent == NULL)
            rc = LF_ENOMEM;
        else if (e != NULL)
            rc = lf_batch_set(&sent->id, e->id, err);
        else
            rc = lf_batch_send(w, &req, l->script.data, sent, &was_there, err);
        job->adopted = job->adopted > 0 || was_there;
        if (rc == 0)
            rc = lf_texts_add(&job->ids, sent->id, err);
        if (rc == 0 && req.held)
            rc = lf_texts_add(&w->held, sent->id, err);
        if (rc == 0 && job->cluster == NULL)
            rc = lf_batch_set(&job->cluster, sent->cluster, err);
        lf_job_rec_free(sent);
    }
    return rc;
}

static bool is_cancelled(const lf_batch_work *w, size_t i)
{
    char path[PATH_MAX];
    return lf_path_set(path, NULL, "%s/cancel.%d", w->view.stages[i].dir, w->lanes[i].attempt) ==
               0 &&
           lf_io_exists(path);
}

static lf_origin origin(const lf_batch_work *w, size_t i, int attempt)
{
    return (lf_origin){.dir = w->view.stages[i].dir,
                       .run = w->run->id,
                       .stage = lf_batch_name(w, i),
                       .attempt = attempt};
}

/* The job's record and its events. */
static int write_down(lf_batch_work *w, size_t i, struct lf_job_rec *job, lf_err *err)
{
    const lf_stage_view *s = &w->view.stages[i];
    const lf_lane *l = &w->lanes[i];
    lf_err e = LF_ERR_INIT;
    int rc = lf_batch_set(&job->id, job->ids.v[0], err);
    if (rc == 0)
        rc = lf_batch_set(&job->script_sha256, l->sha, err);
    if (rc == 0 &&
        (rc = lf_attempt_job(job, w->b->submitter, w->run, s, l->attempt, l->token, &e)) < 0)
        rc = lf_fail(err, rc, "%s", e.text);
    if (rc == 0 && job->adopted > 0) {
        const lf_origin from = origin(w, i, l->attempt);
        rc = lf_event_adopt(&from, job, true, err);
    }
    return rc;
}

static int send_stage(lf_batch_work *w, size_t i, lf_err *err)
{
    lf_lane *l = &w->lanes[i];
    char path[PATH_MAX];
    struct lf_job_rec *job = lf_job_rec_new(err);
    int rc = job == NULL ? LF_ENOMEM : lf_batch_after(&job->after, w, i, err);
    if (rc == 0)
        rc = lf_batch_behind(&job->behind, w, i, err);
    if (rc == 0 && is_cancelled(w, i))
        rc = lf_fail(err, LF_EINVAL, "cancelled meanwhile");
    if (rc == 0)
        rc = publish_script(w, i, path, err);
    if (rc == 0 && l->reuse)
        forget_refusal(w, i); /* of an earlier try; only now is there something newer to say */
    lf_err said = LF_ERR_INIT;
    if (rc == 0 && (rc = send_links(w, i, path, job, &said)) < 0) {
        if ((rc == LF_EINVAL || rc == LF_EBUSY) && job->ids.n == 0)
            keep_refusal(w, i, NULL, lf_text_clean(said.text), rc == LF_EBUSY);
        rc = lf_fail(err, rc, "%s", said.text);
    }
    if (rc == 0)
        rc = write_down(w, i, job, err);
    if (rc < 0) {
        lf_job_rec_free(job);
        return rc;
    }
    lf_job_rec_free(l->job);
    l->job = job;
    if (is_cancelled(w, i)) /* while it was sent: whoever cancels may have looked before */
        rc = w->b->submitter->cancel(w->self, &job->ids, true, err);
    return rc;
}

/* The records of jobs that ended before anybody wrote them down. */
static int name_jobs(lf_batch_work *w, size_t i, lf_err *err)
{
    const lf_stage_view *s = &w->view.stages[i];
    const struct lf_attempt_rec *att = lf_attempt_newest(s);
    struct lf_job_rec *job = lf_job_rec_new(err);
    const lf_lane *l = &w->lanes[i];
    int rc = job == NULL ? LF_ENOMEM : 0;
    for (size_t k = 0; rc == 0 && k < l->n_found; k++)
        rc = lf_texts_add(&job->ids, l->found[k]->id, err);
    if (rc == 0)
        rc = lf_batch_set(&job->id, job->ids.v[0], err);
    if (rc == 0)
        rc = lf_batch_set(&job->script_sha256, att->script_sha256, err);
    if (rc == 0) {
        job->adopted = 1;
        rc = lf_attempt_job(job, w->b->submitter, w->run, s, att->attempt, att->token, err);
    }
    const lf_origin from = origin(w, i, att->attempt);
    if (rc == 0)
        rc = lf_event_adopt(&from, job, false, err);
    lf_job_rec_free(job);
    return rc;
}

static void tell_sent(lf_batch_work *w, size_t i)
{
    const lf_lane *l = &w->lanes[i];
    const lf_texts *after = &l->job->after, *behind = &l->job->behind;
    lf_buf b;
    lf_buf_init(&b);
    for (size_t k = 0; k < after->n; k++)
        lf_buf_addf(&b, "%s%s", k > 0 ? ", " : " after ", after->v[k]);
    for (size_t k = 0; k < behind->n; k++)
        lf_buf_addf(&b, "%s%s", k > 0 ? ", " : " behind ", behind->v[k]);
    if (l->n_links > 1)
        lf_buf_addf(&b, ", %d links", l->n_links);
    lf_batch_tell(w, "%s: %s%s as job %s%s%s%s%s", lf_batch_name(w, i),
                  l->act == LF_LANE_ADOPT ? "adopted" : "submitted", l->attempt > 1 ? " again" : "",
                  l->job->id, b.data, l->why[0] != '\0' ? " (" : "", l->why,
                  l->why[0] != '\0' ? ")" : "");
    lf_buf_fini(&b);
}

/* The place of what stage i waits for and that was not submitted, w->view.n: there is nothing
 * such. */
static size_t lost_need(const lf_batch_work *w, size_t i)
{
    const lf_stage_view *s = &w->view.stages[i];
    for (size_t k = 0; k < s->n_deps; k++)
        if (w->lanes[s->deps[k]].act == LF_LANE_BLOCKED &&
            w->view.stages[s->deps[k]].state != LF_STATE_DONE)
            return s->deps[k];
    return w->view.n;
}

static int send_all(lf_batch_work *w, lf_err *err)
{
    for (size_t i = 0; i < w->view.n; i++) {
        lf_lane *l = &w->lanes[i];
        if (l->act == LF_LANE_KEEP && w->selected[i]) {
            w->res.kept++;
            lf_batch_tell(w, "%s: kept, job %s%s%s", lf_batch_name(w, i), l->job->id,
                          l->why[0] != '\0' ? ": " : "", l->why);
        }
        if (l->act != LF_LANE_SUBMIT && l->act != LF_LANE_ADOPT)
            continue;
        lf_err e = LF_ERR_INIT;
        size_t need = lost_need(w, i);
        int rc = w->res.unreachable || need < w->view.n ? LF_EINVAL : send_stage(w, i, &e);
        if (need < w->view.n)
            keep_refusal(w, i, lf_batch_name(w, need), NULL, false);
        if (rc == 0) {
            l->act == LF_LANE_ADOPT ? w->res.adopted++ : w->res.submitted++;
            tell_sent(w, i);
            continue;
        }
        if (rc != LF_EINVAL && rc != LF_ECOMM && rc != LF_EBUSY && rc != LF_EEXIST)
            return lf_fail(err, rc, "stage %s: %s", lf_batch_name(w, i), e.text);
        w->res.failed++;
        lf_batch_note_failure(w, i, e.text);
        w->res.unreachable = w->res.unreachable || rc == LF_ECOMM || rc == LF_EBUSY;
        l->act = LF_LANE_BLOCKED;
        lf_batch_tell(w, "%s: not submitted%s%s", lf_batch_name(w, i),
                      e.text[0] != '\0' ? ": " : ", what it needs was not", e.text);
    }
    return 0;
}

/* ---- 5, 7 ---- */

static int end_orphans(lf_batch_work *w, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < w->view.n; i++)
        if (w->lanes[i].act == LF_LANE_SUBMIT && w->lanes[i].old_jobs &&
            w->view.stages[i].job != NULL) {
            const lf_texts *ids = &w->view.stages[i].job->ids;
            for (size_t k = ids->n; rc == 0 && k-- > 0;)
                rc = lf_texts_add(&w->orphans, ids->v[k], err);
        }
    if (rc < 0 || w->orphans.n == 0)
        return rc;
    lf_err e = LF_ERR_INIT;
    lf_batch_tell(w, "ending %zu job%s of attempts that were given up", w->orphans.n,
                  w->orphans.n == 1 ? "" : "s");
    rc = w->b->submitter->cancel(w->self, &w->orphans, true, &e);
    if (rc == LF_ECOMM) {
        lf_batch_tell(w, "  %s; the next command tries again", e.text);
        return 0; /* they cannot publish, and they are found again */
    }
    return rc < 0 ? lf_fail(err, rc, "%s", e.text) : 0;
}

/* Jobs that an earlier command held and did not come to let go. */
static int collect_held(lf_batch_work *w, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < w->view.n; i++) {
        if (w->lanes[i].act != LF_LANE_KEEP)
            continue;
        const struct lf_job_rec *job = w->lanes[i].job;
        const lf_sched_job *e = job->ids.n > 0 ? lf_queue_find(&w->queue, job->ids.v[0]) : NULL;
        if (e != NULL && e->hold != NULL && strcmp(e->hold, "user") == 0)
            rc = lf_texts_add(&w->held, job->ids.v[0], err);
    }
    return rc;
}

static int release(lf_batch_work *w, lf_err *err)
{
    if ((w->b->submitter->can & LF_CAN_HOLD) == 0)
        return 0;
    int rc = w->looked ? collect_held(w, err) : 0;
    if (rc < 0 || w->held.n == 0)
        return rc;
    lf_err e = LF_ERR_INIT;
    rc = w->b->submitter->release(w->self, &w->held, &e);
    if (rc == LF_ECOMM) {
        w->res.unreachable = true;
        w->res.failed++;
        lf_batch_tell(w, "the first jobs are still held: %s; the next command lets them go",
                      e.text);
        return 0;
    }
    return rc < 0 ? lf_fail(err, rc, "%s", e.text) : 0;
}

/* ---- all of it ---- */

int lf_batch_act(lf_batch_work *w, lf_err *err)
{
    int rc = lf_proc_self(&w->me, err);
    if (rc == 0 && !w->b->automatic)
        rc = write_want(w, err);
    for (size_t i = 0; rc == 0 && i < w->view.n; i++)
        if (w->lanes[i].unnamed && w->lanes[i].act != LF_LANE_ADOPT)
            rc = name_jobs(w, i, err);
    if (rc == 0)
        rc = lf_par_each(w->view.n, write_attempt, w, err);
    if (rc == 0)
        rc = end_orphans(w, err);
    if (rc == 0)
        rc = send_all(w, err);
    if (rc == 0)
        rc = release(w, err);
    return rc;
}
