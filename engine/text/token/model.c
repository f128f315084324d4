/* SPDX-License-Identifier: Apache-2.0
 *
 * Unigram, WordPiece and WordLevel: one word's bytes -> ids. Unigram is a Viterbi search over byte
 * places; which of two equal sums wins and how sums are rounded is part of the result, so both
 * libraries' arithmetic is kept:
 *   tokenizers     f64 scores and sums; a later candidate must be greater
 *   sentencepiece  (0.2.3) f32 scores and sums; past 100,000 the sums in reach are moved back to
 *                  around 0
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/text/token/tokenizer_priv.h"
#include "engine/text/token/uniclass.h"

#define UNK_PENALTY 10.0
#define NO_ID       (-1)
#define RESET_AT    100000.0f

void lf_model_fini(lf_model *m)
{
    lf_vtrie_fini(&m->trie);
    free(m->score);
    m->score = NULL;
}

static inline void offer(const lf_model *m, struct lf_best *to, double score, int32_t id,
                         uint32_t from)
{
    if (m->spm)
        score = (double)(float)score;
    if (to->from == UINT32_MAX || score > to->score) {
        to->score = score;
        to->id = id;
        to->from = from;
    }
}

static double unk_score(const lf_model *m)
{
    return m->spm ? (double)((float)m->min_score - (float)UNK_PENALTY) : m->min_score - UNK_PENALTY;
}

/* sentencepiece keeps the precision of f32 on long texts: sums from `at` up to the frontier lose
 * what has gathered. */
static void reset_scores(struct lf_best *best, size_t at, size_t frontier)
{
    float offset = (float)best[at].score;
    if (offset >= -RESET_AT && offset <= RESET_AT)
        return;
    for (size_t i = at; i <= frontier; i++)
        if (i == at || best[i].from != UINT32_MAX)
            best[i].score = (double)((float)best[i].score - offset);
    best[at].score = 0;
}

static int viterbi(const lf_model *m, lf_model_scratch *s, const uint8_t *p, size_t n, lf_err *err)
{
    int rc = 0;
    if (n + 1 > s->cap) {
        rc = lf_realloc(&s->best, n + 1, sizeof(*s->best), err);
        if (rc != 0)
            return rc;
        s->cap = n + 1;
    }
    struct lf_best *best = s->best;
    for (size_t i = 0; i <= n; i++)
        best[i] = (struct lf_best){.score = 0, .id = NO_ID, .from = UINT32_MAX};
    const double unk = unk_score(m);
    unsigned k;
    size_t frontier = 0;
    for (size_t at = 0; at < n; at += k) {
        (void)lf_utf8_get(p + at, &k);
        if (m->spm)
            reset_scores(best, at, frontier);
        double here = best[at].score;
        bool single = false;
        uint32_t node = 0;
        for (size_t j = at; j < n && (node = lf_vtrie_step(&m->trie, node, p[j])) != 0; j++) {
            int32_t id = m->trie.value[node];
            if (id < 0)
                continue;
            offer(m, &best[j + 1], m->score[id] + here, id, (uint32_t)at);
            frontier = j + 1 > frontier ? j + 1 : frontier;
            single = single || j + 1 - at == k;
        }
        if (!single) {
            if (m->unk < 0 && (best[at + k].from == UINT32_MAX || unk + here > best[at + k].score))
                return lf_fail(err, LF_EFORMAT,
                               "the tokenizer has no token for a character and no unk_id");
            offer(m, &best[at + k], unk + here, (int32_t)m->unk, (uint32_t)at);
            frontier = at + k > frontier ? at + k : frontier;
        }
    }
    return 0;
}

static int add_bytes(const lf_model *m, const uint8_t *p, size_t n, lf_ids *out, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = lf_ids_add(out, (uint32_t)m->byte_tok[p[i]], err);
    return rc;
}

/* A run of unknown characters: the library looks its text up once more, then falls back to bytes or
 * to one unk. */
static int add_unknown(const lf_model *m, const uint8_t *p, size_t n, lf_ids *out, lf_err *err)
{
    int32_t id = m->spm ? NO_ID : lf_vtrie_find(&m->trie, p, n);
    if (id >= 0)
        return lf_ids_add(out, (uint32_t)id, err);
    return m->fallback ? add_bytes(m, p, n, out, err) : lf_ids_add(out, (uint32_t)m->unk, err);
}

static int unigram(const lf_model *m, lf_model_scratch *s, const uint8_t *p, size_t n, lf_ids *out,
                   lf_err *err)
{
    int rc = viterbi(m, s, p, n, err);
    size_t n_cut = 0;
    for (uint32_t end = (uint32_t)n; rc == 0 && end > 0; end = s->best[end].from) {
        rc = lf_grow(&s->cut, &s->cap_cut, n_cut, sizeof(*s->cut), err);
        if (rc == 0)
            s->cut[n_cut++] = end;
    }
    while (rc == 0 && n_cut > 0) {
        uint32_t end = s->cut[--n_cut], from = s->best[end].from;
        if (s->best[end].id != m->unk) {
            rc = lf_ids_add(out, (uint32_t)s->best[end].id, err);
            continue;
        }
        while (n_cut > 0 && s->best[s->cut[n_cut - 1]].id == m->unk)
            end = s->cut[--n_cut];
        rc = add_unknown(m, p + from, end - from, out, err);
    }
    return rc;
}

static int wordpiece(const lf_model *m, const uint8_t *p, size_t n, lf_ids *out, lf_err *err)
{
    size_t chars = 0, before = out->n, end = 0;
    for (size_t i = 0; i < n; i++)
        chars += (p[i] & 0xC0) != 0x80;
    int rc = 0;
    for (size_t at = 0; at < n && rc == 0 && chars <= m->max_chars; at = end) {
        uint32_t node = at ? m->cont : 0;
        int32_t id = NO_ID;
        end = at;
        for (size_t j = at;
             j < n && (at == 0 || m->has_cont) && (node = lf_vtrie_step(&m->trie, node, p[j])) != 0;
             j++)
            if (m->trie.value[node] >= 0 && (j + 1 == n || (p[j + 1] & 0xC0) != 0x80)) {
                id = m->trie.value[node];
                end = j + 1;
            }
        if (id < 0)
            break;
        rc = lf_ids_add(out, (uint32_t)id, err);
    }
    if (rc != 0 || (end == n && chars <= m->max_chars))
        return rc;
    out->n = before;
    if (m->unk < 0)
        return lf_fail(err, LF_EFORMAT,
                       "a word is not in the vocabulary, and neither is the unk_token");
    return lf_ids_add(out, (uint32_t)m->unk, err);
}

int lf_model_encode(const lf_model *m, lf_model_scratch *s, const uint8_t *word, size_t n,
                    lf_ids *out, lf_err *err)
{
    if (n > UINT32_MAX - 2)
        return lf_fail(err, LF_EINVAL, "a text of %zu bytes is too long", n);
    if (m->kind == LF_MODEL_UNIGRAM)
        return unigram(m, s, word, n, out, err);
    if (m->kind == LF_MODEL_WORDPIECE)
        return wordpiece(m, word, n, out, err);
    int32_t id = lf_vtrie_find(&m->trie, word, n);
    if (id < 0)
        id = (int32_t)m->unk;
    if (id < 0)
        return lf_fail(err, LF_EFORMAT,
                       "a word is not in the vocabulary, and neither is the unk_token");
    return lf_ids_add(out, (uint32_t)id, err);
}
