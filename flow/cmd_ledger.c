/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger: rebuild, check, backup, and read-only SQL. artifacts and lineage: what there is, and what made it. These ask the
 * ledger, after bringing it up to date where that is possible.
 */
#include "config.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db/ledger.h"
#include "engine/base/io.h"
#include "engine/base/lock.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/cmds.h"
#include "flow/drive.h"
#include "flow/record.h"

static const lf_opt ledger_rows[] = {LF_CMD_COMMON, LF_CMD_COLUMNS};
LF_CMD_TABLE(ledger, "sync, check, rebuild, backup FILE, or sql STATEMENT (read-only)", ledger_rows);
static const lf_opt artifacts_rows[] = {
    LF_CMD_COMMON, LF_CMD_COLUMNS,
    LF_CMD_ROW("stage", LF_OPT_STR, 0, NULL, NULL, "of this stage only"),
    LF_CMD_ROW("all", LF_OPT_BOOL, 0, "no", NULL, "of every run"),
};
LF_CMD_TABLE(artifacts, "what a run made", artifacts_rows);
static const lf_opt lineage_rows[] = {LF_CMD_COMMON};
LF_CMD_TABLE(lineage, "which run, data and settings made this artifact?", lineage_rows);

/* Data roots of the project, each once, as DATA/<project id>; the one of the newest run first. */
static int data_roots(json_t **out, const lf_project *p, lf_err *err)
{
    lf_run_list l;
    int rc = lf_run_list_load(&l, p, err);
    if (rc < 0)
        return rc;
    json_t *list = json_array();
    for (size_t i = 0; i < l.n; i++) {
        bool known = false;
        for (size_t k = 0; k < json_array_size(list); k++)
            known = known || strcmp(json_string_value(json_array_get(list, k)), l.runs[i].data) == 0;
        if (!known)
            json_array_append_new(list, json_string(l.runs[i].data));
    }
    lf_run_list_fini(&l);
    *out = list;
    return 0;
}

/* out may be NULL; everything: also what the ledger believes to be settled. */
static int sync_all(lf_ledger_ingested *out, const lf_project *p, bool everything, lf_err *err)
{
    json_t *roots = NULL;
    lf_ledger_ingested sum = {0, 0, 0};
    int rc = data_roots(&roots, p, err);
    for (size_t i = 0; rc == 0 && i < json_array_size(roots); i++) {
        lf_ledger_ingested got = {0, 0, 0};
        rc = lf_sync_count(&got, p, json_string_value(json_array_get(roots, i)), everything, err);
        sum.events += got.events;
        sum.records += got.records;
        sum.problems += got.problems;
    }
    json_decref(roots);
    if (rc == 0 && out != NULL)
        *out = sum;
    return rc;
}

static json_t *counts_json(const lf_ledger_ingested *n)
{
    return json_pack("{s:I, s:I, s:I}", "events", (json_int_t)n->events, "records", (json_int_t)n->records, "refused",
                     (json_int_t)n->problems);
}

static lf_ledger *open_read(const lf_project *p, lf_err *err)
{
    char path[PATH_MAX];
    if (lf_path_set(path, err, "%s/ledger.db", p->dot) < 0)
        return NULL;
    return lf_ledger_open(path, 0, err);
}

/* Reading commands go on with what the ledger has when it cannot be written, and say so. */
static lf_ledger *open_fresh(const lf_project *p, bool everything, lf_err *err)
{
    lf_err e = LF_ERR_INIT;
    if (sync_all(NULL, p, everything, &e) < 0)
        lf_say_err("loong-flow: the ledger is not up to date: %s\n", e.text);
    return open_read(p, err);
}

/* ---- ledger ---- */

static int rebuild(const lf_cmd *c, const lf_project *p, lf_err *err)
{
    char db[PATH_MAX], lock_path[PATH_MAX];
    json_t *roots = NULL;
    int rc = data_roots(&roots, p, err);
    if (rc == 0)
        rc = lf_path_set(db, err, "%s/ledger.db", p->dot);
    if (rc == 0)
        rc = lf_path_set(lock_path, err, "%s/lock", p->dot);
    lf_lock_opts lo = {.purpose = "loong-flow ledger rebuild", .wait_s = 10.0, .ttl_s = 0};
    lf_lock *lock = rc == 0 ? lf_lock_acquire(lock_path, &lo, err) : NULL;
    if (rc == 0 && lock == NULL)
        rc = err->rc != 0 ? err->rc : LF_EBUSY;
    lf_ledger_ingested n = {0, 0, 0};
    const char *first = json_string_value(json_array_get(roots, 0));
    if (rc == 0 && first == NULL)
        rc = lf_fail(err, LF_ENOENT, "this project has no runs to rebuild from");
    if (rc == 0)
        rc = lf_ledger_rebuild(db, first, LF_LEDGER_WRITE, NULL, &n, err);
    lf_lock_release(lock);
    for (size_t i = 1; rc == 0 && i < json_array_size(roots); i++)
        rc = lf_sync(p, json_string_value(json_array_get(roots, i)), NULL, err);
    json_decref(roots);
    if (rc == 0 && c->json)
        rc = lf_cmd_print_json(counts_json(&n), err);
    else if (rc == 0)
        printf("rebuilt from the run directories: %lld events, %lld metric records%s; the old file is kept as ledger.db.old\n",
               (long long)n.events, (long long)n.records, n.problems > 0 ? ", some files were refused (ledger check)" : "");
    return rc;
}

static int check(const lf_cmd *c, const lf_project *p, lf_err *err)
{
    lf_ledger *l = open_fresh(p, true, err);
    if (l == NULL)
        return err->rc;
    json_t *roots = NULL, *found = NULL;
    int rc = data_roots(&roots, p, err);
    if (rc == 0) {
        found = lf_ledger_check(l, json_array_size(roots) == 1 ? json_string_value(json_array_get(roots, 0)) : NULL, err);
        rc = found == NULL ? err->rc : 0;
    }
    json_t *problems = rc == 0 ? lf_ledger_problems(l, err) : NULL;
    size_t n = json_array_size(found) + json_array_size(problems);
    if (rc == 0 && c->json) {
        rc = lf_cmd_print_json(json_pack("{s:b, s:O, s:O?}", "ok", n == 0, "findings", found, "refused", problems), err);
    } else if (rc == 0) {
        for (size_t i = 0; i < json_array_size(found); i++)
            lf_say("%s\n", json_string_value(json_array_get(found, i)));
        for (size_t i = 0; i < json_array_size(problems); i++)
            lf_say("refused: %s: %s\n", json_string_value(json_object_get(json_array_get(problems, i), "path")),
                   json_string_value(json_object_get(json_array_get(problems, i), "text")));
        if (n == 0)
            puts("the ledger is in order");
    }
    json_decref(problems);
    json_decref(found);
    json_decref(roots);
    lf_ledger_close(l);
    return rc < 0 ? rc : n == 0 ? LF_FLOW_OK : LF_FLOW_FAILED;
}

static int print_rows(const lf_cmd *c, json_t *rows, const lf_column *cols, size_t n, lf_err *err)
{
    lf_column own[40];
    if (rows == NULL)
        return err->rc != 0 ? err->rc : LF_EIO;
    if (c->json)
        return lf_cmd_print_json(json_pack("{s:o}", "rows", rows), err);
    if (cols == NULL) { /* SQL: whatever columns there are */
        const char *k;
        json_t *v;
        json_object_foreach(json_array_get(rows, 0), k, v) if (n < 40)
        {
            own[n++] = (lf_column){k, k, json_is_number(v), false};
        }
        cols = own;
    }
    int rc = n > 0 ? lf_table_print(rows, cols, n, lf_optset_str(c->opts, "columns"), err) : 0;
    json_decref(rows);
    return rc;
}

static int sync_now(const lf_cmd *c, const lf_project *p, lf_err *err)
{
    lf_ledger_ingested n = {0, 0, 0};
    int rc = sync_all(&n, p, true, err);
    if (rc == 0 && c->json)
        return lf_cmd_print_json(counts_json(&n), err);
    if (rc == 0)
        printf("%lld new event%s, %lld new metric record%s%s\n", (long long)n.events, n.events == 1 ? "" : "s",
               (long long)n.records, n.records == 1 ? "" : "s", n.problems > 0 ? "; some files were refused (ledger check)" : "");
    return rc;
}

static int backup(const lf_cmd *c, lf_ledger *l, const char *path, lf_err *err)
{
    int rc = lf_ledger_backup(l, path, err);
    if (rc == 0 && c->json)
        return lf_cmd_print_json(json_pack("{s:s}", "backup", path), err);
    if (rc == 0)
        lf_say("a copy is in %s\n", path);
    return rc;
}

static int ledger_on(lf_cmd *c, const lf_project *p, lf_err *err)
{
    const char *what = lf_cmd_word(c, 0), *arg = lf_cmd_word(c, 1);
    if (what == NULL)
        return lf_fail(err, LF_EINVAL, "say what: sync, check, rebuild, backup FILE or sql STATEMENT");
    if (strcmp(what, "rebuild") == 0)
        return rebuild(c, p, err);
    if (strcmp(what, "check") == 0)
        return check(c, p, err);
    if (strcmp(what, "sync") == 0)
        return sync_now(c, p, err);
    if (strcmp(what, "backup") != 0 && strcmp(what, "sql") != 0)
        return lf_fail(err, LF_EINVAL, "unknown word \"%s\": sync, check, rebuild, backup FILE or sql STATEMENT", what);
    if (arg == NULL)
        return lf_fail(err, LF_EINVAL, "ledger %s wants %s", what, what[0] == 'b' ? "a file" : "a statement");
    lf_ledger *l = open_fresh(p, false, err);
    if (l == NULL)
        return err->rc;
    int rc = what[0] == 'b' ? backup(c, l, arg, err) : print_rows(c, lf_ledger_sql(l, arg, err), NULL, 0, err);
    lf_ledger_close(l);
    return rc;
}

static int with_project(lf_cmd *c, int (*fn)(lf_cmd *, const lf_project *, lf_err *), lf_err *err)
{
    lf_project p;
    int rc = lf_cmd_project(&p, c, err);
    if (rc < 0)
        return rc;
    rc = fn(c, &p, err);
    lf_project_fini(&p);
    return rc;
}

static int run_ledger(lf_cmd *c, lf_err *err) { return with_project(c, ledger_on, err); }

const lf_cmd_def lf_cmd_ledger = {.table = &ledger_table, .words = "WHAT [ARGUMENT]", .max_words = 2, .run = run_ledger};

/* ---- artifacts ---- */

static const lf_column artifact_cols[] = {
    {"stage", "STAGE", false, false},  {"name", "NAME", false, false},    {"kind", "KIND", false, false},
    {"size", "SIZE", true, false},     {"files", "FILES", true, false},   {"path", "PATH", false, false},
    {"run", "RUN", false, true},       {"attempt", "TRY", true, true},    {"epoch", "EPOCH", true, true},
    {"step", "STEP", true, true},      {"sha256", "MANIFEST", false, true}, {"gone", "GONE", false, true},
    {"role", "ROLE", false, true},
};

static int artifacts_of(lf_cmd *c, const lf_project *p, lf_err *err)
{
    lf_run run;
    memset(&run, 0, sizeof run);
    bool all = lf_optset_bool(c->opts, "all");
    int rc = all ? 0 : lf_run_find(&run, p, lf_cmd_word(c, 0), err);
    lf_ledger *l = rc == 0 ? open_fresh(p, false, err) : NULL;
    if (rc == 0 && l == NULL)
        rc = err->rc;
    json_t *rows = rc == 0 ? lf_ledger_artifacts(l, all ? NULL : run.id, lf_optset_str(c->opts, "stage"), err) : NULL;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        char b[32];
        json_t *r = json_array_get(rows, i), *bytes = json_object_get(r, "bytes");
        if (json_is_number(bytes))
            json_object_set_new(r, "size", json_string(lf_fmt_bytes(b, sizeof b, json_number_value(bytes))));
    }
    if (rc == 0)
        rc = print_rows(c, rows, artifact_cols, sizeof artifact_cols / sizeof artifact_cols[0], err);
    lf_ledger_close(l);
    lf_run_fini(&run);
    return rc;
}

static int run_artifacts(lf_cmd *c, lf_err *err) { return with_project(c, artifacts_of, err); }

const lf_cmd_def lf_cmd_artifacts = {.table = &artifacts_table, .words = "[RUN]", .max_words = 1, .run = run_artifacts};

/* ---- lineage ---- */

static void indent(int depth)
{
    for (int i = 0; i < depth; i++)
        fputs("  ", stdout);
}

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s != NULL ? s : "-";
}

static void print_lineage(const json_t *o, int depth)
{
    const json_t *art = json_object_get(o, "artifact"), *by = json_object_get(o, "made_by");
    json_t *inputs = json_object_get(o, "inputs"), *options = json_object_get(by, "options"), *v;
    const char *k;
    if (depth > 32)
        return;
    indent(depth);
    lf_print_safe(str(art, "path"));
    printf("\n");
    if (json_is_object(by)) {
        indent(depth);
        printf("  made by %s (%s), run %s, attempt %lld, spec %.12s\n", str(by, "stage"), str(by, "kind"), str(by, "run"),
               (long long)json_integer_value(json_object_get(by, "attempt")), str(by, "spec_id"));
        json_object_foreach(options, k, v)
        {
            indent(depth);
            char *text = json_is_string(v) ? lf_strdup(json_string_value(v), NULL) : json_dumps(v, JSON_ENCODE_ANY);
            printf("    %s = ", k);
            lf_print_safe(text != NULL ? text : "");
            putchar('\n');
            free(text);
        }
    }
    for (size_t i = 0; i < json_array_size(inputs); i++) {
        const json_t *in = json_array_get(inputs, i), *up = json_object_get(in, "lineage");
        indent(depth);
        printf("  %s:\n", str(in, "name"));
        if (json_is_object(up)) {
            print_lineage(up, depth + 2);
        } else {
            indent(depth + 2);
            lf_print_safe(str(in, "path"));
            printf("  sha256 %.16s\n", str(in, "sha256"));
        }
    }
    if (json_is_object(json_object_get(o, "from"))) {
        indent(depth);
        printf("  continued from:\n");
        print_lineage(json_object_get(o, "from"), depth + 2);
    }
}

/* Paths in the ledger are relative to a data root; people give them as the file system does. */
static char *as_ledger_path(const lf_project *p, const char *word, lf_err *err)
{
    char *abs = realpath(word, NULL);
    json_t *roots = NULL;
    char *out = NULL;
    if (abs == NULL || data_roots(&roots, p, err) < 0)
        return abs == NULL ? lf_strdup(word, err) : (free(abs), (char *)NULL);
    for (size_t i = 0; i < json_array_size(roots) && out == NULL; i++) {
        char *root = realpath(json_string_value(json_array_get(roots, i)), NULL);
        size_t n = root != NULL ? strlen(root) : 0;
        if (n > 0 && strncmp(abs, root, n) == 0 && abs[n] == '/')
            out = lf_strdup(abs + n + 1, err);
        free(root);
    }
    if (out == NULL)
        out = lf_strdup(abs, err);
    json_decref(roots);
    free(abs);
    return out;
}

static int lineage_of(lf_cmd *c, const lf_project *p, lf_err *err)
{
    if (c->n_words != 1)
        return lf_fail(err, LF_EINVAL, "usage: loong-flow lineage PATH-OR-HASH");
    char *what = as_ledger_path(p, c->words[0], err);
    lf_ledger *l = what != NULL ? open_fresh(p, false, err) : NULL;
    json_t *o = l != NULL ? lf_ledger_lineage(l, what, err) : NULL;
    int rc = o == NULL ? (err->rc != 0 ? err->rc : LF_EIO) : 0;
    if (rc == 0 && c->json)
        rc = lf_cmd_print_json(json_incref(o), err);
    else if (rc == 0)
        print_lineage(o, 0);
    json_decref(o);
    lf_ledger_close(l);
    free(what);
    return rc;
}

static int run_lineage(lf_cmd *c, lf_err *err) { return with_project(c, lineage_of, err); }

const lf_cmd_def lf_cmd_lineage = {.table = &lineage_table, .words = "PATH", .max_words = 1, .run = run_lineage};
