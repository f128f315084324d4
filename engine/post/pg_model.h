/* SPDX-License-Identifier: Apache-2.0
 *
 * A model as reinforcement learning uses it, on one set of weights in one plan: segments that
 * generate (one per bucket of rows, over a paged cache) and one over packed documents that gives
 * log-probabilities or scores and, where it is trained, takes their gradients. Generation and
 * training are never live together and share bytes.
 *
 * Numerics are invariant. The packed segment gives a token the log-probability that the generator
 * gave it when it drew the token, bit for bit, whatever else is in the batch of either, as long as
 * weights and temperature are the same.
 */
#ifndef LF_POST_PG_MODEL_H
#define LF_POST_PG_MODEL_H

#include <jansson.h>

#include "engine/comm/comm.h"
#include "engine/graph/exec.h"
#include "engine/infer/gen.h"
#include "engine/model/adapter.h"
#include "engine/model/decoder.h"
#include "engine/store/ckpt.h"

struct lf_pg_model_spec {
    const char *name; /* "actor", "critic", "ref", "reward": in messages */
    int64_t context;  /* longest sequence */
    int64_t rows;     /* tokens of a packed micro-batch, >= context */
    bool train, logp, entropy, score;
    double temperature; /* of logp and entropy, and of generation */
    enum lf_dtype compute;
    enum lf_recompute recompute;
    int threads;
    enum lf_device device;      /* planned for */
    struct lf_profile *profile; /* engine/graph/profile.h, outlives the model; NULL: none */
    int ranks;                  /* train: gradients are summed over so many; 0: 1 */
    struct lf_adamw_opts adam;  /* train */
    uint64_t seed;              /* of the optimizer's rounding */
    /* train this beside the weights, which stay; NULL: train those */
    const struct lf_adapter_config *adapter;
    const char *const *freeze; /* patterns over names of tensors that are not trained */
    size_t n_freeze;
    bool lm;        /* train: losses on plain text too, lf_pg_forward_lm */
    bool reference; /* with an adapter: the model without it can be run, lf_pg_forward_base */
    /* generation; slots 0: none. kv_tokens 0: slots * context */
    int64_t slots, step_rows, kv_tokens, page_tokens;
};

typedef struct lf_pg_model lf_pg_model;

/* Plan it: no device, no weights. LF_ENOTSUP: a model with prefix attention. */
int lf_pg_model_create(lf_pg_model **out, const lf_model_config *mc,
                       const struct lf_pg_model_spec *s, lf_err *err);
void lf_pg_model_destroy(lf_pg_model *m);
/* Take memory on b, which outlives m. */
int lf_pg_model_bind(lf_pg_model *m, lf_back *b, lf_err *err);

lf_pstore *lf_pg_model_store(const lf_pg_model *m);
lf_plan *lf_pg_model_get_plan(const lf_pg_model *m);
lf_exec *lf_pg_model_exec(const lf_pg_model *m);
/* Weights (and, with moments, the optimizer's) under `prefix` of a checkpoint. Where the file has
 * no score.weight the head is zero. */
int lf_pg_model_load(lf_pg_model *m, const lf_ckpt *c, const char *prefix, bool moments,
                     lf_err *err);
/* Give every tensor the initial value that follows from seed. An adapter keeps it; the weights
 * below are loaded afterwards. */
int lf_pg_model_init(lf_pg_model *m, uint64_t seed, lf_err *err);
/* Once the weights below it are in place: what a new adapter takes from them (the lengths of
 * DoRA). */
int lf_pg_model_adapter_start(lf_pg_model *m, lf_err *err);

/* The model as lf_gen_run takes it. A step of it uses the weights of that moment. Valid until
 * destroy. */
int lf_pg_model_gen(lf_pg_model *m, lf_gen_model *out, lf_err *err);

/* ---- packed documents ---- */

/* One sequence to run: rows of its tokens; tokens from `trained` on are targets of the row before
 * them. */
struct lf_pg_doc {
    const int32_t *tokens;
    size_t n, trained;
    size_t row;   /* out: where its first token lies in the micro-batch */
    size_t reach; /* tokens that it could have grown to when it was generated, as longrope turned it
                     then; 0: n */
};
/* Micro-batches of docs by tokens: docs [start[b], start[b + 1]) in the order `order` are
 * micro-batch b. Longest first, each into the first that has room: a function of the lengths alone.
 * Returns how many; order and start (n + 1) are the caller's. */
int64_t lf_pg_pack(const lf_pg_model *m, const struct lf_pg_doc *docs, size_t n, uint32_t *order,
                   uint32_t *start, lf_err *err);
/* Put docs[order[0 .. n)] into the packed segment's inputs and run it forward. */
int lf_pg_forward(lf_pg_model *m, struct lf_pg_doc *docs, const uint32_t *order, size_t n,
                  enum lf_variant v, lf_err *err);
/* Like lf_pg_forward, but without the adapter: log-probabilities of the weights below it. There
 * is no backward pass. Only for a model made with `reference`. */
int lf_pg_forward_base(lf_pg_model *m, struct lf_pg_doc *docs, const uint32_t *order, size_t n,
                       lf_err *err);
/* Like lf_pg_forward, but at temperature 1, for plain text: lp is the only output, and the only one
 * that takes gradients. Only for a model made with `lm`. */
int lf_pg_forward_lm(lf_pg_model *m, struct lf_pg_doc *docs, const uint32_t *order, size_t n,
                     lf_err *err);
int lf_pg_backward_lm(lf_pg_model *m, enum lf_variant v, lf_err *err);
/* After any of them: f32 [rows], borrowed until the next run; NULL without that output. */
const float *lf_pg_lp(const lf_pg_model *m);
const float *lf_pg_entropy(const lf_pg_model *m);
const float *lf_pg_score(const lf_pg_model *m);
/* What the loss is multiplied by before the backward passes of a step (engine/train/scaler.h); 1 at
 * first. These multiply the gradients below by it, in place, and lf_pg_step divides by it. */
void lf_pg_model_scale(lf_pg_model *m, double scale);
/* Gradients, all of them [rows] and zero at first; NULL where the output is not there. */
float *lf_pg_dlp(lf_pg_model *m);
float *lf_pg_dentropy(lf_pg_model *m);
float *lf_pg_dscore(lf_pg_model *m);
void lf_pg_zero_gradients(lf_pg_model *m);
int lf_pg_backward(lf_pg_model *m, enum lf_variant v, lf_err *err);

struct lf_pg_step_result {
    double grad_norm;
    bool skip; /* not finite: nothing was changed */
};
/* One optimizer step; n: how many it is, from 1. */
int lf_pg_step(lf_pg_model *m, const struct lf_adamw_opts *adam, int64_t n, double lr, double clip,
               struct lf_pg_step_result *out, lf_err *err);

#endif
