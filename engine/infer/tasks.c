/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents of evaluation tasks and their sample lines; results are in tasks_results.c.
 */
#include "engine/infer/tasks_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/utf8.h"
#include "engine/text/corpus/rowfile.h"
#include "engine/text/parquet/parquet.h"

#define TEXT_MAX ((size_t)1 << 30)

const char *lf_task_kind_name(enum lf_task_kind k)
{
    static const char *const names[] = {"rolling", "multiple_choice", "last_word", "requests"};
    return names[k];
}

lf_tasks *lf_tasks_create(const lf_tokenizer *tok, int32_t prefix, int64_t max_context, lf_err *err)
{
    lf_tasks *t = lf_calloc(1, sizeof *t, err);
    if (!t)
        return NULL;
    t->tok = tok;
    t->prefix = prefix;
    t->max_context = max_context;
    t->arena = lf_arena_create(err);
    if (tok && t->arena)
        t->state = lf_tok_state_create(tok, err);
    if (!t->arena || (tok && !t->state)) {
        lf_tasks_destroy(t);
        return NULL;
    }
    return t;
}

void lf_tasks_answer(lf_tasks *t, int64_t end)
{
    t->pairs = true;
    t->source_end = end;
}

void lf_tasks_destroy(lf_tasks *t)
{
    if (!t)
        return;
    lf_tok_state_destroy(t->state);
    lf_arena_destroy(t->arena);
    lf_tasks_forget(t);
    for (size_t i = 0; i < t->n_tasks; i++)
        json_decref(t->tasks[i].head);
    for (size_t i = 0; i < t->n_docs; i++)
        json_decref(t->docs[i].requests);
    json_decref(t->groups);
    free(t->tasks);
    free(t->docs);
    free(t->gens);
    free(t->items);
    free(t->media);
    free(t);
}

size_t lf_tasks_n_docs(const lf_tasks *t)
{
    return t->n_docs;
}

size_t lf_tasks_n_gens(const lf_tasks *t)
{
    return t->n_gens;
}

size_t lf_tasks_n_truncated(const lf_tasks *t)
{
    return t->n_truncated;
}

int64_t lf_tasks_doc_id(const lf_tasks *t, size_t index)
{
    const eval_doc *d = &t->docs[index];
    return d->requests ? d->id : (int64_t)(index - t->tasks[d->task].first_doc);
}

int lf_tasks_settle(lf_tasks *t, bool plain_rolling, const char *think_end, lf_err *err)
{
    t->plain_rolling = plain_rolling;
    return think_end && !(t->think_end = lf_arena_strdup(t->arena, think_end, err)) ? LF_ENOMEM : 0;
}

/* ---- building documents ---------------------------------------------------------------------- */

int lf_tasks_begin(lf_tasks *t, enum lf_task_kind kind, const char *name, const char *path,
                   const uint8_t sha256[LF_HASH_BYTES], lf_err *err)
{
    char hex[LF_HASH_HEX];
    lf_hash_hex(hex, sha256);
    for (size_t i = 0; i < t->n_tasks; i++)
        if (strcmp(t->tasks[i].name, name) == 0)
            return lf_fail(err, LF_EEXIST, "two tasks are called '%s' (%s and %s); rename a file",
                           name, t->tasks[i].path, path);
    int rc = lf_grow(&t->tasks, &t->cap_tasks, t->n_tasks, sizeof *t->tasks, err);
    if (rc != 0)
        return rc;
    eval_task *k = &t->tasks[t->n_tasks];
    *k = (eval_task){.kind = kind,
                     .name = lf_arena_strdup(t->arena, name, err),
                     .path = lf_arena_strdup(t->arena, path, err),
                     .sha256 = lf_arena_strdup(t->arena, hex, err),
                     .first_doc = t->n_docs};
    const char *slash = strrchr(path, '/');
    t->dir = slash ? lf_arena_printf(t->arena, err, "%.*s", (int)(slash - path), path) : NULL;
    lf_tasks_forget(t); /* its pictures have other paths here */
    if ((slash && !t->dir) || !k->name || !k->path || !k->sha256)
        return LF_ENOMEM;
    t->n_tasks++;
    return 0;
}

int lf_tasks_begin_doc(lf_tasks *t, eval_doc **out, lf_err *err)
{
    int rc = lf_grow(&t->docs, &t->cap_docs, t->n_docs, sizeof *t->docs, err);
    if (rc != 0)
        return rc;
    *out = &t->docs[t->n_docs];
    **out = (eval_doc){.task = t->n_tasks - 1, .first_item = t->n_items, .first_gen = t->n_gens};
    return 0;
}

void lf_tasks_end_doc(lf_tasks *t)
{
    t->docs[t->n_docs].n_items = t->n_items - t->docs[t->n_docs].first_item;
    t->docs[t->n_docs].n_gens = t->n_gens - t->docs[t->n_docs].first_gen;
    t->n_docs++;
    t->tasks[t->n_tasks - 1].n_docs++;
}

static int add_choice(lf_tasks *t, json_t *o, lf_err *err)
{
    eval_context *ctx;
    json_t *choices, *e;
    int64_t gold;
    size_t i;
    eval_doc *d;
    int rc = lf_tasks_context(t, o, "context", &ctx, err);
    if (rc == 0)
        rc = lf_json_get_array(&choices, o, "choices", true, "document", err);
    if (rc == 0)
        rc = lf_json_get_i64(&gold, o, "gold", true, "document", err);
    if (rc == 0 &&
        (json_array_size(choices) < 2 || gold < 0 || gold >= (int64_t)json_array_size(choices)))
        rc = lf_fail(err, LF_EINVAL, "'gold' must be the index of one of at least two 'choices'");
    if (rc == 0)
        rc = lf_tasks_begin_doc(t, &d, err);
    if (rc != 0)
        return rc;
    size_t n = json_array_size(choices);
    double *chars = lf_arena_alloc(t->arena, n, sizeof *chars, err),
           *bytes = lf_arena_alloc(t->arena, n, sizeof *bytes, err);
    if (!chars || !bytes)
        return LF_ENOMEM;
    d->gold = (size_t)gold;
    d->choice_chars = chars;
    d->choice_bytes = bytes;
    json_array_foreach(choices, i, e)
    {
        if (!json_is_string(e) || json_string_length(e) == 0)
            return lf_fail(err, LF_EINVAL, "choice %zu is not a text", i);
        lf_buf cont;
        lf_buf_init(&cont);
        lf_buf_addc(&cont, ' ');
        lf_buf_add(&cont, json_string_value(e), json_string_length(e));
        rc = lf_buf_check(&cont, err);
        if (rc == 0)
            rc = lf_tasks_add_continuation(t, ctx, cont.data, cont.len, err);
        lf_buf_fini(&cont);
        if (rc != 0)
            return rc;
        chars[i] = (double)lf_count_chars(json_string_value(e), json_string_length(e));
        bytes[i] = (double)json_string_length(e);
    }
    lf_tasks_end_doc(t);
    return 0;
}

static int add_last_word(lf_tasks *t, json_t *o, lf_err *err)
{
    const char *text;
    eval_doc *d;
    int rc = lf_json_get_str(&text, o, "text", true, "document", err);
    if (rc != 0)
        return rc;
    size_t len = strlen(text);
    const char *space = strrchr(text, ' ');
    if (!space || space == text || space[1] == 0)
        return lf_fail(err, LF_EINVAL, "'text' must hold a word behind a space");
    const size_t strip = lf_rstrip_len(text, (size_t)(space - text));
    eval_context ctx = {.of = NULL};
    lf_buf_init(&ctx.text);
    lf_buf_init(&ctx.tail);
    lf_buf_add(&ctx.text, text, strip);
    lf_buf_add(&ctx.tail, text + strip, (size_t)(space - text) - strip);
    rc = lf_buf_check(&ctx.text, err);
    if (rc == 0)
        rc = lf_buf_check(&ctx.tail, err);
    if (rc == 0)
        rc = lf_tasks_begin_doc(t, &d, err);
    if (rc == 0)
        rc = lf_tasks_add_continuation(t, &ctx, space, len - (size_t)(space - text), err);
    lf_buf_fini(&ctx.text);
    lf_buf_fini(&ctx.tail);
    if (rc == 0)
        lf_tasks_end_doc(t);
    return rc;
}

static int add_row(lf_tasks *t, enum lf_task_kind kind, json_t *o, lf_err *err)
{
    const char *text;
    if (kind == LF_TASK_CHOICE)
        return add_choice(t, o, err);
    if (kind == LF_TASK_LAST_WORD)
        return add_last_word(t, o, err);
    int rc = lf_json_get_str(&text, o, "text", true, "document", err);
    return rc < 0 ? rc : lf_tasks_add_rolling_text(t, text, strlen(text), err);
}

static int add_rows(lf_tasks *t, enum lf_task_kind kind, const char *path, int64_t limit,
                    lf_err *err)
{
    lf_rowfile f = {0};
    int64_t docs = 0;
    int rc = lf_rowfile_open_pictures(&f, path, err), more = 1;
    while (rc == 0 && (limit <= 0 || docs < limit) && (more = lf_rowfile_next(&f, err)) == 1) {
        json_t *o = NULL;
        rc = lf_rowfile_object(&f, &o, 0, err);
        if (rc == 0 && (rc = add_row(t, kind, o, err)) < 0)
            lf_err_prefix(err, "%s", f.where);
        json_decref(o);
        docs++;
    }
    rc = more < 0 ? more : rc;
    lf_rowfile_close(&f);
    return rc == 0 && docs == 0 ? lf_fail(err, LF_EINVAL, "%s holds no documents", path) : rc;
}

/* Is a file whose words are to be predicted one of rows? Else it is one text. */
static int holds_rows(const char *path, bool *rows, lf_err *err)
{
    *rows = lf_str_has_suffix(path, ".jsonl");
    return *rows ? 0 : lf_parquet_is(rows, path, err);
}

int lf_tasks_add_file(lf_tasks *t, enum lf_task_kind kind, const char *path, int64_t limit,
                      lf_err *err)
{
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    const char *dot = strrchr(base, '.');
    char *name = lf_strndup(base, dot && dot != base ? (size_t)(dot - base) : strlen(base), err);
    uint8_t sha256[LF_HASH_BYTES];
    int rc = name ? lf_tree_hash_file(sha256, NULL, path, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_tasks_begin(t, kind, name, path, sha256, err);
    free(name);
    if (rc != 0)
        return rc;
    if (kind == LF_TASK_REQUESTS)
        return lf_fail(err, LF_EINVAL, "%s: requests are read by lf_tasks_add_requests", path);
    bool rows = kind != LF_TASK_ROLLING;
    if (!rows && (rc = holds_rows(path, &rows, err)) < 0)
        return rc;
    if (rows)
        return add_rows(t, kind, path, limit, err);
    lf_buf text;
    lf_buf_init(&text);
    rc = lf_io_read_file(path, TEXT_MAX, &text, err);
    if (rc == 0 && lf_utf8_check(text.data, text.len) != text.len)
        rc = lf_fail(err, LF_EFORMAT, "%s: byte %zu is not valid UTF-8", path,
                     lf_utf8_check(text.data, text.len));
    if (rc == 0)
        rc = lf_tasks_add_rolling_text(t, text.data + lf_utf8_bom(text.data, text.len),
                                       text.len - lf_utf8_bom(text.data, text.len), err);
    lf_buf_fini(&text);
    return rc;
}

/* ---- shards ---------------------------------------------------------------------------------- */

/* A document given as tokens, v[0] the prefix; media: NULL, it has no pictures. */
struct doc_tokens {
    const int32_t *v;
    size_t n;     /* without the prefix */
    size_t first; /* that is scored, at least 1 */
    const struct lf_gen_media *media;
};

/* Its words and bytes that are scored; special tokens and pictures are no text. */
static int measure_tokens(lf_tasks *t, const struct doc_tokens *x, double *words, double *bytes,
                          lf_err *err)
{
    lf_buf text;
    *words = *bytes = 0;
    if (!t->tok)
        return 0;
    lf_buf_init(&text);
    int rc = 0;
    for (size_t i = x->first; rc == 0 && i <= x->n; i++) {
        const uint8_t *b;
        size_t len;
        if (!lf_tokenizer_token(t->tok, (uint32_t)x->v[i], &b, &len))
            rc = lf_fail(err, LF_EINVAL,
                         "token %d is not in the tokenizer: it is not the one of the shards",
                         (int)x->v[i]);
        else if (!lf_tokenizer_is_special(t->tok, (uint32_t)x->v[i]) &&
                 !lf_tasks_is_picture(x->media, i))
            lf_buf_add(&text, b, len);
    }
    if (rc == 0)
        rc = lf_buf_check(&text, err);
    *words = (double)lf_count_words(text.data, text.len);
    *bytes = (double)text.len;
    lf_buf_fini(&text);
    return rc;
}

/* Adds a document with pictures, as one item that ends with the last token that is scored. */
static int add_seen(lf_tasks *t, const struct doc_tokens *x, double words, double bytes,
                    lf_err *err)
{
    eval_doc *d;
    size_t end = x->n + 1;
    while (end > x->first && lf_tasks_is_picture(x->media, end - 1))
        end--;
    if (x->n > (size_t)t->max_context)
        return lf_fail(err, LF_EINVAL,
                       "it has %zu tokens with its pictures and is not cut, and the model reads "
                       "%lld: raise max_context, or leave it out (max_length of tokenize)",
                       x->n, (long long)t->max_context);
    int rc = lf_tasks_begin_doc(t, &d, err);
    if (rc == 0 && end > x->first && (rc = lf_tasks_add_item(t, x->v, end, x->first, err)) == 0)
        t->media[t->n_items - 1] = x->media;
    if (rc != 0)
        return rc;
    d->words = words;
    d->bytes = bytes;
    for (size_t i = x->first; i < end; i++)
        d->tokens += !lf_tasks_is_picture(x->media, i);
    lf_tasks_end_doc(t);
    return 0;
}

/* Of a model whose prompts see each other: the prompt of a document with pictures is what stands
 * before its first trained token, as in training, and nothing stands before that. */
static int find_prompt(const struct lf_task_shards *s, uint64_t doc, struct doc_tokens *x,
                       lf_err *err)
{
    x->v++;
    x->n--;
    while (x->first <= x->n &&
           (!lf_shardset_trained(s->set, doc, x->first) || lf_tasks_is_picture(x->media, x->first)))
        x->first++;
    return x->first <= x->n
               ? 0
               : lf_fail(err, LF_EINVAL,
                         "no token behind the first is trained, and of this model, in which the "
                         "tokens of a prompt see each other, only what follows a prompt is scored");
}

/* The pictures of a document. */
static int look_at(lf_tasks *t, const struct lf_task_shards *s, uint64_t doc, struct doc_tokens *x,
                   lf_err *err)
{
    const bool prompts = s->prompts && lf_shardset_pictures(s->set, doc) > 0;
    const lf_gen_job job = {.prompt = x->v + prompts, .n_prompt = x->n + 1 - prompts};
    const int rc = s->sight(s->arg, doc, &job, t->arena, &x->media, err);
    return rc == 0 && prompts ? find_prompt(s, doc, x, err) : rc;
}

static int add_shard_doc(lf_tasks *t, const struct lf_task_shards *s, uint64_t doc, int32_t prefix,
                         lf_err *err)
{
    const size_t n = (size_t)lf_shardset_doc_len(s->set, doc);
    struct doc_tokens x = {.n = n, .first = 1};
    double words, bytes;
    if (n == 0)
        return 0;
    int32_t *v = lf_arena_alloc(t->arena, n + 1, sizeof *v, err);
    int rc = v ? lf_shardset_read(s->set, doc, 0, n, v + 1, err) : LF_ENOMEM;
    if (rc != 0)
        return rc;
    v[0] = prefix;
    x.v = v;
    if (s->sight)
        rc = look_at(t, s, doc, &x, err);
    if (rc == 0)
        rc = measure_tokens(t, &x, &words, &bytes, err);
    if (rc == 0)
        rc = x.media ? add_seen(t, &x, words, bytes, err)
                     : lf_tasks_add_rolling(t, v, n, words, bytes, err);
    return rc < 0 ? lf_err_prefix(err, "%s: document %llu", s->dir, (unsigned long long)doc) : 0;
}

int lf_tasks_add_shards(lf_tasks *t, const struct lf_task_shards *s, int64_t limit, lf_err *err)
{
    const lf_shard_info *info = lf_shardset_get_info(s->set);
    const int32_t prefix = t->prefix >= 0 ? t->prefix : (int32_t)info->eos_id;
    char name[64];
    if (t->tok && strcmp(info->tokenizer_sha256, lf_tokenizer_sha256(t->tok)) != 0)
        return lf_fail(err, LF_EINVAL, "%s was made with another tokenizer (%.12s, given %.12s)",
                       s->dir, info->tokenizer_sha256, lf_tokenizer_sha256(t->tok));
    if (prefix < 0)
        return lf_fail(err, LF_EINVAL,
                       "%s names no end-of-document token to put in front of a text; name a "
                       "tokenizer and a prefix",
                       s->dir);
    snprintf(name, sizeof name, t->n_shards ? "%.40s-%zu" : "%.40s", s->split, t->n_shards + 1);
    t->n_shards++;
    int rc = lf_tasks_begin(t, LF_TASK_ROLLING, name, s->dir, lf_shardset_id(s->set), err);
    for (uint64_t d = 0; rc == 0 && d < info->n_docs && (limit <= 0 || d < (uint64_t)limit); d++)
        rc = add_shard_doc(t, s, d, prefix, err);
    return rc;
}

int lf_tasks_check_line(const lf_tasks *t, size_t index, const char *line, size_t len, lf_err *err)
{
    const char *task = NULL;
    int64_t doc = -1;
    json_error_t je;
    json_t *o = json_loadb(line, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
                           &je); /* a text may hold any character */
    if (!o)
        return lf_fail(err, LF_EFORMAT, "%s", je.text);
    int rc = lf_json_get_str(&task, o, "task", true, "sample", err);
    if (rc == 0)
        rc = lf_json_get_i64(&doc, o, "doc_id", true, "sample", err);
    if (rc == 0) {
        const eval_task *k = index < t->n_docs ? &t->tasks[t->docs[index].task] : NULL;
        if (!k || strcmp(task, k->name) != 0 || doc != lf_tasks_doc_id(t, index))
            rc = lf_fail(err, LF_EFORMAT,
                         "document %lld of '%s' is not the one expected here: the file belongs to "
                         "another run",
                         (long long)doc, task);
    }
    json_decref(o);
    return rc;
}
