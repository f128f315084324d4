/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger: bring it up to date, check it, make it afresh, copy it, ask it in SQL (read-only).
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/lock.h"
#include "flow/cmd/cmds.h"
#include "flow/record/record.h"
#include "flow/run/asking.h"
#include "flow/run/gone.h"
#include "flow/run/sync.h"
#include "flow/sched/drive.h"

static const lf_opt ledger_rows[] = {LF_CMD_COMMON, LF_CMD_COLUMNS};
LF_CMD_TABLE(ledger, "sync, check, rebuild, backup FILE, or sql STATEMENT (read-only)",
             ledger_rows);

static const struct lf_fields counts_fields =
    LF_FIELDS(lf_ledger_ingested, LF_MEMBERS(lf_ledger_ingested, events, records),
              {LF_FIELD_AS(lf_ledger_ingested, problems, "refused")});

static int rebuild_locked(lf_ledger_ingested *n, const lf_project *p, const char *root, lf_err *err)
{
    char db[PATH_MAX], lock_path[PATH_MAX];
    unsigned flags = 0;
    int rc = lf_path_set(db, err, "%s/ledger.db", p->dot);
    if (rc == 0)
        rc = lf_path_set(lock_path, err, "%s/lock", p->dot);
    lf_lock_opts lo = {.purpose = "loong-flow ledger rebuild", .wait_s = 10.0, .ttl_s = 0};
    lf_lock *lock = rc == 0 ? lf_lock_acquire(lock_path, &lo, err) : NULL;
    if (rc == 0 && lock == NULL)
        rc = err->rc != 0 ? err->rc : LF_EBUSY;
    if (rc == 0)
        rc = lf_sync_read_flags(&flags, err);
    if (rc == 0)
        rc = lf_ledger_rebuild(db, root, LF_LEDGER_WRITE | flags, NULL, n, err);
    lf_lock_release(lock);
    return rc;
}

static int rebuild(const lf_cmd *c, const lf_project *p, lf_err *err)
{
    lf_texts roots = {.n = 0};
    lf_ledger_ingested n = {0, 0, 0}, more = {0, 0, 0};
    int rc = lf_ask_roots(&roots, p, err);
    const char *first = roots.n > 0 ? roots.v[0] : NULL;
    if (rc == 0 && first == NULL)
        rc = lf_fail(err, LF_ENOENT, "this project has no runs to rebuild from");
    if (rc == 0)
        rc = rebuild_locked(&n, p, first, err);
    lf_texts_fini(&roots);
    if (rc == 0) /* the other data roots, and the copy for readers */
        rc = lf_ask_sync(&more, p, true, err);
    n.events += more.events;
    n.records += more.records;
    n.problems += more.problems;
    if (rc == 0 && c->json)
        return lf_cmd_print(&n, &counts_fields, err);
    if (rc == 0)
        printf("rebuilt from the run directories: %lld events, %lld metric records%s; the old file "
               "is kept as ledger.db.old\n",
               (long long)n.events, (long long)n.records,
               n.problems > 0 ? ", some files were refused (ledger check)" : "");
    return rc;
}

struct findings {
    bool ok;
    lf_texts findings;
};
static const struct lf_fields findings_fields =
    LF_FIELDS(struct findings, LF_MEMBERS(struct findings, ok, findings));

static void print_findings(const lf_texts *found)
{
    for (size_t i = 0; i < found->n; i++)
        lf_say("%s\n", found->v[i]);
    if (found->n == 0)
        puts("the ledger is in order");
}

static int check(const lf_cmd *c, const lf_project *p, lf_err *err)
{
    lf_ledger *l = lf_cmd_open_ledger(p, true, err);
    if (l == NULL)
        return err->rc;
    lf_texts roots = {.n = 0};
    struct findings f = {.findings = {.given = true}};
    lf_err gone = LF_ERR_INIT;
    int rc = lf_ask_roots(&roots, p, err);
    bool there = rc == 0 && lf_gone_data(p, &gone) == 0;
    if (rc == 0)
        rc = lf_texts_take(&f.findings,
                           lf_ledger_check(l, there && roots.n == 1 ? roots.v[0] : NULL, err), err);
    if (rc == 0 && !there)
        rc = lf_texts_add(&f.findings, gone.text, err);
    f.ok = f.findings.n == 0;
    if (rc == 0 && c->json)
        rc = lf_cmd_print(&f, &findings_fields, err);
    else if (rc == 0)
        print_findings(&f.findings);
    lf_texts_fini(&f.findings);
    lf_texts_fini(&roots);
    lf_ledger_close(l);
    return rc < 0 ? rc : f.ok ? LF_FLOW_OK : LF_FLOW_FAILED;
}

static int sync_now(const lf_cmd *c, const lf_project *p, lf_err *err)
{
    lf_ledger_ingested n = {0, 0, 0};
    int rc = lf_ask_sync(&n, p, true, err);
    if (rc == 0 && c->json)
        return lf_cmd_print(&n, &counts_fields, err);
    if (rc == 0)
        printf("%lld new event%s, %lld new metric record%s%s\n", (long long)n.events,
               n.events == 1 ? "" : "s", (long long)n.records, n.records == 1 ? "" : "s",
               n.problems > 0 ? "; some files were refused (ledger check)" : "");
    return rc;
}

static int backup(const lf_cmd *c, lf_ledger *l, const char *path, lf_err *err)
{
    int rc = lf_ledger_backup(l, path, err);
    if (rc == 0 && c->json)
        return lf_cmd_print_texts(err, "backup", path, NULL);
    if (rc == 0)
        lf_say("a copy is in %s\n", path);
    return rc;
}

static int ledger_on(lf_cmd *c, const lf_project *p, lf_err *err)
{
    const char *what = lf_cmd_word(c, 0), *arg = lf_cmd_word(c, 1);
    if (what == NULL)
        return lf_fail(err, LF_EINVAL,
                       "say what: sync, check, rebuild, backup FILE or sql STATEMENT");
    if (strcmp(what, "rebuild") == 0)
        return rebuild(c, p, err);
    if (strcmp(what, "check") == 0)
        return check(c, p, err);
    if (strcmp(what, "sync") == 0)
        return sync_now(c, p, err);
    if (strcmp(what, "backup") != 0 && strcmp(what, "sql") != 0)
        return lf_fail(err, LF_EINVAL,
                       "unknown word \"%s\": sync, check, rebuild, backup FILE or sql STATEMENT",
                       what);
    if (arg == NULL)
        return lf_fail(err, LF_EINVAL, "ledger %s wants %s", what,
                       what[0] == 'b' ? "a file" : "a statement");
    lf_ledger *l = lf_cmd_open_ledger(p, false, err);
    if (l == NULL)
        return err->rc;
    int rc = what[0] == 'b' ? backup(c, l, arg, err)
                            : lf_cmd_print_rows(c, lf_ledger_sql(l, arg, err), err);
    lf_ledger_close(l);
    return rc;
}

static int run_ledger(lf_cmd *c, lf_err *err)
{
    return lf_cmd_with_project(c, ledger_on, err);
}

const lf_cmd_def lf_cmd_ledger = {
    .table = &ledger_table, .words = "WHAT [ARGUMENT]", .max_words = 2, .run = run_ledger};
