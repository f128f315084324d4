/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of texts by a reward model (a decoder with output = score):
 *
 *     score(t_0 .. t_{n-1}) = x_{n-1} . score.weight        x: what the trunk gives at the last
 *       token
 *
 * The row is found by the length of the text (cu_seqlens[d + 1] - 1), never by a padding id, so a
 * text that ends in whatever token pads elsewhere is scored where it ends. With invariant kernels a
 * score has the same bits in any batch, beside any neighbours and with any number of threads.
 *
 * Two ways in: a scorer as one more chain of a plan that somebody else makes and runs
 * (reinforcement learning, where the reward model shares a process and a memory plan with others),
 * and a model opened from its checkpoint.
 */
#ifndef LF_POST_RM_SCORE_H
#define LF_POST_RM_SCORE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/back/back.h"
#include "engine/base/err.h"
#include "engine/model/config.h"

/* engine/graph/{plan,pstore,exec}.h, engine/model/decoder.h */
typedef struct lf_plan lf_plan;
typedef struct lf_pstore lf_pstore;
typedef struct lf_exec lf_exec;
typedef struct lf_decoder lf_decoder;

/* Tokens of a text as the model sees it, end token included where it was trained on one. */
typedef struct lf_rm_text {
    const int32_t *tokens;
    size_t n; /* 1 .. max_context */
} lf_rm_text;

/* ---- a chain of another's plan ---- */

typedef struct lf_rm_scorer lf_rm_scorer;

struct lf_rm_scorer_opts {
    int64_t max_context; /* tokens of the longest text */
    int64_t rows;        /* of a batch; raised to max_context */
    int64_t docs;        /* texts of a batch at most; >= 1 */
    uint32_t eras;       /* lf_chain_opts */
};

/* Add a forward chain over d's graph of values; before lf_plan_finish. ps is the plan's store,
 * declared by d. Everything is borrowed, d until the scorer is destroyed. */
int lf_rm_scorer_plan(lf_rm_scorer **out, lf_plan *plan, lf_pstore *ps, const lf_decoder *d,
                      const struct lf_rm_scorer_opts *o, lf_err *err);
/* Score n texts, in batches of whole texts in the order given; ex runs the plan. LF_EINVAL: a text
 * without tokens, longer than max_context, or with an id outside the vocabulary. LF_ENUMERIC: a
 * score that is not finite. Both name the text by its number. LF_EINTR when stop (may be NULL) said
 * so between batches. No allocation, but of turns (decoder.h). */
int lf_rm_scorer_run(lf_rm_scorer *s, lf_exec *ex, const lf_rm_text *texts, size_t n, float *score,
                     bool (*stop)(void), lf_err *err);
void lf_rm_scorer_destroy(lf_rm_scorer *s);

/* ---- a checkpoint ---- */

/* Mean and standard deviation of the scores on some data, stored with a model (member "score" of
 * its state) and applied on request: (score - mean) / std. */
typedef struct lf_rm_norm {
    bool stored;
    double mean, std; /* std > 0 */
    int64_t count;    /* scores it was measured on; 0: not known (a model of another program) */
} lf_rm_norm;
/* {"mean","std","count"}; owned. */
json_t *lf_rm_norm_json(const lf_rm_norm *n, lf_err *err);
/* Read it from the state of a checkpoint; stored is false when the state has none. LF_EFORMAT: the
 * state has numbers that no measurement gives. */
int lf_rm_norm_read(lf_rm_norm *out, json_t *state, const char *where, lf_err *err);
double lf_rm_normalized(const lf_rm_norm *n, double score);

typedef struct lf_rm lf_rm;

struct lf_rm_opts {
    /* checkpoint of an adapter that stays beside the weights (engine/model/adapter.h): the
     * reward model is both together, the checkpoint may be of a language model; NULL: none */
    const char *adapter;
    int threads;
    enum lf_device device;
    int rank, local_rank;
    enum lf_dtype compute;           /* as in lf_runner_opts */
    bool fast;                       /* fast kernels: a score may depend on its batch */
    int64_t max_context, rows, docs; /* max_context 0: the model's */
    struct lf_profile *profile;      /* engine/graph/profile.h, outlives the model; NULL: none */
    const char *label;               /* of its graphs there; NULL: none */
};
/* Open, check every hash, plan, bind and load. LF_EINVAL: the checkpoint predicts tokens, and so it
 * does with the adapter. */
int lf_rm_open(lf_rm **out, const char *dir, const struct lf_rm_opts *o, lf_err *err);
void lf_rm_close(lf_rm *r);
/* Plan JSON (lf_plan_json) without weights or a device; of an adapter its settings are read. c: of
 * the checkpoint. Owned. */
json_t *lf_rm_plan(const lf_model_config *c, const struct lf_rm_opts *o, lf_err *err);
struct lf_plan_bytes; /* engine/graph/plan.h */
/* The bytes of its plan alone, for a caller that holds it beside plans of its own. */
int lf_rm_plan_bytes(struct lf_plan_bytes *out, const lf_model_config *c,
                     const struct lf_rm_opts *o, lf_err *err);

const lf_model_config *lf_rm_config(const lf_rm *r);
int64_t lf_rm_max_context(const lf_rm *r);
const char *lf_rm_identity(
    const lf_rm
        *r); /* of the checkpoint, hex; with an adapter the adapter's, which knows its base */
const lf_rm_norm *lf_rm_norm_of(const lf_rm *r);
json_t *lf_rm_fingerprint(lf_rm *r, lf_err *err); /* what the numbers depend on; owned */
int lf_rm_score(lf_rm *r, const lf_rm_text *texts, size_t n, float *score, bool (*stop)(void),
                lf_err *err);

#endif
