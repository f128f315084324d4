/* SPDX-License-Identifier: Apache-2.0
 *
 * Backups of the ledger, rebuilding it, and checking it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "db/ledger_priv.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"

static char *named(const char *path, const char *suffix, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s%s", path, suffix);
    char *s = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return s;
}

static int remove_file(const char *path, lf_err *err)
{
    return unlink(path) == 0 || errno == ENOENT ? 0 : lf_fail_errno(err, "cannot remove %s", path);
}

/* An empty file at tmp, which SQLite takes as it takes none. It is made here so that a place where
 * nothing can be written is named as the user named it, by path. */
static int make_empty(const char *tmp, const char *path, lf_err *err)
{
    int rc = remove_file(tmp, err);
    int fd = rc == 0 ? open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644) : -1;
    if (rc == 0 && fd < 0)
        rc = lf_fail_errno(err, "cannot create %s", path);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* A consistent, synced copy at tmp, which is replaced; it is to become path. */
static int copy_to(lf_ledger *l, const char *tmp, const char *path, lf_err *err)
{
    int rc = make_empty(tmp, path, err);
    if (rc == 0)
        rc = lf_db_run(l, err, "VACUUM INTO ?1", "s", tmp);
    if (rc == 0)
        rc = lf_io_fsync_path(tmp, err);
    return rc;
}

int lf_ledger_backup(lf_ledger *l, const char *path, lf_err *err)
{
    char *tmp = named(path, ".tmp", err);
    int rc = tmp ? 0 : LF_ENOMEM;
    if (rc == 0 && lf_io_exists(path))
        rc = lf_fail(err, LF_EEXIST, "%s exists already and is left as it is", path);
    if (rc == 0)
        rc = copy_to(l, tmp, path, err);
    if (rc == 0)
        rc = lf_io_publish_tmp(tmp, path, err);
    if (rc < 0 && tmp)
        unlink(tmp);
    free(tmp);
    return rc;
}

/* Keep the old file as "<path>.old" and give its name to the new one. The old journal must not
 * outlive the old file: SQLite would roll it back into the new one. */
static int swap_in(const char *fresh, const char *path, lf_err *err)
{
    char *old = named(path, ".old", err), *journal = named(path, "-journal", err),
         *fj = named(fresh, "-journal", err);
    char *pub = named(path, ".pub", err);
    int rc = old && journal && fj && pub ? 0 : LF_ENOMEM;
    struct stat st;
    if (rc == 0)
        rc = remove_file(old, err);
    bool file = lstat(path, &st) < 0 || S_ISREG(st.st_mode);
    if (rc == 0 && (file ? link(path, old) : rename(path, old)) < 0 && errno != ENOENT)
        rc = lf_fail_errno(err, "cannot keep %s as %s", path, old);
    if (rc == 0)
        rc = remove_file(journal, err);
    if (rc == 0)
        rc = remove_file(pub, err); /* it is of the old file */
    if (rc == 0)
        rc = lf_io_fsync_path(fresh, err);
    if (rc == 0 && rename(fresh, path) < 0)
        rc = lf_fail_errno(err, "cannot place %s", path);
    if (rc == 0)
        rc = remove_file(fj, err);
    if (rc == 0)
        rc = lf_io_fsync_parent(path, err);
    free(old);
    free(journal);
    free(fj);
    free(pub);
    return rc;
}

int lf_ledger_rebuild(const char *path, const char *data_root, unsigned flags,
                      const lf_ledger_ingest_opts *opts, lf_ledger_ingested *out, lf_err *err)
{
    lf_ledger *l = NULL;
    char *fresh = named(path, ".new", err), *fj = named(path, ".new-journal", err);
    int rc = fresh && fj ? 0 : LF_ENOMEM;
    if (rc == 0 && opts && opts->run)
        rc = lf_fail(err, LF_EINVAL, "a ledger is rebuilt from all runs, not from one");
    if (rc == 0)
        rc = remove_file(fresh, err);
    if (rc == 0)
        rc = remove_file(fj, err);
    if (rc == 0 && !(l = lf_ledger_open(fresh, flags | LF_LEDGER_WRITE, err)))
        rc = LF_EIO;
    if (rc == 0)
        rc = lf_ledger_ingest(l, data_root, opts, out, err);
    lf_ledger_close(l);
    if (rc == 0)
        rc = swap_in(fresh, path, err);
    if (rc < 0 && fresh)
        unlink(fresh);
    if (rc < 0 && fj)
        unlink(fj);
    free(fresh);
    free(fj);
    return rc;
}

/* One finding per row of a query with the column `text`. */
static int find_rows(lf_ledger *l, json_t *all, const char *sql, lf_err *err)
{
    size_t i;
    json_t *v;
    int rc = 0;
    json_t *rows = lf_db_rows(l, lf_db_prepare(l, err, sql, ""), err);
    if (!rows)
        return LF_EFORMAT;
    json_array_foreach(rows, i, v)
    {
        if (rc == 0 && json_array_append(all, json_object_get(v, "text")) < 0)
            rc = lf_fail(err, LF_ENOMEM, "no memory for a finding");
    }
    json_decref(rows);
    return rc;
}

/* What of one run is not below data_root. */
struct missing {
    char dir[64];            /* "runs/RUN" */
    size_t files[2];         /* event files, artifacts */
    char first[2][PATH_MAX]; /* of each */
};

static int add_finding(json_t *all, json_t *text, lf_err *err)
{
    return json_array_append_new(all, text) < 0 ? lf_fail(err, LF_ENOMEM, "no memory for a finding")
                                                : 0;
}

/* A run that was taken away is one finding, whatever was in it. */
static int tell_missing(json_t *all, const struct missing *m, const char *data_root, lf_err *err)
{
    static const char *const what[] = {"event file", "artifact"};
    static const char *const todo[2][2] = {
        {"restore it, or let `loong-flow ledger rebuild` forget it",
         "restore it, or let `loong-flow resume` make it again where it is needed"},
        {"restore them, or let `loong-flow ledger rebuild` forget them",
         "restore them, or let `loong-flow resume` make them again where they are needed"}};
    const char *run = m->dir + (m->dir[0] ? strlen("runs/") : 0);
    char *full = lf_path_join(data_root, m->dir, err);
    int rc = full ? 0 : LF_ENOMEM;
    if (rc == 0 && m->files[0] + m->files[1] > 0 && !lf_io_exists(full)) {
        rc = add_finding(all,
                         json_sprintf("run %s: its directory %s is gone; restore it, or let "
                                      "`loong-flow ledger rebuild` forget the run",
                                      run, full),
                         err);
    } else {
        for (int k = 0; k < 2 && rc == 0; k++)
            if (m->files[k] > 0)
                rc = add_finding(all,
                                 m->files[k] == 1
                                     ? json_sprintf("run %s: the %s %s is not there; %s", run,
                                                    what[k], m->first[k], todo[0][k])
                                     : json_sprintf("run %s: %zu %ss are not there, the first is "
                                                    "%s; %s",
                                                    run, m->files[k], what[k], m->first[k],
                                                    todo[1][k]),
                                 err);
    }
    free(full);
    return rc;
}

/* "runs/RUN" of a path, "" of one that is elsewhere. */
static void run_dir(char *out, size_t cap, const char *path)
{
    const size_t n = strlen("runs/");
    *out = '\0';
    if (lf_str_has_prefix(path, "runs/"))
        snprintf(out, cap, "%.*s", (int)(n + strcspn(path + n, "/")), path);
}

/* Paths come sorted, so that those of a run stand together. */
static int find_missing(lf_ledger *l, json_t *all, const char *data_root, lf_err *err)
{
    static const char sql[] =
        "SELECT 0 AS artifact, path FROM event UNION ALL SELECT 1, path FROM artifact WHERE path "
        "NOT IN (SELECT path FROM gone) ORDER BY path";
    struct missing m = {.dir = ""};
    size_t i;
    json_t *v;
    int rc = 0;
    json_t *rows = lf_db_rows(l, lf_db_prepare(l, err, sql, ""), err);
    if (!rows)
        return LF_EFORMAT;
    json_array_foreach(rows, i, v)
    {
        char dir[sizeof m.dir];
        const char *rel = json_string_value(json_object_get(v, "path"));
        const int k = json_integer_value(json_object_get(v, "artifact")) != 0;
        char *full = rc == 0 ? lf_path_join(data_root, rel, err) : NULL;
        if (!full)
            rc = LF_ENOMEM;
        run_dir(dir, sizeof dir, rel);
        if (rc == 0 && strcmp(dir, m.dir) != 0) {
            rc = tell_missing(all, &m, data_root, err);
            memset(&m, 0, sizeof m);
            memcpy(m.dir, dir, sizeof dir);
        }
        if (full && !lf_io_exists(full) && m.files[k]++ == 0)
            snprintf(m.first[k], sizeof m.first[k], "%s", rel);
        free(full);
    }
    if (rc == 0)
        rc = tell_missing(all, &m, data_root, err);
    json_decref(rows);
    return rc;
}

json_t *lf_ledger_check(lf_ledger *l, const char *data_root, lf_err *err)
{
    static const char *const queries[] = {
        "SELECT 'damaged file: ' || integrity_check AS text FROM pragma_integrity_check WHERE "
        "integrity_check <> 'ok'",
        "SELECT 'run ' || run || ' is named by events but was never described' AS text FROM run "
        "WHERE ev = ''",
        "SELECT 'run ' || run || ': stage ' || stage || ' is named by events but was never "
        "described' AS text "
        "FROM stage WHERE ev = ''",
        "SELECT 'run ' || run || ': ' || stage || ' attempt ' || attempt || ' is named by events "
        "but was never submitted' "
        "AS text FROM attempt WHERE ev = ''",
        "SELECT path || ' was refused: ' || text AS text FROM problem ORDER BY path",
    };
    json_t *all = json_array();
    int rc = all ? 0 : lf_fail(err, LF_ENOMEM, "no memory for the findings");
    for (size_t i = 0; rc == 0 && i < sizeof queries / sizeof queries[0]; i++)
        rc = find_rows(l, all, queries[i], err);
    if (rc == 0 && data_root)
        rc = find_missing(l, all, data_root, err);
    if (rc < 0) {
        json_decref(all);
        return NULL;
    }
    return all;
}

int lf_ledger_forget(lf_ledger *l, const char *run, lf_err *err)
{
    static const char *const steps[] = {
        "DELETE FROM run WHERE run = ?1",
        "DELETE FROM stage WHERE run = ?1",
        "DELETE FROM edge WHERE run = ?1",
        "DELETE FROM event WHERE run = ?1",
        "DELETE FROM walked WHERE run = ?1",
        "DELETE FROM problem WHERE path LIKE 'runs/' || ?1 || '/%'",
    };
    int rc = lf_db_exec(l, "BEGIN IMMEDIATE", err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < sizeof steps / sizeof steps[0]; i++)
        rc = lf_db_run(l, err, steps[i], "s", run);
    if (rc == 0)
        rc = lf_db_exec(l, "COMMIT", err);
    if (rc < 0)
        sqlite3_exec(l->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}
