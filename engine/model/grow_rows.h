/* SPDX-License-Identifier: Apache-2.0
 *
 * Grows the vocabulary of a checkpoint. Rows are added to embed.weight [V, C], head.weight [V, C]
 * and head.bias [V]; every other tensor is copied. The new checkpoint has weights only, because the
 * step count and the schedule that belong to the moments of the optimizer do not fit the new rows.
 * So training begins from the grown checkpoint with init_from. A tied head has no tensor of its own
 * and stays tied. Tensors stream; memory is a few rows and a block for each thread.
 *
 * Rows [0, used) belong to the old tokens and are copied bit for bit. `init` says how rows
 * [used, used + n_new) are made:
 *     subtokens   the mean of the rows of the old tokens that the new token is made of; of all old
 *                 tokens where it is made of none
 *     mean        the mean of the rows of all old tokens
 *     gaussian    N(0, std), each tensor from its own stream of `seed`; a bias takes the mean
 *     last        the row of the last old token
 * Rows [used + n_new, rows) are padding, which no token uses. Rows that were padding before keep
 * their values; others are the mean of the rows of all old tokens. Means are summed in f64 in the
 * order of the rows.
 */
#ifndef LF_MODEL_GROW_ROWS_H
#define LF_MODEL_GROW_ROWS_H

#include "engine/model/config.h"
#include "engine/store/ckpt.h"

enum lf_rows_init { LF_ROWS_SUBTOKENS, LF_ROWS_MEAN, LF_ROWS_GAUSSIAN, LF_ROWS_LAST };

typedef struct lf_rows_plan {
    int64_t used;               /* rows of old tokens */
    int64_t n_new;              /* rows of new tokens */
    int64_t rows;               /* of the grown tensors */
    const uint32_t *const *old; /* [n_new] old ids, each below used */
    const size_t *n_old;        /* [n_new] */
    enum lf_rows_init init;
    double std;
    uint64_t seed;
} lf_rows_plan;

/* Returns the smallest multiple of pad_to (1: no padding) that holds used + n_new rows; never below
 * rows_before. */
int64_t lf_rows_padded(int64_t used, int64_t n_new, int64_t rows_before, int64_t pad_to);

/* Reads `from` and writes the checkpoint `dir` with the step of `from`. `grown` is borrowed and
 * becomes "grown" of its state. LF_EINVAL: the rows of the checkpoint do not fit the plan; the
 * message names the tensor. */
int lf_rows_grow(const char *dir, const lf_ckpt *from, const lf_rows_plan *p, json_t *grown,
                 int threads, lf_ckpt_result *out, lf_err *err);

#endif
