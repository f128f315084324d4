/* SPDX-License-Identifier: Apache-2.0
 *
 * Masked autoencoding as an objective (He et al. 2021, arXiv:2111.06377). Of each picture a share
 * of the patches is hidden, another one whenever the picture is seen again, and restored from the
 * others (engine/model/mae.h). Of picture b with hidden patches H_b, p being what is restored of a
 * patch and t what is wanted, K numbers each:
 *
 *     loss_b = 1 / |H_b|  sum over i in H_b of  1 / K  |p_i - t_i|^2
 *
 * t are the normalised pixels of the patch; with norm_pix minus their mean, by the square root of
 * their variance (of K - 1) + 1e-6. The loss of a step is the mean over its pictures. Tiles of a
 * picture count as pictures.
 *
 * Which patches are hidden is a function of seed, global sample and place of the patch in it, so
 * neither ranks nor micro-batches nor resumes change it. A validation hides the same patches each
 * time.
 */
#ifndef LF_TRAIN_MAE_H
#define LF_TRAIN_MAE_H

#include "engine/train/objective.h"

#define LF_SITE_MAE 0x4D41452Eu /* Philox site; that of validation is the next number */

struct lf_mae_train_opts {
    double mask_ratio; /* 0 < it < 1: share of the patches of a picture that is hidden */
    bool norm_pix;
    uint64_t seed;
    int threads;
};
typedef struct lf_mae_train lf_mae_train;
lf_mae_train *lf_mae_train_create(const struct lf_mae_train_opts *o, lf_err *err);
const lf_objective *lf_mae_train_objective(const lf_mae_train *t);
void lf_mae_train_destroy(lf_mae_train *t);

/* The noise of n patches, from place `first` of the sample on, for lf_mae_hide. */
void lf_mae_noise(uint32_t *noise, int64_t n, uint64_t seed, bool valid, int64_t sample,
                  int64_t first);
/* norm_pix: normalises the k numbers of a patch in place. */
void lf_mae_norm_pix(float *patch, int64_t k);

/* Rows that were restored; arrays are borrowed. */
struct lf_mae_restored {
    int64_t n, k;
    const float *pixels, *target; /* [n, k] */
    const double *weight;         /* [n] 1 / |H_b| of the picture of each row */
    double *row;                  /* [n] room */
    int threads;
};
/* Returns the sum of loss_b. slope [n, k] (NULL: none) becomes scale times its gradient by
 * pixels. */
double lf_mae_loss(const struct lf_mae_restored *r, double scale, float *slope);

#endif
