/* SPDX-License-Identifier: Apache-2.0
 *
 * The batching scheduler over a model made of arithmetic: its cache holds tokens, and a row's
 * logits are a hash of every token that the page table says is before it. A wrong page, position,
 * order or a token missing from the cache changes the output.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/infer/beam.h"
#include "tests/tap/tap.h"

enum { V = 23, PAGE = 4, CONTEXT = 40, N_JOBS = 17, MAX_OUT = 32, NO_TOKEN = 4711 };

struct fake {
    lf_gen_model m;
    int32_t *pages;
    float *logits, *lse;
    int64_t most_rows;
    lf_gen_draws draws; /* with fake_draws */
    struct
    { /* with fake_ahead: answers that were not read, the oldest first, and the newest ones */
        int64_t n;
        struct lf_sample_out out[N_JOBS];
    } begun[LF_GEN_AHEAD], newest;
    int n_begun, most_begun;
    int64_t seen; /* rows that see rows behind them */
    int32_t prefix[N_JOBS];
};

/* Is each row's run there up to its end? Its later rows follow it in this step. */
static bool runs_whole(struct fake *f, const struct lf_gen_rows *in)
{
    bool whole = true;
    for (int64_t r = 0; r < in->n; r++) {
        const int32_t *run = in->runs + 2 * r;
        const int64_t last = r + run[1] - 1 - in->pos[r];
        f->seen += last > r;
        whole = whole && run[0] <= in->pos[r] && in->pos[r] < run[1] && last < in->n &&
                in->seq[last] == in->seq[r] && in->pos[last] == run[1] - 1;
    }
    return whole;
}

/* What a token of a prefix, which sees all of it, has besides. */
static int32_t within(int32_t prefix, int32_t pos)
{
    return pos < prefix ? V * prefix : 0;
}

/* Are the rows of each prefix in one step, but those of pages that another sequence filled? */
static bool prefixes_whole(struct fake *f, const struct lf_gen_rows *in)
{
    bool whole = true;
    for (int64_t r = 0; r < in->n; r++) {
        const int64_t last = r + f->prefix[in->seq[r]] - 1 - in->pos[r];
        if (last < r)
            continue;
        f->seen += last > r;
        whole = whole && last < in->n && in->seq[last] == in->seq[r];
    }
    return whole;
}

/* Greedy tokens without a list are drawn here, and their logits gone; everything else is left to
 * lf_gen_run. */
static void fake_draw(struct fake *f, int64_t n_want)
{
    for (int64_t i = 0; i < n_want; i++) {
        const struct lf_sample_row *row = &f->draws.row[i];
        float *z = f->logits + i * V;
        int32_t best = 0;
        f->draws.out[i] = (struct lf_sample_out){row->on ? LF_SAMPLE_HOST : LF_SAMPLE_NONE, 0};
        if (!row->on || row->scale > 0 || row->list_n > 0)
            continue;
        for (int32_t v = 1; v < V; v++)
            best = z[v] > z[best] ? v : best;
        f->draws.out[i] = (struct lf_sample_out){best, z[best] - f->lse[i]};
        memset(z, 0xff, V * sizeof *z); /* NaN */
    }
}

static int fake_rows(void *ctx, const struct lf_gen_rows *in, struct lf_gen_logits *out,
                     lf_err *err)
{
    struct fake *f = ctx;
    if (in->n > f->m.max_rows || in->n < 1)
        return lf_fail(err, LF_EINVAL, "%lld rows", (long long)in->n);
    f->most_rows = in->n > f->most_rows ? in->n : f->most_rows;
    if (f->m.runs && !runs_whole(f, in))
        return lf_fail(err, LF_EINVAL, "a run is cut");
    if (f->m.prefix && !prefixes_whole(f, in))
        return lf_fail(err, LF_EINVAL, "a prefix is cut");
    for (int64_t r = 0; r < in->n; r++) {
        const int32_t *t = in->table + in->seq[r] * f->m.max_pages;
        f->pages[t[in->pos[r] / PAGE] * PAGE + in->pos[r] % PAGE] =
            in->token[r] + within(f->m.prefix ? f->prefix[in->seq[r]] : 0, in->pos[r]);
    }
    for (int64_t i = 0; i < in->n_want; i++) {
        int32_t r = in->want[i];
        const int32_t *t = in->table + in->seq[r] * f->m.max_pages;
        uint64_t h = 99;
        for (int32_t p = 0; p <= in->pos[r]; p++)
            h = h * 6364136223846793005u + (uint64_t)f->pages[t[p / PAGE] * PAGE + p % PAGE] + 1;
        for (uint64_t v = 0; v < V; v++)
            f->logits[i * V + (int64_t)v] = 4 * (float)lf_rng_f64(h, 5, v);
        f->lse[i] = f->logits[i * V] + 1;
    }
    if (f->m.draws)
        fake_draw(f, in->n_want);
    *out = (struct lf_gen_logits){f->logits, V, f->lse};
    return 0;
}

static int fake_step(void *ctx, const struct lf_gen_rows *in, struct lf_gen_logits *out,
                     lf_err *err)
{
    if (((struct fake *)ctx)->n_begun)
        return lf_fail(err, LF_EINVAL, "a step between begin and end");
    return fake_rows(ctx, in, out, err);
}

/* The same without logits; where nothing was drawn for a row's token, it is none that the model
 * has. */
static int fake_begin(void *ctx, const struct lf_gen_rows *in, lf_err *err)
{
    struct fake *f = ctx;
    struct lf_gen_logits out;
    int32_t known[64];
    if (f->n_begun == LF_GEN_AHEAD || in->n > 64)
        return lf_fail(err, LF_EINVAL, "%d are begun, %lld rows", f->n_begun, (long long)in->n);
    for (int64_t r = 0; r < in->n; r++) {
        const int64_t i = -1 - (int64_t)in->token[r];
        if (i >= f->newest.n)
            return lf_fail(err, LF_EINVAL, "the token of row %lld of %lld", (long long)i,
                           (long long)f->newest.n);
        known[r] = i < 0                        ? in->token[r]
                   : f->newest.out[i].token < 0 ? NO_TOKEN
                                                : f->newest.out[i].token;
    }
    struct lf_gen_rows known_rows = *in;
    known_rows.token = known;
    const int rc = fake_rows(f, &known_rows, &out, err);
    f->newest.n = in->n_want;
    memcpy(f->newest.out, f->draws.out, (size_t)in->n_want * sizeof *f->draws.out);
    memset(f->draws.out, 0xff, (size_t)in->n_want * sizeof *f->draws.out);
    memset(f->logits, 0xff, (size_t)(f->m.slots * V) * sizeof *f->logits);
    f->begun[f->n_begun].n = in->n_want;
    memcpy(f->begun[f->n_begun++].out, f->newest.out, sizeof f->newest.out);
    f->most_begun = f->n_begun > f->most_begun ? f->n_begun : f->most_begun;
    return rc;
}

static int fake_end(void *ctx, struct lf_sample_out *out, lf_err *err)
{
    struct fake *f = ctx;
    if (!f->n_begun)
        return lf_fail(err, LF_EINVAL, "nothing was begun");
    memcpy(out, f->begun[0].out, (size_t)f->begun[0].n * sizeof *out);
    f->begun[0] = f->begun[1];
    f->n_begun--;
    return 0;
}

static int fake_open(struct fake *f, int64_t slots, int64_t rows, int64_t pages)
{
    *f = (struct fake){.m = {.ctx = f,
                             .vocab = V,
                             .max_context = CONTEXT,
                             .slots = slots,
                             .max_rows = rows,
                             .page_tokens = PAGE,
                             .n_pages = pages,
                             .max_pages = CONTEXT / PAGE,
                             .step = fake_step}};
    f->pages = calloc((size_t)pages * PAGE, sizeof *f->pages);
    f->logits = calloc((size_t)slots * V, sizeof *f->logits);
    f->lse = calloc((size_t)slots, sizeof *f->lse);
    return f->pages && f->logits && f->lse ? 0 : -1;
}

static void fake_close(struct fake *f)
{
    free(f->pages);
    free(f->logits);
    free(f->lse);
    free(f->draws.row);
    free(f->draws.list);
    free(f->draws.out);
}

/* From now on the model draws. */
static void fake_draws(struct fake *f, size_t list)
{
    const size_t slots = (size_t)f->m.slots;
    f->draws = (lf_gen_draws){.row = calloc(slots, sizeof(struct lf_sample_row)),
                              .list = calloc(slots * list + 1, sizeof(struct lf_sample_token)),
                              .room = list,
                              .out = calloc(slots, sizeof(struct lf_sample_out))};
    if (!f->draws.row || !f->draws.list || !f->draws.out)
        tap_bail("no memory");
    f->m.draws = &f->draws;
}

/* And is read a step later. */
static void fake_ahead(struct fake *f)
{
    f->m.begin = fake_begin;
    f->m.end = fake_end;
}

struct got {
    size_t n;
    int32_t tokens[N_JOBS][MAX_OUT];
    float logprobs[N_JOBS][MAX_OUT];
    size_t len[N_JOBS];
    enum lf_finish finish[N_JOBS];
    bool ordered;
    const lf_gen_job *jobs;
};

static int sink(void *arg, const lf_gen_result *r, lf_err *err)
{
    (void)err;
    struct got *g = arg;
    g->ordered = g->ordered && r->job == &g->jobs[g->n];
    memcpy(g->tokens[g->n], r->tokens, r->n * sizeof *r->tokens);
    memcpy(g->logprobs[g->n], r->logprobs, r->n * sizeof *r->logprobs);
    g->len[g->n] = r->n;
    g->finish[g->n++] = r->finish;
    return 0;
}

static int32_t prompts[N_JOBS][24];
static const int32_t end_token[] = {7};

static void make_jobs(lf_gen_job *jobs)
{
    static char ids[N_JOBS][16];
    for (int i = 0; i < N_JOBS; i++) {
        size_t n = 1 + (size_t)(i * 7) % 23;
        for (size_t k = 0; k < n; k++)
            prompts[i][k] = (int32_t)(lf_rng_u32(3, (uint32_t)i, k) % V);
        snprintf(ids[i], sizeof ids[i], "r%d", i);
        jobs[i] = (lf_gen_job){.id = ids[i],
                               .prompt = prompts[i],
                               .n_prompt = n,
                               .max_tokens = 1 + (i * 5) % 29,
                               .params = LF_SAMPLE_DEFAULTS,
                               .end = end_token,
                               .n_end = 1,
                               .seed = lf_sample_seed(1, ids[i], 0)};
        if (i % 3 == 0)
            jobs[i].params.temperature = 0;
        if (i % 3 == 1)
            jobs[i].params.top_p = 0.9;
    }
}

static void test_composition(const lf_gen_job *jobs)
{
    static const int64_t shapes[][3] = {{1, 1, 10},  {1, 64, 10},   {3, 5, 12},
                                        {5, 16, 50}, {17, 17, 170}, {4, 4, 11}};
    static struct got ref, got;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fake f;
        lf_err err = LF_ERR_INIT;
        struct lf_gen_stats st;
        if (fake_open(&f, shapes[i][0], shapes[i][1], shapes[i][2]))
            tap_bail("no memory");
        got = (struct got){.ordered = true, .jobs = jobs};
        tap_rc(lf_gen_run(
                   &f.m,
                   &(struct lf_gen_work){.jobs = jobs, .n_jobs = N_JOBS, .sink = sink, .arg = &got},
                   &st, &err),
               0, &err, NULL, "run");
        tap_ok(got.n == N_JOBS && got.ordered, "every result once, in order");
        if (i == 0)
            ref = got;
        tap_mem(got.tokens, ref.tokens, sizeof got.tokens,
                "tokens do not depend on slots, rows and pages");
        tap_mem(got.logprobs, ref.logprobs, sizeof got.logprobs, "nor do log-probabilities");
        tap_i64(f.most_rows <= shapes[i][1], 1, "no step has more rows than the model takes");
        fake_close(&f);
    }
    int stops = 0, lengths = 0;
    for (int i = 0; i < N_JOBS; i++) {
        bool ended = ref.len[i] > 0 && ref.tokens[i][ref.len[i] - 1] == 7;
        stops += ref.finish[i] == LF_FINISH_STOP;
        lengths += ref.finish[i] == LF_FINISH_LENGTH;
        if (ended != (ref.finish[i] == LF_FINISH_STOP) || ref.len[i] > (size_t)jobs[i].max_tokens ||
            jobs[i].n_prompt + ref.len[i] > CONTEXT)
            tap_ok(false, "job %d: %zu tokens, finish %s", i, ref.len[i],
                   lf_finish_name(ref.finish[i]));
    }
    tap_ok(stops > 0 && lengths > 0, "some stopped (%d), some met a limit (%d)", stops, lengths);
}

/* What the model draws itself is the token that would have been drawn from its logits, in every
 * mixture of both. */
static void test_draws(const lf_gen_job *jobs)
{
    static const int64_t shapes[][4] = {
        {1, 1, 10, 100}, {3, 5, 12, 100}, {17, 17, 170, 30}, {17, 64, 170, 0}};
    static struct got ref, got;
    lf_gen_job mixed[N_JOBS];
    for (int i = 0; i < N_JOBS; i++) {
        mixed[i] = jobs[i];
        mixed[i].params.repetition_penalty = i % 4 == 1 ? 1.3 : 1;
        mixed[i].min_tokens = i % 6 == 3 ? 4 : 0;
        mixed[i].top_logprobs = i % 6 == 0 ? 2 : 0; /* never asked for */
    }
    for (int i = -1; i < 2 * (int)(sizeof shapes / sizeof *shapes); i++) {
        const int64_t *shape = shapes[i < 0 ? 0 : i / 2];
        const bool ahead = i > 0 && i % 2;
        struct fake f;
        lf_err err = LF_ERR_INIT;
        struct lf_gen_stats st;
        int64_t greedy = 0;
        if (fake_open(&f, shape[0], shape[1], shape[2]))
            tap_bail("no memory");
        if (i >= 0)
            fake_draws(&f, (size_t)shape[3]);
        if (ahead)
            fake_ahead(&f);
        got = (struct got){.ordered = true, .jobs = mixed};
        tap_rc(lf_gen_run(&f.m,
                          &(struct lf_gen_work){
                              .jobs = mixed, .n_jobs = N_JOBS, .sink = sink, .arg = &got},
                          &st, &err),
               0, &err, NULL, "run with a model that draws");
        if (i < 0)
            ref = got;
        tap_mem(got.tokens, ref.tokens, sizeof got.tokens, "the same tokens");
        tap_mem(got.logprobs, ref.logprobs, sizeof got.logprobs, "and log-probabilities");
        for (int j = 3; j < N_JOBS;
             j += 6) /* greedy ones; with a list until min_tokens are there */
            greedy +=
                j % 4 == 1 ? 0 : (int64_t)got.len[j] - (got.len[j] < 4 ? (int64_t)got.len[j] : 4);
        tap_i64(st.model_draws, i < 0 ? 0 : greedy,
                "of which the model drew those that it was asked for and could");
        tap_ok((st.ahead > 0) == (f.most_begun == 2) && (ahead || st.ahead == 0) && f.n_begun == 0,
               "%lld steps ahead", (long long)st.ahead);
        fake_close(&f);
    }
}

static int stops_left;
static bool stop_soon(void)
{
    return stops_left-- == 0;
}

/* All that a model may be asked blindly: nearly every step is begun before the one before is read,
 * whoever ends when, and whatever it leaves to the host. Who is stopped leaves nothing begun. */
static void test_ahead(const lf_gen_job *jobs)
{
    static const int64_t shapes[][3] = {{1, 1, 10},    {3, 5, 12},    {5, 16, 50},
                                        {17, 17, 170}, {17, 64, 170}, {4, 4, 11}};
    static struct got ref, got;
    lf_gen_job greedy[N_JOBS];
    struct fake f;
    lf_err err = LF_ERR_INIT;
    for (int left = 0; left < 2; left++) {
        for (int i = 0; i < N_JOBS; i++) {
            greedy[i] = jobs[i];
            greedy[i].params.temperature = left && i % 5 == 0;
            greedy[i].params.top_p = 1;
            greedy[i].min_tokens =
                left && i % 4 == 2 ? 3 : 0; /* with a list it is left to the host */
        }
        for (int i = -1; i < (int)(sizeof shapes / sizeof *shapes); i++) {
            const int64_t *shape = shapes[i < 0 ? 0 : i];
            struct lf_gen_stats st;
            if (fake_open(&f, shape[0], shape[1], shape[2]))
                tap_bail("no memory");
            if (i >= 0) {
                fake_draws(&f, 100);
                fake_ahead(&f);
            }
            got = (struct got){.ordered = true, .jobs = greedy};
            tap_rc(lf_gen_run(&f.m,
                              &(struct lf_gen_work){
                                  .jobs = greedy, .n_jobs = N_JOBS, .sink = sink, .arg = &got},
                              &st, &err),
                   0, &err, NULL, "run ahead");
            if (i < 0)
                ref = got;
            tap_mem(got.tokens, ref.tokens, sizeof got.tokens, "the same tokens");
            tap_mem(got.logprobs, ref.logprobs, sizeof got.logprobs, "and log-probabilities");
            tap_mem(got.finish, ref.finish, sizeof got.finish, "and ends");
            tap_ok(got.ordered && got.n == N_JOBS && f.n_begun == 0 &&
                       (i < 0 || left || st.ahead * 4 > st.steps * 3),
                   "%lld of %lld steps ahead", (long long)st.ahead, (long long)st.steps);
            fake_close(&f);
        }
    }
    for (int i = 0; i < 5; i++) {
        if (fake_open(&f, 3, 8, 60))
            tap_bail("no memory");
        fake_draws(&f, 100);
        fake_ahead(&f);
        stops_left = i;
        got = (struct got){.ordered = true, .jobs = greedy};
        tap_ok(
            lf_gen_run(
                &f.m,
                &(struct lf_gen_work){
                    .jobs = greedy, .n_jobs = N_JOBS, .sink = sink, .arg = &got, .stop = stop_soon},
                NULL, &err) == LF_EINTR &&
                f.n_begun == 0,
            "stopped, nothing is begun");
        err = (lf_err)LF_ERR_INIT;
        fake_close(&f);
    }
}

static void test_min_tokens(const lf_gen_job *jobs)
{
    lf_gen_job job = jobs[2];
    struct fake f;
    lf_err err = LF_ERR_INIT;
    static struct got got;
    if (fake_open(&f, 1, 8, 10))
        tap_bail("no memory");
    job.max_tokens = job.min_tokens = 16;
    got = (struct got){.ordered = true, .jobs = &job};
    tap_rc(lf_gen_run(&f.m,
                      &(struct lf_gen_work){.jobs = &job, .n_jobs = 1, .sink = sink, .arg = &got},
                      NULL, &err),
           0, &err, NULL, "run with min_tokens");
    bool seen = false;
    for (size_t i = 0; i < got.len[0]; i++)
        seen = seen || got.tokens[0][i] == 7;
    tap_ok(got.len[0] == 16 && !seen, "min_tokens keeps the end token away");
    fake_close(&f);
}

/* Samples of one prompt hold its full pages together: the same output, the prompt computed once,
 * room for more at a time. */
static void test_samples(const lf_gen_job *first)
{
    enum { N = 8 };
    static const int64_t shapes[][3] = {
        {1, 8, 10}, {8, 64, 80}, {8, 8, 22}, {8, 9, 40}, {3, 5, 13}};
    static struct got ref, got;
    lf_gen_job jobs[N];
    for (uint32_t i = 0; i < N; i++) {
        jobs[i] = *first;
        jobs[i].sample = i;
        jobs[i].seed = lf_sample_seed(1, first->id, i);
        jobs[i].params.temperature = 1;
        jobs[i].max_tokens = 1 + (int64_t)(i * 5) % 8;
        jobs[i].n_end = 0;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fake f;
        lf_err err = LF_ERR_INIT;
        struct lf_gen_stats st;
        if (fake_open(&f, shapes[i][0], shapes[i][1], shapes[i][2]))
            tap_bail("no memory");
        got = (struct got){.ordered = true, .jobs = jobs};
        tap_rc(
            lf_gen_run(&f.m,
                       &(struct lf_gen_work){.jobs = jobs, .n_jobs = N, .sink = sink, .arg = &got},
                       &st, &err),
            0, &err, NULL, "run samples of one prompt");
        tap_ok(got.n == N && got.ordered, "every sample once, in order");
        if (i == 0)
            ref = got;
        tap_mem(got.tokens, ref.tokens, sizeof got.tokens, "sharing pages changes no token");
        int64_t decoded = 0, whole = (int64_t)(first->n_prompt - 1) / PAGE * PAGE;
        for (int k = 0; k < N; k++)
            decoded += (int64_t)got.len[k] - 1;
        if (shapes[i][0] == N && shapes[i][2] == 80)
            tap_i64(st.rows,
                    (int64_t)first->n_prompt + (N - 1) * ((int64_t)first->n_prompt - whole) +
                        decoded,
                    "the common pages are computed once");
        fake_close(&f);
    }
}

static int fake_features(void *look, const lf_gen_job *job, float *out, lf_err *err)
{
    (void)look;
    (void)err;
    memset(out, 0, (size_t)job->media->n_features * sizeof *out);
    return 0;
}

/* Three pictures, the last at the end of the prompt; the second runs over a page. */
static void make_picture_jobs(lf_gen_job *jobs, int n, const lf_gen_job *first)
{
    static int32_t feature[24], runs[48];
    static const int32_t of[][2] = {{3, 10}, {13, 17}, {20, 22}};
    static const struct lf_gen_media media = {
        .feature = feature, .n_features = 13, .runs = runs, .pictures = runs};
    int32_t k = 0;
    for (int32_t i = 0; i < 24; i++) {
        feature[i] = -1;
        runs[2 * i] = i;
        runs[2 * i + 1] = i + 1;
        for (size_t p = 0; p < 3; p++)
            if (of[p][0] <= i && i < of[p][1]) {
                feature[i] = k++;
                memcpy(runs + 2 * i, of[p], sizeof of[p]);
            }
    }
    for (int i = 0; i < n; i++) {
        jobs[i] = *first;
        jobs[i].n_prompt = 22;
        jobs[i].sample = (uint32_t)i;
        jobs[i].seed = lf_sample_seed(1, first->id, (uint32_t)i);
        jobs[i].params.temperature = 1;
        jobs[i].max_tokens = 1 + (int64_t)(i * 5) % 8;
        jobs[i].n_end = 0;
        if (i % 4 == 3) /* text, whose every row is wanted */
            jobs[i].prompt_logprobs = true;
        else
            jobs[i].media = &media;
    }
}

/* The tokens of a picture see each other: no step cuts them, and samples share what is before. */
static void test_runs(const lf_gen_job *first)
{
    enum { N = 9 };
    static const int64_t shapes[][3] = {
        {1, 64, 10}, {8, 64, 80}, {8, 9, 40}, {3, 7, 30}, {2, 8, 20}};
    static struct got ref, got;
    lf_gen_job jobs[N];
    struct fake f;
    lf_err err = LF_ERR_INIT;
    make_picture_jobs(jobs, N, first);
    const struct lf_gen_work w = {.jobs = jobs, .n_jobs = N, .sink = sink, .arg = &got};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct lf_gen_stats st;
        if (fake_open(&f, shapes[i][0], shapes[i][1], shapes[i][2]))
            tap_bail("no memory");
        f.m.runs = true;
        f.m.feature_width = 1;
        f.m.features = fake_features;
        got = (struct got){.ordered = true, .jobs = jobs};
        tap_rc(lf_gen_run(&f.m, &w, &st, &err), 0, &err, NULL, "run prompts with pictures");
        if (i == 0)
            ref = got;
        tap_mem(got.tokens, ref.tokens, sizeof got.tokens, "whatever shape the steps have");
        tap_ok(f.seen > 0 && (shapes[i][0] == 1 || st.shared_tokens > 0),
               "%lld rows saw rows behind them, %lld were shared", (long long)f.seen,
               (long long)st.shared_tokens);
        fake_close(&f);
    }
    if (fake_open(&f, 2, 6, 20))
        tap_bail("no memory");
    f.m.runs = true;
    f.m.feature_width = 1;
    f.m.features = fake_features;
    tap_rc(lf_gen_check(&f.m, NULL, jobs, 1, &err), LF_EINVAL, &err, "raise step_rows",
           "a picture larger than a step");
    f.m.max_rows = 7;
    tap_rc(lf_gen_check(&f.m, NULL, jobs, 1, &err), 0, &err, NULL, "one as large");
    jobs[0].prompt_logprobs = true;
    tap_rc(lf_gen_check(&f.m, NULL, jobs, 1, &err), LF_EINVAL, &err, "no probability",
           "log-probabilities of such a prompt");
    jobs[0].max_tokens = 0;
    tap_rc(lf_gen_check(&f.m, NULL, jobs, 1, &err), LF_EINVAL, &err, "behind the last picture",
           "nor is a picture scored");
    jobs[0].n_prompt = 20;
    tap_rc(lf_gen_check(&f.m, NULL, jobs, 1, &err), 0, &err, NULL, "but what follows is");
    const struct lf_gen_media blind = {.feature = jobs[1].media->feature, .n_features = 13};
    jobs[1].media = &blind;
    tap_rc(lf_gen_check(&f.m, NULL, jobs + 1, 1, &err), LF_EINVAL, &err, "does not say",
           "pictures without their runs");
    fake_close(&f);
}

/* longrope: sequences on both sides of switch_at have other angles, and so no pages in common. */
static void test_long(const lf_gen_job *first)
{
    enum { N = 4 };
    static struct got ref, got;
    lf_gen_job jobs[N];
    for (uint32_t i = 0; i < N; i++) {
        jobs[i] = *first;
        jobs[i].sample = i;
        jobs[i].seed = lf_sample_seed(1, first->id, i);
        jobs[i].max_tokens = i % 2 ? 2 : 6;
        jobs[i].n_end = 0;
    }
    for (int mode = 0; mode < 3; mode++) { /* one table; by the length; as transformers */
        struct fake f;
        lf_err err = LF_ERR_INIT;
        struct lf_gen_stats st;
        uint8_t is_long[N] = {0};
        if (fake_open(&f, N, 64, 80))
            tap_bail("no memory");
        if (mode)
            f.m.is_long = is_long;
        f.m.switch_at = (int64_t)first->n_prompt + 2;
        f.m.switching = mode == 2;
        got = (struct got){.ordered = true, .jobs = jobs};
        tap_rc(
            lf_gen_run(&f.m,
                       &(struct lf_gen_work){.jobs = jobs, .n_jobs = N, .sink = sink, .arg = &got},
                       &st, &err),
            0, &err, NULL, "run with switch_at");
        if (mode == 0)
            ref = got;
        tap_mem(got.tokens, ref.tokens, sizeof got.tokens,
                "computing again changes no token of a model with one table");
        const int64_t whole = (int64_t)(first->n_prompt - 1) / PAGE * PAGE,
                      sharing[] = {N - 1, N - 2, 0};
        tap_i64(st.shared_tokens, sharing[mode] * whole,
                "pages are shared among those of one kind, or not");
        if (mode == 1)
            tap_ok(is_long[0] && !is_long[1] && is_long[2] && !is_long[3],
                   "long by prompt and max_tokens");
        if (mode == 2)
            tap_ok(is_long[0] && !is_long[1] && is_long[2] && !is_long[3],
                   "long by what they have become");
        fake_close(&f);
    }
}

/* A placeholder is none that the fake knows by its number. */
static int32_t row_token(const lf_gen_job *j, size_t i)
{
    return j->media && j->media->feature[i] >= 0 ? LF_GEN_PICTURE : j->prompt[i];
}

struct scored {
    size_t n, bad;
    const lf_gen_job *jobs;
    bool prefix, prefix_last;
};

/* What the model itself says of token `at` of a sequence: the hash of fake_step over plain
 * tokens. */
static float plain_logit(const struct scored *g, const lf_gen_job *j, size_t at, uint64_t v)
{
    uint64_t h = 99;
    const size_t first = j->prompt_first > 1 ? j->prompt_first : 1;
    const int32_t prefix = g->prefix ? (int32_t)first - 1 + g->prefix_last : 0;
    for (size_t p = 0; p < at; p++)
        h = h * 6364136223846793005u + (uint64_t)(row_token(j, p) + within(prefix, (int32_t)p)) + 1;
    return 4 * (float)lf_rng_f64(h, 5, v);
}

/* Every log-probability of the prompt, its greedy flag, the alternatives and the other last tokens,
 * against the plain computation. */
static int score_sink(void *arg, const lf_gen_result *r, lf_err *err)
{
    (void)err;
    struct scored *g = arg;
    const lf_gen_job *j = r->job;
    g->bad += j != &g->jobs[g->n++] || r->n != (size_t)(j->max_tokens > 0 ? j->max_tokens : 0);
    for (size_t at = j->prompt_first > 1 ? j->prompt_first : 1; at < j->n_prompt; at++) {
        if (row_token(j, at) == LF_GEN_PICTURE)
            continue;
        float lse = plain_logit(g, j, at, 0) + 1;
        uint64_t best = 0;
        for (uint64_t v = 1; v < V; v++)
            if (plain_logit(g, j, at, v) > plain_logit(g, j, at, best))
                best = v;
        g->bad += r->prompt_logprobs[at] != plain_logit(g, j, at, (uint64_t)j->prompt[at]) - lse;
        g->bad += r->prompt_greedy[at] != (best == (uint64_t)j->prompt[at]);
        g->bad +=
            j->prompt_top > 0 && r->prompt_top_ids[at * (size_t)j->prompt_top] != (int32_t)best;
        for (size_t i = 0; at + 1 == j->n_prompt && i < j->n_last; i++)
            g->bad += r->last_logprobs[i] != plain_logit(g, j, at, (uint64_t)j->last_ids[i]) - lse;
        g->bad += at + 1 == j->n_prompt && r->last_best != (int32_t)best;
    }
    return 0;
}

/* Texts that are scored: beside generation, with common beginnings of any length, in any batch. */
static void test_scoring(void)
{
    enum { N = 12 };
    static const int64_t shapes[][3] = {
        {1, 1, 10}, {1, 64, 10}, {3, 5, 25}, {12, 64, 120}, {12, 16, 40}};
    static const int32_t others[] = {3, 19, 0};
    static int32_t text[N][CONTEXT + 1];
    lf_gen_job jobs[N];
    for (uint32_t i = 0; i < N; i++) {
        size_t n = i == 0 ? CONTEXT + 1 : 2 + (i * 7) % 37,
               same = (i * 5) % 30; /* the first token of 0 .. 29 are those of all */
        for (size_t k = 0; k < n; k++)
            text[i][k] = (int32_t)(lf_rng_u32(8, k < same ? 99 : i, k) % V);
        jobs[i] = (lf_gen_job){.id = "s",
                               .prompt = text[i],
                               .n_prompt = n,
                               .params = LF_SAMPLE_DEFAULTS,
                               .prompt_logprobs = true,
                               .prompt_first = i % 3 == 1 ? n - 1 : i % 3,
                               .prompt_top = i % 2,
                               .last_ids = others,
                               .n_last = i % 4};
        if (i % 4 == 3 && n < 30)
            jobs[i].max_tokens = 3;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fake f;
        lf_err err = LF_ERR_INIT;
        struct lf_gen_stats st;
        struct scored got = {.jobs = jobs};
        if (fake_open(&f, shapes[i][0], shapes[i][1], shapes[i][2]))
            tap_bail("no memory");
        tap_rc(lf_gen_run(&f.m,
                          &(struct lf_gen_work){
                              .jobs = jobs, .n_jobs = N, .sink = score_sink, .arg = &got},
                          &st, &err),
               0, &err, NULL, "score");
        tap_i64((int64_t)got.n, N, "every text once, in order");
        tap_i64((int64_t)got.bad, 0, "log-probabilities are those of the plain computation");
        if (shapes[i][0] == N)
            tap_ok(st.shared_tokens > 0, "%lld tokens of common beginnings were not computed again",
                   (long long)st.shared_tokens);
        fake_close(&f);
    }
    struct fake f;
    lf_err err = LF_ERR_INIT;
    struct scored got = {.jobs = jobs};
    lf_gen_job long_one = jobs[0];
    if (fake_open(&f, 2, 8, 30))
        tap_bail("no memory");
    static int32_t longer[CONTEXT + 2];
    long_one.prompt = longer;
    long_one.n_prompt = CONTEXT + 2;
    tap_rc(lf_gen_run(&f.m,
                      &(struct lf_gen_work){
                          .jobs = &long_one, .n_jobs = 1, .sink = score_sink, .arg = &got},
                      NULL, &err),
           LF_EINVAL, &err, "context", "longer than the context");
    long_one.n_prompt = 5;
    long_one.prompt_logprobs = false;
    tap_rc(lf_gen_run(&f.m,
                      &(struct lf_gen_work){
                          .jobs = &long_one, .n_jobs = 1, .sink = score_sink, .arg = &got},
                      NULL, &err),
           LF_EINVAL, &err, "max_tokens", "nothing asked for");
    fake_close(&f);
}

/* Scores jobs in steps of several shapes by a model with runs, or with a prefix. */
static void score_all(const lf_gen_job *jobs, size_t n, bool prefix, bool last)
{
    static const int64_t shapes[][3] = {{1, 40, 10}, {2, 14, 30}, {5, 17, 60}, {9, 64, 90}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fake f;
        lf_err err = LF_ERR_INIT;
        struct lf_gen_stats st;
        struct scored got = {.jobs = jobs, .prefix = prefix, .prefix_last = last};
        if (fake_open(&f, shapes[i][0], shapes[i][1], shapes[i][2]))
            tap_bail("no memory");
        f.m.prefix = prefix ? f.prefix : NULL;
        f.m.prefix_last = last;
        f.m.runs = !prefix;
        f.m.feature_width = 1;
        f.m.features = fake_features;
        const struct lf_gen_work w = {.jobs = jobs, .n_jobs = n, .sink = score_sink, .arg = &got};
        tap_rc(lf_gen_run(&f.m, &w, &st, &err), 0, &err, NULL, "score behind pictures");
        tap_i64((int64_t)got.n, (int64_t)n, "every text once, in order");
        tap_i64((int64_t)got.bad, 0, "what follows pictures has its log-probabilities");
        tap_ok(f.seen > 0 && (shapes[i][0] == 1 || st.shared_tokens > 0),
               "%lld rows saw rows behind them, %lld were shared", (long long)f.seen,
               (long long)st.shared_tokens);
        fake_close(&f);
    }
}

/* What follows pictures is scored where their tokens, or those of the whole prompt, see each other:
 * no step cuts these, and answers to one prompt share it. */
static void test_scoring_sights(const lf_gen_job *first)
{
    enum { N = 9 };
    static int32_t text[N][24];
    lf_gen_job jobs[N];
    make_picture_jobs(jobs, N, first);
    for (int i = 0; i < N; i++) {
        memcpy(text[i], first->prompt, sizeof text[i]);
        text[i][23] = i; /* the answers differ in their last token */
        jobs[i].prompt = text[i];
        jobs[i].n_prompt = 24;
        jobs[i].media = jobs[0].media;
        jobs[i].max_tokens = 0;
        jobs[i].prompt_logprobs = true;
        jobs[i].prompt_first = i == 4 ? 1 : 18; /* all of a document, whose prefix is short */
    }
    score_all(jobs, N, false, false);
    for (int i = 0; i < N; i++)
        jobs[i].prompt_first = i == 4 ? 11 : 14 - (size_t)(i % 3 == 2);
    score_all(jobs, N, true, false);
    score_all(jobs, N, true, true);
}

static bool stop_now(void)
{
    return true;
}

static void test_refusals(const lf_gen_job *jobs)
{
    struct fake f;
    lf_err err = LF_ERR_INIT;
    static struct got got;
    lf_gen_job job = jobs[0];
    if (fake_open(&f, 2, 8, 3))
        tap_bail("no memory");
    got = (struct got){.jobs = &job};
    job.max_tokens = 20;
    tap_rc(lf_gen_run(&f.m,
                      &(struct lf_gen_work){.jobs = &job, .n_jobs = 1, .sink = sink, .arg = &got},
                      NULL, &err),
           LF_EINVAL, &err, "pages", "cache too small for a job");
    job = jobs[0];
    job.n_prompt = 0;
    tap_rc(lf_gen_run(&f.m,
                      &(struct lf_gen_work){.jobs = &job, .n_jobs = 1, .sink = sink, .arg = &got},
                      NULL, &err),
           LF_EINVAL, &err, "'r0'", "empty prompt names the request");
    static const int32_t outside[] = {V};
    job = jobs[0];
    job.prompt = outside;
    tap_rc(lf_gen_run(&f.m,
                      &(struct lf_gen_work){.jobs = &job, .n_jobs = 1, .sink = sink, .arg = &got},
                      NULL, &err),
           LF_EINVAL, &err, "vocabulary", "token outside the vocabulary");
    job = jobs[0];
    tap_rc(lf_gen_run(&f.m,
                      &(struct lf_gen_work){
                          .jobs = &job, .n_jobs = 1, .sink = sink, .arg = &got, .stop = stop_now},
                      NULL, &err),
           LF_EINTR, &err, NULL, "a stop request ends the run");
    tap_i64((int64_t)got.n, 0, "and nothing was delivered");
    fake_close(&f);
}

/* Beam search: the same whatever the batch, and the log-probabilities are those of the texts
 * alone, so every beam had the past that it says. */
static void test_beams(const lf_gen_job *jobs)
{
    enum { N = 12 };
    static const int64_t shapes[][3] = {{3, 2, 30}, {3, 64, 30}, {7, 5, 61}, {16, 64, 160}};
    static struct got ref, got, one;
    static int32_t text[CONTEXT];
    lf_gen_job with[N];
    lf_err err = LF_ERR_INIT;
    struct fake f;
    for (uint32_t i = 0; i < N; i++) { /* two results of each prompt */
        with[i] = jobs[i / 2 + 1];
        with[i].request = i / 2;
        with[i].sample = i % 2;
        with[i].max_tokens = 4 + i / 2 * 3;
        with[i].beams = (struct lf_gen_beams){3, 0.7, (enum lf_beams_early)(i / 2 % 3)};
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (fake_open(&f, shapes[i][0], shapes[i][1], shapes[i][2]))
            tap_bail("no memory");
        if (i == 2)
            fake_draws(&f, 100);
        got = (struct got){.ordered = true, .jobs = with};
        tap_rc(
            lf_gen_run(&f.m,
                       &(struct lf_gen_work){.jobs = with, .n_jobs = N, .sink = sink, .arg = &got},
                       NULL, &err),
            0, &err, NULL, "search");
        if (i == 0)
            ref = got;
        tap_ok(got.n == N && got.ordered && f.most_rows <= shapes[i][1] &&
                   memcmp(got.tokens, ref.tokens, sizeof got.tokens) == 0 &&
                   memcmp(got.logprobs, ref.logprobs, sizeof got.logprobs) == 0,
               "the same results in order");
        fake_close(&f);
    }
    int64_t bad = 0, twice = 0;
    if (fake_open(&f, 1, 64, 10))
        tap_bail("no memory");
    for (uint32_t i = 0; i < N; i++) {
        const size_t p = with[i].n_prompt;
        lf_gen_job alone = with[i];
        memcpy(text, alone.prompt, p * sizeof *text);
        twice += i % 2 == 1 && ref.len[i] == ref.len[i - 1] &&
                 memcmp(ref.tokens[i], ref.tokens[i - 1], sizeof ref.tokens[0]) == 0;
        for (size_t k = 0; k < ref.len[i]; k++) { /* each token by a draw that allows no other */
            alone.prompt = text;
            alone.n_prompt = p + k;
            alone.max_tokens = 1;
            alone.beams.n = 1;
            alone.params.temperature = 0;
            alone.limits.allowed = &ref.tokens[i][k];
            alone.limits.n_allowed = 1;
            one = (struct got){.jobs = &alone};
            if (lf_gen_run(
                    &f.m,
                    &(struct lf_gen_work){.jobs = &alone, .n_jobs = 1, .sink = sink, .arg = &one},
                    NULL, &err))
                tap_bail("%s", err.text);
            bad += memcmp(&one.logprobs[0][0], &ref.logprobs[i][k], sizeof(float)) != 0;
            text[p + k] = ref.tokens[i][k];
        }
    }
    tap_i64(bad, 0, "log-probabilities of each text alone, bit for bit");
    tap_i64(twice, 0, "two results of a prompt differ");
    fake_close(&f);
}

static void test_beams_refused(const lf_gen_job *first)
{
    static const char *const says[] = {"knows no repetition_penalty",
                                       "knows no stop",
                                       "raise slots",
                                       "raise kv_tokens",
                                       "no more samples",
                                       "do not share their past"};
    for (int i = 0; i < 6; i++) {
        lf_gen_job j = *first;
        struct fake f;
        lf_err err = LF_ERR_INIT;
        if (fake_open(&f, 4, 8, 20))
            tap_bail("no memory");
        j.beams = (struct lf_gen_beams){i == 2 ? 5 : 3, 1, LF_BEAMS_NO};
        j.max_tokens = i == 3 ? 30 : 4;
        j.sample = i == 4 ? 3 : 0;
        j.n_stop = i == 1;
        j.stop = (const char *const[]){"x"};
        if (i == 0)
            j.params.repetition_penalty = 2;
        f.m.recurrent = i == 5;
        const int rc =
            i == 1 ? lf_beam_check(&f.m, &j, &err) : lf_gen_check(&f.m, NULL, &j, 1, &err);
        tap_rc(rc, LF_EINVAL, &err, says[i], "refused");
        fake_close(&f);
    }
}

int main(void)
{
    static lf_gen_job jobs[N_JOBS];
    make_jobs(jobs);
    TAP(31, test_composition(jobs));
    TAP(45, test_draws(jobs));
    TAP(75, test_ahead(jobs));
    TAP(2, test_min_tokens(jobs));
    TAP(16, test_samples(&jobs[3]));
    TAP(21, test_runs(&jobs[6]));
    TAP(11, test_long(&jobs[3]));
    TAP(19, test_scoring());
    TAP(48, test_scoring_sights(&jobs[6]));
    TAP(5, test_refusals(jobs));
    TAP(10, test_beams(jobs));
    TAP(6, test_beams_refused(&jobs[1]));
    return tap_done();
}
