/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses over n pictures and their n texts, of which every picture is held against every text. With
 * cos_ij the cosine of the vectors of picture i and text j:
 *
 *     z_ij = e^s cos_ij + b
 *
 *     clip     L_i = 1/2 (log sum_j e^(z_ij) + log sum_j e^(z_ji)) - z_ii
 *              symmetric cross-entropy (Radford et al. 2021, arXiv:2103.00020, figure 3; b = 0)
 *     siglip   L_i = sum_j log(1 + e^(-y_ij z_ij)), y_ij = 1 where i = j, else -1
 *              (Zhai et al. 2023, arXiv:2303.15343, algorithm 1)
 *
 * The loss is the mean of all L_i. All arithmetic is f64, each number in one order whatever the
 * threads; the matrix z is held for a block of pictures at a time.
 */
#ifndef LF_POST_DUAL_LOSS_H
#define LF_POST_DUAL_LOSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

enum lf_dual_kind { LF_DUAL_CLIP = 0, LF_DUAL_SIGLIP };

struct lf_dual_loss {
    enum lf_dual_kind kind;
    int64_t width;
    size_t n;
    size_t group;               /* most pairs that are held against each other; 0: all */
    const double *image, *text; /* [n, width], none of length 0 */
    double scale, bias;         /* s, b */
    int threads;                /* below 2: one */
};
/* [n] each: L_i; whether text i is the best of picture i, and picture i that of text i. */
struct lf_dual_out {
    double *loss;
    bool *right[2];
    /* derivatives of the sum of all L_i by vectors, [n, width]; those by s and b as the shares of
     * pairs, [n], which add up to them. dimage NULL: none */
    double *dimage, *dtext, *dscale, *dbias;
};
/* LF_ENUMERIC: a vector has no length or is not finite. LF_ENOMEM. */
int lf_dual_loss(const struct lf_dual_loss *d, const struct lf_dual_out *out, lf_err *err);

#endif
