/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan document: what a pipeline file means, and, frozen as rev.<K>/plan.json, everything that
 * the jobs of a run read. One struct for each object in it; a member of JSON and the field that
 * holds it have the same name (doc_json.c).
 *
 * Texts and lists belong to the document. `more` holds what this version has no field for; it is
 * written again.
 */
#ifndef LF_FLOW_DOC_H
#define LF_FLOW_DOC_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/err.h"
#include "flow/record/names.h"
#include "flow/record/values.h"

/* An output of a stage, as ${stage:NAME.output} names it. */
typedef struct lf_doc_ref {
    char *stage, *output;
    struct json_t *more;
} lf_doc_ref;

/* A value of an option that is an input. */
typedef struct lf_doc_input {
    char *option;
    lf_int index; /* of this value among those of its option */
    char *text;   /* with its references as they were written */
    LF_ROWS(lf_doc_ref) refs;
    lf_flag identity; /* false: it is not part of the spec */
    lf_flag word;     /* a word that the option allows in the place of a path */
    struct json_t *more;
} lf_doc_input;

/* What a start hands over to the next one (flow/run/handover.h). */
typedef struct lf_doc_carry {
    char *pattern;
    lf_flag grows;
} lf_doc_carry;
typedef LF_ROWS(lf_doc_carry) lf_doc_carries;

/* What a stage, or an attempt of it, asks of a scheduler: the keys of [resources]. Times are in
 * seconds, sizes in bytes. memory_bytes, time_limit_s and grace_s are those of an attempt; a stage
 * has them beside its resources. */
typedef struct lf_resources {
    bool given;
    lf_int nodes, ranks, cpus;
    lf_int memory_bytes, time_limit_s, grace_s;
    struct lf_gpus {
        bool given;
        lf_int n;
        char *type;
        struct json_t *more;
    } gpus; /* of a node */
    lf_int gpu_memory;
    char *partition, *account, *qos, *constraint, *reservation, *mail, *launcher, *chain;
    lf_flag exclusive;
    lf_texts mail_type, modules, prologue, extra, rank_prefix;
    lf_texts exclude; /* hosts; of an attempt */
    lf_int links, max_segments, max_walltime, stall_segments, retries, memory_max, time_max;
    struct json_t *more;
} lf_resources;

/* What a stage's output is a function of (flow/plan/spec.h). */
typedef struct lf_spec {
    bool given;
    char *kind;
    lf_int spec_version;
    lf_pairs options;
    lf_lists inputs; /* option: [producer or hash of each value] */
    lf_pairs model;  /* not given: it has none */
    struct json_t *more;
} lf_spec;

typedef struct lf_doc_exe {
    bool given;
    char *path; /* its name */
    char *sha256;
    struct json_t *more;
} lf_doc_exe;

/* The start, of another run, whose result a stage takes over. */
typedef struct lf_adopted {
    bool given;
    char *run, *stage;
    lf_int attempt, epoch;
    char *spec_id;
    struct json_t *more;
} lf_adopted;

/* A rank of the pipeline axis. */
struct lf_cost_rank {
    lf_texts layers;      /* of each chunk: "0-3", "4", "none" */
    lf_real total;        /* bytes, a GPU's too */
    lf_int micro_batches; /* the most whose activations its first chunk keeps at once */
    /* where layers were measured: passes of a micro-batch, and the optimizer of a step */
    lf_real forward_s, backward_input_s, backward_weight_s, update_s;
    struct json_t *more;
};

/* What an executable says that a stage would cost (lf-KIND --plan). */
typedef struct lf_cost {
    bool given;
    lf_real parameters, steps, tokens, flops_per_step, disk_bytes;
    lf_real measured_flops; /* FLOP/s to expect, where it was asked to measure */
    lf_int ranks;
    struct lf_cost_bytes {
        bool given;
        /* of a rank */
        lf_real params, grads, optimizer, activations, workspace, inputs, state, cache, offloaded;
        lf_real host, total, device;
        lf_real communicators; /* of the GPU's, an estimate of what NCCL takes */
        lf_int rank;           /* which, where they differ: the one that needs most */
        struct json_t *more;
    } bytes;
    struct lf_cost_comm {
        bool given;
        lf_real bytes_per_step;
        lf_int messages_per_step; /* collectives */
        /* along the other axes, where there are ranks */
        lf_real tensor_bytes_per_step, context_bytes_per_step, pipeline_bytes_per_step,
            expert_bytes_per_step;
        lf_int tensor_messages_per_step, context_messages_per_step, pipeline_messages_per_step,
            expert_messages_per_step;
        lf_real bytes_per_round; /* of ppo, with zero: weights, beside its updates */
        /* of ppo, with rollout_layout: weights that come to a rank before a round, at most */
        lf_real rollout_bytes_most;
        struct json_t *more;
    } comm;
    struct lf_cost_axes {
        bool given;
        lf_int pipeline, data, context, tensor; /* ranks of each axis */
        lf_int expert;                          /* those of data that divide experts */
        lf_flag sequence;                       /* those of tensor divide rows, too */
        struct json_t *more;
    } axes;
    struct lf_cost_pipeline {
        bool given;
        LF_ROWS(struct lf_cost_rank) ranks;
        char *schedule, *drawing; /* drawing: a line for each rank */
        lf_real idle_share;       /* of all ranks' time in a step */
        lf_real step_s;           /* by the times of layers that were measured */
        lf_int message_bytes;
        lf_int tied_bytes; /* of a tied embedding's gradients, which its two ranks add up */
        struct json_t *more;
    } pipeline;
    lf_texts notes;
    struct json_t *more;
} lf_cost;

typedef struct lf_doc_stage {
    char *name, *kind;
    lf_int spec_version;
    char *path; /* where it is written: file, line, column */
    lf_int line, column;
    lf_lists options;                        /* as given, references to stages kept */
    lf_pairs types;                          /* option: "path", of those whose values are paths */
    lf_pairs identity, numeric, operational; /* canonical, where they differ from the default */
    lf_pairs renamed; /* option: the name that the spec hashes, of given ones that had another */
    LF_ROWS(lf_doc_input) inputs;
    lf_texts after;   /* as given */
    lf_texts deps;    /* the stages it waits for: those of its inputs and after */
    lf_texts outputs; /* the first is the one that must be there */
    lf_flag any_output;
    lf_doc_carries carry; /* not given: nothing is handed over */
    lf_pairs model;
    lf_int time_limit_s, memory_bytes, grace_s;
    char *rerun_on;
    lf_resources resources;
    lf_spec spec;    /* as frozen: of a pipeline whose stages all train to their end */
    char *frozen_id; /* the id of that; "spec_id" on disk */
    /* Of the stage as it is: where a result that it reads ended early, these differ from what is
     * frozen (flow/plan/settle.h). Not written. */
    char *spec_id;
    lf_spec settled;       /* not given: spec holds */
    int64_t ended_at_step; /* of its own result; 0: it trained to its end, or there is none */
    char *elsewhere; /* a result of another run that ended early, for people; NULL: none is known */
    lf_doc_exe exe;
    lf_adopted adopted;
    lf_flag isolated; /* no result of another run is taken over for this stage */
    lf_cost plan;
    lf_real estimate_s;
    struct json_t *more;
} lf_doc_stage;

/* What holds for a place (flow/sched/sched.h says what for). */
typedef struct lf_site {
    bool given;
    lf_int poll_s, timeout_s, grace_lost_s, settle_s, submit_wait_s;
    lf_pairs commands; /* name: path */
    char *chain, *launcher, *templates;
    lf_texts exclude, trust;
    struct json_t *more;
} lf_site;

/* One setting of a sweep: what each of its keys is, and which stages it is made of. */
typedef struct lf_sweep_child {
    lf_int number;     /* from 1, in the order of the values */
    lf_pairs settings; /* "train.lr": value, as --set would take them */
    lf_pairs stages;   /* name in the pipeline: name in this document */
    struct json_t *more;
} lf_sweep_child;

/* [sweep] (flow/plan/sweep.h). */
typedef struct lf_sweep {
    bool given;
    lf_lists axes;  /* key: its values */
    lf_texts seeds; /* keys of axes that are repetitions */
    lf_int max_parallel;
    char *metric_stage, *metric; /* what is compared, a metric of a stage of the pipeline */
    char *goal;                  /* "min" or "max" */
    lf_real max_core_hours;
    lf_texts rungs; /* steps of metric_stage, rising; none: every child runs to its end */
    lf_real keep;   /* the share that goes on behind a rung */
    LF_ROWS(lf_sweep_child) children;
    struct json_t *more;
} lf_sweep;

typedef struct lf_doc {
    /* Of a frozen document only. */
    lf_int lf_plan;                                              /* the version of the file, 1 */
    char *run, *short_name, *project_id, *user, *host, *version; /* short_name: naming.h */
    lf_int rev;
    lf_real created;
    /* Of every document. */
    char *name, *description, *data_dir, *scheduler, *share;
    char *pipeline; /* the name of its file */
    lf_int jobs;
    char *on_end, *on_fail; /* commands for the end of a run (flow/sched/ended.h) */
    lf_int on_time_limit_s;
    char *report;     /* the page that run and resume write at their end, relative to the project */
    lf_flag isolated; /* results of other runs are not taken over */
    lf_site site;
    lf_doc_exe loong_flow;
    lf_sweep sweep;
    LF_ROWS(lf_doc_stage) stages; /* in an order in which they can run */
    struct json_t *more;
    lf_names names; /* the places of stages by name, made by lf_doc_index */
    int holders;
} lf_doc;

/* An empty document with one holder, NULL with err. */
lf_doc *lf_doc_new(lf_err *err);
/* One more holder; returns d. */
lf_doc *lf_doc_hold(lf_doc *d);
/* One holder less; the last one frees it. NULL is legal. */
void lf_doc_free(lf_doc *d);
lf_doc *lf_doc_copy(const lf_doc *d, lf_err *err);

/* plan.json. LF_EFORMAT names the file, the member and what is wrong with it. */
int lf_doc_load(lf_doc **out, const char *path, lf_err *err);
/* Publish it as dir/plan.json. */
int lf_doc_write(const lf_doc *d, const char *dir, lf_err *err);

/* Names of stages to their places; again after stages have moved. */
int lf_doc_index(lf_doc *d, lf_err *err);
/* The stage of a name, NULL: there is none (nor where name or d is NULL). */
lf_doc_stage *lf_doc_find(const lf_doc *d, const char *name);

/* What stages of a sweep have in common when they are one: all but name and place. Owned,
 * NULL with err. */
char *lf_doc_stage_text(const lf_doc_stage *st, lf_err *err);

/* Would both be frozen as the same revision? Where a document was written, when, and what its
 * stages would cost makes no difference. */
bool lf_doc_same(const lf_doc *a, const lf_doc *b);

int lf_resources_copy(lf_resources *out, const lf_resources *from, lf_err *err);
void lf_resources_fini(lf_resources *r);
bool lf_resources_same(const lf_resources *a, const lf_resources *b);
int lf_spec_copy(lf_spec *out, const lf_spec *from, lf_err *err);
void lf_spec_fini(lf_spec *s);
/* The answer of an executable; what names it. */
int lf_cost_parse(lf_cost *out, const char *text, size_t len, const char *what, lf_err *err);
int lf_cost_copy(lf_cost *out, const lf_cost *from, lf_err *err);
void lf_cost_fini(lf_cost *c);
int lf_adopted_copy(lf_adopted *out, const lf_adopted *from, lf_err *err);
void lf_adopted_fini(lf_adopted *a);
/* The spec that spec_id is the id of. */
static inline const lf_spec *lf_doc_spec(const lf_doc_stage *s)
{
    return s->settled.given ? &s->settled : &s->spec;
}
/* The canonical text of a spec, whose hash is the spec id; owned. */
char *lf_spec_text(const lf_spec *s, lf_err *err);

/* The event of a run that was frozen. */
typedef struct lf_run_event {
    const char *name, *project, *config_sha256, *config_text, *user, *host, *version;
} lf_run_event;
int lf_run_event_write(const char *run_dir, const char *run, const lf_run_event *e, lf_err *err);
/* The event of one of its stages. dir: of the stage; seq: its place in the document. */
int lf_stage_event_write(const char *dir, const char *run, int seq, const lf_doc_stage *st,
                         lf_err *err);

/* The commands of a site as text, the same for the same ones; owned, NULL when there is no
 * memory. */
char *lf_site_commands_text(const lf_site *s);

void lf_site_fini(lf_site *s);
void lf_sweep_fini(lf_sweep *s);
void lf_sweep_child_fini(lf_sweep_child *c);
#endif
