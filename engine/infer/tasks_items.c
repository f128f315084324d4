/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts to tokens that are scored, by the rules of lm-evaluation-harness; see tasks.h.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/infer/tasks_priv.h"

int lf_tasks_add_item(lf_tasks *t, const int32_t *tokens, size_t n, size_t first, lf_err *err)
{
    int rc = lf_grow(&t->items, &t->cap_items, t->n_items, sizeof *t->items, err);
    if (rc == 0)
        rc = lf_grow(&t->media, &t->cap_media, t->n_items, sizeof *t->media, err);
    if (rc != 0)
        return rc;
    t->media[t->n_items] = NULL;
    t->items[t->n_items++] = (lf_score_item){tokens, n, first};
    return 0;
}

/* Windows of a text whose ids (with the prefix in front: n + 1 of them) live in the arena. */
static int add_windows(lf_tasks *t, const int32_t *with_prefix, size_t n, lf_err *err)
{
    int rc = 0;
    if (t->pairs)
        return lf_fail(err, LF_ENOTSUP,
                       "an encoder-decoder answers a source, so it has no likelihood of a text "
                       "alone");
    size_t k = lf_rolling_windows(n, (size_t)t->max_context, 1, NULL, 0);
    lf_window *w = lf_calloc(k + 1, sizeof *w, err);
    if (!w)
        return LF_ENOMEM;
    lf_rolling_windows(n, (size_t)t->max_context, 1, w, k);
    for (size_t i = 0; rc == 0 && i < k; i++)
        rc = lf_tasks_add_item(t, with_prefix + w[i].from, w[i].to - w[i].from,
                               w[i].to - w[i].from - w[i].score, err);
    free(w);
    return rc;
}

int lf_tasks_add_rolling(lf_tasks *t, const int32_t *with_prefix, size_t n, double words,
                         double bytes, lf_err *err)
{
    eval_doc *d;
    int rc = lf_tasks_begin_doc(t, &d, err);
    if (rc != 0)
        return rc;
    d->tokens = (double)n;
    d->words = words;
    d->bytes = bytes;
    rc = add_windows(t, with_prefix, n, err);
    if (rc == 0)
        lf_tasks_end_doc(t);
    return rc;
}

/* Ids of a text. with_special: as the tokenizer does by default, but for a text that begins with
 * the prefix token already. */
int lf_tasks_encode(lf_tasks *t, const char *text, size_t len, bool with_special, lf_ids *ids,
                    lf_err *err)
{
    const uint8_t *prefix = NULL;
    size_t n = 0;
    if (!t->state)
        return lf_fail(err, LF_EINVAL, "texts need a tokenizer");
    if (t->prefix >= 0)
        (void)lf_tokenizer_text(t->tok, (uint32_t)t->prefix, &prefix, &n);
    if (n > 0 && len >= n && memcmp(text, prefix, n) == 0)
        with_special = false;
    return lf_tokenizer_encode(t->state, text, len, with_special ? LF_TOK_TEMPLATE : 0, ids, NULL,
                               err);
}

int lf_tasks_encode_source(lf_tasks *t, const char *text, size_t len, lf_ids *ids, lf_err *err)
{
    const int rc = lf_tasks_encode(t, text, len, true, ids, err);
    const bool ended = ids->n > 0 && ids->v[ids->n - 1] == t->source_end;
    return rc != 0 || t->source_end < 0 || ended ? rc
                                                 : lf_ids_add(ids, (uint32_t)t->source_end, err);
}

int lf_tasks_add_windows(lf_tasks *t, const char *text, size_t len, size_t *n_tokens, lf_err *err)
{
    lf_ids ids = {0};
    int rc = lf_tasks_encode(t, text, len, !t->plain_rolling, &ids, err);
    int32_t *v = rc != 0 ? NULL : lf_arena_alloc(t->arena, ids.n + 1, sizeof *v, err);
    if (rc == 0 && !v)
        rc = LF_ENOMEM;
    if (rc == 0) {
        v[0] = t->prefix;
        for (size_t i = 0; i < ids.n; i++)
            v[i + 1] = (int32_t)ids.v[i];
        *n_tokens = ids.n;
        rc = add_windows(t, v, ids.n, err);
    }
    lf_ids_fini(&ids);
    return rc;
}

int lf_tasks_add_rolling_text(lf_tasks *t, const char *text, size_t len, lf_err *err)
{
    eval_doc *d;
    size_t n = 0;
    int rc = lf_tasks_begin_doc(t, &d, err);
    if (rc == 0)
        rc = lf_tasks_add_windows(t, text, len, &n, err);
    if (rc != 0)
        return rc;
    d->tokens = (double)n;
    d->words = (double)lf_count_words(text, len);
    d->bytes = (double)len;
    lf_tasks_end_doc(t);
    return 0;
}

/* The ids of a context with its continuation, of which `first` belong to the context. */
static int add_scored(lf_tasks *t, eval_context *c, const lf_ids *all, size_t first, lf_err *err)
{
    size_t n = all->n, most = (size_t)t->max_context + 1;
    int32_t *v = lf_arena_alloc(t->arena, n + 1, sizeof *v, err);
    if (!v)
        return LF_ENOMEM;
    v[0] = t->prefix;
    for (size_t i = 0; i < n; i++)
        v[i + 1] = (int32_t)all->v[i];
    /* With an empty context the prefix is the context, unless the continuation begins with it. */
    const int32_t *seq = v + 1;
    if (first == 0 && v[1] == t->prefix && n > 1) {
        first = 1;
    } else if (first == 0) {
        seq = v;
        n++;
        first = 1;
    }
    const size_t cut = n > most ? n - most : 0;
    const struct lf_gen_media *media = NULL;
    t->n_truncated += cut > 0;
    if (cut >= first)
        return lf_fail(err, LF_EINVAL,
                       "a continuation of %zu tokens does not fit the context of %lld", n - first,
                       (long long)t->max_context);
    if (c->sights && cut > 0)
        return lf_fail(err, LF_EINVAL,
                       "a context with pictures is not cut, and it is %zu tokens longer than "
                       "the model reads: raise max_context, or give smaller pictures",
                       cut);
    int rc = lf_tasks_place(t, c, seq + cut, n - cut, &media, err);
    if (rc == 0)
        rc = lf_tasks_add_item(t, seq + cut, n - cut, first - cut, err);
    if (rc == 0)
        t->media[t->n_items - 1] = media;
    return rc;
}

/* For an encoder-decoder both are encoded alone; of a source that is too long the end is kept. */
static int add_answer(lf_tasks *t, eval_context *c, const lf_buf *text, const char *cont,
                      size_t cont_len, lf_err *err)
{
    const size_t most = (size_t)t->max_context;
    lf_ids head = {0}, tail = {0};
    int rc = c->sights ? lf_fail(err, LF_EINVAL, "an encoder-decoder sees no pictures") : 0;
    if (rc == 0 && text->len > 0)
        rc = lf_tasks_encode_source(t, text->data, text->len, &head, err);
    if (rc == 0)
        rc = lf_tasks_encode(t, cont, cont_len, false, &tail, err);
    if (rc == 0 && (tail.n == 0 || tail.n > most))
        rc = lf_fail(err, LF_EINVAL,
                     "the continuation '%.*s' has %zu tokens, and the decoder says 1 to %zu",
                     (int)(cont_len < 60 ? cont_len : 60), cont, tail.n, most);
    const size_t cut = head.n > most ? head.n - most : 0, n = head.n - cut;
    int32_t *v = rc == 0 ? lf_arena_alloc(t->arena, n + tail.n + 1, sizeof *v, err) : NULL;
    if (rc == 0 && !v)
        rc = LF_ENOMEM;
    size_t at = 0;
    if (rc == 0 && n == 0) /* an empty context is the prefix */
        v[at++] = t->prefix;
    for (size_t i = 0; i < n && rc == 0; i++)
        v[at++] = (int32_t)head.v[cut + i];
    const size_t first = at;
    for (size_t i = 0; i < tail.n && rc == 0; i++)
        v[at++] = (int32_t)tail.v[i];
    t->n_truncated += cut > 0;
    rc = rc != 0 ? rc : lf_tasks_add_item(t, v, at, first, err);
    lf_ids_fini(&head);
    lf_ids_fini(&tail);
    return rc;
}

int lf_tasks_add_continuation(lf_tasks *t, eval_context *c, const char *cont, size_t cont_len,
                              lf_err *err)
{
    lf_buf whole;
    lf_ids all = {0}, head = {0};
    lf_buf_init(&whole);
    const lf_buf *ctx = &c->text;
    /* behind an empty context stands the prefix, no BOS */
    const bool special = ctx->len + c->tail.len > 0;
    lf_buf_add(&whole, ctx->data, ctx->len);
    lf_buf_add(&whole, c->tail.data, c->tail.len);
    if (t->pairs) {
        int rc = lf_buf_check(&whole, err);
        rc = rc != 0 ? rc : add_answer(t, c, &whole, cont, cont_len, err);
        lf_buf_fini(&whole);
        return rc;
    }
    lf_buf_add(&whole, cont, cont_len);
    int rc = lf_buf_check(&whole, err);
    if (rc == 0)
        rc = lf_tasks_encode(t, whole.data, whole.len, special, &all, err);
    if (rc == 0 && ctx->len > 0)
        rc = lf_tasks_encode(t, ctx->data, ctx->len, special, &head, err);
    if (rc == 0 && head.n >= all.n)
        rc = lf_fail(err, LF_EINVAL, "the continuation '%.*s' adds no token to its context",
                     (int)(cont_len < 60 ? cont_len : 60), cont);
    if (rc == 0)
        rc = add_scored(t, c, &all, head.n, err);
    lf_ids_fini(&all);
    lf_ids_fini(&head);
    lf_buf_fini(&whole);
    return rc;
}
