/* SPDX-License-Identifier: Apache-2.0
 *
 * What made an artifact, up the chain of inputs and of checkpoints that were continued from.
 */
#include <stdlib.h>
#include <string.h>

#include "db/ledger_priv.h"

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

#define ARTIFACT_COLUMNS                                                                                               \
    "SELECT a.run, a.stage, a.attempt, a.epoch, a.name, a.role, a.path, a.kind, a.sha256, a.bytes, a.files, a.step, "  \
    "a.spec_id, a.meta AS \"meta:json\", a.t, (SELECT t FROM gone WHERE path = a.path) AS gone FROM artifact a "

static const char *str(json_t *o, const char *key) { return json_string_value(json_object_get(o, key)); }
static int64_t num(json_t *o, const char *key) { return json_integer_value(json_object_get(o, key)); }

static json_t *made_by(lf_ledger *l, json_t *a, lf_err *err)
{
    return first(l,
                 lf_db_prepare(l, err,
                               "SELECT s.run, s.stage, ?3 AS attempt, ?4 AS epoch, s.kind, s.spec_id, s.exe_sha256, "
                               "s.options AS \"options:json\" FROM stage s WHERE s.run = ?1 AND s.stage = ?2",
                               "ssii", str(a, "run"), str(a, "stage"), num(a, "attempt"), num(a, "epoch")),
                 err);
}

static json_t *inputs(lf_ledger *l, json_t *a, int depth, lf_err *err)
{
    json_t *rows = lf_db_rows(
        l,
        lf_db_prepare(l, err,
                      "SELECT name, path, sha256 FROM io WHERE run = ?1 AND stage = ?2 AND attempt = ?3 AND epoch = ?4 "
                      "AND role = 'in' ORDER BY name, path",
                      "ssii", str(a, "run"), str(a, "stage"), num(a, "attempt"), num(a, "epoch")),
        err);
    size_t i;
    json_t *v;
    json_array_foreach(rows, i, v)
    {
        json_t *up = first(l, lf_db_prepare(l, err, ARTIFACT_COLUMNS "WHERE a.path = ?1", "s", str(v, "path")), err);
        json_t *line = !up ? NULL : json_is_null(up) ? json_null() : lineage(l, up, depth + 1, err);
        json_decref(up);
        if (!line || json_object_set_new(v, "lineage", line) < 0) {
            json_decref(rows);
            return NULL;
        }
    }
    return rows;
}

/* The checkpoint that the making incarnation continued from: the newest of that incarnation at or before its first step. */
static json_t *continued_from(lf_ledger *l, json_t *a, int depth, lf_err *err)
{
    json_t *up = first(l,
                       lf_db_prepare(l, err,
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
        lf_fail(err, LF_EFORMAT, "the lineage of %s is more than %d deep", str(artifact, "path"), DEPTH_MAX);
        return NULL;
    }
    json_t *by = made_by(l, artifact, err), *in = by ? inputs(l, artifact, depth, err) : NULL,
           *from = in ? continued_from(l, artifact, depth, err) : NULL;
    if (!from) {
        json_decref(by);
        json_decref(in);
        return NULL;
    }
    json_t *o = json_pack("{s:O, s:o, s:o, s:o}", "artifact", artifact, "made_by", by, "inputs", in, "from", from);
    if (!o)
        lf_fail(err, LF_ENOMEM, "no memory for a lineage");
    return o;
}

json_t *lf_ledger_lineage(lf_ledger *l, const char *what, lf_err *err)
{
    json_t *rows = lf_db_rows(
        l,
        lf_db_prepare(l, err,
                      ARTIFACT_COLUMNS "WHERE a.path = ?1 OR (length(?1) >= 8 AND substr(a.sha256, 1, length(?1)) = ?1) "
                                       "ORDER BY a.path = ?1 DESC, a.t DESC",
                      "s", what),
        err);
    if (!rows)
        return NULL;
    json_t *a = json_array_get(rows, 0), *out = NULL;
    size_t i;
    json_t *v;
    bool ambiguous = false;
    json_array_foreach(rows, i, v)
    {
        const char *x = str(a, "sha256"), *y = str(v, "sha256");
        ambiguous = ambiguous || (x && y && strcmp(x, y) != 0);
    }
    if (!a)
        lf_fail(err, LF_ENOENT, "no artifact \"%s\"; loong-flow artifacts lists them", what);
    else if (ambiguous && strcmp(str(a, "path"), what) != 0)
        lf_fail(err, LF_EINVAL, "\"%s\" begins more than one artifact's hash", what);
    else
        out = lineage(l, a, 0, err);
    json_decref(rows);
    return out;
}
