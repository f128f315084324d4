/* SPDX-License-Identifier: Apache-2.0
 *
 * Barriers in shared memory (PTX ISA 9.7.13.15 mbarrier) and the copy engine (9.7.9.27.1.2
 * cp.async.bulk.tensor, tiled mode). A tile is NaN in shared memory from the moment it is asked
 * for; it lands when nothing else can run (order 1: at once; more: any of those under way).
 */
#include <stdlib.h>

#include "tests/cuda/ptx/ins.h"

/* ---- mbarrier: the object is opaque to programs; here: expected and pending arrivals (20 bits
 * each), bytes that are announced and have not come (22 bits, from -2^20), phase; the highest bit
 * is 0, so that NaN is no barrier ---- */

struct mbar {
    uint32_t expected, pending;
    int32_t bytes;
    unsigned phase;
};

static struct mbar get(const struct ptx_warp *w, const struct ptx_ins *i, int lane, const char *at)
{
    uint64_t u;
    memcpy(&u, at, sizeof u);
    if (u >> 63)
        lf_ptx_fail(w, i, lane,
                    "a barrier in shared memory that nobody initialised, or that was overwritten");
    return (struct mbar){u & 0xfffff, u >> 20 & 0xfffff, (int32_t)(u >> 40 & 0x3fffff) - (1 << 20),
                         u >> 62 & 1};
}

/* A phase ends with no arrival pending and no bytes outstanding; the next expects as many
 * arrivals. */
static void put(const struct ptx_warp *w, const struct ptx_ins *i, int lane, char *at,
                struct mbar b)
{
    if (!b.pending && !b.bytes) {
        b.phase ^= 1;
        b.pending = b.expected;
    }
    if (b.bytes <= -(1 << 20) || b.bytes >= 1 << 20)
        lf_ptx_fail(w, i, lane, "a barrier that counts %d bytes", b.bytes);
    const uint64_t u = b.expected | (uint64_t)b.pending << 20 |
                       (uint64_t)(b.bytes + (1 << 20)) << 40 | (uint64_t)b.phase << 62;
    memcpy(at, &u, sizeof u);
}

static char *barrier_at(struct ptx_warp *w, const struct ptx_ins *i, unsigned operand, int64_t plus,
                        int lane)
{
    const uint32_t a = ((ptx_w *)PTX_O(w, i, operand))[lane] + (uint32_t)plus;
    return lf_ptx_at(w, (struct ptx_ins *)(uintptr_t)i, lane, a, 8, PTX_SHARED);
}

#define EACH_LANE                                                                                  \
    for (int l = 0; l < PTX_LANES; l++)                                                            \
        if (m >> l & 1)

static void init(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    EACH_LANE
    {
        const uint32_t n = ((ptx_w *)PTX_O(w, i, 1))[l];
        if (!n || n >= 1 << 20)
            lf_ptx_fail(w, i, l, "a barrier of %u arrivals", n);
        put(w, i, l, barrier_at(w, i, 0, i->imm, l), (struct mbar){n, n, 0, 0});
    }
}

/* mbarrier.arrive[.expect_tx] _, [at][, bytes]: the bytes are announced before the arrival. */
static void arrive(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    EACH_LANE
    {
        char *at = barrier_at(w, i, 0, i->imm, l);
        struct mbar b = get(w, i, l, at);
        if (!b.pending)
            lf_ptx_fail(w, i, l, "more arrivals than the %u of the barrier's phase", b.expected);
        b.bytes += i->n > 1 ? (int32_t)((ptx_w *)PTX_O(w, i, 1))[l] : 0;
        b.pending--;
        put(w, i, l, at, b);
    }
}

/* mbarrier.try_wait.parity p, [at], parity: whether the phase of that parity has ended, which is
 * the running phase or the one before. It may take its time, so it is the whole wait. */
static void try_wait(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    EACH_LANE
    {
        const uint32_t parity = ((ptx_w *)PTX_O(w, i, 2))[l];
        if (parity > 1)
            lf_ptx_fail(w, i, l, "parity %u", parity);
        if (get(w, i, l, barrier_at(w, i, 1, i->imm, l)).phase == parity) {
            w->again = w->idle = true;
            return;
        }
    }
    ptx_set_pred(w, i->o[0], m, ~0u);
    w->defined[i->o[0] / 64] |= m;
}

/* ---- cp.async.bulk.tensor.2d ---- */

struct tile {
    struct ptx_warp *w;
    const struct ptx_ins *i;
    int lane;
    uint32_t to; /* address in shared memory */
    char *bar;
    struct ptx_map map;
    int32_t x, y;
};
struct ptx_tiles {
    struct tile *tile;
    int n, cap;
    uint32_t random;
};

/* 128-byte swizzle (9.7.9.27, "Swizzling modes"): of a pattern of 1024 bytes, 16-byte piece c of
 * 128-byte row r lies at c ^ r. */
static uint32_t swizzled(uint32_t a)
{
    return a ^ (a >> 7 & 7) << 4;
}

static void land(const struct tile *t)
{
    struct ptx_block *b = t->w->b;
    const struct ptx_map *m = &t->map;
    const uint32_t row = m->box[0] * m->size;
    for (uint32_t y = 0; y < m->box[1]; y++)
        for (uint32_t x = 0; x < m->box[0]; x++) {
            const int64_t gx = (int64_t)t->x + x, gy = (int64_t)t->y + y;
            uint32_t to = t->to + y * row + x * m->size;
            if (m->swizzle128)
                to = swizzled(to);
            char *d = b->smem + (to - PTX_BASE);
            if (gx >= 0 && gy >= 0 && gx < (int64_t)m->dim[0] && gy < (int64_t)m->dim[1])
                memcpy(d, m->base + (uint64_t)gy * m->stride + (uint64_t)gx * m->size, m->size);
            else
                memset(d, 0, m->size);
        }
    /* All bytes of the box count, also those that lie outside of the tensor. */
    struct mbar bar = get(t->w, t->i, t->lane, t->bar);
    bar.bytes -= (int32_t)(row * m->box[1]);
    put(t->w, t->i, t->lane, t->bar, bar);
}

bool lf_ptx_tile_lands(struct ptx_block *b)
{
    struct ptx_tiles *all = b->tiles;
    if (!all || !all->n)
        return false;
    all->random = all->random * 1664525u + 1013904223u;
    const int k = b->order > 1 ? (int)((all->random >> 8) % (unsigned)all->n) : 0;
    const struct tile t = all->tile[k];
    memmove(&all->tile[k], &all->tile[k + 1], (size_t)(--all->n - k) * sizeof t);
    land(&t);
    return true;
}

static struct tile *new_tile(struct ptx_block *b)
{
    struct ptx_tiles *all = b->tiles;
    if (!all && !(all = b->tiles = calloc(1, sizeof *all)))
        abort();
    if (all->n == all->cap) {
        all->cap = all->cap ? 2 * all->cap : 16;
        all->tile = realloc(all->tile, (size_t)all->cap * sizeof *all->tile);
        if (!all->tile)
            abort();
    }
    return &all->tile[all->n++];
}

/* What the tensor map says lies in a live allocation, and the arguments are what the manual asks
 * for. */
static void check(struct ptx_warp *w, const struct ptx_ins *i, const struct tile *t, uint64_t map)
{
    const struct ptx_map *m = &t->map;
    const char *lo, *hi;
    if (map % 64)
        lf_ptx_fail(w, i, t->lane, "a tensor map that is no multiple of 64 bytes");
    if (!lf_emu_block_around(m->base, &lo, &hi) ||
        m->base + (m->dim[1] - 1) * m->stride + m->dim[0] * m->size > hi)
        lf_ptx_fail(w, i, t->lane, "a tensor that is not within an allocation");
    if (t->to % 128)
        lf_ptx_fail(w, i, t->lane, "a tile at %u, no multiple of 128 bytes", t->to);
    if (m->swizzle128 && m->box[0] * m->size > 128)
        lf_ptx_fail(w, i, t->lane, "a row of a swizzled box of more than 128 bytes");
}

/* [to], [map, {x, y}], [barrier] */
static void bring(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    struct ptx_ins *x = (struct ptx_ins *)(uintptr_t)i;
    EACH_LANE
    {
        struct tile t = {.w = w, .i = i, .lane = l, .to = ((ptx_w *)PTX_O(w, i, 0))[l]};
        const uint64_t map = ((ptx_d *)PTX_O(w, i, 1))[l];
        t.x = ((ptx_sw *)PTX_O(w, i, 2))[l];
        t.y = ((ptx_sw *)PTX_O(w, i, 3))[l];
        t.bar = barrier_at(w, i, 4, 0, l);
        get(w, i, l, t.bar);
        const char *at = lf_ptx_at(w, x, l, map, 64, PTX_GENERIC);
        if (!lf_emu_tensor_map(at, &t.map))
            lf_ptx_fail(w, i, l, "a tensor map that the driver did not make");
        check(w, i, &t, map);
        const uint32_t bytes = t.map.box[0] * t.map.box[1] * t.map.size;
        lf_ptx_at(w, x, l, t.to, 16, PTX_SHARED);
        lf_ptx_at(w, x, l, t.to + bytes - 16, 16, PTX_SHARED);
        memset(w->b->smem + (t.to - PTX_BASE), 0xff, bytes);
        *new_tile(w->b) = t;
        if (w->b->order == 1)
            lf_ptx_tile_lands(w->b);
    }
}

void lf_ptx_tiles_check(struct ptx_block *b)
{
    if (b->tiles && b->tiles->n)
        lf_ptx_fail(b->tiles->tile[0].w, b->tiles->tile[0].i, b->tiles->tile[0].lane,
                    "a tile that nobody waited for");
}
void lf_ptx_tiles_free(struct ptx_block *b)
{
    if (b->tiles)
        free(b->tiles->tile);
    free(b->tiles);
}

/* ---- decoding ---- */

static void nothing(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    (void)w;
    (void)i;
    (void)m;
}

/* mbarrier.arrive gives a state that is read by test_wait; ours go by parity and drop it. */
static bool decode_arrive(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    const bool expect = strcmp(op, "mbarrier.arrive.expect_tx.shared::cta.b64") == 0;
    if (!expect && strcmp(op, "mbarrier.arrive.shared::cta.b64") != 0)
        return false;
    if (lf_ptx_operands(p) != 2 + expect || !lf_ptx_operand(p, 0)->sink ||
        !lf_ptx_operand(p, 1)->memory)
        return false;
    lf_ptx_new_operands(i, 0, 1u + expect);
    i->o[0] = lf_ptx_slot(p, 1, 4);
    i->imm = lf_ptx_operand(p, 1)->plus;
    if (expect)
        i->o[1] = lf_ptx_slot(p, 2, 4);
    i->fn = arrive;
    return true;
}

static bool decode_tile(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    if (strcmp(
            op,
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes") !=
        0)
        return false;
    if (lf_ptx_operands(p) != 5)
        return false;
    lf_ptx_new_operands(i, 0, 5);
    for (int k = 0; k < 5; k++) {
        if (!lf_ptx_operand(p, k)->memory || lf_ptx_operand(p, k)->plus)
            lf_ptx_refuse(p, "an operand of another form");
        i->o[k] = lf_ptx_slot(p, k, k == 1 ? 8 : 4);
    }
    i->fn = bring;
    return true;
}

bool lf_ptx_decode_tma(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    static const struct ptx_row rows[] = {
        {"mbarrier.init.shared::cta.b64", init, "sw"},
        {"mbarrier.try_wait.parity.shared::cta.b64", try_wait, "Psw"},
        /* Order between generic accesses and the copy engine's: everything is seen at once here. */
        {"fence.mbarrier_init.release.cluster", nothing, ""},
        {"fence.proxy.async.shared::cta", nothing, ""},
        {"fence.proxy.async", nothing, ""},
        {"prefetch.tensormap", nothing, "a"},
    };
    if (decode_arrive(p, op, i) || decode_tile(p, op, i))
        return true;
    if (!lf_ptx_decode_row(p, op, i, rows, sizeof rows / sizeof *rows))
        return false;
    if (i->fn == try_wait) {
        i->kind = PTX_WAIT;
        i->own_defined = true;
    }
    return true;
}
