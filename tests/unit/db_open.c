/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening the ledger: creation, migrations (proved with schemas of our own: an old file, a failing
 * step, a newer file), read-only files, foreign and damaged files, an unclean end, exclusion, the
 * readers' copy.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "db/ledger_priv.h"
#include "engine/base/io.h"
#include "tests/tap/tap.h"

static const char *dir;
static char bufs[4][1024];

static const char *in(int slot, const char *name)
{
    snprintf(bufs[slot], sizeof bufs[slot], "%s/%s", dir, name);
    return bufs[slot];
}

static const char *const steps[] = {
    "CREATE TABLE t (a); INSERT INTO t VALUES (7);",
    "ALTER TABLE t ADD COLUMN b DEFAULT 5;",
    "CREATE TABLE u (x); INSERT INTO u SELECT a + b FROM t;",
};
static const char *const bad_steps[] = {
    "CREATE TABLE t (a); INSERT INTO t VALUES (7);",
    "ALTER TABLE t ADD COLUMN b DEFAULT 5;",
    "CREATE TABLE u (x); INSERT INTO nowhere VALUES (1);",
};
static const struct lf_schema v1 = {steps, 1}, v2 = {steps, 2}, v3 = {steps, 3},
                              v3_bad = {bad_steps, 3};

static int64_t one(const char *path, const struct lf_schema *schema, const char *sql)
{
    lf_err err = LF_ERR_INIT;
    int64_t v = -1;
    lf_ledger *l = lf_ledger_open_schema(path, 0, schema, &err);
    if (l)
        lf_db_i64(l, &v, &err, sql);
    else
        tap_diag("%s", err.text);
    lf_ledger_close(l);
    return v;
}

static lf_ledger *must(const char *path, unsigned flags, const struct lf_schema *schema,
                       const char *what)
{
    lf_err err = LF_ERR_INIT;
    lf_ledger *l = lf_ledger_open_schema(path, flags, schema, &err);
    tap_ok(l != NULL, "%s %s", what, err.text);
    return l;
}

static void refuse(const char *path, unsigned flags, const struct lf_schema *schema, int rc,
                   const char *text)
{
    lf_err err = LF_ERR_INIT;
    lf_ledger *l = lf_ledger_open_schema(path, flags, schema, &err);
    tap_ok(!l, "refused");
    tap_rc(err.rc, rc, &err, text, text);
    lf_ledger_close(l);
}

static void test_migration(void)
{
    const char *p = in(0, "m.db");
    refuse(p, 0, &v1, LF_ENOENT, "no ledger at");
    lf_ledger_close(must(p, LF_LEDGER_WRITE, &v1, "created with schema 1"));
    tap_ok(!lf_io_exists(in(1, "m.db.v0.bak")), "a new file needs no backup");
    tap_i64(one(p, &v1, "SELECT a FROM t"), 7, "its row");
    refuse(p, 0, &v2, LF_ENOTSUP, "has schema 1, older than 2; any loong-flow command that writes");
    refuse(p, LF_LEDGER_WRITE, &v3_bad, LF_EINVAL, "schema step 3");
    tap_i64(one(p, &v1, "PRAGMA user_version"), 1, "a failing migration leaves version 1");
    tap_i64(one(p, &v1, "SELECT count(*) FROM pragma_table_info('t')"), 1, "and the old table");
    tap_i64(one(in(1, "m.db.v1.bak"), &v1, "SELECT a FROM t"), 7, "with a backup made first");
    lf_ledger *l = must(p, LF_LEDGER_WRITE, &v3, "migrated from 1 to 3");
    tap_i64(lf_ledger_schema_version(l), 3, "version of the handle");
    lf_ledger_close(l);
    tap_i64(one(p, &v3, "PRAGMA user_version"), 3, "version of the file");
    tap_i64(one(p, &v3, "SELECT x FROM u"), 12, "the steps ran in order on the old row");
    tap_i64(one(in(1, "m.db.v1.bak"), &v1, "PRAGMA user_version"), 1, "the backup is the old one");
    refuse(p, LF_LEDGER_WRITE, &v2, LF_ENOTSUP,
           "has schema 3, newer than this loong-flow's 2; use a newer loong-flow");
    refuse(p, 0, &v2, LF_ENOTSUP, "newer than this");
    tap_i64(one(p, &v3, "SELECT x FROM u"), 12, "nothing was changed");
}

/* A file as the very first loong-flow might have left it: ours by application id, but of version
 * 0. */
static void test_version_zero(void)
{
    static const char *const old[] = {"ALTER TABLE t0 ADD COLUMN b DEFAULT 9;"};
    static const struct lf_schema s = {old, 1};
    const char *p = in(0, "v0.db");
    sqlite3 *db = NULL;
    sqlite3_open(p, &db);
    sqlite3_exec(
        db, "PRAGMA application_id = 1279675460; CREATE TABLE t0 (a); INSERT INTO t0 VALUES (1)",
        NULL, NULL, NULL);
    sqlite3_close(db);
    lf_ledger_close(must(p, LF_LEDGER_WRITE, &s, "version 0 migrated"));
    tap_i64(one(p, &s, "SELECT a + b FROM t0"), 10, "its row is there, with the new column");
    tap_ok(lf_io_exists(in(1, "v0.db.v0.bak")), "and its backup");
}

static void test_foreign(void)
{
    lf_err err = LF_ERR_INIT;
    const char *p = in(0, "foreign.db");
    sqlite3 *db = NULL;
    sqlite3_open(p, &db);
    sqlite3_exec(db, "CREATE TABLE x (a)", NULL, NULL, NULL);
    sqlite3_close(db);
    refuse(p, LF_LEDGER_WRITE, &lf_ledger_schema, LF_EFORMAT, "not a loong-flow ledger");
    p = in(0, "text.db");
    lf_io_replace(p, "this is not a database, but it is long enough to look at", 56, 0644, &err);
    refuse(p, LF_LEDGER_WRITE, &lf_ledger_schema, LF_EFORMAT, "is damaged");
    refuse(p, 0, &lf_ledger_schema, LF_EFORMAT, "loong-flow ledger rebuild");
    p = in(0, "empty.db");
    lf_io_replace(p, "", 0, 0644, &err);
    refuse(p, 0, &lf_ledger_schema, LF_EFORMAT, "is empty");
    lf_ledger_close(must(p, LF_LEDGER_WRITE, &lf_ledger_schema, "an empty file is a new ledger"));
}

static void test_read_only(void)
{
    lf_err err = LF_ERR_INIT;
    const char *p = in(0, "ro/ledger.db");
    lf_io_mkdirs(in(1, "ro"), 0755, &err);
    lf_ledger_close(must(p, LF_LEDGER_WRITE, &lf_ledger_schema, "created"));
    if (geteuid() == 0) {
        tap_skip(5, "permissions do not bind root");
        return;
    }
    chmod(p, 0444);
    refuse(p, LF_LEDGER_WRITE, &lf_ledger_schema, LF_EIO,
           "cannot be written (queries still work): Permission denied");
    lf_ledger_close(must(p, 0, &lf_ledger_schema, "but read"));
    chmod(p, 0644);
    chmod(in(1, "ro"), 0555);
    refuse(p, LF_LEDGER_WRITE, &lf_ledger_schema, LF_EIO, "directory of the ledger");
    chmod(in(1, "ro"), 0755);
}

static void test_exclusion(void)
{
    lf_err err = LF_ERR_INIT;
    const char *p = in(0, "x.db");
    lf_ledger *w = must(p, LF_LEDGER_WRITE, &lf_ledger_schema, "a writer");
    int fds[2], status = -1;
    char got = 0;
    if (pipe(fds) < 0)
        tap_bail("pipe");
    pid_t pid = fork();
    if (pid == 0) {
        lf_ledger *r = lf_ledger_open(p, 0, &err);
        _exit(!r && err.rc == LF_EBUSY ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    tap_i64(status, 0, "a reader meanwhile is told that it is busy");
    /* Where locks do not work the project lock alone excludes: nothing is asked of the
     * filesystem. */
    lf_ledger_close(must(p, LF_LEDGER_WRITE | LF_LEDGER_NOLOCK, &lf_ledger_schema,
                         "without file locks nobody is busy"));
    tap_rc(lf_ledger_publish(w, &err), 0, &err, NULL, "the readers' copy");
    pid = fork();
    if (pid == 0) {
        lf_ledger *r = lf_ledger_open(p, 0, &err);
        got = r && lf_ledger_is_snapshot(r) ? 'y' : 'n';
        (void)!write(fds[1], &got, 1);
        _exit(0);
    }
    (void)!read(fds[0], &got, 1);
    waitpid(pid, NULL, 0);
    tap_i64(got, 'y', "is what a reader gets then");
    lf_ledger_close(w);
    lf_ledger *r = must(p, 0, &lf_ledger_schema, "later readers");
    tap_ok(!lf_ledger_is_snapshot(r), "get the ledger itself");
    tap_rc(lf_ledger_ingest(r, dir, NULL, NULL, &err), LF_EINVAL, &err, "for reading only",
           "and cannot write");
    lf_ledger_close(r);
    close(fds[0]);
    close(fds[1]);
}

static void die_in_transaction(const char *p, const struct lf_schema *schema)
{
    lf_ledger *l = lf_ledger_open_schema(p, LF_LEDGER_WRITE, schema, NULL);
    lf_db_exec(l,
               "PRAGMA cache_size = 1; BEGIN IMMEDIATE; UPDATE t SET a = 8;"
               "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 20000)"
               "INSERT INTO t (a) SELECT hex(randomblob(100)) FROM c",
               NULL);
    raise(SIGKILL);
}

/* A process killed in the middle of a transaction leaves a hot journal; the next open rolls it back
 * and checks. */
static void test_unclean(void)
{
    lf_err err = LF_ERR_INIT;
    struct stat st;
    const char *p = in(0, "hot.db");
    lf_ledger_close(must(p, LF_LEDGER_WRITE, &v1, "created"));
    pid_t pid = fork();
    if (pid == 0)
        die_in_transaction(p, &v1);
    waitpid(pid, NULL, 0);
    tap_ok(stat(in(1, "hot.db-journal"), &st) == 0 && st.st_size > 0, "a hot journal");
    lf_ledger *l = must(p, LF_LEDGER_WRITE, &v1, "opened again");
    lf_ledger_close(l);
    tap_i64(one(p, &v1, "SELECT a FROM t"), 7, "the unfinished transaction is undone");
    tap_i64(one(p, &v1, "SELECT count(*) FROM t"), 1, "all of it");

    /* The same with another table's page damaged behind SQLite's back. */
    lf_ledger_close(must(p, LF_LEDGER_WRITE, &v3, "with a second table"));
    int64_t page = one(p, &v3, "SELECT rootpage FROM sqlite_master WHERE name = 'u'");
    pid = fork();
    if (pid == 0)
        die_in_transaction(p, &v3);
    waitpid(pid, NULL, 0);
    int fd = open(p, O_RDWR | O_CLOEXEC);
    char junk[512];
    memset(junk, 0x5a, sizeof junk);
    if (pwrite(fd, junk, sizeof junk, (off_t)(page - 1) * 4096) != sizeof junk)
        tap_bail("patch");
    close(fd);
    l = lf_ledger_open_schema(p, LF_LEDGER_WRITE, &v3, &err);
    tap_ok(!l, "damage is found after an unclean end");
    tap_rc(err.rc, LF_EFORMAT, &err, "ledger rebuild", "and the way out is named");
    lf_ledger_close(l);
}

int main(void)
{
    dir = tap_tmpdir();
    TAP(22, test_migration());
    TAP(3, test_version_zero());
    TAP(9, test_foreign());
    TAP(6, test_read_only());
    TAP(8, test_exclusion());
    TAP(8, test_unclean());
    return tap_done();
}
