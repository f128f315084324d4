/* SPDX-License-Identifier: Apache-2.0
 *
 * Ending the jobs of a run, and waiting for their end. Both look at the queue until they see it.
 */
#include "config.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/record/record.h"
#include "flow/run/rung.h"
#include "flow/sched/batch_priv.h"
#include "flow/sched/drive.h"
#include "flow/sched/talk.h"

/* ---- ending ---- */

struct ending {
    const lf_batch_cancel *c;
    const lf_run *run;
    void *self;
    lf_texts waiting, running; /* ids, later stages first */
    double grace_s;            /* the longest of those that run */
    bool unreachable;
};

/* Every job of every attempt of a selected stage, also of attempts that were given up. */
static int sort_jobs(struct ending *e, const lf_stage_view *s, const lf_queue *q, lf_err *err)
{
    const lf_sched_job *found[LF_JOBS_MOST];
    int rc = 0;
    for (size_t n = s->n_attempts; rc == 0 && n-- > 0;) {
        const struct lf_attempt_rec *att = s->attempts[n];
        size_t k = lf_queue_by_token(found, q, att != NULL ? att->token : NULL);
        while (rc == 0 && k-- > 0) {
            const char *what = found[k]->what != NULL ? found[k]->what : "";
            if (strcmp(what, "ended") == 0 || found[k]->listed < q->t - 0.001)
                continue;
            bool runs = strcmp(what, "running") == 0;
            rc = lf_texts_add(runs ? &e->running : &e->waiting, found[k]->id, err);
            double grace = (double)s->plan->grace_s.v;
            if (runs && grace > e->grace_s)
                e->grace_s = grace;
        }
    }
    return rc;
}

static int look(struct ending *e, lf_err *err)
{
    lf_run_view v;
    lf_queue q;
    int rc = lf_view_load_copy(&v, e->run, err);
    if (rc < 0)
        return rc;
    lf_texts_fini(&e->waiting);
    lf_texts_fini(&e->running);
    rc = lf_sched_look(&q, &v, e->c->submitter, e->self, true, err);
    if (rc == 0) {
        e->unreachable = !q.reached;
        if (!q.reached)
            rc = lf_fail(err, LF_ECOMM, "the scheduler does not answer: %s", q.said);
        for (size_t i = v.n; rc == 0 && i-- > 0;)
            if (e->c->selected[i])
                rc = sort_jobs(e, &v.stages[i], &q, err);
        lf_queue_fini(&q);
    }
    lf_view_fini(&v);
    return rc;
}

static void tell(const struct ending *e, const char *fmt, const lf_texts *ids)
{
    char text[400];
    if (e->c->say == NULL || ids->n == 0)
        return;
    snprintf(text, sizeof text, "%zu job%s %s", ids->n, ids->n == 1 ? "" : "s", fmt);
    e->c->say(e->c->user, text);
}

static int end_them(struct ending *e, lf_err *err)
{
    const lf_submitter *s = e->c->submitter;
    double start = lf_now_s(), pause = 0.5, asked = 0, forced = 0;
    int rc = look(e, err);
    while (rc == 0 && e->waiting.n + e->running.n > 0) {
        /* For this round; between rounds jobs take their time. */
        lf_sched_patience(&e->run->plan->site);
        double now = lf_now_s(), grace = e->c->wait_s > 0 ? e->c->wait_s : e->grace_s;
        if (e->waiting.n > 0 && (rc = s->cancel(e->self, &e->waiting, true, err)) < 0)
            break;
        bool force = e->c->now || (asked > 0 && now - asked > grace);
        if (e->running.n > 0 && force && now - forced > 20) {
            tell(e, "ended by the scheduler", &e->running);
            rc = s->cancel(e->self, &e->running, true, err);
            forced = now;
        } else if (e->running.n > 0 && asked <= 0 && !force) {
            tell(e, "asked to save and end", &e->running);
            rc = s->cancel(e->self, &e->running, false, err);
            asked = now;
        }
        if (rc == 0 && now - start > grace + 120)
            rc = lf_fail(err, LF_EBUSY, "%zu jobs are still there; they were cancelled",
                         e->waiting.n + e->running.n);
        if (rc == 0) {
            lf_batch_pause(pause);
            pause = pause * 1.5 < 10 ? pause * 1.5 : 10;
            rc = look(e, err);
        }
    }
    return rc;
}

int lf_batch_cancel_jobs(const lf_batch_cancel *c, const lf_run *run, lf_err *err)
{
    struct ending e = {.c = c, .run = run};
    int rc = c->submitter->open(&e.self, &run->plan->site, err);
    if (rc == 0) {
        lf_sched_patience(&run->plan->site);
        rc = end_them(&e, err);
        lf_sched_patience(NULL);
        c->submitter->close(e.self);
    }
    lf_texts_fini(&e.waiting);
    lf_texts_fini(&e.running);
    return rc;
}

/* ---- waiting ---- */

static int code_of(lf_run_view *v, const bool *selected)
{
    int code = 0;
    lf_view_mark_needed(v, selected);
    for (size_t i = 0; i < v->n; i++) {
        const lf_stage_view *s = &v->stages[i];
        if (!selected[i] || lf_stage_finished(s))
            continue;
        if (s->state == LF_STATE_FAILED || s->state == LF_STATE_CANCELLED ||
            s->state == LF_STATE_UNKNOWN)
            return 1;
        code = 75;
    }
    return code;
}

static void tell_changes(const lf_batch *b, const lf_run_view *v, int *before)
{
    for (size_t i = 0; i < v->n && b->say != NULL; i++) {
        const lf_stage_view *s = &v->stages[i];
        char text[1200];
        if (before[i] == (int)s->state + 1)
            continue;
        snprintf(text, sizeof text, "%s: %s%s%s", s->plan->name, lf_state_name(s->state),
                 s->reason[0] != '\0' ? ": " : "", s->reason);
        if (s->state == LF_STATE_DONE)
            lf_talk_done(s, text, b->say, b->user);
        else if (before[i] != 0 || s->state != LF_STATE_WAITING)
            b->say(b->user, text);
        before[i] = (int)s->state + 1;
    }
}

struct seen {
    bool left; /* jobs are still to come */
    bool held; /* a child of a sweep waits for the decision of its rung */
    int code;
};

static int look_once(const lf_batch *b, const lf_run *run, int *before, struct seen *seen,
                     lf_err *err)
{
    lf_run_view v;
    int rc = lf_view_load_copy(&v, run, err);
    if (rc < 0)
        return rc;
    bool *selected = lf_calloc(v.n + 1, sizeof *selected, err);
    rc = selected == NULL ? LF_ENOMEM : lf_select_stages(selected, &v, &b->select, err);
    if (rc == 0)
        rc = lf_sched_overlay(&v, false, err);
    if (rc == 0) /* the scheduler may know of ends, which are what a rung waits for */
        rc = lf_rung_apply(&v, err);
    seen->left = seen->held = false;
    for (size_t i = 0; rc == 0 && i < v.n; i++) {
        const lf_stage_view *s = &v.stages[i];
        if (!selected[i] || s->state == LF_STATE_ENDED) /* its scheduler is not asked any more */
            continue;
        seen->left = seen->left || s->live || s->state == LF_STATE_RUNNING;
        seen->held = seen->held || s->held;
    }
    if (rc == 0) {
        tell_changes(b, &v, before);
        if (b->look != NULL)
            b->look(b->user, &v, selected);
        seen->code = code_of(&v, selected);
    }
    free(selected);
    lf_view_fini(&v);
    return rc;
}

static volatile sig_atomic_t interrupted;
static void on_interrupt(int sig)
{
    (void)sig, interrupted = 1;
}

/* Nothing runs, and children wait at a rung: it is decided, and those that go on are submitted, as
 * tick does. *on: something came of it, or somebody else is at it. 1: the run was cancelled. */
static int climb(const lf_batch *b, const lf_run *run, bool *on, lf_err *err)
{
    lf_batch next = *b;
    lf_batch_result r;
    lf_err e = LF_ERR_INIT;
    char cancel[PATH_MAX];
    *on = false;
    int rc = lf_path_set(cancel, err, "%s/" LF_RUN_CANCEL, run->dir);
    if (rc < 0 || lf_io_exists(cancel))
        return rc < 0 ? rc : 1;
    next.automatic = true;
    next.accepted = NULL;
    next.fresh = false; /* what was begun anew goes on */
    rc = lf_batch_run(&next, run, &r, &e);
    if (rc < 0 && rc != LF_EBUSY && rc != LF_ECOMM)
        return lf_fail(err, rc, "%s", e.text);
    *on = rc < 0 || r.submitted + r.adopted + r.kept > 0;
    return 0;
}

static void pause_for(double s)
{
    const struct timespec ts = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&ts, NULL);
}

#define FRUITLESS_MOST 30 /* the queue may be known from a look that is a minute old */

static int follow(const lf_batch *b, const lf_run *run, int *before, struct seen *seen, lf_err *err)
{
    const double poll = (double)run->plan->site.poll_s.v;
    const double pause = poll < 1    ? 0.2
                         : poll > 10 ? 10
                                     : poll; /* records of the run are seen sooner than the queue */
    int rc = look_once(b, run, before, seen, err), fruitless = 0;
    while (rc == 0 && (seen->left || seen->held) && !interrupted) {
        bool on = seen->left;
        if (!on)
            rc = climb(b, run, &on, err);
        fruitless = on ? 0 : fruitless + 1;
        if (fruitless > FRUITLESS_MOST)
            break;
        if (rc == 0)
            pause_for(pause);
        if (rc == 0 && !interrupted)
            rc = look_once(b, run, before, seen, err);
    }
    return rc < 0 ? rc : 0;
}

int lf_batch_wait(const lf_batch *b, const lf_run *run, int *code, lf_err *err)
{
    struct sigaction sa = {.sa_handler = on_interrupt}, old;
    struct seen seen = {.code = *code};
    int *before = lf_calloc(run->plan->stages.n + 1, sizeof *before, err);
    if (before == NULL)
        return LF_ENOMEM;
    interrupted = 0;
    sigaction(SIGINT, &sa, &old);
    int rc = follow(b, run, before, &seen, err);
    if (b->look != NULL)
        b->look(b->user, NULL, NULL);
    sigaction(SIGINT, &old, NULL);
    free(before);
    if (rc == 0)
        *code = interrupted ? 75 : seen.code;
    return rc;
}
