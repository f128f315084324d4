/* SPDX-License-Identifier: Apache-2.0
 *
 * Characters as first symbols of BPE: the table of characters, the pairs that merges may join, and
 * a word's first symbols in the order of the tokenizers library (models/bpe, merge_word).
 */
#include "config.h"

#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/token/bpe.h"
#include "engine/text/token/uniclass.h"

#define AFFIX_MAX 256 /* bytes of a character with its affixes */

static size_t slots_for(size_t n)
{
    size_t slots = 64;
    while (slots < n * 2)
        slots *= 2;
    return slots;
}

int lf_bpe_chars_init(lf_bpe *b, size_t n_chars, size_t n_merges, lf_err *err)
{
    lf_bpe_chars *c = b->chars = lf_calloc(1, sizeof(*c), err);
    if (!c)
        return LF_ENOMEM;
    size_t slots = slots_for(n_chars), bits = 1u << 16;
    /* Sparse enough that a pair no merge joins is rarely taken for one. */
    while (bits < n_merges * 16 && bits < (size_t)1 << 23)
        bits *= 2;
    c->others = lf_calloc(slots, sizeof(*c->others), err);
    c->pairs = lf_calloc(bits / 64, sizeof(*c->pairs), err);
    if (!c->others || !c->pairs)
        return LF_ENOMEM;
    c->mask = slots - 1;
    c->pair_mask = bits - 1;
    c->first_phantom = UINT32_MAX;
    for (int i = 0; i < 128; i++)
        c->ascii[i] = -1;
    for (int i = 0; i < 256; i++)
        c->byte_tok[i] = -1;
    return 0;
}

static inline size_t char_slot(uint32_t c)
{
    return (size_t)(c * 0x9E3779B1u >> 8);
}

void lf_bpe_add_char(lf_bpe *b, uint32_t c, int32_t id)
{
    lf_bpe_chars *t = b->chars;
    if (c < 128) {
        t->ascii[c] = id;
        return;
    }
    size_t i = char_slot(c) & t->mask;
    while (t->others[i].c && t->others[i].c != c)
        i = (i + 1) & t->mask;
    t->others[i].c = c;
    t->others[i].id = id;
}

int32_t lf_bpe_find_char(const lf_bpe *b, uint32_t c)
{
    const lf_bpe_chars *t = b->chars;
    if (c < 128)
        return t->ascii[c];
    for (size_t i = char_slot(c) & t->mask; t->others[i].c; i = (i + 1) & t->mask)
        if (t->others[i].c == c)
            return t->others[i].id;
    return -1;
}

static inline size_t pair_bit(const lf_bpe_chars *c, uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 21 | right) * 0x9E3779B97F4A7C15u;
    return (size_t)(h >> 32) & c->pair_mask;
}

bool lf_bpe_may_join(const lf_bpe_chars *c, uint32_t left, uint32_t right)
{
    if ((left | right) < 128)
        return c->ascii_pairs[left][right];
    size_t bit = pair_bit(c, left, right);
    return c->pairs[bit / 64] >> (bit % 64) & 1;
}

void lf_bpe_add_pair(lf_bpe *b, const uint8_t *left, size_t n_left, const uint8_t *right)
{
    unsigned k;
    uint32_t l = lf_utf8_get(lf_utf8_prev(left + n_left), &k), r = lf_utf8_get(right, &k);
    if ((l | r) < 128) {
        b->chars->ascii_pairs[l][r] = true;
    } else {
        size_t bit = pair_bit(b->chars, l, r);
        b->chars->pairs[bit / 64] |= (uint64_t)1 << (bit % 64);
    }
}

/* The id of one character with the affixes of its place; *text is what was looked up. */
static int64_t find_affixed(const lf_bpe *b, const uint8_t *p, size_t k, bool first, bool last,
                            char text[AFFIX_MAX], size_t *n_text)
{
    const lf_bpe_chars *c = b->chars;
    size_t n = 0, n_prefix = first || !c->prefix ? 0 : strlen(c->prefix),
           n_suffix = last && c->suffix ? strlen(c->suffix) : 0;
    memcpy(text, c->prefix ? c->prefix : "", n_prefix);
    n += n_prefix;
    memcpy(text + n, p, k);
    n += k;
    memcpy(text + n, c->suffix ? c->suffix : "", n_suffix);
    *n_text = n + n_suffix;
    return lf_bpe_find_word(b, (const uint8_t *)text, *n_text);
}

int64_t lf_bpe_char_symbols(const lf_bpe *b, const uint8_t *word, size_t n, uint32_t *sym,
                            lf_err *err)
{
    const lf_bpe_chars *c = b->chars;
    bool affixes = c->prefix || c->suffix, open = false; /* open: an unk that is not written yet */
    size_t k = 0, step;
    for (size_t i = 0; i < n; i += step) {
        unsigned bytes;
        uint32_t ch = lf_utf8_get(word + i, &bytes);
        char text[AFFIX_MAX];
        size_t n_text = bytes;
        step = bytes;
        int64_t id = affixes
                         ? find_affixed(b, word + i, bytes, i == 0, i + bytes == n, text, &n_text)
                         : lf_bpe_find_char(b, ch);
        if (id >= 0) {
            if (open)
                sym[k++] = (uint32_t)b->unk;
            open = false;
            sym[k++] = (uint32_t)id;
            continue;
        }
        const uint8_t *spelt = affixes ? (const uint8_t *)text : word + i;
        bool bytes_known =
            /* affixes would need room for more symbols than bytes: unk, as without fallback */
            !affixes;
        for (size_t j = 0; j < n_text && bytes_known; j++)
            bytes_known = c->byte_tok[spelt[j]] >= 0;
        for (size_t j = 0; j < n_text && bytes_known; j++)
            sym[k++] = (uint32_t)c->byte_tok[spelt[j]];
        if (bytes_known)
            continue; /* the library leaves an open unk open here */
        if (b->unk < 0)
            return lf_fail(err, LF_EFORMAT,
                           "the tokenizer has no token for U+%04X and no unk_token, so this text "
                           "cannot be encoded",
                           ch);
        if (open && !b->fuse_unk)
            sym[k++] = (uint32_t)b->unk;
        open = true;
    }
    if (open)
        sym[k++] = (uint32_t)b->unk;
    return (int64_t)k;
}
