/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the matrix product of one instruction set: tile sizes, the K tree, packing, micro kernels
 * and the epilogue.
 *
 * C = op(A) op(B) is cut into tiles of LF_MR rows by LF_NR columns. K counts in units of 32 bits. A
 * unit is one element, or a pair of bf16 (k, k+1) where the processor multiplies pairs
 * (LF_BF16_DOT). On other processors packing turns bf16 into f32.
 *
 * The K tree is a function of (K, type, instruction set) alone. Units are cut from 0 into chunks of
 * lf_k_chunk(units). In a chunk each output element is one ascending chain of multiply-adds from 0
 * in one register. Chunk sums are added in ascending order. Rows, columns, threads and tile shapes
 * do not enter the tree. So the bits of an element do not depend on M, on its row or on the thread
 * count.
 *
 * Packed A: per chunk and per panel of LF_MR rows [units][w]. w is LF_MR, or less in the last
 * panel. Packed B: per chunk and per panel of LF_NR columns [units][LF_NR]. Columns beyond N repeat
 * column N-1 or are 0; they are never stored to C. Packed B that the caller keeps (gemm_pack) has
 * the same layout over all chunks. Without LF_BF16_DOT its bf16 form holds bf16 elements
 * [k][LF_NR].
 */
#ifndef LF_CPU_GEMM_INT_H
#define LF_CPU_GEMM_INT_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

#define LF_NR (2 * LF_VL)
#if LF_AVX512 || LF_SVE
#define LF_MR          14
#define LF_K_CHUNK_MAX 1024
#elif LF_NEON
#define LF_MR          12
#define LF_K_CHUNK_MAX 512
#elif LF_AVX2
#define LF_MR          6
#define LF_K_CHUNK_MAX 384
#else
#define LF_MR          4
#define LF_K_CHUNK_MAX 256
#endif

/* Units per chunk. Chunks are equal and a multiple of 16. */
LF_INLINE int64_t lf_k_chunk(int64_t units)
{
    int64_t chunks = (units + LF_K_CHUNK_MAX - 1) / LF_K_CHUNK_MAX;
    return chunks ? ((units + chunks - 1) / chunks + 15) / 16 * 16 : 16;
}

/* The content of a packed unit. */
enum lf_unit { LF_UNIT_F32 = 0, LF_UNIT_BF16_AS_F32, LF_UNIT_PAIR };

LF_INLINE enum lf_unit lf_unit_of(uint8_t ab_type)
{
    return ab_type == LF_F32 ? LF_UNIT_F32 : LF_BF16_DOT ? LF_UNIT_PAIR : LF_UNIT_BF16_AS_F32;
}
LF_INLINE int64_t lf_units(int64_t k, enum lf_unit u)
{
    return u == LF_UNIT_PAIR ? (k + 1) / 2 : k;
}

/* One operand as lanes (rows of A, columns of B) by k. Element (l, k) is at p[l * ld + k] with
 * k_fast, else at p[k * ld + l]. */
struct lf_operand {
    const void *p;
    int64_t ld;
    bool k_fast;
    enum lf_unit unit;
};

/* Pack lanes [l0, l0 + lanes) and elements [k0, k0 + kn) into panels of `width` lanes. A panel has
 * units * width words. With `narrow` the last panel holds only the remaining lanes,
 * [units][remaining lanes]; otherwise it is padded to width. */
void LF_SYM(pack)(uint32_t *dst, const struct lf_operand *o, int64_t l0, int64_t lanes, int width,
                  bool narrow, int64_t k0, int64_t kn);

/* Fetch lanes [l0, l0 + lanes) and elements [k0, k0 + kn) from memory into L2. */
void LF_SYM(stream_in)(const struct lf_operand *o, int64_t l0, int64_t lanes, int64_t k0,
                       int64_t kn);

/* t[m][LF_NR] = packed a[units][m] times the lanes [l0, l0 + lanes) of a k_fast operand. m is at
 * most LF_STREAM_ROWS, lanes at most LF_NR. The bits are those of pack and micro. */
enum { LF_STREAM_ROWS = 4 };
void LF_SYM(stream_tile)(const struct lf_operand *o, int m, const uint32_t *a, int64_t l0,
                         int64_t lanes, int64_t k0, int64_t kn, float *t);

/* Micro kernel of m rows: c[m][LF_NR] (+)= a[units][m] b[units][LF_NR]. With next not NULL, one
 * cache line of `next` per unit is prefetched into L2. */
typedef void lf_micro(int64_t units, const uint32_t *a, const void *b, float *c, int64_t ldc,
                      bool add, const void *next);
extern lf_micro *const LF_SYM(micro_f32)[LF_MR + 1];
#if LF_BF16_DOT
extern lf_micro *const LF_SYM(micro_pair)[LF_MR + 1];
#else
/* b holds bf16 elements, which are widened as they are read. */
extern lf_micro *const LF_SYM(micro_wide)[LF_MR + 1];
#endif

/* Bytes of workspace that our own gemm needs for these sizes or any smaller m and k. */
size_t LF_SYM(gemm_work_most)(const struct lf_k_gemm *g, int threads);

/* Finish m rows and n columns of a tile t[m][LF_NR] whose top left element is C(row, col): bias,
 * pre, act, residual, round, store. */
void LF_SYM(epilogue)(const struct lf_k_gemm *g, const float *t, int64_t row, int64_t col, int m,
                      int n);

#endif
