/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the training loop, for the files of engine/train. */
#ifndef LF_TRAIN_LOOP_PRIV_H
#define LF_TRAIN_LOOP_PRIV_H

#include "engine/back/nvml.h"
#include "engine/base/frame.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/comm/comm.h"
#include "engine/graph/exec.h"
#include "engine/model/decoder.h"
#include "engine/model/flops.h"
#include "engine/model/sight.h"
#include "engine/store/ckpt.h"
#include "engine/store/features.h"
#include "engine/train/best.h"
#include "engine/train/cost.h"
#include "engine/train/cut.h"
#include "engine/train/devcomm.h"
#include "engine/train/loop.h"
#include "engine/train/origin.h"
#include "engine/train/own_rows.h"
#include "engine/train/run.h"

/* The parts of a run beside the data; fixed once built. */
struct lf_train_model {
    lf_decoder *dec;
    lf_pstore *ps;
    lf_pstore *whole; /* all tensors of the model, without memory; NULL: ps has them */
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    struct lf_train_cut cut;
    int train, valid;              /* chains, of this rank's last chunk; valid < 0: none */
    int64_t rows, n_docs;          /* of a micro-batch */
    int64_t own_rows;              /* how many of them this rank has */
    struct lf_decoder_media media; /* bounds of pictures, with max_patches */
    struct lf_train_origin origin; /* of frozen weights */
};

/* Are pictures trained on, and no tokens? */
static inline bool lf_train_pictures(const struct lf_train_config *c)
{
    return c->objective && c->objective->pictures;
}
/* Are words of the data read? */
static inline bool lf_train_words(const struct lf_train_config *c)
{
    return !lf_train_pictures(c) || c->objective->captions;
}

/* The store that has the tensors of all layers. */
static inline const lf_pstore *lf_train_all(const struct lf_train_model *m)
{
    return m->whole ? m->whole : m->ps;
}

/* Do messages of a pipeline go through memory of the host where the plan's is a GPU's? */
static inline bool lf_train_cut_on_host(const struct lf_train_model *m)
{
    return lf_plan_target(m->plan)->sm && lf_devcomm_through_host();
}

/* The state that changes from step to step and goes into a checkpoint. */
struct lf_train_state {
    int64_t step;        /* optimizer steps done */
    int64_t samples;     /* sequences trained */
    int64_t tokens;      /* targets trained */
    int64_t cursor;      /* next sample of the loader */
    double loss_sum;     /* sum of all losses, each weighing 0.98 of the next: lf_train_loss_mean */
    double first_loss;   /* of step 1 */
    double valid_loss;   /* the last one, NaN before */
    double best_valid;   /* NaN before */
    struct lf_best best; /* validation by best_metric */
    struct lf_scaler scaler;
    double active_s; /* seconds trained, over all starts */
};

struct lf_train_step {
    int64_t batch; /* number in the data order */
    int64_t samples, trained;
    double loss, z, grad_norm, lr, loss_scale;
    double valid_loss;             /* NaN: not measured at this step */
    double entropy, valid_entropy; /* mean over trained tokens, nats; NaN unless asked for */
    /* share of trained tokens that are the most likely one; NaN with an objective */
    double accuracy, valid_accuracy;
    double set_loss[LF_TRAIN_MAX_SETS], set_accuracy[LF_TRAIN_MAX_SETS]; /* of valid_names */
    /* means, with experts: see lf_train_router_step */
    double router_aux, router_entropy, router_load, router_dropped;
    /* of the heads of mtp_layers; the first is that of nsp_head instead; NaN: none was trained */
    double more_loss[LF_MORE_HEADS], more_accuracy[LF_MORE_HEADS];
    double valid_nsp_loss, valid_nsp_accuracy; /* NaN: not measured, or no nsp_head */
    double means[LF_OBJECTIVE_METRICS], valid_means[LF_OBJECTIVE_METRICS]; /* of an objective */
    double seconds, data_seconds, valid_seconds;
    /* seconds for other ranks, no more than `seconds`: of the passes as lf_train_sums has them, of
     * what comes behind those of this rank alone */
    double waited;
    bool visited; /* by the guest, whose numbers are in guest */
    double guest[LF_TRAIN_GUEST_METRICS];
    bool skip; /* the optimizer refused non-finite numbers */
};

/* A queued step, when the loop runs ahead. */
struct lf_train_flight {
    bool up;
    lf_loader_step ls;
    struct lf_train_step st;
    struct lf_train_state before;
    double limit; /* the device refuses a loss sum above this; 0: no limit */
    double since; /* when it was begun */
};

struct lf_trainer {
    const struct lf_train_config *c;
    struct lf_train_config own;  /* *c, where the cut of the model was measured: costs are added */
    struct lf_train_costs costs; /* zeroed where it was not */
    lf_run run;
    struct lf_axes_comms comms;
    struct lf_train_who who;
    struct lf_train_pipe *pipe; /* NULL: the model is not cut */
    struct lf_devcomm dev;      /* memory of the backend between ranks */
    double longest_s;           /* step so far */
    /* when the part of a step began that runs, and lf_comm_waited_s then */
    double part_since, part_waited;
    bool late;          /* the ranks agreed after the last step that it is time to save */
    lf_model_config mc; /* resolved */
    struct lf_adapter_config adapter; /* of the run, which points to it; unused without one */
    struct lf_train_model m;
    lf_loader *data, *vdata;
    lf_features *features; /* NULL: the encoder runs, or there are no pictures */
    lf_schedule lr;
    int64_t total_steps, total_samples; /* as the run stands */
    lf_early early;                     /* of them: why they may be less than by the settings */
    int64_t here0;                      /* step where this start began */
    int64_t told_step;                  /* the newest one that was told in this start; 0: none */
    struct lf_own_rows mine;            /* of the newest micro-batch */
    int64_t *samples_buf;               /* rows: global sample of each row, with dropout */
    int32_t *offsets_buf;
    /* the same of the rows of an encoder-decoder's sources */
    int64_t *source_samples_buf;
    int32_t *source_offsets_buf;
    json_t *hf_config;   /* a string: see keep_config in resume.c; NULL: there is none; owned */
    lf_sight *sight;     /* of the newest micro-batch, with max_patches; else NULL */
    float *noise_buf;    /* rows, hidden: with neftune_alpha */
    int32_t *prefix_buf; /* n_docs, then rows twice: with mask = prefix */
    int32_t *types_buf;  /* rows: with a separator of the objective, of a model with types */
    int32_t *texts_cu, *texts_place; /* with documents of several texts; else NULL */
    int32_t *mtp_buf;                /* rows: with heads of mtp_layers that are trained */
    int32_t *nsp_buf;                /* rows: with a trained nsp_head */
    struct lf_train_state s;
    bool ahead; /* results are read one step later: see step.c */
    /* next: its gradients are queued; flight: its optimizer too */
    struct lf_train_flight next, flight;
    double told_s; /* time of the last result */
    char tokenizer[LF_HASH_HEX];

    double planned; /* bytes: lf_train_planned */
    /* what the plan says that was moved so far, once a step and in passes: ranks.c */
    struct lf_plan_moved all, within, across, tensor, context, counts, same;
    struct lf_comm_counts
        before[LF_DEVCOMM_COUNTED];  /* what had been counted when training began */
    struct lf_guest_host host;       /* for the guest, where there is one */
    lf_nvml *nvml;                   /* NULL: no numbers of the GPU; rank 0 */
    double flops_causal, flops_full; /* of a token */
    double peak;                     /* FLOP/s of all ranks at most; 0: unknown, or not asked for */
    bool rss_told;
    double t_log;        /* when the last line was logged */
    int64_t samples_log; /* samples then */
    double session0;     /* when this start began to train */
    double held_s;       /* since then, for which saving held training up */
    int64_t saves;       /* between steps */
    double active0;      /* active_s then */

    /* [n_valid_dirs] loaders of single sources; NULL without valid_names */
    lf_loader **vsets;
    const char **vnames;     /* [n_valid_dirs] */
    const char **valid_dirs; /* sources that have a valid split, in the order of vdata */
    size_t n_valid_dirs;
    char init_id[LF_HASH_HEX];
};

/* loop.c. Checks c and sets everything up, as far as it does not depend on where the run begins:
 * data, model, plan, memory, connections of ranks. lf_train_close follows in any case; its rc is
 * how the run fared. Both are collective. */
int lf_train_open(lf_trainer *t, const struct lf_train_config *c, const struct lf_train_sink *sink,
                  lf_comm *comm, lf_err *err);
void lf_train_close(lf_trainer *t, int rc);

struct lf_train_sums;
/* step.c. Running mean of the loss over about 50 steps; NaN before the first. */
double lf_train_loss_mean(const lf_trainer *t);
void lf_train_begin_sums(struct lf_train_sums *s);
/* What nsp_head adds to the loss: the mean over pairs; 0 where it is not trained. */
double lf_train_nsp_loss(const lf_trainer *t, const struct lf_train_sums *s);
/* The sums of further heads, of the record of this rank. */
void lf_train_take_more(struct lf_train_sums *sums, const struct lf_step_record *rec);
/* The loss of a step from the sums of its micro-batches, and the means of an objective. */
double lf_train_loss_of(const lf_trainer *t, const struct lf_train_sums *s, double tokens,
                        double *means);
/* Makes a whole step and moves the state on. Collective. */
int lf_train_step_now(lf_trainer *t, struct lf_train_step *st, lf_err *err);
/* loop.c. Measures the validation data with the present weights. Collective. */
int lf_train_validate(lf_trainer *t, struct lf_train_step *st, lf_err *err);
/* A step in three parts, of which only the last waits for the device. begin queues the gradients of
 * step s.step + 1. launch queues its optimizer; after that a flight is up, and the state is that
 * after the step except for loss_sum. land waits for the result of the flight. It sets *again when
 * the step has overflowed; state and loader then stand before that step. Between land and launch no
 * other step is up. launch is collective, and so is a land that sets *again. */
int lf_train_ahead_begin(lf_trainer *t, lf_err *err);
int lf_train_ahead_launch(lf_trainer *t, lf_err *err);
int lf_train_ahead_land(lf_trainer *t, struct lf_train_step *st, bool *again, lf_err *err);

/* chosen.c. With pipeline_cost = measured: sets where the model is cut (t->c->costs). Collective,
 * after the model is known and before it is planned. */
int lf_train_choose_cut(lf_trainer *t, lf_err *err);

/* declare.c */
/* Declares the tensors of this rank's layers, of an adapter and of the objective, and freezes those
 * that are not trained. In a pipeline it marks the chunks that gradients do not reach. */
int lf_train_declare(struct lf_train_model *m, const struct lf_train_config *c,
                     const struct lf_train_who *who, lf_err *err);
/* What the run's adapter of such a model is: a new one covers heads of mtp_layers that are trained.
 * c->adapter is not NULL. */
struct lf_adapter_config lf_train_adapter(const struct lf_train_config *c,
                                          const lf_model_config *mc);

/* setup.c */
/* Returns the place of best_metric among the means of the objective; -1: it is none of these. */
int lf_train_best_index(const struct lf_train_config *c);
int lf_train_model_plan(struct lf_train_model *m, const struct lf_train_config *c,
                        const lf_model_config *mc, bool valid, const struct lf_train_who *who,
                        lf_err *err);
/* LF_ENOTSUP, LF_EINVAL: ranks that divide rows, with something that does not go with them, such as
 * an objective, which looks at whole texts; before the model is known. */
int lf_train_context_check(const struct lf_train_config *c, const struct lf_train_who *who,
                           lf_err *err);
/* LF_ENOTSUP: ranks that divide experts, with something that does not go with them; before the
 * model is known. */
int lf_train_experts_check(const struct lf_train_config *c, const struct lf_train_who *who,
                           lf_err *err);
int lf_train_model_bind(struct lf_train_model *m, const struct lf_train_config *c,
                        const lf_comm *comm, lf_err *err);
void lf_train_model_fini(struct lf_train_model *m);
/* Returns the most documents of a micro-batch, padding included: lf_loader_segs for all its
 * rows. */
int64_t lf_train_max_docs(const struct lf_train_config *c);
/* Computes steps, samples and schedule from the samples of an epoch. 0: they are unknown, and then
 * epochs is an error. */
int lf_train_length(int64_t *steps, int64_t *samples, lf_schedule *lr,
                    const struct lf_train_config *c, int64_t epoch_samples, lf_err *err);

/* data.c */
int lf_train_open_data(lf_trainer *t, lf_err *err);
/* Refuses keep_best and patience where no data has a valid split. Data that is not there yet leaves
 * the matter open. LF_EINVAL. */
int lf_train_check_valid(const struct lf_train_config *c, lf_err *err);
/* Does a new model have far more rows than the data has tokens (engine/base/vocab.h)? buf then has
 * the warning. rows: the vocabulary of the model. */
bool lf_train_word_unused(char *buf, size_t cap, const struct lf_train_config *c, int64_t rows,
                          int64_t tokens);
/* Returns the settings that all loaders of a run share; sources (except their number), split and
 * ranks are not set. */
lf_loader_config lf_train_loader_config(const struct lf_train_config *c, const lf_model_config *mc);
/* The same for a loader that reads a split once, in order. */
lf_loader_config lf_train_valid_config(const struct lf_train_config *c, const lf_model_config *mc,
                                       size_t n_sources);
/* Opens the training data for `rank` of the `ranks` that share a batch. */
int lf_train_open_loader(lf_loader **out, const lf_trainer *t, int rank, int ranks, lf_err *err);
/* Returns the host memory of the loaders, from the manifests of the data as far as they exist. */
size_t lf_train_data_bytes(const struct lf_train_config *c, const lf_model_config *mc);

struct lf_train_sums;
/* over.c. The ranks of one data coordinate wait for each other within passes, so none runs one that
 * another does not. */
/* The chain of a chunk of the model and its slot, whose inputs are written from a micro-batch. */
struct lf_train_inputs {
    int chain, slot;
    const struct lf_decoder_chunk *part;
    lf_sight *sight; /* filled from the micro-batch; NULL: there are no pictures */
    bool train;      /* a chain of training, or with its dropout */
};
/* see.c. Bounds of pictures from the configuration. */
int lf_train_bound_pictures(struct lf_train_model *m, const struct lf_train_config *c,
                            const lf_model_config *mc, lf_err *err);
/* LF_EINVAL: init_from, a model of this description, is an encoder that predicts no tokens. */
int lf_train_check_base(const lf_trainer *t, const lf_model_config *of, lf_err *err);
/* Elements of a row of features. */
int64_t lf_train_feature_width(const lf_model_config *mc);
/* Opens the features, and checks that they are those of the run's encoder and precision. */
int lf_train_open_features(lf_trainer *t, lf_err *err);
/* Host memory of the sights of a run: one for each micro-batch under way. */
size_t lf_train_sight_bytes(const struct lf_train_config *c, const struct lf_train_model *m);
/* Fills s from a micro-batch of l. */
int lf_train_see(lf_sight *s, const lf_loader *l, const lf_loader_batch *b, lf_err *err);
/* Inputs that come of pictures, and tokens. */
int lf_train_write_sight(const lf_trainer *t, const struct lf_train_inputs *in, lf_err *err);
int lf_train_find_texts(lf_trainer *t, const lf_loader_batch *b, lf_err *err);
/* Sets t->mine, of a model that is bound; lf_own_rows_open gives it memory where ranks divide rows.
 */
void lf_train_own(lf_trainer *t);
int lf_train_write_inputs(lf_trainer *t, const struct lf_train_inputs *in, const lf_loader_batch *b,
                          lf_err *err);
/* What is behind the first token of this number in a text is of type 1; -1: nothing is. */
int64_t lf_train_separator(const lf_trainer *t);
/* Collective among them: when one has failed, all return a failure. */
int lf_train_together(const lf_trainer *t, int rc, lf_err *err);
/* lf_loader_begin_step on all of them. */
int lf_train_next_step(const lf_trainer *t, lf_loader *l, lf_loader_step *ls, lf_err *err);
/* The next micro-batch of l, as the inputs of the chains of training or validation, on all of
 * them. *data_s (NULL: not asked for) grows by the time that reading took. */
int lf_train_next_batch(lf_trainer *t, lf_loader *l, bool train, const lf_loader_batch **b,
                        double *data_s, lf_err *err);
/* Micro-batches that go forwards alone, for a loss that is measured and not trained. */
struct lf_train_forwards {
    lf_loader *data;
    bool train;       /* through the chains of training, else those of validation */
    bool valid_split; /* as a view says it */
    /* After each of them, in their order, where the losses are; NULL: nobody asks. */
    int (*each)(void *user, const struct lf_train_view *v, lf_err *err);
    void *user;
    lf_loader_step ls; /* the step that was begun last */
    int64_t steps;     /* begun */
    int32_t taken;     /* micro-batches of ls that were read */
    int64_t ran;       /* passes of this rank; INT64_MAX once one has failed: none is made up for */
};
/* Collective among the ranks that wait for each other in forwards: when one is not ready (rc), none
 * begins, and all return a failure. */
int lf_train_ready(const lf_trainer *t, int rc, lf_err *err);
/* The next n steps of the data, or what is left of it, on all of them. In a pipeline as many
 * micro-batches as a step of training has are under way at once (pipe.h). */
int lf_train_forwards(lf_trainer *t, struct lf_train_forwards *f, int64_t n, lf_err *err);
/* An `each` that asks the objective, whose sums grow. */
struct lf_train_asked {
    const lf_objective *o;
    struct lf_train_sums *sums;
    bool survey; /* for what it must know before its losses */
};
/* packs.c: memory of the host for outputs of all rows, once the objective's graphs are made. */
size_t lf_train_pack_bytes(const struct lf_train_config *c, const struct lf_train_model *m,
                           const struct lf_train_who *who);
int lf_train_ask(void *asked, const struct lf_train_view *v, lf_err *err);
struct lf_train_view lf_train_view_of(lf_trainer *t, int chain, const lf_loader_batch *b,
                                      bool valid_split, double inv_units);

/* setup.c */
/* Returns the memory of a process, of so many: the plan of m, and beside it what is saved in the
 * background, what is offloaded, the loaders as far as their data exists, and what the target
 * reserves. --plan, the log and the metric planned_memory say its total. */
struct lf_plan_memory lf_train_planned(const struct lf_train_config *c,
                                       const struct lf_train_model *m,
                                       const struct lf_train_who *who);

/* What of a GPU's memory NCCL is expected to take; 0 on a CPU. */
double lf_train_gpu_comm_bytes(const struct lf_train_config *c, const struct lf_train_model *m,
                               const struct lf_train_who *who);

/* save.c: checkpoints. Collective where ranks keep parts of the state, and every rank writes its
 * own; else rank 0 alone does anything. */
bool lf_train_sharded(const lf_trainer *t);
/* Does this rank write, and so need a state? */
bool lf_train_saves(const lf_trainer *t);
/* Are tensors copied before they are saved? */
bool lf_train_snapshots(const struct lf_train_config *c, const struct lf_train_model *m);
/* Describes what a checkpoint is of, and what of it is this rank's to write, in a. Before memory is
 * bound, too. */
int lf_train_tensors(struct lf_run_tensors *out, const struct lf_train_config *c,
                     const struct lf_train_model *m, const struct lf_train_who *who, lf_arena *a,
                     lf_err *err);
int lf_train_writer_open(lf_trainer *t, lf_err *err);
/* rc, here and below: how this rank fared so far. Nothing is saved where rank 0 gives dir NULL. */
int lf_train_save_begin(lf_trainer *t, int rc, const char *dir, lf_err *err);
/* Returns when it is published. extra (may be NULL) are more members of the state. */
int lf_train_save_at(lf_trainer *t, int rc, const char *dir, json_t *extra, lf_err *err);
/* Publishes out/checkpoint; with an adapter out/adapter before it. */
int lf_train_save_final(lf_trainer *t, lf_err *err);
json_t *lf_train_state_json(const lf_trainer *t, lf_err *err);

/* shorten.c: the loop ends early (early.h). All are functions of agreed values. */
/* Sets early from the settings, after the length is known. */
void lf_train_early_begin(lf_trainer *t);
/* Brings length and schedule in line with early. */
void lf_train_early_apply(lf_trainer *t);
/* What the clock of this rank says. */
enum lf_run_end lf_train_early_clock(const lf_trainer *t);
/* Does what is asked for, between steps. */
void lf_train_early_meet(lf_trainer *t, enum lf_run_end ask);

/* resume.c: finds the beginning of the run. *done: the final checkpoint exists already. */
int lf_train_start(lf_trainer *t, bool *done, lf_err *err);
json_t *lf_train_fingerprint(const lf_trainer *t, lf_err *err);

/* report.c */
/* Computes means over micro-batches and MoE layers: the load-balancing loss, the entropy of the
 * routers' scores in nats, the rows of the busiest expert / the mean, and the share of rows that
 * experts drop (capacity_factor). */
void lf_train_router_step(const lf_trainer *t, struct lf_train_step *st,
                          const struct lf_train_sums *sums);
int lf_train_report(lf_trainer *t, const struct lf_train_step *st, lf_err *err);
int lf_train_report_end(lf_trainer *t, const struct lf_train_step *st, lf_err *err);
void lf_train_report_begin(lf_trainer *t);
/* After the last step: how long saving held training up. */
void lf_train_report_held(const lf_trainer *t);
/* At the end: what the ranks took at most, beside what is planned. Collective. */
int lf_train_report_peak(lf_trainer *t, lf_err *err);
void lf_train_report_first(lf_trainer *t, const struct lf_train_step *st);
/* The loss of a uniform guess, of tokens and of what else the loss has. */
double lf_train_uniform(const lf_trainer *t);

/* ranks.c. Every rank calls a collective function at the same point. */
/* Sums over the micro-batches of a step or of a validation, over all ranks after
 * lf_train_exchange. */
struct lf_train_sums {
    double loss, z, entropy;
    double router_aux, router_entropy, router_load, router_dropped; /* of the step record */
    int64_t router_seen;
    int64_t tokens, correct;
    /* Seconds of this rank's passes, and of these those in which it waited for other ranks. After
     * lf_train_exchange the latter are the share of all ranks' seconds in which they waited, of
     * this rank's seconds: ranks begin a step at different times. */
    double passed, waited;
    /* sums over the targets of a further head, and how many: those of mtp_layers, or nsp_head */
    double more_loss[LF_MORE_HEADS];
    double more_tokens[LF_MORE_HEADS], more_correct[LF_MORE_HEADS];
    bool late; /* it is time to save, by the clock of rank 0 */
    double obj[LF_OBJECTIVE_SUMS], top[LF_OBJECTIVE_SUMS]; /* of an objective */
};
/* Collective: adds up the sums of all ranks. rc is the result of this rank's part. When one rank
 * has failed, all return a failure. */
int lf_train_exchange(const lf_trainer *t, int rc, struct lf_train_sums *s, lf_err *err);
/* Ranks with one data coordinate have the same losses: of these all but one count as nothing in a
 * sum over all ranks. */
void lf_train_count_once(const lf_trainer *t, double *v, size_t n);
/* The same of what is of whole micro-batches, which ranks that divide rows have all. */
void lf_train_count_packs(const lf_trainer *t, double *v, size_t n);
/* Tells the watchdog that a step runs. */
void lf_train_phase_step(const lf_trainer *t);
/* Queues the sums of the record over all ranks, on the device. */
int lf_train_sum_record(const lf_trainer *t, lf_err *err);
/* A pass of this rank has failed. Where ranks divide experts the others may wait for its rows, or
 * for how many it has, and where they divide layers for its messages, and would not hear of it: the
 * job ends with what err says. */
void lf_train_pass_failed(const lf_trainer *t, const lf_err *err);
/* Collective: makes the executor sum gradients over ranks, and decides whether the loop runs
 * ahead. */
int lf_train_connect(lf_trainer *t, lf_err *err);
void lf_train_disconnect(lf_trainer *t, bool failed);
/* With zero = 2 and 3 every rank goes through as many passes as the one with the most
 * micro-batches: that many for n_samples samples. */
int64_t lf_train_rounds(const lf_trainer *t, int64_t n_samples);
/* The passes that other ranks have and this one, which has run *ran of `rounds` or stands at rc,
 * has not; *ran counts them. Returns rc, or the failure of these. */
int lf_train_stand_by(lf_trainer *t, int chain, int64_t *ran, int64_t rounds, int rc, lf_err *err);
/* Adds to what is expected to have moved: passes of a chain, and the optimizer's part of a step. */
void lf_train_expect_passes(lf_trainer *t, int chain, int64_t passes, bool backward);
/* A pass that this rank has run, for what it moves on the tensor and on the context axis. */
void lf_train_expect_run(lf_trainer *t, int chain, bool backward);
void lf_train_expect_update(lf_trainer *t);
void lf_train_expect_hold(lf_trainer *t); /* lf_exec_hold */
/* What moves from here on is compared. */
void lf_train_count_anew(lf_trainer *t);
/* What moved since `then` (lf_devcomm_counted) is not: no plan says how often a guest runs. */
void lf_train_count_apart(lf_trainer *t, const struct lf_comm_counts then[LF_DEVCOMM_COUNTED]);
/* At the end: what this rank's communicators counted, and whether that is what the plan says, on
 * every rank. Collective. */
int lf_train_report_moved(lf_trainer *t, lf_err *err);
/* Collective: copies weights and moments of rank 0 to all ranks. */
int lf_train_share_weights(lf_trainer *t, bool moments, lf_err *err);
/* Collective. LF_EINVAL: a rank has other settings, data or kernels than rank 0. */
int lf_train_same(const lf_trainer *t, lf_err *err);
/* Collective. LF_ECOMM: the ranks do not hold the same weights. */
int lf_train_replicas(const lf_trainer *t, lf_err *err);

/* diverge.c: keeps the weights and the batch, then fails with LF_ENUMERIC. Collective. */
int lf_train_diverged(lf_trainer *t, const struct lf_train_step *st, const char *why, lf_err *err);

#endif
