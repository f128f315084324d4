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
#include "engine/base/lock.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/cmd/cmd.h"
#include "flow/plan/settle.h"
#include "flow/plan/spec.h"
#include "flow/plan/sweep.h"
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
                           .model_dir = models,
                           .warnings = &p->warnings};
    p->warnings.given = true;
    int rc = lf_pipeline_load(&p->pipeline, &pa, err);
    free(models);
    if (rc < 0)
        return rc;
    p->has_pipeline = true;
    p->plan = lf_doc_hold(p->pipeline.plan);
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
        rc = lf_spec_assign(p->plan, p->pipeline.project, p->has_project ? cache : NULL, err);
    if (rc == 0)
        rc = lf_exe_describe(p->plan, a->exe_missing_ok, err);
    return rc;
}

/* ---- the run ---- */

/* The same names with the same spec ids: the same work, perhaps under other operational
 * settings. */
static bool same_work(const lf_doc *a, const lf_doc *b)
{
    if (a->stages.n != b->stages.n)
        return false;
    for (size_t i = 0; i < b->stages.n; i++) {
        const lf_doc_stage *x = &b->stages.v[i], *y = lf_doc_find(a, x->name);
        if (y == NULL || strcmp(x->frozen_id, y->frozen_id) != 0)
            return false;
    }
    return true;
}

static void set_previous(lf_prep *p, lf_doc *plan)
{
    lf_doc_free(p->previous);
    p->previous = plan != NULL ? lf_doc_hold(plan) : NULL;
}

/* The run under the new plan, which is not its own: what of it would be continued? */
static int look_at_other(lf_prep *p, lf_run *run, lf_err *err)
{
    lf_doc *theirs = lf_doc_hold(run->plan);
    lf_view_fini(&p->other);
    lf_run_take_plan(run, lf_doc_hold(p->plan));
    int rc = lf_view_load_copy(&p->other, run, err);
    lf_run_take_plan(run, theirs);
    return rc;
}

static lf_restart_args restart_args(const lf_prep *p, const lf_texts *accepted)
{
    return (lf_restart_args){.view = p->other.n > 0 ? &p->other : &p->view,
                             .pipeline = p->has_pipeline ? &p->pipeline : NULL,
                             .before = p->previous,
                             .accepted = accepted,
                             .done_too = p->other.n == 0};
}

/* Is there something in the other run that is lost otherwise, and was a setting accepted for it?
 * 1, else 0. */
static int continues_other(const lf_prep *p, const lf_texts *accepted, lf_err *err)
{
    lf_restarts lost;
    const lf_restart_args a = restart_args(p, NULL);
    int rc = accepted != NULL && accepted->n > 0 ? lf_restarts_find(&lost, &a, err) : 0;
    if (rc < 0 || accepted == NULL || accepted->n == 0)
        return rc;
    rc = lost.n > 0;
    lf_restarts_fini(&lost);
    return rc;
}

/* The newest run of this name in this data root, when it is the same work, or when what is accepted
 * continues it: 1, else 0. */
static int find_own_run(lf_run *out, lf_prep *p, lf_run_list *runs, const char *data,
                        const lf_texts *accepted, lf_err *err)
{
    for (size_t i = 0; i < runs->n; i++) {
        lf_run *r = &runs->runs[i];
        if (strcmp(r->data, data) != 0 || lf_run_load(r, NULL) < 0 ||
            strcmp(r->plan->name, p->plan->name) != 0)
            continue;
        set_previous(p, r->plan);
        int rc = 1;
        if (!same_work(r->plan, p->plan))
            rc = look_at_other(p, r, err) < 0 ? err->rc : continues_other(p, accepted, err);
        if (rc != 1)
            return rc;
        lf_view_fini(&p->other);
        *out = *r;
        memset(r, 0, sizeof *r);
        return 1;
    }
    return 0;
}

static int no_stage(const lf_doc *plan, const char *name, lf_err *err)
{
    const char *names[512], *near;
    size_t n = 0;
    for (; n < plan->stages.n && n < sizeof names / sizeof names[0]; n++)
        names[n] = plan->stages.v[n].name;
    near = lf_nearest(name, names, n);
    return lf_fail(err, LF_ENOENT, "there is no stage \"%s\" in the pipeline%s%s%s", name,
                   near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                   near != NULL ? "?" : "");
}

/* What is forced, and what needs it, takes over nothing; also when the run is continued later. */
static int isolate_forced(lf_doc *plan, const lf_prep_args *a, lf_err *err)
{
    for (size_t i = 0; i < a->n_force; i++) {
        bool any = false;
        for (size_t k = 0; k < plan->stages.n; k++) {
            lf_doc_stage *st = &plan->stages.v[k];
            if (lf_sweep_named(st->name, a->force[i])) {
                st->isolated = lf_flag_of(true);
                any = true;
            }
        }
        if (!any)
            return no_stage(plan, a->force[i], err);
    }
    for (size_t i = 0; i < plan->stages.n; i++) { /* in running order */
        lf_doc_stage *st = &plan->stages.v[i];
        for (size_t k = 0; k < st->deps.n; k++) {
            const lf_doc_stage *dep = lf_doc_find(plan, st->deps.v[k]);
            if (dep != NULL && dep->isolated.v)
                st->isolated = lf_flag_of(true);
        }
    }
    return 0;
}

/* The result of another run for a stage that has none of its own here. */
static int adopt_result(lf_doc_stage *st, lf_results *results, const lf_run *run, const lf_doc *old,
                        lf_err *err)
{
    lf_stage_view s;
    int rc = lf_stage_scan(&s, run->dir, st, err);
    if (rc < 0)
        return rc;
    const lf_doc_stage *before = lf_doc_find(old, st->name);
    lf_adopted found = {.given = false};
    if (before != NULL && before->isolated.v)
        st->isolated = before->isolated;
    if (st->isolated.v) {
        lf_stage_scan_fini(&s);
        return 0;
    }
    if (before != NULL && before->adopted.given &&
        lf_text_same(before->adopted.spec_id, st->spec_id)) {
        lf_adopted_fini(&st->adopted);
        rc = lf_adopted_copy(&st->adopted, &before->adopted, err);
    }
    if (rc == 0)
        rc = lf_stage_result(&s, run, err);
    st->ended_at_step = lf_done_ended_at(s.result_done);
    if (rc == 0) /* 1: done here, or taken over before */
        rc = lf_results_find(&found, results, st, err);
    free(st->elsewhere);
    st->elsewhere = NULL;
    if (rc == 0 && !found.given && s.n_incs == 0)
        rc = lf_results_early(&st->elsewhere, results, st, err);
    if (found.given && strcmp(found.run, run->id) != 0) {
        lf_adopted_fini(&st->adopted);
        st->adopted = found;
    } else {
        lf_adopted_fini(&found);
    }
    lf_stage_scan_fini(&s);
    return rc > 0 ? 0 : rc;
}

static int adopt_results(lf_prep *p, const lf_run_list *runs, const lf_run *run, const lf_doc *old,
                         lf_err *err)
{
    lf_results results = {.runs = runs, .data = run->data};
    const lf_doc *plan = p->plan;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < plan->stages.n; i++) {
        rc = lf_spec_settle(&plan->stages.v[i], plan, err);
        if (rc == 0)
            rc = adopt_result(&plan->stages.v[i], &results, run, old, err);
    }
    lf_results_fini(&results);
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
    const char *data_dir = p->plan->data_dir;
    lf_run run;
    memset(&run, 0, sizeof run);
    lf_run_list runs = {NULL, 0, 0};
    lf_doc *old = NULL;
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
                         data_dir, lf_run_label(&run), run.data);
        if (rc == 0)
            set_previous(p, run.plan);
    } else if (rc == 0 && !p->fresh_run) {
        rc = find_own_run(&run, p, &runs, data, a->accepted, err);
        p->has_run = rc == 1;
        rc = rc > 0 ? 0 : rc;
    }
    if (rc == 0 && !p->has_run)
        rc = imaginary_run(&run, data, err);
    if (rc == 0)
        rc = isolate_forced(p->plan, a, err);
    if (rc == 0) {
        old = run.plan;
        run.plan = NULL;
        if (old != NULL) /* a run that goes on keeps its name */
            rc = lf_text_set(&p->plan->short_name, old->short_name, "short_name", err);
        if (rc < 0)
            goto out;
        if (a->fresh_run || (old != NULL && old->isolated.v))
            /* --new: everything is made afresh, also when the run is continued later */
            p->plan->isolated = lf_flag_of(true);
        else
            rc = adopt_results(p, &runs, &run, old, err);
    }
    if (rc == 0) {
        p->changed = old == NULL || !lf_doc_same(old, p->plan);
        lf_run_take_plan(&run, lf_doc_hold(p->plan));
        rc = lf_view_load(&p->view, &run, err);
    }
    const lf_restart_args ra = restart_args(p, a->accepted);
    if (rc == 0)
        rc = lf_restarts_find(&p->restarts, &ra, err);
out:
    lf_doc_free(old);
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
    p->plan = lf_doc_hold(run->plan);
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
    const char *file = run.plan->pipeline;
    /* Messages name the file as its user would. */
    bool here = getcwd(path, sizeof path) != NULL && strcmp(path, p->project.root) == 0;
    rc = lf_path_set(path, err, "%s%s%s", here ? "" : p->project.root, here ? "" : "/",
                     file != NULL ? file : "pipeline.ini");
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

/* A stage that is done is not made again because an option asks for one more output, such as
 * keep_best, which is part of no spec id. Whoever reads that output would fail when it starts. */
static int check_output(const lf_prep *p, const lf_stage_view *s, const lf_doc_input *in,
                        const lf_doc_ref *ref, lf_err *err)
{
    const lf_stage_view *up = lf_view_stage(&p->view, ref->stage);
    if (up == NULL || up->state != LF_STATE_DONE || up->result_done == NULL ||
        lf_done_output(up->result_done, ref->output) != NULL)
        return 0;
    const lf_conf_item *it =
        p->has_pipeline ? lf_pipeline_option(&p->pipeline, s->plan, in->option) : NULL;
    lf_err e = LF_ERR_INIT;
    int rc = lf_fail(&e, LF_EINVAL,
                     "%s = ${stage:%s.%s}: stage %s is done and made no %s, which was not asked of "
                     "it then; `loong-flow rerun %s` makes it again",
                     in->option, ref->stage, ref->output, ref->stage, ref->output, ref->stage);
    return it != NULL ? lf_conf_fail(it, err, "%s", e.text) : lf_fail(err, rc, "%s", e.text);
}

static int check_outputs(const lf_prep *p, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->view.n; i++) {
        const lf_stage_view *s = &p->view.stages[i];
        if (s->state == LF_STATE_DONE || s->state == LF_STATE_ENDED)
            continue;
        for (size_t k = 0; rc == 0 && k < s->plan->inputs.n; k++) {
            const lf_doc_input *in = &s->plan->inputs.v[k];
            for (size_t j = 0; rc == 0 && j < in->refs.n; j++)
                rc = check_output(p, s, in, &in->refs.v[j], err);
        }
    }
    return rc;
}

int lf_prep_make(lf_prep *out, const lf_prep_args *args, lf_err *err)
{
    lf_prep p;
    memset(&p, 0, sizeof p);
    p.fresh_run = args->fresh_run || args->n_force > 0;
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
    if (rc == 0)
        rc = check_outputs(&p, err);
    if (rc < 0)
        lf_prep_fini(&p);
    else
        *out = p;
    return rc;
}

void lf_prep_fini(lf_prep *p)
{
    lf_restarts_fini(&p->restarts);
    lf_view_fini(&p->other);
    lf_view_fini(&p->view);
    lf_doc_free(p->plan);
    lf_doc_free(p->previous);
    for (size_t i = 0; i < p->rates.n; i++)
        free(p->rates.v[i].kind);
    free(p->rates.v);
    lf_texts_fini(&p->warnings);
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
    const char *data_dir = p->plan->data_dir;
    const char *share = p->plan->share;
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
        lf_run_take_plan(&run, lf_doc_hold(p->plan));
        rc = run.dir != NULL && run.data != NULL ? 0 : LF_ENOMEM;
    }
    if (rc == 0 && (!p->has_run || p->changed))
        rc = lf_run_freeze(&run, &p->project, p->plan, p->ini_text, err);
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
    char *data = lf_project_data(&p->project, p->plan->data_dir, err);
    set_previous(p, NULL);
    rc = data == NULL ? LF_ENOMEM : find_own_run(&run, p, &runs, data, NULL, err);
    if (rc > 0)
        rc = lf_fail(
            err, LF_EBUSY,
            "another loong-flow has made run %s for the same work just now; follow it with watch",
            lf_run_label(&run));
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

int lf_prep_check_accepted(const lf_prep *p, const lf_texts *accepted, lf_err *err)
{
    const lf_restart_args a = restart_args(p, accepted);
    return lf_restart_check_accepted(&a, err);
}

/* ---- why ---- */

/* What an attempt, or the last run, was made with and the plan has otherwise. */
static int changes(lf_texts *out, const lf_prep *p, const lf_stage_view *s,
                   const struct lf_attempt_rec *attempt)
{
    const lf_doc_stage *old = lf_doc_find(p->previous, s->plan->name);
    const lf_spec *had = attempt != NULL ? &attempt->spec : old != NULL ? &old->spec : NULL;
    *out = (lf_texts){.n = 0};
    return had != NULL ? lf_spec_diff(out, had, s->plan, NULL) : 0;
}

static void explain_change(const lf_prep *p, const lf_stage_view *s, const lf_texts *accepted,
                           char *text, size_t cap)
{
    const struct lf_attempt_rec *att = lf_attempt_newest(s);
    lf_texts diff;
    const lf_restart *lost = lf_restarts_of(&p->restarts, s->plan->name);
    if (lost != NULL) {
        lf_buf b;
        lf_buf_init(&b);
        lf_restart_word(&b, lost);
        snprintf(text, cap, "%s", b.data);
        lf_buf_fini(&b);
        return;
    }
    if (changes(&diff, p, s, att) < 0 || diff.n == 0) {
        const char *elsewhere = s->n_attempts == 0 ? s->plan->elsewhere : NULL;
        snprintf(text, cap, "%s%s%s%s%s",
                 s->n_attempts > 0         ? ""
                 : s->plan->isolated.given ? "it is made again, as asked"
                                           : "it has not run yet",
                 s->n_attempts == 0 && s->reason[0] != '\0' ? "; " : "", s->reason,
                 elsewhere != NULL ? "; " : "", elsewhere != NULL ? elsewhere : "");
        return;
    }
    lf_buf b;
    lf_buf_init(&b);
    for (size_t i = 0; i < diff.n; i++)
        lf_buf_addf(&b, "%s%s", i > 0 ? ", " : "", diff.v[i]);
    if (att == NULL)
        snprintf(text, cap, "changed since the last run: %s", b.data);
    else
        snprintf(text, cap, "changed since attempt %zu: %s; %s", s->n_attempts, b.data,
                 lf_spec_continues(att, s->plan, accepted)
                     ? "accepted, so it continues from its checkpoint"
                     : "it starts over, and nothing that was saved is lost");
    lf_buf_fini(&b);
    lf_texts_fini(&diff);
}

void lf_prep_explain(const lf_prep *p, const lf_stage_view *s, const lf_texts *accepted,
                     bool *will_run, char *text, size_t cap)
{
    *will_run = s->state != LF_STATE_DONE && s->state != LF_STATE_ENDED &&
                s->state != LF_STATE_RUNNING && s->state != LF_STATE_UNKNOWN;
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
    case LF_STATE_ENDED:
        snprintf(text, cap, "%s", s->reason);
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
