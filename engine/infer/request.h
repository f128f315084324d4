/* SPDX-License-Identifier: Apache-2.0
 *
 * What to generate, as people write it, and what came out.
 *
 * Requests are JSON lines:
 *     {"id": "q1", "prompt": "text"}                 id: string or integer; without one "line-N", N from 1
 *     {"prompt_token_ids": [5, 6, 7]}                token ids instead of text; "prompt" may also be an array of ids
 * and any of these members replaces the default for that request: n, temperature, top_p, top_k, min_p, repetition_penalty,
 * presence_penalty, frequency_penalty, max_tokens, min_tokens, stop (string or array), stop_token_ids, seed, logprobs, ignore_eos.
 * Anything else is an error naming line and member. Ids must differ.
 *
 * Results are JSON lines, one per request and sample, in the order of the requests:
 *     {"id","sample","prompt_tokens","text","token_ids","logprobs","finish_reason","stop_reason"?,"top_logprobs"?,"seed"}
 */
#ifndef LF_INFER_REQUEST_H
#define LF_INFER_REQUEST_H

#include "engine/infer/gen.h"

typedef struct lf_gen_defaults {
    lf_sample_params params;
    int64_t n, max_tokens, min_tokens;
    int64_t top_logprobs;
    const char *const *stop;
    size_t n_stop;
    const int32_t *end; /* end tokens of the model */
    size_t n_end;
    bool ignore_eos, add_special, skip_special;
    uint64_t seed; /* of the run */
} lf_gen_defaults;

/* Jobs and everything they point to. */
typedef struct lf_gen_jobs {
    lf_gen_job *v;
    size_t n;
    void *priv;
} lf_gen_jobs;

/* Append the requests of a JSON lines file ("-" is standard input), or one prompt. tok may be NULL when prompts are ids.
 * Zero-initialise jobs; after a failure it still needs fini. defaults are borrowed until fini. */
int lf_gen_jobs_read(lf_gen_jobs *jobs, const char *path, const lf_tokenizer *tok, const lf_gen_defaults *d, lf_err *err);
int lf_gen_jobs_add_prompt(lf_gen_jobs *jobs, const char *id, const char *text, const lf_tokenizer *tok, const lf_gen_defaults *d,
                           lf_err *err);
void lf_gen_jobs_fini(lf_gen_jobs *jobs);

/* One result as a line (with "\n") appended to out. */
int lf_gen_result_line(lf_buf *out, const lf_gen_result *r, lf_err *err);

#endif
