/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix product on the device: what host and device agree on.
 *
 * The K order is a function of K and the type alone. K is cut from 0 into chunks of LF_MM_CHUNK. In
 * a chunk an element is one ascending chain from 0: m16n8k16 tensor-core steps for bf16 and f16,
 * single fused multiply-adds for f32. Chunk sums are added to 0 in ascending order. Every form
 * below keeps this order. So the bits of an element do not depend on M, N, its place, or the form
 * that computes it: a row of a training batch equals the row computed alone while decoding. Because
 * of chunks a decoding step can read the weights with many warps at once.
 *
 *     big    128 x 128 tiles, 256 threads         gemm_{bf16,f16}_{nt,nn,tn}, gemm_f32_big
 *     small  64 x 64 tiles                        gemm_{bf16,f16,f32}_small; with `partial`, one
 *                                                 chunk each (split), whose sums gemm_join adds
 *     rows   up to 16 rows by [N, K] weights      gemm_{bf16,f16}_rows: the warps divide the chunks
 *            of 16 columns
 *
 * The forms of gemm_wgmma.cu keep the same order with another instruction (m64nNk16 steps), which
 * gives the same bits.
 */
#ifndef LF_KERNELS_CUDA_GEMM_ARGS_H
#define LF_KERNELS_CUDA_GEMM_ARGS_H

#include "kernels/cuda/tensor_map.h"
#include "kernels/kernels.h"

enum {
    LF_MM_CHUNK = 512,
    LF_MM_BIG = 128,
    LF_MM_SMALL = 64,
    LF_MM_BK = 32, /* k of a pipeline stage, bf16 and f16 */
    LF_MM_STAGES = 4,
    LF_MM_BK_F32 = 16,
    LF_MM_ROWS = 16,      /* rows form: most rows */
    LF_MM_ROWS_COLS = 16, /* rows form: columns of a block */
    LF_MM_ROWS_BK = 64,   /* rows form: k of a stage */
    LF_MM_ROWS_STAGES = 4,
    LF_MM_ROWS_WARPS = 8, /* rows form: most warps */
    LF_MM_BIG_THREADS = 256,
    LF_MM_SMALL_THREADS = 128
};
/* Dynamic shared memory: the pipeline, then the tile of sums (whose rows are 8 floats apart in
 * banks). */
enum {
    LF_MM_PITCH_BIG = LF_MM_BIG + 8,
    LF_MM_PITCH_SMALL = LF_MM_SMALL + 8,
    LF_MM_SMEM_BIG = LF_MM_BIG * LF_MM_PITCH_BIG * 4,
    LF_MM_SMEM_SMALL = LF_MM_STAGES * 2 * LF_MM_SMALL * LF_MM_BK * 2,
    LF_MM_SMEM_F32_SMALL = LF_MM_SMALL * LF_MM_PITCH_SMALL * 4,
    LF_MM_SMEM_ROWS_WARP = LF_MM_ROWS_STAGES * (LF_MM_ROWS + LF_MM_ROWS_COLS) * LF_MM_ROWS_BK * 2,
    LF_MM_SMEM_ROWS_CHUNK = LF_MM_ROWS * LF_MM_ROWS_COLS * 4
};

struct lf_cu_gemm {
    struct lf_k_gemm g;
    float *partial;  /* [chunks][m][n], or NULL */
    const void *src; /* gemm_post: product + bias, of c_type; may be C */
    int64_t ldsrc;
    int32_t tiles_m, tiles_n;
    bool vec_a, vec_b; /* rows may be read 16 bytes at a time */
};

/* The forms of gemm_wgmma.cu. The copy engine brings tiles into a ring of stages in shared memory.
 * A stage is LF_WG_BK deep and has two barriers.
 *
 * big: tiles of LF_WG_M x LF_WG_N. Two warpgroups multiply 64 rows each, a third brings tiles. A
 * thread holds 96 sums of the chunk and 96 of the chunks before it. With addresses that fills 240
 * registers; 256 columns would need 256. There are as many blocks as the GPU has multiprocessors,
 * and they take tiles in turn. Each warp stores its sums through 32 columns of shared memory of its
 * own, while the next tile is on its way.
 *
 * rows: up to 16 or 64 rows by [N, K] weights. The weights are the 64 rows of the instruction. One
 * warpgroup.
 *
 * With `partial`, a block takes one chunk (split). */
enum {
    LF_WG_M = 128,
    LF_WG_N = 192,
    LF_WG_BK = 64,
    LF_WG_STAGES = 5,
    LF_WG_THREADS = 384,
    LF_WG_PIECE = 32, /* columns that are stored at once */
    LF_WG_PITCH = LF_WG_PIECE + 8,
    LF_WG_ROWS_N = 64, /* rows form: columns of a block */
    LF_WG_ROWS_THREADS = 160,
    LF_WG_ROWS_PITCH = 20
};
enum {
    LF_WG_ALIGN = 1024, /* alignment of a swizzled tile */
    LF_WG_STAGE_A = LF_WG_M * LF_WG_BK * 2,
    LF_WG_STAGE = LF_WG_STAGE_A + LF_WG_N * LF_WG_BK * 2,
    LF_WG_OUT_WARP = 16 * LF_WG_PITCH * 4,
    LF_WG_SMEM = LF_WG_ALIGN + LF_WG_STAGES * (LF_WG_STAGE + 16) + 8 * LF_WG_OUT_WARP,
    LF_WG_STAGE_W = LF_WG_ROWS_N * LF_WG_BK * 2
};
/* Stages of the rows form with room for x rows. They fill about half of a multiprocessor's shared
 * memory. */
#define LF_WG_ROWS_STAGES(x) ((x) > 16 ? 6 : 10)
#define LF_WG_ROWS_STAGE(x)  (LF_WG_STAGE_W + (x)*LF_WG_BK * 2)
#define LF_WG_ROWS_SMEM(x)   (LF_WG_ALIGN + LF_WG_ROWS_STAGES(x) * (LF_WG_ROWS_STAGE(x) + 16))

struct lf_cu_gemm_wg {
    struct lf_cu_gemm m;
    struct lf_cu_tensor_map a, b;
    int32_t items; /* tiles, times chunks with `partial` */
};

/* Grouped products (kernels.h). Blocks along x take tiles of 64 x 64. `offsets` tells the group of
 * a tile. */
struct lf_cu_grouped {
    struct lf_k_grouped_gemm g;
    int32_t tiles_n;
    bool vec_a, vec_b;
};

#endif
