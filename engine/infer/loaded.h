/* SPDX-License-Identifier: Apache-2.0
 *
 * A decoder from its checkpoint, planned, bound and filled with weights: what everything that only
 * runs a model forward has in common. Whoever wants one says which chains its plan has (runner.h:
 * generation and scoring; engine/post/rm_score.h: a reward model).
 */
#ifndef LF_INFER_LOADED_H
#define LF_INFER_LOADED_H

#include <jansson.h>

#include "engine/back/back.h"
#include "engine/base/hash.h"
#include "engine/graph/exec.h"
#include "engine/model/adapter.h"
#include "engine/model/decoder.h"

typedef struct lf_loaded lf_loaded;

struct lf_loaded_opts {
    /* checkpoint of an adapter that stays beside the weights (engine/model/adapter.h); NULL:
     * none */
    const char *adapter;
    int threads;
    enum lf_device device;
    int rank, local_rank;       /* of this process, where several run: which GPU */
    enum lf_dtype compute;      /* of activations and cache: LF_F32, LF_BF16 or, on GPUs, LF_F16 */
    bool fast;                  /* LF_FAST kernels; results may then depend on the batch */
    int64_t max_context;        /* 0: the model's max_positions */
    struct lf_profile *profile; /* engine/graph/profile.h, outlives it; NULL: none */
    const char *label;          /* of its graphs there; NULL: none */
};

struct lf_loaded {
    struct lf_loaded_opts o; /* max_context as it is */
    lf_model_config model;
    /* of the checkpoint; with an adapter the adapter's, which knows its base */
    char identity[LF_HASH_HEX];
    struct lf_adapter_config adapter;
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *exec;
};

/* What one user of a loaded model does differently from another. user: passed to each function. */
struct lf_loaded_parts {
    void *user;
    /* true: an adapter with a head may turn a model that predicts tokens into one that gives
     * scores. false: such an adapter is refused. */
    bool scores;
    /* Adds the chains to m->plan. */
    int (*chains)(void *user, lf_loaded *m, lf_err *err);
    /* Reads what it wants of the state of a checkpoint, the base's first and then the adapter's;
     * where: for messages. NULL: nothing. */
    int (*state)(void *user, json_t *state, const char *where, lf_err *err);
};

/* The plan of m->model with m->o, finished: no device, no weights; of an adapter its settings are
 * read. */
int lf_loaded_plan(lf_loaded *m, const struct lf_loaded_parts *p, lf_err *err);
/* Open dir, check every hash, plan, bind and load; m->o is given, the rest of m is zero. */
int lf_loaded_open(lf_loaded *m, const char *dir, const struct lf_loaded_parts *p, lf_err *err);
/* Also of one that was not opened to the end. */
void lf_loaded_fini(lf_loaded *m);

#endif
