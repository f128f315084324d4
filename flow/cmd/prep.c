/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing the run a pipeline belongs to, and the states of its stages under the settings of now.
 */
#include "config.h"

#include "flow/cmd/prep.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/lock.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/cmd/cmd.h"
#include "flow/plan/pipeline_priv.h"
#include "flow/plan/spec.h"
#include "flow/record/record.h"
#include "flow/run/freeze.h"
#include "flow/run/gone.h"

#define INI_MAX_BYTES ((size_t)16 << 20)

/* ---- the document ---- */

static int load_pipeline(lf_prep *p, const lf_prep_args *a, const char *path, lf_err *err)
{
    char *models = lf_cmd_model_dir();
    lf_pipeline_args pa = {.path = path,
                           .tables = a->tables,
                           .sets = a->sets,
                           .n_sets = a->n_sets,
                           .model_dir = models};
    int rc = lf_pipeline_load(&p->pipeline, &pa, err);
    free(models);
    if (rc < 0)
        return rc;
    p->has_pipeline = true;
    p->doc = json_incref(p->pipeline.doc);
    lf_buf b;
    lf_buf_init(&b);
    rc = lf_conf_print(&p->pipeline.conf, true, &b, err);
    p->ini_text = rc == 0 ? lf_buf_steal(&b, err) : NULL;
    lf_buf_fini(&b);
    return rc == 0 && p->ini_text == NULL ? LF_ENOMEM : rc;
}

static int finish_document(lf_prep *p, const lf_prep_args *a, lf_err *err)
{
    char cache[PATH_MAX];
    int rc = p->has_project ? lf_path_set(cache, err, "%s/hashcache.json", p->project.dot) : 0;
    if (rc == 0)
        rc = lf_spec_assign(p->doc, p->pipeline.project, p->has_project ? cache : NULL, err);
    if (rc == 0)
        rc = lf_exe_describe(p->doc, a->exe_missing_ok, err);
    return rc;
}

/* ---- the run ---- */

/* The same names with the same spec ids: the same work, perhaps under other operational
 * settings. */
static bool same_work(const json_t *a, const lf_names *names_of_a, const json_t *b)
{
    json_t *sb = json_object_get(b, "stages");
    if (json_array_size(sb) != json_array_size(json_object_get(a, "stages")))
        return false;
    for (size_t i = 0; i < json_array_size(sb); i++) {
        const json_t *x = json_array_get(sb, i),
                     *y = lf_names_stage(names_of_a, a, json_object_get(x, "name"));
        if (y == NULL || !json_equal(json_object_get(x, "spec_id"), json_object_get(y, "spec_id")))
            return false;
    }
    return true;
}

/* What of a document makes a revision: everything but where it was written, when, and what was
 * asked about cost. */
static json_t *essence(const json_t *doc)
{
    static const char *const head[] = {"lf_plan", "run",  "rev",     "project_id", "created",
                                       "user",    "host", "version", "description"};
    static const char *const stage[] = {"path", "line", "column", "plan", "estimate_s"};
    json_t *c = json_deep_copy(doc), *stages = json_object_get(c, "stages");
    for (size_t i = 0; i < sizeof head / sizeof head[0]; i++)
        json_object_del(c, head[i]);
    for (size_t i = 0; i < json_array_size(stages); i++)
        for (size_t k = 0; k < sizeof stage / sizeof stage[0]; k++)
            json_object_del(json_array_get(stages, i), stage[k]);
    return c;
}

static bool same_revision(const json_t *a, const json_t *b)
{
    json_t *x = essence(a), *y = essence(b);
    bool same = x != NULL && y != NULL && json_equal(x, y) == 1;
    json_decref(x);
    json_decref(y);
    return same;
}

static int set_previous(lf_prep *p, json_t *doc, lf_err *err)
{
    lf_names_fini(&p->previous_names);
    json_decref(p->previous);
    p->previous = json_incref(doc);
    return lf_names_of_stages(&p->previous_names, doc, err);
}

/* The newest run of this name in this data root, when it is the same work: 1, else 0. */
static int find_own_run(lf_run *out, lf_prep *p, lf_run_list *runs, const char *data, lf_err *err)
{
    for (size_t i = 0; i < runs->n; i++) {
        lf_run *r = &runs->runs[i];
        if (strcmp(r->data, data) != 0 || lf_run_load(r, NULL) < 0 ||
            !json_equal(json_object_get(r->doc, "name"), json_object_get(p->doc, "name")))
            continue;
        int rc = set_previous(p, r->doc, err);
        if (rc < 0 || !same_work(r->doc, &p->previous_names, p->doc))
            return rc;
        *out = *r;
        memset(r, 0, sizeof *r);
        return 1;
    }
    return 0;
}

/* Results of other runs for stages that have none of their own here. */
static int adopt_results(lf_prep *p, const lf_run_list *runs, const lf_run *run,
                         const json_t *old_doc, lf_err *err)
{
    json_t *stages = json_object_get(p->doc, "stages");
    lf_results results = {.runs = runs, .data = run->data};
    lf_names names = {NULL, 0, 0};
    int rc = lf_names_of_stages(&names, old_doc, err);
    for (size_t i = 0; rc == 0 && i < json_array_size(stages); i++) {
        json_t *st = json_array_get(stages, i);
        lf_stage_view s;
        rc = lf_stage_scan(&s, run->dir, st, err);
        if (rc < 0)
            break;
        json_t *old = lf_names_stage(&names, old_doc, json_object_get(st, "name")),
               *ad = json_object_get(old, "adopted");
        if (ad != NULL &&
            json_equal(json_object_get(ad, "spec_id"), json_object_get(st, "spec_id")))
            rc = lf_json_set_new(st, "adopted", json_incref(ad), err);
        if (rc == 0)
            rc = lf_stage_result(&s, run, err);
        json_t *found = NULL;
        if (rc == 0) /* 1: done here, or taken over before */
            rc = lf_results_find(&found, &results, st, err);
        if (found != NULL && strcmp(json_string_value(json_object_get(found, "run")), run->id) != 0)
            rc = lf_json_set_new(st, "adopted", found, err);
        else
            json_decref(found);
        rc = rc > 0 ? 0 : rc;
        lf_stage_scan_fini(&s);
    }
    lf_results_fini(&results);
    lf_names_fini(&names);
    return rc;
}

/* A run that does not exist yet: a directory name where nothing is. */
static int imaginary_run(lf_run *out, const char *data, lf_err *err)
{
    memset(out, 0, sizeof *out);
    out->data = lf_strdup(data, err);
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s/runs/new", data);
    out->dir = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return out->data != NULL && out->dir != NULL ? 0 : LF_ENOMEM;
}

static int choose_run(lf_prep *p, const lf_prep_args *a, lf_err *err)
{
    const char *data_dir = json_string_value(json_object_get(p->doc, "data_dir"));
    lf_run run;
    memset(&run, 0, sizeof run);
    lf_run_list runs = {NULL, 0, 0};
    json_t *old_doc = NULL;
    char *data = p->has_project ? lf_project_data(&p->project, data_dir, err)
                                : lf_strdup("/nonexistent", err);
    int rc = data == NULL ? LF_ENOMEM : 0;
    if (rc == 0 && p->has_project)
        rc = lf_run_list_load(&runs, &p->project, err);
    lf_err gone = LF_ERR_INIT;
    if (rc == 0 && p->has_project && !a->resume && lf_gone_data(&p->project, &gone) < 0)
        lf_say_err(
            "loong-flow: %s\n",
            gone.text); /* all is made again, perhaps below a place where nothing is mounted */
    if (rc == 0 && a->resume) {
        rc = lf_run_find(&run, &p->project, a->run_word, err);
        p->has_run = rc == 0;
        if (rc == 0 && strcmp(run.data, data) != 0)
            rc = lf_fail(err, LF_EINVAL,
                         "data_dir = %s: run %s lies in %s; a run cannot be moved by resuming it",
                         data_dir, run.id, run.data);
    } else if (rc == 0 && !a->fresh_run) {
        rc = find_own_run(&run, p, &runs, data, err);
        p->has_run = rc == 1;
        rc = rc > 0 ? 0 : rc;
    }
    if (rc == 0 && !p->has_run)
        rc = imaginary_run(&run, data, err);
    if (rc == 0) {
        old_doc = run.doc;
        run.doc = NULL;
        bool isolated = a->fresh_run || json_is_true(json_object_get(old_doc, "isolated"));
        if (isolated) /* --new: everything is made afresh, also when the run is continued later */
            rc = lf_json_set_new(p->doc, "isolated", json_true(), err);
        else
            rc = adopt_results(p, &runs, &run, old_doc, err);
    }
    if (rc == 0) {
        p->changed = old_doc == NULL || !same_revision(old_doc, p->doc);
        run.doc = json_incref(p->doc);
        rc = lf_view_load(&p->view, &run, err);
    }
    json_decref(old_doc);
    lf_run_fini(&run);
    lf_run_list_fini(&runs);
    free(data);
    return rc;
}

/* ---- resume without an INI file ---- */

static int frozen_document(lf_prep *p, const lf_run *run, lf_err *err)
{
    char path[PATH_MAX];
    lf_buf b;
    lf_buf_init(&b);
    p->doc = json_incref(run->doc);
    int rc = lf_path_set(path, err, "%s/rev.%d/pipeline.ini", run->dir, run->rev);
    if (rc == 0)
        rc = lf_io_read_file(path, INI_MAX_BYTES, &b, err);
    p->ini_text = rc == 0 ? lf_buf_steal(&b, err) : NULL;
    lf_buf_fini(&b);
    return rc == 0 && p->ini_text == NULL ? LF_ENOMEM : rc;
}

static int resume_source(lf_prep *p, const lf_prep_args *a, lf_err *err)
{
    lf_run run;
    memset(&run, 0, sizeof run);
    char *root = NULL;
    int rc = a->project != NULL ? 0 : lf_project_find(&root, ".", err);
    if (rc == 0)
        rc = lf_project_open(&p->project, a->project != NULL ? a->project : root, false, err);
    free(root);
    if (rc < 0)
        return rc;
    p->has_project = true;
    rc = lf_run_find(&run, &p->project, a->run_word, err);
    if (rc < 0)
        return rc;
    char path[PATH_MAX];
    const char *file = json_string_value(json_object_get(run.doc, "pipeline"));
    rc = lf_path_set(path, err, "%s/%s", p->project.root, file != NULL ? file : "pipeline.ini");
    const char *use = a->pipeline != NULL ? a->pipeline : path;
    if (rc == 0 && (a->pipeline != NULL || lf_io_exists(use)))
        rc = load_pipeline(p, a, use, err);
    else if (rc == 0 && a->n_sets > 0)
        rc = lf_fail(err, LF_EINVAL, "--set needs the pipeline file, and %s is gone", use);
    else if (rc == 0)
        rc = frozen_document(p, &run, err);
    lf_run_fini(&run);
    return rc;
}

int lf_prep_make(lf_prep *out, const lf_prep_args *args, lf_err *err)
{
    lf_prep p;
    memset(&p, 0, sizeof p);
    p.fresh_run = args->fresh_run;
    p.tables = args->tables;
    int rc = 0;
    if (args->resume) {
        rc = resume_source(&p, args, err);
    } else {
        rc = load_pipeline(&p, args, args->pipeline, err);
        lf_err e = LF_ERR_INIT;
        int prc = rc == 0 ? lf_project_open(&p.project, p.pipeline.project, args->create, &e) : rc;
        p.has_project = prc == 0;
        if (rc == 0 && prc < 0 && (args->create || prc != LF_ENOENT))
            rc = lf_fail(err, prc, "%s", e.text);
    }
    if (rc == 0 && p.has_pipeline)
        rc = finish_document(&p, args, err);
    if (rc == 0)
        rc = choose_run(&p, args, err);
    if (rc < 0)
        lf_prep_fini(&p);
    else
        *out = p;
    return rc;
}

void lf_prep_fini(lf_prep *p)
{
    lf_view_fini(&p->view);
    json_decref(p->doc);
    json_decref(p->previous);
    lf_names_fini(&p->previous_names);
    json_decref(p->rates);
    free(p->ini_text);
    lf_pipeline_fini(&p->pipeline);
    lf_project_fini(&p->project);
    memset(p, 0, sizeof *p);
}

/* A new run that could not be frozen: nothing of it is worth anything. gc finds what cannot be
 * removed. */
static void take_back(const lf_run *run)
{
    char hint[PATH_MAX], plan[PATH_MAX];
    if (lf_path_set(plan, NULL, "%s/rev.1/plan.json", run->dir) < 0 || lf_io_exists(plan))
        return; /* it was written, only not synced */
    lf_io_remove_tree(run->dir, NULL);
    if (lf_path_set(hint, NULL, "%s/changed/%s", run->data, run->id) == 0)
        unlink(hint);
}

static int commit(lf_prep *p, lf_err *err)
{
    const char *data_dir = json_string_value(json_object_get(p->doc, "data_dir"));
    const char *share = json_string_value(json_object_get(p->doc, "share"));
    int rc = lf_share_apply(share != NULL ? share : "none", err);
    if (rc == 0 && p->has_run)
        rc = lf_run_check_owner(&p->view.run, err);
    if (rc == 0)
        rc = lf_project_share(&p->project, share != NULL ? share : "none", err);
    if (rc < 0)
        return rc;
    lf_run run;
    memset(&run, 0, sizeof run);
    if (!p->has_run) {
        rc = lf_project_add_root(&p->project, data_dir, err);
        if (rc == 0)
            rc = lf_run_create(&run, &p->project, data_dir, share != NULL ? share : "none", err);
    } else {
        memcpy(run.id, p->view.run.id, sizeof run.id);
        run.rev = p->view.run.rev;
        run.dir = lf_strdup(p->view.run.dir, err);
        run.data = lf_strdup(p->view.run.data, err);
        run.doc = json_incref(p->doc);
        rc = run.dir != NULL && run.data != NULL ? 0 : LF_ENOMEM;
    }
    if (rc == 0 && (!p->has_run || p->changed))
        rc = lf_run_freeze(&run, &p->project, p->doc, p->ini_text, err);
    lf_run_view view;
    if (rc == 0)
        rc = lf_view_load(&view, &run, err);
    if (rc < 0) {
        if (!p->has_run && run.dir != NULL && run.rev == 0)
            take_back(&run);
        lf_run_fini(&run);
        return rc;
    }
    lf_view_fini(&p->view);
    p->view = view;
    p->has_run = true;
    p->changed = false;
    return 0;
}

/* Of two commands that both found no run of this work, the second is told of the first's. Called
 * under the lock. */
static int check_first(lf_prep *p, lf_err *err)
{
    lf_run_list runs;
    lf_run run;
    memset(&run, 0, sizeof run);
    int rc = lf_run_list_load(&runs, &p->project, err);
    if (rc < 0)
        return rc;
    char *data =
        lf_project_data(&p->project, json_string_value(json_object_get(p->doc, "data_dir")), err);
    rc = data == NULL ? LF_ENOMEM : set_previous(p, NULL, err);
    if (rc == 0)
        rc = find_own_run(&run, p, &runs, data, err);
    if (rc > 0)
        rc = lf_fail(
            err, LF_EBUSY,
            "another loong-flow has made run %s for the same work just now; follow it with watch",
            run.id);
    free(data);
    lf_run_fini(&run);
    lf_run_list_fini(&runs);
    return rc;
}

/* What runs is executed from the project's runs, so they must be mine, or of whom I trust with the
 * pipeline file. */
static int check_project_owner(const lf_prep *p, lf_err *err)
{
    struct stat dot, ini;
    uid_t trusted[1] = {geteuid()};
    const char *why = NULL;
    if (lstat(p->project.dot, &dot) < 0)
        return lf_fail_errno(err, "%s", p->project.dot);
    if (p->has_pipeline && stat(p->pipeline.path, &ini) == 0)
        trusted[0] = ini.st_uid; /* it was checked when it was read */
    if (lf_owner_allowed(dot.st_uid, dot.st_mode, geteuid(), trusted, 1, &why))
        return 0;
    return lf_fail(err, LF_EINVAL, "%s: refused: %s (owner uid %u, mode %04o)", p->project.dot, why,
                   (unsigned)dot.st_uid, (unsigned)dot.st_mode & 07777u);
}

int lf_prep_commit(lf_prep *p, lf_err *err)
{
    lf_lock_opts opts = {.purpose = "loong-flow", .wait_s = 60, .ttl_s = 0};
    char path[PATH_MAX];
    int rc = check_project_owner(p, err);
    if (rc == 0)
        rc = lf_path_set(path, err, "%s/submit.lock", p->project.dot);
    lf_lock *lock = rc == 0 ? lf_lock_acquire(path, &opts, err) : NULL;
    if (lock == NULL)
        return rc < 0 ? rc : err != NULL && err->rc != 0 ? err->rc : LF_EBUSY;
    if (!p->has_run && !p->fresh_run)
        rc = check_first(p, err);
    if (rc == 0)
        rc = commit(p, err);
    lf_lock_release(lock);
    return rc;
}

/* ---- why ---- */

static void explain_change(const lf_prep *p, const lf_stage_view *s, const json_t *accepted,
                           char *text, size_t cap)
{
    json_t *att = s->n_attempts > 0 ? s->attempts[s->n_attempts - 1] : NULL;
    json_t *old = att != NULL ? att
                              : lf_names_stage(&p->previous_names, p->previous,
                                               json_object_get(s->stage, "name"));
    json_t *diff = old != NULL ? lf_spec_diff(old, s->stage, NULL) : NULL;
    if (diff == NULL || json_array_size(diff) == 0) {
        snprintf(text, cap, "%s%s%s", s->n_attempts == 0 ? "it has not run yet" : "",
                 s->n_attempts == 0 && s->reason[0] != '\0' ? "; " : "", s->reason);
        json_decref(diff);
        return;
    }
    lf_buf b;
    lf_buf_init(&b);
    for (size_t i = 0; i < json_array_size(diff); i++)
        lf_buf_addf(&b, "%s%s", i > 0 ? ", " : "", json_string_value(json_array_get(diff, i)));
    if (att == NULL)
        snprintf(text, cap, "changed since the last run: %s", b.data);
    else
        snprintf(text, cap, "changed since attempt %zu: %s; %s", s->n_attempts, b.data,
                 lf_spec_continues(att, s->stage, accepted)
                     ? "accepted, so it continues from its checkpoint"
                     : "it starts over (--accept KEY would continue from its checkpoint)");
    lf_buf_fini(&b);
    json_decref(diff);
}

void lf_prep_explain(const lf_prep *p, const lf_stage_view *s, const json_t *accepted,
                     bool *will_run, char *text, size_t cap)
{
    *will_run =
        s->state != LF_STATE_DONE && s->state != LF_STATE_RUNNING && s->state != LF_STATE_UNKNOWN;
    switch (s->state) {
    case LF_STATE_DONE:
        snprintf(text, cap, "done: marker, spec id and files are there%s%s",
                 s->reason[0] != '\0' ? "; " : "", s->reason);
        break;
    case LF_STATE_RUNNING:
        snprintf(text, cap, "it is running%s%s", s->reason[0] != '\0' ? ": " : "", s->reason);
        break;
    case LF_STATE_UNKNOWN:
        snprintf(text, cap, "its state is unknown: %s", s->reason);
        break;
    case LF_STATE_PURGED:
        snprintf(text, cap, "its result is not whole any more: %s", s->reason);
        break;
    case LF_STATE_FAILED:
    case LF_STATE_CANCELLED:
        snprintf(text, cap, "it %s: %s%s", s->state == LF_STATE_FAILED ? "failed" : "was cancelled",
                 s->reason, s->resumable ? "; continues from what is there" : "");
        break;
    case LF_STATE_WAITING:
    case LF_STATE_PENDING:
        explain_change(p, s, accepted, text, cap);
        break;
    }
}
