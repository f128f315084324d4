/* SPDX-License-Identifier: Apache-2.0
 *
 * Batched generation: which sequence gets which rows of which step. Knows nothing of graphs: a
 * model is a step function over a paged KV cache (engine/infer/cache.h makes one from a decoder).
 *
 * Continuous batching. A job takes a slot and all the pages it can ever need, so nothing is
 * evicted; a step carries one row for every sequence that decodes and fills up with rows of prompts
 * (chunked prefill). Because every kernel behind the step function gives a row the same bits
 * whatever stands beside it, and a draw depends on (seed of the sequence, index of the token)
 * alone, results do not depend on slots, chunk size, order or threads.
 *
 * Full pages of a common beginning of two prompts that run together are computed once and held by
 * both: n samples of a request, requests behind the same examples, continuations of one context.
 *
 * Where the model can (begin, end), the host reads a step behind: the token of a step goes into the
 * next one where it was drawn. Who ended with it has computed one row in vain. As long as a running
 * sequence needs the host between two tokens (penalties, bad_words, biases, alternatives, a draw
 * that the model left to the host), each step is waited for. Either way the tokens are the same.
 *
 * The log-probability of a token is that of the model's own distribution: logit -
 * logsumexp(logits), before penalties, temperature and cuts. That of a token of the prompt is
 * p(token | the tokens before it), so a job that generates nothing (max_tokens 0) scores a text,
 * with the bits of lf_score_run.
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
 * may share pages (full pages of a common prompt); only one of them writes there. The arrays are
 * lent for the call. */
struct lf_gen_rows {
    int64_t n;
    const int32_t *token, *pos, *seq; /* [n] */
    const int32_t *table;             /* [slots, max_pages] */
    int64_t n_want;
    const int32_t *want; /* [n_want] */
};
struct lf_gen_logits {
    const float *z; /* [n_want, vocab], rows ld apart */
    int64_t ld;
    const float *lse; /* [n_want] */
};
struct lf_profile; /* engine/graph/profile.h */
/* Draws that a model makes itself, where its logits are. lf_gen_run asks before a step, for each of
 * the wanted rows in their order; the step answers. What is not asked or not answered is drawn from
 * the row's logits by lf_sampler_draw: the same token. */
typedef struct lf_gen_draws {
    int64_t vocab; /* of the run: at most that of the logits, tokens behind it are not drawn */
    struct lf_sample_row *row; /* [slots]; on 0: the logits are wanted instead */
    /* [slots, room] the list of a slot's sequence. What stands here before a step is the whole
     * list; a step with LF_SAMPLE_NOTE changes it as kernels.h says, for the model alone. */
    struct lf_sample_token *list;
    size_t room;
    /* [slots] LF_SAMPLE_NONE, LF_SAMPLE_HOST: the row's logits are in lf_gen_logits, else they
     * need not be */
    struct lf_sample_out *out;
} lf_gen_draws;
enum { LF_GEN_AHEAD = 2 }; /* steps of a model that are begun and not ended, at most */
typedef struct lf_gen_model {
    void *ctx;
    struct lf_profile *profile; /* gets a span for each step and its draws; NULL: none */
    int64_t vocab;              /* logits per row */
    int64_t max_context;        /* positions a sequence may have */
    int64_t slots;              /* sequences at a time */
    int64_t max_rows;           /* rows of a step */
    int64_t page_tokens;        /* positions of a page */
    int64_t n_pages;            /* pages of the cache, all slots together */
    int64_t max_pages;          /* entries per slot of the page table */
    /* NULL, or the model's [slots]: gets the prefix of each slot, all of a prompt but its last
     * token, whose tokens see each other; then a step has the rest of a prefix as a whole or
     * nothing of it */
    int32_t *prefix;
    /* longrope: the angles of all tokens of a sequence follow from its length, which is the
     * prompt's and max_tokens together, known when it begins. switching, an oracle for comparisons:
     * it is what the sequence has, as transformers has it; a sequence that grows beyond is computed
     * again from its first token on. */
    int64_t switch_at; /* sequences of more tokens are long */
    uint8_t *is_long;  /* NULL: no longrope; or the model's [slots]: is the sequence long? */
    bool switching;
    lf_gen_draws *draws; /* NULL, or the model's: it can draw */
    /* *out is borrowed until the next step. */
    int (*step)(void *ctx, const struct lf_gen_rows *rows, struct lf_gen_logits *out, lf_err *err);
    /* Both or none, and only with draws: a step whose answers come later, so that the next one is
     * under way when they are read. begin is step() without logits; draws->row and list are free
     * when it returns. token[r] < 0 stands for the token that the step begun before this one draws
     * for its wanted row -1 - token[r]; where it draws none, row r means nothing, and is not read
     * again. end: the oldest step's answers (lf_gen_draws.out). Neither is called with a step()
     * between begin and end. */
    int (*begin)(void *ctx, const struct lf_gen_rows *rows, lf_err *err);
    int (*end)(void *ctx, struct lf_sample_out *out, lf_err *err);
} lf_gen_model;

enum lf_finish { LF_FINISH_STOP = 0, LF_FINISH_LENGTH, LF_FINISH_ERROR };
const char *lf_finish_name(enum lf_finish f); /* "stop", "length", "error" */

/* What to generate; borrowed until its result was delivered. */
typedef struct lf_gen_job {
    const char *id;
    size_t request;        /* index of its request; for the caller */
    uint32_t sample;       /* index among the samples of the same prompt */
    const int32_t *prompt; /* at least one token */
    size_t n_prompt;
    lf_sample_params params;
    lf_sample_limits limits;
    int64_t max_tokens; /* >= 1, or 0 with prompt_logprobs: nothing is generated */
    int64_t min_tokens; /* the end tokens are forbidden, stop strings not looked for, before */
    /* tokens that end the sequence; kept in `tokens`, in the text unless it is cut */
    const int32_t *end;
    size_t n_end;
    size_t n_end_asked;      /* the first so many of end are reported as stop_token */
    const char *const *stop; /* strings that end it */
    size_t n_stop;
    /* the text ends before the string, behind it, or with the token that completed it */
    enum lf_stop_text { LF_STOP_CUT = 0, LF_STOP_INCLUDE, LF_STOP_WHOLE } stop_text;
    uint64_t seed;        /* of this sequence: lf_sample_seed() */
    int top_logprobs;     /* alternatives reported per token */
    bool skip_special;    /* leave special tokens out of the text */
    bool prompt_logprobs; /* report tokens prompt_first.. of the prompt, too */
    size_t prompt_first;  /* 0 is read as 1: nothing is before the first token */
    int prompt_top;       /* alternatives reported for each of them */
    /* [n_last] tokens scored in the place of the prompt's last one, beside it */
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
    const char *stop_reason; /* the stop string met, or NULL */
    int32_t stop_token;      /* the end token met among the first n_end_asked, or -1 */
    /* [n_prompt], from prompt_first on; NULL when not asked for, as the rest here */
    const float *prompt_logprobs;
    const uint8_t *prompt_greedy;     /* [n_prompt] is it the largest logit (lowest id on ties)? */
    const int32_t *prompt_top_ids;    /* [n_prompt, prompt_top] */
    const float *prompt_top_logprobs; /* [n_prompt, prompt_top] */
    const float *last_logprobs;       /* [n_last] */
    int32_t last_best;                /* id of the largest logit in the last token's place */
} lf_gen_result;

/* Results come in the order of the jobs. A negative return stops the run and is returned. */
typedef int (*lf_gen_sink)(void *arg, const lf_gen_result *r, lf_err *err);

struct lf_gen_stats {
    int64_t steps, rows, prompt_tokens, new_tokens;
    int64_t model_draws;   /* of new_tokens, drawn by the model (lf_gen_draws) */
    int64_t shared_tokens; /* of prompts, not computed because another sequence had them */
    int64_t ahead;         /* of steps, begun before the answers of the one before were read */
    double seconds;
};

/* LF_EINVAL names a job that does not fit the model, its cache or the tokenizer. */
int lf_gen_check(const lf_gen_model *m, const lf_tokenizer *tok, const lf_gen_job *jobs,
                 size_t n_jobs, lf_err *err);

/* What a run does, and for whom; all of it is the caller's. */
struct lf_gen_work {
    const lf_tokenizer *tok; /* may be NULL when no job has stop strings: text stays empty */
    const lf_gen_job *jobs;
    size_t n_jobs;
    lf_gen_sink sink;
    void *arg;          /* of sink */
    bool (*stop)(void); /* asked between two steps; NULL: never */
};

/* Run all jobs. LF_EINTR when stop() said so: what was delivered stays delivered. Checks before
 * anything is run. LF_ENUMERIC: logits that are not finite. stats may be NULL. */
int lf_gen_run(const lf_gen_model *m, const struct lf_gen_work *w, struct lf_gen_stats *stats,
               lf_err *err);

#endif
