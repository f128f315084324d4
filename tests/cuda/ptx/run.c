/* SPDX-License-Identifier: Apache-2.0
 *
 * Grids and blocks of the interpreter of PTX, and how it ends when a kernel does what it must not.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda/ptx/ins.h"

static uint32_t shuffle;

/* The text of the line that the instruction stands on. */
static void print_line(const struct ptx_module *m, uint32_t line)
{
    const char *s = m->text;
    for (uint32_t n = 1; n < line && s; n++)
        s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL;
    s += s ? strspn(s, " \t") : 0;
    fprintf(stderr, "    %.*s\n", s ? (int)strcspn(s, "\n") : 0, s ? s : "");
}

void lf_ptx_fail(const struct ptx_warp *w, const struct ptx_ins *i, int lane, const char *what, ...)
{
    const struct ptx_block *b = w->b;
    const struct ptx_module *m = b->k->module;
    va_list v;
    fprintf(stderr, "ptx: %s:%u: %s, block (%u, %u, %u), warp %u", m->path, i->line, b->k->name,
            b->at.x, b->at.y, b->at.z, w->index);
    if (lane >= 0)
        fprintf(stderr, ", thread %u", w->index * PTX_LANES + (unsigned)lane);
    fprintf(stderr, ": ");
    va_start(v, what);
    vfprintf(stderr, what, v);
    va_end(v);
    fprintf(stderr, "\n");
    print_line(m, i->line);
    abort();
}

static void order_warps(unsigned *to, unsigned n, int order)
{
    for (unsigned i = 0; i < n; i++)
        to[i] = order == 1 ? n - 1 - i : i;
    for (unsigned i = n; order > 1 && i > 1; i--) {
        shuffle = shuffle * 1664525u + 1013904223u;
        const unsigned j = (shuffle >> 8) % i, t = to[i - 1];
        to[i - 1] = to[j];
        to[j] = t;
    }
}

static void stuck(struct ptx_block *b)
{
    for (unsigned x = 0; x < b->warps; x++) {
        const struct ptx_warp *w = &b->warp[x];
        for (int k = 0; k < w->parts; k++) {
            const struct ptx_part *p = &w->part[k];
            const bool bar = p->state == PART_AT_BARRIER;
            lf_ptx_fail(w, &b->k->code[bar ? p->pc - 1 : p->pc], __builtin_ctz(p->mask), "%s",
                        bar ? "a barrier that not all threads reach"
                        : p->state == PART_WAITS
                            ? "a wait that nothing ends"
                            : "an instruction of the whole warp that not all lanes reach");
        }
    }
}

static bool alive(const struct ptx_block *b)
{
    for (unsigned x = 0; x < b->warps; x++)
        if (b->warp[x].parts)
            return true;
    return false;
}

static void run_block(struct ptx_block *b, int order)
{
    unsigned turn[PTX_MAX_WARPS];
    while (alive(b)) {
        const uint64_t before = lf_ptx_count();
        order_warps(turn, b->warps, order);
        for (unsigned x = 0; x < b->warps; x++)
            lf_ptx_run_warp(&b->warp[turn[x]]);
        bool ran = lf_ptx_count() != before;
        if (!ran || (order > 1 && (shuffle >> 16) % 4 == 0))
            ran = lf_ptx_tile_lands(b) || ran;
        for (unsigned x = 0; x < b->warps; x++)
            for (int k = 0; k < b->warp[x].parts; k++)
                if (b->warp[x].part[k].state == PART_WAITS && ran)
                    b->warp[x].part[k].state = PART_RUNS;
        if (!ran)
            stuck(b);
    }
    lf_ptx_copies_check(b);
    lf_ptx_tiles_check(b);
    lf_ptx_products_check(b);
}

/* ---- grids ---- */

static void set_special(struct ptx_warp *w, enum ptx_special s, const uint32_t *lanes,
                        uint32_t value)
{
    ptx_w *to = ptx_lanes(w, w->b->k->special[s]);
    for (int l = 0; l < PTX_LANES; l++)
        to[l] = lanes ? lanes[l] : value;
    w->defined[w->b->k->special[s] / 64] = ~0u;
}

static void set_constants(struct ptx_warp *w)
{
    for (size_t c = 0; c < w->b->k->n_const; c++) {
        const struct ptx_const *x = &w->b->k->constant[c];
        unsigned char *to = ptx_lanes(w, x->offset);
        const uint32_t all = x->bits ? ~0u : 0;
        if (x->bytes == 1)
            memcpy(to, &all, sizeof all);
        else
            for (int l = 0; l < PTX_LANES; l++)
                memcpy(to + l * (int)x->bytes, &x->bits, x->bytes);
    }
}

/* What a warp sees of its block; registers have no value. */
static void start_warp(struct ptx_block *b, unsigned index)
{
    struct ptx_warp *w = &b->warp[index];
    uint32_t lanes[S_COUNT][PTX_LANES];
    const unsigned left = b->threads - index * PTX_LANES;
    memset(w->defined, 0, b->k->file_bytes / 64 * sizeof *w->defined);
    for (size_t c = 0; c < b->k->n_const; c++)
        w->defined[b->k->constant[c].offset / 64] = ~0u;
    for (size_t c = 0; c < b->k->n_unwritten; c++)
        w->defined[b->k->unwritten[c]] = ~0u;
    w->live = left >= PTX_LANES ? ~0u : (1u << left) - 1;
    w->part[0] = (struct ptx_part){0, w->live, PART_RUNS};
    w->parts = 1;
    for (unsigned l = 0; l < PTX_LANES; l++) {
        const unsigned t = index * PTX_LANES + l;
        lanes[S_TID_X][l] = t % b->dim.x;
        lanes[S_TID_Y][l] = t / b->dim.x % b->dim.y;
        lanes[S_TID_Z][l] = t / (b->dim.x * b->dim.y);
        lanes[S_LANEID][l] = l;
        lanes[S_EQ][l] = 1u << l;
        lanes[S_LT][l] = (1u << l) - 1;
        lanes[S_LE][l] = lanes[S_LT][l] | 1u << l;
        lanes[S_GE][l] = ~lanes[S_LT][l];
        lanes[S_GT][l] = ~lanes[S_LE][l];
        w->copies[l].n = w->copies[l].groups = 0;
    }
    static const enum ptx_special by_lane[] = {S_TID_X, S_TID_Y, S_TID_Z, S_LANEID, S_EQ,
                                               S_LT,    S_LE,    S_GE,    S_GT};
    for (size_t s = 0; s < sizeof by_lane / sizeof *by_lane; s++)
        set_special(w, by_lane[s], lanes[by_lane[s]], 0);
    const uint32_t same[][2] = {
        {S_NTID_X, b->dim.x},    {S_NTID_Y, b->dim.y},    {S_NTID_Z, b->dim.z},
        {S_CTAID_X, b->at.x},    {S_CTAID_Y, b->at.y},    {S_CTAID_Z, b->at.z},
        {S_NCTAID_X, b->grid.x}, {S_NCTAID_Y, b->grid.y}, {S_NCTAID_Z, b->grid.z},
        {S_WARPID, index},       {S_NWARPID, b->warps}};
    for (size_t s = 0; s < sizeof same / sizeof *same; s++)
        set_special(w, (enum ptx_special)same[s][0], NULL, same[s][1]);
}

static void *or_abort(void *p)
{
    if (!p)
        abort();
    return p;
}

static struct ptx_block *open_grid(struct lf_ptx_kernel *k, const void *args,
                                   struct lf_emu_uint3 grid, struct lf_emu_uint3 dim, size_t smem)
{
    struct ptx_block *b = or_abort(calloc(1, sizeof *b));
    b->k = k;
    b->grid = grid;
    b->dim = dim;
    b->args = args;
    b->threads = dim.x * dim.y * dim.z;
    b->warps = (b->threads + PTX_LANES - 1) / PTX_LANES;
    if (!b->threads || b->threads > k->max_threads || b->threads > PTX_MAX_WARPS * PTX_LANES) {
        fprintf(stderr, "ptx: %s: %u threads in a block, at most %u\n", k->name, b->threads,
                k->max_threads);
        abort();
    }
    b->smem_bytes =
        k->dynamic || !smem ? (k->dynamic ? k->dynamic_at + smem : k->shared) : k->shared + smem;
    void *p = NULL;
    if (posix_memalign(&p, 1024, b->smem_bytes + 1024))
        abort();
    b->smem = p;
    b->local = or_abort(malloc(k->local * b->threads + 16));
    for (unsigned x = 0; x < b->warps; x++) {
        struct ptx_warp *w = &b->warp[x];
        w->b = b;
        w->index = x;
        if (posix_memalign(&p, 64, k->file_bytes))
            abort();
        w->reg = p;
        memset(w->reg, 0xff, k->file_bytes);
        w->defined = or_abort(calloc(k->file_bytes / 64, sizeof *w->defined));
        set_constants(w);
    }
    for (size_t i = 0; i < k->n; i++)
        k->code[i].lo = k->code[i].hi = NULL;
    return b;
}

static void close_grid(struct ptx_block *b)
{
    for (unsigned x = 0; x < b->warps; x++) {
        free(b->warp[x].reg);
        free(b->warp[x].defined);
        for (int l = 0; l < PTX_LANES; l++)
            free(b->warp[x].copies[l].copy);
    }
    lf_ptx_tiles_free(b);
    lf_ptx_products_free(b);
    free(b->smem);
    free(b->local);
    free(b);
}

void lf_ptx_run(struct lf_ptx_kernel *k, const void *args, struct lf_emu_uint3 grid,
                struct lf_emu_uint3 dim, size_t smem, int order)
{
    struct ptx_block *b = open_grid(k, args, grid, dim, smem);
    b->order = order;
    for (b->at.z = 0; b->at.z < grid.z; b->at.z++)
        for (b->at.y = 0; b->at.y < grid.y; b->at.y++)
            for (b->at.x = 0; b->at.x < grid.x; b->at.x++) {
                memset(b->smem, 0xff, b->smem_bytes);
                memset(b->local, 0xff, k->local * b->threads);
                memset(b->bar, 0, sizeof b->bar);
                for (unsigned x = 0; x < b->warps; x++)
                    start_warp(b, x);
                run_block(b, order);
            }
    close_grid(b);
}
