/* SPDX-License-Identifier: Apache-2.0
 *
 * Targets: what the planner may assume about a machine, as data. The patterns are those that were faster on that
 * machine: on the CPU a residual is cheapest in the epilogue of the product that makes the other addend, so add + norm
 * only remains where no product stands before the add.
 */
#include <string.h>

#include "engine/graph/priv.h"

enum { CPU_FUSE = LF_FUSE_ACT | LF_FUSE_RESIDUAL | LF_FUSE_NORM | LF_FUSE_NORM_BWD | LF_FUSE_DROPOUT };
#define MIB ((size_t)1 << 20)
#define CPU(n, i)                                                                                                      \
    {                                                                                                                  \
        .name = n, .isa = i, .align = 64, .fuse = CPU_FUSE, .max_workspace = 4096 * MIB, .reserved = 96 * MIB,         \
        .packed_bytes = lf_cpu_gemm_packed_bytes                                                                       \
    }

static const struct lf_target targets[] = {
    CPU("cpu-plain", LF_ISA_PLAIN),
    CPU("cpu-avx2", LF_ISA_AVX2),
    CPU("cpu-avx512", LF_ISA_AVX512),
    CPU("cpu-avx512bf16", LF_ISA_AVX512BF16),
};

const struct lf_target *lf_target_find(const char *name)
{
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (strcmp(targets[i].name, name) == 0)
            return &targets[i];
    return NULL;
}

const struct lf_target *lf_target_host(void)
{
    enum lf_isa isa = lf_cpu_isa_detect();
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (targets[i].isa == isa)
            return &targets[i];
    return &targets[0];
}

const char *const *lf_target_names(void)
{
    static const char *const names[] = {"cpu-plain", "cpu-avx2", "cpu-avx512", "cpu-avx512bf16", NULL};
    return names;
}
