/* SPDX-License-Identifier: Apache-2.0
 *
 * Frequent substrings of the words. All suffixes are sorted by their first max_piece characters
 * (Bentley and Sedgewick, "Fast Algorithms for Sorting and Searching Strings", 1997); neighbours
 * with a common beginning then form intervals, one for each substring that cannot be made longer
 * without becoming rarer, and those are the candidates: a shorter one with the same count is never
 * the better piece. Memory is 17 bytes a character of the different words.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/vocab/train_sp_priv.h"

typedef struct suffixes {
    const uint32_t *sym;
    uint32_t *at;     /* sorted */
    uint8_t *room;    /* characters from a position to the end of its word or max_piece */
    uint64_t *weight; /* how often its word was seen */
    size_t n;
} suffixes;

/* The character at depth d of suffix i, 0 at its end. */
static inline uint32_t key(const suffixes *s, uint32_t at, unsigned d)
{
    return d < s->room[at] ? s->sym[at + d] + 1 : 0;
}

static inline void swap(suffixes *s, size_t i, size_t k)
{
    uint32_t x = s->at[i];
    s->at[i] = s->at[k];
    s->at[k] = x;
}

/* Sort at[lo, hi), whose first d characters are equal. */
static void sort(suffixes *s, size_t lo, size_t hi, unsigned d)
{
    while (hi - lo > 1) {
        uint64_t mix = (lo * 0x9E3779B97F4A7C15u ^ hi) *
                       0xD1B54A32D192ED03u; /* no input makes this choice bad */
        uint32_t p = key(s, s->at[lo + (size_t)(mix >> 33) % (hi - lo)], d);
        size_t lt = lo, gt = hi;
        for (size_t i = lo; i < gt;) {
            uint32_t c = key(s, s->at[i], d);
            if (c < p)
                swap(s, i++, lt++);
            else if (c > p)
                swap(s, i, --gt);
            else
                i++;
        }
        sort(s, lo, lt, d);
        sort(s, gt, hi, d);
        if (p == 0)
            return; /* all ended */
        lo = lt;
        hi = gt;
        d++;
    }
}

static int load(suffixes *s, const lf_sp_words *w, size_t max_piece, lf_err *err)
{
    const lf_merge_words *m = &w->words;
    size_t n = m->n ? m->start[m->n - 1] + m->len[m->n - 1] : 0;
    *s = (suffixes){.sym = m->sym, .n = n};
    s->at = lf_malloc(n, sizeof(*s->at), err);
    s->room = lf_malloc(n, sizeof(*s->room), err);
    s->weight = lf_malloc(n, sizeof(*s->weight), err);
    if (!s->at || !s->room || !s->weight)
        return LF_ENOMEM;
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->len[i]; k++) {
            size_t p = m->start[i] + k, left = m->len[i] - k;
            s->at[p] = (uint32_t)p;
            s->room[p] = (uint8_t)(left < max_piece ? left : max_piece);
            s->weight[p] = m->count[i];
        }
    return 0;
}

/* ---- candidates ---- */

typedef struct found {
    lf_sp_cand *v;
    size_t n, cap, most;
} found;

static inline uint64_t worth(const lf_sp_cand *c)
{
    return c->count * c->len;
}

/* Best first; equal ones as they were found, which is the order of their texts (kept in score
 * meanwhile). */
static int by_worth(const void *x, const void *y)
{
    const lf_sp_cand *a = x, *b = y;
    if (worth(a) != worth(b))
        return worth(a) < worth(b) ? 1 : -1;
    return (a->score > b->score) - (a->score < b->score);
}

static int keep(found *f, uint32_t at, uint32_t len, uint64_t count, double order, lf_err *err)
{
    if (len < 2 || count < 2)
        return 0;
    if (f->n >= 2 * f->most) {
        qsort(f->v, f->n, sizeof(*f->v), by_worth);
        f->n = f->most;
    }
    int rc = lf_grow(&f->v, &f->cap, f->n, sizeof(*f->v), err);
    if (rc == 0)
        f->v[f->n++] = (lf_sp_cand){.count = count, .score = order, .at = at, .len = len};
    return rc;
}

static unsigned common(const suffixes *s, size_t i, size_t k)
{
    uint32_t a = s->at[i], b = s->at[k];
    unsigned d = 0, most = s->room[a] < s->room[b] ? s->room[a] : s->room[b];
    while (d < most && s->sym[a + d] == s->sym[b + d])
        d++;
    return d;
}

/* Intervals of equal beginnings, by a stack of those that are open: (length, first suffix, weight
 * before it). */
static int collect(found *f, const suffixes *s, lf_err *err)
{
    struct open {
        unsigned len;
        size_t first;
        uint64_t before;
    } stack[LF_SP_MAX_PIECE + 2];
    size_t top = 0;
    uint64_t before = 0;
    double order = 0;
    int rc = 0;
    for (size_t i = 0; i <= s->n && rc == 0; i++) {
        unsigned l = i > 0 && i < s->n ? common(s, i - 1, i) : 0;
        struct open from = {l, i, before};
        while (top > 0 && stack[top - 1].len > l && rc == 0) {
            from = stack[--top];
            rc = keep(f, s->at[from.first], from.len, before - from.before, order++, err);
        }
        if (i == s->n)
            break;
        if (l > 0 && (top == 0 || stack[top - 1].len < l))
            stack[top++] = (struct open){l, from.first, from.before};
        if (s->room[s->at[i]] > l)
            stack[top++] = (struct open){s->room[s->at[i]], i, before};
        before += s->weight[s->at[i]];
    }
    return rc;
}

/* A place of each single character. */
static int add_chars(found *f, const lf_sp_words *w, size_t n, lf_err *err)
{
    int rc = lf_realloc(&f->v, w->n_chars + f->most, sizeof(*f->v), err);
    if (rc != 0)
        return rc;
    memmove(f->v + w->n_chars, f->v, f->n * sizeof(*f->v));
    for (size_t p = 0; p < n; p++)
        f->v[w->words.sym[p]] =
            (lf_sp_cand){.count = w->counts[w->words.sym[p]], .at = (uint32_t)p, .len = 1};
    f->n += w->n_chars;
    return 0;
}

int lf_sp_seed(lf_sp_cand **out, size_t *n, const lf_sp_words *w, size_t max_piece, size_t most,
               lf_err *err)
{
    suffixes s;
    found f = {.most = most};
    int rc = load(&s, w, max_piece, err);
    if (rc == 0) {
        sort(&s, 0, s.n, 0);
        rc = collect(&f, &s, err);
    }
    if (rc == 0 && f.n > 0)
        qsort(f.v, f.n, sizeof(*f.v), by_worth);
    f.n = f.n < most ? f.n : most;
    if (rc == 0)
        rc = add_chars(&f, w, s.n, err);
    if (rc == 0) {
        *out = f.v;
        *n = f.n;
        f.v = NULL;
    }
    free(f.v);
    free(s.at);
    free(s.room);
    free(s.weight);
    return rc;
}
