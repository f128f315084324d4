/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults that a layout of ranks may have, planted one by one: each is found, by the checks that its
 * row names. A fault is planted in the calls of communicators (local.h) or in a function of the
 * engine, which the linker puts in place of the real one (--wrap), so the product knows nothing of
 * it. The same run without the fault passes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/exec_priv.h"
#include "tests/layout/fault.h"
#include "tests/tap/tap.h"

enum planted {
    SOUND,
    ADDED_TWICE,     /* rank 1 adds the gradients of its second micro-batch twice */
    FIRST_ON_SECOND, /* it forgets those of its first one */
    NOT_CLEARED,     /* every rank adds to the gradients of the step before */
    SAME_DATA,       /* rank 1 reads what rank 0 reads */
    NORM_TWICE,      /* a block of the norm counts twice */
    NORM_OMITS,      /* and not at all */
    NORM_AGAIN,      /* every rank adds these sums up twice */
    OVERFLOW_LOST,   /* nobody notices that the gradient is not finite */
    NOBODY,          /* a block of rank 1's part is no rank's */
    NEIGHBOUR,       /* rank 1 reads moments one row further on */
    NEIGHBOUR_WEIGHTS,
    NO_MOMENTS, /* moments of the checkpoint are not loaded */
    KINDS
};

static struct {
    enum planted what;
    bool infinite;              /* rank 0's gradient of step 1 is not finite, once: no fault */
    int optimizer[LOCAL_RANKS]; /* its runs */
    struct lf_exec_comm comm[LOCAL_RANKS];
} plan;

void fault_plant(const struct fault *f, bool planted)
{
    memset(&plan, 0, sizeof plan);
    plan.infinite = f->infinite;
    plan.what = planted ? (enum planted)f->what : SOUND;
}

/* ---- in place of the engine's ---- */

int __real_lf_exec_run(lf_exec *ex, int chain, enum lf_segment seg, int slot, enum lf_variant v,
                       lf_err *err);
int __wrap_lf_exec_run(lf_exec *ex, int chain, enum lf_segment seg, int slot, enum lf_variant v,
                       lf_err *err);
void __real_lf_exec_set_comm(lf_exec *ex, const struct lf_exec_comm *comm, void *user);
void __wrap_lf_exec_set_comm(lf_exec *ex, const struct lf_exec_comm *comm, void *user);
int __real_lf_loader_open(lf_loader **out, const lf_loader_config *c, lf_err *err);
int __wrap_lf_loader_open(lf_loader **out, const lf_loader_config *c, lf_err *err);
int __real_lf_pstore_write_part(lf_pstore *ps, int i, enum lf_pkind kind, enum lf_dtype dtype,
                                const void *src, const int64_t range[2], lf_err *err);
int __wrap_lf_pstore_write_part(lf_pstore *ps, int i, enum lf_pkind kind, enum lf_dtype dtype,
                                const void *src, const int64_t range[2], lf_err *err);

void __real_lf_param_own(const lf_pstore *ps, const struct lf_param *p, int64_t *first, int64_t *n);
void __wrap_lf_param_own(const lf_pstore *ps, const struct lf_param *p, int64_t *first, int64_t *n);

static void make_infinite(const lf_exec *ex)
{
    struct lf_pview v;
    if (lf_pstore_view(ex->p->ps, 1, LF_P_GRAD, &v) == 1)
        ((float *)v.data)[v.count / 2] = INFINITY;
}

int __wrap_lf_exec_run(lf_exec *ex, int chain, enum lf_segment seg, int slot, enum lf_variant v,
                       lf_err *err)
{
    const bool back = chain >= 0 && seg != LF_FWD, mine = rig_rank == 1;
    if (chain == LF_CHAIN_OPT && plan.optimizer[rig_rank]++ == 0 && plan.infinite &&
        plan.what != OVERFLOW_LOST && rig_rank == 0)
        make_infinite(ex);
    if (plan.what == ADDED_TWICE && mine && back && v == LF_ACCUM) {
        const int rc = __real_lf_exec_run(ex, chain, LF_BWD, slot, v, err);
        if (rc != 0)
            return rc;
    }
    if (plan.what == FIRST_ON_SECOND && mine && back)
        v = LF_FIRST;
    if (plan.what == NOT_CLEARED && back && plan.optimizer[rig_rank])
        v = LF_ACCUM;
    return __real_lf_exec_run(ex, chain, seg, slot, v, err);
}

/* The sums of blocks, of which each is one rank's. */
static int add(void *user, double *sums, size_t n, lf_err *err)
{
    size_t i = 0;
    if (plan.what == NORM_AGAIN) {
        const int rc = plan.comm[rig_rank].add(user, sums, n, err);
        return rc != 0 ? rc : plan.comm[rig_rank].add(user, sums, n, err);
    }
    while (rig_rank == 0 && i < n && !(sums[i] > 0))
        i++;
    if (rig_rank == 0 && i < n)
        sums[i] *= plan.what == NORM_TWICE ? 2 : 0;
    return plan.comm[rig_rank].add(user, sums, n, err);
}

void __wrap_lf_exec_set_comm(lf_exec *ex, const struct lf_exec_comm *comm, void *user)
{
    struct lf_exec_comm c = *comm;
    plan.comm[rig_rank] = c;
    if (plan.what == NORM_TWICE || plan.what == NORM_OMITS || plan.what == NORM_AGAIN)
        c.add = add;
    __real_lf_exec_set_comm(ex, &c, user);
}

int __wrap_lf_loader_open(lf_loader **out, const lf_loader_config *c, lf_err *err)
{
    lf_loader_config other = *c;
    if (plan.what == SAME_DATA && rig_rank == 1)
        other.dp_rank = 0;
    return __real_lf_loader_open(out, &other, err);
}

void __wrap_lf_param_own(const lf_pstore *ps, const struct lf_param *p, int64_t *first, int64_t *n)
{
    __real_lf_param_own(ps, p, first, n);
    if (plan.what == NOBODY && rig_rank == 1)
        *n -= *n < LF_NORM_BLOCK ? *n : LF_NORM_BLOCK;
}

/* What stands one row further on in src, as far as that has one. */
static int write_next_row(lf_pstore *ps, int i, enum lf_pkind kind, enum lf_dtype dtype,
                          const void *src, const int64_t range[2], lf_err *err)
{
    const struct lf_param_desc *d = lf_pstore_desc(ps, i);
    const int64_t row = d->dims[d->ndim - 1], n = range[1] - range[0];
    char *moved = malloc((size_t)n * lf_dtype_size(dtype) + 1);
    if (!moved)
        return LF_ENOMEM;
    for (int64_t e = 0; e < n; e++)
        memcpy(moved + (size_t)e * lf_dtype_size(dtype),
               (const char *)src + (size_t)(e + row < n ? e + row : e) * lf_dtype_size(dtype),
               lf_dtype_size(dtype));
    const int rc = __real_lf_pstore_write_part(ps, i, kind, dtype, moved, range, err);
    free(moved);
    return rc;
}

int __wrap_lf_pstore_write_part(lf_pstore *ps, int i, enum lf_pkind kind, enum lf_dtype dtype,
                                const void *src, const int64_t range[2], lf_err *err)
{
    const bool moment = kind == LF_P_M || kind == LF_P_V, some = range[1] > range[0];
    if (some && plan.what == NO_MOMENTS && moment)
        return 0;
    if (some && rig_rank == 1 &&
        ((plan.what == NEIGHBOUR && moment) || (plan.what == NEIGHBOUR_WEIGHTS && !moment)))
        return write_next_row(ps, i, kind, dtype, src, range, err);
    return __real_lf_pstore_write_part(ps, i, kind, dtype, src, range, err);
}

/* ---- the faults ---- */

static const struct fault faults[] = {
    {.name = "a bucket of gradients is not summed",
     .l = {.ranks = 2},
     .call = SUM_F32(LOCAL_ALONE, 1),
     .by = RIG_SAW_GRAD | RIG_SAW_NORM | APART},
    {.name = "a bucket of gradients is summed twice",
     .l = {.ranks = 2},
     .call = SUM_F32(LOCAL_TWICE, 2),
     .by = RIG_SAW_GRAD | RIG_SAW_NORM},
    {.name = "the same with zero = 1",
     .l = {.ranks = 3, .zero = 1},
     .call = SCATTER(LOCAL_TWICE, 1),
     .by = RIG_SAW_GRAD | RIG_SAW_NORM},
    {.name = "the gradients of one unit stay with those who computed them (zero = 1)",
     .l = {.ranks = 3, .zero = 1},
     .call = SCATTER(LOCAL_ALONE, 2),
     .by = RIG_SAW_GRAD | RIG_SAW_NORM},
    {.name = "the same with zero = 2",
     .l = {.ranks = 3, .zero = 2},
     .call = SCATTER(LOCAL_ALONE, 2),
     .by = RIG_SAW_GRAD | RIG_SAW_NORM},
    {.name = "groups of ranks do not sum a part",
     .l = {.ranks = 4, .zero = 2, .zero_inner = 2},
     .call = SUM_F32(LOCAL_ALONE, 1),
     .by = RIG_SAW_GRAD | RIG_SAW_APART},
    {.name = "rank 1 adds the gradients of its second micro-batch twice",
     .l = {.ranks = 2},
     .what = ADDED_TWICE,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM},
    {.name = "rank 1 forgets the gradients of its first micro-batch",
     .l = {.ranks = 2, .zero = 1},
     .what = FIRST_ON_SECOND,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM},
    {.name = "the same with zero = 3",
     .l = {.ranks = 2, .zero = 3},
     .what = FIRST_ON_SECOND,
     .by = RIG_SAW_GRAD | RIG_SAW_NORM},
    {.name = "gradients are added to those of the step before",
     .l = {.ranks = 2},
     .what = NOT_CLEARED,
     .by = RIG_SAW_NORM | RIG_SAW_CHANGE},
    {.name = "two ranks train on the same micro-batches",
     .l = {.ranks = 2},
     .what = SAME_DATA,
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD},
    {.name = "losses of other ranks are not counted",
     .l = {.ranks = 2},
     .call = SUM_F64(LOCAL_ALONE, 1),
     .by = RIG_SAW_LOSS | RIG_SAW_APART},
    {.name = "a rank's part of the norm counts twice",
     .l = {.ranks = 3, .zero = 1},
     .what = NORM_TWICE,
     .by = RIG_SAW_NORM | RIG_SAW_CHANGE},
    {.name = "the norm omits a part",
     .l = {.ranks = 3, .zero = 2},
     .what = NORM_OMITS,
     .by = RIG_SAW_NORM | RIG_SAW_CHANGE},
    {.name = "the norm is summed twice",
     .l = {.ranks = 3, .zero = 1},
     .what = NORM_AGAIN,
     .by = RIG_SAW_NORM | RIG_SAW_MOVED},
    {.name = "every rank has the norm of its own part",
     .l = {.ranks = 3, .zero = 1},
     .call = SUM_F64(LOCAL_ALONE, 2),
     .by = RIG_SAW_NORM | RIG_SAW_APART},
    {.name = "the flag of an overflow is its rank's alone",
     .l = {.ranks = 2, .zero = 1},
     .infinite = true,
     .call = SUM_F64(LOCAL_ALONE, 2),
     .by = RIG_SAW_RUN,
     .says = "all_reduce (sum) of 14 f64"}, /* one is in the step after */
    {.name = "an overflow is lost",
     .l = {.ranks = 2, .zero = 1},
     .infinite = true,
     .what = OVERFLOW_LOST,
     .by = RIG_SAW_SCALE},
    {.name = "a block that no rank updates",
     .l = {.ranks = 3, .zero = 1},
     .what = NOBODY,
     .by = RIG_SAW_MISSING},
    {.name = "updated weights are not given to the others",
     .l = {.ranks = 3, .zero = 1},
     .call = GATHER(LOCAL_ALONE, 2),
     .by = RIG_SAW_NORM | RIG_SAW_CHANGE},
    {.name = "the same after the last step",
     .l = {.ranks = 3, .zero = 1},
     .call = GATHER(LOCAL_ALONE, 12),
     .by = RIG_SAW_CHANGE | APART},
    {.name = "ranks begin with weights of their own",
     .l = {.ranks = 2},
     .call = {LOCAL_ALONE, 1, LF_COMM_BROADCAST, LF_COMM_F32, 2, true},
     .by = RIG_SAW_LOSS | RIG_SAW_GRAD | APART},
    {.name = "rank 1 leaves a sum out",
     .l = {.ranks = 3},
     .call = SUM_F32(LOCAL_SKIP, 2),
     .by = RIG_SAW_RUN,
     .says = "rank 1 begins all_reduce"},
    {.name = "rank 1 leaves a unit of gradients out",
     .l = {.ranks = 3, .zero = 2},
     .call = SCATTER(LOCAL_SKIP, 3),
     .by = RIG_SAW_RUN,
     .says = "rank 1 begins reduce_scatter"},
    {.name = "rank 1 does not wait for a sum",
     .l = {.ranks = 3, .zero = 2},
     .late = true,
     .call = SCATTER(LOCAL_NO_WAIT, 4),
     .by = RIG_SAW_RUN,
     .says = "the gradient is not finite"},
    {.name = "rank 1 does not wait for weights",
     .l = {.ranks = 3, .zero = 3},
     .late = true,
     .call = GATHER(LOCAL_NO_WAIT, 3),
     .by = RIG_SAW_RUN,
     .says = "the loss is not finite"},
    {.name = "rank 0 does not wait for weights after the last step",
     .l = {.ranks = 3, .zero = 1},
     .late = true,
     .call = {LOCAL_NO_WAIT, 0, LF_COMM_ALL_GATHER, LF_COMM_F32, 12, false},
     .by = APART},
    {.name = "rank 1 has the moments of the row behind",
     .l = {.ranks = 2, .zero = 1},
     .what = NEIGHBOUR,
     .resumed = true,
     .by = RIG_SAW_CHANGE},
    {.name = "rank 1 has the weights of the row behind",
     .l = {.ranks = 2, .zero = 3},
     .what = NEIGHBOUR_WEIGHTS,
     .resumed = true,
     .by = RIG_SAW_LOSS | RIG_SAW_CHANGE},
    {.name = "moments are not loaded",
     .l = {.ranks = 2, .zero = 1},
     .what = NO_MOMENTS,
     .resumed = true,
     .by = RIG_SAW_CHANGE},
};
enum { FAULTS = sizeof faults / sizeof faults[0] };

int main(void)
{
    for (size_t i = 0; i < FAULTS; i++)
        TAP(2, fault_test(&faults[i], (int)i));
    return tap_done();
}
