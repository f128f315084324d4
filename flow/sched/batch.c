/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a batch command, in the order that batch.h gives.
 */
#include "config.h"

#include "flow/sched/batch.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/lock.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/record/record.h"
#include "flow/run/rung.h"
#include "flow/run/sync.h"
#include "flow/sched/batch_priv.h"
#include "flow/sched/drive.h"

void lf_batch_tell(const lf_batch_work *w, const char *fmt, ...)
{
    if (w->b->say == NULL)
        return;
    char text[1400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    w->b->say(w->b->user, text);
}

const char *lf_batch_name(const lf_batch_work *w, size_t i)
{
    return w->view.stages[i].plan->name;
}

void lf_batch_note_failure(lf_batch_work *w, size_t i, const char *text)
{
    if (w->res.why[0] == '\0' && text[0] != '\0')
        snprintf(w->res.why, sizeof w->res.why, "stage %s: %.500s", lf_batch_name(w, i), text);
}

int lf_batch_set(const char **out, const char *text, lf_err *err)
{
    char *copy = text != NULL ? lf_strdup(text, err) : NULL;
    if (text != NULL && copy == NULL)
        return LF_ENOMEM;
    free((void *)(uintptr_t)*out);
    *out = copy;
    return 0;
}

/* ---- 1: look ---- */

static bool has_attempts(const lf_batch_work *w)
{
    for (size_t i = 0; i < w->view.n; i++)
        if (w->view.stages[i].n_attempts > 0)
            return true;
    return false;
}

/* A request that was sent just before the last command was killed may still be on its way. */
static double youngest_open(const lf_batch_work *w)
{
    double t = 0;
    for (size_t i = 0; i < w->view.n; i++) {
        const lf_stage_view *s = &w->view.stages[i];
        const struct lf_attempt_rec *att = lf_attempt_newest(s);
        struct lf_job_rec *job =
            s->n_attempts > 0 ? lf_sched_job_record(s, (int)s->n_attempts) : NULL;
        if (att != NULL && job == NULL && att->t > t)
            t = att->t;
        lf_job_rec_free(job);
    }
    return t;
}

static int look(lf_batch_work *w, bool now, lf_err *err)
{
    if (!has_attempts(w))
        return 0;
    double settle = (double)w->run->plan->site.settle_s.v;
    double age = lf_wall_s() - youngest_open(w);
    if (age >= 0 && age < settle)
        lf_batch_pause(settle - age);
    int rc = lf_sched_look(&w->queue, &w->view, w->b->submitter, w->self, now, err);
    if (rc < 0)
        return rc;
    w->looked = true;
    if (!w->queue.reached)
        return lf_fail(err, LF_ECOMM, "the scheduler does not answer: %s",
                       w->queue.said[0] != '\0' ? w->queue.said : "it was not asked yet");
    return lf_sched_apply(&w->view, w->b->submitter, &w->queue, err);
}

bool lf_batch_untidy(const lf_run_view *v)
{
    for (size_t i = 0; i < v->n; i++) {
        const lf_stage_view *s = &v->stages[i];
        int n = (int)s->n_attempts;
        char path[PATH_MAX];
        struct lf_job_rec *job = n > 0 ? lf_sched_job_record(s, n) : NULL;
        bool sent =
            n > 0 && lf_path_set(path, NULL, "%s/script.%d", s->dir, n) == 0 && lf_io_exists(path);
        bool untidy = sent && job == NULL;
        lf_job_rec_free(job);
        if (untidy)
            return true;
    }
    return false;
}

/* Ends that nobody else can write down any more. */
static int repair(lf_batch_work *w, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < w->view.n; i++) {
        lf_stage_view *s = &w->view.stages[i];
        size_t open = 0;
        for (size_t k = 0; k < s->n_incs; k++)
            open += s->incs[k].end == NULL;
        if (open == 0 || s->live)
            continue;
        rc = lf_stage_repair(w->run, s, err);
        if (rc == 0)
            rc = lf_view_reload(&w->view, i, err);
    }
    return rc;
}

/* ---- the course ---- */

static bool asked_for(const struct lf_attempt_rec *att, const lf_resources *resources)
{
    return att->resources.given && resources->given &&
           lf_resources_same(&att->resources, resources);
}

/* The attempt may be used again only when it asks for the same thing. */
static void check_reuse(lf_batch_work *w, size_t i)
{
    lf_lane *l = &w->lanes[i];
    const lf_stage_view *s = &w->view.stages[i];
    const struct lf_attempt_rec *att = lf_attempt_newest(s);
    static const lf_texts none;
    const lf_texts *accepted = w->b->accepted != NULL ? w->b->accepted : &none;
    bool same = att != NULL && lf_text_same(att->script_sha256, l->sha) &&
                asked_for(att, &l->resources) && att->fresh == w->b->fresh &&
                att->accepted.given == accepted->given && lf_texts_same(&att->accepted, accepted);
    l->reuse = l->reuse && same;
}

static int prepare(lf_batch_work *w, lf_err *err)
{
    int rc = lf_batch_plan(w, err);
    for (size_t i = 0; rc == 0 && i < w->view.n; i++) {
        lf_lane *l = &w->lanes[i];
        if (l->act == LF_LANE_ADOPT) {
            const lf_stage_view *s = &w->view.stages[i];
            const struct lf_attempt_rec *att = lf_attempt_newest(s);
            l->attempt = (int)s->n_attempts;
            rc = lf_resources_copy(&l->resources, &att->resources, err);
            snprintf(l->token, sizeof l->token, "%s", att->token);
        }
        if (rc == 0 && (l->act == LF_LANE_SUBMIT || l->act == LF_LANE_ADOPT))
            rc = lf_batch_render(w, i, err);
        if (rc == 0)
            check_reuse(w, i);
    }
    return rc;
}

static void tell_blocked(lf_batch_work *w)
{
    for (size_t i = 0; i < w->view.n; i++)
        if (w->selected[i] && w->lanes[i].act == LF_LANE_BLOCKED && w->lanes[i].why[0] != '\0') {
            lf_batch_tell(w, "%s: not submitted: %s", lf_batch_name(w, i), w->lanes[i].why);
            if (!w->b->automatic)
                lf_batch_note_failure(w, i, w->lanes[i].why);
        }
    for (size_t i = 0; i < w->view.n && !w->b->automatic; i++)
        w->res.failed += w->selected[i] && w->lanes[i].act == LF_LANE_BLOCKED;
}

void lf_batch_clear(lf_batch_work *w)
{
    for (size_t i = 0; w->lanes != NULL && i < w->view.n; i++) {
        lf_lane *l = &w->lanes[i];
        lf_resources_fini(&l->resources);
        lf_job_rec_free(l->job);
        free(l->found);
        lf_buf_fini(&l->script);
        memset(l, 0, sizeof *l);
        lf_buf_init(&l->script);
    }
}

/* Rungs of a sweep that can be decided. */
static int climb(lf_batch_work *w, lf_err *err)
{
    int rc = 1;
    while (rc == 1) {
        lf_rung *r = NULL;
        rc = lf_rung_decide(&r, &w->view, err);
        if (r != NULL)
            lf_batch_tell(w, "rung %d (step %lld): %zu children were compared", r->number,
                          (long long)r->step, r->rows.n);
        lf_rung_free(r);
        if (rc == 1 && lf_rung_apply(&w->view, err) < 0)
            return err->rc;
    }
    return rc;
}

/* What is there and what is to be done. now: the queue is asked, however fresh what is known of
 * it. */
static int look_and_plan(lf_batch_work *w, bool now, lf_err *err)
{
    int rc = look(w, now, err);
    if (rc == 0)
        rc = repair(w, err);
    if (rc == 0)
        rc = climb(w, err);
    return rc == 0 ? prepare(w, err) : rc;
}

static bool plans_to_act(const lf_batch_work *w)
{
    for (size_t i = 0; i < w->view.n; i++)
        if (w->lanes[i].act == LF_LANE_SUBMIT || w->lanes[i].act == LF_LANE_ADOPT ||
            w->lanes[i].unnamed)
            return true;
    return w->orphans.n > 0;
}

/* tick goes by what any process saw within the last minute; only before it acts it looks itself. */
static int look_again(lf_batch_work *w, lf_err *err)
{
    lf_batch_clear(w);
    lf_texts_fini(&w->orphans);
    if (w->looked)
        lf_queue_fini(&w->queue);
    w->looked = false;
    lf_view_fini(&w->view);
    int rc = lf_view_load_copy(&w->view, w->run, err);
    return rc == 0 ? look_and_plan(w, true, err) : rc;
}

static int run_locked(lf_batch_work *w, lf_err *err)
{
    int rc = lf_view_load_copy(&w->view, w->run, err);
    if (rc == 0) {
        w->lanes = lf_calloc(w->view.n + 1, sizeof *w->lanes, err);
        w->selected = lf_calloc(w->view.n + 1, sizeof *w->selected, err);
        rc = w->lanes == NULL || w->selected == NULL ? LF_ENOMEM : 0;
    }
    lf_batch_clear(w);
    if (rc == 0)
        rc = lf_select_stages(w->selected, &w->view, &w->b->select, err);
    if (rc == 0)
        rc = look_and_plan(w, !w->b->automatic, err);
    if (rc == 0 && w->b->automatic && plans_to_act(w))
        rc = look_again(w, err);
    if (rc == 0) {
        tell_blocked(w);
        rc = lf_batch_act(w, err);
    }
    return rc;
}

void lf_batch_fini(lf_batch_work *w)
{
    lf_batch_clear(w);
    free(w->lanes);
    free(w->selected);
    lf_texts_fini(&w->orphans);
    lf_texts_fini(&w->held);
    if (w->looked)
        lf_queue_fini(&w->queue);
}

int lf_batch_run(const lf_batch *b, const lf_run *run, lf_batch_result *res, lf_err *err)
{
    lf_batch_work w;
    char path[PATH_MAX];
    memset(&w, 0, sizeof w);
    w.b = b;
    w.run = run;
    int rc = lf_run_check_owner(run, err);
    if (rc == 0)
        rc = lf_path_set(path, err, "%s/driver.lock", run->dir);
    if (rc < 0)
        return rc;
    lf_lock_opts lo = {.purpose = b->automatic ? "loong-flow tick" : "loong-flow submit",
                       .wait_s = b->automatic ? 0 : 30,
                       .ttl_s = 0};
    lf_lock *lock = lf_lock_acquire(path, &lo, err);
    if (lock == NULL)
        return lf_err_prefix(err, "run %s is in another loong-flow's hands", run->id);
    char cancel[PATH_MAX];
    if (!b->automatic && lf_path_set(cancel, NULL, "%s/" LF_RUN_CANCEL, run->dir) == 0)
        unlink(cancel); /* it was for those before us */
    lf_sched_patience(&run->plan->site);
    rc = b->submitter->open(&w.self, &run->plan->site, err);
    if (rc == 0) {
        rc = run_locked(&w, err);
        b->submitter->close(w.self);
    }
    lf_sched_patience(NULL);
    *res = w.res;
    lf_batch_fini(&w);
    lf_view_fini(&w.view);
    lf_lock_release(lock);
    lf_err e = LF_ERR_INIT;
    if (lf_sync(b->project, run->data, run->id, &e) < 0)
        lf_batch_tell(&w, "note: the ledger was not updated: %s", e.text);
    return rc;
}
