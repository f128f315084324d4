/* SPDX-License-Identifier: Apache-2.0
 *
 * What trainers and growers work on: a vocabulary that is looked up by text and grows, and words as
 * sequences of its ids.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/token/bpe.h"
#include "engine/text/vocab/train_priv.h"

int lf_vocab_init(lf_vocab *v, size_t room, lf_err *err)
{
    size_t slots = 1024;
    while (slots < 2 * room)
        slots *= 2;
    *v = (lf_vocab){.slots = lf_calloc(slots, sizeof(*v->slots), err)};
    v->mask = slots - 1;
    return v->slots ? 0 : LF_ENOMEM;
}

void lf_vocab_fini(lf_vocab *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->text[i]);
    free(v->text);
    free(v->slots);
    *v = (lf_vocab){0};
}

static size_t hash_text(const char *text)
{
    return (size_t)lf_bpe_hash((const uint8_t *)text, strlen(text));
}

int64_t lf_vocab_find(const lf_vocab *v, const char *text)
{
    for (size_t k = hash_text(text) & v->mask; v->slots[k]; k = (k + 1) & v->mask)
        if (strcmp(v->text[v->slots[k] - 1], text) == 0)
            return v->slots[k] - 1;
    return -1;
}

static void enter(lf_vocab *v, size_t id)
{
    size_t k = hash_text(v->text[id]) & v->mask;
    while (v->slots[k])
        k = (k + 1) & v->mask;
    v->slots[k] = (uint32_t)(id + 1);
}

static int rehash(lf_vocab *v, lf_err *err)
{
    size_t slots = (v->mask + 1) * 2;
    uint32_t *s = lf_calloc(slots, sizeof(*s), err);
    if (!s)
        return LF_ENOMEM;
    free(v->slots);
    v->slots = s;
    v->mask = slots - 1;
    for (size_t i = 0; i < v->n; i++)
        if (v->text[i])
            enter(v, i);
    return 0;
}

int lf_vocab_push(lf_vocab *v, const char *text, lf_err *err)
{
    int rc = v->n + 1 >= UINT32_MAX ? lf_fail(err, LF_EINVAL, "too many tokens") : 0;
    if (rc == 0)
        rc = lf_grow(&v->text, &v->cap, v->n, sizeof(*v->text), err);
    if (rc == 0 && (v->n + 1) * 2 > v->mask)
        rc = rehash(v, err);
    if (rc != 0)
        return rc;
    v->text[v->n] = text ? lf_strdup(text, err) : NULL;
    if (text && !v->text[v->n])
        return LF_ENOMEM;
    v->n++;
    if (text)
        enter(v, v->n - 1);
    return 0;
}

int64_t lf_vocab_add(lf_vocab *v, const char *text, lf_err *err)
{
    int64_t id = lf_vocab_find(v, text);
    if (id >= 0)
        return id;
    int rc = lf_vocab_push(v, text, err);
    return rc != 0 ? rc : (int64_t)v->n - 1;
}

int lf_merge_words_init(lf_merge_words *m, size_t n_words, size_t n_symbols, lf_err *err)
{
    m->n = n_words;
    m->sym = lf_malloc(n_symbols, sizeof(*m->sym), err);
    m->start = lf_malloc(n_words, sizeof(*m->start), err);
    m->len = lf_malloc(n_words, sizeof(*m->len), err);
    m->count = lf_malloc(n_words, sizeof(*m->count), err);
    return m->sym && m->start && m->len && m->count ? 0 : LF_ENOMEM;
}

void lf_merge_words_fini(lf_merge_words *m)
{
    free(m->sym);
    free(m->start);
    free(m->len);
    free(m->count);
    *m = (lf_merge_words){0};
}
