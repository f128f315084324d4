/* SPDX-License-Identifier: Apache-2.0
 *
 * The plans of all ranks, with zero 0 to 3: together they have the bytes of one rank's plan and
 * named addends, to the byte; the parts of a tensor cover it once; a plan that takes another rank
 * has the bytes of a plan that was made for it. No memory is bound.
 *
 *     replicas  what every rank has whole: weights that are not divided, inputs
 *     rounding  the end of a part up to the alignment of the target
 *     tables    the optimizer's table of a rank's part, and the f64 sums of the norm's blocks
 *     arenas    activations, which every rank has; with zero = 2 and 3 the windows among them
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/priv.h"
#include "tests/unit/graph_util.h"

static lf_err err = LF_ERR_INIT;

enum { RANKS = 8 };
/* Matrices of several blocks of the norm, where cuts may lie, and small tensors; then small tensors
 * alone, of odd sizes, so that cuts lie at odd bytes. */
static const struct gu_model large = {.layers = 3,
                                      .c = 256,
                                      .heads = 4,
                                      .groups = 2,
                                      .d = 64,
                                      .ffn = 264,
                                      .vocab = 1031,
                                      .max_pos = 64,
                                      .glu = true,
                                      .bias = true,
                                      .layer_norm = true,
                                      .rows = 48},
                             small = {.layers = 2,
                                      .c = 35,
                                      .heads = 3,
                                      .groups = 1,
                                      .d = 8,
                                      .ffn = 41,
                                      .vocab = 61,
                                      .max_pos = 64,
                                      .bias = true,
                                      .layer_norm = true,
                                      .tied = true,
                                      .rows = 48};

struct addends {
    size_t replicas, rounding, tables, arenas;
};

/* What is planned. */
struct what {
    const struct gu_model *m;
    const struct gu_opts *o;
    const char *name;
};

static void plan_of(struct gu *u, const struct what *w, int zero, int ranks, int rank)
{
    struct gu_opts o = *w->o;
    o.optimizer = true;
    o.valid = true;
    o.state.average = true;
    o.dp_ranks = ranks;
    o.dp_rank = rank;
    o.zero = zero;
    gu_plan(u, w->m, &o);
}

static size_t up(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t group_bytes(const lf_pstore *ps, const struct lf_pgroup *g, int kind)
{
    return (size_t)(g->rows * g->cols) * lf_dtype_size(lf_pstore_type(ps, (enum lf_pkind)kind));
}

/* ---- what the ranks' stores have together ---- */

/* What the stages of ZeRO divide of a group that is trained, said here once more. */
static bool is_part(int zero, int kind, bool bf16)
{
    switch (kind) {
    case LF_P_M:
    case LF_P_V:
    case LF_P_EMA:
        return zero >= 1;
    case LF_P_GRAD:
        return zero >= 2;
    case LF_P_MASTER:
        return zero == 3 || (zero >= 1 && bf16);
    default:
        return zero == 3;
    }
}

/* Adds what a part of a group or, where windows gather it, of a unit takes beyond its elements. */
static size_t rounding_of_groups(const struct gu *u, int kind)
{
    size_t sum = 0;
    for (size_t i = 0; i < u->ps->n_g; i++) {
        const struct lf_pgroup *g = &u->ps->g[i];
        const size_t bytes =
            (size_t)(g->own1 - g->own0) * lf_dtype_size(lf_pstore_type(u->ps, (enum lf_pkind)kind));
        if (g->part[kind] && !g->window[kind])
            sum += up(bytes) - bytes;
    }
    return sum;
}

static size_t rounding_of_units(const struct gu *u, int kind)
{
    size_t sum = 0;
    for (size_t i = 0; i < u->p->n_units; i++) {
        const struct lf_unit *x = &u->p->unit[i];
        const int rank = u->p->ranks.rank;
        const size_t bytes =
            lf_unit_cut(u->p, x, kind, rank + 1) - lf_unit_cut(u->p, x, kind, rank);
        if (x->bytes[kind])
            sum += up(bytes) - bytes;
    }
    return sum;
}

/* Parts of groups leave out the gap behind a whole one. */
static size_t gaps_left_out(const struct gu *u, int kind)
{
    size_t sum = 0;
    for (size_t i = 0; i < u->ps->n_g; i++) {
        const struct lf_pgroup *g = &u->ps->g[i];
        const size_t bytes = group_bytes(u->ps, g, kind);
        if (g->part[kind] && !g->window[kind])
            sum += up(bytes) - bytes;
    }
    return sum;
}

static void add_store(struct addends *a, const struct gu *all, int ranks, int zero, bool bf16)
{
    int wrong = 0;
    for (int k = 0; k < LF_P_KINDS; k++) {
        for (size_t i = 0; i < all[0].ps->n_g; i++) {
            const struct lf_pgroup *g = &all[0].ps->g[i];
            if (!g->need[k])
                continue;
            wrong += ranks > 1 && g->part[k] != is_part(zero, k, bf16 && g->need[LF_P_COPY]);
            if (!g->part[k])
                a->replicas += (size_t)(ranks - 1) * up(group_bytes(all[0].ps, g, k));
        }
        for (int r = 0; r < ranks; r++)
            a->rounding += rounding_of_groups(&all[r], k) + rounding_of_units(&all[r], k);
        a->rounding -= gaps_left_out(&all[0], k);
    }
    tap_ok(wrong == 0, "%d ranks, zero = %d: what is divided is what the stage says", ranks, zero);
}

/* Every element of every kind is one rank's, or all have the whole tensor. */
static void test_cover(const struct gu *all, int ranks, int zero)
{
    int wrong = 0, divided = 0;
    for (int i = 0; i < lf_pstore_count(all[0].ps); i++)
        for (int k = 0; k < LF_P_KINDS; k++) {
            int64_t at = 0, own[2];
            for (int r = 0; r < ranks; r++) {
                lf_pstore_own(all[r].ps, i, (enum lf_pkind)k, own);
                const bool part = lf_pstore_sharded(all[r].ps, i, (enum lf_pkind)k);
                divided += part;
                if (own[1] == own[0])
                    continue;
                wrong += own[0] != (part ? at : 0);
                at = own[1];
            }
            const struct lf_param *p = &all[0].ps->p[i];
            wrong += at != (all[0].ps->g[p->group].need[k] ? p->n : 0);
        }
    tap_ok(wrong == 0 && (divided > 0) == (ranks > 1 && zero > 0),
           "%d ranks, zero = %d: their parts cover every tensor once (%d parts)", ranks, zero,
           divided);
}

/* ---- everything ---- */

static void add_rest(struct addends *a, const struct gu *all, const struct gu *one, int ranks,
                     int zero)
{
    size_t blocks = 0, tensors = 0;
    for (int i = 0; i < lf_pstore_count(one->ps); i++) {
        blocks += (size_t)(one->ps->p[i].n + LF_NORM_BLOCK - 1) / LF_NORM_BLOCK;
        tensors++;
    }
    for (int r = 0; r < ranks; r++) {
        a->arenas += all[r].p->bytes.arena;
        if (ranks > 1 && zero > 0)
            a->tables += up(tensors * sizeof(struct lf_opt_tensor)) + up(blocks * sizeof(double));
    }
    a->arenas -= one->p->bytes.arena;
    a->replicas += (size_t)(ranks - 1) * one->p->bytes.inputs;
}

/* Windows: at most three of a kind are live at once, and one of each kind must be. */
static void test_windows(const struct gu *all, const struct gu *one, int ranks, int zero)
{
    size_t largest[LF_P_KINDS] = {0}, most = 0, least = 0;
    for (size_t i = 0; i < all[0].p->n_units; i++)
        for (int k = 0; k < LF_P_KINDS; k++)
            if (all[0].p->unit[i].bytes[k] > largest[k])
                largest[k] = all[0].p->unit[i].bytes[k];
    for (int k = 0; k < LF_P_KINDS; k++) {
        most += 3 * largest[k];
        least = largest[k] > least ? largest[k] : least;
    }
    const size_t more = all[0].p->bytes.arena - one->p->bytes.arena;
    tap_ok(ranks > 1 && zero > 1 ? more >= least / 2 && more <= most && least > 0 : more == 0,
           "%d ranks, zero = %d: windows take %zu bytes of an arena, of blocks up to %zu", ranks,
           zero, more, least);
    for (int r = 1; r < ranks; r++)
        if (all[r].p->bytes.arena != all[0].p->bytes.arena)
            tap_bail("rank %d has another arena", r);
}

/* Adds what is rounded to *rounded. */
static void test_sum(const struct what *w, int zero, int ranks, size_t *rounded)
{
    struct gu all[RANKS] = {0}, one;
    struct addends a = {0};
    size_t sum = 0;
    int moved = 0;
    plan_of(&one, w, 0, 1, 0);
    for (int r = 0; r < ranks; r++) {
        plan_of(&all[r], w, zero, ranks, r);
        sum += all[r].p->bytes.total;
    }
    add_store(&a, all, ranks, zero, w->o->plan.compute == LF_BF16);
    add_rest(&a, all, &one, ranks, zero);
    *rounded += a.rounding;
    const size_t want = one.p->bytes.total + a.replicas + a.rounding + a.tables + a.arenas;
    tap_ok(sum == want,
           "%s, %d ranks, zero = %d: %zu bytes = %zu of one rank + %zu of replicas + %zu of "
           "rounding + %zu of tables + %zu of arenas",
           w->name, ranks, zero, sum, one.p->bytes.total, a.replicas, a.rounding, a.tables,
           a.arenas);
    test_cover(all, ranks, zero);
    test_windows(all, &one, ranks, zero);
    for (int r = ranks - 1; r >= 0; r--) { /* rank 0's plan becomes each of them */
        const int rc = lf_plan_take_rank(all[0].p, r, &err);
        moved += rc != 0 || memcmp(&all[0].p->bytes, &all[r].p->bytes, sizeof one.p->bytes) != 0;
        for (size_t i = 0; i < one.ps->n_g; i++)
            moved += memcmp(all[0].ps->g[i].off, all[r].ps->g[i].off, sizeof one.ps->g[i].off) != 0;
    }
    tap_i64(moved, 0, "a plan that takes a rank is the plan of that rank");
    for (int r = 0; r < ranks; r++)
        gu_close(&all[r]);
    gu_close(&one);
}

static void all_ranks(const struct gu_model *m, const struct gu_opts *o, const char *name)
{
    const struct what w = {m, o, name};
    size_t rounded = 0;
    for (int zero = 0; zero <= 3; zero++)
        for (int ranks = 1; ranks <= RANKS; ranks++)
            test_sum(&w, zero, ranks, &rounded);
    tap_ok((rounded > 0) == (m == &small), "parts end at odd bytes where tensors do: %zu", rounded);
}

static void refusals(void)
{
    struct gu u;
    plan_of(&u, &(struct what){&small, &gu_f32, NULL}, 1, 2, 0);
    tap_rc(lf_plan_take_rank(u.p, 2, &err), LF_EINVAL, &err, "2 ranks have no rank 2",
           "a rank that is not there");
    gu_close(&u);
    struct gu_opts o = gu_f32;
    o.optimizer = true;
    o.dp_ranks = 2;
    o.zero = 1;
    gu_open(&u, &gu_llama, &o);
    tap_rc(lf_plan_take_rank(u.p, 1, &err), LF_EBUSY, &err, "bound to an executor",
           "the plan of an executor");
    gu_close(&u);
}

int main(void)
{
    TAP(4 * RANKS * 5 + 1, all_ranks(&large, &gu_f32, "f32"));
    TAP(4 * RANKS * 5 + 1, all_ranks(&large, &gu_bf16, "bf16"));
    TAP(4 * RANKS * 5 + 1, all_ranks(&small, &gu_f32, "small, f32"));
    TAP(4 * RANKS * 5 + 1, all_ranks(&small, &gu_bf16, "small, bf16"));
    TAP(2, refusals());
    return tap_done();
}
