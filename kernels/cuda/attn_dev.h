/* SPDX-License-Identifier: Apache-2.0
 *
 * What the attention kernels of this backend share on the device: what a row sees, scores, dropout
 * and the combination of tiles.
 *
 * The numeric contract is the same for training (attn_fwd) and generation (attn_paged). A tile of
 * LF_ATTN_TILE keys has a part of each row. It depends only on the keys of the tile that the row
 * sees:
 *
 *     m_t = max of the scores (base 2: score * log2 e)     p = 2^(score - m_t)
 *     l_t = sum p                                          o_t = p v
 *
 * The sums run in the order of the keys in the tile. Tiles combine in ascending order by
 *
 *     M' = max(M, m_t)
 *     l = l 2^(M - M') + l_t 2^(m_t - M')     o = o 2^(M - M') + o_t 2^(m_t - M')
 *
 * The part of a tile does not depend on other tiles. So no bit depends on which thread computes it,
 * or when. A tile in which a row sees nothing has m_t = -inf, so it weighs 0 and does not change
 * the row.
 */
#ifndef LF_KERNELS_CUDA_ATTN_DEV_H
#define LF_KERNELS_CUDA_ATTN_DEV_H

#include "kernels/cuda/dev.h"

enum { ATTN_T = LF_ATTN_TILE };
#define ATTN_LOG2E 1.4426950408889634f
#define ATTN_LN2   0.69314718055994531f

/* The values that all rows of a call share. A score x, the bare product q . k, counts as sl * x in
 * base 2. With softcap, ALiBi or a scale that is not positive (which would turn the maximum over),
 * x is `bent` first and sl is 1. */
struct attn_call {
    float scale, softcap, sl;
    int window;
    bool causal, bent;
};
LF_DEV struct attn_call attn_call_of(float scale, float softcap, int window, bool causal,
                                     bool alibi)
{
    struct attn_call c;
    c.scale = scale;
    c.softcap = softcap;
    c.window = window;
    c.causal = causal;
    c.bent = softcap > 0.0f || alibi || !(scale > 0.0f);
    c.sl = c.bent ? 1.0f : scale * ATTN_LOG2E;
    return c;
}

/* The score in base 2 of a product. distance is query position - key position. *cap becomes the
 * derivative of the softcap. */
LF_DEV float attn_bend(const struct attn_call *c, float x, float slope, int distance, float *cap)
{
    float v = x * c->scale;
    *cap = 1.0f;
    if (c->softcap > 0.0f) {
        const float t = tanhf(v / c->softcap);
        v = c->softcap * t;
        *cap = fmaf(-t, t, 1.0f);
    }
    return fmaf(-slope, (float)distance, v) * ATTN_LOG2E;
}

/* The first key that the window or chunk of a row at position pos leaves it, and the end of the
 * rows, of a document of len, that it leaves the key at pos. */
LF_DEV int attn_first(const struct attn_call *c, int pos)
{
    const int first = c->window < 0 ? pos / -c->window * -c->window : pos - c->window + 1;
    return c->window != 0 && first > 0 ? first : 0;
}
LF_DEV int attn_past(const struct attn_call *c, int pos, int len)
{
    const int n = -c->window;
    if (c->window < 0) /* without a sum beyond len, as chunks may be of any length */
        return len - pos / n * n > n ? (pos / n + 1) * n : len;
    return c->window > 0 && pos + c->window < len ? pos + c->window : len;
}

/* The keys [*lo, *hi) that the query at position pos sees, of a document of len keys: the past, the
 * first `prefix` keys and those below run[1] (NULL: none). */
LF_DEV void attn_range(const struct attn_call *c, int pos, int len, int prefix, const int32_t *run,
                       int *lo, int *hi)
{
    int open = pos + 1 > prefix ? pos + 1 : prefix;
    if (run && run[1] > open)
        open = run[1];
    *hi = c->causal && open < len ? open : len;
    *lo = pos >= prefix ? attn_first(c, pos) : 0;
    if (*lo > *hi)
        *lo = *hi;
}

/* A query row and its running result. */
struct attn_row {
    int pos, lo, hi; /* visible keys */
    float slope, m, l;
    uint64_t draw; /* Philox counter of the row */
};
LF_DEV void attn_row_clear(struct attn_row *r)
{
    r->pos = r->lo = r->hi = 0;
    r->slope = r->l = 0.0f;
    r->m = -INFINITY;
    r->draw = 0;
}

/* Adds the part of a tile. *was and *now become the weights of the result so far and of the
 * tile. */
LF_DEV void attn_combine(struct attn_row *r, float mt, float lt, float *was, float *now)
{
    const float m = fmaxf(r->m, mt), base = m == -INFINITY ? 0.0f : m;
    *was = lf_exp2(r->m - base);
    *now = lf_exp2(mt - base);
    r->l = fmaf(lt, *now, r->l * *was);
    r->m = m;
}
/* Ends a row of head h: its sink joins as a tile would that has one key without a value. Returns
 * what its sums are multiplied by. A row that saw no key stays without. */
LF_DEV float attn_close(struct attn_row *r, const float *sinks, int h)
{
    float was = 1.0f, now;
    if (r->l == 0.0f)
        return 0.0f;
    if (sinks)
        attn_combine(r, sinks[h] * ATTN_LOG2E, 1.0f, &was, &now);
    return was / r->l;
}
LF_DEV float attn_lse(const struct attn_row *r)
{
    return r->l == 0.0f ? -INFINITY : fmaf(r->m, ATTN_LN2, logf(r->l));
}

/* The dropout of a call and a head. */
struct attn_draws {
    float p, keep;
    uint32_t site, b; /* b: Philox counter of the head */
    uint64_t seed;
};
LF_DEV struct attn_draws attn_draws_of(const struct lf_k_attn_drop *d, int h)
{
    struct attn_draws r;
    r.p = d->p;
    r.keep = 1.0f / (1.0f - d->p);
    r.site = d->site;
    r.b = (uint32_t)(d->head0 + h) << 22;
    r.seed = d->p > 0.0f ? d->rec->seed : 0;
    return r;
}
LF_DEV uint64_t attn_draw_row(const struct lf_k_attn_drop *d, int64_t row)
{
    return (uint64_t)d->sample[row] + ((uint64_t)(uint32_t)d->position[row] << 40);
}
/* The factor of one key: 1 / (1 - p) or 0. */
LF_DEV float attn_keep(const struct attn_draws *d, uint64_t draw, int key)
{
    uint32_t w[4];
    lf_philox(w, d->seed, d->site, draw, d->b + (uint32_t)(key / 4));
    const uint32_t low = key & 1 ? w[1] : w[0], high = key & 1 ? w[3] : w[2];
    return lf_u01(key & 2 ? high : low) >= d->p ? d->keep : 0.0f;
}

/* The document of row r of the call: the last of n with cu[i] <= r (so an empty document before it
 * is not taken). */
LF_DEV int attn_find(const int32_t *cu, int n, int r)
{
    int lo = 0, hi = n;
    while (lo < hi) { /* smallest i with cu[i + 1] > r */
        const int mid = (lo + hi) / 2;
        if (cu[mid + 1] > r)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* The part of a block of rows that one document has. */
struct attn_doc {
    int begin, len, prefix;
    int first, last; /* positions of the block's rows in the document: first ... last */
};
/* Document i and its rows in [r0, r1); false when it has none there. */
LF_DEV bool attn_doc_of(struct attn_doc *d, const int32_t *cu, const int32_t *prefix, int i, int r0,
                        int r1, int rows)
{
    const int begin = cu[i], cut = cu[i + 1] < rows ? cu[i + 1] : rows;
    d->begin = begin;
    d->len = cut - begin;
    d->prefix = prefix ? prefix[i] : 0;
    d->first = (r0 > begin ? r0 : begin) - begin;
    d->last = (r1 < cut ? r1 : cut) - 1 - begin;
    return d->last >= d->first;
}

/* The run of the row at position i of the document, or NULL. runs: those of the call. They are not
 * kept with the document, because registers are short. */
LF_DEV const int32_t *attn_run(const int32_t *runs, const struct attn_doc *d, int i)
{
    return runs ? runs + 2 * (int64_t)(d->begin + i) : NULL;
}

/* Row t of the call in document d. A row outside the document sees nothing. */
LF_DEV void attn_row_enter(struct attn_row *r, const struct attn_call *c, const struct attn_doc *d,
                           int t, const int32_t *runs, const struct lf_k_attn_drop *drop)
{
    const int i = t - d->begin;
    const bool in = i >= d->first && i <= d->last;
    r->pos = i;
    r->lo = r->hi = 0;
    if (in)
        attn_range(c, i, d->len, d->prefix, attn_run(runs, d, i), &r->lo, &r->hi);
    if (in && drop->p > 0.0f)
        r->draw = attn_draw_row(drop, t);
}

/* The keys that rows first ... last of a document see together, and those that all of them see. */
struct attn_span {
    int lo, hi, all_lo, all_hi;
};
LF_DEV struct attn_span attn_span_of(const struct attn_call *c, const struct attn_doc *d, int first,
                                     int last, const int32_t *runs)
{
    struct attn_span s;
    attn_range(c, first, d->len, d->prefix, attn_run(runs, d, first), &s.lo, &s.all_hi);
    attn_range(c, last, d->len, d->prefix, attn_run(runs, d, last), &s.all_lo, &s.hi);
    return s;
}

#endif
