/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks divide: see zero.h.
 */
#include "engine/train/zero.h"

/* Of gradients that are summed over ranks at once: large enough that latency does not count, small
 * enough that several fit into a step. */
#define BUCKET_BYTES ((size_t)25 << 20)

int lf_zero_check(const struct lf_zero *z, int ranks, lf_err *err)
{
    if (z->inner > 0 && !z->stage)
        return lf_fail(err, LF_EINVAL,
                       "zero_inner = %d: nothing is divided with zero = 0; set zero too", z->inner);
    if (ranks > 1 && z->inner > 0 && (z->inner == 1 || ranks % z->inner))
        return lf_fail(err, LF_EINVAL,
                       "zero_inner = %d: %d ranks cannot form such groups; take a divisor of their "
                       "number that is 2 or more",
                       z->inner, ranks);
    return 0;
}

int lf_zero_inner(const struct lf_zero *z, int ranks)
{
    return z->stage > 0 && z->inner > 0 && z->inner < ranks ? z->inner : ranks;
}

double lf_zero_comm_bytes(const struct lf_zero *z, int ranks)
{
    const int inner = lf_zero_inner(z, ranks), groups = inner < ranks ? inner + ranks / inner : 0;
    return ranks > 1 ? LF_COMM_BYTES * (ranks + groups) : 0;
}

struct lf_plan_ranks lf_zero_share(const struct lf_zero *z, size_t bucket_bytes, int rank,
                                   int ranks)
{
    const int inner = lf_zero_inner(z, ranks);
    return (struct lf_plan_ranks){.ranks = inner,
                                  .rank = rank % inner,
                                  .bucket_bytes = bucket_bytes ? bucket_bytes : BUCKET_BYTES,
                                  .zero = z->stage,
                                  .groups = ranks / inner,
                                  .group = rank / inner};
}
