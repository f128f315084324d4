/* SPDX-License-Identifier: Apache-2.0
 *
 * sentencepiece's normaliser, and lf_tokenizer out of its pieces (spm_read.c has read them).
 */
#include "config.h"

#include "engine/text/token/spm.h"

#include <float.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/utf8.h"
#include "engine/text/token/decode.h"
#include "engine/text/token/spm_read.h"
#include "engine/text/token/tokenizer_parts.h"
#include "engine/text/token/uniclass.h"

#define SPACE "\xE2\x96\x81" /* U+2581 */

void lf_spm_fini(lf_spm *m)
{
    lf_charsmap_fini(&m->map);
    lf_vtrie_fini(&m->user);
    free(m->unk_surface);
}

/* ---- normalisation ---- */

/* What the text at p becomes: a user-defined symbol stays, else the longest rule, else the
 * character. Returns the bytes consumed; a byte that is not UTF-8 is U+FFFD. */
static size_t prefix_of(const lf_spm *m, const uint8_t *p, size_t len, const char **to,
                        size_t *n_to)
{
    int32_t id;
    size_t n = m->user.n ? lf_vtrie_longest(&m->user, p, len, &id) : 0;
    if (n == 0 && (n = lf_charsmap_longest(&m->map, p, len, to)) > 0) {
        *n_to = strlen(*to);
        return n;
    }
    if (n == 0 && (n = lf_utf8_len((const char *)p, len)) == 0) {
        *to = "\xEF\xBF\xBD";
        *n_to = 3;
        return 1;
    }
    *to = (const char *)p;
    *n_to = n;
    return n;
}

static void add_space(const lf_spm *m, lf_buf *buf)
{
    lf_buf_adds(buf, m->escape ? SPACE : " ");
}

static void add_text(const lf_spm *m, lf_buf *buf, const char *s, size_t n)
{
    for (const char *hit; m->escape && (hit = memchr(s, ' ', n)) != NULL;
         n -= (size_t)(hit + 1 - s), s = hit + 1) {
        lf_buf_add(buf, s, (size_t)(hit - s));
        lf_buf_adds(buf, SPACE);
    }
    lf_buf_add(buf, s, n);
}

/* Runs of ASCII without rules (identity normalisation, no user symbols) need no look at single
 * characters. */
static size_t plain_run(const lf_spm *m, const uint8_t *p, size_t len)
{
    size_t n = 0;
    if (m->user.n || m->map.n_units || m->remove_extra)
        return 0;
    while (n < len && p[n] < 0x80)
        n++;
    return n;
}

int lf_spm_normalize(const lf_spm *m, const uint8_t *text, size_t len, bool prefix, lf_buf *buf,
                     lf_err *err)
{
    const char *to;
    size_t at = 0, n_to, space = m->escape ? 3 : 1;
    lf_buf_clear(buf);
    while (m->remove_extra && at < len) {
        size_t n = prefix_of(m, text + at, len - at, &to, &n_to);
        if (n_to != 1 || *to != ' ')
            break;
        at += n;
    }
    if (at == len)
        return 0;
    if (!m->suffix && prefix)
        add_space(m, buf);
    bool after_space = m->remove_extra;
    while (at < len) {
        size_t run = plain_run(m, text + at, len - at);
        if (run) {
            add_text(m, buf, (const char *)text + at, run);
            at += run;
            continue;
        }
        at += prefix_of(m, text + at, len - at, &to, &n_to);
        for (; after_space && n_to > 0 && *to == ' '; to++)
            n_to--;
        if (n_to > 0) {
            add_text(m, buf, to, n_to);
            after_space = m->remove_extra && to[n_to - 1] == ' ';
        }
    }
    while (m->remove_extra && buf->len >= space &&
           memcmp(buf->data + buf->len - space, m->escape ? SPACE : " ", space) == 0)
        buf->len -= space;
    if (buf->data && !buf->failed)
        buf->data[buf->len] = 0;
    if (m->suffix && prefix)
        add_space(m, buf);
    return lf_buf_check(buf, err);
}

/* ---- the tokenizer ---- */

static bool in_table(enum lf_spm_type type)
{
    return type == LF_SPM_NORMAL || type == LF_SPM_USER || type == LF_SPM_UNUSED;
}

static int set_pieces(lf_tokenizer *t, const lf_spm_file *f, const char *path, lf_err *err)
{
    static const uint8_t kinds[] = {[LF_SPM_UNKNOWN] = LF_TOKEN_UNK,
                                    [LF_SPM_CONTROL] = LF_TOKEN_CONTROL,
                                    [LF_SPM_BYTE] = LF_TOKEN_BYTE};
    t->names = json_object();
    int rc = t->names ? lf_tok_grow(t, (uint32_t)f->n - 1, err) : LF_ENOMEM;
    for (uint32_t i = 0; i < f->n && rc == 0; i++) {
        const lf_spm_piece *p = &f->v[i];
        char *text = lf_strndup((const char *)p->text, p->len, err);
        rc = text ? lf_tok_set_token(t, i, text, p->len, path, err) : LF_ENOMEM;
        if (rc == 0 && json_object_get(t->names, text))
            rc = lf_fail(err, LF_EFORMAT, "%s: piece %u \"%.60s\" is there twice", path, i, text);
        if (rc == 0 && json_object_set_new(t->names, text, json_integer(i)) != 0)
            rc = lf_fail(err, LF_EFORMAT, "%s: piece %u is not UTF-8", path, i);
        free(text);
        if (rc != 0)
            return rc;
        t->tokens[i].kind = p->type < sizeof(kinds) ? kinds[p->type] : LF_TOKEN_TEXT;
        t->tokens[i].special = p->type == LF_SPM_CONTROL; /* unk is shown, as sentencepiece does */
        if (p->type == LF_SPM_UNKNOWN)
            t->model.unk = i;
        if (p->type == LF_SPM_BYTE)
            t->model.byte_tok[lf_tok_byte_token((const char *)p->text, p->len)] = (int32_t)i;
        if (p->type == LF_SPM_USER)
            rc = lf_vtrie_add(&t->spm->user, p->text, p->len, (int32_t)i, err);
    }
    t->model.fallback = f->byte_fallback;
    return rc;
}

/* What ids stand for inside a text. */
static int fill_bytes(lf_tokenizer *t, lf_err *err)
{
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        lf_token *tok = &t->tokens[i];
        const uint8_t *from = tok->text;
        uint8_t *to = lf_arena_alloc(t->arena, tok->n_text + 1, 1, err);
        if (!to)
            return LF_ENOMEM;
        tok->bytes = to;
        if (tok->kind == LF_TOKEN_BYTE)
            *to++ = (uint8_t)lf_tok_byte_token((const char *)from, tok->n_text);
        for (const uint8_t *end = from + tok->n_text; tok->kind == LF_TOKEN_TEXT && from < end;) {
            bool space = end - from >= 3 && memcmp(from, SPACE, 3) == 0;
            *to++ = space ? ' ' : *from;
            from += space ? 3 : 1;
        }
        tok->len = (uint32_t)(to - tok->bytes);
    }
    return 0;
}

static int load_unigram(lf_tokenizer *t, const lf_spm_file *f, lf_err *err)
{
    lf_model *m = &t->model;
    m->kind = LF_MODEL_UNIGRAM;
    m->spm = true;
    m->n_score = f->n;
    m->score = lf_calloc(f->n, sizeof(*m->score), err);
    int rc = m->score ? 0 : LF_ENOMEM;
    m->min_score = (double)FLT_MAX;
    for (uint32_t i = 0; i < f->n && rc == 0; i++) {
        const lf_spm_piece *p = &f->v[i];
        m->score[i] = (double)p->score;
        if (p->type == LF_SPM_NORMAL && m->score[i] < m->min_score)
            m->min_score = m->score[i];
        if (p->type == LF_SPM_USER) /* more than any path of normal pieces */
            m->score[i] = (double)(float)(0.1 * ((double)p->len - 1));
        if (p->type == LF_SPM_NORMAL || p->type == LF_SPM_USER)
            rc = lf_vtrie_add(&m->trie, p->text, p->len, (int32_t)i, err);
    }
    return rc;
}

/* Ids of characters: pieces of one character, and behind them the characters that only longer or
 * unused pieces have. */
static int add_chars(lf_tokenizer *t, const lf_spm_file *f, lf_err *err)
{
    lf_bpe_chars *c = t->bpe.chars;
    size_t cap = 0;
    unsigned k;
    c->first_phantom = (uint32_t)f->n;
    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t ch = lf_utf8_get(f->v[i].text, &k);
        if (in_table(f->v[i].type) && f->v[i].type != LF_SPM_UNUSED && k == f->v[i].len)
            lf_bpe_add_char(&t->bpe, ch, (int32_t)i);
    }
    for (uint32_t i = 0; i < f->n; i++) {
        const lf_spm_piece *p = &f->v[i];
        for (size_t at = 0; in_table(p->type) && at < p->len; at += k) {
            uint32_t ch = lf_utf8_get(p->text + at, &k);
            if (lf_bpe_find_char(&t->bpe, ch) >= 0)
                continue;
            int rc = lf_grow(&c->phantom, &cap, c->n_phantom, sizeof(*c->phantom), err);
            if (rc != 0)
                return rc;
            lf_bpe_add_char(&t->bpe, ch, (int32_t)(c->first_phantom + c->n_phantom));
            c->phantom[c->n_phantom++] = ch;
        }
    }
    return 0;
}

/* The symbol with exactly this text, -1 none: a piece, or one character. */
static int64_t symbol(const lf_tokenizer *t, const lf_vtrie *pieces, const uint8_t *p, size_t n)
{
    unsigned k;
    uint32_t ch = lf_utf8_get(p, &k);
    return k == n ? lf_bpe_find_char(&t->bpe, ch) : lf_vtrie_find(pieces, p, n);
}

/* sentencepiece merges two neighbours whenever their joint text is a piece, best score first: every
 * way to halve a piece into symbols is a merge. */
static int add_merges(lf_tokenizer *t, const lf_spm_file *f, const lf_vtrie *pieces,
                      const uint32_t *rank, lf_err *err)
{
    unsigned k;
    (void)err;
    for (uint32_t i = 0; i < f->n; i++) {
        const lf_spm_piece *p = &f->v[i];
        if (!in_table(p->type))
            continue;
        (void)lf_utf8_get(p->text, &k);
        for (size_t at = k; at < p->len; at += k) {
            int64_t left = symbol(t, pieces, p->text, at),
                    right = symbol(t, pieces, p->text + at, p->len - at);
            (void)lf_utf8_get(p->text + at, &k);
            bool frozen = left < 0 || right < 0 ||
                          (left < (int64_t)f->n && f->v[left].type == LF_SPM_USER) ||
                          (right < (int64_t)f->n && f->v[right].type == LF_SPM_USER);
            if (frozen)
                continue;
            lf_bpe_add_merge(&t->bpe, (uint32_t)left, (uint32_t)right, rank[i], i);
            lf_bpe_add_pair(&t->bpe, p->text, at, p->text + at);
        }
    }
    return 0;
}

static int by_score(const void *a, const void *b)
{
    const lf_spm_piece *x = *(const lf_spm_piece *const *)a, *y = *(const lf_spm_piece *const *)b;
    return (x->score < y->score) - (x->score > y->score);
}

/* Equal scores are equal ranks: there the leftmost goes first. */
static int make_ranks(uint32_t *rank, const lf_spm_file *f, lf_err *err)
{
    const lf_spm_piece **sorted = lf_calloc(f->n, sizeof(*sorted), err);
    if (!sorted)
        return LF_ENOMEM;
    for (size_t i = 0; i < f->n; i++)
        sorted[i] = &f->v[i];
    qsort(sorted, f->n, sizeof(*sorted), by_score);
    uint32_t r = 0;
    for (size_t i = 0; i < f->n; i++) {
        r += i > 0 && sorted[i]->score < sorted[i - 1]->score;
        rank[sorted[i] - f->v] = r;
    }
    free(sorted);
    return 0;
}

static int load_bpe(lf_tokenizer *t, const lf_spm_file *f, lf_err *err)
{
    lf_vtrie pieces = {0};
    size_t n_splits = 0, n_chars = 0;
    uint32_t *rank = lf_calloc(f->n, sizeof(*rank), err);
    int rc = rank ? make_ranks(rank, f, err) : LF_ENOMEM;
    bool unused = false;
    for (uint32_t i = 0; i < f->n && rc == 0; i++) {
        const lf_spm_piece *p = &f->v[i];
        if (!in_table(p->type))
            continue;
        rc = lf_vtrie_add(&pieces, p->text, p->len, (int32_t)i, err);
        unused = unused || p->type == LF_SPM_UNUSED;
        for (size_t k = 0; k < p->len; k++)
            n_chars += (p->text[k] & 0xC0) != 0x80;
    }
    n_splits = n_chars;
    if (rc == 0)
        rc = lf_bpe_init(&t->bpe, n_splits, err);
    if (rc == 0)
        rc = lf_bpe_chars_init(&t->bpe, n_chars, n_splits, err);
    if (rc == 0) {
        lf_bpe_chars *c = t->bpe.chars;
        t->bpe.unk = t->model.unk;
        memcpy(c->byte_tok, t->model.byte_tok, sizeof(c->byte_tok));
        c->fallback = t->model.fallback;
        c->cut = !unused;
        c->user = t->spm->user.n ? &t->spm->user : NULL;
        rc = add_chars(t, f, err);
        if (rc == 0 && unused && (c->unused = lf_calloc(f->n, 1, err)) == NULL)
            rc = LF_ENOMEM;
        for (uint32_t i = 0; rc == 0 && unused && i < f->n; i++)
            c->unused[i] = f->v[i].type == LF_SPM_UNUSED;
    }
    if (rc == 0)
        rc = add_merges(t, f, &pieces, rank, err);
    lf_vtrie_fini(&pieces);
    free(rank);
    return rc;
}

int lf_spm_load(lf_tokenizer *t, const uint8_t *data, size_t len, const char *path, lf_err *err)
{
    lf_spm_file f = {0};
    for (int i = 0; i < 256; i++)
        t->model.byte_tok[i] = -1;
    t->spm = lf_calloc(1, sizeof(*t->spm), err);
    int rc = t->spm ? lf_spm_read(&f, data, len, path, err) : LF_ENOMEM;
    if (rc == 0) {
        t->spm->add_prefix = f.add_dummy_prefix;
        t->spm->remove_extra = f.remove_extra_whitespaces;
        t->spm->escape = f.escape_whitespaces;
        t->spm->suffix = f.whitespace_as_suffix;
        t->spm->unk_surface = f.unk_surface
                                  ? lf_strndup((const char *)f.unk_surface, f.n_unk_surface, err)
                                  : lf_strdup(" \xE2\x81\x87 ", err);
        rc = t->spm->unk_surface ? 0 : LF_ENOMEM;
    }
    if (rc == 0 && f.n_charsmap)
        rc = lf_charsmap_init(&t->spm->map, f.charsmap, f.n_charsmap, path, err);
    if (rc == 0)
        rc = set_pieces(t, &f, path, err);
    if (rc == 0)
        rc = fill_bytes(t, err);
    if (rc == 0)
        rc = f.model_type == LF_SPM_BPE ? load_bpe(t, &f, err) : load_unigram(t, &f, err);
    if (rc == 0) {
        t->decs[t->n_decs++].type = LF_DEC_SPM;
        t->bos = json_object_get(t->names, f.bos)
                     ? json_integer_value(json_object_get(t->names, f.bos))
                     : -1;
        t->eos = json_object_get(t->names, f.eos)
                     ? json_integer_value(json_object_get(t->names, f.eos))
                     : -1;
        t->pad = json_object_get(t->names, f.pad)
                     ? json_integer_value(json_object_get(t->names, f.pad))
                     : -1;
        t->unk = t->model.unk;
    }
    lf_spm_file_fini(&f);
    return rc;
}
