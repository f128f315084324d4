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
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/record/record.h"

/* listings until nothing vanished between listing and taking; each waits for a prune of the old
 * start */
#define ROUNDS 20

/* A list that is being made; its rows own their texts. */
struct list {
    struct lf_handed *rows;
    size_t n, cap;
};

static void forget(struct list *l)
{
    lf_handed_free(l->rows, l->n);
    memset(l, 0, sizeof *l);
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
static bool listed(const struct list *l, const char *rel, const char *sha)
{
    for (size_t i = 0; i < l->n; i++) {
        const char *s = l->rows[i].sha256;
        if (strcmp(l->rows[i].rel, rel) == 0 && (sha == NULL || (s != NULL && strcmp(s, sha) == 0)))
            return true;
    }
    return false;
}

/* e: borrowed. */
static int add(struct list *l, const struct lf_handed *e, lf_err *err)
{
    if (listed(l, e->rel, e->sha256))
        return 0;
    int rc = lf_grow(&l->rows, &l->cap, l->n, sizeof *l->rows, err);
    if (rc < 0)
        return rc;
    struct lf_handed *row = &l->rows[l->n++];
    *row = (struct lf_handed){.attempt = e->attempt, .grows = e->grows};
    row->rel = lf_strdup(e->rel, err);
    row->path = lf_strdup(e->path, err);
    row->sha256 = e->sha256 != NULL ? lf_strdup(e->sha256, err) : NULL;
    return row->rel == NULL || row->path == NULL || (e->sha256 != NULL && row->sha256 == NULL)
               ? LF_ENOMEM
               : 0;
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
static int add_found(struct list *l, const lf_handover *h, const char *start, int attempt,
                     const char *rel, bool grows, lf_err *err)
{
    char path[PATH_MAX], full[PATH_MAX], hex[LF_HASH_HEX];
    struct lf_handed e = {.rel = rel, .path = path, .attempt = attempt};
    int rc = lf_path_set(path, err, "%s/out/%s", start, rel);
    if (rc == 0)
        rc = lf_path_set(full, err, "%s/%s", h->stage_dir, path);
    if (rc < 0)
        return rc;
    if (is_file(full))
        e.grows = grows;
    else if (manifest_hex(hex, full))
        e.sha256 = hex;
    else
        return 0;
    return add(l, &e, err);
}

/* Names below start/out that fit: the last component may have wild cards. */
static int scan_pattern(struct list *l, const lf_handover *h, const char *start, int attempt,
                        const lf_doc_carry *row, lf_err *err)
{
    const char *pattern = row->pattern, *slash = strrchr(pattern, '/');
    char dir[PATH_MAX], rel[PATH_MAX];
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
            rc = add_found(l, h, start, attempt, rel, row->grows.v, err);
    }
    if (d != NULL)
        closedir(d);
    return rc;
}

static int scan_start(struct list *l, const lf_handover *h, const struct lf_claim *claim,
                      lf_err *err)
{
    char start[64];
    int rc = 0;
    snprintf(start, sizeof start, "%d.%d", claim->attempt, claim->epoch);
    for (size_t i = 0; rc == 0 && i < h->carry->n; i++)
        rc = scan_pattern(l, h, start, claim->attempt, &h->carry->v[i], err);
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
static bool locate(char path[PATH_MAX], const lf_handover *h, const struct lf_claim *claim,
                   const struct lf_handed *entry)
{
    const char *rel = entry->rel, *was = entry->path, *staging = claim->staging;
    if (rel == NULL || was == NULL || rel[0] == '/' || was[0] == '/' || strstr(rel, "..") != NULL ||
        strstr(was, "..") != NULL)
        return false;
    if (entry->taken) {
        if (lf_path_set(path, NULL, "%d.%d/from/%s", claim->attempt, claim->epoch, rel) == 0 &&
            matches(h, path, entry->sha256))
            return true;
        if (staging != NULL && strchr(staging, '/') == NULL &&
            lf_path_set(path, NULL, "%s/%s", staging, rel) == 0 && matches(h, path, entry->sha256))
            return true;
    }
    return lf_path_set(path, NULL, "%s", was) == 0 && matches(h, path, entry->sha256);
}

static int inherit(struct list *l, const lf_handover *h, const struct lf_claim *claim, lf_err *err)
{
    char path[PATH_MAX];
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < claim->n_from; i++) {
        struct lf_handed e = claim->from[i];
        if (!locate(path, h, claim, &e))
            continue;
        e.path = path;
        rc = add(l, &e, err);
    }
    return rc;
}

/* From the newest claim back to the first that has a list. */
static int list_all(struct list *l, const lf_handover *h, int highest, lf_err *err)
{
    int rc = 0;
    bool more = true;
    for (int e = highest; rc == 0 && more && e > 0; e--) {
        struct lf_claim *claim = NULL;
        rc = lf_claim_load(&claim, h->stage_dir, e, err);
        if (rc == 0 && claim == NULL)
            rc = lf_fail(err, LF_ENOENT, "%s: epoch.%d is gone", h->stage_dir, e);
        if (rc == 0 && claim->lf_done == 0) { /* a commit has no directory of its own */
            rc = scan_start(l, h, claim, err);
            if (rc == 0)
                rc = inherit(l, h, claim, err);
            more = claim->from == NULL;
        }
        lf_claim_free(claim);
    }
    return rc;
}

/* ---- taking ---- */

/* 1 taken, 0 it is gone, negative: it cannot be taken. */
static int take(const lf_handover *h, const struct lf_handed *entry, lf_err *err)
{
    char from[PATH_MAX], to[PATH_MAX], parent[PATH_MAX];
    const char *sha = entry->sha256;
    uint8_t digest[LF_HASH_BYTES];
    lf_err why = LF_ERR_INIT;
    int rc = lf_path_set(from, err, "%s/%s", h->stage_dir, entry->path);
    if (rc == 0)
        rc = lf_path_set(to, err, "%s/%s", h->staging, entry->rel);
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
        rc = entry->grows ? lf_io_copy(from, to, LF_ARTIFACT_MODE, &why)
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

static bool usable(const lf_handover *h, const struct lf_handed *entry)
{
    int a = entry->attempt;
    return a >= 1 && (size_t)a <= h->n_usable && h->usable[a - 1];
}

static bool staged(const lf_handover *h, const struct lf_handed *entry)
{
    char to[PATH_MAX];
    return lf_path_set(to, NULL, "%s/%s", h->staging, entry->rel) == 0 && lf_io_exists(to);
}

/* *whole: nothing that was listed has vanished in the meantime. One whose files are gone while its
 * manifest stays was purged by somebody and will not come back. */
static int take_all(struct list *l, const lf_handover *h, bool *whole, lf_err *err)
{
    *whole = true;
    for (size_t i = 0; i < l->n; i++) {
        struct lf_handed *e = &l->rows[i];
        if (!usable(h, e) || staged(h, e)) /* staged: a newer start's of the same name */
            continue;
        int rc = take(h, e, err);
        if (rc < 0)
            return rc;
        e->taken = rc == 1;
        *whole = *whole && (rc == 1 || matches(h, e->path, e->sha256));
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
static void forget_gone(struct list *l, const lf_handover *h)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->n; i++) {
        const struct lf_handed e = l->rows[i];
        if (e.taken || matches(h, e.path, e.sha256)) {
            l->rows[i] = l->rows[kept];
            l->rows[kept++] = e;
        }
    }
    for (size_t i = kept; i < l->n; i++)
        lf_handed_clear(&l->rows[i]);
    l->n = kept;
}

/* Names are listed one directory after another while the old start goes on: it may publish a
 * checkpoint behind the first and remove the best weights that an older checkpoint names before the
 * second, and then neither the new checkpoint nor those weights are listed. What it publishes and
 * removes does not come back, so two equal listings tell that nothing changed between the end of
 * the first and the beginning of the second: all that is listed was there at one time. */
static int still_so(bool *same, const struct list *l, const lf_handover *h, int highest,
                    lf_err *err)
{
    struct list now = {0};
    int rc = list_all(&now, h, highest, err);
    *same = rc == 0 && now.n == l->n;
    for (size_t i = 0; *same && i < now.n; i++)
        *same = listed(l, now.rows[i].rel, now.rows[i].sha256);
    forget(&now);
    return rc;
}

/* One listing, taken. *whole as above, and nothing has changed since. */
static int attempt_once(struct list *l, lf_handover *h, int highest, bool *whole, lf_err *err)
{
    int rc = name_staging(h, highest + 1, err);
    if (rc == 0)
        rc = list_all(l, h, highest, err);
    if (rc == 0)
        rc = take_all(l, h, whole, err);
    if (rc == 0 && *whole)
        rc = still_so(whole, l, h, highest, err);
    if (rc < 0) {
        lf_handover_drop(h);
        forget(l);
        return rc;
    }
    forget_gone(l, h);
    return 0;
}

int lf_handover_prepare(void *user, int highest, struct lf_claim *claim, lf_err *err)
{
    lf_handover *h = user;
    struct list l = {0};
    bool whole = false;
    int rc = 0;
    if (!h->carry->given)
        return 0;
    /* While the old start lives, it may prune what was just listed; then it has published something
     * newer. Where it is faster than this every time, the last listing is used. */
    for (int round = 0; rc == 0 && !whole && round < ROUNDS; round++) {
        forget(&l);
        if (round > 0)
            lf_handover_drop(h);
        rc = attempt_once(&l, h, highest, &whole, err);
    }
    if (rc == 0 && l.rows == NULL) /* a list with nothing on it is a list */
        rc = lf_grow(&l.rows, &l.cap, 0, sizeof *l.rows, err);
    if (rc < 0)
        return rc;
    if (!lf_io_exists(h->staging))
        h->staging[0] = '\0';
    lf_handover_fini(h);
    h->list = l.rows;
    h->n_list = l.n;
    claim->from = h->list;
    claim->n_from = h->n_list;
    claim->staging = h->staging[0] != '\0' ? strrchr(h->staging, '/') + 1 : NULL;
    return 0;
}

/* ---- after the claim ---- */

static bool named(const lf_handover *h, const char *staging)
{
    size_t n = strlen(staging);
    for (size_t i = 0; i < h->n_list; i++)
        if (strncmp(h->list[i].path, staging, n) == 0 && h->list[i].path[n] == '/' &&
            !h->list[i].taken)
            return true;
    return false;
}

/* Staging directories of starts up to this one: their owners crashed or were too slow, and what
 * they took has been taken again, unless the list says that something of it is only there. */
static void sweep(const lf_handover *h, int epoch)
{
    DIR *d = opendir(h->stage_dir);
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char path[PATH_MAX];
        int n = 0, end = 0;
        if (sscanf(e->d_name, "from-%d-%*16[0-9a-f]%n", &n, &end) == 1 && end > 0 &&
            e->d_name[end] == '\0' && n <= epoch && !named(h, e->d_name) &&
            lf_path_set(path, NULL, "%s/%s", h->stage_dir, e->d_name) == 0)
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
        sweep(h, epoch);
    return rc;
}

void lf_handover_fini(lf_handover *h)
{
    lf_handed_free(h->list, h->n_list);
    h->list = NULL;
    h->n_list = 0;
}

void lf_handover_discard(const char *start_dir)
{
    char path[PATH_MAX];
    if (lf_path_set(path, NULL, "%s/from", start_dir) == 0)
        lf_io_remove_tree(path, NULL);
}
