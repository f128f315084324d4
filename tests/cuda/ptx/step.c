/* SPDX-License-Identifier: Apache-2.0
 *
 * Warps of the interpreter of PTX. A warp is a list of parts, each a program counter and lanes; the
 * runnable part with the least counter goes on until it branches apart, waits, or comes to a place
 * where another part may be (3.2 "Independent thread scheduling" promises no order; this one is
 * enough for whatever ends on a GPU without spinning on memory).
 */
#include "tests/cuda/ptx/ins.h"

static uint64_t executed;

uint64_t lf_ptx_count(void)
{
    return executed;
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

/* A convergence point: true when all lanes that it asks for are here; otherwise the part waits.
 * Lanes that wait at the same instruction are joined first. */
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
            lf_ptx_fail(w, i, __builtin_ctz(*mask & ~first),
                        "a thread that is not in the member mask 0x%08x", first);
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

static unsigned barrier_threads(struct ptx_block *b, const struct ptx_warp *w,
                                const struct ptx_ins *i, int lane)
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
    const uint32_t all = w->index + 1 == b->warps && b->threads % PTX_LANES
                             ? (1u << b->threads % PTX_LANES) - 1
                             : ~0u;
    if (mask != all)
        lf_ptx_fail(w, i, __builtin_ctz(mask),
                    "a barrier that lanes 0x%08x of the warp do not reach", all & ~mask);
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
    const unsigned full =
        (n + PTX_LANES - 1) / PTX_LANES * (PTX_LANES < b->threads ? PTX_LANES : b->threads);
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

static void perform(struct ptx_warp *w, struct ptx_ins *i, uint32_t mask)
{
    if (!mask)
        return;
    if (!i->own_defined)
        track(w, i, mask);
    i->fn(w, i, mask);
}

/* The functions below do one instruction of part k. True: the part goes on with its next one;
 * false: it may have gone, or something else may have to run. */

static bool branch(struct ptx_warp *w, int k, const struct ptx_ins *i)
{
    struct ptx_part *me = &w->part[k];
    const uint32_t taken = guarded(w, i, me->mask), rest = me->mask & ~taken, next = me->pc + 1;
    me->pc = rest ? next : i->target;
    if (!rest || !taken)
        return true;
    if (next == i->target)
        return false;
    me->mask = rest;
    add_part(w, i->target, taken);
    return false;
}

static bool branch_indexed(struct ptx_warp *w, int k, const struct ptx_ins *i)
{
    const uint32_t mask = w->part[k].mask, taken = guarded(w, i, mask), next = w->part[k].pc + 1;
    const ptx_w *index = PTX_O(w, i, 0);
    track(w, i, taken);
    drop_part(w, k);
    add_part(w, next, mask & ~taken);
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
    return false;
}

static bool leave(struct ptx_warp *w, int k, const struct ptx_ins *i)
{
    struct ptx_part *me = &w->part[k];
    const uint32_t gone = guarded(w, i, me->mask);
    w->live &= ~gone;
    me->mask &= ~gone;
    me->pc++;
    if (!me->mask)
        drop_part(w, k);
    /* who waits for all living lanes may go on */
    for (int j = 0; j < w->parts; j++)
        if (w->part[j].state == PART_MEETS)
            w->part[j].state = PART_RUNS;
    return false;
}

/* met(), and *k is the part of all who did; mask: of those that do the instruction. */
static bool meet(struct ptx_warp *w, int *k, const struct ptx_ins *i, uint32_t *mask)
{
    const uint32_t pc = w->part[*k].pc;
    if (!met(w, *k, i, mask))
        return false;
    *k = part_at(w, pc, PART_MEETS);
    w->part[*k].state = PART_RUNS;
    return true;
}

static bool barrier(struct ptx_warp *w, int k, const struct ptx_ins *i)
{
    uint32_t mask = w->part[k].mask;
    if (mask != w->live && w->parts > 1 &&
        !meet(w, &k, i, &mask)) /* others may be about to come: wait for them */
        return false;
    track(w, i, w->part[k].mask);
    arrive(w, k, i);
    return false;
}

static bool converge(struct ptx_warp *w, int *k, struct ptx_ins *i)
{
    uint32_t mask;
    if (!meet(w, k, i, &mask))
        return false;
    perform(w, i, mask);
    w->part[*k].pc++;
    return w->parts == 1;
}

/* An instruction that may have to be tried again when others have run. */
static bool wait_for(struct ptx_warp *w, int k, struct ptx_ins *i)
{
    struct ptx_part *me = &w->part[k];
    w->again = w->idle = false;
    perform(w, i, guarded(w, i, me->mask));
    if (w->again) {
        executed -= w->idle ? (unsigned)__builtin_popcount(me->mask) : 0; /* so nothing happened */
        me->state = PART_WAITS;
        return false;
    }
    me->pc++;
    return true;
}

static bool step(struct ptx_warp *w, int *k, struct ptx_ins *i)
{
    switch ((enum ptx_kind)i->kind) {
    case PTX_BRANCH:
        return branch(w, *k, i);
    case PTX_INDEXED:
        return branch_indexed(w, *k, i);
    case PTX_RETURN:
        return leave(w, *k, i);
    case PTX_BARRIER:
        return barrier(w, *k, i);
    case PTX_CONVERGE:
        return converge(w, k, i);
    case PTX_WAIT:
        return wait_for(w, *k, i);
    case PTX_PLAIN:
        break;
    }
    perform(w, i, guarded(w, i, w->part[*k].mask));
    w->part[*k].pc++;
    return true;
}

/* Runs part k until something else may have to run. */
static void run_part(struct ptx_warp *w, int k)
{
    struct ptx_ins *const code = w->b->k->code;
    const size_t n = w->b->k->n;
    do {
        const struct ptx_part *me = &w->part[k];
        if (me->pc >= n)
            lf_ptx_fail(w, &code[n - 1], __builtin_ctz(me->mask), "the end of the function");
        executed += (unsigned)__builtin_popcount(me->mask);
    } while (step(w, &k, &code[w->part[k].pc]) &&
             !(w->parts > 1 && w->part[k].pc < n && code[w->part[k].pc].leader));
}

void lf_ptx_run_warp(struct ptx_warp *w)
{
    for (int k; (k = pick(w)) >= 0;)
        run_part(w, k);
}
