/* SPDX-License-Identifier: Apache-2.0
 *
 * The ledger: one SQLite file with every run, stage, attempt, artifact and metric of a project. It
 * is a view of the run directories and can be rebuilt from them. One writer at a time: the caller
 * holds the project lock (engine/base/lock.h) while a ledger is open for writing; readers need no
 * lock. All paths inside are relative to the data root (<data_dir>/<project id>), so a project can
 * be moved. The tables are documented in db/README.md.
 *
 * Facts come only from event files and framed metrics, and each is stored so that the order of
 * ingestion does not matter: ingesting again, in another order, or rebuilding gives the same rows.
 *
 * Queries return rows as JSON (owned, json_decref): an array of objects whose members are named as
 * below; absent values are null; times are seconds since the epoch.
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
    LF_LEDGER_WRITE = 1, /* create when absent, migrate when older; without it: read only */
    LF_LEDGER_NOLOCK =
        /* no file locks (site key, for filesystems without them); the project lock alone
         * excludes */
    2,
};

/* Open. Refuses, each with its own text: a newer schema (LF_ENOTSUP), a file that is not a ledger,
 * is damaged or is no file (LF_EFORMAT, says `ledger rebuild`), a file or directory that cannot be
 * written when WRITE is asked (LF_EIO, errnum EROFS or EACCES), an absent file when reading
 * (LF_ENOENT), a file held by another process (LF_EBUSY), a filesystem whose locks fail (LF_EIO).
 * An older schema is backed up to "<path>.v<version>.bak" and migrated in one transaction when
 * writing, and refused when reading. After an unclean end (hot journal) the recovered file is
 * checked first. A read-only open of a file held by a writer falls back to the snapshot of
 * lf_ledger_publish, when there is one. */
lf_ledger *lf_ledger_open(const char *path, unsigned flags, lf_err *err);
void lf_ledger_close(lf_ledger *l); /* NULL is legal */
/* reading the published copy: may be a little old */
bool lf_ledger_is_snapshot(const lf_ledger *l);
int lf_ledger_schema_version(const lf_ledger *l);

/* ---- writing ---- */

typedef struct lf_ledger_ingest_opts {
    const char *run; /* only this run; NULL: all below runs/ that may hold something new */
    bool everything; /* all below runs/: also runs that were read and have not been touched since */
    const uid_t *trusted; /* owners accepted besides the caller and root */
    size_t n_trusted;
} lf_ledger_ingest_opts;

typedef struct lf_ledger_ingested {
    int64_t events, records; /* new ones */
    int64_t problems;        /* files refused now (table problem) */
} lf_ledger_ingested;

/* Read what is new below data_root/runs, in one transaction. A file that cannot be understood is
 * noted as a problem and does not stop the rest. opts and out may be NULL. */
int lf_ledger_ingest(lf_ledger *l, const char *data_root, const lf_ledger_ingest_opts *opts,
                     lf_ledger_ingested *out, lf_err *err);
/* Forget a run that was never complete: its own rows, those of its stages and of what it was to
 * read. */
int lf_ledger_forget(lf_ledger *l, const char *run, lf_err *err);
/* Bring the readers' copy beside the ledger ("<path>.pub" and a base) up to date: what changed is
 * written, not the whole. Readers of it take no locks. No-op when nothing changed. */
int lf_ledger_publish(lf_ledger *l, lf_err *err);
/* A consistent copy at a new path (VACUUM INTO). LF_EEXIST when it exists. */
int lf_ledger_backup(lf_ledger *l, const char *path, lf_err *err);
/* Make the ledger afresh from the run directories: built beside the old one, which is kept as
 * "<path>.old", and put in place by rename. The caller holds the project lock and has no ledger
 * open. opts->run must be NULL. */
int lf_ledger_rebuild(const char *path, const char *data_root, unsigned flags,
                      const lf_ledger_ingest_opts *opts, lf_ledger_ingested *out, lf_err *err);

/* ---- queries ---- */

/* {"run","name","project","config_sha256","user","host","git","version","parent_run","t",
 *  "state","n_stages","n_done"}; newest first. state: failed, running, pending, waiting, cancelled,
 *  done, unknown - the first of these that one of its stages has (done: all). run NULL: all,
 *  otherwise a run's id, name or unique prefix. */
json_t *lf_ledger_runs(lf_ledger *l, const char *run, lf_err *err);
/* The one run that `word` names: id, unique prefix of an id, or name (the newest of it); NULL word:
 * the newest run. Owned string. LF_ENOENT names the nearest; LF_EINVAL when a prefix is
 * ambiguous. */
char *lf_ledger_find_run(lf_ledger *l, const char *word, lf_err *err);
/* {"run","stage","attempt","epoch","name","role","path",
 * "kind","sha256","bytes","files","step","spec_id","meta","t",
 *  "gone"}; run and stage may be NULL. */
json_t *lf_ledger_artifacts(lf_ledger *l, const char *run, const char *stage, lf_err *err);
/* What made this artifact, up the chain: {"artifact":{...},"made_by":{"run","stage","attempt",
 * "epoch","kind","spec_id",
 *  "exe_sha256","options"},"inputs":[{"name","path","sha256","lineage":{...} or
 *  null}],"from":{lineage of the checkpoint it continued from} or null}. `what` is a path, also of
 *  a file in an artifact, or a sha256 (unique prefix of 8 or more). */
json_t *lf_ledger_lineage(lf_ledger *l, const char *what, lf_err *err);
/* What was made from an artifact, or from an outside file: {"artifact":{...} or
 * "path","used_by":[{"run","stage","attempt",
 *  "epoch","kind","how":"input"|"continued","made":[the same for each artifact of that
 *  start]}],"shown":true when it was met before and is only named}. `what` as above, or the
 *  path of an outside file. */
json_t *lf_ledger_descent(lf_ledger *l, const char *what, lf_err *err);
/* {"t","run","stage","by","text"} */
json_t *lf_ledger_notes(lf_ledger *l, const char *run, lf_err *err);
/* {"run","last"}: the n runs whose last value of a metric is smallest, or largest (max), best
 * first. */
json_t *lf_ledger_best(lf_ledger *l, const char *key, bool max, int64_t n, lf_err *err);
/* {"run","stage" ("": the run),"tag","t","by"}; run NULL: all */
json_t *lf_ledger_tags(lf_ledger *l, const char *run, lf_err *err);
/* One read-only statement; rows as objects by column name. Refuses anything that writes. */
json_t *lf_ledger_sql(lf_ledger *l, const char *sql, lf_err *err);
/* Findings as texts, an empty array when all is well: SQLite's integrity check, rows without their
 * parents, and, when data_root is not NULL, events and artifacts whose files are not there. */
json_t *lf_ledger_check(lf_ledger *l, const char *data_root, lf_err *err);

#endif
