/* SPDX-License-Identifier: Apache-2.0
 *
 * What every training stage does beside its steps: log, metrics, checkpoints, finding its
 * beginning, stopping, and agreement of its ranks. A loop (loop.h, engine/post/pg.h) contains an
 * lf_run and adds only its step or round.
 *
 * Each of these is done in one place:
 *   a stop request is read        lf_run_asked_to_stop
 *   a checkpoint is published     lf_run_save_begin, and lf_run_save_wait for its end
 *   old checkpoints are removed   lf_run_save_wait
 *   numbers of a step are told    lf_run_record
 *   samples of a step are told    lf_run_samples
 *   a source is chosen            lf_run_newest, from out and the resume_from directories
 *
 * Every rank calls a function marked collective at the same point. All others concern only the rank
 * that calls them. Rank 0 alone writes metrics; it alone writes checkpoints, too, unless ranks keep
 * parts of the state (lf_run_writer_open). Messages use the names of the options of the stage.
 */
#ifndef LF_TRAIN_RUN_H
#define LF_TRAIN_RUN_H

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>

#include "engine/base/ending.h"
#include "engine/base/frame.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/comm/comm.h"
#include "engine/graph/profile.h"
#include "engine/model/adapter.h"
#include "engine/model/scales.h"
#include "engine/store/ckpt.h"
#include "engine/train/copies.h"
#include "engine/train/early.h"
#include "engine/train/sample_file.h"
#include "engine/train/schedule.h"

/* Callbacks of a run. Every member may be NULL. */
struct lf_train_sink {
    void *user; /* of log; borrowed */
    /* level as in lf_log: 1 warning, 2 info, 3 debug; one line. */
    void (*log)(void *user, int level, const char *text);
    /* Has a stop been requested? Called after every step. */
    bool (*stop)(void);
    /* The step behind which to stop, INT64_MAX: none. */
    int64_t (*stop_step)(void);
    /* Has an early end been requested? Likewise. */
    enum lf_ending (*finish)(void);
    /* A stop, or an early end at once: for long work that an early end has no use for. */
    bool (*leave)(void);
};

/* What a loop is asked for between two steps. */
struct lf_run_asked {
    int64_t step;        /* before the call: steps made, that under way too */
    bool stop;           /* some rank was asked to stop: a checkpoint, then LF_EINTR */
    enum lf_run_end end; /* end the run early; before the call what the caller's clock says */
};

/* Borrowed until lf_run_close. */
struct lf_run_config {
    const char *out, *metrics;    /* metrics NULL: none */
    struct lf_copies_opts copies; /* of the metrics */
    /* out directories of earlier starts, oldest first; out itself comes last */
    const char *const *resume_from;
    size_t n_resume_from;
    const char *init_from;                   /* NULL: random weights */
    const struct lf_adapter_config *adapter; /* NULL: whole weights are trained */
    /* member of state.json that is constant in a run and different between runs */
    const char *identity;
    struct lf_profile *profile; /* NULL: none */
    int threads, keep;
    int64_t keep_every;
    double save_time_s; /* 0: no save by the clock */
    bool samples;       /* a guest writes samples (sample_file.h) */
    bool parts;         /* several ranks each keep, write and read a part of the state */
};

typedef struct lf_run {
    struct lf_run_config c;
    const struct lf_train_sink *sink; /* NULL: silent */
    lf_comm *comm;                    /* of host memory; NULL: alone */
    int rank, ranks;
    lf_arena *arena; /* freed with the run */
    json_t *history; /* the resumes, with reasons why they were not bitwise */
    /* everything that bits depend on: kernels, threads, sizes; the loop fills it; owned */
    json_t *fingerprint;
    char base[LF_HASH_HEX];   /* identity of init_from; "": unknown or none; the loop fills it */
    lf_frame_writer *metrics; /* NULL: none, or not rank 0 */
    lf_copies *copies;        /* of them; likewise */
    lf_sample_file *samples;  /* NULL: none, or not rank 0 */

    struct lf_scales scales; /* that its checkpoints carry; of rank 0 */
    lf_ckpt_writer *writer;  /* NULL: with parts, or not rank 0 */
    struct lf_parts *parts;  /* NULL: rank 0 writes checkpoints alone (run_parts.c) */
    void *snapshot;
    size_t snapshot_bytes;
    bool saving;               /* with parts: agreed */
    double last_save, save_t0; /* when the last save began; when its snapshot began */
    /* step of the checkpoint that is being written, of the newest complete one, and of the newest
     * one that could not be saved; -1: none. Without parts rank 0 alone knows. */
    int64_t saving_step, saved_step, failed_step;
    lf_err unsaved; /* without parts: why the save under way could not begin; rc 0: it did */
    double save_s;  /* time of the newest save, from its beginning to its publication */
} lf_run;

/* comm NULL: one rank. lf_run_close is legal after a failure. */
int lf_run_open(lf_run *r, const struct lf_run_config *c, const struct lf_train_sink *sink,
                lf_comm *comm, lf_err *err);
/* Ends the writer of checkpoints and closes the metrics. Call it before the memory of tensors is
 * freed. */
void lf_run_end_writing(lf_run *r);
void lf_run_close(lf_run *r);

/* ---- run.c: log, metrics, stop, ranks ---- */

static inline bool lf_run_first(const lf_run *r)
{
    return r->rank == 0;
}
static inline bool lf_run_in_parts(const lf_run *r)
{
    return r->c.parts && r->ranks > 1;
}
/* Only rank 0 logs. Failures of other ranks are returned in err. */
void lf_run_log(const lf_run *r, int level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void lf_run_vlog(const lf_run *r, int level, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

/* Cuts the metrics behind the last record whose step is at most `step`, then opens them for
 * appending. A start with a file of its own that continues an earlier start begins it with {"step":
 * step, "resumed": true}. Opens the file of samples likewise, and the copies, which cannot fail.
 * Rank 0. */
int lf_run_metrics_open(lf_run *r, int64_t step, lf_err *err);
int lf_run_metrics_sync(lf_run *r, lf_err *err);
/* Is a record taken by anybody? Only on rank 0. */
bool lf_run_wants_record(const lf_run *r);
/* Appends one record, a JSON object of n bytes with "step", to the metrics and their copies. Every
 * training stage says its numbers through this function. */
int lf_run_record(lf_run *r, const char *record, size_t n, lf_err *err);
/* Appends n bytes of whole lines to the file of samples. Rank 0. */
int lf_run_samples(lf_run *r, const char *lines, size_t n, lf_err *err);

bool lf_run_asked_to_stop(const lf_run *r);
/* Is it time to save, by this rank's clock? */
bool lf_run_late(const lf_run *r);
/* Collective. a->end is in and out: the clock of rank 0 counts, and requests of all. *late (may be
 * NULL): it is time to save, by the clock of rank 0. rc is the result of this rank since the last
 * exchange. When one rank has failed, all return a failure. With parts it moves the save under way
 * on, and ends it. */
int lf_run_look(lf_run *r, int rc, struct lf_run_asked *a, bool *late, lf_err *err);
/* Collective: when one rank has failed, all ranks return a failure. When ranks returned LF_EINTR
 * and nothing worse, all ranks return LF_EINTR. */
int lf_run_agree(const lf_run *r, int rc, lf_err *err);
/* Collective: sets *flag on all ranks when it is set on one. */
int lf_run_any(const lf_run *r, bool *flag, lf_err *err);
/* Tells the watchdog that work of unknown length begins; NULL: it has ended. */
void lf_run_phase(const lf_run *r, const char *name);
/* Collective: copies the object of rank 0 to all ranks, whose *o must be NULL before. The caller
 * owns it. NULL stays NULL. */
int lf_run_share_json(const lf_run *r, json_t **o, lf_err *err);
/* Collective: compares state, which lf_run_state made and which is consumed, with that of rank 0.
 * Threads of the fingerprint may differ. state NULL: it could not be made. LF_EINVAL: a state
 * differs; the message says where. */
int lf_run_same(const lf_run *r, json_t *state, lf_err *err);

/* ---- run_save.c: checkpoints ---- */

/* Takes along the companions of weights (engine/model/scales.h) of the checkpoint that the weights
 * come from, instead of any before; on other ranks than rank 0, and of an adapter, whose base has
 * them, it does nothing. Before the writer is opened. */
int lf_run_carry(lf_run *r, const lf_ckpt *from, lf_err *err);

/* What a checkpoint is of. They live as long as the run. */
struct lf_run_tensors {
    const lf_ckpt_tensor *all; /* every tensor, whole */
    size_t n_all;
    const lf_ckpt_tensor *own; /* NULL: rank 0 writes all; else the part of this rank */
    size_t n_own;
    /* They are copied and saved in the background; without it a save returns when everything is
     * written. */
    bool snapshot;
};
/* Opens the writer. rc: how this rank fared in describing the tensors. Collective where ranks write
 * parts; then so are the functions below that save, and the messages name the rank. */
int lf_run_writer_open(lf_run *r, const struct lf_run_tensors *t, int rc, lf_err *err);
/* Adds to o what state.json of every stage has: fingerprint, history, adapter and base. Returns o,
 * or NULL with err set; o is consumed. o NULL means out of memory. */
json_t *lf_run_state(const lf_run *r, json_t *o, lf_err *err);
/* Publishes a checkpoint in dir. It first waits for the save before and syncs the metrics. rc: how
 * this rank fared so far; on a failure, which is returned, nothing is saved, nor where the dir of
 * rank 0 is NULL. state is borrowed; lf_run_state made it, and it has "step". dir and state of rank
 * 0 count; with parts the others give a state of the same step, else they do nothing. That the
 * checkpoint cannot be written is no failure here, but one of lf_run_save_wait. LF_EINTR, here and
 * from the two below: a newer start has begun (base/fence.h), and nothing is published. */
int lf_run_save_begin(lf_run *r, int rc, const char *dir, const json_t *state, lf_err *err);
/* Ends the current save if it is over, without parts, where lf_run_look does that. */
int lf_run_save_poll(lf_run *r, lf_err *err);
/* Waits for the current save, if any, and removes old checkpoints. A checkpoint that could not be
 * saved is a failure of the run only where it is `needed`; else rank 0 logs it, and the next one is
 * tried in its time. */
int lf_run_save_wait(lf_run *r, bool needed, lf_err *err);
/* lf_run_save_begin, then lf_run_save_wait for what is needed. */
int lf_run_save_at(lf_run *r, int rc, const char *dir, const json_t *state, lf_err *err);
/* Ends a run: publishes out/checkpoint; with an adapter out/adapter before it, which may exist
 * already. */
int lf_run_save_final(lf_run *r, int rc, const json_t *state, lf_err *err);

/* ---- run_start.c: the beginning of a run. Rank 0 ---- */

/* Moves a damaged checkpoint below out to DIR.broken (.broken-2 ...), because a good one will be
 * written in its place. *moved (may be NULL) is false where dir belongs to another start and
 * stays. */
int lf_run_set_aside(const lf_run *r, const char *dir, bool *moved, lf_err *err);
/* Where the search for a beginning stands. It begins at LF_RUN_SEARCH. */
struct lf_run_search {
    int64_t max_step; /* of what is looked for; < 0: any */
    bool over;        /* there can be none any more */
    char *dir;        /* what was found, owned by the caller in the end; NULL: nothing */
    int64_t step;     /* of it */
};
#define LF_RUN_SEARCH ((struct lf_run_search){.max_step = -1})
/* Opens the newest checkpoint whose bytes are right; *ck is NULL when there is none. Each damaged
 * checkpoint that it meets is logged and set aside. With parts, where the ranks check what they
 * read, only its structure is checked: who finds damage passes over it and calls this again. */
int lf_run_newest(lf_run *r, struct lf_run_search *s, lf_ckpt **ck, lf_err *err);
/* What was found is damaged, as text says: logs that, sets it aside, and goes on to older ones. */
int lf_run_pass_over(lf_run *r, struct lf_run_search *s, const char *text, lf_err *err);
/* Collective, with parts: what rank 0 had found is damaged, as the text of why says on the ranks
 * that saw it. */
int lf_run_pass_over_all(lf_run *r, struct lf_run_search *s, const lf_err *why, lf_err *err);
/* Opens a checkpoint that every rank reads. With parts each checks those leaves that it reads, and
 * rank 0 the structure; else all is checked. Any rank. */
int lf_run_open_to_read(const lf_run *r, lf_ckpt **ck, const char *dir, lf_err *err);
/* Opens the final checkpoint of out, or the adapter that it was merged from; *ck is NULL when there
 * is none. A damaged final checkpoint is logged and set aside, and the run makes it again. The
 * caller frees *dir. */
int lf_run_final(lf_run *r, lf_ckpt **ck, char **dir, lf_err *err);
/* Checks that ck fits this run. A run with an adapter needs a checkpoint of such an adapter on
 * r->base, where the base is known; a run without one needs a checkpoint of whole weights.
 * LF_EINVAL: it does not fit. */
int lf_run_check_adapter(const lf_run *r, const lf_ckpt *ck, const char *dir, lf_err *err);
/* Records in the history that the run continues from dir, and logs whether its bits can be those of
 * a run that was never stopped. was is the state of that checkpoint, is the state that this run
 * would write, and at the place in the run, for the log. */
int lf_run_resumed(lf_run *r, const json_t *was, const json_t *is, const char *dir, const char *at,
                   lf_err *err);
/* Adds "key was x, is y" to out when the two differ. lf_run_differences does so for all members of
 * an object. */
void lf_run_difference(json_t *was, json_t *is, const char *prefix, const char *key, lf_buf *out);
void lf_run_differences(json_t *was, json_t *is, const char *prefix, lf_buf *out);

/* Return the settings of a schedule and of AdamW in the form of state.json; NULL: out of memory. */
json_t *lf_run_schedule_json(const lf_schedule *s);
struct lf_adamw_opts;
json_t *lf_run_optimizer_json(const struct lf_adamw_opts *a, double clip);

#endif
