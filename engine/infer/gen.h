/* SPDX-License-Identifier: Apache-2.0
 *
 * Batched generation decides which rows of a step belong to which sequence. It knows no graphs: a
 * model is a step function over a paged KV cache (engine/infer/paged.h makes one from a decoder).
 *
 * Continuous batching. A job takes a slot and all pages that it may need, so nothing is evicted. A
 * step has one row for every sequence that decodes; rows of prompts fill the rest of it. Every
 * kernel behind the step function gives a row the same bits whatever the other rows are, and a draw
 * depends on (seed of the sequence, index of the token) alone. So results do not depend on slots,
 * rows of a step, order or threads.
 *
 * When prompts that run together have a common beginning, its full pages are computed once and
 * shared: n samples of a request, requests with the same few-shot text, continuations of one
 * context.
 *
 * Where the model has begin and end, the host reads one step behind: the next step takes a token
 * from the place where it was drawn. A sequence that ended with that token has computed one row in
 * vain. While a running sequence needs the host between two tokens (penalties, bad_words, biases,
 * alternatives, a draw that the model left to the host), the host waits for each step. The tokens
 * are the same in both cases.
 *
 * A model may draft: behind a step a head of it guesses, for each sequence, the token that follows
 * the one drawn last (speculative decoding: Leviathan et al. 2023; with heads of the model itself:
 * Stern et al. 2018, DeepSeek-V3). The next step computes the row of the guess too, and where the
 * token drawn is the guess, the next one is drawn from there at once. Every row has the bits that
 * it has alone, so the tokens are the same. That is for sequences that take the most likely token,
 * without penalties, lists of tokens, min_tokens, pictures, and log-probabilities of the prompt.
 * What a head has written for the last position of a shared page is of the sequence that filled it,
 * which may make a guess worse and nothing else.
 *
 * The log-probability of a token is that of the model's distribution: logit - logsumexp(logits),
 * before penalties, temperature and cuts. That of a token of the prompt is log p(token | the tokens
 * before it). So a job that generates nothing (max_tokens 0) scores a text, with the bits of
 * lf_score_run; placeholders of pictures have no log-probability then. Where the tokens of a prefix
 * see each other, it is what stands before the first token that is scored.
 */
#ifndef LF_INFER_GEN_H
#define LF_INFER_GEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "engine/infer/sample.h"
#include "engine/text/token/tokenizer.h"

/* One step of the model over rows: row r is token[r] at position pos[r] of sequence slot seq[r]
 * (seq < 0: padding, ignored). The keys and values of the rows are written to the cache, then each
 * row attends to positions 0..pos[r] of its slot. Afterwards logits row i and lse[i] (i < n_want)
 * belong to step row want[i]; lse is the row's logsumexp with the bits of the training loss. Slots
 * may share the full pages of a common prompt; only one of them writes there. The arrays are
 * borrowed for the call. */
struct lf_gen_rows {
    int64_t n;
    const int32_t *token, *pos, *seq; /* [n] */
    const int32_t *table;             /* [slots, max_pages] */
    int64_t n_want;
    const int32_t *want; /* [n_want] */
    /* Rows of pictures have token LF_GEN_PICTURE and their features here, [feature_width]; of
     * others NULL. The whole array is NULL where no row has any. */
    const float *const *feature;
    const int32_t *places; /* [n, 3] three positions of each row; NULL: the model has none */
    /* [n, 2] positions that each row sees together with its past: the first, the one behind the
     * last (lf_decoder_runs); NULL: the model has no such mask */
    const int32_t *runs;
};
#define LF_GEN_PICTURE INT32_MIN
/* The pictures of a prompt. */
struct lf_gen_media {
    const int32_t *feature; /* [n_prompt] the number of the token's features; -1: it is text */
    int64_t n_features;
    const int32_t *places; /* [n_prompt, 3] for a model with places */
    const int32_t *runs;   /* [n_prompt, 2] for a model with runs */
    int32_t next;          /* likewise, of the token behind the prompt */
    /* of the caller, for lf_gen_model.features: prompts with the same pointer have the same
     * pictures in the same places */
    const void *pictures;
};
struct lf_gen_logits {
    const float *z; /* [n_want, vocab], rows ld apart */
    int64_t ld;
    const float *lse; /* [n_want] */
};
struct lf_profile; /* engine/graph/profile.h */
/* Draws that a model makes itself, in its own memory. Before a step lf_gen_run writes a request for
 * each of the wanted rows in their order; the step answers. A token that is not requested or not
 * answered is drawn from the logits of the row by lf_sampler_draw, which gives the same token. */
typedef struct lf_gen_draws {
    int64_t vocab; /* of the run, at most that of the logits; tokens behind it are not drawn */
    struct lf_sample_row *row; /* [slots]; on 0: the host needs the logits instead */
    /* [slots, room] the list of the sequence of each slot. Before a step it is complete; a step
     * with LF_SAMPLE_NOTE changes it as kernels.h says, for the model alone. */
    struct lf_sample_token *list;
    size_t room;
    /* [slots]; with LF_SAMPLE_NONE and LF_SAMPLE_HOST the logits of the row are in lf_gen_logits;
     * otherwise they may be missing */
    struct lf_sample_out *out;
} lf_gen_draws;
enum { LF_GEN_AHEAD = 2 }; /* most steps of a model that are begun and not ended */
struct lf_gen_job;
/* Rows of the newest step behind which a token is known: row r is row from[r] of that step, at
 * position pos[r] of slot seq[r], and token[r] is the one behind it. A draft is wanted behind the
 * rows want. */
struct lf_gen_drafts {
    int64_t n;
    const int32_t *from, *token, *pos, *seq; /* [n] */
    const int32_t *table;                    /* [slots, max_pages] */
    int64_t n_want;
    const int32_t *want; /* [n_want] at most one of a slot */
};
typedef struct lf_gen_model {
    void *ctx;
    struct lf_profile *profile; /* gets a phase for each step and its draws; NULL: none */
    int64_t vocab;              /* logits per row */
    int64_t max_context;        /* positions a sequence may have */
    int64_t slots;              /* sequences at a time */
    int64_t max_rows;           /* rows of a step */
    int64_t max_want;           /* of them, whose logits are wanted; 0: slots */
    int64_t page_tokens;        /* positions of a page */
    int64_t n_pages;            /* pages of the cache, all slots together */
    int64_t max_pages;          /* entries per slot of the page table */
    /* NULL, or [slots] of the model: lf_gen_run writes the prefix of each slot, which is all that
     * stands before the first token of the output, or of what is scored, but the last token of
     * that, or with prefix_last all of it. The tokens of a prefix see each other, so a step has the
     * whole rest of a prefix or nothing of it */
    int32_t *prefix;
    bool prefix_last;
    /* longrope: the angles of all tokens of a sequence follow from its length, which is that of the
     * prompt and max_tokens together and so is known at the beginning. switching, for comparisons:
     * the length is the current one, as in transformers, and a sequence that grows beyond switch_at
     * is computed again from its first token on. */
    int64_t switch_at; /* sequences of more tokens are long */
    uint8_t *is_long;  /* NULL: no longrope; or [slots] of the model: is the sequence long? */
    bool switching;
    int64_t feature_width; /* floats of a row of a picture; 0: the model sees nothing */
    bool places;           /* tokens have three positions each (M-RoPE) */
    /* Layers carry a state through a sequence, which other sequences cannot share: each computes
     * the whole of its prompt. */
    bool recurrent;
    /* An encoder-decoder reads a source of at most so many tokens before the first row of a
     * sequence; 0: it is a decoder alone. Its outputs begin with decoder_start. */
    int64_t max_source;
    int32_t decoder_start;
    /* the tokens of a picture see each other, so a step has the whole rest of a run or nothing of
     * it */
    bool runs;
    lf_gen_draws *draws; /* NULL, or of the model, which can draw */
    /* *out is borrowed until the next step. */
    int (*step)(void *ctx, const struct lf_gen_rows *rows, struct lf_gen_logits *out, lf_err *err);
    /* with max_source: encodes a source for n slots, which have the same one, from `slot` on */
    int (*encode)(void *ctx, int64_t slot, int64_t n, const int32_t *source, size_t n_source,
                  lf_err *err);
    /* Computes all features of a job's pictures, [n_features, feature_width]. */
    int (*features)(void *look, const struct lf_gen_job *job, float *out, lf_err *err);
    void *look;
    /* Both or none, and only with draws: a step whose answers are read later, while the next step
     * runs. begin is step() without logits; draws->row and list may be reused when it returns.
     * token[r] < 0 stands for the token that the step begun before this one draws for its wanted
     * row -1 - token[r]; where that draws none, row r has no meaning and is never read. end returns
     * the answers of the oldest step (lf_gen_draws.out). No step() is called between begin and
     * end. */
    int (*begin)(void *ctx, const struct lf_gen_rows *rows, lf_err *err);
    int (*end)(void *ctx, struct lf_sample_out *out, lf_err *err);
    /* NULL, or after step(): writes keys and values of the rows for the head that drafts, and to
     * token[i] its most likely token behind token[want[i]]. Needs max_want and max_rows of 2 slots.
     * begin is not called then. */
    int (*draft)(void *ctx, const struct lf_gen_drafts *in, int32_t *token, lf_err *err);
} lf_gen_model;

enum lf_finish { LF_FINISH_STOP = 0, LF_FINISH_LENGTH, LF_FINISH_ERROR };
const char *lf_finish_name(enum lf_finish f); /* "stop", "length", "error" */

/* Beam search (beam.h) in the place of draws. */
enum { LF_BEAMS_MOST = 256 };
struct lf_gen_beams {
    int64_t n; /* sequences that are held; 0 or 1: tokens are drawn */
    double length_penalty;
    enum lf_beams_early { LF_BEAMS_NO = 0, LF_BEAMS_YES, LF_BEAMS_NEVER } early;
};

/* One text to generate; borrowed until its result is delivered. */
typedef struct lf_gen_job {
    const char *id;
    size_t request;        /* index of its request; for the caller */
    uint32_t sample;       /* index among the samples of the same prompt */
    const int32_t *prompt; /* at least one token */
    size_t n_prompt;
    /* of encoder-decoders: what the encoder reads; the prompt is then what the output begins with,
     * decoder_start first (lf_gen_read_sources) */
    const int32_t *source;
    size_t n_source;
    const struct lf_gen_media *media; /* NULL: no pictures */
    lf_sample_params params;
    lf_sample_limits limits;
    struct lf_gen_beams beams; /* sample i of a request is the i-th best */
    /* >= 1, or 0 with prompt_logprobs: nothing is generated, and the last token of the prompt is no
     * picture's */
    int64_t max_tokens;
    /* before these tokens, end tokens are forbidden and stop strings are ignored */
    int64_t min_tokens;
    /* n > 0: no n tokens, of the prompt too, come a second time (transformers: n-grams) */
    int64_t no_repeat;
    /* the first token of an output, and the one that fills max_tokens, whatever the model says: a
     * token + 1; 0: it is drawn */
    int64_t first_token, last_token;
    /* tokens that end the sequence; `tokens` has them, and the text too unless it is cut */
    const int32_t *end;
    size_t n_end;
    size_t n_end_asked;      /* the first n_end_asked of end are reported as stop_token */
    const char *const *stop; /* strings that end the sequence */
    size_t n_stop;
    /* the text ends before the string, behind it, or with the token that completed it */
    enum lf_stop_text { LF_STOP_CUT = 0, LF_STOP_INCLUDE, LF_STOP_WHOLE } stop_text;
    uint64_t seed;        /* of this sequence: lf_sample_seed() */
    int top_logprobs;     /* alternatives reported per token */
    bool skip_special;    /* leave special tokens out of the text */
    bool prompt_logprobs; /* report tokens prompt_first.. of the prompt too */
    size_t prompt_first;  /* 0 counts as 1, as the first token has no context */
    int prompt_top;       /* alternatives reported for each of them */
    /* [n_last] further tokens that are scored in the place of the last token of the prompt */
    const int32_t *last_ids;
    size_t n_last;
} lf_gen_job;

typedef struct lf_gen_result {
    const lf_gen_job *job;
    const int32_t *tokens; /* [n] */
    const float *logprobs; /* [n] */
    size_t n;
    const int32_t *top_ids;    /* [n, top_logprobs] */
    const float *top_logprobs; /* [n, top_logprobs] */
    const char *text;          /* "" without a tokenizer */
    size_t text_len;
    enum lf_finish finish;
    const char *stop_reason; /* the stop string that ended it, or NULL */
    int32_t stop_token;      /* the end token among the first n_end_asked that ended it, or -1 */
    /* [n_prompt], set from prompt_first on; NULL when not requested, like everything below */
    const float *prompt_logprobs;
    const uint8_t *prompt_greedy;     /* [n_prompt] is it the largest logit (lowest id on ties)? */
    const int32_t *prompt_top_ids;    /* [n_prompt, prompt_top] */
    const float *prompt_top_logprobs; /* [n_prompt, prompt_top] */
    const float *last_logprobs;       /* [n_last] */
    int32_t last_best;                /* id of the largest logit in the place of the last token */
} lf_gen_result;

/* The token that output `index` of at most `most` must be; -1: any. */
int32_t lf_gen_forced(const lf_gen_job *j, size_t index, size_t most);
/* Finds the next token that no_repeat forbids behind tok[n], from place *at (0 at first) on; false:
 * there are no more. */
bool lf_gen_repeats(const lf_gen_job *j, const int32_t *tok, size_t n, size_t *at, int32_t *token);

/* Results come in the order of the jobs. A negative return stops the run and is returned. */
typedef int (*lf_gen_sink)(void *arg, const lf_gen_result *r, lf_err *err);

struct lf_gen_stats {
    int64_t steps, rows, prompt_tokens, new_tokens;
    int64_t model_draws; /* how many of new_tokens the model drew (lf_gen_draws) */
    /* tokens of prompts that were not computed, because another sequence had them */
    int64_t shared_tokens;
    int64_t ahead; /* steps that began before the answers of the step before were read */
    int64_t drafted, accepted; /* tokens that a head guessed and a step computed; those drawn */
    double seconds;
};

/* Makes jobs those of an encoder-decoder, where the model is one: the prompt, or where nothing is
 * generated what stands before the first token that is scored, becomes the source, and what the
 * decoder begins with the prompt. tokens, of the caller, gets the prompts; it has room for
 * lf_gen_source_room. Jobs that have sources stay what they are. */
size_t lf_gen_source_room(const lf_gen_job *jobs, size_t n_jobs);
void lf_gen_read_sources(const lf_gen_model *m, lf_gen_job *jobs, size_t n_jobs, int32_t *tokens);
/* Checks the jobs. LF_EINVAL: a job does not fit the model, its cache or the tokenizer; the message
 * names it. */
int lf_gen_check(const lf_gen_model *m, const lf_tokenizer *tok, const lf_gen_job *jobs,
                 size_t n_jobs, lf_err *err);

/* The work of lf_gen_run; the caller owns all of it. */
struct lf_gen_work {
    const lf_tokenizer *tok; /* may be NULL when no job has stop strings: text stays empty */
    const lf_gen_job *jobs;
    size_t n_jobs;
    lf_gen_sink sink;
    void *arg;          /* of sink */
    bool (*stop)(void); /* called between two steps; may be NULL */
};

/* Checks and runs all jobs. stats may be NULL. LF_EINTR: stop() returned true; delivered results
 * stay delivered. LF_ENUMERIC: logits are not finite. */
int lf_gen_run(const lf_gen_model *m, const struct lf_gen_work *w, struct lf_gen_stats *stats,
               lf_err *err);

#endif
