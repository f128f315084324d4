/* SPDX-License-Identifier: Apache-2.0
 *
 * Grids, blocks and warps of the interpreter of PTX. A warp is a list of parts, each a program counter and lanes; the
 * runnable part with the least counter goes on until it branches apart, waits, or comes to a place where another part
 * may be (3.2 "Independent thread scheduling" promises no order; this one is enough for whatever ends on a GPU without
 * spinning on memory).
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/ptx/ins.h"

static uint64_t executed;
static uint32_t shuffle;

uint64_t lf_ptx_count(void)
{
    return executed;
}

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
    fprintf(stderr, "ptx: %s:%u: %s, block (%u, %u, %u), warp %u", m->path, i->line, b->k->name, b->at.x, b->at.y,
            b->at.z, w->index);
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

/* ---- defined registers ---- */

static void undefined(const struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    lf_ptx_fail(w, i, __builtin_ctz(lanes), "a register that was never written");
}

/* Lanes of mask with a source that has no value; sets the destinations' state. */
static void track(struct ptx_warp *w, const struct ptx_ins *i, uint32_t mask)
{
    uint32_t *def = w->defined, bad = 0;
    for (unsigned k = i->nd; k < i->n; k++)
        bad |= ~def[i->o[k] / 64];
    bad &= mask;
    if (bad && !i->passes_on)
        undefined(w, i, bad);
    for (unsigned k = 0; k < i->nd; k++)
        def[i->o[k] / 64] = (def[i->o[k] / 64] | mask) & ~bad;
}

static uint32_t guarded(struct ptx_warp *w, const struct ptx_ins *i, uint32_t mask)
{
    if (!i->guard)
        return mask;
    const uint32_t p = ptx_pred(w, i->guard);
    if (mask & ~w->defined[i->guard / 64])
        undefined(w, i, mask & ~w->defined[i->guard / 64]);
    return mask & (i->negate ? ~p : p);
}

/* ---- parts ---- */

static void add_part(struct ptx_warp *w, uint32_t pc, uint32_t mask)
{
    if (mask)
        w->part[w->parts++] = (struct ptx_part){pc, mask, PART_RUNS};
}

static void drop_part(struct ptx_warp *w, int k)
{
    w->part[k] = w->part[--w->parts];
}

/* The runnable part that is furthest behind, joined with others at the same place; -1: none. */
static int pick(struct ptx_warp *w)
{
    int best = -1;
    for (int k = 0; k < w->parts; k++)
        if (w->part[k].state == PART_RUNS && (best < 0 || w->part[k].pc < w->part[best].pc))
            best = k;
    for (int k = w->parts - 1; k > best && best >= 0; k--)
        if (w->part[k].state == PART_RUNS && w->part[k].pc == w->part[best].pc) {
            w->part[best].mask |= w->part[k].mask;
            drop_part(w, k);
        }
    return best;
}

/* A convergence point: true when all lanes that it asks for are here; otherwise the part waits. Lanes that wait at the
 * same instruction are joined first. */
static bool met(struct ptx_warp *w, int k, const struct ptx_ins *i, uint32_t *mask)
{
    struct ptx_part *me = &w->part[k];
    for (int j = w->parts - 1; j >= 0; j--)
        if (j != k && w->part[j].state == PART_MEETS && w->part[j].pc == me->pc) {
            me->mask |= w->part[j].mask;
            drop_part(w, j);
            if (k == w->parts) /* the last one moved into j's place */
                me = &w->part[k = j];
        }
    me->state = PART_MEETS;
    *mask = guarded(w, i, me->mask);
    uint32_t want = w->live;
    if (i->members && *mask) {
        const ptx_w *members = ptx_lanes(w, i->members);
        const uint32_t first = members[__builtin_ctz(*mask)];
        for (int l = 0; l < PTX_LANES; l++)
            if (*mask >> l & 1 && members[l] != first)
                lf_ptx_fail(w, i, l, "another member mask than other lanes");
        if (*mask & ~first)
            lf_ptx_fail(w, i, __builtin_ctz(*mask & ~first), "a thread that is not in the member mask 0x%08x", first);
        want = first & w->live;
    }
    if (i->guard && me->mask == w->live && !*mask)
        return true; /* nobody does it */
    if ((*mask & want) != want)
        return false;
    return true;
}

static int part_at(const struct ptx_warp *w, uint32_t pc, int state)
{
    for (int k = 0; k < w->parts; k++)
        if ((int)w->part[k].state == state && w->part[k].pc == pc)
            return k;
    return -1;
}

/* ---- barriers ---- */

static unsigned barrier_threads(struct ptx_block *b, const struct ptx_warp *w, const struct ptx_ins *i, int lane)
{
    if (i->n < 2)
        return b->threads;
    const unsigned n = ((ptx_w *)PTX_O(w, i, 1))[lane];
    if (!n || n % PTX_LANES)
        lf_ptx_fail(w, i, lane, "a barrier of %u threads", n);
    return n;
}

/* bar.sync, bar.arrive (9.7.13.1): a warp arrives as a whole. */
static void arrive(struct ptx_warp *w, int k, const struct ptx_ins *i)
{
    struct ptx_block *b = w->b;
    struct ptx_part *me = &w->part[k];
    const uint32_t mask = guarded(w, i, me->mask);
    if (!mask) {
        me->pc++;
        return;
    }
    const uint32_t all = w->index + 1 == b->warps && b->threads % PTX_LANES ? (1u << b->threads % PTX_LANES) - 1 : ~0u;
    if (mask != all)
        lf_ptx_fail(w, i, __builtin_ctz(mask), "a barrier that lanes 0x%08x of the warp do not reach", all & ~mask);
    const int lane = __builtin_ctz(mask);
    const unsigned id = ((ptx_w *)PTX_O(w, i, 0))[lane], n = barrier_threads(b, w, i, lane);
    if (id >= PTX_BARRIERS)
        lf_ptx_fail(w, i, lane, "barrier %u", id);
    struct ptx_bar *bar = &b->bar[id];
    if (bar->arrived && bar->expected != n)
        lf_ptx_fail(w, i, lane, "barrier %u of %u and of %u threads", id, bar->expected, n);
    bar->expected = n;
    bar->arrived += PTX_LANES < b->threads ? PTX_LANES : b->threads;
    me->pc++;
    if (i->imm) { /* sync */
        me->state = PART_AT_BARRIER;
        w->barrier = (int)id;
    }
    const unsigned full = (n + PTX_LANES - 1) / PTX_LANES * (PTX_LANES < b->threads ? PTX_LANES : b->threads);
    if (bar->arrived > full)
        lf_ptx_fail(w, i, lane, "more threads than the %u of barrier %u", n, id);
    if (bar->arrived < full)
        return;
    bar->arrived = 0;
    for (unsigned j = 0; j < b->warps; j++) {
        struct ptx_warp *o = &b->warp[j];
        for (int x = 0; x < o->parts; x++)
            if (o->part[x].state == PART_AT_BARRIER && o->barrier == (int)id)
                o->part[x].state = PART_RUNS;
    }
}

/* ---- running ---- */

/* Runs part k until something else may have to run. */
static void run_part(struct ptx_warp *w, int k)
{
    struct ptx_ins *const code = w->b->k->code;
    struct ptx_part *me = &w->part[k];
    const size_t n = w->b->k->n;
    for (;;) {
        if (me->pc >= n) {
            struct ptx_ins *last = &code[n - 1];
            lf_ptx_fail(w, last, __builtin_ctz(me->mask), "the end of the function");
        }
        struct ptx_ins *i = &code[me->pc];
        uint32_t mask = me->mask;
        executed += (unsigned)__builtin_popcount(mask);
        switch (i->kind) {
        case PTX_PLAIN:
            mask = guarded(w, i, mask);
            if (mask) {
                if (!i->own_defined)
                    track(w, i, mask);
                i->fn(w, i, mask);
            }
            me->pc++;
            break;
        case PTX_BRANCH: {
            const uint32_t taken = guarded(w, i, mask), rest = mask & ~taken, pc = me->pc;
            if (!rest) {
                me->pc = i->target;
                break;
            }
            if (!taken) {
                me->pc++;
                break;
            }
            me->mask = rest;
            me->pc++;
            if (pc + 1 != i->target)
                add_part(w, i->target, taken);
            else
                me->mask |= taken;
            return;
        }
        case PTX_INDEXED: {
            const uint32_t taken = guarded(w, i, mask);
            const ptx_w *index = PTX_O(w, i, 0);
            track(w, i, taken);
            const uint32_t pc = me->pc;
            drop_part(w, k);
            add_part(w, pc + 1, mask & ~taken);
            for (uint32_t left = taken; left;) {
                const uint32_t x = index[__builtin_ctz(left)];
                uint32_t same = 0;
                for (int l = 0; l < PTX_LANES; l++)
                    same |= (left >> l & 1 && index[l] == x) ? 1u << l : 0;
                if (x >= i->imm)
                    lf_ptx_fail(w, i, __builtin_ctz(left), "branch %u of %d", x, (int)i->imm);
                add_part(w, i->targets[x], same);
                left &= ~same;
            }
            return;
        }
        case PTX_RETURN: {
            const uint32_t gone = guarded(w, i, mask);
            w->live &= ~gone;
            me->mask &= ~gone;
            me->pc++;
            if (!me->mask)
                drop_part(w, k);
            /* who waits for all living lanes may go on */
            for (int j = 0; j < w->parts; j++)
                if (w->part[j].state == PART_MEETS)
                    w->part[j].state = PART_RUNS;
            return;
        }
        case PTX_BARRIER:
            if (mask != w->live && w->parts > 1) {
                /* others may be about to come: wait for them */
                if (!met(w, k, i, &mask))
                    return;
                k = part_at(w, (uint32_t)(i - code), PART_MEETS);
                w->part[k].state = PART_RUNS;
                me = &w->part[k];
            }
            track(w, i, me->mask);
            arrive(w, k, i);
            return;
        case PTX_CONVERGE: {
            if (!met(w, k, i, &mask))
                return;
            k = part_at(w, (uint32_t)(i - code), PART_MEETS);
            me = &w->part[k];
            me->state = PART_RUNS;
            if (mask) {
                if (!i->own_defined)
                    track(w, i, mask);
                i->fn(w, i, mask);
            }
            me->pc++;
            if (w->parts > 1)
                return;
            break;
        }
        case PTX_WAIT:
            mask = guarded(w, i, mask);
            if (mask) {
                w->again = w->idle = false;
                if (!i->own_defined)
                    track(w, i, mask);
                i->fn(w, i, mask);
                if (w->again) {
                    executed -= w->idle ? (unsigned)__builtin_popcount(me->mask) : 0; /* so nothing happened */
                    me->state = PART_WAITS;
                    return;
                }
            }
            me->pc++;
            break;
        }
        if (w->parts > 1 && me->pc < n && code[me->pc].leader)
            return;
    }
}

/* Runs a warp until all its parts wait or have ended. */
static void run_warp(struct ptx_warp *w)
{
    for (int k; (k = pick(w)) >= 0;)
        run_part(w, k);
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
                        bar                      ? "a barrier that not all threads reach"
                        : p->state == PART_WAITS ? "a wait that nothing ends"
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
        const uint64_t before = executed;
        order_warps(turn, b->warps, order);
        for (unsigned x = 0; x < b->warps; x++)
            run_warp(&b->warp[turn[x]]);
        bool ran = executed != before;
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

static void set_special(struct ptx_warp *w, enum ptx_special s, const uint32_t *lanes, uint32_t value)
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
    w->parts = 0;
    add_part(w, 0, w->live);
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
    static const enum ptx_special by_lane[] = {S_TID_X, S_TID_Y, S_TID_Z, S_LANEID, S_EQ, S_LT, S_LE, S_GE, S_GT};
    for (size_t s = 0; s < sizeof by_lane / sizeof *by_lane; s++)
        set_special(w, by_lane[s], lanes[by_lane[s]], 0);
    const uint32_t same[][2] = {{S_NTID_X, b->dim.x},    {S_NTID_Y, b->dim.y},    {S_NTID_Z, b->dim.z},
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

static struct ptx_block *open_grid(struct lf_ptx_kernel *k, const void *args, struct lf_emu_uint3 grid,
                                   struct lf_emu_uint3 dim, size_t smem)
{
    struct ptx_block *b = or_abort(calloc(1, sizeof *b));
    b->k = k;
    b->grid = grid;
    b->dim = dim;
    b->args = args;
    b->threads = dim.x * dim.y * dim.z;
    b->warps = (b->threads + PTX_LANES - 1) / PTX_LANES;
    if (!b->threads || b->threads > k->max_threads || b->threads > PTX_MAX_WARPS * PTX_LANES) {
        fprintf(stderr, "ptx: %s: %u threads in a block, at most %u\n", k->name, b->threads, k->max_threads);
        abort();
    }
    b->smem_bytes = k->dynamic || !smem ? (k->dynamic ? k->dynamic_at + smem : k->shared) : k->shared + smem;
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

void lf_ptx_run(struct lf_ptx_kernel *k, const void *args, struct lf_emu_uint3 grid, struct lf_emu_uint3 dim,
                size_t smem, int order)
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
