/* SPDX-License-Identifier: Apache-2.0
 *
 * Curves of a stage over its incarnations: a later one replaces an earlier one from its first step
 * on.
 */
#include <stdlib.h>
#include <string.h>

#include "db/ledger_priv.h"
#include "engine/base/mem.h"

struct point {
    int64_t step, attempt, epoch;
    double t, value;
    bool has_t;
};

json_t *lf_ledger_metrics(lf_ledger *l, const char *run, const char *stage, lf_err *err)
{
    /* Bare columns beside max() and min() come from the row that has them (SQLite, "bare columns in
     * an aggregate"); one extreme per subquery, because with two the rule does not hold. */
    return lf_db_rows(
        l,
        lf_db_prepare(
            l, err,
            "WITH m AS (SELECT * FROM metric WHERE run = ?1 AND stage = ?2 AND last_epoch IS NOT "
            "NULL), "
            "la AS (SELECT key, last_step, last, last_t, max(attempt) FROM m GROUP BY key), "
            "lo AS (SELECT key, min_step, min(min) AS low FROM m GROUP BY key), "
            "hi AS (SELECT key, max_step, max(max) AS high FROM m GROUP BY key) "
            "SELECT la.key, (SELECT sum(e.n) FROM metric_epoch e JOIN m ON m.id = e.metric WHERE "
            "m.key = la.key) AS n, "
            "last_step, last, last_t, low AS min, min_step, high AS max, max_step "
            "FROM la JOIN lo ON lo.key = la.key JOIN hi ON hi.key = la.key ORDER BY la.key",
            "ss", run, stage),
        err);
}

static json_t *to_rows(const struct point *p, size_t n, int64_t max_points, lf_err *err)
{
    json_t *rows = json_array();
    size_t want = max_points > 0 && (size_t)max_points < n ? (size_t)max_points : n;
    bool ok = rows != NULL;
    for (size_t i = 0; ok && i < want; i++) {
        /* Evenly by index, first and last among them. */
        size_t at =
            want > 1 ? (size_t)((double)i * (double)(n - 1) / (double)(want - 1) + 0.5) : n - 1;
        json_t *o =
            json_pack("{s:I, s:o, s:f, s:I, s:I}", "step", (json_int_t)p[at].step, "t",
                      p[at].has_t ? json_real(p[at].t) : json_null(), "value", p[at].value,
                      "attempt", (json_int_t)p[at].attempt, "epoch", (json_int_t)p[at].epoch);
        ok = json_array_append_new(rows, o) == 0;
    }
    if (!ok) {
        lf_fail(err, LF_ENOMEM, "no memory for a curve of %zu points", n);
        json_decref(rows);
        return NULL;
    }
    return rows;
}

json_t *lf_ledger_series(lf_ledger *l, const char *run, const char *stage, const char *key,
                         int64_t max_points, lf_err *err)
{
    struct point *p = NULL;
    size_t n = 0, cap = 0;
    int code = SQLITE_ERROR, rc = 0;
    json_t *rows = NULL;
    sqlite3_stmt *st = lf_db_prepare(
        l, err,
        "SELECT p.step, p.t, p.value, m.attempt, p.epoch FROM metric m "
        "JOIN metric_point p ON p.metric = m.id "
        "WHERE m.run = ?1 AND m.stage = ?2 AND m.key = ?3 ORDER BY m.attempt, p.epoch, p.i",
        "sss", run, stage, key);
    if (!st)
        return NULL;
    /* Points come by incarnation; whatever an earlier one had at or behind this step is replaced.
     * The last value, which thinning may have dropped, is added from the metric row. */
    while (rc == 0 && (code = sqlite3_step(st)) == SQLITE_ROW) {
        struct point q = {.step = sqlite3_column_int64(st, 0),
                          .has_t = sqlite3_column_type(st, 1) != SQLITE_NULL,
                          .t = sqlite3_column_double(st, 1),
                          .value = sqlite3_column_double(st, 2),
                          .attempt = sqlite3_column_int64(st, 3),
                          .epoch = sqlite3_column_int64(st, 4)};
        while (n && p[n - 1].step >= q.step)
            n--;
        rc = lf_grow(&p, &cap, n, sizeof *p, err);
        if (rc == 0)
            p[n++] = q;
    }
    if (rc == 0 && code != SQLITE_DONE)
        rc = lf_db_fail(l, "read a curve", err);
    sqlite3_finalize(st);
    st =
        rc < 0
            ? NULL
            : lf_db_prepare(l, err,
                            "SELECT last_step, last_t, last, attempt, last_epoch FROM metric WHERE "
                            "run = ?1 AND stage = ?2 "
                            "AND key = ?3 AND last_epoch IS NOT NULL ORDER BY attempt DESC LIMIT 1",
                            "sss", run, stage, key);
    if (st && sqlite3_step(st) == SQLITE_ROW && n && sqlite3_column_int64(st, 0) > p[n - 1].step) {
        rc = lf_grow(&p, &cap, n, sizeof *p, err);
        if (rc == 0)
            p[n++] = (struct point){.step = sqlite3_column_int64(st, 0),
                                    .has_t = true,
                                    .t = sqlite3_column_double(st, 1),
                                    .value = sqlite3_column_double(st, 2),
                                    .attempt = sqlite3_column_int64(st, 3),
                                    .epoch = sqlite3_column_int64(st, 4)};
    }
    if (st && rc == 0)
        rows = to_rows(p, n, max_points, err);
    sqlite3_finalize(st);
    free(p);
    return rows;
}
