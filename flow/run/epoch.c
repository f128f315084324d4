/* SPDX-License-Identifier: Apache-2.0
 *
 * Claims and commits as a log of hard links; see epoch.h for the invariants.
 */
#include "config.h"

#include "flow/run/epoch.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/fence.h"
#include "engine/base/io.h"
#include "engine/base/str.h"

#define EPOCH_MAX 1000000

static int epoch_path(char out[PATH_MAX], const char *stage_dir, int epoch, lf_err *err)
{
    if (snprintf(out, PATH_MAX, "%s/epoch.%d", stage_dir, epoch) >= PATH_MAX)
        return lf_fail(err, LF_EINVAL, "%s: the path is too long", stage_dir);
    return 0;
}

/* No gaps, so the highest is found by doubling and halving without trusting a cached directory
 * listing. */
static int find_highest(int *out, const char *stage_dir, lf_err *err)
{
    char path[PATH_MAX];
    int lo = 0, hi = 1;
    for (;;) {
        int rc = epoch_path(path, stage_dir, hi, err);
        if (rc < 0)
            return rc;
        if (!lf_io_exists(path))
            break;
        lo = hi;
        hi *= 2;
        if (hi > EPOCH_MAX)
            return lf_fail(err, LF_EFORMAT, "%s: more than %d epochs", stage_dir, EPOCH_MAX);
    }
    while (hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;
        epoch_path(path, stage_dir, mid, err);
        if (lf_io_exists(path))
            lo = mid;
        else
            hi = mid;
    }
    *out = lo;
    return 0;
}

/* Finish a commit whose writer died between its two links. */
static void repair_done(const char *stage_dir, int highest, const struct lf_claim *record)
{
    char from[PATH_MAX], to[PATH_MAX];
    if (epoch_path(from, stage_dir, highest, NULL) < 0 ||
        snprintf(to, sizeof to, "%s/%d.%d/done.json", stage_dir, record->attempt, record->epoch) >=
            (int)sizeof to)
        return;
    if (!lf_io_exists(to) &&
        link(from, to) == 0) /* a read-only project, or a purged directory, is left as it is */
        lf_io_fsync_parent(to, NULL);
}

int lf_epoch_read(lf_epoch_log *out, const char *stage_dir, lf_err *err)
{
    lf_epoch_log l = {0, NULL};
    int rc = find_highest(&l.highest, stage_dir, err);
    if (rc < 0 || l.highest == 0) {
        if (rc == 0)
            *out = l;
        return rc;
    }
    rc = lf_claim_load(&l.last, stage_dir, l.highest, err);
    if (rc == 0 && l.last == NULL)
        rc = lf_fail(err, LF_ENOENT, "%s: epoch.%d is gone", stage_dir, l.highest);
    if (rc < 0)
        return rc;
    if (l.last->lf_done != 0)
        repair_done(stage_dir, l.highest, l.last);
    *out = l;
    return 0;
}

void lf_epoch_fini(lf_epoch_log *l)
{
    lf_claim_free(l->last);
    l->last = NULL;
    l->highest = 0;
}

static bool record_there(const char *stage_dir, int e)
{
    char path[PATH_MAX];
    return epoch_path(path, stage_dir, e, NULL) == 0 && lf_io_exists(path);
}

/* May the attempt claim the number behind this record? *epoch is that number. */
static int may_claim(int *epoch, const char *stage_dir, int attempt, const char *spec_id,
                     lf_err *err)
{
    lf_epoch_log l;
    int rc = lf_epoch_read(&l, stage_dir, err);
    if (rc < 0)
        return rc;
    *epoch = l.highest + 1;
    const struct lf_claim *last = l.last;
    if (last != NULL && last->lf_done != 0 && last->attempt == attempt && last->spec_id != NULL &&
        strcmp(last->spec_id, spec_id) == 0)
        rc = lf_fail(err, LF_EEXIST, "%s: committed already", stage_dir);
    else if (last != NULL && last->attempt > attempt)
        rc = lf_fail(err, LF_EBUSY, "%s: attempt %d has begun, so attempt %d is given up",
                     stage_dir, last->attempt, attempt);
    lf_epoch_fini(&l);
    return rc;
}

int lf_epoch_claim(struct lf_claim *claim, const char *stage_dir, const char *spec_id,
                   const lf_epoch_hooks *hooks, lf_err *err)
{
    claim->kind = "claim";
    for (int tries = 0; tries < 1000; tries++) {
        int rc = may_claim(&claim->epoch, stage_dir, claim->attempt, spec_id, err);
        if (rc == 0 && hooks != NULL)
            rc = hooks->prepare(hooks->user, claim->epoch - 1, claim, err);
        if (rc < 0)
            return rc;
        lf_err local = LF_ERR_INIT;
        rc = lf_claim_publish(stage_dir, claim, &local);
        if (rc == 0)
            return 0;
        /* An error behind the link leaves a claim that stands, and that names what was taken. */
        if (hooks != NULL && (rc == LF_EEXIST || !record_there(stage_dir, claim->epoch)))
            hooks->drop(hooks->user);
        if (rc != LF_EEXIST)
            return lf_fail(err, rc, "%s", local.text);
    }
    return lf_fail(err, LF_EBUSY, "%s: cannot claim an epoch; others are faster every time",
                   stage_dir);
}

int lf_epoch_commit(const char *stage_dir, const struct lf_done *done, lf_err *err)
{
    const int attempt = done->attempt, epoch = done->epoch;
    lf_err local = LF_ERR_INIT;
    int rc = lf_done_publish(stage_dir, done, &local);
    if (rc == LF_EEXIST)
        return lf_fail(err, LF_EBUSY,
                       "%s: epoch %d exists, so epoch %d of attempt %d may no longer publish",
                       stage_dir, epoch + 1, epoch, attempt);
    if (rc < 0)
        return lf_fail(err, rc, "%s", local.text);
    char from[PATH_MAX], to[PATH_MAX];
    rc = epoch_path(from, stage_dir, epoch + 1, err);
    if (rc < 0)
        return rc;
    if (snprintf(to, sizeof to, "%s/%d.%d/done.json", stage_dir, attempt, epoch) >= (int)sizeof to)
        return lf_fail(err, LF_EINVAL, "%s: the path is too long", stage_dir);
    if (link(from, to) < 0 && errno != EEXIST)
        return lf_fail_errno(err, "cannot publish %s", to);
    return lf_io_fsync_parent(to, err);
}

int lf_epoch_superseded(const char *stage_dir, int epoch)
{
    char path[PATH_MAX];
    return epoch_path(path, stage_dir, epoch + 1, NULL) == 0 && lf_fence_there(path);
}
