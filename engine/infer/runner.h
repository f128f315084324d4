/* SPDX-License-Identifier: Apache-2.0
 *
 * A decoder from a checkpoint, ready to generate or to score. It connects graphs (engine/graph,
 * engine/model) with gen.h and score.h.
 *
 * Generation uses the chains of paged.h; scoring has one chain over packed documents. All of them
 * share weights. They also share memory, because they never run together.
 */
#ifndef LF_INFER_RUNNER_H
#define LF_INFER_RUNNER_H

#include <jansson.h>

#include "engine/back/back.h"
#include "engine/infer/gen.h"
#include "engine/infer/score.h"
#include "engine/model/config.h"

typedef struct lf_runner lf_runner;
struct lf_loaded_ranks; /* loaded.h */

struct lf_runner_opts {
    /* checkpoint of an adapter that stays beside the weights (engine/model/adapter.h); NULL:
     * none */
    const char *adapter;
    bool averages; /* those of the checkpoint are the weights (ckpt.h, lf_ckpt_averages) */
    int threads;
    enum lf_device device;
    int rank, local_rank;               /* of this process among several; they choose the GPU */
    const struct lf_loaded_ranks *with; /* that have other parts of its matrices; NULL: none */
    enum lf_dtype compute; /* of activations and cache: LF_F32, LF_BF16 or, on GPUs, LF_F16 */
    bool fast;             /* LF_FAST kernels; results may then depend on the batch */
    int64_t max_context;   /* 0: the model's max_positions */
    /* generation; slots 0: none */
    /* kv_tokens: positions in the cache, 0: slots * max_context */
    int64_t slots, max_rows, kv_tokens;
    int64_t page_tokens;            /* multiple of LF_ATTN_TILE */
    bool switching;                 /* of gen.h */
    bool speculative;               /* of paged.h */
    int64_t max_patches, max_tiles; /* pictures of a prompt (look.h); 0: none */
    /* scoring; rows 0: none */
    int64_t score_rows, score_docs;
    struct lf_profile *profile; /* engine/graph/profile.h, outlives the runner; NULL: none */
};

/* Reads the description of the model from manifest and state of the checkpoint in dir, for
 * --plan. */
int lf_runner_config(lf_model_config *out, const char *dir, lf_err *err);
/* The same for models that predict no tokens too. */
int lf_runner_description(lf_model_config *out, const char *dir, lf_err *err);
/* Returns the plan (lf_plan_json) of a runner over a model, without weights or a device. The
 * settings of an adapter are read. The caller owns it. */
json_t *lf_runner_plan(const lf_model_config *c, const struct lf_runner_opts *o, lf_err *err);

/* Opens dir, checks every hash, plans, binds and loads. */
int lf_runner_open(lf_runner **out, const char *dir, const struct lf_runner_opts *o, lf_err *err);
void lf_runner_close(lf_runner *r);
/* Returns the identity (hex) of the checkpoint, or of the adapter, which knows its base. */
const char *lf_runner_identity(const lf_runner *r);
struct lf_plan_memory; /* engine/graph/plan.h */
/* Returns the memory of the process, as lf_runner_plan says it. */
struct lf_plan_memory lf_runner_planned(const lf_runner *r);
json_t *lf_runner_fingerprint(lf_runner *r, lf_err *err); /* what the numbers depend on; owned */

/* Fill *out for the parts that were requested; valid until lf_runner_close. */
int lf_runner_gen_model(lf_runner *r, lf_gen_model *out, lf_err *err);
int lf_runner_score_model(lf_runner *r, lf_score_model *out, lf_err *err);

#endif
