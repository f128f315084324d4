/* SPDX-License-Identifier: Apache-2.0
 *
 * The merge loop, step for step that of the tokenizers library (models/bpe/trainer.rs), because
 * ties and repeated pairs show in the result:
 *   1. a queue entry is (count, pair, words to look in); the largest count, then the smaller pair
 *      is on top;
 *   2. an entry whose count is out of date goes back with the right one;
 *   3. merging changes counts; pairs that gained words get a new entry with just those words, so
 *      one pair may be merged twice (when a token arises in two ways), and its last rank counts;
 *   4. the merged pair's own count is not lowered, except where it overlaps itself.
 * What the symbols of a word are is the caller's: bytes, characters, or the tokens of a vocabulary
 * that is to grow.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/token/bpe.h"
#include "engine/text/vocab/train_priv.h"

typedef struct word_list { /* words in which a pair occurs; n = 0 when free */
    uint32_t *v;
    size_t n, cap;
} word_list;

typedef struct pair_info {
    uint64_t key; /* a << 32 | b */
    int64_t count;
    int64_t fresh; /* index into trainer.fresh of the words gained in this round, -1 none */
} pair_info;

typedef struct entry {
    uint64_t count, key;
    uint32_t round; /* of two entries for one pair, the older first */
    word_list words;
} entry;

typedef struct trainer {
    const lf_merge_args *a;
    lf_vocab *vocab;
    lf_merge_words *w;
    pair_info *pairs;
    size_t n_pairs, cap_pairs;
    uint32_t *pair_slots;
    size_t pair_mask;
    uint32_t *gained; /* pairs that gained words in this round */
    size_t n_gained, cap_gained;
    word_list *fresh;
    size_t n_fresh, cap_fresh;
    entry *heap;
    size_t n_heap, cap_heap;
    lf_trained_merge *merges;
    size_t n_merges, cap_merges;
} trainer;

/* ---- pairs ---- */

static inline size_t pair_hash(uint64_t key)
{
    return (size_t)((key ^ (key >> 31)) * 0x9E3779B97F4A7C15u >> 30);
}

static int grow_pairs(trainer *t, lf_err *err)
{
    size_t slots = t->pair_slots ? (t->pair_mask + 1) * 2 : 65536;
    uint32_t *s = lf_calloc(slots, sizeof(*s), err);
    if (!s)
        return LF_ENOMEM;
    for (size_t i = 0; i < t->n_pairs; i++) {
        size_t k = pair_hash(t->pairs[i].key) & (slots - 1);
        while (s[k])
            k = (k + 1) & (slots - 1);
        s[k] = (uint32_t)(i + 1);
    }
    free(t->pair_slots);
    t->pair_slots = s;
    t->pair_mask = slots - 1;
    return 0;
}

/* Index of a pair, new with count 0; negative on error. */
static int64_t pair_at(trainer *t, uint64_t key, lf_err *err)
{
    if ((t->n_pairs + 1) * 2 > t->pair_mask && grow_pairs(t, err) != 0)
        return LF_ENOMEM;
    size_t k = pair_hash(key) & t->pair_mask;
    for (; t->pair_slots[k]; k = (k + 1) & t->pair_mask)
        if (t->pairs[t->pair_slots[k] - 1].key == key)
            return t->pair_slots[k] - 1;
    int rc = lf_grow(&t->pairs, &t->cap_pairs, t->n_pairs, sizeof(*t->pairs), err);
    if (rc != 0)
        return rc;
    t->pairs[t->n_pairs] = (pair_info){.key = key, .fresh = -1};
    t->pair_slots[k] = (uint32_t)(t->n_pairs + 1);
    return (int64_t)t->n_pairs++;
}

/* Change a pair's count by `by` for word w; a gain notes the word once. */
static int change(trainer *t, uint32_t a, uint32_t b, int64_t by, uint32_t w, lf_err *err)
{
    int64_t i = pair_at(t, (uint64_t)a << 32 | b, err);
    if (i < 0)
        return (int)i;
    t->pairs[i].count += by;
    if (by < 0)
        return 0;
    int rc = 0;
    if (t->pairs[i].fresh < 0) {
        rc = lf_grow(&t->fresh, &t->cap_fresh, t->n_fresh, sizeof(*t->fresh), err);
        if (rc == 0)
            rc = lf_grow(&t->gained, &t->cap_gained, t->n_gained, sizeof(*t->gained), err);
        if (rc != 0)
            return rc;
        t->gained[t->n_gained++] = (uint32_t)i;
        t->fresh[t->n_fresh] = (word_list){0};
        t->pairs[i].fresh = (int64_t)t->n_fresh++;
    }
    word_list *l = &t->fresh[t->pairs[i].fresh];
    if (l->n > 0 && l->v[l->n - 1] == w)
        return 0;
    rc = lf_grow(&l->v, &l->cap, l->n, sizeof(*l->v), err);
    if (rc == 0)
        l->v[l->n++] = w;
    return rc;
}

/* ---- queue ---- */

/* Is x to be merged before y? */
static bool before(const entry *x, const entry *y)
{
    if (x->count != y->count)
        return x->count > y->count;
    if (x->key != y->key)
        return x->key < y->key;
    return x->round < y->round;
}

static void heap_up(trainer *t, entry e)
{
    size_t i = t->n_heap++;
    for (; i > 0 && before(&e, &t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = e;
}

static entry heap_pop(trainer *t)
{
    entry top = t->heap[0], e = t->heap[--t->n_heap];
    size_t i = 0;
    for (size_t c; (c = 2 * i + 1) < t->n_heap; i = c) {
        if (c + 1 < t->n_heap && before(&t->heap[c + 1], &t->heap[c]))
            c++;
        if (!before(&t->heap[c], &e))
            break;
        t->heap[i] = t->heap[c];
    }
    if (t->n_heap > 0)
        t->heap[i] = e;
    return top;
}

/* Turn what this round gained into queue entries. */
static int queue_gained(trainer *t, uint32_t round, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < t->n_gained; i++) {
        pair_info *p = &t->pairs[t->gained[i]];
        word_list l = t->fresh[p->fresh];
        p->fresh = -1;
        if (rc == 0 && p->count > 0)
            rc = lf_grow(&t->heap, &t->cap_heap, t->n_heap, sizeof(*t->heap), err);
        if (rc == 0 && p->count > 0)
            heap_up(
                t, (entry){.count = (uint64_t)p->count, .key = p->key, .round = round, .words = l});
        else
            free(l.v);
    }
    t->n_gained = t->n_fresh = 0;
    return rc;
}

/* ---- merging ---- */

/* Replace a b by made in word w, left to right, telling neighbours' counts as the library does. */
static int merge_word(trainer *t, uint32_t w, uint32_t a, uint32_t b, uint32_t made, lf_err *err)
{
    uint32_t *s = t->w->sym + t->w->start[w];
    size_t n = t->w->len[w], k = 0;
    int64_t c = (int64_t)t->w->count[w];
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; k++) {
        if (s[i] != a || i + 1 >= n || s[i + 1] != b) {
            s[k] = s[i++];
            continue;
        }
        if (k > 0) { /* s[0 .. k) is done, so its last is what the library sees on the left */
            rc = change(t, s[k - 1], a, -c, w, err);
            if (rc == 0)
                rc = change(t, s[k - 1], made, c, w, err);
        }
        i += 2;
        if (i < n && rc == 0) {
            rc = change(t, b, s[i], -c, w, err);
            if (rc == 0)
                rc = change(t, made, s[i], c, w, err);
        }
        s[k] = made;
    }
    t->w->len[w] = (uint32_t)k;
    return rc;
}

static int count_pairs(trainer *t, lf_err *err)
{
    int rc = grow_pairs(t, err);
    for (size_t i = 0; i < t->w->n && rc == 0; i++) {
        const uint32_t *s = t->w->sym + t->w->start[i];
        for (size_t k = 0; k + 1 < t->w->len[i] && rc == 0; k++)
            rc = change(t, s[k], s[k + 1], (int64_t)t->w->count[i], (uint32_t)i, err);
    }
    return rc == 0 ? queue_gained(t, 0, err) : rc;
}

/* One merge of the entry on top; it is no longer in the queue. */
static int merge_entry(trainer *t, const entry *e, lf_err *err)
{
    uint32_t a = (uint32_t)(e->key >> 32), b = (uint32_t)e->key;
    lf_buf text;
    lf_buf_init(&text);
    lf_buf_adds(&text, t->vocab->text[a]);
    lf_buf_adds(&text, t->vocab->text[b]);
    int rc = lf_buf_check(&text, err);
    bool refused = rc == 0 && t->a->allow && !t->a->allow(t->a->allow_ctx, text.data);
    int64_t made = rc == 0 && !refused ? lf_vocab_add(t->vocab, text.data, err) : rc;
    lf_buf_fini(&text);
    if (refused)
        return 0; /* the pair is out of the queue, and its count stays */
    if (made < 0)
        return (int)made;
    rc = lf_grow(&t->merges, &t->cap_merges, t->n_merges, sizeof(*t->merges), err);
    if (rc != 0)
        return rc;
    t->merges[t->n_merges++] = (lf_trained_merge){a, b};
    for (size_t i = 0; i < e->words.n && rc == 0; i++)
        rc = merge_word(t, e->words.v[i], a, b, (uint32_t)made, err);
    return rc == 0 ? queue_gained(t, (uint32_t)t->n_merges, err) : rc;
}

static int merge_loop(trainer *t, lf_err *err)
{
    uint64_t least = t->a->min_frequency > 1 ? t->a->min_frequency : 1;
    while (t->vocab->n < t->a->vocab_size && t->n_heap > 0) {
        entry e = heap_pop(t);
        int64_t i = pair_at(t, e.key, err);
        if (i < 0) {
            free(e.words.v);
            return (int)i;
        }
        int64_t now = t->pairs[i].count;
        if (now > 0 && (uint64_t)now != e.count) { /* room: it was just taken out */
            e.count = (uint64_t)now;
            heap_up(t, e);
            continue;
        }
        int rc = 0;
        bool stop = now <= 0 ? false : e.count < least;
        if (now > 0 && !stop)
            rc = merge_entry(t, &e, err);
        free(e.words.v);
        if (stop)
            break;
        if (rc == 0 && t->a->fn && t->n_merges % 64 == 0)
            rc = t->a->fn(t->a->arg, t->vocab->n, t->a->vocab_size);
        if (rc != 0)
            return rc < 0 && rc != LF_EINTR ? rc : lf_fail(err, LF_EINTR, "training was stopped");
    }
    return 0;
}

/* Of a pair merged twice, the last counts. */
static int drop_repeats(trainer *t, lf_err *err)
{
    size_t slots = 64, k = t->n_merges;
    while (slots < 2 * t->n_merges)
        slots *= 2;
    uint64_t *seen = lf_calloc(slots, sizeof(*seen), err);
    if (!seen)
        return LF_ENOMEM;
    for (size_t i = t->n_merges; i-- > 0;) {
        uint64_t key = ((uint64_t)t->merges[i].a << 32 | t->merges[i].b) + 1;
        size_t h = pair_hash(key) & (slots - 1);
        while (seen[h] && seen[h] != key)
            h = (h + 1) & (slots - 1);
        if (!seen[h]) {
            seen[h] = key;
            t->merges[--k] = t->merges[i];
        }
    }
    if (t->n_merges > k)
        memmove(t->merges, t->merges + k, (t->n_merges - k) * sizeof(*t->merges));
    t->n_merges -= k;
    free(seen);
    return 0;
}

static void trainer_fini(trainer *t)
{
    for (size_t i = 0; i < t->n_heap; i++)
        free(t->heap[i].words.v);
    for (size_t i = 0; i < t->n_fresh; i++)
        free(t->fresh[i].v);
    free(t->pairs);
    free(t->pair_slots);
    free(t->gained);
    free(t->fresh);
    free(t->heap);
    free(t->merges);
}

int lf_merge_train(lf_vocab *v, lf_merge_words *w, const lf_merge_args *a,
                   lf_trained_merge **merges, size_t *n_merges, lf_err *err)
{
    trainer t = {.a = a, .vocab = v, .w = w};
    int rc = count_pairs(&t, err);
    if (rc == 0)
        rc = merge_loop(&t, err);
    if (rc == 0)
        rc = drop_repeats(&t, err);
    if (rc == 0) {
        *merges = t.merges;
        *n_merges = t.n_merges;
        t.merges = NULL;
    }
    trainer_fini(&t);
    return rc;
}
