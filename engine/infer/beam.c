/* SPDX-License-Identifier: Apache-2.0
 *
 * Searches, each with as many slots as beams, run side by side. A search waits until the logits of
 * all its beams are there, which may take several steps, and then goes on by a token.
 *   1. Pages are counted by holders. A search reserves what its beams take without sharing, so a
 *      page is always there.
 *   2. A beam writes to pages that it alone holds: a page is shared only when it is full.
 *   3. Tokens [0, cached) of a beam have keys and values in its pages.
 */
#include "engine/infer/beam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/infer/gen_priv.h"

/* A sequence that is held, or a result. */
struct beam {
    int32_t *tok;   /* [cap] prompt and output */
    float *logprob; /* [cap - n_prompt] */
    size_t n_tok;
    float score;
    /* of one that is held */
    int32_t *pages; /* [max_pages] */
    size_t n_pages, cached;
    bool seen; /* its logits have come */
};

/* A continuation. */
struct next {
    float score, logprob;
    int32_t beam, token;
};

struct search {
    const lf_gen_job *job;
    size_t n_jobs; /* that take its results; 0: this place is free */
    size_t reserved, cap;
    int32_t n, n_open;                  /* beams; those that are held: first the prompt alone */
    struct beam *held, *spare, *result; /* [n] each */
    size_t n_results;
    struct next *next; /* [most_next] the best first */
    uint8_t *barred;   /* [vocab] of the run, all 0: tokens that would repeat */
    size_t most_next, n_next;
};

struct beam_run {
    const lf_gen_model *m;
    const struct lf_gen_work *w;
    struct lf_gen_stats *stats;
    struct search *searches; /* [slots]: search s has slots from its number on */
    size_t next_job, reserved;
    int32_t *holders, *free_pages; /* [n_pages] */
    size_t n_free;
    int32_t *table;                       /* [slots, max_pages] */
    int32_t *row_tok, *row_pos, *row_seq; /* [max_rows] */
    int32_t *want, *want_slot;            /* [most] */
    int64_t most;
    lf_sampler *sampler;
    uint8_t *barred; /* [vocab] */
    gen_seq **done;  /* [n_jobs] */
    size_t delivered;
};

/* ---- what is asked ---- */

static size_t pages_of(const lf_gen_model *m, const lf_gen_job *j)
{
    return (size_t)j->beams.n * lf_gen_pages_for(m, lf_gen_most_tokens(m, j));
}

static size_t continuations(const lf_gen_job *j)
{
    return (size_t)j->beams.n * (j->n_end > 1 ? 1 + j->n_end : 2);
}

/* What a search cannot do. NULL: nothing of it is asked. */
static const char *unable(const lf_gen_job *j)
{
    const lf_sample_params *p = &j->params;
    return p->repetition_penalty != 1.0 ? "repetition_penalty"
           : p->presence_penalty != 0   ? "presence_penalty"
           : p->frequency_penalty != 0  ? "frequency_penalty"
           : j->limits.n_bias > 0       ? "logit_bias"
           : j->limits.n_allowed > 0    ? "allowed_token_ids"
           : j->limits.n_bad > 0        ? "bad_words"
           : j->n_stop > 0              ? "stop"
           : j->top_logprobs > 0        ? "logprobs"
           : j->prompt_logprobs         ? "prompt_logprobs"
           : j->media                   ? "pictures"
                                        : NULL;
}

int lf_beam_check(const lf_gen_model *m, const lf_gen_job *j, lf_err *err)
{
    const int64_t n = j->beams.n;
    const char *what = unable(j);
    if (n <= 1)
        return 0;
    if (what)
        return lf_fail(err, LF_EINVAL, "beams = %lld: a search knows no %s", (long long)n, what);
    if (m->recurrent || m->prefix || m->runs || m->switching)
        return lf_fail(err, LF_EINVAL,
                       "beams = %lld: sequences of this model do not share their past",
                       (long long)n);
    if (n > m->slots || n > LF_BEAMS_MOST)
        return lf_fail(err, LF_EINVAL,
                       "beams = %lld: %lld sequences run at once; raise slots, to %d at most",
                       (long long)n, (long long)m->slots, LF_BEAMS_MOST);
    if (pages_of(m, j) > (size_t)m->n_pages)
        return lf_fail(err, LF_EINVAL,
                       "beams = %lld need %zu pages, the cache has %lld; raise kv_tokens or lower "
                       "max_tokens",
                       (long long)n, pages_of(m, j), (long long)m->n_pages);
    if ((int64_t)j->sample >= n)
        return lf_fail(err, LF_EINVAL, "beams = %lld: they give no more samples than that",
                       (long long)n);
    if (continuations(j) + j->n_end > (size_t)m->vocab)
        return lf_fail(err, LF_EINVAL,
                       "beams = %lld: %zu continuations are asked for of a vocabulary of %lld",
                       (long long)n, continuations(j), (long long)m->vocab);
    return 0;
}

/* ---- life ---- */

static int create_beams(struct beam **out, const struct search *s, size_t max_pages, lf_err *err)
{
    struct beam *b = *out = lf_calloc((size_t)s->n, sizeof *b, err);
    for (int32_t i = 0; b && i < s->n; i++) {
        b[i].tok = lf_calloc(s->cap, sizeof *b[i].tok, err);
        b[i].logprob = lf_calloc(s->cap - s->job->n_prompt, sizeof *b[i].logprob, err);
        b[i].pages = lf_calloc(max_pages, sizeof *b[i].pages, err);
        if (!b[i].tok || !b[i].logprob || !b[i].pages)
            return LF_ENOMEM;
    }
    return b ? 0 : LF_ENOMEM;
}

static void free_beams(struct beam *b, int32_t n)
{
    for (int32_t i = 0; b && i < n; i++) {
        free(b[i].tok);
        free(b[i].logprob);
        free(b[i].pages);
    }
    free(b);
}

static void close_search(struct search *s)
{
    free_beams(s->held, s->n);
    free_beams(s->spare, s->n);
    free_beams(s->result, s->n);
    free(s->next);
    *s = (struct search){0};
}

static int open_search(struct beam_run *g, struct search *s, const lf_gen_job *j, size_t n_jobs,
                       lf_err *err)
{
    const size_t pages = (size_t)g->m->max_pages;
    *s = (struct search){.job = j,
                         .n_jobs = n_jobs,
                         .reserved = pages_of(g->m, j),
                         .cap = lf_gen_most_tokens(g->m, j),
                         .n = (int32_t)j->beams.n,
                         .n_open = 1,
                         .barred = g->barred,
                         .most_next = continuations(j)};
    int rc = create_beams(&s->held, s, pages, err);
    rc = rc == 0 ? create_beams(&s->spare, s, pages, err) : rc;
    rc = rc == 0 ? create_beams(&s->result, s, 1, err) : rc;
    if (rc == 0 && !(s->next = lf_calloc(s->most_next + 1, sizeof *s->next, err)))
        rc = LF_ENOMEM;
    if (rc != 0) {
        close_search(s);
        return rc;
    }
    memcpy(s->held[0].tok, j->prompt, j->n_prompt * sizeof *j->prompt);
    s->held[0].n_tok = j->n_prompt;
    g->reserved += s->reserved;
    return 0;
}

/* Free slots in a row from `slot` on. */
static int64_t free_from(const struct beam_run *g, int64_t slot)
{
    int64_t n = 0;
    while (slot + n < g->m->slots && !g->searches[slot + n].n_jobs)
        n++;
    return n;
}

/* Jobs are admitted in order. A search stands at its first slot, and the places of its others are
 * passed over. */
static int admit(struct beam_run *g, lf_err *err)
{
    int64_t slot = 0;
    while (slot < g->m->slots && g->next_job < g->w->n_jobs) {
        const lf_gen_job *j = &g->w->jobs[g->next_job];
        size_t n = 1;
        if (g->searches[slot].n_jobs) {
            slot += g->searches[slot].n;
            continue;
        }
        if (free_from(g, slot) < j->beams.n) {
            slot++;
            continue;
        }
        if (g->reserved + pages_of(g->m, j) > (size_t)g->m->n_pages)
            return 0;
        while (g->next_job + n < g->w->n_jobs && j[n].request == j->request &&
               j[n].sample == j->sample + n)
            n++;
        int rc = open_search(g, &g->searches[slot], j, n, err);
        if (rc == 0 && g->m->max_source)
            rc = g->m->encode(g->m->ctx, slot, j->beams.n, j->source, j->n_source, err);
        if (rc != 0)
            return rc;
        for (int64_t i = 0; i < j->beams.n && g->m->is_long; i++)
            g->m->is_long[slot + i] = lf_gen_most_tokens(g->m, j) > (size_t)g->m->switch_at;
        g->next_job += n;
        slot += j->beams.n;
    }
    return 0;
}

/* ---- pages ---- */

static void let_go(struct beam_run *g, struct beam *b)
{
    for (size_t i = 0; i < b->n_pages; i++)
        if (--g->holders[b->pages[i]] == 0)
            g->free_pages[g->n_free++] = b->pages[i];
    b->n_pages = b->cached = 0;
}

static void share(struct beam_run *g, struct beam *to, const struct beam *from, size_t pages)
{
    memcpy(to->pages, from->pages, pages * sizeof *to->pages);
    to->n_pages = pages;
    for (size_t i = 0; i < pages; i++)
        g->holders[to->pages[i]]++;
}

/* The page of the next row of a beam. */
static void ensure_page(struct beam_run *g, struct beam *b)
{
    if (b->cached / (size_t)g->m->page_tokens < b->n_pages)
        return;
    const int32_t page = g->free_pages[--g->n_free];
    g->holders[page] = 1;
    b->pages[b->n_pages++] = page;
}

/* ---- a step of the search ---- */

/* Is a before b? */
static bool better(const struct next *a, const struct next *b)
{
    if (a->score > b->score || a->score < b->score)
        return a->score > b->score;
    return a->beam != b->beam ? a->beam < b->beam : a->token < b->token;
}

static void offer(struct search *s, struct next c)
{
    size_t at = s->n_next;
    if (at == s->most_next && !better(&c, &s->next[at - 1]))
        return;
    for (; at > 0 && better(&c, &s->next[at - 1]); at--)
        s->next[at] = s->next[at - 1]; /* there is room for one behind the last */
    s->next[at] = c;
    s->n_next += s->n_next < s->most_next;
}

static bool ends(const lf_gen_job *j, int32_t token)
{
    for (size_t i = 0; i < j->n_end; i++)
        if (j->end[i] == token)
            return true;
    return false;
}

/* Marks, or unmarks, what no_repeat forbids behind a beam. */
static void bar(const struct search *s, const struct beam *b, uint8_t as)
{
    int32_t token;
    for (size_t at = 0; lf_gen_repeats(s->job, b->tok, b->n_tok, &at, &token);)
        s->barred[token] = as;
}

/* The continuations of a beam. One that is forced counts as certain. */
static int look(struct search *s, int32_t beam, const float *z, float lse, int64_t vocab,
                lf_err *err)
{
    struct beam *b = &s->held[beam];
    const size_t prompt = s->job->n_prompt, index = b->n_tok - prompt;
    const bool early = (int64_t)index < s->job->min_tokens;
    const int32_t forced = lf_gen_forced(s->job, index, s->cap - prompt);
    b->seen = true;
    if (!isfinite(lse))
        return lf_fail(err, LF_ENUMERIC,
                       "request '%s': the logits behind token %zu are not finite; the weights are "
                       "damaged or diverged",
                       s->job->id, b->n_tok - 1);
    if (forced >= 0) {
        offer(s, (struct next){b->score, 0, beam, forced});
        return 0;
    }
    bar(s, b, 1);
    for (int32_t t = 0; t < vocab; t++) {
        const float logprob = z[t] - lse, score = b->score + logprob;
        if (s->n_next == s->most_next && score < s->next[s->n_next - 1].score)
            continue;
        if (!s->barred[t] && !(early && ends(s->job, t)))
            offer(s, (struct next){score, logprob, beam, t});
    }
    bar(s, b, 0);
    return 0;
}

static void extend(struct beam *to, const struct search *s, const struct next *c)
{
    const struct beam *from = &s->held[c->beam];
    const size_t prompt = s->job->n_prompt;
    memcpy(to->tok, from->tok, from->n_tok * sizeof *to->tok);
    memcpy(to->logprob, from->logprob, (from->n_tok - prompt) * sizeof *to->logprob);
    to->tok[from->n_tok] = c->token;
    to->logprob[from->n_tok - prompt] = c->logprob;
    to->n_tok = from->n_tok + 1;
    to->score = c->score;
}

static float penalised(const struct search *s, float score, size_t tokens)
{
    return score / (float)pow((double)tokens, s->job->beams.length_penalty);
}

/* Puts a result among the n best. */
static void keep(struct search *s, const struct next *c, size_t tokens)
{
    const float score = penalised(s, c->score, tokens);
    const size_t n = (size_t)s->n;
    if (s->n_results == n && !(score > s->result[n - 1].score))
        return;
    size_t at = s->n_results < n ? s->n_results++ : n - 1;
    const struct beam room = s->result[at];
    for (; at > 0 && score > s->result[at - 1].score; at--)
        s->result[at] = s->result[at - 1];
    s->result[at] = room;
    extend(&s->result[at], s, c);
    s->result[at].score = score;
}

/* Takes up the n beams that go on. The first of each past takes its pages. */
static void go_on(struct beam_run *g, struct search *s, const struct next *const *chosen, int32_t n)
{
    const size_t page = (size_t)g->m->page_tokens;
    for (int32_t i = 0; i < n; i++) {
        const int32_t past = chosen[i]->beam;
        const struct beam *from = &s->held[past];
        bool first = true;
        for (int32_t k = 0; k < i; k++)
            first = first && chosen[k]->beam != past;
        struct beam *to = &s->spare[i];
        extend(to, s, chosen[i]);
        share(g, to, from, first ? from->n_pages : from->cached / page);
        to->cached = first ? from->cached : to->n_pages * page;
        to->seen = false;
    }
    for (int32_t i = 0; i < s->n_open; i++)
        let_go(g, &s->held[i]);
    struct beam *was = s->held;
    s->held = s->spare;
    s->spare = was;
    s->n_open = n;
}

/* Has the best sequence held no chance any more? */
static bool hopeless(const struct search *s, float best, size_t tokens)
{
    const struct lf_gen_beams *b = &s->job->beams;
    const size_t most = s->cap - s->job->n_prompt;
    const bool far = b->early == LF_BEAMS_NEVER && b->length_penalty > 0;
    return s->n_results == (size_t)s->n &&
           !(penalised(s, best, far ? most : tokens) > s->result[s->n - 1].score);
}

/* A token further; *over tells that the search has ended. */
static void advance(struct beam_run *g, struct search *s, bool *over)
{
    const lf_gen_job *j = s->job;
    const size_t tokens = s->held[0].n_tok + 1 - j->n_prompt; /* of the continuations */
    const bool last = tokens == s->cap - j->n_prompt, full = s->n_results == (size_t)s->n;
    const struct next *chosen[LF_BEAMS_MOST];
    int32_t n = 0;
    for (size_t i = 0; i < s->n_next; i++) {
        const struct next *c = &s->next[i];
        if (!last && !ends(j, c->token)) {
            if (n < s->n)
                chosen[n++] = c;
        } else if (i < (size_t)s->n && !(full && j->beams.early == LF_BEAMS_YES)) {
            keep(s, c, tokens);
        }
    }
    *over = last || n == 0 || (s->n_results == (size_t)s->n && j->beams.early == LF_BEAMS_YES) ||
            hopeless(s, chosen[0]->score, tokens);
    if (!*over)
        go_on(g, s, chosen, n);
    s->n_next = 0;
}

/* ---- results ---- */

/* The result of a job, as a sequence that was drawn. */
static int deliver_one(struct beam_run *g, const lf_gen_job *j, const struct beam *b, lf_err *err)
{
    gen_seq *s = lf_gen_seq_create(g->m, j, err);
    if (!s)
        return LF_ENOMEM;
    s->sampler = g->sampler;
    lf_sampler_begin(s->sampler, j->prompt, j->n_prompt);
    int rc = 0;
    bool ended = false;
    for (size_t i = j->n_prompt; i < b->n_tok && rc == 0 && !ended; i++)
        rc = lf_gen_seq_advance(s, g->w->tok,
                                (struct lf_sample_out){b->tok[i], b->logprob[i - j->n_prompt]},
                                NULL, 0, &ended, err);
    if (rc != 0) {
        lf_gen_seq_free(s);
        return rc;
    }
    lf_gen_seq_finish(s, g->w->tok);
    g->done[j - g->w->jobs] = s;
    g->stats->new_tokens += (int64_t)(b->n_tok - j->n_prompt);
    return 0;
}

static int finish(struct beam_run *g, struct search *s, lf_err *err)
{
    int rc = 0;
    /* what is forced or forbidden may leave fewer ways to go than beams */
    if (s->job[s->n_jobs - 1].sample >= s->n_results)
        rc = lf_fail(err, LF_EINVAL,
                     "request '%s': the search has %zu results, and %u are asked for", s->job->id,
                     s->n_results, s->job[s->n_jobs - 1].sample + 1);
    for (size_t i = 0; i < s->n_jobs && rc == 0; i++)
        rc = deliver_one(g, s->job + i, &s->result[s->job[i].sample], err);
    for (int32_t i = 0; i < s->n_open; i++)
        let_go(g, &s->held[i]);
    g->reserved -= s->reserved;
    close_search(s);
    return rc;
}

static int deliver(struct beam_run *g, lf_err *err)
{
    int rc = 0;
    while (g->delivered < g->w->n_jobs && g->done[g->delivered] && rc == 0) {
        rc = lf_gen_seq_deliver(g->done[g->delivered], g->w->sink, g->w->arg, err);
        lf_gen_seq_free(g->done[g->delivered]);
        g->done[g->delivered++] = NULL;
    }
    return rc;
}

/* ---- steps of the model ---- */

/* The rows of a beam that are missing, as far as they fit. */
static void compose_beam(struct beam_run *g, struct beam *b, int64_t slot, int64_t *rows,
                         int64_t *n_want)
{
    while (!b->seen && b->cached < b->n_tok && *rows < g->m->max_rows) {
        const bool last = b->cached + 1 == b->n_tok;
        if (last && *n_want == g->most)
            return;
        ensure_page(g, b);
        g->row_tok[*rows] = b->tok[b->cached];
        g->row_pos[*rows] = (int32_t)b->cached++;
        g->row_seq[*rows] = (int32_t)slot;
        if (last) {
            g->want[*n_want] = (int32_t)*rows;
            g->want_slot[(*n_want)++] = (int32_t)slot;
        }
        ++*rows;
    }
    memcpy(g->table + slot * g->m->max_pages, b->pages, b->n_pages * sizeof *b->pages);
}

static int64_t compose(struct beam_run *g, int64_t *n_want)
{
    int64_t rows = 0;
    *n_want = 0;
    for (int64_t slot = 0; slot < g->m->slots; slot++) {
        struct search *s = &g->searches[slot];
        for (int32_t i = 0; s->n_jobs && i < s->n_open; i++)
            compose_beam(g, &s->held[i], slot + i, &rows, n_want);
    }
    return rows;
}

/* Whose slot is it? */
static struct search *search_of(struct beam_run *g, int32_t slot, int32_t *beam)
{
    int64_t at = slot;
    while (!g->searches[at].n_jobs)
        at--;
    *beam = slot - (int32_t)at;
    return &g->searches[at];
}

static int one_step(struct beam_run *g, lf_err *err)
{
    int64_t n_want;
    const int64_t rows = compose(g, &n_want);
    const struct lf_gen_rows in = {.n = rows,
                                   .token = g->row_tok,
                                   .pos = g->row_pos,
                                   .seq = g->row_seq,
                                   .table = g->table,
                                   .n_want = n_want,
                                   .want = g->want};
    struct lf_gen_logits out;
    for (int64_t i = 0; g->m->draws && i < n_want; i++)
        g->m->draws->row[i] = (struct lf_sample_row){0};
    int rc = g->m->step(g->m->ctx, &in, &out, err);
    for (int64_t i = 0; i < n_want && rc == 0; i++) {
        int32_t beam;
        struct search *s = search_of(g, g->want_slot[i], &beam);
        rc = look(s, beam, out.z + i * out.ld, out.lse[i], g->m->vocab, err);
    }
    for (int64_t slot = 0; slot < g->m->slots && rc == 0; slot++) {
        struct search *s = &g->searches[slot];
        bool all = s->n_jobs > 0, over;
        for (int32_t i = 0; i < s->n_open && all; i++)
            all = s->held[i].seen;
        if (!all)
            continue;
        advance(g, s, &over);
        if (over)
            rc = finish(g, s, err);
    }
    g->stats->steps++;
    g->stats->rows += rows;
    return rc;
}

static int allocate(struct beam_run *g, lf_err *err)
{
    const size_t slots = (size_t)g->m->slots, rows = (size_t)g->m->max_rows,
                 pages = (size_t)g->m->n_pages, most = (size_t)g->most;
    g->searches = lf_calloc(slots, sizeof *g->searches, err);
    g->holders = lf_calloc(pages, sizeof *g->holders, err);
    g->free_pages = lf_calloc(pages, sizeof *g->free_pages, err);
    g->table = lf_calloc(slots * (size_t)g->m->max_pages, sizeof *g->table, err);
    g->row_tok = lf_calloc(rows, sizeof *g->row_tok, err);
    g->row_pos = lf_calloc(rows, sizeof *g->row_pos, err);
    g->row_seq = lf_calloc(rows, sizeof *g->row_seq, err);
    g->want = lf_calloc(most, sizeof *g->want, err);
    g->want_slot = lf_calloc(most, sizeof *g->want_slot, err);
    g->done = lf_calloc(g->w->n_jobs, sizeof *g->done, err);
    g->sampler = lf_sampler_create(g->m->vocab, err);
    g->barred = lf_calloc((size_t)g->m->vocab, 1, err);
    if (!g->searches || !g->holders || !g->free_pages || !g->table || !g->row_tok || !g->row_pos ||
        !g->row_seq || !g->want || !g->want_slot || !g->done || !g->sampler || !g->barred)
        return LF_ENOMEM;
    for (size_t i = 0; i < pages; i++)
        g->free_pages[g->n_free++] = (int32_t)(pages - 1 - i);
    return 0;
}

static void release(struct beam_run *g)
{
    for (int64_t i = 0; g->searches && i < g->m->slots; i++)
        close_search(&g->searches[i]);
    for (size_t i = 0; g->done && i < g->w->n_jobs; i++)
        lf_gen_seq_free(g->done[i]);
    lf_sampler_destroy(g->sampler);
    void *blocks[] = {g->searches, g->holders, g->free_pages, g->table, g->row_tok, g->row_pos,
                      g->row_seq,  g->want,    g->want_slot,  g->done,  g->barred};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
}

int lf_beam_run(const lf_gen_model *m, const struct lf_gen_work *w, struct lf_gen_stats *stats,
                lf_err *err)
{
    struct beam_run g = {
        .m = m, .w = w, .stats = stats, .most = m->max_want ? m->max_want : m->slots};
    int rc = allocate(&g, err);
    while (rc == 0 && g.delivered < w->n_jobs) {
        if (w->stop && w->stop()) {
            rc = lf_fail(err, LF_EINTR, "stopped after %zu of %zu results", g.delivered, w->n_jobs);
            break;
        }
        rc = admit(&g, err);
        rc = rc == 0 ? one_step(&g, err) : rc;
        rc = rc == 0 ? deliver(&g, err) : rc;
    }
    release(&g);
    return rc;
}
