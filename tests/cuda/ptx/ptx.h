/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the PTX that nvcc makes of a .cu file, on a CPU, for tests: what the device compiler
 * understood, in place of what the C compiler did (emu/). Meanings are those of the PTX ISA manual,
 * 9.0, whose sections the comments name; emu/ was not consulted, so that the two are two readings.
 *
 * A block runs warp by warp up to barriers; a warp runs 32 lanes at once and its parts apart where
 * it diverges, the part that is furthest behind first. What ends the process, with the file, the
 * line, the instruction, the block and the thread: an instruction or a form of one that is not
 * known; an address that is no multiple of the access, outside shared or local memory or the
 * arguments, or in no live allocation; a barrier, shuffle or matrix instruction that lanes miss
 * that it asks for; a register that nobody wrote deciding a branch, an address or a stored value;
 * copies that nobody waited for. Shared and local memory start as NaN. Asynchronous copies land
 * when they are waited for; until then their destination is NaN. The copy engine's tiles land when
 * nothing else can run; warpgroups' products happen in the wait for them, after every other warp
 * had its turn. A wait that nothing ends, warps that do not start the same products and sums that
 * are read early end the process too.
 *
 * Not modelled: the memory model between blocks, fences between proxies, other swizzles than 128
 * bytes, timing, ptxas and what it may get wrong, sums inside tensor cores (here: in f64, rounded
 * once), approximations (here: truncated to f32, so within what the manual allows and not what a C
 * library gives).
 */
#ifndef LF_KERNELS_CUDA_PTX_PTX_H
#define LF_KERNELS_CUDA_PTX_PTX_H

#include <stddef.h>

#include "tests/cuda/emu/emu.h"

/* Where LF_EMU_PTX names a folder: runs entry `name` of its FILE.ptx in place of the C function.
 * false: it is not set.
 */
bool lf_ptx_launch(const char *file, const char *name, size_t bytes, const void *args,
                   struct lf_emu_uint3 grid, struct lf_emu_uint3 block, size_t smem);

struct lf_ptx_kernel;

/* Entry `name` of a file of PTX, decoded at the first call. Never NULL. bytes: of the argument
 * struct, which has to be what the device compiler thinks. */
struct lf_ptx_kernel *lf_ptx_kernel(const char *file, const char *name, size_t bytes);

/* Runs a grid, blocks in ascending order. order: of warps between barriers, as LF_EMU_ORDER. */
void lf_ptx_run(struct lf_ptx_kernel *k, const void *args, struct lf_emu_uint3 grid,
                struct lf_emu_uint3 block, size_t smem, int order);

/* Given by the driver (emu/driver.c): the live allocation around p; false: none. */
bool lf_emu_block_around(const void *p, const char **from, const char **to);
/* What a tensor map says (emu/tma.c): two dimensions, the one along memory first; false: the driver
 * did not make it. */
struct ptx_map {
    const char *base;
    uint64_t dim[2], stride; /* elements; bytes from row to row */
    uint32_t box[2], size;   /* elements; bytes of one */
    bool swizzle128;
};
bool lf_emu_tensor_map(const void *map, struct ptx_map *out);

/* Frees all modules. Lane-instructions since the start. */
void lf_ptx_close(void);
uint64_t lf_ptx_count(void);

#endif
