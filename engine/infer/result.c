/* SPDX-License-Identifier: Apache-2.0
 *
 * Result lines: see result.h. Every sample is written to a piece of text as it comes; the pieces of
 * a request are put in order when the last is there.
 */
#include "engine/infer/result.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

typedef struct piece {
    lf_buf text;
    double logprob; /* summed */
    size_t n, sample;
} piece;

struct lf_gen_writer {
    const lf_gen_jobs *jobs;
    const lf_tokenizer *tok;
    const char *model;
    size_t at;   /* the request whose lines come next */
    size_t skip; /* lines of it that are there already */
    piece *v;    /* of that request */
    size_t n, cap;
};

lf_gen_writer *lf_gen_writer_create(const lf_gen_jobs *jobs, const lf_tokenizer *tok,
                                    const char *model, lf_err *err)
{
    lf_gen_writer *w = lf_calloc(1, sizeof *w, err);
    if (w)
        *w = (lf_gen_writer){.jobs = jobs, .tok = tok, .model = model};
    return w;
}

static void drop(lf_gen_writer *w)
{
    for (size_t i = 0; i < w->n; i++)
        lf_buf_fini(&w->v[i].text);
    w->n = 0;
}

void lf_gen_writer_destroy(lf_gen_writer *w)
{
    if (!w)
        return;
    drop(w);
    free(w->v);
    free(w);
}

void lf_gen_writer_seek(lf_gen_writer *w, size_t request, size_t skip)
{
    drop(w);
    w->at = request;
    w->skip = skip;
}

/* ---- numbers and tokens
 * ----------------------------------------------------------------------------------------- */

/* 9 significant digits give back the same f32. */
static void add_float(lf_buf *out, float v)
{
    if (isfinite(v))
        lf_buf_addf(out, "%.9g", (double)v);
    else
        lf_buf_adds(out, "null");
}

static void add_floats(lf_buf *out, const float *v, size_t n)
{
    lf_buf_addc(out, '[');
    for (size_t i = 0; i < n; i++) {
        lf_buf_adds(out, i ? "," : "");
        add_float(out, v[i]);
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

/* {"token_ids":[...],"logprobs":[...]} of the alternatives; fewer than asked for in a small
 * vocabulary. */
static void add_top(lf_buf *out, const int32_t *ids, const float *logprobs, size_t top)
{
    size_t n = 0;
    while (n < top && ids[n] >= 0)
        n++;
    lf_buf_adds(out, "{\"token_ids\":");
    add_ints(out, ids, n);
    lf_buf_adds(out, ",\"logprobs\":");
    add_floats(out, logprobs, n);
    lf_buf_addc(out, '}');
}

static void token_bytes(const lf_tokenizer *tok, int32_t id, const uint8_t **b, size_t *n)
{
    *b = (const uint8_t *)"";
    *n = 0;
    if (tok && lf_tokenizer_is_special(tok, (uint32_t)id))
        (void)lf_tokenizer_text(tok, (uint32_t)id, b, n);
    else if (tok)
        (void)lf_tokenizer_token(tok, (uint32_t)id, b, n);
}

static void add_token(lf_buf *out, const lf_tokenizer *tok, int32_t id)
{
    const uint8_t *b;
    size_t n;
    token_bytes(tok, id, &b, &n);
    lf_buf_add_json(out, (const char *)b, n);
}

/* ---- our lines
 * ----------------------------------------------------------------------------------------- */

static void add_prompt_logprobs(lf_buf *out, const lf_gen_result *r)
{
    const lf_gen_job *j = r->job;
    size_t top = (size_t)(j->prompt_top > 0 ? j->prompt_top : 0);
    lf_buf_adds(out, ",\"prompt_logprobs\":[null");
    for (size_t i = 1; i < j->n_prompt; i++) {
        lf_buf_addc(out, ',');
        add_float(out, r->prompt_logprobs[i]);
    }
    lf_buf_addc(out, ']');
    if (top == 0)
        return;
    lf_buf_adds(out, ",\"prompt_top_logprobs\":[null");
    for (size_t i = 1; i < j->n_prompt; i++) {
        lf_buf_addc(out, ',');
        add_top(out, r->prompt_top_ids + i * top, r->prompt_top_logprobs + i * top, top);
    }
    lf_buf_addc(out, ']');
}

static void add_stop_reason(lf_buf *out, const lf_gen_result *r)
{
    if (r->stop_reason)
        lf_buf_add_json(out, r->stop_reason, strlen(r->stop_reason));
    else if (r->stop_token >= 0)
        lf_buf_addf(out, "%d", (int)r->stop_token);
    else
        lf_buf_adds(out, "null");
}

static void add_line(lf_buf *out, const lf_gen_result *r)
{
    const lf_gen_job *j = r->job;
    size_t top = j->top_logprobs > 0 ? (size_t)j->top_logprobs : 0;
    lf_buf_adds(out, "{\"id\":");
    lf_buf_add_json(out, j->id, strlen(j->id));
    lf_buf_addf(out, ",\"sample\":%u,\"prompt_tokens\":%zu,\"text\":", j->sample,
                j->source ? j->n_source : j->n_prompt);
    lf_buf_add_json(out, r->text, r->text_len);
    lf_buf_adds(out, ",\"token_ids\":");
    add_ints(out, r->tokens, r->n);
    lf_buf_adds(out, ",\"logprobs\":");
    add_floats(out, r->logprobs, r->n);
    lf_buf_addf(out, ",\"finish_reason\":\"%s\"", lf_finish_name(r->finish));
    if (r->stop_reason || r->stop_token >= 0) {
        lf_buf_adds(out, ",\"stop_reason\":");
        add_stop_reason(out, r);
    }
    for (size_t i = 0; top && i < r->n; i++) {
        lf_buf_adds(out, i ? "," : ",\"top_logprobs\":[");
        add_top(out, r->top_ids + i * top, r->top_logprobs + i * top, top);
        lf_buf_adds(out, i + 1 == r->n ? "]" : "");
    }
    if (r->prompt_logprobs)
        add_prompt_logprobs(out, r);
    lf_buf_addf(out, ",\"seed\":%llu}\n", (unsigned long long)j->seed);
}

/* ---- choices of a batch request
 * ----------------------------------------------------------------------------------------- */

static void add_chat_token(lf_buf *out, const lf_tokenizer *tok, int32_t id, float logprob)
{
    const uint8_t *b;
    size_t n;
    token_bytes(tok, id, &b, &n);
    lf_buf_adds(out, "{\"token\":");
    lf_buf_add_json(out, (const char *)b, n);
    lf_buf_adds(out, ",\"logprob\":");
    add_float(out, logprob);
    lf_buf_adds(out, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++)
        lf_buf_addf(out, i ? ",%u" : "%u", b[i]);
    lf_buf_addc(out, ']');
}

static void add_chat_logprobs(lf_buf *out, const lf_tokenizer *tok, const lf_gen_result *r,
                              size_t top)
{
    lf_buf_adds(out, "{\"content\":[");
    for (size_t i = 0; i < r->n; i++) {
        lf_buf_adds(out, i ? "," : "");
        add_chat_token(out, tok, r->tokens[i], r->logprobs[i]);
        lf_buf_adds(out, ",\"top_logprobs\":[");
        for (size_t k = 0; k < top && r->top_ids[i * top + k] >= 0; k++) {
            lf_buf_adds(out, k ? "," : "");
            add_chat_token(out, tok, r->top_ids[i * top + k], r->top_logprobs[i * top + k]);
            lf_buf_addc(out, '}');
        }
        lf_buf_adds(out, "]}");
    }
    lf_buf_adds(out, "]}");
}

/* The alternatives by their text; of two of one text the likelier stands. */
static void add_text_top(lf_buf *out, const lf_tokenizer *tok, const int32_t *ids,
                         const float *logprobs, size_t top)
{
    lf_buf_addc(out, '{');
    for (size_t k = 0, put = 0; k < top && ids[k] >= 0; k++) {
        bool again = false;
        const uint8_t *a, *b;
        size_t na, nb;
        token_bytes(tok, ids[k], &a, &na);
        for (size_t i = 0; i < k && !again; i++) {
            token_bytes(tok, ids[i], &b, &nb);
            again = na == nb && memcmp(a, b, na) == 0;
        }
        if (again)
            continue;
        lf_buf_adds(out, put++ ? "," : "");
        add_token(out, tok, ids[k]);
        lf_buf_addc(out, ':');
        add_float(out, logprobs[k]);
    }
    lf_buf_addc(out, '}');
}

static void add_text_logprobs(lf_buf *out, const lf_tokenizer *tok, const lf_gen_result *r,
                              size_t top)
{
    lf_buf_adds(out, "{\"tokens\":[");
    for (size_t i = 0; i < r->n; i++) {
        lf_buf_adds(out, i ? "," : "");
        add_token(out, tok, r->tokens[i]);
    }
    lf_buf_adds(out, "],\"token_logprobs\":");
    add_floats(out, r->logprobs, r->n);
    lf_buf_adds(out, ",\"top_logprobs\":");
    for (size_t i = 0; top && i < r->n; i++) {
        lf_buf_adds(out, i ? "," : "[");
        add_text_top(out, tok, r->top_ids + i * top, r->top_logprobs + i * top, top);
    }
    lf_buf_adds(out, !top ? "null" : r->n ? "]" : "[]");
    lf_buf_addc(out, '}');
}

static void add_prompt_tokens(lf_buf *out, const lf_tokenizer *tok, const lf_gen_result *r)
{
    for (size_t i = 1; i < r->job->n_prompt; i++) {
        lf_buf_addf(out, ",{\"%d\":{\"logprob\":", (int)r->job->prompt[i]);
        add_float(out, r->prompt_logprobs[i]);
        lf_buf_adds(out, ",\"decoded_token\":");
        add_token(out, tok, r->job->prompt[i]);
        lf_buf_adds(out, "}}");
    }
}

/* A choice without its opening brace and index. */
static void add_choice(lf_buf *out, const lf_tokenizer *tok, const lf_gen_request *q,
                       const lf_gen_result *r)
{
    bool chat = q->form == LF_FORM_CHAT;
    size_t top = r->job->top_logprobs > 0 ? (size_t)r->job->top_logprobs : 0;
    lf_buf_adds(out, chat ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"text\":");
    lf_buf_add_json(out, r->text, r->text_len);
    lf_buf_adds(out, chat ? "},\"logprobs\":" : ",\"logprobs\":");
    if (!q->logprobs)
        lf_buf_adds(out, "null");
    else if (chat)
        add_chat_logprobs(out, tok, r, top);
    else
        add_text_logprobs(out, tok, r, top);
    lf_buf_addf(out, ",\"finish_reason\":\"%s\",\"stop_reason\":", lf_finish_name(r->finish));
    add_stop_reason(out, r);
    lf_buf_adds(out, ",\"prompt_logprobs\":");
    if (r->prompt_logprobs) {
        lf_buf_adds(out, "[null");
        add_prompt_tokens(out, tok, r);
    }
    lf_buf_adds(out, r->prompt_logprobs ? "]}" : "null}");
}

/* ---- whole requests
 * ----------------------------------------------------------------------------------------- */

/* {"id":...,"custom_id":... up to the status; ids are a hash of the request's own. */
static void open_batch_line(lf_buf *out, const lf_gen_request *q, int status)
{
    unsigned long long h = (unsigned long long)lf_sample_seed(0, q->id, 0);
    lf_buf_addf(out, "{\"id\":\"lf-%016llx\",\"custom_id\":", h);
    lf_buf_add_json(out, q->id, strlen(q->id));
    lf_buf_addf(out,
                ",\"response\":{\"status_code\":%d,\"request_id\":\"lf-batch-%016llx\",\"body\":",
                status, h);
}

static void add_error_line(lf_buf *out, const lf_gen_request *q)
{
    open_batch_line(out, q, 400);
    lf_buf_adds(out, "null},\"error\":{\"message\":");
    lf_buf_add_json(out, q->error, strlen(q->error));
    lf_buf_adds(out, ",\"type\":\"BadRequestError\",\"code\":400}}\n");
}

static void add_batch_line(lf_gen_writer *w, const lf_gen_request *q, lf_buf *out)
{
    const char *model = *q->model ? q->model : w->model;
    unsigned long long h = (unsigned long long)lf_sample_seed(0, q->id, 0);
    const lf_gen_job *first = &w->jobs->v[q->first];
    size_t prompt = first->source ? first->n_source : first->n_prompt, made = 0;
    bool chat = q->form == LF_FORM_CHAT;
    open_batch_line(out, q, 200);
    lf_buf_addf(out, "{\"id\":\"%s-%016llx\",\"object\":\"%s\",\"created\":0,\"model\":",
                chat ? "chatcmpl" : "cmpl", h, chat ? "chat.completion" : "text_completion");
    lf_buf_add_json(out, model, strlen(model));
    lf_buf_adds(out, ",\"choices\":[");
    for (size_t i = 0; i < q->n_out; i++) {
        lf_buf_addf(out, "%s{\"index\":%zu", i ? "," : "", i);
        lf_buf_add(out, w->v[i].text.data, w->v[i].text.len);
        made += w->v[i].n;
    }
    lf_buf_addf(out,
                "],\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu,\"completion_tokens\":%zu}"
                "}},\"error\":null}\n",
                prompt, prompt + made, made);
}

/* Falling summed log-probability, then the sample. */
static int by_logprob(const void *a, const void *b)
{
    const piece *x = a, *y = b;
    if (x->logprob != y->logprob)
        return x->logprob > y->logprob ? -1 : 1;
    return x->sample < y->sample ? -1 : 1;
}

static void close_request(lf_gen_writer *w, const lf_gen_request *q, lf_buf *out)
{
    if (q->n_jobs > q->n_out)
        qsort(w->v, w->n, sizeof *w->v, by_logprob);
    if (q->form != LF_FORM_LINES && w->skip == 0)
        add_batch_line(w, q, out);
    for (size_t i = w->skip; q->form == LF_FORM_LINES && i < q->n_out; i++)
        lf_buf_add(out, w->v[i].text.data, w->v[i].text.len);
    lf_gen_writer_seek(w, w->at + 1, 0);
}

int lf_gen_writer_pass(lf_gen_writer *w, size_t request, lf_buf *out, lf_err *err)
{
    for (; w->at < request && w->jobs->req[w->at].n_jobs == 0; lf_gen_writer_seek(w, w->at + 1, 0))
        if (w->skip == 0)
            add_error_line(out, &w->jobs->req[w->at]);
    return lf_buf_check(out, err);
}

int lf_gen_writer_take(lf_gen_writer *w, const lf_gen_result *r, lf_buf *out, lf_err *err)
{
    int rc = lf_gen_writer_pass(w, r->job->request, out, err);
    const lf_gen_request *q = &w->jobs->req[r->job->request];
    if (rc != 0)
        return rc;
    if (q->form == LF_FORM_LINES && q->n_out == q->n_jobs) { /* no need to wait for its siblings */
        add_line(out, r);
        if (r->job->sample + 1 == q->n_jobs)
            lf_gen_writer_seek(w, w->at + 1, 0);
        return lf_buf_check(out, err);
    }
    if ((rc = lf_grow(&w->v, &w->cap, w->n, sizeof *w->v, err)))
        return rc;
    piece *p = &w->v[w->n++];
    *p = (piece){.n = r->n, .sample = r->job->sample};
    lf_buf_init(&p->text);
    for (size_t i = 0; i < r->n; i++)
        p->logprob += (double)r->logprobs[i];
    if (q->form == LF_FORM_LINES)
        add_line(&p->text, r);
    else
        add_choice(&p->text, w->tok, q, r);
    rc = lf_buf_check(&p->text, err);
    if (rc == 0 && w->n == q->n_jobs)
        close_request(w, q, out);
    return rc != 0 ? rc : lf_buf_check(out, err);
}

/* ---- continuing
 * -----------------------------------------------------------------------------------------
 */

static bool is_line_of(const lf_gen_jobs *jobs, const lf_gen_request *q, size_t offset, json_t *o)
{
    bool ours = q->form == LF_FORM_LINES;
    const char *id = json_string_value(json_object_get(o, ours ? "id" : "custom_id"));
    json_int_t sample = json_integer_value(json_object_get(o, "sample")),
               seed = json_integer_value(json_object_get(o, "seed"));
    if (!id || strcmp(id, q->id) != 0)
        return false;
    if (!ours)
        return json_is_object(json_object_get(o, "error")) == (q->error != NULL);
    if (sample < 0 || sample >= (json_int_t)q->n_jobs ||
        (q->n_out == q->n_jobs && sample != (json_int_t)offset))
        return false;
    return (uint64_t)seed == jobs->v[q->first + (size_t)sample].seed;
}

int lf_gen_line_check(const lf_gen_jobs *jobs, size_t index, const char *line, size_t len,
                      lf_err *err)
{
    size_t offset, at = lf_gen_jobs_at_line(jobs, index, &offset);
    json_error_t je;
    json_t *o = json_loadb(line, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
                           &je); /* a text may hold any character */
    if (!o)
        return lf_fail(err, LF_EFORMAT, "%s", je.text);
    bool good = at < jobs->n_req && is_line_of(jobs, &jobs->req[at], offset, o);
    json_decref(o);
    return good ? 0
                : lf_fail(
                      err, LF_EFORMAT,
                      "the result is not the one expected here: the file belongs to another run");
}
