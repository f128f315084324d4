/* SPDX-License-Identifier: Apache-2.0
 *
 * Best fit decreasing: pieces from long to short, each into the open sequence with the least room
 * that still holds it. Open sequences stand in one list per amount of room; a tree of 64-bit words
 * finds the next non-empty list, so a piece costs a few word operations whatever T is. Ties: of
 * sequences with the same room the one that has had it longest, of pieces of the same length the
 * order of documents, as in trl (_pack_bfd of trl/data_utils.py), so that both pack alike.
 */
#include <stdbool.h>
#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/text/corpus/pack_priv.h"

#define NONE   UINT32_MAX
#define LEVELS 5 /* 64^5 > 2^24 */

/* A set of numbers below 2^24 with "smallest member >= x". */
struct bitset {
    uint64_t *level[LEVELS];
    size_t words[LEVELS];
    int n_levels;
};

struct bin {
    uint32_t room, n;
    uint32_t first, last; /* chain of pieces */
    uint32_t next_open;
};

struct bfd {
    struct bitset open; /* rooms that have an open sequence */
    uint32_t *head;     /* [T + 1] by room: first in, first out */
    uint32_t *tail;     /* [T + 1] of the same lists; undefined where head is NONE */
    struct bin *bins;
    size_t n_bins, cap_bins;
    struct lf_pack_item *pieces; /* sorted, long first */
    uint32_t *next;              /* chain */
    size_t n_pieces;
};

static int set_init(struct bitset *s, uint32_t n, lf_err *err)
{
    size_t words = (size_t)n / 64 + 1;
    for (;;) {
        s->words[s->n_levels] = words;
        if (!(s->level[s->n_levels++] = lf_calloc(words, sizeof(uint64_t), err)))
            return LF_ENOMEM;
        if (words == 1)
            return 0;
        words = (words - 1) / 64 + 1;
    }
}

static void set_add(struct bitset *s, uint32_t x)
{
    for (int l = 0; l < s->n_levels; l++, x >>= 6)
        s->level[l][x >> 6] |= (uint64_t)1 << (x & 63);
}

static void set_del(struct bitset *s, uint32_t x)
{
    for (int l = 0; l < s->n_levels; l++, x >>= 6)
        if (s->level[l][x >> 6] &= ~((uint64_t)1 << (x & 63)))
            return;
}

/* Smallest member >= x, or NONE: climb until a word has one, then go down to its smallest. */
static uint32_t set_next(const struct bitset *s, uint32_t x)
{
    for (int l = 0; l < s->n_levels; l++) {
        size_t word = x >> 6;
        if (word >= s->words[l])
            return NONE;
        uint64_t w = s->level[l][word] & (~(uint64_t)0 << (x & 63));
        if (w) {
            x = (uint32_t)word << 6 | (uint32_t)__builtin_ctzll(w);
            while (l-- > 0)
                x = x << 6 | (uint32_t)__builtin_ctzll(s->level[l][x]);
            return x;
        }
        x = (uint32_t)word + 1;
    }
    return NONE;
}

/* Every piece, sorted by falling length, documents in order (counting sort). */
static int sorted_pieces(const lf_pack *p, struct bfd *b, lf_err *err)
{
    size_t total = 0;
    size_t *at = lf_calloc((size_t)p->T + 2, sizeof *at, err);
    if (!at)
        return LF_ENOMEM;
    for (uint64_t d = 0; d < p->n_docs; d++) {
        uint64_t len = p->len(p->user, d);
        at[p->T] += (size_t)(len / p->T);
        at[len % p->T] += len % p->T > 0;
        total += (size_t)(len / p->T) + (len % p->T > 0);
        if (len / p->T >= UINT32_MAX || total >= NONE) {
            free(at);
            return lf_fail(err, LF_EINVAL,
                           "too many documents to pack by best fit (2^32); use policy concat");
        }
    }
    size_t sum = 0;
    for (uint32_t len = p->T; len > 0; len--) {
        size_t n = at[len];
        at[len] = sum;
        sum += n;
    }
    b->n_pieces = total;
    b->pieces = lf_malloc(total + 1, sizeof *b->pieces, err);
    b->next = lf_malloc(total + 1, sizeof *b->next, err);
    if (b->pieces && b->next)
        for (uint64_t d = 0; d < p->n_docs; d++) {
            uint64_t len = p->len(p->user, d);
            for (uint64_t k = 0; k * p->T < len; k++) {
                uint32_t n = len - k * p->T < p->T ? (uint32_t)(len - k * p->T) : p->T;
                b->pieces[at[n]++] =
                    (struct lf_pack_item){.doc = d, .piece = (uint32_t)k, .len = n};
            }
        }
    free(at);
    return b->pieces && b->next ? 0 : LF_ENOMEM;
}

static void open_bin(struct bfd *b, uint32_t i)
{
    uint32_t room = b->bins[i].room;
    b->bins[i].next_open = NONE;
    if (b->head[room] == NONE) {
        set_add(&b->open, room);
        b->head[room] = i;
    } else {
        b->bins[b->tail[room]].next_open = i;
    }
    b->tail[room] = i;
}

static uint32_t take_bin(struct bfd *b, uint32_t room)
{
    uint32_t i = b->head[room];
    b->head[room] = b->bins[i].next_open;
    if (b->head[room] == NONE)
        set_del(&b->open, room);
    return i;
}

static int place(const lf_pack *p, struct bfd *b, uint32_t piece, lf_err *err)
{
    uint32_t len = b->pieces[piece].len, room = set_next(&b->open, len), i;
    if (room != NONE) {
        i = take_bin(b, room);
        b->next[b->bins[i].last] = piece;
        b->bins[i].last = piece;
    } else {
        int rc = lf_grow(&b->bins, &b->cap_bins, b->n_bins, sizeof *b->bins, err);
        if (rc < 0)
            return rc;
        i = (uint32_t)b->n_bins++;
        b->bins[i] = (struct bin){.room = p->T, .first = piece, .last = piece};
    }
    b->next[piece] = NONE;
    b->bins[i].room -= len;
    b->bins[i].n++;
    /* One segment is kept back for the padding. */
    if (b->bins[i].room > 0 && b->bins[i].n < p->max_segs - 1)
        open_bin(b, i);
    return 0;
}

static int flatten(lf_pack *p, const struct bfd *b, lf_err *err)
{
    uint64_t at = 0;
    p->items = lf_malloc(b->n_pieces + 1, sizeof *p->items, err);
    p->first_item = lf_malloc(b->n_bins + 1, sizeof *p->first_item, err);
    if (!p->items || !p->first_item)
        return LF_ENOMEM;
    for (size_t i = 0; i < b->n_bins; i++) {
        p->first_item[i] = at;
        for (uint32_t k = b->bins[i].first; k != NONE; k = b->next[k])
            p->items[at++] = b->pieces[k];
    }
    p->first_item[b->n_bins] = at;
    p->n = b->n_bins;
    return 0;
}

int lf_pack_build_bfd(lf_pack *p, lf_err *err)
{
    struct bfd b = {0};
    int rc = set_init(&b.open, p->T, err);
    if (rc < 0 || (rc = sorted_pieces(p, &b, err)) < 0)
        goto out;
    b.head = lf_malloc((size_t)p->T + 1, sizeof *b.head, err);
    b.tail = lf_malloc((size_t)p->T + 1, sizeof *b.tail, err);
    if (!b.head || !b.tail) {
        rc = LF_ENOMEM;
        goto out;
    }
    for (uint32_t r = 0; r <= p->T; r++)
        b.head[r] = NONE;
    for (size_t i = 0; i < b.n_pieces && rc == 0; i++)
        rc = place(p, &b, (uint32_t)i, err);
    if (rc == 0)
        rc = flatten(p, &b, err);
out:
    for (int l = 0; l < b.open.n_levels; l++)
        free(b.open.level[l]);
    free(b.head);
    free(b.tail);
    free(b.bins);
    free(b.pieces);
    free(b.next);
    return rc;
}
