/* SPDX-License-Identifier: Apache-2.0
 *
 * Framed metrics into curves. Record i of a key in a start is kept when i is a multiple of
 * the curve's stride; when more than LF_LEDGER_POINTS points of an (attempt, key) are kept, the
 * stride doubles and the others go. The final stride is the smallest power of two that fits all
 * records, so it does not depend on the order of ingestion, and the first record of every
 * start always stays.
 *
 * While one file is read, the state of its keys is held in memory and written once at the end.
 *
 * Records that a later start has superseded (metric_span) are passed over. Extremes cannot be
 * taken back, so where records were counted that turn out to be superseded, the whole attempt is
 * forgotten and read again; the rows are then those of any other order of arrival.
 */
#include <stdlib.h>
#include <string.h>

#include "db/ledger_priv.h"
#include "engine/base/frame.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"

enum { MAX_KEYS = 1000, MAX_KEY_BYTES = 200 };

struct curve {
    char *key;
    int64_t id, stride, kept; /* kept: points of all starts of the attempt */
    int64_t n;                /* records of this start */
    bool any;                 /* the fields below hold something */
    int64_t last_epoch, last_i, last_step, min_step, max_step;
    double last, last_t, min, max;
};

struct reading {
    lf_ledger *l;
    const struct lf_start *in;
    const char *path;
    struct curve *curves;
    size_t n, cap;
    int64_t records;
    sqlite3_stmt *insert;
    bool said; /* the records of this start stand for steps above `after` */
    int64_t after, upto;
    int64_t bound; /* and for none above this, because of later starts */
};

/* ---- which steps count ---- */

static int load_span(struct reading *r, lf_err *err)
{
    const struct lf_start *in = r->in;
    sqlite3_stmt *st = lf_db_prepare(
        r->l, err,
        "SELECT (SELECT min(after) FROM metric_span WHERE run = ?1 AND stage = ?2 AND attempt = ?3 "
        "AND epoch > ?4), (SELECT after FROM metric_span WHERE run = ?1 AND stage = ?2 AND attempt "
        "= ?3 AND epoch = ?4), (SELECT upto FROM metric_span WHERE run = ?1 AND stage = ?2 AND "
        "attempt = ?3 AND epoch = ?4)",
        "ssii", in->run, in->stage, in->attempt, in->epoch);
    if (!st)
        return LF_EINVAL;
    int rc = sqlite3_step(st) == SQLITE_ROW ? 0 : lf_db_fail(r->l, "read a span of steps", err);
    if (rc == 0) {
        r->bound =
            sqlite3_column_type(st, 0) == SQLITE_NULL ? INT64_MAX : sqlite3_column_int64(st, 0);
        r->said = sqlite3_column_type(st, 1) != SQLITE_NULL;
        r->after = sqlite3_column_int64(st, 1);
        r->upto = sqlite3_column_int64(st, 2);
    }
    sqlite3_finalize(st);
    return rc;
}

/* Does a record of this step count? */
static bool counts(struct reading *r, int64_t step, bool resumed)
{
    /* A record of the step where the start begins adds to what is known of it. */
    if (!r->said || (!resumed && step < r->after)) {
        r->after = resumed ? step : step - 1;
        r->upto = r->said ? r->upto : r->after;
        r->said = true;
    }
    if (resumed || step > r->bound)
        return false;
    r->upto = step > r->upto ? step : r->upto;
    return true;
}

static int store_span(const struct reading *r, lf_err *err)
{
    const struct lf_start *in = r->in;
    if (!r->said)
        return 0;
    return lf_db_run(r->l, err,
                     "INSERT INTO metric_span (run, stage, attempt, epoch, after, upto) VALUES "
                     "(?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (run, stage, attempt, epoch) DO UPDATE "
                     "SET after = ?5, upto = ?6",
                     "ssiiii", in->run, in->stage, in->attempt, in->epoch, r->after, r->upto);
}

/* Forget the metrics of the attempt, but not the spans, when an earlier start has counted
 * more than it may. */
static int forget_superseded(const struct reading *r, bool *again, lf_err *err)
{
    static const char *const sql[] = {
        "DELETE FROM metric_point WHERE metric IN (SELECT id FROM metric WHERE run = ?1 AND stage "
        "= ?2 AND attempt = ?3)",
        "DELETE FROM metric_epoch WHERE metric IN (SELECT id FROM metric WHERE run = ?1 AND stage "
        "= ?2 AND attempt = ?3)",
        "DELETE FROM metric WHERE run = ?1 AND stage = ?2 AND attempt = ?3",
        "DELETE FROM source WHERE path >= 'runs/' || ?1 || '/' || ?2 || '/' || ?3 || '.' AND path "
        "< 'runs/' || ?1 || '/' || ?2 || '/' || ?3 || '/'",
        "UPDATE metric_span SET upto = after WHERE run = ?1 AND stage = ?2 AND attempt = ?3",
    };
    const struct lf_start *in = r->in;
    sqlite3_stmt *st = lf_db_prepare(r->l, err,
                                     "SELECT 1 FROM metric_span WHERE run = ?1 AND stage = ?2 AND "
                                     "attempt = ?3 AND epoch < ?4 AND upto > after AND upto > ?5",
                                     "ssiii", in->run, in->stage, in->attempt, in->epoch, r->after);
    if (!st)
        return LF_EINVAL;
    const bool any = r->said && sqlite3_step(st) == SQLITE_ROW;
    sqlite3_finalize(st);
    int rc = 0;
    for (size_t i = 0; any && rc == 0 && i < sizeof sql / sizeof sql[0]; i++)
        rc = lf_db_run(r->l, err, sql[i], "ssi", in->run, in->stage, in->attempt);
    *again = *again || any;
    return rc;
}

/* ---- curves ---- */

static int load_curve(struct reading *r, struct curve *c, lf_err *err)
{
    int rc = lf_db_run(r->l, err,
                       "INSERT OR IGNORE INTO metric (run, stage, attempt, key, stride) VALUES "
                       "(?1, ?2, ?3, ?4, 1)",
                       "ssis", r->in->run, r->in->stage, r->in->attempt, c->key);
    sqlite3_stmt *st =
        rc < 0
            ? NULL
            : lf_db_prepare(
                  r->l, err,
                  "SELECT m.id, m.stride, m.last_epoch, m.last_i, m.last_step, m.last, m.last_t, "
                  "m.min, m.min_step, m.max, m.max_step, "
                  "(SELECT count(*) FROM metric_point WHERE metric = m.id), "
                  "(SELECT n FROM metric_epoch WHERE metric = m.id AND epoch = ?5) "
                  "FROM metric m WHERE run = ?1 AND stage = ?2 AND attempt = ?3 AND key = ?4",
                  "ssisi", r->in->run, r->in->stage, r->in->attempt, c->key, r->in->epoch);
    if (!st)
        return LF_EINVAL;
    if (sqlite3_step(st) == SQLITE_ROW) {
        c->id = sqlite3_column_int64(st, 0);
        c->stride = sqlite3_column_int64(st, 1);
        c->any = sqlite3_column_type(st, 2) != SQLITE_NULL;
        c->last_epoch = sqlite3_column_int64(st, 2);
        c->last_i = sqlite3_column_int64(st, 3);
        c->last_step = sqlite3_column_int64(st, 4);
        c->last = sqlite3_column_double(st, 5);
        c->last_t = sqlite3_column_double(st, 6);
        c->min = sqlite3_column_double(st, 7);
        c->min_step = sqlite3_column_int64(st, 8);
        c->max = sqlite3_column_double(st, 9);
        c->max_step = sqlite3_column_int64(st, 10);
        c->kept = sqlite3_column_int64(st, 11);
        c->n = sqlite3_column_int64(st, 12);
    } else {
        rc = lf_db_fail(r->l, "read a metric", err);
    }
    sqlite3_finalize(st);
    if (rc == 0 && c->stride < 1)
        rc = lf_fail(err, LF_EFORMAT, "%s: metric %s has stride %lld", r->l->path, c->key,
                     (long long)c->stride);
    return rc;
}

/* NULL with err set on failure. */
static struct curve *curve_of(struct reading *r, const char *key, lf_err *err)
{
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->curves[i].key, key) == 0)
            return &r->curves[i];
    if (r->n >= MAX_KEYS || strlen(key) > MAX_KEY_BYTES) {
        lf_fail(err, LF_EFORMAT, "%s: more than %d metrics, or a name above %d bytes", r->path,
                MAX_KEYS, MAX_KEY_BYTES);
        return NULL;
    }
    if (lf_grow(&r->curves, &r->cap, r->n, sizeof *r->curves, err) < 0)
        return NULL;
    struct curve *c = &r->curves[r->n];
    *c = (struct curve){.key = lf_strdup(key, err)};
    if (!c->key)
        return NULL;
    r->n++;
    return load_curve(r, c, err) < 0 ? NULL : c;
}

static int thin(struct reading *r, struct curve *c, lf_err *err)
{
    while (c->kept > LF_LEDGER_POINTS && c->stride < INT64_MAX / 2) {
        c->stride *= 2;
        int rc = lf_db_run(r->l, err, "DELETE FROM metric_point WHERE metric = ?1 AND i % ?2 <> 0",
                           "ii", c->id, c->stride);
        if (rc < 0)
            return rc;
        int64_t gone = sqlite3_changes(r->l->db);
        c->kept -= gone;
        if (gone == 0 && c->stride > c->n)
            break; /* only first records are left: more starts than points */
    }
    return 0;
}

static int add_point(struct reading *r, struct curve *c, int64_t step, const double *t,
                     double value, lf_err *err)
{
    sqlite3_stmt *st = r->insert;
    sqlite3_reset(st);
    sqlite3_bind_int64(st, 1, c->id);
    sqlite3_bind_int64(st, 2, r->in->epoch);
    sqlite3_bind_int64(st, 3, c->n);
    sqlite3_bind_int64(st, 4, step);
    if (t)
        sqlite3_bind_double(st, 5, *t);
    else
        sqlite3_bind_null(st, 5);
    sqlite3_bind_double(st, 6, value);
    if (sqlite3_step(st) != SQLITE_DONE)
        return lf_db_fail(r->l, "store a metric", err);
    c->kept++;
    return c->kept > LF_LEDGER_POINTS ? thin(r, c, err) : 0;
}

static int add_value(struct reading *r, const char *key, const int64_t *step_of, const double *t,
                     double value, lf_err *err)
{
    struct curve *c = curve_of(r, key, err);
    if (!c)
        return err->rc;
    int64_t step = step_of ? *step_of : c->n;
    /* Ties go to the smaller step, whoever comes first. */
    if (!c->any || value < c->min || (value <= c->min && step < c->min_step)) {
        c->min = value;
        c->min_step = step;
    }
    if (!c->any || value > c->max || (value >= c->max && step < c->max_step)) {
        c->max = value;
        c->max_step = step;
    }
    if (!c->any || r->in->epoch > c->last_epoch ||
        (r->in->epoch == c->last_epoch && c->n > c->last_i)) {
        c->last_epoch = r->in->epoch;
        c->last_i = c->n;
        c->last_step = step;
        c->last = value;
        c->last_t = t ? *t : 0;
    }
    c->any = true;
    int rc = c->n % c->stride == 0 ? add_point(r, c, step, t, value, err) : 0;
    c->n++;
    return rc;
}

static int on_record(void *ctx, const char *payload, size_t n, int64_t offset, lf_err *err)
{
    struct reading *r = ctx;
    const char *key;
    json_t *v, *o = lf_json_load_text(payload, n, r->path, err);
    int rc = o ? 0 : LF_EFORMAT;
    if (rc == 0 && !json_is_object(o))
        rc = lf_fail(err, LF_EFORMAT, "%s: not an object", r->path);
    json_t *step = json_object_get(o, "step"), *t = json_object_get(o, "t");
    int64_t step_v = json_integer_value(step);
    double t_v = json_number_value(t);
    const bool resumed = json_is_true(json_object_get(o, "resumed"));
    if (rc == 0 && json_is_integer(step) && !counts(r, step_v, resumed)) {
        json_decref(o);
        r->records += !resumed;
        return 1;
    }
    /* All keys first: a record that is refused must leave no trace, because it will be met
     * again. */
    if (rc == 0)
        json_object_foreach(o, key, v)
        {
            if (rc == 0 && json_is_number(v) && v != step && v != t && !curve_of(r, key, err))
                rc = err->rc;
        }
    if (rc == 0)
        json_object_foreach(o, key, v)
        {
            if (rc == 0 && json_is_number(v) && v != step && v != t)
                rc = add_value(r, key, json_is_integer(step) ? &step_v : NULL,
                               json_is_number(t) ? &t_v : NULL, json_number_value(v), err);
        }
    json_decref(o);
    if (rc < 0) {
        lf_err_prefix(err, "record at byte %lld", (long long)offset);
        return rc;
    }
    r->records++;
    return 1;
}

static int store_curve(struct reading *r, const struct curve *c, lf_err *err)
{
    if (!c->any)
        return 0;
    int rc = lf_db_run(r->l, err,
                       "UPDATE metric SET stride = ?2, last_epoch = ?3, last_i = ?4, last_step = "
                       "?5, last = ?6, last_t = ?7, "
                       "min = ?8, min_step = ?9, max = ?10, max_step = ?11 WHERE id = ?1",
                       "iiiiifffifi", c->id, c->stride, c->last_epoch, c->last_i, c->last_step,
                       c->last, c->last_t, c->min, c->min_step, c->max, c->max_step);
    if (rc == 0)
        rc = lf_db_run(r->l, err,
                       "INSERT INTO metric_epoch (metric, epoch, n) VALUES (?1, ?2, ?3) "
                       "ON CONFLICT (metric, epoch) DO UPDATE SET n = ?3",
                       "iii", c->id, r->in->epoch, c->n);
    return rc;
}

static int read_offset(lf_ledger *l, const char *rel, int64_t *offset, lf_err *err)
{
    sqlite3_stmt *st = lf_db_prepare(l, err, "SELECT offset FROM source WHERE path = ?1", "s", rel);
    if (!st)
        return LF_EINVAL;
    int code = sqlite3_step(st);
    *offset = code == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    int rc = code == SQLITE_ROW || code == SQLITE_DONE ? 0 : lf_db_fail(l, "read an offset", err);
    sqlite3_finalize(st);
    return rc;
}

int lf_ledger_read_metrics(lf_ledger *l, const struct lf_start *in, const char *full,
                           const char *rel, int64_t *records, bool *again, lf_err *err)
{
    struct reading r = {.l = l, .in = in, .path = rel};
    lf_err bad = LF_ERR_INIT;
    int64_t offset, before;
    int rc = read_offset(l, rel, &offset, err);
    if (rc == 0)
        rc = load_span(&r, err);
    if (rc < 0)
        return rc;
    before = offset;
    r.insert = lf_db_prepare(l, err,
                             "INSERT INTO metric_point (metric, epoch, i, step, t, value) VALUES "
                             "(?1, ?2, ?3, ?4, ?5, ?6)",
                             "");
    if (!r.insert)
        return LF_EINVAL;
    /* A bad record ends the reading of this file, but what stood before it counts. */
    int read_rc = lf_frame_read(full, &offset, on_record, &r, &bad);
    for (size_t i = 0; rc == 0 && i < r.n; i++)
        rc = store_curve(&r, &r.curves[i], err);
    if (rc == 0 && offset != before)
        rc = lf_db_run(l, err,
                       "INSERT INTO source (path, offset) VALUES (?1, ?2) ON CONFLICT (path) DO "
                       "UPDATE SET offset = ?2",
                       "si", rel, offset);
    sqlite3_finalize(r.insert);
    if (rc == 0)
        rc = store_span(&r, err);
    if (rc == 0 && offset != before)
        rc = forget_superseded(&r, again, err);
    for (size_t i = 0; i < r.n; i++)
        free(r.curves[i].key);
    free(r.curves);
    *records += r.records;
    if (rc == 0 && read_rc < 0)
        rc = lf_fail(err, read_rc, "%s", bad.text);
    return rc;
}
