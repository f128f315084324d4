/* SPDX-License-Identifier: Apache-2.0
 *
 * Control flow (PTX ISA 9.7.12), barriers (9.7.13) and exchange between lanes (9.7.9.6 shfl.sync,
 * 9.7.13.8 ... .11 vote, match, activemask, redux).
 */
#include "tests/cuda/ptx/ins.h"

static void nothing(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    (void)w;
    (void)i;
    (void)m;
}
static void trap(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    lf_ptx_fail(w, i, __builtin_ctz(m), "trap");
}

static bool is(const char *op, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(op, *list) == 0)
            return true;
    return false;
}

static bool barrier(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    static const char *const sync[] = {"bar.sync", "barrier.sync.aligned", "bar.cta.sync",
                                       "barrier.cta.sync.aligned", NULL},
                             *const arrive[] = {"bar.arrive", "barrier.arrive.aligned",
                                                "bar.cta.arrive", NULL};
    const bool waits = is(op, sync);
    if (!waits && !is(op, arrive))
        return false;
    i->kind = PTX_BARRIER;
    lf_ptx_signature(p, i, lf_ptx_operands(p) == 2 || !waits ? "ww" : "w");
    i->imm = waits;
    return true;
}

bool lf_ptx_decode_flow(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    static const char *const leave[] = {"ret", "ret.uni", "exit", NULL},
                             *const branch[] = {"bra", "bra.uni", NULL},
                             *const indexed[] = {"brx.idx", "brx.idx.uni", NULL},
                             *const fence[] = {"membar.cta",        "membar.gl",
                                               "membar.sys",        "fence.acq_rel.cta",
                                               "fence.acq_rel.gpu", "fence.sc.cta",
                                               "fence.sc.gpu",      NULL};
    i->fn = nothing;
    if (is(op, branch)) {
        i->kind = PTX_BRANCH;
        i->target = lf_ptx_label(p, 0);
        return true;
    }
    if (is(op, indexed)) {
        i->kind = PTX_INDEXED;
        lf_ptx_new_operands(i, 0, 1)[0] = lf_ptx_slot(p, 0, 4);
        i->target = lf_ptx_label(p, 1);
        return true;
    }
    if (is(op, leave)) {
        i->kind = PTX_RETURN;
        return true;
    }
    if (barrier(p, op, i))
        return true;
    if (strcmp(op, "bar.warp.sync") == 0) {
        i->kind = PTX_CONVERGE;
        lf_ptx_signature(p, i, "w");
        i->members = i->o[0];
        return true;
    }
    if (is(op, fence)) /* whatever a lane does is seen at once here */
        return true;
    if (strcmp(op, "trap") == 0) {
        i->fn = trap;
        return true;
    }
    i->fn = NULL;
    return false;
}

/* ---- shfl.sync d|p, a, b, c, membermask ---- */

enum shuffle { UP, DOWN, BFLY, IDX };

/* 9.7.9.6, "Semantics": c holds the bound of the segment in bits 0 ... 4 and the segment mask in
 * bits 8 ... 12. */
static void shuffle(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    const int has_pred = i->nd == 2;
    ptx_w *d = PTX_O(w, i, 0), from[PTX_LANES];
    const ptx_w *a = PTX_O(w, i, 1 + has_pred), *b = PTX_O(w, i, 2 + has_pred),
                *c = PTX_O(w, i, 3 + has_pred);
    uint32_t *def = w->defined, known = def[i->o[1 + has_pred] / 64], good = 0, pred = 0;
    memcpy(from, a, sizeof from);
    for (unsigned k = 2; k <= 4; k++)
        if (m & ~def[i->o[k + (unsigned)has_pred] / 64])
            lf_ptx_fail(w, i, __builtin_ctz(m & ~def[i->o[k + (unsigned)has_pred] / 64]),
                        "a register that was never written");
    for (int l = 0; l < PTX_LANES; l++) {
        if (!(m >> l & 1))
            continue;
        const int bval = (int)(b[l] & 31), cval = (int)(c[l] & 31), mask = (int)(c[l] >> 8 & 31);
        const int max = (l & mask) | (cval & ~mask), min = l & mask;
        int j = i->imm == UP     ? l - bval
                : i->imm == DOWN ? l + bval
                : i->imm == BFLY ? l ^ bval
                                 : min | (bval & ~mask);
        const bool p = i->imm == UP ? j >= max : j <= max;
        if (!p)
            j = l;
        d[l] = from[j];
        good |= (uint32_t)(m >> j & known >> j & 1)
                << l; /* from a lane that does not take part: unpredictable */
        pred |= (uint32_t)p << l;
    }
    def[i->o[0] / 64] = (def[i->o[0] / 64] & ~m) | good;
    if (has_pred) {
        ptx_set_pred(w, i->o[1], m, pred);
        def[i->o[1] / 64] |= m;
    }
}

/* ---- vote, match, activemask, redux ---- */

static void ballot(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    ptx_w *d = PTX_O(w, i, 0);
    const uint32_t p = ptx_pred(w, i->o[1]) & m;
    for (int l = 0; l < PTX_LANES; l++)
        if (m >> l & 1)
            d[l] = p;
}
#define VOTE(name, value)                                                                          \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)                      \
    {                                                                                              \
        const uint32_t p = ptx_pred(w, i->o[1]) & m;                                               \
        ptx_set_pred(w, i->o[0], m, (value) ? ~0u : 0);                                            \
    }
VOTE(vote_all, p == m)
VOTE(vote_any, p != 0)
VOTE(vote_uni, p == m || !p)

#define MATCH(name, T)                                                                             \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)                      \
    {                                                                                              \
        ptx_w *d = PTX_O(w, i, 0);                                                                 \
        T a[PTX_LANES];                                                                            \
        memcpy(a, PTX_O(w, i, 1), sizeof a);                                                       \
        for (int l = 0; l < PTX_LANES; l++) {                                                      \
            uint32_t same = 0;                                                                     \
            for (int k = 0; k < PTX_LANES; k++)                                                    \
                same |= (m >> k & 1 && a[k] == a[l] ? 1u : 0u) << k;                               \
            if (m >> l & 1)                                                                        \
                d[l] = same;                                                                       \
        }                                                                                          \
    }
MATCH(match32, ptx_w)
MATCH(match64, ptx_d)

static void activemask(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    ptx_w *d = PTX_O(w, i, 0);
    for (int l = 0; l < PTX_LANES; l++)
        if (m >> l & 1)
            d[l] = m;
}

#define REDUX(name, T, start, step)                                                                \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)                      \
    {                                                                                              \
        T *d = PTX_O(w, i, 0);                                                                     \
        const T *a = PTX_O(w, i, 1);                                                               \
        T r = start;                                                                               \
        for (int l = 0; l < PTX_LANES; l++)                                                        \
            if (m >> l & 1)                                                                        \
                r = step;                                                                          \
        for (int l = 0; l < PTX_LANES; l++)                                                        \
            if (m >> l & 1)                                                                        \
                d[l] = r;                                                                          \
    }
REDUX(redux_add, ptx_w, 0, r + a[l])
REDUX(redux_min_u, ptx_w, UINT32_MAX, a[l] < r ? a[l] : r)
REDUX(redux_max_u, ptx_w, 0, a[l] > r ? a[l] : r)
REDUX(redux_min_s, ptx_sw, INT32_MAX, a[l] < r ? a[l] : r)
REDUX(redux_max_s, ptx_sw, INT32_MIN, a[l] > r ? a[l] : r)
REDUX(redux_and, ptx_w, UINT32_MAX, r &a[l])
REDUX(redux_or, ptx_w, 0, r | a[l])

/* The last operand of each names the lanes that do it together. */
static const struct ptx_row together[] = {
    {"vote.sync.ballot.b32", ballot, "Wpw"},    {"vote.sync.all.pred", vote_all, "Ppw"},
    {"vote.sync.any.pred", vote_any, "Ppw"},    {"vote.sync.uni.pred", vote_uni, "Ppw"},
    {"match.any.sync.b32", match32, "Www"},     {"match.any.sync.b64", match64, "Wdw"},
    {"redux.sync.add.s32", redux_add, "Www"},   {"redux.sync.add.u32", redux_add, "Www"},
    {"redux.sync.min.u32", redux_min_u, "Www"}, {"redux.sync.max.u32", redux_max_u, "Www"},
    {"redux.sync.min.s32", redux_min_s, "Www"}, {"redux.sync.max.s32", redux_max_s, "Www"},
    {"redux.sync.and.b32", redux_and, "Www"},   {"redux.sync.or.b32", redux_or, "Www"},
};
static const struct ptx_row alone[] = {{"activemask.b32", activemask, "W"}};

bool lf_ptx_decode_warp(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    static const char *const modes[] = {"shfl.sync.up.b32", "shfl.sync.down.b32",
                                        "shfl.sync.bfly.b32", "shfl.sync.idx.b32"};
    if (lf_ptx_decode_row(p, op, i, alone, sizeof alone / sizeof *alone))
        return true;
    if (lf_ptx_decode_row(p, op, i, together, sizeof together / sizeof *together)) {
        i->kind = PTX_CONVERGE;
        i->members = i->o[i->n - 1];
        return true;
    }
    for (int k = 0; k < 4; k++)
        if (strcmp(op, modes[k]) == 0) {
            i->kind = PTX_CONVERGE;
            i->fn = shuffle;
            i->own_defined = true;
            lf_ptx_signature(p, i, lf_ptx_operands(p) == 6 ? "WPwwww" : "Wwwww");
            i->members = i->o[i->n - 1];
            i->imm = k;
            return true;
        }
    return false;
}
