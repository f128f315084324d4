/* SPDX-License-Identifier: Apache-2.0
 *
 * The best measurement and its weights: see best.h.
 */
#include "engine/train/best.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/fence.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/model/merge.h"

#define PREFIX "best-step-"

/* ---- what is best ---- */

struct lf_best lf_best_start(void)
{
    return (struct lf_best){.score = NAN};
}

bool lf_best_take(struct lf_best *b, double value, bool higher, int64_t step)
{
    const double score = higher ? -value : value;
    if (!isfinite(score) || b->score <= score) {
        b->stale++;
        return false;
    }
    *b = (struct lf_best){.score = score, .step = step};
    return true;
}

int lf_best_to_json(const struct lf_best *b, json_t *state)
{
    json_t *score = isfinite(b->score) ? json_real(b->score) : json_null();
    return json_object_set_new(state, "best_score", score) ||
                   json_object_set_new(state, "best_step", json_integer(b->step)) ||
                   json_object_set_new(state, "stale", json_integer(b->stale))
               ? -1
               : 0;
}

int lf_best_tell_end(const struct lf_best *b, const struct lf_best_end *e, json_t *state)
{
    return json_object_set_new(state, LF_CKPT_IMPATIENT,
                               json_pack("{s:I,s:I,s:s,s:s,s:s,s:I,s:I}", "at", (json_int_t)e->at,
                                         "of", (json_int_t)e->of, "unit", e->unit, "metric",
                                         e->metric, "measurements", e->measurements, "stale",
                                         (json_int_t)b->stale, "best_step", (json_int_t)b->step));
}

struct lf_best lf_best_of(json_t *state)
{
    const json_t *score = json_object_get(state, "best_score");
    return (struct lf_best){.score = json_is_number(score) ? json_number_value(score) : (double)NAN,
                            .step = json_integer_value(json_object_get(state, "best_step")),
                            .stale = json_integer_value(json_object_get(state, "stale"))};
}

/* ---- its weights ---- */

static char *dir_of(const lf_run *r, int64_t step, lf_err *err)
{
    char name[40];
    snprintf(name, sizeof(name), PREFIX "%08lld", (long long)step);
    return lf_path_join(r->c.out, name, err);
}

/* Remove the kept ones of other steps than `but`; none once a newer start has begun. What that one
 * has taken stays whatever this one removes here (flow/run/handover.h), but a start of another
 * attempt that it did not take for may still be the one to go on from. */
static int prune(const lf_run *r, int64_t but, lf_err *err)
{
    DIR *d = opendir(r->c.out);
    int rc = d ? 0 : lf_fail_errno(err, "%s", r->c.out);
    for (struct dirent *e; rc == 0 && (errno = 0, e = readdir(d));) {
        char *end, *path;
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        const long long step = strtoll(e->d_name + strlen(PREFIX), &end, 10);
        if (*end || step == but || lf_fence_closed())
            continue;
        path = lf_path_join(r->c.out, e->d_name, err);
        rc = path ? lf_artifact_remove(path, err) : LF_ENOMEM;
        free(path);
    }
    if (d)
        closedir(d);
    return rc;
}

/* One that is there already was left by the same run when it was killed later: these are its
 * bits. */
int lf_best_keep(lf_run *r, int rc, const struct lf_best *b, int64_t before, const json_t *state,
                 lf_err *err)
{
    enum lf_artifact_state st = LF_ARTIFACT_ABSENT;
    const int64_t saved = r->saved_step;
    const double last = r->last_save;
    char *dir = dir_of(r, b->step, err);
    const int waited = lf_run_save_wait(r, false, rc != 0 ? NULL : err);
    rc = rc != 0 ? rc : waited != 0 ? waited : dir ? 0 : LF_ENOMEM;
    const int64_t known = r->saved_step > saved ? r->saved_step : saved;
    if (lf_run_first(r)) {
        if (rc == 0)
            rc = lf_artifact_state(&st, dir, err);
        if (rc == 0 && before > 0 && known >= before)
            rc = prune(r, before, err);
    }
    rc = lf_run_save_at(r, rc, st == LF_ARTIFACT_PRESENT ? NULL : dir, state, err);
    r->saved_step = known; /* nobody goes on from it */
    r->last_save = last;
    free(dir);
    return rc;
}

/* Is dir the checkpoint of this step? */
static bool is_of_step(const char *dir, int64_t step)
{
    enum lf_artifact_state st = LF_ARTIFACT_ABSENT;
    lf_artifact a = {0};
    int64_t is = -1;
    if (lf_artifact_state(&st, dir, NULL) || st != LF_ARTIFACT_PRESENT ||
        lf_artifact_load(&a, dir, "checkpoint", NULL))
        return false;
    const bool same = !lf_json_get_i64(&is, a.meta, "step", true, dir, NULL) && is == step;
    lf_artifact_fini(&a);
    return same;
}

/* Where the best of this run is kept: in out, or in what an earlier start left, which may have
 * published it already (*whole: as OUT/best is). *from: owned, NULL: nowhere. */
static int find_kept(const lf_run *r, int64_t step, char **from, bool *whole, lf_err *err)
{
    char name[40];
    *from = NULL;
    *whole = false;
    snprintf(name, sizeof(name), PREFIX "%08lld", (long long)step);
    for (size_t i = r->c.n_resume_from + 1; i-- > 0;) {
        const char *dir = i < r->c.n_resume_from ? r->c.resume_from[i] : r->c.out;
        for (int published = 0; published < 2; published++) {
            char *path = lf_path_join(dir, published ? "best" : name, err);
            if (!path)
                return LF_ENOMEM;
            if (is_of_step(path, step)) {
                *from = path;
                *whole = published;
                return 0;
            }
            free(path);
        }
    }
    return 0;
}

/* With an adapter the model that it makes of its base, as out/checkpoint is. */
static int publish(const lf_run *r, const char *from, bool whole, const char *to, lf_err *err)
{
    const struct lf_merge_opts mo = {
        .base = r->c.init_from, .adapter = from, .out = to, .threads = r->c.threads};
    const size_t n = strlen(r->c.out);
    if (r->c.adapter && !whole)
        return lf_adapter_merge(&mo, NULL, err);
    if (strncmp(from, r->c.out, n) != 0 ||
        from[n] != '/') /* an earlier start's stays where it is */
        return lf_artifact_take(from, to, NULL, err);
    if (rename(from, to) != 0)
        return lf_fail_errno(err, "%s", to);
    return lf_io_fsync_parent(to, err);
}

int lf_best_publish(lf_run *r, const struct lf_best *b, lf_err *err)
{
    enum lf_artifact_state there = LF_ARTIFACT_ABSENT;
    if (b->step < 1)
        return 0;
    if (lf_fence_closed()) /* what is renamed is no longer where a claim says it is */
        return lf_fail(err, LF_EINTR, "the best is not published: a newer start has begun");
    char *from = NULL, *to = lf_path_join(r->c.out, "best", err);
    bool whole;
    int rc = to ? lf_artifact_state(&there, to, err) : LF_ENOMEM;
    if (rc == 0 && there != LF_ARTIFACT_PRESENT)
        rc = find_kept(r, b->step, &from, &whole, err);
    if (rc == 0 && there != LF_ARTIFACT_PRESENT && !from)
        lf_run_log(r, 1, "there is no %s: the weights of the best, after step %lld, are gone", to,
                   (long long)b->step);
    else if (rc == 0 && there != LF_ARTIFACT_PRESENT)
        rc = publish(r, from, whole, to, err);
    if (rc == 0)
        rc = prune(r, -1, err);
    free(from);
    free(to);
    return rc;
}

int lf_best_in_place(const lf_run *r, lf_err *err)
{
    enum lf_artifact_state there = LF_ARTIFACT_ABSENT;
    char *path = lf_path_join(r->c.out, "best", err);
    int rc = path ? lf_artifact_state(&there, path, err) : LF_ENOMEM;
    if (rc == 0 && there != LF_ARTIFACT_PRESENT)
        rc = lf_fail(err, LF_EINVAL,
                     "%s/checkpoint is in place, made without keep_best: there is no %s; use "
                     "another out, or remove it",
                     r->c.out, path);
    free(path);
    return rc;
}
