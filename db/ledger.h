/* SPDX-License-Identifier: Apache-2.0
 *
 * The ledger: one SQLite file with every run, stage, attempt, artifact and metric of a project. It
 * is a view of the run directories and can be rebuilt from them. There is one writer at a time: the
 * caller holds the project lock (engine/base/lock.h) while a ledger is open for writing. Readers
 * need no lock. All paths inside are relative to the data root (<data_dir>/<project id>), so a
 * project can be moved. db/README.md documents the tables.
 *
 * Facts come only from event files and framed metrics. Each is stored so that the order of
 * ingestion does not matter: ingesting again, ingesting in another order and rebuilding all give
 * the same rows.
 *
 * Queries return rows as JSON: an array of objects whose members are named below. The caller owns
 * the array (json_decref). Absent values are null. Times are seconds since the epoch.
 */
#ifndef LF_DB_LEDGER_H
#define LF_DB_LEDGER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/base/err.h"

typedef struct lf_ledger lf_ledger;

#define LF_LEDGER_APPLICATION_ID 0x4C464C44 /* "LFLD" */

enum lf_ledger_flags {
    LF_LEDGER_WRITE = 1, /* create when absent, migrate when older; without this flag: read only */
    LF_LEDGER_NOLOCK =
        /* no file locks (site key, for filesystems without them); then only the project lock
         * excludes other writers */
    2,
};

/* Open a ledger. These are refused, each with a text of its own:
 *   LF_ENOTSUP  a newer schema
 *   LF_EFORMAT  a file that is damaged, no ledger or no file; the text says `ledger rebuild`
 *   LF_EIO      a file or directory that cannot be written, with WRITE (errnum EROFS or EACCES); a
 *               filesystem whose locks fail
 *   LF_ENOENT   an absent file, when reading
 *   LF_EBUSY    a file held by another process
 * An older schema is refused when reading. When writing, the file is backed up to
 * "<path>.v<version>.bak" and migrated in one transaction. After an unclean end (hot journal) the
 * recovered file is checked first. A read-only open of a file that a writer holds falls back to the
 * snapshot of lf_ledger_publish, when there is one. */
lf_ledger *lf_ledger_open(const char *path, unsigned flags, lf_err *err);
void lf_ledger_close(lf_ledger *l); /* NULL is legal */
/* true when the published copy is read; it may be a little old */
bool lf_ledger_is_snapshot(const lf_ledger *l);
int lf_ledger_schema_version(const lf_ledger *l);

/* ---- writing ---- */

typedef struct lf_ledger_ingest_opts {
    const char *run; /* only this run; NULL: all runs below runs/ that may hold something new */
    /* all runs below runs/, also those that were read and have not been touched since */
    bool everything;
    const uid_t *trusted; /* owners accepted besides the caller and root */
    size_t n_trusted;
} lf_ledger_ingest_opts;

typedef struct lf_ledger_ingested {
    int64_t events, records; /* new ones */
    int64_t problems;        /* files refused by this ingestion (table problem) */
} lf_ledger_ingested;

/* Read what is new below data_root/runs, in one transaction. A file that is not understood is noted
 * as a problem; the other files are still read. opts and out may be NULL. */
int lf_ledger_ingest(lf_ledger *l, const char *data_root, const lf_ledger_ingest_opts *opts,
                     lf_ledger_ingested *out, lf_err *err);
/* Forget a run whose creation was never completed: its own rows and those of its stages, their
 * inputs and its events. */
int lf_ledger_forget(lf_ledger *l, const char *run, lf_err *err);
/* Bring the readers' copy beside the ledger up to date ("<path>.pub" and a base). Only what changed
 * is written. Readers of the copy take no locks. Does nothing when nothing changed. */
int lf_ledger_publish(lf_ledger *l, lf_err *err);
/* A consistent copy at a new path (VACUUM INTO). LF_EEXIST when it exists. */
int lf_ledger_backup(lf_ledger *l, const char *path, lf_err *err);
/* Make the ledger again from the run directories. The new file is built beside the old one and put
 * in place by rename; the old one is kept as "<path>.old". The caller holds the project lock and
 * has no ledger open. opts->run must be NULL. */
int lf_ledger_rebuild(const char *path, const char *data_root, unsigned flags,
                      const lf_ledger_ingest_opts *opts, lf_ledger_ingested *out, lf_err *err);

/* ---- queries ---- */

/* {"run","name","project","config_sha256","user","host","git","version","parent_run","t",
 * "state","n_stages","n_done"}; newest first. run is an id, a name or a unique prefix; NULL: all
 * runs. state is the first of these that one of the run's stages has: failed, running, pending,
 * waiting, cancelled, done, unknown. It is done only when all stages are done. */
json_t *lf_ledger_runs(lf_ledger *l, const char *run, lf_err *err);
/* The one run that `word` names: an id, a unique prefix of an id, or a name (its newest run). word
 * NULL: the newest run. The caller owns the string. LF_ENOENT names the nearest run; LF_EINVAL when
 * a prefix is ambiguous. */
char *lf_ledger_find_run(lf_ledger *l, const char *word, lf_err *err);
/* {"run","stage","attempt","epoch","name","role","path","kind","sha256","bytes","files","step",
 * "spec_id","meta","t","gone"}; run and stage may be NULL. */
json_t *lf_ledger_artifacts(lf_ledger *l, const char *run, const char *stage, lf_err *err);
/* What made an artifact, up the chain:
 *   {"artifact":{...},
 *    "made_by":{"run","stage","attempt","epoch","kind","spec_id","exe_sha256","options"},
 *    "inputs":[{"name","path","sha256","lineage":{...} or null}],
 *    "from":{lineage of the checkpoint that it continued} or null}
 * `what` is a path (also of a file in an artifact) or a sha256 (a unique prefix of 8 or more
 * digits). */
json_t *lf_ledger_lineage(lf_ledger *l, const char *what, lf_err *err);
/* What was made from an artifact, or from an outside file:
 *   {"artifact":{...} or "path",
 *    "used_by":[{"run","stage","attempt","epoch","kind","how":"input"|"continued",
 *                "made":[the same for each artifact of that start]}],
 *    "shown":true when the artifact was shown before and is only named here}
 * `what` is that of lf_ledger_lineage, or the path of an outside file. */
json_t *lf_ledger_descent(lf_ledger *l, const char *what, lf_err *err);
/* {"t","run","stage","by","text"} */
json_t *lf_ledger_notes(lf_ledger *l, const char *run, lf_err *err);
/* {"run","last"}: the n runs whose last value of a metric is smallest, or with max largest. The
 * best is first. */
json_t *lf_ledger_best(lf_ledger *l, const char *key, bool max, int64_t n, lf_err *err);
/* {"run","stage" ("": the run),"tag","t","by"}; run NULL: all */
json_t *lf_ledger_tags(lf_ledger *l, const char *run, lf_err *err);
/* The rows of one read-only statement, as objects by column name. A statement that writes is
 * refused. */
json_t *lf_ledger_sql(lf_ledger *l, const char *sql, lf_err *err);
/* Findings as texts; an empty array when all is well. It runs SQLite's integrity check and looks
 * for rows without their parents. With data_root not NULL it also looks for events and artifacts
 * whose files are missing: at most two findings for a run, one when its directory is gone. */
json_t *lf_ledger_check(lf_ledger *l, const char *data_root, lf_err *err);

#endif
