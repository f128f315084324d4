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
#include "engine/store/shard.h"

#define TEXT_MAX ((size_t)1 << 30)

const char *lf_task_kind_name(enum lf_task_kind k)
{
    static const char *const names[] = {"rolling", "multiple_choice", "last_word"};
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

void lf_tasks_destroy(lf_tasks *t)
{
    if (!t)
        return;
    lf_tok_state_destroy(t->state);
    lf_arena_destroy(t->arena);
    free(t->tasks);
    free(t->docs);
    free(t->items);
    free(t);
}

size_t lf_tasks_n_docs(const lf_tasks *t) { return t->n_docs; }

/* ---- building documents ------------------------------------------------------------------------------------------------------ */

static int begin_task(lf_tasks *t, enum lf_task_kind kind, const char *name, const char *path,
                      const uint8_t sha256[LF_HASH_BYTES], lf_err *err)
{
    char hex[LF_HASH_HEX];
    lf_hash_hex(hex, sha256);
    for (size_t i = 0; i < t->n_tasks; i++)
        if (strcmp(t->tasks[i].name, name) == 0)
            return lf_fail(err, LF_EEXIST, "two tasks are called '%s' (%s and %s); rename a file", name, t->tasks[i].path, path);
    int rc = lf_grow(&t->tasks, &t->cap_tasks, t->n_tasks, sizeof *t->tasks, err);
    if (rc)
        return rc;
    eval_task *k = &t->tasks[t->n_tasks];
    *k = (eval_task){.kind = kind,
                     .name = lf_arena_strdup(t->arena, name, err),
                     .path = lf_arena_strdup(t->arena, path, err),
                     .sha256 = lf_arena_strdup(t->arena, hex, err),
                     .first_doc = t->n_docs};
    if (!k->name || !k->path || !k->sha256)
        return LF_ENOMEM;
    t->n_tasks++;
    return 0;
}

static int begin_doc(lf_tasks *t, eval_doc **out, lf_err *err)
{
    int rc = lf_grow(&t->docs, &t->cap_docs, t->n_docs, sizeof *t->docs, err);
    if (rc)
        return rc;
    *out = &t->docs[t->n_docs];
    **out = (eval_doc){.task = t->n_tasks - 1, .first_item = t->n_items};
    return 0;
}

static void end_doc(lf_tasks *t)
{
    t->docs[t->n_docs].n_items = t->n_items - t->docs[t->n_docs].first_item;
    t->n_docs++;
    t->tasks[t->n_tasks - 1].n_docs++;
}

static int add_item(lf_tasks *t, const int32_t *tokens, size_t n, size_t first, lf_err *err)
{
    int rc = lf_grow(&t->items, &t->cap_items, t->n_items, sizeof *t->items, err);
    if (rc == 0)
        t->items[t->n_items++] = (lf_score_item){tokens, n, first};
    return rc;
}

/* Windows of a text whose ids (with the prefix in front: n + 1 of them) live in the arena. */
static int add_rolling(lf_tasks *t, const int32_t *with_prefix, size_t n, double words, double bytes, lf_err *err)
{
    eval_doc *d;
    int rc = begin_doc(t, &d, err);
    if (rc)
        return rc;
    d->tokens = (double)n;
    d->words = words;
    d->bytes = bytes;
    size_t k = lf_rolling_windows(n, (size_t)t->max_context, 1, NULL, 0);
    lf_window *w = lf_calloc(k + 1, sizeof *w, err);
    if (!w)
        return LF_ENOMEM;
    lf_rolling_windows(n, (size_t)t->max_context, 1, w, k);
    for (size_t i = 0; rc == 0 && i < k; i++)
        rc = add_item(t, with_prefix + w[i].from, w[i].to - w[i].from, w[i].to - w[i].from - w[i].score, err);
    free(w);
    if (rc == 0)
        end_doc(t);
    return rc;
}

static int encode(lf_tasks *t, const char *text, size_t len, unsigned flags, lf_ids *ids, lf_err *err)
{
    if (!t->state)
        return lf_fail(err, LF_EINVAL, "texts need a tokenizer");
    return lf_tokenizer_encode(t->state, text, len, flags, ids, NULL, err);
}

static int add_rolling_text(lf_tasks *t, const char *text, size_t len, lf_err *err)
{
    lf_ids ids = {0};
    int rc = encode(t, text, len, LF_TOK_TEMPLATE, &ids, err);
    int32_t *v = rc ? NULL : lf_arena_alloc(t->arena, ids.n + 1, sizeof *v, err);
    if (rc == 0 && !v)
        rc = LF_ENOMEM;
    if (rc == 0) {
        v[0] = t->prefix;
        for (size_t i = 0; i < ids.n; i++)
            v[i + 1] = (int32_t)ids.v[i];
        rc = add_rolling(t, v, ids.n, (double)lf_count_words(text, len), (double)len, err);
    }
    lf_ids_fini(&ids);
    return rc;
}

/* One continuation of a context. */
static int add_continuation(lf_tasks *t, const char *ctx, size_t ctx_len, const char *cont, size_t cont_len, lf_err *err)
{
    lf_buf whole;
    lf_ids all = {0}, head = {0};
    int32_t *v = NULL;
    lf_buf_init(&whole);
    size_t strip = lf_rstrip_len(ctx, ctx_len);
    unsigned flags = ctx_len > 0 ? LF_TOK_TEMPLATE : 0; /* behind an empty context stands the prefix, no BOS */
    lf_buf_add(&whole, ctx, ctx_len);
    lf_buf_add(&whole, cont, cont_len);
    int rc = lf_buf_check(&whole, err);
    if (rc == 0)
        rc = encode(t, whole.data, whole.len, flags, &all, err);
    if (rc == 0 && strip > 0)
        rc = encode(t, ctx, strip, flags, &head, err);
    if (rc == 0 && head.n >= all.n)
        rc = lf_fail(err, LF_EINVAL, "the continuation '%.*s' adds no token to its context", (int)(cont_len < 60 ? cont_len : 60), cont);
    if (rc == 0 && !(v = lf_arena_alloc(t->arena, all.n + 1, sizeof *v, err)))
        rc = LF_ENOMEM;
    if (rc == 0) {
        size_t n = all.n, first = head.n, most = (size_t)t->max_context + 1;
        v[0] = t->prefix;
        for (size_t i = 0; i < n; i++)
            v[i + 1] = (int32_t)all.v[i];
        /* With an empty context the prefix is the context, unless the continuation begins with it. */
        const int32_t *seq = v + 1;
        if (first == 0 && v[1] == t->prefix && n > 1) {
            first = 1;
        } else if (first == 0) {
            seq = v;
            n++;
            first = 1;
        }
        size_t cut = n > most ? n - most : 0;
        if (cut >= first)
            rc = lf_fail(err, LF_EINVAL, "a continuation of %zu tokens does not fit the context of %lld", n - first, (long long)t->max_context);
        else
            rc = add_item(t, seq + cut, n - cut, first - cut, err);
    }
    lf_ids_fini(&all);
    lf_ids_fini(&head);
    lf_buf_fini(&whole);
    return rc;
}

static int add_choice(lf_tasks *t, json_t *o, lf_err *err)
{
    const char *ctx;
    json_t *choices, *e;
    int64_t gold;
    size_t i;
    eval_doc *d;
    int rc = lf_json_get_str(&ctx, o, "context", true, "document", err);
    if (rc == 0)
        rc = lf_json_get_array(&choices, o, "choices", true, "document", err);
    if (rc == 0)
        rc = lf_json_get_i64(&gold, o, "gold", true, "document", err);
    if (rc == 0 && (json_array_size(choices) < 2 || gold < 0 || gold >= (int64_t)json_array_size(choices)))
        rc = lf_fail(err, LF_EINVAL, "'gold' must be the index of one of at least two 'choices'");
    if (rc == 0)
        rc = begin_doc(t, &d, err);
    if (rc)
        return rc;
    size_t n = json_array_size(choices);
    double *chars = lf_arena_alloc(t->arena, n, sizeof *chars, err), *bytes = lf_arena_alloc(t->arena, n, sizeof *bytes, err);
    if (!chars || !bytes)
        return LF_ENOMEM;
    d->gold = (size_t)gold;
    d->choice_chars = chars;
    d->choice_bytes = bytes;
    json_array_foreach(choices, i, e) {
        if (!json_is_string(e) || json_string_length(e) == 0)
            return lf_fail(err, LF_EINVAL, "choice %zu is not a text", i);
        lf_buf cont;
        lf_buf_init(&cont);
        lf_buf_addc(&cont, ' ');
        lf_buf_add(&cont, json_string_value(e), json_string_length(e));
        rc = lf_buf_check(&cont, err);
        if (rc == 0)
            rc = add_continuation(t, ctx, strlen(ctx), cont.data, cont.len, err);
        lf_buf_fini(&cont);
        if (rc)
            return rc;
        chars[i] = (double)lf_count_chars(json_string_value(e), json_string_length(e));
        bytes[i] = (double)json_string_length(e);
    }
    end_doc(t);
    return 0;
}

static int add_last_word(lf_tasks *t, json_t *o, lf_err *err)
{
    const char *text;
    eval_doc *d;
    int rc = lf_json_get_str(&text, o, "text", true, "document", err);
    if (rc)
        return rc;
    size_t len = strlen(text);
    const char *space = strrchr(text, ' ');
    if (!space || space == text || space[1] == 0)
        return lf_fail(err, LF_EINVAL, "'text' must hold a word behind a space");
    rc = begin_doc(t, &d, err);
    if (rc == 0)
        rc = add_continuation(t, text, (size_t)(space - text), space, len - (size_t)(space - text), err);
    if (rc == 0)
        end_doc(t);
    return rc;
}

static int add_json_line(lf_tasks *t, enum lf_task_kind kind, const char *line, size_t len, const char *where, lf_err *err)
{
    json_error_t je;
    const char *text;
    json_t *o = json_loadb(line, len, JSON_REJECT_DUPLICATES, &je);
    int rc = 0;
    if (!o)
        return lf_fail(err, LF_EFORMAT, "%s: %s", where, je.text);
    if (!json_is_object(o))
        rc = lf_fail(err, LF_EFORMAT, "a document is an object");
    else if (kind == LF_TASK_CHOICE)
        rc = add_choice(t, o, err);
    else if (kind == LF_TASK_LAST_WORD)
        rc = add_last_word(t, o, err);
    else if ((rc = lf_json_get_str(&text, o, "text", true, "document", err)) == 0)
        rc = add_rolling_text(t, text, strlen(text), err);
    json_decref(o);
    return rc ? lf_err_prefix(err, "%s", where) : 0;
}

static int add_lines(lf_tasks *t, enum lf_task_kind kind, const char *path, int64_t limit, lf_err *err)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return lf_fail_errno(err, "cannot read %s", path);
    char *line = NULL;
    size_t cap = 0, number = 0;
    ssize_t len;
    int64_t docs = 0;
    int rc = 0;
    while (rc == 0 && (limit <= 0 || docs < limit) && (len = getline(&line, &cap, f)) >= 0) {
        number++;
        if (strspn(line, " \t\r\n") == (size_t)len)
            continue;
        char *where = lf_arena_printf(t->arena, err, "%s:%zu", path, number);
        rc = where ? add_json_line(t, kind, line, (size_t)len, where, err) : LF_ENOMEM;
        docs++;
    }
    if (rc == 0 && ferror(f))
        rc = lf_fail_errno(err, "cannot read %s", path);
    free(line);
    fclose(f);
    if (rc == 0 && docs == 0)
        rc = lf_fail(err, LF_EINVAL, "%s holds no documents", path);
    return rc;
}

int lf_tasks_add_file(lf_tasks *t, enum lf_task_kind kind, const char *path, int64_t limit, lf_err *err)
{
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    const char *dot = strrchr(base, '.');
    char *name = lf_strndup(base, dot && dot != base ? (size_t)(dot - base) : strlen(base), err);
    uint8_t sha256[LF_HASH_BYTES];
    int rc = name ? lf_tree_hash_file(sha256, NULL, path, err) : LF_ENOMEM;
    if (rc == 0)
        rc = begin_task(t, kind, name, path, sha256, err);
    free(name);
    if (rc)
        return rc;
    if (kind != LF_TASK_ROLLING || lf_str_has_suffix(path, ".jsonl"))
        return add_lines(t, kind, path, limit, err);
    lf_buf text;
    lf_buf_init(&text);
    rc = lf_io_read_file(path, TEXT_MAX, &text, err);
    if (rc == 0 && lf_utf8_check(text.data, text.len) != text.len)
        rc = lf_fail(err, LF_EFORMAT, "%s: byte %zu is not valid UTF-8", path, lf_utf8_check(text.data, text.len));
    if (rc == 0)
        rc = add_rolling_text(t, text.data, text.len, err);
    lf_buf_fini(&text);
    return rc;
}

/* Words and bytes of a document given as tokens; special tokens are no text. */
static int measure_tokens(lf_tasks *t, const int32_t *ids, size_t n, double *words, double *bytes, lf_err *err)
{
    lf_buf text;
    *words = *bytes = 0;
    if (!t->tok)
        return 0;
    lf_buf_init(&text);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const uint8_t *b;
        size_t len;
        if (!lf_tokenizer_token(t->tok, (uint32_t)ids[i], &b, &len))
            rc = lf_fail(err, LF_EINVAL, "token %d is not in the tokenizer: it is not the one of the shards", (int)ids[i]);
        else if (!lf_tokenizer_is_special(t->tok, (uint32_t)ids[i]))
            lf_buf_add(&text, b, len);
    }
    if (rc == 0)
        rc = lf_buf_check(&text, err);
    *words = (double)lf_count_words(text.data, text.len);
    *bytes = (double)text.len;
    lf_buf_fini(&text);
    return rc;
}

int lf_tasks_add_shards(lf_tasks *t, const char *dir, const char *split, int64_t limit, lf_err *err)
{
    lf_shardset *s = NULL;
    int rc = lf_shardset_open(&s, dir, split, err);
    if (rc)
        return rc;
    const lf_shard_info *info = lf_shardset_get_info(s);
    if (t->tok && strcmp(info->tokenizer_sha256, lf_tokenizer_sha256(t->tok)) != 0)
        rc = lf_fail(err, LF_EINVAL, "%s was made with another tokenizer (%.12s, given %.12s)", dir, info->tokenizer_sha256,
                     lf_tokenizer_sha256(t->tok));
    int32_t prefix = t->prefix >= 0 ? t->prefix : (int32_t)info->eos_id;
    if (rc == 0 && prefix < 0)
        rc = lf_fail(err, LF_EINVAL, "%s names no end-of-document token to put in front of a text; name a tokenizer and a prefix", dir);
    char name[64];
    snprintf(name, sizeof name, t->n_shards ? "%.40s-%zu" : "%.40s", split, t->n_shards + 1);
    t->n_shards++;
    if (rc == 0)
        rc = begin_task(t, LF_TASK_ROLLING, name, dir, lf_shardset_id(s), err);
    for (uint64_t d = 0; rc == 0 && d < info->n_docs && (limit <= 0 || d < (uint64_t)limit); d++) {
        double words, bytes;
        uint64_t n = lf_shardset_doc_len(s, d);
        if (n == 0)
            continue;
        int32_t *v = lf_arena_alloc(t->arena, (size_t)n + 1, sizeof *v, err);
        rc = v ? lf_shardset_read(s, d, 0, (size_t)n, v + 1, err) : LF_ENOMEM;
        if (rc == 0)
            rc = measure_tokens(t, v + 1, (size_t)n, &words, &bytes, err);
        if (rc == 0) {
            v[0] = prefix;
            rc = add_rolling(t, v, (size_t)n, words, bytes, err);
        }
    }
    lf_shardset_close(s);
    return rc;
}

/* ---- sample lines ---------------------------------------------------------------------------------------------------------------- */

static void add_doubles(lf_buf *out, const char *name, const double *v, size_t n)
{
    lf_buf_addf(out, ",\"%s\":[", name);
    for (size_t i = 0; i < n; i++)
        lf_buf_addf(out, i ? ",%.17g" : "%.17g", v[i]);
    lf_buf_addc(out, ']');
}

static void add_line(const lf_tasks *t, size_t index, const lf_score *s, double *ll, lf_buf *out)
{
    const eval_doc *d = &t->docs[index];
    const eval_task *k = &t->tasks[d->task];
    double sum = 0;
    bool greedy = true;
    for (size_t i = 0; i < d->n_items; i++) {
        ll[i] = s[i].ll;
        sum += s[i].ll;
        greedy = greedy && s[i].greedy;
    }
    lf_buf_adds(out, "{\"task\":");
    lf_buf_add_json(out, k->name, strlen(k->name));
    lf_buf_addf(out, ",\"doc_id\":%zu", index - k->first_doc);
    if (k->kind == LF_TASK_ROLLING) {
        lf_buf_addf(out, ",\"ll\":%.17g,\"tokens\":%.0f,\"words\":%.0f,\"bytes\":%.0f", sum, d->tokens, d->words, d->bytes);
    } else if (k->kind == LF_TASK_LAST_WORD) {
        lf_buf_addf(out, ",\"ll\":%.17g,\"acc\":%d", sum, greedy);
    } else {
        add_doubles(out, "ll", ll, d->n_items);
        lf_buf_adds(out, ",\"greedy\":[");
        for (size_t i = 0; i < d->n_items; i++)
            lf_buf_addf(out, i ? ",%d" : "%d", s[i].greedy);
        lf_buf_addf(out, "],\"gold\":%zu,\"acc\":%d,\"acc_norm\":%d,\"acc_bytes\":%d", d->gold,
                    lf_best_choice(ll, NULL, d->n_items) == d->gold, lf_best_choice(ll, d->choice_chars, d->n_items) == d->gold,
                    lf_best_choice(ll, d->choice_bytes, d->n_items) == d->gold);
    }
    lf_buf_adds(out, "}\n");
}

int lf_tasks_score(lf_tasks *t, const lf_score_model *m, size_t first, size_t n, lf_buf *out, bool (*stop)(void), lf_err *err)
{
    if (n == 0)
        return 0;
    size_t from = t->docs[first].first_item, to = t->docs[first + n - 1].first_item + t->docs[first + n - 1].n_items;
    lf_score *s = lf_calloc(to - from + 1, sizeof *s, err);
    double *ll = lf_calloc(to - from + 1, sizeof *ll, err);
    int rc = s && ll ? lf_score_run(m, t->items + from, to - from, s, stop, NULL, NULL, err) : LF_ENOMEM;
    for (size_t i = first; rc == 0 && i < first + n; i++)
        add_line(t, i, s + (t->docs[i].first_item - from), ll, out);
    free(ll);
    free(s);
    return rc ? rc : lf_buf_check(out, err);
}

int lf_tasks_check_line(const lf_tasks *t, size_t index, const char *line, size_t len, lf_err *err)
{
    const char *task = NULL;
    int64_t doc = -1;
    json_t *o = lf_json_load_text(line, len, "sample", err);
    if (!o)
        return LF_EFORMAT;
    int rc = lf_json_get_str(&task, o, "task", true, "sample", err);
    if (rc == 0)
        rc = lf_json_get_i64(&doc, o, "doc_id", true, "sample", err);
    if (rc == 0) {
        const eval_task *k = index < t->n_docs ? &t->tasks[t->docs[index].task] : NULL;
        if (!k || strcmp(task, k->name) != 0 || doc != (int64_t)(index - k->first_doc))
            rc = lf_fail(err, LF_EFORMAT, "document %lld of '%s' is not the one expected here: the file belongs to another run",
                         (long long)doc, task);
    }
    json_decref(o);
    return rc;
}
