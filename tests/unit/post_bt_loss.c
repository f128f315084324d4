/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss of the reward model: values computed in double precision from the definition (the
 * issue's reference), the derivatives against finite differences, and that parts add up to the
 * whole.
 */
#include <math.h>
#include <string.h>

#include "engine/post/bt_loss.h"
#include "tests/tap/tap.h"

static const float chosen[3] = {1.2f, 0.3f, -0.5f}, rejected[3] = {0.2f, 0.8f, -1.5f},
                   margins[3] = {0, 0.5f, 1};

static void values(void)
{
    double dc, dr;
    tap_f64(lf_bt_pair(1, 0, 0, 0, &dc, &dr), .3132616875, 1e-10, "difference 1");
    tap_f64(lf_bt_pair(5, 5, 0, 0, &dc, &dr), .6931471806, 1e-10, "difference 0");
    tap_f64(lf_bt_pair(0, 2, 0, 0, &dc, &dr), 2.1269280110, 1e-10, "difference -2");
    lf_bt_sums plain = {0}, with_margin = {0}, centred = {0};
    lf_bt_means m;
    lf_bt_loss(&plain, &(struct lf_bt_pairs){chosen, rejected, NULL, 3}, 0, NULL);
    lf_bt_sums_means(&m, &plain);
    tap_f64(m.loss, .5335334531, 1e-7, "loss of a batch");
    tap_f64(m.accuracy, 2. / 3, 1e-12, "accuracy");
    tap_f64(m.margin, .5, 1e-7, "margin");
    tap_f64(m.min, -1.5, 1e-7, "least reward");
    tap_f64(m.max, 1.2, 1e-7, "largest reward");
    tap_f64(m.reward, .5 / 6, 1e-7, "mean reward");
    tap_f64(m.reward_std, sqrt(4.71 / 6 - (.5 / 6) * (.5 / 6)), 1e-7, "its standard deviation");
    tap_f64(m.chosen - m.rejected, m.margin, 1e-12, "means of the sides");
    lf_bt_loss(&with_margin, &(struct lf_bt_pairs){chosen, rejected, margins, 3}, 0, NULL);
    tap_f64(with_margin.loss / 3, .7732235185, 1e-7, "loss with margins");
    lf_bt_loss(&centred, &(struct lf_bt_pairs){chosen, rejected, NULL, 3}, .01, NULL);
    tap_f64(centred.loss / 3, .5574334531, 1e-7, "loss with centring");
}

static void strict_and_extreme(void)
{
    const float same[2] = {0.25f, 800}, other[2] = {0.25f, -800};
    lf_bt_sums s = {0};
    lf_bt_means m;
    float dc[2], dr[2];
    lf_bt_loss(&s, &(struct lf_bt_pairs){same, same, NULL, 2}, 0, NULL);
    tap_f64(s.correct, 0, 0, "equal scores are wrong");
    lf_bt_loss(&s, &(struct lf_bt_pairs){other, same, NULL, 2}, 0,
               &(struct lf_bt_slopes){dc, dr, 1});
    tap_ok(isfinite(s.loss) && fabs(s.loss - (3 * M_LN2 + 1600)) < 1e-6,
           "a difference of -1600 costs 1600: %.9g", s.loss);
    tap_ok((double)dc[1] == -1 && (double)dr[1] == 1, "and has slopes of -1 and 1");
    memset(&s, 0, sizeof s);
    lf_bt_sums_means(&m, &s);
    tap_ok(isnan(m.loss) && isnan(m.accuracy) && isnan(m.min) && isnan(m.reward_std),
           "no pairs, no means");
}

/* Against central differences of the loss, for every way of weighting. */
static void slopes(void)
{
    const double h = 1e-5,
                 at[5][3] = {{1.2, .2, 0}, {-3, 4, .5}, {.3, .3, 1}, {6, -2, 0}, {0, 0, -.25}};
    double worst = 0;
    for (int k = 0; k < 5; k++)
        for (double centre = 0; centre < 0.05; centre += 0.02) {
            double dc, dr, x, y;
            const double c = at[k][0], r = at[k][1], m = at[k][2];
            lf_bt_pair(c, r, m, centre, &dc, &dr);
            double fc = (lf_bt_pair(c + h, r, m, centre, &x, &y) -
                         lf_bt_pair(c - h, r, m, centre, &x, &y)) /
                        (2 * h);
            double fr = (lf_bt_pair(c, r + h, m, centre, &x, &y) -
                         lf_bt_pair(c, r - h, m, centre, &x, &y)) /
                        (2 * h);
            worst = tap_worse(worst, fmax(fabs(fc - dc), fabs(fr - dr)));
        }
    tap_ok(worst < 1e-9, "derivatives are the slopes of the loss (%.2g)", worst);
}

static void parts(void)
{
    float dc[3], dr[3], pc[3], pr[3];
    lf_bt_sums whole = {0}, part[2] = {{0}, {0}}, sum = {0};
    lf_bt_loss(&whole, &(struct lf_bt_pairs){chosen, rejected, margins, 3}, .01,
               &(struct lf_bt_slopes){dc, dr, 1. / 3});
    lf_bt_loss(&part[0], &(struct lf_bt_pairs){chosen, rejected, margins, 1}, .01,
               &(struct lf_bt_slopes){pc, pr, 1. / 3});
    lf_bt_loss(&part[1], &(struct lf_bt_pairs){chosen + 1, rejected + 1, margins + 1, 2}, .01,
               &(struct lf_bt_slopes){pc + 1, pr + 1, 1. / 3});
    lf_bt_sums_add(&sum, &(lf_bt_sums){.min = -9, .max = 9});
    lf_bt_sums_add(&sum, &part[0]);
    lf_bt_sums_add(&sum, &part[1]);
    tap_mem(pc, dc, sizeof dc, "gradients of the chosen do not depend on the cut");
    tap_mem(pr, dr, sizeof dr, "gradients of the rejected neither");
    tap_f64(sum.loss, whole.loss, 1e-15, "losses add up");
    tap_f64(sum.reward_sq, whole.reward_sq, 1e-15, "squares add up");
    tap_ok(sum.pairs == 3 && sum.correct == whole.correct && sum.min == whole.min &&
               sum.max == whole.max,
           "so do counts and bounds");
}

int main(void)
{
    TAP(13, values());
    TAP(4, strict_and_extreme());
    TAP(1, slopes());
    TAP(5, parts());
    return tap_done();
}
