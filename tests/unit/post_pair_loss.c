/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses on judged answers: values computed from their definitions elsewhere, derivatives against
 * differences, limits. */
#include <math.h>

#include "engine/post/pair_loss.h"
#include "tests/tap/tap.h"

/* lp -10, -14 of answers of 5 and 7 tokens, reference -11, -13 */
static const struct lf_answer chosen = {-10, -11, 5}, rejected = {-14, -13, 7};
/* mean lp -0.8, -1.2 */
static const struct lf_answer mean_c = {-4, 0, 5}, mean_r = {-8.4, 0, 7};

static double loss(enum lf_pair_kind kind, double beta, double smoothing)
{
    const struct lf_pair_opts o = {.kind = kind, .beta = beta, .smoothing = smoothing};
    return lf_pair_loss(&o, &chosen, &rejected).loss;
}

static void test_values(void)
{
    tap_f64(loss(LF_PAIR_SIGMOID, 0.1, 0), 0.5981388694, 1e-9, "sigmoid");
    tap_f64(loss(LF_PAIR_SIGMOID, 0.1, 0.1), 0.6181388694, 1e-9, "cDPO");
    tap_f64(loss(LF_PAIR_ROBUST, 0.1, 0.1), 0.5731388694, 1e-9, "robust");
    tap_f64(loss(LF_PAIR_ROBUST, 0.1, 0), 0.5981388694, 1e-9, "robust without noise is sigmoid");
    tap_f64(loss(LF_PAIR_HINGE, 0.1, 0), 0.8, 1e-12, "hinge");
    tap_f64(loss(LF_PAIR_IPO, 0.1, 0), 21.6889795918, 1e-9, "ipo over 5 and 7 tokens");
    const struct lf_pair_opts o = {.kind = LF_PAIR_SIGMOID, .beta = 0.1};
    struct lf_pair_result r = lf_pair_loss(&o, &chosen, &rejected);
    tap_f64(r.reward_chosen, 0.1, 1e-12, "reward of the chosen");
    tap_f64(r.reward_rejected, -0.1, 1e-12, "and of the rejected");
    const struct lf_answer c = {-11, -11, 5}, j = {-13, -13, 7};
    tap_ok(lf_pair_loss(&o, &c, &j).loss == log(2),
           "ln 2 exactly where policy and reference agree");
    const struct lf_pair_opts odds = {.kind = LF_PAIR_ORPO, .beta = 0.1},
                              simple = {.kind = LF_PAIR_SIMPO, .beta = 2, .gamma = 0.5};
    tap_f64(lf_pair_loss(&odds, &mean_c, &mean_r).loss - 0.8, 0.0424106132, 1e-9,
            "orpo's term beside the NLL");
    const struct lf_pair_opts one = {.kind = LF_PAIR_ORPO, .beta = 1};
    tap_f64(-log(expm1(lf_pair_loss(&one, &mean_c, &mean_r).loss - 0.8)), 0.6382352613, 1e-9,
            "its log odds");
    tap_f64(lf_pair_loss(&simple, &mean_c, &mean_r).loss, 0.5543552445, 1e-9, "simpo");
    const struct lf_pair_opts mix = {.kind = LF_PAIR_SIGMOID, .beta = 0.1, .nll = 0.5};
    tap_f64(lf_pair_loss(&mix, &chosen, &rejected).loss, 0.5981388694 + 0.5 * 2, 1e-9,
            "NLL mixed in");
    const struct lf_kto_opts k = {.beta = 0.1, .w_good = 1, .w_bad = 1},
                             w = {.beta = 0.1, .w_good = 2, .w_bad = 3};
    tap_f64(lf_kto_loss(&k, &chosen, true, 0.2).loss, 0.4800106598, 1e-9, "kto, good");
    tap_f64(lf_kto_loss(&k, &rejected, false, 0.2).loss, 0.4700359483, 1e-9, "kto, not");
    tap_f64(lf_kto_loss(&w, &chosen, true, 0.2).loss, 2 * 0.4800106598, 1e-9, "weight of the good");
    tap_f64(lf_kto_loss(&w, &rejected, false, 0.2).loss, 3 * 0.4700359483, 1e-9, "of the others");
    tap_ok(lf_kto_z(-3, 2) == 0 && lf_kto_z(3, 2) == 1.5 && lf_kto_z(0, 0) == 0,
           "z is never negative");
}

static void test_slopes(void)
{
    static const double smooth[] = {0, 0.1, 0, 0, 0, 0};
    double worst = 0;
    for (int kind = 0; kind <= LF_PAIR_SIMPO; kind++)
        for (int at = 0; at < 12; at++) {
            const struct lf_pair_opts o = {.kind = (enum lf_pair_kind)kind,
                                           .beta = 0.1 + 0.3 * (at % 3),
                                           .smoothing = at % 2 ? smooth[kind % 2 ? 1 : 0] : 0,
                                           .gamma = kind == LF_PAIR_SIMPO ? 0.3 * at : 0,
                                           .nll = kind == LF_PAIR_ORPO ? 0 : 0.2 * (at % 4)};
            struct lf_answer c = {-9 - at, -10, 4 + at}, r = {-6 - 0.7 * at * at / 4, -9, 9};
            struct lf_pair_result mid = lf_pair_loss(&o, &c, &r);
            const double h = 1e-5;
            for (int side = 0; side < 2; side++) {
                double *x = side ? &r.logp : &c.logp, old = *x;
                *x = old + h;
                double up = lf_pair_loss(&o, &c, &r).loss;
                *x = old - h;
                double down = lf_pair_loss(&o, &c, &r).loss;
                *x = old;
                worst = tap_worse(
                    worst, fabs((up - down) / (2 * h) - (side ? mid.d_rejected : mid.d_chosen)));
            }
        }
    tap_ok(worst < 1e-7, "derivatives of the losses equal differences (%.2g)", worst);
    worst = 0;
    for (int at = 0; at < 20; at++) {
        const struct lf_kto_opts o = {.beta = 0.1 + 0.1 * at, .w_good = 1.5, .w_bad = 0.5};
        struct lf_answer a = {-9 - 0.3 * at, -11, 5};
        struct lf_kto_result mid = lf_kto_loss(&o, &a, at % 2, 0.1 * at);
        a.logp += 1e-5;
        double up = lf_kto_loss(&o, &a, at % 2, 0.1 * at).loss;
        a.logp -= 2e-5;
        worst = tap_worse(
            worst, fabs((up - lf_kto_loss(&o, &a, at % 2, 0.1 * at).loss) / 2e-5 - mid.d_logp));
    }
    tap_ok(worst < 1e-7, "those of kto too (%.2g)", worst);
}

static void test_limits(void)
{
    bool finite = true;
    for (int kind = 0; kind <= LF_PAIR_SIMPO; kind++)
        for (int sign = -1; sign <= 1; sign += 2) {
            const struct lf_pair_opts o = {.kind = (enum lf_pair_kind)kind, .beta = 0.5};
            const struct lf_answer c = {-1e4, sign * 1e4 - 1e4, 3}, r = {-1e4, 0, 3};
            struct lf_pair_result x = lf_pair_loss(&o, &c, &r);
            finite = finite && isfinite(x.loss) && isfinite(x.d_chosen) && isfinite(x.d_rejected);
        }
    tap_ok(finite, "far apart, losses and derivatives stay finite");
    tap_f64(lf_log_sigmoid(-800), -800, 0, "log sigmoid far down");
    tap_f64(lf_sigmoid(-800) + lf_sigmoid(800), 1, 0, "sigmoid far out");
}

static void test_refused(void)
{
    static const struct lf_pair_opts bad[] = {
        {.kind = LF_PAIR_SIGMOID},
        {.kind = LF_PAIR_SIGMOID, .beta = 0.1, .smoothing = 0.5},
        {.kind = LF_PAIR_IPO, .beta = 0.1, .smoothing = 0.1},
        {.kind = LF_PAIR_IPO, .beta = 0.1, .gamma = 1},
        {.kind = LF_PAIR_ORPO, .beta = 0.1, .nll = 1}};
    static const char *const words[] = {"beta", "label_smoothing", "belongs to loss", "gamma",
                                        "orpo"};
    lf_err err = LF_ERR_INIT;
    for (int i = 0; i < 5; i++)
        tap_rc(lf_pair_check(&bad[i], &err), LF_EINVAL, &err, words[i], words[i]);
    const struct lf_pair_opts good = {
        .kind = LF_PAIR_ROBUST, .beta = 0.1, .smoothing = 0.2, .nll = 1};
    tap_rc(lf_pair_check(&good, &err), 0, &err, NULL, "settings that fit");
}

int main(void)
{
    TAP(18, test_values());
    TAP(2, test_slopes());
    TAP(3, test_limits());
    TAP(6, test_refused());
    return tap_done();
}
