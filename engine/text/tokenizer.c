/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoding and decoding with a loaded tokenizer: the order of steps is tokenizer.h's, each step is in a file of its
 * own.
 */
#include "config.h"

#include "engine/text/tokenizer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/utf8.h"
#include "engine/text/tokenizer_priv.h"
#include "engine/text/uniclass.h"

typedef struct spans {
    size_t (*v)[2]; /* [n][2]: start, end */
    bool *match;
    size_t n, cap_v, cap_match;
} spans;

struct lf_tok_state {
    const lf_tokenizer *t;
    lf_bpe_state *bpe;
    lf_regex_state *re[LF_TOK_STEPS_MAX];
    spans cut[LF_TOK_STEPS_MAX];
    lf_buf repaired, prefixed;
    struct lf_tok_bufs norm;
    /* One call's arguments. */
    unsigned flags;
    lf_ids *out;         /* encoding */
    lf_tok_word_fn word; /* or listing words */
    void *word_arg;
};

lf_tok_state *lf_tok_state_create(const lf_tokenizer *t, lf_err *err)
{
    lf_tok_state *s = lf_calloc(1, sizeof(*s), err);
    if (!s)
        return NULL;
    s->t = t;
    lf_buf_init(&s->repaired);
    lf_buf_init(&s->prefixed);
    lf_buf_init(&s->norm.a);
    lf_buf_init(&s->norm.b);
    s->bpe = lf_bpe_state_create(err);
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
    }
    lf_buf_fini(&s->repaired);
    lf_buf_fini(&s->prefixed);
    lf_buf_fini(&s->norm.a);
    lf_buf_fini(&s->norm.b);
    free(s->norm.scratch.cp);
    free(s);
}

static inline int emit(lf_tok_state *s, const uint8_t *p, size_t n, const uint8_t *end, lf_err *err)
{
    if (s->word)
        return s->word(s->word_arg, p, n, err);
    return lf_bpe_encode(&s->t->bpe, s->bpe, p, n, end, !(s->flags & LF_TOK_NO_CACHE), s->out, err);
}

static int emit_scan(lf_tok_state *s, enum lf_scan_kind kind, const uint8_t *p, size_t len, lf_err *err)
{
    const uint8_t *cls = s->t->cls, *end = p + len;
    int rc = 0;
    while (p < end && rc == 0) {
        size_t n = lf_scan_next(kind, cls, p, end);
        rc = emit(s, p, n, end, err);
        p += n;
    }
    return rc;
}

static int span_add(spans *c, size_t start, size_t end, bool match, lf_err *err)
{
    int rc = lf_grow(&c->v, &c->cap_v, c->n, sizeof(*c->v), err);
    if (rc == 0)
        rc = lf_grow(&c->match, &c->cap_match, c->n, sizeof(*c->match), err);
    if (rc != 0)
        return rc;
    c->v[c->n][0] = start;
    c->v[c->n][1] = end;
    c->match[c->n++] = match;
    return 0;
}

/* Every match and every gap between matches of step i, in order; covers the text. */
static int find_spans(lf_tok_state *s, size_t i, const uint8_t *p, size_t len, lf_err *err)
{
    const lf_pretok *pt = &s->t->pretok[i];
    spans *c = &s->cut[i];
    c->n = 0;
    int rc = 0;
    if (pt->scan != LF_SCAN_NONE && !(s->flags & LF_TOK_NO_SCANNER)) {
        for (size_t at = 0, n; at < len && rc == 0; at += n) {
            n = lf_scan_next(pt->scan, s->t->cls, p + at, p + len);
            rc = span_add(c, at, at + n, true, err);
        }
        return rc;
    }
    /* Empty matches are kept, as in the library, except one right after a match. */
    size_t done = 0, from = 0, start, end, last_end = SIZE_MAX;
    while (rc == 0 && from <= len && (rc = lf_regex_find(pt->re, s->re[i], p, len, from, &start, &end, err)) == 1) {
        rc = 0;
        if (start == end && end == last_end) {
            unsigned n = 1;
            if (from < len)
                (void)lf_utf8_get(p + from, &n);
            from += n;
            continue;
        }
        if (done != start)
            rc = span_add(c, done, start, false, err);
        if (rc == 0)
            rc = span_add(c, start, end, true, err);
        done = from = last_end = end;
    }
    if (rc == 0 && done != len)
        rc = span_add(c, done, len, false, err);
    return rc;
}

static int find_digits(lf_tok_state *s, size_t i, const uint8_t *p, size_t len, lf_err *err)
{
    spans *c = &s->cut[i];
    c->n = 0;
    size_t done = 0;
    int rc = 0;
    for (size_t at = 0; at < len && rc == 0;) {
        unsigned n;
        bool digit = s->t->cls[lf_utf8_get(p + at, &n)] & LF_UC_NUM;
        if (digit && done < at)
            rc = span_add(c, done, at, false, err);
        if (digit && rc == 0)
            rc = span_add(c, at, at + n, true, err);
        at += n;
        if (digit)
            done = at;
    }
    if (rc == 0 && done != len)
        rc = span_add(c, done, len, false, err);
    return rc;
}

/* Join spans by the behaviour, in place, as the library folds them (normalizer.rs, split): a match joins its left or
 * right neighbour when that is not a match itself; Contiguous joins equals. */
static void join_spans(spans *c, enum lf_split_behavior behavior)
{
    size_t k = 0;
    bool prev = false;
    if (behavior == LF_SPLIT_MERGED_NEXT) {
        for (size_t i = c->n; i-- > 0;) {
            if (c->match[i] && !prev && k > 0)
                c->v[c->n - k][0] = c->v[i][0];
            else {
                k++;
                memmove(c->v[c->n - k], c->v[i], sizeof(*c->v));
            }
            prev = c->match[i];
        }
        memmove(c->v, c->v + (c->n - k), k * sizeof(*c->v));
        c->n = k;
        return;
    }
    for (size_t i = 0; i < c->n; i++) {
        bool m = c->match[i];
        bool join = behavior == LF_SPLIT_MERGED_PREV ? m && !prev : m == prev;
        if (join && k > 0)
            c->v[k - 1][1] = c->v[i][1];
        else
            memmove(c->v[k++], c->v[i], sizeof(*c->v));
        prev = m;
    }
    c->n = k;
}

static int pretokenize(lf_tok_state *s, size_t i, const uint8_t *p, size_t len, lf_err *err);

static int byte_level(lf_tok_state *s, size_t i, const uint8_t *p, size_t len, lf_err *err)
{
    const lf_pretok *pt = &s->t->pretok[i];
    if (pt->add_prefix_space && p[0] != ' ') {
        lf_buf_clear(&s->prefixed);
        lf_buf_addc(&s->prefixed, ' ');
        lf_buf_add(&s->prefixed, p, len);
        int rc = lf_buf_check(&s->prefixed, err);
        if (rc != 0)
            return rc;
        p = (const uint8_t *)s->prefixed.data;
        len = s->prefixed.len;
    }
    if (!pt->use_regex)
        return emit(s, p, len, p + len, err);
    if (!(s->flags & LF_TOK_NO_SCANNER))
        return emit_scan(s, LF_SCAN_GPT2, p, len, err);
    int rc = find_spans(s, i, p, len, err);
    for (size_t k = 0; rc == 0 && k < s->cut[i].n; k++)
        if (s->cut[i].v[k][0] < s->cut[i].v[k][1])
            rc = emit(s, p + s->cut[i].v[k][0], s->cut[i].v[k][1] - s->cut[i].v[k][0], p + len, err);
    return rc;
}

/* Steps i and later over one part of the text; len > 0. */
static int pretokenize(lf_tok_state *s, size_t i, const uint8_t *p, size_t len, lf_err *err)
{
    const lf_pretok *pt = &s->t->pretok[i];
    if (pt->type == LF_PRETOK_BYTELEVEL)
        return byte_level(s, i, p, len, err);
    bool digits = pt->type == LF_PRETOK_DIGITS;
    int rc = digits ? find_digits(s, i, p, len, err) : find_spans(s, i, p, len, err);
    if (rc != 0)
        return rc;
    spans *c = &s->cut[i];
    enum lf_split_behavior behavior = pt->behavior;
    if (digits)
        behavior = pt->individual ? LF_SPLIT_ISOLATED : LF_SPLIT_CONTIGUOUS;
    for (size_t k = 0; k < c->n && pt->invert; k++)
        c->match[k] = !c->match[k];
    if (behavior != LF_SPLIT_ISOLATED && behavior != LF_SPLIT_REMOVED)
        join_spans(c, behavior);
    for (size_t k = 0; rc == 0 && k < c->n; k++) {
        if (c->v[k][0] < c->v[k][1] && !(behavior == LF_SPLIT_REMOVED && c->match[k]))
            rc = pretokenize(s, i + 1, p + c->v[k][0], c->v[k][1] - c->v[k][0], err);
    }
    return rc;
}

static int words_of(lf_tok_state *s, const uint8_t *text, size_t len, lf_err *err)
{
    if (len == 0)
        return 0;
    if (s->t->fast != LF_SCAN_NONE && !(s->flags & LF_TOK_NO_SCANNER))
        return emit_scan(s, s->t->fast, text, len, err);
    return pretokenize(s, 0, text, len, err);
}

static int normed_piece(void *arg, const uint8_t *text, size_t len, const lf_added *added, lf_err *err)
{
    lf_tok_state *s = arg;
    return added ? lf_ids_add(s->out, added->id, err) : words_of(s, text, len, err);
}

int lf_tok_normalize(const lf_tokenizer *t, struct lf_tok_bufs *bufs, const uint8_t **out, size_t *out_len,
                     const uint8_t *text, size_t len, lf_err *err)
{
    *out = text;
    *out_len = len;
    int rc = 0;
    for (size_t i = 0; i < t->n_norms && rc == 0; i++) {
        lf_buf *to = *out == (const uint8_t *)bufs->a.data ? &bufs->b : &bufs->a;
        rc = lf_text_normalize(out, out_len, to, &bufs->scratch, t->norms[i], t->cls, *out, *out_len, err);
    }
    return rc;
}

static int raw_piece(void *arg, const uint8_t *text, size_t len, const lf_added *added, lf_err *err)
{
    lf_tok_state *s = arg;
    if (added)
        return lf_ids_add(s->out, added->id, err);
    int rc = lf_tok_normalize(s->t, &s->norm, &text, &len, text, len, err);
    if (rc != 0)
        return rc;
    return lf_added_split(&s->t->normed, s->t->added, s->t->cls, s->flags & LF_TOK_SPECIAL_TEXT, text, len,
                          normed_piece, s, err);
}

/* The text as valid UTF-8. */
static int prepare(lf_tok_state *s, const char *text, size_t len, unsigned flags, const uint8_t **p, size_t *n,
                   uint64_t *replaced, lf_err *err)
{
    if (len > LF_TOK_TEXT_MAX)
        return lf_fail(err, LF_EINVAL, "a text of %zu bytes is above the limit of %zu; split it", len, LF_TOK_TEXT_MAX);
    s->flags = flags;
    return lf_text_repair(p, n, &s->repaired, (const uint8_t *)text, len, flags & LF_TOK_STRICT, replaced, err);
}

static int add_all(lf_ids *out, const lf_ids *more, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < more->n && rc == 0; i++)
        rc = lf_ids_add(out, more->v[i], err);
    return rc;
}

int lf_tokenizer_encode(lf_tok_state *s, const char *text, size_t len, unsigned flags, lf_ids *out, uint64_t *replaced,
                        lf_err *err)
{
    const lf_tokenizer *t = s->t;
    const uint8_t *p;
    size_t n, at = out->n;
    int rc = prepare(s, text, len, flags, &p, &n, replaced, err);
    if (rc != 0)
        return rc;
    s->out = out;
    s->word = NULL;
    if (flags & LF_TOK_TEMPLATE)
        rc = add_all(out, &t->before, err);
    if (rc == 0)
        rc = lf_added_split(&t->raw, t->added, t->cls, flags & LF_TOK_SPECIAL_TEXT, p, n, raw_piece, s, err);
    if (rc == 0 && (flags & LF_TOK_TEMPLATE))
        rc = add_all(out, &t->after, err);
    if (rc != 0)
        out->n = at;
    s->out = NULL;
    return rc;
}

int lf_tokenizer_words(lf_tok_state *s, const char *text, size_t len, unsigned flags, lf_tok_word_fn fn, void *arg,
                       uint64_t *replaced, lf_err *err)
{
    const uint8_t *p;
    size_t n;
    int rc = prepare(s, text, len, flags, &p, &n, replaced, err);
    if (rc != 0)
        return rc;
    s->word = fn;
    s->word_arg = arg;
    rc = lf_tok_normalize(s->t, &s->norm, &p, &n, p, n, err);
    if (rc == 0)
        rc = words_of(s, p, n, err);
    s->word = NULL;
    return rc;
}

/* ---- decoding ---- */

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
    static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>", "<eos>"};
    for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
        for (size_t i = 0; i < t->n_added; i++)
            if (strcmp(t->added[i].content, names[k]) == 0)
                return t->added[i].id;
    return -1;
}

bool lf_tokenizer_token(const lf_tokenizer *t, uint32_t id, const uint8_t **bytes, size_t *len)
{
    if (id >= t->n_tokens || !t->tokens[id].bytes)
        return false;
    *bytes = t->tokens[id].bytes;
    *len = t->tokens[id].len;
    return true;
}

/* How many bytes at s[0..n) may still become a character: n when s is a proper prefix of a valid sequence, else 0. */
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

/* One byte: pend is always a prefix of a valid sequence, so it is complete, still open, or broken by this byte, in
 * which case what was there is one U+FFFD and the byte starts anew. */
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
        lf_buf_add(out, "\xEF\xBF\xBD", 3);
        bool alone = d->n_pend == 1;
        d->n_pend = 0;
        if (alone)
            return;
    }
}

int lf_tok_stream_push(lf_tok_stream *d, const lf_tokenizer *t, uint32_t id, bool skip_special, lf_buf *out,
                       lf_err *err)
{
    const uint8_t *p;
    size_t n;
    if (!lf_tokenizer_token(t, id, &p, &n))
        return lf_fail(err, LF_EINVAL, "token id %u is not in the tokenizer's vocabulary of %u", id, t->n_tokens);
    if (skip_special && t->tokens[id].special)
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < 0x80 && d->n_pend == 0)
            lf_buf_addc(out, (char)p[i]);
        else
            push_byte(d, p[i], out);
    }
    return lf_buf_check(out, err);
}

void lf_tok_stream_finish(lf_tok_stream *d, lf_buf *out)
{
    if (d->n_pend)
        lf_buf_add(out, "\xEF\xBF\xBD", 3);
    d->n_pend = 0;
}

int lf_tokenizer_decode(const lf_tokenizer *t, const uint32_t *ids, size_t n, bool skip_special, lf_buf *out,
                        lf_err *err)
{
    lf_tok_stream d = {{0}, 0};
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = lf_tok_stream_push(&d, t, ids[i], skip_special, out, err);
    if (rc == 0) {
        lf_tok_stream_finish(&d, out);
        rc = lf_buf_check(out, err);
    }
    return rc;
}
