/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss of a reward model on pairs of scores: Bradley and Terry (1952) as in Stiennon et al.
 * (2020) and Ouyang et al. (2022), with the margin of Llama 2 (Touvron et al., 2023) and the
 * centring of Eisenstein et al. (2023). For a pair with score c of the chosen answer, score r of
 * the rejected one, and margin m:
 *
 *     loss = -log sigmoid(c - r - m)  +  centre (c + r)^2
 *     d loss / d c = -sigmoid(-(c - r - m)) + 2 centre (c + r)
 *     d loss / d r =  sigmoid(-(c - r - m)) + 2 centre (c + r)
 *
 * The loss of an optimizer step is the mean over all its pairs. These functions keep sums, so that
 * micro-batches and ranks can be added: a gradient is scaled by 1 / pairs of the whole step, and
 * sums are added before they are divided. Everything is f64; c == r counts as wrong.
 */
#ifndef LF_POST_BT_LOSS_H
#define LF_POST_BT_LOSS_H

#include <stdint.h>

/* Sums over the pairs so far; zeroed at first. */
typedef struct lf_bt_sums {
    int64_t pairs;
    double loss;
    double correct;   /* pairs with c > r */
    double margin;    /* sum of c - r */
    double reward;    /* sum of c and r: of 2 * pairs scores */
    double reward_sq; /* of their squares */
    double chosen, rejected;
    double min, max; /* over all c and r; valid when pairs > 0 */
} lf_bt_sums;

/* The reported means; NaN where there are no pairs. */
typedef struct lf_bt_means {
    double loss, accuracy, margin;
    double chosen, rejected;
    double reward, reward_std; /* of all scores: mean and standard deviation (of the population) */
    double min, max;
} lf_bt_means;

/* Returns the loss of one pair; *dc and *dr become its derivatives. */
double lf_bt_pair(double c, double r, double margin, double centre, double *dc, double *dr);

struct lf_bt_pairs {
    const float *chosen, *rejected; /* [n] scores */
    const float *margin;            /* [n]; NULL: 0 */
    int64_t n;
};
struct lf_bt_slopes {
    float *chosen, *rejected; /* [n] */
    double scale;             /* 1 / pairs of the step */
};

/* Adds the pairs to sums. The slopes (may be NULL) become scale times the derivatives of the loss
 * of each pair. */
void lf_bt_loss(lf_bt_sums *sums, const struct lf_bt_pairs *p, double centre,
                const struct lf_bt_slopes *d);

void lf_bt_sums_add(lf_bt_sums *to, const lf_bt_sums *from);
void lf_bt_sums_means(lf_bt_means *out, const lf_bt_sums *s);

#endif
