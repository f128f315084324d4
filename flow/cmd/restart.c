/* SPDX-License-Identifier: Apache-2.0
 *
 * Which saved steps an edited file gives up: see restart.h.
 */
#include "config.h"

#include "flow/cmd/restart.h"

#include <ctype.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "flow/plan/spec.h"
#include "flow/record/record.h"

#define MODEL "model."

/* The number at the end of a name, -1: it has none. */
static int64_t number_at_end(const char *path)
{
    const char *end = path + strlen(path), *p = end;
    while (p > path && isdigit((unsigned char)p[-1]))
        p--;
    return p < end ? (int64_t)strtoll(p, NULL, 10) : -1;
}

/* A directory counts once it is an artifact, a file at once. */
static bool whole(const char *path)
{
    char manifest[PATH_MAX];
    struct stat st;
    if (stat(path, &st) != 0)
        return false;
    return !S_ISDIR(st.st_mode) ||
           (lf_path_set(manifest, NULL, "%s/manifest.json", path) == 0 && lf_io_exists(manifest));
}

/* The highest number among what a start hands over: checkpoints have their steps in their names. */
static int64_t carried_step(const lf_stage_view *s, const lf_start *inc)
{
    int64_t step = -1;
    for (size_t i = 0; i < s->plan->carry.n; i++) {
        char pattern[PATH_MAX];
        glob_t g = {.gl_pathc = 0};
        if (lf_path_set(pattern, NULL, "%s/out/%s", inc->dir, s->plan->carry.v[i].pattern) < 0)
            continue;
        if (glob(pattern, GLOB_NOSORT, NULL, &g) == 0)
            for (size_t k = 0; k < g.gl_pathc; k++) {
                const int64_t n = number_at_end(g.gl_pathv[k]);
                step = n > step && whole(g.gl_pathv[k]) ? n : step;
            }
        globfree(&g);
    }
    return step;
}

/* The last step that a start has saved, -1: none. A start that ended in a mess has saved what its
 * record does not know. */
static int64_t saved_step(const lf_stage_view *s, const lf_start *inc)
{
    const int64_t told = inc->end != NULL ? inc->end->step : -1;
    const int64_t carried = carried_step(s, inc);
    return told > carried ? told : carried;
}

/* Has somebody said since then that the stage shall begin anew with the settings of now? */
static bool begun_anew(const lf_stage_view *s, int attempt)
{
    for (size_t i = (size_t)attempt; i < s->n_attempts; i++)
        if (s->attempts[i] != NULL && s->attempts[i]->fresh &&
            lf_text_same(s->attempts[i]->spec_id, s->plan->spec_id))
            return true;
    return false;
}

/* The newest start that has saved something, NULL: none. *from: the furthest step of an earlier
 * start that can be gone on from. */
static const lf_start *last_saved(int64_t *saved, int64_t *from, const lf_stage_view *s,
                                  const lf_texts *accepted)
{
    const lf_start *last = NULL;
    *saved = *from = 0;
    for (size_t i = s->n_incs; i-- > 0;) {
        const int64_t step = saved_step(s, &s->incs[i]);
        const struct lf_attempt_rec *att = lf_attempt_of(s, &s->incs[i]);
        if (step <= 0 || att == NULL)
            continue;
        if (last == NULL) {
            last = &s->incs[i];
            *saved = step;
        }
        if (step > *from && lf_spec_continues(att, s->plan, accepted))
            *from = step;
    }
    return last;
}

static int add_place(lf_restart *r, const lf_restart_args *a, const lf_stage_view *s,
                     const char *key, lf_err *err)
{
    char place[600] = "";
    const lf_conf_item *it = a->pipeline == NULL ? NULL
                             : lf_str_has_prefix(key, MODEL)
                                 ? lf_pipeline_model_key(a->pipeline, s->plan, key + strlen(MODEL))
                                 : lf_pipeline_option(a->pipeline, s->plan, key);
    if (it != NULL && it->line > 0)
        snprintf(place, sizeof place, "%s:%d", it->path, it->line);
    else if (it != NULL)
        snprintf(place, sizeof place, "%s", it->path);
    return lf_texts_add(&r->places, place, err);
}

static bool would_run(const lf_stage_view *s)
{
    return s->n_incs > 0 && s->state != LF_STATE_DONE && s->state != LF_STATE_ENDED &&
           s->state != LF_STATE_RUNNING && s->state != LF_STATE_UNKNOWN;
}

/* Would the result of another run stand for it from now on? What it has saved is left then. */
static bool would_take(const lf_restart_args *a, const lf_stage_view *s)
{
    const lf_doc_stage *before = lf_doc_find(a->before, s->plan->name);
    const bool already =
        before != NULL && before->adopted.given && lf_text_same(before->spec_id, s->plan->spec_id);
    return s->n_incs > 0 && s->state == LF_STATE_DONE && s->result == NULL &&
           s->plan->adopted.given && !already;
}

static int look_at(lf_restarts *out, const lf_restart_args *a, const lf_stage_view *s, lf_err *err)
{
    int64_t saved = 0, from = 0;
    const bool taken = would_take(a, s);
    const lf_start *last = taken || would_run(s) ? last_saved(&saved, &from, s, a->accepted) : NULL;
    if (last == NULL || from >= saved || (last->done != NULL && (taken || !a->done_too)) ||
        begun_anew(s, last->attempt))
        return 0;
    lf_restart *r = lf_rows_add(out, sizeof *r, err);
    if (r == NULL)
        return LF_ENOMEM;
    const lf_doc_stage *before = lf_doc_find(a->before, s->plan->name);
    r->stage = s->plan->name;
    r->saved = saved;
    r->from = from;
    r->taken = taken;
    r->steps = before != NULL ? (int64_t)before->plan.steps.v : 0;
    int rc = lf_spec_diff(&r->changed, &lf_attempt_of(s, last)->spec, s->plan, err);
    for (size_t i = 0; rc == 0 && i < r->changed.n; i++)
        rc = add_place(r, a, s, r->changed.v[i], err);
    return rc;
}

int lf_restarts_find(lf_restarts *out, const lf_restart_args *a, lf_err *err)
{
    int rc = 0;
    *out = (lf_restarts){.given = true};
    for (size_t i = 0; rc == 0 && i < a->view->n; i++)
        rc = look_at(out, a, &a->view->stages[i], err);
    if (rc < 0)
        lf_restarts_fini(out);
    return rc;
}

void lf_restarts_fini(lf_restarts *r)
{
    for (size_t i = 0; i < r->n; i++) {
        lf_texts_fini(&r->v[i].changed);
        lf_texts_fini(&r->v[i].places);
    }
    free(r->v);
    memset(r, 0, sizeof *r);
}

const lf_restart *lf_restarts_of(const lf_restarts *r, const char *stage)
{
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->v[i].stage, stage) == 0)
            return &r->v[i];
    return NULL;
}

/* A model of another shape takes no checkpoint of the old one. */
static bool acceptable(const lf_restart *r)
{
    bool ok = r->changed.n > 0;
    for (size_t i = 0; i < r->changed.n; i++)
        ok = ok && !lf_str_has_prefix(r->changed.v[i], MODEL) &&
             strcmp(r->changed.v[i], "kind") != 0 && strcmp(r->changed.v[i], "spec_version") != 0;
    return ok;
}

void lf_restart_word(lf_buf *out, const lf_restart *r)
{
    for (size_t i = 0; i < r->changed.n; i++) {
        lf_buf_addf(out, "%s%s",
                    i == 0                 ? ""
                    : i + 1 < r->changed.n ? ", "
                                           : " and ",
                    r->changed.v[i]);
        if (r->places.v[i][0] != '\0')
            lf_buf_addf(out, " (%s)", r->places.v[i]);
    }
    lf_buf_addf(out, " changed: %s would ", r->stage);
    if (r->taken)
        lf_buf_adds(out, "take over the result of another run");
    else if (r->from > 0)
        lf_buf_addf(out, "go back to step %lld", (long long)r->from);
    else
        lf_buf_adds(out, "start over");
    lf_buf_addf(out, " and lose %lld", (long long)(r->saved - r->from));
    if (r->steps > 0)
        lf_buf_addf(out, " of %lld", (long long)r->steps);
    lf_buf_adds(out, " steps; ");
    if (r->taken) {
        lf_buf_addf(
            out,
            "the settings of before (--set, or the file) continue from step %lld, --restart "
            "takes the result",
            (long long)r->saved);
        return;
    }
    for (size_t i = 0; acceptable(r) && i < r->changed.n; i++)
        lf_buf_addf(out, "--accept %s%s", r->changed.v[i],
                    i + 1 < r->changed.n ? " " : " continues from step ");
    if (acceptable(r))
        lf_buf_addf(out, "%lld, ", (long long)r->saved);
    lf_buf_adds(out, "--restart starts over");
}

/* ---- --accept ---- */

/* Every setting in which an attempt of a stage differs from the plan. */
static int all_changes(lf_texts *out, const lf_run_view *v, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < v->n; i++)
        for (size_t k = 0; rc == 0 && k < v->stages[i].n_attempts; k++) {
            const struct lf_attempt_rec *att = v->stages[i].attempts[k];
            lf_texts diff = {.n = 0};
            if (att != NULL && !lf_text_same(att->spec_id, v->stages[i].plan->spec_id))
                rc = lf_spec_diff(&diff, &att->spec, v->stages[i].plan, err);
            for (size_t j = 0; rc == 0 && j < diff.n; j++)
                rc = lf_texts_has(out, diff.v[j]) ? 0 : lf_texts_add(out, diff.v[j], err);
            lf_texts_fini(&diff);
        }
    return rc;
}

static int not_changed(const char *key, const lf_texts *changed, lf_err *err)
{
    const char *near = lf_nearest(key, (const char *const *)changed->v, changed->n);
    if (changed->n == 0)
        return lf_fail(
            err, LF_EINVAL,
            "--accept %s: no setting of a stage that has begun has changed; leave it out", key);
    if (near != NULL)
        return lf_fail(err, LF_EINVAL, "--accept %s: that has not changed; did you mean %s?", key,
                       near);
    lf_buf b;
    lf_buf_init(&b);
    for (size_t i = 0; i < changed->n; i++)
        lf_buf_addf(&b, "%s%s", i > 0 ? ", " : "", changed->v[i]);
    int rc = lf_fail(err, LF_EINVAL, "--accept %s: that has not changed; changed: %s", key, b.data);
    lf_buf_fini(&b);
    return rc;
}

int lf_restart_check_accepted(const lf_restart_args *a, lf_err *err)
{
    if (a->accepted == NULL || a->accepted->n == 0)
        return 0;
    lf_texts changed = {.n = 0};
    int rc = a->view != NULL ? all_changes(&changed, a->view, err) : 0;
    for (size_t i = 0; rc == 0 && i < a->accepted->n; i++)
        if (!lf_texts_has(&changed, a->accepted->v[i]))
            rc = not_changed(a->accepted->v[i], &changed, err);
    lf_texts_fini(&changed);
    return rc;
}
