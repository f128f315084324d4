/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of an export as 8-bit floats with a scale for each block (engine/store/f8_blocks.h).
 * Which scale a block goes out with is found in one pass over its matrix, the codes are written in
 * another, as a file has scales before codes. Both are of several threads, and the bytes do not
 * depend on how many. Memory is that of the blocks of the matrices of one file, and a few MiB for
 * each thread.
 */
#ifndef LF_CONVERT_REQUANT_H
#define LF_CONVERT_REQUANT_H

#include "engine/convert/move.h"
#include "engine/store/ckpt.h"
#include "engine/store/f8_blocks.h"
#include "engine/store/safetensors.h"

/* One outside matrix. */
struct lf_requant {
    struct lf_f8_grid grid;
    enum lf_st_dtype type; /* of its scales */
    const lf_ckpt *ckpt;
    const lf_ckpt_entry *scales, *codes; /* those it had; NULL: none, codes that follow */
    struct lf_f8_block *blocks;          /* owned; NULL: nothing has been found out */
    int written;                         /* of codes and scales */
};
/* How to read and write. */
struct lf_requant_job {
    struct lf_move *values; /* of the matrix, as LF_ST_F32 */
    int64_t step;           /* elements that a thread reads at once, if a row has no more */
    int threads;
    lf_st_writer *to;
    /* Called between blocks, with the bytes written since the last call; not 0 ends the work. */
    int (*between)(void *arg, int64_t bytes, lf_err *err);
    void *arg;
};

/* Each writes one tensor of the file. Both find out about the blocks where that has not been done,
 * and forget it when both tensors are written. */
int lf_requant_scales(struct lf_requant *q, const struct lf_requant_job *job, lf_err *err);
int lf_requant_codes(struct lf_requant *q, const struct lf_requant_job *job, lf_err *err);
void lf_requant_fini(struct lf_requant *q);

#endif
