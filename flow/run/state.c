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
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/plan/spec.h"
#include "flow/record/record.h"
#include "flow/run/epoch.h"

#define RECORD_MAX_BYTES ((size_t)64 << 20) /* a claim lists what may be gone on from */

const char *lf_state_name(enum lf_state s)
{
    static const char *const names[] = {"waiting", "pending",   "running", "done",
                                        "failed",  "cancelled", "purged",  "unknown"};
    return names[s];
}

/* ---- reading ---- */

/* A record that is not there is NULL; one that cannot be read is an error, never "not there". */
static int load_record(json_t **out, const char *dir, const char *name, lf_err *err)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return lf_fail(err, LF_EINVAL, "%s: the path is too long", dir);
    *out = NULL;
    struct stat st;
    if (lstat(path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : lf_fail_errno(err, "%s", path);
    *out = lf_json_load_file(path, RECORD_MAX_BYTES, err);
    if (*out == NULL)
        return err != NULL && err->rc != 0 ? err->rc : LF_EFORMAT;
    if (!json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        return lf_fail(err, LF_EFORMAT, "%s: not an object", path);
    }
    return 0;
}

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
    snprintf(name, sizeof name, "epoch.%d", epoch);
    rc = load_record(&inc->claim, s->dir, name, err);
    if (rc == 0)
        rc = load_record(&inc->started, inc->dir, "stage.json", err);
    if (rc == 0)
        rc = load_record(&inc->end, inc->dir, "end.json", err);
    if (rc == 0)
        rc = load_record(&inc->done, inc->dir, "done.json", err);
    return rc;
}

static int by_epoch(const void *a, const void *b)
{
    return ((const lf_start *)a)->epoch - ((const lf_start *)b)->epoch;
}

static int scan_entries(lf_stage_view *s, DIR *d, int *max_attempt, lf_err *err)
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
        if (sscanf(e->d_name, "%d.%d%n", &a, &ep, &end) == 2 && end > 0 && e->d_name[end] == '\0' &&
            a > 0 && ep > 0) {
            int rc = add_start(s, a, ep, err);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

int lf_stage_scan(lf_stage_view *out, const char *run_dir, json_t *stage, lf_err *err)
{
    lf_stage_view s;
    memset(&s, 0, sizeof s);
    s.stage = stage;
    s.dir = lf_path_join(run_dir, json_string_value(json_object_get(stage, "name")), err);
    if (s.dir == NULL)
        return LF_ENOMEM;
    DIR *d = opendir(s.dir);
    if (d == NULL && errno != ENOENT) {
        int rc = lf_fail_errno(err, "cannot list %s", s.dir);
        free(s.dir);
        return rc;
    }
    int max_attempt = 0, rc = 0;
    if (d != NULL) {
        lf_epoch_log log;
        rc = lf_epoch_read(&log, s.dir, err); /* finishes a commit that a crash cut in half */
        if (rc == 0) {
            s.claimed = log.highest > 0;
            lf_epoch_fini(&log);
            rc = scan_entries(&s, d, &max_attempt, err);
        }
        closedir(d);
    }
    if (rc == 0 && max_attempt > 0) {
        s.attempts = lf_calloc((size_t)max_attempt, sizeof *s.attempts, err);
        rc = s.attempts == NULL ? LF_ENOMEM : 0;
        for (int i = 0; rc == 0 && i < max_attempt; i++) {
            char name[64];
            snprintf(name, sizeof name, "attempt.%d.json", i + 1);
            s.n_attempts = (size_t)i + 1;
            rc = load_record(&s.attempts[i], s.dir, name, err);
        }
    }
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
        json_decref(s->incs[i].claim);
        json_decref(s->incs[i].started);
        json_decref(s->incs[i].end);
        json_decref(s->incs[i].done);
    }
    for (size_t i = 0; i < s->n_attempts; i++)
        json_decref(s->attempts[i]);
    free(s->incs);
    free(s->attempts);
    free(s->deps);
    free(s->dir);
    free(s->result_dir);
    json_decref(s->own_done);
    json_decref(s->job);
    memset(s, 0, sizeof *s);
}

/* ---- results ---- */

/* LF_EFORMAT when a reader has marked it. */
static int check_mark(const char *dir, lf_err *err)
{
    json_t *mark = NULL;
    int rc = load_record(&mark, dir, LF_DAMAGED_FILE, err);
    const char *output = json_string_value(json_object_get(mark, "output")),
               *why = json_string_value(json_object_get(mark, "reason"));
    const char *reader = json_string_value(json_object_get(mark, "stage"));
    if (rc == 0 && mark != NULL)
        rc = lf_fail(err, LF_EFORMAT, "output %s is damaged, as stage %s found: %.300s",
                     output != NULL ? output : "?", reader != NULL ? reader : "?",
                     why != NULL ? why : "");
    json_decref(mark);
    return rc;
}

int lf_done_check_outputs(const json_t *done, const char *dir, lf_err *err)
{
    json_t *outputs = json_object_get(done, "outputs"), *o;
    const char *name;
    int rc = check_mark(dir, err);
    json_object_foreach(outputs, name, o)
    {
        const char *rel = json_string_value(json_object_get(o, "path"));
        if (rc < 0)
            break;
        if (rel == NULL || rel[0] == '/' || strstr(rel, "..") != NULL)
            return lf_fail(err, LF_EFORMAT, "%s/done.json: output %s has a bad path", dir, name);
        char *path = lf_path_join(dir, rel, err);
        if (path == NULL)
            return LF_ENOMEM;
        enum lf_artifact_state st = LF_ARTIFACT_ABSENT;
        lf_err e = LF_ERR_INIT;
        rc = lf_artifact_state(&st, path, &e);
        if (rc < 0)
            rc = lf_fail(err, rc, "%s", e.text);
        else if (st == LF_ARTIFACT_ABSENT)
            rc = lf_fail(err, LF_ENOENT, "output %s: its manifest is gone", name);
        else if (st == LF_ARTIFACT_PURGED)
            rc = lf_fail(err, LF_ENOENT, "output %s: %s", name, e.text);
        else if (st == LF_ARTIFACT_BROKEN)
            rc = lf_fail(err, LF_EFORMAT, "output %s: %s", name, e.text);
        free(path);
    }
    return rc;
}

static bool same_spec(const json_t *record, const char *spec_id)
{
    const char *s = json_string_value(json_object_get(record, "spec_id"));
    return s != NULL && strcmp(s, spec_id) == 0;
}

/* rerun_on = exe: the executable is part of what a result must match. */
static bool is_result(const json_t *done, const json_t *stage)
{
    const char *on = json_string_value(json_object_get(stage, "rerun_on"));
    if (done == NULL || !same_spec(done, json_string_value(json_object_get(stage, "spec_id"))))
        return false;
    return on == NULL || strcmp(on, "exe") != 0 ||
           json_equal(json_object_get(done, "exe_sha256"),
                      json_object_get(json_object_get(stage, "exe"), "sha256"));
}

static int adopted_result(lf_stage_view *s, const lf_run *run, const json_t *ad, lf_err *err)
{
    const char *id = json_string_value(json_object_get(ad, "run"));
    const char *stage = json_string_value(json_object_get(ad, "stage"));
    if (id == NULL || stage == NULL || strchr(id, '/') != NULL || strchr(stage, '/') != NULL)
        return lf_fail(err, LF_EFORMAT, "%s: bad adopted result", run->dir);
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s/runs/%s/%s/%d.%d", run->data, id, stage,
                (int)json_integer_value(json_object_get(ad, "attempt")),
                (int)json_integer_value(json_object_get(ad, "epoch")));
    s->result_dir = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    if (s->result_dir == NULL)
        return LF_ENOMEM;
    int rc = load_record(&s->own_done, s->result_dir, "done.json", err);
    s->result_done = s->own_done;
    return rc;
}

int lf_stage_result(lf_stage_view *s, const lf_run *run, lf_err *err)
{
    for (size_t i = s->n_incs; i-- > 0 && s->result == NULL;)
        if (is_result(s->incs[i].done, s->stage))
            s->result = &s->incs[i];
    const json_t *ad = json_object_get(s->stage, "adopted");
    int rc = 0;
    if (s->result != NULL) {
        s->result_dir = lf_strdup(s->result->dir, err);
        s->result_done = s->result->done;
        rc = s->result_dir == NULL ? LF_ENOMEM : 0;
    } else if (ad != NULL) {
        rc = adopted_result(s, run, ad, err);
    }
    if (rc < 0)
        return rc;
    if (s->result_dir == NULL)
        return 0;
    lf_err e = LF_ERR_INIT;
    rc = s->result_done == NULL ? lf_fail(&e, LF_ENOENT, "the marker of run %s is gone",
                                          json_string_value(json_object_get(ad, "run")))
                                : lf_done_check_outputs(s->result_done, s->result_dir, &e);
    if (rc == LF_EIO || rc == LF_ENOMEM)
        return lf_fail(err, rc, "%s", e.text);
    s->state = rc == 0 ? LF_STATE_DONE : LF_STATE_PURGED;
    snprintf(s->reason, sizeof s->reason, "%.390s", rc == 0 ? "" : e.text);
    lf_text_clean(s->reason);
    if (rc == 0 && s->result == NULL)
        snprintf(s->reason, sizeof s->reason, "result of run %.26s",
                 json_string_value(json_object_get(ad, "run")));
    return rc == 0 ? 1 : 0;
}

bool lf_spec_continues(const json_t *attempt, const json_t *stage, const json_t *accepted)
{
    if (same_spec(attempt, json_string_value(json_object_get(stage, "spec_id"))))
        return true;
    json_t *diff = lf_spec_diff(attempt, stage, NULL);
    bool ok = diff != NULL && json_array_size(diff) > 0;
    for (size_t i = 0; ok && i < json_array_size(diff); i++) {
        bool found = false;
        for (size_t k = 0; k < json_array_size(accepted); k++)
            found = found || json_equal(json_array_get(diff, i), json_array_get(accepted, k));
        ok = found;
    }
    json_decref(diff);
    return ok;
}

/* What one stage directory of an older run holds. */
static int add_results(lf_results *r, const lf_run *run, const lf_stage_view *s, lf_err *err)
{
    int rc = 0;
    for (size_t k = s->n_incs; rc == 0 && k-- > 0;) {
        const lf_start *inc = &s->incs[k];
        const char *id = json_string_value(json_object_get(inc->done, "spec_id"));
        if (id == NULL)
            continue;
        json_t *list = json_object_get(r->by_spec, id);
        if (list == NULL && json_object_set_new(r->by_spec, id, list = json_array()) < 0)
            return lf_fail(err, LF_ENOMEM, "out of memory");
        json_t *o = json_pack("{s:s, s:O, s:i, s:i, s:s, s:O}", "run", run->id, "stage",
                              json_object_get(s->stage, "name"), "attempt", inc->attempt, "epoch",
                              inc->epoch, "dir", inc->dir, "done", inc->done);
        rc = o == NULL || json_array_append_new(list, o) < 0
                 ? lf_fail(err, LF_ENOMEM, "out of memory")
                 : 0;
    }
    return rc;
}

static int read_next_run(lf_results *r, lf_err *err)
{
    lf_run run = r->runs->runs[r->next++];
    run.doc = NULL;
    if (run.data == NULL || strcmp(run.data, r->data) != 0 || lf_run_load(&run, NULL) < 0)
        return 0; /* an entry that was taken out of the list is empty */
    json_t *stages = json_object_get(run.doc, "stages");
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(stages); i++) {
        lf_stage_view s;
        if (lf_stage_scan(&s, run.dir, json_array_get(stages, i), NULL) < 0)
            continue;
        rc = add_results(r, &run, &s, err);
        lf_stage_scan_fini(&s);
    }
    json_decref(run.doc);
    return rc;
}

int lf_results_find(json_t **adopted, lf_results *r, const json_t *stage, lf_err *err)
{
    const char *id = json_string_value(json_object_get(stage, "spec_id"));
    *adopted = NULL;
    if (r->by_spec == NULL && (r->by_spec = json_object()) == NULL)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    for (size_t k = 0;;) {
        const json_t *list = json_object_get(r->by_spec, id);
        for (; k < json_array_size(list); k++) {
            const json_t *o = json_array_get(list, k), *done = json_object_get(o, "done");
            if (!is_result(done, stage) ||
                lf_done_check_outputs(done, json_string_value(json_object_get(o, "dir")), NULL) !=
                    0)
                continue;
            *adopted =
                json_pack("{s:O, s:O, s:O, s:O, s:s}", "run", json_object_get(o, "run"), "stage",
                          json_object_get(o, "stage"), "attempt", json_object_get(o, "attempt"),
                          "epoch", json_object_get(o, "epoch"), "spec_id", id);
            return *adopted != NULL ? 0 : lf_fail(err, LF_ENOMEM, "out of memory");
        }
        int rc = r->next < r->runs->n ? read_next_run(r, err) : 1;
        if (rc != 0)
            return rc < 0 ? rc : 0;
    }
}

void lf_results_fini(lf_results *r)
{
    json_decref(r->by_spec);
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

static void judge_end(lf_stage_view *s, const json_t *end)
{
    const char *state = json_string_value(json_object_get(end, "state"));
    const char *reason = json_string_value(json_object_get(end, "reason"));
    if (reason == NULL)
        reason = "";
    if (state != NULL && strcmp(state, "failed") == 0)
        say(s, LF_STATE_FAILED, "%.390s", reason);
    else if (state != NULL && strcmp(state, "cancelled") == 0)
        say(s, LF_STATE_CANCELLED, "%.390s", reason);
    else
        say(s, LF_STATE_PENDING, "%.390s", reason);
}

static void judge_process(lf_stage_view *s, const lf_start *inc)
{
    const json_t *wrapper = json_object_get(inc->claim, "process");
    enum lf_proc_state w = lf_who_look(wrapper);
    enum lf_proc_state c =
        inc->started != NULL ? lf_who_look(json_object_get(inc->started, "process")) : LF_PROC_GONE;
    const char *host = json_string_value(json_object_get(wrapper, "host"));
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
    char name[64];
    json_t *r = NULL;
    snprintf(name, sizeof name, "refused.%d.json", (int)s->n_attempts);
    load_record(&r, s->dir, name, NULL);
    const char *words = json_string_value(json_object_get(r, "words"));
    const char *needs = json_string_value(json_object_get(r, "needs"));
    if (needs != NULL)
        say(s, LF_STATE_WAITING, "waits for %.64s, which was not submitted either", needs);
    else if (words != NULL && json_is_true(json_object_get(r, "for_now")))
        say(s, LF_STATE_PENDING,
            "the scheduler would not take it yet: %.280s; resume submits it again", words);
    else if (words != NULL)
        say(s, LF_STATE_PENDING,
            "the scheduler refused it: %.260s; change what it asks for and resume", words);
    json_decref(r);
    return needs != NULL || words != NULL;
}

/* Only its scheduler can say more (sched.h). Until it does, it counts as alive: nothing is started
 * a second time. */
static void judge_batch(lf_stage_view *s, const json_t *attempt)
{
    char name[64];
    json_t *job = NULL;
    const char *backend = json_string_value(json_object_get(attempt, "backend"));
    snprintf(name, sizeof name, "job.%d.json", (int)s->n_attempts);
    int rc = load_record(&job, s->dir, name, NULL);
    s->live = true;
    if (job != NULL)
        say(s, LF_STATE_PENDING, "submitted to %.20s as job %.60s", backend,
            json_string_value(json_object_get(job, "id")));
    else if (rc < 0)
        say(s, LF_STATE_UNKNOWN, "%.300s/%s cannot be read", s->dir, name);
    else if (!lf_stage_refused(s))
        say(s, LF_STATE_PENDING, "%s", "being submitted, or its submission was cut short");
    json_decref(job);
}

bool lf_stage_skipped(lf_stage_view *s)
{
    char name[64];
    json_t *skip = NULL;
    const lf_start *last = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
    snprintf(name, sizeof name, "skip.%d.json", (int)s->n_attempts);
    load_record(&skip, s->dir, name, NULL);
    const char *reason = json_string_value(json_object_get(skip, "reason")),
               *cls = json_string_value(json_object_get(skip, "class"));
    double t = json_number_value(json_object_get(skip, "t"));
    bool counts = reason != NULL && cls != NULL && s->n_attempts > 0 &&
                  !(last != NULL && last->attempt == (int)s->n_attempts &&
                    json_number_value(json_object_get(last->claim, "t")) > t);
    if (counts && json_integer_value(json_object_get(skip, "exit")) == 1) {
        say(s, LF_STATE_FAILED, "%.390s", reason);
        snprintf(s->ended_class, sizeof s->ended_class, "%s", cls);
    } else if (counts) {
        say(s, LF_STATE_PENDING, "its job did not begin: %.350s", reason);
    }
    json_decref(skip);
    return counts;
}

static void judge_attempt(lf_stage_view *s, const json_t *attempt)
{
    const char *backend = json_string_value(json_object_get(attempt, "backend"));
    if (backend != NULL && strcmp(backend, "local") != 0) {
        judge_batch(s, attempt);
        return;
    }
    enum lf_proc_state st = lf_who_look(json_object_get(attempt, "submitter"));
    char name[64];
    json_t *job = NULL;
    snprintf(name, sizeof name, "job.%d.json", (int)s->n_attempts);
    if (load_record(&job, s->dir, name, NULL) == 0 && job != NULL)
        st = lf_who_look(json_object_get(job, "process"));
    json_decref(job);
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
    const char *blocked =
        wanting != NULL ? json_string_value(json_object_get(wanting->stage, "name")) : NULL;
    const lf_start *last = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
    int n = (int)s->n_attempts;
    const json_t *att = n > 0 ? s->attempts[n - 1] : NULL;
    bool current =
        att != NULL && same_spec(att, json_string_value(json_object_get(s->stage, "spec_id")));
    if (last != NULL && last->attempt == n && last->end == NULL && last->done == NULL)
        judge_process(s, last);
    else if (n > 0 && (last == NULL || last->attempt < n))
        judge_attempt(s, att);
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
    else if (json_object_get(run->doc, "rev") != NULL && lf_io_exists(run->dir) &&
             !lf_io_exists(s->dir))
        say(s, s->state, "its directory %.300s was removed; it is made again", s->dir);
}

static void find_resumable(lf_stage_view *s)
{
    for (size_t i = 0; i < s->n_incs && !s->resumable; i++) {
        const lf_start *inc = &s->incs[i];
        char out[PATH_MAX];
        snprintf(out, sizeof out, "%s/out", inc->dir);
        if ((size_t)inc->attempt <= s->n_attempts && lf_io_exists(out))
            s->resumable = lf_spec_continues(s->attempts[inc->attempt - 1], s->stage, NULL);
    }
}

const lf_stage_view *lf_view_undone(const lf_run_view *v, const lf_stage_view *s)
{
    for (size_t k = 0; k < s->n_deps; k++) {
        const lf_stage_view *d = &v->stages[s->deps[k]];
        if (d->stage != NULL && d->state != LF_STATE_DONE)
            return d;
    }
    return NULL;
}

static int find_deps(lf_stage_view *s, const lf_run_view *v, lf_err *err)
{
    json_t *deps = json_object_get(s->stage, "deps");
    s->deps = lf_calloc(json_array_size(deps) + 1, sizeof *s->deps, err);
    if (s->deps == NULL)
        return LF_ENOMEM;
    for (size_t k = 0; k < json_array_size(deps); k++) {
        size_t d = lf_names_find(&v->names, json_string_value(json_array_get(deps, k)), "");
        if (d != LF_NAMES_NONE)
            s->deps[s->n_deps++] = d;
    }
    return 0;
}

/* Read and judge stage i; those before it are judged already. */
static int load_stage(lf_run_view *v, size_t i, const lf_run *run, json_t *doc, lf_err *err)
{
    lf_stage_view *s = &v->stages[i];
    int rc = lf_stage_scan(s, run->dir, doc, err);
    if (rc == 0)
        rc = find_deps(s, v, err);
    if (rc < 0)
        return rc;
    rc = lf_stage_result(s, run, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (s->state != LF_STATE_PURGED) {
        judge(s, v);
        judge_removed(s, run);
        find_resumable(s);
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
    json_t *stages = json_object_get(run->doc, "stages");
    size_t n = json_array_size(stages);
    v.stages = lf_calloc(n + 1, sizeof *v.stages, err);
    int rc = v.stages == NULL ? LF_ENOMEM : lf_names_of_stages(&v.names, run->doc, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        v.n = i + 1;
        rc = load_stage(&v, i, run, json_array_get(stages, i), err);
    }
    if (rc < 0) {
        lf_view_fini(&v);
        return rc;
    }
    v.run = *run;
    memset(run, 0, sizeof *run);
    *out = v;
    return 0;
}

int lf_view_reload(lf_run_view *v, size_t i, lf_err *err)
{
    json_t *doc = v->stages[i].stage;
    lf_stage_scan_fini(&v->stages[i]);
    return load_stage(v, i, &v->run, doc, err);
}

void lf_view_fini(lf_run_view *v)
{
    for (size_t i = 0; i < v->n; i++)
        lf_stage_scan_fini(&v->stages[i]);
    free(v->stages);
    lf_names_fini(&v->names);
    lf_run_fini(&v->run);
    memset(v, 0, sizeof *v);
}

lf_stage_view *lf_view_stage(const lf_run_view *v, const char *name)
{
    size_t i = lf_names_find(&v->names, name, "");
    return i < v->n ? &v->stages[i] : NULL;
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
                     (s->state != LF_STATE_PURGED || s->needed);
        for (size_t k = 0; k < s->n_deps; k++) {
            lf_stage_view *d = &v->stages[s->deps[k]];
            d->has_reader = true;
            d->needed = d->needed || makes;
        }
    }
}
