/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoding with a loaded tokenizer: the order of steps is tokenizer.h's, each step is in a file of
 * its own.
 */
#include "config.h"

#include "engine/text/token/tokenizer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/token/tokenizer_priv.h"

lf_tok_state *lf_tok_state_create(const lf_tokenizer *t, lf_err *err)
{
    lf_tok_state *s = lf_calloc(1, sizeof(*s), err);
    if (!s)
        return NULL;
    s->t = t;
    lf_buf_init(&s->repaired);
    lf_buf_init(&s->spm);
    lf_tok_bufs_init(&s->norm);
    for (size_t i = 0; i < LF_TOK_STEPS_MAX; i++)
        lf_buf_init(&s->changed[i]);
    s->bpe = lf_bpe_state_create(&t->bpe, err);
    bool ok = s->bpe != NULL;
    for (size_t i = 0; ok && i < t->n_pretok; i++)
        if (t->pretok[i].re)
            ok = (s->re[i] = lf_regex_state_create(t->pretok[i].re, err)) != NULL;
    if (ok)
        return s;
    lf_tok_state_destroy(s);
    return NULL;
}

void lf_tok_state_destroy(lf_tok_state *s)
{
    if (!s)
        return;
    lf_bpe_state_destroy(s->bpe);
    for (size_t i = 0; i < LF_TOK_STEPS_MAX; i++) {
        lf_regex_state_destroy(s->re[i]);
        free(s->cut[i].v);
        free(s->cut[i].match);
        lf_buf_fini(&s->changed[i]);
    }
    lf_buf_fini(&s->repaired);
    lf_buf_fini(&s->spm);
    lf_tok_bufs_fini(&s->norm);
    free(s->model.best);
    free(s->model.cut);
    free(s);
}

/* at_start: the very beginning of the caller's text. */
static int words_of(lf_tok_state *s, const uint8_t *text, size_t len, bool at_start, lf_err *err)
{
    if (len == 0)
        return 0;
    if (s->t->fast != LF_SCAN_NONE && !(s->flags & LF_TOK_NO_SCANNER))
        return lf_tok_scan_words(s, s->t->fast, text, len, err);
    return lf_tok_pretokenize(s, 0, text, len, at_start, err);
}

static int normed_piece(lf_tok_state *s, const uint8_t *text, size_t len, const lf_added *added,
                        lf_err *err)
{
    return added ? lf_ids_add(s->out, added->id, err)
                 : words_of(s, text, len, text == s->first, err);
}

/* sentencepiece: its own normaliser, the whole part as one word, one unk for a run of them. */
static int spm_piece(lf_tok_state *s, const uint8_t *text, size_t len, lf_err *err)
{
    const lf_spm *m = s->t->spm;
    int rc = lf_spm_normalize(m, text, len, m->add_prefix && (!m->prefix_first || text == s->start),
                              &s->spm, err);
    const uint8_t *p = (const uint8_t *)s->spm.data;
    if (rc != 0 || s->spm.len == 0)
        return rc;
    size_t at = s->out ? s->out->n : 0, k = at;
    rc = lf_tok_word(s, p, s->spm.len, p + s->spm.len, err);
    if (!s->out || s->t->model.unk < 0 || rc != 0)
        return rc;
    for (size_t i = at; i < s->out->n; i++)
        if (i == at || s->out->v[i] != s->t->model.unk || s->out->v[i - 1] != s->t->model.unk)
            s->out->v[k++] = s->out->v[i];
    s->out->n = k;
    return 0;
}

static int raw_piece(lf_tok_state *s, const uint8_t *text, size_t len, const lf_added *added,
                     lf_err *err)
{
    if (added)
        return lf_ids_add(s->out, added->id, err);
    if (s->t->spm)
        return spm_piece(s, text, len, err);
    bool at_start = text == s->start;
    lf_bytes part = {text, len};
    int rc = lf_tok_normalize(s->t, &s->norm, &part, err);
    if (rc != 0)
        return rc;
    s->first = at_start && !s->norm.front_gone ? part.p : NULL;
    return lf_added_split(s, &s->t->normed, part.p, part.n, normed_piece, err);
}

/* Makes *text valid UTF-8. */
static int prepare(lf_tok_state *s, lf_bytes *text, unsigned flags, uint64_t *replaced, lf_err *err)
{
    if (text->n > LF_TOK_TEXT_MAX)
        return lf_fail(err, LF_EINVAL, "a text of %zu bytes is above the limit of %zu; split it",
                       text->n, LF_TOK_TEXT_MAX);
    s->flags = flags;
    int rc = lf_text_repair(text, &s->repaired, flags & LF_TOK_STRICT, replaced, err);
    s->start = text->p;
    return rc;
}

static int add_all(lf_ids *out, const lf_ids *more, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < more->n && rc == 0; i++)
        rc = lf_ids_add(out, more->v[i], err);
    return rc;
}

int lf_tokenizer_encode(lf_tok_state *s, const char *text, size_t len, unsigned flags, lf_ids *out,
                        uint64_t *replaced, lf_err *err)
{
    const lf_tokenizer *t = s->t;
    lf_bytes b = {(const uint8_t *)text, len};
    size_t at = out->n;
    int rc = prepare(s, &b, flags, replaced, err);
    if (rc != 0)
        return rc;
    s->out = out;
    s->word.fn = NULL;
    if (flags & LF_TOK_TEMPLATE)
        rc = add_all(out, &t->before, err);
    if (rc == 0)
        rc = lf_added_split(s, &t->raw, b.p, b.n, raw_piece, err);
    if (rc == 0 && (flags & LF_TOK_TEMPLATE))
        rc = add_all(out, &t->after, err);
    if (rc != 0)
        out->n = at;
    s->out = NULL;
    return rc;
}

int lf_tokenizer_words(lf_tok_state *s, const char *text, size_t len, unsigned flags,
                       const struct lf_word_sink *sink, uint64_t *replaced, lf_err *err)
{
    lf_bytes b = {(const uint8_t *)text, len};
    int rc = prepare(s, &b, flags, replaced, err);
    if (rc != 0)
        return rc;
    s->word = *sink;
    if (s->t->spm) {
        rc = spm_piece(s, b.p, b.n, err);
    } else {
        rc = lf_tok_normalize(s->t, &s->norm, &b, err);
        if (rc == 0)
            rc = words_of(s, b.p, b.n, true, err);
    }
    s->word.fn = NULL;
    return rc;
}

/* ---- what is known of a tokenizer ---- */

uint32_t lf_tokenizer_vocab_size(const lf_tokenizer *t)
{
    return t->n_tokens;
}

const char *lf_tokenizer_sha256(const lf_tokenizer *t)
{
    return t->sha256;
}

bool lf_tokenizer_is_special(const lf_tokenizer *t, uint32_t id)
{
    return id < t->n_tokens && t->tokens[id].special;
}

int64_t lf_tokenizer_find(const lf_tokenizer *t, const char *token)
{
    const json_t *v = json_object_get((const json_t *)t->names, token);
    return v ? (int64_t)json_integer_value(v) : -1;
}

int64_t lf_tokenizer_eos(const lf_tokenizer *t)
{
    static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>",
                                        "<eos>"};
    if (t->eos >= 0)
        return t->eos;
    for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
        for (size_t i = 0; i < t->n_added; i++)
            if (strcmp(t->added[i].content, names[k]) == 0)
                return t->added[i].id;
    return -1;
}

int64_t lf_tokenizer_bos(const lf_tokenizer *t)
{
    return t->bos;
}

int64_t lf_tokenizer_pad(const lf_tokenizer *t)
{
    return t->pad;
}

int64_t lf_tokenizer_unk(const lf_tokenizer *t)
{
    return t->unk;
}

bool lf_tokenizer_token(const lf_tokenizer *t, uint32_t id, const uint8_t **bytes, size_t *len)
{
    if (id >= t->n_tokens || !t->tokens[id].bytes)
        return false;
    *bytes = t->tokens[id].bytes;
    *len = t->tokens[id].len;
    return true;
}

bool lf_tokenizer_text(const lf_tokenizer *t, uint32_t id, const uint8_t **text, size_t *len)
{
    if (id >= t->n_tokens || !t->tokens[id].text)
        return false;
    *text = t->tokens[id].text;
    *len = t->tokens[id].n_text;
    return true;
}
