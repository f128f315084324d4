/* SPDX-License-Identifier: Apache-2.0
 *
 * Between sample.c and sample.cu. A row is cut into chunks of columns, a block each; integer sums
 * make the way it is cut invisible. Five launches:
 *
 *     sample_max     per chunk: largest logit and its lowest id
 *     sample_bins    per chunk: mass; of rows with a cut, count and mass by bins of x = (l - max) /
 *                    temperature
 *     sample_cut     per row with a cut: the last bin that can hold something kept, and how many
 *                    tokens are up to it
 *     sample_gather  per chunk of such a row: those tokens, in any order
 *     sample_pick    per row: the token; of rows with a cut by sorting what was gathered
 */
#ifndef LF_KERNELS_CUDA_SAMPLE_H
#define LF_KERNELS_CUDA_SAMPLE_H

#include "kernels/kernels.h"

enum {
    LF_CU_SAMPLE_THREADS = 512,
    LF_CU_SAMPLE_CHUNK = 4096, /* columns */
    LF_CU_SAMPLE_CHUNKS =
        LF_SAMPLE_MOST_TOKENS / LF_CU_SAMPLE_CHUNK, /* of a row, at most: one for each thread */
    LF_CU_SAMPLE_BINS = 2048                        /* equal ones over x = 0 ... LF_SAMPLE_FAR */
};

struct lf_cu_sample_part {
    double max; /* -inf: no finite logit */
    uint64_t mass;
    int32_t arg;
};

/* Of a row with a cut. */
struct lf_cu_sample_cut {
    uint64_t total; /* mass of the row */
    int32_t last;   /* bin */
    int32_t n;      /* tokens in bins 0 ... last */
    int32_t filled; /* of them gathered */
};

struct lf_cu_sample {
    struct lf_k_sample k;
    int32_t chunks;
    struct lf_cu_sample_part *part; /* [rows, chunks] */
    struct lf_cu_sample_cut *cut;   /* [rows] */
    uint64_t *bin_mass;             /* [rows, LF_CU_SAMPLE_BINS] */
    int32_t *bin_count;
    double *value; /* [rows, LF_SAMPLE_SORTED] logits gathered, and their tokens */
    int32_t *id;
};

#endif
