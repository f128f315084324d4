/* SPDX-License-Identifier: Apache-2.0
 *
 * Crash scenarios of the flow: the fence of a stage and event files.
 */
#include "config.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "db/event.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "flow/run/epoch.h"
#include "tests/fault/crash_test.h"

/* ---- epochs: start 1.1 is overtaken by 1.2, which commits; 1.1 lives on as a zombie and
 * tries to ---- */

#define SPEC "spec-of-the-stage"

static int claim(int *epoch, const char *dir, const char *token, lf_err *e)
{
    struct lf_claim c = {.attempt = 1, .token = token, .restarts = LF_NO_RESTARTS};
    int rc = lf_epoch_claim(&c, at(dir, "stage"), SPEC, NULL, e);
    if (rc == 0)
        *epoch = c.epoch;
    return rc;
}

static int commit(const char *dir, int epoch, lf_err *e)
{
    const struct lf_done done = {.run = "r",
                                 .stage = "stage",
                                 .token = "0123",
                                 .kind = "k",
                                 .spec_id = SPEC,
                                 .attempt = 1,
                                 .epoch = epoch};
    return lf_epoch_commit(at(dir, "stage"), &done, e);
}

static void epochs_run(const char *dir)
{
    lf_err e = LF_ERR_INIT;
    int epoch = 0;
    need(lf_io_mkdirs(at(dir, "stage"), 0750, &crash_err));
    need(claim(&epoch, dir, "0123", &crash_err));
    need(lf_io_mkdirs(at(dir, "stage/1.1/out"), 0750, &crash_err));
    mark(1);
    need(claim(&epoch, dir, "0123", &crash_err));
    need(lf_io_mkdirs(at(dir, "stage/1.2/out"), 0750, &crash_err));
    mark(2);
    need(epoch == 2 && commit(dir, 1, &e) == LF_EBUSY
             ? 0
             : lf_fail(&crash_err, LF_EINVAL, "the zombie was let through"));
    need(commit(dir, 2, &crash_err));
    mark(3);
}

/* What the next command finds: nothing that was claimed or committed is forgotten, and the zombie,
 * which survived the crash on another node, still cannot publish. */
static int epochs_check(const char *dir, int promised)
{
    lf_epoch_log log = {0, NULL};
    const char *stage = at(dir, "stage");
    /* Another run that adopted the result reads the marker itself, not the log of this stage. */
    if (promised >= 3 && !lf_io_exists(at(dir, "stage/1.2/done.json")))
        return lf_fail(&crash_err, LF_EINVAL, "the marker of a finished commit is gone");
    if (!lf_io_exists(stage))
        return promised ? -1 : 0;
    if (lf_epoch_read(&log, stage, &crash_err))
        return -1;
    int highest = log.highest, want = promised < 3 ? promised : 3;
    bool done = log.last != NULL && log.last->lf_done != 0;
    bool right = highest >= want && highest <= 3 && done == (highest == 3);
    lf_epoch_fini(&log);
    if (!right)
        return lf_fail(&crash_err, LF_EINVAL, "highest epoch %d, %s, after promise %d", highest,
                       done ? "a commit" : "a claim", promised);
    if (done && lf_io_exists(at(dir, "stage/1.2")) && !lf_io_exists(at(dir, "stage/1.2/done.json")))
        return lf_fail(&crash_err, LF_EINVAL, "the commit was not finished");
    if (lf_io_exists(at(dir, "stage/1.1/done.json")))
        return lf_fail(&crash_err, LF_EINVAL, "the zombie published");
    lf_err e = LF_ERR_INIT;
    if (highest >= 2 && commit(dir, 1, &e) != LF_EBUSY)
        return lf_fail(&crash_err, LF_EINVAL, "a zombie can publish after the crash");
    return 0;
}

/* Whatever is left, one more claim or the commit that is there ends it. */
static int epochs_recover(const char *dir)
{
    lf_err e = LF_ERR_INIT;
    int epoch = 0, rc = lf_io_mkdirs(at(dir, "stage"), 0750, &crash_err);
    if (rc == 0) {
        rc = claim(&epoch, dir, "4567", &e);
        if (rc == 0) {
            char name[64];
            snprintf(name, sizeof name, "stage/1.%d", epoch);
            rc = lf_io_mkdirs(at(dir, name), 0750, &crash_err);
            if (rc == 0)
                rc = commit(dir, epoch, &crash_err);
        } else if (rc == LF_EEXIST) {
            rc = 0;
        }
    }
    return rc;
}

/* ---- events: three, one after the other ---- */

static void events_run(const char *dir)
{
    for (int i = 1; i <= 3; i++) {
        json_t *data = json_pack("{s:s}", "text", i == 1 ? "one" : i == 2 ? "two" : "three");
        lf_event ev = {.run = "01M7Z2H554Q70JP1B24GBMRVQ4", .kind = "note", .data = data};
        need(lf_event_write(at(dir, "run/spool"), &ev, 0750, 0640, &crash_err));
        mark(i);
        json_decref(data);
    }
}

static int events_check(const char *dir, int promised)
{
    int n = 0, rc = 0;
    DIR *d = opendir(at(dir, "run/spool"));
    if (!d)
        return promised ? -1 : 0;
    for (struct dirent *e = readdir(d); e && rc == 0; e = readdir(d)) {
        size_t len = strlen(e->d_name);
        if (len < 5 || strcmp(e->d_name + len - 5, ".json") != 0) /* what ingestion looks at */
            continue;
        lf_buf text;
        lf_event ev;
        json_t *root = NULL;
        const char *path = at(at(dir, "run/spool"), e->d_name);
        lf_buf_init(&text);
        rc = lf_io_read_file(path, 4096, &text, &crash_err);
        if (rc == 0)
            rc = lf_event_parse(&ev, &root, text.data, text.len, path, &crash_err);
        json_decref(root);
        lf_buf_fini(&text);
        n++;
    }
    closedir(d);
    return rc || n < promised ? -1 : 0;
}

const struct scenario crash_epochs = {"epochs", epochs_run, epochs_check, epochs_recover, 0};
const struct scenario crash_events = {"events", events_run, events_check, NULL, 0};
