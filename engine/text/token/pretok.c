/* SPDX-License-Identifier: Apache-2.0
 *
 * The pre-tokenizers of a tokenizer.json: each step lists spans of its part (matches and the gaps
 * between them), joins them by its behaviour and hands every span to the next step; what the last
 * step leaves are the words.
 */
#include "config.h"

#include <string.h>

#include "engine/text/token/tokenizer_priv.h"
#include "engine/text/token/uniclass.h"
#include "engine/text/token/unitext.h"

int lf_tok_scan_words(lf_tok_state *s, enum lf_scan_kind kind, const uint8_t *p, size_t len,
                      lf_err *err)
{
    const uint8_t *cls = s->t->cls, *end = p + len;
    int rc = 0;
    while (p < end && rc == 0) {
        size_t n = lf_scan_next(kind, cls, p, end);
        rc = lf_tok_word(s, p, n, end, err);
        p += n;
    }
    return rc;
}

static int span_add(lf_spans *c, size_t start, size_t end, bool match, lf_err *err)
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

/* Every match and every gap between matches of step i's pattern, in order; covers the text. */
static int find_pattern(lf_tok_state *s, size_t i, const uint8_t *p, size_t len, lf_err *err)
{
    const lf_pretok *pt = &s->t->pretok[i];
    lf_spans *c = &s->cut[i];
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
    while (rc == 0 && from <= len &&
           (rc = lf_regex_find(s->re[i], p, len, from, &start, &end, err)) == 1) {
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

/* Does the character at p match a step that looks at single characters? */
static bool char_matches(const lf_tokenizer *t, const lf_pretok *pt, const uint8_t *p, unsigned *n)
{
    uint32_t c = lf_utf8_get(p, n);
    switch (pt->type) {
    case LF_PRETOK_DIGITS:
        return t->cls[c] & LF_UC_NUM;
    case LF_PRETOK_SPACE:
        return t->cls[c] & LF_UC_S;
    case LF_PRETOK_PUNCT:
        return t->ucls[c] & LF_UT_PUNCT;
    default: /* METASPACE, DELIM: one character */
        return *n == pt->n_mark && memcmp(p, pt->mark, *n) == 0;
    }
}

static int find_chars(lf_tok_state *s, size_t i, const uint8_t *p, size_t len, lf_err *err)
{
    lf_spans *c = &s->cut[i];
    size_t done = 0;
    int rc = 0;
    for (size_t at = 0; at < len && rc == 0;) {
        unsigned n;
        bool match = char_matches(s->t, &s->t->pretok[i], p + at, &n);
        if (match && done < at)
            rc = span_add(c, done, at, false, err);
        if (match && rc == 0)
            rc = span_add(c, at, at + n, true, err);
        at += n;
        if (match)
            done = at;
    }
    if (rc == 0 && done != len)
        rc = span_add(c, done, len, false, err);
    return rc;
}

/* Runs of \w and runs of neither \w nor white space; white space between is a match (and goes). */
static int find_words(lf_tok_state *s, size_t i, const uint8_t *p, size_t len, lf_err *err)
{
    const uint8_t *cls = s->t->cls;
    int rc = 0;
    for (size_t at = 0, start; at < len && rc == 0;) {
        unsigned n, kind = cls[lf_utf8_get(p + at, &n)] & (LF_UC_W | LF_UC_S);
        for (start = at; at < len && (cls[lf_utf8_get(p + at, &n)] & (LF_UC_W | LF_UC_S)) == kind;
             at += n)
            ;
        rc = span_add(&s->cut[i], start, at, kind == LF_UC_S, err);
    }
    return rc;
}

static int find_spans(lf_tok_state *s, size_t i, const uint8_t *p, size_t len, lf_err *err)
{
    enum lf_pretok_type type = s->t->pretok[i].type;
    s->cut[i].n = 0;
    if (type == LF_PRETOK_SPLIT || type == LF_PRETOK_BYTELEVEL)
        return find_pattern(s, i, p, len, err);
    return type == LF_PRETOK_WORDS ? find_words(s, i, p, len, err) : find_chars(s, i, p, len, err);
}

/* Join spans by the behaviour, in place, as the library folds them (normalizer.rs, split): a match
 * joins its left or right neighbour when that is not a match itself; Contiguous joins equals. */
static void join_spans(lf_spans *c, enum lf_split_behavior behavior)
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

/* ByteLevel, always the last step: words keep their bytes, the vocabulary has been mapped when it
 * was read. */
static int byte_level(lf_tok_state *s, size_t i, const uint8_t *p, size_t len, lf_err *err)
{
    const lf_pretok *pt = &s->t->pretok[i];
    if (pt->add_prefix_space && p[0] != ' ') {
        lf_buf *b = &s->changed[i];
        lf_buf_clear(b);
        lf_buf_addc(b, ' ');
        lf_buf_add(b, p, len);
        int rc = lf_buf_check(b, err);
        if (rc != 0)
            return rc;
        p = (const uint8_t *)b->data;
        len = b->len;
    }
    if (!pt->use_regex)
        return lf_tok_word(s, p, len, p + len, err);
    if (!(s->flags & LF_TOK_NO_SCANNER))
        return lf_tok_scan_words(s, LF_SCAN_GPT2, p, len, err);
    int rc = find_spans(s, i, p, len, err);
    for (size_t k = 0; rc == 0 && k < s->cut[i].n; k++)
        if (s->cut[i].v[k][0] < s->cut[i].v[k][1])
            rc = lf_tok_word(s, p + s->cut[i].v[k][0], s->cut[i].v[k][1] - s->cut[i].v[k][0],
                             p + len, err);
    return rc;
}

/* Spaces become the mark, and one may go in front. */
static int metaspace(lf_tok_state *s, size_t i, const uint8_t **p, size_t *len, bool at_start,
                     lf_err *err)
{
    const lf_pretok *pt = &s->t->pretok[i];
    lf_buf *b = &s->changed[i];
    const uint8_t *q = *p, *end = *p + *len, *hit;
    lf_buf_clear(b);
    bool has = *q == ' ' || (*len >= pt->n_mark && memcmp(q, pt->mark, pt->n_mark) == 0);
    if (!has && (pt->prepend == LF_PREPEND_ALWAYS || (pt->prepend == LF_PREPEND_FIRST && at_start)))
        lf_buf_add(b, pt->mark, pt->n_mark);
    for (; (hit = memchr(q, ' ', (size_t)(end - q))) != NULL; q = hit + 1) {
        lf_buf_add(b, q, (size_t)(hit - q));
        lf_buf_add(b, pt->mark, pt->n_mark);
    }
    lf_buf_add(b, q, (size_t)(end - q));
    *p = (const uint8_t *)b->data;
    *len = b->len;
    return lf_buf_check(b, err);
}

int lf_tok_pretokenize(lf_tok_state *s, size_t i, const uint8_t *p, size_t len, bool at_start,
                       lf_err *err)
{
    if (i == s->t->n_pretok)
        return lf_tok_word(s, p, len, p + len, err);
    const lf_pretok *pt = &s->t->pretok[i];
    if (pt->type == LF_PRETOK_BYTELEVEL)
        return byte_level(s, i, p, len, err);
    int rc = pt->type == LF_PRETOK_METASPACE ? metaspace(s, i, &p, &len, at_start, err) : 0;
    if (rc == 0 && pt->type == LF_PRETOK_METASPACE && !pt->split)
        return lf_tok_pretokenize(s, i + 1, p, len, at_start, err);
    if (rc == 0)
        rc = find_spans(s, i, p, len, err);
    if (rc != 0)
        return rc;
    lf_spans *c = &s->cut[i];
    for (size_t k = 0; k < c->n && pt->invert; k++)
        c->match[k] = !c->match[k];
    if (pt->behavior != LF_SPLIT_ISOLATED && pt->behavior != LF_SPLIT_REMOVED)
        join_spans(c, pt->behavior);
    for (size_t k = 0; rc == 0 && k < c->n; k++) {
        if (c->v[k][0] < c->v[k][1] && !(pt->behavior == LF_SPLIT_REMOVED && c->match[k]))
            rc = lf_tok_pretokenize(s, i + 1, p + c->v[k][0], c->v[k][1] - c->v[k][0],
                                    at_start && c->v[k][0] == 0, err);
    }
    return rc;
}
