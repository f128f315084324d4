/* SPDX-License-Identifier: Apache-2.0
 *
 * What a claim lists and takes: by starts that hand over in order, that were killed at any point of
 * it, that live on and prune, of other attempts, of older versions, and where hard links are
 * refused.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/str.h"
#include "flow/run/epoch.h"
#include "flow/run/handover.h"
#include "tests/tap/tap.h"

/* ---- links that are refused, or before which something happens ---- */

int __real_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
static int links_refused, listed_out;
static void (*before_link)(const char *from);

int __wrap_link(const char *from, const char *to)
{
    if (before_link)
        before_link(from);
    if (links_refused && strstr(to, "/from-")) {
        errno = EPERM;
        return -1;
    }
    return __real_link(from, to);
}

DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
static void (*before_opendir)(const char *path);

DIR *__wrap_opendir(const char *path)
{
    if (before_opendir)
        before_opendir(path);
    return __real_opendir(path);
}

/* ---- a stage's directory ---- */

static char dir[PATH_MAX / 4];

static void fresh(const char *name)
{
    snprintf(dir, sizeof dir, "%s/%s", tap_tmpdir(), name);
    lf_io_mkdirs(dir, 0755, NULL);
}

static const char *at(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static const char *at(const char *fmt, ...)
{
    static char path[4][PATH_MAX];
    static int k;
    va_list ap;
    k = (k + 1) % 4;
    int n = snprintf(path[k], PATH_MAX, "%s/", dir);
    va_start(ap, fmt);
    vsnprintf(path[k] + n, PATH_MAX - (size_t)n, fmt, ap);
    va_end(ap);
    return path[k];
}

/* An artifact with one file that says `text`. */
static void checkpoint(const char *path, const char *text)
{
    lf_artifact a;
    lf_err err = LF_ERR_INIT;
    char file[PATH_MAX];
    snprintf(file, sizeof file, "%s/data.h5", path);
    lf_io_mkdirs(path, 0755, &err);
    lf_io_write_file(file, text, strlen(text), 0644, &err);
    lf_artifact_init(&a, "checkpoint", &err);
    lf_artifact_add_hashed(&a, path, "data.h5", &err);
    lf_artifact_publish(&a, path, &err);
    lf_artifact_fini(&a);
    if (err.rc)
        tap_bail("%s", err.text);
}

static bool holds(const char *path, const char *text)
{
    lf_buf b;
    lf_buf_init(&b);
    bool same = lf_io_read_file(path, 1000, &b, NULL) == 0 && strcmp(b.data, text) == 0;
    lf_buf_fini(&b);
    return same;
}

static char steps[] = "checkpoints/step-*", last[] = "checkpoint", best[] = "best-step-*",
            rows[] = "rollouts/*.h5", part[] = "rollouts/*.part";
static lf_doc_carry patterns[] = {{.pattern = steps, .grows = {.given = true}},
                                  {.pattern = last, .grows = {.given = true}},
                                  {.pattern = best, .grows = {.given = true}},
                                  {.pattern = rows, .grows = {.given = true}},
                                  {.pattern = part, .grows = {.v = true, .given = true}}};
static const lf_doc_carries carried = {.v = patterns, .n = 5, .given = true};

enum { SETTLE = 1, NO_SETTLE = 0 };

/* A start of an attempt, up to its directory; usable: what it may go on from. Returns its
 * number. */
static int begin(int attempt, const bool *usable, int settle, bool *any)
{
    struct lf_claim claim = {.attempt = attempt, .token = "0123", .restarts = LF_NO_RESTARTS};
    lf_err err = LF_ERR_INIT;
    lf_handover h = {.stage_dir = dir, .carry = &carried, .usable = usable, .n_usable = 4};
    const lf_epoch_hooks hooks = {lf_handover_prepare, lf_handover_drop, &h};
    if (lf_epoch_claim(&claim, dir, "spec", &hooks, &err) < 0)
        tap_bail("claim: %s", err.text);
    const int e = claim.epoch;
    char start[PATH_MAX];
    snprintf(start, sizeof start, "%s", at("%d.%d", attempt, e));
    if (settle) {
        lf_io_mkdirs(at("%d.%d/out", attempt, e), 0755, &err);
        if (lf_handover_settle(&h, start, e, any, &err) < 0)
            tap_bail("settle: %s", err.text);
    }
    lf_handover_fini(&h);
    return e;
}

static const bool all[4] = {true, true, true, true}, only_2[4] = {false, true, false, false};

static bool has(int attempt, int epoch, const char *rel, const char *text)
{
    return holds(at("%d.%d/from/%s", attempt, epoch, rel), text);
}

/* ---- in order ---- */

static void test_order(void)
{
    bool any = true;
    fresh("order");
    tap_i64(begin(1, all, SETTLE, &any), 1, "the first start");
    tap_ok(!any && !lf_io_exists(at("1.1/from")), "has nothing to go on from");
    checkpoint(at("1.1/out/checkpoints/step-00000003"), "three");
    checkpoint(at("1.1/out/checkpoints/step-00000006"), "six");
    lf_io_mkdirs(at("1.1/out/checkpoints/step-00000009"), 0755, NULL); /* under way */
    lf_io_mkdirs(at("1.1/out/rollouts"), 0755, NULL);
    lf_io_write_file(at("1.1/out/rollouts/step-1.h5"), "round", 5, 0644, NULL);
    lf_io_write_file(at("1.1/out/rollouts/step-2.part"), "grows", 5, 0644, NULL);
    lf_io_write_file(at("1.1/out/other"), "no", 2, 0644, NULL);
    begin(1, all, SETTLE, &any);
    tap_ok(any && has(1, 2, "checkpoints/step-00000003/data.h5", "three") &&
               has(1, 2, "checkpoints/step-00000006/data.h5", "six"),
           "the second takes the checkpoints of the first");
    tap_ok(has(1, 2, "rollouts/step-1.h5", "round") && has(1, 2, "rollouts/step-2.part", "grows"),
           "and its other files");
    tap_ok(!lf_io_exists(at("1.2/from/checkpoints/step-00000009")) &&
               !lf_io_exists(at("1.2/from/other")),
           "what is not finished, or is not on the list, is left");
    struct stat a, b;
    stat(at("1.1/out/checkpoints/step-00000006/data.h5"), &a);
    stat(at("1.2/from/checkpoints/step-00000006/data.h5"), &b);
    tap_ok(a.st_ino == b.st_ino, "a second name, no second copy");
    stat(at("1.1/out/rollouts/step-2.part"), &a);
    stat(at("1.2/from/rollouts/step-2.part"), &b);
    tap_ok(a.st_ino != b.st_ino, "but a copy of what grows");

    /* The first start lives on. */
    checkpoint(at("1.1/out/checkpoints/step-00000009"), "too late");
    lf_artifact_remove(at("1.1/out/checkpoints/step-00000003"), NULL);
    checkpoint(at("1.2/out/checkpoints/step-00000009"), "nine");
    begin(1, all, SETTLE, &any);
    tap_ok(has(1, 3, "checkpoints/step-00000009/data.h5", "nine"), "the third has the second's");
    tap_ok(has(1, 3, "checkpoints/step-00000003/data.h5", "three"),
           "and what the first has removed meanwhile");
    lf_io_remove_tree(at("1.2"), NULL);
    lf_io_remove_tree(at("1.1"), NULL);
    tap_ok(has(1, 3, "checkpoints/step-00000006/data.h5", "six"),
           "nothing that befalls those before takes it away");
    lf_handover_discard(at("1.3"));
    tap_ok(!lf_io_exists(at("1.3/from")), "it goes when the result is committed");
}

/* ---- deaths ---- */

static void test_deaths(void)
{
    bool any;
    fresh("deaths");
    begin(1, all, SETTLE, &any);
    checkpoint(at("1.1/out/checkpoints/step-00000003"), "three");
    begin(1, all, NO_SETTLE, &any); /* killed right after its claim */
    lf_io_remove_tree(at("1.1/out"), NULL);
    begin(1, all, SETTLE, &any);
    tap_ok(has(1, 3, "checkpoints/step-00000003/data.h5", "three"),
           "found where the start that died had it");
    begin(1, all, SETTLE, &any); /* 3 died before it saved anything */
    tap_ok(has(1, 4, "checkpoints/step-00000003/data.h5", "three"),
           "handed on by a start that saved nothing");

    lf_io_mkdirs(at("from-5-0123456789abcdef/checkpoints"), 0755,
                 NULL); /* of one that died before its claim */
    lf_io_mkdirs(at("from-99-0123456789abcdef"), 0755,
                 NULL); /* of one that is about to be faster */
    lf_io_mkdirs(at("from-here"), 0755, NULL);
    begin(1, all, SETTLE, &any);
    tap_ok(!lf_io_exists(at("from-5-0123456789abcdef")),
           "what a start left that died before its claim goes");
    tap_ok(lf_io_exists(at("from-99-0123456789abcdef")) && lf_io_exists(at("from-here")),
           "nothing else does");
}

/* ---- attempts ---- */

static void test_attempts(void)
{
    bool any;
    fresh("attempts");
    begin(1, all, SETTLE, &any);
    checkpoint(at("1.1/out/checkpoints/step-00000003"), "one");
    begin(2, only_2, SETTLE, &any);
    tap_ok(!any, "an attempt with other settings takes nothing of the first");
    checkpoint(at("2.2/out/checkpoints/step-00000003"), "two");
    begin(2, only_2, SETTLE, &any);
    tap_ok(any && has(2, 3, "checkpoints/step-00000003/data.h5", "two"), "but of its own");
    struct lf_claim claim = {.attempt = 1, .token = "0123", .restarts = LF_NO_RESTARTS};
    lf_err err = LF_ERR_INIT;
    tap_rc(lf_epoch_claim(&claim, dir, "spec", NULL, &err), LF_EBUSY, &err, "attempt 2 has begun",
           "a job of the older attempt cannot begin any more");
    const bool only_1[4] = {true, false, true, true};
    begin(3, only_1, SETTLE, &any);
    tap_ok(any && has(3, 4, "checkpoints/step-00000003/data.h5", "one"),
           "back at the first settings it is the first's");
}

/* ---- races ---- */

static int rounds;
static void prune_once(const char *from)
{
    if (!strstr(from, "step-00000003/data.h5") || rounds++ > 0)
        return;
    checkpoint(at("1.1/out/checkpoints/step-00000006"), "six");
    lf_artifact_remove(at("1.1/out/checkpoints/step-00000003"), NULL);
}

static void faster(const char *from)
{
    bool any;
    if (!strstr(from, "epoch.2") || rounds++ > 0)
        return;
    before_link = NULL;
    begin(1, all, SETTLE, &any);
    checkpoint(at("1.2/out/checkpoints/step-00000009"), "nine");
    before_link = faster;
}

/* The listing has seen checkpoint 6, which names the best of step 4, and comes to the best: the old
 * start has meanwhile kept that of step 8 and published checkpoint 9, which names it. */
static void better_once(const char *path)
{
    const size_t n = strlen(path);
    if (n < 9 || strcmp(path + n - 9, "/1.1/out/") != 0 || listed_out++ != 1)
        return;
    checkpoint(at("1.1/out/best-step-00000008"), "best at eight");
    checkpoint(at("1.1/out/checkpoints/step-00000009"), "nine");
    lf_artifact_remove(at("1.1/out/best-step-00000004"), NULL);
}

static void test_races(void)
{
    bool any;
    fresh("better");
    begin(1, all, SETTLE, &any);
    checkpoint(at("1.1/out/checkpoints/step-00000006"), "six");
    checkpoint(at("1.1/out/best-step-00000004"), "best at four");
    listed_out = 0;
    before_opendir = better_once;
    begin(1, all, SETTLE, &any);
    before_opendir = NULL;
    tap_ok(listed_out > 1 && !lf_io_exists(at("1.1/out/best-step-00000004")),
           "best weights are replaced between the two listings");
    tap_ok(has(1, 2, "checkpoints/step-00000009/data.h5", "nine") &&
               has(1, 2, "best-step-00000008/data.h5", "best at eight"),
           "what is taken goes together: the checkpoint that names the new ones, and those");

    fresh("prune");
    begin(1, all, SETTLE, &any);
    checkpoint(at("1.1/out/checkpoints/step-00000003"), "three");
    rounds = 0;
    before_link = prune_once;
    begin(1, all, SETTLE, &any);
    before_link = NULL;
    tap_ok(has(1, 2, "checkpoints/step-00000006/data.h5", "six") &&
               !lf_io_exists(at("1.2/from/checkpoints/step-00000003")),
           "pruned between listing and taking: the newer one is listed and taken");

    fresh("faster");
    begin(1, all, SETTLE, &any);
    checkpoint(at("1.1/out/checkpoints/step-00000003"), "three");
    rounds = 0;
    before_link = faster;
    tap_i64(begin(1, all, SETTLE, &any), 3, "another start was faster");
    before_link = NULL;
    tap_ok(has(1, 3, "checkpoints/step-00000009/data.h5", "nine"),
           "its list counts, and what it published");
    tap_ok(has(1, 2, "checkpoints/step-00000003/data.h5", "three"), "what it took is left alone");
}

/* ---- files ---- */

static void test_files(void)
{
    bool any;
    fresh("refused");
    begin(1, all, SETTLE, &any);
    checkpoint(at("1.1/out/checkpoints/step-00000003"), "three");
    links_refused = 1;
    begin(1, all, SETTLE, &any);
    links_refused = 0;
    struct stat a, b;
    tap_ok(stat(at("1.1/out/checkpoints/step-00000003/data.h5"), &a) == 0 &&
               stat(at("1.2/from/checkpoints/step-00000003/data.h5"), &b) == 0 &&
               a.st_ino != b.st_ino && has(1, 2, "checkpoints/step-00000003/data.h5", "three"),
           "where links are refused it is copied");

    fresh("purged");
    begin(1, all, SETTLE, &any);
    checkpoint(at("1.1/out/checkpoints/step-00000003"), "three");
    checkpoint(at("1.1/out/checkpoints/step-00000006"), "six");
    unlink(at("1.1/out/checkpoints/step-00000006/data.h5"));
    begin(1, all, SETTLE, &any);
    tap_ok(has(1, 2, "checkpoints/step-00000003/data.h5", "three") &&
               !lf_io_exists(at("1.2/from/checkpoints/step-00000006")),
           "one whose files are gone is passed over");

    fresh("damaged");
    begin(1, all, SETTLE, &any);
    checkpoint(at("1.1/out/checkpoints/step-00000003"), "three");
    checkpoint(at("1.1/out/checkpoints/step-00000006"), "six");
    checkpoint(at("1.1/out/checkpoints/step-00000006.broken"), "aside");
    unlink(at("1.1/out/checkpoints/step-00000006/manifest.json"));
    lf_io_write_file(at("1.1/out/checkpoints/step-00000006/manifest.json"), "{\"lf_ma", 7, 0644,
                     NULL);
    begin(1, all, SETTLE, &any);
    tap_ok(has(1, 2, "checkpoints/step-00000003/data.h5", "three"),
           "a damaged manifest stops nobody: the others are taken");
    tap_ok(!lf_io_exists(at("1.2/from/checkpoints/step-00000006")) &&
               !lf_io_exists(at("1.2/from/checkpoints/step-00000006.broken")),
           "what is damaged, or was set aside as such, is not");

    /* A version without lists: every start's directory counts. */
    fresh("old");
    for (int e = 1; e <= 2; e++) {
        char text[100];
        int n = snprintf(text, sizeof text,
                         "{\"lf_epoch\":1,\"kind\":\"claim\",\"attempt\":1,\"epoch\":%d}", e);
        lf_io_write_file(at("epoch.%d", e), text, (size_t)n, 0644, NULL);
    }
    checkpoint(at("1.1/out/checkpoints/step-00000003"), "three");
    checkpoint(at("1.2/out/checkpoints/step-00000006"), "six");
    begin(1, all, SETTLE, &any);
    tap_ok(has(1, 3, "checkpoints/step-00000003/data.h5", "three") &&
               has(1, 3, "checkpoints/step-00000006/data.h5", "six"),
           "after starts of an older version all of theirs count");

    /* Names that lead elsewhere are not followed. */
    fresh("bad");
    const char *text =
        "{\"lf_epoch\":1,\"kind\":\"claim\",\"attempt\":1,\"epoch\":1,\"from\":[{\"rel\":\"../../"
        "x\",\"path\":\"/etc/passwd\","
        "\"attempt\":1},{\"rel\":\"rollouts/a.h5\",\"path\":\"../old/epoch.1\",\"attempt\":1},{}]}";
    lf_io_write_file(at("epoch.1"), text, strlen(text), 0644, NULL);
    begin(1, all, SETTLE, &any);
    tap_ok(!any, "names in a claim that lead out of the stage's directory are ignored");
}

int main(void)
{
    TAP(11, test_order());
    TAP(4, test_deaths());
    TAP(4, test_attempts());
    TAP(6, test_races());
    TAP(6, test_files());
    return tap_done();
}
