/* SPDX-License-Identifier: Apache-2.0
 *
 * The records of one start of a stage, in the order in which they appear: the claim of its number,
 * the stage's process, how it ended, what it made. Each has one function that reads it and one that
 * writes it; a text that is NULL was not given, and so was a list that is NULL. Records that were
 * read own what they point to and are given back with their _free; those that are written borrow.
 */
#ifndef LF_FLOW_START_H
#define LF_FLOW_START_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/id.h"
#include "flow/record/values.h"

struct json_t;

/* A process that says who it is in a file of its own (base/id.h); *out NULL: there is none. */
int lf_proc_load(lf_proc_id **out, const char *dir, const char *name, lf_err *err);

/* What a claim lists to be gone on from (handover.h says what the members mean). */
struct lf_handed {
    const char *rel, *path;
    int attempt;
    const char *sha256;
    bool grows, taken;
};

/* epoch.<N> in the directory of a stage: a claim, or the commit of the start before it, which is a
 * done record under this name. Of a commit only attempt, epoch and spec_id are read. */
struct lf_claim {
    int lf_done; /* 1: it is a commit */
    const char *kind;
    int attempt, epoch;
    const char *spec_id; /* of a commit */
    lf_proc_id process;  /* of the wrapper */
    const char *token;
    double t;
    const char *jobid;      /* inside a job */
    int restarts;           /* of that job, LF_NO_RESTARTS: outside of one */
    struct lf_handed *from; /* NULL: by a version that made no lists */
    size_t n_from;
    const char *staging;
};
#define LF_NO_RESTARTS (-1000000)

/* *out NULL: there is none. */
int lf_claim_load(struct lf_claim **out, const char *stage_dir, int epoch, lf_err *err);
/* As epoch.<c->epoch>; LF_EEXIST when that number is taken. */
int lf_claim_publish(const char *stage_dir, const struct lf_claim *c, lf_err *err);
void lf_claim_free(struct lf_claim *c);
void lf_handed_clear(struct lf_handed *row);           /* one that owns its texts */
void lf_handed_free(struct lf_handed *rows, size_t n); /* rows that own their texts */

/* An input as it was found: of a stage of some run, or from outside (name, path and sha256 alone).
 */
struct lf_used {
    const char *name, *path;
    const char *run, *stage;
    int attempt, epoch;
    const char *spec_id, *output, *sha256;
    int64_t ended_at_step; /* of the result that it is part of; 0: that trained to its end */
};
void lf_used_free(struct lf_used *rows, size_t n);

/* stage.json */
struct lf_started {
    lf_proc_id process; /* of the stage */
    double t;
    lf_texts resume; /* directories that it may go on from */
    struct lf_used *inputs;
    size_t n_inputs;
};
int lf_started_load(struct lf_started **out, const char *start_dir, lf_err *err);
int lf_started_publish(const char *start_dir, const struct lf_started *s, lf_err *err);
void lf_started_free(struct lf_started *s);

/* What a job had, and what was planned for it; 0: nothing is known, or no limit. */
struct lf_had {
    int64_t memory_bytes, time_limit_s, planned_memory_bytes, planned_time_limit_s;
};
struct lf_pace {
    double spacing_s, save_s;
};
/* The job goes back into the queue, and how. */
struct lf_end_next {
    const char *act;
    lf_texts exclude;                   /* hosts */
    int64_t memory_bytes, time_limit_s; /* 0: as before */
};

/* How a result ended before its length, as its checkpoint says (engine/train/early.h). */
struct lf_cut_short {
    int64_t ended_at_step; /* optimizer steps */
    int64_t at, of;        /* the same and the length by the settings, in units */
    const char *unit;      /* "steps" or "rounds" */
    const char *by;        /* "request" or "hours" */
};
/* "ended at 812 of 2,000"; rounds are named, and so are hours. Returns buf. */
const char *lf_cut_short_text(char *buf, size_t cap, const struct lf_cut_short *c);

/* How patience ended a result before its length, as its checkpoint says (engine/train/best.h). Its
 * settings say so, and the data: it is the result of its spec id like any other. */
struct lf_impatient {
    int64_t at, of;           /* in units */
    int64_t stale, best_step; /* measurements without a better one since that step */
    const char *unit, *metric, *measurements; /* "steps", "valid_loss", "validations" */
};

/* end.json: how a start ended. */
struct lf_end {
    const char *state, *cls, *reason; /* "done", "stopped", "failed" or "cancelled"; "class" */
    double t_start, t_end;
    int exit_code, signal;
    lf_texts log;         /* the lines that matter */
    int64_t n_warnings;   /* that its processes wrote down, see engine/base/warned.h */
    lf_texts warnings;    /* the first different ones of them; not given: there were none */
    int64_t step;         /* the last that is saved, -1: not said */
    int gained;           /* did it save a step that none before it had; -1: not said */
    struct lf_pace *pace; /* as measured, NULL: nothing was */
    struct lf_had *asked;
    const char *jobid, *node, *blame; /* blame: a host that is to be left out */
    struct lf_end_next *next;         /* NULL: the job does not go back */
    struct lf_cut_short *ended;       /* NULL: it is no result that ended early */
    bool repaired;                    /* written by somebody else, after its wrapper had died */
};
int lf_end_load(struct lf_end **out, const char *start_dir, lf_err *err);
int lf_end_publish(const char *start_dir, const struct lf_end *e, lf_err *err);
void lf_end_free(struct lf_end *e);

/* An output of a result, relative to the directory of its start. */
struct lf_output {
    const char *name;
    const char *path, *kind, *manifest_sha256;
    int64_t bytes, files;
    struct json_t *meta; /* of its manifest; `tensors` is their number, older ones list them */
};
/* meta, of a manifest, becomes the output's. Only the number of its tensors is kept: hashes and
 * places of each stand in the manifest, which manifest_sha256 names, and would make a record of a
 * large checkpoint longer than one may be. */
int lf_output_take_meta(struct lf_output *o, struct json_t *meta, lf_err *err);

/* done.json: the commit marker. */
struct lf_done {
    const char *run, *stage;
    int attempt, epoch;
    const char *token, *kind, *spec_id;
    int64_t spec_version;
    double t_start, t_end;
    struct lf_output *outputs; /* by name */
    size_t n_outputs;
    struct lf_used *inputs;
    size_t n_inputs;
    lf_texts resume;
    const char *exe_sha256;
    struct lf_cut_short *ended; /* NULL: it trained to its end, or it is no training */
};
/* The optimizer step at which a result ended early, 0: it did not, or d is NULL. */
static inline int64_t lf_done_ended_at(const struct lf_done *d)
{
    return d != NULL && d->ended != NULL ? d->ended->ended_at_step : 0;
}
/* What the manifest of an output says of that; *out is NULL where it says nothing. Owned. */
int lf_output_ended(struct lf_cut_short **out, const struct lf_output *o, lf_err *err);
void lf_cut_short_free(struct lf_cut_short *c);
/* In words how a result ended before its length, by request, its hours or its patience, as an
 * output or all of its outputs say. Returns buf; NULL: it did not, or d is NULL. */
const char *lf_output_short_text(char *buf, size_t cap, const struct lf_output *o);
const char *lf_done_short_text(char *buf, size_t cap, const struct lf_done *d);
int lf_done_load(struct lf_done **out, const char *start_dir, lf_err *err);
/* The commit of start d->epoch, under the next number of the log; LF_EEXIST when that is taken. */
int lf_done_publish(const char *stage_dir, const struct lf_done *d, lf_err *err);
void lf_done_free(struct lf_done *d);
/* NULL: there is none of this name, or d is NULL. */
const struct lf_output *lf_done_output(const struct lf_done *d, const char *name);
void lf_outputs_free(struct lf_output *rows, size_t n); /* rows that own what they point to */

/* damaged.json: a reader found that an output is not what its manifest says, so that the result
 * counts as purged. */
struct lf_damaged {
    const char *output, *reason;
    double t;
    const char *run, *stage; /* of the reader */
};
int lf_damaged_load(struct lf_damaged **out, const char *start_dir, lf_err *err);
int lf_damaged_publish(const char *start_dir, const struct lf_damaged *d, lf_err *err);
void lf_damaged_free(struct lf_damaged *d);

#endif
