/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of pairs of texts, one of each piece of a document that the packing index has (nsp.h). */
#include <string.h>

#include "engine/base/rng.h"
#include "engine/train/loader_priv.h"

enum { TRIES = 16 }; /* documents that are asked for a text of theirs, before there is none */

int lf_loader_pairs_check(const lf_loader_config *c, lf_err *err)
{
    if (!c->nsp)
        return 0;
    if (!c->mlm)
        return lf_fail(err, LF_EINVAL, "pairs of texts are of hidden tokens (objective = mlm)");
    if (c->T < LF_NSP_LEAST)
        return lf_fail(err, LF_EINVAL, "seq_length = %d: a pair of texts has at least %d tokens",
                       c->T, LF_NSP_LEAST);
    if (c->mlm->mask_token == c->nsp->separator || c->mlm->mask_token == c->nsp->begin)
        return lf_fail(
            err, LF_EINVAL, "mask_token = %d is %s, too: what is hidden would begin or end a text",
            c->mlm->mask_token, c->mlm->mask_token == c->nsp->begin ? "begin_token" : "separator");
    return lf_nsp_check(c->nsp, c->vocab_size, err);
}

int lf_loader_pairs_source(const lf_loader_config *c, const struct lf_loader_src *src, lf_err *err)
{
    if (!c->nsp)
        return 0;
    if (src->masked)
        return lf_fail(err, LF_EINVAL,
                       "%s has a loss mask, and of a pair of texts every token may be hidden",
                       src->dir);
    if (lf_shardset_get_info(src->set)->n_docs < 2)
        return lf_fail(err, LF_EINVAL,
                       "%s: its %s split has one document, so there is no other whose text could "
                       "stand in place of the next one",
                       src->dir, c->split);
    return 0;
}

/* A pair that is made: where it goes, and what it became. */
struct pair {
    const lf_pack_seg *seg;
    int64_t sample;
    uint32_t number; /* of seg in the sample */
    int32_t *text;   /* [T] scratch */
    int32_t *tokens, *targets;
    uint8_t *begins; /* NULL: unread */
    int32_t n;       /* 0: the piece is too short */
    enum lf_nsp_class is;
};

static uint64_t below(const uint32_t w[2], uint64_t n)
{
    return (((uint64_t)w[0] << 32) | w[1]) % n;
}

/* At most n tokens of a document from `from` on. Returns how many, or a negative lf_rc. */
static int32_t read_text(const lf_loader *l, const struct lf_loader_src *src, uint64_t doc,
                         uint64_t from, int32_t n, int32_t *out, lf_err *err)
{
    const uint64_t left = lf_shardset_doc_len(src->set, doc) - from;
    const int32_t len = left < (uint64_t)n ? (int32_t)left : n;
    const int rc = lf_shardset_read(src->set, doc, from, (uint32_t)len, out, err);
    return rc != 0 ? rc : lf_nsp_strip(l->nsp, out, len);
}

/* Moves a place in a document behind the sentence that it is in, as far as n tokens tell: a text
 * that begins within one would be known by that. */
static int to_sentence(const lf_loader *l, const struct lf_loader_src *src, uint64_t doc, int32_t n,
                       int32_t *scratch, uint64_t *place, lf_err *err)
{
    const uint64_t len = lf_shardset_doc_len(src->set, doc), left = len - *place;
    const int32_t some = left < (uint64_t)n ? (int32_t)left : n;
    if (!l->nsp->n_ends || *place == 0)
        return 0;
    const int rc = lf_shardset_read(src->set, doc, *place, (uint32_t)some, scratch, err);
    const int32_t behind = rc == 0 ? lf_nsp_sentence(l->nsp, scratch, some) : 0;
    *place = behind && *place + (uint64_t)behind < len ? *place + (uint64_t)behind : 0;
    return rc;
}

/* At most n tokens of another document. Returns how many, 0 where none that was asked has any. */
static int32_t read_other(const lf_loader *l, const struct lf_loader_src *src, const struct pair *p,
                          int32_t n, int32_t *out, lf_err *err)
{
    const uint64_t docs = lf_shardset_get_info(src->set)->n_docs;
    int32_t got = 0;
    for (uint32_t i = 0; i < TRIES && got == 0; i++) {
        uint32_t w[4];
        lf_philox(w, l->order.seed, LF_SITE_NSP_OTHER + (l->order.mode == LF_LOADER_VALID),
                  (uint64_t)p->sample, p->number * TRIES + i);
        uint64_t doc = below(w, docs - 1);
        doc += doc >= p->seg->doc;
        const uint64_t len = lf_shardset_doc_len(src->set, doc);
        uint64_t from = len > (uint64_t)n ? below(w + 2, len - (uint64_t)n + 1) : 0;
        if (len == 0)
            continue;
        got = to_sentence(l, src, doc, n, out, &from, err);
        if (got == 0)
            got = read_text(l, src, doc, from, n, out, err);
    }
    return got;
}

/* Targets are the tokens that may be hidden. */
static void finish_pair(const lf_loader *l, struct pair *p, int32_t a, int32_t b)
{
    p->n = a + b + LF_NSP_FORMAT;
    p->tokens[0] = l->nsp->begin;
    p->tokens[1 + a] = p->tokens[p->n - 1] = l->nsp->separator;
    for (int32_t i = 0; i < p->n; i++)
        p->targets[i] = lf_mlm_spares(l->mlm, p->tokens[i]) ? -1 : p->tokens[i];
    p->targets[0] = p->targets[1 + a] = p->targets[p->n - 1] = -1;
    if (!p->begins)
        return;
    memset(p->begins, 1, (size_t)p->n);
    lf_mlm_words(l->mlm, p->tokens + 1, a, p->begins + 1);
    lf_mlm_words(l->mlm, p->tokens + 2 + a, b, p->begins + 2 + a);
}

static int make_pair(const lf_loader *l, const struct lf_loader_src *src, struct pair *p,
                     lf_err *err)
{
    uint32_t w[4];
    const int32_t all = read_text(l, src, p->seg->doc, p->seg->first, (int32_t)p->seg->len, p->text,
                                  err),
                  room = (int32_t)p->seg->len - LF_NSP_FORMAT, n = all < room ? all : room;
    p->n = 0;
    if (all < 0 || n < LF_NSP_LEAST - LF_NSP_FORMAT)
        return all < 0 ? all : 0;
    lf_philox(w, l->order.seed, LF_SITE_NSP + (l->order.mode == LF_LOADER_VALID),
              (uint64_t)p->sample, p->number);
    const int32_t *from = p->text + (((uint64_t)w[2] * (uint64_t)(all - n + 1)) >> 32);
    const int32_t a = lf_nsp_split(l->nsp, from, n, w[1]);
    int32_t b = w[0] >> 31 ? read_other(l, src, p, n - a, p->tokens + 2 + a, err) : 0;
    if (b < 0)
        return b;
    p->is = b > 0 ? LF_NSP_OTHER : LF_NSP_FOLLOWS;
    memcpy(p->tokens + 1, from, (size_t)a * sizeof *from);
    if (b == 0)
        memcpy(p->tokens + 2 + a, from + a, (size_t)(b = n - a) * sizeof *from);
    finish_pair(l, p, a, b);
    return 0;
}

int lf_loader_pairs_fill(const lf_loader *l, lf_loader_batch *b, int32_t row,
                         const struct lf_loader_src *src, uint32_t n_segs, int32_t *at, lf_err *err)
{
    const size_t base = (size_t)row * (size_t)l->T;
    for (uint32_t k = 0; k < n_segs; k++) {
        const size_t place = base + (size_t)*at;
        struct pair p = {.seg = &l->segs[k],
                         .sample = b->sample_ids[row],
                         .number = k,
                         .text = l->row,
                         .tokens = b->tokens + place,
                         .targets = b->targets + place,
                         .begins = l->begins ? l->begins + *at : NULL};
        const int rc = make_pair(l, src, &p, err);
        if (rc != 0)
            return rc;
        if (p.n == 0)
            continue;
        lf_loader_positions(b->positions + place, p.n);
        *at += p.n;
        lf_loader_name_segment(b, (int64_t)l->segs[k].doc, (size_t)(src - l->src), false);
        b->seg_nsp[b->n_segs] = (int8_t)p.is;
        lf_loader_end_segment(b, (int32_t)base + *at);
    }
    return 0;
}

int lf_loader_pairs_count(const lf_loader *l, const struct lf_loader_src *src, uint32_t n_segs,
                          int64_t sample, int32_t *at, int64_t *pairs, lf_err *err)
{
    for (uint32_t k = 0; k < n_segs; k++) {
        struct pair p = {.seg = &l->count_segs[k],
                         .sample = sample,
                         .number = k,
                         .text = l->count_row + 2 * (size_t)l->T,
                         .tokens = l->count_row + *at,
                         .targets = l->count_row + l->T + *at,
                         .begins = l->count_begins ? l->count_begins + *at : NULL};
        const int rc = make_pair(l, src, &p, err);
        if (rc != 0)
            return rc;
        *at += p.n;
        *pairs += p.n > 0;
    }
    return 0;
}
