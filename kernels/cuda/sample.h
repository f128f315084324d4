/* SPDX-License-Identifier: Apache-2.0
 *
 * Between sample.c and sample.cu. A row is cut into chunks of columns, one block each. Sums are of
 * integers, so the cut does not change them. Five launches:
 *
 *     sample_max     per chunk: the largest logit and its lowest id
 *     sample_bins    per chunk: its mass; for rows with a cut, count and mass by bins of
 *                    x = (l - max) / temperature
 *     sample_cut     per row with a cut: the last bin that can hold a kept token, and the number of
 *                    tokens in the bins up to it
 *     sample_gather  per chunk of such a row: those tokens, in any order
 *     sample_pick    per row: the token; for rows with a cut by sorting the gathered tokens
 */
#ifndef LF_KERNELS_CUDA_SAMPLE_H
#define LF_KERNELS_CUDA_SAMPLE_H

#include "kernels/kernels.h"

enum {
    LF_CU_SAMPLE_THREADS = 512,
    LF_CU_SAMPLE_CHUNK = 4096, /* columns */
    LF_CU_SAMPLE_CHUNKS =
        /* chunks of a row, at most: one for each thread */
    LF_SAMPLE_MOST_TOKENS / LF_CU_SAMPLE_CHUNK,
    LF_CU_SAMPLE_BINS = 2048 /* equal bins over x = 0 ... LF_SAMPLE_FAR */
};

struct lf_cu_sample_part {
    double max; /* -inf: the row has no finite logit */
    uint64_t mass;
    int32_t arg;
};

/* The state of a row with a cut. */
struct lf_cu_sample_cut {
    uint64_t total; /* mass of the row */
    int32_t last;   /* the last bin */
    int32_t n;      /* tokens in bins 0 ... last */
    int32_t filled; /* number of these that are gathered */
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
