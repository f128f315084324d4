/* SPDX-License-Identifier: Apache-2.0
 *
 * Which runs an ingest walks: those that were touched, those that run, those it never saw; and
 * everything when it is asked to. A hint stays until a walk began well after it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "db/hint.h"
#include "db/ledger_priv.h"
#include "engine/base/io.h"
#include "tests/tap/tap.h"

static char root[1024], path_buf[2][2200];

static const char *at(int slot, const char *rel)
{
    snprintf(path_buf[slot], sizeof path_buf[slot], "%s/%s", root, rel);
    return path_buf[slot];
}

static void note(const char *run, const char *text)
{
    char rel[200];
    lf_err err = LF_ERR_INIT;
    json_t *d = json_pack("{s:s}", "text", text);
    lf_event ev = {.run = run, .kind = "note", .data = d};
    snprintf(rel, sizeof rel, "runs/%s/spool", run);
    if (lf_event_write(at(0, rel), &ev, 0755, 0644, &err) < 0)
        tap_bail("%s", err.text);
    json_decref(d);
}

static void take_hint(const char *run)
{
    char rel[200];
    snprintf(rel, sizeof rel, "changed/%s", run);
    unlink(at(0, rel));
}

static void touched(const char *run, time_t when)
{
    char rel[200];
    const struct timespec t[2] = {{when, 0}, {when, 0}};
    snprintf(rel, sizeof rel, "changed/%s", run);
    utimensat(AT_FDCWD, at(0, rel), t, 0);
}

static bool hinted(const char *run)
{
    char rel[200];
    snprintf(rel, sizeof rel, "changed/%s", run);
    return lf_io_exists(at(0, rel));
}

static void ingest(lf_ledger *l, bool everything, int64_t want, const char *what)
{
    lf_err err = LF_ERR_INIT;
    lf_ledger_ingested got = {-1, 0, 0};
    const lf_ledger_ingest_opts o = {.everything = everything};
    if (lf_ledger_ingest(l, root, &o, &got, &err) < 0)
        tap_diag("%s", err.text);
    tap_i64(got.events, want, what);
}

static void test_touched(lf_ledger *l)
{
    note("R1", "one");
    note("R2", "two");
    tap_ok(hinted("R1"), "an event touches its run");
    TAP(1, ingest(l, false, 2, "runs that were never seen are walked"));
    note("R1", "three");
    TAP(1, ingest(l, false, 1, "a run that was touched is"));
    note("R2", "four");
    take_hint("R2");
    take_hint("R1");
    TAP(1, ingest(l, false, 0, "one that was not is not"));
    TAP(1, ingest(l, true, 1, "but when everything is asked for"));
    note("R3", "five");
    take_hint("R3");
    TAP(1, ingest(l, false, 1, "a new run needs no hint"));
}

/* Hints live on until a walk begins a minute after them. */
static void test_age(lf_ledger *l)
{
    note("R1", "six");
    TAP(1, ingest(l, false, 1, "a fresh hint"));
    tap_ok(hinted("R1"), "stays: its writer may not be through");
    touched("R1", time(NULL) - 3600);
    TAP(1, ingest(l, false, 0, "an old hint"));
    tap_ok(!hinted("R1"), "is taken away");
}

/* A run with a living start is walked without hints: its metrics grow. */
static void test_living(lf_ledger *l)
{
    lf_err err = LF_ERR_INIT;
    lf_event ev = {.run = "R2", .stage = "s", .attempt = 1, .epoch = 1, .kind = "start"};
    lf_event_write(at(0, "runs/R2/s/1.1/spool"), &ev, 0755, 0644, &err);
    TAP(1, ingest(l, false, 1, "a start"));
    take_hint("R2");
    note("R2", "seven");
    take_hint("R2");
    TAP(1, ingest(l, false, 1, "a run that runs is walked"));
    json_t *d = json_pack("{s:s}", "state", "done");
    ev = (lf_event){.run = "R2", .stage = "s", .attempt = 1, .epoch = 1, .kind = "end", .data = d};
    lf_event_write(at(0, "runs/R2/s/1.1/spool"), &ev, 0755, 0644, &err);
    json_decref(d);
    TAP(1, ingest(l, false, 1, "its end"));
    note("R2", "eight");
    take_hint("R2");
    TAP(1, ingest(l, false, 0, "then not any more"));
}

/* After a boot (the mark in the ledger is of another one) everything is walked. */
static void test_boot(lf_ledger *l)
{
    lf_err err = LF_ERR_INIT;
    lf_db_exec(l, "UPDATE meta SET value = '1 another-boot host' WHERE key LIKE 'full %'", &err);
    TAP(1, ingest(l, false, 1, "after a boot everything is walked"));
    TAP(1, ingest(l, false, 0, "once"));
}

/* Nothing of this needs the directory of hints. */
static void test_without(lf_ledger *l)
{
    lf_err err = LF_ERR_INIT;
    chmod(at(0, "changed"), 0755);
    lf_io_remove_tree(at(0, "changed"), &err);
    TAP(1, ingest(l, false, 0, "without the directory of hints"));
    tap_rc(err.rc, 0, &err, NULL, "nothing fails");
}

/* A link instead of a hint is not followed. */
static void test_link(void)
{
    lf_err err = LF_ERR_INIT;
    lf_io_mkdirs(at(0, "changed"), 0755, &err);
    lf_io_write_file(at(0, "victim"), "x", 1, 0644, &err);
    (void)!symlink("../victim", at(1, "changed/R1"));
    struct stat before, after;
    stat(at(0, "victim"), &before);
    note("R1", "nine");
    stat(at(0, "victim"), &after);
    tap_ok(before.st_mtim.tv_sec == after.st_mtim.tv_sec &&
               before.st_mtim.tv_nsec == after.st_mtim.tv_nsec,
           "a link in the way is not followed");
}

int main(void)
{
    char db[1100];
    lf_err err = LF_ERR_INIT;
    snprintf(root, sizeof root, "%s/data", tap_tmpdir());
    snprintf(db, sizeof db, "%s/l.db", tap_tmpdir());
    lf_ledger *l = lf_ledger_open(db, LF_LEDGER_WRITE, &err);
    TAP(6, test_touched(l));
    TAP(4, test_age(l));
    TAP(4, test_living(l));
    TAP(2, test_boot(l));
    TAP(2, test_without(l));
    TAP(1, test_link());
    lf_ledger_close(l);
    return tap_done();
}
