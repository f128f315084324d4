/* SPDX-License-Identifier: Apache-2.0
 *
 * Continuous batching. Invariants:
 *   1. A sequence holds ceil((n_prompt + max_new) / page_tokens) pages from admission to the end. Samples of one prompt that run
 *      together hold its full pages together: the one admitted first (the leader) fills them, the others only read them and wait
 *      until they are filled. Every other page belongs to one sequence.
 *   2. cached <= n_tok: tokens [0, cached) have keys and values in the cache; a token is drawn only when cached == n_tok.
 *   3. Results leave in job order; a finished sequence waits in `done` until its turn, its slot and pages are free at once.
 */
#include "engine/infer/gen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"

#define PARALLEL_DRAW 4096 /* vocabulary from which draws are shared out to threads */

/* One sequence, from admission to delivery. */
typedef struct gen_seq {
    const lf_gen_job *job;
    int32_t *tok; /* prompt then output */
    float *logprob; /* of output tokens */
    int32_t *top_ids;
    float *top_logprob;
    size_t n_tok, cap_tok; /* cap: prompt + the most it may generate */
    size_t cached;
    int64_t slot; /* -1 once it has finished */
    lf_sampler *sampler;
    lf_tok_stream stream;
    lf_buf text;
    enum lf_finish finish;
    const char *stop_reason;
    int32_t *pages;
    size_t n_pages;
    const struct gen_seq *leader; /* fills the pages that this one counts as cached already; NULL: they are filled */
} gen_seq;

typedef struct gen_run {
    const lf_gen_model *m;
    const lf_tokenizer *tok;
    const lf_gen_job *jobs;
    size_t n_jobs, next; /* next job to admit */
    size_t delivered;
    gen_seq **by_slot; /* [slots] */
    gen_seq **done;    /* [n_jobs] finished ones waiting for their turn */
    lf_sampler **samplers; /* [slots] */
    int32_t *free_pages;
    size_t n_free;
    int32_t *holders; /* [n_pages] sequences that hold the page */
    int32_t *table;            /* [slots, max_pages] */
    int32_t *row_tok, *row_pos, *row_seq; /* [max_rows] */
    int32_t *want;             /* [slots] rows whose logits are needed */
    gen_seq **want_seq;        /* [slots] */
    int32_t *drawn;            /* [slots] their tokens */
    struct lf_gen_stats stats;
} gen_run;

const char *lf_finish_name(enum lf_finish f)
{
    static const char *const names[] = {"stop", "length", "error"};
    return names[f];
}

static size_t most_tokens(const lf_gen_model *m, const lf_gen_job *j)
{
    size_t cap = j->n_prompt + (size_t)j->max_tokens;
    return cap < (size_t)m->max_context ? cap : (size_t)m->max_context;
}

static size_t pages_for(const lf_gen_model *m, size_t tokens)
{
    return (tokens + (size_t)m->page_tokens - 1) / (size_t)m->page_tokens;
}

int lf_gen_check(const lf_gen_model *m, const lf_tokenizer *tok, const lf_gen_job *jobs, size_t n_jobs, lf_err *err)
{
    for (size_t i = 0; i < n_jobs; i++) {
        const lf_gen_job *j = &jobs[i];
        if (j->n_prompt == 0)
            return lf_fail(err, LF_EINVAL, "request '%s': the prompt has no tokens", j->id);
        if (j->max_tokens < 1)
            return lf_fail(err, LF_EINVAL, "request '%s': max_tokens must be 1 or more", j->id);
        if (j->n_prompt >= (size_t)m->max_context)
            return lf_fail(err, LF_EINVAL, "request '%s': the prompt has %zu tokens, the model's context is %lld with room for one more",
                           j->id, j->n_prompt, (long long)m->max_context);
        for (size_t k = 0; k < j->n_prompt; k++)
            if (j->prompt[k] < 0 || j->prompt[k] >= m->vocab)
                return lf_fail(err, LF_EINVAL, "request '%s': token %d is outside the vocabulary of %lld", j->id, (int)j->prompt[k],
                               (long long)m->vocab);
        size_t pages = pages_for(m, most_tokens(m, j));
        if (pages > (size_t)m->n_pages || pages > (size_t)m->max_pages)
            return lf_fail(err, LF_EINVAL, "request '%s': %zu tokens need %zu pages, the cache has %lld; raise kv_tokens or lower max_tokens",
                           j->id, most_tokens(m, j), pages, (long long)m->n_pages);
        if (m->prefix && j->n_prompt > (size_t)m->max_rows)
            return lf_fail(err, LF_EINVAL, "request '%s': the prompt has %zu tokens, which see each other and need one step of at most "
                           "%lld rows; raise step_rows", j->id, j->n_prompt, (long long)m->max_rows);
        if (j->n_stop > 0 && !tok)
            return lf_fail(err, LF_EINVAL, "request '%s': stop strings need a tokenizer", j->id);
        if (lf_sample_check(&j->params, err))
            return lf_err_prefix(err, "request '%s'", j->id);
    }
    return 0;
}

static void seq_free(gen_seq *s)
{
    if (!s)
        return;
    free(s->tok);
    free(s->logprob);
    free(s->top_ids);
    free(s->top_logprob);
    free(s->pages);
    lf_tok_stream_drop(&s->stream);
    lf_buf_fini(&s->text);
    free(s);
}

static gen_seq *seq_create(const gen_run *g, const lf_gen_job *j, lf_err *err)
{
    gen_seq *s = lf_calloc(1, sizeof *s, err);
    if (!s)
        return NULL;
    lf_buf_init(&s->text);
    s->job = j;
    s->cap_tok = most_tokens(g->m, j);
    size_t new_cap = s->cap_tok - j->n_prompt, top = new_cap * (size_t)(j->top_logprobs > 0 ? j->top_logprobs : 0);
    s->n_pages = pages_for(g->m, s->cap_tok);
    s->tok = lf_calloc(s->cap_tok, sizeof *s->tok, err);
    s->logprob = lf_calloc(new_cap, sizeof *s->logprob, err);
    s->top_ids = lf_calloc(top, sizeof *s->top_ids, err);
    s->top_logprob = lf_calloc(top, sizeof *s->top_logprob, err);
    s->pages = lf_calloc(s->n_pages, sizeof *s->pages, err);
    if (!s->tok || !s->logprob || !s->top_ids || !s->top_logprob || !s->pages) {
        seq_free(s);
        return NULL;
    }
    memcpy(s->tok, j->prompt, j->n_prompt * sizeof *s->tok);
    s->n_tok = j->n_prompt;
    return s;
}

/* A running sequence with the same prompt (samples of a request point to one array) that has or will have its pages filled. */
static const gen_seq *find_leader(const gen_run *g, const lf_gen_job *j)
{
    for (int64_t slot = 0; slot < g->m->slots; slot++) {
        const gen_seq *s = g->by_slot[slot];
        if (s && s->job->prompt == j->prompt && s->job->n_prompt == j->n_prompt)
            return s->leader ? s->leader : s;
    }
    return NULL;
}

/* Pages of a new sequence: `shared` of the leader's, the rest free ones. The last token of a prompt is always computed, because its
 * logits are wanted. */
static void take_pages(gen_run *g, gen_seq *s, const gen_seq *leader, size_t shared, int32_t *row)
{
    for (size_t i = 0; i < s->n_pages; i++) {
        s->pages[i] = i < shared ? leader->pages[i] : g->free_pages[--g->n_free];
        g->holders[s->pages[i]]++;
        row[i] = s->pages[i];
    }
    s->cached = shared * (size_t)g->m->page_tokens;
    s->leader = leader && leader->cached < s->cached ? leader : NULL;
}

/* Give waiting jobs a slot and pages, in job order (a large one is waited for, so nobody starves). */
static int admit(gen_run *g, lf_err *err)
{
    for (int64_t slot = 0; slot < g->m->slots && g->next < g->n_jobs; slot++) {
        if (g->by_slot[slot])
            continue;
        const lf_gen_job *j = &g->jobs[g->next];
        const gen_seq *leader = find_leader(g, j);
        size_t shared = leader ? (j->n_prompt - 1) / (size_t)g->m->page_tokens : 0;
        if (pages_for(g->m, most_tokens(g->m, j)) - shared > g->n_free)
            return 0;
        gen_seq *s = seq_create(g, j, err);
        if (!s)
            return LF_ENOMEM;
        take_pages(g, s, leader, shared, g->table + (size_t)slot * (size_t)g->m->max_pages);
        s->slot = slot;
        if (g->m->prefix)
            g->m->prefix[slot] = (int32_t)j->n_prompt - 1;
        s->sampler = g->samplers[slot];
        lf_sampler_begin(s->sampler, j->prompt, j->n_prompt);
        g->by_slot[slot] = s;
        g->next++;
    }
    return 0;
}

/* Must it wait for pages that its leader has not filled? Rows of the step being composed count as filled: a step writes keys and
 * values of all its rows before any row reads them. */
static bool waits(gen_seq *s)
{
    if (s->leader && s->leader->cached >= s->cached)
        s->leader = NULL;
    return s->leader != NULL;
}

/* Is there no room for all that is left of its prefix? The tokens of a prefix see each other, so they go together. */
static bool prefix_too_long(const gen_run *g, const gen_seq *s, int64_t rows)
{
    const size_t prefix = s->job->n_prompt - 1;
    return g->m->prefix && s->cached < prefix && prefix - s->cached > (size_t)(g->m->max_rows - rows);
}

/* Rows of the next step: every decoding sequence first, then prompts in slot order. */
static int64_t compose(gen_run *g, int64_t *n_want)
{
    int64_t rows = 0;
    *n_want = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t slot = 0; slot < g->m->slots; slot++) {
            gen_seq *s = g->by_slot[slot];
            bool decoding = s && s->n_tok - s->cached == 1;
            if (!s || decoding != (pass == 0) || waits(s) || prefix_too_long(g, s, rows))
                continue;
            int64_t first = rows;
            while (s->cached < s->n_tok && rows < g->m->max_rows) {
                g->row_tok[rows] = s->tok[s->cached];
                g->row_pos[rows] = (int32_t)s->cached;
                g->row_seq[rows] = (int32_t)slot;
                rows++;
                s->cached++;
            }
            if (s->cached == s->n_tok && rows > first) {
                g->want[*n_want] = (int32_t)(rows - 1);
                g->want_seq[(*n_want)++] = s;
            }
        }
    return rows;
}

static bool is_end(const lf_gen_job *j, int32_t token)
{
    for (size_t i = 0; i < j->n_end; i++)
        if (j->end[i] == token)
            return true;
    return false;
}

/* Text of a new token; true when a stop string is met (the text is cut there). Looks at the tail that the token may have completed. */
static int grow_text(gen_run *g, gen_seq *s, int32_t token, bool *stopped, lf_err *err)
{
    *stopped = false;
    if (!g->tok)
        return 0;
    size_t before = s->text.len;
    int rc = lf_tok_stream_push(&s->stream, g->tok, (uint32_t)token, s->job->skip_special, &s->text, err);
    if (rc)
        return rc;
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < s->job->n_stop; i++) {
        size_t n = strlen(s->job->stop[i]);
        if (n == 0 || s->text.len < n)
            continue;
        size_t from = before + 1 > n ? before + 1 - n : 0;
        const char *hit = memmem(s->text.data + from, s->text.len - from, s->job->stop[i], n);
        if (hit && (size_t)(hit - s->text.data) < best) {
            best = (size_t)(hit - s->text.data);
            s->stop_reason = s->job->stop[i];
        }
    }
    if (best != SIZE_MAX) {
        s->text.len = best;
        s->text.data[best] = 0;
        lf_tok_stream_drop(&s->stream);
        *stopped = true;
    }
    return lf_buf_check(&s->text, err);
}

static void finish(gen_run *g, gen_seq *s, enum lf_finish why)
{
    if (g->tok && lf_tok_stream_finish(&s->stream, g->tok, &s->text, NULL) != 0)
        s->text.failed = true;
    s->finish = why;
    for (size_t i = 0; i < s->n_pages; i++)
        if (--g->holders[s->pages[i]] == 0)
            g->free_pages[g->n_free++] = s->pages[i];
    g->by_slot[s->slot] = NULL;
    for (int64_t i = 0; i < g->m->slots; i++) /* a sequence that ends has its prompt in the cache: nobody waits for it */
        if (g->by_slot[i] && g->by_slot[i]->leader == s)
            g->by_slot[i]->leader = NULL;
    s->slot = -1;
    g->done[s->job - g->jobs] = s;
}

static void note_logprobs(const gen_run *g, gen_seq *s, size_t index, int32_t token, const float *logits, float lse)
{
    s->logprob[index] = logits[token] - lse;
    size_t top = s->job->top_logprobs > 0 ? (size_t)s->job->top_logprobs : 0;
    size_t n = lf_top_logits(logits, g->m->vocab, top, s->top_ids + index * top);
    for (size_t i = 0; i < top; i++) {
        if (i >= n)
            s->top_ids[index * top + i] = -1;
        else
            s->top_logprob[index * top + i] = logits[s->top_ids[index * top + i]] - lse;
    }
}

/* Draw the next token of a sequence from its row of logits. Touches nothing but the sequence's sampler, so sequences may draw at once. */
static int32_t draw(const gen_seq *s, const float *logits)
{
    const lf_gen_job *j = s->job;
    size_t index = s->n_tok - j->n_prompt;
    bool guard = index < (size_t)(j->min_tokens > 0 ? j->min_tokens : 0);
    if (guard)
        lf_sampler_forbid(s->sampler, j->end, j->n_end);
    int32_t token = lf_sampler_draw(s->sampler, &j->params, logits, j->seed, index);
    if (guard)
        lf_sampler_allow_all(s->sampler);
    return token;
}

/* Append a drawn token and decide whether the sequence ends. */
static int advance(gen_run *g, gen_seq *s, int32_t token, const float *logits, float lse, lf_err *err)
{
    const lf_gen_job *j = s->job;
    size_t index = s->n_tok - j->n_prompt;
    if (token < 0)
        return lf_fail(err, LF_ENUMERIC, "request '%s': no finite logit for token %zu of the output; the weights are damaged or diverged",
                       j->id, index);
    if (!isfinite(logits[token] - lse)) /* some other logit is not a number */
        return lf_fail(err, LF_ENUMERIC, "request '%s': the log-probability of token %zu of the output is not finite; the weights are "
                       "damaged or diverged", j->id, index);
    lf_sampler_accept(s->sampler, token);
    note_logprobs(g, s, index, token, logits, lse);
    s->tok[s->n_tok++] = token;
    g->stats.new_tokens++;
    if (is_end(j, token)) {
        finish(g, s, LF_FINISH_STOP);
        return 0;
    }
    bool stopped;
    int rc = grow_text(g, s, token, &stopped, err);
    if (rc)
        return rc;
    if (stopped)
        finish(g, s, LF_FINISH_STOP);
    else if (s->n_tok == s->cap_tok)
        finish(g, s, LF_FINISH_LENGTH);
    return 0;
}

static int deliver(gen_run *g, lf_gen_sink sink, void *arg, lf_err *err)
{
    while (g->delivered < g->n_jobs && g->done[g->delivered]) {
        gen_seq *s = g->done[g->delivered];
        size_t p = s->job->n_prompt;
        lf_gen_result r = {s->job, s->tok + p, s->logprob, s->n_tok - p, s->top_ids, s->top_logprob, s->text.data, s->text.len,
                           s->finish, s->stop_reason};
        int rc = lf_buf_check(&s->text, err);
        if (rc == 0)
            rc = sink(arg, &r, err);
        if (rc < 0)
            return rc;
        seq_free(s);
        g->done[g->delivered++] = NULL;
    }
    return 0;
}

static int one_step(gen_run *g, lf_err *err)
{
    int64_t n_want, rows = compose(g, &n_want);
    struct lf_gen_logits out;
    int rc = g->m->step(g->m->ctx, rows, g->row_tok, g->row_pos, g->row_seq, g->table, n_want, g->want, &out, err);
    if (rc == 0) {
        /* A draw costs some milliseconds where a vocabulary is large: not one after the other. */
#pragma omp parallel for schedule(dynamic, 1) if (n_want > 1 && g->m->vocab > PARALLEL_DRAW)
        for (int64_t i = 0; i < n_want; i++)
            g->drawn[i] = draw(g->want_seq[i], out.z + i * out.ld);
    }
    for (int64_t i = 0; i < n_want && rc == 0; i++)
        rc = advance(g, g->want_seq[i], g->drawn[i], out.z + i * out.ld, out.lse[i], err);
    g->stats.steps++;
    g->stats.rows += rows;
    return rc;
}

static int allocate(gen_run *g, lf_err *err)
{
    size_t slots = (size_t)g->m->slots, rows = (size_t)g->m->max_rows, pages = (size_t)g->m->n_pages;
    g->by_slot = lf_calloc(slots, sizeof *g->by_slot, err);
    g->done = lf_calloc(g->n_jobs, sizeof *g->done, err);
    g->samplers = lf_calloc(slots, sizeof *g->samplers, err);
    g->free_pages = lf_calloc(pages, sizeof *g->free_pages, err);
    g->holders = lf_calloc(pages, sizeof *g->holders, err);
    g->table = lf_calloc(slots * (size_t)g->m->max_pages, sizeof *g->table, err);
    g->row_tok = lf_calloc(rows, sizeof *g->row_tok, err);
    g->row_pos = lf_calloc(rows, sizeof *g->row_pos, err);
    g->row_seq = lf_calloc(rows, sizeof *g->row_seq, err);
    g->want = lf_calloc(slots, sizeof *g->want, err);
    g->want_seq = lf_calloc(slots, sizeof *g->want_seq, err);
    g->drawn = lf_calloc(slots, sizeof *g->drawn, err);
    if (!g->by_slot || !g->done || !g->samplers || !g->free_pages || !g->holders || !g->table || !g->row_tok || !g->row_pos || !g->row_seq ||
        !g->want || !g->want_seq || !g->drawn)
        return LF_ENOMEM;
    for (size_t i = 0; i < slots; i++)
        if (!(g->samplers[i] = lf_sampler_create(g->m->vocab, err)))
            return LF_ENOMEM;
    for (size_t i = 0; i < pages; i++)
        g->free_pages[g->n_free++] = (int32_t)(pages - 1 - i);
    return 0;
}

static void release(gen_run *g)
{
    for (size_t i = 0; g->by_slot && i < (size_t)g->m->slots; i++)
        seq_free(g->by_slot[i]);
    for (size_t i = 0; g->done && i < g->n_jobs; i++)
        seq_free(g->done[i]);
    for (size_t i = 0; g->samplers && i < (size_t)g->m->slots; i++)
        lf_sampler_destroy(g->samplers[i]);
    void *blocks[] = {g->by_slot, g->done,    g->samplers, g->free_pages, g->holders, g->table,
                      g->row_tok, g->row_pos, g->row_seq,  g->want,       g->want_seq, g->drawn};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
}

int lf_gen_run(const lf_gen_model *m, const lf_tokenizer *tok, const lf_gen_job *jobs, size_t n_jobs, lf_gen_sink sink, void *arg,
               bool (*stop)(void), struct lf_gen_stats *stats, lf_err *err)
{
    gen_run g = {.m = m, .tok = tok, .jobs = jobs, .n_jobs = n_jobs};
    double t0 = lf_now_s();
    int rc = lf_gen_check(m, tok, jobs, n_jobs, err);
    if (rc == 0)
        rc = allocate(&g, err);
    for (size_t i = 0; rc == 0 && i < n_jobs; i++)
        g.stats.prompt_tokens += (int64_t)jobs[i].n_prompt;
    while (rc == 0 && g.delivered < n_jobs) {
        if (stop && stop()) {
            rc = lf_fail(err, LF_EINTR, "stopped after %zu of %zu results", g.delivered, n_jobs);
            break;
        }
        rc = admit(&g, err);
        if (rc == 0)
            rc = one_step(&g, err);
        if (rc == 0)
            rc = deliver(&g, sink, arg, err);
    }
    g.stats.seconds = lf_now_s() - t0;
    if (stats)
        *stats = g.stats;
    release(&g);
    return rc;
}
