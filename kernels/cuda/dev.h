/* SPDX-License-Identifier: Apache-2.0
 *
 * The base of every .cu file. A .cu file is written in the common part of C and C++: no templates,
 * references or classes, and casts from void * written out. It is compiled twice: by nvcc for GPUs,
 * and by the C compiler with a twin of the names below (tests/cuda/emu) that gives each its meaning
 * on a CPU. So kernels run in `make check` under sanitizers. Inline PTX stands only here, each
 * piece beside its C twin.
 *
 * LF_KERNEL(name, argument struct, most threads of a block) defines a kernel. fns.h lists the
 * names. In the body `a` points to the arguments:
 *
 *     LF_KERNEL(fill, struct lf_k_fill, 256)
 *     {
 *         const int64_t i = lf_index();
 *         if (i < a->n)
 *             lf_store(a->y, i, a->y_type, a->value);
 *     }
 *
 * Shared memory is always dynamic (LF_SHARED). The emulator fills it with NaN first. Sums that
 * cross threads follow a tree that the shapes fix. There are no atomics on floats.
 *
 * Numbers. Neither compiler may contract (nvcc -fmad=false, C -ffp-contract=off). So a * b + c
 * rounds twice wherever it stands, and kernels that share a formula share its bits. A fused
 * multiply-add is written fmaf (fma), which is one instruction on a GPU; hot loops write it.
 * Division and sqrtf are rounded correctly. Denormals are kept. expf, logf, tanhf and erfcf are
 * those of the CUDA library: every kernel on a device gets the same value, but a C library gives
 * another. The one approximation is lf_exp2. tests/gpu/numbers.sh checks all this on the build.
 */
#ifndef LF_KERNELS_CUDA_DEV_H
#define LF_KERNELS_CUDA_DEV_H

#include "engine/base/rng.h"
#include "kernels/kernels.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define LF_DEV static __device__ __forceinline__
#define LF_KERNEL_BOUNDS(name, T, bounds)                                                          \
    LF_DEV void name##_body(const T *a);                                                           \
    extern "C" __global__ void bounds lf_cu_##name(const __grid_constant__ T lf_args)              \
    {                                                                                              \
        name##_body(&lf_args);                                                                     \
    }                                                                                              \
    LF_DEV void name##_body(const T *a)
#define LF_KERNEL(name, T, threads) LF_KERNEL_BOUNDS(name, T, __launch_bounds__(threads))
/* LF_KERNEL with the number of blocks that a multiprocessor must have room for. It is for kernels
 * that ptxas would otherwise make spill registers to have more blocks. */
#define LF_KERNEL_PER_SM(name, T, threads, blocks)                                                 \
    LF_KERNEL_BOUNDS(name, T, __launch_bounds__(threads, blocks))

/* T *name = this block's dynamic shared memory, 128-byte aligned. Use it once per kernel. */
#define LF_SHARED(T, name)                                                                         \
    extern __shared__ __align__(128) unsigned char lf_smem_raw[];                                  \
    T *name = (T *)lf_smem_raw
/* The architecture that code is compiled for, 900 for sm_90. Only sizes that no bit depends on may
 * use it. */
#ifdef __CUDA_ARCH__
#define LF_ARCH __CUDA_ARCH__
#else
#define LF_ARCH 0
#endif
#define LF_UNROLL _Pragma("unroll")
#define LF_ROLLED _Pragma("unroll 1")

LF_DEV float lf_shfl_xor(float v, int mask)
{
    return __shfl_xor_sync(0xffffffffu, v, mask);
}
LF_DEV float lf_shfl(float v, int lane)
{
    return __shfl_sync(0xffffffffu, v, lane);
}
LF_DEV double lf_shfl_xor_d(double v, int mask)
{
    return __shfl_xor_sync(0xffffffffu, v, mask);
}
LF_DEV int lf_shfl_xor_i(int v, int mask)
{
    return __shfl_xor_sync(0xffffffffu, v, mask);
}
LF_DEV int lf_shfl_i(int v, int lane)
{
    return __shfl_sync(0xffffffffu, v, lane);
}
LF_DEV uint64_t lf_shfl_u64(uint64_t v, int lane)
{
    return __shfl_sync(0xffffffffu, (unsigned long long)v, lane);
}
/* Sums of integers, which do not depend on the order, in shared or global memory. lf_add_i32
 * returns the value before the addition. */
LF_DEV void lf_add_u64(uint64_t *p, uint64_t v)
{
    atomicAdd((unsigned long long *)p, (unsigned long long)v);
}
LF_DEV int lf_add_i32(int32_t *p, int v)
{
    return atomicAdd(p, v);
}
LF_DEV unsigned lf_ballot(int v)
{
    return __ballot_sync(0xffffffffu, v);
}
LF_DEV int lf_popc(unsigned v)
{
    return __popc(v);
}
/* The lanes whose v equals this lane's. */
LF_DEV unsigned lf_match_any(int v)
{
    return __match_any_sync(0xffffffffu, v);
}

LF_DEV float lf_bf16_f(uint16_t h)
{
    return __uint_as_float((unsigned)h << 16);
}
LF_DEV uint16_t lf_f_bf16(float x)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
LF_DEV float lf_f16_f(uint16_t h)
{
    return __half2float(__ushort_as_half(h));
}
LF_DEV uint16_t lf_f_f16(float x)
{
    return __half_as_ushort(__float2half_rn(x));
}

LF_DEV float lf_u32_f(uint32_t u)
{
    return __uint_as_float(u);
}
LF_DEV uint32_t lf_f_u32(float x)
{
    return __float_as_uint(x);
}

/* Two values rounded to bf16, lo in the low half. */
LF_DEV uint32_t lf_pack_bf16(float lo, float hi)
{
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
LF_DEV uint32_t lf_pack_f16(float lo, float hi)
{
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

/* 2^x to about 2 units in the last place. It is exact for 0 and -inf. Results below 2^-126 are
 * 0. */
LF_DEV float lf_exp2(float x)
{
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

/* An asynchronous copy of 16 bytes from global to shared memory. `ok` false writes zeros and reads
 * nothing. Commit ends a group of a thread's copies. wait(n) returns when at most n groups of the
 * thread are not finished. __syncthreads makes the copies visible to other threads. */
LF_DEV void lf_cp_async16(void *dst, const void *src, bool ok)
{
    const unsigned d = (unsigned)__cvta_generic_to_shared(dst);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(d), "l"(src),
                 "r"(ok ? 16 : 0)
                 : "memory");
}
LF_DEV void lf_cp_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
#define lf_cp_wait(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

/* Four 8 x 8 matrices of 16-bit elements from shared memory. Lane l gives the address of row l % 8
 * of matrix l / 8 (16-byte aligned). It receives the elements (l / 4, 2 (l % 4)) and (l / 4, 2 (l %
 * 4) + 1) of matrix i in r[i]. The trans form gives the elements (2 (l % 4), l / 4) and (2 (l % 4)
 * + 1, l / 4). */
LF_DEV void lf_ldmatrix4(uint32_t r[4], const void *row)
{
    const unsigned p = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(p)
                 : "memory");
}
LF_DEV void lf_ldmatrix4_trans(uint32_t r[4], const void *row)
{
    const unsigned p = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(p)
                 : "memory");
}

/* d[16 x 8] += a[16 x 16] b[16 x 8] by a warp, with f32 sums. With g = lane / 4 and t = lane % 4, a
 * lane holds (a register of a or b holds two elements, the first in the low half):
 *   a[0] = (g, 2t), (g, 2t + 1)           a[1] = (g + 8, 2t), (g + 8, 2t + 1)
 *   a[2] = (g, 2t + 8), (g, 2t + 9)       a[3] = (g + 8, 2t + 8), (g + 8, 2t + 9)
 *   b[0] = (2t, g), (2t + 1, g)           b[1] = (2t + 8, g), (2t + 9, g)
 *   d[0], d[1] = (g, 2t), (g, 2t + 1)     d[2], d[3] = (g + 8, 2t), (g + 8, 2t + 1) */
LF_DEV void lf_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, "
                 "%6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
LF_DEV void lf_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, "
                 "%7}, {%8, %9}, {%0, "
                 "%1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
#include LF_CUDA_TWIN
#endif

/* ---- the same text for both compilers ---- */

/* The index of this thread in a one-dimensional grid, and the number of threads of the grid. */
LF_DEV int64_t lf_index(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
LF_DEV int64_t lf_threads(void)
{
    return (int64_t)gridDim.x * blockDim.x;
}

LF_DEV float lf_load(const void *p, int64_t i, int type)
{
    if (type == LF_BF16)
        return lf_bf16_f(((const uint16_t *)p)[i]);
    return type == LF_F16 ? lf_f16_f(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

LF_DEV void lf_store(void *p, int64_t i, int type, float v)
{
    if (type == LF_BF16)
        ((uint16_t *)p)[i] = lf_f_bf16(v);
    else if (type == LF_F16)
        ((uint16_t *)p)[i] = lf_f_f16(v);
    else
        ((float *)p)[i] = v;
}

/* The value after it was stored as `type` and loaded again. */
LF_DEV float lf_round(float v, int type)
{
    return type == LF_BF16 ? lf_bf16_f(lf_f_bf16(v)) : type == LF_F16 ? lf_f16_f(lf_f_f16(v)) : v;
}

struct __attribute__((aligned(16))) lf_u4 {
    uint32_t x[4];
};

/* Eight consecutive elements. p + i must be 16-byte aligned. */
LF_DEV void lf_load8(float v[8], const void *p, int64_t i, int type)
{
    if (type == LF_F32) {
        const struct lf_u4 *s = (const struct lf_u4 *)((const float *)p + i);
        const struct lf_u4 u = s[0], w = s[1];
        LF_UNROLL for (int k = 0; k < 4; k++)
        {
            v[k] = lf_u32_f(u.x[k]);
            v[4 + k] = lf_u32_f(w.x[k]);
        }
        return;
    }
    const struct lf_u4 u = *(const struct lf_u4 *)((const uint16_t *)p + i);
    LF_UNROLL for (int k = 0; k < 4; k++)
    {
        const uint16_t lo = (uint16_t)u.x[k], hi = (uint16_t)(u.x[k] >> 16);
        v[2 * k] = type == LF_BF16 ? lf_bf16_f(lo) : lf_f16_f(lo);
        v[2 * k + 1] = type == LF_BF16 ? lf_bf16_f(hi) : lf_f16_f(hi);
    }
}

LF_DEV void lf_store8(void *p, int64_t i, int type, const float v[8])
{
    if (type == LF_F32) {
        struct lf_u4 *d = (struct lf_u4 *)((float *)p + i), u, w;
        LF_UNROLL for (int k = 0; k < 4; k++)
        {
            u.x[k] = lf_f_u32(v[k]);
            w.x[k] = lf_f_u32(v[4 + k]);
        }
        d[0] = u;
        d[1] = w;
        return;
    }
    struct lf_u4 u;
    LF_UNROLL for (int k = 0; k < 4; k++)
    {
        const uint16_t lo = type == LF_BF16 ? lf_f_bf16(v[2 * k]) : lf_f_f16(v[2 * k]);
        const uint16_t hi = type == LF_BF16 ? lf_f_bf16(v[2 * k + 1]) : lf_f_f16(v[2 * k + 1]);
        u.x[k] = (uint32_t)hi << 16 | lo;
    }
    *(struct lf_u4 *)((uint16_t *)p + i) = u;
}

/* Whether rows that start at p, ld elements apart, can be read eight elements at a time. */
LF_DEV bool lf_vec8(const void *p, int64_t ld, int type)
{
    const int64_t size = type == LF_F32 ? 4 : 2;
    return (uintptr_t)p % 16 == 0 && ld * size % 16 == 0;
}

/* n <= 8 elements; the other lanes of v become 0 (the end of a row). It reads 16 bytes at a time
 * where lf_vec8 allows. Both ways of loading share one text, so the arithmetic of an element does
 * not depend on the row's alignment. */
LF_DEV void lf_load_n(float v[8], const void *p, int64_t i, int type, int n, bool vec)
{
    if (vec && n >= 8) {
        lf_load8(v, p, i, type);
        return;
    }
    LF_UNROLL for (int k = 0; k < 8; k++) v[k] = k < n ? lf_load(p, i + k, type) : 0.0f;
}
LF_DEV void lf_store_n(void *p, int64_t i, int type, const float v[8], int n, bool vec)
{
    if (vec && n >= 8) {
        lf_store8(p, i, type, v);
        return;
    }
    LF_UNROLL for (int k = 0; k < 8; k++)
    {
        if (k < n)
            lf_store(p, i + k, type, v[k]);
    }
}

/* The row of element i and its place in the row, with rows of `per` elements. The 32-bit division
 * is used where it suffices. */
LF_DEV void lf_row_of(int64_t i, int64_t per, int64_t *row, int64_t *place)
{
    if ((uint64_t)(i | per) <= UINT32_MAX)
        *row = (uint32_t)i / (uint32_t)per;
    else
        *row = i / per;
    *place = i - *row * per;
}

/* Sum or maximum over a warp (xor tree: 16, 8, 4, 2, 1), in every lane. */
LF_DEV float lf_warp_sum(float v)
{
    LF_UNROLL for (int m = 16; m; m >>= 1) v += lf_shfl_xor(v, m);
    return v;
}
LF_DEV double lf_warp_sum_d(double v)
{
    LF_UNROLL for (int m = 16; m; m >>= 1) v += lf_shfl_xor_d(v, m);
    return v;
}
LF_DEV float lf_warp_max(float v)
{
    LF_UNROLL for (int m = 16; m; m >>= 1) v = fmaxf(v, lf_shfl_xor(v, m));
    return v;
}

/* Sum over a block, in every thread. The number of threads is a multiple of 32. scratch is 32
 * floats of shared memory; it is free again on return. */
LF_DEV float lf_block_sum(float v, float *scratch)
{
    const int warps = (int)(blockDim.x / 32), lane = (int)threadIdx.x % 32;
    v = lf_warp_sum(v);
    if (lane == 0)
        scratch[threadIdx.x / 32] = v;
    __syncthreads();
    v = lf_warp_sum(lane < warps ? scratch[lane] : 0.0f);
    __syncthreads();
    return v;
}
LF_DEV float lf_block_max(float v, float *scratch)
{
    const int warps = (int)(blockDim.x / 32), lane = (int)threadIdx.x % 32;
    v = lf_warp_max(v);
    if (lane == 0)
        scratch[threadIdx.x / 32] = v;
    __syncthreads();
    v = lf_warp_max(lane < warps ? scratch[lane] : -INFINITY);
    __syncthreads();
    return v;
}

#endif
