/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA's meaning on a CPU, for tests. One block runs at a time; each of its threads is a fiber with
 * a stack of its own, so barriers, shuffles and warp-wide instructions have their real meaning: a
 * barrier that not all threads reach, or a warp operation that not all lanes reach, ends the
 * process with a message. Shared memory starts as NaN bits and ends exactly where it ends
 * (AddressSanitizer sees it, and every global access). Asynchronous copies land only when they are
 * waited for. LF_EMU_ORDER sets the order of threads between barriers: 0 ascending, 1 descending, n
 * > 1 shuffled with that seed; a race shows as a different result. Not modelled: the memory model
 * between blocks, register limits, bank conflicts, rounding inside tensor cores.
 */
#ifndef LF_KERNELS_CUDA_EMU_EMU_H
#define LF_KERNELS_CUDA_EMU_EMU_H

/* A thread fills the part of its registers that its columns need and looks at no other. At -O3 gcc
 * inlines the rows whole and, where it cannot prove that, warns. Real reads of unset bytes are what
 * the sanitizers look for here. */
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct lf_emu_uint3 {
    unsigned x, y, z;
};
/* What the running thread sees. */
struct lf_emu_view {
    struct lf_emu_uint3 thread, block, block_dim, grid_dim;
    unsigned lane;
    void *smem;
    size_t smem_bytes;
};
extern struct lf_emu_view lf_emu;

#define threadIdx lf_emu.thread
#define blockIdx  lf_emu.block
#define blockDim  lf_emu.block_dim
#define gridDim   lf_emu.grid_dim
#define LF_DEV    static inline __attribute__((unused))
#define LF_ARCH   1000 /* the newest: where loops are cut into more parts */
#define LF_UNROLL
#define LF_ROLLED
#define LF_SHARED(T, name) T *name = lf_emu.smem

/* emu.c's table reads the three names. */
#define LF_KERNEL(name, T, threads)                                                                \
    LF_DEV void name##_body(const T *a);                                                           \
    void lf_cu_##name(const void *lf_args);                                                        \
    extern const size_t lf_cu_args_##name;                                                         \
    extern const unsigned lf_cu_threads_##name;                                                    \
    void lf_cu_##name(const void *lf_args)                                                         \
    {                                                                                              \
        name##_body(lf_args);                                                                      \
    }                                                                                              \
    const size_t lf_cu_args_##name = sizeof(T);                                                    \
    const unsigned lf_cu_threads_##name = threads;                                                 \
    LF_DEV void name##_body(const T *a)

#define LF_KERNEL_PER_SM(name, T, threads, blocks) LF_KERNEL(name, T, threads)

void lf_emu_block_barrier(void);
void lf_emu_warp_barrier(void);
#define __syncthreads() lf_emu_block_barrier()
#define __syncwarp()    lf_emu_warp_barrier()

/* Every lane gives `bytes` (<= 64) and gets the array of what the 32 lanes gave, entry stride 64;
 * lanes that have no thread give zeros. Valid until the lane's next warp operation; until then the
 * lanes may leave each other something behind what they gave. */
unsigned char *lf_emu_exchange(const void *mine, size_t bytes);

LF_DEV float lf_shfl(float v, int lane)
{
    float r;
    memcpy(&r, lf_emu_exchange(&v, sizeof v) + 64 * (lane & 31), sizeof r);
    return r;
}
LF_DEV int lf_shfl_i(int v, int lane)
{
    int r;
    memcpy(&r, lf_emu_exchange(&v, sizeof v) + 64 * (lane & 31), sizeof r);
    return r;
}
LF_DEV float lf_shfl_xor(float v, int mask)
{
    return lf_shfl(v, (int)lf_emu.lane ^ mask);
}
LF_DEV int lf_shfl_xor_i(int v, int mask)
{
    return lf_shfl_i(v, (int)lf_emu.lane ^ mask);
}
LF_DEV double lf_shfl_xor_d(double v, int mask)
{
    double r;
    memcpy(&r, lf_emu_exchange(&v, sizeof v) + 64 * (((int)lf_emu.lane ^ mask) & 31), sizeof r);
    return r;
}
LF_DEV uint64_t lf_shfl_u64(uint64_t v, int lane)
{
    uint64_t r;
    memcpy(&r, lf_emu_exchange(&v, sizeof v) + 64 * (lane & 31), sizeof r);
    return r;
}
LF_DEV void lf_add_u64(uint64_t *p, uint64_t v)
{
    *p += v;
}
LF_DEV int lf_add_i32(int32_t *p, int v)
{
    const int32_t old = *p;
    *p += v;
    return old;
}
LF_DEV unsigned lf_ballot(int v)
{
    const unsigned char *all = lf_emu_exchange(&v, sizeof v);
    unsigned r = 0;
    for (int i = 0; i < 32; i++) {
        int o;
        memcpy(&o, all + 64 * i, sizeof o);
        r |= (unsigned)(o != 0) << i;
    }
    return r;
}
LF_DEV unsigned lf_match_any(int v)
{
    const unsigned char *all = lf_emu_exchange(&v, sizeof v);
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        r |= (unsigned)(memcmp(all + 64 * i, &v, sizeof v) == 0) << i;
    return r;
}
LF_DEV int lf_popc(unsigned v)
{
    return __builtin_popcount(v);
}

LF_DEV float lf_u32_f(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
LF_DEV uint32_t lf_f_u32(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
LF_DEV float lf_bf16_f(uint16_t h)
{
    return lf_u32_f((uint32_t)h << 16);
}
LF_DEV uint16_t lf_f_bf16(float x)
{
    const uint32_t u = lf_f_u32(x);
    return x != x ? (uint16_t)0x7fff : (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
/* binary16 by arithmetic on bits, so that no compiler type is needed. */
LF_DEV float lf_f16_f(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
    if (e == 31)
        return lf_u32_f(sign | 0x7f800000u | m << 13);
    if (e)
        return lf_u32_f(sign | (e + 112) << 23 | m << 13);
    const float v = (float)m * 0x1p-24f;
    return sign ? -v : v;
}
uint16_t lf_f_f16(float x);

LF_DEV uint32_t lf_pack_bf16(float lo, float hi)
{
    return (uint32_t)lf_f_bf16(hi) << 16 | lf_f_bf16(lo);
}
LF_DEV uint32_t lf_pack_f16(float lo, float hi)
{
    return (uint32_t)lf_f_f16(hi) << 16 | lf_f_f16(lo);
}
LF_DEV float lf_exp2(float x)
{
    const float r = exp2f(x);
    return r < 0x1p-126f ? 0.0f : r;
}

void lf_cp_async16(void *dst, const void *src, bool ok);
void lf_cp_commit(void);
void lf_cp_wait(int n);

void lf_ldmatrix4(uint32_t r[4], const void *row);
void lf_ldmatrix4_trans(uint32_t r[4], const void *row);
void lf_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]);
void lf_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2]);

#endif
