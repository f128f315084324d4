/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece-style training: words, the characters that get pieces, and the bpe kind. See
 * train_sp.h.
 */
#include "config.h"

#include "engine/text/vocab/train_sp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/text/token/tokenizer_priv.h"
#include "engine/text/token/uniclass.h"
#include "engine/text/vocab/train_sp_priv.h"

#define N_BYTES    256
#define N_CODES    LF_UNICLASS_SIZE
#define SPACE_MARK 0x2581

static const char *const first_ids[] = {"<unk>", "<s>", "</s>"};
#define N_FIRST (sizeof(first_ids) / sizeof(first_ids[0]))

/* ---- vocabulary ---- */

void lf_sp_vocab_fini(lf_sp_vocab *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->v[i].text);
    free(v->v);
    *v = (lf_sp_vocab){0};
}

int lf_sp_vocab_add(lf_sp_vocab *v, const char *text, float score, int type, lf_err *err)
{
    int rc = lf_grow(&v->v, &v->cap, v->n, sizeof(*v->v), err);
    if (rc != 0)
        return rc;
    v->v[v->n] = (lf_sp_piece){.text = lf_strdup(text, err), .score = score, .type = type};
    return v->v[v->n].text ? (v->n++, 0) : LF_ENOMEM;
}

static bool is_first(const char *s)
{
    for (size_t i = 0; i < N_FIRST; i++)
        if (strcmp(s, first_ids[i]) == 0)
            return true;
    return false;
}

/* Is specials[i] one of its own? */
static bool counts(const lf_sp_train_args *a, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(a->specials[k], a->specials[i]) == 0)
            return false;
    return !is_first(a->specials[i]);
}

size_t lf_sp_fixed_ids(const lf_sp_train_args *a)
{
    size_t n = N_FIRST + N_BYTES;
    for (size_t i = 0; i < a->n_specials; i++)
        n += counts(a, i);
    return n;
}

static int add_fixed(lf_sp_vocab *v, const lf_sp_train_args *a, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < N_FIRST && rc == 0; i++)
        rc = lf_sp_vocab_add(v, first_ids[i], 0, i == 0 ? LF_SPM_UNKNOWN : LF_SPM_CONTROL, err);
    for (size_t i = 0; i < a->n_specials && rc == 0; i++)
        if (counts(a, i))
            rc = lf_sp_vocab_add(v, a->specials[i], 0, LF_SPM_CONTROL, err);
    for (unsigned b = 0; b < N_BYTES && rc == 0; b++) {
        char text[8];
        snprintf(text, sizeof(text), "<0x%02X>", b);
        rc = lf_sp_vocab_add(v, text, 0, LF_SPM_BYTE, err);
    }
    return rc;
}

/* ---- words ---- */

enum { OTHER, WORD, DIGIT, ANY };

static int class_of(const uint8_t *cls, uint32_t c)
{
    return cls[c] & LF_UC_N ? DIGIT : cls[c] & LF_UC_W ? WORD : OTHER;
}

int lf_sp_cut_words(lf_word_counts *w, const uint8_t *cls, const uint8_t *p, size_t n,
                    uint64_t count, lf_err *err)
{
    size_t from = 0;
    int rc = 0, before = ANY;
    unsigned step;
    for (size_t i = 0; i < n && rc == 0; i += step) {
        uint32_t c = lf_utf8_get(p + i, &step);
        bool space = c == SPACE_MARK, control = c < 0x20;
        int kind = space || control ? ANY : class_of(cls, c);
        if ((space || control || (before != ANY && kind != before)) && i > from) {
            rc = lf_word_counts_add(w, p + from, i - from, count, err);
            from = i;
        }
        from += control;
        before = kind;
    }
    return rc == 0 && n > from ? lf_word_counts_add(w, p + from, n - from, count, err) : rc;
}

int lf_sp_count_words(lf_word_counts *w, const uint8_t *cls, const char *text, size_t len,
                      bool strict, uint64_t *replaced, lf_err *err)
{
    lf_buf repaired, marked;
    lf_bytes t = {(const uint8_t *)text, len};
    lf_buf_init(&repaired);
    lf_buf_init(&marked);
    int rc = len ? lf_text_repair(&t, &repaired, strict, replaced, err) : 0;
    if (rc == 0 && len > 0) {
        lf_buf_adds(&marked, LF_SP_SPACE);
        for (size_t i = 0, k; i < t.n; i = k + 1) {
            for (k = i; k < t.n && t.p[k] != ' '; k++)
                ;
            lf_buf_add(&marked, t.p + i, k - i);
            if (k < t.n)
                lf_buf_adds(&marked, LF_SP_SPACE);
        }
        rc = lf_buf_check(&marked, err);
        if (rc == 0)
            rc = lf_sp_cut_words(w, cls, (const uint8_t *)marked.data, marked.len, 1, err);
    }
    lf_buf_fini(&repaired);
    lf_buf_fini(&marked);
    return rc;
}

/* ---- characters ---- */

typedef struct char_count {
    uint64_t count;
    uint32_t c;
} char_count;

static int by_count(const void *x, const void *y)
{
    const char_count *a = x, *b = y;
    if (a->count != b->count)
        return a->count < b->count ? 1 : -1;
    return (a->c > b->c) - (a->c < b->c);
}

void lf_sp_add_char(lf_buf *out, uint32_t c)
{
    char u[4];
    lf_buf_add(out, u, lf_utf8_put(u, c));
}

void lf_sp_text(lf_buf *out, const lf_sp_words *w, size_t at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        lf_sp_add_char(out, w->chars[w->words.sym[at + i]]);
}

/* Count characters and take the most frequent until they cover the share asked for; index_of[c] is
 * their place + 1. */
static int choose_chars(lf_sp_words *w, uint32_t *index_of, const lf_word_counts *words,
                        double coverage, lf_err *err)
{
    uint64_t *n = lf_calloc(N_CODES, sizeof(*n), err);
    if (!n)
        return LF_ENOMEM;
    uint64_t all = 0, covered = 0;
    size_t kinds = 0;
    for (size_t i = 0; i < words->n; i++) {
        const uint8_t *p = words->text + words->v[i].at;
        unsigned step;
        for (size_t k = 0; k < words->v[i].len; k += step) {
            uint32_t c = lf_utf8_get(p + k, &step);
            kinds += n[c] == 0;
            n[c] += words->v[i].count;
            all += words->v[i].count;
        }
    }
    char_count *v = lf_malloc(kinds, sizeof(*v), err);
    w->chars = lf_malloc(kinds, sizeof(*w->chars), err);
    w->counts = lf_malloc(kinds, sizeof(*w->counts), err);
    int rc = v && w->chars && w->counts ? 0 : LF_ENOMEM;
    size_t k = 0;
    for (uint32_t c = 0; c < N_CODES && rc == 0; c++)
        if (n[c] > 0)
            v[k++] = (char_count){n[c], c};
    if (rc == 0)
        qsort(v, kinds, sizeof(*v), by_count);
    for (size_t i = 0; i < kinds && rc == 0 && (double)covered < coverage * (double)all; i++) {
        w->chars[w->n_chars] = v[i].c;
        w->counts[w->n_chars] = v[i].count;
        index_of[v[i].c] = (uint32_t)++w->n_chars;
        covered += v[i].count;
    }
    free(v);
    free(n);
    return rc;
}

/* Words as indices of characters, cut where a character has no piece. With m->sym NULL only
 * counts. */
static void fill_words(lf_merge_words *m, size_t *n_words, size_t *n_symbols,
                       const uint32_t *index_of, const lf_word_counts *words)
{
    size_t at = 0, k = 0;
    for (size_t i = 0; i < words->n; i++) {
        const uint8_t *p = words->text + words->v[i].at;
        size_t from = at;
        unsigned step = 1;
        for (size_t b = 0; b <= words->v[i].len;
             b += step) { /* the end is like a character without a piece */
            uint32_t x = b < words->v[i].len ? index_of[lf_utf8_get(p + b, &step)] : 0;
            if (x > 0) {
                if (m->sym)
                    m->sym[at] = x - 1;
                at++;
            } else if (at > from) {
                if (m->sym) {
                    m->start[k] = from;
                    m->len[k] = (uint32_t)(at - from);
                    m->count[k] = words->v[i].count;
                }
                k++;
                from = at;
            }
        }
    }
    *n_words = k;
    *n_symbols = at;
}

static int load_words(lf_sp_words *w, const lf_word_counts *words, double coverage, lf_err *err)
{
    size_t n_words, n_symbols;
    uint32_t *index_of = lf_calloc(N_CODES, sizeof(*index_of), err);
    int rc = index_of ? choose_chars(w, index_of, words, coverage, err) : LF_ENOMEM;
    if (rc == 0) {
        fill_words(&w->words, &n_words, &n_symbols, index_of, words);
        if (n_symbols >= UINT32_MAX)
            rc = lf_fail(err, LF_EINVAL, "too many different words to train on; use train_bytes");
    }
    if (rc == 0)
        rc = lf_merge_words_init(&w->words, n_words, n_symbols, err);
    if (rc == 0)
        fill_words(&w->words, &n_words, &n_symbols, index_of, words);
    free(index_of);
    return rc;
}

static void words_fini(lf_sp_words *w)
{
    free(w->chars);
    free(w->counts);
    lf_merge_words_fini(&w->words);
}

/* ---- bpe ---- */

static bool short_enough(void *ctx, const char *text)
{
    size_t n = 0, most = *(const size_t *)ctx;
    for (const char *p = text; *p; p++)
        n += ((unsigned char)*p & 0xC0) != 0x80;
    return n <= most;
}

static int train_bpe(lf_sp_vocab *out, const lf_sp_train_args *a, lf_sp_words *w, size_t room,
                     lf_bpe_progress_fn fn, void *arg, lf_err *err)
{
    size_t most = a->max_piece, n_merges = 0;
    lf_vocab v = {0};
    lf_trained_merge *merges = NULL;
    lf_merge_args how = {.vocab_size = room,
                         .min_frequency = a->min_frequency,
                         .allow = short_enough,
                         .allow_ctx = &most,
                         .fn = fn,
                         .arg = arg};
    lf_buf text;
    lf_buf_init(&text);
    int rc = lf_vocab_init(&v, room + 1, err);
    for (size_t i = 0; i < w->n_chars && rc == 0; i++) {
        lf_buf_clear(&text);
        lf_sp_add_char(&text, w->chars[i]);
        rc = lf_buf_check(&text, err);
        if (rc == 0)
            rc = lf_vocab_push(&v, text.data, err);
    }
    if (rc == 0)
        rc = lf_merge_train(&v, &w->words, &how, &merges, &n_merges, err);
    float score = 0;
    for (size_t i = w->n_chars; i < v.n && rc == 0; i++, score -= 1)
        rc = lf_sp_vocab_add(out, v.text[i], score, LF_SPM_NORMAL, err);
    for (size_t i = 0; i < w->n_chars && rc == 0; i++, score -= 1)
        rc = lf_sp_vocab_add(out, v.text[i], score, LF_SPM_NORMAL, err);
    free(merges);
    lf_vocab_fini(&v);
    lf_buf_fini(&text);
    return rc;
}

int lf_sp_train(lf_sp_vocab *out, const lf_sp_train_args *a, const lf_word_counts *words,
                lf_bpe_progress_fn fn, void *arg, lf_err *err)
{
    lf_sp_words w = {0};
    lf_sp_vocab v = {.kind = a->kind};
    size_t fixed = lf_sp_fixed_ids(a);
    if (a->max_piece < 1 || a->max_piece > LF_SP_MAX_PIECE)
        return lf_fail(err, LF_EINVAL, "max_piece = %zu; 1 to %d are possible", a->max_piece,
                       LF_SP_MAX_PIECE);
    int rc = load_words(&w, words, a->coverage, err);
    if (rc == 0 && a->vocab_size < fixed + w.n_chars)
        rc = lf_fail(err, LF_EINVAL,
                     "vocab_size = %zu has no room for %zu special tokens and bytes and the %zu "
                     "characters of the text; "
                     "raise it to at least %zu or lower character_coverage",
                     a->vocab_size, fixed, w.n_chars, fixed + w.n_chars);
    if (rc == 0)
        rc = add_fixed(&v, a, err);
    if (rc == 0)
        rc = a->kind == LF_SP_BPE ? train_bpe(&v, a, &w, a->vocab_size - fixed, fn, arg, err)
                                  : lf_sp_unigram(&v, a, &w, a->vocab_size - fixed, fn, arg, err);
    words_fini(&w);
    if (rc == 0)
        *out = v;
    else
        lf_sp_vocab_fini(&v);
    return rc;
}
