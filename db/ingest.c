/* SPDX-License-Identifier: Apache-2.0
 *
 * Walking the run directories for what is new. Three levels hold spools: runs/RUN, runs/RUN/STAGE
 * and runs/RUN/STAGE/A.E; the last also holds `metrics`, a framed file or a directory of files
 * named *.frames. Event files never change once published, so one whose id is in the event table is
 * not read again.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "db/hint.h"
#include "db/ledger_priv.h"
#include "engine/base/id.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"

enum { EVENT_MAX = 8 << 20, DIR_MAX = 1000000, LF_MARK_SIZE = 160 };
#define FULL_WALK_S 86400.0

struct walk {
    lf_ledger *l;
    const char *root;
    const lf_ledger_ingest_opts *opts;
    lf_ledger_ingested got;
    sqlite3_stmt *known; /* is this event id here? */
    bool again;          /* metrics of the stage have to be read once more */
    lf_err *err;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_names(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

/* Sorted names in a directory, hidden ones left out; an absent directory has none. */
static int list(const char *path, char ***out, size_t *n_out, lf_err *err)
{
    char **names = NULL;
    size_t n = 0, cap = 0;
    int rc = 0;
    DIR *d = opendir(path);
    *out = NULL;
    *n_out = 0;
    if (!d)
        return errno == ENOENT || errno == ENOTDIR ? 0 : lf_fail_errno(err, "cannot list %s", path);
    while (rc == 0) {
        errno = 0;
        struct dirent *e = readdir(d);
        if (!e) {
            rc = errno ? lf_fail_errno(err, "cannot list %s", path) : 0;
            break;
        }
        if (e->d_name[0] == '.')
            continue;
        if (n >= DIR_MAX)
            rc = lf_fail(err, LF_EFORMAT, "%s holds more than %d files", path, DIR_MAX);
        if (rc == 0)
            rc = lf_grow(&names, &cap, n, sizeof *names, err);
        if (rc == 0 && !(names[n] = lf_strdup(e->d_name, err)))
            rc = LF_ENOMEM;
        if (rc == 0)
            n++;
    }
    closedir(d);
    if (rc < 0) {
        free_names(names, n);
        return rc;
    }
    if (n)
        qsort(names, n, sizeof *names, by_name);
    *out = names;
    *n_out = n;
    return 0;
}

/* A refused file: noted once, and again only when the reason changes. */
static int note_problem(struct walk *w, const char *rel, const char *text)
{
    int rc = lf_db_run(w->l, w->err,
                       "INSERT INTO problem (path, t, text) VALUES (?1, ?2, ?3) "
                       "ON CONFLICT (path) DO UPDATE SET t = ?2, text = ?3 WHERE text <> ?3",
                       "sfs", rel, lf_wall_s(), text);
    if (rc == 0)
        w->got.problems += sqlite3_changes(w->l->db) > 0;
    return rc;
}

static int clear_problem(struct walk *w, const char *rel)
{
    return lf_db_run(w->l, w->err, "DELETE FROM problem WHERE path = ?1", "s", rel);
}

/* Owned by me, by root, or by someone the caller trusts. */
static int check_owner(const struct walk *w, const char *full, lf_err *err)
{
    struct stat st;
    if (lstat(full, &st) < 0)
        return lf_fail_errno(err, "cannot look at %s", full);
    if (!S_ISREG(st.st_mode))
        return lf_fail(err, LF_EFORMAT, "%s is not a regular file", full);
    if (st.st_uid == geteuid() || st.st_uid == 0)
        return 0;
    for (size_t i = 0; i < w->opts->n_trusted; i++)
        if (w->opts->trusted[i] == st.st_uid)
            return 0;
    return lf_fail(err, LF_EFORMAT, "%s belongs to user %u, who is not trusted", full,
                   (unsigned)st.st_uid);
}

static bool is_known(struct walk *w, const char *id)
{
    sqlite3_reset(w->known);
    sqlite3_bind_text(w->known, 1, id, -1, SQLITE_STATIC);
    bool known = sqlite3_step(w->known) == SQLITE_ROW;
    sqlite3_reset(w->known);
    return known;
}

/* An event may only speak of the place it lies in. */
static int check_place(const lf_event *ev, const char *id, const struct lf_start *at, lf_err *err)
{
    if (strcmp(ev->id, id) != 0)
        return lf_fail(err, LF_EFORMAT, "its name says %s, its text %s", id, ev->id);
    if (strcmp(ev->run, at->run) != 0 ||
        (at->stage && (!ev->stage || strcmp(ev->stage, at->stage) != 0)) ||
        (at->attempt && (ev->attempt != at->attempt || ev->epoch != at->epoch)))
        return lf_fail(err, LF_EFORMAT,
                       "it speaks of another run, stage or attempt than its directory");
    return 0;
}

/* The effect of one event, all of it or nothing. LF_EFORMAT and LF_ENOTSUP: this file is bad. */
static int take_event(struct walk *w, const char *full, const char *rel, const char *id,
                      const struct lf_start *at, lf_err *err)
{
    lf_event ev;
    json_t *root = NULL;
    lf_buf b;
    lf_buf_init(&b);
    int rc = check_owner(w, full, err);
    if (rc == 0)
        rc = lf_io_read_file(full, EVENT_MAX, &b, err);
    if (rc == 0)
        rc = lf_event_parse(&ev, &root, b.data, b.len, rel, err);
    if (rc == 0)
        rc = check_place(&ev, id, at, err);
    if (rc == 0)
        rc = lf_db_run(w->l, err, "SAVEPOINT event", "");
    if (rc == 0) {
        rc = lf_ledger_apply(w->l, &ev, rel, err);
        if (rc < 0) {
            sqlite3_exec(w->l->db, "ROLLBACK TO event", NULL, NULL, NULL);
            w->l->run_there[0] = '\0';
        }
        int rel_rc = lf_db_run(w->l, err, "RELEASE event", "");
        rc = rc < 0 ? rc : rel_rc;
    }
    json_decref(root);
    lf_buf_fini(&b);
    return rc;
}

static bool is_bad_file(int rc)
{
    return rc == LF_EFORMAT || rc == LF_ENOTSUP || rc == LF_ENOENT || rc == LF_EINVAL;
}

static int read_spool(struct walk *w, const char *rel_dir, const struct lf_start *at)
{
    char **names = NULL, *dir = lf_path_join(w->root, rel_dir, w->err);
    size_t n = 0;
    int rc = dir ? list(dir, &names, &n, w->err) : LF_ENOMEM;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        char id[LF_ULID_SIZE] = "";
        size_t len = strlen(names[i]);
        /* Anything else is a temporary file of a writer at work, or one that died. */
        if (len < LF_ULID_SIZE + 5 || names[i][LF_ULID_SIZE - 1] != '-' ||
            !lf_str_has_suffix(names[i], ".json"))
            continue;
        memcpy(id, names[i], LF_ULID_SIZE - 1);
        if (!lf_ulid_valid(id) || is_known(w, id))
            continue;
        lf_err bad = LF_ERR_INIT;
        char *full = lf_path_join(dir, names[i], w->err),
             *rel = lf_path_join(rel_dir, names[i], w->err);
        rc = full && rel ? take_event(w, full, rel, id, at, &bad) : LF_ENOMEM;
        if (rc == 0) {
            w->got.events++;
            rc = clear_problem(w, rel);
        } else if (rel && is_bad_file(rc)) {
            rc = note_problem(w, rel, bad.text);
        } else if (bad.rc) {
            rc = lf_fail(w->err, rc, "%s", bad.text);
        }
        free(full);
        free(rel);
    }
    free_names(names, n);
    free(dir);
    return rc;
}

static int read_frames(struct walk *w, const char *rel, const struct lf_start *at)
{
    lf_err bad = LF_ERR_INIT;
    int64_t before = w->got.records;
    char *full = lf_path_join(w->root, rel, w->err);
    int rc = full ? check_owner(w, full, &bad) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_ledger_read_metrics(w->l, at, full, rel, &w->got.records, &w->again, &bad);
    if (rc == 0 && w->got.records > before)
        rc = clear_problem(w, rel);
    else if (full && is_bad_file(rc))
        rc = note_problem(w, rel, bad.text);
    else if (rc < 0 && bad.rc)
        rc = lf_fail(w->err, rc, "%s", bad.text);
    free(full);
    return rc;
}

static int read_metrics(struct walk *w, const char *rel_dir, const struct lf_start *at)
{
    struct stat st;
    char **names = NULL, *rel = lf_path_join(rel_dir, "metrics", w->err),
         *full = rel ? lf_path_join(w->root, rel, w->err) : NULL;
    size_t n = 0;
    int rc = full ? 0 : LF_ENOMEM;
    if (rc == 0 && lstat(full, &st) == 0) {
        if (!S_ISDIR(st.st_mode))
            rc = read_frames(w, rel, at);
        else
            rc = list(full, &names, &n, w->err);
    }
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (!lf_str_has_suffix(names[i], ".frames"))
            continue;
        char *one = lf_path_join(rel, names[i], w->err);
        rc = one ? read_frames(w, one, at) : LF_ENOMEM;
        free(one);
    }
    free_names(names, n);
    free(full);
    free(rel);
    return rc;
}

/* "A.E", both from 1. */
static bool parse_start(const char *name, int64_t *attempt, int64_t *epoch)
{
    char a[20], e[20];
    const char *dot = strchr(name, '.');
    if (!dot || dot == name || dot - name >= 20 || strlen(dot + 1) >= 20)
        return false;
    snprintf(a, sizeof a, "%.*s", (int)(dot - name), name);
    snprintf(e, sizeof e, "%s", dot + 1);
    return lf_parse_i64(attempt, a, NULL) == 0 && lf_parse_i64(epoch, e, NULL) == 0 &&
           *attempt > 0 && *epoch > 0;
}

/* Metrics of a stage whose curves were forgotten (lf_ledger_read_metrics). All spans are known now,
 * so nothing is forgotten again. Records are not counted twice. */
static int read_stage_again(struct walk *w, const char *rel_dir, char *const *names, size_t n,
                            struct lf_start at)
{
    const int64_t records = w->got.records;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (!parse_start(names[i], &at.attempt, &at.epoch))
            continue;
        char *rel = lf_path_join(rel_dir, names[i], w->err);
        rc = rel ? read_metrics(w, rel, &at) : LF_ENOMEM;
        free(rel);
    }
    w->got.records = records;
    return rc;
}

/* Spool and, in a start, metrics of one directory; then the level below. level: 0 run, 1
 * stage, 2 start. */
static int read_level(struct walk *w, const char *rel_dir, int level, struct lf_start at)
{
    char **names = NULL, *dir = lf_path_join(w->root, rel_dir, w->err),
         *spool = lf_path_join(rel_dir, "spool", w->err);
    size_t n = 0;
    int rc = dir && spool ? read_spool(w, spool, &at) : LF_ENOMEM;
    if (rc == 0 && level == 2)
        rc = read_metrics(w, rel_dir, &at);
    if (rc == 0 && level < 2)
        rc = list(dir, &names, &n, w->err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct lf_start below = at;
        if (strcmp(names[i], "spool") == 0)
            continue;
        if (level == 0)
            below.stage = names[i];
        else if (!parse_start(names[i], &below.attempt, &below.epoch))
            continue;
        char *rel = lf_path_join(rel_dir, names[i], w->err);
        rc = rel ? read_level(w, rel, level + 1, below) : LF_ENOMEM;
        free(rel);
    }
    if (rc == 0 && level == 1 && w->again) {
        w->again = false;
        rc = read_stage_again(w, rel_dir, names, n, at);
    }
    free_names(names, n);
    free(dir);
    free(spool);
    return rc;
}

static int read_run(struct walk *w, const char *run)
{
    struct lf_start at = {.run = run};
    char *rel = lf_path_join("runs", run, w->err);
    int rc = rel ? read_level(w, rel, 0, at) : LF_ENOMEM;
    free(rel);
    return rc;
}

/* Does a query with the run as its parameter have a row? */
static bool has_row(struct walk *w, sqlite3_stmt *st, const char *run)
{
    (void)w;
    sqlite3_reset(st);
    sqlite3_bind_text(st, 1, run, -1, SQLITE_STATIC);
    bool any = sqlite3_step(st) == SQLITE_ROW;
    sqlite3_reset(st);
    return any;
}

/* Runs that were touched, that run, or that were never read. What a refused file was about may have
 * been put right. */
static int read_some(struct walk *w, char **names, size_t n, const struct lf_hints *hints,
                     bool everything)
{
    sqlite3_stmt *seen = lf_db_prepare(w->l, w->err, "SELECT 1 FROM walked WHERE run = ?1", "");
    sqlite3_stmt *open = lf_db_prepare(
        w->l, w->err,
        "SELECT 1 FROM segment WHERE run = ?1 AND ev_end = '' UNION ALL SELECT 1 FROM problem "
        "WHERE path > 'runs/' || ?1 || '/' AND path < 'runs/' || ?1 || '0' LIMIT 1",
        "");
    int rc = seen && open ? 0 : w->err->rc;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        bool known = has_row(w, seen, names[i]);
        if (!everything && known && !lf_hints_has(hints, names[i]) && !has_row(w, open, names[i]))
            continue;
        rc = read_run(w, names[i]);
        if (rc == 0 && !known)
            rc = lf_db_run(w->l, w->err, "INSERT OR IGNORE INTO walked (run) VALUES (?1)", "s",
                           names[i]);
    }
    sqlite3_finalize(seen);
    sqlite3_finalize(open);
    return rc;
}

/* Everything is walked once a day, and when this machine was booted or is another: a crash may have
 * lost hints. */
static int look_for_reason(struct walk *w, bool *everything, char now[LF_MARK_SIZE])
{
    lf_proc_id me;
    int rc = lf_proc_self(&me, w->err);
    if (rc < 0)
        return rc;
    snprintf(now, LF_MARK_SIZE, "%lld %.40s %.64s", (long long)(lf_wall_s() / FULL_WALK_S),
             me.boot_id, me.host);
    sqlite3_stmt *st = lf_db_prepare(
        w->l, w->err, "SELECT value FROM meta WHERE key = 'full ' || ?1", "s", w->root);
    if (!st)
        return w->err->rc;
    bool same = sqlite3_step(st) == SQLITE_ROW &&
                strcmp((const char *)sqlite3_column_text(st, 0), now) == 0;
    sqlite3_finalize(st);
    *everything = *everything || !same;
    if (same)
        now[0] = '\0';
    return 0;
}

static int read_runs(struct walk *w, struct lf_hints *hints)
{
    char **names = NULL, *dir = lf_path_join(w->root, "runs", w->err), mark[LF_MARK_SIZE] = "";
    size_t n = 0;
    bool everything = w->opts->everything;
    int rc = dir ? 0 : LF_ENOMEM;
    if (rc == 0 && w->opts->run) {
        rc = read_run(w, w->opts->run);
    } else if (rc == 0) {
        rc = look_for_reason(w, &everything, mark);
        if (rc == 0)
            rc = lf_hints_load(hints, w->root, w->err);
        if (rc == 0)
            rc = list(dir, &names, &n, w->err);
        if (rc == 0)
            rc = read_some(w, names, n, hints, everything);
        if (rc == 0 && mark[0])
            rc = lf_db_run(w->l, w->err,
                           "INSERT INTO meta (key, value) VALUES ('full ' || ?1, ?2) ON CONFLICT "
                           "(key) DO UPDATE SET "
                           "value = ?2",
                           "ss", w->root, mark);
    }
    free_names(names, n);
    free(dir);
    return rc;
}

int lf_ledger_ingest(lf_ledger *l, const char *data_root, const lf_ledger_ingest_opts *opts,
                     lf_ledger_ingested *out, lf_err *err)
{
    static const lf_ledger_ingest_opts none;
    lf_err mine = LF_ERR_INIT;
    struct walk w = {.l = l, .root = data_root, .opts = opts ? opts : &none, .err = &mine};
    if (!l->writable)
        return lf_fail(err, LF_EINVAL, "%s is open for reading only", l->path);
    int rc = lf_db_exec(l, "BEGIN IMMEDIATE", err);
    if (rc < 0)
        return rc;
    l->run_there[0] = '\0';
    w.known = lf_db_prepare(l, &mine, "SELECT 1 FROM event WHERE id = ?1", "");
    struct lf_hints hints = {0};
    rc = w.known ? read_runs(&w, &hints) : mine.rc;
    sqlite3_finalize(w.known);
    if (rc == 0)
        rc = lf_db_exec(l, "COMMIT", &mine);
    if (rc == 0)
        lf_hints_settle(&hints);
    lf_hints_fini(&hints);
    if (rc < 0) {
        sqlite3_exec(l->db, "ROLLBACK", NULL, NULL, NULL);
        return lf_fail(err, rc, "%s", mine.text);
    }
    if (out)
        *out = w.got;
    return 0;
}
