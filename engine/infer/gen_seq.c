/* SPDX-License-Identifier: Apache-2.0
 *
 * One sequence of a generation run; see gen_priv.h.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/infer/beam.h"
#include "engine/infer/gen_priv.h"

const char *lf_finish_name(enum lf_finish f)
{
    static const char *const names[] = {"stop", "length", "error"};
    return names[f];
}

size_t lf_gen_most_tokens(const lf_gen_model *m, const lf_gen_job *j)
{
    size_t cap = j->n_prompt + (size_t)j->max_tokens, most = (size_t)m->max_context;
    if (j->max_tokens == 0)
        return cap;
    return cap < most ? cap : most;
}

size_t lf_gen_pages_for(const lf_gen_model *m, size_t tokens)
{
    return (tokens + (size_t)m->page_tokens - 1) / (size_t)m->page_tokens;
}

/* ---- checks
 * ----------------------------------------------------------------------------------------- */

static int check_ids(const lf_gen_model *m, const int32_t *ids, size_t n, lf_err *err)
{
    for (size_t k = 0; k < n; k++)
        if (ids[k] < 0 || ids[k] >= m->vocab)
            return lf_fail(err, LF_EINVAL, "token %d is outside the vocabulary of %lld",
                           (int)ids[k], (long long)m->vocab);
    return 0;
}

static int check_limits(const lf_gen_model *m, const lf_sample_limits *l, lf_err *err)
{
    int rc = check_ids(m, l->bias_ids, l->n_bias, err);
    if (rc != 0)
        return lf_err_prefix(err, "logit_bias");
    if ((rc = check_ids(m, l->allowed, l->n_allowed, err)))
        return lf_err_prefix(err, "allowed_token_ids");
    for (size_t i = 0; i < l->n_bad; i++)
        if (l->bad_len[i] == 0 || check_ids(m, l->bad[i], l->bad_len[i], err))
            return lf_fail(err, LF_EINVAL, "bad_words: entry %zu is not in the vocabulary", i + 1);
    return 0;
}

/* Room in context, cache and step. A prompt that is only scored is read but for its last token. */
static int check_size(const lf_gen_model *m, const lf_gen_job *j, lf_err *err)
{
    if (j->n_prompt >= (size_t)m->max_context + (j->max_tokens == 0 ? 2 : 0))
        return lf_fail(err, LF_EINVAL,
                       "the prompt has %zu tokens, the model's context is %lld with room for one "
                       "more; shorten "
                       "it, or set truncate_prompt_tokens = %lld to keep its end",
                       j->n_prompt, (long long)m->max_context, (long long)(m->max_context + 1) / 2);
    size_t tokens = lf_gen_most_tokens(m, j) - (j->max_tokens == 0),
           pages = lf_gen_pages_for(m, tokens);
    if (pages > (size_t)m->n_pages || pages > (size_t)m->max_pages)
        return lf_fail(
            err, LF_EINVAL,
            "%zu tokens need %zu pages, the cache has %lld; raise kv_tokens or lower max_tokens",
            tokens, pages, (long long)m->n_pages);
    if (m->prefix && gen_prefix_of(m, j) > (size_t)m->max_rows)
        return lf_fail(err, LF_EINVAL,
                       "the prompt has %zu tokens that see each other and need one step of at "
                       "most %lld rows; raise step_rows",
                       gen_prefix_of(m, j), (long long)m->max_rows);
    return 0;
}

/* A run of tokens that see each other needs one step. */
static int check_runs(const lf_gen_model *m, const lf_gen_job *j, lf_err *err)
{
    if (!m->runs || !j->media)
        return 0;
    if (!j->media->runs)
        return lf_fail(
            err, LF_EINVAL,
            "the tokens of this model's pictures see each other, and the prompt does not "
            "say which they are");
    for (size_t i = 0; i < j->n_prompt; i++) {
        const int32_t n = j->media->runs[2 * i + 1] - j->media->runs[2 * i];
        if (n > m->max_rows)
            return lf_fail(err, LF_EINVAL,
                           "a picture has %d tokens, which see each other and need one step of at "
                           "most %lld rows; raise step_rows",
                           n, (long long)m->max_rows);
    }
    return 0;
}

size_t lf_gen_source_room(const lf_gen_job *jobs, size_t n_jobs)
{
    size_t n = 0;
    for (size_t i = 0; i < n_jobs; i++)
        n += jobs[i].n_prompt + 1;
    return n;
}

void lf_gen_read_sources(const lf_gen_model *m, lf_gen_job *jobs, size_t n_jobs, int32_t *tokens)
{
    for (size_t i = 0; i < n_jobs && m->max_source > 0; i++) {
        lf_gen_job *j = &jobs[i];
        const size_t n = j->max_tokens > 0 ? j->n_prompt : j->prompt_first;
        if (j->source || n > j->n_prompt)
            continue;
        j->source = j->prompt;
        j->n_source = n;
        tokens[0] = m->decoder_start;
        memcpy(tokens + 1, j->prompt + n, (j->n_prompt - n) * sizeof *tokens);
        j->prompt = tokens;
        j->n_prompt = j->n_prompt - n + 1;
        j->prompt_first = 1;
        tokens += j->n_prompt;
    }
}

static int check_source(const lf_gen_model *m, const lf_gen_job *j, lf_err *err)
{
    if (!m->max_source)
        return j->source ? lf_fail(err, LF_EINVAL, "a source is read by encoder-decoders alone")
                         : 0;
    if (!j->source || !j->n_source)
        return lf_fail(err, LF_EINVAL, "an encoder-decoder answers a source, and there is none");
    if (j->n_source > (size_t)m->max_source)
        return lf_fail(err, LF_EINVAL,
                       "the source has %zu tokens, the encoder reads %lld; shorten it, or set "
                       "truncate_prompt_tokens",
                       j->n_source, (long long)m->max_source);
    if (j->prompt_logprobs && j->max_tokens > 0)
        return lf_fail(err, LF_EINVAL,
                       "prompt_logprobs: the prompt of an encoder-decoder is its source, which has "
                       "no probability");
    for (size_t i = 0; i < j->n_source; i++)
        if (j->source[i] < 0 || j->source[i] >= m->vocab)
            return lf_fail(err, LF_EINVAL, "token %d is outside the vocabulary of %lld",
                           (int)j->source[i], (long long)m->vocab);
    return 0;
}

static int check_job(const lf_gen_model *m, const lf_tokenizer *tok, const lf_gen_job *j,
                     lf_err *err)
{
    if (j->n_prompt == 0)
        return lf_fail(err, LF_EINVAL, "the prompt has no tokens");
    if (j->max_tokens < 1 && !(j->max_tokens == 0 && j->prompt_logprobs && j->n_prompt > 1))
        return lf_fail(err, LF_EINVAL, "max_tokens must be 1 or more");
    if (j->prompt_logprobs && j->max_tokens > 0 && m->prefix)
        return lf_fail(err, LF_EINVAL,
                       "prompt_logprobs: the tokens of this model's prompts see each other, so "
                       "they have no probability");
    if (j->prompt_logprobs && j->max_tokens > 0 && m->runs && j->media)
        return lf_fail(err, LF_EINVAL,
                       "prompt_logprobs: the tokens of this model's pictures see each other, so "
                       "they have no probability");
    if (j->max_tokens == 0 && gen_is_picture(j, j->n_prompt - 1))
        return lf_fail(err, LF_EINVAL, "nothing is scored behind the last picture");
    if (j->media && !(m->feature_width && m->features))
        return lf_fail(err, LF_EINVAL, "the prompt has pictures, which this model does not see");
    int rc = check_source(m, j, err);
    if (rc == 0)
        rc = check_size(m, j, err);
    if (rc == 0)
        rc = check_runs(m, j, err);
    if (rc == 0)
        rc = check_ids(m, j->prompt, j->n_prompt, err);
    if (rc == 0)
        rc = check_ids(m, j->last_ids, j->n_last, err);
    if (rc == 0 && (j->first_token > m->vocab || j->last_token > m->vocab))
        rc = lf_fail(err, LF_EINVAL, "%s: token %lld is outside the vocabulary of %lld",
                     j->first_token > m->vocab ? "first_token" : "last_token",
                     (long long)(j->first_token > m->vocab ? j->first_token : j->last_token) - 1,
                     (long long)m->vocab);
    if (rc == 0)
        rc = check_limits(m, &j->limits, err);
    if (rc == 0 && j->n_stop > 0 && !tok)
        rc = lf_fail(err, LF_EINVAL, "stop strings need a tokenizer");
    if (rc == 0)
        rc = lf_beam_check(m, j, err);
    return rc != 0 ? rc : lf_sample_check(&j->params, err);
}

int lf_gen_check(const lf_gen_model *m, const lf_tokenizer *tok, const lf_gen_job *jobs,
                 size_t n_jobs, lf_err *err)
{
    for (size_t i = 0; i < n_jobs; i++)
        if (check_job(m, tok, &jobs[i], err))
            return lf_err_prefix(err, "request '%s'", jobs[i].id);
    return 0;
}

/* ---- life
 * ----------------------------------------------------------------------------------------- */

void lf_gen_seq_free(gen_seq *s)
{
    if (!s)
        return;
    free(s->tok);
    free(s->logprob);
    free(s->top_ids);
    free(s->top_logprob);
    free(s->pages);
    free(s->prompt_logprob);
    free(s->prompt_greedy);
    free(s->prompt_top_ids);
    free(s->prompt_top_logprob);
    free(s->last_logprob);
    lf_tok_stream_drop(&s->stream);
    lf_buf_fini(&s->text);
    if (s->features && --s->features->holders == 0)
        free(s->features);
    free(s);
}

/* Room for what is reported of the prompt. */
static int create_prompt(gen_seq *s, lf_err *err)
{
    const lf_gen_job *j = s->job;
    size_t top = j->n_prompt * (size_t)(j->prompt_top > 0 ? j->prompt_top : 0);
    s->prompt_logprob = lf_calloc(j->n_prompt, sizeof *s->prompt_logprob, err);
    s->prompt_greedy = lf_calloc(j->n_prompt, sizeof *s->prompt_greedy, err);
    s->prompt_top_ids = lf_calloc(top, sizeof *s->prompt_top_ids, err);
    s->prompt_top_logprob = lf_calloc(top, sizeof *s->prompt_top_logprob, err);
    s->last_logprob = lf_calloc(j->n_last, sizeof *s->last_logprob, err);
    return s->prompt_logprob && s->prompt_greedy && s->prompt_top_ids && s->prompt_top_logprob &&
                   s->last_logprob
               ? 0
               : LF_ENOMEM;
}

gen_seq *lf_gen_seq_create(const lf_gen_model *m, const lf_gen_job *j, lf_err *err)
{
    gen_seq *s = lf_calloc(1, sizeof *s, err);
    if (!s)
        return NULL;
    lf_buf_init(&s->text);
    s->job = j;
    s->vocab = m->vocab;
    s->stop_token = s->last_best = s->draft = -1;
    s->cap_tok = lf_gen_most_tokens(m, j);
    size_t new_cap = s->cap_tok - j->n_prompt,
           top = new_cap * (size_t)(j->top_logprobs > 0 ? j->top_logprobs : 0);
    s->n_pages = lf_gen_pages_for(m, s->cap_tok - (j->max_tokens == 0));
    s->tok = lf_calloc(s->cap_tok, sizeof *s->tok, err);
    s->logprob = lf_calloc(new_cap, sizeof *s->logprob, err);
    s->top_ids = lf_calloc(top, sizeof *s->top_ids, err);
    s->top_logprob = lf_calloc(top, sizeof *s->top_logprob, err);
    s->pages = lf_calloc(s->n_pages, sizeof *s->pages, err);
    if (!s->tok || !s->logprob || !s->top_ids || !s->top_logprob || !s->pages ||
        (j->prompt_logprobs && create_prompt(s, err))) {
        lf_gen_seq_free(s);
        return NULL;
    }
    memcpy(s->tok, j->prompt, j->n_prompt * sizeof *s->tok);
    s->n_tok = j->n_prompt;
    return s;
}

/* ---- tokens
 * ----------------------------------------------------------------------------------------- */

/* Index of an end token, n_end for none. */
static size_t which_end(const lf_gen_job *j, int32_t token)
{
    size_t i = 0;
    while (i < j->n_end && j->end[i] != token)
        i++;
    return i;
}

static void note_top(int64_t vocab, const float *logits, float lse, size_t top, int32_t *ids,
                     float *logprobs)
{
    size_t n = lf_top_logits(logits, vocab, top, ids);
    for (size_t i = 0; i < top; i++) {
        if (i >= n)
            ids[i] = -1;
        else
            logprobs[i] = logits[ids[i]] - lse;
    }
}

int32_t lf_gen_forced(const lf_gen_job *j, size_t index, size_t most)
{
    const int64_t token = index == 0 && j->first_token ? j->first_token
                          : index + 1 == most          ? j->last_token
                                                       : 0;
    return (int32_t)token - 1;
}

bool lf_gen_repeats(const lf_gen_job *j, const int32_t *tok, size_t n, size_t *at, int32_t *token)
{
    const size_t gram = (size_t)(j->no_repeat > 0 ? j->no_repeat : 0);
    while (gram > 0 && *at + gram <= n) {
        const int32_t *past = tok + (*at)++;
        *token = past[gram - 1];
        if (memcmp(past, tok + n - (gram - 1), (gram - 1) * sizeof *tok) == 0)
            return true;
    }
    return false;
}

/* Forbids what this place of the output forbids; whether lf_sampler_allow_all must follow the
 * draw. */
static bool forbid(const gen_seq *s, size_t index)
{
    const lf_gen_job *j = s->job;
    const bool early = index < (size_t)(j->min_tokens > 0 ? j->min_tokens : 0);
    if (early)
        lf_sampler_forbid(s->sampler, j->end, j->n_end);
    int32_t again;
    for (size_t at = 0; lf_gen_repeats(j, s->tok, s->n_tok, &at, &again);)
        lf_sampler_forbid(s->sampler, &again, 1);
    lf_sampler_forbid_bad(s->sampler, s->tok + j->n_prompt, index);
    return early || j->limits.n_bad > 0 || j->no_repeat > 0;
}

int32_t lf_gen_seq_draw(const gen_seq *s, const float *logits)
{
    const lf_gen_job *j = s->job;
    const size_t index = s->n_tok - j->n_prompt;
    const int32_t forced = lf_gen_forced(j, index, (size_t)j->max_tokens);
    if (forced >= 0)
        return forced;
    const bool guard = forbid(s, index);
    int32_t token = lf_sampler_draw(s->sampler, &j->params, logits, j->seed, index);
    if (guard)
        lf_sampler_allow_all(s->sampler);
    return token;
}

/* Does it choose tokens by what only the host knows? */
static bool is_bound(const lf_gen_job *j)
{
    return j->limits.n_bias > 0 || j->limits.n_allowed > 0 || j->limits.n_bad > 0 ||
           j->no_repeat > 0 || j->first_token > 0 || j->last_token > 0;
}

static bool penalises(const lf_sample_params *p)
{
    return p->repetition_penalty != 1.0 || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

bool lf_gen_seq_ask(const gen_seq *s, lf_gen_draws *d, int64_t i)
{
    const lf_gen_job *j = s->job;
    const size_t index = gen_seq_length(s) - j->n_prompt;
    if (j->top_logprobs > 0 || j->no_repeat > 0 ||
        lf_gen_forced(j, index, (size_t)j->max_tokens) >= 0)
        return false;
    const bool guard = forbid(s, index), noted = penalises(&j->params) && d->room > 0;
    const size_t at = (size_t)s->slot * d->room;
    const int64_t n = lf_sampler_row(s->sampler, &j->params, j->seed, index, &d->row[i],
                                     d->list + at, d->room - noted);
    if (guard)
        lf_sampler_allow_all(s->sampler);
    if (n < 0)
        return false;
    d->row[i].list_at = (int32_t)at;
    d->row[i].on = noted ? LF_SAMPLE_NOTE : 1;
    return true;
}

bool lf_gen_seq_guessed(const gen_seq *s)
{
    const lf_gen_job *j = s->job;
    return !(j->params.temperature > 0) && !penalises(&j->params) && !is_bound(j) &&
           j->min_tokens <= 0 && !j->media && !j->prompt_logprobs && j->max_tokens > 0;
}

bool lf_gen_seq_alone(const gen_seq *s, const lf_gen_model *m)
{
    const lf_gen_job *j = s->job;
    const bool listed = j->min_tokens <= 0 || j->n_end <= m->draws->room;
    return !s->by_host && !penalises(&j->params) && !is_bound(j) && listed &&
           j->top_logprobs == 0 && !j->prompt_logprobs;
}

void lf_gen_seq_note_prompt(gen_seq *s, size_t at, const float *logits, float lse)
{
    const lf_gen_job *j = s->job;
    size_t top = (size_t)(j->prompt_top > 0 ? j->prompt_top : 0), to = at + 1;
    int32_t best = -1, token = j->prompt[to];
    lf_top_logits(logits, s->vocab, 1, &best);
    s->prompt_logprob[to] = logits[token] - lse;
    s->prompt_greedy[to] = best == token;
    note_top(s->vocab, logits, lse, top, s->prompt_top_ids + to * top,
             s->prompt_top_logprob + to * top);
    if (to + 1 < j->n_prompt)
        return;
    s->last_best = best;
    for (size_t i = 0; i < j->n_last; i++)
        s->last_logprob[i] = logits[j->last_ids[i]] - lse;
}

int lf_gen_seq_check_prompt(const gen_seq *s, size_t at, lf_err *err)
{
    bool good = isfinite(s->prompt_logprob[at + 1]);
    for (size_t i = 0; at + 2 == s->job->n_prompt && i < s->job->n_last; i++)
        good = good && isfinite(s->last_logprob[i]);
    if (good)
        return 0;
    return lf_fail(err, LF_ENUMERIC,
                   "request '%s': the log-probability of token %zu of the prompt is not finite; "
                   "the weights are damaged "
                   "or diverged",
                   s->job->id, at + 1);
}

/* First stop string in the text from `from` on; SIZE_MAX for none. */
static size_t find_stop(gen_seq *s, size_t from)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < s->job->n_stop; i++) {
        size_t n = strlen(s->job->stop[i]), start = from + 1 > n ? from + 1 - n : 0;
        if (n == 0 || s->text.len < n)
            continue;
        const char *hit = memmem(s->text.data + start, s->text.len - start, s->job->stop[i], n);
        if (hit && (size_t)(hit - s->text.data) < best) {
            best = (size_t)(hit - s->text.data);
            s->stop_reason = s->job->stop[i];
        }
    }
    return best;
}

/* Look for stop strings that what came behind text[from) may have completed, and end the text at
 * one. */
static bool stop_text(gen_seq *s, size_t from)
{
    size_t at = find_stop(s, from);
    if (at == SIZE_MAX)
        return false;
    if (s->job->stop_text != LF_STOP_WHOLE) {
        s->text.len = at + (s->job->stop_text == LF_STOP_INCLUDE ? strlen(s->stop_reason) : 0);
        s->text.data[s->text.len] = 0;
    }
    lf_tok_stream_drop(&s->stream);
    return true;
}

/* Text of a new token; *stopped when a stop string is met. The stream holds back what is not yet a
 * whole character, and the text of a sequence leaves with its result alone, so that no part of a
 * stop string is ever given out. */
static int grow_text(gen_seq *s, const lf_tokenizer *tok, int32_t token, bool *stopped, lf_err *err)
{
    *stopped = false;
    if (!tok)
        return 0;
    size_t before = s->text.len;
    int rc =
        lf_tok_stream_push(&s->stream, tok, (uint32_t)token, s->job->skip_special, &s->text, err);
    if (rc == 0)
        rc = lf_buf_check(&s->text, err);
    if (rc == 0 && (int64_t)(s->n_tok - s->job->n_prompt) > s->job->min_tokens)
        *stopped = stop_text(s, before);
    return rc;
}

int lf_gen_seq_advance(gen_seq *s, const lf_tokenizer *tok, struct lf_sample_out drawn,
                       const float *logits, float lse, bool *ended, lf_err *err)
{
    const lf_gen_job *j = s->job;
    const int32_t token = drawn.token;
    size_t index = s->n_tok - j->n_prompt,
           top = (size_t)(j->top_logprobs > 0 ? j->top_logprobs : 0);
    bool stopped = false;
    *ended = true;
    if (token < 0)
        return lf_fail(err, LF_ENUMERIC,
                       "request '%s': no finite logit for token %zu of the output; the weights are "
                       "damaged or diverged, "
                       "or no token is allowed",
                       j->id, index);
    if (!isfinite(drawn.logp)) /* some other logit is not a number */
        return lf_fail(err, LF_ENUMERIC,
                       "request '%s': the log-probability of token %zu of the output is not "
                       "finite; the weights are "
                       "damaged or diverged",
                       j->id, index);
    lf_sampler_accept(s->sampler, token);
    s->logprob[index] = drawn.logp;
    if (top > 0)
        note_top(s->vocab, logits, lse, top, s->top_ids + index * top,
                 s->top_logprob + index * top);
    s->tok[s->n_tok++] = token;
    size_t end = which_end(j, token);
    s->finish = LF_FINISH_STOP;
    if (end < j->n_end) {
        s->stop_token = end < j->n_end_asked ? token : -1;
        return j->stop_text == LF_STOP_CUT ? 0 : grow_text(s, tok, token, &stopped, err);
    }
    int rc = grow_text(s, tok, token, &stopped, err);
    if (rc == 0 && !stopped) {
        s->finish = LF_FINISH_LENGTH;
        *ended = s->n_tok == s->cap_tok;
    }
    return rc;
}

void lf_gen_seq_finish(gen_seq *s, const lf_tokenizer *tok)
{
    size_t before = s->text.len;
    if (!tok || s->stop_reason)
        return;
    if (lf_tok_stream_finish(&s->stream, tok, &s->text, NULL) != 0)
        s->text.failed = true;
    if (s->text.len > before && !s->text.failed && stop_text(s, before))
        s->finish = LF_FINISH_STOP; /* completed by what was held back */
}

int lf_gen_seq_deliver(const gen_seq *s, lf_gen_sink sink, void *arg, lf_err *err)
{
    const size_t p = s->job->n_prompt;
    const lf_gen_result r = {.job = s->job,
                             .tokens = s->tok + p,
                             .logprobs = s->logprob,
                             .n = s->n_tok - p,
                             .top_ids = s->top_ids,
                             .top_logprobs = s->top_logprob,
                             .text = s->text.data,
                             .text_len = s->text.len,
                             .finish = s->finish,
                             .stop_reason = s->stop_reason,
                             .stop_token = s->stop_token,
                             .prompt_logprobs = s->prompt_logprob,
                             .prompt_greedy = s->prompt_greedy,
                             .prompt_top_ids = s->prompt_top_ids,
                             .prompt_top_logprobs = s->prompt_top_logprob,
                             .last_logprobs = s->last_logprob,
                             .last_best = s->last_best};
    const int rc = lf_buf_check(&s->text, err);
    return rc != 0 ? rc : sink(arg, &r, err);
}
