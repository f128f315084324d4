/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation between steps: see samples.h. */
#include "engine/post/samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/infer/paged.h"
#include "engine/infer/result.h"
#include "engine/train/objective.h"

#define SLOTS       4
#define STEP_ROWS   64
#define PAGE_TOKENS 64

_Static_assert(LF_PAGED_MAX_BUCKETS <= LF_TRAIN_GUEST_ERAS, "the buckets have eras of their own");

struct lf_samples {
    struct lf_samples_opts o;
    struct lf_train_guest guest;
    lf_paged *paged;
    lf_gen_jobs jobs;
    int32_t eos; /* of the data, where there is no tokenizer to say what ends a text */
    lf_gen_writer *writer;
    lf_buf lines; /* of this visit */
    double tokens, ended, logprob, n;
};

static const char *const metrics[] = {"sample_tokens", "sample_ended", "sample_logprob"};

/* ---- memory ---- */

static int plan(void *user, const lf_decoder *d, lf_pstore *ps, lf_plan *p, lf_err *err)
{
    lf_samples *s = user;
    const struct lf_paged_opts o = {.context = s->o.context,
                                    .slots = SLOTS,
                                    .max_rows = STEP_ROWS,
                                    .page_tokens = PAGE_TOKENS,
                                    .cache = s->o.compute};
    return lf_paged_plan(&s->paged, p, ps, d, &o, err);
}

static void leave(void *user)
{
    lf_samples *s = user;
    lf_paged_destroy(s->paged);
    s->paged = NULL;
}

/* ---- requests ---- */

/* Appends one document of set as a request. */
static int add_document(lf_buf *b, const lf_shardset *set, uint64_t doc, size_t number, lf_err *err)
{
    const uint64_t len = lf_shardset_doc_len(set, doc);
    uint64_t n = 0;
    while (n < len && !lf_shardset_trained(set, doc, n))
        n++;
    if (n < 2) /* nothing asks for what is trained */
        n = len < LF_SAMPLES_TEXT ? len : LF_SAMPLES_TEXT;
    int32_t *tokens = lf_malloc(n + 1, sizeof *tokens, err);
    int rc = tokens ? lf_shardset_read(set, doc, 0, n, tokens, err) : LF_ENOMEM;
    if (rc == 0) {
        lf_buf_addf(b, "{\"id\":\"valid-%zu\",\"prompt_token_ids\":[", number);
        for (uint64_t i = 0; i < n; i++)
            lf_buf_addf(b, "%s%d", i ? "," : "", tokens[i]);
        lf_buf_adds(b, "]}\n");
    }
    free(tokens);
    return rc;
}

/* The first documents of the valid splits as a file of requests. */
static int write_documents(const lf_samples *s, const lf_trainer *t, const char *path, lf_err *err)
{
    size_t number = 0;
    int rc = 0;
    lf_buf b;
    lf_buf_init(&b);
    for (size_t k = 0; k < lf_train_n_sources(t, true) && rc == 0; k++) {
        const lf_shardset *set = lf_train_source_set(t, k, true);
        for (uint64_t d = 0;
             d < lf_shardset_get_info(set)->n_docs && (int64_t)number < s->o.rows && rc == 0; d++)
            if (lf_shardset_doc_len(set, d) > 0)
                rc = add_document(&b, set, d, ++number, err);
    }
    if (rc == 0 && !number)
        rc =
            lf_fail(err, LF_EINVAL,
                    "no data has a valid split to sample from: give sample_prompts, or valid_data");
    if (rc == 0)
        rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_io_replace(path, b.data, b.len, 0640, err);
    lf_buf_fini(&b);
    return rc;
}

static int read_jobs(lf_samples *s, const lf_trainer *t, const char *dir, lf_err *err)
{
    lf_gen_model m;
    char *path = lf_path_join(dir, "prompts.jsonl", err);
    int rc = path ? 0 : LF_ENOMEM;
    if (rc == 0 && !s->o.prompts)
        rc = write_documents(s, t, path, err);
    if (rc == 0)
        rc = lf_gen_jobs_read(&s->jobs, s->o.prompts ? s->o.prompts : path, s->o.tok,
                              &s->o.defaults, err);
    lf_paged_model(s->paged, &m);
    if (rc == 0)
        rc = lf_gen_jobs_fit(&s->jobs, &m, s->o.tok, err);
    free(path);
    return rc != 0 ? lf_err_prefix(err, "samples") : 0;
}

static int begin(lf_samples *s, const lf_trainer *t, lf_err *err)
{
    char *dir = lf_path_join(s->o.out, "samples", err);
    int rc = !dir ? LF_ENOMEM : lf_io_mkdirs(dir, 0777, err) < 0 ? LF_EIO : 0;
    s->eos = (int32_t)lf_shardset_get_info(lf_train_source_set(t, 0, false))->eos_id;
    if (!s->o.tok && s->eos >= 0) {
        s->o.defaults.end = &s->eos;
        s->o.defaults.n_end = 1;
    }
    if (rc == 0)
        rc = read_jobs(s, t, dir, err);
    free(dir);
    return rc;
}

static int bind(void *user, lf_trainer *t, lf_exec *ex, lf_back *back, lf_err *err)
{
    lf_samples *s = user;
    int rc = lf_paged_bind(s->paged, ex, back, err);
    return rc || !lf_train_first_rank(t) ? rc : begin(s, t, err);
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
    lf_gen_model m;
    lf_buf_clear(&s->lines);
    s->tokens = s->ended = s->logprob = s->n = 0;
    lf_gen_writer_destroy(s->writer);
    s->writer = lf_gen_writer_create(&s->jobs, s->o.tok, "", err);
    if (!s->writer)
        return LF_ENOMEM;
    lf_paged_model(s->paged, &m);
    int rc = lf_gen_run(
        &m,
        &(struct lf_gen_work){
            .tok = s->o.tok, .jobs = s->jobs.v, .n_jobs = s->jobs.n, .sink = take, .arg = s},
        &stats, err);
    if (rc == 0)
        rc = lf_gen_writer_pass(s->writer, s->jobs.n_req, &s->lines, err);
    return rc != 0 ? rc : lf_buf_check(&s->lines, err);
}

/* The texts, for the dashboard: samples/ID, and .N behind it for the further ones of a request. A
 * line in another shape has no text of its own. */
static void show(const lf_samples *s, const lf_trainer *t, int64_t step)
{
    for (const char *line = s->lines.data, *end; (end = strchr(line, '\n')); line = end + 1) {
        char tag[120];
        const char *id = "", *text = NULL;
        int64_t sample = 0;
        json_t *o = lf_json_load_text(line, (size_t)(end - line), "sample", NULL);
        int rc = o ? lf_json_get_str(&id, o, "id", true, "sample", NULL) : LF_EFORMAT;
        if (rc == 0)
            rc = lf_json_get_i64(&sample, o, "sample", false, "sample", NULL);
        if (rc == 0)
            rc = lf_json_get_str(&text, o, "text", false, "sample", NULL);
        int n = snprintf(tag, sizeof tag, "samples/%s", id);
        if (sample > 0 && n > 0 && (size_t)n < sizeof tag)
            snprintf(tag + n, sizeof tag - (size_t)n, ".%lld", (long long)sample);
        if (rc == 0 && text)
            lf_train_text(t, step, tag, text, strlen(text));
        json_decref(o);
    }
}

static int visit(void *user, lf_trainer *t, int64_t step, double *values, lf_err *err)
{
    lf_samples *s = user;
    char name[40];
    snprintf(name, sizeof name, "step-%08lld.jsonl", (long long)step);
    char *dir = lf_path_join(s->o.out, "samples", err),
         *path = dir ? lf_path_join(dir, name, err) : NULL;
    int rc = path ? generate(s, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_io_replace(path, s->lines.data, s->lines.len, 0640, err);
    free(path);
    free(dir);
    if (rc != 0)
        return rc;
    show(s, t, step);
    values[0] = s->tokens / s->n;
    values[1] = s->ended / s->n;
    values[2] = s->logprob / s->tokens;
    lf_train_log(
        t, 2,
        "%g samples after step %lld: %.1f tokens in the mean, %.0f %% ended, log p of a token %.3f",
        s->n, (long long)step, values[0], 100 * values[1], values[2]);
    return 0;
}

/* ---- the object ---- */

lf_samples *lf_samples_create(const struct lf_samples_opts *o, lf_err *err)
{
    if (o->context <= o->defaults.max_tokens) {
        lf_fail(err, LF_EINVAL,
                "samples of %lld tokens leave no room for a prompt in %lld positions",
                (long long)o->defaults.max_tokens, (long long)o->context);
        return NULL;
    }
    lf_samples *s = lf_calloc(1, sizeof *s, err);
    if (!s)
        return NULL;
    s->o = *o;
    s->o.defaults.truncate_prompt = o->context - o->defaults.max_tokens;
    lf_buf_init(&s->lines);
    s->guest = (struct lf_train_guest){.user = s,
                                       .interval = o->interval,
                                       .plan = plan,
                                       .bind = bind,
                                       .visit = visit,
                                       .leave = leave,
                                       .metrics = metrics,
                                       .n_metrics = sizeof metrics / sizeof *metrics};
    return s;
}

void lf_samples_destroy(lf_samples *s)
{
    if (!s)
        return;
    lf_gen_writer_destroy(s->writer);
    lf_gen_jobs_fini(&s->jobs);
    lf_buf_fini(&s->lines);
    lf_paged_destroy(s->paged);
    free(s);
}

const struct lf_train_guest *lf_samples_guest(const lf_samples *s)
{
    return &s->guest;
}
