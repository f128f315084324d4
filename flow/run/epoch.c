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
#include "engine/base/json.h"
#include "engine/base/str.h"

#define EPOCH_MAX        1000000
#define RECORD_MAX_BYTES ((size_t)64 << 20) /* a claim lists what may be gone on from */

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

static bool is_commit(const json_t *record)
{
    return json_object_get(record, "lf_done") != NULL;
}

/* Finish a commit whose writer died between its two links. */
static void repair_done(const char *stage_dir, int highest, const json_t *record)
{
    char from[PATH_MAX], to[PATH_MAX];
    if (epoch_path(from, stage_dir, highest, NULL) < 0 ||
        snprintf(to, sizeof to, "%s/%d.%d/done.json", stage_dir,
                 (int)json_integer_value(json_object_get(record, "attempt")),
                 (int)json_integer_value(json_object_get(record, "epoch"))) >= (int)sizeof to)
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
    char path[PATH_MAX];
    epoch_path(path, stage_dir, l.highest, err);
    l.last = lf_json_load_file(path, RECORD_MAX_BYTES, err);
    if (l.last == NULL)
        return err != NULL && err->rc != 0 ? err->rc : LF_EFORMAT;
    if (is_commit(l.last))
        repair_done(stage_dir, l.highest, l.last);
    *out = l;
    return 0;
}

void lf_epoch_fini(lf_epoch_log *l)
{
    json_decref(l->last);
    l->last = NULL;
    l->highest = 0;
}

/* One attempt to take epoch `e`: LF_EEXIST when somebody has it. */
static int link_record(const char *stage_dir, int e, const json_t *record, lf_err *err)
{
    char path[PATH_MAX];
    int rc = epoch_path(path, stage_dir, e, err);
    char *text = rc == 0 ? lf_json_dump(record, err) : NULL;
    if (text == NULL)
        return rc < 0 ? rc : LF_ENOMEM;
    rc = lf_io_publish(path, text, strlen(text), 0640, err);
    free(text);
    return rc;
}

static bool record_there(const char *stage_dir, int e)
{
    char path[PATH_MAX];
    return epoch_path(path, stage_dir, e, NULL) == 0 && lf_io_exists(path);
}

/* The claim's text: what the caller says of itself, and what hooks add. */
static int make_claim(json_t **out, int attempt, int e, const json_t *record,
                      const lf_epoch_hooks *hooks, lf_err *err)
{
    json_t *claim = json_deep_copy(record);
    int rc = claim == NULL || json_object_set_new(claim, "lf_epoch", json_integer(1)) < 0 ||
                     json_object_set_new(claim, "kind", json_string("claim")) < 0 ||
                     json_object_set_new(claim, "attempt", json_integer(attempt)) < 0 ||
                     json_object_set_new(claim, "epoch", json_integer(e)) < 0
                 ? lf_fail(err, LF_ENOMEM, "out of memory")
                 : 0;
    if (rc == 0 && hooks != NULL)
        rc = hooks->prepare(hooks->user, e - 1, claim, err);
    if (rc < 0)
        json_decref(claim);
    else
        *out = claim;
    return rc;
}

int lf_epoch_claim(int *epoch, const char *stage_dir, int attempt, const char *spec_id,
                   const json_t *record, const lf_epoch_hooks *hooks, lf_err *err)
{
    for (int tries = 0; tries < 1000; tries++) {
        lf_epoch_log l;
        json_t *claim = NULL;
        int rc = lf_epoch_read(&l, stage_dir, err);
        if (rc < 0)
            return rc;
        const char *done_spec =
            is_commit(l.last) ? json_string_value(json_object_get(l.last, "spec_id")) : NULL;
        bool same_attempt = json_integer_value(json_object_get(l.last, "attempt")) == attempt;
        int e = l.highest + 1;
        if (done_spec != NULL && same_attempt && strcmp(done_spec, spec_id) == 0) {
            lf_epoch_fini(&l);
            return lf_fail(err, LF_EEXIST, "%s: committed already", stage_dir);
        }
        const int newest = (int)json_integer_value(json_object_get(l.last, "attempt"));
        lf_epoch_fini(&l);
        if (newest > attempt)
            return lf_fail(err, LF_EBUSY, "%s: attempt %d has begun, so attempt %d is given up",
                           stage_dir, newest, attempt);
        lf_err local = LF_ERR_INIT;
        rc = make_claim(&claim, attempt, e, record, hooks, err);
        if (rc < 0)
            return rc;
        rc = link_record(stage_dir, e, claim, &local);
        json_decref(claim);
        if (rc == 0) {
            *epoch = e;
            return 0;
        }
        /* An error behind the link leaves a claim that stands, and that names what was taken. */
        if (hooks != NULL && (rc == LF_EEXIST || !record_there(stage_dir, e)))
            hooks->drop(hooks->user);
        if (rc != LF_EEXIST)
            return lf_fail(err, rc, "%s", local.text);
    }
    return lf_fail(err, LF_EBUSY, "%s: cannot claim an epoch; others are faster every time",
                   stage_dir);
}

int lf_epoch_commit(const char *stage_dir, int attempt, int epoch, const json_t *done, lf_err *err)
{
    lf_err local = LF_ERR_INIT;
    int rc = link_record(stage_dir, epoch + 1, done, &local);
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
