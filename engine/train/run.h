/* SPDX-License-Identifier: Apache-2.0
 *
 * What every training stage does beside its step: its voice (log, metrics), its checkpoints, where
 * it begins or goes on, when it stops, and what its ranks agree upon. A loop (loop.h,
 * engine/post/pg.h) has an lf_run inside and is itself only what a step, or a round, is.
 *
 * Each of these happens at one place:
 *   a stop is looked for          lf_run_asked_to_stop
 *   a checkpoint is published     lf_run_save_begin, and lf_run_save_wait for its end
 *   old checkpoints are removed   lf_run_save_wait
 *   a source is chosen            lf_run_newest, from out and the resume_from directories
 *
 * Functions called collective are called by every rank at the same point. All others are of the
 * rank that calls them; rank 0 alone reads and writes checkpoints and metrics. lf_fail is worded
 * with the stage's option names.
 */
#ifndef LF_TRAIN_RUN_H
#define LF_TRAIN_RUN_H

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>

#include "engine/base/frame.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/comm/comm.h"
#include "engine/graph/profile.h"
#include "engine/model/adapter.h"
#include "engine/store/ckpt.h"
#include "engine/train/schedule.h"

/* What a run tells the world, and asks of it. Every member may be NULL. */
struct lf_train_sink {
    void *user; /* of log; borrowed */
    /* level as in lf_log: 1 warning, 2 info, 3 debug; one line. */
    void (*log)(void *user, int level, const char *text);
    /* Has a stop been asked for? Called after every step. */
    bool (*stop)(void);
};

/* Borrowed until lf_run_close. */
struct lf_run_config {
    const char *out, *metrics; /* metrics NULL: none */
    /* out directories of earlier starts, oldest first; out itself comes last */
    const char *const *resume_from;
    size_t n_resume_from;
    const char *init_from;                   /* NULL: random weights */
    const struct lf_adapter_config *adapter; /* NULL: whole weights are trained */
    /* member of state.json that is the same throughout a run and tells runs apart */
    const char *identity;
    struct lf_profile *profile; /* NULL: nobody collects */
    int threads, keep;
    int64_t keep_every;
    double save_time_s; /* 0: no save by the clock */
};

typedef struct lf_run {
    struct lf_run_config c;
    const struct lf_train_sink *sink; /* NULL: silent */
    lf_comm *comm;                    /* of host memory; NULL: alone */
    int rank, ranks;
    lf_arena *arena; /* lives as long as the run */
    json_t *history; /* resumes, with why they were not bitwise */
    /* what bits depend on: kernels, threads, sizes. The loop fills it; owned */
    json_t *fingerprint;
    char base[LF_HASH_HEX];   /* identity of init_from; "": not known or none. The loop fills it */
    lf_frame_writer *metrics; /* NULL: none, or not rank 0 */

    lf_ckpt_writer *writer;
    void *snapshot;
    size_t snapshot_bytes;
    bool saving;
    double last_save, save_t0;       /* when the last save began; when its snapshot did */
    int64_t saving_step, saved_step; /* in the checkpoint that is being written, in the newest
                                        complete one; -1: none */
    double save_s; /* how long the newest save took, from its beginning to its publication */
} lf_run;

/* comm NULL: alone. After a failure lf_run_close is legal. */
int lf_run_open(lf_run *r, const struct lf_run_config *c, const struct lf_train_sink *sink,
                lf_comm *comm, lf_err *err);
/* Ends the writer of checkpoints and closes the metrics; before memory of tensors goes. */
void lf_run_end_writing(lf_run *r);
void lf_run_close(lf_run *r);

/* ---- run.c: voice, stop, ranks ---- */

static inline bool lf_run_first(const lf_run *r)
{
    return r->rank == 0;
}
/* Rank 0 speaks; the others are silent, their failures travel in err. */
void lf_run_log(const lf_run *r, int level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void lf_run_vlog(const lf_run *r, int level, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

/* Cuts the metrics behind the last record whose step is at most `step`, then opens them for
 * appending. A start with a file of its own that goes on from an earlier one begins it with
 * {"step": step, "resumed": true}. Rank 0. */
int lf_run_metrics_open(lf_run *r, int64_t step, lf_err *err);
int lf_run_metrics_sync(lf_run *r, lf_err *err);

bool lf_run_asked_to_stop(const lf_run *r);
/* Is it time to save, by this rank's clock? */
bool lf_run_late(const lf_run *r);
/* Collective: was any rank asked to stop? late (NULL: not wanted): does rank 0's clock say that it
 * is time to save? rc: how this rank fared since the last exchange; when one failed, all return a
 * failure. */
int lf_run_look(const lf_run *r, int rc, bool *stop, bool *late, lf_err *err);
/* Collective: when one rank has failed, all ranks return a failure. When ranks returned LF_EINTR
 * and nothing worse, all ranks return LF_EINTR. */
int lf_run_agree(const lf_run *r, int rc, lf_err *err);
/* Collective: true everywhere when it is true somewhere. */
int lf_run_any(const lf_run *r, bool *flag, lf_err *err);
/* Tells the watchdog: work of unknown length; NULL: it is over. */
void lf_run_phase(const lf_run *r, const char *name);
/* Collective: rank 0's object on all ranks (theirs must be NULL before; NULL stays NULL), owned. */
int lf_run_share_json(const lf_run *r, json_t **o, lf_err *err);
/* Collective: LF_EINVAL, naming what differs, when a rank's state (as lf_run_state made it,
 * consumed) is not rank 0's. Threads of the fingerprint may differ. state NULL: it could not be
 * made here. */
int lf_run_same(const lf_run *r, json_t *state, lf_err *err);

/* ---- run_save.c: checkpoints ---- */

/* tensors live as long as the run. snapshot: copy them to save in the background; without it a save
 * returns when all is written. Rank 0. */
int lf_run_writer_open(lf_run *r, const lf_ckpt_tensor *tensors, size_t n, bool snapshot,
                       lf_err *err);
/* What state.json of every stage has, added to o, which is consumed: fingerprint, history, adapter
 * and base. o NULL: out of memory. NULL: an error. */
json_t *lf_run_state(const lf_run *r, json_t *o, lf_err *err);
/* Publishes a checkpoint in dir; the one before is waited for, metrics are on disk first. state: as
 * lf_run_state made it, with "step"; borrowed. Nothing happens on other ranks than 0. LF_EINTR,
 * here and from lf_run_save_wait: a newer start has begun (base/fence.h), nothing is published. */
int lf_run_save_begin(lf_run *r, const char *dir, const json_t *state, lf_err *err);
/* Waits for the save under way, if any, and removes old checkpoints. */
int lf_run_save_wait(lf_run *r, lf_err *err);
/* lf_run_save_begin, then lf_run_save_wait. */
int lf_run_save_at(lf_run *r, const char *dir, const json_t *state, lf_err *err);
/* Ends a run: out/checkpoint, with an adapter out/adapter before it, which may be there already.
 * Rank 0 does it. */
int lf_run_save_final(lf_run *r, const json_t *state, lf_err *err);

/* ---- run_start.c: where a run begins. Rank 0 ---- */

/* A damaged checkpoint below out must not stand where a good one will be written: it becomes
 * DIR.broken (.broken-2 ...). *moved (may be NULL): it was; false where dir is another start's,
 * which stays. */
int lf_run_set_aside(const lf_run *r, const char *dir, bool *moved, lf_err *err);
/* Open the newest checkpoint whose bytes are right; *ck NULL: there is none. Each damaged
 * checkpoint on the way is logged and set aside. dir: owned. */
int lf_run_newest(lf_run *r, lf_ckpt **ck, char **dir, lf_err *err);
/* Open the final checkpoint of out, or the adapter that it was merged from; *ck NULL: there is
 * none. A damaged final checkpoint is logged and set aside, and the run makes it again. dir: of
 * the checkpoint, owned. */
int lf_run_final(lf_run *r, lf_ckpt **ck, char **dir, lf_err *err);
/* LF_EINVAL unless ck fits this run: a run with an adapter needs a checkpoint of such an adapter on
 * r->base (where the base is known), a run without one a checkpoint of whole weights. */
int lf_run_check_adapter(const lf_run *r, const lf_ckpt *ck, const char *dir, lf_err *err);
/* Records in the history that the run goes on from dir, and logs whether its bits can be those of a
 * run that was never stopped. was: the state of that checkpoint. is: the state that this run would
 * write. at: the place in the run, for the log. */
int lf_run_resumed(lf_run *r, const json_t *was, const json_t *is, const char *dir, const char *at,
                   lf_err *err);
/* "key was x, is y" is added to out when the two differ; the same over the members of an object. */
void lf_run_difference(json_t *was, json_t *is, const char *prefix, const char *key, lf_buf *out);
void lf_run_differences(json_t *was, json_t *is, const char *prefix, lf_buf *out);

/* Settings of a schedule and of AdamW as state.json has them; NULL: out of memory. */
json_t *lf_run_schedule_json(const lf_schedule *s);
struct lf_adamw_opts;
json_t *lf_run_optimizer_json(const struct lf_adamw_opts *a, double clip);

#endif
