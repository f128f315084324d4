/* SPDX-License-Identifier: Apache-2.0
 *
 * Listing and taking what the next start goes on from; see handover.h for the order and why it is
 * safe.
 */
#include "config.h"

#include "flow/run/handover.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/id.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/plan/pipeline_priv.h"
#include "flow/record/record.h"

#define CLAIM_MAX_BYTES ((size_t)64 << 20)
/* listings until nothing vanished between listing and taking; each waits for a prune of the old
 * start */
#define ROUNDS 20

static int number(const json_t *o, const char *key)
{
    return (int)json_integer_value(json_object_get(o, key));
}

/* ---- listing ---- */

static bool is_dir(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_file(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Newest starts are listed first, so what is listed already is the one to use. */
static bool listed(const json_t *list, const char *rel, const char *sha)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i);
        const char *s = json_string_value(json_object_get(e, "sha256"));
        if (strcmp(json_string_value(json_object_get(e, "rel")), rel) == 0 &&
            (sha == NULL || (s != NULL && strcmp(s, sha) == 0)))
            return true;
    }
    return false;
}

static int add(json_t *list, const char *rel, const char *path, int attempt, const char *sha,
               bool grows, lf_err *err)
{
    if (listed(list, rel, sha))
        return 0;
    json_t *e = json_pack("{s:s, s:s, s:i, s:s*, s:b, s:b}", "rel", rel, "path", path, "attempt",
                          attempt, "sha256", sha, "grows", grows, "taken", 0);
    return lf_json_push_new(list, e, err);
}

/* The hash of an artifact's manifest in hex. False: it is no artifact (yet, or any more). */
static bool manifest_hex(char hex[LF_HASH_HEX], const char *path)
{
    uint8_t digest[LF_HASH_BYTES];
    if (!is_dir(path) || lf_artifact_manifest_hash(digest, path, NULL) < 0)
        return false;
    lf_hash_hex(hex, digest);
    return true;
}

/* One name below an out directory that fits a pattern. start: "1.2", of an attempt. */
static int add_found(json_t *list, const lf_handover *h, const char *start, int attempt,
                     const char *rel, bool grows, lf_err *err)
{
    char path[PATH_MAX], full[PATH_MAX], hex[LF_HASH_HEX];
    int rc = lf_path_set(path, err, "%s/out/%s", start, rel);
    if (rc == 0)
        rc = lf_path_set(full, err, "%s/%s", h->stage_dir, path);
    if (rc < 0)
        return rc;
    if (is_file(full))
        return add(list, rel, path, attempt, NULL, grows, err);
    return manifest_hex(hex, full) ? add(list, rel, path, attempt, hex, false, err) : 0;
}

/* Names below start/out that fit: the last component may have wild cards. */
static int scan_pattern(json_t *list, const lf_handover *h, const char *start, int attempt,
                        const json_t *row, lf_err *err)
{
    const char *pattern = json_string_value(json_array_get(row, 0)),
               *slash = pattern != NULL ? strrchr(pattern, '/') : NULL;
    const bool grows = json_is_true(json_array_get(row, 1));
    char dir[PATH_MAX], rel[PATH_MAX];
    if (pattern == NULL)
        return lf_fail(err, LF_EFORMAT, "the plan's list of what starts hand over is damaged");
    const int n = slash != NULL ? (int)(slash - pattern) : 0;
    int rc = lf_path_set(dir, err, "%s/%s/out/%.*s", h->stage_dir, start, n, pattern);
    DIR *d = rc == 0 ? opendir(dir) : NULL;
    if (rc == 0 && d == NULL && errno != ENOENT && errno != ENOTDIR)
        rc = lf_fail_errno(err, "cannot list %s", dir);
    for (const struct dirent *e; d != NULL && rc == 0 && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.' || lf_str_has_suffix(e->d_name, ".tmp") ||
            strstr(e->d_name, ".broken") != NULL ||
            fnmatch(slash != NULL ? slash + 1 : pattern, e->d_name, FNM_PATHNAME) != 0)
            continue;
        rc = lf_path_set(rel, err, "%.*s%s%s", n, pattern, slash != NULL ? "/" : "", e->d_name);
        if (rc == 0)
            rc = add_found(list, h, start, attempt, rel, grows, err);
    }
    if (d != NULL)
        closedir(d);
    return rc;
}

static int scan_start(json_t *list, const lf_handover *h, const json_t *claim, lf_err *err)
{
    char start[64];
    int rc = 0;
    snprintf(start, sizeof start, "%d.%d", number(claim, "attempt"), number(claim, "epoch"));
    for (size_t i = 0; rc == 0 && i < json_array_size(h->carry); i++)
        rc = scan_pattern(list, h, start, number(claim, "attempt"), json_array_get(h->carry, i),
                          err);
    return rc;
}

/* Is this what the entry is about? */
static bool matches(const lf_handover *h, const char *path, const char *sha)
{
    char full[PATH_MAX], hex[LF_HASH_HEX];
    if (lf_path_set(full, NULL, "%s/%s", h->stage_dir, path) < 0)
        return false;
    return sha == NULL ? is_file(full) : manifest_hex(hex, full) && strcmp(hex, sha) == 0;
}

/* Where what a claim lists is now: where its start has it, where that start was going to have it,
 * or where it was found. */
static bool locate(char path[PATH_MAX], const lf_handover *h, const json_t *claim,
                   const json_t *entry)
{
    const char *rel = json_string_value(json_object_get(entry, "rel")),
               *sha = json_string_value(json_object_get(entry, "sha256"));
    const char *was = json_string_value(json_object_get(entry, "path"));
    const char *staging = json_string_value(json_object_get(claim, "staging"));
    if (rel == NULL || was == NULL || rel[0] == '/' || was[0] == '/' || strstr(rel, "..") != NULL ||
        strstr(was, "..") != NULL)
        return false;
    if (json_is_true(json_object_get(entry, "taken"))) {
        if (lf_path_set(path, NULL, "%d.%d/from/%s", number(claim, "attempt"),
                        number(claim, "epoch"), rel) == 0 &&
            matches(h, path, sha))
            return true;
        if (staging != NULL && strchr(staging, '/') == NULL &&
            lf_path_set(path, NULL, "%s/%s", staging, rel) == 0 && matches(h, path, sha))
            return true;
    }
    return lf_path_set(path, NULL, "%s", was) == 0 && matches(h, path, sha);
}

static int inherit(json_t *list, const lf_handover *h, const json_t *claim, lf_err *err)
{
    json_t *from = json_object_get(claim, "from");
    char path[PATH_MAX];
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(from); i++) {
        const json_t *e = json_array_get(from, i);
        if (locate(path, h, claim, e))
            rc = add(list, json_string_value(json_object_get(e, "rel")), path, number(e, "attempt"),
                     json_string_value(json_object_get(e, "sha256")),
                     json_is_true(json_object_get(e, "grows")), err);
    }
    return rc;
}

static json_t *load_record(const lf_handover *h, int epoch, lf_err *err)
{
    char path[PATH_MAX];
    if (lf_path_set(path, err, "%s/epoch.%d", h->stage_dir, epoch) < 0)
        return NULL;
    return lf_json_load_file(path, CLAIM_MAX_BYTES, err);
}

/* From the newest claim back to the first that has a list. */
static int list_all(json_t *list, const lf_handover *h, int highest, lf_err *err)
{
    int rc = 0;
    bool more = true;
    for (int e = highest; rc == 0 && more && e > 0; e--) {
        json_t *rec = load_record(h, e, err);
        if (rec == NULL)
            return err->rc != 0 ? err->rc : LF_EFORMAT;
        if (json_object_get(rec, "lf_done") == NULL) { /* a commit has no directory of its own */
            rc = scan_start(list, h, rec, err);
            if (rc == 0)
                rc = inherit(list, h, rec, err);
            more = json_object_get(rec, "from") == NULL;
        }
        json_decref(rec);
    }
    return rc;
}

/* ---- taking ---- */

/* 1 taken, 0 it is gone, negative: it cannot be taken. */
static int take(const lf_handover *h, const json_t *entry, lf_err *err)
{
    char from[PATH_MAX], to[PATH_MAX], parent[PATH_MAX];
    const char *sha = json_string_value(json_object_get(entry, "sha256"));
    uint8_t digest[LF_HASH_BYTES];
    lf_err why = LF_ERR_INIT;
    int rc = lf_path_set(from, err, "%s/%s", h->stage_dir,
                         json_string_value(json_object_get(entry, "path")));
    if (rc == 0)
        rc = lf_path_set(to, err, "%s/%s", h->staging,
                         json_string_value(json_object_get(entry, "rel")));
    if (rc < 0)
        return rc;
    snprintf(parent, sizeof parent, "%s", to);
    *strrchr(parent, '/') = '\0';
    rc = lf_io_mkdirs(parent, 0750, &why);
    if (rc == 0 && sha != NULL) {
        rc = lf_artifact_parse_hex(digest, sha, &why);
        if (rc == 0)
            rc = lf_artifact_take(from, to, digest, &why);
    } else if (rc == 0) {
        rc = json_is_true(json_object_get(entry, "grows"))
                 ? lf_io_copy(from, to, LF_ARTIFACT_MODE, &why)
                 : lf_io_link_or_copy(from, to, LF_ARTIFACT_MODE, &why);
    }
    if (rc == 0 || rc == LF_EEXIST) /* a newer start's of the same name stands there */
        return rc == 0 ? 1 : 0;
    if (rc == LF_EFORMAT ||
        rc == LF_ENOTSUP) /* damage of one checkpoint; the stage would pass it over as well */
        lf_log(1, "%s is not handed over: %s", from, why.text);
    return rc == LF_ENOENT || rc == LF_EFORMAT || rc == LF_ENOTSUP
               ? 0
               : lf_fail(err, rc, "%s", why.text);
}

static bool usable(const lf_handover *h, const json_t *entry)
{
    int a = number(entry, "attempt");
    return a >= 1 && (size_t)a <= h->n_usable && h->usable[a - 1];
}

static bool staged(const lf_handover *h, const json_t *entry)
{
    char to[PATH_MAX];
    return lf_path_set(to, NULL, "%s/%s", h->staging,
                       json_string_value(json_object_get(entry, "rel"))) == 0 &&
           lf_io_exists(to);
}

/* *whole: nothing that was listed has vanished in the meantime. One whose files are gone while its
 * manifest stays was purged by somebody and will not come back. */
static int take_all(json_t *list, const lf_handover *h, bool *whole, lf_err *err)
{
    *whole = true;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *e = json_array_get(list, i);
        if (!usable(h, e) || staged(h, e)) /* staged: a newer start's of the same name */
            continue;
        int rc = take(h, e, err);
        if (rc < 0)
            return rc;
        json_object_set_new(e, "taken", json_boolean(rc == 1));
        const char *sha = json_string_value(json_object_get(e, "sha256"));
        *whole =
            *whole && (rc == 1 || matches(h, json_string_value(json_object_get(e, "path")), sha));
    }
    return 0;
}

static int name_staging(lf_handover *h, int epoch, lf_err *err)
{
    uint64_t r = 0;
    int rc = lf_random_bytes(&r, sizeof r, err);
    if (rc == 0)
        rc = lf_path_set(h->staging, err, "%s/from-%d-%016llx", h->stage_dir, epoch,
                         (unsigned long long)r);
    return rc;
}

void lf_handover_drop(void *user)
{
    lf_handover *h = user;
    if (h->staging[0] != '\0')
        lf_io_remove_tree(h->staging, NULL);
    h->staging[0] = '\0';
}

/* Entries of which nothing is left to go on from would only grow the list. */
static void forget_gone(json_t *list, const lf_handover *h)
{
    for (size_t i = json_array_size(list); i-- > 0;) {
        const json_t *e = json_array_get(list, i);
        if (!json_is_true(json_object_get(e, "taken")) &&
            !matches(h, json_string_value(json_object_get(e, "path")),
                     json_string_value(json_object_get(e, "sha256"))))
            json_array_remove(list, i);
    }
}

/* Names are listed one directory after another while the old start goes on: it may publish a
 * checkpoint behind the first and remove the best weights that an older checkpoint names before the
 * second, and then neither the new checkpoint nor those weights are listed. What it publishes and
 * removes does not come back, so two equal listings tell that nothing changed between the end of
 * the first and the beginning of the second: all that is listed was there at one time. */
static int still_so(bool *same, const json_t *list, const lf_handover *h, int highest, lf_err *err)
{
    json_t *now = json_array();
    int rc = now == NULL ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
    if (rc == 0)
        rc = list_all(now, h, highest, err);
    *same = rc == 0 && json_array_size(now) == json_array_size(list);
    for (size_t i = 0; *same && i < json_array_size(now); i++) {
        const json_t *e = json_array_get(now, i);
        *same = listed(list, json_string_value(json_object_get(e, "rel")),
                       json_string_value(json_object_get(e, "sha256")));
    }
    json_decref(now);
    return rc;
}

/* One listing, taken. *whole as above, and nothing has changed since. */
static int attempt_once(json_t **out, lf_handover *h, int highest, bool *whole, lf_err *err)
{
    json_t *list = json_array();
    int rc =
        list == NULL ? lf_fail(err, LF_ENOMEM, "out of memory") : name_staging(h, highest + 1, err);
    if (rc == 0)
        rc = list_all(list, h, highest, err);
    if (rc == 0)
        rc = take_all(list, h, whole, err);
    if (rc == 0 && *whole)
        rc = still_so(whole, list, h, highest, err);
    if (rc < 0) {
        lf_handover_drop(h);
        json_decref(list);
        return rc;
    }
    forget_gone(list, h);
    *out = list;
    return 0;
}

int lf_handover_prepare(void *user, int highest, json_t *claim, lf_err *err)
{
    lf_handover *h = user;
    json_t *list = NULL;
    bool whole = false;
    int rc = 0;
    if (h->carry == NULL)
        return 0;
    /* While the old start lives, it may prune what was just listed; then it has published something
     * newer. Where it is faster than this every time, the last listing is used. */
    for (int round = 0; rc == 0 && !whole && round < ROUNDS; round++) {
        json_decref(list);
        list = NULL;
        if (round > 0)
            lf_handover_drop(h);
        rc = attempt_once(&list, h, highest, &whole, err);
    }
    if (rc < 0)
        return rc;
    if (!lf_io_exists(h->staging))
        h->staging[0] = '\0';
    json_decref(h->list);
    h->list = json_incref(list);
    rc = lf_json_set_new(claim, "from", list, err);
    if (rc == 0 && h->staging[0] != '\0')
        rc = lf_json_set_new(claim, "staging", json_string(strrchr(h->staging, '/') + 1), err);
    return rc;
}

/* ---- after the claim ---- */

static bool named(const json_t *list, const char *staging)
{
    size_t n = strlen(staging);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *path = json_string_value(json_object_get(json_array_get(list, i), "path"));
        if (strncmp(path, staging, n) == 0 && path[n] == '/' &&
            !json_is_true(json_object_get(json_array_get(list, i), "taken")))
            return true;
    }
    return false;
}

/* Staging directories of starts up to this one: their owners crashed or were too slow, and what
 * they took has been taken again, unless the list says that something of it is only there. */
static void sweep(const char *stage_dir, int epoch, const json_t *list)
{
    DIR *d = opendir(stage_dir);
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char path[PATH_MAX];
        int n = 0, end = 0;
        if (sscanf(e->d_name, "from-%d-%*16[0-9a-f]%n", &n, &end) == 1 && end > 0 &&
            e->d_name[end] == '\0' && n <= epoch && !named(list, e->d_name) &&
            lf_path_set(path, NULL, "%s/%s", stage_dir, e->d_name) == 0)
            lf_io_remove_tree(path, NULL); /* what stays only takes room */
    }
    if (d != NULL)
        closedir(d);
}

int lf_handover_settle(lf_handover *h, const char *start_dir, int epoch, bool *any, lf_err *err)
{
    char to[PATH_MAX];
    int rc = lf_path_set(to, err, "%s/from", start_dir);
    *any = rc == 0 && h->staging[0] != '\0';
    if (*any && rename(h->staging, to) != 0)
        rc = lf_fail_errno(err, "cannot make %s", to);
    if (rc == 0 && *any)
        rc = lf_io_fsync_path(start_dir, err);
    if (rc == 0)
        sweep(h->stage_dir, epoch, h->list);
    return rc;
}

void lf_handover_fini(lf_handover *h)
{
    json_decref(h->list);
    h->list = NULL;
}

void lf_handover_discard(const char *start_dir)
{
    char path[PATH_MAX];
    if (lf_path_set(path, NULL, "%s/from", start_dir) == 0)
        lf_io_remove_tree(path, NULL);
}
