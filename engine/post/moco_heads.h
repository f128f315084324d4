/* SPDX-License-Identifier: Apache-2.0
 *
 * The heads and the loss of MoCo v3 (engine/model/moco.h), for all pictures of a step at once, in
 * f64 by weights of f32. Of N pictures, one view a and the other b, with rows h_a, h_b of the
 * encoder and g_a, g_b of its average:
 *
 *     q = predictor(projector(h)),  k = projector'(g)         both divided by their lengths
 *     L = ctr(q_a, k_b) + ctr(q_b, k_a)
 *     ctr(q, k) = 2 T mean over i of -log softmax_j(q_i . k_j / T) at j = i
 *
 * Batch normalisation of N rows (Ioffe and Szegedy 2015): u = (z - mean z) / sqrt(var z + 1e-5)
 * with the variance over N, of each column; backwards, with means over the rows,
 *
 *     dz = (du - mean du - u mean (du u)) / sqrt(var z + 1e-5)
 *
 * Nothing flows into k. The slope of a loss that does not divide by N is computed, which the
 * objective divides.
 */
#ifndef LF_POST_MOCO_HEADS_H
#define LF_POST_MOCO_HEADS_H

#include "engine/model/moco.h"

/* The weights of linear layers, and of the norms behind them where there are some. */
struct lf_moco_weights {
    const float *linear[LF_MOCO_LINEARS]; /* [out, in] */
    const float *gain[LF_MOCO_LINEARS], *bias[LF_MOCO_LINEARS];
};

/* What the layers of one view had and have: arrays [N, columns]. */
struct lf_moco_rows {
    double *x[LF_MOCO_LINEARS]; /* what layer l reads; of layer 0 it is the caller's */
    double *u[LF_MOCO_LINEARS]; /* what its norm gives */
    double *y;                  /* what the last layer gives */
    double *dz[LF_MOCO_LINEARS], *dy[LF_MOCO_LINEARS]; /* slopes of what a layer and its norm give;
                                                          dy where it bends alone */
    double *spread[LF_MOCO_LINEARS];                   /* [columns] 1 / sqrt(var + 1e-5) */
};

typedef struct lf_moco_heads lf_moco_heads;
/* Room for n pictures, whose loss so many threads compute. */
lf_moco_heads *lf_moco_heads_create(const struct lf_moco_sizes *s, int64_t n, int threads,
                                    lf_err *err);
void lf_moco_heads_destroy(lf_moco_heads *h);

struct lf_moco_step {
    const double *h[2], *g[2];         /* [n, C] of both views, by the encoder and by its average */
    struct lf_moco_weights w, average; /* of average those of the projector alone */
    double temperature;
    double *loss; /* [2, n]: 2 T times the cross entropy of picture i, of q_a and of q_b */
    bool *right;  /* [2, n]: no other key is as near as its own */
    bool slopes;  /* computes dz and dy, of the sum of loss */
};
void lf_moco_heads_run(lf_moco_heads *h, const struct lf_moco_step *s);
/* What the last run had of a view. Borrowed. */
const struct lf_moco_rows *lf_moco_heads_rows(const lf_moco_heads *h, int view);

#endif
