/* SPDX-License-Identifier: Apache-2.0
 *
 * The KL of a policy to its reference, token by token, and its coefficient.
 *
 * With k1 = lp - ref of a token drawn from the policy (Schulman, "Approximating KL divergence",
 * 2020):
 *     k1 = lp - ref              unbiased; as a loss its gradient is useless (its expectation is 0)
 *     k2 = k1^2 / 2              small bias, and as a loss the gradient of the true KL
 *     k3 = exp(-k1) - 1 + k1     unbiased, never negative
 * `straight` gives the value of k1 or k3 the gradient of k2 (straight-through, verl's "+").
 */
#ifndef LF_POST_KL_H
#define LF_POST_KL_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"

enum lf_kl_kind { LF_KL_K1 = 0, LF_KL_K2, LF_KL_K3 };

struct lf_kl_opts {
    enum lf_kl_kind kind;
    bool straight;
    double clamp_in;  /* bound on |lp - ref| before the estimate; 0: none */
    double clamp_out; /* bound on |estimate|; 0: none */
};
#define LF_KL_CLAMP_IN  20.0 /* what verl, OpenRLHF and NeMo-RL use */
#define LF_KL_CLAMP_OUT 10.0

double lf_kl(const struct lf_kl_opts *o, double lp, double ref);
/* d lf_kl / d lp, 0 where a clamp holds. */
double lf_kl_grad(const struct lf_kl_opts *o, double lp, double ref);

/* beta, fixed or adaptive (Ziegler et al. 2019): after n sequences whose mean KL was kl,
 *     beta *= 1 + clip(kl / target - 1, -0.2, 0.2) * n / horizon */
struct lf_kl_control {
    bool adaptive;
    double beta, target, horizon;
};
/* Checks ranges. LF_EINVAL: the message names the value. */
int lf_kl_control_check(const struct lf_kl_control *c, lf_err *err);
void lf_kl_control_update(struct lf_kl_control *c, double kl, int64_t n);

#endif
