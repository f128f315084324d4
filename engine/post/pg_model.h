/* SPDX-License-Identifier: Apache-2.0
 *
 * A model for reinforcement learning: one set of weights in one plan. Some chains generate, one per
 * bucket of rows, over a paged cache. One chain over packed documents gives log-probabilities or
 * scores and, in training, takes their gradients. Generation and training are never live together
 * and share bytes.
 *
 * Numerics are invariant, but with `fast`. The packed chain gives a token the log-probability that
 * the generator gave it when it drew the token, bit for bit and whatever the batches hold, as long
 * as weights and temperature are the same. A model that only generates has no packed chain; its
 * weights come from another one (reshard.h).
 */
#ifndef LF_POST_PG_MODEL_H
#define LF_POST_PG_MODEL_H

#include <jansson.h>

#include "engine/comm/comm.h"
#include "engine/graph/exec.h"
#include "engine/graph/layout.h"
#include "engine/infer/gen.h"
#include "engine/model/adapter.h"
#include "engine/model/decoder.h"
#include "engine/store/ckpt.h"
#include "engine/train/own_rows.h"
#include "engine/train/seen.h"

struct lf_pg_model_spec {
    const char *name; /* "actor", "critic", "ref", "reward": in messages */
    int64_t context;  /* longest sequence */
    /* tokens of a packed micro-batch, >= context, and a multiple of the ranks that divide them; 0:
     * the model only generates */
    int64_t rows;
    bool fast; /* fast kernels, with which a number may depend on its batch */
    bool train, logp, entropy, score;
    double temperature; /* of logp and entropy, and of generation */
    enum lf_dtype compute;
    enum lf_recompute recompute;
    int threads;
    enum lf_device device;      /* device that the plan is for */
    struct lf_profile *profile; /* engine/graph/profile.h, outlives the model; NULL: none */
    /* how ranks share it; zeroed: one rank. Without train only zero = 3 divides anything. */
    struct lf_plan_ranks ranks;
    struct lf_layout layout;   /* and its matrices, or rows; zeroed: it is whole */
    struct lf_adamw_opts adam; /* train */
    uint64_t seed;             /* for the rounding of the optimizer */
    /* train this adapter beside the frozen weights; NULL: train the weights */
    const struct lf_adapter_config *adapter;
    const char *const *freeze; /* patterns over names of tensors that are not trained */
    size_t n_freeze;
    const struct lf_lr_scale *lr_scale;
    size_t n_lr_scale;
    bool lm;        /* train: losses on documents too, lf_pg_forward_lm */
    bool reference; /* with an adapter: lf_pg_forward_base can run the model without it */
    /* generation; slots 0: none. kv_tokens 0: slots * context */
    int64_t slots, step_rows, kv_tokens, page_tokens;
    /* of a model that sees: most patches and tiles of a micro-batch (tiles 0: as lf_sight_bounds
     * says), and what the pictures of one prompt are at most; patches 0: there are no pictures */
    int64_t patches, tiles;
    struct lf_pictures_size prompt;
};

typedef struct lf_pg_model lf_pg_model;

/* Plans the model, without a device or weights. */
int lf_pg_model_create(lf_pg_model **out, const lf_model_config *mc,
                       const struct lf_pg_model_spec *s, lf_err *err);
void lf_pg_model_destroy(lf_pg_model *m);
/* Takes memory on b, which outlives m. */
int lf_pg_model_bind(lf_pg_model *m, lf_back *b, lf_err *err);

/* The ranks that divide the rows of a micro-batch with this one; borrowed. Every one has the same
 * documents, all outputs and all gradients, and each writes its rows of these. Needed where the
 * layout has them. */
void lf_pg_model_share(lf_pg_model *m, lf_comm *context);
/* Where the pictures of documents come from; borrowed. Only for a model made with `patches`. */
void lf_pg_model_see(lf_pg_model *m, const lf_pictures *from);
/* Memory of the host beside the plan, for pictures of a micro-batch. */
size_t lf_pg_model_host_bytes(const lf_pg_model *m);

lf_pstore *lf_pg_model_store(const lf_pg_model *m);
/* A store in which the model's tensors are declared with the boxes of another rank; owned. */
lf_pstore *lf_pg_model_boxes(const lf_pg_model *m, const struct lf_layout *l, lf_err *err);
lf_plan *lf_pg_model_get_plan(const lf_pg_model *m);
lf_exec *lf_pg_model_exec(const lf_pg_model *m);
/* Reads weights, and with `moments` the moments, under `prefix` of a checkpoint. Without
 * score.weight in the file the head is zero. */
int lf_pg_model_load(lf_pg_model *m, const lf_ckpt *c, const char *prefix, bool moments,
                     lf_err *err);
/* Gives every tensor its initial value from seed. An adapter keeps it; the weights of the base are
 * read afterwards. */
int lf_pg_model_init(lf_pg_model *m, uint64_t seed, lf_err *err);
/* Sets what a new adapter takes from the weights of its base (the lengths of DoRA), once these are
 * in place. Collective with zero = 3. */
int lf_pg_model_adapter_start(lf_pg_model *m, lf_err *err);

/* Fills out for lf_gen_run. A step uses the current weights. Valid until destroy. */
int lf_pg_model_gen(lf_pg_model *m, lf_gen_model *out, lf_err *err);
/* Before generation, after which it may go on until the model runs otherwise: with zero = 3 every
 * rank gets all weights (lf_exec_hold). Collective then. */
int lf_pg_model_hold(lf_pg_model *m, lf_err *err);

/* ---- packed documents ---- */

/* One sequence to run. Tokens from `trained` on are the targets of the row before them. */
struct lf_pg_doc {
    const int32_t *tokens;
    size_t n, trained;
    size_t row; /* out: row of its first token in the micro-batch */
    /* most tokens that it could have had when it was generated, by which longrope turned it; 0:
     * n */
    size_t reach;
    /* with `sees` the pictures of document `doc` are its, of which these are so many */
    bool sees;
    uint64_t doc;
    int64_t patches, tiles;
};
/* Divides docs into micro-batches by tokens, patches and tiles: entries [start[b], start[b + 1]) of
 * `order` are micro-batch b. The longest document goes first, each into the first micro-batch with
 * room, so the result depends on these alone. Returns the number of micro-batches. The caller owns
 * order[n] and start[n + 1]. */
int64_t lf_pg_pack(const lf_pg_model *m, const struct lf_pg_doc *docs, size_t n, uint32_t *order,
                   uint32_t *start, lf_err *err);
/* Writes docs[order[0 .. n)] to the inputs of the packed chain and runs it forward. */
int lf_pg_forward(lf_pg_model *m, struct lf_pg_doc *docs, const uint32_t *order, size_t n,
                  enum lf_variant v, lf_err *err);
/* Like lf_pg_forward without the adapter: log-probabilities of the base. There is no backward pass.
 * Only for a model made with `reference`. */
int lf_pg_forward_base(lf_pg_model *m, struct lf_pg_doc *docs, const uint32_t *order, size_t n,
                       lf_err *err);
/* Like lf_pg_forward at temperature 1, for texts and conversations. lp is the only output and takes
 * gradients. Only for a model made with `lm`. */
int lf_pg_forward_lm(lf_pg_model *m, struct lf_pg_doc *docs, const uint32_t *order, size_t n,
                     lf_err *err);
int lf_pg_backward_lm(lf_pg_model *m, enum lf_variant v, lf_err *err);
/* Passes of ranks in step. With zero = 2 and 3 every rank has the same passes, one for each
 * micro-batch of the rank with the most. A rank begins each micro-batch with lf_pg_micro_begin,
 * runs what it has of it, and ends it with lf_pg_micro_end, whether it had one, had none, or failed
 * in it: that runs what is missing as a rank whose gradients are zero. */
enum lf_pg_chain { LF_PG_PACKED, LF_PG_BASE, LF_PG_LM };
/* What a micro-batch of training moves among the ranks that divide matrices. */
struct lf_plan_moved lf_pg_micro_tensor(const lf_pg_model *m);
/* And among those that divide rows. */
struct lf_plan_moved lf_pg_micro_context(const lf_pg_model *m);
/* The least bytes that a rank sends in a forward pass. */
double lf_pg_forward_bytes(const lf_pg_model *m, enum lf_pg_chain chain);
void lf_pg_micro_begin(lf_pg_model *m);
/* train: there is a backward pass. Returns rc, how this rank fared in the micro-batch, or the
 * failure of these passes. */
int lf_pg_micro_end(lf_pg_model *m, enum lf_pg_chain chain, bool train, enum lf_variant v, int rc,
                    lf_err *err);
/* The outputs after any of these: f32 [rows], borrowed until the next run; NULL without that
 * output. */
const float *lf_pg_lp(const lf_pg_model *m);
const float *lf_pg_entropy(const lf_pg_model *m);
const float *lf_pg_score(const lf_pg_model *m);
/* Sets the scale of the loss for the backward passes of a step (engine/train/scaler.h); 1 at first.
 * The backward functions multiply the gradients below by it, in place, and lf_pg_step divides by
 * it. */
void lf_pg_model_scale(lf_pg_model *m, double scale);
/* The gradients, each [rows] and zero at first; NULL without that output. */
float *lf_pg_dlp(lf_pg_model *m);
float *lf_pg_dentropy(lf_pg_model *m);
float *lf_pg_dscore(lf_pg_model *m);
void lf_pg_zero_gradients(lf_pg_model *m);
int lf_pg_backward(lf_pg_model *m, enum lf_variant v, lf_err *err);

struct lf_pg_step_result {
    double grad_norm;
    bool skip; /* not finite: nothing was changed */
};
/* Makes one optimizer step; n is its number, from 1. */
int lf_pg_step(lf_pg_model *m, const struct lf_adamw_opts *adam, int64_t n, double lr, double clip,
               struct lf_pg_step_result *out, lf_err *err);

#endif
