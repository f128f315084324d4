/* SPDX-License-Identifier: Apache-2.0
 *
 * See bpe.h. Invariants of a merge in progress, kept by both methods:
 *   1. rank[i] is the rank of the pair that starts at symbol i, NONE when no merge exists or i is
 *      the last symbol.
 *   2. the pair merged next is the smallest (rank, position).
 * A heap entry is stale exactly when its rank is no longer rank[position]: ranks name pairs, and
 * boundaries between symbols only disappear.
 */
#include "config.h"

#include "engine/text/token/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/text/token/uniclass.h"

#define NONE          UINT32_MAX
#define SHORT_MAX     64    /* symbols up to which scanning beats the heap */
#define FAST_BUCKETS  16384 /* of two slots, one cache line: 1 MiB */
#define FAST_BYTES    15
#define FAST_IDS      3
#define FAST_SEE_LONG UINT32_MAX /* a short word with more ids: the other cache has it */
#define LONG_SLOTS    4096       /* 1 MiB */
#define LONG_BYTES    116
#define LONG_IDS      32

/* Words up to 15 bytes with up to 3 ids: key = the bytes, zero-padded, length in the last byte; n =
 * 0 is free, FAST_SEE_LONG sends the look-up on. */
struct fast_slot {
    uint64_t k0, k1;
    uint32_t n;
    uint32_t id[FAST_IDS];
};

struct long_slot {
    uint64_t hash;
    uint16_t len, n; /* n = 0: free */
    uint8_t key[LONG_BYTES];
    uint32_t id[LONG_IDS];
};

struct lf_bpe_state {
    const lf_bpe *b;
    struct fast_slot *fast;
    struct long_slot *longs;
    /* Scratch of merge_heap, grown on demand. */
    uint32_t *sym, *prev, *next, *rank, *made;
    size_t cap;
    uint64_t *heap;
    size_t heap_cap;
    uint32_t (*halves)[2]; /* of tokens that are unused: the pair seen last */
    size_t n_halves;
};

static inline uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 m = (unsigned __int128)(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD6E8FEB86659FD93u);
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

uint64_t lf_bpe_hash(const uint8_t *p, size_t n)
{
    uint64_t h = n, w;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&w, p, 8);
        h = mix(h, w);
    }
    w = 0;
    memcpy(&w, p, n);
    return mix(h, w);
}

static size_t table_slots(size_t n)
{
    size_t slots = 64;
    while (slots < n * 2)
        slots *= 2;
    return slots;
}

int lf_bpe_init(lf_bpe *b, size_t n_merges, lf_err *err)
{
    size_t slots = table_slots(n_merges);
    b->merges = lf_malloc(slots, sizeof(*b->merges), err);
    if (!b->merges)
        return LF_ENOMEM;
    for (size_t i = 0; i < slots; i++)
        b->merges[i].key = LF_BPE_EMPTY;
    b->merge_mask = slots - 1;
    b->unk = -1;
    for (int i = 0; i < 256; i++)
        b->byte_id[i] = -1;
    return 0;
}

static inline size_t merge_slot(uint64_t key)
{
    return (size_t)((key ^ (key >> 29)) * 0x9E3779B97F4A7C15u >> 32);
}

void lf_bpe_add_merge(lf_bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t id)
{
    uint64_t key = (uint64_t)left << 32 | right;
    size_t i = merge_slot(key) & b->merge_mask;
    while (b->merges[i].key != LF_BPE_EMPTY && b->merges[i].key != key)
        i = (i + 1) & b->merge_mask;
    b->merges[i] = (lf_bpe_merge){.key = key, .rank = rank, .id = id};
}

/* The merge of a pair, or NULL. */
static inline const lf_bpe_merge *find_merge(const lf_bpe *b, uint32_t left, uint32_t right)
{
    uint64_t key = (uint64_t)left << 32 | right;
    for (size_t i = merge_slot(key) & b->merge_mask;; i = (i + 1) & b->merge_mask) {
        if (b->merges[i].key == key)
            return &b->merges[i];
        if (b->merges[i].key == LF_BPE_EMPTY)
            return NULL;
    }
}

int lf_bpe_init_words(lf_bpe *b, size_t n_words, lf_err *err)
{
    size_t slots = table_slots(n_words);
    b->words = lf_calloc(slots, sizeof(*b->words), err);
    if (!b->words)
        return LF_ENOMEM;
    b->word_mask = slots - 1;
    return 0;
}

void lf_bpe_add_word(lf_bpe *b, const uint8_t *bytes, uint32_t len, uint32_t id)
{
    size_t i = (size_t)lf_bpe_hash(bytes, len) & b->word_mask;
    while (b->words[i].bytes)
        i = (i + 1) & b->word_mask;
    b->words[i] = (lf_bpe_word){.bytes = bytes, .len = len, .id = id};
}

int64_t lf_bpe_find_word(const lf_bpe *b, const uint8_t *p, size_t n)
{
    for (size_t i = (size_t)lf_bpe_hash(p, n) & b->word_mask; b->words[i].bytes;
         i = (i + 1) & b->word_mask)
        if (b->words[i].len == n && memcmp(b->words[i].bytes, p, n) == 0)
            return b->words[i].id;
    return -1;
}

void lf_bpe_fini(lf_bpe *b)
{
    free(b->merges);
    free(b->words);
    if (b->chars) {
        free(b->chars->others);
        free(b->chars->pairs);
        free(b->chars->prefix);
        free(b->chars->suffix);
        free(b->chars->phantom);
        free(b->chars->unused);
        free(b->chars);
    }
    memset(b, 0, sizeof(*b));
}

lf_bpe_state *lf_bpe_state_create(const lf_bpe *b, lf_err *err)
{
    lf_bpe_state *s = lf_calloc(1, sizeof(*s), err);
    if (!s)
        return NULL;
    s->b = b;
    s->fast = lf_calloc(FAST_BUCKETS * 2, sizeof(*s->fast), err);
    s->longs = lf_calloc(LONG_SLOTS, sizeof(*s->longs), err);
    if (!s->fast || !s->longs) {
        lf_bpe_state_destroy(s);
        return NULL;
    }
    return s;
}

void lf_bpe_state_destroy(lf_bpe_state *s)
{
    if (!s)
        return;
    free(s->fast);
    free(s->longs);
    free(s->sym);
    free(s->prev);
    free(s->next);
    free(s->rank);
    free(s->made);
    free(s->heap);
    free(s->halves);
    free(s);
}

typedef struct utf8_bytes {
    char b[4];
    unsigned n;
} utf8_bytes;

static utf8_bytes utf8_of(uint32_t c)
{
    utf8_bytes u;
    u.n = (unsigned)lf_utf8_put(u.b, c);
    return u;
}

/* The word's first symbols, one for each byte; bytes outside the vocabulary become unk, one for
 * each character, or one for each run of characters with fuse_unk. Returns how many, negative on
 * error. */
static int64_t first_symbols(const lf_bpe *b, const uint8_t *word, size_t n, uint32_t *sym,
                             lf_err *err)
{
    if (b->chars)
        return lf_bpe_char_symbols(b, word, n, sym, err);
    size_t k = 0;
    bool in_unk = false;
    for (size_t i = 0; i < n; i++) {
        if (b->byte_id[word[i]] >= 0) {
            sym[k++] = (uint32_t)b->byte_id[word[i]];
            in_unk = false;
            continue;
        }
        if (b->unk < 0)
            return lf_fail(err, LF_EFORMAT,
                           "the tokenizer has no token for byte 0x%02x and no unk_token, so this "
                           "text cannot be encoded",
                           word[i]);
        if (!in_unk || !b->fuse_unk)
            sym[k++] = (uint32_t)b->unk;
        in_unk = true;
    }
    return (int64_t)k;
}

static size_t merge_scan(const lf_bpe *b, uint32_t *sym, size_t n)
{
    uint32_t rank[SHORT_MAX], made[SHORT_MAX];
    for (size_t i = 0; i + 1 < n; i++) {
        const lf_bpe_merge *m = find_merge(b, sym[i], sym[i + 1]);
        rank[i] = m ? m->rank : NONE;
        made[i] = m ? m->id : 0;
    }
    rank[n - 1] = NONE;
    for (;;) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (n < 2 || rank[best] == NONE)
            return n;
        sym[best] = made[best];
        size_t tail = n - best - 2;
        memmove(sym + best + 1, sym + best + 2, tail * sizeof(*sym));
        memmove(rank + best + 1, rank + best + 2, tail * sizeof(*rank));
        memmove(made + best + 1, made + best + 2, tail * sizeof(*made));
        n--;
        rank[n - 1] = NONE;
        for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const lf_bpe_merge *m = find_merge(b, sym[i], sym[i + 1]);
            rank[i] = m ? m->rank : NONE;
            made[i] = m ? m->id : 0;
        }
    }
}

static void sift_down(uint64_t *h, size_t n, size_t i)
{
    uint64_t v = h[i];
    for (size_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && h[c + 1] < h[c])
            c++;
        if (h[c] >= v)
            break;
        h[i] = h[c];
    }
    h[i] = v;
}

static void heap_push(uint64_t *h, size_t *n, uint64_t v)
{
    size_t i = (*n)++;
    for (; i > 0 && h[(i - 1) / 2] > v; i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = v;
}

static int grow_scratch(lf_bpe_state *s, size_t n, lf_err *err)
{
    if (n > s->cap) {
        int rc = lf_realloc(&s->prev, n, sizeof(*s->prev), err);
        if (rc == 0)
            rc = lf_realloc(&s->next, n, sizeof(*s->next), err);
        if (rc == 0)
            rc = lf_realloc(&s->rank, n, sizeof(*s->rank), err);
        if (rc == 0)
            rc = lf_realloc(&s->made, n, sizeof(*s->made), err);
        if (rc == 0)
            rc = lf_realloc(&s->sym, n, sizeof(*s->sym), err);
        if (rc == 0)
            /* Each pop pushes at most two, and at most n - 1 pops merge: n entries at first, one
             * more for each. */
            rc = lf_realloc(&s->heap, 2 * n, sizeof(*s->heap), err);
        if (rc != 0)
            return rc;
        s->cap = n;
    }
    return 0;
}

/* sentencepiece remembers the pair of an unused token when it sees one, whether or not it is
 * merged. */
static inline void note_unused(const lf_bpe *b, lf_bpe_state *s, const lf_bpe_merge *m,
                               uint32_t left, uint32_t right)
{
    if (b->chars && b->chars->unused && b->chars->unused[m->id]) {
        s->halves[m->id][0] = left;
        s->halves[m->id][1] = right;
    }
}

static void set_pair(const lf_bpe *b, lf_bpe_state *s, uint32_t left, size_t *heap_n)
{
    uint32_t right = s->next[left];
    const lf_bpe_merge *m = right == NONE ? NULL : find_merge(b, s->sym[left], s->sym[right]);
    s->rank[left] = m ? m->rank : NONE;
    s->made[left] = m ? m->id : 0;
    if (m) {
        heap_push(s->heap, heap_n, (uint64_t)m->rank << 32 | left);
        note_unused(b, s, m, s->sym[left], s->sym[right]);
    }
}

/* Merges s->sym[0 .. n) in place. */
static size_t merge_heap(const lf_bpe *b, lf_bpe_state *s, size_t n)
{
    size_t heap_n = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->prev[i] = i ? i - 1 : NONE;
        s->next[i] = i + 1 < n ? i + 1 : NONE;
        const lf_bpe_merge *m = i + 1 < n ? find_merge(b, s->sym[i], s->sym[i + 1]) : NULL;
        s->rank[i] = m ? m->rank : NONE;
        s->made[i] = m ? m->id : 0;
        if (m) {
            s->heap[heap_n++] = (uint64_t)m->rank << 32 | i;
            note_unused(b, s, m, s->sym[i], s->sym[i + 1]);
        }
    }
    for (size_t i = heap_n / 2; i-- > 0;)
        sift_down(s->heap, heap_n, i);
    while (heap_n > 0) {
        uint64_t top = s->heap[0];
        s->heap[0] = s->heap[--heap_n];
        if (heap_n > 0)
            sift_down(s->heap, heap_n, 0);
        uint32_t at = (uint32_t)top;
        if (s->rank[at] != (uint32_t)(top >> 32))
            continue;
        uint32_t gone = s->next[at];
        s->sym[at] = s->made[at];
        s->next[at] = s->next[gone];
        s->rank[gone] = NONE;
        if (s->next[at] != NONE)
            s->prev[s->next[at]] = at;
        if (s->prev[at] != NONE)
            set_pair(b, s, s->prev[at], &heap_n);
        set_pair(b, s, at, &heap_n);
    }
    size_t k = 0;
    for (uint32_t i = 0; i != NONE; i = s->next[i])
        s->sym[k++] = s->sym[i];
    return k;
}

static int reserve(lf_ids *out, size_t more, lf_err *err)
{
    if (out->cap - out->n >= more)
        return 0;
    size_t want;
    if (!lf_size_add(&want, out->n, more))
        return lf_fail(err, LF_ENOMEM, "too many tokens for memory");
    size_t cap = out->cap ? out->cap : 256;
    while (cap < want)
        cap *= 2;
    int rc = lf_realloc(&out->v, cap, sizeof(*out->v), err);
    if (rc == 0)
        out->cap = cap;
    return rc;
}

int lf_ids_add_all(lf_ids *ids, const uint32_t *v, size_t n, lf_err *err)
{
    int rc = n > 0 ? reserve(ids, n, err) : 0;
    if (rc != 0 || n == 0)
        return rc;
    memcpy(ids->v + ids->n, v, n * sizeof(*v));
    ids->n += n;
    return 0;
}

int lf_ids_add(lf_ids *ids, uint32_t id, lf_err *err)
{
    int rc = reserve(ids, 1, err);
    if (rc == 0)
        ids->v[ids->n++] = id;
    return rc;
}

void lf_ids_fini(lf_ids *ids)
{
    free(ids->v);
    *ids = (lf_ids){0};
}

/* A symbol that has no token: its bytes, or unk. */
static int add_phantom(const lf_bpe *b, uint32_t c, lf_ids *out, lf_err *err)
{
    if (!b->chars->fallback)
        return lf_ids_add(out, (uint32_t)b->unk, err);
    utf8_bytes u = utf8_of(c);
    int rc = 0;
    for (unsigned i = 0; i < u.n && rc == 0; i++)
        rc = lf_ids_add(out, (uint32_t)b->chars->byte_tok[(uint8_t)u.b[i]], err);
    return rc;
}

/* Symbols -> ids: unused tokens are taken apart, symbols without a token spelt. Depth is bounded:
 * halves are shorter.
 */
static int spell(const lf_bpe *b, lf_bpe_state *s, uint32_t sym, lf_ids *out, lf_err *err)
{
    const lf_bpe_chars *c = b->chars;
    if (sym >= c->first_phantom)
        return add_phantom(b, c->phantom[sym - c->first_phantom], out, err);
    if (!c->unused || !c->unused[sym] || s->halves[sym][0] == NONE)
        return lf_ids_add(out, sym, err);
    uint32_t left = s->halves[sym][0], right = s->halves[sym][1];
    int rc = spell(b, s, left, out, err);
    return rc == 0 ? spell(b, s, right, out, err) : rc;
}

static int finish_chars(const lf_bpe *b, lf_bpe_state *s, const uint32_t *sym, size_t n,
                        lf_ids *out, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = spell(b, s, sym[i], out, err);
    return rc;
}

static int start_halves(const lf_bpe *b, lf_bpe_state *s, lf_err *err)
{
    size_t n = b->chars->first_phantom;
    int rc = s->n_halves >= n ? 0 : lf_realloc(&s->halves, n, sizeof(*s->halves), err);
    if (rc == 0) {
        s->n_halves = n;
        memset(s->halves, 0xFF, n * sizeof(*s->halves));
    }
    return rc;
}

/* The word without any cache; appends to out. */
static int encode_plain(lf_bpe_state *s, const uint8_t *word, size_t n, lf_ids *out, lf_err *err)
{
    const lf_bpe *b = s->b;
    bool odd = b->chars && (b->chars->n_phantom || b->chars->unused);
    if (b->ignore_merges) {
        int64_t id = lf_bpe_find_word(b, word, n);
        if (id >= 0)
            return lf_ids_add(out, (uint32_t)id, err);
    }
    if (n <= SHORT_MAX && !odd) {
        int rc = reserve(out, SHORT_MAX + 1, err);
        int64_t k = rc == 0 ? first_symbols(b, word, n, out->v + out->n, err) : rc;
        if (k > 0)
            out->n += merge_scan(b, out->v + out->n, (size_t)k);
        return k < 0 ? (int)k : 0;
    }
    int rc = grow_scratch(s, n + 1, err);
    if (rc == 0 && odd && b->chars->unused)
        rc = start_halves(b, s, err);
    int64_t k = rc == 0 ? first_symbols(b, word, n, s->sym, err) : rc;
    if (k < 0)
        return (int)k;
    size_t m = k > 0 ? merge_heap(b, s, (size_t)k) : 0;
    if (odd)
        return finish_chars(b, s, s->sym, m, out, err);
    rc = reserve(out, m, err);
    if (rc == 0) {
        memcpy(out->v + out->n, s->sym, m * sizeof(*out->v));
        out->n += m;
    }
    return rc;
}

static void keep_long(lf_bpe_state *s, const uint8_t *word, size_t n, const uint32_t *ids,
                      size_t n_ids)
{
    uint64_t h = lf_bpe_hash(word, n);
    struct long_slot *slot = &s->longs[h & (LONG_SLOTS - 1)];
    if (n_ids > LONG_IDS)
        return;
    slot->hash = h;
    slot->len = (uint16_t)n;
    slot->n = (uint16_t)n_ids;
    memcpy(slot->key, word, n);
    memcpy(slot->id, ids, n_ids * sizeof(*ids));
}

static int encode_long(lf_bpe_state *s, const uint8_t *word, size_t n, lf_ids *out, lf_err *err)
{
    uint64_t h = lf_bpe_hash(word, n);
    const struct long_slot *slot = &s->longs[h & (LONG_SLOTS - 1)];
    if (slot->n && slot->hash == h && slot->len == n && memcmp(slot->key, word, n) == 0) {
        int rc = reserve(out, LONG_IDS, err);
        if (rc != 0)
            return rc;
        memcpy(out->v + out->n, slot->id, slot->n * sizeof(*out->v));
        out->n += slot->n;
        return 0;
    }
    size_t at = out->n;
    int rc = encode_plain(s, word, n, out, err);
    if (rc == 0 && out->n > at)
        keep_long(s, word, n, out->v + at, out->n - at);
    return rc;
}

static inline void load_key(uint64_t *k0, uint64_t *k1, const uint8_t *word, size_t n,
                            const uint8_t *end)
{
    uint64_t a = 0, c = 0;
    if (end - word >= 16) {
        memcpy(&a, word, 8);
        memcpy(&c, word + 8, 8);
        if (n <= 8) {
            a &= n == 8 ? UINT64_MAX : ((uint64_t)1 << (8 * n)) - 1;
            c = 0;
        } else {
            c &= ((uint64_t)1 << (8 * (n - 8))) - 1;
        }
    } else {
        uint8_t pad[16] = {0};
        memcpy(pad, word, n);
        memcpy(&a, pad, 8);
        memcpy(&c, pad + 8, 8);
    }
    *k0 = a;
    *k1 = c | (uint64_t)n << 56;
}

static inline int encode_word(lf_bpe_state *s, const uint8_t *word, size_t n, const uint8_t *end,
                              bool cache, lf_ids *out, lf_err *err)
{
    if (!cache || n > LONG_BYTES)
        return encode_plain(s, word, n, out, err);
    if (n > FAST_BYTES)
        return encode_long(s, word, n, out, err);
    uint64_t k0, k1;
    load_key(&k0, &k1, word, n, end);
    struct fast_slot *slot = &s->fast[(mix(k0, k1) & (FAST_BUCKETS - 1)) * 2];
    const struct fast_slot *hit = NULL;
    if (slot[0].n && slot[0].k0 == k0 && slot[0].k1 == k1)
        hit = &slot[0];
    else if (slot[1].n && slot[1].k0 == k0 && slot[1].k1 == k1)
        hit = &slot[1];
    if (hit && hit->n == FAST_SEE_LONG)
        return encode_long(s, word, n, out, err);
    if (hit) {
        int rc = out->cap - out->n >= FAST_IDS ? 0 : reserve(out, FAST_IDS, err);
        if (rc != 0)
            return rc;
        uint32_t *v = out->v + out->n;
        v[0] = hit->id[0];
        v[1] = hit->id[1];
        v[2] = hit->id[2];
        out->n += hit->n;
        return 0;
    }
    size_t at = out->n;
    int rc = encode_plain(s, word, n, out, err);
    size_t made = out->n - at;
    if (rc != 0 || made == 0)
        return rc;
    slot[1] = slot[0];
    slot[0] = (struct fast_slot){
        .k0 = k0, .k1 = k1, .n = made > FAST_IDS ? FAST_SEE_LONG : (uint32_t)made};
    if (made > FAST_IDS)
        keep_long(s, word, n, out->v + at, made);
    else
        memcpy(slot[0].id, out->v + at, made * sizeof(*out->v));
    return 0;
}

/* Runs of unk from `at` on become one. */
static void fuse_unk(const lf_bpe *b, size_t at, lf_ids *out)
{
    size_t k = at;
    for (size_t i = at; i < out->n; i++)
        if (i == at || out->v[i] != (uint32_t)b->unk || out->v[i - 1] != (uint32_t)b->unk)
            out->v[k++] = out->v[i];
    out->n = k;
}

static int encode_chars(lf_bpe_state *s, const uint8_t *p, size_t n, const uint8_t *end, bool cache,
                        lf_ids *out, lf_err *err)
{
    const lf_bpe *b = s->b;
    const lf_bpe_chars *c = b->chars;
    const uint8_t *stop = p + n, *from = p, *at = p;
    size_t first = out->n;
    uint32_t prev = 0;
    int rc = 0;
    if (b->ignore_merges && c->cut) {
        int64_t id = lf_bpe_find_word(b, p, n);
        if (id >= 0)
            return lf_ids_add(out, (uint32_t)id, err);
    }
    while (at < stop && rc == 0) {
        unsigned k;
        int32_t id = -1;
        size_t user = c->user ? lf_vtrie_longest(c->user, at, (size_t)(stop - at), &id) : 0;
        uint32_t ch = lf_utf8_get(at, &k);
        if (from < at && (user || (c->cut && !lf_bpe_may_join(c, prev, ch)))) {
            rc = encode_word(s, from, (size_t)(at - from), end, cache, out, err);
            from = at;
        }
        if (user && rc == 0)
            rc = lf_ids_add(out, (uint32_t)id, err);
        at += user ? user : k;
        from = user ? at : from;
        prev = ch;
    }
    if (rc == 0 && from < stop)
        rc = encode_word(s, from, (size_t)(stop - from), end, cache, out, err);
    if (rc == 0 && c->fuse_unk && b->unk >= 0)
        fuse_unk(b, first, out);
    return rc;
}

int lf_bpe_encode(lf_bpe_state *s, const uint8_t *word, size_t n, const uint8_t *end, bool cache,
                  lf_ids *out, lf_err *err)
{
    if (s->b->chars)
        return encode_chars(s, word, n, end, cache, out, err);
    return encode_word(s, word, n, end, cache, out, err);
}
