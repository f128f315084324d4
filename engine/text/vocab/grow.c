/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing a BPE vocabulary. See grow.h.
 */
#include "config.h"

#include "engine/text/vocab/grow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/token/tokenizer_priv.h"
#include "engine/text/token/uniclass.h"
#include "engine/text/vocab/grow_priv.h"
#include "engine/text/vocab/train_sp_priv.h"

#define BARRIER UINT32_MAX /* a symbol that nothing is joined with */

lf_grower *lf_grower_create(const char *data, size_t len, bool specials_only, const char *path,
                            lf_err *err)
{
    lf_grower *g = lf_calloc(1, sizeof(*g), err);
    if (!g)
        return NULL;
    lf_buf_init(&g->raw);
    g->specials_only = specials_only;
    g->cls = lf_uniclass_create(err);
    if (g->cls && lf_grower_load(g, data, len, path, err) == 0)
        return g;
    lf_grower_destroy(g);
    return NULL;
}

void lf_grower_destroy(lf_grower *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->n_tokens; i++)
        free(g->tokens[i].old);
    free(g->tokens);
    free(g->merges);
    free(g->parts);
    free(g->cls);
    lf_vocab_fini(&g->v);
    lf_vocab_fini(&g->donor);
    lf_tokenizer_destroy(g->t);
    lf_buf_fini(&g->raw);
    json_decref(g->root);
    free(g);
}

const lf_tokenizer *lf_grower_base(const lf_grower *g)
{
    return g->t;
}

size_t lf_grower_old_size(const lf_grower *g)
{
    return g->old;
}

const lf_grown *lf_grower_tokens(const lf_grower *g, size_t *n)
{
    *n = g->n_tokens;
    return g->tokens;
}

size_t lf_grower_left(const lf_grower *g)
{
    return g->left;
}

/* ---- words ---- */

typedef struct counting {
    lf_word_counts *w;
    const uint8_t *cls;
} counting;

static int cut_part(void *arg, const uint8_t *p, size_t n, lf_err *err)
{
    counting *c = arg;
    return lf_sp_cut_words(c->w, c->cls, p, n, 1, err);
}

int lf_grower_count(const lf_grower *g, lf_word_counts *w, lf_tok_state *s, const char *text,
                    size_t len, bool strict, lf_err *err)
{
    unsigned flags = LF_TOK_SPECIAL_TEXT | (strict ? LF_TOK_STRICT : 0u);
    counting c = {w, g->cls};
    const struct lf_word_sink parts = {cut_part, &c};
    return g->sp ? lf_tokenizer_words(s, text, len, flags, &parts, NULL, err)
                 : lf_word_counts_text(w, s, text, len, flags, NULL, err);
}

/* The donor's tokens as words, earlier ones weighing more: a stand-in for the text that it was
 * trained on. */
static int donor_words(const lf_grower *g, lf_word_counts *w, lf_err *err)
{
    lf_buf bytes;
    lf_buf_init(&bytes);
    int rc = 0;
    for (size_t i = 0; i < g->donor.n && rc == 0; i++) {
        if (!lf_grower_bytes(g, g->donor.text[i], &bytes))
            continue; /* no text leads to it */
        rc = lf_buf_check(&bytes, err);
        uint64_t weight = g->donor.n - i;
        if (rc == 0 && g->sp)
            rc = lf_sp_cut_words(w, g->cls, (const uint8_t *)bytes.data, bytes.len, weight, err);
        else if (rc == 0)
            rc = lf_word_counts_add(w, (const uint8_t *)bytes.data, bytes.len, weight, err);
    }
    lf_buf_fini(&bytes);
    return rc;
}

/* ---- new characters (SentencePiece) ---- */

typedef struct char_count {
    uint64_t count;
    uint32_t c;
    bool known;
    char text[5];
} char_count;

static int by_count(const void *x, const void *y)
{
    const char_count *a = x, *b = y;
    if (a->count != b->count)
        return a->count < b->count ? 1 : -1;
    return (a->c > b->c) - (a->c < b->c);
}

static size_t count_chars(const lf_grower *g, const lf_word_counts *words, uint64_t *count,
                          char_count *out)
{
    unsigned step;
    size_t n = 0;
    for (size_t i = 0; i < words->n; i++)
        for (const uint8_t *p = words->text + words->v[i].at, *end = p + words->v[i].len; p < end;
             p += step)
            count[lf_utf8_get(p, &step)] += words->v[i].count;
    for (uint32_t c = 0; c < LF_UNICLASS_SIZE; c++) {
        if (count[c] == 0)
            continue;
        if (out) {
            lf_buf text; /* one way to write UTF-8 */
            lf_buf_init(&text);
            lf_sp_add_char(&text, c);
            out[n] = (char_count){.count = count[c], .c = c};
            snprintf(out[n].text, sizeof(out[n].text), "%s", text.data);
            out[n].known = lf_grower_joins(g, lf_vocab_find(&g->v, out[n].text));
            lf_buf_fini(&text);
        }
        n++;
    }
    return n;
}

/* The characters that pieces lack, most frequent first, until they cover the share asked for. */
static int add_chars(lf_grower *g, const lf_grow_args *a, const lf_word_counts *words, lf_err *err)
{
    uint64_t *count = lf_calloc(LF_UNICLASS_SIZE, sizeof(*count), err);
    size_t n = count ? count_chars(g, words, count, NULL) : 0;
    if (count)
        memset(count, 0, LF_UNICLASS_SIZE * sizeof(*count));
    char_count *v = count ? lf_malloc(n, sizeof(*v), err) : NULL;
    int rc = v ? 0 : LF_ENOMEM;
    double all = 0, covered = 0;
    if (rc == 0)
        count_chars(g, words, count, v);
    for (size_t i = 0; i < n && rc == 0; i++) {
        all += (double)v[i].count;
        covered += v[i].known ? (double)v[i].count : 0;
    }
    if (rc == 0)
        qsort(v, n, sizeof(*v), by_count);
    for (size_t i = 0;
         i < n && rc == 0 && covered < a->coverage * all && g->n_chars < a->new_tokens; i++) {
        bool wanted = !g->donor.slots || lf_vocab_find(&g->donor, v[i].text) >= 0;
        if (v[i].known || !wanted || lf_vocab_find(&g->v, v[i].text) >= 0)
            continue;
        rc = lf_vocab_push(&g->v, v[i].text, err);
        covered += (double)v[i].count;
        g->n_chars++;
    }
    free(v);
    free(count);
    return rc;
}

/* ---- the old cut of a word ---- */

typedef struct cutter {
    const lf_grower *g;
    lf_bpe_state *s;
    lf_ids ids;
} cutter;

/* A run that the old tokenizer has all characters of. */
static int cut_known(cutter *c, const uint8_t *p, size_t n, const uint8_t *end, lf_err *err)
{
    size_t at = c->ids.n;
    int rc = n > 0 ? lf_bpe_encode(c->s, p, n, end, true, &c->ids, err) : 0;
    for (size_t i = at; i < c->ids.n && rc == 0; i++)
        if (!lf_grower_joins(c->g, c->ids.v[i]))
            c->ids.v[i] = BARRIER;
    return rc;
}

/* Symbols of a word into c->ids. */
static int cut_word(cutter *c, const uint8_t *p, size_t n, lf_err *err)
{
    const uint8_t *end = p + n, *from = p;
    int rc = 0;
    c->ids.n = 0;
    if (!c->g->sp)
        return cut_known(c, p, n, end, err);
    unsigned step;
    for (const uint8_t *q = p; q < end && rc == 0; q += step) {
        char text[5] = "";
        (void)lf_utf8_get(q, &step);
        memcpy(text, q, step);
        int64_t id = lf_vocab_find(&c->g->v, text);
        if (lf_grower_joins(c->g, id) && (size_t)id < c->g->old)
            continue;
        rc = cut_known(c, from, (size_t)(q - from), end, err);
        if (rc == 0)
            rc = lf_ids_add(&c->ids, lf_grower_joins(c->g, id) ? (uint32_t)id : BARRIER, err);
        from = q + step;
    }
    return rc == 0 ? cut_known(c, from, (size_t)(end - from), end, err) : rc;
}

/* Pieces of words between barriers; those of one symbol have nothing to merge. */
typedef struct builder {
    lf_merge_words m;
    size_t n_sym, cap_sym, cap_start, cap_len, cap_count;
} builder;

static int add_run(builder *b, const uint32_t *sym, size_t n, uint64_t count, lf_err *err)
{
    int rc = 0;
    if (n < 2)
        return 0;
    rc = lf_grow(&b->m.start, &b->cap_start, b->m.n, sizeof(*b->m.start), err);
    if (rc == 0)
        rc = lf_grow(&b->m.len, &b->cap_len, b->m.n, sizeof(*b->m.len), err);
    if (rc == 0)
        rc = lf_grow(&b->m.count, &b->cap_count, b->m.n, sizeof(*b->m.count), err);
    if (rc != 0)
        return rc;
    b->m.start[b->m.n] = b->n_sym;
    b->m.len[b->m.n] = (uint32_t)n;
    b->m.count[b->m.n] = count;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = lf_grow(&b->m.sym, &b->cap_sym, b->n_sym, sizeof(*b->m.sym), err);
        if (rc == 0)
            b->m.sym[b->n_sym++] = sym[i];
    }
    b->m.n += rc == 0;
    return rc;
}

static int cut_words(const lf_grower *g, const lf_word_counts *words, builder *b, lf_err *err)
{
    cutter c = {.g = g, .s = lf_bpe_state_create(&g->t->bpe, err)};
    int rc = c.s ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < words->n && rc == 0; i++) {
        rc = cut_word(&c, words->text + words->v[i].at, words->v[i].len, err);
        size_t from = 0;
        for (size_t k = 0; k <= c.ids.n && rc == 0; k++)
            if (k == c.ids.n || c.ids.v[k] == BARRIER) {
                rc = add_run(b, c.ids.v + from, k - from, words->v[i].count, err);
                from = k + 1;
            }
    }
    lf_ids_fini(&c.ids);
    lf_bpe_state_destroy(c.s);
    return rc;
}

/* ---- merging ---- */

typedef struct rule {
    const lf_grower *g;
    size_t max_piece;
} rule;

static bool allow(void *ctx, const char *text)
{
    const rule *r = ctx;
    int64_t id = lf_vocab_find(&r->g->v, text);
    size_t chars = 0;
    for (const char *p = text; *p; p++)
        chars += ((unsigned char)*p & 0xC0) != 0x80;
    if (id >= 0 && (size_t)id < r->g->old)
        return false; /* an old token keeps its merges, or old text would change */
    if (r->g->sp && chars > r->max_piece)
        return false;
    return !r->g->donor.slots || lf_vocab_find(&r->g->donor, text) >= 0;
}

/* Old ids of a new token: those of its two parts, which have smaller ids. */
static int join_parts(lf_grower *g, size_t id, const lf_trained_merge *m, lf_err *err)
{
    lf_ids ids = {0};
    const uint32_t part[2] = {m->a, m->b};
    int rc = 0;
    for (int k = 0; k < 2; k++) {
        const lf_grown *t = part[k] < g->old ? NULL : &g->tokens[part[k] - g->old];
        for (size_t i = 0; i < (t ? t->n_old : 1) && rc == 0; i++)
            rc = lf_ids_add(&ids, t ? t->old[i] : part[k], err);
    }
    g->tokens[id - g->old].old = ids.v;
    g->tokens[id - g->old].n_old = ids.n;
    return rc;
}

/* A new character is made of its bytes. */
static int byte_parts(lf_grower *g, size_t id, lf_err *err)
{
    lf_ids ids = {0};
    int rc = 0;
    for (const uint8_t *p = (const uint8_t *)g->v.text[id]; *p && rc == 0; p++) {
        char name[8];
        snprintf(name, sizeof(name), "<0x%02X>", *p);
        int64_t b = lf_vocab_find(&g->v, name);
        rc = b < 0 ? lf_fail(err, LF_EFORMAT, "the old tokenizer has no token %s", name)
                   : lf_ids_add(&ids, (uint32_t)b, err);
    }
    g->tokens[id - g->old].old = ids.v;
    g->tokens[id - g->old].n_old = ids.n;
    return rc;
}

static int describe(lf_grower *g, lf_err *err)
{
    g->n_tokens = g->v.n - g->old;
    g->tokens = lf_calloc(g->n_tokens, sizeof(*g->tokens), err);
    const lf_trained_merge **of = lf_calloc(g->n_tokens, sizeof(*of), err);
    lf_buf text;
    lf_buf_init(&text);
    int rc = g->tokens && of ? 0 : LF_ENOMEM;
    if (!g->tokens)
        g->n_tokens = 0;
    for (size_t i = 0; i < g->n_merges && rc == 0; i++) {
        const lf_trained_merge *m = &g->merges[i];
        lf_buf_clear(&text);
        lf_buf_addf(&text, "%s%s", g->v.text[m->a], g->v.text[m->b]);
        rc = lf_buf_check(&text, err);
        int64_t id = rc == 0 ? lf_vocab_find(&g->v, text.data) : -1;
        if (id >= 0 && m->a < id && m->b < id && !of[(size_t)id - g->old])
            of[(size_t)id - g->old] = m;
    }
    for (size_t i = 0; i < g->n_tokens && rc == 0; i++) {
        g->tokens[i].text = g->v.text[g->old + i];
        rc = of[i] ? join_parts(g, g->old + i, of[i], err) : byte_parts(g, g->old + i, err);
    }
    lf_buf_fini(&text);
    free(of);
    return rc;
}

int lf_grower_run(lf_grower *g, const lf_grow_args *a, const lf_word_counts *words,
                  lf_bpe_progress_fn fn, void *arg, lf_err *err)
{
    rule r = {g, a->max_piece};
    builder b = {0};
    lf_merge_args how = {.vocab_size = g->old + a->new_tokens,
                         .min_frequency = words ? a->min_frequency : 1,
                         .allow = allow,
                         .allow_ctx = &r,
                         .fn = fn,
                         .arg = arg};
    lf_word_counts *own = words ? NULL : lf_word_counts_create(err);
    int rc = words || own ? 0 : LF_ENOMEM;
    if (g->merges || g->n_tokens || g->specials_only)
        rc = lf_fail(err, LF_EINVAL, "a vocabulary grows once");
    if (rc == 0 && own)
        rc = donor_words(g, own, err);
    if (rc == 0 && g->sp)
        rc = add_chars(g, a, words ? words : own, err);
    if (rc == 0)
        rc = cut_words(g, words ? words : own, &b, err);
    if (rc == 0)
        rc = lf_merge_train(&g->v, &b.m, &how, &g->merges, &g->n_merges, err);
    if (rc == 0)
        rc = describe(g, err);
    for (size_t i = 0; rc == 0 && g->donor.slots && i < g->donor.n; i++)
        g->left += lf_vocab_find(&g->v, g->donor.text[i]) < 0;
    lf_merge_words_fini(&b.m);
    lf_word_counts_destroy(own);
    return rc;
}
