/* SPDX-License-Identifier: Apache-2.0
 *
 * Log-likelihoods of given tokens, and the arithmetic of evaluation, after lm-evaluation-harness
 * (lm_eval/api/model.py, utils.py, metrics.py). A model is a function that scores packed rows. Rows
 * do not depend on each other, so results do not depend on the items that share a batch.
 */
#ifndef LF_INFER_SCORE_H
#define LF_INFER_SCORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

/* Packed rows of documents, borrowed for a call. Document d has rows [cu_seqlens[d], cu_seqlens[d +
 * 1]). The entries behind the last document repeat the number of rows used; the rows behind it are
 * padding. */
struct lf_score_rows {
    const int32_t *token, *target, *position; /* [rows] */
    const int32_t *cu_seqlens;                /* [max_docs + 1] */
    int64_t n_docs;
    /* with source_rows of the model: the sources of these documents, in the same way */
    const int32_t *source_token, *source_position; /* [source_rows] */
    const int32_t *source_cu_seqlens;              /* [max_docs + 1] */
};

/* A forward pass over `rows` packed rows: loss[r] = -log p(target[r] | the document up to r), 0 for
 * target -1; argmax[r] is the lowest id of the largest logit. */
typedef struct lf_score_model {
    void *ctx;
    int64_t rows;        /* of a batch, >= max_context */
    int64_t max_context; /* most tokens that the model reads at once */
    int64_t max_docs;    /* of a batch */
    int64_t vocab;
    /* Of an encoder-decoder: rows of sources of a batch, >= max_context; 0: of a decoder. The
     * decoder reads decoder_start first. */
    int64_t source_rows;
    int32_t decoder_start;
    int (*forward)(void *ctx, const struct lf_score_rows *in, float *loss, int32_t *argmax,
                   lf_err *err);
} lf_score_model;

/* Tokens [first, n) are scored, each given all tokens before it; 1 <= first < n <= max_context + 1,
 * because the last token is not read. For an encoder-decoder tokens before `first` are the source,
 * and both parts are at most max_context. */
typedef struct lf_score_item {
    const int32_t *tokens;
    size_t n, first;
} lf_score_item;

typedef struct lf_score {
    double ll;   /* sum of log-probabilities, f64 in token order */
    bool greedy; /* every scored token is the argmax */
    size_t n;    /* tokens scored */
} lf_score;

/* Callbacks of a run, called between batches. Each may be NULL. */
struct lf_score_watch {
    bool (*stop)(void);
    void (*progress)(void *arg, size_t done); /* items done */
    void *arg;                                /* of progress */
};

/* Scores all items, in batches of whole items in the given order. w may be NULL. LF_EINTR: stop()
 * returned true. LF_EINVAL: an item breaks a bound; the message names it. LF_ENUMERIC: a loss is
 * not finite. */
int lf_score_run(const lf_score_model *m, const lf_score_item *items, size_t n_items, lf_score *out,
                 const struct lf_score_watch *w, lf_err *err);

/* Rolling windows over a text of n tokens. Window i reads [from, to) of the sequence prefix, t0,
 * t1, ..., where index 0 is the prefix, and scores its last `score` tokens. Every token is scored
 * once. Writes at most cap windows to out and returns their number. */
typedef struct lf_window {
    size_t from, to; /* [from, to) of the sequence with the prefix in front, last token included */
    size_t score;
} lf_window;
size_t lf_rolling_windows(size_t n, size_t max_len, size_t context_len, lf_window *out, size_t cap);

/* Returns the index of the largest value of ll[i] / norm[i] (norm NULL: 1); the first one on
 * ties. */
size_t lf_best_choice(const double *ll, const double *norm, size_t n);

/* Computes the mean of n values and its standard error: sample standard deviation / sqrt(n); 0 for
 * n < 2. */
void lf_mean_stderr(const double *v, size_t n, double *mean, double *stderr_out);

/* Computes exp(-sum ll / sum weight) of a corpus and its standard error by the delta method over
 * documents. */
void lf_ratio_perplexity(const double *ll, const double *weight, size_t n, double *ppl,
                         double *stderr_out);
/* The same for bits = -(sum ll / sum weight) / ln 2. */
void lf_ratio_bits(const double *ll, const double *weight, size_t n, double *bits,
                   double *stderr_out);

/* White space is that of Python's str. Returns the length without white space at the end:
 * str.rstrip(). */
size_t lf_rstrip_len(const char *text, size_t len);
size_t lf_lstrip_len(const char *text, size_t len);  /* of the white space at the beginning */
size_t lf_count_words(const char *text, size_t len); /* pieces of re.split(r"\s+", text) */
size_t lf_count_chars(const char *text, size_t len); /* of valid UTF-8 */

#endif
