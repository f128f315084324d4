/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the matrix product (one instruction set): tile sizes, the K tree, packing, micro kernels,
 * epilogue.
 *
 * C = op(A) op(B) is cut into tiles of LF_MR rows by LF_NR columns. K counts in units of 32 bits:
 * one element, or a pair of bf16 (k, k+1) where the processor multiplies pairs (LF_BF16_DOT). Other
 * processors turn bf16 into f32 while packing.
 *
 * The K tree, a function of (K, type, instruction set) alone: units are cut from 0 into chunks of
 * lf_k_chunk(units); in a chunk each output element is one ascending chain of multiply-adds from 0
 * in one register; chunk sums are added ascending. Rows, columns, threads and tile shapes never
 * enter it, so an element's bits do not depend on M, on its row or on the thread count.
 *
 * Packed A: per chunk, per panel of LF_MR rows (the last may be narrower, w rows): [units][w].
 * Packed B: per chunk, per panel of LF_NR columns: [units][LF_NR]; columns beyond N repeat column
 * N-1 or are 0 and are never stored. Packed B kept by the caller (gemm_pack) has the same layout
 * over all chunks; without LF_BF16_DOT its bf16 form holds bf16 elements [k][LF_NR].
 */
#ifndef LF_CPU_GEMM_INT_H
#define LF_CPU_GEMM_INT_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

#define LF_NR (2 * LF_VL)
#if LF_CPU_ISA >= 2
#define LF_MR          14
#define LF_K_CHUNK_MAX 1024
#elif LF_CPU_ISA == 1
#define LF_MR          6
#define LF_K_CHUNK_MAX 384
#else
#define LF_MR          4
#define LF_K_CHUNK_MAX 256
#endif
#define LF_BF16_DOT (LF_CPU_ISA == 3)

/* Units per chunk: equal chunks, a multiple of 16. */
LF_INLINE int64_t lf_k_chunk(int64_t units)
{
    int64_t chunks = (units + LF_K_CHUNK_MAX - 1) / LF_K_CHUNK_MAX;
    return chunks ? ((units + chunks - 1) / chunks + 15) / 16 * 16 : 16;
}

/* What a packed unit is made of. */
enum lf_unit { LF_UNIT_F32 = 0, LF_UNIT_BF16_AS_F32, LF_UNIT_PAIR };

LF_INLINE enum lf_unit lf_unit_of(uint8_t ab_type)
{
    return ab_type == LF_F32 ? LF_UNIT_F32 : LF_BF16_DOT ? LF_UNIT_PAIR : LF_UNIT_BF16_AS_F32;
}
LF_INLINE int64_t lf_units(int64_t k, enum lf_unit u)
{
    return u == LF_UNIT_PAIR ? (k + 1) / 2 : k;
}

/* One operand as lanes (rows of A, columns of B) by k: element (l, k) at p[l * ld + k] (k_fast) or
 * p[k * ld + l]. */
struct lf_operand {
    const void *p;
    int64_t ld;
    bool k_fast;
    enum lf_unit unit;
};

/* Pack lanes [l0, l0 + lanes) and elements [k0, k0 + kn) into panels of `width` lanes, each panel
 * units * width words long (the last narrower when `narrow`: then its words are [units][remaining
 * lanes], else padded to width). */
void LF_SYM(pack)(uint32_t *dst, const struct lf_operand *o, int64_t l0, int64_t lanes, int width,
                  bool narrow, int64_t k0, int64_t kn);

/* Fetch lanes [l0, l0 + lanes), elements [k0, k0 + kn), from memory into L2. */
void LF_SYM(stream_in)(const struct lf_operand *o, int64_t l0, int64_t lanes, int64_t k0,
                       int64_t kn);

/* t[m][LF_NR] = packed a[units][m], m <= LF_STREAM_ROWS, times lanes [l0, l0 + lanes <= LF_NR) of a
 * k_fast operand: the bits of pack + micro. */
enum { LF_STREAM_ROWS = 4 };
void LF_SYM(stream_tile)(const struct lf_operand *o, int m, const uint32_t *a, int64_t l0,
                         int64_t lanes, int64_t k0, int64_t kn, float *t);

/* Micro kernel of m rows: c[m][LF_NR] (+)= a[units][m] b[units][LF_NR]. Unless NULL, one cache line
 * of `next` per unit is prefetched into L2. */
typedef void lf_micro(int64_t units, const uint32_t *a, const void *b, float *c, int64_t ldc,
                      bool add, const void *next);
extern lf_micro *const LF_SYM(micro_f32)[LF_MR + 1];
#if LF_BF16_DOT
extern lf_micro *const LF_SYM(micro_pair)[LF_MR + 1];
#else
/* b: bf16 elements, widened as they are read */
extern lf_micro *const LF_SYM(micro_wide)[LF_MR + 1];
#endif

/* Workspace that our own gemm needs for these sizes or any smaller m and k. */
size_t LF_SYM(gemm_work_most)(const struct lf_k_gemm *g, int threads);

/* Finish m rows, n columns of a tile t[m][LF_NR] whose top left is C(row, col): bias, pre, act,
 * residual, round, store. */
void LF_SYM(epilogue)(const struct lf_k_gemm *g, const float *t, int64_t row, int64_t col, int m,
                      int n);

#endif
