/* SPDX-License-Identifier: Apache-2.0
 *
 * MoCo v3 (Chen, Xie, He 2021, arXiv:2104.02057): an encoder of pictures (vision.h) and heads that
 * make what it gives of two views of a picture alike. [model] describes the encoder alone; the
 * heads and a second encoder, whose weights are a moving average of those of the first, end with
 * the training. Logical tensors beside vision.*, for an encoder of width C:
 *
 *     moco.projector.{0,1,2}.weight [H, C], [H, H], [D, H]
 *     moco.predictor.{0,1}.weight [H, D], [D, H]
 *     moco.{projector.{0,1},predictor.0}.norm.{weight,bias} [H, 1]
 *     momentum.vision.*, momentum.moco.projector.*     as without momentum., frozen
 *
 * Of a picture's row h, that of the class token or, without one, the mean of its patches:
 *
 *     z = projector h,  q = predictor z             with momentum.*: k = projector h'
 *
 * where a head is linear layers without bias, each followed by batch normalisation and, but for the
 * last, by its weight and bias and ReLU; the last has none of these three. The statistics of a view
 * are of all pictures of a step, on all ranks, so the heads are computed by the host once the rows
 * of all of them are there (engine/post/moco_heads.h), and the graph has the products of their
 * weights' gradients alone. Inputs of the graph beside those of the encoder and classes.read of
 * classes.h, with P pictures at most:
 *
 *     moco.x.L f32 [P, K]          what linear layer L of 1 ... 4 reads (that of 0 is h)
 *     moco.one f32 [1, 1]          1
 *
 * Outputs: "features" and "keys" f32 [P, C], h and h'. In training the inputs of gradients are
 * moco.dz.L f32 [P, N] of the outputs of linear layer L of 0 ... 4, and moco.dnorm.L.{weight,bias}
 * f32 [1, H], the gradients of the micro-batch by the weights of norms, of L in 0, 1, 3.
 */
#ifndef LF_MODEL_MOCO_H
#define LF_MODEL_MOCO_H

#include "engine/model/classes.h"

enum { LF_MOCO_LINEARS = 5, LF_MOCO_PROJECTOR = 3 }; /* of both heads; those of the first */

struct lf_moco_sizes {
    int64_t width;       /* C */
    int64_t hidden, dim; /* H, D */
};
/* Columns of what linear layer L reads, and of what it gives. */
int64_t lf_moco_in(const struct lf_moco_sizes *s, int l);
int64_t lf_moco_out(const struct lf_moco_sizes *s, int l);
/* Is it followed by weight, bias and ReLU? */
bool lf_moco_bends(int l);
/* The name of the weight of linear layer L; with norm "weight" or "bias" that of its norm. */
const char *lf_moco_name(char buf[48], int l, const char *norm);
#define LF_MOCO_AVERAGE "momentum." /* before the name of a tensor: that of its average */

typedef struct lf_moco lf_moco;
/* The second encoder of d; it must outlive every plan with its graphs. LF_EINVAL: d is no encoder
 * of pictures alone. */
lf_moco *lf_moco_create(const lf_decoder *d, int64_t hidden, int64_t dim, lf_err *err);
void lf_moco_destroy(lf_moco *m);
const struct lf_moco_sizes *lf_moco_sizes_of(const lf_moco *m);
/* The description by which lf_classes_sight fills inputs of the graph. */
const lf_model_config *lf_moco_reads(const lf_moco *m);
/* Declares what is beside the encoder. */
int lf_moco_declare(const lf_moco *m, lf_pstore *ps, lf_err *err);
/* Every average a of a tensor w becomes m a + (1 - m) w; by m = 0 it is w. The averages have
 * masters (lf_plan_opts.keep_master), and no rank keeps parts of them. */
int lf_moco_move(lf_pstore *ps, double m, lf_err *err);
/* pictures are r's, whose bounds lf_classes_bounds makes of lf_moco_reads. */
lf_graph *lf_moco_graph(const lf_moco *m, lf_pstore *ps, const char *name,
                        const struct lf_classes_rows *r, bool train, lf_err *err);

#endif
