/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint whose vocabulary grows: rows are added to embed.weight [V, C], head.weight [V, C]
 * and head.bias [V]; every other tensor is copied. Weights only: moments of the optimizer are left
 * out (a step count and a schedule that do not fit the new rows would come with them), so training
 * begins from the grown checkpoint with init_from. A tied head has no tensor of its own and stays
 * tied. Tensors stream through; memory is some rows and a block for each thread.
 *
 * Rows: [0, used) are the old tokens' and are copied bit for bit; [used, used + n_new) are made as
 * `init` says:
 *     subtokens   mean of the rows of the old tokens that the new one is made of
 *     mean        mean of all old tokens' rows
 *     gaussian    N(0, std), each tensor from its own stream of `seed`; a bias takes the mean
 *     last        the last old token's row
 * and [used + n_new, rows) are padding, which no token names: rows that were padding before keep
 * their values, others are the mean of all old tokens' rows. Means are summed in f64 in the order
 * of the rows.
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

/* Smallest multiple of pad_to (1: none) that holds used + n_new rows; never below rows_before. */
int64_t lf_rows_padded(int64_t used, int64_t n_new, int64_t rows_before, int64_t pad_to);

/* Read from `from`, write the checkpoint `dir`. `grown`: borrowed, kept in its state as "grown".
 * The step is that of `from`. LF_EINVAL: the checkpoint's rows and the plan do not fit, named. */
int lf_rows_grow(const char *dir, const lf_ckpt *from, const lf_rows_plan *p, json_t *grown,
                 int threads, lf_ckpt_result *out, lf_err *err);

#endif
