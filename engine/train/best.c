/* SPDX-License-Identifier: Apache-2.0
 *
 * The best validation: its weights are kept apart, and a run may end when none better comes.
 *
 * Kept is OUT/best-step-N, one for each best so far; at the end that of the best becomes OUT/best
 * and the others go. One that was replaced goes earlier, once a checkpoint that knows its successor
 * is complete: a run that is killed before goes on from one that may still name it.
 */
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
#include "engine/train/loop_priv.h"

#define PREFIX "best-step-"

bool lf_train_out_of_patience(const lf_trainer *t)
{
    return t->c->patience > 0 && t->s.stale >= t->c->patience;
}

static char *dir_of(const lf_trainer *t, int64_t step, lf_err *err)
{
    char name[40];
    snprintf(name, sizeof(name), PREFIX "%08lld", (long long)step);
    return lf_path_join(t->c->out, name, err);
}

/* Remove the kept ones of other steps than `but`; none once a newer start has begun. What that one
 * has taken stays whatever this one removes here (flow/run/handover.h), but a start of another
 * attempt that it did not take for may still be the one to go on from. */
static int prune(const lf_trainer *t, int64_t but, lf_err *err)
{
    DIR *d = opendir(t->c->out);
    int rc = d ? 0 : lf_fail_errno(err, "%s", t->c->out);
    for (struct dirent *e; rc == 0 && (errno = 0, e = readdir(d));) {
        char *end, *path;
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        const long long step = strtoll(e->d_name + strlen(PREFIX), &end, 10);
        if (*end || step == but || lf_fence_closed())
            continue;
        path = lf_path_join(t->c->out, e->d_name, err);
        rc = path ? lf_artifact_remove(path, err) : LF_ENOMEM;
        free(path);
    }
    if (d)
        closedir(d);
    return rc;
}

/* One that is there already was left by the same run when it was killed later: these are its
 * bits. */
static int keep(lf_trainer *t, int64_t before, lf_err *err)
{
    enum lf_artifact_state st = LF_ARTIFACT_ABSENT;
    const int64_t saved = t->run.saved_step;
    const double last = t->run.last_save;
    char *dir = dir_of(t, t->s.step, err);
    int rc = dir ? lf_run_save_wait(&t->run, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_artifact_state(&st, dir, err);
    const int64_t known = t->run.saved_step > saved ? t->run.saved_step : saved;
    if (rc == 0 && before > 0 && known >= before)
        rc = prune(t, before, err);
    if (rc == 0 && st != LF_ARTIFACT_PRESENT)
        rc = lf_train_save_begin(t, dir, NULL, err);
    if (rc == 0)
        rc = lf_run_save_wait(&t->run, err);
    t->run.saved_step = known; /* nobody goes on from it */
    t->run.last_save = last;
    free(dir);
    return rc;
}

int lf_train_best(lf_trainer *t, const struct lf_train_step *st, lf_err *err)
{
    const double score = t->c->best_by_accuracy ? -st->valid_accuracy : st->valid_loss;
    const int64_t before = t->s.best_step;
    if (t->s.best_score <= score) {
        if (++t->s.stale == t->c->patience)
            lf_train_log(t, 2, "no better validation than that of step %lld for %lld: the end",
                         (long long)before, (long long)t->s.stale);
        return 0;
    }
    t->s.best_score = score;
    t->s.best_step = t->s.step;
    t->s.stale = 0;
    if (!t->c->keep_best)
        return 0;
    int rc = lf_train_replicas(t, err);
    if (rc == 0 && lf_train_first_rank(t))
        rc = keep(t, before, err);
    return lf_train_agree(t, rc, err);
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
static int find_kept(const lf_trainer *t, char **from, bool *whole, lf_err *err)
{
    char name[40];
    *from = NULL;
    *whole = false;
    snprintf(name, sizeof(name), PREFIX "%08lld", (long long)t->s.best_step);
    for (size_t i = t->c->n_resume_from + 1; i-- > 0;) {
        const char *dir = i < t->c->n_resume_from ? t->c->resume_from[i] : t->c->out;
        for (int published = 0; published < 2; published++) {
            char *path = lf_path_join(dir, published ? "best" : name, err);
            if (!path)
                return LF_ENOMEM;
            if (is_of_step(path, t->s.best_step)) {
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
static int publish(const lf_trainer *t, const char *from, bool whole, const char *to, lf_err *err)
{
    const struct lf_merge_opts mo = {
        .base = t->c->init_from, .adapter = from, .out = to, .threads = t->c->threads};
    const size_t n = strlen(t->c->out);
    if (t->c->adapter && !whole)
        return lf_adapter_merge(&mo, NULL, err);
    if (strncmp(from, t->c->out, n) != 0 ||
        from[n] != '/') /* an earlier start's stays where it is */
        return lf_artifact_take(from, to, NULL, err);
    if (rename(from, to) != 0)
        return lf_fail_errno(err, "%s", to);
    return lf_io_fsync_parent(to, err);
}

int lf_train_publish_best(lf_trainer *t, lf_err *err)
{
    enum lf_artifact_state there = LF_ARTIFACT_ABSENT;
    if (!t->c->keep_best || t->s.best_step < 1)
        return 0;
    if (lf_fence_closed()) /* what is renamed is no longer where a claim says it is */
        return lf_fail(err, LF_EINTR, "the best is not published: a newer start has begun");
    char *from = NULL, *to = lf_path_join(t->c->out, "best", err);
    bool whole;
    int rc = to ? lf_artifact_state(&there, to, err) : LF_ENOMEM;
    if (rc == 0 && there != LF_ARTIFACT_PRESENT)
        rc = find_kept(t, &from, &whole, err);
    if (rc == 0 && there != LF_ARTIFACT_PRESENT && !from)
        lf_train_log(t, 1,
                     "there is no %s: what the best validation, after step %lld, had kept is gone",
                     to, (long long)t->s.best_step);
    else if (rc == 0 && there != LF_ARTIFACT_PRESENT)
        rc = publish(t, from, whole, to, err);
    if (rc == 0)
        rc = prune(t, -1, err);
    free(from);
    free(to);
    return rc;
}
