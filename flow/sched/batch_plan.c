/* SPDX-License-Identifier: Apache-2.0
 *
 * What a batch command does with each stage, decided from the run's directory and the queue,
 * without changing either.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/record/record.h"
#include "flow/run/policy.h"
#include "flow/sched/attempt.h"
#include "flow/sched/batch_priv.h"
#include "flow/sched/chain.h"

static bool is_current(const lf_stage_view *s)
{
    const struct lf_attempt_rec *att = lf_attempt_newest(s);
    return att != NULL && lf_text_same(att->spec_id, s->plan->spec_id);
}

static bool of_this(const lf_batch_work *w, const struct lf_attempt_rec *attempt)
{
    return attempt != NULL && lf_text_same(attempt->backend, w->b->submitter->name);
}

static const char *token_of(const lf_stage_view *s)
{
    const struct lf_attempt_rec *att = lf_attempt_newest(s);
    return att != NULL && att->token != NULL ? att->token : "";
}

static bool file_of(const lf_stage_view *s, const char *kind, int n)
{
    char path[PATH_MAX];
    return lf_path_set(path, NULL, "%s/%s.%d", s->dir, kind, n) == 0 && lf_io_exists(path);
}

static bool ended(const lf_sched_job *job)
{
    return lf_text_same(job->what, "ended");
}

/* ---- jobs ---- */

static int names_of(lf_names *out, const lf_texts *ids, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ids->n; i++)
        rc = lf_names_put(out, ids->v[i], "", i, err);
    return rc;
}

/* Of the last of its links, which those behind it wait for; NULL: it has none. */
static const char *last_id(const struct lf_job_rec *job)
{
    return job != NULL && job->ids.n > 0 ? job->ids.v[job->ids.n - 1] : NULL;
}

int lf_batch_after(lf_texts *out, const lf_batch_work *w, size_t i, lf_err *err)
{
    const lf_stage_view *s = &w->view.stages[i];
    int rc = 0;
    *out = (lf_texts){.given = true};
    for (size_t k = 0; rc == 0 && k < s->n_deps; k++) {
        size_t d = s->deps[k];
        if (w->view.stages[d].state == LF_STATE_DONE)
            continue;
        const char *id = last_id(w->lanes[d].job);
        rc = id == NULL ? lf_fail(err, LF_EINVAL, "stage %s needs %s, which has no job",
                                  lf_batch_name(w, i), lf_batch_name(w, d))
                        : lf_texts_add(out, id, err);
    }
    if (rc < 0)
        lf_texts_fini(out);
    return rc;
}

/* A job that waits must wait for the jobs that its upstream stages have now. */
static int waits_for_the_right_ones(bool *yes, const lf_batch_work *w, size_t i,
                                    const struct lf_job_rec *job, lf_err *err)
{
    const lf_stage_view *s = &w->view.stages[i];
    lf_names waits = {NULL, 0, 0};
    int rc = names_of(&waits, &job->after, err);
    *yes = true;
    for (size_t k = 0; rc == 0 && *yes && k < s->n_deps; k++) {
        size_t d = s->deps[k];
        if (w->view.stages[d].state == LF_STATE_DONE)
            continue;
        const lf_lane *l = &w->lanes[d];
        const char *last = l->act == LF_LANE_KEEP ? last_id(l->job) : NULL;
        *yes = l->act == LF_LANE_ADOPT ||
               (l->act == LF_LANE_KEEP && (last == NULL || !job->after.given ||
                                           lf_names_find(&waits, last, "") != LF_NAMES_NONE));
    }
    lf_names_fini(&waits);
    return rc;
}

/* Everything of earlier attempts, and a second job of the newest one's token, runs for nobody. */
static int find_orphans(lf_batch_work *w, size_t i, lf_err *err)
{
    const lf_sched_job *found[LF_JOBS_MOST];
    const lf_stage_view *s = &w->view.stages[i];
    int rc = 0;
    for (size_t n = 1; rc == 0 && n <= s->n_attempts; n++) {
        const struct lf_attempt_rec *att = s->attempts[n - 1];
        if (!of_this(w, att))
            continue;
        bool last = n == s->n_attempts;
        struct lf_job_rec *job = last ? lf_sched_job_record(s, (int)n) : NULL;
        const size_t n_found = lf_queue_by_token(found, &w->queue, att->token);
        for (size_t k = 0; rc == 0 && k < n_found; k++) {
            const lf_sched_job *e = found[k];
            bool extra = last && job != NULL && !lf_texts_has(&job->ids, e->id) &&
                         e->link <= (int)job->ids.n;
            if (!ended(e) && (!last || extra))
                rc = lf_texts_add(&w->orphans, e->id, err);
        }
        lf_job_rec_free(job);
    }
    return rc;
}

/* ---- the decision ---- */

static void decide(lf_lane *l, enum lf_lane_act act, const char *why)
{
    l->act = act;
    snprintf(l->why, sizeof l->why, "%s", why);
}

/* The jobs of the newest attempt that the queue has. */
static int find_of_token(lf_batch_work *w, size_t i, lf_err *err)
{
    const lf_sched_job *found[LF_JOBS_MOST];
    lf_lane *l = &w->lanes[i];
    size_t n = lf_queue_by_token(found, &w->queue, token_of(&w->view.stages[i]));
    l->found = lf_calloc(n + 1, sizeof(lf_sched_job *), err);
    if (l->found == NULL)
        return LF_ENOMEM;
    memcpy(l->found, found, n * sizeof(lf_sched_job *));
    l->n_found = n;
    return 0;
}

/* The newest attempt was written, and perhaps sent, but there is no job record. */
static int cut_short(lf_batch_work *w, size_t i, lf_err *err)
{
    lf_stage_view *s = &w->view.stages[i];
    lf_lane *l = &w->lanes[i];
    int n = (int)s->n_attempts;
    int rc = l->found == NULL ? find_of_token(w, i, err) : 0;
    if (rc < 0)
        return rc;
    bool waits = is_current(s) && !file_of(s, "cancel", n);
    if (l->n_found > 0 && waits) {
        decide(l, LF_LANE_ADOPT, "its submission was cut short");
        return 0;
    }
    bool sent = file_of(s, "script", n);
    l->reuse = !sent && waits && s->n_incs == 0 && lf_attempt_newest(s)->rev == w->run->rev;
    decide(l, LF_LANE_SUBMIT, "");
    l->old_jobs = l->n_found > 0;
    return 0;
}

static int decide_live(lf_batch_work *w, size_t i, lf_err *err)
{
    lf_stage_view *s = &w->view.stages[i];
    lf_lane *l = &w->lanes[i];
    l->job = lf_sched_job_record(s, (int)s->n_attempts);
    bool began = s->state == LF_STATE_RUNNING ||
                 (s->n_incs > 0 && s->incs[s->n_incs - 1].attempt == (int)s->n_attempts);
    bool waits_right = true;
    int rc =
        l->job != NULL && !began ? waits_for_the_right_ones(&waits_right, w, i, l->job, err) : 0;
    if (rc < 0)
        return rc;
    if (l->job == NULL)
        return cut_short(w, i, err);
    if (!is_current(s)) {
        decide(l, LF_LANE_SUBMIT, "its settings or inputs changed");
        l->old_jobs = true;
    } else if (!began && file_of(s, "cancel", (int)s->n_attempts)) {
        decide(l, LF_LANE_SUBMIT, "it was cancelled");
        l->old_jobs = true;
    } else if (!waits_right) {
        decide(l, LF_LANE_SUBMIT, "its job waits for one that is gone");
        l->old_jobs = true;
    } else if (s->job != NULL && s->job->never && !w->b->automatic) {
        decide(l, LF_LANE_SUBMIT, "its job could never start");
        l->old_jobs = true;
    } else {
        decide(l, LF_LANE_KEEP, s->reason);
    }
    return 0;
}

/* tick goes on only where the policy says that no person need look. */
static int may_retry(lf_batch_work *w, size_t i, bool *yes, lf_err *err)
{
    lf_stage_view *s = &w->view.stages[i];
    lf_next next;
    int rc = lf_policy_next(&next, s, err);
    if (rc < 0)
        return rc;
    bool nothing_yet = next.act == LF_POLICY_NONE;
    bool goes_on = nothing_yet ? s->state != LF_STATE_FAILED : next.automatic;
    *yes = !w->b->automatic || (goes_on && s->state != LF_STATE_CANCELLED);
    if (!*yes)
        snprintf(w->lanes[i].why, sizeof w->lanes[i].why, "%s%s%.200s", lf_state_name(s->state),
                 next.why[0] != '\0' ? ": " : "", next.why);
    lf_next_fini(&next);
    return 0;
}

/* Something that it needs and that is neither done nor on its way. */
static bool is_blocked(lf_batch_work *w, size_t i)
{
    const lf_stage_view *s = &w->view.stages[i];
    for (size_t k = 0; k < s->n_deps; k++) {
        size_t d = s->deps[k];
        if (w->view.stages[d].state == LF_STATE_DONE)
            continue;
        enum lf_lane_act act = w->lanes[d].act;
        if (act == LF_LANE_KEEP || act == LF_LANE_ADOPT || act == LF_LANE_SUBMIT)
            continue;
        snprintf(w->lanes[i].why, sizeof w->lanes[i].why, "needs %s, which is %s and %s",
                 lf_batch_name(w, d), lf_state_name(w->view.stages[d].state),
                 w->selected[d] ? "will not run" : "not selected");
        return true;
    }
    return false;
}

/* The command that made its job was killed before it could say so, and the job has ended since: it
 * is written down all the same, so that every job has its record. */
static int find_unnamed(lf_batch_work *w, size_t i, lf_err *err)
{
    const lf_stage_view *s = &w->view.stages[i];
    int n = (int)s->n_attempts;
    struct lf_job_rec *job = lf_sched_job_record(s, n);
    int rc = job == NULL && file_of(s, "script", n) ? find_of_token(w, i, err) : 0;
    w->lanes[i].unnamed = w->lanes[i].n_found > 0;
    lf_job_rec_free(job);
    return rc;
}

static int plan_stage(lf_batch_work *w, size_t i, lf_err *err)
{
    lf_stage_view *s = &w->view.stages[i];
    lf_lane *l = &w->lanes[i];
    bool mine = of_this(w, lf_attempt_newest(s));
    int rc = w->looked ? find_orphans(w, i, err) : 0;
    if (rc == 0 && w->looked && mine && !s->live)
        rc = find_unnamed(w, i, err);
    if (rc < 0)
        return rc;
    if (s->state == LF_STATE_DONE || (s->state == LF_STATE_PURGED && !s->needed))
        return 0;
    if (!w->selected[i]) { /* but it may be on its way for those that are */
        if (mine && s->live && is_current(s) &&
            (l->job = lf_sched_job_record(s, (int)s->n_attempts)) != NULL)
            decide(l, LF_LANE_KEEP, s->reason);
        return 0;
    }
    if (mine && s->live)
        return decide_live(w, i, err);
    if (s->state == LF_STATE_RUNNING || s->state == LF_STATE_UNKNOWN || s->live) {
        decide(l, LF_LANE_BLOCKED,
               s->reason); /* a process of `run`, a job of another scheduler, or nobody knows */
        return 0;
    }
    bool yes = false, never_sent = mine && !file_of(s, "script", (int)s->n_attempts);
    rc = may_retry(w, i, &yes, err);
    if (rc < 0)
        return rc;
    if (!yes && !never_sent) {
        l->act = LF_LANE_BLOCKED;
        return 0;
    }
    decide(l, LF_LANE_SUBMIT, "");
    return never_sent && s->n_incs == 0 ? cut_short(w, i, err) : 0;
}

int lf_batch_plan(lf_batch_work *w, lf_err *err)
{
    int rc = 0;
    lf_view_mark_needed(&w->view, w->selected);
    for (size_t i = 0; rc == 0 && i < w->view.n; i++) {
        rc = plan_stage(w, i, err);
        if (rc == 0 && w->lanes[i].act == LF_LANE_SUBMIT && is_blocked(w, i))
            w->lanes[i].act = LF_LANE_BLOCKED;
    }
    return rc == 0 ? lf_batch_queue_children(w, err) : rc;
}

/* ---- the script ---- */

/* Hosts that the site excludes are excluded for everybody. */
static int add_site_exclude(lf_texts *have, const lf_site *site, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < site->exclude.n; i++)
        if (!lf_texts_has(have, site->exclude.v[i]))
            rc = lf_texts_add(have, site->exclude.v[i], err);
    return rc;
}

static int ask_for(lf_batch_work *w, size_t i, lf_err *err)
{
    lf_stage_view *s = &w->view.stages[i];
    lf_lane *l = &w->lanes[i];
    lf_next next;
    int rc = lf_policy_next(&next, s, err);
    if (rc < 0)
        return rc;
    rc = lf_attempt_resources(&l->resources, s->plan, &next, err);
    if (l->why[0] == '\0' && next.act != LF_POLICY_NONE)
        snprintf(l->why, sizeof l->why, "%s", next.why);
    lf_next_fini(&next);
    return rc == 0 ? add_site_exclude(&l->resources.exclude, &w->run->plan->site, err) : rc;
}

int lf_batch_render(lf_batch_work *w, size_t i, lf_err *err)
{
    lf_stage_view *s = &w->view.stages[i];
    lf_lane *l = &w->lanes[i];
    uint8_t digest[LF_HASH_BYTES];
    int rc = l->resources.given ? 0 : ask_for(w, i, err);
    if (rc < 0)
        return rc;
    l->n_links = lf_chain_count(s->plan, &l->resources, &w->run->plan->site, w->b->submitter->can);
    lf_submit_req req = {.run = w->run,
                         .stage = s->plan,
                         .resources = &l->resources,
                         .attempt = (int)s->n_attempts + 1,
                         .token = "",
                         .project = w->b->project->root,
                         .stage_dir = s->dir,
                         .link = 1,
                         .n_links = l->n_links};
    lf_buf_clear(&l->script);
    rc = w->b->submitter->render(w->self, &req, &l->script, err);
    if (rc < 0)
        return lf_err_prefix(err, "stage %s", lf_batch_name(w, i));
    rc = lf_hash_buf(digest, l->script.data, l->script.len, err);
    if (rc == 0)
        lf_hash_hex(l->sha, digest);
    return rc;
}
