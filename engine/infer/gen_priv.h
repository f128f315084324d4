/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that gen.c (choosing what runs) and gen_seq.c (one sequence: tokens, text,
 * log-probabilities) share.
 */
#ifndef LF_INFER_GEN_PRIV_H
#define LF_INFER_GEN_PRIV_H

#include "engine/infer/gen.h"

/* Features of pictures, which samples of one prompt share. */
struct gen_features {
    int holders;
    const void *pictures;
    int64_t width;
    float row[];
};

/* One sequence, from admission to delivery. */
typedef struct gen_seq {
    const lf_gen_job *job;
    int64_t vocab;  /* of the model: logits per row */
    int32_t *tok;   /* prompt then output */
    float *logprob; /* of output tokens */
    int32_t *top_ids;
    float *top_logprob;
    size_t n_tok, cap_tok; /* cap_tok: prompt + the most tokens that it may generate */
    size_t cached;
    /* 0: all tokens of the sequence are known here. i + 1: the newest step draws its next token
     * for wanted row i, and the host does not know that token yet */
    int32_t coming;
    bool by_host;  /* the model left the next token to the host */
    int32_t draft; /* guess of the token that is drawn next; -1: none */
    int64_t slot;  /* -1 once it has finished */
    lf_sampler *sampler;
    lf_tok_stream stream;
    lf_buf text;
    enum lf_finish finish;
    const char *stop_reason;
    int32_t stop_token;
    int32_t *pages;
    size_t n_pages;
    /* n_shared: pages that the sequence counts as cached although another sequence fills them.
     * n_ready: how many of these are known to be full */
    size_t n_shared, n_ready;
    /* NULL unless requested */
    float *prompt_logprob, *prompt_top_logprob, *last_logprob;
    uint8_t *prompt_greedy;
    int32_t *prompt_top_ids;
    int32_t last_best;
    struct gen_features *features; /* NULL: no pictures */
} gen_seq;

size_t lf_gen_most_tokens(const lf_gen_model *m, const lf_gen_job *j);
size_t lf_gen_pages_for(const lf_gen_model *m, size_t tokens);

gen_seq *lf_gen_seq_create(const lf_gen_model *m, const lf_gen_job *j, lf_err *err);
void lf_gen_seq_free(gen_seq *s);

/* Returns how many tokens the sequence has, known to the host or not. */
static inline size_t gen_seq_length(const gen_seq *s)
{
    return s->n_tok + (s->coming > 0);
}

/* Returns how many tokens must have keys and values in the cache before the next token can be
 * drawn: first those of the prompt, later all up to the token drawn last. Nothing is drawn behind
 * the last token that the sequence may have. */
static inline size_t gen_seq_goal(const gen_seq *s)
{
    const size_t n = gen_seq_length(s);
    return s->coming && n == s->cap_tok ? s->n_tok : n - (s->job->max_tokens == 0);
}

/* Is token i of the prompt a placeholder of its pictures? */
static inline bool gen_is_picture(const lf_gen_job *j, size_t i)
{
    return j->media && i < j->n_prompt && j->media->feature[i] >= 0;
}

/* Are the logits behind token `at` needed? */
static inline bool gen_seq_wants(const gen_seq *s, size_t at)
{
    const lf_gen_job *j = s->job;
    if (at + 1 == gen_seq_length(s))
        return true; /* and once of the prompt, which a sequence may read again
                        (lf_gen_model.switching) */
    return j->prompt_logprobs && s->n_tok == j->n_prompt && at + 1 < j->n_prompt &&
           at + 1 >= j->prompt_first && !(j->max_tokens == 0 && gen_is_picture(j, at + 1));
}

/* Tokens of a prompt that see each other, for a model with a prefix. */
static inline size_t gen_prefix_of(const lf_gen_model *m, const lf_gen_job *j)
{
    const size_t scored = j->prompt_first > 1 ? j->prompt_first : 1;
    return (j->max_tokens == 0 ? scored : j->n_prompt) - 1 + m->prefix_last;
}

/* Draws the next token of the output from its row of logits. It changes only the sampler of the
 * sequence. */
int32_t lf_gen_seq_draw(const gen_seq *s, const float *logits);
/* Requests the next token of the sequence from the model, as wanted row i of a step. false: the
 * host must draw it. */
bool lf_gen_seq_ask(const gen_seq *s, lf_gen_draws *d, int64_t i);
/* Can the model draw the tokens of the sequence before the host knows the earlier ones? */
bool lf_gen_seq_alone(const gen_seq *s, const lf_gen_model *m);
/* May the next tokens be guessed? */
bool lf_gen_seq_guessed(const gen_seq *s);
/* Records the log-probability of token at + 1 of the prompt from the row of logits behind token at
 * < n_prompt - 1. It changes only the sequence.
 */
void lf_gen_seq_note_prompt(gen_seq *s, size_t at, const float *logits, float lse);
/* Checks what lf_gen_seq_note_prompt recorded. LF_ENUMERIC: it is not finite. */
int lf_gen_seq_check_prompt(const gen_seq *s, size_t at, lf_err *err);
/* Appends a drawn token. *ended tells that the sequence has ended, and s->finish why. tok may be
 * NULL; logits and lse are read where alternatives are reported. */
int lf_gen_seq_advance(gen_seq *s, const lf_tokenizer *tok, struct lf_sample_out drawn,
                       const float *logits, float lse, bool *ended, lf_err *err);
/* Completes the text. */
void lf_gen_seq_finish(gen_seq *s, const lf_tokenizer *tok);
/* Gives a finished sequence to the sink. */
int lf_gen_seq_deliver(const gen_seq *s, lf_gen_sink sink, void *arg, lf_err *err);

#endif
