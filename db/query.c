/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries: SQL to rows of JSON. Lineage, which needs more than SQL, is in lineage.c.
 */
#include <stdlib.h>
#include <string.h>

#include "db/ledger_priv.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"

json_t *lf_ledger_runs(lf_ledger *l, const char *run, lf_err *err)
{
    char *one = NULL;
    if (run && !(one = lf_ledger_find_run(l, run, err)))
        return NULL;
    json_t *rows = lf_db_rows(
        l,
        lf_db_prepare(
            l, err,
            "SELECT r.run, r.name, r.project, r.config_sha256, r.user, r.host, r.git, r.version, "
            "r.parent_run, r.t, "
            "CASE WHEN count(s.stage) = 0 THEN 'unknown' WHEN sum(s.state = 'failed') THEN "
            "'failed' "
            "WHEN sum(s.state = 'running') THEN 'running' WHEN sum(s.state = 'pending') THEN "
            "'pending' "
            "WHEN sum(s.state = 'cancelled') THEN 'cancelled' WHEN sum(s.state = 'done') = "
            "count(*) THEN 'done' "
            "ELSE 'waiting' END AS state, "
            "count(s.stage) AS n_stages, coalesce(sum(s.state = 'done'), 0) AS n_done "
            "FROM run r LEFT JOIN stage_state s ON s.run = r.run WHERE ?1 IS NULL OR r.run = ?1 "
            "GROUP BY r.run ORDER BY coalesce(r.t, 0) DESC, r.run DESC",
            "s", one),
        err);
    free(one);
    return rows;
}

static int run_names(lf_ledger *l, const char ***names, json_t **rows, lf_err *err)
{
    size_t i, n = 0;
    json_t *v;
    *rows = lf_db_rows(
        l,
        lf_db_prepare(l, err,
                      "SELECT run FROM run UNION SELECT name FROM run WHERE name IS NOT NULL", ""),
        err);
    if (!*rows)
        return LF_EINVAL;
    *names = lf_calloc(json_array_size(*rows), sizeof **names, err);
    if (!*names)
        return LF_ENOMEM;
    json_array_foreach(*rows, i, v)(*names)[n++] = json_string_value(json_object_get(v, "run"));
    return (int)n;
}

static int not_found(lf_ledger *l, const char *word, lf_err *err)
{
    const char **names = NULL;
    json_t *rows = NULL;
    int n = run_names(l, &names, &rows, err), rc = n;
    if (n >= 0) {
        const char *near = lf_nearest(word, names, (size_t)n);
        rc = lf_fail(err, LF_ENOENT, "no run \"%s\"%s%s%s", word, near ? "; did you mean \"" : "",
                     near ? near : "",
                     near ? "\"?"
                     : n  ? "; loong-flow status lists them"
                          : ": nothing was run here yet");
    }
    free(names);
    json_decref(rows);
    return rc;
}

char *lf_ledger_find_run(lf_ledger *l, const char *word, lf_err *err)
{
    /* Exact id, then the newest of that name, then ids that begin so. */
    static const char *const sql[] = {
        "SELECT run FROM run WHERE ?1 IS NULL ORDER BY coalesce(t, 0) DESC, run DESC LIMIT 1",
        "SELECT run FROM run WHERE run = ?1",
        "SELECT run FROM run WHERE name = ?1 ORDER BY coalesce(t, 0) DESC, run DESC LIMIT 1",
        "SELECT run FROM run WHERE substr(run, 1, length(?1)) = ?1 LIMIT 2",
    };
    char *found = NULL;
    for (size_t i = word ? 1 : 0; i < (word ? 4 : 1) && !found; i++) {
        json_t *rows = lf_db_rows(l, lf_db_prepare(l, err, sql[i], "s", word), err);
        if (!rows)
            return NULL;
        const char *id = json_string_value(json_object_get(json_array_get(rows, 0), "run"));
        if (json_array_size(rows) > 1) {
            lf_fail(err, LF_EINVAL, "\"%s\" begins more than one run", word);
            json_decref(rows);
            return NULL;
        }
        if (id && !(found = lf_strdup(id, err))) {
            json_decref(rows);
            return NULL;
        }
        json_decref(rows);
    }
    if (!found && word)
        not_found(l, word, err);
    else if (!found)
        lf_fail(err, LF_ENOENT, "nothing was run here yet");
    return found;
}

json_t *lf_ledger_artifacts(lf_ledger *l, const char *run, const char *stage, lf_err *err)
{
    return lf_db_rows(
        l,
        lf_db_prepare(
            l, err,
            "SELECT a.run, a.stage, a.attempt, a.epoch, a.name, a.role, a.path, a.kind, a.sha256, "
            "a.bytes, a.files, "
            "a.step, a.spec_id, a.meta AS \"meta:json\", a.t, g.t AS gone FROM artifact a "
            "LEFT JOIN gone g ON g.path = a.path "
            "WHERE (?1 IS NULL OR a.run = ?1) AND (?2 IS NULL OR a.stage = ?2) ORDER BY a.t, "
            "a.path",
            "ss", run, stage),
        err);
}

json_t *lf_ledger_notes(lf_ledger *l, const char *run, lf_err *err)
{
    return lf_db_rows(
        l,
        lf_db_prepare(
            l, err,
            "SELECT t, run, stage, author AS by, text FROM note WHERE ?1 IS NULL OR run = ?1 "
            "ORDER BY ev",
            "s", run),
        err);
}

json_t *lf_ledger_best(lf_ledger *l, const char *key, bool max, int64_t n, lf_err *err)
{
    /* Of a run the last value of its newest attempt; with several stages that have the key, the
     * better one. */
    return lf_db_rows(
        l,
        lf_db_prepare(
            l, err,
            "WITH newest AS (SELECT run, stage, last, max(attempt) FROM metric WHERE key = ?1 AND "
            "last_epoch IS NOT NULL GROUP BY run, stage) "
            "SELECT run, CASE WHEN ?2 THEN max(last) ELSE min(last) END AS last FROM newest "
            "GROUP BY run ORDER BY CASE WHEN ?2 THEN -max(last) ELSE min(last) END, run LIMIT ?3",
            "sii", key, (int64_t)max, n),
        err);
}

json_t *lf_ledger_tags(lf_ledger *l, const char *run, lf_err *err)
{
    return lf_db_rows(
        l,
        lf_db_prepare(
            l, err,
            "SELECT run, stage, tag, t, author AS by FROM tag WHERE (?1 IS NULL OR run = ?1) "
            "AND removed = 0 ORDER BY run, stage, tag",
            "s", run),
        err);
}

static int read_only_actions(void *ctx, int action, const char *a, const char *b, const char *c,
                             const char *d)
{
    (void)ctx, (void)a, (void)b, (void)c, (void)d;
    return action == SQLITE_SELECT || action == SQLITE_READ || action == SQLITE_FUNCTION ||
                   action == SQLITE_RECURSIVE
               ? SQLITE_OK
               : SQLITE_DENY;
}

/* "attempt, run, ...": texts of the only column of a statement; owned. */
static char *join(lf_ledger *l, const char *sql, const char *arg)
{
    json_t *rows = lf_db_rows(l, lf_db_prepare(l, NULL, sql, "s", arg), NULL), *v;
    lf_buf b;
    size_t i;
    lf_buf_init(&b);
    json_array_foreach(rows, i, v)
    {
        const char *name = json_string_value(json_object_get(v, "name"));
        lf_buf_addf(&b, "%s%s", i ? ", " : "", name ? name : "");
    }
    char *s = lf_buf_steal(&b, NULL);
    lf_buf_fini(&b);
    json_decref(rows);
    return s;
}

/* Tables without those that only keep the file in order. */
#define TABLES                                                                                     \
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE "            \
    "'sqlite%' AND name NOT IN ('meta', 'walked', 'source') AND ?1 IS NULL ORDER BY name"

static bool has_word(const char *text, const char *word)
{
    static const char in_names[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    size_t n = strlen(word);
    for (const char *p = strstr(text, word); p; p = strstr(p + 1, word))
        if ((p == text || !strchr(in_names, p[-1])) && (!p[n] || !strchr(in_names, p[n])))
            return true;
    return false;
}

/* "; run has run, name, ..." for each table that the statement names. */
static void add_columns(lf_buf *b, lf_ledger *l, const char *sql)
{
    json_t *rows = lf_db_rows(l, lf_db_prepare(l, NULL, TABLES, "s", NULL), NULL), *v;
    size_t i;
    json_array_foreach(rows, i, v)
    {
        const char *name = json_string_value(json_object_get(v, "name"));
        char *columns = name && has_word(sql, name)
                            ? join(l, "SELECT name FROM pragma_table_info(?1)", name)
                            : NULL;
        if (columns)
            lf_buf_addf(b, "; %s has %s", name, columns);
        free(columns);
    }
    json_decref(rows);
}

/* What SQLite says, and the names that there are instead of one that there is not. */
static void refuse_sql(lf_ledger *l, const char *sql, lf_err *err)
{
    char *said = lf_strdup(sqlite3_errmsg(l->db), NULL), *tables = NULL;
    lf_buf b;
    lf_buf_init(&b);
    if (said && strncmp(said, "no such table", 13) == 0 && (tables = join(l, TABLES, NULL)))
        lf_buf_addf(&b, "; there are %s", tables);
    else if (said && strncmp(said, "no such column", 14) == 0)
        add_columns(&b, l, sql);
    lf_fail(err, LF_EINVAL, "the ledger cannot run the statement: %s%s", said ? said : "no memory",
            b.len ? b.data : "");
    lf_buf_fini(&b);
    free(tables);
    free(said);
}

json_t *lf_ledger_sql(lf_ledger *l, const char *sql, lf_err *err)
{
    sqlite3_stmt *st = NULL;
    const char *tail = "";
    sqlite3_set_authorizer(l->db, read_only_actions, NULL);
    int code = sqlite3_prepare_v2(l->db, sql, -1, &st, &tail);
    sqlite3_set_authorizer(l->db, NULL, NULL);
    if (code != SQLITE_OK || !st) {
        if (code == SQLITE_AUTH)
            lf_fail(err, LF_EINVAL, "only SELECT statements are accepted");
        else if (code == SQLITE_OK)
            lf_fail(err, LF_EINVAL, "no statement given");
        else if (code == SQLITE_ERROR)
            refuse_sql(l, sql, err);
        else
            lf_db_fail(l, "run the statement", err);
        return NULL;
    }
    if (tail[strspn(tail, " \t\r\n;")]) {
        lf_fail(err, LF_EINVAL, "one statement at a time; this follows the first: %.60s", tail);
        sqlite3_finalize(st);
        return NULL;
    }
    return lf_db_rows(l, st, err);
}
