/* SPDX-License-Identifier: Apache-2.0
 *
 * Word counts: open addressing over words kept in one growing block. See train_bpe.h.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/token/bpe.h"
#include "engine/text/vocab/train_priv.h"

#define WORD_MAX ((size_t)1 << 30)

lf_word_counts *lf_word_counts_create(lf_err *err)
{
    lf_word_counts *w = lf_calloc(1, sizeof(*w), err);
    if (!w)
        return NULL;
    w->mask = 4095;
    w->slots = lf_calloc(w->mask + 1, sizeof(*w->slots), err);
    if (!w->slots) {
        free(w);
        return NULL;
    }
    return w;
}

void lf_word_counts_destroy(lf_word_counts *w)
{
    if (!w)
        return;
    free(w->slots);
    free(w->v);
    free(w->text);
    free(w);
}

size_t lf_word_counts_size(const lf_word_counts *w)
{
    return w->n;
}

static int rehash(lf_word_counts *w, lf_err *err)
{
    size_t slots = (w->mask + 1) * 2;
    uint32_t *t = lf_calloc(slots, sizeof(*t), err);
    if (!t)
        return LF_ENOMEM;
    for (size_t i = 0; i < w->n; i++) {
        size_t k = (size_t)w->v[i].hash & (slots - 1);
        while (t[k])
            k = (k + 1) & (slots - 1);
        t[k] = (uint32_t)(i + 1);
    }
    free(w->slots);
    w->slots = t;
    w->mask = slots - 1;
    return 0;
}

int lf_word_counts_add(lf_word_counts *w, const uint8_t *p, size_t len, uint64_t count, lf_err *err)
{
    uint64_t h = lf_bpe_hash(p, len);
    size_t k = (size_t)h & w->mask;
    for (; w->slots[k]; k = (k + 1) & w->mask) {
        lf_word *x = &w->v[w->slots[k] - 1];
        if (x->hash == h && x->len == len && memcmp(w->text + x->at, p, len) == 0) {
            x->count += count;
            return 0;
        }
    }
    if (len > WORD_MAX || w->n >= UINT32_MAX - 1)
        return lf_fail(err, LF_EINVAL, "too many different words to train on; use train_bytes");
    size_t need;
    if (!lf_size_add(&need, w->text_len, len))
        return lf_fail(err, LF_ENOMEM, "too many different words for memory");
    if (need > w->text_cap) {
        size_t cap = w->text_cap ? w->text_cap * 2 : 65536;
        while (cap < need)
            cap *= 2;
        int rc = lf_realloc(&w->text, cap, 1, err);
        if (rc != 0)
            return rc;
        w->text_cap = cap;
    }
    int rc = lf_grow(&w->v, &w->cap, w->n, sizeof(*w->v), err);
    if (rc != 0)
        return rc;
    memcpy(w->text + w->text_len, p, len);
    w->v[w->n] = (lf_word){.hash = h, .at = w->text_len, .count = count, .len = (uint32_t)len};
    w->text_len = need;
    w->slots[k] = (uint32_t)++w->n;
    return w->n * 2 > w->mask ? rehash(w, err) : 0;
}

static int add_word(void *arg, const uint8_t *word, size_t len, lf_err *err)
{
    return lf_word_counts_add(arg, word, len, 1, err);
}

int lf_word_counts_text(lf_word_counts *w, lf_tok_state *s, const char *text, size_t len,
                        unsigned flags, uint64_t *replaced, lf_err *err)
{
    return lf_tokenizer_words(s, text, len, flags, &(struct lf_word_sink){add_word, w}, replaced,
                              err);
}

int lf_word_counts_merge(lf_word_counts *w, const lf_word_counts *from, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < from->n && rc == 0; i++)
        rc = lf_word_counts_add(w, from->text + from->v[i].at, from->v[i].len, from->v[i].count,
                                err);
    return rc;
}

int lf_word_counts_pack(const lf_word_counts *w, lf_buf *out, lf_err *err)
{
    for (size_t i = 0; i < w->n; i++) {
        lf_buf_add(out, &w->v[i].count, sizeof(w->v[i].count));
        lf_buf_add(out, &w->v[i].len, sizeof(w->v[i].len));
        lf_buf_add(out, w->text + w->v[i].at, w->v[i].len);
    }
    return lf_buf_check(out, err);
}

int lf_word_counts_unpack(lf_word_counts *w, const char *data, size_t len, lf_err *err)
{
    lf_word x;
    int rc = 0;
    for (size_t at = 0; at < len && rc == 0; at += x.len) {
        if (len - at < sizeof(x.count) + sizeof(x.len))
            return lf_fail(err, LF_EFORMAT, "packed word counts end in the middle of a word");
        memcpy(&x.count, data + at, sizeof(x.count));
        memcpy(&x.len, data + at + sizeof(x.count), sizeof(x.len));
        at += sizeof(x.count) + sizeof(x.len);
        if (x.len > len - at)
            return lf_fail(err, LF_EFORMAT, "packed word counts end in the middle of a word");
        rc = lf_word_counts_add(w, (const uint8_t *)data + at, x.len, x.count, err);
    }
    return rc;
}
