/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation between steps: see samples.h. */
#include "engine/post/samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/infer/group.h"
#include "engine/infer/look.h"
#include "engine/infer/paged.h"
#include "engine/infer/result.h"
#include "engine/model/sight.h"
#include "engine/post/prompt_sight.h"
#include "engine/post/sample_lines.h"

#define SLOTS       4
#define STEP_ROWS   64
#define PAGE_TOKENS 64
/* An era of the guest's own (guest.h): so many buckets there are not. */
#define LOOK_ERA (1u << (LF_TRAIN_GUEST_ERAS - 1))

_Static_assert(LF_PAGED_MAX_BUCKETS <= LF_TRAIN_GUEST_ERAS, "the buckets have eras of their own");

struct lf_samples {
    struct lf_samples_opts o;
    struct lf_train_guest guest;
    const struct lf_guest_host *host;
    lf_paged *paged;     /* NULL: the generator is another's */
    lf_look *look;       /* of its own plan; NULL: it looks at no pictures */
    lf_shard_eyes *eyes; /* of the data (set 0) and of the documents; NULL: there are no pictures */
    lf_gen_eyes see;     /* the same, for requests */
    lf_arena *arena;     /* of the pictures of documents */
    lf_gen_model model;
    lf_gen_jobs jobs;
    int32_t eos; /* of the data, where there is no tokenizer to say what ends a text */
    lf_gen_writer *writer;
    lf_buf lines; /* of this visit, as lf-generate has them */
    lf_buf records;
    double tokens, ended, logprob, n;
    int64_t vocab; /* of the plan */
};

static const char *const metrics[] = {"sample_tokens", "sample_ended", "sample_logprob"};

/* ---- memory ---- */

/* What lf_gen_run takes for each slot, and on a device the copies of its logits. */
static size_t host_bytes(void *user)
{
    const lf_samples *s = user;
    return SLOTS * (lf_sampler_bytes(s->vocab) + (size_t)s->vocab * sizeof(float));
}

static int plan(void *user, const lf_decoder *d, lf_pstore *ps, lf_plan *p, lf_err *err)
{
    lf_samples *s = user;
    const struct lf_paged_opts o = {.context = s->o.context,
                                    .slots = SLOTS,
                                    .max_rows = STEP_ROWS,
                                    .page_tokens = PAGE_TOKENS,
                                    .cache = s->o.compute};
    s->vocab = lf_decoder_config(d)->vocab;
    const struct lf_look_opts look = {
        .patches = s->o.patches, .tiles = s->o.tiles, .tokens = s->o.context, .eras = LOOK_ERA};
    const int rc = lf_paged_plan(&s->paged, p, ps, d, &o, err);
    return rc != 0 || !look.patches || !lf_decoder_config(d)->vision.family
               ? rc
               : lf_look_plan(&s->look, p, ps, d, &look, err);
}

static void leave(void *user)
{
    lf_samples *s = user;
    lf_paged_destroy(s->paged);
    lf_look_destroy(s->look);
    s->paged = NULL;
    s->look = NULL;
}

/* ---- pictures ---- */

static int features(void *look, const lf_gen_job *job, float *out, lf_err *err)
{
    return lf_look_run(look, job->media->pictures, out, err);
}

/* Documents have theirs. Those of requests are prepared as those of the data, their paths begin
 * where their file lies. */
static int open_eyes(lf_samples *s, lf_err *err)
{
    const struct lf_guest_host *h = s->host;
    if (!s->model.features)
        return 0;
    const lf_shardset **sets = lf_calloc(h->n_docs + 1, sizeof *sets, err);
    if (!sets)
        return LF_ENOMEM;
    sets[0] = h->data;
    for (size_t k = 0; k < h->n_docs; k++)
        sets[k + 1] = h->docs[k];
    int rc = lf_shard_eyes_open(&s->eyes, sets, h->n_docs + 1, "the data", h->model, err);
    free(sets);
    if (rc != 0 || !s->eyes)
        return rc;
    if (!(s->arena = lf_arena_create(err)))
        return LF_ENOMEM;
    s->see = lf_prompt_eyes(lf_shard_eyes_pictures(s->eyes), h->model);
    s->o.defaults.eyes = &s->see;
    const char *slash = s->o.prompts ? strrchr(s->o.prompts, '/') : NULL;
    if (rc == 0 && slash && !(s->see.dir = lf_strdup(s->o.prompts, err)))
        rc = LF_ENOMEM;
    else if (rc == 0 && slash)
        s->see.dir[slash - s->o.prompts] = 0;
    return rc;
}

/* The samples from job `first` on see the pictures of the document, if it has some. */
static int look_at(lf_samples *s, size_t k, uint64_t doc, size_t first, lf_err *err)
{
    const struct lf_gen_media *media = NULL;
    const uint64_t number = lf_shard_eyes_doc(k + 1, doc);
    if (!s->eyes || !lf_shardset_pictures(s->host->docs[k], doc) || first == s->jobs.n)
        return 0;
    int rc = lf_prompt_sight(&media, lf_shard_eyes_pictures(s->eyes), &s->see, number,
                             &s->jobs.v[first], s->arena, err);
    for (size_t i = first; i < s->jobs.n && rc == 0; i++)
        s->jobs.v[i].media = media;
    return rc;
}

/* Is there room for the pictures of a document? */
static bool has_room(const lf_samples *s, uint64_t number)
{
    const struct lf_guest_host *h = s->host;
    const int64_t patches = h->patches ? h->patches : s->o.patches;
    const int64_t tiles =
        lf_sight_bounds(h->model, patches, h->patches ? h->tiles : s->o.tiles, 1).vision.images - 1;
    const struct lf_pictures_size size = lf_pictures_size(lf_shard_eyes_pictures(s->eyes), number);
    return size.patches <= patches && size.tiles <= tiles;
}

/* Does the prompt of n tokens have its pictures, all of them and whole, and can they be seen? */
static bool whole(const lf_samples *s, size_t k, uint64_t doc, uint64_t n)
{
    const lf_shardset *set = s->host->docs[k];
    bool is = true;
    for (uint64_t i = 0; i < lf_shardset_pictures(set, doc) && is; i++) {
        lf_shard_picture p;
        lf_shardset_picture_get(set, doc, i, &p);
        is = is && s->eyes && (uint64_t)p.first + p.count <= n &&
             n <= (uint64_t)s->o.defaults.truncate_prompt &&
             has_room(s, lf_shard_eyes_doc(k + 1, doc));
    }
    return is;
}

/* ---- requests ---- */

/* How many tokens of a document are asked for. */
static uint64_t prompt_of(const lf_samples *s, const lf_shardset *set, uint64_t doc)
{
    const uint64_t len = lf_shardset_doc_len(set, doc);
    uint64_t n = 0;
    if (s->host->prompts)
        return len;
    while (n < len && !lf_shardset_trained(set, doc, n))
        n++;
    if (n < 2) /* nothing asks for what is trained */
        n = len < LF_SAMPLES_TEXT ? len : LF_SAMPLES_TEXT;
    return n;
}

/* Adds one document of set k as a request. */
static int add_document(lf_samples *s, size_t k, uint64_t doc, int64_t number, lf_err *err)
{
    const lf_shardset *set = s->host->docs[k];
    const size_t first = s->jobs.n;
    char id[40];
    const uint64_t n = prompt_of(s, set, doc);
    int32_t *tokens = lf_malloc(n + 1, sizeof *tokens, err);
    int rc = tokens ? lf_shardset_read(set, doc, 0, n, tokens, err) : LF_ENOMEM;
    snprintf(id, sizeof id, "%s-%lld", s->host->prompts ? "prompt" : "valid", (long long)number);
    if (rc == 0)
        rc = lf_gen_jobs_add_ids(&s->jobs, id, tokens, n, &s->o.defaults, err);
    if (rc == 0)
        rc = look_at(s, k, doc, first, err);
    free(tokens);
    return rc;
}

/* The first documents of the host; the two answers of a pair have one prompt. */
static int add_documents(lf_samples *s, lf_err *err)
{
    const struct lf_guest_host *h = s->host;
    int64_t number = 0;
    int rc = 0;
    for (size_t k = 0; k < h->n_docs && rc == 0; k++) {
        const lf_shard_info *info = lf_shardset_get_info(h->docs[k]);
        const uint64_t by = info->rows == LF_ROWS_PAIRS ? 2 : 1;
        for (uint64_t d = 0; d < info->n_docs && number < s->o.rows && rc == 0; d += by)
            if (lf_shardset_doc_len(h->docs[k], d) > 0 &&
                whole(s, k, d, prompt_of(s, h->docs[k], d)))
                rc = add_document(s, k, d, ++number, err);
    }
    return rc == 0 && !number
               ? lf_fail(err, LF_EINVAL,
                         "no data has a valid split to take prompts from: give sample_prompts or "
                         "sample_prompt, or valid_data")
               : rc;
}

static int add_texts(lf_samples *s, lf_err *err)
{
    char id[40];
    int rc = 0;
    for (size_t i = 0; i < s->o.n_texts && rc == 0; i++) {
        snprintf(id, sizeof id, "prompt-%zu", i + 1);
        rc = lf_gen_jobs_add_prompt(&s->jobs, id, s->o.texts[i], s->o.tok, &s->o.defaults, err);
    }
    return rc;
}

static int read_jobs(lf_samples *s, lf_err *err)
{
    int rc =
        s->o.prompts ? lf_gen_jobs_read(&s->jobs, s->o.prompts, s->o.tok, &s->o.defaults, err) : 0;
    if (rc == 0)
        rc = add_texts(s, err);
    if (rc == 0 && !s->o.prompts && !s->o.n_texts)
        rc = add_documents(s, err);
    if (rc == 0)
        rc = lf_gen_jobs_fit(&s->jobs, &s->model, s->o.tok, err);
    for (size_t i = 0; rc == 0 && s->o.temperature > 0 && i < s->jobs.n; i++)
        s->jobs.v[i].params.temperature /= s->o.temperature;
    return rc != 0 ? lf_err_prefix(err, "samples") : 0;
}

/* Prompts keep what is left of the context beside the sample. */
static int fit_context(lf_samples *s, lf_err *err)
{
    const int64_t most = s->model.max_context < s->o.context ? s->model.max_context : s->o.context,
                  room = most - s->o.defaults.max_tokens;
    if (room < 1)
        return lf_fail(err, LF_EINVAL,
                       "samples of %lld tokens (sample_tokens) leave no room for a prompt in %lld "
                       "positions",
                       (long long)s->o.defaults.max_tokens, (long long)most);
    s->o.defaults.truncate_prompt = room;
    return 0;
}

int lf_samples_begin(lf_samples *s, const struct lf_guest_host *host, const lf_gen_model *m,
                     lf_err *err)
{
    s->host = host;
    s->model = *m;
    s->eos = (int32_t)lf_shardset_get_info(host->data)->eos_id;
    if (!s->o.tok && s->eos >= 0) {
        s->o.defaults.end = &s->eos;
        s->o.defaults.n_end = 1;
    }
    int rc = fit_context(s, err);
    if (rc == 0)
        rc = open_eyes(s, err);
    return rc != 0 ? rc : read_jobs(s, err);
}

static int bind(void *user, const struct lf_guest_host *host, lf_exec *ex, lf_back *back,
                lf_err *err)
{
    lf_samples *s = user;
    lf_gen_model m;
    if (s->look)
        lf_look_bind(s->look, ex);
    int rc = lf_paged_bind(s->paged, ex, back, err);
    if (rc != 0 || !host->draws)
        return rc;
    lf_paged_model(s->paged, &m);
    m.look = s->look;
    m.features = s->look ? features : NULL;
    return lf_samples_begin(s, host, &m, err);
}

/* ---- a visit ---- */

static int take(void *arg, const lf_gen_result *r, lf_err *err)
{
    lf_samples *s = arg;
    for (size_t i = 0; i < r->n; i++)
        s->logprob += (double)r->logprobs[i];
    s->tokens += (double)r->n;
    s->ended += r->finish == LF_FINISH_STOP;
    s->n++;
    return lf_gen_writer_take(s->writer, r, &s->lines, err);
}

static int generate(lf_samples *s, lf_err *err)
{
    struct lf_gen_stats stats;
    lf_buf_clear(&s->lines);
    s->tokens = s->ended = s->logprob = s->n = 0;
    lf_gen_writer_destroy(s->writer);
    s->writer = lf_gen_writer_create(&s->jobs, s->o.tok, "", err);
    if (!s->writer)
        return LF_ENOMEM;
    int rc = lf_gen_run(&s->model,
                        &(struct lf_gen_work){.tok = s->o.tok,
                                              .jobs = s->jobs.v,
                                              .n_jobs = s->jobs.n,
                                              .sink = take,
                                              .arg = s,
                                              .stop = lf_group_stop},
                        &stats, err);
    if (rc == 0)
        rc = lf_gen_writer_pass(s->writer, s->jobs.n_req, &s->lines, err);
    return rc != 0 ? rc : lf_buf_check(&s->lines, err);
}

/* ---- records ---- */

/* A line of lf-generate with step and prompt in front. */
static int add_record(lf_samples *s, int64_t step, size_t index, const char *line, size_t n,
                      lf_err *err)
{
    size_t of;
    const lf_gen_request *q = &s->jobs.req[lf_gen_jobs_at_line(&s->jobs, index, &of)];
    lf_buf_addf(&s->records, "{\"step\":%lld", (long long)step);
    const lf_gen_job *job = &s->jobs.v[q->first];
    int rc = q->n_jobs
                 ? lf_sample_add_prompt(&s->records, s->o.tok, job->prompt, job->n_prompt, err)
                 : 0;
    lf_buf_addc(&s->records, ',');
    lf_buf_add(&s->records, line + 1, n - 1);
    return rc;
}

static int write_records(lf_samples *s, int64_t step, lf_err *err)
{
    size_t index = 0;
    int rc = 0;
    lf_buf_clear(&s->records);
    for (const char *line = s->lines.data, *end; rc == 0 && (end = strchr(line, '\n'));
         line = end + 1)
        rc = add_record(s, step, index++, line, (size_t)(end + 1 - line), err);
    return rc != 0 ? rc : lf_sample_write(s->host->run, step, &s->records, err);
}

int lf_samples_visit(lf_samples *s, int64_t step, double *values, lf_err *err)
{
    struct lf_group together;
    lf_group_begin(&together, s->host->group, NULL);
    int rc = lf_group_end(&together, generate(s, err), err);
    if (rc != 0)
        return rc;
    values[0] = s->n > 0 ? s->tokens / s->n : (double)NAN;
    values[1] = s->n > 0 ? s->ended / s->n : (double)NAN;
    values[2] = s->tokens > 0 ? s->logprob / s->tokens : (double)NAN;
    lf_run_log(
        s->host->run, 2,
        "%g samples after step %lld: %.1f tokens in the mean, %.0f %% ended, log p of a token %.3f",
        s->n, (long long)step, values[0], 100 * values[1], values[2]);
    return write_records(s, step, err);
}

static int visit(void *user, int64_t step, double *values, lf_err *err)
{
    return lf_samples_visit(user, step, values, err);
}

/* ---- the object ---- */

lf_samples *lf_samples_create(const struct lf_samples_opts *o, lf_err *err)
{
    lf_samples *s = lf_calloc(1, sizeof *s, err);
    if (!s)
        return NULL;
    s->o = *o;
    s->model.max_context = o->context;
    lf_buf_init(&s->lines);
    lf_buf_init(&s->records);
    s->guest = (struct lf_train_guest){.user = s,
                                       .interval = o->interval,
                                       .plan = plan,
                                       .host_bytes = host_bytes,
                                       .bind = bind,
                                       .visit = visit,
                                       .leave = leave,
                                       .metrics = metrics,
                                       .n_metrics = sizeof metrics / sizeof *metrics};
    if (fit_context(s, err) == 0)
        return s;
    lf_samples_destroy(s);
    return NULL;
}

void lf_samples_destroy(lf_samples *s)
{
    if (!s)
        return;
    lf_gen_writer_destroy(s->writer);
    lf_gen_jobs_fini(&s->jobs);
    lf_shard_eyes_close(s->eyes);
    lf_gen_eyes_fini(&s->see);
    lf_arena_destroy(s->arena);
    lf_buf_fini(&s->lines);
    lf_buf_fini(&s->records);
    lf_paged_destroy(s->paged);
    lf_look_destroy(s->look);
    free(s);
}

const struct lf_train_guest *lf_samples_guest(const lf_samples *s)
{
    return &s->guest;
}
