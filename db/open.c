/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening the ledger: who may, which schema, migrations, what a crash left.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "db/ledger_priv.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"

static char *with_suffix(const char *path, const char *suffix, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_adds(&b, path);
    lf_buf_adds(&b, suffix);
    char *s = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return s;
}

/* A rollback journal with contents means that the last writer did not finish. */
static bool journal_is_hot(const char *path)
{
    struct stat st;
    char *j = with_suffix(path, "-journal", NULL);
    bool hot = j && stat(j, &st) == 0 && st.st_size > 0;
    free(j);
    return hot;
}

/* What is there may be no file at all. SQLite has one word for all of it, and a pipe would be
 * waited for. */
static int check_kind(const char *path, lf_err *err)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return 0;
    const char *what = NULL;
    if (stat(path, &st) < 0)
        what = errno == ENOENT ? "a symbolic link to nothing"
                               : "a symbolic link that cannot be followed";
    else if (S_ISDIR(st.st_mode))
        what = "a directory";
    else if (!S_ISREG(st.st_mode))
        what = "no regular file";
    if (what)
        return lf_fail(err, LF_EFORMAT,
                       "%s is %s; loong-flow ledger rebuild puts it aside and makes the ledger "
                       "from the run directories",
                       path, what);
    if (access(path, R_OK) < 0)
        return lf_fail_errno(
            err, "the ledger %s cannot be read (give its reader the right to: chmod)", path);
    return 0;
}

/* SQLite opens a file that cannot be written read-only without a word; we say so instead. */
static int check_writable(const char *path, lf_err *err)
{
    char *dir = with_suffix(path, "", err), *slash = dir ? strrchr(dir, '/') : NULL;
    int rc = dir ? 0 : LF_ENOMEM;
    if (slash)
        slash[slash == dir] = '\0';
    if (rc == 0 && lf_io_exists(path) && access(path, W_OK) < 0)
        rc = lf_fail_errno(err, "the ledger %s cannot be written (queries still work)", path);
    if (rc == 0 && access(slash ? dir : ".", W_OK) < 0)
        rc = lf_fail_errno(
            err, "the directory of the ledger %s cannot be written (queries still work)", path);
    free(dir);
    return rc;
}

static int read_versions(lf_ledger *l, int64_t *app, int64_t *version, int64_t *tables, lf_err *err)
{
    int rc = lf_db_i64(l, app, err, "PRAGMA application_id");
    if (rc == 0)
        rc = lf_db_i64(l, version, err, "PRAGMA user_version");
    if (rc == 0)
        rc = lf_db_i64(l, tables, err, "SELECT count(*) FROM sqlite_master");
    return rc;
}

static int quick_check(lf_ledger *l, lf_err *err)
{
    sqlite3_stmt *st = lf_db_prepare(l, err, "PRAGMA quick_check(1)", "");
    if (!st)
        return LF_EFORMAT;
    int rc = 0;
    if (sqlite3_step(st) != SQLITE_ROW)
        rc = lf_db_fail(l, "check it", err);
    else if (strcmp((const char *)sqlite3_column_text(st, 0), "ok") != 0)
        rc = lf_fail(err, LF_EFORMAT,
                     "%s is damaged after an unclean end (%s); loong-flow ledger rebuild makes it "
                     "from the run directories",
                     l->path, (const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    return rc;
}

/* A copy at "<path>.v<version>.bak", replaced when an earlier try left one. */
static int backup_before(lf_ledger *l, int64_t version, lf_err *err)
{
    char suffix[40];
    snprintf(suffix, sizeof suffix, ".v%lld.bak", (long long)version);
    char *bak = with_suffix(l->path, suffix, err),
         *tmp = bak ? with_suffix(bak, ".tmp", err) : NULL;
    int rc = tmp ? 0 : LF_ENOMEM;
    if (rc == 0 && unlink(tmp) < 0 && errno != ENOENT)
        rc = lf_fail_errno(err, "cannot remove %s", tmp);
    if (rc == 0)
        rc = lf_db_run(l, err, "VACUUM INTO ?1", "s", tmp);
    if (rc == 0)
        rc = lf_io_fsync_path(tmp, err);
    if (rc == 0 && rename(tmp, bak) < 0)
        rc = lf_fail_errno(err, "cannot place the backup %s", bak);
    if (rc == 0)
        rc = lf_io_fsync_parent(bak, err);
    free(bak);
    free(tmp);
    return rc;
}

static int run_steps(lf_ledger *l, const struct lf_schema *schema, int64_t version, lf_err *err)
{
    char sql[80];
    int rc = lf_db_exec(l, "BEGIN IMMEDIATE", err);
    if (rc < 0)
        return rc;
    for (size_t i = (size_t)version; rc == 0 && i < schema->n; i++)
        if ((rc = lf_db_exec(l, schema->steps[i], err)) < 0)
            lf_err_prefix(err, "schema step %zu", i + 1);
    snprintf(sql, sizeof sql, "PRAGMA application_id = %d", LF_LEDGER_APPLICATION_ID);
    if (rc == 0)
        rc = lf_db_exec(l, sql, err);
    snprintf(sql, sizeof sql, "PRAGMA user_version = %zu", schema->n);
    if (rc == 0)
        rc = lf_db_exec(l, sql, err);
    if (rc == 0)
        rc = lf_db_exec(l, "COMMIT", err);
    if (rc < 0)
        sqlite3_exec(l->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

static int settle_schema(lf_ledger *l, const struct lf_schema *schema, lf_err *err)
{
    int64_t app = 0, version = 0, tables = 0, want = (int64_t)schema->n;
    int rc = read_versions(l, &app, &version, &tables, err);
    if (rc < 0)
        return rc;
    bool fresh = app == 0 && version == 0 && tables == 0;
    if (!fresh && app != LF_LEDGER_APPLICATION_ID)
        return lf_fail(err, LF_EFORMAT, "%s is an SQLite file but not a loong-flow ledger",
                       l->path);
    if (version > want)
        return lf_fail(err, LF_ENOTSUP,
                       "%s has schema %lld, newer than this loong-flow's %lld; use a newer "
                       "loong-flow (nothing was changed)",
                       l->path, (long long)version, (long long)want);
    if (version < 0)
        return lf_fail(err, LF_EFORMAT, "%s has the impossible schema version %lld", l->path,
                       (long long)version);
    if (version == want)
        return 0;
    if (!l->writable)
        return fresh
                   ? lf_fail(
                         err, LF_EFORMAT,
                         "%s is empty; loong-flow ledger rebuild makes it from the run directories",
                         l->path)
                   : lf_fail(err, LF_ENOTSUP,
                             "%s has schema %lld, older than %lld; any loong-flow command that "
                             "writes brings it up to date",
                             l->path, (long long)version, (long long)want);
    if (!fresh && (rc = backup_before(l, version, err)) < 0)
        return rc;
    return run_steps(l, schema, version, err);
}

static int open_file(lf_ledger *l, const char *path, unsigned flags, lf_err *err)
{
    bool nolock = (flags & LF_LEDGER_NOLOCK) != 0;
    int code =
        l->writable
            ? lf_vfs_open_tracked(&l->db, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nolock,
                                  &l->written)
            : sqlite3_open_v2(path, &l->db, SQLITE_OPEN_READONLY, nolock ? "unix-none" : NULL);
    if (code != SQLITE_OK)
        return lf_db_fail(l, "open it", err);
    sqlite3_extended_result_codes(l->db, 1);
    sqlite3_busy_timeout(l->db, l->writable ? 5000 : 200);
    if (!l->writable)
        return 0;
    /* An ingest is one transaction. With fewer pages it writes and reads them again and again. */
    int rc = lf_db_exec(l, "PRAGMA cache_size = -262144", err); /* KiB, taken as needed */
    /* What SQLite notes so that it can take one event back is small. It would be written to a file
     * of its own for each event. */
    if (rc == 0)
        rc = lf_db_exec(l, "PRAGMA temp_store = MEMORY", err);
    /* The exclusive lock comes with the first statement below and stays until close. */
    if (rc == 0)
        rc = lf_db_exec(l, "PRAGMA locking_mode = EXCLUSIVE", err);
    if (rc == 0)
        rc = lf_db_exec(l, "PRAGMA journal_mode = TRUNCATE", err);
    if (rc == 0)
        rc = lf_db_exec(l, "PRAGMA synchronous = FULL", err);
    if (rc == 0)
        rc = lf_db_exec(l, "BEGIN IMMEDIATE; COMMIT", err);
    if (rc == 0 && sqlite3_db_readonly(l->db, "main") == 1) {
        errno = EACCES;
        rc = lf_fail_errno(err, "the ledger %s cannot be written (queries still work)", path);
    }
    /* A recovery from an unclean end is over now and nothing else was written yet. */
    lf_written_clear(&l->written);
    return rc < 0 ? rc : lf_snapshot_counter(l, &l->counter, err);
}

static lf_ledger *open_one(const char *path, unsigned flags, const struct lf_schema *schema,
                           bool snapshot, lf_err *err)
{
    lf_ledger *l = lf_calloc(1, sizeof *l, err);
    if (!l)
        return NULL;
    l->snapshot = snapshot;
    l->writable = (flags & LF_LEDGER_WRITE) != 0;
    l->path = lf_strdup(path, err);
    int rc = l->path ? 0 : LF_ENOMEM;
    bool hot = journal_is_hot(path);
    if (rc == 0)
        rc = check_kind(path, err);
    if (rc == 0 && l->writable)
        rc = check_writable(path, err);
    if (rc == 0 && !l->writable && !lf_io_exists(path))
        rc = lf_fail(err, LF_ENOENT, "no ledger at %s", path);
    if (rc == 0)
        rc = snapshot ? lf_snapshot_open(l, err) : open_file(l, path, flags, err);
    if (rc == 0 && hot && !snapshot)
        rc = quick_check(l, err);
    if (rc == 0)
        rc = settle_schema(l, schema, err);
    l->version = (int)schema->n;
    if (rc < 0) {
        lf_ledger_close(l);
        return NULL;
    }
    return l;
}

lf_ledger *lf_ledger_open_schema(const char *path, unsigned flags, const struct lf_schema *schema,
                                 lf_err *err)
{
    lf_err first = LF_ERR_INIT;
    bool reading = !(flags & LF_LEDGER_WRITE), no_locks = (flags & LF_LEDGER_NOLOCK) != 0;
    lf_ledger *l = NULL;
    /* Without locks only the snapshot is safe beside a writer. */
    if (reading && no_locks)
        l = open_one(path, flags, schema, true, NULL);
    if (!l)
        l = open_one(path, flags, schema, false, &first);
    /* Held by a writer, locks that fail, or a journal that only a writer may roll back. */
    if (!l && reading && (first.rc == LF_EBUSY || first.rc == LF_EIO))
        l = open_one(path, flags, schema, true, NULL);
    if (!l && err && err->rc == 0)
        *err = first;
    return l;
}

lf_ledger *lf_ledger_open(const char *path, unsigned flags, lf_err *err)
{
    return lf_ledger_open_schema(path, flags, &lf_ledger_schema, err);
}

void lf_ledger_close(lf_ledger *l)
{
    if (!l)
        return;
    if (l->published && lf_written_any(&l->written))
        lf_snapshot_drop(l); /* the next one must not be built on it */
    lf_db_forget(l);
    sqlite3_close(l->db);
    lf_written_fini(&l->written);
    free(l->path);
    free(l);
}

bool lf_ledger_is_snapshot(const lf_ledger *l)
{
    return l->snapshot;
}

int lf_ledger_schema_version(const lf_ledger *l)
{
    return l->version;
}
