/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of a model while it is trained, as a guest of the loop (engine/train/guest.h). The
 * requests of a file, prompts of the options, or the beginnings of validation documents are
 * continued with the current weights. A training loop gets chains of engine/infer/paged.h in its
 * own plan, which share the memory of training; in reinforcement learning the generator of the
 * policy is used, and nothing is added to the plan.
 *
 * Each sample is one line of the file of samples (engine/train/sample_file.h):
 *
 *     {"step":N,"prompt":TEXT, ...}
 *
 * with the members of result.h behind, among them "text", "token_ids" and "seed". Without a
 * tokenizer "prompt_token_ids" stand in the place of "prompt". A draw depends on seed, request and
 * token number alone, so a run that continues after a kill writes the same bytes again. The log
 * shows the samples (sample_lines.h).
 *
 * Metrics: sample_tokens (mean length), sample_ended (share that an end token or a stop string
 * ended), sample_logprob (mean log p of the tokens in the model's distribution, before temperature
 * and cuts; NaN without any token).
 */
#ifndef LF_POST_SAMPLES_H
#define LF_POST_SAMPLES_H

#include "engine/infer/request.h"
#include "engine/train/guest.h"

struct lf_samples_opts {
    const char *prompts; /* JSON lines (request.h), or NULL */
    /* [n_texts] prompts as they are; need tok. Without these and without a file: documents */
    const char *const *texts;
    size_t n_texts;
    /* number of documents of the host, from the first on. A prompt is a document up to its first
     * trained token, or, where all of it is trained, its first LF_SAMPLES_TEXT tokens; of a pair of
     * answers the prompt that both have */
    int64_t rows;
    int64_t interval;      /* steps, >= 1 */
    int64_t context;       /* positions of a sequence; longer prompts keep their last tokens */
    enum lf_dtype compute; /* of the run's plan */
    /* most patches and tiles of a prompt's pictures, where the data has some; 0: it has none. Only
     * for a training loop: a generator knows its own */
    int64_t patches, tiles;
    double temperature;      /* by which the generator's logits are divided already; 0: 1 */
    const lf_tokenizer *tok; /* NULL: prompts are ids, results have no text */
    /* n, max_tokens, params, end, seed ...; truncate_prompt is set here */
    lf_gen_defaults defaults;
};

#define LF_SAMPLES_TEXT 16

typedef struct lf_samples lf_samples;

/* What o points to is borrowed. LF_EINVAL: context <= max_tokens. */
lf_samples *lf_samples_create(const struct lf_samples_opts *o, lf_err *err);
void lf_samples_destroy(lf_samples *s);
/* A guest for lf_train_config, which s owns. */
const struct lf_train_guest *lf_samples_guest(const lf_samples *s);

/* ---- for a loop that has a generator: what the guest's bind and visit do, on rank 0 ---- */

/* host and what m points to outlive s. LF_EINVAL: a prompt does not fit the model, or there is
 * none. */
int lf_samples_begin(lf_samples *s, const struct lf_guest_host *host, const lf_gen_model *m,
                     lf_err *err);
int lf_samples_visit(lf_samples *s, int64_t step, double *values, lf_err *err);

#endif
