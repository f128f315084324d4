/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices as 8-bit floats (e4m3, base/f8.h) with a scale for each block.
 *
 * A tensor is [R, C], or matrices behind each other [E, R, C]. A matrix is cut into blocks of rows
 * x cols, shorter at its ends. The scales are [ceil(R / rows), ceil(C / cols)], with E before them
 * as the tensor has it. Value = code * scale of its block in f32, rounded to bf16 once.
 *
 * Back. A block goes out with the scale that it had if each of its values is, bit for bit, what
 * some code has with this scale; then nothing is lost, and a block that nothing has changed has the
 * codes that it came from: with a scale for which lf_f8_scale_is_plain holds, no two codes have the
 * same value. Any other block gets a new scale (the rule of transformers 5.23, which follows
 * DeepSeek-AI 2024, 3.3):
 *
 *     by = 448 * (1 / max |v|)     scale = 1 / by     code = e4m3(v * by)
 *
 * in f32, of the finite values; 1 and 1 where all are 0; `by` is 2^120 at most. Powers of two are
 * rounded up; they and bf16 have by = 1 / the scale that is stored. e4m3 saturates; what is not
 * finite becomes NaN.
 */
#ifndef LF_STORE_F8_BLOCKS_H
#define LF_STORE_F8_BLOCKS_H

#include "engine/store/tensors.h"

#define LF_F8_MAX 448.0f

struct lf_f8_grid {
    int64_t matrices, height, width; /* of a matrix */
    int64_t rows, cols;              /* of a block */
    int64_t down, across;            /* blocks of a matrix */
};

/* Sets out to that of a tensor. false: it is no matrix, or holds nothing. */
bool lf_f8_grid_of(struct lf_f8_grid *out, int ndim, const int64_t *shape, int64_t rows,
                   int64_t cols);
/* The shape of its scales, and their number. */
int64_t lf_f8_scales_shape(const struct lf_f8_grid *g, int ndim, int64_t *shape);
/* Rows of all matrices from `row` on that have the same blocks, before `end`; the first block. */
int64_t lf_f8_band(const struct lf_f8_grid *g, int64_t row, int64_t end, int64_t *block);

/* F32, BF16, F8_E8M0, U8 (of the bits of F8_E8M0)? */
bool lf_f8_is_scale(enum lf_st_dtype t);
/* To f32, and back, rounded as above. */
float lf_f8_scale_of(enum lf_st_dtype t, const void *src, int64_t i);
void lf_f8_scale_put(enum lf_st_dtype t, void *dst, int64_t i, float scale);
/* Has each code a value of its own with this scale? It is enough that no value leaves the normal
 * numbers of bf16. */
bool lf_f8_scale_is_plain(float scale);
/* What each code is with this scale, as bf16. NaN keeps its sign and nothing else. */
void lf_f8_values(uint16_t out[256], float scale);

/* A block on its way out. */
struct lf_f8_block {
    float scale;  /* of type as stored */
    float by;     /* what its values are multiplied by */
    float most;   /* the largest finite |v| so far */
    bool changed; /* some value is no code's with the old scale, or there is no old one */
};

/* Looks at n values of a block. value: of its old scale; NULL: that is plain, or there is none and
 * the block counts as changed. codes: those it had, for a scale that is not plain, with value;
 * NULL: those that follow from `by`, 1 / scale. */
void lf_f8_look(struct lf_f8_block *b, const uint16_t *value, const uint8_t *codes, const float *v,
                int64_t n);
/* When all have been seen: a changed block gets a new scale of type t. */
void lf_f8_settle(struct lf_f8_block *b, enum lf_st_dtype t);
/* Writes the codes of n values. codes: as above; those of a block that has not changed. */
void lf_f8_encode(const struct lf_f8_block *b, uint8_t *dst, const uint8_t *codes, const float *v,
                  int64_t n);

#endif
