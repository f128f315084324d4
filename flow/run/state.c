/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a stage's directory and judging its state.
 */
#include "config.h"

#include "flow/run/state.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/plan/settle.h"
#include "flow/plan/spec.h"
#include "flow/plan/sweep.h"
#include "flow/record/record.h"
#include "flow/run/epoch.h"
#include "flow/run/rung.h"

#define RECORD_MAX_BYTES ((size_t)64 << 20) /* a claim lists what may be gone on from */

const char *lf_state_name(enum lf_state s)
{
    static const char *const names[] = {"waiting",   "pending", "running", "done", "failed",
                                        "cancelled", "purged",  "unknown", "ended"};
    return names[s];
}

/* ---- reading ---- */

static int add_start(lf_stage_view *s, int attempt, int epoch, lf_err *err)
{
    int rc = lf_grow(&s->incs, &s->cap_incs, s->n_incs, sizeof *s->incs, err);
    if (rc < 0)
        return rc;
    lf_start *inc = &s->incs[s->n_incs];
    memset(inc, 0, sizeof *inc);
    inc->attempt = attempt;
    inc->epoch = epoch;
    char name[64];
    snprintf(name, sizeof name, "%d.%d", attempt, epoch);
    inc->dir = lf_path_join(s->dir, name, err);
    if (inc->dir == NULL)
        return LF_ENOMEM;
    s->n_incs++;
    rc = lf_claim_load(&inc->claim, s->dir, epoch, err);
    if (rc == 0)
        rc = lf_started_load(&inc->started, inc->dir, err);
    if (rc == 0)
        rc = lf_end_load(&inc->end, inc->dir, err);
    if (rc == 0)
        rc = lf_done_load(&inc->done, inc->dir, err);
    return rc;
}

static int by_epoch(const void *a, const void *b)
{
    return ((const lf_start *)a)->epoch - ((const lf_start *)b)->epoch;
}

static int scan_entries(lf_stage_view *s, DIR *d, int *max_attempt, bool *settled, lf_err *err)
{
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        int a = 0, ep = 0, end = 0;
        if (sscanf(e->d_name, "attempt.%d.json%n", &a, &end) == 1 && end > 0 &&
            e->d_name[end] == '\0') {
            if (a > *max_attempt)
                *max_attempt = a;
            continue;
        }
        end = 0;
        if (sscanf(e->d_name, LF_FINISH_NAME "%n", &a, &end) == 1 && end > 0 &&
            e->d_name[end] == '\0') {
            s->last_finish = a > s->last_finish ? a : s->last_finish;
            continue;
        }
        end = 0;
        if (sscanf(e->d_name, "settled.%d.json%n", &a, &end) == 1 && end > 0 &&
            e->d_name[end] == '\0') {
            *settled = true;
            continue;
        }
        end = 0;
        if (sscanf(e->d_name, "%d.%d%n", &a, &ep, &end) == 2 && end > 0 && e->d_name[end] == '\0' &&
            a > 0 && ep > 0) {
            int rc = add_start(s, a, ep, err);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

/* An attempt that has not begun will read what is there by then: it counts as one of the stage as
 * it is. */
static int settle_newest(lf_stage_view *s, lf_err *err)
{
    struct lf_attempt_rec *a = s->n_attempts > 0 ? s->attempts[s->n_attempts - 1] : NULL;
    if (a == NULL || !s->plan->settled.given || !lf_text_same(a->spec_id, s->plan->frozen_id))
        return 0;
    for (size_t i = 0; i < s->n_incs; i++)
        if (s->incs[i].attempt == (int)s->n_attempts)
            return 0;
    return lf_attempt_rec_settle(a, s->plan->spec_id, &s->plan->settled, err);
}

int lf_stage_scan(lf_stage_view *out, const char *run_dir, const lf_doc_stage *plan, lf_err *err)
{
    lf_stage_view s;
    memset(&s, 0, sizeof s);
    s.plan = plan;
    s.dir = lf_path_join(run_dir, plan->name, err);
    if (s.dir == NULL)
        return LF_ENOMEM;
    DIR *d = opendir(s.dir);
    if (d == NULL && errno != ENOENT) {
        int rc = lf_fail_errno(err, "cannot list %s", s.dir);
        free(s.dir);
        return rc;
    }
    int max_attempt = 0, rc = 0;
    bool settled = false;
    if (d != NULL) {
        lf_epoch_log log;
        rc = lf_epoch_read(&log, s.dir, err); /* finishes a commit that a crash cut in half */
        if (rc == 0) {
            s.claimed = log.highest > 0;
            lf_epoch_fini(&log);
            rc = scan_entries(&s, d, &max_attempt, &settled, err);
        }
        closedir(d);
    }
    if (rc == 0 && max_attempt > 0) {
        s.attempts = lf_calloc((size_t)max_attempt, sizeof *s.attempts, err);
        rc = s.attempts == NULL ? LF_ENOMEM : 0;
        for (int i = 0; rc == 0 && i < max_attempt; i++) {
            s.n_attempts = (size_t)i + 1;
            rc = lf_attempt_rec_load(&s.attempts[i], s.dir, i + 1, err);
            if (rc == 0 && s.attempts[i] != NULL && settled)
                rc = lf_settled_rec_lay(s.attempts[i], s.dir, err);
        }
    }
    if (rc == 0)
        rc = settle_newest(&s, err);
    if (rc < 0) {
        lf_stage_scan_fini(&s);
        return rc;
    }
    if (s.n_incs > 1)
        qsort(s.incs, s.n_incs, sizeof *s.incs, by_epoch);
    *out = s;
    return 0;
}

void lf_stage_scan_fini(lf_stage_view *s)
{
    for (size_t i = 0; i < s->n_incs; i++) {
        free(s->incs[i].dir);
        lf_claim_free(s->incs[i].claim);
        lf_started_free(s->incs[i].started);
        lf_end_free(s->incs[i].end);
        lf_done_free(s->incs[i].done);
    }
    for (size_t i = 0; i < s->n_attempts; i++)
        lf_attempt_rec_free(s->attempts[i]);
    free(s->incs);
    free(s->attempts);
    free(s->deps);
    free(s->dir);
    free(s->result_dir);
    lf_done_free(s->own_done);
    lf_job_said_free(s->job);
    memset(s, 0, sizeof *s);
}

/* ---- results ---- */

static const char *or_else(const char *text, const char *otherwise)
{
    return text != NULL ? text : otherwise;
}

/* LF_EFORMAT when a reader has marked it. */
static int check_mark(const char *dir, lf_err *err)
{
    struct lf_damaged *mark = NULL;
    int rc = lf_damaged_load(&mark, dir, err);
    if (rc == 0 && mark != NULL)
        rc = lf_fail(err, LF_EFORMAT, "output %s is damaged, as stage %s found: %.300s",
                     or_else(mark->output, "?"), or_else(mark->stage, "?"),
                     or_else(mark->reason, ""));
    lf_damaged_free(mark);
    return rc;
}

static int check_output(const struct lf_output *o, const char *dir, lf_err *err)
{
    const char *rel = o->path;
    if (rel == NULL || rel[0] == '/' || strstr(rel, "..") != NULL)
        return lf_fail(err, LF_EFORMAT, "%s/done.json: output %s has a bad path", dir, o->name);
    char *path = lf_path_join(dir, rel, err);
    if (path == NULL)
        return LF_ENOMEM;
    enum lf_artifact_state st = LF_ARTIFACT_ABSENT;
    lf_err e = LF_ERR_INIT;
    int rc = lf_artifact_state(&st, path, &e);
    if (rc < 0)
        rc = lf_fail(err, rc, "%s", e.text);
    else if (st == LF_ARTIFACT_ABSENT)
        rc = lf_fail(err, LF_ENOENT, "output %s: its manifest is gone", o->name);
    else if (st == LF_ARTIFACT_PURGED)
        rc = lf_fail(err, LF_ENOENT, "output %s: %s", o->name, e.text);
    else if (st == LF_ARTIFACT_BROKEN)
        rc = lf_fail(err, LF_EFORMAT, "output %s: %s", o->name, e.text);
    free(path);
    return rc;
}

int lf_done_check_outputs(const struct lf_done *done, const char *dir, lf_err *err)
{
    int rc = check_mark(dir, err);
    for (size_t i = 0; rc == 0 && i < done->n_outputs; i++)
        rc = check_output(&done->outputs[i], dir, err);
    return rc;
}

/* rerun_on = exe: the executable is part of what a result must match. */
static bool is_result(const struct lf_done *done, const lf_doc_stage *stage)
{
    if (done == NULL || done->spec_id == NULL || strcmp(done->spec_id, stage->spec_id) != 0)
        return false;
    return stage->rerun_on == NULL || strcmp(stage->rerun_on, "exe") != 0 ||
           (done->exe_sha256 != NULL && lf_text_same(done->exe_sha256, stage->exe.sha256));
}

static int adopted_result(lf_stage_view *s, const lf_run *run, lf_err *err)
{
    const lf_adopted *ad = &s->plan->adopted;
    if (ad->run == NULL || ad->stage == NULL || strchr(ad->run, '/') != NULL ||
        strchr(ad->stage, '/') != NULL)
        return lf_fail(err, LF_EFORMAT, "%s: bad adopted result", run->dir);
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s/runs/%s/%s/%d.%d", run->data, ad->run, ad->stage, (int)ad->attempt.v,
                (int)ad->epoch.v);
    s->result_dir = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    if (s->result_dir == NULL)
        return LF_ENOMEM;
    int rc = lf_done_load(&s->own_done, s->result_dir, err);
    s->result_done = s->own_done;
    return rc;
}

/* Where a result comes from, and why it is shorter than its settings say. */
static void tell_result(lf_stage_view *s)
{
    char text[200];
    const char *end = lf_done_short_text(text, sizeof text, s->result_done);
    if (s->result == NULL)
        snprintf(s->reason, sizeof s->reason, "result of run %.26s%s%s", s->plan->adopted.run,
                 end != NULL ? "; " : "", end != NULL ? end : "");
    else
        snprintf(s->reason, sizeof s->reason, "%s", end != NULL ? end : "");
    lf_text_clean(s->reason);
}

int lf_stage_result(lf_stage_view *s, const lf_run *run, lf_err *err)
{
    for (size_t i = s->n_incs; i-- > 0 && s->result == NULL;)
        if (is_result(s->incs[i].done, s->plan))
            s->result = &s->incs[i];
    const lf_adopted *ad = &s->plan->adopted;
    int rc = 0;
    if (s->result != NULL) {
        s->result_dir = lf_strdup(s->result->dir, err);
        s->result_done = s->result->done;
        rc = s->result_dir == NULL ? LF_ENOMEM : 0;
    } else if (ad->given &&
               (!s->plan->settled.given || lf_text_same(ad->spec_id, s->plan->spec_id))) {
        rc = adopted_result(s, run, err);
    }
    if (rc < 0)
        return rc;
    if (s->result_dir == NULL)
        return 0;
    lf_err e = LF_ERR_INIT;
    rc = s->result_done == NULL ? lf_fail(&e, LF_ENOENT, "the marker of run %s is gone", ad->run)
                                : lf_done_check_outputs(s->result_done, s->result_dir, &e);
    if (rc == LF_EIO || rc == LF_ENOMEM)
        return lf_fail(err, rc, "%s", e.text);
    s->state = rc == 0 ? LF_STATE_DONE : LF_STATE_PURGED;
    snprintf(s->reason, sizeof s->reason, "%.390s", rc == 0 ? "" : e.text);
    lf_text_clean(s->reason);
    if (rc == 0)
        tell_result(s);
    return rc == 0 ? 1 : 0;
}

bool lf_spec_continues(const struct lf_attempt_rec *attempt, const lf_doc_stage *stage,
                       const lf_texts *accepted)
{
    if (attempt == NULL)
        return false;
    if (attempt->spec_id != NULL && strcmp(attempt->spec_id, stage->spec_id) == 0)
        return true;
    lf_texts diff = {.n = 0};
    bool ok = lf_spec_diff(&diff, &attempt->spec, stage, NULL) == 0 && diff.n > 0;
    for (size_t i = 0; ok && i < diff.n; i++)
        ok = accepted != NULL && lf_texts_has(accepted, diff.v[i]);
    lf_texts_fini(&diff);
    return ok;
}

const struct lf_attempt_rec *lf_attempt_of(const lf_stage_view *s, const lf_start *inc)
{
    return inc->attempt >= 1 && (size_t)inc->attempt <= s->n_attempts
               ? s->attempts[inc->attempt - 1]
               : NULL;
}

const struct lf_attempt_rec *lf_attempt_newest(const lf_stage_view *s)
{
    return s->n_attempts > 0 ? s->attempts[s->n_attempts - 1] : NULL;
}

bool lf_attempt_is_batch(const lf_stage_view *s)
{
    const struct lf_attempt_rec *a = lf_attempt_newest(s);
    return a != NULL && a->backend != NULL && strcmp(a->backend, "local") != 0;
}

struct lf_result {
    char run[LF_ULID_SIZE];
    char *stage, *dir;
    int attempt, epoch;
    struct lf_done *done;
    size_t next, last; /* places of the next of its spec id, and in the first of the last */
};

static int add_result(lf_results *r, const lf_run *run, const char *stage, lf_start *inc,
                      lf_err *err)
{
    int rc = lf_grow(&r->found, &r->cap, r->n, sizeof *r->found, err);
    if (rc < 0)
        return rc;
    const size_t place = r->n;
    struct lf_result *f = &r->found[place];
    memset(f, 0, sizeof *f);
    memcpy(f->run, run->id, sizeof f->run);
    f->attempt = inc->attempt;
    f->epoch = inc->epoch;
    f->next = LF_NAMES_NONE;
    f->last = place;
    f->stage = lf_strdup(stage, err);
    f->dir = lf_strdup(inc->dir, err);
    f->done = inc->done;
    inc->done = NULL;
    r->n++;
    if (f->stage == NULL || f->dir == NULL)
        return LF_ENOMEM;
    size_t first = lf_names_find(&r->by_spec, f->done->spec_id, "");
    if (first == LF_NAMES_NONE)
        return lf_names_put(&r->by_spec, f->done->spec_id, "", place, err);
    r->found[r->found[first].last].next = place;
    r->found[first].last = place;
    return 0;
}

/* What one stage directory of an older run holds, taken from the view. */
static int add_results(lf_results *r, const lf_run *run, lf_stage_view *s, lf_err *err)
{
    int rc = 0;
    for (size_t k = s->n_incs; rc == 0 && k-- > 0;)
        if (s->incs[k].done != NULL && s->incs[k].done->spec_id != NULL)
            rc = add_result(r, run, s->plan->name, &s->incs[k], err);
    return rc;
}

static int read_next_run(lf_results *r, lf_err *err)
{
    lf_run run = r->runs->runs[r->next++];
    run.plan = NULL;
    if (run.data == NULL || strcmp(run.data, r->data) != 0 || lf_run_load(&run, NULL) < 0)
        return 0; /* an entry that was taken out of the list is empty */
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < run.plan->stages.n; i++) {
        lf_stage_view s;
        if (lf_stage_scan(&s, run.dir, &run.plan->stages.v[i], NULL) < 0)
            continue;
        rc = add_results(r, &run, &s, err);
        lf_stage_scan_fini(&s);
    }
    lf_doc_free(run.plan);
    return rc;
}

static int adopt(lf_adopted *out, const struct lf_result *f, lf_err *err)
{
    out->given = true;
    out->attempt = lf_int_of(f->attempt);
    out->epoch = lf_int_of(f->epoch);
    int rc = lf_text_set(&out->run, f->run, "run", err);
    if (rc == 0)
        rc = lf_text_set(&out->stage, f->stage, "stage", err);
    if (rc == 0)
        rc = lf_text_set(&out->spec_id, f->done->spec_id, "spec_id", err);
    if (rc < 0)
        lf_adopted_fini(out);
    return rc;
}

int lf_results_find(lf_adopted *out, lf_results *r, const lf_doc_stage *stage, lf_err *err)
{
    size_t seen = LF_NAMES_NONE; /* the last that was looked at */
    memset(out, 0, sizeof *out);
    for (;;) {
        size_t k = seen == LF_NAMES_NONE ? lf_names_find(&r->by_spec, stage->spec_id, "")
                                         : r->found[seen].next;
        for (; k != LF_NAMES_NONE; seen = k, k = r->found[k].next) {
            const struct lf_result *f = &r->found[k];
            if (f->done->ended == NULL && is_result(f->done, stage) &&
                lf_done_check_outputs(f->done, f->dir, NULL) == 0)
                return adopt(out, f, err);
        }
        int rc = r->next < r->runs->n ? read_next_run(r, err) : 1;
        if (rc != 0)
            return rc < 0 ? rc : 0;
    }
}

int lf_results_early(char **text, const lf_results *r, const lf_doc_stage *stage, lf_err *err)
{
    const char *output = stage->outputs.n > 0 ? stage->outputs.v[0] : "";
    char how[128];
    *text = NULL;
    size_t k = lf_names_find(&r->by_spec, stage->spec_id, "");
    while (k != LF_NAMES_NONE &&
           (r->found[k].done->ended == NULL || !is_result(r->found[k].done, stage) ||
            lf_done_check_outputs(r->found[k].done, r->found[k].dir, NULL) != 0))
        k = r->found[k].next;
    if (k == LF_NAMES_NONE)
        return 0;
    const struct lf_result *f = &r->found[k];
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "in run %s it %s; who wants that result names its path, %s/out/%s", f->run,
                lf_cut_short_text(how, sizeof how, f->done->ended), f->dir, output);
    *text = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return *text != NULL ? 0 : LF_ENOMEM;
}

void lf_results_fini(lf_results *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->found[i].stage);
        free(r->found[i].dir);
        lf_done_free(r->found[i].done);
    }
    free(r->found);
    lf_names_fini(&r->by_spec);
    memset(r, 0, sizeof *r);
}

/* ---- judging ---- */

static void say(lf_stage_view *s, enum lf_state state, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void say(lf_stage_view *s, enum lf_state state, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    s->state = state;
    vsnprintf(s->reason, sizeof s->reason, fmt, ap);
    va_end(ap);
    lf_text_clean(s->reason);
}

double lf_inc_begin(const lf_start *inc)
{
    return inc->claim != NULL ? inc->claim->t : 0;
}

double lf_inc_end(const lf_start *inc)
{
    return inc->end != NULL && inc->end->t_end > 0 ? inc->end->t_end
           : inc->done != NULL                     ? inc->done->t_end
                                                   : 0;
}

const char *lf_inc_class(const lf_start *inc)
{
    return inc->end != NULL ? or_else(inc->end->cls, "") : "";
}

static void judge_end(lf_stage_view *s, const struct lf_end *end)
{
    const char *state = end->state, *reason = or_else(end->reason, "");
    if (state != NULL && strcmp(state, "failed") == 0)
        say(s, LF_STATE_FAILED, "%.390s", reason);
    else if (state != NULL && strcmp(state, "cancelled") == 0)
        say(s, LF_STATE_CANCELLED, "%.390s", reason);
    else
        say(s, LF_STATE_PENDING, "%.390s", reason);
}

static void judge_process(lf_stage_view *s, const lf_start *inc)
{
    const lf_proc_id *wrapper = inc->claim != NULL ? &inc->claim->process : NULL;
    enum lf_proc_state w = lf_who_look(wrapper);
    enum lf_proc_state c =
        inc->started != NULL ? lf_who_look(&inc->started->process) : LF_PROC_GONE;
    const char *host = wrapper != NULL && wrapper->host[0] != '\0' ? wrapper->host : NULL;
    if (w == LF_PROC_ALIVE)
        say(s, LF_STATE_RUNNING, "%s", "");
    else if (c == LF_PROC_ALIVE)
        say(s, LF_STATE_RUNNING, "%s", "its wrapper is gone; resume takes over");
    else if (w == LF_PROC_ELSEWHERE || c == LF_PROC_ELSEWHERE)
        say(s, LF_STATE_UNKNOWN, "started on %.100s; its process cannot be seen from here",
            host != NULL ? host : "another host");
    else
        say(s, LF_STATE_PENDING, "%s",
            "interrupted: its processes are gone without an end record; resume continues it");
}

bool lf_stage_refused(lf_stage_view *s)
{
    struct lf_refused_rec *r = NULL;
    lf_refused_rec_load(&r, s->dir, (int)s->n_attempts, NULL);
    const bool said = r != NULL && (r->needs != NULL || r->words != NULL);
    if (!said)
        ;
    else if (r->needs != NULL)
        say(s, LF_STATE_WAITING, "waits for %.64s, which was not submitted either", r->needs);
    else if (r->for_now)
        say(s, LF_STATE_PENDING,
            "the scheduler would not take it yet: %.280s; resume submits it again", r->words);
    else
        say(s, LF_STATE_PENDING,
            "the scheduler refused it: %.260s; change what it asks for and resume", r->words);
    lf_refused_rec_free(r);
    return said;
}

/* Only its scheduler can say more (sched.h). Until it does, it counts as alive: nothing is started
 * a second time. */
static void judge_batch(lf_stage_view *s, const struct lf_attempt_rec *attempt)
{
    struct lf_job_rec *job = NULL;
    int rc = lf_job_rec_load(&job, s->dir, (int)s->n_attempts, NULL);
    s->live = true;
    if (job != NULL)
        say(s, LF_STATE_PENDING, "submitted to %.20s as job %.60s", attempt->backend,
            or_else(job->id, "?"));
    else if (rc < 0)
        say(s, LF_STATE_UNKNOWN, "%.300s/job.%d.json cannot be read", s->dir, (int)s->n_attempts);
    else if (!lf_stage_refused(s))
        say(s, LF_STATE_PENDING, "%s", "being submitted, or its submission was cut short");
    lf_job_rec_free(job);
}

bool lf_stage_skipped(lf_stage_view *s)
{
    struct lf_skip_rec *skip = NULL;
    const lf_start *last = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
    lf_skip_rec_load(&skip, s->dir, (int)s->n_attempts, NULL);
    bool counts =
        skip != NULL && skip->reason != NULL && skip->cls != NULL && s->n_attempts > 0 &&
        !(last != NULL && last->attempt == (int)s->n_attempts && lf_inc_begin(last) > skip->t);
    if (counts && skip->exit_code == 1) {
        say(s, LF_STATE_FAILED, "%.390s", skip->reason);
        snprintf(s->ended_class, sizeof s->ended_class, "%s", skip->cls);
    } else if (counts) {
        say(s, LF_STATE_PENDING, "its job did not begin: %.350s", skip->reason);
    }
    lf_skip_rec_free(skip);
    return counts;
}

static void judge_attempt(lf_stage_view *s)
{
    const struct lf_attempt_rec *attempt = lf_attempt_newest(s);
    if (lf_attempt_is_batch(s)) {
        judge_batch(s, attempt);
        return;
    }
    enum lf_proc_state st = lf_who_look(attempt != NULL ? &attempt->submitter : NULL);
    struct lf_job_rec *job = NULL;
    if (lf_job_rec_load(&job, s->dir, (int)s->n_attempts, NULL) == 0 && job != NULL)
        st = lf_who_look(job->process);
    lf_job_rec_free(job);
    if (st == LF_PROC_ALIVE)
        say(s, LF_STATE_RUNNING, "%s", "starting");
    else
        say(s, LF_STATE_PENDING,
            "submitted, but it never started; %.300s/wrapper.%d.log may say why", s->dir,
            (int)s->n_attempts);
}

static bool cancelled_after(const lf_stage_view *s, int attempt)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/cancel.%d", s->dir, attempt);
    return lf_io_exists(path);
}

static void judge(lf_stage_view *s, const lf_run_view *v)
{
    const lf_stage_view *wanting = lf_view_undone(v, s);
    const char *blocked = wanting != NULL ? wanting->plan->name : NULL;
    const lf_start *last = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
    int n = (int)s->n_attempts;
    const struct lf_attempt_rec *att = lf_attempt_newest(s);
    bool current =
        att != NULL && att->spec_id != NULL && strcmp(att->spec_id, s->plan->spec_id) == 0;
    if (last != NULL && last->attempt == n && last->end == NULL && last->done == NULL)
        judge_process(s, last);
    else if (n > 0 && (last == NULL || last->attempt < n))
        judge_attempt(s);
    else if (last != NULL && last->end != NULL && current)
        judge_end(s, last->end);
    else
        say(s, LF_STATE_PENDING, "%s", n > 0 ? "its settings or inputs changed" : "");
    if (s->state == LF_STATE_PENDING && n > 0)
        lf_stage_skipped(s);
    if (s->state == LF_STATE_PENDING && n > 0 && cancelled_after(s, n))
        say(s, LF_STATE_CANCELLED, "%s", "cancelled on request");
    if (s->state == LF_STATE_PENDING && blocked != NULL && n == 0)
        say(s, LF_STATE_WAITING, "waits for %s", blocked);
}

/* A revision makes the directory of each of its stages, and a claim that of its start. */
static void judge_removed(lf_stage_view *s, const lf_run *run)
{
    if (s->state != LF_STATE_PENDING && s->state != LF_STATE_WAITING)
        return;
    if (s->claimed && s->n_incs == 0)
        say(s, s->state, "what it had made was removed from %.300s; it is made again", s->dir);
    else if (run->plan->rev.given && lf_io_exists(run->dir) && !lf_io_exists(s->dir))
        say(s, s->state, "its directory %.300s was removed; it is made again", s->dir);
}

int lf_stage_asked(const lf_stage_view *s)
{
    struct lf_finish_rec *f = NULL;
    int n = s->last_finish;
    if (n < 1 || lf_finish_rec_load(&f, s->dir, n, NULL) < 0 || f == NULL)
        return 0;
    bool stands = lf_text_same(f->spec_id, s->plan->spec_id);
    lf_finish_rec_free(f);
    for (size_t i = 0; stands && i < s->n_incs; i++)
        stands = s->incs[i].done == NULL || s->incs[i].attempt < n;
    for (size_t i = (size_t)n; stands && i < s->n_attempts; i++)
        stands = s->attempts[i] == NULL || !s->attempts[i]->fresh;
    return stands ? n : 0;
}

bool lf_stage_resumes(const lf_stage_view *s, const lf_texts *accepted)
{
    bool yes = false;
    for (size_t i = 0; i < s->n_incs && !yes; i++) {
        const lf_start *inc = &s->incs[i];
        char out[PATH_MAX];
        snprintf(out, sizeof out, "%s/out", inc->dir);
        if ((size_t)inc->attempt <= s->n_attempts && lf_io_exists(out))
            yes = lf_spec_continues(s->attempts[inc->attempt - 1], s->plan, accepted);
    }
    return yes;
}

const lf_stage_view *lf_view_undone(const lf_run_view *v, const lf_stage_view *s)
{
    for (size_t k = 0; k < s->n_deps; k++) {
        const lf_stage_view *d = &v->stages[s->deps[k]];
        if (d->plan != NULL && d->state != LF_STATE_DONE)
            return d;
    }
    return NULL;
}

static int find_deps(lf_stage_view *s, const lf_names *names, lf_err *err)
{
    const lf_texts *deps = &s->plan->deps;
    s->deps = lf_calloc(deps->n + 1, sizeof *s->deps, err);
    if (s->deps == NULL)
        return LF_ENOMEM;
    for (size_t k = 0; k < deps->n; k++) {
        size_t d = lf_names_find(names, deps->v[k], "");
        if (d != LF_NAMES_NONE)
            s->deps[s->n_deps++] = d;
    }
    return 0;
}

/* People see it where they look at the stage. */
static void tell_asked(lf_stage_view *s)
{
    s->asked = s->state != LF_STATE_DONE ? lf_stage_asked(s) : 0;
    const size_t n = strlen(s->reason);
    if (s->asked > 0)
        snprintf(s->reason + n, sizeof s->reason - n, "%sit is asked to end early",
                 n > 0 ? "; " : "");
}

/* Read and judge stage i; those before it are judged already. */
static int load_stage(lf_run_view *v, size_t i, const lf_run *run, lf_err *err)
{
    lf_stage_view *s = &v->stages[i];
    lf_doc_stage *stage = &run->plan->stages.v[i];
    stage->ended_at_step = 0;
    int rc = lf_spec_settle(stage, run->plan, err);
    if (rc == 0)
        rc = lf_stage_scan(s, run->dir, stage, err);
    if (rc == 0)
        rc = find_deps(s, &run->plan->names, err);
    if (rc < 0)
        return rc;
    rc = lf_stage_result(s, run, err);
    stage->ended_at_step = lf_done_ended_at(s->result_done);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (s->state != LF_STATE_PURGED) {
        judge(s, v);
        judge_removed(s, run);
        s->resumable = lf_stage_resumes(s, NULL);
        tell_asked(s);
        return 0;
    }
    /* Purged, unless somebody is making it again or tried to after the purge. */
    lf_stage_view copy = *s;
    if (s->n_incs > 0 && s->result != &s->incs[s->n_incs - 1]) {
        judge(s, v);
        if (s->state == LF_STATE_PENDING || s->state == LF_STATE_WAITING) {
            s->state = copy.state;
            memcpy(s->reason, copy.reason, sizeof s->reason);
        }
    }
    return 0;
}

int lf_view_load(lf_run_view *out, lf_run *run, lf_err *err)
{
    lf_run_view v;
    memset(&v, 0, sizeof v);
    size_t n = run->plan->stages.n;
    v.stages = lf_calloc(n + 1, sizeof *v.stages, err);
    int rc = v.stages == NULL ? LF_ENOMEM : 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        v.n = i + 1;
        rc = load_stage(&v, i, run, err);
    }
    if (rc < 0) {
        lf_view_fini(&v);
        return rc;
    }
    v.run = *run;
    memset(run, 0, sizeof *run);
    if ((rc = lf_rung_apply(&v, err)) < 0) {
        *run = v.run;
        memset(&v.run, 0, sizeof v.run);
        lf_view_fini(&v);
        return rc;
    }
    *out = v;
    return 0;
}

bool lf_stage_finished(const lf_stage_view *s)
{
    return s->state == LF_STATE_DONE || s->state == LF_STATE_ENDED ||
           (s->state == LF_STATE_PURGED && !s->needed);
}

int lf_view_load_copy(lf_run_view *out, const lf_run *run, lf_err *err)
{
    lf_run copy = {.rev = run->rev};
    memcpy(copy.id, run->id, sizeof copy.id);
    lf_run_take_plan(&copy, lf_doc_hold(run->plan));
    copy.dir = lf_strdup(run->dir, err);
    copy.data = lf_strdup(run->data, err);
    int rc = copy.dir == NULL || copy.data == NULL ? LF_ENOMEM : lf_view_load(out, &copy, err);
    lf_run_fini(&copy);
    return rc;
}

int lf_view_reload(lf_run_view *v, size_t i, lf_err *err)
{
    lf_stage_scan_fini(&v->stages[i]);
    int rc = load_stage(v, i, &v->run, err);
    return rc == 0 ? lf_rung_apply(v, err) : rc;
}

void lf_view_fini(lf_run_view *v)
{
    for (size_t i = 0; i < v->n; i++)
        lf_stage_scan_fini(&v->stages[i]);
    free(v->stages);
    lf_run_fini(&v->run);
    memset(v, 0, sizeof *v);
}

lf_stage_view *lf_view_stage(const lf_run_view *v, const char *name)
{
    size_t i = lf_names_find(&v->run.plan->names, name, "");
    return i < v->n ? &v->stages[i] : NULL;
}

bool lf_view_names(const lf_run_view *v, const char *word)
{
    bool any = false;
    for (size_t i = 0; i < v->n && !any; i++)
        any = lf_sweep_named(v->stages[i].plan->name, word);
    return any;
}

int lf_view_no_stage(const lf_run_view *v, const char *name, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    for (size_t i = 0; i < v->n; i++)
        lf_buf_addf(&b, "%s%s", i > 0 ? ", " : "", v->stages[i].plan->name);
    lf_fail(err, LF_ENOENT, "run %s has no stage \"%s\"; it has %.500s%s", lf_run_label(&v->run),
            name, b.len > 0 ? b.data : "none", b.len > 500 ? " ..." : "");
    lf_buf_fini(&b);
    return LF_ENOENT;
}

/* Stages lie in running order, so whatever reads one stands behind it. */
void lf_view_mark_needed(lf_run_view *v, const bool *selected)
{
    for (size_t i = 0; i < v->n; i++) {
        v->stages[i].has_reader = false;
        v->stages[i].needed = v->stages[i].forced;
    }
    for (size_t i = v->n; i-- > 0;) {
        lf_stage_view *s = &v->stages[i];
        s->needed = s->needed || !s->has_reader;
        bool makes = (selected == NULL || selected[i]) && s->state != LF_STATE_DONE &&
                     s->state != LF_STATE_ENDED && (s->state != LF_STATE_PURGED || s->needed);
        for (size_t k = 0; k < s->n_deps; k++) {
            lf_stage_view *d = &v->stages[s->deps[k]];
            d->has_reader = true;
            d->needed = d->needed || makes;
        }
    }
}
