/* SPDX-License-Identifier: Apache-2.0
 *
 * Device functions of compute capability 9.0 beyond dev.h: barriers in shared memory (mbarrier),
 * tiles that the copy engine brings (TMA), matrix products of a warpgroup (wgmma). Code that uses
 * them is compiled for sm_90a alone. As in dev.h, each piece of inline PTX has a C twin
 * (tests/cuda/emu/hopper.h). Formats are those of the PTX ISA, "mbarrier", "cp.async.bulk.tensor"
 * and "asynchronous warpgroup-level matrix instructions".
 *
 * Three parties read and write shared memory, and only barriers order them:
 *   threads
 *   the copy engine    writes at any time between lf_tma_2d and the end of its barrier's phase
 *   the tensor cores   read at any time between lf_wgmma_* and the lf_wgmma_wait that covers it
 *
 * A barrier's phase ends when all its arrivals have come and all announced bytes have landed. A
 * wait names a phase by its parity. The first phase has parity 0. lf_mbar_wait(b, 1) on a fresh
 * barrier returns at once.
 */
#ifndef LF_KERNELS_CUDA_DEV_HOPPER_H
#define LF_KERNELS_CUDA_DEV_HOPPER_H

#include "kernels/cuda/dev.h"
#include "kernels/cuda/tensor_map.h"

/* A descriptor of an operand of lf_wgmma_*. lf_tma_2d has written the operand with boxes of 64
 * elements (128 bytes) a row. A pattern starts at a multiple of 1024 bytes.
 *   k along the row        A row is a lane (a row of A, a column of B). `stride`: bytes from 8
 *                          lanes to the next 8. `lead` is not used. The next 16 k are 32 bytes
 *                          further.
 *   lanes along the row    A row is one k. `stride`: bytes from 8 k to the next 8. `lead`: bytes
 *                          from 64 lanes to the next 64. The next 16 k are 16 rows further. */
#define LF_WG_DESC(at, lead, stride)                                                               \
    ((uint64_t)((at) >> 4 & 0x3fff) | (uint64_t)((lead) >> 4 & 0x3fff) << 16 |                     \
     (uint64_t)((stride) >> 4 & 0x3fff) << 32 | (uint64_t)1 << 62)

#ifdef __CUDACC__
/* An address in shared memory, in the form that instructions and descriptors take. */
LF_DEV uint32_t lf_smem_addr(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

LF_DEV void lf_mbar_init(uint64_t *b, unsigned arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(lf_smem_addr(b)), "r"(arrivals)
                 : "memory");
}
/* The thread that initialised the barriers calls it before the __syncthreads after which other
 * threads use them. */
LF_DEV void lf_mbar_init_fence(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
LF_DEV void lf_mbar_arrive(uint64_t *b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(lf_smem_addr(b)) : "memory");
}
/* Arrives, and announces that many bytes of the copy engine. */
LF_DEV void lf_mbar_arrive_expect(uint64_t *b, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(lf_smem_addr(b)),
                 "r"(bytes)
                 : "memory");
}
/* Returns when the phase of that parity has ended. */
LF_DEV void lf_mbar_wait(uint64_t *b, unsigned parity)
{
    unsigned done;
    do {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(lf_smem_addr(b)), "r"(parity)
                     : "memory");
    } while (!done);
}

LF_DEV void lf_tma_prefetch_map(const struct lf_cu_tensor_map *m)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(m) : "memory");
}
/* One thread calls it. The copy engine brings the box at column x (along memory) and row y of the
 * matrix to dst, a multiple of 128 bytes. Elements outside of the matrix become zeros. The bytes
 * count for the barrier `full`. */
LF_DEV void lf_tma_2d(void *dst, const struct lf_cu_tensor_map *m, int x, int y, uint64_t *full)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, "
                 "%3}], [%4];" ::"r"(lf_smem_addr(dst)),
                 "l"(m), "r"(x), "r"(y), "r"(lf_smem_addr(full))
                 : "memory");
}

/* What this thread has written to shared memory by ordinary stores or cp.async (after its wait) is
 * seen by the tensor cores and the copy engine after this and a barrier. */
LF_DEV void lf_proxy_fence(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The registers of each thread of a warpgroup from here on. The sum over a block must stay within
 * the sum at its start. */
#define lf_regs_more(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n))
#define lf_regs_less(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n))

/* Call it before the first product of a warpgroup, and again after other code has touched the
 * sums. */
LF_DEV void lf_wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/* Ends a group of products. wait(n) returns when at most n groups are not finished. */
LF_DEV void lf_wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
#define lf_wgmma_wait(n) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory")
/* Keeps the compiler from using sums before the wait. It stands right after the wait, and right
 * before the fence. */
#define LF_WGMMA_HOLD(d, n)                                                                        \
    LF_UNROLL for (int hold = 0; hold < (n); hold++) asm volatile("" : "+f"((d)[hold])::"memory")

#define LF_WG_D4(i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define LF_WG_D8(i)  LF_WG_D4(i), LF_WG_D4(i + 4)
#define LF_WG_D32(i) LF_WG_D8(i), LF_WG_D8(i + 8), LF_WG_D8(i + 16), LF_WG_D8(i + 24)
#define LF_WG_D64(i) LF_WG_D32(i), LF_WG_D32(i + 32)
#define LF_WG_D96(i) LF_WG_D64(i), LF_WG_D32(i + 64)
#define LF_WG_TEN(t)                                                                               \
    ", %" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t       \
    "8, %" #t "9"
#define LF_WG_R8  "%0, %1, %2, %3, %4, %5, %6, %7"
#define LF_WG_R32 LF_WG_R8 ", %8, %9" LF_WG_TEN(1) LF_WG_TEN(2) ", %30, %31"
#define LF_WG_R64                                                                                  \
    LF_WG_R8 ", %8, %9" LF_WG_TEN(1) LF_WG_TEN(2) LF_WG_TEN(3) LF_WG_TEN(4)                        \
        LF_WG_TEN(5) ", %60, %61, %62, %63"
#define LF_WG_R96                                                                                  \
    LF_WG_R8 ", %8, %9" LF_WG_TEN(1) LF_WG_TEN(2) LF_WG_TEN(3) LF_WG_TEN(4) LF_WG_TEN(5)           \
        LF_WG_TEN(6) LF_WG_TEN(7) LF_WG_TEN(8) ", %90, %91, %92, %93, %94, %95"

/* Arguments: shape and types; the registers of d; the numbers of the operands after them; which
 * operands have lanes along the row; the sums. */
#define LF_WG_ASM(shape, regs, a_at, b_at, add_at, trans, ...)                                     \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add_at ", 0;\n"                               \
                 "wgmma.mma_async.sync.aligned." shape " {" regs "}, " a_at ", " b_at              \
                 ", p, 1, 1, " trans ";\n}"                                                        \
                 : __VA_ARGS__                                                                     \
                 : "l"(a), "l"(b), "r"((int)add))
#define LF_WG_ASM_LANES(shape, regs, a_at, b_at, add_at, ...)                                      \
    do {                                                                                           \
        if (A_LANES && B_LANES)                                                                    \
            LF_WG_ASM(shape, regs, a_at, b_at, add_at, "1, 1", __VA_ARGS__);                       \
        else if (A_LANES)                                                                          \
            LF_WG_ASM(shape, regs, a_at, b_at, add_at, "1, 0", __VA_ARGS__);                       \
        else if (B_LANES)                                                                          \
            LF_WG_ASM(shape, regs, a_at, b_at, add_at, "0, 1", __VA_ARGS__);                       \
        else                                                                                       \
            LF_WG_ASM(shape, regs, a_at, b_at, add_at, "0, 0", __VA_ARGS__);                       \
    } while (0)

/* d[64 x N] = a[64 x 16] b[16 x N] (+ d where `add`) by a warpgroup, with f32 sums. Descriptors
 * give the operands in shared memory. A_LANES, B_LANES: the operand has lanes along the row, not k.
 * For thread t, with w = t / 32 % 4, g = t % 32 / 4 and q = t % 4:
 *   d[i] is the element (16 w + g + 8 (i / 2 % 2), 8 (i / 4) + 2 q + i % 2)
 * The product is asynchronous: neither d nor the operands may be touched before the wait. */
#define LF_WGMMA(N, regs, a_at, b_at, add_at, ...)                                                 \
    LF_DEV void lf_wgmma_##N(float *d, uint64_t a, uint64_t b, bool add, const bool A_LANES,       \
                             const bool B_LANES, const int TYPE)                                   \
    {                                                                                              \
        if (TYPE == LF_BF16)                                                                       \
            LF_WG_ASM_LANES("m64n" #N "k16.f32.bf16.bf16", regs, a_at, b_at, add_at, __VA_ARGS__); \
        else                                                                                       \
            LF_WG_ASM_LANES("m64n" #N "k16.f32.f16.f16", regs, a_at, b_at, add_at, __VA_ARGS__);   \
    }
LF_WGMMA(16, LF_WG_R8, "%8", "%9", "%10", LF_WG_D8(0))
LF_WGMMA(64, LF_WG_R32, "%32", "%33", "%34", LF_WG_D32(0))
LF_WGMMA(192, LF_WG_R96, "%96", "%97", "%98", LF_WG_D96(0))

#define LF_WG_ASM_REG(shape, regs, a_at, b_at, add_at, ...)                                        \
    do {                                                                                           \
        if (B_LANES)                                                                               \
            LF_WG_ASM_A(shape, regs, a_at, b_at, add_at, "1", __VA_ARGS__);                        \
        else                                                                                       \
            LF_WG_ASM_A(shape, regs, a_at, b_at, add_at, "0", __VA_ARGS__);                        \
    } while (0)
#define LF_WG_ASM_A(shape, regs, a_at, b_at, add_at, trans, ...)                                   \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add_at ", 0;\n"                               \
                 "wgmma.mma_async.sync.aligned." shape " {" regs "}, {" a_at "}, " b_at            \
                 ", p, 1, 1, " trans ";\n}"                                                        \
                 : __VA_ARGS__                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add))

/* The same with a in registers: of each warp's 16 rows, as the left operand of dev.h's products has
 * them. */
#define LF_WGMMA_REG(N, regs, a_at, b_at, add_at, ...)                                             \
    LF_DEV void lf_wgmma_reg_##N(float *d, const uint32_t a[4], uint64_t b, bool add,              \
                                 const bool B_LANES, const int TYPE)                               \
    {                                                                                              \
        if (TYPE == LF_BF16)                                                                       \
            LF_WG_ASM_REG("m64n" #N "k16.f32.bf16.bf16", regs, a_at, b_at, add_at, __VA_ARGS__);   \
        else                                                                                       \
            LF_WG_ASM_REG("m64n" #N "k16.f32.f16.f16", regs, a_at, b_at, add_at, __VA_ARGS__);     \
    }
LF_WGMMA_REG(64, LF_WG_R32, "%32, %33, %34, %35", "%36", "%37", LF_WG_D32(0))
LF_WGMMA_REG(128, LF_WG_R64, "%64, %65, %66, %67", "%68", "%69", LF_WG_D64(0))
#endif

/* Threads of a warpgroup. */
enum { LF_WG = 128 };

#endif
