/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libdb only: the handle, the schema, and small helpers around SQLite.
 */
#ifndef LF_DB_LEDGER_PRIV_H
#define LF_DB_LEDGER_PRIV_H

#include <sqlite3.h>

#include "db/event.h"
#include "db/ledger.h"
#include "db/vfs.h"

/* steps[i] leads from version i to i + 1. */
struct lf_schema {
    const char *const *steps;
    size_t n;
};
extern const struct lf_schema lf_ledger_schema;

#define LF_DB_KEPT 64 /* more than the texts that lf_db_run is called with */

struct lf_ledger {
    sqlite3 *db;
    struct lf_db_kept {
        const char *sql; /* the caller's text, compared by address first */
        sqlite3_stmt *st;
    } kept[LF_DB_KEPT]; /* statements of lf_db_run */
    size_t n_kept;
    char *path;
    bool writable, snapshot;
    int version; /* of the schema, once open */
    /* The run of the last event of this ingest, whose row is there; "": none. */
    char run_there[LF_EVENT_NAME_MOST + 1];
    /* Writing only: what this session wrote since the ledger was opened or published, and SQLite's
     * change counter at that time. */
    struct lf_written written;
    uint64_t counter;
    bool published;
};

/* lf_ledger_open with another schema, so that migrations can be tested. */
lf_ledger *lf_ledger_open_schema(const char *path, unsigned flags, const struct lf_schema *schema,
                                 lf_err *err);

/* Sets err to SQLite's last failure in our words. what: the action that failed. */
int lf_db_fail(lf_ledger *l, const char *what, lf_err *err);
int lf_db_exec(lf_ledger *l, const char *sql, lf_err *err);
/* Prepare a statement and bind its parameters. types has one letter per parameter: s text (NULL
 * allowed), i int64_t, f double, I and F the same by pointer (NULL pointer = SQL NULL). Returns
 * NULL on failure. Texts must live until the statement is finished. */
sqlite3_stmt *lf_db_prepare(lf_ledger *l, lf_err *err, const char *sql, const char *types, ...);
/* lf_db_prepare, then run the statement to its end. The prepared statement is kept for the next
 * call with this text. */
int lf_db_run(lf_ledger *l, lf_err *err, const char *sql, const char *types, ...);
/* Finalize the statements that lf_db_run has kept. */
void lf_db_forget(lf_ledger *l);
/* All rows as a JSON array of objects named by column. A column named "x:json" is a JSON text and
 * becomes the member "x". The statement is finalised. st NULL gives NULL. */
json_t *lf_db_rows(lf_ledger *l, sqlite3_stmt *st, lf_err *err);
/* The first column of the first row. *out is not touched when there is no row or the column is
 * NULL. */
int lf_db_i64(lf_ledger *l, int64_t *out, lf_err *err, const char *sql);

/* In publish.c. lf_snapshot_counter reads SQLite's change counter in the file. lf_snapshot_drop
 * removes the snapshot. lf_snapshot_open opens it as l->db (LF_ENOENT: there is none that is
 * whole). */
int lf_snapshot_counter(lf_ledger *l, uint64_t *out, lf_err *err);
void lf_snapshot_drop(const lf_ledger *l);
int lf_snapshot_open(lf_ledger *l, lf_err *err);

/* Store the effect of one event. The event row itself is new. path is relative to the data root. */
int lf_ledger_apply(lf_ledger *l, const lf_event *ev, const char *path, lf_err *err);
struct lf_start {
    const char *run, *stage;
    int64_t attempt, epoch;
};
/* Read the new records of one start's framed file. *records counts them. *again is set when they
 * supersede records of earlier starts that were counted before. The metrics of the attempt are then
 * forgotten, and every file of the attempt must be read again. */
int lf_ledger_read_metrics(lf_ledger *l, const struct lf_start *in, const char *full,
                           const char *rel, int64_t *records, bool *again, lf_err *err);

/* The points of a curve that are kept per (attempt, key). */
enum { LF_LEDGER_POINTS = 2000 };

#endif
