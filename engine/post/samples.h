/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of what a model says while it is trained, as a guest of the loop (engine/train/guest.h):
 * the requests of a file, or the beginnings of validation documents, are continued by the paged
 * segments of engine/infer on the live weights.
 *
 * OUT/samples/step-NNNNNNNN.jsonl holds the lines of one visit as result.h writes them,
 * OUT/samples/prompts.jsonl the requests that were made of documents. A draw depends on seed,
 * request and token number alone, so a run that goes on after a kill writes the same bytes again.
 *
 * Metrics: sample_tokens (mean length), sample_ended (share that an end token or stop string
 * ended), sample_logprob (mean log p of the tokens in the model's own distribution, whatever they
 * were drawn by).
 */
#ifndef LF_POST_SAMPLES_H
#define LF_POST_SAMPLES_H

#include "engine/infer/request.h"
#include "engine/train/guest.h"

struct lf_samples_opts {
    const char *out;     /* the run's */
    const char *prompts; /* JSON lines (request.h); NULL: documents */
    /* without prompts: the first so many documents of the valid splits, up to their first
     * trained token, or, where all of it is trained, their first LF_SAMPLES_TEXT tokens */
    int64_t rows;
    int64_t interval;        /* steps, >= 1 */
    int64_t context;         /* positions of a sequence; longer prompts keep their last tokens */
    enum lf_dtype compute;   /* of the run's plan */
    const lf_tokenizer *tok; /* NULL: prompts are ids, results have no text */
    /* n, max_tokens, params, end, seed ...; truncate_prompt is set here */
    lf_gen_defaults defaults;
};

#define LF_SAMPLES_TEXT 16

typedef struct lf_samples lf_samples;

/* Borrows what o points to, and is the owner of a guest that lf_train_config may point to.
 * LF_EINVAL: context <= max_tokens. */
lf_samples *lf_samples_create(const struct lf_samples_opts *o, lf_err *err);
void lf_samples_destroy(lf_samples *s);
const struct lf_train_guest *lf_samples_guest(const lf_samples *s);

#endif
