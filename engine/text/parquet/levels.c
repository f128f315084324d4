/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of few bits: runs of equal ones, and runs packed bit by bit. They are read as they are
 * asked for, so a page that says it has a thousand million costs no memory.
 */
#include "config.h"

#include <string.h>

#include "engine/text/parquet/parquet_priv.h"

int lf_pq_width(uint32_t max)
{
    return max ? 32 - __builtin_clz(max) : 0;
}

uint64_t lf_pq_bits(const uint8_t *p, const uint8_t *end, uint64_t at, int width)
{
    uint64_t lo = 0, hi = 0;
    uint64_t room = (uint64_t)(end - p), from = at / 8;
    unsigned shift = (unsigned)(at % 8);
    if (width == 0 || from >= room)
        return 0;
    memcpy(&lo, p + from, room - from < 8 ? (size_t)(room - from) : 8);
    uint64_t v = lo >> shift;
    if (shift + (unsigned)width > 64 && room - from > 8) {
        hi = p[from + 8];
        v |= hi << (64 - shift);
    }
    return width == 64 ? v : v & ((1ull << width) - 1);
}

void lf_pq_hybrid_begin(struct lf_pq_hybrid *h, const uint8_t *p, const uint8_t *end, int width)
{
    *h = (struct lf_pq_hybrid){.p = p, .end = end, .width = width};
}

/* The next run; false: none, or one that is cut. */
static bool begin_run(struct lf_pq_hybrid *h)
{
    lf_thrift t = {.p = h->p, .end = h->end};
    uint64_t head;
    do
        head = lf_thrift_varint(&t);
    while (!t.bad && head >> 1 == 0);
    if (t.bad || head >> 1 > UINT32_MAX)
        return false;
    size_t room = (size_t)(h->end - t.p);
    h->packed = head & 1;
    h->left = head >> 1;
    if (h->packed) { /* eight numbers have `width` bytes; old writers cut the last run short */
        uint64_t bytes = h->left * (uint64_t)h->width;
        h->left *= 8;
        if (bytes > room) {
            bytes = room;
            h->left = room * 8 / (uint64_t)h->width;
        }
        h->bits = t.p;
        h->at = 0;
        h->p = t.p + bytes;
        return h->left > 0;
    }
    size_t bytes = (size_t)(h->width + 7) / 8;
    if (bytes > room)
        return false;
    h->value = 0;
    memcpy(&h->value, t.p, bytes);
    h->p = t.p + bytes;
    return h->width == 32 || h->value >> h->width == 0;
}

bool lf_pq_hybrid_next(struct lf_pq_hybrid *h, uint32_t *v)
{
    if (h->left == 0 && !begin_run(h)) {
        h->left = 0;
        return false;
    }
    h->left--;
    if (!h->packed) {
        *v = h->value;
        return true;
    }
    *v = (uint32_t)lf_pq_bits(h->bits, h->p, h->at, h->width);
    h->at += (uint64_t)h->width;
    return true;
}
