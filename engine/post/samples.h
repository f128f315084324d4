/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of a model while it is trained, as a guest of the loop (engine/train/guest.h). The paged
 * chains of engine/infer continue the requests of a file, or the beginnings of validation
 * documents, with the current weights.
 *
 * OUT/samples/step-NNNNNNNN.jsonl holds the lines of one visit as result.h writes them.
 * OUT/samples/prompts.jsonl holds the requests that were made of documents. A draw depends on seed,
 * request and token number alone, so a run that continues after a kill writes the same bytes again.
 *
 * Metrics: sample_tokens (mean length), sample_ended (share that an end token or a stop string
 * ended), sample_logprob (mean log p of the tokens in the model's distribution, before temperature
 * and cuts).
 */
#ifndef LF_POST_SAMPLES_H
#define LF_POST_SAMPLES_H

#include "engine/infer/request.h"
#include "engine/train/guest.h"

struct lf_samples_opts {
    const char *out;     /* the run's */
    const char *prompts; /* JSON lines (request.h); NULL: documents */
    /* without prompts: number of documents of the valid splits, from the first on. A prompt is a
     * document up to its first trained token, or, where all of it is trained, its first
     * LF_SAMPLES_TEXT tokens */
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

/* What o points to is borrowed. The result owns a guest for lf_train_config. LF_EINVAL: context <=
 * max_tokens. */
lf_samples *lf_samples_create(const struct lf_samples_opts *o, lf_err *err);
void lf_samples_destroy(lf_samples *s);
const struct lf_train_guest *lf_samples_guest(const lf_samples *s);

#endif
