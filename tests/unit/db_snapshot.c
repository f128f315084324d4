/* SPDX-License-Identifier: Apache-2.0
 *
 * The readers' copy: small changes are published as small changes, whatever was done to the ledger
 * in between the copy is the ledger, and what is damaged or of another file is not taken.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "db/ledger_priv.h"
#include "engine/base/io.h"
#include "tests/tap/tap.h"

static char db[1024], pub[1100];
static const char *const steps[] = {"CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)"};
static const struct lf_schema schema = {steps, 1};

static lf_ledger *writer(void)
{
    lf_err err = LF_ERR_INIT;
    lf_ledger *l = lf_ledger_open_schema(db, LF_LEDGER_WRITE, &schema, &err);
    if (!l)
        tap_bail("%s", err.text);
    return l;
}

static void must_exec(lf_ledger *l, const char *sql)
{
    lf_err err = LF_ERR_INIT;
    if (lf_db_exec(l, sql, &err) < 0)
        tap_bail("%s", err.text);
}

static void must_publish(lf_ledger *l)
{
    lf_err err = LF_ERR_INIT;
    if (lf_ledger_publish(l, &err) < 0)
        tap_bail("%s", err.text);
}

/* One session: a statement, published. */
static void change(const char *sql)
{
    lf_ledger *l = writer();
    must_exec(l, sql);
    must_publish(l);
    lf_ledger_close(l);
}

/* What is in it, and that SQLite finds it whole. Owned. */
static char *contents(unsigned flags, bool *snapshot)
{
    lf_err err = LF_ERR_INIT;
    lf_ledger *l = lf_ledger_open_schema(db, flags, &schema, &err);
    if (!l)
        tap_bail("%s", err.text);
    json_t *rows =
        lf_db_rows(l,
                   lf_db_prepare(l, &err,
                                 "SELECT a, b FROM t UNION ALL SELECT 0, integrity_check FROM "
                                 "pragma_integrity_check",
                                 ""),
                   &err);
    if (!rows)
        tap_bail("%s", err.text);
    char *s = json_dumps(rows, JSON_COMPACT);
    *snapshot = lf_ledger_is_snapshot(l);
    json_decref(rows);
    lf_ledger_close(l);
    return s;
}

static bool same(void)
{
    bool from_snapshot = false, dummy = false;
    char *a = contents(0, &dummy), *b = contents(LF_LEDGER_NOLOCK, &from_snapshot);
    bool ok = strcmp(a, b) == 0 && from_snapshot && !dummy && strstr(a, "\"ok\"");
    free(a);
    free(b);
    return ok;
}

/* Number of whole copies; the name of one. */
static int bases(char *name, size_t cap)
{
    int n = 0;
    DIR *d = opendir(tap_tmpdir());
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (strncmp(e->d_name, "l.db.pub-", 9) == 0) {
            snprintf(name, cap, "%s", e->d_name);
            n++;
        }
    closedir(d);
    return n;
}

static void fill(void)
{
    change("WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 4000) "
           "INSERT INTO t SELECT i, printf('%0500d', i) FROM c");
}

static void test_small(void)
{
    char first[300] = "", second[300] = "";
    lf_err err = LF_ERR_INIT;
    fill();
    tap_i64(bases(first, sizeof first), 1, "one whole copy");
    tap_ok(same(), "which is the ledger");
    int64_t whole = lf_io_size(db, &err);
    change("UPDATE t SET b = 'changed' WHERE a = 2000");
    tap_i64(bases(second, sizeof second), 1, "a small change");
    tap_str(second, first, "makes no new whole copy");
    tap_ok(lf_io_size(pub, &err) < whole / 20, "and a small file (%lld of %lld bytes)",
           (long long)lf_io_size(pub, &err), (long long)whole);
    tap_ok(same(), "and readers see it");
    struct stat a, b;
    stat(pub, &a);
    lf_ledger *l = writer();
    must_publish(l);
    lf_ledger_close(l);
    stat(pub, &b);
    tap_ok(a.st_ino == b.st_ino, "nothing changed: nothing is written");
}

/* A simple generator: the same statements each time. */
static unsigned rnd(unsigned n)
{
    static unsigned long long x = 88172645463325252ull;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (unsigned)(x % n);
}

static void test_random(void)
{
    int bad = 0;
    for (int i = 0; i < 60; i++) {
        lf_ledger *l = writer();
        for (unsigned k = 1 + rnd(4); k > 0; k--) {
            char sql[200];
            unsigned a = 1 + rnd(5000);
            switch (rnd(5)) {
            case 0:
                snprintf(sql, sizeof sql, "DELETE FROM t WHERE a BETWEEN %u AND %u", a,
                         a + rnd(40));
                break;
            case 1:
                snprintf(sql, sizeof sql,
                         "INSERT INTO t (b) SELECT printf('%%0%ud', a) FROM t WHERE a < %u",
                         1 + rnd(900), rnd(60));
                break;
            default:
                snprintf(sql, sizeof sql, "UPDATE t SET b = printf('%%0%ud', %u) WHERE a = %u",
                         1 + rnd(2000), a, a);
            }
            must_exec(l, sql);
            if (rnd(3) == 0)
                must_publish(l);
        }
        must_publish(l);
        lf_ledger_close(l);
        bad += !same();
    }
    tap_i64(bad, 0, "after 60 sessions of random changes, each time the ledger");
}

static void test_not_published(void)
{
    char before[300] = "", after[300] = "";
    bases(before, sizeof before);
    lf_ledger *l = writer();
    must_exec(l, "UPDATE t SET b = 'a command that died before it published' WHERE a = 7");
    lf_ledger_close(l);
    change("UPDATE t SET b = 'the next' WHERE a = 3000");
    tap_i64(bases(after, sizeof after), 1, "the next after one that did not publish");
    tap_ok(strcmp(before, after) != 0, "makes a new whole copy");
    tap_ok(same(), "so nothing is missing");

    l = writer();
    must_exec(l, "UPDATE t SET b = 'published' WHERE a = 8");
    must_publish(l);
    must_exec(l, "UPDATE t SET b = 'not any more' WHERE a = 9");
    lf_ledger_close(l);
    tap_ok(!lf_io_exists(pub), "changes behind a publication take it back");
    change("UPDATE t SET b = 'again' WHERE a = 10");
    tap_ok(same(), "until the next");
}

static void test_other_file(void)
{
    char copy[1100], sql[1200];
    snprintf(copy, sizeof copy, "%s.copy", db);
    lf_ledger *l = writer();
    snprintf(sql, sizeof sql, "VACUUM INTO '%s'", copy);
    must_exec(l, sql);
    lf_ledger_close(l);
    change("UPDATE t SET b = 'lost with the file' WHERE a = 11");
    rename(copy, db);
    change("UPDATE t SET b = 'in the other file' WHERE a = 12");
    tap_ok(same(), "a restored copy is published as it is");
}

static void test_damage(void)
{
    bool from_snapshot = true;
    change("UPDATE t SET b = 'x' WHERE a = 13");
    FILE *f = fopen(pub, "r+b");
    fseek(f, -100, SEEK_END);
    int c = fgetc(f);
    fseek(f, -100, SEEK_END);
    fputc(c ^ 1, f);
    fclose(f);
    char *s = contents(LF_LEDGER_NOLOCK, &from_snapshot);
    tap_ok(!from_snapshot, "a damaged snapshot is not taken: readers get the ledger");
    free(s);
    change("UPDATE t SET b = 'y' WHERE a = 14");
    tap_ok(same(), "and the next one is whole again");
}

static void test_readers_stay(void)
{
    char base[300];
    lf_err err = LF_ERR_INIT;
    int64_t n = 0;
    lf_ledger *r = lf_ledger_open_schema(db, LF_LEDGER_NOLOCK, &schema, &err);
    char before[300];
    bases(before, sizeof before);
    change("UPDATE t SET b = b || 'many changes make a new whole copy'");
    tap_i64(bases(base, sizeof base), 1, "the old whole copy is swept away");
    tap_ok(strcmp(before, base) != 0, "for a new one");
    lf_db_i64(r, &n, &err, "SELECT count(*) FROM t WHERE b LIKE '%whole copy'");
    tap_i64(n, 0, "who reads the old one goes on reading it");
    lf_db_i64(r, &n, &err, "SELECT integrity_check = 'ok' FROM pragma_integrity_check");
    tap_i64(n, 1, "to its end");
    tap_ok(lf_db_exec(r, "DELETE FROM t", &err) < 0, "and cannot write (%s)", err.text);
    lf_ledger_close(r);
    tap_ok(same(), "others see the new one");
}

int main(void)
{
    snprintf(db, sizeof db, "%s/l.db", tap_tmpdir());
    snprintf(pub, sizeof pub, "%s.pub", db);
    TAP(7, test_small());
    TAP(1, test_random());
    TAP(5, test_not_published());
    TAP(1, test_other_file());
    TAP(2, test_damage());
    TAP(6, test_readers_stay());
    return tap_done();
}
