/* SPDX-License-Identifier: Apache-2.0
 *
 * Members of a request. They are a table: what is not in it is refused by name.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/infer/request_priv.h"

enum kind {
    K_ID,
    K_PROMPT,
    K_JSON,
    K_DOUBLE,
    K_INT,
    K_TOKEN, /* of lf_gen_job: + 1 */
    K_BOOL,
    K_STOP,
    K_STOP_IDS,
    K_ALLOWED,
    K_BIAS,
    K_BAD,
    K_MODEL,
    K_LOGPROBS,
    K_EARLY,
    K_FALSE,
    K_PASS
};
enum {
    L = 1 << LF_FORM_LINES,
    C = 1 << LF_FORM_COMPLETION,
    H = 1 << LF_FORM_CHAT,
    ALL = L | C | H
};

struct member {
    const char *name;
    enum kind kind;
    unsigned forms;
    size_t offset;    /* into gen_request */
    int64_t min, max; /* K_INT */
};

#define AT(field) offsetof(gen_request, field)
static const struct member members[] = {
    {"id", K_ID, L, 0, 0, 0},
    {"prompt", K_PROMPT, L | C, 0, 0, 0},
    {"prompt_token_ids", K_PROMPT, L, 0, 0, 0},
    {"messages", K_JSON, L | H, AT(messages), 0, 0},
    {"images", K_JSON, ALL, AT(images), 0, 0},
    {"image", K_JSON, L, AT(image), 0, 0},
    {"tools", K_JSON, L | H, AT(tools), 0, 0},
    {"chat_template_kwargs", K_JSON, L | H, AT(kwargs), 0, 0},
    {"temperature", K_DOUBLE, ALL, AT(job.params.temperature), 0, 0},
    {"top_p", K_DOUBLE, ALL, AT(job.params.top_p), 0, 0},
    {"min_p", K_DOUBLE, ALL, AT(job.params.min_p), 0, 0},
    {"repetition_penalty", K_DOUBLE, ALL, AT(job.params.repetition_penalty), 0, 0},
    {"presence_penalty", K_DOUBLE, ALL, AT(job.params.presence_penalty), 0, 0},
    {"frequency_penalty", K_DOUBLE, ALL, AT(job.params.frequency_penalty), 0, 0},
    {"top_k", K_INT, ALL, AT(job.params.top_k), -1, INT32_MAX},
    {"n", K_INT, ALL, AT(n), 1, 1000000},
    {"best_of", K_INT, L | C, AT(best_of), 1, 1000000},
    {"beams", K_INT, ALL, AT(job.beams.n), 1, LF_BEAMS_MOST},
    {"length_penalty", K_DOUBLE, ALL, AT(job.beams.length_penalty), 0, 0},
    {"early_stopping", K_EARLY, ALL, 0, 0, 0},
    {"max_tokens", K_INT, ALL, AT(job.max_tokens), 1, INT32_MAX},
    {"max_completion_tokens", K_INT, H, AT(job.max_tokens), 1, INT32_MAX},
    {"min_tokens", K_INT, ALL, AT(job.min_tokens), 0, INT32_MAX},
    {"no_repeat_ngram_size", K_INT, ALL, AT(job.no_repeat), 0, INT32_MAX},
    {"first_token", K_TOKEN, ALL, AT(job.first_token), -1, INT32_MAX - 1},
    {"last_token", K_TOKEN, ALL, AT(job.last_token), -1, INT32_MAX - 1},
    {"logprobs", K_LOGPROBS, ALL, AT(top_logprobs), 0, 1000},
    {"top_logprobs", K_INT, H, AT(top_logprobs), 0, 1000},
    {"prompt_logprobs", K_INT, ALL, AT(prompt_logprobs), 0, 1000},
    {"truncate_prompt_tokens", K_INT, ALL, AT(truncate), 1, INT32_MAX},
    {"seed", K_INT, ALL, AT(seed), INT64_MIN, INT64_MAX},
    {"ignore_eos", K_BOOL, ALL, AT(ignore_eos), 0, 0},
    {"skip_special_tokens", K_BOOL, ALL, AT(job.skip_special), 0, 0},
    {"include_stop_str_in_output", K_BOOL, ALL, AT(include_stop), 0, 0},
    {"add_special_tokens", K_BOOL, ALL, AT(add_special), 0, 0},
    {"stop", K_STOP, ALL, 0, 0, 0},
    {"stop_token_ids", K_STOP_IDS, ALL, 0, 0, 0},
    {"allowed_token_ids", K_ALLOWED, ALL, 0, 0, 0},
    {"logit_bias", K_BIAS, ALL, 0, 0, 0},
    {"bad_words", K_BAD, ALL, 0, 0, 0},
    {"model", K_MODEL, C | H, 0, 0, 0},
    {"stream", K_FALSE, C | H, 0, 0, 0},
    {"echo", K_FALSE, C | H, 0, 0, 0},
    {"user", K_PASS, C | H, 0, 0, 0},
    {"metadata", K_PASS, C | H, 0, 0, 0},
};
#define N_MEMBERS (sizeof members / sizeof *members)

static int unknown_member(const char *key, enum lf_gen_form form, lf_err *err)
{
    const char *names[N_MEMBERS];
    size_t n = 0;
    for (size_t i = 0; i < N_MEMBERS; i++)
        if (members[i].forms >> form & 1)
            names[n++] = members[i].name;
    const char *near = lf_nearest(key, names, n);
    return lf_fail(err, LF_EINVAL, "unknown %s '%s'%s%s%s",
                   form == LF_FORM_LINES ? "member" : "parameter", key,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

int lf_gen_ids_read(const gen_members *g, json_t *v, const char *name, const int32_t **ids,
                    size_t *n, lf_err *err)
{
    if (!json_is_array(v))
        return lf_fail(err, LF_EINVAL, "'%s' must be a list of token ids", name);
    size_t count = json_array_size(v);
    int32_t *out = lf_arena_alloc(g->a, count + 1, sizeof *out, err);
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

int lf_gen_encode(const gen_members *g, const char *text, size_t len, unsigned flags,
                  const int32_t **out, size_t *n, lf_err *err)
{
    if (!g->tok)
        return lf_fail(err, LF_EINVAL,
                       "a prompt in words needs a tokenizer; give token ids or name a tokenizer");
    lf_ids ids = {0};
    lf_tok_state *st = lf_tok_state_create(g->tok, err);
    int rc = st ? lf_tokenizer_encode(st, text, len, flags, &ids, NULL, err) : LF_ENOMEM;
    int32_t *v = rc != 0 ? NULL : lf_arena_alloc(g->a, ids.n + 1, sizeof *v, err);
    if (rc == 0 && !v)
        rc = LF_ENOMEM;
    for (size_t i = 0; rc == 0 && i < ids.n; i++)
        v[i] = (int32_t)ids.v[i];
    if (rc == 0) {
        *out = v;
        *n = ids.n;
    }
    lf_ids_fini(&ids);
    lf_tok_state_destroy(st);
    return rc;
}

/* A string, or a list of strings, into the arena. */
static int read_texts(const gen_members *g, json_t *v, const char *name, const char *const **out,
                      size_t *n_out, lf_err *err)
{
    size_t n = json_is_string(v) ? 1 : json_array_size(v);
    if (!json_is_string(v) && !json_is_array(v))
        return lf_fail(err, LF_EINVAL, "'%s' must be a string or a list of strings", name);
    const char **texts = lf_arena_alloc(g->a, n + 1, sizeof *texts, err);
    if (!texts)
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const json_t *e = json_is_string(v) ? v : json_array_get(v, i);
        const char *s = json_string_value(e);
        if (!s || !*s || strlen(s) != json_string_length(e))
            return lf_fail(err, LF_EINVAL, "'%s': entry %zu is not a text, or holds a NUL", name,
                           i + 1);
        if (!(texts[i] = lf_arena_strdup(g->a, s, err)))
            return LF_ENOMEM;
    }
    *out = texts;
    *n_out = n;
    return 0;
}

/* The ids of a word as it would stand at the beginning of a text and behind a space: both are
 * forbidden where they are as long and begin differently. */
static int read_bad(const gen_members *g, json_t *v, gen_request *r, lf_err *err)
{
    const char *const *words;
    size_t n, k = 0;
    int rc = read_texts(g, v, "bad_words", &words, &n, err);
    if (rc == 0 && n > 0 && !g->tok)
        rc = lf_fail(err, LF_EINVAL, "'bad_words' needs a tokenizer");
    if (rc != 0)
        return rc;
    const int32_t **bad = lf_arena_alloc(g->a, 2 * n + 1, sizeof *bad, err);
    size_t *len = lf_arena_alloc(g->a, 2 * n + 1, sizeof *len, err);
    if (!bad || !len)
        return LF_ENOMEM;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        char *spaced =
            lf_arena_printf(g->a, err, " %s", words[i] + strspn(words[i], " \t\n\r\v\f"));
        if (!spaced)
            return LF_ENOMEM;
        rc = lf_gen_encode(g, spaced + 1, strlen(spaced + 1), 0, &bad[k], &len[k], err);
        if (rc == 0 && len[k] == 0)
            rc = lf_fail(err, LF_EINVAL, "'bad_words': entry %zu has no tokens", i + 1);
        if (rc == 0)
            rc = lf_gen_encode(g, spaced, strlen(spaced), 0, &bad[k + 1], &len[k + 1], err);
        if (rc == 0)
            k += len[k + 1] == len[k] && bad[k + 1][0] != bad[k][0] ? 2 : 1;
    }
    r->job.limits.bad = (const int32_t *const *)bad;
    r->job.limits.bad_len = len;
    r->job.limits.n_bad = k;
    return rc;
}

static int read_bias(const gen_members *g, json_t *v, gen_request *r, lf_err *err)
{
    const char *key;
    json_t *b;
    size_t n = json_object_size(v), k = 0;
    if (!json_is_object(v))
        return lf_fail(err, LF_EINVAL, "'logit_bias' must be an object of token ids and numbers");
    int32_t *ids = lf_arena_alloc(g->a, n + 1, sizeof *ids, err);
    double *bias = lf_arena_alloc(g->a, n + 1, sizeof *bias, err);
    if (!ids || !bias)
        return LF_ENOMEM;
    json_object_foreach(v, key, b)
    {
        char *end;
        long id = strtol(key, &end, 10);
        if (key[strspn(key, "0123456789")] || !*key || *end || id < 0 || id > INT32_MAX)
            return lf_fail(err, LF_EINVAL, "'logit_bias': '%s' is not a token id", key);
        if (!json_is_number(b) || !(fabs(json_number_value(b)) <= 100))
            return lf_fail(err, LF_EINVAL,
                           "'logit_bias': the bias of token %ld must be a number from -100 to 100",
                           id);
        ids[k] = (int32_t)id;
        bias[k++] = json_number_value(b);
    }
    r->job.limits.bias_ids = ids;
    r->job.limits.bias = bias;
    r->job.limits.n_bias = n;
    return 0;
}

static int read_id(const gen_members *g, json_t *v, gen_request *r, lf_err *err)
{
    if (json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v))
        r->id = lf_arena_strdup(g->a, json_string_value(v), err);
    else if (json_is_integer(v))
        r->id = lf_arena_printf(g->a, err, "%lld", (long long)json_integer_value(v));
    else
        return lf_fail(err, LF_EINVAL, "'id' must be a string without NUL, or an integer");
    return r->id ? 0 : LF_ENOMEM;
}

static int read_int(const struct member *m, json_t *v, gen_request *r, lf_err *err)
{
    int64_t *field = (int64_t *)((char *)r + m->offset);
    if (!json_is_integer(v) || json_integer_value(v) < m->min || json_integer_value(v) > m->max)
        return lf_fail(err, LF_EINVAL, "'%s' must be an integer from %lld to %lld", m->name,
                       (long long)m->min, (long long)m->max);
    *field = json_integer_value(v);
    r->has_seed = r->has_seed || field == &r->seed;
    if (field == &r->job.params.top_k && *field < 0)
        *field = 0;
    return 0;
}

/* As transformers has it: true, false or "never". */
static int read_early(json_t *v, gen_request *r, lf_err *err)
{
    const char *text = json_string_value(v);
    if (!json_is_boolean(v) && !(text && strcmp(text, "never") == 0))
        return lf_fail(err, LF_EINVAL, "'early_stopping' must be true, false or \"never\"");
    r->job.beams.early = text ? LF_BEAMS_NEVER : json_is_true(v) ? LF_BEAMS_YES : LF_BEAMS_NO;
    return 0;
}

/* A chat request says whether, any other how many. */
static int read_logprobs(const struct member *m, json_t *v, enum lf_gen_form form, gen_request *r,
                         lf_err *err)
{
    if (form == LF_FORM_CHAT && !json_is_boolean(v))
        return lf_fail(err, LF_EINVAL, "'logprobs' must be true or false");
    r->logprobs = form != LF_FORM_CHAT || json_is_true(v);
    return form == LF_FORM_CHAT ? 0 : read_int(m, v, r, err);
}

static int read_member(const gen_members *g, const struct member *m, json_t *v,
                       enum lf_gen_form form, gen_request *r, lf_err *err)
{
    void *field = (char *)r + m->offset;
    int rc;
    switch (m->kind) {
    case K_ID:
        return read_id(g, v, r, err);
    case K_PROMPT:
        if (r->prompt)
            return lf_fail(err, LF_EINVAL, "both 'prompt' and 'prompt_token_ids' are given");
        r->prompt = v;
        return 0;
    case K_JSON:
        *(json_t **)field = v;
        return 0;
    case K_DOUBLE:
        if (!json_is_number(v))
            return lf_fail(err, LF_EINVAL, "'%s' must be a number", m->name);
        *(double *)field = json_number_value(v);
        return 0;
    case K_INT:
        return read_int(m, v, r, err);
    case K_TOKEN:
        rc = read_int(m, v, r, err);
        *(int64_t *)field += rc == 0;
        return rc;
    case K_LOGPROBS:
        return read_logprobs(m, v, form, r, err);
    case K_EARLY:
        return read_early(v, r, err);
    case K_BOOL:
        if (!json_is_boolean(v))
            return lf_fail(err, LF_EINVAL, "'%s' must be true or false", m->name);
        *(bool *)field = json_is_true(v);
        return 0;
    case K_STOP:
        return read_texts(g, v, m->name, &r->job.stop, &r->job.n_stop, err);
    case K_STOP_IDS:
        return lf_gen_ids_read(g, v, m->name, &r->stop_ids, &r->n_stop_ids, err);
    case K_ALLOWED:
        rc = lf_gen_ids_read(g, v, m->name, &r->job.limits.allowed, &r->job.limits.n_allowed, err);
        return rc == 0 && r->job.limits.n_allowed == 0
                   ? lf_fail(err, LF_EINVAL, "'allowed_token_ids' allows nothing")
                   : rc;
    case K_BIAS:
        return read_bias(g, v, r, err);
    case K_BAD:
        return read_bad(g, v, r, err);
    case K_MODEL:
        if (!json_is_string(v))
            return lf_fail(err, LF_EINVAL, "'model' must be a text");
        return (r->model = lf_arena_strdup(g->a, json_string_value(v), err)) ? 0 : LF_ENOMEM;
    case K_FALSE:
        return json_is_false(v)
                   ? 0
                   : lf_fail(err, LF_EINVAL, "'%s' is not supported here; leave it out", m->name);
    case K_PASS:
        return 0;
    }
    return 0;
}

int lf_gen_members_read(const gen_members *g, json_t *o, enum lf_gen_form form, gen_request *r,
                        lf_err *err)
{
    const char *key;
    json_t *v;
    json_object_foreach(o, key, v)
    {
        size_t i = 0;
        while (i < N_MEMBERS &&
               (strcmp(members[i].name, key) != 0 || !(members[i].forms >> form & 1)))
            i++;
        if (i == N_MEMBERS)
            return unknown_member(key, form, err);
        int rc = json_is_null(v) ? 0 : read_member(g, &members[i], v, form, r, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}
