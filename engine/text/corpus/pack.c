/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing: the common part and the concat policy. A concat index holds only where each sequence
 * begins (16 bytes); the segments are found again by walking the lengths from there, with the same
 * code that built the index.
 */
#include "engine/text/corpus/pack.h"

#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/text/corpus/pack_priv.h"

/* The segments of the sequence that begins at *at into segs (NULL: not wanted); *at moves to the
 * next sequence. */
static uint32_t concat_walk(const lf_pack *p, struct lf_pack_start *at, lf_pack_seg *segs,
                            uint32_t *tokens, uint32_t *ends)
{
    uint32_t used = 0, n = 0, last = 0;
    while (used < p->T && at->doc < p->n_docs) {
        uint64_t len = p->len(p->user, at->doc), left = len - at->first;
        uint32_t room = p->T - used, take = left < room ? (uint32_t)left : room;
        /* One segment is kept back for the padding, unless this piece fills the sequence
         * exactly. */
        if (take && n == p->max_segs - 1 && take < room)
            break;
        if (take && segs)
            segs[n] = (lf_pack_seg){
                .doc = at->doc, .first = at->first, .len = take, .last = take == left};
        n += take > 0;
        last += take > 0 && take == left;
        used += take;
        if (take == left)
            *at = (struct lf_pack_start){at->doc + 1, 0};
        else
            at->first += take;
    }
    if (tokens)
        *tokens = used;
    if (ends)
        *ends = last;
    return n;
}

static int build_concat(lf_pack *p, lf_err *err)
{
    struct lf_pack_start at = {0, 0};
    size_t cap = 0;
    for (;;) {
        int rc = lf_grow(&p->starts, &cap, (size_t)p->n, sizeof *p->starts, err);
        if (rc < 0)
            return rc;
        p->starts[p->n] = at;
        if (concat_walk(p, &at, NULL, NULL, NULL) == 0)
            return 0;
        p->n++;
    }
}

int lf_pack_build(lf_pack **out, enum lf_pack_policy policy, uint32_t T, uint32_t max_segs,
                  const struct lf_pack_docs *docs, lf_err *err)
{
    if (T < 2 || T > 1u << 24)
        return lf_fail(err, LF_EINVAL, "sequence length %u; 2 to %u are possible", T, 1u << 24);
    if (max_segs < 2 || max_segs > T)
        return lf_fail(err, LF_EINVAL,
                       "at most %u documents in a sequence of %u tokens; 2 to %u are possible",
                       max_segs, T, T);
    if (policy != LF_PACK_CONCAT && policy != LF_PACK_BFD && policy != LF_PACK_FFD)
        return lf_fail(err, LF_EINVAL, "unknown packing policy %d", (int)policy);
    lf_pack *p = lf_calloc(1, sizeof *p, err);
    if (!p)
        return LF_ENOMEM;
    *p = (lf_pack){.policy = policy,
                   .T = T,
                   .max_segs = max_segs,
                   .n_docs = docs->n,
                   .len = docs->len,
                   .user = docs->user};
    int rc = policy == LF_PACK_CONCAT ? build_concat(p, err)
             : policy == LF_PACK_BFD  ? lf_pack_build_bfd(p, err)
                                      : lf_pack_build_ffd(p, docs, err);
    if (rc < 0) {
        lf_pack_destroy(p);
        return rc;
    }
    *out = p;
    return 0;
}

void lf_pack_destroy(lf_pack *p)
{
    if (!p)
        return;
    free(p->starts);
    free(p->items);
    free(p->first_item);
    free(p);
}

uint64_t lf_pack_count(const lf_pack *p)
{
    return p->n;
}
uint32_t lf_pack_max_segs(const lf_pack *p)
{
    return p->max_segs;
}

size_t lf_pack_bytes(const lf_pack *p)
{
    size_t n = (size_t)p->n;
    return p->starts
               ? n * sizeof *p->starts
               : (size_t)p->first_item[n] * sizeof *p->items + (n + 1) * sizeof *p->first_item;
}

/* A concat sequence closes when it is full or holds max_segs - 1 pieces; a piece ends a document or
 * fills a sequence. Best fit leaves at most one sequence half empty, or closes at max_segs - 1
 * pieces as well. */
size_t lf_pack_bytes_most(enum lf_pack_policy policy, uint32_t T, uint32_t max_segs, uint64_t docs,
                          uint64_t tokens)
{
    uint64_t full = tokens / T + 1, closed = docs / (max_segs > 2 ? max_segs - 1 : 1) + 1;
    if (policy == LF_PACK_FFD) /* on the other axes each may fill a sequence */
        return (size_t)docs * sizeof(struct lf_pack_item) + (size_t)(docs + 1) * sizeof(uint64_t);
    if (policy == LF_PACK_CONCAT)
        return (size_t)(full + closed) * sizeof(struct lf_pack_start);
    return (size_t)(docs + full) * sizeof(struct lf_pack_item) +
           (size_t)(2 * full + closed + 1) * sizeof(uint64_t);
}

static lf_pack_seg item_seg(const lf_pack *p, const struct lf_pack_item *it)
{
    uint64_t first = (uint64_t)it->piece * p->T;
    return (lf_pack_seg){.doc = it->doc,
                         .first = first,
                         .len = it->len,
                         .last = first + it->len == p->len(p->user, it->doc)};
}

uint32_t lf_pack_get(const lf_pack *p, uint64_t i, lf_pack_seg *segs)
{
    if (i >= p->n)
        LF_BUG("sequence %llu of %llu", (unsigned long long)i, (unsigned long long)p->n);
    if (p->policy == LF_PACK_CONCAT) {
        struct lf_pack_start at = p->starts[i];
        return concat_walk(p, &at, segs, NULL, NULL);
    }
    uint32_t n = (uint32_t)(p->first_item[i + 1] - p->first_item[i]);
    for (uint32_t k = 0; k < n; k++)
        segs[k] = item_seg(p, &p->items[p->first_item[i] + k]);
    return n;
}

uint32_t lf_pack_tokens(const lf_pack *p, uint64_t i, uint32_t *trained)
{
    uint32_t tokens = 0, ends = 0;
    if (i >= p->n)
        LF_BUG("sequence %llu of %llu", (unsigned long long)i, (unsigned long long)p->n);
    if (p->policy == LF_PACK_CONCAT) {
        struct lf_pack_start at = p->starts[i];
        concat_walk(p, &at, NULL, &tokens, &ends);
    } else {
        for (uint64_t k = p->first_item[i]; k < p->first_item[i + 1]; k++) {
            lf_pack_seg s = item_seg(p, &p->items[k]);
            tokens += s.len;
            ends += s.last;
        }
    }
    if (trained)
        *trained = tokens - ends;
    return tokens;
}
