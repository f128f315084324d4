/* SPDX-License-Identifier: Apache-2.0
 *
 * C twins of dev_hopper.h, as unkind as the hardware may be. What the copy engine brings is NaN
 * from the moment it is asked for and lands when nothing else can run (LF_EMU_ORDER=1: at once;
 * more: sometimes). Tensor cores read shared memory when their products are waited for, after every
 * other thread had its turn; until then the sums are NaN. So a stage given back too early, a
 * missing or wrong wait, bytes not announced show as NaN, or end the process with a message: a
 * phase that never ends, more arrivals than expected, a barrier overwritten or used before its
 * initialisation is fenced, lanes or warps of a warpgroup that do not agree on a product, sums
 * touched without a fence, copies or products that nobody waited for. Shared memory starts 640
 * bytes into its window, so that who wants 1024 must align. Not modelled: rounding inside tensor
 * cores, other layouts than the 128-byte swizzle, the order of ordinary stores and the copy
 * engine's or tensor cores' reads (fence.proxy.async).
 */
#ifndef LF_KERNELS_CUDA_EMU_HOPPER_H
#define LF_KERNELS_CUDA_EMU_HOPPER_H

#include "kernels/cuda/tensor_map.h"
#include "tests/cuda/emu/emu.h"

uint32_t lf_smem_addr(const void *p);
void lf_mbar_init(uint64_t *b, unsigned arrivals);
void lf_mbar_init_fence(void);
void lf_mbar_arrive(uint64_t *b);
void lf_mbar_arrive_expect(uint64_t *b, unsigned bytes);
void lf_mbar_wait(uint64_t *b, unsigned parity);
void lf_tma_prefetch_map(const struct lf_cu_tensor_map *m);
void lf_tma_2d(void *dst, const struct lf_cu_tensor_map *m, int x, int y, uint64_t *full);

#define lf_proxy_fence()    ((void)0)
#define lf_regs_more(n)     ((void)0)
#define lf_regs_less(n)     ((void)0)
#define LF_WGMMA_HOLD(d, n) ((void)(d))
void lf_wgmma_fence(void);
void lf_wgmma_commit(void);
void lf_wgmma_wait(int n);
/* What lanes and warps of a warpgroup agree on. */
struct lf_emu_wg_form {
    uint64_t a, b;
    bool a_reg, add, a_lanes, b_lanes;
    int type, n;
};
/* a: the lane's registers, or NULL. */
void lf_emu_wgmma(float *d, const uint32_t *a, const struct lf_emu_wg_form *form);
#define LF_EMU_WGMMA(N)                                                                            \
    LF_DEV void lf_wgmma_##N(float *d, uint64_t a, uint64_t b, bool add, bool a_lanes,             \
                             bool b_lanes, int type)                                               \
    {                                                                                              \
        const struct lf_emu_wg_form form = {a, b, false, add, a_lanes, b_lanes, type, N};          \
        lf_emu_wgmma(d, NULL, &form);                                                              \
    }
#define LF_EMU_WGMMA_REG(N)                                                                        \
    LF_DEV void lf_wgmma_reg_##N(float *d, const uint32_t a[4], uint64_t b, bool add,              \
                                 bool b_lanes, int type)                                           \
    {                                                                                              \
        const struct lf_emu_wg_form form = {0, b, true, add, false, b_lanes, type, N};             \
        lf_emu_wgmma(d, a, &form);                                                                 \
    }
LF_EMU_WGMMA(16)
LF_EMU_WGMMA(64)
LF_EMU_WGMMA(192)
LF_EMU_WGMMA_REG(64)
LF_EMU_WGMMA_REG(128)

/* ---- between fiber.c, tma.c and wgmma.c ---- */

_Noreturn void lf_emu_fail(const char *what);
/* The running thread waits until ready(what). */
void lf_emu_wait_until(bool (*ready)(const void *what), const void *what);
/* The lanes of a warp wait for each other; who else can run runs before they go on. */
void lf_emu_all_others(void);
int lf_emu_order(void);
/* A number below n, from LF_EMU_ORDER. */
unsigned lf_emu_any(unsigned n);

/* A block starts; the copy engine does one of its copies (false: it has none); a block has
 * ended. */
void lf_emu_tma_start(void);
bool lf_emu_tma_land(void);
void lf_emu_tma_end(void);
void lf_emu_wgmma_start(void);
void lf_emu_wgmma_end(unsigned threads);
/* What stands at an address of shared memory. */
const unsigned char *lf_emu_smem_at(uint32_t addr, unsigned bytes);

#endif
