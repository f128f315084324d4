/* SPDX-License-Identifier: Apache-2.0
 *
 * A decoder from a checkpoint, ready to generate or to score: the bridge from graphs (engine/graph,
 * engine/model) to gen.h and score.h.
 *
 * Generation is paged.h's segments; scoring has one segment over packed documents. All of them
 * share weights and, never running together, memory.
 */
#ifndef LF_INFER_RUNNER_H
#define LF_INFER_RUNNER_H

#include <jansson.h>

#include "engine/back/back.h"
#include "engine/infer/gen.h"
#include "engine/infer/score.h"
#include "engine/model/config.h"

typedef struct lf_runner lf_runner;

struct lf_runner_opts {
    /* checkpoint of an adapter that stays beside the weights (engine/model/adapter.h); NULL:
     * none */
    const char *adapter;
    int threads;
    enum lf_device device;
    int rank, local_rank;  /* of this process, where several run: which GPU */
    enum lf_dtype compute; /* of activations and cache: LF_F32, LF_BF16 or, on GPUs, LF_F16 */
    bool fast;             /* LF_FAST kernels; results may then depend on the batch */
    int64_t max_context;   /* 0: the model's max_positions */
    /* generation; slots 0: none */
    /* kv_tokens: positions in the cache, 0: slots * max_context */
    int64_t slots, max_rows, kv_tokens;
    int64_t page_tokens; /* multiple of LF_ATTN_TILE */
    bool switching;      /* of gen.h */
    /* scoring; rows 0: none */
    int64_t score_rows, score_docs;
    struct lf_profile *profile; /* engine/graph/profile.h, outlives the runner; NULL: none */
};

/* The model description of the checkpoint in dir, from its manifest and state alone (for
 * --plan). */
int lf_runner_config(lf_model_config *out, const char *dir, lf_err *err);
/* Plan JSON (lf_plan_json) of a runner over a model, without weights or a device; of an adapter its
 * settings are read. Returns owned. */
json_t *lf_runner_plan(const lf_model_config *c, const struct lf_runner_opts *o, lf_err *err);

/* Open, check every hash, plan, bind and load. */
int lf_runner_open(lf_runner **out, const char *dir, const struct lf_runner_opts *o, lf_err *err);
void lf_runner_close(lf_runner *r);
const char *lf_runner_identity(
    const lf_runner
        *r); /* of the checkpoint, hex; with an adapter the adapter's, which knows its base */
json_t *lf_runner_fingerprint(lf_runner *r, lf_err *err); /* what the numbers depend on; owned */

/* Filled in for the parts asked for; valid until close. */
int lf_runner_gen_model(lf_runner *r, lf_gen_model *out, lf_err *err);
int lf_runner_score_model(lf_runner *r, lf_score_model *out, lf_err *err);

#endif
