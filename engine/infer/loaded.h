/* SPDX-License-Identifier: Apache-2.0
 *
 * A decoder from its checkpoint, planned, bound and filled with weights, for all code that only
 * runs a model forward. Its users add the chains of the plan: runner.h for generation and scoring,
 * engine/post/rm_score.h for a reward model.
 */
#ifndef LF_INFER_LOADED_H
#define LF_INFER_LOADED_H

#include <jansson.h>

#include "engine/back/back.h"
#include "engine/base/hash.h"
#include "engine/graph/exec.h"
#include "engine/graph/layout.h"
#include "engine/model/adapter.h"
#include "engine/model/decoder.h"

typedef struct lf_loaded lf_loaded;

/* Ranks that divide the matrices of one model among themselves (graph/layout.h). Each loads its
 * part. All of them make the same passes, and each has all of what a pass gives. */
struct lf_loaded_ranks {
    struct lf_layout layout;
    /* Connects them before the first pass; collective, so a rank that has failed (rc) calls it too,
     * and all of them fail. Not called for a plan alone. */
    int (*connect)(void *user, int rc, lf_back *back, lf_exec *ex, lf_err *err);
    void *user;
};

struct lf_loaded_opts {
    /* checkpoint of an adapter that stays beside the weights (engine/model/adapter.h); NULL:
     * none */
    const char *adapter;
    bool averages; /* its averages are the weights (ckpt.h, lf_ckpt_averages) */
    int threads;
    enum lf_device device;
    int rank, local_rank;               /* of this process among several; they choose the GPU */
    const struct lf_loaded_ranks *with; /* borrowed; NULL: the model is whole */
    enum lf_dtype compute;      /* of activations and cache: LF_F32, LF_BF16 or, on GPUs, LF_F16 */
    bool fast;                  /* LF_FAST kernels; results may then depend on the batch */
    int64_t max_context;        /* 0: the model's max_positions */
    struct lf_profile *profile; /* engine/graph/profile.h; outlives m; NULL: none */
    const char *label;          /* prefix of its graphs in the profile; NULL: none */
};

struct lf_loaded {
    struct lf_loaded_opts o; /* max_context is resolved */
    lf_model_config model;
    /* of the checkpoint, or of the adapter, which knows its base */
    char identity[LF_HASH_HEX];
    struct lf_adapter_config adapter;
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *exec;
};

/* The parts that differ between users of a loaded model. user is passed to each function. */
struct lf_loaded_parts {
    void *user;
    /* true: an adapter with a head may turn a model that predicts tokens into one that gives
     * scores. false: such an adapter is refused. */
    bool scores;
    /* the model may tell classes of pictures (engine/model/classes.h), or have two towers
     * (dual.h) */
    bool classes;
    /* Adds the chains to m->plan. */
    int (*chains)(void *user, lf_loaded *m, lf_err *err);
    /* Reads values from the state of a checkpoint, first of the base, then of the adapter. `where`
     * is for messages. May be NULL. */
    int (*state)(void *user, json_t *state, const char *where, lf_err *err);
};

/* Makes and finishes the plan of m->model with m->o, without a device or weights. The settings of
 * an adapter are read. */
int lf_loaded_plan(lf_loaded *m, const struct lf_loaded_parts *p, lf_err *err);
/* Opens dir, checks every hash, plans, binds and loads. m->o is set and the rest of m is zeroed. */
int lf_loaded_open(lf_loaded *m, const char *dir, const struct lf_loaded_parts *p, lf_err *err);
/* m may also be one whose opening failed. */
void lf_loaded_fini(lf_loaded *m);

#endif
