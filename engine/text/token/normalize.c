/* SPDX-License-Identifier: Apache-2.0
 *
 * The normalizers of a tokenizer.json, one function each: valid UTF-8 in, valid UTF-8 appended to a
 * buffer.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/utf8.h"
#include "engine/text/token/tokenizer_priv.h"
#include "engine/text/token/uniclass.h"
#include "engine/text/token/unitext.h"

void lf_tok_bufs_init(struct lf_tok_bufs *bufs)
{
    memset(bufs, 0, sizeof(*bufs));
    lf_buf_init(&bufs->a);
    lf_buf_init(&bufs->b);
}

void lf_tok_bufs_fini(struct lf_tok_bufs *bufs)
{
    lf_buf_fini(&bufs->a);
    lf_buf_fini(&bufs->b);
    free(bufs->scratch.cp);
    for (size_t i = 0; i < LF_TOK_STEPS_MAX; i++)
        lf_regex_state_destroy(bufs->re[i]);
}

static void put_char(lf_buf *out, uint32_t c)
{
    char u[4];
    lf_buf_add(out, u, lf_utf8_put(u, c));
}

static void put_lower(lf_buf *out, uint32_t c)
{
    if (c == 0x130) /* the one character whose lower case has two */
        lf_buf_add(out, "i\xCC\x87", 3);
    else
        put_char(out, lf_unitext_lower(c));
}

static void lower(lf_buf *out, const uint8_t *p, size_t len)
{
    unsigned k;
    for (size_t i = 0; i < len; i += k)
        put_lower(out, lf_utf8_get(p + i, &k));
}

static void drop(const uint8_t *ucls, unsigned flag, lf_buf *out, const uint8_t *p, size_t len)
{
    unsigned k;
    for (size_t i = 0; i < len; i += k)
        if (!(ucls[lf_utf8_get(p + i, &k)] & flag))
            lf_buf_add(out, p + i, k);
}

static bool chinese(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

/* clean_text and handle_chinese_chars in one pass. */
static void bert_clean(const lf_tokenizer *t, const lf_normstep *st, lf_buf *out, const uint8_t *p,
                       size_t len)
{
    unsigned k;
    for (size_t i = 0; i < len; i += k) {
        uint32_t c = lf_utf8_get(p + i, &k);
        if (st->clean && (t->ucls[c] & LF_UT_OTHER))
            continue;
        bool wide = st->chinese && chinese(c);
        if (wide)
            lf_buf_addc(out, ' ');
        if (st->clean && (t->cls[c] & LF_UC_S))
            lf_buf_addc(out, ' ');
        else
            lf_buf_add(out, p + i, k);
        if (wide)
            lf_buf_addc(out, ' ');
    }
}

static int bert(const lf_tokenizer *t, const lf_normstep *st, struct lf_tok_bufs *bufs, lf_buf *out,
                const uint8_t *p, size_t len, lf_err *err)
{
    lf_buf one, two;
    lf_buf_init(&one);
    lf_buf_init(&two);
    lf_bytes q = {p, len};
    int rc = 0;
    if (st->clean || st->chinese) {
        bert_clean(t, st, &one, p, len);
        q = (lf_bytes){(const uint8_t *)one.data, one.len};
    }
    if (st->accents) {
        rc = lf_text_normalize(&q, &two, &bufs->scratch, LF_NORM_NFD, t->cls, err);
        if (rc == 0 && !st->lower)
            drop(t->ucls, LF_UT_MN, out, q.p, q.n);
    }
    unsigned k;
    for (size_t i = 0; rc == 0 && st->lower && i < q.n; i += k) {
        uint32_t c = lf_utf8_get(q.p + i, &k);
        if (!st->accents || !(t->ucls[c] & LF_UT_MN))
            put_lower(out, c);
    }
    if (!st->accents && !st->lower)
        lf_buf_add(out, q.p, q.n);
    if (rc == 0 && (one.failed || two.failed))
        rc = lf_buf_check(one.failed ? &one : &two, err);
    lf_buf_fini(&one);
    lf_buf_fini(&two);
    return rc;
}

static void strip(const uint8_t *cls, const lf_normstep *st, lf_buf *out, const uint8_t *p,
                  size_t len)
{
    unsigned k;
    size_t from = 0, to = len;
    while (st->left && from < to && (cls[lf_utf8_get(p + from, &k)] & LF_UC_S))
        from += k;
    while (st->right && to > from) {
        const uint8_t *q = lf_utf8_prev(p + to);
        if (!(cls[lf_utf8_get(q, &k)] & LF_UC_S))
            break;
        to = (size_t)(q - p);
    }
    lf_buf_add(out, p + from, to - from);
}

static void replace_text(const lf_normstep *st, lf_buf *out, const uint8_t *p, size_t len)
{
    const uint8_t *end = p + len;
    while (p < end) {
        const uint8_t *hit = st->n_from == 1 ? memchr(p, (uint8_t)st->from[0], (size_t)(end - p))
                                             : memmem(p, (size_t)(end - p), st->from, st->n_from);
        lf_buf_add(out, p, (size_t)((hit ? hit : end) - p));
        if (!hit)
            break;
        lf_buf_add(out, st->to, st->n_to);
        p = hit + st->n_from;
    }
}

static int replace_regex(const lf_normstep *st, lf_regex_state **state, lf_buf *out,
                         const uint8_t *p, size_t len, lf_err *err)
{
    if (!*state && !(*state = lf_regex_state_create(st->re, err)))
        return LF_ENOMEM;
    size_t done = 0, from = 0, start, end, last_end = SIZE_MAX;
    int rc = 0;
    while (from <= len && (rc = lf_regex_find(*state, p, len, from, &start, &end, err)) == 1) {
        unsigned k = 1;
        if (start == end && end == last_end) { /* as in pretok.c */
            if (from < len)
                (void)lf_utf8_get(p + from, &k);
            from += k;
            continue;
        }
        lf_buf_add(out, p + done, start - done);
        lf_buf_add(out, st->to, st->n_to);
        done = from = last_end = end;
    }
    if (rc == 0)
        lf_buf_add(out, p + done, len - done);
    return rc < 0 ? rc : 0;
}

int lf_tok_replace(const lf_normstep *st, lf_regex_state **state, lf_buf *out, const uint8_t *p,
                   size_t len, lf_err *err)
{
    if (st->re)
        return replace_regex(st, state, out, p, len, err);
    replace_text(st, out, p, len);
    return 0;
}

void lf_normstep_fini(lf_normstep *st)
{
    lf_regex_destroy(st->re);
    free(st->from);
    free(st->to);
    lf_charsmap_fini(&st->map);
}

static bool nmt_removes(uint32_t c)
{
    return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
           c == 0x9F;
}

static void nmt(lf_buf *out, const uint8_t *p, size_t len)
{
    unsigned k;
    for (size_t i = 0; i < len; i += k) {
        uint32_t c = lf_utf8_get(p + i, &k);
        if (nmt_removes(c))
            continue;
        if (c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
            (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
            c == 0xFEFF || c == 0xFFFD)
            lf_buf_addc(out, ' ');
        else
            lf_buf_add(out, p + i, k);
    }
}

static int apply(const lf_tokenizer *t, size_t i, struct lf_tok_bufs *bufs, lf_buf *out,
                 const uint8_t *p, size_t len, lf_err *err)
{
    const lf_normstep *st = &t->norms[i];
    switch (st->type) {
    case LF_NORMSTEP_LOWER:
        lower(out, p, len);
        break;
    case LF_NORMSTEP_STRIP_ACCENTS:
        drop(t->ucls, LF_UT_MARK, out, p, len);
        break;
    case LF_NORMSTEP_BERT:
        return bert(t, st, bufs, out, p, len, err);
    case LF_NORMSTEP_STRIP:
        strip(t->cls, st, out, p, len);
        break;
    case LF_NORMSTEP_REPLACE:
        return lf_tok_replace(st, &bufs->re[i], out, p, len, err);
    case LF_NORMSTEP_PREPEND:
        if (len)
            lf_buf_add(out, st->to, st->n_to);
        lf_buf_add(out, p, len);
        break;
    case LF_NORMSTEP_PRECOMPILED:
        lf_charsmap_apply(&st->map, p, len, out);
        break;
    case LF_NORMSTEP_NMT:
        nmt(out, p, len);
        break;
    case LF_NORMSTEP_BYTELEVEL:
        for (size_t k = 0; k < len; k++)
            put_char(out, lf_char_of_byte(p[k]));
        break;
    case LF_NORMSTEP_FORM:
        break; /* the caller's */
    }
    return 0;
}

/* A match at the very front: what takes its place counts as the match's last character. */
static bool replaces_front(const lf_normstep *st, lf_regex_state **state, const uint8_t *p,
                           size_t len)
{
    size_t start = 0, end = st->n_from, chars = 0;
    if (st->re) {
        if ((!*state && !(*state = lf_regex_state_create(st->re, NULL))) ||
            lf_regex_find(*state, p, len, 0, &start, &end, NULL) != 1 || start != 0)
            return false;
    } else if (len < st->n_from || memcmp(p, st->from, st->n_from) != 0) {
        return false;
    }
    for (size_t i = 0; i < end; i++)
        chars += (p[i] & 0xC0) != 0x80;
    return chars > 1 || (chars == 1 && st->n_to == 0);
}

/* Does the step take the first character away? Metaspace's "first" asks for the text's own
 * beginning. */
static bool removes_front(const lf_tokenizer *t, const lf_normstep *st, lf_regex_state **state,
                          const uint8_t *p, size_t len)
{
    unsigned k;
    if (len == 0 || !t->front_matters)
        return false;
    if (st->type == LF_NORMSTEP_REPLACE)
        return replaces_front(st, state, p, len);
    uint32_t c = lf_utf8_get(p, &k);
    switch (st->type) {
    case LF_NORMSTEP_STRIP:
        return st->left && (t->cls[c] & LF_UC_S);
    case LF_NORMSTEP_STRIP_ACCENTS:
        return t->ucls[c] & LF_UT_MARK;
    case LF_NORMSTEP_BERT:
        return (st->clean && (t->ucls[c] & LF_UT_OTHER)) ||
               (st->accents && (t->ucls[c] & LF_UT_MN));
    case LF_NORMSTEP_NMT:
        return nmt_removes(c);
    default:
        return false;
    }
}

int lf_tok_normalize(const lf_tokenizer *t, struct lf_tok_bufs *bufs, lf_bytes *text, lf_err *err)
{
    bufs->front_gone = false;
    int rc = 0;
    for (size_t i = 0; i < t->n_norms && rc == 0; i++) {
        const lf_normstep *st = &t->norms[i];
        lf_buf *to = text->p == (const uint8_t *)bufs->a.data ? &bufs->b : &bufs->a;
        bufs->front_gone = bufs->front_gone || removes_front(t, st, &bufs->re[i], text->p, text->n);
        if (st->type == LF_NORMSTEP_FORM) {
            rc = lf_text_normalize(text, to, &bufs->scratch, st->form, t->cls, err);
            continue;
        }
        lf_buf_clear(to);
        rc = apply(t, i, bufs, to, text->p, text->n, err);
        if (rc == 0)
            rc = lf_buf_check(to, err);
        *text = (lf_bytes){(const uint8_t *)to->data, to->len};
    }
    return rc;
}
