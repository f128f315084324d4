/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop that training stages run: optimizer steps over micro-batches, step record, metrics,
 * validation, checkpoints, stops, exact resume. The stage fills lf_train_config; the loop owns
 * everything else.
 *
 * One step: begin it in the loader (its global count of trained tokens is known now), write the
 * step record, run forward and backward of each micro-batch, look at the loss, run the optimizer,
 * read the record. Nothing is allocated in it. On a GPU the host looks at the loss and reads the
 * record while the next step runs (README.md).
 *
 * What a run leaves below out:
 *   checkpoints/step-NNNNNNNN/   intermediate checkpoints, the newest `keep` and those of every
 *                                `keep_every` steps
 *   checkpoint/                  the final one; its manifest is the end of the run
 *   adapter/                     with an adapter: it alone, and checkpoint/ is the model it makes
 *                                of its base. The intermediate ones hold the adapter, and know
 *                                their base by its identity
 *   best/                        with keep_best: the weights of the best validation, published
 *                                before the final one; until then best-step-NNNNNNNN/
 *   diverged/                    when the loss spiked or was not finite: the weights before the
 *                                offending step, and in state.json the batch (its samples,
 *                                documents and tokens)
 *
 * Data-parallel: the global batch is cut into micro-batches that are dealt to the ranks in turn
 * (loader.h), gradients are summed over ranks in rank order, losses too. Any number of ranks
 * therefore computes the loss of one rank up to the rounding of f32 sums, and continues the
 * checkpoint of any other number.
 *
 * Invariants
 *   1. A checkpoint taken after step s holds everything that step s + 1 depends on: weights,
 *      moments, cursor, seed, running mean.
 *   2. Steps, samples, tokens, loss, valid_loss, grad_norm and lr of the metrics are pure functions
 *      of configuration and data. A resumed run writes the same bytes of them. Times and rates are
 *      not.
 *   3. The metrics file holds no record beyond the step it is resumed from when the first new one
 *      is written.
 */
#ifndef LF_TRAIN_LOOP_H
#define LF_TRAIN_LOOP_H

#include <jansson.h>

#include "engine/comm/comm.h"
#include "engine/graph/plan.h"
#include "engine/model/adapter.h"
#include "engine/model/config.h"
#include "engine/train/guest.h"
#include "engine/train/loader.h"
#include "engine/train/objective.h"
#include "engine/train/run.h"
#include "engine/train/scaler.h"
#include "engine/train/schedule.h"

#define LF_TRAIN_MAX_SETS 16

/* Read the data again at the start and compare its hashes. Lengths are compared in any case. */
enum lf_train_verify {
    LF_VERIFY_AUTO,
    LF_VERIFY_YES,
    LF_VERIFY_NO
}; /* AUTO: what has at most 4 GiB */

struct lf_train_config {
    const lf_objective *objective;      /* NULL: the next token of packed documents */
    const struct lf_train_guest *guest; /* NULL: none */
    lf_model_config model;              /* vocab 0: the data's */
    bool model_given;                   /* false: the description comes with init_from */

    const lf_loader_source *sources; /* weights all 0: in proportion to their tokens */
    size_t n_sources;
    const char *const *valid; /* artifacts whose valid split is measured */
    size_t n_valid;
    /* [n_valid]: measure each apart, under these names; NULL: all together */
    const char *const *valid_names;
    bool keep_best;        /* keep the weights of the best validation as out/best */
    bool best_by_accuracy; /* else by the loss */
    int64_t patience;      /* end after so many validations without a better one; 0: never */
    bool valid_required;   /* false: a source without a valid split is no error */
    enum lf_train_verify verify;
    /* samples in Megatron's order, with these settings; their samples 0: of the run */
    bool megatron_order;
    lf_loader_megatron megatron;
    int32_t seq_length, micro_batch, max_docs;
    enum lf_pack_policy packing;
    const lf_ramp_row *ramp; /* samples of a step; multiples of micro_batch */
    size_t n_ramp;
    const int64_t *skip; /* batch numbers passed over */
    size_t n_skip;
    uint64_t seed;

    int64_t steps, tokens; /* length: one of these is > 0 */
    double epochs;
    enum lf_schedule_kind schedule;
    enum lf_schedule_tail tail;
    double lr, min_lr;
    int64_t warmup_steps, decay_steps;
    struct lf_adamw_opts adam;
    double clip, z_loss;
    struct lf_scaler_opts scaler;
    /* without an objective: the metrics have the mean entropy of what the model predicts */
    bool entropy;
    /* > 0: noise on the embeddings in training (neftune.h); without an objective */
    double neftune_alpha;

    enum lf_dtype compute;
    enum lf_fp8 fp8; /* with compute = LF_BF16 */
    struct lf_fp8_layers fp8_layers;
    enum lf_numeric numeric;
    enum lf_recompute recompute;
    int threads;
    enum lf_device device;
    int plan_ranks; /* lf_train_plan: ranks to plan for; a run asks its comm */

    int64_t valid_interval, valid_tokens, save_interval, keep_every, log_interval;
    double save_time_s; /* 0: never */
    bool save_async;
    int keep;
    double spike_factor; /* 0: never */
    int64_t spike_after;

    const char *init_from; /* NULL: random */
    /* train this beside the weights of init_from, which stay; NULL: train those */
    const struct lf_adapter_config *adapter;
    /* checkpoint of an adapter to begin with, of those settings; NULL: an untrained one */
    const char *adapter_from;
    const char *const *freeze; /* patterns over names of tensors that are not trained */
    size_t n_freeze;
    const char *out;
    const char *metrics; /* NULL: none */
    /* engine/graph/profile.h: collects where the time goes; NULL: nobody does */
    struct lf_profile *profile;
    /* out directories of earlier starts, oldest first; out itself comes last */
    const char *const *resume_from;
    size_t n_resume_from;
};

/* Refuse what contradicts itself, without looking at data. Worded with the stage's option names. */
int lf_train_check(const struct lf_train_config *c, lf_err *err);

/* What the run would take: adds ranks, parameters, bytes (of one rank), comm (what a rank sends in
 * a step), flops_per_step (of all ranks), steps, tokens, disk_bytes and notes to plan. Reads at
 * most the manifests of the data. */
int lf_train_plan(const struct lf_train_config *c, json_t *plan, lf_err *err);

/* Run to the end. comm: data-parallel over its ranks, each of which calls this with the same c
 * (NULL: alone); rank 0 alone reads and writes checkpoints and metrics. LF_EINTR: stopped at a good
 * checkpoint. LF_ENUMERIC: diverged, see out/diverged. */
int lf_train_run(const struct lf_train_config *c, const struct lf_train_sink *sink, lf_comm *comm,
                 lf_err *err);

#endif
