/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of requests to documents; see tasks.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/infer/filter.h"
#include "engine/infer/tasks_priv.h"
#include "engine/text/corpus/rowfile.h"

#define DEFAULT_MAX_TOKENS 256 /* of the harness */

static const char *const output_types[LF_OUT_TYPES] = {"multiple_choice", "loglikelihood",
                                                       "loglikelihood_rolling", "generate_until"};
static const char *const kinds[LF_OUT_TYPES] = {"loglikelihood", "loglikelihood",
                                                "loglikelihood_rolling", "generate_until"};

int lf_output_type_of(const eval_task *k)
{
    const char *name = json_string_value(json_object_get(k->head, "output_type"));
    for (int i = 0; name && i < LF_OUT_TYPES; i++)
        if (strcmp(output_types[i], name) == 0)
            return i;
    return -1;
}

/* One file while it is read. */
typedef struct reader {
    lf_tasks *t;
    const char *path;
    uint8_t sha256[LF_HASH_BYTES];
    int64_t limit;
    bool in_task, open, skipping; /* skipping: documents behind the limit */
    json_t *seen;                 /* doc ids of the task */
    eval_doc *doc;                /* open: the document that requests are added to */
} reader;

/* ---- what a document must say ---------------------------------------------------------------- */

static int check_numbers(json_t *doc, const char *name, size_t n, lf_err *err)
{
    json_t *list = json_object_get(doc, name);
    for (size_t i = 0; i < n; i++)
        if (json_array_size(list) != n || !(json_number_value(json_array_get(list, i)) > 0))
            return lf_fail(err, LF_EFORMAT,
                           "\"%s\" of the document must be a length for each of its %zu choices",
                           name, n);
    return 0;
}

static int check_choice(json_t *doc, size_t n_items, lf_err *err)
{
    json_t *gold = json_object_get(doc, "gold"), *chars = json_object_get(doc, "chars");
    size_t n = json_array_size(chars);
    if (n == 0 || (n_items != n && n_items != 2 * n))
        return lf_fail(err, LF_EFORMAT, "a document with %zu choices has %zu requests", n, n_items);
    int rc = check_numbers(doc, "chars", n, err);
    if (rc == 0)
        rc = check_numbers(doc, "bytes", n, err);
    for (size_t i = 0; i < (json_is_array(gold) ? json_array_size(gold) : 1) && rc == 0; i++) {
        json_t *g = json_is_array(gold) ? json_array_get(gold, i) : gold;
        if (!json_is_integer(g) || json_integer_value(g) >= (json_int_t)n)
            rc = lf_fail(
                err, LF_EFORMAT,
                "\"gold\" of the document must be the index of one of %zu choices, or a list", n);
    }
    return rc;
}

static int check_target(json_t *doc, lf_err *err)
{
    json_t *target = json_object_get(doc, "target");
    bool good = json_is_string(target) || json_array_size(target) > 0;
    for (size_t i = 0; i < json_array_size(target); i++)
        good = good && json_is_string(json_array_get(target, i));
    return good ? 0
                : lf_fail(err, LF_EFORMAT,
                          "\"target\" of the document must be a text or a list of texts");
}

static int check_doc(const eval_task *k, const eval_doc *d, size_t n_items, lf_err *err)
{
    json_t *doc = json_object_get(json_array_get(d->requests, 0), "doc");
    switch (lf_output_type_of(k)) {
    case LF_OUT_CHOICE:
        return check_choice(doc, n_items, err);
    case LF_OUT_ROLLING:
        if (!(json_number_value(json_object_get(doc, "words")) > 0) ||
            !(json_number_value(json_object_get(doc, "bytes")) > 0))
            return lf_fail(err, LF_EFORMAT,
                           "\"words\" and \"bytes\" of the document must be numbers above 0");
        return 0;
    case LF_OUT_GENERATE:
        return check_target(doc, err);
    default:
        return 0;
    }
}

static int close_doc(reader *r, lf_err *err)
{
    lf_tasks *t = r->t;
    if (!r->open)
        return 0;
    eval_doc *d = &t->docs[t->n_docs];
    int rc = check_doc(&t->tasks[t->n_tasks - 1], d, t->n_items - d->first_item, err);
    if (rc != 0) {
        json_decref(d->requests);
        d->requests = NULL;
        return lf_err_prefix(err, "document %lld of '%s'", (long long)d->id,
                             t->tasks[t->n_tasks - 1].name);
    }
    lf_tasks_end_doc(t);
    r->open = false;
    return 0;
}

/* ---- requests -------------------------------------------------------------------------------- */

static int read_until(lf_tasks *t, json_t *gen, eval_gen *g, lf_err *err)
{
    json_t *until = json_object_get(gen, "until");
    size_t n = json_is_string(until) ? 1 : json_array_size(until);
    const uint8_t *eos = NULL;
    size_t eos_len = 0;
    if (lf_tokenizer_eos(t->tok) >= 0)
        (void)lf_tokenizer_text(t->tok, (uint32_t)lf_tokenizer_eos(t->tok), &eos, &eos_len);
    const char **v = lf_arena_alloc(t->arena, n + 1, sizeof *v, err);
    if (!v)
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const char *s = json_string_value(json_is_string(until) ? until : json_array_get(until, i));
        if (!s)
            return lf_fail(err, LF_EFORMAT, "\"until\": entry %zu is not a text", i + 1);
        if (!(v[i] = lf_arena_strdup(t->arena, s, err)))
            return LF_ENOMEM;
    }
    g->until = v;
    g->n_until = n;
    if (eos_len > 0) { /* the end of document ends a text where it is written, too */
        if (!(v[n] = lf_arena_printf(t->arena, err, "%.*s", (int)eos_len, (const char *)eos)))
            return LF_ENOMEM;
        g->n_until++;
    }
    return 0;
}

/* Arguments of generate_until; the first of the names of max_gen_toks counts. */
static int read_gen(lf_tasks *t, json_t *gen, eval_gen *g, lf_err *err)
{
    static const char *const known[] = {"max_gen_toks",          "max_new_tokens", "max_tokens",
                                        "max_completion_tokens", "until",          "do_sample",
                                        "temperature",           "top_p",          "top_k"};
    const char *key;
    json_t *v;
    json_object_foreach(gen, key, v)
    {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(known[i], key) != 0)
            i++;
        if (i == sizeof known / sizeof *known)
            return lf_fail(err, LF_ENOTSUP, "the generation argument '%s' is not supported", key);
    }
    *g = (eval_gen){.max_tokens = -1, .repeats = 1, .params = LF_SAMPLE_DEFAULTS};
    int rc = read_until(t, gen, g, err);
    for (size_t i = 0; i < 4 && rc == 0 && g->max_tokens < 0; i++)
        rc = lf_json_get_i64(&g->max_tokens, gen, known[i], false, "gen", err);
    if (g->max_tokens < 0)
        g->max_tokens = DEFAULT_MAX_TOKENS;
    g->params.temperature = 0;
    if (rc == 0)
        rc = lf_json_get_f64(&g->params.temperature, gen, "temperature", false, "gen", err);
    if (rc == 0)
        rc = lf_json_get_f64(&g->params.top_p, gen, "top_p", false, "gen", err);
    if (rc == 0)
        rc = lf_json_get_i64(&g->params.top_k, gen, "top_k", false, "gen", err);
    if (json_is_false(json_object_get(gen, "do_sample")))
        g->params.temperature = 0;
    return rc != 0 ? rc : lf_sample_check(&g->params, err);
}

/* The ids of a prompt, with the end of a context that is too long; pictures are never cut. */
static int read_ids(lf_tasks *t, eval_context *c, eval_gen *g, lf_err *err)
{
    lf_ids ids = {0};
    int rc = t->pairs ? lf_tasks_encode_source(t, c->text.data, c->text.len, &ids, err)
                      : lf_tasks_encode(t, c->text.data, c->text.len, true, &ids, err);
    if (rc == 0 && ids.n == 0)
        rc = lf_fail(err, LF_EINVAL, "the context is empty");
    const size_t most = (size_t)(t->max_context - (t->pairs ? 0 : g->max_tokens)),
                 cut = ids.n > most ? ids.n - most : 0;
    if (rc == 0 && c->sights && cut > 0)
        rc = lf_fail(err, LF_EINVAL,
                     "a context with pictures is not cut, and it is %zu tokens longer than the "
                     "model reads before %lld that are generated: generate fewer, raise "
                     "max_context, or give smaller pictures",
                     cut, (long long)g->max_tokens);
    int32_t *v = rc != 0 ? NULL : lf_arena_alloc(t->arena, ids.n - cut, sizeof *v, err);
    if (rc == 0 && !v)
        rc = LF_ENOMEM;
    for (size_t i = 0; rc == 0 && i < ids.n - cut; i++)
        v[i] = (int32_t)ids.v[cut + i];
    g->prompt = v;
    g->n_prompt = ids.n - cut;
    t->n_truncated += cut > 0;
    lf_ids_fini(&ids);
    return rc != 0 ? rc : lf_tasks_place(t, c, g->prompt, g->n_prompt, &g->media, err);
}

static int add_gen(lf_tasks *t, eval_context *c, json_t *o, lf_err *err)
{
    eval_gen g;
    int64_t repeats = 1;
    int rc = read_gen(t, json_object_get(o, "gen"), &g, err);
    if (rc == 0)
        rc = lf_json_get_i64(&repeats, o, "repeats", false, "request", err);
    if (rc == 0 && (repeats < 1 || repeats > 100000))
        rc = lf_fail(err, LF_EFORMAT, "\"repeats\" must be from 1 to 100000");
    if (rc == 0 && g.max_tokens >= t->max_context)
        rc = lf_fail(
            err, LF_EINVAL,
            "%lld tokens are to be generated, the context is %lld with room for one before them",
            (long long)g.max_tokens, (long long)t->max_context);
    if (rc == 0)
        rc = read_ids(t, c, &g, err);
    g.repeats = repeats;
    if (rc == 0 && (rc = lf_grow(&t->gens, &t->cap_gens, t->n_gens, sizeof *t->gens, err)) == 0)
        t->gens[t->n_gens++] = g;
    return rc;
}

/* Samples have the text that messages became, and its hash, as those of the harness. */
static int note_rendered(json_t *o, const eval_context *c, lf_err *err)
{
    char hex[LF_HASH_HEX];
    uint8_t digest[LF_HASH_BYTES];
    json_t *doc = json_object_get(o, "doc");
    int rc = lf_hash_buf(digest, c->rendered.data, c->rendered.len, err);
    if (rc == 0 && json_object_set_new(o, "ctx", json_stringn(c->rendered.data, c->rendered.len)))
        rc = lf_fail(err, LF_EFORMAT, "the chat template wrote what is no UTF-8");
    if (rc != 0 || !doc)
        return rc;
    lf_hash_hex(hex, digest);
    return json_object_set_new(doc, "prompt_hash", json_string(hex))
               ? lf_fail(err, LF_ENOMEM, "out of memory")
               : 0;
}

static int add_request(reader *r, json_t *o, lf_err *err)
{
    lf_tasks *t = r->t;
    const char *cont = NULL;
    eval_context *c;
    size_t tokens;
    int type = lf_output_type_of(&t->tasks[t->n_tasks - 1]);
    int rc = lf_tasks_context(t, o, "ctx", &c, err);
    if (rc == 0 && (type == LF_OUT_CHOICE || type == LF_OUT_LL) &&
        (rc = lf_json_get_str(&cont, o, "cont", true, "request", err)) == 0)
        rc = lf_tasks_add_continuation(t, c, cont, json_string_length(json_object_get(o, "cont")),
                                       err);
    if (rc == 0 && type == LF_OUT_ROLLING && c->sights)
        rc = lf_fail(err, LF_ENOTSUP, "loglikelihood_rolling goes without pictures");
    if (rc == 0 && type == LF_OUT_ROLLING)
        rc = lf_tasks_add_windows(t, c->text.data, c->text.len, &tokens, err);
    if (rc == 0 && type == LF_OUT_GENERATE)
        rc = add_gen(t, c, o, err);
    return rc == 0 && lf_tasks_given(o, "messages") ? note_rendered(o, c, err) : rc;
}

static int open_doc(reader *r, int64_t id, json_t *o, lf_err *err)
{
    char key[24];
    lf_tasks *t = r->t;
    int rc = close_doc(r, err);
    snprintf(key, sizeof key, "%lld", (long long)id);
    if (rc == 0 && json_object_get(r->seen, key))
        rc = lf_fail(err, LF_EFORMAT,
                     "document %lld of '%s' is given twice, or its requests do not stand together",
                     (long long)id, t->tasks[t->n_tasks - 1].name);
    if (rc == 0 && !json_is_object(json_object_get(o, "doc")))
        rc = lf_fail(err, LF_EFORMAT, "the first request of document %lld has no \"doc\"",
                     (long long)id);
    if (rc != 0)
        return rc;
    json_object_set_new(r->seen, key, json_true());
    r->skipping = r->limit > 0 && (int64_t)t->tasks[t->n_tasks - 1].n_docs >= r->limit;
    if (r->skipping)
        return 0;
    rc = lf_tasks_begin_doc(t, &r->doc, err);
    if (rc != 0)
        return rc;
    r->doc->id = id;
    r->doc->requests = json_array();
    r->open = true;
    return r->doc->requests ? 0 : lf_fail(err, LF_ENOMEM, "out of memory");
}

static int read_request(reader *r, json_t *o, const char *task, lf_err *err)
{
    lf_tasks *t = r->t;
    const char *kind;
    int64_t id = -1, idx = -1;
    if (!r->in_task || strcmp(t->tasks[t->n_tasks - 1].name, task) != 0)
        return lf_fail(err, LF_EFORMAT,
                       "a request of '%s' does not stand behind the header of that task", task);
    int type = lf_output_type_of(&t->tasks[t->n_tasks - 1]);
    int rc = lf_json_get_str(&kind, o, "kind", true, "request", err);
    if (rc == 0)
        rc = lf_json_get_i64(&id, o, "doc_id", true, "request", err);
    if (rc == 0)
        rc = lf_json_get_i64(&idx, o, "idx", true, "request", err);
    if (rc == 0 && strcmp(kind, kinds[type]) != 0)
        rc = lf_fail(err, LF_EFORMAT, "requests of '%s' are of kind %s, not '%s'", task,
                     kinds[type], kind);
    if (rc == 0 && idx == 0)
        rc = open_doc(r, id, o, err);
    if (rc == 0 && r->skipping)
        return 0;
    if (rc == 0 && (!r->open || t->docs[t->n_docs].id != id ||
                    (int64_t)json_array_size(t->docs[t->n_docs].requests) != idx))
        rc =
            lf_fail(err, LF_EFORMAT, "request %lld of document %lld is given twice or out of order",
                    (long long)idx, (long long)id);
    if (rc == 0)
        rc = add_request(r, o, err);
    return rc != 0 ? rc
           : json_array_append(t->docs[t->n_docs].requests, o)
               ? lf_fail(err, LF_ENOMEM, "out of memory")
               : 0;
}

/* ---- headers, groups, files ------------------------------------------------------------------ */

static int read_header(reader *r, json_t *o, lf_err *err)
{
    const char *name;
    lf_tasks *t = r->t;
    int rc = close_doc(r, err);
    if (rc == 0)
        rc = lf_json_get_str(&name, o, "task", true, "header", err);
    if (rc == 0 && lf_output_type_of(&(eval_task){.head = o}) < 0)
        rc = lf_fail(err, LF_EFORMAT,
                     "\"output_type\" of '%s' must be multiple_choice, loglikelihood, "
                     "loglikelihood_rolling or "
                     "generate_until",
                     name);
    if (rc == 0)
        rc = lf_requests_check_head(o, err);
    if (rc == 0)
        rc = lf_tasks_begin(t, LF_TASK_REQUESTS, name, r->path, r->sha256, err);
    if (rc != 0)
        return rc;
    t->tasks[t->n_tasks - 1].head = json_incref(o);
    json_object_clear(r->seen);
    r->in_task = true;
    return 0;
}

static int read_group(reader *r, json_t *o, lf_err *err)
{
    json_t *list;
    const char *name;
    int rc = lf_json_get_str(&name, o, "group", true, "group", err);
    if (rc == 0)
        rc = lf_json_get_array(&list, o, "tasks", true, "group", err);
    if (rc == 0)
        rc = lf_json_get_array(&list, o, "metrics", true, "group", err);
    if (rc == 0 && !r->t->groups && !(r->t->groups = json_array()))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc                                   ? rc
           : json_array_append(r->t->groups, o) ? lf_fail(err, LF_ENOMEM, "out of memory")
                                                : 0;
}

static int read_object(reader *r, json_t *o, lf_err *err)
{
    const char *task;
    if (json_object_get(o, "group"))
        return read_group(r, o, err);
    if (json_object_get(o, "output_type"))
        return read_header(r, o, err);
    int rc = lf_json_get_str(&task, o, "task", true, "request", err);
    return rc != 0 ? rc : read_request(r, o, task, err);
}

/* Every line of a file through read; the last document is closed. */
static int read_file(reader *r,
                     int (*read)(reader *r, json_t *o, size_t line, void *arg, lf_err *err),
                     void *arg, lf_err *err)
{
    lf_rowfile f = {0};
    size_t number = 0, docs = r->t->n_docs;
    int rc = lf_rowfile_open_pictures(&f, r->path, err);
    for (int more = 1; rc == 0 && more == 1;) {
        json_t *o = NULL;
        more = lf_rowfile_next(&f, err);
        rc = more == 1 ? lf_rowfile_object(&f, &o, 0, err) : more;
        number = more == 1 ? (size_t)f.record.line : number;
        if (o && (rc = read(r, o, number, arg, err)) < 0)
            lf_err_prefix(err, "%s", f.where);
        json_decref(o);
    }
    if (rc == 0 && (rc = close_doc(r, err)))
        rc = lf_err_prefix(err, "%s:%zu", r->path, number);
    if (rc == 0 && r->t->n_docs == docs)
        rc = lf_fail(err, LF_EINVAL, "%s holds no documents", r->path);
    if (rc != 0 && r->open) {
        json_decref(r->t->docs[r->t->n_docs].requests);
        r->t->docs[r->t->n_docs].requests = NULL;
    }
    lf_rowfile_close(&f);
    return rc;
}

static int read_any(reader *r, json_t *o, size_t line, void *arg, lf_err *err)
{
    (void)line;
    (void)arg;
    return read_object(r, o, err);
}

static int open_reader(reader *r, lf_tasks *t, const char *path, int64_t limit, lf_err *err)
{
    *r = (reader){.t = t, .path = path, .limit = limit};
    if (!t->tok)
        return lf_fail(err, LF_EINVAL, "%s: requests need a tokenizer", path);
    int rc = lf_tree_hash_file(r->sha256, NULL, path, err);
    if (rc == 0 && !(r->seen = json_object()))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc;
}

int lf_tasks_add_requests(lf_tasks *t, const char *path, int64_t limit, lf_err *err)
{
    reader r;
    int rc = open_reader(&r, t, path, limit, err);
    if (rc == 0)
        rc = read_file(&r, read_any, NULL, err);
    json_decref(r.seen);
    return rc;
}

/* ---- the built-in task that generates -------------------------------------------------------- */

static const char number[] = "(-?[$0-9.,]{2,})|(-?[0-9]+)"; /* gsm8k's flexible-extract */

/* The targets of a document as they are compared: texts, or the last number of each. Owned. */
static json_t *targets_of(json_t *target, const struct lf_task_generate *g, lf_err *err)
{
    json_t *list = json_is_array(target) ? json_incref(target) : json_pack("[O]", target),
           *out = NULL;
    json_t *steps = json_pack("[{s:s,s:s,s:i}]", "function", "regex", "regex_pattern", number,
                              "group_select", -1);
    bool texts = json_array_size(list) > 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        texts = texts && json_is_string(json_array_get(list, i));
    lf_filter *f = texts && g->match == LF_MATCH_NUMBER ? lf_filter_create(steps, err) : NULL;
    if (!texts)
        lf_fail(err, LF_EFORMAT, "document: \"target\" must be a text or a list of texts");
    else if (g->match == LF_MATCH_NUMBER)
        out = f ? lf_filter_apply(f, list, err) : NULL;
    else
        out = json_incref(list);
    lf_filter_destroy(f);
    json_decref(list);
    json_decref(steps);
    return out;
}

static json_t *generate_head(const char *name, const struct lf_task_generate *g)
{
    json_t *steps =
        g->match == LF_MATCH_EXACT
            ? json_pack("[{s:s},{s:s}]", "function", "remove_whitespace", "function", "take_first")
            : json_pack("[{s:s,s:s,s:i},{s:s}]", "function", "regex", "regex_pattern",
                        g->match == LF_MATCH_NUMBER ? number : g->regex, "group_select", -1,
                        "function", "take_first");
    json_t *kwargs = g->match == LF_MATCH_NUMBER
                         ? json_pack("{s:[s,s,s]}", "regexes_to_ignore", ",", "\\$", "\\.$")
                         : json_object();
    return json_pack("{s:s,s:s,s:i,s:i,s:[{s:s,s:s,s:b,s:o}],s:[{s:s,s:o}],s:b}", "task", name,
                     "output_type", "generate_until", "version", 1, "n_shot", 0, "metrics",
                     "metric", "exact_match", "aggregation", "mean", "higher_is_better", 1,
                     "kwargs", kwargs, "filters", "name", "none", "steps", steps, "multiple_target",
                     1);
}

/* A document as samples show it: without the bytes of pictures. */
static json_t *shown(json_t *o)
{
    static const char *const names[] = {"image", "images"};
    json_t *copy = json_copy(o);
    for (size_t i = 0; copy && i < sizeof names / sizeof *names; i++) {
        json_t *v = json_object_get(o, names[i]);
        if (json_is_object(v) || json_is_object(json_array_get(v, 0)))
            json_object_del(copy, names[i]);
    }
    return copy;
}

/* The request that a document stands for. */
static json_t *request_of(json_t *o, const struct lf_task_generate *g, json_t *target,
                          const char *task, json_int_t id)
{
    json_t *until = json_array();
    for (size_t i = 0; i < g->n_until; i++)
        json_array_append_new(until, json_string(g->until[i]));
    json_t *q = json_pack("{s:s,s:I,s:i,s:s,s:{s:o,s:I},s:{s:O,s:o}}", "task", task, "doc_id", id,
                          "idx", 0, "kind", "generate_until", "gen", "until", until, "max_gen_toks",
                          (json_int_t)g->max_tokens, "doc", "target", target, "doc", shown(o));
    static const char *const members[][2] = {
        {"context", "ctx"}, {"messages", "messages"}, {"image", "image"}, {"images", "images"}};
    for (size_t i = 0; q && i < sizeof members / sizeof *members; i++)
        if (lf_tasks_given(o, members[i][0]))
            json_object_set(q, members[i][1], lf_tasks_given(o, members[i][0]));
    return q;
}

static int read_document(reader *r, json_t *o, size_t line, void *arg, lf_err *err)
{
    const char *ctx, *task = r->t->tasks[r->t->n_tasks - 1].name;
    json_t *target = NULL, *q = NULL;
    (void)line;
    if (!json_is_object(o))
        return lf_fail(err, LF_EFORMAT, "a document is an object");
    const bool chat = lf_tasks_given(o, "messages") != NULL;
    int rc = lf_json_get_str(&ctx, o, "context", !chat, "document", err);
    if (rc == 0 && !(target = targets_of(json_object_get(o, "target"), arg, err)))
        rc = LF_EFORMAT;
    if (rc == 0 && !(q = request_of(o, arg, target, task, (json_int_t)json_object_size(r->seen))))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = read_request(r, q, task, err);
    json_decref(q);
    json_decref(target);
    return rc;
}

int lf_tasks_add_generate(lf_tasks *t, const char *path, const struct lf_task_generate *g,
                          int64_t limit, lf_err *err)
{
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path,
               *dot = strrchr(base, '.');
    reader r;
    int rc = open_reader(&r, t, path, limit, err);
    char *name = lf_strndup(base, dot && dot != base ? (size_t)(dot - base) : strlen(base), err);
    json_t *head = name ? generate_head(name, g) : NULL;
    if (rc == 0)
        rc = head ? read_header(&r, head, err) : lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = read_file(&r, read_document, (void *)(uintptr_t)g, err);
    json_decref(head);
    json_decref(r.seen);
    free(name);
    return rc;
}
