/* SPDX-License-Identifier: Apache-2.0
 *
 * Targets: what the planner may assume about a machine, as data. The patterns are those that were
 * faster on that machine: on the CPU a residual is cheapest in the epilogue of the product that
 * makes the other addend, so add + norm only remains where no product stands before the add.
 */
#include <string.h>

#include "engine/graph/priv.h"
#include "kernels/cuda/attn_args.h"

enum { FUSE = LF_FUSE_ACT | LF_FUSE_RESIDUAL | LF_FUSE_NORM | LF_FUSE_NORM_BWD | LF_FUSE_DROPOUT };
#define MIB ((size_t)1 << 20)
#define CPU(n, i)                                                                                  \
    {                                                                                              \
        .name = n, .isa = i, .align = 64, .fuse = FUSE, .head_dim = 512,                           \
        .max_workspace = 4096 * MIB, .reserved = 96 * MIB,                                         \
        .packed_bytes = lf_cpu_gemm_packed_bytes                                                   \
    }

/* Offsets as the driver aligns allocations. A context with the code of all kernels, and 32 MiB of
 * workspace for cuBLASLt, take about 600 MiB; pinned memory for copies is 48 MiB of the host. */
#define GPU(n, version)                                                                            \
    {                                                                                              \
        .name = n, .sm = version, .align = 256, .fuse = FUSE, .head_dim = LF_CU_ATTN_MAX_D,        \
        .max_workspace = 4096 * MIB, .reserved = 512 * MIB, .device_reserved = 768 * MIB           \
    }

static const struct lf_target targets[] = {
    CPU("cpu-plain", LF_ISA_PLAIN),
    CPU("cpu-avx2", LF_ISA_AVX2),
    CPU("cpu-avx512", LF_ISA_AVX512),
    CPU("cpu-avx512bf16", LF_ISA_AVX512BF16),
    CPU("cpu-neon", LF_ISA_NEON),
    CPU("cpu-neonbf16", LF_ISA_NEONBF16),
    CPU("cpu-sve256bf16", LF_ISA_SVE256BF16),
    CPU("cpu-sve512", LF_ISA_SVE512),
    GPU("sm_80", 80),
    GPU("sm_89", 89),
    GPU("sm_90", 90),
    GPU("sm_100", 100),
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
        if (!targets[i].sm && targets[i].isa == isa)
            return &targets[i];
    return &targets[0];
}

const struct lf_target *lf_target_device(enum lf_device device)
{
    struct lf_gpus g;
    if (lf_device_choose(device) == LF_DEVICE_CPU)
        return lf_target_host();
    lf_gpus_look(&g);
    const int sm = g.n ? g.sm : 90;
    const struct lf_target *best = NULL;
    for (size_t i = 0; i < sizeof targets / sizeof *targets;
         i++) /* the latest that is not later than the GPU */
        if (targets[i].sm && (!best || targets[i].sm <= sm))
            best = &targets[i];
    return best;
}

const char *const *lf_target_names(void)
{
    static const char *const names[] = {
        "cpu-plain",    "cpu-avx2",       "cpu-avx512", "cpu-avx512bf16", "cpu-neon",
        "cpu-neonbf16", "cpu-sve256bf16", "cpu-sve512", "sm_80",          "sm_89",
        "sm_90",        "sm_100",         NULL};
    return names;
}
