/* SPDX-License-Identifier: Apache-2.0
 *
 * Event files record everything that happens to a run. Each program writes a small JSON file into a
 * spool directory of the run for what it did. The ledger reads the file later. The files stay, so
 * the ledger can be rebuilt from them.
 *
 *   {"lf_event":1, "id":ULID, "t":seconds since the epoch, "run":RUN, "stage":STAGE, "attempt":N,
 *    "epoch":N, "kind":KIND, "data":{...}}
 *
 * stage, attempt and epoch are present only where the kind has them. RUN and STAGE are the
 * directory names below runs/. attempt counts from 1 within (run, stage), epoch from 1 within the
 * attempt, as in the directory <attempt>.<epoch>. The file name is <ULID>-<kind>.json. It is
 * published with link(2) and is read-only. The spools are runs/RUN/spool, runs/RUN/STAGE/spool and
 * runs/RUN/STAGE/A.E/spool.
 *
 * The kinds and their data follow. Members marked * are required, others may be absent. Further
 * members are kept.
 *   run        (run)  name, project*, config_sha256, config_text, user, host, git, version,
 *              parent_run
 *   stage      (stage) kind*, seq* (place in the file), spec_id*, spec_version, exe_sha256,
 *              outputs:[names], options:{name: canonical text}, inputs:[{"name": option,
 *              "stage","output"} or {"name","path","sha256"}], after:[stages]. A later event of the
 *              same stage (resume with an edited file) replaces the earlier one.
 *   submit     (attempt) token*, backend* ("local","slurm","pbs"), cluster, submit_cmd,
 *              script_sha256, req:{}, spec_id. Written BEFORE the scheduler is called.
 *   submitted  (attempt) jobid*, job_submit_t. The scheduler's answer.
 *   start      (epoch) host, pid, boot_id, proc_start, jobid, step, from:{"attempt","epoch"} (the
 *              start whose checkpoint it continues)
 *   end        (epoch) state* ("done","failed","stopped","cancelled"), exit, signal, reason
 *              (failure class), message, step (the last saved one), used:{}
 *   artifact   (epoch) name*, path* (relative to the data root), kind, sha256 (of the manifest),
 *              bytes, files, step, spec_id, meta:{}, role ("output" when absent, or "checkpoint")
 *   input      (epoch) name*, path*, sha256. What a start read; the path of an outside file is
 *              absolute.
 *   cancel     (run, or stage, or attempt) by, why
 *   gone       (run) path*, why. An artifact that gc deleted or that was found purged.
 *   note       (run or stage) text*, by
 *   node_strike (epoch) host*, cause*
 *   strike     (run, or more) host*, cause*. As node_strike, but written from outside a start.
 *   tag        (run or stage) tag*, by, remove. A word that finds the run and keeps it; remove true
 *              takes the tag off.
 *   run_end    (run) command* ("on_end","on_fail"), state* ("done","failed","cancelled",
 *              "stopped"), reason, exit. A command of the pipeline was run at the end of the run.
 *              It is a row of the event table and has no other effect.
 *   rung       (run) rung*, step*, stage, metric, kept*:[children], ended*:[children]. What was
 *              decided at a rung of a sweep. Whoever decides writes it before the decision is
 *              published, so there may be several that say the same; the one with the smallest id
 *              stands.
 *   requeue    (epoch) cause*, jobid. This start has asked for its job to be run again.
 *   adopt      (attempt) jobid*, by. A job whose submission was lost was found by its token.
 *   observed   (attempt) state* ("pending","running","failed","cancelled","lost"), raw (the
 *              scheduler's word), reason (failure class), exit, signal, host, jobid, message. What
 *              the scheduler said, for ends that no other program records. A later event replaces
 *              an earlier one.
 * Any other kind is kept in the event table and has no further effect.
 */
#ifndef LF_DB_EVENT_H
#define LF_DB_EVENT_H

#include <jansson.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/id.h"

#define LF_EVENT_NAME_MOST 128 /* letters of a run, a stage or a kind */

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

/* Check the event (names, required members), give it an id and publish it durably in spool_dir. The
 * directory is made with dir_mode when absent. The file gets file_mode & 0444. */
int lf_event_write(const char *spool_dir, lf_event *ev, unsigned dir_mode, unsigned file_mode,
                   lf_err *err);

/* Parse and check one event text. Strings and data are borrowed from *root. The caller releases
 * *root. */
int lf_event_parse(lf_event *out, json_t **root, const char *text, size_t len, const char *path,
                   lf_err *err);

#endif
