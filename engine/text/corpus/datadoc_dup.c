/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that were there before. Exactly: an open-addressing table of 64-bit hashes; when it is full,
 * only hashes that end in one more zero bit stay, so what is left is a fair sample. Nearly: MinHash
 * by one permutation over windows of 12 bytes in 32 classes, found through 8 bands of 4, confirmed
 * by the share of equal minima.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/corpus/datadoc_priv.h"

/* ---- exact ---- */

struct dup_slot {
    uint64_t hash, row; /* row + 1; 0: free */
};

struct lf_dups {
    struct dup_slot *slot;
    size_t cap, used, max; /* cap: a power of 2 */
    int sampled;
};

struct lf_dups *lf_dups_create(size_t max_bytes, lf_err *err)
{
    struct lf_dups *d = lf_calloc(1, sizeof *d, err);
    if (!d)
        return NULL;
    d->cap = 1024;
    for (d->max = 1024; d->max * 4 * sizeof *d->slot <= max_bytes; d->max *= 2)
        ;
    if (!(d->slot = lf_calloc(d->cap, sizeof *d->slot, err))) {
        free(d);
        return NULL;
    }
    return d;
}

void lf_dups_destroy(struct lf_dups *d)
{
    if (d)
        free(d->slot);
    free(d);
}

static struct dup_slot *find_slot(struct dup_slot *slot, size_t cap, uint64_t hash)
{
    size_t i = (size_t)(hash >> 20) & (cap - 1);
    while (slot[i].row && slot[i].hash != hash)
        i = (i + 1) & (cap - 1);
    return &slot[i];
}

static bool in_sample(const struct lf_dups *d, uint64_t hash)
{
    return (hash & ((1ull << d->sampled) - 1)) == 0;
}

/* More room, or a smaller sample of the hashes. */
static int make_room(struct lf_dups *d, lf_err *err)
{
    size_t cap = d->cap < d->max ? d->cap * 2 : d->cap;
    struct dup_slot *slot = lf_calloc(cap, sizeof *slot, err);
    if (!slot)
        return LF_ENOMEM;
    d->sampled += cap == d->cap;
    d->used = 0;
    for (size_t i = 0; i < d->cap; i++)
        if (d->slot[i].row && in_sample(d, d->slot[i].hash)) {
            *find_slot(slot, cap, d->slot[i].hash) = d->slot[i];
            d->used++;
        }
    free(d->slot);
    d->slot = slot;
    d->cap = cap;
    return 0;
}

int lf_dups_add(struct lf_dups *d, uint64_t hash, uint64_t row, uint64_t *first, lf_err *err)
{
    while (d->used * 4 > d->cap * 3) {
        int rc = make_room(d, err);
        if (rc < 0)
            return rc;
    }
    if (!in_sample(d, hash))
        return 0;
    struct dup_slot *s = find_slot(d->slot, d->cap, hash);
    if (s->row) {
        *first = s->row - 1;
        return 1;
    }
    *s = (struct dup_slot){hash, row + 1};
    d->used++;
    return 0;
}

int lf_dups_sampled(const struct lf_dups *d)
{
    return d->sampled;
}

/* ---- near ---- */

#define WINDOW    12
#define CLASSES   32
#define BANDS     8
#define BAND_ROWS (CLASSES / BANDS)
#define NEAR      0.8
#define MIN_TEXT  50
#define NEAR_ROW                                                                                   \
    (CLASSES * 4 + 8 + BANDS * 16) /* bytes of a row: minima, number, band slots at load 1/2 */

struct band_slot {
    uint32_t key, index; /* index + 1; 0: free */
};

struct lf_near {
    size_t n, max;          /* rows */
    uint32_t *minima;       /* [max][CLASSES] */
    uint64_t *row;          /* [max] */
    struct band_slot *slot; /* [BANDS][cap] */
    size_t cap;             /* a power of 2 */
    size_t cap_minima, cap_row;
};

struct lf_near *lf_near_create(size_t max_bytes, lf_err *err)
{
    struct lf_near *d = lf_calloc(1, sizeof *d, err);
    if (!d)
        return NULL;
    for (d->max = 512; d->max * 2 * NEAR_ROW <= max_bytes; d->max *= 2)
        ;
    d->cap = 1024;
    if (!(d->slot = lf_calloc(BANDS * d->cap, sizeof *d->slot, err))) {
        free(d);
        return NULL;
    }
    return d;
}

void lf_near_destroy(struct lf_near *d)
{
    if (!d)
        return;
    free(d->minima);
    free(d->row);
    free(d->slot);
    free(d);
}

/* Minima of a hash over all windows, in classes by its upper bits; empty classes borrow from the
 * next one. */
static void make_minima(uint32_t m[CLASSES], const char *s, size_t n)
{
    uint64_t h = 0, top = 1;
    memset(m, 0xFF, CLASSES * sizeof *m);
    for (int i = 0; i < WINDOW; i++)
        top *= 0x100000001B3u;
    for (size_t i = 0; i < n; i++) {
        h = h * 0x100000001B3u + (unsigned char)s[i] + 1;
        if (i >= WINDOW)
            h -= top * ((unsigned char)s[i - WINDOW] + 1u);
        if (i + 1 < WINDOW)
            continue;
        uint64_t v = h * 0x9E3779B97F4A7C15u;
        v ^= v >> 29;
        v *= 0xBF58476D1CE4E5B9u;
        uint32_t low = (uint32_t)(v >> 20) >> 1, class = (uint32_t)(v >> 59);
        m[class] = low < m[class] ? low : m[class];
    }
    for (int k = 0; k < CLASSES; k++)
        for (int j = 1; m[k] == UINT32_MAX && j < CLASSES; j++)
            if (m[(k + j) % CLASSES] <= INT32_MAX)
                m[k] = m[(k + j) % CLASSES] | 0x80000000u;
}

static uint32_t band_key(const uint32_t *m, int b)
{
    uint64_t h = lf_datadoc_hash(m + b * BAND_ROWS, BAND_ROWS * sizeof *m, (uint64_t)b);
    return (uint32_t)h;
}

/* The first free slot behind key of a band, or the one that holds it. */
static struct band_slot *find_band(struct lf_near *d, int b, uint32_t key)
{
    struct band_slot *s = d->slot + (size_t)b * d->cap;
    size_t i = (key * 0x9E3779B1u) & (d->cap - 1);
    while (s[i].index && s[i].key != key)
        i = (i + 1) & (d->cap - 1);
    return &s[i];
}

static int grow_near(struct lf_near *d, lf_err *err)
{
    int rc = lf_grow(&d->minima, &d->cap_minima, d->n, CLASSES * sizeof *d->minima, err);
    if (rc == 0)
        rc = lf_grow(&d->row, &d->cap_row, d->n, sizeof *d->row, err);
    if (rc < 0 || (d->n + 1) * 2 <= d->cap)
        return rc;
    struct band_slot *old = d->slot, *slot = lf_calloc(BANDS * d->cap * 2, sizeof *slot, err);
    size_t old_cap = d->cap;
    if (!slot)
        return LF_ENOMEM;
    d->slot = slot;
    d->cap *= 2;
    for (size_t i = 0; i < BANDS * old_cap; i++)
        if (old[i].index)
            *find_band(d, (int)(i / old_cap), old[i].key) = old[i];
    free(old);
    return 0;
}

static double similarity_of(const uint32_t *a, const uint32_t *b)
{
    int same = 0;
    for (int k = 0; k < CLASSES; k++)
        same += a[k] == b[k];
    return (double)same / CLASSES;
}

int lf_near_add(struct lf_near *d, const char *text, size_t len, uint64_t row, uint64_t *like,
                double *similarity, lf_err *err)
{
    uint32_t m[CLASSES];
    if (d->n >= d->max || len < MIN_TEXT)
        return 0;
    int rc = grow_near(d, err);
    if (rc < 0)
        return rc;
    make_minima(m, text, len);
    double best = 0;
    for (int b = 0; b < BANDS; b++) {
        struct band_slot *s = find_band(d, b, band_key(m, b));
        double sim = s->index ? similarity_of(m, d->minima + (size_t)(s->index - 1) * CLASSES) : 0;
        if (sim > best) {
            best = sim;
            *like = d->row[s->index - 1];
        }
        if (!s->index)
            *s = (struct band_slot){band_key(m, b), (uint32_t)d->n + 1};
    }
    memcpy(d->minima + d->n * CLASSES, m, sizeof m);
    d->row[d->n++] = row;
    *similarity = best;
    return best >= NEAR;
}

uint64_t lf_near_rows(const struct lf_near *d)
{
    return d->n;
}
