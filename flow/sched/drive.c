/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's loop. Each round reads the run's directory afresh; what it decides depends on that
 * and on which stages it has submitted itself (each at most once per drive).
 */
#include "config.h"

#include "flow/sched/drive.h"

#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/lock.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/plan/sweep.h"
#include "flow/record/record.h"
#include "flow/run/classify.h"
#include "flow/run/rung.h"
#include "flow/run/select.h"
#include "flow/run/sync.h"
#include "flow/run/who.h"
#include "flow/sched/attempt.h"
#include "flow/sched/talk.h"

struct lane {
    int tries;              /* submissions of ours, or one adopted */
    struct lf_job_rec *job; /* while it is ours or adopted; NULL otherwise */
    bool ended;             /* in this round */
    double t_submit, t_takeover;
    lf_talk talk;
};

struct driver {
    const lf_drive *d;
    const lf_run *run;
    lf_run_view view;
    struct lane *lanes;
    bool *selected;
    void *self; /* the submitter's */
    int stops;  /* stop requests so far */
    double next_talk, next_sync;
};

static const char *name_of(const lf_stage_view *s)
{
    return s->plan->name;
}

static void tell(const struct driver *dr, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void tell(const struct driver *dr, const char *fmt, ...)
{
    if (dr->d->say == NULL)
        return;
    char text[1400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    dr->d->say(dr->d->user, text);
}

#define LOST_TRIES 3

/* ---- looking ---- */

static int reload(struct driver *dr, lf_err *err)
{
    lf_run_view fresh;
    int rc = lf_view_load_copy(&fresh, dr->run, err);
    if (rc < 0)
        return rc;
    lf_view_fini(&dr->view);
    dr->view = fresh;
    lf_select_force(&dr->view, &dr->d->select);
    return 0;
}

static bool deps_done(const struct driver *dr, size_t i)
{
    return lf_view_undone(&dr->view, &dr->view.stages[i]) == NULL;
}

/* Its processes were killed and left no word: worth another try, unlike a failure that would only
 * repeat. */
static bool was_lost(const lf_stage_view *s)
{
    const lf_start *last = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
    char skip[PATH_MAX];
    if (s->state == LF_STATE_PENDING && s->n_attempts > 0 &&
        (last == NULL || last->attempt < (int)s->n_attempts))
        /* Killed before it had claimed an epoch. A wrapper that refused says so in a record. */
        return lf_path_set(skip, NULL, "%s/skip.%zu.json", s->dir, s->n_attempts) == 0 &&
               !lf_io_exists(skip);
    return s->state == LF_STATE_PENDING && last != NULL &&
           (last->end == NULL || strcmp(lf_inc_class(last), "lost") == 0);
}

static bool can_submit(const struct driver *dr, size_t i)
{
    const lf_stage_view *s = &dr->view.stages[i];
    if (!dr->selected[i] || dr->lanes[i].tries >= (was_lost(s) ? LOST_TRIES : 1) ||
        dr->lanes[i].job != NULL || dr->stops > 0)
        return false;
    if (s->state == LF_STATE_DONE || s->state == LF_STATE_RUNNING || s->state == LF_STATE_UNKNOWN ||
        s->live || s->held || s->state == LF_STATE_ENDED)
        return false;
    if (s->state == LF_STATE_PURGED && !s->needed)
        return false;
    return deps_done(dr, i);
}

/* ---- acting ---- */

static struct lf_job_rec *adopted_job(const lf_proc_id *wrapper, lf_err *err)
{
    struct lf_job_rec *j = lf_job_rec_new(err);
    if (j != NULL)
        j->process = lf_malloc(1, sizeof *wrapper, err);
    if (j != NULL && j->process != NULL) {
        *j->process = *wrapper;
        return j;
    }
    lf_job_rec_free(j);
    return NULL;
}

static int adopt_or_take_over(struct driver *dr, size_t i, lf_err *err)
{
    lf_stage_view *s = &dr->view.stages[i];
    struct lane *l = &dr->lanes[i];
    const lf_start *last = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
    if (l->job != NULL || s->state != LF_STATE_RUNNING || last == NULL)
        return 0;
    if (last->claim != NULL && lf_who_look(&last->claim->process) == LF_PROC_ALIVE) {
        l->job = adopted_job(&last->claim->process, err);
        if (l->tries == 0)
            tell(dr, "%s: adopted, it is running already (attempt %d)", name_of(s), last->attempt);
        const struct lf_attempt_rec *att = lf_attempt_of(s, last);
        if (att != NULL && att->spec_id != NULL && strcmp(att->spec_id, s->plan->spec_id) == 0)
            /* under other settings it is not the stage that is wanted: that one has its try yet */
            l->tries++;
        l->t_submit = lf_now_s();
        return l->job != NULL ? 0 : LF_ENOMEM;
    }
    /* The wrapper was killed and the stage lives on: nobody would publish its result. It is asked
     * to save and end, and the next start continues from there. */
    if (last->started == NULL)
        return 0;
    double now = lf_now_s();
    if (l->t_takeover <= 0) {
        l->t_takeover = now;
        tell(dr, "%s: its wrapper is gone; asking the stage to save and end", name_of(s));
        lf_who_kill(&last->started->process, SIGTERM, 0, NULL);
    } else if (now - l->t_takeover > (double)s->plan->grace_s.v) {
        lf_who_kill(&last->started->process, SIGKILL, 1, NULL);
    }
    return 0;
}

static int submit_stage(struct driver *dr, size_t i, lf_err *err)
{
    lf_stage_view *s = &dr->view.stages[i];
    struct lane *l = &dr->lanes[i];
    int rc = lf_stage_repair(dr->run, s, err);
    if (rc < 0)
        return rc;
    l->tries++;
    l->t_takeover = 0;
    l->t_submit = lf_now_s();
    const lf_attempt_args a = {.submitter = dr->d->submitter,
                               .run = dr->run,
                               .view = s,
                               .accepted = dr->d->accepted,
                               .fresh = dr->d->fresh};
    rc = lf_attempt_start(&l->job, &a, dr->self, dr->d->project->root, err);
    if (rc == 0)
        tell(dr, "%s: started (attempt %zu%s)", name_of(s), s->n_attempts + 1,
             lf_stage_resumes(s, dr->d->accepted) && !dr->d->fresh
                 ? ", continues from what is there"
                 : "");
    return rc;
}

/* What the log of its last start has got since it was told last. */
static void talk_on(struct driver *dr, size_t i)
{
    const lf_stage_view *s = &dr->view.stages[i];
    dr->lanes[i].talk.brief = dr->d->look != NULL;
    if (s->n_incs > 0 && dr->d->say != NULL)
        lf_talk_on(&dr->lanes[i].talk, &s->incs[s->n_incs - 1], dr->d->say, dr->d->user);
}

/* The warnings themselves, where the console has not shown as many. */
static void tell_warnings(struct driver *dr, size_t i, const struct lf_end *end)
{
    if (end == NULL || dr->lanes[i].talk.warned >= end->n_warnings)
        return;
    for (size_t k = 0; k < end->warnings.n; k++)
        tell(dr, "    warning: %s", end->warnings.v[k]);
}

/* The lines of its log, without the one that the reason was taken from: that is told already. */
static void tell_failure(struct driver *dr, const lf_start *last, const char *reason)
{
    for (size_t k = 0; k < last->end->log.n; k++)
        if (reason[0] == '\0' || !lf_str_has_suffix(last->end->log.v[k], reason))
            tell(dr, "    | %s", last->end->log.v[k]);
    const char *cls = last->end->cls;
    if (cls != NULL && lf_class_advice(cls)[0] != '\0')
        tell(dr, "    %s: %s", cls, lf_class_advice(cls));
    tell(dr, "    log: %s/log", last->dir);
}

static void tell_end(struct driver *dr, size_t i)
{
    lf_stage_view *s = &dr->view.stages[i];
    char took[64], warned[48] = "", head[600];
    const lf_start *last = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
    const struct lf_end *end = last != NULL ? last->end : NULL;
    lf_fmt_duration(took, sizeof took, lf_now_s() - dr->lanes[i].t_submit);
    if (end != NULL && end->n_warnings > 0)
        snprintf(warned, sizeof warned, ", %lld warning%s", (long long)end->n_warnings,
                 end->n_warnings == 1 ? "" : "s");
    if (s->state == LF_STATE_DONE) {
        talk_on(dr, i);
        char how[200];
        const bool early = lf_done_short_text(how, sizeof how, s->result_done) != NULL;
        snprintf(head, sizeof head, "%s: done in %s%s%s%s", name_of(s), took, warned,
                 early ? ", " : "", early ? how : "");
        if (dr->d->say != NULL)
            lf_talk_done(s, head, dr->d->say, dr->d->user);
        tell_warnings(dr, i, end);
        return;
    }
    tell(dr, "%s: %s after %s%s%s%s", name_of(s), lf_state_name(s->state), took, warned,
         s->reason[0] != '\0' ? ": " : "", s->reason);
    tell_warnings(dr, i, end);
    if (s->state == LF_STATE_FAILED && end != NULL)
        tell_failure(dr, last, s->reason);
}

/* A stage that ended at a rung has not failed: it is started again when its sweep says so. */
static void again_behind_rungs(struct driver *dr)
{
    for (size_t i = 0; i < dr->view.n; i++) {
        const lf_stage_view *s = &dr->view.stages[i];
        if (dr->lanes[i].ended && s->n_incs > 0 &&
            strcmp(lf_inc_class(&s->incs[s->n_incs - 1]), LF_CLASS_RUNG) == 0)
            dr->lanes[i].tries = 0;
    }
}

static void tell_rung(const struct driver *dr, const lf_rung *r)
{
    lf_buf b;
    lf_buf_init(&b);
    for (size_t i = 0; i < r->rows.n; i++)
        if (r->rows.v[i].kept)
            lf_buf_addf(&b, "%s%d", b.len > 0 ? ", " : "", r->rows.v[i].child);
    tell(dr, "rung %d (step %lld): of %zu children go on: %s", r->number, (long long)r->step,
         r->rows.n, b.data);
    lf_buf_fini(&b);
}

/* Decide what can be decided. */
static int climb(struct driver *dr, lf_err *err)
{
    int rc = 1;
    while (rc == 1) {
        lf_rung *r = NULL;
        rc = lf_rung_decide(&r, &dr->view, err);
        if (r != NULL)
            tell_rung(dr, r);
        lf_rung_free(r);
        if (rc == 1 && reload(dr, err) < 0)
            return err->rc;
    }
    return rc;
}

/* Jobs that ended: forget them and say what became of the stage. */
static int collect(struct driver *dr, int *running, lf_err *err)
{
    *running = 0;
    bool any = false;
    for (size_t i = 0; i < dr->view.n; i++) {
        enum lf_job_state st = LF_JOB_ENDED;
        dr->lanes[i].ended = false;
        if (dr->lanes[i].job == NULL)
            continue;
        int rc = dr->d->submitter->poll(dr->self, dr->lanes[i].job, &st, err);
        if (rc < 0)
            return rc;
        if (st != LF_JOB_ENDED) {
            (*running)++;
            continue;
        }
        lf_job_rec_free(dr->lanes[i].job);
        dr->lanes[i].job = NULL;
        dr->lanes[i].ended = any = true;
    }
    int rc = reload(dr, err);
    if (rc < 0 || !any)
        return rc;
    if (dr->d->look != NULL)
        dr->d->look(dr->d->user, NULL, NULL);
    for (size_t i = 0; i < dr->view.n && rc == 0; i++)
        if (dr->lanes[i].ended) {
            rc = lf_stage_repair(dr->run, &dr->view.stages[i], err);
            tell_end(dr, i);
        }
    if (rc == 0)
        again_behind_rungs(dr);
    lf_err e = LF_ERR_INIT;
    if (rc == 0 && lf_sync(dr->d->project, dr->run->data, dr->run->id, &e) < 0)
        tell(dr, "note: the ledger was not updated: %s", e.text);
    return rc;
}

/* Validations and warnings are told as they come where nothing else is told. */
static double talk_every(const struct driver *dr)
{
    return dr->d->look != NULL ? 1.0 : 10.0;
}

/* What a running stage says about itself, now and then. */
static void talk(struct driver *dr)
{
    if (lf_now_s() < dr->next_talk)
        return;
    dr->next_talk = lf_now_s() + talk_every(dr);
    for (size_t i = 0; i < dr->view.n; i++)
        if (dr->view.stages[i].state == LF_STATE_RUNNING)
            talk_on(dr, i);
}

static void stop_all(struct driver *dr)
{
    tell(dr, "stopping: running stages save and end (once more to leave them to it)");
    for (size_t i = 0; i < dr->view.n; i++)
        if (dr->lanes[i].job != NULL)
            dr->d->submitter->stop(dr->self, dr->lanes[i].job, NULL);
}

/* What goes on without this command. */
static void tell_left(const struct driver *dr)
{
    for (size_t i = 0; i < dr->view.n; i++) {
        const lf_stage_view *s = &dr->view.stages[i];
        const lf_start *last = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
        if (dr->lanes[i].job == NULL)
            continue;
        if (last != NULL && last->started != NULL && last->end == NULL)
            tell(dr, "%s: goes on saving (pid %lld); `loong-flow watch` shows when it has ended",
                 name_of(s), (long long)last->started->process.pid);
        else
            tell(dr, "%s: was still starting; `loong-flow watch` shows what becomes of it",
                 name_of(s));
    }
}

/* Of this thread, which looks. */
static double cpu_s(void)
{
    struct timespec t = {0, 0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double lf_drive_pause_s(double cost_s)
{
    const double pause = 50 * cost_s;
    return pause < 0.25 ? 0.25 : pause > 5 ? 5 : pause;
}

/* The end of a stage and a request to stop are signals, which end the pause. */
static void wait_a_little(struct driver *dr, double cost_s)
{
    const double pause = lf_drive_pause_s(cost_s);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR2);
    const struct timespec ts = {(time_t)pause, (long)((pause - (double)(time_t)pause) * 1e9)};
    int sig = sigtimedwait(&set, NULL, &ts);
    if (sig == SIGINT || sig == SIGTERM || sig == SIGHUP || sig == SIGUSR2)
        if (dr->stops++ == 0)
            stop_all(dr);
}

/* ---- the loop ---- */

/* `loong-flow cancel` of the whole run asks every driver to start nothing more; it stops the stages
 * itself. */
static void look_for_cancel(struct driver *dr)
{
    char path[PATH_MAX];
    if (dr->stops == 0 && lf_path_set(path, NULL, "%s/" LF_RUN_CANCEL, dr->run->dir) == 0 &&
        lf_io_exists(path)) {
        dr->stops = 1;
        tell(dr, "cancelled: nothing more is started");
    }
}

/* May one more stage of a child of a sweep be started beside those that run? */
static bool sweep_has_room(const struct driver *dr, size_t i)
{
    const lf_sweep *sweep = &dr->run->plan->sweep;
    int64_t n = 0;
    if (!sweep->max_parallel.given || !lf_sweep_is_child(name_of(&dr->view.stages[i])))
        return true;
    for (size_t k = 0; k < dr->view.n; k++)
        if (lf_sweep_is_child(name_of(&dr->view.stages[k])) &&
            (dr->lanes[k].job != NULL || dr->view.stages[k].state == LF_STATE_RUNNING))
            n++;
    return n < sweep->max_parallel.v;
}

static int round_of(struct driver *dr, int *running, lf_err *err)
{
    int rc = collect(dr, running, err);
    if (rc == 0)
        rc = climb(dr, err);
    look_for_cancel(dr);
    for (size_t i = 0; rc == 0 && i < dr->view.n; i++) {
        bool had_job = dr->lanes[i].job != NULL;
        rc = adopt_or_take_over(dr, i, err);
        if (dr->view.stages[i].state == LF_STATE_RUNNING && !had_job)
            (*running)++; /* just adopted, or an orphan on its way out */
    }
    lf_view_mark_needed(&dr->view, dr->selected);
    for (size_t i = 0; rc == 0 && i < dr->view.n && *running < dr->d->jobs; i++)
        if (can_submit(dr, i) && sweep_has_room(dr, i)) {
            rc = submit_stage(dr, i, err);
            (*running)++;
        }
    return rc;
}

static int final_code(struct driver *dr)
{
    int code = 0;
    lf_view_mark_needed(&dr->view, dr->selected);
    for (size_t i = 0; i < dr->view.n; i++) {
        const lf_stage_view *s = &dr->view.stages[i];
        if (!dr->selected[i] || lf_stage_finished(s))
            continue;
        if (s->state == LF_STATE_FAILED || s->state == LF_STATE_CANCELLED ||
            s->state == LF_STATE_UNKNOWN)
            return 1;
        /* A stage behind one that stopped at a checkpoint only waits. */
        code = 75;
    }
    return code;
}

static int loop(struct driver *dr, lf_err *err)
{
    int rc = 0, running = 0;
    do {
        const double begin = cpu_s();
        rc = round_of(dr, &running, err);
        if (rc < 0 || running == 0)
            break;
        talk(dr);
        if (dr->d->look != NULL)
            dr->d->look(dr->d->user, &dr->view, dr->selected);
        wait_a_little(dr, cpu_s() - begin);
    } while (dr->stops < 2);
    if (rc == 0 && dr->stops >= 2)
        tell_left(dr);
    return rc;
}

int lf_drive_run(const lf_drive *d, const lf_run *run, int *code, lf_err *err)
{
    struct driver dr;
    memset(&dr, 0, sizeof dr);
    dr.d = d;
    dr.run = run;
    dr.next_talk = lf_now_s() + talk_every(&dr);
    sigset_t set, old;
    sigemptyset(&set);
    const int all[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR2};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        sigaddset(&set, all[i]);
    char path[PATH_MAX];
    int rc = lf_run_check_owner(run, err);
    if (rc == 0 && d->submitter->start == NULL)
        rc = lf_fail(err, LF_EINVAL, "scheduler = %s has no driver on this machine",
                     d->submitter->name);
    if (rc == 0)
        rc = lf_path_set(path, err, "%s/driver.lock", run->dir);
    if (rc < 0)
        return rc;
    lf_lock_opts lo = {.purpose = "loong-flow run", .wait_s = 0, .ttl_s = 0};
    sigprocmask(SIG_BLOCK, &set,
                &old); /* before the lock starts its thread, which inherits the mask */
    lf_lock *lock = lf_lock_acquire(path, &lo, err);
    if (lock == NULL) {
        sigprocmask(SIG_SETMASK, &old, NULL);
        return lf_err_prefix(
            err, "run %s is being driven by another loong-flow (use watch or status)", run->id);
    }
    if (lf_path_set(path, NULL, "%s/" LF_RUN_CANCEL, run->dir) == 0)
        unlink(path); /* it was for those before us */
    rc = reload(&dr, err);
    dr.lanes = rc == 0 ? lf_calloc(dr.view.n + 1, sizeof *dr.lanes, err) : NULL;
    dr.selected = rc == 0 ? lf_calloc(dr.view.n + 1, sizeof *dr.selected, err) : NULL;
    if (rc == 0 && (dr.lanes == NULL || dr.selected == NULL))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = lf_select_stages(dr.selected, &dr.view, &d->select, err);
    if (rc == 0)
        rc = d->submitter->open(&dr.self, &run->plan->site, err);
    if (rc == 0) {
        rc = loop(&dr, err);
        d->submitter->close(dr.self);
    }
    if (d->look != NULL)
        d->look(d->user, NULL, NULL);
    if (rc == 0)
        *code = final_code(&dr);
    for (size_t i = 0; dr.lanes != NULL && i < dr.view.n; i++)
        lf_job_rec_free(dr.lanes[i].job);
    free(dr.lanes);
    free(dr.selected);
    lf_view_fini(&dr.view);
    lf_lock_release(lock);
    sigprocmask(SIG_SETMASK, &old, NULL);
    return rc;
}
