/* SPDX-License-Identifier: Apache-2.0
 *
 * Request lines to generation jobs, results to lines. Members are a table: what is not in it is refused by name.
 */
#include "engine/infer/request.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"

/* Everything the jobs point to. */
typedef struct pool {
    lf_arena *arena;
    size_t cap;
    json_t *ids; /* object used as a set */
} pool;

/* One request while it is read: defaults, then what its line says. */
typedef struct request {
    lf_gen_job job; /* without id and seed */
    int64_t n, seed, top_logprobs;
    bool has_seed, ignore_eos;
    const char *id;
    json_t *prompt;
} request;

static int open_pool(lf_gen_jobs *jobs, pool **out, lf_err *err)
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
    *out = jobs->priv;
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
    *jobs = (lf_gen_jobs){0};
}

/* ---- members -------------------------------------------------------------------------------------------------------- */

enum kind { K_ID, K_PROMPT, K_DOUBLE, K_INT, K_BOOL, K_STOP, K_IDS };

struct member {
    const char *name;
    enum kind kind;
    size_t offset; /* into request */
    int64_t min, max; /* K_INT */
};

#define AT(field) offsetof(request, field)
static const struct member members[] = {
    {"id", K_ID, AT(id), 0, 0},
    {"prompt", K_PROMPT, AT(prompt), 0, 0},
    {"prompt_token_ids", K_PROMPT, AT(prompt), 0, 0},
    {"temperature", K_DOUBLE, AT(job.params.temperature), 0, 0},
    {"top_p", K_DOUBLE, AT(job.params.top_p), 0, 0},
    {"min_p", K_DOUBLE, AT(job.params.min_p), 0, 0},
    {"repetition_penalty", K_DOUBLE, AT(job.params.repetition_penalty), 0, 0},
    {"presence_penalty", K_DOUBLE, AT(job.params.presence_penalty), 0, 0},
    {"frequency_penalty", K_DOUBLE, AT(job.params.frequency_penalty), 0, 0},
    {"top_k", K_INT, AT(job.params.top_k), 0, INT32_MAX},
    {"n", K_INT, AT(n), 1, 1000000},
    {"max_tokens", K_INT, AT(job.max_tokens), 1, INT32_MAX},
    {"min_tokens", K_INT, AT(job.min_tokens), 0, INT32_MAX},
    {"logprobs", K_INT, AT(top_logprobs), 0, 1000},
    {"seed", K_INT, AT(seed), INT64_MIN, INT64_MAX},
    {"ignore_eos", K_BOOL, AT(ignore_eos), 0, 0},
    {"stop", K_STOP, 0, 0, 0},
    {"stop_token_ids", K_IDS, 0, 0, 0},
};
#define N_MEMBERS (sizeof members / sizeof *members)

static int unknown_member(const char *key, lf_err *err)
{
    const char *names[N_MEMBERS];
    for (size_t i = 0; i < N_MEMBERS; i++)
        names[i] = members[i].name;
    const char *near = lf_nearest(key, names, N_MEMBERS);
    return lf_fail(err, LF_EINVAL, "unknown member '%s'%s%s%s", key, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* Array of token ids (json) to i32; range is checked when the job is run. */
static int read_ids(pool *p, json_t *v, const char *name, int32_t **ids, size_t *n, lf_err *err)
{
    if (!json_is_array(v))
        return lf_fail(err, LF_EINVAL, "'%s' must be a list of token ids", name);
    size_t count = json_array_size(v);
    int32_t *out = lf_arena_alloc(p->arena, count + 1, sizeof *out, err);
    if (!out)
        return LF_ENOMEM;
    for (size_t i = 0; i < count; i++) {
        json_t *e = json_array_get(v, i);
        if (!json_is_integer(e) || json_integer_value(e) < 0 || json_integer_value(e) > INT32_MAX)
            return lf_fail(err, LF_EINVAL, "'%s': entry %zu is not a token id", name, i + 1);
        out[i] = (int32_t)json_integer_value(e);
    }
    *ids = out;
    *n = count;
    return 0;
}

static int read_stop(pool *p, json_t *v, request *r, lf_err *err)
{
    size_t n = json_is_string(v) ? 1 : json_array_size(v);
    if (!json_is_string(v) && !json_is_array(v))
        return lf_fail(err, LF_EINVAL, "'stop' must be a string or a list of strings");
    const char **stop = lf_arena_alloc(p->arena, n + 1, sizeof *stop, err);
    if (!stop)
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const json_t *e = json_is_string(v) ? v : json_array_get(v, i);
        const char *s = json_string_value(e);
        if (!s || !*s || strlen(s) != json_string_length(e))
            return lf_fail(err, LF_EINVAL, "'stop': entry %zu is not a text, or holds a NUL", i + 1);
        if (!(stop[i] = lf_arena_strdup(p->arena, s, err)))
            return LF_ENOMEM;
    }
    r->job.stop = stop;
    r->job.n_stop = n;
    return 0;
}

static int read_id(pool *p, json_t *v, request *r, lf_err *err)
{
    if (json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v))
        r->id = lf_arena_strdup(p->arena, json_string_value(v), err);
    else if (json_is_integer(v))
        r->id = lf_arena_printf(p->arena, err, "%lld", (long long)json_integer_value(v));
    else
        return lf_fail(err, LF_EINVAL, "'id' must be a string without NUL, or an integer");
    return r->id ? 0 : LF_ENOMEM;
}

static int read_member(pool *p, const struct member *m, json_t *v, request *r, lf_err *err)
{
    void *field = (char *)r + m->offset;
    int32_t *ids;
    size_t n;
    int rc = 0;
    switch (m->kind) {
    case K_ID:
        return read_id(p, v, r, err);
    case K_PROMPT:
        if (r->prompt)
            return lf_fail(err, LF_EINVAL, "both 'prompt' and 'prompt_token_ids' are given");
        r->prompt = v;
        return 0;
    case K_DOUBLE:
        if (!json_is_number(v))
            return lf_fail(err, LF_EINVAL, "'%s' must be a number", m->name);
        *(double *)field = json_number_value(v);
        return 0;
    case K_INT:
        if (!json_is_integer(v) || json_integer_value(v) < m->min || json_integer_value(v) > m->max)
            return lf_fail(err, LF_EINVAL, "'%s' must be an integer from %lld to %lld", m->name, (long long)m->min, (long long)m->max);
        *(int64_t *)field = json_integer_value(v);
        r->has_seed = r->has_seed || field == &r->seed;
        return 0;
    case K_BOOL:
        if (!json_is_boolean(v))
            return lf_fail(err, LF_EINVAL, "'%s' must be true or false", m->name);
        *(bool *)field = json_is_true(v);
        return 0;
    case K_STOP:
        return read_stop(p, v, r, err);
    case K_IDS: /* beside the model's own end tokens */
        rc = read_ids(p, v, m->name, &ids, &n, err);
        if (rc == 0) {
            int32_t *all = lf_arena_alloc(p->arena, n + r->job.n_end + 1, sizeof *all, err);
            if (!all)
                return LF_ENOMEM;
            memcpy(all, ids, n * sizeof *all);
            if (r->job.n_end)
                memcpy(all + n, r->job.end, r->job.n_end * sizeof *all);
            r->job.end = all;
            r->job.n_end += n;
        }
        return rc;
    }
    return rc;
}

/* ---- jobs -------------------------------------------------------------------------------------------------------------- */

static int encode_prompt(pool *p, const lf_tokenizer *tok, const char *text, size_t len, const lf_gen_defaults *d, lf_gen_job *job,
                         lf_err *err)
{
    if (!tok)
        return lf_fail(err, LF_EINVAL, "a prompt in words needs a tokenizer; give token ids or name a tokenizer");
    lf_ids ids = {0};
    lf_tok_state *st = lf_tok_state_create(tok, err);
    int rc = st ? lf_tokenizer_encode(st, text, len, d->add_special ? LF_TOK_TEMPLATE : 0, &ids, NULL, err) : LF_ENOMEM;
    int32_t *out = rc ? NULL : lf_arena_alloc(p->arena, ids.n + 1, sizeof *out, err);
    if (rc == 0 && !out)
        rc = LF_ENOMEM;
    for (size_t i = 0; rc == 0 && i < ids.n; i++)
        out[i] = (int32_t)ids.v[i];
    if (rc == 0) {
        job->prompt = out;
        job->n_prompt = ids.n;
    }
    lf_ids_fini(&ids);
    lf_tok_state_destroy(st);
    return rc;
}

static int add_job(lf_gen_jobs *jobs, pool *p, const lf_gen_job *job, lf_err *err)
{
    int rc = lf_grow(&jobs->v, &p->cap, jobs->n, sizeof *jobs->v, err);
    if (rc == 0)
        jobs->v[jobs->n++] = *job;
    return rc;
}

static void begin_request(request *r, const lf_gen_defaults *d)
{
    *r = (request){.n = d->n, .top_logprobs = d->top_logprobs, .ignore_eos = d->ignore_eos};
    r->job.params = d->params;
    r->job.max_tokens = d->max_tokens;
    r->job.min_tokens = d->min_tokens;
    r->job.stop = d->stop;
    r->job.n_stop = d->n_stop;
    r->job.end = d->end;
    r->job.n_end = d->n_end;
    r->job.skip_special = d->skip_special;
}

/* n jobs of a request whose prompt is encoded. A seed given by the request replaces the run's. */
static int end_request(lf_gen_jobs *jobs, pool *p, request *r, const lf_gen_defaults *d, lf_err *err)
{
    if (json_object_get(p->ids, r->id))
        return lf_fail(err, LF_EINVAL, "a second request has the id '%s'", r->id);
    if (json_object_set_new(p->ids, r->id, json_true()))
        return lf_fail(err, LF_EINVAL, "the id is not valid UTF-8");
    int rc = lf_sample_check(&r->job.params, err);
    r->job.id = r->id;
    r->job.top_logprobs = (int)r->top_logprobs;
    if (r->ignore_eos)
        r->job.n_end = 0;
    for (int64_t i = 0; rc == 0 && i < r->n; i++) {
        r->job.sample = (uint32_t)i;
        r->job.seed = lf_sample_seed(r->has_seed ? (uint64_t)r->seed : d->seed, r->has_seed ? "" : r->id, (uint32_t)i);
        rc = add_job(jobs, p, &r->job, err);
    }
    return rc;
}

int lf_gen_jobs_add_prompt(lf_gen_jobs *jobs, const char *id, const char *text, const lf_tokenizer *tok, const lf_gen_defaults *d,
                           lf_err *err)
{
    pool *p = NULL;
    request r;
    int rc = open_pool(jobs, &p, err);
    begin_request(&r, d);
    if (rc == 0 && !(r.id = lf_arena_strdup(p->arena, id, err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = encode_prompt(p, tok, text, strlen(text), d, &r.job, err);
    return rc ? rc : end_request(jobs, p, &r, d, err);
}

static int read_line(lf_gen_jobs *jobs, pool *p, json_t *o, size_t line, const lf_tokenizer *tok, const lf_gen_defaults *d, lf_err *err)
{
    request r;
    const char *key;
    json_t *v;
    int rc = 0;
    begin_request(&r, d);
    if (!json_is_object(o))
        return lf_fail(err, LF_EINVAL, "a request is an object like {\"id\": \"q1\", \"prompt\": \"text\"}");
    json_object_foreach(o, key, v) {
        size_t i = 0;
        while (i < N_MEMBERS && strcmp(members[i].name, key) != 0)
            i++;
        rc = i == N_MEMBERS ? unknown_member(key, err) : read_member(p, &members[i], v, &r, err);
        if (rc)
            return rc;
    }
    if (!r.prompt)
        return lf_fail(err, LF_EINVAL, "no 'prompt' and no 'prompt_token_ids'");
    if (!r.id && !(r.id = lf_arena_printf(p->arena, err, "line-%zu", line)))
        return LF_ENOMEM;
    if (json_is_string(r.prompt)) {
        rc = encode_prompt(p, tok, json_string_value(r.prompt), json_string_length(r.prompt), d, &r.job, err);
    } else {
        int32_t *ids;
        rc = read_ids(p, r.prompt, "prompt", &ids, &r.job.n_prompt, err);
        if (rc == 0)
            r.job.prompt = ids;
    }
    if (rc == 0 && r.job.n_prompt == 0)
        return lf_fail(err, LF_EINVAL, "the prompt is empty");
    return rc ? rc : end_request(jobs, p, &r, d, err);
}

int lf_gen_jobs_read(lf_gen_jobs *jobs, const char *path, const lf_tokenizer *tok, const lf_gen_defaults *d, lf_err *err)
{
    pool *p = NULL;
    bool is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "standard input" : path;
    int rc = open_pool(jobs, &p, err);
    if (rc)
        return rc;
    FILE *f = is_stdin ? stdin : fopen(path, "re");
    if (!f)
        return lf_fail_errno(err, "cannot read requests from %s", path);
    char *line = NULL;
    size_t cap = 0, number = 0;
    ssize_t len;
    while (rc == 0 && (len = getline(&line, &cap, f)) >= 0) {
        number++;
        if (strspn(line, " \t\r\n") == (size_t)len)
            continue;
        json_error_t je;
        json_t *o = json_loadb(line, (size_t)len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
        if (!o)
            rc = lf_fail(err, LF_EFORMAT, "%s:%zu:%d: %s", name, number, je.column < 1 ? 1 : je.column, je.text);
        else if ((rc = read_line(jobs, p, o, number, tok, d, err)))
            rc = lf_err_prefix(err, "%s:%zu", name, number);
        json_decref(o);
    }
    if (rc == 0 && ferror(f))
        rc = lf_fail_errno(err, "cannot read requests from %s", name);
    if (rc == 0 && jobs->n == 0)
        rc = lf_fail(err, LF_EINVAL, "%s holds no requests", name);
    free(line);
    if (!is_stdin)
        fclose(f);
    return rc;
}

/* ---- results ------------------------------------------------------------------------------------------------------------ */

/* 9 significant digits give back the same f32. */
static void add_floats(lf_buf *out, const float *v, size_t n)
{
    lf_buf_addc(out, '[');
    for (size_t i = 0; i < n; i++) {
        if (isfinite(v[i]))
            lf_buf_addf(out, i ? ",%.9g" : "%.9g", (double)v[i]);
        else
            lf_buf_adds(out, i ? ",null" : "null");
    }
    lf_buf_addc(out, ']');
}

static void add_ints(lf_buf *out, const int32_t *v, size_t n)
{
    lf_buf_addc(out, '[');
    for (size_t i = 0; i < n; i++)
        lf_buf_addf(out, i ? ",%d" : "%d", (int)v[i]);
    lf_buf_addc(out, ']');
}

int lf_gen_result_line(lf_buf *out, const lf_gen_result *r, lf_err *err)
{
    const lf_gen_job *j = r->job;
    lf_buf_adds(out, "{\"id\":");
    lf_buf_add_json(out, j->id, strlen(j->id));
    lf_buf_addf(out, ",\"sample\":%u,\"prompt_tokens\":%zu,\"text\":", j->sample, j->n_prompt);
    lf_buf_add_json(out, r->text, r->text_len);
    lf_buf_adds(out, ",\"token_ids\":");
    add_ints(out, r->tokens, r->n);
    lf_buf_adds(out, ",\"logprobs\":");
    add_floats(out, r->logprobs, r->n);
    lf_buf_addf(out, ",\"finish_reason\":\"%s\"", lf_finish_name(r->finish));
    if (r->stop_reason) {
        lf_buf_adds(out, ",\"stop_reason\":");
        lf_buf_add_json(out, r->stop_reason, strlen(r->stop_reason));
    }
    size_t top = j->top_logprobs > 0 ? (size_t)j->top_logprobs : 0;
    for (size_t i = 0; top && i < r->n; i++) {
        size_t n = 0; /* fewer than asked for in a small vocabulary */
        while (n < top && r->top_ids[i * top + n] >= 0)
            n++;
        lf_buf_adds(out, i ? ",{\"token_ids\":" : ",\"top_logprobs\":[{\"token_ids\":");
        add_ints(out, r->top_ids + i * top, n);
        lf_buf_adds(out, ",\"logprobs\":");
        add_floats(out, r->top_logprobs + i * top, n);
        lf_buf_adds(out, i + 1 == r->n ? "}]" : "}");
    }
    lf_buf_addf(out, ",\"seed\":%llu}\n", (unsigned long long)j->seed);
    return lf_buf_check(out, err);
}
