/* SPDX-License-Identifier: Apache-2.0
 *
 * Where words begin, by the marks of the vocabulary. */
#include <string.h>

#include "engine/text/token/tokenizer_priv.h"

#define META "\xE2\x96\x81" /* the space of sentencepiece */

static bool begins_with(const uint8_t *s, size_t n, const char *front)
{
    const size_t k = strlen(front);
    return n >= k && memcmp(s, front, k) == 0;
}

static bool ends_with(const uint8_t *s, size_t n, const char *back)
{
    const size_t k = strlen(back);
    return n >= k && memcmp(s + n - k, back, k) == 0;
}

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Does the text of a token of WordPiece begin with the continuing prefix? */
static bool continues(const lf_model *m, const lf_token *k)
{
    uint32_t node = 0;
    for (uint32_t i = 0; m->has_cont && i < k->n_text; i++) {
        node = lf_vtrie_step(&m->trie, node, k->text[i]);
        if (node == 0 || node == m->cont)
            return node != 0;
    }
    return false;
}

/* Spaces and affixes, which are on one side of a token. */
static uint8_t by_side(const lf_tokenizer *t, const lf_token *k)
{
    const lf_bpe_chars *c = t->model.kind == LF_MODEL_BPE ? t->bpe.chars : NULL;
    const bool joined = t->decs[0].type == LF_DEC_JOIN; /* the space before each is no mark */
    const uint8_t *s = joined ? k->text : k->bytes;
    const size_t n = joined ? k->n_text : k->len;
    uint8_t mark = 0;
    if ((n && is_space(s[0])) || begins_with(k->text, k->n_text, META) ||
        (c && c->prefix && !begins_with(k->text, k->n_text, c->prefix)))
        mark |= LF_TOK_WORD_BEGINS;
    if ((n && is_space(s[n - 1])) || ends_with(k->text, k->n_text, META) ||
        (c && c->suffix && ends_with(k->text, k->n_text, c->suffix)))
        mark |= LF_TOK_WORD_ENDS;
    return mark;
}

/* Is it nothing but the mark? Such a token is the begin of a word that the vocabulary lacks as one
 * with its space. */
static bool lone(const lf_tokenizer *t, const lf_token *k)
{
    size_t n = 0;
    if (t->model.kind == LF_MODEL_WORDLEVEL || t->model.kind == LF_MODEL_WORDPIECE || !k->bytes ||
        k->special || t->decs[0].type == LF_DEC_JOIN)
        return false;
    while (begins_with(k->text + n, k->n_text - n, META))
        n += strlen(META);
    if (n && n == k->n_text)
        return true;
    for (n = 0; n < k->len && k->bytes[n] == ' '; n++)
        ;
    return n && n == k->len;
}

static uint8_t mark_of(const lf_tokenizer *t, const lf_token *k)
{
    if (!k->bytes || k->special || t->model.kind == LF_MODEL_WORDLEVEL)
        return LF_TOK_WORD_BEGINS | LF_TOK_WORD_ENDS;
    if (t->model.kind == LF_MODEL_WORDPIECE)
        return continues(&t->model, k) ? 0 : LF_TOK_WORD_BEGINS;
    return by_side(t, k);
}

int lf_tokenizer_word_marks(const lf_tokenizer *t, uint8_t *marks, size_t n, lf_err *err)
{
    const lf_model *m = &t->model;
    bool any = m->kind == LF_MODEL_WORDLEVEL ||
               (m->kind == LF_MODEL_WORDPIECE && !(m->has_cont && m->cont == 0));
    size_t begin = 0, end = 0; /* tokens with one mark alone */
    memset(marks, LF_TOK_WORD_BEGINS | LF_TOK_WORD_ENDS, n);
    for (uint32_t id = 0; id < t->n_tokens && id < n; id++) {
        marks[id] = mark_of(t, &t->tokens[id]);
        begin += marks[id] == LF_TOK_WORD_BEGINS;
        end += marks[id] == LF_TOK_WORD_ENDS;
    }
    /* a space by itself is no mark of a vocabulary: every one may have it */
    any = any || begin || end;
    for (uint32_t id = 0; id < t->n_tokens && id < n; id++)
        if (lone(t, &t->tokens[id]))
            marks[id] = begin >= end ? LF_TOK_WORD_BEGINS : LF_TOK_WORD_ENDS;
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].id < n)
            marks[t->added[i].id] = LF_TOK_WORD_BEGINS | LF_TOK_WORD_ENDS;
    return any ? 0
               : lf_fail(err, LF_ENOTSUP,
                         "the tokenizer does not mark where words begin: none of its %u tokens has "
                         "a space or an affix",
                         t->n_tokens);
}
