/* SPDX-License-Identifier: Apache-2.0
 *
 * Hopper's barriers in shared memory and its copy engine, and the driver's call that describes a
 * matrix to it.
 */
#include "tests/cuda/emu/hopper.h"
#include "tests/cuda/emu/state.h"
#include "tests/cuda/ptx/ptx.h"

enum { SMEM_START = 640, BARRIERS = 64, COPIES = 256, MARK = 0x6d626172, MAP = 0x746d6170 };

struct barrier {
    uint64_t *at;
    unsigned expected, left, phase, thread;
    int64_t bytes;
    bool fenced;
};

/* What the 128 opaque bytes hold. */
struct map {
    uint64_t mark;
    const unsigned char *base;
    uint64_t dim[2], stride; /* elements; bytes from row to row */
    uint32_t box[2], size, swizzle;
};
_Static_assert(sizeof(struct map) <= sizeof(struct lf_cu_tensor_map), "a map has room");

struct copy {
    unsigned char *dst;
    struct map map;
    int x, y;
    struct barrier *full;
};

static struct {
    struct barrier barrier[BARRIERS];
    struct copy copy[COPIES];
    int barriers, copies;
} tma;

/* ---- addresses ---- */

uint32_t lf_smem_addr(const void *p)
{
    return (uint32_t)((const unsigned char *)p - (const unsigned char *)lf_emu.smem) + SMEM_START;
}

const unsigned char *lf_emu_smem_at(uint32_t addr, unsigned bytes)
{
    if (addr < SMEM_START || addr - SMEM_START + bytes > lf_emu.smem_bytes)
        lf_emu_fail("a descriptor that leaves the block's shared memory");
    return (const unsigned char *)lf_emu.smem + (addr - SMEM_START);
}

/* ---- barriers ---- */

static unsigned self(void)
{
    return lf_emu.thread.x +
           lf_emu.block_dim.x * (lf_emu.thread.y + lf_emu.block_dim.y * lf_emu.thread.z);
}

static struct barrier *find(const uint64_t *b, bool engine)
{
    for (int i = 0; i < tma.barriers; i++) {
        struct barrier *x = &tma.barrier[i];
        if (x->at != b)
            continue;
        if (*b != (uint64_t)MARK + (uint64_t)i)
            lf_emu_fail("a barrier in shared memory was overwritten");
        if (!x->fenced && (engine || x->thread != self()))
            lf_emu_fail("a barrier in shared memory whose initialisation was not fenced");
        return x;
    }
    lf_emu_fail("a barrier in shared memory that nobody initialised");
}

void lf_mbar_init(uint64_t *b, unsigned arrivals)
{
    if (tma.barriers == BARRIERS || (uintptr_t)b % 8 || !arrivals)
        lf_emu_fail("more barriers in shared memory than the emulator keeps, or a bad one");
    tma.barrier[tma.barriers] =
        (struct barrier){.at = b, .expected = arrivals, .left = arrivals, .thread = self()};
    *b = (uint64_t)MARK + (uint64_t)tma.barriers++;
}

void lf_mbar_init_fence(void)
{
    for (int i = 0; i < tma.barriers; i++)
        if (tma.barrier[i].thread == self())
            tma.barrier[i].fenced = true;
}

static void settle(struct barrier *b)
{
    if (b->left == 0 && b->bytes == 0) {
        b->phase++;
        b->left = b->expected;
    }
}

void lf_mbar_arrive_expect(uint64_t *at, unsigned bytes)
{
    struct barrier *b = find(at, false);
    if (b->left == 0)
        lf_emu_fail("more arrivals at a barrier in shared memory than its phase expects");
    b->bytes += bytes;
    b->left--;
    settle(b);
}

void lf_mbar_arrive(uint64_t *b)
{
    lf_mbar_arrive_expect(b, 0);
}

struct wanted {
    const struct barrier *b;
    unsigned parity;
};

static bool ended(const void *what)
{
    const struct wanted *w = what;
    return (w->b->phase & 1) != w->parity;
}

void lf_mbar_wait(uint64_t *b, unsigned parity)
{
    const struct wanted w = {find(b, false), parity};
    if (!ended(&w))
        lf_emu_wait_until(ended, &w);
}

/* ---- the copy engine ---- */

void lf_tma_prefetch_map(const struct lf_cu_tensor_map *m)
{
    if ((uintptr_t)m % 64)
        lf_emu_fail("a tensor map that is no multiple of 64 bytes");
}

/* Element (x, y) of the matrix, or zeros outside of it. */
static void take(unsigned char *to, const struct map *m, int64_t x, int64_t y)
{
    if (x >= 0 && y >= 0 && (uint64_t)x < m->dim[0] && (uint64_t)y < m->dim[1])
        memcpy(to, m->base + (uint64_t)y * m->stride + (uint64_t)x * m->size, m->size);
    else
        memset(to, 0, m->size);
}

/* Row by row, 16 bytes at a time; the pieces of 128 bytes are permuted by the address. */
static void land(const struct copy *c)
{
    const struct map *m = &c->map;
    const unsigned row = m->box[0] * m->size, per = 16 / m->size;
    for (unsigned r = 0; r < m->box[1]; r++)
        for (unsigned e = 0; e < m->box[0]; e += per) {
            const int64_t x = (int64_t)c->x + e, y = (int64_t)c->y + r;
            const uint32_t at = lf_smem_addr(c->dst) + r * row + e * m->size;
            const uint32_t to =
                m->swizzle == LF_CU_TENSOR_SWIZZLE_128B ? at ^ (at >> 7 & 7) << 4 : at;
            unsigned char *d = (unsigned char *)lf_emu.smem + (to - SMEM_START);
            if (x >= 0 && y >= 0 && (uint64_t)x + per <= m->dim[0] && (uint64_t)y < m->dim[1])
                memcpy(d, m->base + (uint64_t)y * m->stride + (uint64_t)x * m->size, 16);
            else
                for (unsigned i = 0; i < per; i++)
                    take(d + i * m->size, m, x + i, y);
        }
    c->full->bytes -= row * m->box[1];
    settle(c->full);
}

bool lf_emu_tma_land(void)
{
    if (!tma.copies)
        return false;
    const unsigned i = lf_emu_order() > 1 ? lf_emu_any((unsigned)tma.copies) : 0;
    const struct copy c = tma.copy[i];
    memmove(&tma.copy[i], &tma.copy[i + 1], ((unsigned)--tma.copies - i) * sizeof *tma.copy);
    land(&c);
    return true;
}

void lf_tma_2d(void *dst, const struct lf_cu_tensor_map *from, int x, int y, uint64_t *full)
{
    struct copy c = {.dst = dst, .x = x, .y = y, .full = find(full, true)};
    lf_tma_prefetch_map(from);
    memcpy(&c.map, from, sizeof c.map);
    if (c.map.mark != MAP)
        lf_emu_fail("a tensor map that the driver did not make");
    const uint32_t at = lf_smem_addr(dst), bytes = c.map.box[0] * c.map.box[1] * c.map.size;
    lf_emu_smem_at(at, bytes);
    if (at % 128)
        lf_emu_fail("a tile of the copy engine that is no multiple of 128 bytes");
    if (tma.copies == COPIES)
        lf_emu_fail("more tiles under way than the emulator keeps");
    memset(dst, 0xff, bytes);
    tma.copy[tma.copies++] = c;
    const int order = lf_emu_order();
    if (order == 1 || (order > 1 && lf_emu_any(2)))
        lf_emu_tma_land();
}

void lf_emu_tma_start(void)
{
    tma.barriers = tma.copies = 0;
}

void lf_emu_tma_end(void)
{
    if (tma.copies)
        lf_emu_fail("tiles of the copy engine that nobody waited for");
}

/* ---- the driver's side ---- */

bool lf_emu_tensor_map(const void *map, struct ptx_map *out)
{
    struct map m;
    memcpy(&m, map, sizeof m);
    *out = (struct ptx_map){(const char *)m.base,
                            {m.dim[0], m.dim[1]},
                            m.stride,
                            {m.box[0], m.box[1]},
                            m.size,
                            m.swizzle == LF_CU_TENSOR_SWIZZLE_128B};
    return m.mark == MAP;
}

static uint32_t size_of(int type)
{
    switch (type) {
    case LF_CU_TENSOR_U8:
        return 1;
    case LF_CU_TENSOR_F16:
    case LF_CU_TENSOR_BF16:
        return 2;
    default:
        return 0;
    }
}

/* The driver's own conditions, as far as they concern what it is asked for here: two dimensions, no
 * interleaving. */
int lf_emu_TensorMapEncodeTiled(struct lf_cu_tensor_map *out, int type, unsigned rank,
                                void *address, const uint64_t *dims, const uint64_t *strides,
                                const uint32_t *box, const uint32_t *steps, int interleave,
                                int swizzle, int l2, int oob)
{
    const uint32_t size = size_of(type);
    const int rc = lf_emu_enter();
    if (rc)
        return rc;
    if ((uintptr_t)out % 64 || !size || rank != 2 || (uintptr_t)address % 16 || interleave ||
        l2 < 0 || l2 > 3 || oob)
        return LF_CU_INVALID_VALUE;
    for (int i = 0; i < 2; i++)
        if (!dims[i] || dims[i] > (uint64_t)1 << 32 || !box[i] || box[i] > 256 || steps[i] != 1)
            return LF_CU_INVALID_VALUE;
    if (strides[0] % 16 || strides[0] >= (uint64_t)1 << 40 || strides[0] < dims[0] * size ||
        box[0] * size % 16 || (swizzle != 0 && swizzle != LF_CU_TENSOR_SWIZZLE_128B) ||
        (swizzle == LF_CU_TENSOR_SWIZZLE_128B && box[0] * size > 128))
        return LF_CU_INVALID_VALUE;
    const struct map m = {.mark = MAP,
                          .base = address,
                          .dim = {dims[0], dims[1]},
                          .stride = strides[0],
                          .box = {box[0], box[1]},
                          .size = size,
                          .swizzle = (uint32_t)swizzle};
    memset(out, 0, sizeof *out);
    memcpy(out, &m, sizeof m);
    return 0;
}
