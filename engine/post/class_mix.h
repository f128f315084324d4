/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures that are mixed with others and erased in part, on their normalised pixels:
 *
 *     erase    a box of 2 % to 33 % of the area, of a ratio of sides from 0.3 to 3.3, becomes noise
 *              of a standard normal for each number (Zhong et al. 2017, arXiv:1708.04896)
 *     mixup    x_a = l x_a + (1 - l) x_b, x_b = l x_b + (1 - l) x_a, l of Beta(mixup, mixup)
 *              (Zhang et al. 2017, arXiv:1710.09412)
 *     cutmix   a box of the share 1 - l of the area, cut off at the border, is exchanged, l of
 *              Beta(cutmix, cutmix); l then is the share that stays (Yun et al. 2019,
 *              arXiv:1905.04899). With both one of them is taken, each half of the time
 *
 * Samples 2 i and 2 i + 1 of the order are mixed with each other, and their labels likewise, so
 * that neither micro-batches nor ranks change what is mixed. Decisions are draws
 * (engine/media/augment.h) of the sample, and of the pair.
 */
#ifndef LF_POST_CLASS_MIX_H
#define LF_POST_CLASS_MIX_H

#include "engine/media/augment.h"
#include "engine/media/patch.h"

#define LF_SITE_ERASE 0x4552532Eu
#define LF_SITE_BLEND 0x4D49582Eu

/* The rows of one picture: h w patches in the order of p, as floats (patch.h). */
struct lf_class_view {
    float *rows;
    int32_t h, w; /* patches */
    const lf_patches *p;
};

/* Erases a box; none where ten of them did not fit. */
void lf_class_erase(const struct lf_class_view *v, lf_draws *d);

struct lf_class_mix {
    double keep;          /* l */
    bool cut;             /* the box is exchanged */
    struct lf_cutout box; /* pixels */
};
/* mixup, cutmix: their alphas, 0: it is not used; one of them is. of: pixels. */
struct lf_class_mix lf_class_mix_of(lf_draws *d, double mixup, double cutmix, lf_size of);
/* Mixes two pictures of one size. */
void lf_class_mix_apply(const struct lf_class_mix *m, const struct lf_class_view *a,
                        const struct lf_class_view *b);
/* The same of what they are, n shares of classes each. */
void lf_class_mix_labels(const struct lf_class_mix *m, double *a, double *b, int64_t n);

#endif
