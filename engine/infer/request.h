/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests to generate, as users write them. result.h writes the results.
 *
 * Requests are JSON lines, in one of two shapes. Our own shape is one of
 *     {"id": "q1", "prompt": "text"}
 *     {"prompt_token_ids": [5, 6, 7]}
 *     {"messages": [{"role": "user", "content": "text"}], "tools": [...]}
 * id is a string or an integer; a request without one is "line-N", with N from 1. "prompt" may also
 * be an array of ids. messages are a conversation, which goes through the chat template. Any of
 * these members replaces the default for its request (null: the default):
 *     n, best_of                  continuations to return, and to make: the n of best_of with the
 *                                 largest summed log-probability are returned
 *     temperature, top_p, top_k, min_p, repetition_penalty, presence_penalty, frequency_penalty
 *                                 see sample.h; top_k -1: off
 *     logit_bias {"id": number}, allowed_token_ids, bad_words
 *                                 limits on single tokens and words
 *     max_tokens, min_tokens, stop (string or array), stop_token_ids
 *     no_repeat_ngram_size        no so many tokens, of the prompt too, come a second time; 0: off
 *     first_token, last_token     the first token of an output, and the one that fills max_tokens;
 *                                 -1: drawn
 *     beams, length_penalty, early_stopping (true, false or "never")
 *                                 beam search (beam.h); n of its results are returned
 *     ignore_eos                  stop_token_ids still end the text
 *     include_stop_str_in_output, skip_special_tokens, add_special_tokens
 *     truncate_prompt_tokens      the last tokens of the prompt to keep
 *     seed
 *     logprobs, prompt_logprobs   alternatives for each token
 *     images                      paths of the pictures that the prompt has marks for (eyes.h)
 *     image                       the only one, instead
 * Any other member is an error that names line and member. Ids must differ.
 *
 * The OpenAI batch shape is {"custom_id", "method": "POST", "url": "/v1/completions" |
 * "/v1/chat/completions", "body": {...}}, where body has the members of that interface and those
 * above. An error inside of such a line does not stop the others: its result is an error line.
 */
#ifndef LF_INFER_REQUEST_H
#define LF_INFER_REQUEST_H

#include <jansson.h>

#include "engine/infer/eyes.h"
#include "engine/infer/gen.h"

typedef struct lf_gen_defaults {
    lf_sample_params params;
    int64_t n, best_of, max_tokens, min_tokens; /* best_of 0: n */
    int64_t no_repeat, first_token, last_token; /* as of lf_gen_job */
    struct lf_gen_beams beams;
    int64_t top_logprobs;
    int64_t prompt_logprobs; /* -1: none */
    int64_t truncate_prompt; /* 0: none */
    const char *const *stop;
    size_t n_stop;
    const int32_t *end; /* end tokens of the model */
    size_t n_end;
    bool ignore_eos, add_special, skip_special, include_stop;
    uint64_t seed; /* of the run */
    /* NULL, or members as above that are applied first, such as logit_bias and bad_words;
     * borrowed */
    json_t *more;
    /* of encoder-decoders: a prompt in words is a source, which ends with this token, as in
     * training */
    bool answers;
    int32_t source_end;
    const lf_gen_eyes *eyes; /* NULL: there are no pictures; outlives the jobs */
    /* Appends the text that the model continues; tools and kwargs may be NULL. chat NULL: there is
     * no chat template. */
    int (*chat)(void *arg, json_t *messages, json_t *tools, json_t *kwargs, lf_buf *out,
                lf_err *err);
    void *chat_arg;
} lf_gen_defaults;

enum lf_gen_form { LF_FORM_LINES = 0, LF_FORM_COMPLETION, LF_FORM_CHAT };

/* One request: jobs [first, first + n_jobs), from which n_out results are written. */
typedef struct lf_gen_request {
    const char *id;
    enum lf_gen_form form;
    size_t first, n_jobs, n_out;
    size_t first_line; /* index of its first result line */
    const char *error; /* batch: why it is not run; then n_jobs = 0 */
    const char *model; /* batch: the requested model, or "" */
    bool logprobs;     /* batch: log-probabilities are requested */
} lf_gen_request;

/* Jobs, their requests and everything they point to. */
typedef struct lf_gen_jobs {
    lf_gen_job *v;
    size_t n;
    lf_gen_request *req;
    size_t n_req;
    size_t n_lines; /* of results */
    void *priv;
} lf_gen_jobs;

/* Append the requests of a JSON lines file ("-" is standard input), or one prompt. Zero-initialise
 * jobs; after a failure it still needs lf_gen_jobs_fini. tok may be NULL when prompts are ids. d is
 * borrowed until fini. */
int lf_gen_jobs_read(lf_gen_jobs *jobs, const char *path, const lf_tokenizer *tok,
                     const lf_gen_defaults *d, lf_err *err);
int lf_gen_jobs_add_prompt(lf_gen_jobs *jobs, const char *id, const char *text,
                           const lf_tokenizer *tok, const lf_gen_defaults *d, lf_err *err);
/* Appends a prompt of n ids, which are copied. */
int lf_gen_jobs_add_ids(lf_gen_jobs *jobs, const char *id, const int32_t *ids, size_t n,
                        const lf_gen_defaults *d, lf_err *err);
/* Runs lf_gen_check for all jobs. A batch request that does not fit the model gets an error and
 * loses its jobs. LF_EINVAL: another request does not fit. */
int lf_gen_jobs_fit(lf_gen_jobs *jobs, const lf_gen_model *m, const lf_tokenizer *tok, lf_err *err);
/* The most patches and tiles that a prompt's pictures have; 0: there are none. */
void lf_gen_jobs_sights(const lf_gen_jobs *jobs, int64_t *patches, int64_t *tiles);
size_t lf_gen_jobs_refused(const lf_gen_jobs *jobs); /* requests with an error */
/* Returns the request of a result line; *offset becomes the index of the line among those of the
 * request. */
size_t lf_gen_jobs_at_line(const lf_gen_jobs *jobs, size_t line, size_t *offset);
void lf_gen_jobs_fini(lf_gen_jobs *jobs);

#endif
