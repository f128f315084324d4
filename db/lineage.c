/* SPDX-License-Identifier: Apache-2.0
 *
 * What made an artifact, up the chain of inputs and of checkpoints that were continued from; and
 * what was made from it.
 */
#include <stdlib.h>
#include <string.h>

#include "db/ledger_priv.h"
#include "engine/base/mem.h"

/* Chains are short; a loop can only come from forged events. */
enum { DEPTH_MAX = 64 };

static json_t *lineage(lf_ledger *l, json_t *artifact, int depth, lf_err *err);

/* The first row of a query, owned; json null when there is none; NULL on failure. */
static json_t *first(lf_ledger *l, sqlite3_stmt *st, lf_err *err)
{
    json_t *rows = lf_db_rows(l, st, err);
    if (!rows)
        return NULL;
    json_t *one = json_array_size(rows) ? json_incref(json_array_get(rows, 0)) : json_null();
    json_decref(rows);
    return one;
}

#define ARTIFACT_COLUMNS                                                                           \
    "SELECT a.run, a.stage, a.attempt, a.epoch, a.name, a.role, a.path, a.kind, a.sha256, "        \
    "a.bytes, a.files, a.step, "                                                                   \
    "a.spec_id, a.meta AS \"meta:json\", a.t, (SELECT t FROM gone WHERE path = a.path) AS gone "   \
    "FROM artifact a "

static const char *str(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}
static int64_t num(json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

/* The settings are those that were in force under the artifact's spec id, not those of a later
 * edit. */
static json_t *made_by(lf_ledger *l, json_t *a, lf_err *err)
{
    return first(
        l,
        lf_db_prepare(
            l, err,
            "SELECT s.run, s.stage, ?3 AS attempt, ?4 AS epoch, s.kind, coalesce(?5, s.spec_id) AS "
            "spec_id, "
            "coalesce(json_extract(e.data, '$.exe_sha256'), s.exe_sha256) AS exe_sha256, "
            "coalesce(json_extract(e.data, '$.options'), s.options) AS \"options:json\" FROM stage "
            "s "
            "LEFT JOIN event e ON e.id = (SELECT max(id) FROM event WHERE run = ?1 AND stage = ?2 "
            "AND kind = 'stage' AND json_extract(data, '$.spec_id') = ?5) WHERE s.run = ?1 AND "
            "s.stage = ?2",
            "ssiis", str(a, "run"), str(a, "stage"), num(a, "attempt"), num(a, "epoch"),
            str(a, "spec_id")),
        err);
}

static json_t *inputs(lf_ledger *l, json_t *a, int depth, lf_err *err)
{
    json_t *rows = lf_db_rows(l,
                              lf_db_prepare(l, err,
                                            "SELECT name, path, sha256 FROM io WHERE run = ?1 AND "
                                            "stage = ?2 AND attempt = ?3 AND epoch = ?4 "
                                            "AND role = 'in' ORDER BY name, path",
                                            "ssii", str(a, "run"), str(a, "stage"),
                                            num(a, "attempt"), num(a, "epoch")),
                              err);
    size_t i;
    json_t *v;
    json_array_foreach(rows, i, v)
    {
        json_t *up = first(
            l, lf_db_prepare(l, err, ARTIFACT_COLUMNS "WHERE a.path = ?1", "s", str(v, "path")),
            err);
        json_t *line = !up ? NULL : json_is_null(up) ? json_null() : lineage(l, up, depth + 1, err);
        json_decref(up);
        if (!line || json_object_set_new(v, "lineage", line) < 0) {
            json_decref(rows);
            return NULL;
        }
    }
    return rows;
}

/* The checkpoint that the making start continued from: the newest of that start at or
 * before its first step. */
static json_t *continued_from(lf_ledger *l, json_t *a, int depth, lf_err *err)
{
    json_t *up = first(
        l,
        lf_db_prepare(
            l, err,
            ARTIFACT_COLUMNS
            "JOIN segment g ON g.run = ?1 AND g.stage = ?2 AND g.attempt = ?3 AND g.epoch = ?4 "
            "WHERE a.run = ?1 AND a.stage = ?2 AND a.attempt = g.from_attempt "
            "AND a.epoch = g.from_epoch AND a.role = 'checkpoint' "
            "AND (g.step_from IS NULL OR a.step IS NULL OR a.step <= g.step_from) "
            "ORDER BY a.step DESC LIMIT 1",
            "ssii", str(a, "run"), str(a, "stage"), num(a, "attempt"), num(a, "epoch")),
        err);
    json_t *line = !up ? NULL : json_is_null(up) ? json_null() : lineage(l, up, depth + 1, err);
    json_decref(up);
    return line;
}

static json_t *lineage(lf_ledger *l, json_t *artifact, int depth, lf_err *err)
{
    if (depth > DEPTH_MAX) {
        lf_fail(err, LF_EFORMAT, "the lineage of %s is more than %d deep", str(artifact, "path"),
                DEPTH_MAX);
        return NULL;
    }
    json_t *by = made_by(l, artifact, err), *in = by ? inputs(l, artifact, depth, err) : NULL,
           *from = in ? continued_from(l, artifact, depth, err) : NULL;
    if (!from) {
        json_decref(by);
        json_decref(in);
        return NULL;
    }
    json_t *o = json_pack("{s:O, s:o, s:o, s:o}", "artifact", artifact, "made_by", by, "inputs", in,
                          "from", from);
    if (!o)
        lf_fail(err, LF_ENOMEM, "no memory for a lineage");
    return o;
}

/* Artifacts whose path is `what`, or whose hash begins so. */
static json_t *candidates(lf_ledger *l, const char *what, lf_err *err)
{
    return lf_db_rows(
        l,
        lf_db_prepare(
            l, err,
            ARTIFACT_COLUMNS
            "WHERE a.path = ?1 OR (length(?1) >= 8 AND substr(a.sha256, 1, length(?1)) = ?1) "
            "ORDER BY a.path = ?1 DESC, a.t DESC",
            "s", what),
        err);
}

static bool is_ambiguous(const json_t *rows)
{
    const char *first_sha = str(json_array_get(rows, 0), "sha256");
    for (size_t i = 1; i < json_array_size(rows); i++) {
        const char *sha = str(json_array_get(rows, i), "sha256");
        if (first_sha && sha && strcmp(first_sha, sha) != 0)
            return true;
    }
    return false;
}

/* The artifact that `what` names, owned; a file names the artifact it lies in. */
static json_t *find_artifact(lf_ledger *l, const char *what, lf_err *err)
{
    json_t *rows = candidates(l, what, err), *out = NULL;
    char *dir = rows && json_array_size(rows) == 0 ? lf_strdup(what, err) : NULL;
    for (char *slash = dir ? strrchr(dir, '/') : NULL;
         slash && slash > dir && rows && json_array_size(rows) == 0; slash = strrchr(dir, '/')) {
        *slash = '\0';
        json_decref(rows);
        rows = candidates(l, dir, err);
    }
    json_t *a = json_array_get(rows, 0);
    if (rows && !a)
        lf_fail(err, LF_ENOENT, "no artifact \"%s\"; loong-flow artifacts lists them", what);
    else if (rows && !dir && strcmp(str(a, "path"), what) != 0 && is_ambiguous(rows))
        lf_fail(err, LF_EINVAL, "\"%s\" begins more than one artifact's hash", what);
    else
        out = json_incref(a);
    free(dir);
    json_decref(rows);
    return out;
}

json_t *lf_ledger_lineage(lf_ledger *l, const char *what, lf_err *err)
{
    json_t *a = find_artifact(l, what, err), *out = a ? lineage(l, a, 0, err) : NULL;
    json_decref(a);
    return out;
}

/* ---- forwards ---- */

static json_t *descent(lf_ledger *l, json_t *artifact, const char *path, json_t *shown, int depth,
                       lf_err *err);

/* Starts that read the path, and those that continued from the checkpoint, when it is one: of
 * those that continued from its start, the ones that began at or behind its step and before
 * the next checkpoint's. */
static json_t *users_of(lf_ledger *l, const char *path, lf_err *err)
{
    return lf_db_rows(l,
                      lf_db_prepare(l, err,
                                    "SELECT i.run, i.stage, i.attempt, i.epoch, s.kind, 'input' AS "
                                    "how FROM io i JOIN stage s ON s.run = i.run AND "
                                    "s.stage = i.stage WHERE i.role = 'in' AND i.path = ?1 "
                                    "UNION SELECT g.run, g.stage, g.attempt, g.epoch, s.kind, "
                                    "'continued' FROM segment g JOIN stage s ON s.run = g.run "
                                    "AND s.stage = g.stage JOIN artifact a ON a.path = ?1 WHERE "
                                    "a.role = 'checkpoint' AND g.run = a.run AND "
                                    "g.stage = a.stage AND g.from_attempt = a.attempt AND "
                                    "g.from_epoch = a.epoch AND (g.step_from IS NULL OR "
                                    "a.step IS NULL OR (a.step <= g.step_from AND NOT EXISTS "
                                    "(SELECT 1 FROM artifact b WHERE b.run = a.run AND "
                                    "b.stage = a.stage AND b.attempt = a.attempt AND b.epoch = "
                                    "a.epoch AND b.role = 'checkpoint' AND b.step > a.step "
                                    "AND b.step <= g.step_from))) ORDER BY 1, 2, 3, 4",
                                    "s", path),
                      err);
}

static json_t *made_in(lf_ledger *l, json_t *user, json_t *shown, int depth, lf_err *err)
{
    size_t i;
    json_t *v, *out = json_array();
    json_t *rows = lf_db_rows(
        l,
        lf_db_prepare(l, err,
                      ARTIFACT_COLUMNS "WHERE a.run = ?1 AND a.stage = ?2 AND a.attempt = ?3 AND "
                                       "a.epoch = ?4 ORDER BY a.step, a.path",
                      "ssii", str(user, "run"), str(user, "stage"), num(user, "attempt"),
                      num(user, "epoch")),
        err);
    bool ok = rows && out;
    json_array_foreach(rows, i, v)
    {
        json_t *d = ok ? descent(l, v, NULL, shown, depth, err) : NULL;
        ok = d && json_array_append_new(out, d) == 0;
    }
    json_decref(rows);
    if (!ok) {
        json_decref(out);
        return NULL;
    }
    return out;
}

/* shown: paths that were followed already; a second meeting is only named. */
static json_t *descent(lf_ledger *l, json_t *artifact, const char *path, json_t *shown, int depth,
                       lf_err *err)
{
    const char *name = artifact ? str(artifact, "path") : path;
    bool again = json_object_get(shown, name) != NULL;
    json_t *users = again || depth > DEPTH_MAX ? json_array() : users_of(l, name, err), *u;
    bool ok = users && json_object_set_new(shown, name, json_true()) == 0;
    size_t i;
    json_array_foreach(users, i, u)
    {
        json_t *made = ok ? made_in(l, u, shown, depth + 1, err) : NULL;
        ok = made && json_object_set_new(u, "made", made) == 0;
    }
    json_t *o = ok ? json_pack("{s:O}", "used_by", users) : NULL;
    json_decref(users);
    if (o &&
        (artifact ? json_object_set(o, "artifact", artifact)
                  : json_object_set_new(o, "path", json_string(path))) == 0 &&
        (!again || json_object_set_new(o, "shown", json_true()) == 0))
        return o;
    json_decref(o);
    lf_fail(err, LF_ENOMEM, "no memory for a lineage");
    return NULL;
}

json_t *lf_ledger_descent(lf_ledger *l, const char *what, lf_err *err)
{
    lf_err look = LF_ERR_INIT;
    json_t *shown = json_object(), *a = find_artifact(l, what, &look);
    json_t *out = shown ? descent(l, a, what, shown, 0, err) : NULL;
    /* An outside file is known by those who read it. */
    if (out && !a && json_array_size(json_object_get(out, "used_by")) == 0) {
        lf_fail(err, look.rc ? look.rc : LF_ENOENT, "%s", look.text);
        json_decref(out);
        out = NULL;
    }
    json_decref(a);
    json_decref(shown);
    return out;
}
