/* SPDX-License-Identifier: Apache-2.0
 *
 * Request lines to generation jobs; their members are read in request_members.c.
 */
#include "engine/infer/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/infer/look.h"
#include "engine/infer/request_priv.h"
#include "engine/text/corpus/rowfile.h"

/* Everything the jobs point to. */
typedef struct pool {
    lf_arena *arena;
    size_t cap, cap_req;
    json_t *ids;      /* object used as a set */
    gen_request base; /* a request that says nothing */
    bool has_base;
} pool;

static void begin_request(gen_request *r, const lf_gen_defaults *d)
{
    *r = (gen_request){.n = d->n,
                       .best_of = d->best_of,
                       .job.beams = d->beams,
                       .top_logprobs = d->top_logprobs,
                       .prompt_logprobs = d->prompt_logprobs,
                       .truncate = d->truncate_prompt,
                       .ignore_eos = d->ignore_eos,
                       .add_special = d->add_special,
                       .include_stop = d->include_stop};
    r->job.params = d->params;
    r->job.max_tokens = d->max_tokens;
    r->job.min_tokens = d->min_tokens;
    r->job.no_repeat = d->no_repeat;
    r->job.first_token = d->first_token;
    r->job.last_token = d->last_token;
    r->job.stop = d->stop;
    r->job.n_stop = d->n_stop;
    r->job.skip_special = d->skip_special;
}

static int open_pool(lf_gen_jobs *jobs, pool **out, const lf_tokenizer *tok,
                     const lf_gen_defaults *d, lf_err *err)
{
    if (!jobs->priv) {
        pool *p = lf_calloc(1, sizeof *p, err);
        if (!p)
            return LF_ENOMEM;
        jobs->priv = p;
        p->arena = lf_arena_create(err);
        p->ids = json_object();
        if (!p->arena || !p->ids)
            return lf_fail(err, LF_ENOMEM, "out of memory");
    }
    pool *p = jobs->priv;
    if (!p->has_base) {
        begin_request(&p->base, d);
        int rc = d->more ? lf_gen_members_read(&(gen_members){p->arena, tok}, d->more,
                                               LF_FORM_LINES, &p->base, err)
                         : 0;
        if (rc != 0)
            return rc;
        p->has_base = true;
    }
    *out = p;
    return 0;
}

void lf_gen_jobs_fini(lf_gen_jobs *jobs)
{
    pool *p = jobs->priv;
    if (p) {
        lf_arena_destroy(p->arena);
        json_decref(p->ids);
    }
    free(p);
    free(jobs->v);
    free(jobs->req);
    *jobs = (lf_gen_jobs){0};
}

/* ---- one request
 * ----------------------------------------------------------------------------------------- */

static int add_job(lf_gen_jobs *jobs, pool *p, const lf_gen_job *job, lf_err *err)
{
    int rc = lf_grow(&jobs->v, &p->cap, jobs->n, sizeof *jobs->v, err);
    if (rc == 0)
        jobs->v[jobs->n++] = *job;
    return rc;
}

/* Take the id; two requests of one id could not be told apart when a run is continued. */
static int take_id(pool *p, const char *id, lf_err *err)
{
    if (json_object_get(p->ids, id))
        return lf_fail(err, LF_EINVAL, "a second request has the id '%s'", id);
    return json_object_set_new(p->ids, id, json_true())
               ? lf_fail(err, LF_EINVAL, "the id is not valid UTF-8")
               : 0;
}

static int add_request(lf_gen_jobs *jobs, pool *p, const lf_gen_request *q, lf_err *err)
{
    int rc = lf_grow(&jobs->req, &p->cap_req, jobs->n_req, sizeof *jobs->req, err);
    if (rc != 0)
        return rc;
    lf_gen_request *new = &jobs->req[jobs->n_req++];
    *new = *q;
    new->first = jobs->n - q->n_jobs;
    new->first_line = jobs->n_lines;
    jobs->n_lines += q->form == LF_FORM_LINES ? q->n_out : 1;
    return 0;
}

static int check_request(const gen_request *r, lf_err *err)
{
    if (r->best_of > r->n && r->job.beams.n > 1)
        return lf_fail(err, LF_EINVAL,
                       "best_of %lld chooses among draws, and a search with beams draws none",
                       (long long)r->best_of);
    if (!isfinite(r->job.beams.length_penalty))
        return lf_fail(err, LF_EINVAL, "length_penalty is not a number");
    if (r->best_of != 0 && r->best_of < r->n)
        return lf_fail(err, LF_EINVAL, "best_of %lld is below n %lld", (long long)r->best_of,
                       (long long)r->n);
    if (r->job.min_tokens > r->job.max_tokens)
        return lf_fail(err, LF_EINVAL, "min_tokens %lld is above max_tokens %lld",
                       (long long)r->job.min_tokens, (long long)r->job.max_tokens);
    return lf_sample_check(&r->job.params, err);
}

/* The text of the prompt, and how it is encoded. A template's text has its BOS. */
static int prompt_text(gen_request *r, const lf_gen_defaults *d, lf_buf *text, unsigned *flags,
                       lf_err *err)
{
    if (r->messages && !d->chat)
        return lf_fail(err, LF_EINVAL,
                       "'messages' needs the tokenizer of a chat model: there is no chat template");
    *flags = r->messages || !r->add_special ? 0 : LF_TOK_TEMPLATE;
    if (r->messages)
        return d->chat(d->chat_arg, r->messages, r->tools, r->kwargs, text, err);
    lf_buf_add(text, json_string_value(r->prompt), json_string_length(r->prompt));
    return lf_buf_check(text, err);
}

/* A source ends as in training, where its tokenizer does not see to that. */
static int end_source(const gen_members *g, gen_request *r, int32_t token, lf_err *err)
{
    const size_t n = r->job.n_prompt;
    if (n > 0 && r->job.prompt[n - 1] == token)
        return 0;
    int32_t *v = lf_arena_alloc(g->a, n + 1, sizeof *v, err);
    if (!v)
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++)
        v[i] = r->job.prompt[i];
    v[n] = token;
    r->job.prompt = v;
    r->job.n_prompt = n + 1;
    return 0;
}

static int encode_prompt(const gen_members *g, gen_request *r, const lf_gen_defaults *d,
                         struct lf_gen_sights *sights, lf_err *err)
{
    lf_buf text;
    unsigned flags = 0;
    lf_buf_init(&text);
    int rc = prompt_text(r, d, &text, &flags, err);
    if (rc == 0 && d->eyes)
        rc = lf_gen_sights_expand(sights, d->eyes, &text, g->a, err);
    if (rc == 0)
        rc = lf_gen_encode(g, text.data ? text.data : "", text.len, flags, &r->job.prompt,
                           &r->job.n_prompt, err);
    if (rc == 0 && d->answers && r->add_special && r->job.n_prompt > 0)
        rc = end_source(g, r, d->source_end, err);
    lf_buf_fini(&text);
    return rc;
}

/* Rows that were made for training name a single picture `image`. */
static int collect(const gen_members *g, const gen_request *r, const lf_gen_defaults *d,
                   struct lf_gen_sights **out, lf_err *err)
{
    if (r->image && r->images)
        return lf_fail(err, LF_EINVAL, "both 'image' and 'images' are given");
    json_t *one = r->image ? json_pack("[O]", r->image) : NULL;
    if (r->image && !one)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    const int rc =
        lf_gen_sights_collect(out, d->eyes, one ? one : r->images, r->messages, g->a, err);
    json_decref(one);
    return rc;
}

/* Ids of the prompt, whichever way it is given. */
static int read_prompt(const gen_members *g, gen_request *r, const lf_gen_defaults *d, lf_err *err)
{
    struct lf_gen_sights *sights;
    if (r->messages && r->prompt)
        return lf_fail(err, LF_EINVAL, "both 'messages' and a prompt are given");
    if (!r->messages && !r->prompt)
        return lf_fail(err, LF_EINVAL, "no 'prompt', no 'prompt_token_ids' and no 'messages'");
    const bool ids = !r->messages && !json_is_string(r->prompt);
    int rc = collect(g, r, d, &sights, err);
    if (rc == 0 && sights && ids)
        rc = lf_fail(err, LF_EINVAL, "pictures go with the text of a prompt, not with ids");
    if (rc == 0)
        rc = ids ? lf_gen_ids_read(g, r->prompt, "prompt", &r->job.prompt, &r->job.n_prompt, err)
                 : encode_prompt(g, r, d, sights, err);
    if (rc == 0 && sights)
        rc = lf_gen_sights_place(&r->job.media, sights, d->eyes, &r->job, g->a, err);
    if (rc == 0 && sights && r->truncate > 0 && r->job.n_prompt > (size_t)r->truncate)
        return lf_fail(
            err, LF_EINVAL,
            "the prompt has %zu tokens, and there is room for %lld; a prompt with pictures "
            "is not cut",
            r->job.n_prompt, (long long)r->truncate);
    if (rc == 0 && r->job.n_prompt == 0)
        return lf_fail(err, LF_EINVAL, "the prompt is empty");
    if (rc == 0 && r->truncate > 0 && r->job.n_prompt > (size_t)r->truncate) {
        r->job.prompt += r->job.n_prompt - (size_t)r->truncate;
        r->job.n_prompt = (size_t)r->truncate;
    }
    return rc;
}

/* End tokens: those asked for, then the model's. */
static int set_end(pool *p, gen_request *r, const lf_gen_defaults *d, lf_err *err)
{
    size_t model = r->ignore_eos ? 0 : d->n_end, n = r->n_stop_ids + model;
    int32_t *all = lf_arena_alloc(p->arena, n + 1, sizeof *all, err);
    if (!all)
        return LF_ENOMEM;
    if (r->n_stop_ids > 0)
        memcpy(all, r->stop_ids, r->n_stop_ids * sizeof *all);
    if (model > 0)
        memcpy(all + r->n_stop_ids, d->end, model * sizeof *all);
    r->job.end = all;
    r->job.n_end = n;
    r->job.n_end_asked = r->n_stop_ids;
    return 0;
}

/* The jobs of a request whose prompt is encoded. A seed given by the request replaces the run's. */
static int end_request(lf_gen_jobs *jobs, pool *p, gen_request *r, enum lf_gen_form form,
                       const lf_gen_defaults *d, lf_err *err)
{
    size_t made = (size_t)(r->best_of > r->n ? r->best_of : r->n);
    int rc = set_end(p, r, d, err);
    r->job.id = r->id;
    r->job.top_logprobs = (int)r->top_logprobs;
    r->job.stop_text = r->include_stop ? LF_STOP_INCLUDE : LF_STOP_CUT;
    r->job.prompt_top = r->prompt_logprobs > 0 ? (int)r->prompt_logprobs : 0;
    r->job.request = jobs->n_req;
    for (size_t i = 0; rc == 0 && i < made; i++) {
        r->job.sample = (uint32_t)i;
        r->job.prompt_logprobs = r->prompt_logprobs >= 0 && i == 0; /* the same for all */
        r->job.seed = lf_sample_seed(r->has_seed ? (uint64_t)r->seed : d->seed,
                                     r->has_seed ? "" : r->id, (uint32_t)i);
        rc = add_job(jobs, p, &r->job, err);
    }
    lf_gen_request q = {.id = r->id,
                        .form = form,
                        .n_jobs = made,
                        .n_out = (size_t)r->n,
                        .model = r->model ? r->model : "",
                        .logprobs = r->logprobs};
    return rc != 0 ? rc : add_request(jobs, p, &q, err);
}

/* A request of this prompt, text or ids; prompt NULL means out of memory. */
static int add_one(lf_gen_jobs *jobs, const char *id, json_t *prompt, const lf_tokenizer *tok,
                   const lf_gen_defaults *d, lf_err *err)
{
    pool *p = NULL;
    int rc = prompt ? open_pool(jobs, &p, tok, d, err) : lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc != 0)
        return rc;
    gen_request r = p->base;
    r.prompt = prompt;
    if (!(r.id = lf_arena_strdup(p->arena, id, err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = check_request(&r, err);
    if (rc == 0)
        rc = read_prompt(&(gen_members){p->arena, tok}, &r, d, err);
    if (rc == 0)
        rc = take_id(p, r.id, err);
    return rc != 0 ? rc : end_request(jobs, p, &r, LF_FORM_LINES, d, err);
}

int lf_gen_jobs_add_prompt(lf_gen_jobs *jobs, const char *id, const char *text,
                           const lf_tokenizer *tok, const lf_gen_defaults *d, lf_err *err)
{
    json_t *prompt = json_string_nocheck(text);
    int rc = add_one(jobs, id, prompt, tok, d, err);
    json_decref(prompt);
    return rc;
}

int lf_gen_jobs_add_ids(lf_gen_jobs *jobs, const char *id, const int32_t *ids, size_t n,
                        const lf_gen_defaults *d, lf_err *err)
{
    json_t *prompt = json_array();
    for (size_t i = 0; prompt && i < n; i++)
        if (json_array_append_new(prompt, json_integer(ids[i]))) {
            json_decref(prompt);
            prompt = NULL;
        }
    int rc = add_one(jobs, id, prompt, NULL, d, err);
    json_decref(prompt);
    return rc;
}

static int read_line(lf_gen_jobs *jobs, pool *p, json_t *o, size_t line, const lf_tokenizer *tok,
                     const lf_gen_defaults *d, lf_err *err)
{
    gen_request r = p->base;
    gen_members g = {p->arena, tok};
    int rc = lf_gen_members_read(&g, o, LF_FORM_LINES, &r, err);
    if (rc == 0 && !r.id && !(r.id = lf_arena_printf(p->arena, err, "line-%zu", line)))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = check_request(&r, err);
    if (rc == 0)
        rc = read_prompt(&g, &r, d, err);
    if (rc == 0)
        rc = take_id(p, r.id, err);
    return rc != 0 ? rc : end_request(jobs, p, &r, LF_FORM_LINES, d, err);
}

/* ---- the OpenAI batch shape
 * ----------------------------------------------------------------------------------------- */

static int batch_body(const gen_members *g, json_t *o, enum lf_gen_form *form, gen_request *r,
                      const lf_gen_defaults *d, lf_err *err)
{
    const char *method, *url, *key;
    json_t *body, *v;
    json_object_foreach(o, key,
                        v) if (strcmp(key, "custom_id") != 0 && strcmp(key, "method") != 0 &&
                               strcmp(key, "url") != 0 &&
                               strcmp(key, "body") !=
                                   0) return lf_fail(err, LF_EINVAL,
                                                     "unknown member '%s' of a batch request", key);
    int rc = lf_json_get_str(&url, o, "url", true, "batch request", err);
    if (rc == 0)
        rc = lf_json_get_str(&method, o, "method", true, "batch request", err);
    if (rc == 0)
        rc = lf_json_get_object(&body, o, "body", true, "batch request", err);
    if (rc != 0)
        return rc;
    *form = strcmp(url, "/v1/chat/completions") == 0 ? LF_FORM_CHAT : LF_FORM_COMPLETION;
    if (*form == LF_FORM_COMPLETION && strcmp(url, "/v1/completions") != 0)
        return lf_fail(err, LF_EINVAL,
                       "url '%s' is not one of /v1/completions and /v1/chat/completions", url);
    if (strcmp(method, "POST") != 0)
        return lf_fail(err, LF_EINVAL, "method '%s' is not POST", method);
    rc = lf_gen_members_read(g, body, *form, r, err);
    if (rc == 0 && *form == LF_FORM_CHAT && !r->messages)
        rc = lf_fail(err, LF_EINVAL, "no 'messages'");
    if (rc == 0)
        rc = check_request(r, err);
    return rc != 0 ? rc : read_prompt(g, r, d, err);
}

static int read_batch(lf_gen_jobs *jobs, pool *p, json_t *o, const lf_tokenizer *tok,
                      const lf_gen_defaults *d, lf_err *err)
{
    gen_request r = p->base;
    enum lf_gen_form form = LF_FORM_COMPLETION;
    lf_err why = LF_ERR_INIT;
    const char *id = NULL;
    int rc = lf_json_get_str(&id, o, "custom_id", true, "batch request", err);
    if (rc == 0 && !(r.id = lf_arena_strdup(p->arena, id, err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = take_id(p, r.id, err);
    if (rc != 0)
        return rc;
    rc = batch_body(&(gen_members){p->arena, tok}, o, &form, &r, d, &why);
    if (rc == 0)
        return end_request(jobs, p, &r, form, d, err);
    if (rc == LF_ENOMEM)
        return lf_fail(err, rc, "%s", why.text);
    lf_gen_request q = {.id = r.id,
                        .form = form,
                        .n_out = 1,
                        .model = r.model ? r.model : "",
                        .error = lf_arena_strdup(p->arena, why.text, err)};
    return q.error ? add_request(jobs, p, &q, err) : LF_ENOMEM;
}

/* ---- files
 * ----------------------------------------------------------------------------------------- */

static int read_object(lf_gen_jobs *jobs, pool *p, json_t *o, size_t line, const lf_tokenizer *tok,
                       const lf_gen_defaults *d, lf_err *err)
{
    return json_object_get(o, "custom_id") ? read_batch(jobs, p, o, tok, d, err)
                                           : read_line(jobs, p, o, line, tok, d, err);
}

int lf_gen_jobs_read(lf_gen_jobs *jobs, const char *path, const lf_tokenizer *tok,
                     const lf_gen_defaults *d, lf_err *err)
{
    pool *p = NULL;
    lf_rowfile f = {0};
    int rc = open_pool(jobs, &p, tok, d, err);
    if (rc == 0)
        rc = lf_rowfile_open_pictures(&f, path, err);
    for (int more = 1; rc == 0 && more == 1;) {
        json_t *o = NULL;
        more = lf_rowfile_next(&f, err);
        rc = more == 1 ? lf_rowfile_object(&f, &o, LF_ROW_NUL, err) : more;
        if (o && (rc = read_object(jobs, p, o, (size_t)f.record.line, tok, d, err)) < 0)
            lf_err_prefix(err, "%s", f.where);
        json_decref(o);
    }
    if (rc == 0 && jobs->n_req == 0)
        rc = lf_fail(err, LF_EINVAL, "%s holds no requests",
                     strcmp(path, "-") == 0 ? "standard input" : path);
    lf_rowfile_close(&f);
    return rc;
}

/* What the decoder of an encoder-decoder begins with, in the memory of the jobs. */
static int read_sources(lf_gen_jobs *jobs, const lf_gen_model *m, lf_err *err)
{
    pool *p = jobs->priv;
    if (!m->max_source || !jobs->n)
        return 0;
    int32_t *tokens =
        lf_arena_alloc(p->arena, lf_gen_source_room(jobs->v, jobs->n), sizeof *tokens, err);
    if (!tokens)
        return LF_ENOMEM;
    lf_gen_read_sources(m, jobs->v, jobs->n, tokens);
    return 0;
}

int lf_gen_jobs_fit(lf_gen_jobs *jobs, const lf_gen_model *m, const lf_tokenizer *tok, lf_err *err)
{
    pool *p = jobs->priv;
    size_t kept = 0;
    int rc = read_sources(jobs, m, err);
    for (size_t i = 0; i < jobs->n_req && rc == 0; i++) {
        lf_gen_request *q = &jobs->req[i];
        lf_err why = LF_ERR_INIT;
        rc = lf_gen_check(m, tok, jobs->v + q->first, q->n_jobs, &why);
        if (rc != 0 && q->form == LF_FORM_LINES)
            return lf_fail(err, rc, "%s", why.text);
        if (rc != 0) {
            q->error = lf_arena_strdup(p->arena, why.text, err);
            rc = q->error ? 0 : LF_ENOMEM;
            q->n_jobs = 0;
        }
        memmove(jobs->v + kept, jobs->v + q->first, q->n_jobs * sizeof *jobs->v);
        q->first = kept;
        kept += q->n_jobs;
    }
    jobs->n = kept;
    return rc;
}

void lf_gen_jobs_sights(const lf_gen_jobs *jobs, int64_t *patches, int64_t *tiles)
{
    *patches = *tiles = 0;
    for (size_t i = 0; i < jobs->n; i++) {
        const struct lf_gen_media *m = jobs->v[i].media;
        const lf_media_batch *b = m ? ((const struct lf_look_pictures *)m->pictures)->batch : NULL;
        *patches = b && b->n_patches > *patches ? b->n_patches : *patches;
        *tiles = b && b->n_tiles > *tiles ? b->n_tiles : *tiles;
    }
}

size_t lf_gen_jobs_refused(const lf_gen_jobs *jobs)
{
    size_t n = 0;
    for (size_t i = 0; i < jobs->n_req; i++)
        n += jobs->req[i].error != NULL;
    return n;
}

size_t lf_gen_jobs_at_line(const lf_gen_jobs *jobs, size_t line, size_t *offset)
{
    size_t lo = 0, hi = jobs->n_req; /* last request whose first line is not behind `line` */
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (jobs->req[mid].first_line <= line)
            lo = mid;
        else
            hi = mid;
    }
    *offset = line - (jobs->n_req ? jobs->req[lo].first_line : 0);
    return line >= jobs->n_lines ? jobs->n_req : lo;
}
