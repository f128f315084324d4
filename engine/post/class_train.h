/* SPDX-License-Identifier: Apache-2.0
 *
 * Classes of pictures as an objective of the loop (engine/train/objective.h), for models of
 * engine/model/classes.h. The data are prompts with pictures and a label among their other columns
 * (label_data.h, kind one); the text is not read, and every picture of a document has its label. Of
 * picture b with the shares q_b of N classes and numbers z_b of the model, p = softmax(z):
 *
 *     q_b = (1 - e) [class of b] + e / N            e: label smoothing; then mixed (class_mix.h)
 *     L_b = - sum over k of q_bk log p_bk
 *
 * With two heads (read = both, DeiT) the second learns the class that a teacher says, t_b of
 * another column, mixed likewise: L_b = (L(z_b, q_b) + L(d_b, t_b)) / 2. A validation neither
 * smooths nor mixes, and is of (z + d) / 2. The loss of a step is the mean over its pictures; tiles
 * of a picture count as pictures.
 *
 * With [model] classes.norm (a linear probe) the constants of the norm are measured before the
 * first step, of all pictures that are trained on as they are, without changes; nothing of the
 * encoder is trained then (freeze = vision.*), so they hold to the end.
 *
 * With drop_path = D layer l of L, counted from 0, adds nothing in the share D l / (L - 1) of the
 * pictures, for attention and MLP each, and 1 / (1 - that) times as much in the others.
 *
 * Pictures that are trained on are changed by augment (engine/media/augment.h), then erased, then
 * mixed. With repeats = k (Hoffer et al. 2020, arXiv:1901.09335) each comes k times in a batch,
 * changed anew every time: a document counts as k samples, whose numbers the draws are of.
 */
#ifndef LF_POST_CLASS_TRAIN_H
#define LF_POST_CLASS_TRAIN_H

#include "engine/media/augment.h"
#include "engine/post/label_data.h"
#include "engine/train/objective.h"

#define LF_SITE_PATH 0x5041542Eu /* Philox site of stochastic depth */

struct lf_class_train_opts {
    const char *column;        /* "label" */
    const char *teacher;       /* a column with classes; NULL: there is none */
    struct lf_augment augment; /* its seed is set here, its fill by the loader */
    double smoothing;          /* e */
    double mixup, cutmix;      /* alphas, 0: not done */
    double erase;              /* share of the pictures */
    double drop_path;          /* of the last layer; stochastic depth, see below */
    int repeats;               /* each picture comes so many times in a batch; see loader.h */
    uint64_t seed;
    int threads;
};
typedef struct lf_class_train lf_class_train;
lf_class_train *lf_class_train_create(const struct lf_class_train_opts *o, lf_err *err);
const lf_objective *lf_class_train_objective(const lf_class_train *t);
void lf_class_train_destroy(lf_class_train *t);

/* Writes the constants of classes.norm into a store, from sums over pictures: their number, then
 * each feature, then each feature squared. LF_EINVAL: one of them is not finite. */
int lf_class_write_norm(lf_pstore *ps, const double *sums, int64_t width, lf_err *err);
/* Returns L(z, q) of n classes; d (NULL: none) becomes scale times its gradient. In f64. */
double lf_class_loss(const float *z, const double *q, int64_t n, double scale, float *d);
/* How many of n numbers are larger than number k, equal ones before it and all of which one is NaN
 * counted: its rank from 0. */
int64_t lf_class_rank(const float *z, int64_t n, int64_t k);

#endif
