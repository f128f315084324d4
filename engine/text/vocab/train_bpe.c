/* SPDX-License-Identifier: Apache-2.0
 *
 * Training of byte-level BPE: words of bytes into the merge loop (train_merge.c), its result into a
 * tokenizer.json.
 */
#include "config.h"

#include "engine/text/vocab/train_bpe.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/token/tokenizer_priv.h"
#include "engine/text/vocab/train_priv.h"

/* Special tokens, then bytes in the order of their characters. */
static int vocab_begin(const lf_bpe_train_args *a, lf_vocab *v, uint32_t byte_id[256], lf_err *err)
{
    int rc = lf_vocab_init(v, a->vocab_size + 512 + a->n_specials, err);
    for (size_t i = 0; i < a->n_specials && rc == 0; i++)
        rc = lf_vocab_add(v, a->specials[i], err) < 0 ? LF_ENOMEM : 0;
    for (uint32_t c = 0; c < 256 + 68 && rc == 0; c++) {
        int b = lf_byte_of_char(c);
        char text[3];
        if (b < 0)
            continue;
        lf_byte_text(text, (uint8_t)b);
        int64_t id = lf_vocab_add(v, text, err);
        rc = id < 0 ? LF_ENOMEM : 0;
        byte_id[b] = (uint32_t)id;
    }
    return rc;
}

static int load_words(lf_merge_words *m, const lf_word_counts *words, const uint32_t byte_id[256],
                      lf_err *err)
{
    int rc = lf_merge_words_init(m, words->n, words->text_len, err);
    for (size_t i = 0; i < words->n && rc == 0; i++) {
        const lf_word *w = &words->v[i];
        m->start[i] = w->at;
        m->len[i] = w->len;
        m->count[i] = w->count;
        for (size_t k = 0; k < w->len; k++)
            m->sym[w->at + k] = byte_id[words->text[w->at + k]];
    }
    return rc;
}

int lf_bpe_train(const lf_bpe_train_args *a, const lf_word_counts *words, lf_bpe_progress_fn fn,
                 void *arg, lf_buf *json, size_t *n_vocab, lf_err *err)
{
    lf_vocab v = {0};
    lf_merge_words m = {0};
    lf_trained_merge *merges = NULL;
    size_t n_merges = 0;
    uint32_t byte_id[256];
    lf_merge_args how = {
        .vocab_size = a->vocab_size, .min_frequency = a->min_frequency, .fn = fn, .arg = arg};
    if (a->vocab_size < 256 + a->n_specials)
        return lf_fail(err, LF_EINVAL,
                       "vocab_size = %zu has no room for 256 bytes and %zu special tokens",
                       a->vocab_size, a->n_specials);
    for (size_t i = 0; i < a->n_specials; i++)
        if (a->specials[i][0] == 0)
            return lf_fail(err, LF_EINVAL, "special token %zu is empty", i + 1);
    int rc = vocab_begin(a, &v, byte_id, err);
    if (rc == 0)
        rc = load_words(&m, words, byte_id, err);
    if (rc == 0)
        rc = lf_merge_train(&v, &m, &how, &merges, &n_merges, err);
    if (rc == 0)
        rc = lf_bpe_write_json(a, &v, merges, n_merges, json, err);
    if (rc == 0 && n_vocab)
        *n_vocab = v.n;
    free(merges);
    lf_merge_words_fini(&m);
    lf_vocab_fini(&v);
    return rc;
}

lf_tokenizer *lf_bpe_train_cutter(const lf_bpe_train_args *a, lf_err *err)
{
    lf_bpe_train_args bare = *a;
    lf_vocab v = {0};
    uint32_t byte_id[256];
    bare.specials = NULL;
    bare.n_specials = 0;
    lf_tokenizer *out = NULL;
    lf_buf json;
    lf_buf_init(&json);
    if (vocab_begin(&bare, &v, byte_id, err) == 0 &&
        lf_bpe_write_json(&bare, &v, NULL, 0, &json, err) == 0)
        out = lf_tokenizer_parse(json.data, json.len, "the word cutter", err);
    lf_buf_fini(&json);
    lf_vocab_fini(&v);
    return out;
}
