/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop of the training stages: optimizer steps over micro-batches, step record, metrics,
 * validation, checkpoints, stops, exact resume. The stage fills lf_train_config; the loop does
 * everything else.
 *
 * A step goes as follows. The loader begins it, so its count of trained tokens over all ranks is
 * known. The step record is written. Forward and backward of each micro-batch run. The loss is
 * checked, the optimizer runs, and the record is read. A step allocates nothing. On a GPU the host
 * checks the loss and reads the record while the next step runs (README.md).
 *
 * A run leaves these directories below out:
 *   checkpoints/step-NNNNNNNN/   intermediate checkpoints: the newest `keep`, and one for every
 *                                `keep_every` steps
 *   checkpoint/                  the final checkpoint; its manifest is the end of the run
 *   adapter/                     the adapter alone, where there is one. checkpoint/ is then the
 *                                merged model. Intermediate checkpoints hold the adapter and the
 *                                identity of its base
 *   best/                        with keep_best: the weights of the best validation, published
 *                                before the final one; until then best-step-NNNNNNNN/
 *   diverged/                    when the loss spiked or was not finite: the weights before the
 *                                offending step, and in state.json the batch (its samples,
 *                                documents and tokens)
 *
 * Data-parallel: the batch is divided into micro-batches, which go to the ranks in turn (loader.h).
 * Gradients and losses are summed over ranks in rank order. So any number of ranks computes the
 * loss of one rank up to the rounding of f32 sums, and continues the checkpoint of any other
 * number.
 *
 * Invariants
 *   1. A checkpoint taken after step s holds everything that step s + 1 depends on: weights,
 *      moments, cursor, seed, running mean.
 *   2. Steps, samples, tokens, loss, valid_loss, grad_norm and lr of the metrics are pure functions
 *      of configuration and data, so a resumed run writes the same bytes for them. Times and rates
 *      are not.
 *   3. When a resumed run writes its first record, the metrics file holds no record beyond the step
 *      from which it was resumed.
 */
#ifndef LF_TRAIN_LOOP_H
#define LF_TRAIN_LOOP_H

#include <jansson.h>

#include "engine/comm/comm.h"
#include "engine/graph/plan.h"
#include "engine/model/adapter.h"
#include "engine/model/config.h"
#include "engine/train/axes.h"
#include "engine/train/guest.h"
#include "engine/train/loader.h"
#include "engine/train/objective.h"
#include "engine/train/run.h"
#include "engine/train/scaler.h"
#include "engine/train/schedule.h"
#include "engine/train/zero.h"

#define LF_TRAIN_MAX_SETS 16

/* A metric of validation; those behind the loss are higher where the model is better. In the order
 * of the choices of the options. */
enum lf_train_best_metric {
    LF_BEST_LOSS,
    LF_BEST_ACCURACY,
    LF_BEST_MARGIN,
    LF_BEST_F1,
    LF_BEST_MATTHEWS,
    LF_BEST_PEARSON,
    LF_BEST_EXACT
};

/* Whether the data is read at the start and its hashes are compared. Lengths are always
 * compared. */
enum lf_train_verify {
    LF_VERIFY_AUTO,
    LF_VERIFY_YES,
    LF_VERIFY_NO
}; /* AUTO: data of at most 4 GiB */

struct lf_train_config {
    const lf_objective *objective;      /* NULL: the next token of packed documents */
    const struct lf_train_guest *guest; /* NULL: none */
    lf_model_config model;              /* vocab 0: the data's */
    bool model_given;                   /* false: init_from has the description */

    const lf_loader_source *sources; /* all weights 0: in proportion to their tokens */
    size_t n_sources;
    const char *const *valid; /* artifacts whose valid split is measured */
    size_t n_valid;
    /* [n_valid] measures each separately, under these names; NULL: all together */
    const char *const *valid_names;
    bool keep_best; /* keep the weights of the best validation as out/best */
    /* what best means, of all validation data together; the lower loss, else the higher value */
    enum lf_train_best_metric best_metric;
    int64_t patience;    /* end after this many validations without a better one; 0: never */
    bool valid_required; /* false: a source without a valid split is no error */
    enum lf_train_verify verify;
    /* samples in Megatron's order with these settings; megatron.samples 0: those of the run */
    bool megatron_order;
    lf_loader_megatron megatron;
    int32_t seq_length, micro_batch, max_docs;
    /* pictures of a micro-batch: most patches, 0: there are none; most tiles, 0: a sixteenth of
     * them */
    int64_t max_patches, max_tiles;
    /* [n_features] `features` artifacts, read in place of running the encoder, which is frozen and
     * has no memory (engine/store/features.h) */
    const char *const *features;
    size_t n_features;
    enum lf_pack_policy packing;
    const lf_ramp_row *ramp; /* samples of a step; multiples of micro_batch */
    size_t n_ramp;
    const int64_t *skip; /* batch numbers that are skipped */
    size_t n_skip;
    uint64_t seed;

    int64_t steps, tokens; /* length: one of these is > 0 */
    double hours;          /* bound on the time trained over all starts (early.h); 0: none */
    double epochs;
    enum lf_schedule_kind schedule;
    enum lf_schedule_tail tail;
    double lr, min_lr;
    int64_t warmup_steps, decay_steps;
    struct lf_adamw_opts adam;
    struct lf_average average; /* of the weights; adam.average follows from it */
    double clip, z_loss;
    /* without an objective: weight of the losses of the model's heads of mtp_layers; 0: they are
     * frozen */
    double mtp_weight;
    /* without an objective: tokens are hidden and said, of a model with mask = both; borrowed;
     * NULL: the next tokens are */
    const lf_mlm *mlm;
    const lf_nsp
        *nsp; /* with mlm: texts are pairs, of a model with nsp_head; borrowed; NULL: not */
    /* of an encoder-decoder, without an objective: what its samples are; with source_length 0 there
     * is none */
    lf_seq2seq seq2seq;
    bool mtp_asked; /* it was given, so a model without such heads is refused */
    struct lf_scaler_opts scaler;
    /* without an objective: the metrics have the mean entropy of the predictions */
    bool entropy;
    /* > 0: noise on the embeddings in training (neftune.h); without an objective */
    double neftune_alpha;

    enum lf_dtype compute;
    enum lf_fp8 fp8; /* with compute = LF_BF16 */
    struct lf_fp8_layers fp8_layers;
    enum lf_numeric numeric;
    enum lf_recompute recompute;
    struct lf_axes axes;
    /* with axes.measured: what to cut by (cost.h), which lf_train_run and lf_train_plan set; NULL:
     * not measured, cut by FLOPs */
    const struct lf_train_costs *costs;
    struct lf_zero zero; /* among the ranks of the data axis */
    size_t bucket_bytes; /* of gradients that are summed at once; 0: 25 MiB */
    int threads;
    enum lf_device device;
    int plan_ranks; /* lf_train_plan: ranks to plan for; lf_train_run takes those of its comm */
    /* lf_train_plan: measure this machine (measure.h) for "measured_flops", of all ranks together;
     * of a CPU only */
    bool measure;

    double gpu_interval_s; /* between two samples of the GPU's use; 0: none */
    bool mfu;              /* find the peak at the start and tell the share of it */
    int64_t valid_interval, valid_tokens, save_interval, keep_every, log_interval;
    double save_time_s; /* 0: never */
    bool save_async;
    int keep;
    double spike_factor; /* 0: never */
    int64_t spike_after;

    const char *init_from; /* NULL: random */
    /* checkpoint whose encoder of pictures is taken; NULL: that of init_from, or a random one */
    const char *vision_from;
    const char *generator_from; /* of an objective with a generator (electra.h); NULL: none */
    /* train this adapter beside the frozen weights of init_from; NULL: train the weights */
    const struct lf_adapter_config *adapter;
    /* checkpoint of an adapter with these settings to begin with; NULL: a new adapter */
    const char *adapter_from;
    /* learning rates fall by this factor for each layer above a tensor; 0: they do not */
    double layer_decay;
    /* learning rates of tensors whose names match, as multiples of lr; the last match counts */
    const struct lf_lr_scale *lr_scale;
    size_t n_lr_scale;
    const char *const *freeze; /* patterns over names of tensors that are not trained */
    size_t n_freeze;
    const char *out;
    const char *metrics;          /* NULL: none */
    struct lf_copies_opts copies; /* of the metrics */
    /* collects times (engine/graph/profile.h); NULL: none */
    struct lf_profile *profile;
    /* checking modes, for tests: lf_exec_opts, lf_plan_opts */
    bool poison, no_reuse;
    /* out directories of earlier starts, oldest first; out itself comes last */
    const char *const *resume_from;
    size_t n_resume_from;
};

/* Are the heads of mtp_layers trained, where the model has some? */
static inline bool lf_train_mtp(const struct lf_train_config *c)
{
    return !c->objective && c->mtp_weight > 0;
}

/* Refuses contradictions, without looking at data. Messages use the names of the options of the
 * stage. */
int lf_train_check(const struct lf_train_config *c, lf_err *err);

/* Adds what the run would take to plan: ranks, parameters, bytes (of one rank), comm (what a rank
 * sends in a step), flops_per_step (of all ranks), steps, tokens, disk_bytes and notes. It reads at
 * most the manifests of the data. */
int lf_train_plan(const struct lf_train_config *c, json_t *plan, lf_err *err);

/* Runs to the end. With comm the run is that of its ranks, each of which calls this with the same
 * c, and which share batch and matrices by c->axes; NULL: one rank. Rank 0 alone writes metrics,
 * and checkpoints where every rank has all of the state. LF_EINTR:
 * stopped at a good checkpoint. LF_ENUMERIC: the run diverged; see out/diverged. */
int lf_train_run(const struct lf_train_config *c, const struct lf_train_sink *sink, lf_comm *comm,
                 lf_err *err);

#endif
