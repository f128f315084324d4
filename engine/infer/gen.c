/* SPDX-License-Identifier: Apache-2.0
 *
 * Continuous batching. Invariants:
 *   1. A sequence holds all the pages it can ever need from admission to the end. Full pages that
 *      its prompt has in
 * common with one that runs are held by both: who had them first fills them, the others only read
 * them and wait until they are filled. Every other page belongs to one sequence.
 *   2. cached <= n_tok: tokens [0, cached) have keys and values in the cache; a token is drawn only
 *      when cached ==
 * n_tok.
 *   3. Results leave in job order; a finished sequence waits in `done` until its turn, its slot and
 *      pages are free at
 * once.
 *      The row of a draft is behind these; what it wrote is written again, or counts once the draft
 *      is the token drawn.
 *   4. At most one step is begun and not applied when a step is composed. Sequences that it draws
 *      for have a token coming, and a
 * row of the next step may carry it. What a sequence that has ended by then wrote lies in pages
 * whose next holder writes in a later step.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/graph/profile.h"
#include "engine/infer/beam.h"
#include "engine/infer/gen_priv.h"

#define PARALLEL_DRAW 4096 /* vocabulary from which draws are shared out to threads */

/* A step that was begun: what was wanted of it. */
struct ahead {
    bool on;
    int64_t n_want;
    gen_seq **seq;             /* [slots] NULL: it has ended, or its token is drawn again */
    size_t *at;                /* [slots] */
    struct lf_sample_out *out; /* [slots] */
};

/* What the head that drafts is asked behind a step. */
struct guesses {
    int32_t *from, *token, *pos, *seq; /* [max_rows] */
    int32_t *want, *out;               /* [slots] */
};

typedef struct gen_run {
    const lf_gen_model *m;
    const lf_tokenizer *tok;
    const lf_gen_job *jobs;
    size_t n_jobs, next; /* next job to admit */
    size_t delivered;
    gen_seq **by_slot;     /* [slots] */
    gen_seq **done;        /* [n_jobs] finished ones waiting for their turn */
    lf_sampler **samplers; /* [slots] */
    int32_t *free_pages;
    size_t n_free;
    int32_t *holders;                     /* [n_pages] sequences that hold the page */
    uint8_t *filled;                      /* [n_pages] are all its positions written? */
    int32_t *table;                       /* [slots, max_pages] */
    int32_t *row_tok, *row_pos, *row_seq; /* [max_rows] */
    const float **row_feature;            /* [max_rows] of a model that sees, else NULL */
    int32_t *row_places;                  /* [max_rows, 3] of a model with places, else NULL */
    int32_t *row_runs;                    /* [max_rows, 2] of a model with runs, else NULL */
    int64_t most;                         /* wanted rows of a step */
    int32_t *want;                        /* [most] rows whose logits are needed */
    gen_seq **want_seq;                   /* [most] */
    size_t *want_at;                      /* [most] index in its sequence */
    uint8_t *want_draft;                  /* [most] the row of a draft, behind its sequence's */
    struct lf_sample_out *drawn;          /* [most] their tokens */
    struct guesses guess;
    struct ahead ahead;
    struct lf_gen_stats stats;
} gen_run;

/* Tokens that two prompts have in common at the beginning, up to a picture that only one has. */
static size_t common(const lf_gen_job *a, const lf_gen_job *b)
{
    size_t n = a->n_prompt < b->n_prompt ? a->n_prompt : b->n_prompt, i = 0;
    const bool seen = (a->media || b->media) &&
                      !(a->media && b->media && a->media->pictures == b->media->pictures);
    if (a->prompt == b->prompt && !seen)
        return n;
    while (i < n && a->prompt[i] == b->prompt[i] &&
           !(seen && (gen_is_picture(a, i) || gen_is_picture(b, i))))
        i++;
    return i;
}

/* longrope: is a new sequence long? */
static bool begins_long(const gen_run *g, const lf_gen_job *j)
{
    const size_t n = g->m->switching ? j->n_prompt : lf_gen_most_tokens(g->m, j);
    return n - (j->max_tokens == 0) > (size_t)g->m->switch_at;
}

/* Full pages that a new job can read instead of computing them: those of the running sequence with
 * most in common, up to the first row whose logits are wanted. Where the tokens of a prefix see
 * each other it must be the same prefix. */
static size_t find_shared(const gen_run *g, const lf_gen_job *j, const gen_seq **from)
{
    size_t wanted = j->prompt_logprobs ? (j->prompt_first > 1 ? j->prompt_first - 1 : 0)
                                       : j->n_prompt - 1,
           best = 0;
    for (int64_t slot = 0; slot < g->m->slots && !g->m->recurrent; slot++) {
        const gen_seq *s = g->by_slot[slot];
        if (!s)
            continue;
        if (s->job->source != j->source)
            continue; /* the cache of an encoder-decoder depends on what it reads */
        size_t n = common(s->job, j), read = s->job->n_prompt - (s->job->max_tokens == 0);
        const size_t prefix = gen_prefix_of(g->m, j);
        if (g->m->prefix && (n < prefix || prefix != gen_prefix_of(g->m, s->job)))
            continue;
        if (g->m->is_long && (g->m->switching || g->m->is_long[slot] != begins_long(g, j)))
            continue; /* other angles, or pages that are written again */
        n = n < read ? n : read;
        n = (n < wanted ? n : wanted) / (size_t)g->m->page_tokens;
        if (n > best) {
            best = n;
            *from = s;
        }
    }
    return best;
}

/* Pages of a new sequence: `shared` of another's, the rest free ones. */
static void take_pages(gen_run *g, gen_seq *s, const gen_seq *from, size_t shared, int32_t *row)
{
    for (size_t i = 0; i < s->n_pages; i++) {
        int32_t page = i < shared ? from->pages[i] : g->free_pages[--g->n_free];
        if (i >= shared)
            g->filled[page] = 0;
        g->holders[page]++;
        row[i] = s->pages[i] = page;
    }
    s->n_shared = shared;
    s->cached = shared * (size_t)g->m->page_tokens;
    g->stats.shared_tokens += (int64_t)s->cached;
}

/* The features of a new sequence: those of another with the same pictures, or computed now. */
static int take_features(const gen_run *g, gen_seq *s, lf_err *err)
{
    const struct lf_gen_media *media = s->job->media;
    if (!media)
        return 0;
    for (int64_t slot = 0; slot < g->m->slots; slot++) {
        const gen_seq *other = g->by_slot[slot];
        if (other && other->features && other->features->pictures == media->pictures) {
            s->features = other->features;
            s->features->holders++;
            return 0;
        }
    }
    const size_t floats = (size_t)(media->n_features * g->m->feature_width);
    s->features = lf_calloc(1, sizeof *s->features + floats * sizeof(float), err);
    if (!s->features)
        return LF_ENOMEM;
    s->features->holders = 1;
    s->features->pictures = media->pictures;
    s->features->width = g->m->feature_width;
    return g->m->features(g->m->look, s->job, s->features->row, err);
}

/* Give waiting jobs a slot and pages, in job order (a large one is waited for, so nobody
 * starves). */
static int admit(gen_run *g, lf_err *err)
{
    for (int64_t slot = 0; slot < g->m->slots && g->next < g->n_jobs; slot++) {
        if (g->by_slot[slot])
            continue;
        const lf_gen_job *j = &g->jobs[g->next];
        const gen_seq *from = NULL;
        size_t shared = find_shared(g, j, &from);
        if (lf_gen_pages_for(g->m, lf_gen_most_tokens(g->m, j) - (j->max_tokens == 0)) - shared >
            g->n_free)
            return 0;
        gen_seq *s = lf_gen_seq_create(g->m, j, err);
        if (!s)
            return LF_ENOMEM;
        int rc = take_features(g, s, err);
        if (rc == 0 && g->m->max_source)
            rc = g->m->encode(g->m->ctx, slot, 1, j->source, j->n_source, err);
        if (rc != 0) {
            lf_gen_seq_free(s);
            return rc;
        }
        take_pages(g, s, from, shared, g->table + (size_t)slot * (size_t)g->m->max_pages);
        s->slot = slot;
        if (g->m->prefix)
            g->m->prefix[slot] = (int32_t)gen_prefix_of(g->m, j);
        if (g->m->is_long)
            g->m->is_long[slot] = begins_long(g, j);
        s->sampler = g->samplers[slot];
        lf_sampler_begin(s->sampler, j->prompt, j->n_prompt);
        lf_sampler_limit(s->sampler, &j->limits);
        g->by_slot[slot] = s;
        g->next++;
    }
    return 0;
}

/* Must it wait for pages that another has not filled? Rows of the step being composed count as
 * written: a step writes keys and values of all its rows before any row reads them. */
static bool waits(const gen_run *g, gen_seq *s)
{
    while (s->n_ready < s->n_shared && g->filled[s->pages[s->n_ready]])
        s->n_ready++;
    return s->n_ready < s->n_shared;
}

/* Is there no room in a step for all rows of s before position `end`, which see each other, or for
 * the logits behind the last one? */
static bool no_room(const gen_run *g, const gen_seq *s, size_t end, int64_t rows, int64_t n_want)
{
    return end - s->cached > (size_t)(g->m->max_rows - rows) ||
           (n_want == g->most && gen_seq_wants(s, end - 1));
}

/* Is there no room for all that is left of its prefix? */
static bool prefix_waits(const gen_run *g, const gen_seq *s, int64_t rows, int64_t n_want)
{
    const size_t prefix = gen_prefix_of(g->m, s->job);
    return g->m->prefix && s->cached < prefix && no_room(g, s, prefix, rows, n_want);
}

/* The run of the next row of s: of a picture's tokens, or the row alone. */
static void run_of(const gen_seq *s, int32_t run[2])
{
    const struct lf_gen_media *media = s->job->media;
    const size_t at = s->cached;
    const bool prompt = media && media->runs && at < s->job->n_prompt;
    run[0] = prompt ? media->runs[2 * at] : (int32_t)at;
    run[1] = prompt ? media->runs[2 * at + 1] : (int32_t)at + 1;
}

/* Is there no room for all that is left of the run of its next row? */
static bool run_waits(const gen_run *g, const gen_seq *s, int64_t rows, int64_t n_want)
{
    int32_t run[2];
    if (!g->m->runs)
        return false;
    run_of(s, run);
    return no_room(g, s, (size_t)run[1], rows, n_want);
}

/* Does a sequence of n tokens need other angles than it has? */
static bool grows_long(const gen_run *g, const gen_seq *s, size_t n)
{
    return g->m->is_long && g->m->switching && !g->m->is_long[s->slot] &&
           n - (s->job->max_tokens == 0) > (size_t)g->m->switch_at;
}

/* A sequence that has grown beyond switch_at begins again, with other angles. */
static void grow_long(const gen_run *g, gen_seq *s)
{
    if (!grows_long(g, s, s->n_tok))
        return;
    g->m->is_long[s->slot] = 1;
    s->cached = 0;
    s->draft = -1;
}

/* What the model needs of row `row`, the next of s, besides its token. */
static void see(gen_run *g, const gen_seq *s, int64_t row)
{
    const struct lf_gen_media *media = s->job->media;
    const size_t at = s->cached;
    const bool prompt = media && at < s->job->n_prompt;
    if (g->row_feature) {
        const int32_t k = prompt ? media->feature[at] : -1;
        g->row_feature[row] = k < 0 ? NULL : s->features->row + k * s->features->width;
        if (k >= 0)
            g->row_tok[row] = LF_GEN_PICTURE;
    }
    for (int i = 0; g->row_places && i < 3; i++)
        g->row_places[3 * row + i] = prompt  ? media->places[3 * at + (size_t)i]
                                     : media ? media->next + (int32_t)(at - s->job->n_prompt)
                                             : (int32_t)at;
    if (g->row_runs)
        run_of(s, g->row_runs + 2 * row);
}

/* The next row of s, which computes token. */
static void add_row(gen_run *g, const gen_seq *s, int32_t token, int64_t row)
{
    g->row_tok[row] = token;
    see(g, s, row);
    g->row_pos[row] = (int32_t)s->cached;
    g->row_seq[row] = (int32_t)s->slot;
}

static void add_want(gen_run *g, gen_seq *s, int64_t row, bool draft, int64_t *n_want)
{
    g->want[*n_want] = (int32_t)row;
    g->want_at[*n_want] = s->cached;
    g->want_draft[*n_want] = draft;
    g->want_seq[(*n_want)++] = s;
}

/* Behind the row of the newest token that of its draft, if there is room. */
static void compose_draft(gen_run *g, gen_seq *s, int64_t *rows, int64_t *n_want)
{
    if (s->draft < 0 || s->cached != s->n_tok || *rows == g->m->max_rows || *n_want == g->most ||
        grows_long(g, s, s->n_tok + 1))
        return;
    add_row(g, s, s->draft, *rows);
    add_want(g, s, (*rows)++, true, n_want);
}

static void count_cached(gen_run *g, gen_seq *s)
{
    const size_t page = (size_t)g->m->page_tokens;
    if (++s->cached % page == 0)
        g->filled[s->pages[s->cached / page - 1]] = 1;
}

/* As many rows of a sequence as fit; at most `most` logits leave a step. */
static void compose_seq(gen_run *g, gen_seq *s, int64_t *rows, int64_t *n_want)
{
    const size_t goal = gen_seq_goal(s);
    const int64_t before = *rows;
    while (s->cached < goal && *rows < g->m->max_rows && !run_waits(g, s, *rows, *n_want)) {
        bool wanted = gen_seq_wants(s, s->cached);
        if (wanted && *n_want == g->most)
            return;
        add_row(g, s, s->cached < s->n_tok ? s->tok[s->cached] : -s->coming, *rows);
        if (wanted)
            add_want(g, s, *rows, false, n_want);
        ++*rows;
        count_cached(g, s);
    }
    if (*rows > before) /* it is asked twice */
        compose_draft(g, s, rows, n_want);
}

/* Rows of the next step: every decoding sequence first, then prompts in slot order. */
static int64_t compose(gen_run *g, int64_t *n_want)
{
    int64_t rows = 0;
    *n_want = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t slot = 0; slot < g->m->slots; slot++) {
            gen_seq *s = g->by_slot[slot];
            if (s && pass == 0)
                grow_long(g, s);
            bool decoding = s && gen_seq_length(s) - s->cached == 1;
            if (s && decoding == (pass == 0) && !waits(g, s) && !prefix_waits(g, s, rows, *n_want))
                compose_seq(g, s, &rows, n_want);
        }
    return rows;
}

static void retire(gen_run *g, gen_seq *s)
{
    lf_gen_seq_finish(s, g->tok);
    for (size_t i = 0; i < s->n_pages; i++)
        if (--g->holders[s->pages[i]] == 0)
            g->free_pages[g->n_free++] = s->pages[i];
    g->by_slot[s->slot] = NULL;
    s->slot = -1;
    g->done[s->job - g->jobs] = s;
}

static int deliver(gen_run *g, lf_gen_sink sink, void *arg, lf_err *err)
{
    while (g->delivered < g->n_jobs && g->done[g->delivered]) {
        gen_seq *s = g->done[g->delivered];
        const int rc = lf_gen_seq_deliver(s, sink, arg, err);
        if (rc < 0)
            return rc;
        lf_gen_seq_free(s);
        g->done[g->delivered++] = NULL;
    }
    return 0;
}

/* Is this row one that a token is drawn from? */
static bool draws(const gen_run *g, int64_t i)
{
    return g->want_draft[i] || g->want_at[i] + 1 == gen_seq_length(g->want_seq[i]);
}

/* Is the token that was drawn the draft whose row this is? Then that row is the next of its
 * sequence. */
static bool agrees(gen_run *g, int64_t i)
{
    gen_seq *s = g->want_seq[i];
    g->stats.drafted++;
    if (s->slot < 0 || s->n_tok != g->want_at[i] + 1 || s->tok[g->want_at[i]] != s->draft)
        return false;
    g->stats.accepted++;
    count_cached(g, s);
    return true;
}

/* What follows from one row of logits, in the order of the rows. */
static int apply(gen_run *g, int64_t i, bool drawn, const float *z, float lse, lf_err *err)
{
    gen_seq *s = g->want_seq[i];
    bool ended = false;
    int rc = 0;
    if (drawn) {
        rc = lf_gen_seq_advance(s, g->tok, g->drawn[i], z, lse, &ended, err);
        s->by_host = false;
        g->stats.new_tokens++;
    } else {
        rc = lf_gen_seq_check_prompt(s, g->want_at[i], err);
        ended = s->job->max_tokens == 0 && g->want_at[i] + 2 == s->job->n_prompt;
    }
    if (rc == 0 && ended)
        retire(g, s);
    return rc;
}

/* What the model can draw itself. */
static void ask(const gen_run *g, int64_t n_want)
{
    lf_gen_draws *d = g->m->draws;
    if (!d)
        return;
    d->vocab = g->m->vocab;
    for (int64_t i = 0; i < n_want; i++)
        if (!draws(g, i) || !lf_gen_seq_ask(g->want_seq[i], d, i))
            d->row[i] = (struct lf_sample_row){0};
}

/* Did it? */
static bool answered(const gen_run *g, int64_t i)
{
    const lf_gen_draws *d = g->m->draws;
    return d && d->row[i].on && d->out[i].token >= LF_SAMPLE_EMPTY;
}

/* The token of wanted row i. */
static struct lf_sample_out draw(const gen_run *g, int64_t i, const float *z, float lse)
{
    if (answered(g, i))
        return g->m->draws->out[i];
    const int32_t token = lf_gen_seq_draw(g->want_seq[i], z);
    return (struct lf_sample_out){token, token < 0 ? 0 : z[token] - lse};
}

/* The step composed last, for the model. */
static struct lf_gen_rows composed(const gen_run *g, int64_t rows, int64_t n_want)
{
    return (struct lf_gen_rows){.n = rows,
                                .token = g->row_tok,
                                .pos = g->row_pos,
                                .seq = g->row_seq,
                                .table = g->table,
                                .n_want = n_want,
                                .want = g->want,
                                .feature = g->row_feature,
                                .places = g->row_places,
                                .runs = g->row_runs};
}

/* Gives the head that drafts the rows of the newest step, and takes its guesses. */
static int guess(gen_run *g, int64_t rows, lf_err *err)
{
    struct guesses *q = &g->guess;
    struct lf_gen_drafts in = {.from = q->from,
                               .token = q->token,
                               .pos = q->pos,
                               .seq = q->seq,
                               .table = g->table,
                               .want = q->want};
    for (int64_t slot = 0; slot < g->m->slots; slot++)
        if (g->by_slot[slot])
            g->by_slot[slot]->draft = -1;
    for (int64_t r = 0; r < rows; r++) {
        const gen_seq *s = g->by_slot[g->row_seq[r]];
        const size_t at = (size_t)g->row_pos[r];
        const bool guessed = s && lf_gen_seq_guessed(s);
        if (!s || at >= s->cached || at + 1 >= s->n_tok)
            continue;
        if (!guessed && at + 1 >= s->job->n_prompt) /* another may share pages of the prompt */
            continue;
        q->from[in.n] = (int32_t)r;
        q->token[in.n] = s->tok[at + 1];
        q->pos[in.n] = (int32_t)at;
        q->seq[in.n] = (int32_t)s->slot;
        if (guessed && at + 2 == s->n_tok && s->n_tok + 1 < s->cap_tok)
            q->want[in.n_want++] = (int32_t)in.n;
        in.n++;
    }
    int rc = in.n ? g->m->draft(g->m->ctx, &in, q->out, err) : 0;
    for (int64_t i = 0; i < in.n_want && rc == 0; i++)
        g->by_slot[q->seq[q->want[i]]]->draft = q->out[i] < g->m->vocab ? q->out[i] : -1;
    return rc;
}

static int step_and_wait(gen_run *g, lf_err *err)
{
    const struct lf_profile_mark m = lf_profile_begin(g->m->profile);
    int64_t n_want, rows = compose(g, &n_want);
    const struct lf_gen_rows in = composed(g, rows, n_want);
    struct lf_gen_logits out;
    ask(g, n_want);
    int rc = g->m->step(g->m->ctx, &in, &out, err);
    const struct lf_profile_mark d = lf_profile_begin(g->m->profile);
    if (rc == 0) {
        /* A draw costs some milliseconds where a vocabulary is large: not one after the other. */
#pragma omp parallel for schedule(dynamic, 1) if (n_want > 1 && g->m->vocab > PARALLEL_DRAW)
        for (int64_t i = 0; i < n_want; i++) {
            gen_seq *s = g->want_seq[i];
            if (g->want_draft[i])
                continue; /* behind the draw before it, whose sampler it has */
            if (draws(g, i))
                g->drawn[i] = draw(g, i, out.z + i * out.ld, out.lse[i]);
            else
                lf_gen_seq_note_prompt(s, g->want_at[i], out.z + i * out.ld, out.lse[i]);
        }
    }
    for (int64_t i = 0; i < n_want && rc == 0; i++) {
        if (g->want_draft[i] && !agrees(g, i))
            continue;
        if (g->want_draft[i])
            g->drawn[i] = draw(g, i, out.z + i * out.ld, out.lse[i]);
        g->stats.model_draws += answered(g, i);
        rc = apply(g, i, draws(g, i), out.z + i * out.ld, out.lse[i], err);
    }
    if (rc == 0 && g->m->draft)
        rc = guess(g, rows, err);
    lf_profile_end(g->m->profile, LF_LANE_STEP, "draws", d);
    lf_profile_end(g->m->profile, LF_LANE_STEP, "generation step", m);
    g->stats.steps++;
    g->stats.rows += rows;
    return rc;
}

/* ---- steps that are read when the next one is under way ---- */

/* Does every sequence that runs need nothing of the host between two tokens? */
static bool can_go_ahead(const gen_run *g)
{
    bool can = g->m->begin && g->m->draws && !g->m->switching && !g->m->draft;
    for (int64_t slot = 0; slot < g->m->slots && can; slot++)
        can = !g->by_slot[slot] || lf_gen_seq_alone(g->by_slot[slot], g->m);
    return can;
}

/* The row behind its newest token is computed again, and waited for. */
static void leave_to_host(gen_seq *s)
{
    s->cached = s->n_tok - 1;
    s->by_host = true;
}

/* Nothing of the step composed last is for s any more. */
static void drop(gen_run *g, const gen_seq *s, int64_t n_want)
{
    for (int64_t i = 0; i < n_want; i++)
        if (g->want_seq[i] == s)
            g->want_seq[i] = NULL;
}

/* What the step that was begun before drew. n_want: of the step composed since, 0: none. */
static int read_ahead(gen_run *g, int64_t n_want, lf_err *err)
{
    struct ahead *a = &g->ahead;
    if (!a->on)
        return 0;
    a->on = false;
    int rc = g->m->end(g->m->ctx, a->out, err);
    for (int64_t i = 0; i < a->n_want && rc == 0; i++) {
        gen_seq *s = a->seq[i];
        bool ended = false;
        if (!s)
            continue;
        s->coming = 0;
        if (a->out[i].token < LF_SAMPLE_EMPTY) {
            leave_to_host(s);
            drop(g, s, n_want);
            continue;
        }
        rc = lf_gen_seq_advance(s, g->tok, a->out[i], NULL, 0, &ended, err);
        g->stats.new_tokens++;
        g->stats.model_draws++;
        if (rc == 0 && ended) {
            drop(g, s, n_want);
            retire(g, s);
        }
    }
    return rc;
}

/* The step composed last is the one that was begun. */
static void remember(gen_run *g, int64_t n_want)
{
    struct ahead *a = &g->ahead;
    gen_seq **seq = a->seq;
    size_t *at = a->at;
    *a = (struct ahead){true, n_want, g->want_seq, g->want_at, a->out};
    g->want_seq = seq;
    g->want_at = at;
    for (int64_t i = 0; i < n_want; i++)
        if (a->seq[i])
            a->seq[i]->coming = (int32_t)i + 1;
}

static int step_ahead(gen_run *g, lf_err *err)
{
    const struct lf_profile_mark m = lf_profile_begin(g->m->profile);
    const bool before = g->ahead.on;
    int64_t n_want, rows = compose(g, &n_want);
    const struct lf_gen_rows in = composed(g, rows, n_want);
    if (rows == 0) /* all that runs has its last token coming */
        return read_ahead(g, 0, err);
    ask(g, n_want);
    int rc = g->m->begin(g->m->ctx, &in, err);
    if (rc != 0)
        return rc;
    rc = read_ahead(g, n_want, err);
    remember(g, n_want);
    lf_profile_end(g->m->profile, LF_LANE_STEP, "generation step", m);
    g->stats.steps++;
    g->stats.ahead += before;
    g->stats.rows += rows;
    return rc;
}

static int one_step(gen_run *g, lf_err *err)
{
    if (can_go_ahead(g))
        return step_ahead(g, err);
    return g->ahead.on ? read_ahead(g, 0, err) : step_and_wait(g, err);
}

static int allocate_guesses(gen_run *g, lf_err *err)
{
    struct guesses *q = &g->guess;
    const size_t rows = (size_t)g->m->max_rows, slots = (size_t)g->m->slots;
    q->from = lf_calloc(rows, sizeof *q->from, err);
    q->token = lf_calloc(rows, sizeof *q->token, err);
    q->pos = lf_calloc(rows, sizeof *q->pos, err);
    q->seq = lf_calloc(rows, sizeof *q->seq, err);
    q->want = lf_calloc(slots, sizeof *q->want, err);
    q->out = lf_calloc(slots, sizeof *q->out, err);
    return q->from && q->token && q->pos && q->seq && q->want && q->out ? 0 : LF_ENOMEM;
}

static int allocate(gen_run *g, lf_err *err)
{
    size_t slots = (size_t)g->m->slots, rows = (size_t)g->m->max_rows,
           pages = (size_t)g->m->n_pages, most = (size_t)g->most;
    g->by_slot = lf_calloc(slots, sizeof *g->by_slot, err);
    g->done = lf_calloc(g->n_jobs, sizeof *g->done, err);
    g->samplers = lf_calloc(slots, sizeof *g->samplers, err);
    g->free_pages = lf_calloc(pages, sizeof *g->free_pages, err);
    g->holders = lf_calloc(pages, sizeof *g->holders, err);
    g->filled = lf_calloc(pages, sizeof *g->filled, err);
    g->table = lf_calloc(slots * (size_t)g->m->max_pages, sizeof *g->table, err);
    g->row_tok = lf_calloc(rows, sizeof *g->row_tok, err);
    g->row_pos = lf_calloc(rows, sizeof *g->row_pos, err);
    g->row_seq = lf_calloc(rows, sizeof *g->row_seq, err);
    g->want = lf_calloc(most, sizeof *g->want, err);
    g->want_seq = lf_calloc(most, sizeof *g->want_seq, err);
    g->want_at = lf_calloc(most, sizeof *g->want_at, err);
    g->want_draft = lf_calloc(most, sizeof *g->want_draft, err);
    g->drawn = lf_calloc(most, sizeof *g->drawn, err);
    g->ahead.seq = lf_calloc(most, sizeof *g->ahead.seq, err);
    g->ahead.at = lf_calloc(most, sizeof *g->ahead.at, err);
    g->ahead.out = lf_calloc(slots, sizeof *g->ahead.out, err);
    if (!g->by_slot || !g->done || !g->samplers || !g->free_pages || !g->holders || !g->filled ||
        !g->table || !g->row_tok || !g->row_pos || !g->row_seq || !g->want || !g->want_seq ||
        !g->want_at || !g->want_draft || !g->drawn || !g->ahead.seq || !g->ahead.at ||
        !g->ahead.out || (g->m->draft && allocate_guesses(g, err)))
        return LF_ENOMEM;
    if (g->m->feature_width && !(g->row_feature = lf_calloc(rows, sizeof *g->row_feature, err)))
        return LF_ENOMEM;
    if (g->m->places && !(g->row_places = lf_calloc(3 * rows, sizeof *g->row_places, err)))
        return LF_ENOMEM;
    if (g->m->runs && !(g->row_runs = lf_calloc(2 * rows, sizeof *g->row_runs, err)))
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
        lf_gen_seq_free(g->by_slot[i]);
    for (size_t i = 0; g->done && i < g->n_jobs; i++)
        lf_gen_seq_free(g->done[i]);
    for (size_t i = 0; g->samplers && i < (size_t)g->m->slots; i++)
        lf_sampler_destroy(g->samplers[i]);
    void *blocks[] = {g->by_slot,    g->done,       g->samplers,    g->free_pages, g->holders,
                      g->filled,     g->table,      g->row_tok,     g->row_pos,    g->row_seq,
                      g->want,       g->want_seq,   g->want_at,     g->drawn,      g->ahead.seq,
                      g->ahead.at,   g->ahead.out,  g->row_feature, g->row_places, g->row_runs,
                      g->want_draft, g->guess.from, g->guess.token, g->guess.pos,  g->guess.seq,
                      g->guess.want, g->guess.out};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
}

/* Runs jobs whose tokens are drawn; adds to *stats. */
static int run_drawn(const lf_gen_model *m, const struct lf_gen_work *w, struct lf_gen_stats *stats,
                     lf_err *err)
{
    gen_run g = {.m = m,
                 .most = m->max_want ? m->max_want : m->slots,
                 .tok = w->tok,
                 .jobs = w->jobs,
                 .n_jobs = w->n_jobs,
                 .stats = *stats};
    int rc = allocate(&g, err);
    while (rc == 0 && g.delivered < w->n_jobs) {
        if (w->stop && w->stop()) {
            rc = lf_fail(err, LF_EINTR, "stopped after %zu of %zu results", g.delivered, w->n_jobs);
            break;
        }
        rc = admit(&g, err);
        if (rc == 0)
            rc = one_step(&g, err);
        if (rc == 0)
            rc = deliver(&g, w->sink, w->arg, err);
    }
    if (g.ahead.on) /* nobody asks any more */
        m->end(m->ctx, g.ahead.out, NULL);
    *stats = g.stats;
    release(&g);
    return rc;
}

/* Jobs with beams and without are run one kind behind the other, as results come in order. */
int lf_gen_run(const lf_gen_model *m, const struct lf_gen_work *w, struct lf_gen_stats *stats,
               lf_err *err)
{
    struct lf_gen_stats st = {0};
    const double t0 = lf_now_s();
    int rc = lf_gen_check(m, w->tok, w->jobs, w->n_jobs, err);
    for (size_t i = 0; rc == 0 && i < w->n_jobs; i++)
        st.prompt_tokens += (int64_t)w->jobs[i].n_prompt;
    for (size_t at = 0, end; rc == 0 && at < w->n_jobs; at = end) {
        const bool beams = w->jobs[at].beams.n > 1;
        struct lf_gen_work part = *w;
        for (end = at; end < w->n_jobs && (w->jobs[end].beams.n > 1) == beams; end++)
            ;
        part.jobs = w->jobs + at;
        part.n_jobs = end - at;
        rc = beams ? lf_beam_run(m, &part, &st, err) : run_drawn(m, &part, &st, err);
    }
    st.seconds = lf_now_s() - t0;
    if (stats)
        *stats = st;
    return rc;
}
