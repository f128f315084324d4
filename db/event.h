/* SPDX-License-Identifier: Apache-2.0
 *
 * Event files: how anything that happens to a run becomes known. Whoever did it writes one small
 * JSON file into a spool directory of the run; the ledger reads it later. The files stay, so the
 * ledger can be rebuilt from them.
 *
 *   {"lf_event":1, "id":ULID, "t":seconds since the epoch, "run":RUN, "stage":STAGE, "attempt":N,
 *   "epoch":N,
 *    "kind":KIND, "data":{...}}                       stage, attempt, epoch only where the kind has
 *      them
 *
 * RUN and STAGE are the directory names below runs/; attempt counts from 1 within (run, stage),
 * epoch from 1 within the attempt, as in the directory <attempt>.<epoch>. File name:
 * <ULID>-<kind>.json, published with link(2), read-only. Spools: runs/RUN/spool,
 * runs/RUN/STAGE/spool, runs/RUN/STAGE/A.E/spool.
 *
 * Kinds and their data. Members marked * are required; others may be absent; more may be added and
 * are kept.
 *   run        (run)  name, project*, config_sha256, config_text, user, host, git, version,
 *              parent_run
 *   stage      (stage) kind*, seq* (place in the file), spec_id*, spec_version, exe_sha256,
 *              outputs:[names], options:{name: canonical text}, inputs:[{"name": option,
 *              "stage","output"} or {"name","path","sha256"}], after:[stages]. A later one for the
 *              same stage (resume with an edited file) replaces the earlier.
 *   submit     (attempt) token*, backend* ("local","slurm","pbs"), cluster, submit_cmd,
 *              script_sha256, req:{}, spec_id written BEFORE the scheduler is called
 *   submitted  (attempt) jobid*, job_submit_t        the scheduler's answer
 *   start      (epoch) host, pid, boot_id, proc_start, jobid, step, from:{"attempt","epoch"} (whose
 *              checkpoint)
 *   end        (epoch) state* ("done","failed","stopped","cancelled"), exit, signal, reason
 *              (failure class), message, step (last one saved), used:{}
 *   artifact   (epoch) name*, path* (relative to the data root), kind, sha256 (of the manifest),
 *              bytes, files, step, spec_id, meta:{}, role ("output" when absent, or "checkpoint")
 *   input      (epoch) name*, path*, sha256            what a start read; outside files with
 *              absolute path
 *   cancel     (run, or stage, or attempt) by, why
 *   gone       (run) path*, why                        an artifact deleted by gc, or found purged
 *   note       (run or stage) text*, by
 *   node_strike (epoch) host*, cause*
 *   strike     (run, or more) host*, cause*            the same from outside a start
 *   tag        (run or stage) tag*, by, remove          a word to find and keep a run by; remove
 *              true takes it off
 *   requeue    (epoch) cause*, jobid                   this start has asked for its job to be
 *              run again
 *   adopt      (attempt) jobid*, by                    a job whose submission was lost was found by
 *              its token
 *   observed   (attempt) state* ("pending","running","failed","cancelled","lost"), raw (the
 *              scheduler's word), reason (failure class), exit, signal, host, jobid, message: what
 *              the scheduler said, for ends that nobody else records; a later one replaces an
 *              earlier
 * Any other kind is kept in the event table and has no further effect.
 */
#ifndef LF_DB_EVENT_H
#define LF_DB_EVENT_H

#include <jansson.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/id.h"

typedef struct lf_event {
    char id[LF_ULID_SIZE]; /* set by lf_event_write */
    double t;              /* 0: now */
    const char *run;
    const char *stage; /* NULL: none */
    int64_t attempt;   /* 0: none */
    int64_t epoch;     /* 0: none */
    const char *kind;
    json_t *data; /* object; borrowed; NULL: {} */
} lf_event;

/* Check the event (names, required members), give it an id, publish it durably in spool_dir (which
 * is made when absent, mode dir_mode; the file gets file_mode & 0444). */
int lf_event_write(const char *spool_dir, lf_event *ev, unsigned dir_mode, unsigned file_mode,
                   lf_err *err);

/* Parse and check one event text. Strings and data are borrowed from *root, which the caller
 * releases. */
int lf_event_parse(lf_event *out, json_t **root, const char *text, size_t len, const char *path,
                   lf_err *err);

#endif
