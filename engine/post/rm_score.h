/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of texts by a reward model (a decoder with output = score):
 *
 *     score(t_0 .. t_{n-1}) = x_{n-1} . score.weight
 *
 * x_{n-1} is the last hidden state at the last token. The length of the text gives that row
 * (cu_seqlens[d + 1] - 1), never a padding id, so any token may end a text. With invariant kernels
 * a score has the same bits in any batch and with any number of threads.
 *
 * There are two interfaces: a scorer as one more chain of a plan that the caller makes and runs
 * (reinforcement learning, where the reward model shares a process and a memory plan with other
 * models), and a model opened from its checkpoint.
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
#include "engine/train/seen.h"

struct lf_loaded_ranks; /* engine/infer/loaded.h */

/* engine/graph/{plan,pstore,exec}.h, engine/model/decoder.h */
typedef struct lf_plan lf_plan;
typedef struct lf_pstore lf_pstore;
typedef struct lf_exec lf_exec;
typedef struct lf_decoder lf_decoder;

/* The tokens of a text, with the end token where the model was trained with one. */
typedef struct lf_rm_text {
    const int32_t *tokens;
    size_t n; /* 1 .. max_context */
    /* with `answers`: [n] 0 or 1, tokens whose log-probabilities are added up, none of them the
     * first; borrowed. An encoder-decoder reads what stands before the first of them as its source,
     * and all others stand behind it */
    const char *said;
    /* with `sees` it is to the pictures of document `doc` of lf_rm_see, whose places are counted
     * from its first token */
    bool sees;
    uint64_t doc;
} lf_rm_text;

/* ---- a chain of the caller's plan ---- */

typedef struct lf_rm_scorer lf_rm_scorer;

/* What is made of a text: a score; with `answers`, of a model that predicts tokens,
 *
 *     sum over tokens t_k that are said of log p(t_k | t_0 .. t_{k-1}), of an encoder-decoder
 *     sum over k >= first of log p(t_k | t_0 .. t_{first-1} end; start t_first .. t_{k-1})
 *
 * in f64; start is decoder_start, and the end is added where the source has none; with `labels`
 * also what a model with output = labels tells (engine/model/labels.c), its numbers or, of a span,
 * first and last token of the answer; with `embed` a vector, the last hidden states of its tokens,
 * pooled. */
enum lf_rm_pool { LF_RM_AUTO = 0, LF_RM_FIRST, LF_RM_MEAN, LF_RM_LAST };
struct lf_rm_reading {
    bool labels, embed, answers;
    int64_t end;          /* the token that ends a source; -1: none is added */
    enum lf_rm_pool pool; /* auto: the mean with mask = both, else the last */
    bool unit;            /* of length 1 */
    /* what is behind the first token of this number is of type 1, in models that have types */
    bool pairs;
    int64_t separator;
};

struct lf_rm_scorer_opts {
    int64_t max_context; /* tokens of the longest text */
    int64_t rows;        /* rows of a batch; at least max_context */
    int64_t docs;        /* most texts of a batch; >= 1 */
    /* most patches and tiles of a batch's pictures (tiles 0: as lf_sight_bounds says); patches 0:
     * texts have none */
    int64_t patches, tiles;
    uint32_t eras; /* lf_chain_opts */
    struct lf_rm_reading reading;
};

/* Adds a forward chain over the graph of scores of d; before lf_plan_finish. ps is the store of the
 * plan, declared by d. Everything is borrowed, d until the scorer is destroyed. */
int lf_rm_scorer_plan(lf_rm_scorer **out, lf_plan *plan, lf_pstore *ps, const lf_decoder *d,
                      const struct lf_rm_scorer_opts *o, lf_err *err);
/* Where the pictures of texts come from; borrowed. Only for a scorer with patches. */
void lf_rm_scorer_see(lf_rm_scorer *s, const lf_pictures *from);
/* Of a model with two towers (tower_score.h): from now on texts and pictures get numbers of n
 * classes, whose vectors are w [n, D], copied; NULL: vectors. LF_EINVAL: it is no such model. */
int lf_rm_scorer_classes(lf_rm_scorer *s, const float *w, int64_t n, lf_err *err);
/* Numbers of a text: 1, or as many as labels, channels of a vector, or 2 of a span. */
int64_t lf_rm_scorer_width(const lf_rm_scorer *s);
/* Scores n texts, in batches of whole texts in the given order; ex runs the plan. stop (may be
 * NULL) is called between batches. Only turns (decoder.h) are allocated. LF_EINVAL: a text has no
 * tokens, is longer than max_context, or has an id outside the vocabulary. LF_ENUMERIC: a score is
 * not finite. Both messages have the number of the text. LF_EINTR: stop() returned true. */
int lf_rm_scorer_run(lf_rm_scorer *s, lf_exec *ex, const lf_rm_text *texts, size_t n, float *score,
                     bool (*stop)(void), lf_err *err); /* score: [n, width] */
void lf_rm_scorer_destroy(lf_rm_scorer *s);

/* ---- a checkpoint ---- */

/* Mean and standard deviation of the scores on some data, stored with a model (member "score" of
 * its state) and applied on request: (score - mean) / std. */
typedef struct lf_rm_norm {
    bool stored;
    double mean, std; /* std > 0 */
    int64_t count;    /* number of scores behind it; 0: unknown (a model of another program) */
} lf_rm_norm;
/* {"mean","std","count"}; owned. */
json_t *lf_rm_norm_json(const lf_rm_norm *n, lf_err *err);
/* Reads it from the state of a checkpoint; stored is false when the state has none. LF_EFORMAT: the
 * numbers are impossible. */
int lf_rm_norm_read(lf_rm_norm *out, json_t *state, const char *where, lf_err *err);
double lf_rm_normalized(const lf_rm_norm *n, double score);

typedef struct lf_rm lf_rm;

struct lf_rm_opts {
    /* checkpoint of an adapter that stays beside the weights (engine/model/adapter.h); both
     * together are the reward model, and the weights may be those of a language model; NULL:
     * none */
    const char *adapter;
    bool averages; /* as in lf_runner_opts */
    int threads;
    enum lf_device device;
    int rank, local_rank;
    const struct lf_loaded_ranks *with; /* as in lf_runner_opts */
    enum lf_dtype compute;              /* as in lf_runner_opts */
    bool fast;                       /* fast kernels, with which a score may depend on its batch */
    int64_t max_context, rows, docs; /* max_context 0: the model's */
    /* pictures of a batch, of a model that sees; as in lf_rm_scorer_opts */
    int64_t patches, tiles;
    struct lf_rm_reading reading;
    struct lf_profile *profile; /* engine/graph/profile.h, outlives the model; NULL: none */
    const char *label;          /* prefix of its graphs in the profile; NULL: none */
};
/* Opens dir, checks every hash, plans, binds and loads. LF_EINVAL: the model predicts tokens, also
 * with the adapter. */
int lf_rm_open(lf_rm **out, const char *dir, const struct lf_rm_opts *o, lf_err *err);
void lf_rm_close(lf_rm *r);
/* Returns the plan (lf_plan_json) without weights or a device, which the caller owns. c is the
 * description in the checkpoint. The settings of an adapter are read. */
json_t *lf_rm_plan(const lf_model_config *c, const struct lf_rm_opts *o, lf_err *err);
struct lf_plan_bytes; /* engine/graph/plan.h */
/* Computes the bytes of its plan alone, for a caller that has other plans too. */
int lf_rm_plan_bytes(struct lf_plan_bytes *out, const lf_model_config *c,
                     const struct lf_rm_opts *o, lf_err *err);

const lf_model_config *lf_rm_config(const lf_rm *r);
/* Borrowed: the names of its labels (engine/model/label_names.h); NULL: it has none. */
const json_t *lf_rm_label_names(const lf_rm *r);
int64_t lf_rm_max_context(const lf_rm *r);
/* Returns the identity (hex) of the checkpoint, or of the adapter, which knows its base. */
const char *lf_rm_identity(const lf_rm *r);
struct lf_plan_memory; /* engine/graph/plan.h */
/* Returns the memory of the process. */
struct lf_plan_memory lf_rm_planned(const lf_rm *r);
const lf_rm_norm *lf_rm_norm_of(const lf_rm *r);
json_t *lf_rm_fingerprint(lf_rm *r, lf_err *err); /* what the numbers depend on; owned */
/* Where the pictures of texts come from; borrowed. LF_EINVAL: the model sees none, or was opened
 * without patches. */
int lf_rm_see(lf_rm *r, const lf_pictures *from, lf_err *err);
/* As lf_rm_scorer_classes; names [n] are those of the labels from now on, and taken over. */
int lf_rm_classes(lf_rm *r, const float *w, int64_t n, json_t *names, lf_err *err);
int64_t lf_rm_width(const lf_rm *r); /* as of the scorer; score: [n, width] */
int lf_rm_score(lf_rm *r, const lf_rm_text *texts, size_t n, float *score, bool (*stop)(void),
                lf_err *err);

#endif
