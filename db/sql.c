/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers around SQLite: failures in our words, bound statements, rows as JSON.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "db/ledger_priv.h"
#include "engine/base/json.h"
#include "engine/base/str.h"

int lf_db_fail(lf_ledger *l, const char *what, lf_err *err)
{
    int code = l->db ? sqlite3_extended_errcode(l->db) : SQLITE_NOMEM;
    const char *text = l->db ? sqlite3_errmsg(l->db) : "no memory";
    switch (code) {
    case SQLITE_IOERR_LOCK:
    case SQLITE_IOERR_RDLOCK:
    case SQLITE_IOERR_UNLOCK:
    case SQLITE_IOERR_CHECKRESERVEDLOCK:
        return lf_fail(err, LF_EIO,
                       "%s: file locks fail on this filesystem (%s); put the project elsewhere, or "
                       "set ledger_locks = no",
                       l->path, text);
    }
    switch (code & 0xff) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
        return lf_fail(
            err, LF_EFORMAT,
            "%s is damaged (%s); loong-flow ledger rebuild makes it from the run directories",
            l->path, text);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return lf_fail(err, LF_EBUSY, "%s is in use by another process", l->path);
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_IOERR:
    case SQLITE_FULL:
        return lf_fail(err, LF_EIO, "%s: cannot %s: %s", l->path, what, text);
    case SQLITE_NOMEM:
        return lf_fail(err, LF_ENOMEM, "%s: cannot %s: no memory", l->path, what);
    default:
        return lf_fail(err, LF_EINVAL, "%s: cannot %s: %s", l->path, what, text);
    }
}

int lf_db_exec(lf_ledger *l, const char *sql, lf_err *err)
{
    return sqlite3_exec(l->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : lf_db_fail(l, sql, err);
}

static int bind_one(sqlite3_stmt *st, int at, char type, va_list *ap)
{
    const int64_t *pi;
    const double *pf;
    const char *s;
    switch (type) {
    case 's':
        s = va_arg(*ap, const char *);
        return s ? sqlite3_bind_text(st, at, s, -1, SQLITE_STATIC) : sqlite3_bind_null(st, at);
    case 'i':
        return sqlite3_bind_int64(st, at, va_arg(*ap, int64_t));
    case 'f':
        return sqlite3_bind_double(st, at, va_arg(*ap, double));
    case 'I':
        pi = va_arg(*ap, const int64_t *);
        return pi ? sqlite3_bind_int64(st, at, *pi) : sqlite3_bind_null(st, at);
    case 'F':
        pf = va_arg(*ap, const double *);
        return pf ? sqlite3_bind_double(st, at, *pf) : sqlite3_bind_null(st, at);
    default:
        LF_BUG("parameter type %c", type);
    }
}

static sqlite3_stmt *prepare(lf_ledger *l, const char *sql, unsigned flags, lf_err *err)
{
    sqlite3_stmt *st = NULL;
    if (sqlite3_prepare_v3(l->db, sql, -1, flags, &st, NULL) != SQLITE_OK)
        lf_db_fail(l, sql, err);
    return st;
}

static int bind_all(lf_ledger *l, sqlite3_stmt *st, const char *types, va_list *ap, lf_err *err)
{
    for (int i = 0; types[i]; i++) {
        if (bind_one(st, i + 1, types[i], ap) != SQLITE_OK)
            return lf_db_fail(l, sqlite3_sql(st), err);
    }
    return 0;
}

sqlite3_stmt *lf_db_prepare(lf_ledger *l, lf_err *err, const char *sql, const char *types, ...)
{
    sqlite3_stmt *st = prepare(l, sql, 0, err);
    if (!st)
        return NULL;
    va_list ap;
    va_start(ap, types);
    int rc = bind_all(l, st, types, &ap, err);
    va_end(ap);
    if (rc == 0)
        return st;
    sqlite3_finalize(st);
    return NULL;
}

/* The statement of this text, which stays the ledger's. Parsing a statement takes longer than
 * running it, and a submit runs the same few statements for each stage. */
static sqlite3_stmt *kept(lf_ledger *l, const char *sql, lf_err *err)
{
    for (size_t i = 0; i < LF_DB_KEPT && l->kept[i].st; i++) {
        if (l->kept[i].sql == sql && strcmp(sqlite3_sql(l->kept[i].st), sql) == 0)
            return l->kept[i].st;
    }
    struct lf_db_kept *k = &l->kept[l->n_kept % LF_DB_KEPT];
    sqlite3_stmt *st = prepare(l, sql, SQLITE_PREPARE_PERSISTENT, err);
    if (!st)
        return NULL;
    sqlite3_finalize(k->st);
    *k = (struct lf_db_kept){sql, st};
    l->n_kept++;
    return st;
}

void lf_db_forget(lf_ledger *l)
{
    for (size_t i = 0; i < LF_DB_KEPT; i++)
        sqlite3_finalize(l->kept[i].st);
    memset(l->kept, 0, sizeof l->kept);
    l->n_kept = 0;
}

int lf_db_run(lf_ledger *l, lf_err *err, const char *sql, const char *types, ...)
{
    sqlite3_stmt *st = kept(l, sql, err);
    if (!st)
        return LF_EINVAL;
    va_list ap;
    va_start(ap, types);
    int rc = bind_all(l, st, types, &ap, err);
    va_end(ap);
    if (rc == 0) {
        int code;
        while ((code = sqlite3_step(st)) == SQLITE_ROW)
            continue;
        rc = code == SQLITE_DONE ? 0 : lf_db_fail(l, sql, err);
    }
    sqlite3_reset(st);
    sqlite3_clear_bindings(st); /* texts live no longer than this call */
    return rc;
}

int lf_db_i64(lf_ledger *l, int64_t *out, lf_err *err, const char *sql)
{
    sqlite3_stmt *st = lf_db_prepare(l, err, sql, "");
    if (!st)
        return LF_EINVAL;
    int code = sqlite3_step(st), rc = 0;
    if (code == SQLITE_ROW && sqlite3_column_type(st, 0) != SQLITE_NULL)
        *out = sqlite3_column_int64(st, 0);
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        rc = lf_db_fail(l, sql, err);
    sqlite3_finalize(st);
    return rc;
}

static json_t *column(sqlite3_stmt *st, int i, bool is_json)
{
    json_error_t je;
    switch (sqlite3_column_type(st, i)) {
    case SQLITE_INTEGER:
        return json_integer(sqlite3_column_int64(st, i));
    case SQLITE_FLOAT:
        return json_real(sqlite3_column_double(st, i));
    case SQLITE_NULL:
        return json_null();
    default: {
        const char *s = (const char *)sqlite3_column_text(st, i);
        size_t n = (size_t)sqlite3_column_bytes(st, i);
        if (!s)
            return NULL;
        return is_json ? json_loadb(s, n, JSON_DECODE_ANY, &je) : json_stringn(s, n);
    }
    }
}

static json_t *row(sqlite3_stmt *st)
{
    json_t *o = json_object();
    for (int i = 0; o && i < sqlite3_column_count(st); i++) {
        char name[128];
        snprintf(name, sizeof name, "%s", sqlite3_column_name(st, i));
        size_t n = strlen(name);
        bool is_json = n > 5 && strcmp(name + n - 5, ":json") == 0;
        if (is_json)
            name[n - 5] = '\0';
        if (json_object_set_new(o, name, column(st, i, is_json)) < 0) {
            json_decref(o);
            o = NULL;
        }
    }
    return o;
}

json_t *lf_db_rows(lf_ledger *l, sqlite3_stmt *st, lf_err *err)
{
    if (!st)
        return NULL;
    json_t *all = json_array();
    int code = SQLITE_DONE;
    bool ok = all != NULL;
    while (ok && (code = sqlite3_step(st)) == SQLITE_ROW)
        ok = json_array_append_new(all, row(st)) == 0;
    if (!ok)
        lf_fail(err, LF_ENOMEM, "%s: no memory for the rows, or a text that is not UTF-8", l->path);
    else if (code != SQLITE_DONE)
        lf_db_fail(l, "read", err);
    sqlite3_finalize(st);
    if (!ok || code != SQLITE_DONE) {
        json_decref(all);
        return NULL;
    }
    return all;
}
