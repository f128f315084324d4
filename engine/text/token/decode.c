/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding, token by token. The library's decoders map lists of texts; here each is a step that
 * takes one text at a time and holds back only what a later token can still change: an open
 * character, a run of byte tokens (valid as a whole or not at all), the last token of a BPEDecoder.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/utf8.h"
#include "engine/text/token/decode.h"
#include "engine/text/token/uniclass.h"

#define REPLACEMENT "\xEF\xBF\xBD"

/* How many bytes at s[0..n) may still become a character: n when s is a proper prefix of a valid
 * sequence, else 0. */
static bool may_grow(const uint8_t *s, size_t n)
{
    if (s[0] < 0xC2 || s[0] > 0xF4)
        return false;
    size_t want = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    if (n >= want)
        return false;
    unsigned lo = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    unsigned hi = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    if (n >= 2 && (s[1] < lo || s[1] > hi))
        return false;
    for (size_t i = 2; i < n; i++)
        if ((s[i] & 0xC0) != 0x80)
            return false;
    return true;
}

/* One byte: pend is always a prefix of a valid sequence, so it is complete, still open, or broken
 * by this byte, in which case what was there is one U+FFFD and the byte starts anew. */
static void push_byte(lf_tok_stream *d, uint8_t b, lf_buf *out)
{
    for (;;) {
        d->pend[d->n_pend++] = b;
        if (lf_utf8_len((const char *)d->pend, d->n_pend) == d->n_pend) {
            lf_buf_add(out, d->pend, d->n_pend);
            d->n_pend = 0;
            return;
        }
        if (may_grow(d->pend, d->n_pend))
            return;
        lf_buf_add(out, REPLACEMENT, 3);
        bool alone = d->n_pend == 1;
        d->n_pend = 0;
        if (alone)
            return;
    }
}

/* ---- steps ---- */

static int feed(lf_tok_chain *c, size_t i, const char *p, size_t n, lf_buf *out, lf_err *err);

static void replace_all(lf_buf *b, const char *from, const char *to)
{
    size_t n_from = strlen(from), n_to = strlen(to), k = 0;
    if (!b->failed && memmem(b->data, b->len, from, n_from)) {
        for (size_t i = 0; i < b->len;) { /* to is never longer */
            if (b->len - i >= n_from && memcmp(b->data + i, from, n_from) == 0) {
                memcpy(b->data + k, to, n_to);
                k += n_to;
                i += n_from;
            } else {
                b->data[k++] = b->data[i++];
            }
        }
        b->len = k;
        b->data[k] = 0;
    }
}

/* The WordPiece decoder's clean-up of English, in the library's order. */
static void cleanup(lf_buf *b)
{
    static const char *const rules[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                           {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                           {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                           {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        replace_all(b, rules[i][0], rules[i][1]);
}

static void wordpiece(const lf_decstep *st, bool first, const char *p, size_t n, lf_buf *b)
{
    bool glued = n >= st->n_text && memcmp(p, st->text, st->n_text) == 0;
    if (!first && !glued)
        lf_buf_addc(b, ' ');
    size_t skip = !first && glued ? st->n_text : 0;
    lf_buf_add(b, p + skip, n - skip);
    if (st->cleanup)
        cleanup(b);
}

/* Every `text` of the step becomes `to`. */
static void swap_text(const lf_decstep *st, const char *to, const char *p, size_t n, lf_buf *b)
{
    while (n > 0) {
        const char *hit = memmem(p, n, st->text, st->n_text);
        size_t k = hit ? (size_t)(hit - p) : n;
        lf_buf_add(b, p, k);
        if (!hit)
            return;
        lf_buf_adds(b, to);
        p += k + st->n_text;
        n -= k + st->n_text;
    }
}

/* Strip of up to start characters at the front and stop at the end; behind Fuse the front goes on
 * over texts. */
static void strip(const lf_decstep *st, struct lf_dec_state *d, const char **p, size_t *n)
{
    size_t start = st->fused ? st->start - d->taken : st->start;
    while (!(st->fused && d->past) && start > 0 && *n >= st->n_text &&
           memcmp(*p, st->text, st->n_text) == 0) {
        *p += st->n_text;
        *n -= st->n_text;
        start--;
        d->taken++;
    }
    d->past = d->past || *n > 0;
    for (size_t k = 0; k < st->stop && *n >= st->n_text; k++) {
        if (memcmp(*p + *n - st->n_text, st->text, st->n_text) != 0)
            break;
        *n -= st->n_text;
    }
}

/* A held run of byte tokens: the text it spells, or U+FFFD for each byte. */
static int flush_bytes(lf_tok_chain *c, size_t i, lf_buf *out, lf_err *err)
{
    lf_buf *run = &c->step[i].hold;
    int rc = 0;
    if (run->len == 0)
        return 0;
    if (lf_utf8_check(run->data, run->len) == run->len) {
        rc = feed(c, i + 1, run->data, run->len, out, err);
    } else {
        for (size_t k = 0; k < run->len && rc == 0; k++)
            rc = feed(c, i + 1, REPLACEMENT, 3, out, err);
    }
    lf_buf_clear(run);
    return rc;
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

int lf_tok_byte_token(const char *p, size_t n)
{
    if (n != 6 || memcmp(p, "<0x", 3) != 0 || p[5] != '>')
        return -1;
    if (p[3] == '+') /* the library's number parser takes a sign */
        return hex(p[4]);
    return hex(p[3]) < 0 || hex(p[4]) < 0 ? -1 : hex(p[3]) * 16 + hex(p[4]);
}

static int byte_fallback(lf_tok_chain *c, size_t i, const char *p, size_t n, lf_buf *out,
                         lf_err *err)
{
    int byte = lf_tok_byte_token(p, n);
    if (byte >= 0) {
        lf_buf_addc(&c->step[i].hold, (char)byte);
        return lf_buf_check(&c->step[i].hold, err);
    }
    int rc = flush_bytes(c, i, out, err);
    return rc == 0 ? feed(c, i + 1, p, n, out, err) : rc;
}

/* The last token's suffix goes, that of others is a space: one token is held back. */
static int bpe_decoder(lf_tok_chain *c, size_t i, const char *p, size_t n, bool last, lf_buf *out,
                       lf_err *err)
{
    struct lf_dec_state *d = &c->step[i];
    lf_buf b;
    lf_buf_init(&b);
    int rc = 0;
    if (d->index > 0) {
        swap_text(&c->t->decs[i], last ? "" : " ", d->hold.data, d->hold.len, &b);
        rc = lf_buf_check(&b, err);
        if (rc == 0)
            rc = feed(c, i + 1, b.data, b.len, out, err);
    }
    lf_buf_fini(&b);
    lf_buf_clear(&d->hold);
    lf_buf_add(&d->hold, p, n);
    d->index = last ? 0 : 1;
    return rc == 0 ? lf_buf_check(&d->hold, err) : rc;
}

/* Steps whose result depends on the token and its place only. */
static int simple(lf_tok_chain *c, size_t i, const char *p, size_t n, lf_buf *out, lf_err *err)
{
    const lf_decstep *st = &c->t->decs[i];
    struct lf_dec_state *d = &c->step[i];
    lf_buf b;
    lf_buf_init(&b);
    int rc = 0;
    bool first = d->index == 0;
    if (st->type == LF_DEC_REPLACE)
        rc = lf_tok_replace(&st->rep, &d->re, &b, (const uint8_t *)p, n, err);
    else if (st->type == LF_DEC_WORDPIECE)
        wordpiece(st, first, p, n, &b);
    else if (st->type == LF_DEC_METASPACE)
        swap_text(st, first && st->drop_first ? "" : " ", p, n, &b);
    else { /* JOIN */
        if (!first)
            lf_buf_addc(&b, ' ');
        lf_buf_add(&b, p, n);
    }
    if (!st->fused)
        d->index++;
    if (rc == 0)
        rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = feed(c, i + 1, b.data, b.len, out, err);
    lf_buf_fini(&b);
    return rc;
}

static int feed(lf_tok_chain *c, size_t i, const char *p, size_t n, lf_buf *out, lf_err *err)
{
    if (i == c->t->n_decs) {
        lf_buf_add(out, p, n);
        return 0;
    }
    switch (c->t->decs[i].type) {
    case LF_DEC_FUSE:
        return feed(c, i + 1, p, n, out, err);
    case LF_DEC_BYTEFALLBACK:
        return byte_fallback(c, i, p, n, out, err);
    case LF_DEC_BPE:
        return bpe_decoder(c, i, p, n, false, out, err);
    case LF_DEC_STRIP:
        strip(&c->t->decs[i], &c->step[i], &p, &n);
        return feed(c, i + 1, p, n, out, err);
    default:
        return simple(c, i, p, n, out, err);
    }
}

/* ---- sentencepiece ---- */

/* A byte that cannot belong to a character is U+FFFD; the bytes after it are looked at anew. */
static void spm_byte(lf_tok_stream *d, uint8_t b, lf_buf *out)
{
    d->pend[d->n_pend++] = b;
    while (d->n_pend > 0) {
        if (lf_utf8_len((const char *)d->pend, d->n_pend) == d->n_pend) {
            lf_buf_add(out, d->pend, d->n_pend);
            d->n_pend = 0;
        } else if (may_grow(d->pend, d->n_pend)) {
            return;
        } else {
            lf_buf_add(out, REPLACEMENT, 3);
            memmove(d->pend, d->pend + 1, --d->n_pend);
            /* What is left may begin with whole characters of its own. */
            for (size_t k; d->n_pend && (k = lf_utf8_len((const char *)d->pend, d->n_pend)) > 0;) {
                lf_buf_add(out, d->pend, k);
                memmove(d->pend, d->pend + k, d->n_pend -= (unsigned)k);
            }
        }
    }
}

static void spm_flush(lf_tok_stream *d, lf_buf *out)
{
    for (; d->n_pend > 0; d->n_pend--)
        lf_buf_add(out, REPLACEMENT, 3);
}

static void spm_push(lf_tok_stream *d, const lf_tokenizer *t, const lf_token *tok, lf_buf *out)
{
    static const char mark[] = "\xE2\x96\x81";
    const char *p = (const char *)tok->text;
    size_t n = tok->n_text, before = out->len;
    if (tok->kind == LF_TOKEN_BYTE) {
        spm_byte(d, tok->bytes[0], out);
        d->some = d->some || out->len > before;
        return;
    }
    spm_flush(d, out);
    d->some = d->some || out->len > before;
    bool at_front = !d->seen_front && !d->some;
    d->seen_front = false;
    before = out->len;
    if (tok->kind == LF_TOKEN_UNK) {
        lf_buf_adds(out, t->spm->unk_surface);
    } else if (tok->kind == LF_TOKEN_TEXT) {
        if (at_front && (t->spm->add_prefix || t->spm->remove_extra) && n >= 3 &&
            memcmp(p, mark, 3) == 0) {
            p += 3;
            n -= 3;
            d->seen_front = !t->spm->remove_extra;
        }
        const lf_decstep st = {.text = (char *)(uintptr_t)mark, .n_text = 3};
        swap_text(&st, " ", p, n, out);
    } else if (tok->kind == LF_TOKEN_ADDED) {
        lf_buf_add(out, p, n);
    }
    d->some = d->some || out->len > before || d->seen_front;
}

/* ---- streams ---- */

static int chain_create(lf_tok_chain **out, const lf_tokenizer *t, lf_err *err)
{
    lf_tok_chain *c = lf_calloc(1, sizeof(*c), err);
    if (!c)
        return LF_ENOMEM;
    c->t = t;
    for (size_t i = 0; i < t->n_decs; i++)
        lf_buf_init(&c->step[i].hold);
    *out = c;
    return 0;
}

static void chain_destroy(lf_tok_chain *c)
{
    for (size_t i = 0; c && i < c->t->n_decs; i++) {
        lf_buf_fini(&c->step[i].hold);
        lf_regex_state_destroy(c->step[i].re);
    }
    free(c);
}

static int chain_finish(lf_tok_chain *c, lf_buf *out, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < c->t->n_decs && rc == 0; i++) {
        if (c->t->decs[i].type == LF_DEC_BYTEFALLBACK)
            rc = flush_bytes(c, i, out, err);
        else if (c->t->decs[i].type == LF_DEC_BPE)
            rc = bpe_decoder(c, i, "", 0, true, out, err);
    }
    return rc;
}

int lf_tok_one_token(const lf_tokenizer *t, const char *text, size_t n, lf_buf *out, lf_err *err)
{
    lf_tok_chain *c;
    int rc = chain_create(&c, t, err);
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < t->n_decs; i++) {
        c->step[i].index = t->decs[i].type != LF_DEC_BPE && t->decs[i].type != LF_DEC_JOIN;
        c->step[i].past = t->decs[i].fused;
    }
    rc = feed(c, 0, text, n, out, err);
    if (rc == 0)
        rc = chain_finish(c, out, err);
    chain_destroy(c);
    return rc;
}

int lf_tok_stream_push(lf_tok_stream *d, const lf_tokenizer *t, uint32_t id, bool skip_special,
                       lf_buf *out, lf_err *err)
{
    const uint8_t *p;
    size_t n;
    if (!lf_tokenizer_token(t, id, &p, &n))
        return lf_fail(err, LF_EINVAL, "token id %u is not in the tokenizer's vocabulary of %u", id,
                       t->n_tokens);
    if (skip_special && t->tokens[id].special)
        return 0;
    if (t->spm) {
        spm_push(d, t, &t->tokens[id], out);
        return lf_buf_check(out, err);
    }
    if (t->decs[0].type != LF_DEC_BYTELEVEL) {
        int rc = d->chain ? 0 : chain_create(&d->chain, t, err);
        if (rc == 0)
            rc =
                feed(d->chain, 0, (const char *)t->tokens[id].text, t->tokens[id].n_text, out, err);
        return rc == 0 ? lf_buf_check(out, err) : rc;
    }
    for (size_t i = 0; i < n; i++) {
        if (p[i] < 0x80 && d->n_pend == 0)
            lf_buf_addc(out, (char)p[i]);
        else
            push_byte(d, p[i], out);
    }
    return lf_buf_check(out, err);
}

void lf_tok_stream_drop(lf_tok_stream *d)
{
    chain_destroy(d->chain);
    *d = (lf_tok_stream){0};
}

int lf_tok_stream_finish(lf_tok_stream *d, const lf_tokenizer *t, lf_buf *out, lf_err *err)
{
    int rc = d->chain ? chain_finish(d->chain, out, err) : 0;
    if (t->spm)
        spm_flush(d, out);
    else if (d->n_pend)
        lf_buf_add(out, REPLACEMENT, 3);
    lf_tok_stream_drop(d);
    return rc == 0 ? lf_buf_check(out, err) : rc;
}

int lf_tokenizer_decode(const lf_tokenizer *t, const uint32_t *ids, size_t n, bool skip_special,
                        lf_buf *out, lf_err *err)
{
    lf_tok_stream d = {0};
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = lf_tok_stream_push(&d, t, ids[i], skip_special, out, err);
    if (rc == 0)
        return lf_tok_stream_finish(&d, t, out, err);
    lf_tok_stream_drop(&d);
    return rc;
}
